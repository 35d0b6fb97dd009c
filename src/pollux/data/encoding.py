"""From rows as a file has them to the numbers a model reads: plain data, so it lives in model files. Without torch."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import as_arrow, as_numbers, as_text, is_missing, numbers_as_text, pyarrow_library, quoted
from pollux.data.moments import parts_of
from pollux.errors import InputError, did_you_mean, option, warn
from pollux.io.parsing import Count, Finite, Positive, Share, Size, parse
from pollux.names import MISSING_IN_FILES

Matrix = NDArray[np.float32]


class UnseenWarning(UserWarning):
    """A text column holds values that training has not seen; each is encoded as zeros."""


class Encoding(ABC):
    """How rows of a table, an array or images become the samples that a model reads.

    ``missing`` says what is done with rows that lack values: they are refused ("error"), filled in with means of
    training ("mean"), or left out by whoever encodes ("drop"). ``identifiers`` are columns that name rows, and
    ``left_out`` gives the reasons why others are not read.
    """

    missing: str
    identifiers: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    @abstractmethod
    def encoded_shape(self) -> tuple[int, ...]:
        """Of one sample: (d,), or (C, H, W)."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The columns that are read, by their names or numbers; images have none."""

    @property
    @abstractmethod
    def feature_names(self) -> list[str]:
        """The d features that the model sees; images have none."""

    @property
    @abstractmethod
    def scales(self) -> tuple[float, ...]:
        """What columns of numbers, or channels, are divided by."""

    @property
    def shares(self) -> frozenset[str]:
        """The features that are zeros and ones."""
        return frozenset()

    @abstractmethod
    def encode(self, rows: Any, unseen: Counter[str] | None = None) -> Matrix:
        """(n, *encoded_shape) from n rows: a data frame or an Arrow table, or an array as it was in the file.

        Values of text columns that training has not seen are counted in ``unseen``, by column; or else warned of.
        """

    @abstractmethod
    def complete(self, rows: Any) -> NDArray[np.bool_]:
        """Which of the n rows lack nothing, (n,)."""

    @abstractmethod
    def raw(self, rows: Any) -> NDArray[np.float64]:
        """(n, *encoded_shape) in the units of the rows, NaN where a value is missing."""

    def with_missing(self, missing: str) -> Encoding:
        """The same with another treatment of rows that lack values."""
        changed: Encoding = replace(cast("Any", self), missing=missing)
        return changed

    def with_reasons(self, left_out: Mapping[str, str]) -> Encoding:
        """The same with further reasons why columns are not read."""
        changed: Encoding = replace(cast("Any", self), left_out={**left_out, **self.left_out})
        return changed

    def as_json(self) -> dict[str, Any]:
        """Plain data, for a model file."""
        return {"kind": _KINDS[type(self)], **msgspec.to_builtins(self, enc_hook=operator.methodcaller("item"))}

    @staticmethod
    def from_json(description: Any, source: str | Path = "encoding") -> Encoding:
        """The encoding in a model file, which is the ``source`` in messages; an InputError where it is not one."""
        kind = description.get("kind") if isinstance(description, dict) else None
        for encoding, name in _KINDS.items():
            if name == kind:
                return parse(description, encoding, source)
        raise InputError(f"{source}: there are no encodings of kind {kind!r}.")

    def _check_missing(self) -> None:
        if self.missing not in MISSING_IN_FILES:
            raise ValueError(f"missing values cannot be treated by {self.missing!r}")


class Number(msgspec.Struct, frozen=True, tag="number", tag_field="kind"):
    """A column x of numbers, encoded as (x − mean) / scale; a missing value is read as ``fill``, or else the mean."""

    name: str
    mean: Finite
    scale: Positive
    fill: Finite | None = None

    @property
    def filled(self) -> float:
        """What a missing value is encoded as."""
        return 0.0 if self.fill is None else (self.fill - self.mean) / self.scale

    @property
    def feature_names(self) -> list[str]:
        return [self.name]

    def encode(self, values: Any, out: Matrix) -> tuple[int, int]:
        """Write the column into ``out`` (n, 1), and count its values that are missing, and those unseen."""
        numbers = as_numbers(self.name, values)
        with np.errstate(over="ignore", invalid="ignore"):
            out[:, 0] = (numbers - self.mean) / self.scale
        absent = np.isnan(numbers)
        if absent.any():
            out[absent] = self.filled
        return int(absent.sum()), 0

    def raw(self, values: Any) -> NDArray[np.float64]:
        return as_numbers(self.name, values)[:, None]


class Category(msgspec.Struct, frozen=True, tag="category", tag_field="kind"):
    """A column of text, encoded as zeros and a one at its value; a missing value as the shares of the values.

    A value that training has not seen is encoded as zeros alone. ``boolean`` and ``number`` say that the column holds
    true and false, or numbers that are names; 3 and 3.0 are the same one.
    """

    name: str
    values: tuple[str, ...]
    shares: tuple[Share, ...]
    boolean: bool = False
    number: bool = False

    def __post_init__(self) -> None:
        if len(self.values) != len(self.shares) or len(set(self.values)) < len(self.values):
            raise ValueError("each value has one share")
        if math.fsum(self.shares) > 1 + 1e-9:
            raise ValueError("shares of values are more than all")

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name}={value}" for value in self.values]

    def encode(self, values: Any, out: Matrix) -> tuple[int, int]:
        """Write the column into ``out`` (n, values), and count its values that are missing, and those unseen."""
        absent, position = is_missing(values), self._positions(values)
        out[:] = position[:, None] == np.arange(len(self.values))
        out[absent] = self.shares
        return int(absent.sum()), int((np.isnan(position) & ~absent).sum())

    def raw(self, values: Any) -> NDArray[np.float64]:
        found = self._positions(values)[:, None] == np.arange(len(self.values))
        ones: NDArray[np.float64] = found.astype(np.float64)
        ones[is_missing(values)] = np.nan
        return ones

    def _positions(self, values: Any) -> NDArray[np.float64]:
        """Which of the column's values each is, (n,); NaN where it is not one of them."""
        pa = pyarrow_library()
        import pyarrow.compute as pc

        if self.boolean:
            try:
                values = values.cast(pa.bool_())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(f"Column {self.name!r} must hold true or false: {error}.") from error
        text = numbers_as_text(self.name, values) if self.number else as_text(values)
        found = pc.index_in(text, value_set=pa.array(self.values, pa.string()))
        return np.asarray(found.cast(pa.float64()).to_numpy(), dtype=np.float64)


@dataclass(frozen=True)
class TableEncoding(Encoding):
    """The columns of a table that a model reads, in its order, and those that it does not."""

    columns: tuple[Number | Category, ...]
    missing: str = "error"
    identifiers: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_missing()
        if len(set(self.names)) < len(self.columns):
            raise ValueError("a column is read twice")

    @property
    def encoded_shape(self) -> tuple[int, ...]:
        return (len(self.feature_names),)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def feature_names(self) -> list[str]:
        return [name for column in self.columns for name in column.feature_names]

    @property
    def scales(self) -> tuple[float, ...]:
        return tuple(column.scale for column in self.columns if isinstance(column, Number))

    @property
    def shares(self) -> frozenset[str]:
        return frozenset(
            name for column in self.columns if isinstance(column, Category) for name in column.feature_names
        )

    def encode(self, rows: Any, unseen: Counter[str] | None = None) -> Matrix:
        table = self._select(rows)
        X = np.empty((table.num_rows, len(self.feature_names)), dtype=np.float32)
        lacking: dict[str, int] = {}
        others: Counter[str] = Counter()
        first = 0
        for column in self.columns:
            width = len(column.feature_names)
            absent, strange = column.encode(table.column(column.name), X[:, first : first + width])
            if absent:
                lacking[column.name] = absent
            if strange:
                others[column.name] = strange
            first += width
        if lacking and self.missing != "mean":
            raise InputError(describe_missing(lacking, table.num_rows))
        if unseen is not None:
            unseen.update(others)
        for name, count in others.items() if unseen is None else ():
            message = f"{count:,} values of column {name!r} were not seen in training."
            warn(message, UnseenWarning)
        _check_finite(X, self.feature_names)
        return X

    def complete(self, rows: Any) -> NDArray[np.bool_]:
        table = self._select(rows)
        complete = np.ones(table.num_rows, dtype=bool)
        for column in self.columns:
            complete &= ~is_missing(table.column(column.name))
        return complete

    def raw(self, rows: Any) -> NDArray[np.float64]:
        table = self._select(rows)
        return np.concatenate([column.raw(table.column(column.name)) for column in self.columns], axis=1)

    def _select(self, rows: Any) -> Any:
        table = as_arrow(rows, self.names)
        self.check_names(table.column_names)
        return table.select(self.names)

    def check_names(self, names: Sequence[str]) -> None:
        """Raise an InputError that names the columns that are read and not among these."""
        there = set(names)
        absent = [name for name in self.names if name not in there]
        if absent:
            raise InputError(
                f"The model reads columns that are not there: {quoted(absent)}.{did_you_mean(absent[0], names)} "
                f"There are: {quoted(names)}."
            )


@dataclass(frozen=True)
class ArrayEncoding(Encoding):
    """Rows (n, d), or images (n, C, H, W), encoded as (x − mean) / scale: by column, or by channel.

    ``kept`` are the columns of rows that are used; those that never vary are not. A missing value is read as ``fill``,
    or else the mean. ``columns`` are the names of all d columns, where there are any.
    """

    shape: tuple[Size, ...]
    mean: tuple[Finite, ...]
    scale: tuple[Positive, ...]
    kept: tuple[Count, ...] | None = None
    missing: str = "error"
    identifiers: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    fill: tuple[Finite, ...] | None = None

    def __post_init__(self) -> None:
        self._check_missing()
        if len(self.shape) not in (1, 3):
            raise ValueError("samples are rows (d,) or images (C, H, W)")
        width, kept = self.shape[0], self.kept
        if kept is not None and (len(self.shape) == 3 or len(set(kept)) < len(kept) or max(kept, default=0) >= width):
            raise ValueError("the columns that are used are not columns of the rows")
        widths = {width if kept is None else len(kept), len(self.mean), len(self.scale), len(self.fill or self.mean)}
        if len(widths) > 1:
            raise ValueError("means and scales are not those of the columns")
        if self.columns and len(self.columns) != width:
            raise ValueError("there are other names than columns")

    @property
    def encoded_shape(self) -> tuple[int, ...]:
        return self.shape if self.kept is None else (len(self.kept),)

    @property
    def names(self) -> list[str]:
        return [self.columns[index] if self.columns else str(index) for index in self.kept or ()]

    @property
    def feature_names(self) -> list[str]:
        return self.names

    @property
    def scales(self) -> tuple[float, ...]:
        return self.scale

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    def by_column(self, values: Sequence[float]) -> NDArray[np.float64]:
        """Numbers of columns or channels in a shape that goes with samples."""
        return np.asarray(values, dtype=np.float64).reshape(-1, *([1] * (len(self.shape) - 1)))

    def encode(self, rows: Any, unseen: Counter[str] | None = None) -> Matrix:
        self._check(rows)
        X = np.empty((len(rows), *self.encoded_shape), dtype=np.float32)
        for part in parts_of(rows):
            X[part] = self._encode(rows[part])
        return X

    def _encode(self, rows: Any) -> Matrix:
        X = self.raw(rows)
        lacking = np.isnan(X)
        if lacking.any():
            if self.missing != "mean":
                counts = lacking.reshape(len(X), lacking.shape[1], -1).any(2).sum(0)
                names = self.names or [f"channel {index}" for index in range(len(counts))]
                named = {name: int(count) for name, count in zip(names, counts, strict=True) if count}
                raise InputError(describe_missing(named, len(X)))
            X = np.where(lacking, self.by_column(self.fill or self.mean), X)
        with np.errstate(over="ignore"):
            encoded = ((X - self.by_column(self.mean)) / self.by_column(self.scale)).astype(np.float32)
        _check_finite(encoded, self.names or ["the images"])
        return encoded

    def complete(self, rows: Any) -> NDArray[np.bool_]:
        self._check(rows)
        complete = np.ones(len(rows), dtype=bool)
        for part in parts_of(rows) if rows.dtype.kind == "f" else []:
            X = self.raw(rows[part])
            complete[part] = ~np.isnan(X.reshape(len(X), -1)).any(1)
        return complete

    def raw(self, rows: Any) -> NDArray[np.float64]:
        self._check(rows)
        return np.asarray(rows if self.kept is None else rows[:, list(self.kept)], dtype=np.float64)

    def _check(self, rows: Any) -> None:
        if tuple(getattr(rows, "shape", ())[1:]) != self.shape:
            found = rows.shape[1:] if hasattr(rows, "shape") else type(rows).__name__
            raise InputError(f"The model reads an array of samples of shape {self.shape}; these are {found}.")


_KINDS: dict[type[Encoding], str] = {TableEncoding: "table", ArrayEncoding: "array"}


def _check_finite(X: Matrix, names: Sequence[str]) -> None:
    # A sum is not finite where an entry is not, and needs no memory.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(X.sum(dtype=np.float64)):
            return
    bad = np.atleast_1d(~np.isfinite(X).all(axis=(0, *range(2, X.ndim))))
    wrong = [name for name, is_bad in zip(names, bad, strict=False) if is_bad]
    if wrong:
        raise InputError(f"Values are infinite, or too large, in {quoted(wrong)}: correct or leave out those rows.")


def describe_missing(lacking: Mapping[str, int], n: int) -> str:
    """What to say of columns that lack values."""
    columns = ", ".join(f"{name!r} ({count:,})" for name, count in lacking.items())
    return (
        f"Values are missing in {columns} of {n:,} rows. Fill in means of training ({option('missing', 'mean')}) or "
        f"leave such rows out ({option('missing', 'drop')})."
    )
