"""Runs on rows that are never held: tables, folders of them, and .npy files, read as they are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.app.runs import folder
from pollux.app.runs.assignments import assignments, row_numbers, writer
from pollux.app.runs.data import about_rows, check_nameable, classes_of, identifiers_of, scores, without_gaps
from pollux.app.runs.settings import Settings
from pollux.data.chunks import FileChunks
from pollux.data.columns import Choices
from pollux.data.encoding import Encoding, TableEncoding
from pollux.data.shuffling import WINDOW_BYTES
from pollux.data.sources import open_data
from pollux.data.survey import learn_encoding
from pollux.data.table_files import TableFiles
from pollux.errors import InputError

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering
    from pollux.data.streams import Stream
    from pollux.ranks import Ranks

# Encoded rows that take more memory than this are not held.
_MOST_BYTES = 1_000_000_000
_SCORED_ROWS = 1_000_000

Counting = Callable[[int, int], None]


def is_to_be_streamed(settings: Settings) -> bool:
    """Whether rows are read as they are needed: if they can be, and it was asked for or they would take much memory."""
    path = Path(settings.data)
    if settings.stream == "no" or not path.exists():
        return False
    if settings.stream == "yes":
        return True
    if path.suffix.lower() == ".npy":
        try:
            return 4 * int(np.load(path, mmap_mode="r", allow_pickle=False).size) > _MOST_BYTES
        except (ValueError, OSError, EOFError):
            # What is wrong with it is said by whoever reads it.
            return False
    source = open_data(path, settings.reading)
    return isinstance(source, TableFiles) and source.size_in_memory() > _MOST_BYTES


@dataclass(frozen=True)
class StreamedRows:
    """The rows of a run: a stream of them, encoded."""

    settings: Settings
    stream: Stream
    preprocessing: Encoding
    dropped: int

    def __len__(self) -> int:
        return len(self.stream)

    @property
    def samples(self) -> Stream:
        return self.stream

    def about(self) -> list[str]:
        lines = about_rows(
            len(self), self.stream.shape, self.preprocessing, self.dropped, scaling=self.settings.scaling
        )
        return [f"{lines[0]}; read as they are needed", *lines[1:]]

    def outdated(self) -> tuple[str, ...]:
        return (folder.REPORT, folder.CLUSTERS)

    def write(self, place: Path, clustering: GeminiClustering) -> dict[str, Any]:
        """Write the model and the cluster of each row, and return what the summary says of the rows."""
        clustering.save(place / folder.MODEL)
        tally = _Tally(clustering.n_clusters, max(1, len(self) // _SCORED_ROWS))
        with writer(place / folder.STREAMED_CLUSTERS) as write:
            self._predict(clustering, tally, write)
        return {
            "rows": len(self),
            "rows_dropped": self.dropped,
            "streamed": True,
            "fingerprint": self.stream.fingerprint(),
            **tally.summary(clustering.n_clusters_),
        }

    def _predict(self, clustering: GeminiClustering, tally: _Tally, write: Callable[[dict[str, Any]], None]) -> None:
        beside = [*self.preprocessing.identifiers, *filter(None, [self.settings.label])]
        source = open_data(self.settings.data, self.settings.reading)
        for whole in source.stream(self.preprocessing, beside):
            part, kept = without_gaps(whole, self.preprocessing)
            if not len(part):
                continue
            probabilities = clustering.fitted_.probabilities(self.preprocessing.encode(part.rows, Counter()))
            identifiers = identifiers_of(part, self.preprocessing)
            write(assignments(part, row_numbers(part, kept), probabilities, identifiers))
            tally.add(probabilities, classes_of(part, self.settings.label))


class _Tally:
    """What the summary says of rows, gathered from parts of them; scores are those of every so-manieth row."""

    def __init__(self, n_clusters: int, stride: int) -> None:
        self._rows = np.zeros(n_clusters, dtype=np.int64)
        self._confidence = np.zeros(n_clusters)
        self._entropy = 0.0
        self._stride = stride
        self._classes: list[NDArray[np.str_]] = []
        self._labels: list[NDArray[np.int64]] = []

    def add(self, probabilities: NDArray[Any], classes: NDArray[np.str_] | None) -> None:
        from pollux.metrics import conditional_entropy

        labels = probabilities.argmax(1)
        self._rows += np.bincount(labels, minlength=len(self._rows))
        self._confidence += np.bincount(labels, probabilities.max(1), minlength=len(self._rows))
        self._entropy += conditional_entropy(probabilities) * len(probabilities)
        if classes is not None:
            self._classes.append(classes[:: self._stride])
            self._labels.append(labels[:: self._stride])

    def summary(self, n_clusters: int) -> dict[str, Any]:
        clusters = [
            {"cluster": k, "rows": int(self._rows[k]), "confidence": float(self._confidence[k] / self._rows[k])}
            for k in range(n_clusters)
            if self._rows[k]
        ]
        return {
            "clusters": clusters,
            "entropy": self._entropy / max(1, int(self._rows.sum())),
            "scores": scores(np.concatenate(self._classes), np.concatenate(self._labels)) if self._classes else None,
        }


def open_rows(settings: Settings, ranks: Ranks | None, counting: Counting | None = None) -> StreamedRows:
    """The rows of a file, and how they are read: decided by reading them once, which several processes share."""
    from pollux.data.streams import Stream

    if settings.model == "free":
        raise InputError(
            "A free table has a place for each row: it cannot be streamed (--stream no, or another model)."
        )
    blocks = open_data(settings.data, settings.reading).blocks()
    if blocks.shape is not None:
        if settings.label or settings.id:
            raise InputError("An .npy file has no columns beside its rows: leave out --label and --id.")
        choices = replace(settings.choices, identifiers=())
    else:
        choices = settings.choices.among(blocks.names)
        _check_nameable(settings, choices)
    encoding, lengths = learn_encoding(blocks, choices, counting, ranks)
    dtype = "float64" if settings.dtype == "float64" else "float32"
    chunks = FileChunks(blocks, encoding=encoding, dtype=dtype, lengths=lengths)
    stream = Stream(chunks, encoding, WINDOW_BYTES, settings.data)
    return StreamedRows(settings, stream, encoding, int(blocks.lengths.sum()) - len(stream))


def _check_nameable(settings: Settings, choices: Choices) -> None:
    """Raise an InputError where an identifier or a label is not there, or cannot be one; the first rows tell."""
    names = [*choices.identifiers, *([settings.label] if settings.label else [])]
    if names:
        first = next(open_data(settings.data, settings.reading).stream(TableEncoding(()), names))
        check_nameable(first, names)
