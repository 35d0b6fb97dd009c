"""What an unfinished run leaves, and who may use it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from pollux.clustering import CollapseWarning
from pollux.errors import InputError
from pollux.io.locks import BusyError
from pollux.lab.grid import UnfinishedRun, unfinished_path


def test_what_is_left_of_a_run_is_used_by_the_same_code_alone(tmp_path: Path) -> None:
    """The seconds and warnings of a process that was killed count; those of other code do not."""
    folder = unfinished_path(tmp_path, "toy-1")
    notes, unfinished = folder / "run.json", UnfinishedRun(folder)
    with UnfinishedRun(folder).open():
        (folder / "fit").mkdir()
        with pytest.raises(BusyError):
            unfinished.open().__enter__()
    notes.write_text(json.dumps({**json.loads(notes.read_text()), "seconds": 100.0, "warnings": ["W: odd"]}))
    with unfinished.open():
        warnings.warn("odder", CollapseWarning, stacklevel=1)
    assert 100 < unfinished.seconds < 160
    assert unfinished.warnings == ["CollapseWarning: odder", "W: odd"]
    assert (folder / "fit").exists()
    for other in (json.dumps({"code": "other", "seconds": 100.0, "warnings": ["W: odd"]}), "{", "[]"):
        (folder / "fit").mkdir(exist_ok=True)
        notes.write_text(other)
        anew = UnfinishedRun(folder)
        with anew.open():
            assert not (folder / "fit").exists()
        assert anew.seconds < 60
        assert not anew.warnings
    (folder / "fit").mkdir()
    with unfinished.open():
        unfinished.note(curve=[[1, 0.5, 3]])
    with pytest.raises(InputError), unfinished.open():
        raise InputError("The checkpoints are of another training.")
    assert not (folder / "fit").exists()
    # A run that begins anew has neither the scores nor the seconds of what was given up.
    again = UnfinishedRun(folder)
    with again.open():
        assert again.scores == {}
    assert again.seconds < 60
    unfinished.remove()
    unfinished.remove()
    assert not (tmp_path / "unfinished").exists()
