"""Tensors and a description in one file: the same bits back, or a message."""

from pathlib import Path

import pytest
import torch

from pollux.io import tensors as tensor_files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    weight = torch.arange(6.0).reshape(2, 3)
    # A view and its base are written as tensors of their own.
    tensors = {"weight": weight, "transposed": weight.T, "count": torch.tensor(3), "flags": torch.tensor([True, False])}
    tensor_files.write(tmp_path / "file", "kind", "2", tensors, {"names": ["a", None], "x": 0.1})
    return tmp_path / "file"


def test_what_was_written_is_read(path: Path) -> None:
    tensors, description = tensor_files.read(path, "kind", ["1", "2"], "file of tensors")
    assert description == {"names": ["a", None], "x": 0.1}
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "weight": (2, 3),
        "transposed": (3, 2),
        "count": (),
        "flags": (2,),
    }
    torch.testing.assert_close(tensors["transposed"], torch.arange(6.0).reshape(2, 3).T, rtol=0, atol=0)
    assert tensors["flags"].dtype == torch.bool


def test_other_kinds_and_versions_are_named(path: Path) -> None:
    with pytest.raises(ValueError, match="is not an encoder of this library"):
        tensor_files.read(path, "other", ["2"], "encoder")
    with pytest.raises(ValueError, match="format version 2; this release reads versions 3, 4"):
        tensor_files.read(path, "kind", ["3", "4"], "file of tensors")


def test_damage_is_noticed_by_the_checksum(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match="damaged"):
        tensor_files.read(path, "kind", ["2"], "file of tensors")
    # Versions that had none are read as they are.
    tensor_files.read(path, "kind", ["2"], "file of tensors", unchecked=["2"])


def test_an_error_of_the_disk_is_an_os_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise tensor_files.SafetensorError("No space left on device")

    before = path.read_bytes()
    monkeypatch.setattr(tensor_files, "save_file", fail)
    with pytest.raises(OSError, match="No space left"):
        tensor_files.write(path, "kind", "2", {}, {})
    assert path.read_bytes() == before
