"""Sums over the sides of all splits of a leaf, and the gains of its best splits: compiled, or by NumPy as a fallback.

A leaf has m samples, in the order of each of c columns, and t splits: number j · m + i is after sample i of column j.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pollux.native import load_compiled

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Order = NDArray[np.int32]

# Numbers that are processed at once.
ELEMENTS = 1 << 21


def square_sides(
    order: Order, columns: Order, last: Index, start: int, stop: int, features: Array, weight: Array, total: Array
) -> tuple[Array, Array]:
    """Weights (t,) of the left sides, and ‖s‖² (2, t) of both, where s is the sum of the features (n, r) of a side.

    Parameters
    ----------
    order : array of shape (d, n)
        The samples in the order of each column, those of the leaf from ``start`` to ``stop``.
    columns, last : array of shape (c,), (t,)
        The columns that may be split, and the splits.
    features, weight : array of shape (n, r), (n,)
        Those of the samples; features are multiplied by the weights.
    total : array of shape (r,)
        The sum of the features of the leaf.
    """
    left, squares = np.empty(len(last)), np.empty((2, len(last)))
    native = load_compiled()
    if native is not None:
        native.square_sides(order, columns, last, start, stop, features, weight, total, left, squares)
        return left, squares
    for samples, own, at in _parts(order, columns, last, start, stop, len(total)):
        sums = np.cumsum(features[samples], axis=1).reshape(-1, len(total))[at]
        left[own] = np.cumsum(weight[samples], axis=1).ravel()[at]
        squares[0, own], squares[1, own] = (np.einsum("ij,ij->i", side, side) for side in (sums, total - sums))
    return left, squares


def scan_splits(
    order: Order,
    columns: Order,
    last: Index,
    start: int,
    stop: int,
    left: Array,
    squares: Array,
    dots: Array,
    sizes: Array,
    norms: Array,
    totals: Array,
    own: int,
    weight: float,
    emptied: float,
    targets: Order,
    tolerance: float,
    pairs: bool,
    gains: Array,
    splits: Index,
) -> None:
    """Compute the gains of the best splits that send a side to each of C targets, and these splits, (K + 4,) each.

    A split is stored as 2 · number, plus one if the right side moves. Other clusters are not written. The last entries
    are those of a new cluster, of two new ones, of two of the targets if ``pairs``, and the largest excess of such a
    pair over the gains of each side while the other stays; the last of the splits is K · (target of the left side) +
    target of the right side. Of splits with equal gains, up to a tolerance, the first one is kept.

    Parameters
    ----------
    order, columns, last, start, stop, left, squares
        See :func:`square_sides`.
    dots : array of shape (n, K)
        Products of the features with the sums c of the clusters.
    sizes, norms, totals : array of shape (K,)
        Weights of the clusters, ‖c‖², and products of c with the sum of the leaf.
    own, weight : int, float
        The cluster and the weight of the leaf.
    emptied : float
        The gain of the cluster if it loses all samples of the leaf.
    targets : array of shape (C,)
        Other clusters, none of them empty.
    """
    native = load_compiled()
    if native is not None:
        leaf, clusters = (order, columns, last, start, stop, left, squares), (dots, sizes, norms, totals)
        native.scan_splits(*leaf, *clusters, own, weight, emptied, targets, tolerance, pairs, gains, splits)
        return
    C, K = len(targets), len(sizes)
    gains[targets] = gains[K:] = -np.inf
    splits[K:] = 0
    every = np.append(targets, own)
    before, size, norm = norms[every] / sizes[every], sizes[every], norms[every]

    def offer(kind: int, values: Array, first: int, sides: int) -> int:
        """Keep the first of the best values (t, sides), if it exceeds the known one; returns its index."""
        best = int((values >= values.max() - tolerance).argmax())
        if values.flat[best] <= gains[kind] + tolerance:
            return -1
        number, side = divmod(best, sides)
        gains[kind], splits[kind] = values.flat[best], 2 * (first + number) + (side if sides == 2 else 0)
        return best

    for samples, own_splits, at in _parts(order, columns, last, start, stop, C + 1):
        if not len(at):
            continue
        first, square = own_splits.start, squares[:, own_splits]
        sums = np.cumsum(dots[samples[..., None], every], axis=1).reshape(-1, C + 1)[at]
        # Of both sides (2, t): weights, products, the loss of the cluster, and the value of a side elsewhere.
        w = np.stack([left[own_splits], weight - left[own_splits]])
        products = np.stack([sums, totals[every] - sums])
        loss = (norm[-1] - 2 * products[..., -1] + square) / (size[-1] - w) - before[-1]
        worth = (norm[:-1] + 2 * products[..., :-1] + square[..., None]) / (size[:-1] + w[..., None]) - before[:-1]
        for kind, values in zip(
            [*targets, K], [*np.moveaxis(loss[..., None] + worth, -1, 0), loss + square / w], strict=True
        ):
            offer(kind, values.T, first, 2)
        offer(K + 1, emptied + (square / w).sum(0), first, 1)
        gains[K + 3] = max(gains[K + 3], float((emptied - loss.sum(0)).max()))
        if pairs and C > 1:
            # The best target of the right side, and the second best, in case the left side has the same.
            best, second = np.argsort(-worth[1], axis=1, kind="stable")[:, :2].T
            others = np.where(np.arange(C) == best[:, None], second[:, None], best[:, None])
            chosen = offer(K + 2, emptied + worth[0] + np.take_along_axis(worth[1], others, axis=1), first, C)
            if chosen >= 0:
                splits[K + 3] = K * targets[chosen % C] + targets[others.flat[chosen]]


def _parts(
    order: Order, columns: Order, last: Index, start: int, stop: int, width: int
) -> Iterator[tuple[Order, slice, Index]]:
    """Samples (c', m) in the order of a few columns, their splits among (t,), and the last samples among (c' · m,)."""
    m = stop - start
    step = max(1, ELEMENTS // (m * width))
    for first in range(0, len(columns), step):
        begin, end = np.searchsorted(last, [first * m, (first + step) * m])
        yield order[columns[first : first + step], start:stop], slice(begin, end), last[begin:end] - first * m
