"""The grid runner: tasks on the cores, each in a process, recorded as it ends and continued after any end.

A task that hangs, fails or is killed costs itself and no other; what it had learned by then is in its checkpoints.
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
# Imports on a busy machine are not the fault of a task.
_SECONDS_TO_BEGIN = 120.0
_SECONDS_TO_END = 5.0
# Of the machine's memory, the rest is for the system and for what all processes share.
_SHARE_OF_MEMORY = 0.8
# What is slow to import is imported once, before any process starts; torch's optimisers import torch._dynamo.
_PRELOADED = ["pollux.lab.paper", "pollux.lab.quality.benchmark", "torch._dynamo", "gemclus.linear"]
# Packages whose code decides no bit of a training.
_NO_TRAINING = ("app", "lab", "report", "selection")


@dataclass(frozen=True)
class RunContext:
    """What a run may use: the folder of the results, a path for a model that figures need, callbacks, and
    checkpoints from which it is continued after a kill."""

    folder: Path
    model_path: Path | None = None
    callbacks: list[Callback] = field(default_factory=list)
    unfinished: UnfinishedRun | None = None

    def checkpoint(self, name: str = "fit") -> Checkpoints | None:
        """Checkpoints of an estimator that the run fits: each fit has a name of its own."""
        return None if self.unfinished is None else self.unfinished.checkpoint(name)

    def save_model(self, clustering: GeminiClustering) -> None:
        """Save the model, if figures need it."""
        if self.model_path is not None:
            self.model_path.parent.mkdir(parents=True, exist_ok=True)
            clustering.save(self.model_path)


class Task(ABC):
    """A run of a grid that any process can do: subclasses can be pickled."""

    @property
    @abstractmethod
    def run(self) -> Run:
        """What identifies it in the records."""

    @property
    def saves_model(self) -> bool:
        """Whether figures need its model."""
        return False

    @property
    def properties(self) -> Mapping[str, Any]:
        """What is known before it is run, and recorded with its metrics."""
        return {}

    @property
    def versions(self) -> dict[str, str]:
        """The versions of what it depends on."""
        return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in PACKAGES}}

    @abstractmethod
    def measure(self, context: RunContext) -> Mapping[str, Any]:
        """Do it, and return its metrics; ``"seconds"`` among them replaces the time that all of it took."""

    def __str__(self) -> str:
        return str(self.run)


@dataclass(frozen=True)
class Failure:
    """A task that ended in an error: its message, and where it came from."""

    task: Task
    reason: str
    trace: str = ""

    def in_words(self, before: str = "") -> str:
        """The task and its reason on one line, with a word before the reason."""
        return f"{self.task}: {before}{' '.join(self.reason.split())}"


@dataclass(frozen=True)
class Limits:
    """How tasks are done: so many at a time, each on so many threads, given up after so many seconds."""

    jobs: int
    threads: int
    timeout: float = math.inf
    checkpoint_every: str = CHECKPOINT_EVERY
    fresh: bool = False  # each task in a process of its own, else one after the other


class Display:
    """Is told of the progress of a grid; shows nothing by itself."""

    def began(self, task: Task) -> None:
        """A task has begun."""

    def epoch(self, task: Task, epoch: Epoch) -> None:
        """An epoch of a task has ended."""

    def done(self, task: Task, record: Record) -> None:
        """A task has ended."""

    def failed(self, failure: Failure) -> None:
        """A task has ended in an error."""


def cores() -> int:
    """The cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_each(jobs: int) -> int:
    """The threads of each of so many tasks at a time: their share of the cores, at most what the user grants."""
    granted = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores() // jobs, int(granted) if granted.isdigit() else cores()))


def memory_each(jobs: int) -> float:
    """Bytes of memory for each of so many tasks at a time; infinite where the system does not say."""
    try:
        total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf
    with contextlib.suppress(OSError, ValueError):
        # A container may grant less than the machine has.
        total = min(total, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    return _SHARE_OF_MEMORY * total / jobs


def model_path(folder: Path, run: Run) -> Path:
    """Where the model of a run is saved."""
    return folder / "models" / f"{run.key}.safetensors"


def unfinished_path(folder: Path, key: str) -> Path:
    """Where a run leaves what it needs to be continued, below the folder of the results."""
    return folder / "unfinished" / key


Result = Record | Failure


def run_grid(tasks: Sequence[Task], path: Path, limits: Limits, display: Display) -> list[Failure]:
    """Do all tasks and append a record of each to the file as it ends; those that failed."""
    folder, failures = path.parent, list[Failure]()
    folder.mkdir(parents=True, exist_ok=True)
    # What a program left that was killed between a record and the end of its task.
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
    """Each task and its result, as soon as it has one."""
    queue = deque(tasks)
    busy: list[_Worker] = []
    idle: list[_Worker] = []
    # Processes start as copies of one that has imported everything, where the system can.
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
        # After Ctrl-C, tasks under way are continued from their checkpoints by the next command.
        for worker in (*busy, *idle):
            worker.end()


class _Worker:
    """A process that does one task at a time, and the pipe between it and this one."""

    task: Task

    def __init__(self, context: Any, folder: Path, limits: Limits) -> None:
        self._timeout = limits.timeout
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, folder, limits), daemon=True)
        with _ctrl_c_held():
            self._process.start()
        theirs.close()
        self._ended = False

    @property
    def is_alive(self) -> bool:
        return not self._ended and bool(self._process.is_alive())

    def assign(self, task: Task) -> None:
        """Give it a task to do."""
        self.task = task
        self._deadline = time.monotonic() + self._timeout + _SECONDS_TO_BEGIN
        # That the process has died shows when the pipe is read.
        with contextlib.suppress(OSError):
            self.pipe.send(task)

    def poll(self, display: Display) -> Result | None:
        """The result of the task, if it has ended, or has to; epochs before that are passed on."""
        try:
            while self.pipe.poll():
                message = self.pipe.recv()
                if isinstance(message, float):
                    # It has begun, and earlier processes have spent so many seconds on it.
                    self._deadline = time.monotonic() + max(self._timeout - message, 0.0)
                elif isinstance(message, Epoch):
                    display.epoch(self.task, message)
                elif isinstance(message, Failure):
                    return dataclasses.replace(message, task=self.task)
                else:
                    record: Record = message
                    return record
        except (EOFError, OSError):
            # It has closed its end of the pipe, so it ends or has ended.
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
        """Kill the process, if there still is one."""
        if not self._ended:
            self._ended = True
            self._process.kill()
            self._process.join()
            self._process.close()
            self.pipe.close()


@contextlib.contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, and never reaches processes that start in it.

    A terminal sends it to all processes; this one answers it, and ends the others.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# What follows happens in the process of a worker.


def _work(pipe: Any, folder: Path, limits: Limits) -> None:
    # Where it could not be held back: the parent answers Ctrl-C, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()

    def send(message: Any) -> None:
        # That nobody listens is no reason to give a run up.
        with contextlib.suppress(OSError):
            pipe.send(message)

    with contextlib.suppress(EOFError, OSError):
        while True:
            send(attempt(pipe.recv(), folder, limits, send))


def _die_with_parent() -> None:
    """A program that is killed leaves no process behind that goes on with its tasks."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def attempt(task: Task, folder: Path, limits: Limits, send: Callable[[Any], None] = lambda message: None) -> Result:
    """Do a task; an error becomes text, because not every exception survives the way between two processes."""
    try:
        return perform(task, folder, limits, send)
    except MemoryError as error:
        return Failure(task, f"there is not enough memory, give fewer --jobs: {error}")
    except Exception as error:
        return Failure(task, f"{type(error).__name__}: {error}", traceback.format_exc())


def perform(task: Task, folder: Path, limits: Limits, send: Callable[[Any], None] = lambda message: None) -> Record:
    """Do a task, or what is left of it, and return its record."""
    run, last = task.run, 0.0
    unfinished = UnfinishedRun(unfinished_path(folder, run.key), limits.checkpoint_every)

    def send_epoch(epoch: Epoch) -> None:
        # Not more often than people can read.
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
    """The record of a task that has ended now, as it will be read."""
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    record = Record(task.run, {**metrics, **task.properties}, round(seconds, 3), task.versions, list(warned), finished)
    return records.as_read(record)


class UnfinishedRun:
    """The folder of a run under way: checkpoints of its fits, the seconds spent and the warnings given so far.

    Attributes
    ----------
    scores : dict
        What the run has measured on its way, as JSON can hold it; kept by :meth:`note`.
    """

    def __init__(self, folder: Path, every: str = CHECKPOINT_EVERY) -> None:
        self.folder, self._every = folder, every
        self.scores: dict[str, Any] = {}
        self._start = self._noted = time.monotonic()
        self.before, self._warnings = 0.0, list[str]()
        self._caught: Sequence[warnings.WarningMessage] = ()

    @property
    def seconds(self) -> float:
        """Time spent on the run, by this process and by those that were killed."""
        return self.before + time.monotonic() - self._start

    @property
    def warnings(self) -> list[str]:
        """What the run has warned of, sorted, each once."""
        return sorted({*self._warnings, *(f"{one.category.__name__}: {one.message}" for one in self._caught)})

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Work on the run, alone; what another version of the code has left is removed, and the run starts anew."""
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
                # Checkpoints that cannot be read, or of other settings: the next attempt starts anew.
                self._clear()
                raise

    def checkpoint(self, name: str = "fit") -> Checkpoints:
        """Checkpoints of one of the fits of the run: give each fit a name of its own."""
        return Checkpoints(self.folder / name, every=self._every)

    def __call__(self, epoch: Epoch) -> None:
        """Note the time spent; a callback of the run's fits."""
        if time.monotonic() - self._noted > _SECONDS_BETWEEN_NOTES:
            # A full disk costs the note, not the run.
            with contextlib.suppress(OSError):
                self._write()

    def note(self, **scores: Any) -> None:
        """Keep what was measured, for the process that continues the run if this one is killed."""
        self.scores.update(scores)
        self._write()

    def _write(self) -> None:
        self._noted = time.monotonic()
        notes = {"code": code_digest(), "seconds": self.seconds, "warnings": self.warnings, "scores": self.scores}
        write_text(self.folder / "run.json", json.dumps(notes))

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)

    def remove(self) -> None:
        """Remove the folder of a run that is recorded, unless another program works in it."""
        if self.folder.is_dir():
            with contextlib.suppress(BusyError, OSError):
                with locked(self.folder):
                    pass
                shutil.rmtree(self.folder)
                # The last one leaves no empty folder.
                self.folder.parent.rmdir()


@functools.cache
def code_digest() -> str:
    """A digest of the sources and libraries that decide the bits of a training."""
    root = Path(__file__).parents[1]
    libraries = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES[1:]]
    digest = hashlib.sha256(" ".join(libraries).encode())
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.suffix in (".py", ".cpp", ".hpp") and name.parts[0] not in _NO_TRAINING:
            digest.update(str(name).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
