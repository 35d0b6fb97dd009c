"""The figures of a table in words: what was published, what was measured, and how far apart they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pollux.lab.experiments.tables import ROUNDING, Cell, Figure, Table, typeset

NOT_RUN = "not run"
NOTHING = "–"
BELOW = "below"
UNITS = ("nats", "ms")


@dataclass(frozen=True)
class Told:
    """A cell in words; ``holds`` is the verdict, None where there is none."""

    published: str
    measured: str
    difference: str
    holds: bool | None

    @property
    def lines(self) -> list[str]:
        """What there is, one under the other."""
        return [line for line in (self.published, self.measured, self.judged) if line]

    @property
    def judged(self) -> str:
        """The difference, and a mark where it is more than chance explains."""
        return f"{self.difference} {BELOW}" if self.holds is False else self.difference


def told(cell: Cell, unit: str) -> Told:
    """A cell whose figures are of a unit: ARI, nats, ms or clusters."""
    published = "" if cell.published is None else figure(cell.published, unit)
    measured = NOT_RUN if published else ""
    if cell.measured is not None:
        measured = figure(cell.measured, unit)
    difference = "" if cell.difference is None else signed(cell.difference, unit)
    return Told(published, measured, difference, cell.holds)


def told_rows(table: Table) -> Iterator[tuple[str, list[Told]]]:
    """The name and the cells of each row."""
    for row in table.rows:
        cells = [told(cell, unit) for cell, unit in zip(row.cells, units(table), strict=True)]
        if has_published(table):
            # What was measured stands on the second line everywhere.
            cells = [replace(cell, published=cell.published or (cell.measured and NOTHING)) for cell in cells]
        yield row.name, cells


def units(table: Table) -> list[str]:
    """What the figures of each column are: where the table has no unit, the names of its columns say it."""
    return [table.unit or column for column in table.columns]


def figure(value: Figure, unit: str) -> str:
    """Mean, standard deviation and clusters in use: '0.883 (0.182; K=4)'."""
    aside = [] if value.deviation is None else [amount(value.deviation, unit)]
    if value.clusters is not None and not _is_count(unit):
        aside.append(f"K={amount(value.clusters, 'clusters')}")
    return amount(value.mean, unit) + (f" ({'; '.join(aside)})" if aside else "")


def amount(value: float, unit: str) -> str:
    """A number to as many digits as its unit has use for."""
    if _is_count(unit):
        written = f"{value:.1f}".removesuffix(".0")
    elif unit == "ms":
        # Microseconds and seconds stand in one table: three digits of each.
        written = f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"
    else:
        written = f"{value:.{4 if unit == 'nats' else 3}f}"
    return typeset(written)


def signed(value: float, unit: str) -> str:
    """A number with its sign; what rounds to nothing has none."""
    written = amount(value, unit)
    return written if written.startswith("−") or _is_nothing(written) else f"+{written}"


def _is_nothing(written: str) -> bool:
    return not any(digit in "123456789" for digit in written)


def _is_count(unit: str) -> bool:
    return unit.startswith("clusters")


def legend(table: Table) -> str:
    """What stands in a cell."""
    figures = [figure for row in table.rows for cell in row.cells for figure in (cell.published, cell.measured)]
    deviation = any(figure and figure.deviation is not None for figure in figures)
    clusters = any("K=" in line for _, cells in told_rows(table) for cell in cells for line in cell.lines)
    aside = ["standard deviation"] * deviation + ["K: clusters in use"] * clusters
    measured = "measured" + (f" ({'; '.join(aside)})" if aside else "")
    if not has_published(table):
        return f"Each cell: {measured}."
    return f"Each cell: {table.reference}, {measured}, difference."


def has_published(table: Table) -> bool:
    """Whether the paper has any of these figures."""
    return any(cell.published is not None for row in table.rows for cell in row.cells)


def verdict(table: Table) -> str:
    """How many cells hold, and how far off are those that cannot be judged."""
    rows = [row for row in table.rows if not row.further]
    pairs = [(cell, unit) for row in rows for cell, unit in zip(row.cells, units(table), strict=True)]
    judged = [cell.holds for cell, _ in pairs if cell.holds is not None]
    lines = []
    if judged:
        lines.append(
            f"{sum(judged)} of {_counted(len(judged))} at most two standard errors below the paper’s or above."
        )
    rest = [(cell.difference, unit) for cell, unit in pairs if cell.difference is not None and cell.holds is None]
    scores = [difference for difference, unit in rest if unit == "ARI"]
    if scores:
        higher = sum(difference >= -ROUNDING for difference in scores)
        lines.append(
            f"At or above the paper’s: {higher} of {_counted(len(scores))} without standard deviations to judge by."
        )
    for kind in dict.fromkeys(unit for _, unit in rest if unit != "ARI"):
        largest = max(abs(difference) for difference, unit in rest if unit == kind)
        lines.append(f"Largest difference: {amount(largest, kind)} {kind if kind in UNITS else 'clusters'}.")
    return " ".join(lines)


def _counted(cells: int) -> str:
    return f"{cells} cell" if cells == 1 else f"{cells} cells"
