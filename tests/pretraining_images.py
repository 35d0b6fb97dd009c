"""Images, settings and generators for the tests of pretraining."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pollux.lab.pretraining import ImageEncoder

SMALL: dict[str, Any] = {"widths": (8, 16), "blocks": (1, 1), "batch_size": 16, "projection": 8}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(n: int = 40, *shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (n, *(shape or (12, 12, 3))), dtype=np.uint8)


def blotches(n: int = 64) -> NDArray[np.uint8]:
    """Return images (n, 16, 16, 3) of broad stripes, each in its own shade."""
    random = np.random.default_rng(0)
    across = np.linspace(0, 1, 16)
    phase, pace, shade = (random.random((3, n, 3)) * np.array([1, 3, 1])[:, None, None])[:, :, None, None, :]
    down = across[None, :, None, None]
    waves = np.sin(2 * np.pi * (phase + pace * down + pace[:, :, :, ::-1] * across[None, None, :, None]))
    return ((0.3 * waves + 0.35 + 0.3 * shade).clip(0, 1) * 255).astype(np.uint8)


def same_weights(a: ImageEncoder, b: ImageEncoder) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
