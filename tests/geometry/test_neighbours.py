"""Neighbours, their graphs and the kernels of these: scikit-learn, loops as slow references, and laws."""

from __future__ import annotations

import math
import os
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.decomposition import PCA
from sklearn.manifold import spectral_embedding
from sklearn.metrics import pairwise_distances
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors

from pollux import MLP, GeminiClustering
from pollux.data.rows import Rows
from pollux.geometry import (
    OF_ALL_SAMPLES,
    Mixed,
    Mixtures,
    NeighbourGraph,
    Neighbours,
    centres,
    eigenvectors,
    mixtures,
    nearest,
    neighbours,
    resolve,
    spectral,
    unit_rows,
)
from pollux.geometry.affinity import Features
from pollux.geometry.spectral import WEIGHTS
from pollux.metrics import adjusted_rand_index

Array = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)

IS_FULL = os.environ.get("POLLUX_FAULTS") == "full"

every_weight = pytest.mark.parametrize("weights", WEIGHTS)
every_kernel = pytest.mark.parametrize("name", OF_ALL_SAMPLES["kernel"])


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def rotation(d: int) -> Array:
    return np.linalg.qr(normal(d, d, seed=3))[0]


def reference(X: Any, k: int) -> tuple[Array, NDArray[np.int64]]:
    """The nearest others by scikit-learn, which counts none as its own where it is not asked about rows.

    By a tree, which sums the squares of differences; comparing all pairs it would take differences of products, whose
    cancellation leaves as few digits as the processor's way to multiply matrices has it.
    """
    return NearestNeighbors(n_neighbors=k, algorithm="kd_tree").fit(X).kneighbors()


def of_sums(d: int) -> float:
    """What rounding may do to the root of a sum of d squares, relatively: d + 2 operations, halved, on either side."""
    return (d + 2) * EPS


def features(geometry: Any, X: Any) -> Array:
    """The centred features of all samples."""
    block = geometry.bind(X)(torch.arange(X.shape[0]))
    assert isinstance(block, Features)
    return block.values.double().numpy()


def gram(values: Array) -> Array:
    """What is seen of features whatever their basis."""
    return values @ values.T


# --- Nearest neighbours ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "k"), [(50, 3, 5), (200, 2, 30), (40, 60, 4), (7, 4, 6)])
def test_neighbours_are_those_of_scikit_learn(n: int, d: int, k: int) -> None:
    X = normal(n, d)
    found = nearest(X, k, components=None)
    distances, numbers = reference(X, k)
    np.testing.assert_array_equal(found.numbers, numbers)
    np.testing.assert_allclose(found.distances, distances, rtol=of_sums(d))
    assert found.distances.dtype == np.float64
    assert found.numbers.dtype == np.int64


def test_neighbours_in_tiles_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    X = normal(60, 4)
    whole = nearest(X, 5)
    monkeypatch.setattr(neighbours, "_TILE_ELEMENTS", 200)
    monkeypatch.setattr(neighbours, "_MEASURED_ELEMENTS", 50)
    found = nearest(X, 5)
    np.testing.assert_array_equal(found.numbers, whole.numbers)
    np.testing.assert_allclose(found.distances, whole.distances, rtol=of_sums(4))


def test_no_matrix_of_all_pairs_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "_TILE_ELEMENTS", 1_000)
    shapes: list[tuple[int, ...]] = []
    original = torch.addmm

    def addmm(*given: Any, **options: Any) -> torch.Tensor:
        tile = original(*given, **options)
        shapes.append(tuple(tile.shape))
        return tile

    monkeypatch.setattr(torch, "addmm", addmm)
    nearest(normal(100, 3), 5)
    assert shapes == [(10, 100)] * 10
    graph = NeighbourGraph(neighbours=5).graph(normal(100, 3))
    assert graph.nnz <= 2 * 5 * 100


@pytest.mark.parametrize("n", [40, 60])
def test_neighbours_are_searched_among_principal_components_and_measured_in_all(n: int) -> None:
    # All but two of the dimensions hardly vary: the nearest are those of the two.
    X = normal(n, 80) * np.where(np.arange(80) < 2, 100.0, 1e-3)
    found = nearest(X, 4, components=2)
    np.testing.assert_array_equal(found.numbers, reference(PCA(2).fit_transform(X), 4)[1])
    np.testing.assert_allclose(found.distances, reference(X, 4)[0], rtol=of_sums(80))


@pytest.mark.parametrize("unit", [1e-150, 1e-30, 1.0, 1e30, 1e150])
@pytest.mark.parametrize("d", [3, 60])
def test_neighbours_know_no_unit(unit: float, d: int) -> None:
    X = normal(80, d)
    plain, scaled = nearest(X, 6), nearest(X * unit, 6)
    np.testing.assert_array_equal(scaled.numbers, plain.numbers)
    np.testing.assert_allclose(scaled.distances, unit * plain.distances, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-25, 1.0, 1e25])
@pytest.mark.parametrize("d", [3, 60])
def test_neighbours_in_float32_know_no_unit(unit: float, d: int) -> None:
    X = (normal(80, d) * unit).astype(np.float32)
    found = nearest(X, 6, components=None if d == 3 else 50)
    distances, numbers = reference(X.astype(np.float64) / unit, 6)
    if d == 3:
        np.testing.assert_array_equal(found.numbers, numbers)
        np.testing.assert_allclose(found.distances, unit * distances, rtol=1e-5)
    else:
        assert np.mean([len(set(a) & set(b)) for a, b in zip(found.numbers, numbers, strict=True)]) > 5.5


def test_neighbours_do_not_change_with_shifts_and_rotations() -> None:
    X = normal(80, 5)
    plain, moved = nearest(X, 6), nearest(X @ rotation(5) + 1000, 6)
    np.testing.assert_array_equal(moved.numbers, plain.numbers)
    np.testing.assert_allclose(moved.distances, plain.distances, rtol=1e-8)


@pytest.mark.parametrize("kind", ["csr", "tensor", "float32", "memory", "images"])
def test_neighbours_of_every_storage(kind: str) -> None:
    X = np.where(normal(30, 12, seed=1) > 0, normal(30, 12), 0)
    stored: Any = {
        "csr": scipy.sparse.csr_array(X),
        "tensor": torch.as_tensor(X),
        "float32": X.astype(np.float32),
        "memory": np.asfortranarray(X),
        "images": X.reshape(30, 1, 3, 4),
    }[kind]
    found, expected = nearest(stored, 5), nearest(X, 5)
    np.testing.assert_array_equal(found.numbers, expected.numbers)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_samples_have_all_others_as_neighbours(n: int) -> None:
    found = nearest(normal(n, 2), 10)
    assert found.numbers.shape == found.distances.shape == (n, n - 1)
    for own, others in enumerate(found.numbers):
        assert sorted(others) == [other for other in range(n) if other != own]


@pytest.mark.parametrize("X", [np.zeros((20, 3)), np.full((20, 3), 1e9), np.repeat(normal(4, 3), 5, 0)])
def test_equal_rows_are_neighbours_at_no_distance_and_none_is_its_own(X: Array) -> None:
    found = nearest(X, 4)
    assert not found.distances.any()
    assert (found.numbers != np.arange(len(X))[:, None]).all()
    assert all(len(set(row)) == 4 for row in found.numbers)


def test_small_distances_far_from_the_origin_keep_their_digits() -> None:
    X = 1e6 + np.arange(20)[:, None] * 1e-3 + np.zeros((20, 2))
    np.testing.assert_allclose(nearest(X, 1).distances[:, 0], math.sqrt(2) * 1e-3, rtol=1e-6)


def test_neighbours_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(normal(40, 3))
    first = nearest(rows, 12)
    monkeypatch.setattr(neighbours, "_compare_all", lambda *_: pytest.fail("searched again"))
    for one, other in zip(nearest(rows, 5), first, strict=True):
        np.testing.assert_array_equal(one, other[:, :5])
    monkeypatch.undo()
    assert nearest(rows, 30).numbers.shape == (40, 30)


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours are those among the nearest cells, as of many samples."""
    monkeypatch.setattr(neighbours, "EXACT_UP_TO", 0)


@pytest.mark.usefixtures("searching")
def test_a_search_finds_nine_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    X, exact = normal(2_000, 5), reference(normal(2_000, 5), 10)[1]
    monkeypatch.setattr(neighbours, "_SEARCHED_CELLS", 12)
    found = nearest(X, 10)
    assert np.mean([len(set(a) & set(b)) for a, b in zip(found.numbers, exact, strict=True)]) >= 9
    assert (found.numbers != np.arange(len(X))[:, None]).all()
    assert (np.diff(found.distances, axis=1) >= 0).all()
    np.testing.assert_allclose(found.distances, np.linalg.norm(X[:, None] - X[found.numbers], axis=2))


@pytest.mark.usefixtures("searching")
@pytest.mark.parametrize("k", [1, 20, 39])
def test_a_search_among_few_samples_is_exact(k: int) -> None:
    X = normal(40, 3)
    np.testing.assert_array_equal(nearest(X, k).numbers, reference(X, k)[1])


@pytest.mark.usefixtures("searching")
def test_a_search_compares_few_pairs_where_most_samples_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.concatenate([np.zeros((900, 2)), normal(100, 2)])
    seen: list[int] = []
    original = torch.topk

    def topk(tile: torch.Tensor, *given: Any, **options: Any) -> Any:
        seen.append(tile.numel())
        return original(tile, *given, **options)

    monkeypatch.setattr(torch, "topk", topk)
    found = nearest(X, 5)
    assert sum(seen) <= len(X) * (neighbours._SEARCHED_CELLS + neighbours._LARGEST_CELL) * math.isqrt(len(X))
    assert (found.numbers != np.arange(len(X))[:, None]).all()
    assert all(len(set(row)) == 5 for row in found.numbers)
    assert not found.distances[:900].any()


@pytest.mark.usefixtures("searching")
def test_neighbours_in_float32_are_exact_where_products_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    # Far from the centre of all, squares have no digits left for the distances within a group.
    X = np.concatenate([normal(15, 3), 3e3 + normal(15, 3)])
    monkeypatch.setattr(neighbours, "_FEWEST", 1)
    np.testing.assert_array_equal(nearest(X, 7).numbers, reference(X, 7)[1])


# --- Weights of edges -----------------------------------------------------------------------------------------


def umap_weights(found: Neighbours) -> Array:
    """UMAP's fuzzy simplicial set, a sample and a neighbour at a time."""
    n, k = found.distances.shape
    directed = np.zeros((n, n))
    for i, (lengths, others) in enumerate(zip(found.distances, found.numbers, strict=True)):
        positive = [length for length in lengths if length > 0]
        rho = min(positive) if positive else 0.0
        low, high = 1e-12, 1e12
        for _ in range(200):
            sigma = math.sqrt(low * high)
            total = sum(math.exp(-max(length - rho, 0) / sigma) for length in lengths)
            low, high = (low, sigma) if total > math.log2(k) else (sigma, high)
        for length, j in zip(lengths, others, strict=True):
            directed[i, j] = math.exp(-max(length - rho, 0) / sigma)
    return directed + directed.T - directed * directed.T


def self_tuning_weights(found: Neighbours) -> Array:
    n, _ = found.distances.shape
    weights = np.zeros((n, n))
    for i, (lengths, others) in enumerate(zip(found.distances, found.numbers, strict=True)):
        for length, j in zip(lengths, others, strict=True):
            weight = math.exp(-(length**2) / (found.distances[i, 6] * found.distances[j, 6]))
            weights[i, j] = weights[j, i] = weight
    return weights


@pytest.mark.parametrize(("weights", "slow"), [("fuzzy", umap_weights), ("self_tuning", self_tuning_weights)])
def test_weights_are_those_of_a_slow_definition(weights: str, slow: Any) -> None:
    found = nearest(normal(40, 3), 9)
    np.testing.assert_allclose(WEIGHTS[weights](found).toarray(), slow(found), rtol=1e-6, atol=1e-9)


ODD: dict[str, Array] = {
    "normal": normal(50, 3),
    "two rows": normal(2, 3),
    "fewer rows than neighbours": normal(6, 2),
    "one row": normal(1, 3),
    "equal rows": np.ones((30, 2)),
    "mostly equal rows": np.concatenate([np.ones((40, 2)), normal(20, 2)]),
    "each row thrice": np.repeat(normal(15, 3), 3, 0),
    "groups of equal rows": np.repeat(100 * np.arange(3.0), 25)[:, None],
    "far apart": np.concatenate([normal(30, 2), 1e6 + normal(30, 2)]),
    "a line": np.arange(50.0)[:, None],
    "an outlier": np.concatenate([normal(40, 2), [[1e8, 0]]]),
}
every_odd = pytest.mark.parametrize("X", ODD.values(), ids=ODD)


@every_weight
@every_odd
def test_graphs_are_symmetric_with_weights_of_at_most_one_and_no_loops(weights: str, X: Array) -> None:
    graph = NeighbourGraph(neighbours=10, weights=weights).graph(X)
    dense = graph.toarray()
    assert dense.shape == (len(X), len(X))
    np.testing.assert_array_equal(dense, dense.T)
    assert np.isfinite(dense).all()
    assert (dense >= 0).all()
    assert (dense <= 1).all()
    assert not dense.diagonal().any()


@every_weight
@every_odd
@pytest.mark.parametrize("unit", [1e-150, 1e-9, 1e150])
def test_graphs_know_no_unit(weights: str, X: Array, unit: float) -> None:
    plain = NeighbourGraph(weights=weights).graph(X).toarray()
    # Of rows at one distance any may be the nearest.
    if np.ptp(X) and X.shape[1] > 1:
        scaled = NeighbourGraph(weights=weights).graph(X * unit).toarray()
        np.testing.assert_allclose(np.sort(scaled, None), np.sort(plain, None), rtol=1e-5, atol=1e-7)


@every_weight
def test_graphs_do_not_change_with_shifts_and_rotations(weights: str) -> None:
    X, geometry = normal(60, 4), NeighbourGraph(weights=weights)
    moved = geometry.graph(X @ rotation(4) - 7).toarray()
    np.testing.assert_allclose(moved, geometry.graph(X).toarray(), rtol=1e-6, atol=1e-9)


@every_weight
def test_graphs_follow_the_order_of_rows(weights: str) -> None:
    X, order = normal(60, 4), np.random.default_rng(0).permutation(60)
    geometry = NeighbourGraph(weights=weights)
    expected = geometry.graph(X).toarray()[np.ix_(order, order)]
    np.testing.assert_allclose(geometry.graph(X[order]).toarray(), expected, rtol=1e-9, atol=1e-12)


@every_weight
def test_equal_rows_are_joined_with_full_weight(weights: str) -> None:
    graph = NeighbourGraph(neighbours=3, weights=weights).graph(np.repeat(normal(5, 2), 4, 0)).toarray()
    np.testing.assert_array_equal(graph, np.kron(np.eye(5), np.ones((4, 4))) - np.eye(20))


# --- Eigenvectors ---------------------------------------------------------------------------------------------


def span(vectors: Array) -> Array:
    """The projection on what vectors (n, r) span."""
    basis = np.linalg.qr(vectors)[0]
    return basis @ basis.T


@every_weight
def test_eigenvectors_are_those_of_the_whole_matrix(weights: str) -> None:
    graph = NeighbourGraph(weights=weights).graph(normal(80, 3))
    dense, degree = graph.toarray(), graph.toarray().sum(1)
    expected = np.linalg.eigvalsh(dense / np.sqrt(degree[:, None] * degree))[::-1][:6]
    values, vectors = eigenvectors(graph, 6)
    np.testing.assert_allclose(values, expected, rtol=1e-10)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-10)
    assert values[0] == pytest.approx(1)
    np.testing.assert_allclose(vectors[:, 0] ** 2, degree / degree.sum(), rtol=1e-8)


def test_eigenvectors_span_what_scikit_learns_embedding_spans() -> None:
    graph = NeighbourGraph().graph(make_moons(150, noise=0.05, random_state=0)[0])
    degree = np.sqrt(graph.sum(1))
    embedding = spectral_embedding(graph.toarray(), n_components=3, drop_first=False, random_state=0)
    # Its vectors are divided by the roots of degrees.
    np.testing.assert_allclose(span(embedding * degree[:, None]), span(eigenvectors(graph, 3)[1]), atol=1e-6)


def test_eigenvectors_of_large_graphs_are_those_of_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = NeighbourGraph().graph(make_blobs(300, n_features=4, centers=5, cluster_std=6.0, random_state=0)[0])
    assert connected_components(graph)[0] == 1
    values, vectors = eigenvectors(graph, 5)
    monkeypatch.setattr(spectral, "_DENSE_UP_TO", 10)
    found, own = eigenvectors(graph, 5)
    np.testing.assert_allclose(found, values, atol=1e-4)
    np.testing.assert_allclose(span(own), span(vectors), atol=1e-2)


@every_weight
@pytest.mark.parametrize("size", [40, 150])
def test_large_graphs_that_fall_apart_have_a_vector_for_each_part(
    weights: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Equal parts have equal eigenvalues, of which Lanczos' method alone finds some.
    part = normal(size, 3)
    X = np.concatenate([part + 1000 * number for number in range(8)])
    labels = np.repeat(np.arange(8), size)
    monkeypatch.setattr(spectral, "_DENSE_UP_TO", 10)
    geometry = NeighbourGraph(weights=weights, neighbours=8)
    assert connected_components(geometry.graph(X))[0] >= 8
    values, vectors = eigenvectors(geometry.graph(X), 8)
    np.testing.assert_allclose(values, 1, atol=1e-6)
    np.testing.assert_allclose(gram(unit_rows(vectors)), labels[:, None] == labels, atol=1e-3)
    values, vectors = eigenvectors(geometry.graph(X), 11)
    assert (values[:8] > 1 - 1e-6).all()
    assert (np.diff(values) <= 1e-9).all()
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(11), atol=1e-3)


def test_of_more_parts_than_vectors_the_largest_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [30, 20, 40, 25]
    X = np.concatenate([normal(size, 2) + 1000 * number for number, size in enumerate(sizes)])
    monkeypatch.setattr(spectral, "_DENSE_UP_TO", 10)
    _, vectors = eigenvectors(NeighbourGraph(neighbours=5).graph(X), 2)
    is_seen = np.abs(vectors).sum(1) > 0
    np.testing.assert_array_equal(is_seen, np.repeat([True, False, True, False], sizes))


def test_parts_that_hardly_hold_together_count_as_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = scipy.sparse.block_diag([scipy.sparse.coo_array(np.ones((60, 60)) - np.eye(60))] * 3).tolil()
    blocks[0, 60] = blocks[60, 0] = blocks[60, 120] = blocks[120, 60] = 1e-12
    monkeypatch.setattr(spectral, "_DENSE_UP_TO", 10)
    values, _ = eigenvectors(scipy.sparse.csr_array(blocks), 3)
    np.testing.assert_allclose(values, 1)


def test_unit_rows_have_length_one_and_zeros_stay() -> None:
    values = np.concatenate([normal(5, 3) * 1e-100, np.zeros((2, 3))])
    np.testing.assert_allclose(np.linalg.norm(unit_rows(values), axis=1), [1] * 5 + [0] * 2)


# --- Clusterings of a graph -----------------------------------------------------------------------------------


def test_the_information_of_edges_is_that_of_a_slow_definition() -> None:
    graph = NeighbourGraph(neighbours=5).graph(normal(30, 2))
    labels = np.random.default_rng(0).integers(0, 4, 30)
    joint = np.zeros((4, 4))
    for i, j in zip(*graph.nonzero(), strict=True):
        joint[labels[i], labels[j]] += graph[i, j] / graph.sum()
    expected = sum(
        joint[a, b] * math.log(joint[a, b] / joint[a].sum() / joint[:, b].sum())
        for a in range(4)
        for b in range(4)
        if joint[a, b]
    )
    assert spectral.edge_information(graph, labels) == pytest.approx(expected)


def test_edges_tell_most_of_clusters_that_they_do_not_leave() -> None:
    X = np.concatenate([normal(20, 2) + 100 * number for number in range(3)])
    graph, classes = NeighbourGraph(neighbours=5).graph(X), np.repeat([0, 1, 2], 20)
    weight = np.asarray(graph.sum(1)).ravel()
    shares = np.array([weight[classes == k].sum() for k in range(3)]) / weight.sum()
    assert spectral.edge_information(graph, classes) == pytest.approx(-(shares * np.log(shares)).sum())
    assert spectral.edge_information(graph, np.zeros(60, dtype=np.int64)) == pytest.approx(0, abs=1e-12)
    assert spectral.edge_information(scipy.sparse.csr_array((3, 3)), np.arange(3)) == 0


def test_clusterings_come_with_the_best_first() -> None:
    X, classes = make_blobs(150, n_features=3, centers=4, cluster_std=1.0, random_state=1)
    geometry = NeighbourGraph()
    found = geometry.clusterings(X, 4, count=32, seed=5)
    values = [round(spectral.edge_information(geometry.graph(X), labels), 4) for labels in found]
    assert len(found) == 32
    assert values == sorted(values, reverse=True)
    assert adjusted_rand_index(classes, found[0]) > 0.9
    for one, other in zip(geometry.clusterings(X, 4, count=32, seed=5), found, strict=True):
        np.testing.assert_array_equal(one, other)


# --- Kernels --------------------------------------------------------------------------------------------------


@every_kernel
def test_kernels_of_graphs_have_names_and_parameters(name: str) -> None:
    geometry = resolve(name, components=3)
    assert geometry == OF_ALL_SAMPLES["kernel"][name](components=3)
    assert geometry.needs_all_samples
    assert geometry.gives_features
    assert geometry.kind == "kernel"
    assert pickle.loads(pickle.dumps(geometry)) == geometry
    assert hash(geometry) == hash(replace(geometry))
    with pytest.raises(ValueError, match=f"The {name} kernel takes .*neighbours.*; not wrong"):
        resolve(name, wrong=1)
    with pytest.raises(ValueError, match="needs a distance"):
        resolve(name, "distance")


@pytest.mark.parametrize(
    ("make", "parameters", "message"),
    [
        (NeighbourGraph, {"neighbours": 0}, "neighbours is a positive"),
        (NeighbourGraph, {"weights": "binary"}, "weights is one of fuzzy, self_tuning; not 'binary'"),
        (NeighbourGraph, {"components": 0}, "components is a positive"),
        (NeighbourGraph, {"search_components": 0}, "search_components is a positive"),
        (NeighbourGraph, {"diffusion": -1.0}, "diffusion is a number of steps, at least 0"),
        (Mixed, {"share": 1.5}, "share is the part of the graph in the sum, from 0 to 1"),
        (Mixed, {"neighbours": 0}, "neighbours is a positive"),
        (Mixtures, {"neighbours": ()}, "neighbours are positive"),
        (Mixtures, {"neighbours": (5, 0)}, "neighbours are positive"),
        (Mixtures, {"components": 0}, "components and dimensions are positive"),
        (Mixtures, {"dimensions": 0}, "components and dimensions are positive"),
        (Mixtures, {"regularisation": 0.0}, "regularisation is a positive share"),
    ],
)
def test_bad_parameters_of_graph_kernels_are_refused(make: Any, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**parameters)


@pytest.mark.parametrize(
    ("name", "kind", "parameters"),
    [
        ("graph", "kernel", {"neighbours": 20.5}),
        ("graph", "kernel", {"neighbours": None}),
        ("mixed", "kernel", {"search_components": "50"}),
        ("mixtures", "kernel", {"neighbours": (10, 15.5)}),
        ("mixtures", "kernel", {"dimensions": True}),
        ("shortest_path", "distance", {"neighbours": 2.5}),
    ],
)
def test_numbers_of_samples_and_dimensions_are_whole(name: str, kind: Any, parameters: dict[str, Any]) -> None:
    (parameter,) = parameters
    with pytest.raises(ValueError, match=f"{parameter} .*whole number"):
        resolve(name, kind, **parameters)
    assert resolve("graph", neighbours=np.int64(5), components=None, diffusion=0.5).kind == "kernel"
    assert resolve("mixtures", neighbours=[5, 7]) == Mixtures(neighbours=(5, 7))


@every_kernel
def test_components_are_as_many_as_clusters_unless_they_are_given(name: str) -> None:
    assert resolve(name).for_clusters(7).components == 7  # type: ignore[attr-defined]
    assert resolve(name, components=3).for_clusters(7).components == 3  # type: ignore[attr-defined]


@every_kernel
@every_odd
def test_kernels_of_odd_data_are_finite(name: str, X: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centres, "RUNS", 1)
    for count in (1, 3):
        values = features(resolve(name).for_clusters(count), X)
        assert len(values) == len(X)
        assert np.isfinite(values).all()


@every_kernel
@pytest.mark.parametrize("unit", [1e-150, 1e-5, 1e150])
def test_kernels_know_no_unit_no_shift_and_no_rotation(name: str, unit: float) -> None:
    X = make_blobs(60, n_features=3, centers=3, cluster_std=2.0, random_state=0)[0]
    geometry = resolve(name).for_clusters(3)
    moved = features(geometry, (X @ rotation(3) + 1) * unit)
    np.testing.assert_allclose(gram(moved), gram(features(geometry, X)), atol=1e-6)


@every_kernel
@pytest.mark.parametrize("kind", ["csr", "float32", "images"])
def test_kernels_of_every_storage(name: str, kind: str) -> None:
    X = make_blobs(40, n_features=4, centers=2, random_state=0)[0]
    stored: Any = {"csr": scipy.sparse.csr_array(X), "float32": X.astype(np.float32), "images": X.reshape(40, 1, 2, 2)}
    geometry = resolve(name).for_clusters(2)
    np.testing.assert_allclose(gram(features(geometry, stored[kind])), gram(features(geometry, X)), atol=1e-3)


@every_kernel
def test_a_batch_has_the_features_of_the_whole(name: str) -> None:
    X = make_blobs(40, n_features=3, centers=2, random_state=0)[0]
    block = resolve(name).for_clusters(2).bind(X)
    some = torch.tensor([3, 30, 7, 12])
    part, whole = block(some), block(torch.arange(40))
    assert isinstance(part, Features)
    assert isinstance(whole, Features)
    expected = whole.values[some] - whole.values[some].mean(0)
    np.testing.assert_allclose(part.values, expected, atol=1e-12)


def test_the_graph_kernel_is_one_within_parts_and_zero_between() -> None:
    X = np.concatenate([normal(30, 2), 1000 + normal(20, 2)])
    labels = np.repeat([0, 1], [30, 20])
    embedded = NeighbourGraph(components=2).embed(X)
    np.testing.assert_allclose(gram(embedded), labels[:, None] == labels, atol=1e-8)


def test_diffusion_damps_fast_modes() -> None:
    X, geometry = normal(60, 2), NeighbourGraph(components=5)
    values, vectors = eigenvectors(geometry.graph(X), 5)
    expected = unit_rows(vectors * values**3)
    np.testing.assert_allclose(gram(NeighbourGraph(components=5, diffusion=3).embed(X)), gram(expected), atol=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_mixed_kernel_is_the_sum_of_both_at_unit_mean_square(share: float) -> None:
    X = normal(50, 4) * 30 + 5
    linear = X - X.mean(0)
    graph = NeighbourGraph(components=3).embed(X)
    graph -= graph.mean(0)
    expected = share * gram(graph) / np.mean(np.sum(graph**2, 1))
    expected = expected + (1 - share) * gram(linear) / np.mean(np.sum(linear**2, 1))
    found = gram(features(Mixed(components=3, share=share), X))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert found.diagonal().mean() == pytest.approx(1)


def test_mixtures_are_those_that_scikit_learn_fits_from_the_same_start() -> None:
    X, classes = make_blobs(90, n_features=3, centers=3, cluster_std=1.5, random_state=2)
    found = mixtures.fit_mixture(X, None, classes, 0.01).predict_proba(X)
    means = np.stack([X[classes == k].mean(0) for k in range(3)])
    precisions = [np.linalg.inv(np.cov(X[classes == k].T, bias=True) + 0.01 * np.eye(3)) for k in range(3)]
    expected = GaussianMixture(
        3,
        means_init=means,
        precisions_init=np.stack(precisions),
        weights_init=np.full(3, 1 / 3),
        reg_covar=0.01,
        max_iter=60,
    ).fit(X)
    np.testing.assert_allclose(found, expected.predict_proba(X), atol=1e-10)


def test_mixtures_count_samples_by_their_weights() -> None:
    X, classes = make_blobs(90, n_features=3, centers=3, cluster_std=1.5, random_state=2)
    weight = np.random.default_rng(0).integers(1, 4, 90)
    repeated = mixtures.fit_mixture(np.repeat(X, weight, axis=0), None, np.repeat(classes, weight), 0.05)
    for unit in (1.0, 7.0):
        weighted = mixtures.fit_mixture(X, unit * weight, classes, 0.05)
        np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-9)


def test_one_component_holds_everything() -> None:
    X = normal(20, 3)
    np.testing.assert_array_equal(mixtures.fit_mixture(X, None, np.zeros(20, dtype=int), 0.05).predict_proba(X), 1)


def test_clusters_that_are_apart_need_no_graphs() -> None:
    X, classes = make_blobs(300, n_features=5, centers=4, random_state=3)
    embedded = Mixtures(components=4).embed(X)
    assert embedded.shape == (300, 4)
    np.testing.assert_array_equal(pairwise_distances(embedded) < 0.5, classes[:, None] == classes)
    assert not mixtures.are_apart(X, np.arange(300) % 4)
    # Where k-means cuts through a cluster, graphs have a say.
    assert Mixtures(components=5).embed(X).shape[1] > 5


def test_k_means_ends_once_three_runs_have_found_the_best_clusters() -> None:
    X, classes = make_blobs(200, centers=3, random_state=0, cluster_std=0.3)
    found = centres.fit_k_means(X, 3)
    assert found.found == 3
    assert found.runs <= centres.RUNS
    assert adjusted_rand_index(found.labels, classes) == 1
    assert centres.fit_k_means(X, 3, runs=1).runs == 1
    np.testing.assert_allclose(found.centres[found.labels], [X[classes == k].mean(0) for k in classes])


@pytest.mark.parametrize("seed", range(3))
def test_k_means_is_as_good_as_that_of_scikit_learn(seed: int) -> None:
    X = normal(150, 4) + 1e3
    found = centres.fit_k_means(X, 5, seed)
    inertia = np.square(X - found.centres[found.labels]).sum()
    assert inertia <= 1.02 * KMeans(5, n_init=10, random_state=seed).fit(X).inertia_
    sparse = centres.fit_k_means(scipy.sparse.csr_array(X - X.mean(0)), 5, seed)
    assert adjusted_rand_index(sparse.labels, found.labels) > 0.9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_centres_move_as_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch, dtype: type) -> None:
    X = (normal(300, 4) + np.arange(300)[:, None] % 5).astype(dtype)
    weight, seeds = np.linspace(0.5, 2, 300), X[:5].copy()
    squares = np.square(X).sum(1, dtype=np.float64)
    expected = KMeans(5, init=seeds, n_init=1, tol=0).fit(X, sample_weight=weight)
    for engine in (centres.load_compiled, lambda: None):
        monkeypatch.setattr(centres, "load_compiled", engine)
        moved = seeds.copy()
        labels, inertia = centres.iterate_centres(X, squares, weight, moved, 0.0)
        np.testing.assert_array_equal(labels, expected.labels_)
        # Sums of 300 numbers.
        np.testing.assert_allclose(moved, expected.cluster_centers_, atol=300 * np.finfo(dtype).eps * np.abs(X).max())
        assert inertia == pytest.approx(expected.inertia_, rel=1e3 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_clusters", [1, 2, 7])
def test_compiled_seeds_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch, dtype: type, n_clusters: int) -> None:
    # Whole numbers, whose sums no order of summation changes.
    X = np.random.default_rng(0).integers(-9, 10, size=(700, 5)).astype(dtype)
    weight, squares = np.arange(700.0) % 4, np.square(X).sum(1, dtype=np.float64)
    found = []
    for engine in (centres.load_compiled, lambda: None):
        monkeypatch.setattr(centres, "load_compiled", engine)
        for form in (np.asarray, scipy.sparse.csr_array):
            random = np.random.RandomState(3)
            found.append(centres._seed_centres(form(X), squares, n_clusters, weight, random))
    assert found[0].shape == (n_clusters, 5)
    assert len(np.unique(found[0], axis=0)) == n_clusters
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_centre_without_samples_starts_anew_where_samples_are_far_from_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = np.array([[0.0], [0.1], [10.0]])
    for engine in (centres.load_compiled, lambda: None):
        monkeypatch.setattr(centres, "load_compiled", engine)
        for form in (np.asarray, scipy.sparse.csr_array):
            moved = np.array([[0.0], [-50.0]])
            labels, inertia = centres.iterate_centres(form(X), X.ravel() ** 2, np.ones(3), moved, 0.0)
            assert labels.tolist() == [0, 0, 1]
            assert inertia == pytest.approx(0.005)
        # There are fewer samples that differ than clusters.
        found = centres.fit_k_means(np.repeat(np.eye(3), 4, axis=0), 5)
        assert len(np.unique(found.labels)) == 3


def test_k_means_counts_samples_by_their_weights() -> None:
    X, _ = make_blobs(60, centers=3, random_state=1, cluster_std=0.3)
    weight = np.random.default_rng(0).integers(1, 4, 60)
    repeated = centres.fit_k_means(np.repeat(X, weight, axis=0), 3)
    weighted = centres.fit_k_means(X, 3, sample_weight=weight.astype(float))
    np.testing.assert_allclose(np.sort(weighted.centres, 0), np.sort(repeated.centres, 0))


def test_the_kernel_of_mixtures_is_a_mean_probability() -> None:
    kernel = gram(Mixtures(components=3).embed(normal(60, 3)))
    assert (kernel >= 0).all()
    assert (kernel <= 1 + 1e-9).all()


def test_half_of_the_weight_is_that_of_the_compact_start(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = [np.arange(60) % 3, np.arange(60) % 2, np.arange(60) // 20]
    monkeypatch.setattr(Mixtures, "_starts", lambda self, points, count: iter(starts))
    embedded = Mixtures(components=3).embed(normal(60, 3))
    # Probabilities of each mixture add up to one.
    for part, weight in ((slice(0, 3), 1 / 2), (slice(3, 5), 1 / 4), (slice(5, 8), 1 / 4)):
        np.testing.assert_allclose(embedded[:, part].sum(1), math.sqrt(weight))


def test_starts_at_the_same_clusters_are_one_mixture_with_the_weight_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    X = normal(60, 3)
    starts = [np.arange(60) % 3, (np.arange(60) + 1) % 3, np.arange(60) % 2]
    monkeypatch.setattr(Mixtures, "_starts", lambda self, points, count: iter(starts))
    embedded = Mixtures(components=3).embed(X)
    assert embedded.shape == (60, 5)
    np.testing.assert_allclose(embedded[:, :3].sum(1), math.sqrt(3 / 4))
    # The same numbers of clusters, otherwise numbered, give the same features.
    monkeypatch.setattr(Mixtures, "_starts", lambda self, points, count: iter([2 - each for each in starts]))
    np.testing.assert_array_equal(Mixtures(components=3).embed(X), embedded)


def test_features_of_few_values_have_broader_components(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    real = mixtures.fit_mixture

    def fit_mixture(points: Any, weight: Any, labels: Any, regularisation: float, start: Any) -> Any:
        asked.append(regularisation)
        return real(points, weight, labels, regularisation, start)

    monkeypatch.setattr(mixtures, "fit_mixture", fit_mixture)
    answers = np.random.default_rng(0).integers(0, 4, (80, 5)).astype(float)
    for X in (answers, answers + normal(80, 5)):
        Mixtures(components=2, neighbours=(5,)).embed(X)
    Mixtures(components=2, neighbours=(5,), regularisation=0.7).embed(answers)
    # Equal starts are fitted once, so that there may be fewer than three of each.
    assert list(dict.fromkeys(asked)) == [0.3, 0.05, 0.7]


def test_standardised_features_are_made_symmetric_for_mixtures_and_others_are_left() -> None:
    skewed = np.exp(normal(300, 3))
    scaled = (skewed - skewed.mean(0)) / skewed.std(0)
    powers = mixtures._learn_powers(Rows(scaled))
    assert powers is not None
    found = powers(scaled)
    assert (np.abs(scipy.stats.skew(scaled)) > 1).all()
    assert (np.abs(scipy.stats.skew(found)) < 0.3).all()
    # Each feature keeps its order.
    np.testing.assert_array_equal(np.argsort(found, axis=0), np.argsort(scaled, axis=0))
    assert mixtures._learn_powers(Rows(scaled * [1, 2, 3])) is None


def test_copies_of_a_sample_do_not_tear_the_graph() -> None:
    X = make_moons(120, noise=0.05, random_state=0)[0]
    copied = np.concatenate([X, np.repeat(X[:1], 40, axis=0), np.repeat(X[5:6], 40, axis=0)])
    geometry = NeighbourGraph(neighbours=10, components=2)
    embedded = geometry.embed(copied)
    np.testing.assert_allclose(gram(embedded[:120]), gram(geometry.embed(X)), atol=1e-9)
    np.testing.assert_array_equal(embedded[120:160], np.repeat(embedded[:1], 40, axis=0))
    np.testing.assert_array_equal(embedded[160:], np.repeat(embedded[5:6], 40, axis=0))


def test_zero_and_minus_zero_are_one_value() -> None:
    rows, which = spectral.distinct(Rows(np.array([[0.0, 1.0], [-0.0, 1.0], [2.0, 3.0]])))
    assert len(rows) == 2
    assert which.tolist() == [0, 0, 1]


def test_mixtures_of_many_rows_are_fitted_to_some(monkeypatch: pytest.MonkeyPatch) -> None:
    X, classes = make_blobs(120, n_features=2, centers=[[0, 0], [9, 9]], random_state=0)
    monkeypatch.setattr(mixtures, "_MOST_FITTED", 50)
    monkeypatch.setattr(mixtures, "_MOST_STARTING", 30)
    monkeypatch.setattr(mixtures, "_STARTING_OF_A_CLUSTER", 1)
    monkeypatch.setattr("pollux.data.rows._PART_ELEMENTS", 60)
    values = Mixtures(components=2, neighbours=(5,)).embed(X)
    assert adjusted_rand_index(classes, values[:, :2].argmax(1)) == 1
    # Equal samples have equal features, whether or not they were learned from.
    twice = Mixtures(components=2, neighbours=(5,)).embed(np.concatenate([X, X]))
    np.testing.assert_allclose(twice[:120], twice[120:], atol=1e-12)


def test_samples_far_from_those_that_mixtures_were_fitted_to_have_finite_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = normal(60, 2)
    drawn = np.random.default_rng(0).choice(60, 50, replace=False)
    X = (X - X[drawn].mean(0)) / X[drawn].std(0)
    X[np.setdiff1d(np.arange(60), drawn)[0]] = 1e200, -1e200
    monkeypatch.setattr(mixtures, "_MOST_FITTED", 50)
    assert np.isfinite(Mixtures(components=2, neighbours=(5,)).embed(X)).all()


# --- What they are for ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", ["graph", NeighbourGraph(weights="self_tuning", neighbours=10)])
@pytest.mark.parametrize("shape", ["moons", "circles"])
def test_moons_and_circles_are_found_along_the_graph(geometry: Any, shape: str) -> None:
    if shape == "moons":
        X, classes = make_moons(200, noise=0.05, random_state=0)
    else:
        X, classes = make_circles(200, noise=0.04, factor=0.4, random_state=0)
    model = GeminiClustering(
        2, geometry=geometry, init="graph", model=MLP(hidden=(50,)), max_epochs=150, random_state=0
    ).fit(X)
    assert adjusted_rand_index(classes, model.labels_) > 0.95
    assert adjusted_rand_index(classes, model.predict(X)) > 0.95


def test_clusters_that_are_not_needed_stay_empty() -> None:
    X, _ = make_blobs(150, n_features=3, centers=3, cluster_std=0.5, random_state=1)
    model = GeminiClustering(8, model="free", geometry=NeighbourGraph(components=3), max_epochs=100, random_state=0)
    model.fit(X)
    assert 3 <= model.n_clusters_ <= 8
    assert set(model.labels_) == set(range(model.n_clusters_))


@every_kernel
def test_the_score_of_a_single_new_row(name: str) -> None:
    X = make_blobs(40, n_features=3, centers=2, random_state=0)[0]
    model = GeminiClustering(2, model="linear", geometry=name, max_epochs=3, random_state=0).fit(X)
    assert model.score(X[:1]) == pytest.approx(0, abs=1e-6)
    assert math.isfinite(model.score(X[:2]))


def test_a_search_among_many_samples_far_from_the_origin_keeps_its_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "EXACT_UP_TO", 100)
    # Sums of these are exact, so that only the place differs.
    X = np.round(normal(500, 4) * 1024) / 1024
    np.testing.assert_array_equal(nearest(X + 2.0**22, 5).numbers, nearest(X, 5).numbers)
