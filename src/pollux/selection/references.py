"""Data like the user's, but without clusters: what stability is worth is judged beside that on these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.floating]


def gaussian(X: Rows, generator: np.random.Generator) -> Rows:
    """Rows of one Gaussian with the mean and covariance of X (n, d)."""
    centre, deviations, axes = _principal_axes(X)
    drawn = generator.standard_normal((len(X), len(deviations)))
    return (centre + (drawn * deviations) @ axes).astype(X.dtype)


def uniform(X: Rows, generator: np.random.Generator) -> Rows:
    """Rows that fill a box with the mean and covariance of X (n, d), along its principal axes.

    Where directions cannot be told apart by their spread, as in a square, its axes are those of the columns.
    """
    if _is_uncorrelated(X):
        half = np.sqrt(3) * X.std(axis=0)
        drawn = X.mean(axis=0) + generator.uniform(-half, half, size=X.shape)
        return np.asarray(drawn, dtype=X.dtype)
    centre, deviations, axes = _principal_axes(X)
    drawn = generator.uniform(-np.sqrt(3), np.sqrt(3), size=(len(X), len(deviations)))
    return (centre + (drawn * deviations) @ axes).astype(X.dtype)


REFERENCES = {"gaussian": gaussian, "uniform": uniform}


def _principal_axes(X: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean (d,), deviations (r,) along the principal axes (r, d), without those along which nothing varies."""
    rows = np.asarray(X, dtype=np.float64)
    centre = rows.mean(axis=0)
    _, singular, axes = np.linalg.svd(rows - centre, full_matrices=False)
    vary = singular > 1e-10 * max(float(singular[0]), np.finfo(float).tiny)
    return centre, singular[vary] / np.sqrt(len(rows)), axes[vary]


def _is_uncorrelated(X: Rows) -> bool:
    """Whether no two columns correlate more than those of independent ones would, by chance."""
    varying = X[:, X.std(axis=0) > 0]
    if varying.shape[1] < 2:
        return True
    correlation = np.atleast_2d(np.corrcoef(varying, rowvar=False))
    d = len(correlation)
    off_diagonal = (float((correlation**2).sum()) - d) / (d * (d - 1))
    return off_diagonal < 4 / len(X)
