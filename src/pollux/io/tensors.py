"""Files of tensors and a JSON description, as safetensors: written whole or not at all, with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pollux.io.atomic import in_place

# Far more than any description; a header that claims more is not read at all.
_MAX_HEADER_BYTES = 50_000_000


def write(path: str | Path, kind: str, version: str, tensors: Mapping[str, Tensor], description: Any) -> None:
    """Tensors and a JSON description in one file, which appears whole or not at all."""
    # Tensors of one storage (tied weights) are written as separate ones.
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(description)
    metadata = {"format": kind, "version": version, "description": text, "sha256": checksum(contiguous, text)}
    with in_place(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata=metadata)
        except SafetensorError as error:
            # A full disk raises this too.
            raise OSError(str(error)) from error


def read(
    path: Path, kind: str, versions: Sequence[str], noun: str, *, unchecked: Sequence[str] = ()
) -> tuple[dict[str, Tensor], Any]:
    """The tensors and the description of a file that :func:`write` made; ``noun`` is its name in messages.

    Versions that are ``unchecked`` had no checksum. Raises a ValueError where it is another file, of another version,
    or damaged.
    """
    article = "an" if noun[0] in "aeiou" else "a"
    try:
        check_header(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != kind:
                raise _RefusedError(f"{path} is not {article} {noun} of this library.")
            if metadata.get("version") not in versions:
                readable = f"version{'s' if len(versions) > 1 else ''} {', '.join(versions)}"
                raise _RefusedError(
                    f"{path} has format version {metadata.get('version')}; this release reads {readable}. "
                    "Load it with the release that wrote it."
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata["version"] not in unchecked and metadata["sha256"] != checksum(tensors, metadata["description"]):
            raise _RefusedError(f"{path} is damaged: its checksum is not that of its contents. Use a copy of it.")
        return tensors, json.loads(metadata["description"])
    except _RefusedError as error:
        raise ValueError(str(error)) from None
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a whole {noun}: {error}.") from error


class _RefusedError(Exception):
    """A file that is not read, with the message for the user."""


def check_header(path: Path) -> None:
    """Raise the error of a damaged safetensors file where its header claims more bytes than can be."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > min(_MAX_HEADER_BYTES, path.stat().st_size):
        raise SafetensorError(f"its header claims {size:,} bytes")


def checksum(tensors: Mapping[str, Tensor], description: str) -> str:
    """SHA-256 of the description and of all tensors, by their names, types, shapes and bytes."""
    digest = hashlib.sha256(description.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        if tensor.numel():
            digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
