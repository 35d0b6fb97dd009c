"""Files of tensors and a JSON description, as safetensors: written atomically, with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from pollux.errors import InputError
from pollux.io.atomic import in_place
from pollux.io.parsing import parse_json

# Far more than any description needs; a file whose header claims more is not read.
_MAX_HEADER_BYTES = 50_000_000


def write(path: str | Path, kind: str, version: str, tensors: Mapping[str, Tensor], description: Any) -> None:
    """Write tensors and a JSON description to one file, atomically."""
    # Tensors that share storage (tied weights) are written separately.
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(description)
    metadata = {"format": kind, "version": version, "description": text, "sha256": checksum(contiguous, text)}
    with in_place(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata=metadata)
        except SafetensorError as error:
            # safetensors raises this for a full disk too.
            raise OSError(str(error)) from error


def read(
    path: Path, kind: str, versions: Sequence[str], noun: str, *, unchecked: Sequence[str] = ()
) -> tuple[dict[str, Tensor], Any]:
    """Read the tensors and the description of a file written by :func:`write`; ``noun`` is its name in messages.

    Versions in ``unchecked`` had no checksum. Raises an InputError if it is another kind of file, of another version,
    or damaged.
    """
    damaged = f"{path} is not a whole {noun}"
    content = _read_whole(path, damaged)
    metadata = parse_json(content[8 : 8 + _header_size(content)], _Header, damaged).metadata
    if metadata.get("format") != kind:
        raise InputError(f"{path} is not {'an' if noun[0] in 'aeiou' else 'a'} {noun} of this library.")
    version = metadata.get("version", "")
    if version not in versions:
        readable = f"version{'s' if len(versions) > 1 else ''} {', '.join(versions)}"
        raise InputError(
            f"{path} has format version {version}; this release reads {readable}. "
            "Load it with the release that wrote it."
        )
    try:
        tensors = load(content)
        text = metadata["description"]
        is_same = version in unchecked or metadata["sha256"] == checksum(tensors, text)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
        raise InputError(f"{damaged}: {error}.") from error
    if not is_same:
        raise InputError(f"{path} is damaged: its checksum is not that of its contents. Use a copy of it.")
    return tensors, parse_json(text, object, damaged)


def kind_of(path: Path) -> str:
    """The kind of a file written by :func:`write`; "" if it is unknown."""
    with path.open("rb") as file:
        size = _header_size(file.read(8))
        content = file.read(size) if size <= min(_MAX_HEADER_BYTES, path.stat().st_size) else b""
    try:
        return parse_json(content, _Header, path).metadata.get("format", "")
    except InputError:
        return ""


class _Header(Struct, rename={"metadata": "__metadata__"}):
    metadata: dict[str, str] = {}


def _header_size(content: bytes) -> int:
    return int.from_bytes(content[:8], "little")


def _read_whole(path: Path, damaged: str) -> bytes:
    """The bytes of a safetensors file, which is read only if its header fits in the file.

    It is not memory-mapped: a file that is truncated meanwhile would crash the process.
    """
    with path.open("rb") as file:
        beginning = file.read(8)
        size = _header_size(beginning)
        if size > min(_MAX_HEADER_BYTES, path.stat().st_size):
            raise InputError(f"{damaged}: its header claims {size:,} bytes.")
        return beginning + file.read()


def checksum(tensors: Mapping[str, Tensor], description: str) -> str:
    """SHA-256 of the description and of all tensors: their names, types, shapes and bytes."""
    digest = hashlib.sha256(description.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        if tensor.numel():
            digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
