"""``pollux predict``: write the cluster of each row of a file, of any length."""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from pollux.app.console import FORMATS, GOOD, Console
from pollux.errors import InputError
from pollux.names import MISSING_IN_FILES
from pollux.progress import Stage


def add(commands: Any) -> None:
    predict = commands.add_parser(
        "predict",
        description="Write the cluster, the probabilities and the entropy of each row of DATA, beside its number and "
        "identifiers. Columns are found by name. Files may be larger than memory. Where RUN was trained on vectors of "
        "texts or pictures, DATA may hold such.",
    )
    predict.add_argument("run_folder", metavar="RUN", help="folder of a run, or a model file")
    predict.add_argument("data", metavar="DATA", help=FORMATS)
    predict.add_argument(
        "--out", metavar="FILE", help="CSV, TSV, Parquet or Excel, by its name (default: CSV, printed)"
    )
    predict.add_argument("--id", metavar="A,B", action="append", default=[], help="columns to write beside each row")
    predict.add_argument(
        "--with-data", action="store_true", help="write the columns of DATA, and the names of clusters, too"
    )
    predict.add_argument(
        "--sql", metavar="QUERY", help="read what this query of a database gives (default: as in training)"
    )
    predict.add_argument("--missing", choices=MISSING_IN_FILES, help="default: as in training")
    predict.add_argument(
        "--outliers",
        metavar="X",
        type=float,
        help="flag rows that fit in less than the share X of the training rows did, in a column outlier; 0: no column "
        "(default: as in training)",
    )
    predict.add_argument(
        "--raw",
        action="store_true",
        help="write texts of CSV files as they are, also those that a spreadsheet would run as formulas",
    )
    predict.add_argument("--json", action="store_true", help="print a summary as JSON; needs --out")
    predict.add_argument(
        "--quiet", action="store_true", help="print nothing but errors, and the rows where there is no --out"
    )
    predict.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the cluster, the probabilities and the entropy of each row, in parts."""
    import numpy as np

    from pollux.app import run_folder

    # Check before torch is imported, which takes seconds.
    model = run_folder.model_path(options.run_folder)
    from pollux.app import run_data
    from pollux.app.embed import embed_alike
    from pollux.app.settings import Settings
    from pollux.data.arrow import no_column
    from pollux.data.encoding import FEWEST_ROWS_OF_GAPS, UnseenValues, say_empty, say_empty_columns
    from pollux.data.survey import adapt_encoding, split_names
    from pollux.fitted import say_outside
    from pollux.trees.explanation import named_clusters

    if options.json and options.out is None:
        raise InputError("--json prints a summary, so the rows must go elsewhere: --out FILE.")
    options.data = str(run_data.data_file(options.data))
    run, out = options.run_folder, None if options.out is None else Path(options.out)
    if out is not None:
        run_folder.check_not_input(out, options.data, model)
    clustering, encoding = run_folder.load_run(run, options.missing)
    fitted = clustering.fitted_
    # Which of these are columns is only known once the file is open.
    names = named_clusters(clustering) if options.with_data else {}
    wanted = [*encoding.identifiers, *options.id, *(part for name in options.id for part in name.split(","))]
    # Read like the data of the run, except for what each file specifies itself.
    settings = run_folder.read_settings(run) or Settings()
    if options.outliers is not None:
        settings = replace(settings, outliers=options.outliers)
    if options.sql is not None:
        settings = replace(settings, sql=options.sql)
    source = run_data.open_source(settings, options.data)
    own = source.names()
    wanted += own if options.with_data else []
    console, start, done, left_out = Console(options.quiet, options.json), perf_counter(), 0, 0
    outliers = 0
    unseen = UnseenValues()
    outside, far, blank, empty = 0, dict[str, None](), 0, encoding.names
    stage = Stage("predicting", is_kept=True)
    with (
        tempfile.TemporaryDirectory(prefix="pollux-") as folder,
        console.progress(),
        stage,
        run_data.open_writer(out, options.raw) as write,
    ):
        made = run_folder.read_summary(run).get("vectors")
        readable = source if made is None else embed_alike(source, made, encoding.names, wanted, Path(folder), run)
        if set(encoding.names) <= set(readable.names()):
            encoding = adapt_encoding(encoding, lambda own: (part.rows for part in readable.stream(own, ())))
        for whole in readable.stream(encoding, wanted):
            part, kept = run_data.drop_incomplete(whole, encoding)
            asked = split_names(options.id, part.names)
            absent = [name for name in asked if name not in part.names]
            if absent:
                raise no_column(absent, readable.names() or part.names, "--id")
            run_data.check_nameable(part, asked)
            X = encoding.encode(part.rows, unseen)
            blank += encoding.count_empty(part.rows)
            empty = encoding.find_empty(part.rows, empty) if len(part) else empty
            try:
                probabilities = fitted.probabilities(X)
                outlier = fitted.find_outliers(X, settings.outliers) if settings.outliers else None
            except ValueError as error:
                raise InputError(str(error)) from error
            outliers += 0 if outlier is None else int(outlier.sum())
            count, features = fitted.far_outside(X)
            outside, far = outside + count, far | dict.fromkeys(features)
            # New texts were embedded, and their vectors are not columns of the data.
            with_data = [name for name in part.names if name in own or not own] if options.with_data else []
            beside = list(dict.fromkeys([*run_data.identifiers_of(part, encoding), *asked, *with_data]))
            numbers = part.first + np.flatnonzero(kept)
            sure = run_data.confidence_of(fitted, X, probabilities.argmax(1))
            write(
                run_data.assignment_columns(part, numbers, probabilities, beside, outlier, names=names, confidence=sure)
            )
            left_out += len(whole) - len(part)
            done += len(part)
            stage.update(done, detail=f"{done:,} rows, {done / max(perf_counter() - start, 1e-9):,.0f} a second")
    notes = source.notes()
    notes += [say_empty_columns(empty)] if empty and done >= FEWEST_ROWS_OF_GAPS else []
    notes += [*say_outside(outside, list(far), done), *([say_empty(blank)] if blank else [])]
    if options.json:
        found = {
            "rows": done,
            "left_out": left_out,
            "unseen": dict(unseen),
            **({"outliers": outliers} if settings.outliers else {}),
            "notes": notes,
            "out": options.out,
        }
        console.print_json(json.dumps(found, ensure_ascii=False))
        return GOOD
    for note in notes:
        console.note(note)
    if left_out:
        console.note(f"{left_out:,} rows lack values and were left out")
    for name in unseen:
        console.note(f"{unseen.describe(name)}; they count as none of its values")
    if out is not None:
        flagged = f", {outliers:,} of them flagged as outliers" if settings.outliers else ""
        console.echo(f"{done:,} rows written to {out}{flagged}")
    return GOOD
