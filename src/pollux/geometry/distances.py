"""Distances between samples: x (n, d), y (m, d) → (n, m)."""

from __future__ import annotations

import torch
from torch import Tensor

from pollux.geometry.pairwise import Pairwise

_FEW_COLUMNS = 32


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """‖x − y‖."""
    if x.shape[1] <= _FEW_COLUMNS:
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    # With many columns a matrix product is far faster; centred and in float64 it is accurate enough.
    centre = x.mean(0)
    x64, y64 = (x - centre).double(), (y - centre).double()
    squares = (x64**2).sum(1)[:, None] + (y64**2).sum(1) - 2 * (x64 @ y64.T)
    distances = squares.clamp_min(0).sqrt().to(x.dtype)
    return distances.fill_diagonal_(0) if y is x else distances


def sqeuclidean(x: Tensor, y: Tensor) -> Tensor:
    """‖x − y‖². Not a metric: the triangle inequality fails."""
    return euclidean(x, y) ** 2


def manhattan(x: Tensor, y: Tensor) -> Tensor:
    """Σ |x − y|."""
    return torch.cdist(x, y, p=1)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """1 − x · y / (‖x‖ ‖y‖), in [0, 2]; a zero row is at distance 1 from every other."""
    distances = (1 - unit(x) @ unit(y).T).clamp(0, 2)
    return distances.fill_diagonal_(0) if y is x else distances


def unit(x: Tensor) -> Tensor:
    """Rows scaled to length one; zero rows stay zero."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(norms > 0, norms, 1)


DISTANCES = {
    distance.name: distance
    for distance in (
        Pairwise("euclidean", "distance", euclidean),
        Pairwise("sqeuclidean", "distance", sqeuclidean),
        Pairwise("manhattan", "distance", manhattan),
        Pairwise("cosine", "distance", cosine),
    )
}
