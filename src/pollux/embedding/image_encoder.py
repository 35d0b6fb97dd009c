"""The network that maps images to features, and its files: safetensors and JSON, which contain no code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pollux.errors import InputError
from pollux.io import tensors as checked_tensors
from pollux.models.vision import BasicBlock

LEAST_SIDE = 8
"""Side of the smallest accepted images, in pixels."""

FORMAT, VERSION = "pollux-encoder", "1"
_PREFIX = "encoder."
_MOST_WIDTH = 1_000_000
_AGAIN = "Name a file that `pollux pretrain` wrote, or pretrain again."


class ImageEncoder(nn.Module):
    """A small residual network: images (n, C, H, W) to features (n, d) of length 1.

    Images are floats in the range of the training images: bytes divided by 255, from 0 to 1, if it was pretrained on
    bytes, otherwise the original numbers. The encoder normalises the channels itself. Images may differ in size from
    the training images.

    ``widths`` and ``blocks`` are the channels and the number of residual blocks of each stage; each stage after the
    first halves the image, and the width of the last is d. ``mean`` and ``std`` are those of each channel of the
    training images, by default 0 and 1.
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
        for name, values in (("mean", mean or [0.0] * channels), ("std", std or [1.0] * channels)):
            self.register_buffer(name, torch.tensor([float(value) for value in values])[:, None, None])
        # Most of the work is done at half the resolution: the stem is a convolution of 4 x 4 pixels with stride 2.
        stem = nn.Conv2d(channels, widths[0], kernel_size=4, stride=2, padding=1, bias=False)
        layers: list[nn.Module] = [stem, nn.BatchNorm2d(widths[0]), nn.ReLU()]
        before = widths[0]
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            for block in range(count):
                layers.append(BasicBlock(before, width, stride=2 if stage > 0 and block == 0 else 1))
                before = width
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return self.widths[-1]

    @property
    def design(self) -> dict[str, Any]:
        """The arguments that define the layers."""
        return {"channels": self.channels, "widths": list(self.widths), "blocks": list(self.blocks)}

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, d) of length 1 for images (n, C, H, W)."""
        return functional.normalize(self.activations(images), dim=1)

    def activations(self, images: Tensor) -> Tensor:
        """Return non-negative features (n, d) before normalisation to length 1."""
        if images.ndim != 4 or images.shape[1] != self.channels or not images.is_floating_point():
            raise InputError(
                f"The encoder reads floats (n, {self.channels}, H, W) in the range of its training, which for bytes is "
                f"0 to 1, but got {images.dtype} of shape {tuple(images.shape)}."
            )
        normalised = (images - self.mean) / self.std
        # Convolutions on the CPU are faster with the channels last.
        features: Tensor = self.layers(normalised.contiguous(memory_format=torch.channels_last))
        return features


def save_encoder(path: str | Path, encoder: ImageEncoder, about: dict[str, Any] | None = None) -> None:
    """Write an encoder atomically into one file; ``about`` is any JSON-serialisable metadata."""
    weights = {f"{_PREFIX}{name}": value for name, value in encoder.state_dict().items()}
    checked_tensors.write(path, FORMAT, VERSION, weights, {"design": encoder.design, **(about or {})})


def load_encoder(path: str | Path) -> ImageEncoder:
    """Load the frozen encoder from a file that ``pollux pretrain`` wrote, possibly before the training has ended.

    It maps images (n, C, H, W) to features (n, d) of length 1, in evaluation mode and without gradients.
    """
    return read_encoder(path)[0]


def check_writable(path: str | Path) -> None:
    """Raise an InputError if a file cannot be written: before hours of training, not after them."""
    path = Path(path).resolve()
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file.")
    # Missing folders will be created in the nearest existing one.
    folder = next(folder for folder in path.parents if folder.exists())
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder, so {path} cannot be written: name a file elsewhere.")
    if not os.access(folder, os.W_OK):
        raise InputError(f"Nothing can be written into the folder {folder}: name a file elsewhere.")


def read_encoder(path: str | Path) -> tuple[ImageEncoder, dict[str, Any]]:
    """Read the frozen encoder of a file and its metadata."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no encoder file {path}. {_AGAIN}")
    try:
        tensors, description = checked_tensors.read(path, FORMAT, [VERSION], "encoder file")
        about = dict(description)
    except (ValueError, TypeError) as error:
        raise InputError(f"{error} {_AGAIN}") from error
    # Files of earlier versions also hold the state of an unfinished training.
    weights = {name.removeprefix(_PREFIX): value for name, value in tensors.items() if name.startswith(_PREFIX)}
    try:
        design = about["design"]
        sizes = [design["channels"], *design["widths"], *design["blocks"]]
        if not all(isinstance(size, int) and 0 <= size <= _MOST_WIDTH for size in sizes):
            raise ValueError("its layers have no sizes")
        if sum(design["blocks"]) > len(weights):
            raise ValueError("it has more layers than weights")
        # Build it without memory first: a file may claim a network of any size.
        with torch.device("meta"):
            skeleton = ImageEncoder(**design)
        if _forms(skeleton.state_dict()) != _forms(weights):
            raise ValueError("its weights are not those of its layers")
        with torch.random.fork_rng(devices=[]):
            encoder = ImageEncoder(**design)
        encoder.load_state_dict(weights)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, IndexError) as error:
        raise InputError(f"{path} is not a whole encoder file: {error}. {_AGAIN}") from error
    return encoder.requires_grad_(False).eval(), about


def _forms(tensors: dict[str, Tensor]) -> dict[str, tuple[Any, ...]]:
    return {name: (tensor.dtype, *tensor.shape) for name, tensor in tensors.items()}
