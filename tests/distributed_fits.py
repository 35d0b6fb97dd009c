"""Fits on several processes; imported by these processes, so without pytest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from flat_parameters import make_clustering
from pollux import GeminiClustering
from pollux.data.rows import as_rows
from pollux.data.shuffling import BatchSizes, shards, shuffled
from pollux.data.streams import Stream, open_stream
from pollux.geometry import Geometry, Kind
from pollux.geometry.affinity import Block
from pollux.geometry.spectral import block_of
from pollux.ranks import Ranks
from pollux.training import Batch, Batches, Checkpoints
from pollux.training.problem import StreamProblem

N, D, K = 43, 3, 4


def rows(n: int = N) -> NDArray[np.float64]:
    """Return four blobs, so far apart that no step depends on the last digits."""
    random = np.random.default_rng(0)
    centres = 3 * random.normal(size=(K, D))
    found: NDArray[np.float64] = centres[random.integers(K, size=n)] + random.normal(size=(n, D))
    return found


def estimator(**options: Any) -> GeminiClustering:
    # Batches of 11, 11, 11 and 10 rows: twenty steps in five epochs.
    usual = {"hidden": (6,), "dtype": "float64", "batch_size": 11, "max_epochs": 5, "random_state": 3}
    return make_clustering(K, **{**usual, **options})


class Normalised(nn.Module):
    """A network with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(D, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, K))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(inputs)
        return logits


def learned(clustering: GeminiClustering) -> dict[str, Any]:
    """Return the results of a fit as arrays."""
    found = {name: value.numpy() for name, value in clustering.module_.state_dict().items()}
    found["history"] = np.array([clustering.history_[name] for name in ("objective", "clusters", "entropy")])
    return {**found, "objective": np.array(clustering.objective_), "order": clustering.fitted_.order.numpy()}


def fit_rows(ranks: Ranks | None, options: dict[str, Any], weighted: bool = False) -> dict[str, Any]:
    """Fit an array that all processes have."""
    if options.get("model") == "normalised":
        options = {**options, "model": Normalised()}
    X = rows()
    weight = np.random.default_rng(1).uniform(0.1, 2, size=N) if weighted else None
    fitted = estimator(**options).fit(X, sample_weight=weight)
    return {**learned(fitted), "labels": fitted.labels_}


@dataclass(frozen=True)
class Uneven(Geometry):
    """A kernel of all samples whose values differ between processes, as they may on different processors."""

    kind: Kind = "kernel"

    @property
    def gives_features(self) -> bool:
        return True

    def bind(self, X: Any) -> Block:
        samples = as_rows(X)[torch.arange(len(X))]
        return block_of(samples * (1 + dist.get_rank() if dist.is_initialized() else 1))


def fit_unevenly(ranks: Ranks | None) -> dict[str, Any]:
    """Fit with this geometry."""
    return fit_rows(ranks, {"objective": "mmd_ova", "geometry": Uneven()})


def fit_unevenly_with_different_rows(ranks: Ranks) -> None:
    estimator(geometry=Uneven()).fit(rows(N + ranks.rank))


def fit_stream(ranks: Ranks | None, path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Fit a file of which each process reads its own row groups."""
    fitted = estimator(**options).fit(open_stream(path, dtype="float64"))
    return {**learned(fitted), "labels": fitted.labels_}


def fit_loader(ranks: Ranks | None, options: dict[str, Any]) -> dict[str, Any]:
    """Fit a loader of each process's own rows."""
    X = torch.from_numpy(rows(42))
    own = X if ranks is None else X[ranks.rank :: ranks.size]
    return learned(estimator(**options).fit(DataLoader(TensorDataset(own), batch_size=7)))


def break_off(
    ranks: Ranks | None, folder: str, options: dict[str, Any], every: str = "3 steps", epochs: int = 3
) -> None:
    """Start a fit that is interrupted in an epoch, by default the third, and leaves checkpoints."""

    class BrokenError(Exception):
        pass

    def broken(epoch: Any) -> None:
        if epoch.number == epochs:
            raise BrokenError

    with contextlib.suppress(BrokenError):
        fit_rows(ranks, {**options, "checkpoint": Checkpoints(folder, every=every), "callbacks": [broken]})


def fit_in_two_parts(ranks: Ranks, folder: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an uninterrupted fit, and one that was interrupted and resumed from its checkpoint."""
    whole = fit_rows(ranks, options)
    break_off(ranks, folder, options)
    return whole, fit_rows(ranks, {**options, "checkpoint": Checkpoints(folder)})


class Together(Batches):
    """The batches of all processes as one, in a single process."""

    def __init__(self, problem: StreamProblem, stream: Stream, size: int, batch_size: int) -> None:
        self._problem, self._chunks = problem, stream.chunks.subdivided(size)
        self._own = shards(self._chunks.lengths, size)
        self.batch_size = batch_size
        lengths = [int(self._chunks.lengths[own].sum()) for own in self._own]
        n_batches = min(-(-sum(lengths) // batch_size), *lengths)
        self._sizes = [BatchSizes(length, n_batches) for length in lengths]

    def epoch(self, generator: torch.Generator | None = None, start: int = 0) -> Iterator[Batch]:
        seed = int(torch.randint(2**62, (), generator=generator))
        parts = [
            shuffled(self._chunks, sizes, seed, own=own) for own, sizes in zip(self._own, self._sizes, strict=True)
        ]
        for together in zip(*parts, strict=True):
            yield self._problem.batch(np.concatenate(together))

    def example(self, rows: int) -> Batch:
        return self._problem.batch(np.zeros((2, D)))

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Do nothing: there is no state."""


def seeds(ranks: Ranks) -> float:
    """Fit without a seed: all processes must draw the same one."""
    fitted = estimator(random_state=None, max_epochs=1).fit(rows())
    return float(next(fitted.module_.parameters()).sum())


def assess_in_the_first(ranks: Ranks) -> float:
    """Assess in the first process: the others need not wait."""
    clustering = estimator(max_epochs=1).fit(rows())
    return 1.0 if ranks.rank else float(clustering.assess(rows(), n_fits=2).confidence_.max())


def fit_with_different_data(ranks: Ranks) -> None:
    estimator().fit(rows() + ranks.rank)


def fit_with_different_affinities(ranks: Ranks) -> None:
    X = rows()
    estimator().fit(X, affinity=(1 + ranks.rank) * X @ X.T)
