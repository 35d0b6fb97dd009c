"""Files that are cut short while they are used: what was read of them stays, and the process does not end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fault_runs import Child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no such signals")


def use_array_after_it_was_cut(path: str, order: str) -> None:
    from pollux.data.sources import open_data

    rows = np.arange(600_000, dtype=np.float32).reshape(-1, 3)
    np.save(path, np.asarray(rows, order=order))  # type: ignore[call-overload]
    part = open_data(path).read()
    os.truncate(path, 128)
    np.testing.assert_array_equal(part.rows, rows)


def cut_array_while_it_is_streamed(path: str) -> None:
    from pollux.data import array_files
    from pollux.data.encoding import ArrayEncoding
    from pollux.data.sources import open_data
    from pollux.errors import InputError

    array_files.ROWS_AT_ONCE = 50_000
    rows = np.arange(600_000, dtype=np.float32).reshape(-1, 3)
    np.save(path, rows)
    parts = open_data(path).stream(ArrayEncoding((3,), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)), ())
    np.testing.assert_array_equal(next(parts).rows, rows[:50_000])
    os.truncate(path, 128)
    with pytest.raises(InputError, match="changed meanwhile"):
        next(parts)


def use_tensors_after_they_were_cut(path: str) -> None:
    import torch

    from pollux.io import tensors

    weights = torch.arange(300_000.0)
    tensors.write(path, "kind", "1", {"weights": weights}, {})
    found, _ = tensors.read(Path(path), "kind", ["1"], "file")
    os.truncate(path, 128)
    assert torch.equal(found["weights"], weights)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (use_array_after_it_was_cut, ("rows.npy", "C")),
        (use_array_after_it_was_cut, ("columns.npy", "F")),
        (cut_array_while_it_is_streamed, ("rows.npy",)),
        (use_tensors_after_they_were_cut, ("weights",)),
    ],
)
def test_a_file_that_is_cut_short_ends_no_process(tmp_path: Path, program: object, words: tuple[str, ...]) -> None:
    ended = Child(tmp_path, program, *words).end()
    assert ended.code == 0, ended
