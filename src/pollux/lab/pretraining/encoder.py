"""The network that turns images into features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pollux.errors import InputError
from pollux.models.vision import BasicBlock

LEAST_SIDE = 8
"""Pixels a side of the smallest images that are read."""


class Encoder(nn.Module):
    """A compact residual network: images (n, C, H, W) to features (n, d) of length 1.

    It takes images in the range that it was trained on, as floats: bytes divided by 255, from 0 to 1, where it was
    pretrained on bytes, and otherwise the numbers as they were. It normalises the channels itself. Images may have
    another size than those of the training.

    Parameters
    ----------
    channels : int
        Channels of the images, C.
    widths : sequence of int
        Channels of each stage; the last is the number of features, d. Each stage after the first halves the image.
    blocks : sequence of int
        Residual blocks of each stage.
    mean, std : sequence of float, optional
        Of each channel of the training images; 0 and 1 by default.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        channels: int,
        widths: Sequence[int] = (32, 128, 256),
        blocks: Sequence[int] = (1, 1, 1),
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.channels, self.widths, self.blocks = int(channels), tuple(widths), tuple(blocks)
        self.register_buffer("mean", _per_channel(mean if mean is not None else [0.0] * channels))
        self.register_buffer("std", _per_channel(std if std is not None else [1.0] * channels))
        # Most of the work is at half the side: the stem sees 4 x 4 pixels, and moves by 2.
        self.layers = nn.Sequential(
            nn.Conv2d(channels, widths[0], kernel_size=4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
            *_stages(self.widths, self.blocks),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return self.widths[-1]

    @property
    def design(self) -> dict[str, Any]:
        """What a network of this shape is made from."""
        return {"channels": self.channels, "widths": list(self.widths), "blocks": list(self.blocks)}

    def forward(self, images: Tensor) -> Tensor:
        """Features (n, d) of length 1, of images (n, C, H, W)."""
        return functional.normalize(self.activations(images), dim=1)

    def activations(self, images: Tensor) -> Tensor:
        """Features (n, d) before they are brought to length 1; none is negative."""
        if images.ndim != 4 or images.shape[1] != self.channels or not images.is_floating_point():
            raise InputError(
                f"The encoder reads floats (n, {self.channels}, H, W) in the range of its training, which for bytes is "
                f"0 to 1, but got {images.dtype} of shape {tuple(images.shape)}."
            )
        normalised = (images - self.mean) / self.std
        # Convolutions on the processor are faster with the channels last.
        features: Tensor = self.layers(normalised.contiguous(memory_format=torch.channels_last))
        return features


def _stages(widths: Sequence[int], blocks: Sequence[int]) -> Iterator[nn.Module]:
    before = widths[0]
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        for block in range(count):
            yield BasicBlock(before, width, stride=2 if stage > 0 and block == 0 else 1)
            before = width


def _per_channel(values: Sequence[float]) -> Tensor:
    return torch.tensor([float(value) for value in values])[:, None, None]
