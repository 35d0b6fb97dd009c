"""Which columns a model is to read, and how: decided by looking at them, and told to the user."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError, did_you_mean
from pollux.preprocessing.array import ArrayPreprocessing, parts_of
from pollux.preprocessing.arrow import as_numbers, as_text, is_missing, numbers_as_text, plain
from pollux.preprocessing.common import CODE, describe_missing, moments, quoted
from pollux.preprocessing.table import Category, Number, TablePreprocessing

MOST_VALUES = 20
"""Text with more different values than this is left out, unless it was asked for by name."""

_MOST_VALUES_ASKED_FOR = 1_000
_FEWEST_ROWS_OF_IDENTIFIERS = 5
_IDENTIFIER = re.compile(r"(^|[\W_])(id|ids|idx|index|key|uuid|guid|row|rownames?|rowid|nr|no)$", re.IGNORECASE)


@dataclass(frozen=True)
class Choices:
    """What the user says of columns; names that are empty leave the choice to us."""

    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    categories: Sequence[str] = ()
    identifiers: Sequence[str] = ()
    label: str | None = None
    missing: str = "error"

    def among(self, there: Sequence[str]) -> Choices:
        """The choices with lists such as "a,b" taken apart, unless a column is called so; all must be there."""
        names: dict[str, Any] = {option: split_names(getattr(self, option), there) for option in _OPTIONS}
        choices = replace(self, **names)
        choices.check(there)
        return choices

    def check(self, there: Sequence[str]) -> None:
        """Raise an InputError where a name is not that of a column."""
        for option in _OPTIONS:
            absent = [name for name in getattr(self, option) if name not in there]
            if absent:
                raise InputError(_no_column(absent, _OPTIONS[option], there))
        if self.label is not None and self.label not in there:
            raise InputError(_no_column([self.label], "label", there))


_OPTIONS = {"columns": "columns", "drop": "drop", "categories": "categories", "identifiers": "id"}


def split_names(names: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, from a list in which "a,b" stands for two unless there is a column of that name."""
    return tuple(dict.fromkeys(part for name in names for part in ([name] if name in there else name.split(","))))


class LeaveOutError(Exception):
    """A column is not read, for the reason given."""


def plan_table(table: Any, choices: Choices) -> TablePreprocessing:
    """How to read an Arrow table: numbers standardised, text of few values as zeros and ones, the rest left out."""
    choices = choices.among(table.column_names)
    columns: list[Number | Category] = []
    left_out: dict[str, str] = {}
    identifiers = list(choices.identifiers)
    for name in choices.columns or table.column_names:
        if name == choices.label or name in choices.drop or name in choices.identifiers:
            continue
        values = plain(table.column(name))
        asked = name in choices.columns
        try:
            if not asked and _is_identifier(name, values, name in choices.categories):
                identifiers.append(name)
                raise LeaveOutError("an identifier: each row has its own value")
            columns.append(_plan_column(name, values, asked, name in choices.categories))
        except LeaveOutError as reason:
            if asked:
                raise InputError(f"Column {name!r} was asked for (--columns), but cannot be used: {reason}.") from None
            left_out[name] = str(reason)
    if not columns:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        raise InputError(f"No column is left to cluster by. {reasons}")
    plan = TablePreprocessing(tuple(columns), choices.missing, tuple(identifiers), left_out)
    lacking = {name: int(is_missing(table.column(name)).sum()) for name in plan.names}
    if choices.missing == "error" and any(lacking.values()):
        raise InputError(describe_missing({name: count for name, count in lacking.items() if count}, table.num_rows))
    return plan


def _plan_column(name: str, values: Any, asked: bool, as_category: bool) -> Number | Category:
    import pyarrow as pa

    kind = values.type
    if pa.types.is_null(kind) or is_missing(values).all():
        raise LeaveOutError("it has no values")
    if pa.types.is_boolean(kind):
        return _plan_category(name, values, asked, boolean=True)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if is_number and not as_category:
        return _plan_number(name, as_numbers(name, values))
    if is_number or (as_category and pa.types.is_string(kind) and _all_numbers(values)):
        return _plan_category(name, values, True, number=True)
    if pa.types.is_string(kind):
        return _plan_category(name, values, asked or as_category)
    if pa.types.is_temporal(kind):
        raise LeaveOutError("dates and times are not read; turn it into a number to use it")
    raise LeaveOutError(f"values of type {kind} are not read")


def _plan_number(name: str, numbers: NDArray[np.float64]) -> Number:
    mean, scale = moments(numbers)
    there = numbers[~np.isnan(numbers)]
    if there.size and (there == there[0]).all():
        raise LeaveOutError("it has one value throughout")
    if not (np.isfinite(mean) and np.isfinite(scale) and scale > 0):
        raise InputError(
            f"Column {name!r} holds values that are infinite, or too large or small to standardise: correct them, or "
            f"leave it out (--drop)."
        )
    return Number(name, mean, scale)


def _plan_category(name: str, values: Any, asked: bool, *, boolean: bool = False, number: bool = False) -> Category:
    import pyarrow.compute as pc

    text = (numbers_as_text(name, values) if number else as_text(values)).drop_null()
    counts = {row["values"]: row["counts"] for row in pc.value_counts(text).to_pylist()}
    if len(counts) == 1:
        raise LeaveOutError("it has one value throughout")
    most = _MOST_VALUES_ASKED_FOR if asked else min(MOST_VALUES, max(2, len(text) // 2))
    if len(counts) > most:
        if asked:
            raise InputError(f"Column {name!r} has {len(counts):,} different values; at most {most:,} can be used.")
        raise LeaveOutError(f"text with {len(counts):,} different values{_almost_numbers(counts)}")
    shares = {value: counts[value] / len(text) for value in sorted(counts)}
    return Category(name, tuple(shares), tuple(shares.values()), boolean, number)


def _almost_numbers(counts: Mapping[str, int]) -> str:
    """Advice for a column of numbers that a few words have turned into text."""
    words = [value for value in counts if not _is_number(value)]
    if not words or 2 * len(words) > len(counts):
        return ""
    return f"; most are numbers, but not {quoted(words, 3)}: correct it, or if a value is missing there pass --na"


def _is_number(value: str) -> bool:
    """Whether text is a number, and not a code such as 007 or one of very many digits."""
    if CODE.fullmatch(value):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def _is_identifier(name: str, values: Any, is_category: bool) -> bool:
    """Whether each row has its own value, and the value is a name rather than a measurement."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if is_category or len(values) < _FEWEST_ROWS_OF_IDENTIFIERS or values.null_count:
        return False
    is_text = pa.types.is_string(kind)
    if not (is_text or pa.types.is_integer(kind)) or pc.count_distinct(values).as_py() < len(values):
        return False
    if is_text:
        return not _mostly_numbers(values)
    numbers = values.to_numpy()
    # Rows that are numbered one by one, or a name that says so.
    return bool((np.diff(numbers) == 1).all()) or _IDENTIFIER.search(name) is not None


def _all_numbers(values: Any) -> bool:
    return all(map(_is_number, values.drop_null().unique().to_pylist()))


def _mostly_numbers(values: Any) -> bool:
    some = values.slice(0, 1_000).to_pylist()
    return 2 * sum(map(_is_number, some)) > len(some)


def plan_array(array: Any, choices: Choices, columns: Sequence[str] | None = None) -> ArrayPreprocessing:
    """How to read rows (n, d) of numbers, or images (n, C, H, W); ``columns`` are names of the d columns."""
    identifiers = tuple(choices.identifiers)
    shape = tuple(int(size) for size in array.shape[1:])
    if len(shape) == 3:
        return _plan_images(array, shape, choices)
    if choices.categories:
        raise InputError("An array holds numbers throughout: leave out --categories, or use a table.")
    names = [str(index) for index in range(shape[0])] if columns is None else list(columns)
    choices = replace(choices, label=None, identifiers=()).among(names)
    kept, mean, scale = [], [], []
    left_out: dict[str, str] = {}
    lacking: dict[str, int] = {}
    for name in choices.columns or names:
        if name in choices.drop:
            continue
        index = names.index(name)
        values = np.asarray(array[:, index], dtype=np.float64)
        try:
            if np.isnan(values).all():
                raise LeaveOutError("it has no values")
            number = _plan_number(name, values)
        except LeaveOutError as reason:
            left_out[name] = str(reason)
            continue
        if np.isnan(values).any():
            lacking[name] = int(np.isnan(values).sum())
        kept.append(index)
        mean.append(number.mean)
        scale.append(number.scale)
    if not kept:
        raise InputError("No column is left to cluster by: none of them varies.")
    if lacking and choices.missing == "error":
        raise InputError(describe_missing(lacking, len(array)))
    return ArrayPreprocessing(
        shape, tuple(mean), tuple(scale), tuple(kept), choices.missing, identifiers, left_out, tuple(columns or ())
    )


def _moments_in_parts(array: Any) -> tuple[float, float]:
    """Mean and standard deviation of an array of any size."""
    count, mean, square = 0, 0.0, 0.0
    for rows in parts_of(array):
        values = np.asarray(array[rows], dtype=np.float64).ravel()
        size = int((~np.isnan(values)).sum())
        if not size:
            continue
        own, deviation = moments(values)
        difference = own - mean
        square += deviation**2 * size + difference**2 * count * size / (count + size)
        count += size
        mean += difference * size / count
    return (mean, (square / count) ** 0.5) if count else (np.nan, np.nan)


def _plan_images(array: Any, shape: tuple[int, ...], choices: Choices) -> ArrayPreprocessing:
    if choices.columns or choices.drop or choices.categories:
        raise InputError("Images have no columns to choose from: leave out --columns, --drop and --categories.")
    channels = [_moments_in_parts(array[:, channel]) for channel in range(shape[0])]
    if not all(np.isfinite(mean) and np.isfinite(scale) for mean, scale in channels):
        raise InputError("The images hold infinite values: correct them, or leave those images out.")
    mean, scale = zip(*channels, strict=True)
    if not any(scale):
        raise InputError("The images hold the same value throughout: there is nothing to cluster by.")
    scale = tuple(value or 1.0 for value in scale)
    plan = ArrayPreprocessing(shape, mean, scale, None, choices.missing, tuple(choices.identifiers))
    if choices.missing == "error" and not plan.complete(array).all():
        raise InputError(describe_missing({"the images": int((~plan.complete(array)).sum())}, len(array)))
    return plan


def _no_column(absent: Sequence[str], option: str, there: Sequence[str]) -> str:
    alike = did_you_mean(absent[0], there)
    return f"There is no column {quoted(absent, 5)} (--{option}).{alike} There are: {quoted(there, 30)}."
