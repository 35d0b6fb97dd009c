"""Labels of k-means, which mixtures and models start at."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

RUNS = 10
"""Runs of k-means of which the best is kept."""
# Of many clusters a run takes long, and further ones find hardly better ones.
_RUNS_TIMES_CLUSTERS = 500


def k_means(
    features: Any,
    n_clusters: int,
    seed: int = 0,
    sample_weight: NDArray[np.float64] | None = None,
    *,
    runs: int | None = None,
    in_place: bool = False,
) -> NDArray[np.int64]:
    """Labels (n,) of features (n, r), the best of ten runs; ``in_place`` moves the features instead of a copy."""
    runs = max(1, min(runs or RUNS, _RUNS_TIMES_CLUSTERS // n_clusters))
    estimator = KMeans(n_clusters, n_init=runs, random_state=seed, copy_x=not in_place)
    with warnings.catch_warnings():
        # Fewer distinct samples than clusters: some then stay empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = estimator.fit(features, sample_weight=sample_weight)
    return np.asarray(found.labels_, dtype=np.int64)
