"""Samples that are read in chunks while a model is fitted, from any source. Imports torch only where needed."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import no_column, plain
from pollux.data.encoding import Encoding, TableEncoding
from pollux.data.moments import Moments
from pollux.data.shuffling import WINDOW_BYTES, Array, Lengths, in_order, shards
from pollux.data.sources import Blocks, open_data
from pollux.data.survey import Choices, learn_encoding
from pollux.errors import InputError
from pollux.progress import Stage, listen, track

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from pollux.ranks import Ranks

__all__ = [
    *("WINDOW_BYTES", "Chunks", "DatasetChunks", "FileChunks", "Slices", "Stream"),
    *("encode_stream", "open_blocks", "open_stream"),
]

_DTYPES = ("float32", "float64")
# A sample takes about this many rows from each of several places, since neighbouring rows in a file are often alike.
_FEWEST_PLACES, _ROWS_OF_A_PLACE = 8, 400
_ROWS_AT_ONCE, _NUMBERS_AT_ONCE = 4_096, 500_000
_ITEMS_OF_CHUNK = 1_024


class Stream:
    """Samples that are read in chunks, about ``window_bytes`` of them at a time, and never all in memory."""

    has_several_inputs = False

    def __init__(
        self, chunks: Chunks, encoding: Encoding | None, window_bytes: int, name: str, *, is_given: bool = False
    ) -> None:
        self.is_given = is_given
        self.chunks, self.encoding, self.window_bytes, self.name = chunks, encoding, window_bytes, name
        self.shape, self.dtype = chunks.shape, chunks.dtype
        # With an encoding, the names of columns are those of the encoding.
        self.feature_names = tuple(chunks.feature_names or ()) if encoding is None else ()

    def __len__(self) -> int:
        return int(self.chunks.lengths.sum())

    @property
    def may_be_scaled(self) -> bool:
        """Whether a fit scales the samples by default: an encoding has done so, and who opens a stream has decided."""
        return self.encoding is None and not self.is_given

    def take(self, rows: NDArray[np.int64]) -> Array:
        """The samples of these indices, in ascending order; chunks without any are not read."""
        ends = np.cumsum(self.chunks.lengths)
        owned = np.split(rows, np.searchsorted(rows, ends[:-1]))
        firsts = ends - self.chunks.lengths
        parts = zip(range(len(ends)), owned, firsts, strict=True)
        found = [self.chunks.read(chunk)[own - first] for chunk, own, first in parts if len(own)]
        return np.concatenate([np.empty((0, *self.shape), self.chunks.dtype), *found])

    def sample(self, most: int = 1_000, seed: int = 0) -> Array:
        """A random subsample, the same for a seed: from several places, or from as many as needed."""
        chunks = self.chunks
        present = np.flatnonzero(chunks.lengths)
        needed = -(-most // max(1, int(chunks.lengths[present].min(initial=most))))
        count = min(max(_FEWEST_PLACES, most // _ROWS_OF_A_PLACE, needed), len(present))
        # One of each stretch of the file, at random: the order of the chunks may repeat itself.
        bounds = np.linspace(0, len(present), count + 1).astype(int)
        some = present[np.random.default_rng((seed, 1)).integers(bounds[:-1], bounds[1:])]
        ends = np.cumsum(chunks.lengths[some])
        n = int(ends[-1]) if len(some) else 0
        # Each row has the same probability, whatever the length of its chunk.
        drawn = np.sort(np.random.default_rng(seed).choice(n, min(most, n), replace=False))
        # From indices among these chunks to indices among all.
        moved = np.cumsum(chunks.lengths)[some] - ends
        return self.take(drawn + moved[np.searchsorted(ends, drawn, side="right")])

    def with_integers(self) -> Stream:
        """The same samples as integers if they are stored as such: floats may lose their last digits."""
        if self.encoding is not None or not self.chunks.holds_integers():
            return self
        stream = copy.copy(self)
        stream.chunks = copy.copy(self.chunks)
        stream.chunks.dtype = np.dtype(np.int64)
        return stream

    def shard(self, rank: int = 0, n_ranks: int = 1) -> tuple[Chunks, Lengths]:
        """The chunks, and the indices of those that this process reads: each sample is read by one process."""
        if n_ranks == 1:
            return self.chunks, np.arange(len(self.chunks.lengths))
        chunks = self.chunks.subdivided(n_ranks)
        return chunks, shards(chunks.lengths, n_ranks)[rank]

    def in_order(self) -> Iterator[Array]:
        """All samples, in the order of the source."""
        return in_order(self.chunks)

    def moments(self, ranks: Ranks | None = None) -> Moments:
        """Moments of the features, in float64; all samples are read, which several processes share."""
        chunks, own = self.shard() if ranks is None else self.shard(ranks.rank, ranks.size)
        found = Moments.empty(self.shape)
        # In small parts, because a chunk as float64 numbers, and their deviations, would take several times its memory.
        most = max(1, _NUMBERS_AT_ONCE // max(1, math.prod(self.shape)))
        for chunk in track(own, "scaling, part"):
            rows = chunks.read(chunk)
            for first in range(0, len(rows), most):
                found = found.merged(Moments.of(rows[first : first + most].astype(np.float64)))
        return found if ranks is None else functools.reduce(Moments.merged, ranks.gather_objects(found))

    def summary(self, affinity: Any = None) -> str:
        """The number of rows, their location and their shape: the same for copies of the same files."""
        return _digest(self.chunks.lengths.tolist(), list(self.shape), self.window_bytes)

    def fingerprint(self, affinity: Any = None) -> str:
        """A digest of the data, without reading all of it: the same for the same files, read in the same way."""
        return _digest(self.chunks.fingerprint(), self.window_bytes)


def open_stream(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    standardise: bool = False,
    missing: str = "error",
    dtype: Any = "float32",
    window_bytes: int = WINDOW_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> Stream:
    """Open data for training that need not fit in memory.

    Parameters
    ----------
    source
        The path of a table (Parquet, Feather, CSV), of a folder of them or of an .npy file; a ``np.memmap``; or a
        map-style ``torch.utils.data.Dataset``, from whose items the first value is read.
    columns
        The columns of a table to read; all by default.
    standardise
        Read the data once to standardise numbers and to one-hot encode text of few values; a model that is fitted on
        them can then read data frames. Without it they must be numbers, and keep their units by default.
    missing
        How missing values are handled when standardising: ``"error"``, ``"mean"`` or ``"drop"``.
    dtype
        float32 or float64.
    window_bytes
        Size of the part that is read and shuffled at a time; about three times as much is in memory.
    progress
        Called with the number of chunks read so far for standardising, and their total.
    """
    from torch.utils.data import Dataset, IterableDataset

    if isinstance(columns, str):
        raise InputError(f"columns is a list of names such as ['a', 'b'], not {columns!r}.")
    if window_bytes < 1:
        raise InputError(f"window_bytes is a number of bytes, such as 16_000_000; not {window_bytes}.")
    if isinstance(source, Dataset):
        name = type(source).__name__
        if isinstance(source, IterableDataset):
            raise InputError(f"{name} is an IterableDataset: its items cannot be read in a random order.")
        if columns is not None or standardise:
            raise InputError("The items of a Dataset are read as they are: leave out columns and standardise.")
        return Stream(DatasetChunks(source, dtype=dtype), None, window_bytes, name, is_given=True)
    if not isinstance(source, str | Path | np.memmap):
        raise InputError(
            f"A stream reads a path, a np.memmap or a map-style torch Dataset, not {type(source).__name__}; what is in "
            f"memory is fitted as it is."
        )
    blocks = open_blocks(source)
    if blocks.shape is not None and columns is not None:
        raise InputError("Columns are chosen by name from tables; of an array save those that are to be read.")
    if not standardise:
        chunks = FileChunks(blocks, columns=columns, dtype=dtype)
        return Stream(chunks, None, window_bytes, str(blocks.path), is_given=True)
    with listen(None if progress is None else _report_chunks(progress)):
        choices = Choices(columns=columns or (), missing=missing)
        stream = encode_stream(blocks, choices, dtype, str(blocks.path), window_bytes=window_bytes)
    stream.is_given = True
    return stream


def encode_stream(
    blocks: Blocks,
    choices: Choices,
    dtype: Any,
    name: str,
    *,
    ranks: Ranks | None = None,
    window_bytes: int = WINDOW_BYTES,
) -> Stream:
    """The rows of blocks by an encoding, which is learned by reading them; several processes share the work."""
    encoding, lengths = learn_encoding(blocks, choices, ranks)
    return Stream(FileChunks(blocks, encoding=encoding, dtype=dtype, lengths=lengths), encoding, window_bytes, name)


def _report_chunks(progress: Callable[[int, int], None]) -> Callable[[list[Stage]], None]:
    """A listener that reports the progress of the outermost stage."""

    def report(stages: list[Stage]) -> None:
        if len(stages) == 1 and stages[0].done and stages[0].total:
            progress(int(stages[0].done), int(stages[0].total))

    return report


class Chunks(ABC):
    """Samples in chunks that can be read separately, in any order.

    Attributes
    ----------
    lengths : array of shape (c,)
        The number of samples in each chunk.
    shape, dtype : tuple of int, np.dtype
        Shape of one sample as the model sees it; float32 or float64, or int64 for a network that takes integers.
    feature_names : list of str or None
        The names of columns, if there are any.
    """

    lengths: Lengths
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    feature_names: list[str] | None = None

    @abstractmethod
    def read(self, chunk: int) -> Array:
        """The samples of a chunk, (rows, …); all values are finite."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A digest of the data: the same for the same files, read in the same way."""

    def holds_integers(self) -> bool:
        """Whether samples are stored as integers that fit in int64."""
        return False

    def subdivided(self, parts: int) -> Chunks:
        """The same samples in the same order in at least ``parts`` chunks, unless there are fewer samples."""
        return self if len(self.lengths) >= parts else Slices(self, parts)


class FileChunks(Chunks):
    """Rows of files: a table, an .npy file or a ``np.memmap``; each of its blocks is a chunk.

    Without an encoding all columns of a table, or those named by ``columns``, must hold numbers without missing values;
    arrays may hold NaN if ``missing`` is "mean", for a scaling that fills them in. With one they are encoded by it;
    rows that it drops are counted in a first pass, unless ``lengths`` (c,) are given.
    """

    def __init__(
        self,
        source: str | Path | np.memmap[Any, Any] | Blocks,
        *,
        columns: Sequence[str] | None = None,
        encoding: Encoding | None = None,
        dtype: Any = "float32",
        lengths: Lengths | None = None,
        missing: str = "error",
    ) -> None:
        self.blocks = open_blocks(source)
        self._may_be_missing = missing == "mean"
        self.encoding, self.dtype = encoding, _check_dtype(dtype)
        self._names: list[str] = []
        if encoding is None:
            if self.blocks.shape is None:
                self._names = _columns_of_numbers(self.blocks, columns)
            self.feature_names = self._names or None
            self.shape = self.blocks.shape or (len(self._names),)
        else:
            if columns is not None:
                raise InputError("The encoding says which columns are read: leave out columns.")
            if isinstance(encoding, TableEncoding):
                encoding.check_names(self.blocks.names)
                self._names = encoding.names
            if lengths is None and encoding.missing == "drop":
                every = range(len(self.blocks.lengths))
                complete = [encoding.complete(self.blocks.read_block(block, self._names)).sum() for block in every]
                lengths = np.array(complete, dtype=np.int64)
            self.feature_names = encoding.feature_names or None
            self.shape = encoding.encoded_shape
        self.lengths = self.blocks.lengths if lengths is None else lengths

    def read(self, chunk: int) -> Array:
        stored, where = self.blocks.read_block(chunk, self._names), self.blocks.where(chunk)
        if self.encoding is not None:
            stored = self.encoding.select_rows(stored)
            _check_length(stored.shape[0], int(self.lengths[chunk]), where)
            try:
                return self.encoding.encode(stored).astype(self.dtype, copy=False)
            except InputError as error:
                raise InputError(f"{where}: {error}") from error
        names: Sequence[str] | None = self._names
        if isinstance(stored, np.ndarray):
            with np.errstate(over="ignore"):
                rows = np.ascontiguousarray(stored, dtype=self.dtype)
            names = [str(index) for index in range(self.shape[0])] if rows.ndim == 2 else None
        else:
            rows = _matrix(stored, self.dtype, where)
        _check_length(len(rows), int(self.lengths[chunk]), where)
        _check_rows(rows, lambda row: self.blocks.where(chunk, row), names, self._may_be_missing)
        return rows

    def holds_integers(self) -> bool:
        if self.blocks.shape is None:
            return all(self.blocks.kinds[name] == "integer" for name in self._names)
        return _are_integers(self.blocks.read_block(0, ()))

    def fingerprint(self) -> str:
        plan = self._names if self.encoding is None else self.encoding.as_json()
        return _digest(self.blocks.identity(), self.lengths.tolist(), self.dtype.name, plan)


class DatasetChunks(Chunks):
    """A map-style dataset of torch, with a length and items by index, in chunks of consecutive items.

    An item is a tensor or an array, or a tuple, list or mapping whose first value is one; other values, such as a
    label, are ignored. Items are read in a background thread. The fingerprint depends on the kind and the size of the
    dataset, not on its contents.
    """

    def __init__(self, dataset: Dataset[Any], *, dtype: Any = "float32", items: int = _ITEMS_OF_CHUNK) -> None:
        self.dataset, self.dtype, self._items = dataset, _check_dtype(dtype), items
        self._name = type(dataset).__name__
        try:
            n = len(dataset)  # type: ignore[arg-type]
        except TypeError as error:
            raise InputError(f"{self._name} has no length: a map-style dataset is needed.") from error
        if not n:
            raise InputError(f"{self._name} is empty.")
        self.lengths = np.diff(np.append(np.arange(0, n, items), n)).astype(np.int64)
        self.shape = _sample_in(dataset[0], 0).shape

    def read(self, chunk: int) -> Array:
        from torch.utils.data import TensorDataset

        first = chunk * self._items
        numbers = range(first, first + int(self.lengths[chunk]))
        with np.errstate(over="ignore"):
            if type(self.dataset) is TensorDataset:
                samples = _as_array(self.dataset.tensors[0][numbers.start : numbers.stop])
                rows = np.ascontiguousarray(samples, dtype=self.dtype)
            else:
                get_all = getattr(self.dataset, "__getitems__", None)
                found = [self.dataset[index] for index in numbers] if get_all is None else list(get_all(list(numbers)))
                _check_length(len(found), len(numbers), f"{self._name}, from item {first} on,")
                rows = np.empty((len(numbers), *self.shape), dtype=self.dtype)
                for row, (index, item) in enumerate(zip(numbers, found, strict=True)):
                    sample = _sample_in(item, index)
                    if sample.shape != self.shape:
                        raise InputError(
                            f"Item {index} of the dataset has the shape {sample.shape}; item 0 has {self.shape}."
                        )
                    rows[row] = sample
        _check_rows(rows, lambda row: f"{self._name}, row {first + row}", None)
        return rows

    def holds_integers(self) -> bool:
        return _are_integers(_sample_in(self.dataset[0], 0))

    def fingerprint(self) -> str:
        kind = type(self.dataset)
        return _digest(kind.__module__, kind.__qualname__, self.lengths.tolist(), list(self.shape), self.dtype.name)

    def subdivided(self, parts: int) -> Chunks:
        if len(self.lengths) >= parts:
            return self
        divided = DatasetChunks(self.dataset, items=max(1, int(self.lengths.sum()) // parts))
        divided.dtype = self.dtype
        return divided


class Slices(Chunks):
    """Chunks cut into slices, so that there are enough of them for all processes. Each slice reads its whole chunk."""

    def __init__(self, whole: Chunks, parts: int) -> None:
        self.whole = whole
        self.shape, self.dtype, self.feature_names = whole.shape, whole.dtype, whole.feature_names
        # Slices per chunk in proportion to its rows; chunks without rows have none.
        wanted = np.ceil(whole.lengths * parts / max(1, whole.lengths.sum())).astype(np.int64)
        pieces = np.minimum(np.maximum(wanted, 1), np.maximum(whole.lengths, 1))
        self._chunk = np.repeat(np.arange(len(pieces)), pieces)
        piece = np.concatenate([np.arange(count) for count in pieces])
        self._start = piece * whole.lengths[self._chunk] // pieces[self._chunk]
        self._stop = (piece + 1) * whole.lengths[self._chunk] // pieces[self._chunk]
        self.lengths = self._stop - self._start

    def read(self, chunk: int) -> Array:
        rows = self.whole.read(int(self._chunk[chunk]))
        # A copy, because a view would keep the whole chunk.
        return rows[self._start[chunk] : self._stop[chunk]].copy()

    def fingerprint(self) -> str:
        return _digest(self.whole.fingerprint(), self.lengths.tolist())


def open_blocks(source: str | Path | np.memmap[Any, Any] | Blocks) -> Blocks:
    """The rows of a path or a mapped array in blocks, as they are stored."""
    if isinstance(source, np.ndarray):
        from pollux.data.array_files import ArrayBlocks

        return ArrayBlocks(source)
    return open_data(source).blocks() if isinstance(source, str | Path) else source


def _columns_of_numbers(blocks: Blocks, columns: Sequence[str] | None) -> list[str]:
    kinds = blocks.kinds
    names = list(kinds) if columns is None else list(dict.fromkeys(columns))
    absent = [name for name in names if name not in kinds]
    if absent:
        raise no_column(absent, list(kinds))
    others = {name: kinds[name] for name in names if kinds[name] not in ("boolean", "integer", "number")}
    if others:
        listed = ", ".join(f"{name!r} ({kind})" for name, kind in others.items())
        raise InputError(
            f"Columns of {blocks.path} hold no numbers: {listed}. Choose others by columns=[…], or pass "
            f"standardise=True, by which text of few values becomes zeros and ones."
        )
    if not names:
        raise InputError(f"{blocks.path}: no columns are left to read.")
    return names


def _matrix(table: Any, dtype: np.dtype[Any], where: str) -> Array:
    """A matrix (n, d) from a table of d columns of numbers, none of which may be missing."""
    import pyarrow as pa

    columns = []
    for name in table.column_names:
        values = plain(table.column(name))
        if values.null_count:
            raise InputError(
                f"{where}: {values.null_count:,} of {len(values):,} values are missing in column {name!r}. Fill them "
                f"in, or leave out those rows."
            )
        if pa.types.is_decimal(values.type):
            values = values.cast(pa.float64(), safe=False)
        columns.append(values.to_numpy())
    rows = np.empty((table.num_rows, len(columns)), dtype=dtype)
    # In groups of rows over all columns, which stay in the cache while they are interleaved.
    with np.errstate(over="ignore"):
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            for index, column in enumerate(columns):
                rows[some, index] = column[some]
    return rows


def _sample_in(item: Any, index: int) -> NDArray[Any]:
    """The sample in an item of a dataset, as an array (d,) or (C, H, W)."""
    if isinstance(item, Mapping):
        item = next(iter(item.values()), None)
    elif isinstance(item, Sequence) and not isinstance(item, str) and len(item):
        item = item[0]
    array = _as_array(item)
    if array.dtype.kind not in "bifu" or not array.ndim:
        raise InputError(
            f"Item {index} of the dataset must be a tensor or an array of numbers, or begin with one; it has "
            f"{type(item).__name__}."
        )
    return array


def _are_integers(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "i" or (array.dtype.kind == "u" and array.dtype.itemsize < 8)


def _as_array(item: Any) -> NDArray[Any]:
    import torch

    if isinstance(item, torch.Tensor):
        item = item.detach().cpu()
        # NumPy has no bfloat16.
        return np.asarray((item.float() if item.dtype == torch.bfloat16 else item).numpy())
    return np.asarray(item)


def _check_dtype(dtype: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(dtype)
    if found.name not in _DTYPES:
        raise InputError(f"Models compute in {' or '.join(_DTYPES)}, not in {dtype}.")
    return found


def _check_rows(
    rows: Array, where: Callable[[int], str], names: Sequence[str] | None, may_be_missing: bool = False
) -> None:
    """Raise an InputError that names the first entry of rows (n, …) that is not finite, and the place of its row."""
    # The sum is not finite if an entry is not, and needs no memory; if it merely overflowed, entries are checked.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):
            return
    bad = np.isinf(rows) if may_be_missing else ~np.isfinite(rows)
    if not bad.any():
        return
    row, *place = (int(index) for index in np.argwhere(bad)[0])
    named = f"column {names[place[0]]!r}" if names else f"entry {tuple(place)}"
    value = rows[(row, *place)]
    raise InputError(
        f"{where(row)}: {named} is {'missing' if np.isnan(value) else 'infinite, or too large'}. Correct "
        f"it, or leave out such rows; {int(bad.reshape(len(rows), -1).any(1).sum()):,} of {len(rows):,} are like it."
    )


def _check_length(rows: int, expected: int, where: str) -> None:
    if rows != expected:
        raise InputError(f"{where} has {rows:,} rows where there were {expected:,}: the data have changed meanwhile.")


def _digest(*facts: Any) -> str:
    """The SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
