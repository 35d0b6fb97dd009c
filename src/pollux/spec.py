"""The parameters of a fit: grouped where they belong together, resolved and checked once."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import hashlib
import inspect
import math
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.base import BaseEstimator, clone
from torch import Tensor, nn

from pollux import names
from pollux.data.encoding import Encoding
from pollux.data.rows import Rows
from pollux.data.samples import ArraySamples, Loader, Samples, StreamSamples
from pollux.data.scaling import FittedScaling, FittedTransformer
from pollux.data.streams import Stream
from pollux.errors import InputError, advised, option, unknown, warn
from pollux.geometry import Geometry, Kind, Precomputed, resolve
from pollux.geometry.geometry import check_name
from pollux.io.parsing import check_parameters, parse_parameters
from pollux.models import activations, build
from pollux.objectives import DIVERGENCES, PENALTIES, Divergence, Gemini
from pollux.objectives.penalties import Penalty, as_penalty
from pollux.ranks import Ranks
from pollux.recipes import METHOD, PLAIN, RECIPES, UNKNOWN, VISION, DataKind, choose_hidden, choose_restarts

NOT_IN_FILE = "not in the file"
"""Placeholder for an objective or a geometry that a model file could not hold."""


class MLP(BaseEstimator):  # type: ignore[misc]
    """A perceptron with hidden layers, as a ``model``.

    Parameters
    ----------
    hidden : sequence of int or "auto"
        Widths of the hidden layers. "auto": those for images, (200, 200) for up to 8,000 samples and else (500, 500).
    activation : str, class, or a sequence of them
        The activation of all hidden layers, or of each: ``"relu"``, ``"tanh"``, …, or a module class.
    norm : None or "batch"
        Normalisation of the hidden layers.
    """

    def __init__(
        self, hidden: Sequence[int] | str = (100,), activation: str | Sequence[str] = "relu", norm: str | None = None
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.norm = norm


class SoftTree(BaseEstimator):  # type: ignore[misc]
    """A soft decision tree, as a ``model``; :func:`pollux.trees.hard_rules` converts a fitted one into rules.

    Parameters
    ----------
    cuts : int
        Number of cuts of each feature.
    temperature : float
        How soft they are, in units of the features that the model sees.
    features : sequence of int or str, optional
        The features that are cut, by index or by column name; all by default. There are at most 4,096 leaves,
        (cuts + 1) to the power of the number of features.
    """

    def __init__(self, cuts: int = 1, temperature: float = 0.1, features: Sequence[int | str] | None = None) -> None:
        self.cuts = cuts
        self.temperature = temperature
        self.features = features


class KernelModel(BaseEstimator):  # type: ignore[misc]
    """Kernel logistic regression on landmarks (Nyström), as a ``model``, for any number of samples.

    Parameters
    ----------
    landmarks : int
        Samples, drawn at random, that others are compared with. More of them resolve finer shapes.
    kernel : str, Pairwise or callable
        A kernel that compares pairs of samples, by name or as :func:`pollux.geometry.resolve` returns it; or a function
        of x (n, d) and y (m, d) that returns (n, m).
    gamma : float, optional
        The parameter γ of the named kernel; by default that of :func:`pollux.geometry.resolve`, for the landmarks.
    """

    def __init__(
        self,
        landmarks: int = 100,
        kernel: str | Geometry | Callable[..., Tensor] = "rbf",
        gamma: float | None = None,
    ) -> None:
        self.landmarks = landmarks
        self.kernel = kernel
        self.gamma = gamma


class LeNet5(BaseEstimator):  # type: ignore[misc]
    """LeNet-5 for images of 28 × 28 or 32 × 32 pixels, as a ``model``.

    Parameters
    ----------
    width : int
        Units of the last hidden layer.
    activation : {"relu", "tanh"}
        Activation after each layer but the last; that of the original is ``"tanh"``.
    pooling : {"max", "average"}
        Pooling of 2 × 2 pixels into one; that of the original is ``"average"``.
    """

    def __init__(self, width: int = 84, activation: str = "relu", pooling: str = "max") -> None:
        self.width = width
        self.activation = activation
        self.pooling = pooling


class ResNet18(BaseEstimator):  # type: ignore[misc]
    """ResNet-18 for images of at least 8 × 8 pixels, as a ``model``.

    Parameters
    ----------
    stem : {"small", "imagenet"}
        What comes before the first block: a 3 × 3 convolution that keeps all pixels of small images; or that of
        torchvision, which quarters the side of an image and takes a tenth of the time.
    """

    def __init__(self, stem: str = "small") -> None:
        self.stem = stem


class Scaling(BaseEstimator):  # type: ignore[misc]
    """How X is scaled before model and geometry see it, as a ``preprocessing``.

    Parameters
    ----------
    scaling : {"none", "auto", "standard", "global"}
        No scaling; each feature standardised; all features centred and divided by one number ("global"). "auto":
        "global" if the ranges of features are alike, as those of pixels are, else "standard".
    n_components : int, optional
        Number of principal components of the scaled samples to keep.
    missing : {"error", "mean"}
        Whether X may hold NaN: "mean" replaces it by the mean of the feature.
    """

    def __init__(self, scaling: str = "none", n_components: int | None = None, missing: str = "error") -> None:
        self.scaling = scaling
        self.n_components = n_components
        self.missing = missing

    def describe_changes(self) -> dict[str, str]:
        """Descriptions of the parameters that differ from no scaling at all, by name."""
        usual = vars(Scaling())
        return {name: option(name, value) for name, value in self.get_params().items() if value != usual[name]}

    def fit(self, samples: Samples, ranks: Ranks | None = None) -> FittedScaling | None:
        """Fit the scaling to samples, a stream by several processes together; None if nothing is to be changed."""
        is_plain = (self.scaling, self.n_components, self.missing) == ("none", None, "error")
        if is_plain or isinstance(samples, Loader):
            return None
        if isinstance(samples, Stream):
            return None if samples.encoding is not None else FittedScaling.of(samples.moments(ranks), self.scaling)
        if samples.encoding is not None:
            # An encoding has already filled gaps and scaled columns, each by its kind.
            encoded = FittedScaling.fit(samples.X, "none", self.n_components, samples.sample_weight)
            return None if encoded.axes is None else encoded
        values = samples.X.data if scipy.sparse.issparse(samples.X) else samples.X
        if self.missing == "mean" and values is samples.X and values.dtype.kind == "f":
            # fmax ignores NaN, so its result is NaN only for features without any value.
            empty = np.flatnonzero(np.isnan(np.fmax.reduce(values, axis=0)).ravel())
            if len(empty) == math.prod(values.shape[1:]):
                raise InputError("X holds no value at all: each one is missing.")
            if len(empty):
                found = ", ".join(str(samples.feature_names[i] if samples.feature_names else i) for i in empty[:5])
                found += " and others" if len(empty) > 5 else ""
                warn(f"Features without any value count as constant: {found}. Leave out or fill them.", UserWarning)
        with np.errstate(over="ignore", invalid="ignore"):
            fitted = FittedScaling.fit(samples.X, self.scaling, self.n_components, samples.sample_weight)
        extremes = [function.reduce(values, axis=None) for function in (np.fmin, np.fmax) if values.size]
        largest = max((abs(float(each)) for each in extremes), default=0.0)
        if self.scaling != "none" and largest > math.sqrt(np.finfo(np.float64).max / max(1, values.size)):
            mapped = Rows(samples.X, torch.float32, prepare=fitted)
            if not all(bool(part.isfinite().all()) for part in mapped.parts()):
                raise InputError(
                    f"The values of X are too large: squares of numbers such as {largest:.3g} cannot be added up. "
                    "Divide them by a power of ten first, or look for a value that stands for a missing one."
                )
        return fitted


class Transformer:
    """A transformer of scikit-learn, as a ``preprocessing``."""

    # The transformer may fill gaps itself; its output is checked.
    missing = "mean"

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def describe_changes(self) -> dict[str, str]:
        """A description of the transformer."""
        return {"preprocessing": f"preprocessing={self.transformer!r}"}

    def get_params(self) -> dict[str, Any]:
        """The kind of transformer and its parameters, also those of its parts, for the fingerprint of a training."""
        return {"preprocessing": [type(self.transformer), self.transformer.get_params()]}

    def fit(self, samples: Samples, ranks: Ranks | None = None) -> FittedTransformer:
        """Fit a clone of the transformer, without sample weights."""
        assert not isinstance(samples, StreamSamples)
        return FittedTransformer(clone(self.transformer).fit(samples.X), samples.X[:1])


class Training(BaseEstimator):  # type: ignore[misc]
    """How a model is trained.

    Parameters
    ----------
    optimiser : str or callable
        ``"adam"``, ``"adamw"``, ``"sgd"``, ``"rmsprop"``, ``"lbfgs"``, or (parameters, lr=…) → optimiser.
    schedule : {"auto", "constant", "cosine"} or callable
        Whether the learning rate is constant, or falls to zero along a half cosine; "auto": as in the recipe, else
        constant. Or a function (max_epochs, epochs) → factor of the learning rate after ``epochs``, which need not be
        whole.
    reshuffle_every : int or "auto"
        Epochs for which batches keep their samples: a Wasserstein objective then starts from its last solution. "auto"
        is 10 for those, if their distances (20 · n · batch_size bytes) and trees take less than 1 GB, else 1.
    trial_epochs : int, float, "auto" or None
        After this many epochs, or this share of all, only the best two restarts continue; None: all do. "auto": that of
        the recipe, else None.
    max_samples : int, "auto" or None
        If there are more samples, this many are drawn at random, and scaling, geometry and training see these only; the
        others are labelled. Streamed samples can then be fitted with every geometry, init and penalty. None: all.
        "auto": that of the recipe, else None.
    tol, patience : float, int or None
        Training ends after ``patience`` epochs without a relative rise of the objective by ``tol``; None: never.
    dtype : {"auto", "float32", "float64", "bfloat16"}
        Floating-point type; "auto" is that of the recipe, else that of X, and float32 for streamed samples. "bfloat16":
        matrix products of the network in that type (autocast), all else in float32.
    compile : bool
        Whether torch compiles the network, which pays off for large ones that are trained for long.
    checkpoint : path or Checkpoints, optional
        A folder for checkpoints, one per minute, or :class:`pollux.training.Checkpoints`. A fit that finds checkpoints
        of the same training there resumes it.
    """

    def __init__(
        self,
        optimiser: str | Callable[..., torch.optim.Optimizer] = "adam",
        schedule: str | Callable[[int, float], float] = "auto",
        reshuffle_every: int | str = "auto",
        trial_epochs: float | str | None = "auto",
        max_samples: int | str | None = "auto",
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


# With other values of these a training can be resumed; or they are part of its identity in another form.
_MAY_CHANGE = ("tol", "patience", "compile", "checkpoint", "trial_epochs", "max_samples")

MODEL_GROUPS: dict[str, Any] = {
    "mlp": MLP,
    "kernel": KernelModel,
    "soft_tree": SoftTree,
    "lenet5": LeNet5,
    "resnet18": ResNet18,
}
"""Groups of model parameters, by the name of the model."""
_KINDS: dict[str, Any] = {
    "model": list(MODEL_GROUPS.values()),
    "preprocessing": [Scaling],
    "training": [Training],
}
GROUPS = tuple(_KINDS)
"""Parameters that are groups of parameters, or a name for one."""
_PARTLY_AUTO = ("model", "training")
"""Groups in which some parameters may be "auto"."""
_GROUP_KINDS: Any = tuple(kind for kinds in _KINDS.values() for kind in kinds)
_NESTED = {
    name: f"{group}__{name}" for group, kinds in _KINDS.items() for kind in kinds for name in kind().get_params()
}


def as_group(name: str, value: Any) -> Any:
    """The group that a value stands for, such as MLP or Scaling with its defaults; other values are returned as is."""
    if name == "model" and isinstance(value, str):
        # Parameters that a model does not take are refused by Spec, so that they can be read and set until then.
        with contextlib.suppress(InputError):
            return _group_of_model(value)
    if name == "preprocessing" and (value is None or isinstance(value, str)):
        return Scaling() if value is None else Scaling(value, missing="error" if value == "none" else "mean")
    if name == "training" and value is None:
        return Training()
    return value


def _group_of_model(model: str) -> Any:
    """The group of a named model, with options as in "kernel:landmarks=200"; other names are returned as is."""
    name, _, written = model.partition(":")
    if name not in ("auto", *names.MODELS):
        return model
    check_parameters("model", model)
    group = MLP if name == "auto" else MODEL_GROUPS.get(name)
    # Names of features may be numbers.
    options = parse_parameters(written, several=["features"], texts=["features"])
    return model if group is None else group(**options)


def name_model(model: Any) -> tuple[Any, dict[str, Any]]:
    """The name and the options of a model that is a group; other models are returned as is."""
    group = as_group("model", model)
    found = next((name for name, kind in MODEL_GROUPS.items() if isinstance(group, kind)), None)
    return (model, {}) if found is None else (found, group.get_params())


def number_features(options: Mapping[str, Any], names: Sequence[str], encoding: Encoding | None) -> dict[str, Any]:
    """The options of a model, with feature names replaced by numbers; an encoding has feature names of its own.

    A text that is not one of the names is the number of a feature, if it can be.
    """
    given = options.get("features")
    if given is None or isinstance(given, str) or not any(isinstance(name, str) for name in given):
        return dict(options)
    names = list(names if encoding is None else encoding.feature_names)

    def number(feature: Any) -> Any:
        if feature in names:
            return names.index(feature)
        is_number = isinstance(feature, str) and feature.isdecimal() and (not names or int(feature) < len(names))
        return int(feature) if is_number else feature

    features = [number(feature) for feature in given]
    absent = [feature for feature in features if isinstance(feature, str)]
    if absent:
        there = f"there are {', '.join(map(repr, names[:30]))}" if names else "those of these samples have no names"
        raise ValueError(f"features {absent} are not there: {there}.")
    return {**options, "features": features}


def nested_name(name: str) -> str:
    """The full name of a parameter of a group, such as ``"training__patience"`` for ``"patience"``."""
    return _NESTED.get(name, name)


def flatten_params(estimator: Any) -> dict[str, Any]:
    """All parameters by their own names, which are unique, with groups replaced by their parameters.

    For a fitted estimator they are those of the fit, with "auto" replaced. The layers of a perceptron are always among
    them, whatever the model.
    """
    flat: dict[str, Any] = MLP().get_params()
    fitted = getattr(estimator, "fitted_", None)
    given = estimator.get_params(deep=False)
    for name, value in replace_auto(given, {} if fitted is None else fitted.chosen).items():
        group = as_group(name, value) if name in GROUPS else None
        if isinstance(group, _GROUP_KINDS):
            flat |= {"model": value if is_auto(value) else name_model(value)[0]} if name == "model" else {}
            flat |= group.get_params()
        else:
            flat[name] = value
    return flat


def choose_parameters(given: Mapping[str, Any], kind: DataKind) -> tuple[str | None, dict[str, Any]]:
    """The recipe for given parameters, None if they set the method, and the values that replace "auto", by name."""
    recipe = None if any(not is_auto(given[name]) for name in METHOD) else kind.recipe
    values = PLAIN | ({} if recipe is None else RECIPES[recipe])
    options: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        group, _, key = name.partition("__")
        if group in ("model", "preprocessing") and key:
            options[group][key] = value
        else:
            chosen[name] = copy.copy(value)
    chosen["model__hidden"] = choose_hidden(kind.n)
    if is_auto(options["model"]["hidden"]):
        options["model"]["hidden"] = chosen["model__hidden"]
    model = MLP(**options["model"]) if is_auto(given["model"]) else given["model"]
    is_own = not isinstance(model, (str, *MODEL_GROUPS.values()))
    # What comes in given units is scaled only if a subsample is drawn, as recipes do.
    draws = recipe is not None or _is_number(getattr(given["training"], "max_samples", None))
    sees_raw = is_own or name_model(model)[0] in VISION or (kind.is_fixed and not draws)
    chosen |= {"model": model, "preprocessing": Scaling() if sees_raw else Scaling(**options["preprocessing"])}
    chosen.setdefault("n_init", choose_restarts(name_model(model)[0], kind.n))
    flat = dict(given)
    for name in _PARTLY_AUTO:
        group = as_group(name, given[name])
        if isinstance(group, MLP | Training):
            flat |= {f"{name}__{key}": value for key, value in group.get_params(deep=False).items()}
    return recipe, {name: value for name, value in chosen.items() if is_auto(flat.get(name))}


def replace_auto(given: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The given parameters with "auto" replaced by the chosen values, within groups too."""
    parameters = {name: chosen.get(name, value) if is_auto(value) else value for name, value in given.items()}
    for name in _PARTLY_AUTO if chosen else ():
        group = as_group(name, parameters[name])
        if isinstance(group, MLP | Training):
            options = group.get_params(deep=False).items()
            own = {key: chosen.get(f"{name}__{key}", value) if is_auto(value) else value for key, value in options}
            parameters[name] = type(group)(**own)
    return parameters


def is_auto(value: Any) -> bool:
    """Whether a parameter is "auto"."""
    return isinstance(value, str) and value == "auto"


@dataclass(frozen=True)
class Spec:
    """All parameters of a fit, resolved and checked."""

    given: Mapping[str, Any]
    """The parameters as they were given, some of them "auto"."""
    n_clusters: int
    model: str | nn.Module | Callable[..., nn.Module]
    mlp: MLP
    options: Mapping[str, Any]
    """Options of the model, if it is named."""
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
    recipe: str | None
    """The recipe that is used, None if the method is set explicitly."""
    chosen: Mapping[str, Any]
    """The values that replaced "auto", by name."""
    penalty_names: tuple[Any, ...]
    is_own: bool
    """Whether a network or a penalty is custom, and may draw random numbers."""
    is_free: bool
    """Whether the model is a free table of probabilities, which cannot predict new samples."""
    autocast: torch.dtype | None
    """The dtype of matrix products, if it is not that of the weights."""
    uses_spacing: bool
    """Whether a penalty needs the distances of samples to their neighbours."""
    n_transport_problems: int
    """Number of transport problems per batch: one for each cluster or pair of clusters, and each restart."""
    max_samples: int | None
    """Maximum number of samples to train on; None: all, as a free table has parameters for each sample."""

    @staticmethod
    def of(estimator: Any, kind: DataKind = UNKNOWN, chosen: Mapping[str, Any] | None = None) -> Spec:
        """Resolve the parameters of an estimator; raises a ValueError or TypeError for the first invalid one.

        "auto" is replaced by what was ``chosen`` before, or else by what suits the kind of data.
        """
        return Spec._resolve(estimator.get_params(deep=False), kind, chosen or {})

    def for_kind(self, kind: DataKind, n_clusters: int) -> Spec:
        """The same with "auto" replaced by what suits the kind of data, and by this number of clusters."""
        return Spec._resolve(self.given, kind, {"n_clusters": n_clusters} if is_auto(self.given["n_clusters"]) else {})

    @staticmethod
    def _resolve(parameters: Mapping[str, Any], kind: DataKind, chosen: Mapping[str, Any]) -> Spec:
        recipe, values = choose_parameters(parameters, kind)
        values |= chosen
        given = replace_auto(parameters, values)
        model, scaling, training = (as_group(name, given[name]) for name in GROUPS)
        if isinstance(model, str):
            _group_of_model(model)
        if not isinstance(training, Training):
            raise TypeError(f"training is a Training(…) or None, not {training!r}.")
        is_transformer = hasattr(scaling, "transform") and not isinstance(scaling, type)
        if not (isinstance(scaling, Scaling) or is_transformer):
            valid = ", ".join(names.SCALINGS)
            raise TypeError(f"preprocessing is None, a name ({valid}), Scaling(…) or a transformer, not {scaling!r}.")
        mlp = model if isinstance(model, MLP) else MLP()
        if isinstance(given["preprocessing"], str) and given["preprocessing"] not in names.SCALINGS:
            raise ValueError(unknown("preprocessing", given["preprocessing"], names.SCALINGS, "or Scaling(…)"))
        name, options = name_model(model)
        is_free = isinstance(model, str) and model == "free"
        preprocessing = Transformer(scaling) if is_transformer else scaling
        _check_parameters(given | vars(mlp) | vars(preprocessing) | vars(training), is_free)
        objective, penalties = resolve_objective(given["objective"]), resolve_penalties(given["penalties"])
        K = int(given["n_clusters"])
        problems = 0
        if objective.divergence == DIVERGENCES["wasserstein"]:
            problems = int(given["n_init"]) * (K * (K - 1) // 2 if objective.one_vs_one else K)
        return Spec(
            given=parameters,
            n_clusters=K,
            model=name,
            mlp=mlp,
            options=options,
            objective=objective,
            geometry=given["geometry"],
            preprocessing=preprocessing,
            init=given["init"],
            n_init=int(given["n_init"]),
            max_epochs=given["max_epochs"],
            batch_size=given["batch_size"],
            learning_rate=given["learning_rate"],
            penalties=penalties,
            training=training,
            device=given["device"],
            random_state=given["random_state"],
            verbose=bool(given["verbose"]),
            callbacks=tuple(given["callbacks"]),
            recipe=recipe,
            chosen=values,
            penalty_names=tuple(given["penalties"] or ()),
            is_own=not isinstance(name, str) or any(map(callable, given["penalties"] or ())),
            is_free=is_free,
            autocast=torch.bfloat16 if training.dtype == "bfloat16" else None,
            uses_spacing=any(getattr(penalty, "uses_spacing", False) for penalty, _ in penalties),
            n_transport_problems=problems,
            # At least as many samples as clusters.
            max_samples=None if training.max_samples is None or is_free else max(int(training.max_samples), K, 2),
        )

    def with_names_of(self, samples: Samples) -> Spec:
        """The same, with names of features replaced by numbers."""
        keeps_features = isinstance(self.preprocessing, Scaling) and not self.preprocessing.n_components
        named = (samples.feature_names, samples.encoding) if keeps_features else ((), None)
        return dataclasses.replace(self, options=number_features(self.options, *named))

    def torch_dtype(self, stored: np.dtype[Any]) -> torch.dtype:
        """The dtype of weights and samples; "auto" is that of the data, or the smallest float that can hold it."""
        if self.training.dtype != "auto":
            # bfloat16 has too few digits for anything but the matrix products of a network.
            return torch.float64 if self.training.dtype == "float64" else torch.float32
        return torch.float32 if stored == np.float32 or stored.itemsize <= 2 else torch.float64

    def build(self, shape: tuple[int, ...], dtype: torch.dtype, count: int = 1) -> list[nn.Module]:
        """Build ``count`` modules with random weights, for samples of a shape."""
        if callable(self.model) and not isinstance(self.model, nn.Module):
            _check_factory(self.model)
        modules = build(self.model, shape, self.n_clusters, count, **self.options)
        return [module.to(self.device, dtype) for module in modules]

    def take_affinity(self, affinity: Any, samples: Samples) -> Precomputed | None:
        """The given affinity between samples, without those of weight zero; None if none was given."""
        if not isinstance(samples, ArraySamples):
            return None
        return Precomputed.of_selected(affinity, self.objective.needs, samples.selected)

    def seed_of_samples(self, seed: int) -> int:
        """The seed for drawing samples; fixed for a fit with checkpoints but no seed, so that it can be resumed."""
        return 0 if self.random_state is None and self.training.checkpoint is not None else seed

    def resolve_geometry(self, affinity: Precomputed | None = None) -> Geometry | None:
        """The geometry that the objective needs: the given affinity, or else that of the parameter."""
        if affinity is not None or self.objective.needs is None:
            if isinstance(self.geometry, str) and self.geometry != NOT_IN_FILE:
                check_name(self.geometry)
            return affinity
        if self.geometry == NOT_IN_FILE:
            raise InputError(
                f"The {self.objective.needs} of this model was a function or a matrix, which no file holds: say it "
                "first, set_params(geometry=…)."
            )
        return resolve(self.geometry, self.objective.needs).for_clusters(self.n_clusters)

    def check_streamable(self, is_scaled: bool = False) -> None:
        """Raise an InputError if something needs all samples at once, which streamed ones do not allow.

        A stream that the fit opens ``is_scaled`` part by part, or by the encoding that it learns.
        """
        in_memory = advised("pass an array", option("stream", "no"))
        if self.is_free:
            raise InputError(
                f"A free table has a row of its own for each sample: it cannot be streamed ({in_memory}, or another "
                f"{option('model')})."
            )
        if self.max_samples is not None:
            # The training samples are in memory.
            return
        instead: dict[str, str] = {}
        if self.objective.needs is not None and resolve(self.geometry, self.objective.needs).needs_all_samples:
            instead[option("geometry", self.geometry)] = option("geometry", "auto")
        penalties = zip(self.penalties, self.penalty_names, strict=True)
        spaced = [name for (penalty, _), name in penalties if getattr(penalty, "uses_spacing", False)]
        instead |= self._instead(("scaling", "missing") if is_scaled else (), spaced)
        if instead:
            raise InputError(
                f"Streamed samples are never all in memory, and {' and '.join(instead)} must look at all of them: "
                f"choose {', '.join(dict.fromkeys(instead.values()))}; learn from some of them, as recipes do "
                f"({option('max_samples', 20_000, group='Training')}); or hold all in memory ({in_memory})."
            )

    @property
    def input_names(self) -> tuple[str, ...] | None:
        """Names of the inputs that the network takes; empty for built-in models, None if it may take any."""
        if isinstance(self.model, str):
            return ()
        if not isinstance(self.model, nn.Module):
            return None
        parameters = inspect.signature(self.model.forward).parameters.values()
        is_any = any(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in parameters)
        return None if is_any else tuple(parameter.name for parameter in parameters)

    def _instead(self, scaled: Collection[str], penalties: Collection[Any]) -> dict[str, str]:
        """What needs all samples in one array, and what can be used instead; changes in ``scaled`` need only a pass."""
        changes = {name: words for name, words in self.preprocessing.describe_changes().items() if name not in scaled}
        plain = "n_components=None" if changes.keys() == {"n_components"} else "preprocessing=None"
        plain += " (pollux.open_stream(path, standardise=True) standardises a file)" if "scaling" in changes else ""
        instead = dict.fromkeys(changes.values(), advised(plain, option("n_components", 0)))
        if self.init in ("kmeans", "graph"):
            instead[option("init", self.init)] = option("init", "random")
        for name in penalties:
            asked = advised(f"the penalty {name!r}", option("penalties", name))
            instead[asked] = "another penalty, such as vat"
        return instead

    def check_several_inputs(self, has_affinity: bool) -> None:
        """Raise an InputError if something does not support several inputs."""
        if isinstance(self.model, str):
            raise InputError(
                f"X holds several arrays, and {option('model', self.model)} takes one: join them (numpy.hstack), or "
                "pass a network of your own, whose forward takes them all."
            )
        asked = self._instead((), [name for name in self.penalty_names if name in ("vat", "local_vat")])
        if asked:
            raise InputError(f"X holds several arrays, and {' and '.join(asked)} is for one: leave that out.")
        if self.objective.needs is not None and not has_affinity:
            raise InputError(
                f"X holds several arrays, and the objective {self.objective.name!r} needs a {self.objective.needs} "
                "between samples: pass it as affinity=…, or use an objective that needs none, such as 'mi'."
            )

    def fingerprint(self) -> dict[str, Any]:
        """All that determines the numbers of a training, beside its data and its number of epochs, as plain data."""
        kept = {**self.mlp.get_params(), **self.options, **self.preprocessing.get_params()}
        kept |= {name: value for name, value in self.training.get_params(deep=False).items() if name not in _MAY_CHANGE}
        # Left out if None, so that checkpoints of older versions, which lack it, still match.
        kept |= {} if self.max_samples is None else {"max_samples": self.max_samples}
        flat = ("n_clusters", "model", "objective", "geometry", "init", "n_init", "batch_size", "learning_rate")
        kept |= {name: getattr(self, name) for name in (*flat, "random_state")}
        kept["penalties"] = dict(zip(self.penalty_names, (weight for _, weight in self.penalties), strict=True))
        # With a schedule the number of epochs changes every step, so it is part of the fingerprint.
        kept["epochs"] = self.max_epochs if self.training.schedule != "constant" else None
        return {name: as_plain_data(value) for name, value in kept.items()}


def _check_factory(model: Callable[..., nn.Module]) -> None:
    """Raise a TypeError if a model's function or class cannot be called with (n_features, n_clusters)."""
    try:
        inspect.signature(model).bind(None, None)
    except ValueError:  # Some compiled functions have no signature.
        return
    except TypeError as error:
        name = getattr(model, "__name__", type(model).__name__)
        raise TypeError(
            f"A model is an nn.Module, such as nn.Linear(4, 3), or a function or class that is called with "
            f"(n_features, n_clusters), which {name} does not take: {error}."
        ) from None


def resolve_objective(objective: str | Divergence | Gemini) -> Gemini:
    """The objective for a name or a divergence."""
    if isinstance(objective, str) and objective == NOT_IN_FILE:
        raise ValueError("The objective of this model was your own and is not in its file: set_params(objective=…).")
    return objective if isinstance(objective, Gemini) else Gemini(objective)


def resolve_penalties(penalties: Any) -> tuple[tuple[Penalty, float], ...]:
    """Resolve ``{name or function: weight}`` to pairs of a function and a weight."""
    if penalties is not None and not isinstance(penalties, Mapping):
        raise TypeError(f"penalties maps names or functions to weights, such as {{'vat': 1.0}}; not {penalties!r}.")
    resolved: list[tuple[Penalty, float]] = []
    for penalty, weight in (penalties or {}).items():
        if not callable(penalty) and penalty not in PENALTIES:
            raise ValueError(unknown("penalty", penalty, PENALTIES, "or a function"))
        if not _is_number(weight) or not 0 <= weight < math.inf:
            raise ValueError(f"The weight of penalty {penalty!r} must be a number of at least 0, not {weight!r}.")
        resolved.append((as_penalty(penalty), float(weight)))
    return tuple(resolved)


def geometry_of_new_samples(geometry: Geometry | None, needs: Kind | None) -> Geometry | None:
    """The geometry of a trained model, to be used with new samples."""
    if needs is None:
        return None
    if geometry is None or geometry.kind != needs or isinstance(geometry, Precomputed):
        raise ValueError(
            f"This model has no {needs} for other samples than those it was trained on (it was given an affinity, or a "
            f"geometry that a file cannot hold, or its objective was changed since): score takes their affinity=…, "
            f"and fit trains anew, by the geometry that set_params(geometry=…) gives it."
        )
    return geometry


def check_device(device: Any) -> None:
    """Raise a ValueError if the device cannot be used."""
    try:
        # Also reads a value back: tensors on "meta" have none.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {device!r} cannot be used here; 'cpu' always can. ({reason})") from error


def as_plain_data(value: Any) -> Any:
    """A parameter as plain data that differs if two trainings could differ by it."""
    if isinstance(value, float) and not math.isfinite(value):
        # As text, because NaN is not equal to itself.
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
    # Functions and networks are compared by name only: their contents cannot be compared.
    return getattr(value, "__qualname__", None) or type(value).__qualname__


def digest_weights(modules: Sequence[nn.Module]) -> str:
    """A checksum of all weights."""
    digest = hashlib.sha256()
    for module in modules:
        for name, tensor in module.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


# Valid values of parameters: a positive integer (int), None, or one of these names.
_VALID: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("n_clusters", "n_init"), (int,)),
    **dict.fromkeys(("max_epochs", "reshuffle_every"), (int, "auto")),
    "batch_size": (int, "auto", None),
    **dict.fromkeys(("patience", "trial_epochs", "n_components", "max_samples"), (int, None)),
    "init": names.INITS,
    "scaling": names.SCALINGS,
    "missing": names.MISSING,
    "dtype": names.DTYPES,
    "schedule": names.SCHEDULES,
    "optimiser": names.OPTIMISERS,
    "activation": names.ACTIVATIONS,
}


# Numbers that are resolved before they are checked if they are "auto".
_AUTO_NUMBERS = ("n_clusters", "n_init", "trial_epochs", "max_samples")


def _check_parameters(given: Mapping[str, Any], is_free: bool) -> None:
    """Raise a ValueError or TypeError for the first invalid parameter; ``given`` holds all by their own names."""
    hidden, activation = given["hidden"], given["activation"]
    widths = hidden if isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str) else [None]
    if not all(isinstance(width, numbers.Integral) and int(width) >= 1 for width in widths):
        raise ValueError(f"hidden is a sequence of positive layer widths such as (100,), not {hidden!r}.")
    # Each layer may have its own activation; activations, optimisers and schedules may be classes or functions.
    several = isinstance(activation, Sequence) and not isinstance(activation, str)
    values = [(name, given[name]) for name in _VALID if name in given and name != "activation"]
    values += [("activation", each) for each in (activations(activation, len(widths)) if several else [activation])]
    for name, value in values:
        valid = _VALID[name]
        if (value is None or isinstance(value, str)) and value in valid:
            continue
        if int in valid:
            if name == "trial_epochs" and isinstance(value, float) and 0 < value < 1:
                continue
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                also = [*(["auto"] if name in _AUTO_NUMBERS else []), *(each for each in valid if each is not int)]
                others = f"; or {' or '.join(map(repr, also))}" if also else ""
                raise ValueError(f"{name} must be a positive integer, not {value!r}{others}.")
        elif name == "activation" and not isinstance(value, str):
            if not (isinstance(value, type) and issubclass(value, nn.Module)):
                raise TypeError(f"activation is a name ({', '.join(valid)}) or a module class, not {value!r}.")
        elif name in ("optimiser", "schedule") and not isinstance(value, str):
            if not callable(value):
                raise TypeError(f"{name} must be a name or a function, not {value!r}.")
        else:
            raise ValueError(unknown(name, value, [str(each) for each in valid]))
    if given["norm"] not in (None, *names.NORMS[1:]):
        raise ValueError(f"norm is one of {', '.join(map(repr, (None, *names.NORMS[1:])))}; not {given['norm']!r}.")
    for name, least, what in (("learning_rate", math.ulp(0.0), "positive number"), ("tol", 0, "number of at least 0")):
        value = given[name]
        if not _is_number(value) or not least <= value < math.inf:
            raise ValueError(f"{name} must be a {what}, not {value!r}.")
    if given["batch_size"] == 1:
        raise ValueError(
            f"{option('batch_size', 1)} compares a sample with itself, and every objective of one sample is 0: "
            "take several for each cluster."
        )
    if given["init"] == "kmeans++" and not is_free:
        raise ValueError(f"{option('init', 'kmeans++')} starts a free table only; for a network, use kmeans or graph.")
    if not isinstance(given["compile"], bool | np.bool_):
        raise TypeError(f"compile is True or False, not {given['compile']!r}.")
    # Checkpoints is recognised by its folder: the class is in pollux.training, which this module does not import.
    if not isinstance(given["checkpoint"], str | Path | None) and not hasattr(given["checkpoint"], "folder"):
        raise TypeError(f"checkpoint is a folder or pollux.training.Checkpoints, not {given['checkpoint']!r}.")
    trial, epochs = given["trial_epochs"], given["max_epochs"]
    if trial is not None and epochs != "auto" and trial >= epochs:
        raise ValueError(
            f"Of {option('max_epochs', epochs)} the first are for all restarts and the rest for the best of them: "
            f"{option('trial_epochs', trial, group='Training')} leaves none."
        )
    callbacks = given["callbacks"]
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise TypeError(f"callbacks is a sequence of functions, each called after an epoch; not {callbacks!r}.")
    check_device(given["device"])


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
