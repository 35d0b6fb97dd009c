"""``pollux explain``: say what tells each cluster apart."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from pollux.app.console import GOOD, Console
from pollux.app.settings import Settings
from pollux.errors import InputError
from pollux.names import MISSING_IN_FILES

_MOST_ROWS = 50_000


def add(commands: Any) -> None:
    explain = commands.add_parser(
        "explain",
        allow_abbrev=False,
        description="Say what tells each cluster apart: a short name, conditions in the units of the columns, how many "
        "of its rows they cover and how precise they are on rows that they were not made from, and a shallow tree.",
    )
    explain.add_argument("run_folder", metavar="RUN", help="folder of a run, or a model file")
    explain.add_argument("data", metavar="DATA", nargs="?", help="other rows than those of the run")
    explain.add_argument("--missing", choices=MISSING_IN_FILES, help="default: as in training")
    explain.add_argument("--tree", action="store_true", help="print the tree too")
    explain.add_argument("--json", action="store_true", help="print all of it as JSON")
    explain.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the rules of the clusters of a run."""
    import numpy as np

    from pollux.app import run_folder

    # Complaints come before torch is imported, which takes seconds.
    run_folder.model_path(options.run_folder)
    from pollux.app import run_data
    from pollux.data.encoding import Feature
    from pollux.data.sources import open_data
    from pollux.trees.explanation import explain_labels, named_clusters

    clustering, encoding = run_folder.load_run(options.run_folder, options.missing)
    settings = run_folder.read_settings(options.run_folder)
    file = run_folder.find_data(options.run_folder, settings, options.data, "pollux explain RUN DATA")
    if len(encoding.encoded_shape) != 1:
        raise InputError("Rules are about columns of a table, and images have none: look at them, pollux report.")
    columns, labels, n, is_cut = [], [], 0, False
    features: tuple[Feature, ...] = ()
    for whole in open_data(run_data.data_file(file), run_data.reading_of(settings or Settings())).stream(encoding, []):
        if is_cut := n >= _MOST_ROWS:
            break
        part, _ = run_data.drop_incomplete(whole, encoding)
        if len(part):
            values, features = encoding.readable(part.rows)
            columns.append(values)
            labels.append(clustering.fitted_.probabilities(encoding.encode(part.rows, Counter())).argmax(1))
            n += len(part)
    if not n:
        raise InputError(f"{file} has no rows to explain.")
    named = named_clusters(clustering)
    found = explain_labels(np.concatenate(labels), np.concatenate(columns), features, named)
    console = Console(as_json=options.json)
    if options.json:
        console.print_json(json.dumps(found.to_dict(), ensure_ascii=False))
        return GOOD
    if is_cut:
        console.note(f"of the file the first {n:,} rows were read")
    for line in str(found).splitlines():
        console.echo(line)
    for line in found.export_text().splitlines() if options.tree else ():
        console.echo(line)
    return GOOD
