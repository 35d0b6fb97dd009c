"""What sets a cluster apart: its features against those of all other samples, in numbers and in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pollux.report.findings import Array
from pollux.report.markup import shortened

BINS = 24
VALUES_AT_ONCE = 4_000_000
NOTABLE, STRONG = 0.5, 1.5
# At most this share of the values, at either end, may lie outside the bulk.
TAIL = 0.02


@dataclass(frozen=True)
class Contrasts:
    """Means (K, d) of each cluster and of the rest, (cluster − rest) / deviation, and the share of missing values.

    ``mean`` and ``deviation`` (1, d) are those of all samples.
    """

    inside: Array
    outside: Array
    scaled: Array
    missing: Array
    mean: Array
    deviation: Array

    @property
    def from_mean(self) -> Array:
        """(mean of the cluster − mean of all) / deviation of all, (K, d); NaN where all values are missing."""
        with np.errstate(invalid="ignore", divide="ignore"):
            away = (self.inside - self.mean) / self.deviation
        return np.where(_varies(self.mean, self.deviation) | np.isnan(self.inside), away, 0.0)

    def ranked(self, cluster: int, most: int) -> list[int]:
        """The features that differ, largest standardised difference first."""
        sizes = np.abs(self.scaled[cluster])
        order = np.argsort(-sizes, kind="stable")[:most]
        return [int(feature) for feature in order if sizes[feature] > 0]


@dataclass(frozen=True)
class Histogram:
    """Shares of each bin between two ends: of all (B,) and of each cluster (K, B)."""

    low: float
    high: float
    everyone: Array
    clusters: Array


def compare_clusters(features: Array, labels: NDArray[np.int64], n_clusters: int) -> Contrasts:
    """Features (n, d) of clusters 0 … K − 1; values that are missing or infinite are passed over."""
    n, d = features.shape
    members = csr_array((np.ones(n), (labels, np.arange(n))), shape=(n_clusters, n))
    width = min(64, max(1, VALUES_AT_ONCE // max(n, 1)))
    # Without columns there is one block, of no columns.
    blocks = [_compare(features[:, at : at + width], members) for at in range(0, max(d, 1), width)]
    return Contrasts(*(np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True)))


def _compare(features: Array, members: csr_array) -> tuple[Array, ...]:
    """The fields of Contrasts for a few columns."""
    values = np.asarray(features, dtype=np.float64)
    known = np.isfinite(values)
    total = known.sum(0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.where(known, values, 0.0).sum(0, keepdims=True) / total
        # From the mean, so that a column of large numbers keeps the digits in which clusters differ.
        centred = np.where(known, values - mean, 0.0)
        deviation = np.sqrt((centred**2).sum(0, keepdims=True) / total)
        counts, sums = members @ known.astype(np.float64), members @ centred
        inside = mean + sums / counts
        outside = mean + (centred.sum(0) - sums) / (total - counts)
        scaled = np.where(_varies(mean, deviation), (inside - outside) / deviation, 0.0)
        missing = 1 - counts / np.asarray(members.sum(1)).reshape(-1, 1)
    return inside, outside, np.nan_to_num(scaled, nan=0.0, posinf=0.0, neginf=0.0), missing, mean, deviation


def _varies(mean: Array, deviation: Array) -> NDArray[np.bool_]:
    """Whether a feature differs among samples; rounding gives a constant one a deviation too."""
    return np.asarray(deviation > 1e-12 * np.abs(mean))


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


def split_share_name(name: str) -> tuple[str, str]:
    """'city=Bonn' → ('city', 'Bonn'); without '=' the value is empty."""
    column, _, value = name.partition("=")
    return column, value


def describe_differences(contrasts: Contrasts, cluster: int, names: Sequence[str], shares: Collection[str]) -> str:
    """'petal length very high, sepal width low'."""
    scaled, inside = contrasts.scaled[cluster], contrasts.inside[cluster]
    of_column: dict[str, list[int]] = {}
    for feature, name in enumerate(names):
        if name in shares:
            of_column.setdefault(split_share_name(name)[0], []).append(feature)
    said: list[str] = []
    for feature in contrasts.ranked(cluster, 30):
        size, share, name = float(scaled[feature]), float(inside[feature]), shortened(names[feature], 40)
        if abs(size) < NOTABLE or len(said) == 3:
            break
        if names[feature] not in shares:
            said.append(f"{name} {'very ' if abs(size) >= STRONG else ''}{'high' if size > 0 else 'low'}")
        elif size > 0:
            said.append(f"mostly {name}" if share >= 0.5 else f"more {name}")
        else:
            values = of_column[split_share_name(names[feature])[0]]
            more = [other for other in values if scaled[other] >= NOTABLE]
            # Less of a value follows from more of another of its column: from the only other, or from most of it.
            if not any(len(values) == 2 or inside[other] >= 0.5 for other in more):
                said.append(f"hardly any {name}" if share <= 0.1 else f"less {name}")
    return ", ".join(said) or "close to the average in every feature"
