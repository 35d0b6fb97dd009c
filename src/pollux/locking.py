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
    if os.name == "nt":
        # Folders cannot be opened there, so that a file stands for them.
        handle = os.open(Path(folder) / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    else:
        handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            _lock(handle)
        except BlockingIOError as error:
            raise BusyError(
                f"Another run is at work in {folder}: wait for it, stop it, or choose another folder (--out)."
            ) from error
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    if os.name == "nt":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            raise BlockingIOError(str(error)) from error
    else:
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            # Some network file systems have no locks; that is no reason to do nothing at all.
            return
