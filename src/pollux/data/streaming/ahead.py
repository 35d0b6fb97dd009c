"""Reading in the background: the next part while the current one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from threading import Event, current_thread
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

_NAME = "pollux-reading"


class Stopped(Exception):  # noqa: N818
    """Nobody waits for the result any more."""


def read_ahead(read: Callable[[Task, Event], Result], tasks: Iterable[Task]) -> Iterator[Result]:
    """The results of tasks, in order, each read by a thread while the one before it is used.

    What ``read`` raises is raised here. The thread ends with the iterator; a ``read`` that takes long looks at the
    event it is given, and raises :class:`Stopped` once that is set.
    """
    stopped = Event()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=_NAME)
    waiting = iter(tasks)

    def submit(task: Task) -> Future[Result]:
        # In the context of whoever reads, which decides how messages name options.
        return thread.submit(copy_context().run, read, task, stopped)

    try:
        coming = [submit(task) for task in islice(waiting, 1)]
        while coming:
            result = coming.pop().result()
            coming = [submit(task) for task in islice(waiting, 1)]
            yield result
            # Not held while the next one is awaited.
            del result
    finally:
        stopped.set()
        # An iterator that nobody holds may be collected by the very thread, which cannot wait for itself.
        thread.shutdown(wait=not current_thread().name.startswith(_NAME), cancel_futures=True)
