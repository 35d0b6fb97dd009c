"""Synthetic experiments and records: toys, and plausible metrics of each real experiment."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pollux.clustering import CollapseWarning
from pollux.lab.grid import Display, Failure, Limits, RunContext, Task, perform
from pollux.lab.paper import EXPERIMENTS, cifar10
from pollux.lab.paper.experiment import Experiment, Protocol
from pollux.lab.paper.mi_boundaries import DISTANCES, difference, limit
from pollux.lab.paper.reproduction import ExperimentTask
from pollux.lab.pretraining import ImageEncoder, save_encoder
from pollux.lab.records import Record, Run, Settings
from pollux.training import Epoch

VERSIONS = {"python": "3.11.0", "pollux": "0.1.0"}


def made_up(run: Run) -> Record:
    """Return a record of a run, always the same for the same run."""
    noise = np.random.default_rng([int(run.key[-8:], 16), run.seed]).random(2)
    metrics: dict[str, Any]
    if run.experiment == "mi-boundaries":
        exact = [difference(distance, run.settings["epsilon"]) for distance in DISTANCES]
        spread = [0.01] * len(exact)
        metrics = {"distances": list(DISTANCES), "mean": exact, "deviation": spread, "closed_form": exact}
        metrics["limit"] = [limit(distance) for distance in DISTANCES]
    elif run.experiment == "complexity":
        rounds = run.settings["clusters"] ** (2 if run.settings["objective"].endswith("ovo") else 1)
        metrics = {"median_seconds": 1e-5 * run.settings["batch"] * rounds * (1 + noise[0]), "repeats": 3}
    else:
        most = run.settings.get("clusters", 50 if run.experiment == "model-selection" else 10)
        clusters = math.ceil(most * (0.5 + noise[1] / 2))
        score = round(0.3 + 0.3 * noise[0], 6)
        metrics = {"adjusted_rand_index": score, "clusters": clusters, "curve": [[1, 0.1, most], [5, score, clusters]]}
    return Record(run, metrics, 1.5, VERSIONS)


def made_up_records(name: str, profile: str = "paper", runs: int = 2) -> list[Record]:
    """Return records of the whole grid of an experiment."""
    protocol = EXPERIMENTS[name].protocols[profile]
    return [made_up(run) for run in Protocol(protocol.grid, min(runs, protocol.runs)).all_runs(name)]


def toy_measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    if settings["kind"] == "bad":
        raise ValueError("out of [/range] ε")
    if settings["kind"] == "odd":
        return {"objective": object()}
    if settings["kind"] == "warns":
        warnings.warn("2 clusters of 3", CollapseWarning, stacklevel=1)
    if context.model_path is not None:
        context.model_path.parent.mkdir(exist_ok=True)
        context.model_path.write_text("a model")
    for callback in context.callbacks:
        callback(Epoch(1, 1, {"objective": 0.5, "clusters": 3, "entropy": 0.1}))
    return {"adjusted_rand_index": 0.5, "clusters": 3, "objective": 1.0}


def toy(**changed: Any) -> Experiment:
    """Return an experiment that takes no time."""
    grid = [{"kind": kind, "epochs": 5, "weight": 0.0} for kind in ("good", "other")] + [{"kind": "fixed", "on": True}]
    protocols = {"quick": Protocol(grid, 2, "2 runs"), "paper": Protocol([*grid, {"kind": "long", "epochs": 9}], 4)}
    defaults: dict[str, Any] = {"name": "toy", "title": "A toy", "place": "nowhere", "protocols": protocols}
    defaults |= {"measure": toy_measure, "tables": lambda records: []}
    return Experiment(**(defaults | changed))


def grid_of(*kinds: str, seeds: int = 1) -> list[Run]:
    """Return runs of the toy experiment."""
    return Protocol([{"kind": kind} for kind in kinds], seeds).all_runs("toy")


def perform_run(run: Run, folder: Path) -> Record:
    """Perform a run of an experiment in this process."""
    return perform(ExperimentTask(run), folder, Limits(1, 1))


def write_encoder(folder: Path, channels: int = 3) -> Path:
    """Write a small image encoder to where an experiment looks for it."""
    torch.manual_seed(0)
    save_encoder(folder / cifar10.ENCODER, ImageEncoder(channels, widths=(4, 6), blocks=(1, 1)))
    return folder / cifar10.ENCODER


class Spy(Display):
    """A display that stores its calls."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Task]] = []
        self.epochs: list[int] = []
        self.records: list[Record] = []
        self.failures: list[Failure] = []

    def began(self, task: Task) -> None:
        self.events.append(("began", task))

    def epoch(self, task: Task, epoch: Epoch) -> None:
        self.events.append(("epoch", task))
        self.epochs.append(epoch.number)

    def done(self, task: Task, record: Record) -> None:
        self.events.append(("done", task))
        self.records.append(record)

    def failed(self, failure: Failure) -> None:
        self.events.append(("failed", failure.task))
        self.failures.append(failure)
