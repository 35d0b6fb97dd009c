"""Training of several restarts, of which the best is kept: as one batched model if possible."""

from __future__ import annotations

import copy
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pollux.data.samples import Samples
from pollux.errors import InputError, option
from pollux.geometry import Precomputed
from pollux.objectives import Gemini
from pollux.spec import Spec, as_plain_data, digest_weights
from pollux.threads import DrawFrom
from pollux.training.batches import Batches
from pollux.training.checkpoints import Checkpoints, Stopped, as_checkpoints
from pollux.training.loop import History, Schedule, TrainingResult, train, warn_not_finite
from pollux.training.problem import Evaluation, Problem
from pollux.training.session import Session
from pollux.training.steps import AutogradStep, CompiledStep, NotFiniteError, Step, is_elementwise, make_optimiser
from pollux.training.trainable import DenseModels, SingleModel, Trainable, has_compiled_steps, try_stack

_TRIED_ROWS = 64
_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|not enough memory|bad_alloc", re.IGNORECASE)
# A model that fails raises a ValueError, whatever its own error was.
_MEMORY_ERRORS = (MemoryError, RuntimeError, ValueError)
# With max_epochs="auto": about this many steps, in at least this many epochs.
_AUTO_STEPS, _AUTO_EPOCHS = 200, 15
# Patience, in steps, of models that were pretrained on labels.
_PATIENT_STEPS = 80
# Restarts that continue after a trial: more than one, because the best is known late.
_GOING_ON = 2


class Round(NamedTuple):
    """A round of training: number of models, number of epochs, schedule, and epochs of earlier rounds."""

    models: int
    epochs: int
    schedule: str | Schedule = "constant"
    before: int = 0


class BestRestart(NamedTuple):
    """The best module, its evaluation, the metrics of its epochs, and whether its objective became NaN or infinite.

    ``choices`` are the clusters (n,) that each restart found, for samples in memory; ``batch_size`` is the maximum
    number of samples in a step.
    """

    module: nn.Module
    evaluation: Evaluation
    history: dict[str, list[float]]
    diverged: bool = False
    choices: tuple[Tensor, ...] = ()
    batch_size: int | None = None


def train_restarts(
    modules: Sequence[nn.Module], problem: Problem, spec: Spec, run: Session, samples: Samples
) -> BestRestart:
    """Train every module and keep the one with the highest objective on the samples.

    In the first round all are trained; the best of a round continue in the next. One that diverges in a later round is
    restored to its state before it. A fingerprint of the samples distinguishes checkpoints of different trainings.
    """
    count, modules = len(modules), list(dict.fromkeys(modules))
    if run.ranks is not None:
        run.ranks.agree(digest_weights(modules), "start from different weights or models")
        run.diverge_ranks()
    batches = problem.batches(spec.batch_size, spec.training.reshuffle_every, spec.n_transport_problems)
    rounds = _plan_rounds(spec, len(modules), batches)
    checkpoints = as_checkpoints(spec.training.checkpoint)
    identity = {} if checkpoints is None else _identity(spec, modules[0], problem, run, samples, rounds)
    with nullcontext() if checkpoints is None else checkpoints.open(identity, run.ranks):
        try:
            best = _Restarts(problem, batches, spec, run, checkpoints).run(modules, rounds)
            # A module that was trained once for several restarts counts as that many restarts that agree.
            choices = best.choices * (count // len(modules))
            return best._replace(choices=choices, batch_size=batches.batch_size)
        except _MEMORY_ERRORS as error:
            advice = explain_memory_error(error, modules[0], spec.n_clusters, batches, spec.objective)
            if advice is error:
                raise
            raise advice from None


def train_one_epoch(
    module: nn.Module, problem: Problem, spec: Spec, run: Session, earlier: dict[str, Any] | None
) -> tuple[BestRestart, dict[str, Any]]:
    """Train a copy of the module for one epoch, continuing with the optimiser and the generators of the last one."""
    model = SingleModel(copy.deepcopy(module), spec.n_clusters, spec.autocast, spec.training.compile)
    optimiser = make_optimiser(spec.training.optimiser, model.parameters(), spec.learning_rate)
    if earlier is not None:
        optimiser.load_state_dict(copy.deepcopy(earlier["optimiser"]))
        run.generator.set_state(earlier["generator"])
        run.default_generator.set_state(earlier["torch"])
    step = AutogradStep(model, spec.objective, optimiser, spec.penalties, run.generator)
    batches = problem.batches(spec.batch_size)
    result = train(
        model,
        step,
        batches,
        max_epochs=1,
        callbacks=spec.callbacks,
        generator=run.generator,
        default_generator=run.default_generator if spec.is_own else None,
    )
    random = {"generator": run.generator.get_state(), "torch": run.default_generator.get_state()}
    state = {"optimiser": optimiser.state_dict(), **random}
    (evaluation,), was_not_finite = _evaluate_finite(model, result, problem, spec, run)
    history, diverged = result.history.of_model(0), result.diverged or was_not_finite
    return BestRestart(model.modules[0], evaluation, history, diverged, batch_size=batches.batch_size), state


class _Restarts:
    """Trains restarts in rounds, as a sequence of stages; stages that an earlier process finished are loaded."""

    def __init__(
        self, problem: Problem, batches: Batches, spec: Spec, run: Session, checkpoints: Checkpoints | None
    ) -> None:
        self._problem, self._batches, self._spec, self._run = problem, batches, spec, run
        self._checkpoints = checkpoints
        self._stage = 0
        self._has_results = self._is_over = False
        self._failed: list[nn.Module] = []

    def run(self, modules: Sequence[nn.Module], rounds: Sequence[Round]) -> BestRestart:
        """Train all rounds, and return the best module."""
        best: list[BestRestart] = []
        choices: tuple[Tensor, ...] = ()
        for number, each in enumerate(rounds):
            finite = [restart for restart in best[: each.models] if math.isfinite(restart.evaluation.objective)]
            weights = [
                [tensor.detach().clone() for tensor in (*restart.module.parameters(), *restart.module.buffers())]
                for restart in finite
            ]
            results = self._train_round(
                [restart.module for restart in finite] or modules, each, is_last=number == len(rounds) - 1
            )
            if not number:
                choices = tuple(result.evaluation.choice for result in results if result.evaluation.choice is not None)
            else:
                # Modules are trained in place, so they identify restarts.
                later = {id(result.module): result for result in results}
                pairs = zip(finite, weights, strict=True)
                results = [self._joined(restart, kept, later.get(id(restart.module))) for restart, kept in pairs]
            # A restart whose objective is not finite ranks last.
            values = [result.evaluation.objective for result in results]
            ranking = [value if math.isfinite(value) else -math.inf for value in values]
            best = [results[i] for i in sorted(range(len(results)), key=ranking.__getitem__, reverse=True)]
            if self._is_over:
                break
        return best[0]._replace(choices=choices)

    @torch.no_grad()
    def _joined(self, earlier: BestRestart, weights: list[Tensor], later: BestRestart | None) -> BestRestart:
        """A restart after a later round, with the metrics of all its epochs; unchanged if that round failed."""
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
        """Train one round; models that failed have no result."""
        results: list[BestRestart] = []
        failure: NotFiniteError | None = None
        several = self._run.ranks is not None or (self._checkpoints is not None and self._checkpoints.begun_by != 1)
        plan = list(_plan_models(modules, self._batches, self._spec, self._run, several))
        for number, (model, step) in enumerate(plan):
            evaluations: list[Evaluation] = []
            try:
                of = f"restart {number + 1} of {len(plan)}" if len(plan) > 1 else ""
                result = self._train_stage(model, step, each, of)
                if (result.interrupted or result.stopped) and not len(result.history) and self._has_results:
                    # Interrupted before its first epoch, but there are results of others or of an earlier round.
                    self._is_over = True
                    break
                random = self._run.default_generator.get_state()
                evaluations, was_not_finite = _evaluate_finite(model, result, self._problem, self._spec, self._run)
                done = {} if self._checkpoints is None else _stage_state(model, result, random)
            except NotFiniteError as error:
                # One restart may fail while others do not.
                failure, done = error, {"failed": error.value}
                self._failed += model.modules
            finished = None if self._checkpoints is None else self._checkpoints.finished
            # Checkpoints of later stages hold the results of earlier ones; the last stage only has its own.
            is_final = is_last and number == len(plan) - 1
            if finished is not None and self._stage == len(finished) and not is_final:
                finished.append({**done, "max_epochs": each.epochs})
            self._stage += 1
            if not evaluations:
                continue
            results += [
                BestRestart(module, evaluations[r], result.history.of_model(r), result.diverged or was_not_finite)
                for r, module in enumerate(model.modules)
            ]
            self._has_results = True
            # If a callback ends one restart, the others are still trained, but no further round begins.
            self._is_over |= result.interrupted or result.stopped or result.ended_by_callback
            if result.interrupted or result.stopped:
                break
        if failure is not None and not self._has_results:
            raise failure
        return results

    def _train_stage(self, model: Trainable, step: Step, each: Round, of: str) -> TrainingResult:
        """Train a model, with ``of`` as its title, unless an earlier process has done so."""
        checkpoints, spec, run = self._checkpoints, self._spec, self._run
        if checkpoints is not None and self._stage < len(checkpoints.finished):
            done = checkpoints.finished[self._stage]
            if done["max_epochs"] != each.epochs:
                raise InputError(
                    f"Restarts that are trained one after the other cannot be prolonged, from {done['max_epochs']} to "
                    f"{each.epochs} epochs: name another folder for the checkpoints (a new run, pollux fit)."
                )
            return _load_stage(model, step, done, run.default_generator)
        if checkpoints is not None and self._stage:
            # A process that resumes at this stage has no caches from earlier stages.
            self._batches.forget()
        result = train(
            model,
            step,
            self._batches,
            max_epochs=each.epochs,
            tol=spec.training.tol,
            patience=_patience(spec, self._batches),
            callbacks=spec.callbacks,
            generator=run.generator,
            noise=run.noise,
            default_generator=run.default_generator if spec.is_own else None,
            ranks=run.ranks,
            checkpoints=checkpoints,
            schedule=each.schedule,
            before=each.before,
            title=f"training, {of}".rstrip(", "),
        )
        if checkpoints is not None and result.stopped:
            epochs = len(result.history)
            if checkpoints.stop_immediately or not (epochs or self._has_results):
                raise Stopped(each.before + epochs)
        return result


def _evaluate_finite(
    model: Trainable, result: TrainingResult, problem: Problem, spec: Spec, run: Session
) -> tuple[list[Evaluation], bool]:
    """Evaluate the trained modules; returns also whether the last step made the weights of all of them not finite.

    In that case the last good weights are restored and evaluated.
    """
    for restored in (False, True):
        with DrawFrom(run.default_generator) if spec.is_own else nullcontext():
            evaluations = [problem.evaluate(module, spec.n_clusters, spec.objective) for module in model.modules]
        if any(math.isfinite(evaluation.objective) for evaluation in evaluations):
            return evaluations, restored
        if not restored:
            result.restore()
    raise NotFiniteError(evaluations[0].objective)


def _plan_rounds(spec: Spec, restarts: int, batches: Batches) -> list[Round]:
    """All restarts for a trial, and the best of them for the remaining epochs; or all for all epochs."""
    epochs, trial = spec.max_epochs, spec.training.trial_epochs
    if epochs == "auto":
        least = int(trial) + 1 if isinstance(trial, Integral) else 2
        epochs = max(_AUTO_EPOCHS, math.ceil(_AUTO_STEPS / (batches.n_batches or 1)), least)
    epochs = int(epochs)
    if isinstance(trial, float):
        trial = math.ceil(trial * epochs) if epochs > 1 else None
    if trial is None or restarts <= _GOING_ON:
        return [Round(restarts, epochs, spec.training.schedule)]
    trial = int(trial)
    return [Round(restarts, trial), Round(_GOING_ON, epochs - trial, spec.training.schedule, trial)]


def _patience(spec: Spec, batches: Batches) -> int | None:
    """Patience in epochs: that of the parameters; if max_epochs is "auto" and models are pretrained on labels, that of
    a fixed number of steps."""
    patience, is_near = spec.training.patience, spec.init in ("kmeans", "graph") and not spec.penalties
    if patience is not None or spec.max_epochs != "auto" or not is_near or batches.n_batches is None:
        return patience
    return max(2, math.ceil(_PATIENT_STEPS / batches.n_batches))


def _plan_models(
    modules: Sequence[nn.Module], batches: Batches, spec: Spec, run: Session, several: bool
) -> Iterator[tuple[Trainable, Step]]:
    """Combine all modules into one model if possible, else yield them one by one; with compiled steps if available.

    With ``several`` processes, also if one continues a training of several, steps are not compiled.
    """
    objective, optimiser, learning_rate = spec.objective, spec.training.optimiser, spec.learning_rate
    autocast, compiled = spec.autocast, spec.training.compile
    # A custom network may have hooks that must run.
    is_plain = isinstance(spec.model, str) and not (spec.penalties or autocast or compiled or several)
    if is_plain and optimiser == "adam" and has_compiled_steps(modules[0], spec.n_clusters):
        dense = DenseModels(modules, learning_rate)
        yield dense, CompiledStep(dense, objective, run.generator)
        return
    further = (spec.penalties, run.generator, run.ranks, run.noise)
    if len(modules) > 1 and not compiled:
        stacked = try_stack(modules, spec.n_clusters, batches.example(_TRIED_ROWS).inputs, autocast)
        if stacked is not None:
            together = make_optimiser(optimiser, stacked.parameters(), learning_rate)
            if is_elementwise(together):
                yield stacked, AutogradStep(stacked, objective, together, *further)
                return
    for module in modules:
        single = SingleModel(module, spec.n_clusters, autocast, compiled)
        alone = make_optimiser(optimiser, single.parameters(), learning_rate)
        yield single, AutogradStep(single, objective, alone, *further)


class TooLargeError(MemoryError, ValueError):
    """There is not enough memory for a batch; the message says which batch would fit."""


def explain_memory_error(
    error: Exception, module: nn.Module, n_clusters: int, batches: Batches, objective: Gemini
) -> Exception:
    """Return the error itself; or, if memory did not suffice for a batch, one that says which batch size would fit."""
    if not is_lack_of_memory(error):
        return error
    # Release the memory of the failed step before smaller batches are tried.
    error.__traceback__ = error.__cause__ = error.__context__ = None
    cause = str(error).splitlines()[0] if str(error) else type(error).__name__
    lack = f"There is not enough memory for batches of {batches.batch_size:,} rows"
    size = batches.batch_size // 2
    while size >= max(2, n_clusters):
        try:
            batch, model = batches.example(size), SingleModel(module, n_clusters)
            if len(batch.inputs) < size:
                break
            torch.autograd.grad(objective(model(batch.inputs), batch.affinity), model.parameters(), allow_unused=True)
            # Since sizes are halved, this usually leaves memory for the optimiser and the system.
            return TooLargeError(f"{lack}; batches of {size:,} would fit: {option('batch_size', size)}. ({cause})")
        except _MEMORY_ERRORS as other:
            if not is_lack_of_memory(other):
                break
        size //= 2
    return TooLargeError(f"{lack}, nor for smaller ones: use a smaller model, or free memory. ({cause})")


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory is exhausted; torch has no exception type for that on a CPU."""
    return isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)) is not None


def _identity(
    spec: Spec, module: nn.Module, problem: Problem, run: Session, samples: Samples, rounds: list[Round]
) -> dict[str, Any]:
    """All that distinguishes this training from others, as plain data."""
    layers = repr([(name, *value.shape, str(value.dtype)) for name, value in module.state_dict().items()])
    given = getattr(problem, "geometry", None)
    return {
        **spec.fingerprint(),
        "layers": hashlib.sha256(layers.encode()).hexdigest()[:16],
        "data": samples.fingerprint(given.values if isinstance(given, Precomputed) else None),
        # As a number of epochs, also if it was given as a share.
        "trial_epochs": as_plain_data(rounds[0].epochs) if len(rounds) > 1 else None,
        "processes": 1 if run.ranks is None else run.ranks.size,
    }


def _stage_state(model: Trainable, result: TrainingResult, random: Tensor) -> dict[str, Any]:
    """The result of a stage for a checkpoint, with the generator state at the start of its evaluation."""
    return {
        "weights": model.state(),
        "history": result.history.state(),
        "diverged": result.diverged,
        "ended_by_callback": result.ended_by_callback,
        "random": random,
    }


@torch.no_grad()
def _load_stage(model: Trainable, step: Step, done: dict[str, Any], random: torch.Generator) -> TrainingResult:
    if "failed" in done:
        raise NotFiniteError(done["failed"])

    def restore() -> None:
        for tensor, kept in zip(model.state(), done["weights"], strict=True):
            tensor.copy_(kept)
        model.train(False)
        model.sync()

    restore()
    random.set_state(done["random"])
    history = History(step.new_metrics().names)
    history.load_state(done["history"])
    return TrainingResult(history, restore, diverged=done["diverged"], ended_by_callback=done["ended_by_callback"])
