"""What all tests share: the same random numbers in every run, and processes that take long to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from rank_processes import Team

TEAMS = {2: "two", 3: "three"}

# A run of the tests finds the same as the one before it; `make test-laws` looks for problems nobody has tried yet.
settings.register_profile("new_examples", derandomize=False)
settings.register_profile("same_examples", derandomize=True)
settings.load_profile("same_examples")


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one team run in one of pytest-xdist's workers, so that it is started once."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        size = None if callspec is None else callspec.params.get("team")
        names = {TEAMS[size]} if size in TEAMS else set(TEAMS.values()) & set(getattr(item, "fixturenames", ()))
        for name in names:
            item.add_marker(pytest.mark.xdist_group(name))
