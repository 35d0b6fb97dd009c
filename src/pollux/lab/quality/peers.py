"""The methods that are compared, each called through its public interface, and the preparation of their data."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.mixture import GaussianMixture

from pollux.data.scaling import FittedScaling
from pollux.errors import InputError, did_you_mean
from pollux.lab.grid import RunContext
from pollux.lab.quality.labelled_sets import DataSet

Fit = Callable[[Any, int, int, RunContext], Any]
"""(X, clusters, seed, context) → a fitted estimator with ``labels_`` or ``predict``."""

MOST_DENSE = 50_000_000
"""Largest number of elements of a sparse table that is converted for methods that need a dense one."""

_INSTALL = "pip install 'pollux[bench]'"
# With more rows, GemClus is trained in batches: time and memory of a full-batch step grow with the rows squared.
_GEMCLUS_WHOLE, _GEMCLUS_BATCH = 1_000, 500


@dataclass(frozen=True)
class Method:
    """A clustering method."""

    name: str  # in options
    title: str  # in tables
    fit: Fit
    package: str = "scikit-learn"  # its version is part of the identity of a run
    module: str = "sklearn"  # must be importable
    takes_raw: bool = False  # gets the data unscaled and with missing values
    needs_dense: bool = True
    is_random: bool = True
    predicts: bool = False  # can label rows that it was not fitted to
    bytes_per_pair: float = 0.0  # memory divided by the number of rows squared, measured

    @property
    def is_installed(self) -> bool:
        """Whether the method's module can be imported."""
        return importlib.util.find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """The version of the package; empty if no such package is installed."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return ""

    def refusal(self, data: DataSet, memory: float) -> str:
        """Return why the method cannot run on a data set with ``memory`` bytes; empty if it can."""
        if data.has_test and not self.predicts:
            return "cannot label rows that it was not fitted to"
        if data.is_sparse and self.needs_dense and data.rows * data.columns > MOST_DENSE:
            return f"needs a dense table, and this one would be too large ({data.rows:,} × {data.columns:,})"
        need = self.bytes_per_pair * data.rows**2
        if need > memory:
            return f"would need about {need / 1e9:.0f} GB of memory, and has {memory / 1e9:.0f} GB"
        return ""


def _spectral(X: Any, n_clusters: int, seed: int, context: RunContext) -> Any:
    # There can be fewer rows than neighbours.
    graph: dict[str, Any] = {"affinity": "nearest_neighbors", "n_neighbors": min(10, X.shape[0])}
    return SpectralClustering(n_clusters, random_state=seed, **graph).fit(X)


def _gemclus(X: Any, n_clusters: int, seed: int, context: RunContext) -> Any:
    from gemclus.linear import LinearMMD

    batch = None if X.shape[0] <= _GEMCLUS_WHOLE else _GEMCLUS_BATCH
    return LinearMMD(n_clusters=n_clusters, batch_size=batch, random_state=seed).fit(X)


def _pollux(X: Any, n_clusters: int, seed: int, context: RunContext) -> Any:
    from pollux.clustering import GeminiClustering

    is_table = X.ndim == 2
    recipe = GeminiClustering.for_tables if is_table else GeminiClustering.for_images
    # Tables take seconds, and checkpoints would be a good part of that.
    further: dict[str, Any] = {} if is_table else {"training__checkpoint": context.checkpoint()}
    clustering = recipe(n_clusters=n_clusters, random_state=seed)
    return clustering.set_params(callbacks=context.callbacks, **further).fit(X)


def _kmeans(X: Any, K: int, seed: int, context: RunContext) -> Any:
    return KMeans(K, n_init=10, random_state=seed).fit(X)


def _mixture(X: Any, K: int, seed: int, context: RunContext) -> Any:
    return GaussianMixture(K, random_state=seed).fit(X)


def _ward(X: Any, K: int, seed: int, context: RunContext) -> Any:
    return AgglomerativeClustering(K, linkage="ward").fit(X)


def _hdbscan(X: Any, K: int, seed: int, context: RunContext) -> Any:
    # HDBSCAN has no parameter for the number of clusters.
    return HDBSCAN(copy=True).fit(X)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("kmeans", "K-Means", _kmeans, needs_dense=False, predicts=True),
        Method("gmm", "Gaussian mixture", _mixture, predicts=True),
        Method("ward", "Ward", _ward, is_random=False, bytes_per_pair=8),
        Method("spectral", "Spectral", _spectral, needs_dense=False, bytes_per_pair=4),
        Method("hdbscan", "HDBSCAN", _hdbscan, is_random=False),
        Method("gemclus", "GemClus", _gemclus, "gemclus", "gemclus", predicts=True, bytes_per_pair=10),
        Method("pollux", "Pollux", _pollux, "pollux", "pollux", takes_raw=True, needs_dense=False, predicts=True),
    )
}
"""All methods by name, in the order of the tables."""

REFERENCE = "kmeans"
"""The method that the others are compared with."""


def choose_methods(names: Sequence[str]) -> tuple[list[Method], list[str]]:
    """Return methods by name, by default all, in the order of the tables; and notes on those that are not installed."""
    for name in names:
        if name not in METHODS:
            valid = ", ".join(METHODS)
            raise InputError(f"There is no method {name!r}: choose of {valid}.{did_you_mean(name, METHODS)}")
    chosen = [method for method in METHODS.values() if method.name in names or not names]
    lacking = [method for method in chosen if not method.is_installed]
    if names and lacking:
        raise InputError(f"{lacking[0].title} is not installed: {_INSTALL}, or leave it out of --methods.")
    notes = [f"{method.title} is left out, because it is not installed: {_INSTALL}" for method in lacking]
    return [method for method in chosen if method.is_installed], notes


# Input of the other methods: no missing values, and columns scaled in the same way for all methods and data sets.


def fit_preparation(X: Any) -> Callable[[Any], Any]:
    """Fit the scaling to the rows X (n, d) or images (n, …), and return it as a function of such rows.

    This is the automatic scaling of this library: missing values become the mean of their column, and columns are
    centred; columns of similar ranges are divided by one number, others each by its standard deviation. A sparse table
    is divided by one number and not centred, which would make it dense.
    """
    if scipy.sparse.issparse(X):
        scale = np.sqrt(X.multiply(X).sum() / np.prod(X.shape, dtype=float)) or 1.0
        return lambda rows: rows * (1 / scale)
    scaling = FittedScaling.fit(_flat(X), "auto")
    return lambda rows: scaling(torch.from_numpy(_flat(rows))).numpy()


def densify(X: Any) -> Any:
    """Convert a sparse table to a dense array."""
    return X.toarray() if scipy.sparse.issparse(X) else X


def _flat(X: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(X, dtype=np.float64).reshape(len(X), -1)
