"""SimCLR: features that two random views of an image share, and that tell it from other images.

The method is that of Chen, Kornblith, Norouzi and Hinton, "A simple framework for contrastive learning of visual
representations" (ICML 2020), with a network that an ordinary processor can train.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from pollux.errors import InputError
from pollux.lab.pretraining import files
from pollux.lab.pretraining.augmentations import Augmentation
from pollux.lab.pretraining.encoder import Encoder
from pollux.lab.pretraining.images import Images
from pollux.lab.pretraining.trainer import Settings, Step, Training, whole


@dataclass(frozen=True)
class Pretrained:
    """What was learned.

    Parameters
    ----------
    encoder : Encoder
        Frozen: in evaluation mode, and without gradients.
    history : dict
        The mean "loss" and "matched" of each epoch, see :class:`Step`.
    """

    encoder: Encoder
    history: dict[str, list[float]]


def pretrain_simclr(
    images: NDArray[Any] | Tensor,
    *,
    epochs: int = 100,
    batch_size: int = 256,
    temperature: float = 0.5,
    learning_rate: float = 2e-3,
    weight_decay: float = 1e-4,
    widths: Sequence[int] = (32, 128, 256),
    blocks: Sequence[int] = (1, 1, 1),
    projection: int = 128,
    augmentation: Augmentation | None = None,
    random_state: int = 0,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callable[[Step], object]] = (),
) -> Pretrained:
    """Train an encoder on images without labels.

    Parameters
    ----------
    images : array or Tensor (n, C, H, W), (n, H, W, C) or (n, H, W)
        Bytes, or floats of any range; grey or coloured.
    epochs : int, default=100
        Passes over the images.
    batch_size : int, default=256
        Images of a step, each of which is seen twice and told from all others of the step.
    temperature : float, default=0.5
        Of the loss, see :func:`nt_xent`.
    learning_rate : float, default=0.002
        Its peak: it rises for the first twentieth of the steps, then falls to 0 along a cosine.
    weight_decay : float, default=0.0001
        Of the AdamW optimiser.
    widths, blocks : sequence of int
        The encoder's stages: their channels, and how many residual blocks each has.
    projection : int, default=128
        Dimensions in which views are compared; this part of the network is thrown away afterwards.
    augmentation : Augmentation, optional
        How views are made; by default crops, mirror images and colours.
    random_state : int, default=0
        Of all randomness.
    checkpoint : path, optional
        File that is written after each epoch, whole or not at all. In the end it holds the encoder alone. Its folder
        is made if need be.
    resume : bool, default=False
        Go on from the checkpoint, where there is one. The result is the same, bit by bit, as without a break, if
        the settings are the same. Only ``epochs`` may be others: the learning rate is then that of the new number.
        As many as were done end the training, and the file then holds the encoder alone; fewer are refused.
    callbacks : sequence of callable
        Each is called with a :class:`Step` after each step.

    Returns
    -------
    Pretrained
        The frozen encoder and the history.

    Examples
    --------
    >>> import torch
    >>> images = torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> result = pretrain_simclr(images, epochs=2, batch_size=16, widths=(8, 16), blocks=(1, 1))
    >>> result.encoder(images).shape, len(result.history["loss"])
    (torch.Size([32, 16]), 2)
    """
    settings = Settings(
        epochs=whole("epochs", epochs),
        batch_size=whole("batch_size", batch_size),
        temperature=_number(temperature),
        learning_rate=_number(learning_rate),
        weight_decay=_number(weight_decay),
        widths=tuple(whole("each of widths", width) for width in widths),
        blocks=tuple(whole("each of blocks", count) for count in blocks),
        projection=whole("projection", projection),
        augmentation=augmentation or Augmentation(),
        random_state=whole("random_state", random_state),
    )
    if checkpoint is not None:
        files.check_place(checkpoint)
    training = Training(Images(images), settings)
    if checkpoint is not None:
        if resume and Path(checkpoint).exists():
            training.restore(checkpoint)
            if training.epoch == settings.epochs:
                training.save(checkpoint)
        Path(checkpoint).resolve().parent.mkdir(parents=True, exist_ok=True)
    while training.epoch < settings.epochs:
        training.run_epoch(callbacks)
        if checkpoint is not None:
            training.save(checkpoint)
    return Pretrained(training.encoder.requires_grad_(False).eval(), training.history)


def _number(value: Any) -> float:
    """The value as a float; what is none becomes NaN, which the settings refuse by name."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def stored_settings(path: str | Path) -> dict[str, Any]:
    """Arguments of :func:`pretrain_simclr` with which the training in a file was begun.

    Parameters
    ----------
    path : path
        Its checkpoint.

    Returns
    -------
    dict
        From names of arguments to their values.
    """
    _, about = files.read(path)
    try:
        stored = about["settings"]
        views = stored["augmentation"]
        augmentation = Augmentation(**{**views, "scale": tuple(views["scale"])})
        settings = Settings(**{**stored, "augmentation": augmentation})
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} does not say how it was trained, so its training cannot go on: {error}") from error
    return {**settings.as_json(), "augmentation": augmentation}
