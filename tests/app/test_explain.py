"""``pollux explain``: what tells the clusters of a run apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pollux
from commands import good, refused, summary_of
from data_files import frame
from pollux.app import explain as command
from pollux.data import table_files
from pollux.trees import explanation
from report_pages import parse


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


def test_clusters_have_the_same_names_everywhere(run: Path) -> None:
    data = run.parent / "plain.csv"
    names = {each["cluster"]: each["name"] for each in summary_of(run)["clusters"]}
    assert all(names.values())
    found = json.loads(good("explain", run, "--json").out)
    assert {rule["cluster"]: rule["name"] for rule in found["rules"]} == names
    model = pollux.load(run / "model.safetensors")
    assert pollux.explain(model, pd.read_csv(data)).names == names
    good("report", run, "--out", "page.html")
    page = parse(Path("page.html").read_text(encoding="utf-8"))
    for cluster, name in names.items():
        assert (
            page.one("table", kind="clusters").one("tr", data_cluster=str(cluster)).one("b", kind="name").text == name
        )
    good("predict", run, data, "--with-data", "--out", "new.csv")
    new = pd.read_csv("new.csv")
    assert dict(zip(new["cluster"], new["cluster_name"], strict=True)).items() <= names.items()


def test_a_long_sorted_file_is_looked_at_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_MOST_ROWS", 40)
    monkeypatch.setattr(table_files, "ROWS_AT_ONCE", 30)
    kind = np.repeat([0, 1, 2], 200)
    table = pd.DataFrame({"a": kind * 10 + np.random.default_rng(0).normal(size=600), "b": np.arange(600) % 7 / 2})
    table.to_parquet("sorted.parquet")
    good("fit", "sorted.parquet", "--columns", "a", "--clusters", 3, "--epochs", 50, "--out", "run")
    answer = good("explain", "run")
    assert answer.out.count("(200 rows)") == 3


def test_rules_are_made_from_rows_drawn_at_random_whatever_the_order_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "_MOST_ROWS", 100)
    # Clusters take turns: rows at an even distance from each other are all of one.
    kind, noise = np.arange(1600) % 2, np.random.default_rng(0).normal(size=1600)
    pd.DataFrame({"a": kind * 10 + noise, "b": noise}).to_parquet("periodic.parquet")
    good("fit", "periodic.parquet", "--clusters", 2, "--epochs", 50, "--out", "run")
    found = json.loads(good("explain", "run", "--json").out)
    assert [rule["size"] for rule in found["rules"]] == [800, 800]
    monkeypatch.setattr(table_files, "ROWS_AT_ONCE", 30)
    assert json.loads(good("explain", "run", "--json").out) == found
    monkeypatch.setattr(explanation, "MOST_ROWS", 1500)
    assert "rules are made from 1,500 of 1,600 rows, drawn at random" in good("explain", "run").err


def test_clusters_of_given_sizes_are_told_as_they_were_assigned(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"a": np.r_[random.normal(size=50), random.normal(9, 1, 10)], "b": random.normal(size=60)})
    rows.to_csv("rows.csv", index=False)
    good("fit", "rows.csv", "--clusters", 2, "--min-size", 25, "--epochs", 2, "--restarts", 1, "--out", "run")
    assigned = pd.read_csv("run/clusters.csv")["cluster"]
    assert sorted(assigned.value_counts()) == [25, 35]
    found = json.loads(good("explain", "run", "--json").out)
    in_python = pollux.explain(assigned.to_numpy(), rows).to_dict()
    for told, expected in zip(found["rules"], in_python["rules"], strict=True):
        assert (told["size"], told["conditions"]) == (expected["size"], expected["conditions"])
