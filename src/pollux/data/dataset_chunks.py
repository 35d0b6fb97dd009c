"""Chunks of a dataset of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, TensorDataset

from pollux.data.chunks import Chunks, Rows, check_length, check_rows, checked_dtype, digest
from pollux.errors import InputError

_ITEMS_OF_CHUNK = 1_024


class DatasetChunks(Chunks):
    """A map-style dataset, one with a length and items by number, in chunks of consecutive items.

    An item is a tensor or an array, or a tuple, list or mapping whose first value is one; what else is in it, such as a
    label, is not read. Items are asked for in a background thread. The fingerprint knows the kind and the size of the
    dataset, not what lies in it.
    """

    def __init__(self, dataset: Dataset[Any], *, dtype: Any = "float32", items: int = _ITEMS_OF_CHUNK) -> None:
        n = _length(dataset)
        self.dataset = dataset
        self.dtype = checked_dtype(dtype)
        self._items = items
        self.lengths = np.diff(np.append(np.arange(0, n, items), n)).astype(np.int64)
        self.shape = _sample(dataset[0], 0).shape

    def read(self, chunk: int) -> Rows:
        first = chunk * self._items
        numbers = range(first, first + int(self.lengths[chunk]))
        with np.errstate(over="ignore"):
            rows = self._read(numbers)
        check_rows(rows, lambda row: f"{type(self.dataset).__name__}, row {first + row}", None)
        return rows

    def _read(self, numbers: range) -> Rows:
        if type(self.dataset) is TensorDataset:
            tensor = self.dataset.tensors[0][numbers.start : numbers.stop]
            return np.ascontiguousarray(_array(tensor), dtype=self.dtype)
        get_all = getattr(self.dataset, "__getitems__", None)
        found = [self.dataset[index] for index in numbers] if get_all is None else list(get_all(list(numbers)))
        check_length(len(found), len(numbers), f"{type(self.dataset).__name__}, from item {numbers.start} on,")
        rows = np.empty((len(numbers), *self.shape), dtype=self.dtype)
        for row, (index, item) in enumerate(zip(numbers, found, strict=True)):
            sample = _sample(item, index)
            if sample.shape != self.shape:
                raise InputError(f"Item {index} of the dataset has the shape {sample.shape}; item 0 has {self.shape}.")
            rows[row] = sample
        return rows

    def fingerprint(self) -> str:
        kind = type(self.dataset)
        return digest(kind.__module__, kind.__qualname__, self.lengths.tolist(), list(self.shape), self.dtype.name)

    def subdivided(self, parts: int) -> Chunks:
        if len(self.lengths) >= parts:
            return self
        return DatasetChunks(self.dataset, dtype=self.dtype, items=max(1, int(self.lengths.sum()) // parts))


def _length(dataset: Any) -> int:
    try:
        n = len(dataset)
    except TypeError as error:
        raise InputError(f"{type(dataset).__name__} has no length: a map-style dataset is needed.") from error
    if not n:
        raise InputError(f"{type(dataset).__name__} is empty.")
    return int(n)


def _sample(item: Any, index: int) -> NDArray[Any]:
    """The sample in an item, as an array (d,) or (C, H, W)."""
    if isinstance(item, Mapping):
        item = next(iter(item.values()), None)
    elif isinstance(item, Sequence) and not isinstance(item, str) and len(item):
        item = item[0]
    array = _array(item)
    if array.dtype.kind not in "bifu" or not array.ndim:
        raise InputError(
            f"Item {index} of the dataset must be a tensor or an array of numbers, or begin with one; it has "
            f"{type(item).__name__}."
        )
    return array


def _array(item: Any) -> NDArray[Any]:
    if isinstance(item, torch.Tensor):
        item = item.detach().cpu()
        # numpy has no bfloat16.
        return np.asarray((item.float() if item.dtype == torch.bfloat16 else item).numpy())
    return np.asarray(item)
