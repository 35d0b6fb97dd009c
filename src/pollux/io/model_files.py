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
from pollux.data.scaling import FittedScaling
from pollux.geometry import DISTANCES, KERNELS, SPANNING, Mixtures, NeighbourGraph, Pairwise, ShortestPath, resolve
from pollux.io import tensors as checked_tensors
from pollux.models import FreeTable, build
from pollux.objectives import DIVERGENCES, Gemini
from pollux.parameters import NOT_IN_FILE, check_device

FORMAT = "pollux-model"
VERSION = "4"
"""Version 1 had no checksum, version 2 no preprocessing, version 3 no scaling."""

_HISTORY: dict[str, Callable[[Any], float]] = {"objective": float, "clusters": int, "entropy": float}
_READABLE = ("1", "2", "3", "4")

IN_RUN = "model.safetensors"
"""The model file in the folder of a run."""

Clustering = TypeVar("Clustering", bound=Any)


def save(clustering: Any, path: str | Path) -> None:
    """Write a fitted clustering: its weights, and what is needed to predict and to go on."""
    tensors = {f"module.{name}": value for name, value in clustering.module_.state_dict().items()}
    # The labels of streamed rows may take more memory than there is.
    streamed = clustering._stream is not None or clustering._labels is None
    labels = torch.empty(0, dtype=torch.long) if streamed else torch.from_numpy(clustering._labels)
    tensors |= {"order": clustering._order, "labels": labels}
    if clustering.scaling_ is not None:
        tensors |= {f"scaling.{name}": value for name, value in clustering.scaling_.tensors().items()}
    geometry = clustering.geometry_
    # Where checkpoints went is no business of those who get the model.
    given = {name: value for name, value in clustering.get_params(deep=False).items() if name != "checkpoint"}
    parameters = {name: _as_json(value) for name, value in given.items()}
    description = {
        "parameters": parameters,
        "left_out": [
            name for name, value in parameters.items() if value is None and getattr(clustering, name) is not None
        ],
        "geometry_known": isinstance(geometry, Pairwise | ShortestPath | NeighbourGraph | Mixtures),
        "geometry_parameters": _as_json(geometry.parameters) if isinstance(geometry, Pairwise) else {},
        "shape": clustering._shape,
        "dtype": str(clustering._dtype).removeprefix("torch."),
        "feature_names": list(getattr(clustering, "feature_names_in_", [])),
        "history": clustering.history_,
        "objective": clustering.objective_,
        "n_clusters": clustering.n_clusters_,
        "stability": clustering.stability_,
        "streamed": streamed,
        "preprocessing": None if clustering.preprocessing_ is None else clustering.preprocessing_.as_json(),
    }
    write(path, tensors, description)


def load(
    path: str | Path, make: Callable[..., Clustering], *, model: Any = None, device: str | None = None
) -> Clustering:
    """The clustering in a file, made by ``make(**parameters)``; ``model`` stands in for a network of the user's."""
    tensors, description = read(path)
    try:
        clustering = make(**_parameters(path, description, model, device))
        _restore_state(clustering, tensors, description)
        with torch.random.fork_rng(devices=[]):
            _restore_module(clustering, tensors)
        if description["geometry_known"]:
            _restore_geometry(clustering, description["geometry_parameters"])
    except _NOT_WHAT_IT_SAYS as error:
        raise ValueError(f"{path} is not a whole model file: {error!r}.") from error
    return clustering


# What reading the wrong thing in the right place leads to.
_NOT_WHAT_IT_SAYS = (KeyError, TypeError, AttributeError, IndexError, OverflowError, RuntimeError, MemoryError)


def _parameters(path: str | Path, description: dict[str, Any], model: Any, device: str | None) -> dict[str, Any]:
    """The estimator's parameters; those that decide what it says are never replaced by a default."""
    parameters, left_out = dict(description["parameters"]), description["left_out"]
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
            # Callbacks and the like serve training alone.
            del parameters[name]
    if isinstance(parameters["objective"], dict):
        options = dict(parameters["objective"])
        parameters["objective"] = Gemini(options.pop("gemini"), **options)
    if isinstance(parameters["geometry"], dict):
        parameters["geometry"] = resolve(**parameters["geometry"])
    parameters["hidden"] = tuple(parameters["hidden"])
    parameters["device"] = device or parameters["device"]
    check_device(parameters["device"])
    return parameters


def _restore_state(clustering: Any, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    clustering._shape = tuple(description["shape"])
    clustering._dtype = {"float32": torch.float32, "float64": torch.float64}[description["dtype"]]
    clustering.n_features_in_ = clustering._shape[0]
    if description["feature_names"]:
        clustering.feature_names_in_ = np.array(description["feature_names"], dtype=object)
    history = description["history"]
    clustering.history_ = {name: [kind(value) for value in history[name]] for name, kind in _HISTORY.items()}
    clustering.objective_, clustering.n_clusters_ = float(description["objective"]), int(description["n_clusters"])
    clustering.n_iter_ = len(clustering.history_["objective"])
    clustering._order, clustering._labels = tensors.pop("order"), tensors.pop("labels").numpy()
    stability = description.get("stability")
    clustering.stability_ = None if stability is None else float(stability)
    scaling = {name: tensors.pop(name) for name in list(tensors) if name.startswith("scaling.")}
    clustering.scaling_ = _scaling(scaling, clustering._shape) if scaling else None
    if description.get("streamed"):
        clustering._labels = None
    if sorted(clustering._order.tolist()) != list(range(len(clustering._order))):
        raise IndexError("the order of the clusters is none")
    if len(clustering.hidden) > len(tensors):
        raise IndexError("there are more layers than weights")
    preprocessing = description.get("preprocessing")
    clustering.preprocessing_ = None if preprocessing is None else Encoding.from_json(preprocessing)
    if clustering.preprocessing_ is not None and clustering.preprocessing_.encoded_shape != clustering._shape:
        raise IndexError("the columns are not those of the network")
    # A matrix or a function is not in the file.
    clustering._resume = clustering.geometry_ = clustering._stream = None
    clustering.diverged_ = False


def _scaling(tensors: dict[str, Tensor], shape: tuple[int, ...]) -> FittedScaling:
    scaling = FittedScaling(**{name.removeprefix("scaling."): value for name, value in tensors.items()})
    axes, d = scaling.axes, math.prod(shape)
    fits = tuple(scaling.centre.shape) == shape and tuple(scaling.scale.shape) in ((), shape)
    fits &= scaling.fill is None or tuple(scaling.fill.shape) == shape
    if not fits or (axes is not None and (axes.ndim != 2 or len(axes) != d)):
        raise IndexError("the scaling is of other samples")
    return scaling


def _restore_module(clustering: Any, tensors: dict[str, Tensor]) -> None:
    weights = {name.removeprefix("module."): value for name, value in tensors.items()}
    shape = clustering._seen_shape
    if clustering._is_free():
        shape = tuple(weights["logits"].shape[:1])
    if len(clustering._order) != clustering.n_clusters:
        raise IndexError("the order is of another number of clusters")
    if isinstance(clustering.model, str):
        # Without memory first: a file may claim a network of any size.
        with torch.device("meta"):
            (skeleton,) = build(clustering.model, shape, clustering.n_clusters, **clustering._learning().model_options)
        _check_weights(skeleton, weights)
    (module,) = build(clustering.model, shape, clustering.n_clusters, **clustering._learning().model_options)
    _check_weights(module, weights)
    module.to(clustering.device, clustering._dtype)
    module.load_state_dict(weights)
    clustering.module_ = module.eval()
    if isinstance(module, FreeTable):
        clustering._set_probabilities(clustering.labels_ >= 0)


def _check_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    expected, found = (
        {name: tuple(tensor.shape) for name, tensor in tensors.items()} for tensors in (module.state_dict(), weights)
    )
    if expected != found:
        names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise ValueError(f"The weights in the file are not those of this model: they differ in {', '.join(names)}.")


def _restore_geometry(clustering: Any, parameters: dict[str, Any]) -> None:
    """The geometry as it was adapted to the training data."""
    if NOT_IN_FILE in (clustering.objective, clustering.geometry):
        return
    geometry = resolve(clustering.geometry, clustering._objective().needs).for_clusters(clustering.n_clusters)
    clustering.geometry_ = replace(geometry, parameters=parameters) if isinstance(geometry, Pairwise) else geometry


def write(path: str | Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Tensors and a JSON description in one file, which appears whole or not at all."""
    checked_tensors.write(path, FORMAT, VERSION, tensors, description)


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description of a file that :func:`write` made."""
    path = Path(path)
    if path.is_dir():
        path /= IN_RUN
    if not path.is_file():
        raise FileNotFoundError(f"There is no model file {path}.")
    return checked_tensors.read(path, FORMAT, _READABLE, "model file", unchecked=["1"])


def _as_json(value: Any) -> Any:
    """The value where JSON can hold it, else None: a function or network is not saved, only its weights."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Gemini):
        if DIVERGENCES.get(value.divergence.name) != value.divergence:
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
        names = {made: name for name, made in SPANNING[value.kind].items()}
        return {"geometry": names[type(value)], **_as_json(asdict(value))} if type(value) in names else None
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_as_json(item) for item in value]
        return None if None in items else items
    return None
