"""What every kind of data file offers: all of its rows, or a part at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pollux.data.preprocessing import Preprocessing, plain
from pollux.errors import InputError, did_you_mean

_NUMBERS_AT_ONCE = 8_000_000


@dataclass(frozen=True)
class Part:
    """Rows of a file in a row: an Arrow table, or an array (n, …) with what the file names beside it.

    ``feature_names`` are those of the columns of an array (n, d), where the file has them.
    """

    rows: Any
    first: int = 0
    beside: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    feature_names: Sequence[str] | None = None

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    @property
    def names(self) -> list[str]:
        """What :meth:`column` can be asked for."""
        return [*getattr(self.rows, "column_names", []), *self.beside]

    def column(self, name: str) -> NDArray[Any]:
        """A column as it was in the file, (n,)."""
        if name in self.beside:
            return self.beside[name]
        if name in getattr(self.rows, "column_names", []):
            return np.asarray(self.rows.column(name).to_numpy())
        if not self.names:
            raise InputError(
                f"There is no column {name!r}: an array alone has none. Put others beside it, in an .npz file."
            )
        there = ", ".join(map(repr, self.names))
        raise InputError(f"There is no column {name!r}.{did_you_mean(name, self.names)} There are: {there}.")

    def written(self, name: str) -> Any:
        """A column for a file that is written: whatever it holds, with its gaps."""
        if name in self.beside:
            return self.beside[name]
        return plain(self.rows.column(name))

    def kept(self, mask: NDArray[np.bool_]) -> Part:
        """The rows of a mask (n,), which need not follow each other in the file any more."""
        beside = {name: values[mask] for name, values in self.beside.items()}
        rows = self.rows[mask] if isinstance(self.rows, np.ndarray) else self.rows.filter(mask)
        return Part(rows, self.first, beside, self.feature_names)


def check_distinct(path: Path, names: Sequence[str]) -> None:
    """Raise an InputError where two columns have one name."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise InputError(f"{path} has more than one column called {', '.join(map(repr, twice))}: rename them.")


def at_once(most: int, numbers: int) -> int:
    """Rows of a part: at most so many, and fewer of rows of many numbers, so that a part has a bounded size."""
    return max(1, min(most, _NUMBERS_AT_ONCE // max(1, numbers)))


def gather(parts: Iterable[Part]) -> Part:
    """Parts that follow each other as one."""
    every = list(parts)
    if len(every) == 1:
        return every[0]
    first = every[0]
    if isinstance(first.rows, np.ndarray):
        beside = {name: np.concatenate([part.beside[name] for part in every]) for name in first.beside}
        return Part(np.concatenate([part.rows for part in every]), first.first, beside, first.feature_names)
    import pyarrow as pa

    # Files of one folder may store the numbers of a column in different types.
    return Part(pa.concat_tables([part.rows for part in every], promote_options="permissive"), first.first)


class Source(Protocol):
    """A data file."""

    @property
    def path(self) -> Path:
        """Where it is."""

    def read(self) -> Part:
        """All rows."""

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        """Rows of these numbers, with some columns as the file has them: 0007 is text, though read as a number."""

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        """The rows in parts, with the columns that are read and those of ``beside`` that the file has."""
