"""``pollux reproduce``: choose the runs, do those that are not recorded, and report on all of them."""

from __future__ import annotations

import functools
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pollux.errors import InputError
from pollux.lab import records
from pollux.lab.datasets import load_images
from pollux.lab.grid import Failure, Limits, RunContext, Task, cores, model_path, run_grid, threads_each
from pollux.lab.paper import EXPERIMENTS
from pollux.lab.paper.choices import choose
from pollux.lab.paper.experiment import Experiment, Protocol
from pollux.lab.progress import progress_display
from pollux.lab.records import Record, Run
from pollux.lab.results import Report, check_records, duration, publish, results_folder, with_figures
from pollux.lab.unfinished import CHECKPOINT_EVERY
from pollux.training.checkpoints import parse_every


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

    @property
    def limits(self) -> Limits:
        """How many runs at a time, and how often they write checkpoints."""
        jobs = self.jobs or cores()
        return Limits(jobs, threads_each(jobs), checkpoint_every=self.checkpoint_every)


@dataclass(frozen=True)
class ExperimentTask(Task):
    """A run of one of the experiments."""

    planned: Run

    @property
    def run(self) -> Run:
        return self.planned

    @property
    def saves_model(self) -> bool:
        return EXPERIMENTS[self.run.experiment].saves_model(self.run)

    def measure(self, context: RunContext) -> Mapping[str, Any]:
        return EXPERIMENTS[self.run.experiment].measure(self.run.settings, self.run.seed, context)


def reproduce(request: Request) -> list[Failure]:
    """Run and show the experiments; the runs that failed."""
    for option, number in (("--runs", request.runs), ("--jobs", request.jobs)):
        if number is not None and number < 1:
            raise InputError(f"{option} is a positive number, not {number}.")
    parse_every(request.checkpoint_every)
    chosen = choose(request.names, request.profile, request.only, request.other, request.runs)
    grids = [(experiment, protocol, protocol.all_runs(experiment.name)) for experiment, protocol in chosen]
    # Complaints come before anything is run or written.
    folder = results_folder(request.out)
    if request.show:
        if not any(recorded_runs(experiment, runs, folder) for experiment, _, runs in grids):
            raise InputError(_nothing_to_show([experiment for experiment, _, _ in grids], folder))
    else:
        for experiment, _, runs in grids:
            _check(experiment, runs, folder)
    failures: list[Failure] = []
    for experiment, protocol, runs in grids:
        failed = [] if request.show else run_experiment(experiment, runs, folder, request.limits)
        failures += failed
        found = recorded_runs(experiment, runs, folder)
        if found or failed:
            report = report_on(experiment, protocol, found, request, failed)
            if found and experiment.figures is not None:
                report = with_figures(report, folder, functools.partial(experiment.figures, found, folder))
            publish(report, folder)
        else:
            # Of several experiments; an older page of this one stays as it is.
            print(f"{experiment.name}: nothing of this is recorded in {folder}", file=sys.stderr)
    return failures


def record_path(folder: Path, experiment: Experiment) -> Path:
    """Where the runs of an experiment are recorded."""
    return folder / f"{experiment.name}.jsonl"


def recorded_runs(experiment: Experiment, runs: Sequence[Run], folder: Path) -> list[Record]:
    """The records of those of the runs that have ended and are not outdated, in the order of the runs."""
    known = records.read(record_path(folder, experiment))
    return [known[run.key] for run in runs if run.key in known and not experiment.outdated(known[run.key], folder)]


def missing_runs(experiment: Experiment, runs: Sequence[Run], folder: Path) -> list[Run]:
    """The runs that have no record yet, or whose model is gone."""
    known = {record.run.key for record in recorded_runs(experiment, runs, folder)}
    return [
        run
        for run in runs
        if run.key not in known or (experiment.saves_model(run) and not model_path(folder, run).exists())
    ]


def run_experiment(experiment: Experiment, runs: Sequence[Run], folder: Path, limits: Limits) -> list[Failure]:
    """Do the runs that are missing; those that failed."""
    missing = [ExperimentTask(run) for run in missing_runs(experiment, runs, folder)]
    if not missing:
        return []
    jobs = 1 if experiment.timed else min(limits.jobs, len(missing))
    threads = 1 if experiment.timed else threads_each(jobs)
    limits = Limits(jobs, threads, checkpoint_every=limits.checkpoint_every)
    with progress_display(experiment.name, len(missing)) as display:
        return run_grid(missing, record_path(folder, experiment), limits, display)


def _nothing_to_show(experiments: Sequence[Experiment], folder: Path) -> str:
    """What to do where nothing of a request is recorded, but perhaps something else."""
    names = ", ".join(experiment.name for experiment in experiments)
    others = sum(len(records.read(record_path(folder, experiment))) for experiment in experiments)
    if others:
        return (
            f"{others} runs of {names} are recorded in {folder}, but with other settings: give the --profile, --set, "
            f"--only and --runs that they were run with."
        )
    return f"Nothing of this is recorded in {folder}: {names}. To run it, leave --show out."


def _check(experiment: Experiment, runs: Sequence[Run], folder: Path) -> None:
    """Raise an InputError where something that missing runs need is not there."""
    check_records(record_path(folder, experiment))
    if missing := missing_runs(experiment, runs, folder):
        for name in experiment.data:
            load_images(name)
        experiment.check(missing, folder)


# The report.


def report_on(
    experiment: Experiment,
    protocol: Protocol,
    found: Sequence[Record],
    request: Request,
    failures: Sequence[Failure] = (),
) -> Report:
    """The report on an experiment, without its figures."""
    counts = Counter(warning for record in found for warning in record.warnings)
    warned = [f"Warned: {text} ({count} {'run' if count == 1 else 'runs'})" for text, count in counts.most_common()]
    lead = [
        f"{experiment.place[:1].upper()}{experiment.place[1:]} of the paper",
        f"profile {request.profile}",
        f"{len(found):,} of {len(protocol.all_runs(experiment.name)):,} runs recorded",
        f"{duration(sum(record.seconds for record in found))} of runs",
    ]
    return Report(
        experiment.name,
        experiment.title,
        " · ".join(lead),
        [table.in_words() for table in experiment.tables(found)],
        found,
        _command(experiment, request),
        _departure(experiment, protocol, request),
        experiment.conclusion(found) if experiment.conclusion else [],
        _settings_in_words(protocol, experiment.protocols["paper"]),
        [*(f"Failed: {failure}" for failure in failures), *warned],
    )


def _departure(experiment: Experiment, protocol: Protocol, request: Request) -> str:
    """How what was run differs from the full protocol; nothing where it does not."""
    paper = experiment.protocols["paper"]
    if list(protocol.grid) == list(paper.grid) and protocol.runs == paper.runs:
        return ""
    usual = experiment.protocols[request.profile]
    is_changed = list(protocol.grid) != list(usual.grid) or protocol.runs != usual.runs
    if protocol.remark and not is_changed:
        return f"{request.profile}: {protocol.remark}"
    # A remark on the profile need not be true of what options made of it.
    changes = _differing_values(protocol, paper)
    if len(protocol.grid) < len(paper.grid):
        changes.append(f"{len(protocol.grid)} of {len(paper.grid)} settings")
    if protocol.runs != paper.runs:
        changes.append(f"{protocol.runs} run{'' if protocol.runs == 1 else 's'} of each instead of {paper.runs}")
    profile = f"{request.profile}, changed by options" if is_changed else request.profile
    return f"{profile}: {', '.join(changes) or 'other settings'}"


def _differing_values(protocol: Protocol, paper: Protocol) -> list[str]:
    ours, theirs = _values(protocol), _values(paper)
    return [
        f"{name} {', '.join(values)} instead of {', '.join(theirs.get(name, ['none']))}"
        for name, values in ours.items()
        if not set(values) <= set(theirs.get(name, []))
    ]


def _settings_in_words(protocol: Protocol, paper: Protocol) -> dict[str, str]:
    """The values of each setting, with the paper's where those differ."""
    ours, theirs = _values(protocol), _values(paper)
    ours["runs of each setting"], theirs["runs of each setting"] = [str(protocol.runs)], [str(paper.runs)]
    return {
        name: ", ".join(values) + (f" (full: {', '.join(theirs[name])})" if values != theirs.get(name) else "")
        for name, values in ours.items()
        if name != "deterministic" and name in theirs
    }


def _values(protocol: Protocol) -> dict[str, list[str]]:
    """All values of each setting of a grid, in its order."""
    found: dict[str, dict[str, None]] = {}
    for settings in protocol.grid:
        for name, value in settings.items():
            found.setdefault(name, {})[f"{value:g}" if isinstance(value, float) else str(value)] = None
    return {name: list(values) for name, values in found.items()}


def _command(experiment: Experiment, request: Request) -> str:
    """The command line that shows or runs the same."""
    words = ["pollux", "reproduce", experiment.name, "--profile", request.profile]
    words += [] if request.runs is None else ["--runs", str(request.runs)]
    words += [word for text in request.only for word in ("--only", text)]
    words += [word for text in request.other for word in ("--set", text)]
    words += [] if str(request.out) == "results" else ["--out", str(request.out)]
    return shlex.join(words)
