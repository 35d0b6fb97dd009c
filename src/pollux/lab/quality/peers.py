"""The methods that are compared, each by its public interface, and what they are given; ``METHODS``."""

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
"""Numbers of the largest sparse table that is written out for methods that need it dense."""

_INSTALL = "pip install 'pollux[bench]'"
# Above so many rows, GemClus is trained in batches: in one, each step would take time and memory of the rows squared.
_GEMCLUS_WHOLE, _GEMCLUS_BATCH = 1_000, 500


@dataclass(frozen=True)
class Method:
    """A way to cluster."""

    name: str  # on the command line
    title: str  # in tables
    fit: Fit
    package: str = "scikit-learn"  # whose version is part of what identifies a run
    module: str = "sklearn"  # must be importable
    takes_raw: bool = False  # is given the set as it is, unscaled and with what is missing
    needs_dense: bool = True
    is_random: bool = True
    predicts: bool = False  # can be asked about rows that it was not fitted to
    bytes_per_pair: float = 0.0  # memory divided by the square of the number of rows; measured

    @property
    def is_installed(self) -> bool:
        """Whether it is installed."""
        return importlib.util.find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """The version of the package; nothing where it was not installed as one."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return ""

    def refusal(self, data: DataSet, memory: float) -> str:
        """Why it cannot be run on a set with so many bytes of memory; nothing where it can."""
        if data.has_test and not self.predicts:
            return "cannot label rows that it was not fitted to"
        if data.is_sparse and self.needs_dense and data.rows * data.columns > MOST_DENSE:
            return f"needs a dense table, and this one would be too large ({data.rows:,} × {data.columns:,})"
        need = self.bytes_per_pair * data.rows**2
        if need > memory:
            return f"would need about {need / 1e9:.0f} GB of memory, and has {memory / 1e9:.0f} GB"
        return ""


def _spectral(X: Any, n_clusters: int, seed: int, context: RunContext) -> Any:
    # Fewer rows than neighbours: all of them are.
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
    # Tables take seconds, of which checkpoints would be a part.
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
    # The only one without a number of clusters: it has no such parameter.
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
"""All of them, by name, in the order of the tables."""

REFERENCE = "kmeans"
"""The method that the others are compared with."""


def choose_methods(names: Sequence[str]) -> tuple[list[Method], list[str]]:
    """Methods by name, all by default, in the order of the tables; and what is said of those that are not here."""
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


# What the peers are given: no missing values, and columns scaled by one rule for all methods and sets.


def fit_preparation(X: Any) -> Callable[[Any], Any]:
    """The rule, with what it takes from the rows X (n, d) or images (n, …), as a map of such rows.

    It is the automatic scaling of this library: missing values become the mean of their column, and all is centred;
    columns of like ranges are divided by one number, others each by its standard deviation. A sparse table is not
    centred, which would fill it, and is divided by one number.
    """
    if scipy.sparse.issparse(X):
        scale = np.sqrt(X.multiply(X).sum() / np.prod(X.shape, dtype=float)) or 1.0
        return lambda rows: rows * (1 / scale)
    scaling = FittedScaling.fit(_flat(X), "auto")
    return lambda rows: scaling(torch.from_numpy(_flat(rows))).numpy()


def densify(X: Any) -> Any:
    """A sparse table with its zeros written out."""
    return X.toarray() if scipy.sparse.issparse(X) else X


def _flat(X: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(X, dtype=np.float64).reshape(len(X), -1)
