"""The folder of a run: what is in it, and how it gets there whole."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pollux.app.settings import Settings, from_toml
from pollux.data.sources import FORMATS
from pollux.errors import InputError, NothingLearnedError
from pollux.io.atomic import write_text
from pollux.io.locks import BusyError, locked

MODEL = "model.safetensors"
SETTINGS = "run.toml"
SUMMARY = "summary.json"
CLUSTERS = "clusters.csv"
STREAMED_CLUSTERS = "clusters.parquet"
REPORT = "report.html"
CHECKPOINTS = "checkpoints"
"""From which a finished training can be prolonged."""
UNFINISHED = "unfinished"
"""The checkpoints and settings of a training that has not ended; what else is in the folder is of an older one."""

# What is made and not yet in its place; all that is left of it by a process that was killed.
_NEW = ".new-"
_KINDS: dict[str, Any] = {"notes": list, "rows": int, "rows_dropped": int, "resumed_after": list, "fingerprint": str}
_DATA = tuple(ending for endings in FORMATS.values() for ending in endings)


def check_free(path: str | Path, overwrite: bool) -> None:
    """Raise an InputError where a run cannot go into this folder: it must be new or empty, unless it may be lost."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: --out names a folder.")
    if folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()) and not overwrite:
        if (folder / UNFINISHED).is_dir():
            check_idle(folder)
            raise InputError(
                f"{folder} holds a training that has not ended: go on with it (pollux fit --resume {folder}), choose "
                "another folder (--out), or pass --overwrite."
            )
        raise InputError(f"The folder {folder} is not empty: choose another (--out), or pass --overwrite.")


def check_idle(path: str | Path) -> None:
    """Raise a BusyError where another run is using this folder: at once, not after hours of reading."""
    if Path(path).is_dir():
        with locked(path):
            pass


@contextmanager
def create_run_folder(path: str | Path | None, data: str | Path, overwrite: bool = True) -> Iterator[Path]:
    """The folder of a new run, made before work that would be lost without it; should that fail, it is gone again.

    Without a path it is named after the data. ``overwrite`` is whether it may hold an older run.
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
        with locked(folder):
            # Another run may have ended there since it was looked at.
            check_free(folder, overwrite)
            # Of a training that was given up.
            shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
            _remove_leftovers(folder)
            with _keep_checkpoints(folder):
                yield folder
    except BaseException as error:
        if (folder / UNFINISHED).is_dir() or isinstance(error, BusyError):
            raise
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


class StoppedWithCheckpoint(KeyboardInterrupt):
    """The run was stopped, and can go on from what is in its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped; what was learned is in {folder}")
        self.folder = folder


@contextmanager
def _keep_checkpoints(folder: Path) -> Iterator[None]:
    """A training in this folder: its checkpoints are gone again only where it ends before it has learned anything."""
    # The first one is written before the first step.
    before = max(_newest_checkpoint(folder), 1)
    try:
        yield
    except InputError as error:
        if _newest_checkpoint(folder) > before and not isinstance(error, NothingLearnedError):
            raise InputError(f"{error} What was learned is safe, for: pollux fit --resume {folder}") from error
        shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
        raise
    except KeyboardInterrupt as error:
        if not (folder / UNFINISHED).is_dir():
            raise
        raise StoppedWithCheckpoint(folder) from error
    except OSError as error:
        if not (folder / UNFINISHED).is_dir():
            raise
        raise _still_safe(folder, error) from error


def _newest_checkpoint(folder: Path) -> int:
    """The number of the last checkpoint of the training in a folder; zero where there is none."""
    found = sorted((folder / UNFINISHED).glob("checkpoint-*.safetensors"))
    return int(found[-1].stem.rpartition("-")[2]) if found else 0


def _still_safe(folder: Path, error: OSError) -> OSError:
    return OSError(f"{error}. What was learned is safe: once that is mended, pollux fit --resume {folder}")


def begin_training(folder: Path, settings: str) -> Path:
    """Where the checkpoints of a training in this folder go, beside its settings."""
    place = folder / UNFINISHED
    if not place.is_dir():
        with _appear_whole(place) as new:
            new.mkdir()
            write_text(new / SETTINGS, settings)
    elif not (place / SETTINGS).exists() or (place / SETTINGS).read_text(encoding="utf-8") != settings:
        # It is being prolonged, and will go on to its new end if it is stopped before.
        write_text(place / SETTINGS, settings)
    return place


@contextmanager
def _appear_whole(place: Path) -> Iterator[Path]:
    """A path for a folder that is in its place once it is whole."""
    new = place.with_name(f"{_NEW}{place.name}")
    try:
        yield new
        new.replace(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed has left half done."""
    for leftover in [*folder.glob(f"{_NEW}*"), *folder.glob(f"{UNFINISHED}/.{SETTINGS}.*")]:
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def reopen_run_folder(path: Path) -> Iterator[Path]:
    """The folder of a run that goes on; what was finished stays as it is until there is more."""
    with locked(path):
        _remove_leftovers(path)
        if (path / UNFINISHED).is_dir():
            # It is kept whatever happens.
            try:
                yield path
            except KeyboardInterrupt as error:
                raise StoppedWithCheckpoint(path) from error
            except OSError as error:
                raise _still_safe(path, error) from error
            return
        if not any((path / CHECKPOINTS).glob("*.safetensors")):
            raise InputError(f"{path} has no checkpoints to go on from: start a new run, pollux fit --config.")
        with _appear_whole(path / UNFINISHED) as new:
            shutil.copytree(path / CHECKPOINTS, new)
        with _keep_checkpoints(path):
            yield path


def find_unfinished(path: str | Path | None, data: str, settings: Settings) -> Path | None:
    """The folder in which a launcher that starts processes again finds the training of these settings, if there is any.

    Without a path it is one of those named after the data.
    """
    for folder in _newest_first(path, data):
        found = folder / UNFINISHED / SETTINGS
        if found.is_file() and from_toml(found, {}) == settings:
            return folder
    return None


def find_finished(path: str | Path | None, data: str, settings: Settings) -> Path | None:
    """The folder in which the training of these settings has ended already, if there is any."""
    for folder in _newest_first(path, data):
        if (folder / SUMMARY).is_file() and read_settings(folder) == settings:
            return folder
    return None


def _newest_first(path: str | Path | None, data: str) -> list[Path]:
    """The folder of this path, or those that are named after the data."""
    if path is not None:
        return [Path(path)]
    return list(itertools.takewhile(Path.exists, _candidates(Path(data))))[::-1]


def end_training(folder: Path) -> None:
    """The training has ended, and its results are in place."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    (folder / UNFINISHED).replace(folder / CHECKPOINTS)
    (folder / CHECKPOINTS / SETTINGS).unlink(missing_ok=True)


@contextmanager
def replace_results(folder: Path, outdated: Sequence[str]) -> Iterator[Path]:
    """A folder beside the files of a run: what is written there takes their places at the end, and not before.

    Then the files that it has made outdated are gone, and the training has ended.
    """
    new = Path(tempfile.mkdtemp(dir=folder, prefix=_NEW))
    try:
        yield new
        with _hold_interrupts():
            for file in sorted(new.iterdir()):
                file.replace(folder / file.name)
            for name in outdated:
                (folder / name).unlink(missing_ok=True)
            end_training(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextmanager
def _hold_interrupts() -> Iterator[None]:
    """Ctrl-C waits, where the system has a way to say so."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_not_input(out: Path, *inputs: str | Path) -> None:
    """Raise an InputError where a file that is to be written is one of those that are read."""
    for path in inputs:
        if out.exists() and Path(path).exists() and out.samefile(path):
            raise InputError(f"{out} is read by this command, and would be lost: name another file (--out).")


def model_path(run: str | Path) -> Path:
    """The model file of a run folder; a model file itself will do."""
    path = Path(run)
    if path.is_file():
        if path.suffix.lower() in _DATA:
            raise InputError(f"{path} is not a run: first comes the run, then the data.")
        return path
    if not path.is_dir():
        raise InputError(f"There is no run {path}: pass the folder that pollux fit has written.")
    if not (path / MODEL).is_file():
        if (path / UNFINISHED).is_dir():
            raise InputError(f"The training of {path} has not ended: go on with it, pollux fit --resume {path}.")
        raise InputError(f"{path} is not the folder of a run: it has no {MODEL}.")
    return path / MODEL


def read_settings(run: str | Path) -> Settings | None:
    """The settings of a run folder, where there are any."""
    path = Path(run) / SETTINGS
    return from_toml(path, {}) if path.is_file() else None


def read_settings_to_resume(run: str | Path) -> Settings | None:
    """Those of the training in a run folder that has not ended, or else of the one that has."""
    path = Path(run) / UNFINISHED / SETTINGS
    return from_toml(path, {}) if path.is_file() else read_settings(run)


def read_summary(run: str | Path) -> dict[str, Any]:
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
