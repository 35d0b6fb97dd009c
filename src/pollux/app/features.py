"""``pollux features``: find the columns that the clusters of a file need, and write a folder with the answer."""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import replace
from typing import Any

from pollux.app.answers import add_answer_options, begin_answer, print_answer, write_answer
from pollux.app.console import FORMATS
from pollux.app.settings import COLUMNS, READING, add_options
from pollux.errors import InputError, as_input_errors
from pollux.names import OBJECTIVES
from pollux.progress import Stage

FIGURE = "features.png"
_MOST_ROWS = 20_000


def add(commands: Any) -> None:
    features = commands.add_parser(
        "features",
        description=f"Find the columns of DATA ({FORMATS}) that its clusters need: a penalty grows until few are left, "
        "and the smallest model that keeps most of the objective is chosen. Columns are read as pollux fit reads "
        "them; the values of a text column stay or leave together.",
        argument_default=argparse.SUPPRESS,
    )
    features.add_argument("data", metavar="DATA", help="the file or folder to look at")
    add_options(features, COLUMNS, READING)
    path = features.add_argument_group("selecting")
    path.add_argument(
        "--n-clusters", "--clusters", metavar="N", type=int, help="default: what a quick pollux select finds"
    )
    path.add_argument("--model", choices=("linear", "mlp"), default="linear", help="default: linear")
    path.add_argument("--objective", choices=OBJECTIVES, metavar="NAME", default="mmd_ovo", help="default: mmd_ovo")
    path.add_argument("--min-features", metavar="N", type=int, default=2, help="where the path ends (default: 2)")
    path.add_argument(
        "--keep", metavar="SHARE", type=float, default=0.9, help="of the objective, what must be kept (default: 0.9)"
    )
    path.add_argument(
        "--dynamic", action="store_true", default=False, help="the geometry, too, is of the columns that are left"
    )
    path.add_argument("--random-state", "--seed", metavar="N", type=int, help="seed of all randomness (default: 0)")
    add_answer_options(features, "features")
    features.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Select columns, and write a folder with the result; bad input is refused before anything is written."""
    settings, console = begin_answer(options)
    from pollux.app import run_folder
    from pollux.app.fit import find_number
    from pollux.app.run_data import open_and_describe

    with console.progress():
        data = open_and_describe(settings, console)
        encoding = data.encoding
        if len(encoding.encoded_shape) != 1:
            raise InputError("Features are columns of a table, and images have none.")
        # Imported late, because it imports torch.
        with Stage("loading libraries"):
            from pollux.clustering import GeminiClustering
            from pollux.selection.features import FeaturePath, find_path, units_of
            from pollux.selection.result import to_csv

        with as_input_errors():
            K = settings.n_clusters if isinstance(settings.n_clusters, int) else find_number(data, None, console)
            folder = run_folder.choose_folder(options.out, settings.data, "features")
            X, classes = data.sample(_MOST_ROWS, settings.random_state)
            names = tuple(str(name) for name in encoding.names)
            clustering = GeminiClustering(
                K,
                model=options.model,
                objective=options.objective,
                preprocessing=None,
                random_state=settings.random_state,
            )
            with run_folder.create_run_folder(folder, settings.data, options.overwrite):
                fitted = clustering.fit(X)
                units = units_of(encoding, names, X.shape[1])
                sought = (options.min_features, options.keep, options.dynamic)
                steps, chosen = find_path(fitted, X, units, *sought, classes)
                path = FeaturePath(steps, chosen, names, options.keep, fitted)
                content = path.to_dict()
                rows = [{**step, "columns": " ".join(map(shlex.quote, step["columns"]))} for step in content["steps"]]
                texts = {
                    "features.json": json.dumps(content, indent=2, ensure_ascii=False) + "\n",
                    "features.csv": to_csv(rows),
                }
                write_answer(folder, texts, FIGURE, path.plot)
    command = replace(settings, n_clusters=K, columns=path.selected_names).command()
    return print_answer(console, folder, content, str(path), FIGURE, command)
