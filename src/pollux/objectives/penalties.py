"""Penalties that join the loss: what the objective alone does not ask of a model.

A penalty is a function ``penalty(model, inputs, log_p, sample_weight, generator)`` that returns (…), one
value for each model trained, to be made small. ``model(inputs)`` gives log-probabilities (…, n, K) and
``model.each(inputs)`` does so for inputs (…, n, …) that differ between the models trained together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor

from pollux.affinity import proportions


class Model(Protocol):
    """What a penalty may ask of what is trained."""

    def __call__(self, inputs: Tensor) -> Tensor: ...

    def each(self, inputs: Tensor) -> Tensor: ...

    def parameters(self) -> Iterable[Tensor]: ...


Penalty = Callable[[Model, Tensor, Tensor, Tensor | None, torch.Generator | None], Tensor]


def entropy(
    model: Model,
    inputs: Tensor,
    log_p: Tensor,
    sample_weight: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Mean entropy of the predictions, in nats: small for a model that is sure of each sample."""
    return _mean(-(log_p.exp() * log_p).sum(-1), sample_weight)


def weight_decay(
    model: Model,
    inputs: Tensor,
    log_p: Tensor,
    sample_weight: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """½ Σ θ² over all parameters, of all models that are trained together."""
    squares = [parameter.square().sum() for parameter in model.parameters()]
    return torch.stack(squares).sum() / 2


def vat(
    model: Model,
    inputs: Tensor,
    log_p: Tensor,
    sample_weight: Tensor | None = None,
    generator: torch.Generator | None = None,
    *,
    radius: float = 1.0,
    probe: float = 10.0,
    steps: int = 1,
) -> Tensor:
    """Virtual adversarial training: how far the worst small move of the inputs changes the predictions.

    Parameters
    ----------
    radius : float
        Length of the move, in the units of the inputs.
    probe : float
        Length of the trial move that finds the worst direction.
    steps : int
        Power iterations that refine the direction.
    """
    if not inputs.is_floating_point():
        raise ValueError("The penalty 'vat' moves the inputs, and a free table has none: choose another model.")
    target = log_p.detach()
    shape = target.shape[:-2] + inputs.shape
    direction = torch.randn(shape, generator=generator, dtype=inputs.dtype).to(inputs.device)
    for _ in range(steps):
        move = (probe * _unit(direction, inputs.ndim - 1)).detach().requires_grad_()
        change = _kl(target, model.each(inputs + move), sample_weight)
        (direction,) = torch.autograd.grad(change.sum(), move)
    return _kl(target, model.each(inputs + radius * _unit(direction, inputs.ndim - 1)), sample_weight)


def _unit(direction: Tensor, sample_ndim: int) -> Tensor:
    """Each sample's direction, its last ``sample_ndim`` dimensions, at length one."""
    dims = tuple(range(-sample_ndim, 0))
    length: Tensor = torch.linalg.vector_norm(direction, dim=dims, keepdim=True)
    return direction / length.clamp_min(torch.finfo(direction.dtype).tiny)


def _kl(log_p: Tensor, log_q: Tensor, sample_weight: Tensor | None) -> Tensor:
    return _mean((log_p.exp() * (log_p - log_q)).sum(-1), sample_weight)


def _mean(values: Tensor, sample_weight: Tensor | None) -> Tensor:
    """The mean over samples (…, n)."""
    if sample_weight is None:
        return values.mean(-1)
    return values @ proportions(sample_weight).to(values.dtype)


PENALTIES: dict[str, Penalty] = {"vat": vat, "entropy": entropy, "weight_decay": weight_decay}
