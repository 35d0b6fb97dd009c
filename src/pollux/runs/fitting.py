"""``pollux fit``: from a file to the folder of a run."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.atomic import write_text
from pollux.errors import InputError, did_you_mean
from pollux.files import Part, open_data
from pollux.preprocessing import Choices, Preprocessing, as_text, plan_array, plan_table, split_names
from pollux.runs import folder
from pollux.runs.assignments import assignments, row_numbers, writer
from pollux.runs.settings import Settings, with_path

if TYPE_CHECKING:
    from pollux.estimators import GeminiClustering
    from pollux.training import Interruptible


_MOST_CLASSES = 1_000


@dataclass(frozen=True)
class Data:
    """Rows that are complete, their numbers in the file, and how to read them."""

    part: Part
    numbers: NDArray[np.int64]
    preprocessing: Preprocessing
    dropped: int


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
    clustering = _clustering(settings, len(data.numbers))
    clock.lap("importing")
    for line in about(data):
        tell(line)
    X = data.preprocessing.encode(data.part.rows)
    clock.lap("encoding")
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
    """Write what a training has led to into the folder of its run."""
    clustering.preprocessing_ = None
    probabilities = clustering.probabilities_ if settings.model == "free" else clustering.predict_proba(X)
    clustering.preprocessing_ = data.preprocessing
    summary = _summary(settings, data, clustering, probabilities, trained)
    summary["fingerprint"] = fingerprint(X)
    if (place / folder.REPORT).exists():
        summary["notes"].append(f"{folder.REPORT} showed an older model and was removed: make it again, pollux report.")
    with folder.all_together(place) as new:
        _write(new, settings, data, clustering, probabilities)
        clock.lap("writing")
        summary["seconds"] = clock.laps
        write_text(new / folder.SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
        (place / folder.REPORT).unlink(missing_ok=True)
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


def fingerprint(X: NDArray[np.float32]) -> str:
    """Of the rows and their order."""
    return hashlib.sha256(np.ascontiguousarray(X).data).hexdigest()


@contextmanager
def at_most(threads: int) -> Iterator[None]:
    """No more threads than these; 0 leaves them alone."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(min(threads, before) or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def heeded_interrupts() -> Iterator[Interruptible]:
    # Imported late, because it brings torch.
    from pollux.runs.interrupts import heeded
    from pollux.training import Interruptible

    interruptible = Interruptible()
    with heeded(interruptible):
        yield interruptible


def read(settings: Settings) -> Data:
    """The rows of the data file, and the columns of it that are to be read."""
    source = open_data(settings.data, settings.reading)
    part = source.read()
    choices = replace(settings.choices, identifiers=split_names(settings.id, part.names))
    _check_names(part, choices)
    preprocessing = _plan(part, choices)
    numbers, dropped = row_numbers(part, None), 0
    if settings.missing == "drop":
        kept = preprocessing.complete(part.rows)
        if not kept.any():
            raise InputError("Each row lacks a value, so dropping them leaves nothing: use --missing mean.")
        if not kept.all():
            numbers, dropped, part = row_numbers(part, kept), int((~kept).sum()), part.kept(kept)
            # Means, and which columns vary, are those of the rows that remain.
            preprocessing = _plan(part, choices)
    part = source.as_written(part, preprocessing.identifiers)
    if len(part) < 2:
        raise InputError(f"{settings.data} has {len(part)} row to cluster; there must be at least 2.")
    return Data(part, numbers, preprocessing, dropped)


def _plan(part: Part, choices: Choices) -> Preprocessing:
    if isinstance(part.rows, np.ndarray):
        return plan_array(part.rows, choices, part.feature_names)
    return plan_table(part.rows, choices)


def _check_names(part: Part, choices: Choices) -> None:
    """Raise an InputError where the label or an identifier is not a column, or not one that can be written."""
    for name in (*choices.identifiers, *([choices.label] if choices.label else [])):
        part.column(name)
        kind = str(getattr(part.written(name), "type", ""))
        if kind.startswith(("list", "large_list", "fixed_size", "struct", "map", "binary", "large_binary")):
            raise InputError(f"Column {name!r} holds values of type {kind}, which cannot name rows or classes.")


def classes_of(part: Part, label: str) -> NDArray[np.str_] | None:
    """Known classes (n,) as text, "" where there is none."""
    if not label:
        return None
    values = part.column(label)
    if label not in part.beside:
        values = as_text(part.written(label)).to_pylist()
    classes = np.array(["" if value is None or value != value else str(value) for value in values])
    if len(set(classes)) > _MOST_CLASSES:
        raise InputError(f"Column {label!r} has more than {_MOST_CLASSES:,} different values: these are no classes.")
    return classes


def _clustering(settings: Settings, n: int) -> GeminiClustering:
    """The estimator of the settings, checked."""
    from pollux.estimators import GeminiClustering
    from pollux.parameters import check_parameters

    if n < settings.clusters:
        raise InputError(f"There are {n} rows for {settings.clusters} clusters: ask for at most {n} (--clusters).")
    clustering = GeminiClustering(
        settings.clusters,
        model=settings.model,
        hidden=settings.hidden,
        objective=settings.objective,
        max_epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        n_init=settings.starts(n),
        patience=settings.patience or None,
        penalties=_penalties(settings.penalty),
        random_state=settings.seed,
        device=settings.device,
    )
    try:
        _check_names_of_parts(settings)
        check_parameters(clustering.get_params(deep=False))
        clustering.geometry = _geometry(settings, clustering._objective().needs)
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from error
    return clustering


def _check_names_of_parts(settings: Settings) -> None:
    from pollux.models import MODELS
    from pollux.objectives import GEMINIS

    valid = {"model": tuple(MODELS), "objective": ("mi", *GEMINIS)}
    for option, names in valid.items():
        name = getattr(settings, option)
        # What is refused for a reason of its own, as chi2_ovo, is told that reason elsewhere.
        if name not in names and name != "chi2_ovo":
            alike = did_you_mean(name, names)
            raise InputError(f"Unknown {option} {name!r}.{alike} Valid names: {', '.join(names)}.")


def _penalties(texts: Sequence[str]) -> dict[Any, float]:
    """{"vat": 1.0} from "vat=1.0", or "vat" alone."""
    penalties: dict[Any, float] = {}
    for text in texts:
        name, _, weight = text.partition("=")
        try:
            penalties[name] = float(weight or 1.0)
        except ValueError as error:
            raise InputError(f"A penalty is a name and a weight, such as vat=1.0; not {text!r}.") from error
    return penalties


def _geometry(settings: Settings, needs: Any) -> Any:
    """A named geometry, as "rbf", or with parameters, "rbf:gamma=0.5"."""
    from pollux.geometry import DISTANCES, KERNELS, resolve

    name, _, rest = settings.geometry.partition(":")
    if needs is None:
        if settings.geometry != "auto":
            raise InputError("The objective compares predictions only: it needs no --geometry, so leave it out.")
        return "auto"
    kernels, distances = ("auto", *KERNELS), ("auto", *DISTANCES, "shortest_path")
    valid, others = (kernels, distances) if needs == "kernel" else (distances, kernels)
    if name not in valid:
        is_other = f" {name} is a {'distance' if needs == 'kernel' else 'kernel'}."
        hint = is_other if name in others else did_you_mean(name, valid)
        raise InputError(
            f"{settings.objective} needs a {needs}: {', '.join(valid)}; not {name!r}.{hint} "
            f"Kernels go with mmd objectives, distances with wasserstein."
        )
    parameters = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        try:
            parameters[key] = json.loads(value)
        except ValueError:
            parameters[key] = None
        if not isinstance(parameters[key], int | float):
            raise InputError(f"Parameters of a geometry are numbers, as in rbf:gamma=0.5; {item!r} is not one.")
    geometry = resolve(name, needs, **parameters)
    return geometry if parameters else name


def _train(
    clustering: GeminiClustering, X: NDArray[np.float32], interruptible: Interruptible, show_progress: bool
) -> Trained:
    from pollux.runs.interrupts import NothingLearned
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


def identifiers_of(part: Part, preprocessing: Preprocessing) -> list[str]:
    """The columns that tell rows apart: identifiers of a table, names of images."""
    return [*preprocessing.identifiers, *(["file"] if "file" in part.beside else [])]


def about(data: Data) -> list[str]:
    """What was read, for people."""
    preprocessing = data.preprocessing
    names = preprocessing.feature_names
    what = f"{len(names)} features" if names else "images of " + "×".join(map(str, data.part.rows.shape[1:]))
    lines = [f"{len(data.numbers):,} rows, {what}"]
    if names:
        lines[0] += ": " + ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    if len(preprocessing.left_out) > 8:
        lines.append(f"left out {len(preprocessing.left_out)} columns, of which summary.json tells")
    else:
        lines += [f"left out {name}: {reason}" for name, reason in preprocessing.left_out.items()]
    if data.dropped:
        lines.append(f"left out {data.dropped:,} rows that lack values")
    return lines
