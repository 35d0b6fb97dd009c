"""Checks of an estimator's parameters, in the words of its user."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pollux.errors import InputError
from pollux.models import ACTIVATIONS, NORMS, activations
from pollux.names import DTYPES, INITS, MISSING, OPTIMISERS, SCALINGS, SCHEDULES
from pollux.objectives import PENALTIES, Divergence, Gemini
from pollux.objectives.penalties import Penalty
from pollux.training import Checkpoints

NOT_IN_FILE = "not in the file"
"""Stands for an objective or a geometry that a model file could not hold."""


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise a ValueError or TypeError that names the first parameter that cannot be used, and what can."""
    for name in ("n_clusters", "n_init"):
        _check_positive_integer(name, parameters[name])
    for name in ("batch_size", "reshuffle_every", "max_epochs"):
        if not (parameters[name] == "auto" or (name == "batch_size" and parameters[name] is None)):
            _check_positive_integer(name, parameters[name])
    for name in ("patience", "n_components", "trial_epochs"):
        if parameters[name] is not None and not (name == "trial_epochs" and parameters[name] == "auto"):
            _check_positive_integer(name, parameters[name])
    learning_rate, tol = parameters["learning_rate"], parameters["tol"]
    if not _is_number(learning_rate) or not 0 < learning_rate < float("inf"):
        raise ValueError(f"learning_rate must be a positive number, not {learning_rate!r}.")
    if not _is_number(tol) or not 0 <= tol < float("inf"):
        raise ValueError(f"tol must be a number of at least 0, not {tol!r}.")
    _check_choice("init", parameters["init"], INITS)
    _check_choice("dtype", parameters["dtype"], DTYPES)
    _check_choice("scaling", parameters["scaling"], SCALINGS)
    _check_choice("missing", parameters["missing"], MISSING)
    _check_choice("schedule", parameters["schedule"], SCHEDULES)
    if parameters["init"] == "kmeans++" and parameters["model"] != "free":
        raise ValueError("init='kmeans++' starts a free table only; for a network, use 'kmeans' or 'graph'.")
    _check_rounds(parameters["trial_epochs"], parameters["max_epochs"])
    if parameters["norm"] not in NORMS:
        raise ValueError(f"norm is one of {', '.join(map(repr, NORMS))}; not {parameters['norm']!r}.")
    _check_layers(parameters["hidden"], parameters["activation"])
    if isinstance(parameters["optimiser"], str):
        _check_choice("optimiser", parameters["optimiser"], OPTIMISERS)
    elif not callable(parameters["optimiser"]):
        raise TypeError(f"optimiser must be a name or a function, not {parameters['optimiser']!r}.")
    if not isinstance(parameters["compile"], bool | np.bool_):
        raise TypeError(f"compile is True or False, not {parameters['compile']!r}.")
    if not isinstance(parameters["checkpoint"], str | Path | Checkpoints | None):
        raise TypeError(f"checkpoint is a folder or pollux.training.Checkpoints, not {parameters['checkpoint']!r}.")
    check_device(parameters["device"])
    resolve_objective(parameters["objective"])
    resolve_penalties(parameters["penalties"])
    resolve_callbacks(parameters["callbacks"])


def check_streamable(parameters: Mapping[str, Any]) -> None:
    """Raise where something is asked for that must look at all samples, and these are not held."""
    asked = [
        f"{name}={parameters[name]!r}"
        for name, plain in {"scaling": "none", "n_components": None, "missing": "error"}.items()
        if parameters[name] != plain
    ]
    asked += [f"init={parameters['init']!r}"] if parameters["init"] in ("kmeans", "graph") else []
    asked += [
        f"the penalty {name!r}"
        for (penalty, _), name in zip(
            resolve_penalties(parameters["penalties"]), parameters["penalties"] or (), strict=True
        )
        if getattr(penalty, "uses_spacing", False)
    ]
    if asked:
        raise InputError(
            f"Streamed rows are never held, and {' and '.join(asked)} must look at all of them, as recipes do: fit on "
            f"rows that memory holds (numpy.load, pandas.read_csv), or leave that out; open_stream can standardise."
        )


def resolve_objective(objective: str | Divergence | Gemini) -> Gemini:
    """The objective that a name or a divergence stands for."""
    if isinstance(objective, str) and objective == NOT_IN_FILE:
        raise ValueError("The objective of this model was your own and is not in its file: set_params(objective=…).")
    return objective if isinstance(objective, Gemini) else Gemini(objective)


def resolve_penalties(penalties: Any) -> list[tuple[Penalty, float]]:
    """Functions and weights from ``{name or function: weight}``."""
    if penalties is not None and not isinstance(penalties, Mapping):
        raise TypeError(f"penalties maps names or functions to weights, such as {{'vat': 1.0}}; not {penalties!r}.")
    resolved: list[tuple[Penalty, float]] = []
    for penalty, weight in (penalties or {}).items():
        if not callable(penalty) and penalty not in PENALTIES:
            raise ValueError(f"Unknown penalty {penalty!r}. Valid names: {', '.join(PENALTIES)}; or a function.")
        if not _is_number(weight) or not 0 <= weight < float("inf"):
            raise ValueError(f"The weight of penalty {penalty!r} must be a number of at least 0, not {weight!r}.")
        resolved.append((PENALTIES[penalty] if isinstance(penalty, str) else penalty, float(weight)))
    return resolved


def resolve_callbacks(callbacks: Any) -> tuple[Any, ...]:
    """The callbacks as a tuple."""
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise TypeError(f"callbacks is a sequence of functions, each called after an epoch; not {callbacks!r}.")
    return tuple(callbacks)


def _check_rounds(trial_epochs: Any, max_epochs: Any) -> None:
    if trial_epochs not in (None, "auto") and max_epochs != "auto" and trial_epochs >= max_epochs:
        raise ValueError(
            f"Of max_epochs={max_epochs} the first trial_epochs are for all starts and the rest for the best of them: "
            f"trial_epochs={trial_epochs} leaves none."
        )


def _check_layers(hidden: Any, activation: Any) -> None:
    widths = hidden if isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str) else [None]
    if not all(isinstance(width, numbers.Integral) and int(width) >= 1 for width in widths):
        raise ValueError(f"hidden is a sequence of positive layer widths such as (100,), not {hidden!r}.")
    several = isinstance(activation, Sequence) and not isinstance(activation, str)
    for each in activations(activation, len(widths)) if several else (activation,):
        if isinstance(each, str):
            _check_choice("activation", each, tuple(ACTIVATIONS))
        elif not (isinstance(each, type) and issubclass(each, nn.Module)):
            raise TypeError(f"activation is a name ({', '.join(ACTIVATIONS)}) or a module class, not {each!r}.")


def check_device(device: Any) -> None:
    """Raise a ValueError where the device is not there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(f"device {device!r} cannot be used here; 'cpu' always can. ({error})") from error


def _check_choice(name: str, value: Any, valid: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in valid:
        raise ValueError(f"Unknown {name} {value!r}. Valid names: {', '.join(valid)}.")


def _check_positive_integer(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer, not {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
