"""The grid runner: runs tasks in worker processes, records each when it ends, and resumes after an interruption.

A task that hangs, fails or is killed affects no other task. Its progress is kept in its checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import multiprocessing
import os
import platform
import shutil
import signal
import threading
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from pollux.errors import InputError
from pollux.io.atomic import write_text
from pollux.io.locks import BusyError, locked
from pollux.io.parsing import decode_json
from pollux.lab import records
from pollux.lab.records import Record, Run
from pollux.threads import at_most
from pollux.training import Callback, Checkpoints, Epoch

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering

PACKAGES = ("pollux", "torch", "numpy", "scipy", "scikit-learn")
DIED = (
    "its process was killed; if memory ran out, give fewer --jobs (the system's log shows it), and run the same "
    "command again"
)
CHECKPOINT_EVERY = "60 s"
_SECONDS_BETWEEN_NEWS, _SECONDS_BETWEEN_NOTES = 0.2, 5.0
# Allows for slow imports on a busy machine, which do not count towards the time limit of a task.
_SECONDS_TO_BEGIN = 120.0
_SECONDS_TO_END = 5.0
# Share of the machine's memory for the tasks; the rest is for the system and for what all processes share.
_SHARE_OF_MEMORY = 0.8
# Slow imports, done once before the workers start; torch's optimisers import torch._dynamo.
_PRELOADED = ["pollux.lab.paper", "pollux.lab.quality.benchmark", "torch._dynamo", "gemclus.linear"]
# Packages whose code does not affect the result of a training.
_NOT_FOR_TRAINING = ("app", "lab", "report", "selection")


@dataclass(frozen=True)
class RunContext:
    """What a run may use: the results folder, the path at which to save its model (None if no figure needs it),
    callbacks, and the checkpoints from which an interrupted run is resumed."""

    folder: Path
    model_path: Path | None = None
    callbacks: list[Callback] = field(default_factory=list)
    unfinished: UnfinishedRun | None = None

    def checkpoint(self, name: str = "fit") -> Checkpoints | None:
        """Return the checkpoints of one fit of the run; each fit needs its own name."""
        return None if self.unfinished is None else self.unfinished.checkpoint(name)

    def save_model(self, clustering: GeminiClustering) -> None:
        """Save the model if a figure needs it."""
        if self.model_path is not None:
            self.model_path.parent.mkdir(parents=True, exist_ok=True)
            clustering.save(self.model_path)


class Task(ABC):
    """A run of a grid that any process can execute; subclasses must be picklable."""

    @property
    @abstractmethod
    def run(self) -> Run:
        """The run, which identifies the task in the records."""

    @property
    def saves_model(self) -> bool:
        """Whether a figure needs the model of the run."""
        return False

    @property
    def properties(self) -> Mapping[str, Any]:
        """Properties that are known before the run and recorded with its metrics."""
        return {}

    @property
    def versions(self) -> dict[str, str]:
        """The versions of Python and of the packages that the run depends on."""
        return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in PACKAGES}}

    @abstractmethod
    def measure(self, context: RunContext) -> Mapping[str, Any]:
        """Execute the run and return its metrics; a metric ``"seconds"`` replaces the total time in the record."""

    def __str__(self) -> str:
        return str(self.run)


@dataclass(frozen=True)
class Failure:
    """A task that ended in an error: the message and the traceback."""

    task: Task
    reason: str
    trace: str = ""

    def in_words(self, before: str = "") -> str:
        """Return the task and the reason on one line, with ``before`` in front of the reason."""
        return f"{self.task}: {before}{' '.join(self.reason.split())}"


@dataclass(frozen=True)
class Limits:
    """How tasks are run: how many at a time, threads for each, and the time limit of each in seconds."""

    jobs: int
    threads: int
    timeout: float = math.inf
    checkpoint_every: str = CHECKPOINT_EVERY
    fresh: bool = False  # start a new process for each task; otherwise processes are reused


class Display:
    """Receives the progress of a grid through its methods. The base class displays nothing."""

    def began(self, task: Task) -> None:
        """Called when a task begins."""

    def epoch(self, task: Task, epoch: Epoch) -> None:
        """Called after an epoch of a task."""

    def done(self, task: Task, record: Record) -> None:
        """Called when a task has finished."""

    def failed(self, failure: Failure) -> None:
        """Called when a task has failed."""


def cores() -> int:
    """Return the number of cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_each(jobs: int) -> int:
    """Return the threads for each of ``jobs`` parallel tasks: their share of the cores, at most ``OMP_NUM_THREADS``."""
    granted = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores() // jobs, int(granted) if granted.isdigit() else cores()))


def memory_each(jobs: int) -> float:
    """Return the bytes of memory for each of ``jobs`` parallel tasks; infinity if the system does not report it."""
    try:
        total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf
    with contextlib.suppress(OSError, ValueError):
        # A container may have less memory than the machine.
        total = min(total, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    return _SHARE_OF_MEMORY * total / jobs


def model_path(folder: Path, run: Run) -> Path:
    """Return the path at which the model of a run is saved."""
    return folder / "models" / f"{run.key}.safetensors"


def unfinished_path(folder: Path, key: str) -> Path:
    """Return the folder for the state of an unfinished run, below the results folder."""
    return folder / "unfinished" / key


Result = Record | Failure


def run_grid(tasks: Sequence[Task], path: Path, limits: Limits, display: Display) -> list[Failure]:
    """Run all tasks, append a record of each to the file when it ends, and return the failures."""
    folder, failures = path.parent, list[Failure]()
    folder.mkdir(parents=True, exist_ok=True)
    # A program that was killed just after writing a record may have left the folder of the finished run.
    for key in records.read(path).keys() - {task.run.key for task in tasks}:
        UnfinishedRun(unfinished_path(folder, key)).remove()
    with contextlib.closing(_results(tasks, folder, limits, display)) as results:
        for task, result in results:
            if isinstance(result, Failure):
                failures.append(result)
                display.failed(result)
            else:
                records.append(path, result)
                UnfinishedRun(unfinished_path(folder, task.run.key)).remove()
                display.done(task, result)
    return failures


def _results(
    tasks: Sequence[Task], folder: Path, limits: Limits, display: Display
) -> Generator[tuple[Task, Result], None, None]:
    """Yield each task with its result as soon as the task ends."""
    queue = deque(tasks)
    busy: list[_Worker] = []
    idle: list[_Worker] = []
    # Where the system supports it, workers are forked from a server process that has imported everything.
    can_copy = "forkserver" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if can_copy else "spawn")
    if can_copy:
        context.set_forkserver_preload(_PRELOADED)
    try:
        while queue or busy:
            while queue and len(busy) < limits.jobs:
                worker = idle.pop() if idle else _Worker(context, folder, limits)
                worker.assign(queue.popleft())
                busy.append(worker)
                display.began(worker.task)
            connection.wait([worker.pipe for worker in busy], _SECONDS_BETWEEN_NEWS)
            for worker in list(busy):
                result = worker.poll(display)
                if result is not None:
                    busy.remove(worker)
                    if worker.is_alive and not limits.fresh:
                        idle.append(worker)
                    else:
                        worker.end()
                    yield worker.task, result
    finally:
        # After Ctrl-C the next command resumes the active tasks from their checkpoints.
        for worker in (*busy, *idle):
            worker.end()


class _Worker:
    """A worker process, which runs one task at a time, and the pipe to it."""

    task: Task

    def __init__(self, context: Any, folder: Path, limits: Limits) -> None:
        self._timeout = limits.timeout
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, folder, limits), daemon=True)
        with _delayed_ctrl_c():
            self._process.start()
        theirs.close()
        self._ended = False

    @property
    def is_alive(self) -> bool:
        return not self._ended and bool(self._process.is_alive())

    def assign(self, task: Task) -> None:
        """Send a task to the worker."""
        self.task = task
        self._deadline = time.monotonic() + self._timeout + _SECONDS_TO_BEGIN
        # If the process has died, reading from the pipe reports it.
        with contextlib.suppress(OSError):
            self.pipe.send(task)

    def poll(self, display: Display) -> Result | None:
        """Return the result of the task if it has ended or timed out, else None; pass epochs on to the display."""
        try:
            while self.pipe.poll():
                message = self.pipe.recv()
                if isinstance(message, float):
                    # The task has begun; the message is the number of seconds that earlier processes spent on it.
                    self._deadline = time.monotonic() + max(self._timeout - message, 0.0)
                elif isinstance(message, Epoch):
                    display.epoch(self.task, message)
                elif isinstance(message, Failure):
                    return dataclasses.replace(message, task=self.task)
                else:
                    record: Record = message
                    return record
        except (EOFError, OSError):
            # The worker has closed its end of the pipe, so it has ended or is about to.
            self._process.join(_SECONDS_TO_END)
            code = self._process.exitcode
            self.end()
            died = code is None or code < 0
            return Failure(self.task, DIED if died else f"its process ended without an answer (exit code {code})")
        if time.monotonic() < self._deadline:
            return None
        self.end()
        return record_of(self.task, {"timeout": self._timeout}, self._timeout)

    def end(self) -> None:
        """Kill the process if it is still running."""
        if not self._ended:
            self._ended = True
            self._process.kill()
            self._process.join()
            self._process.close()
            self.pipe.close()


@contextlib.contextmanager
def _delayed_ctrl_c() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block, and block it in processes that are started in the block.

    A terminal sends Ctrl-C to all processes; only the main process handles it, and kills the workers.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# The rest of this file runs in the worker processes.


def _work(pipe: Any, folder: Path, limits: Limits) -> None:
    # For systems that cannot block the signal: the parent handles Ctrl-C and kills this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()

    def send(message: Any) -> None:
        # A closed pipe is no reason to abandon the run.
        with contextlib.suppress(OSError):
            pipe.send(message)

    with contextlib.suppress(EOFError, OSError):
        while True:
            send(attempt(pipe.recv(), folder, limits, send))


def _die_with_parent() -> None:
    """Exit when the parent process ends, so that no worker outlives a program that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def attempt(task: Task, folder: Path, limits: Limits, send: Callable[[Any], None] = lambda message: None) -> Result:
    """Run a task; return its record or its failure. Errors become text, because not all exceptions can be pickled."""
    try:
        return perform(task, folder, limits, send)
    except MemoryError as error:
        return Failure(task, f"there is not enough memory, give fewer --jobs: {error}")
    except Exception as error:
        return Failure(task, f"{type(error).__name__}: {error}", traceback.format_exc())


def perform(task: Task, folder: Path, limits: Limits, send: Callable[[Any], None] = lambda message: None) -> Record:
    """Run a task, or resume it, and return its record."""
    run, last = task.run, 0.0
    unfinished = UnfinishedRun(unfinished_path(folder, run.key), limits.checkpoint_every)

    def send_epoch(epoch: Epoch) -> None:
        # Limit the rate of messages to what a person can read.
        nonlocal last
        if time.monotonic() - last > _SECONDS_BETWEEN_NEWS or epoch.number == epoch.max_epochs:
            last = time.monotonic()
            send(epoch)

    path = model_path(folder, run) if task.saves_model else None
    context = RunContext(folder, path, [send_epoch, unfinished], unfinished)
    with unfinished.open(), threadpool_limits(limits.threads), at_most(limits.threads):
        send(unfinished.before)
        metrics = dict(task.measure(context))
    return record_of(task, metrics, metrics.pop("seconds", unfinished.seconds), unfinished.warnings)


def record_of(task: Task, metrics: Mapping[str, Any], seconds: float = 0.0, warned: Sequence[str] = ()) -> Record:
    """Return the record of a task that has just ended, as it will be read from the file."""
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    record = Record(task.run, {**metrics, **task.properties}, round(seconds, 3), task.versions, list(warned), finished)
    return records.as_read(record)


class UnfinishedRun:
    """The folder of an unfinished run: checkpoints of its fits, elapsed seconds and warnings so far.

    Attributes
    ----------
    scores : dict
        Intermediate metrics of the run, JSON-serialisable; saved by :meth:`note`.
    """

    def __init__(self, folder: Path, every: str = CHECKPOINT_EVERY) -> None:
        self.folder, self._every = folder, every
        self.scores: dict[str, Any] = {}
        self._start = self._noted = time.monotonic()
        self.before, self._warnings = 0.0, list[str]()
        self._caught: Sequence[warnings.WarningMessage] = ()

    @property
    def seconds(self) -> float:
        """Time spent on the run, by this process and by earlier ones that were killed."""
        return self.before + time.monotonic() - self._start

    @property
    def warnings(self) -> list[str]:
        """The distinct warnings of the run, sorted."""
        return sorted({*self._warnings, *(f"{one.category.__name__}: {one.message}" for one in self._caught)})

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Lock the folder for the duration of the run. State of another version of the code is deleted first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder), warnings.catch_warnings(record=True) as self._caught:
            warnings.simplefilter("always")
            try:
                notes = decode_json((self.folder / "run.json").read_bytes())
                is_same = notes["code"] == code_digest()
                before, warned = float(notes["seconds"]), list(notes["warnings"])
                scores = dict(notes.get("scores", {}))
            except (OSError, ValueError, TypeError, KeyError):
                is_same = False
            if is_same:
                self.before, self._warnings, self.scores = before, warned, scores
            else:
                self._clear()
            self._write()
            try:
                yield
            except InputError:
                # The checkpoints are unreadable or belong to other settings: the next attempt must not use them.
                self._clear()
                raise

    def checkpoint(self, name: str = "fit") -> Checkpoints:
        """Return the checkpoints of one fit of the run; each fit needs its own name."""
        return Checkpoints(self.folder / name, every=self._every)

    def __call__(self, epoch: Epoch) -> None:
        """Save the elapsed time now and then; a callback of the run's fits."""
        if time.monotonic() - self._noted > _SECONDS_BETWEEN_NOTES:
            # If the disk is full, only this update is lost, not the run.
            with contextlib.suppress(OSError):
                self._write()

    def note(self, **scores: Any) -> None:
        """Save intermediate metrics, for the process that resumes the run if this one is killed."""
        self.scores.update(scores)
        self._write()

    def _write(self) -> None:
        self._noted = time.monotonic()
        notes = {"code": code_digest(), "seconds": self.seconds, "warnings": self.warnings, "scores": self.scores}
        write_text(self.folder / "run.json", json.dumps(notes))

    def _clear(self) -> None:
        """Delete the checkpoints, and the notes on the run that wrote them."""
        (self.folder / "run.json").unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)

    def remove(self) -> None:
        """Remove the folder of a recorded run, unless another program is using it."""
        if self.folder.is_dir():
            with contextlib.suppress(BusyError, OSError):
                with locked(self.folder):
                    pass
                shutil.rmtree(self.folder)
                # Fails while other runs have folders here; the last one removes the empty parent.
                self.folder.parent.rmdir()


@functools.cache
def code_digest() -> str:
    """Return a digest of the sources and library versions that determine the result of a training."""
    root = Path(__file__).parents[1]
    libraries = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES[1:]]
    digest = hashlib.sha256(" ".join(libraries).encode())
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.suffix in (".py", ".cpp", ".hpp") and name.parts[0] not in _NOT_FOR_TRAINING:
            digest.update(str(name).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
