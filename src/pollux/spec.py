"""The parameters of a fit: grouped where they belong together, resolved and checked once."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from torch import Tensor, nn

from pollux import names
from pollux.data.samples import Samples, StreamSamples
from pollux.data.scaling import FittedScaling, FittedTransformer
from pollux.errors import InputError, option
from pollux.geometry import Geometry, Kind, Precomputed, resolve
from pollux.models import activations, build
from pollux.objectives import DIVERGENCES, PENALTIES, Divergence, Gemini
from pollux.objectives.penalties import Penalty

NOT_IN_FILE = "not in the file"
"""Stands for an objective or a geometry that a model file could not hold."""


class MLP(BaseEstimator):  # type: ignore[misc]
    """A perceptron with hidden layers, as a ``model``.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the hidden layers.
    activation : str, class, or a sequence of them
        Their activation, or that of each: ``"relu"``, ``"tanh"``, …, or a module class.
    norm : None or "batch"
        What normalises the hidden layers.
    """

    def __init__(
        self, hidden: Sequence[int] = (100,), activation: str | Sequence[str] = "relu", norm: str | None = None
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.norm = norm

    def check(self) -> None:
        """Raise a ValueError or TypeError that names the first parameter that cannot be used."""
        if self.norm not in (None, *names.NORMS[1:]):
            valid = ", ".join(map(repr, (None, *names.NORMS[1:])))
            raise ValueError(f"norm is one of {valid}; not {self.norm!r}.")
        hidden: Any = self.hidden
        widths = hidden if isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str) else [None]
        if not all(isinstance(width, numbers.Integral) and int(width) >= 1 for width in widths):
            raise ValueError(f"hidden is a sequence of positive layer widths such as (100,), not {self.hidden!r}.")
        several = isinstance(self.activation, Sequence) and not isinstance(self.activation, str)
        for each in activations(self.activation, len(widths)) if several else (self.activation,):
            if isinstance(each, str):
                _check_choice("activation", each, names.ACTIVATIONS)
            elif not (isinstance(each, type) and issubclass(each, nn.Module)):
                valid = ", ".join(names.ACTIVATIONS)
                raise TypeError(f"activation is a name ({valid}) or a module class, not {each!r}.")


class Scaling(BaseEstimator):  # type: ignore[misc]
    """What model and geometry see of X, as a ``preprocessing``.

    Parameters
    ----------
    scaling : {"none", "auto", "standard", "global"}
        The values as they are; each feature standardised; all features centred and divided by one number; "auto": that
        where their ranges are alike, as those of pixels are, else standardised.
    n_components : int, optional
        Principal components of the scaled samples that are left to see.
    missing : {"error", "mean"}
        Whether X may hold NaN: the mean of the feature stands for it then.
    """

    def __init__(self, scaling: str = "none", n_components: int | None = None, missing: str = "error") -> None:
        self.scaling = scaling
        self.n_components = n_components
        self.missing = missing

    def check(self) -> None:
        """Raise a ValueError that names the first parameter that cannot be used."""
        _check_choice("scaling", self.scaling, names.SCALINGS)
        _check_choice("missing", self.missing, names.MISSING)
        if self.n_components is not None:
            _check_positive_integer("n_components", self.n_components)

    def describe_changes(self) -> list[str]:
        """The parameters that are not those of samples as they are."""
        return [f"{name}={value!r}" for name, value in self.get_params().items() if value != getattr(Scaling(), name)]

    def fit(self, samples: Samples) -> FittedScaling | None:
        """The map of such samples to what a model sees of them; None where nothing is changed."""
        if not self.describe_changes() or isinstance(samples, StreamSamples):
            return None
        return FittedScaling.fit(samples.X, self.scaling, self.n_components, samples.sample_weight)


class Transformer:
    """A transformer of scikit-learn, as a ``preprocessing``."""

    # It may fill gaps, and what it returns is checked.
    missing = "mean"

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def describe_changes(self) -> list[str]:
        """What is done to samples."""
        return [f"preprocessing={self.transformer!r}"]

    def get_params(self) -> dict[str, Any]:
        """For the fingerprint of a training: the kind of transformer and its parameters, those of its parts too."""
        return {"preprocessing": [type(self.transformer), self.transformer.get_params()]}

    def fit(self, samples: Samples) -> FittedTransformer:
        """A fitted clone, as a map of samples; weights are not known to it."""
        assert not isinstance(samples, StreamSamples)
        return FittedTransformer(clone(self.transformer).fit(samples.X), samples.X[:1])


class Training(BaseEstimator):  # type: ignore[misc]
    """How a model is trained.

    Parameters
    ----------
    optimiser : str or callable
        ``"adam"``, ``"adamw"``, ``"sgd"``, ``"rmsprop"``, ``"lbfgs"``, or (parameters, lr=…) → optimiser.
    schedule : {"constant", "cosine"}
        Whether the learning rate stays, or falls to zero along a half cosine.
    reshuffle_every : int or "auto"
        Epochs for which batches keep their samples: a Wasserstein objective then starts from its last solution. "auto"
        is 10 for those, where their distances (20 · n · batch_size bytes) and trees are less than 1 GB, else 1.
    trial_epochs : int, "auto" or None
        After so many epochs, or a quarter of all ("auto"), the best two restarts alone go on.
    max_samples : int or None
        Where there are more samples, so many of them, drawn at random, are all that scaling, geometry and training see;
        the others are labelled. Streamed samples can then be fitted with every geometry, start and penalty. None: all.
    tol, patience : float, int or None
        Training ends after ``patience`` epochs without a relative rise of the objective by ``tol``; None: never.
    dtype : {"auto", "float32", "float64", "bfloat16"}
        Arithmetic; "auto" is that of X, and float32 for streamed samples. "bfloat16": matrix products of the network in
        that type (autocast), all else in float32.
    compile : bool
        Whether torch compiles the network: it pays for large ones that are trained for long.
    checkpoint : path or Checkpoints, optional
        A folder for checkpoints, one a minute, or :class:`pollux.training.Checkpoints`. A fit that finds some there of
        the same training resumes it.
    """

    def __init__(
        self,
        optimiser: str | Callable[..., torch.optim.Optimizer] = "adam",
        schedule: str = "constant",
        reshuffle_every: int | str = "auto",
        trial_epochs: int | str | None = None,
        max_samples: int | None = None,
        tol: float = 1e-4,
        patience: int | None = None,
        dtype: str = "auto",
        compile: bool = False,
        checkpoint: Any = None,
    ) -> None:
        self.optimiser = optimiser
        self.schedule = schedule
        self.reshuffle_every = reshuffle_every
        self.trial_epochs = trial_epochs
        self.max_samples = max_samples
        self.tol = tol
        self.patience = patience
        self.dtype = dtype
        self.compile = compile
        self.checkpoint = checkpoint

    def check(self) -> None:
        """Raise a ValueError or TypeError that names the first parameter that cannot be used."""
        if self.reshuffle_every != "auto":
            _check_positive_integer("reshuffle_every", self.reshuffle_every)
        if self.patience is not None:
            _check_positive_integer("patience", self.patience)
        if self.trial_epochs not in (None, "auto"):
            _check_positive_integer("trial_epochs", self.trial_epochs)
        if self.max_samples is not None:
            _check_positive_integer("max_samples", self.max_samples)
        if not _is_number(self.tol) or not 0 <= self.tol < float("inf"):
            raise ValueError(f"tol must be a number of at least 0, not {self.tol!r}.")
        _check_choice("dtype", self.dtype, names.DTYPES)
        _check_choice("schedule", self.schedule, names.SCHEDULES)
        if isinstance(self.optimiser, str):
            _check_choice("optimiser", self.optimiser, names.OPTIMISERS)
        elif not callable(self.optimiser):
            raise TypeError(f"optimiser must be a name or a function, not {self.optimiser!r}.")
        if not isinstance(self.compile, bool | np.bool_):
            raise TypeError(f"compile is True or False, not {self.compile!r}.")
        # A Checkpoints is known by its folder: training, where it lives, lies above.
        if not isinstance(self.checkpoint, str | Path | None) and not hasattr(self.checkpoint, "folder"):
            raise TypeError(f"checkpoint is a folder or pollux.training.Checkpoints, not {self.checkpoint!r}.")


_KINDS: dict[str, Any] = {"model": MLP, "preprocessing": Scaling, "training": Training}
GROUPS = tuple(_KINDS)
"""Parameters that are groups of parameters, or stand for one."""


def as_group(name: str, value: Any) -> Any:
    """The group that a parameter stands for: MLP, Scaling or Training with its defaults; or the value itself."""
    if name == "model" and isinstance(value, str) and value == "mlp":
        return MLP()
    if name == "preprocessing" and (value is None or isinstance(value, str)):
        return Scaling() if value is None else Scaling(value)
    if name == "training" and value is None:
        return Training()
    return value


def nested_name(name: str) -> str:
    """``"training__patience"`` for ``"patience"``: what a parameter of a group is called among all parameters."""
    return next((f"{group}__{name}" for group, kind in _KINDS.items() if name in kind().get_params()), name)


def flatten_params(estimator: Any) -> dict[str, Any]:
    """All parameters by their own names, which are unique: those of groups in the place of the groups.

    The layers of a perceptron are always among them, whatever the model.
    """
    flat: dict[str, Any] = MLP().get_params()
    for name, value in estimator.get_params(deep=False).items():
        group = as_group(name, value) if name in GROUPS else None
        if isinstance(group, MLP | Scaling | Training):
            flat |= {"model": "mlp"} if name == "model" else {}
            flat |= group.get_params()
        else:
            flat[name] = value
    return flat


def _as_preprocessing(group: Any) -> Scaling | Transformer:
    if isinstance(group, Scaling):
        return group
    if isinstance(group, type) or not (hasattr(group, "fit") and hasattr(group, "transform")):
        raise TypeError(
            f"preprocessing is None, a name ({', '.join(names.SCALINGS)}), Scaling(…) or a transformer, not {group!r}."
        )
    return Transformer(group)


@dataclass(frozen=True)
class Spec:
    """All parameters of a fit, resolved and checked."""

    n_clusters: int
    model: str | nn.Module | Callable[..., nn.Module]
    mlp: MLP
    objective: Gemini
    geometry: str | Geometry | Callable[..., Tensor]
    preprocessing: Scaling | Transformer
    init: str
    n_init: int
    max_epochs: int | str
    batch_size: int | str | None
    learning_rate: float
    penalties: tuple[tuple[Penalty, float], ...]
    training: Training
    device: str
    random_state: Any
    verbose: bool
    callbacks: tuple[Any, ...]
    penalty_names: tuple[Any, ...]
    is_free: bool
    """Whether the model is a free table of probabilities, which cannot predict new samples."""
    autocast: torch.dtype | None
    """The type of matrix products, where it is not that of the weights."""
    uses_spacing: bool
    """Whether a penalty needs to know how far samples are from their neighbours."""
    n_transport_problems: int
    """How many transport problems a batch poses: one for each cluster or pair of them, and each restart."""
    max_samples: int | None
    """How many samples are enough to learn from; None: all, as a free table learns each by itself."""

    @staticmethod
    def of(estimator: Any) -> Spec:
        """The parameters of an estimator; raises a ValueError or TypeError for the first that cannot be used."""
        groups = {name: as_group(name, getattr(estimator, name)) for name in GROUPS}
        model, preprocessing, training = groups["model"], groups["preprocessing"], groups["training"]
        if not isinstance(training, Training):
            raise TypeError(f"training is a Training(…) or None, not {training!r}.")
        mlp = model if isinstance(model, MLP) else MLP()
        _check(estimator)
        for group in (mlp, preprocessing, training):
            if isinstance(group, MLP | Scaling | Training):
                group.check()
        _check_rounds(training.trial_epochs, estimator.max_epochs)
        objective, penalties = resolve_objective(estimator.objective), resolve_penalties(estimator.penalties)
        pairs = estimator.n_clusters * (estimator.n_clusters - 1) // 2
        transports = pairs if objective.one_vs_one else estimator.n_clusters
        return Spec(
            n_clusters=int(estimator.n_clusters),
            model="mlp" if isinstance(model, MLP) else model,
            mlp=mlp,
            objective=objective,
            geometry=estimator.geometry,
            preprocessing=_as_preprocessing(preprocessing),
            init=estimator.init,
            n_init=int(estimator.n_init),
            max_epochs=estimator.max_epochs,
            batch_size=estimator.batch_size,
            learning_rate=estimator.learning_rate,
            penalties=penalties,
            training=training,
            device=estimator.device,
            random_state=estimator.random_state,
            verbose=bool(estimator.verbose),
            callbacks=resolve_callbacks(estimator.callbacks),
            penalty_names=tuple(estimator.penalties or ()),
            is_free=isinstance(model, str) and model == "free",
            autocast=torch.bfloat16 if training.dtype == "bfloat16" else None,
            uses_spacing=any(getattr(penalty, "uses_spacing", False) for penalty, _ in penalties),
            n_transport_problems=estimator.n_init * transports
            if objective.divergence == DIVERGENCES["wasserstein"]
            else 0,
            max_samples=None
            if training.max_samples is None or (isinstance(model, str) and model == "free")
            # No cluster without a sample.
            else max(int(training.max_samples), int(estimator.n_clusters), 2),
        )

    def torch_dtype(self, stored: np.dtype[Any]) -> torch.dtype:
        """The precision of weights and samples; "auto" is that of the data, or the one that holds them."""
        if self.training.dtype != "auto":
            # bfloat16 has too few digits for anything but the products of a network.
            return torch.float64 if self.training.dtype == "float64" else torch.float32
        return torch.float32 if stored == np.float32 or stored.itemsize <= 2 else torch.float64

    def build(self, shape: tuple[int, ...], dtype: torch.dtype, count: int = 1) -> list[nn.Module]:
        """So many modules with random weights, for samples of a shape."""
        options = self.mlp.get_params() if self.model == "mlp" else {}
        return [module.to(self.device, dtype) for module in build(self.model, shape, self.n_clusters, count, **options)]

    def resolve_geometry(self, affinity: Precomputed | None = None) -> Geometry | None:
        """The geometry that the objective needs: what was computed before, or that of the parameter."""
        if affinity is not None or self.objective.needs is None:
            return affinity
        return resolve(self.geometry, self.objective.needs).for_clusters(self.n_clusters)

    def check_streamable(self) -> None:
        """Raise an InputError where something must look at all samples, which streamed ones do not allow."""
        asked = self.preprocessing.describe_changes()
        asked += [option("init", self.init)] if self.init in ("kmeans", "graph") else []
        asked += [
            f"the penalty {name!r}"
            for (penalty, _), name in zip(self.penalties, self.penalty_names, strict=True)
            if getattr(penalty, "uses_spacing", False)
        ]
        if asked and self.max_samples is None:
            raise InputError(
                f"Streamed samples are never all in memory, and {' and '.join(asked)} must look at all of them: learn "
                f"from some of them, as recipes do ({option('max_samples', 20_000, group='Training')}); or leave that "
                f"out; open_stream can standardise."
            )

    def fingerprint(self) -> dict[str, Any]:
        """What decides on the numbers of a training, beside its data and its number of epochs, as plain data."""
        kept = {**self.mlp.get_params(), **self.preprocessing.get_params()}
        training = self.training.get_params()
        kept |= {name: training[name] for name in ("optimiser", "schedule", "reshuffle_every", "dtype")}
        # Older checkpoints know nothing of it.
        kept |= {} if self.max_samples is None else {"max_samples": self.max_samples}
        flat = ("n_clusters", "model", "objective", "geometry", "init", "n_init", "batch_size", "learning_rate")
        kept |= {name: getattr(self, name) for name in (*flat, "random_state")}
        kept["penalties"] = dict(zip(self.penalty_names, (weight for _, weight in self.penalties), strict=True))
        # With a schedule, a longer training would have gone at another pace from the beginning.
        kept["epochs"] = self.max_epochs if self.training.schedule != "constant" else None
        return {name: as_plain_data(value) for name, value in kept.items()}


def resolve_objective(objective: str | Divergence | Gemini) -> Gemini:
    """The objective that a name or a divergence stands for."""
    if isinstance(objective, str) and objective == NOT_IN_FILE:
        raise ValueError("The objective of this model was your own and is not in its file: set_params(objective=…).")
    return objective if isinstance(objective, Gemini) else Gemini(objective)


def resolve_penalties(penalties: Any) -> tuple[tuple[Penalty, float], ...]:
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
    return tuple(resolved)


def resolve_callbacks(callbacks: Any) -> tuple[Any, ...]:
    """The callbacks as a tuple."""
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise TypeError(f"callbacks is a sequence of functions, each called after an epoch; not {callbacks!r}.")
    return tuple(callbacks)


def geometry_of_new_samples(geometry: Geometry | None, needs: Kind | None) -> Geometry | None:
    """The geometry of a trained model, for samples that it was not trained on."""
    if needs is None:
        return None
    if geometry is None or geometry.kind != needs or isinstance(geometry, Precomputed):
        raise ValueError(
            f"This model has no {needs} for other samples than those it was trained on (it was given an affinity, or a "
            f"geometry that a file cannot hold, or its objective was changed since): score takes their affinity=…, "
            f"and fit trains anew."
        )
    return geometry


def check_device(device: Any) -> None:
    """Raise a ValueError where the device cannot be used."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(f"device {device!r} cannot be used here; 'cpu' always can. ({error})") from error


def as_plain_data(value: Any) -> Any:
    """A parameter as plain data, which differs where two trainings could differ in it."""
    if isinstance(value, float) and not math.isfinite(value):
        # NaN is not equal to itself.
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return as_plain_data(value.tolist())
    if isinstance(value, Mapping):
        return {str(as_plain_data(key)): as_plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain_data(item) for item in value]
    if isinstance(value, Gemini):
        return [repr(value), as_plain_data(value.divergence)]
    if isinstance(value, functools.partial):
        return [as_plain_data(value.func), as_plain_data(value.args), as_plain_data(value.keywords)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: as_plain_data(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return [type(value).__qualname__, parts]
    # Of functions and networks the name must do: what they hold cannot be compared.
    return getattr(value, "__qualname__", None) or type(value).__qualname__


def digest_weights(modules: Sequence[nn.Module]) -> str:
    """A checksum of all weights."""
    digest = hashlib.sha256()
    for module in modules:
        for name, tensor in module.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _check(estimator: Any) -> None:
    for name in ("n_clusters", "n_init"):
        _check_positive_integer(name, getattr(estimator, name))
    if estimator.max_epochs != "auto":
        _check_positive_integer("max_epochs", estimator.max_epochs)
    if estimator.batch_size not in ("auto", None):
        _check_positive_integer("batch_size", estimator.batch_size)
    learning_rate = estimator.learning_rate
    if not _is_number(learning_rate) or not 0 < learning_rate < float("inf"):
        raise ValueError(f"learning_rate must be a positive number, not {learning_rate!r}.")
    _check_choice("init", estimator.init, names.INITS)
    if estimator.init == "kmeans++" and not (isinstance(estimator.model, str) and estimator.model == "free"):
        raise ValueError(f"{option('init', 'kmeans++')} starts a free table only; for a network, use kmeans or graph.")
    check_device(estimator.device)


def _check_rounds(trial_epochs: Any, max_epochs: Any) -> None:
    if trial_epochs not in (None, "auto") and max_epochs != "auto" and trial_epochs >= max_epochs:
        raise ValueError(
            f"Of {option('max_epochs', max_epochs)} the first are for all restarts and the rest for the best of them: "
            f"{option('trial_epochs', trial_epochs, group='Training')} leaves none."
        )


def _check_choice(name: str, value: Any, valid: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in valid:
        raise ValueError(f"Unknown {name} {value!r}. Valid names: {', '.join(valid)}.")


def _check_positive_integer(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer, not {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
