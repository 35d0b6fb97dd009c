"""How the grid goes, for people: live bars on a terminal, a line for each run elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pollux.experiments.experiment import Record, Run
from pollux.experiments.running import News


def told(record: Record) -> str:
    """What a run found, in a line."""
    metrics = record.metrics
    parts = [f"{record.run}:"]
    if "adjusted_rand_index" in metrics:
        parts.append(f"ARI {metrics['adjusted_rand_index']:.3f}")
    if "clusters" in metrics:
        parts.append(f"{metrics['clusters']} clusters")
    return f"{' '.join(parts)}, {record.seconds:.1f} s"


class Lines(AbstractContextManager["Lines"]):
    """A line on standard error for each run that has ended."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._start = total, 0, time.perf_counter()

    def news(self, news: News) -> None:
        """Epochs are not told."""

    def done(self, record: Record) -> None:
        self._count(told(record))

    def failed(self, run: Run, error: BaseException) -> None:
        self._count(f"{run}: FAILED, {type(error).__name__}: {error}")

    def _count(self, what: str) -> None:
        self._done += 1
        elapsed = time.perf_counter() - self._start
        print(f"[{self._done}/{self._total}, {elapsed:.0f} s] {what}", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""


class Bars(AbstractContextManager["Bars"]):
    """A bar for the whole grid, and one for each run that is under way, with its latest figures."""

    def __init__(self, total: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
        )
        self._all = self._progress.add_task("all runs", total=total, figures="")
        self._tasks: dict[int, Any] = {}
        # The runs' news come by another thread than their results.
        self._lock = threading.Lock()

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._progress.stop()

    def news(self, news: News) -> None:
        epoch = news.epoch
        with self._lock:
            if news.worker not in self._tasks:
                self._tasks[news.worker] = self._progress.add_task(news.run, total=None, figures="")
            task = self._tasks[news.worker]
            if epoch is None:
                self._progress.reset(task, description=news.run, total=None, figures="")
            else:
                figures = f"objective {epoch.objective:.4f}  clusters {epoch.clusters}"
                self._progress.update(task, completed=epoch.number, total=epoch.of, figures=figures)

    def done(self, record: Record) -> None:
        self._progress.console.print(told(record), highlight=False)
        self._progress.advance(self._all)

    def failed(self, run: Run, error: BaseException) -> None:
        self._progress.console.print(f"{run}: FAILED, {type(error).__name__}: {error}", style="red", highlight=False)
        self._progress.advance(self._all)


def display(total: int) -> Bars | Lines:
    """Bars where someone watches, lines elsewhere."""
    return Bars(total) if sys.stderr.isatty() else Lines(total)
