"""How a feature is spread, over all samples and within each cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.report.findings import Array

BINS = 24
# At most this share of the values, at either end, may lie outside the bulk.
TAIL = 0.02


@dataclass(frozen=True)
class Histogram:
    """Shares of each bin between two ends: of all (B,) and of each cluster (K, B)."""

    low: float
    high: float
    everyone: Array
    clusters: Array


def make_histogram(values: Array, labels: NDArray[np.int64], n_clusters: int) -> Histogram:
    """How a feature (n,) is spread, over all and in each cluster. The outermost bins hold what lies beyond them."""
    known = np.isfinite(values)
    kept, owners = np.asarray(values[known], dtype=np.float64), labels[known]
    least, most = float(kept.min()), float(kept.max())
    if most - least < BINS and np.array_equal(kept, np.rint(kept)):
        low, high, bins = least, most, int(most - least) + 1
        codes = (kept - least).astype(np.int64)
    else:
        low, high = find_bulk(np.clip(kept, *np.quantile(kept, (0.005, 0.995))))
        low, high = (low, high) if high > low else (least, most)
        bins = BINS if high > low else 1
        codes = np.clip((kept - low) / ((high - low) or 1.0) * bins, 0, bins - 1).astype(np.int64)
    table = np.bincount(owners * bins + codes, minlength=n_clusters * bins).reshape(n_clusters, bins)
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    return Histogram(low, high, table.sum(0) / len(kept), shares)


def find_bulk(values: NDArray[Any]) -> tuple[float, float]:
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
