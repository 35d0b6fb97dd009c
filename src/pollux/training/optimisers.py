"""Optimisers by name, or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

Factory = Callable[..., torch.optim.Optimizer]

OPTIMISERS: dict[str, Factory] = {
    "adam": partial(torch.optim.Adam, fused=True),
    "adamw": partial(torch.optim.AdamW, fused=True),
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
    "lbfgs": torch.optim.LBFGS,
}
# These treat each number by itself, so models stacked into one are trained as they would be alone.
_ELEMENTWISE = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop)


def make_optimiser(
    optimiser: str | Factory, parameters: Iterable[Tensor], learning_rate: float
) -> torch.optim.Optimizer:
    """The named optimiser, or ``optimiser(parameters, lr=learning_rate)``."""
    if isinstance(optimiser, str):
        if optimiser not in OPTIMISERS:
            raise ValueError(f"Unknown optimiser {optimiser!r}. Valid names: {', '.join(OPTIMISERS)}.")
        optimiser = OPTIMISERS[optimiser]
    parameters = list(parameters)
    if not parameters:
        raise ValueError("The model has no parameters that could be trained.")
    return optimiser(parameters, lr=learning_rate)


def elementwise(optimiser: torch.optim.Optimizer) -> bool:
    """Whether it treats each number by itself; of a user's subclass that is not known."""
    return type(optimiser) in _ELEMENTWISE
