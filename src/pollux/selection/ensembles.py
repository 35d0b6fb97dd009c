"""Clusterings of subsamples, each of which labels all samples; and the estimators that make them by default."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone

from pollux.clustering import CollapseWarning, GeminiClustering
from pollux.data.scaling import FittedScaling, prepared
from pollux.selection.criteria import Edges, Labels, separation
from pollux.spec import MLP

MAX_SUBSAMPLE = 1_000
"""Samples of a subsample by default: more of them take longer and tell little more of a small network."""

_EPOCHS, _LEARNING_RATE = 20, 0.01
# How often values of a column that has steps repeat, on average.
_REPEATED = 3

Result = TypeVar("Result")


class Task(NamedTuple):
    """One clustering to make: by which estimator, for how many clusters, from which seed, of how many samples."""

    estimator: GeminiClustering
    n_clusters: int
    seed: int
    n_samples: int


@dataclass(frozen=True)
class Member:
    """A clustering of an ensemble: labels of all samples (n,), clusters in use, objective, and separation."""

    labels: Labels
    in_use: int
    objective: float
    separation: float


def fit_member(task: Task, X: NDArray[np.floating], edges: Edges) -> Member:
    """Cluster a subsample of X and label all of X."""
    clustering = _fit(task, X)
    log_p = clustering.fitted_.log_probabilities(X).numpy()
    return Member(
        log_p.argmax(axis=1), int(clustering.n_clusters_), float(clustering.objective_), separation(log_p, edges)
    )


def count_in_use(task: Task, X: NDArray[np.floating]) -> int:
    """Cluster a subsample of X and count the clusters that stay in use."""
    return int(_fit(task, X).n_clusters_)


def _fit(task: Task, X: NDArray[np.floating]) -> GeminiClustering:
    index = np.sort(np.random.default_rng(task.seed).permutation(len(X))[: task.n_samples])
    clustering: GeminiClustering = clone(task.estimator).set_params(
        n_clusters=task.n_clusters, random_state=task.seed, verbose=False, training__checkpoint=None
    )
    with warnings.catch_warnings():
        # That a clustering collapses is a finding here.
        warnings.simplefilter("ignore", CollapseWarning)
        clustering.fit(X[index] if task.n_samples < len(X) else X)
    return clustering


def run_all(function: Callable[..., Result], tasks: Sequence[Task], n_jobs: int | None, *data: Any) -> Iterator[Result]:
    """function(task, *data) of each task, in their order, as they are done."""
    if n_jobs in (None, 1):
        yield from (function(task, *data) for task in tasks)
        return
    from sklearn.utils.parallel import Parallel, delayed

    # Processes, because a training seeds generators that threads would share.
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    results: Any = parallel(delayed(function)(task, *data) for task in tasks)
    with closing(results):
        yield from results


@contextmanager
def show_progress(total: int, verbose: bool) -> Iterator[Callable[[str], None]]:
    """A live line; call the function after each clustering, with what is known by then."""
    if not verbose:
        yield lambda metrics: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        *(TextColumn("clusterings"), MofNCompleteColumn(), BarColumn(bar_width=24)),
        *(TextColumn("{task.fields[metrics]}"), TimeRemainingColumn()),
    )
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("", total=total, metrics="")
        yield lambda metrics: progress.update(task, advance=1, metrics=metrics)


def default_estimator() -> GeminiClustering:
    """For standardised samples: a graph of neighbours fits clusters of any shape, its k-means those of any size."""
    return GeminiClustering(
        model=MLP(hidden=(100,)),
        objective="mmd_ovo",
        geometry="graph",
        init="kmeans",
        max_epochs=_EPOCHS,
        batch_size=None,
        learning_rate=_LEARNING_RATE,
    )


def default_surplus_estimator() -> GeminiClustering:
    """For counting the clusters that stay in use: one-vs-all empties the surplus soonest, from random weights."""
    return GeminiClustering(
        model="linear", objective="mmd_ova", max_epochs=10 * _EPOCHS, batch_size=None, learning_rate=5 * _LEARNING_RATE
    )


def fill_steps(X: NDArray[Any], seed: int) -> NDArray[np.float32]:
    """Columns whose values repeat are spread by half a step to either side, and all are standardised.

    Whole numbers, grades, zeros and ones have room between them that is not a gap between clusters.
    """
    generator = np.random.default_rng(seed)
    filled = np.array(X, dtype=np.float64)
    for column in filled.T:
        values = np.unique(column)
        if 1 < len(values) <= len(filled) / _REPEATED:
            column += generator.uniform(-0.5, 0.5, len(filled)) * np.median(np.diff(values))
    return standardise(filled)


def standardise(X: NDArray[Any]) -> NDArray[np.float32]:
    """Columns of mean 0 and deviation 1; those that are constant are 0."""
    return scale(X, FittedScaling.fit(X, "standard")).astype(np.float32)


def scale(X: NDArray[Any], scaling: FittedScaling) -> NDArray[Any]:
    """Samples X (n, …) after a scaling, in their own precision."""
    samples = prepared(X, scaling, torch.float32 if X.dtype == np.float32 else torch.float64, "cpu")
    return samples[torch.arange(len(samples))].numpy()
