"""Mixtures of Gaussians and a Student-t distribution, and the best that anyone could do on them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from pollux.errors import InputError
from pollux.lab.datasets.synthetic import Sample, Seed, positive, whole

_STUDENT = 3


def multivariate_student(
    n_samples: int,
    *,
    mean: ArrayLike,
    covariance: ArrayLike,
    degrees_of_freedom: float,
    random_state: Seed = None,
) -> NDArray[np.float64]:
    """Samples (n, d) of a Student-t distribution: mean + z · √(ρ/u), with z ~ N(0, covariance) and u ~ χ²(ρ).

    Parameters
    ----------
    n_samples : int
        How many.
    mean : array-like of shape (d,)
        Where the density is highest; the expectation too, from ρ > 1 on.
    covariance : array-like of shape (d, d)
        Of z; symmetric and positive semidefinite. That of the samples is ρ / (ρ − 2) times it, from ρ > 2 on.
    degrees_of_freedom : float
        The positive ρ; the smaller, the heavier the tails.
    random_state : int, RandomState or None
        Seed of all randomness.

    Returns
    -------
    ndarray of shape (n, d)

    Examples
    --------
    >>> X = multivariate_student(1000, mean=[3, 1], covariance=np.eye(2), degrees_of_freedom=5, random_state=0)
    >>> X.shape, np.median(X, axis=0).round(1).tolist()
    ((1000, 2), [3.0, 1.0])
    """
    whole("n_samples", n_samples)
    positive("degrees_of_freedom", degrees_of_freedom)
    place, root = np.asarray(mean, dtype=np.float64), _square_root(covariance)
    if place.shape != root.shape[:1]:
        raise InputError(
            f"A mean of the shape {place.shape} does not go with a covariance of the shape {root.shape}: they must "
            "be (d,) and (d, d)."
        )
    generator = check_random_state(random_state)
    return place + _centred_student(generator, n_samples, root, degrees_of_freedom)


def gaussian_student_mixture(
    n_samples: int = 5000,
    *,
    alpha: float = 5.0,
    sigma: float = 1.0,
    degrees_of_freedom: float = 1.0,
    random_state: Seed = None,
) -> Sample:
    """Four equally likely clusters (n, 2), three Gaussian and one with heavy tails, as in the GEMINI paper.

    The means are (α, α), (α, −α), (−α, α) and (−α, −α). The first three clusters are Gaussian with the covariance σI;
    the last is a Student-t distribution. With one degree of freedom its samples can lie thousands away.

    With the seed 0 and the other defaults these are, as far as can be told, the authors' own samples: k-means,
    Gaussian mixtures and the oracle score on them what the paper reports.

    Parameters
    ----------
    n_samples : int, default=5000
        In all; the cluster of each is drawn.
    alpha : float, default=5.0
        How far the means lie from both axes.
    sigma : float, default=1.0
        Variance of the Gaussians in each direction.
    degrees_of_freedom : float, default=1.0
        Of the Student-t distribution; the smaller, the heavier its tails.
    random_state : int, RandomState or None
        Seed of all randomness.

    Returns
    -------
    X : ndarray of shape (n, 2)
    y : ndarray of shape (n,)
        From 0 to 3; 3 is the Student-t distribution.

    Examples
    --------
    >>> X, y = gaussian_student_mixture(random_state=0)
    >>> X.shape, np.bincount(y).tolist()
    ((5000, 2), [1203, 1235, 1268, 1294])
    >>> round(float(np.abs(X).max()), 1)
    2585.7
    """
    whole("n_samples", n_samples)
    for name, value in (("alpha", alpha), ("sigma", sigma), ("degrees_of_freedom", degrees_of_freedom)):
        positive(name, value)
    generator = check_random_state(random_state)
    # The order of drawing is part of the data: another one gives other samples for the same seed.
    y = generator.multinomial(1, np.full(4, 0.25), size=n_samples).argmax(axis=1).astype(np.int64)
    X = np.empty((n_samples, 2))
    root = math.sqrt(sigma) * np.eye(2)
    for cluster, mean in enumerate(_means(alpha)):
        members = y == cluster
        count = int(members.sum())
        if cluster == _STUDENT:
            X[members] = mean + _centred_student(generator, count, root, degrees_of_freedom)
        else:
            X[members] = mean + generator.standard_normal((count, 2)) @ root
    return X, y


def gaussian_student_oracle(
    X: ArrayLike, *, alpha: float = 5.0, sigma: float = 1.0, degrees_of_freedom: float = 1.0
) -> NDArray[np.int64]:
    """The likeliest cluster (n,) of samples (n, 2) for someone who knows all parameters of the mixture.

    No clustering can be expected to do better than this.

    Parameters
    ----------
    X : array-like of shape (n, 2)
        Samples of :func:`gaussian_student_mixture`.
    alpha, sigma, degrees_of_freedom : float
        Those that the samples were drawn with.

    Returns
    -------
    ndarray of shape (n,)
        From 0 to 3.

    Examples
    --------
    >>> X, y = gaussian_student_mixture(random_state=0)
    >>> round(float(np.mean(gaussian_student_oracle(X) == y)), 3)
    0.996
    """
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise InputError(f"The mixture lies in the plane, so X must have the shape (n, 2), but it has {rows.shape}.")
    for name, value in (("alpha", alpha), ("sigma", sigma), ("degrees_of_freedom", degrees_of_freedom)):
        positive(name, value)
    squared = ((rows[:, None] - _means(alpha)) ** 2).sum(axis=2) / sigma
    # All four log densities without −log 2πσ, which they share in two dimensions.
    log_density = -squared / 2
    log_density[:, _STUDENT] = -(degrees_of_freedom / 2 + 1) * np.log1p(squared[:, _STUDENT] / degrees_of_freedom)
    likeliest: NDArray[np.int64] = log_density.argmax(axis=1).astype(np.int64)
    return likeliest


def _means(alpha: float) -> NDArray[np.float64]:
    return alpha * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def _centred_student(
    generator: np.random.RandomState, n_samples: int, root: NDArray[np.float64], degrees_of_freedom: float
) -> NDArray[np.float64]:
    """(n, d) samples about 0, of a covariance (before the tails) whose square root is (d, d)."""
    gaussian = generator.standard_normal((n_samples, len(root))) @ root
    u = generator.chisquare(degrees_of_freedom, size=n_samples)
    samples: NDArray[np.float64] = gaussian * np.sqrt(degrees_of_freedom / u)[:, None]
    return samples


def _square_root(covariance: ArrayLike) -> NDArray[np.float64]:
    """The symmetric square root (d, d) of a covariance (d, d)."""
    matrix = np.asarray(covariance, dtype=np.float64)
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0
    if not (square and np.isfinite(matrix).all() and np.allclose(matrix, matrix.T)):
        raise InputError("covariance must be a symmetric table of finite numbers, with as many rows as columns.")
    values, vectors = np.linalg.eigh(matrix)
    if values.min() < -1e-8 * max(values.max(), 0.0):
        raise InputError(f"covariance must have no negative eigenvalues, but its smallest is {values.min():.3g}.")
    root: NDArray[np.float64] = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    return root
