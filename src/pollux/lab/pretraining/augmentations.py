"""Random views of a batch of images; the parameters are drawn for each image."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pollux.errors import InputError

# Weights of red, green and blue in the perceived brightness (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Augmentation:
    """Random crop, horizontal flip, colour jitter and random greyscale, in this order.

    Parameters
    ----------
    size : int, optional
        Side of the views in pixels; None keeps the size of the images.
    scale : tuple of two float, default=(0.2, 1.0)
        Range of the share of an image's area that is cropped, before resizing.
    ratio : float, default=4 / 3
        Largest aspect ratio of a crop, wide or high, relative to that of the image.
    flip : bool, default=True
        Whether to mirror half of the views left to right. Turn it off if left and right differ in meaning, as in
        digits.
    brightness, contrast, saturation : float, default=0.4
        Each is multiplied by a factor drawn from 1 ± this; saturation only in colour images.
    hue : float, default=0.1
        Largest rotation of the hue, in turns; only in colour images.
    jitter : float, default=0.8
        Share of the views whose brightness, contrast and colours change.
    grey : float, default=0.2
        Share of the views that become grey; only in colour images.

    Examples
    --------
    >>> views = Augmentation(size=6)(torch.rand(2, 3, 8, 8), torch.Generator().manual_seed(0))
    >>> views.shape
    torch.Size([2, 3, 6, 6])
    """

    size: int | None = None
    scale: tuple[float, float] = (0.2, 1.0)
    ratio: float = 4 / 3
    flip: bool = True
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    jitter: float = 0.8
    grey: float = 0.2

    def __post_init__(self) -> None:
        least, largest = self.scale
        if not 0 < least <= largest <= 1:
            raise InputError(f"The shares of a crop must be 0 < least <= largest <= 1, not {self.scale}.")
        if self.ratio < 1:
            raise InputError(f"The ratio of a crop's sides must be at least 1, not {self.ratio}.")
        if self.size is not None and self.size < 1:
            raise InputError(f"Views need at least one pixel a side, not {self.size}.")
        for name in ("brightness", "contrast", "saturation", "hue", "jitter", "grey"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must be from 0 to 1, not {getattr(self, name)}.")

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return a random view (n, C, h, w) of each image (n, C, H, W), from 0 to 1; colours change if C is 3."""
        return self.recoloured(self.cropped(images, generator), generator)

    def cropped(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Crop each image at random, resize the crops to the size of the views, and mirror half of them."""
        n, channels, height, width = images.shape
        area = _uniform(n, *self.scale, generator)
        bound = math.log(self.ratio)
        stretch = torch.exp(_uniform(n, -bound, bound, generator))
        across = torch.sqrt(area * stretch).clamp(max=1)
        down = torch.sqrt(area / stretch).clamp(max=1)
        # In the coordinates of affine_grid an image extends from -1 to 1.
        right = _uniform(n, -1, 1, generator) * (1 - across)
        below = _uniform(n, -1, 1, generator) * (1 - down)
        sign = torch.where(_chosen(n, 0.5, generator), -1.0, 1.0) if self.flip else torch.ones(n)
        zero = torch.zeros(n)
        rows = [torch.stack(row, dim=1) for row in ((across * sign, zero, right), (zero, down, below))]
        maps = torch.stack(rows, dim=1).to(images)
        shape = [n, channels, self.size or height, self.size or width]
        grid = functional.affine_grid(maps, shape, align_corners=False)
        return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)

    def recoloured(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Change brightness, contrast, saturation and hue at random, and make some images grey."""
        n, channels = images.shape[:2]
        active = _chosen(n, self.jitter, generator)
        brightness = _factor(n, self.brightness, active, generator)
        contrast = _factor(n, self.contrast, active, generator)
        is_colour = channels == 3
        grey_share = torch.tensor(_LUMA) if is_colour else torch.full((channels,), 1 / channels)
        # Each change is linear in the channels, so that together they are one matrix per image.
        matrix = torch.eye(channels).expand(n, -1, -1)
        if is_colour:
            saturation = _factor(n, self.saturation, active, generator)
            turn = _uniform(n, -self.hue, self.hue, generator) * active
            saturation = torch.where(_chosen(n, self.grey, generator), 0.0, saturation)
            grey, along = grey_share.expand(3, 3), torch.full((3, 3), 1 / 3)
            # Colours move away from their grey values, or towards them if the factor is below 1, and are rotated about
            # the grey axis (1, 1, 1) / √3, by Rodrigues' formula.
            angle = (2 * math.pi * turn)[:, None, None]
            across = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3)
            turned = along + torch.cos(angle) * (torch.eye(3) - along) + torch.sin(angle) * across
            matrix = (grey + saturation[:, None, None] * (torch.eye(3) - grey)) @ turned
        matrix = (matrix * (brightness * contrast)[:, None, None]).to(images)
        level = torch.einsum("nchw,c->n", images, grey_share.to(images)) / images[0, 0].numel()
        offset = (level * (brightness * (1 - contrast)).to(images))[:, None, None]
        mixed = torch.baddbmm(offset, matrix, images.reshape(n, channels, -1))
        return mixed.clamp_(0, 1).reshape(images.shape)


def _factor(n: int, spread: float, active: Tensor, generator: torch.Generator) -> Tensor:
    """Draw factors (n,) from 1 ± spread; they are 1 where not active."""
    return torch.where(active, _uniform(n, 1 - spread, 1 + spread, generator), 1.0)


def _uniform(n: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(n, generator=generator)


def _chosen(n: int, share: float, generator: torch.Generator) -> Tensor:
    return torch.rand(n, generator=generator) < share
