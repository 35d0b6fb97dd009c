"""What the figures of the experiments have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pollux.clustering import GeminiClustering, load
from pollux.lab.experiments.experiment import Record, model_path
from pollux.lab.experiments.tables import typeset
from pollux.report.canvas import GRID, TITLE, clean_axes
from pollux.report.palette import INK, QUIET, colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAMILIES = ("kl", "hellinger", "tv", "mmd", "wasserstein")


class Kept(NamedTuple):
    """The first run of some settings, and its model."""

    record: Record
    clustering: GeminiClustering


def kept(records: Sequence[Record], folder: Path, wanted: Mapping[str, Any]) -> Kept | None:
    """The run of these settings and of seed 0, if it was done and its model is there."""
    for record in records:
        settings = record.run.settings
        if record.run.seed == 0 and all(settings.get(name) == value for name, value in wanted.items()):
            path = model_path(folder, record.run)
            if path.exists():
                return Kept(record, load(path))
    return None


def score(record: Record) -> str:
    """'ARI 0.932'."""
    return f"ARI {typeset(format(record.metrics['adjusted_rand_index'], '.3f'))}"


def titled(ax: Axes, title: str) -> Axes:
    ax.set_title(title, **TITLE)
    return ax


def not_run(ax: Axes) -> None:
    """An empty panel that says why."""
    clean_axes(ax).grid(visible=False)
    # Panels may share their ticks with others: only these are hidden.
    ax.tick_params(labelleft=False, labelbottom=False)
    ax.text(0.5, 0.5, "not run", transform=ax.transAxes, color=QUIET, ha="center", va="center")


def ruled(ax: Axes, x: str = "", y: str = "") -> Axes:
    """Axes of curves: named, with lines to read levels by."""
    clean_axes(ax)
    ax.set_xlabel(x, color=QUIET)
    ax.set_ylabel(y, color=QUIET)
    ax.grid(color=GRID)
    ax.set_axisbelow(True)
    return ax


def keyed(ax: Axes, **where: Any) -> None:
    """A legend without a frame."""
    ax.legend(frameon=False, fontsize=8.5, labelcolor=INK, **where)


def colour_of(objective: str) -> str:
    """The colour of a GEMINI's family, the same in all figures."""
    return colours(len(FAMILIES))[FAMILIES.index(objective.split("_")[0])]
