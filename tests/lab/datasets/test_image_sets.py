"""Images: read from files, and fetched from publishers."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataset_files import cifar_file, digit_files, image_arrays, nothing_left, save_images
from pollux.errors import InputError
from pollux.io import atomic
from pollux.lab import datasets
from pollux.lab.datasets import archives, image_sets

REAL = Path(os.environ.get("POLLUX_DATA") or "nowhere")


@pytest.mark.parametrize("name", datasets.IMAGES)
def test_images_are_read_as_they_are(name: str, folder: Path) -> None:
    arrays = image_arrays(datasets.IMAGES[name].shape)
    np.savez(folder / f"{name}.npz", **arrays)
    images = datasets.load_images(name)
    assert images.name == name
    assert len(images.class_names) == 10
    for key, array in arrays.items():
        assert np.array_equal(getattr(images, key), array)
    assert (images.x_test.dtype, images.y_test.dtype) == (np.uint8, np.int64)
    assert "array" not in repr(images)


def test_classes_may_be_a_column(folder: Path) -> None:
    save_images(folder / "mnist.npz", y_test=np.arange(10)[:, None])
    assert np.array_equal(datasets.load_images("mnist").y_test, np.arange(10))


def test_images_that_are_not_here_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"MNIST is not .* `pollux datasets fetch mnist` \(12 MB\), or put mnist.npz"):
        datasets.load_images("mnist")
    monkeypatch.setenv("POLLUX_DATA", "/no/such/folder")
    with pytest.raises(InputError, match="POLLUX_DATA names /no/such/folder, and there is no such folder"):
        datasets.load_images("cifar10")


def test_an_unknown_name_of_images_is_refused() -> None:
    with pytest.raises(InputError, match=r"mnist, fashion_mnist, cifar10\. Did you mean 'mnist'"):
        datasets.load_images("MNIST")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_train": np.zeros((20, 28, 27), np.uint8)}, r"x_train must be uint8 of the shape \(n, 28, 28\)"),
        ({"x_train": np.zeros((20, 784), np.uint8)}, "x_train must be uint8"),
        ({"x_test": np.zeros((10, 28, 28))}, "x_test must be uint8"),
        ({"y_train": np.zeros(19, np.uint8)}, "y_train must be 20 whole numbers"),
        ({"y_train": np.zeros(20)}, "y_train must be 20 whole numbers"),
        ({"y_test": np.full(10, 10)}, "from 0 to 9, but go from 10 to 10"),
        ({"x_test": np.array([{}], dtype=object)}, "damaged or something else"),
    ],
)
def test_other_arrays_are_refused_with_the_name_of_the_file(changed: Any, message: str, folder: Path) -> None:
    save_images(folder / "mnist.npz", **changed)
    with pytest.raises(InputError, match=message) as caught:
        datasets.load_images("mnist")
    assert str(folder / "mnist.npz") in str(caught.value)


@pytest.mark.skipif(not (REAL / "mnist.npz").is_file(), reason="MNIST is not here")
def test_the_real_digits_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLLUX_DATA", str(REAL))
    images = datasets.load_images("mnist")
    assert images.x_train.shape == (60_000, 28, 28)
    assert images.x_test.shape == (10_000, 28, 28)
    assert images.y_train[:5].tolist() == [5, 0, 4, 1, 9]


# Fetching


@pytest.mark.parametrize("name", datasets.IMAGES)
def test_images_are_fetched_and_then_found(name: str, publish: Any, folder: Path) -> None:
    arrays = image_arrays(datasets.IMAGES[name].shape)
    publish(name, cifar_file(arrays) if name == "cifar10" else digit_files(arrays))
    path = datasets.fetch(name)
    assert path == folder / f"{name}.npz"
    assert [file.name for file in folder.iterdir()] == [path.name]
    images = datasets.load_images(name)
    for key, array in arrays.items():
        assert np.array_equal(getattr(images, key), array)


def test_without_the_variable_images_go_to_the_cache(
    publish: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish("mnist", digit_files(image_arrays()))
    monkeypatch.delenv("POLLUX_DATA")
    assert datasets.fetch("mnist") == archives.cache_folder() / "mnist.npz"
    assert nothing_left(folder)
    assert datasets.load_images("mnist").x_train.shape == (20, 28, 28)


def test_a_file_that_is_not_the_published_one_is_refused(publish: Any, folder: Path) -> None:
    publish("mnist", digit_files(image_arrays()), **{"t10k-labels-idx1-ubyte.gz": "0" * 32})
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte.gz is not the file that was published"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "no gzip": lambda _: b"<html>moved</html>",
    "other numbers": lambda _: gzip.compress(b"\x00\x00\x0d\x01" + bytes(8)),
    "fewer values than said": lambda content: gzip.compress(gzip.decompress(content)[:-1]),
    "empty": lambda _: gzip.compress(b""),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("file", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
def test_damaged_digits_are_refused(damage: str, file: str, publish: Any, folder: Path) -> None:
    files = digit_files(image_arrays())
    publish("mnist", files | {file: DAMAGED[damage](files[file])})
    with pytest.raises(InputError, match=r"What was fetched of MNIST cannot be read .* Nothing was stored"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


@pytest.mark.parametrize("damage", ["truncated", "no gzip", "member"])
def test_a_damaged_archive_is_refused(damage: str, publish: Any, folder: Path) -> None:
    arrays = image_arrays((32, 32, 3))
    files = cifar_file(arrays, "other.bin") if damage == "member" else cifar_file(arrays)
    publish("cifar10", {name: DAMAGED.get(damage, bytes)(content) for name, content in files.items()})
    with pytest.raises(InputError, match="What was fetched of CIFAR-10 cannot be read"):
        datasets.fetch("cifar10")
    assert nothing_left(folder)


def test_images_of_another_size_are_not_stored(publish: Any, folder: Path) -> None:
    publish("mnist", digit_files(image_arrays((27, 27))))
    with pytest.raises(InputError, match="x_train must be uint8 of the shape"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


@pytest.mark.parametrize("when", ["converting", "writing"])
def test_an_interrupted_fetch_leaves_nothing(
    when: str, publish: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Any, **_: Any) -> None:
        Path(path).write_bytes(b"half of it")
        raise KeyboardInterrupt

    publish("mnist", digit_files(image_arrays()))
    if when == "writing":
        monkeypatch.setattr(image_sets.np, "savez_compressed", interrupted)
    else:
        monkeypatch.setattr(image_sets, "_read_idx", lambda path: interrupted(path))
    with pytest.raises(KeyboardInterrupt):
        datasets.fetch("mnist")
    assert nothing_left(folder)


def test_a_file_that_is_gone_says_so(publish: Any, published: tuple[str, Path], folder: Path) -> None:
    publish("mnist", digit_files(image_arrays()))
    (published[1] / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"train-labels-idx1-ubyte.gz could not be fetched .the server answered 404"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


def test_a_connection_that_breaks_leaves_nothing(publish: Any, folder: Path, server_promises: Any) -> None:
    publish("mnist", digit_files(image_arrays()))
    server_promises(1000)
    # Some versions of requests do not see it; then the checksum does.
    with pytest.raises(InputError, match=r"the connection broke|not the file that was published"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


def test_no_connection_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = image_sets.SOURCES["mnist"]
    # Nothing listens at the port of discarded data.
    monkeypatch.setitem(image_sets.SOURCES, "mnist", image_sets.Source("http://127.0.0.1:9/", real.files, real.convert))
    with pytest.raises(InputError, match=r"could not be fetched \(no connection\): see that this machine is online"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is not a folder that can be written: name another"):
        datasets.fetch("mnist", tmp_path / "file")


def test_without_pooch_fetching_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(InputError, match=r"pip install 'pollux\[datasets\]'"):
        datasets.fetch("mnist")


@pytest.mark.parametrize("name", datasets.IMAGES)
def test_every_source_has_checksums(name: str) -> None:
    source = image_sets.SOURCES[name]
    assert all(len(bytes.fromhex(checksum)) == 16 for checksum in source.files.values())
    assert source.base.endswith("/")


def test_the_file_takes_its_place_at_once(publish: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was there is replaced by a whole one, never by a part."""
    publish("mnist", digit_files(image_arrays()))
    replaced = []
    real = atomic.in_place
    monkeypatch.setattr(image_sets.atomic, "in_place", lambda path: replaced.append(path) or real(path))
    datasets.fetch("mnist")
    assert replaced == [folder / "mnist.npz"]
