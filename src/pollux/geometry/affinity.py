"""Affinities: kernels or distances between the samples of a batch, from a geometry to an objective."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from pollux.errors import InputError
from pollux.geometry.weak_cache import WeakCache

# Tolerance for the symmetry of a kernel, as a share of its largest entry.
_ROUNDING = 1e-5
_ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class Features:
    """A kernel given by explicit features ``values`` (n, r): k(i, j) = values[i] · values[j].

    The n×n matrix is never needed: the mean of a cluster in feature space costs O(nr), and the maximum
    mean discrepancy is a distance between such means. It is invariant to a shift of all features;
    ``centred`` says that their mean is zero already, which preserves precision.
    """

    values: Tensor
    centred: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.values, Tensor):
            raise TypeError(f"Features are a tensor (n, r), not a {type(self.values).__name__}.")

    def __len__(self) -> int:
        return len(self.values)

    def centre(self) -> Features:
        """The features minus their mean, which gives the same distances between clusters."""
        if self.centred:
            return self
        values = self.values.to(torch.promote_types(self.values.dtype, torch.float32))
        return Features(values - values.mean(0), centred=True)


@dataclass(frozen=True, eq=False)
class Paths:
    """Distances between n samples along a graph, without their matrix.

    The n samples are at ``nodes`` (n,) of a symmetric sparse ``graph``, whose values are the lengths of its edges; the
    distance of two is the length of the shortest path, or ``unreachable`` if there is none, which must be
    longer than any path. ``shared`` caches what is computed from the graph, in common for all subsets of its samples.
    """

    graph: scipy.sparse.csr_array
    nodes: Tensor
    unreachable: float
    dtype: torch.dtype = torch.float64
    shared: dict[str, Any] = field(default_factory=dict, repr=False)
    number: int = field(default=0, init=False, repr=False)
    _found: dict[str, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        # Not id(), which is reused after an object dies: an exported program may outlive this one.
        object.__setattr__(self, "number", secrets.randbits(62))
        all_paths[self.number] = self

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()

    def __len__(self) -> int:
        return len(self.nodes)

    def part(self, index: Tensor) -> Paths:
        """The paths between a subset of the samples."""
        return replace(self, nodes=self.nodes[index.to(self.nodes.device)])

    def distances(self) -> NDArray[np.float64]:
        """The matrix of distances (n, n), computed once."""
        if "distances" not in self._found:
            nodes = self.nodes.cpu().numpy()
            # Older releases of SciPy require int32 indices.
            places = (part.astype(np.int32) for part in (self.graph.indices, self.graph.indptr))
            graph = scipy.sparse.csr_array((self.graph.data, *places), shape=self.graph.shape)
            lengths = dijkstra(graph, indices=nodes)[:, nodes]
            lengths[np.isinf(lengths)] = self.unreachable
            self._found["distances"] = lengths
        return self._found["distances"]

    def matrix(self) -> Tensor:
        """The distances (n, n) as a tensor, in the precision of the samples."""
        return torch.from_numpy(self.distances()).to(self.nodes.device, self.dtype)


all_paths: weakref.WeakValueDictionary[int, Paths] = weakref.WeakValueDictionary()
"""Living instances by number: operators of torch take tensors and numbers only."""


def centre_kernel(kernel: Tensor, dtype: torch.dtype) -> Tensor:
    """The kernel (n, n) centred so that rows have mean zero, in the given dtype; distances between clusters are kept.

    Far from the origin most digits of a kernel are common to all samples, and only the others matter. They are kept by
    centring in float64, which happens, with a check of symmetry, once for each tensor.
    """
    if is_traced() or kernel.requires_grad:
        # The distances do not depend on the means that are subtracted, so these may be constants for the gradient.
        double = kernel.double()
        means = double.detach().mean(0)
        if not is_traced():
            _check_kernel(kernel.detach(), means)
        return (double - means - (means - means.mean())[:, None]).to(dtype)
    return centred_kernels.get(kernel, lambda: _centre_in_parts(kernel, dtype), dtype)


centred_kernels: WeakCache[Tensor] = WeakCache()


def _centre_in_parts(kernel: Tensor, dtype: torch.dtype) -> Tensor:
    means = kernel.mean(0, dtype=torch.float64)
    _check_kernel(kernel, means)
    offsets = (means - means.mean())[:, None]
    centred = torch.empty_like(kernel, dtype=dtype, memory_format=torch.contiguous_format)
    # In blocks of rows: the matrix may be as large as memory allows.
    for start in range(0, len(kernel), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        torch.sub(kernel[part].double() - means, offsets[part], out=centred[part])
    return centred


def _check_kernel(kernel: Tensor, means: Tensor) -> None:
    """Raise an InputError if a kernel (n, n) with these row means (n,) is not symmetric, or not positive on average."""
    if kernel.device.type != "cpu":
        # Reading values would synchronise with other devices.
        return
    tolerance = _ROUNDING * max(map(abs, map(float, kernel.aminmax())))
    parts = [slice(start, start + _ROWS_AT_ONCE) for start in range(0, len(kernel), _ROWS_AT_ONCE)]
    for first, part in enumerate(parts):
        for other in parts[first:]:
            if bool((kernel[part, other] - kernel[other, part].mT).abs().amax() > tolerance):
                raise InputError("An MMD objective needs a symmetric kernel: here k(x, y) and k(y, x) differ.")
    # Σᵢ ‖φ(xᵢ) − φ̄‖²: distances, which are 0 from a sample to itself, make it negative.
    squares = float(kernel.diagonal().sum(dtype=torch.float64) - means.sum())
    if squares < -tolerance * len(kernel):
        raise InputError(
            "An MMD objective needs a kernel, and here samples are farther apart the larger it is. Give distances to a "
            "Wasserstein objective, or make a kernel of them, such as exp(-d**2)."
        )


def is_traced() -> bool:
    """Whether torch is tracing or transforming: then values cannot be inspected, and tensors are not cached."""
    is_recorded = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    return is_recorded or torch._C._are_functorch_transforms_active()


def proportions(sample_weight: Tensor) -> Tensor:
    """Weights (n,) as shares of their sum, in float64; divided by the largest first, so that no sum overflows."""
    weight = sample_weight.double() / sample_weight.max()
    return weight / weight.sum()


Affinity: TypeAlias = Tensor | Features | Paths
"""A kernel or distance matrix (n, n), a kernel given by features, or distances given by a graph."""

Block: TypeAlias = Callable[[Tensor], Affinity]
"""A function from the index (b,) of a batch to the affinity of its samples."""
