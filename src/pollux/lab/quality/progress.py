"""How the runs go, for people: live bars on a terminal, a line for each run elsewhere."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pollux.lab.experiments.experiment import Record
from pollux.lab.experiments.tables import typeset
from pollux.lab.quality.measuring import Task
from pollux.lab.quality.running import Failure
from pollux.training.callbacks import Epoch


def told(task: Task, record: Record) -> str:
    """What came of a run, in a line."""
    metrics = record.metrics
    if "timeout" in metrics:
        return f"{task}: no answer within {metrics['timeout']:.0f} s"
    if "skipped" in metrics:
        return f"{task}: skipped, {metrics['skipped']}"
    clusters = f"{metrics['clusters']} cluster{'' if metrics['clusters'] == 1 else 's'}"
    score = typeset(format(metrics["adjusted_rand_index"], ".3f"))
    return f"{task}: ARI {score}, {clusters}, {record.seconds:.1f} s"


class Tally:
    """The mean ARI of each method over the runs that have ended."""

    def __init__(self) -> None:
        self._scores: dict[str, list[float]] = defaultdict(list)

    def add(self, task: Task, record: Record) -> None:
        if "adjusted_rand_index" in record.metrics:
            self._scores[task.method.title].append(record.metrics["adjusted_rand_index"])

    def __str__(self) -> str:
        means = {title: sum(scores) / len(scores) for title, scores in self._scores.items()}
        return "  ".join(f"{title} {typeset(format(mean, '.3f'))}" for title, mean in means.items())


class Lines(AbstractContextManager["Lines"]):
    """A line on standard error for each run that has ended."""

    def __init__(self, total: int) -> None:
        self._total, self._ended, self._start = total, 0, time.perf_counter()

    def __enter__(self) -> Lines:
        print(f"quality: {self._total} run{'' if self._total == 1 else 's'} to do", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""

    def began(self, task: Task) -> None:
        """Only ends are told."""

    def epoch(self, task: Task, epoch: Epoch) -> None:
        """Epochs are not told."""

    def done(self, task: Task, record: Record) -> None:
        self._count(told(task, record))

    def failed(self, failure: Failure) -> None:
        self._count(f"{failure.task}: FAILED, {' '.join(failure.reason.split())}")

    def _count(self, line: str) -> None:
        self._ended += 1
        elapsed = time.perf_counter() - self._start
        print(f"[{self._ended}/{self._total}, {elapsed:.0f} s] {line}", file=sys.stderr, flush=True)


class Bars(AbstractContextManager["Bars"]):
    """A bar for all runs with the mean scores so far, and one for each that is under way with its latest figures."""

    def __init__(self, total: int) -> None:
        self._console = Console(file=sys.stderr)
        self._progress = Progress(
            # Names may hold what looks like markup.
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
        )
        self._all = self._progress.add_task("all runs", total=total, figures="")
        self._tasks: dict[Task, TaskID] = {}
        self._tally = Tally()

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        for task in list(self._tasks):
            self._remove(task)
        self._progress.stop()

    def began(self, task: Task) -> None:
        self._tasks[task] = self._progress.add_task(str(task), total=None, figures="")

    def epoch(self, task: Task, epoch: Epoch) -> None:
        figures = f"objective {epoch.objective:.4f}  clusters {epoch.clusters}"
        self._progress.update(self._tasks[task], completed=epoch.number, total=epoch.max_epochs, figures=figures)

    def done(self, task: Task, record: Record) -> None:
        self._tally.add(task, record)
        self._end(task, told(task, record))

    def failed(self, failure: Failure) -> None:
        self._end(failure.task, f"{failure.task}: FAILED, {' '.join(failure.reason.split())}", "red")

    def _end(self, task: Task, line: str, style: str | None = None) -> None:
        self._remove(task)
        self._console.print(line, style=style, markup=False, highlight=False)
        self._progress.update(self._all, advance=1, figures=f"mean ARI: {self._tally}" if str(self._tally) else "")

    def _remove(self, task: Task) -> None:
        if task in self._tasks:
            self._progress.remove_task(self._tasks.pop(task))


def display(total: int) -> Bars | Lines:
    """Bars where someone watches, lines elsewhere."""
    return Bars(total) if sys.stderr.isatty() else Lines(total)
