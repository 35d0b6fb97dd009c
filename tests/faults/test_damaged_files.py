"""Files that were damaged on their way are refused in words, or read; they never end the process."""

import os
from pathlib import Path

import pytest

import damaged_files

IS_FULL = os.environ.get("POLLUX_FAULTS") == "full"
COPIES = 2_000 if IS_FULL else 12
# Each takes a process; what pyarrow believes is where they once died.
SHORT = ("plain.parquet", "plain.feather", "stream.arrow")


@pytest.mark.parametrize("name", damaged_files.NAMES if IS_FULL else SHORT)
def test_damaged_files_are_read_or_refused(tmp_path: Path, name: str) -> None:
    assert not damaged_files.read_in_processes(name, COPIES, tmp_path)


@pytest.mark.parametrize("name", damaged_files.NAMES)
def test_whole_files_are_read(tmp_path: Path, name: str) -> None:
    """So that what is damaged would be read."""
    folder = tmp_path / "images" if name in damaged_files.IMAGES else tmp_path
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(damaged_files.sound_file(name))
    assert damaged_files.read_in_every_way(folder if name in damaged_files.IMAGES else folder / name)
