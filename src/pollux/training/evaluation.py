"""What a trained module says of samples, without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pollux.affinity import Block, Features
from pollux.objectives.gemini import Gemini
from pollux.training.trainable import run

_ROWS_AT_ONCE = 10_000
_MATRIX_ROWS = 1_000
_IMAGES_AT_ONCE = 500


class Evaluation(NamedTuple):
    """The objective on all samples, and the cluster each prefers (n,)."""

    objective: float
    choice: Tensor


@torch.no_grad()
def log_probabilities(module: nn.Module, inputs: Tensor, n_clusters: int) -> Tensor:
    """log p(y|x), (n, K), of the module in evaluation mode."""
    module.eval()
    # Layers of an image network hold many times the numbers of its input.
    parts = torch.split(inputs, _IMAGES_AT_ONCE if inputs.ndim > 2 else max(1, len(inputs)))
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
) -> Evaluation:
    """The objective of the module on n samples.

    It is exact up to 10,000 samples, or 1,000 where the affinity is a matrix; beyond that it is the mean over
    random batches of about those sizes, always the same ones, so that models can be compared.
    """
    rows_at_once = _ROWS_AT_ONCE
    if block is not None and not isinstance(block(torch.arange(min(n, 2))), Features):
        rows_at_once = _MATRIX_ROWS
    order = torch.arange(n)
    if n > rows_at_once:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    choice = torch.empty(n, dtype=torch.long)
    shares = torch.ones(n) if sample_weight is None else sample_weight.cpu() / sample_weight.max().cpu()
    mean = seen = 0.0
    generator = torch.Generator().manual_seed(0)
    for index in order.tensor_split(-(-n // rows_at_once)):
        log_p = log_probabilities(module, inputs(index), n_clusters)
        weight = None if sample_weight is None else sample_weight[index]
        affinity = None if block is None else block(index)
        value = objective(log_p, affinity, sample_weight=weight, generator=generator)
        share = float(shares[index].sum())
        seen += share
        mean += (float(value) - mean) * (share / seen if share > 0 else 0)
        choice[index] = log_p.argmax(-1).cpu()
    return Evaluation(mean, choice)
