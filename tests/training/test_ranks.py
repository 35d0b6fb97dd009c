"""Objectives of batches that are spread over processes: real ones, which talk to each other on this machine."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rank_processes as processes
from coverings import every_other, in_full, rotated
from pollux.errors import InputError
from pollux.objectives import DIVERGENCES, GEMINIS
from pollux.objectives.gradients import CLOSED_FORMS
from pollux.ranks import joined, joining
from rank_processes import GEOMETRIES, OBJECTIVES, OWN, Case, Team, needs

SPREAD = {2: (9, 4), 3: (5, 7, 1)}
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")


def assert_as_alone(team: Team, case: Case, steps: int = 1) -> None:
    values, gradients = processes.evaluate(None, case, steps)
    for answer in team.run(processes.evaluate, case, steps):
        assert not isinstance(answer, Exception), (case, answer)
        np.testing.assert_allclose(answer[0], values, rtol=1e-12, atol=1e-14, err_msg=str(case))
        for actual, expected in zip(answer[1], gradients, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-11, err_msg=str(case))


def geometries(objective: str) -> tuple[str, ...]:
    return GEOMETRIES[needs(objective)]


# --- The objective of the whole batch -----------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_value_and_gradient_are_those_of_all_samples_in_one_process(team: Team, objective: str) -> None:
    sizes = SPREAD[len(team.processes)]
    pairs = 5 if objective.endswith("ovo") else None
    for geometry in geometries(objective):
        assert_as_alone(team, Case(objective, geometry, sizes))
        if len(sizes) == 3:
            assert_as_alone(team, Case(objective, geometry, sizes, (2,), weighted=True, clip=1e-2, pairs=pairs))


@pytest.mark.parametrize("objective", every_other(OBJECTIVES))
def test_a_process_may_have_no_samples_or_no_problems(three: Team, objective: str) -> None:
    for geometry in geometries(objective):
        assert_as_alone(three, Case(objective, geometry, (6, 0, 7), batch=(2, 1), weighted=True))
        if objective.endswith("ovo"):
            assert_as_alone(three, Case(objective, geometry, SPREAD[3], clip=1e-2, pairs=1))


@pytest.mark.parametrize(
    ("objective", "what"),
    rotated(GEMINIS, [processes.second_derivative, processes.data_parallel]),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_further_gradients_are_those_of_all_samples_in_one_process(
    three: Team, what: Callable[..., Any], objective: str
) -> None:
    for geometry in geometries(objective):
        case = Case(objective, geometry, SPREAD[3])
        for answer in three.run(what, case):
            np.testing.assert_allclose(answer, what(None, case), rtol=1e-10, atol=1e-11, err_msg=str(case))


@pytest.mark.parametrize("geometry", GEOMETRIES["kernel"])
@pytest.mark.parametrize("mode", ["ova", "ovo"])
def test_the_kernel_gets_its_gradient(three: Team, mode: str, geometry: str) -> None:
    assert_as_alone(three, Case(f"mmd_{mode}", geometry, SPREAD[3], learned=True))


@pytest.mark.parametrize("geometry", GEOMETRIES["distance"])
@pytest.mark.parametrize("mode", ["ova", "ovo"])
def test_transport_that_starts_where_it_ended_finds_the_same(team: Team, mode: str, geometry: str) -> None:
    assert_as_alone(team, Case(f"wasserstein_{mode}", geometry, SPREAD[len(team.processes)], (2,)), steps=4)


@pytest.mark.parametrize(
    ("objective", "pairs", "shares"),
    [("wasserstein_ova", None, [2, 1, 1]), ("wasserstein_ovo", None, [2, 2, 2]), ("wasserstein_ovo", 2, [1, 1, 0])],
)
def test_each_process_remembers_its_share_of_the_problems(
    three: Team, objective: str, pairs: int | None, shares: list[int]
) -> None:
    for (states, learned), share in zip(
        three.run(processes.remembered_problems, objective, pairs), shares, strict=True
    ):
        assert [state for state in states if state] == [share] * (share > 0)
        assert learned == 1


@pytest.mark.parametrize("mode", ["ova", "ovo"])
def test_float32_features_far_off_centre_keep_their_gradient(three: Team, mode: str) -> None:
    expected = processes.far_off_centre(None, mode, torch.float64, SPREAD[3])
    for actual in three.run(processes.far_off_centre, mode, torch.float32, SPREAD[3]):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("objective", CLOSED_FORMS)
def test_gradients_by_logits(three: Team, objective: str) -> None:
    value, gradient = processes.closed_form(None, objective)
    for found_value, found_gradient in three.run(processes.closed_form, objective):
        np.testing.assert_allclose(found_value, value, rtol=1e-12)
        np.testing.assert_allclose(found_gradient, gradient, rtol=1e-9, atol=1e-13)


def test_no_objective_escapes() -> None:
    assert set(GEMINIS) <= set(OBJECTIVES)
    ways = {divergence.across for divergence in (*DIVERGENCES.values(), *OWN.values())}
    assert ways == {"gathered", "summed", "shared"}
    assert {objective.rsplit("_", 1)[0] for objective in OBJECTIVES} == {*DIVERGENCES, *OWN}


def test_a_late_answer_is_not_taken_for_that_of_the_next_question(
    three: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurry:
        hurry.setattr(three, "patience", 0)
        with pytest.raises(AssertionError, match="does not answer"):
            three.run(processes.answer_late, tmp_path / "sign")
    (tmp_path / "sign").touch()
    assert three.run(processes.tell_rank) == [0, 1, 2]


# --- Collectives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "dim", "equal"),
    [("sum", 0, True), *(("gather", dim, equal) for dim in (-3, -2, -1, 0, 1, 2) for equal in (True, False))],
)
def test_the_gradient_of_a_collective_is_its_adjoint(three: Team, collective: str, dim: int, equal: bool) -> None:
    for forwards, backwards in three.run(processes.adjoint, collective, dim, equal):
        assert forwards == pytest.approx(backwards, rel=1e-13)
        assert forwards != 0


def test_collectives_of_three(three: Team) -> None:
    rows = [[0, 10, 11, 20, 21, 22], [3, 13, 14, 23, 24, 25]]
    for rank, answer in enumerate(three.run(processes.collectives)):
        assert answer == {
            "ranks": f"Ranks(rank={rank}, size=3)",
            "sum": [3, 3],
            "nothing": [],
            "gather": rows,
            "sized": rows,
            "flags": [False, True, False],
            "empty": [],
            "maximum": [2, 0],
            "minimum": [0, -2],
            "broadcast": [[2.0, 2.0]] * 2,
            "in place": ([[2.0, 2.0]] * 2, [[1.0, 1.0]] * 3),
            "objects": [{"rank": other} for other in range(3)],
            "object": {"rank": 1},
        }


def test_sizes_that_are_not_those_of_the_rows_are_refused(three: Team) -> None:
    for error in three.run(processes.wrong_sizes):
        assert isinstance(error, ValueError)
        assert "has 2 rows, but the sizes are [1, 1, 1]" in str(error)


def test_processes_that_differ_all_hear_of_it(three: Team) -> None:
    assert three.run(processes.agree, ["a", "a", "a"]) == [None] * 3
    for error in three.run(processes.agree, [b"a", b"a", b"b"]):
        assert isinstance(error, InputError)
        assert str(error) == "The processes start from different weights: process 2 does not agree with process 0."


def test_an_error_of_one_process_is_raised_in_all(three: Team) -> None:
    assert three.run(processes.raise_together, ()) == [None] * 3
    answers = [(type(error), str(error)) for error in three.run(processes.raise_together, (1,))]
    other = (InputError, "Process 1 could not go on: number 1")
    assert answers == [other, (ArithmeticError, "number 1"), other]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("logits", "log_softmax"),
        ("features", r"The affinity of 2 samples must be a tensor \(2, 2\)"),
        ("clusters", r"differ .* process 1: \[4, .* process 2: \[3, "),
        ("weights", "differ"),
        ("gradient", "differ"),
        ("kernel", r"The affinity of 6 samples must be a tensor \(6, 6\)"),
        ("samples", "None of the processes has a sample"),
    ],
)
def test_what_does_not_fit_in_one_process_is_refused_in_all(three: Team, what: str, message: str) -> None:
    for error in three.run(processes.unfit, what):
        assert isinstance(error, ValueError)
        with pytest.raises(ValueError, match=message):
            raise error


# --- Joining ------------------------------------------------------------------------------------------------


def test_who_waits_for_one_that_left_notices_and_all_can_join_again() -> None:
    # A team of its own: connections are closed with the last object that knows of them.
    team = Team(2)
    for _ in range(3):
        assert team.run(processes.break_off) == ["noticed", "left"]
    assert_as_alone(team, Case("mmd_ova", "features", SPREAD[2]))
    team.end()


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("given", [{}, {"WORLD_SIZE": "1"}, {"WORLD_SIZE": "1", "RANK": "0"}, {"MASTER_PORT": "1"}])
def test_a_process_alone_joins_nobody(variables: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    for name, value in given.items():
        variables.setenv(name, value)
    with joining("cpu") as ranks:
        assert ranks is None
        assert joined() is None


@pytest.mark.parametrize(
    ("device", "given", "message"),
    [
        ("cpu", {"WORLD_SIZE": "2"}, "RANK, MASTER_ADDR, MASTER_PORT is needed .*torchrun"),
        ("cpu", {"RANK": "0"}, "WORLD_SIZE, MASTER_ADDR, MASTER_PORT is needed"),
        ("cuda", {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "LOCAL_RANK is needed"),
        ("cpu", {"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE must be a whole number, not 'two'"),
        ("cpu", {"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "from 0 to 1"),
        ("cpu", {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "x"}, "MASTER_PORT must be"),
    ],
)
def test_variables_that_do_not_suffice_are_named(
    variables: pytest.MonkeyPatch, device: str, given: dict[str, str], message: str
) -> None:
    for name, value in given.items():
        variables.setenv(name, value)
    with pytest.raises(InputError, match=message), joining(device):
        pass


def test_who_meets_nobody_gives_up(variables: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        variables.setenv(name, value)
    with (
        pytest.raises(InputError, match=r"Process 0 of 2 did not meet the others at 127.0.0.1:0"),
        joining(timeout=0.5),
    ):
        pass
    assert joined() is None


PROGRAM = """
import sys
import torch
from pathlib import Path
from pollux import Gemini
from pollux.ranks import joined, joining
with joining("cpu", timeout=300) as ranks:
    log_p = torch.eye(2)[[ranks.rank]].log()
    with joining("cpu") as again:
        assert repr(again) == repr(joined()) == repr(ranks)
    value = Gemini("hellinger_ova")(log_p, ranks=ranks)
    Path(sys.argv[1], f"{ranks.rank}.txt").write_text(f"{ranks} {value:.3f}")
assert joined() is None
with joining("cpu", timeout=300) as ranks:
    assert ranks.sizes(ranks.rank) == [0, 1]
"""


@in_full
def test_torchrun(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ended = subprocess.run(
        [*launcher, program, tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    for rank in range(2):
        assert (tmp_path / f"{rank}.txt").read_text() == f"Ranks(rank={rank}, size=2) 0.293"
