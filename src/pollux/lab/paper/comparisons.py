"""Tables that compare measured values with the paper's, and what they say in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pollux.lab.records import Record
from pollux.lab.tables import NOT_RUN, NOTHING, Cell, Table, typeset

# Published values have three decimals.
ROUNDING = 0.0005
UNITS = ("nats", "ms")


@dataclass(frozen=True)
class Estimate:
    """A mean over runs, their standard deviation where there are several, and the clusters in use."""

    mean: float
    deviation: float | None = None
    runs: int = 1
    clusters: float | None = None

    def in_words(self, unit: str) -> tuple[str, str]:
        """'0.883' and '(0.182; K=4)': the mean, and standard deviation and clusters in use beside it."""
        aside = [] if self.deviation is None else [amount(self.deviation, unit)]
        if self.clusters is not None and not _is_count(unit):
            aside.append(f"K={amount(self.clusters, 'clusters')}")
        return amount(self.mean, unit), f"({'; '.join(aside)})" if aside else ""


def mean_of(values: Sequence[float], clusters: Sequence[float] = ()) -> Estimate | None:
    """Mean and standard deviation of values; None of nothing."""
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)) if len(values) > 1 else None
    return Estimate(mean, deviation, len(values), math.fsum(clusters) / len(clusters) if clusters else None)


def estimate(
    records: Iterable[Record], wanted: Mapping[str, Any], metric: str = "adjusted_rand_index", factor: float = 1.0
) -> Estimate | None:
    """The metric, times a factor, over all records whose settings include the wanted ones."""
    found = [
        record.metrics
        for record in records
        if all(record.run.settings.get(name) == value for name, value in wanted.items())
    ]
    return mean_of(
        [factor * metrics[metric] for metrics in found],
        [metrics["clusters"] for metrics in found if "clusters" in metrics],
    )


@dataclass(frozen=True)
class Comparison:
    """What the paper says, and what was measured here; either may be missing."""

    published: Estimate | None = None
    measured: Estimate | None = None

    @property
    def difference(self) -> float | None:
        """Measured − published."""
        if self.published is None or self.measured is None:
            return None
        return self.measured.mean - self.published.mean

    @property
    def holds(self) -> bool | None:
        """Whether the measured value is at most two standard errors below the published one; None if unknown."""
        if self.difference is None or self.published is None or self.measured is None:
            return None
        deviations = [(one.deviation, one.runs) for one in (self.published, self.measured)]
        if any(deviation is None for deviation, _ in deviations):
            return None
        # Deviations are those of the runs themselves; of n runs that estimates the spread of all by n − 1.
        error = math.sqrt(sum((deviation or 0.0) ** 2 / max(runs - 1, 1) for deviation, runs in deviations))
        return self.difference >= -2 * error - ROUNDING

    def as_cell(self, unit: str, has_reference: bool) -> Cell:
        """The comparison in words; values are of a unit: ARI, nats, ms or clusters."""
        reference = "" if self.published is None else " ".join(filter(None, self.published.in_words(unit)))
        if self.measured is None:
            return Cell(NOT_RUN if reference else "", reference=reference)
        text, aside = self.measured.in_words(unit)
        difference = "" if self.difference is None else signed(self.difference, unit)
        if self.holds is False:
            difference += " below"
        # The measured value is on the second line everywhere.
        reference = reference or (NOTHING if has_reference else "")
        return Cell(text, aside, reference, difference, "whole", self.holds)


@dataclass(frozen=True)
class ComparisonRow:
    """A row of comparisons; a ``further`` one shows a published value once more, and is not counted again."""

    name: str
    cells: Sequence[Comparison]
    further: bool = False


@dataclass(frozen=True)
class ComparisonTable:
    """Rows of comparisons; ``unit`` says what the values are, ``reference`` what they are compared with."""

    title: str
    columns: Sequence[str]
    rows: Sequence[ComparisonRow]
    unit: str = "ARI"
    notes: Sequence[str] = ()
    reference: str = "published"

    @property
    def units(self) -> list[str]:
        """The unit of each column: where the table has none, the names of its columns say it."""
        return [self.unit or column for column in self.columns]

    @property
    def has_published(self) -> bool:
        """Whether the paper has any of these values."""
        return any(cell.published is not None for row in self.rows for cell in row.cells)

    @property
    def legend(self) -> str:
        """What is in a cell."""
        pairs = [(cell, unit) for row in self.rows for cell, unit in zip(row.cells, self.units, strict=True)]
        found = [(one, unit) for cell, unit in pairs for one in (cell.published, cell.measured) if one is not None]
        deviation = any(one.deviation is not None for one, _ in found)
        clusters = any("K=" in one.in_words(unit)[1] for one, unit in found)
        aside = ["standard deviation"] * deviation + ["K: clusters in use"] * clusters
        measured = "measured" + (f" ({'; '.join(aside)})" if aside else "")
        if not self.has_published:
            return f"Each cell: {measured}."
        return f"Each cell: {self.reference}, {measured}, difference."

    @property
    def verdict(self) -> str:
        """How many cells hold, and how far off are those that cannot be judged."""
        rows = [row for row in self.rows if not row.further]
        pairs = [(cell, unit) for row in rows for cell, unit in zip(row.cells, self.units, strict=True)]
        judged = [cell.holds for cell, _ in pairs if cell.holds is not None]
        lines = []
        if judged:
            lines.append(
                f"{sum(judged)} of {_count_cells(judged)} at most two standard errors below the paper’s or above."
            )
        rest = [(cell.difference, unit) for cell, unit in pairs if cell.difference is not None and cell.holds is None]
        scores = [difference for difference, unit in rest if unit == "ARI"]
        if scores:
            higher = sum(difference >= -ROUNDING for difference in scores)
            lines.append(
                f"At or above the paper’s: {higher} of {_count_cells(scores)} without standard deviations to judge by."
            )
        for kind in dict.fromkeys(unit for _, unit in rest if unit != "ARI"):
            largest = max(abs(difference) for difference, unit in rest if unit == kind)
            lines.append(f"Largest difference: {amount(largest, kind)} {kind if kind in UNITS else 'clusters'}.")
        return " ".join(lines)

    def in_words(self) -> Table:
        """The table as text, with its legend and verdict."""
        rows = [
            (
                row.name,
                [cell.as_cell(unit, self.has_published) for cell, unit in zip(row.cells, self.units, strict=True)],
            )
            for row in self.rows
        ]
        notes = [note for note in (self.legend, self.verdict, *self.notes) if note]
        return Table(self.title, self.columns, rows, notes, self.reference if self.has_published else "")


def amount(value: float, unit: str) -> str:
    """A number to as many digits as its unit has use for."""
    if _is_count(unit):
        written = f"{value:.1f}".removesuffix(".0")
    elif unit == "ms":
        # Microseconds and seconds are in one table: three digits of each.
        written = f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"
    else:
        written = f"{value:.{4 if unit == 'nats' else 3}f}"
    return typeset(written)


def signed(value: float, unit: str) -> str:
    """A number with its sign; what rounds to zero has none."""
    written = amount(value, unit)
    is_zero = not any(digit in "123456789" for digit in written)
    return written if written.startswith("−") or is_zero else f"+{written}"


def _is_count(unit: str) -> bool:
    return unit.startswith("clusters")


def _count_cells(cells: Sequence[Any]) -> str:
    return f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"
