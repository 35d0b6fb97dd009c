"""Model selection on MNIST: 50 clusters asked for, how many are used, and how well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pollux.lab.experiments.drawing import draw_model_selection
from pollux.lab.experiments.experiment import Experiment, Protocol, Record, RunContext, Settings
from pollux.lab.experiments.measuring import OBJECTIVES
from pollux.lab.experiments.mnist import MODEL_NAMES
from pollux.lab.experiments.mnist import measure as measure_mnist
from pollux.lab.experiments.tables import Cell, Figure, Row, Table, figure_of

CHOSEN = ("kl_ova", "mmd_ova")
ASKED = 50
# What the text says of the clusters that the MMD converges to; of the MI it only says that they are fewer.
PUBLISHED_CLUSTERS = {("mmd_ova", "mlp"): 30, ("mmd_ova", "lenet5"): 25}


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """As on MNIST, with more clusters than anyone needs."""
    return measure_mnist({**settings, "clusters": ASKED, "vat": 0.0}, seed, context)


def grid(epochs: int, models: Sequence[str]) -> Iterator[Settings]:
    """The MI and the MMD on both architectures."""
    for objective in CHOSEN:
        yield from ({"model": model, "objective": objective, "epochs": epochs} for model in models)


def tables(records: Sequence[Record]) -> list[Table]:
    """The paper has a figure: what it shows, in numbers."""
    rows = []
    for objective in CHOSEN:
        for model, name in MODEL_NAMES.items():
            wanted = {"objective": objective, "model": model}
            published = PUBLISHED_CLUSTERS.get((objective, model))
            cells = [
                Cell(None if published is None else Figure(published), figure_of(records, wanted, "clusters")),
                Cell(None, figure_of(records, wanted)),
            ]
            rows.append(Row(f"{OBJECTIVES[objective]}, {name}", cells))
    return [Table("MNIST, 50 clusters asked for", ["clusters in use", "ARI"], rows, "")]


def conclusion(records: Sequence[Record]) -> list[str]:
    """What each objective uses, and how much the architecture matters to it."""
    lines = []
    for objective in CHOSEN:
        found = [
            (figure_of(records, wanted, "clusters"), figure_of(records, wanted), name)
            for model, name in MODEL_NAMES.items()
            for wanted in ({"objective": objective, "model": model},)
        ]
        told = [f"{used.mean:.0f} with {name} (ARI {ari.mean:.3f})" for used, ari, name in found if used and ari]
        if told:
            lines.append(f"Clusters in use by {OBJECTIVES[objective]}: {', '.join(told)}.")
    return lines


EXPERIMENT = Experiment(
    name="model-selection",
    title="Model selection on MNIST",
    place="appendix F",
    protocols={
        "paper": Protocol(list(grid(100, ("mlp", "lenet5"))), runs=20),
        "quick": Protocol(list(grid(3, ("mlp",))), runs=1, remark="3 epochs instead of 100, the MLP only, one run"),
    },
    measure=measure,
    tables=tables,
    conclusion=conclusion,
    figures=draw_model_selection,
    data=("mnist",),
)
