"""What the page of ``pollux report`` shows of a run, gathered from its folder and its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.app import run_folder
from pollux.app.predict import encoding_of, load_run, probabilities_of
from pollux.app.run_data import (
    classes_of,
    describe_scaling,
    drop_incomplete,
    fingerprint,
    identifiers_of,
    reading_of,
)
from pollux.app.settings import Settings
from pollux.data.encoding import Category, Encoding, TableEncoding
from pollux.data.sources import Part, gather, open_data
from pollux.errors import InputError, option
from pollux.report import Findings, as_pictures, principal_map
from pollux.spec import flatten_params
from pollux.training.problem import resolve_batch_size

# Of files that were streamed, pages show a sample.
_MOST_ROWS, _SHOWN_ROWS = 200_000, 100_000


def gather_findings(
    run: str | Path,
    data: str | Path | None = None,
    *,
    label: str | None = None,
    axes: str | None = None,
    missing: str | None = None,
) -> Findings:
    """What the model of a run says of data: its own, or others.

    Parameters
    ----------
    run : path
        The folder of a run, or a model file.
    data : path, optional
        The rows, if not those of the run.
    label : str, optional
        The column of known classes, if not that of the run; "" for none.
    axes : str, optional
        The axes of the map: two columns, "a,b", or a .npy file (n, 2); else principal components.
    missing : {"error", "mean", "drop"}, optional
        What to do with rows that lack values, if not what was done in training.
    """
    settings = _settings_for(run, data)
    clustering = load_run(run, missing, with_free=True)
    encoding = encoding_of(clustering)
    file = settings.data if data is None else data
    beside = [*encoding.identifiers, *filter(None, [settings.label, label]), *(axes or "").split(",")]
    # As they are read for prediction: guessing types anew, from other rows, could find others.
    summary = run_folder.read_summary(run) if Path(run).is_dir() else {}
    parts = open_data(file, reading_of(settings)).stream(encoding, beside)
    whole, numbers, total = _shown(parts, summary if data is None else {})
    part, kept = drop_incomplete(whole, encoding)
    X = encoding.encode(part.rows, Counter())
    # Rows that were streamed are known by their files, and only some of them are looked at here.
    found = summary.get("fingerprint", "") if summary.get("streamed") else fingerprint(X)
    if not clustering.fitted_.is_free:
        probabilities = probabilities_of(clustering, X)
    elif len(clustering.labels_) == len(part) and summary.get("fingerprint", found) == found:
        probabilities = clustering.probabilities_
    else:
        raise InputError("A free table knows only the rows it was trained on, in their order, and these are others.")
    points, axis_names = _points(axes, X, part, kept)
    is_image = X.ndim == 4
    features, names = (None, []) if is_image else _features(encoding, part)
    return Findings(
        title=Path(file).name,
        probabilities=probabilities,
        points=points,
        axes=axis_names,
        features=features,
        feature_names=names,
        shares=encoding.shares,
        images=as_pictures(part.rows) if is_image else None,
        row_names=_row_names(part, encoding, numbers[kept], total),
        classes=classes_of(part, _label(label, settings.label, part)),
        history=clustering.history_,
        settings=_described_settings(settings, clustering, encoding, summary),
        notes=_notes(encoding, summary, total, len(whole), len(part), found, data is not None or missing is not None),
        command=settings.command() if settings.data else "",
    )


def _shown(parts: Iterable[Part], summary: Mapping[str, Any]) -> tuple[Part, NDArray[np.int64], int]:
    """The rows that a page shows, their numbers in the file, and how many the file has: all, or of very many some."""
    rows = summary.get("rows", 0) + summary.get("rows_dropped", 0)
    share = _SHOWN_ROWS / rows if rows > _MOST_ROWS and summary.get("streamed") else 1.0
    random, shown, numbers, total = np.random.default_rng(0), [], [], 0
    for part in parts:
        mask = random.random(len(part)) < share
        shown.append(part if share == 1 else part.kept(mask))
        numbers.append(total + np.flatnonzero(mask))
        total += len(part)
    return gather(shown), np.concatenate(numbers), total


def _settings_for(run: str | Path, data: str | Path | None) -> Settings:
    """The settings of a run, or the defaults for other data; an InputError without data."""
    run_folder.model_path(run)
    settings = run_folder.read_settings(run) if Path(run).is_dir() else None
    if data is None and settings is None:
        raise InputError(f"{run} does not say which data it was trained on: pass them, pollux report RUN DATA.")
    if data is None and settings is not None and not Path(settings.data).exists():
        raise InputError(f"{settings.data} is no longer there: say where the data are, pollux report RUN DATA.")
    return settings or Settings()


def _label(asked: str | None, own: str, part: Part) -> str:
    if asked is not None:
        return asked
    # Other data may come without the classes of those the run was trained on.
    return own if own in part.names else ""


def _features(encoding: Encoding, part: Part) -> tuple[NDArray[np.float64], list[str]]:
    """What the model reads, in its own units, and the names of it; of true and false, true is enough."""
    names = encoding.feature_names
    twins = set()
    if isinstance(encoding, TableEncoding):
        booleans = [column for column in encoding.columns if isinstance(column, Category) and column.boolean]
        twins = {f"{column.name}=false" for column in booleans if len(column.values) == 2}
    kept = [index for index, name in enumerate(names) if name not in twins]
    shown = [f"column {name}" if name.isdigit() else name for name in names]
    return encoding.raw(part.rows)[:, kept], [shown[index] for index in kept]


def _points(
    axes: str | None, X: NDArray[np.float32], part: Part, kept: NDArray[np.bool_]
) -> tuple[NDArray[Any], tuple[str, str]]:
    if axes is None:
        return principal_map(X.reshape(len(X), -1))
    if axes.endswith(".npy"):
        rows = open_data(axes).read().rows
        if rows.shape != (len(kept), 2):
            raise InputError(f"{axes} has shape {rows.shape}; the map needs ({len(kept)}, 2).")
        return np.asarray(rows[kept], dtype=np.float64), ("first coordinate", "second coordinate")
    names = axes.split(",")
    if len(names) != 2:
        raise InputError(f"The map has two axes: {option('map')} COLUMN,COLUMN or a .npy file, not {axes!r}.")
    if isinstance(part.rows, np.ndarray) and part.rows.ndim == 2 and all(name.isdigit() for name in names):
        width = part.rows.shape[1]
        if max(map(int, names)) >= width:
            raise InputError(f"There are columns 0 … {width - 1} for the map, not {axes!r}.")
        columns = [part.rows[:, int(name)] for name in names]
    else:
        columns = [part.column(name) for name in names]
    try:
        points = np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)
    except (TypeError, ValueError) as error:
        raise InputError(f"The columns of the map must hold numbers ({option('map', axes)}).") from error
    # Where a value is missing the point lies in the middle.
    return np.where(np.isfinite(points), points, np.nanmean(points, axis=0)), (names[0], names[1])


def _row_names(part: Part, encoding: Encoding, numbers: NDArray[np.int64], whole: int) -> list[str] | None:
    identifiers = [name for name in identifiers_of(part, encoding) if name in part.names]
    if identifiers:
        return [str(value) for value in part.column(identifiers[0])]
    return None if len(numbers) == whole else [f"row {number}" for number in numbers]


def _described_settings(
    settings: Settings, clustering: Any, encoding: Encoding, summary: Mapping[str, Any]
) -> dict[str, str]:
    parameters = flatten_params(clustering)
    network = " + ".join(map(str, parameters["hidden"])) if parameters["model"] == "mlp" else ""
    described = {
        "Data": settings.data,
        "Clusters, at most": str(parameters["n_clusters"]),
        "Objective": str(parameters["objective"]),
        "Geometry": _geometry(settings, clustering),
        "Model": f"{parameters['model']}, {network} hidden units" if network else str(parameters["model"]),
        "Normalised by": parameters["norm"] or "",
        "Numbers": _scaling(settings, encoding),
        "Principal components": str(parameters["n_components"] or ""),
        "Initialisation": "" if parameters["init"] == "auto" else str(parameters["init"]),
        "Epochs": f"{clustering.n_iter_}{'' if (most := parameters['max_epochs']) == 'auto' else f' of {most}'}",
        "Batch size": _batch_size(parameters["batch_size"], summary),
        "Learning rate": f"{parameters['learning_rate']:g}",
        "Schedule": "" if parameters["schedule"] == "constant" else str(parameters["schedule"]),
        "Restarts": str(parameters["n_init"]),
        "Epochs of all restarts": str(parameters["trial_epochs"] or ""),
        "Agreement of the restarts": "" if clustering.stability_ is None else f"{clustering.stability_:.2f}",
        "Penalties": ", ".join(f"{name}={weight:g}" for name, weight in (parameters["penalties"] or {}).items()),
        "Seed": str(parameters["random_state"]),
        "Missing values": settings.missing,
        "Objective reached": f"{clustering.objective_:.6g}",
    }
    return {name: value for name, value in described.items() if value}


def _batch_size(batch_size: Any, summary: Mapping[str, Any]) -> str:
    """Rows of a step of the training, whatever data the page shows."""
    if batch_size is None or batch_size == "auto":
        return f"{resolve_batch_size(batch_size, summary['rows']):,}" if "rows" in summary else str(batch_size or "all")
    return f"{batch_size:,}"


def _scaling(settings: Settings, encoding: Encoding) -> str:
    """What was done to numbers, unless it is the default."""
    if settings.scaling == "auto" and len(encoding.scales) > 1:
        return describe_scaling(encoding)
    return {"global": "divided by one number", "none": "as they are"}.get(settings.scaling, "")


def _geometry(settings: Settings, clustering: Any) -> str:
    """The kernel or distance, also where it is "auto"."""
    own = getattr(clustering.geometry_, "name", "")
    kind = getattr(clustering.geometry_, "kind", "")
    return f"{own if settings.geometry == 'auto' else settings.geometry} {kind}".strip() if own or kind else ""


def _notes(
    encoding: Encoding,
    summary: dict[str, Any],
    total: int,
    whole: int,
    shown: int,
    found: str,
    other_data: bool,
) -> list[str]:
    notes = [f"Column {name} was left out: {reason}." for name, reason in encoding.left_out.items()]
    if len(notes) > 12:
        notes = [*notes[:11], f"{len(notes) - 11} further columns were left out."]
    if whole < total:
        notes.append(f"The page shows {whole:,} rows, drawn at random from the {total:,} of the file.")
    if shown < whole:
        notes.append(f"{whole - shown:,} rows that lack values were left out.")
    rows = summary.get("rows", 0) + summary.get("rows_dropped", 0)
    if not other_data and rows and rows != total:
        notes.append(f"The file had {rows:,} rows when the model was trained, and has {total:,} now.")
    elif not other_data and summary.get("fingerprint", found) != found:
        notes.append("The file has changed since the model was trained.")
    if summary.get("resumed_after"):
        stops = ", ".join(map(str, summary["resumed_after"]))
        notes.append(f"The training was resumed after epoch {stops}; the command below trains without that break.")
    if summary.get("interrupted"):
        notes.append("The training was interrupted before its end.")
    if other_data:
        notes.append("The rows shown here are not those that the model was trained on, or need not be.")
    return [*notes, *(str(note) for note in summary.get("notes", []))]
