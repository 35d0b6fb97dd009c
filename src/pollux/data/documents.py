"""Tables that are read as a whole: JSON, as lines or as a list of records, Excel sheets, databases."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from pollux.data.arrow import kind_of, quoted
from pollux.data.encoding import TableEncoding
from pollux.data.sources import FORMATS, check_columns, check_room, deduplicate_names, room_bytes, suffix_of
from pollux.data.table_files import TableFile
from pollux.errors import DAMAGE, InputError, option

_MOST_BYTES = 1_000_000_000
# Bytes of memory for a byte of text that is read as a whole, and for a value of a database.
_BYTES_OF_A_BYTE, _BYTES_OF_A_VALUE = 10, 100
# Highest compression ratio of deflate; and bytes that are unpacked at a time.
_MOST_PACKED, _PIECE = 1_032, 1_000_000
_VALUES_AT_ONCE = 1_000_000
_SHAPES = (
    "A table is a list of objects, an object on each line, an object of lists of one length, or an object of objects "
    "with the same keys."
)
# Fewer objects in an object, of fewer keys, may be those of a single record; so many that differ are not.
_FEWEST_OBJECTS, _FEWEST_KEYS, _MOST_OBJECTS = 3, 10, 50


@dataclass(frozen=True)
class DocumentFile(TableFile):
    """A JSON file of records, a sheet of a workbook, or rows of a database; kept in memory.

    ``sql`` is the query of a database; a database of a single table needs none. ``sheet`` is by default the first one
    that has rows.
    """

    path: Path
    sql: str | None = None
    sheet: str | None = None

    @cached_property
    def _table(self) -> Any:
        suffix, _ = suffix_of(self.path)
        if suffix in FORMATS["database"]:
            table = _read_database(self.path, self.sql)
            check_columns(self.path, table.column_names)
            return table
        columns = self._read_sheet() if suffix in FORMATS["Excel"] else _read_json(self.path)
        check_columns(self.path, list(columns))
        return pa.table({name: _as_column(values) for name, values in columns.items()})

    @cached_property
    def _sheets(self) -> dict[str, list[list[Any]]]:
        """The sheets of a workbook that have rows."""
        try:
            import python_calamine
        except ImportError as error:
            raise InputError(
                f"{self.path}: Excel files are read by python-calamine: pip install 'pollux[excel]'; or save the sheet "
                "as CSV."
            ) from error
        try:
            if zipfile.is_zipfile(self.path):
                _check_unpacked(self.path)
            workbook = python_calamine.CalamineWorkbook.from_path(str(self.path))
            named = [name for name in workbook.sheet_names if self.sheet in (None, name)] or workbook.sheet_names
            sheets = {name: workbook.get_sheet_by_name(name).to_python() for name in named}
        except InputError:
            raise
        except (python_calamine.CalamineError, OSError, *DAMAGE) as error:
            raise InputError(f"{self.path} cannot be read as an Excel file: {error}") from error
        return {name: rows for name, rows in sheets.items() if len(rows) > 1}

    def _read_sheet(self) -> dict[str, list[Any]]:
        if not self._sheets:
            raise InputError(f"{self.path} has no rows.")
        if self.sheet is not None and self.sheet not in self._sheets:
            there = ", ".join(map(repr, self._sheets))
            raise InputError(f"{self.path} has no sheet {self.sheet!r} with rows. There are: {there}.")
        header, *body = self._sheets[self.sheet or next(iter(self._sheets))]
        names = deduplicate_names(str(name).strip() or f"unnamed_{index}" for index, name in enumerate(header))
        return {name: [row[index] if row[index] != "" else None for row in body] for index, name in enumerate(names)}

    def note(self) -> str:
        if suffix_of(self.path)[0] not in FORMATS["Excel"] or self.sheet is not None or len(self._sheets) < 2:
            return ""
        first, *others = self._sheets
        there, instead = ", ".join(map(repr, others)), option("array", others[0])
        return f"is read from its sheet {first!r}; there are also {there} (to read another: {instead})"

    @property
    def kinds(self) -> dict[str, str]:
        return {field.name: kind_of(field.type) for field in self._table.schema}

    @property
    def lengths(self) -> list[int]:
        return [self._table.num_rows]

    def read(self) -> Any:
        return self._table

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        return self._table.select(list(names))

    def batches(self, names: Sequence[str], encoding: TableEncoding, rows: int) -> Iterator[Any]:
        yield from self._table.select(list(names)).combine_chunks().to_batches(max_chunksize=rows)

    def where(self, block: int, row: int | None) -> str:
        return "the table" if row is None else f"row {row}"


def _most_bytes() -> int:
    return min(_MOST_BYTES, room_bytes() // _BYTES_OF_A_BYTE)


def _too_large(path: Path) -> InputError:
    return InputError(
        f"{path} holds more than {_most_bytes() / 1e9:.1f} GB of text, unpacked. Such a file is read as a whole, which "
        f"takes many times that memory: make it a CSV or Parquet file, which are read in parts."
    )


def _read_json(path: Path) -> dict[str, list[Any]]:
    """Columns of a list of objects, of objects that follow each other, or of one object of lists or of alike objects.

    Objects within a record become columns of their own, such as medals.gold.
    """
    try:
        with pa.input_stream(str(path)) as stream:
            content = stream.read_buffer(_most_bytes() + 1).to_pybytes()
        if len(content) > _most_bytes():
            raise _too_large(path)
        text = content.decode("utf-8-sig")
        try:
            found = json.loads(text)
            if suffix_of(path)[0] == ".json":
                found = _split_rows(found) or _alike_rows(found) or found
        except json.JSONDecodeError:
            # Not splitlines, which also splits at characters that may occur within a text.
            found = [json.loads(line) for line in re.split(r"[\r\n]+", text) if line.strip()]
    except InputError:
        raise
    except (ValueError, RecursionError, OSError, EOFError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if isinstance(found, dict) and found and all(isinstance(values, list) for values in found.values()):
        if len({len(values) for values in found.values()}) > 1:
            raise InputError(f"{path} holds lists of different lengths: these are no columns.")
        return found
    # Web services often wrap the records in an object.
    lists = [values for values in found.values() if isinstance(values, list)] if isinstance(found, dict) else [found]
    records = lists[0] if len(lists) == 1 else [found]
    if not isinstance(records, list) or not records or not all(isinstance(record, dict) for record in records):
        raise InputError(f"{path} holds no rows, but {_shape_of(found)}. {_SHAPES}")
    if records == [found] and len(found) >= _MOST_OBJECTS and all(isinstance(value, dict) for value in found.values()):
        raise InputError(f"{path} holds an object of {len(found):,} objects whose keys differ: no rows. {_SHAPES}")
    try:
        flat = [dict(_flatten(record)) for record in records]
    except RecursionError as error:
        raise InputError(f"{path} holds objects within objects without end: these are no columns.") from error
    names = dict.fromkeys(name for record in flat for name in record)
    return {name: [record.get(name) for record in flat] for name in names}


def _split_rows(found: Any) -> list[dict[str, Any]] | None:
    """Records of {"columns": […], "index": […], "data": [[…], …]}, as pandas writes with orient="split"."""
    if not isinstance(found, dict) or not {"columns", "data"} <= set(found) <= {"columns", "index", "data"}:
        return None
    names, rows = found["columns"], found["data"]
    index = found.get("index", range(len(rows)))
    if not all(isinstance(part, list | range) for part in (names, rows, index)) or len(index) != len(rows):
        return None
    if not all(isinstance(row, list) and len(row) == len(names) for row in rows):
        return None
    unique = deduplicate_names(map(str, names))
    return _with_ids([str(key) for key in index], [dict(zip(unique, row, strict=True)) for row in rows])


def _alike_rows(found: Any) -> list[dict[str, Any]] | None:
    """Records of an object of objects with mostly the same keys: of rows by their ids, or of columns by those of rows.

    Numbers count rows, and do not name columns. Else values of a column are of one type, and there are more rows than
    columns.
    """
    if not isinstance(found, dict) or not found or not all(isinstance(each, dict) for each in found.values()):
        return None
    keys = dict.fromkeys(key for each in found.values() for key in each)
    if not keys or 2 * sum(map(len, found.values())) < len(keys) * len(found):
        return None
    has_numbers, within_are_numbers = (all(key.isdecimal() for key in some) for some in (found, keys))
    if has_numbers != within_are_numbers:
        is_by_row = has_numbers
    elif len(found) < _FEWEST_OBJECTS and len(keys) < _FEWEST_KEYS:
        # A single record, of objects.
        return None
    else:
        mixed = sum(map(_is_mixed, (each.values() for each in found.values()))) / len(found)
        mixed_within = sum(_is_mixed(each.get(key) for each in found.values()) for key in keys) / len(keys)
        is_by_row = mixed > mixed_within if mixed != mixed_within else len(found) >= len(keys)
    if is_by_row:
        return _with_ids(list(found), list(found.values()))
    return _with_ids(list(keys), [{name: each.get(key) for name, each in found.items()} for key in keys])


def _is_mixed(values: Iterable[Any]) -> bool:
    kinds = {float if type(value) in (int, bool) else type(value) for value in values if value is not None}
    return len(kinds) > 1


def _with_ids(ids: list[str], records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records with their ids as a first column, unless these only count them."""
    if ids == [str(index) for index in range(len(records))]:
        return records
    taken = {name for record in records for name in record}
    name = "id"
    while name in taken:
        name += "_of_row"
    return [{name: key, **record} for key, record in zip(ids, records, strict=True)]


def _shape_of(found: Any) -> str:
    """What JSON holds, in words."""
    if isinstance(found, dict):
        return f"an object with the keys {quoted(list(found), 5)}"
    if not isinstance(found, list):
        return f"a {'text' if isinstance(found, str) else 'single value'}"
    kinds = {"lists" if isinstance(each, list) else "objects" if isinstance(each, dict) else "values" for each in found}
    return f"a list of {' and '.join(sorted(kinds))}" if found else "an empty list"


def _flatten(record: dict[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{within}{name}.")
        else:
            yield within + name, value


def _check_unpacked(path: Path) -> None:
    """Raise if a compressed file is too large, by its header and, since that may be wrong, by unpacking it."""
    most, total = _most_bytes(), 0
    with zipfile.ZipFile(path) as packed:
        members = packed.infolist()
        if sum(member.file_size for member in members) > most:
            raise _too_large(path)
        for member in members if _MOST_PACKED * sum(each.compress_size for each in members) > most else ():
            member.file_size = sys.maxsize
            with packed.open(member) as file:
                while piece := file.read(_PIECE):
                    total += len(piece)
                    if total > most:
                        raise _too_large(path)


def _read_database(path: Path, sql: str | None) -> Any:
    """The result of a query of SQLite or DuckDB, which cannot write anything."""
    with path.open("rb") as file:
        is_sqlite = file.read(16) == b"SQLite format 3\0"
    return _query_sqlite(path, sql) if is_sqlite else _query_duckdb(path, sql)


def _only_table(path: Path, tables: list[str]) -> str:
    """A query for all rows of the only table."""
    if len(tables) != 1:
        found = f"has the tables {quoted(tables)}" if tables else "has no tables"
        raise InputError(f"{path} {found}: say what to read, {option('sql', 'SELECT … FROM …')}.")
    name = tables[0].replace('"', '""')
    return f'SELECT * FROM "{name}"'


def _query_sqlite(path: Path, sql: str | None) -> Any:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        # Read-only mode protects this file alone: ATTACH and VACUUM INTO could create others.
        connection.set_authorizer(_allow_reading)
        # So that Ctrl-C is handled while a query runs.
        connection.set_progress_handler(lambda: 0, 1_000_000)
        listed = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
        sql = sql or _only_table(path, [name for (name,) in connection.execute(listed)])
        cursor = connection.execute(sql)
        if cursor.description is None:
            raise InputError(f"{path}: the query gives no rows, it must be a SELECT: {sql}")
        names = [each[0] for each in cursor.description]
        check_columns(path, names)
        rows: list[Any] = []
        while some := cursor.fetchmany(_VALUES_AT_ONCE // len(names) + 1):
            rows += some
            # A query, or a view in the file, may return rows without end.
            needed = _BYTES_OF_A_VALUE * len(rows) * len(names)
            check_room(f"{path}: the first {len(rows):,} rows of {sql!r}", needed, "ask for fewer, LIMIT …")
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise InputError(f"{path} cannot be read by {sql!r}: {error}.") from error
    finally:
        connection.close()
    return pa.table({name: _as_column(list(values)) for name, values in zip(names, columns, strict=True)})


def _allow_reading(action: int, _: str | None, name: str | None, *where: str | None) -> int:
    """Authorise an action of an SQLite query; ``name`` is the function if it calls one."""
    reads = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
    calls = action == sqlite3.SQLITE_FUNCTION and (name or "").lower() != "load_extension"
    return sqlite3.SQLITE_OK if reads or calls else sqlite3.SQLITE_DENY


def _query_duckdb(path: Path, sql: str | None) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise InputError(
            f"{path} is no SQLite database; those of DuckDB are read by duckdb: pip install duckdb."
        ) from error
    try:
        # A query may neither write nor read other files.
        how = {"enable_external_access": "false"}
        with duckdb.connect(str(path), read_only=True, config=how) as connection:
            listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
            sql = sql or _only_table(path, [name for (name,) in connection.execute(listed).fetchall()])
            found = connection.sql(sql)
            if found is None:
                raise InputError(f"{path}: the query gives no rows, it must be a SELECT: {sql}")
            return found.to_arrow_table()
    except duckdb.Error as error:
        raise InputError(f"{path} cannot be read by {sql!r}: {str(error).splitlines()[0]}.") from error


def _as_column(values: list[Any]) -> Any:
    """An Arrow column; integers that are stored as floats become integers, and mixed types become text."""
    values = [None if value != value else value for value in values]
    if all(value is None or (type(value) is float and value.is_integer() and abs(value) < 2**53) for value in values):
        values = [None if value is None else int(value) for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values])
