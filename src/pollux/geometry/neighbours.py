"""The nearest neighbours of each sample, in memory that grows linearly with the number of samples."""

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
"""Up to this many samples neighbours are exact, from all pairs; beyond, only the nearest cells are searched."""

SEARCHED_COMPONENTS = 50
"""Number of principal components to search, if samples have more dimensions."""

_TILE_ELEMENTS = 30_000_000
_MEASURED_ELEMENTS = 5_000_000
# In float32, take this many extra candidates by products, which cancel, and choose among them by differences.
_SPARE = 8
# Search for at least this many neighbours: they cost little, and the next call may need some more.
_FEWEST = 15
# Of the search by cells: points for each cell that k-means is fitted to, its iterations, about how many cells each
# point is compared with, and the largest cell as a multiple of the usual size.
_SAMPLE_OF_A_CELL, _ITERATIONS, _SEARCHED_CELLS, _LARGEST_CELL = 40, 5, 32, 4


class Neighbours(NamedTuple):
    """The k nearest neighbours of each of n samples: Euclidean distances and indices (n, k), nearest first."""

    distances: NDArray[np.float64]
    numbers: NDArray[np.int64]


def nearest(X: Any, k: int, *, components: int | None = SEARCHED_COMPONENTS) -> Neighbours:
    """Find the k nearest neighbours of each sample, or all others if there are fewer.

    Exact for up to ``EXACT_UP_TO`` samples; beyond, some are missed (see :func:`_search`). The result is cached with
    the rows, for the next call.

    Parameters
    ----------
    X : array, sparse matrix, tensor or Rows of shape (n, …)
        The samples.
    k : int
        Number of neighbours.
    components : int or None
        Search this many principal components, if samples have more dimensions; distances are of all dimensions.
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
    """All samples as points (n, d), centred and scaled to unit size, so that their squares do not overflow."""
    dtype = torch.float64 if len(rows) <= EXACT_UP_TO else torch.float32
    found = rows.moments()
    centre = torch.from_numpy(found.mean).flatten()
    unit = float(np.maximum(found.high - found.mean, found.mean - found.low).max()) or 1.0
    axes = None
    if components is not None and components < min(len(rows), math.prod(rows.shape)):
        axes = principal_axes(rows, centre, components).to(dtype)

    def point(samples: Tensor) -> Tensor:
        # Centred before rounding to ``dtype``: data may lie far from the origin.
        moved = ((samples.flatten(1).cpu().double() - centre) / unit).to(dtype)
        return moved if axes is None else moved @ axes

    return torch.cat([point(samples) for samples in rows.parts()])


def _compare_all(points: Tensor, k: int) -> Tensor:
    """Indices (n, k) of the nearest points, from all pairs, one tile at a time."""
    squares = points.square().sum(1)
    found = []
    tiles = torch.split(torch.arange(len(points)), max(1, _TILE_ELEMENTS // len(points)))
    for own in track(tiles, "comparing all, part"):
        # ‖x‖² is the same for all candidates of a row, so it is left out.
        tile = torch.addmm(squares, points[own], points.T, alpha=-2)
        tile[torch.arange(len(own)), own] = torch.inf
        found.append(torch.topk(tile, k, largest=False).indices)
    return torch.cat(found)


def _search(points: Tensor, k: int) -> Tensor:
    """Indices (n, k) of the nearest points among those of the nearest cells; 2 to 8 in a hundred are missed.

    The about √n cells come from k-means on a sample. All points of a cell are compared with the same candidates, so
    that the work is matrix products, on all of torch's threads.
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
    # At least the number of neighbours, with spare candidates to choose from.
    wanted = max(_SEARCHED_CELLS * math.isqrt(n), 4 * (k + _SPARE))
    # If many points are equal, a cell could hold most of them: it is split into pieces, which are cells of their own.
    largest = max(1, min(_LARGEST_CELL * math.isqrt(n), _TILE_ELEMENTS // wanted))
    pieces = [piece for some in members for piece in torch.split(some, largest) if len(piece)]
    sizes = torch.tensor([len(piece) for piece in pieces])
    centres = torch.stack([points[piece].mean(0) for piece in pieces])
    squares = points.square().sum(1)
    count = min(k + _SPARE, n - 1)
    index = torch.empty(n, count, dtype=torch.int64)
    for number, own in enumerate(track(pieces, "searching cell")):
        distance = (centres - centres[number]).square().sum(1)
        # A cell's own points come first, which excludes each point from its own neighbours.
        distance[number] = -1
        near = distance.argsort()
        enough = int((sizes[near].cumsum(0) < wanted).sum()) + 1
        others = torch.cat([pieces[other] for other in near[:enough].tolist()])
        tile = torch.addmm(squares[others], points[own], points[others].T, alpha=-2)
        tile.diagonal().fill_(torch.inf)
        index[own] = others[torch.topk(tile, count, largest=False).indices]
    return torch.from_numpy(_measured(Rows(points), index).numbers[:, :k])


def _nearest_centre(points: Tensor, centres: Tensor) -> Tensor:
    """The index (n,) of the nearest centre of each point."""
    squares = centres.square().sum(1)
    parts = torch.split(points, max(1, _TILE_ELEMENTS // len(centres)))
    return torch.cat([torch.addmm(squares, part, centres.T, alpha=-2).argmin(1) for part in parts])


def _measured(rows: Rows, index: Tensor) -> Neighbours:
    """Distances from differences of coordinates: products lose the digits of small distances."""
    n, k = index.shape
    size = max(1, _MEASURED_ELEMENTS // (k * math.prod(rows.shape)))
    parts = zip(torch.split(torch.arange(n), size), torch.split(index, size), strict=True)
    found = track(parts, "measuring distances, part", -(-n // size))
    distances = torch.cat([_lengths(rows[part], rows[others.flatten()]) for part, others in found])
    order = distances.argsort(dim=1, stable=True)
    return Neighbours(distances.gather(1, order).numpy(), index.gather(1, order).numpy())


def _lengths(samples: Tensor, others: Tensor) -> Tensor:
    """Distances (b, k) between samples (b, …) and their candidates (b · k, …); scaled, so that none overflows."""
    differences = others.flatten(1).view(len(samples), -1, samples[0].numel()) - samples.flatten(1)[:, None]
    unit = differences.abs().amax().clamp_min(torch.finfo(differences.dtype).tiny)
    lengths: Tensor = torch.linalg.vector_norm(differences / unit, dim=-1) * unit
    return lengths.double().cpu()
