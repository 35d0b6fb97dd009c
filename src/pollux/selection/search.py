"""``select_n_clusters``: the number of clusters, from clusterings of subsamples that label all samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.utils import check_array, check_random_state
from torch import nn

from pollux.clustering import GeminiClustering
from pollux.data.samples import (
    as_several,
    draw_training_samples,
    recognise_samples,
    select_samples,
    table_to_encode,
    threads_for_samples,
)
from pollux.data.scaling import FittedScaling, FittedTransformer, prepared
from pollux.data.sources import InMemory
from pollux.data.survey import Choices, learn_encoding
from pollux.fitted import Fitted
from pollux.inspection.structure import (
    LOOKED_AT,
    Edges,
    Labels,
    compare_with_null,
    fill_steps,
    independent_columns,
    neighbour_edges,
    separation,
    unroll_circles,
)
from pollux.metrics import adjusted_rand_index, pairwise_agreement
from pollux.progress import Stage, show_progress
from pollux.recipes import RECIPES, DataKind
from pollux.selection.criteria import distances_from_consensus, mean_and_error, sample_pairs
from pollux.selection.result import Candidate, Selection, decide
from pollux.spec import MLP, Spec
from pollux.training import start, train_restarts
from pollux.training.problem import MemoryProblem, pose_problem
from pollux.training.session import session

_PAIRS = 20_000
_QUICK_ROWS, _QUICK_COLUMNS, _QUICK_CLUSTERS = 1_000, 64, 10
MOST_ROWS = 5_000
MAX_SUBSAMPLE = 1_000
"""Default size of a subsample: more samples take longer and hardly improve a small network."""
_EPOCHS, _LEARNING_RATE = 20, 0.01

Result = TypeVar("Result")


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
    """Select the number of clusters in X, or find that it has none to speak of.

    For each candidate, clusterings of subsamples label all samples. A number of clusters is good if they agree
    (stability) and if their boundaries run through gaps (separation): they cut far fewer pairs of neighbours than
    nearby level sets inside the clusters do. The product of both is the score.

    Parameters
    ----------
    X : array of shape (n, d) or (n, C, H, W), DataFrame or sparse matrix
        The samples. They are scaled as by the recipe for their kind, columns in different units being standardised,
        and steps between repeated values are smoothed; with an estimator of your own they are scaled as it says, all at
        once, and may hold NaN if it fills gaps.
    candidates : iterable of int
        Numbers of clusters to compare, from 2.
    estimator : GeminiClustering, optional
        The clustering, whose ``n_clusters`` and ``random_state`` are replaced. Its model must predict new samples. By
        default a small network with the objective ``"mmd_ovo"`` and the geometry ``"graph"``.
    y : array of shape (n,), optional
        Known classes, to score the clusterings by; they have no influence on the answer.
    n_subsamples : int
        Clusterings per candidate.
    subsample : float
        Share of the samples that each is fitted to, above 0 and at most 1; at most 1,000 with the default estimator.
    max_rows : int
        If there are more samples, this many are drawn at random.
    random_state : int, RandomState or None
        Seed; the same seed gives the same answer.
    n_jobs : int or None
        Number of processes; None: this one only, −1: one per core.
    verbose : bool
        Whether to show progress.

    Returns
    -------
    Selection
        ``n_clusters``, ``grade``, ``reason`` and the metrics of each candidate.

    Examples
    --------
    >>> import numpy as np
    >>> from pollux import select_n_clusters
    >>> X = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
    >>> select_n_clusters(X, range(2, 5), n_subsamples=4, random_state=0).n_clusters
    3
    """
    numbers, allow_nan = _check_settings(candidates, n_subsamples, subsample, max_rows), False
    if estimator is not None:
        _check_estimator(estimator)
        allow_nan = Spec.of(estimator).preprocessing.missing == "mean"
    if isinstance(X, str) or not (hasattr(X, "shape") or hasattr(X, "__len__")):
        raise ValueError("X must be samples in memory: for files, use the command pollux select.")
    if as_several(X) is not None:
        raise ValueError("Numbers of clusters are compared on one array of samples, and X has several: join them.")
    table = table_to_encode(X)
    if table is not None:
        X = learn_encoding(InMemory(table), Choices(missing="mean", scaling="auto"))[0].encode(table)
    samples = check_array(
        X,
        accept_sparse="csr",
        allow_nd=True,
        dtype=[np.float64, np.float32],
        ensure_min_samples=3,
        ensure_all_finite="allow-nan" if allow_nan or estimator is None else True,
    )
    if estimator is None and isinstance(samples, np.ndarray) and np.isnan(samples).any():
        # As in fit, gaps are filled with the mean of the feature.
        flat = SimpleImputer(keep_empty_features=True).fit_transform(samples.reshape(len(samples), -1))
        samples = flat.reshape(samples.shape)
    n, classes = samples.shape[0], None if y is None else np.asarray(y)
    if classes is not None and classes.ndim != 1:
        raise ValueError(f"y must be a list of classes, one for each row, but has the shape {classes.shape}.")
    if classes is not None and len(classes) != n:
        raise ValueError(f"y has {len(classes)} classes for {n} rows of X: give one for each.")
    random = check_random_state(random_state)
    drawn = np.arange(n) if n <= max_rows else np.sort(random.permutation(n)[:max_rows])
    seen, estimator = _apply_scaling(_dense(samples[drawn]), estimator, is_scaled=table is not None)
    with show_progress(verbose):
        selection = search(
            seen,
            numbers,
            estimator=estimator,
            classes=None if classes is None else classes[drawn],
            n_subsamples=n_subsamples,
            subsample=subsample,
            random=random,
            n_jobs=n_jobs,
        )
    return replace(selection, rows=int(n))


def select_quickly(X: NDArray[np.floating], random: np.random.RandomState) -> Selection:
    """A fast selection, in a few seconds, for samples (n, d) with n_clusters="auto".

    It uses a thousand samples and three subsamples, so its answer may differ from that of ``select_n_clusters``.
    """
    n = len(X)
    drawn = X if n <= _QUICK_ROWS else X[np.sort(random.permutation(n)[:_QUICK_ROWS])]
    if drawn.shape[1] > _QUICK_COLUMNS:
        # The cost of mixtures grows with the cube of the number of columns.
        components = min(_QUICK_COLUMNS, len(drawn) - 1)
        drawn = PCA(components, svd_solver="randomized", random_state=random).fit_transform(drawn)
    # At least five samples per cluster.
    most = max(2, min(_QUICK_CLUSTERS, len(drawn) // 5))
    how: dict[str, Any] = {"estimator": None, "classes": None, "subsample": 0.8, "surplus_restarts": 0}
    found = search(drawn, range(2, most + 1), n_subsamples=3, random=random, **how)
    return replace(found, rows=n)


def search(
    X: NDArray[np.floating],
    candidates: Sequence[int],
    *,
    estimator: GeminiClustering | None,
    classes: NDArray[Any] | None,
    n_subsamples: int,
    subsample: float,
    random: np.random.RandomState,
    n_jobs: int | None = None,
    surplus_restarts: int = 5,
) -> Selection:
    """The selection for validated and scaled samples (n, …), few enough to be used all."""
    most = MAX_SUBSAMPLE if estimator is None else len(X)
    size = min(round(subsample * len(X)), most)
    largest = max(candidates)
    if size < largest:
        raise ValueError(
            f"Subsamples have {size} of {len(X)} rows, too few for {largest} clusters: ask for fewer clusters or take "
            f"more rows."
        )
    flat = X.reshape(len(X), -1)
    straight = unroll_circles(flat)
    kept, has_circles = independent_columns(straight), straight is not flat
    if estimator is None:
        seed = _seed(random)
        X = fill_steps(X, seed).astype(np.float32)
        straight = fill_steps(straight, seed).astype(np.float32) if has_circles else X.reshape(len(X), -1)
    kind = recognise_samples(select_samples(X, None, "cpu"))._replace(n=size)
    edges = neighbour_edges(X.reshape(len(X), -1), largest)
    surplus = _specs_of(estimator or default_surplus_estimator(), [largest], kind)
    own = _specs_of(estimator or default_estimator(), candidates, kind)
    too_many = [Task(surplus, _seed(random), min(len(X), most)) for _ in range(surplus_restarts)]
    tasks = [Task(own, _seed(random), size) for _ in range(n_subsamples)]
    in_use: Counter[int] = Counter()
    ensembles: dict[int, list[Member]] = {n_clusters: [] for n_clusters in candidates}
    with Stage("clusterings", len(too_many) + len(tasks) * len(own)) as shown:
        for count in run_all(count_in_use, too_many, n_jobs, X):
            in_use[count] += 1
            shown.update(in_use.total(), detail=f"{largest} clusters: what stays in use")
        for done, members in enumerate(run_all(fit_members, tasks, n_jobs, X, edges), 1):
            for spec, member in zip(own, members, strict=True):
                ensembles[spec.n_clusters].append(member)
            if shown.is_shown:
                shown.update(len(too_many) + done * len(own), detail=_describe_progress(ensembles))
    with Stage("null models"):
        flat = straight[:, kept]
        some = np.random.default_rng(_seed(random)).permutation(len(X))[:LOOKED_AT]
        evidence = compare_with_null(flat[some] if len(X) > LOOKED_AT else flat, candidates)
    measured = [
        replace(each, gain=float(gain))
        for each, gain in zip(_measure(ensembles, classes, random), evidence.gains.mean(1), strict=True)
    ]
    answer = decide(measured, evidence.likely, evidence.best[1])
    return Selection(*answer, tuple(measured), dict(sorted(in_use.items())), largest, len(X), len(X))


def _check_settings(candidates: Iterable[int], n_subsamples: int, subsample: float, max_rows: int) -> list[int]:
    """The candidates, sorted and without duplicates; a ValueError for settings that cannot be compared."""

    def is_count(value: Any, least: int) -> bool:
        return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least

    try:
        given = list(candidates)
    except TypeError as error:
        raise ValueError(
            f"candidates are several numbers of clusters, as in range(2, 11); not {candidates!r}."
        ) from error
    for one in given:
        if not is_count(one, 2):
            raise ValueError(
                f"Each candidate is a whole number of at least 2, not {one!r}; that there is one cluster only is "
                "always considered."
            )
    if not given:
        raise ValueError("There are no candidates: name some numbers of clusters, as in range(2, 11).")
    if not is_count(n_subsamples, 3):
        raise ValueError(f"n_subsamples must be a whole number of at least 3, not {n_subsamples!r}.")
    if not (isinstance(subsample, int | float | np.floating) and 0 < subsample <= 1):
        raise ValueError(f"subsample must be a share of the rows, above 0 and at most 1, not {subsample!r}.")
    if not is_count(max_rows, 10):
        raise ValueError(f"max_rows must be a whole number of at least 10, not {max_rows!r}.")
    return sorted({int(one) for one in given})


def _check_estimator(estimator: GeminiClustering) -> None:
    """Raise a ValueError for an estimator that cannot predict new samples, or whose number of clusters is fixed."""
    if not isinstance(estimator, GeminiClustering):
        raise ValueError(f"estimator must be a GeminiClustering, not a {type(estimator).__name__}.")
    if isinstance(estimator.model, str) and estimator.model == "free":
        raise ValueError("A free table cannot predict new samples, by which subsamples are compared: use model='mlp'.")
    if isinstance(estimator.model, nn.Module):
        raise ValueError(
            "A module has outputs for one number of clusters only: pass a function (n_features, n_clusters) → module."
        )


def _seed(random: np.random.RandomState) -> int:
    return int(random.randint(2**31 - 1))


def _dense(samples: Any) -> NDArray[Any]:
    return np.asarray(samples.toarray() if issparse(samples) else samples)


def _apply_scaling(
    X: NDArray[Any], estimator: GeminiClustering | None, *, is_scaled: bool
) -> tuple[NDArray[Any], GeminiClustering | None]:
    """Scaled samples, and the estimator without its scaling, so that neighbours are those of scaled samples."""
    if estimator is None:
        samples = select_samples(X.reshape(len(X), -1), None, "cpu")
        # In the units of the recipe for this kind of data.
        units = RECIPES[recognise_samples(samples).recipe or "tables"]["preprocessing__scaling"]
        return samples.X if is_scaled else scale(samples.X, FittedScaling.fit(samples.X, units)), None
    scaling = Spec.of(estimator).preprocessing.fit(select_samples(X, None, "cpu"))
    if scaling is None:
        return X, estimator
    if isinstance(scaling, FittedTransformer):
        return _dense(scaling(X)), clone(estimator).set_params(preprocessing=None)
    return scale(X, scaling), clone(estimator).set_params(preprocessing=None)


def _describe_progress(ensembles: Mapping[int, Sequence[Member]]) -> str:
    """Text about the leading candidate so far."""
    best, described = -1.0, ""
    for n_clusters, members in ensembles.items():
        stability = 0.0
        if len(members) > 1:
            stability = float(pairwise_agreement(np.array([member.labels for member in members[:4]])).mean())
        apart = float(np.mean([member.separation for member in members]))
        if stability * apart > best:
            best = stability * apart
            described = f"{n_clusters} clusters lead: stability {stability:.3f}, separation {apart:.3f}"
    return described


def _measure(
    ensembles: dict[int, list[Member]], classes: NDArray[Any] | None, random: np.random.RandomState
) -> list[Candidate]:
    """The metrics of all candidates."""
    labels = {n_clusters: np.array([member.labels for member in members]) for n_clusters, members in ensembles.items()}
    everything = np.concatenate(list(labels.values()))
    pairs = sample_pairs(everything.shape[1], _PAIRS, np.random.default_rng(_seed(random)))
    distances = distances_from_consensus(everything, pairs).reshape(len(ensembles), -1).mean(axis=1)
    ranks = np.argsort(np.argsort(distances)) + 1
    if classes is not None:
        known = classes != "" if classes.dtype.kind == "U" else np.ones(len(classes), dtype=bool)
    candidates = []
    for (n_clusters, members), distance, rank in zip(ensembles.items(), distances, ranks, strict=True):
        stability, error = mean_and_error(pairwise_agreement(labels[n_clusters]), len(members))
        apart = float(np.mean([member.separation for member in members]))
        candidates.append(
            Candidate(
                n_clusters=n_clusters,
                stability=stability,
                stability_error=error,
                separation=apart,
                score=max(0.0, stability) * apart,
                consensus=float(distance),
                consensus_rank=int(rank),
                in_use=float(np.mean([member.in_use for member in members])),
                objective=float(np.mean([member.objective for member in members])),
                adjusted_rand_index=None
                if classes is None or not known.any()
                else float(np.mean([adjusted_rand_index(classes[known], one[known]) for one in labels[n_clusters]])),
            )
        )
    return candidates


class Task(NamedTuple):
    """Clusterings of one subsample: specs by descending number of clusters, the seed, and the number of samples."""

    specs: Sequence[Spec]
    seed: int
    n_samples: int


def _specs_of(estimator: GeminiClustering, candidates: Sequence[int], kind: DataKind) -> list[Spec]:
    """The specs for a kind of data, for each number of clusters, the largest first."""
    own = clone(estimator).set_params(verbose=False, training__checkpoint=None)
    return [Spec.of(own.set_params(n_clusters=number), kind) for number in sorted(candidates, reverse=True)]


@dataclass(frozen=True)
class Member:
    """A clustering of an ensemble: labels of all samples (n,), clusters in use, objective, and separation."""

    labels: Labels
    in_use: int
    objective: float
    separation: float


def fit_members(task: Task, X: NDArray[np.floating], edges: Edges) -> list[Member]:
    """Cluster a subsample of X, for each number of clusters, and label all of X."""
    members = []
    for fitted in _fit(task, X):
        log_p = fitted.log_probabilities(X).numpy()
        members.append(Member(log_p.argmax(axis=1), fitted.n_clusters, fitted.objective, separation(log_p, edges)))
    return members


def count_in_use(task: Task, X: NDArray[np.floating]) -> int:
    """Cluster a subsample of X and count the clusters that stay in use."""
    (fitted,) = _fit(task, X)
    return fitted.n_clusters


def _fit(task: Task, X: NDArray[np.floating]) -> Iterator[Fitted]:
    """Fit models to a subsample of X, one for each number of clusters.

    All use the same samples, so that neighbours are searched once, and the eigenvectors for the most clusters include
    those for fewer.
    """
    problem: MemoryProblem | None = None
    first = task.specs[0]
    index = np.sort(np.random.default_rng(task.seed).permutation(len(X))[: task.n_samples])
    samples = select_samples(X[index] if task.n_samples < len(X) else X, None, first.device)
    drawn = draw_training_samples(samples, first.max_samples, task.seed)
    for spec in task.specs:
        with session(task.seed, spec.device) as run:
            geometry = spec.resolve_geometry()
            with threads_for_samples(drawn):
                if problem is None:
                    posed = pose_problem(
                        spec, drawn, None, geometry, run.ranks, default_generator=run.default_generator
                    )
                    assert isinstance(posed, MemoryProblem)
                    problem = posed
                else:
                    problem = problem.with_geometry(geometry)
                best = train_restarts(start(spec, problem, run, spec.n_init), problem, spec, run, drawn)
        yield Fitted(
            module=best.module,
            order=torch.arange(spec.n_clusters),
            shape=drawn.shape,
            dtype=problem.dtype,
            device=problem.device,
            history=best.history,
            objective=best.evaluation.objective,
            n_clusters=int((best.evaluation.sizes > 0).sum()),
        )


def run_all(function: Callable[..., Result], tasks: Sequence[Task], n_jobs: int | None, *data: Any) -> Iterator[Result]:
    """Yield function(task, *data) of each task, in order, as results become available."""
    if n_jobs in (None, 1):
        yield from (function(task, *data) for task in tasks)
        return
    from sklearn.utils.parallel import Parallel, delayed

    # Processes, because a training seeds generators that threads would share.
    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    results: Any = parallel(delayed(function)(task, *data) for task in tasks)
    with closing(results):
        yield from results


def default_estimator() -> GeminiClustering:
    """The estimator for scaled samples: the neighbour graph fits clusters of any shape, k-means those of any size."""
    return GeminiClustering(
        model=MLP(hidden=(100,)),
        objective="mmd_ovo",
        geometry="graph",
        preprocessing=None,
        init="kmeans",
        n_init=1,
        max_epochs=_EPOCHS,
        batch_size=None,
        learning_rate=_LEARNING_RATE,
    )


def default_surplus_estimator() -> GeminiClustering:
    """The estimator for counting clusters in use: one-vs-all from random weights empties surplus clusters soonest."""
    return GeminiClustering(
        model="linear",
        objective="mmd_ova",
        preprocessing=None,
        n_init=1,
        max_epochs=10 * _EPOCHS,
        batch_size=None,
        learning_rate=5 * _LEARNING_RATE,
    )


def scale(X: NDArray[Any], scaling: FittedScaling) -> NDArray[Any]:
    """Scale samples X (n, …), in their own dtype."""
    samples = prepared(X, scaling, torch.float32 if X.dtype == np.float32 else torch.float64, "cpu")
    return samples[torch.arange(len(samples))].numpy()
