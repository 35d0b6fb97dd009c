"""When the MI fails because of the modelling: three Gaussians, and a free table of probabilities."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.clustering import GeminiClustering
from pollux.lab.charts import ari_label, load_saved, mark_not_run, set_title
from pollux.lab.datasets import blobs
from pollux.lab.grid import RunContext
from pollux.lab.paper.comparisons import Comparison, ComparisonRow, ComparisonTable, estimate
from pollux.lab.paper.experiment import Experiment, Protocol, is_first_run, score
from pollux.lab.records import Record, Settings
from pollux.lab.tables import typeset
from pollux.report.canvas import INK, QUIET, clean_axes, new_figure
from pollux.spec import Training

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"kl_ova": "KL OvA (MI)", "mmd_ova": "MMD OvA, linear kernel"}
# Clusters as the paper draws them.
SYMBOLS = (("o", INK), ("^", "#d1495b"), ("x", "#2f6fb2"))


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
        callbacks=context.callbacks,
        training=Training(checkpoint=context.checkpoint()),
    ).fit(X)
    context.save_model(clustering)
    return {**score(y, clustering.labels_), "objective": clustering.objective_, "epochs": clustering.n_iter_}


def tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """The paper has a figure only: what it shows, in numbers."""
    rows = [
        ComparisonRow(name, [Comparison(None, estimate(records, {"objective": key}))]) for key, name in NAMES.items()
    ]
    return [ComparisonTable("ARI on three Gaussians with a free table of probabilities", ["3 clusters"], rows)]


def conclusion(records: Sequence[Record]) -> list[str]:
    """The MI places samples at random, the MMD finds the Gaussians."""
    blind, aware = (estimate(records, {"objective": key}) for key in NAMES)
    if blind is None or aware is None:
        return []
    found, by_chance = blind.mean < 0.1 and aware.mean > 0.9, typeset(f"{blind.mean:.3f}")
    return [
        f"As in the paper: {'yes' if found else 'NO'}. The MI does not see the samples (ARI {by_chance}), the MMD does "
        f"({aware.mean:.3f})."
    ]


def draw_categorical(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """What a free table of probabilities finds by the MI and by the MMD."""
    found = {name: load_saved(records, folder, {"objective": key}) for key, name in NAMES.items()}
    if not any(found.values()):
        return {}
    figure = new_figure(8, 3.6)
    for (name, run), ax in zip(found.items(), figure.subplots(1, len(found)), strict=True):
        set_title(ax, f"{name}: {ari_label(run.record)}" if run else name)
        if run is None:
            mark_not_run(ax)
            continue
        _symbols(ax, samples()[0], np.asarray(run.clustering.labels_))
    figure.set_label(
        "Three Gaussian distributions clustered by a free table of probabilities, with the MI (left) and with the MMD "
        "(right). Black dots, red triangles and blue crosses are the three clusters."
    )
    return {"clusters": figure}


def _symbols(ax: Axes, X: NDArray[Any], labels: NDArray[Any]) -> None:
    clean_axes(ax)
    ax.set(xticks=[], yticks=[])
    ax.set_aspect("equal", adjustable="datalim")
    ax.spines[:].set(visible=True, color=QUIET, linewidth=0.6)
    for cluster, (symbol, colour) in enumerate(SYMBOLS):
        members = labels == cluster
        ax.scatter(X[members, 0], X[members, 1], s=26, marker=symbol, color=colour, linewidths=1.3)


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
    saves_model=is_first_run,
    conclusion=conclusion,
)
