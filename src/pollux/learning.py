"""How an estimator's parameters become a training: modules, recipe, restarts, checkpoints."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pollux.data.rows import Rows
from pollux.data.scaling import FittedScaling
from pollux.fitting import Problem, RowProblem, apart, batch_rows, lean, start_at_seeds, transport_problems
from pollux.geometry import Geometry
from pollux.models import FreeTable, build
from pollux.objectives import Gemini
from pollux.parameters import resolve_callbacks, resolve_objective, resolve_penalties
from pollux.ranks import Ranks, is_first
from pollux.training import (
    AutogradStep,
    Batches,
    BestRestart,
    Checkpoints,
    ProgressBar,
    RandomStreams,
    Round,
    SingleModel,
    TrainingOptions,
    TrainingResult,
    initial_labels,
    learn_labels,
    make_optimiser,
    train,
    train_restarts,
)

# What decides on the numbers of a training, beside its data.
_DECISIVE = (
    *("n_clusters", "model", "hidden", "activation", "objective", "geometry", "init", "batch_size"),
    *("reshuffle_every", "optimiser", "learning_rate", "n_init", "penalties", "dtype", "random_state"),
    *("norm", "scaling", "missing", "n_components", "schedule"),
)
# About so many steps are taken where the number of epochs is left to us, in at least so many epochs.
_AUTO_STEPS, _AUTO_EPOCHS = 500, 15
# The part of the epochs that all starts have, where that is left to us, and how many go on after it: which is the best
# is seen late.
_AUTO_TRIAL, _GOING_ON = 0.25, 2


class Learning:
    """A training as the parameters of an estimator say."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def __getitem__(self, name: str) -> Any:
        return getattr(self._estimator, name)

    @property
    def objective(self) -> Gemini:
        return resolve_objective(self["objective"])

    @property
    def is_free(self) -> bool:
        return isinstance(self["model"], str) and self["model"] == "free"

    @property
    def model_options(self) -> dict[str, Any]:
        return {name: self[name] for name in ("hidden", "activation", "norm")} if self["model"] == "mlp" else {}

    def modules(self, shape: tuple[int, ...], dtype: torch.dtype, count: int) -> list[nn.Module]:
        """Modules that start at random, for samples of a shape."""
        modules = build(self["model"], shape, self["n_clusters"], count, **self.model_options)
        return [module.to(self["device"], dtype) for module in modules]

    def scaling(self, X: Any, sample_weight: Tensor | None = None) -> FittedScaling | None:
        """What is done to rows such as those of X before a model sees them, where something is."""
        if self["scaling"] == "none" and self["n_components"] is None and self["missing"] == "error":
            return None
        return FittedScaling.fit(X, self["scaling"], self["n_components"], sample_weight)

    @property
    def uses_spacing(self) -> bool:
        return any(getattr(penalty, "uses_spacing", False) for penalty, _ in resolve_penalties(self["penalties"]))

    def tables(self, rows: Rows, dtype: torch.dtype, seed: int, count: int) -> list[nn.Module]:
        """Free tables for samples."""
        modules = self.modules((len(rows),), dtype, count)
        random = np.random.RandomState(seed)
        for module in modules:
            if isinstance(module, FreeTable) and self["init"] in ("auto", "kmeans++"):
                start_at_seeds(module, rows.flat(), random)
        return modules

    def start(
        self, modules: list[nn.Module], rows: Rows, problem: RowProblem, geometry: Geometry | None, seed: int
    ) -> None:
        """Bring modules near the clusters that they are to start at, where ``init`` names some."""
        if self["init"] not in ("kmeans", "graph"):
            return
        block, weight = problem.block, problem.sample_weight
        labels = initial_labels(self["init"], rows, geometry, block, self["n_clusters"], len(modules), seed, weight)
        if self.is_free:
            for module, own in zip(modules, labels, strict=True):
                assert isinstance(module, FreeTable)
                lean(module, own)
        else:
            learn_labels(
                modules,
                self["n_clusters"],
                labels,
                problem.inputs,
                batch_rows(self["batch_size"], problem.n),
                self["learning_rate"],
                problem.sample_weight,
                torch.Generator().manual_seed(seed),
                show_progress=self["verbose"] and is_first(problem.ranks),
            )
        if problem.ranks is not None:
            # Unlike machines may find other labels, or differ in the last digits of what they learn from them.
            for tensor in (tensor for module in modules for tensor in module.state_dict().values()):
                problem.ranks.broadcast(tensor)

    def is_taken_up(self, ranks: Ranks | None) -> bool:
        """Whether fit will put the weights of a checkpoint in the place of those that it starts with.

        Of several starts some may not have begun, and of several processes some may not see the folder.
        """
        checkpoints = as_checkpoints(self["checkpoint"])
        return checkpoints is not None and self["n_init"] == 1 and ranks is None and checkpoints.exist()

    @property
    def autocast(self) -> torch.dtype | None:
        return torch.bfloat16 if self["dtype"] == "bfloat16" else None

    def fit(
        self, modules: list[nn.Module], problem: Problem, random_streams: RandomStreams, fingerprint: Callable[[], str]
    ) -> BestRestart:
        """Train the modules and keep the best; the fingerprint of the data tells checkpoints from those of others."""
        n_clusters, objective = self["n_clusters"], self.objective
        if random_streams.ranks is not None:
            random_streams.ranks.agree(_digest(modules), "start from different weights or models")
            apart(random_streams.ranks, self["device"])
        checkpoints = as_checkpoints(self["checkpoint"])
        problems = transport_problems(objective, n_clusters, self["n_init"])
        batches = problem.batches(self["batch_size"], self["reshuffle_every"], problems)
        rounds = self._rounds(len(modules), batches)
        identity = {} if checkpoints is None else self._identity(modules[0], random_streams, fingerprint(), rounds)
        options = self._options(random_streams)
        with nullcontext() if checkpoints is None else checkpoints.open(identity, random_streams.ranks):
            return train_restarts(modules, n_clusters, problem, batches, options, random_streams, rounds, checkpoints)

    def _options(self, random_streams: RandomStreams) -> TrainingOptions:
        return TrainingOptions(
            self.objective,
            self["optimiser"],
            self["learning_rate"],
            resolve_penalties(self["penalties"]),
            # A network of the user's may carry hooks that must run.
            allow_closed_form=isinstance(self["model"], str),
            autocast=self.autocast,
            compiled=self["compile"],
            tol=self["tol"],
            patience=self["patience"],
            callbacks=(
                *([ProgressBar()] if self["verbose"] and is_first(random_streams.ranks) else []),
                *resolve_callbacks(self["callbacks"]),
            ),
        )

    def _rounds(self, starts: int, batches: Batches) -> list[Round]:
        """All starts for some epochs, and the best of them for the rest; or all to the end."""
        epochs, trial = self["max_epochs"], self["trial_epochs"]
        if epochs == "auto":
            least = int(trial) + 1 if isinstance(trial, Integral) else 2
            epochs = max(_AUTO_EPOCHS, math.ceil(_AUTO_STEPS / (batches.n_batches or 1)), least)
        if trial == "auto":
            trial = math.ceil(_AUTO_TRIAL * epochs) if epochs > 1 else None
        epochs = int(epochs)
        if trial is None or starts <= _GOING_ON:
            return [Round(starts, epochs, self["schedule"])]
        trial = int(trial)
        return [Round(starts, trial), Round(_GOING_ON, epochs - trial, self["schedule"], trial)]

    def one_epoch(
        self, model: SingleModel, problem: Problem, random_streams: RandomStreams, resume: dict[str, Any] | None
    ) -> tuple[TrainingResult, dict[str, Any]]:
        """An epoch that takes up the optimiser and the random numbers where the last one left them."""
        generator = random_streams.generator
        assert generator is not None
        optimiser = make_optimiser(self["optimiser"], model.parameters(), self["learning_rate"])
        if resume is not None:
            optimiser.load_state_dict(copy.deepcopy(resume["optimiser"]))
            generator.set_state(resume["generator"])
            torch.set_rng_state(resume["torch"])
        step = AutogradStep(model, self.objective, optimiser, resolve_penalties(self["penalties"]), generator)
        trained = train(
            model,
            step,
            problem.batches(self["batch_size"]),
            max_epochs=1,
            callbacks=self._options(random_streams).callbacks,
            generator=generator,
        )
        return trained, {
            "optimiser": optimiser.state_dict(),
            "generator": generator.get_state(),
            "torch": torch.get_rng_state(),
        }

    def _identity(
        self, module: nn.Module, random_streams: RandomStreams, data: str, rounds: list[Round]
    ) -> dict[str, Any]:
        """What tells this training from others, as plain data."""
        told = {name: in_words(self[name]) for name in _DECISIVE}
        layers = repr([(name, *value.shape, str(value.dtype)) for name, value in module.state_dict().items()])
        return {
            **told,
            "layers": hashlib.sha256(layers.encode()).hexdigest()[:16],
            "data": data,
            # A longer training would have gone at another pace from the beginning.
            "epochs": in_words(self["max_epochs"]) if self["schedule"] != "constant" else None,
            # A share of all epochs as the number that it is.
            "trial_epochs": rounds[0].epochs if len(rounds) > 1 else None,
            "processes": 1 if random_streams.ranks is None else random_streams.ranks.size,
        }


def _digest(modules: list[nn.Module]) -> str:
    digest = hashlib.sha256()
    for module in modules:
        for name, tensor in module.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def as_checkpoints(checkpoint: Any) -> Checkpoints | None:
    """The checkpoints of a folder, or as they are given."""
    return Checkpoints(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint


def in_words(value: Any) -> Any:
    """A parameter as plain data: two trainings that could differ in it have different ones."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(in_words(key)): in_words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [in_words(item) for item in value]
    if isinstance(value, Gemini):
        return [repr(value), in_words(value.divergence)]
    if isinstance(value, functools.partial):
        return [in_words(value.func), in_words(value.args), in_words(value.keywords)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: in_words(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return [type(value).__qualname__, parts]
    # Of functions and networks the name must do: what they hold cannot be compared.
    return getattr(value, "__qualname__", None) or type(value).__qualname__
