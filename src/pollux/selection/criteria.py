"""What is measured of clusterings: stability, consensus, and separation.

A boundary between the clusters a and b is a level of log p(a|x) − log p(b|x). Levels inside the two clusters run beside
it. In one cluster that was cut in two, the boundary cuts as many pairs of neighbours as these do, however long or thin
the cluster is; where there is a gap, it cuts few.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pollux.geometry import nearest

Labels = NDArray[np.int64]
Edges = NDArray[np.int64]

_MAX_NEIGHBOURS, _MIN_NEIGHBOURS = 10, 3
_LEVELS = np.linspace(0.25, 0.75, 41)


def mean_and_error(agreement: NDArray[np.float64], n_clusterings: int) -> tuple[float, float]:
    """Mean of the agreement of all pairs of clusterings, and its standard error.

    Pairs that share a clustering are not independent: the error is the jackknife's, over clusterings.
    """
    pairs = np.array(list(combinations(range(n_clusterings), 2)))
    without = np.array([agreement[(pairs != left_out).all(axis=1)].mean() for left_out in range(n_clusterings)])
    error = np.sqrt((n_clusterings - 1) / n_clusterings * ((without - without.mean()) ** 2).sum())
    return float(agreement.mean()), float(error)


def sample_pairs(n: int, n_pairs: int, generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of different samples among n, at random with repetition."""
    first = generator.integers(n, size=n_pairs)
    return first, (first + generator.integers(1, n, size=n_pairs)) % n


def distances_from_consensus(labels: Labels, pairs: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.float64]:
    """Labels (B, n) of B clusterings to (B,): mean |own co-association − that of the ensemble|, over m pairs.

    The consensus of a pair is the share of the clusterings that put it together. A clustering near the consensus is
    confirmed by the others, whatever their numbers of clusters.
    """
    co_association = labels[:, pairs[0]] == labels[:, pairs[1]]
    return np.asarray(np.abs(co_association - co_association.mean(axis=0)).mean(axis=1))


def neighbour_edges(X: NDArray[np.floating], n_clusters: int) -> Edges:
    """Each sample of X (n, d) with each of its nearest neighbours: pairs of numbers (2, n · neighbours).

    There are ten of them, or fewer where so many clusters are small: more than a cluster holds would lie outside it.
    """
    fitting = len(X) // (2 * n_clusters)
    count = min(_MAX_NEIGHBOURS, max(_MIN_NEIGHBOURS, fitting), len(X) - 1)
    neighbours = nearest(X, count, components=None).numbers
    return np.stack([np.repeat(np.arange(len(X)), count), neighbours.ravel()])


def separation(log_p: NDArray[np.floating], edges: Edges) -> float:
    """From 0, where clusters touch, to 1, where there are gaps around each; log p(y|x) (n, K).

    A cluster is as far apart as the cluster that it is least apart from. The result is the geometric mean of the least
    of these and of their mean: one pair that touches counts, and counts less among many.
    """
    in_use = np.unique(log_p.argmax(axis=1))
    if len(in_use) < 2:
        return 0.0
    apart = pairwise_gaps(log_p[:, in_use], edges).min(axis=1)
    return float(np.sqrt(apart.min() * apart.mean()))


def pairwise_gaps(log_p: NDArray[np.floating], edges: Edges) -> NDArray[np.float64]:
    """The gap between any two clusters: 1 − cuts of their boundary / cuts inside them, at least 0; (n, K) to (K, K)."""
    labels, n_clusters = log_p.argmax(axis=1), log_p.shape[1]
    cuts = np.zeros((n_clusters, n_clusters))
    np.add.at(cuts, tuple(labels[edges]), 1)
    cuts += cuts.T
    gaps = np.ones((n_clusters, n_clusters))
    for a, b in combinations(range(n_clusters), 2):
        if cuts[a, b]:
            inside = _count_cuts_inside(log_p[:, a] - log_p[:, b], labels, (a, b), edges)
            gaps[a, b] = gaps[b, a] = max(0.0, 1 - cuts[a, b] / inside)
    return gaps


def _count_cuts_inside(margin: NDArray[np.floating], labels: Labels, pair: tuple[int, int], edges: Edges) -> int:
    """The fewest edges that a level of the margin (n,) cuts in the middle half of either cluster.

    The fewest, because levels of a network may wind along a cluster, and then cut more than one across it does.
    """
    among = np.isin(labels, pair)
    ends = margin[edges[:, among[edges].all(axis=0)]]
    below, above = np.sort(ends.min(axis=0)), np.sort(ends.max(axis=0))
    inside = []
    for cluster in pair:
        levels = np.quantile(margin[labels == cluster], _LEVELS)
        cut = np.searchsorted(below, levels) - np.searchsorted(above, levels)
        inside.append(int(cut.min()))
    return max(1, min(inside))
