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

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Measure: TypeAlias = Callable[[Settings, int, RunContext], Mapping[str, Any]]
"""Do the run of these settings and seed, and return its metrics."""


@dataclass(frozen=True)
class Protocol:
    """A grid of settings and how often each is run; ``remark`` says how it differs from the paper's."""

    grid: Sequence[Settings]
    runs: int
    remark: str = ""

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
    """An experiment of the paper.

    Parameters
    ----------
    name, title, place : str
        Its name on the command line, what it is about, and where in the paper it is.
    protocols : mapping
        ``"quick"`` and ``"paper"``: what is run.
    measure : callable
        Does one run.
    tables : callable
        From the records to the tables that stand beside the paper's.
    figures : callable, optional
        From the records, and the folder of the results, to figures by name.
    saves_model : callable
        Whether a run saves its model: then it is run again where the file is gone.
    outdated : callable
        Whether a record, in the folder of the results, was made with something that is no longer there.
    data : sequence of str
        Image data sets that it needs.
    check : callable
        Raises an InputError if runs that are to be done lack something else, which the folder of the results ought to
        hold.
    timed : bool
        Whether it measures time: then runs are done one at a time.
    conclusion : callable, optional
        From the records to lines that say whether what the paper found was found here.
    """

    name: str
    title: str
    place: str
    protocols: Mapping[str, Protocol]
    measure: Measure
    tables: Callable[[Sequence[Record]], Sequence[ComparisonTable]]
    figures: Callable[[Sequence[Record], Path], Mapping[str, Figure]] | None = None
    saves_model: Callable[[Run], bool] = lambda run: False
    outdated: Callable[[Record, Path], bool] = lambda record, folder: False
    data: Sequence[str] = ()
    check: Callable[[Sequence[Run], Path], None] = lambda runs, folder: None
    timed: bool = False
    conclusion: Callable[[Sequence[Record]], Sequence[str]] | None = None


def is_first_run(run: Run) -> bool:
    """Whether it is the run that figures show, of the many of its settings."""
    return run.seed == 0


# What the experiments measure in the same way.

OBJECTIVES = {
    "kl_ova": "KL OvA",
    "kl_ovo": "KL OvO",
    "hellinger_ova": "Hellinger OvA",
    "hellinger_ovo": "Hellinger OvO",
    "tv_ova": "TV OvA",
    "tv_ovo": "TV OvO",
    "mmd_ova": "MMD OvA",
    "mmd_ovo": "MMD OvO",
    "wasserstein_ova": "Wasserstein OvA",
    "wasserstein_ovo": "Wasserstein OvO",
}
"""The ten GEMINIs of the paper, and how tables name them."""


# The authors compute with probabilities of at least this; the objectives here need no such limit.
AUTHORS_CLIP = 1e-12


def objective_of(settings: Mapping[str, Any]) -> str | Gemini:
    """The objective of a run, clipped only where its settings say so."""
    return Gemini(settings["objective"], clip=settings.get("clip") or None)


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
