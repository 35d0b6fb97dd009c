"""``pollux select``: find how many clusters a file has, and write a folder with the answer."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollux.app.console import FORMATS, GOOD, SILENT, Console
from pollux.app.settings import COLUMNS, NAMES, READING, Settings, add_options
from pollux.errors import InputError

if TYPE_CHECKING:
    from pollux.selection.result import Selection

JSON, TABLE, TEXT, FIGURE = "selection.json", "selection.csv", "selection.md", "selection.png"


def add(commands: Any) -> None:
    select = commands.add_parser(
        "select",
        allow_abbrev=False,
        description=f"Compare numbers of clusters of DATA ({FORMATS}): whether clusterings of subsamples agree, and "
        "whether there are gaps between the clusters. Columns are read as pollux fit reads them. Where nothing is "
        "clear, it says so.",
        argument_default=argparse.SUPPRESS,
    )
    select.add_argument("data", metavar="DATA", help="the file or folder to look at")
    add_options(select, COLUMNS, READING)
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
    output = select.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", default=None, help="folder (default: selections/NAME, a new one)")
    output.add_argument("--overwrite", action="store_true", default=False, help="the folder may hold an older answer")
    output.add_argument("--json", action="store_true", default=False, help="print the answer as JSON")
    output.add_argument("--quiet", action="store_true", default=False, help="print nothing but errors")
    select.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    settings = Settings(**{name: value for name, value in vars(options).items() if name in NAMES})
    candidates = range(options.first, options.last + 1)
    request = Request(candidates, options.subsamples, options.jobs, options.out, options.overwrite)
    console = Console(options.quiet, options.json)
    found = select_file(settings, request, console)
    console.print_json(found.as_json())
    console.echo(found.selection)
    for note in found.notes:
        console.note(note)
    console.echo(f"saved in {found.folder}")
    if found.next_command is not None:
        console.echo(f"next: {found.next_command}")
    return GOOD


@dataclass(frozen=True)
class Request:
    """Numbers of clusters to compare, how many subsamples, processes, and the folder."""

    candidates: range = range(2, 11)
    n_subsamples: int = 10
    n_jobs: int | None = None
    out: str | Path | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if not self.candidates:
            raise InputError("There are no numbers of clusters to compare: --from must not be above --to.")
        if min(self.candidates) < 2:
            raise InputError("--from is at least 2; that there is one cluster only is always considered.")
        if self.n_subsamples < 3:
            raise InputError(f"--subsamples must be at least 3, not {self.n_subsamples}.")
        if self.n_jobs == 0:
            raise InputError("--jobs is a number of processes, or -1 for one a core; not 0.")


@dataclass(frozen=True)
class Selected:
    """The answer, where it is, and the command that comes next, if there are clusters."""

    selection: Selection
    folder: Path
    next_command: str | None
    notes: list[str]

    def as_json(self) -> str:
        """All of it as JSON text."""
        own = {"folder": str(self.folder), "next_command": self.next_command}
        return json.dumps({**own, **json.loads(self.selection.as_json())}, ensure_ascii=False)


def select_file(settings: Settings, request: Request, console: Console = SILENT) -> Selected:
    """Find the number of clusters of a file, and write a folder; bad input is refused before anything is written."""
    import numpy as np

    from pollux.app.run_data import open_run_data
    from pollux.app.run_folder import candidates, check_free, create_run_folder, replace_results

    given, settings = settings.data, replace(settings, data=str(Path(settings.data).resolve()))
    if request.out is not None:
        check_free(request.out, request.overwrite)
    data, notes = open_run_data(settings), []
    for line in data.describe():
        console.echo(line)
    # Imported late, because it brings torch.
    from pollux.selection import search

    try:
        new = (place for place in candidates(settings.data, "selections") if not place.exists())
        folder = next(new) if request.out is None else Path(request.out)
        X, classes = data.sample(search.MOST_ROWS, settings.random_state)
        with create_run_folder(folder, settings.data, request.overwrite):
            found = search.search(
                X,
                sorted(request.candidates),
                estimator=None,
                classes=classes,
                n_subsamples=request.n_subsamples,
                subsample=0.8,
                random=np.random.RandomState(settings.random_state),
                n_jobs=request.n_jobs,
                verbose=console.shows_progress,
            )
            selection, has_matplotlib = replace(found, rows=len(data)), find_spec("matplotlib") is not None
            with replace_results(folder, outdated=() if has_matplotlib else (FIGURE,)) as place:
                (place / JSON).write_text(selection.as_json() + "\n", encoding="utf-8")
                (place / TABLE).write_text(selection.as_csv(), encoding="utf-8")
                (place / TEXT).write_text(selection.as_markdown(), encoding="utf-8")
                if has_matplotlib:
                    selection.plot(place / FIGURE)
                else:
                    notes.append(f"{FIGURE} needs matplotlib: pip install 'pollux[report]'")
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, InputError) else InputError(str(error)) from error
    command = replace(settings, data=given, n_clusters=selection.n_clusters).command()
    if not data.is_streamed:
        # Recipes look at all rows at once.
        preset = "images" if len(data.shape) > 1 else "tables"
        command = command.replace("pollux fit", f"pollux fit --preset {preset}", 1)
    return Selected(selection, folder, command if selection.is_clear else None, notes)
