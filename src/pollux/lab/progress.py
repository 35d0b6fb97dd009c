"""The progress of a grid: live bars on a terminal, a line for each run elsewhere."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pollux.app.console import GOOD, OUR_FAULT, STOPPED, say
from pollux.errors import counted
from pollux.lab.grid import Display, Failure, Task
from pollux.lab.records import Record
from pollux.lab.results import typeset
from pollux.training.callbacks import Epoch, describe_metrics

# Runs may take hours, and there are few of them: the remaining time is estimated from all that have finished.
_ESTIMATION_SECONDS = 7 * 86400.0


def describe_result(task: Task, record: Record) -> str:
    """Describe the result of a run in one line."""
    metrics = record.metrics
    if "timeout" in metrics:
        return f"{task}: no answer within {metrics['timeout']:.0f} s"
    parts = []
    if "adjusted_rand_index" in metrics:
        parts.append(f"ARI {typeset(format(metrics['adjusted_rand_index'], '.3f'))}")
    if "clusters" in metrics:
        parts.append(counted(metrics["clusters"], "cluster"))
    warned = (" ".join(warning.split()) for warning in record.warnings)
    return f"{task}: {', '.join([*parts, f'{record.seconds:.1f} s', *warned])}"


class Lines(Display):
    """Prints a line on standard error for each finished run."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._ended, self._start = name, total, 0, time.perf_counter()

    def __enter__(self) -> Lines:
        print(f"{self._name}: {counted(self._total, 'run')} to do", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to clean up."""

    def done(self, task: Task, record: Record) -> None:
        self._end(describe_result(task, record))

    def failed(self, failure: Failure) -> None:
        self._end(failure.in_words("FAILED, "))

    def _end(self, line: str) -> None:
        self._ended += 1
        elapsed = time.perf_counter() - self._start
        print(f"[{self._ended}/{self._total}, {elapsed:.0f} s] {line}", file=sys.stderr, flush=True)


class Bars(Display):
    """A progress bar for the grid with the mean scores so far, and one for each active run with its latest metrics."""

    def __init__(self, name: str, total: int) -> None:
        self._progress = Progress(
            # Names and messages may contain text that looks like markup.
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[metrics]}", markup=False),
            console=Console(file=sys.stderr),
            speed_estimate_period=_ESTIMATION_SECONDS,
        )
        self._all = self._progress.add_task(f"{name}, all runs", total=total, metrics="")
        self._bars: dict[str, Any] = {}
        self._scores: dict[str, list[float]] = defaultdict(list)

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._bars):
            self._remove(key)
        self._progress.stop()

    def began(self, task: Task) -> None:
        self._bars[task.run.key] = self._progress.add_task(str(task), total=None, metrics="")

    def epoch(self, task: Task, epoch: Epoch) -> None:
        bar = self._bars[task.run.key]
        self._progress.update(bar, completed=epoch.number, total=epoch.max_epochs, metrics=describe_metrics(epoch))

    def done(self, task: Task, record: Record) -> None:
        settings = record.run.settings
        group = str(settings.get("method") or settings.get("objective") or "all")
        if "adjusted_rand_index" in record.metrics:
            self._scores[group].append(record.metrics["adjusted_rand_index"])
        self._end(task, describe_result(task, record))

    def failed(self, failure: Failure) -> None:
        self._end(failure.task, failure.in_words("FAILED, "), "red")

    def _end(self, task: Task, line: str, style: str | None = None) -> None:
        self._remove(task.run.key)
        self._progress.console.print(line, style=style, markup=False, highlight=False)
        means = {name: sum(scores) / len(scores) for name, scores in self._scores.items()}
        shown = "  ".join(f"{name} {typeset(format(mean, '.3f'))}" for name, mean in means.items())
        self._progress.update(self._all, advance=1, metrics=f"mean ARI: {shown}" if shown else "")

    def _remove(self, key: str) -> None:
        if key in self._bars:
            self._progress.remove_task(self._bars.pop(key))


def progress_display(name: str, total: int) -> Bars | Lines:
    """Return progress bars on a terminal, lines elsewhere."""
    return Bars(name, total) if sys.stderr.isatty() else Lines(name, total)


def run_recorded(work: Callable[[], Sequence[Failure]], out: str) -> int:
    """Call ``work``, which records runs in the folder ``out``; report those that failed and return the exit code."""
    try:
        failures = work()
    except KeyboardInterrupt:
        say(f"Stopped. What has ended is recorded in {out}; the same command goes on from there.")
        return STOPPED
    if not failures:
        return GOOD
    # Print each distinct traceback once.
    for trace in dict.fromkeys(failure.trace for failure in failures if failure.trace):
        for line in trace.rstrip().splitlines():
            say(line)
    say(f"{counted(len(failures), 'run')} failed; the same command tries again what is not recorded:")
    for failure in failures:
        say(f"  {failure.in_words()}")
    return OUR_FAULT
