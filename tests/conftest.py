"""Processes that several test files share, because starting them takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rank_processes import Team

TEAMS = {2: "two", 3: "three"}


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
