"""Which columns a model is to read, and how: decided by looking at parts of the rows one after the other."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import (
    as_numbers,
    as_text,
    is_missing,
    is_number,
    kind_of,
    no_column,
    numbers_as_text,
    plain,
    pyarrow_library,
    quoted,
    same_kind,
)
from pollux.data.encoding import ArrayEncoding, Category, Encoding, Number, TableEncoding, describe_missing
from pollux.data.moments import Moments, learn_units, parts_of
from pollux.data.shuffling import shards
from pollux.data.sources import Blocks
from pollux.errors import InputError, option

if TYPE_CHECKING:
    from pollux.ranks import Ranks

MOST_VALUES = 20
"""Text with more different values than this is left out, unless it was asked for by name."""
MOST_VALUES_COUNTED = 1_000
"""Columns of more different values are not counted further; nothing is done with the counts."""

Progress = Callable[[int, int], None]
"""Called with the blocks that have been read and those there are."""

_MOST_ROWS_COMPARED = 1_000_000
_FEWEST_ROWS_OF_IDENTIFIERS = 5
_ROWS_LOOKED_AT = 1_000
# The last three: a column without a name, and the index of a data frame in CSV and in Parquet.
_IDENTIFIER = re.compile(
    r"(^|[\W_])(id|ids|idx|index|key|uuid|guid|row|rownames?|rowid|nr|no)$"
    r"|^unnamed_\d+$|^unnamed: \d+$|^__index_level_\d+__$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Choices:
    """What the user says of columns; names that are empty leave the choice to us."""

    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    categories: Sequence[str] = ()
    identifiers: Sequence[str] = ()
    label: str | None = None
    missing: str = "error"
    scaling: str = "standard"

    def among(self, there: Sequence[str]) -> Choices:
        """The choices with lists such as "a,b" taken apart, unless a column is called so; all must be there."""
        options = {"columns": "columns", "drop": "drop", "categories": "categories", "identifiers": "id"}
        names: dict[str, Any] = {given: split_names(getattr(self, given), there) for given in options}
        known, labels = set(there), () if self.label is None else (self.label,)
        for given, asked in [*((options[key], value) for key, value in names.items()), ("label", labels)]:
            absent = [name for name in asked if name not in known]
            if absent:
                raise no_column(absent, there, option(given))
        return replace(self, **names)


def split_names(names: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, from a list in which "a,b" stands for two unless there is a column of that name."""
    known = set(there)
    return tuple(dict.fromkeys(part for name in names for part in ([name] if name in known else name.split(","))))


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
    survey: Survey = (
        TableSurvey(blocks.names, choices) if blocks.shape is None else ArraySurvey(blocks.shape, choices, blocks.names)
    )
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
    read = set(encoding.names)
    others = [name for name in every if name not in {*read, *encoding.identifiers, choices.label}]
    columns = encoding.names if choices.columns else ()
    categories = [name for name in choices.categories if name in read]
    return replace(choices, columns=columns, drop=others, identifiers=encoding.identifiers, categories=categories)


class LeaveOutError(Exception):
    """A column is not read, for the reason given."""


class Survey(ABC):
    """What is known of rows after some of them; it has a bounded size and can be pickled.

    Parts may be added one after the other in one process, or in several whose surveys are merged.
    """

    names: list[str]
    """The columns that are looked at."""
    rows: int = 0

    @abstractmethod
    def add(self, rows: Any, first: int | None = None) -> None:
        """Look at rows; the first of them has this number, without which they follow those before."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Add what another survey has seen of other rows, by the same choices."""

    @abstractmethod
    def plan(self) -> Encoding:
        """How to read the rows."""


class ArraySurvey(Survey):
    """What is known of rows (n, d), or of images (n, C, H, W); ``columns`` are names of the d columns, if any."""

    def __init__(
        self, shape: Sequence[int], choices: Choices | None = None, columns: Sequence[str] | None = None
    ) -> None:
        self.shape = tuple(int(size) for size in shape)
        self.choices = choices or Choices()
        self.columns = tuple(columns or ())
        self.incomplete = 0
        is_image = len(self.shape) == 3
        # One scale for images is by what varies at a pixel, as for rows; their own scales are those of channels.
        self._by_pixel = is_image and self.choices.scaling in ("auto", "global")
        self.moments = Moments.empty((math.prod(self.shape) if self._by_pixel else self.shape[0],))
        if is_image and (self.choices.columns or self.choices.drop or self.choices.categories):
            given = f"{option('columns')}, {option('drop')} and {option('categories')}"
            raise InputError(f"Images have no columns to choose from: leave out {given}.")
        if self.choices.categories:
            raise InputError(f"An array holds numbers throughout: leave out {option('categories')}, or use a table.")
        self.names = [] if is_image else list(self.columns) or [str(index) for index in range(self.shape[0])]
        self._among = replace(self.choices, label=None, identifiers=()).among(self.names)

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
        scaling, missing = self.choices.scaling, self.choices.missing
        kept: tuple[int, ...] | None = None
        left_out: dict[str, str] = {}
        if len(self.shape) == 3:
            moments = self.moments.pooled(self.shape[0]) if self._by_pixel else self.moments
            deviation = moments.deviation
            if not (moments.weight.all() and np.isfinite(moments.mean).all() and np.isfinite(deviation).all()):
                raise InputError("The images hold infinite values: correct them, or leave those images out.")
            if not deviation.any():
                raise InputError("The images hold the same value throughout: there is nothing to cluster by.")
            lacking = {"the images": self.incomplete} if self.incomplete else {}
        else:
            kept, left_out = self._choose_columns()
            moments = self.moments[list(kept)]
            absent = (self.rows - moments.weight).astype(int).tolist()
            lacking = {self.names[index]: count for index, count in zip(kept, absent, strict=True) if count}
        if lacking and missing == "error":
            raise InputError(describe_missing(lacking, self.rows))
        units = learn_units(moments, scaling, within=None if kept is not None else self.moments)
        centre, scale, fill = (tuple(np.broadcast_to(values, units.centre.shape).tolist()) for values in units)
        identifiers = tuple(self.choices.identifiers)
        return ArrayEncoding(
            *(self.shape, centre, scale, kept, missing, identifiers, left_out, self.columns),
            fill if scaling == "none" else None,
        )

    def _choose_columns(self) -> tuple[tuple[int, ...], dict[str, str]]:
        """The numbers of the columns that are read, and the reasons why others are not."""
        kept: list[int] = []
        left_out: dict[str, str] = {}
        number_of = {name: index for index, name in enumerate(self.names)}
        dropped = set(self._among.drop)
        for name in self._among.columns or self.names:
            if name in dropped:
                continue
            index = number_of[name]
            try:
                _check_number(name, self.moments[index : index + 1], self.choices.scaling)
            except LeaveOutError as reason:
                left_out[name] = str(reason)
            else:
                kept.append(index)
        if not kept:
            raise InputError("No column is left to cluster by: none of them varies.")
        return tuple(kept), left_out


class TableSurvey(Survey):
    """What is known of the columns of a table.

    Identifiers are recognised by all rows where these are few, and by the first million where they are not.
    """

    def __init__(self, there: Sequence[str], choices: Choices | None = None) -> None:
        self.choices = (choices or Choices()).among(there)
        others = {self.choices.label, *self.choices.drop, *self.choices.identifiers}
        asked, categories = set(self.choices.columns), set(self.choices.categories)
        self._columns = {
            name: Column(name, name in asked, name in categories)
            for name in self.choices.columns or there
            if name not in others
        }
        self.names = list(self._columns)

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
        scaling, missing = self.choices.scaling, self.choices.missing
        columns: dict[str, Category | None] = {}
        left_out: dict[str, str] = {}
        identifiers = list(self.choices.identifiers)
        for name, column in self._columns.items():
            try:
                if column.is_identifier:
                    identifiers.append(name)
                    raise LeaveOutError("an identifier: each row has its own value")
                columns[name] = column.plan(scaling)
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
        if missing == "error" and lacking:
            raise InputError(describe_missing(lacking, self.rows))
        numbers: dict[str, Number] = {}
        names = [name for name, category in columns.items() if category is None]
        if names:
            moments = [self._columns[name].moments for name in names]
            units = learn_units(Moments.joined([own for own in moments if own is not None]), scaling)
            plain_units = (np.broadcast_to(values, units.centre.shape).tolist() for values in units)
            for name, centre, scale, fill in zip(names, *plain_units, strict=True):
                numbers[name] = Number(name, centre, scale, fill if scaling == "none" else None)
        planned = tuple(category or numbers[name] for name, category in columns.items())
        return TableEncoding(planned, missing, tuple(identifiers), left_out)


@dataclass
class Counts:
    """How often values occur; ``many`` if there are more than can be counted, of which only some are kept."""

    of: dict[str, int] = field(default_factory=dict)
    many: bool = False

    def add(self, text: Any) -> None:
        """Count an Arrow column of text."""
        if self.many:
            return
        counts = pyarrow_library().compute.value_counts(text.drop_null())
        some = counts.slice(0, 100 * MOST_VALUES_COUNTED).to_pylist()
        self.merge(Counts({row["values"]: row["counts"] for row in some}, len(counts) > MOST_VALUES_COUNTED))

    def merge(self, other: Counts) -> None:
        for value, count in other.of.items():
            self.of[value] = self.of.get(value, 0) + count
        self.many = self.many or other.many or len(self.of) > MOST_VALUES_COUNTED
        if self.many:
            # Words first, because a few among numbers are worth a mention.
            kept = sorted(self.of, key=is_number)[: MOST_VALUES_COUNTED + 1]
            self.of = {value: self.of[value] for value in kept}


@dataclass
class Different:
    """Whether the values of all rows differ: exactly of a million rows, which speak for those that follow."""

    so_far: bool = True
    rows: int = 0
    hashes: list[NDArray[np.uint64]] = field(default_factory=list)

    def add(self, values: Any) -> None:
        """Look at an Arrow column of text or whole numbers."""
        if not self.so_far or self.rows >= _MOST_ROWS_COMPARED:
            return
        some = values.slice(0, _MOST_ROWS_COMPARED - self.rows)
        pa = pyarrow_library()
        if pa.compute.count_distinct(some).as_py() < len(some):
            self.so_far, self.hashes = False, []
            return
        # The same in every process.
        if pa.types.is_integer(some.type):
            hashes = np.asarray(some.to_numpy()).astype(np.int64).view(np.uint64)
        else:
            digests = b"".join(blake2b(value.encode(), digest_size=8).digest() for value in some.to_pylist())
            hashes = np.frombuffer(digests, dtype=np.uint64)
        self.merge(Different(True, len(some), [hashes]))

    def merge(self, other: Different) -> None:
        self.so_far = self.so_far and other.all()
        # Where one of them has seen a million, there is nothing left to compare.
        if self.rows < _MOST_ROWS_COMPARED:
            self.rows += other.rows
            self.hashes = [*self.hashes, *other.hashes] if self.so_far else []
            if self.rows >= _MOST_ROWS_COMPARED:
                self.so_far, self.hashes = self.all(), []

    def all(self) -> bool:
        if self.so_far and len(self.hashes) > 1:
            hashes = np.concatenate(self.hashes)
            return bool(np.unique(hashes).size == hashes.size)
        return self.so_far


@dataclass
class Column:
    """A column so far. ``asked`` says that the user named it, ``category`` that its values are names."""

    name: str
    asked: bool = False
    category: bool = False
    kind: str = "nothing"
    rows: int = 0
    missing: int = 0
    moments: Moments | None = None
    counts: Counts = field(default_factory=Counts)
    different: Different = field(default_factory=Different)
    # Value minus number of row: a single one if rows are numbered one by one; None if they are not.
    numbered: set[int] | None = field(default_factory=set)
    # Among the first thousand rows, how many there were and how many of them are numbers.
    looked_at: int = 0
    look_like_numbers: int = 0

    def add(self, values: Any, first: int) -> None:
        """Look at rows of the column, as an Arrow column that is :func:`plain`; the first of them has this number."""
        kind = kind_of(values.type)
        seen = Column(self.name, kind=kind, rows=len(values), missing=int(is_missing(values).sum()))
        if kind in ("integer", "number") and not self.category:
            seen.moments = Moments.of(as_numbers(self.name, values)[:, None])
        elif kind in ("integer", "number"):
            seen.counts.add(numbers_as_text(self.name, values))
        elif kind in ("boolean", "text") and not self.counts.many:
            seen.counts.add(as_text(values))
        if kind in ("integer", "text") and len(values) and not (self.asked or self.category):
            if self.missing or seen.missing:
                seen.numbered, seen.different = None, Different(so_far=False)
            else:
                self._look_for_identifiers(seen, values, first)
        self.merge(seen)

    def _look_for_identifiers(self, seen: Column, values: Any, first: int) -> None:
        """Whether rows without gaps are told apart by these values."""
        if seen.kind == "text" or _IDENTIFIER.search(self.name):
            self.different.add(values)
        if seen.kind == "text":
            some = values.slice(0, max(0, _ROWS_LOOKED_AT - first)).to_pylist()
            seen.looked_at, seen.look_like_numbers = len(some), sum(map(is_number, some))
        elif self.numbered is not None:
            numbers = values.to_numpy()
            seen.numbered = {int(numbers[0]) - first} if bool((np.diff(numbers) == 1).all()) else None

    def merge(self, other: Column) -> None:
        """Add what another has seen of other rows of the same column."""
        both = same_kind(self.kind, other.kind)
        if both is None:
            raise InputError(
                f"Column {self.name!r} holds {self.kind} in some rows and {other.kind} in others: store it in one way."
            )
        self.kind = both
        self.rows += other.rows
        self.missing += other.missing
        if other.moments is not None:
            self.moments = other.moments if self.moments is None else self.moments.merged(other.moments)
        self.counts.merge(other.counts)
        self.different.merge(other.different)
        if self.numbered is not None and other.numbered is not None:
            self.numbered = self.numbered | other.numbered
        if other.numbered is None or len(self.numbered or ()) > 1:
            self.numbered = None
        self.looked_at += other.looked_at
        self.look_like_numbers += other.look_like_numbers

    @property
    def is_identifier(self) -> bool:
        """Whether each row has its own value, and the value is a name rather than a measurement."""
        if self.asked or self.category or self.rows < _FEWEST_ROWS_OF_IDENTIFIERS or self.missing:
            return False
        if self.kind == "text":
            return 2 * self.look_like_numbers <= self.looked_at and self.different.all()
        if self.kind != "integer":
            return False
        # Rows that are numbered one by one, or a name that says so.
        return bool(self.numbered) or (_IDENTIFIER.search(self.name) is not None and self.different.all())

    def plan(self, scaling: str) -> Category | None:
        """The categories of the column, or None for one of numbers."""
        if self.kind == "nothing" or self.missing == self.rows:
            raise LeaveOutError("it has no values")
        if self.moments is not None:
            _check_number(self.name, self.moments, scaling)
            return None
        if self.kind == "time":
            raise LeaveOutError("dates and times are not read; turn it into a number to use it")
        if self.kind not in ("boolean", "integer", "number", "text"):
            raise LeaveOutError(f"values of type {self.kind} are not read")
        counts, asked = self.counts.of, self.asked or self.category
        is_numeric = self.kind in ("integer", "number") or (
            self.category and self.kind == "text" and all(map(is_number, counts))
        )
        if is_numeric:
            counts = _in_one_spelling(self.name, counts)
        if len(counts) == 1:
            raise LeaveOutError("it has one value throughout")
        total = self.rows - self.missing
        most = MOST_VALUES_COUNTED if asked else min(MOST_VALUES, max(2, total // 2))
        if len(counts) > most:
            found = f"more than {MOST_VALUES_COUNTED:,}" if self.counts.many else f"{len(counts):,}"
            if asked:
                raise InputError(f"Column {self.name!r} has {found} different values; at most {most:,} can be used.")
            raise LeaveOutError(f"text with {found} different values{_almost_numbers(counts)}")
        shares = {value: counts[value] / total for value in sorted(counts)}
        return Category(self.name, tuple(shares), tuple(shares.values()), self.kind == "boolean", is_numeric)


def _check_number(name: str, moments: Moments, scaling: str) -> None:
    """Raise where a column of numbers, of moments (1,), cannot be read."""
    if not moments.weight[0]:
        raise LeaveOutError("it has no values")
    if not moments.low[0] < moments.high[0]:
        raise LeaveOutError("it has one value throughout")
    mean, deviation = float(moments.mean[0]), float(moments.deviation[0])
    if not (math.isfinite(mean) and math.isfinite(deviation) and (deviation > 0 or scaling == "none")):
        raise InputError(
            f"Column {name!r} holds values that are infinite, or too large or small to standardise: correct them, or "
            f"leave it out ({option('drop')})."
        )


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
