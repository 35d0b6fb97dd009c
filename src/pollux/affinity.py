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


def proportions(sample_weight: Tensor) -> Tensor:
    """Weights (n,) as shares of their sum, in float64; by the largest first, so that no sum overflows."""
    weight = sample_weight.double() / sample_weight.max()
    return weight / weight.sum()


Affinity: TypeAlias = Tensor | Features
"""A kernel or distance matrix (n, n), or a kernel through its features."""

Block: TypeAlias = Callable[[Tensor], Affinity]
"""From the index (b,) of a batch to the affinity of its samples."""
