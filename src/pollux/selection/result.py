"""The result of a selection: metrics of the candidates, and the answer with its reason."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pollux.errors import advised, option
from pollux.inspection.structure import CLEAR
from pollux.io.atomic import in_place
from pollux.report.canvas import GRID, INK, QUIET, TITLE, clean_axes, colours, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _PALE = colours(1)[0], "#b9d0e6"

_SHARE_OF_BEST = 0.6
"""Share of the best score, which may be that of coarser groups: splits of a cluster score less, clusters more."""

_FAR_APART, _MUCH = 0.6, 0.6
"""The score from which on groups are more than a coarse view, and the share of the greatest gain that is much."""


@dataclass(frozen=True)
class Candidate:
    """The metrics of one number of clusters.

    Parameters
    ----------
    n_clusters : int
        Number of clusters requested.
    stability, stability_error : float
        Mean adjusted Rand index between clusterings of different subsamples, on all samples, and its standard error.
    separation : float
        1 if there are gaps around all clusters, 0 if clusters touch: the geometric mean of the smallest and the
        mean gap, on average.
    score : float
        stability × separation.
    consensus : float
        Mean distance between the co-association of these clusterings and that of all candidates' clusterings.
    consensus_rank : int
        Rank by that distance; 1 is the nearest.
    in_use : float
        Number of clusters in use, on average.
    objective : float
        The objective, on average.
    gain : float
        By how much the log-density of a held-out sample is higher under a mixture of that many Gaussians than under the
        best null model of one cluster, on average.
    adjusted_rand_index : float or None
        Agreement with known classes, on average; it has no influence.
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
    gain: float = 0.0
    adjusted_rand_index: float | None = None

    @property
    def is_clear(self) -> bool:
        """Whether the clusters are both stable and apart."""
        return self.score >= CLEAR


@dataclass(frozen=True)
class Selection:
    """The number of clusters, and why. ``print`` shows a table.

    Parameters
    ----------
    n_clusters : int
        The answer; 1 if a null model of one cluster explains the data as well.
    grade : {"clear", "likely", "none"}
        Clear: there are gaps between the clusters. Likely: they touch, but explain the data better than a null model.
    reason : str
        The same in a sentence or two.
    candidates : tuple of Candidate
        The metrics of each candidate, by their number of clusters.
    in_use : dict
        How many of the largest candidate's clusters stay in use: counts of each number, over several restarts.
    asked_for : int
        The largest candidate.
    rows, rows_used : int
        Number of samples in the data, and of those that were used.
    """

    n_clusters: int
    grade: Literal["clear", "likely", "none"]
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
    def is_clear(self) -> bool:
        """Whether there are gaps between the clusters."""
        return self.grade == "clear"

    @property
    def best(self) -> Candidate:
        """The candidate of the answer; if the answer is 1, the candidate with the highest score."""
        for candidate in self.candidates:
            if self.grade != "none" and candidate.n_clusters == self.n_clusters:
                return candidate
        return find_best(self.candidates)

    def __str__(self) -> str:
        number = None if self.grade == "none" else self.n_clusters
        chosen = ["  ←" if candidate.n_clusters == number else "" for candidate in self.candidates]
        header, rows = self._cells()
        table = [line + mark for line, mark in zip(align([header, *rows]), ["", *chosen], strict=True)]
        return "\n".join([*table, self.surplus(), *self.sampled(), self.reason])

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        scored = any(candidate.adjusted_rand_index is not None for candidate in self.candidates)
        header = ["clusters", "stability", "separation", "score"]
        rows = [
            [
                str(one.n_clusters),
                f"{one.stability:.3f} ± {one.stability_error:.3f}",
                f"{one.separation:.3f}",
                f"{one.score:.3f}",
                *(["–" if one.adjusted_rand_index is None else f"{one.adjusted_rand_index:.3f}"] if scored else []),
            ]
            for one in self.candidates
        ]
        return [*header, *(["ARI"] if scored else [])], rows

    def surplus(self) -> str:
        """A line about how many of too many clusters stay in use."""
        restarts = sum(self.in_use.values())
        if not restarts:
            return ""
        counts = ", ".join(f"{used} ({count} of {restarts} restarts)" for used, count in sorted(self.in_use.items()))
        return f"Of {self.asked_for} clusters requested, in use: {counts}."

    def sampled(self) -> list[str]:
        """A line, if not all samples were used."""
        if self.rows_used == self.rows:
            return []
        return [f"Of {self.rows:,} rows, {self.rows_used:,} were used, drawn at random."]

    def as_json(self) -> str:
        """All metrics as JSON text."""
        content = {**asdict(self), "is_clear": self.is_clear}
        content["in_use"] = {str(used): count for used, count in self.in_use.items()}
        return json.dumps(content, indent=2, ensure_ascii=False)

    def as_csv(self) -> str:
        """The metrics of the candidates as CSV text, one line each."""
        return to_csv([asdict(candidate) for candidate in self.candidates])

    def as_markdown(self) -> str:
        """The table and the answer as Markdown."""
        header, rows = self._cells()
        chosen = [self.grade != "none" and candidate.n_clusters == self.n_clusters for candidate in self.candidates]
        lines = [_markdown(header), _markdown(["---:"] * len(header))]
        for row, is_chosen in zip(rows, chosen, strict=True):
            lines.append(_markdown([f"**{cell}**" for cell in row] if is_chosen else row))
        return "\n\n".join([self.reason, "\n".join(lines), " ".join([self.surplus(), *self.sampled()])]) + "\n"

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the metrics, with matplotlib (``pip install 'pollux[report]'``).

        Parameters
        ----------
        path : path, optional
            The file to write: PNG, SVG or PDF, by its suffix.
        """
        figure = new_figure(11, 3.6)
        grid: Any = figure.add_gridspec(1, 3, width_ratios=(1.15, 1, 1))
        chosen = [self.grade != "none" and candidate is self.best for candidate in self.candidates]
        names = [str(candidate.n_clusters) for candidate in self.candidates]
        titles = {
            "score": "Score: stability × separation",
            "stability": "Stability: agreement of subsamples",
            "separation": "Separation: gaps between clusters",
        }
        for column, (metric, title) in enumerate(titles.items()):
            ax = clean_axes(figure.add_subplot(grid[0, column]))
            ax.set_title(title, **TITLE)
            ax.set_xticks(range(len(names))[:: -(-len(names) // 12)], names[:: -(-len(names) // 12)])
            ax.set_xlim(-0.6, len(names) - 0.4)
            ax.set_xlabel("clusters", color=QUIET, fontsize=9)
            ax.set_ylim(-0.03, 1.08)
            ax.grid(axis="y", color=GRID)
            ax.set_axisbelow(True)
            values = np.array([getattr(candidate, metric) for candidate in self.candidates], dtype=float)
            if metric == "score":
                _draw_bars(ax, values, chosen)
                continue
            places = np.arange(len(values))
            ax.plot(places, values, color=_BLUE, linewidth=2.2, marker="o", markersize=4.5)
            ax.plot(places[chosen], values[chosen], "o", color=_BLUE, markersize=9, markeredgecolor="white")
            if metric == "stability":
                error = np.array([candidate.stability_error for candidate in self.candidates])
                low, high = values - error, np.minimum(values + error, 1)
                ax.fill_between(places, low, high, color=_BLUE, alpha=0.15, linewidth=0)
        answers = {"clear": f"{self.n_clusters} clusters", "likely": f"{self.n_clusters} clusters are likely"}
        answer = answers.get(self.grade, "No clear structure")
        figure.suptitle(answer, x=0.01, ha="left", color=INK, fontsize=13, weight="bold")
        figure.supxlabel(self.surplus().rstrip("."), x=0.01, ha="left", color=QUIET, fontsize=8.5)
        if path is not None:
            with in_place(path) as temporary:
                figure.savefig(temporary, dpi=160)
        return figure


def _draw_bars(ax: Axes, scores: NDArray[np.float64], chosen: Sequence[bool]) -> None:
    """Draw bars of the scores, with their values if there is room, and the threshold of clear ones."""
    bars = ax.bar(range(len(scores)), scores, width=0.72, color=[_BLUE if one else _PALE for one in chosen])
    for bar, value, is_chosen in zip(bars, scores, chosen, strict=True):
        if is_chosen or (len(scores) <= 12 and value >= 0.005):
            where = (bar.get_x() + bar.get_width() / 2, value + 0.012)
            colour, weight = (INK, "bold") if is_chosen else (QUIET, "normal")
            ax.text(*where, f"{value:.2f}", ha="center", va="bottom", color=colour, fontsize=8, weight=weight)
    ax.axhline(CLEAR, color=QUIET, linestyle="--", linewidth=1)
    ax.text(len(scores) - 0.45, CLEAR + 0.01, "clear", ha="right", va="bottom", color=QUIET, fontsize=8)


class Decision(NamedTuple):
    """The answer, its grade, and the reason in a sentence or two."""

    n_clusters: int
    grade: Literal["clear", "likely", "none"]
    reason: str


def decide(candidates: Sequence[Candidate], likely: tuple[int, int] | None = None, error: float = 0.0) -> Decision:
    """Choose the finest candidate that is clear and not much worse than the best; else the most stable likely one.

    ``likely`` are the smallest and the largest number that mixtures support, None if a null model explains the data
    as well: the answer is then one cluster. ``error`` is the standard error of the greatest gain over it. Groups that
    explain far less than finer clusters do are a coarse view of these, if these are clear or the groups barely are.

    Neighbouring clusters are less separated than groups of them are, so the best score is often that of a coarse view.
    Splitting a cluster, though, leaves hardly a gap: the finest clear candidate is the most informative. A candidate
    whose clusterings leave clusters empty really has a smaller number, so one that fills all of its own is preferred.
    """
    filled = [candidate for candidate in candidates if candidate.in_use > candidate.n_clusters - 0.5] or candidates
    best = find_best(filled)
    clear = [candidate for candidate in filled if candidate.score >= max(CLEAR, _SHARE_OF_BEST * best.score)]
    most = max(candidate.gain for candidate in candidates)
    if clear:
        chosen = max(clear, key=lambda candidate: candidate.n_clusters)
        # Groups that are far apart make the clusters within them look close.
        within = [each for each in filled if each.is_clear and each.gain >= _MUCH * most > chosen.gain]
        chosen = max([chosen, *within], key=lambda candidate: candidate.n_clusters)
        if likely is None or chosen.score >= _FAR_APART or chosen.gain >= _MUCH * most:
            n_clusters = max(2, round(chosen.in_use))
            return Decision(n_clusters, "clear", _explain_choice(chosen, n_clusters, candidates))
    gain = f"log-density {most:+.2f} ± {error:.2f} a row"
    if likely is None:
        null = f"a null model of one cluster explains the data as well ({gain})"
        return Decision(1, "none", f"No clear structure: {null}; {_explain_doubt(best)} {_advise(best)}")
    among = [candidate for candidate in candidates if likely[0] <= candidate.n_clusters <= likely[1]]
    number = max(among, key=lambda candidate: candidate.stability).n_clusters
    text = (
        f"{number} clusters are likely: they explain held-out rows better than a null model of one cluster ({gain}), "
        "though there are no clear gaps between all of them."
    )
    if likely[0] < likely[1]:
        text += f" Mixtures speak for {likely[0]} to {likely[1]}; of these, subsamples agree most on {number}."
    if clear:
        text += f" There are gaps between {chosen.n_clusters} groups."
    return Decision(number, "likely", text)


def find_best(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate with the highest score; if all scores are 0, the most stable one."""
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


def _advise(best: Candidate) -> str:
    """Advice if no candidate is clear."""
    columns = advised("leave out columns that tell little", f"leave out columns that tell little ({option('drop')})")
    return (
        f"Columns of noise hide clusters: {columns}, or look at {best.n_clusters} clusters all the same, as a way to "
        f"part the rows rather than as kinds that are there ({option('n_clusters', best.n_clusters)})."
    )


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of the same fields as CSV text, without fields that are None in all of them."""
    text = io.StringIO()
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([row[name] for name in names] for row in rows)
    return text.getvalue()


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows of a table as lines, each column aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _markdown(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
