"""The two simulations of Celeux, Martin-Magniette, Maugis-Rabusseau and Raftery, where few variables tell the clusters.

G. Celeux, M.-L. Martin-Magniette, C. Maugis-Rabusseau, A. E. Raftery: Comparing model selection and regularization
approaches to variable selection in model-based clustering. Journal de la Société Française de Statistique, 2014.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from pollux.errors import InputError
from pollux.lab.datasets.synthetic import Sample, Seed, positive, whole

_INFORMATIVE = 5


def celeux_one(n_samples: int = 300, *, n_noise: int = 20, mu: float = 1.7, random_state: Seed = None) -> Sample:
    """Three Gaussian clusters (n, 5 + n_noise) that differ in the first five variables; the others are noise.

    Each sample is of one of three equally likely clusters. Its first five variables are N(m, I) with m = (μ, …, μ),
    (−μ, …, −μ) or (0, …, 0); the remaining ones are N(0, I) whatever the cluster.

    Parameters
    ----------
    n_samples : int, default=300
        In all; the cluster of each is drawn.
    n_noise : int, default=20
        How many variables say nothing of the clusters.
    mu : float, default=1.7
        How far the clusters lie apart; 1.7 separates them well.
    random_state : int, RandomState or None
        Seed of all randomness.

    Returns
    -------
    X : ndarray of shape (n, 5 + n_noise)
    y : ndarray of shape (n,)
        0, 1 and 2 for the means μ, −μ and 0.

    Examples
    --------
    >>> X, y = celeux_one(random_state=0)
    >>> X.shape, np.unique(y).tolist()
    ((300, 25), [0, 1, 2])
    """
    whole("n_samples", n_samples)
    positive("mu", mu)
    if isinstance(n_noise, bool) or not isinstance(n_noise, int | np.integer) or n_noise < 0:
        raise InputError(f"n_noise must be a whole number from 0 up, but is {n_noise!r}.")
    generator = check_random_state(random_state)
    y = generator.randint(3, size=n_samples).astype(np.int64)
    X = generator.standard_normal((n_samples, _INFORMATIVE + n_noise))
    X[:, :_INFORMATIVE] += np.array([mu, -mu, 0.0])[y, None]
    return X, y


def celeux_two(n_samples: int = 2000, *, random_state: Seed = None) -> Sample:
    """Four Gaussian clusters (n, 14): two variables tell them, nine follow from these two, three are noise.

    - s, variables 1 and 2: N(m, I) with the equally likely means m = (0, 0), (4, 0), (0, 2), (4, 2).
    - Variables 3 to 11: a + sB + ε, where a = (0, 0, 0.4, 0.8, …, 2.8), ε ~ N(0, Ω) and the columns of B are
      (0.5, 1), (2, 0), (0, 3), (−1, 2), (2, −4), (0.5, 0), (4, 0.5), (3, 0), (2, 1).
    - Ω is block diagonal: I₃, ½I₂, R(π/3)ᵀ diag(1, 3) R(π/3), R(π/6)ᵀ diag(2, 6) R(π/6), with R(θ) the rotation of
      the plane by θ.
    - Variables 12 to 14: N((3.2, 3.6, 4), I).

    Parameters
    ----------
    n_samples : int, default=2000
        In all; the cluster of each is drawn.
    random_state : int, RandomState or None
        Seed of all randomness.

    Returns
    -------
    X : ndarray of shape (n, 14)
    y : ndarray of shape (n,)
        From 0 to 3, in the order of the means above.

    Examples
    --------
    >>> X, y = celeux_two(random_state=0)
    >>> X.shape, np.unique(y).tolist()
    ((2000, 14), [0, 1, 2, 3])
    """
    whole("n_samples", n_samples)
    generator = check_random_state(random_state)
    y = generator.randint(4, size=n_samples).astype(np.int64)
    noise = generator.standard_normal((n_samples, 14))
    telling = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])[y] + noise[:, :2]
    following = _OFFSET + telling @ _COEFFICIENTS + noise[:, 2:11] @ _noise_root()
    return np.hstack([telling, following, [3.2, 3.6, 4.0] + noise[:, 11:]]), y


_OFFSET = np.array([0.0, 0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8])
_COEFFICIENTS = np.array(
    [
        [0.5, 2.0, 0.0, -1.0, 2.0, 0.5, 4.0, 3.0, 2.0],
        [1.0, 0.0, 3.0, 2.0, -4.0, 0.0, 0.5, 0.0, 1.0],
    ]
)


def _noise_root() -> NDArray[np.float64]:
    """Some A (9, 9) with AᵀA = Ω."""
    root = np.diag([1.0, 1.0, 1.0, math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0, 0.0, 0.0])
    for start, angle, variances in ((5, math.pi / 3, (1.0, 3.0)), (7, math.pi / 6, (2.0, 6.0))):
        cosine, sine = math.cos(angle), math.sin(angle)
        rotation = np.array([[cosine, -sine], [sine, cosine]])
        root[start : start + 2, start : start + 2] = np.sqrt(variances)[:, None] * rotation
    return root
