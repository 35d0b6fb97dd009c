"""The scikit-learn face of the library."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pollux.data.preprocessing import Preprocessing
from pollux.data.scaling import FittedScaling
from pollux.fitting import (
    all_or_nothing,
    fingerprint,
    for_new_rows,
    rows_kept,
    seeded,
    take_part,
    torch_dtype,
)
from pollux.geometry import Geometry, resolve
from pollux.io import model_files as persistence
from pollux.metrics import agreement
from pollux.new_rows import OnNewRows, SpeaksOfRows
from pollux.objectives import Divergence, Gemini
from pollux.objectives.penalties import Penalty
from pollux.parameters import check_parameters, check_streamable
from pollux.ranks import joined
from pollux.recipes import Presets
from pollux.streamed import (
    Source,
    StreamProblem,
    adapted,
    as_stream,
    is_streamed,
    refuse_streams,
    rows_in_order,
)
from pollux.training import (
    BestRestart,
    Callback,
    Checkpoints,
    RandomStreams,
    SingleModel,
    evaluate_finite,
)


class GeminiClustering(Presets, SpeaksOfRows, ClusterMixin, BaseEstimator):
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
    hidden, activation, norm : sequence of int, str or sequence of str, None or "batch"
        For ``model="mlp"``: widths of the hidden layers, their activation, or that of each, and what normalises them.
    objective : str, Gemini or Divergence
        What is maximised: ``"mmd_ova"``, ``"wasserstein_ovo"``, ``"mi"``, …
    geometry : str, callable or Geometry
        The kernel (MMD) or distance (Wasserstein) between samples; ``"auto"`` is the linear kernel or the
        Euclidean distance; ``"graph"`` and ``"mixed"`` are kernels of the neighbour graph of all samples. See
        :func:`pollux.geometry.resolve`.
    scaling : {"none", "auto", "standard", "global"}
        What model and geometry see of X: the values as they are; each feature standardised; all features centred and
        divided by one number; "auto": that where their ranges are alike, as those of pixels are, else standardised.
    n_components : int, optional
        Principal components of the scaled rows that are left to see.
    missing : {"error", "mean"}
        Whether X may hold NaN: the mean of the feature stands for it then.
    init : {"auto", "random", "kmeans", "graph", "kmeans++"}
        Where models start: at random (the default), or at the clusters of k-means in the features of the geometry or in
        the eigenvectors of a neighbour graph, which they first learn to predict. A free table: near the cells of
        k-means++ seeds (its default), or at such clusters.
    max_epochs : int or "auto"
        Passes over the data; "auto": those of about 500 steps, and at least 15.
    batch_size : int, "auto" or None
        Rows of a step; None: all. "auto": all up to 1,000, else 500.
    reshuffle_every : int or "auto"
        Epochs for which batches keep their rows: a Wasserstein objective then starts from its last solution. "auto" is
        10 for those, where their distances (20 · n · batch_size bytes) and trees are less than 1 GB, else 1.
    optimiser, learning_rate : str or callable, float
        ``"adam"``, ``"adamw"``, ``"sgd"``, ``"rmsprop"``, ``"lbfgs"``, or (parameters, lr=…) → optimiser.
    schedule : {"constant", "cosine"}
        How the learning rate goes: it stays, or falls to zero along a half cosine.
    n_init, trial_epochs : int, int or "auto" or None
        Restarts, trained together where the model allows; the highest objective is kept. After ``trial_epochs``, or a
        quarter of all ("auto"), the best two alone go on.
    penalties : mapping, optional
        Weights of penalties that join the loss, by name or function: ``{"vat": 1.0, "entropy": 0.1}``. Names:
        ``"vat"``, ``"local_vat"``, ``"entropy"``, ``"balance"``, ``"weight_decay"``.
    tol, patience : float, int or None
        Training ends after that many epochs without a relative rise of the objective by ``tol``; None: never.
    dtype : {"auto", "float32", "float64", "bfloat16"}
        Arithmetic; "auto" is that of X, and float32 for rows that are streamed. "bfloat16": matrix products of the
        network in that type (autocast), all else in float32.
    device : str
        Where the model is trained: "cpu", "cuda", "mps".
    random_state : int, RandomState or None
        Seed; the same seed gives the same bits on the same machine.
    compile : bool
        Whether torch compiles the network: it pays for large ones that are trained for long.
    checkpoint : path or Checkpoints, optional
        A folder for checkpoints, one a minute, or :class:`pollux.training.Checkpoints`. A fit that finds some there of
        the same training goes on from the last one.
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
    stability_ : float or None
        How alike the clusterings of the starts are: the mean adjusted Rand index of two of them, 0 for those of one
        cluster; None for a single start. With ``trial_epochs`` it is that after the trial.
    history_ : dict of lists
        ``objective``, ``clusters`` and ``entropy`` of each epoch.
    n_iter_ : int
        Epochs run.
    diverged_ : bool
        Whether training ended because its numbers were no longer finite; the last good weights were kept.
    module_ : nn.Module
        The trained module.
    geometry_ : Geometry or None
        The geometry, with what it takes from the data fixed.
    scaling_ : FittedScaling or None
        What is done to rows before the model sees them.
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

    preprocessing_: Preprocessing | None
    scaling_: FittedScaling | None
    _stream: Source | None
    _labels: NDArray[np.int64] | None

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        model: str | nn.Module | Callable[..., nn.Module] = "mlp",
        hidden: Sequence[int] = (100,),
        activation: str | Sequence[str] = "relu",
        norm: str | None = None,
        objective: str | Gemini | Divergence = "mmd_ova",
        geometry: str | Geometry | Callable[..., Tensor] = "auto",
        scaling: str = "none",
        n_components: int | None = None,
        missing: str = "error",
        init: str = "auto",
        max_epochs: int | str = 200,
        batch_size: int | str | None = "auto",
        reshuffle_every: int | str = "auto",
        optimiser: str | Callable[..., torch.optim.Optimizer] = "adam",
        learning_rate: float = 1e-2,
        schedule: str = "constant",
        n_init: int = 1,
        trial_epochs: int | str | None = None,
        penalties: Mapping[str | Penalty, float] | None = None,
        tol: float = 1e-4,
        patience: int | None = None,
        dtype: str = "auto",
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        compile: bool = False,
        checkpoint: str | Path | Checkpoints | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.model = model
        self.hidden = hidden
        self.activation = activation
        self.norm = norm
        self.objective = objective
        self.geometry = geometry
        self.scaling = scaling
        self.n_components = n_components
        self.missing = missing
        self.init = init
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.reshuffle_every = reshuffle_every
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.n_init = n_init
        self.trial_epochs = trial_epochs
        self.penalties = penalties
        self.tol = tol
        self.patience = patience
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.compile = compile
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, affinity: Any = None) -> Self:
        """Find the clusters of X.

        Where torch's process group is initialised (``torchrun``), all its processes train one model on batches that
        they share: each must call this with the same X.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or Tensor of shape (n, d) or (n, C, H, W); path, Stream, Dataset, DataLoader
            The samples. Those in files (Parquet, a folder of such files, .npy), in a large memory map, a
            :func:`pollux.open_stream`, or a Dataset or DataLoader of torch are read as they are needed, and never held.
        y : ignored
        sample_weight : array of shape (n,), optional
            Weights of the samples; one of weight 2 counts as two, one of weight 0 is left out. The objective, scaling
            and k-means know them; neighbour graphs, mixtures and the spacing of ``"local_vat"`` do not, and see all
            samples alike, but for those of weight 0.
        affinity : array of shape (n, n) or Features, optional
            The kernel or the distances of the samples, if they are known already.
        """
        check_parameters(self.get_params(deep=False))
        ranks = joined()
        with all_or_nothing(self), seeded(self.random_state, self.device, ranks) as (seed, random_streams):
            if is_streamed(X) and not (sample_weight is not None or affinity is not None or self._is_free()):
                return self._fit_stream(X, random_streams)
            refuse_streams(X)
            X = self._validate(X, reset=True, fewest=max(2, self.n_clusters))
            weight, kept = take_part(X, sample_weight, self.device)
            rows, problem = self._begin(X, affinity, weight, kept, ranks)
            self._stream = None
            told = functools.cache(lambda: fingerprint(X, sample_weight, self.geometry_))
            if ranks is not None:
                ranks.agree(told(), "have different rows")
            modules = self._modules(rows, seed, self.n_init)
            if not self._learning().is_taken_up(ranks):
                self._learning().start(modules, rows, problem, self.geometry_, seed)
            fitted = self._learning().fit(modules, problem, random_streams, told)
            self._keep(fitted)
            self._finish(X, kept, fitted.evaluation)
        return self

    def _fit_stream(self, X: Any, random_streams: RandomStreams) -> Self:
        """The same for samples that are never held."""
        stream = as_stream(X, "float64" if self.dtype == "float64" else "float32", max(2, self.n_clusters))
        check_streamable(self.get_params(deep=False))
        self._stream, self._shape = stream, tuple(stream.shape)
        self._dtype = torch_dtype(self.dtype, stream.dtype)
        self.preprocessing_, self.n_features_in_ = stream.preprocessing, self._shape[0]
        # Those of an earlier fit.
        self.__dict__.pop("feature_names_in_", None)
        if stream.feature_names and stream.preprocessing is None:
            self.feature_names_in_ = np.array(stream.feature_names, dtype=object)
        needs = self._objective().needs
        geometry = None if needs is None else resolve(self.geometry, needs)
        self.geometry_, self.scaling_ = adapted(geometry, stream, self._dtype, self.device), None
        if random_streams.ranks is not None:
            random_streams.ranks.agree(stream.form(), "have different rows")
        problem = StreamProblem(stream, self.geometry_, self._dtype, self.device, random_streams.ranks)
        modules = self._learning().modules(self._shape, self._dtype, self.n_init)
        fitted = self._learning().fit(modules, problem, random_streams, stream.fingerprint)
        self._keep(fitted)
        self._number(fitted.evaluation)
        self._labels = None
        return self

    def _keep(self, fitted: BestRestart) -> None:
        self.module_, self.history_, self.diverged_ = fitted.module, fitted.history, fitted.diverged
        self.n_iter_ = len(self.history_["objective"])
        # One cluster is found by every start.
        self.stability_ = None if self.n_clusters == 1 else agreement([each.numpy() for each in fitted.choices])
        self._resume: dict[str, Any] | None = None
        # Of an earlier free table.
        self.__dict__.pop("probabilities_", None)

    @property
    def labels_(self) -> NDArray[np.int64]:
        """Cluster of each row; of rows that were streamed, they are predicted when they are first asked for."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("labels_ are there after fit.")
        if self._labels is None:
            if self._stream is None:
                raise AttributeError("The labels of streamed rows are not kept in files: predict those that you need.")
            self._labels = np.concatenate([self._of_rows(rows).argmax(1) for rows in rows_in_order(self._stream)])
        return self._labels

    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """One more epoch, on these rows; the first call starts the model.

        Clusters are numbered anew, by their size among these rows, and ``labels_`` are theirs.
        """
        check_parameters(self.get_params(deep=False))
        with all_or_nothing(self), seeded(self.random_state, self.device) as (seed, random_streams):
            first = not self.__sklearn_is_fitted__()
            X = self._validate(X, reset=first, fewest=1)
            weight, kept = take_part(X, sample_weight, self.device)
            if first:
                rows, problem = self._begin(X, None, weight, kept)
                (self.module_,) = modules = self._modules(rows, seed, 1)
                self._learning().start(modules, rows, problem, self.geometry_, seed)
                self.history_, self._resume = {"objective": [], "clusters": [], "entropy": []}, None
                self.stability_ = None
            else:
                geometry = for_new_rows(self.geometry_, self._objective().needs)
                problem = self._problem(self._rows(rows_kept(X, kept)), geometry, weight, is_trained=True)
            # A copy is trained: a call that fails leaves the weights alone too.
            model = SingleModel(copy.deepcopy(self.module_), self.n_clusters, self._learning().autocast, self.compile)
            trained, self._resume = self._learning().one_epoch(model, problem, random_streams, self._resume)
            (evaluation,), was_spoilt = evaluate_finite(model, trained, problem, self.n_clusters, self._objective())
            (self.module_,) = model.modules
            self._stream, self.diverged_ = None, trained.diverged or was_spoilt
            more = trained.history.of_model(0)
            self.history_ = {name: values + more[name] for name, values in self.history_.items()}
            self.n_iter_ = len(self.history_["objective"])
            self._finish(X, kept, evaluation)
        return self

    def save(self, path: str | Path) -> None:
        """Write the model to one file, for :func:`pollux.load`; of a network of your own, its weights."""
        check_is_fitted(self)
        persistence.save(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_clusters_")


# Here rather than as a decorator, as it is for those that it inherits.
GeminiClustering.partial_fit = OnNewRows(GeminiClustering.partial_fit)  # type: ignore[method-assign, assignment]


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
