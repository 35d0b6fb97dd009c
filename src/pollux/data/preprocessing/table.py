"""From the columns of a table to the numbers a model reads. Plain data, so it lives in model files."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.preprocessing.arrow import as_arrow, as_numbers, as_text, is_missing, numbers_as_text, pyarrow_library
from pollux.data.preprocessing.common import Matrix, check_finite, describe_missing, quoted
from pollux.errors import InputError, did_you_mean


class UnseenWarning(UserWarning):
    """A text column holds values that training has not seen; each counts as none of those it has."""


@dataclass(frozen=True)
class Number:
    """A column x of numbers, encoded as (x − mean) / scale; a missing value as 0."""

    name: str
    mean: float
    scale: float


@dataclass(frozen=True)
class Category:
    """A column of text, encoded as zeros and a one at its value; a missing value as the shares of the values.

    A value that training has not seen is encoded as zeros alone. ``boolean`` and ``number`` tell that the column holds
    true and false, or numbers that are names; 3 and 3.0 are the same one.
    """

    name: str
    values: tuple[str, ...]
    shares: tuple[float, ...]
    boolean: bool = False
    number: bool = False


@dataclass(frozen=True)
class TablePreprocessing:
    """The columns of a table that a model reads, in its order, and those that it does not."""

    columns: tuple[Number | Category, ...]
    missing: str = "error"
    identifiers: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def encoded_shape(self) -> tuple[int, ...]:
        """(d,)."""
        return (len(self.feature_names),)

    @property
    def names(self) -> list[str]:
        """The columns of the table that are read."""
        return [column.name for column in self.columns]

    @property
    def feature_names(self) -> list[str]:
        """The d columns that the model sees."""
        return [name for column in self.columns for name in _feature_names(column)]

    @property
    def scales(self) -> tuple[float, ...]:
        """What columns of numbers are divided by."""
        return tuple(column.scale for column in self.columns if isinstance(column, Number))

    @property
    def shares(self) -> frozenset[str]:
        """Those among them that are zeros and ones."""
        return frozenset(
            name for column in self.columns if isinstance(column, Category) for name in _feature_names(column)
        )

    def encode(self, table: Any, unseen: Counter[str] | None = None) -> Matrix:
        """(n, d) from a table of n rows: a data frame or an Arrow table. Columns are found by name.

        Values of text columns that training has not seen are counted in ``unseen``, by column; or else warned of.
        """
        table = self._select(table)
        X = np.empty((table.num_rows, len(self.feature_names)), dtype=np.float32)
        lacking: dict[str, int] = {}
        others: Counter[str] = Counter()
        first = 0
        for column in self.columns:
            width = len(_feature_names(column))
            absent, strange = _encode(column, table.column(column.name), X[:, first : first + width])
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
            told = f"{count:,} values of column {name!r} were not seen in training."
            warnings.warn(told, UnseenWarning, stacklevel=2)
        check_finite(X, self.feature_names)
        return X

    def complete(self, table: Any) -> NDArray[np.bool_]:
        """Which of the n rows lack nothing, (n,)."""
        table = self._select(table)
        complete = np.ones(table.num_rows, dtype=bool)
        for column in self.columns:
            complete &= ~is_missing(table.column(column.name))
        return complete

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
        self.check_there(table.column_names)
        return table.select(self.names)

    def check_there(self, names: Sequence[str]) -> None:
        """Raise an InputError that names the columns that are read and not there."""
        there = set(names)
        absent = [name for name in self.names if name not in there]
        if absent:
            raise InputError(
                f"The model reads columns that are not there: {quoted(absent)}.{did_you_mean(absent[0], names)} "
                f"There are: {quoted(names)}."
            )

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


def _encode(column: Number | Category, values: Any, out: Matrix) -> tuple[int, int]:
    """Write the encoded column into ``out`` (n, width), and tell how many values are missing, and how many unseen."""
    if isinstance(column, Number):
        numbers = as_numbers(column.name, values)
        with np.errstate(over="ignore", invalid="ignore"):
            out[:, 0] = (numbers - column.mean) / column.scale
        absent = np.isnan(numbers)
        if absent.any():
            out[absent] = 0
        return int(absent.sum()), 0
    absent, position = is_missing(values), _positions(column, values)
    out[:] = position[:, None] == np.arange(len(column.values))
    out[absent] = column.shares
    return int(absent.sum()), int((np.isnan(position) & ~absent).sum())


def _positions(column: Category, values: Any) -> NDArray[np.float64]:
    """Which of the column's values each is, (n,); NaN where it is none of them."""
    pa = pyarrow_library()
    import pyarrow.compute as pc

    if column.boolean:
        try:
            values = values.cast(pa.bool_())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"Column {column.name!r} must hold true or false: {error}.") from error
    text = numbers_as_text(column.name, values) if column.number else as_text(values)
    found = pc.index_in(text, value_set=pa.array(column.values, pa.string()))
    return np.asarray(found.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _feature_names(column: Number | Category) -> list[str]:
    if isinstance(column, Number):
        return [column.name]
    return [f"{column.name}={value}" for value in column.values]
