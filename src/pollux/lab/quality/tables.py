"""The tables of a comparison, in words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pollux.lab.experiments.tables import typeset
from pollux.lab.quality.methods import METHODS, REFERENCE
from pollux.lab.quality.summary import RESAMPLES, Board, Difference, Score, Standing, common_sets, standings

TITLES = {
    "development": "Development sets",
    "held out": "Held-out sets",
    "given": "Given sets",
    "images": "Images, scored on test images",
}
NOTHING = "–"
SIZES = ("size", "K")
"""Columns that tell of the set, not of methods."""


class Cell(NamedTuple):
    """A text, what is told beside it, and whether it is the best of its row or column."""

    text: str
    aside: str = ""
    is_best: bool = False

    @property
    def whole(self) -> str:
        """Both in a line."""
        return f"{self.text} {self.aside}".strip()


@dataclass(frozen=True)
class Table:
    """Rows of cells under the names of their columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    notes: Sequence[str] = ()


def title_of_group(group: str) -> str:
    """A group's name in tables."""
    return TITLES.get(group, f"Sets of {group}")


def title_of(method: str) -> str:
    """A method's name in tables."""
    return METHODS[method].title if method in METHODS else method


def standing_tables(board: Board) -> list[Table]:
    """Means and ranks of the methods: all sets together where there are several groups, then each group."""
    parts = [(title_of_group(group), board.of(group)) for group in board.groups]
    if len(parts) > 1:
        parts.insert(0, ("All sets", board))
    return [_standing_table(title, part) for title, part in parts if part.methods]


def _standing_table(title: str, board: Board) -> Table:
    found, common = standings(board), common_sets(board)
    best = [_best([one.ari for one in found]), _best([one.nmi for one in found])]
    ranks = _best([-one.rank for one in found])
    rows = [
        (
            title_of(one.method),
            [
                Cell(number(one.ari), is_best=one.ari == best[0]),
                Cell(number(one.nmi), is_best=one.nmi == best[1]),
                Cell(number(one.rank, 2), is_best=-one.rank == ranks),
                _difference_cell(one),
                Cell(f"{one.answered} of {len(board.places)}"),
                Cell(seconds(one.seconds)),
            ],
        )
        for one in found
    ]
    columns = ["ARI", "NMI", "rank", f"ARI − {title_of(REFERENCE)} (95%)", "sets", "seconds"]
    return Table(f"{title} ({len(board.places)})", columns, rows, list(_standing_notes(board, common)))


def _standing_notes(board: Board, common: Sequence[str]) -> Iterator[str]:
    left_out = [place.name for place in board.places if place.name not in common]
    if left_out and common:
        yield (
            f"Means and ranks are over the {len(common)} sets that all methods answered (without "
            f"{', '.join(left_out)}); a method that answered fewer than half of the sets has none."
        )
    if left_out and not common:
        yield "No set has an answer of all methods yet: there are no means."
    if any(one != REFERENCE for one in board.methods) and REFERENCE in board.methods and len(board.places) > 1:
        yield (
            f"Differences are paired over the sets that both methods answered; intervals by {RESAMPLES:,} bootstrap "
            "samples of sets."
        )


def _difference_cell(standing: Standing) -> Cell:
    if standing.difference is None:
        return Cell("" if standing.method == REFERENCE else NOTHING)
    return Cell(signed(standing.difference.mean), interval(standing.difference))


def interval(difference: Difference) -> str:
    """'[−0.010, +0.120]'; nothing of one set."""
    if math.isnan(difference.low):
        return ""
    return f"[{signed(difference.low)}, {signed(difference.high)}]"


def set_tables(board: Board) -> list[Table]:
    """ARI, NMI, clusters found and seconds of each method on each set."""
    return [
        _set_table(board, "ARI on each set", _ari_cell, lambda score: score.ari, _absence_notes(board)),
        _set_table(board, "NMI on each set", lambda score: Cell(number(score.nmi)), lambda score: score.nmi),
        _set_table(board, "Clusters found", lambda score: Cell(typeset(f"{score.clusters:.1f}").removesuffix(".0"))),
        _set_table(board, "Seconds of a run", lambda score: Cell(seconds(score.seconds))),
    ]


def _ari_cell(score: Score) -> Cell:
    return Cell(number(score.ari), "" if score.deviation is None else f"({number(score.deviation)})")


def _set_table(
    board: Board,
    title: str,
    cell: Callable[[Score], Cell],
    value: Callable[[Score], float] | None = None,
    notes: Sequence[str] = (),
) -> Table:
    rows = []
    for place in board.places:
        scores = [board.scores.get((place.name, method)) for method in board.methods]
        best = _best([math.nan if score is None or value is None else value(score) for score in scores])
        cells = [
            Cell(NOTHING)
            if score is None
            else cell(score)._replace(is_best=value is not None and round(value(score), 3) == round(best, 3))
            for score in scores
        ]
        size = Cell(f"{place.rows:,} × {place.columns:,}")
        rows.append((place.name, [size, Cell(str(place.classes)), *cells]))
    return Table(title, [*SIZES, *map(title_of, board.methods)], rows, notes)


def _absence_notes(board: Board) -> list[str]:
    """Why there is no score, the same reason once."""
    sets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (name, method), reason in board.absent.items():
        sets[method, reason].append(name)
    notes = ["Each cell: mean (standard deviation) over seeds; methods without randomness run once."]
    return notes + [f"{title_of(method)} on {', '.join(names)}: {reason}." for (method, reason), names in sets.items()]


def _best(values: Sequence[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def number(value: float, digits: int = 3) -> str:
    """0.123; a dash for what is not there."""
    return NOTHING if math.isnan(value) else typeset(f"{value:.{digits}f}")


def signed(value: float) -> str:
    """+0.123."""
    written = number(value)
    return written if written.startswith("−") or float(written) == 0 else f"+{written}"


def seconds(value: float) -> str:
    """Three digits."""
    return NOTHING if math.isnan(value) else f"{value:,.0f}" if value >= 99.95 else f"{value:.2g}"
