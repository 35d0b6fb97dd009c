"""Outlier scores: the distance of samples to the nearest of a few prototypes of the training samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from pollux.data.rows import Rows
from pollux.geometry.centres import iterate_centres
from pollux.threads import threads_for_products

_MOST_PROTOTYPES, _SAMPLES_OF_A_PROTOTYPE = 128, 10
# A smaller group may be a handful of outliers that lie together.
_FEWEST_OF_A_PROTOTYPE = 5
NEAREST = 5
"""Number of nearest prototypes that a sample is compared with."""
_ITERATIONS = 4
SAMPLED = 5_000
"""Maximum number of samples from which prototypes are learned."""
_MOST_ELEMENTS = 4_000_000
_LEVELS = 1_001


@dataclass(frozen=True, eq=False)
class Prototypes:
    """Means of small groups of samples, as the network sees them, and quantiles of the scores of training samples.

    Distances to the means of clusters would be simpler, but miss more outliers: clusters are rarely round, and
    outliers that form a cluster of their own lie near its mean. Dividing by the spread of the cluster makes it
    worse, since a cluster that contains outliers is wide (docs/outliers.md has the comparison).

    Parameters
    ----------
    centre, unit : Tensors of shapes (d,) and ()
        Samples x are transformed to (x − centre) / unit.
    means : Tensor of shape (m, d)
        The prototypes. Each is the mean of five samples or more, so that none is a row of the data.
    levels : Tensor of shape (1001,)
        Quantiles of the scores of the training samples.
    """

    centre: Tensor
    unit: Tensor
    means: Tensor
    levels: Tensor

    @staticmethod
    def learn(rows: Rows) -> Prototypes:
        """Learn prototypes by some steps of k-means from random samples (n, …), always the same ones."""
        d = max(1, math.prod(rows.shape))
        samples = rows.sample(min(SAMPLED, max(1, _MOST_ELEMENTS // d))).flatten(1).cpu().double()
        centre = samples.mean(0)
        # Scaled to unit size, so that squares do not overflow.
        unit = (samples - centre).abs().max()
        unit = unit if unit > 0 else torch.ones_like(unit)
        points = (samples - centre) / unit
        count = max(1, min(_MOST_PROTOTYPES, len(points) // _SAMPLES_OF_A_PROTOTYPE))
        means = points[torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[:count]]
        # Single precision is enough to form groups.
        single = points.float().numpy()
        squares, weight = np.square(single).sum(1, dtype=np.float64), np.ones(len(single))
        labels, _ = iterate_centres(single, squares, weight, means.float().numpy(), 0.0, _ITERATIONS)
        groups = torch.from_numpy(labels)
        sizes = torch.bincount(groups, minlength=len(means))
        means = torch.zeros_like(means).index_add_(0, groups, points) / sizes.clamp(min=1)[:, None]
        means = means[sizes >= min(_FEWEST_OF_A_PROTOTYPE, int(sizes.max()))]
        # Scaled so that a typical sample has the score −1.
        found = Prototypes(centre, unit, means, torch.zeros(_LEVELS, dtype=torch.float64))
        scores = found._score(points)
        typical = -float(scores.median())
        typical = typical if typical > 0 else 1.0
        levels = torch.quantile(scores / typical, torch.linspace(0, 1, _LEVELS, dtype=torch.float64))
        return Prototypes(centre, unit * typical, means / typical, levels)

    def score(self, samples: Tensor) -> Tensor:
        """Minus the mean distance (n,) of samples (n, …) to their five nearest prototypes; −1 is typical."""
        return self._score((samples.flatten(1).cpu().double() - self.centre) / self.unit)

    def _score(self, points: Tensor) -> Tensor:
        with threads_for_products(len(points) * self.means.numel()):
            nearest = torch.cdist(points, self.means).topk(min(NEAREST, len(self.means)), largest=False).values
        # A sample so far away that its square overflows has an infinite distance.
        return -nearest.mean(1).nan_to_num(torch.inf, posinf=torch.inf)

    def are_few_for(self, n: int) -> bool:
        """Whether n samples would allow many more prototypes."""
        return min(_MOST_PROTOTYPES, n // _SAMPLES_OF_A_PROTOTYPE) > 2 * len(self.means)

    def threshold(self, share: float) -> float:
        """The score below which this share of the training samples lies."""
        if not 0 < share < 1:
            raise ValueError(f"outliers are a share of the samples, between 0 and 1, such as 0.02; not {share!r}.")
        place = share * (_LEVELS - 1)
        low = min(int(place), _LEVELS - 2)
        return float(torch.lerp(self.levels[low], self.levels[low + 1], place - low))

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def check(self, d: int) -> None:
        """Raise a ValueError if these cannot be prototypes of samples with d features."""
        shapes = {"centre": (d,), "unit": (), "means": (max(1, len(self.means)), d), "levels": (_LEVELS,)}
        for name, value in self.tensors().items():
            is_whole = value.dtype == torch.float64 and tuple(value.shape) == shapes[name]
            if not (is_whole and bool(value.isfinite().all())):
                raise ValueError(f"the {name} of the prototypes are of other samples, or not finite")
        if not bool(self.unit > 0) or bool((self.levels.diff() < 0).any()):
            raise ValueError("the prototypes have no unit, or quantiles that fall")
