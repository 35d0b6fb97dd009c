"""What an unfinished run leaves behind, so that the same command continues it after any end."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pollux.errors import InputError
from pollux.io.atomic import write_text
from pollux.io.locks import BusyError, locked
from pollux.training import Checkpoints, Epoch

CHECKPOINT_EVERY = "60 s"
_SECONDS_BETWEEN_NOTES = 5.0
_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn")
# Packages whose code decides no bit of a training.
_NO_TRAINING = ("app", "lab", "report", "selection")


class UnfinishedRun:
    """The folder of a run under way: checkpoints of its fits, the seconds spent and the warnings given so far.

    Parameters
    ----------
    folder : path
        Where it is; it is created with the first note or checkpoint.
    every : str
        How often a fit writes a checkpoint, as in ``Checkpoints``.
    """

    def __init__(self, folder: Path, every: str = CHECKPOINT_EVERY) -> None:
        self.folder, self._every = folder, every
        self._start = self._noted = time.monotonic()
        self.before, self._warnings = 0.0, list[str]()
        self._caught: Sequence[warnings.WarningMessage] = ()

    @property
    def seconds(self) -> float:
        """Time spent on the run, by this process and by those that were killed."""
        return self.before + time.monotonic() - self._start

    @property
    def warnings(self) -> list[str]:
        """What the run has warned of, sorted, each once."""
        return sorted({*self._warnings, *(f"{one.category.__name__}: {one.message}" for one in self._caught)})

    @contextmanager
    def open(self) -> Iterator[None]:
        """Work on the run, alone; what another version of the code has left is removed, and the run starts anew."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder), warnings.catch_warnings(record=True) as self._caught:
            warnings.simplefilter("always")
            notes = self._read()
            if notes is not None and notes.get("code") == code_digest():
                self.before, self._warnings = float(notes["seconds"]), list(notes["warnings"])
            else:
                self._clear()
            self._write()
            try:
                yield
            except InputError:
                # Checkpoints that cannot be read, or of other settings: the next attempt starts anew.
                self._clear()
                raise

    def checkpoint(self, name: str = "fit") -> Checkpoints:
        """Checkpoints of one of the fits of the run: give each fit a name of its own."""
        return Checkpoints(self.folder / name, every=self._every)

    def __call__(self, epoch: Epoch) -> None:
        """Note the time spent; a callback of the run's fits."""
        if time.monotonic() - self._noted > _SECONDS_BETWEEN_NOTES:
            # A full disk costs the note, not the run.
            with suppress(OSError):
                self._write()

    def _write(self) -> None:
        self._noted = time.monotonic()
        notes = {"code": code_digest(), "seconds": self.seconds, "warnings": self.warnings}
        write_text(self.folder / "run.json", json.dumps(notes))

    def _read(self) -> dict[str, Any] | None:
        try:
            notes = json.loads((self.folder / "run.json").read_bytes())
        except (OSError, ValueError):
            return None
        return notes if isinstance(notes, dict) and {"code", "seconds", "warnings"} <= notes.keys() else None

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)

    def remove(self) -> None:
        """Remove the folder of a run that is recorded, unless another program works in it."""
        if self.folder.is_dir():
            with suppress(BusyError, OSError):
                with locked(self.folder):
                    pass
                shutil.rmtree(self.folder)
                # The last one leaves no empty folder.
                self.folder.parent.rmdir()


def unfinished_path(folder: Path, key: str) -> Path:
    """Where a run leaves what it needs to be continued, below the folder of the results."""
    return folder / "unfinished" / key


@functools.cache
def code_digest() -> str:
    """A digest of the sources and libraries that decide the bits of a training."""
    root = Path(__file__).parents[1]
    libraries = [f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES]
    digest = hashlib.sha256(" ".join(libraries).encode())
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.suffix in (".py", ".cpp", ".hpp") and name.parts[0] not in _NO_TRAINING:
            digest.update(str(name).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
