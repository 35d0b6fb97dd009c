"""Samples in memory, or streamed: what a fit asks of them is the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight, validate_data
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from pollux.data.encoding import Encoding
from pollux.data.shuffling import in_order, shards
from pollux.data.streams import Stream, open_stream
from pollux.errors import InputError, option

# A smaller memory map is as well read through the map.
_LARGE_MAP = 64_000_000
_SAMPLE_ROWS = 1_000
# A sample has so many rows of each place: few, since neighbours in a file are often alike.
_ROWS_OF_A_PLACE = 125
LOADED_ROWS = 500


@dataclass(frozen=True)
class EncodedSamples:
    """Numbers (n, …) that an encoding has made of the columns of a table: a model of them reads such tables."""

    values: NDArray[Any]
    encoding: Encoding


@dataclass(frozen=True)
class ArraySamples:
    """n samples in memory: an array, a sparse matrix or a memory map, those of positive weight."""

    X: Any
    selected: NDArray[np.bool_]
    """Which of the given rows have a positive weight."""
    sample_weight: Tensor | None = None
    given_weight: Any = None
    encoding: Encoding | None = None
    feature_names: tuple[str, ...] = ()
    left_out: Any = None
    """Samples of weight zero."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(int(size) for size in self.X.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        stored: np.dtype[Any] = self.X.dtype
        return stored

    def summary(self, affinity: Tensor | None = None) -> str:
        """What the samples of all processes have in common: everything."""
        return self.fingerprint(affinity)

    def fingerprint(self, affinity: Tensor | None = None) -> str:
        """A checksum of the samples, of their weights, and of the affinity that the user gave."""
        parts = [self.X.data, self.X.indices, self.X.indptr] if scipy.sparse.issparse(self.X) else [self.X]
        if self.given_weight is not None:
            parts.append(np.asarray(self.given_weight))
        if affinity is not None:
            parts.append(affinity.detach().cpu().numpy())
        digest = hashlib.sha256()
        for part in parts:
            digest.update(f"{part.dtype} {part.shape} ".encode())
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


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


@dataclass(frozen=True)
class StreamSamples:
    """Samples that are read as they are needed, and never all in memory."""

    source: Source

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.source.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def encoding(self) -> Encoding | None:
        return self.source.encoding

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(self.source.feature_names or ()) if self.encoding is None else ()

    def summary(self, affinity: Tensor | None = None) -> str:
        """What the samples of all processes have in common."""
        return self.source.form()

    def fingerprint(self, affinity: Tensor | None = None) -> str:
        """What tells these samples from others, without reading them."""
        return self.source.fingerprint()


Samples = ArraySamples | StreamSamples


def open_samples(
    X: Any,
    estimator: Any,
    *,
    fewest: int,
    missing: str = "error",
    dtype: str = "auto",
    device: str = "cpu",
    sample_weight: Any = None,
    in_memory: bool = False,
) -> Samples:
    """The samples of X, validated: in memory, or as a stream where X is one and each sample need not be known.

    Parameters
    ----------
    X : array, sparse matrix, DataFrame, Tensor, EncodedSamples; path, Stream, Dataset, DataLoader or large memory map
        The samples.
    estimator : object
        What validation writes the number and the names of features to.
    fewest : int
        How many samples there must be.
    missing : {"error", "mean"}
        Whether they may hold NaN.
    dtype, device : str
        Type of the numbers of a stream; where weights go.
    sample_weight : array of shape (n,), optional
        Weights of the samples; those of weight zero are left out.
    in_memory : bool
        Whether each sample must be known, so that they cannot be streamed.
    """
    if is_streamed(X) and sample_weight is None and not in_memory:
        return StreamSamples(open_source(X, "float64" if dtype == "float64" else "float32", fewest))
    _check_in_memory(X)
    encoding = None
    if isinstance(X, EncodedSamples):
        X, encoding = X.values, X.encoding
    X = validate_samples(X, estimator, reset=True, fewest=fewest, missing=missing)
    names = tuple(getattr(estimator, "feature_names_in_", ()))
    return select_samples(X, sample_weight, device, encoding, names)


def select_samples(
    X: Any, sample_weight: Any, device: str, encoding: Encoding | None = None, names: tuple[str, ...] = ()
) -> ArraySamples:
    """The samples of positive weight."""
    if sample_weight is None:
        return ArraySamples(X, np.ones(X.shape[0], dtype=bool), encoding=encoding, feature_names=names)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    selected = weight > 0
    if not selected.any():
        raise ValueError("Sample weights must contain at least one non-zero number: all are zero.")
    # Selecting all of them needs no copy.
    some, left_out = (X, None) if selected.all() else (X[selected], X[~selected])
    kept = torch.from_numpy(weight[selected]).to(device)
    return ArraySamples(some, selected, kept, sample_weight, encoding, names, left_out)


def draw_samples(samples: Samples, most: int | None) -> Samples:
    """At most so many of the samples, in memory, always the same ones; None: the samples as they are."""
    if most is None:
        return samples
    if isinstance(samples, StreamSamples):
        X = np.asarray(sample_of(samples.source, most))
        return ArraySamples(X, np.ones(len(X), dtype=bool), None, None, samples.encoding, samples.feature_names)
    n = samples.X.shape[0]
    if n <= most:
        return samples
    index = np.sort(np.random.default_rng(0).choice(n, most, replace=False))
    weight = None if samples.sample_weight is None else samples.sample_weight[torch.from_numpy(index)]
    drawn = np.ones(most, dtype=bool)
    return replace(samples, X=samples.X[index], selected=drawn, sample_weight=weight, left_out=None)


def validate_samples(
    X: Any,
    estimator: Any,
    *,
    reset: bool,
    fewest: int = 1,
    missing: str = "error",
    encoding: Encoding | None = None,
) -> Any:
    """X, encoded where it has an encoding, as an array or a CSR matrix.

    scikit-learn's checks write the number and the names of features to the estimator on ``reset``.
    """
    _check_in_memory(X)
    if encoding is not None:
        X = encoding.encode(X)
    _check_columns(X)
    try:
        return validate_data(
            estimator,
            X,
            reset=reset,
            accept_sparse="csr",
            allow_nd=True,
            ensure_min_samples=fewest,
            ensure_all_finite="allow-nan" if missing == "mean" else True,
        )
    except ValueError as error:
        if "contains NaN" in str(error) and missing == "error":
            raise ValueError(
                f"Input X contains NaN: {option('missing', 'mean', group='Scaling')} lets the mean of a feature stand "
                "for it; or drop its rows."
            ) from error
        raise


def _check_columns(X: Any) -> None:
    """Name the columns of a data frame that do not hold numbers."""
    if not (hasattr(X, "dtypes") and hasattr(X, "columns")):
        return
    other = [str(name) for name, kind in zip(X.columns, X.dtypes, strict=True) if _is_not_numeric(kind)]
    if other:
        raise ValueError(f"The columns {', '.join(other)} do not hold numbers: encode them, or leave them out.")


def _is_not_numeric(dtype: Any) -> bool:
    # A column of Python objects may hold numbers all the same; that is seen when it is converted.
    return str(dtype) in ("category", "string", "str") or str(dtype).startswith(("datetime", "timedelta", "period"))


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


def _check_in_memory(X: Any) -> None:
    if _must_be_streamed(X):
        raise InputError(
            f"Only fit reads samples as they are needed: pass an array or a data frame, not {type(X).__name__}; or for "
            "fit leave out sample_weight and affinity, and use another model than a free table. The command line "
            "predicts files of any length: pollux predict."
        )


def open_source(X: Any, dtype: str, fewest: int = 2) -> Source:
    """The stream or loader that X stands for, of at least so many samples."""
    if isinstance(X, IterableDataset):
        X = DataLoader(X, batch_size=LOADED_ROWS)
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
        found = "" if samples is None else f" {tuple(samples.shape)}"
        if samples is not None and samples.ndim > 1:
            found += " with values that are missing or infinite"
        raise InputError(
            f"A DataLoader must give batches (b, d) or (b, C, H, W) of finite numbers, or tuples that begin with one; "
            f"it gave {type(batch).__name__}{found}."
        )
    return samples


def sample_of(source: Source, most: int = _SAMPLE_ROWS) -> NDArray[Any] | Tensor:
    """Some of the samples, always the same ones: from a few places of a stream, or the first of a loader."""
    if isinstance(source, Loader):
        with torch.random.fork_rng(devices=[]):
            parts, n = [], 0
            for batch in source:
                parts.append(batch)
                n += len(batch)
                if n >= most:
                    break
        return torch.cat(parts)[:most]
    chunks = source.chunks
    present = np.flatnonzero(chunks.lengths)
    # From several places, or from as many as it takes.
    needed = -(-most // max(1, int(chunks.lengths[present].min(initial=most))))
    count = min(max(-(-most // _ROWS_OF_A_PLACE), needed), len(present))
    some = present[np.linspace(0, len(present) - 1, count).astype(int)]
    lengths = chunks.lengths[some]
    n = int(lengths.sum())
    # Each row is as likely as any other, however long its chunk is.
    drawn = np.sort(np.random.default_rng(0).choice(n, min(most, n), replace=False))
    owned = np.split(drawn, np.searchsorted(drawn, np.cumsum(lengths)[:-1]))
    first = np.cumsum(lengths) - lengths
    return np.concatenate(
        [chunks.read(int(chunk))[own - start] for chunk, own, start in zip(some, owned, first, strict=True) if len(own)]
    )


def shard_of(stream: Stream, rank: int = 0, n_ranks: int = 1) -> tuple[Any, NDArray[np.int64]]:
    """The chunks of a stream, and the numbers of those that this process reads: each sample is read by one."""
    chunks = stream.chunks
    if n_ranks == 1:
        return chunks, np.arange(len(chunks.lengths))
    chunks = chunks.subdivided(n_ranks)
    return chunks, shards(chunks.lengths, n_ranks)[rank]


def iterate_in_order(source: Source) -> Iterator[NDArray[Any]]:
    """All samples, in the order of the source."""
    if isinstance(source, Loader):
        raise AttributeError("A DataLoader may give its samples in any order: predict those whose labels you need.")
    return (rows for _, rows in in_order(source.chunks))
