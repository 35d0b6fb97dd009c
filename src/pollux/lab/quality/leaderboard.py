"""Scores of each method on each set, means and ranks, and differences to K-Means; and their tables."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from pollux.lab.quality.labelled_sets import GROUPS
from pollux.lab.quality.peers import METHODS, REFERENCE
from pollux.lab.records import Record
from pollux.lab.tables import NOTHING, Cell, Table, typeset

RESAMPLES = 10_000
_SEED = 0
TITLES = {
    "development": "Development sets",
    "held out": "Held-out sets",
    "given": "Given sets",
    "images": "Images, scored on test images",
}
SIZES = ("size", "K")
"""Columns about the set, not about methods."""


class SetInfo(NamedTuple):
    """A set, its group and its size."""

    name: str
    group: str
    rows: int
    columns: int
    classes: int


class Score(NamedTuple):
    """A method on a set, over its seeds: means, and the standard deviation of the ARI where there are several."""

    ari: float
    deviation: float | None
    nmi: float
    clusters: float
    seconds: float
    seeds: int


class Difference(NamedTuple):
    """A mean difference over sets, the ends of its 95% interval where there are several, and how many sets."""

    mean: float
    low: float
    high: float
    sets: int


@dataclass(frozen=True)
class Leaderboard:
    """All scores: by set and method, and why some are absent."""

    sets: Sequence[SetInfo]
    methods: Sequence[str]
    scores: Mapping[tuple[str, str], Score]
    absent: Mapping[tuple[str, str], str]

    @classmethod
    def of(cls, records: Iterable[Record]) -> Leaderboard:
        """The scores of records: of each method on each set, those of the file and version of the last one."""
        records = list(records)
        newest = {_cell(record): _made_of(record) for record in records}
        kept = [record for record in records if _made_of(record) == newest[_cell(record)]]
        latest = {(*_cell(record), record.run.seed): record for record in kept}
        runs: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for record in latest.values():
            runs[_cell(record)].append(record)
        answered = {
            cell: [one for one in found if "adjusted_rand_index" in one.metrics] for cell, found in runs.items()
        }
        sets = {record.run.settings["set"]: _set_info(record) for record in latest.values()}
        methods = {method for _, method in runs}
        return cls(
            sorted(sets.values(), key=lambda one_set: (_order_of_groups(one_set.group), one_set.name)),
            [*(name for name in METHODS if name in methods), *sorted(methods - METHODS.keys())],
            {cell: _score(found) for cell, found in answered.items() if found},
            {cell: _reason(found[-1]) for cell, found in runs.items() if not answered[cell]},
        )

    def of_group(self, group: str) -> Leaderboard:
        """The sets of one group, and the methods that answered on any of these."""
        sets = [one_set for one_set in self.sets if one_set.group == group]
        methods = [name for name in self.methods if any((one_set.name, name) in self.scores for one_set in sets)]
        return Leaderboard(sets, methods, self.scores, self.absent)

    @property
    def groups(self) -> list[str]:
        """Those that there are sets of: first those of sets known by their names, then folders, by their names."""
        return sorted({one_set.group for one_set in self.sets}, key=_order_of_groups)

    def aris(self, method: str) -> dict[str, float]:
        """The ARI of a method on each set that it answered."""
        return {
            one_set.name: self.scores[one_set.name, method].ari
            for one_set in self.sets
            if (one_set.name, method) in self.scores
        }


@dataclass(frozen=True)
class Row:
    """A method over sets; means and rank are over the sets that all methods answered, which are ``common``."""

    method: str
    answered: int
    ari: float = math.nan
    nmi: float = math.nan
    rank: float = math.nan
    seconds: float = math.nan
    difference: Difference | None = field(default=None)


def _cell(record: Record) -> tuple[str, str]:
    return record.run.settings["set"], record.run.settings["method"]


def _made_of(record: Record) -> tuple[Any, Any]:
    """The file and the version of the method."""
    return record.run.settings["data"], record.run.settings["version"]


def _set_info(record: Record) -> SetInfo:
    settings, metrics = record.run.settings, record.metrics
    return SetInfo(settings["set"], settings["group"], metrics["rows"], metrics["columns"], metrics["classes"])


def _order_of_groups(group: str) -> tuple[int, str]:
    return GROUPS.index(group) if group in GROUPS else len(GROUPS), group


def _score(found: Sequence[Record]) -> Score:
    def values(name: str) -> NDArray[np.float64]:
        return np.array([record.metrics[name] for record in found], dtype=float)

    aris = values("adjusted_rand_index")
    return Score(
        float(aris.mean()),
        float(aris.std()) if len(aris) > 1 else None,
        float(values("normalised_mutual_information").mean()),
        float(values("clusters").mean()),
        float(np.mean([record.seconds for record in found])),
        len(found),
    )


def _reason(record: Record) -> str:
    if "timeout" in record.metrics:
        return f"no answer within {record.metrics['timeout']:.0f} s"
    return str(record.metrics["skipped"])


def common_sets(board: Leaderboard) -> list[str]:
    """The sets that all methods answered; a method that answered fewer than half of the sets is not waited for."""
    answers = {method: set(board.aris(method)) for method in board.methods}
    most = [answers[method] for method in board.methods if _counts(len(answers[method]), board)]
    return [one_set.name for one_set in board.sets if most and all(one_set.name in names for names in most)]


def _counts(answered: int, board: Leaderboard) -> bool:
    return 2 * answered >= len(board.sets)


def rank_methods(board: Leaderboard) -> list[Row]:
    """Each method over the sets of a board."""
    common = common_sets(board)
    whole = [method for method in board.methods if set(common) <= set(board.aris(method)) and common]
    ranks = _ranks([[board.scores[name, method].ari for method in whole] for name in common])
    found = []
    for method in board.methods:
        scores = [board.scores[name, method] for name in common] if method in whole else []
        means = [float(np.mean([score[at] for score in scores])) if scores else math.nan for at in (0, 2, 4)]
        rank = float(ranks[whole.index(method)]) if scores else math.nan
        ari, nmi, seconds = means
        difference = None if method == REFERENCE else difference_to_reference(board, method)
        found.append(Row(method, len(board.aris(method)), ari, nmi, rank, seconds, difference))
    return found


def _ranks(aris: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Mean over sets (s,) of the ranks of methods (m,), from scores (s, m): 1 is best, equals share theirs."""
    if not aris:
        return np.zeros(0)
    # What differs in the last digits only is equal.
    ranks: NDArray[np.float64] = rankdata(-np.round(aris, 9), axis=1).mean(axis=0)
    return ranks


def difference_to_reference(board: Leaderboard, method: str) -> Difference | None:
    """ARI of a method − ARI of K-Means over the sets that both answered; None where there is no such set."""
    ours, theirs = board.aris(method), board.aris(REFERENCE)
    pairs = [ours[name] - theirs[name] for name in ours if name in theirs]
    if not pairs:
        return None
    return Difference(float(np.mean(pairs)), *bootstrap_interval(pairs), len(pairs))


def bootstrap_interval(values: ArrayLike) -> tuple[float, float]:
    """The 2.5% and 97.5% quantiles of the mean of values (s,) drawn again, s at a time, with repetition.

    The draws are always the same. One value has no interval: NaN.
    """
    array = np.asarray(values, dtype=float)
    if len(array) < 2:
        return math.nan, math.nan
    draws = np.random.default_rng(_SEED).integers(0, len(array), (RESAMPLES, len(array)))
    low, high = np.quantile(array[draws].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


# The tables.


def title_of_group(group: str) -> str:
    """A group's name in tables."""
    return TITLES.get(group, f"Sets of {group}")


def title_of(method: str) -> str:
    """A method's name in tables."""
    return METHODS[method].title if method in METHODS else method


def leaderboard_tables(board: Leaderboard) -> list[Table]:
    """Means and ranks of the methods: all sets together where there are several groups, then each group."""
    parts = [(title_of_group(group), board.of_group(group)) for group in board.groups]
    if len(parts) > 1:
        parts.insert(0, ("All sets", board))
    return [_leaderboard_table(title, part) for title, part in parts if part.methods]


def _leaderboard_table(title: str, board: Leaderboard) -> Table:
    found, common = rank_methods(board), common_sets(board)
    best = [_best([one.ari for one in found]), _best([one.nmi for one in found])]
    ranks = _best([-one.rank for one in found])
    rows = [
        (
            title_of(one.method),
            [
                _mark(Cell(number(one.ari)), one.ari == best[0]),
                _mark(Cell(number(one.nmi)), one.nmi == best[1]),
                _mark(Cell(number(one.rank, 2)), -one.rank == ranks),
                _difference_cell(one),
                Cell(f"{one.answered} of {len(board.sets)}"),
                Cell(seconds(one.seconds)),
            ],
        )
        for one in found
    ]
    columns = ["ARI", "NMI", "rank", f"ARI − {title_of(REFERENCE)} (95%)", "sets", "seconds"]
    return Table(
        f"{title} ({len(board.sets)})", columns, rows, list(_leaderboard_notes(board, common)), is_compact=True
    )


def _leaderboard_notes(board: Leaderboard, common: Sequence[str]) -> Iterator[str]:
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


def _difference_cell(row: Row) -> Cell:
    if row.difference is None:
        return Cell("" if row.method == REFERENCE else NOTHING)
    return Cell(signed(row.difference.mean), interval(row.difference))


def interval(difference: Difference) -> str:
    """'[−0.010, +0.120]'; nothing of one set."""
    if math.isnan(difference.low):
        return ""
    return f"[{signed(difference.low)}, {signed(difference.high)}]"


def set_tables(board: Leaderboard) -> list[Table]:
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


def _absence_notes(board: Leaderboard) -> list[str]:
    """Why there is no score, the same reason once."""
    sets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (name, method), reason in board.absent.items():
        sets[method, reason].append(name)
    notes = ["Each cell: mean (standard deviation) over seeds; methods without randomness run once."]
    return notes + [f"{title_of(method)} on {', '.join(names)}: {reason}." for (method, reason), names in sets.items()]


def _mark(cell: Cell, is_best: bool) -> Cell:
    return replace(cell, emphasis="text", holds=True) if is_best else cell


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
