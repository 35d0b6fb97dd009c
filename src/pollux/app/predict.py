"""``pollux predict``: tell the cluster of each row of a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pollux.app.console import FORMATS, GOOD, Names, nothing, say
from pollux.names import MISSING_IN_FILES


def add(commands: Any) -> None:
    predict = commands.add_parser(
        "predict",
        allow_abbrev=False,
        description="Write the cluster, the probabilities and the entropy of each row of DATA, beside its number and "
        "identifiers. Columns are found by name. Files may be larger than memory.",
    )
    predict.add_argument("run_folder", metavar="RUN", help="folder of a run, or a model file")
    predict.add_argument("data", metavar="DATA", help=FORMATS)
    predict.add_argument("--out", metavar="FILE", help="CSV, TSV or Parquet, by its name (default: CSV, printed)")
    predict.add_argument("--id", metavar="A,B", action=Names, default=[], help="columns to write beside each row")
    predict.add_argument("--missing", choices=MISSING_IN_FILES, help="default: as in training")
    predict.add_argument("--json", action="store_true", help="print what was done as JSON; needs --out")
    predict.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from pollux.app.runs.predicting import predict
    from pollux.errors import InputError

    if options.json and options.out is None:
        raise InputError("--json prints what was done, so the rows must go elsewhere: --out FILE.")
    with _row_counter() as progress:
        done = predict(
            options.run_folder,
            options.data,
            options.out,
            missing=options.missing,
            identifiers=options.id,
            progress=progress,
        )
    if options.json:
        print(json.dumps({"rows": done.rows, "left_out": done.left_out, "unseen": done.unseen, "out": options.out}))
        return GOOD
    if done.left_out:
        say(f"note: {done.left_out:,} rows lack values and were left out")
    for name, count in done.unseen.items():
        say(f"note: {count:,} values of column {name!r} were not seen in training; they count as none of its values")
    if options.out is not None:
        print(f"{done.rows:,} rows written to {options.out}")
    return GOOD


@contextmanager
def _row_counter() -> Iterator[Callable[[int], None]]:
    """A live count of rows on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield nothing
        return
    from time import perf_counter

    start = perf_counter()

    def count(rows: int) -> None:
        rate = rows / max(perf_counter() - start, 1e-9)
        print(f"\r{rows:,} rows, {rate:,.0f} a second ", end="", file=sys.stderr, flush=True)

    try:
        yield count
    finally:
        print(file=sys.stderr)
