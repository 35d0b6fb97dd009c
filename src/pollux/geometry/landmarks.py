"""Features (n, r) of any kernel by Nyström's method: from its columns at some samples, without the n×n matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pollux.data.rows import as_rows
from pollux.geometry.affinity import Features
from pollux.geometry.pairwise import Geometry, Pairwise

Array = NDArray[np.float64]

_COMPONENTS = 256
_MOST_LANDMARKS, _FEWEST_LANDMARKS = 1024, 128
_ELEMENTS = 1 << 25
_LANDMARKS_AT_ONCE, _ROWS_AT_ONCE = 64, 512
# Residual of the kernel at which no more landmarks are drawn, as a share of its trace.
_NOTHING_LEFT = 1e-10


def features_of(geometry: Geometry, X: Any, *, components: int = _COMPONENTS, seed: int = 0) -> Array:
    """Features (n, r) of mean zero whose products are the kernel of samples X (n, …), in float64.

    They are the kernel's own if it has features. Otherwise, for more than 1,024 samples, they are the leading
    ``components`` of its Nyström features, at landmarks drawn in proportion to the residual of the kernel.
    """
    rows = as_rows(X)
    n, everything = len(rows), torch.arange(len(rows))
    block = geometry.bind(rows)
    if geometry.gives_features:
        affinity = block(everything)
        if isinstance(affinity, Features):
            return affinity.values.double().sub(affinity.values.double().mean(0)).cpu().numpy()
    parts = torch.split(everything, _ROWS_AT_ONCE)
    adapted = geometry.adapt(rows)

    def between(part: Tensor, index: Tensor) -> Tensor:
        if isinstance(adapted, Pairwise):
            return adapted(rows[part].flatten(1), rows[index].flatten(1))
        # Other geometries only give the kernel within one set of samples.
        whole = block(torch.cat([part, index]))
        assert isinstance(whole, Tensor)
        return whole[: len(part), len(part) :]

    def columns(index: NDArray[np.int64]) -> Array:
        there = torch.from_numpy(index)
        return np.concatenate([between(part, there).double().cpu().numpy() for part in parts])

    small = torch.split(everything, _LANDMARKS_AT_ONCE)
    diagonal = np.concatenate([between(part, part).diagonal().double().cpu().numpy() for part in small])
    return low_rank(columns, diagonal, n if n <= _MOST_LANDMARKS else components, seed)


def low_rank(columns: Callable[[NDArray[np.int64]], Array], diagonal: Array, components: int, seed: int = 0) -> Array:
    """Centred features (n, r) of a kernel, given ``columns(index)`` (n, b) of it, and its diagonal (n,)."""
    n, random = len(diagonal), np.random.default_rng(seed)
    most = min(n, max(_FEWEST_LANDMARKS, min(_MOST_LANDMARKS, _ELEMENTS // n)))
    found, rest = np.empty((n, 0)), np.maximum(diagonal, 0)
    nothing = _NOTHING_LEFT * rest.sum()
    while found.shape[1] < most and rest.sum() > nothing:
        count = min(_LANDMARKS_AT_ONCE, most - found.shape[1], int((rest > 0).sum()))
        index = random.choice(n, count, replace=False, p=rest / rest.sum())
        left = columns(index) - found @ found[index].T
        values, vectors = np.linalg.eigh((left[index] + left[index].T) / 2)
        # Drop directions of similar landmarks, and those in which the kernel is not positive definite.
        kept = values > 1e-10 * max(values[-1], 0)
        if not kept.any():
            break
        found = np.concatenate([found, left @ (vectors[:, kept] / np.sqrt(values[kept]))], axis=1)
        rest = np.maximum(diagonal - np.einsum("ij,ij->i", found, found), 0)
        rest[index] = 0
    found -= found.mean(0)
    if found.shape[1] <= components:
        return found
    _, axes = np.linalg.eigh(found.T @ found)
    leading: Array = found @ axes[:, ::-1][:, :components]
    return leading
