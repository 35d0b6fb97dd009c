"""The figures of a comparison: each set's scores, and the differences to K-Means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pollux.lab.charts import add_legend, set_grid, set_title
from pollux.lab.quality.leaderboard import Leaderboard, rank_methods, title_of, title_of_group
from pollux.lab.quality.peers import METHODS, REFERENCE
from pollux.report.canvas import INK, QUIET, colours, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS = "pollux"
_MARKS = "osD^vP*X"
_OUR_COLOUR = "#d1495b"


def draw_leaderboard(board: Leaderboard) -> dict[str, Figure]:
    """By name, those that there is something for."""
    figures = {}
    if board.scores:
        figures["sets"] = draw_sets(board)
    if REFERENCE in board.methods and len(board.methods) > 1:
        figures["differences"] = draw_differences(board)
    return figures


def draw_sets(board: Leaderboard) -> Figure:
    """A band for each set, a mark for each method at its ARI; groups of sets one under the other."""
    figure = new_figure(8.4, 1.5 + 0.34 * len(board.sets))
    figure.set_label("The adjusted Rand index of each method on each set, mean over seeds.")
    ax = set_grid(figure.add_subplot(), "adjusted Rand index")
    ax.grid(visible=False, axis="y")
    for at, one_set in enumerate(board.sets):
        if at % 2 == 0:
            ax.axhspan(at - 0.5, at + 0.5, color="#f4f6f8", zorder=0, linewidth=0)
        if at == 0 or one_set.group != board.sets[at - 1].group:
            ax.axhline(at - 0.5, color=QUIET, linewidth=0.8)
            where = ax.get_yaxis_transform()
            ax.text(1.01, at - 0.42, _plain(one_set.group), transform=where, color=QUIET, fontsize=8.5, va="top")
    for number, method in enumerate(board.methods):
        # Methods that agree must not hide each other.
        shift = 0.5 * (number / max(len(board.methods) - 1, 1) - 0.5)
        aris = board.aris(method)
        heights = [at + shift for at, one_set in enumerate(board.sets) if one_set.name in aris]
        ax.scatter(list(aris.values()), heights, label=title_of(method), **_look(method, number))
    ax.set_yticks(range(len(board.sets)), [_plain(one_set.name) for one_set in board.sets], color=INK)
    ax.set_ylim(len(board.sets) - 0.5, -0.5)
    ax.set_xlim(left=min(0.0, ax.get_xlim()[0]))
    add_legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    return figure


def draw_differences(board: Leaderboard) -> Figure:
    """A panel for each group: the mean difference of each method to K-Means, with its interval."""
    parts = [
        (title_of_group(group), part) for group in board.groups if REFERENCE in (part := board.of_group(group)).methods
    ]
    if len(parts) > 1:
        parts.insert(0, ("All sets", board))
    methods = [method for method in board.methods if method != REFERENCE]
    figure = new_figure(1.6 + 2.7 * len(parts) + 1.6 * (len(parts) == 1), 1.2 + 0.36 * len(methods))
    reference = title_of(REFERENCE)
    figure.set_label(
        f"Mean difference of the adjusted Rand index to {reference}, paired over sets, with 95% bootstrap intervals; "
        f"right of the line is better than {reference}."
    )
    panels = figure.subplots(1, len(parts), sharex=True, sharey=True, squeeze=False)[0]
    for (title, part), ax in zip(parts, panels, strict=True):
        _difference_panel(set_title(ax, f"{_plain(title.partition(',')[0])} ({len(part.sets)})"), part, methods)
    panels[0].set_yticks(range(len(methods)), list(map(title_of, methods)), color=INK)
    panels[0].set_ylim(len(methods) - 0.5, -0.5)
    return figure


def _difference_panel(ax: Axes, board: Leaderboard, methods: list[str]) -> None:
    set_grid(ax, f"ARI − {title_of(REFERENCE)}").grid(visible=False, axis="y")
    ax.axvline(0, color=QUIET, linewidth=1)
    for row in rank_methods(board):
        difference = row.difference
        if difference is None:
            continue
        at = methods.index(row.method)
        look = _look(row.method, at)
        if not math.isnan(difference.low):
            ends = [difference.low, difference.high]
            ax.plot(ends, [at, at], color=look["color"], linewidth=2, solid_capstyle="round")
        ax.scatter([difference.mean], [at], **look)
    ax.locator_params(axis="x", nbins=5)


def _plain(name: str) -> str:
    """A name whose dollars begin no formula."""
    return name.replace("$", r"\$")


def _look(method: str, number: int) -> dict[str, Any]:
    """Colour, mark, size and order: always the same of a method; ours is drawn last and largest."""
    at = list(METHODS).index(method) if method in METHODS else len(METHODS) + number
    is_ours = method == OURS
    others = [colour for colour in colours(at + 2) if colour != _OUR_COLOUR]
    return {
        "color": _OUR_COLOUR if is_ours else others[at],
        "marker": _MARKS[at % len(_MARKS)],
        "s": 70 if is_ours else 34,
        "zorder": 4 if is_ours else 3,
        "edgecolors": "white",
        "linewidths": 0.6,
    }
