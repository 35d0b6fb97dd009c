"""What the page of ``pollux report`` shows of a run, gathered from its folder and its data."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.app import run_folder
from pollux.app.predict import encoding_of, load_run
from pollux.app.run_data import (
    classes_of,
    describe_scaling,
    drop_incomplete,
    fingerprint,
    identifiers_of,
    reading_of,
)
from pollux.app.settings import Settings
from pollux.data.encoding import Encoding, UnseenWarning
from pollux.data.sources import Part, gather, open_data
from pollux.errors import InputError, option
from pollux.report import Findings, describe, describe_training

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering

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
    if not len(part):
        raise InputError(f"{file} has no rows to show.")
    # Rows that were streamed are known by their files, and only some of them are looked at here.
    is_known = "fingerprint" in summary and not summary.get("streamed")
    is_other = is_known and fingerprint(encoding.encode(part.rows, Counter())) != summary["fingerprint"]
    if is_other and clustering.fitted_.is_free:
        raise InputError("A free table knows only the rows it was trained on, in their order, and these are others.")
    points, axis_names = _points(axes, part, kept)
    other_data = data is not None or missing is not None
    try:
        with warnings.catch_warnings():
            # Predictions warn of such values; the page need not.
            warnings.simplefilter("ignore", UnseenWarning)
            return describe(
                clustering,
                part.rows,
                title=Path(file).name,
                classes=classes_of(part, _label(label, settings.label, part)),
                points=points,
                axes=axis_names,
                row_names=_row_names(part, encoding, numbers[kept], total),
                settings=_describe_settings(settings, clustering, summary),
                notes=_notes(encoding, summary, total, len(whole), len(part), is_other, other_data),
                command=settings.command() if settings.data else "",
            )
    except ValueError as error:
        raise InputError(str(error)) from error


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


def _points(
    axes: str | None, part: Part, kept: NDArray[np.bool_]
) -> tuple[NDArray[np.float64] | None, tuple[str, str]]:
    """Coordinates (n, 2) for the map and what they are; None for principal components."""
    coordinates = ("first coordinate", "second coordinate")
    if axes is None:
        return None, coordinates
    if axes.endswith(".npy"):
        rows = open_data(axes).read().rows
        if rows.shape != (len(kept), 2):
            raise InputError(f"{axes} has shape {rows.shape}; the map needs ({len(kept)}, 2).")
        return np.asarray(rows[kept], dtype=np.float64), coordinates
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


def _describe_settings(settings: Settings, clustering: GeminiClustering, summary: Mapping[str, Any]) -> dict[str, str]:
    described = {
        "Data": settings.data,
        **describe_training(clustering, summary.get("rows")),
        "Numbers": _scaling(settings, encoding_of(clustering)),
        "Missing values": settings.missing,
    }
    return {name: value for name, value in described.items() if value}


def _scaling(settings: Settings, encoding: Encoding) -> str:
    """What was done to numbers, unless it is the default."""
    if settings.scaling == "auto" and len(encoding.scales) > 1:
        return describe_scaling(encoding)
    return {"global": "divided by one number", "none": "as they are"}.get(settings.scaling, "")


def _notes(
    encoding: Encoding,
    summary: dict[str, Any],
    total: int,
    whole: int,
    shown: int,
    is_other: bool,
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
    elif not other_data and is_other:
        notes.append("The file has changed since the model was trained.")
    if summary.get("resumed_after"):
        stops = ", ".join(map(str, summary["resumed_after"]))
        notes.append(f"The training was resumed after epoch {stops}; the command below trains without that break.")
    if summary.get("interrupted"):
        notes.append("The training was interrupted before its end.")
    if other_data:
        notes.append("The rows shown here are not those that the model was trained on, or need not be.")
    return [*notes, *(str(note) for note in summary.get("notes", []))]
