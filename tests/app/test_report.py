"""``pollux report`` and ``pollux export``; the contents of what they write are tested elsewhere."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import good, refused, summary_of
from data_files import FAST, frame, pixels, pollux, write_bytes
from data_files import write_table as table_in
from pollux.app import report
from pollux.app.report import gather_findings

PROBABILITIES = ["p_0", "p_1", "p_2"]


def test_a_report_is_written(run: Path) -> None:
    data = run.parent / "plain.csv"
    np.save("map.npy", np.random.default_rng(0).normal(size=(30, 2)))
    for options in (
        [],
        [data],
        ["--label", "colour"],
        ["--label", ""],
        ["--map", "size,weight"],
        ["--map", "map.npy"],
        [table_in(Path(), "table.parquet", frame(12, seed=1))],
        [table_in(Path(), "tabs.tsv", frame(12, seed=1).drop(columns=["class", "name"]))],
    ):
        answer = good("report", run, *options, "--out", "new.html")
        assert answer == (0, "report written to new.html\n", "")
        assert "<html" in Path("new.html").read_text()[:500]
        Path("new.html").unlink()
    good("report", run / "model.safetensors", data, "--out", "new.html")


def test_a_report_lies_in_the_run(run: Path) -> None:
    good("fit", run.parent / "plain.csv", *FAST, "--out", "new")
    good("report", "new")
    assert Path("new/report.html").stat().st_size > 1000


def test_reports_of_arrays_images_and_free_tables_are_written(run: Path, pictures: Path) -> None:
    good("report", pictures, "--out", "images.html")
    X = np.random.default_rng(0).normal(size=(20, 3))
    np.savez("array.npz", X=X, y=np.arange(20) % 3)
    good("fit", "array.npz", *FAST, "--label", "y", "--out", "new")
    good("report", "new", "--map", "0,2")
    refused("report", "new", "--map", "0,3", says="0,3")
    np.save("coloured.npy", pixels(12, 8, 8, 3))
    good("fit", "coloured.npy", *FAST, "--out", "coloured")
    good("report", "coloured")
    good("fit", run.parent / "plain.csv", *FAST, "--model", "free", "--out", "free")
    good("report", "free")
    refused("report", "free", table_in(Path(), "plain.csv", frame(12)), says="free table")


def test_reports_of_rows_that_lack_values_are_written() -> None:
    data = frame()
    data.loc[[3, 4], "size"] = np.nan
    table_in(Path(), "plain.csv", data)
    np.save("map.npy", np.random.default_rng(0).normal(size=(30, 2)))
    for missing in ("mean", "drop"):
        good("fit", "plain.csv", *FAST, "--missing", missing, "--out", missing)
        good("report", missing)
        good("report", missing, "--map", "map.npy")
        good("report", missing, "--map", "size,weight")


def test_what_cannot_be_reported_is_said(run: Path) -> None:
    np.save("map.npy", np.ones((3, 2)))
    refused("report", run, "--map", "size", says="two axes")
    refused("report", run, "--map", "size,nothing", says="'nothing'")
    refused("report", run, "--map", "size,colour", says="numbers")
    refused("report", run, "--map", "map.npy", says="(30, 2)")
    refused("report", run, "--map", "nowhere.npy", says="nowhere.npy")
    refused("report", run, "--label", "nothing", says="'nothing'")
    refused("report", run, "nowhere.csv", says="nowhere.csv")
    refused("report", run / "model.safetensors", says="pollux report RUN DATA")
    refused("report", run, "--out", "nowhere/new.html", says="nowhere")


def test_a_run_that_is_not_there_is_said_to_be_missing() -> None:
    refused("report", "nowhere", says="no run nowhere")


def test_a_run_whose_data_have_gone_says_so() -> None:
    good("fit", table_in(Path(), "plain.csv", frame()), *FAST, "--out", "run")
    Path("plain.csv").unlink()
    refused("report", "run", says="plain.csv")


def test_a_model_is_exported(run: Path, pictures: Path) -> None:
    for folder in (run, run / "model.safetensors", pictures):
        answer = good("export", folder, "--onnx", "new.onnx")
        assert answer.out.startswith("model written to new.onnx")
        assert answer.err == ""
        assert Path("new.onnx").stat().st_size > 1000
        Path("new.onnx").unlink()
    refused("export", "nowhere", "--onnx", "new.onnx", says="nowhere")
    refused("export", run, "--onnx", "nowhere/new.onnx", says="nowhere")


def test_a_broken_run_is_said_to_be(run: Path) -> None:
    good("fit", run.parent / "plain.csv", *FAST, "--out", "broken")
    write_bytes(Path("broken/run.toml"), "nonsense = 1")
    refused("predict", "broken", run.parent / "plain.csv", says="nonsense")
    write_bytes(Path("broken/model.safetensors"), b"rubbish")
    refused("predict", "broken", run.parent / "plain.csv", says="model")


def test_the_batch_size_is_that_of_the_training(run: Path) -> None:
    """Whatever rows the page shows."""
    few = table_in(Path(), "plain.csv", frame(12))
    assert gather_findings(run).settings["Batch size"] == gather_findings(run, few).settings["Batch size"] == "30"
    assert gather_findings(run / "model.safetensors", few).settings["Batch size"] == "30"


@pytest.mark.parametrize(
    "content",
    [
        100_000 * "[",
        "{" + '"rows":' + 5000 * "9" + "}",
        '{"rows": -1}',
        '{"rows": 1e400}',
        '{"rows": "many"}',
        '{"notes": [1]}',
        '{"resumed_after": {"a": 1}}',
        '{"streamed": "yes", "rows": 1}',
        "[]",
        "\ud800",
    ],
    ids=lambda text: text[:20],
)
def test_a_summary_that_was_changed_is_refused_by_name(run: Path, content: str) -> None:
    shutil.copytree(run, "changed")
    write_bytes(Path("changed/summary.json"), content.encode(errors="surrogatepass"))
    assert "summary.json" in refused("report", "changed")
    assert "summary.json" in refused("fit", "--resume", "changed", "--epochs", 3)


def test_data_of_a_run_that_have_become_a_pipe_are_not_waited_for(run: Path) -> None:
    good("fit", table_in(Path(), "plain.csv", frame()), *FAST, "--out", "run")
    Path("plain.csv").unlink()
    os.mkfifo("plain.csv")
    answer = pollux("report", "run")
    assert answer.code == 2
    assert "neither a file nor a folder" in answer.err


def test_the_page_lists_what_became_of_each_column(run: Path) -> None:
    good("report", run, "--out", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    for name, used in {"name": "not used", "size": "number", "colour": "text", "unit": "not used"}.items():
        assert re.search(rf"<td>[^/]*{name}.*?</td><td>{used}</td>", page)


def test_a_run_is_compared_with_another_and_with_other_rows(run: Path) -> None:
    data = run.parent / "plain.csv"
    good("fit", data, *FAST, "--clusters", "2", "--out", "two")
    good("report", run, "--against", "two", "--out", "runs.html")
    assert "Against <bdi>two</bdi>" in Path("runs.html").read_text()
    good("report", run, "--against", run / "model.safetensors", "--out", "same.html")
    page = Path("same.html").read_text()
    assert "Of 30 samples, 0 moved; the adjusted Rand index is 1.00." in page
    other = table_in(Path(), "table.parquet", frame(12, seed=1))
    good("report", run, "--against", other, "--out", "later.html")
    page = Path("later.html").read_text()
    assert "interval of 95%" in page
    refused("report", run, "--against", "nothing", says="neither a run nor a file nothing")
    refused("report", run, other, "--against", data, "--out", other, says=".html")


def test_a_page_of_some_rows_of_a_stream_is_headed_by_the_numbers_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_MOST_ROWS", 100)
    monkeypatch.setattr(report, "_SHOWN_ROWS", 40)
    data = table_in(Path(), "table.parquet", frame(160))
    good("fit", data, *FAST, "--stream", "yes", "--out", "run")
    findings = gather_findings("run")
    sizes = [each["rows"] for each in summary_of("run")["clusters"]]
    assert len(findings.labels) == 40
    assert findings.totals is not None
    assert findings.totals[findings.totals > 0].tolist() == sizes
    good("report", "run")
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert f"160 samples in {len(sizes)} groups; 40 of them are shown." in page
    assert f"The largest, {sizes[0] / 160:.0%}" in page
    assert "of 40 drawn samples" in page
    assert "Of 160 samples the 40 that are drawn can be searched" in page
    # A copy of the run is of the same rows, of which the same are drawn.
    shutil.copytree("run", "copy")
    good("report", "run", "--against", "copy")
    assert "Of 40 samples, 0 moved" in Path("run/report.html").read_text(encoding="utf-8")
    # Where the file has other rows by now, nothing is known of them all.
    table_in(Path(), "table.parquet", frame(150))
    assert gather_findings("run").totals is None


@pytest.mark.filterwarnings("error::pollux.data.encoding.UnseenWarning")
def test_values_that_were_not_seen_and_columns_that_moved_are_told_of_other_rows() -> None:
    old = frame(300)
    table_in(Path(), "table.parquet", old)
    good("fit", "table.parquet", *FAST, "--out", "run")
    new = old.assign(count=old["count"] + 60, name=[f"m{index}" for index in range(300)])
    new.loc[:29, "colour"] = "pink"
    new.to_parquet("new.parquet")
    answer = good("report", "run", "--against", "new.parquet")
    told = "30 values of column 'colour' were not seen in training, such as 'pink'; 10.0% of the rows."
    assert f"note: new.parquet: {told}\n" in answer.err
    assert "Warning" not in answer.err
    page = Path("run/report.html").read_text(encoding="utf-8")
    moved = 60 / old["count"].std(ddof=0)
    assert "30 values of column" in page
    row = rf"count</bdi></th><td>.*?</td><td>.*?</td><td>\+{moved:.2f} standard deviations</td><td>100%"
    assert re.search(row, page)
    assert good("report", "run", "--against", "new.parquet", "--quiet") == (0, "", "")


def test_identifiers_that_repeat_name_no_row() -> None:
    data = frame()
    data.insert(0, "number", np.arange(len(data)) % 10 + 1)
    data.insert(1, "key", [f"N{row}" for row in range(len(data))])
    data.to_csv("keyed.csv", index=False)
    data.drop(columns=["key", "name"], errors="ignore").to_csv("numbered.csv", index=False)
    as_id = ["--as", "id", "number"]
    good("fit", "keyed.csv", *FAST, *as_id, "--as", "id", "key", "--out", "keyed")
    assert gather_findings("keyed").row_name(12) == "N12"
    good("fit", "numbered.csv", *FAST, *as_id, "--out", "numbered")
    assert gather_findings("numbered").row_name(12) == "Sample 12"


def test_a_run_of_other_columns_is_not_compared_with(run: Path) -> None:
    pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["u", "v"]).to_csv("other.csv", index=False)
    good("fit", "other.csv", "--clusters", 2, "--epochs", 2, "--out", "else")
    message = refused("report", run, "--against", "else")
    assert "else. The model reads columns that are not there: 'u', 'v'." in message
