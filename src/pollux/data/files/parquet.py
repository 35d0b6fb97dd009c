"""Parquet files, one or a folder of them, by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.files.source import Part, at_once, check_distinct
from pollux.data.files.tables import ROWS_AT_ONCE, as_parts, columns_of, in_words, not_empty
from pollux.data.preprocessing import Preprocessing, kind_of, same_kind
from pollux.errors import InputError

SUFFIXES = (".parquet", ".pq")


def files_in(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Files of these endings in a folder and below it, by path; not those that are hidden, by a dot or underscore."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in suffixes
        and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        and file.is_file()
    )


@dataclass(frozen=True)
class RowGroups:
    """The g row groups of a Parquet file, or of those of a folder: by path, and without those that have no rows.

    ``file`` (g,) and ``number`` (g,) tell where each is, ``lengths`` (g,) its rows; ``kinds`` are those of the columns.
    """

    path: Path
    files: tuple[Path, ...]
    file: NDArray[np.int64]
    number: NDArray[np.int64]
    lengths: NDArray[np.int64]
    kinds: dict[str, str]

    def read(self, group: int, names: Sequence[str]) -> Any:
        """An Arrow table of these columns, in this order."""
        import pyarrow.parquet as parquet

        file = self.files[self.file[group]]
        # One thread and no buffers ahead, since cores and memory belong to whoever computes beside.
        with in_words(file), parquet.ParquetFile(file, metadata=_footer(file), pre_buffer=False) as opened:
            table = opened.read_row_group(int(self.number[group]), columns=list(names), use_threads=False)
            return table.select(list(names))

    def where(self, group: int) -> str:
        """The place of a row group, for people."""
        return f"{self.files[self.file[group]]}, row group {self.number[group]}"


def row_groups(path: str | Path) -> RowGroups:
    """What the footers of a Parquet file say, or of all those of a folder, which must have the same columns."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    files = files_in(path, SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise InputError(f"There are no Parquet files in {path}; what can be read ends in {', '.join(SUFFIXES)}.")
    places: list[tuple[int, int, int]] = []
    kinds: dict[str, str] = {}
    first = files[0]
    for index, file in enumerate(files):
        footer = _footer(file)
        if footer.num_rows:
            if not places:
                first = file
            kinds = _same_kinds(kinds, _kinds(file, footer), first, file)
        rows = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
        places += [(index, group, length) for group, length in enumerate(rows) if length]
    if not places:
        raise InputError(f"{path} has no rows.")
    file_of, number, lengths = np.array(places, dtype=np.int64).T
    return RowGroups(path, tuple(files), file_of, number, lengths, kinds)


def _footer(file: Path) -> Any:
    # By the time of its last change too, so that a file that is written anew is read anew.
    with in_words(file):
        return _read_footer(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _read_footer(file: Path, changed: int) -> Any:
    import pyarrow.parquet as parquet

    return parquet.read_metadata(file)


def _kinds(file: Path, footer: Any) -> dict[str, str]:
    with in_words(file):
        schema = footer.schema.to_arrow_schema()
    check_distinct(file, schema.names)
    return {field.name: kind_of(field.type) for field in schema}


def _same_kinds(kinds: dict[str, str], others: dict[str, str], first: Path, file: Path) -> dict[str, str]:
    """The kinds of columns of the files so far and this one; an InputError where they cannot be of one table."""
    if not kinds:
        return others
    absent, further = [name for name in kinds if name not in others], [name for name in others if name not in kinds]
    if absent or further:
        has, lacks, name = (first, file, absent[0]) if absent else (file, first, further[0])
        raise InputError(f"All files of a folder must have the same columns: {has} has {name!r}, {lacks} has not.")
    both = {name: same_kind(kind, others[name]) for name, kind in kinds.items()}
    for name, kind in both.items():
        if kind is None:
            raise InputError(
                f"All files of a folder must have the same columns: {name!r} holds {others[name]} in {file}, but "
                f"{kinds[name]} in {first}."
            )
    return {name: kind for name, kind in both.items() if kind is not None}


@dataclass(frozen=True)
class ParquetFolder:
    """The Parquet files of a folder and those below it, by path, as one table.

    Values that only the names of folders tell, as in ``year=2024/``, are not read.
    """

    path: Path

    def read(self) -> Part:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        groups = row_groups(self.path)
        names = list(groups.kinds)
        tables = []
        for file in dict.fromkeys(groups.files[index] for index in groups.file):
            with in_words(file), parquet.ParquetFile(file) as opened:
                tables.append(opened.read().select(names))
        with in_words(self.path):
            return Part(not_empty(pa.concat_tables(tables, promote_options="permissive"), self.path))

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        return part

    def stream(self, preprocessing: Preprocessing, beside: Sequence[str]) -> Iterator[Part]:
        groups = row_groups(self.path)
        wanted = {*columns_of(preprocessing, self.path, list(groups.kinds)), *beside}
        include = [name for name in groups.kinds if name in wanted]
        yield from as_parts(self._batches(groups, include), include)

    def _batches(self, groups: RowGroups, include: Sequence[str]) -> Iterator[Any]:
        import pyarrow.parquet as parquet

        for file in dict.fromkeys(groups.files[index] for index in groups.file):
            with in_words(file), parquet.ParquetFile(file, pre_buffer=False) as opened:
                for batch in opened.iter_batches(at_once(ROWS_AT_ONCE, len(include)), columns=list(include)):
                    yield batch.select(list(include))
