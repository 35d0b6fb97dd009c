"""What the commands have in common."""

from __future__ import annotations

import argparse
import sys
from typing import Any

GOOD, OUR_FAULT, BAD_INPUT, DIVERGED, STOPPED = 0, 1, 2, 3, 130

FORMATS = "CSV, TSV, Parquet, Feather/Arrow, .npy, .npz, or a folder of images or of Parquet files"
MISSING = ("error", "mean", "drop")


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
