"""Whether there is room between clusters: neighbours that a boundary cuts, beside those that it would cut elsewhere.

A boundary between the clusters a and b is a level of log p(a|x) − log p(b|x). Levels inside the two clusters run beside
it. In one cluster that was cut in two, the boundary cuts as many pairs of neighbours as these do, however long or thin
the cluster is; where there is a gap, it cuts few.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

Edges = NDArray[np.int64]

MOST_NEIGHBOURS, _FEWEST_NEIGHBOURS = 10, 3
_LEVELS = np.linspace(0.25, 0.75, 41)


def neighbour_edges(X: NDArray[np.floating], n_clusters: int) -> Edges:
    """Each row of X (n, d) with each of its nearest others: pairs of row numbers (2, n · neighbours).

    There are ten of them, or fewer where so many clusters are small: more than a cluster holds would lie outside it.
    """
    fitting = len(X) // (2 * n_clusters)
    count = min(MOST_NEIGHBOURS, max(_FEWEST_NEIGHBOURS, fitting), len(X) - 1)
    nearest = NearestNeighbors(n_neighbors=count).fit(X).kneighbors(return_distance=False)
    return np.stack([np.repeat(np.arange(len(X)), count), nearest.ravel()])


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
    labels, count = log_p.argmax(axis=1), log_p.shape[1]
    cuts = np.zeros((count, count))
    np.add.at(cuts, tuple(labels[edges]), 1)
    cuts += cuts.T
    found = np.ones((count, count))
    for a, b in combinations(range(count), 2):
        if cuts[a, b]:
            inside = _cuts_inside(log_p[:, a] - log_p[:, b], labels, (a, b), edges)
            found[a, b] = found[b, a] = max(0.0, 1 - cuts[a, b] / inside)
    return found


def _cuts_inside(margin: NDArray[np.floating], labels: NDArray[np.int64], pair: tuple[int, int], edges: Edges) -> int:
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
