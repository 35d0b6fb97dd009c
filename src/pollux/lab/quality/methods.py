"""The methods that are compared, each by its public interface; ``METHODS``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.mixture import GaussianMixture

from pollux.lab.quality.preparing import MOST_DENSE
from pollux.lab.quality.sets import DataSet
from pollux.training.callbacks import Callback

Fit = Callable[[Any, int, int, Sequence[Callback]], Any]
"""(X, clusters, seed, callbacks) → a fitted estimator with ``labels_`` or ``predict``."""

# Above so many rows, GemClus is trained in batches: in one, each step would take time and memory of the rows squared.
_GEMCLUS_WHOLE, _GEMCLUS_BATCH = 1_000, 500


@dataclass(frozen=True)
class Method:
    """A way to cluster.

    Parameters
    ----------
    name, title : str
        On the command line and in tables.
    fit : callable
        Fits it.
    package : str
        What it comes with; its version is part of what identifies a run.
    module : str
        What must be importable for it.
    is_raw : bool
        Whether it is given the set as it is, with what is missing and unscaled.
    needs_dense : bool
        Whether sparse tables must be written out for it.
    is_random : bool
        Whether seeds make a difference.
    predicts : bool
        Whether it can be asked about rows that it was not fitted to.
    bytes_per_pair : float
        Memory that it takes, divided by the square of the number of rows; measured.
    """

    name: str
    title: str
    fit: Fit
    package: str = "scikit-learn"
    module: str = "sklearn"
    is_raw: bool = False
    needs_dense: bool = True
    is_random: bool = True
    predicts: bool = False
    bytes_per_pair: float = 0.0

    @property
    def is_here(self) -> bool:
        """Whether it is installed."""
        return importlib.util.find_spec(self.module) is not None

    def refuses(self, data: DataSet, memory: float) -> str:
        """Why it cannot be run on a set with so many bytes of memory; nothing where it can."""
        if data.has_test and not self.predicts:
            return "cannot label rows that it was not fitted to"
        if data.is_sparse and self.needs_dense and data.rows * data.columns > MOST_DENSE:
            return f"needs a dense table, and this one would be too large ({data.rows:,} × {data.columns:,})"
        need = self.bytes_per_pair * data.rows**2
        if need > memory:
            return f"would need about {need / 1e9:.0f} GB of memory, and has {memory / 1e9:.0f} GB"
        return ""


def _kmeans(X: Any, n_clusters: int, seed: int, callbacks: Sequence[Callback]) -> Any:
    return KMeans(n_clusters, n_init=10, random_state=seed).fit(X)


def _mixture(X: Any, n_clusters: int, seed: int, callbacks: Sequence[Callback]) -> Any:
    return GaussianMixture(n_clusters, random_state=seed).fit(X)


def _ward(X: Any, n_clusters: int, seed: int, callbacks: Sequence[Callback]) -> Any:
    return AgglomerativeClustering(n_clusters, linkage="ward").fit(X)


def _spectral(X: Any, n_clusters: int, seed: int, callbacks: Sequence[Callback]) -> Any:
    # Fewer rows than neighbours: all of them are.
    neighbours = min(10, X.shape[0])
    return SpectralClustering(n_clusters, affinity="nearest_neighbors", n_neighbors=neighbours, random_state=seed).fit(
        X
    )


def _hdbscan(X: Any, n_clusters: int, seed: int, callbacks: Sequence[Callback]) -> Any:
    # The only one that is not told how many clusters there are: it has no such parameter.
    return HDBSCAN(copy=True).fit(X)


def _gemclus(X: Any, n_clusters: int, seed: int, callbacks: Sequence[Callback]) -> Any:
    from gemclus.linear import LinearMMD

    batch = None if X.shape[0] <= _GEMCLUS_WHOLE else _GEMCLUS_BATCH
    return LinearMMD(n_clusters=n_clusters, batch_size=batch, random_state=seed).fit(X)


def _pollux(X: Any, n_clusters: int, seed: int, callbacks: Sequence[Callback]) -> Any:
    from pollux.clustering import GeminiClustering

    recipe = GeminiClustering.for_images if X.ndim > 2 else GeminiClustering.for_tables
    return recipe(n_clusters=n_clusters, random_state=seed).set_params(callbacks=list(callbacks)).fit(X)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("kmeans", "K-Means", _kmeans, needs_dense=False, predicts=True),
        Method("gmm", "Gaussian mixture", _mixture, predicts=True),
        Method("ward", "Ward", _ward, is_random=False, bytes_per_pair=8),
        Method("spectral", "Spectral", _spectral, needs_dense=False, bytes_per_pair=4),
        Method("hdbscan", "HDBSCAN", _hdbscan, is_random=False),
        Method("gemclus", "GemClus", _gemclus, "gemclus", "gemclus", predicts=True, bytes_per_pair=10),
        Method("pollux", "Pollux", _pollux, "pollux", "pollux", is_raw=True, needs_dense=False, predicts=True),
    )
}
"""All of them, by name, in the order of the tables."""

REFERENCE = "kmeans"
"""The method that the others are compared with."""
