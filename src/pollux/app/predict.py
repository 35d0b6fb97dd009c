"""``pollux predict``: write the cluster of each row of a file, of any length."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from pollux.app.console import FORMATS, GOOD, Console
from pollux.errors import InputError
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
    predict.add_argument("--id", metavar="A,B", action="append", default=[], help="columns to write beside each row")
    predict.add_argument("--missing", choices=MISSING_IN_FILES, help="default: as in training")
    predict.add_argument("--json", action="store_true", help="print a summary as JSON; needs --out")
    predict.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.json and options.out is None:
        raise InputError("--json prints a summary, so the rows must go elsewhere: --out FILE.")
    console, start = Console(as_json=options.json), perf_counter()
    with console.live_line() as show:
        done = predict_file(
            options.run_folder,
            options.data,
            options.out,
            missing=options.missing,
            identifiers=options.id,
            progress=lambda rows: show(f"{rows:,} rows, {rows / max(perf_counter() - start, 1e-9):,.0f} a second"),
        )
    console.print_json(json.dumps({**asdict(done), "out": options.out}, ensure_ascii=False))
    if options.json:
        return GOOD
    if done.left_out:
        console.note(f"{done.left_out:,} rows lack values and were left out")
    for name, count in done.unseen.items():
        console.note(f"{count:,} values of column {name!r} were not seen in training; they count as none of its values")
    if options.out is not None:
        console.echo(f"{done.rows:,} rows written to {options.out}")
    return GOOD


@dataclass(frozen=True)
class Predicted:
    """How many rows were written, how many were left out, and values of text columns that training had not seen."""

    rows: int
    left_out: int
    unseen: dict[str, int]


def predict_file(
    run: str | Path,
    data: str | Path,
    out: str | Path | None = None,
    *,
    missing: str | None = None,
    identifiers: Sequence[str] = (),
    progress: Callable[[int], None] = lambda rows: None,
) -> Predicted:
    """Write the cluster, the probabilities and the entropy of each row, some rows at a time.

    Parameters
    ----------
    run : path
        The folder of a run, or a model file.
    data : path
        The rows; a table's columns are found by name, whatever their order.
    out : path, optional
        A CSV, TSV or Parquet file; standard output without it.
    missing : {"error", "mean", "drop"}, optional
        What to do with rows that lack values, if not what was done in training.
    identifiers : sequence of str
        Columns to write beside each row, besides those that training took for identifiers.
    progress : callable
        Called with the number of rows done.
    """
    import numpy as np

    from pollux.app import run_data, run_folder
    from pollux.app.settings import Settings
    from pollux.data.sources import open_data
    from pollux.data.survey import split_names

    if out is not None:
        run_folder.check_not_input(Path(out), data, run_folder.model_path(run))
    clustering, encoding = run_folder.load_run(run, missing)
    # Which of these are columns is known only once the file is open.
    wanted = [*encoding.identifiers, *identifiers, *(part for name in identifiers for part in name.split(","))]
    # As the data of the run were read, but for what each file says itself.
    source = open_data(data, run_data.reading_of(run_folder.read_settings(run) or Settings()))
    unseen: Counter[str] = Counter()
    done = left_out = 0
    with run_data.open_writer(None if out is None else Path(out)) as write:
        for whole in source.stream(encoding, wanted):
            part, kept = run_data.drop_incomplete(whole, encoding)
            asked = split_names(identifiers, part.names)
            run_data.check_nameable(part, asked)
            X = encoding.encode(part.rows, unseen)
            try:
                empty = np.empty((0, clustering.n_clusters), dtype=np.float32)
                probabilities = clustering.fitted_.probabilities(X) if len(X) else empty
            except ValueError as error:
                raise InputError(str(error)) from error
            beside = list(dict.fromkeys([*run_data.identifiers_of(part, encoding), *asked]))
            write(run_data.assignment_columns(part, part.first + np.flatnonzero(kept), probabilities, beside))
            left_out += len(whole) - len(part)
            done += len(part)
            progress(done)
    return Predicted(done, left_out, dict(unseen))
