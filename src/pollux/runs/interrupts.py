"""Ctrl-C while a run is made: what was learned is never lost by the first one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pollux.training import Interruptible


@contextmanager
def heeded(interruptible: Interruptible) -> Iterator[None]:
    """In training, Ctrl-C ends it. After it, while weights are evaluated and files written, it waits for that.

    A second one is let through at once, and so is one before the training.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heed(number: int, frame: FrameType | None) -> None:
        if interruptible.in_training or interruptible.asked_to_stop or not interruptible.begun:
            raise KeyboardInterrupt
        interruptible.asked_to_stop = True

    before = signal.signal(signal.SIGINT, heed)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
