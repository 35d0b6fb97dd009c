"""Geometries that compare samples two by two: kernels and distances, batch by batch."""

from __future__ import annotations

import inspect
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from pollux.data.rows import Rows, as_rows
from pollux.geometry.affinity import Affinity, Block, Features
from pollux.ranks import Ranks

Kind: TypeAlias = Literal["kernel", "distance"]

_SAMPLE_SIZE = 1000


class Geometry(ABC):
    """How samples relate. ``bind(X)`` returns a function from the index of a batch to its affinity.

    A custom geometry describes its affinity by the properties below; those of an adapted geometry hold for the samples
    that it was adapted to.
    """

    kind: Kind

    @property
    def needs_all_samples(self) -> bool:
        """Whether the affinity of a batch depends on all samples, so that these must be in memory."""
        return True

    @property
    def gives_features(self) -> bool:
        """Whether the affinity is a kernel given by :class:`Features`, rather than a matrix."""
        return False

    @property
    def gives_paths(self) -> bool:
        """Whether the affinity is distances along a graph, given by :class:`Paths`, rather than a matrix."""
        return False

    @property
    def adapts(self) -> bool:
        """Whether :meth:`adapt` estimates anything from the data."""
        return False

    @abstractmethod
    def bind(self, X: Any) -> Block:
        """Return a function ``index (b,) → affinity`` of those rows of X: a matrix (b, b), or features (b, r)."""

    def adapt(self, X: Any) -> Geometry:
        """The same geometry with its data-dependent parameters, such as a bandwidth, estimated from X and fixed."""
        return self

    def for_clusters(self, n_clusters: int) -> Geometry:
        """The same geometry with parameters that depend on the number of clusters fixed."""
        return self

    def of(self, x: Tensor, ranks: Ranks | None = None) -> Affinity:
        """The affinity of the samples x (b, …) with each other.

        With several processes each passes its own samples: it gets a matrix of all of them, or the features of its own.
        """
        everything = x if ranks is None else ranks.gather(x, 0)
        affinity = self.bind(everything)(torch.arange(len(everything)))
        if ranks is None or not isinstance(affinity, Features):
            return affinity
        sizes = ranks.sizes(len(x))
        return Features(torch.split(affinity.values, sizes)[ranks.rank], affinity.centred)


def _keywords(function: Callable[..., Any]) -> list[str]:
    """The names of the keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def is_whole(value: Any) -> bool:
    """Whether a parameter is an integer, of Python or NumPy."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


@dataclass(frozen=True)
class Pairwise(Geometry):
    """A kernel or a distance between two samples.

    Parameters
    ----------
    name : str
        Its name.
    kind : {"kernel", "distance"}
        What it is.
    function : callable
        ``function(x, y, **parameters)``: x (n, d), y (m, d) → (n, m).
    features : callable, optional
        ``features(x, **parameters)``: x (n, d) → (n, r), whose products are the kernel.
    has_features : callable, optional
        ``has_features(d, **parameters)``: whether samples (n, d) have features; otherwise the matrix is used.
    adapt_parameters : callable, optional
        ``adapt_parameters(x, **parameters)`` → all parameters, missing ones being estimated from the samples x.
    parameters : mapping
        Keyword arguments of the functions above.
    """

    name: str
    kind: Kind
    function: Callable[..., Tensor]
    features: Callable[..., Tensor] | None = None
    adapt_parameters: Callable[..., Mapping[str, Any]] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    has_features: Callable[..., bool] | None = None

    def __repr__(self) -> str:
        parameters = "".join(f", {name}={value!r}" for name, value in self.parameters.items())
        return f"Pairwise({self.name!r}, {self.kind!r}{parameters})"

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """The kernel or the distances (n, m) between samples x (n, d) and y (m, d), or within x."""
        for samples in (x, x if y is None else y):
            if samples.ndim != 2:
                advice = "flatten each of them, x.flatten(1)" if samples.ndim > 2 else "one feature is x[:, None]"
                shape = tuple(samples.shape)
                raise ValueError(f"The {self.kind} {self.name!r} compares samples (n, d); these are {shape}: {advice}.")
        return self.function(x, x if y is None else y, **self.parameters)

    def with_parameters(self, **parameters: Any) -> Pairwise:
        """The same with other parameters."""
        valid = _keywords(self.adapt_parameters or self.function)
        unknown = sorted(set(parameters) - set(valid))
        if unknown:
            takes = f"takes {', '.join(valid)}" if valid else "takes no parameters"
            raise ValueError(f"The {self.name} {self.kind} {takes}; not {', '.join(unknown)}.")
        gamma = parameters.get("gamma")
        # Where an offset goes with it, it is a factor of inner products, which may be negative.
        is_width = isinstance(gamma, numbers.Real) and "coef0" not in valid
        if is_width and not 0 < float(gamma) < math.inf:  # type: ignore[arg-type]
            raise ValueError(f"gamma is a positive number, not {gamma}.")
        return replace(self, parameters=parameters)

    @property
    def needs_all_samples(self) -> bool:
        return False

    @property
    def gives_features(self) -> bool:
        return self.features is not None

    @property
    def adapts(self) -> bool:
        if self.features is not None and self.has_features is not None:
            return True
        return self.adapt_parameters is not None and any(
            self.parameters.get(name) is None for name in _keywords(self.adapt_parameters)
        )

    def adapt(self, X: Any) -> Pairwise:
        if not self.adapts:
            return self
        sample = as_rows(X).sample(_SAMPLE_SIZE).flatten(1)
        adapted = self if self._has_features(sample.shape[1]) else replace(self, features=None)
        if self.adapt_parameters is None:
            return adapted
        return replace(adapted, parameters=self.adapt_parameters(sample, **self.parameters))

    def _has_features(self, d: int) -> bool:
        if self.features is None or self.has_features is None:
            return self.features is not None
        return self.has_features(d, **self.parameters)

    def bind(self, X: Any) -> Block:
        rows = as_rows(X)
        adapted = self.adapt(rows)
        return lambda index: adapted.between(rows[index].flatten(1))

    def of(self, x: Tensor, ranks: Ranks | None = None) -> Affinity:
        return self.between(x.flatten(1), ranks)

    def between(self, x: Tensor, ranks: Ranks | None = None) -> Affinity:
        """The affinity of the samples x (b, d) with each other."""
        if self.features is not None and self._has_features(x.shape[1]):
            features = Features(self.features(x, **self.parameters))
            # With several processes the objective centres: only it knows the mean over all of them.
            return features.centre() if ranks is None else features
        x = x if ranks is None else ranks.gather(x, 0)
        matrix = self(x)
        if not isinstance(matrix, Tensor) or matrix.shape != (len(x), len(x)):
            shape = tuple(getattr(matrix, "shape", ()))
            raise ValueError(
                f"The {self.kind} {self.name!r} must map (n, d) and (m, d) to an (n, m) tensor; for two times "
                f"{len(x)} rows it returned {type(matrix).__name__} of shape {shape}."
            )
        return matrix


@dataclass(frozen=True)
class Encoded(Geometry):
    """A kernel or distance between the features of a frozen encoder, which are computed once.

    Parameters
    ----------
    encoder : callable
        A module (used in evaluation mode) or function from samples (b, …) to features (b, r).
    geometry : Geometry
        The geometry that compares the features.
    batch_size : int
        How many samples are encoded at once.
    """

    encoder: Callable[[Tensor], Tensor]
    geometry: Geometry
    batch_size: int = 1000

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """The kind of the geometry that compares the features."""
        return self.geometry.kind

    @property
    def needs_all_samples(self) -> bool:
        return self.geometry.needs_all_samples

    @property
    def gives_features(self) -> bool:
        return self.geometry.gives_features

    @property
    def gives_paths(self) -> bool:
        return self.geometry.gives_paths

    @property
    def adapts(self) -> bool:
        return self.geometry.adapts

    def for_clusters(self, n_clusters: int) -> Encoded:
        return replace(self, geometry=self.geometry.for_clusters(n_clusters))

    def adapt(self, X: Any) -> Encoded:
        if not self.adapts:
            return self
        sample = as_rows(X).sample(_SAMPLE_SIZE)
        return replace(self, geometry=self.geometry.adapt(self._encode(sample)))

    def bind(self, X: Any) -> Block:
        rows = as_rows(X)
        batches = torch.split(torch.arange(len(rows)), self.batch_size)
        features = torch.cat([self._encode(rows[index]) for index in batches])
        return self.geometry.bind(Rows(features, rows.dtype, rows.device))

    def of(self, x: Tensor, ranks: Ranks | None = None) -> Affinity:
        return self.geometry.of(self._encode(x), ranks)

    @torch.no_grad()
    def _encode(self, x: Tensor) -> Tensor:
        if not isinstance(self.encoder, torch.nn.Module):
            return self.encoder(x)
        modes = [(layer, layer.training) for layer in self.encoder.modules()]
        self.encoder.eval()
        parameter = next(self.encoder.parameters(), x)
        try:
            features: Tensor = self.encoder(x.to(parameter.device, parameter.dtype))
            return features
        finally:
            for layer, training in modes:
                layer.training = training
