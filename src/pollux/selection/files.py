"""``pollux select``: from a file to a folder with the answer."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.app.runs import folder
from pollux.app.runs.data import classes_of
from pollux.app.runs.held import HeldRows, read_rows
from pollux.app.runs.settings import Settings, with_path
from pollux.app.runs.streamed import StreamedRows, is_to_be_streamed, open_rows
from pollux.errors import InputError

if TYPE_CHECKING:
    from pollux.selection.result import Selection

JSON, TABLE, TEXT, FIGURE = "selection.json", "selection.csv", "selection.md", "selection.png"


@dataclass(frozen=True)
class Outcome:
    """The answer, where it is, and the command that comes next, if there are clusters."""

    selection: Selection
    folder: Path
    next_command: str | None
    notes: list[str]

    def as_json(self) -> str:
        """All of it as JSON text."""
        told = {"folder": str(self.folder), "next_command": self.next_command, **json.loads(self.selection.as_json())}
        return json.dumps(told, ensure_ascii=False)


@dataclass(frozen=True)
class Request:
    """What is asked for: numbers of clusters, how many subsamples, processes, and the folder."""

    candidates: Sequence[int] = range(2, 11)
    n_subsamples: int = 10
    n_jobs: int | None = None
    out: str | Path | None = None
    overwrite: bool = False


def select(
    settings: Settings,
    request: Request,
    *,
    show_progress: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Find the number of clusters of a file, and write a folder; bad input is refused before anything is written."""
    given, settings = settings.data, with_path(settings)
    if request.out is not None:
        folder.check_free(request.out, request.overwrite)
    _check_request(request)
    rows = open_rows(settings, None) if is_to_be_streamed(settings) else read_rows(settings)
    for line in rows.about():
        tell(line)
    with _as_input_errors():
        X, classes = _sample(rows, settings)
        place = Path(request.out) if request.out is not None else _new_folder(Path(settings.data))
        with folder.made(place, settings.data, request.overwrite):
            selection = replace(_search(X, classes, settings, request, show_progress), rows=len(rows))
            notes = _write(place, selection)
    chosen = replace(settings, data=given, clusters=selection.n_clusters).command()
    following = chosen.replace("pollux fit", f"pollux fit{_preset(rows)}", 1)
    return Outcome(selection, place, following if selection.is_clear else None, notes)


def _preset(rows: HeldRows | StreamedRows) -> str:
    """The option that names the recipe for such rows; streamed ones have none, as recipes look at all rows at once."""
    if isinstance(rows, StreamedRows):
        return ""
    return f" --preset {'images' if len(rows.data.part.rows.shape) > 2 else 'tables'}"


def _check_request(request: Request) -> None:
    if not request.candidates:
        raise InputError("There are no numbers of clusters to compare: --from must not be above --to.")
    if min(request.candidates) < 2:
        raise InputError("--from is at least 2; that there is one cluster only is always considered.")
    if request.n_subsamples < 3:
        raise InputError(f"--subsamples must be at least 3, not {request.n_subsamples}.")
    if request.n_jobs == 0:
        raise InputError("--jobs is a number of processes, or -1 for one a core; not 0.")


def _search(
    X: NDArray[Any], classes: NDArray[Any] | None, settings: Settings, request: Request, show_progress: bool
) -> Selection:
    # Imported late, because it brings torch.
    from pollux.selection.search import search

    return search(
        X,
        sorted(request.candidates),
        estimator=None,
        classes=classes,
        n_subsamples=request.n_subsamples,
        subsample=0.8,
        random=np.random.RandomState(settings.seed),
        n_jobs=request.n_jobs,
        verbose=show_progress,
    )


@contextmanager
def _as_input_errors() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, InputError) else InputError(str(error)) from error


def _sample(rows: HeldRows | StreamedRows, settings: Settings) -> tuple[NDArray[Any], NDArray[np.str_] | None]:
    """Rows (n, d) that are looked at, flat, and their classes where these are known."""
    from pollux.selection.search import MOST_ROWS

    chosen = np.sort(np.random.RandomState(settings.seed).permutation(len(rows))[:MOST_ROWS])
    if isinstance(rows, HeldRows):
        X = rows.samples[chosen]
        classes = classes_of(rows.data.part, settings.label)
        return X.reshape(len(X), -1), None if classes is None else classes[chosen]
    if settings.label:
        raise InputError("Of rows that are streamed, --label is not looked at: leave it out, or pass --stream no.")
    X = np.concatenate(list(_of_chunks(rows, chosen)))
    return X.reshape(len(X), -1), None


def _of_chunks(rows: StreamedRows, chosen: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    """The chosen rows of a stream; chunks without any are not read."""
    chunks = rows.stream.chunks
    ends = np.cumsum(chunks.lengths)
    for number, (end, length) in enumerate(zip(ends, chunks.lengths, strict=True)):
        wanted = chosen[(chosen >= end - length) & (chosen < end)] - (end - length)
        if len(wanted):
            yield np.asarray(chunks.read(number))[wanted]


def _new_folder(data: Path) -> Path:
    name = data.name.split(".")[0] or "data"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(place for place in (Path("selections") / name for name in names) if not place.exists())


def _write(place: Path, selection: Selection) -> list[str]:
    """Write all files, which take their places when all are written; what the user should know of it."""
    new = Path(tempfile.mkdtemp(dir=place, prefix=".new-"))
    notes = []
    try:
        (new / JSON).write_text(selection.as_json() + "\n", encoding="utf-8")
        (new / TABLE).write_text(selection.as_csv(), encoding="utf-8")
        (new / TEXT).write_text(selection.as_markdown(), encoding="utf-8")
        if find_spec("matplotlib") is not None:
            selection.plot(new / FIGURE)
        else:
            notes.append(f"{FIGURE} needs matplotlib: pip install 'pollux[report]'")
            (place / FIGURE).unlink(missing_ok=True)
        for file in sorted(new.iterdir()):
            file.replace(place / file.name)
    finally:
        rmtree(new, ignore_errors=True)
    return notes
