"""The benchmarks of scale run, and what they put into a page."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
in_full = pytest.mark.skipif(os.environ.get("POLLUX_FAULTS") != "full", reason="make test-faults runs it")


@pytest.fixture(scope="module")
def scale() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("scale")


@in_full
def test_a_step_sends_what_the_formula_says(scale: ModuleType) -> None:
    batch = 20
    sent = scale.in_own_process("messages", processes=2, tasks=scale.OBJECTIVES, batch=batch)["steps"]
    expected = [scale.predicted_bytes(objective, geometry, batch) for objective, geometry in scale.OBJECTIVES]
    assert [step["bytes"] for step in sent] == expected


@in_full
def test_fits_are_compared(scale: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sizes = scale.Sizes((1_500, 3_000), 500, 0, (), turns=1, at_most=0)
    row = next(scale.streaming(sizes, threads=1))
    assert row.work == "epoch from Parquet against memory, 3,000 rows, linear"
    assert row.ours > 0
    assert row.peer > 0
    assert sorted(path.name for path in (tmp_path / "pollux-scale").iterdir()) == ["3000-500.npy", "3000-500.parquet"]


def test_tables_are_put_between_their_marks(scale: ModuleType) -> None:
    page = "# Title\n<!-- cost:begin -->\nold\n<!-- cost:end -->\nrest\n"
    assert scale.filled(page, {"cost": "new\n"}) == "# Title\n<!-- cost:begin -->\nnew\n<!-- cost:end -->\nrest\n"
    with pytest.raises(ValueError, match="the page has 0 places between <!-- scale:begin"):
        scale.filled(page, {"scale": "new"})
