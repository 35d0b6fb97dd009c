"""The grid on the cores: runs that are not yet recorded, each in a process of its own, recorded as it ends."""

from __future__ import annotations

import contextlib
import importlib.metadata
import multiprocessing
import os
import platform
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pollux.lab.experiments import records
from pollux.lab.experiments.experiment import Experiment, Record, Run, RunContext, model_path
from pollux.lab.unfinished import CHECKPOINT_EVERY, UnfinishedRun, unfinished_path
from pollux.training.callbacks import Epoch

PACKAGES = ("pollux", "torch", "numpy", "scipy", "scikit-learn")
_SECONDS_BETWEEN_NEWS = 0.2
_DIED = (
    "the process that did it was killed; if memory ran out, give fewer --jobs (the system's log tells), and run the "
    "same command again"
)


class News(NamedTuple):
    """The latest epoch of a run that is under way, told by the worker that does it; no epoch: it has begun."""

    worker: int
    run: str
    epoch: Epoch | None


@dataclass(frozen=True)
class Failure:
    """A run that ended in an error: what it said, and where it came from."""

    run: Run
    reason: str
    trace: str = ""


class Display(Protocol):
    """Who is told how the grid goes."""

    def news(self, news: News) -> None:
        """An epoch of a run has ended, or a run has begun."""

    def done(self, record: Record) -> None:
        """A run has ended."""

    def failed(self, failure: Failure) -> None:
        """A run has ended in an error."""


@dataclass(frozen=True)
class Outcome:
    """What is recorded of a grid, in its order, and the runs that failed."""

    records: Sequence[Record]
    failures: Sequence[Failure] = ()


def recorded(experiment: Experiment, runs: Sequence[Run], folder: Path) -> list[Record]:
    """The records of those of the runs that have been done."""
    known = _known(experiment, folder)
    return [known[run.key] for run in runs if run.key in known]


def _known(experiment: Experiment, folder: Path) -> dict[str, Record]:
    read = records.read(record_path(folder, experiment))
    return {key: record for key, record in read.items() if not experiment.outdated(record, folder)}


def record_path(folder: Path, experiment: Experiment) -> Path:
    """Where the runs of an experiment are recorded."""
    return folder / f"{experiment.name}.jsonl"


def to_do(experiment: Experiment, runs: Sequence[Run], folder: Path) -> list[Run]:
    """The runs that have no record yet, or whose model is gone."""
    known = _known(experiment, folder)
    return [
        run
        for run in runs
        if run.key not in known or (experiment.keeps_model(run) and not model_path(folder, run).exists())
    ]


def execute(
    experiment: Experiment,
    runs: Sequence[Run],
    folder: Path,
    *,
    jobs: int,
    display: Display,
    checkpoint_every: str = CHECKPOINT_EVERY,
) -> Outcome:
    """Do what is to be done of the runs, ``jobs`` at a time, and return the records of all."""
    path = record_path(folder, experiment)
    waiting = to_do(experiment, runs, folder)
    for run in set(map(_key, runs)) - set(map(_key, waiting)):
        # Of a program that was killed between the record and this.
        UnfinishedRun(unfinished_path(folder, run)).remove()
    jobs = 1 if experiment.timed else min(jobs, len(waiting))
    failures: list[Failure] = []
    if waiting:
        folder.mkdir(parents=True, exist_ok=True)
        with _workers(jobs, 1 if experiment.timed else threads_each(jobs), display) as submit:
            for answer in _as_they_end(submit, experiment, waiting, folder, jobs, checkpoint_every):
                if isinstance(answer, Failure):
                    failures.append(answer)
                    display.failed(answer)
                else:
                    records.append(path, answer)
                    UnfinishedRun(unfinished_path(folder, answer.run.key)).remove()
                    display.done(answer)
    return Outcome(recorded(experiment, runs, folder), failures)


def _key(run: Run) -> str:
    return run.key


Answer = Record | Failure
Submit = Callable[..., "Future[Answer]"]


def _as_they_end(
    submit: Submit,
    experiment: Experiment,
    runs: Sequence[Run],
    folder: Path,
    jobs: int,
    checkpoint_every: str = CHECKPOINT_EVERY,
) -> Iterator[Answer]:
    """The answer of each run, as soon as it has one; no more than ``jobs`` are handed out at a time."""
    queue = iter(runs)
    under_way: dict[Future[Answer], Run] = {}

    def hand_out(count: int) -> None:
        for run in (run for _, run in zip(range(count), queue, strict=False)):
            under_way[submit(attempt, experiment.name, run, folder, checkpoint_every)] = run

    hand_out(jobs)
    while under_way:
        ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in ended:
            yield _answer(under_way.pop(future), future)
        hand_out(jobs - len(under_way))


def _answer(run: Run, future: Future[Answer]) -> Answer:
    error = future.exception()
    if error is None:
        return future.result()
    return Failure(run, _DIED if isinstance(error, BrokenProcessPool) else f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def _workers(jobs: int, threads: int, display: Display) -> Iterator[Submit]:
    """Processes to do runs, which is what the function that is given hands out."""
    workers = [_Worker(number, display) for number in range(jobs)]

    def submit(function: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        return next(worker for worker in workers if worker.is_free).submit(function, *arguments)

    with _environment(OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="PASSIVE"):
        try:
            yield submit
        except BaseException:
            # Ctrl-C: runs under way are given up; they are continued from their checkpoints.
            for worker in workers:
                worker.kill()
            raise
        finally:
            for worker in workers:
                worker.close()


def cores() -> int:
    """The cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_each(jobs: int) -> int:
    """The threads of each of so many workers: their share of the cores, and no more than the user grants."""
    granted = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores() // jobs, int(granted) if granted.isdigit() else cores()))


class _Worker:
    """A process that does one run at a time, and a thread that passes its news on to the display.

    Each is a pool of its own, with a pipe of its own: of one that dies, only its run is lost, and it cannot take to
    the grave a lock that others wait for.
    """

    def __init__(self, number: int, display: Display) -> None:
        self._number, self._display = number, display
        self._pool: ProcessPoolExecutor | None = None
        self._listener: threading.Thread | None = None
        self._run: Future[Answer] | None = None

    @property
    def is_free(self) -> bool:
        return self._run is None or self._run.done()

    def submit(self, function: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        if self._run is not None and isinstance(self._run.exception(), BrokenProcessPool):
            self.close()
        self._run = self._handed(function, *arguments)
        return self._run

    def _handed(self, function: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        never: Future[Answer] = Future()
        for _ in range(2):
            try:
                return self._begun().submit(function, *arguments)
            except BrokenProcessPool as error:
                # It died while it had nothing to do; one that dies at once a second time will not do it.
                self.close()
                never = Future()
                never.set_exception(error)
        return never

    def _begun(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # A forked child of a program with threads may wait for ever for locks that these held.
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe(duplex=False)
            self._pool = ProcessPoolExecutor(1, context, initializer=_begin_worker, initargs=(self._number, theirs))
            with ctrl_c_held():
                # The process begins with the first thing it is given.
                self._pool.submit(os.getpid)
            theirs.close()
            self._listener = threading.Thread(target=self._listen, args=(ours,), daemon=True)
            self._listener.start()
        return self._pool

    def _listen(self, connection: Any) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            while True:
                news = connection.recv()
                # A display that fails must not fill the pipe up, before which the worker would wait.
                with contextlib.suppress(Exception):
                    self._display.news(news)

    def kill(self) -> None:
        for process in list(((self._pool and self._pool._processes) or {}).values()):
            process.terminate()

    def close(self) -> None:
        if self._pool is not None and self._listener is not None:
            self._pool.shutdown(cancel_futures=True)
            self._listener.join()
        self._pool = self._listener = None


@contextlib.contextmanager
def ctrl_c_held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, and never reaches processes that begin in it.

    A terminal sends it to all processes; this one is to answer it, and to end the others.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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


# What follows happens in the processes of the workers.

_worker: tuple[int, Any] | None = None


def _begin_worker(number: int, connection: Any) -> None:
    global _worker
    _worker = number, connection
    # Where it could not be held back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=die_with_the_parent, daemon=True).start()


def die_with_the_parent() -> None:
    """A program that is killed leaves no process behind that goes on with its runs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def attempt(name: str, run: Run, folder: Path, checkpoint_every: str = CHECKPOINT_EVERY) -> Answer:
    """Do one run. An error comes back in words: not every exception survives the way between two processes."""
    try:
        return perform(name, run, folder, checkpoint_every)
    except Exception as error:
        return Failure(run, f"{type(error).__name__}: {error}", traceback.format_exc())


def perform(name: str, run: Run, folder: Path, checkpoint_every: str = CHECKPOINT_EVERY) -> Record:
    """Do one run, or what is left of it; the record of what it measured, as it will be read."""
    from pollux.lab.experiments import EXPERIMENTS

    experiment = EXPERIMENTS[name]
    path = model_path(folder, run) if experiment.keeps_model(run) else None
    unfinished = UnfinishedRun(unfinished_path(folder, run.key), checkpoint_every)
    context = RunContext(folder, path, [_Teller(run), unfinished], unfinished)
    with unfinished.open():
        metrics = experiment.measure(run.settings, run.seed, context)
    return records.as_read(
        Record(
            run,
            dict(metrics),
            round(unfinished.seconds, 3),
            versions(),
            unfinished.warnings,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
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
        if time.monotonic() - self._last > _SECONDS_BETWEEN_NEWS or epoch.number == epoch.max_epochs:
            self._tell(epoch)

    def _tell(self, epoch: Epoch | None) -> None:
        self._last = time.monotonic()
        if _worker is not None:
            number, connection = _worker
            # No one listens: no reason to give a run up.
            with contextlib.suppress(OSError):
                connection.send(News(number, self._run, epoch))
