"""When the MI fails because of the modelling: three Gaussians, and a free table of probabilities."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.clustering import GeminiClustering
from pollux.lab.datasets import blobs
from pollux.lab.experiments.drawing import draw_categorical
from pollux.lab.experiments.experiment import Experiment, Protocol, Record, RunContext, Settings, is_first_run
from pollux.lab.experiments.measuring import score
from pollux.lab.experiments.tables import Cell, Row, Table, figure_of, typeset

NAMES = {"kl_ova": "KL OvA (MI)", "mmd_ova": "MMD OvA, linear kernel"}


@functools.lru_cache(maxsize=1)
def samples() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """100 samples of three isotropic Gaussians."""
    return blobs(100, std=0.5, random_state=0)


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """A table of 100 × 3 probabilities that knows nothing of the samples but what the objective tells it."""
    X, y = samples()
    clustering = GeminiClustering(
        3,
        model="free",
        init="random",
        objective=settings["objective"],
        batch_size=None,
        learning_rate=1e-2,
        max_epochs=settings["epochs"],
        random_state=seed,
        **context.training(),
    ).fit(X)
    context.keep(clustering)
    return {**score(y, clustering.labels_), "objective": clustering.objective_, "epochs": clustering.n_iter_}


def tables(records: Sequence[Record]) -> list[Table]:
    """The paper has a figure only: what it shows, in numbers."""
    rows = [Row(name, [Cell(None, figure_of(records, {"objective": key}))]) for key, name in NAMES.items()]
    return [Table("ARI on three Gaussians with a free table of probabilities", ["3 clusters"], rows)]


def conclusion(records: Sequence[Record]) -> list[str]:
    """The MI places samples at random, the MMD finds the Gaussians."""
    blind, aware = (figure_of(records, {"objective": key}) for key in NAMES)
    if blind is None or aware is None:
        return []
    found, by_chance = blind.mean < 0.1 and aware.mean > 0.9, typeset(f"{blind.mean:.3f}")
    return [
        f"As in the paper: {'yes' if found else 'NO'}. The MI does not see the samples (ARI {by_chance}), the MMD does "
        f"({aware.mean:.3f})."
    ]


EXPERIMENT = Experiment(
    name="categorical",
    title="When the MI fails because of the modelling",
    place="section 4.1",
    protocols={
        "paper": Protocol([{"objective": name, "epochs": 1000} for name in NAMES], runs=20),
        "quick": Protocol(
            [{"objective": name, "epochs": 1000} for name in NAMES], runs=3, remark="3 runs instead of our 20"
        ),
    },
    measure=measure,
    tables=tables,
    figures=draw_categorical,
    keeps_model=is_first_run,
    conclusion=conclusion,
)
