"""Tables in files, by pyarrow: CSV and its kin, Parquet, Feather."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.files.dialect import TO_UTF8, Dialect, look
from pollux.data.files.source import Part, at_once, check_distinct
from pollux.data.preprocessing import CODE, Category, Number, Preprocessing, TablePreprocessing
from pollux.errors import InputError, option

ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class CsvTable:
    """A text file of delimited values; ``missing_marks`` stand for a missing value, beside the usual ones."""

    path: Path
    delimiter: str | None = None
    header: bool = True
    missing_marks: tuple[str, ...] = ()

    def read(self) -> Part:
        return Part(self._with_codes(self._read({})))

    def _with_codes(self, table: Any) -> Any:
        """The table with the text of columns that the file writes as 01067, or with more digits than a number holds."""
        import pyarrow as pa
        import pyarrow.compute as pc

        candidates = [
            field.name
            for field in table.schema
            if pa.types.is_integer(field.type)
            or (pa.types.is_floating(field.type) and (pc.max(pc.abs(table.column(field.name))).as_py() or 0) >= 2.0**63)
        ]
        if not candidates:
            return table
        text = self._text(candidates)
        pattern = f"^({CODE.pattern})$"
        is_code = {name: pc.any(pc.match_substring_regex(text.column(name), pattern)).as_py() for name in candidates}
        return _replaced(table, {name: text.column(name) for name in candidates if is_code[name]})

    def _text(self, names: Sequence[str]) -> Any:
        """These columns, as the file has them."""
        import pyarrow as pa

        return self._read(dict.fromkeys(names, pa.string()), names)

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        import pyarrow as pa

        others = [name for name in names if not pa.types.is_string(part.rows.schema.field(name).type)]
        if not others:
            return part
        text = self._text(others).take(numbers)
        return Part(_replaced(part.rows, {name: text.column(name) for name in others}), part.first)

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        import pyarrow as pa
        import pyarrow.csv as arrow_csv

        dialect = self._look()
        columns = columns_of(preprocessing, self.path, dialect.names)
        types = dict.fromkeys(beside, pa.string()) | {name: _type_of(column) for name, column in columns.items()}
        include = [name for name in dialect.names if name in types]
        with in_words(self.path, dialect.names):
            batches = arrow_csv.open_csv(self._open(), **self._options(dialect, types, include)) if include else []
            yield from as_parts(batches if dialect.has_rows else [], include)

    def _read(self, types: dict[str, Any], include: Sequence[str] = ()) -> Any:
        import pyarrow as pa
        import pyarrow.csv as arrow_csv

        dialect = self._look()
        if not dialect.has_rows:
            raise InputError(f"{self.path} has a header but no rows.")
        with in_words(self.path, dialect.names):
            table = arrow_csv.read_csv(self._open(), **self._options(dialect, types, include))
        binary = [field.name for field in table.schema if pa.types.is_binary(field.type)]
        if binary:
            raise InputError(f"{self.path} is not UTF-8 text: see column {binary[0]!r}. {TO_UTF8}")
        return not_empty(table, self.path)

    def _look(self) -> Dialect:
        with in_words(self.path):
            return look(self.path, self._open, self.delimiter, self.header)

    def _open(self) -> Any:
        import pyarrow as pa

        return pa.input_stream(str(self.path))

    def _options(self, dialect: Dialect, types: Mapping[str, Any], include: Sequence[str]) -> dict[str, Any]:
        import pyarrow.csv as arrow_csv

        usual = arrow_csv.ConvertOptions().null_values
        return {
            "read_options": arrow_csv.ReadOptions(
                column_names=dialect.names, skip_rows_after_names=dialect.skipped, block_size=4_000_000
            ),
            "parse_options": arrow_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
            "convert_options": arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=include,
                null_values=[*usual, *self.missing_marks],
                strings_can_be_null=True,
                decimal_point=dialect.decimal_point,
            ),
        }


def _replaced(table: Any, columns: Mapping[str, Any]) -> Any:
    """The table with other values in some of its columns."""
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def _type_of(column: Number | Category) -> Any:
    """How to read a column that a model knows."""
    import pyarrow as pa

    if isinstance(column, Number) or column.number:
        return pa.float64()
    return pa.bool_() if column.boolean else pa.string()


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file."""

    path: Path

    def read(self) -> Part:
        import pyarrow.parquet as parquet

        with in_words(self.path):
            table = parquet.ParquetFile(self.path).read()
        return Part(not_empty(table, self.path))

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        return part

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        import pyarrow.parquet as parquet

        with in_words(self.path), parquet.ParquetFile(self.path, pre_buffer=False) as file:
            names = file.schema_arrow.names
            wanted = {*columns_of(preprocessing, self.path, names), *beside}
            include = [name for name in names if name in wanted]
            yield from as_parts(file.iter_batches(at_once(ROWS_AT_ONCE, len(include)), columns=include), include)


@dataclass(frozen=True)
class ArrowTable:
    """An Arrow file or stream, also known as Feather."""

    path: Path

    def read(self) -> Part:
        with in_words(self.path), self._open() as reader:
            return Part(not_empty(reader.read_all(), self.path))

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        return part

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        with in_words(self.path), self._open() as reader:
            wanted = {*columns_of(preprocessing, self.path, reader.schema.names), *beside}
            include = [name for name in reader.schema.names if name in wanted]
            count = getattr(reader, "num_record_batches", None)
            batches = reader if count is None else (reader.get_batch(index) for index in range(count))
            yield from as_parts((batch.select(include) for batch in batches), include)

    def _open(self) -> Any:
        import pyarrow as pa

        file = pa.memory_map(str(self.path))
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        return pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)


def as_parts(batches: Any, include: Sequence[str]) -> Iterator[Part]:
    """Batches as parts of a bounded number of rows; at least one, so that lacking columns are noticed."""
    import pyarrow as pa

    first, rows = 0, at_once(ROWS_AT_ONCE, len(include))
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            table = pa.Table.from_batches([batch.slice(start, rows)])
            yield Part(table, first)
            first += table.num_rows
    if not first:
        yield Part(pa.table({name: [] for name in include}))


def columns_of(preprocessing: Preprocessing, path: Path, there: Sequence[str]) -> dict[str, Any]:
    """The columns that are read, by name, if they are there."""
    if not isinstance(preprocessing, TablePreprocessing):
        raise InputError(f"The model was trained on an array or on images, but {path} is a table.")
    preprocessing.check_there(there)
    return {column.name: column for column in preprocessing.columns}


def not_empty(table: Any, path: Path) -> Any:
    if not table.num_rows:
        raise InputError(f"{path} has no rows.")
    check_distinct(path, table.column_names)
    return table


@contextmanager
def in_words(path: Path, names: Sequence[str] = ()) -> Iterator[None]:
    """What pyarrow finds wrong with a file, as our error; columns that it counts are called by their names."""
    import pyarrow as pa

    def called(match: re.Match[str]) -> str:
        index = int(match[1])
        return f"column {names[index]!r}" if index < len(names) else match[0]

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, EOFError, OSError) as error:
        reason = re.sub(r"CSV column #(\d+)", called, str(error))
        if re.search(r"Expected \d+ columns", reason):
            reason += f". (If another character stands between values, name it: {option('delimiter')}.)"
        raise InputError(f"{path} cannot be read: {reason}") from error
