"""Image data sets that are read from this machine: pixels (n, H, W) or (n, H, W, 3), and classes (n,)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError, did_you_mean
from pollux.lab.datasets import places
from pollux.lab.datasets.arrays import read_arrays, require


@dataclass(frozen=True)
class Recipe:
    """What a data set must look like, and how much there is to fetch."""

    title: str
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    n_train: int
    n_test: int
    megabytes: int

    def absent(self, name: str) -> str:
        """What to do about a data set that is not here."""
        return (
            f"{self.title} is not on this machine: run `pollux datasets fetch {name}` ({self.megabytes} MB), or put "
            f"{name}.npz into the folder named by {places.VARIABLE}.{places.complaint()}"
        )


IMAGES: dict[str, Recipe] = {
    "mnist": Recipe("MNIST", (28, 28), tuple("0123456789"), 60_000, 10_000, 12),
    "fashion_mnist": Recipe(
        "Fashion-MNIST",
        (28, 28),
        (
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        60_000,
        10_000,
        31,
    ),
    "cifar10": Recipe(
        "CIFAR-10",
        (32, 32, 3),
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        50_000,
        10_000,
        170,
    ),
}


@dataclass(frozen=True)
class ImageSet:
    """Images and their classes, as they were published.

    Parameters
    ----------
    name : str
        Such as "mnist".
    x_train, x_test : ndarray of shape (n, H, W) or (n, H, W, 3)
        Pixels from 0 to 255, in uint8.
    y_train, y_test : ndarray of shape (n,)
        Classes from 0 up, in int64.
    class_names : tuple of str
        Of each class.
    """

    name: str
    x_train: NDArray[np.uint8] = field(repr=False)
    y_train: NDArray[np.int64] = field(repr=False)
    x_test: NDArray[np.uint8] = field(repr=False)
    y_test: NDArray[np.int64] = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)


def recipe(name: str) -> Recipe:
    """What is known of an image data set, or an error that names those there are."""
    if name not in IMAGES:
        raise InputError(
            f"There is no image data set {name!r}: choose one of {', '.join(IMAGES)}.{did_you_mean(name, IMAGES)}"
        )
    return IMAGES[name]


def load_images(name: str) -> ImageSet:
    """Read images (n, H, W) or (n, H, W, 3) and classes (n,) from a file on this machine.

    The file is called ``NAME.npz`` and lies in the folder that the environment variable ``POLLUX_DATA`` names, or
    else in the cache folder, where ``pollux datasets fetch NAME`` puts it. Nothing is fetched here, and nothing in
    the file is executed.

    Parameters
    ----------
    name : {"mnist", "fashion_mnist", "cifar10"}
        The data set.

    Returns
    -------
    ImageSet

    Examples
    --------
    >>> mnist = load_images("mnist")  # doctest: +SKIP
    >>> mnist.x_train.shape, mnist.x_train.dtype  # doctest: +SKIP
    ((60000, 28, 28), dtype('uint8'))
    """
    known = recipe(name)
    path = places.find(f"{name}.npz")
    if path is None:
        raise InputError(known.absent(name))
    arrays = read_arrays(path)
    require(arrays, path, "x_train", "y_train", "x_test", "y_test")
    return checked(name, path, arrays)


def checked(name: str, origin: Path | str, arrays: dict[str, NDArray[Any]]) -> ImageSet:
    """The arrays as an image set, if they are of the right shapes and types."""
    known = recipe(name)
    pixels, classes = {}, {}
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.dtype != np.uint8 or x.shape[1:] != known.shape or x.ndim != len(known.shape) + 1 or len(x) == 0:
            size = ", ".join(map(str, known.shape))
            raise InputError(f"{origin}: x_{part} must be uint8 of the shape (n, {size}), not {x.dtype} {x.shape}.")
        if y.dtype.kind not in "iu" or y.shape not in ((len(x),), (len(x), 1)):
            raise InputError(f"{origin}: y_{part} must be {len(x)} whole numbers, not {y.dtype} {y.shape}.")
        whole = y.reshape(-1).astype(np.int64)
        if whole.min() < 0 or whole.max() >= len(known.class_names):
            raise InputError(
                f"{origin}: the classes in y_{part} must be from 0 to {len(known.class_names) - 1}, but go from "
                f"{whole.min()} to {whole.max()}."
            )
        pixels[part], classes[part] = x.astype(np.uint8, copy=False), whole
    return ImageSet(name, pixels["train"], classes["train"], pixels["test"], classes["test"], known.class_names)
