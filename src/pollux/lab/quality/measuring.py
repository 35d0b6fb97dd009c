"""One run: a method on a set, from the set as it is to scores of its labels."""

from __future__ import annotations

import importlib.metadata
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from pollux.lab.experiments import records
from pollux.lab.experiments.experiment import Record, Run
from pollux.lab.experiments.running import versions
from pollux.lab.quality.methods import Method
from pollux.lab.quality.preparing import densified, prepared_by
from pollux.lab.quality.sets import DataSet, Samples
from pollux.metrics import adjusted_rand_index, normalised_mutual_information
from pollux.threads import at_most
from pollux.training.callbacks import Callback

NAME = "quality"
NOISE = -1
"""The label of rows that HDBSCAN puts into no cluster."""


@dataclass(frozen=True)
class Task:
    """A method on a set with a seed."""

    data: DataSet
    method: Method
    seed: int

    @property
    def run(self) -> Run:
        """What identifies it in the records: another file, or another version of the method, is another run."""
        settings = {
            "set": self.data.name,
            "group": self.data.group,
            "method": self.method.name,
            "data": self.data.digest,
            "version": version_of(self.method),
        }
        return Run(NAME, settings, self.seed)

    def __str__(self) -> str:
        return f"{self.data.name}, {self.method.title}" + (f", seed {self.seed}" if self.method.is_random else "")


def version_of(method: Method) -> str:
    """The version of what a method comes with; nothing where it was not installed as a package."""
    try:
        return importlib.metadata.version(method.package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def measure(task: Task, threads: int, callbacks: Sequence[Callback] = ()) -> Record:
    """Do the run on so many threads; its record, as it will be read."""
    samples = task.data.load()
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(threads), at_most(threads):
        warnings.simplefilter("always")
        start = time.perf_counter()
        labels = labels_of(task.method, samples, task.data.classes, task.seed, callbacks)
        seconds = time.perf_counter() - start
    scores = {
        "adjusted_rand_index": adjusted_rand_index(samples.scored, labels),
        "normalised_mutual_information": normalised_mutual_information(samples.scored, labels),
        "clusters": len(np.setdiff1d(labels, [NOISE])),
    }
    told = sorted({f"{warning.category.__name__}: {warning.message}" for warning in caught})
    return recorded_as(task, scores, seconds, told)


def labels_of(
    method: Method, samples: Samples, n_clusters: int, seed: int, callbacks: Sequence[Callback] = ()
) -> NDArray[Any]:
    """The labels (n,) that a method gives: of the rows that it was fitted to, or of the test rows where there are."""
    X, X_test = samples.X, samples.X_test
    if not method.is_raw:
        prepare = prepared_by(X)
        X, X_test = prepare(X), None if X_test is None else prepare(X_test)
    if method.needs_dense:
        X = densified(X)
    fitted = method.fit(X, n_clusters, seed, callbacks)
    if X_test is not None:
        return np.asarray(fitted.predict(X_test))
    return np.asarray(fitted.labels_ if hasattr(fitted, "labels_") else fitted.predict(X))


def recorded_as(task: Task, outcome: dict[str, Any], seconds: float = 0.0, told: Sequence[str] = ()) -> Record:
    """The record of a run: its scores, or why there are none, and the size of the set."""
    size = {"rows": task.data.rows, "columns": task.data.columns, "classes": task.data.classes}
    found = versions()
    found[task.method.package] = version_of(task.method)
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    return records.as_read(Record(task.run, {**outcome, **size}, round(seconds, 3), found, told, finished))
