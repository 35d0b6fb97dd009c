"""Selections that several files of tests look at, made once."""

import numpy as np
import pytest

from blobs import blobs
from pollux import Selection, select_n_clusters


@pytest.fixture(scope="session")
def found() -> Selection:
    X, classes = blobs()
    return select_n_clusters(X, (3, 4), y=classes, n_subsamples=3, random_state=0)


@pytest.fixture(scope="session")
def noise() -> Selection:
    X = np.random.default_rng(1).normal(size=(120, 2)) * [5, 1] @ np.array([[0.8, 0.6], [-0.6, 0.8]])
    return select_n_clusters(X, [2], n_subsamples=3, random_state=0)
