"""Rows in chunks, each of which can be read by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError

Lengths = NDArray[np.int64]
Rows = NDArray[Any]

DTYPES = ("float32", "float64")


class Chunks(Protocol):
    """Rows in chunks, each of which can be read by itself, in any order.

    ``lengths`` (c,) are the rows of each chunk, ``shape`` is that of one sample as the model sees it, ``dtype`` float32
    or float64, and ``feature_names`` the names of columns where there are any.
    """

    @property
    def lengths(self) -> Lengths:
        """The rows of each chunk, (c,)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample, as the model sees it."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""

    @property
    def feature_names(self) -> list[str] | None:
        """The names of columns, where there are any."""

    def read(self, chunk: int) -> Rows:
        """The rows of a chunk, (rows, *shape), all of them finite."""

    def fingerprint(self) -> str:
        """What data these are: the same for the same files, read in the same way."""

    def subdivided(self, parts: int) -> Chunks:
        """The same rows in the same order in at least so many chunks, unless there are fewer rows."""


class Slices:
    """Chunks cut into slices, so that there are enough of them to share out. Each slice reads its whole chunk."""

    def __init__(self, whole: Chunks, parts: int) -> None:
        self.whole = whole
        # Of each chunk its share of the slices, by rows, and none of no rows.
        wanted = np.ceil(whole.lengths * parts / max(1, whole.lengths.sum())).astype(np.int64)
        pieces = np.minimum(np.maximum(wanted, 1), np.maximum(whole.lengths, 1))
        self._chunk = np.repeat(np.arange(len(pieces)), pieces)
        self._piece = np.concatenate([np.arange(count) for count in pieces])
        self._start = self._piece * whole.lengths[self._chunk] // pieces[self._chunk]
        self._stop = (self._piece + 1) * whole.lengths[self._chunk] // pieces[self._chunk]
        self.lengths: Lengths = self._stop - self._start

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample, as the model sees it."""
        return self.whole.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self.whole.dtype

    @property
    def feature_names(self) -> list[str] | None:
        """The names of columns, where there are any."""
        return self.whole.feature_names

    def read(self, chunk: int) -> Rows:
        """The rows of a chunk, (rows, *shape), all of them finite."""
        rows = self.whole.read(int(self._chunk[chunk]))
        # A copy, because a view would keep the whole chunk.
        return rows[self._start[chunk] : self._stop[chunk]].copy()

    def fingerprint(self) -> str:
        """What data these are: the same for the same files, read in the same way."""
        return digest(self.whole.fingerprint(), self.lengths.tolist())

    def subdivided(self, parts: int) -> Chunks:
        """The same rows in the same order in at least so many chunks, unless there are fewer rows."""
        return self if len(self.lengths) >= parts else Slices(self.whole, parts)


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """float32 or float64, or else an InputError."""
    found: np.dtype[Any] = np.dtype(dtype)
    if found.name not in DTYPES:
        raise InputError(f"Models compute in {' or '.join(DTYPES)}, not in {dtype}.")
    return found


def check_rows(rows: Rows, where: str, first: int, names: Sequence[str] | None) -> None:
    """Raise an InputError that names the first entry of rows (n, …) that is not finite; they begin at row ``first``."""
    # A sum is not finite where an entry is not, and needs no memory; where it has only overflown, a look tells.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):
            return
    bad = ~np.isfinite(rows)
    if not bad.any():
        return
    row, *place = (int(index) for index in np.argwhere(bad)[0])
    named = f"column {names[place[0]]!r}" if names else f"entry {tuple(place)}"
    value = rows[(row, *place)]
    raise InputError(
        f"{where}, row {first + row}: {named} is {'missing' if np.isnan(value) else 'infinite, or too large'}. Correct "
        f"it, or leave out such rows; {int(bad.reshape(len(rows), -1).any(1).sum()):,} of {len(rows):,} are like it."
    )


def check_length(rows: int, expected: int, where: str) -> None:
    if rows != expected:
        raise InputError(f"{where} has {rows:,} rows where there were {expected:,}: the data have changed meanwhile.")


def digest(*facts: Any) -> str:
    """A sha256 of plain data."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def describe_files(files: Iterable[Path], root: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of the last change of each, which tell whether they are still the same."""
    found = []
    for file in files:
        facts = file.stat()
        found.append((str(file.relative_to(root)), facts.st_size, facts.st_mtime_ns))
    return found
