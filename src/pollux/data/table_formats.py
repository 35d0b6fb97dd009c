"""Formats of files that hold tables, by pyarrow: Parquet and Feather. CSV and its kin are in ``delimited``."""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from pollux.data.arrow import kind_of
from pollux.data.encoding import TableEncoding
from pollux.data.sources import check_distinct
from pollux.errors import InputError, option


class TableFile(ABC):
    """One file of a table, in one format."""

    @property
    @abstractmethod
    def kinds(self) -> dict[str, str]:
        """Of the columns, by name: "integer", "text", …"""

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return list(self.kinds)

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """The rows of each block."""

    @abstractmethod
    def read(self) -> Any:
        """The whole table."""

    @abstractmethod
    def read_block(self, block: int, names: Sequence[str]) -> Any:
        """Columns of a block."""

    @abstractmethod
    def batches(self, names: Sequence[str], encoding: TableEncoding, rows: int) -> Iterator[Any]:
        """Columns of all rows in record batches of about so many rows, read as the encoding needs them."""

    def text(self, names: Sequence[str]) -> Any | None:
        """Columns as they are written; None where the format keeps types."""
        return None

    @abstractmethod
    def where(self, block: int, row: int | None) -> str:
        """The place of a block or a row in the file."""


@dataclass(frozen=True)
class ParquetFile(TableFile):
    """A Parquet file; its blocks are its row groups."""

    path: Path

    @cached_property
    def kinds(self) -> dict[str, str]:
        with in_words(self.path):
            schema = self._footer.schema.to_arrow_schema()
        check_distinct(self.path, schema.names)
        return {field.name: kind_of(field.type) for field in schema}

    @cached_property
    def lengths(self) -> list[int]:
        return [self._footer.row_group(group).num_rows for group in range(self._footer.num_row_groups)]

    @property
    def _footer(self) -> Any:
        with in_words(self.path):
            # By the time of its last change too, so that a file that is written anew is read anew.
            return _read_footer(self.path, self.path.stat().st_mtime_ns)

    def read(self) -> Any:
        import pyarrow.parquet as parquet

        with in_words(self.path), parquet.ParquetFile(self.path) as opened:
            table = opened.read()
        check_distinct(self.path, table.column_names)
        return table

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        import pyarrow.parquet as parquet

        # One thread and no buffers ahead, since cores and memory belong to whoever computes beside.
        with in_words(self.path), parquet.ParquetFile(self.path, metadata=self._footer, pre_buffer=False) as opened:
            return opened.read_row_group(block, columns=list(names), use_threads=False)

    def batches(self, names: Sequence[str], encoding: TableEncoding, rows: int) -> Iterator[Any]:
        import pyarrow.parquet as parquet

        with in_words(self.path), parquet.ParquetFile(self.path, pre_buffer=False) as opened:
            yield from opened.iter_batches(rows, columns=list(names))

    def where(self, block: int, row: int | None) -> str:
        return f"row group {block}" if row is None else f"row group {block}, row {row}"


@lru_cache(maxsize=64)
def _read_footer(file: Path, changed: int) -> Any:
    import pyarrow.parquet as parquet

    return parquet.read_metadata(file)


@dataclass(frozen=True)
class ArrowFile(TableFile):
    """An Arrow file or stream, also known as Feather; its blocks are its record batches.

    A stream has no list of its batches: to be read in blocks it is copied.
    """

    path: Path

    @cached_property
    def _schema(self) -> Any:
        with in_words(self.path), self._open() as reader:
            check_distinct(self.path, reader.schema.names)
            return reader.schema

    @property
    def kinds(self) -> dict[str, str]:
        return {field.name: kind_of(field.type) for field in self._schema}

    @property
    def lengths(self) -> list[int]:
        return self._indexed.lengths

    @cached_property
    def _indexed(self) -> IndexedBatches:
        with in_words(self.path):
            with self._open() as reader:
                if not hasattr(reader, "num_record_batches"):
                    return copy_batches(reader, reader.schema)
            return IndexedBatches(self.path)

    def read(self) -> Any:
        with in_words(self.path), self._open() as reader:
            table = reader.read_all()
        check_distinct(self.path, table.column_names)
        return table

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        with in_words(self.path):
            return as_table(self._indexed.batch(block)).select(list(names))

    def batches(self, names: Sequence[str], encoding: TableEncoding, rows: int) -> Iterator[Any]:
        with in_words(self.path), self._open() as reader:
            count = getattr(reader, "num_record_batches", None)
            batches = reader if count is None else (reader.get_batch(index) for index in range(count))
            yield from (batch.select(list(names)) for batch in batches)

    def where(self, block: int, row: int | None) -> str:
        return f"record batch {block}" if row is None else f"record batch {block}, row {row}"

    def _open(self) -> Any:
        import pyarrow as pa

        file = pa.memory_map(str(self.path))
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        return pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)


class IndexedBatches:
    """The record batches of an Arrow file by number; they are read, not mapped, so that they do not count as memory."""

    def __init__(self, path: Path, lengths: list[int] | None = None) -> None:
        import pyarrow as pa

        self._reader = pa.ipc.open_file(pa.OSFile(str(path)))
        # One thread reads ahead, and another may look at a sample.
        self._lock = Lock()
        self.lengths = _lengths(path) if lengths is None else lengths

    def batch(self, index: int) -> Any:
        with self._lock:
            return self._reader.get_batch(index)


def copy_batches(batches: Iterable[Any], schema: Any) -> IndexedBatches:
    """Record batches in a temporary Arrow file, which is gone when nothing reads it any more."""
    import pyarrow as pa

    descriptor, name = tempfile.mkstemp(prefix="pollux-", suffix=".arrow")
    os.close(descriptor)
    path, lengths = Path(name), []
    try:
        with pa.OSFile(name, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                if batch.num_rows:
                    _write(writer, batch)
                    lengths.append(batch.num_rows)
        found = IndexedBatches(path, lengths)
    except BaseException:
        path.unlink()
        raise
    try:
        # What is open stays readable, and nothing is left behind, however this process ends.
        path.unlink()
    except OSError:
        weakref.finalize(found, path.unlink, missing_ok=True)
    return found


def _lengths(path: Path) -> list[int]:
    """The rows of each record batch, for which one column is enough."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=[0]))
        return [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]


def _write(writer: Any, batch: Any) -> None:
    try:
        writer.write_batch(batch)
    except OSError as error:
        folder = tempfile.gettempdir()
        raise InputError(
            f"To be streamed, rows are copied to {folder}, which failed: {error}. Name a folder with more room, by the "
            f"environment variable TMPDIR."
        ) from error


def as_table(batch: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


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
