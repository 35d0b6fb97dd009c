"""Arrays in files, by numpy: .npy, read in place, and .npz. Nothing in them is unpickled."""

from __future__ import annotations

import math
import mmap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.encoding import ArrayEncoding, Encoding
from pollux.data.sources import Blocks, Part, Source, at_once, describe_files
from pollux.errors import DAMAGE, InputError, option

ROWS_AT_ONCE = 65_536
_CHANNELS = (1, 3, 4)
_BLOCK_NUMBERS = 2**19


@dataclass(frozen=True)
class NpyArray(Source):
    """One array: rows (n, d), or images (n, H, W), (n, C, H, W) or (n, H, W, C)."""

    path: Path

    def read(self) -> Part:
        return Part(as_samples(self.load(), self.path))

    def stream(self, encoding: Encoding, beside: Sequence[str]) -> Iterator[Part]:
        return _parts(self.read(), encoding, self.path)

    def blocks(self) -> ArrayBlocks:
        return ArrayBlocks(self.load())

    def load(self) -> NDArray[Any]:
        """The array as the file has it, mapped into memory."""
        try:
            with warnings.catch_warnings():
                # Of sizes that cannot be; the error that follows says so.
                warnings.simplefilter("ignore", RuntimeWarning)
                return np.asanyarray(np.load(self.path, mmap_mode="r", allow_pickle=False))
        except (ValueError, EOFError, SyntaxError, MemoryError, OverflowError) as error:
            raise InputError(f"{self.path} is not an array of numbers: {error}") from error


class ArrayBlocks:
    """A ``np.memmap`` in blocks of consecutive rows of about half a million numbers.

    They are read from the file, not through the map, whose pages would count as memory of this process.
    """

    names: list[str] = []  # noqa: RUF012
    kinds: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, array: Any) -> None:
        self.path, self._offset = _place(array)
        self._dtype, self._stored_shape = array.dtype, array.shape[1:]
        self.shape: tuple[int, ...] = as_samples(array[:1], self.path).shape[1:]
        self._rows = max(1, _BLOCK_NUMBERS // math.prod(self.shape))
        starts = np.append(np.arange(0, len(array), self._rows), len(array))
        self.lengths: NDArray[np.int64] = np.diff(starts).astype(np.int64)

    def read_block(self, block: int, names: Sequence[str] = ()) -> NDArray[Any]:
        rows, numbers = int(self.lengths[block]), math.prod(self._stored_shape)
        start = self._offset + block * self._rows * numbers * self._dtype.itemsize
        try:
            found = np.fromfile(self.path, self._dtype, rows * numbers, offset=start)
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error}") from error
        if found.size != rows * numbers:
            raise InputError(f"{self.where(block)} are no longer all there: the data have changed meanwhile.")
        return as_samples(found.reshape(rows, *self._stored_shape), self.path)

    def where(self, block: int, row: int | None = None) -> str:
        first = block * self._rows
        return (
            f"{self.path}, rows {first} to {first + self.lengths[block] - 1}"
            if row is None
            else (f"{self.path}, row {first + row}")
        )

    def identity(self) -> Any:
        return [describe_files([self.path], self.path.parent), self._offset, self._dtype.str]


@dataclass(frozen=True)
class NpzArrays(Source):
    """Several arrays: the samples, beside them arrays (n,) such as labels, and ``feature_names`` (d,) of the columns.

    ``array`` names the samples where more than one could be meant.
    """

    path: Path
    array: str | None = None

    def read(self) -> Part:
        try:
            # Opened here, because numpy leaves a file open that it cannot read.
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                entries = {name: arrays[name] for name in arrays.files}
            return self._part({name: entry for name, entry in entries.items() if isinstance(entry, np.ndarray)})
        except InputError:
            raise
        except (*DAMAGE, OSError, MemoryError) as error:
            raise InputError(f"{self.path} is not a file of arrays: {error}") from error

    def stream(self, encoding: Encoding, beside: Sequence[str]) -> Iterator[Part]:
        return _parts(self.read(), encoding, self.path)

    def blocks(self) -> Blocks:
        raise InputError(f"{self.path} is one archive, which is not streamed: save its array as an .npy file.")

    def _part(self, arrays: dict[str, NDArray[Any]]) -> Part:
        if {"indptr", "indices", "data"} <= arrays.keys():
            raise InputError(f"{self.path} holds a sparse matrix: load it in Python and use GeminiClustering.")
        if not arrays:
            raise InputError(f"{self.path} holds no arrays.")
        several = [name for name, array in arrays.items() if array.ndim > 1]
        if self.array is None and len(several) != 1:
            likely = [name for name in several if name in ("X", "x", "data", "images")]
            if len(likely) != 1:
                asked = option("array", "NAME")
                raise InputError(f"{self.path} holds the arrays {_shapes(arrays)}: say which to cluster, {asked}.")
            several = likely
        name = self.array or several[0]
        if name not in arrays:
            raise InputError(f"{self.path} has no array {name!r} ({option('array')}); it holds {_shapes(arrays)}.")
        samples = as_samples(arrays[name], self.path)
        lists = {other: array for other, array in arrays.items() if other != name and array.ndim == 1}
        beside = {other: array for other, array in lists.items() if len(array) == len(samples)}
        return Part(samples, beside=beside, feature_names=_feature_names(lists.get("feature_names"), samples))


def _feature_names(names: NDArray[Any] | None, samples: NDArray[Any]) -> list[str] | None:
    """Names of the columns of rows (n, d), where there are d different ones."""
    if names is None or samples.ndim != 2 or len(set(names.tolist())) != samples.shape[1]:
        return None
    return [str(name) for name in names]


def as_samples(array: NDArray[Any], path: Path) -> NDArray[Any]:
    """(n, d), or (n, C, H, W) where the channels may come last or be left out."""
    if array.dtype.kind not in "bifu" or array.ndim not in (1, 2, 3, 4):
        raise InputError(
            f"{path} holds an array of {array.dtype} and shape {array.shape}; what can be clustered are numbers: rows "
            f"(n, d), or images (n, H, W), (n, C, H, W) or (n, H, W, C)."
        )
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[1] not in _CHANNELS and array.shape[3] in _CHANNELS:
        array = np.moveaxis(array, 3, 1)
    if not array.size:
        raise InputError(f"{path} holds an empty array, of shape {array.shape}.")
    return array


def _parts(whole: Part, encoding: Encoding, path: Path) -> Iterator[Part]:
    if not isinstance(encoding, ArrayEncoding):
        raise InputError(f"The model was trained on a table, but {path} holds arrays.")
    rows = at_once(ROWS_AT_ONCE, math.prod(whole.rows.shape[1:]))
    for first in range(0, len(whole), rows):
        part = slice(first, first + rows)
        yield Part(whole.rows[part], first, {name: values[part] for name, values in whole.beside.items()})


def _shapes(arrays: dict[str, NDArray[Any]]) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in arrays.items())


def _place(array: Any) -> tuple[Path, int]:
    """The file of a mapped array, and where in it the first entry lies."""
    if not isinstance(array, np.memmap) or array.filename is None or array.ndim == 0:
        raise InputError("This is no array in a file: rows are read from an .npy file, or from a np.memmap of a file.")
    path = Path(array.filename)
    if not array.flags.c_contiguous:
        raise InputError(f"Rows of {path} do not lie one after the other: save it by np.save(path, array.copy('C')).")
    if array.mode == "c":
        raise InputError(f"Changes to a map of {path} are not in the file that is read: map it in mode 'r' or 'r+'.")
    # The map of a slice has the offset of the whole, so that the address has to give its own.
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    base = np.frombuffer(array._mmap, dtype=np.uint8).ctypes.data  # type: ignore[attr-defined]
    return path, int(start + array.ctypes.data - base)
