"""Tables in files: blocks by number are the rows in order, of whatever format, and types are those of the whole."""

from __future__ import annotations

import errno
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coverings import examples
from data_files import TABLES, frame, write_bytes
from data_files import delimited as delimited_text
from data_files import write_table as table_in
from pollux.data import delimited
from pollux.data.sources import Blocks, open_data
from pollux.data.streams import FileChunks, open_blocks
from pollux.data.table_files import in_words
from pollux.errors import InputError


def all_blocks(blocks: Blocks) -> pa.Table:
    return pa.concat_tables(blocks.read_block(block, blocks.names) for block in range(len(blocks.lengths)))


@pytest.mark.parametrize("name", TABLES)
def test_blocks_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 300)
    path = table_in(tmp_path, name, frame(60))
    whole = open_data(path).read().rows
    blocks = open_blocks(path)
    assert len(blocks.lengths) > 1 or name == "table.feather"
    assert all_blocks(blocks).to_pydict() == whole.to_pydict()
    last = len(blocks.lengths) - 1
    some = blocks.read_block(last, ["size", "name"])
    assert some.to_pydict() == whole.select(["size", "name"]).slice(int(blocks.lengths[:last].sum())).to_pydict()
    again = pickle.loads(pickle.dumps(blocks))
    assert all_blocks(again).equals(all_blocks(blocks))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2", "3.5"], "number"),
        (["1", "2", "3"], "integer"),
        (["1", "2", "x"], "text"),
        (["1", "0", "true"], "boolean"),
        (["", "", "NA"], "nothing"),
        (["2020-01-01", "", "2021-12-31"], "time"),
        (["2020-01-01", "", "2021-12-31 12:30:00"], "time"),
        (["12:00:01", "", "13:30:00"], "time"),
        (["007", "1", "2"], "text"),
        (["12345678901234567890", "1", "2.5"], "text"),
        ([" 1", "2 ", "3"], "integer"),
        (["1e5", "nan", "-.5"], "number"),
        (['"a\nb"', '"c,d"', "e"], "text"),
    ],
    ids=str,
)
def test_types_are_those_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[str], kind: str
) -> None:
    """Whatever the first block looks like; the same as of a file that is read at once."""
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 50)
    lines = [*[values[0]] * 40, *[values[1]] * 40, values[2]]
    path = write_bytes(tmp_path / "x.csv", "a,b\n" + "".join(f"{index}.5,{v}\n" for index, v in enumerate(lines)))
    blocks = open_blocks(path)
    assert blocks.kinds == {"a": "number", "b": kind}
    whole = open_data(path).read().rows
    assert all_blocks(blocks).column("b").cast(pa.string()).to_pylist() == _as_text(whole.column("b"), kind)
    if kind != "time":
        assert blocks.kinds["b"] == open_blocks_kind(whole)


@pytest.mark.parametrize("delimiter", [";", "\t"])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1.660", "", "417"], "text"),
        (["1.660", "2.000.417", "-1.660"], "text"),
        (["1.660", "12.5", "417"], "number"),
        (["0.125", "0.250", "1"], "number"),
    ],
    ids=str,
)
def test_thousands_beside_decimal_commas_stay_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delimiter: str, values: list[str], kind: str
) -> None:
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 50)
    lines = [*[values[0]] * 40, *[values[1]] * 40, values[2]]
    for share, found in (("18,1", kind), ("1,810", "number")):
        text = "\n".join([f"a{delimiter}b", *(f"{share}{delimiter}{value}" for value in lines), ""])
        path = write_bytes(tmp_path / "x.tsv", text) if delimiter == "\t" else write_bytes(tmp_path / "x.csv", text)
        if "2.000.417" in values:
            found = "text"
        assert open_blocks(path).kinds["b"] == found
        assert open_blocks_kind(open_data(path).read().rows) == found


def _as_text(values: Any, kind: str) -> list[str | None]:
    # Dates are read as points in time.
    if (kind == "time" and pa.types.is_date(values.type)) or (kind == "time" and pa.types.is_timestamp(values.type)):
        values = values.cast(pa.timestamp("ns"))
    return values.cast(pa.string()).to_pylist()


def open_blocks_kind(whole: pa.Table) -> str:
    from pollux.data.arrow import kind_of

    return kind_of(whole.schema.field("b").type)


@settings(max_examples=examples(40), deadline=None)
@given(
    words=st.lists(st.text(st.sampled_from('ab,;"\n\r 1.é'), max_size=6), min_size=1, max_size=40),
    size=st.integers(40, 200),
)
def test_quoted_lines_never_split_a_row(words: list[str], size: int) -> None:
    data = pd.DataFrame({"number": np.arange(len(words)) / 4, "word": [f"w{word}" for word in words]})
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_BLOCK_BYTES", size)
        write_bytes(Path(folder) / "x.csv", delimited_text(data))
        blocks = open_blocks(Path(folder) / "x.csv")
        found = all_blocks(blocks)
        assert found.column("number").to_pylist() == data["number"].tolist()
        assert found.column("word").to_pylist() == data["word"].tolist()


def test_the_copy_of_a_text_file_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    chunks = FileChunks(table_in(tmp_path, "plain.csv", frame()), columns=["size", "count"])
    assert chunks.read(0).shape == (30, 2)
    del chunks
    assert not list((tmp_path / "copies").iterdir())
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(InputError, match=r"ragged\.csv cannot be read: line 3 has 3 values, and 2 are expected"):
        open_blocks(tmp_path / "ragged.csv")
    assert not list((tmp_path / "copies").iterdir())


def test_a_text_file_that_changes_has_another_fingerprint(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "x.csv", "a,b\n1,2\n3,4\n")
    first = FileChunks(path).fingerprint()
    assert FileChunks(path).fingerprint() == first
    write_bytes(path, "a,b\n1,2\n3,4\n5,6\n")
    assert FileChunks(path).fingerprint() != first


@pytest.mark.parametrize("name", ["plain.csv", "packed.csv.gz", "tabs.tsv", "table.parquet", "table.feather"])
def test_a_folder_of_any_format_is_one_table(tmp_path: Path, name: str) -> None:
    data = frame(40)
    parts = [data[:25], data[25:]]
    for index, part in enumerate(parts):
        (tmp_path / "data" / f"kind=k {index}").mkdir(parents=True)
        table_in(tmp_path / "data" / f"kind=k {index}", name, part.reset_index(drop=True))
    (tmp_path / "data" / "read me.txt").write_text("of whatever")
    expected = data.assign(kind=["k 0"] * 25 + ["k 1"] * 15)
    whole = open_data(tmp_path / "data").read().rows
    assert whole.to_pydict() == expected.to_dict("list")
    assert all_blocks(open_blocks(tmp_path / "data")).to_pydict() == expected.to_dict("list")


@pytest.mark.parametrize(
    ("folders", "values"),
    [
        (["year=2023", "year=2024"], [2023, 2024]),
        (["year=2023", "year=late"], ["2023", "late"]),
        (["year=a%20b", "year=__HIVE_DEFAULT_PARTITION__"], ["a b", None]),
    ],
)
def test_partitions_are_whole_numbers_or_text(tmp_path: Path, folders: list[str], values: list[Any]) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir()
        table_in(tmp_path / folder, "table.parquet", pd.DataFrame({"a": [1.5]}))
    found = open_data(tmp_path).read().rows.to_pydict()["year"]
    assert sorted(found, key=str) == sorted(values, key=str)
    # A column of the files goes before what their folders say.
    for folder in folders:
        table_in(tmp_path / folder, "table.parquet", pd.DataFrame({"a": [1.5], "year": [7]}))
    assert open_data(tmp_path).read().rows.to_pydict() == {"a": [1.5, 1.5], "year": [7, 7]}


def test_a_folder_holds_tables_of_one_format(tmp_path: Path) -> None:
    table_in(tmp_path, "plain.csv", frame())
    table_in(tmp_path, "table.feather", frame())
    with pytest.raises(InputError, match=r"Feather files .* and text files"):
        open_data(tmp_path)


def test_files_of_another_format_are_named_that_are_not_read(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        frame().to_parquet(tmp_path / name)
    assert open_data(tmp_path).notes() == []
    for name in ("labels.csv", "list.json", "more.xlsx", "c.npy", "notes.txt"):
        (tmp_path / name).write_text("x")
    (note,) = open_data(tmp_path).notes()
    assert "a.parquet and 1 more are read, and not 4 files of other formats: c.npy, labels.csv, list.json …" in note


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), OSError("Error writing bytes to file")])
def test_no_room_for_a_copy_is_not_the_fault_of_the_file(error: OSError) -> None:
    with pytest.raises(InputError, match=r"no room for a copy of x\.csv .* TMPDIR"), in_words(Path("x.csv")):
        raise error
