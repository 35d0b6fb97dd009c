"""Training images: read from a data set, file or folder, and returned in batches (b, C, H, W) from 0 to 1."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pollux.data.sources import Reading, open_data
from pollux.embedding.image_encoder import LEAST_SIDE
from pollux.errors import InputError, did_you_mean
from pollux.lab.datasets import IMAGES, load_images

_CHANNELS = (1, 3, 4)
_AT_ONCE = 4_096
_LEAST_VARIANCE = 1e-12
"""Smallest variance of a channel that is scaled to 0 … 1; less may be rounding error."""


def read_images(data: str, *, array: str | None = None, image_size: int | None = None) -> NDArray[Any]:
    """Read images (n, H, W), (n, H, W, C) or (n, C, H, W), as they are stored.

    ``data`` is a data set such as "cifar10", of which the training images are read; an ``.npy`` or ``.npz`` file, of
    which ``array`` names one array; or a folder of images, which are resized to ``image_size``.
    """
    if data in IMAGES:
        return load_images(data).x_train
    if not Path(data).exists():
        known = ", ".join(IMAGES)
        raise InputError(f"{data} is neither a file nor a data set ({known}).{did_you_mean(data, IMAGES)}")
    rows = open_data(data, Reading(array=array, image_size=image_size)).read().rows
    if not isinstance(rows, np.ndarray) or rows.ndim != 4:
        raise InputError(
            f"{data} does not hold images: give an array (n, H, W) or (n, C, H, W), or a folder of images."
        )
    return rows


class Images:
    """Images (n, C, H, W) and the range of their values; they are neither copied nor converted as a whole.

    Bytes range from 0 to 255, other numbers may have any range. ``low`` and ``high`` are the range of the encoder's
    input, for bytes 0 and 1; ``mean`` and ``std`` are those of each channel, in that range.
    """

    def __init__(self, array: NDArray[Any] | Tensor) -> None:
        self._pixels = _channels_first(array)
        self.low, self.high = 0.0, 1.0
        if self._pixels.dtype != np.uint8:
            self.low, self.high = (float(bound) for bound in (self._pixels.min(), self._pixels.max()))
            if not np.isfinite([self.low, self.high]).all():
                raise InputError("The images hold values that are not finite numbers: fill them in first.")
        self.mean, self.std = self._moments()

    def __len__(self) -> int:
        return len(self._pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of one image."""
        channels, height, width = self._pixels.shape[1:]
        return channels, height, width

    def batch(self, index: Tensor) -> Tensor:
        """Return the images (b, C, H, W) at an index (b,), scaled to the range from 0 to 1."""
        return self._unit(self._pixels[index.numpy()])

    def as_given(self, unit: Tensor) -> Tensor:
        """Scale images from the range 0 to 1 back to the range of the encoder's input."""
        return unit if (self.low, self.high) == (0, 1) else unit * (self.high - self.low) + self.low

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all pixels, in order."""
        digest = hashlib.sha256(f"{self._pixels.dtype} {self._pixels.shape}".encode())
        for part in self._parts():
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def _unit(self, pixels: NDArray[Any]) -> Tensor:
        if pixels.dtype == np.uint8:
            # Convert first: a memory-mapped file may be read-only.
            return torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32)) / 255
        # In double precision: single precision would lose small differences between large numbers.
        unit = (pixels.astype(np.float64) - self.low) / ((self.high - self.low) or 1.0)
        return torch.from_numpy(unit.astype(np.float32))

    def _parts(self) -> Iterator[NDArray[Any]]:
        for first in range(0, len(self), _AT_ONCE):
            yield self._pixels[first : first + _AT_ONCE]

    def _moments(self) -> tuple[list[float], list[float]]:
        """Return the mean and standard deviation of each channel; the deviation of a constant channel is 1."""
        count, total, squares = 0, torch.zeros(()), torch.zeros(())
        for part in self._parts():
            values = self._unit(part).double()
            count += values[:, 0].numel()
            total, squares = total + values.sum((0, 2, 3)), squares + values.square().sum((0, 2, 3))
        mean = total / count
        variance = squares / count - mean.square()
        # Compare on the scale 0 to 1, so that the test for a constant channel is independent of scale and offset.
        std = torch.where(variance > _LEAST_VARIANCE, variance.clamp(min=0).sqrt() * (self.high - self.low), 1.0)
        return (mean * (self.high - self.low) + self.low).tolist(), std.tolist()


def _channels_first(array: NDArray[Any] | Tensor) -> NDArray[Any]:
    """Convert to (n, C, H, W); raise an error that describes the accepted shapes if that is impossible."""
    pixels = array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asanyarray(array)
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.ndim == 4 and pixels.shape[1] not in _CHANNELS and pixels.shape[3] in _CHANNELS:
        pixels = np.moveaxis(pixels, 3, 1)
    if pixels.ndim != 4 or pixels.dtype.kind not in "biuf":
        raise InputError(
            f"Images are numbers (n, H, W), (n, C, H, W) or (n, H, W, C), not {pixels.dtype} of shape {pixels.shape}: "
            "reshape or convert them."
        )
    if pixels.shape[1] not in _CHANNELS:
        raise InputError(
            f"Images have 1, 3 or 4 channels, (n, C, H, W) or (n, H, W, C), but these have the shape {pixels.shape}."
        )
    if len(pixels) < 2:
        raise InputError(f"There must be at least 2 images to tell apart, not {len(pixels)}.")
    if min(pixels.shape[2:]) < LEAST_SIDE:
        height, width = pixels.shape[2:]
        raise InputError(f"Images need {LEAST_SIDE} × {LEAST_SIDE} pixels, but these have {height} × {width}.")
    return pixels
