"""Three clusters of few samples, and models of them that take little time."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import make_blobs

from flat_parameters import make_clustering
from pollux import GeminiClustering

X, CLASSES = make_blobs(n_samples=(30, 25, 20), n_features=4, cluster_std=0.7, random_state=1)


def small(n_clusters: int = 3, **parameters: Any) -> GeminiClustering:
    return make_clustering(n_clusters, **{"model": "linear", "max_epochs": 6, "random_state": 0, **parameters})


def same_weights(one: GeminiClustering, other: GeminiClustering) -> bool:
    states = one.module_.state_dict(), other.module_.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])
