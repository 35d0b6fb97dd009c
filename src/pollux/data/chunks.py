"""Rows in chunks, each of which can be read by itself."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import plain
from pollux.data.encoding import Encoding, TableEncoding
from pollux.data.sources import Blocks, open_data
from pollux.errors import InputError, did_you_mean

Lengths = NDArray[np.int64]
Rows = NDArray[Any]

DTYPES = ("float32", "float64")

_ROWS_AT_ONCE = 4_096
_NUMBERS = ("boolean", "integer", "number")


class Chunks(ABC):
    """Samples in chunks, each of which can be read by itself, in any order.

    Attributes
    ----------
    lengths : array of shape (c,)
        The samples of each chunk.
    shape, dtype : tuple of int, np.dtype
        Shape of one sample as the model sees it; float32 or float64.
    feature_names : list of str or None
        The names of columns, where there are any.
    """

    lengths: Lengths
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    feature_names: list[str] | None = None

    @abstractmethod
    def read(self, chunk: int) -> Rows:
        """The samples of a chunk, (rows, *shape), all of them finite."""

    @abstractmethod
    def fingerprint(self) -> str:
        """What data these are: the same for the same files, read in the same way."""

    def subdivided(self, parts: int) -> Chunks:
        """The same samples in the same order in at least so many chunks, unless there are fewer samples."""
        return self if len(self.lengths) >= parts else Slices(self, parts)


class FileChunks(Chunks):
    """Rows of files: a table, an .npy file or a ``np.memmap``; each block of them is a chunk.

    Without an encoding all columns of a table must hold numbers, or those named by ``columns``, and lack none. With it
    they are encoded by it; rows that it drops are counted in a first pass, unless ``lengths`` (c,) are given.
    """

    def __init__(
        self,
        source: str | Path | np.memmap[Any, Any] | Blocks,
        *,
        columns: Sequence[str] | None = None,
        encoding: Encoding | None = None,
        dtype: Any = "float32",
        lengths: Lengths | None = None,
    ) -> None:
        self.blocks = open_blocks(source)
        self.encoding = encoding
        self.dtype = checked_dtype(dtype)
        is_table = self.blocks.shape is None
        self._names: list[str] = []
        if encoding is not None:
            if columns is not None:
                raise InputError("The encoding says which columns are read: leave out columns.")
            if isinstance(encoding, TableEncoding):
                encoding.check_names(self.blocks.names)
                self._names = encoding.names
        elif is_table:
            self._names = _columns_of_numbers(self.blocks, columns)
        if lengths is None and encoding is not None and encoding.missing == "drop":
            count = len(self.blocks.lengths)
            complete = (encoding.complete(self._stored(chunk)).sum() for chunk in range(count))
            lengths = np.fromiter(complete, dtype=np.int64, count=count)
        self.lengths = self.blocks.lengths if lengths is None else lengths
        self.shape = encoding.encoded_shape if encoding is not None else self.blocks.shape or (len(self._names),)
        self.feature_names = (self._names if encoding is None else encoding.feature_names) or None

    def _stored(self, chunk: int) -> Any:
        """What is read of a chunk, as the files have it."""
        return self.blocks.read_block(chunk, self._names)

    def read(self, chunk: int) -> Rows:
        stored = self._stored(chunk)
        if self.encoding is None:
            return self._as_they_are(stored, chunk)
        if self.encoding.missing == "drop":
            mask = self.encoding.complete(stored)
            stored = stored[mask] if isinstance(stored, np.ndarray) else stored.filter(mask)
        self._check_length(stored.shape[0], chunk)
        try:
            return self.encoding.encode(stored).astype(self.dtype, copy=False)
        except InputError as error:
            raise InputError(f"{self.blocks.where(chunk)}: {error}") from error

    def _as_they_are(self, stored: Any, chunk: int) -> Rows:
        if isinstance(stored, np.ndarray):
            with np.errstate(over="ignore"):
                rows = np.ascontiguousarray(stored, dtype=self.dtype)
            names = [str(index) for index in range(self.shape[0])] if rows.ndim == 2 else None
        else:
            rows, names = _matrix(stored, self.dtype, self.blocks.where(chunk)), self._names
        self._check_length(len(rows), chunk)
        check_rows(rows, lambda row: self.blocks.where(chunk, row), names)
        return rows

    def _check_length(self, rows: int, chunk: int) -> None:
        check_length(rows, int(self.lengths[chunk]), self.blocks.where(chunk))

    def fingerprint(self) -> str:
        plan = self._names if self.encoding is None else self.encoding.as_json()
        return digest(self.blocks.identity(), self.lengths.tolist(), self.dtype.name, plan)


def open_blocks(source: str | Path | np.memmap[Any, Any] | Blocks) -> Blocks:
    """The rows of a path or a mapped array in blocks, as the files have them."""
    if isinstance(source, np.ndarray):
        from pollux.data.array_files import ArrayBlocks

        return ArrayBlocks(source)
    return open_data(source).blocks() if isinstance(source, str | Path) else source


def _columns_of_numbers(blocks: Blocks, columns: Sequence[str] | None) -> list[str]:
    kinds = blocks.kinds
    names = list(kinds) if columns is None else list(dict.fromkeys(columns))
    for name in names:
        if name not in kinds:
            there = ", ".join(map(repr, kinds))
            raise InputError(f"There is no column {name!r}.{did_you_mean(name, kinds)} There are: {there}.")
    others = {name: kinds[name] for name in names if kinds[name] not in _NUMBERS}
    if others:
        listed = ", ".join(f"{name!r} ({kind})" for name, kind in others.items())
        raise InputError(
            f"Columns of {blocks.path} hold no numbers: {listed}. Choose others by columns=[…], or pass "
            f"standardise=True, by which text of few values becomes zeros and ones."
        )
    if not names:
        raise InputError(f"{blocks.path}: no columns are left to read.")
    return names


def _matrix(table: Any, dtype: np.dtype[Any], where: str) -> Rows:
    """(n, d) from a table of d columns of numbers."""
    columns = [_numbers(table.column(name), name, where) for name in table.column_names]
    rows = np.empty((table.num_rows, len(columns)), dtype=dtype)
    # Some rows of all columns at a time, which stay in the cache while they are written beside each other.
    with np.errstate(over="ignore"):
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            for index, column in enumerate(columns):
                rows[some, index] = column[some]
    return rows


def _numbers(values: Any, name: str, where: str) -> NDArray[Any]:
    """A column without missing values, (n,)."""
    import pyarrow as pa

    values = plain(values)
    if values.null_count:
        raise InputError(
            f"{where}: {values.null_count:,} of {len(values):,} values are missing in column {name!r}. Fill them in, "
            f"or leave out those rows."
        )
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64(), safe=False)
    return np.asarray(values.to_numpy())


class Slices(Chunks):
    """Chunks cut into slices, so that there are enough of them to share out. Each slice reads its whole chunk."""

    def __init__(self, whole: Chunks, parts: int) -> None:
        self.whole = whole
        self.shape, self.dtype, self.feature_names = whole.shape, whole.dtype, whole.feature_names
        # Of each chunk its share of the slices, by rows, and none of no rows.
        wanted = np.ceil(whole.lengths * parts / max(1, whole.lengths.sum())).astype(np.int64)
        pieces = np.minimum(np.maximum(wanted, 1), np.maximum(whole.lengths, 1))
        self._chunk = np.repeat(np.arange(len(pieces)), pieces)
        piece = np.concatenate([np.arange(count) for count in pieces])
        self._start = piece * whole.lengths[self._chunk] // pieces[self._chunk]
        self._stop = (piece + 1) * whole.lengths[self._chunk] // pieces[self._chunk]
        self.lengths = self._stop - self._start

    def read(self, chunk: int) -> Rows:
        rows = self.whole.read(int(self._chunk[chunk]))
        # A copy, because a view would keep the whole chunk.
        return rows[self._start[chunk] : self._stop[chunk]].copy()

    def fingerprint(self) -> str:
        return digest(self.whole.fingerprint(), self.lengths.tolist())

    def subdivided(self, parts: int) -> Chunks:
        return self if len(self.lengths) >= parts else Slices(self.whole, parts)


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """float32 or float64, or else an InputError."""
    found: np.dtype[Any] = np.dtype(dtype)
    if found.name not in DTYPES:
        raise InputError(f"Models compute in {' or '.join(DTYPES)}, not in {dtype}.")
    return found


def check_rows(rows: Rows, where: Callable[[int], str], names: Sequence[str] | None) -> None:
    """Raise an InputError that names the first entry of rows (n, …) that is not finite, and the place of its row."""
    # A sum is not finite where an entry is not, and needs no memory; where it has only overflown, a look decides.
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
        f"{where(row)}: {named} is {'missing' if np.isnan(value) else 'infinite, or too large'}. Correct "
        f"it, or leave out such rows; {int(bad.reshape(len(rows), -1).any(1).sum()):,} of {len(rows):,} are like it."
    )


def check_length(rows: int, expected: int, where: str) -> None:
    if rows != expected:
        raise InputError(f"{where} has {rows:,} rows where there were {expected:,}: the data have changed meanwhile.")


def digest(*facts: Any) -> str:
    """A sha256 of plain data."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
