"""What commands print, and their exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
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


def recorded_runs(work: Callable[[], Sequence[Any]], out: str, named: Callable[[Any], Any]) -> int:
    """Do runs that are recorded in a folder as they end, and name those that failed; the exit code."""
    try:
        failures = work()
    except KeyboardInterrupt:
        say(f"Stopped. What has ended is recorded in {out}; the same command goes on from there.")
        return STOPPED
    if not failures:
        return GOOD
    # Where errors come from: each place once.
    for trace in dict.fromkeys(failure.trace for failure in failures if failure.trace):
        say(trace.rstrip())
    say(f"{counted(len(failures), 'run')} failed; the same command tries again what is not recorded:")
    for failure in failures:
        say(f"  {named(failure)}: {' '.join(failure.reason.split())}")
    return OUR_FAULT
