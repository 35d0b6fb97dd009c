"""What sets clusters apart: by hand, and in words that are true and not said twice."""

import numpy as np

from pollux.data.encoding import Feature
from pollux.trees.contrasts import compare_clusters, describe_clusters, mark_shares, move_together, restated_column


def told(X: np.ndarray, labels: np.ndarray, names: list[str]) -> dict[int, str]:
    features = mark_shares(X, tuple(map(Feature, names)))
    clusters = np.unique(labels).tolist()
    return describe_clusters(compare_clusters(X, labels, max(clusters) + 1), X, features, clusters)


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
    X[3, 2] = 0
    found = told(X, labels, ["length", "noise", "colour=red"])
    assert found[0] == "length very low (0.2; elsewhere 5.1); mostly colour=red (98%; elsewhere 0%)"
    assert found[1] == "length very high (5.1; elsewhere 0.2); no colour=red (elsewhere 98%)"
    (average, _) = told(X[:, 1:2], labels, ["noise"]).values()
    assert average == "close to the average in every column"


def test_a_column_is_said_once() -> None:
    labels = np.repeat([0, 1], 50)
    own = (labels == 0).astype(float)
    own[3] = 0
    X = np.stack([1 - own, own, np.random.default_rng(0).normal(size=100) + 2 * labels], axis=1)
    found = told(X, labels, ["premium=false", "premium=true", "visits"])
    assert found[0].startswith("mostly premium=true (98%; elsewhere 0%); visits low (")
    assert found[1].startswith("all premium=false (elsewhere 2%); visits high (")
    # Of three values: nearly all of one is little of the others, but less of one is not more of another.
    town = np.where(labels == 0, 0, 1 + np.arange(100) % 2)
    cities = ["city=Bonn", "city=Köln", "city=Leipzig"]
    found = told((town[:, None] == np.arange(3)).astype(float), labels, cities)
    assert found == {0: "all city=Bonn (elsewhere 0%)", 1: "no city=Bonn (elsewhere 100%)"}


def test_columns_of_zeros_and_ones_are_shares() -> None:
    labels = np.repeat([0, 1], 50)
    smokes = np.where(labels == 0, np.arange(100) % 10 > 0, 0).astype(float)
    found = told(smokes[:, None], labels, ["smoker"])
    assert found == {0: "mostly smoker=1 (90%; elsewhere 0%)", 1: "all smoker=0 (elsewhere 10%)"}


def test_columns_that_move_together_are_said_together() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 100)
    hour = 8 + 8 * labels + random.normal(size=200)
    X = np.stack([hour, 100 * hour + random.normal(size=200), random.normal(size=200) + 2 * labels], axis=1)
    found = told(X, labels, ["hour", "dep_time", "delay"])
    assert found[1].count(" high ") == 2
    assert "hour very high" in found[1].replace("dep_time very high", "hour very high")
    assert "and with it " in found[1]
    assert "; delay high" in found[1]


def test_clusters_that_differ_from_the_rest_alike_are_told_from_each_other() -> None:
    # Clusters 0 and 1 have high a, as opposed to 2 and 3; b, which tells them apart, is no more than notable.
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], 100)
    a = np.where(labels < 2, 10.0, 0.0) + random.normal(size=400)
    b = np.choose(labels, [0.4, 1.0, 0.7, 0.7]) + random.normal(size=400)
    found = told(np.stack([a, b], axis=1), labels, ["a", "b"])
    assert "unlike cluster 1: b lower (" in found[0]
    assert "unlike cluster 0: b higher (" in found[1]
    assert len(set(found.values())) == 4


def test_clusters_that_restate_a_column_are_known() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 300)
    ones = (labels[:, None] == np.arange(3)).astype(float)
    X = np.concatenate([random.normal(size=(300, 2)), ones], axis=1)
    features = (Feature("a"), Feature("b"), *(Feature("continent", value) for value in ("Asia", "Europe", "Africa")))
    assert restated_column(X, labels, features) == "continent"
    assert restated_column(X, np.roll(labels, 1), features) == ""
    assert restated_column(X, (X[:, 0] > 0).astype(np.int64), features) == "a"
    # Other columns that tell the same clusters would give them again.
    assert restated_column(np.c_[X, 5 * labels + X[:, 0]], labels, (*features, Feature("c"))) == ""
    # Of one column alone, clusters can be nothing else; and most rows in one cluster restate nothing.
    assert restated_column(X[:, :1], (X[:, 0] > 0).astype(np.int64), features[:1]) == ""
    rare = (random.random(300) < 0.02).astype(np.int64)
    assert restated_column(random.normal(size=(300, 2)), rare, features[:2]) == ""


def test_columns_are_compared_on_rows_drawn_at_random_whatever_their_order() -> None:
    # Of each three rows the first is of one cluster, and the two others are of two.
    labels = np.tile([0, 1, 2], 2000)
    noise = np.random.default_rng(0).normal(size=6000)
    assert restated_column(np.stack([labels, noise], axis=1), labels, (Feature("kind"), Feature("b"))) == "kind"
    # Both are alike in the first of each three rows alone.
    assert not move_together(np.stack([noise, np.where(labels == 0, noise, -noise)], axis=1), 0, 1)
