"""Errors name options in the words of whoever reads them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import pollux
from pollux import MLP, GeminiClustering, Training
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
    assert main(["fit", gaps, "--missing", "error", "--out", str(tmp_path / "run")]) == 2
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


def test_only_commands_spell_options_as_the_command_line_does() -> None:
    """Whatever Python users can meet is spelled by ``option``."""
    source = Path(pollux.__file__).parent
    found = []
    for path in sorted(source.rglob("*.py")):
        module = path.relative_to(source)
        if module.parts[0] in ("app", "lab") or str(module) == "errors.py":
            continue
        if not re.search(r"(?<![\w-])--[a-z]", path.read_text()):
            continue
        tree = ast.parse(path.read_text())
        documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
                # Options of torchrun are its own.
                text = re.sub(r"torchrun --[a-z-]+", "", node.value)
                if re.search(r"(?<![\w-])--[a-z]", text):
                    found.append(f"{module}:{node.lineno} {node.value}")
    assert not found


@pytest.mark.parametrize(
    ("parameters", "meant"),
    [
        ({"model": "softtree"}, "soft_tree"),
        ({"init": "kmean"}, "kmeans"),
        ({"preprocessing": "standart"}, "standard"),
        ({"penalties": {"vta": 1.0}}, "vat"),
        ({"objective": "mmd_ov"}, "mmd_ovo"),
        ({"geometry": "rfb"}, "rbf"),
        ({"geometry": "rfb:gamma=1", "objective": "mi"}, "rbf"),
        ({"model": MLP(activation="rellu")}, "relu"),
        ({"training": Training(optimiser="adan")}, "adam"),
    ],
    ids=str,
)
def test_misspelled_names_are_answered_with_the_name_that_was_meant(parameters: dict[str, Any], meant: str) -> None:
    with pytest.raises(ValueError, match=rf"Did you mean '{meant}'\?"):
        GeminiClustering(2, **parameters).fit(np.eye(8, 3))
