"""Maps of samples: a t-SNE, which keeps neighbours together, in plain NumPy; and principal components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.sparse import csr_array
from sklearn.decomposition import PCA

MOST_ROWS = 20_000
"""Maximum number of rows of the t-SNE; further ones are placed among them."""
_COMPONENTS = 50
# Equal weights of 15 neighbours give a map like that of a perplexity of 30, with a sixth of its edges.
_NEIGHBOURS = 15
_PLACED_BY = 5
# Iterations with early exaggeration, iterations without, and the factor of the exaggeration.
_EARLY, _LATE, _EXAGGERATION = 100, 150, 12.0
# Spacing of the grid: the kernel 1 / (1 + d²) is smooth on the scale of 1, so quadratic interpolation is accurate.
_SPACING = 0.5
_LONGEST_STEP = 5.0
_MOST_ELEMENTS = 20_000_000

Points = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Map:
    """Positions of samples, (n, 2), and names of the axes; None if only neighbourhoods are meaningful."""

    name: str
    points: NDArray[np.floating[Any]]
    axes: tuple[str, str] | None = None


def neighbour_map(X: NDArray[Any]) -> Points:
    """A t-SNE of X (n, d): points (n, 2) whose neighbours are those of the rows.

    Only neighbourhoods are meaningful: neither distances between clusters nor directions are. At most 20,000 rows are
    arranged, in their first 50 principal components, and the others placed among them. The same rows give the same
    map.
    """
    # Imported late, because it imports torch, which figures do not need.
    from pollux.geometry.neighbours import nearest

    X = np.nan_to_num(np.asarray(X))
    # Scaled, so that squares do not overflow.
    X = (X / (np.abs(X).max(initial=0) or 1)).astype(np.float32)
    if not X.shape[1]:
        return np.zeros((len(X), 2))
    n, generator = len(X), np.random.default_rng(0)
    rows = np.arange(n) if n <= MOST_ROWS else np.sort(generator.choice(n, MOST_ROWS, replace=False))
    count = min(_COMPONENTS, len(rows), X.shape[1])
    # If all rows are equal, explained variance ratios are 0 / 0.
    with np.errstate(invalid="ignore", divide="ignore"):
        X = PCA(count, random_state=0).fit(X[rows]).transform(X) if count else X
    start = np.zeros((len(rows), 2))
    start[:, : min(count, 2)] = X[rows, :2]
    # Small, so that forces decide rather than the initialisation; noise separates equal rows.
    start /= start[:, 0].std() or 1.0
    start = 1e-4 * (start + generator.normal(scale=0.01, size=start.shape))
    points = np.empty((n, 2))
    points[rows] = _arrange(nearest(X[rows], _NEIGHBOURS).numbers, start)
    others = np.setdiff1d(np.arange(n), rows)
    # Squared distances up to a constant for each sample, which does not change its neighbours.
    lengths = (X[rows] ** 2).sum(1)
    for part in np.array_split(others, -(-len(others) * len(rows) // _MOST_ELEMENTS)) if len(others) else []:
        near = np.argpartition(lengths - 2 * X[part] @ X[rows].T, _PLACED_BY, axis=1)[:, :_PLACED_BY]
        # The median, because the mean of neighbours in two clusters would lie between them.
        points[part] = np.median(points[rows[near]], axis=1)
    return points


def principal_map(X: NDArray[Any]) -> tuple[NDArray[np.float64], tuple[str, str]]:
    """The first two principal components of X (n, d): points (n, 2), and names of the axes.

    They are computed from at most 20,000 samples. With a single feature, the second coordinate is zero.
    """
    X = np.asarray(X)
    count = min(2, *X.shape)
    rows = X
    if len(X) > MOST_ROWS:
        rows = X[np.random.default_rng(0).choice(len(X), MOST_ROWS, replace=False)]
    components = PCA(count, random_state=0).fit(rows)
    points = np.zeros((len(X), 2))
    points[:, :count] = components.transform(X)
    shares = [*np.nan_to_num(components.explained_variance_ratio_), 0.0][:2]
    first, second = (f"principal component {k} ({share:.0%} of the variance)" for k, share in enumerate(shares, 1))
    return points, (first, second)


def _arrange(neighbours: NDArray[np.int64], y: Points) -> Points:
    """The t-SNE of a neighbour graph (n, k), initialised at y (n, 2), with the widest direction first.

    The repulsion of all pairs is a convolution of the points with the kernel on a grid, computed by Fourier transform.
    """
    n, k = neighbours.shape
    directed = csr_array((np.ones(n * k), neighbours.ravel(), k * np.arange(n + 1)), shape=(n, n))
    graph = (directed + directed.T).tocsr()
    weights = graph.data / max(graph.data.sum(), 1.0)
    owners, ends = np.repeat(np.arange(n), np.diff(graph.indptr)), graph.indices
    step, gains, kernels = np.zeros_like(y), np.ones_like(y), dict[int, tuple[Any, Any]]()
    for iteration in range(_EARLY + _LATE):
        exaggeration, momentum = (_EXAGGERATION, 0.5) if iteration < _EARLY else (1.0, 0.8)
        squared = ((y[owners] - y[ends]) ** 2).sum(1)
        pull = csr_array((exaggeration * weights / (1 + squared), ends, graph.indptr), shape=(n, n))
        attraction = pull.sum(1)[:, None] * y - pull @ y

        corner = y.min(0) - 1.5 * _SPACING
        side = int(fft.next_fast_len(int(np.ceil((y.max(0) - corner).max() / _SPACING)) + 3))
        if side not in kernels:
            apart = _SPACING * np.minimum(np.arange(2 * side), 2 * side - np.arange(2 * side))
            kernel = (1 / (1 + apart[:, None] ** 2 + apart**2)).astype(np.float32)
            kernels = {side: (fft.rfft2(kernel), fft.rfft2(kernel**2))}
        spread = _interpolate((y - corner) / _SPACING, side)
        charges = spread.T @ np.column_stack([np.ones(n), y])
        # Padded to twice the width, because the Fourier transform is periodic.
        wide = (2 * side, 2 * side)
        waves = fft.rfft2(charges.T.reshape(3, side, side).astype(np.float32), s=wide)
        kernel, squares = kernels[side]
        sums = fft.irfft2(np.concatenate([waves * squares, waves[:1] * kernel]), s=wide)[:, :side, :side]
        ones, x_and_y, total = np.split(spread @ sums.reshape(4, -1).T, [1, 3], axis=1)
        # All pairs, without those of a point with itself.
        repulsion = (ones * y - x_and_y) / max(float(total.sum()) - n, 1e-12)

        gradient = 4 * (attraction - repulsion)
        gains = np.maximum(np.where(gradient * step < 0, gains + 0.2, 0.8 * gains), 0.01)
        step = momentum * step - n / exaggeration * gains * gradient
        # Limit the step: a point with very many neighbours would be thrown out of the map.
        step *= np.minimum(1, _LONGEST_STEP / np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-300))
        y = y + step - (y + step).mean(0)
    return np.asarray(y @ np.linalg.svd(y, full_matrices=False)[2].T)


def _interpolate(places: Points, side: int) -> csr_array:
    """Interpolation weights (n, side²) of points (n, 2) for the nine grid nodes around each."""
    middle = np.rint(places)
    off = (places - middle)[:, :, None]
    weight = np.concatenate([off * (off - 1) / 2, 1 - off**2, off * (off + 1) / 2], axis=2)
    node = middle.astype(np.int64)[:, :, None] + np.array([-1, 0, 1])
    nodes = node[:, 0, :, None] * side + node[:, 1, None]
    shares = weight[:, 0, :, None] * weight[:, 1, None]
    n = len(places)
    return csr_array((shares.ravel(), nodes.ravel(), np.arange(0, 9 * n + 1, 9)), shape=(n, side * side))
