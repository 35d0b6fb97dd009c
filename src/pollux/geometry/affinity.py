"""What a geometry hands to an objective: how alike, or how far apart, the samples of a batch are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra
from torch import Tensor


@dataclass(frozen=True)
class Features:
    """A kernel given by explicit features ``values`` (n, r): k(i, j) = values[i] · values[j].

    The n×n matrix is never needed: the mean of a cluster in feature space costs O(nr), and the maximum
    mean discrepancy is a distance between such means. It does not change when all features move together;
    ``centred`` says that their mean is zero already, which keeps their digits.
    """

    values: Tensor
    centred: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def centre(self) -> Features:
        """The same distances between clusters, from features of mean zero."""
        return self if self.centred else Features(self.values - self.values.mean(0), centred=True)


@dataclass(frozen=True, eq=False)
class Paths:
    """Distances between n samples along a graph, without their matrix.

    The n samples are at ``nodes`` (n,) of a symmetric sparse ``graph``, whose values are the lengths of its edges; the
    distance of two is the length of the shortest path, or ``unreachable`` where there is none, which must be
    longer than any path. ``shared`` is a place for what is worked out about the graph: all its parts have it in common.
    """

    graph: scipy.sparse.csr_array
    nodes: Tensor
    unreachable: float
    dtype: torch.dtype = torch.float64
    shared: dict[str, Any] = field(default_factory=dict, repr=False)
    _found: dict[str, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.nodes)

    def part(self, index: Tensor) -> Paths:
        """The same for some of the samples."""
        return replace(self, nodes=self.nodes[index.to(self.nodes.device)])

    def distances(self) -> NDArray[np.float64]:
        """The distances (n, n), for those who need them all; found once."""
        if "distances" not in self._found:
            nodes = self.nodes.cpu().numpy()
            lengths = dijkstra(self.graph, indices=nodes)[:, nodes]
            lengths[np.isinf(lengths)] = self.unreachable
            self._found["distances"] = lengths
        return self._found["distances"]

    def matrix(self) -> Tensor:
        """The distances (n, n) as a tensor, in the precision of the samples."""
        return torch.from_numpy(self.distances()).to(self.nodes.device, self.dtype)


def proportions(sample_weight: Tensor) -> Tensor:
    """Weights (n,) as shares of their sum, in float64; by the largest first, so that no sum overflows."""
    weight = sample_weight.double() / sample_weight.max()
    return weight / weight.sum()


Affinity: TypeAlias = Tensor | Features | Paths
"""A kernel or distance matrix (n, n), a kernel through its features, or distances through their graph."""

Block: TypeAlias = Callable[[Tensor], Affinity]
"""From the index (b,) of a batch to the affinity of its samples."""
