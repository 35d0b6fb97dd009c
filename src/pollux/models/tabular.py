"""Models of table rows: inputs (n, d) → logits (n, K)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from pollux.errors import unknown

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
    """An independent row of logits for each training sample: inputs are indices (n,) → (n, K)."""

    def __init__(self, n_samples: int, n_clusters: int) -> None:
        super().__init__()
        # Nearly uniform, so that the objective decides; small noise breaks the symmetry between clusters.
        self.logits = nn.Parameter(0.1 * torch.randn(n_samples, n_clusters))

    def forward(self, index: Tensor) -> Tensor:
        return self.logits[index]


def free(n_samples: int | Sequence[int], n_clusters: int) -> FreeTable:
    """A free (categorical) table of logits, one row for each of ``n_samples``."""
    return FreeTable(n_samples if isinstance(n_samples, int) else math.prod(n_samples), n_clusters)


def linear(n_features: int | Sequence[int], n_clusters: int) -> nn.Module:
    """Logistic regression; samples of several dimensions are flattened."""
    return mlp(n_features, n_clusters, hidden=())


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
        The activation after each hidden layer: a name of ``ACTIVATIONS`` or a module class; or one for each layer.
    norm : {None, "batch"}
        Normalisation of each hidden layer, before its activation.
    """
    if norm not in NORMS:
        raise ValueError(f"norm is one of {', '.join(map(repr, NORMS))}; not {norm!r}.")
    if isinstance(hidden, int) or any(int(width) < 1 for width in hidden):
        raise ValueError(f"hidden is a sequence of positive layer widths such as (100,), not {hidden!r}.")
    shape = [n_features] if isinstance(n_features, int) else list(n_features)
    widths = (math.prod(shape), *(int(width) for width in hidden))
    layers: list[nn.Module] = [] if len(shape) == 1 else [nn.Flatten()]
    for (a, b), each in zip(itertools.pairwise(widths), activations(activation, len(hidden)), strict=True):
        if isinstance(each, str) and each not in ACTIVATIONS:
            raise ValueError(unknown("activation", each, ACTIVATIONS))
        layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if norm == "batch" else [])]
        layers.append(ACTIVATIONS[each]() if isinstance(each, str) else each())
    layers.append(nn.Linear(widths[-1], n_clusters))
    return layers[0] if len(layers) == 1 else nn.Sequential(*layers)


def activations(activation: Activation | Sequence[Activation], layers: int) -> Sequence[Activation]:
    """The activations of all hidden layers."""
    if isinstance(activation, str | type):
        return (activation,) * layers
    if len(activation) != layers:
        raise ValueError(f"activation has {len(activation)} entries for {layers} hidden layers: give one for each.")
    return activation
