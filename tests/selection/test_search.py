"""Answers where the number of clusters is known, and input that cannot be used."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.preprocessing import StandardScaler
from torch import nn

import pollux as package
import pollux.selection.search
from blobs import blobs
from pollux import MLP, GeminiClustering, Scaling, Selection, select_n_clusters

QUICK = GeminiClustering(
    model="linear",
    objective="mmd_ovo",
    preprocessing=None,
    n_init=1,
    max_epochs=15,
    batch_size=None,
    learning_rate=0.05,
)


def test_three_blobs_are_three_clusters(found: Selection) -> None:
    assert found.n_clusters == 3
    assert found.is_clear
    assert found.reason.startswith("3 clusters")
    assert found.best is found[3]
    assert found[3].stability > 0.97
    assert found[3].separation > 0.97
    assert found[3].score == found[3].stability * found[3].separation
    assert found[3].consensus_rank == 1
    assert found[3].adjusted_rand_index > 0.97  # type: ignore[operator]
    assert [each.n_clusters for each in found.candidates] == [3, 4]
    assert sum(found.in_use.values()) == 5
    assert max(found.in_use) <= found.asked_for == 4
    assert found.rows == found.rows_used == 90


def test_one_long_gaussian_has_no_clear_structure(noise: Selection) -> None:
    # Cut in two across its length it is stable all the same.
    assert noise[2].stability > 0.6
    assert noise[2].separation < 0.1
    assert not noise.is_clear
    assert noise.n_clusters == 1
    assert noise.reason.startswith("No clear structure")
    assert noise.best is max(noise.candidates, key=lambda each: each.score)


def test_the_same_seed_gives_the_same_answer() -> None:
    X, _ = blobs()
    first, second = (select_n_clusters(X, [3, 2], estimator=QUICK, n_subsamples=3, random_state=4) for _ in range(2))
    assert first == second
    assert [each.n_clusters for each in first.candidates] == [2, 3]


def test_any_form_of_rows_is_taken_and_large_ones_are_sampled() -> None:
    X, _ = blobs(300)
    frame = pd.DataFrame(X, columns=["a", "b"])
    sparse = scipy.sparse.csr_array(X)
    answers = [
        select_n_clusters(rows, [3], estimator=QUICK, n_subsamples=3, max_rows=60, random_state=0)
        for rows in (X, frame, sparse)
    ]
    assert answers[0] == answers[1] == answers[2]
    assert (answers[0].rows, answers[0].rows_used) == (300, 60)
    assert "60 were used" in str(answers[0])


def test_an_estimator_is_left_as_it_was() -> None:
    X, _ = blobs(30)
    mine = GeminiClustering(7, model=MLP(hidden=(4,)), max_epochs=2, random_state=1, verbose=True)
    before = mine.get_params()
    select_n_clusters(X.reshape(30, 2, 1, 1), [2], estimator=mine, n_subsamples=3, random_state=0)
    assert mine.get_params() == before
    assert not hasattr(mine, "n_clusters_")


def test_an_estimator_that_scales_sees_scaled_rows() -> None:
    X, _ = blobs()
    X[0, 0] = np.nan
    known = StandardScaler().fit_transform(X)
    known[0, 0] = 0
    mine = clone(QUICK).set_params(preprocessing__scaling="standard", preprocessing__missing="mean")
    one = select_n_clusters(X * [1, 1e6] + [0, 1e7], [3], estimator=mine, n_subsamples=3, random_state=0)[3]
    other = select_n_clusters(known, [3], estimator=QUICK, n_subsamples=3, random_state=0)[3]
    assert dataclasses.astuple(one)[:-1] == pytest.approx(dataclasses.astuple(other)[:-1])
    assert mine.get_params()["preprocessing__scaling"] == "standard"
    with pytest.raises(ValueError, match="scaling"):
        select_n_clusters(X, [3], estimator=GeminiClustering(preprocessing=Scaling(scaling="wrong", missing="mean")))


def test_jobs_give_the_same_answer() -> None:
    X, _ = blobs(30)
    # By joblib, but without the seconds that new processes take.
    with parallel_config("sequential"):
        one, several = (
            select_n_clusters(X, [2], estimator=QUICK, n_subsamples=3, random_state=0, n_jobs=jobs) for jobs in (1, 2)
        )
    assert one == several


@pytest.mark.parametrize("seed", range(3))
def test_two_moons_are_two_clusters(seed: int) -> None:
    X, classes = make_moons(500, noise=0.05, random_state=seed)
    found = select_n_clusters(X, (2, 4), y=classes, n_subsamples=3, random_state=0)
    assert found.n_clusters == 2
    assert found[2].adjusted_rand_index > 0.8  # type: ignore[operator]
    assert found[4].score < 0.1


def test_independent_zeros_and_ones_have_no_clear_structure() -> None:
    X = np.random.default_rng(0).integers(0, 2, size=(200, 6))
    assert not select_n_clusters(X, (2, 4), n_subsamples=3, random_state=0).is_clear


def test_few_rows_may_have_clusters() -> None:
    X, _ = blobs(18)
    assert select_n_clusters(2 * X, (2, 3, 4), n_subsamples=3, random_state=0).n_clusters == 3


def test_clusters_of_unequal_sizes_are_found() -> None:
    sizes = np.repeat([0, 1, 2], [300, 40, 60])
    places, widths = np.array([[0, 0], [6, 0], [0, 6]]), np.array([1, 0.5, 0.5])
    X = places[sizes] + np.random.default_rng(0).normal(size=(400, 2)) * widths[sizes, None]
    assert select_n_clusters(X, (2, 3, 4), n_subsamples=3, random_state=0).n_clusters == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"candidates": []}, "no candidates"),
        ({"candidates": 3}, "several numbers"),
        ({"candidates": [1, 2]}, "at least 2, not 1"),
        ({"candidates": [2.5]}, "whole number"),
        ({"candidates": [True]}, "whole number"),
        ({"candidates": [25]}, "too few for 25"),
        ({"n_subsamples": 2}, "n_subsamples"),
        ({"subsample": 0}, "subsample"),
        ({"subsample": "half"}, "subsample"),
        ({"max_rows": 3}, "max_rows"),
        ({"y": [0, 1]}, "2 classes for 30 rows"),
        ({"estimator": nn.Linear(2, 2)}, "must be a GeminiClustering"),
        ({"estimator": GeminiClustering(model="free")}, "free table"),
        ({"estimator": GeminiClustering(model=nn.Linear(2, 2))}, "one number of clusters"),
        ({"X": "data.csv"}, "pollux select"),
        ({"X": [[np.inf, 1.0]] * 30}, "infinity"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_input_that_cannot_be_used_is_refused_with_the_reason(arguments: dict[str, Any], message: str) -> None:
    X, _ = blobs(30)
    with pytest.raises(ValueError, match=message):
        select_n_clusters(**({"X": X} | arguments))


def test_frames_are_read_and_gaps_filled_as_by_fit() -> None:
    X, classes = blobs(30)
    X[3, 1] = np.nan
    frame = pd.DataFrame(X).rename(columns=str).assign(kind=np.array(["a", "b", "c"])[classes])
    for given in (X, frame):
        assert select_n_clusters(given, [2, 3], n_subsamples=3, random_state=0).rows == 30


def test_columns_of_one_unit_keep_it_and_others_are_standardised(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []

    def look(X: np.ndarray, *_: object, **__: object) -> None:
        seen.append(X)
        raise InterruptedError

    monkeypatch.setattr(pollux.selection.search, "search", look)
    random = np.random.default_rng(0)
    pixels = random.uniform(size=(60, 5)) * [1, 2, 2, 2, 3]
    unlike = np.column_stack([pixels[:, 0], 1000 * pixels[:, 1], np.full(60, 0.1)])
    for X in (pixels, unlike):
        with pytest.raises(InterruptedError):
            select_n_clusters(X)
    one, each = (X.std(0) for X in seen)
    np.testing.assert_allclose(one / one[0], pixels.std(0) / pixels[:, 0].std())
    np.testing.assert_allclose(each, [1, 1, 0], atol=1e-12)


def test_the_names_are_public() -> None:
    assert package.select_n_clusters is select_n_clusters
    assert package.Selection is Selection
