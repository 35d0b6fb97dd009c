"""Which columns a model is to read, and how: decided by looking at parts of the rows one after the other."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import is_number, numbers_as_text, plain, pyarrow_library, quoted
from pollux.data.columns import MOST_VALUES_COUNTED, Choices, Column
from pollux.data.encoding import ArrayEncoding, Category, Encoding, Number, TableEncoding, describe_missing
from pollux.data.moments import Moments, parts_of
from pollux.data.shuffling import shards
from pollux.data.sources import Blocks
from pollux.data.units import Units, learn_units
from pollux.errors import InputError, option

if TYPE_CHECKING:
    from pollux.ranks import Ranks

MOST_VALUES = 20
"""Text with more different values than this is left out, unless it was asked for by name."""

Progress = Callable[[int, int], None]
"""Called with the blocks that have been read and those there are."""


def learn_encoding(
    blocks: Blocks, choices: Choices | None = None, progress: Progress | None = None, ranks: Ranks | None = None
) -> tuple[Encoding, NDArray[np.int64]]:
    """How to read rows, in memory or in files, and how many of each block are read. Several processes share the work.

    With ``missing="drop"`` means are those of complete rows, for which all is read once more: only after the first time
    is it known which columns must be complete.
    """
    choices = choices or Choices()
    encoding = _survey_all(blocks, choices, None, progress, ranks)[0].plan()
    if choices.missing != "drop":
        return encoding, blocks.lengths
    while True:
        survey, lengths = _survey_all(blocks, _narrowed(choices, encoding, blocks), encoding, progress, ranks)
        if not lengths.sum():
            instead = option("missing", "mean")
            raise InputError(
                f"Each row of {blocks.path} lacks a value, so dropping them leaves nothing: use {instead}."
            )
        found = survey.plan()
        is_same = found.names == encoding.names
        encoding = found.with_reasons(encoding.left_out)
        # A column that varies no more among complete rows need not be complete either.
        if is_same:
            return encoding, lengths


def survey_blocks(
    blocks: Blocks,
    choices: Choices,
    *,
    own: Sequence[int] | NDArray[np.int64] | None = None,
    complete: Encoding | None = None,
    progress: Progress | None = None,
) -> tuple[Survey, NDArray[np.int64]]:
    """A survey of these blocks, all by default, to be merged with those of others; and the rows of each that it saw.

    With ``complete`` only rows are seen that lack nothing of it.
    """
    survey = survey_for(blocks, choices)
    names = list(dict.fromkeys([*survey.names, *(complete.names if complete is not None else ())]))
    starts = np.cumsum(blocks.lengths) - blocks.lengths
    numbers = range(len(starts)) if own is None else own
    seen = np.zeros(len(starts), dtype=np.int64)
    for done, block in enumerate(numbers, 1):
        rows = blocks.read_block(int(block), names)
        if complete is not None:
            mask = complete.complete(rows)
            rows = rows[mask] if isinstance(rows, np.ndarray) else rows.filter(mask)
        survey.add(rows, int(starts[block]))
        seen[block] = rows.shape[0]
        if progress is not None:
            progress(done, len(numbers))
    return survey, seen


def _survey_all(
    blocks: Blocks, choices: Choices, complete: Encoding | None, progress: Progress | None, ranks: Ranks | None
) -> tuple[Survey, NDArray[np.int64]]:
    """A survey of all blocks, of which each process reads its own."""
    if ranks is None:
        return survey_blocks(blocks, choices, complete=complete, progress=progress)
    own = shards(blocks.lengths, ranks.size)[ranks.rank]
    found, problem = None, None
    try:
        found = survey_blocks(blocks, choices, own=own, complete=complete, progress=progress)
    except InputError as error:
        problem = error
    ranks.raise_together(problem)
    (survey, lengths), *others = ranks.gather_objects(found)
    for other, seen in others:
        survey.merge(other)
        lengths = lengths + seen
    return survey, lengths


def _narrowed(choices: Choices, encoding: Encoding, blocks: Blocks) -> Choices:
    """The choices without the columns that were left out before."""
    if not encoding.names:
        return choices
    # Columns of an array without names go by their numbers.
    every = blocks.names or [str(index) for index in range((blocks.shape or (0,))[0])]
    others = [name for name in every if name not in {*encoding.names, *encoding.identifiers, choices.label}]
    columns = encoding.names if choices.columns else ()
    categories = [name for name in choices.categories if name in encoding.names]
    return replace(choices, columns=columns, drop=others, identifiers=encoding.identifiers, categories=categories)


class LeaveOutError(Exception):
    """A column is not read, for the reason given."""


class Survey(ABC):
    """What is known of rows after some of them; it has a bounded size and can be pickled.

    Parts may be added one after the other in one process, or in several whose surveys are merged.
    """

    choices: Choices
    rows: int

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The columns that are looked at."""

    @abstractmethod
    def add(self, rows: Any, first: int | None = None) -> None:
        """Look at rows; the first of them has this number, without which they follow those before."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Add what another survey has seen of other rows, by the same choices."""

    @abstractmethod
    def plan(self) -> Encoding:
        """How to read the rows."""


def survey_for(blocks: Blocks, choices: Choices) -> Survey:
    """An empty survey of rows such as these."""
    if blocks.shape is None:
        return TableSurvey(blocks.names, choices)
    return ArraySurvey(blocks.shape, choices, blocks.names)


class TableSurvey(Survey):
    """What is known of the columns of a table.

    Identifiers are recognised by all rows where these are few, and by the first million where they are not.
    """

    def __init__(self, there: Sequence[str], choices: Choices | None = None) -> None:
        self.choices = (choices or Choices()).among(there)
        self.rows = 0
        others = {self.choices.label, *self.choices.drop, *self.choices.identifiers}
        self._columns = {
            name: Column(name, name in self.choices.columns, name in self.choices.categories)
            for name in self.choices.columns or there
            if name not in others
        }

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    def add(self, rows: Any, first: int | None = None) -> None:
        for name, column in self._columns.items():
            column.add(plain(rows.column(name)), self.rows if first is None else first)
        self.rows += rows.num_rows

    def merge(self, other: TableSurvey) -> None:
        if self.names != other.names:
            raise ValueError("the surveys are of different columns")
        for mine, others in zip(self._columns.values(), other._columns.values(), strict=True):
            mine.merge(others)
        self.rows += other.rows

    def plan(self) -> TableEncoding:
        """Numbers scaled, text of few values as zeros and ones, the rest left out."""
        columns: dict[str, Category | None] = {}
        left_out: dict[str, str] = {}
        identifiers = list(self.choices.identifiers)
        for name, column in self._columns.items():
            try:
                if column.is_identifier:
                    identifiers.append(name)
                    raise LeaveOutError("an identifier: each row has its own value")
                columns[name] = _plan_column(column, self.choices.scaling)
            except LeaveOutError as reason:
                if column.asked:
                    asked = option("columns")
                    raise InputError(
                        f"Column {name!r} was asked for ({asked}), but cannot be used: {reason}."
                    ) from None
                left_out[name] = str(reason)
        if not columns:
            reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
            raise InputError(f"No column is left to cluster by. {reasons}")
        lacking = {name: self._columns[name].missing for name in columns if self._columns[name].missing}
        if self.choices.missing == "error" and lacking:
            raise InputError(describe_missing(lacking, self.rows))
        numbers = self._numbers([name for name, category in columns.items() if category is None])
        planned = tuple(category or numbers[name] for name, category in columns.items())
        return TableEncoding(planned, self.choices.missing, tuple(identifiers), left_out)

    def _numbers(self, names: Sequence[str]) -> dict[str, Number]:
        """Columns of numbers in their units."""
        if not names:
            return {}
        moments = [self._columns[name].moments for name in names]
        units = _by_column(
            learn_units(Moments.joined([own for own in moments if own is not None]), self.choices.scaling)
        )
        is_filled_otherwise = self.choices.scaling == "none"
        return {
            name: Number(name, centre, scale, fill if is_filled_otherwise else None)
            for name, centre, scale, fill in zip(names, *units, strict=True)
        }


class ArraySurvey(Survey):
    """What is known of rows (n, d), or of images (n, C, H, W); ``columns`` are names of the d columns, if any."""

    def __init__(
        self, shape: Sequence[int], choices: Choices | None = None, columns: Sequence[str] | None = None
    ) -> None:
        self.shape = tuple(int(size) for size in shape)
        self.choices = choices or Choices()
        self.columns = tuple(columns or ())
        self.rows = 0
        self.incomplete = 0
        # One scale for images is by what varies at a pixel, as for rows; their own scales are those of channels.
        self._by_pixel = len(self.shape) == 3 and self.choices.scaling in ("auto", "global")
        self.moments = Moments.empty((math.prod(self.shape) if self._by_pixel else self.shape[0],))
        if len(self.shape) == 3:
            if self.choices.columns or self.choices.drop or self.choices.categories:
                given = f"{option('columns')}, {option('drop')} and {option('categories')}"
                raise InputError(f"Images have no columns to choose from: leave out {given}.")
            self._all: list[str] = []
            return
        if self.choices.categories:
            raise InputError(f"An array holds numbers throughout: leave out {option('categories')}, or use a table.")
        self._all = list(self.columns) or [str(index) for index in range(self.shape[0])]
        self._among = replace(self.choices, label=None, identifiers=()).among(self._all)

    @property
    def names(self) -> list[str]:
        return self._all

    def add(self, rows: Any, first: int | None = None) -> None:
        """Look at samples (n, …), all columns at once, since those of a file lie beside each other."""
        for some in parts_of(rows):
            part = np.asarray(rows[some])
            values = part.astype(np.float64)
            if self._by_pixel or values.ndim == 2:
                values = values.reshape(len(part), -1)
            elif len(part):
                values = np.moveaxis(values, 1, -1).reshape(-1, self.shape[0])
            self.moments = self.moments.merged(Moments.of(values))
            if part.dtype.kind == "f":
                self.incomplete += int(np.isnan(part.reshape(len(part), -1)).any(1).sum())
        self.rows += len(rows)

    def merge(self, other: ArraySurvey) -> None:
        if self.shape != other.shape:
            raise ValueError("the surveys are of samples of different shapes")
        self.moments = self.moments.merged(other.moments)
        self.incomplete += other.incomplete
        self.rows += other.rows

    def plan(self) -> ArrayEncoding:
        """Rows in units of columns, images in units of channels."""
        return self._plan_images() if len(self.shape) == 3 else self._plan_rows()

    def _plan_rows(self) -> ArrayEncoding:
        kept: list[int] = []
        left_out: dict[str, str] = {}
        lacking: dict[str, int] = {}
        for name in self._among.columns or self._all:
            if name in self._among.drop:
                continue
            index = self._all.index(name)
            own = self.moments[index : index + 1]
            try:
                if not own.weight[0]:
                    raise LeaveOutError("it has no values")
                _check_number(name, own, self.choices.scaling)
            except LeaveOutError as reason:
                left_out[name] = str(reason)
                continue
            if own.weight[0] < self.rows:
                lacking[name] = int(self.rows - own.weight[0])
            kept.append(index)
        if not kept:
            raise InputError("No column is left to cluster by: none of them varies.")
        if lacking and self.choices.missing == "error":
            raise InputError(describe_missing(lacking, self.rows))
        units = learn_units(self.moments[kept], self.choices.scaling)
        return self._encoding(units, tuple(kept), left_out)

    def _plan_images(self) -> ArrayEncoding:
        moments = self.moments.pooled(self.shape[0]) if self._by_pixel else self.moments
        deviation = moments.deviation
        if not (moments.weight.all() and np.isfinite(moments.mean).all() and np.isfinite(deviation).all()):
            raise InputError("The images hold infinite values: correct them, or leave those images out.")
        if not deviation.any():
            raise InputError("The images hold the same value throughout: there is nothing to cluster by.")
        if self.choices.missing == "error" and self.incomplete:
            raise InputError(describe_missing({"the images": self.incomplete}, self.rows))
        return self._encoding(learn_units(moments, self.choices.scaling, within=self.moments), None, {})

    def _encoding(self, units: Units, kept: tuple[int, ...] | None, left_out: Mapping[str, str]) -> ArrayEncoding:
        centre, scale, fill = map(tuple, _by_column(units))
        identifiers = tuple(self.choices.identifiers)
        return ArrayEncoding(
            *(self.shape, centre, scale, kept, self.choices.missing, identifiers, left_out, self.columns),
            fill if self.choices.scaling == "none" else None,
        )


def _by_column(units: Units) -> tuple[list[float], list[float], list[float]]:
    """Centre, scale and fill of each column (d,), as plain numbers."""
    centre, scale, fill = (np.broadcast_to(values, units.centre.shape).tolist() for values in units)
    return centre, scale, fill


def _plan_column(column: Column, scaling: str) -> Category | None:
    """The categories of a column, or None for one of numbers."""
    kind = column.kind
    if kind == "nothing" or column.missing == column.rows:
        raise LeaveOutError("it has no values")
    if kind == "boolean":
        return _plan_category(column, column.asked, boolean=True)
    if column.moments is not None:
        _check_number(column.name, column.moments, scaling)
        return None
    if kind in ("integer", "number") or (column.category and kind == "text" and all(map(is_number, column.counts.of))):
        return _plan_category(column, True, number=True)
    if kind == "text":
        return _plan_category(column, column.asked or column.category)
    if kind == "time":
        raise LeaveOutError("dates and times are not read; turn it into a number to use it")
    raise LeaveOutError(f"values of type {kind} are not read")


def _check_number(name: str, moments: Moments, scaling: str) -> None:
    """Raise where a column of numbers, of moments (1,), cannot be read."""
    if not moments.low[0] < moments.high[0]:
        raise LeaveOutError("it has one value throughout")
    mean, deviation = float(moments.mean[0]), float(moments.deviation[0])
    if not (math.isfinite(mean) and math.isfinite(deviation) and (deviation > 0 or scaling == "none")):
        raise InputError(
            f"Column {name!r} holds values that are infinite, or too large or small to standardise: correct them, or "
            f"leave it out ({option('drop')})."
        )


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
