"""The rows of a run, and which columns of them are read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pollux.app.runs.assignments import row_numbers
from pollux.app.runs.settings import Settings
from pollux.data.arrow import as_text
from pollux.data.columns import split_names
from pollux.data.encoding import Encoding
from pollux.data.sources import InMemory, Part, open_data
from pollux.data.survey import learn_encoding
from pollux.errors import InputError

_MOST_CLASSES = 1_000


@dataclass(frozen=True)
class Data:
    """Rows that are complete, their numbers in the file, and how to read them."""

    part: Part
    numbers: NDArray[np.int64]
    preprocessing: Encoding
    dropped: int


def read(settings: Settings) -> Data:
    """The rows of the data file, and the columns of it that are to be read."""
    source = open_data(settings.data, settings.reading)
    part = source.read()
    choices = replace(settings.choices, identifiers=split_names(settings.id, part.names))
    check_nameable(part, [*choices.identifiers, *([settings.label] if settings.label else [])])
    # Means, and which columns vary, are those of the rows that remain.
    preprocessing, _ = learn_encoding(InMemory(part.rows, part.feature_names, source.path), choices)
    part, kept = without_gaps(part, preprocessing)
    numbers = row_numbers(part, kept)
    part = source.as_written(part, preprocessing.identifiers, numbers)
    if len(part) < 2:
        raise InputError(f"{settings.data} has {len(part)} row to cluster; there must be at least 2.")
    return Data(part, numbers, preprocessing, int((~kept).sum()))


def without_gaps(part: Part, preprocessing: Encoding) -> tuple[Part, NDArray[np.bool_]]:
    """The rows to be read, and which of the part they are: those that lack values may have to be dropped."""
    kept = np.ones(len(part), dtype=bool)
    if preprocessing.missing == "drop":
        kept = preprocessing.complete(part.rows)
    return part if kept.all() else part.kept(kept), kept


def check_nameable(part: Part, names: Sequence[str]) -> None:
    """Raise an InputError where a column is not there, or holds what cannot name rows or classes."""
    for name in names:
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


def scores(classes: NDArray[np.str_], labels: NDArray[np.int64]) -> dict[str, float] | None:
    """Scores of the rows whose class is known, and how many these are."""
    from pollux.metrics import LABEL_METRICS

    if not (known := classes != "").any():
        return None
    found = {name: metric(classes[known], labels[known]) for name, metric in LABEL_METRICS.items()}
    return {**found, "rows_with_a_class": int(known.sum())}


def identifiers_of(part: Part, preprocessing: Encoding) -> list[str]:
    """The columns that tell rows apart: identifiers of a table, names of images."""
    return [*preprocessing.identifiers, *(["file"] if "file" in part.beside else [])]


def about_rows(
    n: int, shape: Sequence[int], preprocessing: Encoding, dropped: int, scaling: str = "standard"
) -> list[str]:
    """What n rows, or images of a shape, are read as, for people."""
    names = preprocessing.feature_names
    what = (
        f"{len(names)} feature{'' if len(names) == 1 else 's'}" if names else "images of " + "×".join(map(str, shape))
    )
    lines = [f"{n:,} rows, {what}"]
    if names:
        lines[0] += ": " + ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
    if len(preprocessing.left_out) > 8:
        lines.append(f"left out {len(preprocessing.left_out)} columns, of which summary.json tells")
    else:
        lines += [f"left out {name}: {reason}" for name, reason in preprocessing.left_out.items()]
    if dropped:
        lines.append(f"left out {dropped:,} rows that lack values")
    if scaling == "auto" and len(preprocessing.scales) > 1:
        lines.append(f"numbers are {in_units(preprocessing)}")
    return lines


def in_units(preprocessing: Encoding) -> str:
    """What was done to numbers, where that was left to us."""
    if len(set(preprocessing.scales)) == 1:
        return "divided by one number, as their ranges are alike"
    return "standardised, as their ranges differ"


def fingerprint(X: NDArray[np.float32]) -> str:
    """Of the rows and their order."""
    return hashlib.sha256(np.ascontiguousarray(X).data).hexdigest()
