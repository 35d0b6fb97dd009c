"""From a problem to its best model: restarts begin somewhere, are trained, and the best is kept."""

from __future__ import annotations

import copy
import functools
import hashlib
import math
from contextlib import nullcontext
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin
from torch import Tensor, nn

from pollux.data.samples import Samples
from pollux.geometry import Precomputed
from pollux.geometry.affinity import Features
from pollux.models import FreeTable
from pollux.ranks import is_first
from pollux.spec import Spec, as_plain_data, digest_weights
from pollux.training.batches import Batches
from pollux.training.callbacks import ProgressBar
from pollux.training.checkpoints import Checkpoints
from pollux.training.loop import TrainingResult, train
from pollux.training.memory import within_memory
from pollux.training.optimisers import make_optimiser
from pollux.training.problem import MemoryProblem, Problem, StreamProblem, resolve_batch_size
from pollux.training.restarts import BestRestart, Round, StepOptions, evaluate_finite, train_restarts
from pollux.training.session import Session
from pollux.training.starting import initial_labels
from pollux.training.steps import AutogradStep, Step, Trainable
from pollux.training.trainable import SingleModel
from pollux.training.warm import learn_labels

# About so many steps are taken where the number of epochs is left to us, in at least so many epochs.
_AUTO_STEPS, _AUTO_EPOCHS = 500, 15
# The part of the epochs that all restarts have, where that is left to us, and how many go on after it: which is the
# best is seen late.
_AUTO_TRIAL, _GOING_ON = 0.25, 2


def start(spec: Spec, problem: MemoryProblem | StreamProblem, run: Session, count: int) -> list[nn.Module]:
    """So many modules at the place where training starts: at random, or near the clusters that ``init`` names."""
    if isinstance(problem, StreamProblem):
        return spec.build(tuple(problem.source.shape), problem.dtype, count)
    rows = problem.rows
    modules = spec.build((problem.n,) if spec.is_free else rows.shape, rows.dtype, count)
    if spec.is_free and spec.init in ("auto", "kmeans++"):
        random = np.random.RandomState(run.seed)
        for module in modules:
            _lean(module, _nearest_seeds(rows.flat(), spec.n_clusters, random))
    checkpoints = as_checkpoints(spec.training.checkpoint)
    # A single restart that is resumed gets the weights of its checkpoint. Of several some may not have begun, and of
    # several processes some may not see the folder.
    is_resumed = checkpoints is not None and count == 1 and run.ranks is None and checkpoints.exist()
    if spec.init in ("kmeans", "graph") and not is_resumed:
        _start_at_labels(modules, spec, problem, run)
    return modules


def _start_at_labels(modules: list[nn.Module], spec: Spec, problem: MemoryProblem, run: Session) -> None:
    weight = problem.sample_weight
    labels = initial_labels(
        spec.init, problem.rows, problem.geometry, problem.block, spec.n_clusters, len(modules), run.seed, weight
    )
    if spec.is_free:
        for module, own in zip(modules, labels, strict=True):
            _lean(module, own)
    else:
        learn_labels(
            modules,
            spec.n_clusters,
            labels,
            problem.inputs,
            resolve_batch_size(spec.batch_size, problem.n),
            spec.learning_rate,
            weight,
            torch.Generator().manual_seed(run.seed),
        )
    if run.ranks is not None:
        # Unlike machines may find other labels, or differ in the last digits of what they learn from them.
        for tensor in (tensor for module in modules for tensor in module.state_dict().values()):
            run.ranks.broadcast(tensor)


def _nearest_seeds(X: Any, n_clusters: int, random: np.random.RandomState) -> Tensor:
    """The nearest of k-means++ seeds for each of the samples X (n, d)."""
    samples = X.astype(np.float64)
    # Of unit size, their squares can be summed whatever the units of X.
    samples = samples / (abs(samples).max() or 1.0)
    seeds, _ = kmeans_plusplus(samples, min(n_clusters, samples.shape[0]), random_state=random)
    return torch.from_numpy(np.asarray(pairwise_distances_argmin(samples, seeds), dtype=np.int64))


@torch.no_grad()
def _lean(table: nn.Module, labels: Tensor) -> None:
    """Lean each row of a free table towards its label."""
    assert isinstance(table, FreeTable)
    table.logits.add_(torch.nn.functional.one_hot(labels, table.logits.shape[1]).to(table.logits.device))


def fit_best(modules: list[nn.Module], problem: Problem, spec: Spec, run: Session, samples: Samples) -> BestRestart:
    """Train the modules and keep the best; a fingerprint of the samples tells checkpoints from those of others."""
    if run.ranks is not None:
        run.ranks.agree(digest_weights(modules), "start from different weights or models")
        run.diverge_ranks()
    options = StepOptions(
        spec.objective,
        spec.training.optimiser,
        spec.learning_rate,
        spec.penalties,
        # A network of the user's may carry hooks that must run.
        allow_closed_form=isinstance(spec.model, str),
        autocast=spec.autocast,
        compiled=spec.training.compile,
    )
    checkpoints = as_checkpoints(spec.training.checkpoint)
    batches = problem.batches(spec.batch_size, spec.training.reshuffle_every, spec.n_transport_problems)
    rounds = _plan_rounds(spec, len(modules), batches)
    identity = {} if checkpoints is None else _identity(spec, modules[0], problem, run, samples, rounds)
    with (
        nullcontext() if checkpoints is None else checkpoints.of(identity, run.ranks),
        within_memory(modules[0], spec.n_clusters, batches, spec.objective),
    ):
        return train_restarts(
            modules,
            spec.n_clusters,
            batches,
            options,
            functools.partial(_train, spec=spec, run=run, checkpoints=checkpoints),
            lambda module: problem.evaluate(module, spec.n_clusters, spec.objective),
            run.streams,
            rounds,
            checkpoints,
        )


def _plan_rounds(spec: Spec, restarts: int, batches: Batches) -> list[Round]:
    """All restarts for some epochs, and the best of them for the rest; or all to the end."""
    epochs, trial = spec.max_epochs, spec.training.trial_epochs
    if epochs == "auto":
        least = int(trial) + 1 if isinstance(trial, Integral) else 2
        epochs = max(_AUTO_EPOCHS, math.ceil(_AUTO_STEPS / (batches.n_batches or 1)), least)
    epochs = int(epochs)
    if trial == "auto":
        trial = math.ceil(_AUTO_TRIAL * epochs) if epochs > 1 else None
    if trial is None or restarts <= _GOING_ON:
        return [Round(restarts, epochs, spec.training.schedule)]
    trial = int(trial)
    return [Round(restarts, trial), Round(_GOING_ON, epochs - trial, spec.training.schedule, trial)]


def _train(
    model: Trainable,
    step: Step,
    batches: Batches,
    each: Round,
    *,
    spec: Spec,
    run: Session,
    checkpoints: Checkpoints | None = None,
) -> TrainingResult:
    """The epochs of one round of one model."""
    return train(
        model,
        step,
        batches,
        max_epochs=each.epochs,
        tol=spec.training.tol,
        patience=spec.training.patience,
        callbacks=(*([ProgressBar()] if spec.verbose and is_first(run.ranks) else []), *spec.callbacks),
        generator=run.streams.generator,
        noise=run.streams.noise,
        ranks=run.ranks,
        checkpoints=checkpoints,
        schedule=each.schedule,
        before=each.before,
    )


def fit_one_epoch(
    module: nn.Module, problem: Problem, spec: Spec, run: Session, earlier: dict[str, Any] | None
) -> tuple[BestRestart, dict[str, Any]]:
    """Train a copy of the module for one epoch, with the optimiser and random numbers where the last one left them."""
    model = SingleModel(copy.deepcopy(module), spec.n_clusters, spec.autocast, spec.training.compile)
    generator = run.streams.generator
    assert generator is not None
    optimiser = make_optimiser(spec.training.optimiser, model.parameters(), spec.learning_rate)
    if earlier is not None:
        optimiser.load_state_dict(copy.deepcopy(earlier["optimiser"]))
        generator.set_state(earlier["generator"])
        torch.set_rng_state(earlier["torch"])
    step = AutogradStep(model, spec.objective, optimiser, spec.penalties, generator)
    result = _train(model, step, problem.batches(spec.batch_size), Round(1, 1), spec=spec, run=run)
    state = {
        "optimiser": optimiser.state_dict(),
        "generator": generator.get_state(),
        "torch": torch.get_rng_state(),
    }
    evaluate = functools.partial(problem.evaluate, n_clusters=spec.n_clusters, objective=spec.objective)
    (evaluation,), was_restored = evaluate_finite(model, result, evaluate)
    diverged = result.diverged or was_restored
    return BestRestart(model.modules[0], evaluation, result.history.of_model(0), diverged), state


def as_checkpoints(checkpoint: Any) -> Checkpoints | None:
    """The checkpoints of a folder, or as they are given."""
    return Checkpoints(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint


def _identity(
    spec: Spec, module: nn.Module, problem: Problem, run: Session, samples: Samples, rounds: list[Round]
) -> dict[str, Any]:
    """What tells this training from others, as plain data."""
    layers = repr([(name, *value.shape, str(value.dtype)) for name, value in module.state_dict().items()])
    given = getattr(problem, "geometry", None)
    affinity = given.affinity if isinstance(given, Precomputed) else None
    return {
        **spec.fingerprint(),
        "layers": hashlib.sha256(layers.encode()).hexdigest()[:16],
        "data": samples.fingerprint(affinity.values if isinstance(affinity, Features) else affinity),
        # A share of all epochs as the number that it is.
        "trial_epochs": as_plain_data(rounds[0].epochs) if len(rounds) > 1 else None,
        "processes": 1 if run.ranks is None else run.ranks.size,
    }
