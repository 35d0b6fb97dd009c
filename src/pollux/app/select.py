"""``pollux select``: find the number of clusters in a file, and write a folder with the answer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from pollux.app.console import FORMATS, GOOD, Console
from pollux.app.settings import (
    COLUMNS,
    NAMES,
    READING,
    Settings,
    add_answer_options,
    add_options,
    add_text_options,
    resolve_data,
)
from pollux.errors import InputError
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
    given = Settings(**{name: value for name, value in vars(options).items() if name in NAMES})
    import numpy as np

    from pollux.app import run_folder
    from pollux.app.embed import with_vectors
    from pollux.app.run_data import RunData, open_and_describe

    if options.out is not None:
        run_folder.check_free(options.out, options.overwrite)
    settings, console = replace(given, data=resolve_data(given.data)), Console(options.quiet, options.json)

    def read(chosen: Settings, check: Callable[[RunData], None]) -> tuple[Settings, RunData]:
        return chosen, open_and_describe(replace(chosen, data=resolve_data(chosen.data)), console, check)

    with console.progress():
        how: dict[str, Any] = {"overwrite": options.overwrite, "console": console, "place": "selections"}
        seen, data = with_vectors(read, given, options, options.out, **how)
        # Imported late, because it imports torch.
        with Stage("loading libraries"):
            from pollux.selection import search

        try:
            folder = run_folder.choose_folder(options.out, settings.data, "selections")
            X, classes = data.sample(search.MOST_ROWS, settings.random_state)
            with run_folder.create_run_folder(folder, settings.data, options.overwrite):
                selection = search.search(
                    X,
                    range(options.first, options.last + 1),
                    estimator=None,
                    classes=classes,
                    n_subsamples=options.subsamples,
                    subsample=0.8,
                    random=np.random.RandomState(settings.random_state),
                    n_jobs=options.jobs,
                )
                selection, can_draw = replace(selection, rows=len(data)), find_spec("matplotlib") is not None
                with run_folder.replace_results(folder, outdated=() if can_draw else (FIGURE,)) as place:
                    (place / "selection.json").write_text(selection.as_json() + "\n", encoding="utf-8")
                    (place / "selection.csv").write_text(selection.as_csv(), encoding="utf-8")
                    (place / "selection.md").write_text(selection.as_markdown(), encoding="utf-8")
                    if can_draw:
                        selection.plot(place / FIGURE)
        except (ValueError, TypeError) as error:
            raise error if isinstance(error, InputError) else InputError(str(error)) from error
    command = replace(seen, n_clusters=selection.n_clusters).command()
    found = {"folder": str(folder), "next_command": command if selection.grade != "none" else None}
    console.print_json(json.dumps({**found, **json.loads(selection.as_json())}, ensure_ascii=False))
    for line in str(selection).split("\n"):
        console.echo(line)
    if not can_draw:
        console.note(f"{FIGURE} needs matplotlib: pip install 'pollux[report]'")
    console.echo(f"saved in {folder}")
    if selection.grade != "none":
        console.echo(f"next: {command}")
    return GOOD
