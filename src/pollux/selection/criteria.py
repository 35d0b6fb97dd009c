"""Stability and consensus of several clusterings of the same samples."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]


def mean_and_error(agreement: NDArray[np.float64], n_clusterings: int) -> tuple[float, float]:
    """Mean agreement of all pairs of clusterings, and its standard error.

    Pairs that share a clustering are not independent, so the error is estimated by a jackknife over clusterings.
    """
    pairs = np.array(list(combinations(range(n_clusterings), 2)))
    without = np.array([agreement[(pairs != left_out).all(axis=1)].mean() for left_out in range(n_clusterings)])
    error = np.sqrt((n_clusterings - 1) / n_clusterings * ((without - without.mean()) ** 2).sum())
    return float(agreement.mean()), float(error)


def sample_pairs(n: int, n_pairs: int, generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random pairs of different samples among n, with repetition."""
    first = generator.integers(n, size=n_pairs)
    return first, (first + generator.integers(1, n, size=n_pairs)) % n


def distances_from_consensus(labels: Labels, pairs: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.float64]:
    """Labels (B, n) of B clusterings to (B,): mean |own co-association − that of the ensemble|, over m pairs.

    The consensus of a pair is the share of the clusterings that put it together. A clustering near the consensus is
    supported by the others, whatever their numbers of clusters.
    """
    co_association = labels[:, pairs[0]] == labels[:, pairs[1]]
    return np.asarray(np.abs(co_association - co_association.mean(axis=0)).mean(axis=1))
