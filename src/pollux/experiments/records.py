"""Records of runs, a line of JSON each, in a file that only grows: what has ended is never lost."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pollux.errors import InputError
from pollux.experiments.experiment import Record, Run


def read(path: Path) -> dict[str, Record]:
    """The records of a file, by the keys of their runs; of a run that was done twice, the later one."""
    if not path.exists():
        return {}
    # What follows the end of the last line was being written when a program was killed.
    whole = path.read_bytes().split(b"\n")[:-1]
    records = [_parse(line, path, number) for number, line in enumerate(whole, 1) if line.strip()]
    return {record.run.key: record for record in records}


def _parse(line: bytes, path: Path, number: int) -> Record:
    try:
        fields: dict[str, Any] = json.loads(line)
        return Record(Run(fields.pop("experiment"), fields.pop("settings"), fields.pop("seed")), **fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"Line {number} of {path} is no record of a run. Mend or delete that line, or name another folder by --out."
        ) from None


def cut_torn_line(path: Path) -> None:
    """Remove half a line that a killed program left at the end, so that the next one stands on its own."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def append(path: Path, record: Record) -> None:
    """Write a record behind those of the file, in one piece, and see that it reaches the disk."""
    fields = asdict(record)
    line = json.dumps({**fields.pop("run"), **fields}, ensure_ascii=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Unbuffered: several programs may append to one file, each a whole line at a time.
    with path.open("ab", buffering=0) as file:
        file.write(line.encode())
        os.fsync(file.fileno())
