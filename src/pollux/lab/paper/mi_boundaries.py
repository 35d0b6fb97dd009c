"""Maximising the MI can lead to bad decision boundaries: a good model A and a poor one B have the same MI."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr
from scipy.stats import norm

from pollux.errors import InputError
from pollux.lab.charts import add_legend, set_grid, set_title
from pollux.lab.grid import RunContext
from pollux.lab.paper.comparisons import Comparison, ComparisonRow, ComparisonTable, Estimate
from pollux.lab.paper.experiment import Experiment, Protocol
from pollux.lab.records import Record, Run, Settings
from pollux.objectives import Gemini
from pollux.report.canvas import INK, QUIET, clean_axes, colours, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPSILONS = (0.1, 0.01, 0.001, 1e-6)
SHOWN = (1.0, 2.0, 4.0, 6.0)
DISTANCES = tuple(np.round(np.linspace(0.25, 8, 32), 2).tolist())
# For the drawings of the mixture: the distance of the means in standard deviations, and the ε of the two models.
DRAWN_DISTANCE, DRAWN_EPSILON = 3.0, 0.05


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """Estimate the MI of model A minus that of model B, 50 times from 1000 samples, for each distance of the means."""
    generator = np.random.RandomState(seed)
    shape, epsilon = (settings["draws"], settings["samples"]), settings["epsilon"]
    # log p(y|x): probability 1 − ε for the cluster of x, ε for the other.
    sure, unsure = math.log1p(-epsilon), math.log(epsilon)
    differences = []
    for distance in DISTANCES:
        x = generator.standard_normal(shape) + distance * generator.randint(2, size=shape)
        inside = [model(x, distance) for model in (in_model_a, in_model_b)]
        log_p = [np.stack([np.where(one, unsure, sure), np.where(one, sure, unsure)], -1) for one in inside]
        a, b = (Gemini("mi")(torch.from_numpy(one)) for one in log_p)
        differences.append((a - b).numpy())
    return {
        "distances": list(DISTANCES),
        "mean": [float(part.mean()) for part in differences],
        "deviation": [float(part.std()) for part in differences],
        "closed_form": [difference(distance, epsilon) for distance in DISTANCES],
        "limit": [limit(distance) for distance in DISTANCES],
    }


def in_model_a(x: ArrayLike, distance: float) -> NDArray[np.bool_]:
    """Whether x is in cluster 1 of model A: nearer to the second mean; the means are 0 and ``distance``."""
    return np.asarray(x) > distance / 2


def in_model_b(x: ArrayLike, distance: float) -> NDArray[np.bool_]:
    """Whether x is in cluster 1 of model B: between the two means."""
    x = np.asarray(x)
    return (x >= 0) & (x <= distance)


def between(distance: float) -> float:
    """Return β, the probability of the interval between the two means."""
    return float(norm.cdf(distance) - 0.5)


def difference(distance: float, epsilon: float) -> float:
    """Return I_A − I_B in closed form: log 2 − H(π) with π = ε + β (1 − 2ε), the proportion of model B's cluster 1."""
    share = epsilon + between(distance) * (1 - 2 * epsilon)
    return math.log(2) - float(entr(share) + entr(1 - share))


def limit(distance: float) -> float:
    """Return log 2 − H(β), the limit of the difference as ε → 0."""
    return difference(distance, 0.0)


def tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """Return the measured differences beside the closed form."""
    rows = []
    for record in records:
        metrics, settings = record.metrics, record.run.settings
        cells = [
            Comparison(
                Estimate(metrics["closed_form"][i]),
                Estimate(metrics["mean"][i], metrics["deviation"][i], settings["draws"]),
            )
            for i in (metrics["distances"].index(distance) for distance in SHOWN)
        ]
        seed = f", seed {record.run.seed}" if record.run.seed else ""
        rows.append(ComparisonRow(f"ε = {settings['epsilon']:g}{seed}", cells))
    columns = [f"|μ1 − μ0| = {distance:g} σ" for distance in SHOWN]
    notes = ["The closed form is that of appendix A, whose limit for ε → 0 is log 2 − H(β)."]
    return [ComparisonTable("I_A − I_B, in nats", columns, rows, "nats", notes, "closed form")]


def conclusion(records: Sequence[Record]) -> list[str]:
    """Say whether the measured differences agree with the closed form and vanish for distant means."""
    if not records:
        return []
    worst = max(
        abs(mean - expected)
        for record in records
        for mean, expected in zip(record.metrics["mean"], record.metrics["closed_form"], strict=True)
    )
    last = max(abs(record.metrics["mean"][-1]) for record in records)
    agree = worst < 0.01 and last < 0.01
    return [
        f"As in the paper: {'yes' if agree else 'NO'}. Measured and closed form differ by at most {worst:.4f} nats at "
        f"any of {len(DISTANCES)} distances; at "
        f"{DISTANCES[-1]:g} σ the odd boundary has the MI of the right one to within {last:.4f} nats."
    ]


def check(runs: Sequence[Run], folder: Path) -> None:
    """Raise an InputError if an ε is not a probability."""
    for run in runs:
        if not 0 < run.settings["epsilon"] < 1:
            raise InputError(f"epsilon is a probability, between 0 and 1; not {run.settings['epsilon']:g}.")


def draw_mi_boundaries(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Draw the boundaries of both models, and the difference of their MI."""
    if not records:
        return {}
    return {"boundaries": _draw_boundaries(), "differences": _draw_differences(records)}


def _mixture(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the density of two Gaussians in equal proportions, with means 0 and ``DRAWN_DISTANCE``."""
    return np.asarray((norm.pdf(x) + norm.pdf(x - DRAWN_DISTANCE)) / 2)


def _draw_boundaries() -> Figure:
    figure = new_figure(9, 3.3)
    models = {"A: a good boundary": in_model_a, "B: odd boundaries": in_model_b}
    panels = figure.subplots(1, 2, sharey=True)
    for (name, model), ax in zip(models.items(), panels, strict=True):
        x = _density(set_title(ax, name))
        inside = np.where(model(x, DRAWN_DISTANCE), 1 - DRAWN_EPSILON, DRAWN_EPSILON)
        second = ax.twinx()
        second.plot(x, inside, color=colours(2)[1], linewidth=2, drawstyle="steps-mid")
        clean_axes(second).set(ylim=(0, 1.08), yticks=[0, 0.5, 1])
        second.tick_params(axis="y", labelcolor=colours(2)[1])
    second.set_ylabel("p(y = 1 | x)", color=colours(2)[1])
    panels[0].set_ylabel("density", color=QUIET)
    figure.set_label(
        f"A mixture of two Gaussian distributions (grey), {DRAWN_DISTANCE:g} standard deviations apart, and two "
        f"models of it (red), whose clusters are certain but for ε = {DRAWN_EPSILON:g}. The first separates the "
        "distributions, the second takes what lies between their means for a cluster, and as the means move apart the "
        "MI does not tell them apart."
    )
    return figure


def _density(ax: Axes) -> NDArray[np.float64]:
    """Draw the mixture, up to 4 standard deviations beyond its means; return the abscissae."""
    x = np.linspace(-4, DRAWN_DISTANCE + 4, 1601)
    clean_axes(ax)
    ax.fill_between(x, _mixture(x), color="#dfe3e8")
    ax.plot(x, _mixture(x), color=QUIET, linewidth=1.2)
    ax.set_ylim(0, 0.26)
    ax.set_xticks([0, DRAWN_DISTANCE], ["μ0", "μ1"], color=INK)
    ax.set_yticks([0, 0.1, 0.2])
    return x


def _draw_differences(records: Sequence[Record]) -> Figure:
    figure = new_figure(10.4, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    set_grid(set_title(left, "MI of model A less that of model B"), "|μ1 − μ0| / σ", "$I_A - I_B$ (nats)")
    for number, (record, colour) in enumerate(zip(records, colours(len(records)), strict=True)):
        metrics = record.metrics
        # Smaller marks for each further curve, because the curves of small ε coincide.
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
    add_legend(left)
    x = _density(set_title(right, "β: the share between the means"))
    middle, ends = x[(x >= 0) & (x <= DRAWN_DISTANCE)], np.array([0, DRAWN_DISTANCE])
    share = {"color": colours(1)[0], "ha": "center", "fontsize": 11}
    right.fill_between(middle, _mixture(middle), color=colours(1)[0], alpha=0.45, linewidth=0)
    right.set_yticks([])
    right.text(DRAWN_DISTANCE / 2, 0.235, f"β = {between(DRAWN_DISTANCE):.3f}", **share)
    right.vlines(ends, 0, _mixture(ends), color=INK, linewidth=0.8, linestyle=":")
    figure.set_label(
        "Left: the difference of the MI of the two models, mean and standard deviation of the estimates, against the "
        "distance of the means; lines are the closed form of appendix A. Right: the mixture, with means "
        f"{DRAWN_DISTANCE:g} σ apart, and β, the share of the data that model B puts into a cluster of its own."
    )
    return figure


EXPERIMENT = Experiment(
    name="mi-boundaries",
    title="Maximising the MI can lead to bad decision boundaries",
    place="figure 1 and appendix A",
    protocols=dict.fromkeys(
        ("paper", "quick"),
        Protocol([{"epsilon": epsilon, "draws": 50, "samples": 1000} for epsilon in EPSILONS], runs=1),
    ),
    measure=measure,
    tables=tables,
    figures=draw_mi_boundaries,
    conclusion=conclusion,
    check=check,
)
