"""Findings of a clustering that was fitted in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA

from pollux.report.findings import Findings

MOST_ROWS_OF_PCA = 20_000


def describe(
    clustering: Any,
    X: Any,
    *,
    title: str = "Clusters",
    feature_names: Sequence[str] | None = None,
    classes: ArrayLike | None = None,
    images: NDArray[np.uint8] | None = None,
    points: ArrayLike | None = None,
    row_names: Sequence[str] | None = None,
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
        Where the samples lie on the map; their principal components otherwise.
    row_names : sequence of str, optional
        A name for each sample.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pollux import GeminiClustering
    >>> X = load_iris().data
    >>> clustering = GeminiClustering(3, model="linear", max_epochs=5, random_state=0).fit(X)
    >>> describe(clustering, X, title="Iris").probabilities.shape
    (150, 3)
    """
    free = hasattr(clustering, "probabilities_")
    probabilities = clustering.probabilities_ if free else clustering.predict_proba(X)
    preprocessing = getattr(clustering, "encoding_", None)
    array = np.asarray(X) if preprocessing is None else preprocessing.raw(X)
    encoded = array if preprocessing is None else preprocessing.encode(X)
    place: tuple[Any, tuple[str, str]] = (points, ("first coordinate", "second coordinate"))
    if points is None:
        place = principal_map(encoded.reshape(len(encoded), -1))
    if images is None and array.ndim == 4:
        images = as_pictures(array)
    names = _names(feature_names, X, preprocessing, array)
    return Findings(
        title=title,
        probabilities=np.asarray(probabilities),
        points=np.asarray(place[0], dtype=np.float64),
        axes=place[1],
        features=None if images is not None else np.asarray(array, dtype=np.float64),
        feature_names=() if images is not None else names,
        shares=frozenset() if preprocessing is None else preprocessing.shares,
        images=images,
        row_names=row_names,
        classes=None if classes is None else _as_text(classes),
        history=clustering.history_,
        settings={name: str(value) for name, value in clustering.get_params(deep=False).items() if _tells(value)},
    )


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


def _names(given: Sequence[str] | None, X: Any, preprocessing: Any, array: NDArray[Any]) -> list[str]:
    if given is not None:
        return list(given)
    if preprocessing is not None:
        return list(preprocessing.feature_names)
    if hasattr(X, "columns"):
        return [str(name) for name in X.columns]
    return [f"column {index}" for index in range(array.shape[1])]


def _tells(value: Any) -> bool:
    """Whether a parameter says something to people: a name, a number, a few of them."""
    return isinstance(value, str | int | float) or (isinstance(value, tuple | list | dict) and len(value) > 0)
