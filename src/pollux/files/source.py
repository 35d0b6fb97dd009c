"""What every kind of data file offers: all of its rows, or a part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError
from pollux.preprocessing import Preprocessing


@dataclass(frozen=True)
class Part:
    """Rows of a file in a row: an Arrow table, or an array (n, …) with what the file names beside it."""

    rows: Any
    first: int = 0
    beside: Mapping[str, NDArray[Any]] = field(default_factory=dict)

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
        raise InputError(f"There is no column {name!r}. There are: {', '.join(map(repr, self.names)) or 'none'}.")

    def kept(self, mask: NDArray[np.bool_]) -> Part:
        """The rows of a mask (n,); the first row's number is no longer known."""
        beside = {name: values[mask] for name, values in self.beside.items()}
        rows = self.rows[mask] if isinstance(self.rows, np.ndarray) else self.rows.filter(mask)
        return Part(rows, self.first, beside)


class Source(Protocol):
    """A data file."""

    @property
    def path(self) -> Path:
        """Where it is."""

    def read(self) -> Part:
        """All rows."""

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        """The rows in parts, with the columns that are read and those of ``beside`` that the file has."""
