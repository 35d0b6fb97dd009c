"""Encodings from raw rows to the numbers that a model reads: plain data, stored in model files. Without torch."""

from __future__ import annotations

import math
import operator
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import (
    VECTOR,
    as_arrow,
    as_numbers,
    as_text,
    is_missing,
    kind_of,
    numbers_as_text,
    plain,
    pyarrow_library,
    quoted,
)
from pollux.data.moments import looks_embedded, parts_of
from pollux.data.spellings import CYCLES, DAY, EXAMPLES, TRUTHS, YEAR, comparable_units, read_times, written_numbers
from pollux.errors import InputError, advised, did_you_mean, option, warn
from pollux.io.parsing import Count, Finite, Positive, Share, Size, parse
from pollux.names import MISSING_IN_FILES
from pollux.progress import track

Matrix = NDArray[np.float32]
MOST_VALUES = 20
"""Maximum number of different values of text, and of integers that are classes."""
FEWEST_ROWS_OF_GAPS = 5
"""Minimum number of rows for a column without values to be noted: of fewer, all may lack one by chance."""


class UnseenValues(Counter[str]):
    """Counts of values of text columns that were not in the training data, and the first of them, by column."""

    def __init__(self) -> None:
        super().__init__()
        self.examples: dict[str, dict[str, None]] = {}

    def note(self, name: str, count: int, values: Iterable[str]) -> None:
        """Add ``count`` values of a column, some of which are given."""
        self[name] += count
        known = self.examples.setdefault(name, {})
        known |= dict.fromkeys(values)
        self.examples[name] = dict.fromkeys(list(known)[:_MOST_EXAMPLES])

    def describe(self, name: str) -> str:
        """A phrase about a column, without a full stop."""
        shown = ", ".join(map(repr, self.examples[name]))
        return f"{self[name]:,} values of column {name!r} were not seen in training, such as {shown}"


_MOST_EXAMPLES, _ROWS_OF_EXAMPLES = 3, 1_000


class UnseenWarning(UserWarning):
    """A text column holds values that training has not seen, each encoded as zeros; or rows have no value at all."""


class Feature(NamedTuple):
    """A readable column of numbers: for text and seasons, whether a row has the ``value``.

    ``source`` is the column of the table that it comes from, which may have another name. Dates are in years.
    """

    source: str
    value: str = ""
    column: str = ""
    is_date: bool = False

    @property
    def name(self) -> str:
        own = self.column or self.source
        return f"{own}={self.value}" if self.value else own


class Encoding(ABC):
    """How rows of a table, an array or images are encoded as samples for a model.

    ``missing`` says how rows with missing values are handled: refused ("error"), filled with the means of the training
    ("mean"), or left out by the caller ("drop"). ``identifiers`` are columns that identify rows, and ``left_out`` gives
    the reasons why other columns are not used.
    """

    missing: str
    identifiers: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    @abstractmethod
    def encoded_shape(self) -> tuple[int, ...]:
        """Shape of one sample: (d,), or (C, H, W)."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The columns that are used, by name or number; images have none."""

    @property
    @abstractmethod
    def feature_names(self) -> list[str]:
        """Names of the d features of the model; images have none."""

    @property
    @abstractmethod
    def scales(self) -> tuple[float, ...]:
        """Scales by which columns of numbers, or channels, are divided."""

    @property
    @abstractmethod
    def means(self) -> tuple[float, ...]:
        """Means that are subtracted from them before."""

    @property
    def shares(self) -> frozenset[str]:
        """The features that only hold zeros and ones."""
        return frozenset()

    def looks_embedded(self, samples: Matrix) -> bool:
        """Whether samples are vectors of an encoder, judged by their columns or by their lengths."""
        is_vector = bool(self.names) and all(VECTOR.fullmatch(name) for name in self.names)
        return is_vector or looks_embedded(self.decode_numbers(samples))

    def decode_numbers(self, encoded: NDArray[Any]) -> NDArray[np.float64]:
        """Decode rows (n, d) to their original numbers; (n, 0) if not all columns are numbers."""
        encoded = encoded.astype(np.float64)
        means, scales = (np.asarray(values, dtype=np.float64) for values in (self.means, self.scales))
        return encoded * scales + means if len(scales) == encoded.shape[1] else encoded[:, :0]

    @abstractmethod
    def encode(self, rows: Any, unseen: UnseenValues | None = None) -> Matrix:
        """Encode n rows as (n, *encoded_shape): a data frame or an Arrow table, or an array as it was in the file.

        Unseen values of text columns are counted in ``unseen``, by column; without it they are warned about.
        """

    @abstractmethod
    def complete(self, rows: Any) -> NDArray[np.bool_]:
        """Mask (n,) of the rows without missing values."""

    def select_rows(self, rows: Any) -> Any:
        """The rows of an Arrow table or an array that are encoded: if incomplete ones are dropped, the others."""
        if self.missing != "drop":
            return rows
        complete = self.complete(rows)
        return rows[complete] if isinstance(rows, np.ndarray) else rows.filter(complete)

    @abstractmethod
    def count_empty(self, rows: Any) -> int:
        """Number of rows in which all values are missing."""

    @abstractmethod
    def find_empty(self, rows: Any, names: Iterable[str]) -> list[str]:
        """Those of the columns ``names`` in which all values are missing."""

    @abstractmethod
    def readable(self, rows: Any) -> tuple[NDArray[np.float64], tuple[Feature, ...]]:
        """Columns (n, p) in the units of the rows, NaN for missing values, and their features; not for images."""

    def with_missing(self, missing: str) -> Encoding:
        """The same encoding with another treatment of missing values."""
        changed: Encoding = replace(cast("Any", self), missing=missing)
        return changed

    def after(self, earlier: Encoding) -> Encoding:
        """The same encoding with the decisions of an earlier one, which had seen all rows."""
        return replace(cast("Any", self), left_out={**earlier.left_out, **self.left_out})  # type: ignore[no-any-return]

    @property
    @abstractmethod
    def decisions(self) -> Decisions:
        """The decision about each column; images have none."""

    def _decisions_left_out(self) -> list[Decision]:
        kinds = dict.fromkeys(self.identifiers, "id")
        return [Decision(name, kinds.get(name, ""), False, reason) for name, reason in self.left_out.items()]

    def as_json(self) -> dict[str, Any]:
        """Plain data for a model file."""
        return {"kind": _KINDS[type(self)], **msgspec.to_builtins(self, enc_hook=operator.methodcaller("item"))}

    @staticmethod
    def from_json(description: Any, source: str | Path = "encoding") -> Encoding:
        """The encoding in a model file, which messages call ``source``; an InputError if it is invalid."""
        kind = description.get("kind") if isinstance(description, dict) else None
        for encoding, name in _KINDS.items():
            if name == kind:
                return parse(description, encoding, source)
        raise InputError(f"{source}: there are no encodings of kind {kind!r}.")

    def _check_missing(self) -> None:
        if self.missing not in MISSING_IN_FILES:
            raise ValueError(f"missing values cannot be treated by {self.missing!r}")


class Number(msgspec.Struct, frozen=True, tag="number", tag_field="kind"):
    """A column x of numbers, encoded as (x − mean) / scale; a missing value is replaced by ``fill``, or else the mean.

    ``decimal`` is the decimal separator if the column is text; ``unit`` is the unit written beside the numbers. Another
    unit is an error, and so is text that is not a number; with ``coerce`` it counts as missing. The word ``marker``
    always does.
    """

    name: str
    mean: Finite
    scale: Positive
    fill: Finite | None = None
    decimal: Literal["", ".", ","] = ""
    unit: str = ""
    coerce: bool = False
    marker: str = ""

    @property
    def filled(self) -> float:
        """The encoding of a missing value."""
        return 0.0 if self.fill is None else (self.fill - self.mean) / self.scale

    @property
    def feature_names(self) -> list[str]:
        return [self.name]

    def read(self, values: Any) -> NDArray[np.float64]:
        """The numbers of an Arrow column, (n,); NaN for missing values."""
        if not self.decimal or kind_of(values.type) != "text":
            return as_numbers(self.name, values)
        numbers, units = written_numbers(as_text(values), self.decimal)
        if not self.coerce and len(comparable_units({self.unit, *units})) > 1:
            other = quoted(sorted(units - {self.unit}), 3)
            own = repr(self.unit) if self.unit else "none"
            raise InputError(
                f"Column {self.name!r} holds numbers with the unit {other}, and {own} in training: convert them, or "
                "leave those rows out."
            )
        strange = np.isnan(numbers) & ~is_missing(values)
        if strange.any() and self.marker:
            trimmed = pyarrow_library().compute.utf8_trim_whitespace(as_text(values))
            strange &= ~np.asarray(pyarrow_library().compute.equal(trimmed, self.marker).fill_null(False))
        if strange.any() and not self.coerce:
            first = values[int(strange.argmax())].as_py()
            raise InputError(
                f"Column {self.name!r} must hold numbers, and {first!r} is not one, written as 1234{self.decimal}5. "
                f"Correct it, or leave those rows out."
            )
        return numbers

    def encode(self, values: Any, out: Matrix, unseen: UnseenValues) -> int:
        """Write the column to ``out`` (n, 1), and return the number of missing values."""
        numbers = self.read(values)
        with np.errstate(over="ignore", invalid="ignore"):
            out[:, 0] = (numbers - self.mean) / self.scale
        absent = np.isnan(numbers)
        if absent.any():
            out[absent] = self.filled
        return int(absent.sum())

    @property
    def readable_features(self) -> list[Feature]:
        return [Feature(self.name)]

    def readable(self, values: Any) -> NDArray[np.float64]:
        return self.read(values)[:, None]

    def is_missing(self, values: Any) -> NDArray[np.bool_]:
        return np.isnan(self.read(values)) if self.coerce or self.marker else is_missing(values)


class Category(msgspec.Struct, frozen=True, tag="category", tag_field="kind"):
    """A column of text, one-hot encoded; a missing value is encoded as the shares of the values.

    With a ``scale`` the shares are subtracted and the difference is divided by it, so that the column counts as much as
    one of numbers. A ``single`` column of two values is one feature, that of the second value; with ``other`` the last
    feature is for all values that are not listed, with the last share. Without it an unseen value is encoded as zeros.
    Blanks around a value do not matter. ``boolean`` and ``number`` say that the column holds true and false, or numbers
    that are names; 3 and 3.0 are then equal.
    """

    name: str
    values: tuple[str, ...]
    shares: tuple[Share, ...]
    boolean: bool = False
    number: bool = False
    scale: Positive | None = None
    single: bool = False
    other: bool = False

    def __post_init__(self) -> None:
        if len(self.values) + self.other != len(self.shares) or len(set(self.values)) < len(self.values):
            raise ValueError("each value has one share")
        if math.fsum(self.shares) > 1 + 1e-9:
            raise ValueError("shares of values are more than all")
        if self.single and (len(self.values) != 2 or self.other):
            raise ValueError("a single feature is of two values")

    @property
    def feature_names(self) -> list[str]:
        shown = self.values[1:] if self.single else (*self.values, *(["other"] if self.other else []))
        return [f"{self.name}={value}" for value in shown]

    @property
    def codes(self) -> NDArray[np.float64]:
        """Codes (v + 2, width) of the v values, of an unknown value, and of a missing one."""
        v, shares = len(self.values), np.array(self.shares)
        rows = np.zeros((v + 2, len(shares)))
        rows[:v, :v] = np.eye(v)
        rows[v + 1] = shares
        if self.other:
            rows[v, v] = 1.0
        if self.single:
            # An unknown value of a column of two values is treated as missing.
            rows[v] = shares
            rows, shares = rows[:, 1:], shares[1:]
        return rows if self.scale is None else (rows - shares) / self.scale

    def encode(self, values: Any, out: Matrix, unseen: UnseenValues) -> int:
        """Write the column to ``out`` (n, values), and return the number of missing values."""
        absent, position = is_missing(values), self._positions(values)
        unknown = np.isnan(position) & ~absent
        v = len(self.values)
        out[:] = self.codes.astype(np.float32)[np.where(absent, v + 1, np.where(unknown, v, position)).astype(np.int64)]
        if unknown.any() and not self.other:
            some = plain(values).take(np.flatnonzero(unknown)[:_ROWS_OF_EXAMPLES])
            unseen.note(self.name, int(unknown.sum()), map(str, some.to_pylist()))
        return int(absent.sum())

    @property
    def readable_features(self) -> list[Feature]:
        return [Feature(self.name, value) for value in (*self.values, *(["a rare value"] if self.other else []))]

    def readable(self, values: Any) -> NDArray[np.float64]:
        absent, position = is_missing(values), self._positions(values)
        if self.other:
            position = np.where(np.isnan(position), len(self.values), position)
        ones: NDArray[np.float64] = (position[:, None] == np.arange(len(self.shares))).astype(np.float64)
        ones[absent] = np.nan
        return ones

    def is_missing(self, values: Any) -> NDArray[np.bool_]:
        return is_missing(values)

    def _positions(self, values: Any) -> NDArray[np.float64]:
        """The index (n,) of each value among those of the column; NaN if it is not one of them."""
        pa = pyarrow_library()
        if self.boolean:
            values = self._truths(values)
        text = numbers_as_text(self.name, values) if self.number else as_text(values)
        found = pa.compute.index_in(text, value_set=pa.array(self.values, pa.string()))
        if not self.number and found.null_count > text.null_count:
            # Older files have values with blanks around them, which may be those of different categories.
            trimmed = pa.array([value.strip() for value in self.values], pa.string())
            alike = pa.compute.index_in(pa.compute.utf8_trim_whitespace(text), value_set=trimmed)
            found = pa.compute.coalesce(found, alike)
        return np.asarray(found.cast(pa.float64()), dtype=np.float64)

    def _truths(self, values: Any) -> Any:
        """An Arrow column as true and false."""
        pa = pyarrow_library()
        values = plain(values)
        if kind_of(values.type) != "text":
            try:
                return values.cast(pa.bool_())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(f"Column {self.name!r} must hold true or false: {error}.") from error
        words = pa.compute.utf8_lower(pa.compute.utf8_trim_whitespace(values))
        found = pa.compute.index_in(words, value_set=pa.array(list(TRUTHS)))
        strange = np.asarray(found.is_null()) & ~is_missing(values)
        if strange.any():
            first = values[int(strange.argmax())].as_py()
            raise InputError(
                f"Column {self.name!r} must hold true or false, or yes or no, and {first!r} is neither. Correct it, or "
                "leave those rows out."
            )
        return pa.array(list(TRUTHS.values())).take(found)


class Date(msgspec.Struct, frozen=True, tag="date", tag_field="kind"):
    """A column of times, whose ``facets`` are features: the year, and phases of cycles.

    The phase of a cycle is two features, a cosine and a sine. Each is encoded as (x − mean) / scale; a missing value is
    replaced by ``fill``, or else the mean. ``form`` is the notation of text, see :data:`spellings.DATES`.
    """

    name: str
    form: str
    facets: tuple[Literal["year", "season", "weekday", "time of day"], ...]
    mean: tuple[Finite, ...]
    scale: tuple[Positive, ...]
    fill: tuple[Finite, ...] | None = None
    coerce: bool = False

    def __post_init__(self) -> None:
        widths = {len(self.feature_names), len(self.mean), len(self.scale), len(self.fill or self.mean)}
        if len(widths) > 1 or not self.facets or len(set(self.facets)) < len(self.facets):
            raise ValueError("means and scales are not those of the facets")

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name}: {part}" for facet in self.facets for part in FACETS[facet]]

    def read(self, values: Any) -> NDArray[np.float64]:
        """The times of an Arrow column, (n,), in seconds since the start of 1970; NaN for missing values."""
        times = read_times(values, self.form, self.name)
        strange = np.isnan(times) & ~is_missing(values)
        if strange.any() and not self.coerce:
            first = str(values[int(strange.argmax())].as_py())
            form = self.form if self.form in EXAMPLES else "year-month-day"
            if kind_of(values.type) in ("integer", "number"):
                raise InputError(
                    f"Column {self.name!r} must hold dates, and holds numbers such as {first}. Write dates as text, as "
                    f"in {EXAMPLES[form]}; df.to_json writes milliseconds unless it is told date_format='iso'."
                )
            raise InputError(
                f"Column {self.name!r} must hold dates written as {form}, such as {EXAMPLES[form]}, and {first!r} is "
                "not written so. Other ways are read if all values of the column are written in one that leaves no "
                "doubt. Correct it, or leave those rows out."
            )
        return times

    def encode(self, values: Any, out: Matrix, unseen: UnseenValues) -> int:
        """Write the column to ``out`` (n, features), and return the number of missing values."""
        facets, mean, scale = facets_of(self.read(values), self.facets), np.array(self.mean), np.array(self.scale)
        absent = np.isnan(facets[:, 0])
        facets[absent] = self.mean if self.fill is None else self.fill
        out[:] = (facets - mean) / scale
        return int(absent.sum())

    @property
    def readable_features(self) -> list[Feature]:
        features: list[Feature] = []
        for facet in self.facets:
            if facet in PARTS:
                features += [Feature(self.name, part) for part in PARTS[facet]]
            else:
                is_year = facet == "year"
                features.append(Feature(self.name, "", "" if is_year else f"{self.name}: hour", is_year))
        return features

    def readable(self, values: Any) -> NDArray[np.float64]:
        """Years and hours as numbers, seasons and days of the week as zeros and ones."""
        times = self.read(values)
        columns = []
        for facet in self.facets:
            if facet == "year":
                columns.append(1970 + times / YEAR)
                continue
            if facet == "time of day":
                columns.append(times % DAY / 3600)
                continue
            if facet == "season":
                months = np.nan_to_num(times).astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
                # The first season begins with December.
                part: NDArray[Any] = (months + 1) % 12 // 3
            else:
                part = (times - BEGINNINGS[facet]) // DAY % 7
            columns += [np.where(np.isnan(times), np.nan, part == each) for each in range(len(PARTS[facet]))]
        return np.stack(columns, axis=1)

    def is_missing(self, values: Any) -> NDArray[np.bool_]:
        return np.isnan(self.read(values))


FACETS = {
    "year": ("year",),
    "season": ("winter", "spring"),
    "weekday": ("weekend", "early week"),
    "time of day": ("night", "morning"),
}
"""Facets of times: the year with its fraction, or the phase of a cycle, as cosine and sine."""

PARTS = {
    "season": ("December to February", "March to May", "June to August", "September to November"),
    "weekday": ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
}
"""Names of the parts of cycles."""

BEGINNINGS = {"weekday": 3 * DAY}
"""Origins of cycles, in seconds: Sunday, 1970-01-04, for weeks; else the start of 1970."""


def facets_of(times: NDArray[np.float64], facets: Sequence[str]) -> NDArray[np.float64]:
    """Facets (n, features) of times (n,) in seconds since the start of 1970."""
    columns = []
    for facet in facets:
        if facet == "year":
            columns.append(1970 + times / YEAR)
        else:
            angle = 2 * np.pi * ((times - BEGINNINGS.get(facet, 0.0)) / CYCLES[facet] % 1.0)
            columns += [np.cos(angle), np.sin(angle)]
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Decision:
    """The decision about a column: its kind, whether the model uses it, and why or how."""

    name: str
    kind: str
    used: bool
    reason: str = ""


class Decisions(tuple[Decision, ...]):
    """The decisions about all columns of a table; printed as a table."""

    def __str__(self) -> str:
        return "\n".join(self.lines(len(self)))

    __repr__ = __str__

    def lines(self, most: int) -> list[str]:
        """A heading, and a line for each column; numbered columns that are treated alike share one.

        If there are more than ``most`` lines, numbered columns share one wherever they stand, columns that may be known
        classes come first, then those that are treated differently from most.
        """

        def treatment(each: Decision) -> tuple[str, str, str]:
            return _NUMBER_OF_COLUMN.sub("", each.name), each.kind if each.used else "not used", each.reason

        def list_groups(decisions: Iterable[Decision], count: str) -> list[tuple[str, str, str]]:
            found = []
            for (_, kind, reason), alike in groupby(decisions, treatment):
                names = [each.name for each in alike]
                if len(names) >= _FEWEST_ALIKE:
                    names = [f"{names[0]} … {names[-1]}{count.format(len(names))}"]
                found += [(name, kind, reason) for name in names]
            return found

        found = list_groups(self, "")
        if len(found) > most:
            # Sorted by the first decision that is treated alike.
            first: dict[tuple[str, str, str], int] = {}
            for place, each in enumerate(self):
                first.setdefault(treatment(each), place)
            found = list_groups(sorted(self, key=lambda each: first[treatment(each)]), " ({:,})")
        if len(found) > most:
            (usual, _), *_ = Counter(kind for _, kind, _ in found).most_common(1)
            found.sort(key=lambda row: 0 if LIKE_A_CLASS in row[2] else 1 if row[1] != usual else 2)
        further = [kind for _, kind, _ in found[most:]]
        rows = [("column", "used as", ""), *found[:most]]
        wide = max(len(name[:_WIDEST_NAME]) for name, _, _ in rows)
        lines = [f"  {_shortened(name):{wide}}  {kind:8}  {reason}".rstrip() for name, kind, reason in rows]
        alike_too = f", {further[0]}" if len(set(further)) == 1 else ""
        return lines + ([f"  … and {len(further):,} more{alike_too}"] if further else [])


_WIDEST_NAME, _FEWEST_ALIKE = 32, 6
LIKE_A_CLASS = "is called like a known class"
"""A note on a column that the model uses, though it may be the one to compare clusters with."""
_NAMES_CLASSES = re.compile(
    r"(known_?|true_?)?(class|label|target)([_ ]?(label|name))?|outcome|y|diagnosis|survived|tumou?r", re.I
)
_NUMBER_OF_COLUMN = re.compile(r"\d+(?=\]?$)")


def warn_of_class(name: str, low: float, high: float) -> str:
    """A note on a column that is named like a class, if its numbers have so small a range; else ""."""
    is_like_one = _NAMES_CLASSES.fullmatch(name.strip()) and float(low).is_integer() and float(high).is_integer()
    if not is_like_one or not high - low < MOST_VALUES:
        return ""
    instead = advised(
        f"without it, X.drop(columns={name!r}), clusters can be compared with it (pollux.metrics)",
        f"{option('label', name)} scores against it instead of clustering on it",
    )
    return f"{name!r} {LIKE_A_CLASS}: {instead}"


def _shortened(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= _WIDEST_NAME else f"{name[: _WIDEST_NAME - 1]}…"


def readable_names(names: Sequence[str]) -> list[str]:
    """Readable names of features: those of an array are numbers."""
    return [f"column {name}" if name.isdigit() else name for name in names]


ColumnEncoding = Number | Category | Date
KIND_NAMES = {Number: "number", Category: "text", Date: "date"}


@dataclass(frozen=True)
class TableEncoding(Encoding):
    """The columns of a table that a model uses, in order, and those that it does not."""

    columns: tuple[ColumnEncoding, ...]
    missing: str = "error"
    identifiers: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    listed: tuple[Decision, ...] = ()
    """The decisions about all columns, in the order of the table; older files lack it."""

    def __post_init__(self) -> None:
        self._check_missing()
        if len(set(self.names)) < len(self.columns):
            raise ValueError("a column is read twice")

    @property
    def decisions(self) -> Decisions:
        read = [Decision(column.name, KIND_NAMES[type(column)], True) for column in self.columns]
        return Decisions(self.listed or (*read, *self._decisions_left_out()))

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
    def means(self) -> tuple[float, ...]:
        return tuple(column.mean for column in self.columns if isinstance(column, Number))

    @property
    def shares(self) -> frozenset[str]:
        return frozenset(
            name for column in self.columns if isinstance(column, Category) for name in column.feature_names
        )

    def after(self, earlier: Encoding) -> Encoding:
        found = {each.name: each for each in self.listed if each.name in self.names}
        listed = tuple(found.get(each.name, each) for each in earlier.decisions)
        return replace(cast("TableEncoding", super().after(earlier)), listed=listed)

    def encode(self, rows: Any, unseen: UnseenValues | None = None) -> Matrix:
        table = self._select(rows)
        X = np.empty((table.num_rows, len(self.feature_names)), dtype=np.float32)
        lacking: dict[str, int] = {}
        others = UnseenValues() if unseen is None else unseen
        first = 0
        for column in track(self.columns, "encoding column"):
            width = len(column.feature_names)
            if absent := column.encode(table.column(column.name), X[:, first : first + width], others):
                lacking[column.name] = absent
            first += width
        if lacking and self.missing != "mean":
            raise InputError(describe_missing(lacking, table.num_rows))
        for name, count in others.items() if unseen is None else ():
            warn(f"{others.describe(name)}; {count / table.num_rows:.1%} of the rows.", UnseenWarning)
        _check_finite(X, self.feature_names)
        return X

    def complete(self, rows: Any) -> NDArray[np.bool_]:
        table = self._select(rows)
        complete = np.ones(table.num_rows, dtype=bool)
        for column in self.columns:
            complete &= ~column.is_missing(table.column(column.name))
        return complete

    def count_empty(self, rows: Any) -> int:
        table = self._select(rows)
        empty = np.ones(table.num_rows, dtype=bool)
        for column in self.columns:
            if not empty.any():
                break
            empty &= column.is_missing(table.column(column.name))
        return int(empty.sum())

    def find_empty(self, rows: Any, names: Iterable[str]) -> list[str]:
        asked = set(names)
        if not asked:
            return []
        table = self._select(rows)
        # The first value is enough for most columns.
        return [
            column.name
            for column in self.columns
            if column.name in asked
            and column.is_missing(table.column(column.name).slice(0, 1)).all()
            and column.is_missing(table.column(column.name)).all()
        ]

    def readable(self, rows: Any) -> tuple[NDArray[np.float64], tuple[Feature, ...]]:
        table = self._select(rows)
        values = np.concatenate([column.readable(table.column(column.name)) for column in self.columns], axis=1)
        return values, tuple(feature for column in self.columns for feature in column.readable_features)

    def _select(self, rows: Any) -> Any:
        if isinstance(rows, np.ndarray) and rows.ndim == 2:
            vectors = [each.name for each in self.decisions if VECTOR.fullmatch(each.name)]
            if set(self.names) <= set(vectors):
                # An array of an encoder: the entries of a column of vectors.
                if rows.shape[1] != len(vectors):
                    has = f"{len(vectors)} numbers, and these have {rows.shape[1]}"
                    raise InputError(f"The model reads vectors of {has}.")
                rows = pyarrow_library().table(dict(zip(vectors, rows.T, strict=True)))
        table = as_arrow(rows, self.names)
        self.check_names(table.column_names)
        return table.select(self.names)

    def check_names(self, names: Sequence[str]) -> None:
        """Raise an InputError that names the columns that are used but missing from ``names``."""
        there = set(names)
        absent = [name for name in self.names if name not in there]
        if absent and (vector := VECTOR.fullmatch(absent[0])) and {vector[1], f"{vector[1]}[0]"} & there:
            count = sum(name.startswith(f"{vector[1]}[") for name in self.names)
            raise InputError(
                f"The vectors of column {vector[1]!r} are not all of the {count} numbers that the model reads."
            )
        if absent:
            raise InputError(
                f"The model reads columns that are not there: {quoted(absent)}."
                # A column that is used already cannot be a renamed one.
                f"{did_you_mean(absent[0], [name for name in names if name not in self.names])} "
                f"There are: {quoted(names)}."
            )


@dataclass(frozen=True)
class ArrayEncoding(Encoding):
    """Rows (n, d), or images (n, C, H, W), encoded as (x − mean) / scale: by column, or by channel.

    ``kept`` are the columns of rows that are used; constant ones are not. A missing value is replaced by ``fill``, or
    else the mean. ``columns`` are the names of all d columns, if there are any.
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
    def means(self) -> tuple[float, ...]:
        return self.mean

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    def by_column(self, values: Sequence[float]) -> NDArray[np.float64]:
        """Values of columns or channels, shaped to broadcast with samples."""
        return np.asarray(values, dtype=np.float64).reshape(-1, *([1] * (len(self.shape) - 1)))

    @property
    def decisions(self) -> Decisions:
        read = [Decision(name, "number", True) for name in self.names]
        return Decisions((*read, *self._decisions_left_out()))

    def encode(self, rows: Any, unseen: UnseenValues | None = None) -> Matrix:
        self._check(rows)
        X = np.empty((len(rows), *self.encoded_shape), dtype=np.float32)
        for part in parts_of(rows):
            X[part] = self._encode(rows[part])
        return X

    def _encode(self, rows: Any) -> Matrix:
        X = self._chosen(rows)
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
            X = self._chosen(rows[part])
            complete[part] = ~np.isnan(X.reshape(len(X), -1)).any(1)
        return complete

    def count_empty(self, rows: Any) -> int:
        self._check(rows)
        rows = np.asarray(rows)
        parts = parts_of(rows) if rows.dtype.kind == "f" else []
        return sum(int(np.isnan(self._chosen(rows[part])).all(tuple(range(1, rows.ndim))).sum()) for part in parts)

    def find_empty(self, rows: Any, names: Iterable[str]) -> list[str]:
        asked = set(names)
        if self.is_image or not asked or not len(rows):
            return []
        lacking: Any = np.isnan(self._chosen(rows[:1]))[0]
        lacking = np.isnan(self._chosen(rows)).all(0) if lacking.any() else lacking
        return [name for name, is_empty in zip(self.names, lacking.tolist(), strict=True) if is_empty and name in asked]

    def readable(self, rows: Any) -> tuple[NDArray[np.float64], tuple[Feature, ...]]:
        return self._chosen(rows), tuple(map(Feature, readable_names(self.names)))

    def _chosen(self, rows: Any) -> NDArray[np.float64]:
        """The columns, or channels, that are used."""
        self._check(rows)
        return np.asarray(rows if self.kept is None else rows[:, list(self.kept)], dtype=np.float64)

    def _check(self, rows: Any) -> None:
        if tuple(getattr(rows, "shape", ())[1:]) != self.shape:
            found = rows.shape[1:] if hasattr(rows, "shape") else type(rows).__name__
            raise InputError(f"The model reads an array of samples of shape {self.shape}; these are {found}.")


_KINDS: dict[type[Encoding], str] = {TableEncoding: "table", ArrayEncoding: "array"}


def _check_finite(X: Matrix, names: Sequence[str]) -> None:
    # The sum is not finite if an entry is not, and needs no memory.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(X.sum(dtype=np.float64)):
            return
    bad = np.atleast_1d(~np.isfinite(X).all(axis=(0, *range(2, X.ndim))))
    wrong = [name for name, is_bad in zip(names, bad, strict=False) if is_bad]
    if wrong:
        raise InputError(f"Values are infinite, or too large, in {quoted(wrong)}: correct or leave out those rows.")


def say_empty(count: int) -> str:
    """A sentence about the clusters of rows without any values."""
    rows = "1 row has" if count == 1 else f"{count:,} rows have"
    return f"{rows} no value in any column that the model reads: the cluster is that of an average row, a guess"


def say_empty_columns(names: Sequence[str]) -> str:
    """A phrase about columns without any values."""
    columns = "column" if len(names) == 1 else "columns"
    return f"all values of {columns} {quoted(names)} are missing; the means of the training stand for them"


def describe_missing(lacking: Mapping[str, int], n: int) -> str:
    """A phrase about columns with missing values."""
    columns = ", ".join(f"{name!r} ({count:,})" for name, count in lacking.items())
    mean = option("missing", "mean", group="Scaling")
    others = advised("drop such rows", f"leave such rows out ({option('missing', 'drop')})")
    return f"Values are missing in {columns} of {n:,} rows. Fill in means of training ({mean}), or {others}."
