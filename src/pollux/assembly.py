"""How an estimator puts a training together: rows, geometry, problem, modules; and what it keeps of the result."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data
from torch import Tensor, dtype, nn

from pollux.data.encoding import Encoding
from pollux.data.rows import Rows
from pollux.data.scaling import FittedScaling, prepared
from pollux.errors import option
from pollux.fitting import (
    COLLAPSED,
    CollapseWarning,
    Problem,
    RowProblem,
    check_columns,
    features_here,
    free_probabilities,
    number_clusters,
    precomputed,
    rows_kept,
    same_for_all,
    spacing,
    torch_dtype,
)
from pollux.geometry import Geometry, resolve
from pollux.learning import Learning
from pollux.models import FreeTable
from pollux.objectives import Gemini
from pollux.ranks import Ranks
from pollux.streamed import check_held
from pollux.training import Evaluation


class Assembly:
    """The parts of fit, in its order."""

    preprocessing_: Encoding | None
    scaling_: FittedScaling | None
    geometry_: Geometry | None
    module_: nn.Module
    probabilities_: NDArray[Any]
    _shape: tuple[int, ...]
    _dtype: dtype
    _order: Tensor
    _labels: NDArray[np.int64] | None

    if TYPE_CHECKING:
        # Of the clustering itself.
        n_clusters: int
        geometry: Any
        dtype: str
        missing: str
        device: str
        fit: Callable[..., Any]
        predict: Callable[[Any], NDArray[np.int64]]

    def _validate(self, X: Any, *, reset: bool, fewest: int) -> Any:
        check_held(X)
        if reset:
            self.preprocessing_ = None
        elif self.preprocessing_ is not None:
            X = self.preprocessing_.encode(X)
        check_columns(X)
        try:
            X = validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                allow_nd=True,
                ensure_min_samples=fewest,
                ensure_all_finite="allow-nan" if self.missing == "mean" else True,
            )
        except ValueError as error:
            if "contains NaN" in str(error) and self.missing == "error":
                raise ValueError(
                    f"Input X contains NaN: {option('missing', 'mean')} lets the mean of a feature stand for it; or "
                    "drop its rows."
                ) from error
            raise
        if not reset and tuple(X.shape[1:]) != self._shape:
            raise ValueError(f"The model was trained on samples of shape {self._shape}; these are {X.shape[1:]}.")
        return X

    def _begin(
        self, X: Any, affinity: Any, weight: Tensor | None, kept: NDArray[np.bool_], ranks: Ranks | None = None
    ) -> tuple[Rows, RowProblem]:
        """The rows that take part, as a problem; and what later calls need to know of them."""
        needs = self._objective().needs
        geometry: Geometry | None = precomputed(affinity, needs, kept)
        if geometry is None and needs is not None:
            geometry = resolve(self.geometry, needs).for_clusters(self.n_clusters)
        X = rows_kept(X, kept)
        self._shape = tuple(int(size) for size in X.shape[1:])
        self._dtype = torch_dtype(self.dtype, X.dtype)
        self.scaling_ = self._learning().scaling(X, weight)
        rows = self._rows(X)
        self.geometry_ = None if geometry is None else geometry.adapt(rows)
        return rows, self._problem(rows, self.geometry_, weight, ranks, is_trained=True)

    def _problem(
        self,
        rows: Rows,
        geometry: Geometry | None,
        weight: Tensor | None,
        ranks: Ranks | None = None,
        is_trained: bool = False,
    ) -> RowProblem:
        block = None if geometry is None else same_for_all(geometry, geometry.bind(rows), rows, ranks)
        inputs = (lambda index: index.to(self.device)) if self._is_free() else rows.__getitem__
        apart = spacing(rows) if is_trained and self._learning().uses_spacing else None
        own = features_here(geometry, block, rows, ranks)
        return RowProblem(len(rows), inputs, block, weight, ranks, own, apart)

    @property
    def _seen_shape(self) -> tuple[int, ...]:
        """The shape of a sample as the model sees it."""
        return self._shape if self.scaling_ is None else self.scaling_.shape

    def _rows(self, X: Any) -> Rows:
        """Samples as the model and the geometry see them."""
        return prepared(X, self.scaling_, self._dtype, self.device)

    def _learning(self) -> Learning:
        return Learning(self)

    def _objective(self) -> Gemini:
        return self._learning().objective

    def _is_free(self) -> bool:
        return self._learning().is_free

    def _modules(self, rows: Rows, seed: int, count: int) -> list[nn.Module]:
        if self._is_free():
            return self._learning().tables(rows, self._dtype, seed, count)
        return self._learning().modules(rows.shape, self._dtype, count)

    def _evaluate(self, module: nn.Module, *, problem: Problem) -> Evaluation:
        return problem.evaluate(module, self.n_clusters, self._objective())

    def _number(self, evaluation: Evaluation) -> NDArray[np.int64] | None:
        """Number the clusters; the labels of the rows that were evaluated, where they are known."""
        self._order, self.n_clusters_, labels = number_clusters(evaluation)
        self.objective_ = evaluation.objective
        if self.n_clusters_ == 1 < self.n_clusters:
            warnings.warn(COLLAPSED, CollapseWarning, stacklevel=4)
        return labels

    def _finish(self, X: Any, kept: NDArray[np.bool_], evaluation: Evaluation) -> None:
        """Number the clusters and label all rows, those of weight zero included."""
        labels = self._number(evaluation)
        self._labels = every = np.full(X.shape[0], -1, dtype=np.int64)
        every[kept] = labels
        if self._is_free():
            self._set_probabilities(kept)
        elif not kept.all():
            every[~kept] = self.predict(X[~kept])

    def _set_probabilities(self, kept: NDArray[np.bool_]) -> None:
        """Soft assignments of a free table; none of the rows it has not seen."""
        self.probabilities_ = free_probabilities(cast("FreeTable", self.module_), self._order, kept)
