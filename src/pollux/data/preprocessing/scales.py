"""What numbers are divided by: each column by its own deviation, or all by one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

SCALINGS = ("standard", "auto", "global", "none")
"""Each column by its own standard deviation; by one number where ranges are alike; always by one; not at all."""

# Ranges that differ by less are those of columns of one kind, such as pixels.
_ALIKE = 3.0


def decided(scaling: str, ranges: ArrayLike) -> str:
    """The scaling, where "auto" leaves it to the ranges (d,) of the columns."""
    if scaling != "auto":
        return scaling
    values = np.asarray(ranges, dtype=np.float64)
    values = np.sort(values[(values > 0) & np.isfinite(values)])
    # The median is the lower of two values in the middle.
    is_alike = not len(values) or bool(values[-1] <= _ALIKE * values[(len(values) - 1) // 2])
    return "global" if is_alike else "standard"


def scales(scaling: str, deviations: Sequence[float], ranges: ArrayLike) -> tuple[float, ...]:
    """What each of d columns is divided by, from their standard deviations, which are not zero, and ranges, (d,)."""
    scaling = decided(scaling, ranges)
    if scaling == "standard":
        return tuple(deviations)
    return (1.0 if scaling == "none" else root_mean_square(deviations),) * len(deviations)


def root_mean_square(deviations: ArrayLike) -> float:
    """The number that makes the mean variance one; 1 where nothing varies."""
    values = np.asarray(deviations, dtype=np.float64)
    # Of unit size, squares can be summed whatever the units.
    largest = float(values.max(initial=0.0))
    return largest * float(np.sqrt(np.square(values / largest).mean())) if largest > 0 else 1.0
