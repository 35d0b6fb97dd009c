"""Means and deviations of columns whose parts are seen one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Of d columns, each (d,): how many values there are, their mean, sum of squared deviations, least and greatest."""

    count: NDArray[np.int64]
    mean: _Numbers
    square: _Numbers
    least: _Numbers
    greatest: _Numbers

    @classmethod
    def of(cls, values: _Numbers) -> Moments:
        """Those of numbers (d, n), NaN where one is missing."""
        d, n = values.shape
        count = n - np.isnan(values).sum(1)
        found = np.tile([0.0, 0.0, np.inf, -np.inf], (d, 1)).T
        with np.errstate(over="ignore", invalid="ignore"):
            if n and (count == n).all():
                found[:] = _moments(values)
            else:
                for column in np.flatnonzero(count):
                    found[:, column] = _moments(values[column : column + 1][:, ~np.isnan(values[column])])[:, 0]
        return cls(count, *found)

    def merged(self, other: Moments) -> Moments:
        """Those of the values of both, by the formula of Chan, Golub and LeVeque."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        both = (self.count > 0) & (other.count > 0)
        with np.errstate(over="ignore", invalid="ignore"):
            difference = np.where(both, other.mean - self.mean, 0.0)
            mean = np.where(self.count > 0, self.mean + difference * share, other.mean)
            square = self.square + other.square + difference**2 * self.count * share
        least, greatest = np.minimum(self.least, other.least), np.maximum(self.greatest, other.greatest)
        return Moments(count, mean, square, least, greatest)

    def pooled(self, groups: int) -> Moments:
        """Those of as many groups of columns that follow each other, the values of a group taken together."""
        count, mean, square, least, greatest = (
            values.reshape(groups, -1) for values in (self.count, self.mean, self.square, self.least, self.greatest)
        )
        total = count.sum(1)
        with np.errstate(over="ignore", invalid="ignore"):
            middle = (mean * count).sum(1) / np.maximum(total, 1)
            within = (square + count * np.square(mean - middle[:, None])).sum(1)
        return Moments(total, middle, within, least.min(1), greatest.max(1))

    @property
    def range(self) -> _Numbers:
        """From the least to the greatest, (d,); not finite where there are no values."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.greatest - self.least

    @property
    def deviation(self) -> _Numbers:
        """The standard deviation, (d,); 0 where there are no values."""
        return np.sqrt(self.square / np.maximum(self.count, 1))


def _moments(values: _Numbers) -> _Numbers:
    """(4, d) of numbers (d, n) that are all there."""
    mean = values.mean(1)
    return np.stack([mean, np.square(values - mean[:, None]).sum(1), values.min(1), values.max(1)])
