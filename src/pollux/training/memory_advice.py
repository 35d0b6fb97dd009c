"""What to do when memory does not suffice: the batch size that would fit, found by trying."""

from __future__ import annotations

import re

import torch
from torch import nn

from pollux.errors import option
from pollux.objectives import Gemini
from pollux.training.batches import Batch, Batches
from pollux.training.trainable import SingleModel

_MESSAGES = re.compile(r"can't allocate memory|out of memory|not enough memory|bad_alloc", re.IGNORECASE)
# A model that fails raises a ValueError, whatever its own error was.
MEMORY_ERRORS = (MemoryError, RuntimeError, ValueError)


class TooLargeError(MemoryError, ValueError):
    """There is not enough memory for a batch; the message says which batch would fit."""


def explain_memory_error(
    error: Exception, module: nn.Module, n_clusters: int, batches: Batches, objective: Gemini
) -> Exception:
    """The error itself; or, where memory did not suffice for a batch, one that says which batch would fit."""
    if not is_lack_of_memory(error):
        return error
    # What the failed step held must be free before others are tried.
    error.__traceback__ = error.__cause__ = error.__context__ = None
    cause = str(error).splitlines()[0] if str(error) else type(error).__name__
    fits = _largest_that_fits(module, n_clusters, batches, objective)
    lack = f"There is not enough memory for batches of {batches.batch_size:,} rows"
    if fits is None:
        return TooLargeError(f"{lack}, nor for smaller ones: use a smaller model, or free memory. ({cause})")
    return TooLargeError(f"{lack}; batches of {fits:,} would fit: {option('batch_size', fits)}. ({cause})")


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left; torch has no type of its own for that on a CPU."""
    return isinstance(error, MemoryError) or _MESSAGES.search(str(error)) is not None


def _largest_that_fits(module: nn.Module, n_clusters: int, batches: Batches, objective: Gemini) -> int | None:
    """The largest half, quarter, … of the batch size with which a step can be taken."""
    size = batches.batch_size // 2
    while size >= max(2, n_clusters):
        try:
            batch = batches.example(size)
            if len(batch.inputs) < size:
                return None
            _try_step(module, n_clusters, batch, objective)
            # Halves leave some for the optimiser and the system.
            return size
        except MEMORY_ERRORS as error:
            if not is_lack_of_memory(error):
                return None
        size //= 2
    return None


def _try_step(module: nn.Module, n_clusters: int, batch: Batch, objective: Gemini) -> None:
    model = SingleModel(module, n_clusters)
    value = objective(model(batch.inputs), batch.affinity)
    torch.autograd.grad(value, model.parameters(), allow_unused=True)
