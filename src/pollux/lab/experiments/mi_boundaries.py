"""Maximising the MI can lead to bad decision boundaries: a right model A and an odd one B have the same MI."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr
from scipy.stats import norm

from pollux.errors import InputError
from pollux.lab.experiments.drawing import draw_mi_boundaries
from pollux.lab.experiments.experiment import Experiment, Protocol, Record, Run, RunContext, Settings
from pollux.lab.experiments.tables import Cell, Figure, Row, Table
from pollux.objectives import Gemini

EPSILONS = (0.1, 0.01, 0.001, 1e-6)
SHOWN = (1.0, 2.0, 4.0, 6.0)
DISTANCES = tuple(np.round(np.linspace(0.25, 8, 32), 2).tolist())


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """The MI of model A less that of model B, for each distance of the two means: 50 estimates from 1000 samples."""
    generator = np.random.RandomState(seed)
    differences = [_differences(distance, settings, generator) for distance in DISTANCES]
    return {
        "distances": list(DISTANCES),
        "mean": [float(part.mean()) for part in differences],
        "deviation": [float(part.std()) for part in differences],
        "closed_form": [difference(distance, settings["epsilon"]) for distance in DISTANCES],
        "limit": [limit(distance) for distance in DISTANCES],
    }


def _differences(distance: float, settings: Settings, generator: np.random.RandomState) -> NDArray[np.float64]:
    """Estimates of I_A − I_B, one from each of the draws."""
    shape = (settings["draws"], settings["samples"])
    x = generator.standard_normal(shape) + distance * generator.randint(2, size=shape)
    a, b = in_model_a(x, distance), in_model_b(x, distance)
    information = [Gemini("mi")(_log_probabilities(inside, settings["epsilon"])) for inside in (a, b)]
    return (information[0] - information[1]).numpy()


def in_model_a(x: ArrayLike, distance: float) -> NDArray[np.bool_]:
    """Model A puts into cluster 1 what is nearer to the second mean; the means are 0 and ``distance``."""
    return np.asarray(x) > distance / 2


def in_model_b(x: ArrayLike, distance: float) -> NDArray[np.bool_]:
    """Model B puts into cluster 1 what lies between the means."""
    x = np.asarray(x)
    return (x >= 0) & (x <= distance)


def _log_probabilities(inside: NDArray[np.bool_], epsilon: float) -> torch.Tensor:
    """log p(y|x) (…, n, 2): 1 − ε for the cluster that x is in, ε for the other."""
    sure, unsure = math.log1p(-epsilon), math.log(epsilon)
    return torch.from_numpy(np.stack([np.where(inside, unsure, sure), np.where(inside, sure, unsure)], -1))


def between(distance: float) -> float:
    """β, the share of the data between the two means."""
    return float(norm.cdf(distance) - 0.5)


def difference(distance: float, epsilon: float) -> float:
    """I_A − I_B in closed form: log 2 − H(π) with π = ε + β (1 − 2ε), the share of model B's cluster 1."""
    share = epsilon + between(distance) * (1 - 2 * epsilon)
    return math.log(2) - float(entr(share) + entr(1 - share))


def limit(distance: float) -> float:
    """log 2 − H(β), to which the difference tends as ε → 0."""
    return difference(distance, 0.0)


def tables(records: Sequence[Record]) -> list[Table]:
    """Measured differences beside the closed form."""
    rows = []
    for record in records:
        metrics = record.metrics
        at = [metrics["distances"].index(distance) for distance in SHOWN]
        draws = record.run.settings["draws"]
        cells = [
            Cell(Figure(metrics["closed_form"][i]), Figure(metrics["mean"][i], metrics["deviation"][i], draws))
            for i in at
        ]
        seed = f", seed {record.run.seed}" if record.run.seed else ""
        rows.append(Row(f"ε = {record.run.settings['epsilon']:g}{seed}", cells))
    columns = [f"|μ1 − μ0| = {distance:g} σ" for distance in SHOWN]
    notes = ["The closed form is that of appendix A, whose limit for ε → 0 is log 2 − H(β)."]
    return [Table("I_A − I_B, in nats", columns, rows, "nats", notes, "closed form")]


def conclusion(records: Sequence[Record]) -> list[str]:
    """What is measured is the closed form, and it vanishes for distant means."""
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
    """Complain of what is no probability."""
    for run in runs:
        if not 0 < run.settings["epsilon"] < 1:
            raise InputError(f"epsilon is a probability, between 0 and 1; not {run.settings['epsilon']:g}.")


EXPERIMENT = Experiment(
    name="mi-boundaries",
    title="Maximising the MI can lead to bad decision boundaries",
    place="figure 1 and appendix A",
    protocols={
        "paper": Protocol([{"epsilon": epsilon, "draws": 50, "samples": 1000} for epsilon in EPSILONS], runs=1),
        "quick": Protocol([{"epsilon": epsilon, "draws": 50, "samples": 1000} for epsilon in EPSILONS], runs=1),
    },
    measure=measure,
    tables=tables,
    figures=draw_mi_boundaries,
    conclusion=conclusion,
    check=check,
)
