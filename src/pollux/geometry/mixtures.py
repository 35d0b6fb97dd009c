"""Kernels of Gaussian mixtures: samples are alike when they probably come from the same component."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import PowerTransformer

from pollux.data.rows import Rows, as_rows
from pollux.data.scaling import principal_axes
from pollux.geometry.affinity import Block
from pollux.geometry.centres import k_means
from pollux.geometry.neighbours import SEARCHED_COMPONENTS
from pollux.geometry.pairwise import Geometry, Kind
from pollux.geometry.spectral import WEIGHTS, NeighbourGraph, block_of, unit_rows

_COMPONENTS = 10
_REGULARISATION, _OF_FEW_VALUES = 0.05, 0.3
_FEW_VALUES, _COUNTED_ROWS = 10, 1_000
# Deviations of features that differ by less were made equal.
_STANDARDISED = 1.1
_ITERATIONS = 60
# Rows that a mixture is fitted to; it has far fewer parameters.
_MOST_FITTED = 20_000


@dataclass(frozen=True)
class Mixtures(Geometry):
    """A kernel by several Gaussian mixtures, each started at other clusters.

    Mixtures see ellipsoids of any size and density, but only from a good start. One starts at the clusters of k-means,
    which are compact; the others at those of k-means in the mixed features of samples and neighbour graphs, which
    follow curves and gaps. The kernel of two samples is the mean probability that they come from the same component,
    half of it from the one start and half from the others: near 0 or 1 where all agree, in between where they do not.

    Features that are standardised, each having a unit of its own, are first made as symmetric as a power can make them
    (Yeo–Johnson): a skewed feature is not Gaussian.

    Parameters
    ----------
    components : int, optional
        Components of each mixture; as many as clusters by default.
    neighbours : sequence of int
        How many nearest ones samples are joined with; a graph of each kind of weights for each of these numbers.
    dimensions : int
        Principal components that mixtures see, where samples have more dimensions.
    regularisation : float, optional
        The variance that each component has at least in all directions, as a share of the mean variance of samples; by
        default 0.05, or 0.3 where most features take a few values only, since these have no density to speak of.
    """

    components: int | None = None
    neighbours: tuple[int, ...] = (10, 15)
    dimensions: int = SEARCHED_COMPONENTS
    regularisation: float | None = None
    kind: Kind = field(default="kernel", init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", tuple(self.neighbours))
        if not self.neighbours or min(self.neighbours) < 1:
            raise ValueError(f"neighbours are positive numbers of samples, not {self.neighbours}.")
        if (self.components is not None and self.components < 1) or self.dimensions < 1:
            raise ValueError("components and dimensions are positive numbers.")
        if self.regularisation is not None and not 0 < self.regularisation < math.inf:
            raise ValueError(f"regularisation is a positive share of the variance, not {self.regularisation}.")

    @property
    def gives_features(self) -> bool:
        return True

    def for_clusters(self, n_clusters: int) -> Mixtures:
        return self if self.components is not None else replace(self, components=n_clusters)

    def bind(self, X: Any) -> Block:
        rows = as_rows(X)
        return block_of(torch.from_numpy(self.embed(rows)).to(rows.device, rows.dtype))

    def embed(self, X: Any) -> NDArray[np.float64]:
        """The features (n, r) of all samples: the probabilities of all components of all mixtures."""
        rows = _symmetric(as_rows(X))
        points, count = _points(rows, self.dimensions), min(self.components or _COMPONENTS, len(rows))
        regularisation = self.regularisation or (_OF_FEW_VALUES if _takes_few_values(rows) else _REGULARISATION)
        compact = probabilities(points, k_means(points, count), regularisation)
        following = [
            probabilities(points, k_means(self._mixed(rows, points, count, k, weights), count), regularisation)
            for k in self.neighbours
            for weights in WEIGHTS
        ]
        return np.concatenate([compact, *(each / math.sqrt(len(following)) for each in following)], 1) / math.sqrt(2)

    def _mixed(self, rows: Rows, points: NDArray[np.float64], count: int, k: int, weights: str) -> NDArray[np.float64]:
        """Eigenvectors of a neighbour graph beside the points themselves, each of unit mean square."""
        vectors = unit_rows(NeighbourGraph(k, weights=weights).vectors(rows, count)[1])
        return np.concatenate([_of_unit_length(vectors - vectors.mean(0)), _of_unit_length(points)], 1)


def probabilities(points: NDArray[np.float64], labels: NDArray[np.int64], regularisation: float) -> NDArray[np.float64]:
    """Probabilities (n, K) of the components of a mixture of points (n, d) that starts at labels (n,)."""
    used, labels = np.unique(labels, return_inverse=True)
    if len(used) == 1:
        return np.ones((len(points), 1))
    chosen = _some(len(points))
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


def _symmetric(rows: Rows) -> Rows:
    """Samples with each feature raised to the power that makes it most like a Gaussian, where all are standardised."""
    deviation = rows.moments().deviation.flatten()
    deviation = deviation[deviation > 0]
    if not len(deviation) or float(deviation.max()) > _STANDARDISED * float(deviation.min()):
        return rows
    samples = np.concatenate([part.flatten(1).cpu().double().numpy() for part in rows.parts()])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # A constant feature has no best power.
        warnings.simplefilter("ignore")
        powers = PowerTransformer().fit(samples[_some(len(samples))])
        found = powers.transform(samples)
    return Rows(found, rows.dtype) if np.isfinite(found).all() else rows


def _some(n: int) -> NDArray[np.int64]:
    """The numbers of at most so many of n samples as are fitted to, always the same ones."""
    if n <= _MOST_FITTED:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, _MOST_FITTED, replace=False))


def _takes_few_values(rows: Rows) -> bool:
    """Whether most features take at most ten values, as answers, counts and indicators do."""
    sample = rows.sample(_COUNTED_ROWS).flatten(1).cpu().sort(0).values
    values = (sample[1:] != sample[:-1]).sum(0) + 1
    return bool((values <= _FEW_VALUES).double().mean() > 0.5)


def _of_unit_length(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same features, of mean squared length one."""
    return centred / (np.sqrt(np.square(centred).sum(1).mean()) or 1.0)


def _points(rows: Rows, dimensions: int) -> NDArray[np.float64]:
    """Samples as points (n, d), their leading principal components, of unit mean square."""
    centre = torch.from_numpy(rows.moments().mean).flatten()
    axes = None
    if dimensions < min(len(rows), math.prod(rows.shape)):
        axes = principal_axes(rows, centre, dimensions)
    moved = (part.flatten(1).cpu().double() - centre for part in rows.parts())
    points = torch.cat([part if axes is None else part @ axes for part in moved]).numpy()
    # First of unit size, as squares overflow sooner.
    points = points / (np.abs(points).max() or 1.0)
    return points / (np.sqrt(np.square(points).mean()) or 1.0)
