"""Image data sets: pixels (n, H, W) or (n, H, W, 3) and classes (n,), read from files or fetched from publishers.

Downloaded files are compared with known checksums and stored as one .npz file.
"""

from __future__ import annotations

import gzip
import logging
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError, did_you_mean
from pollux.io import atomic
from pollux.lab.datasets import archives

Arrays: TypeAlias = dict[str, Any]
"""Arrays by name: x_train, y_train, x_test, y_test."""


class ImageSetInfo(NamedTuple):
    """The title, shape, classes and sizes of a data set, and the size of its download."""

    title: str
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    n_train: int
    n_test: int
    megabytes: int


_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGES: dict[str, ImageSetInfo] = {
    "mnist": ImageSetInfo("MNIST", (28, 28), tuple("0123456789"), 60_000, 10_000, 12),
    "fashion_mnist": ImageSetInfo("Fashion-MNIST", (28, 28), _CLOTHES, 60_000, 10_000, 31),
    "cifar10": ImageSetInfo("CIFAR-10", (32, 32, 3), _OBJECTS, 50_000, 10_000, 170),
}


@dataclass(frozen=True)
class ImageSet:
    """Images (n, H, W) or (n, H, W, 3) with pixels from 0 to 255, and their classes (n,), as published."""

    name: str
    x_train: NDArray[np.uint8] = field(repr=False)
    y_train: NDArray[np.int64] = field(repr=False)
    x_test: NDArray[np.uint8] = field(repr=False)
    y_test: NDArray[np.int64] = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)


def image_set_info(name: str) -> ImageSetInfo:
    """Return the entry of an image data set; raise an error that lists the names if there is none."""
    if name not in IMAGES:
        raise InputError(
            f"There is no image data set {name!r}: choose one of {', '.join(IMAGES)}.{did_you_mean(name, IMAGES)}"
        )
    return IMAGES[name]


def image_set_path(name: str) -> Path:
    """Return the file of an image data set; raise an error that says how to get it if it is missing."""
    image_set_info(name)
    path = archives.find_file(f"{name}.npz")
    if path is None:
        raise InputError(how_to_get(name))
    return path


def how_to_get(name: str) -> str:
    """Return a sentence that says how to get an image data set that is not on this machine."""
    info = image_set_info(name)
    return (
        f"{info.title} is not on this machine: run `pollux datasets fetch {name}` ({info.megabytes} MB), or put "
        f"{name}.npz into the folder named by {archives.VARIABLE}.{archives.describe_missing_folder()}"
    )


def load_images(name: str) -> ImageSet:
    """Read images (n, H, W) or (n, H, W, 3) and classes (n,) from a file on this machine.

    The file of "mnist", "fashion_mnist" or "cifar10" is called ``NAME.npz``. It lies in the folder that the environment
    variable ``POLLUX_DATA`` names, or else in the cache folder, where ``pollux datasets fetch NAME`` puts it. Nothing
    is fetched here, and nothing in the file is executed.

    Examples
    --------
    >>> mnist = load_images("mnist")  # doctest: +SKIP
    >>> mnist.x_train.shape, mnist.x_train.dtype  # doctest: +SKIP
    ((60000, 28, 28), dtype('uint8'))
    """
    path = image_set_path(name)
    arrays = archives.read_arrays(path)
    archives.require_arrays(arrays, path, "x_train", "y_train", "x_test", "y_test")
    return _checked_image_set(name, path, arrays)


def _checked_image_set(name: str, origin: Path | str, arrays: Arrays) -> ImageSet:
    """Check the shapes and types of the arrays and return them as an image set."""
    info = image_set_info(name)
    parts = []
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.dtype != np.uint8 or x.shape[1:] != info.shape or x.ndim != len(info.shape) + 1 or len(x) == 0:
            size = ", ".join(map(str, info.shape))
            raise InputError(f"{origin}: x_{part} must be uint8 of the shape (n, {size}), not {x.dtype} {x.shape}.")
        if y.dtype.kind not in "iu" or y.shape not in ((len(x),), (len(x), 1)):
            raise InputError(f"{origin}: y_{part} must be {len(x)} whole numbers, not {y.dtype} {y.shape}.")
        whole = y.reshape(-1).astype(np.int64)
        if whole.min() < 0 or whole.max() >= len(info.class_names):
            raise InputError(
                f"{origin}: the classes in y_{part} must be from 0 to {len(info.class_names) - 1}, but go from "
                f"{whole.min()} to {whole.max()}."
            )
        parts += [x, whole]
    x_train, y_train, x_test, y_test = parts
    return ImageSet(name, x_train, y_train, x_test, y_test, info.class_names)


class Source(NamedTuple):
    """The address of a data set, the MD5 checksums of its files, and the function that converts them to arrays."""

    base: str
    files: dict[str, str]
    convert: Callable[[dict[str, Path]], Arrays]


def fetch(name: str, folder: str | Path | None = None, *, progress: Any = None) -> Path:
    """Download an image data set and store it atomically as ``NAME.npz``.

    By default it is stored in the folder that ``POLLUX_DATA`` names, or else in the cache folder; missing folders are
    created. ``progress`` is a progress bar as defined by pooch: an object with ``total``, ``update(bytes)``,
    ``reset()`` and ``close()``.

    Examples
    --------
    >>> fetch("mnist", "data")  # doctest: +SKIP
    PosixPath('data/mnist.npz')
    """
    info, source = image_set_info(name), SOURCES[name]
    target = Path(folder or archives.named_folder() or archives.cache_folder())
    try:
        target.mkdir(parents=True, exist_ok=True)
        is_writable = os.access(target, os.W_OK)
    except OSError:
        is_writable = False
    if not is_writable:
        raise InputError(
            f"{target} is not a folder that can be written: name another, pollux datasets fetch NAME --to DIR."
        )
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target) as temporary:
        files = _download(source, Path(temporary), progress)
        try:
            arrays = source.convert(files)
        except (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, KeyError, ValueError) as error:
            raise InputError(
                f"What was fetched of {info.title} cannot be read ({error}): it is incomplete or of another format. "
                "Nothing was stored; try again."
            ) from error
        _checked_image_set(name, source.base, arrays)
        path = target / f"{name}.npz"
        with atomic.in_place(path) as unfinished:
            np.savez_compressed(unfinished, **arrays)
    return path


def _download(source: Source, folder: Path, progress: Any) -> dict[str, Path]:
    """Download the files of a data set and compare their checksums."""
    try:
        import pooch
        from requests import RequestException
    except ImportError as error:
        raise InputError("Data sets are fetched by pooch: pip install 'pollux[datasets]'.") from error
    files = {}
    logger = pooch.get_logger()
    level = logger.level
    # Otherwise pooch prints each file on standard error.
    logger.setLevel(logging.WARNING)
    try:
        for file, checksum in source.files.items():
            url = source.base + file
            downloader = pooch.HTTPDownloader(progressbar=progress or False, timeout=30)
            files[file] = Path(pooch.retrieve(url, f"md5:{checksum}", file, folder, downloader=downloader))
    except RequestException as error:
        # The cause, without the names of Python objects that libraries add.
        kind, response = type(error).__name__, getattr(error, "response", None)
        reason = _REASONS.get(kind, f"{kind}: {error}")
        if response is not None:
            reason = f"the server answered {response.status_code} {response.reason}"
        raise InputError(
            f"{url} could not be fetched ({reason}): see that this machine is online and try again, or bring "
            f"the .npz file from another machine into the folder named by {archives.VARIABLE}."
        ) from error
    except ValueError as error:
        if "hash" not in str(error):
            raise
        raise InputError(
            f"{url} is not the file that was published: its MD5 checksum is not {checksum}. Nothing was stored. Try "
            "again; if it stays so, something on the way changes what is fetched."
        ) from error
    finally:
        logger.setLevel(level)
    return files


_REASONS = {
    "ConnectionError": "no connection",
    "ProxyError": "no connection to the proxy",
    "ConnectTimeout": "no answer",
    "ReadTimeout": "no answer",
    "ChunkedEncodingError": "the connection broke",
}


def _from_idx(files: dict[str, Path]) -> Arrays:
    """Convert the four idx files of MNIST or Fashion-MNIST to arrays."""
    return {
        f"{axis}_{part}": _read_idx(files[f"{prefix}-{kind}-ubyte.gz"])
        for part, prefix in (("train", "train"), ("test", "t10k"))
        for axis, kind in (("x", "images-idx3"), ("y", "labels-idx1"))
    }


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an array of bytes from a compressed idx file: number of axes, their sizes, values."""
    content = gzip.decompress(path.read_bytes())
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path.name} is not an idx file of bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], dtype=">u4").astype(int)
    if len(shape) != content[3] or len(content) - start != shape.prod():
        raise ValueError(f"{path.name} does not hold as many values as it says")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _from_cifar(files: dict[str, Path]) -> Arrays:
    """Convert the binary archive of CIFAR-10 to arrays: without pickle, and without extracting files to disk."""
    (archive,) = files.values()
    with tarfile.open(archive, "r:gz") as tar:
        batches = [_cifar_batch(tar, f"data_batch_{number}.bin") for number in range(1, 6)]
        x_test, y_test = _cifar_batch(tar, "test_batch.bin")
    x_train, y_train = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def _cifar_batch(tar: tarfile.TarFile, member: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read images (n, 32, 32, 3) and classes (n,) from records of one class and three planes of pixels."""
    stream = tar.extractfile(f"cifar-10-batches-bin/{member}")
    if stream is None:
        raise ValueError(f"{member} is not a file")
    with stream:
        records = np.frombuffer(stream.read(), dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]


def _idx_source(base: str, *checksums: str) -> Source:
    names = (f"{prefix}-{kind}-ubyte.gz" for prefix in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
    return Source(base, dict(zip(names, checksums, strict=True)), _from_idx)


SOURCES: dict[str, Source] = {
    "mnist": _idx_source(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    "fashion_mnist": _idx_source(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    "cifar10": Source(
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        _from_cifar,
    ),
}
