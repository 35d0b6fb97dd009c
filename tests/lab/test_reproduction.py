"""``pollux reproduce``: which runs are chosen, and what is refused before anything is written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from data_files import pollux, tree
from experiment_records import grid_of, write_encoder
from pollux.lab.paper import (
    EXPERIMENTS,
    cifar10,
    outliers,
)
from pollux.lab.paper.experiment import Experiment, Protocol
from pollux.lab.paper.reproduction import choose, recorded_runs
from pollux.lab.records import Run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def chosen(*names: str, profile: str = "quick", only: Sequence[str] = (), other: Sequence[str] = ()) -> Any:
    return {experiment.name: protocol for experiment, protocol in choose(names, profile, only, other, None)}


WITH_WASSERSTEIN = ["outliers", "moons", "mnist", "cifar10", "complexity"]


def test_only_some_settings() -> None:
    def objectives(*only: str, name: str = "outliers") -> list[Any]:
        return [settings.get("objective") for settings in chosen(name, only=only)[name].grid]

    assert objectives("objective=kl_ova", "clusters=4", "degrees_of_freedom=1") == ["kl_ova"]
    # The same name again: or.
    assert set(objectives("objective=kl_ova", "objective=mmd_ovo")) == {"kl_ova", "mmd_ovo"}
    # Numbers, however they are written.
    assert len(objectives("clip=0")) == len(objectives("clip=0.0")) == 40
    assert len(objectives("clip=1e-12")) == len(outliers.COLUMNS)
    assert len(objectives("epsilon=1e-6", name="mi-boundaries")) == 1
    assert len(objectives("deterministic=true")) == len(objectives("deterministic=True")) == 2
    # Of several experiments, those that have such settings.
    assert list(chosen("all", only=["objective=wasserstein_ovo"])) == WITH_WASSERSTEIN


def test_other_values_of_settings() -> None:
    grid = chosen("mnist", other=["epochs=7", "vat=1"])["mnist"].grid
    assert {settings["epochs"] for settings in grid if "epochs" in settings} == {7}
    # What is no setting of k-means it does not get; 1 is the 1.0 of any other run.
    assert {"baseline": "kmeans", "clusters": 10} in grid
    weights = [settings["vat"] for settings in grid if "vat" in settings]
    assert set(weights) == {1.0}
    assert all(type(weight) is float for weight in weights)
    assert chosen("mnist", other=["epochs=7.0"])["mnist"].grid == chosen("mnist", other=["epochs=7"])["mnist"].grid
    # The values of the other profile are values too.
    assert {s.get("model") for s in chosen("mnist", other=["model=lenet5"])["mnist"].grid} == {"lenet5", None}
    # Settings that have become the same are run once.
    grid = chosen("categorical", other=["objective=kl_ova"])["categorical"].grid
    assert grid == [{"objective": "kl_ova", "epochs": 1000}]
    both = chosen("categorical", "complexity", other=["epochs=3"])
    assert {settings["epochs"] for settings in both["categorical"].grid} == {3}
    assert list(both["complexity"].grid) == list(EXPERIMENTS["complexity"].protocols["quick"].grid)


def refused(*arguments: object, says: str) -> str:
    """A complaint in one line, after which nothing has changed."""
    before = tree(Path())
    answer = pollux("reproduce", *arguments)
    assert answer.code == 2, answer
    assert says in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert tree(Path()) == before
    assert answer.err.count("\n") == 1
    return answer.err


BAD = {
    "no names": ([], "Name what to reproduce: categorical"),
    "an unknown name": (["moon"], "Did you mean 'moons'?"),
    "one unknown name of two": (["moons", "cifar"], "There is no experiment 'cifar'"),
    "an unknown setting": (
        ["moons", "--only", "cluster=2"],
        "moons has no setting 'cluster'. Did you mean 'clusters'?",
    ),
    "an unknown setting of all": (["all", "--set", "epoch=2"], "Did you mean 'epochs'?"),
    "an unknown value": (["moons", "--only", "objective=kl_ov"], "Did you mean 'kl_ova'?"),
    "one unknown value of two": (["moons", "--only", "clusters=2", "--only", "clusters=3"], "clusters is: 2, 5."),
    "a value of the other profile": (["cifar10", "--only", "geometry=simclr"], "--profile paper has them."),
    "a value that lacks": (["moons", "--only", "distance=None"], "distance is: shortest_path, euclidean."),
    "values that do not meet": (["mnist", "--only", "baseline=kmeans", "--only", "model=mlp"], "No settings of mnist"),
    "no pair": (["moons", "--only", "clusters"], "--only takes NAME=VALUE"),
    "no pair to set": (["moons", "--set", "epochs:3"], "--set takes NAME=VALUE"),
    "no name": (["moons", "--set", "=3"], "no setting ''"),
    "no value": (["moons", "--set", "epochs="], "epochs is a whole number from 1"),
    "a word": (["moons", "--set", "epochs=many"], "epochs is a whole number from 1"),
    "no epochs": (["moons", "--set", "epochs=0"], "epochs is a whole number from 1"),
    "half an epoch": (["moons", "--set", "epochs=2.5"], "epochs is a whole number from 1"),
    "a truth value": (["moons", "--set", "epochs=true"], "epochs is a whole number from 1"),
    "no number": (["mnist", "--set", "vat=NaN"], "vat is a number from 0"),
    "a negative number": (["mnist", "--set", "vat=-1"], "vat is a number from 0"),
    "too large a number": (["mnist", "--set", "vat=1e999"], "vat is a number from 0"),
    "an unknown word": (["moons", "--set", "objective=mmd_ovx"], "objective is one of kl_ova, wasserstein_ovo;"),
    "a value without a place": (
        ["outliers", "--set", "clusters=5"],
        "clusters is one of 4, 8; other values have no place",
    ),
    "a clip without a place": (["outliers", "--set", "clip=1e-6"], "clip is one of 0.0, 1e-07, 1e-12"),
    "no probability": (["mi-boundaries", "--set", "epsilon=0"], "epsilon is a probability"),
    "two values": (["moons", "--set", "epochs=2", "--set", "epochs=3"], "more than one value"),
    "no runs": (["moons", "--runs", "0"], "--runs is a positive number, not 0"),
    "negative runs": (["moons", "--runs=-1"], "--runs is a positive number"),
    "no jobs": (["moons", "--jobs", "0"], "--jobs is a positive number, not 0"),
    "jobs in words": (["moons", "--jobs", "two"], "a whole number is needed, not 'two'"),
    "an unknown profile": (["moons", "--profile", "slow"], "invalid choice"),
    "an empty folder name": (["moons", "--out", ""], "--out names no folder"),
    "a file": (["moons", "--out", "file"], "file is not a folder"),
    "below a file": (["moons", "--out", "file/results"], "file is a file"),
    "a folder of records": (["moons", "--out", "odd"], "Nothing can be recorded in"),
    "nothing to show": (["moons", "all", "--show"], "Nothing of this is recorded in results"),
    "foreign records": (["categorical", "moons", "--out", "foreign"], "Line 1 of foreign/moons.jsonl"),
}


def test_what_is_recorded_with_other_settings_is_told(toys: Callable[..., Experiment], jobs: list[int]) -> None:
    toys()
    assert pollux("reproduce", "toy", "--set", "epochs=7").code == 0
    says = "runs of toy are recorded in results, but with other settings"
    assert says in pollux("reproduce", "toy", "--only", "kind=good", "--show").err


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_refused_before_anything_is_written(case: str, jobs: list[int]) -> None:
    Path("file").write_text("mine")
    Path("odd", "moons.jsonl").mkdir(parents=True)
    Path("foreign").mkdir()
    Path("foreign", "moons.jsonl").write_text("my notes")
    arguments, says = BAD[case]
    refused(*arguments, says=says)
    assert jobs == []


def test_a_folder_that_may_not_be_written_is_refused(monkeypatch: pytest.MonkeyPatch, jobs: list[int]) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    refused("moons", "--out", "deep/results", says="Nothing can be written into")


@pytest.mark.parametrize("name", ["mnist", "cifar10", "model-selection"])
def test_data_that_are_not_here_are_asked_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[int]
) -> None:
    for variable in ("POLLUX_DATA", "HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    data = "cifar10" if name == "cifar10" else "mnist"
    refused("categorical", name, says=f"pollux datasets fetch {data}")
    assert jobs == []


@pytest.mark.usefixtures("few_images")
def test_an_encoder_that_is_not_here_is_asked_for(jobs: list[int], tmp_path: Path) -> None:
    refused("cifar10", "--profile", "paper", says="pollux pretrain simclr cifar10 --out results/cifar10-simclr")
    Path("results").mkdir()
    Path("results", cifar10.ENCODER).write_bytes(b"no encoder")
    refused("cifar10", "--profile", "paper", says="is not a whole encoder file")
    write_encoder(Path("results"), channels=1)
    refused("cifar10", "--profile", "paper", says="images of 1 channels")
    assert jobs == []
    runs = [Run("cifar10", settings, 0) for settings in EXPERIMENTS["cifar10"].protocols["quick"].grid]
    cifar10.check(runs, tmp_path / "elsewhere")
    write_encoder(Path("results"))
    cifar10.check(EXPERIMENTS["cifar10"].protocols["paper"].all_runs("cifar10"), Path("results"))


def test_a_grid_is_run_and_shown(toys: Callable[..., Experiment], jobs: list[int]) -> None:
    toys()
    answer = pollux("reproduce", "toy", "--jobs", "2", "--set", "epochs=2")
    assert answer.code == 0, answer
    assert answer.err.splitlines()[0] == "toy: 6 runs to do"
    assert "[6/6, " in answer.err
    before = Path("results/toy.jsonl").read_bytes()
    assert before.count(b"\n") == 6
    again = pollux("reproduce", "toy", "--jobs", "2", "--set", "epochs=2")
    assert again.code == 0
    assert "to do" not in again.err
    shown = pollux("reproduce", "toy", "moons", "--show", "--set", "epochs=2")
    assert shown.code == 0
    assert "moons: nothing of this is recorded in results" in shown.err
    assert Path("results/toy.jsonl").read_bytes() == before
    assert jobs == [2]
    # One setting more, one seed more.
    assert pollux("reproduce", "toy", "--runs", "3", "--set", "epochs=2").code == 0
    assert Path("results/toy.jsonl").read_bytes().startswith(before)
    assert Path("results/toy.jsonl").read_bytes().count(b"\n") == 9


def test_failures_are_listed_at_the_end(toys: Callable[..., Experiment]) -> None:
    protocols = {"quick": Protocol([{"kind": kind} for kind in ("bad", "good")], 2), "paper": Protocol([], 0)}
    toys(protocols=protocols)
    answer = pollux("reproduce", "toy")
    assert answer.code == 1
    assert answer.err.count("Traceback") == 1
    assert answer.err.splitlines()[-3:] == [
        "2 runs failed; the same command tries again what is not recorded:",
        "  toy kind=bad seed=0: ValueError: out of [/range] ε",
        "  toy kind=bad seed=1: ValueError: out of [/range] ε",
    ]
    assert len(recorded_runs(EXPERIMENTS["toy"], grid_of("bad", "good", seeds=2), Path("results"))) == 2


def test_help_names_all_experiments_without_torch() -> None:
    code = """if True:
        import sys
        from pollux.app import cli
        try:
            cli.main(["reproduce", "--help"])
        finally:
            print([name for name in ("torch", "numpy", "rich", "sklearn") if name in sys.modules], file=sys.stderr)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert done.stderr == "[]\n"
    for name in EXPERIMENTS:
        assert name in " ".join(done.stdout.split())
