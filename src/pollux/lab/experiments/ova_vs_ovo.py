"""A geometrical perspective on OvA and OvO: a cluster in the middle of the data, which one-vs-all cannot see."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.clustering import GeminiClustering
from pollux.lab.datasets import blobs
from pollux.lab.experiments.drawing import draw_ova_vs_ovo
from pollux.lab.experiments.experiment import Experiment, Protocol, Record, RunContext, Settings, is_first_run
from pollux.lab.experiments.measuring import score_clustering
from pollux.lab.experiments.tables import Cell, Figure, Row, Table, figure_of

NAMES = {"mmd_ova": "MMD OvA", "mmd_ovo": "MMD OvO"}
# Clusters that each can see, by the appendix.
PUBLISHED = {"mmd_ova": 2, "mmd_ovo": 3}


@functools.lru_cache(maxsize=1)
def samples() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """300 samples of three Gaussians at −2, 0 and 2 on the first axis."""
    return blobs(300, centres=((-2.0, 0.0), (0.0, 0.0), (2.0, 0.0)), std=0.2, random_state=0)


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """A perceptron that is free to draw any boundary between the three."""
    X, y = samples()
    clustering = GeminiClustering(
        3,
        model="mlp",
        hidden=(10,),
        activation="tanh",
        objective=settings["objective"],
        batch_size=100,
        learning_rate=1e-2,
        max_epochs=settings["epochs"],
        random_state=seed,
        **context.training(),
    ).fit(X)
    context.keep(clustering)
    return score_clustering(clustering, X, y)


def tables(records: Sequence[Record]) -> list[Table]:
    """How many of the three clusters each sees, and how well."""
    rows = [
        Row(
            name,
            [
                Cell(Figure(PUBLISHED[key]), figure_of(records, {"objective": key}, "clusters")),
                Cell(None, figure_of(records, {"objective": key})),
            ],
        )
        for key, name in NAMES.items()
    ]
    return [
        Table("Three clusters in a row, the middle one at the mean of the data", ["clusters seen", "ARI"], rows, "")
    ]


def conclusion(records: Sequence[Record]) -> list[str]:
    """One-vs-all confuses the middle with its sides, one-vs-one sees all three."""
    (ova, ova_seen), (ovo, ovo_seen) = (
        (figure_of(records, {"objective": key}), figure_of(records, {"objective": key}, "clusters")) for key in NAMES
    )
    if ova is None or ovo is None or ova_seen is None or ovo_seen is None:
        return []
    found = ova.mean < 0.6 and ovo.mean > 0.95
    return [
        f"As in the paper: {'yes' if found else 'NO'}. MMD OvA uses {ova_seen.mean:.1f} clusters and does not tell the "
        f"middle one from the others (ARI {ova.mean:.3f}); MMD OvO uses {ovo_seen.mean:.1f} and does ({ovo.mean:.3f})."
    ]


EXPERIMENT = Experiment(
    name="ova-vs-ovo",
    title="A geometrical perspective on OvA and OvO",
    place="appendix B",
    protocols={
        "paper": Protocol([{"objective": name, "epochs": 200} for name in NAMES], runs=20),
        "quick": Protocol(
            [{"objective": name, "epochs": 200} for name in NAMES], runs=3, remark="3 runs instead of our 20"
        ),
    },
    measure=measure,
    tables=tables,
    figures=draw_ova_vs_ovo,
    keeps_model=is_first_run,
    conclusion=conclusion,
)
