"""Leveraging a manifold geometry: two moons, the MI, and Wasserstein OvO along a neighbour graph."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.clustering import GeminiClustering
from pollux.geometry import ShortestPath
from pollux.lab import datasets
from pollux.lab.charts import ari_label, draw_regions, load_saved
from pollux.lab.grid import RunContext
from pollux.lab.paper.comparisons import Comparison, ComparisonRow, ComparisonTable, estimate
from pollux.lab.paper.experiment import Experiment, Protocol, is_first_run, score_clustering
from pollux.lab.records import Record, Settings
from pollux.report.canvas import new_figure
from pollux.spec import MLP, Training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS: dict[str, Mapping[str, str]] = {
    "KL OvA (MI)": {"objective": "kl_ova"},
    "Wasserstein OvO, shortest paths": {"objective": "wasserstein_ovo", "distance": "shortest_path"},
    "Wasserstein OvO, Euclidean (control)": {"objective": "wasserstein_ovo", "distance": "euclidean"},
}
CLUSTERS = (2, 5)


@functools.lru_cache(maxsize=1)
def samples() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """500 samples of two facing half circles."""
    return datasets.moons(500, random_state=0)


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """A perceptron of ten hidden units."""
    X, y = samples()
    along_graph = settings.get("distance") == "shortest_path"
    clustering = GeminiClustering(
        settings["clusters"],
        model=MLP(hidden=(10,), activation="tanh"),
        objective=settings["objective"],
        geometry=ShortestPath(quantile=0.05) if along_graph else settings.get("distance", "auto"),
        batch_size=100,
        learning_rate=1e-2,
        max_epochs=settings["epochs"],
        random_state=seed,
        callbacks=context.callbacks,
        training=Training(checkpoint=context.checkpoint()),
    ).fit(X)
    context.save_model(clustering)
    return score_clustering(clustering, X, y)


def grid(epochs: int) -> Iterator[Settings]:
    """Both objectives and the control, for the right number of clusters and for too many."""
    for clusters in CLUSTERS:
        yield from ({**method, "clusters": clusters, "epochs": epochs} for method in METHODS.values())


def tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """The paper has figures only: what they show, in numbers."""
    rows = [
        ComparisonRow(
            name, [Comparison(None, estimate(records, {**method, "clusters": clusters})) for clusters in CLUSTERS]
        )
        for name, method in METHODS.items()
    ]
    return [
        ComparisonTable(
            "ARI on two moons (clusters in use)", [f"{number} clusters asked for" for number in CLUSTERS], rows
        )
    ]


def conclusion(records: Sequence[Record]) -> list[str]:
    """Paths find the moons where the MI and straight lines do not; of five clusters they leave some empty."""
    two = [estimate(records, {**method, "clusters": 2}) for method in METHODS.values()]
    blind, paths, control = two
    lines = []
    if blind and paths and control:
        found = paths.mean > 0.95 and max(blind.mean, control.mean) < paths.mean - 0.1
        lines.append(
            f"As in the paper: {'yes' if found else 'NO'}. Along the graph the moons are found (ARI {paths.mean:.3f}), "
            f"by the MI and by straight lines they are not ({blind.mean:.3f}, {control.mean:.3f})."
        )
    five = [estimate(records, {**method, "clusters": 5}) for method in METHODS.values()]
    if five[0] and five[1] and five[0].clusters and five[1].clusters:
        lines.append(
            f"Asked for 5 clusters, the MI keeps {five[0].clusters:.1f} of them on average, Wasserstein OvO along the "
            f"graph {five[1].clusters:.1f}; the paper shows runs with 5 and 4."
        )
    return lines


def draw_moons(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """The regions of each method's clusters: two of them, and five."""
    found = {
        (number, name): load_saved(records, folder, {**method, "clusters": number})
        for number in CLUSTERS
        for name, method in METHODS.items()
    }
    if not any(found.values()):
        return {}
    figure = new_figure(11.4, 4.9)
    panels = figure.subplots(len(CLUSTERS), len(METHODS)).ravel()
    for ((number, name), run), ax in zip(found.items(), panels, strict=True):
        title = f"{name}\n{number} clusters asked for"
        if run is not None:
            title += f", {run.record.metrics['clusters']} in use: {ari_label(run.record)}"
        draw_regions(ax, run, samples()[0], title)
    figure.set_label(
        "Decision regions of a perceptron on two moons, seed 0: the MI, Wasserstein OvO with distances along a "
        "neighbour graph, and the same with straight distances, which the paper does not have."
    )
    return {"regions": figure}


EXPERIMENT = Experiment(
    name="moons",
    title="Leveraging a manifold geometry",
    place="section 4.3",
    protocols={
        "paper": Protocol(list(grid(200)), runs=10),
        "quick": Protocol(list(grid(200)), runs=2, remark="2 runs instead of our 10"),
    },
    measure=measure,
    tables=tables,
    figures=draw_moons,
    saves_model=is_first_run,
    conclusion=conclusion,
)
