"""Selection of the solver of transport problems: the compiled ones, or POT if they were not built."""

from __future__ import annotations

import functools
import os
import warnings
from types import ModuleType
from typing import Literal

VARIABLE = "POLLUX_TRANSPORT_ENGINE"


class SlowTransportWarning(UserWarning):
    """The compiled solver was not built: POT solves transport problems, with the same results but slower."""


@functools.cache
def native() -> ModuleType | None:
    """The compiled solvers; None, with a warning on the first call, if they were not built."""
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
    """The solver of transport problems: ``"native"``, the compiled one, or ``"pot"`` if it was not built.

    Examples
    --------
    >>> import pollux.transport
    >>> pollux.transport.engine() in ("native", "pot")
    True
    """
    return "pot" if native() is None else "native"
