"""Models of table rows: inputs (n, d) → logits (n, K)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

Activation: TypeAlias = str | type[nn.Module]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "identity": nn.Identity,
}


NORMS = (None, "batch")


class FreeTable(nn.Module):
    """A row of logits for each training sample, tied to nothing: inputs are indices (n,) → (n, K)."""

    def __init__(self, n_samples: int, n_clusters: int) -> None:
        super().__init__()
        # Near uniform, so that the objective decides; not quite, so that clusters can part.
        self.logits = nn.Parameter(0.1 * torch.randn(n_samples, n_clusters))

    def forward(self, index: Tensor) -> Tensor:
        return self.logits[index]


def free(n_samples: int | Sequence[int], n_clusters: int) -> FreeTable:
    """A free (categorical) table of logits, one row for each of ``n_samples``."""
    return FreeTable(_size(n_samples), n_clusters)


def linear(n_features: int | Sequence[int], n_clusters: int) -> nn.Module:
    """Logistic regression; samples of several dimensions are flattened."""
    return _flattened(n_features, nn.Linear(_size(n_features), n_clusters))


def mlp(
    n_features: int | Sequence[int],
    n_clusters: int,
    *,
    hidden: Sequence[int] = (100,),
    activation: Activation | Sequence[Activation] = "relu",
    norm: str | None = None,
) -> nn.Module:
    """A multi-layer perceptron.

    Parameters
    ----------
    n_features : int or shape
        Size of an input; samples of several dimensions are flattened.
    n_clusters : int
        Number of outputs.
    hidden : sequence of int
        Widths of the hidden layers.
    activation : str, class or sequence of these
        What follows each hidden layer: a name of ``ACTIVATIONS`` or a module class; or one for each of the layers.
    norm : {None, "batch"}
        What each hidden layer is normalised by, before its activation.
    """
    if norm not in NORMS:
        raise ValueError(f"norm is one of {', '.join(map(repr, NORMS))}; not {norm!r}.")
    if isinstance(hidden, int) or any(int(width) < 1 for width in hidden):
        raise ValueError(f"hidden is a sequence of positive layer widths such as (100,), not {hidden!r}.")
    widths = (_size(n_features), *(int(width) for width in hidden))
    makers = [_maker(each) for each in activations(activation, len(hidden))]
    layers = [
        (nn.Linear(a, b), *([nn.BatchNorm1d(b)] if norm == "batch" else []), make())
        for (a, b), make in zip(itertools.pairwise(widths), makers, strict=True)
    ]
    return _flattened(n_features, *itertools.chain.from_iterable(layers), nn.Linear(widths[-1], n_clusters))


def activations(activation: Activation | Sequence[Activation], layers: int) -> Sequence[Activation]:
    """The activation of each of so many hidden layers."""
    if isinstance(activation, str | type):
        return (activation,) * layers
    if len(activation) != layers:
        raise ValueError(f"activation has {len(activation)} entries for {layers} hidden layers: give one for each.")
    return activation


def _maker(activation: Activation) -> type[nn.Module]:
    if isinstance(activation, str) and activation not in ACTIVATIONS:
        raise ValueError(f"Unknown activation {activation!r}. Valid names: {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[activation] if isinstance(activation, str) else activation


def _flattened(shape: int | Sequence[int], *layers: nn.Module) -> nn.Module:
    if not isinstance(shape, int) and len(shape) > 1:
        layers = (nn.Flatten(), *layers)
    return layers[0] if len(layers) == 1 else nn.Sequential(*layers)


def _size(shape: int | Sequence[int]) -> int:
    return shape if isinstance(shape, int) else math.prod(shape)
