"""The training of an encoder, which can be written to a file after each epoch, and read from it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pollux.errors import InputError
from pollux.lab.pretraining import files
from pollux.lab.pretraining.augmentations import Augmentation
from pollux.lab.pretraining.encoder import LEAST_SIDE, Encoder
from pollux.lab.pretraining.images import Images
from pollux.lab.pretraining.loss import matched, nt_xent

_WARM_UP = 0.05
"""Share of all steps in which the learning rate rises."""

_MOST_LEARNING_RATE = 1e6


class Step(NamedTuple):
    """Figures of one step, as callbacks are told them.

    Parameters
    ----------
    epoch, epochs : int
        The pass over the images, counted from 1, and how many there will be.
    number, of : int
        The step of the epoch, counted from 1, and how many there are.
    images : int
        In this step.
    loss : float
        Mean over all views, see :func:`nt_xent`.
    matched : float
        Share of the views whose nearest other view is of the same image.
    """

    epoch: int
    epochs: int
    number: int
    of: int
    images: int
    loss: float
    matched: float


@dataclass(frozen=True)
class Settings:
    """What the result depends on, besides the images."""

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
            raise InputError(f"A learning rate of {self.learning_rate} is of no use: try 0.002.")
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
        """Lists and numbers, as they come back from a file."""
        plain: dict[str, Any] = {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }
        plain["augmentation"]["scale"] = list(self.augmentation.scale)
        return plain


def whole(name: str, value: Any) -> int:
    """The value as an int, if it is a whole number: nothing is rounded."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise InputError(f"{name} must be a whole number, not {value!r}.")


class Training:
    """A training under way; all that it is made of can be written and read."""

    def __init__(self, images: Images, settings: Settings) -> None:
        self.images = images
        self.settings = replace(settings, batch_size=min(settings.batch_size, len(images)))
        self.history: dict[str, list[float]] = {"loss": [], "matched": []}
        self.generator = torch.Generator().manual_seed(settings.random_state)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.random_state)
            self.encoder = Encoder(images.shape[0], settings.widths, settings.blocks, mean=images.mean, std=images.std)
            self.head = _projection_head(self.encoder.n_features, settings.projection)
        # Weights in the layout of the images, so that no step has to convert them.
        self.encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.parameters = [*self.encoder.parameters(), *self.head.parameters()]
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    @property
    def epoch(self) -> int:
        """Epochs that have ended."""
        return len(self.history["loss"])

    @property
    def steps(self) -> int:
        """Steps of an epoch; images that do not fill a last batch are left to the next epochs."""
        return len(self.images) // self.settings.batch_size

    def run_epoch(self, callbacks: Sequence[Callable[[Step], object]]) -> None:
        """One pass over the images."""
        losses, shares = [], []
        self.encoder.train()
        for number, index in enumerate(self._batches()):
            loss, share = self._step(index, self._learning_rate(self.epoch * self.steps + number))
            losses.append(loss)
            shares.append(share)
            step = Step(self.epoch + 1, self.settings.epochs, number + 1, self.steps, len(index), loss, share)
            for callback in callbacks:
                callback(step)
        self.history["loss"].append(sum(losses) / len(losses))
        self.history["matched"].append(sum(shares) / len(shares))

    def _batches(self) -> Iterator[Tensor]:
        order = torch.randperm(len(self.images), generator=self.generator)
        size = self.settings.batch_size
        return iter(torch.split(order[: self.steps * size], size))

    def _step(self, index: Tensor, learning_rate: float) -> tuple[float, float]:
        unit = self.images.batch(index)
        augmentation = self.settings.augmentation
        views = torch.cat([augmentation(unit, self.generator), augmentation(unit, self.generator)])
        projections = self.head(self.encoder.activations(self.images.as_given(views)))
        loss = nt_xent(projections, self.settings.temperature)
        if not math.isfinite(loss.item()):
            raise InputError("The loss is no finite number any more: use a lower learning rate.")
        self.optimiser.param_groups[0]["lr"] = learning_rate
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return loss.item(), matched(projections)

    def _learning_rate(self, step: int) -> float:
        total = self.settings.epochs * self.steps
        warm_up = math.ceil(_WARM_UP * total)
        if step < warm_up:
            return self.settings.learning_rate * (step + 1) / warm_up
        return self.settings.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (total - warm_up)))

    def save(self, path: str | Path) -> None:
        """Write all that the training is made of, or the encoder alone once it has ended."""
        about: dict[str, Any] = {
            "settings": self.settings.as_json(),
            "history": self.history,
            "images": self.images.fingerprint,
        }
        unfinished = self.epoch < self.settings.epochs
        files.write(path, self.encoder, self._state() if unfinished else {}, about)

    def _state(self) -> dict[str, Tensor]:
        tensors = {f"head.{name}": value for name, value in self.head.state_dict().items()}
        for number, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": value for name, value in state.items()}
        return tensors | {"generator": self.generator.get_state()}

    def restore(self, path: str | Path) -> None:
        """Go on where a file left off."""
        tensors, about = files.read(path)
        try:
            self._check_same(path, about)
            encoder = files.encoder_from(path, tensors, about)
            self.encoder.load_state_dict(encoder.state_dict())
            self.history = {name: [float(value) for value in about["history"][name]] for name in self.history}
            if self.epoch > self.settings.epochs:
                raise InputError(
                    f"{path} has {self.epoch} epochs behind it, more than the {self.settings.epochs} asked for: ask "
                    "for more, or use it as it is."
                )
            if self.epoch < self.settings.epochs:
                self._restore_state(path, tensors)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is not the whole state of a training: {error!r}. Begin anew.") from error

    def _check_same(self, path: str | Path, about: dict[str, Any]) -> None:
        if about["images"] != self.images.fingerprint:
            raise InputError(f"{path} is the training of other images: resume it with those, or name another file.")
        own, found = self.settings.as_json(), about["settings"]
        differing = sorted(name for name in own if name != "epochs" and found.get(name) != own[name])
        if differing:
            told = ", ".join(f"{name} {found.get(name)}" for name in differing)
            raise InputError(f"{path} is a training with {told}: resume it with the same, or name another file.")

    def _restore_state(self, path: str | Path, tensors: dict[str, Tensor]) -> None:
        if "generator" not in tensors:
            raise InputError(f"The training of {path} has ended: it holds the encoder alone, and cannot go on.")
        self.head.load_state_dict(_below("head.", tensors))
        state = self.optimiser.state_dict()
        for number, parameter in enumerate(self.parameters):
            found = _below(f"optimiser.{number}.", tensors)
            # In the layout of the weights, as if there had been no break.
            moments = {name: torch.empty_like(parameter).copy_(found[name]) for name in ("exp_avg", "exp_avg_sq")}
            state["state"][number] = {"step": found["step"], **moments}
        self.optimiser.load_state_dict(state)
        self.generator.set_state(tensors["generator"])


def _projection_head(features: int, dimensions: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(features, features, bias=False),
        nn.BatchNorm1d(features),
        nn.ReLU(),
        nn.Linear(features, dimensions),
    )


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
