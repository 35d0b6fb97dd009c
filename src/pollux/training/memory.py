"""What to say when memory does not suffice: the batch size that would fit, found by trying."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from pollux.errors import option
from pollux.objectives import Gemini
from pollux.training import Batch, Batches
from pollux.training.trainable import SingleModel

_SAID_BY_TORCH = re.compile(r"can't allocate memory|out of memory|not enough memory|bad_alloc", re.IGNORECASE)
# A model that fails is told of by a ValueError, whatever it has raised.
_RAISED = (MemoryError, RuntimeError, ValueError)


class TooLargeError(MemoryError, ValueError):
    """There is not enough memory for a batch; the message says which batch would fit."""


@contextmanager
def within_memory(module: nn.Module, n_clusters: int, batches: Batches, objective: Gemini) -> Iterator[None]:
    """A training on these batches; where memory does not suffice for one, an error that says which would fit."""
    try:
        yield
    except _RAISED as error:
        if not is_lack_of_memory(error):
            raise
        # What the failed step held must be gone before others are tried.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TooLargeError(_advice(module, n_clusters, batches, objective, told)) from None


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left; torch has no type of its own for that on a CPU."""
    return isinstance(error, MemoryError) or _SAID_BY_TORCH.search(str(error)) is not None


def _advice(module: nn.Module, n_clusters: int, batches: Batches, objective: Gemini, told: str) -> str:
    size = batches.batch_size
    fits = _largest_that_fits(module, n_clusters, batches, objective)
    lack = f"There is not enough memory for batches of {size:,} rows"
    if fits is None:
        return f"{lack}, nor for smaller ones: use a smaller model, or free memory. ({told})"
    return f"{lack}; batches of {fits:,} would fit: {option('batch_size', fits)}. ({told})"


def _largest_that_fits(module: nn.Module, n_clusters: int, batches: Batches, objective: Gemini) -> int | None:
    """The largest half, quarter, … of the batch size with which a step can be taken."""
    size = batches.batch_size // 2
    while size >= max(2, n_clusters):
        try:
            batch = batches.example(size)
            if len(batch.inputs) < size:
                return None
            _try_step(module, n_clusters, batch, objective)
            # Not to the last byte: the optimiser and the system need some too.
            return size
        except _RAISED as error:
            if not is_lack_of_memory(error):
                return None
        size //= 2
    return None


def _try_step(module: nn.Module, n_clusters: int, batch: Batch, objective: Gemini) -> None:
    model = SingleModel(module, n_clusters)
    value = objective(model(batch.inputs), batch.affinity)
    torch.autograd.grad(value, model.parameters(), allow_unused=True)
