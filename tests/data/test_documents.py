"""JSON and Excel, which are read as a whole, and what comes through standard input."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sqlite3
import struct
import sys
import types
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from data_files import FAST, pollux, tree, write_bytes
from pollux.app.run_data import data_file
from pollux.data.sources import Reading, open_data
from pollux.errors import InputError

RECORDS: list[dict[str, Any]] = [
    {"name": f"n{index}", "size": index * index % 7, "colour": "red" if index % 3 else "blue"} for index in range(12)
]
RECORDS[3] = {"name": "n3", "size": 2, "colour": None}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_query_without_rows_is_to_blame_for_that(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as base:
        base.execute("CREATE TABLE t (a)")
        base.execute("INSERT INTO t VALUES (1)")
        base.commit()
    source = open_data(tmp_path / "x.db", Reading(sql="SELECT a FROM t WHERE a > 5"))
    for read in (source.read, source.blocks):
        with pytest.raises(InputError, match=r"The query \(sql=\) gave no rows of .*x\.db"):
            read()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.json", json.dumps(RECORDS)),
        ("lines.jsonl", "\n".join(map(json.dumps, RECORDS)) + "\n"),
        ("wrapped.json", json.dumps({"status": "good", "rows": RECORDS})),
        ("columns.json", json.dumps(pd.DataFrame(RECORDS).to_dict("list"))),
    ],
)
def test_json_is_a_table_in_the_usual_forms(tmp_path: Path, name: str, text: str) -> None:
    source = open_data(write_bytes(tmp_path / name, text))
    assert source.read().rows.to_pylist() == RECORDS
    assert pollux("fit", name, *FAST, "--out", "run").code == 0
    assert pollux("predict", "run", name, "--out", "new.csv").code == 0
    np.testing.assert_array_equal(pd.read_csv("new.csv")["cluster"], pd.read_csv("run/clusters.csv")["cluster"])
    assert pollux("fit", name, *FAST, "--stream", "yes", "--out", "streamed").code == 0


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_of_json_may_hold_ends_of_lines_of_other_kinds(tmp_path: Path, end: str) -> None:
    records = [{"a": "one\u2028two"}, {"a": "three\x85four"}, {"a": "five"}]
    text = end.join(json.dumps(record, ensure_ascii=False) for record in records)
    assert open_data(write_bytes(tmp_path / "x.jsonl", text)).read().rows.to_pylist() == records


@pytest.mark.parametrize(
    "text",
    ["", "[", "{}", "[]", "[1, 2]", "3", '"a"', "[" * 100_000, '{"a": [1], "b": [1, 2]}', "\xff", '[{"a": 1}, 2]'],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    path = write_bytes(tmp_path / "x.json", text.encode("latin-1"))
    with pytest.raises(InputError, match=r"x\.json"):
        open_data(path).read()


def test_records_may_differ_and_values_may_be_mixed(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "x.json", '[{"a": 1, "b": "x"}, {"a": "two"}, {"b": null, "c": 2.0}]')
    assert open_data(path).read().rows.to_pydict() == {
        "a": ["1", "two", None],
        "b": ["x", None, None],
        "c": [None, None, 2],
    }


def test_objects_within_records_are_columns(tmp_path: Path) -> None:
    records = [{"name": "a", "medals": {"gold": 1, "by": {"ski": 1}}}, {"name": "b", "medals": {"gold": 3}}]
    assert open_data(write_bytes(tmp_path / "x.json", json.dumps(records))).read().rows.to_pydict() == {
        "name": ["a", "b"],
        "medals.gold": [1, 3],
        "medals.by.ski": [1, None],
    }
    deep = '[{"a":' + '{"a":' * 900 + "1" + "}" * 901 + "]"
    with contextlib.suppress(InputError):
        open_data(write_bytes(tmp_path / "x.json", deep)).read()


def test_sheets_are_tables(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    pytest.importorskip("xlsxwriter")
    frame = pd.DataFrame(RECORDS).assign(day=pd.Timestamp("2020-01-01") + pd.to_timedelta(range(12), unit="D"))
    frame.to_excel(tmp_path / "x.xlsx", index=False, engine="xlsxwriter")
    rows = open_data(tmp_path / "x.xlsx").read().rows
    with pd.ExcelWriter(tmp_path / "two.xlsx", engine="xlsxwriter") as writer:
        pd.DataFrame({"a": [1, 2]}).to_excel(writer, sheet_name="old", index=False)
        frame.to_excel(writer, sheet_name="orders", index=False)
    named = open_data(tmp_path / "two.xlsx", Reading(array="orders"))
    assert named.read().rows.equals(rows)
    assert not named.notes()
    first = open_data(tmp_path / "two.xlsx")
    assert first.names() == ["a"]
    assert "its sheet 'old'; there are also 'orders'" in first.notes()[0]
    with pytest.raises(InputError, match="There are: 'old', 'orders'"):
        open_data(tmp_path / "two.xlsx", Reading(array="order")).read()
    assert rows.column_names == ["name", "size", "colour", "day"]
    assert rows["size"].to_pylist() == frame["size"].tolist()
    assert str(rows.schema.field("size").type) == "int64"
    with pytest.raises(InputError, match="cannot be read as an Excel file"):
        open_data(write_bytes(tmp_path / "y.xlsx", b"PK rubbish")).read()


def test_excel_files_say_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(InputError, match=r"pip install 'pollux\[excel\]'; or save the sheet as CSV"):
        open_data(write_bytes(tmp_path / "x.xlsx", b"PK")).read()


@pytest.mark.parametrize("form", ["csv", "json"])
def test_standard_input_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    text = json.dumps(RECORDS) if form == "json" else pd.DataFrame(RECORDS).to_csv(index=False)

    def pipe(*words: object) -> Any:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return pollux(*words)

    assert pipe("fit", "-", *FAST).code == 0
    assert Path("runs/stdin/model.safetensors").is_file()
    assert pipe("predict", "runs/stdin", "-", "--out", "new.csv").code == 0
    assert len(pd.read_csv("new.csv")) == 12
    assert pipe("fit", "--config", "runs/stdin/run.toml", "--out", "again").code == 0
    assert Path("again/clusters.csv").read_bytes() == Path("runs/stdin/clusters.csv").read_bytes()
    # A file that is gone is not named, and data can be given wherever they are needed again.
    for words in (("report", "again"), ("explain", "again"), ("fit", "--resume", "again", "--epochs", "3")):
        answer = pipe(*words)
        assert answer.code == 2
        assert "The data of again came from standard input: pass them again" in answer.err
    assert pipe("explain", "again", "-").code == 0
    assert pipe("fit", "-", "--resume", "again", "--epochs", "3").code == 0
    Path(f"moved.{form}").write_text(text)
    assert pipe("fit", f"moved.{form}", "--resume", "again", "--epochs", "4").code == 0
    assert json.loads(Path("again/summary.json").read_text())["resumed_after"] == [2, 3]
    Path(f"moved.{form}").unlink()
    answer = pipe("fit", "--resume", "again", "--epochs", "5")
    assert "say where the data are, pollux fit DATA --resume again" in answer.err


def test_standard_input_is_known_by_its_first_bytes_and_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, samples = pd.DataFrame(RECORDS), np.random.default_rng(0).normal(size=(20, 3))
    np.savez(tmp_path / "x.npz", samples)
    frame.to_csv(tmp_path / "x.csv.gz", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    if importlib.util.find_spec("openpyxl") and importlib.util.find_spec("python_calamine"):
        frame.to_excel(tmp_path / "x.xlsx", index=False, engine="xlsxwriter")
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(RECORDS).encode())
    for path in tmp_path.glob("*.*"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        assert data_file("-").name == "stdin" + path.name.removeprefix("x").removeprefix("bom")
        assert len(open_data(data_file("-")).read()) == (20 if path.suffix == ".npz" else 12)
        # A copy without a name is gone however the process ends.
        assert data_file("-").is_symlink() == (sys.platform == "linux")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"PK,b\n1,2\n3,4\n")))
    assert len(open_data(data_file("-")).read()) == 2


def test_a_document_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pollux.data.documents._MOST_BYTES", 100)
    monkeypatch.setitem(sys.modules, "python_calamine", types.ModuleType("python_calamine"))
    pd.DataFrame(RECORDS).to_json(tmp_path / "x.json.gz", orient="records")
    with zipfile.ZipFile(tmp_path / "x.xlsx", "w") as packed:
        packed.writestr("[Content_Types].xml", " " * 101)
    for path in tmp_path.glob("x.*"):
        with pytest.raises(InputError, match=r"more than 0.0 GB of text, unpacked.*make it a CSV or Parquet file"):
            open_data(path).read()


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_workbook_that_lies_about_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packing: int
) -> None:
    monkeypatch.setattr("pollux.data.documents._MOST_BYTES", 50_000)
    monkeypatch.setitem(sys.modules, "python_calamine", types.ModuleType("python_calamine"))
    with zipfile.ZipFile(tmp_path / "x.xlsx", "w", packing) as packed:
        packed.writestr("sheet.xml", " " * 100_000)
    content = (tmp_path / "x.xlsx").read_bytes()
    # The sizes of both headers; what is packed stays as long as it is.
    packed_size = struct.pack("<L", 100_000)
    lies = content.replace(packed_size, struct.pack("<L", 10)) if packing else content
    assert (lies == content) == (packing == zipfile.ZIP_STORED)
    (tmp_path / "x.xlsx").write_bytes(lies)
    with pytest.raises(InputError, match=r"of text, unpacked"):
        open_data(tmp_path / "x.xlsx").read()


def test_a_view_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pollux.data.documents._VALUES_AT_ONCE", 1_000)
    monkeypatch.setattr("pollux.data.sources.room_bytes", lambda: 1_000_000)
    with closing(sqlite3.connect(tmp_path / "x.db")) as base:
        base.execute("CREATE VIEW v AS WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c) SELECT i FROM c")
        base.commit()
    with pytest.raises(InputError, match=r"the first 10,010 rows .* and there is room for 0\.0: ask for fewer"):
        open_data(tmp_path / "x.db").read()


def test_unknown_formats_name_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"read_spss\('x\.sav'\)\.to_csv\('x\.csv', index=False\)"):
        open_data(write_bytes(tmp_path / "x.sav", b"1"))
    with pytest.raises(InputError, match=r"read_…\('x\.xyz'\)"):
        open_data(write_bytes(tmp_path / "x.xyz", b"1"))


@pytest.mark.parametrize(
    "query",
    [
        "ATTACH 'file:new.db?mode=rwc' AS other",
        "ATTACH 'new.db' AS other",
        "VACUUM INTO 'file:new.db?mode=rwc'",
        "PRAGMA query_only = 0",
        "SELECT load_extension('new.db')",
        "CREATE TEMP TABLE t AS SELECT * FROM sizes",
        "DELETE FROM sizes",
    ],
)
def test_a_query_of_sqlite_does_nothing_but_read(query: str) -> None:
    with closing(sqlite3.connect("shop.db")) as base:
        base.execute("CREATE TABLE sizes (size INTEGER)")
        base.executemany("INSERT INTO sizes VALUES (?)", [(i,) for i in range(5)])
        base.execute("CREATE VIEW large AS SELECT size FROM sizes WHERE size > 1")
        base.commit()
    before = tree(Path())
    with pytest.raises(InputError, match=r"shop\.db cannot be read by .*(not authorized|authorization denied)"):
        open_data("shop.db", Reading(sql=query)).read()
    assert tree(Path()) == before
    counting = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 3) SELECT i FROM c"
    for reading, values in ((counting, [1, 2, 3]), ("SELECT max(size) AS i FROM large", [4])):
        assert open_data("shop.db", Reading(sql=reading)).read().rows.column("i").to_pylist() == values


@pytest.mark.parametrize("orient", ["columns", "index", "split", "records", "table"])
@pytest.mark.parametrize("ids", [False, True])
def test_json_of_pandas_is_read_in_any_orientation(tmp_path: Path, orient: Any, ids: bool) -> None:
    data = pd.DataFrame(RECORDS)
    if ids:
        data = data.set_index("name")
    if orient == "records":
        data = data.reset_index(drop=True)
    data.to_json(tmp_path / "data.json", orient=orient)
    found = open_data(tmp_path / "data.json").read().rows.to_pandas()
    if orient == "table":
        found = found if ids else found.drop(columns="index")
    elif ids and orient != "records":
        assert next(iter(found)) == "id"
        found = found.rename(columns={"id": "name"})
    expected = (data.reset_index() if ids and orient != "records" else data).to_dict("records")
    assert found.to_dict("records") == expected


def test_json_of_objects_by_id_is_a_table(tmp_path: Path) -> None:
    by_id = {f"k{index}": {"a": index, "b": 2 * index, "deep": {"c": "x"}} for index in range(9)}
    del by_id["k3"]["b"]
    path = write_bytes(tmp_path / "rows.json", json.dumps(by_id))
    table = open_data(path).read().rows.to_pydict()
    assert list(table) == ["id", "a", "b", "deep.c"]
    assert table["id"] == list(by_id)
    assert table["b"] == [0, 2, 4, None, *range(8, 18, 2)]
    # Numbers alone: there are more rows than columns.
    wide = {name: {f"k{index}": index for index in range(9)} for name in ("a", "b", "c")}
    path = write_bytes(tmp_path / "columns.json", json.dumps(wide))
    assert open_data(path).read().rows.column_names == ["id", "a", "b", "c"]
    # A single record, as a service is sent it.
    for name in ("one.json", "one.jsonl"):
        path = write_bytes(tmp_path / name, json.dumps({"home": {"x": 1, "y": 2}, "away": {"x": 3, "y": 4}}))
        assert open_data(path).read().rows.to_pylist() == [{"home.x": 1, "home.y": 2, "away.x": 3, "away.y": 4}]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([[1, 2], [3, 4]], "no rows, but a list of lists. A table is a list of objects"),
        ("word", "no rows, but a text"),
        ({str(index): {f"k{index}": 1} for index in range(60)}, "an object of 60 objects whose keys differ"),
    ],
)
def test_json_that_is_no_table_says_what_it_holds(tmp_path: Path, found: Any, says: str) -> None:
    path = write_bytes(tmp_path / "data.json", json.dumps(found))
    with pytest.raises(InputError, match=says):
        open_data(path).read()


@pytest.mark.parametrize(
    "text", [json.dumps(RECORDS), json.dumps(RECORDS, indent=2), "\n".join(map(json.dumps, RECORDS))]
)
def test_json_in_a_file_called_csv_is_recognised(tmp_path: Path, text: str) -> None:
    path = write_bytes(tmp_path / "data.csv", text)
    with pytest.raises(InputError, match=r"data\.csv holds JSON.*rename it, to data\.json"):
        open_data(path).read()


@pytest.mark.parametrize("within", ["", "/work/"])
def test_addresses_are_to_be_downloaded_first(within: str) -> None:
    says = r"^https://example\.com/a\.csv is an address: download it first"
    with pytest.raises(InputError, match=says):
        open_data(f"{within}https://example.com/a.csv")
