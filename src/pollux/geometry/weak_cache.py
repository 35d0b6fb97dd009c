"""A cache of what was worked out about objects, which lasts as long as each object lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from torch import Tensor

Value = TypeVar("Value")


class WeakCache(Generic[Value]):
    """Values by the identity of the objects they are about; those about tensors hold until these are written to."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[Any], Hashable, Value]] = {}

    def get(self, about: Any, make: Callable[[], Value], variant: Hashable = None) -> Value:
        """What is kept about the object, or what ``make`` returns, kept from now on in place of other variants."""
        version: Hashable = variant
        if isinstance(about, Tensor):
            if about.is_inference():
                # It does not count how often it was written to: what is known may not hold.
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
