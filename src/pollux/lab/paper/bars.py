"""Published and measured values of a table, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollux.lab.charts import set_grid, set_title
from pollux.lab.paper.comparisons import ComparisonTable
from pollux.lab.records import Record
from pollux.report.canvas import INK, colours, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALE = "#c3cad1"
_BAR = 0.38


def draw_bars(
    tables: Callable[[Sequence[Record]], Sequence[ComparisonTable]],
) -> Callable[[Sequence[Record], Path], dict[str, Figure]]:
    """A function that draws the tables of records."""

    def draw(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
        drawn = ((f"bars-{number}" if number > 1 else "bars", _bars(t)) for number, t in enumerate(tables(records), 1))
        return {name: figure for name, figure in drawn if figure is not None}

    return draw


def _bars(table: ComparisonTable) -> Figure | None:
    """A panel for each column in which anything was measured."""
    columns = [at for at in range(len(table.columns)) if any(row.cells[at].measured for row in table.rows)]
    if not columns:
        return None
    figure = new_figure(2.6 + 2.5 * len(columns) + 0.8 * (len(columns) == 1), 1.3 + 0.34 * len(table.rows))
    panels = figure.subplots(1, len(columns), sharex=True, sharey=True, squeeze=False)[0]
    for at, ax in zip(columns, panels, strict=True):
        _panel(ax, table, at)
    panels[0].set_yticks(range(len(table.rows)), [row.name for row in table.rows], color=INK)
    panels[0].invert_yaxis()
    # In the order of the bars.
    handles = {label: handle for ax in panels for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    style = {"frameon": False, "fontsize": 9, "labelcolor": INK, "ncols": 2}
    names = [name for name in ("published", "measured") if name in handles]
    figure.legend([handles[name] for name in names], names, loc="outside lower right", **style)
    measured = [row.cells[at].measured for row in table.rows for at in columns]
    whiskers = " Whiskers are standard deviations." if any(found and found.deviation for found in measured) else ""
    figure.set_label(f"{table.title}: published and measured.{whiskers}")
    return figure


def _panel(ax: Axes, table: ComparisonTable, at: int) -> None:
    set_grid(set_title(ax, table.columns[at]), table.unit)
    ax.grid(axis="y", visible=False)
    for label, shift, colour in (("published", -_BAR / 2, PALE), ("measured", _BAR / 2, colours(1)[0])):
        found = [(number, getattr(row.cells[at], label)) for number, row in enumerate(table.rows)]
        shown = [(number, one) for number, one in found if one is not None]
        if shown:
            places = [number + shift for number, _ in shown]
            spread = [one.deviation or 0.0 for _, one in shown]
            whiskers: dict[str, Any] = (
                {"xerr": spread, "error_kw": {"elinewidth": 1, "ecolor": INK}} if any(spread) else {}
            )
            ax.barh(places, [one.mean for _, one in shown], _BAR, color=colour, label=label, **whiskers)
    absent = [n for n, row in enumerate(table.rows) if row.cells[at].published and not row.cells[at].measured]
    for number in absent:
        ax.text(0.002, number + _BAR / 2, " not run", color=INK, fontsize=7, va="center", alpha=0.7)
