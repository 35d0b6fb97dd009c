"""Three experiments in the plane: failures of the MI, failures of one-vs-all, and distances along a graph."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.geometry import ShortestPath
from pollux.lab import datasets
from pollux.lab.charts import SavedModel, ari_label, draw_panels, draw_regions, load_saved
from pollux.lab.grid import RunContext
from pollux.lab.paper.comparisons import Comparison, ComparisonRow, ComparisonTable, compare, estimate
from pollux.lab.paper.experiment import Experiment, Protocol, fit_run, score, score_clustering
from pollux.lab.records import Record, Settings
from pollux.lab.results import typeset
from pollux.report.canvas import INK, QUIET, clean_axes
from pollux.spec import MLP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@functools.cache
def samples(experiment: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the data set of all runs: samples (n, 2) and their classes."""
    if experiment == "categorical":
        return datasets.blobs(100, std=0.5, random_state=0)
    if experiment == "moons":
        return datasets.moons(500, random_state=0)
    # Three Gaussians in a row, the middle one at the mean of the data.
    return datasets.blobs(300, centres=((-2.0, 0.0), (0.0, 0.0), (2.0, 0.0)), std=0.2, random_state=0)


def repeated(grid: Sequence[Settings], runs: int, quick: int) -> dict[str, Protocol]:
    """Return the protocols of a grid: the paper's single runs, repeated ``runs`` times, and ``quick`` times."""
    return {
        "paper": Protocol(grid, runs),
        "quick": Protocol(grid, quick, remark=f"{quick} runs instead of our {runs}"),
    }


def measure_perceptron(experiment: str, settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """Fit a perceptron with ten hidden units, which can learn any boundary, and return its scores."""
    X, y = samples(experiment)
    distance = settings.get("distance", "auto")
    options: dict[str, Any] = {"model": MLP(hidden=(10,), activation="tanh"), "batch_size": 100, "learning_rate": 1e-2}
    options["geometry"] = ShortestPath(quantile=0.05) if distance == "shortest_path" else distance
    clustering = fit_run(X, settings.get("clusters", 3), settings, seed, context, **options)
    return score_clustering(clustering, X, y)


# When the MI fails because of the modelling: three Gaussians, and a free table of probabilities.

FREE_TABLE = {"kl_ova": "KL OvA (MI)", "mmd_ova": "MMD OvA, linear kernel"}
# Markers and colours of the clusters, as in the paper.
SYMBOLS = (("o", INK), ("^", "#d1495b"), ("x", "#2f6fb2"))


def measure_free_table(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """Fit a table of 100 × 3 probabilities, which depends on the samples through the objective alone."""
    X, y = samples("categorical")
    options: dict[str, Any] = {"model": "free", "init": "random", "batch_size": None, "learning_rate": 1e-2}
    clustering = fit_run(X, 3, settings, seed, context, **options)
    return {**score(y, clustering.labels_), "objective": clustering.objective_, "epochs": clustering.n_iter_}


def free_table_tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """Return the numbers that the paper's figure shows."""
    rows = [ComparisonRow(name, [compare(records, {"objective": key})]) for key, name in FREE_TABLE.items()]
    return [ComparisonTable("ARI on three Gaussians with a free table of probabilities", ["3 clusters"], rows)]


def conclude_free_table(records: Sequence[Record]) -> list[str]:
    """Say whether the MI assigns samples at random while the MMD finds the Gaussians."""
    blind, aware = (estimate(records, {"objective": key}) for key in FREE_TABLE)
    if blind is None or aware is None:
        return []
    found, by_chance = blind.mean < 0.1 and aware.mean > 0.9, typeset(f"{blind.mean:.3f}")
    return [
        f"As in the paper: {'yes' if found else 'NO'}. The MI does not see the samples (ARI {by_chance}), the MMD does "
        f"({aware.mean:.3f})."
    ]


def draw_free_table(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Draw the clusters that a free table of probabilities finds with the MI and with the MMD."""

    def draw(ax: Axes, run: SavedModel) -> None:
        X, labels = samples("categorical")[0], np.asarray(run.clustering.labels_)
        clean_axes(ax).set(xticks=[], yticks=[])
        ax.set_aspect("equal", adjustable="datalim")
        ax.spines[:].set(visible=True, color=QUIET, linewidth=0.6)
        for cluster, (symbol, colour) in enumerate(SYMBOLS):
            x, y = X[labels == cluster].T
            ax.scatter(x, y, s=26, marker=symbol, color=colour, linewidths=1.3)

    found = {name: load_saved(records, folder, {"objective": key}) for key, name in FREE_TABLE.items()}
    caption = (
        "Three Gaussian distributions clustered by a free table of probabilities, with the MI (left) and with the MMD "
        "(right). Black dots, red triangles and blue crosses are the three clusters."
    )
    return draw_panels("clusters", found, (8, 3.6), (1, 2), draw, caption)


CATEGORICAL = Experiment(
    name="categorical",
    title="When the MI fails because of the modelling",
    place="section 4.1",
    protocols=repeated([{"objective": name, "epochs": 1000} for name in FREE_TABLE], runs=20, quick=3),
    measure=measure_free_table,
    tables=free_table_tables,
    figures=draw_free_table,
    saves_model=lambda run: run.seed == 0,
    conclusion=conclude_free_table,
)


# Leveraging a manifold geometry: two moons, the MI, and Wasserstein OvO along a neighbour graph.

MOONS_METHODS: dict[str, Mapping[str, str]] = {
    "KL OvA (MI)": {"objective": "kl_ova"},
    "Wasserstein OvO, shortest paths": {"objective": "wasserstein_ovo", "distance": "shortest_path"},
    "Wasserstein OvO, Euclidean (control)": {"objective": "wasserstein_ovo", "distance": "euclidean"},
}
# The true number of clusters, and a larger one.
MOONS_CLUSTERS = (2, 5)


def moons_tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """Return the numbers that the paper's figures show."""
    rows = [
        ComparisonRow(name, [compare(records, {**method, "clusters": number}) for number in MOONS_CLUSTERS])
        for name, method in MOONS_METHODS.items()
    ]
    columns = [f"{number} clusters asked for" for number in MOONS_CLUSTERS]
    return [ComparisonTable("ARI on two moons (clusters in use)", columns, rows)]


def conclude_moons(records: Sequence[Record]) -> list[str]:
    """Say whether only shortest paths find the moons, and how many of five clusters each method uses."""
    two, five = (
        [estimate(records, {**method, "clusters": number}) for method in MOONS_METHODS.values()]
        for number in MOONS_CLUSTERS
    )
    blind, paths, control = two
    lines = []
    if blind and paths and control:
        found = paths.mean > 0.95 and max(blind.mean, control.mean) < paths.mean - 0.1
        lines.append(
            f"As in the paper: {'yes' if found else 'NO'}. Along the graph the moons are found (ARI {paths.mean:.3f}), "
            f"by the MI and by straight lines they are not ({blind.mean:.3f}, {control.mean:.3f})."
        )
    if five[0] and five[1] and five[0].clusters and five[1].clusters:
        lines.append(
            f"Asked for 5 clusters, the MI keeps {five[0].clusters:.1f} of them on average, Wasserstein OvO along the "
            f"graph {five[1].clusters:.1f}; the paper shows runs with 5 and 4."
        )
    return lines


def draw_moons(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Draw the decision regions of each method, with two and with five clusters."""
    found = {
        f"{name}\n{number} clusters asked for": load_saved(records, folder, {**method, "clusters": number})
        for number in MOONS_CLUSTERS
        for name, method in MOONS_METHODS.items()
    }
    caption = (
        "Decision regions of a perceptron on two moons, seed 0: the MI, Wasserstein OvO with distances along a "
        "neighbour graph, and the same with straight distances, which the paper does not have."
    )
    return draw_panels(
        "regions",
        found,
        (11.4, 4.9),
        (len(MOONS_CLUSTERS), len(MOONS_METHODS)),
        lambda ax, run: draw_regions(ax, run, samples("moons")[0]),
        caption,
        lambda record: f", {record.metrics['clusters']} in use: {ari_label(record)}",
    )


MOONS = Experiment(
    name="moons",
    title="Leveraging a manifold geometry",
    place="section 4.3",
    protocols=repeated(
        [{**method, "clusters": k, "epochs": 200} for k in MOONS_CLUSTERS for method in MOONS_METHODS.values()],
        runs=10,
        quick=2,
    ),
    measure=functools.partial(measure_perceptron, "moons"),
    tables=moons_tables,
    figures=draw_moons,
    saves_model=lambda run: run.seed == 0,
    conclusion=conclude_moons,
)


# A geometrical perspective on OvA and OvO: a cluster in the middle of the data, which one-vs-all cannot see.

MMDS = {"mmd_ova": "MMD OvA", "mmd_ovo": "MMD OvO"}
# The number of clusters that each can distinguish, according to the appendix.
PUBLISHED_CLUSTERS = {"mmd_ova": 2, "mmd_ovo": 3}


def row_tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """Return how many of the three clusters each MMD finds, and its ARI."""

    def cells(objective: str) -> list[Comparison]:
        wanted = {"objective": objective}
        return [compare(records, wanted, PUBLISHED_CLUSTERS[objective], "clusters"), compare(records, wanted)]

    rows = [ComparisonRow(name, cells(key)) for key, name in MMDS.items()]
    title = "Three clusters in a row, the middle one at the mean of the data"
    return [ComparisonTable(title, ["clusters seen", "ARI"], rows, "", reference="by appendix B")]


def conclude_row(records: Sequence[Record]) -> list[str]:
    """Say whether one-vs-all misses the middle cluster while one-vs-one finds all three."""
    ova, ovo = (estimate(records, {"objective": key}) for key in MMDS)
    if not (ova and ovo and ova.clusters and ovo.clusters):
        return []
    found = ova.mean < 0.6 and ovo.mean > 0.95
    return [
        f"As in the paper: {'yes' if found else 'NO'}. MMD OvA uses {ova.clusters:.1f} clusters and does not tell the "
        f"middle one from the others (ARI {ova.mean:.3f}); MMD OvO uses {ovo.clusters:.1f} and does ({ovo.mean:.3f})."
    ]


def draw_row(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """Draw which of three clusters in a row each MMD finds."""
    found = {name: load_saved(records, folder, {"objective": key}) for key, name in MMDS.items()}
    caption = (
        "Decision regions of a perceptron on three clusters in a row, seed 0. The middle one lies at the mean of the "
        "data: one-vs-all cannot tell it from them, one-vs-one can."
    )
    return draw_panels(
        "regions",
        found,
        (7.2, 4.6),
        (len(MMDS), 1),
        lambda ax, run: draw_regions(ax, run, samples("ova-vs-ovo")[0]),
        caption,
        lambda record: f": {record.metrics['clusters']} clusters in use, {ari_label(record)}",
    )


OVA_VS_OVO = Experiment(
    name="ova-vs-ovo",
    title="A geometrical perspective on OvA and OvO",
    place="appendix B",
    protocols=repeated([{"objective": name, "epochs": 200} for name in MMDS], runs=20, quick=3),
    measure=functools.partial(measure_perceptron, "ova-vs-ovo"),
    tables=row_tables,
    figures=draw_row,
    saves_model=lambda run: run.seed == 0,
    conclusion=conclude_row,
)
