"""Three clusters of few samples, and models of them that train quickly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

from flat_parameters import make_clustering
from pollux import GeminiClustering
from pollux.geometry import centres, mixtures
from pollux.training import starting

X, CLASSES = make_blobs(n_samples=(30, 25, 20), n_features=4, cluster_std=0.7, random_state=1)


def small(n_clusters: int = 3, **parameters: Any) -> GeminiClustering:
    return make_clustering(n_clusters, **{"model": "linear", "max_epochs": 6, "random_state": 0, **parameters})


def spread_of_rounding(train: Callable[[NDArray[Any]], Any], samples: NDArray[Any], roundings: int) -> float:
    """Bound how far ``roundings`` rounding errors may change the result of a training, on any machine.

    Adam divides gradients by their size, so a bound by ε alone does not hold: the amplification of a rounding error by
    the steps is measured, by a training on samples in which each number is perturbed by one rounding.
    """
    eps = np.finfo(samples.dtype).eps
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=samples.shape)
    exact, moved = (np.asarray(train(each)) for each in (samples, (samples * (1 + eps * signs)).astype(samples.dtype)))
    return float(roundings * max(np.abs(exact - moved).max(), eps * np.abs(exact).max()))


def same_weights(one: GeminiClustering, other: GeminiClustering) -> bool:
    states = one.module_.state_dict(), other.module_.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def quick_starts(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Make starts by mixtures, and by ``steps`` steps at labels, quicker and less good."""

    def k_means(*arguments: Any, **keywords: Any) -> NDArray[np.int64]:
        with monkeypatch.context() as patch:
            patch.setattr(centres, "RUNS", 2)
            return centres.k_means(*arguments, **keywords)

    monkeypatch.setattr(mixtures, "k_means", k_means)
    monkeypatch.setattr(starting, "_FEWEST_STEPS", steps)
