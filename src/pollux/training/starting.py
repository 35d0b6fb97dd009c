"""Where models start: at clusters that k-means finds, in the features of the geometry or of a neighbour graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pollux.data.rows import Rows
from pollux.geometry import KERNELS, Geometry, NeighbourGraph, k_means, unit_rows
from pollux.geometry.affinity import Block, Features

# Eigenvectors for each cluster that starts differ in: no number of them is the best for all data.
_EIGENVECTORS = (1.5, 2.0, 3.0, 2.5, 4.0, 1.0)


def initial_labels(
    init: str,
    rows: Rows,
    geometry: Geometry | None,
    block: Block | None,
    n_clusters: int,
    count: int,
    seed: int,
    sample_weight: Tensor | None = None,
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
    sample_weight : Tensor of shape (n,), optional
        What each sample counts for k-means; a graph knows no weights.
    """
    if init == "graph":
        graph = geometry if isinstance(geometry, NeighbourGraph) else NeighbourGraph()
        widths = [_width(start, n_clusters, len(rows)) for start in range(count)]
        _, vectors = graph.vectors(rows, max(widths))
        features = [unit_rows(vectors[:, :width]) for width in widths]
    else:
        features = [_features(rows, geometry, block)] * count
    # In any unit: equal ones are as good as none.
    weight = None if sample_weight is None else (sample_weight / sample_weight.max()).cpu().numpy()
    return [_labels(each, n_clusters, seed + start, weight) for start, each in enumerate(features)]


def _width(start: int, n_clusters: int, n: int) -> int:
    """The number of eigenvectors that a start looks at."""
    return min(n, max(2, round(_EIGENVECTORS[start % len(_EIGENVECTORS)] * n_clusters)))


def _features(rows: Rows, geometry: Geometry | None, block: Block | None) -> Any:
    """Features (n, r) of all samples, or the samples themselves, which may be sparse."""
    # The features of the linear kernel are the samples: no copy is made of them.
    if geometry is None or block is None or geometry == KERNELS["linear"] or not geometry.gives_features:
        return rows.flat()
    everything = block(torch.arange(len(rows)))
    assert isinstance(everything, Features)
    return everything.values.cpu().numpy()


def _labels(features: Any, n_clusters: int, seed: int, sample_weight: NDArray[np.float64] | None) -> Tensor:
    # Of unit size, squares can be summed whatever the units.
    features = features / (max(float(features.max()), -float(features.min())) or 1.0)
    count = min(n_clusters, features.shape[0])
    return torch.from_numpy(k_means(features, count, seed % 2**32, sample_weight, in_place=True))
