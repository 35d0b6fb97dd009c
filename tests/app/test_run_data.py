"""The rows of a run: classes, codes and identifiers, whatever they look like in the file."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import good, refused, settings, summary_of
from data_files import FAST, frame, pollux, write_bytes, write_table
from pollux import load
from pollux.app.fit import start_run
from pollux.app.run_data import RunData, classes_of, open_run_data
from pollux.app.settings import TRAINING, Settings, add_options, from_toml
from pollux.data.sources import open_data
from pollux.errors import InputError


def test_rows_without_a_class_are_not_scored(data: Path) -> None:
    rows = pd.read_csv(data)
    whole = start_run(settings(data, label="class"), "whole").summary["scores"]
    assert whole["rows_with_a_class"] == len(rows)
    known = np.arange(len(rows)) % 3 > 0
    rows.loc[~known, "class"] = None
    rows.to_csv("part.csv", index=False)
    outcome = start_run(settings(Path("part.csv"), label="class"), "part")
    assert outcome.summary["scores"]["rows_with_a_class"] == known.sum()
    labels = pd.read_csv("part/clusters.csv")["cluster"][known]
    from pollux.metrics import adjusted_rand_index

    expected = adjusted_rand_index(rows["class"][known].astype(str), labels)
    assert outcome.summary["scores"]["adjusted_rand_index"] == pytest.approx(expected)


@pytest.mark.parametrize("model", ["linear", "free"])
def test_rows_in_memory_are_written_some_at_a_time(data: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    how = settings(data, label="class", model=model, kinds={"name": "id"}, missing="mean")
    whole = start_run(how, "whole").summary
    monkeypatch.setattr("pollux.app.run_data._ROWS_AT_ONCE", 7)
    parts = start_run(how, "parts").summary
    assert Path("parts/clusters.csv").read_bytes() == Path("whole/clusters.csv").read_bytes()
    assert parts["scores"] == whole["scores"]
    assert parts["entropy"] == pytest.approx(whole["entropy"])


@pytest.mark.parametrize("stream", ["no", "yes"])
def test_names_and_scores_are_of_rows_drawn_at_random(
    stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Classes take turns, so that rows at an even distance from each other are all of one.
    kind, noise = np.arange(800) % 2, np.random.default_rng(0).normal(size=800)
    table = pd.DataFrame({"a": kind * 10 + noise, "b": noise, "class": np.where(kind, "x", "y")})
    table.to_parquet(tmp_path / "periodic.parquet", row_group_size=90)
    monkeypatch.setattr("pollux.app.run_data._NAMED_ROWS", 100)
    monkeypatch.setattr("pollux.app.run_data._SCORED_ROWS", 100)
    how = settings(tmp_path / "periodic.parquet", label="class", stream=stream, max_epochs=30)
    summary = start_run(replace(how, n_clusters=2), tmp_path / "run").summary
    assert sorted(each["name"] for each in summary["clusters"]) == ["high a", "low a"]
    assert 0.5 < summary["scores"]["adjusted_rand_index"] < 1
    assert 70 < summary["scores"]["rows_with_a_class"] < 130


def test_dates_are_classes_as_they_are_written() -> None:
    write_bytes(Path("d.csv"), "x,day\n" + "".join(f"{i * i % 7},2020-01-0{1 + i % 2}\n" for i in range(12)))
    data = open_run_data(Settings(data="d.csv", label="day"))
    classes = classes_of(data.part, "day")
    assert classes is not None
    assert set(classes) == {"2020-01-01", "2020-01-02"}


def test_thousands_of_values_are_no_classes() -> None:
    write_bytes(Path("many.csv"), "x,who\n" + "".join(f"{i % 7},w{i}\n" for i in range(1500)))
    data = open_run_data(Settings(data="many.csv", label="who"))
    with pytest.raises(InputError, match="not classes"):
        classes_of(data.part, "who")


@pytest.mark.parametrize("stream", ["no", "yes"])
def test_a_label_without_classes_is_refused_before_the_training_and_stops_no_trained_run(
    stream: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollux.app.run_data._MOST_CLASSES", 20)
    how = [data, *FAST, "--label", "name", "--stream", stream, "--out", "run"]

    def failing(*_: object) -> None:
        raise AssertionError("trained or written")

    with monkeypatch.context() as patch:
        patch.setattr("pollux.app.fit._fit", failing)
        refused("fit", *how, says="more than 20 different values: these are not classes")
    assert not Path("run").exists()
    with monkeypatch.context() as patch:
        patch.setattr(RunData, "check_label", lambda data: None)
        patch.setattr(RunData, "write_assignments", failing)
        assert pollux("fit", *how).code == 1
    answer = good("fit", "--resume", "run")
    assert "nothing is scored: Column 'name' has more than 20 different values" in answer.err
    assert summary_of("run")["scores"] is None


def test_scores_against_nearly_as_many_classes_as_rows_are_doubted(data: Path) -> None:
    answer = good("fit", data, *FAST, "--label", "name", "--out", "run")
    assert "column 'name' has 30 different values in 30 rows: these are hardly classes" in answer.err
    assert "hardly" not in good("fit", data, *FAST, "--label", "class", "--out", "new").err


def test_numbers_that_begin_with_zero_are_codes() -> None:
    write_bytes(Path("zip.csv"), "zip,x\n" + "".join(f"{['01067', '10115'][i % 2]},{i * i % 5}\n" for i in range(12)))
    assert open_run_data(Settings(data="zip.csv")).encoding.feature_names == ["zip=10115", "x"]


def test_a_decimal_comma_is_seen_before_any_line_end() -> None:
    write_bytes(Path("c.csv"), "k;v\r\n" + "".join(f"{i},5;{i * i % 7},25\r\n" for i in range(12)))
    assert open_data("c.csv").read().rows.column("v").to_pylist()[3] == 2.25


@pytest.mark.parametrize("about", [["title"], ["title", "author", "year"]])
def test_errors_of_the_wrong_sheet_name_the_others(about: list[str]) -> None:
    pytest.importorskip("python_calamine")
    pytest.importorskip("xlsxwriter")
    with pd.ExcelWriter("two.xlsx", engine="xlsxwriter") as writer:
        pd.DataFrame({"about": about}).to_excel(writer, sheet_name="About", index=False)
        frame().to_excel(writer, sheet_name="Data", index=False)
    answer = pollux("fit", "two.xlsx", *FAST)
    assert answer.code == 2
    assert (
        "Note that two.xlsx is read from its sheet 'About'; there are also 'Data' (to read another: --array Data)."
        in answer.err
    )
    assert pollux("fit", "two.xlsx", *FAST, "--array", "Data").code == 0


def test_arrays_may_bring_the_names_of_their_columns() -> None:
    random = np.random.default_rng(0)
    np.savez("named.npz", X=random.normal(size=(20, 2)), feature_names=np.array(["width", "height"]))
    outcome = start_run(settings(Path("named.npz")), "run")
    assert load(outcome.folder).encoding_.feature_names == ["width", "height"]
    assert open_run_data(Settings(data="named.npz", columns=("height",))).encoding.feature_names == ["height"]


@pytest.mark.parametrize("first", ["100", "0000", "12345678901234567890"], ids=["numbers", "codes", "many digits"])
@pytest.mark.parametrize("missing", ["mean", "drop"])
def test_identifiers_of_any_look_are_written_as_they_are(first: str, missing: str) -> None:
    names = [str(int(first) + i).zfill(len(first)) for i in range(30)]
    rows = "".join(f"{name},{'' if i % 7 == 3 else i * i % 11},{i % 5}\n" for i, name in enumerate(names))
    write_bytes(Path("d.csv"), "id,x,y\n" + rows)
    outcome = start_run(settings(Path("d.csv"), missing=missing), "run")
    assert outcome.summary["identifiers"] == ["id"]
    written = pd.read_csv("run/clusters.csv", dtype={"id": str})
    assert written["id"].tolist() == [names[row] for row in written["row"]]
    assert pollux("predict", "run", "d.csv").out == Path("run/clusters.csv").read_text()


def test_codes_are_seen_wherever_they_stand() -> None:
    late = "".join(f"{1 + i % 5},{i % 7}\n" for i in range(20_000)) + "01,3\n05,4\n"
    write_bytes(Path("late.csv"), "code,x\n" + late)
    assert "code=05" in open_run_data(Settings(data="late.csv")).encoding.feature_names


def test_a_class_that_is_no_number_is_none() -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    labels = [float("nan") if i % 3 == 0 else float(i % 2) for i in range(30)]
    parquet.write_table(pa.table({"x": np.arange(30) ** 2 % 11, "y": labels}), "d.parquet")
    classes = classes_of(open_run_data(Settings(data="d.parquet", label="y")).part, "y")
    assert classes is not None
    assert set(classes) == {"", "0", "1"}


def test_values_not_seen_in_training_are_warned_of(data: Path) -> None:
    start_run(settings(data), "run")
    rows = pd.read_csv(data)
    texts = rows.select_dtypes(exclude=["number", "bool"])
    text = next(name for name in texts if load("run").encoding_.names.count(name))
    with pytest.warns(UserWarning, match=f"column '{text}' were not seen"):
        load("run").predict(rows.assign(**{text: "never"}))


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_lists_cannot_name_rows(command: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    parquet.write_table(
        pa.table({"x": np.arange(30) ** 2 % 11, "y": [[i] * (1 + i % 2) for i in range(30)]}), "d.parquet"
    )
    start_run(settings(Path("d.parquet")), "run")
    words = ["fit", "d.parquet", *FAST] if command == "fit" else ["predict", "run", "d.parquet"]
    answer = pollux(*words, *(["--as", "id", "y"] if command == "fit" else ["--id", "y"]))
    assert answer.code == 2
    assert "'y'" in answer.err
    assert not answer.out


def test_a_quote_that_is_not_closed_is_said() -> None:
    write_bytes(Path("q.csv"), '"x,y\n' + "1,2\n" * 60_000)
    answer = pollux("fit", "q.csv")
    assert answer.code == 2
    assert "quote" in answer.err


def test_commas_between_thousands_are_no_decimal_commas() -> None:
    write_bytes(Path("t.csv"), "a;b\n" + "".join(f"{i},234;{i}.5\n" for i in range(9)))
    assert open_data("t.csv").read().rows.column("b").to_pylist()[3] == 3.5


# Files of clusters


@pytest.mark.parametrize("ours", ["row", "entropy", "cluster", "p_0"])
def test_no_identifier_is_lost_to_a_column_of_the_same_name(tmp_path: Path, ours: str) -> None:
    data = frame().rename(columns={"name": ours})
    data[f"{ours}_in_file"] = [f"other {row}" for row in range(len(data))]
    data[f"{ours}_in_file_in_file"] = [f"third {row}" for row in range(len(data))]
    write_table(tmp_path, "plain.csv", data)
    names = [ours, f"{ours}_in_file", f"{ours}_in_file_in_file"]
    identifiers = [word for name in names for word in ("--as", "id", name)]
    assert pollux("fit", tmp_path / "plain.csv", *FAST, *identifiers, "--out", tmp_path / "run").code == 0
    assert pollux("predict", tmp_path / "run", tmp_path / "plain.csv", "--out", tmp_path / "new.csv").code == 0
    for path in (tmp_path / "run" / "clusters.csv", tmp_path / "new.csv"):
        written = pd.read_csv(path)
        assert len(set(written.columns)) == len(written.columns)
        values = [list(written[name]) for name in written.columns]
        for name in names:
            assert list(data[name]) in values
        assert list(written[f"{ours}_in_file"]) == list(data[f"{ours}_in_file"])


FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1",
    "\uff0d1",
    "-",
    "--1",
    "=",
    "-inf",
]
HARMLESS = ["-1.5", "+3", "-1e5", "+.5", "a=1", "", "'=1", "1-2", "n0"]


def test_no_text_of_a_csv_file_is_a_formula_unless_it_is_asked_for(tmp_path: Path) -> None:
    texts = FORMULAS + HARMLESS
    data = frame(len(texts)).rename(columns={"name": "=name"})
    data["=name"] = texts
    data.loc[len(FORMULAS) + 5, "=name"] = None
    table = write_table(tmp_path, "table.parquet", data)
    neutral = [f"'{text}" for text in FORMULAS] + HARMLESS

    def read(name: str, raw: bool, separator: str = ",") -> list[str]:
        column = "=name" if raw else "'=name"
        written = pd.read_csv(tmp_path / name, dtype=str, keep_default_na=False, sep=separator, lineterminator="\n")
        return list(written[column])

    for raw in (False, True):
        option = ["--raw"] if raw else []
        expected = texts if raw else neutral
        run = tmp_path / f"run{raw}"
        assert pollux("fit", table, *FAST, "--as", "id", "=name", *option, "--out", run).code == 0
        assert read(f"run{raw}/clusters.csv", raw) == expected
        for name in ("new.csv", "new.tsv"):
            assert pollux("predict", run, table, *option, "--out", tmp_path / name).code == 0
            assert read(name, raw, "\t" if name.endswith("tsv") else ",") == expected
        assert pollux("predict", run, table, *option, "--out", tmp_path / "new.parquet").code == 0
        assert list(pd.read_parquet(tmp_path / "new.parquet")["=name"].fillna("")) == texts
    # A run keeps to it.
    assert "raw = true" in (tmp_path / "runTrue/run.toml").read_text()


# What is known of some rows, and names


def known_rows(first: str, second: str) -> Path:
    """Two far groups of ten rows, whose clusters are all known."""
    random = np.random.default_rng(0)
    x, y = np.repeat([0.0, 9.0], 10) + random.normal(size=20), random.normal(size=20)
    lines = [f"{a},{b},{known}\n" for a, b, known in zip(x, y, [first] * 10 + [second] * 10, strict=True)]
    write_bytes(Path("known.csv"), "x,y,known\n" + "".join(lines))
    return Path("known.csv")


def test_clusters_whose_numbers_have_holes_are_all_in_the_summary() -> None:
    how = settings(known_rows("0", "2"), known="known", hint_weight=1e3, model="linear", max_epochs=200)
    summary = start_run(how, "run").summary
    assert [(each["cluster"], each["rows"]) for each in summary["clusters"]] == [(0, 10), (2, 10)]
    assert [bool(name) for name in load("run").fitted_.cluster_names] == [True, False, True]


@pytest.mark.parametrize("stream", ["no", "yes"])
def test_rows_that_were_learned_from_are_not_scored(stream: str) -> None:
    rows = pd.read_csv(known_rows("far", "near")).rename(columns={"known": "class"})
    rows["seed"] = rows["class"].where(np.arange(20) % 5 == 0)
    rows.to_csv("rows.csv", index=False)
    command = ("fit", "rows.csv", "--clusters", 3, "--model", "linear", "--epochs", 3, "--stream", stream)
    said = good(*command, "--label", "class", "--known", "seed", "--out", "some").out
    assert "known clusters: 0 is far, 1 is near" in said
    assert "against the known classes of 16 rows" in said
    assert summary_of("some")["scores"]["rows_with_a_class"] == 16
    both = good(*command, "--label", "class", "--known", "class", "--out", "all")
    assert "nothing is scored: each row whose class is known (--label) was learned from (--known)" in both.err
    assert summary_of("all")["scores"] is None


@pytest.mark.parametrize(
    ("values", "names", "numbers"),
    [
        (("01", "02"), ["01", "02"], [0, 1]),
        (("0", "2"), ["0", "", "2"], [0, 2]),
        (("2", "02"), ["02", "2"], [1, 0]),
        (("4", "9"), ["4", "9"], [0, 1]),
    ],
)
def test_codes_are_classes_and_no_numbers_of_clusters(
    values: tuple[str, str], names: list[str], numbers: list[int]
) -> None:
    data = open_run_data(Settings(data=str(known_rows(*values)), n_clusters=3, known="known", kinds={"known": "text"}))
    assert data.known_names() == names
    assert data.hints()["known"].tolist() == np.repeat(numbers, 10).tolist()


@pytest.mark.parametrize(
    ("text", "value"), [("1.0", 1.0), ("1", 1), ("40", 40), ("0.4", 0.4), ("0", None), ("40.0", 40)]
)
def test_sizes_with_a_decimal_point_are_shares(text: str, value: float | None) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, TRAINING)
    given = parser.parse_args(["--max-size", text]).max_size
    Path("run.toml").write_text(Settings(data=str(known_rows("0", "1")), max_size=given).to_toml())
    found = open_run_data(from_toml("run.toml", {})).sizes().get("max_size")
    assert found == value
    assert type(found) is type(value)


def test_a_cluster_has_one_name(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pollux.app.run_data._ROWS_AT_ONCE", 4)
    names = {
        each["cluster"]: each["name"] for each in start_run(settings(data, with_data=True), "run").summary["clusters"]
    }
    written = pd.read_csv("run/clusters.csv")
    assert written["cluster_name"].tolist() == written["cluster"].map(names).tolist()


@pytest.mark.parametrize("ending", [".csv", ".npy"])
def test_pixels_that_are_always_empty_count_among_those_of_a_picture(tmp_path: Path, ending: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 17, (1_000, 64))
    pixels[:, [0, 32, 39]] = 0
    for first, expected in ((0, "images"), (1, "tables")):
        path = tmp_path / f"pixels{first}{ending}"
        if ending == ".npy":
            np.save(path, pixels[:, first:])
        else:
            pd.DataFrame(pixels[:, first:]).add_prefix("pixel ").to_csv(path, index=False)
        assert open_run_data(Settings(data=str(path))).recipe == expected
