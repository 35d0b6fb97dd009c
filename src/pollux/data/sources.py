"""Data in files: all rows, parts of them in order, or blocks of them by number."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import plain
from pollux.data.encoding import Encoding
from pollux.errors import InputError, did_you_mean

FORMATS = {
    "CSV": (".csv", ".txt"),
    "TSV": (".tsv", ".tab"),
    "Parquet": (".parquet", ".pq"),
    "Feather/Arrow": (".feather", ".arrow", ".ipc"),
    "numpy": (".npy", ".npz"),
}
"""Formats, and how the names of their files end; a folder holds images, or tables of the same columns."""

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
"""How the names of images end."""

_COMPRESSED = (".gz", ".bz2", ".zst")
_NUMBERS_AT_ONCE = 8_000_000


@dataclass(frozen=True)
class Reading:
    """What a file does not say of itself: of CSV files, of .npz files, of images.

    ``na`` are texts that stand for a missing value, beside the usual ones; ``array`` names the samples among several
    arrays; ``image_size`` is the side to which images are scaled.
    """

    delimiter: str | None = None
    header: bool = True
    na: tuple[str, ...] = ()
    array: str | None = None
    image_size: int | None = None


@dataclass(frozen=True)
class Part:
    """Rows of a file in a row: an Arrow table, or an array (n, …) with what the file names beside it.

    ``feature_names`` are those of the columns of an array (n, d), where the file has them.
    """

    rows: Any
    first: int = 0
    beside: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    feature_names: Sequence[str] | None = None

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    @property
    def names(self) -> list[str]:
        """What :meth:`column` can be asked for."""
        return [*getattr(self.rows, "column_names", []), *self.beside]

    def column(self, name: str) -> NDArray[Any]:
        """A column as it was in the file, (n,)."""
        if name in self.beside:
            return self.beside[name]
        if name in getattr(self.rows, "column_names", []):
            return np.asarray(self.rows.column(name).to_numpy())
        if not self.names:
            raise InputError(
                f"There is no column {name!r}: an array alone has none. Put others beside it, in an .npz file."
            )
        there = ", ".join(map(repr, self.names))
        raise InputError(f"There is no column {name!r}.{did_you_mean(name, self.names)} There are: {there}.")

    def written(self, name: str) -> Any:
        """A column for a file that is written: whatever it holds, with its gaps."""
        if name in self.beside:
            return self.beside[name]
        return plain(self.rows.column(name))

    def kept(self, mask: NDArray[np.bool_]) -> Part:
        """The rows of a mask (n,), which need not follow each other in the file any more."""
        beside = {name: values[mask] for name, values in self.beside.items()}
        rows = self.rows[mask] if isinstance(self.rows, np.ndarray) else self.rows.filter(mask)
        return Part(rows, self.first, beside, self.feature_names)


class Blocks(Protocol):
    """Rows in blocks, each of which can be read by itself, in any order, as they are stored."""

    @property
    def path(self) -> Path:
        """Where they are."""

    @property
    def names(self) -> list[str]:
        """Of columns, where there are any."""

    @property
    def kinds(self) -> dict[str, str]:
        """Of the columns of a table: "integer", "text", …"""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of one sample of an array, (d,) or (C, H, W); None for a table."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The rows of each block, (c,)."""

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        """A block: an Arrow table of these columns, in this order; or an array (rows, *shape)."""

    def where(self, block: int, row: int | None = None) -> str:
        """The place of a block, or of a row of it, for people."""

    def identity(self) -> Any:
        """Plain data that change with the files, and with how they are read."""


class Source(ABC):
    """A data file or folder."""

    path: Path

    @abstractmethod
    def read(self) -> Part:
        """All rows."""

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        """Rows of these numbers, with some columns as the file has them: 0007 is text, though read as a number."""
        return part

    @abstractmethod
    def stream(self, encoding: Encoding, beside: Sequence[str]) -> Iterator[Part]:
        """The rows in parts, with the columns that are read and those of ``beside`` that the file has."""

    @abstractmethod
    def blocks(self) -> Blocks:
        """The rows in blocks; an InputError where the format has none."""


@dataclass(frozen=True)
class InMemory:
    """Rows in memory, an Arrow table or an array (n, …), as one block."""

    rows: Any
    columns: Sequence[str] | None = None
    path: Path = Path("the data")

    @property
    def names(self) -> list[str]:
        return list(getattr(self.rows, "column_names", None) or self.columns or ())

    @property
    def kinds(self) -> dict[str, str]:
        return {}

    @property
    def shape(self) -> tuple[int, ...] | None:
        return tuple(self.rows.shape[1:]) if isinstance(self.rows, np.ndarray) else None

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([self.rows.shape[0]], dtype=np.int64)

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        return self.rows if isinstance(self.rows, np.ndarray) else self.rows.select(list(names))

    def where(self, block: int, row: int | None = None) -> str:
        return str(self.path) if row is None else f"{self.path}, row {row}"

    def identity(self) -> Any:
        return str(self.path)


def open_data(path: str | Path, reading: Reading | None = None) -> Source:
    """The data in a file or folder; what it holds is read later."""
    path, how = Path(path), reading or Reading()
    # Also where none is read, because one is written.
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError("Tables are read and written by pyarrow: pip install 'pollux[files]'.")
    if path.is_dir():
        return _open_folder(path, how)
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    suffix, compressed = suffix_of(path)
    if suffix in FORMATS["numpy"] and not compressed:
        from pollux.data.array_files import NpyArray, NpzArrays

        return NpyArray(path) if suffix == ".npy" else NpzArrays(path, how.array)
    if suffix not in (known for endings in FORMATS.values() for known in endings) or (
        compressed and suffix not in (*FORMATS["CSV"], *FORMATS["TSV"])
    ):
        known = "; ".join(f"{name} ({', '.join(endings)})" for name, endings in FORMATS.items())
        raise InputError(
            f"{path} is of no known format, by the end of its name. Known are {known}; a folder of images or of tables."
        )
    from pollux.data.table_files import TableFiles

    return TableFiles(path, (path,), how)


def suffix_of(path: Path) -> tuple[str, bool]:
    """How the name of a file ends, without what compresses it; and whether it is compressed."""
    suffix = path.suffix.lower()
    if suffix not in _COMPRESSED:
        return suffix, False
    return path.with_suffix("").suffix.lower(), True


def _open_folder(path: Path, how: Reading) -> Source:
    parquet, images = files_in(path, FORMATS["Parquet"]), files_in(path, IMAGES)
    if parquet and images:
        raise InputError(
            f"{path} holds Parquet files ({parquet[0].name} …) and images ({images[0].name} …): which of them are the "
            f"data? Move the others elsewhere."
        )
    # Beside Parquet files or images others, such as a list of labels, are not looked at; nor is a text.
    feather = files_in(path, FORMATS["Feather/Arrow"])
    delimited = files_in(path, (".csv", *FORMATS["TSV"]), compressed=True)
    if not parquet and not images and feather and delimited:
        raise InputError(
            f"{path} holds Feather files ({feather[0].name} …) and text files ({delimited[0].name} …): which of them "
            f"are the data? Move the others elsewhere."
        )
    tables = parquet or ([] if images else feather or delimited)
    if tables:
        from pollux.data.table_files import TableFiles

        return TableFiles(path, tuple(tables), how)
    from pollux.data.image_folder import ImageFolder

    return ImageFolder(path, how.image_size)


def files_in(folder: Path, suffixes: Sequence[str], *, compressed: bool = False) -> list[Path]:
    """Files of these endings in a folder and below it, by path; not those that are hidden, by a dot or underscore."""

    def is_one(file: Path) -> bool:
        suffix, is_packed = suffix_of(file)
        return suffix in suffixes and (compressed or not is_packed)

    return sorted(
        file
        for file in folder.rglob("*")
        if is_one(file)
        and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        and file.is_file()
    )


def check_distinct(path: Path, names: Sequence[str]) -> None:
    """Raise an InputError where two columns have one name."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise InputError(f"{path} has more than one column called {', '.join(map(repr, twice))}: rename them.")


def at_once(most: int, numbers: int) -> int:
    """Rows of a part: at most so many, and fewer of rows of many numbers, so that a part has a bounded size."""
    return max(1, min(most, _NUMBERS_AT_ONCE // max(1, numbers)))


def describe_files(files: Iterable[Path], root: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of the last change of each, which change with it."""
    found = []
    for file in files:
        facts = file.stat()
        found.append((str(file.relative_to(root)), facts.st_size, facts.st_mtime_ns))
    return found


def gather(parts: Iterable[Part]) -> Part:
    """Parts that follow each other as one."""
    every = list(parts)
    if len(every) == 1:
        return every[0]
    first = every[0]
    if isinstance(first.rows, np.ndarray):
        beside = {name: np.concatenate([part.beside[name] for part in every]) for name in first.beside}
        return Part(np.concatenate([part.rows for part in every]), first.first, beside, first.feature_names)
    import pyarrow as pa

    # Files of one folder may store the numbers of a column in different types.
    return Part(pa.concat_tables([part.rows for part in every], promote_options="permissive"), first.first)
