"""Ctrl-C and SIGTERM while a run is made: what was learned is never lost by the first one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pollux.training import Checkpoints


@contextmanager
def heeded(checkpoints: Checkpoints) -> Iterator[None]:
    """Either one makes the training write a checkpoint after its step and end; a second Ctrl-C is let through at once.

    After Ctrl-C the model is evaluated and written as it is, unless the data are streamed. Whoever sends SIGTERM does
    not wait long: it leaves with the checkpoint.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heed(number: int, frame: FrameType | None) -> None:
        again, checkpoints.stop_requested = checkpoints.stop_requested, True
        if number == signal.SIGTERM:
            # Launchers send it more than once.
            checkpoints.stop_immediately = True
            again = not (again or checkpoints.is_training or checkpoints.stopped)
        if again:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, heed) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
