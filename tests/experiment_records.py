"""Records of runs that nobody did: what each experiment would measure, made up."""

import math
from typing import Any

import numpy as np

from pollux.lab.experiments import EXPERIMENTS
from pollux.lab.experiments.experiment import Protocol, Record, Run
from pollux.lab.experiments.mi_boundaries import DISTANCES, difference, limit

VERSIONS = {"python": "3.11.0", "pollux": "0.1.0"}


def made_up(run: Run) -> Record:
    """A record of a run, always the same for the same one."""
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
        metrics = {"adjusted_rand_index": round(0.3 + 0.3 * noise[0], 6), "clusters": clusters}
    return Record(run, metrics, 1.5, VERSIONS)


def made_up_records(name: str, profile: str = "paper", runs: int = 2) -> list[Record]:
    """Records of the whole grid of an experiment."""
    protocol = EXPERIMENTS[name].protocols[profile]
    return [made_up(run) for run in Protocol(protocol.grid, min(runs, protocol.runs)).all_runs(name)]
