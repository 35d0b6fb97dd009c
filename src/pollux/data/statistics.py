"""Statistics of all samples, some rows at a time: means, ranges, principal axes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pollux.data.rows import Rows

_PART_ELEMENTS = 10_000_000
# Dimensions up to which the covariance matrix is made.
_MOST_COVARIANCES = 2_000
_OVERSAMPLED, _ITERATIONS = 10, 6
# Of the largest variance.
_NO_VARIANCE = 1e-10


class Moments(NamedTuple):
    """Of each feature: how many values are there (or their weight), their mean, their variance (of n, not n − 1) and
    their range."""

    present: Tensor
    mean: Tensor
    variance: Tensor
    low: Tensor
    high: Tensor


def parts(rows: Rows) -> Iterator[Tensor]:
    """All samples, some at a time: (b, …)."""
    for index in torch.split(torch.arange(len(rows)), _part_size(rows)):
        yield rows[index]


def _part_size(rows: Rows) -> int:
    return max(1, _PART_ELEMENTS // max(1, math.prod(rows.shape)))


def moments(rows: Rows, sample_weight: Tensor | None = None) -> Moments:
    """Moments of the features of samples, which may have gaps (NaN) and weights (n,); in float64."""
    present = torch.zeros(rows.shape, dtype=torch.float64)
    mean, square = torch.zeros_like(present), torch.zeros_like(present)
    low, high = torch.full_like(present, torch.inf), torch.full_like(present, -torch.inf)
    for part, weight in zip(parts(rows), _weights(rows, sample_weight), strict=True):
        values = part.cpu().double()
        is_there = ~values.isnan() * weight.view(-1, *[1] * (values.ndim - 1))
        number = is_there.sum(0)
        total = present + number
        share = number / _or_one(total)
        # By the means of parts, as sums of squares of values far from zero would lose their digits.
        own = (values.nan_to_num(0.0) * is_there).sum(0) / _or_one(number)
        deviation = torch.where(values.isnan(), 0.0, values - own)
        shift = own - mean
        square += (is_there * deviation.square()).sum(0) + shift.square() * (present * share)
        mean += shift * share
        present = total
        low = torch.minimum(low, values.nan_to_num(torch.inf, posinf=torch.inf, neginf=-torch.inf).amin(0))
        high = torch.maximum(high, values.nan_to_num(-torch.inf, posinf=torch.inf, neginf=-torch.inf).amax(0))
    # That of a constant feature is its value, whatever rounding says.
    mean = torch.where(present > 0, torch.maximum(torch.minimum(mean, high), low), mean)
    return Moments(present, mean, square / _or_one(present), low, high)


def _weights(rows: Rows, sample_weight: Tensor | None) -> Iterator[Tensor]:
    """The weights of the samples of each part; one where none are given."""
    weight = torch.ones(len(rows)) if sample_weight is None else sample_weight.cpu()
    yield from torch.split(weight.double(), _part_size(rows))


def _or_one(number: Tensor) -> Tensor:
    """What to divide by; one where it is zero."""
    return torch.where(number > 0, number, 1.0)


def principal_axes(rows: Rows, centre: Tensor, components: int, sample_weight: Tensor | None = None) -> Tensor:
    """The r directions (d, r) along which samples vary most, in falling order, at length one; in float64.

    They are at most as many as asked for: none along which nothing varies is among them, unless nothing varies at all.
    """
    d = math.prod(rows.shape)
    centre = centre.flatten().to(rows.device, rows.dtype)
    # Of unit size, squares can be summed whatever the units, in float32 too.
    unit = max(float((part.flatten(1) - centre).abs().max()) for part in parts(rows)) or 1.0
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
    out, as new samples would be projected on directions that are no matter of the data."""
    count = int((variances > _NO_VARIANCE * variances[-1]).sum())
    return _signed(axes[:, -max(1, min(components, count)) :].flip(1))


def _covariance_times(
    rows: Rows, centre: Tensor, unit: float, sample_weight: Tensor | None, axes: Tensor | None
) -> Tensor:
    """n times the covariance matrix of the samples in this unit, or its product with axes (d, r)."""
    total: Tensor | None = None
    for part, weight in zip(parts(rows), _weights(rows, sample_weight), strict=True):
        samples = (part.flatten(1) - centre) / unit
        if sample_weight is not None:
            samples = samples * weight.sqrt()[:, None].to(samples.device, samples.dtype)
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
