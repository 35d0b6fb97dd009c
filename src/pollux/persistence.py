"""Models in files: tensors as safetensors, everything else as JSON. Loading never runs code from a file."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

FORMAT = "pollux-model"
VERSION = 1


def write(path: str | Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Tensors and a JSON description in one file, which appears whole or not at all."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist: make it first.")
    metadata = {"format": FORMAT, "version": str(VERSION), "description": json.dumps(description)}
    # Tensors of one storage (tied weights) are written as separate ones.
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(contiguous, temporary, metadata=metadata)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description of a file that :func:`write` made."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no model file {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.get("format") != FORMAT:
            raise ValueError(f"{path} is not a model file of this library.")
        if metadata.get("version") != str(VERSION):
            raise ValueError(
                f"{path} has format version {metadata.get('version')}; this release reads version {VERSION}. "
                f"Load it with the release that wrote it."
            )
        return tensors, json.loads(metadata["description"])
    except (SafetensorError, json.JSONDecodeError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a whole model file: {error}.") from error


def as_json(value: Any) -> Any:
    """The value where JSON can hold it, else None: a function or network is not saved, only its weights."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return None
