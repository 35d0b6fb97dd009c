"""A column that holds a vector or a record in each row: read as a column for each number or field of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest

import pollux
from pollux.app.cli import main
from pollux.data.sources import open_data
from pollux.errors import InputError

WIDTH = 66
FILES = ("lists.parquet", "fixed.parquet", "lists.feather", "lists.jsonl")


def vectors() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Two groups of vectors whose lengths are not one."""
    X = np.random.default_rng(0).normal(size=(60, WIDTH)).astype(np.float32)
    X[30:] += 3
    return X


def table(is_fixed: bool = False) -> pa.Table:
    X = vectors()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), WIDTH) if is_fixed else pa.array(list(X))
    return pa.table({"doc": [f"d{row}" for row in range(60)], "vector": lists, "stars": np.arange(60) % 5 / 2})


def write(folder: Path, name: str) -> Path:
    path, rows = folder / name, table(name.startswith("fixed"))
    if name.endswith(".jsonl"):
        path.write_text("\n".join(map(json.dumps, rows.to_pylist())))
    elif name.endswith(".feather"):
        feather.write_feather(rows, path)
    else:
        parquet.write_table(rows, path, row_group_size=25)
    return path


@pytest.mark.parametrize("name", FILES)
def test_each_number_is_a_column(tmp_path: Path, name: str) -> None:
    source = open_data(write(tmp_path, name))
    names = ["doc", *(f"vector[{index}]" for index in range(WIDTH)), "stars"]
    rows = source.read().rows
    assert rows.column_names == source.names() == names
    X = np.stack([rows.column(f"vector[{index}]").to_numpy() for index in range(WIDTH)], axis=1)
    np.testing.assert_allclose(X, vectors(), rtol=1e-6)
    blocks = source.blocks()
    last = blocks.read_block(len(blocks.lengths) - 1, ["stars", "vector[65]"])
    assert last.column_names == ["stars", "vector[65]"]
    assert last.column("vector[65]")[-1].as_py() == pytest.approx(float(vectors()[-1, 65]))


@pytest.mark.parametrize("name", FILES[:2])
def test_the_command_line_clusters_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    data, run = str(write(tmp_path, name)), str(tmp_path / "run")
    assert main(["fit", data, "--clusters", "2", "--out", run]) == 0
    shown = capsys.readouterr().out
    assert "recipe for embeddings" in shown
    assert "vector[0] … vector[65]" in shown
    assert "it stands beside the vectors of 'vector'" in shown
    out = tmp_path / "new.csv"
    assert main(["predict", run, data, "--out", str(out)]) == 0
    found = pd.read_csv(out)
    assert found["doc"][3] == "d3"
    assert found["cluster"][:30].nunique() == found["cluster"][30:].nunique() == 1


def test_a_vector_is_dropped_by_the_name_of_its_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(write(tmp_path, "lists.parquet"))
    assert main(["fit", data, "--clusters", "2", "--drop", "vector", "--out", str(tmp_path / "run")]) == 0
    assert "60 rows, 1 feature: stars" in capsys.readouterr().out


def test_data_frames_and_streams_are_read_alike(tmp_path: Path) -> None:
    frame = table().to_pandas()
    fitted = pollux.GeminiClustering(2, random_state=0).fit(frame)
    assert len(set(fitted.labels_[:30])) == len(set(fitted.labels_[30:])) == 1
    assert [each.name for each in fitted.columns_ if each.used] == [f"vector[{index}]" for index in range(WIDTH)]
    fitted.save(tmp_path / "model.safetensors")
    loaded = pollux.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(frame[["vector"]]), fitted.labels_)
    np.testing.assert_array_equal(loaded.predict(vectors()), fitted.labels_)
    with pytest.raises(InputError, match="vectors of 66 numbers, and these have 60"):
        loaded.predict(vectors()[:, :60])
    with pytest.raises(InputError, match="'vector' are not all of the 66 numbers"):
        loaded.predict(pd.DataFrame({"vector": list(vectors()[:, :60])}))
    alone = pollux.GeminiClustering(2, random_state=0).fit(frame[["vector"]])
    streamed = pollux.GeminiClustering(2, random_state=0).fit(str(write(tmp_path, "fixed.parquet")))
    np.testing.assert_array_equal(alone.labels_, fitted.labels_)
    np.testing.assert_array_equal(streamed.labels_, fitted.labels_)


def test_a_missing_vector_lacks_all_its_numbers() -> None:
    frame = table().to_pandas()
    frame.at[3, "vector"] = None
    fitted = pollux.GeminiClustering(2, random_state=0).fit(frame)
    assert len(fitted.labels_) == 60


def test_short_lists_are_features_among_others() -> None:
    frame = pd.DataFrame({"place": list(vectors()[:, :2]), "size": vectors()[:, 2]})
    fitted = pollux.GeminiClustering(2, random_state=0).fit(frame)
    assert [each.name for each in fitted.columns_ if each.used] == ["place[0]", "place[1]", "size"]


def test_lists_of_several_lengths_are_left_out() -> None:
    frame = table().to_pandas()
    frame.at[5, "vector"] = np.ones(3, dtype=np.float32)
    fitted = pollux.GeminiClustering(2, random_state=0).fit(frame)
    reasons = [each.reason for each in fitted.columns_ if each.name == "vector"]
    assert reasons == ["its lists are empty, or differ in length"]


def test_a_vector_of_another_length_is_named_where_rows_are_streamed(tmp_path: Path) -> None:
    rows = table()
    lists = [*rows.column("vector").to_pylist()[:-1], [1.0, 2.0]]
    parquet.write_table(rows.set_column(1, "vector", pa.array(lists)), tmp_path / "x.parquet", row_group_size=20)
    with pytest.raises(InputError, match="row group 2: Vectors of column 'vector' have 66 numbers, but 2 in row 19"):
        pollux.GeminiClustering(2).fit(str(tmp_path / "x.parquet"))


def test_vectors_may_begin_late(tmp_path: Path) -> None:
    lists = [None] * 25 + list(vectors()[25:])
    rows = table().set_column(1, "vector", pa.array(lists, pa.list_(pa.float32())))
    parquet.write_table(rows, tmp_path / "x.parquet", row_group_size=20)
    assert "vector[65]" in open_data(tmp_path / "x.parquet").blocks().names


def test_a_number_of_a_vector_takes_no_column_its_place() -> None:
    frame = pd.DataFrame({"a": list(vectors()[:, :2]), "a[0]": vectors()[:, 3]})
    for columns in (["a", "a[0]"], ["a[0]", "a"]):
        with pytest.raises(InputError, match=r"has the name of the column 'a\[0\]'"):
            pollux.GeminiClustering(2).fit(frame[columns])


def records() -> list[dict[str, Any] | None]:
    """Places of two groups, records within records; one is missing."""
    x = vectors()
    places = [
        {"at": {"lat": float(x[row, 0]), "lon": [float(x[row, 1])]}, "city": "ab"[row // 30]} for row in range(60)
    ]
    return [*places[:-1], None]


@pytest.mark.parametrize("name", ["x.parquet", "x.feather", "x.json"])
def test_each_field_of_a_record_is_a_column(tmp_path: Path, name: str) -> None:
    rows, path = pa.table({"size": np.arange(60) / 7, "place": records()}), tmp_path / name
    if name.endswith(".json"):
        path.write_text(json.dumps(rows.to_pydict()))
    elif name.endswith(".feather"):
        feather.write_feather(rows, path, chunksize=25)
    else:
        parquet.write_table(rows, path, row_group_size=25)
    source = open_data(path)
    names = ["size", "place.at.lat", "place.at.lon[0]", "place.city"]
    assert source.read().rows.column_names == source.names() == names
    blocks = source.blocks()
    last = blocks.read_block(len(blocks.lengths) - 1, names[:0:-1])
    assert last.column("place.city").to_pylist()[-2:] == ["b", None]
    assert last.column("place.at.lon[0]").to_pylist()[-2:] == [pytest.approx(float(vectors()[-2, 1])), None]


def test_records_of_data_frames_and_streams_are_read_alike(tmp_path: Path) -> None:
    frame = pd.DataFrame({"size": vectors()[:, 2], "place": records()})
    fitted = pollux.GeminiClustering(2, random_state=0).fit(frame)
    assert [each.name for each in fitted.columns_ if each.used][1:] == ["place.at.lat", "place.at.lon[0]", "place.city"]
    np.testing.assert_array_equal(fitted.predict(frame), fitted.labels_)
    frame.to_parquet(tmp_path / "x.parquet")
    streamed = pollux.GeminiClustering(2, random_state=0).fit(str(tmp_path / "x.parquet"))
    np.testing.assert_array_equal(streamed.labels_, fitted.labels_)


def test_a_field_of_a_record_takes_no_column_its_place(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [{"b": 1.0}, {"b": 2.0}] * 30, "a.b": vectors()[:, 3]})
    with pytest.raises(InputError, match=r"has the name of the column 'a\.b'"):
        pollux.GeminiClustering(2).fit(frame)
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"more than one column called 'a\.b'"):
        open_data(tmp_path / "x.parquet").read()
