"""The scikit-learn estimator, GeminiClustering, and ``load`` of saved models."""

from __future__ import annotations

import copy
import importlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pollux.data.encoding import FEWEST_ROWS_OF_GAPS, Decisions, Encoding, UnseenWarning, say_empty, say_empty_columns
from pollux.data.rows import Several
from pollux.data.samples import (
    ArraySamples,
    Samples,
    StreamSamples,
    as_several,
    check_single,
    draw_samples,
    draw_training_samples,
    load_several,
    open_samples,
    recognise_samples,
    select_samples,
    threads_for_samples,
    validate_samples,
)
from pollux.data.scaling import prepared
from pollux.data.streams import Stream
from pollux.errors import InputError, option, warn
from pollux.fitted import Fitted, check_sizes, say_outside
from pollux.geometry import Geometry, Precomputed
from pollux.inspection.confidence import Confidence, align_labels, find_temperature, likeliest
from pollux.inspection.hierarchy import Hierarchy, build_hierarchy
from pollux.inspection.structure import Structure
from pollux.io import model_files, tensors
from pollux.objectives import Divergence, Gemini
from pollux.objectives.penalties import Penalty
from pollux.progress import Stage, show_progress, track
from pollux.ranks import is_first
from pollux.recipes import EMBEDDINGS, IMAGES, RIM, TABLES, UNKNOWN, DataKind, apply_recipe
from pollux.spec import (
    GROUPS,
    MLP,
    KernelModel,
    LeNet5,
    ResNet18,
    Scaling,
    SoftTree,
    Spec,
    Training,
    as_group,
    choose_parameters,
    geometry_of_new_samples,
    is_auto,
    replace_auto,
    resolve_objective,
)
from pollux.threads import DrawFrom
from pollux.training import Callback, NotFiniteError, start, train_one_epoch, train_restarts
from pollux.training.callbacks import CallbackSupportMixin, TaskCallbacks, with_callbacks
from pollux.training.hints import Hints, read_known
from pollux.training.problem import MemoryProblem, pose_problem, resolve_batch_size
from pollux.training.session import Session, session
from pollux.transport.assignment import assign, resolve_sizes
from pollux.trees import GeminiTree
from pollux.trees.tree import FORMAT as TREE_FORMAT


class CollapseWarning(UserWarning):
    """All samples were assigned to one cluster."""


class OutsideWarning(UserWarning):
    """Samples lie far outside the range of the training data, so their clusters are guesses."""


COLLAPSED = (
    "Everything fell into one cluster. Scale X (for instance with StandardScaler), try more restarts (n_init=10), a "
    "smaller learning_rate or another objective; or the data hold no clusters that this model can see."
)


CONSTANT = "Everything is in one cluster: each column of X has one value throughout, so that nothing tells rows apart."


def _predicts_new_samples(estimator: Any) -> bool:
    if isinstance(estimator.model, str) and estimator.model == "free":
        raise AttributeError(
            "A free table of probabilities cannot predict new samples: use labels_ and probabilities_, or a model such "
            "as 'linear'."
        )
    return True


class GeminiClustering(
    CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    """Clustering by any model p(y|x) that maximises a generalised mutual information.

    Clusters are numbered by decreasing size, and those that stay empty come last: labels are
    0 … ``n_clusters_`` − 1 without holes, and columns of probabilities agree with them. Known clusters
    (``fit(X, known=…)``) have the numbers that were given.

    ``GeminiClustering(K).fit(X)`` uses the complete recipe for the kind of data: :meth:`for_embeddings` for rows of at
    least 64 columns and length one, as an encoder gives; :meth:`for_images` for images (n, C, H, W) and for many wide
    rows of one kind, such as pixels; :meth:`for_tables` for all others. As soon as one of
    ``model``, ``objective``, ``geometry``, ``init`` and ``penalties`` is set, no recipe is used. Parameters that are
    not set then have a simple default, which the list below gives as "default without a recipe"; scaling, restarts,
    epochs and the batch size are still chosen by the data.

    Parameters of groups are reached by their names: ``set_params(training__patience=5, model__hidden=(50,))``, and in
    ``GridSearchCV`` too, also if a group is None or ``model`` is ``"mlp"``, ``"kernel"`` or
    ``"soft_tree"``. An ``affinity`` that is given to :meth:`fit` does not work there: a search selects the rows of a
    matrix, but not its columns.

    Parameters
    ----------
    n_clusters : int or "auto"
        Maximum number of clusters. One-vs-all objectives with a kernel or a distance often leave clusters empty that
        add little, others do so less, and recipes use nearly all. "auto": a quick form of
        :func:`pollux.select_n_clusters` finds the number, and ``selection_`` says why.
    model : str, MLP, KernelModel, SoftTree, LeNet5, ResNet18, nn.Module or callable
        ``"linear"``, ``"mlp"``, ``"kernel"``, ``"soft_tree"``, ``"lenet5"``, ``"resnet18"`` or ``"free"`` (a
        table of probabilities, which cannot predict new samples); :class:`MLP` with its hidden layers,
        :class:`KernelModel` with its landmarks, :class:`SoftTree` with its cuts, :class:`LeNet5` and
        :class:`ResNet18` in several forms, or these four with their parameters behind the name, as in
        ``"kernel:landmarks=200"``; a module that returns logits (n, n_clusters), copied and
        trained from its weights; or a function (n_features or shape, n_clusters) → module. Default without a recipe:
        ``"mlp"``.
    objective : str, Gemini or Divergence
        The objective to maximise: ``"mmd_ova"``, ``"wasserstein_ovo"``, ``"mi"``, … Default without a recipe:
        ``"mmd_ova"``.
    geometry : str, callable or Geometry
        The kernel (MMD) or distance (Wasserstein) between samples; ``"graph"`` and ``"mixed"`` are kernels of the
        neighbour graph of all samples. See :func:`pollux.geometry.resolve`. Default without a recipe: the linear kernel
        or the Euclidean distance.
    preprocessing : "auto", None, str, Scaling or transformer
        How X is scaled for model and geometry: not at all (None); by ``"standard"`` or ``"global"`` scaling, with
        missing values filled by means; by :class:`Scaling`, which also reduces dimensions; or by a transformer of
        scikit-learn, which is cloned and fitted. "auto": that of the recipe, else ``Scaling("auto", missing="mean")``;
        no scaling for networks of your own, ``"lenet5"`` and ``"resnet18"``, and for datasets and loaders of torch.
    init : {"auto", "random", "kmeans", "graph", "kmeans++"}
        Initial models: random, or pretrained to predict the clusters of k-means in the features of the geometry
        (``"kmeans"``) or in the eigenvectors of a neighbour graph (``"graph"``). A free table starts near the cells of
        k-means++ seeds, or at such clusters. Default without a recipe: ``"random"``, for a free table ``"kmeans++"``.
    n_init : int or "auto"
        Number of restarts, trained together if the model allows it; the one with the highest objective is kept. "auto":
        that of the recipe, else 5 for up to 10,000 samples with a linear model, a perceptron or a free table, else 1.
    max_epochs : int or "auto"
        Passes over the data; "auto": as many as about 200 steps take, and at least 15.
    batch_size : int, "auto" or None
        Samples per step; None: all. "auto": that of the recipe, else all up to 1,000, else 500.
    learning_rate : float or "auto"
        Learning rate of the optimiser. Default without a recipe: 0.01.
    penalties : mapping, None or "auto"
        Weights of penalties that are added to the loss, by name or function: ``{"vat": 1.0, "entropy": 0.1}``. Names:
        ``"vat"``, ``"local_vat"``, ``"entropy"``, ``"balance"``, ``"weight_decay"``, see
        :data:`pollux.objectives.PENALTIES`. Default without a recipe: None, no penalty.
    training : Training, optional
        How models are trained: optimiser, schedule, patience, precision, checkpoints, …
    device : str
        Where the model is trained: "cpu", "cuda", "mps".
    random_state : int, RandomState or None
        Seed; the same seed gives the same bits on the same machine.
    verbose : bool
        Whether to show progress and the estimated time left, on standard error.
    callbacks : sequence of callable
        Called with the metrics of each epoch; one that returns True ends the training. Callbacks of scikit-learn 1.9
        and later are set by ``set_callbacks``: the fit is a task, and each of its epochs.

    Attributes
    ----------
    fitted_ : Fitted
        All results of the fit, as one object; ``fitted_.chosen`` holds the values that replaced "auto".
    recipe_ : {"tables", "images", "embeddings"} or None
        The recipe that was used for this kind of data; None if any part of the method was set explicitly.
    labels_ : array of shape (n,)
        Cluster of each row; −1 for rows of weight zero that a free table has not seen.
    n_clusters_ : int
        Clusters in use.
    selection_ : Selection or None
        If ``n_clusters`` is "auto": the number that was found, whether it is clear, and the scores of the others.
    objective_ : float
        The objective on the data, at the end.
    stability_ : float or None
        Agreement of the restarts: the mean adjusted Rand index over pairs of their clusterings, 0 if one of them is a
        single cluster; None for a single restart. With ``trial_epochs`` it is that after the trial.
    structure_ : Structure or None
        Whether clusters are there, ``"clear"``, ``"likely"`` or ``"none"``, with the evidence from up to 1,000 samples;
        computed on first access. None if it cannot be computed, as for a free table.
    history_ : dict of lists
        ``objective``, ``clusters`` and ``entropy`` of each epoch.
    n_iter_ : int
        Epochs run.
    diverged_ : bool
        Whether training ended because the objective became NaN or infinite; the last good weights were kept.
    hint_violations_ : dict or None
        Number of violated hints of each kind (``"known"``, ``"must_link"``, ``"cannot_link"``), if any were given.
    module_ : nn.Module
        The trained module.
    geometry_ : Geometry or None
        The fitted geometry.
    scaling_ : FittedScaling or None
        The fitted preprocessing of rows.
    probabilities_ : array of shape (n, n_clusters)
        Soft assignments of the rows, for a free table only.
    encoding_ : Encoding or None
        How columns become numbers, for a data frame that holds more than numbers, or for a file.
    columns_ : Decisions
        The decision about each column of a data frame or a file: ``name``, ``kind``, whether it is ``used``, and the
        ``reason``. Printed, it is a table; ``pandas.DataFrame(clustering.columns_)`` is one too.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pollux import GeminiClustering
    >>> clustering = GeminiClustering(3, model="linear", objective="mmd_ovo", random_state=0).fit(load_iris().data)
    >>> clustering.n_clusters_
    3
    """

    # Whether this process fits alone, even if torch's process group is initialised.
    _is_alone = False

    def __init__(
        self,
        n_clusters: int | str = 10,
        *,
        model: str | MLP | KernelModel | SoftTree | LeNet5 | ResNet18 | nn.Module | Callable[..., nn.Module] = "auto",
        objective: str | Gemini | Divergence = "auto",
        geometry: str | Geometry | Callable[..., Tensor] = "auto",
        preprocessing: str | Scaling | BaseEstimator | None = "auto",
        init: str = "auto",
        n_init: int | str = "auto",
        max_epochs: int | str = "auto",
        batch_size: int | str | None = "auto",
        learning_rate: float | str = "auto",
        penalties: Mapping[str | Penalty, float] | str | None = "auto",
        training: Training | None = None,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.model = model
        self.objective = objective
        self.geometry = geometry
        self.preprocessing = preprocessing
        self.init = init
        self.n_init = n_init
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.penalties = penalties
        self.training = training
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    @classmethod
    def for_tables(cls, n_clusters: int = 10, **overrides: Any) -> Self:
        """A clustering of raw rows of a table: in any units, with gaps (NaN).

        Parameters
        ----------
        n_clusters : int
            Maximum number of clusters.
        **overrides
            Parameters that are to differ from the recipe's, such as ``n_init=1`` or ``training__dtype="float64"``.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from pollux import GeminiClustering
        >>> GeminiClustering.for_tables(3, random_state=0).fit(load_wine().data).n_clusters_
        3
        """
        return cls._of_recipe(n_clusters, TABLES, overrides)

    @classmethod
    def for_images(cls, n_clusters: int = 10, **overrides: Any) -> Self:
        """A clustering of raw images (n, C, H, W), or (n, d) of pixels.

        Parameters
        ----------
        n_clusters : int
            Maximum number of clusters.
        **overrides
            Parameters that are to differ from the recipe's.
        """
        return cls._of_recipe(n_clusters, IMAGES, overrides)

    @classmethod
    def for_embeddings(cls, n_clusters: int = 10, **overrides: Any) -> Self:
        """A clustering of embeddings (n, d): vectors of texts, photographs or other things by an encoder.

        Vectors of very different lengths are best brought to length one first (``sklearn.preprocessing.normalize``).

        Parameters
        ----------
        n_clusters : int
            Maximum number of clusters.
        **overrides
            Parameters that are to differ from the recipe's, such as ``training__max_samples=50_000``.

        Examples
        --------
        >>> import numpy as np
        >>> from pollux import GeminiClustering
        >>> random = np.random.default_rng(0)
        >>> X = np.repeat(np.eye(3, 64), 30, axis=0) + random.normal(scale=0.02, size=(90, 64))
        >>> GeminiClustering.for_embeddings(3, random_state=0).fit(X).n_clusters_
        3
        """
        return cls._of_recipe(n_clusters, EMBEDDINGS, overrides)

    @classmethod
    def _of_recipe(cls, n_clusters: int, recipe: Mapping[str, Any], overrides: Mapping[str, Any]) -> Self:
        """A clustering by a recipe; its kernel is dropped if an overriding objective does not use one."""
        kept = copy.deepcopy(dict(recipe))
        if resolve_objective(overrides.get("objective", kept["objective"])).needs != "kernel":
            kept.pop("geometry", None)
        return cls(n_clusters).set_params(**apply_recipe(kept, dict(overrides)))

    @classmethod
    def rim(cls, n_clusters: int = 10, **overrides: Any) -> Self:
        """Regularised information maximisation (RIM): mutual information, a linear model, and an ℓ2 penalty.

        Parameters
        ----------
        n_clusters : int
            Maximum number of clusters; the penalty leaves clusters empty that add little.
        **overrides
            Parameters that are to differ, such as ``penalties={"weight_decay": 0.1}``.

        References
        ----------
        A. Krause, P. Perona, R. Gomes, "Discriminative clustering by regularized information maximization", 2010.
        """
        return cls._of_recipe(n_clusters, RIM, overrides)

    @classmethod
    def kernel_rim(cls, n_clusters: int = 10, *, kernel: Any = "rbf", landmarks: int = 100, **overrides: Any) -> Self:
        """RIM of a :class:`KernelModel` of the standardised columns.

        Parameters
        ----------
        n_clusters : int
            Maximum number of clusters.
        kernel, landmarks
            Those of the :class:`KernelModel`.
        **overrides
            Parameters that are to differ, such as ``model__gamma=0.1``.
        """
        own = {"model": KernelModel(landmarks, kernel), "preprocessing": Scaling("standard", missing="mean")}
        return cls._of_recipe(n_clusters, {**RIM, **own}, overrides)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; ``deep``: those of groups too, also of those that are None."""
        parameters: dict[str, Any] = super().get_params(deep=deep)
        if deep:
            for name in GROUPS:
                parameters |= _params_of_group(name, parameters[name])
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name, those of groups as ``training__patience``."""
        for name in GROUPS:
            nested = {key: parameters[key] for key in parameters if key.startswith(f"{name}__")}
            own = _params_of_group(name, parameters[name]) if name in parameters else {}
            if all(key in own and _is_same(own[key], value) for key, value in nested.items()):
                # As get_params gives them: a name or None is kept, because "auto" stands for a recipe too.
                parameters = {key: value for key, value in parameters.items() if key not in nested}
            elif nested:
                # Replace None or a name by the group that it stands for, so that its parameters can be set.
                parameters[name] = group = as_group(name, parameters.get(name, getattr(self, name)))
                if not hasattr(group, "set_params"):
                    key = next(iter(nested)).removeprefix(f"{name}__")
                    raise ValueError(f"{name}={group!r} has no parameter {key!r}: set {name} too, to what has it.")
        geometry = parameters.get("geometry", self.geometry)
        if isinstance(geometry, str) and (alone := [key for key in parameters if key.startswith("geometry__")]):
            key = alone[0].removeprefix("geometry__")
            raise ValueError(
                f"geometry={geometry!r} has no parameter {key!r} that can be set alone: write parameters behind the "
                "name, as in geometry='rbf:gamma=0.5'."
            )
        super().set_params(**parameters)
        return self

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        affinity: Any = None,
        known: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
        hint_weight: float = 10.0,
        min_size: float | None = None,
        max_size: float | None = None,
    ) -> Self:
        """Find the clusters of X.

        If torch's process group is initialised (``torchrun``), all its processes train one model on batches that they
        share: each must call this with the same X.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or Tensor of shape (n, d) or (n, C, H, W); path, Stream, Dataset, DataLoader
            The samples. A data frame (pandas, polars, Arrow) may hold text, booleans, categories and dates, which are
            read as ``pollux fit`` reads those of a file: ``columns_`` says how. Samples in files (Parquet, Feather,
            CSV, folders of these, .npy), in a large memory map, a :func:`pollux.open_stream`, or a Dataset or
            DataLoader of torch are read on demand, and are never all in memory.
        y : ignored
        sample_weight : array of shape (n,), optional
            Weights of the samples; one of weight 2 counts as two, one of weight 0 is left out. The objective, scaling,
            k-means and mixtures use them; neighbour graphs and the spacing of ``"local_vat"`` treat all distinct
            samples alike, except those of weight 0.
        affinity : array of shape (n, n) or Features, optional
            The kernel or the distances between the samples, if they were computed before.
        known : array of shape (n,), optional
            The number of the cluster of each sample, −1 or NaN if it is not known. Clusters keep these numbers.
        must_link, cannot_link : arrays of shapes (a, 2), (b, 2), optional
            Pairs of row numbers, from 0, that belong to one cluster, or do not. ``hint_violations_`` says how many
            hints do not hold in the end. Hints on rows of weight 0 are ignored.
        hint_weight : float
            Weight of the hints relative to the objective.
        min_size, max_size : int or float, optional
            Minimum and maximum number of rows in each of the ``n_clusters``, or their share of all. ``labels_`` are
            then the most likely ones with such sizes; probabilities do not change. Rows of weight 0 do not count.
        """
        tasks = TaskCallbacks.of(self)
        # Two clusters until a selection finds the number, if it is "auto".
        spec = Spec.of(self, chosen={"n_clusters": 2})
        with (
            session(self.random_state, spec.device, distributed=not self._is_alone) as run,
            show_progress(self.verbose and is_first(run.ranks)),
        ):
            with DrawFrom(run.default_generator), Stage("reading samples"):
                samples = self._open(X, spec, sample_weight, affinity=affinity)
            spec, selection = _decide(spec, samples, run, known, affinity)
            given = spec.take_affinity(affinity, samples)
            if run.ranks is not None:
                run.ranks.agree(samples.summary(None if given is None else given.values), "have different rows")
            check_sizes(samples, spec.n_clusters, min_size, max_size)
            hints = Hints.of(samples, spec.n_clusters, must_link, cannot_link, known, hint_weight)
            # Rows and columns of a given affinity are indexed by sample, so no samples are drawn.
            most = spec.max_samples if given is None else None
            chosen = draw_training_samples(samples, most, spec.seed_of_samples(run.seed))
            with threads_for_samples(chosen):
                with Stage("scaling"):
                    scaling = spec.preprocessing.fit(chosen, run.ranks)
                geometry = spec.resolve_geometry(given)
                problem = pose_problem(
                    spec, chosen, scaling, geometry, run.ranks, default_generator=run.default_generator
                )
                spec, joined = (spec, None) if hints is None else hints.join(spec, samples, problem, scaling)
                modules = start(spec, problem, run, spec.n_init, hints=joined)
                best = train_restarts(modules, problem, replace(spec, callbacks=spec.callbacks + tasks), run, samples)
            with threads_for_samples(samples):
                fitted = Fitted.of(spec, samples, scaling, problem, best, joined)
            fitted = fitted.with_sizes(samples, min_size, max_size, joined)
        self._take(fitted)
        self.selection_ = selection
        for each in tasks:
            each.end(X, y)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Train for one more epoch, on these samples; the first call initialises the model.

        Clusters are numbered anew, by their size among these samples, and ``labels_`` are theirs.
        """
        if is_auto(self.n_clusters) and not self.__sklearn_is_fitted__():
            raise ValueError("A few samples do not show how many clusters there are: say n_clusters, or fit first.")
        # Small batches of samples are too few to recognise the kind of data, so no recipe is used.
        spec = Spec.of(self, DataKind(None), self.fitted_.chosen if self.__sklearn_is_fitted__() else None)
        with session(self.random_state, spec.device, distributed=False) as run, show_progress(self.verbose):
            if not self.__sklearn_is_fitted__():
                samples = self._open(X, spec, sample_weight, fewest=1, in_memory=True)
                spec = spec.with_names_of(samples)
                scaling = spec.preprocessing.fit(samples)
                problem = pose_problem(spec, samples, scaling, spec.resolve_geometry())
                (module,), earlier = start(spec, problem, run, 1, resumes=False), None
            else:
                earlier = self.fitted_
                samples, problem = self._pose(self._validate(X), spec, sample_weight, is_trained=True)
                scaling, module = earlier.scaling, earlier.module
            prototypes = None if earlier is None else earlier.given_prototypes
            with threads_for_samples(samples):
                best, state = train_one_epoch(
                    module, problem, spec, run, None if earlier is None else earlier.optimiser_state
                )
                fitted = Fitted.of(spec, samples, scaling, problem, best, prototypes=prototypes)
            fitted = replace(fitted, optimiser_state=state)
            if earlier is not None:
                fitted = fitted.after(earlier)
        return self._take(fitted)

    def _take(self, fitted: Fitted) -> Self:
        """Set all fitted attributes; nothing else writes them."""
        if fitted.n_clusters == 1 < len(fitted.order):
            ends = fitted.given_range
            is_constant = ends is not None and bool((ends[0] == ends[1]).all())
            warn(CONSTANT if is_constant else COLLAPSED, CollapseWarning)
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        self.fitted_ = fitted
        self.module_, self.geometry_, self.scaling_ = fitted.module, fitted.geometry, fitted.scaling
        self.recipe_, self.history_, self.n_iter_ = fitted.recipe, fitted.history, len(fitted.history["objective"])
        self.n_clusters_, self.objective_ = fitted.n_clusters, fitted.objective
        self.stability_, self.diverged_, self.selection_ = fitted.stability, fitted.diverged, None
        self.hint_violations_ = fitted.hint_violations
        if isinstance(fitted.shape[0], int):
            # With several inputs there is no single number of features.
            self.n_features_in_ = len(fitted.feature_names) or fitted.shape[0]
        if fitted.feature_names:
            self.feature_names_in_ = np.array(fitted.feature_names, dtype=object)
        if fitted.is_free:
            self.probabilities_ = fitted.free_probabilities()
        return self

    def _after_fit(self, name: str) -> Fitted:
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"{name} is there after fit.")
        return self.fitted_

    @property
    def labels_(self) -> NDArray[np.int64]:
        """Cluster of each sample; those of streamed samples are predicted on first access."""
        return self._after_fit("labels_").labels

    @property
    def structure_(self) -> Structure | None:
        """Whether clusters are there, with the evidence; computed on first access."""
        return self._after_fit("structure_").structure

    @property
    def encoding_(self) -> Encoding | None:
        """How columns become numbers."""
        return self._after_fit("encoding_").encoding

    @property
    def columns_(self) -> Decisions:
        """The decision about each column."""
        return self._after_fit("columns_").columns

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The cluster of each sample, (n,)."""
        return np.asarray(self._probabilities(X).argmax(1), dtype=np.int64)

    def assign(self, X: Any, *, min_size: float | None = None, max_size: float | None = None) -> NDArray[np.int64]:
        """The most likely clusters (n,) of samples, given bounds on the sizes of clusters.

        Sizes are numbers of rows, or shares of them; the sum of log p(y|x) is maximised exactly.
        """
        check_is_fitted(self)
        X = self._validate(X)
        sizes = resolve_sizes(min_size, max_size, X.shape[0], len(self.fitted_.order))
        return assign(self.fitted_.log_probabilities(X).numpy(), *sizes)

    def predict_proba(self, X: Any) -> NDArray[np.floating[Any]]:
        """p(y|x) of each sample, (n, n_clusters); for sparse samples, use :meth:`transform`."""
        # scikit-learn's checks treat an estimator with predict_proba of sparse samples as a classifier of 4 classes.
        if scipy.sparse.issparse(X):
            raise TypeError("predict_proba takes no sparse samples; transform gives the same probabilities for them.")
        return self._probabilities(X)

    def transform(self, X: Any) -> NDArray[np.floating[Any]]:
        """Soft assignments as features: p(y|x) of each sample, (n, n_clusters)."""
        return self._probabilities(X)

    def fit_transform(self, X: Any, y: Any = None, **fit_parameters: Any) -> NDArray[np.floating[Any]]:
        """Fit, and return the soft assignments of the samples."""
        self.fit(X, y, **fit_parameters)
        return self.probabilities_ if self.fitted_.is_free else self._probabilities(X)

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None, affinity: Any = None) -> float:
        """The objective of the model on X; higher is better, for one objective and one number of clusters.

        It grows with ``n_clusters`` and its scale depends on the objective: use it to compare restarts, learning rates
        and models. Exact up to 10,000 samples (1,000 if a matrix is needed), else a mean over batches.
        """
        check_is_fitted(self)
        spec = Spec.of(self, DataKind(None), self.fitted_.chosen)
        samples, problem = self._pose(self._validate(X), spec, sample_weight, affinity)
        with threads_for_samples(samples):
            value = problem.evaluate(self.module_, spec.n_clusters, spec.objective).objective
        if not math.isfinite(value):
            raise NotFiniteError(value)
        return value

    def hierarchy(self, X: Any, *, max_samples: int = 2_000) -> Hierarchy:
        """Group clusters into larger ones: a tree by the cost of each merge in the objective on samples such as X.

        Parameters
        ----------
        X : array (n, …)
            Samples such as those of the fit; ``cut`` returns their labels.
        max_samples : int
            Maximum number of samples for computing the tree; a transport objective needs fewer, and takes longer.
        """
        check_is_fitted(self)
        spec = Spec.of(self, DataKind(None), self.fitted_.chosen)
        X = self._validate(X)
        some = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:max_samples])
        samples, problem = self._pose(X[some], spec, None)
        log_p = self.fitted_.log_probabilities(X[some]).to(problem.device)
        labels = self.fitted_.probabilities(X).argmax(1)
        with threads_for_samples(samples):
            affinity = None if problem.block is None else problem.block(torch.arange(problem.n))
            return build_hierarchy(log_p, affinity, spec.objective, labels)

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """How well each sample fits in with those of the fit, (n,): −1 is typical, and lower is more abnormal.

        Minus the mean distance to the five nearest of up to 128 prototypes, relative to the typical distance of
        training samples. Prototypes are means of small groups of training samples, as the network sees them.
        """
        check_is_fitted(self)
        return self.fitted_.scores(self._validate(X))

    def find_outliers(self, X: Any, share: float = 0.02) -> NDArray[np.bool_]:
        """Mask (n,) of the samples that fit in less well than this share of the samples of the fit does."""
        check_is_fitted(self)
        return self.fitted_.find_outliers(self._validate(X), share)

    def assess(
        self,
        X: Any,
        *,
        n_fits: int = 20,
        max_samples: int = 5_000,
        sample_weight: Any = None,
        known: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
        hint_weight: float = 10.0,
        temperature: bool = False,
    ) -> Self:
        """Find how often other trainings agree with this one: ``confidence_`` (n,), and :meth:`predict_confidence`.

        The same method is fitted to other samples, 80 % of X each, and their clusters are matched with these. The
        confidence is that of the most likely cluster, from which ``labels_`` may differ if sizes were given. Each of
        several processes assesses separately.

        Parameters
        ----------
        X : array (n, …)
            The samples of the fit, or others such as these.
        n_fits : int
            Number of trainings.
        max_samples : int
            Maximum number of samples for each of them.
        sample_weight, known, must_link, cannot_link, hint_weight
            The arguments of the fit, for the other trainings to use the same method. Hints on samples that one of them
            does not learn from are ignored by it.
        temperature : bool
            Whether to calibrate probabilities to softmax(log p / T), with the T at which the highest probability of a
            sample is on average its confidence. Clusters do not change.
        """
        check_is_fitted(self)
        X, K = self._validate(X), len(self.fitted_.order)
        if isinstance(X, Several):
            raise InputError("To assess takes samples of a single input; these have several.")
        if isinstance(self.fitted_.geometry, Precomputed):
            raise InputError(
                "The fit was given the affinity of its samples, which is not known of others to assess it."
            )
        hints = {"known": known, "must_link": must_link, "cannot_link": cannot_link}
        has_hints = any(given is not None for given in hints.values())
        if self.fitted_.hint_violations is not None and not has_hints:
            raise InputError(f"The fit was given hints: give those of X here too ({', '.join(map(option, hints))}).")
        rows = np.flatnonzero(select_samples(X, sample_weight, "cpu").selected)
        n, fewest = len(rows), max(K, 2)
        for name, value, least in (("n_fits", n_fits, 2), ("max_samples", max_samples, fewest)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise InputError(f"{name} is a whole number from {least} on, not {value!r}.")
        if n <= fewest:
            raise InputError(f"To assess takes more samples than clusters: {n} are too few.")
        log_p = self.fitted_.log_probabilities(X).numpy()
        first_two, agreement = likeliest(log_p), np.zeros((X.shape[0], 2))
        random = check_random_state(self.random_state)
        # Keep the values that replaced "auto", and do not scale again what is scaled already, such as an encoded table.
        own = replace_auto(self.get_params(deep=False), self.fitted_.chosen)
        own |= {"n_clusters": K, "verbose": False, "callbacks": ()}
        own |= {"preprocessing": None} if self.fitted_.scaling is None else {}
        other = clone(type(self)(**own)).set_params(training__checkpoint=None)
        other._is_alone = True
        for _ in track(range(n_fits), "assessing, fit"):
            some = np.sort(random.permutation(rows)[: min(max(fewest, round(0.8 * n)), max_samples)])
            other.set_params(random_state=int(random.randint(2**31 - 1)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CollapseWarning)
                if has_hints or sample_weight is not None:
                    # Hints refer to the row numbers of X, so rows are left out by a weight of 0.
                    weight = np.zeros(X.shape[0])
                    weight[some] = 1 if sample_weight is None else np.asarray(sample_weight)[some]
                    other.fit(X, sample_weight=weight, **hints, hint_weight=hint_weight)
                else:
                    other.fit(X[some])
            found = other.fitted_.log_probabilities(X).numpy().argmax(1)
            agreement += (align_labels(first_two[:, 0], found, K)[:, None] == first_two) / n_fits
        confidence = Confidence.learn(log_p, agreement)
        if temperature:
            found_temperature = find_temperature(log_p, float(agreement[:, 0].mean()))
            confidence = replace(confidence, temperature=torch.tensor(found_temperature, dtype=torch.float64))
        self.fitted_ = replace(self.fitted_, confidence=confidence, given_structure=self.fitted_.known_structure)
        self.confidence_ = confidence.predict(log_p)
        return self

    def predict_confidence(self, X: Any, labels: Any = None) -> NDArray[np.float64]:
        """The share (n,) of other trainings that would give each sample the same cluster, after :meth:`assess`.

        The cluster is the most likely one, or that of ``labels`` (n,), which differ if sizes were given.
        """
        check_is_fitted(self)
        if self.fitted_.confidence is None:
            raise ValueError("How sure the clusters are is not known yet: call assess(X) with the samples of the fit.")
        log_p = self.fitted_.log_probabilities(self._validate(X)).numpy()
        if labels is not None:
            labels = np.asarray(labels)
            if labels.shape != log_p.shape[:1] or not np.isin(labels, np.arange(log_p.shape[1])).all():
                raise InputError(f"labels are the clusters of the {len(log_p)} samples, 0 to {log_p.shape[1] - 1}.")
        return self.fitted_.confidence.predict(log_p, labels)

    def save(self, path: str | Path) -> None:
        """Write the model to one file, for :func:`pollux.load`; for a custom network, only its weights."""
        check_is_fitted(self)
        found = copy.copy(self).set_params(n_clusters=len(self.fitted_.order))
        model_files.save(found if is_auto(self.n_clusters) else self, path)

    def _open(
        self,
        X: Any,
        spec: Spec,
        sample_weight: Any,
        *,
        fewest: int | None = None,
        in_memory: bool = False,
        affinity: Any = None,
    ) -> Samples:
        """The samples of a fit; those of a free table and of a given affinity are read into memory."""
        fewest, has_affinity = fewest or max(2, spec.n_clusters), affinity is not None
        several = as_several(X, fewest)
        if several is not None:
            spec.check_several_inputs(has_affinity)
            return select_samples(several, sample_weight, spec.device)
        in_memory = in_memory or has_affinity or spec.is_free
        is_file = isinstance(X, str | Path) and Path(X).exists()
        if is_file and not in_memory and sample_weight is None and spec.recipe is None:
            # Before any row is read, because surveying a large file takes long.
            spec.check_streamable(is_scaled=True)
        size = partial(resolve_batch_size, spec.batch_size)
        samples = open_samples(
            load_several(X, spec.input_names, size),
            # Validation writes to a copy, so that a fit that fails leaves the estimator unchanged.
            copy.copy(self),
            fewest=fewest,
            missing=spec.preprocessing.missing,
            dtype=spec.training.dtype,
            device=spec.device,
            sample_weight=sample_weight,
            in_memory=in_memory,
            scaling=getattr(spec.preprocessing, "scaling", "none"),
            integers=not isinstance(spec.model, str) and not spec.preprocessing.describe_changes(),
            names=spec.input_names,
        )
        if samples.has_several_inputs:
            spec.check_several_inputs(has_affinity)
        return samples

    def _pose(
        self, X: Any, spec: Spec, sample_weight: Any, affinity: Any = None, *, is_trained: bool = False
    ) -> tuple[ArraySamples, MemoryProblem]:
        """Validated samples as a problem on which the trained model can be evaluated."""
        fitted = self.fitted_
        samples = select_samples(X, sample_weight, spec.device)
        geometry: Geometry | None
        if affinity is not None:
            geometry = Precomputed.of_selected(affinity, spec.objective.needs, samples.selected)
        else:
            geometry = geometry_of_new_samples(fitted.geometry, spec.objective.needs)
        problem = pose_problem(
            spec,
            samples,
            fitted.scaling,
            geometry,
            dtype=fitted.dtype,
            adapt=False,
            is_trained=is_trained,
            takes_integers=fitted.takes_integers,
        )
        assert isinstance(problem, MemoryProblem)
        return samples, problem

    def _validate(self, X: Any) -> Any:
        """Validate samples such as those of the fit; returns an array or a CSR matrix."""
        fitted = self.fitted_
        if not any(isinstance(size, tuple) for size in fitted.shape):
            check_single(X)
        several = as_several(X)
        if several is None:
            shape = tuple(getattr(X, "shape", ()))
            if len(shape) > 1 and max(len(shape) - 1, len(fitted.shape)) > 1:
                # First, because the validation takes channels of images for features.
                self._check_shape(shape)
            X = validate_samples(X, self, reset=False, missing=fitted.missing, encoding=fitted.encoding)
        else:
            X = several
        if fitted.takes_integers and X.dtype.kind not in "iu" and not (np.round(X) == X).all():
            raise ValueError("The model was trained on whole numbers, such as tokens; these have fractions.")
        self._check_shape(tuple(X.shape))
        return X

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        trained = self.fitted_.shape
        if shape[1:] != trained:
            alone = " Pass a single one as X[None]." if shape == trained else ""
            raise ValueError(f"The model was trained on samples of shape {trained}; these are {shape[1:]}.{alone}")

    def _probabilities(self, X: Any) -> NDArray[np.floating[Any]]:
        check_is_fitted(self)
        X = self._validate(X)
        probabilities = self.fitted_.probabilities(X)
        for message in say_outside(*self.fitted_.far_outside(X), X.shape[0]):
            warn(f"{message}.", OutsideWarning)
        if isinstance(X, np.ndarray) and X.dtype.kind == "f":
            flat = X.reshape(len(X), -1)
            # Only rows whose first value is missing can be empty; there are few of them.
            empty = int(np.isnan(flat[np.isnan(flat[:, 0])]).all(1).sum())
            if empty:
                warn(f"{say_empty(empty)}.", UnseenWarning)
            # Likewise for columns.
            lacking = np.flatnonzero(np.isnan(flat[0])) if X.ndim == 2 and len(X) >= FEWEST_ROWS_OF_GAPS else ()
            columns = [column for column in lacking if np.isnan(flat[:, column]).all()]
            if (ends := self.fitted_.given_range) is not None:
                # Columns that were constant in training say nothing.
                columns = [column for column in columns if ends[0, column] < ends[1, column]]
            if columns:
                names = self.fitted_.feature_names or range(flat.shape[1])
                message = say_empty_columns([str(names[column]) for column in columns])
                warn(f"{message[0].upper()}{message[1:]}.", UnseenWarning)
        return probabilities

    @property
    def _n_features_out(self) -> int:
        return len(self.fitted_.order)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        if hasattr(self, "fitted_"):
            fills, dtype = self.fitted_.missing == "mean", str(self.fitted_.dtype).removeprefix("torch.")
        else:
            given = self.get_params(deep=False)
            resolved = replace_auto(given, choose_parameters(given, UNKNOWN)[1])
            fills = getattr(resolved["preprocessing"], "missing", None) == "mean"
            dtype = getattr(resolved["training"], "dtype", "auto")
        tags.input_tags.allow_nan = fills
        if dtype == "float32":
            tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    def _repr_html_inner(self) -> str:
        """HTML for a notebook: the clusters of the fit, above scikit-learn's display of the parameters."""
        shown: str = super()._repr_html_inner()
        # Imported by name, because pollux.report depends on this module.
        return (
            importlib.import_module("pollux.report.notebook").summarise(self) if hasattr(self, "fitted_") else ""
        ) + shown

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return bundle | ({"text/html": self._repr_html_inner()} if "text/html" in bundle else {})


# Not decorators, because scikit-learn wraps transform when the class is created.
for _name in (
    *("predict", "predict_proba", "transform", "score", "partial_fit"),
    *("assign", "hierarchy", "assess", "predict_confidence"),
):
    setattr(GeminiClustering, _name, available_if(_predicts_new_samples)(getattr(GeminiClustering, _name)))


def _params_of_group(name: str, value: Any) -> dict[str, Any]:
    """The nested parameters of a group, or of what stands for one, by their full names."""
    group = as_group(name, value)
    if not hasattr(group, "get_params") or isinstance(group, type):
        return {}
    return {f"{name}__{key}": each for key, each in group.get_params(deep=True).items()}


def _is_same(one: Any, other: Any) -> bool:
    # Comparing arrays does not give one truth value.
    is_plain = isinstance(one, str | int | float | tuple) and type(one) is type(other)
    return one is other or (is_plain and one == other)


def _decide(spec: Spec, samples: Samples, run: Session, known: Any, affinity: Any) -> tuple[Spec, Any]:
    """The parameters for these samples, and the selection of the number of clusters, if it is "auto"."""
    kind = recognise_samples(samples)
    if affinity is not None:
        # A given affinity replaces the geometry, so no recipe is used.
        kind = kind._replace(recipe=None)
    selection, spec = None, spec.for_kind(kind, spec.n_clusters)
    if is_auto(spec.given["n_clusters"]):
        if affinity is not None or samples.has_several_inputs:
            raise InputError('n_clusters="auto" looks at samples of a single input: here, say a number.')
        selection = _select_n_clusters(samples, spec, run)
        highest = -1 if known is None else int(read_known(known).max(initial=-1))
        spec = spec.for_kind(kind, max(selection.best.n_clusters, highest + 1))
    if isinstance(samples, StreamSamples):
        spec.check_streamable(isinstance(samples, Stream) and (samples.encoding is None or not samples.is_given))
    return spec.with_names_of(samples), selection


def _select_n_clusters(samples: Samples, spec: Spec, run: Session) -> Any:
    """Select the number of clusters on a subsample; with several processes, the first one decides."""
    # Imported by name, because pollux.selection depends on this module.
    search = importlib.import_module("pollux.selection.search")
    found: Any = None
    if is_first(run.ranks):
        chosen = draw_samples(samples, search.MOST_ROWS, run.seed)
        assert isinstance(chosen, ArraySamples)
        rows = prepared(chosen.X, spec.preprocessing.fit(chosen), torch.float32, "cpu")
        X = rows[torch.arange(len(rows))].flatten(1).numpy()
        found = search.select_quickly(X, np.random.RandomState(run.seed))
    selection = found if run.ranks is None else run.ranks.broadcast_object(found)
    if selection.grade == "none":
        number = selection.best.n_clusters
        warn(f"A quick look does not tell how many clusters there are; {number} is a guess.", UserWarning)
    return selection


def load(
    path: str | Path, model: nn.Module | Callable[..., nn.Module] | None = None, device: str | None = None
) -> GeminiClustering | GeminiTree:
    """Load a clustering that its ``save``, or that of a :class:`GeminiTree`, wrote; nothing in the file is executed.

    Parameters
    ----------
    path : path
        The file, or the folder of a run of ``pollux fit``.
    model : nn.Module or callable, optional
        The network, if it was a custom one: the file holds only its weights.
    device : str, optional
        Where to put it, if not on the CPU: a file does not say.
    """
    if Path(path).is_file() and tensors.kind_of(Path(path)) == TREE_FORMAT:
        return GeminiTree.load(path)
    clustering, fitted = model_files.load(path, GeminiClustering, model=model, device=device)
    with warnings.catch_warnings():
        # The warning was already given at training time.
        warnings.simplefilter("ignore", CollapseWarning)
        return clustering._take(fitted)
