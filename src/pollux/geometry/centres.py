"""Labels of k-means, which mixtures and models start at."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from pollux.progress import Stage

RUNS = 10
"""Runs of k-means of which the best is kept."""
ENOUGH = 3
"""Runs that have found the best clusters, after which no further one is made."""
# Of many clusters a run takes long, and further ones find hardly better ones.
_RUNS_TIMES_CLUSTERS = 500
# Two runs whose inertias differ by less have found the same clusters.
_SAME = 1e-6


class CentreClusters(NamedTuple):
    """Labels (n,) by the nearest of K centres (K, r); how many runs have found them, and how many were made."""

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
    """The best clusters that k-means finds for features (n, r), an array or a sparse matrix, in several runs.

    Each run starts at the centres of greedy k-means++. No further run is made once three have found the best clusters.
    """
    runs = max(1, min(runs or RUNS, _RUNS_TIMES_CLUSTERS // n_clusters))
    random = np.random.RandomState(seed)
    if scipy.sparse.issparse(features):
        samples, centre = features, 0.0
        squares = np.asarray(samples.multiply(samples).sum(1)).ravel()
    else:
        # Centred, because distances are taken by products, which lose digits far from the origin.
        centre = features.mean(0)
        samples = np.ascontiguousarray(features - centre)
        squares = np.einsum("ij,ij->i", samples, samples)
    weight = np.ones(len(squares)) if sample_weight is None else sample_weight
    best: KMeans | None = None
    found = 0
    with Stage(f"k-means of {len(squares):,} rows, run", runs) as shown, warnings.catch_warnings():
        # Fewer distinct samples than clusters: some then stay empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for run in range(runs):
            centres = _seed_centres(samples, squares, n_clusters, weight, random)
            fitted = KMeans(n_clusters, init=centres, n_init=1, copy_x=False).fit(samples, sample_weight=sample_weight)
            shown.update(run + 1)
            if best is None or fitted.inertia_ < best.inertia_ * (1 - _SAME):
                best, found = fitted, 1
            elif fitted.inertia_ <= best.inertia_ * (1 + _SAME):
                found += 1
            if found == ENOUGH:
                break
    assert best is not None
    return CentreClusters(np.asarray(best.labels_, dtype=np.int64), best.cluster_centers_ + centre, found, run + 1)


def _seed_centres(
    samples: Any, squares: NDArray[Any], n_clusters: int, weight: NDArray[np.float64], random: np.random.RandomState
) -> NDArray[Any]:
    """Greedy k-means++: each next centre is the best of a few samples, drawn by their distances from those before."""
    trials = 2 + int(math.log(n_clusters))

    def dense(index: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(samples[index].toarray() if scipy.sparse.issparse(samples) else samples[index])

    def distances(candidates: NDArray[Any]) -> NDArray[Any]:
        products = candidates @ samples.T if isinstance(samples, np.ndarray) else (samples @ candidates.T).T
        found = squares - 2 * products + np.einsum("ij,ij->i", candidates, candidates)[:, None]
        return np.asarray(np.maximum(found, 0))

    first = random.choice(len(squares), p=weight / weight.sum())
    centres = [dense(np.array([first]))[0]]
    closest = distances(centres[0][None])[0]
    for _ in range(1, n_clusters):
        shares = np.cumsum(weight * closest)
        drawn = np.searchsorted(shares, random.uniform(size=trials) * shares[-1])
        candidates = dense(np.minimum(drawn, len(squares) - 1))
        after = np.minimum(closest, distances(candidates))
        best = int((after @ weight).argmin())
        centres.append(candidates[best])
        closest = after[best]
    return np.stack(centres)
