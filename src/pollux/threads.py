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
    before = torch.get_num_threads()
    token = _allowed.set(allowed())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _allowed.reset(token)
