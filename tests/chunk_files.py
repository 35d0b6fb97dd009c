"""Chunks of numbered rows, and Parquet files of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from pollux.data.streams import Chunks, Slices
from pollux.errors import InputError


class Numbered(Chunks):
    """Chunks of rows (2,) that hold their own number; records which of them were read."""

    dtype = np.dtype("float32")
    shape = (2,)
    feature_names: list[str] | None = None

    def __init__(self, lengths: Sequence[int], fail: int | None = None) -> None:
        self.lengths = np.array(lengths, dtype=np.int64)
        self.fail = fail
        self.was_read: list[int] = []

    def read(self, chunk: int) -> Any:
        if chunk == self.fail:
            raise InputError(f"chunk {chunk} is broken")
        self.was_read.append(chunk)
        first = self.lengths[:chunk].sum()
        return np.repeat(np.arange(first, first + self.lengths[chunk], dtype=np.float32)[:, None], 2, axis=1)

    def fingerprint(self) -> str:
        return str(self.lengths)

    def subdivided(self, parts: int) -> Chunks:
        return Slices(self, parts)


def read_all(chunks: Chunks) -> Any:
    return np.concatenate([chunks.read(chunk) for chunk in range(len(chunks.lengths))])


def table_of(n: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "a": random.normal(size=n),
            "b": random.normal(size=n).astype(np.float32),
            "c": random.integers(-9, 9, n).astype(np.int16),
            "d": random.integers(0, 2, n).astype(bool),
        }
    )


def folder_of(folder: Path, *tables: pa.Table, rows: int = 100) -> Path:
    for index, table in enumerate(tables):
        place = folder / f"part {index}"
        place.mkdir(parents=True)
        parquet.write_table(table, place / "part.parquet", row_group_size=rows)
    return folder
