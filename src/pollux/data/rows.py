"""Samples as batches of tensors, whatever they are stored in."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from pollux.data.moments import Moments

_PART_ELEMENTS = 10_000_000
# Types that may hold numbers which float32 cannot represent.
_WIDE = (torch.float64, torch.int64, torch.int32)


class Several:
    """Several inputs of a network for the same samples: arrays or tensors (n, …), by position or by name.

    ``len``, ``[…]`` and ``split`` act on the n samples. The shape is (n, shape of each), with the names.
    """

    def __init__(self, parts: Mapping[Any, Any], is_named: bool) -> None:
        self.parts, self.is_named = dict(parts), is_named

    @property
    def shape(self) -> tuple[Any, ...]:
        shapes = {name: tuple(part.shape[1:]) for name, part in self.parts.items()}
        return (len(self), *(shapes.items() if self.is_named else shapes.values()))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The widest floating-point type among them."""
        found = [part.dtype for part in self.parts.values() if part.dtype.kind == "f"]
        return np.result_type(np.float32, *found)

    @property
    def device(self) -> torch.device:
        first: Tensor = next(iter(self.parts.values()))
        return first.device

    def __len__(self) -> int:
        return int(next(iter(self.parts.values())).shape[0])

    def __getitem__(self, index: Any) -> Several:
        return Several({name: part[index] for name, part in self.parts.items()}, self.is_named)

    def split(self, size: int) -> list[Several]:
        return [self[first : first + size] for first in range(0, max(1, len(self)), size)]

    @staticmethod
    def joined(parts: Sequence[Several]) -> Several:
        """Concatenate samples (n, …), as arrays."""
        names = parts[0].parts
        return Several(
            {name: np.concatenate([part.parts[name] for part in parts]) for name in names}, parts[0].is_named
        )

    def pass_to(self, function: Callable[..., Any]) -> Any:
        """Call a function with these inputs."""
        return function(**self.parts) if self.is_named else function(*self.parts.values())


class Rows:
    """The n samples of X as tensors: ``rows[index]`` is (b, …), in one dtype and on one device.

    X is an array, a memory map, a scipy sparse matrix or a tensor; it is neither copied nor converted as a
    whole, only the rows that are requested. ``prepare`` is a map (b, …) → (b, …) that is applied to these.
    ``sample_weight`` are optional weights (n,). ``known`` caches what is computed about all samples, such as their
    neighbours.
    """

    def __init__(
        self,
        X: Any,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
        sample_weight: Tensor | None = None,
    ) -> None:
        self.known: dict[str, Any] = {}
        self._prepare, self.sample_weight = prepare, sample_weight
        self._source: Tensor | scipy.sparse.csr_array
        if scipy.sparse.issparse(X):
            self._source = scipy.sparse.csr_array(X)
        else:
            self._source = X.detach() if isinstance(X, Tensor) else share(np.asarray(X))
        stored = str(getattr(X, "dtype", self._source.dtype)).removeprefix("torch.")
        own = {"float32": torch.float32, "float64": torch.float64}.get(stored)
        self.dtype = dtype or own or torch.get_default_dtype()
        self.device = torch.device(device or (X.device if isinstance(X, Tensor) else "cpu"))
        self._last: tuple[Tensor, Tensor, tuple[int, int]] | None = None

    def __len__(self) -> int:
        return int(self._source.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        if self._prepare is None:
            return tuple(self._source.shape[1:])
        return tuple(self[torch.arange(min(1, len(self)))].shape[1:])

    def __getitem__(self, index: Tensor) -> Tensor:
        # The model and the geometry request the same batch, one after the other.
        if self._last is not None and self._last[0] is index:
            _, batch, versions = self._last
            # Unless one of them was modified since.
            if (index._version, batch._version) == versions:
                return batch
        if isinstance(self._source, Tensor):
            batch = self._source.index_select(0, index.to(self._source.device))
        else:
            batch = torch.from_numpy(self._source[index.numpy()].toarray())
        if self._prepare is not None:
            # Before rounding to ``dtype``: values far from zero differ in their last digits.
            batch = self._prepare(batch.to(torch.float64 if batch.dtype in _WIDE else self.dtype))
        batch = batch.to(self.device, self.dtype)
        # Tensors made in inference mode have no version counter.
        if not (index.is_inference() or batch.is_inference()):
            self._last = (index, batch, (index._version, batch._version))
        return batch

    def flat(self) -> Any:
        """All samples as vectors (n, d): an array, or a sparse matrix if they are stored as one."""
        if self._prepare is None and not isinstance(self._source, Tensor):
            return self._source
        everything = self._source if self._prepare is None else self[torch.arange(len(self))]
        return everything.flatten(1).cpu().numpy()

    def part(self, index: Tensor) -> Rows:
        """Some of the samples, computed and stored in memory."""
        weight = None if self.sample_weight is None else self.sample_weight[index.to(self.sample_weight.device)]
        return Rows(self[index], self.dtype, self.device, sample_weight=weight)

    def parts(self) -> Iterator[Tensor]:
        """Iterate over all samples in order, in parts (b, …)."""
        size = max(1, _PART_ELEMENTS // max(1, math.prod(self._source.shape[1:])))
        for index in torch.split(torch.arange(len(self)), size):
            yield self[index]

    def moments(self, sample_weight: Tensor | None = None) -> Moments:
        """Moments of the features, in float64; samples may have missing values (NaN) and weights (n,)."""
        weight = None if sample_weight is None else sample_weight.cpu().double().numpy()
        found, first = Moments.empty(self.shape), 0
        for part in self.parts():
            own = None if weight is None else weight[first : first + len(part)]
            found = found.merged(Moments.of(part.cpu().double().numpy(), own))
            first += len(part)
        return found

    def sample(self, size: int, seed: int = 0) -> Tensor:
        """At most ``size`` rows, drawn without replacement, always the same ones."""
        generator = torch.Generator().manual_seed(seed)
        index = torch.randperm(len(self), generator=generator)[:size].sort().values
        return self[index]


class SeveralRows(Rows):
    """The n samples of several inputs as tensors; integers and booleans keep their types."""

    def __init__(self, X: Several, dtype: torch.dtype, device: torch.device | str) -> None:
        kinds = {"f": dtype, "b": torch.bool}
        self._rows = {
            name: Rows(part, kinds.get(part.dtype.kind, torch.int64), device) for name, part in X.parts.items()
        }
        self._X, self.dtype, self.device, self.known = X, dtype, torch.device(device), {}
        self.sample_weight = None

    def __len__(self) -> int:
        return len(self._X)

    @property
    def shape(self) -> tuple[Any, ...]:
        return self._X.shape[1:]

    def __getitem__(self, index: Tensor) -> Any:
        return Several({name: rows[index] for name, rows in self._rows.items()}, self._X.is_named)


def as_rows(X: Any) -> Rows:
    return X if isinstance(X, Rows) else Rows(X)


def share(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor that shares the memory of a read-only array; a copy for dtypes that torch does not support."""
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64 if array.dtype.itemsize < 8 else np.float64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if any(stride < 0 for stride in array.strides) or not array.dtype.isnative:
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
