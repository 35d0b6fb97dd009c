"""A hierarchy of clusters: merged by the loss of the objective."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pollux.geometry.affinity import Affinity
from pollux.objectives import Gemini

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Maximum number of log-probabilities that are compared at once.
_MOST_NUMBERS = 20_000_000


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A tree of clusters: the two whose merge loses least of the objective are merged, until one is left.

    Parameters
    ----------
    linkage : array of shape (K − 1, 4)
        As in SciPy: the two clusters that are merged, the height, and the number of the model's clusters below. Those
        are 0 … K−1; cluster K + i is the result of merge i. The height is the loss of all merges so far, as a share of
        the objective of all clusters.
    values : array of shape (K,)
        The objective with K, K − 1, …, 1 clusters.
    labels : array of shape (n,)
        The cluster of each sample.
    """

    linkage: NDArray[np.float64]
    values: NDArray[np.float64]
    labels: NDArray[np.int64] = field(repr=False)

    def __repr__(self) -> str:
        K = len(self.values)
        persistent = f": {self.layers[0]} groups last longest" if K > 2 else ""
        lines = [f"Hierarchy of {K} cluster{'s' if K > 1 else ''}{persistent}"]
        costs = np.diff(np.append(0.0, self.linkage[:, 2]))
        for merge, ((a, b, _, _), cost) in enumerate(zip(self.linkage, costs, strict=True)):
            lines.append(f"  {int(a)} and {int(b)} become {K + merge}, which costs {cost:.1%} of the objective")
        return "\n".join(lines)

    def groups(self, k: int) -> NDArray[np.int64]:
        """The group (K,), out of k, of each cluster; groups are numbered by decreasing weight."""
        K = len(self.values)
        if not 1 <= k <= K:
            raise ValueError(f"There are {K} clusters: they can be cut into 1 to {K} groups, not {k!r}.")
        node = np.arange(2 * K - 1)
        for merge, (a, b, _, _) in enumerate(self.linkage[: K - k]):
            node[(node == node[int(a)]) | (node == node[int(b)])] = K + merge
        weight = dict.fromkeys(node[:K].tolist(), 0.0)
        sizes = np.bincount(self.labels, minlength=K)
        for cluster, size in enumerate(sizes):
            weight[int(node[cluster])] += float(size)
        numbers = {each: i for i, each in enumerate(sorted(weight, key=lambda each: (-weight[each], each)))}
        return np.array([numbers[int(each)] for each in node[:K]])

    def cut(self, k: int) -> NDArray[np.int64]:
        """The labels (n,) of the samples in k groups of clusters."""
        return self.groups(k)[self.labels]

    @property
    def layers(self) -> list[int]:
        """Numbers of groups, 2 … K, the most persistent first: where the next merge costs most beyond the last one."""
        costs = np.diff(np.append(0.0, self.linkage[:, 2]))
        # With k groups, the next merge leads to k − 1.
        gap = {len(self.values) - merge: costs[merge] for merge in range(len(costs))}
        before = {k: gap.get(k + 1, 0.0) for k in gap}
        return sorted(gap, key=lambda k: before[k] - gap[k])

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the tree with scipy's dendrogram."""
        if len(self.values) < 2:
            raise ValueError("There is one cluster, and no merge to draw: a tree is of at least two clusters.")
        import matplotlib.pyplot as plt
        from scipy.cluster.hierarchy import dendrogram

        ax = plt.subplots(layout="constrained")[1] if ax is None else ax
        dendrogram(self.linkage, ax=ax, color_threshold=0, above_threshold_color="#23527c")
        ax.set(xlabel="cluster", ylabel="share of the objective that merges cost")
        return ax


@torch.no_grad()
def build_hierarchy(
    log_p: Tensor, affinity: Affinity | None, objective: Gemini, labels: NDArray[np.int64]
) -> Hierarchy:
    """Build the hierarchy of clusters from log p(y|x) (n, K); a merge adds the probabilities of two clusters."""
    K = log_p.shape[1]
    own, names = log_p, list(range(K))
    size = dict.fromkeys(names, 1)
    values = [float(objective(own, affinity))]
    linkage: list[tuple[float, float, float, float]] = []
    height = 0.0
    while len(names) > 1:
        pairs = torch.triu_indices(len(names), len(names), 1).T
        found = [
            objective(torch.stack([_merged(own, a, b) for a, b in part.tolist()]), affinity)
            for part in torch.split(pairs, max(1, _MOST_NUMBERS // own.numel()))
        ]
        best = int(torch.cat(found).argmax())
        a, b = pairs[best].tolist()
        values.append(float(torch.cat(found)[best]))
        # Heights must not decrease, by rounding or because some objectives can rise at a merge.
        height = max(height, (values[0] - values[-1]) / (abs(values[0]) or 1.0))
        both = size[names[a]] + size[names[b]]
        linkage.append((names[a], names[b], height, both))
        own = _merged(own, a, b)
        size[K + len(linkage) - 1] = both
        names = [name for i, name in enumerate(names) if i not in (a, b)] + [K + len(linkage) - 1]
    return Hierarchy(np.array(linkage, dtype=np.float64).reshape(-1, 4), np.array(values), labels)


def _merged(log_p: Tensor, a: int, b: int) -> Tensor:
    """log p(y|x) (n, K − 1) after clusters a < b are merged into the last one."""
    kept = [k for k in range(log_p.shape[1]) if k not in (a, b)]
    return torch.cat([log_p[:, kept], torch.logaddexp(log_p[:, a], log_p[:, b])[:, None]], 1)
