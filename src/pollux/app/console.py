"""What the commands have in common."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

GOOD, OUR_FAULT, BAD_INPUT, DIVERGED, STOPPED = 0, 1, 2, 3, 130

FORMATS = "CSV, TSV, Parquet, Feather/Arrow, .npy, .npz, or a folder of images or of tables"


class Names(argparse.Action):
    """Column names: separated by commas, or the option given several times (for names with a comma)."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest, None) or []), values])


def count_or_auto(text: str) -> int | str:
    if text != "auto" and not text.isdigit():
        raise argparse.ArgumentTypeError(f"a whole number or auto, not {text!r}")
    return text if text == "auto" else int(text)


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def nothing(*_: Any) -> None:
    """Says nothing."""


def say(line: str) -> None:
    print(line, file=sys.stderr)


def recorded_runs(work: Callable[[], Sequence[Any]], out: str, named: Callable[[Any], Any]) -> int:
    """Do runs that are recorded in a folder as they end, and tell of those that failed, by name; the exit code."""
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
