"""Runs and their records, stored as JSON lines in a file that is only appended to, so that no finished run is lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias

from pollux.errors import InputError
from pollux.io.parsing import decode_json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_BEGINNING = b'{"experiment": "'

Settings: TypeAlias = Mapping[str, Any]
"""The settings that distinguish the runs of a grid, apart from the seed: names, numbers and booleans."""


@dataclass(frozen=True)
class Run:
    """One run of an experiment: its settings, and its number among the runs of these settings, counted from 0."""

    experiment: str
    settings: Settings
    seed: int

    @property
    def key(self) -> str:
        """A short identifier, the same for the same run."""
        text = json.dumps([self.experiment, dict(self.settings), self.seed], sort_keys=True)
        return f"{self.experiment}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def random_state(self) -> int:
        """The seed of the random generators: 31 bits of the key, so that different settings get different seeds."""
        return int(self.key[-8:], 16) >> 1

    def has(self, wanted: Settings) -> bool:
        """Whether the run has all the wanted settings; a setting that it lacks counts as None."""
        return all(self.settings.get(name) == value for name, value in wanted.items())

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{self.experiment} {settings} seed={self.seed}"


@dataclass(frozen=True)
class Record:
    """A finished run and its metrics."""

    run: Run
    metrics: Mapping[str, Any]
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    finished: str = ""


def read(path: Path) -> dict[str, Record]:
    """Read the records of a file, by the keys of their runs; if a run is recorded twice, the later record counts."""
    if not path.exists():
        return {}
    lines = path.read_bytes().split(b"\n")
    if _is_incomplete(lines[-1]):
        lines.pop()
    found = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                record = _decode(line)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise InputError(
                    f"Line {number} of {path} is not a record of a run. Mend or delete that line, or name another "
                    "folder by --out."
                ) from None
            found[record.run.key] = record
    return found


def append(path: Path, record: Record) -> None:
    """Append a record to the file as a line of its own, and flush it to disk."""
    line = encode(record)
    with path.open("a+b", buffering=0) as file:
        if fcntl is not None:
            # Other programs that append wait until the file is closed. Some file systems have no locks; even there each
            # line is written in one call.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        end = _repair_end(file)
        try:
            _write(file, line)
        except OSError:
            # The disk is full: remove the incomplete line.
            file.truncate(end)
            raise
        os.fsync(file.fileno())


def _write(file: IO[bytes], line: bytes) -> None:
    while line:
        line = line[file.write(line) :]


def _repair_end(file: IO[bytes]) -> int:
    """Remove an incomplete last line, or add a missing newline; return the size of the file."""
    file.seek(0)
    content = file.read()
    size, last = len(content), content[content.rfind(b"\n") + 1 :]
    if _is_incomplete(last):
        size -= len(last)
        file.truncate(size)
    elif last:
        _write(file, b"\n")
        size += 1
    return size


def _is_incomplete(last: bytes) -> bool:
    """Whether the text after the last newline is an incomplete record, left by a program that was killed."""
    # After a power failure, the line may be padded with zeros.
    written = last.rstrip(b"\0")
    if not last or not (written.startswith(_BEGINNING) or _BEGINNING.startswith(written)):
        return False
    try:
        json.loads(last)
    except ValueError:
        return True
    return False


def encode(record: Record) -> bytes:
    """Return the record as a line of JSON. JSON has no NaN: numbers that are not finite become null, read as NaN."""
    fields = asdict(record)
    fields["metrics"] = _plain(fields["metrics"])
    return (json.dumps({**fields.pop("run"), **fields}, ensure_ascii=False, allow_nan=False) + "\n").encode()


def as_read(record: Record) -> Record:
    """Return the record as it will be read from the file."""
    return _decode(encode(record))


def _plain(value: Any) -> Any:
    """Convert a value to what JSON can represent: NumPy and torch numbers become Python numbers."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _decode(line: bytes) -> Record:
    fields: dict[str, Any] = decode_json(line)
    run = Run(fields.pop("experiment"), fields.pop("settings"), fields.pop("seed"))
    record = Record(run, _with_nan(fields.pop("metrics")), **fields)
    values = (run.experiment, run.seed, run.settings, record.metrics, record.versions, record.seconds, record.finished)
    kinds = (str, int, dict, dict, dict, int | float, str)
    if not all(map(isinstance, values, kinds)) or not isinstance(record.warnings, list | tuple):
        raise TypeError
    return record


def _with_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_nan(part) for part in value]
    return math.nan if value is None else value
