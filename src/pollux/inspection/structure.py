"""Tests whether data have clusters: gaps between them, and a comparison with null models of a single cluster.

A boundary between clusters a and b is a level set of log p(a|x) − log p(b|x). Other level sets run inside the two
clusters. If a single cluster was cut in two, the boundary cuts as many pairs of neighbours as these do, however long or
thin the cluster is; if there is a gap, it cuts few.

Clusters may also overlap. A mixture then gives held-out samples a higher density than one cluster of any unimodal
shape does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.optimize import isotonic_regression
from scipy.special import gammaln, logsumexp, ndtri
from sklearn.decomposition import PCA

from pollux.data.powers import Powers
from pollux.geometry import k_means, nearest
from pollux.geometry.mixtures import fit_mixture
from pollux.metrics import RESTATED, adjusted_rand_index

Labels = NDArray[np.int64]
Edges = NDArray[np.int64]
Points = NDArray[np.float64]

LOOKED_AT = 1_000
"""Maximum number of samples that are used."""
CLEAR = 0.4
"""Separations from this value on are clear: those of data without clusters were at most 0.3, with at least 100 rows."""
_GAPS = 0.8
LIKELY = 3.0
"""Number of standard errors by which a mixture must exceed the best null model."""
SEVERAL_MODES = 0.58
"""√n times the dip from which on a column has several modes: 1 in 50 uniform columns exceeds it, and at most 1 in 1,000
normal, exponential, log-normal or heavy-tailed ones."""

_MAX_NEIGHBOURS, _MIN_NEIGHBOURS = 10, 3
_LEVELS = np.linspace(0.25, 0.75, 41)
# Average number of repetitions of a value from which on a column has steps.
_REPEATED = 3
# With more columns, this many principal components are used.
_MOST_COLUMNS, _COMPONENTS = 16, 10
# Minimum length of columns, and of their residuals after projection, as shares of the longest column.
_SMALLEST_COMPONENT, _SMALLEST_REST = 1e-3, 1e-2
# Maximum number of components, which is enough to distinguish many clusters from one.
_MOST_COMPONENTS = 40
# Columns form a circle if they are this near to one and occupy so many places on it: four lie on an ellipse by chance.
_OFF_CIRCLE = 1e-4
_FEWEST_ANGLES = 7
_MOST_UNROLLED = 200
# Standard deviation of uniformly distributed angles.
_DEVIATION = math.pi / math.sqrt(3)
_FOLDS, _FEWEST = 5, 20
_REGULARISATION = 0.05
_SKEWED, _MOST_POWERS = 1.0, 100
# Bins of a density on a line, and how many of the fullest ones are tried as its mode.
_FEWEST_BINS, _MOST_BINS, _MODES = 8, 40, 5


@dataclass(frozen=True)
class Structure:
    """Whether clusters are there, in three grades, with the evidence.

    Parameters
    ----------
    grade : {"clear", "likely", "none"}
        Clear: there are gaps between the clusters, or samples are far sparser there than within. Likely: clusters
        overlap, but explain samples better than a null model does. None: that is not shown.
    separation : float
        From 0 if clusters touch, to 1 if there are gaps around each.
    gain, gain_error : float
        By how much the mean log-density of held-out samples is higher under a mixture than under the best null model,
        and its standard error.
    dip : float
        For a single column, √n times the dip: how far it is from having one mode.
    category : str
        The column whose values the clusters restate, if it is a category or has two values; else "".
    others : Structure, optional
        The structure of the other columns without that one.
    """

    grade: Literal["clear", "likely", "none"]
    separation: float
    gain: float
    gain_error: float
    dip: float = 0.0
    category: str = ""
    others: Structure | None = None

    @staticmethod
    def of(separation: float, gain: float, gain_error: float, dip: float = 0.0) -> Structure:
        """Grade this evidence."""
        grade: Literal["clear", "likely", "none"] = "likely" if is_likely(gain, gain_error, dip) else "none"
        return Structure("clear" if separation >= CLEAR else grade, separation, gain, gain_error, dip)

    @property
    def is_open(self) -> bool:
        """Whether clusters are not shown, but a null model does not explain the data as well either."""
        return self.grade == "none" and self.gain > self.gain_error > 0

    @property
    def is_unknown(self) -> bool:
        """Whether there are too few different samples to measure anything."""
        return not self.gain_error and not self.separation

    @property
    def reason(self) -> str:
        """The evidence in a sentence."""
        if self.is_unknown:
            return "there are too few different rows to tell"
        if self.others is None:
            return self._found
        only = "" if self.others.grade == "likely" else "only "
        return f"{only}by the values of {self.category!r}, a category: {self._found}; {self.others._found_besides}"

    @property
    def _gain(self) -> str:
        return f"log-density {self.gain:+.2f} ± {self.gain_error:.2f} a row"

    @property
    def _found(self) -> str:
        apart = f"separation {self.separation:.2f} of 1"
        if self.grade == "clear":
            between = (
                "there are gaps" if self.separation >= _GAPS else "rows are sparser between the clusters than within"
            )
            return f"{between} ({apart})"
        if self.grade == "likely":
            better = (
                f"clusters explain held-out rows better than a null model of one cluster ({self._gain}), though they"
            )
            if self.gain <= LIKELY * self.gain_error:
                better = "the values of the column have more than one mode (dip test, p < 0.02), though clusters"
            return f"{better} touch ({apart})"
        if self.is_open:
            return f"clusters are not shown: they explain held-out rows hardly better than one ({self._gain}; {apart})"
        return f"a null model of one cluster explains the data as well ({self._gain}; {apart})"

    @property
    def _found_besides(self) -> str:
        """The evidence of the other columns."""
        if self.grade == "likely":
            return f"the other columns show clusters too ({self._gain})"
        shown = "in the other columns clusters are not shown" if self.is_open else "the other columns show none"
        return f"{shown} ({self._gain})" if self.gain_error else shown

    def __str__(self) -> str:
        return f"{self.grade}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found = {name: value for name, value in vars(self).items() if name != "others"}
        others = {} if self.others is None else {"others": self.others.to_dict()}
        return {**found, **others, "reason": self.reason}


def is_likely(gain: float, gain_error: float, dip: float = 0.0) -> bool:
    """Whether clusters explain the data better than one cluster does."""
    return gain > LIKELY * gain_error or (gain > 0 and dip >= SEVERAL_MODES)


def fill_steps(X: NDArray[Any], seed: int = 0) -> Points:
    """Smooth columns of X (n, d) with repeated values by noise of half a step, keeping their standard deviation.

    Integers, grades, zeros and ones leave spaces between them that are not gaps between clusters.
    """
    generator = np.random.default_rng(seed)
    filled = np.array(X, dtype=np.float64)
    for column in filled.T:
        values = np.unique(column)
        if 1 < len(values) <= len(filled) / _REPEATED:
            centre, deviation = column.mean(), column.std()
            column += generator.uniform(-0.5, 0.5, len(filled)) * np.median(np.diff(values)) - centre
            column *= deviation / column.std()
            column += centre
    return filled


def unroll_circles(X: NDArray[np.floating]) -> NDArray[np.floating]:
    """Samples (n, d) in which adjacent columns that form a circle are replaced by its angle and zeros.

    The phase of a date in a cycle is two columns, a cosine and a sine. They form a ring, which is not a cluster, though
    mixtures fit it better than any null model. It is cut where it is emptiest. A cycle that another column runs
    through, as years run through seasons, is dropped: that column has the same information.
    """
    n, d = X.shape
    flat = X
    for first in range(d - 1) if d <= _MOST_UNROLLED else ():
        angles = _angles(X[:, first], X[:, first + 1])
        if angles is None:
            continue
        if flat is X:
            flat = np.array(X)
        ordered = np.sort(angles)
        widest = int(np.diff(ordered, append=ordered[0] + 2 * math.pi).argmax())
        others = np.delete(flat, [first, first + 1], axis=1).T
        is_known = any(_goes_through(column, angles) for column in others)
        cut = ordered[(widest + 1) % n]
        flat[:, first] = 0.0 if is_known else (angles - cut) % (2 * math.pi) / _DEVIATION
        flat[:, first + 1] = 0.0
    return flat


def _angles(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.floating] | None:
    """The angles (n,) of points on an axis-aligned ellipse; None if they do not lie on one."""
    terms = np.stack([a * a, b * b, a, b], axis=1)
    for some in (terms[:_FEWEST], terms):
        weights = _fit_ones(some)
        if weights is None:
            return None
    # A column of two values satisfies the equation by itself, whatever the other column is; and so does a line.
    if any(_fit_ones(terms[:, own]) is not None for own in ([0, 2], [1, 3], [2, 3])):
        return None
    assert weights is not None
    if weights[:2].min() <= 0 or len(np.unique(terms, axis=0)) < _FEWEST_ANGLES:
        return None
    centre = -weights[2:] / (2 * weights[:2])
    return np.asarray(np.arctan2((b - centre[1]) * math.sqrt(weights[1]), (a - centre[0]) * math.sqrt(weights[0])))


def _fit_ones(terms: NDArray[np.floating]) -> NDArray[np.floating] | None:
    """Weights of terms (n, m) whose weighted sum is 1 in each row; None if there are none."""
    weights: NDArray[np.floating] = np.linalg.lstsq(terms, np.ones(len(terms)), rcond=None)[0]
    return weights if np.abs(terms @ weights - 1).max() <= _OFF_CIRCLE else None


def _goes_through(column: NDArray[np.floating], angles: NDArray[np.floating]) -> bool:
    """Whether angles (n,) turn steadily, and not too often to be seen, as a column rises."""
    if np.ptp(column) == 0:
        return False
    steps = np.diff(angles[np.argsort(column, kind="stable")])
    steps = (steps + math.pi) % (2 * math.pi) - math.pi
    return bool(np.cos(steps).mean() > 0.9 and np.abs(steps).sum() < 2 * math.pi * _MOST_COMPONENTS)


def look_for_structure(
    X: Points,
    log_p: Callable[[Points], Points],
    n_clusters: int,
    columns: Mapping[str, Sequence[int]] | None = None,
) -> Structure:
    """Grade the clusters of a model, from samples X (n, d) and a function that gives its log p(y|x) (n, K).

    Mixtures of as many clusters, at most 40, of half as many and of two are compared with the null models. ``columns``
    are features of columns with few values: if the clusters restate one, the structure of the others is graded too.
    """
    if len(X) < _FEWEST:
        return Structure.of(0.0, 0.0, 0.0)
    largest = min(n_clusters, _MOST_COMPONENTS)
    counts = sorted({2, max(2, largest // 2), largest})

    def compare(points: Points, filled: Points) -> tuple[float, float, float]:
        evidence = compare_with_null(filled[:, independent_columns(points)], counts)
        return *evidence.best, evidence.dip

    filled = fill_steps(X)
    apart = separation(log_p(filled), neighbour_edges(filled, n_clusters))
    flat = np.asarray(unroll_circles(X), dtype=np.float64)
    straight = filled if flat is X else fill_steps(flat)
    found = Structure.of(apart, *compare(flat, straight))
    category = restated_category(X, log_p(X).argmax(1), columns or {})
    if found.grade == "none" or not category or columns is None:
        return found
    others = np.delete(np.arange(X.shape[1]), columns[category])
    if not len(others):
        return found
    besides = Structure.of(0.0, *compare(flat[:, others], straight[:, others]))
    return replace(found, category=category, others=besides)


def restated_category(X: Points, labels: Labels, columns: Mapping[str, Sequence[int]]) -> str:
    """The first of the columns, by their features in X (n, d), whose values determine the clusters (n,); or ""."""
    for name, features in columns.items():
        values = np.unique(X[:, features], axis=0, return_inverse=True)[1].ravel()
        table = np.zeros((values.max() + 1, labels.max() + 1))
        np.add.at(table, (values, labels), 1)
        if adjusted_rand_index(labels, table.argmax(1)[values]) >= RESTATED:
            return name
    return ""


# Gaps


def neighbour_edges(X: NDArray[np.floating], n_clusters: int) -> Edges:
    """Edges of the neighbour graph of X (n, d): pairs of indices (2, n · neighbours).

    Each sample has ten neighbours, or fewer if clusters are small: more than a cluster holds would lie outside it.
    """
    fitting = len(X) // (2 * n_clusters)
    count = min(_MAX_NEIGHBOURS, max(_MIN_NEIGHBOURS, fitting), len(X) - 1)
    neighbours = nearest(X, count, components=None).numbers
    return np.stack([np.repeat(np.arange(len(X)), count), neighbours.ravel()])


def separation(log_p: NDArray[np.floating], edges: Edges) -> float:
    """From 0 if clusters touch, to 1 if there are gaps around each; for log p(y|x) (n, K).

    The separation of a cluster is its smallest gap to another one. The result is the geometric mean of the smallest of
    these and of their mean: a single pair that touches counts, but less among many clusters.
    """
    in_use = np.unique(log_p.argmax(axis=1))
    if len(in_use) < 2:
        return 0.0
    apart = pairwise_gaps(log_p[:, in_use], edges).min(axis=1)
    return float(np.sqrt(apart.min() * apart.mean()))


def pairwise_gaps(log_p: NDArray[np.floating], edges: Edges) -> NDArray[np.float64]:
    """Gaps between all pairs of clusters: 1 − cuts of the boundary / cuts inside, at least 0; (n, K) to (K, K)."""
    labels, n_clusters = log_p.argmax(axis=1), log_p.shape[1]
    cuts = np.zeros((n_clusters, n_clusters))
    np.add.at(cuts, tuple(labels[edges]), 1)
    cuts += cuts.T
    gaps = np.ones((n_clusters, n_clusters))
    for a, b in combinations(range(n_clusters), 2):
        if cuts[a, b]:
            inside = _count_cuts_inside(log_p[:, a] - log_p[:, b], labels, (a, b), edges)
            gaps[a, b] = gaps[b, a] = max(0.0, 1 - cuts[a, b] / inside)
    return gaps


def _count_cuts_inside(margin: NDArray[np.floating], labels: Labels, pair: tuple[int, int], edges: Edges) -> int:
    """The fewest edges that a level set of the margin (n,) cuts in the middle half of either cluster.

    The fewest, because level sets of a network may wind along a cluster, and then cut more than one across it does.
    """
    among = np.isin(labels, pair)
    ends = margin[edges[:, among[edges].all(axis=0)]]
    below, above = np.sort(ends.min(axis=0)), np.sort(ends.max(axis=0))
    inside = []
    for cluster in pair:
        levels = np.quantile(margin[labels == cluster], _LEVELS)
        cut = np.searchsorted(below, levels) - np.searchsorted(above, levels)
        inside.append(int(cut.min()))
    return max(1, min(inside))


# Null models


class Evidence(NamedTuple):
    """How well mixtures of several numbers of components explain the data.

    ``gains`` (len(counts), n) are log-densities of held-out samples under them, minus those under the best null model;
    ``criteria`` (len(counts),) are the Bayesian information criteria of mixtures of all samples, and ``dip`` is √n
    times the dip of a single column.
    """

    counts: tuple[int, ...]
    gains: Points
    criteria: Points
    dip: float = 0.0

    @property
    def best(self) -> tuple[float, float]:
        """The mean gain of the best mixture, and its standard error."""
        gains = self.gains[self.gains.mean(1).argmax()]
        return float(gains.mean()), float(gains.std() / math.sqrt(len(gains)))

    @property
    def likely(self) -> tuple[int, int] | None:
        """The smallest and the largest likely number of clusters; None if a null model explains the data as well.

        The smallest number whose gain is within a standard error of the best is too high if clusters are not Gaussian;
        the information criterion is too low if there are small clusters in many columns.
        """
        gain, error = self.best
        if not is_likely(gain, error, self.dip):
            return None
        lacking = self.gains[self.gains.mean(1).argmax()] - self.gains
        enough = lacking.mean(1) <= lacking.std(1) / math.sqrt(lacking.shape[1])
        both = self.counts[int(enough.argmax())], self.counts[int(self.criteria.argmin())]
        return min(both), max(both)


def compare_with_null(X: NDArray[np.floating], counts: Sequence[int]) -> Evidence:
    """Compare mixtures of these numbers of components with null models of one cluster, by cross-validation on X (n, d).

    Null models are one ellipsoid of any profile, and columns of any unimodal shape with a Gaussian copula. Mixtures see
    the samples, or the normal scores of such columns, whichever explain more. X (n, d) has no steps; if there are few
    samples the gains are 0.
    """
    X, n, counts = X[:, np.ptp(X, axis=0) > 0], len(X), tuple(counts)
    if n < _FEWEST or not X.shape[1]:
        return Evidence(counts, np.zeros((len(counts), n)), np.zeros(len(counts)))
    points = _symmetric(np.asarray(X, dtype=np.float64))
    if points.shape[1] > _MOST_COLUMNS:
        points = PCA(min(_COMPONENTS, n - 1), svd_solver="randomized", random_state=0).fit_transform(points)
        points = points[:, _independent(points, _SMALLEST_COMPONENT)]
    points = points[:, independent_columns(points)]
    points = points / points.std(0).clip(min=1e-12)
    # In one dimension, a hollow ball would be two clusters.
    has_ball = points.shape[1] > 1
    initial = [k_means(points, min(count, n)) for count in counts]
    order = np.random.default_rng(0).permutation(n)
    # For both spaces: samples, and their normal scores.
    null, mixed = np.zeros((2, 2, n)), np.zeros((2, len(counts), n))
    for fold in range(_FOLDS):
        held = order[fold::_FOLDS]
        known = np.delete(points, held, axis=0)
        scores, densities = _fit_scores(known, points[held])
        for space, (train, test, constant) in enumerate([(known, points[held], 0.0), (*scores, densities)]):
            centre, factor = train.mean(0), _whiten(train)
            inner, outer = (train - centre) @ factor, (test - centre) @ factor
            constant = constant + np.linalg.slogdet(factor)[1]
            null[space, 0, held] = constant + _ellipsoid(inner, outer) if has_ball else -np.inf
            null[space, 1, held] = constant - np.square(outer).sum(1) / 2 - outer.shape[1] / 2 * math.log(2 * math.pi)
            for row, labels in enumerate(initial):
                mixture = fit_mixture(inner, None, np.delete(labels, held), _REGULARISATION)
                mixed[space, row, held] = constant + logsumexp(mixture.log_joint(outer), axis=1)
    best = null.reshape(4, n)
    choice = mixed.mean(2).argmax(0)
    gains = mixed[choice, np.arange(len(counts))] - best[best.mean(1).argmax()]
    white, d = (points - points.mean(0)) @ _whiten(points), points.shape[1]
    criteria = [
        math.log(n) * count * (d + 1) * (d + 2) / 2
        - 2 * logsumexp(fit_mixture(white, None, labels, _REGULARISATION).log_joint(white), axis=1).sum()
        for count, labels in zip(counts, initial, strict=True)
    ]
    return Evidence(
        counts, gains, np.array(criteria), math.sqrt(n) * dip(X[:, 0].astype(np.float64)) if X.shape[1] == 1 else 0.0
    )


def dip(numbers: Points) -> float:
    """The dip of numbers (n,): the distance of their distribution to the nearest unimodal one; at most 1/4.

    Hartigan and Hartigan, "The dip test of unimodality", 1985: left of a modal interval the nearest such distribution
    is convex, right of it concave. The interval shrinks to where these two are furthest apart.
    """
    n = len(numbers)
    numbers, ranks = np.sort(np.asarray(numbers, dtype=np.float64)), np.arange(n, dtype=np.float64)
    greatest = 1.0
    while True:
        below, above = _convex_hull(numbers, ranks), _convex_hull(numbers, -ranks)
        convex = np.interp(numbers, numbers[below], ranks[below])
        concave = np.interp(numbers, numbers[above], ranks[above])
        at = int((concave - convex).argmax())
        if concave[at] - convex[at] + 1 <= greatest:
            break
        if at in below:
            first, last = at, int(above[np.searchsorted(above, at, side="right")])
        else:
            first, last = int(below[np.searchsorted(below, at) - 1]), at
        outside = (ranks - convex)[: first + 1].max(), (concave - ranks)[last:].max()
        greatest = max(greatest, *(float(each) + 1 for each in outside))
        if last - first + 1 == len(numbers):
            break
        numbers, ranks = numbers[first : last + 1], ranks[first : last + 1]
    return greatest / (2 * n)


def _convex_hull(x: Points, y: Points) -> NDArray[np.int64]:
    """Indices of the points, in order of x (n,), on the greatest convex function below them."""
    knots: list[int] = []
    for i in range(len(x)):
        while len(knots) > 1:
            a, b = knots[-2:]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            knots.pop()
        knots.append(i)
    return np.array(knots)


def _symmetric(X: Points) -> Points:
    """Transform skewed columns to be as symmetric as a power can make them, keeping their standard deviation.

    Other columns are not changed: a power bends what depends on them linearly.
    """
    centred: Points = X - X.mean(0)
    deviation = X.std(0)
    skewed = np.flatnonzero(np.abs(np.power(centred / deviation, 3).mean(0)) > _SKEWED)
    if 0 < len(skewed) <= _MOST_POWERS:
        standard = centred[:, skewed] / deviation[skewed]
        found = Powers.fit(standard)(standard)
        if np.isfinite(found).all():
            centred[:, skewed] = found * deviation[skewed]
    return centred


def independent_columns(X: NDArray[np.floating]) -> NDArray[np.int64]:
    """Indices of the columns of X (n, d) that others do not explain linearly; all, if there are many columns.

    In a direction without variance mixtures would fit rounding errors, which no null model does, or the noise of
    :func:`fill_steps`: so this is called before that, too.
    """
    if X.shape[1] > _MOST_COLUMNS:
        return np.arange(X.shape[1])
    centred = np.asarray(X, dtype=np.float64) - X.mean(0, dtype=np.float64)
    return _independent(centred / centred.std(0).clip(min=1e-12), _SMALLEST_REST)


def _independent(points: Points, tolerance: float) -> NDArray[np.int64]:
    """Indices of centred columns (n, d) that keep this share of the longest after projecting out earlier ones."""
    R, order = qr(points, mode="r", pivoting=True)
    lengths = np.abs(np.diag(R))
    return np.sort(order[: len(lengths)][lengths >= tolerance * lengths[0]]).astype(np.int64)


def _whiten(points: Points) -> Points:
    """A factor (d, d) that transforms points to have an identity covariance."""
    covariance = np.atleast_2d(np.cov(points.T)) + 1e-6 * np.eye(points.shape[1])
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)).T)


def _ellipsoid(train: Points, test: Points) -> Points:
    """Log-densities (m,) of a round cluster of whitened samples (n, d), with any radial profile."""
    d = train.shape[1]
    radii = [np.log(np.maximum(np.linalg.norm(each, axis=1), 1e-9)) for each in (train, test)]
    area = math.log(2) + d / 2 * math.log(math.pi) - gammaln(d / 2)
    return np.asarray(Unimodal(radii[0]).log_density(radii[1]) - d * radii[1] - area)


def _fit_scores(train: Points, test: Points) -> tuple[tuple[Points, Points], Points]:
    """Normal scores of both, by unimodal densities of the columns of ``train``, and log |derivatives| (m,)."""
    columns = [Unimodal(column) for column in train.T]
    scores = tuple(
        np.stack([one.normal_score(column) for one, column in zip(columns, each.T, strict=True)], 1)
        for each in (train, test)
    )
    log_normal = -np.square(scores[1]) / 2 - math.log(2 * math.pi) / 2
    densities = np.stack([one.log_density(column) for one, column in zip(columns, test.T, strict=True)], 1)
    return (scores[0], scores[1]), (densities - log_normal).sum(1)


class Unimodal:
    """The most likely unimodal density of numbers (n,), by bins of equal width."""

    def __init__(self, numbers: Points) -> None:
        bins = int(np.clip(round(2 * len(numbers) ** 0.4), _FEWEST_BINS, _MOST_BINS))
        low, high = float(numbers.min()), float(numbers.max())
        margin = 0.05 * ((high - low) or 1.0)
        self.edges = np.linspace(low - margin, high + margin, bins + 1)
        counts = np.histogram(numbers, self.edges)[0] + 0.5
        fits = []
        for mode in np.argsort(-counts, kind="stable")[:_MODES]:
            rising = isotonic_regression(counts[: mode + 1]).x
            falling = isotonic_regression(counts[mode:], increasing=False).x
            fit = np.concatenate([rising[:-1], [max(rising[-1], falling[0])], falling[1:]])
            fits.append(fit / fit.sum())
        shares = max(fits, key=lambda fit: float((counts * np.log(fit)).sum()))
        self._log_densities = np.log(shares / np.diff(self.edges))
        self._cumulated = np.concatenate([[0.0], np.cumsum(shares)])

    def log_density(self, numbers: Points) -> Points:
        """Log-densities of numbers; beyond the edges they fall off steeply."""
        place = np.clip(np.searchsorted(self.edges, numbers, side="right") - 1, 0, len(self._log_densities) - 1)
        outside = np.maximum(0, np.maximum(self.edges[0] - numbers, numbers - self.edges[-1]))
        return np.asarray(self._log_densities[place] - 10 * outside / (self.edges[-1] - self.edges[0]))

    def normal_score(self, numbers: Points) -> Points:
        """Map numbers to a standard Gaussian by their distribution function."""
        return np.asarray(ndtri(np.clip(np.interp(numbers, self.edges, self._cumulated), 1e-4, 1 - 1e-4)))
