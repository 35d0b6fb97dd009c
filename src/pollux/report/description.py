"""``describe``: the results of a fitted clustering on samples, as :class:`Findings`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from pollux.data.encoding import Feature, UnseenWarning, readable_names
from pollux.errors import warn
from pollux.report.findings import Findings, Places
from pollux.report.maps import principal_map
from pollux.trees.contrasts import mark_shares
from pollux.trees.explanation import named_clusters, read_columns

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering
    from pollux.fitted import Fitted
    from pollux.inspection.hierarchy import Hierarchy

MOST_STREAMED_ROWS = 100_000
# Maximum number of samples whose place among the centres of clusters is computed.
MOST_PLACED = 20_000
# A sample is an outlier if it lies this many times as far from similar ones as is typical.
FAR = 3.0
# Maximum number of clusters for a hierarchy, and number of samples for it if each pair is a transport problem.
MOST_GROUPED, SAMPLES_OF_TRANSPORT = 20, 100
# Parameters that are shown by these names if they are not the defaults.
FURTHER_SETTINGS = {
    "scaling": "Scaling",
    "missing": "Missing values",
    "activation": "Activation",
    "norm": "Normalised by",
    "n_components": "Principal components",
    "init": "Initialisation",
    "optimiser": "Optimiser",
    "schedule": "Schedule",
    "trial_epochs": "Epochs of all restarts",
    "max_samples": "Most rows that are learned from",
    "reshuffle_every": "Epochs between reshuffles",
    "tol": "Tolerance",
    "patience": "Patience",
    "dtype": "Arithmetic",
    "device": "Device",
}


def describe(
    clustering: GeminiClustering | Pipeline,
    X: Any,
    *,
    title: str = "Clusters",
    feature_names: Sequence[str] | None = None,
    classes: ArrayLike | None = None,
    images: NDArray[np.uint8] | None = None,
    points: ArrayLike | str | None = None,
    axes: tuple[str, str] = ("first coordinate", "second coordinate"),
    labels: ArrayLike | None = None,
    outliers: float = 0.0,
    row_names: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    command: str = "",
) -> Findings:
    """Collect the results of a fitted clustering on X, for :func:`write_page`.

    Parameters
    ----------
    clustering : GeminiClustering or Pipeline
        A fitted clustering, or a fitted pipeline of scikit-learn that ends in one.
    X : whatever ``fit`` takes
        The samples: an array, a DataFrame or a sparse matrix (n, d), images (n, C, H, W), files, a stream or a loader.
        At most 100,000 streamed samples are shown; for a free table, the samples must be those of the fit.
    title : str
        Title of the report.
    feature_names : sequence of str, optional
        Names of the d columns; those of a data frame are its own.
    classes : array of shape (n,), optional
        Known classes, to compare with; None, NaN or "" where the class of a sample is not known.
    images : array of shape (n, H, W) or (n, H, W, 3), uint8, optional
        The samples as images, if X holds their pixels as rows.
    points : array of shape (n, 2) or "components", optional
        Where the samples lie on the map; by default by their nearest neighbours in what the model sees
        (:func:`neighbour_map`), with a second map of principal components; "components": the latter alone. If the model
        sees columns in units that differ widely, the maps show them standardised.
    axes : pair of str
        Names of the coordinates of ``points``.
    labels : array of int of shape (n,), optional
        The cluster of each sample, if it is not the most likely one: ``labels_`` of a fit with given sizes.
    outliers : float
        Flag samples that fit in less well than this share of the training samples does; by default those that lie three
        times as far from similar ones as is typical.
    row_names : sequence of str, optional
        A name for each sample.
    settings : mapping of str, optional
        Settings of the training; :func:`describe_training` by default.
    notes, command : sequence of str, str
        Further notes for the reader, and the command that repeats the run.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pollux import GeminiClustering
    >>> X = load_iris().data
    >>> clustering = GeminiClustering(3, model="linear", max_epochs=5, random_state=0).fit(X)
    >>> describe(clustering, X, title="Iris").probabilities.shape
    (150, 3)
    """
    # Imported late, because they import torch, which figures do not need.
    from pollux.clustering import GeminiClustering
    from pollux.data.samples import validate_samples
    from pollux.fitted import say_outside
    from pollux.geometry import CosineGraph, unit_rows

    given, steps = clustering, None
    if isinstance(clustering, Pipeline):
        steps, clustering = clustering[:-1], clustering[-1]
    if not isinstance(clustering, GeminiClustering):
        raise TypeError(f"describe takes a GeminiClustering or a pipeline that ends in one, not {clustering!r}.")
    check_is_fitted(clustering)
    fitted = clustering.fitted_
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnseenWarning)
        X, samples = (X, steps.transform(X)) if steps else _read_streamed(clustering, X)
        if samples is None:
            samples = validate_samples(X, clustering, reset=False, missing=fitted.missing, encoding=fitted.encoding)
        elif steps:
            samples = validate_samples(samples, clustering, reset=False, missing=fitted.missing)
    unseen = [str(each.message) for each in caught if issubclass(each.category, UnseenWarning)]
    for other in caught:
        if not issubclass(other.category, UnseenWarning):
            warn(str(other.message), other.category)
    notes = [*notes, *unseen, *say_outside(*fitted.far_outside(samples), samples.shape[0])]
    if not fitted.is_free:
        probabilities = fitted.probabilities(samples)
    elif samples.shape[0] == len(fitted.labels):
        probabilities = fitted.free_probabilities()
    else:
        raise ValueError("A free table knows only the samples it was trained on, in their order: pass those.")
    most_likely, given_labels = probabilities.argmax(1), None if labels is None else np.asarray(labels)
    seen = _as_seen(fitted, samples)
    # For embeddings only angles count, and their numbers are not interpretable.
    is_embedded = isinstance(fitted.geometry, CosineGraph)
    drawn: NDArray[Any] | None = unit_rows(seen) if is_embedded else seen
    if isinstance(points, str):
        if points != "components":
            raise ValueError(f"points is an array (n, 2) or 'components', not {points!r}.")
        (points, axes), drawn = principal_map(seen), None
    if images is None and len(fitted.shape) == 3:
        images = as_pictures(np.asarray(samples if steps else X))
    values: NDArray[np.float64] | None = None
    features: tuple[Feature, ...] = ()
    has_features = images is None and not is_embedded
    if has_features and samples is X:
        # Streamed samples are encoded already.
        values = np.asarray(_dense(samples), dtype=np.float64)
        own = fitted.feature_names or (() if fitted.encoding is None else fitted.encoding.feature_names)
        names = own or [str(index) for index in range(values.shape[1])]
        features = tuple(map(Feature, readable_names(list(names if feature_names is None else feature_names))))
    elif has_features:
        _, values, features = read_columns(given, X, feature_names)
        # Names of features without those of their columns, which figures do not use.
        features = mark_shares(values, features)
    if row_names is None and isinstance(X, list | np.ndarray) and all(isinstance(text, str) for text in X[:10]):
        # Texts are used as their own names.
        row_names = [" ".join(str(text).split()) for text in X]
    scores = far = None
    if fitted.prototypes is not None:
        scores = fitted.scores(samples)
        far = scores < (fitted.prototypes.threshold(outliers) if outliers else -FAR)
    return Findings(
        title=title,
        probabilities=probabilities,
        points=None if points is None else np.asarray(points, dtype=np.float64),
        axes=axes,
        seen=drawn,
        given_labels=given_labels,
        features=values,
        feature_names=[feature.name for feature in features],
        shares=frozenset(feature.name for feature in features if feature.value),
        dates=frozenset(feature.name for feature in features if feature.is_date),
        images=images,
        row_names=row_names,
        classes=None if classes is None else _as_text(classes),
        places=_find_places(fitted, samples, seen, most_likely if given_labels is None else given_labels),
        structure=fitted.structure,
        stability=fitted.stability,
        agreement=None
        if fitted.confidence is None
        else fitted.confidence.predict(fitted.log_probabilities(samples).numpy(), given_labels),
        scores=scores,
        outliers=far,
        # Streamed samples are encoded already, and must not be encoded twice.
        hierarchy=None
        if samples is X and fitted.encoding is not None
        else _find_hierarchy(clustering, samples if steps else X, most_likely),
        cluster_names={k: name for k, name in named_clusters(clustering).items() if name},
        history=fitted.history,
        settings=describe_training(clustering) if settings is None else settings,
        notes=notes,
        columns=fitted.columns if any(each.reason for each in fitted.columns) else (),
        command=command,
    )


def describe_training(clustering: GeminiClustering) -> dict[str, str]:
    """Settings of the training of a fitted clustering, in words: the main ones, and those that are not the default."""
    # Imported late, because it imports torch, which figures do not need.
    from pollux.geometry import Geometry
    from pollux.geometry.geometry import spell
    from pollux.recipes import PLAIN
    from pollux.spec import MODEL_GROUPS, flatten_params

    def name_of(value: Any) -> str:
        """A parameter as text: functions and networks by name."""
        if isinstance(value, Geometry):
            return spell(value)
        if isinstance(value, str | int | float | tuple | list) or value is None:
            return str(value)
        return str(getattr(value, "name", "") or getattr(value, "__name__", "") or type(value).__name__)

    fitted, given = clustering.fitted_, flatten_params(clustering)
    # Plain defaults are not shown, and neither is the absence of scaling.
    default = flatten_params(type(clustering)(preprocessing=None))
    default |= {name.rpartition("__")[2]: value for name, value in PLAIN.items() if "preprocessing" not in name}
    model = name_of(given["model"])
    if model == "mlp" and given["hidden"]:
        model += f", {' + '.join(map(str, given['hidden']))} hidden units"
    elif model in MODEL_GROUPS and isinstance(given["model"], str):
        usual = MODEL_GROUPS[model]().get_params()
        options = [f"{name}={name_of(given[name])}" for name in usual if given[name] != usual[name]]
        model += f":{','.join(options)}" if options else ""
    limit = "" if given["max_epochs"] == "auto" else f" of {given['max_epochs']}"
    penalties = [f"{name_of(penalty)}={weight:g}" for penalty, weight in (given["penalties"] or {}).items()]
    geometry = ""
    # Model files of old versions do not hold the number that stood for None or "auto".
    size = fitted.batch_size or given["batch_size"] or "all samples"
    if fitted.geometry is not None:
        is_auto = isinstance(given["geometry"], str) and given["geometry"] == "auto"
        kernel = getattr(fitted.geometry, "name", "") if is_auto else name_of(given["geometry"])
        geometry = f"{kernel} {fitted.geometry.kind}".strip()
    # A custom transformer has neither scaling nor components.
    values = {name: given.get(name, default[name]) for name in FURTHER_SETTINGS}
    further = {label: values[name] for name, label in FURTHER_SETTINGS.items() if values[name] != default[name]}
    described = {
        "Clusters, at most": str(given["n_clusters"]),
        "Recipe": fitted.recipe or "",
        "Objective": name_of(given["objective"]),
        "Geometry": geometry,
        "Model": model,
        "Epochs": f"{len(fitted.history['objective'])}{limit}",
        "Batch size": f"{size:,}" if isinstance(size, int) else size,
        "Learning rate": f"{given['learning_rate']:g}",
        "Restarts": str(given["n_init"]),
        "Agreement of the restarts": "" if fitted.stability is None else f"{fitted.stability:.2f}",
        "Penalties": ", ".join(penalties),
        "Seed": str(given["random_state"]),
        **{label: name_of(value) for label, value in further.items()},
        "Objective reached": f"{fitted.objective:.6g}",
    }
    return {name: value for name, value in described.items() if value}


def _find_places(fitted: Fitted, samples: Any, seen: NDArray[Any], labels: NDArray[np.int64]) -> Places:
    """Places of samples among the centres of clusters: in the features of a kernel, or else as the model sees them.

    Not in the features of mixtures, which are nearly the same for all samples of a component.
    """
    import torch

    from pollux.data.scaling import prepared
    from pollux.geometry import Mixtures, Precomputed
    from pollux.geometry.landmarks import features_of

    n, geometry = len(labels), fitted.geometry
    rows = np.arange(n)
    if n > MOST_PLACED:
        rows = np.sort(np.random.default_rng(0).choice(n, MOST_PLACED, replace=False))
    if geometry is None or geometry.kind != "kernel" or isinstance(geometry, Mixtures | Precomputed):
        return Places.of(np.asarray(seen[rows], dtype=np.float64), labels[rows], rows, n, "what the model sees")
    some = prepared(samples[rows], fitted.scaling, torch.float64, "cpu")
    name = getattr(geometry, "name", "") or type(geometry).__name__
    return Places.of(features_of(geometry, some), labels[rows], rows, n, f"the features of the {name} kernel")


def _find_hierarchy(clustering: GeminiClustering, X: Any, labels: NDArray[np.int64]) -> Hierarchy | None:
    """The hierarchy of clusters, from some of the samples; None if it cannot be computed, or not quickly."""
    fitted, used = clustering.fitted_, len(np.unique(labels))
    if fitted.is_free or not 3 <= used <= len(fitted.order) <= MOST_GROUPED:
        return None
    most = SAMPLES_OF_TRANSPORT if fitted.geometry is not None and fitted.geometry.kind == "distance" else 500
    some = np.sort(np.random.default_rng(0).permutation(len(labels))[:most])
    # A given affinity cannot be used for these samples; unseen values have been warned about before.
    with contextlib.suppress(ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenWarning)
        return replace(clustering.hierarchy(_take(X, some)), labels=labels)
    return None


def _take(X: Any, rows: NDArray[np.int64]) -> Any:
    """Some rows of an array or frame, also of pyarrow's, which older releases of scikit-learn do not index."""
    return X.take(rows) if type(X).__module__.startswith("pyarrow") else _safe_indexing(X, rows)


def _read_streamed(clustering: GeminiClustering, X: Any) -> tuple[Any, Any]:
    """Rows of a stream, in memory; and their samples, if these are already encoded."""
    from pollux.data.samples import draw_samples, is_streamed, open_samples
    from pollux.data.sources import gather, open_data

    if not is_streamed(X):
        return X, None
    fitted = clustering.fitted_
    if fitted.encoding is not None and isinstance(X, str | Path):
        return gather(open_data(X).stream(fitted.encoding, ())).rows, None
    dtype = str(fitted.dtype).removeprefix("torch.")
    opened = open_samples(X, copy(clustering), fewest=1, missing=fitted.missing, dtype=dtype)
    drawn: Any = draw_samples(opened, MOST_STREAMED_ROWS)
    return drawn.X, drawn.X


def _as_seen(fitted: Fitted, samples: Any) -> NDArray[Any]:
    """Samples (n, …) as the network sees them, (n, d): scaled, without missing values.

    If the network sees unscaled columns, they are scaled all the same: otherwise the largest would dominate the map.
    """
    import torch

    from pollux.data.scaling import FittedScaling, prepared

    seen = prepared(samples, fitted.scaling, torch.float64, "cpu")
    # A scaling with its own fill values only fills gaps, and keeps the units.
    scales = fitted.scaling is not None and getattr(fitted.scaling, "fill", None) is None
    if not scales and fitted.encoding is None:
        seen = prepared(seen.flat(), FittedScaling.fit(seen.flat(), "auto"), torch.float64, "cpu")
    return _dense(seen.flat())


def _dense(samples: Any) -> NDArray[Any]:
    return np.asarray(samples.toarray() if issparse(samples) else samples)


def as_pictures(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Images (n, C, H, W) of any numbers as bytes (n, H, W), or (n, H, W, 3) if there are three channels."""
    if images.dtype != np.uint8:
        low, high = float(np.nanmin(images)), float(np.nanmax(images))
        images = ((np.nan_to_num(images) - low) * (255 / (high - low or 1.0))).astype(np.uint8)
    return images[:, 0] if images.shape[1] not in (3, 4) else np.moveaxis(images[:, :3], 1, 3)


def _as_text(classes: ArrayLike) -> NDArray[np.str_]:
    """Classes (n,) as text, "" if there is none."""
    known = np.asarray(classes)
    if known.dtype.kind not in "fO":
        return known.astype(str)
    # Only missing values differ from themselves; comparing pandas' NA gives NA.
    present = [value is not None and str(value) != "<NA>" and value == value for value in known.tolist()]
    whole = known.dtype.kind == "f" and bool(np.all(known[present] == np.round(known[present])))
    # Integers with missing values among them come as 1.0, 2.0, …
    return np.array(
        [str(int(value) if whole else value) if has else "" for value, has in zip(known.tolist(), present, strict=True)]
    )
