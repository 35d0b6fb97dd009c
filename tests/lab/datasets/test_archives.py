"""Where data is found, and archives that are damaged."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataset_files import datasets_main, save_images
from pollux.errors import InputError
from pollux.lab import datasets
from pollux.lab.datasets import archives


def test_the_cache_folder_is_that_of_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    for platform, expected in (
        ("linux", tmp_path / "elsewhere" / "pollux"),
        ("darwin", tmp_path / "Library" / "Caches" / "pollux"),
        ("win32", tmp_path / "local" / "pollux" / "Cache"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert archives.cache_folder() == expected
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert archives.cache_folder() == tmp_path / ".cache" / "pollux"


def test_the_named_folder_comes_before_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = archives.cache_folder() / "mnist.npz"
    cached.parent.mkdir(parents=True)
    save_images(cached)
    assert archives.find_file("mnist.npz") == cached
    save_images(folder / "mnist.npz")
    assert archives.find_file("mnist.npz") == folder / "mnist.npz"
    monkeypatch.delenv("POLLUX_DATA")
    assert archives.find_file("mnist.npz") == cached


@pytest.mark.parametrize("damage", ["truncated", "flipped", "text", "empty", "one array", "lacking"])
def test_damaged_files_are_refused_with_their_names(damage: str, folder: Path) -> None:
    path = folder / "mnist.npz"
    save_images(path)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 4] ^= 255
        path.write_bytes(content)
    elif damage == "text":
        path.write_text("<html>404</html>")
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "one array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        np.savez(path, x_train=np.zeros(3))
    with pytest.raises(InputError, match=r"damaged or something else|is one array|no array called y_train") as caught:
        datasets.load_images("mnist")
    assert str(path) in str(caught.value)


def npy(header: bytes) -> bytes:
    """An array that consists of its header alone."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


PETABYTES = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000, 1000), }\n"


@pytest.mark.parametrize(
    "member",
    [
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, }\n"),
        npy(b"{'descr': (), 'fortran_order': False, 'shape': (3,), }\n"),
        npy(b"{'descr': '<f8', 'shape': (3,), }\n"),
        npy(b"((((((((((((((((((((((((((\n"),
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999,), }\n"),
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n"),
        npy(PETABYTES),
        b"",
    ],
    ids=["open bracket", "no type", "lacking", "brackets", "huge", "overflow", "petabytes", "empty"],
)
def test_arrays_with_broken_headers_are_refused(member: bytes, folder: Path) -> None:
    path = folder / "mnist.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x_train.npy", member)
    with pytest.raises(InputError, match=r"mnist\.npz"):
        datasets.load_images("mnist")
    # A damaged file does not hide the others.
    assert datasets_main("list") == 0


def test_an_encrypted_file_is_refused(folder: Path) -> None:
    path = folder / "mnist.npz"
    save_images(path)
    content = path.read_bytes()
    # The lowest bit of the flags, six bytes after the signature of a member and eight after that in the directory.
    for signature, distance in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.index(signature) + distance
        content = content[:start] + bytes([content[start] | 1]) + content[start + 1 :]
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"mnist\.npz cannot be read .*encrypted"):
        datasets.load_images("mnist")


@pytest.mark.parametrize("error", [OSError(22, "Invalid argument"), OSError(5, "Input/output error")])
def test_an_error_of_the_system_names_the_file(error: OSError, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise error

    save_images(folder / "mnist.npz")
    monkeypatch.setattr(zipfile.ZipFile, "open", fails)
    with pytest.raises(InputError, match=rf"mnist\.npz cannot be read .*{error.strerror}"):
        datasets.load_images("mnist")
