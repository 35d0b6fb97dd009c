"""How the grid goes, for people: live bars on a terminal, a line for each run elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pollux.lab.experiments.experiment import Record
from pollux.lab.experiments.running import Failure, News
from pollux.lab.experiments.tables import typeset

# Runs may take hours, and few of them end: the time that is left is guessed from all of them.
_SECONDS_OF_MEMORY = 7 * 86400.0


def told(record: Record) -> str:
    """What a run found, in a line."""
    metrics = record.metrics
    parts = []
    if "adjusted_rand_index" in metrics:
        parts.append(f"ARI {typeset(format(metrics['adjusted_rand_index'], '.3f'))}")
    if "clusters" in metrics:
        parts.append(f"{metrics['clusters']} cluster{'' if metrics['clusters'] == 1 else 's'}")
    return f"{record.run}: {', '.join([*parts, f'{record.seconds:.1f} s', *record.warnings])}"


def lamented(failure: Failure) -> str:
    """What became of a run that failed, in a line."""
    return f"{failure.run}: FAILED, {' '.join(failure.reason.split())}"


class Lines(AbstractContextManager["Lines"]):
    """A line on standard error for each run that has ended."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done, self._start = name, total, 0, time.perf_counter()

    def __enter__(self) -> Lines:
        # Elsewhere than on a terminal too, one wants to know what is to come.
        print(f"{self._name}: {self._total} run{'' if self._total == 1 else 's'} to do", file=sys.stderr, flush=True)
        return self

    def news(self, news: News) -> None:
        """Epochs are not told."""

    def done(self, record: Record) -> None:
        self._count(told(record))

    def failed(self, failure: Failure) -> None:
        self._count(lamented(failure))

    def _count(self, what: str) -> None:
        self._done += 1
        elapsed = time.perf_counter() - self._start
        print(f"[{self._done}/{self._total}, {elapsed:.0f} s] {what}", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""


class Bars(AbstractContextManager["Bars"]):
    """A bar for the whole grid, and one for each run that is under way, with its latest figures."""

    def __init__(self, name: str, total: int) -> None:
        self._progress = Progress(
            # Names and messages may hold what looks like markup.
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            speed_estimate_period=_SECONDS_OF_MEMORY,
        )
        self._all = self._progress.add_task(f"{name}, all runs", total=total, figures="")
        self._tasks: dict[int, TaskID] = {}
        # The runs' news come by other threads than their results.
        self._lock = threading.Lock()

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            for task in self._tasks.values():
                self._progress.remove_task(task)
            self._tasks.clear()
        self._progress.stop()

    def news(self, news: News) -> None:
        epoch = news.epoch
        with self._lock:
            if epoch is None:
                if news.worker in self._tasks:
                    self._progress.remove_task(self._tasks[news.worker])
                self._tasks[news.worker] = self._progress.add_task(news.run, total=None, figures="")
            elif news.worker in self._tasks:
                figures = f"objective {epoch.objective:.4f}  clusters {epoch.clusters}"
                task = self._tasks[news.worker]
                self._progress.update(task, completed=epoch.number, total=epoch.max_epochs, figures=figures)

    def done(self, record: Record) -> None:
        self._say(told(record))

    def failed(self, failure: Failure) -> None:
        self._say(lamented(failure), "red")

    def _say(self, line: str, style: str | None = None) -> None:
        self._progress.console.print(line, style=style, markup=False, highlight=False)
        self._progress.advance(self._all)


def display(name: str, total: int) -> Bars | Lines:
    """Bars where someone watches, lines elsewhere."""
    return Bars(name, total) if sys.stderr.isatty() else Lines(name, total)
