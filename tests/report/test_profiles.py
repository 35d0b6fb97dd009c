"""What sets clusters apart: by hand, in histograms, in words."""

import numpy as np
import pytest

from pollux.report.profiles import compare_clusters, describe_differences, make_histogram


def test_standardised_differences_by_hand() -> None:
    generator = np.random.default_rng(1)
    X = generator.normal(size=(90, 70)) * 10 ** generator.uniform(-1, 6, size=70) + 1e6
    X[generator.random(X.shape) < 0.1] = np.nan
    X[0, 5] = np.inf
    X[:, 7] = 3.25
    labels = np.repeat([0, 1, 2], 30)
    found = compare_clusters(X, labels, 3)
    X[~np.isfinite(X)] = np.nan
    for cluster in range(3):
        inside, outside = np.nanmean(X[labels == cluster], 0), np.nanmean(X[labels != cluster], 0)
        spread = np.nanstd(X, 0)
        expected = np.divide(inside - outside, spread, out=np.zeros(70), where=spread > 0)
        np.testing.assert_allclose(found.scaled[cluster], expected, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.inside[cluster], inside)
        np.testing.assert_allclose(found.missing[cluster], np.isnan(X[labels == cluster]).mean(0))
        best = found.ranked(cluster, 8)
        assert best == np.argsort(-np.abs(expected))[:8].tolist()
        assert 7 not in found.ranked(cluster, 70)


def test_what_sets_a_cluster_apart_in_words() -> None:
    labels = np.repeat([0, 1], 50)
    X = np.stack([np.repeat([0.0, 5.0], 50), np.tile([0.0, 1.0], 50), np.repeat([1.0, 0.0], 50)], axis=1)
    X[::7, 0] += 1
    found = compare_clusters(X, labels, 2)
    names = ["length", "noise", "colour=red"]
    assert describe_differences(found, 0, names, {"colour=red"}) == "mostly colour=red, length very low"
    assert describe_differences(found, 1, names, {"colour=red"}) == "hardly any colour=red, length very high"
    assert (
        describe_differences(compare_clusters(X[:, 1:2], labels, 2), 0, ["noise"], ())
        == "close to the average in every feature"
    )


def test_a_histogram_holds_every_known_value() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 500)
    for values in (generator.standard_cauchy(500), generator.integers(0, 7, 500).astype(float), np.full(500, 2.5)):
        spread = make_histogram(np.where(np.arange(500) % 9, values, np.nan), labels, 3)
        assert spread.everyone.sum() == pytest.approx(1)
        np.testing.assert_allclose(spread.clusters.sum(1), 1)


def test_words_say_once_what_follows_from_each_other() -> None:
    labels = np.repeat([0, 1], 50)
    own = (labels == 0).astype(float)
    own[3] = 0
    X = np.stack([1 - own, own, np.arange(100) % 3 + 2.0 * labels], axis=1)
    names = ["premium=false", "premium=true", "visits"]
    found = compare_clusters(X, labels, 2)
    assert describe_differences(found, 0, names, set(names[:2])) == "mostly premium=true, visits very low"
    assert describe_differences(found, 1, names, set(names[:2])) == "mostly premium=false, visits very high"
    # Of three values: nearly all of one is little of the others, but less of one is not more of another.
    town = np.where(labels == 0, 0, 1 + np.arange(100) % 2)
    cities = ["city=Bonn", "city=Köln", "city=Leipzig"]
    found = compare_clusters((town[:, None] == np.arange(3)).astype(float), labels, 2)
    assert describe_differences(found, 0, cities, set(cities)) == "mostly city=Bonn"
    assert "city=Köln" in describe_differences(found, 1, cities, set(cities))


def test_a_histogram_shows_the_bulk() -> None:
    values = np.random.default_rng(0).normal(10, 1, 3000)
    values[:30] *= 200
    spread = make_histogram(values, np.zeros(3000, dtype=np.int64), 1)
    assert spread.high < 20
    assert spread.everyone[-1] >= 0.01
