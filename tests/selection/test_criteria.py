"""Stability, consensus and separation against their definitions."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from blobs import CENTRES, blobs
from pollux.inspection.structure import neighbour_edges, pairwise_gaps, separation
from pollux.metrics import pairwise_agreement
from pollux.selection.criteria import distances_from_consensus, mean_and_error, sample_pairs

# Agreement


def test_agreement_is_the_mean_over_pairs() -> None:
    labels = np.random.default_rng(0).integers(0, 3, (4, 50))
    agreement = pairwise_agreement(labels)
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    np.testing.assert_allclose(agreement, [adjusted_rand_score(labels[a], labels[b]) for a, b in pairs])
    assert mean_and_error(agreement, 4)[0] == pytest.approx(agreement.mean())


def test_clusterings_that_collapsed_agree_on_nothing() -> None:
    assert pairwise_agreement(np.zeros((2, 9), dtype=np.int64)).tolist() == [0.0]


def test_the_error_grows_with_disagreement() -> None:
    same = np.tile(np.arange(30) % 3, (5, 1))
    assert mean_and_error(pairwise_agreement(same), 5) == (1.0, 0.0)
    mixed = same.copy()
    mixed[0] = np.random.default_rng(0).integers(0, 3, 30)
    assert mean_and_error(pairwise_agreement(mixed), 5)[1] > 0.1


def test_consensus_prefers_the_clustering_that_others_confirm() -> None:
    classes = np.arange(60) % 3
    odd = np.random.default_rng(0).integers(0, 3, 60)
    pairs = sample_pairs(60, 2_000, np.random.default_rng(0))
    distances = distances_from_consensus(np.array([classes, classes, classes % 2, odd]), pairs)
    assert distances.argmin() in (0, 1)
    assert distances[0] == distances[1] < distances[3]


def test_consensus_on_all_pairs_is_the_distance_between_matrices() -> None:
    labels = np.random.default_rng(1).integers(0, 3, (3, 12))
    first, second = np.triu_indices(12, 1)
    matrices = (labels[:, :, None] == labels[:, None, :]).astype(float)
    expected = np.abs(matrices - matrices.mean(0))[:, first, second].mean(1)
    np.testing.assert_allclose(distances_from_consensus(labels, (first, second)), expected)


def test_pairs_are_of_different_rows() -> None:
    first, second = sample_pairs(5, 1_000, np.random.default_rng(0))
    assert (first != second).all()
    assert {*first.tolist(), *second.tolist()} == set(range(5))


# Gaps


def by_distance(X: NDArray[np.float64], centres: Any) -> NDArray[np.float64]:
    """Log-probabilities (n, K) of a linear model that has these cells."""
    logits = -((X[:, None] - np.asarray(centres)) ** 2).sum(-1)
    return np.asarray(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


def test_edges_are_those_of_the_nearest_others() -> None:
    X, _ = blobs()
    edges = neighbour_edges(X, 9)
    assert edges.shape == (2, 90 * 5)
    distances = np.linalg.norm(X[:, None] - X, axis=-1) + np.diag(np.full(90, np.inf))
    expected = np.sort(distances, axis=1)[:, :5]
    np.testing.assert_allclose(np.linalg.norm(X[edges[0]] - X[edges[1]], axis=1).reshape(90, 5), expected)
    assert [neighbour_edges(X, k).shape[1] for k in (2, 90)] == [90 * 10, 90 * 3]
    assert neighbour_edges(X[:3], 2).shape == (2, 3 * 2)


def test_boundaries_through_gaps_cut_nothing() -> None:
    X, _ = blobs()
    log_p, edges = by_distance(X, CENTRES), neighbour_edges(X, 3)
    np.testing.assert_array_equal(pairwise_gaps(log_p, edges), np.ones((3, 3)))
    assert separation(log_p, edges) == 1


@pytest.mark.parametrize("shape", [[1, 1], [8, 1], [30, 1]], ids=["round", "long", "thin"])
def test_halves_of_a_cluster_have_no_gap_between_them(shape: list[float]) -> None:
    halves = np.array([[0.3, 0.5], [0.7, 0.5]]) * shape
    squares = [np.random.default_rng(seed).uniform(size=(400, 2)) * shape for seed in range(10)]
    assert np.mean([separation(by_distance(X, halves), neighbour_edges(X, 2)) for X in squares]) < 0.05


def test_a_gap_is_what_the_boundary_cuts_less_than_levels_beside_it() -> None:
    # Rows on a line, twice joined with the next four: a level inside cuts 2 · (1 + 2 + 3 + 4) edges. Between the halves
    # there are two, and others lead to a third cluster.
    margin = np.concatenate([np.linspace(-9, -1, 40), np.linspace(1, 9, 40)])
    log_p = np.column_stack([-np.logaddexp(0, margin), -np.logaddexp(0, -margin), np.full(80, -99.0)])
    log_p = np.concatenate([log_p, np.tile([-99.0, -99.0, 0.0], (9, 1))])
    inside = [(i, i + step) for step in (1, 2, 3, 4) for i in range(80 - step) if (i < 40) == (i + step < 40)]
    edges = np.array([*inside, *inside, (39, 40), (38, 41), *((10, 80 + i) for i in range(9))]).T
    gaps = pairwise_gaps(log_p, edges)
    np.testing.assert_allclose(gaps[:2, :2], [[1, 1 - 2 / 20], [1 - 2 / 20, 1]])
    assert separation(log_p[:80, :2], edges[:, :-9]) == pytest.approx(1 - 2 / 20)


@pytest.mark.parametrize("size", [0.1, 1, 1000])
def test_gaps_do_not_hang_on_how_sure_the_model_is(size: float) -> None:
    X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0, 0], [5, 0]], 100, axis=0)
    expected = separation(by_distance(X, [[0, 0], [5, 0]]), neighbour_edges(X, 2))
    logits = size * (X[:, :1] - 2.5) * [-1, 1]
    log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    assert separation(log_p, neighbour_edges(X, 2)) == pytest.approx(expected)
    assert expected > 0.9


def test_the_cluster_that_touches_another_counts_most() -> None:
    random = np.random.default_rng(0)
    X = np.concatenate([random.uniform(size=(300, 2)) * [2, 1], 9 + random.uniform(size=(300, 2))])
    log_p, edges = by_distance(X, [[0.5, 0.5], [1.5, 0.5], [9.5, 9.5]]), neighbour_edges(X, 3)
    gaps = pairwise_gaps(log_p, edges)
    assert gaps[0, 1] < 0.2
    assert gaps[0, 2] == gaps[1, 2] == 1
    nearest = [gaps[0, 1], gaps[0, 1], 1.0]
    assert separation(log_p, edges) == pytest.approx(np.sqrt(min(nearest) * np.mean(nearest)))


def test_what_collapsed_is_not_apart_and_empty_clusters_do_not_count() -> None:
    X, _ = blobs()
    edges = neighbour_edges(X, 3)
    assert separation(np.log(np.tile([0.2, 0.6, 0.2], (90, 1))), edges) == 0
    with_empty = np.column_stack([by_distance(X, CENTRES), np.full(90, -99.0)])
    assert separation(with_empty, edges) == 1
