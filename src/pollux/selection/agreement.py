"""How much clusterings agree: labels (B, n) of B clusterings of the same n rows, without anything (n, n)."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]


def mean_and_error(agreement: NDArray[np.float64], count: int) -> tuple[float, float]:
    """Mean of the pairs of ``count`` clusterings, and its standard error.

    Pairs that share a clustering are not independent: the error is the jackknife's, over clusterings.
    """
    pairs = np.array(list(combinations(range(count), 2)))
    without = np.array([agreement[(pairs != left_out).all(axis=1)].mean() for left_out in range(count)])
    error = np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    return float(agreement.mean()), float(error)


def sampled_pairs(n: int, count: int, generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``count`` pairs of different rows among n, at random with repetition."""
    first = generator.integers(n, size=count)
    return first, (first + generator.integers(1, n, size=count)) % n


def together(labels: Labels, pairs: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Whether each clustering (B, n) puts the two rows of each of m pairs together: (B, m)."""
    first, second = pairs
    return np.asarray(labels[:, first] == labels[:, second])


def distances_from_consensus(co_association: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(B, m) to (B,): mean |own co-association − that of the ensemble|, over the m pairs.

    The consensus of a pair is the share of the clusterings that put it together; a clustering near the consensus is
    one that the others bear out, whatever their numbers of clusters.
    """
    consensus = co_association.mean(axis=0)
    return np.asarray(np.abs(co_association - consensus).mean(axis=1))
