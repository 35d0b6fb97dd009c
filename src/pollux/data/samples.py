"""Samples in memory or streamed, with the same interface for a fit."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import _check_sample_weight, validate_data
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from pollux.data.arrow import VECTOR, as_arrow, check_frame, is_missing, kind_of
from pollux.data.encoding import (
    FEWEST_ROWS_OF_GAPS,
    Encoding,
    TableEncoding,
    UnseenWarning,
    say_empty,
    say_empty_columns,
)
from pollux.data.rows import Several
from pollux.data.shuffling import WINDOW_BYTES
from pollux.data.sources import InMemory, check_columns
from pollux.data.streams import FileChunks, Stream, encode_stream, open_blocks, open_stream
from pollux.data.survey import (
    Choices,
    TableSurvey,
    adapt_encoding,
    learn_encoding,
    names_rows,
    numbers_of_vectors,
    recognise_rows,
    take_evenly,
)
from pollux.errors import InputError, advised, option, warn
from pollux.recipes import DataKind
from pollux.threads import iterate_drawing, small_on_one

# Smaller memory maps are not streamed, but read like arrays.
_LARGE_MAP = 64_000_000
# Batch size of a loader that has none of its own.
LOADED_ROWS = 500
_HASHED_ROWS = 4_096
# Number of leading columns by which samples are sorted.
_SORTED_BY = 16


@dataclass(frozen=True)
class ArraySamples:
    """The n samples of positive weight, in memory: an array, a sparse matrix or a memory map."""

    X: Any
    selected: NDArray[np.bool_]
    """Mask of the given rows that have a positive weight."""
    sample_weight: Tensor | None = None
    given_weight: Any = None
    feature_names: tuple[str, ...] = ()
    left_out: Any = None
    """Samples of weight zero."""
    encoding: Encoding | None = None
    copies: NDArray[np.int64] | None = None
    """If equal samples were merged: the index of each original sample among these."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample; for several inputs, that of each."""
        return tuple(self.X.shape[1:])

    @property
    def has_several_inputs(self) -> bool:
        return isinstance(self.X, Several)

    @property
    def dtype(self) -> np.dtype[Any]:
        stored: np.dtype[Any] = self.X.dtype
        return stored

    def summary(self, affinity: Tensor | None = None) -> str:
        """A summary that must be equal in all processes: that of all samples."""
        return self.fingerprint(affinity)

    def fingerprint(self, affinity: Tensor | None = None) -> str:
        """A checksum of the samples, of their weights, and of a given affinity."""
        parts = [self.X.data, self.X.indices, self.X.indptr] if scipy.sparse.issparse(self.X) else [self.X]
        if isinstance(self.X, Several):
            parts = list(self.X.parts.values())
        if self.given_weight is not None:
            parts.append(np.asarray(self.given_weight))
        if affinity is not None:
            parts.append(affinity.detach().cpu().numpy())
        digest = hashlib.sha256()
        for part in parts:
            digest.update(f"{part.dtype} {part.shape} ".encode())
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


class Loader:
    """Batches as a DataLoader gives them: with its own shuffling, sizes and workers.

    ``names`` are those of the inputs that the network takes, None for any: they decide which items are several inputs.
    ``ordered`` gives the same samples in order, if they have one.
    """

    encoding: Encoding | None = None
    feature_names: tuple[str, ...] = ()

    def __init__(
        self,
        loader: DataLoader[Any],
        dtype: str,
        names: Collection[str] | None = (),
        ordered: DataLoader[Any] | None = None,
    ) -> None:
        self.loader, self.dtype, self._names, self.ordered = loader, np.dtype(dtype), names, ordered
        first = next(iter(loader), None)
        if first is None:
            raise InputError(f"The DataLoader of {type(loader.dataset).__name__} gave no batch at all.")
        samples = _samples_in(first, names)
        self.has_several_inputs = isinstance(samples, Several)
        self.shape: tuple[Any, ...] = tuple(samples.shape[1:])

    def __iter__(self) -> Iterator[Tensor | Several]:
        for batch in self.loader:
            samples = _samples_in(batch, self._names)
            if samples.shape[1:] != self.shape:
                raise InputError(
                    f"The DataLoader gave samples of shape {tuple(samples.shape[1:])} after others of {self.shape}: a "
                    "model needs all of one shape."
                )
            yield samples

    def sample(self, most: int = 1_000, seed: int = 0) -> Any:
        """The first of the samples; a shuffling loader gives the same ones each time for a seed."""
        parts: list[Any] = []
        n = 0
        for batch in iterate_drawing(self, torch.Generator().manual_seed(seed)):
            parts.append(batch)
            n += len(batch)
            if n >= most:
                break
        return (Several.joined(parts) if self.has_several_inputs else torch.cat(parts))[:most]

    def in_order(self) -> Iterator[Any]:
        if self.ordered is None:
            raise AttributeError("A DataLoader may give its samples in any order: predict those whose labels you need.")
        return (_samples_in(batch, self._names) for batch in self.ordered)

    def summary(self, affinity: Tensor | None = None) -> str:
        """A summary of the form of the loader; its contents are not known."""
        return f"{type(self.loader.dataset).__name__} of {self.shape}"

    def fingerprint(self, affinity: Tensor | None = None) -> str:
        return self.summary()


StreamSamples = Stream | Loader
Samples = ArraySamples | Stream | Loader


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
    scaling: str = "none",
    integers: bool = False,
    names: Collection[str] | None = (),
) -> Samples:
    """Validate the samples of X: in memory, or as a stream if X is one and not all samples are needed in memory.

    Parameters
    ----------
    X : array, sparse matrix, DataFrame, Tensor; path, Stream, Dataset, DataLoader or large memory map
        The samples.
    estimator : object
        Validation sets its number and names of features.
    fewest : int
        Minimum number of samples.
    missing : {"error", "mean"}
        Whether they may hold NaN.
    dtype, device : str
        Floating-point type of a stream; device of the weights.
    sample_weight : array of shape (n,), optional
        Weights of the samples; those of weight zero are left out.
    in_memory : bool
        Whether all samples are needed in memory, so that they cannot be streamed.
    scaling : str
        Scaling of the columns of a table that holds more than numbers, and so is encoded; see :func:`learn_units`.
    integers : bool
        Whether integers of a stream are kept, for a network that may take tokens.
    names : collection of str, optional
        Names of the inputs that a network takes; None: any.
    """
    X = _unwrapped(X)
    choices = Choices(missing=missing, scaling=scaling)
    table = table_to_encode(X)
    if table is not None:
        encoding = learn_from_table(table, sample_weight, choices)
        encoded = encoding.encode(table)
        _check_count(len(encoded), fewest)
        samples = select_samples(encoded, sample_weight, device, tuple(table.column_names))
        return replace(samples, encoding=encoding)
    if not is_streamed(X) or sample_weight is not None or in_memory:
        X = validate_samples(X, estimator, reset=True, fewest=fewest, missing=missing)
        return select_samples(X, sample_weight, device, tuple(getattr(estimator, "feature_names_in_", ())))
    dtype = "float64" if dtype == "float64" else "float32"
    if isinstance(X, IterableDataset):
        X = DataLoader(X, batch_size=LOADED_ROWS)
    if isinstance(X, DataLoader):
        return Loader(X, dtype, names)
    if isinstance(X, Loader):
        return X
    stream = X if isinstance(X, Stream) else _open_stream(X, dtype, choices)
    if len(stream) < fewest:
        raise InputError(f"{stream.name} has {len(stream)} rows: at least {fewest} are needed, one for each cluster.")
    return stream.with_integers() if integers else stream


def learn_from_table(table: Any, sample_weight: Any, choices: Choices) -> TableEncoding:
    """Learn the encoding of the columns of an Arrow table from its rows of positive weight."""
    weight = np.asarray([] if sample_weight is None else sample_weight)
    # Invalid weights are refused later.
    if weight.shape == (table.num_rows,) and weight.dtype.kind in "biuf":
        counts = weight > 0
        table = table.filter(counts) if counts.any() and not counts.all() else table
    encoding, _ = learn_encoding(InMemory(table), choices)
    assert isinstance(encoding, TableEncoding)
    return encoding


def _open_stream(source: Any, dtype: str, choices: Choices) -> Stream:
    """The samples of files or a dataset; tables are read by an encoding, unless all columns are numbers."""
    if isinstance(source, Dataset):
        return open_stream(source, dtype=dtype)
    blocks = open_blocks(source)
    is_plain = blocks.shape is not None or set(blocks.kinds.values()) <= {"boolean", "integer", "number"}
    is_plain &= blocks.shape is not None or not _has_others_beside_vectors(blocks.names)
    if is_plain and blocks.shape is None and choices.missing == "mean":
        # Read up to the first missing value, which requires an encoding that fills in means.
        tables = (blocks.read_block(block, blocks.names) for block in range(len(blocks.lengths)))
        is_plain = not any(is_missing(column).any() for table in tables for column in table.columns)
    if is_plain:
        chunks = FileChunks(blocks, dtype=dtype, missing=choices.missing)
        return Stream(chunks, None, WINDOW_BYTES, str(blocks.path))
    return encode_stream(blocks, choices, dtype, str(blocks.path))


def table_to_encode(X: Any) -> Any:
    """A data frame as an Arrow table, if it holds more than measurements: text, dates, numbers that are names.

    Works for pandas, polars, pyarrow and other data frames that export Arrow columns.
    """
    check_frame(X)
    is_pandas = hasattr(X, "dtypes") and hasattr(X, "iloc") and hasattr(X, "columns")
    if not is_pandas and not hasattr(X, "__arrow_c_stream__") and not hasattr(X, "to_batches"):
        return None
    if is_pandas and all(getattr(kind, "kind", "O") in "biufc" for kind in X.dtypes):
        names = [str(name) for name in X.columns]
        may_be_others = any(map(names_rows, names)) or _has_others_beside_vectors(names)
        if not may_be_others or find_spec("pyarrow") is None:
            # Plain numbers need no Arrow library.
            return None
    table = as_arrow(X)
    check_columns(Path("The data frame"), table.column_names)
    numbers = ("boolean", "integer", "number", "nothing")
    kinds = {field.name: kind_of(field.type) for field in table.schema}
    # Categories are not measurements, whatever their type; durations are, in seconds.
    is_other = any(str(field.type).startswith(("dictionary", "duration")) for field in table.schema)
    is_other |= any(VECTOR.fullmatch(name) for name in table.column_names)
    is_other |= _has_others_beside_vectors(table.column_names)
    if is_other or not set(kinds.values()) <= set(numbers):
        return table
    candidates = [name for name, kind in kinds.items() if kind in ("integer", "number") and names_rows(name)]
    if not candidates:
        return None
    survey = TableSurvey(candidates, Choices(missing="mean"))
    survey.add(table.select(candidates))
    return table if survey.finds_identifiers() else None


def _has_others_beside_vectors(names: Sequence[str]) -> bool:
    """Whether there are columns beside those that may be entries of vectors; they need not be features."""
    return 0 < len(numbers_of_vectors(names)) < len(names)


def is_streamed(X: Any) -> bool:
    """Whether samples are to be read on demand."""
    if not isinstance(X, np.memmap):
        return isinstance(X, _STREAMED)
    # A large array in a file, not modified; a copy of a memory map has the same type, but no file.
    if getattr(X, "_mmap", None) is None or X.filename is None or X.mode == "c":
        return False
    is_plain = X.ndim == 2 or (X.ndim == 4 and X.shape[1] in (1, 3, 4))
    return is_plain and X.nbytes >= _LARGE_MAP and bool(X.flags.c_contiguous)


_STREAMED = (str, Path, Stream, Dataset, DataLoader, Loader)
# The name of labels in the transformers library; a clustering does not use them.
_LABELS = "labels"


def select_samples(X: Any, sample_weight: Any, device: str, names: tuple[str, ...] = ()) -> ArraySamples:
    """The samples of positive weight."""
    if sample_weight is None:
        return ArraySamples(X, np.ones(X.shape[0], dtype=bool), feature_names=names)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    selected = weight > 0
    if not selected.any():
        raise ValueError("Sample weights must contain at least one non-zero number: all are zero.")
    # Selecting all of them needs no copy.
    some, left_out = (X, None) if selected.all() else (X[selected], X[~selected])
    kept = torch.from_numpy(weight[selected]).to(device)
    return ArraySamples(some, selected, kept, sample_weight, names, left_out)


def recognise_samples(samples: Samples) -> DataKind:
    """The kind of data, which decides on "auto"."""
    n = int(samples.X.shape[0]) if isinstance(samples, ArraySamples) else None
    n = len(samples) if isinstance(samples, Stream) else n
    is_fixed = isinstance(samples, Loader) or (isinstance(samples, Stream) and not samples.may_be_scaled)
    if samples.has_several_inputs:
        return DataKind(None, n, is_fixed)

    def sample(most: int) -> Any:
        return take_evenly(samples.X, most) if isinstance(samples, ArraySamples) else samples.sample(most)

    may_be_embedded = not isinstance(samples, Loader)
    recipe = recognise_rows(n, samples.shape, samples.encoding, sample, may_be_embedded=may_be_embedded)
    return DataKind(recipe, n, is_fixed)


def threads_for_samples(samples: Samples) -> AbstractContextManager[Any]:
    """One thread for computations on few samples, else all that the user allows."""
    if not isinstance(samples, ArraySamples) or isinstance(samples.X, Several):
        return nullcontext()
    return small_on_one(samples.X.shape[0], math.prod(samples.shape))


def draw_samples(samples: Samples, most: int | None, seed: int = 0) -> Samples:
    """At most ``most`` samples, in memory, drawn by a seed; None: the samples unchanged."""
    if most is None:
        return samples
    if not isinstance(samples, ArraySamples):
        X = samples.sample(most, seed)
        X = X if isinstance(X, Several) else np.asarray(X)
        drawn = np.ones(len(X), dtype=bool)
        return ArraySamples(X, drawn, feature_names=samples.feature_names, encoding=samples.encoding)
    n = samples.X.shape[0]
    if n <= most:
        return samples
    index = np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
    weight = None if samples.sample_weight is None else samples.sample_weight[torch.from_numpy(index)]
    drawn = np.ones(most, dtype=bool)
    return replace(samples, X=samples.X[index], selected=drawn, sample_weight=weight, left_out=None)


def draw_training_samples(samples: Samples, most: int | None, seed: int = 0) -> Samples:
    """At most ``most`` training samples, with duplicates merged; None: the samples unchanged, in order."""
    drawn = draw_samples(samples, most, seed)
    # A subsample is identified by values, not by row numbers, so duplicates can be merged.
    return merge_copies(drawn) if isinstance(drawn, ArraySamples) and most is not None else drawn


def merge_copies(samples: ArraySamples) -> ArraySamples:
    """Merge equal samples into one with the sum of their weights, in an order that does not depend on theirs.

    A sample of weight 2 is then the same as two of weight 1, to the last digit. Samples that all differ, without
    weights, are not changed.
    """
    X, weight = samples.X, samples.sample_weight
    if isinstance(X, Several):
        return samples
    keys, first, copies = np.unique(_hash_rows(X), return_index=True, return_inverse=True)
    if (len(keys) == len(copies) and weight is None) or len(keys) < 2:
        return samples
    some = X[first]
    if len(keys) < len(copies) and not _are_equal(some[copies], X):
        # A hash collision of different samples.
        return samples
    # Sorted by values rather than by hashes, which change with the units.
    few = some[:, :_SORTED_BY] if len(some.shape) == 2 else some.reshape(len(keys), -1)[:, :_SORTED_BY]
    order = np.lexsort((keys, *(few.toarray() if scipy.sparse.issparse(few) else few).T[::-1]))
    some, copies = some[order], np.argsort(order)[copies]
    total = np.bincount(copies, None if weight is None else weight.cpu().numpy())
    return replace(
        samples,
        X=some,
        selected=np.ones(len(keys), dtype=bool),
        sample_weight=torch.from_numpy(total.astype(np.float64)).to("cpu" if weight is None else weight.device),
        left_out=None,
        copies=copies,
    )


def _hash_rows(X: Any) -> NDArray[np.uint64]:
    """A hash (n,) for each row of X (n, …), from the bits of its values; equal rows have equal hashes."""
    d = int(np.prod(X.shape[1:]))
    factors = np.random.default_rng(0).integers(0, 2**63, d, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    if scipy.sparse.issparse(X):
        ordered = scipy.sparse.csr_array(X)
        ordered.sum_duplicates()
        totals = np.concatenate([[np.uint64(0)], np.cumsum(_bits(ordered.data) * factors[ordered.indices])])
        return np.asarray(np.diff(totals[ordered.indptr]))
    hashes = np.empty(X.shape[0], dtype=np.uint64)
    for start in range(0, X.shape[0], _HASHED_ROWS):
        part = slice(start, start + _HASHED_ROWS)
        hashes[part] = _bits(X[part].reshape(-1, d)) @ factors
    return hashes


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """The bits of numbers, with sign and exponent moved to the end; adding zero turns −0 into 0."""
    bits = (np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    return (bits >> np.uint64(32)) | (bits << np.uint64(32))


def _are_equal(one: Any, other: Any) -> bool:
    if scipy.sparse.issparse(one):
        return bool((one != other).nnz == 0)
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


_TABLE_OF_DICT = "For the columns of a table pass a data frame: pd.DataFrame(X), or pd.DataFrame([X]) for a single row."


def check_single(X: Any) -> None:
    """Raise an InputError if X is a mapping, for a network with a single input."""
    if isinstance(X, Mapping) and not scipy.sparse.issparse(X):
        raise InputError(
            f"X is a {type(X).__name__}, which stands for several inputs of a network, and the model was trained "
            f"on one. {_TABLE_OF_DICT}"
        )


def as_several(X: Any, fewest: int = 1) -> Several | None:
    """Several inputs of a network: a tuple of arrays (n, …), or a mapping of names to them; None for other samples."""
    # The DOK sparse format is a mapping too.
    is_named = isinstance(X, Mapping) and not scipy.sparse.issparse(X)
    if not is_named and not (isinstance(X, tuple) and any(len(getattr(part, "shape", ())) > 1 for part in X)):
        return None
    given = dict(sorted(X.items())) if is_named else dict(enumerate(X))
    if not given:
        raise InputError("X is an empty mapping: it has no inputs.")
    parts = {}
    for name, part in given.items():
        values = part.detach().cpu().numpy() if isinstance(part, Tensor) and not part.is_nested else part
        try:
            parts[name] = check_array(
                values, ensure_2d=False, allow_nd=True, ensure_min_samples=fewest, input_name=f"input {name!r}"
            )
        except (TypeError, ValueError) as error:
            is_array = isinstance(values, Tensor) or (
                np.ndim(values) > 0 and np.asarray(values).dtype.kind not in "OSU"
            )
            if is_array or not is_named:
                raise
            raise InputError(
                f"X is a {type(X).__name__}, which stands for several inputs of a network, each an array of numbers, "
                f"and {name!r} is not one. {_TABLE_OF_DICT}"
            ) from error
    if len({len(part) for part in parts.values()}) > 1:
        lengths = ", ".join(f"{name!r} {len(part)}" for name, part in parts.items())
        raise InputError(f"Several inputs must have a row for each sample, but their lengths differ: {lengths}.")
    return Several(parts, is_named)


def fill_masked(X: Any) -> Any:
    """X, with NaN in place of the masked values of a masked array."""
    if not isinstance(X, np.ma.MaskedArray):
        return X
    return np.ma.filled(X.astype(np.result_type(X.dtype, np.float32)), np.nan)


def validate_samples(
    X: Any, estimator: Any, *, reset: bool, fewest: int = 1, missing: str = "error", encoding: Any = None
) -> Any:
    """Validate X, and encode it if there is an encoding; returns an array or a CSR matrix.

    On ``reset`` scikit-learn's checks set the number and the names of features of the estimator.
    """
    X = _unwrapped(X)
    if isinstance(X, _STREAMED):
        raise InputError(
            f"Only fit reads samples as they are needed, and here an array or a data frame must be passed, not a "
            f"{type(X).__name__}: "
            + (
                "leave out sample_weight and affinity, and use another model than a free table."
                if reset
                else "predict some samples at a time. The command line predicts files of any length: pollux predict."
            )
        )
    if isinstance(X, Tensor) and X.is_nested:
        raise InputError("X is a nested tensor, whose samples differ in length: pad them, X.to_padded_tensor(0.0).")
    if isinstance(X, Tensor) and X.dtype == torch.bfloat16:
        # NumPy has no bfloat16, and float32 can hold it.
        X = X.float()
    if isinstance(X, Tensor) and X.requires_grad:
        raise InputError(
            "X requires gradients, and a clustering passes none on to its samples: pass X.detach(). To train what "
            "makes X, use pollux.Gemini as a loss."
        )
    shapes = sorted({tuple(part.shape) for part in X if hasattr(part, "shape")}) if isinstance(X, list) else []
    if len(shapes) > 1 and len(shapes[-1]) > 1:
        raise InputError(
            f"X is a list of arrays of different shapes, such as {shapes[0]} and {shapes[-1]}, but samples must be of "
            "one shape. If they are several inputs of a network, pass a tuple: fit((A, B))."
        )
    is_flat = isinstance(X, list) or (isinstance(X, np.ndarray) and X.ndim == 1)
    if is_flat and len(X) and isinstance(X[0], str):
        raise InputError(
            "X is a list of texts, and numbers are clustered: pollux.embed(X) gives a vector for each text."
        )
    X = fill_masked(X)
    if encoding is not None:
        if isinstance(encoding, TableEncoding) and not isinstance(X, np.ndarray):
            X = table = as_arrow(X, encoding.names)
            encoding.check_names(table.column_names)
            encoding = adapt_encoding(encoding, lambda own: [table.select(own.names)])
        encoded = encoding.encode(X)
        _check_count(len(encoded), fewest)
        if empty := encoding.count_empty(X):
            warn(f"{say_empty(empty)}.", UnseenWarning)
        if len(encoded) >= FEWEST_ROWS_OF_GAPS and (names := encoding.find_empty(X, encoding.names)):
            message = say_empty_columns(names)
            warn(f"{message[0].upper()}{message[1:]}.", UnseenWarning)
        return encoded
    if hasattr(X, "dtypes") and hasattr(X, "columns"):
        # A column of Python objects may still hold numbers; that is found out by converting it.
        no_numbers = ("category", "string", "str", "datetime", "timedelta", "period")
        kinds = zip(X.columns, X.dtypes, strict=True)
        other = [str(name) for name, kind in kinds if str(kind).lower().startswith(no_numbers)]
        if other:
            read = set(getattr(estimator, "feature_names_in_", ()))
            todo = "convert them, as by df.astype(float)" if read & set(other) else "leave them out"
            raise ValueError(
                f"The columns {', '.join(other)} do not hold numbers, and the model was trained on numbers alone: "
                f"{todo}."
            )
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
            words = "preprocessing='standard', or Scaling(missing='mean') without scaling,"
            advice = advised(words, option("missing", "mean"))
            raise ValueError(
                f"Input X contains NaN: {advice} lets the mean of a feature stand for it; or drop its rows."
            ) from error
        if "contains infinity" in str(error) and (where := _first_infinite(X)):
            raise ValueError(f"{error} {where}") from error
        if "Found array with" in str(error) and "sample(s)" in str(error) and fewest > 2:
            _check_count(len(X), fewest)
        raise


def _first_infinite(X: Any) -> str:
    """The place of the first infinite value of a table or an array (n, d); "" for others."""
    if scipy.sparse.issparse(X) or len(np.shape(X)) != 2:
        return ""
    try:
        is_infinite = np.isinf(np.asarray(X, dtype=np.float64))
    except (TypeError, ValueError):
        return ""
    columns = np.flatnonzero(is_infinite.any(0))
    if not len(columns):
        return ""
    names = [repr(str(name)) for name in getattr(X, "columns", ())] or [*map(str, range(is_infinite.shape[1]))]
    row = int(is_infinite[:, columns[0]].argmax())
    others = f" and {len(columns) - 1:,} others" if len(columns) > 1 else ""
    return f"It is in column {names[columns[0]]}{others}, first in row {row:,}."


def _unwrapped(X: Any) -> Any:
    """The data frame that a narwhals object wraps."""
    return X.to_native() if hasattr(X, "to_native") and hasattr(X, "columns") else X


def _check_count(n: int, fewest: int) -> None:
    if n < fewest:
        instead = f": ask for at most {n} clusters ({option('n_clusters')})" if n > 1 and fewest > 2 else ""
        nothing = "X has no rows, and thus nothing to cluster. " if not n else ""
        raise ValueError(f"{nothing}Found {n} sample(s) while a minimum of {fewest} is required{instead}.")


def load_several(X: Any, names: Collection[str] | None, batch_size: Callable[[int], int]) -> Any:
    """A loader for a Dataset whose items have several inputs, or whose input is not the first value; else X itself."""
    if not isinstance(X, Dataset) or isinstance(X, IterableDataset) or not hasattr(X, "__len__") or not len(X):
        return X
    item = X[0]
    found = _inputs_in(item, names)
    is_first = not isinstance(item, Mapping) or found is next(iter(item.values()), None)
    if is_first and not isinstance(found, tuple | dict):
        return X
    ordered: DataLoader[Any] = DataLoader(X, batch_size=LOADED_ROWS)
    return Loader(DataLoader(X, batch_size=batch_size(len(X)), shuffle=True), "float32", names, ordered)


def _inputs_in(item: Any, names: Collection[str] | None) -> Any:
    """The inputs in an item or a batch, without labels: a tuple or dict if there are several, or a single one.

    Several inputs are named, or come before the labels in a tuple. Of a mapping, values whose names a network takes are
    inputs; the name of a single one does not matter.
    """
    item = item[0] if isinstance(item, list | tuple) and item else item
    if isinstance(item, Mapping):
        inputs = {name: value for name, value in item.items() if (names is None or name in names) and name != _LABELS}
        return inputs if len(inputs) > 1 else next(iter((inputs or item).values()), None)
    is_several = isinstance(item, list | tuple) and len(item) > 1 and names != ()
    return tuple(item) if is_several and all(isinstance(part, Tensor | np.ndarray) for part in item) else item


def _samples_in(batch: Any, names: Collection[str] | None = ()) -> Tensor | Several:
    """The samples (b, …) of a batch of a loader: a tensor, the first of several values, or several inputs."""
    batch = _inputs_in(batch, names)
    several = as_several(batch) if isinstance(batch, tuple | dict) else None
    if several is not None:
        return several
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
