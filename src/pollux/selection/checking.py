"""What the user gave, checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from torch import nn

from pollux.clustering import GeminiClustering
from pollux.spec import Spec


def check_candidates(candidates: Iterable[int]) -> list[int]:
    """The candidates in order, each once; a ValueError where there is none or one is not a number of clusters."""
    try:
        asked = list(candidates)
    except TypeError as error:
        raise ValueError(f"candidates are several numbers of clusters, as in range(2, 11); not {candidates!r}.") from (
            error
        )
    for one in asked:
        if not _is_count(one, 2):
            raise ValueError(
                f"Each candidate is a whole number of at least 2, not {one!r}; that there is one cluster only is "
                "always considered."
            )
    if not asked:
        raise ValueError("There are no candidates: name some numbers of clusters, as in range(2, 11).")
    return sorted({int(one) for one in asked})


def check_settings(n_subsamples: int, subsample: float, max_rows: int) -> None:
    """Raise a ValueError where one of them cannot be."""
    if not _is_count(n_subsamples, 3):
        raise ValueError(f"n_subsamples must be a whole number of at least 3, not {n_subsamples!r}.")
    if not (isinstance(subsample, int | float | np.floating) and 0 < subsample <= 1):
        raise ValueError(f"subsample must be a share of the rows, above 0 and at most 1, not {subsample!r}.")
    if not _is_count(max_rows, 10):
        raise ValueError(f"max_rows must be a whole number of at least 10, not {max_rows!r}.")


def _is_count(value: Any, fewest: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= fewest


def check_estimator(estimator: GeminiClustering | None) -> None:
    """Raise a ValueError for one that cannot be asked for several numbers of clusters, or about new rows."""
    if estimator is None:
        return
    if not isinstance(estimator, GeminiClustering):
        raise ValueError(f"estimator must be a GeminiClustering, not a {type(estimator).__name__}.")
    if isinstance(estimator.model, str) and estimator.model == "free":
        raise ValueError("A free table has no opinion on new rows, which subsamples are compared by: use model='mlp'.")
    if isinstance(estimator.model, nn.Module):
        raise ValueError(
            "A module has outputs for one number of clusters only: pass a function (n_features, n_clusters) → module."
        )
    Spec.of(estimator)


def as_rows(X: Any, allow_nan: bool = False) -> Any:
    """X as a finite array or sparse matrix of numbers, with gaps where these are allowed."""
    if isinstance(X, str) or not (hasattr(X, "shape") or hasattr(X, "__len__")):
        raise ValueError("X must be rows in memory: for files, use the command pollux select.")
    return check_array(
        X,
        accept_sparse="csr",
        allow_nd=True,
        dtype=[np.float64, np.float32],
        ensure_min_samples=3,
        ensure_all_finite="allow-nan" if allow_nan else True,
    )


def as_classes(y: ArrayLike | None) -> NDArray[Any] | None:
    """y as an array (n,), if there is any."""
    if y is None:
        return None
    classes = np.asarray(y)
    if classes.ndim != 1:
        raise ValueError(f"y must be a list of classes, one for each row, but has the shape {classes.shape}.")
    return classes
