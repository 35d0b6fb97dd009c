"""What a geometry hands to an objective: how alike, or how far apart, the samples of a batch are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor


@dataclass(frozen=True)
class Features:
    """A kernel given by explicit features ``values`` (n, r): k(i, j) = values[i] · values[j].

    The n×n matrix is never needed: the mean of a cluster in feature space costs O(nr), and the maximum
    mean discrepancy is a distance between such means.
    """

    values: Tensor

    def __len__(self) -> int:
        return len(self.values)

    def block(self, index: Tensor) -> Features:
        """The same kernel on the samples of ``index``."""
        return Features(self.values[index])


Affinity: TypeAlias = Tensor | Features
"""A kernel or distance matrix (n, n), or a kernel through its features."""

Block: TypeAlias = Callable[[Tensor], Affinity]
"""From the index (b,) of a batch to the affinity of its samples."""
