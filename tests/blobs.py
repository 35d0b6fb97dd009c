"""Data with a known number of clusters."""

import numpy as np
from numpy.typing import NDArray

CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])


def blobs(n: int = 90, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return three round clusters (n, 2) and their classes (n,)."""
    classes = np.arange(n) % 3
    return CENTRES[classes] + np.random.default_rng(seed).normal(size=(n, 2)), classes
