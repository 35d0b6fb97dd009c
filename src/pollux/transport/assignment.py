"""Exact assignment of samples to clusters whose sizes have bounds: a transport problem with few sinks."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError, option

# Rounds in which each cluster in turn gets its best price, given those of the others.
_SWEEPS = 20
# Relative to the largest score: by how much a path must be shorter than another, to be above rounding.
_ROUNDING = 1e-13

Sizes = NDArray[np.int64]
Scores = NDArray[np.float64]


def resolve_sizes(min_size: Any, max_size: Any, n: int, n_clusters: int) -> tuple[Sizes, Sizes]:
    """Minimum and maximum sizes (K,) of clusters of n samples, from counts, or from shares as fractions of 1.

    Raises an InputError if no assignment has such sizes.
    """
    low = _counts("min_size", 0 if min_size is None else min_size, n, n_clusters, math.ceil)
    high = _counts("max_size", n if max_size is None else max_size, n, n_clusters, math.floor)
    if (low > high).any():
        k = int(np.argmax(low > high))
        raise InputError(
            f"Cluster {k} would have at least {low[k]:,} and at most {high[k]:,} rows: change one of them."
        )
    if low.sum() > n:
        raise InputError(
            f"{n_clusters} clusters of {option('min_size')} together have at least {low.sum():,} rows, and there are "
            f"{n:,}: ask for fewer clusters or smaller ones."
        )
    if high.sum() < n:
        raise InputError(
            f"{n_clusters} clusters of {option('max_size')} together hold at most {high.sum():,} of {n:,} rows: ask "
            "for more clusters or larger ones."
        )
    return low, high


def _counts(name: str, given: Any, n: int, n_clusters: int, whole: Any) -> Sizes:
    values = np.asarray(given)
    if values.shape not in ((), (n_clusters,)) or values.dtype.kind not in "iuf" or not (values >= 0).all():
        raise InputError(f"{option(name)} is a number of rows, or a share of them such as 0.1; not {given!r}.")
    if values.dtype.kind == "f":
        if not (values <= 1).all():
            raise InputError(f"{option(name)} is a share of the rows up to 1.0, or a whole number; not {given!r}.")
        # A share such as 0.1 is not exact in binary; rounding makes it 3 of 30 rows.
        values = np.array([whole(round(float(share) * n, 6)) for share in np.atleast_1d(values)])
    return np.broadcast_to(values, n_clusters).clip(max=2**53).astype(np.int64)


def assign(scores: Any, low: Sizes, high: Sizes) -> NDArray[np.int64]:
    """The cluster of each sample (n,) that maximises the sum of scores (n, K), with sizes between low and high (K,).

    First, each cluster gets a price, and each sample goes to the cluster with the highest score minus price; this is
    optimal for the sizes that result. Then samples in excess are moved, one at a time, along the shortest path of moves
    to a cluster with room; with few clusters there are few paths. The result is exact up to rounding.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(scores).all():
        raise ValueError("The model returned NaN for some samples: scale them as the training data were.")
    prices = _find_prices(scores, low, high)
    return _Flow(scores, prices, low, high).solve()


def _find_prices(scores: Scores, low: Sizes, high: Sizes) -> Scores:
    """Prices (K,) near the optimal ones: positive for clusters at their maximum size, negative at their minimum."""
    K = scores.shape[1]
    prices = np.zeros(K)
    for _ in range(_SWEEPS if K > 1 else 0):
        before = prices.copy()
        for k in range(K):
            others = scores - prices
            others[:, k] = -np.inf
            margin = scores[:, k] - others.max(1)
            wanted = int((margin > 0).sum())
            # At most high[k] samples then have a margin above the price, or at least low[k] one that is not below it.
            if wanted > high[k]:
                prices[k] = max(0.0, -np.partition(-margin, high[k])[high[k]])
            elif wanted < low[k]:
                prices[k] = min(0.0, -np.partition(-margin, low[k] - 1)[low[k] - 1])
            else:
                prices[k] = 0.0
        if np.array_equal(prices, before):
            break
    return prices


class _Flow:
    """Shortest augmenting paths between clusters; the last node is a sink, whose arcs bound the sizes."""

    def __init__(self, scores: Scores, prices: Scores, low: Sizes, high: Sizes) -> None:
        n, K = scores.shape
        self._scores, self._low, self._high = scores, low, high
        self.labels: NDArray[np.int64] = (scores - prices).argmax(1)
        sizes = np.bincount(self.labels, minlength=K)
        # Flow from each cluster to the sink: its maximum size if the price is positive, its minimum if it is negative.
        self._out = np.where(prices > 0, high, np.where(prices < 0, low, np.clip(sizes, low, high)))
        self._excess = np.append(sizes - self._out, int(self._out.sum()) - n)
        self._tolerance = _ROUNDING * max(1.0, float(np.abs(scores[np.isfinite(scores)]).max(initial=0)))
        self._cost = np.full((K + 1, K + 1), np.inf)
        self._order: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._next: dict[tuple[int, int], int] = {}
        self._arrived: dict[tuple[int, int], list[tuple[float, int]]] = {}

    def solve(self) -> NDArray[np.int64]:
        K = len(self._low)
        if not self._excess.any():
            return self.labels
        for a in range(K):
            members = np.flatnonzero(self.labels == a)
            for b in range(K):
                if a != b:
                    loss = self._scores[members, a] - self._scores[members, b]
                    self._order[a, b] = members[np.argsort(loss, kind="stable")]
                    self._next[a, b], self._arrived[a, b] = 0, []
                    self._update(a, b)
            self._update_sink(a)
        while (self._excess > 0).any():
            self._augment()
        return self.labels

    def _loss(self, row: int, a: int, b: int) -> float:
        return float(self._scores[row, a] - self._scores[row, b])

    def _first(self, a: int, b: int) -> tuple[float, int] | None:
        """The cost of the cheapest move of a sample from a to b, and the sample; None if a is empty."""
        order, arrived = self._order[a, b], self._arrived[a, b]
        while self._next[a, b] < len(order) and self.labels[order[self._next[a, b]]] != a:
            self._next[a, b] += 1
        while arrived and self.labels[arrived[0][1]] != a:
            heapq.heappop(arrived)
        found = [arrived[0]] if arrived else []
        if self._next[a, b] < len(order):
            row = int(order[self._next[a, b]])
            found.append((self._loss(row, a, b), row))
        return min(found, default=None)

    def _update(self, a: int, b: int) -> None:
        first = self._first(a, b)
        self._cost[a, b] = np.inf if first is None else first[0]

    def _update_sink(self, k: int) -> None:
        K = len(self._low)
        self._cost[k, K] = 0.0 if self._out[k] < self._high[k] else np.inf
        self._cost[K, k] = 0.0 if self._out[k] > self._low[k] else np.inf

    def _augment(self) -> None:
        """Move one unit along the shortest path from a node with an excess to one with a deficit."""
        nodes = len(self._excess)
        distance = np.where(self._excess > 0, 0.0, np.inf)
        origin = np.full(nodes, -1)
        for _ in range(nodes):
            through = distance[:, None] + self._cost
            best = through.argmin(0)
            shorter = through[best, np.arange(nodes)] < distance - self._tolerance
            if not shorter.any():
                break
            distance = np.where(shorter, through[best, np.arange(nodes)], distance)
            origin = np.where(shorter, best, origin)
        lacking = np.flatnonzero(self._excess < 0)
        end = int(lacking[distance[lacking].argmin()])
        path = [end]
        while origin[path[-1]] >= 0 and len(path) <= nodes:
            path.append(int(origin[path[-1]]))
        path.reverse()
        self._excess[path[0]] -= 1
        self._excess[end] += 1
        K, touched = nodes - 1, set()
        for a, b in itertools.pairwise(path):
            if K in (a, b):
                self._out[a if b == K else b] += 1 if b == K else -1
                self._update_sink(a if b == K else b)
                continue
            first = self._first(a, b)
            assert first is not None
            row = first[1]
            self.labels[row] = b
            for other in range(K):
                if other != b:
                    heapq.heappush(self._arrived[b, other], (self._loss(row, b, other), row))
            touched |= {a, b}
        for a in touched:
            for b in range(K):
                if a != b:
                    self._update(a, b)
