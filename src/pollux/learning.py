"""How an estimator's parameters become a training: modules, recipe, restarts, checkpoints."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pollux.fitting import Problem, apart, start_at_seeds, transport_problems
from pollux.memory import within_memory
from pollux.models import FreeTable, build
from pollux.objectives import Gemini
from pollux.parameters import resolve_callbacks, resolve_objective, resolve_penalties
from pollux.ranks import is_first
from pollux.training import (
    Batches,
    Checkpoints,
    Fitted,
    ProgressBar,
    Randomness,
    Recipe,
    SingleModel,
    Step,
    TapedStep,
    Trainable,
    Trained,
    make_optimiser,
    train,
    train_restarts,
)

# What decides on the numbers of a training, beside its data.
_DECISIVE = (
    *("n_clusters", "model", "hidden", "activation", "objective", "geometry", "init", "batch_size"),
    *("reshuffle_every", "optimiser", "learning_rate", "n_init", "penalties", "dtype", "random_state"),
)


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
        return {"hidden": self["hidden"], "activation": self["activation"]} if self["model"] == "mlp" else {}

    def modules(self, shape: tuple[int, ...], dtype: torch.dtype, count: int) -> list[nn.Module]:
        """Modules that start at random, for samples of a shape."""
        modules = build(self["model"], shape, self["n_clusters"], count, **self.model_options)
        return [module.to(self["device"], dtype) for module in modules]

    def tables(self, X: Any, dtype: torch.dtype, seed: int, count: int) -> list[nn.Module]:
        """Free tables for the rows of X."""
        modules = self.modules((int(X.shape[0]),), dtype, count)
        random = np.random.RandomState(seed)
        for module in modules:
            if isinstance(module, FreeTable) and self["init"] != "random":
                start_at_seeds(module, X, random)
        return modules

    @property
    def autocast(self) -> torch.dtype | None:
        return torch.bfloat16 if self["dtype"] == "bfloat16" else None

    def fit(
        self, modules: list[nn.Module], problem: Problem, randomness: Randomness, fingerprint: Callable[[], str]
    ) -> Fitted:
        """Train the modules and keep the best; the fingerprint of the data tells checkpoints from those of others."""
        n_clusters, objective = self["n_clusters"], self.objective
        problems = transport_problems(objective, n_clusters, self["n_init"])
        recipe = Recipe(
            objective,
            self["optimiser"],
            self["learning_rate"],
            resolve_penalties(self["penalties"]),
            # A network of the user's may carry hooks that must run.
            may_go_tapeless=isinstance(self["model"], str),
            autocast=self.autocast,
            compiled=self["compile"],
        )
        if randomness.ranks is not None:
            randomness.ranks.agree(_digest(modules), "start from different weights or models")
            apart(randomness.ranks, self["device"])
        checkpoints = as_checkpoints(self["checkpoint"])
        identity = {} if checkpoints is None else self._identity(modules[0], randomness, fingerprint())
        with nullcontext() if checkpoints is None else checkpoints.of(identity, self["max_epochs"], randomness.ranks):
            batches = problem.batches(self["batch_size"], self["reshuffle_every"], problems)
            with within_memory(modules[0], n_clusters, batches, objective):
                return train_restarts(
                    modules,
                    n_clusters,
                    batches,
                    recipe,
                    functools.partial(self.train, randomness=randomness, checkpoints=checkpoints),
                    lambda module: problem.evaluate(module, n_clusters, objective),
                    randomness,
                    checkpoints,
                )

    def train(
        self,
        model: Trainable,
        step: Step,
        batches: Batches,
        *,
        randomness: Randomness,
        checkpoints: Checkpoints | None = None,
        epochs: int | None = None,
    ) -> Trained:
        """The epochs of one model."""
        return train(
            model,
            step,
            batches,
            max_epochs=self["max_epochs"] if epochs is None else epochs,
            tol=self["tol"],
            patience=self["patience"],
            callbacks=(
                *([ProgressBar()] if self["verbose"] and is_first(randomness.ranks) else []),
                *resolve_callbacks(self["callbacks"]),
            ),
            generator=randomness.generator,
            noise=randomness.noise,
            ranks=randomness.ranks,
            checkpoints=checkpoints,
        )

    def one_epoch(
        self, model: SingleModel, problem: Problem, randomness: Randomness, resume: dict[str, Any] | None
    ) -> tuple[Trained, dict[str, Any]]:
        """An epoch that takes up the optimiser and the random numbers where the last one left them."""
        generator = randomness.generator
        assert generator is not None
        optimiser = make_optimiser(self["optimiser"], model.parameters(), self["learning_rate"])
        if resume is not None:
            optimiser.load_state_dict(copy.deepcopy(resume["optimiser"]))
            generator.set_state(resume["generator"])
            torch.set_rng_state(resume["torch"])
        step = TapedStep(model, self.objective, optimiser, resolve_penalties(self["penalties"]), generator)
        trained = self.train(model, step, problem.batches(self["batch_size"]), randomness=randomness, epochs=1)
        return trained, {
            "optimiser": optimiser.state_dict(),
            "generator": generator.get_state(),
            "torch": torch.get_rng_state(),
        }

    def _identity(self, module: nn.Module, randomness: Randomness, data: str) -> dict[str, Any]:
        """What tells this training from others, as plain data."""
        told = {name: in_words(self[name]) for name in _DECISIVE}
        layers = repr([(name, *value.shape, str(value.dtype)) for name, value in module.state_dict().items()])
        return {
            **told,
            "layers": hashlib.sha256(layers.encode()).hexdigest()[:16],
            "data": data,
            "processes": 1 if randomness.ranks is None else randomness.ranks.size,
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
