"""Penalties: terms that are added to the loss.

A penalty is a function ``penalty(model, inputs, log_p, sample_weight, generator)`` of log-probabilities (n, K) that
returns a number, to be minimised. Those of this module take (…, n, K) of models that are trained together, and return
(…), one value for each; :class:`OwnPenalty` adapts a user's function. ``model(inputs)`` gives log-probabilities and
``model.each(inputs)`` does so for inputs (…, n, …) that differ between the models. A penalty with an attribute
``uses_spacing`` is also given ``spacing`` (n,): the distance of each sample to its 10th nearest neighbour.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from pollux.geometry.affinity import proportions
from pollux.objectives.gemini import check_log_probabilities


class Model(Protocol):
    """The interface of a model that penalties use."""

    def __call__(self, inputs: Tensor) -> Tensor: ...

    def each(self, inputs: Tensor) -> Tensor: ...

    def parameters(self) -> Iterable[Tensor]: ...


# A penalty with ``uses_spacing`` takes the spacing of samples too.
Penalty = Callable[..., Tensor]


def entropy(
    model: Model,
    inputs: Tensor,
    log_p: Tensor,
    sample_weight: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Mean entropy of the predictions, in nats: small for a model that is sure of each sample."""
    check_log_probabilities(log_p)
    return _mean(-(log_p.exp() * log_p).sum(-1), sample_weight)


def balance(
    model: Model,
    inputs: Tensor,
    log_p: Tensor,
    sample_weight: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """How far the sizes of clusters are from equal: log K − H(Y), in nats, computed within each process."""
    check_log_probabilities(log_p)
    shares = _mean(log_p.exp().mT, sample_weight)
    # Clamped, so that a share of zero contributes 0 · finite = 0.
    logarithms = shares.clamp_min(torch.finfo(shares.dtype).tiny).log()
    return (shares * logarithms).sum(-1) + math.log(log_p.shape[-1])


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
    model: Model | nn.Module,
    inputs: Tensor,
    log_p: Tensor,
    sample_weight: Tensor | None = None,
    generator: torch.Generator | None = None,
    *,
    radius: float | Tensor = 1.0,
    probe: float | Tensor = 10.0,
    steps: int = 1,
) -> Tensor:
    """Virtual adversarial training: how far the worst small move of the inputs changes the predictions.

    Parameters
    ----------
    model : callable
        ``model.each(inputs)`` gives log-probabilities (…, n, K) of moved inputs (…, n, …); or a network that returns
        logits.
    radius : float or Tensor of shape (n,)
        Length of the move, or that of each sample, in the units of the inputs.
    probe : float or Tensor of shape (n,)
        Length of the trial move that finds the worst direction.
    steps : int
        Power iterations that refine the direction.
    """
    if not inputs.is_floating_point():
        raise ValueError(
            "Virtual adversarial training (vat, local_vat) moves the inputs: a free table has none, and whole "
            "numbers such as tokens cannot be moved. Leave that penalty out."
        )
    check_log_probabilities(log_p)
    radius, probe = (_of_each(length, inputs) for length in (radius, probe))
    target = log_p.detach()
    shape = target.shape[:-2] + inputs.shape
    direction = torch.randn(shape, generator=generator, dtype=inputs.dtype).to(inputs.device)
    for _ in range(steps):
        move = (probe * _unit(direction, inputs.ndim - 1)).detach().requires_grad_()
        change = _kl(target, _log_p_of_each(model, inputs + move), sample_weight)
        (direction,) = torch.autograd.grad(change.sum(), move)
    moved = inputs + radius * _unit(direction, inputs.ndim - 1)
    return _kl(target, _log_p_of_each(model, moved), sample_weight)


@dataclass(frozen=True)
class LocalVat:
    """The penalty ``vat`` with moves as long as samples are apart: far where they are sparse, short where dense.

    Parameters
    ----------
    share : float
        Length of a sample's move, as a share of the distance to its 10th nearest neighbour.
    probe : float
        Length of the trial move that finds the worst direction, as a multiple of that of the move itself: with 4, and
        grey values from 0 to 1, about the 10 that is usual for images of digits, but in any units.
    steps : int
        Power iterations that refine the direction.
    """

    share: float = 0.4
    probe: float = 4.0
    steps: int = 1
    uses_spacing: ClassVar[bool] = True

    def __call__(
        self,
        model: Model | nn.Module,
        inputs: Tensor,
        log_p: Tensor,
        sample_weight: Tensor | None = None,
        generator: torch.Generator | None = None,
        *,
        spacing: Tensor,
    ) -> Tensor:
        """The penalty, as a mean over samples.

        Parameters
        ----------
        model : callable
            ``model.each(inputs)`` gives log-probabilities (…, n, K) of moved inputs (…, n, …); or a network that
            returns logits.
        inputs : Tensor of shape (n, …)
            The samples.
        log_p : Tensor of shape (…, n, K)
            Their log-probabilities.
        sample_weight : Tensor of shape (n,), optional
            Weights of the samples.
        generator : torch.Generator, optional
            Draws the first direction.
        spacing : Tensor of shape (n,)
            The distance of each sample to its 10th nearest neighbour among all samples, such as
            ``torch.as_tensor(pollux.geometry.nearest(X, 10).distances[:, -1])``.

        Returns
        -------
        Tensor of shape (…)
        """
        radius = self.share * spacing
        probe = self.probe * radius
        return vat(model, inputs, log_p, sample_weight, generator, radius=radius, probe=probe, steps=self.steps)


@dataclass(frozen=True)
class OwnPenalty:
    """A custom penalty, called for one model at a time: log-probabilities are always (n, K).

    Parameters
    ----------
    function : callable
        ``(model, inputs, log_p, sample_weight, generator) → number``.
    """

    function: Callable[..., Any]

    def __post_init__(self) -> None:
        try:
            given = inspect.signature(self.function)
        except ValueError:  # Some compiled functions have no signature.
            return
        try:
            given.bind(*range(5), **{"spacing": None} if self.uses_spacing else {})
        except TypeError as error:
            wanted = "(model, inputs, log_p, sample_weight, generator)"
            raise TypeError(f"A penalty is called with {wanted}, which {self.name} does not take: {error}.") from None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def uses_spacing(self) -> bool:
        return bool(getattr(self.function, "uses_spacing", False))

    def __call__(self, model: Any, inputs: Tensor, log_p: Tensor, *further: Any, **also: Any) -> Tensor:
        if log_p.ndim == 2:
            return self._number(self.function(model, inputs, log_p, *further, **also), log_p)
        values = [self.function(model.alone(r), inputs, own, *further, **also) for r, own in enumerate(log_p)]
        return torch.stack([self._number(value, log_p) for value in values])

    def _number(self, value: Any, log_p: Tensor) -> Tensor:
        if not isinstance(value, Tensor) and not isinstance(value, numbers.Real):
            raise TypeError(f"The penalty {self.name} must return a number, not {type(value).__name__}.")
        number: Tensor = torch.as_tensor(value, device=log_p.device)
        if number.numel() != 1:
            shape = tuple(number.shape)
            raise ValueError(f"The penalty {self.name} must return one number, not values of shape {shape}.")
        return number.reshape(())


@contextlib.contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Within this context, the module does not update the running statistics of its normalisation layers."""
    norms = [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm | nn.modules.instancenorm._InstanceNorm)
        and layer.track_running_stats
        and layer.training
    ]
    for layer in norms:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in norms:
            layer.track_running_stats = True


def _unit(direction: Tensor, sample_ndim: int) -> Tensor:
    """Each sample's direction, over its last ``sample_ndim`` dimensions, scaled to length one."""
    dims = tuple(range(-sample_ndim, 0))
    tiny = torch.finfo(direction.dtype).tiny
    # Scale to a maximum of one first: the squares of very small directions would underflow, and their norm be zero.
    direction = direction / direction.abs().amax(dims, keepdim=True).clamp_min(tiny)
    length: Tensor = torch.linalg.vector_norm(direction, dim=dims, keepdim=True)
    return direction / length.clamp_min(tiny)


def _of_each(length: float | Tensor, inputs: Tensor) -> float | Tensor:
    """A length for all samples, or one for each, shaped to multiply inputs (…, n, …)."""
    if not isinstance(length, Tensor):
        return length
    return length.to(inputs.device, inputs.dtype).reshape(-1, *[1] * (inputs.ndim - 1))


def _log_p_of_each(model: Model | nn.Module, inputs: Tensor) -> Tensor:
    """Log-probabilities of moved inputs, also by a network that returns logits."""
    if isinstance(model, nn.Module):
        with frozen_statistics(model):
            log_p: Tensor = model(inputs).log_softmax(-1)
        return log_p
    return model.each(inputs)


def _kl(log_p: Tensor, log_q: Tensor, sample_weight: Tensor | None) -> Tensor:
    return _mean((log_p.exp() * (log_p - log_q)).sum(-1), sample_weight)


def _mean(values: Tensor, sample_weight: Tensor | None) -> Tensor:
    """The mean over samples, the last dimension."""
    if sample_weight is None:
        return values.mean(-1)
    return values @ proportions(sample_weight).to(values.dtype)


PENALTIES: dict[str, Penalty] = {
    "vat": vat,
    "local_vat": LocalVat(),
    "entropy": entropy,
    "balance": balance,
    "weight_decay": weight_decay,
}
"""The penalties by name, as the ``penalties`` of an estimator take them. Times its weight, each is added to the loss.

K is the number of clusters and θ are the trained parameters. A mean is one over samples, by their weights.

.. list-table::
   :header-rows: 1

   * - Name
     - Formula
     - Meaning
   * - ``vat``
     - mean of KL(p(y|x) ‖ p(y|x + r)), where r is the worst move of length 1
     - virtual adversarial training: predictions stay the same if a sample moves a little. The direction of r is found
       by one power iteration from a random trial move of length 10. p(y|x) is a constant
   * - ``local_vat``
     - the same, where r is as long as 0.4 times the distance of x to its 10th nearest neighbour
     - boundaries keep to gaps, whatever the density and the units; the trial move is 4 times as long as r
   * - ``entropy``
     - mean of −Σ_y p(y|x) log p(y|x)
     - predictions are certain
   * - ``balance``
     - log K + Σ_y p(y) log p(y), where p(y) is the mean of p(y|x)
     - clusters are of equal size
   * - ``weight_decay``
     - ½ Σ θ²
     - parameters are small, biases included
"""


def as_penalty(penalty: str | Penalty) -> Penalty:
    """The penalty for a name or a function."""
    if isinstance(penalty, str):
        return PENALTIES[penalty]
    is_ours = isinstance(penalty, LocalVat) or any(penalty is each for each in PENALTIES.values())
    return penalty if is_ours else OwnPenalty(penalty)
