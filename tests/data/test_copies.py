"""Equal samples are one sample that has the sum of their weights."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from pollux import GeminiClustering
from pollux.data.samples import ArraySamples, merge_copies, select_samples

random = np.random.default_rng(0)
X = np.concatenate([random.normal(size=(20, 3)), random.integers(-1, 2, (40, 3))]).astype(float)
COUNTS = random.integers(1, 4, len(X))


def merge(X: Any, weight: Any = None) -> ArraySamples:
    return merge_copies(select_samples(X, weight, "cpu"))


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_weights_repetitions_and_another_order_are_the_same_samples(form: Any) -> None:
    order = random.permutation(len(X))
    found = [
        merge(form(X), COUNTS),
        merge(form(np.repeat(X, COUNTS, axis=0))),
        merge(form(X[order]), COUNTS[order]),
    ]
    for each in found:
        assert each.X.shape == np.unique(X, axis=0).shape
        assert (each.X != found[0].X).sum() == 0
        assert (each.sample_weight == found[0].sample_weight).all()
    assert found[0].sample_weight.sum() == COUNTS.sum()
    assert (form(X) != found[0].X[found[0].copies]).sum() == 0


@pytest.mark.parametrize("X", [X[:20], np.ones((5, 2)), random.integers(0, 2**62, (9, 2)), X[:20].astype(np.float32)])
def test_samples_that_differ_or_are_all_equal_stay_as_they_are(X: Any) -> None:
    given = select_samples(X, None, "cpu")
    assert merge_copies(given) is given


def test_gaps_and_negative_zeros_are_equal() -> None:
    found = merge(np.array([[0.0, np.nan], [-0.0, np.nan], [1.0, np.nan]]))
    assert sorted(found.sample_weight.tolist()) == [1, 2]


def test_whole_numbers_that_floats_do_not_tell_apart_are_not_equal() -> None:
    given = select_samples(np.array([[2**62], [2**62 + 1], [3]]), None, "cpu")
    assert merge_copies(given) is given


def test_scores_of_a_fit_are_those_of_all_rows() -> None:
    rows = np.repeat(X, COUNTS, axis=0)
    fitted = GeminiClustering(3, max_epochs=2, random_state=0).fit(rows)
    assert fitted.labels_.shape == (len(rows),)
    assert fitted.find_outliers(rows, 0.1).mean() == pytest.approx(0.1, abs=0.06)
