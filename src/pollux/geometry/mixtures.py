"""Kernels of Gaussian mixtures: samples are alike when they probably come from the same component."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pollux.data.powers import Powers
from pollux.data.rows import Rows, as_rows
from pollux.data.scaling import principal_axes
from pollux.geometry.affinity import Block
from pollux.geometry.centres import ENOUGH, fit_k_means, k_means
from pollux.geometry.neighbours import SEARCHED_COMPONENTS
from pollux.geometry.pairwise import Geometry, Kind
from pollux.geometry.spectral import WEIGHTS, NeighbourGraph, block_of, distinct, eigenvectors, unit_rows
from pollux.progress import track

_COMPONENTS = 10
REGULARISATION, _OF_FEW_VALUES = 0.05, 0.3
_FEW_VALUES, _COUNTED_ROWS = 10, 1_000
# If the standard deviations of features differ by less than this factor, the features were standardised.
_STANDARDISED = 1.1
_ITERATIONS = 60
_FEWEST_ITERATIONS = 5
# EM stops when the mean log-density rises by less.
_TOLERANCE = 1e-3
# Probabilities below this are ignored in covariances.
_NO_MEMBER = 1e-12
# Maximum multiplications of a mixture, n·K·d² per iteration: with hundreds of components each takes long.
_MOST_PRODUCTS = 5e10
# Numbers of products that are computed at once.
_PRODUCTS = 2**18
# Samples that a mixture is fitted to, since it has far fewer parameters; and samples that its labels are found for.
_MOST_FITTED = 20_000
_MOST_STARTING, _STARTING_OF_A_CLUSTER = 5_000, 20
_MOST_EIGENVECTORS = 50
# Beyond this many features only principal components are used, even for few samples; estimating a power takes 1 ms.
_WIDE, _MOST_POWERS = 1_000, 5_000
# Clusters are well separated if, of the neighbours of this many samples, at most this share is in other clusters.
_LOOKED_AT, _NEAREST, _MOST_ACROSS = 500, 15, 1e-3
# Bound for features after a power transform, whose standard deviation is one.
_FARTHEST = 1e6

Points: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Mixtures(Geometry):
    """A kernel from several Gaussian mixtures with different initial clusters.

    Mixtures see ellipsoids of any size and density, but only from a good initialisation. One is initialised by k-means,
    whose clusters are compact; the others by k-means in the mixed features of samples and neighbour graphs, which
    follow curves and gaps. The kernel of two samples is the mean probability that they come from the same component,
    half of it from the first mixture, half from the others: near 0 or 1 where all agree, in between where they do not.

    Features that are standardised, each having a unit of its own, are first made as symmetric as a power can make them
    (Yeo–Johnson): a skewed feature is not Gaussian. Powers, k-means and mixtures use the sample weights.

    Parameters
    ----------
    components : int, optional
        Components of each mixture; as many as clusters by default.
    neighbours : sequence of int
        Numbers of nearest neighbours; one graph of each kind of weights is built for each of them.
    dimensions : int
        Number of principal components that mixtures see, if samples have more dimensions.
    regularisation : float, optional
        The minimum variance of a component in any direction, as a share of the mean variance of samples; by default
        0.05, or 0.3 if most features take a few values only, since these have no density to speak of.
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
        """The features (n, r) of all samples: the probabilities of all components of all mixtures.

        All is fitted to a subsample; the other samples are then transformed in parts.
        """
        rows = as_rows(X)
        sample = some_of(rows, _MOST_FITTED)
        to_points = learn_points(sample, self.dimensions)
        points, weight = to_points(sample), weight_of(sample)
        regularisation = self.regularisation or (_OF_FEW_VALUES if _takes_few_values(sample) else REGULARISATION)
        count = min(self.components or _COMPONENTS, len(points))
        # Initial labels need fewer samples than a mixture: building the neighbour graph takes the longest.
        weighted = Rows(points, sample_weight=torch.from_numpy(weight))
        some = some_of(weighted, max(_MOST_STARTING, _STARTING_OF_A_CLUSTER * count))
        starting = Start(some.flat(), weight_of(some))
        found = track(self._starts(starting, count), "where mixtures start", 1 + len(self.neighbours) * len(WEIGHTS))
        initial = [_renumber(labels) for labels in found]
        # The first, compact initialisation has half of the weight. Equal ones are merged, and their weights added.
        shares = dict.fromkeys(map(bytes, initial), 0.0)
        for i, start in enumerate(initial):
            of_all = 1 / 2 if i == 0 else 1 / 2 / (len(initial) - 1)
            shares[bytes(start)] += of_all if len(initial) > 1 else 1
        once = {bytes(start): start for start in initial}
        # Well-separated clusters are the same for a smaller sample.
        fitting = starting if len(initial) == 1 else Start(points, weight)
        fitted = [
            (math.sqrt(share), fit_mixture(*fitting, once[key], regularisation, starting))
            for key, share in track(shares.items(), "fitting mixture")
        ]
        parts = (
            [points] if sample is rows else track((to_points(Rows(part)) for part in rows.parts()), "mixtures of rows")
        )
        return np.concatenate(
            [np.concatenate([share * mixture.predict_proba(part) for share, mixture in fitted], 1) for part in parts]
        )

    def _starts(self, start: Start, count: int) -> Iterator[NDArray[np.int64]]:
        """Initial labels (n,) of points for mixtures: the clusters of k-means, and those along graphs."""
        points, weight = start
        compact = fit_k_means(points, count, sample_weight=weight)
        yield compact.labels
        once, which = distinct(Rows(points))
        if compact.found == ENOUGH and are_apart(once.flat(), compact.labels[np.unique(which, return_index=True)[1]]):
            # Graphs would have no edges between these clusters, and give the same ones.
            return
        for k in self.neighbours:
            for weights in WEIGHTS:
                graph = NeighbourGraph(k, weights=weights, search_components=None).graph(once)
                vectors = unit_rows(eigenvectors(graph, min(count, _MOST_EIGENVECTORS))[1][which])
                # Concatenate the eigenvectors and the points, each scaled to unit mean square.
                centred = vectors - weight @ vectors / weight.sum()
                mixed = np.concatenate([_of_unit_length(each, weight) for each in (centred, points)], 1)
                yield k_means(mixed, count, sample_weight=weight)


def are_apart(points: Points, labels: NDArray[np.int64]) -> bool:
    """Whether hardly any nearest neighbours, of a sample of the points (n, d), are in other clusters."""
    drawn = np.random.default_rng(0).choice(len(points), min(_LOOKED_AT, len(points)), replace=False)
    # Single precision is enough to find neighbours.
    points = points.astype(np.float32)
    squares, across = np.square(points).sum(1), 0
    for some in np.array_split(drawn, -(-len(drawn) * len(points) // _PRODUCTS)):
        distances, own = squares - 2 * points[some] @ points.T, labels[some, None]
        # Most points have enough neighbours nearer than the first of another cluster.
        other = np.where(own == labels, np.inf, distances).min(1, keepdims=True)
        mixed = (distances < other).sum(1) <= _NEAREST
        near = np.argpartition(distances[mixed], min(_NEAREST, len(points) - 1), axis=1)[:, : _NEAREST + 1]
        across += int((labels[near] != own[mixed]).sum())
    return across <= _MOST_ACROSS * len(drawn) * min(_NEAREST + 1, len(points))


def _renumber(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels (n,) renumbered by first occurrence, so that equal clusterings have equal labels."""
    _, first, index = np.unique(labels, return_index=True, return_inverse=True)
    number: NDArray[np.int64] = np.argsort(np.argsort(first))[index]
    return number


class Start(NamedTuple):
    """Points (m, d) on which the initial labels of a mixture are found, and their weights (m,)."""

    points: Points
    weight: NDArray[np.float64]


@dataclass(frozen=True)
class Mixture:
    """Gaussian components: log-shares (K,), means (K, d), triangular factors (K, d, d) of inverse covariances."""

    log_shares: NDArray[np.float64]
    means: Points
    factors: NDArray[np.float64]

    @staticmethod
    def of(points: Points, member: Points, regularisation: float) -> Mixture:
        """The maximum-likelihood mixture for membership probabilities (n, K) of points, times their weights."""
        sizes = member.sum(0) + 10 * np.finfo(float).eps
        means = (member.T @ points) / sizes[:, None]
        covariances = np.empty((len(means), points.shape[1], points.shape[1]))
        for k, (size, mean) in enumerate(zip(sizes, means, strict=True)):
            # Most points belong to one or two components, and contribute nothing to the others.
            own = np.flatnonzero(member[:, k] > _NO_MEMBER)
            apart = (points[own] - mean) * np.sqrt(member[own, k, None] / size)
            covariances[k] = apart.T @ apart + regularisation * np.eye(len(mean))
        factors = np.linalg.inv(np.linalg.cholesky(covariances)).transpose(0, 2, 1)
        return Mixture(np.log(sizes / sizes.sum()), means, factors)

    def log_joint(self, points: Points) -> Points:
        """Log joint densities (n, K) of points (n, d) and components."""
        (K, d), joint = self.means.shape, np.empty((len(points), len(self.means)))
        # Factors side by side, for some points at a time: one product that fits in the cache.
        factors, shift = np.concatenate(list(self.factors), 1), np.einsum("ki,kij->kj", self.means, self.factors)
        some = max(1, _PRODUCTS // (K * d))
        for part in (slice(first, first + some) for first in range(0, len(points), some)):
            apart = (points[part] @ factors).reshape(-1, K, d)
            apart -= shift
            np.einsum("ikj,ikj->ik", apart, apart, out=joint[part])
        joint += d * math.log(2 * math.pi)
        joint *= -0.5
        joint += self.log_shares + np.log(np.einsum("kii->ki", self.factors)).sum(1)
        return joint

    def predict_proba(self, points: Points) -> Points:
        """The probabilities (n, K) of the components."""
        return normalise(self.log_joint(points))[0]


def normalise(joint: Points) -> tuple[Points, NDArray[np.float64]]:
    """Probabilities (n, K) and log-densities (n,) from log joint densities, which are overwritten."""
    highest = joint.max(1)
    joint -= highest[:, None]
    np.exp(joint, out=joint)
    total = joint.sum(1)
    joint /= total[:, None]
    return joint, highest + np.log(total)


def fit_mixture(
    points: Points,
    weight: NDArray[np.float64] | None,
    labels: NDArray[np.int64],
    regularisation: float,
    start: Start | None = None,
) -> Mixture:
    """Fit a mixture to points (n, d) with weights (n,), initialised by labels of these or of other points."""
    weight = np.ones(len(points)) if weight is None else weight
    start = Start(points, weight) if start is None else start
    used, labels = np.unique(labels, return_inverse=True)
    mixture = Mixture.of(start.points, np.eye(len(used))[labels] * start.weight[:, None], regularisation)
    if len(used) == 1:
        return mixture
    (n, d), K, before = points.shape, len(used), -math.inf
    iterations = int(np.clip(_MOST_PRODUCTS / (n * K * d**2), _FEWEST_ITERATIONS, _ITERATIONS))
    for _ in track(range(iterations), "expectation and maximisation, iteration"):
        member, densities = normalise(mixture.log_joint(points))
        member *= weight[:, None]
        mixture = Mixture.of(points, member, regularisation)
        value = float(weight @ densities / weight.sum())
        if abs(value - before) < _TOLERANCE:
            break
        before = value
    return mixture


def learn_points(rows: Rows, dimensions: int) -> Callable[[Rows], Points]:
    """Learn a map of samples to points (n, d): principal components of symmetric features, of unit mean square."""
    powers, weight = _learn_powers(rows), weight_of(rows)

    def to_vectors(some: Rows) -> NDArray[np.float64]:
        samples = np.concatenate([part.flatten(1).cpu().double().numpy() for part in some.parts()])
        if powers is None:
            return samples
        # A sample far from those that the powers were learned from may overflow.
        found: Points = np.clip(np.nan_to_num(powers(samples)), -_FARTHEST, _FARTHEST)
        return found

    vectors = to_vectors(rows)
    centre = weight @ vectors / weight.sum()
    axes = None
    n, d = vectors.shape
    # Few samples keep all features, unless they are so wide that a d × d matrix would be too large.
    if dimensions < d and (dimensions < n or d > _WIDE):
        axes = principal_axes(Rows(vectors), torch.from_numpy(centre), dimensions, rows.sample_weight).numpy()

    def to_points(vectors: NDArray[np.float64]) -> Points:
        moved: Points = vectors - centre
        return moved if axes is None else moved @ axes

    points = to_points(vectors)
    # Scale by the largest value first, because squares overflow sooner.
    largest = float(np.abs(points).max(initial=0)) or 1.0
    unit = float(np.sqrt(weight @ np.square(points / largest).mean(1) / weight.sum())) or 1.0
    return lambda some: to_points(to_vectors(some)) / largest / unit


def _learn_powers(rows: Rows) -> Powers | None:
    """Learn the power of each feature that makes it most like a Gaussian; None unless features are standardised."""
    deviation = rows.moments(rows.sample_weight).deviation.flatten()
    deviation = deviation[deviation > 0]
    if not 0 < len(deviation) <= _MOST_POWERS or float(deviation.max()) > _STANDARDISED * float(deviation.min()):
        return None
    samples = np.concatenate([part.flatten(1).cpu().double().numpy() for part in rows.parts()])
    powers = Powers.fit(samples, weight_of(rows))
    return powers if np.isfinite(powers(samples)).all() else None


def some_of(rows: Rows, most: int) -> Rows:
    """At most ``most`` of the samples, always the same ones."""
    if len(rows) <= most:
        return rows
    return rows.part(torch.from_numpy(np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))))


def _takes_few_values(rows: Rows) -> bool:
    """Whether most features take at most ten values, as answers, counts and indicators do."""
    sample = rows.sample(_COUNTED_ROWS).flatten(1).cpu().sort(0).values
    values = (sample[1:] != sample[:-1]).sum(0) + 1
    return bool((values <= _FEW_VALUES).double().mean() > 0.5)


def weight_of(rows: Rows) -> NDArray[np.float64]:
    """The weights (n,) of samples; ones if they have none."""
    return np.ones(len(rows)) if rows.sample_weight is None else rows.sample_weight.cpu().double().numpy()


def _of_unit_length(centred: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """The features scaled to a mean squared length of one."""
    return centred / (np.sqrt(weight @ np.square(centred).sum(1) / weight.sum()) or 1.0)
