"""``pollux select``: find the number of clusters in a file, and write a folder with the answer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pollux.app.answers import add_answer_options, begin_answer, print_answer, write_answer
from pollux.app.console import FORMATS
from pollux.app.settings import COLUMNS, READING, Settings, add_options, add_text_options
from pollux.errors import InputError, as_input_errors
from pollux.progress import Stage

FIGURE = "selection.png"


def add(commands: Any) -> None:
    select = commands.add_parser(
        "select",
        description=f"Compare numbers of clusters of DATA ({FORMATS}): whether clusterings of subsamples agree, and "
        "whether there are gaps between the clusters. Columns are read as pollux fit reads them. Where nothing is "
        "clear, it says so.",
        argument_default=argparse.SUPPRESS,
    )
    select.add_argument("data", metavar="DATA", help="the file or folder to look at")
    add_text_options(add_options(select, COLUMNS, READING)[COLUMNS])
    comparing = select.add_argument_group("comparing")
    comparing.add_argument(
        "--from", dest="first", metavar="N", type=int, default=2, help="fewest clusters (default: 2)"
    )
    comparing.add_argument("--to", dest="last", metavar="N", type=int, default=10, help="most clusters (default: 10)")
    comparing.add_argument(
        "--subsamples", metavar="N", type=int, default=10, help="clusterings of each number (default: 10)"
    )
    comparing.add_argument(
        "--random-state", "--seed", metavar="N", type=int, help="seed of all randomness (default: 0)"
    )
    comparing.add_argument("--jobs", metavar="N", type=int, default=1, help="processes (default: 1; -1: one a core)")
    add_answer_options(select, "selections")
    select.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Find the number of clusters in a file, and write a folder; bad input is refused before anything is written."""
    if options.first > options.last:
        raise InputError("There are no numbers of clusters to compare: --from must not be above --to.")
    if options.first < 2:
        raise InputError("--from is at least 2; that there is one cluster only is always considered.")
    if options.subsamples < 3:
        raise InputError(f"--subsamples must be at least 3, not {options.subsamples}.")
    if options.jobs == 0:
        raise InputError("--jobs is a number of processes, or -1 for one a core; not 0.")
    given, console = begin_answer(options)
    import numpy as np

    from pollux.app import run_folder
    from pollux.app.embed import with_vectors
    from pollux.app.run_data import RunData, open_and_describe

    def read(chosen: Settings, check: Callable[[RunData], None]) -> tuple[Settings, RunData]:
        return chosen, open_and_describe(chosen, console, check)

    with console.progress():
        how: dict[str, Any] = {"overwrite": options.overwrite, "console": console, "place": "selections"}
        seen, data = with_vectors(read, given, options, options.out, **how)
        # Imported late, because it imports torch.
        with Stage("loading libraries"):
            from pollux.selection import search

        with as_input_errors():
            folder = run_folder.choose_folder(options.out, given.data, "selections")
            X, classes = data.sample(search.MOST_ROWS, given.random_state)
            with run_folder.create_run_folder(folder, given.data, options.overwrite):
                selection = search.search(
                    X,
                    range(options.first, options.last + 1),
                    estimator=None,
                    classes=classes,
                    n_subsamples=options.subsamples,
                    subsample=0.8,
                    random=np.random.RandomState(given.random_state),
                    n_jobs=options.jobs,
                )
                selection = replace(selection, rows=len(data))
                texts = {
                    "selection.json": selection.as_json() + "\n",
                    "selection.csv": selection.as_csv(),
                    "selection.md": selection.as_markdown(),
                }
                write_answer(folder, texts, FIGURE, selection.plot)
    command = None if selection.grade == "none" else replace(seen, n_clusters=selection.n_clusters).command()
    return print_answer(console, folder, json.loads(selection.as_json()), str(selection), FIGURE, command)
