"""Moments of features, merged over parts of the samples, and scaling units of features. Without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_Numbers = NDArray[np.float64]

_PART_BYTES = 32_000_000
# Features whose ranges differ by a smaller factor are of one kind, such as pixels.
_ALIKE = 3.0
# With few features, one whose range is this many times smaller has another unit; of many pixels some hardly vary.
_OTHER_UNIT, _MANY = 1_000.0, 64
_NEARLY_CONSTANT = 1e-12
# For embeddings: the minimum number of rows to decide, and the tolerance for their lengths.
_FEWEST_EMBEDDED, _UNIT_LENGTH = 20, 1e-2


def parts_of(array: Any) -> Iterator[slice]:
    """Slices of the samples of an array (n, …) with bounded memory each as float64."""
    rows = max(1, _PART_BYTES // (8 * max(1, prod(array.shape[1:]))))
    return (slice(first, first + rows) for first in range(0, len(array), rows))


@dataclass(frozen=True)
class Moments:
    """Total weight, mean, sum of squares, minimum and maximum of the values of each feature, in the shape of a sample.

    ``square`` is the weighted sum of squared deviations from the mean, ``low`` and ``high`` are minimum and maximum. A
    feature without any value has weight and mean 0, and low > high.
    """

    weight: _Numbers
    mean: _Numbers
    square: _Numbers
    low: _Numbers
    high: _Numbers

    @classmethod
    def of(cls, values: _Numbers, sample_weight: _Numbers | None = None) -> Moments:
        """Moments of samples (n, …), NaN for missing values; ``sample_weight`` is (n,)."""
        n, shape = len(values), values.shape[1:]
        missing = np.isnan(values)
        has_gaps = bool(missing.any())
        present: Any = ~missing if has_gaps else True
        with np.errstate(over="ignore", invalid="ignore"):
            if sample_weight is None:
                share: Any = None
                weight = np.full(shape, float(n)) if not has_gaps else n - missing.sum(0, dtype=np.float64)
            else:
                share = np.asarray(sample_weight, dtype=np.float64).reshape(-1, *[1] * len(shape))
                weight = np.broadcast_to(share, values.shape).sum(0, where=present)
            mean = np.sum(values if share is None else values * share, 0, where=present) / _or_one(weight)
            deviation = values - mean
            if has_gaps:
                deviation[missing] = 0.0
            # A second pass corrects the rounding error of the mean.
            error = np.sum(deviation if share is None else deviation * share, 0) / _or_one(weight)
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
        """Moments of no samples."""
        return cls.of(np.empty((0, *shape)))

    @classmethod
    def joined(cls, parts: Sequence[Moments]) -> Moments:
        """Concatenate the moments of several sets of features, to features (d,)."""
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
        """Moments of consecutive features pooled in ``groups`` groups of equal size."""
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
        """Variance with divisor n, not n − 1; 0 without values."""
        return self.square / _or_one(self.weight)

    @property
    def deviation(self) -> _Numbers:
        """The standard deviation; 0 without values."""
        return np.sqrt(self.variance)

    @property
    def range(self) -> _Numbers:
        """Maximum minus minimum; not finite without values."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.high - self.low

    @property
    def ranges_are_alike(self) -> bool:
        """Whether features seem to be of one kind, as pixels are."""
        ranges = self.range.ravel()
        ranges = np.sort(ranges[(ranges > 0) & np.isfinite(ranges)])
        if 0 < len(ranges) < _MANY and _OTHER_UNIT * ranges[0] < ranges[-1]:
            return False
        # The lower median.
        return not len(ranges) or bool(ranges[-1] <= _ALIKE * ranges[(len(ranges) - 1) // 2])


def _or_one(weight: _Numbers) -> _Numbers:
    """The weight as a divisor; one if it is zero."""
    return np.where(weight > 0, weight, 1.0)


def _between(mean: _Numbers, low: _Numbers, high: _Numbers, weight: _Numbers) -> _Numbers:
    """The mean clipped to the range: that of a constant feature is its value, without rounding error."""
    return np.where(weight > 0, np.maximum(np.minimum(mean, high), low), mean)


def looks_embedded(values: Any) -> bool:
    """Whether samples (n, d) look like vectors of an encoder: all have length one, except zero vectors.

    An empty text has a zero vector. Vectors of other lengths look like a table of standardised columns, in which the
    length of a row is informative.
    """
    values = np.asarray(values, dtype=np.float64)
    lengths = np.linalg.norm(values, axis=1) if values.size and np.isfinite(values).all() else np.empty(0)
    lengths = lengths[lengths > _UNIT_LENGTH]
    return len(lengths) >= _FEWEST_EMBEDDED and bool(np.abs(lengths - 1).max() < _UNIT_LENGTH)


class Units(NamedTuple):
    """x is mapped to (x − centre) / scale, and a missing x is replaced by ``fill``; in the shape of a sample, or ()."""

    centre: _Numbers
    scale: _Numbers
    fill: _Numbers


def learn_units(moments: Moments, scaling: str, *, within: Moments | None = None) -> Units:
    """Learn the units of features from their moments: one rule for arrays, table columns, files and streams.

    Parameters
    ----------
    moments : Moments
        Moments of the features that are centred, and scaled if each has its own scale.
    scaling : {"none", "auto", "standard", "global"}
        Each feature to mean zero and variance one ("standard"), or all by one number, so that their mean variance is
        one ("global"). "auto": "global" if the ranges of features are alike, as those of pixels are, else
        "standard". "none": values are not scaled; only missing ones are filled, by the means.
    within : Moments, optional
        Moments of the features whose mean variance "global" makes one, if these are others: pixels of a channel.
    """
    if scaling == "none":
        return Units(np.zeros_like(moments.mean), np.ones(()), moments.mean)
    if scaling == "auto":
        scaling = "global" if moments.ranges_are_alike else "standard"
    if scaling == "global":
        deviation = (within or moments).deviation
        # Scaled to unit size, so that squares do not overflow; 1 if nothing varies.
        largest = float(deviation.max(initial=0.0))
        scale = largest * float(np.sqrt(np.square(deviation / largest).mean())) if largest > 0 else 1.0
        return Units(moments.mean, np.asarray(scale), moments.mean)
    deviation = moments.deviation
    # Rounding gives a constant feature a variance near zero.
    is_constant = deviation <= _NEARLY_CONSTANT * np.maximum(np.abs(moments.low), np.abs(moments.high))
    return Units(moments.mean, np.where(is_constant, 1.0, deviation), moments.mean)
