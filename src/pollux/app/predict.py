"""``pollux predict``: write the cluster of each row of a file, of any length."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pollux.app.console import FORMATS, GOOD, Console
from pollux.errors import InputError, option
from pollux.names import MISSING_IN_FILES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pollux.clustering import GeminiClustering
    from pollux.data.encoding import Encoding
    from pollux.data.sources import Part


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
    if options.json:
        print(json.dumps({"rows": done.rows, "left_out": done.left_out, "unseen": done.unseen, "out": options.out}))
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
    from pollux.app.assignments import assignment_columns, open_writer, row_numbers
    from pollux.app.run_data import drop_incomplete, identifiers_of, reading_of
    from pollux.app.run_folder import check_not_input, model_path, read_settings
    from pollux.app.settings import Settings
    from pollux.data.sources import open_data

    if out is not None:
        check_not_input(Path(out), data, model_path(run))
    clustering = load_run(run, missing)
    encoding = encoding_of(clustering)
    asked = list(identifiers)
    # Which of these are columns is known only once the file is open.
    wanted = [*encoding.identifiers, *asked, *(part for name in asked for part in name.split(","))]
    # As the data of the run were read, but for what each file says itself.
    settings = read_settings(run) if Path(run).is_dir() else None
    source = open_data(data, reading_of(settings or Settings()))
    unseen: Counter[str] = Counter()
    done = left_out = 0
    with open_writer(None if out is None else Path(out)) as write:
        for whole in source.stream(encoding, wanted):
            part, kept = drop_incomplete(whole, encoding)
            names = dict.fromkeys([*identifiers_of(part, encoding), *_columns_in(part, asked)])
            probabilities = probabilities_of(clustering, encoding.encode(part.rows, unseen))
            write(assignment_columns(part, row_numbers(part, kept), probabilities, list(names)))
            left_out += len(whole) - len(part)
            done += len(part)
            progress(done)
    return Predicted(done, left_out, dict(unseen))


def load_run(run: str | Path, missing: str | None = None, *, with_free: bool = False) -> GeminiClustering:
    """The clustering of a run, with what to do about missing values."""
    from pollux.app.run_folder import CLUSTERS, model_path

    path = model_path(run)
    # Imported late, because it brings torch.
    from pollux.clustering import load

    try:
        clustering = load(path)
    except ValueError as error:
        raise InputError(str(error)) from error
    encoding = clustering.fitted_.encoding
    if encoding is None:
        raise InputError(f"{path} was saved from Python, without the columns it reads: load it with pollux.load there.")
    if clustering.fitted_.is_free and not with_free:
        raise InputError(
            f"A free table of probabilities cannot predict new samples. The clusters of its own rows are in "
            f"{CLUSTERS}; for new ones train another model, such as {option('model', 'linear')}."
        )
    if missing is not None:
        clustering.fitted_ = replace(clustering.fitted_, encoding=encoding.with_missing(missing))
    return clustering


def encoding_of(clustering: GeminiClustering) -> Encoding:
    """How the columns of a file become samples."""
    encoding = clustering.fitted_.encoding
    assert encoding is not None
    return encoding


def probabilities_of(clustering: GeminiClustering, X: NDArray[Any]) -> NDArray[Any]:
    """p(y|x) (n, K) of encoded rows; n may be zero."""
    import numpy as np

    if not len(X):
        return np.empty((0, clustering.n_clusters), dtype=np.float32)
    try:
        return clustering.fitted_.probabilities(X)
    except ValueError as error:
        raise InputError(str(error)) from error


def _columns_in(part: Part, asked: Sequence[str]) -> tuple[str, ...]:
    from pollux.app.run_data import check_nameable
    from pollux.data.survey import split_names

    names = split_names(asked, part.names)
    check_nameable(part, names)
    return names
