"""Runs on rows that are held in memory, as most are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.app.runs import folder
from pollux.app.runs.assignments import assignments, writer
from pollux.app.runs.data import Data, about_rows, classes_of, fingerprint, identifiers_of, read, scores
from pollux.app.runs.settings import Settings
from pollux.data.encoding import Encoding

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering


def read_rows(settings: Settings) -> HeldRows:
    """All rows of the data file."""
    return HeldRows(settings, read(settings))


@dataclass(frozen=True)
class HeldRows:
    """The rows of a run, in memory."""

    settings: Settings
    data: Data

    def __len__(self) -> int:
        return len(self.data.numbers)

    @property
    def preprocessing(self) -> Encoding:
        return self.data.preprocessing

    @cached_property
    def samples(self) -> NDArray[np.float32]:
        """The rows, encoded."""
        return self.data.preprocessing.encode(self.data.part.rows)

    def about(self) -> list[str]:
        data = self.data
        return about_rows(len(self), data.part.rows.shape[1:], data.preprocessing, data.dropped, self.settings.scaling)

    def outdated(self) -> tuple[str, ...]:
        return (folder.REPORT, folder.STREAMED_CLUSTERS)

    def write(self, place: Path, clustering: GeminiClustering) -> dict[str, Any]:
        """Write the model and the cluster of each row, and return what the summary says of the rows."""
        is_free = self.settings.model == "free"
        probabilities = clustering.probabilities_ if is_free else clustering.fitted_.probabilities(self.samples)
        clustering.fitted_ = replace(clustering.fitted_, encoding=self.preprocessing)
        _write(place, self.data, clustering, probabilities)
        return {"rows_dropped": self.data.dropped, **_of_rows(self, clustering, probabilities)}


def _of_rows(rows: HeldRows, clustering: GeminiClustering, probabilities: NDArray[Any]) -> dict[str, Any]:
    from pollux.metrics import conditional_entropy

    labels, confidence = clustering.labels_, probabilities.max(1)
    classes = classes_of(rows.data.part, rows.settings.label)
    return {
        "rows": len(labels),
        "clusters": [
            {"cluster": k, "rows": int((labels == k).sum()), "confidence": float(confidence[labels == k].mean())}
            for k in range(clustering.n_clusters_)
        ],
        "entropy": conditional_entropy(probabilities),
        "scores": None if classes is None else scores(classes, labels),
        "fingerprint": fingerprint(rows.samples),
    }


def _write(place: Path, data: Data, clustering: GeminiClustering, probabilities: NDArray[Any]) -> None:
    clustering.save(place / folder.MODEL)
    with writer(place / folder.CLUSTERS) as write:
        write(assignments(data.part, data.numbers, probabilities, identifiers_of(data.part, data.preprocessing)))
