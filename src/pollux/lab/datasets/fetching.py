"""Image data sets from their publishers: fetched, compared with known checksums, and stored as one .npz file each."""

from __future__ import annotations

import gzip
import logging
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError
from pollux.io import atomic
from pollux.lab.datasets import places
from pollux.lab.datasets.images import checked, recipe

Arrays: TypeAlias = dict[str, Any]
"""x_train, y_train, x_test, y_test."""


@dataclass(frozen=True)
class Source:
    """Where a data set is published, and how its files become arrays."""

    base: str
    files: dict[str, str]
    """The MD5 checksum of each file."""
    convert: Callable[[dict[str, Path]], Arrays]


def fetch(name: str, folder: str | Path | None = None, *, progress: Any = None) -> Path:
    """Fetch an image data set and store it as ``NAME.npz``, whole or not at all.

    Parameters
    ----------
    name : {"mnist", "fashion_mnist", "cifar10"}
        The data set.
    folder : str or Path, optional
        Where to put it; by default the folder that ``POLLUX_DATA`` names, or else the cache folder. It is made if
        need be.
    progress : object, optional
        Told how far each file has come, as pooch tells its progress bars: it has ``total`` and ``update(bytes)``,
        ``reset()`` and ``close()``.

    Returns
    -------
    Path
        Of the file.

    Examples
    --------
    >>> fetch("mnist", "data")  # doctest: +SKIP
    PosixPath('data/mnist.npz')
    """
    known, source = recipe(name), SOURCES[name]
    pooch = _pooch_library()
    target = _writable(Path(folder) if folder is not None else places.named_folder() or places.cache_folder())
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target) as temporary, _quiet(pooch):
        files = {
            file: _download(pooch, source.base + file, checksum, Path(temporary), progress)
            for file, checksum in source.files.items()
        }
        arrays = _converted(known.title, source, files)
        checked(name, source.base, arrays)
        path = target / f"{name}.npz"
        with atomic.in_place(path) as unfinished:
            np.savez_compressed(unfinished, **arrays)
    return path


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise InputError(
            f"{folder} is no folder that can be written: name another, pollux datasets fetch NAME --to DIR."
        )
    return folder


def _pooch_library() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise InputError("Data sets are fetched by pooch: pip install 'pollux[datasets]'.") from error
    return pooch


@contextmanager
def _quiet(pooch: Any) -> Iterator[None]:
    """Pooch would tell of each file on standard error."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _download(pooch: Any, url: str, checksum: str, folder: Path, progress: Any) -> Path:
    """One file, which is the published one."""
    from requests import RequestException

    downloader = pooch.HTTPDownloader(progressbar=progress or False, timeout=30)
    try:
        return Path(pooch.retrieve(url, f"md5:{checksum}", os.path.basename(url), folder, downloader=downloader))
    except RequestException as error:
        raise InputError(
            f"{url} could not be fetched ({_reason(error)}): see that this machine is online and try again, or bring "
            f"the .npz file from another machine into the folder named by {places.VARIABLE}."
        ) from error
    except ValueError as error:
        if "hash" not in str(error):
            raise
        raise InputError(
            f"{url} is not the file that was published: its MD5 checksum is not {checksum}. Nothing was stored. Try "
            "again; if it stays so, something on the way changes what is fetched."
        ) from error


def _reason(error: Exception) -> str:
    """What went wrong, without the names of Python objects that libraries put around it."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code} {response.reason}"
    return _REASONS.get(type(error).__name__, f"{type(error).__name__}: {error}")


_REASONS = {
    "ConnectionError": "no connection",
    "ProxyError": "no connection to the proxy",
    "ConnectTimeout": "no answer",
    "ReadTimeout": "no answer",
    "ChunkedEncodingError": "the connection broke",
}


def _converted(title: str, source: Source, files: dict[str, Path]) -> Arrays:
    try:
        return source.convert(files)
    except (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, KeyError, ValueError) as error:
        raise InputError(
            f"What was fetched of {title} cannot be read ({error}): it is incomplete or of another format. Nothing was "
            "stored; try again."
        ) from error


def from_idx(files: dict[str, Path]) -> Arrays:
    """The four idx files of MNIST and its kin as arrays."""
    return {
        f"{axis}_{part}": read_idx(files[f"{prefix}-{kind}-ubyte.gz"])
        for part, prefix in (("train", "train"), ("test", "t10k"))
        for axis, kind in (("x", "images-idx3"), ("y", "labels-idx1"))
    }


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes from a compressed idx file: its number of axes, their sizes, its values."""
    content = gzip.decompress(path.read_bytes())
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path.name} is no idx file of bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], dtype=">u4").astype(int)
    if len(shape) != content[3] or len(content) - start != shape.prod():
        raise ValueError(f"{path.name} does not hold as many values as it says")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def from_cifar(files: dict[str, Path]) -> Arrays:
    """The binary archive of CIFAR-10 as arrays: no pickles, and nothing is extracted to disk."""
    (archive,) = files.values()
    with tarfile.open(archive, "r:gz") as tar:
        batches = [_cifar_batch(tar, f"data_batch_{number}.bin") for number in range(1, 6)]
        x_test, y_test = _cifar_batch(tar, "test_batch.bin")
    x_train, y_train = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def _cifar_batch(tar: tarfile.TarFile, member: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 32, 32, 3) and classes (n,) from records of a class and three planes of pixels."""
    stream = tar.extractfile(f"cifar-10-batches-bin/{member}")
    if stream is None:
        raise ValueError(f"{member} is no file")
    with stream:
        records = np.frombuffer(stream.read(), dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]


SOURCES: dict[str, Source] = {
    "mnist": Source(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        from_idx,
    ),
    "fashion_mnist": Source(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        from_idx,
    ),
    "cifar10": Source(
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        from_cifar,
    ),
}
