"""Choosing a GEMINI: the time of each as the number of clusters grows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pollux.lab.charts import add_shared_legend, family_colour, mark_not_run, set_grid, set_title
from pollux.lab.grid import RunContext
from pollux.lab.paper.comparisons import Comparison, ComparisonRow, ComparisonTable, estimate
from pollux.lab.paper.experiment import OBJECTIVES, Experiment, Protocol
from pollux.lab.records import Record, Settings
from pollux.objectives import Gemini
from pollux.report.canvas import QUIET, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES = (10, 500)
CLUSTERS = (2, 5, 10, 15, 20, 30, 40, 50)
_LEAST_SECONDS = 0.3


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """Time the value and gradient at random predictions and samples: median seconds, with new predictions each time."""
    generator = torch.Generator().manual_seed(seed)
    n, K = settings["batch"], settings["clusters"]
    gemini = Gemini(settings["objective"], clip=None)
    points = torch.randn(n, 10, generator=generator)
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    affinity = {None: None, "kernel": points @ points.mT, "distance": distances}[gemini.needs]
    times: list[float] = []
    while len(times) < settings["repeats"] or sum(times) < _LEAST_SECONDS:
        logits = torch.randn(n, K, generator=generator).requires_grad_()
        # A new matrix each time: results cached for the last one would make this one faster.
        fresh = None if affinity is None else affinity.clone()
        start = time.perf_counter()
        torch.autograd.grad(gemini(logits.log_softmax(-1), fresh), logits)
        times.append(time.perf_counter() - start)
    return {"median_seconds": statistics.median(times), "repeats": len(times)}


def grid(clusters: Sequence[int], repeats: int) -> list[Settings]:
    """Return the settings of all GEMINIs."""
    return [
        {"objective": objective, "batch": batch, "clusters": number, "repeats": repeats}
        for batch in BATCHES
        for objective in OBJECTIVES
        for number in clusters
    ]


def tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """Return the numbers that the paper's figure shows."""
    shown = sorted({record.run.settings["clusters"] for record in records})

    def cell(objective: str, batch: int, clusters: int) -> Comparison:
        wanted = {"objective": objective, "batch": batch, "clusters": clusters}
        return Comparison(None, estimate(records, wanted, "median_seconds", factor=1000))

    return [
        ComparisonTable(
            f"Milliseconds for value and gradient, {batch} samples per batch",
            [f"K = {number}" for number in shown],
            [ComparisonRow(name, [cell(key, batch, number) for number in shown]) for key, name in OBJECTIVES.items()],
            "ms",
        )
        for batch in BATCHES
        if not records or any(record.run.settings["batch"] == batch for record in records)
    ]


def conclusion(records: Sequence[Record]) -> list[str]:
    """Compare the slowest and the fastest on the largest problem."""
    largest = max(((r.run.settings["batch"], r.run.settings["clusters"]) for r in records), default=None)
    if largest is None:
        return []
    times = {
        OBJECTIVES[r.run.settings["objective"]]: 1000 * r.metrics["median_seconds"]
        for r in records
        if (r.run.settings["batch"], r.run.settings["clusters"]) == largest
    }
    fastest, slowest = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
    return [
        f"With {largest[0]} samples and {largest[1]} clusters, from {times[fastest]:.3g} ms ({fastest}) to "
        f"{times[slowest]:,.0f} ms ({slowest})."
    ]


def draw_complexity(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Draw seconds against the number of clusters, for small and for large batches."""
    if not records:
        return {}
    figure = new_figure(10.4, 4.4)
    panels = figure.subplots(1, len(BATCHES), sharey=True)
    for batch, ax in zip(BATCHES, panels, strict=True):
        of_batch = [record for record in records if record.run.settings["batch"] == batch]
        set_grid(set_title(ax, f"{batch} samples per batch"), "clusters")
        if not of_batch:
            mark_not_run(ax)
            continue
        numbers = sorted({record.run.settings["clusters"] for record in of_batch})
        for objective, name in OBJECTIVES.items():
            found = [estimate(of_batch, {"objective": objective, "clusters": K}, "median_seconds") for K in numbers]
            points = [(K, time.mean) for K, time in zip(numbers, found, strict=True) if time is not None]
            if points:
                style: dict[str, Any] = {"marker": "o", "markersize": 3.5, "linewidth": 1.6}
                style |= {"color": family_colour(objective), "linestyle": "--" if objective.endswith("ovo") else "-"}
                ax.plot(*zip(*points, strict=True), label=name, **style)
        ax.set_yscale("log")
        ax.set_xticks(numbers)
        ax.grid(which="minor", visible=False)
    panels[0].set_ylabel("seconds for value and gradient", color=QUIET)
    add_shared_legend(figure, panels, loc="outside right center")
    figure.set_label(
        "Median time of the value and the gradient of each GEMINI as the number of clusters grows. Solid lines are "
        "one-vs-all, dashed ones one-vs-one."
    )
    return {"time": figure}


EXPERIMENT = Experiment(
    name="complexity",
    title="Choosing a GEMINI",
    place="appendix G",
    protocols={
        "paper": Protocol(grid(CLUSTERS, 10), runs=1),
        "quick": Protocol(grid((2, 10, 30), 3), runs=1, remark="3 numbers of clusters, fewer repetitions"),
    },
    measure=measure,
    tables=tables,
    conclusion=conclusion,
    figures=draw_complexity,
    timed=True,
)
