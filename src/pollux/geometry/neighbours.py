"""The nearest neighbours of each sample, in memory that grows with their number and not with its square."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pollux.data.rows import Rows, as_rows
from pollux.data.scaling import principal_axes

EXACT_UP_TO = 70_000
"""Samples among which neighbours are found exactly: comparing all pairs takes no longer than making a search index."""

SEARCHED_COMPONENTS = 50
"""Principal components that are searched, where samples have more dimensions."""

_TILE_ELEMENTS = 30_000_000
_MEASURED_ELEMENTS = 5_000_000
_DOUBLE_UP_TO = 20_000
# In float32 so many more are taken by products, which cancel, and chosen among by differences.
_SPARE = 8
# At least so many are searched for: the next call may want some more, and they cost nothing.
_FEWEST = 15


class Neighbours(NamedTuple):
    """For each of n samples the k nearest others: their Euclidean distances and their numbers (n, k), nearest first."""

    distances: NDArray[np.float64]
    numbers: NDArray[np.int64]


def nearest(X: Any, k: int, *, components: int | None = SEARCHED_COMPONENTS) -> Neighbours:
    """The k nearest others of each sample, or all others where there are fewer.

    Exact for up to ``EXACT_UP_TO`` samples; by approximate search (pynndescent) beyond. What is found is kept with the
    rows, for the next call.

    Parameters
    ----------
    X : array, sparse matrix, tensor or Rows of shape (n, …)
        The samples.
    k : int
        How many.
    components : int or None
        Search among so many principal components, where samples have more dimensions; distances are of all dimensions.
    """
    rows = as_rows(X)
    key = f"neighbours among {components} components"
    if key not in rows.known or rows.known[key].numbers.shape[1] < min(k, len(rows) - 1):
        rows.known[key] = _nearest(rows, max(k, _FEWEST), components)
    found: Neighbours = rows.known[key]
    return Neighbours(found.distances[:, :k], found.numbers[:, :k])


def _nearest(rows: Rows, k: int, components: int | None) -> Neighbours:
    n, k = len(rows), min(k, len(rows) - 1)
    if k < 1:
        return Neighbours(np.zeros((n, 0)), np.zeros((n, 0), dtype=np.int64))
    points = _points(rows, components)
    return _measured(rows, _exact(points, k) if n <= EXACT_UP_TO else _approximate(points, k))


def _points(rows: Rows, components: int | None) -> Tensor:
    """All samples as points (n, d), centred and of unit size, so that their squares can be summed in any unit."""
    dtype = torch.float64 if len(rows) <= _DOUBLE_UP_TO else torch.float32
    found = rows.moments()
    centre = torch.from_numpy(found.mean).flatten()
    unit = float(np.maximum(found.high - found.mean, found.mean - found.low).max()) or 1.0
    axes = None
    if components is not None and components < min(len(rows), math.prod(rows.shape)):
        axes = principal_axes(rows, centre, components).to(dtype)

    def point(samples: Tensor) -> Tensor:
        moved = (samples.flatten(1).cpu().to(dtype) - centre.to(dtype)) / unit
        return moved if axes is None else moved @ axes

    return torch.cat([point(samples) for samples in rows.parts()])


def _exact(points: Tensor, k: int, asked: Tensor | None = None) -> Tensor:
    """The numbers (m, k) of the nearest of the points that are asked for, from all pairs, a tile at a time."""
    n = len(points)
    asked = torch.arange(n) if asked is None else asked
    count = k if points.dtype == torch.float64 else min(k + _SPARE, n - 1)
    squares = points.square().sum(1)
    found = []
    for own in torch.split(asked, max(1, _TILE_ELEMENTS // n)):
        # ‖x‖² is the same for all candidates of a row, and left out.
        tile = torch.addmm(squares, points[own], points.T, alpha=-2)
        tile[torch.arange(len(own)), own] = torch.inf
        found.append(torch.topk(tile, count, largest=False).indices)
    index = torch.cat(found)
    return index if count == k else torch.from_numpy(_measured(Rows(points), index, asked).numbers[:, :k])


def _approximate(points: Tensor, k: int) -> Tensor:
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError(
            f"Neighbours among {len(points):,} rows are searched for by pynndescent: pip install 'pollux[graphs]', "
            f"or fit on at most {EXACT_UP_TO:,} rows."
        ) from error
    found, _ = NNDescent(points.numpy(), n_neighbors=k + 1, random_state=0).neighbor_graph
    index = torch.from_numpy(np.asarray(found, dtype=np.int64))
    # Mostly a sample comes first among its own neighbours; where many rows are equal, it may be further back or absent.
    own = index == torch.arange(len(index))[:, None]
    own[~own.any(1), -1] = True
    index = index[~own].view(len(index), k)
    # Where it finds too few, −1 stands for the others.
    missing = (index < 0).any(1).nonzero().flatten()
    if len(missing):
        index[missing] = _exact(points, k, missing)
    return index


def _measured(rows: Rows, index: Tensor, asked: Tensor | None = None) -> Neighbours:
    """Distances of samples, or of those asked for, from the differences of coordinates: products lose the digits of
    small ones."""
    n, k = index.shape
    own = torch.arange(n) if asked is None else asked
    size = max(1, _MEASURED_ELEMENTS // (k * math.prod(rows.shape)))
    parts_asked = zip(torch.split(own, size), torch.split(index, size), strict=True)
    distances = torch.cat([_lengths(rows[part], rows[others.flatten()]) for part, others in parts_asked])
    order = distances.argsort(dim=1, stable=True)
    return Neighbours(distances.gather(1, order).numpy(), index.gather(1, order).numpy())


def _lengths(samples: Tensor, others: Tensor) -> Tensor:
    """The distances (b, k) of samples (b, …) from their own others (b · k, …); of unit size, so that none overflows."""
    differences = others.flatten(1).view(len(samples), -1, samples[0].numel()) - samples.flatten(1)[:, None]
    unit = differences.abs().amax().clamp_min(torch.finfo(differences.dtype).tiny)
    lengths: Tensor = torch.linalg.vector_norm(differences / unit, dim=-1) * unit
    return lengths.double().cpu()
