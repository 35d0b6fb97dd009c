"""The compiled part: exact transport, training steps of small networks, k-means, splits of trees.

It is built where there is a C++ compiler. Elsewhere POT, autograd and NumPy compute the same.
"""

from __future__ import annotations

import functools
from types import ModuleType


@functools.cache
def load_compiled() -> ModuleType | None:
    """Return the compiled module, or None if it was not built."""
    try:
        from pollux.native import _compiled
    except ImportError:
        return None
    return _compiled if hasattr(_compiled, "transport_gradient") else None
