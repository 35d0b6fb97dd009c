"""The folder of a run: what is in it, and how it gets there whole."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pollux.errors import InputError
from pollux.files import FORMATS
from pollux.runs.settings import Settings, from_toml

MODEL = "model.safetensors"
SETTINGS = "run.toml"
SUMMARY = "summary.json"
CLUSTERS = "clusters.csv"
REPORT = "report.html"

_KINDS: dict[str, Any] = {"notes": list, "rows": int, "rows_dropped": int, "resumed_after": list, "fingerprint": str}
_DATA = tuple(ending for endings in FORMATS.values() for ending in endings)


def check_free(path: str | Path, overwrite: bool) -> None:
    """Raise an InputError where a run cannot go into this folder: it must be new or empty, unless it may be lost."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: --out names a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise InputError(f"The folder {folder} is not empty: choose another (--out), or pass --overwrite.")


@contextmanager
def made(path: str | Path | None, data: str | Path) -> Iterator[Path]:
    """The folder of a new run, made before work that would be lost without it; should that fail, it is gone again.

    Without a path it is named after the data.
    """
    new: list[Path] = []
    is_ours = False
    try:
        for folder in _candidates(Path(data)) if path is None else [Path(path)]:
            new = [place for place in (folder, *folder.parents) if not place.exists()]
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                # Two runs that start together must not get the same folder.
                folder.mkdir()
                is_ours = True
            except FileExistsError:
                if path is None:
                    continue
            break
        with tempfile.TemporaryFile(dir=folder):
            pass
        yield folder
    except BaseException as error:
        if is_ours:
            shutil.rmtree(folder, ignore_errors=True)
        for place in new:
            # Another run may have been put there since.
            with suppress(OSError):
                place.rmdir()
        if isinstance(error, OSError):
            raise InputError(f"Nothing can be written into {path or 'runs'}: {error}") from error
        raise


def _candidates(data: Path) -> Iterator[Path]:
    name = data.resolve().name.split(".")[0] or "run"
    yield Path("runs") / name
    for number in itertools.count(2):
        yield Path("runs") / f"{name}-{number}"


@contextmanager
def all_together(folder: Path, outdated: str) -> Iterator[Path]:
    """A folder beside the files of a run: what is written there takes their places at the end, and not before.

    Then the file that it has made outdated is gone.
    """
    new = Path(tempfile.mkdtemp(dir=folder, prefix=".new-"))
    try:
        yield new
        with _undisturbed():
            for file in sorted(new.iterdir()):
                file.replace(folder / file.name)
            (folder / outdated).unlink(missing_ok=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits, where the system has a way to say so."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def keep_apart(out: Path, *inputs: str | Path) -> None:
    """Raise an InputError where a file that is to be written is one of those that are read."""
    for path in inputs:
        if out.exists() and Path(path).exists() and out.samefile(path):
            raise InputError(f"{out} is read by this command, and would be lost: name another file (--out).")


def model_of(run: str | Path) -> Path:
    """The model file of a run folder; a model file itself will do."""
    path = Path(run)
    if path.is_file():
        if path.suffix.lower() in _DATA:
            raise InputError(f"{path} is not a run: first comes the run, then the data.")
        return path
    if not path.is_dir():
        raise InputError(f"There is no run {path}: pass the folder that pollux fit has written.")
    if not (path / MODEL).is_file():
        raise InputError(f"{path} is not the folder of a run: it has no {MODEL}.")
    return path / MODEL


def settings_of(run: str | Path) -> Settings | None:
    """The settings of a run folder, where there are any."""
    path = Path(run) / SETTINGS
    return from_toml(path, {}) if path.is_file() else None


def summary_of(run: str | Path) -> dict[str, Any]:
    """What a run has found, where its folder says so."""
    path = Path(run) / SUMMARY
    try:
        summary = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(summary, dict):
        return {}
    # Whoever edits the file may put anything there.
    return {name: value for name, value in summary.items() if isinstance(value, _KINDS.get(name, object))}
