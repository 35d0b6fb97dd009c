"""What is done to raw samples before a model and a geometry see them: gaps filled, one scale, fewer dimensions."""

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

# Dimensions up to which the covariance matrix is made.
_MOST_COVARIANCES = 2_000
_OVERSAMPLED, _ITERATIONS = 10, 6
# Of samples that are kept once more, scaled.
_FEW_NUMBERS = 10_000_000
# Of the largest variance.
_NO_VARIANCE = 1e-10


@dataclass(frozen=True, eq=False)
class FittedScaling:
    """A map of samples x to (x − centre) / scale, or to principal components of that.

    Parameters
    ----------
    centre : Tensor of the shape of a sample
        What is subtracted; it stands for a value that is missing, too.
    scale : Tensor of shape () or that of a sample
        What the rest is divided by.
    axes : Tensor of shape (d, r), optional
        Directions that the rest, as a vector, is projected on.
    fill : Tensor of the shape of a sample, optional
        What stands for a value that is missing, where that is not the centre.
    """

    centre: Tensor
    scale: Tensor
    axes: Tensor | None = None
    fill: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample after it."""
        return tuple(self.centre.shape) if self.axes is None else (self.axes.shape[1],)

    def __call__(self, samples: Tensor) -> Tensor:
        """Samples (n, …) as the model sees them."""
        known = (self.centre, self.scale, self.centre if self.fill is None else self.fill)
        centre, scale, fill = (value.to(samples.device, samples.dtype) for value in known)
        moved = (torch.where(samples.isnan(), fill, samples) - centre) / scale
        return moved if self.axes is None else moved.flatten(1) @ self.axes.to(samples.device, samples.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    @staticmethod
    def fit(
        X: Any, scaling: str = "auto", n_components: int | None = None, sample_weight: Tensor | None = None
    ) -> FittedScaling:
        """Learn the map from samples X (n, …), some of whose values may be NaN.

        Parameters
        ----------
        X : array, sparse matrix or tensor
            The samples.
        scaling : {"none", "auto", "standard", "global"}
            As for :func:`pollux.data.moments.learn_units`. Principal components are always those of centred values.
        n_components : int, optional
            Keep so many principal components, where samples have more dimensions; fewer where they vary along fewer.
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
        """The map for samples of these moments, wherever they are: in memory, or read in parts."""
        centre, scale, fill = (torch.as_tensor(values) for values in learn_units(moments, scaling))
        return FittedScaling(centre, scale, fill=fill if scaling == "none" else None)


class FittedTransformer:
    """A fitted transformer of scikit-learn as a map of samples.

    Parameters
    ----------
    transformer : transformer
        From samples (n, …) to samples (n, d), some at a time.
    example : array of shape (1, …)
        A sample that it can transform.
    """

    def __init__(self, transformer: Any, example: Any) -> None:
        self.transformer = transformer
        self.shape: tuple[int, ...] = tuple(self(example).shape[1:])

    def __call__(self, X: Any) -> Any:
        """Samples as the model sees them: an array or a sparse matrix."""
        return check_array(self.transformer.transform(X), accept_sparse="csr", allow_nd=True, ensure_min_samples=0)


def prepared(
    X: Any, scaling: FittedScaling | FittedTransformer | None, dtype: torch.dtype, device: torch.device | str
) -> Rows:
    """The rows of X after a scaling; few rows, and those that lose dimensions, are computed once."""
    if isinstance(X, Several):
        return SeveralRows(X, dtype, device)
    if isinstance(scaling, FittedTransformer):
        return Rows(scaling(X), dtype, device)
    is_small = not scipy.sparse.issparse(X) and math.prod(X.shape) <= _FEW_NUMBERS
    if scaling is None or (scaling.axes is None and not is_small):
        return Rows(X, dtype, device, scaling)
    return Rows(torch.cat(list(Rows(X, dtype, device, scaling).parts())), dtype, device)


def principal_axes(rows: Rows, centre: Tensor, components: int, sample_weight: Tensor | None = None) -> Tensor:
    """The r directions (d, r) along which samples vary most, in falling order, at length one; in float64.

    There are at most ``components`` of them: directions along which nothing varies are left out, unless nothing varies
    at all. All samples are read several times, some rows at a time.
    """
    d = math.prod(rows.shape)
    centre = centre.flatten().to(rows.device, rows.dtype)
    # Of unit size, squares can be summed whatever the units, in float32 too.
    unit = max(float((part.flatten(1) - centre).abs().max()) for part in rows.parts()) or 1.0
    products = functools.partial(_covariance_times, rows, centre, unit, sample_weight)
    if d <= _MOST_COVARIANCES:
        variances, axes = torch.linalg.eigh(products(None))
    else:
        # Subspace iteration: the covariance matrix is applied to a few directions, and never made.
        generator = torch.Generator().manual_seed(0)
        axes = torch.randn(d, min(d, components + _OVERSAMPLED), generator=generator, dtype=torch.float64)
        for _ in range(_ITERATIONS):
            axes = torch.linalg.qr(products(axes))[0]
        variances, turn = torch.linalg.eigh(axes.T @ products(axes))
        axes = axes @ turn
    # Variances that rounding alone explains are left out: new samples would be projected on what the data do not have.
    count = int((variances > _NO_VARIANCE * variances[-1]).sum())
    axes = axes[:, -max(1, min(components, count)) :].flip(1)
    # The largest coordinate of each is above zero, as solvers choose signs as they like.
    largest = axes.abs().argmax(0, keepdim=True)
    signed: Tensor = axes * torch.where(axes.gather(0, largest) < 0, -1.0, 1.0)
    # As they lie in a file: products with them then have the same bits.
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
