"""Which columns of a table a model is to read, and how: decided by looking at its parts one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pollux.data.preprocessing.arrow import numbers_as_text, plain, pyarrow_library
from pollux.data.preprocessing.choices import Choices
from pollux.data.preprocessing.columns import MOST_VALUES_COUNTED, Column, is_number
from pollux.data.preprocessing.common import describe_missing, quoted
from pollux.data.preprocessing.scales import scales
from pollux.data.preprocessing.table import Category, Number, TablePreprocessing
from pollux.errors import InputError, option

MOST_VALUES = 20
"""Text with more different values than this is left out, unless it was asked for by name."""


class LeaveOutError(Exception):
    """A column is not read, for the reason given."""


class Survey:
    """What is known of the columns of a table after some of its rows; it has a bounded size and can be pickled.

    Parts may be added in one process after the other, or in several whose surveys are merged. Identifiers are told by
    all rows where these are few, and by the first million where they are not.
    """

    def __init__(self, there: Sequence[str], choices: Choices | None = None) -> None:
        self.choices = (choices or Choices()).among(there)
        self.there = list(there)
        self.rows = 0
        others = {self.choices.label, *self.choices.drop, *self.choices.identifiers}
        self._columns = {
            name: Column(name, name in self.choices.columns, name in self.choices.categories)
            for name in self.choices.columns or there
            if name not in others
        }

    @property
    def names(self) -> list[str]:
        """The columns that are looked at."""
        return list(self._columns)

    def add(self, table: Any, first: int | None = None) -> None:
        """Look at rows of the table; the first of them has this number, without which they follow those before."""
        for name, column in self._columns.items():
            column.add(plain(table.column(name)), self.rows if first is None else first)
        self.rows += table.num_rows

    def merge(self, other: Survey) -> None:
        """Add what another survey has seen of other rows, by the same choices."""
        if self.names != other.names:
            raise ValueError("the surveys are of different columns")
        for mine, others in zip(self._columns.values(), other._columns.values(), strict=True):
            mine.merge(others)
        self.rows += other.rows

    def plan(self) -> TablePreprocessing:
        """How to read the table: numbers scaled, text of few values as zeros and ones, the rest left out."""
        columns: list[Number | Category] = []
        left_out: dict[str, str] = {}
        identifiers = list(self.choices.identifiers)
        for name, column in self._columns.items():
            try:
                if column.is_identifier:
                    identifiers.append(name)
                    raise LeaveOutError("an identifier: each row has its own value")
                columns.append(_plan_column(column))
            except LeaveOutError as reason:
                if column.asked:
                    raise InputError(
                        f"Column {name!r} was asked for ({option('columns')}), but cannot be used: {reason}."
                    ) from None
                left_out[name] = str(reason)
        if not columns:
            reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
            raise InputError(f"No column is left to cluster by. {reasons}")
        plan = TablePreprocessing(self._scaled(columns), self.choices.missing, tuple(identifiers), left_out)
        lacking = {name: self._columns[name].missing for name in plan.names if self._columns[name].missing}
        if self.choices.missing == "error" and lacking:
            raise InputError(describe_missing(lacking, self.rows))
        return plan

    def _scaled(self, columns: Sequence[Number | Category]) -> tuple[Number | Category, ...]:
        """The columns with the scales that were chosen, in place of each one's own."""
        numbers = [column for column in columns if isinstance(column, Number)]
        known = [self._columns[number.name].moments for number in numbers]
        ranges = [float(moments.range[0]) for moments in known if moments is not None]
        found = scales(self.choices.scaling, [number.scale for number in numbers], ranges)
        own = {number.name: replace(number, scale=scale) for number, scale in zip(numbers, found, strict=True)}
        return tuple(own.get(column.name, column) for column in columns)


def _plan_column(column: Column) -> Number | Category:
    kind = column.kind
    if kind == "nothing" or column.missing == column.rows:
        raise LeaveOutError("it has no values")
    if kind == "boolean":
        return _plan_category(column, column.asked, boolean=True)
    if column.moments is not None:
        moments = column.moments
        varies = bool(moments.least[0] < moments.greatest[0])
        return plan_number(column.name, float(moments.mean[0]), float(moments.deviation[0]), varies)
    if kind in ("integer", "number") or (column.category and kind == "text" and all(map(is_number, column.counts.of))):
        return _plan_category(column, True, number=True)
    if kind == "text":
        return _plan_category(column, column.asked or column.category)
    if kind == "time":
        raise LeaveOutError("dates and times are not read; turn it into a number to use it")
    raise LeaveOutError(f"values of type {kind} are not read")


def plan_number(name: str, mean: float, scale: float, varies: bool) -> Number:
    """A column of numbers, of this mean and standard deviation."""
    if not varies:
        raise LeaveOutError("it has one value throughout")
    if not (np.isfinite(mean) and np.isfinite(scale) and scale > 0):
        raise InputError(
            f"Column {name!r} holds values that are infinite, or too large or small to standardise: correct them, or "
            f"leave it out ({option('drop')})."
        )
    return Number(name, mean, scale)


def _plan_category(column: Column, asked: bool, *, boolean: bool = False, number: bool = False) -> Category:
    name, total = column.name, column.rows - column.missing
    counts = _in_one_spelling(name, column.counts.of) if number else column.counts.of
    if len(counts) == 1:
        raise LeaveOutError("it has one value throughout")
    most = MOST_VALUES_COUNTED if asked else min(MOST_VALUES, max(2, total // 2))
    if len(counts) > most:
        found = f"more than {MOST_VALUES_COUNTED:,}" if column.counts.many else f"{len(counts):,}"
        if asked:
            raise InputError(f"Column {name!r} has {found} different values; at most {most:,} can be used.")
        raise LeaveOutError(f"text with {found} different values{_almost_numbers(counts)}")
    shares = {value: counts[value] / total for value in sorted(counts)}
    return Category(name, tuple(shares), tuple(shares.values()), boolean, number)


def _in_one_spelling(name: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Counts of numbers, of which 3 and 3.0 are the same one."""
    pa = pyarrow_library()
    spelled = numbers_as_text(name, pa.chunked_array([pa.array(list(counts), pa.string())])).to_pylist()
    total: dict[str, int] = {}
    for value, count in zip(spelled, counts.values(), strict=True):
        total[value] = total.get(value, 0) + count
    return total


def _almost_numbers(counts: Mapping[str, int]) -> str:
    """Advice for a column of numbers that a few words have turned into text."""
    words = sorted(value for value in counts if not is_number(value))
    if not words or 2 * len(words) > len(counts):
        return ""
    advice = f"correct it, or if a value is missing there pass {option('na')}"
    return f"; most are numbers, but not {quoted(words, 3)}: {advice}"
