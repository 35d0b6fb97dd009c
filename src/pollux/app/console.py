"""What commands print, and their exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

GOOD, OUR_FAULT, BAD_INPUT, DIVERGED, STOPPED = 0, 1, 2, 3, 130

FORMATS = "CSV, TSV, Parquet, Feather/Arrow, .npy, .npz, or a folder of images or of tables"


def say(line: str) -> None:
    """Print a line on standard error."""
    print(line, file=sys.stderr)


def counted(count: int, noun: str) -> str:
    """'1 cluster', '3 clusters'."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


@dataclass(frozen=True)
class Console:
    """Where a command reports: results on standard output, notes and progress on standard error.

    With ``as_json`` the result alone is printed, by the command itself.
    """

    quiet: bool = False
    as_json: bool = False

    @property
    def shows_progress(self) -> bool:
        return not self.quiet and sys.stderr.isatty()

    def echo(self, line: Any) -> None:
        """Print a line for people."""
        if not (self.quiet or self.as_json):
            print(line)

    def note(self, line: str) -> None:
        """Print what the user should know."""
        if not self.quiet:
            say(f"note: {line}")

    @contextmanager
    def live_line(self) -> Iterator[Callable[[str], None]]:
        """A function that writes one line of a terminal anew; elsewhere it does nothing."""
        shown = False

        def show(line: str) -> None:
            nonlocal shown
            if self.shows_progress:
                shown = True
                print(f"\r{line} ", end="", file=sys.stderr, flush=True)

        try:
            yield show
        finally:
            if shown:
                say("")


SILENT = Console(quiet=True)
