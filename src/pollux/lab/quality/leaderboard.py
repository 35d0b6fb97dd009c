"""Scores of each method on each data set, means, ranks and differences from K-Means, as tables and figures."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from pollux.lab.charts import add_legend, set_grid, set_title
from pollux.lab.quality.labelled_sets import GROUPS
from pollux.lab.quality.peers import METHODS, REFERENCE
from pollux.lab.records import Record
from pollux.lab.results import NOTHING, Cell, Table, typeset, with_sign
from pollux.report.canvas import INK, QUIET, colours, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESAMPLES = 10_000
TITLES = {
    "development": "Development sets",
    "held out": "Held-out sets",
    "given": "Given sets",
    "images": "Images, scored on test images",
}
SIZES = ("size", "K")
"""Columns that describe the data set, not a method."""
_MARKS, _OUR_COLOUR = "osD^vP*X", "#d1495b"


class SetInfo(NamedTuple):
    """A data set, its group and its size."""

    name: str
    group: str
    rows: int
    columns: int
    classes: int


class Score(NamedTuple):
    """A method on a data set: means over seeds, and the standard deviation of the ARI if there are several seeds."""

    ari: float
    deviation: float | None
    nmi: float
    clusters: float
    seconds: float

    @classmethod
    def of(cls, runs: Sequence[Record]) -> Score:
        """Return the means over these runs."""
        names = ("adjusted_rand_index", "normalised_mutual_information", "clusters")
        aris, nmis, clusters = (np.array([run.metrics[name] for run in runs], dtype=float) for name in names)
        deviation = float(aris.std()) if len(aris) > 1 else None
        seconds = float(np.mean([run.seconds for run in runs]))
        return cls(float(aris.mean()), deviation, float(nmis.mean()), float(clusters.mean()), seconds)


class Difference(NamedTuple):
    """A mean difference over data sets, the ends of its 95% interval if there are several sets, and their number."""

    mean: float
    low: float
    high: float
    sets: int


@dataclass(frozen=True)
class Leaderboard:
    """All scores by data set and method, and the reasons for missing ones."""

    sets: Sequence[SetInfo]
    methods: Sequence[str]
    scores: Mapping[tuple[str, str], Score]
    absent: Mapping[tuple[str, str], str]

    @classmethod
    def of(cls, records: Iterable[Record]) -> Leaderboard:
        """Collect the scores of records; for each method and set, only runs with the last file and version count."""
        keyed = [
            ((settings["set"], settings["method"]), (settings["data"], settings["version"]), record)
            for record in records
            for settings in (record.run.settings,)
        ]
        newest = {cell: made_of for cell, made_of, _ in keyed}
        runs: dict[tuple[str, str], dict[int, Record]] = defaultdict(dict)
        sets = {}
        for cell, made_of, record in keyed:
            if made_of == newest[cell]:
                runs[cell][record.run.seed] = record
                size = (record.metrics[name] for name in ("rows", "columns", "classes"))
                sets[cell[0]] = SetInfo(cell[0], record.run.settings["group"], *size)
        scores, absent = {}, {}
        for cell, of_seeds in runs.items():
            if answered := [record for record in of_seeds.values() if "adjusted_rand_index" in record.metrics]:
                scores[cell] = Score.of(answered)
            else:
                metrics = list(of_seeds.values())[-1].metrics
                given_up = f"no answer within {metrics['timeout']:.0f} s" if "timeout" in metrics else ""
                absent[cell] = given_up or str(metrics["skipped"])
        methods = {method for _, method in runs}
        return cls(
            sorted(sets.values(), key=lambda one_set: (_order_of_groups(one_set.group), one_set.name)),
            [*(name for name in METHODS if name in methods), *sorted(methods - METHODS.keys())],
            scores,
            absent,
        )

    def of_group(self, group: str) -> Leaderboard:
        """Return the data sets of one group, and the methods that have a score on any of them."""
        sets = [one_set for one_set in self.sets if one_set.group == group]
        methods = [name for name in self.methods if any((one_set.name, name) in self.scores for one_set in sets)]
        return Leaderboard(sets, methods, self.scores, self.absent)

    @property
    def groups(self) -> list[str]:
        """The groups that have data sets: predefined groups first, then folders in alphabetical order."""
        return sorted({one_set.group for one_set in self.sets}, key=_order_of_groups)

    def aris(self, method: str) -> dict[str, float]:
        """Return the ARI of a method on each data set on which it has a score."""
        found = {one_set.name: self.scores.get((one_set.name, method)) for one_set in self.sets}
        return {name: score.ari for name, score in found.items() if score is not None}


class Row(NamedTuple):
    """A method over data sets; means and rank are over the sets on which all methods have a score, ``common``."""

    method: str
    answered: int
    ari: float = math.nan
    nmi: float = math.nan
    seconds: float = math.nan
    rank: float = math.nan
    difference: Difference | None = None


def _order_of_groups(group: str) -> tuple[int, str]:
    return GROUPS.index(group) if group in GROUPS else len(GROUPS), group


def common_sets(board: Leaderboard) -> list[str]:
    """Return the sets on which all methods have a score; methods with a score on less than half of them are ignored."""
    answers = [board.aris(method).keys() for method in board.methods]
    most = [names for names in answers if 2 * len(names) >= len(board.sets)]
    return [one_set.name for one_set in board.sets if most and all(one_set.name in names for names in most)]


def rank_methods(board: Leaderboard) -> list[Row]:
    """Rank the methods over the data sets of a board; rank 1 is best, and ties share their mean rank."""
    common = common_sets(board)
    whole = [method for method in board.methods if common and board.aris(method).keys() >= set(common)]
    aris = [[board.scores[name, method].ari for method in whole] for name in common]
    # Scores that differ only in the last digits count as ties.
    ranks = rankdata(-np.round(aris, 9), axis=1).mean(axis=0) if aris else []
    found = []
    for method in board.methods:
        row = Row(method, len(board.aris(method)))
        if method in whole:
            scores = [board.scores[name, method] for name in common]
            ari, nmi, took = (
                float(np.mean(values)) for values in zip(*((s.ari, s.nmi, s.seconds) for s in scores), strict=True)
            )
            row = row._replace(ari=ari, nmi=nmi, seconds=took, rank=float(ranks[whole.index(method)]))
        found.append(row._replace(difference=None if method == REFERENCE else difference_to_reference(board, method)))
    return found


def difference_to_reference(board: Leaderboard, method: str) -> Difference | None:
    """Return ARI of a method − ARI of K-Means over the sets on which both have a score; None if there is none."""
    ours, theirs = board.aris(method), board.aris(REFERENCE)
    pairs = [ours[name] - theirs[name] for name in ours if name in theirs]
    return Difference(float(np.mean(pairs)), *bootstrap_interval(pairs), len(pairs)) if pairs else None


def bootstrap_interval(values: ArrayLike) -> tuple[float, float]:
    """Return the bootstrap 2.5% and 97.5% quantiles of the mean of values (s,): s draws with replacement.

    The draws are the same in each call. The interval of a single value is NaN.
    """
    array = np.asarray(values, dtype=float)
    if len(array) < 2:
        return math.nan, math.nan
    draws = np.random.default_rng(0).integers(0, len(array), (RESAMPLES, len(array)))
    low, high = np.quantile(array[draws].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


# The tables.


def title_of_group(group: str) -> str:
    """Return the name of a group in tables."""
    return TITLES.get(group, f"Sets of {group}")


def title_of(method: str) -> str:
    """Return the name of a method in tables."""
    return METHODS[method].title if method in METHODS else method


def leaderboard_tables(board: Leaderboard) -> list[Table]:
    """Return tables of means and ranks: over all data sets if there are several groups, then for each group."""
    parts = [(title_of_group(group), board.of_group(group)) for group in board.groups]
    if len(parts) > 1:
        parts.insert(0, ("All sets", board))
    return [_leaderboard_table(title, part) for title, part in parts if part.methods]


def _leaderboard_table(title: str, board: Leaderboard) -> Table:
    found = rank_methods(board)
    best_ari, best_nmi, best_rank = (
        _best(values) for values in zip(*((r.ari, r.nmi, -r.rank) for r in found), strict=True)
    )
    rows = []
    for row in found:
        difference = Cell("" if row.method == REFERENCE else NOTHING)
        if row.difference is not None:
            low, high = row.difference.low, row.difference.high
            interval = "" if math.isnan(low) else f"[{signed(low)}, {signed(high)}]"
            difference = Cell(signed(row.difference.mean), interval)
        cells = [
            _mark(Cell(number(row.ari)), row.ari == best_ari),
            _mark(Cell(number(row.nmi)), row.nmi == best_nmi),
            _mark(Cell(number(row.rank, 2)), -row.rank == best_rank),
            difference,
            Cell(f"{row.answered} of {len(board.sets)}"),
            Cell(seconds(row.seconds)),
        ]
        rows.append((title_of(row.method), cells))
    columns = ["ARI", "NMI", "rank", f"ARI − {title_of(REFERENCE)} (95%)", "sets", "seconds"]
    return Table(f"{title} ({len(board.sets)})", columns, rows, list(_leaderboard_notes(board)), is_compact=True)


def _leaderboard_notes(board: Leaderboard) -> Iterator[str]:
    common = common_sets(board)
    left_out = [one_set.name for one_set in board.sets if one_set.name not in common]
    if left_out and common:
        yield (
            f"Means and ranks are over the {len(common)} sets that all methods answered (without "
            f"{', '.join(left_out)}); a method that answered fewer than half of the sets has none."
        )
    if left_out and not common:
        yield "No set has an answer of all methods yet: there are no means."
    if any(one != REFERENCE for one in board.methods) and REFERENCE in board.methods and len(board.sets) > 1:
        yield (
            f"Differences are paired over the sets that both methods answered; intervals by {RESAMPLES:,} bootstrap "
            "samples of sets."
        )


def set_tables(board: Leaderboard) -> list[Table]:
    """Return tables of ARI, NMI, clusters found and seconds of each method on each data set."""

    def ari(score: Score) -> Cell:
        return Cell(number(score.ari), "" if score.deviation is None else f"({number(score.deviation)})")

    # The reasons for missing scores, each reason once.
    absent: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (name, method), reason in board.absent.items():
        absent[method, reason].append(name)
    notes = ["Each cell: mean (standard deviation) over seeds; methods without randomness run once."]
    notes += [f"{title_of(method)} on {', '.join(names)}: {reason}." for (method, reason), names in absent.items()]
    return [
        _set_table(board, "ARI on each set", ari, lambda score: score.ari, notes),
        _set_table(board, "NMI on each set", lambda score: Cell(number(score.nmi)), lambda score: score.nmi),
        _set_table(board, "Clusters found", lambda score: Cell(typeset(f"{score.clusters:.1f}").removesuffix(".0"))),
        _set_table(board, "Seconds of a run", lambda score: Cell(seconds(score.seconds))),
    ]


def _set_table(
    board: Leaderboard,
    title: str,
    cell: Callable[[Score], Cell],
    value: Callable[[Score], float] | None = None,
    notes: Sequence[str] = (),
) -> Table:
    rows = []
    for one_set in board.sets:
        scores = [board.scores.get((one_set.name, method)) for method in board.methods]
        best = _best([math.nan if score is None or value is None else value(score) for score in scores])
        cells = [
            Cell(NOTHING)
            if score is None
            else _mark(cell(score), value is not None and round(value(score), 3) == round(best, 3))
            for score in scores
        ]
        size = Cell(f"{one_set.rows:,} × {one_set.columns:,}")
        rows.append((one_set.name, [size, Cell(str(one_set.classes)), *cells]))
    columns = [*SIZES, *map(title_of, board.methods)]
    return Table(title, columns, rows, notes, optional=SIZES, is_compact=True)


def _mark(cell: Cell, is_best: bool) -> Cell:
    return replace(cell, emphasis="text", holds=True) if is_best else cell


def _best(values: Iterable[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def number(value: float, digits: int = 3) -> str:
    """Format a number as in 0.123; NaN becomes a dash."""
    return NOTHING if math.isnan(value) else typeset(f"{value:.{digits}f}")


def signed(value: float) -> str:
    """Format a number as in +0.123."""
    return with_sign(number(value))


def seconds(value: float) -> str:
    """Format seconds with two significant digits, and from 100 on as a whole number."""
    return NOTHING if math.isnan(value) else f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}"


# The figures.


def draw_leaderboard(board: Leaderboard) -> dict[str, Figure]:
    """Return the figures for which there are data, by name."""
    figures = {}
    if board.scores:
        figures["sets"] = draw_sets(board)
    if REFERENCE in board.methods and len(board.methods) > 1:
        figures["differences"] = draw_differences(board)
    return figures


def draw_sets(board: Leaderboard) -> Figure:
    """Draw a band for each data set and a mark for each method at its ARI; sets of a group are adjacent."""
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
        # Shift the marks, so that equal scores do not hide each other.
        shift = 0.5 * (number / max(len(board.methods) - 1, 1) - 0.5)
        aris = board.aris(method)
        heights = [at + shift for at, one_set in enumerate(board.sets) if one_set.name in aris]
        ax.scatter(list(aris.values()), heights, label=title_of(method), **_marker_style(method, number))
    ax.set_yticks(range(len(board.sets)), [_plain(one_set.name) for one_set in board.sets], color=INK)
    ax.set_ylim(len(board.sets) - 0.5, -0.5)
    ax.set_xlim(left=min(0.0, ax.get_xlim()[0]))
    add_legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    return figure


def draw_differences(board: Leaderboard) -> Figure:
    """Draw a panel for each group: the mean difference of each method from K-Means, with its interval."""
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
        set_title(ax, f"{_plain(title.partition(',')[0])} ({len(part.sets)})")
        set_grid(ax, f"ARI − {reference}").grid(visible=False, axis="y")
        ax.axvline(0, color=QUIET, linewidth=1)
        for row in rank_methods(part):
            if row.difference is not None:
                at, ends = methods.index(row.method), [row.difference.low, row.difference.high]
                look = _marker_style(row.method, at)
                if not math.isnan(row.difference.low):
                    ax.plot(ends, [at, at], color=look["color"], linewidth=2, solid_capstyle="round")
                ax.scatter([row.difference.mean], [at], **look)
        ax.locator_params(axis="x", nbins=5)
    panels[0].set_yticks(range(len(methods)), list(map(title_of, methods)), color=INK)
    panels[0].set_ylim(len(methods) - 0.5, -0.5)
    return figure


def _plain(name: str) -> str:
    """Escape dollar signs, which would begin a formula in matplotlib."""
    return name.replace("$", r"\$")


def _marker_style(method: str, number: int) -> dict[str, Any]:
    """Return colour, marker, size and order of a method, the same in all figures; ours is drawn last and largest."""
    at = list(METHODS).index(method) if method in METHODS else len(METHODS) + number
    is_ours = method == "pollux"
    others = [colour for colour in colours(at + 2) if colour != _OUR_COLOUR]
    return {
        "color": _OUR_COLOUR if is_ours else others[at],
        "marker": _MARKS[at % len(_MARKS)],
        "s": 70 if is_ours else 34,
        "zorder": 4 if is_ours else 3,
        "edgecolors": "white",
        "linewidths": 0.6,
    }
