"""What the peers are given: no missing values, and columns scaled by one rule for all methods and sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from pollux.data.scaling import FittedScaling

MOST_DENSE = 50_000_000
"""Numbers of the largest sparse table that is written out for methods that need it dense."""


def prepared_by(X: Any) -> Callable[[Any], Any]:
    """The rule, with what it takes from the rows X (n, d) or images (n, …), as a map of such rows.

    It is the automatic scaling of this library: missing values become the mean of their column, and all is centred;
    columns of like ranges are divided by one number, others each by its standard deviation. A sparse table is not
    centred, which would fill it, and is divided by one number.
    """
    if scipy.sparse.issparse(X):
        scale = np.sqrt(X.multiply(X).sum() / np.prod(X.shape, dtype=float)) or 1.0
        return lambda rows: rows * (1 / scale)
    scaling = FittedScaling.fit(_flat(X), "auto")
    return lambda rows: scaling(torch.from_numpy(_flat(rows))).numpy()


def densified(X: Any) -> Any:
    """A sparse table with its zeros written out."""
    return X.toarray() if scipy.sparse.issparse(X) else X


def _flat(X: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(X, dtype=np.float64).reshape(len(X), -1)
