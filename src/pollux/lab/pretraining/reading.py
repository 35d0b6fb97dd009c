"""Where the images of a pretraining come from: a data set by its name, a file, or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.files import Reading, open_data
from pollux.errors import InputError, did_you_mean
from pollux.lab.datasets import IMAGES, load_images


def read_images(data: str, *, array: str | None = None, image_size: int | None = None) -> NDArray[Any]:
    """Images (n, H, W), (n, H, W, C) or (n, C, H, W).

    Parameters
    ----------
    data : str
        A data set such as "cifar10", of which the training images are read; else an ``.npy`` or ``.npz`` file or a
        folder of images.
    array : str, optional
        Which array of an ``.npz`` file holds the images.
    image_size : int, optional
        Side to which the images of a folder are scaled.

    Returns
    -------
    ndarray
        The images as they are stored.
    """
    if data in IMAGES:
        return load_images(data).x_train
    if not Path(data).exists():
        known = ", ".join(IMAGES)
        raise InputError(f"{data} is neither a file nor a data set ({known}).{did_you_mean(data, IMAGES)}")
    rows = open_data(data, Reading(array=array, image_size=image_size)).read().rows
    if not isinstance(rows, np.ndarray) or rows.ndim != 4:
        raise InputError(f"{data} holds no images: give an array (n, H, W) or (n, C, H, W), or a folder of images.")
    return rows
