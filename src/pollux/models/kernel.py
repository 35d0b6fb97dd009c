"""Kernel logistic regression on landmarks: inputs (n, d) → logits (n, K), linear in Nyström features of a kernel.

After C. Williams, M. Seeger, "Using the Nyström method to speed up kernel machines", 2001.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pollux import names
from pollux.geometry import Geometry, Pairwise, resolve
from pollux.geometry.pairwise import is_whole

# Smaller eigenvalues of the kernel of landmarks, relative to the largest, are rounding errors.
_NOTHING = 1e-8


class KernelNetwork(nn.Module):
    """Logits linear in features of a kernel, whose products at the landmarks are the kernel itself.

    Parameters
    ----------
    kernel : Pairwise
        The kernel.
    d, n_clusters, landmarks : int
        Size of an input, number of outputs, and of landmarks.
    """

    landmarks: Tensor
    basis: Tensor
    gamma: Tensor | None
    has_fixed_buffers = True
    """Whether copies that are adapted to the same samples differ in their weights only."""

    def __init__(self, kernel: Pairwise, d: int, n_clusters: int, landmarks: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.register_buffer("landmarks", torch.zeros(landmarks, d))
        self.register_buffer("basis", torch.zeros(landmarks, landmarks))
        self.register_buffer("gamma", torch.ones(()) if kernel.adapt_parameters is not None else None)
        self.linear = nn.Linear(landmarks, n_clusters)

    def adapt(self, samples: Tensor) -> None:
        """Take landmarks, and a bandwidth that was not given, from samples (m, …), at most as many as there are
        landmarks; unused landmarks have no effect."""
        # Duplicates count once.
        at = torch.unique(samples.flatten(1).double(), dim=0)
        kernel = self.kernel.adapt(at)
        matrix = kernel(at)
        values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
        kept = values > _NOTHING * values[-1].clamp_min(0)
        self.landmarks[: len(at)] = at.to(self.landmarks)
        root = (vectors[:, kept] / values[kept].sqrt()) @ vectors[:, kept].mT
        self.basis[: len(at), : len(at)] = root.to(self.basis)
        if self.gamma is not None:
            self.gamma.fill_(kernel.parameters["gamma"])

    def forward(self, inputs: Tensor) -> Tensor:
        bandwidth = {} if self.gamma is None else {"gamma": self.gamma}
        similar = self.kernel.function(inputs.flatten(1), self.landmarks, **{**self.kernel.parameters, **bandwidth})
        logits: Tensor = self.linear(similar @ self.basis)
        return logits


def kernel(
    n_features: int | Sequence[int],
    n_clusters: int,
    *,
    landmarks: int = 100,
    kernel: str | Geometry | Callable[..., Tensor] = "rbf",
    gamma: float | None = None,
) -> KernelNetwork:
    """Kernel logistic regression on landmarks, which training draws from its samples.

    Parameters
    ----------
    n_features : int or shape
        Size of an input; samples of several dimensions are flattened.
    n_clusters : int
        Number of outputs.
    landmarks : int
        Samples that others are compared with.
    kernel : str, Pairwise or callable
        A name of :data:`pollux.geometry.KERNELS`, one with parameters of its own, ``resolve("polynomial", degree=2)``,
        or a function of x (n, d) and y (m, d) that returns (n, m).
    gamma : float, optional
        The parameter γ of the named kernel; by default that of :func:`pollux.geometry.resolve`, for the landmarks.
    """
    d = n_features if isinstance(n_features, int) else math.prod(n_features)
    if not is_whole(landmarks) or landmarks < 1:
        raise ValueError(f"landmarks is a positive whole number, not {landmarks!r}.")
    given: Any = gamma
    if given is not None and not (isinstance(given, numbers.Real) and 0 < float(given) < math.inf):
        raise ValueError(f"gamma is a positive number or None, not {gamma!r}.")
    parameters: dict[str, Any] = {} if gamma is None else {"gamma": gamma}
    found = resolve(kernel, "kernel", **parameters)
    if not isinstance(found, Pairwise):
        raise ValueError(
            f"A kernel model compares samples two by two, and {kernel!r} needs all of them: use a function, or one of "
            f"{', '.join(names.KERNELS)}."
        )
    return KernelNetwork(found, d, n_clusters, int(landmarks))
