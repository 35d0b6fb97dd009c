"""Which program solves transport problems: the compiled solvers, or POT where they were not built."""

from __future__ import annotations

import functools
import os
import warnings
from types import ModuleType
from typing import Literal

VARIABLE = "POLLUX_TRANSPORT_ENGINE"


class SlowTransportWarning(UserWarning):
    """The compiled solver is not there: POT solves transport problems, with the same results but slower."""


@functools.cache
def native() -> ModuleType | None:
    """The compiled solvers, or None and one notice."""
    wanted = os.environ.get(VARIABLE, "native")
    if wanted not in ("native", "pot"):
        raise ValueError(f"{VARIABLE} must be 'native' or 'pot', not {wanted!r}.")
    if wanted == "pot":
        return None
    try:
        from pollux.native import _compiled
    except ImportError as error:
        warnings.warn(
            f"Pollux was installed without its compiled transport solver ({error}): POT does the work, with the same "
            f"results but many times slower. Install it again with a C++ compiler available. "
            f"{VARIABLE}=pot in the environment asks for POT, without this notice.",
            SlowTransportWarning,
            stacklevel=2,
        )
        return None
    return _compiled


def engine() -> Literal["native", "pot"]:
    """What solves transport problems: ``"native"``, the compiled solver, or ``"pot"`` where it was not built.

    Examples
    --------
    >>> import pollux.transport
    >>> pollux.transport.engine() in ("native", "pot")
    True
    """
    return "pot" if native() is None else "native"
