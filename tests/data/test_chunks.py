"""Chunks of arrays, of Parquet files and of datasets are their rows, as other readers give them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from chunk_files import folder_of, read_all, table_of
from data_files import plan_array, plan_table, survey_table, write_arrow, write_bytes
from pollux.data import sources
from pollux.data.encoding import TableEncoding
from pollux.data.sources import gather, open_data
from pollux.data.streams import DatasetChunks, FileChunks
from pollux.data.survey import Choices
from pollux.errors import InputError

# Arrays


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8", "i2", "u1", "?", "f2"])
@pytest.mark.parametrize("shape", [(70_001, 9), (50_000,), (300, 3, 32, 32), (2_000, 28, 28), (200, 32, 32, 3), (1, 4)])
def test_an_array_is_read_as_other_files_are(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    np.save(tmp_path / "x.npy", array)
    chunks = FileChunks(tmp_path / "x.npy")
    expected = open_data(tmp_path / "x.npy").read().rows
    assert chunks.shape == expected.shape[1:]
    found = read_all(chunks)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_maps_are_read_from_where_they_lie(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(400_000, 3))
    (tmp_path / "raw").write_bytes(b"head of " + X.tobytes())
    array = np.memmap(tmp_path / "raw", dtype="f8", mode="r", offset=8, shape=X.shape)
    np.testing.assert_array_equal(read_all(FileChunks(array, dtype="float64")), X)
    np.testing.assert_array_equal(read_all(FileChunks(array[123:], dtype="float64")), X[123:])
    assert FileChunks(array).lengths.sum() == len(X)
    assert len(FileChunks(array).lengths) > 1
    for wrong in (array[:, :2], array[::2], np.asfortranarray(X)):
        with pytest.raises(InputError, match=r"one after the other|no array in a file"):
            FileChunks(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="mode 'r'"):
        FileChunks(np.memmap(tmp_path / "raw", dtype="u1", mode="c"))
    np.save(tmp_path / "f.npy", np.asfortranarray(X[:9]))
    with pytest.raises(InputError, match="one after the other"):
        FileChunks(tmp_path / "f.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_arrays_that_are_not_finite_are_told_where(tmp_path: Path, value: float) -> None:
    X = np.ones((300_000, 4))
    X[200_001, 2] = value
    np.save(tmp_path / "x.npy", X)
    chunks = FileChunks(tmp_path / "x.npy")
    with pytest.raises(InputError, match=r"x\.npy, row 200001: column '2'"):
        read_all(chunks)
    assert len(chunks.read(0)) == chunks.lengths[0]


def test_large_values_are_finite(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((100, 2), 3e38, dtype=np.float32))
    assert np.isfinite(FileChunks(tmp_path / "x.npy").read(0)).all()


def test_a_file_that_has_become_shorter_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones((1_000, 3)))
    chunks = FileChunks(path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(InputError, match="changed"):
        chunks.read(0)


def test_reading_an_array_takes_little_memory(tmp_path: Path) -> None:
    with (tmp_path / "x.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (5_000_000, 20)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 400_000_000)
    program = f"""
import resource
from pollux.data.streams import FileChunks
from pollux.data.shuffling import BatchSizes, shuffled
chunks = FileChunks({str(tmp_path / "x.npy")!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(len(batch) for batch in shuffled(chunks, BatchSizes(5_000_000, 500), 0, window_bytes=16_000_000))
assert rows == 5_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    # What a child inherits counts as its own peak, so a fresh interpreter starts it.
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}], check=True)"
    found = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=True)
    assert int(found.stdout) * 1024 < 100_000_000


# Parquet


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 7, 1_000])
def test_a_parquet_file_is_read_as_pandas_does(tmp_path: Path, rows: int, dtype: str) -> None:
    table = table_of(53)
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=rows)
    chunks = FileChunks(tmp_path / "x.parquet", dtype=dtype)
    expected = pd.read_parquet(tmp_path / "x.parquet").to_numpy(dtype=np.float64).astype(dtype)
    assert chunks.lengths.max() == min(rows, 53)
    assert chunks.feature_names == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(read_all(chunks), expected)
    assert read_all(chunks).dtype == dtype
    some = FileChunks(tmp_path / "x.parquet", columns=["c", "a"], dtype=dtype)
    np.testing.assert_array_equal(read_all(some), expected[:, [2, 0]])
    with pytest.raises(InputError, match="no column 'e'"):
        FileChunks(tmp_path / "x.parquet", columns=["e"])


def test_a_folder_is_one_table(tmp_path: Path) -> None:
    tables = [table_of(250, 1), table_of(0, 2), table_of(1, 3), table_of(120, 4).select(["d", "c", "b", "a"])]
    folder = folder_of(tmp_path / "data", *tables)
    (folder / "_SUCCESS.parquet").write_text("")
    (folder / ".hidden.parquet").write_text("")
    chunks = FileChunks(folder)
    assert chunks.lengths.tolist() == [100, 100, 50, 1, 100, 20]
    expected = pa.concat_tables([table.select(["a", "b", "c", "d"]) for table in tables]).to_pandas()
    np.testing.assert_array_equal(read_all(chunks), expected.to_numpy(dtype=np.float32))
    whole = open_data(folder).read()
    pd.testing.assert_frame_equal(whole.rows.to_pandas(), expected)
    plan = plan_table(whole.rows, Choices())
    parts = list(open_data(folder).stream(plan, ["a"]))
    assert [part.first for part in parts] == [0, 250, 251]
    np.testing.assert_array_equal(plan.encode(gather(parts).rows), plan.encode(whole.rows))


def test_empty_row_groups_are_left_out(tmp_path: Path) -> None:
    with parquet.ParquetWriter(tmp_path / "x.pq", table_of(0).schema) as writer:
        for rows in (3, 0, 5, 0):
            writer.write_table(table_of(rows))
    assert FileChunks(tmp_path / "x.pq").lengths.tolist() == [3, 5]
    parquet.write_table(table_of(0), tmp_path / "empty.pq")
    with pytest.raises(InputError, match="no rows"):
        FileChunks(tmp_path / "empty.pq")


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"a": [1.0]}, "has 'b'"),
        ({"a": [1.0], "b": [2.0], "c": [2.0]}, "has 'c'"),
        ({"a": ["x"], "b": [2.0]}, "'a' holds text"),
    ],
)
def test_files_of_a_folder_have_the_same_columns(tmp_path: Path, other: dict[str, Any], told: str) -> None:
    folder = folder_of(tmp_path / "data", pa.table({"a": [1.0], "b": [2.0]}), pa.table(other))
    with pytest.raises(InputError, match=told) as caught:
        FileChunks(folder)
    assert "part 1" in str(caught.value)
    with pytest.raises(InputError, match=told):
        open_data(folder).read()


def test_numbers_may_be_stored_in_different_types(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", pa.table({"a": [1, 2]}), pa.table({"a": [2.5, 3.0]}))
    np.testing.assert_array_equal(read_all(FileChunks(folder))[:, 0], [1, 2, 2.5, 3])
    assert open_data(folder).read().rows.column("a").to_pylist() == [1, 2, 2.5, 3]


def test_a_folder_holds_images_or_tables(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", table_of(3))
    (folder / "picture.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"Parquet files .* and images"):
        open_data(folder)


def test_columns_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": [1.0], "word": ["x"], "day": [pd.Timestamp(0)]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"'word' \(text\), 'day' \(time\)"):
        FileChunks(tmp_path / "x.parquet")
    assert FileChunks(tmp_path / "x.parquet", columns=["a"]).shape == (1,)


def test_missing_values_are_told_where(tmp_path: Path) -> None:
    values = [1.0] * 30
    holes = [None if index == 25 else 1 for index in range(30)]
    parquet.write_table(pa.table({"a": values, "b": holes}), tmp_path / "x.parquet", row_group_size=10)
    chunks = FileChunks(tmp_path / "x.parquet")
    assert len(chunks.read(1)) == 10
    with pytest.raises(InputError, match=r"x\.parquet, row group 2: 1 of 10 .* column 'b'"):
        chunks.read(2)
    values[13] = np.inf
    parquet.write_table(pa.table({"a": values}), tmp_path / "y.parquet", row_group_size=10)
    with pytest.raises(InputError, match=r"y\.parquet, row group 1, row 3: column 'a' is infinite"):
        FileChunks(tmp_path / "y.parquet").read(1)


def test_damaged_parquet_files_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(table_of(1_000), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(InputError, match=r"x\.parquet cannot be read"):
        FileChunks(path)
    middle = bytearray(whole)
    middle[4:2_000] = bytes(1_996)
    path.write_bytes(middle)
    with pytest.raises(InputError, match=r"x\.parquet"):
        read_all(FileChunks(path))


def test_fingerprints_tell_data_apart(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", table_of(20), table_of(30))
    np.save(tmp_path / "x.npy", np.ones((10, 2)))

    def found() -> list[str]:
        return [
            FileChunks(folder).fingerprint(),
            FileChunks(folder, columns=["a"]).fingerprint(),
            FileChunks(folder, dtype="float64").fingerprint(),
            FileChunks(folder).subdivided(9).fingerprint(),
            FileChunks(folder, encoding=survey_table(folder)[0]).fingerprint(),
            FileChunks(tmp_path / "x.npy").fingerprint(),
            DatasetChunks(TensorDataset(torch.ones(4, 2))).fingerprint(),
        ]

    first = found()
    assert found() == first
    assert len(set(first)) == len(first)
    part = folder / "part 1" / "part.parquet"
    later = part.stat().st_mtime_ns + 2 * 10**9
    parquet.write_table(table_of(30, 9), part, row_group_size=100)
    # Disks differ in how finely they count time.
    os.utime(part, ns=(later, later))
    assert found()[0] != first[0]


# Datasets


class Pictures(Dataset[Any]):
    """Items made on the fly: what ``wrap`` makes of a tensor (1, 2, 3) that holds its number."""

    def __init__(self, n: int, wrap: Callable[[torch.Tensor, int], Any]) -> None:
        self.n, self.wrap = n, wrap

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return self.wrap(torch.full((1, 2, 3), float(index)), index)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda item, index: item,
        lambda item, index: (item, index),
        lambda item, index: [item.numpy(), "label"],
        lambda item, index: {"image": item.double(), "label": index},
        lambda item, index: item.to(torch.bfloat16),
    ],
)
def test_items_of_a_dataset_are_samples_with_or_without_labels(wrap: Callable[[torch.Tensor, int], Any]) -> None:
    chunks = DatasetChunks(Pictures(20, wrap), items=8)
    assert chunks.shape == (1, 2, 3)
    assert chunks.lengths.tolist() == [8, 8, 4]
    np.testing.assert_array_equal(read_all(chunks)[:, 0, 1, 2], np.arange(20))
    np.testing.assert_array_equal(read_all(chunks.subdivided(7)), read_all(chunks))


def test_tensors_and_subsets_are_read_at_once() -> None:
    X = torch.randn(3_000, 5, dtype=torch.float64)
    whole = TensorDataset(X, torch.arange(3_000))
    np.testing.assert_array_equal(read_all(DatasetChunks(whole, dtype="float64")), X.numpy())
    subset = Subset(whole, list(range(0, 3_000, 2)))
    np.testing.assert_array_equal(read_all(DatasetChunks(subset, dtype="float64")), X[::2].numpy())


def test_items_that_cannot_be_read_are_named() -> None:
    def one_is(other: Any) -> DatasetChunks:
        return DatasetChunks(Pictures(2_000, lambda item, index: other if index == 1_500 else item))

    with pytest.raises(InputError, match=r"Item 1500 .* shape"):
        read_all(one_is(torch.ones(1, 2, 4)))
    with pytest.raises(InputError, match="row 1500"):
        read_all(one_is(torch.full((1, 2, 3), torch.nan)))
    with pytest.raises(InputError, match="Item 1500"):
        read_all(one_is("word"))
    with pytest.raises(InputError, match="empty"):
        DatasetChunks(TensorDataset(torch.ones(0, 2)))


# Data that change while they are streamed


def changed_files(path: Path, n: int = 60) -> None:
    """A file of other numbers, of the same shape and size."""
    random = np.random.default_rng(1)
    if path.suffix == ".npy":
        np.save(path, random.normal(size=(n, 2)))
    elif path.suffix == ".csv":
        write_bytes(
            path, "a,b\n" + "".join(f"{value:.4f},{index:03}.5\n" for index, value in enumerate(random.random(n)))
        )
    else:
        table = pa.table({"a": random.normal(size=n), "b": random.normal(size=n)})
        if path.suffix == ".parquet":
            parquet.write_table(table, path, row_group_size=20, compression="none", write_statistics=False)
        else:
            write_arrow(path, table)


@pytest.mark.parametrize("name", ["x.npy", "x.csv", "x.parquet", "x.arrow"])
def test_a_file_that_is_replaced_while_it_is_streamed_is_noticed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    changed_files(path)
    before = path.read_bytes()
    source = open_data(path)
    chunks = FileChunks(source.blocks())
    first = chunks.read(0)
    changed_files(tmp_path / f"other {name}")
    other = bytearray((tmp_path / f"other {name}").read_bytes())
    place = other.rindex(b".5") if name == "x.csv" else len(other) // 2
    other[place + 1 if name == "x.csv" else place] ^= 1
    (tmp_path / f"other {name}").write_bytes(other)
    (tmp_path / f"other {name}").replace(path)
    assert len(before) == path.stat().st_size
    with pytest.raises(InputError, match="changed meanwhile"):
        chunks.read(0)
    with pytest.raises(InputError, match="changed meanwhile"):
        list(source.stream(TableEncoding(()) if name != "x.npy" else plan_array(first), ["a", "b"]))
    path.unlink()
    with pytest.raises(InputError, match="changed meanwhile"):
        chunks.read(0)
    # The same bytes are the same data, whenever they were written.
    path.write_bytes(before)
    os.utime(path, ns=(10**18, 10**18))
    np.testing.assert_array_equal(chunks.read(0), first)
    assert FileChunks(path).fingerprint() == chunks.fingerprint()


def test_a_large_file_is_known_by_pieces_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_FEWEST_BYTES", 300)
    monkeypatch.setattr(sources, "_PIECE", 100)
    (tmp_path / "x").write_bytes(bytes(100_000))
    known = sources.FileVersion(tmp_path / "x", of=10**9)
    for place in (0, 99_999):
        content = bytearray(100_000)
        content[place] = 1
        (tmp_path / "x").write_bytes(content)
        os.utime(tmp_path / "x", ns=(place, place))
        assert sources.FileVersion(tmp_path / "x", of=10**9).digest != known.digest
        with pytest.raises(InputError, match="changed meanwhile"):
            known.check()
    (tmp_path / "x").write_bytes(bytes(100_000))
    known.check()
