"""Which columns of an array a model is to read, and how: decided by looking at its parts one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pollux.data.preprocessing.array import ArrayPreprocessing, parts_of
from pollux.data.preprocessing.choices import Choices
from pollux.data.preprocessing.common import describe_missing
from pollux.data.preprocessing.moments import Moments
from pollux.data.preprocessing.scales import decided, root_mean_square, scales
from pollux.data.preprocessing.survey import LeaveOutError, plan_number
from pollux.errors import InputError, option


class ArraySurvey:
    """What is known of rows (n, d), or of images (n, C, H, W), after some of them; small, and can be pickled.

    ``columns`` are names of the d columns, where there are any.
    """

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
        self._groups = math.prod(self.shape) if self._by_pixel else self.shape[0]
        self.moments = Moments.of(np.empty((self._groups, 0)))
        if len(self.shape) == 3:
            if self.choices.columns or self.choices.drop or self.choices.categories:
                given = f"{option('columns')}, {option('drop')} and {option('categories')}"
                raise InputError(f"Images have no columns to choose from: leave out {given}.")
            return
        if self.choices.categories:
            raise InputError(f"An array holds numbers throughout: leave out {option('categories')}, or use a table.")
        self.names = [str(index) for index in range(self.shape[0])] if columns is None else list(columns)
        self._among = replace(self.choices, label=None, identifiers=()).among(self.names)

    def add(self, array: Any) -> None:
        """Look at samples (n, …), all columns of a part at once, since those of a file lie beside each other."""
        for rows in parts_of(array):
            part = np.asarray(array[rows])
            whole = part.reshape(len(part), -1) if self._by_pixel else part
            values = np.ascontiguousarray(np.moveaxis(whole, 1, 0), dtype=np.float64)
            self.moments = self.moments.merged(Moments.of(values.reshape(len(values), -1)))
            if part.dtype.kind == "f":
                self.incomplete += int(np.isnan(part.reshape(len(part), -1)).any(1).sum())
        self.rows += len(array)

    def merge(self, other: ArraySurvey) -> None:
        """Add what another survey has seen of other samples, by the same choices."""
        if self.shape != other.shape:
            raise ValueError("the surveys are of samples of different shapes")
        self.moments = self.moments.merged(other.moments)
        self.incomplete += other.incomplete
        self.rows += other.rows

    def plan(self) -> ArrayPreprocessing:
        """How to read the array: scaled by column, or by channel."""
        return self._plan_images() if len(self.shape) == 3 else self._plan_rows()

    def _plan_rows(self) -> ArrayPreprocessing:
        kept, mean, scale = [], [], []
        left_out: dict[str, str] = {}
        lacking: dict[str, int] = {}
        for name in self._among.columns or self.names:
            if name in self._among.drop:
                continue
            index = self.names.index(name)
            try:
                number = self._plan_column(name, index)
            except LeaveOutError as reason:
                left_out[name] = str(reason)
                continue
            if self.moments.count[index] < self.rows:
                lacking[name] = int(self.rows - self.moments.count[index])
            kept.append(index)
            mean.append(number.mean)
            scale.append(number.scale)
        if not kept:
            raise InputError("No column is left to cluster by: none of them varies.")
        if lacking and self.choices.missing == "error":
            raise InputError(describe_missing(lacking, self.rows))
        identifiers = tuple(self.choices.identifiers)
        divisors = scales(self.choices.scaling, scale, self.moments.range[kept])
        return ArrayPreprocessing(
            *(self.shape, tuple(mean), divisors, tuple(kept), self.choices.missing, identifiers, left_out),
            self.columns,
        )

    def _plan_column(self, name: str, index: int) -> Any:
        moments = self.moments
        if not moments.count[index]:
            raise LeaveOutError("it has no values")
        varies = bool(moments.least[index] < moments.greatest[index])
        return plan_number(name, float(moments.mean[index]), float(moments.deviation[index]), varies)

    def _plan_images(self) -> ArrayPreprocessing:
        moments = self.moments.pooled(self.shape[0]) if self._by_pixel else self.moments
        mean, scale = moments.mean, moments.deviation
        if not (moments.count.all() and np.isfinite(mean).all() and np.isfinite(scale).all()):
            raise InputError("The images hold infinite values: correct them, or leave those images out.")
        if not scale.any():
            raise InputError("The images hold the same value throughout: there is nothing to cluster by.")
        if self.choices.missing == "error" and self.incomplete:
            raise InputError(describe_missing({"the images": self.incomplete}, self.rows))
        divisors = tuple(float(value) or 1.0 for value in scale)
        scaling = decided(self.choices.scaling, moments.range)
        if scaling != "standard":
            one = root_mean_square(self.moments.deviation) if scaling == "global" else 1.0
            divisors = (one,) * len(divisors)
        identifiers = tuple(self.choices.identifiers)
        return ArrayPreprocessing(self.shape, tuple(mean.tolist()), divisors, None, self.choices.missing, identifiers)
