"""``pollux select``: find how many clusters a file has, and write a folder with the answer."""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from pollux.app.console import FORMATS, GOOD, SILENT, Console
from pollux.app.settings import COLUMNS, NAMES, READING, Settings, add_options, with_path
from pollux.errors import InputError

if TYPE_CHECKING:
    from pollux.app.run_data import RunData
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
    if options.json:
        print(found.as_json())
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
    from pollux.app.run_data import open_run_data
    from pollux.app.run_folder import check_free, create_run_folder

    given, settings = settings.data, with_path(settings)
    if request.out is not None:
        check_free(request.out, request.overwrite)
    data = open_run_data(settings)
    for line in data.describe():
        console.echo(line)
    with _as_input_errors():
        folder = Path(request.out) if request.out is not None else _new_folder(Path(settings.data))
        X, classes = _sample(data)
        with create_run_folder(folder, settings.data, request.overwrite):
            selection = replace(_search(X, classes, settings, request, console), rows=len(data))
            notes = _write(folder, selection)
    command = replace(settings, data=given, n_clusters=selection.n_clusters).command()
    if not data.is_streamed:
        # Recipes look at all rows at once.
        preset = "images" if len(data.shape) > 1 else "tables"
        command = command.replace("pollux fit", f"pollux fit --preset {preset}", 1)
    return Selected(selection, folder, command if selection.is_clear else None, notes)


def _sample(data: RunData) -> Any:
    from pollux.selection.search import MOST_ROWS

    return data.sample(MOST_ROWS, data.settings.random_state)


def _search(X: Any, classes: Any, settings: Settings, request: Request, console: Console) -> Selection:
    import numpy as np

    from pollux.selection.search import search

    return search(
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


@contextmanager
def _as_input_errors() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, InputError) else InputError(str(error)) from error


def _new_folder(data: Path) -> Path:
    name = data.name.split(".")[0] or "data"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(place for place in (Path("selections") / name for name in names) if not place.exists())


def _write(folder: Path, selection: Selection) -> list[str]:
    """Write all files, which take their places when all are written; what the user should know of it."""
    new = Path(tempfile.mkdtemp(dir=folder, prefix=".new-"))
    notes = []
    try:
        (new / JSON).write_text(selection.as_json() + "\n", encoding="utf-8")
        (new / TABLE).write_text(selection.as_csv(), encoding="utf-8")
        (new / TEXT).write_text(selection.as_markdown(), encoding="utf-8")
        if find_spec("matplotlib") is not None:
            selection.plot(new / FIGURE)
        else:
            notes.append(f"{FIGURE} needs matplotlib: pip install 'pollux[report]'")
            (folder / FIGURE).unlink(missing_ok=True)
        for file in sorted(new.iterdir()):
            file.replace(folder / file.name)
    finally:
        rmtree(new, ignore_errors=True)
    return notes
