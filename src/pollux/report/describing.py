"""Findings of a fitted clustering and samples, and how it was trained, in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA

from pollux.report.findings import Findings

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering
    from pollux.fitted import Fitted

MOST_ROWS_OF_PCA = 20_000
# Parameters that are shown by these names where they are not the defaults.
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
    clustering: GeminiClustering,
    X: Any,
    *,
    title: str = "Clusters",
    feature_names: Sequence[str] | None = None,
    classes: ArrayLike | None = None,
    images: NDArray[np.uint8] | None = None,
    points: ArrayLike | None = None,
    axes: tuple[str, str] = ("first coordinate", "second coordinate"),
    row_names: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    command: str = "",
) -> Findings:
    """What a fitted clustering says of X (n, d), for :func:`write_page`.

    Parameters
    ----------
    clustering : GeminiClustering
        A fitted one.
    X : array or DataFrame of shape (n, d), or images (n, C, H, W)
        The samples; of a free table, those that it was fitted on.
    title : str
        What was clustered.
    feature_names : sequence of str, optional
        Names of the d columns; those of a data frame are its own.
    classes : array of shape (n,), optional
        Known classes, to compare with; None, NaN or "" where the class of a sample is not known.
    images : array of shape (n, H, W) or (n, H, W, 3), uint8, optional
        The samples as pictures, where X holds their pixels as rows.
    points : array of shape (n, 2), optional
        Where the samples lie on the map; otherwise the principal components of what the model sees.
    axes : pair of str
        What the coordinates of ``points`` are.
    row_names : sequence of str, optional
        A name for each sample.
    settings : mapping of str, optional
        How it was trained; :func:`describe_training` by default.
    notes, command : sequence of str, str
        What else a reader must know, and the command that repeats the run.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pollux import GeminiClustering
    >>> X = load_iris().data
    >>> clustering = GeminiClustering(3, model="linear", max_epochs=5, random_state=0).fit(X)
    >>> describe(clustering, X, title="Iris").probabilities.shape
    (150, 3)
    """
    fitted = clustering.fitted_
    encoding, is_image = fitted.encoding, len(fitted.shape) == 3
    samples = np.asarray(X) if encoding is None else encoding.encode(X)
    if fitted.is_free:
        if len(samples) != len(fitted.labels):
            raise ValueError("A free table knows only the samples it was trained on, in their order: pass those.")
        probabilities = fitted.free_probabilities()
    else:
        probabilities = clustering.predict_proba(X) if encoding is None else fitted.probabilities(samples)
    if points is None:
        points, axes = principal_map(_as_seen(fitted, samples))
    if images is None and is_image:
        images = as_pictures(np.asarray(X))
    features, names = (None, []) if images is not None else _features(fitted, X, feature_names)
    return Findings(
        title=title,
        probabilities=probabilities,
        points=np.asarray(points, dtype=np.float64),
        axes=axes,
        features=features,
        feature_names=names,
        shares=frozenset() if encoding is None else encoding.shares,
        images=images,
        row_names=row_names,
        classes=None if classes is None else _as_text(classes),
        history=fitted.history,
        settings=describe_training(clustering) if settings is None else settings,
        notes=notes,
        command=command,
    )


def describe_training(clustering: GeminiClustering, n_samples: int | None = None) -> dict[str, str]:
    """How a fitted clustering was trained, in words: what is always of interest, and what is not the default.

    ``n_samples`` is the number of samples of the training, where the model does not know it: it was streamed, and
    loaded from a file.
    """
    # Imported late, because it brings torch, which figures do not need.
    from pollux.spec import flatten_params

    fitted, given, default = clustering.fitted_, flatten_params(clustering), flatten_params(type(clustering)())
    if fitted.given_labels is not None:
        n_samples = len(fitted.given_labels)
    hidden = " + ".join(map(str, given["hidden"])) if given["model"] == "mlp" else ""
    limit = "" if given["max_epochs"] == "auto" else f" of {given['max_epochs']}"
    penalties = [f"{_name(penalty)}={weight:g}" for penalty, weight in (given["penalties"] or {}).items()]
    described = {
        "Clusters, at most": str(given["n_clusters"]),
        "Objective": _name(given["objective"]),
        "Geometry": _geometry(fitted, given["geometry"]),
        "Model": _name(given["model"]) + (f", {hidden} hidden units" if hidden else ""),
        "Epochs": f"{len(fitted.history['objective'])}{limit}",
        "Batch size": _batch_size(given["batch_size"], n_samples),
        "Learning rate": f"{given['learning_rate']:g}",
        "Restarts": str(given["n_init"]),
        "Agreement of the restarts": "" if fitted.stability is None else f"{fitted.stability:.2f}",
        "Penalties": ", ".join(penalties),
        "Seed": str(given["random_state"]),
        **{label: _name(given[name]) for name, label in FURTHER_SETTINGS.items() if given[name] != default[name]},
        "Objective reached": f"{fitted.objective:.6g}",
    }
    return {name: value for name, value in described.items() if value}


def _name(value: Any) -> str:
    """A parameter for people: of functions and networks the name must do."""
    if isinstance(value, str | int | float | tuple | list) or value is None:
        return str(value)
    return str(getattr(value, "name", "") or getattr(value, "__name__", "") or type(value).__name__)


def _geometry(fitted: Fitted, geometry: Any) -> str:
    """The kernel or distance, also where it is "auto"; '' for an objective that needs neither."""
    if fitted.geometry is None:
        return ""
    name = getattr(fitted.geometry, "name", "") if isinstance(geometry, str) and geometry == "auto" else _name(geometry)
    return f"{name} {fitted.geometry.kind}".strip()


def _batch_size(batch_size: int | str | None, n_samples: int | None) -> str:
    """Samples of a step of the training, whatever samples the page shows."""
    from pollux.training.problem import resolve_batch_size

    if n_samples is None and batch_size in (None, "auto"):
        return "all samples" if batch_size is None else "auto"
    return f"{resolve_batch_size(batch_size, n_samples or 0):,}"


def _as_seen(fitted: Fitted, samples: NDArray[Any]) -> NDArray[Any]:
    """Samples (n, …) as the network sees them, (n, d): scaled, without gaps."""
    if fitted.scaling is not None:
        import torch

        samples = fitted.scaling(torch.as_tensor(np.asarray(samples, dtype=np.float64))).numpy()
    return samples.reshape(len(samples), -1)


def _features(fitted: Fitted, X: Any, names: Sequence[str] | None) -> tuple[NDArray[np.float64], list[str]]:
    """Samples (n, d) in their own units, and names of the d features; of true and false, true is enough."""
    if fitted.encoding is None:
        features = np.asarray(X, dtype=np.float64)
        found = [str(name) for name in getattr(X, "columns", range(features.shape[1]))]
    else:
        features, found = fitted.encoding.raw(X), fitted.encoding.feature_names
    if names is not None:
        return features, list(names)
    opposites = set() if fitted.encoding is None else _opposites(fitted.encoding.shares)
    kept = [index for index, name in enumerate(found) if name not in opposites]
    named = [f"column {name}" if name.isdigit() else name for name in found]
    return features[:, kept], [named[index] for index in kept]


def _opposites(shares: Collection[str]) -> set[str]:
    """'a=false' of each column that holds true and false alone."""
    columns = {name.removesuffix("=true") for name in shares if name.endswith("=true")}
    values = {column: {name for name in shares if name.startswith(f"{column}=")} for column in columns}
    return {f"{column}=false" for column, own in values.items() if own == {f"{column}=true", f"{column}=false"}}


def principal_map(X: NDArray[Any]) -> tuple[NDArray[np.float64], tuple[str, str]]:
    """The first two principal components of X (n, d): points (n, 2), and what their axes are.

    The components are those of at most 20,000 samples. Of a single feature, the second coordinate is zero.
    """
    X = np.asarray(X)
    count = min(2, *X.shape)
    rows = X
    if len(X) > MOST_ROWS_OF_PCA:
        rows = X[np.random.default_rng(0).choice(len(X), MOST_ROWS_OF_PCA, replace=False)]
    components = PCA(count, random_state=0).fit(rows)
    points = np.zeros((len(X), 2))
    points[:, :count] = components.transform(X)
    shares = [*np.nan_to_num(components.explained_variance_ratio_), 0.0][:2]
    first, second = (f"principal component {k} ({share:.0%} of the variance)" for k, share in enumerate(shares, 1))
    return points, (first, second)


def as_pictures(images: NDArray[Any]) -> NDArray[np.uint8]:
    """(n, C, H, W) of any numbers as bytes (n, H, W), or (n, H, W, 3) of three channels."""
    if images.dtype != np.uint8:
        low, high = float(np.nanmin(images)), float(np.nanmax(images))
        images = ((np.nan_to_num(images) - low) * (255 / (high - low or 1.0))).astype(np.uint8)
    return images[:, 0] if images.shape[1] not in (3, 4) else np.moveaxis(images[:, :3], 1, 3)


def _as_text(classes: ArrayLike) -> NDArray[np.str_]:
    """Classes (n,) as text, "" where there is none."""
    known = np.asarray(classes)
    if known.dtype.kind not in "fO":
        return known.astype(str)
    # Only missing values differ from themselves; that of pandas does not say whether it does.
    present = [value is not None and str(value) != "<NA>" and value == value for value in known.tolist()]
    whole = known.dtype.kind == "f" and bool(np.all(known[present] == np.round(known[present])))
    # Whole numbers with gaps among them come as 1.0, 2.0, …
    return np.array(
        [str(int(value) if whole else value) if has else "" for value, has in zip(known.tolist(), present, strict=True)]
    )
