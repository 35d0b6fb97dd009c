"""From the columns of a table, or an array, to the numbers a model reads. Plain data, so it lives in model files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError

MISSING = ("error", "mean", "drop")
"""What to do with rows that lack values: refuse them, fill in the means of training, or leave the rows out."""

Matrix = NDArray[np.float32]

_ROWS_AT_ONCE = 8_192


@dataclass(frozen=True)
class Number:
    """A column x of numbers, encoded as (x − mean) / scale; a missing value as 0."""

    name: str
    mean: float
    scale: float


@dataclass(frozen=True)
class Category:
    """A column of text, encoded as zeros and a one at its value; a missing value as the shares of the values.

    A value that training has not seen is encoded as zeros alone.
    """

    name: str
    values: tuple[str, ...]
    shares: tuple[float, ...]
    boolean: bool = False


@dataclass(frozen=True)
class TablePreprocessing:
    """The columns of a table that a model reads, in its order, and those that it does not."""

    columns: tuple[Number | Category, ...]
    missing: str = "error"
    identifiers: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The columns of the table that are read."""
        return [column.name for column in self.columns]

    @property
    def feature_names(self) -> list[str]:
        """The d columns that the model sees."""
        return [name for column in self.columns for name in _feature_names(column)]

    @property
    def shares(self) -> frozenset[str]:
        """Those among them that are zeros and ones."""
        return frozenset(
            name for column in self.columns if isinstance(column, Category) for name in _feature_names(column)
        )

    def encode(self, table: Any) -> Matrix:
        """(n, d) from a table of n rows: a data frame or an Arrow table. Columns are found by name."""
        table = self._select(table)
        X = np.empty((table.num_rows, len(self.feature_names)), dtype=np.float32)
        lacking: dict[str, int] = {}
        first = 0
        for column in self.columns:
            values = table.column(column.name)
            width = len(_feature_names(column))
            absent = _encode(column, values, X[:, first : first + width])
            if absent:
                lacking[column.name] = absent
            first += width
        if lacking and self.missing != "mean":
            raise InputError(describe_missing(lacking, table.num_rows))
        _check_finite(X, self.feature_names)
        return X

    def complete(self, table: Any) -> NDArray[np.bool_]:
        """Which of the n rows lack nothing, (n,)."""
        table = self._select(table)
        complete = np.ones(table.num_rows, dtype=bool)
        for column in self.columns:
            complete &= ~is_missing(table.column(column.name))
        return complete

    def unseen(self, table: Any) -> dict[str, int]:
        """Values in text columns that training has not seen: how many, by column."""
        table = self._select(table)
        counts = {}
        for column in self.columns:
            if isinstance(column, Category):
                values = table.column(column.name)
                position = _positions(column, values)
                counts[column.name] = int((np.isnan(position) & ~is_missing(values)).sum())
        return {name: count for name, count in counts.items() if count}

    def raw(self, table: Any) -> NDArray[np.float64]:
        """(n, d) in the units of the table, NaN where a value is missing."""
        table = self._select(table)
        parts = []
        for column in self.columns:
            values = table.column(column.name)
            if isinstance(column, Number):
                parts.append(as_numbers(column.name, values)[:, None])
            else:
                position = _positions(column, values)
                ones = (position[:, None] == np.arange(len(column.values))).astype(np.float64)
                ones[is_missing(values)] = np.nan
                parts.append(ones)
        return np.concatenate(parts, axis=1)

    def _select(self, table: Any) -> Any:
        table = as_arrow(table, self.names)
        absent = [name for name in self.names if name not in table.column_names]
        if absent:
            raise InputError(
                f"The model reads columns that are not there: {_quoted(absent)}. "
                f"There are: {_quoted(table.column_names)}."
            )
        return table.select(self.names)

    def as_json(self) -> dict[str, Any]:
        """Plain data, for a model file."""
        columns = [{"kind": type(column).__name__.lower(), **asdict(column)} for column in self.columns]
        return {
            "kind": "table",
            "columns": columns,
            "missing": self.missing,
            "identifiers": list(self.identifiers),
            "left_out": dict(self.left_out),
        }


@dataclass(frozen=True)
class ArrayPreprocessing:
    """Rows (n, d), or images (n, C, H, W), standardised: by column, or by channel.

    ``kept`` are the columns of rows that are used; those that never vary are not. ``missing`` is as for tables.
    """

    shape: tuple[int, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    kept: tuple[int, ...] | None = None
    missing: str = "error"
    left_out: Mapping[str, str] = field(default_factory=dict)

    identifiers: tuple[str, ...] = ()
    shares: frozenset[str] = frozenset()

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    @property
    def feature_names(self) -> list[str]:
        """The columns that the model sees, by their numbers; images have none."""
        return [] if self.kept is None else [str(index) for index in self.kept]

    def encode(self, array: Any) -> Matrix:
        """(n, d), or (n, C, H, W), from an array of n samples as they were in the file."""
        self._check(array)
        parts = [self._encode(array[first : first + _ROWS_AT_ONCE]) for first in range(0, len(array), _ROWS_AT_ONCE)]
        return np.concatenate(parts) if parts else np.empty((0, *self.shape), dtype=np.float32)

    def _encode(self, array: Any) -> Matrix:
        X = self.raw(array)
        lacking = np.isnan(X)
        if lacking.any():
            if self.missing != "mean":
                counts = lacking.reshape(len(X), lacking.shape[1], -1).any(2).sum(0)
                named = {self._name(index): int(count) for index, count in enumerate(counts) if count}
                raise InputError(describe_missing(named, len(X)))
            # Means become zero below.
            X = np.where(lacking, self._by_column(self.mean), X)
        with np.errstate(over="ignore"):
            standardised = ((X - self._by_column(self.mean)) / self._by_column(self.scale)).astype(np.float32)
        _check_finite(standardised, self.feature_names or ["the images"])
        return standardised

    def _name(self, index: int) -> str:
        return self.feature_names[index] if self.feature_names else f"channel {index}"

    def _by_column(self, values: Sequence[float]) -> NDArray[np.float64]:
        return np.asarray(values).reshape(-1, *([1] * (len(self.shape) - 1)))

    def complete(self, array: Any) -> NDArray[np.bool_]:
        """Which of the n samples lack nothing, (n,)."""
        X = self.raw(array)
        return np.asarray(~np.isnan(X.reshape(len(X), -1)).any(1))

    def unseen(self, array: Any) -> dict[str, int]:
        """Numbers have no categories."""
        return {}

    def raw(self, array: Any) -> NDArray[np.float64]:
        """The samples in their own units, with the columns that are used."""
        self._check(array)
        return np.asarray(array if self.kept is None else array[:, list(self.kept)], dtype=np.float64)

    def _check(self, array: Any) -> None:
        if tuple(getattr(array, "shape", ())[1:]) != self.shape:
            found = array.shape[1:] if hasattr(array, "shape") else type(array).__name__
            raise InputError(f"The model reads an array of samples of shape {self.shape}; these are {found}.")

    def as_json(self) -> dict[str, Any]:
        """Plain data, for a model file."""
        values = {name: getattr(self, name) for name in ("shape", "mean", "scale", "kept", "missing")}
        return {"kind": "array", **values, "left_out": dict(self.left_out)}


Preprocessing = TablePreprocessing | ArrayPreprocessing


def from_json(description: Mapping[str, Any]) -> Preprocessing:
    """The preprocessing in a model file; a KeyError or TypeError where there is none."""
    missing, left_out = str(description["missing"]), {str(k): str(v) for k, v in description["left_out"].items()}
    if description["kind"] == "table":
        columns = tuple(_column_from_json(column) for column in description["columns"])
        identifiers = tuple(str(name) for name in description["identifiers"])
        return TablePreprocessing(columns, missing, identifiers, left_out)
    if description["kind"] != "array":
        raise KeyError("kind")
    mean, scale = (tuple(float(value) for value in description[name]) for name in ("mean", "scale"))
    shape = tuple(int(size) for size in description["shape"])
    kept = None if description["kept"] is None else tuple(int(index) for index in description["kept"])
    widths = {len(mean), len(scale), shape[0] if kept is None else len(kept)}
    if len(widths) != 1 or (kept is not None and not all(0 <= index < shape[0] for index in kept)):
        raise IndexError("means and scales are not those of the columns")
    return ArrayPreprocessing(shape, mean, scale, kept, missing, left_out)


def _column_from_json(column: Mapping[str, Any]) -> Number | Category:
    name = str(column["name"])
    if column["kind"] == "number":
        return Number(name, float(column["mean"]), float(column["scale"]))
    values, shares = tuple(str(value) for value in column["values"]), tuple(float(share) for share in column["shares"])
    if len(values) != len(shares):
        raise IndexError("values and shares differ in number")
    return Category(name, values, shares, bool(column["boolean"]))


def moments(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard deviation of the numbers (n,) that are there; (nan, nan) of none."""
    values = values[~np.isnan(values)]
    if not values.size:
        return math.nan, math.nan
    with np.errstate(over="ignore", invalid="ignore"):
        return float(values.mean()), float(values.std())


def as_arrow(table: Any, names: Sequence[str] = ()) -> Any:
    """An Arrow table from one, a batch of one, or a data frame."""
    pa = _pyarrow()
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    try:
        if hasattr(table, "iloc"):
            return pa.Table.from_pandas(table, preserve_index=False)
        if hasattr(table, "__arrow_c_stream__") or isinstance(table, Mapping):
            return pa.table(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise InputError(f"The data frame cannot be read as a table: {error}") from error
    raise InputError(
        f"This model was trained on a table and reads its columns by name: pass a data frame with {_quoted(names)}, "
        f"not {type(table).__name__}."
    )


def as_numbers(name: str, values: Any) -> NDArray[np.float64]:
    """A column of an Arrow table as numbers (n,), NaN where one is missing."""
    pa = _pyarrow()
    try:
        return np.asarray(values.cast(pa.float64()).to_numpy(), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"Column {name!r} must hold numbers: {error}. Correct it, or leave those rows out.") from error


def as_text(values: Any) -> Any:
    """A column of an Arrow table as text."""
    return values.cast(_pyarrow().string())


def is_missing(values: Any) -> NDArray[np.bool_]:
    """Where a column of an Arrow table has no value, (n,); NaN is none."""
    return np.asarray(values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False), dtype=bool)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise InputError("Tables are read by pyarrow: pip install 'pollux[files]'.") from error
    return pyarrow


def _encode(column: Number | Category, values: Any, out: Matrix) -> int:
    """Write the encoded column into ``out`` (n, width), and tell how many values are missing."""
    if isinstance(column, Number):
        numbers = as_numbers(column.name, values)
        with np.errstate(over="ignore", invalid="ignore"):
            out[:, 0] = (numbers - column.mean) / column.scale
        absent = np.isnan(numbers)
        if absent.any():
            out[absent] = 0
        return int(absent.sum())
    absent = is_missing(values)
    out[:] = _positions(column, values)[:, None] == np.arange(len(column.values))
    out[absent] = column.shares
    return int(absent.sum())


def _positions(column: Category, values: Any) -> NDArray[np.float64]:
    """Which of the column's values each is, (n,); NaN where it is none of them."""
    pa = _pyarrow()
    import pyarrow.compute as pc

    if column.boolean:
        try:
            values = values.cast(pa.bool_())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"Column {column.name!r} must hold true or false: {error}.") from error
    found = pc.index_in(as_text(values), value_set=pa.array(column.values, pa.string()))
    return np.asarray(found.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _feature_names(column: Number | Category) -> list[str]:
    if isinstance(column, Number):
        return [column.name]
    return [f"{column.name}={value}" for value in column.values]


def _check_finite(X: Matrix, names: Sequence[str]) -> None:
    # A sum is not finite where an entry is not, and needs no memory.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(X.sum(dtype=np.float64)):
            return
    bad = np.atleast_1d(~np.isfinite(X).all(axis=(0, *range(2, X.ndim))))
    wrong = [name for name, is_bad in zip(names, bad, strict=False) if is_bad]
    if wrong:
        raise InputError(f"Values are infinite, or too large, in {_quoted(wrong)}: correct or leave out those rows.")


def describe_missing(lacking: Mapping[str, int], n: int) -> str:
    """What to say of columns that lack values."""
    columns = ", ".join(f"{name!r} ({count:,})" for name, count in lacking.items())
    return (
        f"Values are missing in {columns} of {n:,} rows. Fill in the means of training (--missing mean) or leave "
        f"such rows out (--missing drop)."
    )


def _quoted(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(str(name)) for name in list(names)[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
