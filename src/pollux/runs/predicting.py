"""``pollux predict``: the clusters of new rows, of files of any length."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError
from pollux.files import Part, Reading, open_data
from pollux.preprocessing import Preprocessing, UnseenWarning, split_names
from pollux.runs import folder
from pollux.runs.assignments import assignments, row_numbers, writer
from pollux.runs.data import check_nameable, identifiers_of
from pollux.runs.settings import Settings

if TYPE_CHECKING:
    from pollux.estimators import GeminiClustering


@dataclass(frozen=True)
class Predicted:
    """How many rows were written, how many were left out, and values of text columns that training had not seen."""

    rows: int
    left_out: int
    unseen: dict[str, int]


def predict(
    run: str | Path,
    data: str | Path,
    out: str | Path | None = None,
    *,
    missing: str | None = None,
    identifiers: Sequence[str] = (),
    progress: Callable[[int], None] = lambda rows: None,
) -> Predicted:
    """Write the cluster, the probabilities and the entropy of each row, some rows at a time.

    Parameters
    ----------
    run : path
        The folder of a run, or a model file.
    data : path
        The rows; a table's columns are found by name, whatever their order.
    out : path, optional
        A CSV, TSV or Parquet file; standard output without it.
    missing : {"error", "mean", "drop"}, optional
        What to do with rows that lack values, if not what was done in training.
    identifiers : sequence of str
        Columns to write beside each row, besides those that training took for identifiers.
    progress : callable
        Told the number of rows done.
    """
    if out is not None:
        folder.keep_apart(Path(out), data, folder.model_of(run))
    clustering = load_for(run, missing)
    preprocessing = clustering.preprocessing_
    assert preprocessing is not None
    asked = list(identifiers)
    # Which of these are columns is known only once the file is open.
    wanted = [*preprocessing.identifiers, *asked, *(part for name in asked for part in name.split(","))]
    source = open_data(data, reading_of(run))
    unseen: Counter[str] = Counter()
    done = left_out = 0
    with writer(None if out is None else Path(out)) as write:
        for part, numbers in _complete(source.stream(preprocessing, wanted), preprocessing):
            left_out += len(numbers.left_out)
            unseen.update(preprocessing.unseen(part.rows))
            names = dict.fromkeys([*identifiers_of(part, preprocessing), *_there(asked, part)])
            probabilities = predict_quietly(clustering, part.rows) if len(part) else _none(clustering.n_clusters)
            write(assignments(part, numbers.kept, probabilities, list(names)))
            done += len(part)
            progress(done)
    return Predicted(done, left_out, dict(unseen))


@dataclass(frozen=True)
class Numbers:
    """Numbers in the file of rows that are kept, and of those that are not."""

    kept: NDArray[np.int64]
    left_out: NDArray[np.int64]


def _complete(parts: Iterator[Part], preprocessing: Preprocessing) -> Iterator[tuple[Part, Numbers]]:
    """Parts without the rows that lack values, where these are to be dropped."""
    for part in parts:
        kept = np.ones(len(part), dtype=bool)
        if preprocessing.missing == "drop":
            kept = preprocessing.complete(part.rows)
        numbers = Numbers(row_numbers(part, kept), row_numbers(part, ~kept))
        yield part if kept.all() else part.kept(kept), numbers


def load_for(run: str | Path, missing: str | None = None, *, with_free: bool = False) -> GeminiClustering:
    """The clustering of a run, with what to do about missing values."""
    from pollux.estimators import load

    path = folder.model_of(run)
    try:
        clustering = load(path)
    except ValueError as error:
        raise InputError(str(error)) from error
    if clustering.preprocessing_ is None:
        raise InputError(f"{path} was saved from Python, without the columns it reads: load it with pollux.load there.")
    if clustering.model == "free" and not with_free:
        raise InputError(
            "A free table of probabilities has no opinion on new rows. The clusters of its own rows are in "
            f"{folder.CLUSTERS}; for new ones train another model, such as --model linear."
        )
    if missing is not None:
        clustering.preprocessing_ = replace(clustering.preprocessing_, missing=missing)
    return clustering


def predict_quietly(clustering: GeminiClustering, rows: Any) -> NDArray[Any]:
    """p(y|x), without the warning of values not seen in training, which are counted elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenWarning)
        try:
            return clustering.predict_proba(rows)
        except ValueError as error:
            raise InputError(str(error)) from error


def reading_of(run: str | Path) -> Reading:
    """How to read files for a run: as its own data were, but for what each file says itself."""
    settings = folder.settings_of(run) if Path(run).is_dir() else None
    return (settings or Settings()).reading


def _there(asked: Sequence[str], part: Part) -> tuple[str, ...]:
    names = split_names(asked, part.names)
    check_nameable(part, names)
    return names


def _none(n_clusters: int) -> NDArray[Any]:
    return np.empty((0, n_clusters), dtype=np.float32)
