"""What is done to raw samples before a model and a geometry see them: gaps filled, one scale, fewer dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from sklearn.utils import check_array
from torch import Tensor

from pollux.data.axes import principal_axes
from pollux.data.moments import Moments
from pollux.data.rows import Rows
from pollux.data.units import learn_units


@dataclass(frozen=True, eq=False)
class FittedScaling:
    """A map of samples x to (x − centre) / scale, or to principal components of that.

    Parameters
    ----------
    centre : Tensor of the shape of a sample
        What is subtracted; it stands for a value that is missing, too.
    scale : Tensor of shape () or that of a sample
        What the rest is divided by.
    axes : Tensor of shape (d, r), optional
        Directions that the rest, as a vector, is projected on.
    fill : Tensor of the shape of a sample, optional
        What stands for a value that is missing, where that is not the centre.
    """

    centre: Tensor
    scale: Tensor
    axes: Tensor | None = None
    fill: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample after it."""
        return tuple(self.centre.shape) if self.axes is None else (self.axes.shape[1],)

    def __call__(self, samples: Tensor) -> Tensor:
        """Samples (n, …) as the model sees them."""
        known = (self.centre, self.scale, self.centre if self.fill is None else self.fill)
        centre, scale, fill = (value.to(samples.device, samples.dtype) for value in known)
        moved = (torch.where(samples.isnan(), fill, samples) - centre) / scale
        return moved if self.axes is None else moved.flatten(1) @ self.axes.to(samples.device, samples.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    @staticmethod
    def fit(
        X: Any, scaling: str = "auto", n_components: int | None = None, sample_weight: Tensor | None = None
    ) -> FittedScaling:
        """Learn the map from samples X (n, …), some of whose values may be NaN.

        Parameters
        ----------
        X : array, sparse matrix or tensor
            The samples.
        scaling : {"none", "auto", "standard", "global"}
            As for :func:`pollux.data.units.learn_units`. Principal components are always those of centred values.
        n_components : int, optional
            Keep so many principal components, where samples have more dimensions; fewer where they vary along fewer.
        sample_weight : Tensor of shape (n,), optional
            Weights of the samples.
        """
        moments = Rows(X, torch.float64).moments(sample_weight)
        fitted = FittedScaling.of(moments, scaling)
        if n_components is None or n_components >= math.prod(fitted.centre.shape):
            return fitted
        mean = torch.from_numpy(moments.mean)
        mapped = Rows(X, torch.float64, prepare=FittedScaling(mean, fitted.scale))
        axes = principal_axes(mapped, torch.zeros_like(mean), n_components, sample_weight)
        return FittedScaling(mean, fitted.scale, axes)

    @staticmethod
    def of(moments: Moments, scaling: str = "auto") -> FittedScaling:
        """The map for samples of these moments, wherever they are: in memory, or read in parts."""
        centre, scale, fill = (torch.as_tensor(values) for values in learn_units(moments, scaling))
        return FittedScaling(centre, scale, fill=fill if scaling == "none" else None)


class FittedTransformer:
    """A fitted transformer of scikit-learn as a map of samples.

    Parameters
    ----------
    transformer : transformer
        From samples (n, …) to samples (n, d), some at a time.
    example : array of shape (1, …)
        A sample that it can transform.
    """

    def __init__(self, transformer: Any, example: Any) -> None:
        self.transformer = transformer
        self.shape: tuple[int, ...] = tuple(self(example).shape[1:])

    def __call__(self, X: Any) -> Any:
        """Samples as the model sees them: an array or a sparse matrix."""
        return check_array(self.transformer.transform(X), accept_sparse="csr", allow_nd=True, ensure_min_samples=0)


def prepared(
    X: Any, scaling: FittedScaling | FittedTransformer | None, dtype: torch.dtype, device: torch.device | str
) -> Rows:
    """The rows of X after a scaling; those that lose dimensions are computed once."""
    if isinstance(scaling, FittedTransformer):
        return Rows(scaling(X), dtype, device)
    if scaling is None or scaling.axes is None:
        return Rows(X, dtype, device, scaling)
    return Rows(torch.cat(list(Rows(X, dtype, device, scaling).parts())), dtype, device)
