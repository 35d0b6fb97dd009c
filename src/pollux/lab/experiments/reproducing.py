"""From a request to tables and figures: choose the runs, do those that lack, show them all."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pollux.errors import InputError
from pollux.lab.datasets import load_images
from pollux.lab.experiments.choosing import choose
from pollux.lab.experiments.display import display
from pollux.lab.experiments.experiment import Experiment, Run
from pollux.lab.experiments.records import read
from pollux.lab.experiments.rendering import account_of, publish
from pollux.lab.experiments.running import Failure, Outcome, cores, execute, record_path, recorded, to_do
from pollux.lab.unfinished import CHECKPOINT_EVERY
from pollux.training.intervals import parse_every


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    names: Sequence[str]
    profile: str = "quick"
    runs: int | None = None
    jobs: int | None = None
    out: str | Path = "results"
    only: Sequence[str] = ()
    other: Sequence[str] = ()
    show: bool = False
    checkpoint_every: str = CHECKPOINT_EVERY


def reproduce(request: Request) -> list[Failure]:
    """Run and show the experiments; the runs that failed."""
    for option, number in (("--runs", request.runs), ("--jobs", request.jobs)):
        if number is not None and number < 1:
            raise InputError(f"{option} is a positive number, not {number}.")
    parse_every(request.checkpoint_every)
    chosen = choose(request.names, request.profile, request.only, request.other, request.runs)
    grids = [(experiment, protocol, protocol.all_runs(experiment.name)) for experiment, protocol in chosen]
    if not str(request.out):
        raise InputError("--out names no folder.")
    folder = Path(request.out)
    # Complaints come before anything is run or written.
    check_folder(folder)
    if request.show:
        if not any(recorded(experiment, runs, folder) for experiment, _, runs in grids):
            raise InputError(_nothing_to_show([experiment for experiment, _, _ in grids], folder))
    else:
        for experiment, _, runs in grids:
            _check(experiment, runs, folder)
    failures: list[Failure] = []
    for experiment, protocol, runs in grids:
        outcome = _outcome(experiment, runs, folder, request)
        failures += outcome.failures
        if outcome.records or outcome.failures:
            publish(account_of(experiment, protocol, outcome, request), folder)
        else:
            # Of several experiments; an older page of it stays as it is.
            print(f"{experiment.name}: nothing of this is recorded in {folder}", file=sys.stderr)
    return failures


def _nothing_to_show(experiments: Sequence[Experiment], folder: Path) -> str:
    """What to do where nothing of a request is recorded, but perhaps something else."""
    names = ", ".join(experiment.name for experiment in experiments)
    others = sum(len(read(record_path(folder, experiment))) for experiment in experiments)
    if others:
        return (
            f"{others} runs of {names} are recorded in {folder}, but with other settings: give the --profile, --set, "
            f"--only and --runs that they were run with."
        )
    return f"Nothing of this is recorded in {folder}: {names}. To run it, leave --show out."


def check_folder(folder: Path) -> None:
    """Complain of a folder that cannot hold results."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is no folder: name another by --out.")
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InputError(f"{nearest} is a file, so there can be no folder {folder}: name another by --out.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"Nothing can be written into {nearest}: name another folder by --out.")


def _check(experiment: Experiment, runs: Sequence[Run], folder: Path) -> None:
    """Complain of what runs that are to be done will need and is not here."""
    path = record_path(folder, experiment)
    if path.exists() and not (path.is_file() and os.access(path, os.W_OK)):
        raise InputError(f"Nothing can be recorded in {path}: name another folder by --out.")
    if waiting := to_do(experiment, runs, folder):
        for name in experiment.data:
            load_images(name)
        experiment.check(waiting, folder)


def _outcome(experiment: Experiment, runs: Sequence[Run], folder: Path, request: Request) -> Outcome:
    waiting = 0 if request.show else len(to_do(experiment, runs, folder))
    if not waiting:
        return Outcome(recorded(experiment, runs, folder))
    with display(experiment.name, waiting) as watcher:
        jobs, every = request.jobs or cores(), request.checkpoint_every
        return execute(experiment, runs, folder, jobs=jobs, display=watcher, checkpoint_every=every)
