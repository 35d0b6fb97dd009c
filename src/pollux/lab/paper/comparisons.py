"""Tables that compare measured values with the paper's, what they say in words, and the same as bars."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pollux.errors import counted
from pollux.lab.charts import add_shared_legend, family_colour, set_grid, set_title
from pollux.lab.records import Record
from pollux.lab.results import NOT_RUN, NOTHING, Cell, Table, typeset, with_sign
from pollux.report.canvas import INK, QUIET, colours, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Published values have three decimals.
ROUNDING = 0.0005
UNITS = ("nats", "ms")
_BAR, _PALE = 0.38, "#c3cad1"


@dataclass(frozen=True)
class Estimate:
    """A mean over runs, their standard deviation (by n − 1) where there are several, and the clusters in use."""

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


def estimate(
    records: Iterable[Record], wanted: Mapping[str, Any], metric: str = "adjusted_rand_index", factor: float = 1.0
) -> Estimate | None:
    """The metric, times a factor, over all records whose settings include the wanted ones; None of nothing."""
    found = [record.metrics for record in records if record.run.has(wanted)]
    if not found:
        return None
    values = [factor * metrics[metric] for metrics in found]
    clusters = [metrics["clusters"] for metrics in found if "clusters" in metrics]
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Estimate(statistics.fmean(values), deviation, len(values), statistics.fmean(clusters) if clusters else None)


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
        """Whether the measured value is at most two standard errors below the published one; None if unknown.

        The standard error is that of the difference of the means; a single run is taken to spread as the paper's.
        """
        published, measured = self.published, self.measured
        if published is None or measured is None or published.deviation is None:
            return None
        deviation = published.deviation if measured.deviation is None else measured.deviation
        error = math.hypot(published.deviation / math.sqrt(published.runs), deviation / math.sqrt(measured.runs))
        return measured.mean >= published.mean - 2 * error - ROUNDING

    def as_cell(self, unit: str, has_reference: bool) -> Cell:
        """The comparison in words; values are of a unit: ARI, nats, ms or clusters."""
        reference = "" if self.published is None else " ".join(filter(None, self.published.in_words(unit)))
        if self.measured is None:
            return Cell(NOT_RUN if reference else "", reference=reference)
        difference = "" if self.difference is None else signed(self.difference, unit)
        if self.holds is False:
            difference += " below"
        # The measured value is on the second line everywhere.
        reference = reference or (NOTHING if has_reference else "")
        return Cell(*self.measured.in_words(unit), reference, difference, "whole", self.holds)


def epochs_of(records: Iterable[Record], wanted: Mapping[str, Any]) -> str:
    """', 50 epochs' where all records of the wanted settings were trained for as many, for titles; else nothing."""
    epochs = {record.run.settings.get("epochs") for record in records if record.run.has(wanted)} - {None}
    return f", {epochs.pop()} epochs" if len(epochs) == 1 else ""


def compare(
    records: Iterable[Record],
    wanted: Mapping[str, Any],
    published: float | Estimate | None = None,
    metric: str = "adjusted_rand_index",
) -> Comparison:
    """A published value and what was measured with the wanted settings."""
    known = published if published is None or isinstance(published, Estimate) else Estimate(published)
    return Comparison(known, estimate(records, wanted, metric))


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

    def measured(self) -> ComparisonTable:
        """The part of the table in which anything was measured: its rows and columns."""
        kept = [at for at in range(len(self.columns)) if any(row.cells[at].measured for row in self.rows)]
        rows = [row for row in self.rows if any(cell.measured for cell in row.cells)]
        rows = [replace(row, cells=[row.cells[at] for at in kept]) for row in rows]
        return replace(self, columns=[self.columns[at] for at in kept], rows=rows)

    def _cells(self, rows: Sequence[ComparisonRow]) -> list[tuple[Comparison, str]]:
        """Cells with their units: where the table has none, the names of its columns say it."""
        units = [self.unit or column for column in self.columns]
        return [pair for row in rows for pair in zip(row.cells, units, strict=True)]

    @property
    def has_published(self) -> bool:
        """Whether the paper has any of these values."""
        return any(cell.published is not None for row in self.rows for cell in row.cells)

    @property
    def legend(self) -> str:
        """What is in a cell."""
        pairs = [(one, unit) for cell, unit in self._cells(self.rows) for one in (cell.published, cell.measured) if one]
        deviation = any(one.deviation is not None for one, _ in pairs)
        clusters = any("K=" in one.in_words(unit)[1] for one, unit in pairs)
        # A single run of what has no randomness does not count.
        runs = {cell.measured.runs for cell, _ in self._cells(self.rows) if cell.measured and cell.measured.runs > 1}
        most = "at most " if len(runs) > 1 else ""
        spread = f"mean and standard deviation of {most}{max(runs)}" if runs else "standard deviation"
        aside = [spread] * deviation + ["K: clusters in use"] * clusters
        measured = "measured" + (f" ({'; '.join(aside)})" if aside else "")
        return f"Each cell: {f'{self.reference}, {measured}, difference' if self.has_published else measured}."

    @property
    def verdict(self) -> str:
        """How many cells hold, and how far off are those that cannot be judged."""
        cells = self._cells([row for row in self.rows if not row.further])
        judged = [cell.holds for cell, _ in cells if cell.holds is not None]
        whose = "the paper’s" if self.reference == "published" else self.reference
        lines = []
        if judged:
            of = counted(len(judged), "cell")
            lines.append(f"{sum(judged)} of {of} at most two standard errors below {whose} or above.")
        rest = [(cell.difference, unit) for cell, unit in cells if cell.difference is not None and cell.holds is None]
        if scores := [difference >= -ROUNDING for difference, unit in rest if unit == "ARI"]:
            of = counted(len(scores), "cell")
            lines.append(f"At or above {whose}: {sum(scores)} of {of} without standard deviations to judge by.")
        for kind in dict.fromkeys(unit for _, unit in rest if unit != "ARI"):
            largest = max(abs(difference) for difference, unit in rest if unit == kind)
            lines.append(f"Largest difference: {amount(largest, kind)} {kind if kind in UNITS else 'clusters'}.")
        return " ".join(lines)

    def in_words(self) -> Table:
        """The table as text, with its legend and verdict."""
        rows = [
            (row.name, [cell.as_cell(unit, self.has_published) for cell, unit in self._cells([row])])
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
    return with_sign(amount(value, unit))


def _is_count(unit: str) -> bool:
    return unit.startswith("clusters")


def draw_bars(
    tables: Callable[[Sequence[Record]], Sequence[ComparisonTable]],
) -> Callable[[Sequence[Record], Path], dict[str, Figure]]:
    """A function that draws the published and measured values of the tables of records, side by side."""

    def draw(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
        drawn = {"bars" if at == 1 else f"bars-{at}": _bars(table) for at, table in enumerate(tables(records), 1)}
        return {name: figure for name, figure in drawn.items() if figure is not None}

    return draw


def _bars(table: ComparisonTable) -> Figure | None:
    """A panel for each column in which anything was measured."""
    columns = [at for at in range(len(table.columns)) if any(row.cells[at].measured for row in table.rows)]
    if not columns:
        return None
    figure = new_figure(2.6 + 2.5 * len(columns) + 0.8 * (len(columns) == 1), 1.3 + 0.34 * len(table.rows))
    panels = figure.subplots(1, len(columns), sharex=True, sharey=True, squeeze=False)[0]
    # Without published values, a bar is beside its name.
    shift = _BAR / 2 if table.has_published else 0.0
    figure.suptitle(table.title.replace(" (clusters in use)", ""), x=0.01, ha="left", color=QUIET, fontsize=9)
    for at, ax in zip(columns, panels, strict=True):
        set_grid(set_title(ax, table.columns[at]), table.unit).grid(axis="y", visible=False)
        for which, label, side, colour in (
            ("published", table.reference, -1, _PALE),
            ("measured", "measured", 1, colours(1)[0]),
        ):
            found = [(number, getattr(row.cells[at], which)) for number, row in enumerate(table.rows)]
            shown = [(number + side * shift, one) for number, one in found if one is not None]
            if shown:
                places, means = [place for place, _ in shown], [one.mean for _, one in shown]
                spread = [one.deviation or 0.0 for _, one in shown]
                errors: dict[str, Any] = {"xerr": spread, "error_kw": {"elinewidth": 1, "ecolor": INK}}
                ax.barh(places, means, _BAR, color=colour, label=label, **(errors if any(spread) else {}))
        for number, row in enumerate(table.rows):
            if row.cells[at].published and not row.cells[at].measured:
                ax.text(0.002, number + _BAR / 2, " not run", color=INK, fontsize=7, va="center", alpha=0.7)
    panels[0].set_yticks(range(len(table.rows)), [row.name for row in table.rows], color=INK)
    panels[0].invert_yaxis()
    # In the order of the bars.
    add_shared_legend(figure, panels, (table.reference, "measured"), loc="outside lower right", ncols=2)
    measured = [row.cells[at].measured for row in table.rows for at in columns]
    whiskers = " Whiskers are standard deviations." if any(found and found.deviation for found in measured) else ""
    both = f"{table.reference} and measured" if table.has_published else "measured"
    figure.set_label(f"{table.title}: {both}.{whiskers}")
    return figure


def draw_curves(
    panels: Mapping[str, Sequence[Record]],
    objectives: Mapping[str, str],
    whole: int,
    *,
    of: Literal["ARI", "clusters in use"] = "ARI",
    note: str = "",
) -> dict[str, Figure]:
    """What runs had after some of their epochs, as the figure ``curves``; nothing of runs without such records.

    A panel has a line for each objective, the mean of its longest runs; the ``note`` ends the caption.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for title, records in panels.items():
        for record in records:
            curve, objective = record.metrics.get("curve", ()), record.run.settings.get("objective", "")
            if len(curve) > 1 and objective in objectives:
                found.setdefault(title, {}).setdefault(objective, []).append(curve)
    if not found:
        return {}
    figure = new_figure(2.6 + 2.9 * len(found), 4.2)
    axes = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for (title, curves), ax in zip(found.items(), axes, strict=True):
        set_grid(set_title(ax, title), "epochs").set_xscale("log")
        scored: set[int] = set()
        for objective, several in curves.items():
            last = max(curve[-1][0] for curve in several)
            longest = [{row[0]: row for row in curve} for curve in several if curve[-1][0] == last]
            common = sorted(set.intersection(*map(set, longest)))
            epochs, scores, used = np.mean([[curve[epoch] for epoch in common] for curve in longest], 0).T
            style: dict[str, Any] = {"color": family_colour(objective), "lw": 1.6, "label": objectives[objective]}
            ax.plot(epochs, scores if of == "ARI" else used, "--" if objective.endswith("ovo") else "-", **style)
            scored |= set(epochs.astype(int))
        ax.set_xticks(sorted(scored), map(str, sorted(scored)))
        ax.set_xticks([], minor=True)
    axes[0].set_ylabel(of, color=QUIET)
    axes[0].set_ylim(bottom=min(0.0, axes[0].get_ylim()[0]))
    add_shared_legend(figure, axes, objectives.values(), loc="outside right upper")
    what = f"{of} on the test images" if of == "ARI" else "Clusters in use"
    figure.set_label(f"{what} while a model is trained; the paper trains for {whole} epochs.{' ' * bool(note)}{note}")
    return {"curves": figure}
