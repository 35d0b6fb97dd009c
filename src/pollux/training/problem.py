"""A problem: samples and their geometry, as batches to train on and as a whole to evaluate on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pollux.data.rows import Rows
from pollux.data.samples import LOADED_ROWS, ArraySamples, Loader, Samples, StreamSamples
from pollux.data.scaling import FittedScaling, FittedTransformer, prepared
from pollux.data.shuffling import BatchSizes, shuffled
from pollux.data.streams import Stream
from pollux.errors import InputError
from pollux.geometry import Geometry, nearest
from pollux.geometry.affinity import Affinity, Block, Features
from pollux.geometry.spectral import block_of
from pollux.objectives import Gemini
from pollux.ranks import Ranks
from pollux.spec import Spec
from pollux.training.batches import Batch, Batches, RowBatches
from pollux.training.evaluation import MATRIX_ROWS, ROWS_AT_ONCE, Evaluation, evaluate, evaluate_batches

SPACING_NEIGHBOUR = 10
_WHOLE_UP_TO = 1_000
_AUTO_BATCH = 500
# Reshuffling less often is hardly faster.
_KEPT_EPOCHS = 10
_KEPT_BYTES = 1_000_000_000


class Problem(Protocol):
    """Samples as the model, the objective and the weights see them."""

    @property
    def ranks(self) -> Ranks | None:
        """The processes that share the samples."""

    def batches(self, batch_size: int | str | None, reshuffle_every: int | str = 1, transports: int = 0) -> Batches:
        """Batches of the samples, for an objective that poses so many transport problems."""

    def evaluate(self, module: nn.Module, n_clusters: int, objective: Gemini) -> Evaluation:
        """What a trained module predicts for the samples."""


def resolve_batch_size(batch_size: int | str | None, n: int) -> int:
    """Samples of a step: those asked for; all n for None, and for "auto" where there are few."""
    if batch_size == "auto":
        batch_size = None if n <= _WHOLE_UP_TO else _AUTO_BATCH
    return n if batch_size is None else int(batch_size)


def resolve_reshuffling(reshuffle_every: int | str, n: int, batch_size: int, transports: int, dense: bool) -> int:
    """Epochs for which batches keep their samples.

    "auto" keeps them where an objective has transport problems, which are solved faster the second time, and where what
    is kept for that has room; ``dense`` says that distances are a matrix.
    """
    if reshuffle_every != "auto":
        return int(reshuffle_every)
    # For each pair of a batch its distance and two copies, for each problem a tree of five bytes a node; trees in a
    # graph span all of its nodes.
    kept = 20 * n * batch_size + 5 * transports * (n if dense else n**2 // batch_size)
    return _KEPT_EPOCHS if transports and kept <= _KEPT_BYTES else 1


def pose_problem(
    spec: Spec,
    samples: Samples,
    scaling: FittedScaling | FittedTransformer | None,
    geometry: Geometry | None,
    ranks: Ranks | None = None,
    *,
    dtype: torch.dtype | None = None,
    adapt: bool = True,
    is_trained: bool = True,
) -> MemoryProblem | StreamProblem:
    """The problem that samples pose, as model and geometry see them after scaling.

    Parameters
    ----------
    spec, samples, scaling, geometry, ranks
        The parameters, the samples, what is done to them first, how they relate, and the processes that share them.
    dtype : torch.dtype, optional
        The arithmetic, where it is known already.
    adapt : bool
        Whether the geometry takes what it needs from these samples, such as a bandwidth.
    is_trained : bool
        Whether a model is trained on them, so that penalties ask about them.
    """
    dtype = dtype or spec.torch_dtype(samples.dtype)
    if isinstance(samples, StreamSamples):
        if geometry is not None and geometry.needs_all_samples:
            raise InputError(
                f"{type(geometry).__name__} relates all samples with each other, so they must be in memory: use "
                "another geometry for streamed samples."
            )
        if geometry is not None and adapt and geometry.adapts:
            geometry = geometry.adapt(Rows(samples.sample(), dtype, spec.device))
        return StreamProblem(samples, geometry, dtype, spec.device, ranks)
    rows = prepared(samples.X, scaling, dtype, spec.device)
    if geometry is not None and adapt:
        geometry = geometry.adapt(rows)
    return MemoryProblem(samples, rows, geometry, ranks, spec.is_free, is_trained and spec.uses_spacing)


def _rows_at_once(geometry: Geometry | None) -> int:
    """Samples that are evaluated together."""
    return ROWS_AT_ONCE if geometry is None or geometry.gives_features else MATRIX_ROWS


@dataclass(frozen=True)
class MemoryProblem:
    """n samples in memory."""

    samples: ArraySamples
    rows: Rows
    geometry: Geometry | None
    ranks: Ranks | None = None
    free_table: bool = False
    uses_spacing: bool = False

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def dtype(self) -> torch.dtype:
        return self.rows.dtype

    @property
    def device(self) -> str:
        return str(self.rows.device)

    @property
    def sample_weight(self) -> Tensor | None:
        return self.samples.sample_weight

    def inputs(self, index: Tensor) -> Tensor:
        """What the model is given of samples (b,)."""
        return index.to(self.rows.device) if self.free_table else self.rows[index]

    @cached_property
    def block(self) -> Block | None:
        """The affinity of samples (b,). Processes have the features of the first: others may round otherwise."""
        if self.geometry is None:
            return None
        block = self.geometry.bind(self.rows)
        if self.ranks is None or not (self.geometry.needs_all_samples and self.geometry.gives_features):
            return block
        everything = block(torch.arange(self.n))
        assert isinstance(everything, Features)
        self.ranks.agree(f"{everything.values.dtype} {tuple(everything.values.shape)}", "have different rows")
        return block_of(self.ranks.broadcast(everything.values))

    def _own_features(self) -> Callable[[Tensor], Affinity] | None:
        """Of several processes, the features of samples that one has, where these are all that is needed."""
        geometry, ranks, rows = self.geometry, self.ranks, self.rows
        if ranks is None or geometry is None or geometry.needs_all_samples or not geometry.gives_features:
            return None
        return lambda index: geometry.of(rows[index], ranks)

    def evaluate(self, module: nn.Module, n_clusters: int, objective: Gemini) -> Evaluation:
        return evaluate(
            module,
            n_clusters,
            self.n,
            self.inputs,
            objective,
            self.block,
            self.sample_weight,
            self.ranks,
            rows_at_once=_rows_at_once(self.geometry),
        )

    def batches(self, batch_size: int | str | None, reshuffle_every: int | str = 1, transports: int = 0) -> Batches:
        """Batches of the samples; all at once for None, and for "auto" where there are few."""
        size = resolve_batch_size(batch_size, self.n)
        dense = self.geometry is None or not self.geometry.gives_paths
        return RowBatches(
            self.n,
            size,
            self.inputs,
            self.block,
            self.sample_weight,
            resolve_reshuffling(reshuffle_every, self.n, size, transports, dense),
            self.ranks,
            self._own_features(),
            measure_spacing(self.rows) if self.uses_spacing else None,
        )


def measure_spacing(rows: Rows) -> Tensor:
    """How far each sample (n,) is from its 10th nearest neighbour, or from the farthest where there are fewer."""
    distances = nearest(rows, SPACING_NEIGHBOUR).distances
    if not distances.shape[1]:
        raise ValueError("The penalty 'local_vat' looks at neighbours, and there is one sample only: use 'vat'.")
    return torch.from_numpy(distances[:, -1].copy()).to(rows.device, rows.dtype)


@dataclass(frozen=True)
class StreamProblem:
    """Streamed samples; the geometry is that of each batch."""

    source: StreamSamples
    geometry: Geometry | None
    dtype: torch.dtype
    device: str
    ranks: Ranks | None = None

    def batches(self, batch_size: int | str | None, reshuffle_every: int | str = 1, transports: int = 0) -> Batches:
        if isinstance(self.source, Loader):
            return LoaderBatches(self, self.source)
        return StreamBatches(self, self.source, resolve_batch_size(batch_size, len(self.source)))

    @torch.no_grad()
    def batch(self, rows: NDArray[Any] | Tensor, ranks: Ranks | None = None) -> Batch:
        """Samples as they were read, with their affinity."""
        inputs = torch.as_tensor(rows).to(self.device, self.dtype)
        return Batch(inputs, None if self.geometry is None else self.geometry.of(inputs, ranks), None)

    def evaluate(self, module: nn.Module, n_clusters: int, objective: Gemini) -> Evaluation:
        """The mean of the objective over random batches, always the same ones; each process looks at its own."""
        parts = (self.batch(rows) for rows in self._evaluated())
        return evaluate_batches(
            module, n_clusters, ((part.inputs, part.affinity) for part in parts), objective, self.ranks
        )

    def _evaluated(self) -> Iterator[NDArray[Any] | Tensor]:
        if isinstance(self.source, Loader):
            # One that shuffles draws from torch's own random numbers: the same ones for each model.
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(0)
                yield from self.source
            return
        at_once = _rows_at_once(self.geometry)
        chunks, own = self.shard(self.source)
        n = int(chunks.lengths[own].sum())
        sizes = BatchSizes(n, -(-n // at_once))
        yield from shuffled(chunks, sizes, 0, own=own, window_bytes=self.source.window_bytes)

    def shard(self, stream: Stream) -> tuple[Any, NDArray[np.int64]]:
        """The chunks of a stream, and the numbers of those that this process reads."""
        return stream.shard() if self.ranks is None else stream.shard(self.ranks.rank, self.ranks.size)


class StreamBatches(Batches):
    """A stream in batches of nearly equal size, shuffled anew each epoch; each process has its own samples."""

    def __init__(self, problem: StreamProblem, stream: Stream, batch_size: int) -> None:
        self._problem, self._stream, ranks = problem, stream, problem.ranks
        self._chunks, self._own = problem.shard(stream)
        n, n_own = len(stream), int(self._chunks.lengths[self._own].sum())
        shares = [n_own] if ranks is None else ranks.sizes(n_own)
        # All processes take the same number of steps, with at least a row in each.
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
        rows = shuffled(
            self._chunks,
            self._sizes,
            self._seed,
            own=self._own,
            window_bytes=self._stream.window_bytes,
            start=start,
        )
        return (self._batch(number, part) for number, part in enumerate(rows, start))

    def _batch(self, number: int, rows: NDArray[Any]) -> Batch:
        batch = self._problem.batch(rows, self._problem.ranks)
        if self._of_all is None:
            return batch
        return batch._replace(sizes=tuple(sizes[number] for sizes in self._of_all))

    def example(self, rows: int) -> Batch:
        return self._problem.batch(self._stream.sample(rows))

    def state(self) -> dict[str, Any]:
        return {"seed": self._seed}

    def load_state(self, state: dict[str, Any]) -> None:
        self._seed = state["seed"]


class LoaderBatches(Batches):
    """The batches of a DataLoader, as they come.

    A loader that shuffles draws from torch's own random numbers, or from a generator of its own: an epoch is resumed by
    giving it the same ones.
    """

    def __init__(self, problem: StreamProblem, loader: Loader) -> None:
        self._problem, self._loader = problem, loader
        self.batch_size = int(loader.loader.batch_size or LOADED_ROWS)
        self._begun_with = self._random()

    def _random(self) -> list[Tensor]:
        """The state of torch's own random numbers, and of the loader's, if it has any."""
        own = self._loader.loader.generator
        return [torch.get_rng_state(), *([] if own is None else [own.get_state()])]

    def _set_random(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        own = self._loader.loader.generator
        if own is not None:
            own.set_state(states[1])

    def epoch(self, generator: torch.Generator | None = None, start: int = 0) -> Iterator[Batch]:
        if not start:
            self._begun_with = self._random()
        parts = iter(self._loader) if not start else self._resumed(start)
        return self._together(parts, begun=start > 0)

    def _together(self, parts: Iterator[Tensor], begun: bool) -> Iterator[Batch]:
        """Batches, as long as each process has one."""
        ranks = self._problem.ranks
        for part in itertools.chain(parts, [None]):
            there = torch.tensor(int(part is not None))
            if ranks is not None:
                there = ranks.minimum(there)
            if part is None or not there:
                break
            yield self._problem.batch(part, ranks)
            begun = True
        if not begun:
            raise InputError("The DataLoader gave no batch: one that can be read only once serves a single epoch.")

    def _resumed(self, start: int) -> Iterator[Tensor]:
        now = self._random()
        self._set_random(self._begun_with)
        parts = itertools.islice(iter(self._loader), start, None)
        first = next(parts, None)
        self._set_random(now)
        if first is not None:
            yield first
            yield from parts

    def example(self, rows: int) -> Batch:
        return self._problem.batch(self._loader.sample(rows))

    def state(self) -> dict[str, Any]:
        return {"begun_with": self._begun_with, "now": self._random()}

    def load_state(self, state: dict[str, Any]) -> None:
        self._begun_with = state["begun_with"]
        self._set_random(state["now"])
