"""What is said where memory does not suffice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from pollux import Gemini
from pollux.training.restarts import TooLargeError, is_lack_of_memory
from pollux.training.steps import CompiledStep
from unequal_blobs import X, clustering, own


class Hungry(nn.Module):
    """Has no room for more than so many rows."""

    def __init__(self, most: int, words: str) -> None:
        super().__init__()
        self.linear, self.most, self.words = nn.Linear(4, 3), most, words

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) > self.most:
            raise RuntimeError(self.words)
        logits: Tensor = self.linear(inputs)
        return logits


TOLD = [
    "[enforce fail at alloc_cpu.cpp:114] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 "
    "bytes.\nmore",
    "CUDA out of memory. Tried to allocate 2.00 GiB.",
    "std::bad_alloc",
]


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("source", ["array", "file", "loader"])
def test_an_error_says_which_batch_would_fit(tmp_path: Path, told: str, source: str) -> None:
    np.save(tmp_path / "rows.npy", X)
    rows: Any = {
        "array": X,
        "file": tmp_path / "rows.npy",
        "loader": DataLoader(TensorDataset(torch.as_tensor(X)), batch_size=200),
    }[source]
    model = clustering(model=Hungry(60, told), batch_size=200)
    with pytest.raises(TooLargeError, match=r"batches of (200|150) rows; batches of (50|37) would fit") as error:
        model.fit(rows)
    assert isinstance(error.value, MemoryError)
    assert isinstance(error.value, ValueError)
    assert "batch_size=" in str(error.value)
    assert "\n" not in str(error.value)
    assert not hasattr(model, "module_")
    fits = int(str(error.value).split("batch_size=")[1].split(".")[0])
    if source != "loader":
        assert clustering(model=Hungry(60, told), batch_size=fits, max_epochs=1).fit(X[:60]).n_iter_ == 1


def test_a_step_that_lacks_memory_says_so_for_every_way_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Gemini.__call__

    def call(self: Gemini, log_p: Tensor, *arguments: Any, **options: Any) -> Tensor:
        if log_p.shape[-2] > 60:
            raise RuntimeError(TOLD[0])
        return original(self, log_p, *arguments, **options)

    monkeypatch.setattr(Gemini, "__call__", call)
    for options in ({"optimiser": "sgd"}, {"optimiser": "sgd", "n_init": 2}, {"model": own}):
        with pytest.raises(TooLargeError, match="batches of 50 would fit: batch_size=50"):
            clustering(**options).fit(X)
    monkeypatch.undo()

    def allocate(self: Any, *arguments: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(CompiledStep, "__call__", allocate)
    with pytest.raises(TooLargeError, match=r"batches of 50 would fit.*\(MemoryError\)"):
        clustering().fit(X)


def test_where_nothing_fits_that_is_said() -> None:
    with pytest.raises(TooLargeError, match="nor for smaller ones: use a smaller model"):
        clustering(model=Hungry(1, TOLD[1])).fit(X)


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(ValueError, match=r"The model failed on inputs .*: no good") as error:
        clustering(model=Hungry(60, "no good")).fit(X)
    assert not isinstance(error.value, TooLargeError)
    assert not is_lack_of_memory(RuntimeError("no good"))
    assert is_lack_of_memory(MemoryError())
