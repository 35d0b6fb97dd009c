"""How a CSV file is written: its delimiter, the names of its columns, its decimal point."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pollux.data.files.source import check_distinct
from pollux.errors import InputError, option

TO_UTF8 = "Convert it, for instance with: iconv -f WINDOWS-1252 -t UTF-8 OLD.csv > NEW.csv"
DELIMITERS = ",;\t|"

_FIRST_BYTES, _MOST_BYTES = 65_536, 64_000_000
_NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?")
_DECIMAL_COMMA = re.compile(r"(^|;)\"?[-+]?\d+,\d+\"?\r?(;|$)", re.MULTILINE)
_DECIMAL_POINT = re.compile(r"(^|;)\"?[-+]?\d+\.\d+\"?\r?(;|$)", re.MULTILINE)


@dataclass(frozen=True)
class Dialect:
    """What the head of a file shows. ``skipped`` rows come before the first of data, if there is any."""

    delimiter: str
    names: list[str]
    decimal_point: str
    skipped: int
    has_rows: bool


def look(path: Path, open_file: Callable[[], Any], delimiter: str | None, header: bool) -> Dialect:
    """The dialect of a file, from its head.

    The delimiter is guessed from the first row, unless it is given and found there; with semicolons, a decimal comma
    from the numbers below. Without a header columns are called column_0, column_1, …
    """
    size = _FIRST_BYTES
    while True:
        head, is_whole = _head(path, open_file, size)
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
    # A comma beside decimal points stands between thousands.
    comma = chosen == ";" and _DECIMAL_COMMA.search(head) and not _DECIMAL_POINT.search(head)
    names = _names(path, first) if header else [f"column_{index}" for index in range(len(first))]
    return Dialect(chosen, names, "," if comma else ".", blank + int(header), bool(rest.strip()) or not header)


def _head(path: Path, open_file: Callable[[], Any], size: int) -> tuple[str, bool]:
    """Whole lines from the beginning of a file, of about so many bytes; and whether that is all of it."""
    with open_file() as stream:
        head = stream.read(size)
        is_whole = len(head) < size
    if not head.strip():
        raise InputError(f"{path} is empty.")
    if b"\0" in head:
        raise InputError(f"{path} is not a text file of comma-separated values.")
    if not is_whole:
        # The last line, and its last character, may have been cut in two.
        head = head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]
    try:
        return head.decode("utf-8-sig"), is_whole
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text. {TO_UTF8}") from error


def _delimiter(path: Path, head: str, given: str | None) -> str:
    first = re.split(r"[\r\n]", head.lstrip("\r\n"), maxsplit=1)[0]
    unquoted = re.sub(r'"[^"]*"', "", first)
    # That of the training data, where this file has it too.
    if given is not None and given in unquoted:
        return given
    if {".tsv", ".tab"} & {suffix.lower() for suffix in path.suffixes}:
        return "\t"
    return max(DELIMITERS, key=unquoted.count)


def _names(path: Path, first: list[str]) -> list[str]:
    if all(_NUMBER.fullmatch(name.strip()) for name in first):
        raise InputError(
            f"The first line of {path} holds numbers, not names of columns: add a line of names, or pass "
            f"{option('header', False)}."
        )
    names = [name.strip() or f"unnamed_{index}" for index, name in enumerate(first)]
    check_distinct(path, names)
    return names
