"""A clustering beside another one of the same samples, or beside itself on other samples: ``compare``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from pollux.metrics import adjusted_rand_index

if TYPE_CHECKING:
    from pollux.report.findings import Array, Findings

_Z = 1.959964
"""The quantile of the normal distribution that intervals of 95 % go to."""


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
    counts, other_counts = np.bincount(labels, minlength=K), np.bincount(others, minlength=L)
    changes = np.full((K, 3), np.nan)
    for k, m in matches.items():
        first, second = (int(counts[k]), len(labels)), (int(other_counts[m]), len(others))
        low, high = (np.nan, np.nan) if same_samples else _difference(first, second)
        changes[k] = second[0] / second[1] - first[0] / first[1], low, high
    match_of = np.array([matches.get(k, -1) for k in range(K)])
    has_moved = match_of[labels[here]] != others[there]
    return Comparison(
        name=name,
        same_samples=same_samples,
        shares=counts / len(labels),
        other_shares=other_counts / len(others),
        matches=matches,
        changes=changes,
        table=table,
        moved=np.column_stack([here[has_moved], others[there[has_moved]]]),
        agreement=adjusted_rand_index(labels[here], others[there]) if len(here) else float("nan"),
        other_names={k: other.cluster_name(k) for k in range(L)},
    )


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
