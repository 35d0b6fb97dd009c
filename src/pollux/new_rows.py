"""Methods that speak of rows a model may not have seen."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any


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
