"""``select_n_clusters``: how many clusters there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from pollux.estimators import GeminiClustering
from pollux.metrics import adjusted_rand_index, pairwise_agreement
from pollux.selection.agreement import (
    cut_shares,
    distances_from_consensus,
    mean_and_error,
    neighbours_of,
    sampled_pairs,
    together,
)
from pollux.selection.checking import as_classes, as_rows, check_candidates, check_estimator, check_settings
from pollux.selection.deciding import decide, score_of, separation_of
from pollux.selection.defaults import scaled, standardised
from pollux.selection.ensembles import Fit, Rows, Task, fit_all, training_rows
from pollux.selection.progress import progress_bar
from pollux.selection.references import REFERENCES
from pollux.selection.selection import Candidate, Selection

DATA = "data"
_NEIGHBOURS, _PAIRS = 5, 20_000
_REFERENCE_FITS, _SURPLUS_STARTS = 4, 5
MOST_ROWS = 5_000


def select_n_clusters(
    X: ArrayLike,
    candidates: Iterable[int] = range(2, 11),
    *,
    estimator: GeminiClustering | None = None,
    y: ArrayLike | None = None,
    n_subsamples: int = 10,
    subsample: float = 0.8,
    max_rows: int = MOST_ROWS,
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> Selection:
    """How many clusters X has, or that it has none to speak of.

    For each candidate, clusterings of subsamples are asked about all rows. A number of clusters is good where they
    agree (stability) and where their boundaries run through gaps (separation): they cut far fewer nearest neighbours
    than boundaries do in data of the same covariance without clusters. The product of both is the score.

    Parameters
    ----------
    X : array of shape (n, d) or (n, C, H, W), DataFrame or sparse matrix
        The samples. They are standardised, unless you name an estimator: they are then scaled as it says, all at once,
        and may hold NaN where it fills gaps.
    candidates : iterable of int
        Numbers of clusters to compare, from 2.
    estimator : GeminiClustering, optional
        The clustering, of which ``n_clusters`` and ``random_state`` are set. Its model must predict new rows. By
        default a linear model with the objective ``"mmd_ovo"`` and an rbf kernel, from k-means++ seeds.
    y : array of shape (n,), optional
        Known classes, which the result is set beside; they have no influence.
    n_subsamples : int
        Clusterings of each candidate.
    subsample : float
        Share of the rows that each is made of, above 0 and at most 1; with the default estimator, at most 1,000 rows.
    max_rows : int
        Of more rows, so many are chosen at random.
    random_state : int, RandomState or None
        Seed; the same seed gives the same answer.
    n_jobs : int or None
        Processes; None: this one only, −1: one a core.
    verbose : bool
        Whether to show a progress bar.

    Returns
    -------
    Selection
        ``n_clusters``, ``is_clear``, ``reason`` and the figures of each candidate.

    Examples
    --------
    >>> import numpy as np
    >>> from pollux import select_n_clusters
    >>> X = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
    >>> select_n_clusters(X, range(2, 5), n_subsamples=4, random_state=0).n_clusters
    3
    """
    numbers_asked = check_candidates(candidates)
    check_settings(n_subsamples, subsample, max_rows)
    check_estimator(estimator)
    rows, classes = as_rows(X, allow_nan=estimator is not None and estimator.missing == "mean"), as_classes(y)
    random = check_random_state(random_state)
    kept = _kept(rows.shape[0], max_rows, random)
    if classes is not None and len(classes) != rows.shape[0]:
        raise ValueError(f"y has {len(classes)} classes for {rows.shape[0]} rows of X: give one for each.")
    chosen, estimator = _as_seen(_dense(rows[kept]), estimator)
    found = search(
        chosen,
        numbers_asked,
        estimator=estimator,
        classes=None if classes is None else classes[kept],
        n_subsamples=n_subsamples,
        subsample=subsample,
        random=random,
        n_jobs=n_jobs,
        verbose=verbose,
    )
    return replace(found, rows=int(rows.shape[0]))


def search(
    X: Rows,
    candidates: Sequence[int],
    *,
    estimator: GeminiClustering | None,
    classes: NDArray[Any] | None,
    n_subsamples: int,
    subsample: float,
    random: np.random.RandomState,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> Selection:
    """The same for rows (n, …) that are few enough and scaled."""
    if training_rows(len(X), subsample) < max(candidates):
        raise ValueError(
            f"Subsamples have {training_rows(len(X), subsample)} of {len(X)} rows, too few for {max(candidates)} "
            f"clusters: ask for fewer clusters or take more rows."
        )
    data = _with_references(X, random)
    tasks = _tasks(candidates, n_subsamples, subsample, random)
    made: dict[tuple[int, str], list[Fit]] = defaultdict(list)
    surplus: Counter[int] = Counter()
    with progress_bar(len(tasks), verbose) as report:
        for task, fit in zip(tasks, fit_all(tasks, data, estimator, n_jobs), strict=True):
            if task.is_surplus:
                surplus[fit.in_use] += 1
            else:
                made[task.n_clusters, task.data].append(fit)
            report(_figures(task, made))
    figures = _candidates(candidates, data, made, classes, random)
    decision = decide(figures)
    in_use = dict(sorted(surplus.items()))
    return Selection(*decision, tuple(figures), in_use, max(candidates), len(X), len(X))


def _kept(n: int, most: int, random: np.random.RandomState) -> NDArray[np.int64]:
    """The rows that are looked at: all, or as many as are allowed."""
    return np.arange(n) if n <= most else np.sort(random.permutation(n)[:most])


def _dense(rows: Any) -> NDArray[Any]:
    return np.asarray(rows.toarray() if issparse(rows) else rows)


def _as_seen(X: NDArray[Any], estimator: GeminiClustering | None) -> tuple[NDArray[Any], GeminiClustering | None]:
    """Rows as models see them, and the estimator for such rows: neighbours and references are those of what it sees."""
    if estimator is None:
        return standardised(X.reshape(len(X), -1)), None
    scaling = estimator._learning().scaling(X)
    if scaling is None:
        return X, estimator
    return scaled(X, scaling), clone(estimator).set_params(scaling="none", n_components=None, missing="error")


def _with_references(X: Rows, random: np.random.RandomState) -> dict[str, Rows]:
    """The data, and data like them without clusters."""
    flat, generator = X.reshape(len(X), -1), np.random.default_rng(_seed(random))
    return {DATA: X} | {name: draw(flat, generator).reshape(X.shape) for name, draw in REFERENCES.items()}


def _tasks(candidates: Sequence[int], n_subsamples: int, subsample: float, random: np.random.RandomState) -> list[Task]:
    tasks = [Task(DATA, max(candidates), _seed(random), 1.0, is_surplus=True) for _ in range(_SURPLUS_STARTS)]
    for n_clusters in candidates:
        tasks += [Task(DATA, n_clusters, _seed(random), subsample) for _ in range(n_subsamples)]
        for name in REFERENCES:
            fits = min(_REFERENCE_FITS, n_subsamples)
            tasks += [Task(name, n_clusters, _seed(random), subsample) for _ in range(fits)]
    return tasks


def _seed(random: np.random.RandomState) -> int:
    return int(random.randint(2**31 - 1))


def _figures(task: Task, made: dict[tuple[int, str], list[Fit]]) -> str:
    """What is known of the candidate that is under way, for the live line."""
    if task.is_surplus:
        return f"{task.n_clusters} clusters: what stays in use"
    fits = made[task.n_clusters, DATA]
    if len(fits) < 2:
        return f"{task.n_clusters} clusters"
    stability = pairwise_agreement(np.array([fit.labels for fit in fits[:4]])).mean()
    return f"{task.n_clusters} clusters: stability {stability:.3f}"


def _candidates(
    candidates: Sequence[int],
    data: dict[str, Rows],
    made: dict[tuple[int, str], list[Fit]],
    classes: NDArray[Any] | None,
    random: np.random.RandomState,
) -> list[Candidate]:
    """The figures of all candidates."""
    neighbours = {name: neighbours_of(rows.reshape(len(rows), -1), _NEIGHBOURS) for name, rows in data.items()}
    consensus = _consensus([made[n_clusters, DATA] for n_clusters in candidates], random)
    ranks = np.argsort(np.argsort(consensus)) + 1
    found = []
    for n_clusters, distance, rank in zip(candidates, consensus, ranks, strict=True):
        labels = {name: np.array([fit.labels for fit in made[n_clusters, name]]) for name in data}
        boundaries = {name: float(cut_shares(labels[name], neighbours[name]).mean()) for name in data}
        stabilities = {name: mean_and_error(pairwise_agreement(each), len(each)) for name, each in labels.items()}
        # The reference that is harder to tell from the data: the more stable one, and the one with fewer cuts.
        null = max(stabilities[name] for name in REFERENCES)
        null_boundary = min(boundaries[name] for name in REFERENCES)
        separation = separation_of(boundaries[DATA], null_boundary)
        own = made[n_clusters, DATA]
        found.append(
            Candidate(
                n_clusters,
                *stabilities[DATA],
                *null,
                boundaries[DATA],
                null_boundary,
                separation,
                score_of(stabilities[DATA][0], separation),
                float(distance),
                int(rank),
                float(np.mean([fit.in_use for fit in own])),
                float(np.mean([fit.objective for fit in own])),
                None if classes is None else _agreement_with(classes, labels[DATA]),
            )
        )
    return found


def _consensus(ensembles: Sequence[Sequence[Fit]], random: np.random.RandomState) -> NDArray[np.float64]:
    """Mean distance of each candidate's clusterings from the consensus of all."""
    labels = np.array([fit.labels for fits in ensembles for fit in fits])
    pairs = sampled_pairs(labels.shape[1], _PAIRS, np.random.default_rng(_seed(random)))
    distances = distances_from_consensus(together(labels, pairs))
    return np.asarray(distances.reshape(len(ensembles), -1).mean(axis=1))


def _agreement_with(classes: NDArray[Any], labels: NDArray[np.int64]) -> float | None:
    known = classes != "" if classes.dtype.kind == "U" else np.ones(len(classes), dtype=bool)
    if not known.any():
        return None
    return float(np.mean([adjusted_rand_index(classes[known], one[known]) for one in labels]))
