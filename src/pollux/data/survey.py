"""Survey of the columns of a data set, in parts: which of them a model reads, and how they are encoded."""

from __future__ import annotations

import math
import re
import shlex
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from pollux.data.arrow import (
    CODE,
    VECTOR,
    are_prose,
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
from pollux.data.encoding import (
    FACETS,
    KIND_NAMES,
    MOST_VALUES,
    ArrayEncoding,
    Category,
    ColumnEncoding,
    Date,
    Decision,
    Encoding,
    Number,
    TableEncoding,
    describe_missing,
    facets_of,
    warn_of_class,
)
from pollux.data.moments import Moments, learn_units, looks_embedded, parts_of
from pollux.data.shuffling import shards
from pollux.data.sources import FORMATS, Blocks, suffix_of
from pollux.data.spellings import (
    CYCLES,
    DATES,
    DAY,
    DECIMALS,
    MILLISECONDS,
    SECONDS,
    STORED,
    YEAR,
    comparable_units,
    has_codes,
    read_times,
    without_digits,
    written_numbers,
)
from pollux.errors import InputError, NoColumnError, advised, option
from pollux.progress import track
from pollux.recipes import WIDE, recognise_kind

if TYPE_CHECKING:
    from pollux.ranks import Ranks

MOST_VALUES_OF_TEXT = 200
"""Text columns with at most so many different values are encoded; of more than ``MOST_VALUES``, the frequent ones."""
MOST_VALUES_COUNTED = 1_000
"""Values of columns with more different ones are no longer counted; the counts would not be used."""

_MOST_ROWS_COMPARED = 1_000_000
_FEWEST_ROWS_OF_IDENTIFIERS = 5
_ONE_VALUE = "it has one value throughout"
_ROWS_LOOKED_AT = 1_000
# Columns with a larger share of missing values are left out; values below the other share are grouped as "other".
_MOST_GAPS, _FREQUENT = 0.5, 0.01
# Minimum average number of rows per value, for text with many values to be categorical.
_ROWS_OF_A_VALUE = 5
# If at most this share of a column of numbers is one word, it stands for missing values.
_MOST_MARKED = 0.05
# If at least this share of the rows has a different text, it identifies them.
_NEARLY_ALL = 0.9
# Variance of a cycle, at most one, below which times do not vary along it; and the shortest span of a season.
_LEAST_VARIANCE, _SEASON = 0.05, 300 * DAY
# Share of dates on 1 January from which on that day means that only the year is known.
_MOST_NEW_YEARS = 0.1
# Numbers in columns with such names are seconds since the start of 1970, if they fall into 1980 to 2100.
_TIMESTAMP = re.compile(r"time_?stamp|unix|epoch|(^|[\W_])ts\W*$|[_\W]at\W*$|(?-i:[a-z]At$)|date_?time", re.IGNORECASE)
_TIMESTAMPS = (10 * YEAR, 130 * YEAR)
_FIRST_VALUES = 100
# Tolerance for the squared length of unit vectors in float32, or written with few digits.
_MOST_ROUNDING = 1e-3
# The smallest number of eight digits.
_FIRST_DATE = 10_000_000

# The last three: a column without a name, and the index of a data frame in CSV and in Parquet.
_IDENTIFIER = re.compile(
    r"(^|[\W_])(id|ids|idx|index|key|uuid|guid|row|rownames?|rowid|nr|no|num|number|obs|case|record|seq|rank|sample)\W*$"
    r"|^unnamed_\d+$|^unnamed: \d+$|^__index_level_\d+__$|^#$",
    re.IGNORECASE,
)
# Numbers in such columns, also fractional ones such as site 7.1, identify rows if most rows have different ones.
_NUMBERS_ROWS = re.compile(
    r"^row[\W_]?(names?|num|number|no|nr)\W*$"
    r"|(^|[\W_])(bib|site|station|sample|specimen|subject|patient|participant|respondent|account|order|invoice|ticket|case"
    r"|record|serial|registration)[\W_]*(no|nr|num|number)\W*$",
    re.IGNORECASE,
)
_NAMES = re.compile(r"(^|[\W_])(name|title)s?\W*$|(?-i:[a-z](Name|Title)$)", re.IGNORECASE)
# Integers in such columns identify rows or the entities they belong to; those of the next pattern identify things.
_NAMES_ROWS = re.compile(
    r"(^|[\W_])([pu]?id|ids|uuid|guid|ssn|isbn|(id|case|serial)(no|nr|num|number))\W*$|(?-i:[a-z]I[dD]$|^[A-Z]{1,4}ID$)"
    # With explicit prefixes, because words such as acid and grid end in "id" too.
    r"|(^|[\W_])(user|customer|client|member|patient|subject|person|student|employee|household|account|order|product|item"
    r"|session|device|sensor|station|site|store|shop|school|firm|company|town|city|county|country|state|region|district"
    r"|village|plot|vehicle|case|record|row|sample|group)ids?\W*$",
    re.IGNORECASE,
)
_NAMES_THINGS = re.compile(
    r"(^|[\W_])(sku|ean|upc|zip|zipcode|postal|postcode|plz|phone|fax|flight|fips|iso|code)"
    r"([\W_]*(code|number|num|no|nr|id))?\W*$|codes?\d*\W*$|[\W_]cd\W*$|(?-i:[a-z](Zip|Flight)$)",
    re.IGNORECASE,
)
# Non-negative integers in such columns identify places; not if they count or measure something of a place.
_NAMES_PLACES = re.compile(
    r"^(?!(.*[\W_])?(n|nr|no|num|number|count|total|sum|mean|avg|average|min|max|median|per|in|to|of|from|near|dist"
    r"|distance|time|sales|share|rate|pct|percent|population|pop)[\W_]+[^\W_])(.*[\W_])?"
    r"(precinct|ward|district|borough|parish|county|province|region|zone|community[\W_]?area|census[\W_]?tract|sector"
    r"|route|store|shop|branch|outlet|warehouse|depot|department|dept|station|state|country)"
    r"([\W_]*(number|num|nbr|no|nr))?\W*$",
    re.IGNORECASE,
)
_NUMBER_OF_VECTOR = re.compile(r"e\d+")
# Consecutive numbers in columns with such names, or that count these, are measurements, not identifiers.
_MEASURES = re.compile(
    r"(^|[\W_\d])(dos(e|es|age)|temp|temperatures?|heights?|weights?|lengths?|widths?|depths?|thickness|altitude|elevation"
    r"|speed|velocity|dist|distances?|prices?|costs?|incomes?|amounts?|levels?|loads?|rates?|ratio|percent|pct|shares?"
    r"|scores?|pressure|volume|area|size|mass|angles?|degrees?|conc|concentrations?|freq|frequency|voltage|current|power"
    r"|energy|force|position|latitude|longitude|lat|lon|lng|counts?|totals?|mm|cm|km|mg|kg|ml|hz|deg)([\W_\d]|$)",
    re.IGNORECASE,
)
_COUNTS_TIME = re.compile(
    r"year|month|week|day|hour|minute|second|date|time|quarter|season|decade|period|epoch|age\b|jahr|monat|woche|tag\b|"
    r"stunde|ann[eé]e|mois|(^|[\W_])(yr|t)([\W_]|$)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Choices:
    """The user's choices about columns; everything else is decided from the data.

    ``columns`` are all that may be used; those of ``use`` are used in any case, those of ``drop`` are not.
    ``label`` holds classes for scores, ``known`` holds known clusters; neither is a feature.
    ``kinds`` declares columns as "text", "number" or "date", which are then used; or as "id".
    ``beside`` are columns next to vectors: they are used if the user names them. ``has_decimal_comma`` says that
    the file has decimal commas, whatever its surveyed columns show.
    """

    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    use: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    label: str | None = None
    known: str | None = None
    missing: str = "error"
    scaling: str = "standard"
    beside: Sequence[str] = ()
    has_decimal_comma: bool = False

    @property
    def identifiers(self) -> list[str]:
        """The columns that the user declared as identifiers."""
        return [name for name, kind in self.kinds.items() if kind == "id"]

    def among(self, there: Sequence[str]) -> Choices:
        """The choices with lists such as "a,b" split, unless a column has that name; all columns must exist."""
        names: dict[str, Any] = {
            given: split_names(getattr(self, given), there) for given in ("columns", "drop", "use")
        }
        kinds = {name: kind for given, kind in self.kinds.items() for name in split_names([given], there)}
        single = [(given, [value]) for given in ("known", "label") if (value := getattr(self, given)) is not None]
        for given, asked in [*single, *names.items(), ("kinds", kinds)]:
            absent = [name for name in asked if name not in there]
            if absent:
                raise no_column(absent, there, option(given))
        return replace(self, **names, kinds=kinds)


def split_names(names: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, from a list in which "a,b" stands for two unless there is a column of that name.

    The name of a column of vectors stands for all their entries.
    """
    known: dict[str, list[str]] = {}
    for name in there:
        vector = VECTOR.fullmatch(name)
        if vector is not None:
            known.setdefault(vector[1], []).append(name)
    known |= {name: [name] for name in there}
    asked = [part for name in names for part in ([name] if name in known else name.split(","))]
    return tuple(dict.fromkeys(name for part in asked for name in known.get(part, [part])))


def names_rows(name: str) -> bool:
    """Whether a column of this name may identify rows."""
    return any(names.search(name) is not None for names in (_NAMES_ROWS, _IDENTIFIER, _NUMBERS_ROWS))


def numbers_of_vectors(names: Iterable[str]) -> list[str]:
    """The columns that are entries of vectors, by names such as e00 … e63, as ``pollux embed`` writes them."""
    found = {name for name in names if _NUMBER_OF_VECTOR.fullmatch(name)}
    written = [f"e{index:0{len(str(len(found) - 1))}}" for index in range(len(found))]
    return written if len(found) >= WIDE and found == set(written) else []


def learn_encoding(
    blocks: Blocks, choices: Choices | None = None, ranks: Ranks | None = None
) -> tuple[Encoding, NDArray[np.int64]]:
    """Learn the encoding of rows, in memory or in files, and the rows of each block. Several processes share the work.

    With ``missing="drop"`` means are those of complete rows, for which everything is read a second time: only after the
    first pass is it known which columns must be complete.
    """
    choices = choices or Choices()
    try:
        encoding = _survey_all(blocks, choices, None, ranks)[0].plan()
    except InfiniteColumnError as error:
        raise _find_infinite(blocks, str(error)) from None
    if choices.missing != "drop":
        return encoding, blocks.lengths
    while True:
        survey, lengths = _survey_all(blocks, _narrowed(choices, encoding, blocks), encoding, ranks)
        if not lengths.sum():
            instead = option("missing", "mean")
            raise InputError(
                f"Each row of {blocks.path} lacks a value, so dropping them leaves nothing: use {instead}."
            )
        found = survey.plan()
        is_same = found.names == encoding.names
        encoding = found.after(encoding)
        # A column that is constant among complete rows need not be complete either.
        if is_same:
            return encoding, lengths


def adapt_encoding(encoding: Encoding, parts: Callable[[TableEncoding], Iterable[Any]]) -> Encoding:
    """The encoding for new rows, in which numbers or dates may be written otherwise than in training.

    A column that cannot be read as in training is read as a fit would read it, if all of its values are written in one
    way. ``parts`` gives the rows as Arrow tables, each time anew, with the types that an encoding of some of the
    columns needs. Only the first of them is looked at if it can be read.
    """
    if not isinstance(encoding, TableEncoding):
        return encoding
    columns = [column for column in encoding.columns if isinstance(column, Number | Date) and not column.coerce]
    if not columns or _reads_first(columns, parts):
        return encoding
    # Text files are then read as text.
    as_text_of = {column.name: Number(column.name, 0.0, 1.0, decimal=".") for column in columns}
    try:
        some = next(iter(parts(TableEncoding(tuple(as_text_of.values())))))
        failing = [
            column
            for column in columns
            # Dates may have been numbers, as which text is not read.
            if isinstance(column, Date) or not _reads(column, some.column(column.name))
            if not _reads_first([column], parts)
        ]
        seen = {column.name: Column(column.name, "use") for column in failing}
        for part in parts(TableEncoding(tuple(as_text_of[name] for name in seen))) if seen else ():
            for name, column in seen.items():
                column.add(part.column(name), column.rows)
    except InputError:
        # Whatever else is wrong is reported where the rows are encoded.
        return encoding
    adapted = {column.name: seen[column.name].adapt(column) for column in failing}
    return replace(encoding, columns=tuple(adapted.get(column.name, column) for column in encoding.columns))


def _reads_first(columns: Sequence[Number | Date], parts: Callable[[TableEncoding], Iterable[Any]]) -> bool:
    """Whether the first part of the rows can be read as in training."""
    try:
        part = next(iter(parts(TableEncoding(tuple(columns)))))
    except InputError:
        return False
    return all(_reads(column, part.column(column.name)) for column in columns)


def _reads(column: Number | Date, values: Any) -> bool:
    try:
        column.read(values)
    except InputError:
        return False
    return True


def recognise_rows(
    n: int | None,
    shape: tuple[int, ...],
    encoding: Encoding | None,
    sample: Callable[[int], Any],
    *,
    may_be_embedded: bool = True,
) -> str:
    """The recipe for n samples of a shape; for wide rows it depends on some of them, as they were before encoding.

    ``sample`` returns at most a given number of them, (m, d).
    """
    if encoding is not None and len(shape) == 1:
        # Constant pixels at the edge were left out, but are part of the image.
        shape = (shape[0] + list(encoding.left_out.values()).count(_ONE_VALUE),)
    may_be_alike = recognise_kind(n, shape, True) != recognise_kind(n, shape, False)
    may_be_embedded = may_be_embedded and recognise_kind(n, shape, False, True) == "embeddings"
    if not (may_be_alike or may_be_embedded):
        return recognise_kind(n, shape, False)
    some = sample(_ROWS_LOOKED_AT)
    some = some.toarray() if hasattr(some, "toarray") else some
    # Empty, if not all columns are numbers.
    numbers = np.asarray(some if encoding is None else encoding.decode_numbers(some), dtype=np.float64)
    is_of_one_kind = may_be_alike and numbers.size > 0 and Moments.of(numbers).ranges_are_alike
    looks = looks_embedded if encoding is None else encoding.looks_embedded
    return recognise_kind(n, shape, is_of_one_kind, may_be_embedded and looks(some))


def take_evenly(X: Any, most: int) -> Any:
    """About ``most`` rows of X, evenly spaced."""
    return X[:: max(1, X.shape[0] // most)]


def survey_blocks(
    blocks: Blocks,
    choices: Choices,
    *,
    own: Sequence[int] | NDArray[np.int64] | None = None,
    complete: Encoding | None = None,
) -> tuple[Survey, NDArray[np.int64]]:
    """Survey some of the blocks, all by default; returns the survey, and the rows of each block that it has seen.

    With ``complete``, only rows without missing values in its columns are counted.
    """
    survey: Survey = (
        TableSurvey(blocks.names, choices) if blocks.shape is None else ArraySurvey(blocks.shape, choices, blocks.names)
    )
    names = list(dict.fromkeys([*survey.names, *(complete.names if complete is not None else ())]))
    starts = np.cumsum(blocks.lengths) - blocks.lengths
    numbers = range(len(starts)) if own is None else own
    seen = np.zeros(len(starts), dtype=np.int64)
    for block in track(numbers, "looking at columns, part"):
        rows = blocks.read_block(int(block), names)
        if complete is not None:
            rows = complete.select_rows(rows)
        survey.add(rows, int(starts[block]))
        seen[block] = rows.shape[0]
    return survey, seen


def _survey_all(
    blocks: Blocks, choices: Choices, complete: Encoding | None, ranks: Ranks | None
) -> tuple[Survey, NDArray[np.int64]]:
    """Survey all blocks, which are divided among the processes."""
    if ranks is None:
        return survey_blocks(blocks, choices, complete=complete)
    own = shards(blocks.lengths, ranks.size)[ranks.rank]
    found, problem = None, None
    try:
        found = survey_blocks(blocks, choices, own=own, complete=complete)
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
    # Columns of an array without names are identified by number.
    every = blocks.names or [str(index) for index in range((blocks.shape or (0,))[0])]
    read = set(encoding.names)
    others = [name for name in every if name not in {*read, *encoding.identifiers, choices.label}]
    columns = encoding.names if choices.columns else ()
    kinds = {name: kind for name, kind in choices.kinds.items() if name in read}
    use = [name for name in choices.use if name in read]
    kinds |= dict.fromkeys(encoding.identifiers, "id")
    commas = choices.has_decimal_comma or (
        isinstance(encoding, TableEncoding)
        and any(isinstance(each, Number) and each.decimal == "," for each in encoding.columns)
    )
    return replace(choices, columns=columns, drop=others, use=use, kinds=kinds, has_decimal_comma=commas)


class InfiniteColumnError(InputError):
    """A column, named by this error, holds infinite values."""


def _find_infinite(blocks: Blocks, name: str) -> InputError:
    """The error for infinite values of a column: where the first is, and what to do."""
    first, count = "", 0
    for block in range(len(blocks.lengths)):
        part = blocks.read_block(block, [name])
        if isinstance(part, np.ndarray):
            values = part[:, (list(blocks.names) or [str(index) for index in range(part.shape[1])]).index(name)]
        else:
            values = as_numbers(name, part.column(name))
        is_infinite = np.isinf(values)
        if is_infinite.any() and not first:
            first = blocks.where(block, int(is_infinite.argmax()))
        count += int(is_infinite.sum())
    is_text = suffix_of(blocks.path)[0] in (*FORMATS["CSV"], *FORMATS["TSV"])
    spelled = advised("make them None", f"say so ({option('na', 'inf')})" if is_text else "store them as such")
    instead = advised("leave the column out", f"leave it out ({option('drop', name)})")
    return InputError(
        f"{first}: column {name!r} is infinite; of its values {count:,} are. Correct them; if they stand for missing "
        f"values, {spelled}; or {instead}."
    )


class LeaveOutError(Exception):
    """A column is not used, for the reason given; ``kind`` is its detected kind."""

    def __init__(self, reason: str, kind: str = "") -> None:
        super().__init__(reason)
        self.kind = kind


class Survey(ABC):
    """Statistics of the rows seen so far; of bounded size, and can be pickled.

    Parts may be added in sequence in one process, or in several whose surveys are merged.
    """

    names: list[str]
    """The columns that are surveyed."""
    rows: int = 0

    @abstractmethod
    def add(self, rows: Any, first: int | None = None) -> None:
        """Add rows; ``first`` is the index of the first of them, by default that after the last ones."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Merge another survey of other rows, with the same choices."""

    @abstractmethod
    def plan(self) -> Encoding:
        """The encoding of the rows."""


class ArraySurvey(Survey):
    """Statistics of rows (n, d), or of images (n, C, H, W); ``columns`` are names of the d columns, if any."""

    def __init__(
        self, shape: Sequence[int], choices: Choices | None = None, columns: Sequence[str] | None = None
    ) -> None:
        self.shape = tuple(int(size) for size in shape)
        self.choices = choices or Choices()
        self.columns = tuple(columns or ())
        self.incomplete = 0
        is_image = len(self.shape) == 3
        # A common scale of images comes from the variance of pixels, as for rows; separate scales are per channel.
        self._by_pixel = is_image and self.choices.scaling in ("auto", "global")
        self.moments = Moments.empty((math.prod(self.shape) if self._by_pixel else self.shape[0],))
        is_chosen = self.choices.columns or self.choices.drop or self.choices.use
        kinds = [kind for kind in self.choices.kinds.values() if kind not in ("id", "number")]
        if is_image and (is_chosen or kinds):
            given = f"{option('columns')}, {option('drop')}, {option('use')} and {option('kinds')}"
            raise InputError(f"Images have no columns to choose from: leave out {given}.")
        if kinds:
            raise InputError(f"An array holds numbers throughout: leave out {option('kinds')}, or use a table.")
        self.names = [] if is_image else list(self.columns) or [str(index) for index in range(self.shape[0])]
        self._among = replace(self.choices, label=None, kinds={}).among(self.names)

    def add(self, rows: Any, first: int | None = None) -> None:
        """Add samples (n, …), all columns at once, because they are adjacent in a file."""
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
        """The encoding: rows are scaled by column, images by channel."""
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
        """The indices of the columns that are used, and the reasons why others are not."""
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
    """Statistics of the columns of a table.

    Identifiers are recognised from all rows if these are few, and from the first million otherwise.
    """

    def __init__(self, there: Sequence[str], choices: Choices | None = None) -> None:
        self.choices = (choices or Choices()).among(there)
        self.there = list(there)
        others = {self.choices.label, *self.choices.drop, *self.choices.identifiers}
        wanted = dict.fromkeys([*self.choices.columns, *self.choices.use], "use") | dict(self.choices.kinds)
        self._columns = {
            name: Column(name, wanted.get(name, "")) for name in self.choices.columns or there if name not in others
        }
        self.names = list(self._columns)

    def add(self, rows: Any, first: int | None = None) -> None:
        for name, column in track(self._columns.items(), "looking at column"):
            column.add(rows.column(name), self.rows if first is None else first)
        self.rows += rows.num_rows

    def merge(self, other: TableSurvey) -> None:
        if self.names != other.names:
            raise ValueError("the surveys are of different columns")
        for mine, others in zip(self._columns.values(), other._columns.values(), strict=True):
            mine.merge(others)
        self.rows += other.rows

    def _beside_vectors(self) -> list[str]:
        """The columns beside unit vectors, if the table has vectors that ``pollux embed`` wrote."""
        written = numbers_of_vectors(self._columns)
        found = [moments for name in written if (moments := self._columns[name].moments) is not None]
        squares = [float(moments.mean[0] ** 2 + moments.square[0] / max(1.0, moments.weight[0])) for moments in found]
        if not written or len(found) < len(written) or abs(sum(squares) - 1) > _MOST_ROUNDING:
            return []
        return [name for name in self._columns if name not in set(written)]

    def plan(self) -> TableEncoding:
        """The encoding: numbers scaled, text of few values one-hot, dates as years and cycles, the rest left out."""
        scaling, missing = self.choices.scaling, self.choices.missing
        plans: dict[str, Plan] = {}
        found: dict[str, Decision] = {}
        lacking: dict[str, int] = {}
        matches = [match[1] for name in self._columns if (match := VECTOR.fullmatch(name))]
        vectors = [name for name, width in Counter(matches).items() if width >= WIDE]
        beside = {*self.choices.beside, *self._beside_vectors()}
        commas = self.choices.has_decimal_comma or any(each.shows_decimal_comma for each in self._columns.values())
        for name, column in self._columns.items():
            try:
                plan = column.plan(scaling, commas, missing == "mean")
                if vectors and not column.wanted and not VECTOR.fullmatch(name):
                    raise LeaveOutError(f"it stands beside the vectors of {quoted(vectors, 3)}")
                if name in beside and not column.wanted:
                    instead = advised("", f" ({option('use', name)} takes it too)")
                    raise LeaveOutError(f"it stands beside vectors{instead}")
                plans[name] = plan
                if count := column.missing + plan.strange:
                    lacking[name] = count
                gaps = f"{count:,} gap{'' if count == 1 else 's'} filled" if count and missing == "mean" else ""
                reason = "; ".join(filter(None, [plan.note, gaps, column.warn_of_class(plan)]))
                found[name] = Decision(name, KIND_NAMES[type(plan.column)], True, reason)
            except LeaveOutError as reason:
                if column.wanted:
                    asked = option("columns") if name in self.choices.columns else option("use")
                    asked = option("kinds") if name in self.choices.kinds else asked
                    raise InputError(
                        f"Column {name!r} was asked for ({asked}), but cannot be used: {reason}."
                    ) from None
                found[name] = Decision(name, reason.kind, False, str(reason))
        if not plans:
            reasons = [f"{each.name!r}: {each.reason}" for each in found.values()]
            more = f"; and {len(reasons) - 8:,} more" if len(reasons) > 8 else ""
            raise NoColumnError(f"No column is left to cluster by. {'; '.join(reasons[:8])}{more}")
        if missing == "error" and lacking:
            raise InputError(describe_missing(lacking, self.rows))
        scaled = {name: plan for name, plan in plans.items() if plan.moments is not None}
        if scaled:
            units = learn_units(Moments.joined([plan.moments for plan in scaled.values() if plan.moments]), scaling)
            plain_units = (np.broadcast_to(values, units.centre.shape).tolist() for values in units)
            for plan, centre, scale, fill in zip(scaled.values(), *plain_units, strict=True):
                plan.set_units(centre, scale, fill, scaling)
        identifiers = [*self.choices.identifiers, *(name for name, each in found.items() if each.kind == "id")]
        left_out = {name: each.reason for name, each in found.items() if not each.used}
        listed = tuple(found.get(name) or self._decide_unsurveyed(name) for name in self.there)
        planned = tuple(plan.column for plan in plans.values())
        return TableEncoding(planned, missing, tuple(identifiers), left_out, listed)

    def finds_identifiers(self) -> bool:
        """Whether some columns of numbers are identifiers, and measure nothing."""
        for column in self._columns.values():
            try:
                column.check_measurement()
            except LeaveOutError:
                return True
        return False

    def _decide_unsurveyed(self, name: str) -> Decision:
        """The decision about a column that was not surveyed."""
        if name == self.choices.label:
            return Decision(name, "label", False, f"known classes ({option('label')})")
        if name == self.choices.known:
            return Decision(name, "", False, f"known clusters ({option('known')})")
        if name in self.choices.identifiers:
            return Decision(name, "id", False, option("kinds", "id"))
        return Decision(name, "", False, option("drop") if name in self.choices.drop else f"not in {option('columns')}")


@dataclass
class Plan:
    """The encoding of a column; ``moments`` (1,) are given if its units are learned together with those of others.

    ``strange`` is the number of values that count as missing, since they are not of the declared kind.
    """

    column: ColumnEncoding
    note: str = ""
    moments: Moments | None = None
    strange: int = 0

    def set_units(self, centre: float, scale: float, fill: float, scaling: str) -> None:
        if isinstance(self.column, Category):
            # Two values are encoded as 0 and 1.
            self.column = structs.replace(self.column, scale=None if scaling == "none" else scale)
        else:
            filled = fill if scaling == "none" else None
            self.column = structs.replace(cast("Number", self.column), mean=centre, scale=scale, fill=filled)


@dataclass
class Counts:
    """Counts of values; ``many`` if there are too many different ones, of which only some are kept."""

    of: dict[str, int] = field(default_factory=dict)
    many: bool = False

    def add(self, text: Any) -> None:
        """Count the values of an Arrow column of text."""
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
            # Keep words first, because a few among numbers are worth a note.
            kept = sorted(self.of, key=is_number)[: MOST_VALUES_COUNTED + 1]
            self.of = {value: self.of[value] for value in kept}


@dataclass
class Different:
    """How many values are different: exact for a million rows, which are taken to represent those that follow.

    ``so_far`` says whether at least a ``share`` can still be; once it cannot, counting stops.
    """

    so_far: bool = True
    share: float = _NEARLY_ALL
    rows: int = 0
    # Distinct values of parts that are no longer compared; and hashes of each other part, without duplicates.
    distinct: int = 0
    hashes: list[NDArray[np.uint64]] = field(default_factory=list)

    def add(self, values: Any) -> None:
        """Add an Arrow column of text or numbers without missing values."""
        if not self.so_far or self.rows >= _MOST_ROWS_COMPARED:
            return
        some = values.slice(0, _MOST_ROWS_COMPARED - self.rows)
        pa = pyarrow_library()
        unique = pa.compute.unique(some)
        # A hash that is the same in every process.
        if pa.types.is_integer(some.type):
            hashes = np.asarray(unique).astype(np.int64).view(np.uint64)
        elif kind_of(some.type) == "number":
            hashes = np.asarray(unique.cast(pa.float64())).view(np.uint64)
        elif len(unique) < len(some) - self._most_alike:
            hashes = np.empty(0, dtype=np.uint64)
        else:
            digests = b"".join(blake2b(value.encode(), digest_size=8).digest() for value in unique.to_pylist())
            hashes = np.frombuffer(digests, dtype=np.uint64)
        self.merge(Different(rows=len(some), hashes=[hashes]))

    def merge(self, other: Different) -> None:
        if max(self.rows, other.rows) < _MOST_ROWS_COMPARED:
            self.hashes += other.hashes
        else:
            # If one of them has seen a million rows, they are not compared.
            self.distinct, self.hashes = self._count() + other._count(), []
        self.rows += other.rows
        if self.rows >= _MOST_ROWS_COMPARED:
            self.distinct, self.hashes = self._count(), []
        # The number of duplicates only grows, so the result does not depend on how rows are divided into parts.
        alike = self.rows - self.distinct - sum(map(len, self.hashes))
        self.so_far = self.so_far and other.so_far and alike <= self._most_alike
        self.hashes = self.hashes if self.so_far else []

    def all(self) -> bool:
        """Whether each row has a different value."""
        return self.so_far and self._count() == self.rows

    def nearly_all(self) -> bool:
        """Whether nearly each row has a different value."""
        return self.so_far and self._count() >= _NEARLY_ALL * self.rows

    def most(self) -> bool:
        """Whether there are more than half as many different values as rows."""
        return self.so_far and 2 * self._count() > self.rows

    @property
    def _most_alike(self) -> float:
        """The number of duplicates above which too many values are alike, whatever follows."""
        return (1 - self.share) * _MOST_ROWS_COMPARED

    def _count(self) -> int:
        return self.distinct + (len(np.unique(np.concatenate(self.hashes))) if self.hashes else 0)


@dataclass
class Steps:
    """Differences of consecutive integers in a column: their number, and how many of them are one.

    Parts are stored with the rows that they begin and end with, so that differences between parts are counted too.
    """

    all: int = 0
    ones: int = 0
    parts: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def start(self) -> int:
        """The number of the first row."""
        return self.parts[min(self.parts)][1]

    @classmethod
    def of(cls, numbers: NDArray[Any], first: int) -> Steps:
        steps = np.diff(numbers)
        ends = (first + len(numbers), int(numbers[0]), int(numbers[-1]))
        return cls(len(steps), int((steps == 1).sum()), {first: ends})

    def merge(self, other: Steps) -> None:
        self.all, self.ones = self.all + other.all, self.ones + other.ones
        for first in sorted({**self.parts, **other.parts}):
            self.parts[first] = self.parts.get(first) or other.parts[first]
        joined: dict[int, tuple[int, int, int]] = {}
        for first, (end, low, high) in sorted(self.parts.items()):
            before = next(reversed(joined), None)
            if before is not None and joined[before][0] == first:
                _, start, last = joined[before]
                self.all, self.ones = self.all + 1, self.ones + (low - last == 1)
                joined[before] = (end, start, high)
            else:
                joined[first] = (end, low, high)
        self.parts = joined


@dataclass
class Spelling:
    """One way to parse text, or integers, as numbers or times: its result, and how many values it cannot parse.

    ``moments`` are those of numbers (1,), or of facets of times, whether they are on 1 January, their days, and the
    times themselves (10,). ``words`` are some of the texts that are not numbers: all, if there is only one.
    """

    moments: Moments
    strange: int = 0
    units: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()

    @property
    def has_failed(self) -> bool:
        """Whether values cannot be parsed, unless these are a single word that may stand for missing values."""
        is_marker = len(self.words) == 1 and not re.search(r"\d", min(self.words))
        return self.strange > 0 and not is_marker

    @property
    def reach(self) -> float:
        """The largest number, without its sign."""
        return max(abs(float(self.moments.low[0])), abs(float(self.moments.high[0])))

    def merged(self, other: Spelling) -> Spelling:
        moments = self.moments.merged(other.moments)
        words = frozenset(sorted(self.words | other.words)[:2])
        return Spelling(moments, self.strange + other.strange, self.units | other.units, words)


_FACET_OF_FEATURE = tuple(facet for facet, features in FACETS.items() for _ in features)
_NUMBERS_OF_DATES = ("yearmonthday", "years", "seconds", "milliseconds")


@dataclass
class Column:
    """Statistics of a column. ``wanted`` is "use" if the user wants it to be used, or its declared kind."""

    name: str
    wanted: str = ""
    kind: str = "nothing"
    rows: int = 0
    missing: int = 0
    moments: Moments | None = None
    counts: Counts = field(default_factory=Counts)
    different: Different = field(init=False)
    # None if values are missing, or are not integers.
    steps: Steps | None = field(default_factory=Steps)
    # Of the first thousand rows: their number, how many of them are numbers, and whether some are codes such as 007.
    looked_at: int = 0
    look_like_numbers: int = 0
    has_codes: bool = False
    # Ways to parse it that have not failed, by name. None until a value is seen.
    spellings: dict[str, Spelling] | None = None

    def __post_init__(self) -> None:
        self.different = Different(share=0.5 if _NUMBERS_ROWS.search(self.name) else _NEARLY_ALL)

    @property
    def is_named(self) -> bool:
        """Whether integers are names, by the name of the column or by declaration."""
        says_so = any(names.search(self.name) for names in (_NAMES_THINGS, _NAMES_ROWS, _NAMES_PLACES))
        return self.wanted == "text" or (not self.wanted and says_so)

    def add(self, values: Any, first: int) -> None:
        """Add rows of the column, as an Arrow column; ``first`` is the index of the first of them."""
        types = pyarrow_library().types
        if types.is_dictionary(values.type) and kind_of(values.type) in ("integer", "number") and not self.wanted:
            # Categories of a data frame that are numbers.
            self.wanted = "text"
        values = plain(values)
        kind = kind_of(values.type)
        if kind == "text":
            values = pyarrow_library().compute.utf8_trim_whitespace(values)
        absent = is_missing(values)
        seen = Column(self.name, self.wanted, kind=kind, rows=len(values), missing=int(absent.sum()))
        if kind in ("integer", "number"):
            seen.moments = Moments.of(as_numbers(self.name, values)[:, None])
            if self.is_named and not self.counts.many:
                seen.counts.add(numbers_as_text(self.name, values))
        elif kind in ("boolean", "text") and not self.counts.many:
            seen.counts.add(as_text(values))
        if seen.missing < len(values):
            seen.spellings = self._spell(values, kind, seen)
        may_name_rows = kind in ("integer", "text") or (kind == "number" and _NUMBERS_ROWS.search(self.name))
        if may_name_rows and len(values) and not self.wanted:
            self._look_for_identifiers(seen, values, first)
        self.merge(seen)

    def _look_for_identifiers(self, seen: Column, values: Any, first: int) -> None:
        """Check whether these values identify rows; a column of numbers with missing values does not."""
        if seen.kind == "text":
            self.different.add(values.drop_null())
            some = values.slice(0, max(0, _ROWS_LOOKED_AT - first)).drop_null().to_pylist()
            seen.looked_at, seen.look_like_numbers = len(some), sum(map(is_number, some))
            seen.has_codes = any(map(CODE.fullmatch, some))
        elif self.missing or seen.missing:
            seen.steps, seen.different = None, Different(so_far=False)
        else:
            if _IDENTIFIER.search(self.name) or _NUMBERS_ROWS.search(self.name):
                self.different.add(values)
            if self.steps is not None and seen.kind == "integer":
                seen.steps = Steps.of(values.to_numpy(), first)

    def _spell(self, values: Any, kind: str, seen: Column) -> dict[str, Spelling]:
        """Parse these values in each way that has not yet failed."""
        if kind == "time":
            return {STORED: _spell_times(values, STORED, self.name)}
        possible: list[str] = []
        if kind == "text":
            declared: dict[str, tuple[str, ...]] = {"text": (), "number": DECIMALS, "date": tuple(DATES)}
            possible = list(declared.get(self.wanted, (*DECIMALS, *DATES)))
        elif kind == "integer" and self.wanted in ("", "use", "date"):
            possible = list(_NUMBERS_OF_DATES[: None if self.wanted == "date" else 1])
            # Most numbers have too few digits for a date, which their range shows at no cost.
            if self.wanted != "date" and seen.moments is not None and seen.moments.high[0] < _FIRST_DATE:
                possible = []
            elif not self.wanted and seen.moments is not None and _TIMESTAMP.search(self.name):
                possible += _timestamps(float(seen.moments.low[0]), float(seen.moments.high[0]))
        elif self.wanted == "date" and kind == "number":
            possible = list(_NUMBERS_OF_DATES[1:])
        possible = [name for name in possible if self.spellings is None or name in self.spellings]
        is_strict = self.wanted not in ("number", "date")
        if kind == "text" and is_strict and possible and (words := without_digits(values.slice(0, _FIRST_VALUES))):
            # No times, but perhaps numbers and a word.
            possible = [name for name in possible if name in DECIMALS and len(words) == 1]
        found: dict[str, Spelling] = {}
        for name in possible:
            spell = _spell_numbers if name in DECIMALS else _spell_times
            # Most ways to parse a column already fail on its first values.
            if is_strict and spell(values.slice(0, _FIRST_VALUES), name, self.name).has_failed:
                continue
            spelling = spell(values, name, self.name)
            if not (is_strict and spelling.has_failed):
                found[name] = spelling
        return found

    def merge(self, other: Column) -> None:
        """Merge the statistics of other rows of the same column."""
        both = same_kind(self.kind, other.kind)
        if both is None:
            raise InputError(
                f"Column {self.name!r} holds {self.kind} in some rows and {other.kind} in others: store it in one way."
            )
        self.kind, self.wanted = both, self.wanted or other.wanted
        self.rows += other.rows
        self.missing += other.missing
        if other.moments is not None:
            self.moments = other.moments if self.moments is None else self.moments.merged(other.moments)
        self.counts.merge(other.counts)
        self.different.merge(other.different)
        if self.steps is None or other.steps is None:
            self.steps = None
        else:
            self.steps.merge(other.steps)
        self.looked_at += other.looked_at
        self.look_like_numbers += other.look_like_numbers
        self.has_codes = self.has_codes or other.has_codes
        if self.spellings is None or other.spellings is None:
            self.spellings = other.spellings if self.spellings is None else self.spellings
        else:
            both_parse = [name for name in self.spellings if name in other.spellings]
            merged = {name: self.spellings[name].merged(other.spellings[name]) for name in both_parse}
            is_strict = self.wanted not in ("number", "date")
            self.spellings = {name: each for name, each in merged.items() if not (is_strict and each.has_failed)}

    def plan(self, scaling: str, has_decimal_comma: bool = False, may_fill: bool = False) -> Plan:
        """The encoding of the column; a LeaveOutError if it is not used.

        With ``has_decimal_comma`` the points of 1.660 separate thousands, if all points of the column may. With
        ``may_fill`` a rare word among numbers counts as missing.
        """
        if self.kind == "nothing" or self.missing == self.rows:
            raise LeaveOutError("it has no values", "empty")
        if not self.wanted and self.missing > _MOST_GAPS * self.rows:
            raise LeaveOutError(f"{self.missing:,} of {self.rows:,} values are missing", self._kind_name)
        times = self._times()
        if times is not None:
            return _plan_date(self.name, *times, coerce=self.wanted == "date", scaling=scaling)
        decimal = self._decimal(has_decimal_comma, may_fill)
        if self.kind in ("integer", "number") and self.wanted != "text":
            self.check_measurement()
            is_place = _NAMES_PLACES.search(self.name) is not None and not self.wanted
            if not self.is_named or self.moments is None or not self._is_whole or (is_place and self._range[0] < 0):
                return self._plan_number(self.moments, scaling)
        if decimal is not None:
            return self._plan_number(decimal[1].moments, scaling, *decimal)
        if self.wanted in ("number", "date"):
            raise LeaveOutError(f"it holds {self.kind}, and not {self.wanted}s", self._kind_name)
        if self.kind not in ("boolean", "integer", "number", "text"):
            reason = f"values of type {self.kind} are not read"
            if self.kind == "vector":
                reason = "its lists are empty, or differ in length"
            raise LeaveOutError(reason, "")
        if not self.wanted and self._names_rows:
            hint = self._say_sentences()
            if self.different.all() and not self.missing:
                raise LeaveOutError(f"an identifier: each row has its own value{hint}", "id")
            is_name = names_rows(self.name) or _NAMES.search(self.name)
            said = "an identifier: nearly each row has its own value"
            said = said if is_name else "too many different values: nearly each row has its own"
            raise LeaveOutError(f"{said}{hint}", "id")
        return self._plan_category(scaling)

    def adapt(self, trained: Number | Date) -> Number | Date:
        """The encoding of a column of a model, for these values; the same one if they are not written in one way."""
        if isinstance(trained, Number):
            decimal = self._decimal()
            return trained if decimal is None else structs.replace(trained, decimal=cast("Any", decimal[0]))
        times = self._times()
        is_in_doubt = times is not None and times[0] == "month/day/year" and "day.month.year" in (self.spellings or {})
        # Times of day are of no date.
        if times is None or is_in_doubt or (times[0] == "time") != (trained.facets == ("time of day",)):
            return trained
        return structs.replace(trained, form=times[0])

    def warn_of_class(self, plan: Plan) -> str:
        """A warning if the column may hold known classes, and was not requested."""
        if self.wanted or isinstance(plan.column, Date):
            return ""
        if isinstance(plan.column, Number):
            return warn_of_class(self.name, *self._range) if self.kind == "integer" else ""
        return warn_of_class(self.name, 0, 0)

    @property
    def _range(self) -> tuple[float, float]:
        assert self.moments is not None
        return float(self.moments.low[0]), float(self.moments.high[0])

    def _say_sentences(self) -> str:
        """Advice how to cluster by texts, if these are sentences."""
        if self.kind != "text" or not are_prose(list(self.counts.of)):
            return ""
        return "; to cluster by what its texts say: " + advised(
            f"pollux.embed(X[{self.name!r}])", option("text", self.name)
        )

    @property
    def _kind_name(self) -> str:
        return {"integer": "number", "time": "date", "boolean": "text"}.get(self.kind, self.kind)

    @property
    def _is_whole(self) -> bool:
        """Whether numbers that could be names are integers, by their type or by their values."""
        return self.kind == "integer" or all("." not in value and "e" not in value for value in self.counts.of)

    def _times(self) -> tuple[str, Spelling] | None:
        """The way to parse the column as times, if it is a column of times."""
        if self.wanted in ("text", "number"):
            return None
        if self.kind == "integer" and not self.wanted and self.rows - self.missing < _FEWEST_ROWS_OF_IDENTIFIERS:
            # So few numbers may look like dates by chance.
            return None
        found = {name: each for name, each in (self.spellings or {}).items() if name not in DECIMALS}
        best = self._choose(found)
        if best is not None and best[0] == "month/day/year" and "day.month.year" in found:
            # With slashes alone, day and month are ambiguous; with dots and dashes they are not.
            is_dotted = any(re.match(r"\d+[.-]", value) for value in self.counts.of)
            return ("day.month.year", found["day.month.year"]) if is_dotted else best
        return best

    def _choose(self, spellings: Mapping[str, Spelling]) -> tuple[str, Spelling] | None:
        """The first of the spellings that fail least often; None if all fail for each value."""
        best = min(spellings.items(), key=lambda item: item[1].strange, default=None)
        return None if best is None or best[1].strange == self.rows - self.missing else best

    @property
    def shows_decimal_comma(self) -> bool:
        """Whether the text is numbers that can only be read with a decimal comma."""
        best = self._decimal()
        return best is not None and best[0] == ","

    def _decimal(self, has_decimal_comma: bool = False, may_fill: bool = False) -> tuple[str, Spelling] | None:
        """The decimal separator and the numbers, if the text is numbers; with either separator, as other columns."""
        found = {name: each for name, each in (self.spellings or {}).items() if name in DECIMALS}
        best = self._choose(found)
        if best is not None and has_decimal_comma and "," in found and found[","].strange == best[1].strange:
            best = ",", found[","]
        if best is None or self.kind != "text" or self.wanted == "text":
            return None
        if self.wanted != "number" and best[1].strange:
            # A word for missing values; but numbers that are names may have such a word among them.
            most = _MOST_MARKED * (self.rows - self.missing)
            if not may_fill or best[1].strange > most or self.is_named or names_rows(self.name):
                return None
        # Digits stored as text, with few values, are names; and so are those with leading zeros.
        others = [value for value in self.counts.of if value not in best[1].words]
        is_plain = not self.counts.many and all(value.strip().isdigit() for value in others)
        if self.wanted != "number" and is_plain and len(others) <= MOST_VALUES:
            return None
        return best if self.wanted == "number" or len(comparable_units(best[1].units)) <= 1 else None

    def check_measurement(self) -> None:
        """Raise if integers identify rows, and measure nothing."""
        if self.wanted:
            return
        if _NAMES_ROWS.search(self.name) and self._is_whole:
            raise LeaveOutError("an identifier: its name says so", "id")
        is_long = self.rows >= _FEWEST_ROWS_OF_IDENTIFIERS and not self.missing
        if self.kind == "number" and is_long and _NUMBERS_ROWS.search(self.name) and self.different.most():
            raise LeaveOutError("an identifier: most rows have their own number, and its name says so", "id")
        if self.kind != "integer" or not is_long:
            return
        says_so = _IDENTIFIER.search(self.name) is not None
        counts_time = _COUNTS_TIME.search(self.name) is not None
        steps = self.steps
        if steps is not None and steps.all and steps.ones == steps.all and not counts_time:
            is_measured = steps.start not in (0, 1) or _MEASURES.search(self.name) is not None
            if names_rows(self.name) or not is_measured:
                raise LeaveOutError("an identifier: it counts the rows", "id")
        if says_so and steps is not None and steps.ones > 0.9 * steps.all and not counts_time:
            raise LeaveOutError("an identifier: it counts rows, beginning anew now and then", "id")
        if says_so and self.different.all():
            raise LeaveOutError("an identifier: each row has its own number, and its name says so", "id")
        if _NUMBERS_ROWS.search(self.name) and self.different.most():
            raise LeaveOutError("an identifier: most rows have their own number, and its name says so", "id")

    @property
    def _names_rows(self) -> bool:
        """Whether nearly each row has a different text; numbers only count if the column has a name of identifiers."""
        if self.kind != "text" or self.rows < _FEWEST_ROWS_OF_IDENTIFIERS:
            return False
        # If one value is a code, all are.
        is_name = self.has_codes or 2 * self.look_like_numbers <= self.looked_at or names_rows(self.name)
        return is_name and self.different.nearly_all()

    def _plan_number(
        self, moments: Moments | None, scaling: str, decimal: str = "", spelling: Spelling | None = None
    ) -> Plan:
        assert moments is not None
        _check_number(self.name, moments, scaling)
        coerce, strange, unit, note, marker = False, 0, "", "", ""
        if spelling is not None:
            coerce, strange = self.wanted == "number", spelling.strange
            unit = min(comparable_units(spelling.units), default="")
            note = "written as text" + (f', with "{unit}"' if unit else "")
            point = (self.spellings or {}).get(".")
            if decimal == "," and (point is None or point.strange or point.reach > spelling.reach):
                note += ", decimal comma"
            elif decimal == "," and point is not None and point.reach < spelling.reach:
                note += ", points separate thousands"
            if strange and not coerce:
                marker = min(spelling.words)
                note += f"; {marker!r} counts as missing"
            elif strange:
                note += f"; {strange:,} values are not numbers"
        column = Number(self.name, 0.0, 1.0, None, cast("Any", decimal), unit, coerce, marker)
        return Plan(column, note, moments, strange)

    def _plan_category(self, scaling: str) -> Plan:
        counts = self.counts.of
        is_numeric = self.kind in ("integer", "number") or (
            self.wanted == "text" and self.kind == "text" and all(map(is_number, counts))
        )
        if is_numeric:
            counts = _in_one_spelling(self.name, counts)
        if len(counts) == 1:
            raise LeaveOutError(_ONE_VALUE, "constant")
        total = self.rows - self.missing
        found = f"more than {MOST_VALUES_COUNTED:,}" if self.counts.many else f"{len(counts):,}"
        named = "numbers that are names, " if is_numeric and self.wanted != "text" else ""
        if self.counts.many and self.wanted:
            raise InputError(
                f"Column {self.name!r} has {found} different values; at most {MOST_VALUES_COUNTED:,} can be used."
            )
        kept = sorted(counts)
        if len(counts) > (MOST_VALUES_OF_TEXT if self.wanted else min(MOST_VALUES, max(2, total // 2))):
            if not self.wanted and (
                len(counts) > MOST_VALUES_OF_TEXT or self.counts.many or total < _ROWS_OF_A_VALUE * len(counts)
            ):
                hint = self._say_sentences() or _almost_numbers(self.name, counts)
                if self.kind == "text" and _NAMES_ROWS.search(self.name):
                    raise LeaveOutError(f"an identifier: {found} different values, and its name says so", "id")
                raise LeaveOutError(f"{named}{found} different values{hint}", "text")
            kept = sorted(sorted(counts, key=lambda value: (-counts[value], value))[:MOST_VALUES_OF_TEXT])
            if not self.wanted:
                kept = [value for value in kept if counts[value] >= _FREQUENT * total]
            if 2 * sum(counts[value] for value in kept) < total and not self.wanted:
                raise LeaveOutError(f"{named}{found} different values, few of them frequent", "text")
        has_other = len(kept) < len(counts)
        if has_other:
            kept = [value for value in kept if value != "other"]
        shares = [counts[value] / total for value in kept]
        if has_other:
            shares.append((total - sum(counts[value] for value in kept)) / total)
        is_single = len(kept) == 2 and not has_other
        is_plain = is_single or scaling == "none"
        # The common scale of all its features.
        scale = None if is_plain else math.sqrt(1 - math.fsum(share * share for share in shares))
        column = Category(
            *(self.name, tuple(kept), tuple(shares), self.kind == "boolean", is_numeric, scale, is_single, has_other)
        )
        note = f"{named}{found} values" + (f", the {len(kept)} frequent ones and other" if has_other else "")
        moments = None
        if is_single:
            # Encoded as a number that is 0 or 1.
            one, n = shares[1], float(total)
            square = n * one * (1 - one)
            moments = Moments(*(np.array([value]) for value in (n, one, square, 0.0, 1.0)))
            note = f"{named}{kept[0]} or {kept[1]}"
        return Plan(column, note, moments)


def _spell_numbers(values: Any, decimal: str, name: str) -> Spelling:
    absent, text = is_missing(values), as_text(values)
    numbers, units = written_numbers(text, decimal)
    mask = np.isnan(numbers) & ~absent
    # If one is a code such as 007, all are.
    is_coded = has_codes(values)
    words = frozenset(pyarrow_library().compute.unique(text.filter(mask)).slice(0, 2).to_pylist()) if mask.any() else ()
    strange = int(mask.sum()) or int(is_coded)
    return Spelling(Moments.of(numbers[:, None]), strange, frozenset(units), frozenset([*words, *["0"] * is_coded]))


def _timestamps(low: float, high: float) -> list[str]:
    """The units in which numbers of this range are timestamps, if they fall into recent decades."""
    first, last = _TIMESTAMPS
    return [unit for unit, size in ((SECONDS, 1), (MILLISECONDS, 1_000)) if first * size <= low <= high <= last * size]


def _spell_times(values: Any, form: str, name: str) -> Spelling:
    times, absent = read_times(values, form, name), is_missing(values)
    date = times.astype("datetime64[s]").astype("datetime64[D]")
    days = (date - date.astype("datetime64[M]")).astype(np.float64)
    new_year = (date == date.astype("datetime64[Y]")).astype(np.float64)
    days[np.isnan(times)] = new_year[np.isnan(times)] = np.nan
    facets = np.concatenate([facets_of(times, tuple(FACETS)), np.stack([new_year, days, times], axis=1)], axis=1)
    return Spelling(Moments.of(facets), int((np.isnan(times) & ~absent).sum()))


def _plan_date(name: str, form: str, spelling: Spelling, *, coerce: bool, scaling: str) -> Plan:
    """Encode the facets along which times vary; together they count as one column."""
    moments = spelling.moments
    span, days = float(moments.range[-1]), float(moments.range[-2])
    if not span > 0:
        raise LeaveOutError(_ONE_VALUE, "constant")
    # If times have days, and not only months, 1 January is no more frequent than other days.
    new_years = float(moments.mean[-3]) if days > 0 and span >= _SEASON else 0.0
    is_of_years = _MOST_NEW_YEARS < new_years < 1
    is_there = {
        "year": span >= DAY,
        # Within a year or less, the season is the same as the fraction of the year.
        "season": span >= _SEASON and not is_of_years,
        # The first or last day of each month stands for the month, and may be any day of the week.
        "weekday": span >= DAY and days > 0 and float(moments.low[-2]) < 27 and not is_of_years,
        "time of day": True,
    }
    variance = dict.fromkeys(FACETS, 0.0)
    for facet, value in zip(_FACET_OF_FEATURE, moments.variance.tolist(), strict=False):
        variance[facet] += value
    least = {"year": 0.0, **dict.fromkeys(CYCLES, _LEAST_VARIANCE)}
    facets: list[Any] = [facet for facet in FACETS if is_there[facet] and variance[facet] > least[facet]] or ["year"]
    places = [place for place, facet in enumerate(_FACET_OF_FEATURE) if facet in facets]
    mean = tuple(moments.mean[places].tolist())
    note = f"{', '.join(facets)}" + (f", of {form}" if form else "")
    note += f"; {spelling.strange:,} values are not dates" if spelling.strange else ""
    note += "; many on 1 January, which tells no season" if is_of_years else ""
    if scaling == "none":
        width = len(places)
        date = Date(name, form, tuple(facets), (0.0,) * width, (1.0,) * width, mean, coerce)
    else:
        scale = tuple(math.sqrt(variance[_FACET_OF_FEATURE[place]] * len(facets)) for place in places)
        date = Date(name, form, tuple(facets), mean, scale, None, coerce)
    return Plan(date, note, strange=spelling.strange)


def _check_number(name: str, moments: Moments, scaling: str) -> None:
    """Raise if a column of numbers, with moments (1,), cannot be used."""
    if not moments.weight[0]:
        raise LeaveOutError("it has no values", "empty")
    if not moments.low[0] < moments.high[0]:
        raise LeaveOutError(_ONE_VALUE, "constant")
    if math.isinf(moments.low[0]) or math.isinf(moments.high[0]):
        raise InfiniteColumnError(name)
    mean, deviation = float(moments.mean[0]), float(moments.deviation[0])
    if not (math.isfinite(mean) and math.isfinite(deviation) and (deviation > 0 or scaling == "none")):
        instead = advised("leave the column out", f"leave it out ({option('drop')})")
        raise InputError(
            f"Column {name!r} holds values that are too large or small to standardise: correct them, or {instead}."
        )


def _in_one_spelling(name: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Merge counts of numbers in different notations, such as 3 and 3.0."""
    pa = pyarrow_library()
    spelled = numbers_as_text(name, pa.chunked_array([pa.array(list(counts), pa.string())])).to_pylist()
    total: dict[str, int] = {}
    for value, count in zip(spelled, counts.values(), strict=True):
        total[value] = total.get(value, 0) + count
    return total


def _almost_numbers(name: str, counts: Mapping[str, int]) -> str:
    """Advice for a column of numbers that became text because of a few words."""
    words = sorted(value for value in counts if not is_number(value))
    if not words or 2 * len(words) > len(counts) or all(map(CODE.fullmatch, words)):
        return ""
    advice = advised(
        "make these None and the column one of numbers",
        f"{option('kinds', 'number')} {shlex.quote(name)} reads these as gaps",
    )
    return f"; most are numbers, but not {quoted(words, 3)}: {advice}"
