"""``pollux predict``: any file is predicted as it was trained."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest

from commands import good, refused, same_rows
from data_files import FAST, TABLES, as_table, delimited, frame, pixels, pollux, write_bytes
from data_files import write_images as images_in
from data_files import write_table as table_in
from pollux import GeminiClustering, load
from pollux.app import cli
from pollux.data import array_files, table_files
from pollux.data.encoding import UnseenWarning

PROBABILITIES = ["p_0", "p_1", "p_2"]


@pytest.mark.parametrize("name", TABLES)
def test_any_format_is_predicted_as_it_was_trained(run: Path, name: str) -> None:
    table_in(Path(), name, frame())
    good("predict", run, name, "--out", "new.csv")
    same_rows("new.csv", run / "clusters.csv")


def test_predictions_are_written_in_every_format(run: Path) -> None:
    data = run.parent / "plain.csv"
    answer = good("predict", run, data, "--out", "new.csv")
    assert answer == (0, "30 rows written to new.csv\n", "")
    expected = pd.read_csv("new.csv")
    good("predict", run, data, "--out", "new.tsv")
    pd.testing.assert_frame_equal(pd.read_csv("new.tsv", sep="\t"), expected)
    for name in ("new.parquet", "new.pq"):
        good("predict", run, data, "--out", name)
        found = pd.read_parquet(name)
        assert found["p_0"].dtype == np.float32
        pd.testing.assert_frame_equal(found.astype(expected.dtypes).round(4), expected, rtol=1e-6)
    printed = good("predict", run, data)
    assert printed.out == Path("new.csv").read_text()
    assert printed.err == ""
    answer = good("predict", run, data, "--out", "new.csv", "--json")
    assert json.loads(answer.out) == {"rows": 30, "left_out": 0, "unseen": {}, "notes": [], "out": "new.csv"}
    refused("predict", run, data, "--json", says="--out")
    refused("predict", run, data, "--out", "new.doc", says="new.doc")
    refused("predict", run, data, "--out", "nowhere/new.csv", says="nowhere")
    Path("folder.csv").mkdir()
    refused("predict", run, data, "--out", "folder.csv", says="folder.csv")


@pytest.mark.parametrize("name", ["plain.csv", "table.parquet", "stream.arrow"])
def test_parts_of_any_size_give_the_same(run: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    table_in(Path(), name, frame())
    for size in (1, 7, 30):
        monkeypatch.setattr(table_files, "ROWS_AT_ONCE", size)
        for out in ("new.csv", "new.parquet"):
            good("predict", run, name, "--out", out)
        same_rows("new.csv", run / "clusters.csv")
        pd.read_parquet("new.parquet").to_csv("parquet.csv", index=False)
        same_rows("parquet.csv", run / "clusters.csv")


def test_parts_of_arrays_and_images_give_the_same(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "IMAGES_AT_ONCE", 5)
    good("predict", pictures, pictures.parent / "images", "--out", "new.csv")
    same_rows("new.csv", pictures / "clusters.csv")
    X = np.random.default_rng(0).normal(size=(20, 3))
    np.save("array.npy", X)
    np.savez("array.npz", X=X)
    good("fit", "array.npy", *FAST, "--out", "run")
    monkeypatch.setattr(array_files, "ROWS_AT_ONCE", 7)
    for name in ("array.npy", "array.npz"):
        good("predict", "run", name, "--out", "new.csv")
        same_rows("new.csv", "run/clusters.csv")


def test_images_of_another_size_are_scaled_to_that_of_training(pictures: Path) -> None:
    images_in(Path("larger"), pixels(4, 20, 12, 3))
    good("predict", pictures, "larger", "--out", "new.csv")
    assert list(pd.read_csv("new.csv")["file"]) == [f"{index:02}.png" for index in range(4)]


def test_columns_are_matched_by_name(run: Path) -> None:
    data = frame()
    table_in(Path(), "plain.csv", data[data.columns[::-1]].assign(more="x"))
    good("predict", run, "plain.csv", "--out", "new.csv")
    same_rows("new.csv", run / "clusters.csv")
    table_in(Path(), "plain.csv", data[["alive", "colour", "count", "weight", "size"]])
    good("predict", run, "plain.csv", "--out", "new.csv")
    assert list(pd.read_csv("new.csv")) == ["row", "cluster", *PROBABILITIES, "entropy"]
    for name in ("plain.csv", "table.parquet", "stream.arrow"):
        table_in(Path(), name, data.drop(columns=["size", "colour"]))
        refused("predict", run, name, says="'size', 'colour'")


def test_further_identifiers_are_written(run: Path) -> None:
    good("predict", run, run.parent / "plain.csv", "--id", "unit,size", "--id", "count", "--out", "new.csv")
    found = pd.read_csv("new.csv", dtype=str)
    assert list(found)[:5] == ["row", "name", "unit", "size", "count"]
    # Python reads each number as the nearest one; releases of pandas differ in the last digits.
    np.testing.assert_allclose(
        [float(text) for text in found["size"]], frame()["size"], rtol=8 * np.finfo(np.float64).eps
    )
    refused("predict", run, run.parent / "plain.csv", "--id", "nothing", says="'nothing'")


def test_values_that_training_has_not_seen_are_noted(run: Path) -> None:
    data = frame()
    data.loc[[3, 4], "colour"] = "purple"
    table_in(Path(), "plain.csv", data)
    answer = good("predict", run, "plain.csv", "--out", "new.csv")
    assert answer.err == (
        "note: 2 values of column 'colour' were not seen in training, such as 'purple'; they count as none of its "
        "values\n"
    )
    answer = good("predict", run, "plain.csv", "--out", "new.csv", "--json")
    assert json.loads(answer.out)["unseen"] == {"colour": 2}
    assert answer.err == ""


def test_rows_that_lack_values_are_refused_filled_or_left_out(run: Path) -> None:
    data = frame()
    data.loc[[3, 4], "size"] = np.nan
    for name in ("plain.csv", "table.parquet"):
        table_in(Path(), name, data)
        refused("predict", run, name, "--out", "new.csv", "--missing", "error", says="'size' (2)")
        good("predict", run, name, "--out", "filled.csv")
        assert len(pd.read_csv("filled.csv")) == 30
        answer = good("predict", run, name, "--out", "dropped.csv", "--missing", "drop")
        assert answer.err == "note: 2 rows lack values and were left out\n"
        whole, dropped = pd.read_csv(run / "clusters.csv"), pd.read_csv("dropped.csv")
        expected = whole.drop(index=[3, 4]).reset_index(drop=True)
        pd.testing.assert_frame_equal(dropped, expected, rtol=1e-5)
        Path("filled.csv").unlink()
        Path("dropped.csv").unlink()


def test_what_was_done_about_missing_values_in_training_is_done_again() -> None:
    data = frame()
    data.loc[[3, 4], "size"] = np.nan
    table_in(Path(), "plain.csv", data)
    for missing in ("mean", "drop"):
        good("fit", "plain.csv", *FAST, "--missing", missing, "--out", missing)
        good("predict", missing, "plain.csv", "--out", "new.csv")
        same_rows("new.csv", Path(missing, "clusters.csv"))


def test_marks_of_missing_values_are_known_from_training() -> None:
    data = frame().astype({"size": object})
    data.loc[[3, 4], "size"] = "?"
    table_in(Path(), "plain.csv", data)
    good("fit", "plain.csv", *FAST, "--na", "?", "--missing", "mean", "--out", "run")
    good("predict", "run", "plain.csv", "--out", "new.csv")
    same_rows("new.csv", "run/clusters.csv")


def test_a_file_without_rows_has_no_predictions(run: Path) -> None:
    write_bytes(Path("none.csv"), delimited(frame()).splitlines()[0] + "\n")
    for out in ("new.csv", "new.parquet"):
        assert good("predict", run, "none.csv", "--out", out).out == f"0 rows written to {out}\n"
    assert list(pd.read_csv("new.csv")) == ["row", "name", "cluster", *PROBABILITIES, "entropy"]


@pytest.mark.parametrize("case", ["gap in numbers", "first rows dropped", "first names missing"])
def test_identifiers_may_have_gaps_in_any_part(run: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(table_files, "ROWS_AT_ONCE", 7)
    data = frame()
    options: list[str] = []
    if case == "gap in numbers":
        data["number"] = pd.array([*range(20), *[None] * 10], dtype="Int64")
        options = ["--id", "number"]
    elif case == "first rows dropped":
        data.loc[:8, "size"] = np.nan
        options = ["--missing", "drop"]
    else:
        data.loc[:8, "name"] = None
    parquet.write_table(as_table(data), "gaps.parquet")
    good("predict", run, "gaps.parquet", "--out", "new.parquet", *options)


@pytest.mark.parametrize("out", ["old.csv", "old.parquet"])
def test_an_error_in_mid_file_leaves_the_old_file(run: Path, out: str) -> None:
    data = pd.concat([frame()] * 100)
    write_bytes(Path("long.csv"), delimited(data) + "x,no number,1,1,red,True,cm,1\n")
    good("predict", run, run.parent / "plain.csv", "--out", out)
    refused("predict", run, "long.csv", "--out", out, says="no number")
    refused("predict", run, "long.csv", "--out", f"new{out}", says="no number")


def test_an_error_after_rows_were_written_leaves_the_old_file(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "ROWS_AT_ONCE", 7)
    data = frame()
    data.loc[29, "size"] = np.inf
    parquet.write_table(as_table(data), "late.parquet")
    for out in ("old.csv", "old.parquet"):
        good("predict", run, run.parent / "plain.csv", "--out", out)
        refused("predict", run, "late.parquet", "--out", out, says="'size'")


@pytest.mark.parametrize("name", ["plain.csv", "table.parquet"])
def test_the_data_are_not_overwritten(run: Path, name: str) -> None:
    table_in(Path(), name, frame())
    refused("predict", run, name, "--out", name, says=name)


def test_a_file_gets_the_permissions_of_any_new_file(run: Path) -> None:
    write_bytes(Path("usual"), "x")
    good("predict", run, run.parent / "plain.csv", "--out", "new.csv")
    assert Path("new.csv").stat().st_mode == Path("usual").stat().st_mode


def test_a_model_file_is_as_good_as_a_run(run: Path) -> None:
    good("predict", run / "model.safetensors", run.parent / "plain.csv", "--out", "new.csv")
    same_rows("new.csv", run / "clusters.csv")


def test_files_without_a_header_are_read_as_in_training() -> None:
    write_bytes(Path("bare.csv"), "".join(f"{index * index % 17},{index % 5}\n" for index in range(20)))
    good("fit", "bare.csv", *FAST, "--no-header", "--out", "run")
    good("predict", "run", "bare.csv", "--out", "new.csv")
    same_rows("new.csv", "run/clusters.csv")


def test_the_delimiter_of_training_is_remembered() -> None:
    write_bytes(Path("spaces.csv"), "a b\n" + "".join(f"{index * index % 17} {index % 5}\n" for index in range(20)))
    good("fit", "spaces.csv", *FAST, "--delimiter", " ", "--out", "run")
    good("predict", "run", "spaces.csv", "--out", "new.csv")


def test_another_delimiter_than_in_training_is_seen() -> None:
    good("fit", table_in(Path(), "pipes.txt", frame()), *FAST, "--delimiter", "|", "--out", "run")
    good("predict", "run", table_in(Path(), "plain.csv", frame()), "--out", "new.csv")
    same_rows("new.csv", "run/clusters.csv")


def test_what_cannot_be_predicted_is_said(run: Path, pictures: Path) -> None:
    data = run.parent / "plain.csv"
    np.save("array.npy", np.ones((3, 3)))
    refused("predict", run, "array.npy", says="trained on a table")
    refused("predict", run, pictures.parent / "images", says="not trained on images")
    refused("predict", pictures, data, says="is a table")
    refused("predict", pictures, "array.npy", says="shape")
    refused("predict", run, "nowhere.csv", says="nowhere.csv")
    refused("predict", "nowhere", data, says="nowhere")
    refused("predict", ".", data, says="not the folder of a run")
    refused("predict", data, data, says="a run is needed")
    for name in ("plain.csv", "table.parquet"):
        table_in(Path(), name, frame().assign(size="word"))
    refused("predict", run, "plain.csv", says="'word'")
    refused("predict", run, "table.parquet", says="'size'")


def test_a_column_that_holds_no_numbers_is_named(run: Path) -> None:
    table_in(Path(), "plain.csv", frame().assign(size="word"))
    refused("predict", run, "plain.csv", says="'size'")


def test_a_free_table_and_a_model_from_python_are_refused(run: Path) -> None:
    data = run.parent / "plain.csv"
    good("fit", data, *FAST, "--model", "free", "--out", "free")
    refused("predict", "free", data, says="free table")
    refused("export", "free", "--onnx", "new.onnx", says="free table")
    GeminiClustering(3, max_epochs=2).fit(np.random.default_rng(0).normal(size=(20, 4))).save("own")
    refused("predict", "own", data, says="from Python")


def test_standard_output_may_be_closed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever read it has seen enough."""

    class Closed(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _: Any) -> int:
            raise BrokenPipeError

        def fileno(self) -> int:
            return number

    with Path("somewhere").open("wb") as somewhere:
        number = somewhere.fileno()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(Closed()))  # type: ignore[arg-type]
        assert cli.main(["predict", str(run), str(run.parent / "plain.csv")]) == 0


def test_rows_unlike_those_of_the_training_are_told(run: Path) -> None:
    data = frame()
    data["size"] *= 1000
    answer = good("predict", run, table_in(Path(), "plain.csv", data), "--out", "new.csv")
    assert (
        "% of the samples lie far outside the data of the training, in 'size': their clusters are guesses" in answer.err
    )


def test_columns_that_a_file_lacks_are_answered_by_those_that_it_has(run: Path) -> None:
    says = "Did you mean 'name'? There are: 'name', 'size'"
    refused("predict", run, run.parent / "plain.csv", "--id", "nme", says=says)


def test_predictions_come_with_the_data(run: Path) -> None:
    data = frame()
    data["cluster"] = "mine"
    table_in(Path(), "plain.csv", data)
    good("predict", run, "plain.csv", "--with-data", "--out", "new.csv")
    found = pd.read_csv("new.csv")
    own = ["cluster_in_file" if name == "cluster" else name for name in data.columns]
    assert list(found) == [
        "row",
        *sorted(own, key=lambda name: name != "name"),
        "cluster",
        "cluster_name",
        *PROBABILITIES,
        "entropy",
    ]
    np.testing.assert_allclose(found["size"], data["size"])
    good("fit", "plain.csv", *FAST, "--with-data", "--out", "run")
    assert {"colour", "cluster_name"} <= set(pd.read_csv("run/clusters.csv"))
    good("fit", "plain.csv", *FAST, "--with-data", "--stream", "yes", "--out", "streamed")
    assert {"colour", "cluster"} <= set(pd.read_parquet("streamed/clusters.parquet"))


def test_predictions_are_written_for_excel(run: Path) -> None:
    pytest.importorskip("xlsxwriter")
    calamine = pytest.importorskip("python_calamine")
    data = frame()
    data.loc[0, "name"] = "=1+1"
    table_in(Path(), "plain.csv", data)
    good("predict", run, "plain.csv", "--out", "new.xlsx")
    good("predict", run, "plain.csv", "--out", "new.csv", "--raw")
    header, *rows = calamine.CalamineWorkbook.from_path("new.xlsx").get_sheet_by_index(0).to_python()
    found = pd.DataFrame(rows, columns=header)
    expected = pd.read_csv("new.csv")
    assert list(found) == list(expected)
    assert found["name"][0] == "=1+1"
    np.testing.assert_allclose(found["p_0"], expected["p_0"])


def test_rows_of_a_database_are_fitted_and_predicted() -> None:
    with closing(sqlite3.connect("shop.db")) as base:
        frame().to_sql("orders", base, index=False)
    good("fit", "shop.db", *FAST, "--out", "whole")
    with closing(sqlite3.connect("shop.db")) as base:
        frame().to_sql("older", base, index=False)
    assert "'orders', 'older'" in refused("fit", "shop.db", *FAST, "--out", "both", says="--sql")
    query = "SELECT name, size, weight FROM orders WHERE size IS NOT NULL"
    good("fit", "shop.db", "--sql", query, *FAST, "--out", "run")
    good("predict", "run", "shop.db", "--out", "new.csv")
    same_rows("new.csv", "run/clusters.csv")
    good("predict", "run", "shop.db", "--sql", query + " LIMIT 3", "--out", "new.csv")
    assert len(pd.read_csv("new.csv")) == 3
    good("report", "run")
    before = Path("shop.db").read_bytes()
    for wrong in ("DELETE FROM orders", "SELECT nothing FROM orders", "SELEC"):
        refused("fit", "shop.db", "--sql", wrong, *FAST, "--out", "no", says="shop.db")
    assert Path("shop.db").read_bytes() == before
    Path("other.duckdb").write_bytes(b"no database")
    refused("fit", "other.duckdb", *FAST, says="other.duckdb")


def test_text_in_a_column_of_numbers_is_said_in_our_words(run: Path) -> None:
    data = frame().astype({"size": object})
    data.loc[3, "size"] = "large"
    for name in ("plain.csv", "table.parquet"):
        table_in(Path(), name, data.astype({"size": str}) if name.endswith("parquet") else data)
        said = refused("predict", run, name, says="'size'")
        assert "'large'" in said
        assert "scalar" not in said
        assert "conversion" not in said.lower()


def test_rows_without_any_value_are_told(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"a": random.normal(size=40), "b": random.choice(["x", "y", "z"], 40)})
    rows.to_csv("rows.csv", index=False)
    assert pollux("fit", "rows.csv", *FAST, "--out", "run").code == 0
    Path("new.csv").write_text("a,b\n1.0,x\n,\n,y\n,\n")
    answer = pollux("predict", "run", "new.csv", "--out", "out.csv")
    assert "2 rows have no value in any column that the model reads" in answer.err
    assert "no value" not in pollux("predict", "run", "rows.csv", "--out", "out.csv").err
    clustering = load("run/model.safetensors")
    with pytest.warns(UnseenWarning, match="1 row has no value"):
        clustering.predict(pd.DataFrame({"a": [1.0, np.nan], "b": ["x", None]}))
    numbers = GeminiClustering(2, model="linear", preprocessing="auto", max_epochs=1).fit(random.normal(size=(20, 3)))
    with pytest.warns(UnseenWarning, match="1 row has no value"):
        numbers.predict(np.array([[np.nan] * 3, [np.nan, 1.0, 2.0]]))


def orders(n: int = 40) -> pd.DataFrame:
    random = np.random.default_rng(0)
    day = pd.Timestamp("1887-05-12") + pd.to_timedelta(np.arange(n) * 9, unit="D")
    paid = np.where(random.random(n) < 0.5, "true", "false")
    price = (random.normal(size=n) * 50 + 1500 + 900 * (np.arange(n) % 2)).round(2)
    return pd.DataFrame({"price": price, "day": day.strftime("%Y-%m-%d"), "paid": paid})


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    orders().to_csv(folder / "orders.csv", index=False)
    good("fit", folder / "orders.csv", "--use", "day", *FAST, "--out", folder / "run")
    return folder / "run"


@pytest.mark.parametrize(
    ("price", "delimiter"), [("{:,.2f}", ","), ("${:,.2f}", ","), ("{:.2f} pcs", ","), ("european", ";")]
)
@pytest.mark.parametrize("ending", [".csv", ".json"])
def test_numbers_are_read_in_the_notations_of_fit(
    shop: Path, monkeypatch: pytest.MonkeyPatch, price: str, delimiter: str, ending: str
) -> None:
    data = orders()
    swapped = data["price"].map("{:,.2f}".format).str.translate(str.maketrans(",.", ".,"))
    data["price"] = swapped if price == "european" else data["price"].map(price.format)
    # The first parts do not show which separator is meant.
    monkeypatch.setattr(table_files, "ROWS_AT_ONCE", 3)
    if ending == ".csv":
        data.to_csv("new.csv", index=False, sep=delimiter)
    else:
        data.to_json("new.json", orient="records")
    good("predict", shop, f"new{ending}", "--out", "out.csv")
    same_rows("out.csv", shop / "clusters.csv")
    np.testing.assert_array_equal(
        load(shop / "model.safetensors").predict(data), pd.read_csv(shop / "clusters.csv")["cluster"]
    )


def test_true_and_false_may_be_yes_and_no(shop: Path) -> None:
    data = orders()
    data["paid"] = np.where(data["paid"] == "true", "Yes", "no")
    data.to_csv("new.csv", index=False)
    good("predict", shop, "new.csv", "--out", "out.csv")
    same_rows("out.csv", shop / "clusters.csv")
    data.loc[3, "paid"] = "perhaps"
    data.to_csv("new.csv", index=False)
    refused("predict", shop, "new.csv", says="'paid' must hold true or false, or yes or no, and 'perhaps' is neither")


def test_numbers_that_read_in_no_single_way_are_refused(shop: Path) -> None:
    data = orders().astype({"price": object})
    data.loc[:1, "price"] = ["1.234,50", "1,234.50"]
    data.to_csv("new.csv", index=False)
    said = refused("predict", shop, "new.csv", says="1.234,50")
    assert "a number such as 1234.5" in said
    data.loc[:1, "price"] = ["45 %", "46 %"]
    data.to_csv("new.csv", index=False)
    refused("predict", shop, "new.csv", says="'price'")
    data["price"] = "45 %"
    data.to_csv("new.csv", index=False)
    refused("predict", shop, "new.csv", says="the unit '%', and none in training")


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%Y", "%B %d, %Y", "%d %b %Y", "%Y%m%d"])
@pytest.mark.parametrize("name", ["plain.csv", "table.parquet"])
def test_dates_are_read_in_the_notations_of_fit(shop: Path, form: str, name: str) -> None:
    data = orders()
    data["day"] = pd.to_datetime(data["day"]).dt.strftime(form)
    table_in(Path(), name, data)
    good("predict", shop, name, "--out", "out.csv")
    same_rows("out.csv", shop / "clusters.csv")
    labels = load(shop / "model.safetensors").predict(data.assign(paid=data["paid"] == "true"))
    np.testing.assert_array_equal(labels, pd.read_csv(shop / "clusters.csv")["cluster"])


@pytest.mark.parametrize("day", ["05/12/1887", "17:30", "soon"])
def test_dates_in_doubt_are_refused_with_the_notation_of_the_training(shop: Path, day: str) -> None:
    orders().assign(day=day).to_csv("new.csv", index=False)
    says = f"'day' must hold dates written as year-month-day, such as 1887-05-12, and {day!r} is not written so"
    refused("predict", shop, "new.csv", says=says)


def test_numbers_instead_of_dates_are_refused_with_a_remedy(shop: Path) -> None:
    data = orders()
    day = pd.to_datetime(data["day"])
    # As df.to_json writes them, by default.
    milliseconds = (day - pd.Timestamp(0)) // pd.Timedelta("1ms")
    data.assign(day=milliseconds).to_json("new.json", orient="records")
    refused("predict", shop, "new.json", says="date_format='iso'")
    data.assign(day=day).to_json("new.json", orient="records", date_format="iso")
    good("predict", shop, "new.json", "--out", "out.csv")
    same_rows("out.csv", shop / "clusters.csv")


def test_columns_without_any_value_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"a": random.normal(size=40), "b": random.choice(["x", "y"], 40), "c": random.normal(size=40)})
    rows.to_csv("rows.csv", index=False)
    good("fit", "rows.csv", *FAST, "--missing", "mean", "--out", "run")
    says = "ll values of columns 'a', 'b' are missing; the means of the training stand for them"
    empty = rows.assign(a=np.nan, b=None)
    monkeypatch.setattr(table_files, "ROWS_AT_ONCE", 7)
    for name in ("new.csv", "new.parquet"):
        empty.to_csv(name, index=False) if name.endswith("csv") else empty.to_parquet(name)
        assert f"note: a{says}" in good("predict", "run", name, "--out", "out.csv").err
    found = json.loads(good("predict", "run", "new.csv", "--out", "out.csv", "--json").out)
    assert found["notes"] == [f"a{says}"]
    rows.assign(a=[*[np.nan] * 39, 1.0]).to_csv("new.csv", index=False)
    assert "missing" not in good("predict", "run", "new.csv", "--out", "out.csv").err
    clustering = load("run/model.safetensors")
    with pytest.warns(UnseenWarning, match=f"A{says}"):
        clustering.predict(empty)
    clustering.predict(empty[:1])
    X = random.normal(size=(20, 3))
    numbers = GeminiClustering(2, model="linear", preprocessing="auto", max_epochs=1).fit(X)
    X[:, 1] = np.nan
    with pytest.warns(UnseenWarning, match="All values of column '1' are missing"):
        numbers.predict(X)
