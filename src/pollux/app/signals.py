"""Handling of Ctrl-C, SIGTERM and SIGHUP while a command runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pollux.training import Checkpoints

ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class OnStop:
    """The message of a command that a signal has stopped; computed at the end, when it is known what was saved."""

    def __init__(self) -> None:
        self.says: Callable[[], str] = lambda: "Stopped."


on_stop = OnStop()


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal like Ctrl-C."""
    raise KeyboardInterrupt


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals that ask a process to end, except those that it was started to ignore, as by nohup."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # None means a handler that was not installed from Python.
    handled = [number for number in ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)


def hold_signals() -> AbstractContextManager[None]:
    """In this context signals are ignored, so that what is begun here is completed.

    By a Python handler, because a signal that is blocked in one thread is delivered to another.
    """
    return handle_signals(lambda number, frame: None)


def stop_on_signals(checkpoints: Checkpoints) -> AbstractContextManager[None]:
    """On Ctrl-C and SIGTERM, the training writes a checkpoint after its current step and ends.

    After Ctrl-C the model is evaluated and written, unless the data are streamed; a second one interrupts at once, and
    so does one before anything was learned. After SIGTERM or SIGHUP there is little time: the training ends with the
    checkpoint.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        is_second, checkpoints.stop_requested = checkpoints.stop_requested, True
        if number == signal.SIGINT:
            ends_now = is_second or not checkpoints.has_begun
        else:
            checkpoints.stop_immediately = True
            # Launchers send it more than once.
            ends_now = not (is_second or checkpoints.is_training or checkpoints.stopped)
        if ends_now:
            raise KeyboardInterrupt

    return handle_signals(stop)
