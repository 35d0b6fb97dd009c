"""Data that are read while a model is fitted, from wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset, IterableDataset

from pollux.data.chunks import Chunks, FileChunks, digest, open_blocks
from pollux.data.columns import Choices
from pollux.data.dataset_chunks import DatasetChunks
from pollux.data.encoding import Encoding
from pollux.data.shuffling import WINDOW_BYTES
from pollux.data.survey import learn_encoding
from pollux.errors import InputError

__all__ = ["WINDOW_BYTES", "Stream", "open_stream"]


@dataclass(frozen=True)
class Stream:
    """Rows that are read in chunks, about ``window_bytes`` of them at a time."""

    chunks: Chunks
    encoding: Encoding | None
    window_bytes: int
    name: str

    def __len__(self) -> int:
        return int(self.chunks.lengths.sum())

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample, as the model sees it."""
        return self.chunks.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the samples."""
        return self.chunks.dtype

    @property
    def feature_names(self) -> list[str] | None:
        """Of the columns, where they have any."""
        return self.chunks.feature_names

    def fingerprint(self) -> str:
        """What data these are: the same for the same files, read in the same way."""
        return digest(self.chunks.fingerprint(), self.window_bytes)

    def form(self) -> str:
        """How many rows are where, and of which shape: the same for copies of the same files."""
        return digest(self.chunks.lengths.tolist(), list(self.shape), self.window_bytes)


def open_stream(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    standardise: bool = False,
    missing: str = "error",
    dtype: Any = "float32",
    window_bytes: int = WINDOW_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> Stream:
    """Data to fit a model on that need not fit in memory.

    Parameters
    ----------
    source
        The path of a table (Parquet, Feather, CSV), of a folder of them or of an .npy file; a ``np.memmap``; or a
        map-style ``torch.utils.data.Dataset``, of whose items the first value is read.
    columns
        Those to read of a table; all by default.
    standardise
        Read the data once to standardise numbers and to turn text of few values into zeros and ones; a model that is
        fitted on them can then read data frames. Without it they must be numbers, and are read as they are.
    missing
        What to do with missing values when standardising: ``"error"``, ``"mean"`` or ``"drop"``.
    dtype
        float32 or float64.
    window_bytes
        How much is read and shuffled at a time; about three times as much is in memory.
    progress
        Called with the chunks that were read for standardising, and those there are.
    """
    if isinstance(columns, str):
        raise InputError(f"columns is a list of names such as ['a', 'b'], not {columns!r}.")
    if window_bytes < 1:
        raise InputError(f"window_bytes is a number of bytes, such as 16_000_000; not {window_bytes}.")
    if isinstance(source, Dataset):
        return _open_dataset(source, columns, standardise, dtype, window_bytes)
    if not isinstance(source, str | Path | np.memmap):
        raise InputError(
            f"A stream reads a path, a np.memmap or a map-style torch Dataset, not {type(source).__name__}; what is in "
            f"memory is fitted as it is."
        )
    blocks = open_blocks(source)
    if blocks.shape is not None and columns is not None:
        raise InputError("Columns are chosen by name from tables; of an array save those that are to be read.")
    if not standardise:
        return Stream(FileChunks(blocks, columns=columns, dtype=dtype), None, window_bytes, str(blocks.path))
    encoding, lengths = learn_encoding(blocks, Choices(columns=columns or (), missing=missing), progress)
    chunks = FileChunks(blocks, encoding=encoding, dtype=dtype, lengths=lengths)
    return Stream(chunks, encoding, window_bytes, str(blocks.path))


def _open_dataset(
    dataset: Dataset[Any], columns: Sequence[str] | None, standardise: bool, dtype: Any, window_bytes: int
) -> Stream:
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        raise InputError(f"{name} is an IterableDataset: its items cannot be read in a random order.")
    if columns is not None or standardise:
        raise InputError("The items of a Dataset are read as they are: leave out columns and standardise.")
    return Stream(DatasetChunks(dataset, dtype=dtype), None, window_bytes, name)
