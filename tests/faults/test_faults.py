"""Whatever ends a training, nothing that it has learned is lost, and what it leads to is the same bit for bit.

============================  =========================================================================================
what happens                  what holds
============================  =========================================================================================
kill -9, at random moments    resumed as often as it takes, it ends with the same bits: in closed form, by autograd,
                              with kept batches, restarts, a free table, streamed rows; scripts with networks of their
                              own, restarts one by one, loaders that shuffle
kill -9, at every change of   the same; and no file that is half written is ever taken for a whole one
a file or folder
damaged checkpoints           the one before is taken and that is said, to the same bits; if none is whole, an error.
                              Those of other data or settings are refused by name. Never is a training begun anew
a full or read-only disk      training goes on without checkpoints and says so; results that cannot be written are not
                              lost, and --resume writes them
a process of several dies     torchrun starts them again: the same bits; nobody is left behind
numbers explode               exit code 3 or 2, a message; a model that is written is finite, as are all checkpoints
two runs in one folder        the second is refused at once; the lock is gone with whoever held it
Ctrl-C, SIGTERM               exit code 130, a line; --resume leads to the same bits; a second Ctrl-C leaves at once
too little memory             the batch size that fits is told, and does; streams need none
============================  =========================================================================================

All of it with processes and signals as they are. ``make test`` runs a part of it; ``make test-faults`` all.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fault_runs
from coverings import IS_FULL, in_full
from data_files import frame, tree, write_table
from fault_runs import Child, Ended, contents, results
from pollux import GeminiClustering, Training, load
from pollux.app.run_folder import has_learned
from pollux.errors import InputError
from pollux.io import tensors as checked_tensors
from pollux.training import Checkpoints, NotFiniteError, NumericalWarning
from pollux.training.checkpoints import FORMAT, VERSION, unpack

KILLS = 20 if IS_FULL else 1
STRIKES = 10 if IS_FULL else 2

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no such signals")

COMMON = ("--clusters", 3, "--objective", "mmd_ova", "--checkpoint-every", "1 step")
WAYS: dict[str, tuple[str, tuple[object, ...]]] = {
    "in closed form": ("plain.csv", ("--restarts", 1, "--batch-size", 16, "--epochs", 8)),
    "by autograd": ("plain.csv", ("--restarts", 1, "--batch-size", 16, "--epochs", 6, "--penalty", "vat=0.1")),
    "kept batches": (
        "plain.csv",
        ("--restarts", 1, "--batch-size", 16, "--epochs", 70, "--objective", "wasserstein_ova"),
    ),
    "one kept batch": ("plain.csv", ("--restarts", 2, "--epochs", 70, "--objective", "wasserstein_ovo")),
    "restarts": ("plain.csv", ("--restarts", 3, "--batch-size", 20, "--epochs", 8)),
    "restarts by autograd": (
        "plain.csv",
        ("--restarts", 3, "--batch-size", 20, "--epochs", 5, "--penalty", "entropy=0.1"),
    ),
    "free": ("plain.csv", ("--model", "free", "--restarts", 2, "--batch-size", 16, "--epochs", 8)),
    "patience": ("plain.csv", ("--restarts", 1, "--batch-size", 30, "--epochs", 400, "--patience", 4)),
    "streamed": ("table.parquet", ("--stream", "yes", "--restarts", 1, "--batch-size", 16, "--epochs", 6)),
    "streamed array": (
        "array.npy",
        ("--stream", "yes", "--restarts", 2, "--batch-size", 9, "--epochs", 3, "--penalty", "vat=0.1"),
    ),
    "now and then": (
        "plain.csv",
        ("--restarts", 1, "--batch-size", 7, "--epochs", 25, "--checkpoint-every", "5 steps"),
    ),
}
SCRIPTS: dict[str, Callable[[str], None]] = {
    function.__name__: function
    for function in (
        fault_runs.restarts_one_by_one,
        fault_runs.own_loader,
        fault_runs.own_loader_and_restarts,
        fault_runs.one_of_three_fails,
    )
}
SHORT_WAYS = ("streamed",)
SHORT_SCRIPTS = ("restarts_one_by_one",)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("plain.csv", "table.parquet"):
        write_table(folder, name, frame(60))
    np.save(folder / "array.npy", np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32))
    return folder


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[dict[str, Any], float]]:
    """What a run leads to that nothing happens to, and how long it takes."""
    found: dict[tuple[Any, ...], tuple[dict[str, Any], float]] = {}

    def of(words: tuple[Any, ...]) -> tuple[dict[str, Any], float]:
        if words not in found:
            folder = tmp_path_factory.mktemp("whole")
            # The first process waits until there is one to be forked from.
            Child(folder, "--version").end()
            begun = time.monotonic()
            if callable(words[0]):
                assert_good(Child(folder, words[0], "run").end())
                found[words] = contents(folder / "run"), time.monotonic() - begun
            else:
                assert_good(Child(folder, *words).end())
                found[words] = results(folder / "run"), time.monotonic() - begun
        return found[words]

    return of


def assert_good(ended: Ended) -> None:
    assert ended.code == 0, ended
    assert "Traceback" not in ended.err, ended


def words_of(data: Path, way: str = "in closed form", **changes: Any) -> tuple[Any, ...]:
    name, options = WAYS[way]
    more = [word for key, value in changes.items() for word in (f"--{key.replace('_', '-')}", value)]
    return ("fit", data / name, *COMMON, *options, *more, "--out", "run")


def to_go_on(folder: Path, words: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What a user says to a run that was killed; nothing where it has ended."""
    run = folder / "run"
    if (run / "unfinished").is_dir():
        anew = [] if checkpoint_number(run) > 1 else ["--overwrite"]
        return ("fit", "--resume", "run", *anew)
    return None if (run / "summary.json").exists() else words


# kill -9


@pytest.mark.parametrize("way", WAYS if IS_FULL else SHORT_WAYS)
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(
    data: Path, whole: Callable[..., Any], tmp_path: Path, way: str
) -> None:
    words = words_of(data, way)
    expected, seconds = whole(words)
    moments, killed, turn = fault_runs.moments(list(WAYS).index(way)), 0, 0
    while killed < KILLS:
        turn += 1
        folder = tmp_path / str(turn)
        folder.mkdir()
        while (again := to_go_on(folder, words)) is not None:
            child = Child(folder, *again)
            ended = child.killed_after(moments.uniform(0, seconds)) if killed < KILLS else child.end()
            assert ended.code in (0, -signal.SIGKILL), ended
            assert "checkpoint" not in ended.err
            killed += ended.code != 0
            seconds = child.seconds if ended.code == 0 else seconds
        assert results(folder / "run") == expected
        assert not [path for path in (folder / "run").rglob(".*") if not path.name.startswith(".new-")]
        assert turn < 5 * KILLS, "it was always faster than the kill"


@pytest.mark.parametrize("script", SCRIPTS if IS_FULL else SHORT_SCRIPTS)
def test_a_script_killed_at_random_moments_ends_with_the_same_bits(
    whole: Callable[..., Any], tmp_path: Path, script: str
) -> None:
    program = SCRIPTS[script]
    expected, seconds = whole((program,))
    moments, killed, turn = fault_runs.moments(len(script)), 0, 0
    while killed < KILLS:
        turn += 1
        path = tmp_path / f"{turn}"
        while not path.exists():
            child = Child(tmp_path, program, path.name)
            ended = child.killed_after(moments.uniform(0, seconds)) if killed < KILLS else child.end()
            assert ended.code in (0, -signal.SIGKILL), ended
            killed += ended.code != 0
            seconds = child.seconds if ended.code == 0 else seconds
        assert contents(path) == expected
        assert turn < 5 * KILLS, "it was always faster than the kill"


def changes_of(folder: Path, *words: Any) -> list[str]:
    """Each change of a file or folder that a run makes, in order."""
    ended = Child(folder, *words, sabotage={"kill_at_change": -1}).end()
    assert ended.code == 0, ended
    return [line.partition(" ")[2] for line in ended.err.splitlines()]


@pytest.fixture(scope="module")
def changes_in_all(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Those of a run that nothing happens to."""
    found: dict[tuple[Any, ...], list[str]] = {}

    def of(words: tuple[Any, ...]) -> list[str]:
        if words not in found:
            found[words] = changes_of(tmp_path_factory.mktemp("counted"), *words)
        return found[words]

    return of


def some(numbers: range, few: int) -> list[int]:
    """All of them, or a few that are spread evenly."""
    if IS_FULL:
        return list(numbers)
    return sorted({round(place) for place in np.linspace(numbers[0], numbers[-1], few)})


def test_a_run_killed_at_any_change_of_a_file_ends_with_the_same_bits(
    data: Path, whole: Callable[..., Any], changes_in_all: Callable[..., list[str]], tmp_path: Path
) -> None:
    words = words_of(data, batch_size=30, epochs=2)
    expected, _ = whole(words)
    changes = changes_in_all(words)
    assert any("half of .checkpoint" in change for change in changes)
    assert any(change.startswith("os.rename run/.new-") for change in changes)
    for number in some(range(1, len(changes) + 1), 4):
        folder = tmp_path / str(number)
        folder.mkdir()
        ended = Child(folder, *words, sabotage={"kill_at_change": number}).end()
        assert ended.code == -signal.SIGKILL, changes[number - 1]
        again = to_go_on(folder, words)
        if again is not None:
            ended = Child(folder, *again).end()
            assert ended.code == 0, (changes[number - 1], ended)
        assert results(folder / "run") == expected, changes[number - 1]
        left = {path.name for path in (folder / "run").rglob("*") if path.name.startswith(".")}
        if again is not None:
            assert left == set(), changes[number - 1]


@in_full
def test_a_run_killed_while_it_is_prolonged_ends_with_the_same_bits(
    data: Path, whole: Callable[..., Any], tmp_path: Path
) -> None:
    """At any change of a file; and what was finished before is there until the longer run is."""
    expected, _ = whole(words_of(data, batch_size=30, epochs=3))
    first = tmp_path / "first"
    first.mkdir()
    assert_good(Child(first, *words_of(data, batch_size=30, epochs=2)).end())
    shutil.copytree(first, tmp_path / "counted")
    changes = changes_of(tmp_path / "counted", "fit", "--resume", "run", "--epochs", 3)
    assert results(tmp_path / "counted" / "run") == expected
    for number in some(range(1, len(changes) + 1), 4):
        folder = tmp_path / str(number)
        shutil.copytree(first, folder)
        prolong = ("fit", "--resume", "run", "--epochs", 3)
        ended = Child(folder, *prolong, sabotage={"kill_at_change": number}).end()
        assert ended.code == -signal.SIGKILL, changes[number - 1]
        load(folder / "run")
        if (folder / "run/unfinished").exists() or results(folder / "run") != expected:
            settings = folder / "run/unfinished/run.toml"
            says_so = settings.exists() and "max_epochs = 3" in settings.read_text()
            ended = Child(folder, *(prolong[:3] if says_so else prolong)).end()
            assert ended.code == 0, (changes[number - 1], ended)
        assert results(folder / "run") == expected, changes[number - 1]


def test_no_other_run_is_lost_when_one_that_takes_its_place_is_killed(data: Path, tmp_path: Path) -> None:
    assert_good(Child(tmp_path, *words_of(data, batch_size=30, epochs=1)).end())
    before = results(tmp_path / "run")
    words = (*words_of(data, batch_size=30, epochs=2, seed=1), "--overwrite")
    for number in (8, 20):
        ended = Child(tmp_path, *words, sabotage={"kill_at_change": number}).end()
        assert ended.code == -signal.SIGKILL
        assert results(tmp_path / "run") == before
    assert_good(start_anew(tmp_path))
    assert results(tmp_path / "run") != before


# Damaged checkpoints


@pytest.fixture(scope="module")
def unfinished(data: Path, changes_in_all: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was killed in the middle, between two checkpoints."""
    folder = tmp_path_factory.mktemp("unfinished")
    changes = changes_in_all(words_of(data))
    number = next(i for i, change in enumerate(changes) if "checkpoint-000000000015" in change)
    assert Child(folder, *words_of(data), sabotage={"kill_at_change": number + 1}).end().code == -signal.SIGKILL
    assert len(list(folder.glob("run/unfinished/*.safetensors"))) == 2
    return folder


def truncate(path: Path, moments: random.Random) -> None:
    os.truncate(path, moments.randrange(1, path.stat().st_size))


def flip(path: Path, moments: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[moments.randrange(len(content))] ^= 1 << moments.randrange(8)
    path.write_bytes(content)


def flip_in_the_header(path: Path, moments: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[moments.randrange(8 + int.from_bytes(content[:8], "little"))] ^= 1 << moments.randrange(8)
    path.write_bytes(content)


def empty(path: Path, moments: random.Random) -> None:
    path.write_bytes(b"")


def make_folder(path: Path, moments: random.Random) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").touch()


def overwrite(path: Path, moments: random.Random) -> None:
    path.write_bytes(moments.randbytes(path.stat().st_size))


DAMAGE = {function.__name__: function for function in (truncate, flip, empty, make_folder, overwrite)}


@pytest.mark.parametrize("damage", DAMAGE if IS_FULL else ["truncate", "make_folder"])
def test_a_damaged_checkpoint_is_told_of_and_the_one_before_leads_to_the_same_bits(
    data: Path, whole: Callable[..., Any], unfinished: Path, tmp_path: Path, damage: str
) -> None:
    for turn in range(4 if IS_FULL and damage in ("truncate", "flip") else 1):
        folder = tmp_path / str(turn)
        shutil.copytree(unfinished, folder)
        newest = max((folder / "run/unfinished").glob("*.safetensors"))
        DAMAGE[damage](newest, fault_runs.moments(turn))
        ended = Child(folder, "fit", "--resume", "run").end()
        assert ended.code == 0, ended
        assert newest.name in ended.err
        assert "Traceback" not in ended.err
        assert "note: " in ended.err
        assert results(folder / "run") == whole(words_of(data))[0]


@pytest.mark.parametrize("damage", DAMAGE if IS_FULL else ["flip"])
def test_without_a_whole_checkpoint_a_run_does_not_begin_anew(unfinished: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(unfinished, folder)
    for number, path in enumerate((folder / "run/unfinished").glob("*.safetensors")):
        DAMAGE[damage](path, fault_runs.moments(number))
    before = tree(folder)
    for _ in range(2):
        ended = Child(folder, "fit", "--resume", "run").end()
        assert ended.code == 2, ended
        assert ended.err.count("\n") == 1
        assert "No checkpoint in run/unfinished can be read" in ended.err
        assert tree(folder) == before


def test_checkpoints_damaged_again_and_again_are_in_nobodys_way(
    data: Path, whole: Callable[..., Any], unfinished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(unfinished, folder)
    newest = max((folder / "run/unfinished").glob("*.safetensors"))
    for damage in (make_folder, make_folder, empty, make_folder)[: 4 if IS_FULL else 2]:
        damage(newest, fault_runs.moments(0))
        child = Child(folder, "fit", "--resume", "run", sabotage={"slow_steps": 0.1})
        child.wait_for(lambda: newest.is_file() and newest.stat().st_size)
        child.send(signal.SIGKILL)
        assert child.end().code == -signal.SIGKILL
    ended = Child(folder, "fit", "--resume", "run").end()
    assert ended.code == 0, ended
    assert results(folder / "run") == whole(words_of(data))[0]


def test_no_damage_of_a_file_goes_unnoticed(unfinished: Path, tmp_path: Path) -> None:
    good = max((unfinished / "run/unfinished").glob("*.safetensors"))
    tensors, description = checked_tensors.read(good, FORMAT, [VERSION], "checkpoint")
    path = tmp_path / "copy.safetensors"
    moments = fault_runs.moments(1)
    for turn in range(3000 if IS_FULL else 60):
        shutil.copyfile(good, path)
        (truncate, flip, flip_in_the_header)[turn % 3](path, moments)
        try:
            others, another = checked_tensors.read(path, FORMAT, [VERSION], "checkpoint")
        except ValueError:
            continue
        assert another == description
        assert others.keys() == tensors.keys()
        assert all(torch.equal(others[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ("learning_rate = 0.01", "learning_rate = 0.02", "learning_rate was 0.01 and is 0.02"),
        ("random_state = 0", "random_state = 1", "random_state was 0 and is 1"),
        ("n_clusters = 3", "n_clusters = 4", "n_clusters was 3 and is 4"),
        ('objective = "mmd_ova"', 'objective = "mi"', "objective was"),
        ("batch_size = 16", "batch_size = 15", "batch_size was 16 and is 15"),
    ][: None if IS_FULL else 1],
)
def test_checkpoints_of_other_settings_are_refused_by_name(
    unfinished: Path, tmp_path: Path, was: str, becomes: str, told: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(unfinished, folder)
    settings = folder / "run/unfinished/run.toml"
    assert was in settings.read_text()
    settings.write_text(settings.read_text().replace(was, becomes))
    before = tree(folder)
    ended = Child(folder, "fit", "--resume", "run").end()
    assert ended.code == 2, ended
    assert told in ended.err
    assert ended.err.count("\n") == 1
    assert tree(folder) == before


def test_checkpoints_of_other_data_are_refused_by_name(data: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    write_table(own, "plain.csv", frame(60))
    ended = Child(tmp_path, *words_of(own), sabotage={"kill_at_change": 40}).end()
    assert ended.code == -signal.SIGKILL
    write_table(own, "plain.csv", frame(60, seed=1))
    ended = Child(tmp_path, "fit", "--resume", "run").end()
    assert ended.code == 2, ended
    assert "data was" in ended.err
    assert ended.err.count("\n") == 1
    write_table(own, "plain.csv", frame(60))
    assert_good(Child(tmp_path, "fit", "--resume", "run").end())
    with pytest.raises(InputError, match="n_clusters was 3 and is 2"):
        fit_with(tmp_path / "run/checkpoints", 2)


def fit_with(folder: Path, n_clusters: int) -> GeminiClustering:
    X = np.random.default_rng(0).normal(size=(20, 3))
    return GeminiClustering(
        n_clusters, model="mlp", max_epochs=2, random_state=0, training=Training(checkpoint=folder)
    ).fit(X)


# Full disks


def test_a_disk_that_is_full_for_a_while_costs_checkpoints_only(
    data: Path, whole: Callable[..., Any], tmp_path: Path
) -> None:
    full_for_a_while = {"begin": "checkpoint-000000000010", "end": ".new-", "size": 2000}
    ended = Child(tmp_path, *words_of(data), sabotage={"fill_disk": full_for_a_while}).end()
    assert_good(ended)
    assert "note: A checkpoint could not be written" in ended.err
    assert "checkpoint-000000000009.safetensors" in ended.err
    assert results(tmp_path / "run") == whole(words_of(data))[0]
    assert not [path for path in (tmp_path / "run").rglob("*") if path.name.startswith(".")]


def test_a_run_killed_on_a_full_disk_goes_on_from_the_last_good_checkpoint(
    data: Path, whole: Callable[..., Any], tmp_path: Path
) -> None:
    is_full = {"begin": "checkpoint-000000000010", "size": 2000}
    # Two steps after the last checkpoint that has room, of the 23 that it would take.
    hold = {"after": 11, "file": str(tmp_path / "held")}
    child = Child(tmp_path, *words_of(data), sabotage={"fill_disk": is_full, "hold_steps": hold})
    child.wait_for((tmp_path / "held").exists)
    assert (tmp_path / "run/unfinished/checkpoint-000000000009.safetensors").exists()
    child.send(signal.SIGKILL)
    assert child.end().code == -signal.SIGKILL
    assert_good(Child(tmp_path, "fit", "--resume", "run").end())
    assert results(tmp_path / "run") == whole(words_of(data))[0]


@pytest.mark.parametrize("way", ["in closed form", *(["streamed"] if IS_FULL else [])])
@pytest.mark.parametrize("file", ["model", *(["clusters", "summary"] if IS_FULL else [])])
def test_results_that_cannot_be_written_are_not_lost(
    data: Path, whole: Callable[..., Any], tmp_path: Path, way: str, file: str
) -> None:
    words = words_of(data, way)
    is_full = {"begin": f"/.{file}", "size": 500}
    ended = Child(tmp_path, *words, sabotage={"fill_disk": is_full}).end()
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    assert "What was learned by the last checkpoint is safe" in ended.err
    assert "pollux fit --resume run" in ended.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["unfinished"]
    # It is still full.
    ended = Child(tmp_path, "fit", "--resume", "run", sabotage={"fill_disk": is_full}).end()
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    assert "pollux fit --resume run" in ended.err
    assert_good(Child(tmp_path, "fit", "--resume", "run").end())
    assert results(tmp_path / "run") == whole(words)[0]


@pytest.mark.parametrize("size", [2000, *([500] if IS_FULL else [])])
def test_a_disk_that_is_full_from_the_start_is_told_of(data: Path, tmp_path: Path, size: int) -> None:
    """Too full for the settings, or for the first checkpoint: nothing is trained that would be lost."""
    ended = Child(tmp_path, *words_of(data), sabotage={"fill_disk": {"begin": "run", "size": size}}).end()
    assert ended.code == 2, ended
    assert ended.err.count("\n") == 1
    assert "Nothing can be written into run" in ended.err
    assert "safe" not in ended.err
    assert not (tmp_path / "run").exists()
    assert_good(Child(tmp_path, *words_of(data)).end())


def test_a_disk_that_is_full_after_the_first_checkpoint_keeps_nothing_and_that_is_said(
    data: Path, whole: Callable[..., Any], tmp_path: Path
) -> None:
    is_full = {"begin": "checkpoint-000000000002", "size": 500}
    ended = Child(tmp_path, *words_of(data), sabotage={"fill_disk": is_full}).end()
    assert ended.code == 2, ended
    assert ended.err.count("\n") == 1
    assert "Nothing of what was learned could be written" in ended.err
    assert "safe" not in ended.err
    assert f"from the beginning: {ANEW}" in ended.err
    assert_good(start_anew(tmp_path))
    assert results(tmp_path / "run") == whole(words_of(data))[0]


ANEW = "pollux fit --resume run --overwrite"


def start_anew(folder: Path) -> Ended:
    """Do as was said; without ``--overwrite`` it is refused, and nothing changes."""
    words, unchanged = ANEW.split()[1:], tree(folder)
    refused = Child(folder, *words[:-1]).end()
    assert refused.code == 2, refused
    assert refused.err.count("\n") == 1
    assert f"To start anew: {ANEW}" in refused.err
    assert tree(folder) == unchanged
    return Child(folder, *words).end()


@pytest.mark.parametrize("checkpoint", [2, *([1] if IS_FULL else [])])
def test_a_run_that_has_learned_nothing_starts_anew_only_where_that_is_asked_for(
    data: Path, whole: Callable[..., Any], changes_in_all: Callable[..., list[str]], tmp_path: Path, checkpoint: int
) -> None:
    """Killed before its first checkpoint, or before its second: the first is written before the first step."""
    words = words_of(data, batch_size=30, epochs=2)
    changes = changes_in_all(words)
    number = next(i for i, change in enumerate(changes) if f"checkpoint-00000000000{checkpoint}" in change) + 1
    assert Child(tmp_path, *words, sabotage={"kill_at_change": number}).end().code == -signal.SIGKILL
    assert checkpoint_number(tmp_path / "run") == checkpoint - 1
    assert_good(start_anew(tmp_path))
    assert results(tmp_path / "run") == whole(words)[0]


def test_a_finished_run_without_checkpoints_is_not_prolonged_from_its_beginning_unasked(
    data: Path, tmp_path: Path
) -> None:
    assert_good(Child(tmp_path, *words_of(data, batch_size=30, epochs=1)).end())
    shutil.rmtree(tmp_path / "run/checkpoints")
    before = tree(tmp_path)
    prolong = ("fit", "--resume", "run", "--epochs", 2)
    ended = Child(tmp_path, *prolong).end()
    assert ended.code == 2, ended
    assert "To start anew: pollux fit --resume run --epochs 2 --overwrite" in ended.err
    assert tree(tmp_path) == before
    assert_good(Child(tmp_path, *prolong, "--overwrite").end())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("disks cannot be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_disk_that_is_really_full(data: Path, whole: Callable[..., Any], small_disk: Path) -> None:
    words = words_of(data)
    child = Child(small_disk, *words, sabotage={"slow_steps": 0.03})
    child.wait_for((small_disk / "run/unfinished/checkpoint-000000000005.safetensors").exists)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        # It stays full: what is removed, such as a checkpoint that could not be written, makes no room.
        while child.is_running:
            try:
                file.write(bytes(1000))
            except OSError:
                time.sleep(0.002)
    ended = child.end()
    assert ended.code == 2, ended
    assert "pollux fit --resume run" in ended.err
    filler.unlink()
    assert_good(Child(small_disk, "fit", "--resume", "run").end())
    assert results(small_disk / "run") == whole(words)[0]


def test_a_folder_that_cannot_be_written_is_told_of(data: Path, unfinished: Path, small_disk: Path) -> None:
    shutil.copytree(unfinished / "run", small_disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    before = tree(small_disk)
    for words in (
        ["--resume", small_disk / "run"],
        [data / "plain.csv", *COMMON, "--out", small_disk / "run", "--overwrite"],
        [data / "plain.csv", *COMMON, "--out", small_disk / "new"],
    ):
        ended = Child(data, "fit", *words).end()
        assert ended.code == 2, ended
        assert ended.err.count("\n") == 1
        assert "Read-only" in ended.err
        assert tree(small_disk) == before


@pytest.mark.skipif(os.getuid() == 0, reason="an administrator can write anywhere")
def test_a_folder_of_somebody_else_is_told_of(data: Path, unfinished: Path, tmp_path: Path) -> None:
    shutil.copytree(unfinished / "run", tmp_path / "run")
    before = tree(tmp_path)
    places = [tmp_path / "run", tmp_path / "run/unfinished"]
    for place in places:
        place.chmod(0o555)
    ended = Child(tmp_path, "fit", "--resume", "run").end()
    for place in places:
        place.chmod(0o755)
    assert ended.code == 2, ended
    assert "Permission" in ended.err
    assert tree(tmp_path) == before


# Several processes


class Launched:
    """torchrun with two processes, all of them marked, so that none is left behind unseen."""

    def __init__(self, folder: Path, *words: object, restarts: int = 2) -> None:
        self._mark = f"POLLUX_FAULTS_MARK={os.urandom(8).hex()}"
        key, _, value = self._mark.partition("=")
        self._printed = folder / f"printed-{value}"
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", restarts]
        with self._printed.open("wb") as printed:
            self.process = subprocess.Popen(
                [sys.executable, *map(str, launcher), "-m", "pollux", *map(str, words)],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1", key: value},
                stdout=printed,
                stderr=printed,
            )
        self._begun = time.monotonic()

    @property
    def printed(self) -> str:
        return self._printed.read_text()

    def workers(self) -> dict[str, int]:
        """The processes that train, by their ranks."""
        found = {}
        for pid, variables in self._marked().items():
            if "RANK" in variables:
                found[variables["RANK"]] = pid
        return found

    def _marked(self) -> dict[int, dict[str, str]]:
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                lines = (path / "environ").read_bytes().decode(errors="replace").split("\0")
                if self._mark in lines and " Z " not in (path / "stat").read_text():
                    found[int(path.name)] = dict(line.split("=", 1) for line in lines if "=" in line)
        return found

    def wait_for(self, condition: Callable[[], object]) -> None:
        while not condition():
            assert self.process.poll() is None, self.printed
            assert time.monotonic() - self._begun < fault_runs.PATIENCE, self.printed
            time.sleep(0.01)

    def end(self) -> int:
        """Its exit code; nothing that it has started is left."""
        try:
            code = self.process.wait(fault_runs.PATIENCE)
            end = time.monotonic() + 60
            while self._marked() and time.monotonic() < end:
                time.sleep(0.05)
            assert not self._marked(), "processes were left behind"
        finally:
            for pid in self._marked():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return code


TOGETHER = ("--restarts", 1, "--batch-size", 10, "--epochs", 60, "--checkpoint-every", "1 step")


@pytest.fixture(scope="module")
def together(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes lead to that nothing happens to."""
    folder = tmp_path_factory.mktemp("together")
    launched = Launched(folder, "fit", data / "plain.csv", *COMMON, *TOGETHER, "--out", "run", restarts=0)
    assert launched.end() == 0, launched.printed
    return results(folder / "run")


def checkpoint_number(run: Path) -> int:
    return max((int(path.stem[11:]) for path in run.glob("unfinished/checkpoint-*.safetensors")), default=0)


@in_full
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes cannot be seen here")
@pytest.mark.parametrize("ranks", [["1"], ["0"], ["0", "1"]], ids="-".join)
def test_processes_that_are_started_again_end_with_the_same_bits(
    data: Path, together: dict[str, Any], tmp_path: Path, ranks: list[str]
) -> None:
    launched = Launched(tmp_path, "fit", data / "plain.csv", *COMMON, *TOGETHER, "--out", "run")
    for turn, rank in enumerate(ranks):
        launched.wait_for(lambda least=10 + 10 * turn: checkpoint_number(tmp_path / "run") >= least)  # type: ignore[misc]
        os.kill(launched.workers()[rank], signal.SIGKILL)
    assert launched.end() == 0, launched.printed
    assert results(tmp_path / "run") == together
    assert json.loads((tmp_path / "run/summary.json").read_text())["resumed_after"]


@in_full
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes cannot be seen here")
def test_a_launcher_that_is_asked_to_end_leaves_a_checkpoint(
    data: Path, together: dict[str, Any], tmp_path: Path
) -> None:
    launched = Launched(tmp_path, "fit", data / "plain.csv", *COMMON, *TOGETHER, "--out", "run")
    launched.wait_for(lambda: checkpoint_number(tmp_path / "run") >= 10)
    launched.process.send_signal(signal.SIGTERM)
    assert launched.end() != 0
    assert "pollux fit --resume run" in launched.printed
    assert "a fault of pollux" not in launched.printed
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["unfinished"]
    launched = Launched(tmp_path, "fit", "--resume", "run")
    assert launched.end() == 0, launched.printed
    assert results(tmp_path / "run") == together


# Numbers that explode


def finite_checkpoints(folder: Path) -> None:
    for path in folder.rglob("checkpoint-*.safetensors"):
        state = unpack(*checked_tensors.read(path, FORMAT, [VERSION], "checkpoint"))["state"]
        for tensor in state["model"]:
            assert bool(tensor.isfinite().all()), path


EXPLODING: dict[str, tuple[object, ...]] = {
    "a huge rate": ("plain.csv", "--learning-rate", 1e30),
    "a large rate": ("plain.csv", "--learning-rate", 1e6),
    "a huge rate, by autograd": ("plain.csv", "--learning-rate", 1e30, "--penalty", "vat=0.1"),
    "a large rate, by autograd": ("plain.csv", "--learning-rate", 1e20, "--penalty", "weight_decay=0.1"),
    "kept batches": ("plain.csv", "--learning-rate", 1e30, "--objective", "wasserstein_ova"),
    "restarts": ("plain.csv", "--learning-rate", 1e30, "--restarts", 3, "--batch-size", 20),
    "a free table": ("plain.csv", "--learning-rate", 1e38, "--model", "free"),
    "a linear model": ("plain.csv", "--learning-rate", 1e38, "--model", "linear", "--objective", "mi"),
    "a huge rate, streamed": ("long.npy", "--learning-rate", 1e30, "--stream", "yes", "--batch-size", 2),
    "huge numbers": ("huge.npy",),
    "huge numbers, streamed": ("huge.npy", "--stream", "yes", "--batch-size", 20),
    "a huge penalty": ("plain.csv", "--penalty", "entropy=1e38"),
}


@pytest.fixture(scope="module")
def explosive(data: Path) -> Path:
    X = np.random.default_rng(0).normal(size=(2500, 3)).astype(np.float32)
    np.save(data / "long.npy", X)
    X[:60, 1] *= np.float32(1e30)
    np.save(data / "huge.npy", X[:60])
    return data


@pytest.mark.parametrize("case", EXPLODING if IS_FULL else ["a huge rate", "huge numbers"])
def test_numbers_that_explode_are_told_of(explosive: Path, tmp_path: Path, case: str) -> None:
    name, *options = EXPLODING[case]
    every = "100 steps" if "streamed" in case else "1 step"
    words = (
        "--clusters",
        3,
        "--objective",
        "mmd_ova",
        "--restarts",
        1,
        "--epochs",
        6,
        "--checkpoint-every",
        every,
        *options,
        "--out",
        "run",
    )
    ended = Child(tmp_path, "fit", explosive / str(name), *words).end()
    assert ended.code in (0, 2, 3), ended
    assert "Traceback" not in ended.err
    if "huge rate" in case:
        assert ended.code in (2, 3)
    finite_checkpoints(tmp_path)
    run = tmp_path / "run"
    if ended.code == 2:
        assert not run.exists()
        assert ended.err.count("\n") == 1
        return
    summary = json.loads((run / "summary.json").read_text())
    assert summary["diverged"] is (ended.code == 3)
    assert np.isfinite(summary["objective"])
    if ended.code == 3:
        assert "no longer finite" in ended.err
    model = load(run)
    for tensor in model.module_.state_dict().values():
        assert bool(tensor.isfinite().all())
    if "free" not in case:
        predicted = Child(tmp_path, "predict", "run", explosive / str(name), "--out", "new.csv").end()
        assert predicted.code == 0, predicted
        table = np.genfromtxt(tmp_path / "new.csv", delimiter=",", names=True)
        probabilities = [column for column in table.dtype.names or () if column.startswith("p")]
        assert probabilities
        assert all(np.isfinite(table[column]).all() for column in probabilities)


class Spoilt(torch.nn.Module):
    """A network of the user's that returns NaN after some steps of training, and from then on."""

    def __init__(self, steps: int, stays: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 3)
        self.left, self.stays = steps, stays

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(inputs)
        if self.training:
            self.left -= 1
        return out * float("nan") if self.left < 0 and (self.training or self.stays) else out


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 4, 6, 9])
def test_a_network_that_returns_no_numbers(tmp_path: Path, steps: int, stays: bool) -> None:
    X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    clustering = GeminiClustering(
        3,
        model=Spoilt(steps, stays),
        max_epochs=5,
        batch_size=10,
        random_state=0,
        training=Training(checkpoint=Checkpoints(tmp_path / "checkpoints", every="1 step")),
    )
    if steps < 4 or stays:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)
            with pytest.raises(NotFiniteError, match="nothing can be learned"):
                clustering.fit(X)
        assert not hasattr(clustering, "module_")
    else:
        with pytest.warns(NumericalWarning):
            clustering.fit(X)
        assert clustering.diverged_
        assert np.isfinite(clustering.predict_proba(X)).all()
    finite_checkpoints(tmp_path)


@pytest.mark.parametrize("rate", [1e3, 1e30, 1e38])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("objective", ["mmd_ova", "kl_ovo"])
def test_huge_rates_in_scripts(tmp_path: Path, rate: float, optimiser: str, objective: str) -> None:
    X = 10 * np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    clustering = GeminiClustering(
        3,
        objective=objective,
        max_epochs=5,
        batch_size=10,
        random_state=0,
        learning_rate=rate,
        training=Training(optimiser=optimiser, checkpoint=Checkpoints(tmp_path / "checkpoints", every="1 step")),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            clustering.fit(X)
        except NotFiniteError:
            assert not hasattr(clustering, "module_")
        else:
            assert np.isfinite(clustering.predict_proba(X)).all()
            assert np.isfinite(clustering.objective_)
    finite_checkpoints(tmp_path)


# Locks


def test_a_second_run_in_the_same_folder_is_refused_at_once(
    data: Path, whole: Callable[..., Any], tmp_path: Path
) -> None:
    words = words_of(data)
    first = Child(tmp_path, *words, sabotage={"hold_steps": {"after": 5, "file": str(tmp_path / "held")}})
    first.wait_for(lambda: has_learned(tmp_path / "run"))
    for others in ([*words, "--overwrite"], ["fit", "--resume", "run"], [*words]):
        second = Child(tmp_path, *others).end()
        assert second.code == 2, second
        assert second.err.count("\n") == 1
        assert "Another run is using run" in second.err or "holds a training that has not ended" in second.err
    assert first.is_running
    (tmp_path / "go").touch()
    assert_good(first.end())
    assert results(tmp_path / "run") == whole(words)[0]


def test_the_lock_of_a_killed_run_is_gone(data: Path, whole: Callable[..., Any], tmp_path: Path) -> None:
    words = words_of(data)
    first = Child(tmp_path, *words, sabotage={"hold_steps": {"after": 5, "file": str(tmp_path / "held")}})
    first.wait_for(lambda: has_learned(tmp_path / "run"))
    second = Child(tmp_path, "fit", "--resume", "run").end()
    assert second.code == 2, second
    first.send(signal.SIGKILL)
    assert first.end().code == -signal.SIGKILL
    assert_good(Child(tmp_path, "fit", "--resume", "run").end())
    assert results(tmp_path / "run") == whole(words)[0]


@pytest.mark.parametrize("turn", range(8 if IS_FULL else 1))
def test_of_runs_that_start_together_one_has_the_folder(
    data: Path, whole: Callable[..., Any], tmp_path: Path, turn: int
) -> None:
    words = words_of(data)
    ended = [child.end() for child in [Child(tmp_path, *words, sabotage={"slow_steps": 0.01}) for _ in range(3)]]
    assert sorted(one.code for one in ended) == [0, 2, 2], ended
    assert not any("Traceback" in one.err for one in ended)
    assert results(tmp_path / "run") == whole(words)[0]


def test_a_run_that_ended_meanwhile_is_not_written_over(data: Path, whole: Callable[..., Any], tmp_path: Path) -> None:
    """The folder was empty when the second one began to read."""
    late = Child(tmp_path, *words_of(data, seed=1), sabotage={"late_reading": str(tmp_path / "go")})
    assert_good(Child(tmp_path, *words_of(data)).end())
    assert late.is_running
    (tmp_path / "go").touch()
    ended = late.end()
    assert ended.code == 2, ended
    assert "is not empty" in ended.err
    assert results(tmp_path / "run") == whole(words_of(data))[0]


def test_two_scripts_do_not_share_checkpoints(tmp_path: Path) -> None:
    hold = {"after": 5, "file": str(tmp_path / "held")}
    first = Child(tmp_path, fault_runs.own_loader, "first", sabotage={"hold_steps": hold})
    first.wait_for(lambda: list(tmp_path.glob("first-checkpoints/*.safetensors")))
    second = Child(tmp_path, fault_runs.own_loader, "first").end()
    assert second.code != 0
    assert "BusyError" in second.err
    (tmp_path / "go").touch()
    assert_good(first.end())


# Ctrl-C and SIGTERM


def signal_name(number: signal.Signals) -> str:
    return "Ctrl-C" if number == signal.SIGINT else number.name


@pytest.mark.parametrize("number", [signal.SIGINT, *([signal.SIGTERM] if IS_FULL else [])], ids=signal_name)
@pytest.mark.parametrize("way", [way for way in WAYS if "kept" not in way] if IS_FULL else ["now and then"])
def test_a_run_that_is_asked_to_stop_goes_on_to_the_same_bits(
    data: Path, whole: Callable[..., Any], tmp_path: Path, way: str, number: signal.Signals
) -> None:
    words = words_of(data, way)
    expected, seconds = whole(words)
    moments, struck = fault_runs.moments(int(number) + len(way)), 0
    folder = tmp_path / "0"
    folder.mkdir()
    for turn in range(1, 100):
        again = to_go_on(folder, words) if struck else words
        if struck and again is None:
            has_ended = not json.loads((folder / "run/summary.json").read_text())["interrupted"]
            again = ("fit", "--resume", "run")
            if has_ended:
                assert results(folder / "run") == expected
                if struck >= STRIKES:
                    return
                folder, again = tmp_path / str(turn), words
                folder.mkdir()
        child = Child(folder, *again)
        if struck < STRIKES:
            # Before that, there is nothing to go on with.
            newest = checkpoint_number(folder / "run")
            with contextlib.suppress(AssertionError):
                child.wait_for(lambda place=folder, n=newest: checkpoint_number(place / "run") > n)  # type: ignore[misc]
            child.process.join(moments.uniform(0, seconds))
            child.send(number)
        ended = child.end()
        assert "Traceback" not in ended.err, ended
        if ended.code == 0:
            # It was faster than the signal: on a busy machine the first one may have taken far longer.
            struck, seconds = max(struck, 1), 0.8 * seconds
            continue
        assert ended.code == 130, ended
        # Beside what is worth a note of clusters that were found by then.
        assert len([line for line in ended.err.splitlines() if not line.startswith("note: ")]) == 1, ended
        # The second is of a signal that came when all was in its place, which the next turn looks at.
        assert "To go on: pollux fit --resume run" in ended.err or "what was found is in run, whole" in ended.err
        struck += 1
    raise AssertionError("it never ends")


@pytest.mark.parametrize("number", [signal.SIGTERM, *([signal.SIGINT] if IS_FULL else [])], ids=signal_name)
def test_kept_batches_that_are_asked_to_stop_come_close(
    data: Path, whole: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    """What an objective has learned about its batches is in no checkpoint."""
    words = words_of(data, "kept batches", checkpoint_every="50 epochs", epochs=12)
    child = Child(tmp_path, *words, sabotage={"hold_steps": {"after": 5, "file": str(tmp_path / "held")}})
    child.wait_for((tmp_path / "held").exists)
    child.send(number)
    (tmp_path / "go").touch()
    ended = child.end()
    assert ended.code == 130, ended
    assert_good(Child(tmp_path, "fit", "--resume", "run").end())
    one, other = load(tmp_path / "run"), whole(words)[0]
    objective = json.loads(other["model"]["description"])["objective"]
    assert one.objective_ == pytest.approx(objective, rel=1e-3)


@pytest.mark.parametrize("way", ["in closed form", *(["streamed", "by autograd"] if IS_FULL else [])])
def test_a_second_ctrl_c_leaves_at_once(data: Path, whole: Callable[..., Any], tmp_path: Path, way: str) -> None:
    """Even from a step that does not end."""
    words = words_of(data, way)
    child = Child(tmp_path, *words, sabotage={"hold_steps": {"after": 0, "file": str(tmp_path / "held")}})
    child.wait_for((tmp_path / "held").exists)
    child.send(signal.SIGINT)
    time.sleep(0.2)
    assert child.is_running
    struck = time.monotonic()
    child.send(signal.SIGINT)
    ended = child.end()
    assert time.monotonic() - struck < 30
    assert ended.code == 130, ended
    assert ended.err.count("\n") == 1
    assert f"To start anew: {ANEW}" in ended.err
    assert_good(start_anew(tmp_path))
    assert results(tmp_path / "run") == whole(words)[0]


STRUCK = {
    "Ctrl-C": ["SIGINT"],
    "Ctrl-C twice": ["SIGINT", "SIGINT"],
    "SIGTERM": ["SIGTERM"],
    "SIGTERM twice": ["SIGTERM", "SIGTERM"],
    "SIGHUP": ["SIGHUP"],
    "kill -9": ["SIGKILL"],
}


@pytest.mark.parametrize("way", ["in closed form", "streamed"] if IS_FULL else ["in closed form"])
@pytest.mark.parametrize("signals", STRUCK if IS_FULL else ["Ctrl-C twice", "SIGTERM"])
@pytest.mark.parametrize("after", [False, True] if IS_FULL else [True], ids=["before", "after"][: 2 if IS_FULL else 1])
def test_a_signal_at_any_change_of_a_file_loses_nothing_and_what_is_said_is_true(
    data: Path,
    whole: Callable[..., Any],
    changes_in_all: Callable[..., list[str]],
    tmp_path: Path,
    way: str,
    signals: str,
    after: bool,
) -> None:
    words = words_of(data, way, batch_size=30, epochs=2)
    expected, _ = whole(words)
    changes = [change for change in changes_in_all(words) if not change.startswith("half of")]
    # The last ones put the results into their places.
    numbers = range(1, len(changes) + 1)
    for number in numbers if IS_FULL else [len(changes) // 2, len(changes) - 3, len(changes)]:
        folder, at = tmp_path / str(number), changes[number - 1]
        folder.mkdir()
        strike = {"number": number, "signals": STRUCK[signals], "after": after}
        ended = Child(folder, *words, sabotage={"strike_at_change": strike}).end()
        run = folder / "run"
        assert "Traceback" not in ended.err, (at, ended)
        assert ended.code in ((-signal.SIGKILL,) if signals == "kill -9" else (0, 130)), (at, ended)
        if ended.code == 130:
            assert ended.err.count("\n") == 1, (at, ended)
            if "nothing was written" in ended.err:
                assert not run.exists(), (at, ended)
                continue
            assert (checkpoint_number(run) > 1) == ("and no model yet" in ended.err), (at, ended)
            if "is in run, whole" in ended.err:
                assert results(run) == expected, (at, ended)
                continue
            again: Any = shlex.split(ended.err.rpartition(": pollux ")[2])
            assert again[:3] == ["fit", "--resume", "run"], (at, ended)
            anew = ["--overwrite"] if (run / "unfinished").is_dir() and checkpoint_number(run) <= 1 else []
            assert again[3:] == anew, (at, ended)
        else:
            again = to_go_on(folder, words)
            assert again is None or ended.code, (at, ended)
        if again is not None:
            ended = Child(folder, *again).end()
            assert ended.code == 0, (at, ended)
        assert results(run) == expected, (at, ended)


# Memory


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "many.npy"
    np.save(path, np.random.default_rng(0).normal(size=(8000, 4)).astype(np.float32))
    return path


needs_limits = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory cannot be limited here")


@in_full
@needs_limits
def test_the_batch_size_that_is_told_does_fit(many: Path, tmp_path: Path) -> None:
    options = ("--clusters", 3, "--restarts", 1, "--epochs", 2, "--geometry", "rbf", "--out", "run")
    limit = {"limit_memory": 350}
    ended = Child(tmp_path, "fit", many, *options, "--batch-size", 8000, sabotage=limit).end()
    assert ended.code == 2, ended
    assert ended.err.count("\n") == 1
    told = re.search(r"--batch-size (\d+)", ended.err)
    assert told is not None, ended
    assert not (tmp_path / "run").exists()
    ended = Child(tmp_path, "fit", many, *options, "--batch-size", told[1], sabotage=limit).end()
    assert_good(ended)


@in_full
@needs_limits
def test_rows_that_could_not_be_held_are_streamed(tmp_path: Path) -> None:
    rows = np.lib.format.open_memmap(tmp_path / "large.npy", "w+", dtype=np.float32, shape=(400_000, 200))
    rows[:] = np.random.default_rng(0).normal(size=(1000, 200)).astype(np.float32).repeat(400, 0)
    rows.flush()
    del rows
    options = ("--clusters", 3, "--restarts", 1, "--epochs", 1, "--hidden", 8, "--batch-size", 2000, "--out", "run")
    limit = {"limit_memory": 600}
    held = Child(tmp_path, "fit", "large.npy", *options, "--stream", "no", sabotage=limit).end()
    assert held.code == 2, held
    assert "--stream yes" in held.err
    ended = Child(tmp_path, "fit", "large.npy", *options, "--stream", "yes", sabotage=limit).end()
    assert_good(ended)
