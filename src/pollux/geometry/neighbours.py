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
from pollux.progress import Stage, track

EXACT_UP_TO = 20_000
"""Samples among which neighbours are found exactly, from all pairs; of more, those of the nearest cells are."""

SEARCHED_COMPONENTS = 50
"""Principal components that are searched, where samples have more dimensions."""

_TILE_ELEMENTS = 30_000_000
_MEASURED_ELEMENTS = 5_000_000
# In float32 so many more are taken by products, which cancel, and chosen among by differences.
_SPARE = 8
# At least so many are searched for: the next call may want some more, and they cost nothing.
_FEWEST = 15
# Of a search: points for each cell that k-means sees, its iterations, about how many cells' points a point is compared
# with, and how many times the usual points a cell may have.
_SAMPLE_OF_A_CELL, _ITERATIONS, _SEARCHED_CELLS, _LARGEST_CELL = 40, 5, 32, 4


class Neighbours(NamedTuple):
    """For each of n samples the k nearest others: their Euclidean distances and their numbers (n, k), nearest first."""

    distances: NDArray[np.float64]
    numbers: NDArray[np.int64]


def nearest(X: Any, k: int, *, components: int | None = SEARCHED_COMPONENTS) -> Neighbours:
    """The k nearest others of each sample, or all others where there are fewer.

    Exact for up to ``EXACT_UP_TO`` samples; beyond, some are missed (see :func:`_search`). What is found is kept with
    the rows, for the next call.

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
    with Stage(f"neighbours of {n:,} rows"):
        points = _points(rows, components)
        return _measured(rows, _compare_all(points, k) if n <= EXACT_UP_TO else _search(points, k))


def _points(rows: Rows, components: int | None) -> Tensor:
    """All samples as points (n, d), centred and of unit size, so that their squares can be summed in any unit."""
    dtype = torch.float64 if len(rows) <= EXACT_UP_TO else torch.float32
    found = rows.moments()
    centre = torch.from_numpy(found.mean).flatten()
    unit = float(np.maximum(found.high - found.mean, found.mean - found.low).max()) or 1.0
    axes = None
    if components is not None and components < min(len(rows), math.prod(rows.shape)):
        axes = principal_axes(rows, centre, components).to(dtype)

    def point(samples: Tensor) -> Tensor:
        # Centred before digits are given up: data may lie far from the origin.
        moved = ((samples.flatten(1).cpu().double() - centre) / unit).to(dtype)
        return moved if axes is None else moved @ axes

    return torch.cat([point(samples) for samples in rows.parts()])


def _compare_all(points: Tensor, k: int) -> Tensor:
    """The numbers (n, k) of what is nearest, from all pairs, a tile at a time."""
    squares = points.square().sum(1)
    found = []
    tiles = torch.split(torch.arange(len(points)), max(1, _TILE_ELEMENTS // len(points)))
    for own in track(tiles, "comparing all, part"):
        # ‖x‖² is the same for all candidates of a row, and left out.
        tile = torch.addmm(squares, points[own], points.T, alpha=-2)
        tile[torch.arange(len(own)), own] = torch.inf
        found.append(torch.topk(tile, k, largest=False).indices)
    return torch.cat(found)


def _search(points: Tensor, k: int) -> Tensor:
    """The numbers (n, k) of what is nearest among the points of the nearest cells; 2 to 8 in a hundred are missed.

    About √n cells are those of k-means in a sample. All points of a cell look at the same others, so that the work is
    matrix products, on the threads that torch has.
    """
    n = len(points)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    sample = points[order[: _SAMPLE_OF_A_CELL * math.isqrt(n)]]
    centres = sample[: math.isqrt(n)]
    for _ in range(_ITERATIONS):
        cell = _nearest_centre(sample, centres)
        sizes = torch.bincount(cell, minlength=len(centres))[:, None]
        sums = torch.zeros_like(centres).index_add_(0, cell, sample)
        centres = torch.where(sizes > 0, sums / sizes.clamp_min(1), centres)
    cell = _nearest_centre(points, centres)
    members = torch.split(cell.argsort(stable=True), torch.bincount(cell, minlength=len(centres)).tolist())
    # No fewer than are asked for, with some to choose among.
    wanted = max(_SEARCHED_CELLS * math.isqrt(n), 4 * (k + _SPARE))
    # Where many points are equal, a cell could hold most of them: its pieces look at each other as other cells do.
    largest = max(1, min(_LARGEST_CELL * math.isqrt(n), _TILE_ELEMENTS // wanted))
    pieces = [piece for some in members for piece in torch.split(some, largest) if len(piece)]
    sizes = torch.tensor([len(piece) for piece in pieces])
    centres = torch.stack([points[piece].mean(0) for piece in pieces])
    squares = points.square().sum(1)
    count = min(k + _SPARE, n - 1)
    index = torch.empty(n, count, dtype=torch.int64)
    for number, own in enumerate(track(pieces, "searching cell")):
        distance = (centres - centres[number]).square().sum(1)
        # Its own points come first, so that none of them is its own neighbour.
        distance[number] = -1
        near = distance.argsort()
        enough = int((sizes[near].cumsum(0) < wanted).sum()) + 1
        others = torch.cat([pieces[other] for other in near[:enough].tolist()])
        tile = torch.addmm(squares[others], points[own], points[others].T, alpha=-2)
        tile.diagonal().fill_(torch.inf)
        index[own] = others[torch.topk(tile, count, largest=False).indices]
    return torch.from_numpy(_measured(Rows(points), index).numbers[:, :k])


def _nearest_centre(points: Tensor, centres: Tensor) -> Tensor:
    """The number (n,) of the centre that is nearest to each point."""
    squares = centres.square().sum(1)
    parts = torch.split(points, max(1, _TILE_ELEMENTS // len(centres)))
    return torch.cat([torch.addmm(squares, part, centres.T, alpha=-2).argmin(1) for part in parts])


def _measured(rows: Rows, index: Tensor) -> Neighbours:
    """Distances of samples from the differences of coordinates: products lose the digits of small ones."""
    n, k = index.shape
    size = max(1, _MEASURED_ELEMENTS // (k * math.prod(rows.shape)))
    parts = zip(torch.split(torch.arange(n), size), torch.split(index, size), strict=True)
    found = track(parts, "measuring distances, part", -(-n // size))
    distances = torch.cat([_lengths(rows[part], rows[others.flatten()]) for part, others in found])
    order = distances.argsort(dim=1, stable=True)
    return Neighbours(distances.gather(1, order).numpy(), index.gather(1, order).numpy())


def _lengths(samples: Tensor, others: Tensor) -> Tensor:
    """The distances (b, k) of samples (b, …) from their own others (b · k, …); of unit size, so that none overflows."""
    differences = others.flatten(1).view(len(samples), -1, samples[0].numel()) - samples.flatten(1)[:, None]
    unit = differences.abs().amax().clamp_min(torch.finfo(differences.dtype).tiny)
    lengths: Tensor = torch.linalg.vector_norm(differences / unit, dim=-1) * unit
    return lengths.double().cpu()
