"""Every command is given in a folder of its own, with a table in it where a test asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_files import frame, write_table


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_table(tmp_path, "plain.csv", frame())
    return tmp_path / "plain.csv"
