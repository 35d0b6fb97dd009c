"""Files that were damaged on their way are refused in words, or read; they never end the process."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import damaged_files
from fault_runs import Child

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


def read_text_that_is_said_to_have_no_gaps(path: str) -> None:
    """How many values and gaps there are is counted in the same footer: pyarrow does not catch that they differ."""
    parquet.write_table(pa.table({"number": [1.0, 2.0], "text": ["a", None]}), path)
    content = Path(path).read_bytes()
    optional, required = b"\x25\x02\x18\x04text", b"\x25\x00\x18\x04text"
    assert content.count(optional) == 1
    Path(path).write_bytes(content.replace(optional, required))
    damaged_files.read_in_every_way(Path(path))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no such processes")
def test_a_footer_that_contradicts_itself_ends_no_process(tmp_path: Path) -> None:
    ended = Child(tmp_path, read_text_that_is_said_to_have_no_gaps, "x.parquet").end()
    assert ended.code == 0, ended
