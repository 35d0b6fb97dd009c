"""``compare``: a clustering beside another one of the same samples, or beside itself on other samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from pollux.metrics import adjusted_rand_index

if TYPE_CHECKING:
    from pollux.data.encoding import Feature
    from pollux.report.findings import Array, Findings

_Z = 1.959964
"""The quantile of the normal distribution for 95 % intervals."""

# A mean has moved if it did by this many standard deviations, and by this many standard errors.
_LEAST_MOVED, _SURE = 0.1, 4.0
# Samples outside a range are reported above this share, and above so many times that of chance.
_LEAST_OUTSIDE, _TIMES_CHANCE = 0.01, 3.0


class MovedColumn(NamedTuple):
    """A feature whose means here and there differ; ``spread`` is its standard deviation here.

    ``outside`` is the share of the samples there that lie outside its range here.
    """

    feature: Feature
    here: float
    there: float
    spread: float
    outside: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Clusters here (K) compared with those there (L).

    Parameters
    ----------
    name : str
        Name of the other clustering or samples.
    same_samples : bool
        Whether these are two clusterings of the same samples, rather than one clustering of two sets of samples.
    shares, other_shares : arrays of shapes (K,) and (L,)
        The share of the samples in each cluster, here and there.
    matches : mapping of int to int
        The cluster there that matches each cluster here, such that most samples agree; some have none.
    changes : array of shape (K, 3)
        The share there minus that here, and its 95 % interval (Newcombe's); the interval is NaN if both are of the
        same samples, and everything is if a cluster has no match.
    table : array of shape (K, L)
        Contingency table of the samples that are known in both.
    moved : array of (m, 2)
        The row here, and the cluster there, of samples that are not in matching clusters.
    agreement : float
        The adjusted Rand index of both clusterings on the samples that are known in both; NaN if there are none.
    other_names : mapping of int to str
        Short names of the clusters there.
    columns : list of MovedColumn
        For other samples, the features that moved by more than chance, the furthest first.
    notes : list of str
        Notes on the other samples that do not apply to those here, such as values that training has not seen.
    """

    name: str
    same_samples: bool
    shares: Array
    other_shares: Array
    matches: dict[int, int]
    changes: Array
    table: NDArray[np.int64]
    moved: NDArray[np.int64]
    agreement: float
    other_names: dict[int, str]
    columns: list[MovedColumn]
    notes: list[str]


def compare(findings: Findings, other: Findings, *, name: str = "the other", same_samples: bool = True) -> Comparison:
    """Compare two findings, for ``replace(findings, comparison=…)``.

    Parameters
    ----------
    findings, other : Findings
        Results of :func:`describe` for the same samples by two clusterings; or, with ``same_samples=False``, for two
        sets of samples by one clustering, in which samples of the same name are the same.
    name : str
        Name of the other clustering or samples.
    same_samples : bool
        Which of the two cases it is.
    """
    labels, others = findings.labels, other.labels
    K, L = len(findings.sizes), len(other.sizes)
    if same_samples:
        if len(labels) != len(others):
            raise ValueError(
                f"There are {len(labels):,} samples here and {len(others):,} there: they must be the same."
            )
        here = there = np.arange(len(labels))
    else:
        # One clustering has the same clusters for all samples.
        K = L = max(K, L)
        here, there = _same_names(findings, other)
    table = np.zeros((K, L), dtype=np.int64)
    np.add.at(table, (labels[here], others[there]), 1)
    if same_samples:
        rows, columns = linear_sum_assignment(table, maximize=True)
        matches = {int(k): int(m) for k, m in zip(rows, columns, strict=True) if table[k, m]}
    else:
        matches = {k: k for k in range(K)}
    counts, other_counts = (
        np.bincount(np.arange(len(each.all_sizes)), each.all_sizes, minlength=width).astype(np.int64)
        for each, width in ((findings, K), (other, L))
    )
    n, m = int(counts.sum()), int(other_counts.sum())
    changes = np.full((K, 3), np.nan)
    for k, match in matches.items():
        first, second = (int(counts[k]), n), (int(other_counts[match]), m)
        low, high = (np.nan, np.nan) if same_samples else _difference(first, second)
        changes[k] = second[0] / second[1] - first[0] / first[1], low, high
    match_of = np.array([matches.get(k, -1) for k in range(K)])
    has_moved = match_of[labels[here]] != others[there]
    return Comparison(
        name=name,
        same_samples=same_samples,
        shares=counts / n,
        other_shares=other_counts / m,
        matches=matches,
        changes=changes,
        table=table,
        moved=np.column_stack([here[has_moved], others[there[has_moved]]]),
        agreement=adjusted_rand_index(labels[here], others[there]) if len(here) else float("nan"),
        other_names={k: other.cluster_name(k) for k in range(L)},
        columns=[] if same_samples else _moved_columns(findings, other),
        notes=[] if same_samples else [note for note in other.notes if note not in findings.notes],
    )


def _moved_columns(findings: Findings, other: Findings) -> list[MovedColumn]:
    """The features of both that moved, the furthest first."""
    if findings.features is None or other.features is None:
        return []
    place, found = {str(name): at for at, name in enumerate(other.feature_names)}, []
    for at, (name, feature) in enumerate(zip(findings.feature_names, findings.read_features, strict=True)):
        if str(name) not in place:
            continue
        columns = findings.features[:, at], other.features[:, place[str(name)]]
        here, there = (np.asarray(values, dtype=np.float64)[np.isfinite(values)] for values in columns)
        if min(len(here), len(there)) < 2:
            continue
        low, high = here.min(), here.max()
        # The standard deviation of equal numbers may differ from zero by a rounding error.
        spread = float(here.std()) if high > low else 0.0
        moved = float(there.mean() - here.mean()) if high > low else float(np.abs(there - low).max())
        error = float(np.sqrt(here.var() / len(here) + there.var() / len(there))) if high > low else 0.0
        outside = float(((there < low) | (there > high)).mean())
        is_out = outside > max(_LEAST_OUTSIDE, _TIMES_CHANCE * 2 / (len(here) + 1))
        if is_out or abs(moved) > max(_LEAST_MOVED * spread, _SURE * error):
            found.append(MovedColumn(feature, float(here.mean()), float(there.mean()), spread, outside))
    return sorted(found, key=lambda each: -abs(each.there - each.here) / each.spread if each.spread else -np.inf)


def _same_names(findings: Findings, other: Findings) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows here and there that have the same name, if names are given and unique."""
    names, others = findings.row_names, other.row_names
    nothing = np.empty(0, dtype=np.intp)
    if names is None or others is None or len(set(names)) < len(names) or len(set(others)) < len(others):
        return nothing, nothing
    place = {name: row for row, name in enumerate(others)}
    pairs = [(row, place[name]) for row, name in enumerate(names) if name in place]
    found = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _difference(first: tuple[int, int], second: tuple[int, int]) -> tuple[float, float]:
    """Newcombe's interval for the second share minus the first, each (count, total): valid at 0 and 1 too."""

    def wilson(count: int, n: int) -> tuple[float, float, float]:
        share, z = count / n, _Z**2
        middle = (count + z / 2) / (n + z)
        half = _Z / (n + z) * float(np.sqrt(n * share * (1 - share) + z / 4))
        return share, middle - half, middle + half

    (a, low_a, high_a), (b, low_b, high_b) = wilson(*first), wilson(*second)
    return b - a - float(np.hypot(b - low_b, high_a - a)), b - a + float(np.hypot(high_b - b, a - low_a))
