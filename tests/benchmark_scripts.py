"""Scripts of benchmarks/, for tests of what they find and write."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def benchmark_script(name: str) -> ModuleType:
    """That script as a module; it finds those beside it, as it does when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)
