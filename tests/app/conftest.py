"""Runs that the tests of all commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_files import FAST, frame, pixels, pollux
from data_files import write_images as images_in
from data_files import write_table as table_in


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a table, with what it was made of beside it."""
    folder = tmp_path_factory.mktemp("runs")
    table_in(folder, "plain.csv", frame())
    answer = pollux("fit", folder / "plain.csv", *FAST, "--label", "class", "--out", folder / "run")
    assert answer.code == 0, answer
    return folder / "run"


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a folder of images."""
    folder = tmp_path_factory.mktemp("pictures")
    images_in(folder / "images", pixels(12, 8, 8), names=lambda index: f"{'ab'[index % 2]}/{index:02}.png")
    answer = pollux("fit", folder / "images", *FAST, "--label", "folder", "--out", folder / "run")
    assert answer.code == 0, answer
    return folder / "run"
