"""The result of a selection: metrics of the candidates, and the answer with its reason."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLEAR = 0.4
"""Scores from here on are clear: those of data without clusters were 0.3 at most, measured on 100 rows or more."""

_SHARE_OF_BEST = 0.6
"""Of the best score, which may be that of a coarser view: parts of a cluster have far less, clusters have more."""


@dataclass(frozen=True)
class Candidate:
    """The metrics of one number of clusters.

    Parameters
    ----------
    n_clusters : int
        Clusters that were requested.
    stability, stability_error : float
        Mean adjusted Rand index between clusterings of different subsamples, on all samples, and its standard error.
    separation : float
        1 where there are gaps around all clusters, 0 where clusters touch: the geometric mean of the least and the
        mean gap, on average.
    score : float
        stability × separation.
    consensus : float
        Mean distance between the co-association of these clusterings and that of all candidates' clusterings.
    consensus_rank : int
        Place by that distance; 1 is the nearest.
    in_use : float
        Clusters that stayed in use, on average.
    objective : float
        What was maximised, on average.
    adjusted_rand_index : float or None
        Agreement with known classes, on average; of no influence.
    """

    n_clusters: int
    stability: float
    stability_error: float
    separation: float
    score: float
    consensus: float
    consensus_rank: int
    in_use: float
    objective: float
    adjusted_rand_index: float | None = None

    @property
    def is_clear(self) -> bool:
        """Whether the clusters are both stable and apart."""
        return self.score >= CLEAR


@dataclass(frozen=True)
class Selection:
    """How many clusters there are, and why. ``print`` shows a table.

    Parameters
    ----------
    n_clusters : int
        The answer; 1 where there is no clear structure.
    is_clear : bool
        Whether there is.
    reason : str
        The same in a sentence or two.
    candidates : tuple of Candidate
        The metrics of each candidate, by their number of clusters.
    in_use : dict
        Of the largest candidate's clusters, how many stay in use: how often each number, over several restarts.
    asked_for : int
        The largest candidate.
    rows, rows_used : int
        Samples of the data, and how many of them were used.
    """

    n_clusters: int
    is_clear: bool
    reason: str
    candidates: tuple[Candidate, ...]
    in_use: dict[int, int]
    asked_for: int
    rows: int
    rows_used: int

    def __getitem__(self, n_clusters: int) -> Candidate:
        """The metrics of a number of clusters."""
        for candidate in self.candidates:
            if candidate.n_clusters == n_clusters:
                return candidate
        raise KeyError(f"{n_clusters} is not among the candidates {[each.n_clusters for each in self.candidates]}.")

    @property
    def best(self) -> Candidate:
        """The candidate of the answer; where nothing is clear, that of the highest score."""
        for candidate in self.candidates:
            if self.is_clear and candidate.n_clusters == self.n_clusters:
                return candidate
        return find_best(self.candidates)

    def __str__(self) -> str:
        chosen = [
            "  ←" if self.is_clear and candidate.n_clusters == self.n_clusters else "" for candidate in self.candidates
        ]
        header, rows = self._cells()
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [header, *rows]
        ]
        table = [line + mark for line, mark in zip(lines, ["", *chosen], strict=True)]
        return "\n".join([*table, self.surplus(), *self.sampled(), self.reason])

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        scored = any(candidate.adjusted_rand_index is not None for candidate in self.candidates)
        header = ["clusters", "stability", "separation", "score", "consensus", "in use", "objective"]
        rows = [
            [
                str(one.n_clusters),
                f"{one.stability:.3f} ± {one.stability_error:.3f}",
                f"{one.separation:.3f}",
                f"{one.score:.3f}",
                f"{one.consensus:.3f} (#{one.consensus_rank})",
                f"{one.in_use:.1f}",
                f"{one.objective:.4g}",
                *([_or_dash(one.adjusted_rand_index)] if scored else []),
            ]
            for one in self.candidates
        ]
        return [*header, *(["ARI"] if scored else [])], rows

    def surplus(self) -> str:
        """A line on how many of too many clusters stay in use."""
        restarts = sum(self.in_use.values())
        counts = ", ".join(f"{used} ({count} of {restarts} restarts)" for used, count in sorted(self.in_use.items()))
        return f"Of {self.asked_for} clusters requested, in use: {counts}."

    def sampled(self) -> list[str]:
        """A line where not all samples were used."""
        if self.rows_used == self.rows:
            return []
        return [f"Of {self.rows:,} rows, {self.rows_used:,} were used, drawn at random."]

    def as_json(self) -> str:
        """All metrics as JSON text."""
        content = asdict(self)
        content["in_use"] = {str(used): count for used, count in self.in_use.items()}
        return json.dumps(content, indent=2, ensure_ascii=False)

    def as_csv(self) -> str:
        """The metrics of the candidates, a line for each."""
        text = io.StringIO()
        names = [name for name in asdict(self.candidates[0]) if self._is_known(name)]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([getattr(candidate, name) for name in names] for candidate in self.candidates)
        return text.getvalue()

    def as_markdown(self) -> str:
        """The table and the answer as Markdown."""
        header, rows = self._cells()
        chosen = [self.is_clear and candidate.n_clusters == self.n_clusters for candidate in self.candidates]
        lines = [_markdown(header), _markdown(["---:"] * len(header))]
        for row, is_chosen in zip(rows, chosen, strict=True):
            lines.append(_markdown([f"**{cell}**" for cell in row] if is_chosen else row))
        return "\n\n".join([self.reason, "\n".join(lines), " ".join([self.surplus(), *self.sampled()])]) + "\n"

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the metrics, with matplotlib (``pip install 'pollux[report]'``).

        Parameters
        ----------
        path : path, optional
            Where to write it: PNG, SVG or PDF, by its name.
        """
        from pollux.selection.plotting import plot_selection

        return plot_selection(self, path)

    def _is_known(self, name: str) -> bool:
        return any(getattr(candidate, name) is not None for candidate in self.candidates)


class Decision(NamedTuple):
    """The answer, whether it is clear, and the reason in a sentence or two."""

    n_clusters: int
    is_clear: bool
    reason: str


def decide(candidates: Sequence[Candidate]) -> Decision:
    """The finest of the candidates that are clear and not much worse than the best, or one cluster where none is clear.

    Clusters that lie near one another are less apart than groups of them are, so the best score is often that of a
    coarse view. Splitting a cluster, though, leaves hardly a gap: the finest clear candidate tells most. A candidate
    whose clusterings leave clusters empty stands for a smaller number, and is passed over for one that fills its own.
    """
    filled = [candidate for candidate in candidates if candidate.in_use > candidate.n_clusters - 0.5] or candidates
    best = find_best(filled)
    clear = [candidate for candidate in filled if candidate.score >= max(CLEAR, _SHARE_OF_BEST * best.score)]
    if not clear:
        return Decision(1, False, f"No clear structure: {_explain_doubt(best)}")
    chosen = max(clear, key=lambda candidate: candidate.n_clusters)
    n_clusters = max(2, round(chosen.in_use))
    return Decision(n_clusters, True, _explain_choice(chosen, n_clusters, candidates))


def find_best(candidates: Sequence[Candidate]) -> Candidate:
    """That of the highest score; where all scores are 0, the most stable one."""
    return max(candidates, key=lambda candidate: (candidate.score, candidate.stability))


def _explain_choice(chosen: Candidate, n_clusters: int, candidates: Sequence[Candidate]) -> str:
    text = (
        f"{n_clusters} clusters: subsamples agree on them (adjusted Rand index {chosen.stability:.2f}), and there are "
        f"gaps between them (separation {chosen.separation:.2f} of 1)."
    )
    if chosen.n_clusters == max(candidate.n_clusters for candidate in candidates) and len(candidates) > 1:
        text += " It is the largest candidate, so there may be more: try larger ones."
    coarser = [
        candidate
        for candidate in candidates
        if candidate.n_clusters < n_clusters and candidate.score >= max(CLEAR, chosen.score)
    ]
    if coarser:
        clearest = sorted(coarser, key=lambda candidate: -candidate.score)[:2]
        names = " and ".join(str(number) for number in sorted(candidate.n_clusters for candidate in clearest))
        text += f" They also fall into {names} groups, as clear or clearer but coarser."
    return text


def _explain_doubt(best: Candidate) -> str:
    if best.separation <= best.stability:
        return (
            f"even for the best candidate, {best.n_clusters} clusters, there is little room between them (separation "
            f"{best.separation:.2f} of 1; stability {best.stability:.2f})."
        )
    return (
        f"even for the best candidate, {best.n_clusters} clusters, subsamples agree on little (adjusted Rand index "
        f"{best.stability:.2f})."
    )


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _markdown(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
