"""Calls of the command line within this process, with checks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from data_files import Answer, pollux, tree
from pollux.app.settings import NAMES, Settings
from pollux.io import model_files, tensors

IN_PYTHON = re.compile(rf"\b({'|'.join(NAMES)})=")


def good(*arguments: object) -> Answer:
    answer = pollux(*arguments)
    assert answer.code == 0, answer
    return answer


def refused(*arguments: object, says: str = "") -> str:
    """Run a command that must fail, and return its error: one line without a traceback; no file may have changed."""
    before = tree(Path())
    answer = pollux(*arguments)
    assert answer.code == 2, answer
    assert answer.err.splitlines()[-1].startswith("pollux")
    assert "Traceback" not in answer.err
    assert says in answer.err
    assert not IN_PYTHON.search(answer.err), "an option is spelled as in Python"
    assert tree(Path()) == before
    assert answer.err.count("\n") == 1
    return answer.err


def summary_of(folder: Path | str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((Path(folder) / "summary.json").read_text())
    return summary


def settings(data: Path, **changes: Any) -> Settings:
    """Return the settings of a quick run."""
    plain = {"model": "mlp", "objective": "mmd_ova", "scaling": "standard", "missing": "error"}
    return Settings(data=str(data), n_clusters=3, **{**plain, "max_epochs": 3, "n_init": 1, **changes})


def read_model(folder: Path | str) -> tuple[dict[str, Any], Any]:
    """Return the tensors of a run's model file, and its metadata."""
    path = Path(folder) / "model.safetensors"
    return tensors.read(path, model_files.FORMAT, model_files.READABLE, "model file")


def same_run(a: Path | str, b: Path | str) -> None:
    """Assert that two runs are equal, bit by bit, except for the order of the parts of the model file."""
    for name in ("clusters.csv", "run.toml"):
        assert (Path(a) / name).read_bytes() == (Path(b) / name).read_bytes()
    left, right = read_model(a), read_model(b)
    assert left[1] == right[1]
    for name in left[0] | right[0]:
        assert torch.equal(left[0][name], right[0][name])


def same_rows(a: Path | str, b: Path | str) -> None:
    """Assert equal clusters, and equal probabilities up to the last of the four digits that are written."""
    left, right = (pd.read_csv(path, dtype={"name": str}) for path in (a, b))
    pd.testing.assert_frame_equal(left, right, rtol=1e-5, atol=1.01e-4)
