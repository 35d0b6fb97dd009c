"""Data in files: tables, arrays, folders of images or of tables, as a whole or a part at a time."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from pollux.data.files.source import Part, Source, gather
from pollux.errors import InputError

__all__ = ["FORMATS", "Part", "Reading", "Source", "gather", "open_data"]

FORMATS = {
    "CSV": (".csv", ".txt"),
    "TSV": (".tsv", ".tab"),
    "Parquet": (".parquet", ".pq"),
    "Feather/Arrow": (".feather", ".arrow", ".ipc"),
    "numpy": (".npy", ".npz"),
}
"""Formats, and how the names of their files end; a folder holds images, or Parquet files of the same columns."""

_COMPRESSED = (".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class Reading:
    """What a file does not say of itself: of CSV files, of .npz files, of images."""

    delimiter: str | None = None
    header: bool = True
    missing_marks: tuple[str, ...] = ()
    array: str | None = None
    image_size: int | None = None


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
    suffix = path.suffix.lower()
    compressed = suffix in _COMPRESSED
    if compressed:
        suffix = path.with_suffix("").suffix.lower()
    if suffix in FORMATS["numpy"] and not compressed:
        from pollux.data.files.arrays import NpyArray, NpzArrays

        return NpyArray(path) if suffix == ".npy" else NpzArrays(path, how.array)
    if suffix not in (known for endings in FORMATS.values() for known in endings) or (
        compressed and suffix not in (*FORMATS["CSV"], *FORMATS["TSV"])
    ):
        known = "; ".join(f"{name} ({', '.join(endings)})" for name, endings in FORMATS.items())
        raise InputError(
            f"{path} is of no known format, by the end of its name. Known are {known}; a folder of images or of "
            f"Parquet files."
        )
    from pollux.data.files.tables import ArrowTable, CsvTable, ParquetTable

    if suffix in FORMATS["Parquet"]:
        return ParquetTable(path)
    if suffix in FORMATS["Feather/Arrow"]:
        return ArrowTable(path)
    return CsvTable(path, how.delimiter, how.header, how.missing_marks)


def _open_folder(path: Path, how: Reading) -> Source:
    from pollux.data.files.images import SUFFIXES, ImageFolder
    from pollux.data.files.parquet import ParquetFolder, files_in

    tables = files_in(path, FORMATS["Parquet"])
    if not tables:
        return ImageFolder(path, how.image_size)
    images = files_in(path, SUFFIXES)
    if images:
        raise InputError(
            f"{path} holds Parquet files ({tables[0].name} …) and images ({images[0].name} …): which of them are the "
            f"data? Move the others elsewhere."
        )
    return ParquetFolder(path)
