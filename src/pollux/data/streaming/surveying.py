"""How to read data that do not fit in memory: decided by reading them once, a chunk after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.files.parquet import RowGroups, row_groups
from pollux.data.preprocessing import ArrayPreprocessing, ArraySurvey, Choices, Survey, TablePreprocessing
from pollux.data.streaming.arrays import ArrayChunks
from pollux.data.streaming.chunks import Lengths
from pollux.errors import InputError, option

Progress = Callable[[int, int], None]
"""Called with the chunks that have been read and those there are."""


def survey_parquet(
    source: str | Path | RowGroups, choices: Choices | None = None, progress: Progress | None = None
) -> tuple[TablePreprocessing, Lengths]:
    """How to read Parquet files, and the rows of each row group that are read.

    With ``missing="drop"`` means are those of complete rows, for which the files are read once more: only after the
    first time is it known which columns must be complete.
    """
    groups = source if isinstance(source, RowGroups) else row_groups(source)
    choices = choices or Choices()
    plan = survey_row_groups(groups, choices, progress=progress)[0].plan()
    if choices.missing != "drop":
        return plan, groups.lengths
    while True:
        others = [name for name in groups.kinds if name not in {*plan.names, *plan.identifiers, choices.label}]
        columns = plan.names if choices.columns else ()
        categories = [name for name in choices.categories if name in plan.names]
        narrower = replace(choices, columns=columns, drop=others, identifiers=plan.identifiers, categories=categories)
        survey, lengths = survey_row_groups(groups, narrower, complete=plan, progress=progress)
        _check_some_rows(lengths, groups.path)
        found = survey.plan()
        left_out = {**plan.left_out, **found.left_out}
        is_same, plan = found.names == plan.names, replace(found, left_out=left_out)
        # A column that varies no more among complete rows need not be complete either.
        if is_same:
            return plan, lengths


def survey_row_groups(
    groups: RowGroups,
    choices: Choices,
    *,
    own: Sequence[int] | NDArray[np.int64] | None = None,
    complete: TablePreprocessing | None = None,
    progress: Progress | None = None,
) -> tuple[Survey, Lengths]:
    """A survey of these row groups, to be merged with those of others, and how many rows of each it has seen.

    ``own`` are numbers of row groups, all by default; with ``complete`` only rows are seen that lack nothing of it.
    """
    survey = Survey(list(groups.kinds), choices)
    starts = np.cumsum(groups.lengths) - groups.lengths
    numbers = range(len(starts)) if own is None else own
    names = list(dict.fromkeys([*survey.names, *(complete.names if complete is not None else ())]))
    seen: list[int] = []
    for group in numbers:
        table = groups.read(int(group), names)
        if complete is not None:
            table = table.filter(complete.complete(table))
        survey.add(table, int(starts[group]))
        seen.append(table.num_rows)
        if progress is not None:
            progress(len(seen), len(numbers))
    return survey, np.array(seen, dtype=np.int64)


def survey_array(
    source: str | Path | np.memmap[Any, Any],
    choices: Choices | None = None,
    progress: Progress | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> tuple[ArrayPreprocessing, Lengths]:
    """How to read an array in a file, and the rows of each chunk of :class:`ArrayChunks` that are read.

    As with tables, ``missing="drop"`` takes a further reading.
    """
    chunks = ArrayChunks(source)
    choices = choices or Choices()
    plan = survey_chunks(chunks, choices, columns=columns, progress=progress)[0].plan()
    if choices.missing != "drop":
        return plan, chunks.lengths
    while True:
        survey, lengths = survey_chunks(chunks, choices, columns=columns, complete=plan, progress=progress)
        _check_some_rows(lengths, chunks.path)
        found = survey.plan()
        kept = None if found.kept is None else tuple(index for index in found.kept if index in (plan.kept or ()))
        is_same, plan = kept == plan.kept, _narrowed(found, kept, plan)
        if is_same:
            return plan, lengths


def survey_chunks(
    chunks: ArrayChunks,
    choices: Choices,
    *,
    own: Sequence[int] | NDArray[np.int64] | None = None,
    columns: Sequence[str] | None = None,
    complete: ArrayPreprocessing | None = None,
    progress: Progress | None = None,
) -> tuple[ArraySurvey, Lengths]:
    """As :func:`survey_row_groups`, of an array."""
    survey = ArraySurvey(chunks.sample_shape, choices, columns)
    numbers = range(len(chunks.stored_lengths)) if own is None else own
    seen: list[int] = []
    for chunk in numbers:
        rows = chunks.stored(int(chunk))
        if complete is not None:
            rows = rows[complete.complete(rows)]
        survey.add(rows)
        seen.append(len(rows))
        if progress is not None:
            progress(len(seen), len(numbers))
    return survey, np.array(seen, dtype=np.int64)


def _narrowed(
    found: ArrayPreprocessing, kept: tuple[int, ...] | None, before: ArrayPreprocessing
) -> ArrayPreprocessing:
    """What was found of the complete rows, for those columns alone that were read before."""
    if kept is None or found.kept is None:
        return found
    if not kept:
        raise InputError("No column is left to cluster by: none of them varies among complete rows.")
    at = [found.kept.index(index) for index in kept]
    mean, scale = (tuple(values[index] for index in at) for values in (found.mean, found.scale))
    return replace(found, kept=kept, mean=mean, scale=scale, left_out={**before.left_out, **found.left_out})


def _check_some_rows(lengths: Lengths, path: Path) -> None:
    if not lengths.sum():
        raise InputError(
            f"Each row of {path} lacks a value, so dropping them leaves nothing: use {option('missing', 'mean')}."
        )
