"""Principal axes of all samples, some rows at a time."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from pollux.data.rows import Rows

# Dimensions up to which the covariance matrix is made.
_MOST_COVARIANCES = 2_000
_OVERSAMPLED, _ITERATIONS = 10, 6
# Of the largest variance.
_NO_VARIANCE = 1e-10


def principal_axes(rows: Rows, centre: Tensor, components: int, sample_weight: Tensor | None = None) -> Tensor:
    """The r directions (d, r) along which samples vary most, in falling order, at length one; in float64.

    There are at most ``components`` of them: directions along which nothing varies are left out, unless nothing varies
    at all.
    """
    d = math.prod(rows.shape)
    centre = centre.flatten().to(rows.device, rows.dtype)
    # Of unit size, squares can be summed whatever the units, in float32 too.
    unit = max(float((part.flatten(1) - centre).abs().max()) for part in rows.parts()) or 1.0
    products = functools.partial(_covariance_times, rows, centre, unit, sample_weight)
    if d <= _MOST_COVARIANCES:
        variances, axes = torch.linalg.eigh(products(None))
        return _leading(variances, axes, components)
    # Subspace iteration: the covariance matrix is applied to a few directions, and never made.
    generator = torch.Generator().manual_seed(0)
    axes = torch.randn(d, min(d, components + _OVERSAMPLED), generator=generator, dtype=torch.float64)
    for _ in range(_ITERATIONS):
        axes = torch.linalg.qr(products(axes))[0]
    variances, turn = torch.linalg.eigh(axes.T @ products(axes))
    return _leading(variances, axes @ turn, components)


def _leading(variances: Tensor, axes: Tensor, components: int) -> Tensor:
    """The axes (d, r) of the largest of variances that rise; those of variances that rounding alone explains are left
    out, as new samples would be projected on directions that the data do not have."""
    count = int((variances > _NO_VARIANCE * variances[-1]).sum())
    return _signed(axes[:, -max(1, min(components, count)) :].flip(1))


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


def _signed(axes: Tensor) -> Tensor:
    """The same axes, each with its largest coordinate above zero: solvers choose signs as they like."""
    largest = axes.abs().argmax(0, keepdim=True)
    signed = axes * torch.where(axes.gather(0, largest) < 0, -1.0, 1.0)
    # As they lie in a file: products with them then have the same bits.
    return signed.contiguous()
