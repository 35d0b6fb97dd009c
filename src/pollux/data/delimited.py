"""CSV and similar files: their dialect, and their rows, read by pyarrow."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from pollux.data.arrow import kind_of, quoted
from pollux.data.encoding import Category, ColumnEncoding, Date, Number, TableEncoding
from pollux.data.sources import COMPRESSED, check_columns, check_room, deduplicate_names, room_bytes
from pollux.data.spellings import MILLISECONDS, SECONDS, YEARS, has_codes
from pollux.data.table_files import (
    IndexedBatches,
    TableFile,
    copy_batches,
    in_parts,
    in_words,
    replace_columns,
)
from pollux.errors import InputError, option

DELIMITERS = ",;\t|"
OPEN_QUOTE = "Is a quote opened and not closed? One that stands for itself is written twice, within quotes."

_BLOCK_BYTES = 4_000_000
_FIRST_BYTES, _MOST_BYTES = 65_536, 64_000_000
_MOST_UNPACKED = 2_000_000_000
_NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?")
_JSON = re.compile(r"\s*(\[\s*)?\{\s*(\"[^\"\n]*\"\s*:|\})")
_DECIMAL_COMMA = re.compile(r"(^|;)\"?[-+]?\d+,\d+\"?\r?(;|$)", re.MULTILINE)
_DECIMAL_POINT = re.compile(r"(^|;)\"?[-+]?\d+\.\d+\"?\r?(;|$)", re.MULTILINE)
# A comma that cannot separate thousands, between delimiters.
_CERTAIN_COMMA = r"[-+]?(\d{4,},\d+|0\d*,\d+|\d+,(\d{1,2}|\d{4,}))"
_THOUSANDS = r"^\s*[-+]?[1-9]\d{0,2}(\.\d{3})+\s*$"


@dataclass(frozen=True)
class CsvFile(TableFile):
    """A text file of delimited values; texts of ``na`` count as missing, beside the usual ones.

    The beginning of a row is only known after reading all before it. To be read in blocks by number, rows are therefore
    copied to a temporary Arrow file: the first pass over the text finds the types of the columns, the second copies.
    """

    path: Path
    delimiter: str | None = None
    header: bool = True
    na: tuple[str, ...] = ()
    encoding: str | None = None

    @cached_property
    def _dialect(self) -> Dialect:
        return look(self.path, self._open, self.delimiter, self.header, self._encoding)

    @cached_property
    def _encoding(self) -> str:
        """The given encoding, or that of the byte order mark, or UTF-8; Windows-1252 if the text is not valid UTF-8."""
        try:
            if self.encoding is not None:
                return codecs.lookup(self.encoding).name
        except LookupError as error:
            raise InputError(
                f"{option('encoding', self.encoding)} is not an encoding of text: say utf-8, cp1252, …"
            ) from error
        decoder, looked_at = codecs.getincrementaldecoder("utf-8")(), 0
        with self._open() as stream:
            while looked_at < _MOST_BYTES and (piece := _read(stream, _BLOCK_BYTES)):
                if not looked_at and piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    return "utf-16"
                looked_at += len(piece)
                try:
                    decoder.decode(piece)
                except UnicodeDecodeError:
                    return "cp1252"
        return "utf-8"

    def note(self) -> str:
        found = []
        if self.encoding is None and self._encoding != "utf-8":
            found.append(
                f"is not UTF-8 text: it was read as {self._encoding}; another is given by {option('encoding')}"
            )
        numbers = [name for name in self.names if self.header and _NUMBER.fullmatch(name) and not name.isdigit()]
        if numbers:
            found.append(
                f"has numbers among the names of its columns ({quoted(numbers, 3)}): if its first line is one of "
                f"values, say so, {option('header', False)}"
            )
        return "; it ".join(found)

    @property
    def names(self) -> list[str]:
        return self._dialect.names

    @property
    def has_decimal_comma(self) -> bool:
        return self._dialect.has_comma

    def read(self) -> Any:
        """All rows; columns with values such as 01067, or with more digits than a number holds, stay text.

        So do numbers such as 1.660 in a file with decimal commas.
        """
        with in_words(self.path):
            # Eight bytes per number. If the text already exceeds the available memory, it is not unpacked any further.
            check_room(f"The rows of {self.path}", 2 * self._measure(room_bytes()), in_parts())
        table = self._read({})
        candidates = [
            field.name
            for field in table.schema
            if pa.types.is_integer(field.type)
            or (pa.types.is_floating(field.type) and (pc.max(pc.abs(table.column(field.name))).as_py() or 0) >= 2.0**63)
        ]
        if self._dialect.may_be_thousands:
            floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
            written = self.text(floats) if floats else table.select([])
            thousands = {name: written.column(name) for name in floats if are_thousands(written.column(name))}
            table = replace_columns(table, thousands)
        text: Any = self.text(candidates) if candidates else None
        # One check of all text columns together rules out codes in most files.
        if not candidates or not has_codes(pa.chunked_array([chunk for each in text.columns for chunk in each.chunks])):
            return table
        codes = {name: text.column(name) for name in candidates if has_codes(text.column(name))}
        return replace_columns(table, codes)

    def text(self, names: Sequence[str]) -> Any:
        return self._read(dict.fromkeys(names, pa.string()), names)

    def batches(self, names: Sequence[str], encoding: TableEncoding, rows: int) -> Iterator[Any]:
        def type_of(column: ColumnEncoding) -> Any:
            if isinstance(column, Category):
                return pa.float64() if column.number else pa.string()
            # Numbers and dates in other notations, and true and false, are parsed by the encoding.
            is_number = isinstance(column, Number) and not column.decimal
            is_count = isinstance(column, Date) and column.form in (SECONDS, MILLISECONDS, YEARS)
            return pa.float64() if is_number or is_count else pa.string()

        known = {column.name: type_of(column) for column in encoding.columns}
        return self._batches({name: known.get(name, pa.string()) for name in names})

    @cached_property
    def _types(self) -> dict[str, Any]:
        """Types of all columns with which every value can be read."""
        dialect = self._dialect
        guesses = {name: _Guess(dialect.decimal_point, dialect.may_be_thousands) for name in self.names}
        for batch in self._batches(dict.fromkeys(self.names, pa.string())):
            for name, guess in guesses.items():
                guess.add(batch.column(name))
        return {name: guess.type() for name, guess in guesses.items()}

    @property
    def kinds(self) -> dict[str, str]:
        return {name: kind_of(type_) for name, type_ in self._types.items()}

    @cached_property
    def _indexed(self) -> IndexedBatches:
        return copy_batches(self._batches(self._types), pa.schema(list(self._types.items())))

    @property
    def lengths(self) -> list[int]:
        return self._indexed.lengths

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        return self._indexed.read(block, names)

    def where(self, block: int, row: int | None) -> str:
        first = sum(self.lengths[:block])
        return f"rows {first} to {first + self.lengths[block] - 1}" if row is None else f"row {first + row}"

    def size_in_memory(self) -> int:
        return self._measure(_MOST_UNPACKED)

    def _measure(self, most: int) -> int:
        """Approximate size of the rows as float32, in bytes; for a compressed file, of its first ``most`` bytes."""
        size, packing = self.path.stat().st_size, COMPRESSED.get(self.path.suffix.lower())
        looked_at = lines = 0
        with self._open() as stream:
            # A compressed file does not say how large it is, and its beginning is not representative.
            while looked_at < (_FIRST_BYTES if packing is None else most) and (piece := _read(stream, _BLOCK_BYTES)):
                looked_at += len(piece)
                lines += piece.count(b"\n")
        unpacked = size if packing is None else looked_at
        # Short numbers take more memory than their text.
        return max(unpacked // 2, int(4 * len(self.names) * lines * unpacked / max(1, looked_at)))

    def _batches(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """Record batches of these columns, with these types."""
        if not self._dialect.has_rows:
            return
        asked, final = [name for name in self.names if name in types], self.names[-1]
        # The last column is always read, for a check. An empty list stands for all columns.
        types, include = {final: pa.binary(), **types}, list(dict.fromkeys([*asked, final])) if asked else []
        values: Any = ()
        with self._in_words():
            for batch in arrow_csv.open_csv(self._open(), **self._options(types, include)):
                values = batch.column(final) if len(batch) else values
                yield batch.select(asked) if asked else batch
            self._check_end(values)

    def _read(self, types: Mapping[str, Any], include: Sequence[str] = ()) -> Any:
        if not self._dialect.has_rows:
            raise InputError(f"{self.path} has a header but no rows.")
        with self._in_words():
            table = arrow_csv.read_csv(self._open(), **self._options(types, include))
            if not include or self.names[-1] in include:
                self._check_end(table.column(self.names[-1]))
        binary = [field.name for field in table.schema if pa.types.is_binary(field.type)]
        if binary:
            raise InputError(f"{self.path} is not {self._encoding} text: see column {binary[0]!r}. {_advice()}")
        return table

    def _check_end(self, values: Any) -> None:
        """Raise if the file ends within quotes: all lines after the first quote would be a value of its last column.

        Only a quoted value contains line ends, and if the very last one does, a quote ends the file.
        """
        value = values[-1].as_py() if len(values) else None
        if not isinstance(value, str | bytes) or len(value.splitlines()) < 2:
            return
        end = b""
        with self._open() as stream:
            while piece := _read(stream, _BLOCK_BYTES):
                end = (end + piece)[-64:]
        if not end.rstrip(b"\0\r\n\t ").endswith(b'"'):
            raise InputError(f"{self.path} ends within quotes: a value of {len(value):,} characters. {OPEN_QUOTE}")

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """As ``in_words``, with the reasons of pyarrow about text."""
        with in_words(self.path):
            try:
                yield
            except pa.ArrowInvalid as error:
                raise InputError(f"{self.path} cannot be read: {self._explain(str(error))}") from error

    def _explain(self, reason: str) -> str:
        """The reason of pyarrow in our words: columns by name instead of by number, and lines with the wrong values."""

        def name_column(match: re.Match[str]) -> str:
            index = int(match[1])
            return f"column {self.names[index]!r}" if index < len(self.names) else match[0]

        reason = re.sub(r"CSV column #(\d+)", name_column, reason)
        wrong = re.search(
            r"In (column .*?): (?:Row #(\d+): )?CSV conversion error to (\w+)[^:]*: invalid value (.*)", reason
        )
        if wrong:
            is_number, point = wrong[3] in ("double", "float", "int64"), self._dialect.decimal_point
            kind = f"a number such as 1234{point}5" if is_number else f"of the kind that was read ({wrong[3]})"
            where = f" in line {wrong[2]}" if wrong[2] else ""
            reason = f"{wrong[1]} holds {wrong[4]}{where}, which is not {kind}. Correct it, or leave those rows out."
        if "straddl" in reason:
            reason = f"a row is longer than 4 MB. {OPEN_QUOTE} If a text is so long, leave out its column."
        if not re.search(r"Expected \d+ columns", reason):
            return reason
        advice = (
            f"If another character stands between values, name it: {option('delimiter')}. If the line ends within a "
            "text, put the text in quotes."
        )
        advice += f" {OPEN_QUOTE}" if '"' in reason else ""
        found = self._uneven_line()
        if found is None:
            return f"{reason}. ({advice})"
        line, count = found
        values = f"{count:,} value{'' if count == 1 else 's'}"
        expected = f"{len(self.names):,} are expected, as in the first line"
        return f"line {line:,} has {values}, and {expected}. Correct the line. {advice}"

    def _uneven_line(self) -> tuple[int, int] | None:
        """The line in which the first row of too few or too many values ends, and the number of its values."""
        encoding = "utf-8-sig" if self._encoding == "utf-8" else self._encoding
        try:
            with io.TextIOWrapper(self._open(), encoding=encoding, newline="") as text:
                rows = csv.reader(text, delimiter=self._dialect.delimiter)
                return next(((rows.line_num, len(row)) for row in rows if row and len(row) != len(self.names)), None)
        except (csv.Error, UnicodeError):
            return None

    def _open(self) -> Any:
        return pa.input_stream(str(self.path))

    def _options(self, types: Mapping[str, Any], include: Sequence[str]) -> dict[str, Any]:
        dialect = self._dialect
        usual = arrow_csv.ConvertOptions().null_values
        return {
            "read_options": arrow_csv.ReadOptions(
                column_names=dialect.names,
                skip_rows_after_names=dialect.skipped,
                # A row must not be longer than a block.
                block_size=max(_BLOCK_BYTES, 64 * len(dialect.names) if len(dialect.names) > 1_000 else 0),
                encoding="utf8" if self._encoding == "utf-8" else self._encoding,
            ),
            "parse_options": arrow_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
            "convert_options": arrow_csv.ConvertOptions(
                column_types=dict(types),
                include_columns=list(include),
                null_values=[*usual, *self.na],
                strings_can_be_null=True,
                decimal_point=dialect.decimal_point,
            ),
        }


def _advice() -> str:
    return f"Say which it is: {option('encoding', 'latin-1')}, or so."


class _Guess:
    """The type of a column of text: the first of several that can parse all values, as in pyarrow's own inference."""

    def __init__(self, decimal_point: str, may_be_thousands: bool = False) -> None:
        self._decimal_point = decimal_point
        self._may_be_thousands, self._points = may_be_thousands, False
        self._possible = [pa.int64(), pa.bool_(), pa.time32("s"), pa.timestamp("ns"), pa.float64()]
        self._codes = self._long_codes = self._values = False

    def add(self, text: Any) -> None:
        """Inspect more of the column."""
        if text.null_count == len(text):
            return
        self._values = True
        if self._possible:
            self._codes = self._codes or has_codes(text)
            self._long_codes = self._long_codes or (self._codes and has_codes(text, r"\d{19,}"))
            trimmed = pc.utf8_trim_whitespace(text)
            if self._may_be_thousands and has_codes(trimmed, r".*\..*"):
                self._points, self._may_be_thousands = True, are_thousands(trimmed)
            self._possible = [type_ for type_ in self._possible if self._can_be(trimmed, type_)]

    def _can_be(self, text: Any, type_: Any) -> bool:
        if self._decimal_point != "." and pa.types.is_floating(type_):
            text = pc.replace_substring(text, self._decimal_point, ".")
        if pa.types.is_time(type_):
            # Text cannot be cast to times of day, but to timestamps.
            text, type_ = pc.binary_join_element_wise("1970-01-01", text, " "), pa.timestamp("s")
        try:
            text.cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
        return True

    def type(self) -> Any:
        """The inferred type of the column."""
        if not self._values:
            return pa.null()
        found = self._possible[0] if self._possible else pa.string()
        is_code = {
            pa.int64(): self._codes,
            pa.float64(): self._long_codes or (self._points and self._may_be_thousands),
        }
        return pa.string() if is_code.get(found) else found


def are_thousands(text: Any) -> bool:
    """Whether values of a column of text have points, and all of these may separate thousands, as in 1.660."""
    with_points = text.filter(pc.match_substring(text, "."))
    return len(with_points) > 0 and bool(pc.all(pc.match_substring_regex(with_points, _THOUSANDS)).as_py())


@dataclass(frozen=True)
class Dialect:
    """The dialect inferred from the head of a file. ``skipped`` rows come before the first of data, if there is any.

    ``has_comma`` says that some numbers have a decimal comma; the points of others may then separate thousands, even
    if the ``decimal_point`` is one.
    """

    delimiter: str
    names: list[str]
    decimal_point: str
    skipped: int
    has_rows: bool
    has_comma: bool = False

    @property
    def may_be_thousands(self) -> bool:
        return self.has_comma and self.decimal_point == "."


def look(
    path: Path, open_file: Callable[[], Any], delimiter: str | None, header: bool, encoding: str = "utf-8"
) -> Dialect:
    """Infer the dialect of a file from its head.

    The delimiter is inferred from the first row, unless it is given and occurs there; with semicolons, a decimal comma
    from the numbers below. Without a header columns are named column_0, column_1, …
    """
    size = _FIRST_BYTES
    while True:
        head, is_whole = _head(path, open_file, size, encoding)
        if _JSON.match(head):
            raise InputError(f"{path} holds JSON, by its first characters: rename it, to {path.stem}.json.")
        chosen = _delimiter(path, head, delimiter)
        lines = io.StringIO(head, newline="")
        rows = csv.reader(lines, delimiter=chosen)
        try:
            blank, first = 0, next(rows, [])
            while not first and lines.tell() < len(head):
                blank, first = blank + 1, next(rows, [])
        except csv.Error as error:
            raise InputError(f"The first line of {path} cannot be read ({error}): is a quote not closed?") from error
        rest = head[lines.tell() :]
        if rest or is_whole:
            break
        if size >= _MOST_BYTES:
            raise InputError(f"{path} has no end of line in its first {size:,} bytes: it is not a CSV file.")
        size *= 8
    # A comma beside decimal points separates thousands.
    comma = chosen == ";" and _DECIMAL_COMMA.search(head) and not _DECIMAL_POINT.search(head)
    quote, edge = '"' if chosen == "," else '"?', re.escape(chosen)
    certain = re.search(rf"(^|{edge}){quote}{_CERTAIN_COMMA}{quote}\r?({edge}|$)", head, re.MULTILINE) is not None
    names = [f"column_{index}" for index in range(len(first))]
    if header:
        if all(_NUMBER.fullmatch(name.strip()) for name in first):
            raise InputError(
                f"The first line of {path} holds numbers, not names of columns: add a line of names, or pass "
                f"{option('header', False)}."
            )
        names = deduplicate_names(name.strip() or f"unnamed_{index}" for index, name in enumerate(first))
    check_columns(path, names)
    has_rows = bool(rest.strip()) or not header
    return Dialect(chosen, names, "," if comma else ".", blank + int(header), has_rows, bool(comma) or certain)


def _read(stream: Any, size: int) -> bytes:
    """Read at most ``size`` bytes. ``stream.read`` would never release its memory if a compressed file is damaged."""
    return bytes(stream.read_buffer(size).to_pybytes())


def _head(path: Path, open_file: Callable[[], Any], size: int, encoding: str) -> tuple[str, bool]:
    """Whole lines from the beginning of a file, of about ``size`` bytes; and whether that is all of it."""
    with open_file() as stream:
        head = _read(stream, size)
        is_whole = len(head) < size
    if not head.strip():
        raise InputError(f"{path} is empty.")
    is_wide = encoding.startswith(("utf-16", "utf-32"))
    if b"\0" in head and not is_wide:
        raise InputError(f"{path} is not a text file of comma-separated values.")
    try:
        # The last line, and its last character, may have been cut off.
        text = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" else encoding)().decode(head, is_whole)
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path} is not {encoding} text. {_advice()}") from error
    return text if is_whole else text[: max(text.rfind("\n"), text.rfind("\r")) + 1], is_whole


def _delimiter(path: Path, head: str, given: str | None) -> str:
    first = re.split(r"[\r\n]", head.lstrip("\r\n"), maxsplit=1)[0]
    unquoted = re.sub(r'"[^"]*"', "", first)
    # Use the delimiter of the training data if this file contains it too.
    if given is not None and given in unquoted:
        return given
    if {".tsv", ".tab"} & {suffix.lower() for suffix in path.suffixes}:
        return "\t"
    return max(DELIMITERS, key=unquoted.count)
