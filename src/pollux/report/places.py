"""Where samples lie on a map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

_FITTED_ROWS = 20_000
# At most this share of the values, at either end, may lie outside the bulk.
TAIL = 0.02


def principal_map(X: NDArray[Any]) -> tuple[NDArray[np.float64], tuple[str, str]]:
    """The first two principal components of X (n, d): points (n, 2), and what their axes are.

    The components are those of at most 20,000 rows. Of a single feature, the second coordinate is zero.
    """
    X = np.asarray(X)
    count = min(2, *X.shape)
    rows = X
    if len(X) > _FITTED_ROWS:
        rows = X[np.random.default_rng(0).choice(len(X), _FITTED_ROWS, replace=False)]
    components = PCA(count, random_state=0).fit(rows)
    points = np.zeros((len(X), 2))
    points[:, :count] = components.transform(X)
    shares = [*np.nan_to_num(components.explained_variance_ratio_), 0.0][:2]
    first, second = (f"principal component {k} ({share:.0%} of the variance)" for k, share in enumerate(shares, 1))
    return points, (first, second)


def bulk_of(values: NDArray[Any]) -> tuple[float, float]:
    """The ends of values (n,), n > 0; of the bulk of them, where few take more than half of the room.

    The bulk lies within the quantiles TAIL and 1 − TAIL, or at most half their distance beyond them.
    """
    low, high = float(values.min()), float(values.max())
    least, most = (float(end) for end in np.quantile(values, (TAIL, 1 - TAIL)))
    beyond = 0.5 * (most - least)
    bulk = values[(values >= least - beyond) & (values <= most + beyond)]
    # Where nearly all values are the same there is no bulk to speak of.
    if not len(bulk) or not 0 < np.ptp(bulk) < 0.45 * (high - low):
        return low, high
    return float(bulk.min()), float(bulk.max())
