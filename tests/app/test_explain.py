"""``pollux explain``: what tells the clusters of a run apart."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

import pollux
from commands import good, refused
from data_files import frame


def test_the_clusters_of_a_run_are_told(run: Path) -> None:
    answer = good("explain", run)
    assert answer.out.count("cluster ") >= 2
    assert "Columns that matter: " in answer.out
    assert "|---" in good("explain", run, "--tree").out


def test_rows_of_another_file_are_told(run: Path) -> None:
    frame().to_csv("new.csv", index=False)
    found = json.loads(good("explain", run, "new.csv", "--json").out)
    assert sum(rule["size"] for rule in found["rules"]) == 30
    assert 0 <= found["fidelity"] <= 1


def test_what_cannot_be_told_is_refused(run: Path) -> None:
    refused("explain", "nowhere")
    refused("explain", run / "model.safetensors", says="pollux explain RUN DATA")
    refused("explain", run, "absent.csv")
    Path("cars.json").write_text("[]")
    assert "trained on" not in refused("explain", "cars.json")


def test_python_says_the_same_of_the_same_rows(run: Path) -> None:
    frame().to_csv("new.csv", index=False)
    found = json.loads(good("explain", run, "new.csv", "--json").out)
    model = pollux.load(run / "model.safetensors")
    assert pollux.explain(model, pd.read_csv("new.csv")).to_dict() == found
