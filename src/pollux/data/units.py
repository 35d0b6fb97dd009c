"""What numbers are centred and divided by: one rule for arrays, table columns, files and streams. Without torch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pollux.data.moments import Moments

# Ranges that differ by less are those of features of one kind, such as pixels.
_ALIKE = 3.0
_NEARLY_CONSTANT = 1e-12


class Units(NamedTuple):
    """x becomes (x − centre) / scale, and a missing x is read as ``fill``; each in the shape of a sample, or ()."""

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    fill: NDArray[np.float64]


def choose_scaling(scaling: str, ranges: ArrayLike) -> str:
    """The scaling, where "auto" leaves it to the ranges (d,) of features: "global" where they are alike."""
    if scaling != "auto":
        return scaling
    values = np.asarray(ranges, dtype=np.float64).ravel()
    values = np.sort(values[(values > 0) & np.isfinite(values)])
    # The median is the lower of two values in the middle.
    is_alike = not len(values) or bool(values[-1] <= _ALIKE * values[(len(values) - 1) // 2])
    return "global" if is_alike else "standard"


def learn_units(moments: Moments, scaling: str, *, within: Moments | None = None) -> Units:
    """The units of features of these moments.

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
    scaling = choose_scaling(scaling, moments.range)
    if scaling == "none":
        return Units(np.zeros_like(moments.mean), np.ones(()), moments.mean)
    if scaling == "global":
        one = root_mean_square((within or moments).deviation)
        return Units(moments.mean, np.asarray(one), moments.mean)
    deviation = moments.deviation
    # Rounding leaves a constant feature with a variance near zero.
    is_constant = deviation <= _NEARLY_CONSTANT * np.maximum(np.abs(moments.low), np.abs(moments.high))
    return Units(moments.mean, np.where(is_constant, 1.0, deviation), moments.mean)


def root_mean_square(deviations: ArrayLike) -> float:
    """The number that makes the mean variance one; 1 where nothing varies."""
    values = np.asarray(deviations, dtype=np.float64)
    # Of unit size, squares can be summed whatever the units.
    largest = float(values.max(initial=0.0))
    return largest * float(np.sqrt(np.square(values / largest).mean())) if largest > 0 else 1.0
