"""Clusterings of subsamples, each asked about all rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pollux.estimators import GeminiClustering
from pollux.fitting import CollapseWarning
from pollux.selection.agreement import Labels
from pollux.selection.defaults import MOST_ROWS, default_estimator, surplus_estimator

Rows = NDArray[np.floating]


class Task(NamedTuple):
    """One clustering to be made: of which data, for how many clusters, from which seed, on which share of the rows."""

    data: str
    n_clusters: int
    seed: int
    share: float
    is_surplus: bool = False


@dataclass(frozen=True)
class Fit:
    """What a clustering says of all rows (n,), how many clusters it uses, and its objective."""

    labels: Labels
    in_use: int
    objective: float


def fit_once(task: Task, X: Rows, estimator: GeminiClustering | None) -> Fit:
    """Cluster a subsample of X and label all of X."""
    count = training_rows(len(X), task.share)
    if estimator is None:
        count = min(count, MOST_ROWS)
    index = np.sort(np.random.default_rng(task.seed).permutation(len(X))[:count])
    rows = X[index] if count < len(X) else X
    if estimator is not None:
        clustering = clone(estimator).set_params(verbose=False, checkpoint=None)
    else:
        clustering = surplus_estimator() if task.is_surplus else default_estimator(rows)
    clustering.set_params(n_clusters=task.n_clusters, random_state=task.seed)
    with warnings.catch_warnings():
        # That a clustering collapses is a finding here.
        warnings.simplefilter("ignore", CollapseWarning)
        clustering.fit(rows)
    return Fit(np.asarray(clustering.predict(X)), int(clustering.n_clusters_), float(clustering.objective_))


def training_rows(n: int, share: float) -> int:
    """Rows of a subsample of n."""
    return min(n, round(share * n))


def fit_all(
    tasks: Sequence[Task], data: dict[str, Rows], estimator: GeminiClustering | None, n_jobs: int | None
) -> Iterator[Fit]:
    """The clusterings of the tasks, in their order, as they are made."""
    if n_jobs in (None, 1):
        yield from (fit_once(task, data[task.data], estimator) for task in tasks)
        return
    from sklearn.utils.parallel import Parallel, delayed

    # Processes, because a training seeds generators that threads would share.
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    made: Any = parallel(delayed(fit_once)(task, data[task.data], estimator) for task in tasks)
    with closing(made):
        yield from made
