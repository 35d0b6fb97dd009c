"""Methods that speak of rows a model may not have seen."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pollux.assembly import Assembly
from pollux.fitting import check_predictions, for_new_rows, precomputed, rows_kept, take_part
from pollux.training import NotFiniteError, log_probabilities

_PREDICTED_ROWS = 10_000


class NoOpinionError(AttributeError, ValueError):
    """Asked of new rows, on which a free table of probabilities has no opinion."""


class OnNewRows:
    """A method that speaks of rows it may not have seen: absent, with the reason, for a free table."""

    def __init__(self, method: Callable[..., Any]) -> None:
        functools.update_wrapper(self, method)  # type: ignore[arg-type]
        self._method = method

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        if estimator is None:
            return self._method
        if estimator._is_free():
            raise NoOpinionError(
                f"A free table of probabilities has no opinion on new rows, so there is no "
                f"{self._method.__name__}. Use labels_ and probabilities_, or a model such as 'linear'."
            )
        return types.MethodType(self._method, estimator)


class SpeaksOfRows(Assembly, ClassNamePrefixFeaturesOutMixin, TransformerMixin):  # type: ignore[misc]
    """What a fitted clustering says of rows: their clusters, probabilities and score."""

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
        problem = self._problem(self._rows(rows_kept(X, kept)), geometry, weight)
        value: float = self._evaluate(self.module_, problem=problem).objective
        if not math.isfinite(value):
            raise NotFiniteError(value)
        return value

    @property
    def _n_features_out(self) -> int:
        return self.n_clusters

    def _probabilities(self, X: Any) -> NDArray[np.floating[Any]]:
        check_is_fitted(self)
        return self._of_rows(self._validate(X, reset=False, fewest=1))

    def _log_probabilities(self, X: Any) -> NDArray[np.floating[Any]]:
        """log p(y|x), which still differ where probabilities are 0 or 1."""
        check_is_fitted(self)
        return np.asarray(self._log_of_rows(self._validate(X, reset=False, fewest=1)))

    def _of_rows(self, X: Any) -> NDArray[np.floating[Any]]:
        """p(y|x) of rows as the model sees them."""
        return check_predictions(self._log_of_rows(X).exp().numpy())

    def _log_of_rows(self, X: Any) -> torch.Tensor:
        rows = self._rows(X)
        parts = [
            log_probabilities(self.module_, rows[index], self.n_clusters).cpu()[:, self._order]
            for index in torch.split(torch.arange(len(rows)), _PREDICTED_ROWS)
        ]
        return torch.cat(parts)


# Here rather than as decorators, because scikit-learn wraps transform when the class is made.
for _name in ("predict", "predict_proba", "transform", "score"):
    setattr(SpeaksOfRows, _name, OnNewRows(getattr(SpeaksOfRows, _name)))
