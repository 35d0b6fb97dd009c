"""``pollux predict``: the clusters of new rows, of files of any length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.app.runs import folder
from pollux.app.runs.assignments import assignments, row_numbers, writer
from pollux.app.runs.data import check_nameable, identifiers_of, without_gaps
from pollux.app.runs.settings import Settings
from pollux.data.columns import split_names
from pollux.data.encoding import Encoding
from pollux.data.sources import Part, Reading, open_data
from pollux.errors import InputError

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering


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
    clustering, preprocessing = apart(load_for(run, missing))
    asked = list(identifiers)
    # Which of these are columns is known only once the file is open.
    wanted = [*preprocessing.identifiers, *asked, *(part for name in asked for part in name.split(","))]
    source = open_data(data, reading_of(run))
    unseen: Counter[str] = Counter()
    done = left_out = 0
    with writer(None if out is None else Path(out)) as write:
        for whole in source.stream(preprocessing, wanted):
            part, kept = without_gaps(whole, preprocessing)
            names = dict.fromkeys([*identifiers_of(part, preprocessing), *_there(asked, part)])
            probabilities = probabilities_of(clustering, preprocessing.encode(part.rows, unseen))
            write(assignments(part, row_numbers(part, kept), probabilities, list(names)))
            left_out += len(whole) - len(part)
            done += len(part)
            progress(done)
    return Predicted(done, left_out, dict(unseen))


def load_for(run: str | Path, missing: str | None = None, *, with_free: bool = False) -> GeminiClustering:
    """The clustering of a run, with what to do about missing values."""
    from pollux.clustering import load

    path = folder.model_of(run)
    try:
        clustering = load(path)
    except ValueError as error:
        raise InputError(str(error)) from error
    if clustering.encoding_ is None:
        raise InputError(f"{path} was saved from Python, without the columns it reads: load it with pollux.load there.")
    if clustering.model == "free" and not with_free:
        raise InputError(
            "A free table of probabilities has no opinion on new rows. The clusters of its own rows are in "
            f"{folder.CLUSTERS}; for new ones train another model, such as --model linear."
        )
    if missing is not None:
        clustering.encoding_ = clustering.encoding_.with_missing(missing)
        clustering.fitted_ = replace(clustering.fitted_, encoding=clustering.encoding_)
    return clustering


def apart(clustering: GeminiClustering) -> tuple[GeminiClustering, Encoding]:
    """A clustering that reads encoded rows, and what encodes them: each is then done once."""
    assert clustering.encoding_ is not None
    return clustering, clustering.encoding_


def probabilities_of(clustering: GeminiClustering, X: NDArray[np.float32]) -> NDArray[Any]:
    """p(y|x) (n, K) of encoded rows, of which there may be none."""
    if not len(X):
        return np.empty((0, clustering.n_clusters), dtype=np.float32)
    try:
        return clustering.fitted_.probabilities(X)
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
