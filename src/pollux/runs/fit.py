"""``pollux fit``: from a file to the folder of a run."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.atomic import write_text
from pollux.errors import InputError
from pollux.files import Part, open_data
from pollux.preprocessing import Preprocessing, plan_array, plan_table, split_names
from pollux.runs import folder
from pollux.runs.assignments import assignments, row_numbers, writer
from pollux.runs.settings import Settings, with_path

if TYPE_CHECKING:
    from pollux.estimators import GeminiClustering

NOTHING_LEARNED = "Stopped before the first epoch had ended: there was nothing to keep, and nothing was written."


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
    start = perf_counter()
    settings = with_path(settings)
    place = folder.claim(out, settings.data, overwrite)
    data = read(settings)
    clustering = _clustering(settings, len(data.numbers))
    for line in about(data):
        tell(line)
    X = data.preprocessing.encode(data.part.rows)
    is_new = not place.exists()
    folder.make(place)
    before = perf_counter()
    try:
        trained = _train(clustering, X, show_progress)
        seconds = {"reading": before - start, "training": perf_counter() - before}
        return conclude(place, settings, data, X, clustering, trained, seconds)
    except BaseException:
        if is_new:
            shutil.rmtree(place, ignore_errors=True)
        raise


def conclude(
    place: Path,
    settings: Settings,
    data: Data,
    X: NDArray[np.float32],
    clustering: GeminiClustering,
    trained: Trained,
    seconds: dict[str, float],
) -> Outcome:
    """Write what a training has led to into the folder of its run."""
    before = perf_counter()
    clustering.preprocessing_ = None
    probabilities = clustering.probabilities_ if settings.model == "free" else clustering.predict_proba(X)
    clustering.preprocessing_ = data.preprocessing
    summary = _summary(settings, data, clustering, probabilities, trained)
    # That of an older run in this folder would no longer be true.
    (place / folder.REPORT).unlink(missing_ok=True)
    _write(place, settings, data, clustering, probabilities)
    summary["seconds"] = {**seconds, "writing": perf_counter() - before}
    write_text(place / folder.SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return Outcome(place, summary)


def read(settings: Settings) -> Data:
    """The rows of the data file, and the columns of it that are to be read."""
    part = open_data(settings.data, settings.reading).read()
    choices = replace(settings.choices, identifiers=split_names(settings.id, part.names))
    for name in (*choices.identifiers, *([settings.label] if settings.label else [])):
        part.column(name)
    is_array = isinstance(part.rows, np.ndarray)
    plan: Callable[..., Preprocessing] = plan_array if is_array else plan_table
    preprocessing = plan(part.rows, choices)
    numbers, dropped = row_numbers(part, None), 0
    if settings.missing == "drop":
        kept = preprocessing.complete(part.rows)
        if not kept.any():
            raise InputError("Each row lacks a value, so dropping them leaves nothing: use --missing mean.")
        if not kept.all():
            numbers, dropped, part = row_numbers(part, kept), int((~kept).sum()), part.kept(kept)
            # Means, and which columns vary, are those of the rows that remain.
            preprocessing = plan(part.rows, choices)
    if len(part) < 2:
        raise InputError(f"{settings.data} has {len(part)} row to cluster; there must be at least 2.")
    return Data(part, numbers, preprocessing, dropped)


def classes_of(part: Part, label: str) -> NDArray[np.str_] | None:
    """Known classes (n,) as text; "missing" where there is none."""
    if not label:
        return None
    values = part.column(label)
    if values.dtype.kind == "f" and np.all(np.isnan(values) | (values == np.round(values))):
        # Whole numbers with gaps among them were read as 1.0, 2.0, …
        return np.array(["missing" if np.isnan(value) else str(int(value)) for value in values])
    return np.array(["missing" if value is None or value != value else str(value) for value in values.tolist()])


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
        check_parameters(clustering.get_params(deep=False))
        needs = clustering._objective().needs
        clustering.geometry = _geometry(settings.geometry, needs)
        _check_model(settings.model)
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from error
    return clustering


def _check_model(model: str) -> None:
    from pollux.models import MODELS

    if model not in MODELS:
        raise InputError(f"Unknown model {model!r}. Valid names: {', '.join(MODELS)}.")


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


def _geometry(text: str, needs: Any) -> Any:
    """A named geometry, as "rbf", or with parameters, "rbf:gamma=0.5"."""
    from pollux.geometry import resolve

    name, _, rest = text.partition(":")
    if needs is None:
        if text != "auto":
            raise InputError("The objective compares predictions only: it needs no --geometry, so leave it out.")
        return "auto"
    parameters = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        try:
            parameters[key] = json.loads(value)
        except ValueError as error:
            raise InputError(
                f"Parameters of a geometry are numbers, as in rbf:gamma=0.5; {item!r} is not one."
            ) from error
    geometry = resolve(name, needs, **parameters)
    return geometry if parameters else name


def _train(clustering: GeminiClustering, X: NDArray[np.float32], show_progress: bool) -> Trained:
    from pollux.training import Interruptible, ProgressBar

    interruptible = Interruptible()
    clustering.callbacks = [interruptible, *([ProgressBar()] if show_progress else [])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            clustering.fit(X)
        except (ValueError, TypeError) as error:
            raise InputError(str(error)) from error
    clustering.callbacks = ()
    if interruptible.interrupted and not clustering.n_iter_:
        raise KeyboardInterrupt
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
    from pollux.metrics import LABEL_METRICS, conditional_entropy

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
        "notes": trained.notes,
        "scores": None
        if classes is None
        else {name: metric(classes, labels) for name, metric in LABEL_METRICS.items()},
        "command": settings.command(),
    }


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
