"""A soft decision tree: cuts of each feature, leaves by their product, inputs (n, d) → logits (n, K).

After Y. Yang, I. G. Morillo, T. M. Hospedales, "Deep neural decision trees", 2018; such a tree
that is trained by a GEMINI is GemClus's Douglas.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pollux.errors import InputError
from pollux.geometry.pairwise import is_whole

_MOST_LEAVES = 4_096


class SoftTreeNetwork(nn.Module):
    """Soft bins of features between cuts; the membership of a sample in a leaf is the product of its bins.

    Parameters
    ----------
    features : sequence of int
        The features that are cut.
    n_clusters, cuts : int
        Clusters, and cuts of each feature.
    temperature : float
        How soft the bins are, in the units of the inputs.
    """

    def __init__(self, features: Sequence[int], n_clusters: int, cuts: int, temperature: float) -> None:
        super().__init__()
        self.features, self.temperature = list(features), temperature
        # Random cuts, around the mean of standardised features.
        spread = torch.linspace(-1, 1, cuts) if cuts > 1 else torch.zeros(1)
        self.cuts = nn.Parameter(spread + 0.3 * torch.randn(len(self.features), cuts))
        self.leaves = nn.Parameter(torch.randn((cuts + 1) ** len(self.features), n_clusters))

    def forward(self, inputs: Tensor) -> Tensor:
        cuts = self.cuts if self.cuts.shape[1] == 1 else self.cuts.sort(-1).values
        below = torch.cat([cuts.new_zeros(len(self.features), 1), cuts.cumsum(-1)], 1)
        slopes = torch.arange(1, below.shape[1] + 1, dtype=inputs.dtype, device=inputs.device)
        # Bin k has the largest score between the k-th cut and the next.
        scores = (inputs.flatten(1)[:, self.features, None] * slopes - below) / self.temperature
        bins = scores.softmax(-1)
        reached = bins[:, 0]
        for feature in range(1, len(self.features)):
            reached = (reached[:, :, None] * bins[:, feature, None, :]).flatten(1)
        return reached @ self.leaves

    def boxes(self) -> list[tuple[int, tuple[tuple[float, float], ...]]]:
        """The tree at temperature zero: outputs and intervals (low, high] of features, with adjacent leaves merged."""
        cuts = self.cuts.detach().cpu().sort(-1).values.tolist()
        count = len(cuts[0]) + 1
        choices = self.leaves.detach().cpu().argmax(1).tolist()
        ranges = [tuple((b, b + 1) for b in leaf) for leaf in itertools.product(range(count), repeat=len(cuts))]
        found = list(zip(choices, ranges, strict=True))
        for feature in range(len(cuts)):
            # Adjacent leaves of one cluster that differ in this feature only are merged.
            merged: dict[tuple[int, tuple[tuple[int, int], ...]], list[tuple[int, int]]] = {}
            for choice, box in found:
                merged.setdefault((choice, box[:feature] + box[feature + 1 :]), []).append(box[feature])
            found = []
            for (choice, others), spans in merged.items():
                joined: list[tuple[int, int]] = []
                for low, high in sorted(spans):
                    if joined and joined[-1][1] == low:
                        joined[-1] = (joined[-1][0], high)
                    else:
                        joined.append((low, high))
                found += [(choice, (*others[:feature], span, *others[feature:])) for span in joined]
        edges = [[-math.inf, *own, math.inf] for own in cuts]
        return [
            (choice, tuple((edges[f][low], edges[f][high]) for f, (low, high) in enumerate(box)))
            for choice, box in found
        ]


def soft_tree(
    n_features: int | Sequence[int],
    n_clusters: int,
    *,
    cuts: int = 1,
    temperature: float = 0.1,
    features: Sequence[int] | None = None,
) -> SoftTreeNetwork:
    """A soft decision tree (Douglas).

    Parameters
    ----------
    n_features : int or shape
        Size of an input; samples of several dimensions are flattened.
    n_clusters : int
        Number of outputs.
    cuts : int
        Cuts of each feature.
    temperature : float
        How soft the cuts are, in the units of the inputs.
    features : sequence of int, optional
        The features that are cut; all by default. There are at most 4,096 leaves, (cuts + 1) to the number of features.
    """
    d = n_features if isinstance(n_features, int) else math.prod(n_features)
    if not is_whole(cuts) or cuts < 1:
        raise ValueError(f"cuts is a positive whole number, not {cuts!r}.")
    cuts = int(cuts)
    given: Any = temperature
    if not isinstance(given, numbers.Real) or not 0 < float(given) < math.inf:
        raise ValueError(f"temperature is a positive number, not {temperature!r}.")
    chosen = list(range(d)) if features is None else list(features)
    if (
        not chosen
        or not all(map(is_whole, chosen))
        or len(set(chosen)) < len(chosen)
        or not all(0 <= feature < d for feature in chosen)
    ):
        raise ValueError(f"features are different numbers from 0 to {d - 1}, at least one; not {features!r}.")
    chosen = list(map(int, chosen))
    most = int(math.log(_MOST_LEAVES, cuts + 1) + 1e-9)
    if len(chosen) > most:
        raise InputError(
            f"A soft tree of {len(chosen)} features with cuts={cuts} has {cuts + 1}^{len(chosen)} leaves: name at most "
            f"{most} of them, SoftTree(features=[…]), such as those of select_features; or use GeminiTree."
        )
    return SoftTreeNetwork(chosen, n_clusters, cuts, temperature)
