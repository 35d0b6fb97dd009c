"""Figures of samples in the plane and of what models say of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.lab.experiments.drawing.common import Kept, kept, not_run, score, titled
from pollux.lab.experiments.experiment import Record
from pollux.metrics import renyi_entropy
from pollux.report.canvas import clean_axes, colour_map, new_figure, over_the_plane
from pollux.report.figures import plot_decision_regions
from pollux.report.palette import INK, QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The experiments name the functions of this module, so these import the experiments only when they draw.

# Clusters as the paper draws them.
SYMBOLS = (("o", INK), ("^", "#d1495b"), ("x", "#2f6fb2"))
# From the lowest entropy, red, to the highest, blue, as in the paper; pale enough for dots to be seen on them.
ENTROPY = ("#eb9a8c", "#f4bda9", "#fbe3d8", "#f7f7f7", "#d3e4f1", "#86b8dc", "#2f6fb2")
# The last is the Student-t distribution, which the paper has in yellow.
CLASSES = ("#7b4fa3", "#3b8f5a", "#1f2933", "#f5c518")
# A Student-t distribution with one degree of freedom has samples thousands away.
WINDOW = 10.0
# Predictions along each axis.
RESOLUTION = 200


def draw_categorical(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """What a free table of probabilities finds by the MI and by the MMD."""
    from pollux.lab.experiments.categorical import NAMES, samples

    found = {name: kept(records, folder, {"objective": key}) for key, name in NAMES.items()}
    if not any(found.values()):
        return {}
    figure = new_figure(8, 3.6)
    for (name, run), ax in zip(found.items(), figure.subplots(1, len(found)), strict=True):
        titled(ax, f"{name}: {score(run.record)}" if run else name)
        if run is None:
            not_run(ax)
            continue
        _symbols(ax, samples()[0], np.asarray(run.clustering.labels_))
    figure.set_label(
        "Three Gaussian distributions clustered by a free table of probabilities, with the MI (left) and with the MMD "
        "(right). Black dots, red triangles and blue crosses are the three clusters."
    )
    return {"clusters": figure}


def _symbols(ax: Axes, X: NDArray[Any], labels: NDArray[Any]) -> None:
    clean_axes(ax)
    ax.set(xticks=[], yticks=[])
    ax.set_aspect("equal", adjustable="datalim")
    ax.spines[:].set(visible=True, color=QUIET, linewidth=0.6)
    for cluster, (symbol, colour) in enumerate(SYMBOLS):
        members = labels == cluster
        ax.scatter(X[members, 0], X[members, 1], s=26, marker=symbol, color=colour, linewidths=1.3)


def draw_outliers(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Where the predictions are uncertain, by the MI, the MMD and the Wasserstein distance."""
    from pollux.lab.experiments.measuring import OBJECTIVES
    from pollux.lab.experiments.outliers import DRAWN, samples

    drawn = {"degrees_of_freedom": 1, "clusters": 4, "clip": 0.0}
    found = {OBJECTIVES[key]: kept(records, folder, {**drawn, "objective": key}) for key in DRAWN}
    if not any(found.values()):
        return {}
    X, classes = samples(1)
    inside = (np.abs(X) < WINDOW).all(1)
    figure = new_figure(11.4, 3.7)
    panels = figure.subplots(1, len(found))
    for (name, run), ax in zip(found.items(), panels, strict=True):
        titled(ax, f"{name}: {score(run.record)}" if run else name)
        if run is None:
            not_run(ax)
        else:
            _entropy(ax, run, X[inside], classes[inside])
    image = next(ax.images[0] for ax in panels if ax.images)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=QUIET, length=0, labelsize=8)
    bar.set_label("Rényi entropy of order 2 (nats)", color=QUIET, fontsize=9)
    figure.set_label(
        "Rényi entropy of the predictions of models trained for 4 clusters, ρ = 1, seed 0, from lowest (red) to "
        f"highest (blue), within {WINDOW:g} of the origin. Colours of the samples are their classes; yellow is the "
        "Student-t distribution, which reaches thousands away."
    )
    return {"entropy": figure}


def _entropy(ax: Axes, run: Kept, X: NDArray[Any], classes: NDArray[Any]) -> None:
    clean_axes(ax)
    ax.set_aspect("equal")
    corners = np.array([[-WINDOW, -WINDOW], [WINDOW, WINDOW]], dtype=X.dtype)
    place, p = over_the_plane(ax, run.clustering.predict_proba, corners, RESOLUTION, 0.0)
    entropy = renyi_entropy(p.reshape(-1, p.shape[2])).reshape(p.shape[:2])
    ax.imshow(entropy, cmap=colour_map(ENTROPY), vmin=0, vmax=math.log(p.shape[2]), **place)
    ax.scatter(X[:, 0], X[:, 1], s=3, c=np.array(CLASSES)[classes], linewidths=0, alpha=0.7, rasterized=True)
    ax.set(xlim=(-WINDOW, WINDOW), ylim=(-WINDOW, WINDOW))
    ax.locator_params(nbins=5)


def draw_moons(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """The regions of each method's clusters: two of them, and five."""
    from pollux.lab.experiments.moons import CLUSTERS, METHODS, samples

    found = {
        (number, name): kept(records, folder, {**method, "clusters": number})
        for number in CLUSTERS
        for name, method in METHODS.items()
    }
    if not any(found.values()):
        return {}
    figure = new_figure(11.4, 4.9)
    panels = figure.subplots(len(CLUSTERS), len(METHODS)).ravel()
    for ((number, name), run), ax in zip(found.items(), panels, strict=True):
        title = f"{name}\n{number} clusters asked for"
        if run is not None:
            title += f", {run.record.metrics['clusters']} in use: {score(run.record)}"
        _regions(ax, run, samples()[0], title)
    figure.set_label(
        "Decision regions of a perceptron on two moons, seed 0: the MI, Wasserstein OvO with distances along a "
        "neighbour graph, and the same with straight distances, which the paper does not have."
    )
    return {"regions": figure}


def draw_ova_vs_ovo(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Which of three clusters in a row each MMD sees."""
    from pollux.lab.experiments.ova_vs_ovo import NAMES, samples

    found = {name: kept(records, folder, {"objective": key}) for key, name in NAMES.items()}
    if not any(found.values()):
        return {}
    figure = new_figure(7.2, 4.6)
    for (name, run), ax in zip(found.items(), figure.subplots(len(found), 1), strict=True):
        told = f": {run.record.metrics['clusters']} clusters in use, {score(run.record)}" if run else ""
        _regions(ax, run, samples()[0], name + told)
    figure.set_label(
        "Decision regions of a perceptron on three clusters in a row, seed 0. The middle one lies at the mean of the "
        "data: one-vs-all cannot tell it from them, one-vs-one can."
    )
    return {"regions": figure}


def _regions(ax: Axes, run: Kept | None, X: NDArray[Any], title: str) -> None:
    titled(ax, title)
    if run is None:
        not_run(ax)
    else:
        plot_decision_regions(run.clustering.predict_proba, X, resolution=RESOLUTION, ax=ax)
        ax.set(xticks=[], yticks=[])
