"""Runs on the cores, each in a process of its own: one that hangs or is killed costs that run and no other."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pollux.lab.experiments import records
from pollux.lab.experiments.experiment import Record
from pollux.lab.experiments.running import ctrl_c_held, die_with_the_parent
from pollux.lab.quality.measuring import Task, measure, recorded_as
from pollux.training.callbacks import Epoch

_SECONDS_BETWEEN_NEWS = 0.2
# Imports on a busy machine are not the fault of a method.
_SECONDS_TO_BEGIN = 120.0
_SECONDS_TO_END = 5.0
# Of what the machine has, the rest is for the system and for what all processes share.
_SHARE_OF_MEMORY = 0.8
_DIED = "its process was killed; if memory ran out, give fewer --jobs (the system's log tells)"
# What is slow to import is imported once, before there is any process to do a run.
_PRELOADED = ["pollux.lab.quality.measuring", "pollux.clustering", "gemclus.linear"]


@dataclass(frozen=True)
class Failure:
    """A run that ended in an error: what it said, and where it came from."""

    task: Task
    reason: str
    trace: str = ""


class Display(Protocol):
    """Who is told how the runs go."""

    def began(self, task: Task) -> None:
        """A run has begun."""

    def epoch(self, task: Task, epoch: Epoch) -> None:
        """An epoch of a run has ended."""

    def done(self, task: Task, record: Record) -> None:
        """A run has ended."""

    def failed(self, failure: Failure) -> None:
        """A run has ended in an error."""


class Limits(NamedTuple):
    """Runs at a time, threads of each, and the seconds after which one is given up."""

    jobs: int
    threads: int
    timeout: float


def memory_each(jobs: int) -> float:
    """Bytes of memory for each of so many runs at a time; infinite where the system does not tell."""
    try:
        total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
    with contextlib.suppress(OSError, ValueError):
        # A container may grant less than the machine has.
        total = min(total, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    return _SHARE_OF_MEMORY * total / jobs


def is_done(record: Record | None, refusal: str, timeout: float) -> bool:
    """Whether a run need not be done: it has scores, or nothing has changed of why it has none."""
    if record is None:
        return False
    if "timeout" in record.metrics:
        return bool(record.metrics["timeout"] >= timeout)
    return "skipped" not in record.metrics or bool(refusal)


def execute(tasks: Sequence[Task], path: Path, limits: Limits, display: Display) -> list[Failure]:
    """Do all runs, and append each to the records as it ends; those that failed."""
    failures: list[Failure] = []
    with contextlib.closing(_as_they_end(tasks, limits, display)) as answers:
        for task, answer in answers:
            if isinstance(answer, Failure):
                failures.append(answer)
                display.failed(answer)
            else:
                records.append(path, answer)
                display.done(task, answer)
    return failures


Answer = Record | Failure


def _as_they_end(tasks: Sequence[Task], limits: Limits, display: Display) -> Generator[tuple[Task, Answer], None, None]:
    """Each run and its answer, as soon as it has one."""
    queue = iter(tasks)
    under_way: list[_Child] = []
    context = _context()
    try:
        while True:
            for task in (task for _, task in zip(range(limits.jobs - len(under_way)), queue, strict=False)):
                under_way.append(_Child(context, task, limits))
                display.began(task)
            if not under_way:
                return
            connection.wait([child.inbox for child in under_way], _SECONDS_BETWEEN_NEWS)
            for child in list(under_way):
                answer = child.answer(display)
                if answer is not None:
                    under_way.remove(child)
                    yield child.task, answer
    finally:
        # Ctrl-C: what is under way is given up; it is not recorded, and will be done anew.
        for child in under_way:
            child.end()


def _context() -> Any:
    """Processes that begin as copies of one that has imported everything, where the system can."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


class _Child:
    """A process that does one run, and the way by which it answers."""

    def __init__(self, context: Any, task: Task, limits: Limits) -> None:
        self.task, self._timeout = task, limits.timeout
        self.inbox, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(theirs, task, limits.threads), daemon=True)
        with ctrl_c_held():
            self._process.start()
        theirs.close()
        self._deadline = time.monotonic() + limits.timeout + _SECONDS_TO_BEGIN

    def answer(self, display: Display) -> Answer | None:
        """What became of the run, if it has ended, or has to; news that came before are passed on."""
        try:
            while self.inbox.poll():
                message = self.inbox.recv()
                if message is None:
                    self._deadline = time.monotonic() + self._timeout
                elif isinstance(message, Epoch):
                    display.epoch(self.task, message)
                else:
                    self.end()
                    return message if isinstance(message, Record) else Failure(self.task, *message)
        except (EOFError, OSError):
            return Failure(self.task, self._cause_of_death())
        if time.monotonic() < self._deadline:
            return None
        self.end()
        return recorded_as(self.task, {"timeout": self._timeout}, self._timeout)

    def _cause_of_death(self) -> str:
        """It has closed its end of the pipe, so it ends or has ended."""
        self._process.join(_SECONDS_TO_END)
        code = self._process.exitcode
        self.end()
        return _DIED if code is None or code < 0 else f"its process ended without an answer (exit code {code})"

    def end(self) -> None:
        """See that there is no process any more."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self.inbox.close()


# What follows happens in the process of a run.


def _work(outbox: Any, task: Task, threads: int) -> None:
    # Where it could not be held back: the parent answers Ctrl-C, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=die_with_the_parent, daemon=True).start()
    try:
        # It has begun.
        outbox.send(None)
        answer: Any = measure(task, threads, [_Teller(outbox)])
    except MemoryError as error:
        answer = (f"there is not enough memory, give fewer --jobs: {error}", "")
    except Exception as error:
        # In words: not every exception survives the way between two processes.
        answer = (f"{type(error).__name__}: {error}", traceback.format_exc())
    with contextlib.suppress(OSError):
        outbox.send(answer)


class _Teller:
    """A callback that tells the parent of each epoch, but not more often than people can read."""

    def __init__(self, outbox: Any) -> None:
        self._outbox, self._last = outbox, 0.0

    def __call__(self, epoch: Epoch) -> None:
        if time.monotonic() - self._last > _SECONDS_BETWEEN_NEWS or epoch.number == epoch.max_epochs:
            self._last = time.monotonic()
            # No one listens: no reason to give a run up.
            with contextlib.suppress(OSError):
                self._outbox.send(epoch)
