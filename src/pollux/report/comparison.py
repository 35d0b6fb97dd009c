"""A clustering beside another one of the same samples, or beside itself on other samples: ``compare``."""

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
"""The quantile of the normal distribution that intervals of 95 % go to."""

# A mean has moved that did so by this many standard deviations, and this many standard errors.
_LEAST_MOVED, _SURE = 0.1, 4.0
# Samples outside a range are worth a word above this share, and above so many times that of chance.
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
    """Clusters here (K) beside those there (L).

    Parameters
    ----------
    name : str
        What is compared with.
    same_samples : bool
        Whether these are two clusterings of the same samples, rather than one of two sets of samples.
    shares, other_shares : arrays of shapes (K,) and (L,)
        The share of the samples that each cluster has, here and there.
    matches : mapping of int to int
        The cluster there that stands for each cluster here, so that most samples have the same; some have none.
    changes : array of shape (K, 3)
        The share there less that here, and the ends of its interval of 95 % (Newcombe's); these are NaN where both
        are of the same samples, and all are where a cluster has no match.
    table : array of shape (K, L)
        Samples that are known in both: how many are in which two clusters.
    moved : array of (m, 2)
        The row here, and the cluster there, of those that are not in the clusters that match.
    agreement : float
        The adjusted Rand index of both clusterings of the samples that are known in both; NaN where there are none.
    other_names : mapping of int to str
        Short names of the clusters there.
    columns : list of MovedColumn
        Of other samples, the features that moved by more than chance, the furthest first.
    notes : list of str
        What is told of other samples and not of those here, such as values that training has not seen.
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
    """What two findings have in common, for ``replace(findings, comparison=…)``.

    Parameters
    ----------
    findings, other : Findings
        What :func:`describe` says of the same samples by two clusterings; or, with ``same_samples=False``, of two sets
        of samples by one clustering, of which those of the same name are the same.
    name : str
        What is compared with.
    same_samples : bool
        Which of the two it is.
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
        # One clustering has the same clusters everywhere.
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
        # The deviation of equal numbers may miss zero by a rounding error.
        spread = float(here.std()) if high > low else 0.0
        moved = float(there.mean() - here.mean()) if high > low else float(np.abs(there - low).max())
        error = float(np.sqrt(here.var() / len(here) + there.var() / len(there))) if high > low else 0.0
        outside = float(((there < low) | (there > high)).mean())
        is_out = outside > max(_LEAST_OUTSIDE, _TIMES_CHANCE * 2 / (len(here) + 1))
        if is_out or abs(moved) > max(_LEAST_MOVED * spread, _SURE * error):
            found.append(MovedColumn(feature, float(here.mean()), float(there.mean()), spread, outside))
    return sorted(found, key=lambda each: -abs(each.there - each.here) / each.spread if each.spread else -np.inf)


def _same_names(findings: Findings, other: Findings) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows here and there that have the same name, where names are given and those of samples differ."""
    names, others = findings.row_names, other.row_names
    nothing = np.empty(0, dtype=np.intp)
    if names is None or others is None or len(set(names)) < len(names) or len(set(others)) < len(others):
        return nothing, nothing
    place = {name: row for row, name in enumerate(others)}
    pairs = [(row, place[name]) for row, name in enumerate(names) if name in place]
    found = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _difference(first: tuple[int, int], second: tuple[int, int]) -> tuple[float, float]:
    """Newcombe's interval of the second share less the first, each (count, of how many): right at 0 and 1 too."""

    def wilson(count: int, n: int) -> tuple[float, float, float]:
        share, z = count / n, _Z**2
        middle = (count + z / 2) / (n + z)
        half = _Z / (n + z) * float(np.sqrt(n * share * (1 - share) + z / 4))
        return share, middle - half, middle + half

    (a, low_a, high_a), (b, low_b, high_b) = wilson(*first), wilson(*second)
    return b - a - float(np.hypot(b - low_b, high_a - a)), b - a + float(np.hypot(high_b - b, a - low_a))
