"""How many threads may be used, also while torch is kept to one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_allowed: ContextVar[int | None] = ContextVar("allowed", default=None)


def allowed() -> int:
    """The threads that the user grants, which is what torch was given outside ``torch_on_one``."""
    return _allowed.get() or torch.get_num_threads()


@contextmanager
def torch_on_one() -> Iterator[None]:
    """Tensor operations on one thread: small ones take longer where threads wait for each other."""
    token = _allowed.set(allowed())
    try:
        with at_most(1):
            yield
    finally:
        _allowed.reset(token)


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """No more threads than these, for torch and for whom :func:`allowed` grants them; 0 leaves them alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(count, before) or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
