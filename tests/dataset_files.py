"""Files of data sets, as their publishers and users write them."""

from __future__ import annotations

import argparse
import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from pollux.lab import datasets_command

random = np.random.default_rng(0)


def datasets_main(*arguments: str) -> int:
    """Run ``pollux datasets`` with these arguments."""
    parser = argparse.ArgumentParser()
    datasets_command.add(parser.add_subparsers())
    options = parser.parse_args(["datasets", *arguments])
    return int(options.run(options))


def image_arrays(shape: tuple[int, ...] = (28, 28)) -> dict[str, Any]:
    return {
        "x_train": random.integers(0, 256, size=(20, *shape), dtype=np.uint8),
        "y_train": random.integers(0, 10, size=20, dtype=np.uint8),
        "x_test": random.integers(0, 256, size=(10, *shape), dtype=np.uint8),
        "y_test": random.integers(0, 10, size=10, dtype=np.uint8),
    }


def save_images(path: Path, **changed: Any) -> dict[str, Any]:
    arrays = image_arrays() | changed
    np.savez_compressed(path, **arrays)
    return arrays


def idx(array: Any) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(head + array.tobytes())


def digit_files(arrays: dict[str, Any]) -> dict[str, bytes]:
    names = {"x_train": "train-images-idx3", "y_train": "train-labels-idx1"}
    names |= {"x_test": "t10k-images-idx3", "y_test": "t10k-labels-idx1"}
    return {f"{name}-ubyte.gz": idx(arrays[key]) for key, name in names.items()}


def cifar_file(arrays: dict[str, Any], test_batch: str = "test_batch.bin") -> dict[str, bytes]:
    def batch(x: Any, y: Any) -> bytes:
        return np.column_stack([y, x.transpose(0, 3, 1, 2).reshape(len(x), -1)]).tobytes()

    batches = {
        f"data_batch_{number + 1}.bin": batch(arrays["x_train"][4 * number :][:4], arrays["y_train"][4 * number :][:4])
        for number in range(5)
    }
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in (batches | {test_batch: batch(arrays["x_test"], arrays["y_test"])}).items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return {"cifar-10-binary.tar.gz": stream.getvalue()}


def nothing_left(folder: Path) -> bool:
    return not folder.exists() or not list(folder.iterdir())
