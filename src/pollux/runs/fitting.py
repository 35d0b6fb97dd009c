"""``pollux fit``: from a file to the folder of a run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.atomic import write_text
from pollux.errors import InputError, NothingLearned
from pollux.runs import folder
from pollux.runs.assignments import assignments, writer
from pollux.runs.data import Data, about, classes_of, fingerprint, identifiers_of, read
from pollux.runs.estimator import clustering_of
from pollux.runs.settings import Settings, with_path

if TYPE_CHECKING:
    from pollux.estimators import GeminiClustering
    from pollux.training import Interruptible


@dataclass(frozen=True)
class Trained:
    """Whether Ctrl-C ended the training, and what the user should know of it."""

    interrupted: bool
    notes: list[str]
    resumed_after: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """What a run has found, and where it is."""

    folder: Path
    summary: dict[str, Any]


def fit(
    settings: Settings,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    show_progress: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Cluster a file and write the folder of the run; bad input is refused before anything is written.

    Parameters
    ----------
    settings : Settings
        What to do.
    out : path, optional
        The folder; without it a new one below ``runs``.
    overwrite : bool
        Whether the folder may hold an older run.
    show_progress : bool
        Whether to show a live line on standard error.
    tell : callable
        Called with what the user is told before training.
    """
    clock = Clock()
    settings = with_path(settings)
    if out is not None:
        folder.check_free(out, overwrite)
    data = read(settings)
    clock.lap("reading")
    clustering = clustering_of(settings, len(data.numbers))
    clock.lap("importing")
    for line in about(data):
        tell(line)
    X = data.preprocessing.encode(data.part.rows)
    clock.lap("encoding")
    from pollux.threads import at_most

    with folder.made(out, settings.data) as place, heeded_interrupts() as interruptible:
        with at_most(settings.threads):
            trained = _train(clustering, X, interruptible, show_progress)
        clock.lap("training")
        return conclude(place, settings, data, X, clustering, trained, clock)


def conclude(
    place: Path,
    settings: Settings,
    data: Data,
    X: NDArray[np.float32],
    clustering: GeminiClustering,
    trained: Trained,
    clock: Clock,
) -> Outcome:
    """Write what a training on X, the encoded rows, has led to into the folder of its run."""
    probabilities = clustering.probabilities_ if settings.model == "free" else clustering.predict_proba(X)
    clustering.preprocessing_ = data.preprocessing
    summary = _summary(settings, data, clustering, probabilities, trained)
    summary["fingerprint"] = fingerprint(X)
    if (place / folder.REPORT).exists():
        summary["notes"].append(f"{folder.REPORT} showed an older model and was removed: make it again, pollux report.")
    with folder.all_together(place, folder.REPORT) as new:
        _write(new, settings, data, clustering, probabilities)
        clock.lap("writing")
        summary["seconds"] = clock.laps
        write_text(new / folder.SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return Outcome(place, summary)


class Clock:
    """Seconds of each part of the work."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        """What was done since the last call was this."""
        now = perf_counter()
        self.laps[name], self._last = now - self._last, now


@contextmanager
def heeded_interrupts() -> Iterator[Interruptible]:
    # Imported late, because it brings torch.
    from pollux.runs.interrupts import heeded
    from pollux.training import Interruptible

    interruptible = Interruptible()
    with heeded(interruptible):
        yield interruptible


def _train(
    clustering: GeminiClustering, X: NDArray[np.float32], interruptible: Interruptible, show_progress: bool
) -> Trained:
    from pollux.training import ProgressBar

    clustering.callbacks = [interruptible, *([ProgressBar()] if show_progress else [])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            clustering.fit(X)
        except (ValueError, TypeError) as error:
            raise InputError(str(error)) from error
    clustering.callbacks = ()
    if interruptible.interrupted and not clustering.n_iter_:
        raise NothingLearned
    return Trained(interruptible.interrupted, in_words(caught))


def in_words(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Warnings of a training, each once, in the words of the command line."""
    from pollux.fitting import CollapseWarning

    notes = [COLLAPSED if warning.category is CollapseWarning else str(warning.message) for warning in caught]
    return list(dict.fromkeys(notes))


COLLAPSED = (
    "Everything fell into one cluster. Try --objective mmd_ovo, more --restarts or a smaller --learning-rate; or the "
    "data hold no clusters that this model and geometry can see."
)


def _summary(
    settings: Settings, data: Data, clustering: GeminiClustering, probabilities: NDArray[Any], trained: Trained
) -> dict[str, Any]:
    from pollux.metrics import conditional_entropy

    labels = clustering.labels_
    confidence = probabilities.max(1)
    classes = classes_of(data.part, settings.label)
    clusters = [
        {"cluster": k, "rows": int((labels == k).sum()), "confidence": float(confidence[labels == k].mean())}
        for k in range(clustering.n_clusters_)
    ]
    return {
        "pollux": version("pollux"),
        "model": settings.model,
        "rows": len(labels),
        "rows_dropped": data.dropped,
        "features": int(np.prod(clustering._shape)),
        "identifiers": list(data.preprocessing.identifiers),
        "left_out": dict(data.preprocessing.left_out),
        "clusters": clusters,
        "clusters_found": clustering.n_clusters_,
        "clusters_asked_for": settings.clusters,
        "objective": clustering.objective_,
        "entropy": conditional_entropy(probabilities),
        "epochs": clustering.n_iter_,
        "interrupted": trained.interrupted,
        "resumed_after": trained.resumed_after,
        "notes": list(trained.notes),
        "scores": _scores(classes, labels),
        "command": settings.command(),
    }


def _scores(classes: NDArray[np.str_] | None, labels: NDArray[np.int64]) -> dict[str, float] | None:
    """Scores of the rows whose class is known, and how many these are."""
    from pollux.metrics import LABEL_METRICS

    if classes is None or not (known := classes != "").any():
        return None
    scores = {name: metric(classes[known], labels[known]) for name, metric in LABEL_METRICS.items()}
    return {**scores, "rows_with_a_class": int(known.sum())}


def _write(
    place: Path, settings: Settings, data: Data, clustering: GeminiClustering, probabilities: NDArray[Any]
) -> None:
    clustering.save(place / folder.MODEL)
    header = f"# Made by pollux {version('pollux')}. To repeat the run: pollux fit --config {folder.SETTINGS}\n"
    write_text(place / folder.SETTINGS, header + settings.to_toml())
    with writer(place / folder.CLUSTERS) as write:
        write(assignments(data.part, data.numbers, probabilities, identifiers_of(data.part, data.preprocessing)))
