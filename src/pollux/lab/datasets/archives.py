"""Locate the files of data sets, and read .npz archives without pickle, so that no code in them is executed."""

from __future__ import annotations

import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pollux.errors import DAMAGE, InputError

VARIABLE = "POLLUX_DATA"

T = TypeVar("T")


def named_folder() -> Path | None:
    """Return the folder that the environment variable names, or None if it is not set."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None


def cache_folder() -> Path:
    """Return the user's cache folder, which need not exist yet."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local or Path.home() / "AppData" / "Local") / "pollux" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pollux"
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "pollux"


def data_folders() -> list[Path]:
    """Return the folders to search, in this order."""
    named = named_folder()
    return [named, cache_folder()] if named else [cache_folder()]


def find_file(relative: str) -> Path | None:
    """Return the first file of this name in the folders, such as "mnist.npz", or None."""
    return next((folder / relative for folder in data_folders() if (folder / relative).is_file()), None)


def describe_missing_folder() -> str:
    """Return a sentence for error messages if the environment variable names a missing folder, else an empty text."""
    named = named_folder()
    return f" ({VARIABLE} names {named}, and there is no such folder.)" if named and not named.is_dir() else ""


def read_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read all arrays of an archive, by name; arrays not in ``names`` are skipped and returned empty."""

    def read(name: str, stream: IO[bytes]) -> NDArray[Any]:
        if names is not None and name not in names:
            return np.empty(0)
        array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
        # The checksum of a member is only compared at its end.
        stream.read()
        return array

    return _read_members(path, read)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays of an archive, by name, without reading the arrays."""

    def read(name: str, stream: IO[bytes]) -> tuple[int, ...]:
        is_old = npy.read_magic(stream) == (1, 0)
        shape: tuple[int, ...] = (npy.read_array_header_1_0 if is_old else npy.read_array_header_2_0)(stream)[0]
        return shape

    return _read_members(path, read)


def require_arrays(arrays: dict[str, Any], path: Path, *names: str) -> None:
    """Raise an InputError if the archive lacks one of these arrays."""
    for name in names:
        if name not in arrays:
            raise InputError(f"{path} has no array called {name}, but {', '.join(arrays) or 'none at all'}.")


def _read_members(path: Path, read: Callable[[str, IO[bytes]], T]) -> dict[str, T]:
    """Read every array of an archive; any damage raises an InputError that names the file."""
    try:
        with warnings.catch_warnings(), zipfile.ZipFile(path) as archive:
            # NumPy warns of impossible sizes; the error that follows reports them.
            warnings.simplefilter("ignore", RuntimeWarning)
            found = {}
            for member in archive.namelist():
                if member.endswith(".npy"):
                    name = member.removesuffix(".npy")
                    with archive.open(member) as stream:
                        found[name] = read(name, stream)
            return found
    except MemoryError as error:
        raise InputError(
            f"{path} claims to hold more than fits into memory ({error}): it is damaged, or too large for this machine."
        ) from error
    except (OSError, *DAMAGE) as error:
        # The error for a missing or unreadable file already names the file.
        if isinstance(error, OSError) and error.filename is not None:
            raise
        with path.open("rb") as file:
            is_array = file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX
        if isinstance(error, zipfile.BadZipFile) and is_array:
            raise InputError(f"{path} is one array, not an .npz file of several: save them by numpy.savez.") from error
        raise InputError(
            f"{path} cannot be read as an .npz file ({error}): it is damaged or something else. Remove it, and fetch "
            "or copy it again."
        ) from error
