"""Locks between processes: they are gone with the process that holds them, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pollux.errors import InputError


class BusyError(InputError):
    """Another process works in this folder."""


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """This process alone works in the folder; raises a BusyError at once where another one does."""
    handle = -1
    try:
        try:
            handle = _lock(Path(folder))
        except BlockingIOError as error:
            raise BusyError(
                f"Another run is at work in {folder}: wait for it, stop it, or choose another folder (--out)."
            ) from error
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def _lock(folder: Path) -> int:
    """A handle that holds the lock until it is closed."""
    if os.name == "nt":
        return _lock_file(folder)
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:
        # On network file systems only what can be written to can be locked.
        os.close(handle)
        return _lock_file(folder)
    return handle


def _lock_file(folder: Path) -> int:
    """The same by a hidden file."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if os.name == "nt":
            import msvcrt

            try:
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            except OSError as error:
                raise BlockingIOError(str(error)) from error
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:
        # A file system without any locks is no reason to do nothing at all.
        return handle
    return handle
