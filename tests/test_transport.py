"""Exact optimal transport: against linear programming and POT, its duality, its gradients and its limits."""

from itertools import pairwise

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from pollux.transport import transport_cost
from pollux.transport.exact import solve

Array = NDArray[np.float64]
Problem = tuple[Array, Array, Array]

few = settings(max_examples=60, derandomize=True, deadline=None, database=None)
seeds = st.integers(0, 2**32 - 1)


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


def test_one_sample_costs_nothing() -> None:
    solution = solve(np.ones((2, 1)), np.ones((2, 1)), np.zeros((1, 1)))
    np.testing.assert_array_equal(solution.values, [0, 0])
    assert solution.potentials_p.shape == solution.potentials_q.shape == (2, 1)


def test_no_problem_has_no_value() -> None:
    values = transport_cost(torch.ones(0, 3), torch.ones(0, 3), torch.zeros(3, 3))
    assert values.shape == (0,)


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
