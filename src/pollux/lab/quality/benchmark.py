"""``pollux bench quality``: choose data sets and methods, do the runs that are not recorded, and write the report."""

from __future__ import annotations

import dataclasses
import math
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError, counted
from pollux.lab import records
from pollux.lab.grid import Failure, Limits, RunContext, Task, cores, memory_each, record_of, run_grid, threads_each
from pollux.lab.progress import progress_display
from pollux.lab.quality.labelled_sets import DataSet, Samples, choose_sets
from pollux.lab.quality.leaderboard import Leaderboard, draw_leaderboard, leaderboard_tables, set_tables
from pollux.lab.quality.peers import METHODS, Method, choose_methods, densify, fit_preparation
from pollux.lab.records import Record, Run
from pollux.lab.results import Report, check_records, duration, publish, results_folder, with_figures
from pollux.metrics import adjusted_rand_index, normalised_mutual_information

NAME = "quality"
TITLE = "Quality of clusterings, side by side"
NOISE = -1
"""The label that HDBSCAN gives to rows in no cluster."""
SEEDS, TIMEOUT, OUT = 5, 1200.0, "results/quality"


@dataclass(frozen=True)
class Request:
    """The options of the command. Without folders, the data sets on this machine; without names, all."""

    folders: Sequence[str | Path] = ()
    sets: Sequence[str] = ()
    methods: Sequence[str] = ()
    seeds: int = SEEDS
    jobs: int | None = None
    timeout: float = TIMEOUT
    out: str | Path = OUT
    show: bool = False
    anew: Sequence[str] = ()  # methods that are run again even if they are recorded


# A run.


@dataclass(frozen=True)
class QualityTask(Task):
    """A method on a data set with a seed."""

    data: DataSet
    method: Method
    seed: int

    @property
    def run(self) -> Run:
        """The run, which is a different one for another file or another version of the method."""
        settings = {
            "set": self.data.name,
            "group": self.data.group,
            "method": self.method.name,
            "data": self.data.digest,
            "version": self.method.version,
        }
        return Run(NAME, settings, self.seed)

    @property
    def properties(self) -> Mapping[str, Any]:
        return {"rows": self.data.rows, "columns": self.data.columns, "classes": self.data.classes}

    @property
    def versions(self) -> dict[str, str]:
        return {**super().versions, self.method.package: self.method.version}

    def measure(self, context: RunContext) -> Mapping[str, Any]:
        samples = self.data.load()
        start = time.perf_counter()
        labels = find_labels(self.method, samples, self.data.classes, self.seed, context)
        before = 0.0 if context.unfinished is None else context.unfinished.before
        return {
            "adjusted_rand_index": adjusted_rand_index(samples.scored, labels),
            "normalised_mutual_information": normalised_mutual_information(samples.scored, labels),
            "clusters": len(np.setdiff1d(labels, [NOISE])),
            "seconds": before + time.perf_counter() - start,
        }

    def __str__(self) -> str:
        return f"{self.data.name}, {self.method.title}" + (f", seed {self.seed}" if self.method.is_random else "")


def find_labels(method: Method, samples: Samples, n_clusters: int, seed: int, context: RunContext) -> NDArray[Any]:
    """Fit a method and return its labels (n,): of the test rows if there are any, else of the rows it was fitted to."""
    X, X_test = samples.X, samples.X_test
    if not method.takes_raw:
        prepare = fit_preparation(X)
        X, X_test = prepare(X), None if X_test is None else prepare(X_test)
    if method.needs_dense:
        X = densify(X)
    fitted = method.fit(X, n_clusters, seed, context)
    if X_test is not None:
        return np.asarray(fitted.predict(X_test))
    return np.asarray(fitted.labels_ if hasattr(fitted, "labels_") else fitted.predict(X))


# The comparison.


def compare(request: Request) -> list[Failure]:
    """Run the comparison, show it, and return the failures."""
    # Check all options before anything is run or written.
    for option, number in (("--seeds", request.seeds), ("--jobs", request.jobs), ("--timeout", request.timeout)):
        if number is not None and not (number > 0 and math.isfinite(number)):
            raise InputError(f"{option} is a positive number, not {number}.")
    folder = results_folder(request.out)
    path = record_path(folder)
    check_records(path)
    choose_methods(request.anew)
    if request.show:
        found = recorded_runs(request)
        if not found:
            raise InputError(f"Nothing of this is recorded in {folder}. To run it, leave --show out.")
        _publish(found, request, [])
        return []
    methods, notes = choose_methods(request.methods)
    sets, further = choose_sets(request.folders, request.sets)
    tasks = all_tasks(sets, methods, request.seeds)
    folder.mkdir(parents=True, exist_ok=True)
    jobs, failures = request.jobs or cores(), list[Failure]()
    if missing := _missing_runs(tasks, request, memory_each(jobs)):
        # A new process for each run, so that memory used by earlier runs does not affect its time.
        limits = Limits(jobs, threads_each(jobs), request.timeout, fresh=True)
        with progress_display(NAME, len(missing)) as display:
            failures = run_grid(missing, path, limits, display)
    known = records.read(path)
    found = [known[task.run.key] for task in tasks if task.run.key in known]
    if found:
        _publish(found, request, [*notes, *further], failures)
    return failures


def record_path(folder: Path) -> Path:
    """Return the file in which the runs are recorded."""
    return folder / f"{NAME}.jsonl"


def all_tasks(sets: Sequence[DataSet], methods: Sequence[Method], seeds: int) -> list[QualityTask]:
    """Return all tasks: first seeds first and small sets before large ones, so that results appear early."""
    by_size = sorted(sets, key=lambda data: data.rows * data.columns)
    return [
        QualityTask(data, method, seed)
        for seed in range(seeds)
        for data in by_size
        for method in methods
        if seed == 0 or method.is_random
    ]


def _missing_runs(tasks: Sequence[QualityTask], request: Request, memory: float) -> list[QualityTask]:
    """Return the runs to be done. For those that cannot be done, record the reason."""
    path = record_path(Path(request.out))
    known, missing = records.read(path), []
    for task in tasks:
        refusal = task.method.refusal(task.data, memory)
        record = known.get(task.run.key)
        if is_done(record, refusal, request.timeout) and task.method.name not in request.anew:
            continue
        if not refusal:
            missing.append(task)
        elif record is None:
            records.append(path, record_of(task, {"skipped": refusal}))
    return missing


def is_done(record: Record | None, refusal: str, timeout: float) -> bool:
    """Whether a run need not be done: it has scores, or the reason for having none still applies."""
    if record is None:
        return False
    if "timeout" in record.metrics:
        return bool(record.metrics["timeout"] >= timeout)
    return "skipped" not in record.metrics or bool(refusal)


def recorded_runs(request: Request) -> list[Record]:
    """Return the records of the requested sets and methods; all records if none are named."""
    names = list(request.sets)
    if request.folders:
        names = [data.name for data in choose_sets(request.folders, request.sets)[0]]
    # Methods that are not installed may be shown; unknown names raise an error.
    choose_methods([name for name in request.methods if name not in METHODS])
    return [
        record
        for record in records.read(record_path(Path(request.out))).values()
        if (not names or record.run.settings["set"] in names)
        and (not request.methods or record.run.settings["method"] in request.methods)
    ]


# The report.


def report_on(
    found: Sequence[Record], request: Request, notes: Sequence[str] = (), failures: Sequence[Failure] = ()
) -> Report:
    """Return the report on these records, without its figures."""
    board = Leaderboard.of(found)
    counts = Counter((record.run.settings["method"], warning) for record in found for warning in record.warnings)
    warned = [f"{method} warned in {counted(n, 'run')}: {text}" for (method, text), n in counts.most_common()]
    sizes = [counted(len(board.sets), "set"), counted(len(board.methods), "method"), counted(len(found), "run")]
    words = ["pollux", "bench", "quality", *map(str, request.folders)]
    for option, names in (("--sets", request.sets), ("--methods", request.methods)):
        words += [option, *names] if names else []
    words += [] if request.seeds == SEEDS else ["--seeds", str(request.seeds)]
    words += [] if request.timeout == TIMEOUT else ["--timeout", f"{request.timeout:g}"]
    words += [] if str(request.out) == OUT else ["--out", str(request.out)]
    words += ["--show"] if request.show else []
    return Report(
        NAME,
        TITLE,
        " · ".join([*sizes, f"{duration(sum(record.seconds for record in found))} of runs"]),
        [*leaderboard_tables(board), *set_tables(board)],
        found,
        shlex.join(words),
        remarks=[*notes, *(f"Failed: {failure.in_words()}" for failure in failures), *warned],
    )


def _publish(found: Sequence[Record], request: Request, notes: Sequence[str], failures: Sequence[Failure] = ()) -> None:
    """Write files about all records of the folder, and print the requested ones."""
    folder = Path(request.out)
    asked = report_on(found, request, notes, failures)
    everything = with_the_rest(found, folder)
    whole = asked
    if len(everything) > len(found):
        # The files always cover all records, even if only a part was requested.
        whole = report_on(everything, Request(out=folder, show=True), failures=failures)
    before = len(whole.remarks)
    whole = with_figures(whole, folder, lambda: draw_leaderboard(Leaderboard.of(everything)))
    board = Leaderboard.of(found)
    shown = dataclasses.replace(
        asked,
        tables=[*set_tables(board)[:1], *leaderboard_tables(board)],
        remarks=[*asked.remarks, *whole.remarks[before:]],
    )
    publish(whole, folder, shown)


def with_the_rest(found: Sequence[Record], folder: Path) -> list[Record]:
    """Return all records of the folder, the requested ones last: of several files or versions, the last counts."""
    asked = {record.run.key for record in found}
    others = [record for key, record in records.read(record_path(folder)).items() if key not in asked]
    return [*others, *found]
