"""Streams of every kind of source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from chunk_files import folder_of, read_all, table_of
from pollux.data.streams import open_stream
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
