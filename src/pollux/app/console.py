"""What commands print, and their exit codes."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from pollux.errors import CONTROL, InputError
from pollux.progress import show_progress

GOOD, OUR_FAULT, BAD_INPUT, DIVERGED, STOPPED = 0, 1, 2, 3, 130

# Of a line for people. A cell may hold a book.
_LONGEST = 20_000

FORMATS = "CSV, TSV, Parquet, Feather/Arrow, JSON, Excel, SQLite, .npy, .npz, or a folder of images or of tables"


def printable(line: str) -> str:
    """A line that a terminal shows as it is: names of columns and their values may hold anything.

    Examples
    --------
    >>> printable("a\\x1b[2Jb")
    'a\\\\u001b[2Jb'
    """
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def say(line: str) -> None:
    """Print a line on standard error."""
    print(_readable(line), file=sys.stderr)


def _readable(line: str) -> str:
    return printable(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…")


def counted(count: int, noun: str) -> str:
    """'1 cluster', '3 clusters'."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


@dataclass(frozen=True)
class Console:
    """Where a command reports: results on standard output, notes and progress on standard error.

    With ``as_json`` the result alone is printed, by :meth:`print_json`.
    """

    quiet: bool = False
    as_json: bool = False

    def echo(self, line: str) -> None:
        """Print a line for people."""
        if not (self.quiet or self.as_json):
            print(_readable(line))

    def print_json(self, text: str) -> None:
        """Print what other programs read."""
        if self.as_json:
            print(printable(text))

    def note(self, line: str) -> None:
        """Print what the user should know."""
        if not self.quiet:
            say(f"note: {line}")

    def progress(self) -> AbstractContextManager[None]:
        """A context in which a terminal shows what is done, and a log has a line a minute."""
        return show_progress(not self.quiet, every=60.0)


SILENT = Console(quiet=True)


class ReaderLeftError(Exception):
    """Whoever read the rows that are printed has seen enough."""


class Output(io.TextIOBase):
    """A standard stream that may be closed, or be left by its reader: what cannot be printed ends no work."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._is_open = stream, stream is not None
        self.error: OSError | None = None
        """Why something was not written that somebody waits for."""

    def write(self, text: str) -> int:
        if self._stream is not None:
            with self._losing_what_fails():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            with self._losing_what_fails():
                self._stream.flush()

    @contextmanager
    def _losing_what_fails(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            # A stream that was closed raises a ValueError.
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                self.error = error
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                # Else what is left in its buffer is tried again, and complained of, when the interpreter ends.
                os.dup2(nowhere.fileno(), self._stream.fileno())
            self._stream = None

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"

    def fileno(self) -> int:
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return int(self._stream.fileno())

    def write_rows(self, content: bytes, decode: Callable[[bytes], str]) -> None:
        """Write bytes as they are, or what a terminal can show of them; an error if that fails."""
        if not self._is_open:
            raise InputError("Standard output is closed, so the rows must go elsewhere: --out FILE.")
        if self._stream is None:
            raise ReaderLeftError
        try:
            if self.isatty():
                self._stream.write("\n".join(map(printable, decode(content).split("\n"))))
            else:
                self._stream.buffer.write(content)
        except BrokenPipeError as error:
            self.flush()
            raise ReaderLeftError from error


class PrintedRows(io.RawIOBase):
    """Standard output as a binary file, for rows."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        output = sys.stdout
        assert isinstance(output, Output)
        output.write_rows(bytes(content), self._decode)
        return len(content)


@contextmanager
def open_output() -> Iterator[Output]:
    """Standard output and error as commands use them; the first."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The next file that is opened would be given its number, and be taken for it.
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        # What is piped elsewhere may be written in an old code page, which lacks σ: better a question mark than an end.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    output, errors = Output(sys.stdout), Output(sys.stderr)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            yield output
        finally:
            output.flush()
            errors.flush()
