"""``pollux reproduce``: choose the runs, do those that are not recorded, and write the reports."""

from __future__ import annotations

import functools
import json
import math
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pollux.errors import InputError, counted, did_you_mean
from pollux.lab import records
from pollux.lab.datasets import load_images
from pollux.lab.grid import (
    CHECKPOINT_EVERY,
    Failure,
    Limits,
    RunContext,
    Task,
    cores,
    model_path,
    run_grid,
    threads_each,
)
from pollux.lab.paper import EXPERIMENTS
from pollux.lab.paper.experiment import Experiment, Protocol
from pollux.lab.progress import progress_display
from pollux.lab.records import Record, Run
from pollux.lab.results import Report, check_records, duration, publish, results_folder, with_figures
from pollux.training.checkpoints import parse_every

# Settings that may have any value. Table cells are found by the other settings, so those must be values of the grid.
FREE = ("epochs", "vat", "draws", "samples", "repeats", "epsilon")


@dataclass(frozen=True)
class Request:
    """The options of the command: ``only`` and ``other`` are texts NAME=VALUE."""

    names: Sequence[str]
    profile: str = "quick"
    runs: int | None = None
    jobs: int | None = None
    out: str | Path = "results"
    only: Sequence[str] = ()
    other: Sequence[str] = ()
    show: bool = False
    checkpoint_every: str = CHECKPOINT_EVERY


@dataclass(frozen=True)
class ExperimentTask(Task):
    """A run of one experiment."""

    planned: Run

    @property
    def run(self) -> Run:
        return self.planned

    @property
    def saves_model(self) -> bool:
        return EXPERIMENTS[self.run.experiment].saves_model(self.run)

    def measure(self, context: RunContext) -> Mapping[str, Any]:
        # The oldest records lack "random_state": their seed is the number of the run.
        seed = self.run.random_state
        metrics = EXPERIMENTS[self.run.experiment].measure(self.run.settings, seed, context)
        return {**metrics, "random_state": seed}


def reproduce(request: Request) -> list[Failure]:
    """Run the experiments, show the results, and return the failures."""
    for option, number in (("--runs", request.runs), ("--jobs", request.jobs)):
        if number is not None and number < 1:
            raise InputError(f"{option} is a positive number, not {number}.")
    parse_every(request.checkpoint_every)
    chosen = choose(request.names, request.profile, request.only, request.other, request.runs)
    grids = [(experiment, protocol, protocol.all_runs(experiment.name)) for experiment, protocol in chosen]
    # Check all options before anything is run or written.
    folder = results_folder(request.out)
    for experiment, _, runs in [] if request.show else grids:
        check_records(record_path(folder, experiment))
        if missing := missing_runs(experiment, runs, folder):
            for name in experiment.data:
                load_images(name)
            experiment.check(missing, folder)
    if request.show and not any(recorded_runs(experiment, runs, folder) for experiment, _, runs in grids):
        names = _listed([experiment for experiment, _, _ in grids])
        if others := sum(len(records.read(record_path(folder, experiment))) for experiment, _, _ in grids):
            raise InputError(
                f"{others} runs of {names} are recorded in {folder}, but with other settings: give the --profile, "
                "--set, --only and --runs that they were run with."
            )
        raise InputError(f"Nothing of this is recorded in {folder}: {names}. To run it, leave --show out.")
    failures: list[Failure] = []
    for experiment, protocol, runs in grids:
        limits = Limits(request.jobs or cores(), 1, checkpoint_every=request.checkpoint_every)
        failed = [] if request.show else run_experiment(experiment, runs, folder, limits)
        failures += failed
        found = recorded_runs(experiment, runs, folder)
        if found or failed:
            report = report_on(experiment, protocol, found, request, failed)
            if found and experiment.figures is not None:
                report = with_figures(report, folder, functools.partial(experiment.figures, found, folder))
            publish(report, folder)
        else:
            # One of several experiments has no records; an older page about it is kept.
            print(f"{experiment.name}: nothing of this is recorded in {folder}", file=sys.stderr)
    return failures


def record_path(folder: Path, experiment: Experiment) -> Path:
    """Return the file in which the runs of an experiment are recorded."""
    return folder / f"{experiment.name}.jsonl"


def recorded_runs(experiment: Experiment, runs: Sequence[Run], folder: Path) -> list[Record]:
    """Return the records of those runs that are finished and not outdated, in the order of the runs."""
    known = records.read(record_path(folder, experiment))
    return [known[run.key] for run in runs if run.key in known and not experiment.outdated(known[run.key], folder)]


def missing_runs(experiment: Experiment, runs: Sequence[Run], folder: Path) -> list[Run]:
    """Return the runs that have no record yet or whose model file is missing."""
    known = {record.run.key for record in recorded_runs(experiment, runs, folder)}
    return [
        run
        for run in runs
        if run.key not in known or (experiment.saves_model(run) and not model_path(folder, run).exists())
    ]


def run_experiment(experiment: Experiment, runs: Sequence[Run], folder: Path, limits: Limits) -> list[Failure]:
    """Do the missing runs, within the limits, and return the failures."""
    missing = [ExperimentTask(run) for run in missing_runs(experiment, runs, folder)]
    if not missing:
        recorded = f"{experiment.name}: nothing to run, {folder} has a record of each of {counted(len(runs), 'run')}"
        print(f"{recorded}; another --out runs them anew", file=sys.stderr)
        return []
    jobs = 1 if experiment.timed else min(limits.jobs, len(missing))
    threads = 1 if experiment.timed else threads_each(jobs)
    limits = Limits(jobs, threads, checkpoint_every=limits.checkpoint_every)
    with progress_display(experiment.name, len(missing)) as display:
        return run_grid(missing, record_path(folder, experiment), limits, display)


def _listed(experiments: Sequence[Experiment]) -> str:
    return ", ".join(experiment.name for experiment in experiments)


# Which runs are requested.


def choose(
    names: Sequence[str], profile: str, only: Sequence[str], other: Sequence[str], runs: int | None
) -> list[tuple[Experiment, Protocol]]:
    """Return the named experiments, each with the protocol to run.

    If there are several, experiments without a requested setting are left out, and a new value applies to those that
    have the setting. ``only`` and ``other`` are texts NAME=VALUE, ``runs`` is the number of seeds of each setting.
    """
    if not names:
        raise InputError(f"Name what to reproduce: {', '.join(EXPERIMENTS)}, or all.")
    for name in names:
        if name != "all" and name not in EXPERIMENTS:
            hint = did_you_mean(name, [*EXPERIMENTS, "all"])
            raise InputError(f"There is no experiment {name!r}.{hint} There are: {', '.join(EXPERIMENTS)}; or all.")
    experiments = [EXPERIMENTS[name] for name in dict.fromkeys(EXPERIMENTS if "all" in names else names)]
    wanted, values = _pairs("--only", only), _pairs("--set", other)
    known = {name for experiment in experiments for name in experiment.protocol(profile).values}
    for name, _ in [*wanted, *values]:
        if name not in known:
            raise InputError(
                f"{_listed(experiments)} {'has' if len(experiments) == 1 else 'have'} no setting {name!r}."
                f"{did_you_mean(name, known)} There {'is' if len(known) == 1 else 'are'}: {', '.join(sorted(known))}."
            )
    for name, text in wanted:
        _check_value(name, text, experiments, profile)
    if twice := [name for name, count in Counter(name for name, _ in values).items() if count > 1]:
        raise InputError(f"--set gives {twice[0]} more than one value: one command for each, please.")
    chosen = []
    for experiment in experiments:
        protocol = experiment.protocol(profile)
        kept: dict[str, list[Any]] = {name: [] for name, _ in wanted}
        for name, text in wanted:
            kept[name] += _matching_values(text, protocol.values.get(name, []))
        changed = {name: _new_value(name, text, experiment) for name, text in values}
        protocol = protocol.restricted(kept, changed, runs)
        if protocol.grid:
            chosen.append((experiment, protocol))
    if not chosen:
        raise InputError(f"No settings of {_listed(experiments)} have {' and '.join(only)}.")
    return chosen


def _pairs(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    for text in texts:
        if "=" not in text:
            raise InputError(f"{option} takes NAME=VALUE, as in {option} epochs=50; not {text!r}.")
    return [(name.strip(), value.strip()) for name, _, value in (text.partition("=") for text in texts)]


def _check_value(name: str, text: str, experiments: Sequence[Experiment], profile: str) -> None:
    """Raise an InputError if no setting has the value; say so if another profile has it."""
    pairs = [(key, protocol.values.get(name, [])) for one in experiments for key, protocol in one.protocols.items()]
    here = [value for key, values in pairs if key == profile for value in values]
    if _matching_values(text, here):
        return
    known = list(dict.fromkeys(map(str, here)))
    elsewhere = [key for key, values in pairs if _matching_values(text, values)]
    hint = f" --profile {elsewhere[0]} has them." if elsewhere else did_you_mean(text, known)
    raise InputError(f"No settings of {_listed(experiments)} have {name}={text}.{hint} {name} is: {', '.join(known)}.")


def _matching_values(text: str, values: Collection[Any]) -> list[Any]:
    """Return the values that the text denotes: 0 denotes 0.0, and 1e-6 denotes 1e-06."""
    parsed = _parse(text)
    return [value for value in values if text == str(value) or (type(parsed) is not str and parsed == value)]


def _parse(text: str) -> Any:
    """Parse a number or boolean; anything else stays text."""
    try:
        # JavaScript constants such as NaN are not numbers.
        return json.loads(text, parse_constant=lambda word: word)
    except (ValueError, RecursionError):
        return text


def _new_value(name: str, text: str, experiment: Experiment) -> Any:
    """Parse a new value of a setting, which must have the type of the existing values."""
    values = [value for protocol in experiment.protocols.values() for value in protocol.values.get(name, [])]
    if not values:
        # Only other experiments have the setting.
        return None
    if name not in FREE:
        if matching := _matching_values(text, values):
            return matching[0]
        known = list(dict.fromkeys(map(str, values)))
        raise InputError(
            f"--set {name}={text}: {name} is one of {', '.join(known)}; other values have no place in the tables."
            f"{did_you_mean(text, known)}"
        )
    number, kind = _parse(text), type(values[0])
    least = min(0.0 if kind is float else 1, *values)
    # 50.0 becomes 50 and 1 becomes 1.0, so that equal runs have equal keys.
    if type(number) in (int, float) and math.isfinite(number) and kind(number) == number >= least:
        return kind(number)
    raise InputError(f"--set {name}={text}: {name} is a {'number from 0' if kind is float else 'whole number from 1'}.")


# The report.


def report_on(
    experiment: Experiment,
    protocol: Protocol,
    found: Sequence[Record],
    request: Request,
    failures: Sequence[Failure] = (),
) -> Report:
    """Return the report on an experiment, without its figures."""
    counts = Counter(warning for record in found for warning in record.warnings)
    warned = [f"Warned: {text} ({counted(count, 'run')})" for text, count in counts.most_common()]
    lead = [
        f"{experiment.place[:1].upper()}{experiment.place[1:]} of the paper",
        f"profile {request.profile}",
        f"{len(found):,} of {len(protocol.all_runs(experiment.name)):,} runs recorded",
        f"{duration(sum(record.seconds for record in found))} of runs",
    ]
    words = ["pollux", "reproduce", experiment.name, "--profile", request.profile]
    words += [] if request.runs is None else ["--runs", str(request.runs)]
    words += [word for text in request.only for word in ("--only", text)]
    words += [word for text in request.other for word in ("--set", text)]
    words += [] if str(request.out) == "results" else ["--out", str(request.out)]
    return Report(
        experiment.name,
        experiment.title,
        " · ".join(lead),
        [table.in_words() for table in experiment.tables(found)],
        found,
        shlex.join(words),
        _departure(experiment, protocol, request.profile),
        experiment.conclusion(found),
        _settings_in_words(protocol, experiment.protocols["paper"]),
        [*(f"Failed: {failure.in_words()}" for failure in failures), *warned],
    )


def _departure(experiment: Experiment, protocol: Protocol, profile: str) -> str:
    """Return how the runs differ from the full protocol; empty if they do not."""
    paper, usual = experiment.protocols["paper"], experiment.protocol(profile)
    if (protocol.grid, protocol.runs) == (paper.grid, paper.runs):
        return ""
    is_changed = (protocol.grid, protocol.runs) != (usual.grid, usual.runs)
    if protocol.remark and not is_changed:
        return f"{profile}: {protocol.remark}"
    # The remark describes the profile, and need not hold once options have changed it.
    ours, theirs = _values_in_words(protocol), _values_in_words(paper)
    changes = [
        f"{name} {', '.join(values)} instead of {', '.join(theirs.get(name, ['none']))}"
        for name, values in ours.items()
        if not set(values) <= set(theirs.get(name, []))
    ]
    if len(protocol.grid) < len(paper.grid):
        changes.append(f"{len(protocol.grid)} of {len(paper.grid)} settings")
    if protocol.runs != paper.runs:
        changes.append(f"{counted(protocol.runs, 'run')} of each instead of {paper.runs}")
    return f"{profile}{', changed by options' if is_changed else ''}: {', '.join(changes) or 'other settings'}"


def _settings_in_words(protocol: Protocol, paper: Protocol) -> dict[str, str]:
    """Return the values of each setting, with the paper's if they differ."""
    ours, theirs = ({**_values_in_words(one), "runs of each setting": [str(one.runs)]} for one in (protocol, paper))
    return {
        name: ", ".join(values) + (f" (full: {', '.join(theirs[name])})" if values != theirs.get(name) else "")
        for name, values in ours.items()
        if name != "deterministic" and name in theirs
    }


def _values_in_words(protocol: Protocol) -> dict[str, list[str]]:
    return {
        name: [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        for name, values in protocol.values.items()
    }
