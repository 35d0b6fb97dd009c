"""Tables that stand beside the paper's: published and measured figures in one cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pollux.lab.experiments.experiment import Record


# Published figures have three decimals.
ROUNDING = 0.0005


@dataclass(frozen=True)
class Figure:
    """A mean over runs, their standard deviation where there are several, and the clusters in use."""

    mean: float
    deviation: float | None = None
    runs: int = 1
    clusters: float | None = None


@dataclass(frozen=True)
class Cell:
    """What the paper says, and what was measured here; either may be missing."""

    published: Figure | None = None
    measured: Figure | None = None

    @property
    def difference(self) -> float | None:
        """Measured − published."""
        if self.published is None or self.measured is None:
            return None
        return self.measured.mean - self.published.mean

    @property
    def holds(self) -> bool | None:
        """Whether what was measured is at most two standard errors below what was published; None: cannot be told."""
        if self.difference is None or self.published is None or self.measured is None:
            return None
        deviations = [(figure.deviation, figure.runs) for figure in (self.published, self.measured)]
        if any(deviation is None for deviation, _ in deviations):
            return None
        # Deviations are those of the runs themselves; of n runs that estimates the spread of all by n − 1.
        error = math.sqrt(sum((deviation or 0.0) ** 2 / max(runs - 1, 1) for deviation, runs in deviations))
        return self.difference >= -2 * error - ROUNDING


@dataclass(frozen=True)
class Row:
    """A line of a table; one that is ``further`` shows a published figure once more, and is not counted again."""

    name: str
    cells: Sequence[Cell]
    further: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells under the names of their columns; ``unit`` says what the figures are, ``reference`` what stands
    beside the measured ones."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    unit: str = "ARI"
    notes: Sequence[str] = ()
    reference: str = "published"


def typeset(number: str) -> str:
    """A number as text with a true minus sign, and with none before nothing."""
    nothing = not any(digit in "123456789" for digit in number)
    return number.removeprefix("-") if nothing else number.replace("-", "−")


def summary(values: Sequence[float], clusters: Sequence[float] = ()) -> Figure | None:
    """Mean and standard deviation of values; None of nothing."""
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)) if len(values) > 1 else None
    return Figure(mean, deviation, len(values), math.fsum(clusters) / len(clusters) if clusters else None)


def figure_of(
    records: Iterable[Record], wanted: Mapping[str, Any], metric: str = "adjusted_rand_index", factor: float = 1.0
) -> Figure | None:
    """The metric, times a factor, over all records whose settings include those that are wanted."""
    found = [
        record.metrics
        for record in records
        if all(record.run.settings.get(name) == value for name, value in wanted.items())
    ]
    return summary(
        [factor * metrics[metric] for metrics in found],
        [metrics["clusters"] for metrics in found if "clusters" in metrics],
    )
