"""What the page says of the paper's experiments is what results/ records."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from benchmark_scripts import benchmark_script
from pollux.lab import records
from pollux.lab.grid import model_path
from pollux.lab.paper import EXPERIMENTS, outliers

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def reproduction() -> ModuleType:
    """The script, which reads what is recorded of an experiment once."""
    script = benchmark_script("reproduction")
    script.report = cache(script.report)  # type: ignore[attr-defined]
    return script


def test_the_page_shows_what_is_recorded(reproduction: ModuleType) -> None:
    text = reproduction.PAGE.read_text(encoding="utf-8")
    assert reproduction.filled(text) == text, "run python benchmarks/reproduction.py"


def test_the_page_has_a_section_for_each_experiment(reproduction: ModuleType) -> None:
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert set(reproduction.REQUESTS) == set(EXPERIMENTS)
    for name in EXPERIMENTS:
        assert f"\n## {name}\n" in text
        assert f"<!-- {name}:begin -->" in text


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_something_of_each_experiment_is_recorded(reproduction: ModuleType, name: str) -> None:
    made = reproduction.report(name)
    assert made.records
    assert all(record.versions and record.seconds > 0 for record in made.records)


@pytest.mark.parametrize("name", ["categorical", "outliers", "moons", "mi-boundaries", "ova-vs-ovo", "complexity"])
def test_the_protocol_is_recorded_whole(reproduction: ModuleType, name: str) -> None:
    made = reproduction.report(name)
    _, protocol = reproduction.chosen(name)
    assert len(made.records) == len(protocol.all_runs(name))
    assert not made.departure


def test_each_cell_of_the_outliers_has_sixty_runs(reproduction: ModuleType) -> None:
    (table,) = outliers.tables(reproduction.report("outliers").records)
    for row in table.rows[:-1]:
        for cell in (cell for cell in row.cells if cell.published is not None):
            assert cell.measured is not None
            assert cell.measured.runs == 60


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_models_that_figures_need_are_here(name: str) -> None:
    for record in records.read(RESULTS / f"{name}.jsonl").values():
        if EXPERIMENTS[name].saves_model(record.run):
            assert model_path(RESULTS, record.run).exists()
