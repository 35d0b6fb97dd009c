"""What all figures have in common: axes, legends, colours, saved models and their decision regions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pollux.clustering import GeminiClustering, load
from pollux.lab.grid import model_path
from pollux.lab.records import Record
from pollux.lab.results import typeset
from pollux.report.canvas import GRID, INK, QUIET, TITLE, clean_axes, colours, new_figure
from pollux.report.figures import plot_decision_regions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Predictions along each axis of the plane.
RESOLUTION = 200
FAMILIES = ("kl", "hellinger", "tv", "mmd", "wasserstein")


class SavedModel(NamedTuple):
    """A run and its model."""

    record: Record
    clustering: GeminiClustering


def load_saved(records: Sequence[Record], folder: Path, wanted: Mapping[str, Any]) -> SavedModel | None:
    """The run of these settings and of seed 0, if it is recorded and its model was saved."""
    for record in records:
        if record.run.seed == 0 and record.run.has(wanted):
            path = model_path(folder, record.run)
            if path.exists():
                return SavedModel(record, load(path))
    return None


def ari_label(record: Record) -> str:
    """'ARI 0.932'."""
    return f"ARI {typeset(format(record.metrics['adjusted_rand_index'], '.3f'))}"


def set_title(ax: Axes, title: str) -> Axes:
    """Give axes a title; the axes."""
    ax.set_title(title, **TITLE)
    return ax


def mark_not_run(ax: Axes) -> None:
    """An empty panel that says why."""
    clean_axes(ax).grid(visible=False)
    # Panels may share their ticks with others: only these are hidden.
    ax.tick_params(labelleft=False, labelbottom=False)
    ax.text(0.5, 0.5, "not run", transform=ax.transAxes, color=QUIET, ha="center", va="center")


def set_grid(ax: Axes, x: str = "", y: str = "") -> Axes:
    """Axes of curves: named, with lines to read levels by."""
    clean_axes(ax)
    ax.set_xlabel(x, color=QUIET)
    ax.set_ylabel(y, color=QUIET)
    ax.grid(color=GRID)
    ax.set_axisbelow(True)
    return ax


def add_legend(ax: Axes, **where: Any) -> None:
    """A legend without a frame."""
    ax.legend(frameon=False, fontsize=8.5, labelcolor=INK, **where)


def family_colour(objective: str) -> str:
    """The colour of a GEMINI's family, the same in all figures."""
    return colours(len(FAMILIES))[FAMILIES.index(objective.split("_")[0])]


def draw_panels(
    name: str,
    found: Mapping[str, SavedModel | None],
    size: tuple[float, float],
    shape: tuple[int, int],
    draw: Callable[[Axes, SavedModel], None],
    caption: str,
    describe: Callable[[Record], str] = lambda record: f": {ari_label(record)}",
) -> dict[str, Figure]:
    """A figure by its name: a panel for each saved model, under a title that describes its run; nothing of nothing."""
    if not any(found.values()):
        return {}
    figure = new_figure(*size)
    panels = np.ravel(figure.subplots(*shape))
    for (title, run), ax in zip(found.items(), panels, strict=True):
        set_title(ax, title + describe(run.record) if run else title)
        if run is None:
            mark_not_run(ax)
        else:
            draw(ax, run)
    figure.set_label(caption)
    return {name: figure}


def draw_regions(ax: Axes, run: SavedModel, X: NDArray[Any]) -> None:
    """The clusters of a model over the plane of the samples X (n, 2)."""
    plot_decision_regions(run.clustering.predict_proba, X, resolution=RESOLUTION, ax=ax)
    ax.set(xticks=[], yticks=[])
