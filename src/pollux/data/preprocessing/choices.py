"""What the user says of the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pollux.data.preprocessing.common import quoted
from pollux.errors import InputError, did_you_mean, option


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
