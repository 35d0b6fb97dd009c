"""The scikit-learn face of the library."""

from __future__ import annotations

import copy
import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from pollux import persistence
from pollux.fitting import (
    COLLAPSED,
    CollapseWarning,
    Problem,
    all_or_nothing,
    arithmetic,
    check_columns,
    check_predictions,
    for_new_rows,
    free_probabilities,
    number_clusters,
    precomputed,
    rows_kept,
    seeded,
    start_at_seeds,
    take_part,
    transport_problems,
)
from pollux.geometry import Geometry, resolve
from pollux.models import FreeTable, build
from pollux.new_rows import OnNewRows
from pollux.objectives import Divergence, Gemini
from pollux.objectives.penalties import Penalty
from pollux.parameters import check_parameters, resolve_callbacks, resolve_objective, resolve_penalties
from pollux.preprocessing import Preprocessing
from pollux.rows import Rows
from pollux.training import (
    Batches,
    Callback,
    Evaluation,
    NotFiniteError,
    ProgressBar,
    Recipe,
    SingleModel,
    Step,
    Trainable,
    Trained,
    evaluate,
    evaluate_sound,
    log_probabilities,
    make_optimiser,
    taped_step,
    train,
    train_restarts,
)

_PREDICTED_ROWS = 10_000


class GeminiClustering(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Clustering by any model p(y|x) that maximises a generalised mutual information.

    Clusters are numbered by decreasing size, and those that stay empty come last: labels are
    0 … ``n_clusters_`` − 1 without holes, and columns of probabilities agree with them.

    Parameters
    ----------
    n_clusters : int
        Most clusters to find; too many may be asked for, and the surplus empties.
    model : str, nn.Module or callable
        ``"linear"``, ``"mlp"``, ``"lenet5"``, ``"resnet18"`` or ``"free"`` (a table, no opinion on new rows); a module
        that returns logits (n, n_clusters), copied and trained from its weights; or a function (n_features or
        shape, n_clusters) → module.
    hidden, activation : sequence of int, str or sequence of str
        Widths and activation of the hidden layers, or the activation of each, for ``model="mlp"``.
    objective : str, Gemini or Divergence
        What is maximised: ``"mmd_ova"``, ``"wasserstein_ovo"``, ``"mi"``, …
    geometry : str, callable or Geometry
        The kernel (MMD) or distance (Wasserstein) between samples; ``"auto"`` is the linear kernel or the
        Euclidean distance. See :func:`pollux.geometry.resolve`.
    init : {"auto", "random", "kmeans++"}
        How a free table starts: at random, or near the cells of k-means++ seeds (the default).
    max_epochs : int
        Passes over the data.
    batch_size : int, "auto" or None
        Rows of a step; None: all. "auto": all up to 1,000, else 500.
    reshuffle_every : int or "auto"
        Epochs for which batches keep their rows: a Wasserstein objective then starts from its last solution. "auto" is
        10 for those, where their distances (20 · n · batch_size bytes) and trees are less than 1 GB, else 1.
    optimiser, learning_rate : str or callable, float
        ``"adam"``, ``"adamw"``, ``"sgd"``, ``"rmsprop"``, ``"lbfgs"``, or (parameters, lr=…) → optimiser.
    n_init : int
        Restarts, trained together where the model allows; the highest objective is kept.
    penalties : mapping, optional
        Weights of penalties that join the loss, by name or function: ``{"vat": 1.0, "entropy": 0.1}``.
    tol, patience : float, int or None
        Training ends after that many epochs without a relative rise of the objective by ``tol``; None: never.
    dtype : {"auto", "float32", "float64"}
        Arithmetic; "auto" is that of X.
    device : str
        Where the model is trained.
    random_state : int, RandomState or None
        Seed; the same seed gives the same bits on the same machine.
    verbose : bool
        Whether to show a progress bar.
    callbacks : sequence of callable
        Called with the figures of each epoch; one that returns True ends the training.

    Attributes
    ----------
    labels_ : array of shape (n,)
        Cluster of each row; −1 for rows of weight zero that a free table has not seen.
    n_clusters_ : int
        Clusters in use.
    objective_ : float
        The objective on the data, at the end.
    history_ : dict of lists
        ``objective``, ``clusters`` and ``entropy`` of each epoch.
    n_iter_ : int
        Epochs run.
    module_ : nn.Module
        The trained module.
    geometry_ : Geometry or None
        The geometry, with what it takes from the data fixed.
    probabilities_ : array of shape (n, n_clusters)
        Soft assignments of the rows, for a free table only.
    preprocessing_ : Preprocessing or None
        Of a model that ``pollux fit`` made: how it reads the columns of a data frame that it is given.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pollux import GeminiClustering
    >>> clustering = GeminiClustering(3, model="linear", objective="mmd_ovo", random_state=0).fit(load_iris().data)
    >>> clustering.n_clusters_
    3
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        model: str | nn.Module | Callable[..., nn.Module] = "mlp",
        hidden: Sequence[int] = (100,),
        activation: str | Sequence[str] = "relu",
        objective: str | Gemini | Divergence = "mmd_ova",
        geometry: str | Geometry | Callable[..., Tensor] = "auto",
        init: str = "auto",
        max_epochs: int = 200,
        batch_size: int | str | None = "auto",
        reshuffle_every: int | str = "auto",
        optimiser: str | Callable[..., torch.optim.Optimizer] = "adam",
        learning_rate: float = 1e-2,
        n_init: int = 1,
        penalties: Mapping[str | Penalty, float] | None = None,
        tol: float = 1e-4,
        patience: int | None = None,
        dtype: str = "auto",
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.model = model
        self.hidden = hidden
        self.activation = activation
        self.objective = objective
        self.geometry = geometry
        self.init = init
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.reshuffle_every = reshuffle_every
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.n_init = n_init
        self.penalties = penalties
        self.tol = tol
        self.patience = patience
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, affinity: Any = None) -> Self:
        """Find the clusters of X.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or Tensor of shape (n, d) or (n, C, H, W)
            The samples.
        y : ignored
        sample_weight : array of shape (n,), optional
            Weights of the samples; one of weight 2 counts as two, one of weight 0 is left out.
        affinity : array of shape (n, n) or Features, optional
            The kernel or the distances of the samples, if they are known already.
        """
        check_parameters(self.get_params(deep=False))
        with all_or_nothing(self), seeded(self.random_state, self.device) as (seed, generator):
            X = self._validate(X, reset=True, fewest=max(2, self.n_clusters))
            weight, kept = take_part(X, sample_weight, self.device)
            X_kept, problem = self._begin(X, affinity, weight, kept)
            problems = transport_problems(self._objective(), self.n_clusters, self.n_init)
            fitted = train_restarts(
                self._modules(X_kept, seed, self.n_init),
                self.n_clusters,
                problem.batches(self.batch_size, self.reshuffle_every, problems),
                self._recipe(),
                functools.partial(self._train, generator=generator, epochs=self.max_epochs),
                functools.partial(self._evaluate, problem=problem),
                generator,
            )
            self.module_, self.history_ = fitted.module, fitted.history
            self._resume: dict[str, Any] | None = None
            self._finish(X, kept, problem, fitted.evaluation)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """One more epoch, on these rows; the first call starts the model.

        Clusters are numbered anew, by their size among these rows, and ``labels_`` are theirs.
        """
        check_parameters(self.get_params(deep=False))
        with all_or_nothing(self), seeded(self.random_state, self.device) as (seed, generator):
            first = not self.__sklearn_is_fitted__()
            X = self._validate(X, reset=first, fewest=1)
            weight, kept = take_part(X, sample_weight, self.device)
            if first:
                X_kept, problem = self._begin(X, None, weight, kept)
                (self.module_,) = self._modules(X_kept, seed, 1)
                self.history_, self._resume = {"objective": [], "clusters": [], "entropy": []}, None
            else:
                geometry = for_new_rows(self.geometry_, self._objective().needs)
                problem = self._problem(rows_kept(X, kept), geometry, weight)
            # A copy is trained: a call that fails leaves the weights alone too.
            model = SingleModel(copy.deepcopy(self.module_), self.n_clusters)
            trained = self._one_epoch(model, problem, generator)
            (evaluation,) = evaluate_sound(model, trained, functools.partial(self._evaluate, problem=problem))
            (self.module_,) = model.modules
            more = trained.history.of_model(0)
            self.history_ = {name: values + more[name] for name, values in self.history_.items()}
            self._finish(X, kept, problem, evaluation)
        return self

    def _one_epoch(self, model: SingleModel, problem: Problem, generator: torch.Generator) -> Trained:
        """An epoch that takes up the optimiser and the random numbers where the last one left them."""
        optimiser = make_optimiser(self.optimiser, model.parameters(), self.learning_rate)
        if self._resume is not None:
            optimiser.load_state_dict(copy.deepcopy(self._resume["optimiser"]))
            generator.set_state(self._resume["generator"])
            torch.set_rng_state(self._resume["torch"])
        step = taped_step(model, self._objective(), optimiser, resolve_penalties(self.penalties), generator)
        trained = self._train(model, step, problem.batches(self.batch_size), generator=generator, epochs=1)
        self._resume = {
            "optimiser": optimiser.state_dict(),
            "generator": generator.get_state(),
            "torch": torch.get_rng_state(),
        }
        return trained

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The cluster of each row, (n,)."""
        return np.asarray(self._probabilities(X).argmax(1), dtype=np.int64)

    def predict_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        """p(y|x) of each row, (n, n_clusters); of sparse rows, ask :meth:`transform`."""
        # scikit-learn's checks take an estimator with probabilities of sparse rows for a classifier of 4 classes.
        if scipy.sparse.issparse(X):
            raise TypeError("predict_proba takes no sparse rows; transform gives the same probabilities for them.")
        return self._probabilities(X)

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Soft assignments as features: p(y|x) of each row, (n, n_clusters)."""
        return self._probabilities(X)

    def fit_transform(self, X: Any, y: Any = None, **fit_parameters: Any) -> NDArray[np.floating[Any]]:
        """Fit, and the soft assignments of the rows."""
        self.fit(X, y, **fit_parameters)
        return self.probabilities_ if self._is_free() else self._probabilities(X)

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None, affinity: Any = None) -> float:
        """The objective of the model on X; higher is better, for one objective and one number of clusters.

        It grows with ``n_clusters`` and has another scale for each objective: it compares starts, learning rates and
        models, not those. Exact up to 10,000 rows (1,000 where a matrix is needed), else a mean over batches.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False, fewest=1)
        weight, kept = take_part(X, sample_weight, self.device)
        needs = self._objective().needs
        geometry = precomputed(affinity, needs, kept) or for_new_rows(self.geometry_, needs)
        problem = self._problem(rows_kept(X, kept), geometry, weight)
        value = self._evaluate(self.module_, problem=problem).objective
        if not math.isfinite(value):
            raise NotFiniteError(value)
        return value

    def save(self, path: str | Path) -> None:
        """Write the model to one file, for :func:`pollux.load`; of a network of your own, its weights."""
        check_is_fitted(self)
        persistence.save(self, path)

    @property
    def _n_features_out(self) -> int:
        return self.n_clusters

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _probabilities(self, X: Any) -> NDArray[np.floating[Any]]:
        check_is_fitted(self)
        rows = self._rows(self._validate(X, reset=False, fewest=1))
        parts = [
            log_probabilities(self.module_, rows[index], self.n_clusters).cpu()[:, self._order].exp()
            for index in torch.split(torch.arange(len(rows)), _PREDICTED_ROWS)
        ]
        return check_predictions(torch.cat(parts).numpy())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "labels_")

    # The parts of fit, in its order.

    def _validate(self, X: Any, *, reset: bool, fewest: int) -> Any:
        if reset:
            self.preprocessing_: Preprocessing | None = None
        elif self.preprocessing_ is not None:
            X = self.preprocessing_.encode(X)
        check_columns(X)
        X = validate_data(self, X, reset=reset, accept_sparse="csr", allow_nd=True, ensure_min_samples=fewest)
        if not reset and tuple(X.shape[1:]) != self._shape:
            raise ValueError(f"The model was trained on samples of shape {self._shape}; these are {X.shape[1:]}.")
        return X

    def _begin(self, X: Any, affinity: Any, weight: Tensor | None, kept: NDArray[np.bool_]) -> tuple[Any, Problem]:
        """The rows that take part, as a problem; and what later calls need to know of them."""
        needs = self._objective().needs
        geometry: Geometry | None = precomputed(affinity, needs, kept)
        if geometry is None and needs is not None:
            geometry = resolve(self.geometry, needs)
        X = rows_kept(X, kept)
        self._shape = tuple(int(size) for size in X.shape[1:])
        self._dtype = arithmetic(X.dtype) if self.dtype == "auto" else getattr(torch, self.dtype)
        self.geometry_ = None if geometry is None else geometry.adapt(self._rows(X))
        return X, self._problem(X, self.geometry_, weight)

    def _problem(self, X: Any, geometry: Geometry | None, weight: Tensor | None) -> Problem:
        rows = self._rows(X)
        block = None if geometry is None else geometry.bind(rows)
        inputs = (lambda index: index.to(self.device)) if self._is_free() else rows.__getitem__
        return Problem(len(rows), inputs, block, weight)

    def _rows(self, X: Any) -> Rows:
        return Rows(X, self._dtype, self.device)

    def _objective(self) -> Gemini:
        return resolve_objective(self.objective)

    def _is_free(self) -> bool:
        return isinstance(self.model, str) and self.model == "free"

    def _model_options(self) -> dict[str, Any]:
        return {"hidden": self.hidden, "activation": self.activation} if self.model == "mlp" else {}

    def _modules(self, X: Any, seed: int, count: int) -> list[nn.Module]:
        shape = (int(X.shape[0]),) if self._is_free() else self._shape
        modules = build(self.model, shape, self.n_clusters, count, **self._model_options())
        random = np.random.RandomState(seed)
        for module in modules:
            if isinstance(module, FreeTable) and self.init != "random":
                start_at_seeds(module, X, random)
        return [module.to(self.device, self._dtype) for module in modules]

    def _recipe(self) -> Recipe:
        penalties = resolve_penalties(self.penalties)
        own = isinstance(self.model, str)
        return Recipe(self._objective(), self.optimiser, self.learning_rate, penalties, may_go_tapeless=own)

    def _train(
        self, model: Trainable, step: Step, batches: Batches, *, generator: torch.Generator, epochs: int
    ) -> Trained:
        return train(
            model,
            step,
            batches,
            max_epochs=epochs,
            tol=self.tol,
            patience=self.patience,
            callbacks=(*([ProgressBar()] if self.verbose else []), *resolve_callbacks(self.callbacks)),
            generator=generator,
        )

    def _evaluate(self, module: nn.Module, *, problem: Problem) -> Evaluation:
        n, inputs, block, weight = problem
        return evaluate(module, self.n_clusters, n, inputs, self._objective(), block, weight)

    def _finish(self, X: Any, kept: NDArray[np.bool_], problem: Problem, evaluation: Evaluation) -> None:
        """Number the clusters and label all rows, those of weight zero included."""
        self._order, self.n_clusters_, labels = number_clusters(evaluation, problem, self.n_clusters)
        self.objective_ = evaluation.objective
        if self.n_clusters_ == 1 < self.n_clusters:
            warnings.warn(COLLAPSED, CollapseWarning, stacklevel=3)
        self.n_iter_ = len(self.history_["objective"])
        self.labels_ = np.full(X.shape[0], -1, dtype=np.int64)
        self.labels_[kept] = labels
        if self._is_free():
            self._set_probabilities(kept)
        elif not kept.all():
            self.labels_[~kept] = self.predict(X[~kept])

    def _set_probabilities(self, kept: NDArray[np.bool_]) -> None:
        """Soft assignments of a free table; none of the rows it has not seen."""
        self.probabilities_ = free_probabilities(cast("FreeTable", self.module_), self._order, kept)


# Here rather than as decorators, because scikit-learn wraps transform when the class is made.
for _name in ("predict", "predict_proba", "transform", "score", "partial_fit"):
    setattr(GeminiClustering, _name, OnNewRows(getattr(GeminiClustering, _name)))


def load(
    path: str | Path, model: nn.Module | Callable[..., nn.Module] | None = None, device: str | None = None
) -> GeminiClustering:
    """The clustering that :meth:`GeminiClustering.save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : path
        The file, or the folder of a run of ``pollux fit``.
    model : nn.Module or callable, optional
        The network, where it was the user's own: the file holds only its weights.
    device : str, optional
        Where to put it, if not where it was trained.
    """
    return persistence.load(path, GeminiClustering, model=model, device=device)
