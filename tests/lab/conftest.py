"""Toy experiments and few images, in place of those that take hours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiment_records import toy
from pollux.lab import grid
from pollux.lab.datasets import ImageSet
from pollux.lab.grid import Limits, Task, attempt
from pollux.lab.paper import EXPERIMENTS, cifar10, mnist, reproduction
from pollux.lab.paper.experiment import Experiment


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs are done in this process; the numbers of workers that were asked for."""
    asked: list[int] = []

    def results(tasks: Sequence[Task], folder: Path, limits: Limits, display: Any) -> Iterator[Any]:
        asked.append(limits.jobs)
        for task in tasks:
            display.began(task)

            def send(message: Any, task: Task = task) -> None:
                if not isinstance(message, float):
                    display.epoch(task, message)

            yield task, attempt(task, folder, limits, send)

    monkeypatch.setattr(grid, "_results", results)
    return asked


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch, jobs: list[int]) -> Callable[..., Experiment]:
    def put(**changed: Any) -> Experiment:
        monkeypatch.setitem(EXPERIMENTS, "toy", toy(**changed))
        return EXPERIMENTS["toy"]

    return put


def images(name: str) -> ImageSet:
    """A few images of noise, which are of the right shapes."""
    shape = {"mnist": (28, 28), "cifar10": (32, 32, 3)}[name]
    random = np.random.default_rng(0)
    parts = [random.integers(0, 256, (n, *shape), dtype=np.uint8) for n in (60, 30)]
    classes = [np.arange(n) % 10 for n in (60, 30)]
    return ImageSet(name, parts[0], classes[0], parts[1], classes[1], tuple("0123456789"))


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    cached = (mnist.pictures, cifar10.pixels, cifar10.pictures, cifar10.features)
    for module in (mnist, cifar10, reproduction):
        monkeypatch.setattr(module, "load_images", images)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()
