"""Statistics of all samples, some rows at a time: means, ranges, principal axes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pollux.rows import Rows

_PART_ELEMENTS = 10_000_000
# Dimensions up to which the covariance matrix is made.
_MOST_COVARIANCES = 2_000
_OVERSAMPLED, _ITERATIONS = 10, 6


class Moments(NamedTuple):
    """Of each feature: how many values are there, their mean, their variance (of n, not n − 1) and their range."""

    present: Tensor
    mean: Tensor
    variance: Tensor
    low: Tensor
    high: Tensor


def parts(rows: Rows) -> Iterator[Tensor]:
    """All samples, some at a time: (b, …)."""
    size = max(1, _PART_ELEMENTS // max(1, math.prod(rows.shape)))
    for index in torch.split(torch.arange(len(rows)), size):
        yield rows[index]


def moments(rows: Rows) -> Moments:
    """Moments of the features of samples, which may have gaps (NaN); in float64."""
    present = torch.zeros(rows.shape, dtype=torch.float64)
    mean, square = torch.zeros_like(present), torch.zeros_like(present)
    low, high = torch.full_like(present, torch.inf), torch.full_like(present, -torch.inf)
    for part in parts(rows):
        values = part.cpu().double()
        is_there = ~values.isnan()
        number = is_there.sum(0)
        total = present + number
        # By the means of parts, as sums of squares of values far from zero would lose their digits.
        own = values.nan_to_num(0.0).sum(0) / number.clamp_min(1)
        deviation = torch.where(is_there, values - own, 0.0)
        shift = own - mean
        square += deviation.square().sum(0) + shift.square() * present * number / total.clamp_min(1)
        mean += shift * number / total.clamp_min(1)
        present = total
        low = torch.minimum(low, values.nan_to_num(torch.inf, posinf=torch.inf, neginf=-torch.inf).amin(0))
        high = torch.maximum(high, values.nan_to_num(-torch.inf, posinf=torch.inf, neginf=-torch.inf).amax(0))
    return Moments(present, mean, square / present.clamp_min(1), low, high)


def principal_axes(rows: Rows, centre: Tensor, components: int) -> Tensor:
    """The r directions (d, r) along which samples vary most, in falling order, at length one; in float64."""
    d = math.prod(rows.shape)
    centre = centre.flatten().to(rows.device, rows.dtype)
    if d <= _MOST_COVARIANCES:
        _, axes = torch.linalg.eigh(_covariance_times(rows, centre, None))
        return _signed(axes[:, -components:].flip(1))
    # Subspace iteration: the covariance matrix is applied to a few directions, and never made.
    generator = torch.Generator().manual_seed(0)
    axes = torch.randn(d, min(d, components + _OVERSAMPLED), generator=generator, dtype=torch.float64)
    for _ in range(_ITERATIONS):
        axes = torch.linalg.qr(_covariance_times(rows, centre, axes))[0]
    _, turn = torch.linalg.eigh(axes.T @ _covariance_times(rows, centre, axes))
    return _signed((axes @ turn)[:, -components:].flip(1))


def _covariance_times(rows: Rows, centre: Tensor, axes: Tensor | None) -> Tensor:
    """n times the covariance matrix of the samples, or its product with axes (d, r)."""
    total: Tensor | None = None
    for part in parts(rows):
        samples = part.flatten(1) - centre
        other = samples if axes is None else samples @ axes.to(samples.device, samples.dtype)
        product = (samples.T @ other).double().cpu()
        total = product if total is None else total.add_(product)
    assert total is not None
    return total


def _signed(axes: Tensor) -> Tensor:
    """The same axes, each with its largest coordinate above zero: solvers choose signs as they like."""
    largest = axes.abs().argmax(0, keepdim=True)
    return axes * torch.where(axes.gather(0, largest) < 0, -1.0, 1.0)
