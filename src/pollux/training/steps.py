"""One step of training: the one place where model, objective and penalties meet, and the only one that negates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pollux.objectives.gemini import Gemini
from pollux.objectives.gradients import value_and_gradient
from pollux.objectives.penalties import Penalty
from pollux.training.batches import Batch
from pollux.training.dense import DenseModels
from pollux.training.trainable import SingleModel, StackedModels

Trainable: TypeAlias = SingleModel | StackedModels | DenseModels
Step: TypeAlias = Callable[[Batch], tuple[Tensor, Tensor]]
"""One step on one batch: predictions (…, n, K), up to a constant for each sample, and the objective (…)."""


def taped_step(
    model: SingleModel | StackedModels,
    objective: Gemini,
    optimiser: torch.optim.Optimizer,
    penalties: Sequence[tuple[Penalty, float]] = (),
    generator: torch.Generator | None = None,
) -> Step:
    """Steps of any optimiser on any model, by automatic differentiation."""

    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        seen: list[tuple[Tensor, Tensor]] = []

        def loss() -> Any:
            optimiser.zero_grad()
            log_p = model(batch.inputs)
            values = objective(log_p, batch.affinity, sample_weight=batch.sample_weight, generator=generator)
            total = -values.sum()
            for penalty, weight in penalties:
                total = total + weight * penalty(model, batch.inputs, log_p, batch.sample_weight, generator).sum()
            total.backward()  # type: ignore[no-untyped-call]
            seen.append((log_p.detach(), values.detach()))
            return total.detach()

        optimiser.step(loss)
        # An optimiser may look more than once; the first look is at the weights the step began with.
        return seen[0]

    return step


def tapeless_step(model: DenseModels, objective: Gemini, generator: torch.Generator | None = None) -> Step:
    """Steps of Adam on small dense networks."""

    @torch.no_grad()
    def step(batch: Batch) -> tuple[Tensor, Tensor]:
        logits = model.forward(batch.inputs)
        values, gradient = value_and_gradient(objective, logits, batch.affinity, batch.sample_weight, generator)
        model.descend(gradient.neg_())
        return logits, values

    return step
