"""Progress of long computations: stages that are displayed if anyone is listening, and cost nothing otherwise.

Whatever can take over a second is a :class:`Stage`, or a loop over :func:`track`. To display them, as ``verbose=True``
and the command line on a terminal do, run the computation within :func:`show_progress`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Listener = Callable[["list[Stage]"], None]

# Seconds between updates of a live line, and between lines in a file.
_REDRAW, _LINE = 0.2, 5.0
# A stage is shown after this many seconds, and leaves a line behind if it took at least this many.
_SHOWN_AFTER, _KEPT_FROM = 0.3, 1.0
_BAR = 20


class Stage:
    """A part of a computation, as a context manager; stages can be nested.

    Parameters
    ----------
    title : str
        What is done.
    total : int, optional
        Number of steps, if known: the time left is estimated from those done.
    is_kept : bool
        Whether its last line stays on the screen, however short the stage was.
    """

    def __init__(self, title: str, total: float | None = None, *, is_kept: bool = False) -> None:
        self.title, self.total, self.is_kept = title, total, is_kept
        self.done, self.detail, self.begun = 0.0, "", 0.0
        # Steps that were done before, as by a resumed training, are left out of the estimated speed.
        self.first = 0.0
        self._subscriber: _Subscriber | None = None

    def __enter__(self) -> Stage:
        self._subscriber = _subscriber.get()
        if self._subscriber is not None:
            self.begun = time.monotonic()
            self._subscriber.begin(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._subscriber is not None:
            self._subscriber.end(self)

    def update(self, done: float, total: float | None = None, detail: str | None = None) -> None:
        """Set the number of steps that are done, and optionally the total and the detail."""
        if self._subscriber is None:
            return
        self.done = done
        if total is not None:
            self.total = total
        if detail is not None:
            self.detail = detail
        self._subscriber.change()

    @property
    def is_shown(self) -> bool:
        """Whether the stage is displayed, so that it pays to compute details."""
        return self._subscriber is not None

    def describe(self, now: float) -> str:
        """One line: title, progress, and the estimated time left, or the elapsed time if that is not known."""
        parts, elapsed = [self.title], now - self.begun
        time_shown = _clock(elapsed)
        if self.total is not None:
            parts[0] += f" {int(self.done):,}/{int(self.total):,}"
            filled = round(_BAR * min(1.0, self.done / self.total)) if self.total else _BAR
            parts.append("━" * filled + "─" * (_BAR - filled))
            if self.first < self.done < self.total:
                left = elapsed * (self.total - self.done) / (self.done - self.first)
                time_shown = f"{_clock(left)} left"
        return "  ".join([*parts, *filter(None, [self.detail]), time_shown])

    def summarise(self, now: float) -> str:
        """One line for a stage that has ended: title and duration."""
        counted = "" if self.total is None else f" {int(self.done):,}/{int(self.total):,}"
        return "  ".join([f"{self.title}{counted}", *filter(None, [self.detail]), f"{now - self.begun:.1f} s"])


def track(items: Iterable[_Item], title: str, total: int | None = None) -> Iterator[_Item]:
    """Iterate over the items within a stage that counts them, if anyone is listening."""
    return iter(items) if _subscriber.get() is None else _count(items, title, total)


def _count(items: Iterable[_Item], title: str, total: int | None) -> Iterator[_Item]:
    with Stage(title, len(items) if total is None and isinstance(items, Sized) else total) as shown:
        for done, item in enumerate(items, 1):
            yield item
            shown.update(done)


def annotate(detail: str) -> None:
    """Set the detail of the innermost stage."""
    subscriber = _subscriber.get()
    if subscriber is not None and subscriber.stages:
        current = subscriber.stages[-1]
        current.update(current.done, detail=detail)


class _Subscriber:
    """Calls a listener with the list of running stages, the innermost last."""

    def __init__(self, listener: _Listener) -> None:
        self.stages: list[Stage] = []
        self._listener = listener

    def begin(self, new: Stage) -> None:
        self.stages.append(new)
        self.change()

    def end(self, old: Stage) -> None:
        # Stages within it that never ended, as in a generator that was abandoned, end too.
        if old in self.stages:
            del self.stages[self.stages.index(old) :]
        self.change()

    def change(self) -> None:
        self._listener(self.stages)


_subscriber: ContextVar[_Subscriber | None] = ContextVar("subscriber", default=None)


@contextlib.contextmanager
def listen(listener: _Listener | None) -> Iterator[None]:
    """In this context, call the listener with the running stages whenever one begins, advances or ends."""
    if listener is None:
        yield
        return
    yield from _with_subscriber(_Subscriber(listener))


@contextlib.contextmanager
def show_progress(enabled: bool = True, every: float = _LINE) -> Iterator[None]:
    """In this context, show stages on standard error, unless they are shown already.

    On a terminal and in a notebook this is one line that is redrawn; elsewhere a new line every ``every`` seconds.
    """
    # Without a console, as under pythonw, sys.stderr is None.
    if not enabled or sys.stderr is None or _subscriber.get() is not None:
        yield
        return
    with _Display(sys.stderr, every) as display:
        yield from _with_subscriber(display)


def _with_subscriber(subscriber: _Subscriber) -> Iterator[None]:
    token = _subscriber.set(subscriber)
    try:
        yield
    finally:
        _subscriber.reset(token)


class _Display(_Subscriber):
    """Writes stages to a stream, as one live line or as lines; a thread redraws it while no stage changes."""

    def __init__(self, stream: Any, every: float = _LINE) -> None:
        super().__init__(self._draw_at_times)
        self._stream = stream
        # Streams of ipykernel are not terminals, but support returning to the beginning of a line.
        self._is_live = stream.isatty() or type(stream).__module__.startswith("ipykernel")
        self._every = _REDRAW if self._is_live else every
        # If lines are rare, stages shorter than the time between lines are not shown.
        self._is_rare = self._every > _LINE
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._width = 0  # of the live line as drawn
        self._drawn = time.monotonic()

    def __enter__(self) -> _Display:
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        with self._lock:
            self._erase()

    def end(self, old: Stage) -> None:
        with self._lock:
            is_outermost = bool(self.stages) and self.stages[0] is old
            super().end(old)
            now = time.monotonic()
            is_long = now - old.begun >= (self._every if self._is_rare else _KEPT_FROM)
            if (old.is_kept and not self._is_rare) or ((old.is_kept or is_outermost) and is_long):
                self._erase()
                self._write(old.summarise(now) + "\n")
            elif is_outermost:
                self._erase()

    def _tick(self) -> None:
        while not self._ended.wait(_REDRAW):
            self._draw_at_times(self.stages)

    def _draw_at_times(self, stages: list[Stage]) -> None:
        now = time.monotonic()
        if now - self._drawn < self._every:
            return
        with self._lock:
            shown = [each for each in stages if now - each.begun >= _SHOWN_AFTER]
            if not shown:
                return
            self._drawn = now
            # Show the outermost stage, for context, and the innermost, which is running now.
            ends = shown if len(shown) == 1 else [shown[0], shown[-1]]
            line = " · ".join(each.describe(now) for each in ends)
            if not self._is_live:
                self._write(line + "\n")
                return
            line = line[: _columns(self._stream) - 1]
            self._write("\r" + line.ljust(self._width))
            self._width = len(line)

    def _erase(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")
        self._width = 0

    def _write(self, text: str) -> None:
        # A closed stream must not end the computation.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def _columns(stream: Any) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _clock(seconds: float) -> str:
    """'0:05', '1:02:03'."""
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
