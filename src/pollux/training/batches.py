"""Batches: what the loop joins in one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pollux.affinity import Affinity, Block


class Batch(NamedTuple):
    """Samples of one step: what the model sees, how they relate, and their weights."""

    inputs: Tensor
    affinity: Affinity | None
    sample_weight: Tensor | None


class Batches:
    """n samples in batches of nearly equal size, reshuffled each epoch.

    Parameters
    ----------
    n : int
        Number of samples.
    batch_size : int
        Most samples in a batch.
    inputs : callable
        ``index (b,) → (b, …)``, what the model is given.
    block : callable, optional
        ``index (b,) → affinity``, what the objective must know of the samples.
    sample_weight : Tensor of shape (n,), optional
        Their weights.
    """

    def __init__(
        self,
        n: int,
        batch_size: int,
        inputs: Callable[[Tensor], Tensor],
        block: Block | None = None,
        sample_weight: Tensor | None = None,
    ) -> None:
        self.n = n
        self.batch_size = min(n, batch_size)
        self.n_batches = math.ceil(n / batch_size)
        self._inputs = inputs
        self._block = block
        self._sample_weight = sample_weight
        self._whole: Batch | None = None
        self._version = 0

    def epoch(self, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """Each sample once; a single batch is always the same one."""
        if self.n_batches == 1:
            # Made once, or again where a model has written into its inputs.
            if self._whole is None or _version(self._whole.inputs) != self._version:
                self._whole = self._batch(torch.arange(self.n))
                self._version = _version(self._whole.inputs)
            yield self._whole
            return
        # Batches of nearly equal size: a small last one would be a noisy estimate of the objective.
        for index in torch.randperm(self.n, generator=generator).tensor_split(self.n_batches):
            yield self._batch(index)

    def _batch(self, index: Tensor) -> Batch:
        inputs = self._inputs(index)
        with torch.no_grad():
            affinity = None if self._block is None else self._block(index)
        weight = None if self._sample_weight is None else self._sample_weight[index]
        return Batch(inputs, affinity, weight)


def _version(inputs: Tensor) -> int:
    """How often they were written to; tensors made in inference mode do not count it."""
    return -1 if inputs.is_inference() else inputs._version
