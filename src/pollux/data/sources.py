"""Data in files: all rows, parts of them in order, or blocks of them by index."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import no_column, plain
from pollux.data.encoding import Encoding
from pollux.errors import InputError, did_you_mean

FORMATS = {
    "CSV": (".csv", ".txt"),
    "TSV": (".tsv", ".tab"),
    "Parquet": (".parquet", ".pq"),
    "Feather/Arrow": (".feather", ".arrow", ".ipc"),
    "JSON": (".json", ".jsonl", ".ndjson"),
    "Excel": (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
    "database": (".db", ".sqlite", ".sqlite3", ".db3", ".duckdb", ".ddb"),
    "numpy": (".npy", ".npz"),
}
"""Formats, and the suffixes of their files; a folder holds images, or tables of the same columns."""

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
"""Suffixes of images."""

MOST_COLUMNS = 200_000
"""Maximum number of columns of a table: each takes about 15 kB, however few rows it has."""

COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}

_NUMBERS_AT_ONCE = 8_000_000
# Bytes of a large file that enter its checksum, in pieces; of many files, fewer of each.
_BYTES_LOOKED_AT, _FEWEST_BYTES, _PIECE = 16_000_000, 262_144, 65_536


@dataclass(frozen=True)
class Reading:
    """Options for reading files: of CSV files, of .npz files, of images.

    ``na`` are texts that count as missing, beside the usual ones; ``array`` names the samples among several arrays, or
    the sheet of a workbook; ``image_size`` is the side to which images are scaled; ``encoding`` is that of text, by
    default UTF-8 or else Windows-1252. An image that cannot be read is left out, unless reading is ``strict``. For a
    database ``sql`` is the query whose rows are read; a database of a single table needs none.
    """

    delimiter: str | None = None
    header: bool = True
    na: tuple[str, ...] = ()
    array: str | None = None
    image_size: int | None = None
    encoding: str | None = None
    strict: bool = False
    sql: str | None = None


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a file: an Arrow table, or an array (n, …) with the other arrays of the file.

    ``feature_names`` are those of the columns of an array (n, d), if the file has them.
    """

    rows: Any
    first: int = 0
    beside: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    feature_names: Sequence[str] | None = None

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    @property
    def names(self) -> list[str]:
        """Names of the columns that :meth:`column` returns."""
        return [*getattr(self.rows, "column_names", []), *self.beside]

    def column(self, name: str) -> NDArray[Any]:
        """A column (n,) with the values of the file."""
        if name in self.beside:
            return self.beside[name]
        if name in self.names:
            return np.asarray(plain(self.rows.column(name)))
        if not self.names:
            raise InputError(
                f"There is no column {name!r}: an array alone has none. Put others beside it, in an .npz file."
            )
        raise no_column([name], self.names)

    def written(self, name: str) -> Any:
        """A column for an output file: any values, also missing ones."""
        return self.beside[name] if name in self.beside else plain(self.rows.column(name))

    def kept(self, mask: NDArray[np.bool_]) -> Part:
        """The rows selected by a mask (n,), which need not be consecutive in the file."""
        beside = {name: values[mask] for name, values in self.beside.items()}
        if isinstance(self.rows, np.ndarray):
            return replace(self, rows=self.rows[mask], beside=beside)
        columns = {name: plain(column) for name, column in zip(self.rows.column_names, self.rows.columns, strict=True)}
        return replace(self, rows=type(self.rows).from_pydict(columns).filter(mask), beside=beside)

    def between(self, first: int, stop: int) -> Part:
        """The rows from ``first`` up to ``stop`` of the part, the latter excluded."""
        beside = {name: values[first:stop] for name, values in self.beside.items()}
        rows = self.rows[first:stop] if isinstance(self.rows, np.ndarray) else self.rows.slice(first, stop - first)
        return replace(self, rows=rows, first=self.first + first, beside=beside)


class Blocks(ABC):
    """Rows in blocks that can be read separately, in any order, as they are stored.

    Attributes
    ----------
    path : Path
        The file or folder.
    lengths : array of shape (c,)
        The number of rows in each block.
    shape : tuple of int or None
        Shape of one sample of an array, (d,) or (C, H, W); None for a table.
    kinds : dict
        Kinds of the columns of a table, by name: "integer", "text", …
    names : list of str
        Names of the columns, if there are any.
    """

    path: Path
    lengths: NDArray[np.int64]
    shape: tuple[int, ...] | None = None
    kinds: Mapping[str, str] = {}
    names: Sequence[str] = ()

    @abstractmethod
    def read_block(self, block: int, names: Sequence[str]) -> Any:
        """A block: an Arrow table of these columns, in this order; or an array (rows, *shape)."""

    @abstractmethod
    def where(self, block: int, row: int | None = None) -> str:
        """The place of a block, or of a row of it, for messages."""

    @abstractmethod
    def identity(self) -> Any:
        """Plain data that changes with the files, and with how they are read."""


class InMemory(Blocks):
    """Rows in memory, an Arrow table or an array (n, …), as one block."""

    def __init__(self, rows: Any, columns: Sequence[str] | None = None, path: Path = Path("the data")) -> None:
        self.rows, self.path = rows, path
        self.lengths = np.array([rows.shape[0]], dtype=np.int64)
        self.names = list(getattr(rows, "column_names", None) or columns or ())
        if isinstance(rows, np.ndarray):
            self.shape = tuple(rows.shape[1:])

    def read_block(self, block: int, names: Sequence[str]) -> Any:
        return self.rows if isinstance(self.rows, np.ndarray) else self.rows.select(list(names))

    def where(self, block: int, row: int | None = None) -> str:
        return str(self.path) if row is None else f"{self.path}, row {row}"

    def identity(self) -> Any:
        return str(self.path)


class Source(ABC):
    """A data file or folder."""

    path: Path

    @abstractmethod
    def read(self) -> Part:
        """All rows."""

    def as_written(self, part: Part, names: Sequence[str], numbers: NDArray[np.int64]) -> Part:
        """Rows of these indices, with some columns as written in the file: 0007 is text, though read as a number."""
        return part

    @abstractmethod
    def stream(self, encoding: Encoding, beside: Sequence[str]) -> Iterator[Part]:
        """The rows in parts, with the columns of the encoding and those of ``beside`` that the file has."""

    @abstractmethod
    def blocks(self) -> Blocks:
        """The rows in blocks; an InputError if the format has none."""

    def size_in_memory(self) -> int:
        """Approximate bytes of the rows as float32, estimated from the file; 0 if it cannot be streamed."""
        return 0

    def names(self) -> list[str]:
        """Names of the columns of a table."""
        return []

    @property
    def has_decimal_comma(self) -> bool:
        """Whether numbers are written with a decimal comma."""
        return False

    def notes(self) -> list[str]:
        """Notes for the user about how it was read."""
        return []


class FileVersion:
    """The version of a file when it was opened, by its content; that is only read again if the file was written to.

    The checksum of a large file covers its size and pieces from beginning to end; ``of`` is how many files share the
    work.
    """

    def __init__(self, path: Path, of: int = 1) -> None:
        self.path, self._most = path, max(_FEWEST_BYTES, _BYTES_LOOKED_AT // of)
        self._written, self.digest = self._look(None)

    def check(self) -> None:
        """Raise an InputError if the file has changed."""
        written, digest = self._look(self._written)
        if digest != self.digest:
            raise InputError(
                f"{self.path} is no longer what it was when it was opened: the data have changed meanwhile. Put the "
                f"old file back to go on, or begin again."
            )
        self._written = written

    def _look(self, known: Any) -> tuple[Any, str]:
        """The modification time, and a checksum of the content; the known one is reused if the time is the same."""
        try:
            facts = self.path.stat()
            written = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
            if written == known:
                return known, self.digest
            digest = hashlib.sha256(str(facts.st_size).encode())
            with self.path.open("rb") as file:
                pieces = min(self._most, facts.st_size) // _PIECE + 1
                is_small = facts.st_size <= self._most
                starts = np.arange(pieces) * _PIECE if is_small else np.linspace(0, facts.st_size - _PIECE, pieces)
                for start in starts.astype(np.int64):
                    file.seek(int(start))
                    digest.update(file.read(_PIECE))
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be read any more ({error}): the data have changed meanwhile."
            ) from error
        return written, digest.hexdigest()


_READ_BY_PANDAS = {
    ".dta": "stata",
    ".sav": "spss",
    ".sas7bdat": "sas",
    ".xpt": "sas",
    ".orc": "orc",
    ".h5": "hdf",
    ".hdf5": "hdf",
    ".pkl": "pickle",
    ".xml": "xml",
    ".html": "html",
    ".dat": "table",
}


_MOST_NAMES = 1_000
# An address, of which a path keeps one slash.
_URL = re.compile(r"(?:^|/)(https?|ftp|s3|gs|hdfs):/+(.+)")


def _suggest_file(path: Path) -> str:
    """A question suggesting a file of nearly the same name in the same folder; "" if there is none."""
    try:
        there = [each.name for each in islice(path.parent.iterdir(), _MOST_NAMES)]
    except OSError:
        return ""
    return did_you_mean(path.name, there)


def open_data(path: str | Path, reading: Reading | None = None) -> Source:
    """Open the data in a file or folder; the contents are read later."""
    path, how = Path(path), reading or Reading()
    # Required even if nothing is read with it, because results are written with it.
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError("Tables are read and written by pyarrow: pip install 'pollux[files]'.")
    if not path.exists():
        if address := _URL.search(str(path)):
            raise InputError(f"{address[1]}://{address[2]} is an address: download it first, and name the file.")
        raise InputError(f"There is no file {path}.{_suggest_file(path)}")
    if path.is_dir():
        tables = _tables_in(path)
        return _open_tables(path, tables, how) if tables else _open_arrays(path, how)
    if not path.is_file():
        raise InputError(f"{path} is neither a file nor a folder: write what it gives into a file first.")
    suffix, compressed = suffix_of(path)
    if suffix in FORMATS["numpy"] and not compressed:
        return _open_arrays(path, how)
    text = (*FORMATS["CSV"], *FORMATS["TSV"], *FORMATS["JSON"])
    others = (*FORMATS["Parquet"], *FORMATS["Feather/Arrow"], *FORMATS["Excel"], *FORMATS["database"])
    if suffix == ".zip":
        raise InputError(f"{path} is an archive: unpack it first. A single file can stay packed as .gz, .bz2 or .zst.")
    if suffix not in (text if compressed else (*text, *others)):
        known = "; ".join(f"{name} ({', '.join(endings)})" for name, endings in FORMATS.items())
        plain = f"{path.name.partition('.')[0]}.csv"
        raise InputError(
            f"{path} is of no known format, by the end of its name. Known are {known}; a folder of images or of tables."
            f" What pandas reads becomes one of these by pandas.read_{_READ_BY_PANDAS.get(suffix, '…')}({path.name!r})"
            f".to_csv({plain!r}, index=False)."
        )
    return _open_tables(path, [path], how)


def _open_tables(path: Path, files: Sequence[Path], how: Reading) -> Source:
    from pollux.data.table_files import TableFiles

    return TableFiles(path, files, how)


def _open_arrays(path: Path, how: Reading) -> Source:
    from pollux.data.array_files import ImageFolder, NpyArray, NpzArrays

    if path.is_dir():
        return ImageFolder(path, how.image_size, how.strict)
    return NpyArray(path) if path.suffix.lower() == ".npy" else NpzArrays(path, how.array)


def suffix_of(path: Path) -> tuple[str, bool]:
    """The suffix of a file without that of its compression; and whether it is compressed."""
    suffix = path.suffix.lower()
    return (path.with_suffix("").suffix.lower(), True) if suffix in COMPRESSED else (suffix, False)


def _tables_in(folder: Path) -> list[Path]:
    """The tables of a folder, all of one format; empty if it holds images."""
    parquet, images = files_in(folder, FORMATS["Parquet"]), files_in(folder, IMAGES)
    # Beside Parquet files or images, other files such as a list of labels are ignored; and so are text files.
    feather = [] if parquet or images else files_in(folder, FORMATS["Feather/Arrow"])
    text = [] if parquet or images else files_in(folder, (".csv", *FORMATS["TSV"]), compressed=True)
    both = (("Parquet files", parquet), ("images", images)), (("Feather files", feather), ("text files", text))
    for (kind, some), (other, more) in both:
        if some and more:
            raise InputError(
                f"{folder} holds {kind} ({some[0].name} …) and {other} ({more[0].name} …): which of them are the data? "
                f"Move the others elsewhere."
            )
    return parquet or feather or text


def is_hidden(file: Path, folder: Path) -> bool:
    """Whether the name of a file, or of a folder between it and this one, starts with a dot or an underscore."""
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def files_in(folder: Path, suffixes: Sequence[str], *, compressed: bool = False, hidden: bool = False) -> list[Path]:
    """Files with these suffixes in a folder and its subfolders, by path; hidden ones (dot or underscore) if asked.

    Their names are written beside rows, so they must be text.
    """

    def is_one(file: Path) -> bool:
        suffix, is_packed = suffix_of(file)
        return suffix in suffixes and (compressed or not is_packed) and (hidden or not is_hidden(file, folder))

    found = sorted(file for file in folder.rglob("*") if is_one(file) and file.is_file())
    for file in found:
        name = os.fsencode(file.relative_to(folder))
        if name.decode(errors="replace") != str(file.relative_to(folder)):
            shown = name.decode(errors="backslashreplace")
            raise InputError(f"The name of the file {shown} in {folder} is not UTF-8 text: rename it.")
    return found


def deduplicate_names(names: Iterable[str]) -> list[str]:
    """Make the names of columns unique, numbering duplicates as pandas does.

    >>> deduplicate_names(["score", "score", "age", "score"])
    ['score', 'score.1', 'age', 'score.2']
    """
    names = list(names)
    there, told = set(names), dict.fromkeys(names[:0])
    for name in names:
        other, numbers = name, count(1)
        while other in told or (other != name and other in there):
            other = f"{name}.{next(numbers)}"
        told[other] = None
    return list(told)


def check_columns(path: Path, names: Sequence[str]) -> None:
    """Raise an InputError if two columns have the same name, or if there are too many for a table."""
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{path} has {len(names):,} columns. A table can have {MOST_COLUMNS:,}, since each takes memory of its "
            f"own; numbers of more columns are read from an .npy file (numpy.save)."
        )
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise InputError(f"{path} has more than one column called {', '.join(map(repr, twice))}: rename them.")


def room_bytes() -> int:
    """The bytes of memory that data may take: half of that of this machine."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return 2**35


def check_room(what: str, needed: int, instead: str) -> None:
    """Raise an InputError, before reading, if data would take more memory than available."""
    if needed > (room := room_bytes()):
        raise InputError(
            f"{what} take {needed / 1e9:,.1f} GB of memory, and there is room for {room / 1e9:,.1f}: {instead}."
        )


def at_once(most: int, numbers: int) -> int:
    """Rows of a part: at most ``most``, and fewer if rows are long, so that a part has a bounded size."""
    return max(1, min(most, _NUMBERS_AT_ONCE // max(1, numbers)))


def gather(parts: Iterable[Part]) -> Part:
    """Concatenate consecutive parts."""
    every = list(parts)
    if len(every) == 1:
        return every[0]
    first = every[0]
    if isinstance(first.rows, np.ndarray):
        beside = {name: np.concatenate([part.beside[name] for part in every]) for name in first.beside}
        return Part(np.concatenate([part.rows for part in every]), first.first, beside, first.feature_names)
    import pyarrow as pa

    # Files of one folder may store a column in different numeric types.
    return Part(pa.concat_tables([part.rows for part in every], promote_options="permissive"), first.first)
