"""Methods that stand in for real ones, in a module that worker processes can import quickly."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from pollux.lab.grid import RunContext
from pollux.lab.quality.peers import Method
from pollux.training.callbacks import Epoch


def by_first_column(X: Any, n_clusters: int, seed: int, context: RunContext) -> Any:
    """Cluster into groups of about equal size along the first column; the seed only permutes their labels."""
    edges = np.quantile(X[:, 0], np.linspace(0, 1, n_clusters + 1)[1:-1])
    for callback in context.callbacks:
        callback(Epoch(1, 1, {"objective": 0.5, "clusters": n_clusters}))

    def predict(rows: Any) -> Any:
        return (np.searchsorted(edges, rows[:, 0]) + seed) % n_clusters

    return SimpleNamespace(labels_=predict(X), predict=predict)


def hanging(X: Any, n_clusters: int, seed: int, context: RunContext) -> Any:
    time.sleep(600)


def killed(X: Any, n_clusters: int, seed: int, context: RunContext) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def leaving(X: Any, n_clusters: int, seed: int, context: RunContext) -> Any:
    os._exit(3)


def broken(X: Any, n_clusters: int, seed: int, context: RunContext) -> Any:
    raise ValueError("out of [/range] ε")


GOOD = Method("good", "Good", by_first_column, predicts=True)
ONCE = Method("once", "Once", by_first_column, is_random=False)
HANGING = Method("hanging", "Hanging", hanging)
KILLED = Method("killed", "Killed", killed)
LEAVING = Method("leaving", "Leaving", leaving)
BROKEN = Method("broken", "Broken", broken)
