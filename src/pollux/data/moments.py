"""Moments of features whose samples are seen in parts: weights, means, deviations, ranges. Without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Numbers = NDArray[np.float64]

_PART_BYTES = 32_000_000


def parts_of(array: Any) -> Iterator[slice]:
    """Slices of the samples of an array (n, …) that take a bounded memory each as float64."""
    rows = max(1, _PART_BYTES // (8 * max(1, prod(array.shape[1:]))))
    return (slice(first, first + rows) for first in range(0, len(array), rows))


@dataclass(frozen=True)
class Moments:
    """Of each feature, in the shape of a sample: the weight of its values, their mean, sum of squares and range.

    ``square`` is the weighted sum of squared deviations from the mean, ``low`` and ``high`` are the least and the
    greatest value. A feature without any value has weight and mean 0, and low > high.
    """

    weight: _Numbers
    mean: _Numbers
    square: _Numbers
    low: _Numbers
    high: _Numbers

    @classmethod
    def of(cls, values: _Numbers, sample_weight: _Numbers | None = None) -> Moments:
        """Moments of samples (n, …), NaN where a value is missing; ``sample_weight`` is (n,)."""
        n, shape = len(values), values.shape[1:]
        missing = np.isnan(values)
        has_gaps = bool(missing.any())
        with np.errstate(over="ignore", invalid="ignore"):
            if sample_weight is None:
                share = None
                weight = np.full(shape, float(n)) if not has_gaps else n - missing.sum(0, dtype=np.float64)
            else:
                share = np.asarray(sample_weight, dtype=np.float64).reshape(-1, *[1] * len(shape))
                weight = np.broadcast_to(share, values.shape).sum(0, where=~missing)
            mean = _sum(values, share, missing if has_gaps else None) / _or_one(weight)
            deviation = values - mean
            if has_gaps:
                deviation[missing] = 0.0
            # The second look takes out what rounding left in the first.
            error = _sum(deviation, share, None) / _or_one(weight)
            mean = mean + error
            if share is not None:
                deviation *= np.sqrt(share)
            square = np.einsum("n...,n...->...", deviation, deviation) - weight * np.square(error)
            ends = (np.fmin, np.fmax) if has_gaps else (np.minimum, np.maximum)
            low, high = (
                end.reduce(values, axis=0, initial=limit) for end, limit in zip(ends, (np.inf, -np.inf), strict=True)
            )
        return cls(weight, _between(mean, low, high, weight), np.maximum(square, 0.0), low, high)

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Moments:
        """Those of no samples."""
        return cls.of(np.empty((0, *shape)))

    @classmethod
    def joined(cls, parts: Sequence[Moments]) -> Moments:
        """Those of features (d,) of several sets of features, one after the other."""
        each = zip(*((part.weight, part.mean, part.square, part.low, part.high) for part in parts), strict=True)
        return cls(*(np.concatenate(values) for values in each))

    def merged(self, other: Moments) -> Moments:
        """Moments of the values of both, by the formula of Chan, Golub and LeVeque."""
        weight = self.weight + other.weight
        share = other.weight / _or_one(weight)
        both = (self.weight > 0) & (other.weight > 0)
        with np.errstate(over="ignore", invalid="ignore"):
            difference = np.where(both, other.mean - self.mean, 0.0)
            mean = np.where(self.weight > 0, self.mean + difference * share, other.mean)
            square = self.square + other.square + np.square(difference) * (self.weight * share)
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Moments(weight, _between(mean, low, high, weight), square, low, high)

    def pooled(self, groups: int) -> Moments:
        """Moments of the values of features that follow each other taken together, in so many groups of equal size."""
        weight, mean, square, low, high = (
            values.reshape(groups, -1) for values in (self.weight, self.mean, self.square, self.low, self.high)
        )
        total = weight.sum(1)
        with np.errstate(over="ignore", invalid="ignore"):
            middle = (mean * weight).sum(1) / _or_one(total)
            within = (square + weight * np.square(mean - middle[:, None])).sum(1)
        return Moments(total, middle, within, low.min(1), high.max(1))

    def __getitem__(self, index: Any) -> Moments:
        """Moments of some of the features."""
        return Moments(self.weight[index], self.mean[index], self.square[index], self.low[index], self.high[index])

    @property
    def variance(self) -> _Numbers:
        """Of n, not n − 1; 0 where there are no values."""
        return self.square / _or_one(self.weight)

    @property
    def deviation(self) -> _Numbers:
        """The standard deviation; 0 where there are no values."""
        return np.sqrt(self.variance)

    @property
    def range(self) -> _Numbers:
        """From the least to the greatest value; not finite where there are none."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.high - self.low


def _sum(values: _Numbers, share: _Numbers | None, missing: NDArray[np.bool_] | None) -> _Numbers:
    weighted = values if share is None else values * share
    there: Any = True if missing is None else ~missing
    return np.asarray(weighted.sum(0, where=there), dtype=np.float64)


def _or_one(weight: _Numbers) -> _Numbers:
    """What to divide by; one where it is zero."""
    return np.where(weight > 0, weight, 1.0)


def _between(mean: _Numbers, low: _Numbers, high: _Numbers, weight: _Numbers) -> _Numbers:
    """The mean of a constant feature is its value, whatever rounding says."""
    return np.where(weight > 0, np.maximum(np.minimum(mean, high), low), mean)
