"""Choosing a GEMINI: how long each takes, as the number of clusters grows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from pollux.lab.experiments.drawing import draw_complexity
from pollux.lab.experiments.experiment import Experiment, Protocol, Record, RunContext, Settings
from pollux.lab.experiments.measuring import OBJECTIVES
from pollux.lab.experiments.tables import Cell, Row, Table, figure_of
from pollux.objectives import Gemini

BATCHES = (10, 500)
CLUSTERS = (2, 5, 10, 15, 20, 30, 40, 50)
_LEAST_SECONDS = 0.3


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """Value and gradient at random predictions and samples: median seconds, each time at other predictions."""
    generator = torch.Generator().manual_seed(seed)
    n, K = settings["batch"], settings["clusters"]
    gemini = Gemini(settings["objective"])
    points = torch.randn(n, 10, generator=generator)
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    affinity = {None: None, "kernel": points @ points.mT, "distance": distances}[gemini.needs]
    times: list[float] = []
    while len(times) < settings["repeats"] or sum(times) < _LEAST_SECONDS:
        logits = torch.randn(n, K, generator=generator).requires_grad_()
        # A new matrix each time: what was learned of the last one would speed this one up.
        fresh = None if affinity is None else affinity.clone()
        start = time.perf_counter()
        torch.autograd.grad(gemini(logits.log_softmax(-1), fresh), logits)
        times.append(time.perf_counter() - start)
    return {"median_seconds": statistics.median(times), "repeats": len(times)}


def grid(clusters: Sequence[int], repeats: int) -> Iterator[Settings]:
    """All GEMINIs."""
    for batch in BATCHES:
        for objective in OBJECTIVES:
            for number in clusters:
                yield {"objective": objective, "batch": batch, "clusters": number, "repeats": repeats}


def tables(records: Sequence[Record]) -> list[Table]:
    """The paper has a figure: what it shows, in numbers."""
    shown = sorted({record.run.settings["clusters"] for record in records})
    return [
        Table(
            f"Milliseconds for value and gradient, {batch} samples per batch",
            [f"K = {number}" for number in shown],
            [
                Row(name, [_milliseconds(records, key, batch, number) for number in shown])
                for key, name in OBJECTIVES.items()
            ],
            "ms",
        )
        for batch in BATCHES
        if not records or any(record.run.settings["batch"] == batch for record in records)
    ]


def _milliseconds(records: Sequence[Record], objective: str, batch: int, clusters: int) -> Cell:
    wanted = {"objective": objective, "batch": batch, "clusters": clusters}
    return Cell(None, figure_of(records, wanted, "median_seconds", factor=1000))


def conclusion(records: Sequence[Record]) -> list[str]:
    """The slowest and the fastest, at the largest problem."""
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


EXPERIMENT = Experiment(
    name="complexity",
    title="Choosing a GEMINI",
    place="appendix G",
    protocols={
        "paper": Protocol(list(grid(CLUSTERS, 10)), runs=1),
        "quick": Protocol(list(grid((2, 10, 30), 3)), runs=1, remark="3 numbers of clusters, fewer repetitions"),
    },
    measure=measure,
    tables=tables,
    conclusion=conclusion,
    figures=draw_complexity,
    timed=True,
)
