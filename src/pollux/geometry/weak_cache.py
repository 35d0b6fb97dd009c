"""A cache of values computed from objects, each of which is kept as long as its object lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from torch import Tensor

Value = TypeVar("Value")


class WeakCache(Generic[Value]):
    """Values by the identity of the object that they describe; those of a tensor are dropped when it is written to."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[Any], Hashable, Value]] = {}

    def get(self, about: Any, make: Callable[[], Value], variant: Hashable = None) -> Value:
        """The cached value for the object, or else that of ``make()``, which replaces other variants in the cache."""
        version: Hashable = variant
        if isinstance(about, Tensor):
            if about.is_inference():
                # The tensor has no version counter, so a cached value could be out of date.
                return make()
            version = (about._version, about.data_ptr(), variant)
        key = id(about)
        found = self._kept.get(key)
        if found is not None and found[0]() is about and found[1] == version:
            return found[2]
        value = make()
        self._kept[key] = (weakref.ref(about, lambda _: self._kept.pop(key, None)), version, value)
        return value

    def __len__(self) -> int:
        return len(self._kept)
