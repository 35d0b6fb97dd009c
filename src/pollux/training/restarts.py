"""Several restarts, of which the best is kept: trained together as one batched model where that can be done."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pollux.errors import InputError
from pollux.objectives.gemini import Gemini
from pollux.objectives.penalties import Penalty
from pollux.ranks import Ranks
from pollux.training.batches import Batches
from pollux.training.callbacks import Callback
from pollux.training.checkpoints import Checkpoints, Stopped
from pollux.training.evaluation import Evaluable, Evaluation
from pollux.training.loop import History, NotFiniteError, TrainingResult, train, warn_not_finite
from pollux.training.memory_advice import MEMORY_ERRORS, explain_memory_error
from pollux.training.steps import AutogradStep, ClosedFormStep, Factory, Step, is_elementwise, make_optimiser
from pollux.training.trainable import DenseModels, SingleModel, Trainable, has_closed_form, try_stack

_TRIED_ROWS = 64


class TrainingOptions(NamedTuple):
    """How models are trained.

    Attributes
    ----------
    objective : Gemini
        What rises.
    optimiser, learning_rate, penalties
        See :class:`~pollux.training.AutogradStep`.
    allow_closed_form : bool
        Whether the modules are the library's own: a user's may carry hooks that must run.
    autocast, compiled
        See :class:`~pollux.training.SingleModel`.
    tol, patience, callbacks
        See :func:`~pollux.training.train`.
    """

    objective: Gemini
    optimiser: str | Factory = "adam"
    learning_rate: float = 1e-3
    penalties: Sequence[tuple[Penalty, float]] = ()
    allow_closed_form: bool = False
    autocast: torch.dtype | None = None
    compiled: bool = False
    tol: float = 1e-4
    patience: int | None = None
    callbacks: Sequence[Callback] = ()


class RandomStreams(NamedTuple):
    """Where random numbers come from, and the processes that must draw the same ones.

    ``generator`` is the same in all processes; ``noise``, where there are several, is each one's own.
    """

    generator: torch.Generator | None = None
    noise: torch.Generator | None = None
    ranks: Ranks | None = None


class Round(NamedTuple):
    """How many of the models so far are trained, how long, by which schedule, and after how many epochs."""

    models: int
    epochs: int
    schedule: str = "constant"
    before: int = 0


class BestRestart(NamedTuple):
    """The best module, its evaluation, the metrics of its epochs, and whether its objective was no longer finite.

    ``choices`` are the clusters (n,) that each restart has found, of samples in memory.
    """

    module: nn.Module
    evaluation: Evaluation
    history: dict[str, list[float]]
    diverged: bool = False
    choices: tuple[Tensor, ...] = ()


def train_restarts(
    modules: Sequence[nn.Module],
    n_clusters: int,
    problem: Evaluable,
    batches: Batches,
    options: TrainingOptions,
    streams: RandomStreams,
    rounds: Sequence[Round],
    checkpoints: Checkpoints | None = None,
) -> BestRestart:
    """Train every module and keep the one with the highest objective on the samples.

    In the first round all are trained; the best of a round go on to the next. One that diverges in a later round is
    kept as it was before it.
    """
    restarts = _Restarts(n_clusters, problem, batches, options, streams, checkpoints)
    try:
        return restarts.run(modules, rounds)
    except MEMORY_ERRORS as error:
        advice = explain_memory_error(error, modules[0], n_clusters, batches, options.objective)
        if advice is error:
            raise
        raise advice from None


class _Restarts:
    """Rounds of trainings one after the other, each a stage; those that an earlier process has finished are loaded."""

    def __init__(
        self,
        n_clusters: int,
        problem: Evaluable,
        batches: Batches,
        options: TrainingOptions,
        streams: RandomStreams,
        checkpoints: Checkpoints | None,
    ) -> None:
        self._n_clusters, self._problem, self._batches, self._options = n_clusters, problem, batches, options
        self._streams, self._checkpoints = streams, checkpoints
        self._stage = 0
        self._have_learned = self._is_over = False
        self._failed: list[nn.Module] = []

    def run(self, modules: Sequence[nn.Module], rounds: Sequence[Round]) -> BestRestart:
        """The best module after all rounds."""
        best: list[BestRestart] = []
        choices: tuple[Tensor, ...] = ()
        for number, each in enumerate(rounds):
            finite = [restart for restart in best[: each.models] if math.isfinite(restart.evaluation.objective)]
            weights = [_copy_weights(restart.module) for restart in finite]
            results = self._train_round(
                [restart.module for restart in finite] or modules, each, is_last=number == len(rounds) - 1
            )
            if not number:
                choices = tuple(result.evaluation.choice for result in results if result.evaluation.choice is not None)
            else:
                # A module is trained in place: it tells which restart a result is of.
                later = {id(result.module): result for result in results}
                pairs = zip(finite, weights, strict=True)
                results = [self._joined(restart, kept, later.get(id(restart.module))) for restart, kept in pairs]
            best = sorted(results, key=_objective, reverse=True)
            if self._is_over:
                break
        return best[0]._replace(choices=choices)

    @torch.no_grad()
    def _joined(self, earlier: BestRestart, weights: list[Tensor], later: BestRestart | None) -> BestRestart:
        """A restart after a later round, with the metrics of all its epochs; as it was, where that round has failed."""
        if later is not None:
            history = {name: values + later.history[name] for name, values in earlier.history.items()}
            return later._replace(history=history, diverged=earlier.diverged or later.diverged)
        for tensor, kept in zip((*earlier.module.parameters(), *earlier.module.buffers()), weights, strict=True):
            tensor.copy_(kept)
        earlier.module.eval()
        has_failed = any(module is earlier.module for module in self._failed)
        if has_failed:
            warn_not_finite()
        return earlier._replace(diverged=earlier.diverged or has_failed)

    def _train_round(self, modules: Sequence[nn.Module], each: Round, is_last: bool) -> list[BestRestart]:
        """Results of a round; of models that failed, none."""
        results: list[BestRestart] = []
        failure: NotFiniteError | None = None
        plan = list(_plan(modules, self._n_clusters, self._batches, self._options, self._streams))
        for number, (model, step) in enumerate(plan):
            # The last stage is in its own checkpoint.
            is_final = is_last and number == len(plan) - 1
            try:
                result = self._train_stage(model, step, each)
                if (result.interrupted or result.stopped) and not len(result.history) and self._have_learned:
                    # It has learned nothing, and others have, or it has in an earlier round.
                    self._is_over = True
                    break
                random = torch.get_rng_state()
                evaluations, was_spoilt = evaluate_finite(
                    model, result, self._problem, self._n_clusters, self._options.objective
                )
            except NotFiniteError as error:
                # One restart may fail where another does not.
                failure = error
                self._failed += model.modules
                self._finish({"failed": error.value}, each, is_final)
                continue
            self._finish({} if self._checkpoints is None else _stage_state(model, result, random), each, is_final)
            results += [
                BestRestart(module, evaluations[r], result.history.of_model(r), result.diverged or was_spoilt)
                for r, module in enumerate(model.modules)
            ]
            self._have_learned = True
            # Where a callback has ended one, the other restarts are trained, and no further round begins.
            self._is_over |= result.interrupted or result.stopped or result.ended_by_callback
            if result.interrupted or result.stopped:
                break
        if failure is not None and not self._have_learned:
            raise failure
        return results

    def _train_stage(self, model: Trainable, step: Step, each: Round) -> TrainingResult:
        """Train a model, unless an earlier process has done so."""
        checkpoints, options = self._checkpoints, self._options
        if checkpoints is not None and self._stage < len(checkpoints.finished):
            done = checkpoints.finished[self._stage]
            if done["max_epochs"] != each.epochs:
                raise InputError(
                    f"Restarts that are trained one after the other cannot be prolonged, from {done['max_epochs']} to "
                    f"{each.epochs} epochs: name another folder for the checkpoints (a new run, pollux fit)."
                )
            return _load_stage(model, step, done)
        if checkpoints is not None and self._stage:
            # A process that resumes here knows nothing of the batches of earlier stages.
            self._batches.forget()
        result = train(
            model,
            step,
            self._batches,
            max_epochs=each.epochs,
            tol=options.tol,
            patience=options.patience,
            callbacks=options.callbacks,
            generator=self._streams.generator,
            noise=self._streams.noise,
            ranks=self._streams.ranks,
            checkpoints=checkpoints,
            schedule=each.schedule,
            before=each.before,
        )
        has_learned = bool(len(result.history)) or self._have_learned
        if checkpoints is not None and result.stopped and (checkpoints.stop_immediately or not has_learned):
            raise Stopped(each.before + len(result.history))
        return result

    def _finish(self, done: dict[str, Any], each: Round, is_final: bool) -> None:
        """Keep the result of a stage for the checkpoints of later ones."""
        if self._checkpoints is not None and self._stage == len(self._checkpoints.finished) and not is_final:
            self._checkpoints.finished.append({**done, "max_epochs": each.epochs})
        self._stage += 1


def evaluate_finite(
    model: Trainable, result: TrainingResult, problem: Evaluable, n_clusters: int, objective: Gemini
) -> tuple[list[Evaluation], bool]:
    """Evaluations of the trained modules, and whether the last step had spoilt the weights of all of them.

    In that case the last good weights are restored and evaluated.
    """
    evaluations = [problem.evaluate(module, n_clusters, objective) for module in model.modules]
    was_spoilt = not any(math.isfinite(evaluation.objective) for evaluation in evaluations)
    if was_spoilt:
        result.restore()
        evaluations = [problem.evaluate(module, n_clusters, objective) for module in model.modules]
    if not any(math.isfinite(evaluation.objective) for evaluation in evaluations):
        raise NotFiniteError(evaluations[0].objective)
    return evaluations, was_spoilt


def _plan(
    modules: Sequence[nn.Module], n_clusters: int, batches: Batches, options: TrainingOptions, streams: RandomStreams
) -> Iterator[tuple[Trainable, Step]]:
    """All modules as one model where possible, else one by one; in closed form where there is one."""
    objective, optimiser, learning_rate, penalties, allow_closed_form, autocast, compiled, *_ = options
    generator, noise, ranks = streams
    is_plain = allow_closed_form and not penalties and autocast is None and not compiled and ranks is None
    if is_plain and optimiser == "adam" and has_closed_form(modules[0], n_clusters):
        dense = DenseModels(modules, learning_rate)
        yield dense, ClosedFormStep(dense, objective, generator)
        return
    if len(modules) > 1 and not compiled:
        stacked = try_stack(modules, n_clusters, batches.example(_TRIED_ROWS).inputs, autocast)
        if stacked is not None:
            together = make_optimiser(optimiser, stacked.parameters(), learning_rate)
            if is_elementwise(together):
                yield stacked, AutogradStep(stacked, objective, together, penalties, generator, ranks, noise)
                return
    for module in modules:
        single = SingleModel(module, n_clusters, autocast, compiled)
        alone = make_optimiser(optimiser, single.parameters(), learning_rate)
        yield single, AutogradStep(single, objective, alone, penalties, generator, ranks, noise)


def _objective(restart: BestRestart) -> float:
    """The objective to compare by; one that is not finite is the worst."""
    value = restart.evaluation.objective
    return value if math.isfinite(value) else -math.inf


def _copy_weights(module: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in (*module.parameters(), *module.buffers())]


def _stage_state(model: Trainable, result: TrainingResult, random: Tensor) -> dict[str, Any]:
    """A finished stage for a checkpoint, with the random numbers that its evaluation began with."""
    return {
        "weights": model.state(),
        "history": result.history.state(),
        "diverged": result.diverged,
        "ended_by_callback": result.ended_by_callback,
        "random": random,
    }


@torch.no_grad()
def _load_stage(model: Trainable, step: Step, done: dict[str, Any]) -> TrainingResult:
    if "failed" in done:
        raise NotFiniteError(done["failed"])

    def restore() -> None:
        for tensor, kept in zip(model.state(), done["weights"], strict=True):
            tensor.copy_(kept)
        model.train(False)
        model.sync()

    restore()
    torch.set_rng_state(done["random"])
    history = History(step.metric_names)
    history.load_state(done["history"])
    return TrainingResult(history, restore, diverged=done["diverged"], ended_by_callback=done["ended_by_callback"])
