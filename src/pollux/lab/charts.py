"""Helpers shared by all figures: axes, legends, colours, saved models and their decision regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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

# Grid points along each axis of the plane at which clusters are predicted.
RESOLUTION = 200
FAMILIES = ("kl", "hellinger", "tv", "mmd", "wasserstein")


class SavedModel(NamedTuple):
    """The record of a run and its fitted model."""

    record: Record
    clustering: GeminiClustering


def load_saved(records: Sequence[Record], folder: Path, wanted: Mapping[str, Any]) -> SavedModel | None:
    """Return the run of seed 0 with these settings and its model; None if it is not recorded or saved no model."""
    for record in records:
        if record.run.seed == 0 and record.run.has(wanted):
            path = model_path(folder, record.run)
            if path.exists():
                return SavedModel(record, load(path))
    return None


def ari_label(record: Record) -> str:
    """Return the score as in 'ARI 0.932'."""
    return f"ARI {typeset(format(record.metrics['adjusted_rand_index'], '.3f'))}"


def set_title(ax: Axes, title: str) -> Axes:
    """Set the title of the axes and return them."""
    ax.set_title(title, **TITLE)
    return ax


def mark_not_run(ax: Axes) -> None:
    """Mark an empty panel as not run."""
    clean_axes(ax).grid(visible=False)
    # Panels may share their ticks with others: hide only the labels of this one.
    ax.tick_params(labelleft=False, labelbottom=False)
    ax.text(0.5, 0.5, "not run", transform=ax.transAxes, color=QUIET, ha="center", va="center")


def set_grid(ax: Axes, x: str = "", y: str = "") -> Axes:
    """Label the axes and add grid lines, for plots of curves."""
    clean_axes(ax)
    ax.set_xlabel(x, color=QUIET)
    ax.set_ylabel(y, color=QUIET)
    ax.grid(color=GRID)
    ax.set_axisbelow(True)
    return ax


def add_legend(ax: Axes, **where: Any) -> None:
    """Add a legend without a frame."""
    ax.legend(frameon=False, fontsize=8.5, labelcolor=INK, **where)


def add_shared_legend(figure: Figure, panels: Iterable[Axes], names: Iterable[str] = (), **how: Any) -> None:
    """Add a legend without a frame for all panels, each label once; ``names`` are those to show, in order."""
    found = {label: line for ax in panels for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    shown = [name for name in names or found if name in found]
    figure.legend([found[name] for name in shown], shown, frameon=False, fontsize=9, labelcolor=INK, **how)


def family_colour(objective: str) -> str:
    """Return the colour of a GEMINI's family, the same in all figures."""
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
    """Draw a panel for each saved model, titled by its run; return {name: figure}, or {} if there is no model."""
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
    """Draw the decision regions of a model over the plane of the samples X (n, 2)."""
    plot_decision_regions(run.clustering.predict_proba, X, resolution=RESOLUTION, ax=ax)
    ax.set(xticks=[], yticks=[])
