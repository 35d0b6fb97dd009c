"""Kernels between samples: x (n, d), y (m, d) → (n, m); features: x (n, d) → (n, r).

A kernel with features is used through them, and its matrix is never formed.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from pollux.geometry.distances import euclidean, sqeuclidean, unit
from pollux.geometry.pairwise import Pairwise

_MOST_MONOMIALS = 512
_BLOCK_ELEMENTS = 1 << 24


def linear(x: Tensor, y: Tensor) -> Tensor:
    """x · y."""
    return x @ y.T


def linear_features(x: Tensor) -> Tensor:
    """x itself."""
    return x


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """x · y / (‖x‖ ‖y‖)."""
    return unit(x) @ unit(y).T


def polynomial(x: Tensor, y: Tensor, *, degree: int = 3, gamma: float | None = None, coef0: float = 1) -> Tensor:
    """(γ x · y + c)^degree, γ = 1/d by default."""
    return (_scale(gamma, x) * (x @ y.T) + coef0) ** degree


def polynomial_has_features(d: int, *, degree: int = 3, gamma: float | None = None, coef0: float = 1) -> bool:
    """Whether the kernel is positive definite and has few monomials."""
    return coef0 >= 0 and (gamma is None or gamma >= 0) and math.comb(d + degree, degree) <= _MOST_MONOMIALS


def polynomial_features(x: Tensor, *, degree: int = 3, gamma: float | None = None, coef0: float = 1) -> Tensor:
    """Every monomial of the given degree in (√γ x, √c)."""
    n, d = x.shape
    augmented = torch.cat([x * math.sqrt(_scale(gamma, x)), x.new_full((n, 1), math.sqrt(coef0))], 1)
    monomials = torch.combinations(torch.arange(d + 1, device=x.device), degree, with_replacement=True)
    exponents = torch.nn.functional.one_hot(monomials, d + 1).sum(1).double()
    log_multiplicity = math.lgamma(degree + 1) - torch.lgamma(exponents + 1).sum(1)
    factors = (augmented[:, variable] for variable in monomials.T)
    return functools.reduce(torch.mul, factors) * (log_multiplicity / 2).exp().to(x)


def rbf(x: Tensor, y: Tensor, *, gamma: float | None = None) -> Tensor:
    """exp(−γ ‖x − y‖²); by default γ = 1 / (2 median²), the median being of the distances between samples."""
    gamma = median_gamma(x) if gamma is None else gamma
    return (-gamma * sqeuclidean(x, y)).exp()


def median_gamma(x: Tensor) -> float:
    """1 / (2 median²) for the median Euclidean distance between distinct rows of x."""
    distances = euclidean(x, x)
    pairs = torch.triu_indices(len(x), len(x), offset=1, device=x.device)
    distances = distances[pairs[0], pairs[1]]
    # Rows that are equal up to rounding say nothing about the scale.
    positive = distances[distances > 1e-6 * distances.max()] if len(distances) else distances
    # All rows equal: any bandwidth gives the constant kernel.
    return 1 / (2 * float(positive.median()) ** 2) if len(positive) else 1.0


def adapt_rbf(x: Tensor, *, gamma: float | None = None) -> dict[str, Any]:
    return {"gamma": median_gamma(x) if gamma is None else gamma}


def fourier(x: Tensor, y: Tensor, **parameters: Any) -> Tensor:
    """The rbf kernel through random Fourier features: their product is exp(−γ ‖x − y‖²) on average."""
    parameters = adapt_fourier(x, **parameters)
    return fourier_features(x, **parameters) @ fourier_features(y, **parameters).T


def fourier_features(x: Tensor, *, gamma: float | None = None, n_features: int = 512, random_state: int = 0) -> Tensor:
    assert gamma is not None, "the bandwidth is set by adapt_fourier"
    angles = x @ (_frequencies(x.shape[1], n_features, random_state) * math.sqrt(2 * gamma)).to(x)
    return torch.cat([angles.cos(), angles.sin()], 1) * math.sqrt(2 / n_features)


@functools.lru_cache(maxsize=8)
def _frequencies(d: int, n_features: int, random_state: int) -> Tensor:
    """Frequencies (d, n_features / 2) of a kernel of unit bandwidth, the same for every batch."""
    generator = torch.Generator().manual_seed(random_state)
    return torch.randn(d, n_features // 2, generator=generator, dtype=torch.float64)


def adapt_fourier(
    x: Tensor, *, gamma: float | None = None, n_features: int = 512, random_state: int = 0
) -> dict[str, Any]:
    if n_features < 2 or n_features % 2:
        raise ValueError(f"n_features of the fourier kernel must be even and positive, not {n_features}.")
    return {**adapt_rbf(x, gamma=gamma), "n_features": n_features, "random_state": random_state}


def laplacian(x: Tensor, y: Tensor, *, gamma: float | None = None) -> Tensor:
    """exp(−γ ‖x − y‖₁), γ = 1/d by default."""
    return (-_scale(gamma, x) * torch.cdist(x, y, p=1)).exp()


def sigmoid(x: Tensor, y: Tensor, *, gamma: float | None = None, coef0: float = 1) -> Tensor:
    """tanh(γ x · y + c), γ = 1/d by default."""
    return (_scale(gamma, x) * (x @ y.T) + coef0).tanh()


def chi2(x: Tensor, y: Tensor, *, gamma: float = 1) -> Tensor:
    """exp(−γ Σ (x − y)² / (x + y)) for non-negative samples, such as histograms."""
    if bool((x < 0).any()) or bool((y < 0).any()):
        raise ValueError("The chi2 kernel compares histograms: X must not hold negative values.")
    # In blocks of rows, because (n, m, d) at once would be large.
    rows = max(1, _BLOCK_ELEMENTS // max(1, y.numel()))
    return torch.cat([(-gamma * _chi2_distance(part, y)).exp() for part in torch.split(x, rows)])


def _chi2_distance(x: Tensor, y: Tensor) -> Tensor:
    total = x[:, None] + y
    return ((x[:, None] - y) ** 2 / torch.where(total > 0, total, 1)).sum(-1)


def _scale(gamma: float | None, x: Tensor) -> float:
    return 1 / x.shape[1] if gamma is None else gamma


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Pairwise("linear", "kernel", linear, linear_features),
        Pairwise("polynomial", "kernel", polynomial, polynomial_features, has_features=polynomial_has_features),
        Pairwise("rbf", "kernel", rbf, adapt_parameters=adapt_rbf),
        Pairwise("fourier", "kernel", fourier, fourier_features, adapt_parameters=adapt_fourier),
        Pairwise("laplacian", "kernel", laplacian),
        Pairwise("cosine", "kernel", cosine, unit),
        Pairwise("sigmoid", "kernel", sigmoid),
        Pairwise("chi2", "kernel", chi2),
    )
}
