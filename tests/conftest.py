"""Shared by all tests: the same random numbers in every run, and processes that are slow to start.

Fixtures import slow packages themselves: the process that distributes the tests to workers needs none of them.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import given, settings
from hypothesis.strategies import none

from coverings import IS_FULL

if TYPE_CHECKING:
    from rank_processes import Team

TEAMS = {2: "two", 3: "three"}
# Files that share something slow to start or make: a server process to fork from, and selections.
TOGETHER = {
    **dict.fromkeys(
        (
            *("test_faults.py", "test_cut_files.py", "test_damaged_files.py", "test_command_line.py"),
            *("test_distributed_fits.py", "test_ranks.py", "test_transport_engine.py", "test_streamed_fits.py"),
            *("test_model_files.py", "test_charts.py", "test_quality.py"),
        ),
        "forks",
    ),
    **dict.fromkeys(("test_search.py", "test_result.py"), "selection"),
}
# Files that take ten seconds or more: started last, one of them would keep a worker busy while all others are idle.
LONGEST_FIRST = (
    *("test_faults.py", "test_estimator.py", "test_checkpoints.py", "test_readme.py"),
    *("test_page.py", "test_search.py"),
    *("test_report.py", "test_fit.py", "test_sources.py", "test_estimator_checks.py", "test_recipes.py"),
    *("test_neighbours.py", "test_run_folder.py", "test_interruption.py", "test_laws.py"),
    *("test_own_loops.py", "test_paper.py", "test_explanation.py", "test_grid.py", "test_onnx.py", "test_bad_input.py"),
    *("test_examples.py", "test_precision.py", "test_run_data.py", "test_restarts.py", "test_starting.py"),
)

# Every run of the tests uses the same examples; `make test-laws` searches for new ones.
settings.register_profile("new_examples", derandomize=False)
settings.register_profile("same_examples", derandomize=True)
settings.load_profile("same_examples")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests of a file, and the files, in any order")


def pytest_configure() -> None:
    """Handle Ctrl-C, here and in child processes, even if a shell started the tests in the background and ignores it.

    Garbage collection is off until all tests are collected: what is imported stays in memory.
    """
    avoid_broken_amx()
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def avoid_broken_amx() -> None:
    """If half-precision products crash the process, make oneDNN compute them without the processor's AMX unit.

    Some virtual machines advertise AMX but do not execute its instructions. The workers inherit the environment of the
    process that starts them.
    """
    cpu = Path("/proc/cpuinfo")
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not cpu.exists() or "amx_tile" not in cpu.read_text(encoding="utf-8"):
        return
    product = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
    done = subprocess.run([sys.executable, "-c", product], capture_output=True)
    if done.returncode == -signal.SIGILL:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Skip tests when looking for doctests: only the documentation has some, and importing tests twice takes time."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the longest files first, or shuffle the files.

    Tests of a file stay together, so that their fixtures are made once; the same seed shuffles all workers alike.
    """
    if config.getoption("shuffle") is None:
        ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))
        return
    random = Random(config.getoption("shuffle"))
    files = [list(found) for _, found in groupby(items, lambda item: item.path)]
    random.shuffle(files)
    for found in files:
        random.shuffle(found)
    items[:] = [item for found in files for item in found]


def pytest_collection_finish() -> None:
    """Freeze what is imported, so that the garbage collector need not traverse it again and again.

    Hypothesis must run once before: it asks the garbage collector for references to its random numbers, which does not
    find frozen objects, so that the first test of a process would fail because of a warning.
    """
    given(none())(lambda _: None)()
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Seed torch's generator, which initialises users' modules, so that results do not depend on earlier tests.

    ``torch.manual_seed`` would store the call, with its stack, for every device that is not available.
    """
    import torch

    torch.default_generator.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def without_waiting_for_the_disk() -> Iterator[None]:
    """Disable fsync: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def digests_that_are_made_once() -> Iterator[None]:
    """Cache the digest of a test's source, which Hypothesis computes for each set of parameters to seed it."""
    from hypothesis import core

    with pytest.MonkeyPatch.context() as patch:
        if hasattr(core, "function_digest"):
            patch.setattr(core, "function_digest", cache(core.function_digest))
        yield


@pytest.fixture(scope="session", autouse=True)
def parameters_that_are_named_once() -> Iterator[None]:
    """Cache the parameter names of a class, which scikit-learn reads from the signature on each call."""
    from sklearn.base import BaseEstimator

    names = cache(BaseEstimator._get_param_names.__func__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseEstimator, "_get_param_names", classmethod(lambda cls: list(names(cls))))
        yield


@pytest.fixture(scope="session", autouse=True)
def fewer_folds() -> Iterator[None]:
    """Use two folds in the check for structure of every command-line run, and in the rules of every report."""
    from sklearn.model_selection import KFold

    from pollux.inspection import structure
    from pollux.trees import explanation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "_FOLDS", 2)
        patch.setattr(explanation, "KFold", lambda folds, **how: KFold(2, **how))
        yield


@pytest.fixture(scope="module", autouse=True)
def all_folds(request: pytest.FixtureRequest, fewer_folds: None) -> Iterator[None]:
    """Use all folds in tests of the folds themselves and of output that is shown to users."""
    from sklearn.model_selection import KFold

    from pollux.inspection import structure
    from pollux.trees import explanation

    with pytest.MonkeyPatch.context() as patch:
        if {"inspection", "trees", "src"} & set(request.path.parts):
            patch.setattr(structure, "_FOLDS", 5)
            patch.setattr(explanation, "KFold", KFold)
        yield


@pytest.fixture(scope="module", autouse=True)
def rough_maps(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compute the map of every report in few steps, except in tests of reports and of output that is shown to users."""
    from pollux.report import maps

    with pytest.MonkeyPatch.context() as patch:
        if not {"report", "src"} & set(request.path.parts):
            patch.setattr(maps, "_EARLY", 5)
            patch.setattr(maps, "_LATE", 5)
        yield


@pytest.fixture(scope="session")
def two() -> Iterator[Team]:
    yield from _team_of(2)


@pytest.fixture(scope="session")
def three() -> Iterator[Team]:
    yield from _team_of(3)


def _team_of(size: int) -> Iterator[Team]:
    from rank_processes import Team

    team = Team(size)
    yield team
    team.end()


@pytest.fixture(params=sorted(TEAMS) if IS_FULL else [3])
def team(request: pytest.FixtureRequest) -> Team:
    found: Team = request.getfixturevalue(TEAMS[request.param])
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file in one worker of pytest-xdist, so that their fixtures are made once.

    Files are started in the order of the tests, not by their number of tests. Group marks could express this, too, but
    pytest 9.2 does not show them to pytest-xdist 3.8.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class Scheduling(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return TOGETHER.get(Path(file).name, file)

    config.option.loadscopereorder = False
    return Scheduling(config, log)


# Runs that the tests of all commands share


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table, with its data beside it."""
    from data_files import FAST, frame, pollux, write_table

    folder = tmp_path_factory.mktemp("runs")
    write_table(folder, "plain.csv", frame())
    answer = pollux("fit", folder / "plain.csv", *FAST, "--label", "class", "--out", folder / "run")
    assert answer.code == 0, answer
    return folder / "run"


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a folder of images."""
    from data_files import FAST, pixels, pollux, write_images

    folder = tmp_path_factory.mktemp("pictures")
    write_images(folder / "images", pixels(12, 8, 8), names=lambda index: f"{'ab'[index % 2]}/{index:02}.png")
    answer = pollux("fit", folder / "images", *FAST, "--label", "folder", "--out", folder / "run")
    assert answer.code == 0, answer
    return folder / "run"
