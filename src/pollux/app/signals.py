"""Ctrl-C, SIGTERM and SIGHUP: what they do while a command runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pollux.training import Checkpoints

ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class OnStop:
    """What is said of a command that a signal has stopped; asked for at the end, to be true of what is there."""

    def __init__(self) -> None:
        self.says: Callable[[], str] = lambda: "Stopped."


on_stop = OnStop()


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal as Ctrl-C."""
    raise KeyboardInterrupt


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals that ask a process to end, but for those that it was started to ignore, as nohup does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # None stands for a handler that is not Python's.
    heeded = [number for number in ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)


@contextmanager
def hold_signals() -> Iterator[None]:
    """What is begun here is not interrupted; a signal that comes meanwhile has come too late.

    A handler of Python's, because a signal that one thread blocks is delivered to another.
    """
    with handle_signals(lambda number, frame: None):
        yield


@contextmanager
def stop_on_signals(checkpoints: Checkpoints) -> Iterator[None]:
    """Ctrl-C and SIGTERM make the training write a checkpoint after its step and end.

    After Ctrl-C the model is evaluated and written as it is, unless the data are streamed; a second one is let through
    at once, and so is one before anything was learned that could be kept. Whoever sends SIGTERM or SIGHUP does not
    wait long: the training leaves with the checkpoint.
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

    with handle_signals(stop):
        yield
