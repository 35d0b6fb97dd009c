"""A map on which neighbours stay neighbours, by openTSNE."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

MOST_ROWS = 20_000
"""Rows that are arranged; further ones are placed among them."""
_COMPONENTS, _PERPLEXITY = 50, 30
AXES = ("neighbour embedding, first coordinate", "second coordinate")


def neighbour_map(X: NDArray[Any]) -> tuple[NDArray[np.float64], tuple[str, str]]:
    """A t-SNE of X (n, d): points (n, 2) whose neighbours are those of the rows, and what their axes are.

    Only who lies near whom means something: neither distances between clusters nor the directions do. At most 20,000
    rows are arranged, in their first 50 principal components, and the others placed among them. The same rows give the
    same map. It needs ``pip install 'pollux[map]'``.
    """
    try:
        from openTSNE import TSNE
    except ImportError as error:
        raise ImportError("This map is drawn by openTSNE: pip install 'pollux[map]'.") from error
    X = np.nan_to_num(np.asarray(X, dtype=np.float32))
    rows = np.arange(len(X))
    if len(X) > MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(len(X), MOST_ROWS, replace=False))
    if X.shape[1] > _COMPONENTS < len(X):
        X = PCA(_COMPONENTS, random_state=0).fit(X[rows]).transform(X)
    # A point has neighbours of its own to be near to: fewer than there are rows.
    perplexity = max(1.0, min(_PERPLEXITY, (len(rows) - 1) / 3))
    arranged = TSNE(perplexity=perplexity, random_state=0, n_jobs=1).fit(X[rows])
    points = np.empty((len(X), 2))
    points[rows] = arranged
    others = np.setdiff1d(np.arange(len(X)), rows)
    for part in np.array_split(others, -(-len(others) // MOST_ROWS)) if len(others) else []:
        points[part] = arranged.prepare_partial(X[part], k=10)
    return points, AXES
