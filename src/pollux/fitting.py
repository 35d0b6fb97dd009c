"""From an estimator's parameters and data to what is trained."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin
from torch import Tensor

from pollux.affinity import Block, Features
from pollux.models import FreeTable
from pollux.objectives import PENALTIES
from pollux.objectives.penalties import Penalty
from pollux.training import Batches, Evaluation

_WHOLE_UP_TO = 1_000
_AUTO_BATCH = 500


class Problem(NamedTuple):
    """n samples as the model, the objective and the weights see them."""

    n: int
    inputs: Callable[[Tensor], Tensor]
    block: Block | None
    sample_weight: Tensor | None

    def batches(self, batch_size: int | str | None) -> Batches:
        """Batches of the samples; all at once for None, and for "auto" where there are few."""
        if batch_size == "auto":
            batch_size = None if self.n <= _WHOLE_UP_TO else _AUTO_BATCH
        size = self.n if batch_size is None else int(batch_size)
        return Batches(self.n, size, self.inputs, self.block, self.sample_weight)


class Numbering(NamedTuple):
    """Clusters by decreasing size, empty ones last."""

    order: Tensor
    in_use: int
    labels: NDArray[np.int64]


def number_clusters(evaluation: Evaluation, problem: Problem, n_clusters: int) -> Numbering:
    weight = None if problem.sample_weight is None else problem.sample_weight.cpu()
    sizes = torch.bincount(evaluation.choice, weight, minlength=n_clusters)
    order = torch.argsort(sizes, descending=True, stable=True)
    labels = torch.argsort(order)[evaluation.choice]
    return Numbering(order, int((sizes > 0).sum()), labels.numpy())


def resolve_penalties(penalties: Mapping[Any, Any] | None) -> list[tuple[Penalty, float]]:
    """Functions and weights from ``{name or function: weight}``."""
    resolved: list[tuple[Penalty, float]] = []
    for penalty, weight in (penalties or {}).items():
        if isinstance(penalty, str) and penalty not in PENALTIES:
            raise ValueError(f"Unknown penalty {penalty!r}. Valid names: {', '.join(PENALTIES)}; or a function.")
        if not isinstance(weight, numbers.Real) or not 0 <= float(weight) < float("inf"):
            raise ValueError(f"The weight of penalty {penalty!r} must be a number of at least 0, not {weight!r}.")
        resolved.append((PENALTIES[penalty] if isinstance(penalty, str) else penalty, float(weight)))
    return resolved


@torch.no_grad()
def start_at_seeds(table: FreeTable, X: Any, random: np.random.RandomState) -> None:
    """Lean each row of a free table towards the nearest of k-means++ seeds."""
    samples = X.reshape(len(X), -1) if isinstance(X, np.ndarray) else X
    n_clusters = table.logits.shape[1]
    seeds, _ = kmeans_plusplus(samples, min(n_clusters, samples.shape[0]), random_state=random)
    nearest = torch.from_numpy(np.asarray(pairwise_distances_argmin(samples, seeds), dtype=np.int64))
    table.logits.add_(torch.nn.functional.one_hot(nearest, n_clusters))


def select(affinity: Any, kept: NDArray[np.bool_]) -> Any:
    """The affinity of the rows that are kept."""
    if affinity is None:
        return None
    if isinstance(affinity, Features):
        return affinity.block(torch.from_numpy(np.flatnonzero(kept)))
    return affinity[kept][:, kept]


def arithmetic(dtype: np.dtype[Any]) -> torch.dtype:
    """The precision that data of this type are computed in: their own, or the one that holds them."""
    return torch.float32 if dtype == np.float32 or dtype.itemsize <= 2 else torch.float64


def check_positive_integer(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer, not {value!r}.")
