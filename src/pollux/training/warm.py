"""A start at labels: a model first learns to say what another clustering says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pollux.training.optimisers import make_optimiser
from pollux.training.trainable import run

_FEWEST_STEPS = 100
# Labels of k-means are often wrong: a model that is sure of them has little left to learn.
_SMOOTHING = 0.1


def learn_labels(
    modules: Sequence[nn.Module],
    n_clusters: int,
    labels: Sequence[Tensor],
    inputs: Callable[[Tensor], Tensor],
    batch_size: int,
    learning_rate: float,
    sample_weight: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> None:
    """Train each module to predict its own labels (n,), by cross-entropy: an epoch, or 100 steps where it has fewer."""
    for module, own in zip(modules, labels, strict=True):
        optimiser = make_optimiser("adam", module.parameters(), learning_rate)
        module.train()
        steps, n_batches = 0, -(-len(own) // batch_size)
        while steps < max(n_batches, _FEWEST_STEPS):
            for index in torch.randperm(len(own), generator=generator).tensor_split(n_batches):
                batch = inputs(index)
                logits = run(module, batch, n_clusters)
                loss = nn.functional.cross_entropy(
                    logits, own[index].to(batch.device), reduction="none", label_smoothing=_SMOOTHING
                )
                weight = torch.ones_like(loss) if sample_weight is None else sample_weight[index].to(loss)
                optimiser.zero_grad()
                ((loss * weight).sum() / weight.sum()).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                steps += 1
