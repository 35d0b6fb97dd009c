"""What the experiments measure in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pollux.clustering import GeminiClustering
from pollux.metrics import LABEL_METRICS, conditional_entropy
from pollux.objectives import Gemini

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
    """The objective of a run, clipped where its settings say so."""
    name: str = settings["objective"]
    return Gemini(name, clip=settings["clip"]) if settings.get("clip") else name


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
