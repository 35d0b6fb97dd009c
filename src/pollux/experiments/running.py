"""The grid on the cores: runs that are not yet recorded, each in a process of its own, recorded as it ends."""

from __future__ import annotations

import contextlib
import importlib.metadata
import multiprocessing
import os
import platform
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pollux.experiments import records
from pollux.experiments.experiment import Desk, Experiment, Record, Run, model_path
from pollux.training.callbacks import Epoch

PACKAGES = ("pollux", "torch", "numpy", "scipy", "scikit-learn")
_SECONDS_BETWEEN_NEWS = 0.2


class News(NamedTuple):
    """The latest epoch of a run that is under way, told by the process that does it."""

    worker: int
    run: str
    epoch: Epoch | None


class Display(Protocol):
    """Who is told how the grid goes."""

    def news(self, news: News) -> None:
        """An epoch of a run has ended, or a run has begun."""

    def done(self, record: Record) -> None:
        """A run has ended."""

    def failed(self, run: Run, error: BaseException) -> None:
        """A run has ended in an error."""


@dataclass(frozen=True)
class Outcome:
    """What is recorded of a grid, in its order, and the runs that failed."""

    records: Sequence[Record]
    failures: Mapping[str, BaseException]


def recorded(experiment: Experiment, runs: Sequence[Run], folder: Path) -> list[Record]:
    """The records of those of the runs that have been done."""
    known = records.read(record_path(folder, experiment))
    return [known[run.key] for run in runs if run.key in known]


def record_path(folder: Path, experiment: Experiment) -> Path:
    """Where the runs of an experiment are recorded."""
    return folder / f"{experiment.name}.jsonl"


def to_do(experiment: Experiment, runs: Sequence[Run], folder: Path) -> list[Run]:
    """The runs that have no record yet, or whose model is gone."""
    known = records.read(record_path(folder, experiment))
    return [
        run
        for run in runs
        if run.key not in known or (experiment.keeps_model(run) and not model_path(folder, run).exists())
    ]


def execute(experiment: Experiment, runs: Sequence[Run], folder: Path, *, jobs: int, display: Display) -> Outcome:
    """Do what is to be done of the runs, ``jobs`` at a time, and return the records of all."""
    path = record_path(folder, experiment)
    waiting = to_do(experiment, runs, folder)
    folder.mkdir(parents=True, exist_ok=True)
    records.cut_torn_line(path)
    failures: dict[str, BaseException] = {}
    if waiting:
        with _workers(min(jobs, len(waiting)), display) as submit:
            for run, future in _as_they_end(submit, experiment, waiting, folder, jobs):
                error = future.exception()
                if error is None:
                    records.append(path, future.result())
                    display.done(future.result())
                else:
                    failures[run.key] = error
                    display.failed(run, error)
    return Outcome(recorded(experiment, runs, folder), failures)


Submit = Callable[..., "Future[Record]"]


def _as_they_end(
    submit: Submit, experiment: Experiment, runs: Sequence[Run], folder: Path, jobs: int
) -> Iterator[tuple[Run, Future[Record]]]:
    """Each run with its result, as soon as it has one; no more than needed are handed out ahead."""
    queue = iter(runs)
    under_way: dict[Future[Record], Run] = {}

    def hand_out(count: int) -> None:
        for run in (run for _, run in zip(range(count), queue, strict=False)):
            under_way[submit(perform, experiment.name, run, folder)] = run

    hand_out(jobs)
    while under_way:
        ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in ended:
            yield under_way.pop(future), future
        hand_out(jobs - len(under_way))


@contextlib.contextmanager
def _workers(jobs: int, display: Display) -> Iterator[Submit]:
    """Processes to do runs, and a thread that passes their news on to the display."""
    # A forked child of a program with threads may wait for ever for locks that these held.
    context = multiprocessing.get_context("spawn")
    news: Any = context.SimpleQueue()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    listener = threading.Thread(target=_listen, args=(news, display), daemon=True)
    listener.start()
    with _environment(OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="PASSIVE"):
        pool = ProcessPoolExecutor(jobs, context, initializer=_begin_worker, initargs=(news,))
        try:
            yield pool.submit
        except BaseException:
            # Ctrl-C: runs under way are given up; they are not recorded, and will be done anew.
            for process in list((pool._processes or {}).values()):
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            news.put(None)
            listener.join()


def _listen(news: Any, display: Display) -> None:
    while (item := news.get()) is not None:
        display.news(item)


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Variables that child processes find when they import their libraries."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# What follows happens in the processes of the pool.

_news: Any = None


def _begin_worker(news: Any) -> None:
    global _news
    _news = news
    threading.Thread(target=_die_with_the_parent, daemon=True).start()


def _die_with_the_parent() -> None:
    """A program that is killed leaves no process behind that goes on with its runs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def perform(name: str, run: Run, folder: Path) -> Record:
    """Do one run; the record of what it measured."""
    from pollux.experiments import EXPERIMENTS

    desk = Desk(model_path(folder, run), [_Teller(run)])
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metrics = EXPERIMENTS[name].measure(run.settings, run.seed, desk)
    return Record(
        run,
        dict(metrics),
        round(time.perf_counter() - start, 3),
        versions(),
        sorted({f"{warning.category.__name__}: {warning.message}" for warning in caught}),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def versions() -> dict[str, str]:
    """The versions of what a run depends on."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **found}


class _Teller:
    """A callback that tells the parent of each epoch, but not more often than people can read."""

    def __init__(self, run: Run) -> None:
        self._run = str(run)
        self._last = 0.0
        self._tell(None)

    def __call__(self, epoch: Epoch) -> None:
        if time.monotonic() - self._last > _SECONDS_BETWEEN_NEWS or epoch.number == epoch.of:
            self._tell(epoch)

    def _tell(self, epoch: Epoch | None) -> None:
        self._last = time.monotonic()
        if _news is not None:
            _news.put(News(os.getpid(), self._run, epoch))
