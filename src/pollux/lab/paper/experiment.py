"""What an experiment is: a grid of settings, how one of its runs is done, and what the paper says of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

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
"""Do the run of these settings and seed, and return its metrics."""
Tables: TypeAlias = Callable[[Sequence[Record]], Sequence[ComparisonTable]]


@dataclass(frozen=True)
class Protocol:
    """A grid of settings and how often each is run; ``remark`` says how it differs from the paper's."""

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
        """The part of the grid that has one of the values of each setting in ``only``; with other values and runs."""
        grid = [
            # What a setting does not have, such as the epochs of k-means, it does not get.
            {name: (other or {}).get(name, value) for name, value in settings.items()}
            for settings in self.grid
            if all(name in settings and settings[name] in values for name, values in only.items())
        ]
        # Settings that only differed in what has another value now are the same.
        distinct = {json.dumps(settings, sort_keys=True): settings for settings in grid}
        return Protocol(list(distinct.values()), self.runs if runs is None else runs, self.remark)

    def all_runs(self, experiment: str) -> list[Run]:
        """All runs of the grid, the first seed of each setting first, so that each cell is soon seen."""
        return [
            Run(experiment, settings, seed)
            for seed in range(self.runs)
            for settings in self.grid
            # What has no randomness is run once.
            if seed == 0 or not settings.get("deterministic", False)
        ]


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper."""

    name: str
    title: str
    place: str  # in the paper
    # "quick", "paper" and, where the paper's takes days, "cpu": what is run.
    protocols: Mapping[str, Protocol]
    measure: Measure
    tables: Tables
    figures: Callable[[Sequence[Record], Path], Mapping[str, Figure]] | None = None
    # A run whose model is gone is done again, as is one that was made with something that is no longer there.
    saves_model: Callable[[Run], bool] = lambda run: False
    outdated: Callable[[Record, Path], bool] = lambda record, folder: False
    data: Sequence[str] = ()  # image sets that it needs
    # Raises an InputError where the folder of the results lacks what runs that are to be done need.
    check: Callable[[Sequence[Run], Path], None] = lambda runs, folder: None
    timed: bool = False  # then its runs are done one at a time
    # Lines that say whether what the paper found was found here.
    conclusion: Callable[[Sequence[Record]], Sequence[str]] = lambda records: []

    def protocol(self, profile: str) -> Protocol:
        """What is run in a profile."""
        return self.protocols.get(profile, self.protocols["paper"])


# What the experiments measure in the same way.

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
"""The ten GEMINIs of the paper, and how tables name them."""

# Epochs after which a long training is scored.
STAGES = (1, 2, 5, 10, 20, 50, 100, 200)
# The authors compute with probabilities of at least this.
AUTHORS_CLIP = 1e-12


def clips(objective: str) -> dict[str, float]:
    """The smallest probabilities of an objective, by what tables add to its name: first ours, 0 where it has none."""
    ours = {"": DEFAULT_CLIPS.get(objective, 0.0)}
    return {**ours, ", unbounded": 0.0, ", clipped at 1e-12": AUTHORS_CLIP} if objective in DEFAULT_CLIPS else ours


def fit_run(
    X: Any, n_clusters: int, settings: Settings, seed: int, context: RunContext, *, fit: str = "fit", **parameters: Any
) -> GeminiClustering:
    """The clustering of a run, fitted to X from its last checkpoint on, and saved if figures need it.

    Its objective is clipped only where the settings say so; ``fit`` names the checkpoints.
    """
    clustering = GeminiClustering(
        n_clusters,
        objective=Gemini(settings["objective"], clip=settings.get("clip") or None),
        max_epochs=settings["epochs"],
        random_state=seed,
        callbacks=context.callbacks,
        training=Training(checkpoint=context.checkpoint(fit)),
        # The paper's set-ups are plain.
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
    """The scores of a run on unseen rows of known classes, and its curve: [epochs, ARI, clusters in use] on the way.

    A training that is continued from its checkpoint has the bits of one that was not interrupted, so that the stages
    change nothing but where it is looked at.
    """
    unfinished = context.unfinished
    curve: list[list[float]] = [] if unfinished is None else list(unfinished.scores.get("curve", []))
    done = curve[-1][0] if curve else 0
    last = settings["epochs"]
    scores: Mapping[str, Any] = {}
    # Without checkpoints every stage would begin anew.
    for epochs in [last] if unfinished is None else [*(stage for stage in STAGES if done < stage < last), last]:
        clustering = fit_run(X, n_clusters, {**settings, "epochs": epochs}, seed, context, **parameters)
        scores = score_clustering(clustering, unseen, classes)
        if epochs < last and unfinished is not None:
            curve.append([epochs, scores["adjusted_rand_index"], scores["clusters"]])
            unfinished.note(curve=curve)
    return {**scores, "curve": [*curve, [last, scores["adjusted_rand_index"], scores["clusters"]]]}


def score(classes: ArrayLike, labels: ArrayLike) -> dict[str, Any]:
    """All scores of labels (n,) against classes (n,), and the clusters in use."""
    scores: dict[str, Any] = {name: round(metric(classes, labels), 6) for name, metric in LABEL_METRICS.items()}
    return {**scores, "clusters": len(np.unique(np.asarray(labels)))}


def score_clustering(clustering: GeminiClustering, X: Any, classes: ArrayLike) -> Mapping[str, Any]:
    """What a fitted clustering says of rows X of known classes, and how its training ended."""
    probabilities = clustering.predict_proba(X)
    return {
        **score(classes, probabilities.argmax(1)),
        "objective": clustering.objective_,
        "entropy": round(conditional_entropy(probabilities), 6),
        "epochs": clustering.n_iter_,
        "clusters_in_training": clustering.n_clusters_,
    }
