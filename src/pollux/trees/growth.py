"""Unsupervised trees of binary splits that raise the objective of kernel k-means, as KAURI grows them.

The objective is Σ_k ‖c_k‖² / m_k: c_k is the weighted sum of the features φ (n, r) of a cluster, m_k its weight. A
split sends the two sides of a leaf to other clusters than its own. What that gains follows from sums over prefixes of
the leaf's samples, in the order of each column: ‖s‖² of each side, and its products with the c_k. No kernel matrix is
made.

Moves are looked at lazily, and the best is found all the same. What a leaf gains by sending a side to a cluster holds
until its own cluster or that one changes. What is not known is bounded: by what the split alone would gain if each side
became a cluster of its own, and by what the samples of the leaf would gain if each was free to go.

Reference: L. Ohl, P.-A. Mattei, M. Leclercq, A. Droit, F. Precioso, "Kernel KMeans clustering splits for end-to-end
unsupervised decision trees", 2024.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

NO_CHILD = -1
# Numbers that are worked on at once.
_ELEMENTS = 1 << 21
_KEPT_ELEMENTS = 1 << 25
# Leaves of more samples are split at so many quantiles of each column.
_MOST_SPLITS = 2048
# A gain below this share of the scatter of all samples is rounding.
_NO_GAIN = 1e-12
# A weight below this share of a cluster's is what rounding leaves of none.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Limits:
    """How large a tree may become; None: no limit."""

    n_clusters: int
    max_leaves: int | None = None
    max_depth: int | None = None
    min_samples_split: int = 2
    min_samples_leaf: int = 1
    max_features: int | None = None


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes (m,) of a tree, parents before children: a sample goes left where its feature is at most the threshold.

    Leaves have no children, −1. ``missing_left`` says where samples go whose feature is missing. ``cluster`` is that of
    a leaf, ``weight`` that of a node's samples, and ``gain`` is by how much its split raised the objective.
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
        """The numbers of the leaves."""
        return np.flatnonzero(self.left == NO_CHILD)

    @property
    def depth(self) -> Index:
        """How many splits are above each node, (m,)."""
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


@dataclass(frozen=True)
class _Move:
    """A split of leaf number ``position``, and the clusters of its sides; −1 and −2 are new ones."""

    position: int
    gain: float
    split: int
    targets: tuple[int, int]


@dataclass(eq=False)
class _Leaf:
    """Samples ``start`` … ``stop`` of the order of each column, and what is known of their splits."""

    node: int
    depth: int
    start: int
    stop: int
    cluster: int
    sum: Array
    weight: float
    columns: Index
    is_final: bool
    # Of its valid splits (t,): the last sample on the left among (columns, samples), and weight and ‖s‖² of both sides.
    last: Index | None = None
    weights: tuple[Array, Array] = (np.empty(0), np.empty(0))
    squares: tuple[Array, Array] = (np.empty(0), np.empty(0))
    # Products of the left sides with the sums of clusters, as far as these have not changed.
    products: dict[int, Array] = field(default_factory=dict)
    # The best moves of both sides to pairs of other clusters, as far as they are known.
    pairs: dict[tuple[int, int], _Move] = field(default_factory=dict)


class Growth:
    """The state of a tree that grows: clusters and their sums, leaves, and the order of the samples in each column.

    Parameters
    ----------
    X : array of shape (n, d)
        The samples; they may hold NaN.
    features : array of shape (n, r)
        Of mean zero; their products are the kernel.
    weight : array of shape (n,)
        Weights of the samples, all positive.
    limits : Limits
        How large the tree may become.
    random : Generator
        For the columns that a leaf may be split by, where those are limited.
    """

    def __init__(self, X: Array, features: Array, weight: Array, limits: Limits, random: np.random.Generator) -> None:
        (n, d), K = X.shape, limits.n_clusters
        self.limits, self.random, self.weight, self.d = limits, random, weight, d
        self.features = features * weight[:, None]
        self.norms = np.einsum("ij,ij->i", features, features)
        self.no_gain = _NO_GAIN * float(weight @ self.norms)
        # A column with gaps is there twice: its gaps are the largest values in one, the smallest in the other.
        gaps = np.flatnonzero(np.isnan(X).any(0))
        self.feature = np.concatenate([np.arange(d), gaps])
        self.has_gaps = np.isin(self.feature, gaps)
        self.values = np.ascontiguousarray(X.T[self.feature])
        for column, values in enumerate(self.values):
            values[np.isnan(values)] = np.inf if column < d else -np.inf
        self.order = np.argsort(self.values, axis=1, kind="stable").astype(np.int32)
        self.clusters = np.zeros(n, dtype=np.int64)
        # Of the clusters: sums c, weights, ‖c‖², and products of the weighted features with c.
        self.sums, self.sizes, self.squares = np.zeros((K, features.shape[1])), np.zeros(K), np.zeros(K)
        self.dots = np.zeros((K, n))
        self.keeps_products = K * self.order.size <= _KEPT_ELEMENTS
        self.nodes: list[list[Any]] = []
        self.leaves: list[_Leaf] = []
        # For each leaf and cluster, the last column standing for a new one: the gain of sending a side there, NaN where
        # it is not known, and the split; −1 − split where it is the right side that goes.
        self.gains, self.splits = np.empty((0, K + 1)), np.empty((0, K + 1), dtype=np.int64)
        # What no move of both sides away from their cluster gains more than: by itself, and beyond what the two sides
        # gain where the other stays.
        self.apart, self.excess = np.empty(0), np.empty(0)
        self._place_leaf(0, 0, n, 0, 0)
        self._add([0], [self.leaves[0]])

    def grow(self) -> Nodes:
        """Split the leaves, the best move first, until none raises the objective or a limit is reached."""
        most = self.limits.max_leaves or len(self.weight)
        while len(self.leaves) < most and (move := self._find_move()) is not None:
            self._make(move)
        return Nodes(*(np.array(values) for values in zip(*self.nodes, strict=True)))

    def _place_leaf(self, position: int, start: int, stop: int, cluster: int, depth: int) -> None:
        """Make a leaf of samples, as the leaf of this number."""
        limits, members, columns = self.limits, self.order[0, start:stop], np.arange(len(self.feature))
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
            self.apart, self.excess = np.append(self.apart, np.inf), np.append(self.excess, np.inf)
        self.leaves[position] = leaf

    def _add(self, clusters: list[int], leaves: list[_Leaf], sign: int = 1) -> None:
        """Add leaves to clusters, or take them away; what was known of moves from or to these holds no longer."""
        for cluster, leaf in zip(clusters, leaves, strict=True):
            self.sums[cluster] += sign * leaf.sum
            self.sizes[cluster] += sign * leaf.weight
            if self.sizes[cluster] <= _ROUNDING * leaf.weight:
                self.sums[cluster], self.sizes[cluster] = 0, 0
        for cluster in set(clusters):
            self.squares[cluster] = self.sums[cluster] @ self.sums[cluster]
            self.dots[cluster] = self.features @ self.sums[cluster]
        is_final = np.array([leaf.is_final for leaf in self.leaves])
        is_changed = np.isin([leaf.cluster for leaf in self.leaves], clusters)
        for leaf in self.leaves:
            if leaf.cluster in clusters:
                leaf.pairs.clear()
            leaf.products = {cluster: known for cluster, known in leaf.products.items() if cluster not in clusters}
            leaf.pairs = {pair: move for pair, move in leaf.pairs.items() if not set(pair).intersection(clusters)}
        self.gains[:, clusters] = np.nan
        self.gains[is_changed], self.apart[is_changed], self.excess[is_changed] = np.nan, np.inf, np.inf
        self.gains[is_final], self.apart[is_final] = -np.inf, -np.inf

    def _find_move(self) -> _Move | None:
        """The move that gains most; None where no move gains anything."""
        own, is_free = np.array([leaf.cluster for leaf in self.leaves]), self.sizes == 0
        free = int(is_free.sum())
        # No side gains more elsewhere than as a new cluster.
        ceilings = np.where(np.isnan(self.gains[:, -1:]), np.inf, self.gains[:, -1:])
        to_centres, apart = self._bound()
        bounds = np.concatenate([np.minimum(ceilings, to_centres), ceilings], axis=1)
        bounds = np.where(np.isnan(self.gains), bounds, self.gains)
        bounds[:, :-1][:, is_free] = bounds[np.arange(len(own)), own] = -np.inf
        if not free:
            bounds[:, -1] = -np.inf
        apart = self.apart if free > 1 else np.minimum(self.apart, apart)
        known = np.where(np.isnan(self.gains), -np.inf, bounds)
        best: _Move | None = None
        if known.max() > self.no_gain:
            best = self._switch(*divmod(int(known.argmax()), known.shape[1]))
        best = self._best(best, self.leaves, free)
        for position in np.argsort(-bounds.max(1), kind="stable"):
            least, row = self.no_gain if best is None else best.gain, bounds[position]
            if row.max() <= least:
                break
            wanted = np.flatnonzero((row > least) & np.isnan(self.gains[position]))
            if len(wanted):
                self._evaluate(position, wanted, [])
                row[wanted] = self.gains[position, wanted]
                if row[wanted].max() > least:
                    best = self._switch(position, wanted[row[wanted].argmax()])
        best = self._best(best, self.leaves, free)
        for position in np.argsort(-apart, kind="stable"):
            least, row, leaf = self.no_gain if best is None else best.gain, bounds[position], self.leaves[position]
            if apart[position] <= least:
                break
            if np.isinf(self.excess[position]):
                self._evaluate(position, np.empty(0, dtype=np.int64), [])
            np.minimum(row, self.gains[position, -1], out=row)
            # Both sides gain at most what each does while the other stays, and the excess.
            sums = np.triu(row[:-1, None] + row[:-1] + self.excess[position] - least, 1)
            pairs = [pair for pair in zip(*np.nonzero(sums > 0), strict=True) if pair not in leaf.pairs]
            if pairs:
                self._evaluate(position, np.empty(0, dtype=np.int64), pairs)
            best = self._best(best, [leaf], free)
        return best

    def _best(self, best: _Move | None, leaves: list[_Leaf], free: int) -> _Move | None:
        """The best of a move and of those that send both sides of leaves to other clusters."""
        for leaf in leaves:
            for pair, move in leaf.pairs.items():
                if move.gain > (self.no_gain if best is None else best.gain) and (free > 1 or pair[0] >= 0):
                    best = move
        return best

    def _first_best(self, gains: Array) -> int:
        """The first of the splits (t,) that gain most, but for rounding: equal data give equal trees."""
        return int((gains >= gains.max() - self.no_gain).argmax())

    def _switch(self, position: int, target: int) -> _Move:
        """The move of a side to a cluster that is known."""
        split, own = int(self.splits[position, target]), self.leaves[position].cluster
        gain, cluster = float(self.gains[position, target]), -1 if target == len(self.sizes) else target
        targets = (cluster, own) if split >= 0 else (own, cluster)
        return _Move(position, gain, split if split >= 0 else -1 - split, targets)

    def _bound(self) -> tuple[Array, Array]:
        """What each leaf gains at most by sending a side to each cluster, and by sending both away, to two of them.

        A side that leaves a cluster of weight m and mean μ for another gains at most the sum over its samples of
        m / (m − w) ‖φ − μ‖² − m' / (m' + w) ‖φ − μ'‖², w being the weight of the leaf; so does the leaf as a whole.
        """
        members, starts = self.order[0], [leaf.start for leaf in self.leaves]
        order = np.argsort(starts)
        at = np.repeat(order, np.diff([*np.array(starts)[order], len(members)]))
        own, weight = (np.array([getattr(leaf, name) for leaf in self.leaves]) for name in ("cluster", "weight"))
        sizes = np.where(self.sizes > 0, self.sizes, 1)[:, None]
        distances = self.squares[:, None] / sizes**2 + self.norms[members]
        distances -= 2 * self.dots[:, members] / (self.weight[members] * sizes)
        distances = np.maximum(distances, 0) * self.weight[members]
        mine = distances[own[at], np.arange(len(at))]
        distances *= (sizes / (sizes + weight))[:, at]
        distances[self.sizes == 0] = distances[own[at], np.arange(len(at))] = np.inf
        rest = self.sizes[own] - weight
        is_whole = rest <= _ROUNDING * self.sizes[own]
        away = self.sizes[own] / np.where(is_whole, self.sizes[own], rest)
        mine *= away[at]
        first = np.array(starts)[order]
        bounds = np.empty((len(self.leaves), len(sizes)))
        bounds[order] = np.add.reduceat(np.maximum(mine - distances, 0), first, axis=1).T
        apart = np.empty(len(self.leaves))
        apart[order] = np.add.reduceat(mine - distances.min(0), first)
        # Nothing is left behind of a leaf that is a whole cluster, and a side may leave as little as it likes.
        bounds[is_whole] = np.inf
        return bounds + self.no_gain, apart + self.no_gain

    def _prepare(self, leaf: _Leaf) -> None:
        """Find the valid splits of a leaf, and the sums over their sides that depend on its samples alone."""
        m, r = leaf.stop - leaf.start, self.features.shape[1]
        least = self.limits.min_samples_leaf
        products, square = self.features @ leaf.sum, float(leaf.sum @ leaf.sum)
        found: list[tuple[Any, ...]] = []
        for columns in _chunks(leaf.columns, m * r):
            order = self.order[columns, leaf.start : leaf.stop]
            values = self.values[columns[:, None], order]
            valid = values[:, :-1] < values[:, 1:]
            valid[:, : least - 1] = valid[:, m - least :] = False
            last = np.flatnonzero(np.pad(valid, ((0, 0), (0, 1))))
            if m > _MOST_SPLITS:
                # The last valid split of each quantile.
                quantile = last // m * _MOST_SPLITS + last % m * _MOST_SPLITS // m
                last = last[np.append(np.diff(quantile) > 0, True)]
            left = np.cumsum(self.weight[order], axis=1).ravel()[last]
            squares = np.zeros(order.shape)
            for part in _chunks(np.arange(r), len(columns) * m):
                features = self.features if len(part) == r else self.features[:, part]
                sums = np.take(features, order, axis=0)
                np.cumsum(sums, axis=1, out=sums)
                squares += np.einsum("ijk,ijk->ij", sums, sums)
            inside = squares.ravel()[last]
            outside = square - 2 * np.cumsum(products[order], axis=1).ravel()[last] + inside
            first = int(np.searchsorted(leaf.columns, columns[0])) * m
            found.append((first + last, left, leaf.weight - left, inside, np.maximum(outside, 0)))
        leaf.last, *sides = (np.concatenate(parts) for parts in zip(*found, strict=True))
        leaf.weights, leaf.squares = (sides[0], sides[1]), (sides[2], sides[3])

    def _product(self, leaf: _Leaf, cluster: int) -> Array:
        """Products (t,) of the sums of the left sides of all splits of a leaf with that of a cluster."""
        assert leaf.last is not None
        if cluster in leaf.products:
            return leaf.products[cluster]
        m, found = leaf.stop - leaf.start, np.empty(len(leaf.last))
        for columns in _chunks(np.arange(len(leaf.columns)), m):
            begin, end = np.searchsorted(leaf.last, [columns[0] * m, (columns[-1] + 1) * m])
            order = self.order[leaf.columns[columns], leaf.start : leaf.stop]
            sums = np.cumsum(self.dots[cluster][order], axis=1).ravel()
            found[begin:end] = sums[leaf.last[begin:end] - columns[0] * m]
        if self.keeps_products:
            leaf.products[cluster] = found
        return found

    def _evaluate(self, position: int, targets: Index, pairs: Collection[tuple[int, int]]) -> None:
        """Find what the best splits of a leaf gain that send a side to each target, and both sides to each pair."""
        leaf = self.leaves[position]
        if leaf.last is None:
            self._prepare(leaf)
        K, own, size, norm = len(self.sizes), leaf.cluster, self.sizes, self.squares
        rest, before, remaining = size[own] - leaf.weight, norm[own] / size[own], self.sums[own] - leaf.sum
        is_whole, is_known = rest <= _ROUNDING * size[own], not np.isnan(self.gains[position, K])
        # What the cluster loses with all samples of the leaf.
        emptied = (0.0 if is_whole else float(remaining @ remaining) / rest) - before
        self.gains[position, targets] = -np.inf
        if not is_known:
            self.gains[position, K] = self.apart[position] = self.excess[position] = -np.inf
        if not len(leaf.weights[0]):
            return
        # What the cluster loses with a side, and what a side is worth: by itself, the last one, and in other clusters.
        losses: list[Array] = []
        worth: list[dict[int, Array]] = []
        others = {int(other) for other in (*targets, *itertools.chain.from_iterable(pairs))} - {K}
        for side, (weight, square) in enumerate(zip(leaf.weights, leaf.squares, strict=True)):
            products = {other: self._product(leaf, other) for other in (own, *others)}
            if side:
                products = {other: self.sums[other] @ leaf.sum - left for other, left in products.items()}
            losses.append((norm[own] - 2 * products[own] + square) / (size[own] - weight) - before)
            worth.append(
                {
                    other: (norm[other] + 2 * products[other] + square) / (size[other] + weight)
                    - norm[other] / size[other]
                    for other in others
                }
            )
            if not is_known:
                worth[side][K] = square / weight
            for target in others.intersection(targets.tolist()).union([] if is_known else [K]):
                gains = losses[side] + worth[side][target]
                split = self._first_best(gains)
                if gains[split] > self.gains[position, target] + self.no_gain:
                    self.gains[position, target] = gains[split]
                    self.splits[position, target] = -1 - split if side else split
        both = [((a, b), ends) for a, b in pairs for ends in ((int(a), int(b)), (int(b), int(a)))]
        if not is_known:
            self.excess[position] = (emptied - losses[0] - losses[1]).max() + self.no_gain
            self.apart[position] = emptied + (worth[0][K] + worth[1][K]).max()
            # Of a whole cluster two new ones are no more than one.
            both += [] if is_whole else [((-1, -2), (-1, -2))]
        for pair, ends in both:
            gains = worth[0][max(ends[0], -1) % (K + 1)] + worth[1][max(ends[1], -1) % (K + 1)]
            split = self._first_best(gains)
            gain = emptied + float(gains[split])
            if pair not in leaf.pairs or gain > leaf.pairs[pair].gain + self.no_gain:
                leaf.pairs[pair] = _Move(position, gain, split, ends)

    def _make(self, move: _Move) -> None:
        """Split a leaf: its samples change their clusters, and two leaves take its place."""
        leaf = self.leaves[move.position]
        assert leaf.last is not None
        column, last = divmod(int(leaf.last[move.split]), leaf.stop - leaf.start)
        column = int(leaf.columns[column])
        order = self.order[:, leaf.start : leaf.stop]
        low, high = self.values[column, order[column, [last, last + 1]]]
        is_left = np.zeros(len(self.weight), dtype=bool)
        is_left[order[column, : last + 1]] = True
        on_left = is_left[order]
        order[:] = np.concatenate([order[on].reshape(len(order), -1) for on in (on_left, ~on_left)], axis=1)
        free = list(np.flatnonzero(self.sizes == 0))
        left, right = (int(free.pop(0)) if target < 0 else target for target in move.targets)
        # Where no value was missing, one that is goes with most.
        left_weight = leaf.weights[0][move.split]
        missing_left = column >= self.d or (not self.has_gaps[column] and left_weight > leaf.weight / 2)
        split = [int(self.feature[column]), _between(low, high), missing_left, len(self.nodes), len(self.nodes) + 1]
        self.nodes[leaf.node] = [*split, leaf.cluster, leaf.weight, move.gain]
        middle, depth = leaf.start + last + 1, leaf.depth + 1
        self._place_leaf(move.position, leaf.start, middle, left, depth)
        self._place_leaf(len(self.leaves), middle, leaf.stop, right, depth)
        moved = [child for child in (self.leaves[move.position], self.leaves[-1]) if child.cluster != leaf.cluster]
        self._add([leaf.cluster] * len(moved), moved, sign=-1)
        self._add([child.cluster for child in moved], moved)


def _chunks(items: Index, width: int) -> list[Index]:
    """Parts of the items, each of so many that the items times their width are not too many to work on at once."""
    size = max(1, _ELEMENTS // max(1, width))
    return [items[start : start + size] for start in range(0, len(items), size)]


def _between(low: float, high: float) -> float:
    """A threshold between two values: at least the lower one, and below the higher one."""
    if np.isinf(low) or np.isinf(high):
        # Missing values are on one side, all others on the other.
        return float(low if np.isinf(low) else high)
    middle = low / 2 + high / 2
    return float(middle if low <= middle < high else low)
