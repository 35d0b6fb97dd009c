"""Fitting MNIST: a perceptron and LeNet-5, all GEMINIs, 10 and 15 clusters."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from pollux.clustering import GeminiClustering
from pollux.lab.datasets import load_images
from pollux.lab.grid import RunContext
from pollux.lab.paper.bars import draw_bars
from pollux.lab.paper.comparisons import Comparison, ComparisonRow, ComparisonTable, Estimate, estimate
from pollux.lab.paper.experiment import (
    AUTHORS_CLIP,
    OBJECTIVES,
    Experiment,
    Protocol,
    objective_of,
    score,
    score_clustering,
)
from pollux.lab.records import Record, Settings
from pollux.spec import MLP, Training

# By objective: ARI and clusters in use of (MLP, 10), (LeNet-5, 10), (MLP, 15), (LeNet-5, 15).
PUBLISHED: dict[str, tuple[tuple[float, int], ...]] = {
    "kl_ova": ((0.320, 10), (0.138, 8), (0.271, 15), (0.136, 12)),
    "kl_ovo": ((0.348, 7), (0.123, 4), (0.333, 8), (0.104, 4)),
    "hellinger_ova": ((0.301, 10), (0.207, 6), (0.224, 13), (0.162, 7)),
    "hellinger_ovo": ((0.287, 10), (0.161, 6), (0.305, 13), (0.157, 7)),
    "tv_ova": ((0.299, 10), (0.171, 6), (0.277, 15), (0.140, 6)),
    "tv_ovo": ((0.422, 10), (0.161, 9), (0.330, 15), (0.182, 14)),
    "mmd_ova": ((0.373, 10), (0.382, 10), (0.345, 15), (0.381, 15)),
    "mmd_ovo": ((0.361, 10), (0.373, 10), (0.364, 15), (0.379, 15)),
    "wasserstein_ova": ((0.471, 10), (0.463, 10), (0.390, 15), (0.446, 11)),
    "wasserstein_ovo": ((0.450, 10), (0.383, 10), (0.415, 15), (0.414, 15)),
}
PUBLISHED_KMEANS = {10: 0.367, 15: 0.385}
COLUMNS = tuple((model, clusters) for clusters in (10, 15) for model in ("mlp", "lenet5"))
MODEL_NAMES = {"mlp": "MLP", "lenet5": "LeNet-5"}


class Pictures(NamedTuple):
    """Training and test images, scaled to [−1, 1], and their classes."""

    train: NDArray[np.float32]
    test: NDArray[np.float32]
    train_classes: NDArray[np.int64]
    test_classes: NDArray[np.int64]


@functools.lru_cache(maxsize=1)
def pictures(model: str) -> Pictures:
    """Rows of 784 pixels for a perceptron, (n, 1, 32, 32) with a black margin for LeNet-5."""
    images = load_images("mnist")
    parts = [part.astype(np.float32) / 127.5 - 1 for part in (images.x_train, images.x_test)]
    if model == "lenet5":
        parts = [np.pad(part, ((0, 0), (2, 2), (2, 2)), constant_values=-1)[:, None] for part in parts]
    else:
        parts = [part.reshape(len(part), -1) for part in parts]
    return Pictures(parts[0], parts[1], images.y_train, images.y_test)


def clustering(settings: Settings, seed: int, context: RunContext, **options: Any) -> GeminiClustering:
    """The estimator of the paper's runs on MNIST."""
    return GeminiClustering(
        settings["clusters"],
        model=MLP(hidden=(1200,)) if settings["model"] == "mlp" else settings["model"],
        objective=objective_of(settings),
        geometry=settings.get("distance") or "auto",
        batch_size=250,
        learning_rate=1e-3,
        max_epochs=settings["epochs"],
        penalties={"vat": settings["vat"]} if settings["vat"] else None,
        random_state=seed,
        callbacks=context.callbacks,
        training=Training(checkpoint=context.checkpoint()),
        **options,
    )


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """Train on the 60,000 images, score on the 10,000 others."""
    if settings.get("baseline") == "kmeans":
        return kmeans(settings["clusters"], seed)
    data = pictures(settings["model"])
    fitted = clustering(settings, seed, context).fit(data.train)
    return score_clustering(fitted, data.test, data.test_classes)


def kmeans(clusters: int, seed: int) -> Mapping[str, Any]:
    """The same by k-means."""
    data = pictures("mlp")
    fitted = KMeans(clusters, n_init=10, random_state=seed).fit(data.train)
    return {**score(data.test_classes, fitted.predict(data.test)), "objective": -float(fitted.inertia_)}


def variants(objective: str) -> dict[str, Mapping[str, Any]]:
    """Further settings of an objective, by what tables add to its name.

    The authors used the squared distance in the Wasserstein objectives, and clipped probabilities, which matters where
    an objective never ceases to push them towards zero.
    """
    if objective.startswith("wasserstein"):
        return {", ℓ2²": {"distance": "sqeuclidean"}, ", ℓ2": {"distance": "euclidean"}}
    return {"": {}, ", clipped at 1e-12": {"clip": AUTHORS_CLIP}} if objective == "kl_ovo" else {"": {}}


def grid(epochs: int, models: Sequence[str], clusters: Sequence[int]) -> Iterator[Settings]:
    """All GEMINIs in all variants, and k-means."""
    for objective in OBJECTIVES:
        for variant in variants(objective).values():
            for number in clusters:
                for model in models:
                    common = {"model": model, "objective": objective, "clusters": number}
                    yield {**common, **variant, "vat": 0.0, "epochs": epochs}
    yield from ({"baseline": "kmeans", "clusters": number} for number in clusters)


def tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """The table of the paper, and one more for each weight of VAT that was tried."""
    weights = {float(record.run.settings["vat"]) for record in records if "vat" in record.run.settings}
    return [_table(records, weight) for weight in sorted(weights or {0.0})]


def _table(records: Sequence[Record], vat: float) -> ComparisonTable:
    rows = []
    for objective, name in OBJECTIVES.items():
        for addition, variant in variants(objective).items():
            is_published = vat == 0 and variant.get("distance") != "euclidean"
            cells = []
            for (model, clusters), (ari, used) in zip(COLUMNS, PUBLISHED[objective], strict=True):
                wanted = {"objective": objective, "model": model, "clusters": clusters, "vat": vat, "clip": None}
                measured = estimate(records, {**wanted, **variant})
                cells.append(Comparison(Estimate(ari, clusters=used) if is_published else None, measured))
            rows.append(ComparisonRow(name + addition, cells, further="clip" in variant))
    rows.append(_kmeans_row(records))
    return ComparisonTable(
        "ARI on the test images of MNIST (clusters in use)" + (f", with VAT of weight {vat:g}" if vat else ""),
        [f"{MODEL_NAMES[model]}, {clusters} clusters" for model, clusters in COLUMNS],
        rows,
    )


def _kmeans_row(records: Sequence[Record]) -> ComparisonRow:
    cells = []
    for model, clusters in COLUMNS:
        measured = estimate(records, {"baseline": "kmeans", "clusters": clusters})
        # It has no network: its figure stands under the first of the two.
        cells.append(Comparison(Estimate(PUBLISHED_KMEANS[clusters]), measured) if model == "mlp" else Comparison())
    return ComparisonRow("k-means", cells)


EXPERIMENT = Experiment(
    name="mnist",
    title="Fitting MNIST",
    place="section 4.4",
    protocols={
        "paper": Protocol(list(grid(500, ("mlp", "lenet5"), (10, 15))), runs=1),
        "quick": Protocol(
            list(grid(2, ("mlp",), (10,))), runs=1, remark="2 epochs instead of 500, the MLP with 10 clusters only"
        ),
    },
    measure=measure,
    tables=tables,
    figures=draw_bars(tables),
    data=("mnist",),
)
