"""Encoders and unfinished trainings in files: safetensors and JSON. Loading never runs code from a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pollux.errors import InputError
from pollux.io import tensors as checked_tensors
from pollux.lab.pretraining.encoder import Encoder

FORMAT = "pollux-encoder"
VERSION = "1"

_ENCODER = "encoder."
_MOST_WIDTH = 1_000_000
_AGAIN = "Name a file that `pollux pretrain` wrote, or pretrain again."


def save_encoder(path: str | Path, encoder: Encoder, about: dict[str, Any] | None = None) -> None:
    """Write an encoder into one file, which appears whole or not at all.

    Parameters
    ----------
    path : path
        The file; the folder must exist.
    encoder : Encoder
        What to write.
    about : dict, optional
        Whatever JSON can hold, for people.
    """
    write(path, encoder, {}, about or {})


def load_encoder(path: str | Path) -> Encoder:
    """The frozen encoder in a file: in evaluation mode, and without gradients.

    Parameters
    ----------
    path : path
        What ``pollux pretrain`` or :func:`save_encoder` wrote. The file of a training that has not ended will do.

    Returns
    -------
    Encoder
        From images (n, C, H, W) to features (n, d) of length 1.

    Raises
    ------
    InputError
        If there is no such file, or it holds something else, or not the whole of it.
    """
    tensors, description = read(path)
    encoder = encoder_from(path, tensors, description)
    return encoder.requires_grad_(False).eval()


def write(path: str | Path, encoder: Encoder, training: dict[str, Tensor], about: dict[str, Any]) -> None:
    """An encoder, and the tensors of a training that has not ended, in one file."""
    tensors = {f"{_ENCODER}{name}": value for name, value in encoder.state_dict().items()} | training
    checked_tensors.write(path, FORMAT, VERSION, tensors, {"design": encoder.design, **about})


def check_place(path: str | Path) -> None:
    """Raise an InputError where a file cannot be written: before hours of training, not after them."""
    path = Path(path).resolve()
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file.")
    # Folders that are missing will be made in the last one that is there.
    folder = next(folder for folder in path.parents if folder.exists())
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder, so there can be no {path}: name a file elsewhere.")
    if not os.access(folder, os.W_OK):
        raise InputError(f"Nothing can be written into the folder {folder}: name a file elsewhere.")


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description of a file that :func:`write` made."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no encoder file {path}. {_AGAIN}")
    try:
        tensors, description = checked_tensors.read(path, FORMAT, [VERSION], "encoder file")
        return tensors, dict(description)
    except (ValueError, TypeError) as error:
        raise InputError(f"{error} {_AGAIN}") from error


def encoder_from(path: str | Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> Encoder:
    """The encoder among the tensors of a file."""
    weights = {name.removeprefix(_ENCODER): value for name, value in tensors.items() if name.startswith(_ENCODER)}
    try:
        design = description["design"]
        sizes = [design["channels"], *design["widths"], *design["blocks"]]
        if not all(isinstance(size, int) and 0 <= size <= _MOST_WIDTH for size in sizes):
            raise ValueError("its layers have no sizes")
        if sum(design["blocks"]) > len(weights):
            raise ValueError("it has more layers than weights")
        # Without memory first: a file may claim a network of any size.
        with torch.device("meta"):
            skeleton = Encoder(**design)
        if _forms(skeleton.state_dict()) != _forms(weights):
            raise ValueError("its weights are not those of its layers")
        with torch.random.fork_rng(devices=[]):
            encoder = Encoder(**design)
        encoder.load_state_dict(weights)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, IndexError) as error:
        raise InputError(f"{path} is not a whole encoder file: {error}. {_AGAIN}") from error
    return encoder


def _forms(tensors: dict[str, Tensor]) -> dict[str, tuple[Any, ...]]:
    return {name: (tensor.dtype, *tensor.shape) for name, tensor in tensors.items()}
