"""Columns of a table: what the user says of them, and what is known of one whose parts are seen one after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import (
    as_numbers,
    as_text,
    is_missing,
    is_number,
    kind_of,
    numbers_as_text,
    pyarrow_library,
    quoted,
    same_kind,
)
from pollux.data.moments import Moments
from pollux.errors import InputError, did_you_mean, option

MOST_VALUES_COUNTED = 1_000
"""Columns of more different values are not counted further; nothing is done with the counts."""

_MOST_ROWS_COMPARED = 1_000_000
_FEWEST_ROWS_OF_IDENTIFIERS = 5
_ROWS_LOOKED_AT = 1_000
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
    scaling: str = "standard"

    def among(self, there: Sequence[str]) -> Choices:
        """The choices with lists such as "a,b" taken apart, unless a column is called so; all must be there."""
        names: dict[str, Any] = {given: split_names(getattr(self, given), there) for given in _OPTIONS}
        choices = replace(self, **names)
        choices.check(there)
        return choices

    def check(self, there: Sequence[str]) -> None:
        """Raise an InputError where a name is not that of a column."""
        for given in _OPTIONS:
            absent = [name for name in getattr(self, given) if name not in there]
            if absent:
                raise InputError(_no_column(absent, _OPTIONS[given], there))
        if self.label is not None and self.label not in there:
            raise InputError(_no_column([self.label], "label", there))


_OPTIONS = {"columns": "columns", "drop": "drop", "categories": "categories", "identifiers": "id"}


def split_names(names: Sequence[str], there: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, from a list in which "a,b" stands for two unless there is a column of that name."""
    return tuple(dict.fromkeys(part for name in names for part in ([name] if name in there else name.split(","))))


def _no_column(absent: Sequence[str], given: str, there: Sequence[str]) -> str:
    alike = did_you_mean(absent[0], there)
    return f"There is no column {quoted(absent, 5)} ({option(given)}).{alike} There are: {quoted(there, 30)}."


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
        self.many = len(counts) > MOST_VALUES_COUNTED
        self._take({row["values"]: row["counts"] for row in counts.slice(0, 100 * MOST_VALUES_COUNTED).to_pylist()})

    def merge(self, other: Counts) -> None:
        self.many = self.many or other.many
        self._take(other.of)

    def _take(self, others: Mapping[str, int]) -> None:
        for value, count in others.items():
            self.of[value] = self.of.get(value, 0) + count
        self.many = self.many or len(self.of) > MOST_VALUES_COUNTED
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
        if pyarrow_library().compute.count_distinct(some).as_py() < len(some):
            self.so_far, self.hashes = False, []
            return
        self._take(len(some), [_hashes(some)])

    def merge(self, other: Different) -> None:
        self.so_far = self.so_far and other.all()
        # Where one of them has seen a million, there is nothing left to compare.
        if self.rows < _MOST_ROWS_COMPARED:
            self._take(other.rows, other.hashes)

    def _take(self, rows: int, hashes: list[NDArray[np.uint64]]) -> None:
        self.rows += rows
        self.hashes = [*self.hashes, *hashes] if self.so_far else []
        if self.rows >= _MOST_ROWS_COMPARED:
            self.so_far, self.hashes = self.all(), []

    def all(self) -> bool:
        if self.so_far and self.hashes:
            hashes = np.concatenate(self.hashes)
            return bool(np.unique(hashes).size == hashes.size)
        return self.so_far


def _hashes(values: Any) -> NDArray[np.uint64]:
    """(n,), the same in every process."""
    pa = pyarrow_library()
    if pa.types.is_integer(values.type):
        return np.asarray(values.to_numpy()).astype(np.int64).view(np.uint64)
    digests = b"".join(blake2b(value.encode(), digest_size=8).digest() for value in values.to_pylist())
    return np.frombuffer(digests, dtype=np.uint64)


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
        self._take_kind(kind)
        missing = int(is_missing(values).sum())
        self.rows += len(values)
        self.missing += missing
        if kind in ("integer", "number") and not self.category:
            self._take_moments(Moments.of(as_numbers(self.name, values)[:, None]))
        elif kind in ("integer", "number"):
            self.counts.add(numbers_as_text(self.name, values))
        elif kind in ("boolean", "text"):
            self.counts.add(as_text(values))
        if kind in ("integer", "text") and len(values) and not (self.asked or self.category):
            self._look_for_identifiers(values, kind, first)

    def _look_for_identifiers(self, values: Any, kind: str, first: int) -> None:
        if self.missing:
            self.numbered, self.different = None, Different(so_far=False)
            return
        if kind == "text" or _IDENTIFIER.search(self.name):
            self.different.add(values)
        if kind == "text":
            some = values.slice(0, max(0, _ROWS_LOOKED_AT - first)).to_pylist()
            self.looked_at += len(some)
            self.look_like_numbers += sum(map(is_number, some))
        elif self.numbered is not None:
            numbers = values.to_numpy()
            one_by_one = bool((np.diff(numbers) == 1).all())
            self._take_numbered({int(numbers[0]) - first} if one_by_one else None)

    def merge(self, other: Column) -> None:
        """Add what another has seen of other rows of the same column."""
        self._take_kind(other.kind)
        self.rows += other.rows
        self.missing += other.missing
        if other.moments is not None:
            self._take_moments(other.moments)
        self.counts.merge(other.counts)
        self.different.merge(other.different)
        self._take_numbered(other.numbered)
        self.looked_at += other.looked_at
        self.look_like_numbers += other.look_like_numbers

    def _take_kind(self, kind: str) -> None:
        both = same_kind(self.kind, kind)
        if both is None:
            raise InputError(
                f"Column {self.name!r} holds {self.kind} in some rows and {kind} in others: store it in one way."
            )
        self.kind = both

    def _take_moments(self, moments: Moments) -> None:
        self.moments = moments if self.moments is None else self.moments.merged(moments)

    def _take_numbered(self, numbered: set[int] | None) -> None:
        both = None if self.numbered is None or numbered is None else self.numbered | numbered
        self.numbered = both if both is not None and len(both) < 2 else None

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
