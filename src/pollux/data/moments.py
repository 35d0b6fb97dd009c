"""Moments of features whose samples are seen in parts, and the units that features are scaled to. Without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_Numbers = NDArray[np.float64]

_PART_BYTES = 32_000_000
# Ranges that differ by less are those of features of one kind, such as pixels.
_ALIKE = 3.0
# Of fewer features, one whose range is so many times smaller has another unit; of many pixels some hardly vary.
_OTHER_UNIT, _MANY = 1_000.0, 64
_NEARLY_CONSTANT = 1e-12
# Of embeddings: how many rows show what they are, and how near to one their lengths are.
_FEWEST_EMBEDDED, _UNIT_LENGTH = 20, 1e-2


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
            # The second look takes out what rounding left in the first.
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

    @property
    def ranges_are_alike(self) -> bool:
        """Whether features seem to be of one kind, as pixels are."""
        ranges = self.range.ravel()
        ranges = np.sort(ranges[(ranges > 0) & np.isfinite(ranges)])
        if 0 < len(ranges) < _MANY and _OTHER_UNIT * ranges[0] < ranges[-1]:
            return False
        # The median is the lower of two values in the middle.
        return not len(ranges) or bool(ranges[-1] <= _ALIKE * ranges[(len(ranges) - 1) // 2])


def _or_one(weight: _Numbers) -> _Numbers:
    """What to divide by; one where it is zero."""
    return np.where(weight > 0, weight, 1.0)


def _between(mean: _Numbers, low: _Numbers, high: _Numbers, weight: _Numbers) -> _Numbers:
    """The mean of a constant feature is its value, whatever rounding says."""
    return np.where(weight > 0, np.maximum(np.minimum(mean, high), low), mean)


def looks_embedded(values: Any) -> bool:
    """Whether some samples (n, d) look like the vectors of an encoder: all have length one, but for those of nothing.

    An empty text has a vector of zeros. Vectors of other lengths look like a table of standardised columns, of which
    the length of a row tells something.
    """
    values = np.asarray(values, dtype=np.float64)
    lengths = np.linalg.norm(values, axis=1) if values.size and np.isfinite(values).all() else np.empty(0)
    lengths = lengths[lengths > _UNIT_LENGTH]
    return len(lengths) >= _FEWEST_EMBEDDED and bool(np.abs(lengths - 1).max() < _UNIT_LENGTH)


class Units(NamedTuple):
    """x becomes (x − centre) / scale, and a missing x is read as ``fill``; each in the shape of a sample, or ()."""

    centre: _Numbers
    scale: _Numbers
    fill: _Numbers


def learn_units(moments: Moments, scaling: str, *, within: Moments | None = None) -> Units:
    """The units of features of these moments: one rule for arrays, table columns, files and streams.

    Parameters
    ----------
    moments : Moments
        Of the features that are centred, and scaled where each has its own scale.
    scaling : {"none", "auto", "standard", "global"}
        Each feature to mean zero and variance one ("standard"), or all by one number, so that their mean variance is
        one ("global"). "auto": "global" where the ranges of features are alike, as those of pixels are, else
        "standard". "none": values as they are; only their gaps are filled, by the means.
    within : Moments, optional
        Of the features whose mean variance "global" makes one, where these are others: pixels of a channel.
    """
    if scaling == "none":
        return Units(np.zeros_like(moments.mean), np.ones(()), moments.mean)
    if scaling == "auto":
        scaling = "global" if moments.ranges_are_alike else "standard"
    if scaling == "global":
        deviation = (within or moments).deviation
        # Of unit size, squares can be summed whatever the units; 1 where nothing varies.
        largest = float(deviation.max(initial=0.0))
        scale = largest * float(np.sqrt(np.square(deviation / largest).mean())) if largest > 0 else 1.0
        return Units(moments.mean, np.asarray(scale), moments.mean)
    deviation = moments.deviation
    # Rounding leaves a constant feature with a variance near zero.
    is_constant = deviation <= _NEARLY_CONSTANT * np.maximum(np.abs(moments.low), np.abs(moments.high))
    return Units(moments.mean, np.where(is_constant, 1.0, deviation), moments.mean)
