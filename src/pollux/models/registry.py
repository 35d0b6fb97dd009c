"""Modules for the ``model`` argument of a user, for one training or several restarts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from pollux.errors import unknown
from pollux.models.kernel import kernel
from pollux.models.soft_tree import soft_tree
from pollux.models.tabular import free, linear, mlp
from pollux.models.vision import lenet5, resnet18

MODELS: dict[str, Callable[..., nn.Module]] = {
    "free": free,
    "linear": linear,
    "mlp": mlp,
    "kernel": kernel,
    "soft_tree": soft_tree,
    "lenet5": lenet5,
    "resnet18": resnet18,
}


def build(
    model: str | nn.Module | Callable[..., nn.Module],
    shape: tuple[int, ...],
    n_clusters: int,
    count: int = 1,
    **options: Any,
) -> list[nn.Module]:
    """Build ``count`` modules with different initial weights.

    Parameters
    ----------
    model : str, nn.Module or callable
        A name of ``MODELS``; a module, which is copied, once with its weights and for further restarts with new ones;
        or a factory ``(n_features or shape, n_clusters) → nn.Module``.
    shape : tuple of int
        Shape of one sample.
    n_clusters, count : int
        Outputs of a module; number of modules.
    **options
        Options of a named model.
    """
    if isinstance(model, nn.Module):
        return [copy.deepcopy(model), *(_restarted(model) for _ in range(count - 1))]
    if isinstance(model, str):
        if model not in MODELS:
            also = "or pass an nn.Module, or a function (n_features, n_clusters) -> nn.Module"
            raise ValueError(unknown("model", model, MODELS, also))
        model = MODELS[model]
    elif not callable(model):
        raise TypeError(f"A model is a name, an nn.Module or a function, not {type(model).__name__}.")
    size = shape[0] if len(shape) == 1 else shape
    modules = [model(size, n_clusters, **options) for _ in range(count)]
    for module in modules:
        if not isinstance(module, nn.Module):
            raise TypeError(f"The model's function must return an nn.Module, not {type(module).__name__}.")
    return modules


def _restarted(module: nn.Module) -> nn.Module:
    """A copy with new random weights."""
    module = copy.deepcopy(module)
    for layer in module.modules():
        own = [name for name, _ in layer.named_parameters(recurse=False)]
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()
        elif own:
            raise ValueError(
                f"n_init > 1 needs new weights for each restart, but {type(layer).__name__} has no "
                f"reset_parameters: pass a function (n_features, n_clusters) -> nn.Module instead of a module."
            )
    return module
