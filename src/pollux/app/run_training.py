"""``pollux fit``: read, train and write the folder of a run; a run that was stopped goes on the same way."""

from __future__ import annotations

import json
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any

from pollux.app import run_folder
from pollux.app.console import SILENT, Console
from pollux.app.estimator import make_estimator
from pollux.app.run_data import RunData, open_run_data
from pollux.app.settings import Settings, with_path
from pollux.errors import InputError, NothingLearnedError, option
from pollux.io.atomic import write_text

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering
    from pollux.ranks import Ranks
    from pollux.training import Checkpoints


@dataclass(frozen=True)
class Outcome:
    """What a run has found, and where it is. Of several processes only the first has one."""

    folder: Path
    summary: dict[str, Any]


@dataclass(frozen=True)
class _Training:
    """How a training ended: whether it was stopped, what the user should know, and the epochs it was resumed after."""

    interrupted: bool
    notes: list[str]
    resumed_after: list[int] = field(default_factory=list)


def start_run(
    settings: Settings, out: str | Path | None = None, *, overwrite: bool = False, console: Console = SILENT
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
    console : Console
        Where progress is shown, and what is read is described.
    """
    settings = with_path(settings)
    with _processes(settings.device) as ranks:
        if ranks is not None and ranks.rank:
            return run_training(settings, nullcontext(None), ranks)
        unfinished = run_folder.find_unfinished(out, settings.data, settings) if _is_restarted() else None
        if unfinished is not None:
            return run_training(settings, run_folder.reopen_run_folder(unfinished), ranks, console)
        finished = run_folder.find_finished(out, settings.data, settings) if _is_restarted() else None
        if finished is not None:
            # A launcher takes any exit code but zero for a reason to start again.
            return Outcome(finished, run_folder.read_summary(finished))
        if out is not None:
            run_folder.check_free(out, overwrite)
            run_folder.check_idle(out)
        return run_training(settings, run_folder.create_run_folder(out, settings.data, overwrite), ranks, console)


def resume_run(run: str | Path, *, max_epochs: int | str | None = None, console: Console = SILENT) -> Outcome | None:
    """Train the model of a run further, up to its epochs or those given, and write its folder anew.

    It goes on from the last checkpoint as if nothing had happened in between.

    Parameters
    ----------
    run : path
        The folder of the run.
    max_epochs : int, optional
        Epochs in all, those already done included; the run's own by default.
    console : Console
        Where progress is shown.
    """
    run = Path(run)
    settings = run_folder.read_settings_to_resume(run)
    if settings is None:
        raise InputError(f"{run} has no {run_folder.SETTINGS}: pass the folder of a run.")
    if os.environ.get("RANK", "0") == "0":
        run_folder.check_idle(run)
    if max_epochs is not None and max_epochs != settings.max_epochs:
        _check_can_change(settings, max_epochs, run)
        settings = replace(settings, max_epochs=max_epochs)
    summary = run_folder.read_summary(run)
    if not (run / run_folder.UNFINISHED).is_dir():
        done = summary.get("epochs", 0)
        # How many "auto" stands for is known once the training has ended.
        asked = done if settings.max_epochs == "auto" else int(settings.max_epochs)
        if done >= asked and not summary.get("interrupted"):
            can_have_more = settings.schedule == "constant"
            more = "ask for more of them (--epochs)" if can_have_more else "its learning rate has fallen to zero"
            raise InputError(f"The run has had its {done} epochs: {more}.")
    with _processes(settings.device) as ranks:
        if ranks is not None and ranks.rank:
            return run_training(settings, nullcontext(None), ranks)
        before = summary.get("resumed_after", [])
        return run_training(settings, run_folder.reopen_run_folder(run), ranks, console, before)


def _check_can_change(settings: Settings, max_epochs: int | str, run: Path) -> None:
    """Raise an InputError where a run cannot go on for another number of epochs than its own."""
    if max_epochs == "auto":
        raise InputError("A run goes on for a number of epochs that is given: --epochs N, those already done included.")
    again = f"pollux fit --config {run / run_folder.SETTINGS} --epochs {max_epochs}"
    if settings.schedule != "constant":
        raise InputError(
            f"The learning rate of the run falls to zero over its own epochs ({option('schedule', settings.schedule)})"
            f", so it cannot have others: start a new run, {again}."
        )
    # One or two restarts have no trial.
    if settings.trial_epochs == "auto" and settings.n_init not in (1, 2):
        raise InputError(
            f"The trial of the run is a quarter of its own epochs ({option('trial_epochs', 'auto')}), so it cannot "
            f"have others: start a new run that names the trial, {again} --trial-epochs N."
        )


def run_training(
    settings: Settings,
    place: AbstractContextManager[Path | None],
    ranks: Ranks | None,
    console: Console = SILENT,
    resumed_after: Sequence[int] = (),
) -> Outcome | None:
    """Read, train and write. Only the first process has a folder; ``resumed_after`` are epochs of earlier breaks."""
    clock = _Clock()
    with _explain_memory_errors(settings):
        with console.live_line() as show:
            data = open_run_data(settings, ranks, lambda done, of: show(f"reading rows: {done:,} of {of:,} parts"))
        clock.lap("reading")
        clustering = make_estimator(settings, len(data))
        clock.lap("importing")
        for line in data.describe():
            console.echo(line)
        samples = data.samples
        clock.lap("encoding")
    from pollux.threads import at_most
    from pollux.training import Checkpoints

    with place as folder:
        done = _epochs_done(folder, settings)
        checkpoints = Checkpoints(_checkpoint_folder(folder, settings), every=settings.checkpoint_every)
        clustering.set_params(training__checkpoint=checkpoints)
        # Streamed rows are not read once more by a training that was stopped.
        checkpoints.stop_immediately = data.is_streamed
        if done:
            of = "" if settings.max_epochs == "auto" else f" of {settings.max_epochs}"
            console.echo(f"going on after epoch {done}{of}")
        with stop_on_signals(checkpoints):
            with at_most(settings.threads):
                notes = _fit(clustering, samples, console)
            clock.lap("training")
            if folder is None:
                return None
            training = _Training(checkpoints.stopped, notes, [*resumed_after, *([done] if done else [])])
            return write_results(folder, data, clustering, training, clock)


@contextmanager
def _explain_memory_errors(settings: Settings) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        # What pyarrow, numpy and Python raise.
        raise InputError(
            f"There is not enough memory to hold the rows of {settings.data}: read them as they are needed, from "
            f"Parquet or .npy files ({option('stream', 'yes')}), or fewer of them. ({error})"
        ) from error


def _epochs_done(folder: Path | None, settings: Settings) -> int:
    """Epochs that a run which goes on has had; an InputError where these are more than it is to have."""
    from pollux.training import Checkpoints

    if folder is None or not (folder / run_folder.UNFINISHED).is_dir():
        return 0
    done = Checkpoints(folder / run_folder.UNFINISHED).epochs_done()
    if isinstance(settings.max_epochs, int) and done > settings.max_epochs:
        raise InputError(f"The run has had {done} epochs already, more than {settings.max_epochs}: ask for more.")
    return done


def _checkpoint_folder(folder: Path | None, settings: Settings) -> Path:
    return Path() if folder is None else run_folder.begin_training(folder, _toml(settings))


@contextmanager
def stop_on_signals(checkpoints: Checkpoints) -> Iterator[None]:
    """Ctrl-C and SIGTERM make the training write a checkpoint after its step and end.

    After Ctrl-C the model is evaluated and written as it is, unless the data are streamed; a second one is let through
    at once. Whoever sends SIGTERM does not wait long: the training leaves with the checkpoint.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        again, checkpoints.stop_requested = checkpoints.stop_requested, True
        if number == signal.SIGTERM:
            # Launchers send it more than once.
            checkpoints.stop_immediately = True
            again = not (again or checkpoints.is_training or checkpoints.stopped)
        if again:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fit(clustering: GeminiClustering, samples: Any, console: Console) -> list[str]:
    """Fit the estimator; what the user should know of it."""
    from pollux.training import NotFiniteError, ProgressBar

    clustering.callbacks = [ProgressBar()] if console.shows_progress else []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            clustering.fit(samples)
        except NotFiniteError as error:
            raise NothingLearnedError(str(error)) from error
        except (ValueError, TypeError) as error:
            raise error if isinstance(error, InputError) else InputError(str(error)) from error
    clustering.callbacks = ()
    return describe_warnings(caught)


def describe_warnings(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Warnings of a training, each once, in the words of the command line."""
    from pollux.clustering import CollapseWarning

    notes = [COLLAPSED if warning.category is CollapseWarning else str(warning.message) for warning in caught]
    return list(dict.fromkeys(notes))


COLLAPSED = (
    "Everything fell into one cluster. Try --objective mmd_ovo, more --restarts or a smaller --learning-rate; or the "
    "data hold no clusters that this model and geometry can see."
)


def write_results(
    folder: Path, data: RunData, clustering: GeminiClustering, training: _Training, clock: _Clock
) -> Outcome:
    """Write the model, the clusters, the settings and the summary into the folder of a run, all together."""
    clusters, others = run_folder.CLUSTERS, run_folder.STREAMED_CLUSTERS
    if data.is_streamed:
        clusters, others = others, clusters
    with run_folder.replace_results(folder, outdated=(run_folder.REPORT, others)) as new:
        write_text(new / run_folder.SETTINGS, _toml(data.settings))
        clustering.fitted_ = replace(clustering.fitted_, encoding=data.encoding)
        clustering.save(new / run_folder.MODEL)
        of_rows = data.write_assignments(new / clusters, clustering.fitted_)
        clock.lap("writing")
        summary = {**_summary(data, clustering, training), **of_rows}
        if (folder / run_folder.REPORT).exists():
            note = f"{run_folder.REPORT} showed an older model and was removed: make it again, pollux report."
            summary["notes"].append(note)
        summary["seconds"] = clock.laps
        write_text(new / run_folder.SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return Outcome(folder, summary)


def _summary(data: RunData, clustering: GeminiClustering, training: _Training) -> dict[str, Any]:
    """What there is to say of a run, but for its rows."""
    return {
        "pollux": version("pollux"),
        "model": data.settings.model,
        "rows": 0,
        "rows_dropped": 0,
        "features": data.n_features,
        "identifiers": list(data.encoding.identifiers),
        "left_out": dict(data.encoding.left_out),
        "clusters": [],
        "clusters_found": clustering.n_clusters_,
        "clusters_asked_for": data.settings.n_clusters,
        "objective": clustering.objective_,
        "stability": clustering.stability_,
        "entropy": 0.0,
        "epochs": clustering.n_iter_,
        "interrupted": training.interrupted,
        "diverged": clustering.diverged_,
        "resumed_after": training.resumed_after,
        "notes": list(training.notes),
        "scores": None,
        "command": data.settings.command(),
    }


def _toml(settings: Settings) -> str:
    header = f"# Made by pollux {version('pollux')}. To repeat the run: pollux fit --config {run_folder.SETTINGS}\n"
    return header + settings.to_toml()


class _Clock:
    """Seconds of each part of the work."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        """The time since the last call belongs to this part."""
        now = perf_counter()
        self.laps[name], self._last = now - self._last, now


@contextmanager
def _processes(device: str) -> Iterator[Ranks | None]:
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


def _is_restarted() -> bool:
    """Whether torchrun has started the processes again, after one of them had died."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
