"""Atomic writes: a crash never leaves a partial file in place of a good one.

The names of checkpoints are here, too, because commands look for them before torch is imported.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def in_place(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside the given one, which replaces it if the block ends without an error."""
    # Resolved, so that a symbolic link stays and its target is replaced.
    path = Path(path).resolve()
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(f"{path} is not an ordinary file, so it cannot be replaced: name another.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist: make it first.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file.")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    except OSError as error:
        # Without the temporary name, which means nothing to the user.
        reason = error.strerror or str(error)
        raise type(error)(
            f"{path.name} cannot be written: the folder {path.parent} takes no new file ({reason}). Name another."
        ) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # Temporary files are private; give this one the permissions of any new file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
        _flush_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _flush_folder(folder: Path) -> None:
    """Flush the new name to disk too, if the system can, before anything relies on it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError:
        # Some network file systems refuse, though the file itself is complete.
        pass
    finally:
        os.close(handle)


def leftovers(path: Path) -> Iterator[Path]:
    """Temporary files of :func:`in_place` for this path from a process that was killed; the name may be a pattern."""
    return (found for found in path.parent.glob(f".{path.name}.*") if found.is_file())


CHECKPOINT = f"checkpoint-{12 * '[0-9]'}.safetensors"
"""The pattern of names of checkpoints."""


def checkpoint_path(folder: Path, number: int) -> Path:
    return folder / f"checkpoint-{number:012d}.safetensors"


def checkpoint_files(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by number, oldest first; files with other names are ignored."""
    return {int(path.stem[-12:]): path for path in sorted(folder.glob(CHECKPOINT))}


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically."""
    with in_place(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
