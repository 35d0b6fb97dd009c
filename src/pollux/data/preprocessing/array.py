"""From rows of numbers, or images, to the numbers a model reads. Plain data, so it lives in model files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pollux.data.preprocessing.common import Matrix, check_finite, describe_missing
from pollux.errors import InputError

_BYTES_AT_ONCE = 32_000_000


@dataclass(frozen=True)
class ArrayPreprocessing:
    """Rows (n, d), or images (n, C, H, W), centred and scaled: by column, or by channel.

    ``kept`` are the columns of rows that are used; those that never vary are not. ``missing`` is as for tables, and
    ``columns`` are the names of the columns, where there are any.
    """

    shape: tuple[int, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    kept: tuple[int, ...] | None = None
    missing: str = "error"
    identifiers: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    shares: ClassVar[frozenset[str]] = frozenset()

    @property
    def encoded_shape(self) -> tuple[int, ...]:
        """(d,), or (C, H, W)."""
        return self.shape if self.kept is None else (len(self.kept),)

    @property
    def scales(self) -> tuple[float, ...]:
        """What columns of numbers, or channels, are divided by."""
        return self.scale

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    @property
    def feature_names(self) -> list[str]:
        """The columns that the model sees, by their names or numbers; images have none."""
        return [self.columns[index] if self.columns else str(index) for index in self.kept or ()]

    def encode(self, array: Any, unseen: Counter[str] | None = None) -> Matrix:
        """(n, d), or (n, C, H, W), from an array of n samples as they were in the file; of numbers none is unseen."""
        self._check(array)
        X = np.empty((len(array), *self.encoded_shape), dtype=np.float32)
        for rows in parts_of(array):
            X[rows] = self._encode(array[rows])
        return X

    def _encode(self, array: Any) -> Matrix:
        X = self.raw(array)
        lacking = np.isnan(X)
        if lacking.any():
            if self.missing != "mean":
                counts = lacking.reshape(len(X), lacking.shape[1], -1).any(2).sum(0)
                named = {self._name(index): int(count) for index, count in enumerate(counts) if count}
                raise InputError(describe_missing(named, len(X)))
            # Means become zero below.
            X = np.where(lacking, self._by_column(self.mean), X)
        with np.errstate(over="ignore"):
            standardised = ((X - self._by_column(self.mean)) / self._by_column(self.scale)).astype(np.float32)
        check_finite(standardised, self.feature_names or ["the images"])
        return standardised

    def _name(self, index: int) -> str:
        return self.feature_names[index] if self.feature_names else f"channel {index}"

    def _by_column(self, values: Sequence[float]) -> NDArray[np.float64]:
        return np.asarray(values).reshape(-1, *([1] * (len(self.shape) - 1)))

    def complete(self, array: Any) -> NDArray[np.bool_]:
        """Which of the n samples lack nothing, (n,)."""
        self._check(array)
        complete = np.ones(len(array), dtype=bool)
        for rows in parts_of(array) if array.dtype.kind == "f" else []:
            X = self.raw(array[rows])
            complete[rows] = ~np.isnan(X.reshape(len(X), -1)).any(1)
        return complete

    def raw(self, array: Any) -> NDArray[np.float64]:
        """The samples in their own units, with the columns that are used."""
        self._check(array)
        return np.asarray(array if self.kept is None else array[:, list(self.kept)], dtype=np.float64)

    def _check(self, array: Any) -> None:
        if tuple(getattr(array, "shape", ())[1:]) != self.shape:
            found = array.shape[1:] if hasattr(array, "shape") else type(array).__name__
            raise InputError(f"The model reads an array of samples of shape {self.shape}; these are {found}.")

    def as_json(self) -> dict[str, Any]:
        """Plain data, for a model file."""
        return {"kind": "array", **asdict(self), "left_out": dict(self.left_out)}


def parts_of(array: Any) -> Iterator[slice]:
    """Rows of an array, some at a time: as many as fit into a bounded memory as float64."""
    rows = max(1, _BYTES_AT_ONCE // (8 * max(1, math.prod(array.shape[1:]))))
    return (slice(first, first + rows) for first in range(0, len(array), rows))
