"""From a request to tables and figures: choose the runs, do those that lack, show them all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pollux.datasets import load_images
from pollux.errors import InputError, did_you_mean
from pollux.experiments import EXPERIMENTS
from pollux.experiments.display import display
from pollux.experiments.experiment import Experiment, Protocol, Run
from pollux.experiments.running import Outcome, execute, recorded, to_do


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    names: Sequence[str]
    profile: str = "quick"
    runs: int | None = None
    jobs: int = 1
    out: str | Path = "results"
    only: Sequence[str] = ()
    other: Sequence[str] = ()
    show: bool = False


def reproduce(request: Request) -> int:
    """Run and show the experiments; the number of runs that failed."""
    chosen = [(experiment, _protocol(experiment, request)) for experiment in _experiments(request.names)]
    folder = Path(request.out)
    if not request.show:
        for experiment, protocol in chosen:
            _check_data(experiment, protocol.all_runs(experiment.name), folder)
    failed = 0
    for experiment, protocol in chosen:
        outcome = _outcome(experiment, protocol.all_runs(experiment.name), folder, request)
        failed += len(outcome.failures)
    return failed


def _experiments(names: Sequence[str]) -> list[Experiment]:
    if not names:
        raise InputError(f"Name what to reproduce: {', '.join(EXPERIMENTS)}, or all.")
    for name in names:
        if name != "all" and name not in EXPERIMENTS:
            raise InputError(
                f"There is no experiment {name!r}.{did_you_mean(name, EXPERIMENTS)} "
                f"There are: {', '.join(EXPERIMENTS)}; or all."
            )
    return list(EXPERIMENTS.values()) if "all" in names else [EXPERIMENTS[name] for name in dict.fromkeys(names)]


def _protocol(experiment: Experiment, request: Request) -> Protocol:
    for option, number in (("--runs", request.runs), ("--jobs", request.jobs)):
        if number is not None and number < 1:
            raise InputError(f"{option} is a positive number, not {number}.")
    protocol = experiment.protocols[request.profile]
    only, other = _pairs("--only", request.only), _pairs("--set", request.other)
    known = {name for settings in protocol.grid for name in settings}
    for name in [*only, *other]:
        if name not in known:
            raise InputError(
                f"{experiment.name} has no setting {name!r}.{did_you_mean(name, known)} It has: "
                f"{', '.join(sorted(known))}."
            )
    restricted = protocol.restricted(only, {name: _value(text) for name, text in other.items()}, request.runs)
    if not restricted.grid:
        raise InputError(f"No settings of {experiment.name} have {', '.join(request.only)}.")
    return restricted


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in texts if "=" in text)
    for text in texts:
        if "=" not in text:
            raise InputError(f"{option} takes NAME=VALUE, as in {option} epochs=50; not {text!r}.")
    return pairs


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_data(experiment: Experiment, runs: Sequence[Run], folder: Path) -> None:
    """Complain of data that are not here before anything is run."""
    if to_do(experiment, runs, folder):
        for name in experiment.data:
            load_images(name)


def _outcome(experiment: Experiment, runs: Sequence[Run], folder: Path, request: Request) -> Outcome:
    if request.show:
        return Outcome(recorded(experiment, runs, folder), {})
    with display(len(to_do(experiment, runs, folder))) as watcher:
        return execute(experiment, runs, folder, jobs=request.jobs, display=watcher)
