"""Preprocessing of samples for model and geometry: missing values, scaling, principal components."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields
from typing import Any

import scipy.sparse
import torch
from sklearn.utils import check_array
from torch import Tensor

from pollux.data.moments import Moments, learn_units
from pollux.data.rows import Rows, Several, SeveralRows

# Up to this many dimensions the covariance matrix is computed.
_MOST_COVARIANCES = 2_000
_OVERSAMPLED, _ITERATIONS = 10, 6
# Maximum size of scaled samples that are stored.
_FEW_NUMBERS = 10_000_000
# Relative to the largest variance.
_NO_VARIANCE = 1e-10


@dataclass(frozen=True, eq=False)
class FittedScaling:
    """A map of samples x to (x − centre) / scale, or to principal components of that.

    Parameters
    ----------
    centre : Tensor of the shape of a sample
        What is subtracted; it also replaces missing values.
    scale : Tensor of shape () or that of a sample
        What the difference is divided by.
    axes : Tensor of shape (d, r), optional
        Directions on which the scaled samples, as vectors, are projected.
    fill : Tensor of the shape of a sample, optional
        What replaces missing values, if that is not the centre.
    """

    centre: Tensor
    scale: Tensor
    axes: Tensor | None = None
    fill: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample after scaling."""
        return tuple(self.centre.shape) if self.axes is None else (self.axes.shape[1],)

    def __call__(self, samples: Tensor) -> Tensor:
        """Scale samples (n, …)."""
        known = (self.centre, self.scale, self.centre if self.fill is None else self.fill)
        centre, scale, fill = (value.to(samples.device, samples.dtype) for value in known)
        # In place, because further copies of large samples take time and memory.
        moved = torch.where(samples.isnan(), fill, samples).sub_(centre).div_(scale)
        return moved if self.axes is None else moved.flatten(1) @ self.axes.to(samples.device, samples.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    @staticmethod
    def fit(
        X: Any, scaling: str = "auto", n_components: int | None = None, sample_weight: Tensor | None = None
    ) -> FittedScaling:
        """Learn the scaling from samples X (n, …), which may contain NaN.

        Parameters
        ----------
        X : array, sparse matrix or tensor
            The samples.
        scaling : {"none", "auto", "standard", "global"}
            As for :func:`pollux.data.moments.learn_units`. Principal components are always those of centred values.
        n_components : int, optional
            Number of principal components, if samples have more dimensions; fewer if they vary along fewer.
        sample_weight : Tensor of shape (n,), optional
            Weights of the samples.
        """
        moments = Rows(X, torch.float64).moments(sample_weight)
        fitted = FittedScaling.of(moments, scaling)
        if n_components is None or n_components >= math.prod(fitted.centre.shape):
            return fitted
        mean = torch.from_numpy(moments.mean)
        mapped = Rows(X, torch.float64, prepare=FittedScaling(mean, fitted.scale))
        axes = principal_axes(mapped, torch.zeros_like(mean), n_components, sample_weight)
        return FittedScaling(mean, fitted.scale, axes)

    @staticmethod
    def of(moments: Moments, scaling: str = "auto") -> FittedScaling:
        """The scaling for samples with these moments, in memory or read in parts."""
        centre, scale, fill = (torch.as_tensor(values) for values in learn_units(moments, scaling))
        return FittedScaling(centre, scale, fill=fill if scaling == "none" else None)


class FittedTransformer:
    """A fitted transformer of scikit-learn as a map of samples.

    Parameters
    ----------
    transformer : transformer
        Maps samples (n, …) to samples (n, d), in parts.
    example : array of shape (1, …)
        A sample that it can transform.
    """

    def __init__(self, transformer: Any, example: Any) -> None:
        self.transformer = transformer
        self.shape: tuple[int, ...] = tuple(self(example).shape[1:])

    def __call__(self, X: Any) -> Any:
        """Transform samples; returns an array or a sparse matrix."""
        return check_array(self.transformer.transform(X), accept_sparse="csr", allow_nd=True, ensure_min_samples=0)


def prepared(
    X: Any, scaling: FittedScaling | FittedTransformer | None, dtype: torch.dtype, device: torch.device | str
) -> Rows:
    """The rows of X after scaling; small data, and projections to fewer dimensions, are computed once and stored."""
    if isinstance(X, Several):
        return SeveralRows(X, dtype, device)
    if isinstance(scaling, FittedTransformer):
        return Rows(scaling(X), dtype, device)
    is_small = not scipy.sparse.issparse(X) and math.prod(X.shape) <= _FEW_NUMBERS
    if scaling is None or (scaling.axes is None and not is_small):
        return Rows(X, dtype, device, scaling)
    return Rows(torch.cat(list(Rows(X, dtype, device, scaling).parts())), dtype, device)


def principal_axes(rows: Rows, centre: Tensor, components: int, sample_weight: Tensor | None = None) -> Tensor:
    """The r leading principal axes (d, r) of samples, by falling variance, of length one; in float64.

    There are at most ``components`` of them: directions without variance are left out, unless there is no variance at
    all. All samples are read several times, in parts.
    """
    d = math.prod(rows.shape)
    centre = centre.flatten().to(rows.device, rows.dtype)
    # Scaled to unit size, so that squares do not overflow, in float32 too.
    unit = max(float((part.flatten(1) - centre).abs().max()) for part in rows.parts()) or 1.0
    products = functools.partial(_covariance_times, rows, centre, unit, sample_weight)
    if d <= _MOST_COVARIANCES:
        variances, axes = torch.linalg.eigh(products(None))
    else:
        # Subspace iteration: the covariance matrix is applied to a few directions, and never formed.
        generator = torch.Generator().manual_seed(0)
        axes = torch.randn(d, min(d, components + _OVERSAMPLED), generator=generator, dtype=torch.float64)
        for _ in range(_ITERATIONS):
            axes = torch.linalg.qr(products(axes))[0]
        variances, turn = torch.linalg.eigh(axes.T @ products(axes))
        axes = axes @ turn
    # Directions whose variance is rounding error are left out: they would be noise for new samples.
    count = int((variances > _NO_VARIANCE * variances[-1]).sum())
    axes = axes[:, -max(1, min(components, count)) :].flip(1)
    # Fix the signs, which solvers choose arbitrarily: the largest coordinate of each axis is positive.
    largest = axes.abs().argmax(0, keepdim=True)
    signed: Tensor = axes * torch.where(axes.gather(0, largest) < 0, -1.0, 1.0)
    # Contiguous as after loading from a file, so that products with them have the same bits.
    return signed.contiguous()


def _covariance_times(
    rows: Rows, centre: Tensor, unit: float, sample_weight: Tensor | None, axes: Tensor | None
) -> Tensor:
    """n times the covariance matrix of the samples in this unit, or its product with axes (d, r)."""
    total: Tensor | None = None
    first = 0
    for part in rows.parts():
        samples = (part.flatten(1) - centre) / unit
        if sample_weight is not None:
            weight = sample_weight[first : first + len(part)].double().sqrt()[:, None]
            samples = samples * weight.to(samples.device, samples.dtype)
        first += len(part)
        other = samples if axes is None else samples @ axes.to(samples.device, samples.dtype)
        product = (samples.T @ other).double().cpu()
        total = product if total is None else total.add_(product)
    assert total is not None
    return total
