"""What tells a damaged file of tensors from a whole one: how long its header claims to be, and a checksum."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

# Far more than any description; a header that claims more is not read at all.
_MOST_HEADER_BYTES = 50_000_000


def check_header(path: Path) -> None:
    """Raise the error of a damaged safetensors file where its header claims more bytes than can be."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > min(_MOST_HEADER_BYTES, path.stat().st_size):
        raise SafetensorError(f"its header claims {size:,} bytes")


def checksum(tensors: dict[str, Tensor], description: str) -> str:
    """SHA-256 of the description and of all tensors, by their names, types, shapes and bytes."""
    digest = hashlib.sha256(description.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
