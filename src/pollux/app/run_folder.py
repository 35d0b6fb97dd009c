"""The folder of a run: its files, and how they are written atomically."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from msgspec import Meta

from pollux.app.settings import STANDARD_INPUT, Settings, from_toml
from pollux.app.signals import hold_signals, on_stop
from pollux.data.sources import FORMATS
from pollux.errors import InputError, NothingLearnedError, did_you_mean, option
from pollux.io.atomic import checkpoint_files, leftovers, write_text
from pollux.io.locks import BusyError, locked
from pollux.io.parsing import Finite, parse_json

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering
    from pollux.data.encoding import Encoding

MODEL = "model.safetensors"
SETTINGS = "run.toml"
SUMMARY = "summary.json"
CLUSTERS = "clusters.csv"
STREAMED_CLUSTERS = "clusters.parquet"
REPORT = "report.html"
CHECKPOINTS = "checkpoints"
"""The checkpoint from which a finished training can be prolonged."""
UNFINISHED = "unfinished"
"""The checkpoints and settings of an unfinished training; other files in the folder are of an older one."""

FIRST = 1
"""The number of the checkpoint before the first step, when nothing has been learned."""

# Prefix of files that are not yet in place; all that a killed process leaves behind.
_NEW = ".new-"
Rows = Annotated[int, Meta(ge=0, le=2**53)]
_DATA = tuple(ending for endings in FORMATS.values() for ending in endings)


def check_free(path: str | Path, overwrite: bool) -> None:
    """Raise an InputError if a run cannot be written to this folder: it must be new or empty, unless overwritten."""
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
    """Raise a BusyError if another run is using this folder: at once, not after hours of reading."""
    if Path(path).is_dir():
        with locked(path):
            pass


def choose_folder(out: str | None, data: str, place: str) -> Path:
    """The folder that was given, or a new one for these data below ``place``."""
    return Path(out) if out is not None else next(one for one in candidates(data, place) if not one.exists())


def candidates(data: str | Path, under: str = "runs") -> Iterator[Path]:
    """Folder names from those of the data: runs/iris, runs/iris-2, …"""
    name = "stdin" if data == STANDARD_INPUT else Path(data).resolve().name.split(".")[0] or "run"
    yield Path(under) / name
    yield from (Path(under) / f"{name}-{number}" for number in itertools.count(2))


@contextmanager
def create_run_folder(path: str | Path | None, data: str | Path, overwrite: bool = True) -> Iterator[Path]:
    """Create the folder of a new run before any work is done; it is removed again if the run fails.

    Without a path it is named after the data. ``overwrite`` says whether it may hold an older run.
    """
    folder, made = Path(path or "runs"), list[Path]()
    on_stop.says = lambda: "Stopped; nothing was written."
    try:
        for folder in candidates(data) if path is None else [Path(path)]:
            made = [place for place in (folder, *folder.parents) if not place.exists()]
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                # mkdir fails if it exists, so that two runs that start together do not get the same folder.
                folder.mkdir()
            except FileExistsError:
                made = [place for place in made if place != folder]
                if path is None:
                    continue
            break
        with tempfile.TemporaryFile(dir=folder):
            pass
        with locked(folder):
            # Check again, because another run may have ended there meanwhile.
            check_free(folder, overwrite)
            if (folder / UNFINISHED).is_dir():
                # Discard an abandoned training by renaming it first, which is atomic.
                (folder / UNFINISHED).replace(folder / f"{_NEW}given-up")
            _remove_leftovers(folder)
            with _keep_checkpoints(folder):
                yield folder
    except BaseException as error:
        if isinstance(error, BusyError):
            raise
        # Remove what this run created, if it is empty: nothing that somebody may want is ever removed.
        with hold_signals(), suppress(OSError):
            if folder in made:
                _remove_leftovers(folder)
                (folder / ".lock").unlink(missing_ok=True)
            for place in made:
                place.rmdir()
        if isinstance(error, OSError) and not (folder / UNFINISHED).is_dir():
            raise InputError(f"Nothing can be written into {path or 'runs'}: {error}") from error
        raise


@contextmanager
def reopen_run_folder(path: Path) -> Iterator[Path]:
    """Open the folder of a run that is continued; finished results stay until they are replaced."""
    with locked(path):
        _remove_leftovers(path)
        is_unfinished = (path / UNFINISHED).is_dir()
        if not is_unfinished and (path / CHECKPOINTS).is_dir():
            with _create_atomically(path / UNFINISHED) as new:
                shutil.copytree(path / CHECKPOINTS, new)
        with _keep_checkpoints(path, in_any_case=is_unfinished):
            yield path


@contextmanager
def _keep_checkpoints(folder: Path, in_any_case: bool = False) -> Iterator[None]:
    """Run a training in this folder: its checkpoints are removed only if it ends before it has learned anything."""
    again = f"pollux fit --resume {folder}"
    anew = f"{again} --overwrite"

    def describe_stop() -> str:
        if newest_checkpoint(folder) > FIRST:
            return (
                f"Stopped. A checkpoint of what was learned by then is in {folder}, and no model yet. To go on: {again}"
            )
        if (folder / UNFINISHED).is_dir():
            return f"Stopped before a checkpoint of anything learned was written. To start anew: {anew}"
        return "Stopped; nothing was written."

    on_stop.says = describe_stop
    before = max(newest_checkpoint(folder), FIRST)
    try:
        yield
    except BaseException as error:
        newest, is_input = newest_checkpoint(folder), isinstance(error, InputError)
        has_learned = newest > before and not isinstance(error, NothingLearnedError)
        if not in_any_case and not (has_learned if is_input else newest):
            with hold_signals():
                shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
        elif is_input and has_learned:
            raise InputError(f"{error} What was learned is safe, for: {again}") from error
        elif isinstance(error, OSError):
            is_safe = "What was learned by the last checkpoint is safe: once that is mended,"
            is_lost = "Nothing of what was learned could be written. Once that is mended, from the beginning:"
            raise OSError(f"{error}. {f'{is_safe} {again}' if newest > FIRST else f'{is_lost} {anew}'}") from error
        raise


def newest_checkpoint(folder: Path) -> int:
    """The number of the last checkpoint of the training in a folder; zero if there is none."""
    return max(checkpoint_files(folder / UNFINISHED), default=0)


def has_learned(folder: Path) -> bool:
    """Whether a training that is resumed in this folder is past its first step."""
    place = folder / UNFINISHED
    return max(checkpoint_files(place if place.is_dir() else folder / CHECKPOINTS), default=0) > FIRST


def begin_training(folder: Path, settings: str) -> Path:
    """Create the folder for the checkpoints of a training, with its settings; returns its path."""
    place = folder / UNFINISHED
    if not place.is_dir():
        with _create_atomically(place) as new:
            new.mkdir()
            write_text(new / SETTINGS, settings)
    elif not (place / SETTINGS).exists() or (place / SETTINGS).read_text(encoding="utf-8") != settings:
        # It is being prolonged: if it is stopped, it can be resumed up to its new end.
        write_text(place / SETTINGS, settings)
    return place


@contextmanager
def _create_atomically(place: Path) -> Iterator[Path]:
    """Yield a temporary path for a folder that is moved into place once it is complete."""
    new = place.with_name(f"{_NEW}{place.name}")
    try:
        yield new
        new.replace(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _remove_leftovers(folder: Path) -> None:
    """Remove partial files of a process that was killed."""
    for leftover in [*folder.glob(f"{_NEW}*"), *leftovers(folder / UNFINISHED / SETTINGS)]:
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def replace_results(folder: Path, outdated: Sequence[str] = ()) -> Iterator[Path]:
    """Yield a folder whose files replace those of a run at the end, and not before.

    Then files in ``outdated`` are removed, and the training has ended.
    """
    new = Path(tempfile.mkdtemp(dir=folder, prefix=_NEW))
    try:
        yield new
        with hold_signals():
            for file in sorted(new.iterdir()):
                file.replace(folder / file.name)
            for name in outdated:
                (folder / name).unlink(missing_ok=True)
            if (folder / UNFINISHED).is_dir():
                shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
                (folder / UNFINISHED).replace(folder / CHECKPOINTS)
                (folder / CHECKPOINTS / SETTINGS).unlink(missing_ok=True)
            on_stop.says = lambda: f"Stopped; what was found is in {folder}, whole."
    finally:
        with hold_signals():
            shutil.rmtree(new, ignore_errors=True)


def find_run(path: str | Path | None, data: str, settings: Settings, finished: bool) -> Path | None:
    """The folder of the training of these settings, or of its results, for a launcher that restarts processes.

    Without a path it is one of those named after the data.
    """
    folders = itertools.takewhile(Path.exists, candidates(data)) if path is None else [Path(path)]
    for folder in reversed(list(folders)):
        found = folder / SETTINGS if finished else folder / UNFINISHED / SETTINGS
        has_ended = (folder / SUMMARY).is_file()
        if found.is_file() and (has_ended or not finished) and settings.is_same_run(from_toml(found, {})):
            return folder
    return None


def check_not_input(out: Path, *inputs: str | Path) -> None:
    """Raise an InputError if an output file is one of the input files."""
    for path in inputs:
        if out.exists() and Path(path).exists() and out.samefile(path):
            raise InputError(f"{out} is read by this command, and would be lost: name another file (--out).")


def no_run(path: Path) -> InputError:
    """The error for a folder that does not exist, with a suggestion of which one may have been meant."""
    there = [each.name for each in path.parent.iterdir() if each.is_dir()] if path.parent.is_dir() else []
    meant = did_you_mean(path.name, there)
    return InputError(f"There is no run {path}: pass the folder that pollux fit has written.{meant}")


def model_path(run: str | Path) -> Path:
    """The model file of a run folder; a model file is returned as is."""
    path = Path(run)
    if path.is_file():
        if path.suffix.lower() in _DATA:
            raise InputError(
                f"{path} is data, and a run is needed, the folder that pollux fit {path} writes; data come after it."
            )
        return path
    if not path.is_dir():
        raise no_run(path)
    if not (path / MODEL).is_file():
        if (path / UNFINISHED).is_dir():
            raise InputError(f"The training of {path} has not ended: go on with it, pollux fit --resume {path}.")
        raise InputError(f"{path} is not the folder of a run: it has no {MODEL}.")
    return path / MODEL


def load_run(
    run: str | Path, missing: str | None = None, *, with_free: bool = False
) -> tuple[GeminiClustering, Encoding]:
    """Load the clustering of a run and its encoding, optionally with another treatment of missing values."""
    path = model_path(run)
    # Imported late, because it imports torch.
    from pollux.clustering import GeminiClustering, load

    try:
        clustering = load(path)
    except ValueError as error:
        raise InputError(str(error)) from error
    encoding = clustering.fitted_.encoding if isinstance(clustering, GeminiClustering) else None
    if encoding is None or not isinstance(clustering, GeminiClustering):
        raise InputError(f"{path} was saved from Python, without the columns it reads: load it with pollux.load there.")
    if clustering.fitted_.is_free and not with_free:
        raise InputError(
            f"A free table of probabilities cannot predict new samples. The clusters of its own rows are in "
            f"{CLUSTERS}; for new ones train another model, such as {option('model', 'linear')}."
        )
    if missing is not None:
        encoding = encoding.with_missing(missing)
        clustering.fitted_ = replace(clustering.fitted_, encoding=encoding)
    return clustering, encoding


def find_data(run: str | Path, settings: Settings | None, given: str | None, how: str) -> str:
    """The data that a run was trained on, unless others are given; an InputError that says ``how`` to give them."""
    if given is not None:
        return given
    if settings is None or not settings.data:
        raise InputError(f"{run} does not say which data it was trained on: pass them, {how}.")
    if settings.data == STANDARD_INPUT:
        raise InputError(f"The data of {run} came from standard input: pass them again, {how} (- if they still do).")
    if not Path(settings.data).exists():
        raise InputError(f"{settings.data} is no longer there: say where the data are, {how}.")
    return settings.data


def read_settings(run: str | Path) -> Settings | None:
    """The settings of a run folder, if there are any."""
    path = Path(run) / SETTINGS
    return from_toml(path, {}) if path.is_file() else None


class MadeVectors(TypedDict):
    """How vectors were made: the encoder, and the column of texts, or the size of images in pixels.

    ``data`` is the name of their file or folder, ``columns`` are all columns of it, and ``beside`` those that stand
    beside the vectors; files of older versions lack them.
    """

    encoder: str
    fingerprint: str
    text: str | None
    image_size: Annotated[int, Meta(ge=1, le=4096)]
    data: NotRequired[str]
    columns: NotRequired[list[str]]
    beside: NotRequired[list[str]]


class Summary(TypedDict, total=False):
    """The fields of summary.json that are read again; older versions lack some of them."""

    rows: Rows
    rows_dropped: Rows
    rows_learned_from: Rows
    streamed: bool
    fingerprint: str
    clusters: list[dict[str, Finite | str]]
    clusters_found: Rows
    clusters_asked_for: Rows
    stability: Finite | None
    structure: dict[str, Finite | str | dict[str, Finite | str]] | None
    scores: dict[str, Finite] | None
    epochs: Rows
    interrupted: bool
    diverged: bool
    resumed_after: list[Rows]
    notes: list[str]
    seconds: dict[str, Finite]
    vectors: MadeVectors


def read_summary(run: str | Path) -> Summary:
    """The summary of a run, if its folder has one."""
    path = Path(run) / SUMMARY
    if not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return parse_json(text, Summary, path)
