"""Output of commands, and their exit codes."""

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

# Maximum length of a printed line, since a cell may hold any amount of text.
_LONGEST = 20_000

FORMATS = "CSV, TSV, Parquet, Feather/Arrow, JSON, Excel, SQLite, .npy, .npz, or a folder of images or of tables"


def printable(line: str) -> str:
    """Escape control characters in a line for a terminal: names of columns and their values may hold anything.

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


@dataclass(frozen=True)
class Console:
    """The output of a command: results on standard output, notes and progress on standard error.

    With ``as_json`` only the result is printed, by :meth:`print_json`.
    """

    quiet: bool = False
    as_json: bool = False

    def echo(self, line: str) -> None:
        """Print a line of the result as text."""
        if not (self.quiet or self.as_json):
            print(_readable(line))

    def print_json(self, text: str) -> None:
        """Print the result as JSON."""
        if self.as_json:
            print(printable(text))

    def note(self, line: str) -> None:
        """Print a note for the user."""
        if not self.quiet:
            say(f"note: {line}")

    def progress(self) -> AbstractContextManager[None]:
        """A context in which progress is shown: live on a terminal, in a log one line a minute."""
        return show_progress(not self.quiet, every=60.0)


SILENT = Console(quiet=True)


class ReaderLeftError(Exception):
    """The reader of the printed rows has closed the pipe."""


class Output(io.TextIOBase):
    """A standard stream that may be closed, also by its reader: a failure to print does not end the command."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._is_open = stream, stream is not None
        self.error: OSError | None = None
        """The error, if required output could not be written."""

    def write(self, text: str) -> int:
        if self._stream is not None:
            with self._suppress_failures():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            with self._suppress_failures():
                self._stream.flush()

    @contextmanager
    def _suppress_failures(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            # A closed stream raises a ValueError.
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                self.error = error
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                # Otherwise the interpreter would flush the rest of the buffer at exit, and print another error.
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
        """Write bytes unchanged, or decoded for a terminal; raises an error if that fails."""
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
    """Set up standard output and error for commands; yields the former."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Occupy the descriptor: otherwise the next file opened would get it, and be taken for a standard stream.
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        # Piped output may have an old code page, which lacks σ: a question mark is better than an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    output, errors = Output(sys.stdout), Output(sys.stderr)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            yield output
        finally:
            output.flush()
            errors.flush()
