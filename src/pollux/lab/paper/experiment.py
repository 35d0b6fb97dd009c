"""The definition of an experiment: a grid of settings, a function that does one run, and the published results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans

from pollux.clustering import GeminiClustering
from pollux.lab.grid import RunContext
from pollux.lab.paper.comparisons import ComparisonTable
from pollux.lab.records import Record, Run, Settings
from pollux.metrics import LABEL_METRICS, conditional_entropy
from pollux.objectives import Gemini
from pollux.objectives.gemini import DEFAULT_CLIPS
from pollux.spec import Training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Measure: TypeAlias = Callable[[Settings, int, RunContext], Mapping[str, Any]]
"""(settings, seed, context) → metrics: does one run."""
Tables: TypeAlias = Callable[[Sequence[Record]], Sequence[ComparisonTable]]


@dataclass(frozen=True)
class Protocol:
    """A grid of settings and the number of runs of each; ``remark`` says how it differs from the paper's."""

    grid: Sequence[Settings]
    runs: int
    remark: str = ""

    @property
    def values(self) -> dict[str, list[Any]]:
        """The values of each setting, in the order of the grid."""
        names = dict.fromkeys(name for settings in self.grid for name in settings)
        return {name: list(dict.fromkeys(s[name] for s in self.grid if name in s)) for name in names}

    def restricted(
        self, only: Mapping[str, Sequence[Any]], other: Settings | None = None, runs: int | None = None
    ) -> Protocol:
        """Return the part of the grid that has the values in ``only``, with some values and the runs replaced."""
        grid = [
            # Settings that lack a name, as k-means lacks epochs, do not get it.
            {name: (other or {}).get(name, value) for name, value in settings.items()}
            for settings in self.grid
            if all(name in settings and settings[name] in values for name, values in only.items())
        ]
        # Settings that differed only in a replaced value are now equal.
        distinct = {json.dumps(settings, sort_keys=True): settings for settings in grid}
        return Protocol(list(distinct.values()), self.runs if runs is None else runs, self.remark)

    def all_runs(self, experiment: str) -> list[Run]:
        """Return all runs of the grid, the first seed of each setting first, so that each table cell appears early."""
        return [
            Run(experiment, settings, seed)
            for seed in range(self.runs)
            for settings in self.grid
            # Deterministic settings are run once.
            if seed == 0 or not settings.get("deterministic", False)
        ]


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper."""

    name: str
    title: str
    place: str  # section of the paper
    # By profile: "quick", "paper" and, where the paper's takes days, "cpu".
    protocols: Mapping[str, Protocol]
    measure: Measure
    tables: Tables
    figures: Callable[[Sequence[Record], Path], Mapping[str, Figure]] | None = None
    # A run is repeated if its model file is missing, or if it is outdated: made with a file that no longer exists.
    saves_model: Callable[[Run], bool] = lambda run: False
    outdated: Callable[[Record, Path], bool] = lambda record, folder: False
    data: Sequence[str] = ()  # image data sets that it needs
    # Raises an InputError if the results folder lacks a file that these runs need.
    check: Callable[[Sequence[Run], Path], None] = lambda runs, folder: None
    timed: bool = False  # if True, its runs are done one at a time
    # Lines that say whether the paper's findings are reproduced.
    conclusion: Callable[[Sequence[Record]], Sequence[str]] = lambda records: []

    def protocol(self, profile: str) -> Protocol:
        """Return the protocol of a profile."""
        return self.protocols.get(profile, self.protocols["paper"])


# Measurements that several experiments share.

OBJECTIVES = {
    f"{key}_{mode}": f"{name} {title}"
    for key, name in {
        "kl": "KL",
        "hellinger": "Hellinger",
        "tv": "TV",
        "mmd": "MMD",
        "wasserstein": "Wasserstein",
    }.items()
    for mode, title in (("ova", "OvA"), ("ovo", "OvO"))
}
"""The ten GEMINIs of the paper and their names in tables."""

# Epochs after which a long training is evaluated.
STAGES = (1, 2, 5, 10, 20, 50, 100, 200)
# The smallest probability in the authors' code.
AUTHORS_CLIP = 1e-12


def clips(objective: str) -> dict[str, float]:
    """Return the clips of an objective by their suffix in tables: first the default, 0 if there is none."""
    ours = {"": DEFAULT_CLIPS.get(objective, 0.0)}
    return {**ours, ", unbounded": 0.0, ", clipped at 1e-12": AUTHORS_CLIP} if objective in DEFAULT_CLIPS else ours


def fit_run(
    X: Any, n_clusters: int, settings: Settings, seed: int, context: RunContext, *, fit: str = "fit", **parameters: Any
) -> GeminiClustering:
    """Fit the clustering of a run to X, or resume it from its last checkpoint, and save it if a figure needs it.

    The objective is clipped only if the settings say so; ``fit`` is the name of the checkpoints.
    """
    clustering = GeminiClustering(
        n_clusters,
        objective=Gemini(settings["objective"], clip=settings.get("clip") or None),
        max_epochs=settings["epochs"],
        random_state=seed,
        callbacks=context.callbacks,
        training=Training(checkpoint=context.checkpoint(fit)),
        # The paper uses neither preprocessing nor restarts.
        **{"preprocessing": None, "n_init": 1, **parameters},
    ).fit(X)
    context.save_model(clustering)
    return clustering


def fit_in_stages(
    X: Any,
    n_clusters: int,
    settings: Settings,
    seed: int,
    context: RunContext,
    unseen: Any,
    classes: ArrayLike,
    **parameters: Any,
) -> Mapping[str, Any]:
    """Return the scores of a run on unseen rows with known classes, and a curve of [epochs, ARI, clusters in use].

    A training that is resumed from a checkpoint gives the same bits as an uninterrupted one, so the intermediate
    evaluations do not change the result.
    """
    unfinished = context.unfinished
    curve: list[list[float]] = [] if unfinished is None else list(unfinished.scores.get("curve", []))
    done = curve[-1][0] if curve else 0
    last = settings["epochs"]
    scores: Mapping[str, Any] = {}
    # Without checkpoints each stage would be trained from the beginning.
    for epochs in [last] if unfinished is None else [*(stage for stage in STAGES if done < stage < last), last]:
        clustering = fit_run(X, n_clusters, {**settings, "epochs": epochs}, seed, context, **parameters)
        scores = score_clustering(clustering, unseen, classes)
        if epochs < last and unfinished is not None:
            curve.append([epochs, scores["adjusted_rand_index"], scores["clusters"]])
            unfinished.note(curve=curve)
    return {**scores, "curve": [*curve, [last, scores["adjusted_rand_index"], scores["clusters"]]]}


def score(classes: ArrayLike, labels: ArrayLike) -> dict[str, Any]:
    """Return all scores of labels (n,) against classes (n,), and the number of clusters in use."""
    scores: dict[str, Any] = {name: round(metric(classes, labels), 6) for name, metric in LABEL_METRICS.items()}
    return {**scores, "clusters": len(np.unique(np.asarray(labels)))}


def score_kmeans(X: Any, unseen: Any, classes: ArrayLike, n_clusters: int, seed: int) -> dict[str, Any]:
    """Return the scores of k-means, fitted to X, on unseen rows with known classes."""
    kmeans = KMeans(n_clusters, n_init=10, random_state=seed).fit(X)
    return {**score(classes, kmeans.predict(unseen)), "objective": -float(kmeans.inertia_)}


def score_clustering(clustering: GeminiClustering, X: Any, classes: ArrayLike) -> Mapping[str, Any]:
    """Return the scores of a fitted clustering on rows X with known classes, and its final training metrics."""
    probabilities = clustering.predict_proba(X)
    return {
        **score(classes, probabilities.argmax(1)),
        "objective": clustering.objective_,
        "entropy": round(conditional_entropy(probabilities), 6),
        "epochs": clustering.n_iter_,
        "clusters_in_training": clustering.n_clusters_,
    }
