"""What is done to raw samples before a model and a geometry see them: gaps filled, one scale, fewer dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from pollux.data.preprocessing.scales import decided
from pollux.data.rows import Rows
from pollux.data.statistics import Moments, moments, parts, principal_axes

SCALINGS = ("none", "auto", "standard", "global")
MISSING = ("error", "mean")

_NEARLY_CONSTANT = 1e-12


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
            Each feature to mean zero and variance one ("standard"), or all by one number, so that their mean variance
            is one ("global"). "auto": "global" where the ranges of features are alike, as those of pixels are, else
            "standard". "none": the values as they are, with their gaps filled; principal components are those of
            centred ones.
        n_components : int, optional
            Keep so many principal components, where samples have more dimensions; fewer where they vary along fewer.
        sample_weight : Tensor of shape (n,), optional
            Weights of the samples.
        """
        found = moments(Rows(X, torch.float64), sample_weight)
        scaling = decided(scaling, (found.high - found.low).flatten().numpy())
        scale, nothing = _SCALES[scaling](found), torch.zeros_like(found.mean)
        if n_components is None or n_components >= math.prod(found.mean.shape):
            return (
                FittedScaling(found.mean, scale)
                if scaling != "none"
                else FittedScaling(nothing, scale, fill=found.mean)
            )
        mapped = Rows(X, torch.float64, prepare=FittedScaling(found.mean, scale))
        return FittedScaling(found.mean, scale, principal_axes(mapped, nothing, n_components, sample_weight))


def _standard(found: Moments) -> Tensor:
    deviation = found.variance.sqrt()
    # Rounding leaves a constant feature with a variance near zero.
    is_constant = deviation <= _NEARLY_CONSTANT * torch.maximum(found.low.abs(), found.high.abs())
    return torch.where(is_constant, 1.0, deviation)


def _global(found: Moments) -> Tensor:
    deviation = found.variance.mean().sqrt()
    return torch.where(deviation > 0, deviation, 1.0)


_SCALES = {"none": lambda found: torch.ones((), dtype=torch.float64), "standard": _standard, "global": _global}


def prepared(X: Any, scaling: FittedScaling | None, dtype: torch.dtype, device: torch.device | str) -> Rows:
    """The rows of X after a scaling; those that lose dimensions are worked out once."""
    if scaling is None or scaling.axes is None:
        return Rows(X, dtype, device, scaling)
    return Rows(torch.cat(list(parts(Rows(X, dtype, device, scaling)))), dtype, device)
