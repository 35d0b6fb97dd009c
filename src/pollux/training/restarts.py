"""Several restarts, the best kept: trained together as one batched model where that can be done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pollux.errors import InputError
from pollux.objectives.gemini import Gemini
from pollux.objectives.penalties import Penalty
from pollux.ranks import Ranks
from pollux.training.batches import Batches
from pollux.training.checkpoints import Checkpoints, Stopped
from pollux.training.dense import DenseModels, has_closed_form
from pollux.training.evaluation import Evaluation
from pollux.training.loop import TrainingResult
from pollux.training.optimisers import Factory, elementwise, make_optimiser
from pollux.training.state import History, NotFiniteError, warn_not_finite
from pollux.training.steps import AutogradStep, ClosedFormStep, Step, Trainable
from pollux.training.trainable import SingleModel, try_stack

_TRIED_ROWS = 64


class StepOptions(NamedTuple):
    """How models are trained.

    ``allow_closed_form`` says that the modules are the library's own: a user's may carry hooks that must run.
    """

    objective: Gemini
    optimiser: str | Factory
    learning_rate: float
    penalties: Sequence[tuple[Penalty, float]]
    allow_closed_form: bool
    autocast: torch.dtype | None = None
    compiled: bool = False


class RandomStreams(NamedTuple):
    """Where random numbers come from, and the processes that must draw the same ones.

    ``generator`` is the same in all processes; ``noise``, where there are several, is each one's own.
    """

    generator: torch.Generator | None = None
    noise: torch.Generator | None = None
    ranks: Ranks | None = None


class BestRestart(NamedTuple):
    """The best module, what it says of the samples, the metrics of its epochs, and whether its numbers exploded.

    ``choices`` are the clusters (n,) that each start has led to, where samples are at hand.
    """

    module: nn.Module
    evaluation: Evaluation
    history: dict[str, list[float]]
    diverged: bool = False
    choices: tuple[Tensor, ...] = ()


class Round(NamedTuple):
    """How many of the models so far are trained, how long, by which schedule, and after how many epochs."""

    models: int
    epochs: int
    schedule: str = "constant"
    before: int = 0


def train_restarts(
    modules: Sequence[nn.Module],
    n_clusters: int,
    batches: Batches,
    options: StepOptions,
    train: Callable[[Trainable, Step, Batches, Round], TrainingResult],
    evaluate: Callable[[nn.Module], Evaluation],
    random_streams: RandomStreams,
    rounds: Sequence[Round],
    checkpoints: Checkpoints | None = None,
) -> BestRestart:
    """Train every module and keep the one with the highest objective on the samples.

    In the first round all are trained; the best of a round go on to the next. One that a later round leads to nothing
    is as it was before it.
    """
    stages = _Stages(batches, train, evaluate, checkpoints)
    best: list[BestRestart] = []
    choices: tuple[Tensor, ...] = ()
    for number, each in enumerate(rounds):
        sound = [fitted for fitted in best[: each.models] if math.isfinite(fitted.evaluation.objective)]
        going_on = [_GoingOn(fitted) for fitted in sound]
        plan = list(_plan([fitted.module for fitted in sound] or modules, n_clusters, batches, options, random_streams))
        results = stages.train(plan, each, is_last=number == len(rounds) - 1)
        if not number:
            choices = tuple(result.evaluation.choice for result in results if result.evaluation.choice is not None)
        else:
            # A module is trained where it stands: it tells which training went on.
            later = {id(fitted.module): fitted for fitted in results}
            results = [start.after(later.get(id(start.earlier.module)), stages.failed) for start in going_on]
        # A restart whose numbers are not finite is compared as the worst.
        best = sorted(results, key=lambda fitted: _or_worst(fitted.evaluation.objective), reverse=True)
        if stages.is_over:
            break
    return best[0]._replace(choices=choices)


class _GoingOn:
    """A start that goes on to another round, and its weights before that."""

    def __init__(self, earlier: BestRestart) -> None:
        self.earlier = earlier
        self._weights = [tensor.detach().clone() for tensor in self._state()]

    def _state(self) -> list[Tensor]:
        return [*self.earlier.module.parameters(), *self.earlier.module.buffers()]

    @torch.no_grad()
    def after(self, later: BestRestart | None, failed: Sequence[nn.Module]) -> BestRestart:
        """With the metrics of all its epochs; as it was, where the round has led to nothing."""
        earlier = self.earlier
        if later is not None:
            history = {name: values + later.history[name] for name, values in earlier.history.items()}
            return later._replace(history=history, diverged=earlier.diverged or later.diverged)
        for tensor, kept in zip(self._state(), self._weights, strict=True):
            tensor.copy_(kept)
        earlier.module.eval()
        has_failed = any(module is earlier.module for module in failed)
        if has_failed:
            warn_not_finite()
        return earlier._replace(diverged=earlier.diverged or has_failed)


class _Stages:
    """Trainings one after the other, each of one model or of several as one; those that an earlier process has done
    are not done again."""

    def __init__(
        self,
        batches: Batches,
        train: Callable[[Trainable, Step, Batches, Round], TrainingResult],
        evaluate: Callable[[nn.Module], Evaluation],
        checkpoints: Checkpoints | None,
    ) -> None:
        self._batches, self._train, self._evaluate, self._checkpoints = batches, train, evaluate, checkpoints
        self._stage = 0
        self._have_learned = False
        self.is_over = False
        self.failed: list[nn.Module] = []

    def train(self, plan: Sequence[tuple[Trainable, Step]], each: Round, is_last: bool) -> list[BestRestart]:
        """What the models of a round have become; of those that failed, nothing."""
        results: list[BestRestart] = []
        failure: NotFiniteError | None = None
        for number, (model, step) in enumerate(plan):
            ends = is_last and number == len(plan) - 1
            try:
                trained = self._one(model, step, each)
                if (trained.interrupted or trained.stopped) and not len(trained.history) and self._have_learned:
                    # It has learned nothing, and others have, or it has in an earlier round.
                    self.is_over = True
                    break
                random = torch.get_rng_state()
                evaluations, was_spoilt = evaluate_finite(model, trained, self._evaluate)
            except NotFiniteError as error:
                # One start may fail where another does not.
                failure = error
                self.failed += model.modules
                self._finish({"failed": error.value}, each, ends)
                continue
            self._finish(_ended(model, trained, random), each, ends)
            results += [
                BestRestart(module, evaluations[r], trained.history.of_model(r), trained.diverged or was_spoilt)
                for r, module in enumerate(model.modules)
            ]
            self._have_learned = True
            # Where a callback has ended it, the other starts have their turn, and no further round begins.
            self.is_over |= trained.interrupted or trained.stopped or trained.ended
            if trained.interrupted or trained.stopped:
                break
        if failure is not None and not self._have_learned:
            raise failure
        return results

    def _one(self, model: Trainable, step: Step, each: Round) -> TrainingResult:
        """Train a model, unless an earlier process has done so."""
        checkpoints = self._checkpoints
        if checkpoints is not None and self._stage < len(checkpoints.finished):
            done = checkpoints.finished[self._stage]
            if done["max_epochs"] != each.epochs:
                raise InputError(
                    f"Starts that are trained one after the other cannot be prolonged, from {done['max_epochs']} to "
                    f"{each.epochs} epochs: name another folder for the checkpoints (a new run, pollux fit)."
                )
            return _as_it_ended(model, done)
        if checkpoints is not None and self._stage:
            # Those before it have ended, and nothing of them is under way.
            self._batches.forget()
        trained = self._train(model, step, self._batches, each)
        epochs = len(trained.history)
        if (
            checkpoints is not None
            and trained.stopped
            and (checkpoints.stop_immediately or not (epochs or self._have_learned))
        ):
            raise Stopped(each.before + epochs)
        return trained

    def _finish(self, done: dict[str, Any], each: Round, ends: bool) -> None:
        """Keep what a stage has led to, for those after it; the last one is in its own checkpoint."""
        if self._checkpoints is not None and self._stage == len(self._checkpoints.finished) and not ends:
            self._checkpoints.finished.append({**done, "max_epochs": each.epochs})
        self._stage += 1


def _ended(model: Trainable, trained: TrainingResult, random: Tensor) -> dict[str, Any]:
    """A stage for a checkpoint, with the random numbers that its evaluation began with."""
    return {
        "weights": model.state(),
        "history": trained.history.state(),
        "diverged": trained.diverged,
        "ended": trained.ended,
        "random": random,
    }


@torch.no_grad()
def _as_it_ended(model: Trainable, done: dict[str, Any]) -> TrainingResult:
    if "failed" in done:
        raise NotFiniteError(done["failed"])

    def restore() -> None:
        for tensor, kept in zip(model.state(), done["weights"], strict=True):
            tensor.copy_(kept)
        model.train(False)
        model.sync()

    restore()
    torch.set_rng_state(done["random"])
    history, ended = History.from_state(done["history"]), done.get("ended", False)
    return TrainingResult(history, restore, interrupted=False, diverged=done["diverged"], ended=ended)


def evaluate_finite(
    model: Trainable, trained: TrainingResult, evaluate: Callable[[nn.Module], Evaluation]
) -> tuple[list[Evaluation], bool]:
    """Evaluations of the modules trained, and whether the last step had spoilt all their weights: the last good ones
    are evaluated then."""
    evaluations = [evaluate(module) for module in model.modules]
    was_spoilt = not any(math.isfinite(evaluation.objective) for evaluation in evaluations)
    if was_spoilt:
        trained.restore()
        evaluations = [evaluate(module) for module in model.modules]
    if not any(math.isfinite(evaluation.objective) for evaluation in evaluations):
        raise NotFiniteError(evaluations[0].objective)
    return evaluations, was_spoilt


def _plan(
    modules: Sequence[nn.Module],
    n_clusters: int,
    batches: Batches,
    options: StepOptions,
    random_streams: RandomStreams,
) -> Iterator[tuple[Trainable, Step]]:
    """All modules as one model where possible, else one by one; without a tape where none is needed."""
    objective, optimiser, learning_rate, penalties, allow_closed_form, autocast, compiled = options
    ranks, generator = random_streams.ranks, random_streams.generator
    plain = allow_closed_form and not penalties and autocast is None and not compiled and ranks is None
    if plain and optimiser == "adam" and has_closed_form(modules[0], n_clusters):
        dense = DenseModels(modules, learning_rate)
        yield dense, ClosedFormStep(dense, objective, generator)
        return
    if len(modules) > 1 and not compiled:
        stacked = try_stack(modules, n_clusters, batches.example(_TRIED_ROWS).inputs, autocast)
        if stacked is not None:
            together = make_optimiser(optimiser, stacked.parameters(), learning_rate)
            if elementwise(together):
                yield (
                    stacked,
                    AutogradStep(stacked, objective, together, penalties, generator, ranks, random_streams.noise),
                )
                return
    for module in modules:
        single = SingleModel(module, n_clusters, autocast, compiled)
        alone = make_optimiser(optimiser, single.parameters(), learning_rate)
        yield single, AutogradStep(single, objective, alone, penalties, generator, ranks, random_streams.noise)


def _or_worst(value: float) -> float:
    return value if math.isfinite(value) else -math.inf
