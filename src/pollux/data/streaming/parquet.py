"""Chunks of Parquet files: their row groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.files.parquet import RowGroups, row_groups
from pollux.data.preprocessing import TablePreprocessing, plain
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
from pollux.errors import InputError, did_you_mean

_ROWS_AT_ONCE = 4_096
_NUMBERS = ("boolean", "integer", "number")


class ParquetChunks:
    """A Parquet file, or all those of a folder and below it, by path; each row group is a chunk.

    Without ``preprocessing`` all columns must hold numbers, or those named by ``columns``, and lack none. With it they
    are encoded by it; rows that it drops are counted in a first pass, unless ``lengths`` (c,) tell them. Values that
    only the names of folders tell, as in ``year=2024/``, are not read.
    """

    def __init__(
        self,
        source: str | Path | RowGroups,
        *,
        columns: Sequence[str] | None = None,
        preprocessing: TablePreprocessing | None = None,
        dtype: Any = "float32",
        lengths: Lengths | None = None,
    ) -> None:
        self.groups = source if isinstance(source, RowGroups) else row_groups(source)
        self.preprocessing = preprocessing
        self.dtype = checked_dtype(dtype)
        if preprocessing is None:
            self._names = _columns_of_numbers(self.groups, columns)
        elif columns is not None:
            raise InputError("The preprocessing says which columns are read: leave out columns.")
        else:
            preprocessing.check_there(list(self.groups.kinds))
            self._names = preprocessing.names
            if lengths is None and preprocessing.missing == "drop":
                complete = (
                    preprocessing.complete(self.stored(chunk)).sum() for chunk in range(len(self.groups.lengths))
                )
                lengths = np.fromiter(complete, dtype=np.int64, count=len(self.groups.lengths))
        self.lengths: Lengths = self.groups.lengths if lengths is None else lengths

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample, as the model sees it."""
        return (len(self._names),) if self.preprocessing is None else self.preprocessing.encoded_shape

    @property
    def feature_names(self) -> list[str] | None:
        """The names of columns, where there are any."""
        return list(self._names) if self.preprocessing is None else self.preprocessing.feature_names

    def stored(self, chunk: int) -> Any:
        """The columns that are read, as an Arrow table."""
        return self.groups.read(chunk, self._names)

    def read(self, chunk: int) -> Rows:
        """The rows of a chunk, (rows, *shape), all of them finite."""
        table, where = self.stored(chunk), self.groups.where(chunk)
        if self.preprocessing is None:
            rows = _matrix(table, self.dtype, where)
            check_length(len(rows), int(self.lengths[chunk]), where)
            check_rows(rows, where, 0, self._names)
            return rows
        if self.preprocessing.missing == "drop":
            table = table.filter(self.preprocessing.complete(table))
        check_length(table.num_rows, int(self.lengths[chunk]), where)
        try:
            return self.preprocessing.encode(table).astype(self.dtype, copy=False)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error

    def fingerprint(self) -> str:
        """What data these are: the same for the same files, read in the same way."""
        groups = self.groups
        root = groups.path if groups.path.is_dir() else groups.path.parent
        plan = self._names if self.preprocessing is None else self.preprocessing.as_json()
        return digest(describe_files(groups.files, root), self.lengths.tolist(), self.dtype.name, plan)

    def subdivided(self, parts: int) -> Chunks:
        """The same rows in the same order in at least so many chunks, unless there are fewer rows."""
        return self if len(self.lengths) >= parts else Slices(self, parts)


def _columns_of_numbers(groups: RowGroups, columns: Sequence[str] | None) -> list[str]:
    names = list(groups.kinds) if columns is None else list(dict.fromkeys(columns))
    for name in names:
        if name not in groups.kinds:
            there = ", ".join(map(repr, groups.kinds))
            raise InputError(f"There is no column {name!r}.{did_you_mean(name, groups.kinds)} There are: {there}.")
    others = {name: groups.kinds[name] for name in names if groups.kinds[name] not in _NUMBERS}
    if others:
        told = ", ".join(f"{name!r} ({kind})" for name, kind in others.items())
        raise InputError(
            f"Columns of {groups.path} hold no numbers: {told}. Choose others by columns=[…], or "
            f"pass standardise=True, by which text of few values becomes zeros and ones."
        )
    if not names:
        raise InputError(f"{groups.path}: no columns are left to read.")
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
