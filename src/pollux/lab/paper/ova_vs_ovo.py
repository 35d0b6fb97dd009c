"""A geometrical perspective on OvA and OvO: a cluster in the middle of the data, which one-vs-all cannot see."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.clustering import GeminiClustering
from pollux.lab.charts import ari_label, draw_regions, load_saved
from pollux.lab.datasets import blobs
from pollux.lab.grid import RunContext
from pollux.lab.paper.comparisons import Comparison, ComparisonRow, ComparisonTable, Estimate, estimate
from pollux.lab.paper.experiment import Experiment, Protocol, is_first_run, score_clustering
from pollux.lab.records import Record, Settings
from pollux.report.canvas import new_figure
from pollux.spec import MLP, Training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        model=MLP(hidden=(10,), activation="tanh"),
        objective=settings["objective"],
        batch_size=100,
        learning_rate=1e-2,
        max_epochs=settings["epochs"],
        random_state=seed,
        callbacks=context.callbacks,
        training=Training(checkpoint=context.checkpoint()),
    ).fit(X)
    context.save_model(clustering)
    return score_clustering(clustering, X, y)


def tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """How many of the three clusters each sees, and how well."""
    rows = [
        ComparisonRow(
            name,
            [
                Comparison(Estimate(PUBLISHED[key]), estimate(records, {"objective": key}, "clusters")),
                Comparison(None, estimate(records, {"objective": key})),
            ],
        )
        for key, name in NAMES.items()
    ]
    return [
        ComparisonTable(
            "Three clusters in a row, the middle one at the mean of the data", ["clusters seen", "ARI"], rows, ""
        )
    ]


def conclusion(records: Sequence[Record]) -> list[str]:
    """One-vs-all confuses the middle with its sides, one-vs-one sees all three."""
    (ova, ova_seen), (ovo, ovo_seen) = (
        (estimate(records, {"objective": key}), estimate(records, {"objective": key}, "clusters")) for key in NAMES
    )
    if ova is None or ovo is None or ova_seen is None or ovo_seen is None:
        return []
    found = ova.mean < 0.6 and ovo.mean > 0.95
    return [
        f"As in the paper: {'yes' if found else 'NO'}. MMD OvA uses {ova_seen.mean:.1f} clusters and does not tell the "
        f"middle one from the others (ARI {ova.mean:.3f}); MMD OvO uses {ovo_seen.mean:.1f} and does ({ovo.mean:.3f})."
    ]


def draw_ova_vs_ovo(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Which of three clusters in a row each MMD sees."""
    found = {name: load_saved(records, folder, {"objective": key}) for key, name in NAMES.items()}
    if not any(found.values()):
        return {}
    figure = new_figure(7.2, 4.6)
    for (name, run), ax in zip(found.items(), figure.subplots(len(found), 1), strict=True):
        score = f": {run.record.metrics['clusters']} clusters in use, {ari_label(run.record)}" if run else ""
        draw_regions(ax, run, samples()[0], name + score)
    figure.set_label(
        "Decision regions of a perceptron on three clusters in a row, seed 0. The middle one lies at the mean of the "
        "data: one-vs-all cannot tell it from them, one-vs-one can."
    )
    return {"regions": figure}


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
    saves_model=is_first_run,
    conclusion=conclusion,
)
