"""``pollux fit``: from a file to the folder of a run."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from pollux.app.runs import folder
from pollux.app.runs.estimator import check_streamable, clustering_of
from pollux.app.runs.held import HeldRows, read_rows
from pollux.app.runs.settings import Settings, with_path
from pollux.app.runs.streamed import StreamedRows, is_to_be_streamed, open_rows
from pollux.data.encoding import Encoding
from pollux.errors import InputError, NothingLearnedError
from pollux.io.atomic import write_text

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering
    from pollux.ranks import Ranks
    from pollux.training import Checkpoints


@dataclass(frozen=True)
class Trained:
    """Whether the training was stopped, and what the user should know of it."""

    interrupted: bool
    notes: list[str]
    resumed_after: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """What a run has found, and where it is. Of several processes only the first knows."""

    folder: Path
    summary: dict[str, Any]


@dataclass(frozen=True)
class Manner:
    """How a run tells of itself: a live line on standard error, and a function for what is told before training."""

    show_progress: bool = False
    tell: Callable[[str], None] = lambda line: None


def fit(
    settings: Settings,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    show_progress: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome | None:
    """Cluster a file and write the folder of the run; bad input is refused before anything is written.

    Processes that torchrun has started train together, and the first of them writes; where torchrun has started them
    again, they go on from the last checkpoint.

    Parameters
    ----------
    settings : Settings
        What to do.
    out : path, optional
        The folder; without it a new one below ``runs``.
    overwrite : bool
        Whether the folder may hold an older run.
    show_progress : bool
        Whether to show a live line on standard error.
    tell : callable
        Called with what the user is told before training.
    """
    settings = with_path(settings)
    with processes(settings.device) as ranks:
        if ranks is not None and ranks.rank:
            return carry_out(settings, nullcontext(None), ranks, Manner())
        left = folder.left_by(out, settings.data, settings) if started_again() else None
        ended = folder.ended(out, settings.data, settings) if started_again() and left is None else None
        if ended is not None:
            # A launcher takes any exit code but zero for a reason to start again.
            return Outcome(ended, folder.summary_of(ended))
        if left is None and out is not None:
            folder.check_free(out, overwrite)
            folder.check_idle(out)
        place = folder.made(out, settings.data, overwrite) if left is None else folder.taken_up(left)
        return carry_out(settings, place, ranks, Manner(show_progress, tell))


def carry_out(
    settings: Settings,
    place: AbstractContextManager[Path | None],
    ranks: Ranks | None,
    manner: Manner,
    before: Sequence[int] = (),
) -> Outcome | None:
    """Read, train and write. Only the first process has a place; ``before`` are epochs after which the run went on."""
    clock = Clock()
    with _room_for_rows(settings):
        rows = _rows(settings, ranks, manner)
        clock.lap("reading")
        clustering = clustering_of(settings, len(rows))
        clock.lap("importing")
        for line in rows.about():
            manner.tell(line)
        samples = rows.samples
        clock.lap("encoding")
    from pollux.threads import at_most
    from pollux.training import Checkpoints

    with place as path:
        done = _epochs_done(path, settings)
        checkpoints = Checkpoints(_checkpoint_folder(path, settings), every=settings.checkpoint_every)
        clustering.set_params(training__checkpoint=checkpoints)
        # Rows that are streamed are not read once more by a training that was stopped.
        checkpoints.stop_immediately = isinstance(rows, StreamedRows)
        if done:
            of = "" if settings.epochs == "auto" else f" of {settings.epochs}"
            manner.tell(f"going on after epoch {done}{of}")
        with heeded(checkpoints):
            with at_most(settings.threads):
                notes = _train(clustering, samples, manner.show_progress)
            clock.lap("training")
            if path is None:
                return None
            trained = Trained(checkpoints.stopped, notes, [*before, *([done] if done else [])])
            return conclude(path, settings, rows, clustering, trained, clock)


@contextmanager
def _room_for_rows(settings: Settings) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        # What pyarrow, numpy and Python raise.
        raise InputError(
            f"There is not enough memory to hold the rows of {settings.data}: read them as they are needed, from "
            f"Parquet or .npy files (--stream yes), or fewer of them. ({error})"
        ) from error


def _rows(settings: Settings, ranks: Ranks | None, manner: Manner) -> HeldRows | StreamedRows:
    if not is_to_be_streamed(settings):
        return read_rows(settings)
    check_streamable(settings)
    with counted_rows(manner.show_progress) as counting:
        return open_rows(settings, ranks, counting)


@contextmanager
def counted_rows(show: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A live line on standard error that counts the parts of a file as they are read."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("looking at the rows")
        yield lambda done, of: progress.update(task, completed=done, total=of)


def _epochs_done(place: Path | None, settings: Settings) -> int:
    """Epochs that a run which goes on has had; an InputError where these are more than it is to have."""
    from pollux.training import Checkpoints

    if place is None or not (place / folder.UNFINISHED).is_dir():
        return 0
    done = Checkpoints(place / folder.UNFINISHED).epochs_done()
    if isinstance(settings.epochs, int) and done > settings.epochs:
        raise InputError(f"The run has had {done} epochs already, more than {settings.epochs}: ask for more.")
    return done


def _checkpoint_folder(place: Path | None, settings: Settings) -> Path:
    return Path() if place is None else folder.begin_training(place, _toml(settings))


def conclude(
    place: Path,
    settings: Settings,
    rows: HeldRows | StreamedRows,
    clustering: GeminiClustering,
    trained: Trained,
    clock: Clock,
) -> Outcome:
    """Write what a training on rows has led to into the folder of its run."""
    with folder.all_together(place, rows.outdated()) as new:
        write_text(new / folder.SETTINGS, _toml(settings))
        of_rows = rows.write(new, clustering)
        clock.lap("writing")
        summary = _summary(settings, rows.preprocessing, clustering, trained) | of_rows
        if (place / folder.REPORT).exists():
            note = f"{folder.REPORT} showed an older model and was removed: make it again, pollux report."
            summary["notes"].append(note)
        summary["seconds"] = clock.laps
        write_text(new / folder.SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return Outcome(place, summary)


class Clock:
    """Seconds of each part of the work."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        """What was done since the last call was this."""
        now = perf_counter()
        self.laps[name], self._last = now - self._last, now


@contextmanager
def processes(device: str) -> Iterator[Ranks | None]:
    """The processes that torchrun started, where there are several."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        # Without torch, whose import takes seconds: complaints come sooner.
        yield None
        return
    from pollux.ranks import is_lost, joining

    with joining(device) as ranks:
        try:
            yield ranks
        except RuntimeError as error:
            if not is_lost(error):
                raise
            raise InputError(
                "Another process has gone, and this cannot go on alone. What was learned is in the last checkpoint: "
                f"torchrun --max-restarts 3 starts all again, and pollux fit --resume goes on. ({error})"
            ) from error


def started_again() -> bool:
    """Whether torchrun has started the processes again, after one of them had died."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"


@contextmanager
def heeded(checkpoints: Checkpoints) -> Iterator[None]:
    # Imported late, because it brings torch.
    from pollux.app.runs import interrupts

    with interrupts.heeded(checkpoints):
        yield


def _train(clustering: GeminiClustering, samples: Any, show_progress: bool) -> list[str]:
    """What the user should know of the training."""
    from pollux.training import NotFiniteError, ProgressBar

    clustering.callbacks = [ProgressBar()] if show_progress else []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            clustering.fit(samples)
        except NotFiniteError as error:
            raise NothingLearnedError(str(error)) from error
        except (ValueError, TypeError) as error:
            raise error if isinstance(error, InputError) else InputError(str(error)) from error
    clustering.callbacks = ()
    return in_words(caught)


def in_words(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Warnings of a training, each once, in the words of the command line."""
    from pollux.clustering import CollapseWarning

    notes = [COLLAPSED if warning.category is CollapseWarning else str(warning.message) for warning in caught]
    return list(dict.fromkeys(notes))


COLLAPSED = (
    "Everything fell into one cluster. Try --objective mmd_ovo, more --restarts or a smaller --learning-rate; or the "
    "data hold no clusters that this model and geometry can see."
)


def _summary(
    settings: Settings, preprocessing: Encoding, clustering: GeminiClustering, trained: Trained
) -> dict[str, Any]:
    """What there is to say of a run, but for its rows."""
    return {
        "pollux": version("pollux"),
        "model": settings.model,
        "rows": 0,
        "rows_dropped": 0,
        "features": int(np.prod(clustering.fitted_.shape)),
        "identifiers": list(preprocessing.identifiers),
        "left_out": dict(preprocessing.left_out),
        "clusters": [],
        "clusters_found": clustering.n_clusters_,
        "clusters_asked_for": settings.clusters,
        "objective": clustering.objective_,
        "stability": clustering.stability_,
        "entropy": 0.0,
        "epochs": clustering.n_iter_,
        "interrupted": trained.interrupted,
        "diverged": clustering.diverged_,
        "resumed_after": trained.resumed_after,
        "notes": list(trained.notes),
        "scores": None,
        "command": settings.command(),
    }


def _toml(settings: Settings) -> str:
    header = f"# Made by pollux {version('pollux')}. To repeat the run: pollux fit --config {folder.SETTINGS}\n"
    return header + settings.to_toml()
