"""Clusterings in files: tensors as safetensors, everything else as JSON. Loading never runs code from a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from pollux.data.encoding import Encoding
from pollux.data.scaling import FittedScaling, FittedTransformer
from pollux.errors import InputError
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
from pollux.io import tensors as tensor_files
from pollux.models import build
from pollux.objectives.gemini import DEFAULT_CLIPS, Gemini
from pollux.spec import MLP, NOT_IN_FILE, as_group, check_device, flatten_params, nested_name, resolve_objective
from pollux.threads import DrawFrom

FORMAT = "pollux-model"
VERSION = "4"
"""Version 1 had no checksum, version 2 no preprocessing, version 3 no scaling."""

_HISTORY: dict[str, Callable[[Any], float]] = {"objective": float, "clusters": int, "entropy": float}
_READABLE = ("1", "2", "3", "4")

IN_RUN = "model.safetensors"
"""The model file in the folder of a run."""

Clustering = TypeVar("Clustering", bound=Any)


def save(clustering: Any, path: str | Path) -> None:
    """Write a fitted clustering: weights, and what predictions and further training need."""
    fitted: Fitted = clustering.fitted_
    tensors = {f"module.{name}": value for name, value in fitted.module.state_dict().items()}
    # The labels of streamed samples may take more memory than there is.
    labels = fitted.given_labels
    tensors |= {"order": fitted.order, "labels": torch.empty(0, dtype=torch.long)}
    if labels is not None:
        tensors["labels"] = torch.from_numpy(labels)
    if isinstance(fitted.scaling, FittedTransformer):
        raise InputError(
            "A model file cannot hold a transformer of scikit-learn: use Scaling(…), or put the transformer before the "
            "clustering in a Pipeline, and keep both."
        )
    if fitted.scaling is not None:
        tensors |= {f"scaling.{name}": value for name, value in fitted.scaling.tensors().items()}
    if not isinstance(fitted.shape[0], int):
        raise InputError(
            "A model file cannot hold a model of several inputs: keep the weights of its network, "
            "torch.save(clustering.module_.state_dict(), …)."
        )
    geometry = fitted.geometry
    given = flatten_params(clustering)
    # The folder of checkpoints is private to whoever trained the model.
    del given["checkpoint"]
    if isinstance(given["objective"], str) and given["objective"] in DEFAULT_CLIPS:
        # Names alone are those of earlier versions, which knew no default.
        given["objective"] = Gemini(given["objective"])
    parameters = {name: _as_json(value) for name, value in given.items()}
    description = {
        "parameters": parameters,
        "left_out": [name for name, value in parameters.items() if value is None and given[name] is not None],
        "geometry_known": isinstance(geometry, Pairwise | ShortestPath | NeighbourGraph | Mixtures),
        "geometry_parameters": _as_json(geometry.parameters) if isinstance(geometry, Pairwise) else {},
        "shape": fitted.shape,
        "dtype": str(fitted.dtype).removeprefix("torch."),
        "feature_names": list(fitted.feature_names),
        "history": fitted.history,
        "objective": fitted.objective,
        "n_clusters": fitted.n_clusters,
        "stability": fitted.stability,
        "diverged": fitted.diverged,
        "streamed": labels is None,
        "takes_integers": fitted.takes_integers,
        "preprocessing": None if fitted.encoding is None else fitted.encoding.as_json(),
    }
    tensor_files.write(path, FORMAT, VERSION, tensors, description)


def load(
    path: str | Path, make: Callable[..., Clustering], *, model: Any = None, device: str | None = None
) -> tuple[Clustering, Fitted]:
    """The clustering in a file, made by ``make(**parameters)``, and its fitted state.

    ``model`` is the network, where it was the user's own.
    """
    tensors, description = read(path)
    try:
        clustering = _make(make, _parameters(path, description, model, device))
        return clustering, _fitted(clustering, tensors, description)
    except _DAMAGE_ERRORS as error:
        raise ValueError(f"{path} is not a whole model file: {error!r}.") from error


# What is raised where a file holds something else than it should.
_DAMAGE_ERRORS = (KeyError, TypeError, AttributeError, IndexError, OverflowError, RuntimeError, MemoryError)


def _parameters(path: str | Path, description: dict[str, Any], model: Any, device: str | None) -> dict[str, Any]:
    """The estimator's parameters; those that decide on its predictions are never replaced by a default."""
    parameters = dict(description["parameters"])
    # The first files of version 1 did not list them.
    unlisted = [name for name in ("model", "objective", "geometry", "optimiser") if parameters[name] is None]
    left_out = description.get("left_out", unlisted)
    if model is not None:
        parameters["model"] = model
    elif "model" in left_out:
        raise ValueError(f"{path} holds the weights of a network of your own: pass it, load(path, model=…).")
    elif "activation" in left_out:
        raise ValueError(f"{path} does not hold the activation, a class: pass the network, load(path, model=…).")
    for name in left_out:
        if name in ("objective", "geometry"):
            parameters[name] = NOT_IN_FILE
        elif name != "model":
            # Callbacks and the like only matter in training.
            del parameters[name]
    if isinstance(parameters["objective"], dict):
        options = {"clip": None, **parameters["objective"]}
        name = options.pop("gemini")
        is_default = options == {"clip": DEFAULT_CLIPS.get(name)}
        parameters["objective"] = name if is_default else Gemini(name, **options)
    elif parameters["objective"] in DEFAULT_CLIPS:
        parameters["objective"] = Gemini(parameters["objective"], clip=None)
    if isinstance(parameters["geometry"], dict):
        parameters["geometry"] = resolve(**parameters["geometry"])
    if "hidden" in parameters:
        parameters["hidden"] = tuple(parameters["hidden"])
    parameters.pop("callbacks", None)
    parameters["device"] = device or parameters["device"]
    check_device(parameters["device"])
    return parameters


def _make(make: Callable[..., Clustering], parameters: dict[str, Any]) -> Clustering:
    """The estimator of parameters by their own names."""
    if parameters["model"] != "mlp":
        # Files of old versions name the layers of a perceptron whatever the model.
        parameters = {name: value for name, value in parameters.items() if name not in MLP().get_params()}
    nested = {name: nested_name(name) for name in parameters}
    clustering = make(**{name: value for name, value in parameters.items() if nested[name] == name})
    default = clustering.get_params()
    clustering.set_params(
        **{
            nested[name]: value
            for name, value in parameters.items()
            # A group of defaults is left to stand for them.
            if nested[name] != name and value != default[nested[name]]
        }
    )
    return clustering


def _fitted(clustering: Any, tensors: dict[str, Tensor], description: dict[str, Any]) -> Fitted:
    shape = tuple(description["shape"])
    dtype = {"float32": torch.float32, "float64": torch.float64}[description["dtype"]]
    history = {name: [kind(value) for value in description["history"][name]] for name, kind in _HISTORY.items()}
    order, labels = tensors.pop("order"), tensors.pop("labels").numpy()
    if sorted(order.tolist()) != list(range(len(order))):
        raise IndexError("the order of the clusters is not a permutation")
    if len(order) != clustering.n_clusters:
        raise IndexError("the order is of another number of clusters")
    scaling = {name: tensors.pop(name) for name in list(tensors) if name.startswith("scaling.")}
    fitted_scaling = _scaling(scaling, shape) if scaling else None
    encoding = None if description.get("preprocessing") is None else Encoding.from_json(description["preprocessing"])
    if encoding is not None and encoding.encoded_shape != shape:
        raise IndexError("the columns are not those of the network")
    stability = description.get("stability")
    weights = {name.removeprefix("module."): value for name, value in tensors.items()}
    with DrawFrom(torch.Generator()):
        module = _module(clustering, shape if fitted_scaling is None else fitted_scaling.shape, dtype, weights)
    return Fitted(
        module=module,
        order=order,
        shape=shape,
        dtype=dtype,
        device=clustering.device,
        history=history,
        objective=float(description["objective"]),
        n_clusters=int(description["n_clusters"]),
        stability=None if stability is None else float(stability),
        diverged=bool(description.get("diverged", False)),
        # A matrix or a function is not in the file, and the first files of version 1 did not say.
        geometry=_geometry(clustering, description) if description.get("geometry_known", False) else None,
        scaling=fitted_scaling,
        encoding=encoding,
        feature_names=tuple(description["feature_names"]),
        missing=as_group("preprocessing", clustering.preprocessing).missing,
        takes_integers=bool(description.get("takes_integers", False)),
        given_labels=None if description.get("streamed") else labels,
    )


def _scaling(tensors: dict[str, Tensor], shape: tuple[int, ...]) -> FittedScaling:
    scaling = FittedScaling(**{name.removeprefix("scaling."): value for name, value in tensors.items()})
    axes, d = scaling.axes, math.prod(shape)
    fits = tuple(scaling.centre.shape) == shape and tuple(scaling.scale.shape) in ((), shape)
    fits &= scaling.fill is None or tuple(scaling.fill.shape) == shape
    if not fits or (axes is not None and (axes.ndim != 2 or len(axes) != d)):
        raise IndexError("the scaling is of other samples")
    return scaling


def _module(clustering: Any, shape: tuple[int, ...], dtype: torch.dtype, weights: dict[str, Tensor]) -> nn.Module:
    """The network of a model file, for samples of a shape."""
    model = as_group("model", clustering.model)
    options = model.get_params() if isinstance(model, MLP) else {}
    model = "mlp" if isinstance(model, MLP) else model
    if len(options.get("hidden", ())) > len(weights):
        raise IndexError("there are more layers than weights")
    if isinstance(model, str) and model == "free":
        shape = tuple(weights["logits"].shape[:1])
    if isinstance(model, str):
        # Without memory first: a file may claim a network of any size.
        with torch.device("meta"):
            (skeleton,) = build(model, shape, clustering.n_clusters, **options)
        _check_weights(skeleton, weights)
    (module,) = build(model, shape, clustering.n_clusters, **options)
    _check_weights(module, weights)
    module.to(clustering.device, dtype)
    module.load_state_dict(weights)
    return module.eval()


def _check_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    expected, found = (
        {name: tuple(tensor.shape) for name, tensor in tensors.items()} for tensors in (module.state_dict(), weights)
    )
    if expected != found:
        names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise ValueError(f"The weights in the file are not those of this model: they differ in {', '.join(names)}.")


def _geometry(clustering: Any, description: dict[str, Any]) -> Geometry | None:
    """The geometry as it was adapted to the training data."""
    needs = None if clustering.objective == NOT_IN_FILE else resolve_objective(clustering.objective).needs
    if needs is None or clustering.geometry == NOT_IN_FILE:
        return None
    geometry = resolve(clustering.geometry, needs).for_clusters(clustering.n_clusters)
    if not isinstance(geometry, Pairwise):
        return geometry
    return replace(geometry, parameters=description["geometry_parameters"])


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description of a model file, or of that in the folder of a run."""
    path = Path(path)
    if path.is_dir():
        path /= IN_RUN
    if not path.is_file():
        raise FileNotFoundError(f"There is no model file {path}.")
    return tensor_files.read(path, FORMAT, _READABLE, "model file", unchecked=["1"])


def _as_json(value: Any) -> Any:
    """The value where JSON can hold it, else None: a function or network is not saved, only its weights."""
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
    if isinstance(value, list | tuple):
        items = [_as_json(item) for item in value]
        return None if None in items else items
    return None
