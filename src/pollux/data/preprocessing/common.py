"""What tables and arrays share: missing values, moments, messages."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError, option

MISSING = ("error", "mean", "drop")
"""What to do with rows that lack values: refuse them, fill in the means of training, or leave the rows out."""

Matrix = NDArray[np.float32]

CODE = re.compile(r"0\d+|\d{19,}")
"""Text that looks like a number, and of which a number would lose digits."""


def check_moments(mean: float, scale: float) -> None:
    if not (math.isfinite(mean) and math.isfinite(scale) and scale > 0):
        raise IndexError(f"nothing can be standardised by a mean of {mean} and a scale of {scale}")


def check_finite(X: Matrix, names: Sequence[str]) -> None:
    # A sum is not finite where an entry is not, and needs no memory.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(X.sum(dtype=np.float64)):
            return
    bad = np.atleast_1d(~np.isfinite(X).all(axis=(0, *range(2, X.ndim))))
    wrong = [name for name, is_bad in zip(names, bad, strict=False) if is_bad]
    if wrong:
        raise InputError(f"Values are infinite, or too large, in {quoted(wrong)}: correct or leave out those rows.")


def describe_missing(lacking: Mapping[str, int], n: int) -> str:
    """What to say of columns that lack values."""
    columns = ", ".join(f"{name!r} ({count:,})" for name, count in lacking.items())
    return (
        f"Values are missing in {columns} of {n:,} rows. Fill in means of training ({option('missing', 'mean')}) or "
        f"leave such rows out ({option('missing', 'drop')})."
    )


def quoted(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(str(name)) for name in list(names)[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
