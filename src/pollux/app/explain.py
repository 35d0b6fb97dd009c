"""``pollux explain``: print rules that distinguish the clusters of a run."""

from __future__ import annotations

import argparse
import hashlib
import json
from typing import Any

from pollux.app.console import GOOD, Console
from pollux.app.settings import Settings
from pollux.errors import InputError
from pollux.names import MISSING_IN_FILES

_MOST_ROWS = 50_000


def add(commands: Any) -> None:
    explain = commands.add_parser(
        "explain",
        description="Say what tells each cluster apart: a short name, conditions in the units of the columns, how "
        "precise they are and how many of its rows they cover, also cross-validated, and a shallow tree.",
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

    # Check before torch is imported, which takes seconds.
    run_folder.model_path(options.run_folder)
    from pollux.app import run_data
    from pollux.data.encoding import Feature, UnseenValues
    from pollux.trees.explanation import MOST_ROWS, explain_labels, named_clusters

    clustering, encoding = run_folder.load_run(options.run_folder, options.missing)
    settings = run_folder.read_settings(options.run_folder)
    file = run_folder.find_data(options.run_folder, settings, options.data, "pollux explain RUN DATA")
    if len(encoding.encoded_shape) != 1:
        raise InputError("Rules are about columns of a table, and images have none: look at them, pollux report.")
    summary = run_folder.read_summary(options.run_folder)
    if "vectors" in summary:
        raise InputError(
            "Rules are about columns of a table, and the numbers of vectors mean nothing by themselves: look at what "
            "they are of, pollux report."
        )
    # For rows in memory the run has stored clusters, which given sizes may have changed from the most likely ones.
    own = None if summary.get("streamed") else hashlib.sha256()
    features: tuple[Feature, ...] = ()
    kept: list[tuple[Any, ...]] = []
    source = run_data.open_source(settings or Settings(), file)
    encoding = run_data.adapt(encoding, source)
    # One number is drawn for each row of the file, so that the rows do not depend on the parts that it is read in.
    n, share, random = 0, 1.0, np.random.default_rng(0)
    for whole in source.stream(encoding, []):
        part, _ = run_data.drop_incomplete(whole, encoding)
        numbers, drawn = np.arange(n, n + len(part)), random.random(len(part))
        n += len(part)
        taken = drawn < share
        some = part.kept(taken)
        X = encoding.encode((some if own is None else part).rows, UnseenValues())
        if own is not None:
            own.update(X.data)
            X = X[taken]
        if len(some):
            values, features = encoding.readable(some.rows)
            kept.append((drawn[taken], numbers[taken], clustering.fitted_.probabilities(X).argmax(1), values))
        while sum(len(own) for own, *_ in kept) > 2 * _MOST_ROWS:
            # Rows at regular distances would not do: the order of the file may repeat itself.
            share /= 2
            kept = [tuple(array[own < share] for array in (own, *others)) for own, *others in kept]
    if not n:
        raise InputError(f"{file} has no rows to explain.")
    _, numbers, labels, values = map(np.concatenate, zip(*kept, strict=True))
    if own is not None and own.hexdigest() == summary.get("fingerprint"):
        labels = clustering.fitted_.labels[numbers]
    sizes = None
    if options.data is None:
        # The sizes of clusters in all rows, from the run.
        counted = summary.get("clusters", [])
        sizes = {int(each["cluster"]): int(each["rows"]) for each in counted}
    found = explain_labels(labels, values, features, named_clusters(clustering), sizes=sizes)
    console = Console(as_json=options.json)
    if options.json:
        console.print_json(json.dumps(found.to_dict(), ensure_ascii=False))
        return GOOD
    if n > MOST_ROWS:
        console.note(f"rules are made from {MOST_ROWS:,} of {n:,} rows, drawn at random")
    for line in str(found).splitlines():
        console.echo(line)
    for line in found.export_text().splitlines() if options.tree else ():
        console.echo(line)
    return GOOD
