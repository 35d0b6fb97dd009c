"""Batches of samples in memory, of a stream and of a loader: in epochs, in an order that can be resumed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pollux.data.rows import Several
from pollux.data.samples import LOADED_ROWS, Loader
from pollux.data.shuffling import BatchSizes, shuffled
from pollux.data.streams import Stream
from pollux.errors import InputError
from pollux.geometry.affinity import Affinity, Block, Features
from pollux.ranks import Ranks
from pollux.threads import iterate_drawing

# Maximum size of all samples if they are stored as one batch from which others are selected.
_GROUPED_NUMBERS = 8_000_000


class Batch(NamedTuple):
    """The samples of a step: inputs of the model, affinity, and weights.

    With several processes each has its own samples, and their features; a matrix is of the samples of all.
    """

    inputs: Any
    affinity: Affinity | None
    sample_weight: Tensor | None
    sizes: tuple[int, ...] | None = None
    """Number of samples in each process, if known."""
    spacing: Tensor | None = None
    """Distance of each sample to its 10th nearest neighbour, if a penalty needs it."""
    targets: Tensor | None = None
    """Labels for a supervised step."""
    order: Tensor | None = None
    """With ``ends``: indices of several batches ``order[:ends[0]]``, ``order[ends[0]:ends[1]]``, … of the samples."""
    ends: Tensor | None = None


class Batches(Protocol):
    """Samples in batches, an epoch at a time, in an order that can be resumed in the middle of an epoch.

    Attributes
    ----------
    batch_size : int
        Maximum number of samples in a batch, over all processes.
    n_batches : int or None
        Number of batches in an epoch, if known.
    """

    batch_size: int
    n_batches: int | None = None

    def epoch(self, generator: torch.Generator | None = None, start: int = 0) -> Iterator[Any]:
        """Iterate over all samples once. With ``start`` > 0 an interrupted epoch is resumed after that many batches."""

    def groups(self, generator: torch.Generator | None, start: int, most: int) -> Iterator[tuple[Any, int]]:
        """The batches of :meth:`epoch` with their number: at most ``most`` together, or with 0 single ones only."""
        for batch in self.epoch(generator, start):
            yield batch, 1

    @property
    def repeats(self) -> bool:
        """Whether :meth:`repeat` can repeat a single batch."""
        return False

    def repeat(self, times: int) -> Any:
        """The only batch of an epoch, repeated, in the form in which :meth:`groups` gives several."""
        return None

    def example(self, rows: int) -> Any:
        """At most ``rows`` samples, to try a model on."""

    def forget(self) -> None:
        """Drop what an objective has cached about batches. By default nothing is stored."""
        return

    @property
    def remembers(self) -> bool:
        """Whether the next batch has something that an objective cached about it in an earlier epoch."""
        return False

    def state(self) -> dict[str, Any]:
        """The state from which :meth:`load_state` can resume the epoch with the same batches."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume the epoch of a :meth:`state`."""


class RowBatches(Batches):
    """n samples in batches of nearly equal size, reshuffled after each epoch, or after several.

    Parameters
    ----------
    n : int
        Number of samples.
    batch_size : int
        Maximum number of samples in a batch.
    inputs : callable
        ``index (b,) → (b, …)``, the inputs of the model.
    block : callable, optional
        ``index (b,) → affinity``, for the objective.
    sample_weight : Tensor of shape (n,), optional
        Weights of the samples.
    reshuffle_every : int
        Epochs for which batches keep their samples, and their affinity with what an objective has cached about it; only
        the order of batches changes.
    ranks : Ranks, optional
        The processes that share each batch: this one gets its part of the samples.
    own_features : callable, optional
        ``index → features`` of the local samples, from an origin that all processes share; the features of all samples
        are then not needed.
    spacing : Tensor of shape (n,), optional
        Distance of each sample to its 10th nearest neighbour.
    targets : Tensor of shape (n,), optional
        Labels for a supervised step.
    selects : bool
        Whether the affinity of a batch is the features of its samples, and these do not depend on the batch.
    """

    n_batches: int

    def __init__(
        self,
        n: int,
        batch_size: int,
        inputs: Callable[[Tensor], Any],
        block: Block | None = None,
        sample_weight: Tensor | None = None,
        reshuffle_every: int = 1,
        ranks: Ranks | None = None,
        own_features: Callable[[Tensor], Affinity] | None = None,
        spacing: Tensor | None = None,
        targets: Tensor | None = None,
        selects: bool = False,
    ) -> None:
        self.n = n
        self.batch_size = min(n, batch_size)
        self.n_batches = math.ceil(n / batch_size)
        if ranks is not None and n // self.n_batches < ranks.size:
            raise ValueError(f"{ranks.size} processes share batches of {n // self.n_batches} rows: use larger ones.")
        self._inputs, self._block = inputs, block
        self._of_samples = (sample_weight, spacing, targets)
        self._ranks, self._own_features = ranks, own_features
        self._can_group = ranks is None and (block is None or selects)
        self._whole: Batch | None = None
        self._everything: Batch | None = None
        self._written: list[int] = []
        self._reshuffle_every = reshuffle_every
        self._epochs = 0
        self._is_under_way = False
        self._parts: tuple[Tensor, ...] = ()
        self._affinities: dict[int, Affinity | None] = {}
        # States of the generator from which the samples of batches, and their order in this epoch, were drawn.
        self._parts_from = self._order_from = torch.Generator().get_state()

    def epoch(self, generator: torch.Generator | None = None, start: int = 0) -> Iterator[Batch]:
        """Iterate over all samples once; a single batch is always the same one."""
        if self.n_batches == 1:
            if not start:
                # Rebuilt if a model has modified its inputs; tensors made in inference mode do not record that.
                if self._whole is None or _versions(self._whole.inputs) != self._written:
                    self._whole = self._batch(torch.arange(self.n))
                    self._written = _versions(self._whole.inputs)
                yield self._whole
            return
        self._is_under_way = True
        for part in itertools.islice(self._order(generator, resumed=start > 0), start, None):
            yield self._batch(self._parts[part], part)
        self._is_under_way = False

    def groups(self, generator: torch.Generator | None, start: int, most: int) -> Iterator[tuple[Batch, int]]:
        """Several batches together are one batch of all samples, with the indices of those in each."""
        whole = self._samples_in_memory() if most else None
        if whole is None:
            yield from super().groups(generator, start, most)
            return
        if self.n_batches == 1:
            if not start:
                yield whole, 1
            return
        self._is_under_way = True
        order = list(self._order(generator, resumed=start > 0))
        while start < self.n_batches:
            # Group ends do not depend on where the epoch was resumed.
            parts = [self._parts[part] for part in order[start : start + most - start % most]]
            ends = torch.tensor([len(part) for part in parts]).cumsum(0)
            yield whole._replace(order=torch.cat(parts), ends=ends), len(parts)
            start += len(parts)
        self._is_under_way = False

    @property
    def repeats(self) -> bool:
        return self.n_batches == 1 and self._samples_in_memory() is not None

    def repeat(self, times: int) -> Batch:
        whole = self._samples_in_memory()
        assert whole is not None
        index, ends = torch.arange(self.n).repeat(times), torch.arange(1, times + 1) * self.n
        return whole._replace(order=index, ends=ends)

    @torch.no_grad()
    def _samples_in_memory(self) -> Batch | None:
        """All samples with their features as one batch, unless they are too large to be copied."""
        if self._can_group and self._everything is None:
            one = self.example(1)
            width = one.inputs[0].numel() if isinstance(one.inputs, Tensor) and one.inputs.is_floating_point() else 0
            width += one.affinity.values.shape[1] if isinstance(one.affinity, Features) else 0
            if width > 0 and self.n * width <= _GROUPED_NUMBERS:
                weight, spacing, targets = self._of_samples
                self._everything = self.example(self.n)._replace(
                    sample_weight=weight,
                    spacing=spacing,
                    targets=targets,
                    order=torch.arange(self.n),
                    ends=torch.tensor([self.n]),
                )
            else:
                self._can_group = False
        return self._everything

    def _order(self, generator: torch.Generator | None, resumed: bool) -> Iterable[int]:
        """The order of the batches in this epoch, drawn or, if resumed, drawn again from the same state."""
        if resumed:
            self._epochs -= 1
            generator = _generator_at(self._order_from)
        else:
            self._order_from = torch.get_rng_state() if generator is None else generator.get_state()
        is_first = self._epochs % self._reshuffle_every == 0
        self._epochs += 1
        if is_first:
            self._parts_from, self._affinities = self._order_from, {}
            self._draw_parts(generator)
            return range(self.n_batches)
        if not self._parts:
            self._draw_parts(_generator_at(self._parts_from))
        return torch.randperm(self.n_batches, generator=generator).tolist()

    def _draw_parts(self, generator: torch.Generator | None) -> None:
        # Of nearly equal size, because a small last batch would give a noisy estimate of the objective.
        self._parts = torch.randperm(self.n, generator=generator).tensor_split(self.n_batches)

    def example(self, rows: int) -> Batch:
        index = torch.arange(min(self.n, rows))
        return Batch(self._inputs(index), None if self._block is None else self._block(index), None)

    def forget(self) -> None:
        self._whole, self._affinities = None, {}

    @property
    def remembers(self) -> bool:
        if self.n_batches == 1:
            return self._reshuffle_every > 1 and self._whole is not None
        return bool(self._affinities) and (self._is_under_way or self._epochs % self._reshuffle_every != 0)

    def state(self) -> dict[str, Any]:
        return {"epochs": self._epochs, "parts_from": self._parts_from, "order_from": self._order_from}

    def load_state(self, state: dict[str, Any]) -> None:
        self._epochs = state["epochs"]
        self._parts_from, self._order_from = state["parts_from"], state["order_from"]

    @torch.no_grad()
    def _batch(self, index: Tensor, part: int = 0) -> Batch:
        own, sizes, ranks = index, None, self._ranks
        if ranks is not None:
            parts = index.tensor_split(ranks.size)
            own, sizes = parts[ranks.rank], tuple(map(len, parts))
        # Inputs first: the affinity uses the rows that were read for them.
        inputs = self._inputs(own)
        affinity = self._affinities.get(part)
        if self._own_features is not None:
            affinity = self._own_features(own)
        elif affinity is None and self._block is not None:
            affinity = self._block(index)
            if self._reshuffle_every > 1:
                self._affinities[part] = affinity
        if ranks is not None and self._own_features is None and isinstance(affinity, Features):
            affinity = Features(affinity.values.tensor_split(ranks.size)[ranks.rank], affinity.centred)
        weight, spacing, targets = (None if of_all is None else of_all[own] for of_all in self._of_samples)
        return Batch(inputs, affinity, weight, sizes, spacing, targets)


class StreamBatches(Batches):
    """A stream in batches of nearly equal size, reshuffled each epoch; each process has its own samples."""

    def __init__(
        self, stream: Stream, batch_size: int, batch: Callable[..., Batch], ranks: Ranks | None = None
    ) -> None:
        self._stream, self._batch, self._ranks = stream, batch, ranks
        self._chunks, self._own = shard(stream, ranks)
        n, n_own = len(stream), int(self._chunks.lengths[self._own].sum())
        shares = [n_own] if ranks is None else ranks.sizes(n_own)
        # All processes take the same number of steps, with at least one row in each.
        n_batches = min(math.ceil(n / batch_size), *shares) if ranks is not None else math.ceil(n / batch_size)
        if n < 2 or not n_batches:
            raise InputError(f"{stream.name} has {n} rows for {len(shares)} processes: there must be more.")
        self.batch_size = min(n, batch_size)
        self.n_batches = n_batches
        self._sizes = BatchSizes(n_own, n_batches)
        self._of_all = None if ranks is None else [BatchSizes(share, n_batches) for share in shares]
        self._seed = 0

    def epoch(self, generator: torch.Generator | None = None, start: int = 0) -> Iterator[Batch]:
        if not start:
            self._seed = int(torch.randint(2**62, (), generator=generator))
        window = self._stream.window_bytes
        parts = shuffled(self._chunks, self._sizes, self._seed, own=self._own, window_bytes=window, start=start)
        for number, rows in enumerate(parts, start):
            of_all = None if self._of_all is None else tuple(sizes[number] for sizes in self._of_all)
            yield self._batch(rows, self._ranks)._replace(sizes=of_all)

    def example(self, rows: int) -> Batch:
        return self._batch(self._stream.sample(rows))

    def state(self) -> dict[str, Any]:
        return {"seed": self._seed}

    def load_state(self, state: dict[str, Any]) -> None:
        self._seed = state["seed"]


class LoaderBatches(Batches):
    """The batches of a DataLoader, in its own order.

    A shuffling loader draws from ``default_generator`` instead of torch's global one, or from its own generator: an
    epoch is resumed by restoring the states of these.
    """

    def __init__(
        self,
        loader: Loader,
        batch: Callable[..., Batch],
        ranks: Ranks | None = None,
        default_generator: torch.Generator | None = None,
    ) -> None:
        self._loader, self._batch, self._ranks = loader, batch, ranks
        self._default = default_generator or torch.Generator()
        sampler = getattr(loader.loader.batch_sampler, "batch_size", None)
        # A sampler of one's own may mean anything by its batch size.
        given = loader.loader.batch_size or (sampler if isinstance(sampler, int) else None)
        self.batch_size = int(given or LOADED_ROWS)
        self._begun_with = self._random()

    def _random(self) -> list[Tensor]:
        """The states of the default generator and of the loader's own, if it has one."""
        own = self._loader.loader.generator
        return [self._default.get_state(), *([] if own is None else [own.get_state()])]

    def _set_random(self, states: list[Tensor]) -> None:
        self._default.set_state(states[0])
        own = self._loader.loader.generator
        if own is not None:
            own.set_state(states[1])

    def epoch(self, generator: torch.Generator | None = None, start: int = 0) -> Iterator[Batch]:
        """Iterate over batches for as long as each process has one."""
        begun = start > 0
        if not begun:
            self._begun_with = self._random()
        parts = self._resumed(start) if begun else iterate_drawing(self._loader, self._default)
        for part in itertools.chain(parts, [None]):
            there = torch.tensor(int(part is not None))
            if self._ranks is not None:
                there = self._ranks.minimum(there)
            if part is None or not there:
                break
            yield self._batch(part, self._ranks)
            begun = True
        if not begun:
            raise InputError("The DataLoader gave no batch: one that can be read only once serves a single epoch.")

    def _resumed(self, start: int) -> Iterator[Tensor | Several]:
        now = self._random()
        self._set_random(self._begun_with)
        parts = itertools.islice(iterate_drawing(self._loader, self._default), start, None)
        first = next(parts, None)
        self._set_random(now)
        if first is not None:
            yield first
            yield from parts

    def example(self, rows: int) -> Batch:
        return self._batch(self._loader.sample(rows))

    def state(self) -> dict[str, Any]:
        return {"begun_with": self._begun_with, "now": self._random()}

    def load_state(self, state: dict[str, Any]) -> None:
        self._begun_with = state["begun_with"]
        self._set_random(state["now"])


def shard(stream: Stream, ranks: Ranks | None) -> tuple[Any, NDArray[np.int64]]:
    """The chunks of a stream, and the indices of those that this process reads."""
    return stream.shard() if ranks is None else stream.shard(ranks.rank, ranks.size)


def _generator_at(state: Tensor) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(state)
    return generator


def _versions(inputs: Tensor | Several) -> list[int]:
    """Version counters of inputs; tensors made in inference mode have none."""
    parts = inputs.parts.values() if isinstance(inputs, Several) else (inputs,)
    return [-1 if part.is_inference() else part._version for part in parts]
