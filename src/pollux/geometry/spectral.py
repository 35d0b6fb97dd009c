"""Kernels of neighbour graphs: samples are alike when many short steps between neighbours join them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from torch import Tensor

from pollux.data.rows import Rows, as_rows
from pollux.geometry.affinity import Affinity, Block, Features
from pollux.geometry.centres import k_means
from pollux.geometry.neighbours import SEARCHED_COMPONENTS, Neighbours, nearest
from pollux.geometry.pairwise import Geometry, Kind
from pollux.progress import Stage

_DENSE_UP_TO = 500
_BISECTIONS = 40
_SCALE_NEIGHBOUR = 7
# Tolerance of eigenvectors, and digits of eigenvalues to compare; clusters need no more precision.
_TOLERANCE, _DIGITS = 1e-4, 6
_KRYLOV = 50
# Edges of smaller weight change no eigenvalue by more than that, and are dropped.
_NO_EDGE = 1e-6
_COMPONENTS = 10
# Eigenvectors for each cluster, since no single number is best for all data; and runs of k-means for each.
_OF_A_CLUSTER, _RUNS = (1.0, 1.5, 2.0, 2.5), 4
# Divisor of the number of neighbours for a sparser graph, with fewer bridges between clusters; and its minimum.
_FEWER, _FEWEST = 3, 3


def fuzzy(neighbours: Neighbours) -> scipy.sparse.csr_array:
    """Weights exp(−(d − ρ)/σ) of a sample's nearest neighbours, where ρ is the smallest distance and σ makes them sum
    to log₂ k; a pair's weight is the probability that at least one of its two directed edges exists."""
    distances = neighbours.distances
    if not distances.shape[1]:
        return _without_edges(len(distances))
    beyond = np.maximum(distances - _smallest_positive(distances), 0)
    target = max(np.log2(distances.shape[1]), 1e-3)
    low, high = np.zeros(len(beyond)), np.full(len(beyond), np.inf)
    width = np.maximum(beyond.mean(1), np.finfo(float).tiny)
    for _ in range(_BISECTIONS):
        is_wide = np.exp(-beyond / width[:, None]).sum(1) > target
        high, low = np.where(is_wide, width, high), np.where(is_wide, low, width)
        width = np.where(np.isinf(high), 2 * width, (low + high) / 2)
        width = np.maximum(width, np.finfo(float).tiny)
    # If many distances are equal, no width is small enough, and all neighbours get the same weight.
    width = np.maximum(width, 1e-3 * np.maximum(distances.mean(1), np.finfo(float).tiny))
    weights = _matrix(np.exp(-beyond / width[:, None]), neighbours.numbers)
    return scipy.sparse.csr_array(weights + weights.T - weights * weights.T)


def self_tuning(neighbours: Neighbours) -> scipy.sparse.csr_array:
    """Weights exp(−d² / (σᵢ σⱼ)) of neighbouring pairs, σ being the distance to the 7th neighbour."""
    distances, index = neighbours
    k = distances.shape[1]
    if not k:
        return _without_edges(len(distances))
    scale = distances[:, min(_SCALE_NEIGHBOUR, k) - 1]
    # Where that distance is zero, because of duplicates, use the largest distance of the sample, or else a typical one.
    scale = np.where(scale > 0, scale, distances.max(1))
    scale = np.where(scale > 0, scale, np.median(scale[scale > 0]) if (scale > 0).any() else 1.0)
    # A product of ratios, because squares overflow sooner.
    weights = _matrix(np.exp(-(distances / scale[:, None]) * (distances / scale[index])), index)
    return scipy.sparse.csr_array(weights.maximum(weights.T))


WEIGHTS: dict[str, Callable[[Neighbours], scipy.sparse.csr_array]] = {"fuzzy": fuzzy, "self_tuning": self_tuning}


def eigenvectors(weights: scipy.sparse.csr_array, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest eigenvalues (r,) of the normalised graph D^−½ W D^−½ and their vectors (n, r), in falling order."""
    degree = np.asarray(weights.sum(1)).ravel()
    root = scipy.sparse.diags_array(1 / np.sqrt(np.where(degree > 0, degree, 1)))
    graph = scipy.sparse.csr_array(root @ weights @ root)
    n = len(degree)
    count = min(count, n)
    with Stage(f"{count} eigenvectors of the graph of {n:,} rows"):
        values, vectors = _by_parts(graph, count)
    order = _descending_order(values)
    return values[order], vectors[:, order]


def _descending_order(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The order of descending eigenvalues; those that differ by rounding only keep their order."""
    return np.argsort(-values.round(_DIGITS), kind="stable")


def _by_parts(graph: scipy.sparse.csr_array, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Leading eigenvalues and eigenvectors of a large graph, computed for each connected component.

    Each component has the eigenvalue one, and Lanczos' method finds only some of the eigenvectors of a multiple
    eigenvalue. If there are more components than vectors, the largest ones have one each.
    """
    graph.data[graph.data < _NO_EDGE] = 0
    graph.eliminate_zeros()
    n_parts, part = connected_components(graph, directed=False)
    if n_parts == 1:
        return _lanczos(graph, count)
    largest = np.argsort(-np.bincount(part), kind="stable")[:count]
    values, vectors = [], []
    for number in largest:
        members = np.flatnonzero(part == number)
        some, own = _lanczos(graph[members][:, members], max(1, count - n_parts + 1))
        values.append(some)
        vectors.append(np.zeros((graph.shape[0], len(some))))
        vectors[-1][members] = own
    every = np.concatenate(values)
    kept = _descending_order(every)[:count]
    return every[kept], np.concatenate(vectors, 1)[:, kept]


def _dense(graph: scipy.sparse.csr_array, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # All eigenvalues: solvers for some of them fail if many are equal, as with duplicate rows.
    values, vectors = np.linalg.eigh(graph.toarray())
    return values[-count:], vectors[:, -count:]


def _lanczos(graph: scipy.sparse.csr_array, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n = graph.shape[0]
    count = min(count, n)
    if n <= _DENSE_UP_TO or count >= n - 1:
        return _dense(graph, count)
    start = np.random.default_rng(0).standard_normal(n)
    # A large Krylov space converges in fewer restarts if many eigenvalues are near one.
    size = min(n - 1, count + max(count, _KRYLOV))
    found: tuple[NDArray[np.float64], NDArray[np.float64]] = eigsh(
        graph, count, which="LA", v0=start, ncv=size, tol=_TOLERANCE, maxiter=100 * n
    )
    return found


def edge_information(graph: scipy.sparse.csr_array, labels: NDArray[np.int64]) -> float:
    """The mutual information, in nats, between the clusters of the two ends of an edge, drawn by its weight.

    It is higher the fewer edges connect different clusters, the more clusters there are, and the more equal in size.
    """
    n, K = len(labels), int(labels.max()) + 1
    member = scipy.sparse.csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, K))
    joint = (member.T @ (graph @ member)).toarray()
    joint /= joint.sum() or 1.0
    apart = joint.sum(1, keepdims=True) * joint.sum(0)
    return float((joint[joint > 0] * np.log(joint[joint > 0] / apart[joint > 0])).sum())


def distinct(rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
    """The samples without duplicates, and the index of each sample (n,) among them; sparse samples are not changed.

    A sample with more copies than neighbours would be connected with these alone, cut off from the rest of the graph.
    """
    if "distinct" not in rows.known:
        rows.known["distinct"] = _without_copies(rows)
    found: tuple[Rows, NDArray[np.int64]] = rows.known["distinct"]
    return found


def _without_copies(rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
    samples = rows.flat()
    if scipy.sparse.issparse(samples) or not samples.size:
        return rows, np.arange(len(rows))
    # Rows are equal if their bytes are; adding zero turns −0 into 0.
    samples = np.ascontiguousarray(samples + 0)
    words = samples.view(np.dtype((np.void, samples.itemsize * samples.shape[1]))).ravel()
    _, first, which = np.unique(words, return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return rows, np.arange(len(rows))
    # np.unique sorts: restore the order of the samples.
    order = np.argsort(first)
    return rows.part(torch.from_numpy(first[order])), np.argsort(order)[which]


def unit_rows(vectors: NDArray[Any]) -> NDArray[Any]:
    """Rows scaled to length one."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length > 0, length, 1)


@dataclass(frozen=True)
class NeighbourGraph(Geometry):
    """A kernel by the leading eigenvectors of the neighbour graph of all samples.

    Parameters
    ----------
    neighbours : int
        Number of nearest neighbours of each sample in the graph.
    components : int, optional
        Number of eigenvectors; as many as clusters by default.
    weights : {"fuzzy", "self_tuning"}
        How an edge's weight falls with its length: as in UMAP, or by the distances to the 7th neighbours of its ends.
    diffusion : float
        Steps of a random walk that damp the eigenvectors of fast modes; none by default.
    search_components : int or None
        Number of principal components in which neighbours are searched, if samples have more dimensions.
    """

    neighbours: int = 15
    components: int | None = None
    weights: str = "fuzzy"
    diffusion: float = 0.0
    search_components: int | None = SEARCHED_COMPONENTS
    kind: Kind = field(default="kernel", init=False, repr=False)

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise ValueError(f"neighbours is a positive number of samples, not {self.neighbours}.")
        if self.weights not in WEIGHTS:
            raise ValueError(f"weights is one of {', '.join(WEIGHTS)}; not {self.weights!r}.")
        for name in ("components", "search_components"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is a positive number of dimensions, not {value}.")
        if self.diffusion < 0:
            raise ValueError(f"diffusion is a number of steps, at least 0; not {self.diffusion}.")

    @property
    def gives_features(self) -> bool:
        return True

    def for_clusters(self, n_clusters: int) -> Self:
        return self if self.components is not None else replace(self, components=n_clusters)

    def graph(self, X: Any) -> scipy.sparse.csr_array:
        """The symmetric graph (n, n) of edge weights."""
        return WEIGHTS[self.weights](nearest(X, self.neighbours, components=self.search_components))

    def vectors(self, X: Any, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The largest eigenvalues (r,) of the graph of distinct samples, and their vectors (n, r) for all samples."""
        once, which = distinct(as_rows(X))
        key = f"eigenvectors of {replace(self, components=None)}"
        if key not in once.known or len(once.known[key][0]) < min(count, len(once)):
            once.known[key] = eigenvectors(self.graph(once), count)
        values, vectors = once.known[key]
        return values[:count], vectors[which, :count]

    def embed(self, X: Any) -> NDArray[np.float64]:
        """The features (n, r) of all samples."""
        values, vectors = self.vectors(X, self.components or _COMPONENTS)
        return unit_rows(vectors * np.clip(values, 0, 1) ** self.diffusion if self.diffusion else vectors)

    def clusterings(
        self, X: Any, n_clusters: int, count: int = 1, seed: int = 0, sample_weight: NDArray[np.float64] | None = None
    ) -> list[NDArray[np.int64]]:
        """The best ``count`` of several clusterings (n,) by k-means in eigenvectors, the best first.

        They differ in the number of neighbours (also a third), the number of eigenvectors, and random numbers. The
        best have the highest :func:`edge_information`: comparing them by training on each would cost far more.
        """
        rows = as_rows(X)
        once, which = distinct(rows)
        graph = self.graph(once)
        fewer = replace(self, neighbours=max(_FEWEST, self.neighbours // _FEWER)).graph(once)
        widths = sorted({min(len(once), max(2, round(share * n_clusters))) for share in _OF_A_CLUSTER})
        runs = max(_RUNS, -(-count // len(widths)))
        found: list[tuple[float, NDArray[np.int64]]] = []
        with Stage("clusterings of neighbour graphs", 2 * len(widths) * runs) as shown:
            for each in (graph, fewer):
                vectors = eigenvectors(each, widths[-1])[1].astype(np.float32)
                for width in widths:
                    features = unit_rows(vectors[:, :width])[which]
                    for run in range(runs):
                        own_seed = (seed + run) % 2**32
                        labels = k_means(features, min(n_clusters, len(rows)), own_seed, sample_weight, runs=1)
                        of_once = np.zeros(len(once), dtype=np.int64)
                        of_once[which] = labels
                        # Rounded, so that the first of several equal clusterings ranks first.
                        found.append((round(edge_information(graph, of_once), 4), labels))
                        shown.update(len(found))
        return [labels for _, labels in sorted(found, key=lambda pair: -pair[0])[:count]]

    def bind(self, X: Any) -> Block:
        rows = as_rows(X)
        return block_of(torch.from_numpy(self.embed(rows)).to(rows.device, rows.dtype))


@dataclass(frozen=True)
class Mixed(NeighbourGraph):
    """The sum of the kernel of a neighbour graph and the linear kernel of the samples, each of unit mean square.

    Parameters
    ----------
    neighbours, components, weights, diffusion, search_components
        As for :class:`NeighbourGraph`.
    share : float
        The weight of the graph kernel in the sum, from 0 to 1.
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is the part of the graph in the sum, from 0 to 1; not {self.share}.")

    def bind(self, X: Any) -> Block:
        rows = as_rows(X)
        graph = torch.from_numpy(self.embed(rows)).to(rows.device)
        graph = graph - graph.mean(0)
        graph = (graph * (self.share / _or_one(graph.square().sum(1).mean())) ** 0.5).to(rows.dtype)
        found = rows.moments()
        centre = torch.from_numpy(found.mean).flatten().to(rows.device, rows.dtype)
        scale = ((1 - self.share) / _or_one(found.variance.sum())) ** 0.5

        def block(index: Tensor) -> Affinity:
            samples = (rows[index].flatten(1) - centre) * scale
            return Features(torch.cat([graph[index.to(graph.device)], samples], 1)).centre()

        return block


@dataclass(frozen=True)
class CosineGraph(Mixed):
    """As :class:`Mixed`, for centred samples of length one: for embeddings, of which only the angles matter.

    Parameters
    ----------
    neighbours, components, weights, diffusion, share
        As for :class:`Mixed`.
    search_components : int or None
        As for :class:`NeighbourGraph`, but all dimensions by default: an encoder leaves few uninformative ones.
    """

    search_components: int | None = None

    def graph(self, X: Any) -> scipy.sparse.csr_array:
        return super().graph(_at_unit_length(as_rows(X)))

    def bind(self, X: Any) -> Block:
        return super().bind(_at_unit_length(as_rows(X)))


def _at_unit_length(rows: Rows) -> Rows:
    """The centred samples (n, d) scaled to length one, computed once."""
    if "unit length" not in rows.known:
        found = rows.moments()
        centre = torch.from_numpy(found.mean).flatten().to(rows.device, rows.dtype)
        # Scaled to unit size, so that squares do not overflow.
        largest = float(np.maximum(found.high - found.mean, found.mean - found.low).max()) or 1.0
        parts = [torch.nn.functional.normalize((part.flatten(1) - centre) / largest) for part in rows.parts()]
        rows.known["unit length"] = unit = Rows(torch.cat(parts), rows.dtype, rows.device)
        unit.known["unit length"] = unit
    known: Rows = rows.known["unit length"]
    return known


def block_of(features: Tensor) -> Block:
    """A function from the index (b,) of a batch to its features, from features (n, r)."""
    return lambda index: Features(features[index.to(features.device)]).centre()


def _or_one(value: Tensor) -> float:
    """A mean square to divide by; one if it is zero."""
    return float(value) or 1.0


def _without_edges(n: int) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((n, n))


def _smallest_positive(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """The smallest positive distance (n, 1) of each sample; zero if it has none."""
    smallest = np.where(distances > 0, distances, np.inf).min(1, keepdims=True)
    return np.where(np.isinf(smallest), 0, smallest)


def _matrix(weights: NDArray[np.float64], index: NDArray[np.int64]) -> scipy.sparse.csr_array:
    """Weights (n, k) of the neighbours ``index`` (n, k), as a sparse matrix (n, n)."""
    n, k = index.shape
    return scipy.sparse.csr_array((weights.ravel(), index.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
