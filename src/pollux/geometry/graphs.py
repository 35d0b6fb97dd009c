"""Distances along a neighbour graph, which follow a manifold where straight lines leave it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.neighbors import radius_neighbors_graph

from pollux.data.rows import Rows, as_rows
from pollux.geometry.affinity import Block, Paths
from pollux.geometry.neighbours import nearest
from pollux.geometry.pairwise import Geometry, Kind, is_whole

_QUANTILE_ROWS = 2000
_MOST_EDGES = 100_000_000


@dataclass(frozen=True)
class ShortestPath(Geometry):
    """The length of the shortest path between two samples in a graph of neighbours.

    Two samples are neighbours when their Euclidean distance is at most a quantile of all distances, or when
    one is among the nearest ``neighbours`` of the other. Nodes of the graph are all samples, those of a batch some of
    them; Wasserstein objectives move mass along it, so that no matrix of distances is needed.

    Parameters
    ----------
    quantile : float
        The share of all pairs that are neighbours.
    neighbours : int, optional
        Connect each sample with this many nearest neighbours instead; the choice for large data.
    weighted : bool
        Measure a path by the Euclidean lengths of its edges rather than by their number.
    """

    quantile: float = 0.05
    neighbours: int | None = None
    weighted: bool = False
    kind: Kind = field(default="distance", init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.quantile <= 1:
            raise ValueError(f"quantile is a share of all pairs, above 0 and at most 1; not {self.quantile}.")
        if self.neighbours is not None and not (is_whole(self.neighbours) and self.neighbours >= 1):
            raise ValueError(f"neighbours is a positive whole number of samples, not {self.neighbours}.")

    @property
    def gives_paths(self) -> bool:
        return True

    def bind(self, X: Any) -> Block:
        rows = as_rows(X)
        graph = self.graph(rows)
        if not self.weighted:
            graph.data[:] = 1
        # Longer than any path, which has fewer than n edges.
        unreachable = len(rows) * (float(graph.data.max(initial=0.0)) or 1.0)
        return Paths(graph, torch.arange(len(rows), device=rows.device), unreachable, rows.dtype).part

    def graph(self, X: Any) -> scipy.sparse.csr_array:
        """The symmetric neighbour graph (n, n) of all samples, its values the Euclidean lengths of edges."""
        rows = as_rows(X)
        if self.neighbours is not None:
            return _nearest(rows, self.neighbours)
        samples = _array(rows)
        # Scaled to unit size, so that squares do not overflow; neighbours do not depend on the unit.
        unit = float(np.abs(samples).max(initial=0)) or 1.0
        return _scaled(self._graph(samples / unit), unit)

    def _graph(self, samples: NDArray[np.float64]) -> scipy.sparse.csr_array:
        n = len(samples)
        if self.quantile * n * n > _MOST_EDGES:
            raise ValueError(
                f"A graph of {self.quantile:.0%} of all pairs of {n:,} samples would have "
                f"{self.quantile * n * n:,.0f} edges: ask for a number of neighbours instead, "
                f"ShortestPath(neighbours=10)."
            )
        radius = _distance_quantile(samples, self.quantile)
        return scipy.sparse.csr_array(radius_neighbors_graph(samples, radius, mode="distance"))


def _array(rows: Rows) -> NDArray[np.float64]:
    everything = rows[torch.arange(len(rows))].flatten(1)
    return everything.double().cpu().numpy()


def _nearest(rows: Rows, k: int) -> scipy.sparse.csr_array:
    """The graph that connects each sample with its k nearest neighbours, in both directions."""
    found = nearest(rows, k, components=None)
    n, k = found.numbers.shape
    ends = np.stack([np.repeat(np.arange(n), k), found.numbers.ravel()])
    # Not by sparse arithmetic, which would drop edges of length zero between equal rows.
    edges, first = np.unique(np.concatenate([ends, ends[::-1]], 1), axis=1, return_index=True)
    lengths = np.tile(found.distances.ravel(), 2)[first]
    return scipy.sparse.csr_array((lengths, (edges[0], edges[1])), shape=(n, n))


def _scaled(graph: scipy.sparse.csr_array, unit: float) -> scipy.sparse.csr_array:
    graph.data *= unit
    return graph


def _distance_quantile(samples: NDArray[np.float64], quantile: float) -> float:
    """The quantile of all distances d_ij; estimated from a subsample if n is large.

    The n distances d_ii = 0 are among them, unless they alone would fill the quantile.
    """
    if len(samples) > _QUANTILE_ROWS:
        chosen = np.random.default_rng(0).choice(len(samples), _QUANTILE_ROWS, replace=False)
        samples = samples[chosen]
    between = pdist(samples)
    if len(samples) < 2:
        return 0.0
    radius = float(np.quantile(np.concatenate([between, between, np.zeros(len(samples))]), quantile))
    return radius if radius >= between.min() else float(np.quantile(between, quantile))
