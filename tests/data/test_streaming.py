"""Rows that do not fit in memory: each exactly once an epoch, from whatever they are stored in."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from pollux.data.files import gather, open_data
from pollux.data.files.parquet import row_groups
from pollux.data.preprocessing import ArraySurvey, Choices, Survey, columns, plan_array, plan_table
from pollux.data.preprocessing.moments import Moments
from pollux.data.streaming import (
    ArrayChunks,
    Chunks,
    DatasetChunks,
    ParquetChunks,
    Slices,
    batch_sizes,
    in_order,
    open_stream,
    shards,
    shuffled,
    survey_array,
    survey_parquet,
    survey_row_groups,
)
from pollux.errors import InputError


class Numbered:
    """Chunks of rows (2,) that hold their own number, and remember which of them were read."""

    dtype = np.dtype("float32")
    shape = (2,)
    feature_names: list[str] | None = None

    def __init__(self, lengths: Sequence[int], fail: int | None = None) -> None:
        self.lengths = np.array(lengths, dtype=np.int64)
        self.fail = fail
        self.was_read: list[int] = []

    def read(self, chunk: int) -> Any:
        if chunk == self.fail:
            raise InputError(f"chunk {chunk} is broken")
        self.was_read.append(chunk)
        first = self.lengths[:chunk].sum()
        return np.repeat(np.arange(first, first + self.lengths[chunk], dtype=np.float32)[:, None], 2, axis=1)

    def fingerprint(self) -> str:
        return str(self.lengths)

    def subdivided(self, parts: int) -> Chunks:
        return Slices(self, parts)


def numbers(batches: Iterator[Any]) -> list[list[int]]:
    return [batch[:, 0].astype(int).tolist() for batch in batches]


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def read_all(chunks: Chunks) -> Any:
    return np.concatenate([chunks.read(chunk) for chunk in range(len(chunks.lengths))])


def reading_threads() -> int:
    return sum(thread.name.startswith("pollux-reading") for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    if reading_threads():
        gc.collect()
    assert not reading_threads()


# Batches

lengths_of_chunks = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    lengths=lengths_of_chunks,
    n_batches=st.integers(1, 20),
    seed=st.integers(0, 2**40),
    window_rows=st.integers(0, 30),
    start=st.integers(0, 20),
)
def test_each_row_comes_exactly_once_an_epoch(
    lengths: list[int], n_batches: int, seed: int, window_rows: int, start: int
) -> None:
    n, start = sum(lengths), min(start, n_batches)
    sizes = batch_sizes(n, n_batches)
    batches = numbers(shuffled(Numbered(lengths), sizes, seed, window_bytes=8 * window_rows))
    assert [len(batch) for batch in batches] == [len(part) for part in np.array_split(np.arange(n), n_batches)]
    assert sorted(flat(batches)) == list(range(n))
    chunks = Numbered(lengths)
    assert numbers(shuffled(chunks, sizes, seed, window_bytes=8 * window_rows, start=start)) == batches[start:]
    assert list(sizes) == [len(batch) for batch in batches]
    assert sizes.before(start) == sum(sizes[:start])


def test_sizes_may_be_any_that_make_up_the_rows() -> None:
    chunks = Numbered([4, 3, 5])
    batches = numbers(shuffled(chunks, [1, 0, 7, 4], 3, window_bytes=40))
    assert [len(batch) for batch in batches] == [1, 0, 7, 4]
    assert sorted(flat(batches)) == list(range(12))
    for wrong in ([12, 1], [11], []):
        with pytest.raises(ValueError, match="12"):
            shuffled(chunks, wrong, 3)


def test_windows_before_the_start_are_not_read() -> None:
    whole, late = Numbered([10] * 20), Numbered([10] * 20)
    expected = numbers(shuffled(whole, batch_sizes(200, 40), 5, window_bytes=8 * 20))
    assert numbers(shuffled(late, batch_sizes(200, 40), 5, window_bytes=8 * 20, start=30)) == expected[30:]
    assert late.was_read == whole.was_read[14:]


def test_seeds_decide_about_the_order() -> None:
    orders = [flat(numbers(shuffled(Numbered([50] * 4), batch_sizes(200, 10), seed))) for seed in (0, 1, 2, 1)]
    assert orders[1] == orders[3]
    assert len({tuple(order) for order in orders}) == 3
    few = [flat(numbers(shuffled(Numbered([1] * 30), batch_sizes(30, 3), seed, window_bytes=1))) for seed in (0, 1)]
    assert few[0] != few[1]


def test_a_window_is_shuffled_evenly() -> None:
    """Over many seeds, each row is anywhere in the epoch equally often."""
    places = np.array([np.argsort(flat(numbers(shuffled(Numbered([2] * 5), [10], seed)))) for seed in range(600)])
    np.testing.assert_allclose(places.mean(0), 4.5, atol=4.5 * 2.9 / 600**0.5)


@settings(max_examples=100, deadline=None)
@given(lengths=lengths_of_chunks, parts=st.integers(1, 6), seed=st.integers(0, 99))
def test_shards_cover_all_rows_once(lengths: list[int], parts: int, seed: int) -> None:
    chunks = Numbered(lengths)
    found = shards(chunks.lengths, parts)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    loads = [int(chunks.lengths[own].sum()) for own in found]
    assert max(loads) - min(loads) <= max(lengths)
    rows = [
        flat(numbers(shuffled(chunks, batch_sizes(load, 3), seed, own=own, window_bytes=50)))
        for own, load in zip(found, loads, strict=True)
    ]
    assert sorted(flat(rows)) == list(range(sum(lengths)))


@settings(max_examples=100, deadline=None)
@given(lengths=lengths_of_chunks.filter(any), parts=st.integers(1, 40))
def test_slices_hold_the_same_rows_in_enough_chunks(lengths: list[int], parts: int) -> None:
    chunks = Numbered(lengths)
    slices = chunks.subdivided(parts)
    assert len(slices.lengths) >= min(parts, sum(lengths))
    np.testing.assert_array_equal(read_all(slices), read_all(chunks))
    assert [len(slices.read(chunk)) for chunk in range(len(slices.lengths))] == slices.lengths.tolist()
    finer = slices.subdivided(2 * parts)
    np.testing.assert_array_equal(read_all(finer), read_all(chunks))


def test_chunks_come_in_order_with_the_numbers_of_their_rows() -> None:
    chunks = Numbered([3, 0, 2, 5])
    found = list(in_order(chunks))
    assert [first for first, _ in found] == [0, 3, 5]
    assert all(first == rows[0, 0] for first, rows in found)
    assert [first for first, _ in in_order(chunks, np.array([3, 0]))] == [5, 0]


# The thread


def test_what_goes_wrong_in_the_background_is_raised() -> None:
    for batches in (shuffled(Numbered([5] * 9, fail=4), batch_sizes(45, 9), 0, window_bytes=80),):
        with pytest.raises(InputError, match="chunk 4"):
            list(batches)
    with pytest.raises(InputError, match="chunk 1"):
        list(in_order(Numbered([5] * 9, fail=1)))


def test_the_thread_ends_with_the_iterator() -> None:
    def half() -> Iterator[Any]:
        batches = shuffled(Numbered([5] * 99), batch_sizes(495, 99), 0, window_bytes=80)
        next(batches)
        assert reading_threads() == 1
        return batches

    half().close()  # type: ignore[attr-defined]
    assert not reading_threads()
    batches: Any = half()
    del batches
    assert not reading_threads()

    def interrupted() -> None:
        for _ in half():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gc.collect()
    assert not reading_threads()


def test_a_slow_window_is_left_as_soon_as_nobody_waits() -> None:
    class Slow(Numbered):
        def read(self, chunk: int) -> Any:
            # The second window would take half a minute.
            time.sleep(0.5 * (len(self.was_read) >= 60))
            return super().read(chunk)

    chunks = Slow([1] * 120)
    batches = shuffled(chunks, batch_sizes(120, 120), 0, window_bytes=8 * 60)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert 60 <= len(chunks.was_read) < 120


def test_the_next_window_is_read_meanwhile() -> None:
    chunks = Numbered([10] * 6)
    batches = shuffled(chunks, batch_sizes(60, 60), 0, window_bytes=8 * 10)
    next(batches)
    deadline = time.perf_counter() + 60
    while len(chunks.was_read) < 2 and time.perf_counter() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    assert len(chunks.was_read) == 2


# Arrays


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8", "i2", "u1", "?", "f2"])
@pytest.mark.parametrize("shape", [(70_001, 9), (50_000,), (300, 3, 32, 32), (2_000, 28, 28), (200, 32, 32, 3), (1, 4)])
def test_an_array_is_read_as_other_files_are(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    np.save(tmp_path / "x.npy", array)
    chunks = ArrayChunks(tmp_path / "x.npy")
    expected = open_data(tmp_path / "x.npy").read().rows
    assert chunks.shape == expected.shape[1:]
    found = read_all(chunks)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_maps_are_read_from_where_they_lie(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(400_000, 3))
    (tmp_path / "raw").write_bytes(b"head of " + X.tobytes())
    array = np.memmap(tmp_path / "raw", dtype="f8", mode="r", offset=8, shape=X.shape)
    np.testing.assert_array_equal(read_all(ArrayChunks(array, dtype="float64")), X)
    np.testing.assert_array_equal(read_all(ArrayChunks(array[123:], dtype="float64")), X[123:])
    assert ArrayChunks(array).lengths.sum() == len(X)
    assert len(ArrayChunks(array).lengths) > 1
    for wrong in (array[:, :2], array[::2], np.asfortranarray(X)):
        with pytest.raises(InputError, match=r"one after the other|no array in a file"):
            ArrayChunks(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="mode 'r'"):
        ArrayChunks(np.memmap(tmp_path / "raw", dtype="u1", mode="c"))
    np.save(tmp_path / "f.npy", np.asfortranarray(X[:9]))
    with pytest.raises(InputError, match="one after the other"):
        ArrayChunks(tmp_path / "f.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_arrays_that_are_not_finite_are_told_where(tmp_path: Path, value: float) -> None:
    X = np.ones((300_000, 4))
    X[200_001, 2] = value
    np.save(tmp_path / "x.npy", X)
    chunks = ArrayChunks(tmp_path / "x.npy")
    with pytest.raises(InputError, match=r"x\.npy, row 200001: column '2'"):
        read_all(chunks)
    assert len(chunks.read(0)) == chunks.lengths[0]


def test_large_values_are_finite(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((100, 2), 3e38, dtype=np.float32))
    assert np.isfinite(ArrayChunks(tmp_path / "x.npy").read(0)).all()


def test_a_file_that_has_become_shorter_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones((1_000, 3)))
    chunks = ArrayChunks(path)
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
from pollux.data.streaming import ArrayChunks, batch_sizes, shuffled
chunks = ArrayChunks({str(tmp_path / "x.npy")!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(len(batch) for batch in shuffled(chunks, batch_sizes(5_000_000, 500), 0, window_bytes=16_000_000))
assert rows == 5_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    # What a child inherits counts as its own peak, so a fresh interpreter starts it.
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}], check=True)"
    found = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=True)
    assert int(found.stdout) * 1024 < 100_000_000


# Parquet


def table_of(n: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "a": random.normal(size=n),
            "b": random.normal(size=n).astype(np.float32),
            "c": random.integers(-9, 9, n).astype(np.int16),
            "d": random.integers(0, 2, n).astype(bool),
        }
    )


def folder_of(folder: Path, *tables: pa.Table, rows: int = 100) -> Path:
    for index, table in enumerate(tables):
        place = folder / f"year={2000 + index}"
        place.mkdir(parents=True)
        parquet.write_table(table, place / "part.parquet", row_group_size=rows)
    return folder


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 7, 1_000])
def test_a_parquet_file_is_read_as_pandas_does(tmp_path: Path, rows: int, dtype: str) -> None:
    table = table_of(53)
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=rows)
    chunks = ParquetChunks(tmp_path / "x.parquet", dtype=dtype)
    expected = pd.read_parquet(tmp_path / "x.parquet").to_numpy(dtype=np.float64).astype(dtype)
    assert chunks.lengths.max() == min(rows, 53)
    assert chunks.feature_names == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(read_all(chunks), expected)
    assert read_all(chunks).dtype == dtype
    some = ParquetChunks(tmp_path / "x.parquet", columns=["c", "a"], dtype=dtype)
    np.testing.assert_array_equal(read_all(some), expected[:, [2, 0]])
    with pytest.raises(InputError, match="no column 'e'"):
        ParquetChunks(tmp_path / "x.parquet", columns=["e"])


def test_a_folder_is_one_table(tmp_path: Path) -> None:
    tables = [table_of(250, 1), table_of(0, 2), table_of(1, 3), table_of(120, 4).select(["d", "c", "b", "a"])]
    folder = folder_of(tmp_path / "data", *tables)
    (folder / "_SUCCESS.parquet").write_text("")
    (folder / ".hidden.parquet").write_text("")
    chunks = ParquetChunks(folder)
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
    assert ParquetChunks(tmp_path / "x.pq").lengths.tolist() == [3, 5]
    parquet.write_table(table_of(0), tmp_path / "empty.pq")
    with pytest.raises(InputError, match="no rows"):
        ParquetChunks(tmp_path / "empty.pq")


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
        ParquetChunks(folder)
    assert "year=2001" in str(caught.value)
    with pytest.raises(InputError, match=told):
        open_data(folder).read()


def test_numbers_may_be_stored_in_different_types(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", pa.table({"a": [1, 2]}), pa.table({"a": [2.5, 3.0]}))
    np.testing.assert_array_equal(read_all(ParquetChunks(folder))[:, 0], [1, 2, 2.5, 3])
    assert open_data(folder).read().rows.column("a").to_pylist() == [1, 2, 2.5, 3]


def test_a_folder_holds_images_or_tables(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", table_of(3))
    (folder / "picture.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"Parquet files .* and images"):
        open_data(folder)


def test_columns_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": [1.0], "word": ["x"], "day": [pd.Timestamp(0)]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"'word' \(text\), 'day' \(time\)"):
        ParquetChunks(tmp_path / "x.parquet")
    assert ParquetChunks(tmp_path / "x.parquet", columns=["a"]).shape == (1,)


def test_missing_values_are_told_where(tmp_path: Path) -> None:
    values = [1.0] * 30
    holes = [None if index == 25 else 1 for index in range(30)]
    parquet.write_table(pa.table({"a": values, "b": holes}), tmp_path / "x.parquet", row_group_size=10)
    chunks = ParquetChunks(tmp_path / "x.parquet")
    assert len(chunks.read(1)) == 10
    with pytest.raises(InputError, match=r"x\.parquet, row group 2: 1 of 10 .* column 'b'"):
        chunks.read(2)
    values[13] = np.inf
    parquet.write_table(pa.table({"a": values}), tmp_path / "y.parquet", row_group_size=10)
    with pytest.raises(InputError, match=r"y\.parquet, row group 1, row 3: column 'a' is infinite"):
        ParquetChunks(tmp_path / "y.parquet").read(1)


def test_damaged_parquet_files_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(table_of(1_000), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(InputError, match=r"x\.parquet cannot be read"):
        ParquetChunks(path)
    middle = bytearray(whole)
    middle[4:2_000] = bytes(1_996)
    path.write_bytes(middle)
    with pytest.raises(InputError, match=r"x\.parquet"):
        read_all(ParquetChunks(path))


def test_fingerprints_tell_data_apart(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", table_of(20), table_of(30))
    np.save(tmp_path / "x.npy", np.ones((10, 2)))

    def found() -> list[str]:
        return [
            ParquetChunks(folder).fingerprint(),
            ParquetChunks(folder, columns=["a"]).fingerprint(),
            ParquetChunks(folder, dtype="float64").fingerprint(),
            ParquetChunks(folder).subdivided(9).fingerprint(),
            ParquetChunks(folder, preprocessing=survey_parquet(folder)[0]).fingerprint(),
            ArrayChunks(tmp_path / "x.npy").fingerprint(),
            DatasetChunks(TensorDataset(torch.ones(4, 2))).fingerprint(),
        ]

    first = found()
    assert found() == first
    assert len(set(first)) == len(first)
    part = folder / "year=2001" / "part.parquet"
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


# Surveys


@st.composite
def tables_in_parts(draw: st.DrawFn) -> tuple[pa.Table, list[int]]:
    n = draw(st.integers(2, 40))
    kinds = {
        "number": st.one_of(st.floats(-1e6, 1e6), st.just(3.0), st.none()),
        "whole": st.integers(-50, 50),
        "key": st.integers(0, 10_000),
        "flag": st.booleans(),
        "word": st.sampled_from(["a", "b", "?", "1", "2.0", None]),
        "many": st.text("abc1", max_size=4),
    }
    columns = {name: draw(st.lists(values, min_size=n, max_size=n)) for name, values in kinds.items()}
    types = dict.fromkeys(("word", "many"), pa.string()) | {"number": pa.float64()}
    arrays = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=5)))
    return pa.table({**arrays, "line": range(3, n + 3)}), [0, *cuts, n]


def outcome(plan: Callable[[], Any]) -> Any:
    try:
        found = plan().as_json()
    except InputError as error:
        return str(error)
    for column in found["columns"]:
        if column["kind"] == "number":
            column["mean"], column["scale"] = (pytest.approx(column[name], 1e-9, 1e-9) for name in ("mean", "scale"))
    return found


@settings(max_examples=60, deadline=None)
@given(
    parts=tables_in_parts(),
    choices=st.sampled_from(
        [Choices(), Choices(missing="mean"), Choices(categories=["whole", "word"], missing="mean")]
    ),
    random=st.randoms(use_true_random=False),
)
def test_surveys_of_parts_make_that_of_the_whole(
    parts: tuple[pa.Table, list[int]], choices: Choices, random: Any
) -> None:
    table, cuts = parts
    pieces = [(start, table.slice(start, stop - start)) for start, stop in pairwise(cuts)]
    one_by_one = Survey(table.column_names, choices)
    for _, piece in pieces:
        one_by_one.add(piece)
    random.shuffle(pieces)
    merged = Survey(table.column_names, choices)
    for start, piece in pieces:
        other = Survey(table.column_names, choices)
        other.add(piece, start)
        merged.merge(pickle.loads(pickle.dumps(other)))
    expected = outcome(lambda: plan_table(table, choices))
    assert outcome(one_by_one.plan) == expected
    assert outcome(merged.plan) == expected


def test_what_is_said_of_words_among_numbers_does_not_hang_on_the_order_of_parts() -> None:
    table = pa.table({"word": ["a", "b", "a", "1", "2", "3"], "size": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]})
    parts = [Survey(table.column_names), Survey(table.column_names)]
    parts[0].add(table.slice(1), 1)
    parts[1].add(table.slice(0, 1), 0)
    parts[0].merge(parts[1])
    assert "but not 'a', 'b'" in parts[0].plan().left_out["word"]


def test_moments_far_from_zero_keep_their_digits() -> None:
    values = 1e6 + np.random.default_rng(0).normal(size=(3, 100_000))
    values[1, ::7] = np.nan
    found = Moments.of(values[:, :0])
    for start in range(0, 100_000, 1_009):
        found = found.merged(Moments.of(values[:, start : start + 1_009]))
    np.testing.assert_array_equal(found.count, (~np.isnan(values)).sum(1))
    # Each merge of two means, of which there are a hundred, rounds them by eps times their size, 1e6; of a deviation of
    # 1 that is as much as the values themselves lack. Squares would lose a million times more.
    eps = np.finfo(np.float64).eps
    np.testing.assert_allclose(found.mean, np.nanmean(values, 1), rtol=100 * eps)
    np.testing.assert_allclose(found.deviation, np.nanstd(values, 1), rtol=1e6 * eps)
    np.testing.assert_array_equal(found.least, np.nanmin(values, 1))


def test_surveys_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_MOST_ROWS_COMPARED", 50_000)
    survey = Survey(["text", "number", "key"])
    n = 20_000
    for part in range(7):
        numbers = np.arange(part * n, (part + 1) * n)
        survey.add(pa.table({"text": (numbers % 9_000 + part).astype(str), "number": numbers / 7, "key": numbers * 3}))
    assert len(pickle.dumps(survey)) < 100_000
    plan = survey.plan()
    assert plan.names == ["number"]
    assert plan.left_out["text"] == "text with more than 1,000 different values"
    assert plan.identifiers == ("key",)


def test_some_values_tell_whether_all_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_MOST_ROWS_COMPARED", 1_000)

    def seen(*starts: int) -> columns.Different:
        different = columns.Different()
        for start in starts:
            different.add(pa.chunked_array([pa.array(np.arange(start, start + 400))]))
        return different

    assert seen(0, 400, 800, 0).all()
    assert not seen(0, 0).all()
    assert not seen(0, 399, 800).all()
    for first, second, differ in (([0], [400], True), ([0], [399], False), ([0, 400, 800], [9_000, 9_000], False)):
        both = seen(*first)
        both.merge(seen(*second))
        assert both.all() == differ


def test_arrays_are_surveyed_in_parts(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(100_000, 7)) * 10.0 ** np.arange(7)
    X[:, 3] = 2
    np.save(tmp_path / "x.npy", X)
    plan, lengths = survey_array(tmp_path / "x.npy")
    expected = plan_array(X, Choices())
    assert plan.kept == expected.kept
    np.testing.assert_allclose(plan.mean, X.mean(0)[list(plan.kept or ())], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(plan.scale, X.std(0)[list(plan.kept or ())], rtol=1e-12)
    assert lengths.sum() == len(X)
    first, second = (ArraySurvey((7,)) for _ in range(2))
    first.add(X[:30_000])
    second.add(X[30_000:])
    first.merge(second)
    np.testing.assert_allclose(first.plan().scale, expected.scale, rtol=1e-12)
    np.testing.assert_allclose(
        read_all(ArrayChunks(tmp_path / "x.npy", preprocessing=plan)), expected.encode(X), rtol=1e-5, atol=1e-5
    )


def with_gaps(n: int) -> pa.Table:
    random = np.random.default_rng(0)
    numbers = random.normal(size=(2, n))
    numbers[0, random.integers(0, n, n // 10)] = np.nan
    words = [None if random.random() < 0.1 else "xyz"[index % 3] for index in range(n)]
    return pa.table({"a": numbers[0], "b": numbers[1], "word": words, "none": pa.array([None] * n, pa.string())})


@pytest.mark.parametrize("missing", ["mean", "drop"])
def test_gaps_are_treated_as_in_memory(tmp_path: Path, missing: str) -> None:
    table = with_gaps(500)
    folder = folder_of(tmp_path / "data", table.slice(0, 180), table.slice(180), rows=50)
    choices = Choices(missing=missing)
    plan, lengths = survey_parquet(folder, choices)
    expected = plan_table(table, choices)
    if missing == "drop":
        kept = table.filter(expected.complete(table))
        expected = plan_table(kept, choices)
        table = kept
    assert lengths.sum() == table.num_rows
    assert plan.names == expected.names == ["a", "b", "word"]
    assert plan.left_out == expected.left_out
    chunks = ParquetChunks(folder, preprocessing=plan, lengths=lengths)
    np.testing.assert_allclose(read_all(chunks), expected.encode(table), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ParquetChunks(folder, preprocessing=plan).lengths, lengths)
    with pytest.raises(InputError, match="'a'"):
        survey_parquet(folder)


def test_columns_that_vary_only_beside_gaps_are_left_out(tmp_path: Path) -> None:
    """Without the rows in which b is missing a has one value, and then its own gaps cost no rows."""
    a, b = [1.0, 1, 1, 1, 2, np.nan], [1.0, 2, 3, 5, np.nan, 9]
    parquet.write_table(pa.table({"a": a, "b": b}), tmp_path / "x.parquet", row_group_size=2)
    plan, lengths = survey_parquet(tmp_path / "x.parquet", Choices(missing="drop"))
    assert plan.names == ["b"]
    assert plan.left_out == {"a": "it has one value throughout"}
    assert lengths.tolist() == [2, 2, 1]
    assert read_all(ParquetChunks(tmp_path / "x.parquet", preprocessing=plan, lengths=lengths)).mean() < 1e-6
    np.save(tmp_path / "x.npy", np.column_stack([a, b]))
    array, kept = survey_array(tmp_path / "x.npy", Choices(missing="drop"))
    assert array.kept == (1,)
    assert kept.tolist() == [5]
    assert array.mean == (4.0,)
    assert read_all(ArrayChunks(tmp_path / "x.npy", preprocessing=array)).shape == (5, 1)


def test_processes_share_a_survey(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", table_of(500, 1), table_of(300, 2), rows=70)
    groups = row_groups(folder)
    own = shards(groups.lengths, 3)
    (first, *others), seen = zip(*(survey_row_groups(groups, Choices(), own=part) for part in own), strict=True)
    for other in others:
        first.merge(other)
    whole, lengths = survey_parquet(folder)
    assert first.plan().names == whole.names
    assert sum(part.sum() for part in seen) == lengths.sum() == 800
    np.testing.assert_allclose(first.plan().columns[0].scale, whole.columns[0].scale, rtol=1e-12)


# Opening


def test_a_stream_of_each_kind(tmp_path: Path) -> None:
    table = table_of(200)
    folder = folder_of(tmp_path / "data", table)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(200, 4)))
    file = folder / "year=2000" / "part.parquet"
    memory = np.load(tmp_path / "x.npy", mmap_mode="r")
    for source in (folder, file, str(file), tmp_path / "x.npy", memory, TensorDataset(torch.ones(200, 4))):
        stream = open_stream(source)
        assert len(stream) == 200
        assert stream.chunks.shape == (4,)
        assert stream.preprocessing is None
    for source in (folder, tmp_path / "x.npy", memory):
        seen: list[tuple[int, int]] = []
        stream = open_stream(source, standardise=True, progress=lambda done, of, seen=seen: seen.append((done, of)))
        assert stream.preprocessing is not None
        assert seen[-1][0] == seen[-1][1] == len(stream.chunks.lengths)
        np.testing.assert_allclose(read_all(stream.chunks)[:, 0].std(), 1, rtol=1e-5)
        rows = table if source is folder else memory
        np.testing.assert_array_equal(stream.preprocessing.encode(rows), read_all(stream.chunks))
    assert open_stream(folder, columns=["b"], standardise=True).chunks.feature_names == ["b"]


@pytest.mark.parametrize("how", [{"columns": ["a"]}, {"standardise": True}], ids=str)
def test_datasets_are_read_as_they_are(how: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="as they are"):
        open_stream(TensorDataset(torch.ones(4, 2)), **how)


def test_what_cannot_be_streamed_is_told(tmp_path: Path) -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(())

    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "folder").mkdir()
    for source, told in {
        tmp_path / "x.csv": "format='parquet'",
        tmp_path / "folder": "no Parquet files",
        tmp_path / "nowhere.npy": "There is no file",
        Endless(): "random order",
        (1, 2): "tuple",
    }.items():
        with pytest.raises(InputError, match=told):
            open_stream(source)
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    with pytest.raises(InputError, match="float16"):
        open_stream(tmp_path / "x.npy", dtype="float16")
    with pytest.raises(InputError, match="by name"):
        open_stream(tmp_path / "x.npy", columns=["a"])
