"""What was found of the number of clusters."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollux.selection.deciding import CLEAR, best_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Candidate:
    """The figures of one number of clusters.

    Parameters
    ----------
    n_clusters : int
        Clusters that were asked for.
    stability, stability_error : float
        Mean adjusted Rand index between clusterings of different subsamples, on all rows, and its standard error.
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
    """How many clusters there are, and what speaks for it. ``print`` shows a table.

    Parameters
    ----------
    n_clusters : int
        The answer; 1 where there is no clear structure.
    is_clear : bool
        Whether there is.
    reason : str
        The same in a sentence or two.
    candidates : tuple of Candidate
        The figures of each candidate, by their number of clusters.
    in_use : dict
        Asked for ``asked_for`` clusters, how many stay in use: how often each number, over several starts.
    asked_for : int
        The largest candidate.
    rows, rows_used : int
        Rows of the data, and those that were looked at.
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
        """The figures of a number of clusters."""
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
        return best_of(self.candidates)

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
        """What stays in use of too many clusters, as a line."""
        starts = sum(self.in_use.values())
        told = ", ".join(f"{used} ({count} of {starts} starts)" for used, count in sorted(self.in_use.items()))
        return f"Of {self.asked_for} clusters asked for, in use stay: {told}."

    def sampled(self) -> list[str]:
        """A line where not all rows were looked at."""
        if self.rows_used == self.rows:
            return []
        return [f"Of {self.rows:,} rows, {self.rows_used:,} were looked at, chosen at random."]

    def as_json(self) -> str:
        """All figures as JSON text."""
        figures = asdict(self)
        figures["in_use"] = {str(used): count for used, count in self.in_use.items()}
        return json.dumps(figures, indent=2, ensure_ascii=False)

    def as_csv(self) -> str:
        """The figures of the candidates, a line for each."""
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
        """Draw the figures, with matplotlib (``pip install 'pollux[report]'``).

        Parameters
        ----------
        path : path, optional
            Where to write it: PNG, SVG or PDF, by its name.
        """
        from pollux.selection.plotting import plot_selection

        return plot_selection(self, path)

    def _is_known(self, name: str) -> bool:
        return any(getattr(candidate, name) is not None for candidate in self.candidates)


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _markdown(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
