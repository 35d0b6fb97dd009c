"""Scripts of benchmarks/ as modules, to test their results and files."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def benchmark_script(name: str) -> ModuleType:
    """Import a script as a module; it can import its neighbours, as when it is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module(name)
