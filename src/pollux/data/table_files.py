"""Tables in a file, or in all files of a folder, by pyarrow: Parquet and Feather; for CSV see ``delimited``."""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from pollux.data.arrow import VECTOR, is_nested, kind_of, plain_size, same_kind, split_nested
from pollux.data.arrow_messages import BatchSizes, measure_batches
from pollux.data.encoding import Encoding, TableEncoding
from pollux.data.sources import (
    FORMATS,
    Blocks,
    FileVersion,
    Part,
    Reading,
    Source,
    at_once,
    check_columns,
    check_room,
    is_hidden,
    room_bytes,
    suffix_of,
)
from pollux.errors import InputError, counted, option

ROWS_AT_ONCE = 65_536


class TableFiles(Source):
    """A table in one file, or in the files of a folder and its subfolders, ordered by path.

    The files of a folder have the same columns. Folders such as ``year=2024``, also parent folders, give their files a
    further column, unless they have it themselves.
    """

    def __init__(self, path: Path, files: Sequence[Path], reading: Reading) -> None:
        self.path, self.files, self.reading = path, tuple(files), reading
        # Recorded when blocks are listed: from then on files must not change.
        self.versions: list[FileVersion] = []

    @cached_property
    def opened(self) -> list[TableFile]:
        return [_open_file(file, self.reading) for file in self.files]

    def read(self) -> Part:
        tables = []
        for index, file in enumerate(self.opened):
            with in_words(file.path):
                table = file.read()
            check_columns(file.path, table.column_names)
            tables.append(self.with_partitions(index, table))
        whole = tables[0]
        some = [index for index, table in enumerate(tables) if table.num_rows]
        if len(tables) > 1 and some:
            kinds = [{field.name: kind_of(field.type) for field in tables[index].schema} for index in some]
            names = list(_same_kinds(kinds, [self.files[index] for index in some]))
            with in_words(self.path):
                whole = pa.concat_tables([tables[index].select(names) for index in some], promote_options="permissive")
        if not whole.num_rows:
            raise self.lacks_rows()
        return Part(whole)

    def lacks_rows(self) -> InputError:
        """The error if there are no rows."""
        if self.reading.sql:
            return InputError(f"The query ({option('sql')}) gave no rows of {self.path}: correct it.")
        return InputError(f"{self.path} has no rows.")

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        others = [name for name in names if not pa.types.is_string(part.rows.schema.field(name).type)]
        others = [name for name in others if name in self.opened[0].names]
        texts = [file.text(others) for file in self.opened] if others else []
        if any(text is None for text in texts) or not texts:
            return part
        text = pa.concat_tables(texts).take(numbers)
        return Part(replace_columns(part.rows, {name: text.column(name) for name in others}), part.first)

    def stream(self, encoding: Encoding, beside: Sequence[str]) -> Iterator[Part]:
        if not isinstance(encoding, TableEncoding):
            raise InputError(f"The model was trained on an array or on images, but {self.path} is a table.")
        first = 0
        include: list[str] = []
        for index, file in enumerate(self.opened):
            self.check_unchanged(index)
            with in_words(file.path):
                names = [*file.names, *self.partitions(index)]
            encoding.check_names(names)
            wanted = {*encoding.names, *beside}
            # In a folder, the order of columns is that of the first file.
            include = include or [name for name in names if name in wanted]
            of_file = set(file.names)
            own = [name for name in include if name in of_file]
            rows = at_once(ROWS_AT_ONCE, len(include))
            with in_words(file.path):
                for batch in file.batches(own, encoding, rows) if own else ():
                    for start in range(0, batch.num_rows, rows):
                        some = pa.Table.from_batches([batch.slice(start, rows)])
                        yield Part(self.with_partitions(index, some).select(include), first)
                        first += some.num_rows
            self.check_unchanged(index)
        if not first:
            # Yield at least one part, so that missing columns are noticed.
            yield Part(pa.table({name: [] for name in include}))

    def blocks(self) -> TableBlocks:
        self.versions = self.versions or [FileVersion(file, len(self.files)) for file in self.files]
        return TableBlocks(self)

    def names(self) -> list[str]:
        return [*self.opened[0].names, *self.partitions(0)]

    @property
    def has_decimal_comma(self) -> bool:
        return any(file.has_decimal_comma for file in self.opened)

    def notes(self) -> list[str]:
        notes = [f"{file.path.name} {note}" for file in self.opened if (note := file.note())]
        if self.path.is_dir() and (others := self._others()):
            more = len(self.files) - 1
            read = f"{self.files[0].name} and {more:,} more are" if more else f"{self.files[0].name} is"
            listed = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
            unread = counted(len(others), "file")
            notes.append(f"of the folder {self.path.name}, {read} read, and not {unread} of other formats: {listed}")
        return notes

    def _others(self) -> list[str]:
        """Files of data in the folder of another format than those that are read, without those of runs."""
        endings, read = {ending for each in FORMATS.values() for ending in each} - {".txt"}, set(self.files)
        found = (file for file in sorted(self.path.rglob("*")) if suffix_of(file)[0] in endings and file not in read)
        data = (file for file in found if not is_hidden(file, self.path) and not (file.parent / "run.toml").exists())
        return [os.fsencode(each.relative_to(self.path)).decode(errors="backslashreplace") for each in data]

    def check_unchanged(self, index: int) -> None:
        """Raise an InputError if a file has changed since its blocks were listed."""
        if self.versions:
            self.versions[index].check()

    def size_in_memory(self) -> int:
        size = 0
        for file in self.opened:
            with in_words(file.path):
                size += file.size_in_memory()
        return size

    @cached_property
    def _values(self) -> dict[str, Any]:
        """For each key of folders such as ``key=value``, the values of all files: integers, or text."""
        import pyarrow.dataset as ds

        # A single partition folder also has its value as a column, so that a model trained on all of them can read it.
        top = (self.path if self.path.is_dir() else self.path.parent).absolute()
        while "=" in top.name[1:]:
            top = top.parent
        below = [file.absolute() for file in self.files if file.absolute().is_relative_to(top)]
        relative = [file.relative_to(top).parent for file in below] if len(below) == len(self.files) else []
        keys = dict.fromkeys(part.split("=")[0] for folder in relative for part in folder.parts if "=" in part[1:])
        scheme = ds.partitioning(pa.schema([(key, pa.string()) for key in keys]), flavor="hive")
        parsed = [ds.get_partition_keys(scheme.parse(f"{folder.as_posix()}/")) if keys else {} for folder in relative]
        found: dict[str, Any] = {}
        for key in keys:
            found[key] = pa.array([values.get(key) for values in parsed], pa.string())
            try:
                found[key] = found[key].cast(pa.int64())
            except pa.ArrowInvalid:
                continue
        return found

    def partitions(self, index: int) -> dict[str, Any]:
        """Scalars of the columns that a file only has by its folders."""
        names = self.opened[index].names if self._values else ()
        return {key: values[index] for key, values in self._values.items() if key not in names}

    def with_partitions(self, index: int, table: Any) -> Any:
        """A table of a file with the columns given by its folders."""
        for key, value in self.partitions(index).items():
            table = table.append_column(key, pa.repeat(value, table.num_rows))
        return table


class TableBlocks(Blocks):
    """The blocks of the files of a table, without empty ones."""

    def __init__(self, source: TableFiles) -> None:
        self.source, self.path = source, source.path
        places, kinds, files = [], [], []
        for index, file in enumerate(source.opened):
            with in_words(file.path):
                own = [(index, block, rows) for block, rows in enumerate(file.lengths) if rows]
                if own:
                    further = {name: kind_of(value.type) for name, value in source.partitions(index).items()}
                    kinds.append({**file.kinds, **further})
                    files.append(file.path)
            places += own
        if not places:
            raise source.lacks_rows()
        # (3, c): the file of each block, its index there, and its rows.
        self._places: NDArray[np.int64] = np.array(places, dtype=np.int64).T.copy()
        self.lengths = self._places[2]
        self.kinds = _same_kinds(kinds, files)
        self.names = list(self.kinds)

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        index, number, _ = (int(value) for value in self._places[:, block])
        file, further = self.source.opened[index], self.source.partitions(index)
        self.source.check_unchanged(index)
        with in_words(file.path):
            table = file.read_block(number, [name for name in names if name not in further])
        self.source.check_unchanged(index)
        return self.source.with_partitions(index, table).select(list(names))

    def where(self, block: int, row: int | None = None) -> str:
        index, number, _ = (int(value) for value in self._places[:, block])
        return f"{self.source.files[index]}, {self.source.opened[index].where(number, row)}"

    def identity(self) -> Any:
        root = self.path if self.path.is_dir() else self.path.parent
        reading = self.source.reading
        files = [(str(version.path.relative_to(root)), version.digest) for version in self.source.versions]
        how = [reading.delimiter, reading.header, list(reading.na)]
        return [files, [*how, *filter(None, [reading.encoding, reading.sql, reading.array])]]

    def __reduce__(self) -> Any:
        """Pickle without open files: they are opened again when needed."""
        return TableFiles.blocks, (TableFiles(self.path, self.source.files, self.source.reading),)


def replace_columns(table: Any, columns: dict[str, Any]) -> Any:
    """The table with some of its columns replaced."""
    every = {name: columns.get(name, table.column(index)) for index, name in enumerate(table.column_names)}
    return pa.table(every)


def _same_kinds(every: Sequence[dict[str, str]], files: Sequence[Path]) -> dict[str, str]:
    """The kinds of the columns of files; an InputError if they cannot be of one table."""
    found, first = dict(every[0]), files[0]
    for kinds, file in zip(every[1:], files[1:], strict=True):
        absent, further = [name for name in found if name not in kinds], [name for name in kinds if name not in found]
        if absent or further:
            has, lacks, name = (first, file, absent[0]) if absent else (file, first, further[0])
            raise InputError(f"All files of a folder must have the same columns: {has} has {name!r}, {lacks} has not.")
        for name, kind in found.items():
            both = same_kind(kind, kinds[name])
            if both is None:
                raise InputError(
                    f"All files of a folder must have the same columns: {name!r} holds {kinds[name]} in {file}, but "
                    f"{kind} in {first}."
                )
            found[name] = both
    return found


class TableFile(ABC):
    """One file of a table, in one format; callers translate the errors of pyarrow."""

    path: Path

    @property
    @abstractmethod
    def kinds(self) -> dict[str, str]:
        """Kinds of the columns by name: "integer", "text", …"""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.kinds)

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """The number of rows in each block."""

    @abstractmethod
    def read(self) -> Any:
        """The whole table."""

    @abstractmethod
    def read_block(self, block: int, names: Sequence[str]) -> Any:
        """Some columns of a block."""

    @abstractmethod
    def batches(self, names: Sequence[str], encoding: TableEncoding, rows: int) -> Iterator[Any]:
        """Columns of all rows in record batches of about ``rows`` rows, with the types that the encoding needs."""

    @property
    def has_decimal_comma(self) -> bool:
        """Whether numbers are written with a decimal comma."""
        return False

    def text(self, names: Sequence[str]) -> Any | None:
        """Columns as text, as written in the file; None if the format has types."""
        return None

    def note(self) -> str:
        """A note for the user about how the file is read."""
        return ""

    @abstractmethod
    def where(self, block: int, row: int | None) -> str:
        """The place of a block or a row in the file, for messages."""

    def size_in_memory(self) -> int:
        """Approximate bytes of the rows as float32: a number has about eight characters of text, or bytes."""
        return self.path.stat().st_size // 2


@dataclass(frozen=True)
class ParquetFile(TableFile):
    """A Parquet file; its blocks are its row groups."""

    path: Path

    @cached_property
    def kinds(self) -> dict[str, str]:
        schema = self._footer.schema.to_arrow_schema()
        check_columns(self.path, schema.names)
        return {field.name: kind_of(field.type) for field in schema}

    @cached_property
    def lengths(self) -> list[int]:
        footer = self._footer
        return [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]

    @property
    def _footer(self) -> Any:
        # Cached by modification time too, so that a file that is rewritten is read again.
        return _read_footer(self.path, self.path.stat().st_mtime_ns)

    def read(self) -> Any:
        # Estimated from the number of values, because a constant column takes no space in the file.
        check_room(f"The rows of {self.path}", 8 * sum(self.lengths) * len(self.names), in_parts())
        with parquet.ParquetFile(self.path, read_dictionary=self._repeated()) as opened:
            return validated(opened.read())

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        instead = "write it anew with smaller ones, pyarrow.parquet.write_table(…, row_group_size=100_000)"
        check_room(f"The rows of row group {block} of {self.path}", 8 * self.lengths[block] * len(names), instead)
        # One thread and no read-ahead, to leave cores and memory to the training.
        how: Any = {"metadata": self._footer, "pre_buffer": False, "read_dictionary": self._repeated(block)}
        with parquet.ParquetFile(self.path, **how) as opened:
            return validated(opened.read_row_group(block, columns=list(names), use_threads=False))

    def batches(self, names: Sequence[str], encoding: TableEncoding, rows: int) -> Iterator[Any]:
        with parquet.ParquetFile(self.path, pre_buffer=False, read_dictionary=self._repeated()) as opened:
            yield from map(validated, opened.iter_batches(rows, columns=list(names)))

    def _repeated(self, block: int | None = None) -> list[str]:
        """Columns of text to read as dictionaries: all, if the rows might not fit in memory otherwise; else none."""
        footer = self._footer
        # Not by column: in a damaged file the size of a column may contradict the rest, which crashes pyarrow.
        groups = [footer.row_group(group) for group in (range(footer.num_row_groups) if block is None else [block])]
        if sum(group.num_rows * group.total_byte_size for group in groups) <= room_bytes():
            return []
        paths = (footer.schema.column(index).path for index in range(footer.num_columns))
        return [name for name in paths if self.kinds.get(name) == "text"]

    def where(self, block: int, row: int | None) -> str:
        return f"row group {block}" if row is None else f"row group {block}, row {row}"

    def size_in_memory(self) -> int:
        return 4 * sum(self.lengths) * len(self.names)


@lru_cache(maxsize=64)
def _read_footer(file: Path, changed: int) -> Any:
    return parquet.read_metadata(file)


@dataclass(frozen=True)
class ArrowFile(TableFile):
    """An Arrow file or stream, also known as Feather; its blocks are its record batches.

    A stream has no index of its batches: to be read in blocks it is copied.
    """

    path: Path

    @cached_property
    def kinds(self) -> dict[str, str]:
        with self._open() as reader:
            check_columns(self.path, reader.schema.names)
            return {field.name: kind_of(field.type) for field in reader.schema}

    @property
    def lengths(self) -> list[int]:
        return self._indexed.lengths

    @cached_property
    def _indexed(self) -> IndexedBatches:
        with self._open() as reader:
            if not hasattr(reader, "num_record_batches"):
                return copy_batches(map(validated, reader), reader.schema)
        return IndexedBatches(self.path, self._measured.rows)

    @cached_property
    def _measured(self) -> BatchSizes:
        try:
            with self.path.open("rb") as file:
                return measure_batches(file)
        except ValueError as error:
            raise InputError(f"{self.path} cannot be read: {error}.") from error

    def read(self) -> Any:
        with self._open() as reader:
            check_room(f"The rows of {self.path}", self._unpacked(len(reader.schema.names)), in_parts())
            return validated(reader.read_all())

    def _unpacked(self, columns: int, batch: int | None = None) -> int:
        """The bytes of a batch, or of all; columns of null values, and of one value, have rows but no buffers."""
        rows, sizes, dictionaries = self._measured
        which = slice(None) if batch is None else slice(batch, batch + 1)
        return max(dictionaries + sum(sizes[which]), 8 * sum(rows[which]) * columns)

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        return self._indexed.read(block, names)

    def batches(self, names: Sequence[str], encoding: TableEncoding, rows: int) -> Iterator[Any]:
        with self._open() as reader:
            count = getattr(reader, "num_record_batches", None)
            batches = reader if count is None else (reader.get_batch(index) for index in range(count))
            yield from (validated(batch).select(list(names)) for batch in batches)

    def where(self, block: int, row: int | None) -> str:
        return f"record batch {block}" if row is None else f"record batch {block}, row {row}"

    def _open(self) -> Any:
        # Not mapped: a file that is truncated while it is read would crash the process.
        file = pa.OSFile(str(self.path))
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        reader = pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)
        columns = len(reader.schema.names)
        unpacked = [self._unpacked(columns, batch) for batch in range(len(self._measured.rows))]
        if unpacked:
            largest = unpacked.index(max(unpacked))
            instead = "write it anew with smaller ones, pyarrow.feather.write_feather(…, chunksize=100_000)"
            check_room(f"The rows of record batch {largest} of {self.path}", unpacked[largest], instead)
        return reader

    def size_in_memory(self) -> int:
        return self._unpacked(len(self.names)) // 2


class NestedFile(TableFile):
    """A file with columns of records or vectors, which are read as one column for each field or entry."""

    def __init__(self, file: TableFile, nested: Sequence[str]) -> None:
        self._file, self.path = file, file.path
        # The kinds of the columns that each column is split into.
        self._columns = {name: {name: kind} for name, kind in file.kinds.items()}
        for name in nested:
            # The first block with values determines the fields of records, and the lengths of vectors.
            for block in range(len(file.lengths)):
                with in_words(self.path):
                    some = file.read_block(block, [name])
                if some.column(name).null_count < some.num_rows:
                    self._columns[name] = {field.name: kind_of(field.type) for field in split_nested(some).schema}
                    break
        split = [part for name in nested for part in self._columns[name]]
        self._widths = Counter(match[1] for part in split if (match := VECTOR.fullmatch(part)))
        check_columns(self.path, [name for parts in self._columns.values() for name in parts])

    @property
    def kinds(self) -> dict[str, str]:
        return {name: kind for parts in self._columns.values() for name, kind in parts.items()}

    @property
    def lengths(self) -> list[int]:
        return self._file.lengths

    def read(self) -> Any:
        return split_nested(self._file.read())

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        rows = self._file.read_block(block, self._unsplit(names))
        try:
            return split_nested(rows, self._widths).select(list(names))
        except InputError as error:
            raise InputError(f"{self.path}, {self.where(block, None)}: {error}") from error

    def batches(self, names: Sequence[str], encoding: TableEncoding, rows: int) -> Iterator[Any]:
        for batch in self._file.batches(self._unsplit(names), encoding, rows):
            yield from split_nested(pa.Table.from_batches([batch]), self._widths).select(list(names)).to_batches()

    def where(self, block: int, row: int | None) -> str:
        return self._file.where(block, row)

    def size_in_memory(self) -> int:
        return 4 * sum(self.lengths) * len(self.names)

    def note(self) -> str:
        return self._file.note()

    def _unsplit(self, names: Sequence[str]) -> list[str]:
        wanted = set(names)
        return [column for column, parts in self._columns.items() if not wanted.isdisjoint(parts)]


def _open_file(path: Path, reading: Reading) -> TableFile:
    suffix, _ = suffix_of(path)
    if suffix in (*FORMATS["CSV"], *FORMATS["TSV"]):
        from pollux.data.delimited import CsvFile

        return CsvFile(path, reading.delimiter, reading.header, reading.na, reading.encoding)
    file: TableFile
    if suffix in FORMATS["Parquet"]:
        file = ParquetFile(path)
    elif suffix in FORMATS["Feather/Arrow"]:
        file = ArrowFile(path)
    else:
        from pollux.data.documents import DocumentFile

        file = DocumentFile(path, reading.sql, reading.array)
    with in_words(path):
        nested = [name for name, kind in file.kinds.items() if is_nested(kind)]
    return NestedFile(file, nested) if nested else file


class IndexedBatches:
    """The record batches of an Arrow file by index; they are read, not mapped, so that they do not count as memory."""

    def __init__(self, path: Path, lengths: list[int]) -> None:
        self._reader = pa.ipc.open_file(pa.OSFile(str(path)))
        # One thread reads ahead, while another may read a sample.
        self._lock = Lock()
        self.lengths = lengths

    def read(self, index: int, names: Sequence[str]) -> Any:
        """Columns of a batch, as a table."""
        with self._lock:
            batch = validated(self._reader.get_batch(index))
        return pa.Table.from_batches([batch]).select(list(names))


def copy_batches(batches: Iterable[Any], schema: Any) -> IndexedBatches:
    """Copy record batches to a temporary Arrow file, which is deleted when nothing reads it any more."""
    descriptor, name = tempfile.mkstemp(prefix="pollux-", suffix=".arrow")
    os.close(descriptor)
    path, lengths = Path(name), []
    try:
        with pa.OSFile(name, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                if not batch.num_rows:
                    continue
                try:
                    writer.write_batch(batch)
                except OSError as error:
                    raise InputError(
                        f"To be streamed, rows are copied to {path.parent}, which failed: {error}. Name a folder with "
                        f"more room, by the environment variable TMPDIR."
                    ) from error
                lengths.append(batch.num_rows)
        found = IndexedBatches(path, lengths)
    except BaseException:
        path.unlink()
        raise
    try:
        # An open file stays readable, and nothing is left behind, however this process ends.
        path.unlink()
    except OSError:
        weakref.finalize(found, path.unlink, missing_ok=True)
    return found


def validated(rows: Any) -> Any:
    """Check that a table or record batch is consistent, and that its text is valid UTF-8.

    pyarrow trusts files: wrong lengths or offsets would crash the process.
    """
    rows.validate()
    for name, values in zip(rows.schema.names, rows.columns, strict=True):
        check_room(f"The texts of column {name!r}", plain_size(values), "leave it out, or shorten them")
    # Last, because it reads a dictionary text as often as it is used.
    rows.validate(full=True)
    return rows


def in_parts() -> str:
    return f"read it in parts, {option('stream', 'yes')}"


@contextmanager
def in_words(path: Path) -> Iterator[None]:
    """Raise errors of pyarrow about a file as InputError."""
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, EOFError, OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None) == errno.ENOSPC or "Error writing bytes to file" in str(error):
            raise InputError(
                f"There is no room for a copy of {path} in {tempfile.gettempdir()}, from which rows are streamed: name "
                "a folder with more room, by the environment variable TMPDIR."
            ) from error
        raise InputError(f"{path} cannot be read: {error}") from error
