"""One step of training: the one place where model, objective and penalties meet, and the only one that negates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from pollux.objectives.gemini import Gemini
from pollux.objectives.gradients import SPREAD_FORMS, value_and_gradient
from pollux.objectives.penalties import Penalty
from pollux.ranks import Ranks
from pollux.training.batches import Batch
from pollux.training.dense import DenseModels
from pollux.training.epoch_metrics import ClusterMetrics, EpochMetrics
from pollux.training.trainable import SingleModel, StackedModels

Trainable: TypeAlias = SingleModel | StackedModels | DenseModels


class Step(Protocol):
    """One step on one batch, and the optimiser's memory of those before it."""

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Predictions (…, n, K), up to a constant for each sample, and the objective (…) that rises."""

    def new_metrics(self) -> EpochMetrics:
        """Gathers the metrics of an epoch from what the steps return."""
        return ClusterMetrics()

    def scale_learning_rate(self, pace: float) -> None:
        """Go on at this share of the learning rate."""

    def state(self) -> Any:
        """What the optimiser remembers, as plain data and tensors."""

    def load_state(self, state: Any) -> None:
        """Make the optimiser remember this."""


class OptimiserStep(Step):
    """Steps of an optimiser of torch: its learning rates and its state."""

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self._optimiser = optimiser
        self._rates, self._pace = [group["lr"] for group in optimiser.param_groups], 1.0

    def scale_learning_rate(self, pace: float) -> None:
        if pace == self._pace:
            # A user's optimiser may change its rates by itself.
            return
        self._pace = pace
        for group, rate in zip(self._optimiser.param_groups, self._rates, strict=True):
            group["lr"] = pace * rate

    def state(self) -> Any:
        return self._optimiser.state_dict()

    @torch.no_grad()
    def load_state(self, state: Any) -> None:
        self._optimiser.load_state_dict(state)
        for parameter, memory in self._optimiser.state.items():
            for name, value in memory.items():
                # Files hold plain layouts, and fused optimisers read memory without a look at strides.
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    memory[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


class AutogradStep(OptimiserStep):
    """Steps of any optimiser on any model, by automatic differentiation.

    Parameters
    ----------
    model : SingleModel or StackedModels
        What is trained.
    objective : Gemini
        What rises.
    optimiser : torch.optim.Optimizer
        Of the model's parameters.
    penalties : sequence of (penalty, weight)
        What joins the loss.
    generator : torch.Generator, optional
        Draws what the objective needs; of several processes all must have the same.
    ranks : Ranks, optional
        The processes that share each batch. The objective is that of the whole batch.
    noise : torch.Generator, optional
        Draws what penalties need, for the samples of this process alone; else ``generator`` does.
    """

    def __init__(
        self,
        model: SingleModel | StackedModels,
        objective: Gemini,
        optimiser: torch.optim.Optimizer,
        penalties: Sequence[tuple[Penalty, float]] = (),
        generator: torch.Generator | None = None,
        ranks: Ranks | None = None,
        noise: torch.Generator | None = None,
    ) -> None:
        super().__init__(optimiser)
        self._model, self._objective, self._penalties = model, objective, penalties
        self._generator, self._noise, self._ranks = generator, noise or generator, ranks

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        seen: list[tuple[Tensor, Tensor]] = []

        def loss() -> Any:
            self._optimiser.zero_grad()
            log_p = self._model(batch.inputs)
            if self._has_spread_form(batch):
                values, total = self._without_tape(batch, log_p)
            else:
                values, total = self._with_tape(batch, log_p)
            seen.append((log_p.detach(), values.detach()))
            if self._ranks is None:
                return total.detach()
            return add_gradients(self._model.parameters(), total.detach(), self._ranks)

        self._optimiser.step(loss)
        if self._ranks is not None:
            self._model.share_statistics(self._ranks)
        # An optimiser may look more than once; the first look is at the weights the step began with.
        return seen[0]

    def _with_tape(self, batch: Batch, log_p: Tensor) -> tuple[Tensor, Tensor]:
        """Objective and loss, after their backward pass."""
        values = self._objective(
            log_p, batch.affinity, sample_weight=batch.sample_weight, generator=self._generator, ranks=self._ranks
        )
        total = self._loss(batch, log_p, values)
        total.backward()  # type: ignore[no-untyped-call]
        return values, total

    def _has_spread_form(self, batch: Batch) -> bool:
        """Whether several processes can do with fewer messages than a tape sends."""
        plain = not self._penalties and batch.sample_weight is None and batch.sizes is not None
        return self._ranks is not None and plain and self._objective.name in SPREAD_FORMS

    def _without_tape(self, batch: Batch, log_p: Tensor) -> tuple[Tensor, Tensor]:
        """The same, with the gradient of the objective in closed form."""
        assert self._ranks is not None
        with torch.no_grad():
            values, gradient = value_and_gradient(
                self._objective, log_p, batch.affinity, None, self._generator, self._ranks, batch.sizes
            )
        # Logarithms of probabilities are logits too.
        log_p.backward(gradient.neg())  # type: ignore[no-untyped-call]
        return values, -values.sum() / self._ranks.size

    def _loss(self, batch: Batch, log_p: Tensor, values: Tensor) -> Tensor:
        """What is made small; of several processes, the part of this one: together they are the loss of the batch."""
        total, share = -values.sum(), 1.0
        if self._ranks is not None:
            total = total / self._ranks.size
        if self._ranks is not None and self._penalties:
            # A penalty is a mean over samples, and this process has some of them.
            own = torch.tensor(float(len(batch.inputs)), dtype=torch.float64)
            if batch.sample_weight is not None:
                own = batch.sample_weight.sum().double()
            share = float(own / self._ranks.sum(own))
        for penalty, weight in self._penalties:
            also = {"spacing": batch.spacing} if getattr(penalty, "uses_spacing", False) else {}
            value = penalty(self._model, batch.inputs, log_p, batch.sample_weight, self._noise, **also)
            total = total + weight * share * value.sum()
        return total


class ClosedFormStep(Step):
    """Steps of Adam on small dense networks."""

    def __init__(self, model: DenseModels, objective: Gemini, generator: torch.Generator | None = None) -> None:
        self._model, self._objective, self._generator = model, objective, generator

    @torch.no_grad()
    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = self._model.forward(batch.inputs)
        values, gradient = value_and_gradient(
            self._objective, logits, batch.affinity, batch.sample_weight, self._generator
        )
        self._model.descend(gradient.neg_())
        return logits, values

    def scale_learning_rate(self, pace: float) -> None:
        self._model.adam.pace = pace

    def state(self) -> Any:
        return self._model.adam.state()

    def load_state(self, state: Any) -> None:
        self._model.adam.load_state(state)


@torch.no_grad()
def add_gradients(parameters: Sequence[Tensor], loss: Tensor, ranks: Ranks) -> Tensor:
    """Give every process the sum of their gradients, and return that of their losses; all in one message."""
    gradients = [
        parameter.grad if parameter.grad is not None else torch.zeros_like(parameter) for parameter in parameters
    ]
    total = ranks.sum_in_place(torch.cat([*(gradient.flatten() for gradient in gradients), loss.flatten()]))
    *parts, losses = torch.split(total, [*(gradient.numel() for gradient in gradients), 1])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return losses[0]
