"""Unsupervised trees of binary splits that raise the objective of kernel k-means, as KAURI grows them.

The objective is Σ_k ‖c_k‖² / m_k: c_k is the weighted sum of the features φ (n, r) of a cluster, m_k its weight. A
split sends the two sides of a leaf to other clusters than its own. Its gain follows from sums over prefixes of the
leaf's samples, in the order of each column: ‖s‖² of each side, and its products with the c_k. No kernel matrix is
computed.

The gain of sending a side of a leaf to a cluster stays valid until the leaf's own cluster or that one changes. Moves of
both sides to two other clusters are only evaluated if an upper bound, from the gains of each side, is high enough.

Reference: L. Ohl, P.-A. Mattei, M. Leclercq, A. Droit, F. Precioso, "Kernel KMeans clustering splits for end-to-end
unsupervised decision trees", 2024.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pollux.trees.splits import ELEMENTS, Array, Index, Order, scan_splits, square_sides

NO_CHILD = -1
# Leaves of more samples are split at this many quantiles of each column.
_MOST_SPLITS = 2048
# A gain below this share of the total scatter is a rounding error.
_NO_GAIN = 1e-12
# A weight below this share of a cluster's weight is a rounding error of zero.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Limits:
    """Limits on the size of a tree; None: no limit."""

    n_clusters: int
    max_leaves: int | None = None
    max_depth: int | None = None
    min_samples_split: int = 2
    min_samples_leaf: int = 1
    max_features: int | None = None


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes (m,) of a tree, parents before children: a sample goes left where its feature is at most the threshold.

    Leaves have no children, −1. ``missing_left`` says whether missing values go left. ``cluster`` is that of a leaf,
    ``weight`` that of a node's samples, and ``gain`` is by how much its split raised the objective.
    """

    feature: Index
    threshold: Array
    missing_left: NDArray[np.bool_]
    left: Index
    right: Index
    cluster: Index
    weight: Array
    gain: Array

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def leaves(self) -> Index:
        """The indices of the leaves."""
        return np.flatnonzero(self.left == NO_CHILD)

    @property
    def depth(self) -> Index:
        """The number of splits above each node, (m,)."""
        depth = np.zeros(len(self), dtype=np.int64)
        for node in np.flatnonzero(self.left != NO_CHILD):
            depth[[self.left[node], self.right[node]]] = depth[node] + 1
        return depth

    def apply(self, X: Array) -> Index:
        """The leaf of each sample, (n,)."""
        node = np.zeros(len(X), dtype=np.int64)
        moving = np.arange(len(X))
        while True:
            moving = moving[self.left[node[moving]] != NO_CHILD]
            if not len(moving):
                return node
            here = node[moving]
            value = X[moving, self.feature[here]]
            goes_left = np.where(np.isnan(value), self.missing_left[here], value <= self.threshold[here])
            node[moving] = np.where(goes_left, self.left[here], self.right[here])


class _Move(NamedTuple):
    """A split of the leaf at ``position``, and the clusters of its sides; −1 and −2 are new ones."""

    position: int
    gain: float
    split: int
    targets: tuple[int, int]


@dataclass(eq=False)
class _Leaf:
    """Samples ``start`` … ``stop`` in the order of each column, and cached sums over their splits."""

    node: int
    depth: int
    start: int
    stop: int
    cluster: int
    sum: Array
    weight: float
    columns: Order
    is_final: bool
    # Valid splits (t,), the weights of their left sides, and ‖s‖² (2, t) of both sides.
    last: Index | None = None
    left: Array = field(default_factory=lambda: np.empty(0))
    squares: Array = field(default_factory=lambda: np.empty((2, 0)))


class Growth:
    """The state of a growing tree: clusters and their sums, leaves, and the order of the samples in each column.

    Parameters
    ----------
    X : array of shape (n, d)
        The samples; they may hold NaN.
    features : array of shape (n, r)
        Features of mean zero, whose products are the kernel.
    weight : array of shape (n,)
        Weights of the samples, all positive.
    limits : Limits
        Limits on the size of the tree.
    random : Generator
        Draws the columns that a leaf may be split by, if these are limited.
    """

    def __init__(self, X: Array, features: Array, weight: Array, limits: Limits, random: np.random.Generator) -> None:
        (n, d), K = X.shape, limits.n_clusters
        self.limits, self.random, self.weight, self.d = limits, random, weight, d
        self.features = features * weight[:, None]
        self.no_gain = _NO_GAIN * float(weight @ np.einsum("ij,ij->i", features, features))
        # A column with missing values is used twice: as the largest values in one copy, as the smallest in the other.
        gaps = np.flatnonzero(np.isnan(X).any(0))
        self.feature = np.concatenate([np.arange(d), gaps])
        self.has_gaps = np.isin(self.feature, gaps)
        # The samples of each leaf are contiguous, in the order of each column.
        self.values = np.ascontiguousarray(X.T[self.feature])
        self.order = np.empty(self.values.shape, dtype=np.int32)
        for column, values in enumerate(self.values):
            values[np.isnan(values)] = np.inf if column < d else -np.inf
            self.order[column] = order = np.argsort(values, kind="stable")
            values[:] = values[order]
        self.clusters = np.zeros(n, dtype=np.int64)
        # Per cluster: sums c, weights, ‖c‖², and products of the weighted features with c.
        self.sums, self.sizes, self.squares = np.zeros((K, features.shape[1])), np.zeros(K), np.zeros(K)
        self.dots = np.zeros((n, K))
        self.nodes: list[list[Any]] = []
        self.leaves: list[_Leaf] = []
        # For each leaf, as scan_splits writes them: gains, NaN if not computed, and splits.
        self.gains, self.splits = np.empty((0, K + 4)), np.empty((0, K + 4), dtype=np.int64)
        self._place_leaf(0, 0, n, 0, 0)
        self._add([0], [self.leaves[0]])

    def grow(self) -> Nodes:
        """Split the leaves, the best move first, until none raises the objective or a limit is reached."""
        most = self.limits.max_leaves or len(self.weight)
        while len(self.leaves) < most and (move := self._find_move()) is not None:
            self._make(move)
        return Nodes(*(np.array(values) for values in zip(*self.nodes, strict=True)))

    def _place_leaf(self, position: int, start: int, stop: int, cluster: int, depth: int) -> None:
        """Create a leaf of samples, at this position."""
        limits, members = self.limits, self.order[0, start:stop]
        columns = np.arange(len(self.feature), dtype=np.int32)
        if limits.max_features is not None:
            drawn = self.random.choice(self.d, min(self.d, limits.max_features), replace=False)
            columns = columns[np.isin(self.feature, drawn)]
        is_small = stop - start < max(2, limits.min_samples_split, 2 * limits.min_samples_leaf)
        total, weight = self.features[members].sum(0), float(self.weight[members].sum())
        is_final = is_small or depth == limits.max_depth
        leaf = _Leaf(len(self.nodes), depth, start, stop, cluster, total, weight, columns, is_final)
        self.clusters[members] = cluster
        self.nodes.append([0, 0.0, False, NO_CHILD, NO_CHILD, cluster, weight, 0.0])
        if position == len(self.leaves):
            self.leaves.append(leaf)
            self.gains = np.concatenate([self.gains, np.empty((1, self.gains.shape[1]))])
            self.splits = np.concatenate([self.splits, np.zeros((1, self.splits.shape[1]), dtype=np.int64)])
        self.leaves[position] = leaf

    def _add(self, clusters: list[int], leaves: list[_Leaf], sign: int = 1) -> None:
        """Add leaves to clusters, or remove them; gains of moves from or to these clusters are invalidated."""
        for cluster, leaf in zip(clusters, leaves, strict=True):
            self.sums[cluster] += sign * leaf.sum
            self.sizes[cluster] += sign * leaf.weight
            if self.sizes[cluster] <= _ROUNDING * leaf.weight:
                self.sums[cluster], self.sizes[cluster] = 0, 0
        for cluster in set(clusters):
            self.squares[cluster] = self.sums[cluster] @ self.sums[cluster]
            self.dots[:, cluster] = self.features @ self.sums[cluster]
        self.gains[:, clusters] = np.nan
        self.gains[np.isin([leaf.cluster for leaf in self.leaves], clusters)] = np.nan

    def _find_move(self) -> _Move | None:
        """The move with the largest gain; None if no move has any."""
        K, is_used = len(self.sizes), self.sizes > 0
        own, weight = (np.array([getattr(leaf, name) for leaf in self.leaves]) for name in ("cluster", "weight"))
        is_final = np.array([leaf.is_final for leaf in self.leaves])
        rows, free = np.arange(len(own)), K - int(is_used.sum())
        # No side gains more elsewhere than as a new cluster. For a whole cluster, two new ones are no better than one.
        is_open = np.repeat([[*(is_used & (free == 0)), free > 0, free > 1]], len(own), axis=0)
        is_open[rows, own] = is_open[is_final] = False
        is_open[self.sizes[own] - weight <= _ROUNDING * weight, -1] = False
        gains = np.where(is_open & ~np.isnan(self.gains[:, : K + 2]), self.gains[:, : K + 2], -np.inf)
        ceilings = self.gains[:, K : K + 2].max(1) if free > 1 else self.gains[:, K]
        ceilings = np.where(is_final, -np.inf, np.nan_to_num(ceilings, nan=np.inf))
        least = max(self.no_gain, gains.max())
        for position in np.argsort(-ceilings, kind="stable"):
            if ceilings[position] <= least:
                break
            is_unknown = is_open[position] & np.isnan(self.gains[position, : K + 2])
            if is_unknown.any():
                self._scan(position, np.flatnonzero(is_unknown[:K]))
                gains[position] = np.where(is_open[position], self.gains[position, : K + 2], -np.inf)
                least = max(least, gains[position].max())
        position, target = divmod(int(gains.argmax()), K + 2)
        best: _Move | None = None
        if gains[position, target] > self.no_gain:
            split, is_right = divmod(int(self.splits[position, target]), 2)
            stays, goes = int(own[position]), target if target < K else -1
            targets = (-1, -2) if target > K else (stays, goes) if is_right else (goes, stays)
            best = _Move(position, least, split, targets)
        # Two new clusters gain more than two others.
        return best if free > 1 or K < 3 else self._find_pair(best, is_used & (np.arange(K) != own[:, None]))

    def _find_pair(self, best: _Move | None, is_open: NDArray[np.bool_]) -> _Move | None:
        """The best of a move and of those that send both sides of a leaf to two of the clusters open (L, K) to it."""
        K, is_final = is_open.shape[1], [leaf.is_final for leaf in self.leaves]
        known, (alone, apart, _, excess) = self.gains[:, :K], self.gains[:, K:].T
        # Upper bound: what both sides gain while the other stays, plus the largest excess over that.
        gains = np.where(is_open, np.where(np.isnan(known), alone[:, None], known), -np.inf)
        second, first = np.sort(gains, axis=1)[:, -2:].T
        bounds = np.where(is_final, -np.inf, np.minimum(apart, first + second + excess + self.no_gain))
        for position in np.argsort(-bounds, kind="stable"):
            least = self.no_gain if best is None else best.gain
            if bounds[position] <= least:
                break
            row, rest = gains[position], least - excess[position] - self.no_gain
            others = np.where(row == first[position], second[position], first[position])
            self._scan(position, np.flatnonzero(row + others > rest), pairs=True)
            gain, split = self.gains[position, K + 2], self.splits[position, K + 2]
            if gain > least:
                best = _Move(int(position), float(gain), int(split) // 2, divmod(int(self.splits[position, K + 3]), K))
        return best

    def _scan(self, position: int, targets: Index, pairs: bool = False) -> None:
        """Compute the gains of the best splits of a leaf that send a side to each target, and both to two of them."""
        leaf = self.leaves[position]
        if leaf.last is None:
            self._prepare(leaf)
        assert leaf.last is not None
        own, rest = leaf.cluster, self.sums[leaf.cluster] - leaf.sum
        left = self.sizes[own] - leaf.weight
        # The gain of the cluster if it loses all samples of the leaf.
        emptied = 0.0 if left <= _ROUNDING * leaf.weight else float(rest @ rest) / left
        emptied -= float(self.squares[own] / self.sizes[own])
        splits = (self.order, leaf.columns, leaf.last, leaf.start, leaf.stop, leaf.left, leaf.squares)
        clusters = (self.dots, self.sizes, self.squares, self.sums @ leaf.sum, own, leaf.weight, emptied)
        found = (self.gains[position], self.splits[position])
        scan_splits(*splits, *clusters, targets.astype(np.int32), self.no_gain, pairs, *found)

    def _prepare(self, leaf: _Leaf) -> None:
        """Find the valid splits of a leaf, and the sums over their sides that depend on its samples alone."""
        m, least = leaf.stop - leaf.start, self.limits.min_samples_leaf
        step, found = max(1, ELEMENTS // m), []
        for first in range(0, len(leaf.columns), step):
            values = self.values[leaf.columns[first : first + step], leaf.start : leaf.stop]
            is_valid = np.zeros(values.shape, dtype=bool)
            is_valid[:, least - 1 : m - least] = values[:, least - 1 : m - least] < values[:, least : m - least + 1]
            last = np.flatnonzero(is_valid)
            if m > _MOST_SPLITS:
                # Keep the last valid split of each quantile.
                quantile = last // m * _MOST_SPLITS + last % m * _MOST_SPLITS // m
                last = last[np.diff(quantile, append=np.inf) > 0]
            found.append(first * m + last)
        leaf.last = np.concatenate(found)
        samples = (self.order, leaf.columns, leaf.last, leaf.start, leaf.stop)
        leaf.left, leaf.squares = square_sides(*samples, self.features, self.weight, leaf.sum)

    def _make(self, move: _Move) -> None:
        """Split a leaf: its samples change their clusters, and two leaves replace it."""
        leaf = self.leaves[move.position]
        assert leaf.last is not None
        column, last = divmod(int(leaf.last[move.split]), leaf.stop - leaf.start)
        column = int(leaf.columns[column])
        order, values = (of_all[:, leaf.start : leaf.stop] for of_all in (self.order, self.values))
        low, high = values[column, last : last + 2]
        is_left = np.zeros(len(self.weight), dtype=bool)
        is_left[order[column, : last + 1]] = True
        on_left = is_left[order]
        for part in (values, order):
            part[:] = np.concatenate([part[on].reshape(len(part), -1) for on in (on_left, ~on_left)], axis=1)
        free = list(np.flatnonzero(self.sizes == 0))
        left, right = (int(free.pop(0)) if target < 0 else target for target in move.targets)
        # If no value was missing, missing values of new samples go to the larger side.
        is_most = leaf.left[move.split] > leaf.weight / 2
        missing_left = column >= self.d or (not self.has_gaps[column] and bool(is_most))
        split = [int(self.feature[column]), _between(low, high), missing_left, len(self.nodes), len(self.nodes) + 1]
        self.nodes[leaf.node] = [*split, leaf.cluster, leaf.weight, move.gain]
        middle, depth = leaf.start + last + 1, leaf.depth + 1
        self._place_leaf(move.position, leaf.start, middle, left, depth)
        self._place_leaf(len(self.leaves), middle, leaf.stop, right, depth)
        moved = [child for child in (self.leaves[move.position], self.leaves[-1]) if child.cluster != leaf.cluster]
        self._add([leaf.cluster] * len(moved), moved, sign=-1)
        self._add([child.cluster for child in moved], moved)


def _between(low: float, high: float) -> float:
    """A threshold between two values: at least the lower one, and below the higher one."""
    if np.isinf(low) or np.isinf(high):
        # All missing values are on one side, all others on the other.
        return float(low if np.isinf(low) else high)
    middle = low / 2 + high / 2
    return float(middle if low <= middle < high else low)
