"""Chunks of an array in a file."""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.files.arrays import NpyArray, as_samples
from pollux.data.preprocessing import ArrayPreprocessing
from pollux.data.streaming.chunks import (
    Chunks,
    Lengths,
    Rows,
    Slices,
    check_length,
    check_rows,
    checked_dtype,
    describe_files,
    digest,
)
from pollux.errors import InputError

_BYTES_OF_CHUNK = 2**21


class ArrayChunks:
    """An .npy file, or a ``np.memmap``, in chunks of consecutive rows of about 2 MB.

    Rows are (n, d), or images as in other files. They are read from the file, not through the map, whose pages would
    count as memory of this process. With ``preprocessing`` they are encoded by it; rows that it drops are counted in a
    first pass over the file, unless ``lengths`` (c,) tell them.
    """

    def __init__(
        self,
        source: str | Path | np.memmap[Any, Any],
        *,
        preprocessing: ArrayPreprocessing | None = None,
        dtype: Any = "float32",
        lengths: Lengths | None = None,
    ) -> None:
        array = source if isinstance(source, np.ndarray) else NpyArray(Path(source)).load()
        self.path, self._offset = _place(array)
        self._stored, self._stored_shape = array.dtype, array.shape[1:]
        self.sample_shape = as_samples(array[:1], self.path).shape[1:]
        self.preprocessing = preprocessing
        self.dtype = checked_dtype(dtype)
        bytes_of_row = math.prod(self.sample_shape) * self.dtype.itemsize
        self._rows = max(1, _BYTES_OF_CHUNK // bytes_of_row)
        whole = np.diff(np.append(np.arange(0, len(array), self._rows), len(array)))
        self.stored_lengths: Lengths = whole.astype(np.int64)
        if lengths is None and preprocessing is not None and preprocessing.missing == "drop":
            complete = (preprocessing.complete(self.stored(chunk)).sum() for chunk in range(len(whole)))
            lengths = np.fromiter(complete, dtype=np.int64, count=len(whole))
        self.lengths: Lengths = self.stored_lengths if lengths is None else lengths

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample, as the model sees it."""
        return self.sample_shape if self.preprocessing is None else self.preprocessing.encoded_shape

    @property
    def feature_names(self) -> list[str] | None:
        """The names of columns, where there are any."""
        return (self.preprocessing.feature_names or None) if self.preprocessing is not None else None

    def stored(self, chunk: int) -> NDArray[Any]:
        """Samples of a chunk as the file has them, (rows, d) or (rows, C, H, W)."""
        rows, numbers = int(self.stored_lengths[chunk]), math.prod(self._stored_shape)
        start = self._offset + chunk * self._rows * numbers * self._stored.itemsize
        try:
            found = np.fromfile(self.path, self._stored, rows * numbers, offset=start)
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error}") from error
        check_length(found.size // numbers, rows, f"{self.path}, from row {chunk * self._rows} on,")
        return as_samples(found.reshape(rows, *self._stored_shape), self.path)

    def read(self, chunk: int) -> Rows:
        """The rows of a chunk, (rows, *shape), all of them finite."""
        first, stored = chunk * self._rows, self.stored(chunk)
        where = str(self.path)
        if self.preprocessing is None:
            with np.errstate(over="ignore"):
                rows = np.ascontiguousarray(stored, dtype=self.dtype)
            check_rows(rows, where, first, [str(index) for index in range(self.shape[0])] if rows.ndim == 2 else None)
            return rows
        if self.preprocessing.missing == "drop":
            stored = stored[self.preprocessing.complete(stored)]
        check_length(len(stored), int(self.lengths[chunk]), f"{where}, from row {first} on,")
        try:
            return self.preprocessing.encode(stored).astype(self.dtype, copy=False)
        except InputError as error:
            raise InputError(f"{where}, rows {first} to {first + self.stored_lengths[chunk] - 1}: {error}") from error

    def fingerprint(self) -> str:
        """What data these are: the same for the same files, read in the same way."""
        plan = None if self.preprocessing is None else self.preprocessing.as_json()
        files = describe_files([self.path], self.path.parent)
        return digest(files, self._offset, self._stored.str, self.lengths.tolist(), self.dtype.name, plan)

    def subdivided(self, parts: int) -> Chunks:
        """The same rows in the same order in at least so many chunks, unless there are fewer rows."""
        return self if len(self.lengths) >= parts else Slices(self, parts)


def _place(array: Any) -> tuple[Path, int]:
    """The file of a mapped array, and where in it the first entry lies."""
    if not isinstance(array, np.memmap) or array.filename is None or array.ndim == 0:
        raise InputError("This is no array in a file: rows are read from an .npy file, or from a np.memmap of a file.")
    path = Path(array.filename)
    if not array.flags.c_contiguous:
        raise InputError(f"Rows of {path} do not lie one after the other: save it by np.save(path, array.copy('C')).")
    if array.mode == "c":
        raise InputError(f"Changes to a map of {path} are not in the file that is read: map it in mode 'r' or 'r+'.")
    # Of a slice the map tells the offset of the whole, so that the address has to tell its own.
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    base = np.frombuffer(array._mmap, dtype=np.uint8).ctypes.data  # type: ignore[attr-defined]
    return path, int(start + array.ctypes.data - base)
