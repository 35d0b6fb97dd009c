"""The clustering with which numbers of clusters are compared, where the user names none."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus
from torch import nn

from pollux.estimators import GeminiClustering
from pollux.scaling import Scaling, prepared

MOST_ROWS = 1_000
"""Rows of a subsample: more of them take longer and tell little more of a linear model."""

_EPOCHS, _STARTS, _LEARNING_RATE = 50, 2, 0.05


class SeededLinear:
    """Linear models that start near the cells of k-means++ seeds of X (n, d).

    From random weights several starts find eight clusters in a plane about as often as not; from seeds, one does.
    """

    def __init__(self, X: NDArray[Any]) -> None:
        self.X = X

    def __call__(self, n_features: int, n_clusters: int) -> nn.Module:
        seed = int(torch.randint(2**31 - 1, ()))
        rows = self.X.astype(np.float64)
        seeds, _ = kmeans_plusplus(rows, n_clusters, random_state=seed)
        squared = ((rows**2).sum(1)[:, None] - 2 * rows @ seeds.T + (seeds**2).sum(1)).clip(0)
        # Logits −‖x − seed‖² / (2 width²): the cell of a seed is clear, and rows between two cells can still move.
        width = float(np.median(squared.min(axis=1))) or float(squared.mean()) or 1.0
        module = nn.Linear(n_features, n_clusters)
        with torch.no_grad():
            module.weight.copy_(torch.from_numpy(seeds / width))
            module.bias.copy_(torch.from_numpy(-(seeds**2).sum(1) / (2 * width)))
        return module


def standardised(X: NDArray[Any]) -> NDArray[np.float32]:
    """Columns of mean 0 and deviation 1; those that are constant are 0."""
    return scaled(X, Scaling.fit(X, "standard")).astype(np.float32)


def scaled(X: NDArray[Any], scaling: Scaling) -> NDArray[Any]:
    """Rows X (n, …) after a scaling, in their own precision."""
    rows = prepared(X, scaling, torch.float32 if X.dtype == np.float32 else torch.float64, "cpu")
    return rows[torch.arange(len(rows))].numpy()


def default_estimator(X: NDArray[Any]) -> GeminiClustering:
    """For standardised rows X (n, d)."""
    return GeminiClustering(
        model=SeededLinear(X),
        objective="mmd_ovo",
        # A linear kernel knows means only: its boundaries come near a gap, and do not heed it.
        geometry="rbf",
        max_epochs=_EPOCHS,
        batch_size=None,
        learning_rate=_LEARNING_RATE,
        n_init=_STARTS,
    )


def surplus_estimator() -> GeminiClustering:
    """For counting the clusters that stay in use: one-vs-all empties the surplus soonest, from random weights."""
    return GeminiClustering(
        model="linear", objective="mmd_ova", max_epochs=4 * _EPOCHS, batch_size=None, learning_rate=_LEARNING_RATE
    )
