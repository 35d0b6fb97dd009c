"""Shuffled batches of rows that do not fit in memory: chunks in random order, rows shuffled within windows of chunks.

The next window is read by a thread while the current one is used.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from itertools import islice
from threading import Event, current_thread
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pollux.data.streams import Chunks

Lengths = NDArray[np.int64]
Array = NDArray[Any]

WINDOW_BYTES = 16_000_000

Task = TypeVar("Task")
Result = TypeVar("Result")

_THREAD = "pollux-reading"


@dataclass(frozen=True)
class BatchSizes(Sequence[int]):
    """Sizes of nearly equal parts of n rows, the first ones larger by one, as in ``torch.tensor_split``; not stored."""

    n: int
    batches: int

    def __len__(self) -> int:
        return self.batches

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self[batch] for batch in range(*index.indices(self.batches))]
        return self.n // self.batches + (range(self.batches)[index] < self.n % self.batches)

    def before(self, batch: int) -> int:
        """The number of rows before this batch."""
        return batch * (self.n // self.batches) + min(batch, self.n % self.batches)


def shards(lengths: Lengths, parts: int) -> list[NDArray[np.int64]]:
    """Assign chunks to ``parts`` processes: the longest first, each to the process with the fewest rows."""
    loads = [(0, part) for part in range(parts)]
    numbers: list[list[int]] = [[] for _ in range(parts)]
    for chunk in np.argsort(-lengths, kind="stable"):
        rows, part = loads[0]
        numbers[part].append(int(chunk))
        heapq.heapreplace(loads, (rows + int(lengths[chunk]), part))
    return [np.array(sorted(own), dtype=np.int64) for own in numbers]


def shuffled(
    chunks: Chunks,
    sizes: Sequence[int],
    seed: int,
    *,
    own: NDArray[np.int64] | None = None,
    window_bytes: int = WINDOW_BYTES,
    start: int = 0,
) -> Iterator[Array]:
    """One epoch: each row of the chunks once, in batches of these sizes, (size, *shape).

    Chunks are read in random order. As many of them as hold about ``window_bytes`` form a window, which is read in the
    background while the one before is used, and whose rows are shuffled. About three windows are in memory. A batch is
    mostly a view of a window: copy batches to keep them.

    Parameters
    ----------
    sizes
        Rows of each batch, whose sum is the number of rows; see :class:`BatchSizes`.
    seed
        Determines the order: what comes after the first ``start`` batches does not depend on ``start``.
    own
        The chunks of this process, all by default.
    start
        Number of batches to skip; windows before them are not read.
    """
    own = np.arange(len(chunks.lengths)) if own is None else own
    n, of_sizes = int(chunks.lengths[own].sum()), _before(sizes, len(sizes))
    if of_sizes != n:
        raise ValueError(f"the sizes of batches make {of_sizes:,} rows, but there are {n:,}")
    # Not a generator itself, so that wrong sizes raise an error at once.
    return _batches(chunks, sizes, seed, own, window_bytes, start)


def in_order(chunks: Chunks) -> Iterator[Array]:
    """Iterate over the chunks in order, without empty ones; the next one is read meanwhile."""

    def read(chunk: int, stopped: Event) -> Array:
        return chunks.read(chunk)

    return read_ahead(read, np.flatnonzero(chunks.lengths).tolist())


def _before(sizes: Sequence[int], batch: int) -> int:
    return sizes.before(batch) if isinstance(sizes, BatchSizes) else sum(sizes[:batch])


def _batches(
    chunks: Chunks, sizes: Sequence[int], seed: int, own: NDArray[np.int64], window_bytes: int, start: int
) -> Iterator[Array]:
    # The chunks in the order of this epoch, in windows that are read together.
    order = np.random.default_rng([seed, 0]).permutation(own[chunks.lengths[own] > 0])
    lengths = chunks.lengths[order]
    rows_of_window = max(1, window_bytes // max(1, math.prod(chunks.shape) * chunks.dtype.itemsize))
    of_chunk = (np.cumsum(lengths) - lengths) // rows_of_window
    windows = np.split(order, np.flatnonzero(np.diff(of_chunk)) + 1)
    ends = np.cumsum([chunks.lengths[window].sum() for window in windows], dtype=np.int64)
    before = _before(sizes, start)
    first = int(np.searchsorted(ends, before, side="right"))
    skipped = before - int(ends[first - 1]) if first else before

    def read(number: int, stopped: Event) -> Array:
        return _read_window(chunks, windows[number], np.random.default_rng([seed, 1 + number]), stopped)

    parts: list[Array] = []
    held, batch = 0, start
    reading = read_ahead(read, range(first, len(windows)))
    try:
        for window in reading:
            rest = window[skipped:]
            skipped = 0
            while batch < len(sizes) and held + len(rest) >= sizes[batch]:
                taken = sizes[batch] - held
                yield np.concatenate([*parts, rest[:taken]]) if parts else rest[:taken]
                parts, held, rest, batch = [], 0, rest[taken:], batch + 1
            if len(rest):
                # A copy, because a view would keep the whole window.
                parts, held = [*parts, rest.copy()], held + len(rest)
            del window, rest
    finally:
        reading.close()  # type: ignore[attr-defined]
    # Empty batches after the last row.
    for _ in range(batch, len(sizes)):
        yield np.empty((0, *chunks.shape), dtype=chunks.dtype)


def _read_window(chunks: Chunks, window: NDArray[np.int64], random: np.random.Generator, stopped: Event) -> Array:
    """The rows of some chunks, shuffled: each chunk is written to its final places as soon as it is read."""
    n = int(chunks.lengths[window].sum())
    place = random.permutation(n)
    rows = np.empty((n, *chunks.shape), dtype=chunks.dtype)
    written, first = _as_records(rows), 0
    for chunk in window:
        if stopped.is_set():
            raise Stopped
        part = np.ascontiguousarray(chunks.read(int(chunk)))
        written[place[first : first + len(part)]] = _as_records(part)
        first += len(part)
    return rows


def _as_records(rows: Array) -> NDArray[Any]:
    """Rows as single entries (n,), which NumPy permutes faster than rows of numbers."""
    size = math.prod(rows.shape[1:]) * rows.dtype.itemsize
    return rows.reshape(len(rows), -1).view(np.dtype((np.void, size)))[:, 0]


class Stopped(Exception):  # noqa: N818
    """The result is no longer needed."""


def read_ahead(read: Callable[[Task, Event], Result], tasks: Iterable[Task]) -> Iterator[Result]:
    """Iterate over the results of tasks, in order; each is read by a thread while the one before it is used.

    Exceptions of ``read`` are raised here. The thread ends with the iterator; a ``read`` that takes long should check
    the event that it is given, and raise :class:`Stopped` once it is set.
    """
    stopped = Event()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=_THREAD)
    waiting = iter(tasks)

    def submit(task: Task) -> Future[Result]:
        # In the context of the caller, which determines how messages name options.
        return thread.submit(copy_context().run, read, task, stopped)

    try:
        coming = [submit(task) for task in islice(waiting, 1)]
        while coming:
            result = coming.pop().result()
            coming = [submit(task) for task in islice(waiting, 1)]
            yield result
            # Release the result while waiting for the next one.
            del result
    finally:
        stopped.set()
        # An abandoned iterator may be garbage-collected by this very thread, which cannot wait for itself.
        thread.shutdown(wait=not current_thread().name.startswith(_THREAD), cancel_futures=True)
