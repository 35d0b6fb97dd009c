"""Figures of numbers against numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pollux.lab.experiments.drawing.common import colour_of, keyed, not_run, ruled, titled
from pollux.lab.experiments.experiment import Record
from pollux.lab.experiments.measuring import OBJECTIVES
from pollux.lab.experiments.tables import figure_of
from pollux.report.canvas import clean_axes, new_figure
from pollux.report.palette import INK, QUIET, colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distance of the means in the drawings of the mixture, in standard deviations, and the ε of the two models.
DISTANCE, EPSILON = 3.0, 0.05


def draw_mi_boundaries(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """The right boundary and the odd one, and how their MI differ."""
    if not records:
        return {}
    return {"boundaries": _boundaries(), "differences": _differences(records)}


def _mixture(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Density of two Gaussians in equal parts, with means 0 and ``DISTANCE``."""
    return np.asarray((norm.pdf(x) + norm.pdf(x - DISTANCE)) / 2)


def _boundaries() -> Figure:
    from pollux.lab.experiments.mi_boundaries import in_model_a, in_model_b

    figure = new_figure(9, 3.3)
    models = {"A: a good boundary": in_model_a, "B: odd boundaries": in_model_b}
    panels = figure.subplots(1, 2, sharey=True)
    for (name, model), ax in zip(models.items(), panels, strict=True):
        x = _density(titled(ax, name))
        inside = np.where(model(x, DISTANCE), 1 - EPSILON, EPSILON)
        second = ax.twinx()
        second.plot(x, inside, color=colours(2)[1], linewidth=2, drawstyle="steps-mid")
        clean_axes(second).set(ylim=(0, 1.08), yticks=[0, 0.5, 1])
        second.tick_params(axis="y", labelcolor=colours(2)[1])
    second.set_ylabel("p(y = 1 | x)", color=colours(2)[1])
    panels[0].set_ylabel("density", color=QUIET)
    figure.set_label(
        f"A mixture of two Gaussian distributions (grey) and two models of it (red), whose clusters are certain but "
        f"for ε = {EPSILON:g}. The first separates the distributions, the second takes what lies between their means "
        "for a cluster, and as the means move apart the MI does not tell them apart."
    )
    return figure


def _density(ax: Axes) -> NDArray[np.float64]:
    """The mixture, from −4 deviations to 4; where it was drawn."""
    x = np.linspace(-4, DISTANCE + 4, 1601)
    clean_axes(ax)
    ax.fill_between(x, _mixture(x), color="#dfe3e8")
    ax.plot(x, _mixture(x), color=QUIET, linewidth=1.2)
    ax.set_ylim(0, 0.26)
    ax.set_xticks([0, DISTANCE], ["μ0", "μ1"], color=INK)
    ax.set_yticks([0, 0.1, 0.2])
    return x


def _differences(records: Sequence[Record]) -> Figure:
    figure = new_figure(10.4, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    ruled(titled(left, "MI of model A less that of model B"), "|μ1 − μ0| / σ", "$I_A - I_B$ (nats)")
    for number, (record, colour) in enumerate(zip(records, colours(len(records)), strict=True)):
        metrics = record.metrics
        # Ever smaller, for the curves of small ε lie on each other.
        size = max(2.5, 6.5 - 1.3 * number)
        style: dict[str, Any] = {"fmt": "o", "markersize": size, "elinewidth": 1, "color": colour, "zorder": 3}
        label = f"measured, ε = {record.run.settings['epsilon']:g}"
        left.errorbar(metrics["distances"], metrics["mean"], metrics["deviation"], label=label, **style)
        known = "closed form" if not number else None
        left.plot(metrics["distances"], metrics["closed_form"], color=colour, linewidth=1, label=known)
    metrics = records[0].metrics
    limit = {"color": INK, "linewidth": 1.4, "linestyle": "--", "label": "log 2 − H(β), ε → 0"}
    left.plot(metrics["distances"], metrics["limit"], **limit)
    left.set_xlim(0)
    keyed(left)
    _between(titled(right, "β: the share between the means"))
    figure.set_label(
        "Left: the difference of the MI of the two models, mean and standard deviation of the estimates, against the "
        "distance of the means; lines are the closed form of appendix A. Right: the mixture, and β, the share of the "
        "data that model B puts into a cluster of its own."
    )
    return figure


def _between(ax: Axes) -> None:
    from pollux.lab.experiments.mi_boundaries import between

    x = _density(ax)
    middle = x[(x >= 0) & (x <= DISTANCE)]
    ax.fill_between(middle, _mixture(middle), color=colours(1)[0], alpha=0.45, linewidth=0)
    ax.set_yticks([])
    ax.text(DISTANCE / 2, 0.235, f"β = {between(DISTANCE):.3f}", color=colours(1)[0], ha="center", fontsize=11)
    ax.vlines([0, DISTANCE], 0, _mixture(np.array([0, DISTANCE])), color=INK, linewidth=0.8, linestyle=":")


def draw_model_selection(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """ARI against clusters in use, a dot for each run."""
    from pollux.lab.experiments.mnist import MODEL_NAMES
    from pollux.lab.experiments.model_selection import ASKED

    if not records:
        return {}
    figure = new_figure(9, 4.1)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for (model, name), ax in zip(MODEL_NAMES.items(), panels, strict=True):
        of_model = [record for record in records if record.run.settings["model"] == model]
        ruled(titled(ax, name), f"clusters in use, of {ASKED}")
        if of_model:
            _dots(ax, of_model)
        else:
            not_run(ax)
    panels[0].set(xlim=(0, ASKED + 1))
    panels[0].set_ylim(bottom=min(0.0, panels[0].get_ylim()[0]))
    panels[0].set_ylabel("ARI", color=QUIET)
    dots = next((ax for ax in panels if ax.collections), panels[0]).get_legend_handles_labels()
    style: dict[str, Any] = {"ncols": 2, "frameon": False, "fontsize": 9, "labelcolor": INK, "scatteryoffsets": [0.5]}
    figure.legend(*dots, loc="outside lower right", **style)
    figure.set_label("ARI of each run on the test images of MNIST against the clusters that it uses.")
    return {"clusters": figure}


def _dots(ax: Axes, records: Sequence[Record]) -> None:
    from pollux.lab.experiments.model_selection import CHOSEN

    for objective in CHOSEN:
        metrics = [record.metrics for record in records if record.run.settings["objective"] == objective]
        x, y = ([entry[name] for entry in metrics] for name in ("clusters", "adjusted_rand_index"))
        ax.scatter(x, y, label=OBJECTIVES[objective], s=34, alpha=0.75, linewidths=0, color=colour_of(objective))


def draw_complexity(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Seconds against the number of clusters, for small and for large batches."""
    from pollux.lab.experiments.complexity import BATCHES

    if not records:
        return {}
    figure = new_figure(10.4, 4.4)
    panels = figure.subplots(1, len(BATCHES), sharey=True)
    for batch, ax in zip(BATCHES, panels, strict=True):
        of_batch = [record for record in records if record.run.settings["batch"] == batch]
        ruled(titled(ax, f"{batch} samples per batch"), "clusters")
        if of_batch:
            _times(ax, of_batch)
        else:
            not_run(ax)
    panels[0].set_ylabel("seconds for value and gradient", color=QUIET)
    lines = next((ax for ax in panels if ax.lines), panels[0]).get_legend_handles_labels()
    figure.legend(*lines, loc="outside right center", frameon=False, fontsize=9, labelcolor=INK)
    figure.set_label(
        "Median time of the value and the gradient of each GEMINI as the number of clusters grows. Solid lines are "
        "one-vs-all, dashed ones one-vs-one."
    )
    return {"time": figure}


def _times(ax: Axes, records: Sequence[Record]) -> None:
    numbers = sorted({record.run.settings["clusters"] for record in records})
    for objective, name in OBJECTIVES.items():
        found = [figure_of(records, {"objective": objective, "clusters": K}, "median_seconds") for K in numbers]
        points = [(K, figure.mean) for K, figure in zip(numbers, found, strict=True) if figure is not None]
        if points:
            line = "--" if objective.endswith("ovo") else "-"
            style: dict[str, Any] = {"marker": "o", "markersize": 3.5, "linewidth": 1.6, "color": colour_of(objective)}
            ax.plot(*zip(*points, strict=True), linestyle=line, label=name, **style)
    ax.set_yscale("log")
    ax.set_xticks(numbers)
    ax.grid(which="minor", visible=False)
