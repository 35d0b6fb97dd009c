"""Errors name options in the words of whoever reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from pollux.app.cli import main
from pollux.data.shuffling import read_ahead
from pollux.data.streams import open_stream
from pollux.errors import InputError, command_line, option


@pytest.fixture
def gaps(tmp_path: Path) -> str:
    path = tmp_path / "gaps.parquet"
    parquet.write_table(pa.table({"a": [1.0, None, 3.0], "b": [3.0, 1.0, 2.0]}), path)
    return str(path)


def test_python_users_read_python(gaps: str) -> None:
    with pytest.raises(InputError, match=r"missing='mean'") as caught:
        open_stream(gaps, standardise=True)
    assert "--" not in str(caught.value)


def test_users_of_the_command_line_read_options(gaps: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["fit", gaps, "--out", str(tmp_path / "run")]) == 2
    printed = capsys.readouterr().err
    assert "--missing mean" in printed
    assert "missing=" not in printed


def test_threads_that_read_ahead_speak_as_their_reader() -> None:
    def named(task: str, stopped: object) -> str:
        return option("missing", task)

    with command_line():
        assert list(read_ahead(named, ["mean"])) == ["--missing mean"]
    assert list(read_ahead(named, ["mean"])) == ["missing='mean'"]


def test_the_context_ends_with_the_command() -> None:
    with pytest.raises(InputError), command_line():
        raise InputError("as a command may")
    assert option("missing") == "missing="
