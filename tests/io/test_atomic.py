"""Files appear whole or not at all."""

import errno
import os
import stat
import tempfile
from pathlib import Path

import pytest

from pollux.io.atomic import in_place, write_text


def test_a_file_is_replaced_when_the_block_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with in_place(path) as temporary:
        temporary.write_text("new")
        assert temporary.suffix == ".txt"
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_older_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def fail() -> None:
        with in_place(path) as temporary:
            temporary.write_text("half of the n")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_text(tmp_path / "text", "é")
    assert (tmp_path / "text").read_text(encoding="utf-8") == "é"
    assert (tmp_path / "text").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_only_files_are_replaced_and_links_stay(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not an ordinary file"), in_place(tmp_path / "pipe"):
        pass
    with pytest.raises(IsADirectoryError, match="name a file"), in_place(tmp_path):
        pass
    with pytest.raises(FileNotFoundError, match="make it first"), in_place(tmp_path / "none" / "file"):
        pass
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    with in_place(tmp_path / "link.txt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_contents_are_on_the_disk_before_the_name_and_the_name_when_the_block_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed, path = list[tuple[bool, bool]](), tmp_path / "file.txt"

    def flush(handle: int) -> None:
        flushed.append((stat.S_ISDIR(os.fstat(handle).st_mode), path.exists()))

    monkeypatch.setattr(os, "fsync", flush)
    with in_place(path) as temporary:
        temporary.write_text("new")
    assert flushed == [(False, False), (True, True)]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number), "/somewhere/.table.csv.wu45ddg0.csv")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with pytest.raises(OSError, match=rf"table\.csv cannot be written: the folder {tmp_path} takes no") as found:
        write_text(tmp_path / "table.csv", "text")
    assert "wu45ddg0" not in str(found.value)
    assert os.strerror(number) in str(found.value)
