"""What a trained module predicts for samples, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pollux.geometry.affinity import Affinity, Block
from pollux.objectives.gemini import Gemini
from pollux.ranks import Ranks
from pollux.threads import threads_for
from pollux.training.trainable import run

ROWS_AT_ONCE = 10_000
MATRIX_ROWS = 1_000
_IMAGES_AT_ONCE = 500


class Evaluation(NamedTuple):
    """The objective on all samples, the weight of each cluster (K,), and the cluster of each sample (n,).

    Streamed samples have no clusters of their own.
    """

    objective: float
    sizes: Tensor
    choice: Tensor | None


@torch.no_grad()
def log_probabilities(module: nn.Module, inputs: Tensor, n_clusters: int) -> Tensor:
    """log p(y|x), (n, K), of the module in evaluation mode."""
    module.eval()
    # Layers of an image network hold many times the numbers of its input.
    parts = torch.split(inputs, _IMAGES_AT_ONCE) if inputs.ndim > 2 else (inputs,)
    with threads_for(module, len(parts[0])):
        return torch.cat([run(module, part, n_clusters) for part in parts]).log_softmax(-1)


@torch.no_grad()
def evaluate(
    module: nn.Module,
    n_clusters: int,
    n: int,
    inputs: Callable[[Tensor], Tensor],
    objective: Gemini,
    block: Block | None,
    sample_weight: Tensor | None,
    ranks: Ranks | None = None,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Evaluation:
    """The objective of the module on n samples in memory.

    It is exact up to ``rows_at_once`` samples; beyond that it is the mean over random batches of about that size,
    always the same ones, so that models can be compared. Several processes share the batches out.
    """
    order = torch.arange(n)
    if n > rows_at_once:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    parts = order.tensor_split(-(-n // rows_at_once))
    choice = torch.zeros(n, dtype=torch.long)
    shares = torch.ones(n) if sample_weight is None else sample_weight.cpu() / sample_weight.max().cpu()
    mean = Mean()
    with threads_for(module, len(parts[0])):
        for index in parts if ranks is None else parts[ranks.rank :: ranks.size]:
            log_p = log_probabilities(module, inputs(index), n_clusters)
            weight = None if sample_weight is None else sample_weight[index]
            mean.add(objective, log_p, None if block is None else block(index), weight, float(shares[index].sum()))
            choice[index] = log_p.argmax(-1).cpu()
    value = mean.over(ranks)
    if ranks is not None:
        choice = ranks.sum(choice)
    weights = None if sample_weight is None else sample_weight.cpu()
    return Evaluation(value, torch.bincount(choice, weights, minlength=n_clusters), choice)


@torch.no_grad()
def evaluate_batches(
    module: nn.Module,
    n_clusters: int,
    batches: Iterable[tuple[Tensor, Affinity | None]],
    objective: Gemini,
    ranks: Ranks | None = None,
) -> Evaluation:
    """The objective of the module on streamed samples in batches, with their affinity; each process has its own."""
    mean, sizes = Mean(), torch.zeros(n_clusters, dtype=torch.long)
    for inputs, affinity in batches:
        with threads_for(module, len(inputs)):
            log_p = log_probabilities(module, inputs, n_clusters)
            mean.add(objective, log_p, affinity, None, float(len(inputs)))
            sizes += torch.bincount(log_p.argmax(-1).cpu(), minlength=n_clusters)
    return Evaluation(mean.over(ranks), sizes if ranks is None else ranks.sum(sizes), None)


class Mean:
    """The mean of an objective over batches, by their weights."""

    def __init__(self) -> None:
        self._mean = self._seen = 0.0
        self._generator = torch.Generator().manual_seed(0)

    def add(
        self, objective: Gemini, log_p: Tensor, affinity: Affinity | None, sample_weight: Tensor | None, share: float
    ) -> None:
        """One more batch, of so much weight."""
        value = float(objective(log_p, affinity, sample_weight=sample_weight, generator=self._generator))
        self._seen += share
        self._mean += (value - self._mean) * (share / self._seen if share > 0 else 0)

    def over(self, ranks: Ranks | None) -> float:
        """The mean over the batches of all processes."""
        if ranks is None:
            return self._mean
        total, seen = ranks.sum(torch.tensor([self._mean * self._seen, self._seen], dtype=torch.float64)).tolist()
        return float(total / seen) if seen else 0.0
