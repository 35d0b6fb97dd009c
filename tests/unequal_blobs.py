"""Three clusters of unequal sizes, and small networks of them in any precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from flat_parameters import make_clustering
from pollux import GeminiClustering

CENTRES = np.array([[4, 0, 0, 0], [0, 4, 0, 0], [0, 0, 4, 4]], dtype=np.float32)


def unequal_blobs(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    classes = random.choice(3, n, p=[0.5, 0.3, 0.2])
    return (CENTRES[classes] + random.normal(size=(n, 4)) / 3).astype(np.float32), classes


X, CLASSES = unequal_blobs()


def clustering(**options: Any) -> GeminiClustering:
    defaults = {"objective": "mmd_ovo", "max_epochs": 12, "batch_size": 100, "random_state": 0, "hidden": (10,)}
    return make_clustering(3, **{**defaults, **options})


def types_of(fitted: GeminiClustering) -> set[torch.dtype]:
    return {value.dtype for value in fitted.module_.state_dict().values() if value.is_floating_point()}


def own(shape: Any, n_clusters: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, n_clusters))
