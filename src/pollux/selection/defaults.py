"""The clustering with which numbers of clusters are compared, where the user names none."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pollux.clustering import GeminiClustering
from pollux.data.scaling import FittedScaling, prepared

MOST_FITTED = 1_000
"""Rows of a subsample: more of them take longer and tell little more of a small network."""

_EPOCHS, _LEARNING_RATE = 20, 0.01
# How often values of a column that has steps repeat, on average.
_REPEATED = 3


def default_estimator() -> GeminiClustering:
    """For standardised rows: neighbours tell clusters of any shape, and k-means of their graph those of any size."""
    return GeminiClustering(
        model="mlp",
        hidden=(100,),
        objective="mmd_ovo",
        geometry="graph",
        init="kmeans",
        max_epochs=_EPOCHS,
        batch_size=None,
        learning_rate=_LEARNING_RATE,
    )


def surplus_estimator() -> GeminiClustering:
    """For counting the clusters that stay in use: one-vs-all empties the surplus soonest, from random weights."""
    return GeminiClustering(
        model="linear", objective="mmd_ova", max_epochs=10 * _EPOCHS, batch_size=None, learning_rate=5 * _LEARNING_RATE
    )


def without_steps(X: NDArray[Any], seed: int) -> NDArray[np.float32]:
    """Columns whose values repeat are spread by half a step to either side, and all are standardised.

    Whole numbers, grades, zeros and ones have room between them that is no gap between clusters.
    """
    generator = np.random.default_rng(seed)
    rows = np.array(X, dtype=np.float64)
    for column in rows.T:
        values = np.unique(column)
        if 1 < len(values) <= len(rows) / _REPEATED:
            column += generator.uniform(-0.5, 0.5, len(rows)) * np.median(np.diff(values))
    return standardised(rows)


def standardised(X: NDArray[Any]) -> NDArray[np.float32]:
    """Columns of mean 0 and deviation 1; those that are constant are 0."""
    return scaled(X, FittedScaling.fit(X, "standard")).astype(np.float32)


def scaled(X: NDArray[Any], scaling: FittedScaling) -> NDArray[Any]:
    """Rows X (n, …) after a scaling, in their own precision."""
    rows = prepared(X, scaling, torch.float32 if X.dtype == np.float32 else torch.float64, "cpu")
    return rows[torch.arange(len(rows))].numpy()
