"""A table in one file, or in all those of a folder: CSV and its kin, Parquet, Feather."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import kind_of, same_kind
from pollux.data.encoding import Encoding, TableEncoding
from pollux.data.sources import FORMATS, Part, Reading, Source, at_once, check_distinct, describe_files, suffix_of
from pollux.data.table_formats import ArrowFile, ParquetFile, TableFile, as_table, in_words
from pollux.errors import InputError

ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class TableFiles(Source):
    """A table in one file, or in the files of a folder and below it, in the order of their paths.

    The files of a folder have the same columns. Folders such as ``year=2024`` give their files a further column, unless
    they have it themselves.
    """

    path: Path
    files: tuple[Path, ...]
    reading: Reading = Reading()  # noqa: RUF009

    @property
    def shape(self) -> None:
        """A table has columns, not samples of a shape."""

    @cached_property
    def _opened(self) -> list[TableFile]:
        return [_open(file, self.reading) for file in self.files]

    # All rows, or parts in order

    def read(self) -> Part:
        import pyarrow as pa

        tables = [self._with_partitions(index, file.read()) for index, file in enumerate(self._opened)]
        if len(tables) == 1:
            return Part(_not_empty(tables[0], self.path))
        found: dict[str, str] = {}
        first = 0
        for index, table in enumerate(tables):
            if table.num_rows:
                first = index if not found else first
                kinds = {field.name: kind_of(field.type) for field in table.schema}
                found = _same_kinds(found, kinds, self.files[first], self.files[index])
        some = [table.select(list(found)) for table in tables if table.num_rows]
        with in_words(self.path):
            whole = pa.concat_tables(some, promote_options="permissive") if some else tables[0]
        return Part(_not_empty(whole, self.path))

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        import pyarrow as pa

        others = [name for name in names if not pa.types.is_string(part.rows.schema.field(name).type)]
        others = [name for name in others if name in self._opened[0].names]
        texts = [file.text(others) for file in self._opened] if others else []
        if any(text is None for text in texts) or not texts:
            return part
        text = pa.concat_tables(texts).take(numbers)
        return Part(_replaced(part.rows, {name: text.column(name) for name in others}), part.first)

    def stream(self, encoding: Encoding, beside: Sequence[str]) -> Iterator[Part]:
        if not isinstance(encoding, TableEncoding):
            raise InputError(f"The model was trained on an array or on images, but {self.path} is a table.")
        first = 0
        include: list[str] = []
        for index, file in enumerate(self._opened):
            names = [*file.names, *self._partitions(index, file.names)]
            encoding.check_names(names)
            wanted = {*encoding.names, *beside}
            # Of a folder, in the order of its first file.
            include = include or [name for name in names if name in wanted]
            own = [name for name in include if name in file.names]
            rows = at_once(ROWS_AT_ONCE, len(include))
            for batch in file.batches(own, encoding, rows) if own else ():
                for start in range(0, batch.num_rows, rows):
                    table = self._with_partitions(index, as_table(batch.slice(start, rows))).select(include)
                    yield Part(table, first)
                    first += table.num_rows
        if not first:
            # At least one part, so that lacking columns are noticed.
            import pyarrow as pa

            yield Part(pa.table({name: [] for name in include}))

    # Blocks by number

    def blocks(self) -> TableFiles:
        if not len(self.lengths):
            raise InputError(f"{self.path} has no rows.")
        return self

    @property
    def names(self) -> list[str]:
        return list(self.kinds)

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Of the columns of all files; an InputError where they cannot be of one table."""
        kinds: dict[str, str] = {}
        first = 0
        for index, file in enumerate(self._opened):
            if not sum(file.lengths):
                continue
            first = index if not kinds else first
            own = {**file.kinds, **{name: kind_of(v.type) for name, v in self._partitions(index, file.names).items()}}
            kinds = _same_kinds(kinds, own, self.files[first], self.files[index])
        return kinds

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """(3, c): the file of each block, its number there, and its rows; blocks without rows are left out."""
        places = [
            (index, block, rows)
            for index, file in enumerate(self._opened)
            for block, rows in enumerate(file.lengths)
            if rows
        ]
        return np.array(places, dtype=np.int64).reshape(-1, 3).T.copy()

    @property
    def lengths(self) -> NDArray[np.int64]:
        rows: NDArray[np.int64] = self._places[2]
        return rows

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        index, number, _ = (int(value) for value in self._places[:, block])
        file = self._opened[index]
        table = file.read_block(number, [name for name in names if name in file.names])
        return self._with_partitions(index, table).select(list(names))

    def where(self, block: int, row: int | None = None) -> str:
        index, number, _ = (int(value) for value in self._places[:, block])
        return f"{self.files[index]}, {self._opened[index].where(number, row)}"

    def identity(self) -> Any:
        root = self.path if self.path.is_dir() else self.path.parent
        reading = [self.reading.delimiter, self.reading.header, list(self.reading.na)]
        return [describe_files(self.files, root), reading]

    def size_in_memory(self) -> int:
        """About how many bytes the rows take as float32, by what the files say of themselves."""
        if all(isinstance(file, ParquetFile) for file in self._opened):
            return 4 * int(self.lengths.sum()) * len(self._opened[0].names)
        # A number takes about eight characters of text, or eight bytes.
        return sum(file.stat().st_size for file in self.files) // 2

    # Columns that the names of folders give

    @cached_property
    def _values(self) -> dict[str, list[Any]]:
        """Of each key of folders such as ``key=value``, the values of all files: whole numbers, or text."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        relative = [file.relative_to(self.path).parent for file in self.files] if self.path.is_dir() else []
        keys = dict.fromkeys(part.split("=")[0] for folder in relative for part in folder.parts if "=" in part)
        if not keys:
            return {}
        scheme = ds.partitioning(pa.schema([(key, pa.string()) for key in keys]), flavor="hive")
        parsed = [ds.get_partition_keys(scheme.parse(f"{folder.as_posix()}/")) for folder in relative]
        found = {key: pa.array([values.get(key) for values in parsed], pa.string()) for key in keys}
        return {key: _as_whole_numbers(values) for key, values in found.items()}

    def _partitions(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        """Scalars of the columns that a file has by its folders alone."""
        return {key: values[index] for key, values in self._values.items() if key not in names}

    def _with_partitions(self, index: int, table: Any) -> Any:
        import pyarrow as pa

        for key, value in self._partitions(index, self._opened[index].names).items():
            table = table.append_column(key, pa.repeat(value, table.num_rows))
        return table

    def __getstate__(self) -> dict[str, Any]:
        """Without what is open: files are opened again where they are needed."""
        return {"path": self.path, "files": self.files, "reading": self.reading}


def _as_whole_numbers(values: Any) -> Any:
    import pyarrow as pa

    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        return values


def _open(file: Path, reading: Reading) -> TableFile:
    suffix, _ = suffix_of(file)
    if suffix in FORMATS["Parquet"]:
        return ParquetFile(file)
    if suffix in FORMATS["Feather/Arrow"]:
        return ArrowFile(file)
    from pollux.data.delimited import CsvFile

    return CsvFile(file, reading.delimiter, reading.header, reading.na)


def _replaced(table: Any, columns: Mapping[str, Any]) -> Any:
    """The table with other values in some of its columns."""
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def _not_empty(table: Any, path: Path) -> Any:
    if not table.num_rows:
        raise InputError(f"{path} has no rows.")
    check_distinct(path, table.column_names)
    return table


def _same_kinds(kinds: dict[str, str], others: dict[str, str], first: Path, file: Path) -> dict[str, str]:
    """The kinds of columns of the files so far and this one; an InputError where they cannot be of one table."""
    if not kinds:
        return others
    absent, further = [name for name in kinds if name not in others], [name for name in others if name not in kinds]
    if absent or further:
        has, lacks, name = (first, file, absent[0]) if absent else (file, first, further[0])
        raise InputError(f"All files of a folder must have the same columns: {has} has {name!r}, {lacks} has not.")
    both = {name: same_kind(kind, others[name]) for name, kind in kinds.items()}
    for name, kind in both.items():
        if kind is None:
            raise InputError(
                f"All files of a folder must have the same columns: {name!r} holds {others[name]} in {file}, but "
                f"{kinds[name]} in {first}."
            )
    return {name: kind for name, kind in both.items() if kind is not None}
