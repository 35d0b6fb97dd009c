"""Synthetic data: each generator takes the number of samples n and returns X (n, d) in float64 and classes y (n,).

All randomness comes from ``random_state`` (int, RandomState or None): a seed gives the same numbers with every version
of NumPy. Samples are divided evenly among the classes, with any remainder in the first ones, unless the docstring says
that classes are drawn.

The variable-selection data are those of G. Celeux, M.-L. Martin-Magniette, C. Maugis-Rabusseau and A. E. Raftery:
Comparing model selection and regularization approaches to variable selection in model-based clustering. Journal de la
Société Française de Statistique, 2014.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from pollux.errors import InputError

Seed: TypeAlias = int | np.random.RandomState | None
Sample: TypeAlias = tuple[NDArray[np.float64], NDArray[np.int64]]

_INFORMATIVE = 5  # variables of celeux_one
_STUDENT = 3  # the cluster of the mixture that has heavy tails


def blobs(
    n_samples: int = 300,
    *,
    centres: ArrayLike = ((0.0, 2.0), (-2.0, -1.0), (2.0, -1.0)),
    std: float = 0.5,
    random_state: Seed = None,
) -> Sample:
    """Isotropic Gaussian clusters (n, d) around the centres (K, d), by default at three corners of a triangle.

    ``std`` is the standard deviation in each direction; 0 puts every sample on its centre.

    Examples
    --------
    >>> X, y = blobs(300, random_state=0)
    >>> X.shape, np.bincount(y).tolist()
    ((300, 2), [100, 100, 100])
    """
    means = np.asarray(centres, dtype=np.float64)
    if means.ndim != 2 or means.size == 0 or not np.isfinite(means).all():
        raise InputError(
            f"centres is a table of finite numbers with one row per cluster, but has the shape {means.shape}: "
            "give for example [[0, 0], [4, 4]]."
        )
    y = _even_classes(n_samples, len(means))
    return _noisy(means[y], y, std, check_random_state(random_state), "std")


def moons(n_samples: int = 500, *, radius: float = 2.0, noise: float = 0.05, random_state: Seed = None) -> Sample:
    """Two interleaving half circles (n, 2).

    With the radius ρ, the centre of the upper half circle, class 0, is at (ρ/2, −ρ/4) and that of the lower one at
    (−ρ/2, ρ/4). ``noise`` is the standard deviation of Gaussian noise on both coordinates.

    Examples
    --------
    >>> X, y = moons(500, random_state=0)
    >>> X.shape, np.bincount(y).tolist()
    ((500, 2), [250, 250])
    """
    y, generator = _even_classes(n_samples, 2), check_random_state(random_state)
    _check_positive(radius=radius)
    angle = np.pi * (generator.uniform(size=n_samples) + y)
    centre = radius * np.array([[0.5, -0.25], [-0.5, 0.25]])
    X = centre[y] + radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _noisy(X, y, noise, generator)


def circles(
    n_samples: int = 500, *, radii: Sequence[float] = (1.0, 2.0), noise: float = 0.05, random_state: Seed = None
) -> Sample:
    """Concentric circles (n, 2), a cluster for each radius; ``noise`` is the standard deviation of Gaussian noise.

    Examples
    --------
    >>> X, y = circles(300, radii=(1, 2, 3), noise=0, random_state=0)
    >>> np.unique(np.hypot(*X.T).round(6)).tolist()
    [1.0, 2.0, 3.0]
    """
    y, generator = _even_classes(n_samples, len(radii)), check_random_state(random_state)
    for radius in radii:
        _check_positive(**{"each of the radii": radius})
    angle = 2 * np.pi * generator.uniform(size=n_samples)
    X = np.asarray(radii, dtype=np.float64)[y, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _noisy(X, y, noise, generator)


def celeux_one(n_samples: int = 300, *, n_noise: int = 20, mu: float = 1.7, random_state: Seed = None) -> Sample:
    """Three Gaussian clusters (n, 5 + n_noise) that differ in the first five variables; the others are noise.

    The class of each sample is drawn. Its first five variables are N(m, I) with m = (μ, …, μ), (−μ, …, −μ) or
    (0, …, 0); the remaining ones are N(0, I) whatever the class. μ = 1.7 separates the clusters well.

    Examples
    --------
    >>> X, y = celeux_one(random_state=0)
    >>> X.shape, np.unique(y).tolist()
    ((300, 25), [0, 1, 2])
    """
    _check_count("n_samples", n_samples)
    _check_positive(mu=mu)
    _check_count("n_noise", n_noise, least=0)
    generator = check_random_state(random_state)
    y = generator.randint(3, size=n_samples).astype(np.int64)
    X = generator.standard_normal((n_samples, _INFORMATIVE + n_noise))
    X[:, :_INFORMATIVE] += np.array([mu, -mu, 0.0])[y, None]
    return X, y


def celeux_two(n_samples: int = 2000, *, random_state: Seed = None) -> Sample:
    """Four Gaussian clusters (n, 14): two informative variables, nine linear functions of them, three of noise.

    - s, variables 1 and 2: N(m, I) with the mean m of a class that is drawn: (0, 0), (4, 0), (0, 2), (4, 2).
    - Variables 3 to 11: a + sB + ε, where a = (0, 0, 0.4, 0.8, …, 2.8), ε ~ N(0, Ω) and the columns of B are
      (0.5, 1), (2, 0), (0, 3), (−1, 2), (2, −4), (0.5, 0), (4, 0.5), (3, 0), (2, 1).
    - Ω is block diagonal: I₃, ½I₂, R(π/3)ᵀ diag(1, 3) R(π/3), R(π/6)ᵀ diag(2, 6) R(π/6), with R(θ) the rotation of
      the plane by θ.
    - Variables 12 to 14: N((3.2, 3.6, 4), I).

    Examples
    --------
    >>> X, y = celeux_two(random_state=0)
    >>> X.shape, np.unique(y).tolist()
    ((2000, 14), [0, 1, 2, 3])
    """
    _check_count("n_samples", n_samples)
    generator = check_random_state(random_state)
    y = generator.randint(4, size=n_samples).astype(np.int64)
    noise = generator.standard_normal((n_samples, 14))
    informative = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])[y] + noise[:, :2]
    offset = [0.0, 0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8]
    coefficients = np.array([[0.5, 2, 0, -1, 2, 0.5, 4, 3, 2], [1, 0, 3, 2, -4, 0, 0.5, 0, 1]])
    # Some root (9, 9) with rootᵀ root = Ω.
    root = np.diag([1.0, 1.0, 1.0, math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0, 0.0, 0.0])
    for start, angle, variances in ((5, math.pi / 3, (1.0, 3.0)), (7, math.pi / 6, (2.0, 6.0))):
        cosine, sine = math.cos(angle), math.sin(angle)
        rotation = np.array([[cosine, -sine], [sine, cosine]])
        root[start : start + 2, start : start + 2] = np.sqrt(variances)[:, None] * rotation
    dependent = offset + informative @ coefficients + noise[:, 2:11] @ root
    return np.hstack([informative, dependent, [3.2, 3.6, 4.0] + noise[:, 11:]]), y


def multivariate_student(
    n_samples: int, *, mean: ArrayLike, covariance: ArrayLike, degrees_of_freedom: float, random_state: Seed = None
) -> NDArray[np.float64]:
    """Samples (n, d) of a Student-t distribution: mean + z · √(ρ/u), with z ~ N(0, covariance) and u ~ χ²(ρ).

    The mean is (d,), the covariance (d, d), symmetric and positive semidefinite. Degrees of freedom ρ > 0: the fewer,
    the heavier the tails. The samples have a mean from ρ > 1 on, and from ρ > 2 on ρ / (ρ − 2) times the covariance.

    Examples
    --------
    >>> X = multivariate_student(1000, mean=[3, 1], covariance=np.eye(2), degrees_of_freedom=5, random_state=0)
    >>> X.shape, np.median(X, axis=0).round(1).tolist()
    ((1000, 2), [3.0, 1.0])
    """
    _check_count("n_samples", n_samples)
    _check_positive(degrees_of_freedom=degrees_of_freedom)
    place, matrix = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0
    if not (square and np.isfinite(matrix).all() and np.allclose(matrix, matrix.T)):
        raise InputError("covariance must be a symmetric table of finite numbers, with as many rows as columns.")
    values, vectors = np.linalg.eigh(matrix)
    if values.min() < -1e-8 * max(values.max(), 0.0):
        raise InputError(f"covariance must have no negative eigenvalues, but its smallest is {values.min():.3g}.")
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
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

    The class of each sample is drawn. The means are (α, α), (α, −α), (−α, α) and (−α, −α). The first three clusters
    are Gaussian with the covariance σI; the last is a Student-t distribution. With one degree of freedom its samples
    can lie thousands away.

    With seed 0 and the other defaults these are, as far as is known, the authors' own samples: the scores of k-means,
    Gaussian mixtures and the oracle on them are those of the paper.

    Examples
    --------
    >>> X, y = gaussian_student_mixture(random_state=0)
    >>> X.shape, np.bincount(y).tolist(), round(float(np.abs(X).max()), 1)
    ((5000, 2), [1203, 1235, 1268, 1294], 2585.7)
    """
    _check_count("n_samples", n_samples)
    _check_positive(alpha=alpha, sigma=sigma, degrees_of_freedom=degrees_of_freedom)
    generator = check_random_state(random_state)
    # The order of the draws matters: another order gives other samples for the same seed.
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
    """Return the most likely cluster (n,) of samples (n, 2) of the mixture, given the parameters they were drawn with.

    No clustering can be expected to do better than this.

    Examples
    --------
    >>> X, y = gaussian_student_mixture(random_state=0)
    >>> round(float(np.mean(gaussian_student_oracle(X) == y)), 3)
    0.996
    """
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise InputError(f"The mixture lies in the plane, so X must have the shape (n, 2), but it has {rows.shape}.")
    _check_positive(alpha=alpha, sigma=sigma, degrees_of_freedom=degrees_of_freedom)
    squared = ((rows[:, None] - _means(alpha)) ** 2).sum(axis=2) / sigma
    # The four log densities without −log 2πσ, a constant that they share in two dimensions.
    log_density = -squared / 2
    log_density[:, _STUDENT] = -(degrees_of_freedom / 2 + 1) * np.log1p(squared[:, _STUDENT] / degrees_of_freedom)
    likeliest: NDArray[np.int64] = log_density.argmax(axis=1).astype(np.int64)
    return likeliest


def _means(alpha: float) -> NDArray[np.float64]:
    return alpha * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def _centred_student(
    generator: np.random.RandomState, n_samples: int, root: NDArray[np.float64], degrees_of_freedom: float
) -> NDArray[np.float64]:
    """Draw samples (n, d) around 0; ``root`` (d, d) is a square root of the covariance before the tails."""
    gaussian = generator.standard_normal((n_samples, len(root))) @ root
    u = generator.chisquare(degrees_of_freedom, size=n_samples)
    samples: NDArray[np.float64] = gaussian * np.sqrt(degrees_of_freedom / u)[:, None]
    return samples


def _even_classes(n_samples: int, n_clusters: int) -> NDArray[np.int64]:
    """Return the class of each sample (n,), in order, with clusters as equal in size as possible."""
    _check_count("n_samples", n_samples)
    if not 1 <= n_clusters <= n_samples:
        raise InputError(
            f"{n_samples} samples cannot be shared among {n_clusters} clusters: each needs at least one, and there "
            "must be one cluster at least."
        )
    return np.sort(np.arange(n_samples) % n_clusters)


def _noisy(
    X: NDArray[np.float64], y: NDArray[np.int64], std: float, generator: np.random.RandomState, name: str = "noise"
) -> Sample:
    """Add Gaussian noise and shuffle: if rows were sorted by cluster, half of them would lack some clusters."""
    if not (std >= 0 and math.isfinite(std)):
        raise InputError(f"{name} must be a number from 0 up, but is {std!r}.")
    X = X + std * generator.standard_normal(X.shape)
    order = generator.permutation(len(y))
    return X[order], y[order]


def _check_count(name: str, value: int, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        kind = "positive whole number" if least else "whole number from 0 up"
        raise InputError(f"{name} must be a {kind}, but is {value!r}.")


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise InputError(f"{name} must be a positive number, but is {value!r}.")


SYNTHETIC: dict[str, Callable[..., Sample]] = {
    make.__name__: make for make in (blobs, celeux_one, celeux_two, circles, gaussian_student_mixture, moons)
}
"""Generators by name: each takes ``n_samples`` and ``random_state``."""
