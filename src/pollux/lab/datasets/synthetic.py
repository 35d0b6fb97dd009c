"""Made-up data whose clusters are known: samples (n, d) in float64 and their classes (n,), from 0 up.

All randomness comes from the ``random_state``: a seed gives the same numbers with every version of NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from pollux.errors import InputError

Seed: TypeAlias = int | np.random.RandomState | None
Sample: TypeAlias = tuple[NDArray[np.float64], NDArray[np.int64]]


def blobs(
    n_samples: int = 300,
    *,
    centres: ArrayLike = ((0.0, 2.0), (-2.0, -1.0), (2.0, -1.0)),
    std: float = 0.5,
    random_state: Seed = None,
) -> Sample:
    """Round Gaussian clusters (n, d) of one size about the centres (K, d).

    Parameters
    ----------
    n_samples : int, default=300
        Shared out evenly among the centres; the first ones take what is left over.
    centres : array-like of shape (K, d)
        By default three, about a triangle in the plane.
    std : float, default=0.5
        Standard deviation in each direction; 0 puts every sample on its centre.
    random_state : int, RandomState or None
        Seed of all randomness.

    Returns
    -------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
        Which centre each sample belongs to.

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
    counts = even_shares(n_samples, len(means))
    not_negative("std", std)
    generator = check_random_state(random_state)
    y = np.repeat(np.arange(len(means)), counts)
    return _shuffled(means[y] + std * generator.standard_normal((n_samples, means.shape[1])), y, generator)


def moons(
    n_samples: int = 500,
    *,
    radius: float = 2.0,
    noise: float = 0.05,
    random_state: Seed = None,
) -> Sample:
    """Two half circles (n, 2) that face each other, each with one end in the bowl of the other.

    With the radius ρ, the centre of the upper half circle is at (ρ/2, −ρ/4) and that of the lower one at (−ρ/2, ρ/4).

    Parameters
    ----------
    n_samples : int, default=500
        Shared out evenly; the upper half circle takes the odd one.
    radius : float, default=2.0
        Of both half circles.
    noise : float, default=0.05
        Standard deviation of the Gaussian noise on both coordinates.
    random_state : int, RandomState or None
        Seed of all randomness.

    Returns
    -------
    X : ndarray of shape (n, 2)
    y : ndarray of shape (n,)
        0 for the upper half circle, 1 for the lower one.

    Examples
    --------
    >>> X, y = moons(500, random_state=0)
    >>> X.shape, np.bincount(y).tolist()
    ((500, 2), [250, 250])
    """
    counts = even_shares(n_samples, 2)
    positive("radius", radius)
    not_negative("noise", noise)
    generator = check_random_state(random_state)
    y = np.repeat(np.arange(2), counts)
    angle = np.pi * (generator.uniform(size=n_samples) + y)
    centre = radius * np.array([[0.5, -0.25], [-0.5, 0.25]])
    X = centre[y] + radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _shuffled(X + noise * generator.standard_normal(X.shape), y, generator)


def circles(
    n_samples: int = 500,
    *,
    radii: Sequence[float] = (1.0, 2.0),
    noise: float = 0.05,
    random_state: Seed = None,
) -> Sample:
    """Circles (n, 2) about the origin, one cluster for each radius.

    Parameters
    ----------
    n_samples : int, default=500
        Shared out evenly among the circles; the first ones take what is left over.
    radii : sequence of float, default=(1.0, 2.0)
        One for each circle.
    noise : float, default=0.05
        Standard deviation of the Gaussian noise on both coordinates.
    random_state : int, RandomState or None
        Seed of all randomness.

    Returns
    -------
    X : ndarray of shape (n, 2)
    y : ndarray of shape (n,)
        Which radius each sample belongs to.

    Examples
    --------
    >>> X, y = circles(300, radii=(1, 2, 3), noise=0, random_state=0)
    >>> np.unique(np.hypot(*X.T).round(6)).tolist()
    [1.0, 2.0, 3.0]
    """
    counts = even_shares(n_samples, len(radii))
    for radius in radii:
        positive("each of the radii", radius)
    not_negative("noise", noise)
    generator = check_random_state(random_state)
    y = np.repeat(np.arange(len(radii)), counts)
    angle = 2 * np.pi * generator.uniform(size=n_samples)
    X = np.asarray(radii, dtype=np.float64)[y, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _shuffled(X + noise * generator.standard_normal(X.shape), y, generator)


def even_shares(n_samples: int, n_clusters: int) -> NDArray[np.int64]:
    """How many of the samples each cluster gets: (K,), as even as can be."""
    whole("n_samples", n_samples)
    if not 1 <= n_clusters <= n_samples:
        raise InputError(
            f"{n_samples} samples cannot be shared among {n_clusters} clusters: each needs at least one, and there "
            "must be one cluster at least."
        )
    shares = np.full(n_clusters, n_samples // n_clusters, dtype=np.int64)
    shares[: n_samples % n_clusters] += 1
    return shares


def whole(name: str, value: int) -> None:
    """Refuse what is no positive whole number."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} must be a positive whole number, but is {value!r}.")


def positive(name: str, value: float) -> None:
    """Refuse what is no positive finite number."""
    if not (value > 0 and math.isfinite(value)):
        raise InputError(f"{name} must be a positive number, but is {value!r}.")


def not_negative(name: str, value: float) -> None:
    """Refuse what is no finite number from 0 up."""
    if not (value >= 0 and math.isfinite(value)):
        raise InputError(f"{name} must be a number from 0 up, but is {value!r}.")


def _shuffled(X: NDArray[np.float64], y: NDArray[np.int64], generator: np.random.RandomState) -> Sample:
    """Both in a random order: sorted by cluster, the first half of the rows would lack some of them."""
    order = generator.permutation(len(y))
    return X[order], y[order]
