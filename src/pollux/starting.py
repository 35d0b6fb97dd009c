"""Where models start: at clusters that k-means finds, in the features of the geometry or of a neighbour graph."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from pollux.affinity import Block, Features
from pollux.geometry import Geometry, NeighbourGraph, eigenvectors, unit_rows
from pollux.rows import Rows

INITS = ("auto", "random", "kmeans++", "kmeans", "graph")

# Eigenvectors for each cluster that starts differ in: no number of them is the best for all data.
_EIGENVECTORS = (1.5, 2.0, 3.0, 2.5, 4.0, 1.0)
_RUNS = 10


def initial_labels(
    init: str,
    rows: Rows,
    geometry: Geometry | None,
    block: Block | None,
    n_clusters: int,
    count: int,
    seed: int,
) -> list[Tensor]:
    """Labels (n,) for each of so many starts.

    Parameters
    ----------
    init : {"kmeans", "graph"}
        k-means in the features of the geometry, or in those of the samples where it has none; or in the leading
        eigenvectors of the neighbour graph, of which each start takes another number.
    rows : Rows
        The samples.
    geometry, block : Geometry, callable, optional
        The geometry, and what it gives of these samples.
    n_clusters, count, seed : int
        Clusters, starts, and what their random numbers come from.
    """
    if init == "graph":
        graph = geometry if isinstance(geometry, NeighbourGraph) else NeighbourGraph()
        widths = [_width(start, n_clusters, len(rows)) for start in range(count)]
        _, vectors = eigenvectors(graph.graph(rows), max(widths))
        features = [unit_rows(vectors[:, :width]) for width in widths]
    else:
        features = [_features(rows, block)] * count
    return [_k_means(each, n_clusters, seed + start) for start, each in enumerate(features)]


def _width(start: int, n_clusters: int, n: int) -> int:
    """The number of eigenvectors that a start looks at."""
    return min(n, max(2, round(_EIGENVECTORS[start % len(_EIGENVECTORS)] * n_clusters)))


def _features(rows: Rows, block: Block | None) -> Any:
    """Features (n, r) of all samples, or the samples themselves, which may be sparse."""
    if block is None or not isinstance(block(torch.arange(min(2, len(rows)))), Features):
        return rows.flat()
    everything = block(torch.arange(len(rows)))
    assert isinstance(everything, Features)
    return everything.values.cpu().numpy()


def _k_means(features: Any, n_clusters: int, seed: int) -> Tensor:
    # Of unit size, squares can be summed whatever the units.
    features = features / (abs(features).max() or 1.0)
    with warnings.catch_warnings():
        # Fewer distinct samples than clusters: some then stay empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(min(n_clusters, features.shape[0]), n_init=_RUNS, random_state=seed % 2**32).fit(features)
    return torch.from_numpy(found.labels_.astype(np.int64))
