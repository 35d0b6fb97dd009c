"""Data that are read while a model is fitted, from wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset, IterableDataset

from pollux.data.files.parquet import SUFFIXES, files_in, row_groups
from pollux.data.preprocessing import Choices, Preprocessing
from pollux.data.streaming.arrays import ArrayChunks
from pollux.data.streaming.chunks import Chunks, digest
from pollux.data.streaming.datasets import DatasetChunks
from pollux.data.streaming.parquet import ParquetChunks
from pollux.data.streaming.shuffling import WINDOW_BYTES
from pollux.data.streaming.surveying import survey_array, survey_parquet
from pollux.errors import InputError


@dataclass(frozen=True)
class Stream:
    """Rows that are read in chunks, about ``window_bytes`` of them at a time."""

    chunks: Chunks
    preprocessing: Preprocessing | None
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
        The path of a Parquet file, of a folder of them or of an .npy file; a ``np.memmap``; or a map-style
        ``torch.utils.data.Dataset``, of whose items the first value is read.
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
    is_map = isinstance(source, np.memmap)
    if not is_map and not isinstance(source, str | Path):
        raise InputError(
            f"A stream reads a path, a np.memmap or a map-style torch Dataset, not {type(source).__name__}; what is in "
            f"memory is fitted as it is."
        )
    choices = Choices(columns=columns or (), missing=missing)
    if is_map or _is_array(Path(source)):
        if columns is not None:
            raise InputError("Columns are chosen by name from tables; of an array save those that are to be read.")
        plan, lengths = survey_array(source, choices, progress) if standardise else (None, None)
        rows = ArrayChunks(source, preprocessing=plan, dtype=dtype, lengths=lengths)
        return Stream(rows, plan, window_bytes, str(rows.path))
    groups = row_groups(source)
    if not standardise:
        return Stream(ParquetChunks(groups, columns=columns, dtype=dtype), None, window_bytes, str(source))
    table, kept = survey_parquet(groups, choices, progress)
    return Stream(
        ParquetChunks(groups, preprocessing=table, dtype=dtype, lengths=kept), table, window_bytes, str(source)
    )


def _open_dataset(
    dataset: Dataset[Any], columns: Sequence[str] | None, standardise: bool, dtype: Any, window_bytes: int
) -> Stream:
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        raise InputError(f"{name} is an IterableDataset: its items cannot be read in a random order.")
    if columns is not None or standardise:
        raise InputError("The items of a Dataset are read as they are: leave out columns and standardise.")
    return Stream(DatasetChunks(dataset, dtype=dtype), None, window_bytes, name)


def _is_array(path: Path) -> bool:
    """Whether a path is an array, or else Parquet files; an InputError where it is neither."""
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    if path.is_dir():
        if not files_in(path, SUFFIXES):
            raise InputError(
                f"There are no Parquet files in {path}. Images are streamed by a torch Dataset, such as "
                f"torchvision.datasets.ImageFolder."
            )
        return False
    suffix = path.suffix.lower()
    if suffix not in (*SUFFIXES, ".npy"):
        kind = "feather" if suffix in (".feather", ".arrow", ".ipc") else "csv"
        raise InputError(
            f"{path} cannot be read in parts at random: what can are Parquet and .npy files. Convert it: "
            f"import pyarrow.dataset as ds; ds.write_dataset(ds.dataset({path.name!r}, format='{kind}'), 'folder', "
            f"format='parquet'). What fits in memory may be read by pandas instead."
        )
    return suffix == ".npy"
