"""How many threads may be used, also while torch is kept to one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch
from torch import nn

# Multiplications that one core does in about a millisecond.
_SMALL = 4_000_000

_allowed: ContextVar[int | None] = ContextVar("allowed", default=None)


def allowed() -> int:
    """The threads that the user grants, which is what torch was given outside ``torch_on_one``."""
    return _allowed.get() or torch.get_num_threads()


def threads_for(module: nn.Module, rows: int) -> AbstractContextManager[None]:
    """One thread where passing so many rows through the module takes no large matrix product, else all of them."""
    if torch.get_num_threads() == 1:
        return nullcontext()
    parameters = list(module.parameters())
    # Weights of more than two dimensions are those of convolutions, which use each many times.
    is_small = rows * sum(each.numel() for each in parameters) <= _SMALL and all(each.ndim <= 2 for each in parameters)
    return torch_on_one() if is_small else nullcontext()


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
