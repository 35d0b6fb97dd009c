"""What a thread has of torch to itself: how many threads it may use, and where random numbers come from."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

# Multiplications that one core does in about a millisecond. On busy cores each operation on several threads waits for
# the last of them about that long.
_SMALL = 40_000_000

_allowed: ContextVar[int | None] = ContextVar("allowed", default=None)
_Item = TypeVar("_Item")


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


_uses_many = False


def note_threads() -> None:
    """Note that work begins on as many threads as torch has: a process that is forked later is kept to one."""
    global _uses_many
    _uses_many = _uses_many or torch.get_num_threads() > 1


def _keep_to_one() -> None:
    # The threads of OpenMP are not copied with the process, and work that is given to them never ends.
    if _uses_many:
        torch.set_num_threads(1)
        threadpool_limits(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_to_one)


# Held by who gives torch's own generator the state of another.
GLOBAL_GENERATOR = threading.RLock()


class RecomputedDrawError(Exception):
    """A layer that is computed anew in the backward pass must draw as it did before, which only torch can see to."""


class DrawFrom(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """In this context, and in this thread, operations that are given no generator draw from ours.

    Layers that are made, dropout and loaders that shuffle draw the numbers that they would draw from torch's own
    generator in the same state. That one is not touched: others may use it meanwhile. Of other devices than the CPU
    nothing is changed.

    Attributes
    ----------
    has_drawn : bool
        Whether any number was drawn.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator, self.has_drawn = generator, False

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _is_random(operation) or any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values())):
            return operation(*args, **kwargs)
        device = kwargs.get("device") or next((value.device for value in args if isinstance(value, Tensor)), "cpu")
        if torch.device(device).type != "cpu":
            return operation(*args, **kwargs)
        if torch._C._current_graph_task_id() != -1:
            raise RecomputedDrawError
        self.has_drawn = True
        drawing = _with_generator(operation)
        if drawing is not None:
            return drawing(*args, **{**kwargs, "generator": self._generator})
        with as_global(self._generator):
            return operation(*args, **kwargs)


@functools.cache
def _is_random(operation: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in operation.tags


@functools.cache
def _with_generator(operation: Any) -> Any:
    """The operation, or its overload, that takes a generator; None where there is none."""
    name = operation._overloadname
    for overload in (name, "generator" if name == "default" else f"{name}_generator"):
        if overload in operation.overloadpacket.overloads():
            found = getattr(operation.overloadpacket, overload)
            if any(argument.name == "generator" for argument in found._schema.arguments):
                return found
    return None


@contextmanager
def as_global(generator: torch.Generator) -> Iterator[None]:
    """In this context torch's own generator has the state of ours, and ours follows it; for one thread at a time."""
    with GLOBAL_GENERATOR:
        before = torch.get_rng_state()
        torch.set_rng_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(torch.get_rng_state())
            torch.set_rng_state(before)


def iterate_drawing(items: Iterable[_Item], generator: torch.Generator) -> Iterator[_Item]:
    """The items of what draws random numbers as it is iterated, such as a loader that shuffles."""
    with DrawFrom(generator):
        iterator = iter(items)
    while True:
        # Only for as long as an item is made: who takes it draws from elsewhere.
        with DrawFrom(generator):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
