"""The folder of a run: what is in it, and how it gets there whole."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pollux.errors import InputError
from pollux.runs.settings import Settings, from_toml

MODEL = "model.safetensors"
SETTINGS = "run.toml"
SUMMARY = "summary.json"
CLUSTERS = "clusters.csv"
REPORT = "report.html"


def claim(path: str | Path | None, data: str | Path, overwrite: bool) -> Path:
    """A folder for a new run of the data; one that was given must be new or empty, unless it may be overwritten."""
    if path is None:
        name = Path(data).resolve().name.split(".")[0] or "run"
        return next(folder for folder in _candidates(Path("runs"), name) if not folder.exists())
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: --out names a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise InputError(f"The folder {folder} is not empty: choose another (--out), or pass --overwrite.")
    return folder


def _candidates(parent: Path, name: str) -> Iterator[Path]:
    yield parent / name
    number = 2
    while True:
        yield parent / f"{name}-{number}"
        number += 1


def make(folder: Path) -> None:
    """Make the folder, before work that would be lost without it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"Nothing can be written into {folder}: {error}") from error


def model_of(run: str | Path) -> Path:
    """The model file of a run folder; a model file itself will do."""
    path = Path(run)
    if path.is_file():
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
    return summary if isinstance(summary, dict) else {}
