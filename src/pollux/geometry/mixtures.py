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
# Deviations of features that differ by less were made equal.
_STANDARDISED = 1.1
_ITERATIONS = 60
_FEWEST_ITERATIONS = 5
# Of the mean log-density, which then rises no more.
_TOLERANCE = 1e-3
# A smaller probability changes no digit of a covariance.
_NO_MEMBER = 1e-12
# Multiplications of a mixture, n·K·d² an iteration: of hundreds of components each takes long.
_MOST_PRODUCTS = 5e10
# Numbers of products that are made at once.
_PRODUCTS = 2**18
# Samples that a mixture is fitted to, as it has far fewer parameters; and those that it starts from.
_MOST_FITTED = 20_000
_MOST_STARTING, _STARTING_OF_A_CLUSTER = 5_000, 20
_MOST_EIGENVECTORS = 50
# Of more features only principal components are seen, however few samples there are; a power takes a millisecond.
_WIDE, _MOST_POWERS = 1_000, 5_000
# Clusters are apart where of the neighbours of so many samples no larger share lies in other clusters.
_LOOKED_AT, _NEAREST, _MOST_ACROSS = 500, 15, 1e-3
# Features after a power have a deviation of one.
_FARTHEST = 1e6

Points: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Mixtures(Geometry):
    """A kernel by several Gaussian mixtures, each started at other clusters.

    Mixtures see ellipsoids of any size and density, but only from a good start. One starts at the clusters of k-means,
    which are compact; the others at those of k-means in the mixed features of samples and neighbour graphs, which
    follow curves and gaps. The kernel of two samples is the mean probability that they come from the same component,
    half of it from the one start and half from the others: near 0 or 1 where all agree, in between where they do not.

    Features that are standardised, each having a unit of its own, are first made as symmetric as a power can make them
    (Yeo–Johnson): a skewed feature is not Gaussian. Powers, k-means and mixtures know the weights of samples.

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
        """The features (n, r) of all samples: the probabilities of all components of all mixtures.

        All is learned from some of the samples; the others go through it a part at a time.
        """
        rows = as_rows(X)
        sample = some_of(rows, _MOST_FITTED)
        to_points = learn_points(sample, self.dimensions)
        points, weight = to_points(sample), weight_of(sample)
        regularisation = self.regularisation or (_OF_FEW_VALUES if _takes_few_values(sample) else REGULARISATION)
        count = min(self.components or _COMPONENTS, len(points))
        # A start needs fewer samples than a mixture: the graph of its samples takes the longest.
        weighted = Rows(points, sample_weight=torch.from_numpy(weight))
        some = some_of(weighted, max(_MOST_STARTING, _STARTING_OF_A_CLUSTER * count))
        starting = Start(some.flat(), weight_of(some))
        found = track(self._starts(starting, count), "where mixtures start", 1 + len(self.neighbours) * len(WEIGHTS))
        starts = [_renumber(labels) for labels in found]
        # Half of the weight is that of the first, from the compact start. Equal starts are one, with the weight of all.
        shares = dict.fromkeys(map(bytes, starts), 0.0)
        for i, start in enumerate(starts):
            of_all = 1 / 2 if i == 0 else 1 / 2 / (len(starts) - 1)
            shares[bytes(start)] += of_all if len(starts) > 1 else 1
        once = {bytes(start): start for start in starts}
        # Clusters that are apart are the same ones for fewer points.
        fitting = starting if len(starts) == 1 else Start(points, weight)
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
        """Labels (n,) of points that mixtures start at: the clusters of k-means, and those along graphs."""
        points, weight = start
        compact = fit_k_means(points, count, sample_weight=weight)
        yield compact.labels
        once, which = distinct(Rows(points))
        if compact.found == ENOUGH and are_apart(once.flat(), compact.labels[np.unique(which, return_index=True)[1]]):
            # Graphs would have no edge between these clusters, and find the same ones.
            return
        for k in self.neighbours:
            for weights in WEIGHTS:
                graph = NeighbourGraph(k, weights=weights, search_components=None).graph(once)
                vectors = unit_rows(eigenvectors(graph, min(count, _MOST_EIGENVECTORS))[1][which])
                # Eigenvectors beside the points themselves, each of unit mean square.
                centred = vectors - weight @ vectors / weight.sum()
                mixed = np.concatenate([_of_unit_length(each, weight) for each in (centred, points)], 1)
                yield k_means(mixed, count, sample_weight=weight)


def are_apart(points: Points, labels: NDArray[np.int64]) -> bool:
    """Whether hardly any of the nearest neighbours of some of the points (n, d) are in other clusters."""
    drawn = np.random.default_rng(0).choice(len(points), min(_LOOKED_AT, len(points)), replace=False)
    # Digits that single precision lacks make no other neighbours.
    points = points.astype(np.float32)
    squares, across = np.square(points).sum(1), 0
    for some in np.array_split(drawn, -(-len(drawn) * len(points) // _PRODUCTS)):
        distances, own = squares - 2 * points[some] @ points.T, labels[some, None]
        # Most have enough neighbours that are nearer than the first of another cluster.
        other = np.where(own == labels, np.inf, distances).min(1, keepdims=True)
        mixed = (distances < other).sum(1) <= _NEAREST
        near = np.argpartition(distances[mixed], min(_NEAREST, len(points) - 1), axis=1)[:, : _NEAREST + 1]
        across += int((labels[near] != own[mixed]).sum())
    return across <= _MOST_ACROSS * len(drawn) * min(_NEAREST + 1, len(points))


def _renumber(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels (n,) numbered by their first samples: the same for the same clusters."""
    _, first, index = np.unique(labels, return_index=True, return_inverse=True)
    number: NDArray[np.int64] = np.argsort(np.argsort(first))[index]
    return number


class Start(NamedTuple):
    """Points (m, d) whose clusters a mixture starts at, and their weights (m,)."""

    points: Points
    weight: NDArray[np.float64]


@dataclass(frozen=True)
class Mixture:
    """Gaussian components by the logarithms of their shares (K,), their means (K, d), and triangular factors (K, d, d)
    of their inverse covariances."""

    log_shares: NDArray[np.float64]
    means: Points
    factors: NDArray[np.float64]

    @staticmethod
    def of(points: Points, member: Points, regularisation: float) -> Mixture:
        """The likeliest one, from the probabilities (n, K) that points are members of components, times weights."""
        sizes = member.sum(0) + 10 * np.finfo(float).eps
        means = (member.T @ points) / sizes[:, None]
        covariances = np.empty((len(means), points.shape[1], points.shape[1]))
        for k, (size, mean) in enumerate(zip(sizes, means, strict=True)):
            # Most points are members of one or two components, and add nothing to those of the others.
            own = np.flatnonzero(member[:, k] > _NO_MEMBER)
            apart = (points[own] - mean) * np.sqrt(member[own, k, None] / size)
            covariances[k] = apart.T @ apart + regularisation * np.eye(len(mean))
        factors = np.linalg.inv(np.linalg.cholesky(covariances)).transpose(0, 2, 1)
        return Mixture(np.log(sizes / sizes.sum()), means, factors)

    def log_joint(self, points: Points) -> Points:
        """Logarithms of the joint densities (n, K) of points (n, d) and components."""
        (K, d), joint = self.means.shape, np.empty((len(points), len(self.means)))
        # Factors side by side, for some points at a time: one product whose numbers stay in the cache.
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
        """The probabilities (n, K) of components."""
        return normalise(self.log_joint(points))[0]


def normalise(joint: Points) -> tuple[Points, NDArray[np.float64]]:
    """Probabilities (n, K) and log-densities (n,) from logarithms of joint densities, which are overwritten."""
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
    """A mixture of points (n, d) with weights (n,) that starts at the clusters that they, or others, have by labels."""
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
    """A map of samples such as these to points (n, d): symmetric features, their leading principal components, of unit
    mean square."""
    powers, weight = _learn_powers(rows), weight_of(rows)

    def to_vectors(some: Rows) -> NDArray[np.float64]:
        samples = np.concatenate([part.flatten(1).cpu().double().numpy() for part in some.parts()])
        if powers is None:
            return samples
        # A sample that is far from all that the powers were learned from may overflow.
        found: Points = np.clip(np.nan_to_num(powers(samples)), -_FARTHEST, _FARTHEST)
        return found

    vectors = to_vectors(rows)
    centre = weight @ vectors / weight.sum()
    axes = None
    n, d = vectors.shape
    # A few samples are seen as they are, unless they are so wide that a matrix of all pairs of features is not.
    if dimensions < d and (dimensions < n or d > _WIDE):
        axes = principal_axes(Rows(vectors), torch.from_numpy(centre), dimensions, rows.sample_weight).numpy()

    def to_points(vectors: NDArray[np.float64]) -> Points:
        moved: Points = vectors - centre
        return moved if axes is None else moved @ axes

    points = to_points(vectors)
    # First of unit size, as squares overflow sooner.
    largest = float(np.abs(points).max(initial=0)) or 1.0
    unit = float(np.sqrt(weight @ np.square(points / largest).mean(1) / weight.sum())) or 1.0
    return lambda some: to_points(to_vectors(some)) / largest / unit


def _learn_powers(rows: Rows) -> Powers | None:
    """The power of each feature that makes it most like a Gaussian, where all are standardised."""
    deviation = rows.moments(rows.sample_weight).deviation.flatten()
    deviation = deviation[deviation > 0]
    if not 0 < len(deviation) <= _MOST_POWERS or float(deviation.max()) > _STANDARDISED * float(deviation.min()):
        return None
    samples = np.concatenate([part.flatten(1).cpu().double().numpy() for part in rows.parts()])
    powers = Powers.fit(samples, weight_of(rows))
    return powers if np.isfinite(powers(samples)).all() else None


def some_of(rows: Rows, most: int) -> Rows:
    """At most so many of the samples, always the same ones."""
    if len(rows) <= most:
        return rows
    return rows.part(torch.from_numpy(np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))))


def _takes_few_values(rows: Rows) -> bool:
    """Whether most features take at most ten values, as answers, counts and indicators do."""
    sample = rows.sample(_COUNTED_ROWS).flatten(1).cpu().sort(0).values
    values = (sample[1:] != sample[:-1]).sum(0) + 1
    return bool((values <= _FEW_VALUES).double().mean() > 0.5)


def weight_of(rows: Rows) -> NDArray[np.float64]:
    """The weights (n,) of samples, one for all where they have none."""
    return np.ones(len(rows)) if rows.sample_weight is None else rows.sample_weight.cpu().double().numpy()


def _of_unit_length(centred: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same features, of mean squared length one."""
    return centred / (np.sqrt(weight @ np.square(centred).sum(1) / weight.sum()) or 1.0)
