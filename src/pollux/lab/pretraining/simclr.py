"""SimCLR: features that are shared by two random views of an image and distinguish it from other images.

The method is that of Chen, Kornblith, Norouzi and Hinton, "A simple framework for contrastive learning of visual
representations" (ICML 2020), with a network small enough to train on a CPU.
"""

from __future__ import annotations

import json
import math
import operator
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from pollux.embedding.image_encoder import LEAST_SIDE, ImageEncoder, check_writable, read_encoder, save_encoder
from pollux.errors import InputError
from pollux.io.atomic import write_text
from pollux.io.parsing import decode_json
from pollux.lab.pretraining.augmentations import Augmentation
from pollux.lab.pretraining.image_arrays import Images
from pollux.ranks import Ranks
from pollux.training import (
    Batch,
    Callback,
    Checkpoints,
    Epoch,
    NotFiniteError,
    NumericalWarning,
    RowBatches,
    SingleModel,
    Stopped,
    make_optimiser,
    train,
)
from pollux.training.steps import EpochMetrics, OptimiserStep

_WARM_UP = 0.05
"""Share of all steps over which the learning rate rises."""

_MOST_LEARNING_RATE = 1e6
_SETTINGS_FILE = "settings.json"


@dataclass(frozen=True)
class Pretrained:
    """The frozen encoder and its history. For each epoch: the mean "loss", see :func:`nt_xent`, and the share of
    "matched" views, whose nearest other view is of the same image."""

    encoder: ImageEncoder
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
    out: str | Path | None = None,
    resume: bool = False,
    checkpoints: Checkpoints | None = None,
    callbacks: Sequence[Callback] = (),
) -> Pretrained:
    """Train an encoder on images without labels.

    Parameters
    ----------
    images : array or Tensor (n, C, H, W), (n, H, W, C) or (n, H, W)
        Bytes, or floats of any range; grey or colour.
    epochs : int, default=100
        Passes over the images.
    batch_size : int, default=256
        Largest number of images in a step. Two views of each are compared with all other views of the step.
    temperature : float, default=0.5
        Temperature of the loss, see :func:`nt_xent`.
    learning_rate : float, default=0.002
        Peak learning rate: it rises over the first twentieth of the steps, then falls to 0 along a cosine.
    weight_decay : float, default=0.0001
        Weight decay of the AdamW optimiser.
    widths, blocks : sequence of int
        Channels and number of residual blocks of each stage of the encoder.
    projection : int, default=128
        Dimension in which views are compared; the projection head is dropped after the training.
    augmentation : Augmentation, optional
        How views are made; by default crops, flips and colour changes.
    random_state : int, default=0
        Seed of all randomness.
    out : path, optional
        File of the encoder, written atomically after each epoch. Missing folders are created. The folder
        ``OUT.checkpoints`` beside it exists until the training has ended.
    resume : bool, default=False
        Whether to resume from the checkpoints, if there are any; if False, they are removed. With the same settings the
        result is the same, bit by bit, as without an interruption. Only ``epochs`` may differ: the learning rate then
        follows the new number. If as many were already done, the training ends; fewer raise an error.
    checkpoints : Checkpoints, optional
        Used in place of those beside ``out``: how often they are written, and a way to stop the training after a step,
        which then raises ``Stopped``.
    callbacks : sequence of callable
        Each is called with an :class:`~pollux.training.Epoch` after each epoch. Its objective is minus the loss.

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
    if out is not None:
        check_writable(out)
        checkpoints = checkpoints or Checkpoints(checkpoint_folder(out))
    settings = Settings(
        epochs=_whole("epochs", epochs),
        batch_size=_whole("batch_size", batch_size),
        temperature=_number(temperature),
        learning_rate=_number(learning_rate),
        weight_decay=_number(weight_decay),
        widths=tuple(_whole("each of widths", width) for width in widths),
        blocks=tuple(_whole("each of blocks", count) for count in blocks),
        projection=_whole("projection", projection),
        augmentation=augmentation or Augmentation(),
        random_state=_whole("random_state", random_state),
    )
    data = Images(images)
    settings = replace(settings, batch_size=min(settings.batch_size, len(data)))
    if checkpoints is not None and not resume:
        _remove_checkpoints(checkpoints)
    elif out is not None and checkpoints is not None and Path(out).exists() and not checkpoints.exist():
        return _read_finished(out, settings, data, checkpoints.folder)
    # Neither the initialisation of layers nor restored random states may affect the caller's generator.
    with torch.random.fork_rng(devices=[]):
        return _train(data, settings, out, checkpoints, callbacks)


def checkpoint_folder(out: str | Path) -> Path:
    """Return the folder of the checkpoints of a training that writes this encoder file."""
    return Path(f"{out}.checkpoints")


def stored_settings(out: str | Path) -> dict[str, Any]:
    """Return the arguments of :func:`pretrain_simclr` with which the training of an encoder file was begun, by name.

    During the first epoch the encoder file need not exist yet.
    """
    path = checkpoint_folder(out) / _SETTINGS_FILE
    try:
        stored = decode_json(path.read_bytes()) if path.is_file() else read_encoder(out)[1]["settings"]
        settings = msgspec.convert(stored, Settings)
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{out} does not say how it was trained, so its training cannot go on: {error}") from error
    return {**settings.as_json(), "augmentation": settings.augmentation}


@dataclass(frozen=True)
class Settings:
    """All settings that the result depends on, besides the images."""

    epochs: int
    batch_size: int
    temperature: float
    learning_rate: float
    weight_decay: float
    widths: tuple[int, ...]
    blocks: tuple[int, ...]
    projection: int
    augmentation: Augmentation
    random_state: int

    def __post_init__(self) -> None:
        for name in ("epochs", "projection"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}.")
        for name in ("temperature", "learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be a finite number above 0, not {getattr(self, name)}.")
        if self.learning_rate > _MOST_LEARNING_RATE:
            raise InputError(f"A learning rate of {self.learning_rate} is too large: try 0.002.")
        if self.augmentation.size is not None and self.augmentation.size < LEAST_SIDE:
            raise InputError(
                f"Views of {self.augmentation.size} pixels a side show nothing: {LEAST_SIDE} is the least."
            )
        if self.batch_size < 2:
            raise InputError(f"A step needs at least 2 images to tell apart: batch_size cannot be {self.batch_size}.")
        if not 0 <= self.random_state < 2**63:
            raise InputError(f"The seed must be from 0 to 2^63 - 1, not {self.random_state}.")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay must be a finite number from 0 up, not {self.weight_decay}.")
        if not self.widths or len(self.widths) != len(self.blocks) or min(*self.widths, *self.blocks) < 1:
            raise InputError(f"Each stage needs channels and blocks, not widths {self.widths}, blocks {self.blocks}.")

    def as_json(self) -> dict[str, Any]:
        """Return the settings as JSON lists and numbers, as they are read from a file."""
        return dict(msgspec.json.decode(msgspec.json.encode(self)))

    def identity(self, images: Images) -> dict[str, Any]:
        """Return what must be equal in a resumed training: the images and all settings but the number of epochs."""
        return {**{name: value for name, value in self.as_json().items() if name != "epochs"}, "images": images.digest}


def _train(
    images: Images,
    settings: Settings,
    out: str | Path | None,
    checkpoints: Checkpoints | None,
    callbacks: Sequence[Callback],
) -> Pretrained:
    """Train, or resume from the checkpoints, until all epochs are done; the file is written after each epoch."""
    torch.manual_seed(settings.random_state)
    encoder = ImageEncoder(images.shape[0], settings.widths, settings.blocks, mean=images.mean, std=images.std)
    network = ContrastiveNetwork(encoder, settings.projection)
    # Weights in the memory format of the images, so that no step has to convert them.
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def write(epochs: int, history: dict[str, list[float]]) -> None:
        about = {"settings": settings.as_json(), "images": images.digest, "epochs": epochs, "history": history}
        save_encoder(str(out), encoder, about)

    def write_epoch(epoch: Epoch) -> None:
        write(epoch.number, {"loss": [-epoch.objective], "matched": [epoch.metrics["matched"]]})

    if out is not None:
        Path(out).resolve().parent.mkdir(parents=True, exist_ok=True)
        callbacks = [write_epoch, *callbacks]
    generator = torch.Generator().manual_seed(settings.random_state)
    adamw = partial(torch.optim.AdamW, weight_decay=settings.weight_decay, fused=True)
    optimiser = make_optimiser(adamw, network.parameters(), settings.learning_rate)
    batches = RowBatches(len(images), settings.batch_size, images.batch)
    diverged = InputError("The loss is no longer a finite number: use a lower learning rate.")
    opened = nullcontext() if checkpoints is None else checkpoints.open(settings.identity(images))
    with opened, warnings.catch_warnings():
        # The error raised below is more specific than the warning.
        warnings.simplefilter("ignore", NumericalWarning)
        if checkpoints is not None:
            write_text(checkpoints.folder / _SETTINGS_FILE, json.dumps(settings.as_json()))
        try:
            trained = train(
                SingleModel(network, settings.projection),
                ContrastiveStep(network, images, settings.augmentation, settings.temperature, optimiser, generator),
                batches,
                max_epochs=settings.epochs,
                callbacks=callbacks,
                generator=generator,
                checkpoints=checkpoints,
                schedule=partial(_warm_up_and_cosine, batches.n_batches),
            )
        except NotFiniteError as error:
            raise diverged from error
        if trained.diverged:
            raise diverged
    metrics = trained.history.of_model(0)
    history = {"loss": [-objective for objective in metrics["objective"]], "matched": metrics["matched"]}
    if trained.stopped:
        raise Stopped(len(trained.history))
    if out is not None and checkpoints is not None and len(trained.history) == settings.epochs:
        write(len(trained.history), history)
        _remove_checkpoints(checkpoints)
    return Pretrained(encoder.requires_grad_(False).eval(), history)


def _warm_up_and_cosine(steps: int, max_epochs: int, epochs: float) -> float:
    """Return the learning-rate factor: it rises over the first twentieth of the steps, then falls along a cosine."""
    step, total = round(epochs * steps), max_epochs * steps
    warm_up = math.ceil(_WARM_UP * total)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (total - warm_up)))


def _read_finished(out: str | Path, settings: Settings, images: Images, folder: Path) -> Pretrained:
    """Return the encoder of a finished training, which has no checkpoints, if its settings and epochs are the same."""
    encoder, about = read_encoder(out)
    try:
        found = {**about["settings"], "images": about["images"]}
        history = {name: [float(value) for value in about["history"][name]] for name in ("loss", "matched")}
        done = int(about.get("epochs", len(history["loss"])))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{out} does not say how it was trained, so its training cannot go on: {error!r}") from error
    own = settings.identity(images)
    differing = sorted(name for name in own if found.get(name) != own[name])
    if "images" in differing:
        raise InputError(f"{out} was trained on other images: resume it with those, or name another file.")
    if differing:
        values = ", ".join(f"{name} {found.get(name)}" for name in differing)
        raise InputError(f"{out} was trained with {values}: resume it with the same, or name another file.")
    if done > settings.epochs:
        raise InputError(
            f"{out} has {done} epochs behind it, more than the {settings.epochs} asked for: ask for more, or use it as "
            "it is."
        )
    if done < settings.epochs:
        raise InputError(
            f"The training of {out} has ended, or its checkpoints in {folder} were removed: it cannot go on. Use the "
            "encoder as it is, or begin anew."
        )
    return Pretrained(encoder, history)


def _remove_checkpoints(checkpoints: Checkpoints) -> None:
    (checkpoints.folder / _SETTINGS_FILE).unlink(missing_ok=True)
    checkpoints.remove()


def _whole(name: str, value: Any) -> int:
    """Return the value as an int; raise an InputError if it is not a whole number."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise InputError(f"{name} must be a whole number, not {value!r}.")


def _number(value: Any) -> float:
    """Return the value as a float; NaN, which the settings reject by name, if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


# The contrastive step: identify each view's partner among all views of a batch.


def nt_xent(projections: Tensor, temperature: float) -> Tensor:
    """Normalised, temperature-scaled cross-entropy of identifying each view's partner among all other views.

    Rows i and n + i of the projections (2n, d) are two views of one image; they need not have length 1. The cosines are
    divided by the temperature; a lower one gives more weight to the nearest views. The loss is the mean over all 2n
    views: log(2n - 1) if all of them are equal.

    Examples
    --------
    >>> import torch
    >>> nt_xent(torch.ones(16, 4), temperature=0.5)
    tensor(2.7081)
    """
    return _loss_and_matched(projections, temperature)[0]


def _loss_and_matched(projections: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the loss, and the share of the views (2n, d) whose nearest other view is of the same image."""
    unit = functional.normalize(projections, dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    cosines = (unit @ unit.T).masked_fill(itself, -math.inf)
    partners = torch.arange(len(unit), device=unit.device).roll(len(unit) // 2)
    matched = (cosines.detach().argmax(dim=1) == partners).double().mean()
    return functional.cross_entropy(cosines / temperature, partners), matched


class ContrastiveNetwork(nn.Module):
    """Views (2n, C, h, w) to projections (2n, p): the encoder, and a head that is dropped after the training."""

    def __init__(self, encoder: ImageEncoder, dimensions: int) -> None:
        super().__init__()
        width = encoder.n_features
        self.encoder = encoder
        self.head = nn.Sequential(
            nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, dimensions)
        )

    def forward(self, views: Tensor) -> Tensor:
        projections: Tensor = self.head(self.encoder.activations(views))
        return projections


class _ViewMetrics(EpochMetrics):
    """Mean objective, and mean share of matched views."""

    names = ("objective", "matched")

    def __init__(self) -> None:
        super().__init__()
        self._matched: list[Tensor] = []

    def update(self, outputs: Tensor, values: Tensor) -> None:
        super().update(outputs, values)
        self._matched.append(outputs)

    def compute(self, ranks: Ranks | None = None) -> dict[str, Tensor]:
        return {**super().compute(ranks), "matched": torch.stack(self._matched).mean().reshape(-1)}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "matched": torch.stack(self._matched) if self._matched else None}

    def load_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        super().load_state(state, device)
        self._matched = [] if state["matched"] is None else list(state["matched"].to(device).unbind(0))


class ContrastiveStep(OptimiserStep):
    """A training step on images (n, C, H, W) from 0 to 1: two random views of each, and NT-Xent between all views."""

    new_metrics = _ViewMetrics

    def __init__(
        self,
        network: ContrastiveNetwork,
        images: Images,
        augmentation: Augmentation,
        temperature: float,
        optimiser: torch.optim.Optimizer,
        generator: torch.Generator,
    ) -> None:
        super().__init__(optimiser)
        self._network, self._images, self._generator = network, images, generator
        self._augmentation, self._temperature = augmentation, temperature

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the share of matched views, and minus the loss."""
        views = torch.cat([self._augmentation(batch.inputs, self._generator) for _ in range(2)])
        projections = self._network(self._images.as_given(views))
        loss, matched = _loss_and_matched(projections, self._temperature)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return matched, -loss.detach()
