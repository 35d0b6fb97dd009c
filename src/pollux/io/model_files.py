"""Clusterings in files: tensors as safetensors, everything else as JSON. Loading never runs code from a file.

:class:`Description` is the schema of a file, for writing and reading. Nothing in it has side effects: where checkpoints
go, on which device to train, callbacks and compilation are chosen at training time, and are neither written nor read.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
import numpy as np
import torch
from msgspec import Meta, Struct
from torch import Tensor, nn

from pollux import names
from pollux.data.encoding import Encoding
from pollux.data.scaling import FittedScaling, FittedTransformer
from pollux.data.sources import FORMATS
from pollux.errors import CONTROL, InputError, did_you_mean
from pollux.fitted import Fitted
from pollux.geometry import (
    DISTANCES,
    KERNELS,
    OF_ALL_SAMPLES,
    Geometry,
    Mixtures,
    NeighbourGraph,
    Pairwise,
    ShortestPath,
    resolve,
)
from pollux.inspection.confidence import Confidence
from pollux.inspection.outliers import Prototypes
from pollux.inspection.structure import Structure
from pollux.io import tensors as tensor_files
from pollux.io.parsing import Count, Finite, Size, parse
from pollux.models import build
from pollux.objectives.gemini import DEFAULT_CLIPS, Gemini
from pollux.spec import (
    MLP,
    MODEL_GROUPS,
    NOT_IN_FILE,
    Spec,
    Training,
    as_group,
    check_device,
    flatten_params,
    name_model,
    nested_name,
    number_features,
    resolve_objective,
)
from pollux.threads import DrawFrom

FORMAT = "pollux-model"
VERSION = "4"
"""Version 1 had no checksum, version 2 no preprocessing, version 3 no scaling."""

READABLE = ("1", "2", "3", "4")
_SCALING = ("centre", "scale", "axes", "fill")
_PROTOTYPES = tuple(field.name for field in fields(Prototypes))
_TENSORS = ("order", "labels", "range", *(f"scaling.{name}" for name in _SCALING))
_TENSORS += tuple(f"prototypes.{name}" for name in _PROTOTYPES)
_TENSORS += tuple(f"confidence.{field.name}" for field in fields(Confidence))
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Parameters with side effects, which are not stored.
_ACTING = {"callbacks", "checkpoint", "compile", "device"}
_GEOMETRIES = (
    *("auto", "precomputed", NOT_IN_FILE, *names.KERNELS, *names.DISTANCES),
    *(*names.KERNELS_OF_ALL_SAMPLES, *names.DISTANCES_OF_ALL_SAMPLES),
)

IN_RUN = "model.safetensors"
"""Name of the model file in the folder of a run."""
_DATA = tuple(ending for endings in FORMATS.values() for ending in endings)
MOST_OF_A_NAME = 1_000
"""Maximum number of characters in the name of a cluster."""

Clustering = TypeVar("Clustering", bound=Any)


_type_hints = functools.cache(get_type_hints)
# Parameters that may be custom objects.
_Own = Literal[
    "model",
    "activation",
    "kernel",
    "objective",
    "geometry",
    "optimiser",
    "schedule",
    "penalties",
    "random_state",
    "callbacks",
    "checkpoint",
]


class History(Struct):
    """Metrics of each epoch."""

    objective: list[float]
    clusters: list[Count]
    entropy: list[float]

    def __post_init__(self) -> None:
        if not len(self.objective) == len(self.clusters) == len(self.entropy):
            raise ValueError("metrics are of different numbers of epochs")


class FoundStructure(Struct):
    """The structure: whether clusters are there, and the evidence."""

    grade: Literal["clear", "likely", "none"]
    separation: Annotated[float, Meta(ge=0, le=1)]
    gain: Finite
    gain_error: Finite
    dip: Finite = 0.0
    category: str = ""
    others: FoundStructure | None = None

    def rebuilt(self) -> Structure:
        """The :class:`Structure` that was saved."""
        others = None if self.others is None else self.others.rebuilt()
        return Structure(**{**msgspec.structs.asdict(self), "others": others})


class Description(Struct):
    """The contents of a model file beside its tensors; fields that older versions lack have a default.

    ``parameters`` are those of the estimator by their own names, as :class:`Spec` checks them, with "auto" replaced by
    the values that were used. Those that no file can hold, such as functions, are None and listed in ``left_out``.
    """

    parameters: dict[str, Any]
    shape: tuple[Size, ...]
    dtype: Literal["float32", "float64"]
    history: History
    objective: Finite
    n_clusters: Size
    feature_names: tuple[str, ...]
    # The first files of version 1 lack the next two.
    left_out: list[_Own] | None = None
    geometry_known: bool = False
    geometry_parameters: dict[str, Any] = {}
    stability: Annotated[float, Meta(ge=-1, le=1)] | None = None
    diverged: bool = False
    streamed: bool = False
    takes_integers: bool = False
    batch_size: Size | None = None
    preprocessing: dict[str, Any] | None = None
    recipe: Literal[names.RECIPES] | None = None  # type: ignore[valid-type]
    hint_violations: dict[str, Count] | None = None
    structure: FoundStructure | None = None
    # The shapes of several inputs, by position or by name.
    inputs: list[tuple[Size, ...]] | dict[str, tuple[Size, ...]] | None = None
    cluster_names: tuple[Annotated[str, Meta(max_length=MOST_OF_A_NAME)], ...] = ()

    def __post_init__(self) -> None:
        if bool(self.shape) == bool(self.inputs):
            raise ValueError("a model has the shape of one input, or those of several")
        if self.inputs and self.preprocessing is not None:
            raise ValueError("several inputs have no preprocessing")
        # Names of an encoded table are those of its columns, not of its features.
        if self.feature_names and self.preprocessing is None and self.shape != (len(self.feature_names),):
            raise ValueError("feature_names are of another number of features")
        if any(CONTROL.search(name) for name in self.cluster_names):
            raise ValueError("a name of a cluster holds what is no text")
        if not {"known", "must_link", "cannot_link"}.issuperset(self.hint_violations or ()):
            raise ValueError("there are hints of another kind")


class _Objective(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A GEMINI with options."""

    gemini: str
    clip: Finite | None = None
    sampled_pairs: Size | None = None


class _Unchecked(Struct):
    """Parameters that a fit would only check late."""

    verbose: bool | int = False
    random_state: Annotated[int, Meta(ge=0, lt=2**32)] | None = None


def save(clustering: Any, path: str | Path) -> None:
    """Write a fitted clustering: its weights, and all that predictions and further training need."""
    fitted: Fitted = clustering.fitted_
    if isinstance(fitted.scaling, FittedTransformer):
        raise InputError(
            "A model file cannot hold a transformer of scikit-learn: use Scaling(…), or put the transformer before the "
            "clustering in a Pipeline, and keep both."
        )
    # Labels of streamed samples are not computed for this: they may not fit in memory.
    labels = np.empty(0, dtype=np.int64) if fitted.given_labels is None else fitted.given_labels
    tensors = {"order": fitted.order, "labels": torch.from_numpy(labels)}
    tensors |= {f"module.{name}": value for name, value in fitted.module.state_dict().items()}
    if fitted.range is not None:
        tensors["range"] = fitted.range
    if fitted.scaling is not None:
        tensors |= {f"scaling.{name}": value for name, value in fitted.scaling.tensors().items()}
    if fitted.prototypes is not None:
        tensors |= {f"prototypes.{name}": value for name, value in fitted.prototypes.tensors().items()}
    if fitted.confidence is not None:
        tensors |= {f"confidence.{name}": value for name, value in fitted.confidence.tensors().items()}
    given = {name: value for name, value in flatten_params(clustering).items() if name not in _ACTING}
    if isinstance(given["objective"], str) and given["objective"] in DEFAULT_CLIPS:
        # In a file, a bare name is that of an earlier version, without a default clip: so options are stored.
        given["objective"] = Gemini(given["objective"])
    if isinstance(given["geometry"], str) and ":" in given["geometry"]:
        needs = resolve_objective(given["objective"]).needs
        # One that is not needed was never resolved.
        given["geometry"] = "auto" if needs is None else resolve(given["geometry"], needs)
    if isinstance(given.get("kernel"), str) and ":" in given["kernel"]:
        given["kernel"] = resolve(given["kernel"])
    parameters = {name: _as_json(value) for name, value in given.items()}
    geometry, is_several = fitted.geometry, not isinstance(fitted.shape[0], int)
    # The shape of several inputs is a list of pairs of a name and a shape, or of shapes.
    is_named = is_several and isinstance(next(iter(fitted.shape[0]), None), str)
    data = {
        "parameters": parameters,
        "left_out": [name for name, value in parameters.items() if value is None and given[name] is not None],
        "geometry_known": isinstance(geometry, Pairwise | ShortestPath | NeighbourGraph | Mixtures),
        "geometry_parameters": _as_json(geometry.parameters) if isinstance(geometry, Pairwise) else {},
        "shape": () if is_several else fitted.shape,
        "inputs": dict(fitted.shape) if is_named else fitted.shape if is_several else None,
        "dtype": str(fitted.dtype).removeprefix("torch."),
        "feature_names": list(map(str, fitted.feature_names)),
        "history": fitted.history,
        "objective": float(fitted.objective),
        "n_clusters": fitted.n_clusters,
        "stability": None if fitted.stability is None else float(fitted.stability),
        "diverged": fitted.diverged,
        "streamed": fitted.given_labels is None,
        "takes_integers": fitted.takes_integers,
        "batch_size": fitted.batch_size,
        "preprocessing": None if fitted.encoding is None else fitted.encoding.as_json(),
        "recipe": fitted.recipe,
        "cluster_names": fitted.cluster_names,
        "hint_violations": fitted.hint_violations,
        "structure": None if fitted.known_structure is None else fitted.known_structure.to_dict(),
    }
    # Validated as when loading, so that no file is written that cannot be loaded.
    description = parse(data, Description, "The model cannot be saved")
    _check_parameters(clustering)
    _check_tensors(tensors, description, clustering.n_clusters, fitted.is_free)
    tensor_files.write(path, FORMAT, VERSION, tensors, msgspec.to_builtins(description))


def _guess(path: Path) -> str:
    """A suggestion of the file, or the folder of a run, that may have been meant."""
    wanted = path.parent if path.name == IN_RUN else path
    return did_you_mean(wanted.name, (each.name for each in wanted.parent.glob("*")))


def load(
    path: str | Path, make: Callable[..., Clustering], *, model: Any = None, device: str | None = None
) -> tuple[Clustering, Fitted]:
    """Load the clustering in a file, or in the folder of a run, built by ``make(**parameters)``, with its fitted state.

    ``model`` is the network, if it was a custom one.
    """
    path = Path(path) / IN_RUN if Path(path).is_dir() else Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no model file {path}.{_guess(path)}")
    if path.suffix.lower() in _DATA and not tensor_files.kind_of(path):
        raise InputError(
            f"{path} is data, and not a model: GeminiClustering(…).fit({str(path)!r}) clusters them. What save and "
            f"pollux fit have written is loaded."
        )
    check_device(device or "cpu")
    damaged = f"{path} is not a whole model file"
    tensors, data = tensor_files.read(path, FORMAT, READABLE, "model file", unchecked=["1"])
    description = parse(data, Description, damaged)
    try:
        clustering = _make(make, _parameters(path, description, model), device or "cpu")
        _check_parameters(clustering)
        preprocessing = description.preprocessing
        encoding = None if preprocessing is None else Encoding.from_json(preprocessing, damaged)
        return clustering, _fitted(clustering, tensors, description, encoding)
    except InputError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path}: {error}") from error
    # Errors of a file with wrong contents; msgspec 0.19 has exceptions of its own.
    except (
        *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError),
        msgspec.ValidationError,
    ) as error:
        raise InputError(f"{damaged}: {(str(error) or repr(error)).removesuffix('.')}.") from error


def _parameters(path: Path, description: Description, model: Any) -> dict[str, Any]:
    """The estimator's parameters; those that affect predictions are never replaced by a default."""
    given = description.parameters
    msgspec.convert(given, _Unchecked)
    absent = {"n_clusters", "model", "objective", "geometry"} - given.keys()
    if absent:
        raise ValueError(f"it does not hold {', '.join(sorted(absent))}")
    unlisted = [name for name in ("model", "objective", "geometry", "optimiser") if given.get(name) is None]
    left_out: Collection[str] = unlisted if description.left_out is None else description.left_out
    if any(given.get(name) is not None for name in left_out):
        raise ValueError("parameters are said to be left out, and are there")
    if model is None and "model" in left_out:
        raise InputError(f"{path} holds the weights of a network of your own: pass it, load(path, model=…).")
    own = next((name for name in ("activation", "kernel") if name in left_out), None)
    if model is None and own is not None:
        raise InputError(f"{path} does not hold the {own}, which is your own: pass the model, load(path, model=…).")
    # Others that were left out, such as a penalty, only matter in training.
    parameters = {name: value for name, value in given.items() if name not in left_out}
    if model is not None:
        parameters["model"] = model
    parameters["objective"] = _read_objective(parameters.get("objective", NOT_IN_FILE))
    parameters["geometry"] = _read_geometry(parameters.get("geometry", NOT_IN_FILE))
    if "kernel" in parameters:
        parameters["kernel"] = _read_geometry(parameters["kernel"])
    if "hidden" in parameters:
        parameters["hidden"] = tuple(parameters["hidden"])
    return parameters


def _make(make: Callable[..., Clustering], parameters: dict[str, Any], device: str) -> Clustering:
    """Build the estimator from the parameters that it knows, by their own names."""
    # Files of older versions lack these, which then had the following values.
    training = Training(schedule="constant", trial_epochs=None, max_samples=None)
    plain: dict[str, Any] = {"preprocessing": None, "n_init": 1, "max_epochs": 200, "learning_rate": 1e-2}
    clustering = make(parameters["n_clusters"], device=device, training=training, penalties=None, **plain)
    known = flatten_params(clustering).keys() - _ACTING
    model = parameters["model"] if isinstance(parameters["model"], str) else None
    if model != "mlp":
        # Files of old versions hold the layers of a perceptron whatever the model.
        known -= MLP().get_params().keys()
    default = clustering.get_params()
    if model in MODEL_GROUPS:
        own = MODEL_GROUPS[model]().get_params()
        known |= own.keys()
        default |= {f"model__{name}": value for name, value in own.items()}
    changed = {nested_name(name): value for name, value in parameters.items() if name in known}
    # Groups are not set if they equal the defaults.
    changed = {name: value for name, value in changed.items() if "__" not in name or value != default[name]}
    clustering.set_params(**changed)
    return clustering


def _check_parameters(clustering: Any) -> None:
    """Raise a ValueError or TypeError for the first parameter that a fit could not use."""
    stand_in = copy.copy(clustering)
    stand_in.device = "cpu"
    if isinstance(stand_in.objective, str) and stand_in.objective == NOT_IN_FILE:
        stand_in.objective = "mi"
    Spec.of(stand_in)


def _read_objective(value: Any) -> Any:
    if isinstance(value, dict):
        found = msgspec.convert(value, _Objective)
        if found == _Objective(found.gemini, DEFAULT_CLIPS.get(found.gemini)):
            return found.gemini
        return Gemini(found.gemini, clip=found.clip, sampled_pairs=found.sampled_pairs)
    return Gemini(value, clip=None) if isinstance(value, str) and value in DEFAULT_CLIPS else value


def _read_geometry(value: Any) -> str | Geometry:
    if isinstance(value, str) and value in _GEOMETRIES:
        return value
    if not isinstance(value, dict):
        raise ValueError(f"there is no geometry {value!r}")
    name, kind = value["geometry"], value.get("kind", "kernel")
    options = {key: option for key, option in value.items() if key not in ("geometry", "kind")}
    return resolve(name, kind, **_convert_options(resolve(name, kind), options))


def _convert_options(geometry: Geometry, options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the parameters of a geometry to the types of its function or class; they must be finite."""
    asks = (geometry.adapt_parameters or geometry.function) if isinstance(geometry, Pairwise) else type(geometry)
    types = _type_hints(asks)
    converted = {name: msgspec.convert(value, types[name]) for name, value in options.items()}
    if any(isinstance(value, float) and not math.isfinite(value) for value in converted.values()):
        raise ValueError("parameters of the geometry are not finite")
    return converted


def _fitted(clustering: Any, tensors: dict[str, Tensor], description: Description, encoding: Encoding | None) -> Fitted:
    shape: tuple[Any, ...] = description.shape
    if description.inputs:
        inputs = description.inputs
        shape = tuple(sorted(inputs.items()) if isinstance(inputs, dict) else inputs)
    dtype = _DTYPES[description.dtype]
    _check_tensors(tensors, description, clustering.n_clusters, _is_free(clustering))
    if encoding is not None and encoding.encoded_shape != shape:
        raise ValueError("the columns are not those of the network")
    # Copies, because a memory-mapped tensor would not outlive the file.
    kept = {name: tensor.clone() for name, tensor in tensors.items() if not name.startswith("module.")}
    own, of_prototypes, of_confidence = (
        {name.removeprefix(prefix): value for name, value in kept.items() if name.startswith(prefix)}
        for prefix in ("scaling.", "prototypes.", "confidence.")
    )
    scaling = FittedScaling(**own) if own else None
    prototypes = Prototypes(**of_prototypes) if of_prototypes else None
    if prototypes is not None:
        prototypes.check(math.prod(shape if scaling is None else scaling.shape))
    confidence = Confidence(**of_confidence) if of_confidence else None
    if confidence is not None:
        confidence.check(clustering.n_clusters)
    weights = {name.removeprefix("module."): value for name, value in tensors.items() if name not in kept}
    with DrawFrom(torch.Generator()):
        model, options = name_model(clustering.model)
        network = model, number_features(options, description.feature_names, encoding)
        module = _module(clustering, network, shape if scaling is None else scaling.shape, dtype, weights)
    return Fitted(
        module=module,
        order=kept["order"],
        shape=shape,
        dtype=dtype,
        device=clustering.device,
        history=msgspec.structs.asdict(description.history),
        objective=description.objective,
        n_clusters=description.n_clusters,
        stability=description.stability,
        diverged=description.diverged,
        # A matrix or a function is not in the file.
        geometry=_geometry(clustering, description) if description.geometry_known else None,
        scaling=scaling,
        encoding=encoding,
        feature_names=description.feature_names,
        missing=as_group("preprocessing", clustering.preprocessing).missing,
        takes_integers=description.takes_integers,
        batch_size=description.batch_size,
        given_labels=None if description.streamed else kept["labels"].numpy(),
        recipe=description.recipe,
        cluster_names=description.cluster_names,
        given_range=kept.get("range"),
        given_prototypes=prototypes,
        hint_violations=description.hint_violations,
        confidence=confidence,
        given_structure=None if description.structure is None else description.structure.rebuilt(),
    )


def _is_free(clustering: Any) -> bool:
    return isinstance(clustering.model, str) and clustering.model == "free"


def _check_tensors(tensors: Mapping[str, Tensor], description: Description, n_clusters: int, is_free: bool) -> None:
    """Raise a ValueError if tensors do not match the description; weights are checked against their layers."""
    order, labels, shape = tensors["order"], tensors["labels"], description.shape
    if order.dtype != torch.int64 or order.ndim != 1 or sorted(order.tolist()) != list(range(len(order))):
        raise ValueError("the order of the clusters is not a permutation")
    if len(order) != n_clusters:
        raise ValueError(f"there are {len(order)} clusters, and n_clusters is {n_clusters}")
    if max(description.n_clusters, *description.history.clusters, 0) > n_clusters:
        raise ValueError("there are more clusters in use than clusters")
    if len(description.cluster_names) > n_clusters:
        raise ValueError("there are more names of clusters than clusters")
    lowest, highest = (int(labels.min()), int(labels.max())) if labels.numel() else (0, 0)
    if labels.dtype != torch.int64 or labels.ndim != 1 or lowest < (-1 if is_free else 0) or highest >= n_clusters:
        raise ValueError("labels are not numbers of clusters")
    if description.streamed == bool(len(labels)) or (is_free and description.streamed):
        raise ValueError("labels are those of streamed samples, or are absent")
    if is_free and int((labels >= 0).sum()) != len(tensors["module.logits"]):
        raise ValueError("labels are of another number of samples")
    unknown = [name for name in tensors if name not in _TENSORS and not name.startswith("module.")]
    if unknown:
        raise ValueError(f"there is a tensor {unknown[0]!r}")
    ends = tensors.get("range")
    if ends is not None and not (ends.dtype == torch.float64 and tuple(ends.shape) == (2, *shape)):
        raise ValueError("the range is that of other samples")
    axes = tensors.get("scaling.axes")
    shapes = {"centre": [shape], "scale": [(), shape], "fill": [shape]}
    shapes["axes"] = [] if axes is None else [(math.prod(shape), max(1, axes.shape[-1]))]
    for name in _SCALING:
        value = tensors.get(f"scaling.{name}")
        if value is not None and not (
            tuple(value.shape) in shapes[name] and value.is_floating_point() and bool(value.isfinite().all())
        ):
            raise ValueError(f"the {name} of the scaling is of other samples, or not finite")
    if "scaling.scale" in tensors and not bool((tensors["scaling.scale"] > 0).all()):
        raise ValueError("samples are divided by a scale that is not positive")


def _module(
    clustering: Any,
    network: tuple[Any, dict[str, Any]],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    weights: dict[str, Tensor],
) -> nn.Module:
    """Build the network of a model file from its name and options, for samples of a shape."""
    model, options = network
    if len(options.get("hidden", ())) > len(weights):
        raise ValueError("there are more layers than weights")
    if _is_free(clustering):
        shape = tuple(weights["logits"].shape[:1])
    if isinstance(model, str):
        # First on the meta device, without memory: a damaged file may describe a network of any size.
        with torch.device("meta"):
            (skeleton,) = build(model, shape, clustering.n_clusters, **options)
        _check_weights(skeleton.to(dtype), weights)
    (module,) = build(model, shape, clustering.n_clusters, **options)
    module.to(clustering.device, dtype)
    _check_weights(module, weights)
    module.load_state_dict(weights)
    return module.eval()


def _check_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    own = module.state_dict()
    expected, found = (
        {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in each.items()} for each in (own, weights)
    )
    if expected != found:
        differing = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise InputError(f"The weights in the file are not those of this model: they differ in {', '.join(differing)}.")
    # Buffers of a custom network may be infinite, as masks are.
    numbers = {name for name in own if name.endswith(("running_mean", "running_var", "landmarks", "basis", "gamma"))}
    for name in sorted(numbers.union(name for name, _ in module.named_parameters())):
        if not bool(weights[name].isfinite().all()) or (
            name.endswith("running_var") and bool((weights[name] < 0).any())
        ):
            raise ValueError(f"the weights {name} are not finite, or a variance is negative")


def _geometry(clustering: Any, description: Description) -> Geometry | None:
    """The geometry as it was fitted to the training data."""
    needs = None if clustering.objective == NOT_IN_FILE else resolve_objective(clustering.objective).needs
    if needs is None or clustering.geometry == NOT_IN_FILE:
        return None
    geometry = resolve(clustering.geometry, needs).for_clusters(clustering.n_clusters)
    if not isinstance(geometry, Pairwise):
        return geometry
    return geometry.with_parameters(**_convert_options(geometry, description.geometry_parameters))


def _as_json(value: Any) -> Any:
    """The value if JSON can hold it, else None: of a function or network, only weights are saved."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Gemini):
        if not value.is_registered:
            return None
        options = {"clip": value.clip, "sampled_pairs": value.sampled_pairs}
        given = {name: option for name, option in options.items() if option is not None}
        return {"gemini": value.name, **given} if given else value.name
    if isinstance(value, Pairwise):
        registered = (KERNELS if value.kind == "kernel" else DISTANCES).get(value.name)
        if registered is None or registered.function is not value.function:
            return None
        return {"geometry": value.name, "kind": value.kind, **_as_json(value.parameters)}
    if isinstance(value, ShortestPath | NeighbourGraph | Mixtures):
        names = {made: name for name, made in OF_ALL_SAMPLES[value.kind].items()}
        return {"geometry": names[type(value)], **_as_json(asdict(value))} if type(value) in names else None
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        items = [_as_json(item) for item in value]
        return None if None in items else items
    return None
