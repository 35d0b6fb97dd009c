"""Locks between processes, which are released when the process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pollux.errors import InputError


class BusyError(InputError):
    """Another process is using this folder."""


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Lock a folder for this process; raises a BusyError at once if another process holds it."""
    handle = -1
    try:
        try:
            handle = _lock(Path(folder))
        except BlockingIOError as error:
            raise BusyError(
                f"Another run is using {folder}: wait for it, stop it, or choose another folder."
            ) from error
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def _lock(folder: Path) -> int:
    """A handle that holds the lock until it is closed."""
    if os.name != "nt":
        handle = os.open(folder, os.O_RDONLY)
        if _try_lock(handle):
            return handle
        # On network file systems only writable files can be locked.
        os.close(handle)
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    # If the file system has no locks, continue without.
    _try_lock(handle)
    return handle


def _try_lock(handle: int) -> bool:
    """Lock the handle; False if the file system has no locks, a BlockingIOError if another process holds it."""
    try:
        if os.name == "nt":
            _lock_on_windows(handle)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:
        return False
    return True


def _lock_on_windows(handle: int) -> None:
    import msvcrt

    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError as error:
        raise BlockingIOError(str(error)) from error
