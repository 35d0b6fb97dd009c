"""Streams of every kind of source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from chunk_files import Numbered, folder_of, read_all, table_of
from data_files import pollux
from pollux.data.streams import FileChunks, Stream, open_stream
from pollux.errors import InputError


def test_a_stream_of_each_kind(tmp_path: Path) -> None:
    table = table_of(200)
    folder = folder_of(tmp_path / "data", table)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(200, 4)))
    file = folder / "part 0" / "part.parquet"
    memory = np.load(tmp_path / "x.npy", mmap_mode="r")
    for source in (folder, file, str(file), tmp_path / "x.npy", memory, TensorDataset(torch.ones(200, 4))):
        stream = open_stream(source)
        assert len(stream) == 200
        assert stream.chunks.shape == (4,)
        assert stream.encoding is None
    for source in (folder, tmp_path / "x.npy", memory):
        seen: list[tuple[int, int]] = []
        stream = open_stream(source, standardise=True, progress=lambda done, of, seen=seen: seen.append((done, of)))
        assert stream.encoding is not None
        assert seen[-1][0] == seen[-1][1] == len(stream.chunks.lengths)
        np.testing.assert_allclose(read_all(stream.chunks)[:, 0].std(), 1, rtol=1e-5)
        rows = table if source is folder else memory
        np.testing.assert_array_equal(stream.encoding.encode(rows), read_all(stream.chunks))
    assert open_stream(folder, columns=["b"], standardise=True).chunks.feature_names == ["b"]


@pytest.mark.parametrize("how", [{"columns": ["a"]}, {"standardise": True}], ids=str)
def test_datasets_are_read_as_they_are(how: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="as they are"):
        open_stream(TensorDataset(torch.ones(4, 2)), **how)


def test_what_cannot_be_streamed_is_told(tmp_path: Path) -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(())

    np.savez(tmp_path / "x.npz", np.ones((3, 2)))
    (tmp_path / "folder").mkdir()
    for source, told in {
        tmp_path / "x.npz": "save its array as an .npy file",
        tmp_path / "folder": "torch Dataset",
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


@pytest.mark.parametrize("how", ["replaced", "added"])
def test_a_folder_that_changes_while_a_model_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A file that is replaced ends the training, which goes on once it is back; one that is added is not looked at."""
    monkeypatch.chdir(tmp_path)
    folder = folder_of(tmp_path / "rows", *(table_of(60, seed) for seed in range(3)), rows=20)
    file, read, times = folder / "part 1" / "part.parquet", FileChunks.read, 0
    before = file.read_bytes()

    def read_and_change(chunks: FileChunks, chunk: int) -> Any:
        nonlocal times
        times += 1
        if times == 30:
            changed = file if how == "replaced" else folder / "new.parquet"
            parquet.write_table(table_of(60, 9), changed, row_group_size=20)
        return read(chunks, chunk)

    monkeypatch.setattr(FileChunks, "read", read_and_change)
    options = (
        "--stream",
        "yes",
        "--epochs",
        6,
        "--clusters",
        3,
        "--objective",
        "mmd_ova",
        "--restarts",
        1,
        "--checkpoint-every",
        "1 epoch",
    )
    answer = pollux("fit", "rows", *options, "--out", "run")
    if how == "replaced":
        assert answer.code == 2, answer
        assert "the data have changed meanwhile" in answer.err
        assert "pollux fit --resume run" in answer.err
        file.write_bytes(before)
        answer = pollux("fit", "--resume", "run")
    assert answer.code == 0, answer
    assert parquet.read_table("run/clusters.parquet").num_rows == 180
    assert json.loads(Path("run/summary.json").read_text())["rows"] == 180


def test_a_sample_comes_from_all_parts_of_the_source_whatever_the_order_of_its_chunks() -> None:
    stream = Stream(Numbered([10] * 973), None, 1000, "numbers")
    chunks = np.unique(stream.sample(100)[:, 0] // 10)
    # If these are files of months, rows are not all of one month.
    assert len(np.unique(chunks % 12)) > 1
    assert chunks.min() < 100
    assert chunks.max() > 860
    np.testing.assert_array_equal(stream.sample(100), stream.sample(100))
