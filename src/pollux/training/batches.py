"""Batches: what the loop joins in one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
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
    """n samples in batches of nearly equal size, reshuffled each epoch, or after several.

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
    reshuffle_every : int
        Epochs for which batches keep their samples, and their affinity with whatever an objective has learned about
        it; only their order changes.
    """

    def __init__(
        self,
        n: int,
        batch_size: int,
        inputs: Callable[[Tensor], Tensor],
        block: Block | None = None,
        sample_weight: Tensor | None = None,
        reshuffle_every: int = 1,
    ) -> None:
        self.n = n
        self.batch_size = min(n, batch_size)
        self.n_batches = math.ceil(n / batch_size)
        self._inputs = inputs
        self._block = block
        self._sample_weight = sample_weight
        self._whole: Batch | None = None
        self._version = 0
        self._reshuffle_every = reshuffle_every
        self._epochs = 0
        self._parts: tuple[Tensor, ...] = ()
        self._affinities: dict[int, Affinity | None] = {}

    def epoch(self, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """Each sample once; a single batch is always the same one."""
        if self.n_batches == 1:
            # Made once, or again where a model has written into its inputs.
            if self._whole is None or _version(self._whole.inputs) != self._version:
                self._whole = self._batch(torch.arange(self.n))
                self._version = _version(self._whole.inputs)
            yield self._whole
            return
        order: Iterable[int] = range(self.n_batches)
        if self._epochs % self._reshuffle_every == 0:
            # Batches of nearly equal size: a small last one would be a noisy estimate of the objective.
            self._parts = torch.randperm(self.n, generator=generator).tensor_split(self.n_batches)
            self._affinities = {}
        else:
            order = torch.randperm(self.n_batches, generator=generator).tolist()
        self._epochs += 1
        for part in order:
            yield self._batch(self._parts[part], part)

    def _batch(self, index: Tensor, part: int = 0) -> Batch:
        inputs = self._inputs(index)
        weight = None if self._sample_weight is None else self._sample_weight[index]
        return Batch(inputs, self._affinity(index, part), weight)

    @torch.no_grad()
    def _affinity(self, index: Tensor, part: int) -> Affinity | None:
        if self._block is None or part in self._affinities:
            return self._affinities.get(part)
        affinity = self._block(index)
        if self._reshuffle_every > 1:
            self._affinities[part] = affinity
        return affinity


def _version(inputs: Tensor) -> int:
    """How often they were written to; tensors made in inference mode do not count it."""
    return -1 if inputs.is_inference() else inputs._version
