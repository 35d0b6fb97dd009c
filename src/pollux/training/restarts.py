"""Several restarts, the best kept: trained together as one batched model where that can be done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn

from pollux.objectives.gemini import Gemini
from pollux.objectives.penalties import Penalty
from pollux.training.batches import Batches
from pollux.training.dense import DenseModels, trainable_without_tape
from pollux.training.evaluation import Evaluation
from pollux.training.loop import NotFiniteError, Trained
from pollux.training.optimisers import Factory, elementwise, make_optimiser
from pollux.training.steps import Step, Trainable, taped_step, tapeless_step
from pollux.training.trainable import SingleModel, try_stack


class Recipe(NamedTuple):
    """How models are trained.

    ``may_go_tapeless`` says that the modules are the library's own: a user's may carry hooks that must run.
    """

    objective: Gemini
    optimiser: str | Factory
    learning_rate: float
    penalties: Sequence[tuple[Penalty, float]]
    may_go_tapeless: bool


class Fitted(NamedTuple):
    """The best module, what it says of the samples, and the figures of its epochs."""

    module: nn.Module
    evaluation: Evaluation
    history: dict[str, list[float]]


def train_restarts(
    modules: Sequence[nn.Module],
    n_clusters: int,
    batches: Batches,
    recipe: Recipe,
    train: Callable[[Trainable, Step, Batches], Trained],
    evaluate: Callable[[nn.Module], Evaluation],
    generator: torch.Generator | None = None,
) -> Fitted:
    """Train every module and keep the one with the highest objective on the samples."""
    results: list[Fitted] = []
    failure: NotFiniteError | None = None
    for model, step in _plan(modules, n_clusters, batches, recipe, generator):
        try:
            trained = train(model, step, batches)
            evaluations = evaluate_sound(model, trained, evaluate)
        except NotFiniteError as error:
            # One start may fail where another does not.
            failure = error
            continue
        if trained.broken_off and not trained.history.objective and results:
            # It has learned nothing, and others have.
            break
        results += [
            Fitted(module, evaluations[r], trained.history.of_model(r)) for r, module in enumerate(model.modules)
        ]
        if trained.broken_off:
            break
    if not results and failure is not None:
        raise failure
    # A restart whose numbers are not finite is compared as the worst.
    return max(results, key=lambda fitted: _or_worst(fitted.evaluation.objective))


def evaluate_sound(model: Trainable, trained: Trained, evaluate: Callable[[nn.Module], Evaluation]) -> list[Evaluation]:
    """Evaluations of the modules trained; from the last good weights where the last step spoilt them all."""
    evaluations = [evaluate(module) for module in model.modules]
    if not any(math.isfinite(evaluation.objective) for evaluation in evaluations):
        trained.restore()
        evaluations = [evaluate(module) for module in model.modules]
    if not any(math.isfinite(evaluation.objective) for evaluation in evaluations):
        raise NotFiniteError(evaluations[0].objective)
    return evaluations


def _plan(
    modules: Sequence[nn.Module],
    n_clusters: int,
    batches: Batches,
    recipe: Recipe,
    generator: torch.Generator | None,
) -> Iterator[tuple[Trainable, Step]]:
    """All modules as one model where possible, else one by one; without a tape where none is needed."""
    objective, optimiser, learning_rate, penalties, may_go_tapeless = recipe
    if may_go_tapeless and not penalties and optimiser == "adam" and trainable_without_tape(modules[0], n_clusters):
        dense = DenseModels(modules, learning_rate)
        yield dense, tapeless_step(dense, objective, generator)
        return
    if len(modules) > 1:
        stacked = try_stack(modules, n_clusters, next(batches.epoch()).inputs)
        if stacked is not None:
            together = make_optimiser(optimiser, stacked.parameters(), learning_rate)
            if elementwise(together):
                yield stacked, taped_step(stacked, objective, together, penalties, generator)
                return
    for module in modules:
        single = SingleModel(module, n_clusters)
        alone = make_optimiser(optimiser, single.parameters(), learning_rate)
        yield single, taped_step(single, objective, alone, penalties, generator)


def _or_worst(value: float) -> float:
    return value if math.isfinite(value) else -math.inf
