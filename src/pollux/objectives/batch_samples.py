"""The samples of a batch, which are all in this process or distributed over several.

Objectives delegate all operations over samples to ``BatchSamples``, so that each formula is written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pollux.errors import InputError
from pollux.geometry.affinity import Affinity, Features, Paths, proportions
from pollux.ranks import Ranks

NO_WEIGHT = "sample_weight is zero for all samples: at least one of them must count."


class BatchSamples:
    """A batch whose samples are all in this process."""

    def log_shares(self, log_p: Tensor, sample_weight: Tensor | None) -> Tensor:
        """log p(x) of the local samples (n,), in the precision of log_p (…, n, K)."""
        if sample_weight is None:
            n = log_p.shape[-2]
            return log_p.new_full((n,), -math.log(n))
        return _log(proportions(sample_weight), log_p)

    def log_sum(self, log_joint: Tensor) -> Tensor:
        """log Σ exp over all samples: (…, n, K) → (…, K)."""
        return log_joint.logsumexp(-2)

    def same(self, tensor: Tensor) -> Tensor:
        """A random tensor, made the same in all processes."""
        return tensor

    def sums(self, *partial: Tensor) -> tuple[Tensor, ...]:
        """Sums over all samples, from sums over the local ones."""
        return partial

    def whole(self, rows: Tensor) -> Tensor:
        """Rows over all samples, from rows over the local ones."""
        return rows

    def own(self, matrix: Tensor, dim: int) -> Tensor:
        """The rows or columns of the local samples in a matrix (n, n) of all samples."""
        return matrix

    def own_columns_of_zeros(self, columns: Tensor) -> Tensor:
        """A matrix (n, n) of all samples with these columns for the local samples, and zeros elsewhere."""
        return columns

    def centre(self, features: Features) -> Features:
        """The features minus their mean over all samples."""
        return features.centre()

    def whole_affinity(self, affinity: Affinity | None) -> Affinity | None:
        """The affinity of all samples."""
        return affinity

    def share_out(self, cost: Callable[..., Tensor], p: Tensor, q: Tensor, affinity: Affinity) -> Tensor:
        """cost(p, q, affinity) (…) of many pairs of rows p, q (…, n), broadcast; the pairs are split over processes."""
        return cost(p, q, affinity)


LOCAL = BatchSamples()


class DistributedSamples(BatchSamples):
    """A batch whose samples are distributed over several processes, with ``sizes`` of them in each."""

    def __init__(self, ranks: Ranks, sizes: list[int], weights: list[tuple[float, float]]) -> None:
        self.ranks = ranks
        self.sizes = sizes
        self.n = sum(sizes)
        self._start = sum(sizes[: ranks.rank])
        # The largest weight in each process, and the sum of its weights as a multiple of that.
        self._weights = weights

    @classmethod
    def meet(
        cls,
        ranks: Ranks,
        log_p: Tensor,
        affinity: Affinity | None,
        sample_weight: Tensor | None,
        error: Exception | None,
    ) -> DistributedSamples:
        """Exchange sizes and weights. An error in one process, or a difference between them, is raised in all.

        Parameters
        ----------
        log_p, affinity, sample_weight
            Those of this process; used only if there is no error.
        error : Exception, optional
            What is wrong with them, if anything.
        """
        numbers = [0.0] * 8
        if error is None:
            *batch, n, K = log_p.shape
            of_all = len(affinity) if isinstance(affinity, (Tensor, Paths)) else -1
            with_gradient = torch.is_grad_enabled() and log_p.requires_grad
            kind = (K, math.prod(batch), of_all, sample_weight is not None, with_gradient)
            numbers = [n + 1, *kind, *_weight(sample_weight)]
        table = ranks.gather(torch.tensor([numbers], dtype=torch.float64), sizes=[1] * ranks.size).tolist()
        if not all(row[0] for row in table):
            ranks.raise_together(error)
        if any(row[1:6] != table[0][1:6] for row in table):
            asked = "clusters, models, samples of the affinity, whether there are weights, whether there is a gradient"
            has = "; ".join(f"process {rank}: {[int(number) for number in row[1:6]]}" for rank, row in enumerate(table))
            raise ValueError(f"The processes differ in what they have ({asked}): {has}.")
        sizes = [int(row[0]) - 1 for row in table]
        if not sum(sizes):
            raise ValueError("None of the processes has a sample.")
        if table[0][4] and not any(row[6] for row in table):
            raise InputError(NO_WEIGHT)
        return cls(ranks, sizes, [(row[6], row[7]) for row in table])

    def log_shares(self, log_p: Tensor, sample_weight: Tensor | None) -> Tensor:
        if sample_weight is None:
            return log_p.new_full((log_p.shape[-2],), -math.log(self.n))
        most = max(largest for largest, _ in self._weights)
        total = sum(largest / most * multiple for largest, multiple in self._weights)
        return _log(sample_weight.double() / most / total, log_p)

    def log_sum(self, log_joint: Tensor) -> Tensor:
        each = self.ranks.gather(log_joint.logsumexp(-2)[None], 0, sizes=[1] * self.ranks.size)
        return each.logsumexp(0)

    def same(self, tensor: Tensor) -> Tensor:
        return self.ranks.broadcast(tensor)

    def sums(self, *partial: Tensor) -> tuple[Tensor, ...]:
        # In one message: with small tensors the number of messages is what costs.
        total = self.ranks.sum(torch.cat([part.flatten() for part in partial]))
        parts = torch.split(total, [part.numel() for part in partial])
        return tuple(whole.reshape(part.shape) for whole, part in zip(parts, partial, strict=True))

    def whole(self, rows: Tensor) -> Tensor:
        return self.ranks.gather(rows, -1, sizes=self.sizes).contiguous()

    def own(self, matrix: Tensor, dim: int) -> Tensor:
        return matrix.narrow(dim, self._start, self.sizes[self.ranks.rank])

    def own_columns_of_zeros(self, columns: Tensor) -> Tensor:
        behind = self.n - self._start - columns.shape[-1]
        return torch.nn.functional.pad(columns, (self._start, behind))

    def centre(self, features: Features) -> Features:
        if features.centred:
            return features
        mean = self.ranks.sum(features.values.sum(0)) / self.n
        return Features(features.values - mean, centred=True)

    def whole_affinity(self, affinity: Affinity | None) -> Affinity | None:
        if not isinstance(affinity, Features):
            return affinity
        return Features(self.ranks.gather(affinity.values, 0, sizes=self.sizes), affinity.centred)

    def share_out(self, cost: Callable[..., Tensor], p: Tensor, q: Tensor, affinity: Affinity) -> Tensor:
        p, q = torch.broadcast_tensors(p, q)  # type: ignore[no-untyped-call]
        own = slice(self.ranks.rank, None, self.ranks.size)
        # Each process always gets the same pairs, so that it can start from their last solutions.
        costs = p.new_zeros(p.shape[:-1].numel())
        costs[own] = cost(p.flatten(0, -2)[own], q.flatten(0, -2)[own], affinity)
        return self.ranks.sum(costs).reshape(p.shape[:-1])


def _weight(sample_weight: Tensor | None) -> tuple[float, float]:
    """The largest weight, and the sum of all as a multiple of it; zeros if there are no samples."""
    if sample_weight is None or not len(sample_weight):
        return 0.0, 0.0
    largest = float(sample_weight.max())
    return (largest, float((sample_weight.double() / largest).sum())) if largest else (0.0, 0.0)


def _log(shares: Tensor, log_p: Tensor) -> Tensor:
    return shares.log().to(log_p.dtype).clamp_min(torch.finfo(log_p.dtype).min / 8)
