"""Tables in files, by pyarrow: CSV and its kin, Parquet, Feather."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pollux.errors import InputError
from pollux.files.source import Part
from pollux.preprocessing import Category, Preprocessing, TablePreprocessing

ROWS_AT_ONCE = 65_536
_HEAD_BYTES = 65_536
_DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class CsvTable:
    """A text file of delimited values.

    The delimiter is guessed from the first line; with semicolons, a decimal comma from the numbers. Without a header
    columns are called column_0, column_1, … ``missing_marks`` stand for a missing value, beside the usual ones, and
    ``text`` names columns whose values are text though they look like numbers.
    """

    path: Path
    delimiter: str | None = None
    header: bool = True
    missing_marks: tuple[str, ...] = ()
    text: tuple[str, ...] = ()

    def read(self) -> Part:
        import pyarrow as pa
        import pyarrow.csv as arrow_csv

        with _in_words(self.path):
            table = arrow_csv.read_csv(self._open(), **self._options(dict.fromkeys(self.text, pa.string())))
        binary = [field.name for field in table.schema if pa.types.is_binary(field.type)]
        if binary:
            raise InputError(f"{self.path} is not UTF-8 text: see column {binary[0]!r}. {_TO_UTF8}")
        if not table.num_rows:
            raise InputError(f"{self.path} has a header but no rows.")
        return Part(table)

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        import pyarrow as pa
        import pyarrow.csv as arrow_csv

        columns = _columns_of(preprocessing, self.path)
        types = {name: pa.string() for name in beside} | {
            name: pa.float64() if not isinstance(column, Category) else pa.bool_() if column.boolean else pa.string()
            for name, column in columns.items()
        }
        there = self._names()
        # Columns that are lacking are named by the preprocessing, which knows what it needs.
        include = [name for name in there if name in types]
        with _in_words(self.path):
            reader = arrow_csv.open_csv(self._open(), **self._options(types, include))
            yield from _parts(reader, include)

    def _open(self) -> Any:
        import pyarrow as pa

        return pa.input_stream(str(self.path))

    def _options(self, types: Mapping[str, Any], include: Sequence[str] = ()) -> dict[str, Any]:
        import pyarrow.csv as arrow_csv

        head = self._head()
        delimiter = self._delimiter(head)
        usual = arrow_csv.ConvertOptions().null_values
        return {
            "read_options": arrow_csv.ReadOptions(
                column_names=self._names(), skip_rows=int(self.header), block_size=4_000_000
            ),
            "parse_options": arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values='"' in head),
            "convert_options": arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=include,
                null_values=[*usual, *self.missing_marks],
                strings_can_be_null=True,
                decimal_point="," if delimiter == ";" and _DECIMAL_COMMA.search(head) else ".",
            ),
        }

    def _head(self) -> str:
        with _in_words(self.path), self._open() as stream:
            head = stream.read(_HEAD_BYTES)
        if not head.strip():
            raise InputError(f"{self.path} is empty.")
        if b"\0" in head:
            raise InputError(f"{self.path} is not a text file of comma-separated values.")
        try:
            # The last character may have been cut in two.
            return str(head[: head.rfind(b"\n") if b"\n" in head else None].decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path} is not UTF-8 text. {_TO_UTF8}") from error

    def _delimiter(self, head: str) -> str:
        unquoted = re.sub(r'"[^"]*"', "", head.splitlines()[0])
        # That of the training data, where this file has it too.
        if self.delimiter is not None and self.delimiter in unquoted:
            return self.delimiter
        if {".tsv", ".tab"} & set(self.path.suffixes):
            return "\t"
        return max(_DELIMITERS, key=unquoted.count)

    def _names(self) -> list[str]:
        head = self._head()
        first = next(csv.reader(head.splitlines(), delimiter=self._delimiter(head)))
        if not self.header:
            return [f"column_{index}" for index in range(len(first))]
        if all(_NUMBER.fullmatch(name.strip()) for name in first):
            raise InputError(
                f"The first line of {self.path} holds numbers, not names of columns: add a line of names, or pass "
                f"--no-header."
            )
        names = [name.strip() or f"unnamed_{index}" for index, name in enumerate(first)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"{self.path} has more than one column called {', '.join(map(repr, twice))}: rename them.")
        return names


_NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?")
_DECIMAL_COMMA = re.compile(r"(^|;)\"?[-+]?\d+,\d+\"?(;|$)", re.MULTILINE)
_TO_UTF8 = "Convert it, for instance with: iconv -f WINDOWS-1252 -t UTF-8 OLD.csv > NEW.csv"


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file."""

    path: Path

    def read(self) -> Part:
        import pyarrow.parquet as parquet

        with _in_words(self.path):
            table = parquet.ParquetFile(self.path).read()
        return Part(_not_empty(table, self.path))

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        import pyarrow.parquet as parquet

        wanted = [*_columns_of(preprocessing, self.path), *beside]
        with _in_words(self.path), parquet.ParquetFile(self.path, pre_buffer=False) as file:
            include = [name for name in file.schema_arrow.names if name in wanted]
            yield from _parts(file.iter_batches(ROWS_AT_ONCE, columns=include), include)


@dataclass(frozen=True)
class ArrowTable:
    """An Arrow file or stream, also known as Feather."""

    path: Path

    def read(self) -> Part:
        with _in_words(self.path), self._open() as reader:
            return Part(_not_empty(reader.read_all(), self.path))

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        wanted = [*_columns_of(preprocessing, self.path), *beside]
        with _in_words(self.path), self._open() as reader:
            include = [name for name in reader.schema.names if name in wanted]
            count = getattr(reader, "num_record_batches", None)
            batches = reader if count is None else (reader.get_batch(index) for index in range(count))
            yield from _parts((batch.select(include) for batch in batches), include)

    def _open(self) -> Any:
        import pyarrow as pa

        file = pa.memory_map(str(self.path))
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        return pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)


def _parts(batches: Any, include: Sequence[str]) -> Iterator[Part]:
    """Batches as parts of a bounded number of rows; at least one, so that lacking columns are noticed."""
    import pyarrow as pa

    first = 0
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            table = pa.Table.from_batches([batch.slice(start, ROWS_AT_ONCE)])
            yield Part(table, first)
            first += table.num_rows
    if not first:
        yield Part(pa.table({name: [] for name in include}))


def _columns_of(preprocessing: Preprocessing, path: Path) -> dict[str, Any]:
    if not isinstance(preprocessing, TablePreprocessing):
        raise InputError(f"The model was trained on an array or on images, but {path} is a table.")
    return {column.name: column for column in preprocessing.columns}


def _not_empty(table: Any, path: Path) -> Any:
    if not table.num_rows:
        raise InputError(f"{path} has no rows.")
    names = table.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{path} has more than one column called {', '.join(map(repr, twice))}: rename them.")
    return table


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """What pyarrow finds wrong with a file, as our error."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
