"""Samples that are never held: streams of files and datasets, and loaders of the user's own, as training problems."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from pollux.data.encoding import Encoding
from pollux.data.rows import Rows
from pollux.data.shuffling import batch_sizes, in_order, shards, shuffled
from pollux.data.streams import Stream, open_stream
from pollux.errors import InputError
from pollux.fitting import batch_rows
from pollux.geometry import Geometry
from pollux.geometry.affinity import Affinity, Features
from pollux.objectives import Gemini
from pollux.ranks import Ranks
from pollux.training import Batch, Batches, Evaluation, evaluate_batches
from pollux.training.evaluation import MATRIX_ROWS, ROWS_AT_ONCE

# A memory map below this is as well read through the map.
_LARGE_MAP = 64_000_000
_SAMPLE_ROWS, _SAMPLE_CHUNKS = 1_000, 8
_LOADED_ROWS = 500


@dataclass(frozen=True)
class Loader:
    """Batches as a DataLoader of the user's gives them: its shuffling, its sizes, its workers."""

    loader: DataLoader[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    feature_names: list[str] | None = None
    encoding: Encoding | None = None

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self.loader:
            samples = samples_of(batch)
            if samples.shape[1:] != self.shape:
                raise InputError(
                    f"The DataLoader gave samples of shape {tuple(samples.shape[1:])} after others of {self.shape}: a "
                    "model needs all of one shape."
                )
            yield samples

    def fingerprint(self) -> str:
        """Nothing is known of what it loads but its form."""
        return self.form()

    def form(self) -> str:
        """What samples of all processes have in common."""
        return f"{type(self.loader.dataset).__name__} of {self.shape}"


Source = Stream | Loader


def is_streamed(X: Any) -> bool:
    """Whether samples are to be read as they are needed."""
    return _must_be_streamed(X) or _is_large_map(X)


def _is_large_map(X: Any) -> bool:
    """Whether it is a large array in a file, as it is there: a copy of a map is a map by its type alone."""
    if not isinstance(X, np.memmap) or getattr(X, "_mmap", None) is None or X.filename is None or X.mode == "c":
        return False
    is_plain = X.ndim == 2 or (X.ndim == 4 and X.shape[1] in (1, 3, 4))
    return is_plain and X.nbytes >= _LARGE_MAP and bool(X.flags.c_contiguous)


def _must_be_streamed(X: Any) -> bool:
    return isinstance(X, str | Path | Stream | Dataset | DataLoader)


def refuse_streams(X: Any) -> None:
    """Raise an InputError where samples cannot be streamed, because something is asked for of each of them."""
    if _must_be_streamed(X):
        raise InputError(
            "Streamed rows are not at hand: leave out sample_weight and affinity, and use another model than a free "
            "table; or pass an array."
        )


def check_held(X: Any) -> None:
    """Raise an InputError where samples are not at hand, and would have to be."""
    if _must_be_streamed(X):
        raise InputError(
            f"Only fit reads rows as they are needed: pass an array or a data frame of them, not {type(X).__name__}. "
            "The command line predicts files of any length: pollux predict."
        )


def as_stream(X: Any, dtype: str, fewest: int = 2) -> Source:
    """The source that X stands for, of at least so many rows."""
    if isinstance(X, IterableDataset):
        X = DataLoader(X, batch_size=_LOADED_ROWS)
    if isinstance(X, DataLoader):
        for first in X:
            return Loader(X, tuple(samples_of(first).shape[1:]), np.dtype(dtype))
        raise InputError(f"The DataLoader of {type(X.dataset).__name__} gave no batch at all.")
    stream = X if isinstance(X, Stream) else open_stream(X, dtype=dtype)
    if len(stream) < fewest:
        raise InputError(f"{stream.name} has {len(stream)} rows: at least {fewest} are needed, one for each cluster.")
    return stream


def samples_of(batch: Any) -> Tensor:
    """The samples (b, …) of what a loader gives: a tensor, or the first of several things."""
    while isinstance(batch, list | tuple | dict) and len(batch):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    samples = torch.as_tensor(batch) if isinstance(batch, Tensor | np.ndarray) else None
    if samples is None or samples.ndim < 2 or not bool(samples.isfinite().all()):
        told = "" if samples is None else f" {tuple(samples.shape)}"
        if samples is not None and samples.ndim > 1:
            told += " with values that are missing or infinite"
        raise InputError(
            f"A DataLoader must give batches (b, d) or (b, C, H, W) of finite numbers, or tuples that begin with one; "
            f"it gave {type(batch).__name__}{told}."
        )
    return samples


def sample_of(source: Source, most: int = _SAMPLE_ROWS) -> NDArray[Any] | Tensor:
    """Some of the samples, always the same ones: from a few places of a stream, or the first of a loader."""
    if isinstance(source, Loader):
        with torch.random.fork_rng(devices=[]):
            parts, held = [], 0
            for batch in source:
                parts.append(batch)
                held += len(batch)
                if held >= most:
                    break
        return torch.cat(parts)[:most]
    chunks = source.chunks
    there = np.flatnonzero(chunks.lengths)
    # From a few places, or from as many as it takes.
    needed = -(-most // max(1, int(chunks.lengths[there].min(initial=most))))
    count = min(max(_SAMPLE_CHUNKS, needed), len(there), most)
    some = there[np.linspace(0, len(there) - 1, count).astype(int)]
    each = -(-most // max(1, len(some)))
    return np.concatenate([_spread(chunks.read(int(chunk)), each) for chunk in some])[:most]


def _spread(rows: NDArray[Any], most: int) -> NDArray[Any]:
    some: NDArray[Any] = rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)]
    return some


def adapted(geometry: Geometry | None, source: Source, dtype: torch.dtype, device: str) -> Geometry | None:
    """The geometry with what it takes from the data fixed; an InputError where it needs all samples at once."""
    if geometry is None:
        return None
    if geometry.spans_all:
        raise InputError(
            f"{type(geometry).__name__} relates all samples with each other, so they must be in memory: use another "
            "geometry for streamed rows."
        )
    return geometry.adapt(Rows(sample_of(source), dtype, device))


@dataclass(frozen=True)
class StreamProblem:
    """Samples of a source as the model and the objective see them; the geometry is that of each batch."""

    source: Source
    geometry: Geometry | None
    dtype: torch.dtype
    device: str
    ranks: Ranks | None = None

    def batches(self, batch_size: int | str | None, reshuffle_every: int | str = 1, problems: int = 0) -> Batches:
        if isinstance(self.source, Loader):
            return LoaderBatches(self, self.source)
        n = len(self.source)
        return StreamedBatches(self, self.source, batch_rows(batch_size, n))

    @torch.no_grad()
    def batch(self, rows: NDArray[Any] | Tensor, ranks: Ranks | None = None) -> Batch:
        """Samples as they were read, with their affinity."""
        inputs = torch.as_tensor(rows).to(self.device, self.dtype)
        return Batch(inputs, self.affinity(inputs, ranks), None)

    def affinity(self, inputs: Tensor, ranks: Ranks | None = None) -> Affinity | None:
        return None if self.geometry is None else self.geometry.of(inputs, ranks)

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
        few = self.batch(sample_of(self.source, 2)).affinity
        at_once = ROWS_AT_ONCE if few is None or isinstance(few, Features) else MATRIX_ROWS
        chunks, own = shard_of(self.source, self.ranks)
        n = int(chunks.lengths[own].sum())
        sizes = batch_sizes(n, -(-n // at_once))
        yield from shuffled(chunks, sizes, 0, own=own, window_bytes=self.source.window_bytes)


def shard_of(stream: Stream, ranks: Ranks | None) -> tuple[Any, NDArray[np.int64]]:
    """The chunks of a stream, and the numbers of those that this process reads: each row is read by one."""
    chunks = stream.chunks
    if ranks is None:
        return chunks, np.arange(len(chunks.lengths))
    chunks = chunks.subdivided(ranks.size)
    return chunks, shards(chunks.lengths, ranks.size)[ranks.rank]


def rows_in_order(source: Source) -> Iterator[NDArray[Any]]:
    """All rows, in the order of the source."""
    if isinstance(source, Loader):
        raise AttributeError("A DataLoader may give its rows in any order: predict those whose labels you need.")
    return (rows for _, rows in in_order(source.chunks))


class StreamedBatches(Batches):
    """The rows of a stream in batches of nearly equal size, shuffled anew each epoch; each process has its own rows."""

    def __init__(self, problem: StreamProblem, stream: Stream, batch_size: int) -> None:
        self._problem, self._stream, ranks = problem, stream, problem.ranks
        self._chunks, self._own = shard_of(stream, ranks)
        n, n_own = len(stream), int(self._chunks.lengths[self._own].sum())
        shares = [n_own] if ranks is None else ranks.sizes(n_own)
        # All processes take the same number of steps, with at least a row in each.
        n_batches = min(math.ceil(n / batch_size), *shares) if ranks is not None else math.ceil(n / batch_size)
        if n < 2 or not n_batches:
            raise InputError(f"{stream.name} has {n} rows for {len(shares)} processes: there must be more.")
        self.batch_size = min(n, batch_size)
        self.n_batches = n_batches
        self._sizes = batch_sizes(n_own, n_batches)
        self._of_all = None if ranks is None else [batch_sizes(share, n_batches) for share in shares]
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
        return self._problem.batch(sample_of(self._stream, rows))

    def state(self) -> dict[str, Any]:
        return {"seed": self._seed}

    def load_state(self, state: dict[str, Any]) -> None:
        self._seed = state["seed"]


class LoaderBatches(Batches):
    """The batches of a DataLoader, as they come.

    A loader that shuffles draws from torch's own random numbers, or from a generator of its own: an epoch is taken up
    again by giving it the same ones.
    """

    def __init__(self, problem: StreamProblem, loader: Loader) -> None:
        self._problem, self._loader = problem, loader
        self.batch_size = int(loader.loader.batch_size or _LOADED_ROWS)
        self._begun_with = self._random()

    def _random(self) -> list[Tensor]:
        """Where random numbers stand: torch's own, and the loader's, if it has any."""
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
        parts = iter(self._loader) if not start else self._taken_up(start)
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

    def _taken_up(self, start: int) -> Iterator[Tensor]:
        now = self._random()
        self._set_random(self._begun_with)
        parts = itertools.islice(iter(self._loader), start, None)
        first = next(parts, None)
        self._set_random(now)
        if first is not None:
            yield first
            yield from parts

    def example(self, rows: int) -> Batch:
        return self._problem.batch(sample_of(self._loader, rows))

    def state(self) -> dict[str, Any]:
        return {"begun_with": self._begun_with, "now": self._random()}

    def load_state(self, state: dict[str, Any]) -> None:
        self._begun_with = state["begun_with"]
        self._set_random(state["now"])
