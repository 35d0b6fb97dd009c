"""K-means clustering, for the initial labels of mixtures and models."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from pollux.native import load_compiled
from pollux.progress import track

RUNS = 10
"""Number of runs of k-means, of which the best is kept."""
ENOUGH = 3
"""No further run is made once this many have found the best clusters."""
# With many clusters a run takes long, and further runs hardly improve on it, so fewer are made.
_RUNS_TIMES_CLUSTERS = 500
# Of Lloyd's algorithm: maximum iterations, and the tolerance on moves of centres as a share of the mean variance.
_ITERATIONS, _TOLERANCE = 300, 1e-4
# Products of samples and centres that are computed at once without the compiled part.
_PRODUCTS = 2**17
# Runs whose relative inertias differ by less are considered to have found the same clusters.
_SAME = 1e-6


class CentreClusters(NamedTuple):
    """Labels (n,) by the nearest of K centres (K, r); how many runs found them, and how many were made."""

    labels: NDArray[np.int64]
    centres: NDArray[Any]
    found: int
    runs: int


def k_means(
    features: Any,
    n_clusters: int,
    seed: int = 0,
    sample_weight: NDArray[np.float64] | None = None,
    *,
    runs: int | None = None,
) -> NDArray[np.int64]:
    """Labels (n,) of features (n, r), the best of ten runs; see :func:`fit_k_means`."""
    return fit_k_means(features, n_clusters, seed, sample_weight, runs=runs).labels


def fit_k_means(
    features: Any,
    n_clusters: int,
    seed: int = 0,
    sample_weight: NDArray[np.float64] | None = None,
    *,
    runs: int | None = None,
) -> CentreClusters:
    """Cluster features (n, r), an array or a sparse matrix, by k-means with several restarts.

    Each run starts at the centres of greedy k-means++. No further run is made once three have found the best clusters.
    It runs on one thread: on a busy machine, iterations on small data would wait for each other's threads.
    """
    runs = max(1, min(runs or RUNS, _RUNS_TIMES_CLUSTERS // n_clusters))
    random = np.random.RandomState(seed)
    if scipy.sparse.issparse(features):
        samples, centre = scipy.sparse.csr_array(features, dtype=np.result_type(features.dtype, np.float32)), 0.0
        squares = np.asarray(samples.multiply(samples).sum(1)).ravel()
    else:
        # Centred, because distances are computed from products, which lose digits far from the origin.
        centre = features.mean(0)
        samples = np.ascontiguousarray(features - centre, dtype=np.result_type(features.dtype, np.float32))
        squares = np.einsum("ij,ij->i", samples, samples)
    squares = squares.astype(np.float64)
    weight = np.ones(len(squares)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    tolerance = _TOLERANCE * float(squares.mean() - np.square(samples.mean(0)).sum()) / samples.shape[1]
    best, found, made, inertia = None, 0, 0, math.inf
    for _ in track(range(runs), f"k-means of {len(squares):,} rows, run"):
        centres = _seed_centres(samples, squares, n_clusters, weight, random)
        labels, own = iterate_centres(samples, squares, weight, centres, tolerance)
        made += 1
        if best is None or own < inertia * (1 - _SAME):
            best, found, inertia = (labels, centres), 1, own
        elif own <= inertia * (1 + _SAME):
            found += 1
        if found == ENOUGH:
            break
    assert best is not None
    return CentreClusters(best[0], best[1] + centre, found, made)


def iterate_centres(
    samples: Any,
    squares: NDArray[np.float64],
    weight: NDArray[np.float64],
    centres: NDArray[Any],
    tolerance: float,
    iterations: int = _ITERATIONS,
) -> tuple[NDArray[np.int64], float]:
    """Lloyd's algorithm: labels (n,) of samples (n, r) by the nearest of centres (K, r), and the inertia.

    Centres move, in place, to the means of their samples until labels no longer change, or until the squared moves sum
    to at most the tolerance. A centre without samples is moved to the sample that is farthest from its centre.
    """
    n, K = len(squares), len(centres)
    labels, apart, native = np.full(n, -1), np.empty(n), load_compiled()
    if native is not None and isinstance(samples, np.ndarray):
        inertia = native.iterate_centres(samples, squares, weight, centres, labels, tolerance, iterations)
        return labels, float(inertia)
    part = max(1, _PRODUCTS // K)
    is_last = False
    for step in range(iterations + 1):
        before, labels = labels, np.empty(n, np.int64)
        sums, sizes = np.zeros(centres.shape), np.zeros(K)
        lengths = np.einsum("ij,ij->i", centres, centres)
        for some in (slice(start, start + part) for start in range(0, n, part)):
            scores = lengths - 2 * (samples[some] @ centres.T)
            labels[some] = scores.argmin(1)
            apart[some] = np.maximum(scores.min(1) + squares[some], 0)
            member = np.equal.outer(labels[some], np.arange(K)) * weight[some, None]
            sums += (samples[some].T @ member).T
            sizes += member.sum(0)
        if is_last or step == iterations or (labels == before).all():
            break
        left = apart.copy()
        for empty in np.flatnonzero(sizes == 0):
            far = int(left.argmax())
            sums[empty], sizes[empty] = centres[empty], 1
            if left[far] > 0:
                left[far] = 0
                sums[empty] = samples[[far]].toarray().ravel() if scipy.sparse.issparse(samples) else samples[far]
        moved = sums / sizes[:, None] - centres
        centres += moved.astype(centres.dtype)
        is_last = bool(np.square(moved).sum() <= tolerance)
    return labels, float(weight @ apart)


def _seed_centres(
    samples: Any, squares: NDArray[Any], n_clusters: int, weight: NDArray[np.float64], random: np.random.RandomState
) -> NDArray[Any]:
    """Greedy k-means++: each next centre is the best of a few candidates, drawn by distance from earlier centres."""
    chosen = np.zeros(n_clusters, dtype=np.int64)
    chosen[0] = random.choice(len(squares), p=weight / weight.sum())
    draws, native = random.uniform(size=(n_clusters - 1, 2 + int(math.log(n_clusters)))), load_compiled()
    if native is not None and isinstance(samples, np.ndarray):
        native.seed_centres(samples, squares, weight, draws, chosen)
        return np.asarray(samples[chosen])

    def dense(index: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(samples[index].toarray() if scipy.sparse.issparse(samples) else samples[index])

    def distances(index: NDArray[np.int64]) -> NDArray[Any]:
        products = (samples @ dense(index).T).T
        return np.asarray(np.maximum(squares - 2 * products + squares[index, None], 0))

    closest = distances(chosen[:1])[0]
    for k, own in enumerate(draws, 1):
        shares = np.cumsum(weight * closest)
        drawn = np.minimum(np.searchsorted(shares, own * shares[-1]), len(squares) - 1)
        after = np.minimum(closest, distances(drawn))
        best = int((after @ weight).argmin())
        chosen[k], closest = drawn[best], after[best]
    return dense(chosen)
