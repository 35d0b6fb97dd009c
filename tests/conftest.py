"""What all tests share: the same random numbers in every run, and processes that take long to start."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from _pytest.doctest import DoctestModule
from hypothesis import settings

from data_files import FAST, frame, pixels, pollux
from data_files import write_images as images_in
from data_files import write_table as table_in
from rank_processes import Team

TEAMS = {2: "two", 3: "three"}
# Files whose tests share what takes long to start or to make.
TOGETHER = {
    "test_distributed_fits.py": "teams",
    "test_ranks.py": "teams",
    "test_command_line.py": "command",
    "test_faults.py": "faults",
    "test_report_browser.py": "browser",
    "test_search.py": "selection",
    "test_result.py": "selection",
}
# Files with single tests of several seconds: begun last, one of them would keep a worker busy when all others are idle.
LONGEST_FIRST = (
    *("test_examples.py", "test_precision.py", "test_grid.py", "test_readme.py", "test_estimator_checks.py"),
    *("test_charts.py", "test_transport_engine.py", "test_streamed_fits.py", "test_chunks.py"),
    *("test_model_files.py", "test_onnx.py", "test_figures.py", "test_pictures.py", "test_vision_models.py"),
)

# A run of the tests finds the same as the one before it; `make test-laws` looks for problems nobody has tried yet.
settings.register_profile("new_examples", derandomize=False)
settings.register_profile("same_examples", derandomize=True)
settings.load_profile("same_examples")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests of a file, and the files, in any order")


def pytest_configure() -> None:
    """Ctrl-C is heeded, by what tests start too, though a shell has its processes in the background ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Documentation has examples, tests have none: nothing here is imported once more to look for them."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, or in any order.

    Tests of a file stay together, so that what they share is made once; the same seed shuffles all workers alike.
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


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Users' modules take their first weights from torch's generator, whatever tests ran before in the process."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def two() -> Iterator[Team]:
    yield from _ended(Team(2))


@pytest.fixture(scope="session")
def three() -> Iterator[Team]:
    yield from _ended(Team(3))


def _ended(team: Team) -> Iterator[Team]:
    yield team
    team.end()


@pytest.fixture(params=sorted(TEAMS))
def team(request: pytest.FixtureRequest) -> Team:
    found: Team = request.getfixturevalue(TEAMS[request.param])
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share processes or files run in one of pytest-xdist's workers, so that these are made once.

    Marks of groups would say it too, but pytest 9.2 does not show them to pytest-xdist 3.8.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class Scheduling(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER.get(Path(nodeid.partition("::")[0]).name) or super()._split_scope(nodeid)

    return Scheduling(config, log)


# Runs that the tests of all commands share


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a table, with what it was made of beside it."""
    folder = tmp_path_factory.mktemp("runs")
    table_in(folder, "plain.csv", frame())
    answer = pollux("fit", folder / "plain.csv", *FAST, "--label", "class", "--out", folder / "run")
    assert answer.code == 0, answer
    return folder / "run"


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a folder of images."""
    folder = tmp_path_factory.mktemp("pictures")
    images_in(folder / "images", pixels(12, 8, 8), names=lambda index: f"{'ab'[index % 2]}/{index:02}.png")
    answer = pollux("fit", folder / "images", *FAST, "--label", "folder", "--out", folder / "run")
    assert answer.code == 0, answer
    return folder / "run"
