"""What the records say: scores of each method on each set, means and ranks, and differences to K-Means."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from pollux.lab.experiments.experiment import Record
from pollux.lab.quality.methods import METHODS, REFERENCE
from pollux.lab.quality.sets import GROUPS

RESAMPLES = 10_000
_SEED = 0


class Place(NamedTuple):
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
class Board:
    """All scores: by set and method, and why some are absent."""

    places: Sequence[Place]
    methods: Sequence[str]
    scores: Mapping[tuple[str, str], Score]
    absent: Mapping[tuple[str, str], str]

    def of(self, group: str) -> Board:
        """The sets of one group, and the methods that answered on any of these."""
        places = [place for place in self.places if place.group == group]
        methods = [name for name in self.methods if any((place.name, name) in self.scores for place in places)]
        return Board(places, methods, self.scores, self.absent)

    @property
    def groups(self) -> list[str]:
        """Those that there are sets of: first those of sets known by their names, then folders, by their names."""
        return sorted({place.group for place in self.places}, key=_order_of_groups)

    def aris(self, method: str) -> dict[str, float]:
        """The ARI of a method on each set that it answered."""
        return {
            place.name: self.scores[place.name, method].ari
            for place in self.places
            if (place.name, method) in self.scores
        }


@dataclass(frozen=True)
class Standing:
    """A method over sets; means and rank are over the sets that all methods answered, which are ``common``."""

    method: str
    answered: int
    ari: float = math.nan
    nmi: float = math.nan
    rank: float = math.nan
    seconds: float = math.nan
    difference: Difference | None = field(default=None)


def board_of(records: Iterable[Record]) -> Board:
    """The scores of records: of each method on each set, those of the file and version of the last one."""
    records = list(records)
    newest = {_cell(record): _made_of(record) for record in records}
    kept = [record for record in records if _made_of(record) == newest[_cell(record)]]
    latest = {(*_cell(record), record.run.seed): record for record in kept}
    runs: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in latest.values():
        runs[_cell(record)].append(record)
    answered = {cell: [one for one in found if "adjusted_rand_index" in one.metrics] for cell, found in runs.items()}
    places = {record.run.settings["set"]: _place(record) for record in latest.values()}
    methods = {method for _, method in runs}
    return Board(
        sorted(places.values(), key=lambda place: (_order_of_groups(place.group), place.name)),
        [*(name for name in METHODS if name in methods), *sorted(methods - METHODS.keys())],
        {cell: _score(found) for cell, found in answered.items() if found},
        {cell: _reason(found[-1]) for cell, found in runs.items() if not answered[cell]},
    )


def _cell(record: Record) -> tuple[str, str]:
    return record.run.settings["set"], record.run.settings["method"]


def _made_of(record: Record) -> tuple[Any, Any]:
    """The file and the version of the method."""
    return record.run.settings["data"], record.run.settings["version"]


def _place(record: Record) -> Place:
    settings, metrics = record.run.settings, record.metrics
    return Place(settings["set"], settings["group"], metrics["rows"], metrics["columns"], metrics["classes"])


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


def common_sets(board: Board) -> list[str]:
    """The sets that all methods answered; a method that answered fewer than half of the sets is not waited for."""
    answers = {method: set(board.aris(method)) for method in board.methods}
    most = [answers[method] for method in board.methods if _counts(len(answers[method]), board)]
    return [place.name for place in board.places if most and all(place.name in names for names in most)]


def _counts(answered: int, board: Board) -> bool:
    return 2 * answered >= len(board.places)


def standings(board: Board) -> list[Standing]:
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
        found.append(Standing(method, len(board.aris(method)), ari, nmi, rank, seconds, difference))
    return found


def _ranks(aris: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Mean over sets (s,) of the ranks of methods (m,), from scores (s, m): 1 is best, equals share theirs."""
    if not aris:
        return np.zeros(0)
    # What differs in the last digits only is equal.
    ranks: NDArray[np.float64] = rankdata(-np.round(aris, 9), axis=1).mean(axis=0)
    return ranks


def difference_to_reference(board: Board, method: str) -> Difference | None:
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
