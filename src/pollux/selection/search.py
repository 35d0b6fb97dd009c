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

from pollux.clustering import GeminiClustering
from pollux.data.samples import select_samples
from pollux.metrics import adjusted_rand_index, pairwise_agreement
from pollux.selection.agreement import distances_from_consensus, mean_and_error, sampled_pairs, together
from pollux.selection.checking import as_classes, as_rows, check_candidates, check_estimator, check_settings
from pollux.selection.deciding import decide, score_of
from pollux.selection.defaults import (
    MOST_FITTED,
    default_estimator,
    scaled,
    surplus_estimator,
    without_steps,
)
from pollux.selection.ensembles import Fit, Rows, Task, fit_all
from pollux.selection.gaps import neighbour_edges
from pollux.selection.progress import progress_bar
from pollux.selection.selection import Candidate, Selection
from pollux.spec import Spec

_PAIRS, _SURPLUS_STARTS = 20_000, 5
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
    agree (stability) and where their boundaries run through gaps (separation): they cut far fewer pairs of neighbours
    than levels beside them do, inside the clusters. The product of both is the score.

    Parameters
    ----------
    X : array of shape (n, d) or (n, C, H, W), DataFrame or sparse matrix
        The samples. Their columns are standardised, and steps between values that repeat are filled, unless you name
        an estimator: they are then scaled as it says, all at once, and may hold NaN where it fills gaps.
    candidates : iterable of int
        Numbers of clusters to compare, from 2.
    estimator : GeminiClustering, optional
        The clustering, of which ``n_clusters`` and ``random_state`` are set. Its model must predict new rows. By
        default a small network with the objective ``"mmd_ovo"`` and the geometry ``"graph"``.
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
    """The same for rows (n, …) that are few enough, and scaled if there is an estimator."""
    most = MOST_FITTED if estimator is None else len(X)
    count = min(round(subsample * len(X)), most)
    if count < max(candidates):
        raise ValueError(
            f"Subsamples have {count} of {len(X)} rows, too few for {max(candidates)} clusters: ask for fewer clusters "
            f"or take more rows."
        )
    own, surplus = estimator or default_estimator(), estimator or surplus_estimator()
    if estimator is None:
        X = without_steps(X, _seed(random))
    edges = neighbour_edges(X.reshape(len(X), -1), max(candidates))
    too_many = [Task(surplus, max(candidates), _seed(random), min(len(X), most)) for _ in range(_SURPLUS_STARTS)]
    tasks = [Task(own, n_clusters, _seed(random), count) for n_clusters in candidates for _ in range(n_subsamples)]
    in_use: Counter[int] = Counter()
    made: dict[int, list[Fit]] = defaultdict(list)
    with progress_bar(len(too_many) + len(tasks), verbose) as report:
        for fit in fit_all(too_many, X, edges, n_jobs):
            in_use[fit.in_use] += 1
            report(f"{max(candidates)} clusters: what stays in use")
        for task, fit in zip(tasks, fit_all(tasks, X, edges, n_jobs), strict=True):
            made[task.n_clusters].append(fit)
            report(_live(task.n_clusters, made[task.n_clusters]))
    figures = _candidates(made, classes, random)
    return Selection(*decide(figures), tuple(figures), dict(sorted(in_use.items())), max(candidates), len(X), len(X))


def _kept(n: int, most: int, random: np.random.RandomState) -> NDArray[np.int64]:
    """The rows that are looked at: all, or as many as are allowed."""
    return np.arange(n) if n <= most else np.sort(random.permutation(n)[:most])


def _dense(rows: Any) -> NDArray[Any]:
    return np.asarray(rows.toarray() if issparse(rows) else rows)


def _as_seen(X: NDArray[Any], estimator: GeminiClustering | None) -> tuple[NDArray[Any], GeminiClustering | None]:
    """Rows as models see them, and the estimator for such rows: neighbours are those of what it sees."""
    if estimator is None:
        return X.reshape(len(X), -1), None
    scaling = Spec.of(estimator).preprocessing.fit(select_samples(X, None, "cpu"))
    if scaling is None:
        return X, estimator
    return scaled(X, scaling), clone(estimator).set_params(scaling="none", n_components=None, missing="error")


def _seed(random: np.random.RandomState) -> int:
    return int(random.randint(2**31 - 1))


def _live(n_clusters: int, fits: Sequence[Fit]) -> str:
    """What is known of the candidate that is under way, for the live line."""
    if len(fits) < 2:
        return f"{n_clusters} clusters"
    stability = pairwise_agreement(np.array([fit.labels for fit in fits[:4]])).mean()
    separation = np.mean([fit.separation for fit in fits])
    return f"{n_clusters} clusters: stability {stability:.3f}, separation {separation:.3f}"


def _candidates(
    made: dict[int, list[Fit]], classes: NDArray[Any] | None, random: np.random.RandomState
) -> list[Candidate]:
    """The figures of all candidates."""
    distances = _distances_from_consensus(list(made.values()), random)
    ranks = np.argsort(np.argsort(distances)) + 1
    return [
        _candidate(n_clusters, fits, float(distance), int(rank), classes)
        for (n_clusters, fits), distance, rank in zip(made.items(), distances, ranks, strict=True)
    ]


def _candidate(
    n_clusters: int, fits: Sequence[Fit], distance: float, rank: int, classes: NDArray[Any] | None
) -> Candidate:
    labels = np.array([fit.labels for fit in fits])
    stability, error = mean_and_error(pairwise_agreement(labels), len(fits))
    separation = float(np.mean([fit.separation for fit in fits]))
    return Candidate(
        n_clusters=n_clusters,
        stability=stability,
        stability_error=error,
        separation=separation,
        score=score_of(stability, separation),
        consensus=distance,
        consensus_rank=rank,
        in_use=float(np.mean([fit.in_use for fit in fits])),
        objective=float(np.mean([fit.objective for fit in fits])),
        adjusted_rand_index=None if classes is None else _agreement_with(classes, labels),
    )


def _distances_from_consensus(ensembles: Sequence[Sequence[Fit]], random: np.random.RandomState) -> NDArray[np.float64]:
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
