"""Exact optimal transport: against linear programming and POT, its duality, its gradients, memory and limits."""

import functools
import gc
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import ot
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

from coverings import examples
from flat_parameters import make_clustering
from pollux import Gemini
from pollux.geometry import ShortestPath
from pollux.geometry.affinity import Paths
from pollux.objectives.gradients import value_and_gradient
from pollux.transport import State, engine, prepare, sinkhorn_cost, solve, transport_cost
from pollux.transport import cost as module
from pollux.transport.engine import VARIABLE

Array = NDArray[np.float64]
Problem = tuple[Array, Array, Array]

few = settings(max_examples=examples(60), derandomize=True, deadline=None, database=None)
seeds = st.integers(0, 2**32 - 1)


def line(n: int) -> Array:
    """The distances of 0, …, n − 1."""
    return np.abs(np.subtract.outer(np.arange(float(n)), np.arange(float(n))))


def ring(n: int, length: float = 1.0) -> scipy.sparse.csr_array:
    """A graph in which each node has two neighbours."""
    a, b = np.arange(n), np.roll(np.arange(n), 1)
    return scipy.sparse.csr_array((np.full(2 * n, length), (np.append(a, b), np.append(b, a))), shape=(n, n))


def as_matrix(cost: Array | Paths) -> Array:
    return cost.matrix().double().numpy() if isinstance(cost, Paths) else cost


def euclidean_cost(points: Array) -> Array:
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))


def random_distributions(random: np.random.Generator, m: int, n: int) -> Array:
    return random.dirichlet(np.ones(n), m)


def integer_masses(random: np.random.Generator, m: int, n: int) -> Array:
    """Small integer masses, many of them zero or equal: degenerate linear programs."""
    masses = random.integers(0, 3, (m, n)).astype(float)
    masses[:, random.integers(n)] += 1
    return masses / masses.sum(1, keepdims=True)


def one_hot(random: np.random.Generator, m: int, n: int) -> Array:
    return np.eye(n)[random.integers(n, size=m)]


def saturated(random: np.random.Generator, m: int, n: int) -> Array:
    """Softmax of huge logits: masses from 1 down to exactly 0, through every order of magnitude."""
    logits = 1e2 * random.standard_normal((m, n))
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def uniform(random: np.random.Generator, m: int, n: int) -> Array:
    return np.full((m, n), 1 / n)


DISTRIBUTIONS = (random_distributions, integer_masses, one_hot, saturated, uniform)


def points_in_general_position(random: np.random.Generator, n: int) -> Array:
    return euclidean_cost(random.standard_normal((n, 2)))


def duplicated_points(random: np.random.Generator, n: int) -> Array:
    return euclidean_cost(random.standard_normal((n, 2))[random.integers(n, size=n)])


def integer_costs(random: np.random.Generator, n: int) -> Array:
    return euclidean_cost(random.integers(0, 3, (n, 1)).astype(float))


def squared_costs(random: np.random.Generator, n: int) -> Array:
    return euclidean_cost(random.standard_normal((n, 2))) ** 2


def asymmetric_costs(random: np.random.Generator, n: int) -> Array:
    return random.random((n, n))


def free_transport(random: np.random.Generator, n: int) -> Array:
    return np.zeros((n, n))


COSTS = (
    points_in_general_position,
    duplicated_points,
    integer_costs,
    squared_costs,
    asymmetric_costs,
    free_transport,
)


@st.composite
def problems(draw: st.DrawFn, m: int = 2, most: int = 7) -> Problem:
    """m problems on 1 to ``most`` samples, from the generic to the degenerate."""
    random = np.random.default_rng(draw(seeds))
    n = draw(st.integers(1, most))
    p = draw(st.sampled_from(DISTRIBUTIONS))(random, m, n)
    q = draw(st.sampled_from(DISTRIBUTIONS))(random, m, n)
    return p, q, draw(st.sampled_from(COSTS))(random, n)


def by_linear_programming(p: Array, q: Array, cost: Array) -> float:
    """min Σ C_ij π_ij over plans π ≥ 0 with marginals p and q, as the textbook writes it."""
    n = len(p)
    rows = np.kron(np.eye(n), np.ones((1, n)))
    columns = np.kron(np.ones((1, n)), np.eye(n))
    # One marginal constraint follows from the others.
    result = linprog(
        cost.ravel(), A_eq=np.vstack([rows, columns])[:-1], b_eq=np.concatenate([p, q])[:-1], method="highs"
    )
    assert result.success
    return float(result.fun)


def size(cost: Array) -> float:
    """The unit in which errors of a problem are measured."""
    return max(float(cost.max()), np.finfo(float).tiny)


@few
@given(problems())
def test_value_is_the_optimum_of_the_linear_program(problem: Problem) -> None:
    p, q, cost = problem
    expected = [by_linear_programming(a, b, cost) for a, b in zip(p, q, strict=True)]
    np.testing.assert_allclose(solve(p, q, cost).values, expected, rtol=1e-6, atol=1e-7)


@few
@given(problems(most=15))
def test_value_is_that_of_pot(problem: Problem) -> None:
    p, q, cost = problem
    expected = [ot.emd2(a, b, cost) for a, b in zip(p, q, strict=True)]
    np.testing.assert_allclose(solve(p, q, cost).values, expected, rtol=1e-9, atol=1e-12)


@few
@given(problems(most=15))
def test_potentials_are_feasible(problem: Problem) -> None:
    """f_i + g_j ≤ C_ij for all i, j, samples without mass included."""
    p, q, cost = problem
    solution = solve(p, q, cost)
    sums = solution.potentials_p[:, :, None] + solution.potentials_q[:, None, :]
    assert np.isfinite(sums).all()
    assert (sums - cost).max() <= 1e-12 * size(cost)


@few
@given(problems(most=15))
def test_strong_duality(problem: Problem) -> None:
    """f · p + g · q is the value: with feasibility, a proof that both are optimal."""
    p, q, cost = problem
    solution = solve(p, q, cost)
    dual = (solution.potentials_p * p).sum(1) + (solution.potentials_q * q).sum(1)
    np.testing.assert_allclose(dual, solution.values, rtol=0, atol=1e-12 * size(cost))


@few
@given(problems(m=1, most=8), seeds)
def test_potentials_are_a_subgradient(problem: Problem, seed: int) -> None:
    """The cost is convex in (p, q): it lies above its tangents, at degenerate points as well."""
    p, q, cost = problem
    random = np.random.default_rng(seed)
    solution = solve(p, q, cost)
    other_p, other_q = (random_distributions(random, 1, p.shape[1]) for _ in range(2))
    tangent = solution.values + ((other_p - p) * solution.potentials_p + (other_q - q) * solution.potentials_q).sum(1)
    assert solve(other_p, other_q, cost).values >= tangent - 1e-12 * size(cost)


@few
@given(seeds, st.integers(2, 8))
def test_gradient_is_that_of_finite_differences(seed: int, n: int) -> None:
    """Along moves that keep the total mass, where the cost is smooth."""
    random = np.random.default_rng(seed)
    cost = torch.from_numpy(points_in_general_position(random, n))
    p, q = (torch.from_numpy(random.dirichlet(np.full(n, 5.0))).requires_grad_() for _ in range(2))
    by_p, by_q = torch.autograd.grad(transport_cost(p, q, cost), (p, q))
    i, j = random.choice(n, 2, replace=False)
    step = 1e-6
    move = torch.zeros(n, dtype=torch.float64)
    move[i], move[j] = step, -step
    with torch.no_grad():
        slope_p = (transport_cost(p + move, q, cost) - transport_cost(p - move, q, cost)) / (2 * step)
        slope_q = (transport_cost(p, q + move, cost) - transport_cost(p, q - move, cost)) / (2 * step)
    torch.testing.assert_close(by_p[i] - by_p[j], slope_p, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(by_q[i] - by_q[j], slope_q, rtol=1e-6, atol=1e-8)


def test_gradient_where_mass_would_appear() -> None:
    """Mass that leaves sample 0 for an empty sample i changes the cost by the change of distance."""
    cost = torch.from_numpy(euclidean_cost(np.array([[0.0], [1.0], [3.0]])))
    p = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    (by_p,) = torch.autograd.grad(transport_cost(p, q, cost), p)
    torch.testing.assert_close(by_p - by_p[0], torch.tensor([0.0, -1.0, -3.0], dtype=torch.float64))


@few
@given(seeds, st.integers(2, 12))
def test_one_dimension_is_the_area_between_distribution_functions(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    points = np.sort(random.standard_normal(n))
    p, q = random_distributions(random, 2, n)
    gaps = np.array([b - a for a, b in pairwise(points)])
    expected = np.abs(np.cumsum(p - q)[:-1]) @ gaps
    np.testing.assert_allclose(solve(p[None], q[None], euclidean_cost(points[:, None])).values, expected, rtol=1e-9)


@few
@given(problems())
def test_scaling_the_masses_changes_nothing(problem: Problem) -> None:
    p, q, cost = problem
    np.testing.assert_allclose(solve(3 * p, 0.2 * q, cost).values, solve(p, q, cost).values, atol=1e-12 * size(cost))


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e6, 1e12])
@few
@given(problems(most=10))
def test_value_and_potentials_follow_the_unit_of_the_cost(unit: float, problem: Problem) -> None:
    """Data in metres or in micrometres: the same plan, and potentials that prove it optimal to the same digits."""
    p, q, cost = problem
    solution = solve(p, q, unit * cost)
    tolerance = 1e-9 * unit * size(cost)
    np.testing.assert_allclose(solution.values, unit * solve(p, q, cost).values, rtol=0, atol=tolerance)
    sums = solution.potentials_p[:, :, None] + solution.potentials_q[:, None, :]
    assert (sums - unit * cost).max() <= tolerance
    dual = (solution.potentials_p * p).sum(1) + (solution.potentials_q * q).sum(1)
    np.testing.assert_allclose(dual, solution.values, rtol=0, atol=tolerance)


@few
@given(seeds, st.integers(1, 8))
def test_metric_cost_makes_a_metric(seed: int, n: int) -> None:
    """Zero from a distribution to itself, symmetric, and the triangle inequality."""
    random = np.random.default_rng(seed)
    cost = points_in_general_position(random, n)
    p, q, r = random_distributions(random, 3, n)
    itself, forth, back, on, across = solve(np.stack([p, p, q, q, p]), np.stack([p, q, p, r, r]), cost).values
    assert abs(itself) <= 1e-15
    assert forth == pytest.approx(back, abs=1e-12)
    assert across <= forth + on + 1e-12


def test_logarithms_of_weights_are_weights() -> None:
    random = np.random.default_rng(0)
    cost = points_in_general_position(random, 6)
    p, q = random_distributions(random, 3, 6), integer_masses(random, 3, 6)
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p), np.log(q)
    expected = solve(p, q, cost)
    # Of any size: those of vanishing weights, too, are shares of their sum.
    for shift in (0.0, -1e4, 1e4):
        solution = solve(log_p + shift, log_q + shift, cost, log=True)
        np.testing.assert_allclose(solution.values, expected.values, rtol=1e-9)
        np.testing.assert_allclose(solution.potentials_p, expected.potentials_p, atol=1e-9)


def test_one_row_to_go_to_is_enough() -> None:
    random = np.random.default_rng(0)
    p, q, cost = random_distributions(random, 4, 6), random_distributions(random, 1, 6), squared_costs(random, 6)
    for to in (q, q[0], list(q[0]), np.broadcast_to(q, p.shape)):
        np.testing.assert_array_equal(solve(p, to, cost).values, solve(p, np.repeat(q, 4, 0), cost).values)


@pytest.mark.parametrize(
    ("p", "q"),
    [((2, 4), (2, 4)), ((2, 3), (3, 3)), ((3,), (2, 3)), ((2, 3), (2, 2)), ((1, 2, 3), (3,)), ((3,), (1, 1, 3))],
)
def test_weights_of_other_shapes_are_refused(p: tuple[int, ...], q: tuple[int, ...]) -> None:
    for cost in (np.zeros((3, 3)), Paths(ring(3), torch.arange(3), 3.0)):
        with pytest.raises(ValueError, match=r"p \(m, n\) and q|Weights must be of shape"):
            solve(np.ones(p), np.ones(q), cost)


@pytest.mark.parametrize("shape", [(3,), (3, 4), (1, 3, 3)])
def test_costs_are_square(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"Costs must be a square matrix \(n, n\)"):
        solve(np.ones(3), np.ones(3), np.zeros(shape))


def test_negative_weights_are_refused() -> None:
    """They are most likely logarithms."""
    good, bad = np.ones((2, 3)), np.array([[1, 1, 1], [1, -1e-9, 1]])
    for cost in (line(3), line(3) ** 2, Paths(ring(3), torch.arange(3), 3.0)):
        for p, q in ((good, bad), (bad, good)):
            with pytest.raises(ValueError, match=r"Weights must not be negative.*log=True"):
                solve(p, q, cost)
    with pytest.raises(ValueError, match="Weights must not be negative"):
        transport_cost(torch.from_numpy(bad), torch.from_numpy(good), torch.from_numpy(line(3)))


@pytest.mark.parametrize("row", [[np.nan, 1, 1], [np.inf, 1, 1], [0, 0, 0]], ids=["nan", "inf", "no mass"])
def test_a_row_without_an_answer_leaves_the_others_alone(row: list[float]) -> None:
    p, q = np.array([[1.0, 0, 0], row, [0, 0.5, 0.5]]), np.array([0.0, 0.5, 0.5])
    for cost in (line(3), line(3) ** 2, Paths(ring(3), torch.arange(3), 3.0)):
        solution, expected = solve(p, q, cost), solve(p[[0, 2]], q, cost)
        for array, rest in zip(solution[:4], expected[:4], strict=True):
            assert np.isnan(array[1]).all()
            np.testing.assert_array_equal(array[[0, 2]], rest)
        backwards = solve(q[None].repeat(3, 0), p, cost)
        assert np.isnan(backwards.values).tolist() == [False, True, False]


@pytest.mark.parametrize("row", [[np.nan, 0, 0], [np.inf, 0, 0], [-np.inf, -np.inf, -np.inf]], ids=str)
def test_logarithms_without_an_answer_have_none(row: list[float]) -> None:
    solution = solve([row, [0, 0, 0]], [0, 0, 0], line(3), log=True)
    assert np.isnan(solution.values).tolist() == [True, False]


@pytest.mark.parametrize("size", [1.7e308, 1e300, 1e-300, 1e-310])
def test_costs_may_be_as_large_or_small_as_numbers_are(size: float) -> None:
    cost = size * (line(4) / 3)
    p, q = np.array([0.5, 0.5, 0, 0]), np.array([0, 0, 0.5, 0.5])
    for costs in (cost, np.where(cost == 0, size, cost), Paths(ring(4, size / 3), torch.arange(4), size)):
        matrix = as_matrix(costs)
        expected = ot.emd2(p, q, matrix / size)
        np.testing.assert_allclose(solve(p, q, costs).values / size, expected, rtol=1e-9)


def test_one_sample_costs_nothing() -> None:
    solution = solve(np.ones((2, 1)), np.ones((2, 1)), np.zeros((1, 1)))
    np.testing.assert_array_equal(solution.values, [0, 0])
    assert solution.potentials_p.shape == solution.potentials_q.shape == (2, 1)


def test_no_problem_has_no_value() -> None:
    values = transport_cost(torch.ones(0, 3), torch.ones(0, 3), torch.zeros(3, 3))
    assert values.shape == (0,)
    paths = Paths(ring(3), torch.arange(3), 3.0)
    for cost in (np.zeros((3, 3)), np.eye(3), paths):
        for q in (np.ones((0, 3)), np.ones((1, 3)), np.ones(3)):
            solution = solve(np.ones((0, 3)), q, cost)
            assert [array.shape for array in solution[:4]] == [(0,), (0, 3), (0, 3), (0,)]


@pytest.mark.parametrize("place", [0, 1, 2], ids=["p", "q", "cost"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_so(place: int, value: float) -> None:
    """A diverged model or a broken distance is for the caller to notice, not for the solver to hang on."""
    problem = [np.full((2, 3), 1 / 3), np.full((2, 3), 1 / 3), integer_costs(np.random.default_rng(0), 3)]
    problem[place][0, 0] = value
    solution = solve(*problem)
    assert np.isnan(solution.values[0])
    assert np.isnan(solution.potentials_p[0]).all()
    assert np.isnan(solution.potentials_q[0]).all()


def test_one_hot_to_one_hot_is_the_cost_itself() -> None:
    cost = asymmetric_costs(np.random.default_rng(0), 5)
    p = torch.eye(5, dtype=torch.float64)
    values = transport_cost(p[:, None], p[None], torch.from_numpy(cost))
    np.testing.assert_allclose(values.numpy(), cost, rtol=1e-12)


@pytest.mark.parametrize(
    ("p_shape", "q_shape", "expected"),
    [((), (), ()), ((3,), (), (3,)), ((3, 1), (1, 2), (3, 2)), ((2, 3, 1), (2, 1, 4), (2, 3, 4)), ((1,), (4,), (4,))],
)
def test_batches_broadcast_and_equal_a_loop(
    p_shape: tuple[int, ...], q_shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    n = 4
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(*p_shape, n, generator=generator, dtype=torch.float64).softmax(-1).requires_grad_()
    q = torch.randn(*q_shape, n, generator=generator, dtype=torch.float64).softmax(-1).requires_grad_()
    points = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    cost = torch.cdist(points, points)
    values = transport_cost(p, q, cost)
    assert values.shape == expected
    rows = (operand.reshape(-1, n) for operand in torch.broadcast_tensors(p, q))
    loop = torch.stack([transport_cost(a, b, cost) for a, b in zip(*rows, strict=True)]).reshape(expected)
    torch.testing.assert_close(values, loop)
    coefficients = torch.randn(expected, generator=generator, dtype=torch.float64)
    for batched, looped in zip(
        torch.autograd.grad((coefficients * values).sum(), (p, q)),
        torch.autograd.grad((coefficients * loop).sum(), (p, q)),
        strict=True,
    ):
        torch.testing.assert_close(batched, looped)


def test_float32_is_solved_in_float64_and_returned_in_float32() -> None:
    random = np.random.default_rng(0)
    p, q = (torch.from_numpy(random_distributions(random, 3, 6)) for _ in range(2))
    cost = torch.from_numpy(points_in_general_position(random, 6))
    single = p.float().requires_grad_()
    double = p.clone().requires_grad_()
    values = transport_cost(single, q.float(), cost.float())
    expected = transport_cost(double, q, cost)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), expected, rtol=1e-6, atol=1e-6)
    (by_single,) = torch.autograd.grad(values.sum(), single)
    (by_double,) = torch.autograd.grad(expected.sum(), double)
    assert by_single.dtype == torch.float32
    # Potentials are known up to a constant.
    by_single, by_double = by_single - by_single[:, :1], by_double - by_double[:, :1]
    torch.testing.assert_close(by_single.double(), by_double, rtol=1e-5, atol=1e-5)


def test_float32_masses_that_do_not_quite_sum_to_one_are_accepted() -> None:
    generator = torch.Generator().manual_seed(0)
    p = (10 * torch.randn(5, 300, generator=generator)).softmax(-1)
    q = torch.full((300,), 1 / 300)
    points = torch.randn(300, 2, generator=generator)
    values = transport_cost(p, q, torch.cdist(points, points))
    assert bool(values.isfinite().all())
    assert bool((values > 0).all())


def test_inputs_are_left_as_they_were() -> None:
    random = np.random.default_rng(0)
    p, q, cost = integer_masses(random, 3, 5), random_distributions(random, 3, 5), integer_costs(random, 5)
    copies = [array.copy() for array in (p, q, cost)]
    solve(p, q, cost)
    for array, copy in zip((p, q, cost), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


# --- Along graphs -------------------------------------------------------------------------------------------


def assert_that_of_the_matrix(p: Array, q: Array, paths: Paths) -> None:
    solution, matrix = solve(p, q, paths), as_matrix(paths)
    np.testing.assert_allclose(solution.values, solve(p, q, matrix).values, rtol=1e-9, atol=1e-12 * size(matrix))
    sums = solution.potentials_p[:, :, None] + solution.potentials_q[:, None, :]
    assert (sums - matrix).max() <= 1e-12 * size(matrix)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("neighbours", [1, 2, 6])
def test_paths_cost_what_their_matrix_costs(neighbours: int, weighted: bool) -> None:
    """Of all samples, of a batch of them, in one part or in several that no path joins."""
    random = np.random.default_rng(0)
    block = ShortestPath(neighbours=neighbours, weighted=weighted).bind(random.standard_normal((50, 2)))
    some = torch.from_numpy(random.permutation(50)[:30])
    for index in (torch.arange(50), some, torch.tensor([7, 3, 49, 20]), torch.tensor([5])):
        for m in (1, 7):
            p, q = (random_distributions(random, m, len(index)) for _ in range(2))
            assert_that_of_the_matrix(p, q, block(index))
            assert_that_of_the_matrix(one_hot(random, m, len(index)), q, block(index))


def test_a_sample_may_come_twice() -> None:
    """As in a batch that was drawn with replacement."""
    random = np.random.default_rng(0)
    for index in ([0, 0, 2, 3], [5, 1, 5, 5], [3, 3, 3, 3, 0, 1, 2, 4, 5]):
        paths = Paths(ring(6), torch.tensor(index), 6.0)
        p, q = (random_distributions(random, 2, len(index)) for _ in range(2))
        assert_that_of_the_matrix(p, q, paths)


def test_paths_that_do_not_exist_cost_what_is_said() -> None:
    """The same graph serves several lengths of no path, one after the other."""
    random = np.random.default_rng(0)
    graph = scipy.sparse.csr_array(scipy.sparse.block_diag([ring(5), ring(4, 0.5)]))
    p, q = (random_distributions(random, 2, 9) for _ in range(2))
    for unreachable in (9.0, 100.0, 12.5):
        assert_that_of_the_matrix(p, q, Paths(graph, torch.arange(9), unreachable))
    # Within a part it does not matter.
    within = Paths(graph, torch.arange(5), np.inf)
    assert_that_of_the_matrix(p[:, :5], q[:, :5], within)


def test_a_changed_copy_of_paths_has_costs_of_its_own() -> None:
    random = np.random.default_rng(0)
    graph = scipy.sparse.csr_array(scipy.sparse.block_diag([ring(5), ring(4, 0.5)]))
    p, q = (random_distributions(random, 2, 9) for _ in range(2))
    paths = Paths(graph, torch.arange(9), 9.0)
    assert_that_of_the_matrix(p, q, paths)
    order = torch.from_numpy(random.permutation(9))
    for change in ({"unreachable": 100.0}, {"nodes": order}, {"graph": 2 * graph, "unreachable": 18.0}):
        assert_that_of_the_matrix(p, q, replace(paths, **change))


def test_parts_of_paths_are_those_of_their_matrix() -> None:
    random = np.random.default_rng(0)
    whole = Paths(ring(12), torch.from_numpy(random.permutation(12)), 12.0)
    for index in (torch.arange(12), torch.tensor([3, 1, 7]), torch.tensor([5, 5])):
        part = whole.part(index)
        torch.testing.assert_close(part.matrix(), whole.matrix()[index][:, index])
        p, q = (random_distributions(random, 2, len(index)) for _ in range(2))
        assert_that_of_the_matrix(p, q, part)


@pytest.mark.parametrize("length", [np.nan, np.inf])
def test_edges_that_are_not_finite(length: float) -> None:
    """An edge without end joins nothing; one that is not a number leaves no path that is."""
    graph = ring(6)
    for i, j in ((0, 1), (1, 0), (2, 3), (3, 2)):
        graph[i, j] = length
    paths = Paths(graph, torch.arange(6), 50.0)
    solution = solve(np.eye(6)[:1], np.eye(6)[5:], paths)
    if np.isnan(length):
        assert np.isnan(solution.values).all()
    else:
        assert_that_of_the_matrix(np.eye(6)[:2], np.eye(6)[2:4], paths)


def test_a_graph_that_was_written_to_is_read_again() -> None:
    graph, ends = ring(6), np.eye(6)[[0, 3]]
    for _ in range(3):
        paths = Paths(graph, torch.arange(6), 100.0)
        assert_that_of_the_matrix(ends[:1], ends[1:], paths)
        graph.data *= 2


def test_a_graph_is_left_as_it_was() -> None:
    graph = scipy.sparse.csr_array((np.array([1.0, 2, 2, 1]), np.array([2, 1, 0, 0]), np.array([0, 2, 3, 4])))
    copies = [array.copy() for array in (graph.data, graph.indices, graph.indptr)]
    assert_that_of_the_matrix(np.eye(3)[:1], np.eye(3)[1:2], Paths(graph, torch.arange(3), 9.0))
    for array, copy in zip((graph.data, graph.indices, graph.indptr), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_numbers_of_problems_may_come_in_any_order() -> None:
    """Few problems among many nodes are solved along the graph, many by a matrix: none of them trips the other."""
    random = np.random.default_rng(0)
    paths = Paths(ring(300), torch.from_numpy(random.permutation(300)[:100]), 300.0)
    matrix = as_matrix(paths)
    for m in (1, 10, 1, 10, 2, 1):
        p, q = (random_distributions(random, m, 100) for _ in range(2))
        values = transport_cost(torch.from_numpy(p), torch.from_numpy(q), paths)
        np.testing.assert_allclose(values, solve(p, q, matrix).values, rtol=1e-9)


# --- Memory -------------------------------------------------------------------------------------------------


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[State | None]:
    """The states that transport costs start from, as they come."""
    seen: list[State | None] = []

    def spy(p: Any, q: Any, cost: Any, state: State | None = None, **options: Any) -> Any:
        seen.append(state)
        return solve(p, q, cost, state, **options)

    monkeypatch.setattr(module, "solve", spy)
    return seen


def problem_tensors(n: int = 6, m: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    random = np.random.default_rng(seed)
    p, q = (torch.from_numpy(random_distributions(random, m, n)) for _ in range(2))
    return p, q, torch.from_numpy(points_in_general_position(random, n))


def paths_of(n: int = 6) -> Paths:
    return Paths(ring(n), torch.arange(n), float(n))


@pytest.mark.skipif("engine() == 'pot'", reason="POT always starts from scratch")
@pytest.mark.parametrize("form", ["float64", "float32", "paths"])
def test_the_same_cost_starts_where_the_last_one_ended(form: str, states: list[State | None]) -> None:
    p, q, matrix = problem_tensors()
    cost = {"float64": matrix, "float32": matrix.float(), "paths": paths_of()}[form]
    expected = [transport_cost(a, b, cost) for a, b in ((p, q), (q, p), (p, q))]
    assert states[0] is None
    assert all(state is not None for state in states[1:])
    assert len({id(state.ground) for state in states if state is not None}) == 1
    # What is remembered is where to start, and not what to answer.
    fresh = cost.clone() if isinstance(cost, Tensor) else paths_of()
    torch.testing.assert_close(transport_cost(q, p, fresh), expected[1], rtol=1e-9, atol=1e-12)
    assert states[-1] is None
    # Another number of problems starts anew, and does not disturb the others.
    transport_cost(p[:2], q[:2], cost)
    assert states[-1] is None
    transport_cost(p, q, cost)
    assert states[-1] is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cost_that_was_written_to_is_another_cost(dtype: torch.dtype, states: list[State | None]) -> None:
    p, q, cost = problem_tensors()
    cost = cost.to(dtype)
    first = transport_cost(p, q, cost)
    cost.mul_(2)
    torch.testing.assert_close(transport_cost(p, q, cost), 2 * first, rtol=1e-6, atol=0)
    cost[0, 1] = cost[1, 0] = 0
    expected = solve(p.numpy(), q.numpy(), cost.double().numpy()).values
    torch.testing.assert_close(transport_cost(p, q, cost), torch.from_numpy(expected), rtol=1e-6, atol=0)
    assert states == [None] * len(states)


def test_costs_made_in_inference_mode_are_not_remembered(states: list[State | None]) -> None:
    """They do not count how often they were written to."""
    p, q, cost = problem_tensors()
    with torch.inference_mode():
        cost = cost.clone()
        first = transport_cost(p, q, cost)
        cost *= 2
        torch.testing.assert_close(transport_cost(p, q, cost), 2 * first)
    assert states == [None, None]


@pytest.mark.parametrize("form", ["tensor", "paths"])
def test_what_is_remembered_goes_with_the_cost(form: str) -> None:
    gc.collect()
    before = len(module.known_costs)
    p, q, matrix = problem_tensors()
    cost = matrix if form == "tensor" else paths_of()
    for _ in range(3):
        transport_cost(p, q, cost)
    assert len(module.known_costs) == before + 1
    del cost, matrix
    gc.collect()
    assert len(module.known_costs) == before


def test_a_fit_leaves_nothing_behind() -> None:
    """Each batch has paths of its own."""
    gc.collect()
    before = len(module.known_costs)
    X = np.random.default_rng(0).normal(size=(60, 2))
    settings = {"objective": "wasserstein_ova", "geometry": ShortestPath(neighbours=5), "batch_size": 20}
    make_clustering(3, model="linear", max_epochs=2, random_state=0, **settings).fit(X)
    gc.collect()
    assert len(module.known_costs) == before


def test_costs_come_and_go_in_a_long_loop() -> None:
    """New costs take the place, and often the identity, of old ones; none may meet what was learned of another."""
    before = len(module.known_costs)
    for seed in range(200):
        p, q, cost = problem_tensors(n=4, seed=seed)
        values = transport_cost(p, q, cost)
        np.testing.assert_allclose(values, solve(p.numpy(), q.numpy(), cost.numpy()).values, rtol=1e-9, atol=1e-12)
    assert len(module.known_costs) <= before + 1


def test_a_prepared_cost_is_prepared() -> None:
    ground = prepare(line(3))
    assert prepare(ground) is ground


# --- Through the objectives ---------------------------------------------------------------------------------


def random_logits(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def affinities(n: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor | Paths]:
    """Distances as a matrix, along a graph of all samples, and along one of more than these."""
    points = random_logits(n + 4, 2, seed=1)
    whole = ShortestPath(neighbours=3, weighted=True).bind(points[:n].to(dtype))(torch.arange(n))
    some = ShortestPath(neighbours=3, weighted=True).bind(points.to(dtype))(torch.arange(2, n + 2))
    assert isinstance(whole, Paths)
    assert isinstance(some, Paths)
    matrix = torch.cdist(points[:n], points[:n], compute_mode="donot_use_mm_for_euclid_dist").to(dtype)
    return {"matrix": matrix, "squares": matrix**2, "paths": whole, "paths of a batch": some}


both_modes = pytest.mark.parametrize("mode", ["ova", "ovo"])
every_form = pytest.mark.parametrize("form", affinities(8))


@both_modes
@every_form
def test_gradient_of_the_objective_is_that_of_finite_differences(mode: str, form: str) -> None:
    affinity, logits = affinities(8)[form], random_logits(8, 3)
    gemini = Gemini(f"wasserstein_{mode}")
    traced = logits.clone().requires_grad_()
    (by_autograd,) = torch.autograd.grad(gemini(traced.log_softmax(-1), affinity), traced)
    _, closed = value_and_gradient(gemini, logits, affinity)
    step = 1e-6
    slopes = torch.zeros_like(logits)
    for i, k in np.ndindex(*logits.shape):
        move = torch.zeros_like(logits)
        move[i, k] = step
        ahead, behind = (gemini((logits + sign * move).log_softmax(-1), affinity) for sign in (1, -1))
        slopes[i, k] = (ahead - behind) / (2 * step)
    torch.testing.assert_close(by_autograd, slopes, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(closed, slopes, rtol=1e-5, atol=1e-8)


@both_modes
@every_form
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("shape", [(8, 3), (4, 8, 3), (2, 3, 8, 2), (8, 1), (0, 8, 3)], ids=str)
def test_closed_form_is_the_autograd_gradient(mode: str, form: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    affinity, logits = affinities(8, dtype)[form], random_logits(*shape).to(dtype)
    gemini = Gemini(f"wasserstein_{mode}")
    for scaled in (logits, 5 * logits):
        value, gradient = value_and_gradient(gemini, scaled, affinity)
        traced = scaled.clone().requires_grad_()
        expected = gemini(traced.log_softmax(-1), affinity)
        (by_autograd,) = torch.autograd.grad(expected.sum(), traced)
        assert (value.dtype, value.shape) == (dtype, shape[:-2])
        assert (gradient.dtype, gradient.shape) == (dtype, shape)
        tolerance = {torch.float32: 1e-5, torch.float64: 1e-11}[dtype]
        torch.testing.assert_close(value, expected.detach(), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(gradient, by_autograd, rtol=tolerance, atol=tolerance)


@both_modes
def test_closed_form_takes_logits_of_autograd(mode: str) -> None:
    logits, affinity = random_logits(8, 3), affinities(8)["matrix"]
    gemini = Gemini(f"wasserstein_{mode}")
    expected = value_and_gradient(gemini, logits, affinity)
    for same in (logits.clone().requires_grad_(), logits.mT.contiguous().mT, (2 * logits.requires_grad_()) / 2):
        for actual, answer in zip(value_and_gradient(gemini, same, affinity), expected, strict=True):
            assert not actual.requires_grad
            torch.testing.assert_close(actual, answer)


@both_modes
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_diverged_have_no_value(mode: str, bad: float) -> None:
    """For the caller to notice; a model of a batch takes no other with it. A logit of −∞ is a probability of zero."""
    logits, affinity = random_logits(2, 8, 3), affinities(8)["matrix"]
    logits[0, 0, 0] = bad
    gemini = Gemini(f"wasserstein_{mode}")
    value, gradient = value_and_gradient(gemini, logits, affinity)
    expected = gemini(logits.log_softmax(-1), affinity)
    torch.testing.assert_close(value, expected, equal_nan=True)
    assert bool(value[1].isfinite())
    assert bool(gradient[1].isfinite().all())
    assert bool(value[0].isnan()) == (bad != -np.inf)


@pytest.mark.parametrize(
    "function", [transport_cost, functools.partial(sinkhorn_cost, iterations=3000, tolerance=1e-12)]
)
def test_gradient_by_weights_of_any_sum(function: Callable[..., torch.Tensor]) -> None:
    """Scaling all weights changes nothing, and the gradient knows it."""
    cost = torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]], dtype=torch.float64)
    p = torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([0.3, 3.0, 1.0], dtype=torch.float64, requires_grad=True)
    for weights in (p, q):
        (gradient,) = torch.autograd.grad(function(p, q, cost), weights)
        assert float((gradient * weights.detach()).sum()) == pytest.approx(0, abs=1e-9)
        for i in range(3):
            step = torch.zeros(3, dtype=torch.float64)
            step[i] = 1e-6
            with torch.no_grad():
                there, back = (
                    function(p + sign * step, q, cost) if weights is p else function(p, q + sign * step, cost)
                    for sign in (1, -1)
                )
            assert float(gradient[i]) == pytest.approx(float(there - back) / 2e-6, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("function", [transport_cost, sinkhorn_cost])
def test_costs_are_constants(function: Callable[..., torch.Tensor]) -> None:
    cost = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(ValueError, match=r"pass cost.detach\(\)"):
        function(torch.ones(2), torch.ones(2), cost)


@pytest.mark.parametrize("name", ["wasserstein_ova", "wasserstein_ovo"])
def test_objectives_need_symmetric_distances(name: str) -> None:
    one_way = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="symmetric distances"):
        Gemini(name)(logits.log_softmax(-1), one_way)
    with pytest.raises(ValueError, match="symmetric distances"):
        value_and_gradient(Gemini(name), logits, one_way)


def test_prepared_costs_are_a_copy() -> None:
    """Writing over the array that was prepared changes nothing, from scratch or from a state."""
    random = np.random.default_rng(0)
    cost = euclidean_cost(random.standard_normal((12, 2)))
    p, q = random_distributions(random, 3, 12), random_distributions(random, 3, 12)
    ground = prepare(cost)
    first = solve(p, q, ground)
    second = solve(p, q, ground, first.state)
    cost[:] = cost**2
    np.testing.assert_array_equal(solve(p, q, ground).values, first.values)
    np.testing.assert_array_equal(solve(p, q, ground, second.state).values, first.values)


def test_a_tensor_with_other_numbers_is_another_cost() -> None:
    cost = torch.from_numpy(line(4))
    p, q = torch.eye(4, dtype=torch.float64)[[0, 3]]
    assert float(transport_cost(p, q, cost)) == 3
    cost.data = 10 * cost.data
    assert float(transport_cost(p, q, cost)) == 30


@pytest.mark.parametrize(
    "edges",
    [[[0, 1, 0], [5, 0, 1], [0, 5, 0]], [[0, 1, 0], [0, 0, 1], [0, 0, 0]]],
    ids=["other lengths back", "no way back"],
)
def test_a_graph_is_symmetric(edges: list[list[float]]) -> None:
    paths = Paths(scipy.sparse.csr_array(np.array(edges, dtype=float)), torch.arange(3), 9.0)
    with pytest.raises(ValueError, match="must be symmetric"):
        solve([1, 0, 0], [0, 0, 1], paths)


def test_a_graph_may_be_stored_in_any_way() -> None:
    for kind in (scipy.sparse.coo_array, scipy.sparse.csc_array, scipy.sparse.csr_matrix):
        assert solve([1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0], Paths(kind(ring(6)), torch.arange(6), 9.0)).values == [3]


@pytest.mark.skipif("engine() == 'pot'", reason="POT always starts from scratch")
def test_paths_of_float32_samples_stay_a_metric() -> None:
    """Few of many nodes and many problems go through a matrix: not rounded, so that it is recognised."""
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    paths = ShortestPath(neighbours=6, weighted=True).bind(x)(torch.arange(40))
    ground = prepare(paths)
    p = np.random.default_rng(0).dirichlet(np.ones(40), 8)
    state = solve(p, p[::-1], ground).state
    assert solve(p, p[::-1], ground, state).state.trees is not None


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_are_a_positive_number(threads: int) -> None:
    with pytest.raises(ValueError, match="threads must be a positive number"):
        solve([1, 0], [0, 1], line(2), threads=threads)


@pytest.mark.parametrize(("cost", "error"), [(np.zeros((0, 0)), ValueError), (np.eye(2) * 1j, TypeError)])
def test_costs_that_are_none_are_refused(cost: Array, error: type[Exception]) -> None:
    with pytest.raises(error, match="Costs must be"):
        prepare(cost)


def test_huge_weights_may_overflow_in_sum() -> None:
    assert solve([1e308, 1e308, 0], [0, 0, 1e308], line(3)).values == pytest.approx([1.5])


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no compiler")
@pytest.mark.skipif(VARIABLE in os.environ, reason="another engine was asked for")
def test_where_there_is_a_compiler_there_is_the_compiled_engine() -> None:
    assert engine() == "native"
