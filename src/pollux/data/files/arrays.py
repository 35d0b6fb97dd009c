"""Arrays in files, by numpy: .npy, read in place, and .npz. Nothing in them is unpickled."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.files.source import Part, at_once
from pollux.data.preprocessing import ArrayPreprocessing, Preprocessing
from pollux.errors import DAMAGE, InputError, option

ROWS_AT_ONCE = 65_536
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class NpyArray:
    """One array: rows (n, d), or images (n, H, W), (n, C, H, W) or (n, H, W, C)."""

    path: Path

    def read(self) -> Part:
        return Part(as_samples(self.load(), self.path))

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        return part

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        return _parts(self.read(), preprocessing, self.path)

    def load(self) -> NDArray[Any]:
        """The array as the file has it, mapped into memory."""
        try:
            with warnings.catch_warnings():
                # Of sizes that cannot be; the error that follows says so.
                warnings.simplefilter("ignore", RuntimeWarning)
                return np.asanyarray(np.load(self.path, mmap_mode="r", allow_pickle=False))
        except (ValueError, EOFError, SyntaxError, MemoryError, OverflowError) as error:
            raise InputError(f"{self.path} is not an array of numbers: {error}") from error


@dataclass(frozen=True)
class NpzArrays:
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

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        return part

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        return _parts(self.read(), preprocessing, self.path)

    def _part(self, arrays: dict[str, NDArray[Any]]) -> Part:
        if {"indptr", "indices", "data"} <= arrays.keys():
            raise InputError(f"{self.path} holds a sparse matrix: load it in Python and use GeminiClustering.")
        if not arrays:
            raise InputError(f"{self.path} holds no arrays.")
        several = [name for name, array in arrays.items() if array.ndim > 1]
        if self.array is None and len(several) != 1:
            likely = [name for name in several if name in ("X", "x", "data", "images")]
            if len(likely) != 1:
                raise InputError(
                    f"{self.path} holds the arrays {_shapes(arrays)}: say which to cluster, {option('array', 'NAME')}."
                )
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


def _parts(whole: Part, preprocessing: Preprocessing, path: Path) -> Iterator[Part]:
    if not isinstance(preprocessing, ArrayPreprocessing):
        raise InputError(f"The model was trained on a table, but {path} holds arrays.")
    rows = at_once(ROWS_AT_ONCE, math.prod(whole.rows.shape[1:]))
    for first in range(0, len(whole), rows):
        part = slice(first, first + rows)
        yield Part(whole.rows[part], first, {name: values[part] for name, values in whole.beside.items()})


def _shapes(arrays: dict[str, NDArray[Any]]) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
