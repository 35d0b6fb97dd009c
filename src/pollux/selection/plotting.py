"""The figure of a selection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pollux.io.atomic import in_place
from pollux.report.canvas import GRID, INK, QUIET, TITLE, clean_axes, colours, new_figure
from pollux.selection.result import CLEAR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pollux.selection.result import Selection

_BLUE = colours(1)[0]
_PALE = "#b9d0e6"


def plot_selection(selection: Selection, path: str | Path | None) -> Figure:
    """Score, stability and separation of each candidate, and the clusters that stay in use."""
    figure = new_figure(11, 3.6)
    grid: Any = figure.add_gridspec(1, 3, width_ratios=(1.15, 1, 1))
    score, stability, separation = (figure.add_subplot(grid[0, column]) for column in range(3))
    _draw_score(score, selection)
    _draw_stability(stability, selection)
    _draw_separation(separation, selection)
    answer = f"{selection.n_clusters} clusters" if selection.is_clear else "No clear structure"
    figure.suptitle(answer, x=0.01, ha="left", color=INK, fontsize=13, weight="bold")
    figure.supxlabel(selection.surplus().rstrip("."), x=0.01, ha="left", color=QUIET, fontsize=8.5)
    if path is not None:
        with in_place(path) as temporary:
            figure.savefig(temporary, dpi=160)
    return figure


def _of(selection: Selection, name: str) -> list[float]:
    return [float(getattr(candidate, name)) for candidate in selection.candidates]


def _panel(ax: Axes, selection: Selection, title: str) -> Axes:
    clean_axes(ax).set_title(title, **TITLE)
    names = [candidate.n_clusters for candidate in selection.candidates]
    ax.set_xticks(range(len(names))[:: -(-len(names) // 12)], [str(name) for name in names[:: -(-len(names) // 12)]])
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_xlabel("clusters", color=QUIET, fontsize=9)
    ax.set_ylim(-0.03, 1.08)
    ax.grid(axis="y", color=GRID)
    ax.set_axisbelow(True)
    return ax


def _draw_score(ax: Axes, selection: Selection) -> None:
    _panel(ax, selection, "Score: stability × separation")
    scores = _of(selection, "score")
    chosen = [selection.is_clear and each is selection.best for each in selection.candidates]
    bars = ax.bar(range(len(scores)), scores, width=0.72, color=[_BLUE if one else _PALE for one in chosen])
    for bar, value, is_chosen in zip(bars, scores, chosen, strict=True):
        if is_chosen or (len(scores) <= 12 and value >= 0.005):
            where = (bar.get_x() + bar.get_width() / 2, value + 0.012)
            colour, weight = (INK, "bold") if is_chosen else (QUIET, "normal")
            ax.text(*where, f"{value:.2f}", ha="center", va="bottom", color=colour, fontsize=8, weight=weight)
    ax.axhline(CLEAR, color=QUIET, linestyle="--", linewidth=1)
    ax.text(len(scores) - 0.45, CLEAR + 0.01, "clear", ha="right", va="bottom", color=QUIET, fontsize=8)


def _draw_stability(ax: Axes, selection: Selection) -> None:
    _panel(ax, selection, "Stability: agreement of subsamples")
    mean, error = np.array(_of(selection, "stability")), np.array(_of(selection, "stability_error"))
    _draw_line(ax, selection, mean.tolist())
    places = np.arange(len(mean))
    ax.fill_between(places, mean - error, np.minimum(mean + error, 1), color=_BLUE, alpha=0.15, linewidth=0)


def _draw_separation(ax: Axes, selection: Selection) -> None:
    _panel(ax, selection, "Separation: gaps between clusters")
    _draw_line(ax, selection, _of(selection, "separation"))


def _draw_line(ax: Axes, selection: Selection, values: list[float]) -> None:
    places = range(len(values))
    marked = [place for place in places if selection.is_clear and selection.candidates[place] is selection.best]
    ax.plot(places, values, color=_BLUE, linewidth=2.2, marker="o", markersize=4.5)
    ax.plot(marked, [values[place] for place in marked], "o", color=_BLUE, markersize=9, markeredgecolor="white")
