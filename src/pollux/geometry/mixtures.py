"""Kernels of Gaussian mixtures: samples are alike when they probably come from the same component."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from pollux.affinity import Block
from pollux.geometry.neighbours import SEARCHED_COMPONENTS, nearest
from pollux.geometry.pairwise import Geometry, Kind
from pollux.geometry.spectral import WEIGHTS, block_of, eigenvectors, unit_rows
from pollux.rows import Rows, as_rows
from pollux.statistics import moments, parts, principal_axes

_COMPONENTS = 10
_RUNS = 10
_ITERATIONS = 60
# Rows that a mixture is fitted to; it has far fewer parameters.
_MOST_FITTED = 20_000


@dataclass(frozen=True)
class Mixtures(Geometry):
    """A kernel by several Gaussian mixtures, each started at the clusters of another neighbour graph.

    The graphs see clusters of any shape, but not how dense they are or how far they reach; the mixtures see ellipsoids
    of any size, but only from a good start. The kernel of two samples is the mean probability that they come from the
    same component: where mixtures agree it is near 0 or 1, and where they do not, in between.

    Parameters
    ----------
    components : int, optional
        Components of each mixture; as many as clusters by default.
    neighbours : sequence of int
        How many nearest ones samples are joined with; a graph of each kind of weights for each of these numbers.
    dimensions : int
        Principal components that mixtures see, where samples have more dimensions.
    regularisation : float
        The variance that each component has at least in all directions, as a share of the mean variance of samples.
    """

    components: int | None = None
    neighbours: tuple[int, ...] = (10, 15)
    dimensions: int = SEARCHED_COMPONENTS
    regularisation: float = 0.05
    kind: Kind = field(default="kernel", init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", tuple(self.neighbours))
        if not self.neighbours or min(self.neighbours) < 1:
            raise ValueError(f"neighbours are positive numbers of samples, not {self.neighbours}.")
        if (self.components is not None and self.components < 1) or self.dimensions < 1:
            raise ValueError("components and dimensions are positive numbers.")
        if not 0 < self.regularisation < math.inf:
            raise ValueError(f"regularisation is a positive share of the variance, not {self.regularisation}.")

    def for_clusters(self, n_clusters: int) -> Mixtures:
        return self if self.components is not None else replace(self, components=n_clusters)

    def bind(self, X: Any) -> Block:
        rows = as_rows(X)
        return block_of(torch.from_numpy(self.embed(rows)).to(rows.device, rows.dtype))

    def embed(self, X: Any) -> NDArray[np.float64]:
        """The features (n, r) of all samples: the probabilities of all components of all mixtures."""
        rows = as_rows(X)
        points, count = _points(rows, self.dimensions), min(self.components or _COMPONENTS, len(rows))
        found = []
        for k in self.neighbours:
            neighbours = nearest(rows, k)
            for weights in WEIGHTS.values():
                labels = _labels(unit_rows(eigenvectors(weights(neighbours), count)[1]), count)
                found.append(probabilities(points, labels, self.regularisation))
        return np.concatenate(found, 1) / math.sqrt(len(found))


def probabilities(points: NDArray[np.float64], labels: NDArray[np.int64], regularisation: float) -> NDArray[np.float64]:
    """Probabilities (n, K) of the components of a mixture of points (n, d) that starts at labels (n,)."""
    used, labels = np.unique(labels, return_inverse=True)
    if len(used) == 1:
        return np.ones((len(points), 1))
    chosen = np.arange(len(points))
    if len(points) > _MOST_FITTED:
        chosen = np.sort(np.random.default_rng(0).choice(len(points), _MOST_FITTED, replace=False))
    start = _start(points[chosen], np.eye(len(used))[labels[chosen]], regularisation)
    mixture = GaussianMixture(len(used), reg_covar=regularisation, max_iter=_ITERATIONS, random_state=0, **start)
    with warnings.catch_warnings():
        # So many iterations are enough, whether or not they converge.
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(points[chosen])
    return np.asarray(mixture.predict_proba(points))


def _start(
    points: NDArray[np.float64], member: NDArray[np.float64], regularisation: float
) -> dict[str, NDArray[np.float64]]:
    """Shares, means and inverse covariances of clusters, from who is a member (n, K) of them."""
    sizes = np.maximum(member.sum(0), 1e-9)
    means = (member.T @ points) / sizes[:, None]
    precisions = []
    for k, mean in enumerate(means):
        own = (points - mean) * np.sqrt(member[:, k : k + 1])
        covariance = own.T @ own / sizes[k] + regularisation * np.eye(points.shape[1])
        precisions.append(np.linalg.inv(covariance))
    return {"weights_init": sizes / sizes.sum(), "means_init": means, "precisions_init": np.stack(precisions)}


def _labels(features: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(KMeans(count, n_init=_RUNS, random_state=0).fit(features).labels_)


def _points(rows: Rows, dimensions: int) -> NDArray[np.float64]:
    """Samples as points (n, d), their leading principal components, of unit mean square."""
    centre = moments(rows).mean.flatten()
    axes = None
    if dimensions < min(len(rows), math.prod(rows.shape)):
        axes = principal_axes(rows, centre, dimensions)
    moved = (part.flatten(1).cpu().double() - centre for part in parts(rows))
    points = torch.cat([part if axes is None else part @ axes for part in moved]).numpy()
    # First of unit size, as squares overflow sooner.
    points = points / (np.abs(points).max() or 1.0)
    return points / (np.sqrt(np.square(points).mean()) or 1.0)
