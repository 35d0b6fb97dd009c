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

from pollux.clustering import CollapseWarning, GeminiClustering
from pollux.selection.agreement import Labels
from pollux.selection.gaps import Edges, separation

Rows = NDArray[np.floating]


class Task(NamedTuple):
    """One clustering to be made: by which estimator, for how many clusters, from which seed, on how many rows."""

    estimator: GeminiClustering
    n_clusters: int
    seed: int
    rows: int


@dataclass(frozen=True)
class Fit:
    """What a clustering says of all rows (n,), the clusters in use, its objective, and the gaps between clusters."""

    labels: Labels
    in_use: int
    objective: float
    separation: float


def fit_once(task: Task, X: Rows, edges: Edges) -> Fit:
    """Cluster a subsample of X and label all of X."""
    index = np.sort(np.random.default_rng(task.seed).permutation(len(X))[: task.rows])
    clustering = clone(task.estimator).set_params(
        n_clusters=task.n_clusters, random_state=task.seed, verbose=False, checkpoint=None
    )
    with warnings.catch_warnings():
        # That a clustering collapses is a finding here.
        warnings.simplefilter("ignore", CollapseWarning)
        clustering.fit(X[index] if task.rows < len(X) else X)
    log_p = clustering.fitted_.log_probabilities(X).numpy()
    return Fit(
        log_p.argmax(axis=1), int(clustering.n_clusters_), float(clustering.objective_), separation(log_p, edges)
    )


def fit_all(tasks: Sequence[Task], X: Rows, edges: Edges, n_jobs: int | None) -> Iterator[Fit]:
    """The clusterings of the tasks, in their order, as they are made."""
    if n_jobs in (None, 1):
        yield from (fit_once(task, X, edges) for task in tasks)
        return
    from sklearn.utils.parallel import Parallel, delayed

    # Processes, because a training seeds generators that threads would share.
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    made: Any = parallel(delayed(fit_once)(task, X, edges) for task in tasks)
    with closing(made):
        yield from made
