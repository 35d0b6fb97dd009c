"""Arrays in .npz files: read without pickle, so that nothing in a file is executed."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from pollux.errors import DAMAGE, InputError


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of the file, by name."""
    with _told_apart(path), zipfile.ZipFile(path) as file:
        return {name: _array(file, member) for name, member in _members(file)}


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all arrays of the file, by name, without reading these."""
    with _told_apart(path), zipfile.ZipFile(path) as file:
        return {name: _shape(file, member) for name, member in _members(file)}


def require(arrays: dict[str, Any], path: Path, *names: str) -> None:
    """Refuse a file that lacks one of these arrays."""
    for name in names:
        if name not in arrays:
            raise InputError(f"{path} has no array called {name}, but {', '.join(arrays) or 'none at all'}.")


def _members(file: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    for member in file.namelist():
        if member.endswith(".npy"):
            yield member.removesuffix(".npy"), member


def _array(file: zipfile.ZipFile, member: str) -> NDArray[Any]:
    with file.open(member) as stream:
        array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
        # Only at its end is the checksum of a member compared.
        stream.read()
        return array


def _shape(file: zipfile.ZipFile, member: str) -> tuple[int, ...]:
    with file.open(member) as stream:
        version = npy.read_magic(stream)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape: tuple[int, ...] = read_header(stream)[0]
        return shape


@contextmanager
def _told_apart(path: Path) -> Iterator[None]:
    """Whatever the many ways of being damaged, one error that names the file."""
    try:
        with warnings.catch_warnings():
            # Of sizes that cannot be; the error that follows says so.
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    except MemoryError as error:
        raise InputError(
            f"{path} claims to hold more than fits into memory ({error}): it is damaged, or too large for this machine."
        ) from error
    except OSError as error:
        # That of a file that is gone or may not be read says which.
        if error.filename is not None:
            raise
        raise _unreadable(path, error) from error
    except DAMAGE as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} cannot be read as an .npz file ({error}): it is damaged or something else. Remove it, and fetch or "
        "copy it again."
    )
