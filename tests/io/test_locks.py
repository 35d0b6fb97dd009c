"""A folder is locked for one process, until it ends the block or itself ends."""

from pathlib import Path

import pytest

from pollux.errors import InputError
from pollux.io import locks
from pollux.io.locks import BusyError, locked


def test_a_locked_folder_is_refused_at_once_and_free_again_afterwards(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(BusyError, match="Another run is using"), locked(tmp_path):
            pass
        (tmp_path / "other").mkdir()
        with locked(tmp_path / "other"):
            pass
    with locked(tmp_path):
        pass
    assert issubclass(BusyError, InputError)


def test_an_error_frees_the_folder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), locked(tmp_path):
        raise RuntimeError
    with locked(tmp_path):
        pass


def test_a_file_system_without_locks_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_try_lock", lambda handle: False)
    with locked(tmp_path), locked(tmp_path):
        assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]
