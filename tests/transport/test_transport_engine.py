"""The transport engine against POT on thousands of problems, warm and cold; what it refuses; and how it stops."""

import inspect
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import ot
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse.csgraph import floyd_warshall

from coverings import IS_FULL, examples, in_full
from fault_runs import Child, run_program
from pollux.geometry.affinity import Paths
from pollux.threads import allowed, torch_on_one
from pollux.transport import Solution, State, prepare, solve, transport_cost
from pollux.transport.engine import VARIABLE, native
from pollux.transport.ground import Trees

Array = NDArray[np.float64]
Random = np.random.Generator


@pytest.fixture(scope="module", autouse=True)
def _the_compiled_engine_is_there() -> None:
    """Otherwise POT would be tested against itself."""
    if native() is None:
        pytest.skip("the compiled engine was not built")


# --- Costs --------------------------------------------------------------------------------------------------


def euclidean(points: Array) -> Array:
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))


def gaussian_points(random: Random, n: int) -> Array:
    return euclidean(random.standard_normal((n, 2)))


def integer_grid(random: Random, n: int) -> Array:
    return euclidean(random.integers(0, 4, (n, 2)).astype(float))


def duplicates(random: Random, n: int) -> Array:
    return euclidean(random.standard_normal((n, 3))[random.integers(n, size=n) // 2])


def points_on_a_line(random: Random, n: int) -> Array:
    return euclidean(random.standard_normal((n, 1)))


def integer_city_blocks(random: Random, n: int) -> Array:
    points = random.integers(0, 5, (n, 3)).astype(float)
    return np.abs(points[:, None] - points[None]).sum(-1)


def all_alike(random: Random, n: int) -> Array:
    return 1 - np.eye(n)


def all_free(random: Random, n: int) -> Array:
    return np.zeros((n, n))


def squared_euclidean(random: Random, n: int) -> Array:
    return gaussian_points(random, n) ** 2


def cosine(random: Random, n: int) -> Array:
    points = random.standard_normal((n, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return 1 - points @ points.T


def asymmetric(random: Random, n: int) -> Array:
    return random.random((n, n))


def partly_negative(random: Random, n: int) -> Array:
    return random.standard_normal((n, n))


def few_integers(random: Random, n: int) -> Array:
    return random.integers(-1, 3, (n, n)).astype(float)


def one_way_too_long(random: Random, n: int) -> Array:
    """A metric, but for one pair that costs more than some detour."""
    cost = gaussian_points(random, n)
    i, j = random.integers(n, size=2)
    if i != j:
        cost[i, j] = cost[j, i] = (1.5 + random.random()) * cost[i, j] + 0.5
    return cost


def one_way_too_short(random: Random, n: int) -> Array:
    """A metric, but for one pair that offers a short cut to others."""
    cost = gaussian_points(random, n)
    i, j = random.integers(n, size=2)
    cost[i, j] = cost[j, i] = 0.5 * random.random() * cost[i, j]
    return cost


METRICS: dict[str, Callable[[Random, int], Any]] = {
    function.__name__: function
    for function in (
        gaussian_points,
        integer_grid,
        duplicates,
        points_on_a_line,
        integer_city_blocks,
        all_alike,
        all_free,
    )
}
OTHERS: dict[str, Callable[[Random, int], Any]] = {
    function.__name__: function
    for function in (
        squared_euclidean,
        cosine,
        asymmetric,
        partly_negative,
        few_integers,
        one_way_too_long,
        one_way_too_short,
    )
}


def as_graph(n: int, edges: Any, lengths: Any) -> scipy.sparse.csr_array:
    """The symmetric graph of n nodes with edges (2, e) of lengths (e,)."""
    (a, b), lengths = np.asarray(edges, dtype=int).reshape(2, -1), np.asarray(lengths, dtype=float)
    both = (np.append(a, b), np.append(b, a))
    return scipy.sparse.csr_array((np.append(lengths, lengths), both), shape=(n, n))


def random_graph(random: Random, n: int, *, weighted: bool, connected: bool) -> scipy.sparse.csr_array:
    """Few edges or many; of weighted ones some have the length zero."""
    pairs = random.integers(n, size=(2, max(1, int(2 * n * random.random()))))
    if connected:
        pairs = np.concatenate([pairs, np.stack([np.arange(n - 1), np.arange(1, n)])], 1)
    pairs = np.unique(np.sort(pairs[:, pairs[0] != pairs[1]], 0), axis=1)
    lengths = random.random(pairs.shape[1]) ** 2 if weighted else np.ones(pairs.shape[1])
    if weighted and random.random() < 0.3:
        lengths[random.random(len(lengths)) < 0.3] = 0
    return as_graph(n, pairs, lengths)


def random_paths(random: Random, n: int, *, weighted: bool, connected: bool) -> Paths:
    """Among all nodes, in any order, or among some of those of a larger graph."""
    nodes = int(random.integers(n, 3 * n + 1)) if random.random() < 0.5 else n
    graph = random_graph(random, nodes, weighted=weighted, connected=connected)
    order = torch.from_numpy(random.permutation(nodes)[:n]) if random.random() < 0.7 else torch.arange(n)
    return Paths(graph, order, nodes * (float(graph.data.max(initial=0)) or 1.0))


GRAPHS: dict[str, Callable[[Random, int], Any]] = {
    "hop_counts": lambda random, n: random_paths(random, n, weighted=False, connected=True),
    "weighted_paths": lambda random, n: random_paths(random, n, weighted=True, connected=True),
    "hop_counts_in_parts": lambda random, n: random_paths(random, n, weighted=False, connected=False),
    "weighted_paths_in_parts": lambda random, n: random_paths(random, n, weighted=True, connected=False),
}
COSTS = METRICS | OTHERS | GRAPHS


def as_matrix(cost: Array | Paths) -> Array:
    return cost.matrix().numpy() if isinstance(cost, Paths) else cost


# --- Weights ------------------------------------------------------------------------------------------------


def softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def soft(random: Random, m: int, n: int) -> Array:
    return softmax(random.standard_normal((m, n)))


def sharp(random: Random, m: int, n: int) -> Array:
    return softmax(30 * random.standard_normal((m, n)))


def one_hot(random: Random, m: int, n: int) -> Array:
    return np.eye(n)[random.integers(n, size=m)]


def uniform(random: Random, m: int, n: int) -> Array:
    return np.full((m, n), 1 / n)


def few_levels(random: Random, m: int, n: int) -> Array:
    weights = random.integers(0, 3, (m, n)).astype(float)
    weights[:, random.integers(n)] += 1
    return weights / weights.sum(1, keepdims=True)


def equal_but_one(random: Random, m: int, n: int) -> Array:
    weights = np.ones((m, n))
    weights[:, random.integers(n)] = 5 * random.random()
    return weights / weights.sum(1, keepdims=True)


def tiny(random: Random, m: int, n: int) -> Array:
    weights = soft(random, m, n)
    weights[random.random((m, n)) < 0.5] *= 1e-300
    weights[:, random.integers(n)] = 0.5
    return weights / weights.sum(1, keepdims=True)


def mostly_zero(random: Random, m: int, n: int) -> Array:
    weights = soft(random, m, n)
    weights[random.random((m, n)) < 0.6] = 0
    weights[:, random.integers(n)] = 0.5
    return weights / weights.sum(1, keepdims=True)


WEIGHTS = (soft, sharp, one_hot, uniform, few_levels, equal_but_one, tiny, mostly_zero)


def any_weights(random: Random, m: int, n: int) -> Array:
    return WEIGHTS[random.integers(len(WEIGHTS))](random, m, n)


def related(random: Random, weights: Array) -> Array:
    """After a step of training: every weight changed a little, or some of them."""
    change = 10.0 ** -random.integers(1, 10) * random.random(weights.shape)
    if random.random() < 0.3:
        change[:, random.random(weights.shape[1]) < 0.8] = 0
    weights = weights * (1 + change)
    return weights / weights.sum(1, keepdims=True)


# --- Against POT --------------------------------------------------------------------------------------------


def by_pot(p: Array, q: Array, cost: Array) -> float:
    """POT's value; it is wrong for some negative costs, so these are lifted to zero first."""
    least = float(cost.min())
    return float(ot.emd2(p, q, cost - least, numItermax=10_000_000)) + least


def assert_optimal(p: Array, q: Array, cost: Array, solution: Solution) -> None:
    """The value of POT; potentials that are feasible, and prove it; and a gap that says so."""
    size = max(float(np.abs(cost).max()), np.finfo(float).tiny)
    q = np.broadcast_to(q, p.shape)
    expected = np.array([by_pot(a, b, cost) for a, b in zip(p, q, strict=True)])
    error = np.maximum(1e-9 * np.abs(expected), 1e-12 * size)
    assert (np.abs(solution.values - expected) <= error).all(), (solution.values, expected)
    f, g = solution.potentials_p, solution.potentials_q
    assert (f[:, :, None] + g[:, None, :] - cost).max() <= 1e-12 * size
    by_p, by_q = (f * p).sum(1), (g * q).sum(1)
    np.testing.assert_allclose(by_p + by_q, solution.values, rtol=0, atol=1e-12 * size)
    np.testing.assert_allclose(by_p, by_q, rtol=0, atol=1e-12 * size)
    assert (solution.gaps >= 0).all()
    assert (solution.gaps <= error).all()


def sequences(random: Random, m: int, n: int) -> Iterator[tuple[Array, Array]]:
    """Problems as training, a new start of it, or evaluation would ask for one after the other."""
    p, q = any_weights(random, m, n), any_weights(random, m if random.random() < 0.5 else 1, n)
    for _ in range(4):
        yield p, q
        if random.random() < 0.3:
            p, q = any_weights(random, m, n), any_weights(random, m if random.random() < 0.5 else 1, n)
        else:
            p = related(random, p)
    yield p, q


SIZES = (1, 2, 3, 4, 5, 7, 9, 13, 20, 33)
AT_LEAST = 600 if IS_FULL else 150


@pytest.mark.parametrize("kind", COSTS)
def test_every_kind_of_problem_has_the_value_of_pot(kind: str) -> None:
    """In all kinds more than 2,500 problems, or 10,000: each cold, or warm from related and unrelated ones."""
    random = np.random.default_rng([ord(letter) for letter in kind])
    solved = {"cold": 0, "warm": 0}
    while sum(solved.values()) < AT_LEAST:
        n, m = SIZES[random.integers(len(SIZES))], int(random.integers(1, 4))
        cost = COSTS[kind](random, n)
        ground, matrix, state = prepare(cost), as_matrix(cost), None
        for p, q in sequences(random, m, n):
            solution = solve(p, q, ground, state)
            assert_optimal(p, q, matrix, solution)
            solved["cold" if state is None or state.trees is None else "warm"] += m
            state = solution.state
    assert solved["cold"] > AT_LEAST / 12
    assert kind in OTHERS or solved["warm"] > AT_LEAST / 12
    assert len(COSTS) * AT_LEAST > (10_000 if IS_FULL else 2_500)


@pytest.mark.parametrize("kind", ["gaussian_points", "integer_city_blocks", "squared_euclidean", "asymmetric"])
@pytest.mark.parametrize("n", [120, 250])
def test_larger_problems_have_the_value_of_pot(kind: str, n: int) -> None:
    random = np.random.default_rng(n)
    cost = COSTS[kind](random, n)
    ground, state = prepare(cost), None
    p, q = soft(random, 2, n), uniform(random, 1, n)
    for weights in (p, related(random, p), sharp(random, 2, n), few_levels(random, 2, n)):
        solution = solve(weights, q, ground, state)
        assert_optimal(weights, q, cost, solution)
        state = solution.state


@pytest.mark.parametrize("weighted", [False, True])
def test_larger_graphs_have_the_value_of_their_matrix(weighted: bool) -> None:
    random = np.random.default_rng(0)
    graph = random_graph(random, 300, weighted=weighted, connected=True)
    for nodes in (torch.arange(300), torch.from_numpy(random.permutation(300)[:200])):
        paths = Paths(graph, nodes, 300.0)
        ground, state = prepare(paths), None
        p, q = soft(random, 3, len(nodes)), uniform(random, 1, len(nodes))
        for weights in (p, related(random, p), sharp(random, 3, len(nodes)), one_hot(random, 3, len(nodes))):
            solution = solve(weights, q, ground, state)
            assert_optimal(weights, q, as_matrix(paths), solution)
            state = solution.state


@st.composite
def integer_problems(draw: st.DrawFn) -> tuple[Array, Array, Array]:
    """Costs and masses of a few small whole numbers: every tie and degeneracy there is, and easy to shrink."""
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    numbers = st.lists(st.integers(-2, 4), min_size=n * n, max_size=n * n)
    cost = np.array(draw(numbers), dtype=float).reshape(n, n)
    if draw(st.booleans()):
        # The closure of a symmetric, positive cost is a metric.
        cost = floyd_warshall(1 + np.abs(cost + cost.T))
    masses = st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any)
    p, q = (np.array(draw(st.lists(masses, min_size=m, max_size=m)), dtype=float) for _ in range(2))
    return p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True), cost


@settings(max_examples=examples(300), derandomize=True, deadline=None, database=None)
@given(integer_problems())
def test_problems_of_small_integers_have_the_value_of_pot(problem: tuple[Array, Array, Array]) -> None:
    p, q, cost = problem
    ground = prepare(cost)
    cold = solve(p, q, ground)
    assert_optimal(p, q, cost, cold)
    assert_optimal(q, p, cost, solve(q, p, ground, cold.state))


def test_a_detour_shorter_than_the_direct_way_is_no_plan() -> None:
    """Mass may not pass through a sample that has none to pass on, however short that way would be."""
    places = np.array([20.0, 0, 30, 2, 40, 1, 50, 3])
    cost = np.abs(places[:, None] - places)
    cost[1, 3] = cost[3, 1] = 5  # over the sample at 1 it is 2
    ground, one = prepare(cost), np.eye(8)
    first = solve(one[7], (one[5] + one[3]) / 2, ground)
    p, q = 0.9 * one[1] + 0.1 * one[7], 0.1 * one[5] + 0.9 * one[3]
    for solution in (solve(p, q, ground), solve(p, q, ground, first.state), solve(p, q, prepare(cost), None)):
        assert_optimal(p[None], q[None], cost, solution)


@pytest.mark.parametrize("longest", [1e3, 1e6, 1e9])
def test_an_edge_that_no_path_takes_does_not_blur_the_others(longest: float) -> None:
    random = np.random.default_rng(0)
    n = 60
    pairs = np.array([(i, j) for i in range(n) for j in range(i + 1, n) if j == i + 1 or random.random() < 0.2]).T
    lengths = 0.1 + 0.01 * random.random(pairs.shape[1])
    lengths[0] = longest
    paths = Paths(as_graph(n, pairs, lengths), torch.arange(n), n * longest)
    for _ in range(10):
        p, q = soft(random, 3, n), soft(random, 3, n)
        assert_optimal(p, q, as_matrix(paths), solve(p, q, paths))


# --- The same answer, whoever works it out ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian_points", "integer_grid", "weighted_paths", "hop_counts_in_parts", "cosine"])
def test_threads_change_no_bit(kind: str) -> None:
    random = np.random.default_rng(0)
    n, m = 40, 9
    cost = COSTS[kind](random, n)
    p, q = soft(random, m, n), mostly_zero(random, m, n)
    changed = related(random, p)
    grounds = [prepare(cost) for _ in range(3)]
    for threads, ground in zip((2, 5, 100), grounds, strict=True):
        alone = prepare(cost)
        expected, actual = solve(p, q, alone, threads=1), solve(p, q, ground, threads=threads)
        expected_next = solve(changed, q, alone, expected.state, threads=1)
        actual_next = solve(changed, q, ground, actual.state, threads=threads)
        for one, other in ((expected, actual), (expected_next, actual_next)):
            for array, same in zip(one[:4], other[:4], strict=True):
                np.testing.assert_array_equal(array, same)


@pytest.mark.parametrize("kind", ["gaussian_points", "weighted_paths", "squared_euclidean"])
def test_problems_change_no_bit_of_each_other(kind: str) -> None:
    """One by one or all at once; threads keep memory from one problem to the next."""
    random = np.random.default_rng(1)
    cost = prepare(COSTS[kind](random, 25))
    p, q = any_weights(random, 8, 25), soft(random, 8, 25)
    together = solve(p, q, cost)
    for k in range(8):
        for array, same in zip(together[:4], solve(p[k], q[k], cost)[:4], strict=True):
            np.testing.assert_array_equal(array[k], same[0])


@pytest.mark.parametrize("kind", ["gaussian_points", "weighted_paths", "hop_counts"])
@pytest.mark.parametrize("seed", range(5))
def test_warm_and_cold_have_the_same_potentials_where_they_are_unique(kind: str, seed: int) -> None:
    """In general position all mass differs, every arc of the tree carries some, and only one dual is optimal."""
    random = np.random.default_rng(seed)
    n = 30
    graph = random_graph(random, n, weighted=kind == "weighted_paths", connected=True)
    cost = gaussian_points(random, n) if kind == "gaussian_points" else Paths(graph, torch.arange(n), float(n))
    ground = prepare(cost)
    p, q = soft(random, 4, n), soft(random, 4, n)
    before = solve(soft(random, 4, n), q, ground)
    near = solve(related(random, p), q, ground, before.state)
    cold = solve(p, q, ground)
    for warm in (solve(p, q, ground, before.state), solve(p, q, ground, near.state), solve(p, q, as_matrix(cost))):
        np.testing.assert_allclose(warm.values, cold.values, rtol=1e-12)
        np.testing.assert_allclose(warm.potentials_p, cold.potentials_p, atol=1e-11)
        np.testing.assert_allclose(warm.potentials_q, cold.potentials_q, atol=1e-11)


def test_python_threads_share_costs() -> None:
    """Several threads of the caller at the same prepared costs, and at the same tensor."""
    random = np.random.default_rng(0)
    n = 25
    matrix = gaussian_points(random, n)
    tensor, metric = torch.from_numpy(matrix), prepare(matrix)
    paths = Paths(random_graph(random, n, weighted=True, connected=False), torch.arange(n), float(n))
    graph, other = prepare(paths), prepare(matrix**2)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        states: dict[int, State] = {}
        for _ in range(15):
            p, q = any_weights(random, 3, n), soft(random, 3, n)
            for ground, cost in ((metric, matrix), (graph, as_matrix(paths)), (other, matrix**2)):
                solution = solve(p, q, ground, states.get(id(ground)), threads=2)
                assert_optimal(p, q, cost, solution)
                states[id(ground)] = solution.state
            values = transport_cost(torch.from_numpy(p), torch.from_numpy(q), tensor)
            np.testing.assert_allclose(values, solve(p, q, metric).values, rtol=1e-9, atol=1e-12)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))


def test_the_engine_may_use_threads_while_torch_is_kept_to_one() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch_on_one():
            assert (torch.get_num_threads(), allowed()) == (1, 2)
            with torch_on_one():
                assert allowed() == 2
        assert (torch.get_num_threads(), allowed()) == (2, 2)
    finally:
        torch.set_num_threads(before)


# --- States -------------------------------------------------------------------------------------------------


def test_states_of_other_costs_or_problems_are_refused() -> None:
    random = np.random.default_rng(0)
    matrix = gaussian_points(random, 6)
    ground, p = prepare(matrix), soft(random, 3, 6)
    state = solve(p, p[0], ground).state
    for cost in (matrix, prepare(matrix), prepare(2 * matrix)):
        with pytest.raises(ValueError, match="The state belongs to other costs"):
            solve(p, p[0], cost, state)
    with pytest.raises(ValueError, match="The state is of 3 problems, but there are 2"):
        solve(p[:2], p[0], ground, state)


def test_a_state_is_left_as_it_was() -> None:
    random = np.random.default_rng(0)
    ground = prepare(gaussian_points(random, 12))
    p, q = soft(random, 3, 12), soft(random, 3, 12)
    first = solve(p, q, ground)
    assert first.state.trees is not None
    copies = [array.copy() for array in first.state.trees]
    second = solve(related(random, p), q, ground, first.state)
    for array, copy in zip(first.state.trees, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    # So it can be gone back to, as often as one likes.
    again = solve(related(random, p), q, ground, first.state)
    assert again.state.trees is not None
    assert second.state.trees is not None


def damaged(random: Random, trees: Trees) -> Iterator[tuple[str, Trees]]:
    """What is no tree, or no tree of this problem."""
    m, n = trees.parent.shape
    numbers = random.integers(-(2**31), 2**31, (m, n))
    yield "parents anywhere", Trees(random.integers(0, n, (m, n)), trees.up)
    yield "parents out of range", Trees(numbers, trees.up)
    yield "no root", Trees(np.broadcast_to(np.roll(np.arange(n), 1), (m, n)), trees.up)
    yield "every node a root", Trees(np.full((m, n), -1), trees.up)
    yield "own parents", Trees(np.broadcast_to(np.arange(n), (m, n)), trees.up)
    yield "problems exchanged", Trees(trees.parent[::-1], trees.up[::-1])
    yield "directions that are none", Trees(trees.parent, random.integers(-128, 128, (m, n)))


def not_optimal(random: Random, trees: Trees) -> Iterator[tuple[str, Trees]]:
    """Spanning trees, but none that the solver would have left."""
    m, n = trees.parent.shape
    directions = random.choice([-1, 1], (m, n))
    tree = np.array([-1, *(random.integers(v) for v in range(1, n))])
    yield "parents anywhere", Trees(random.integers(-1, n, (m, n)), trees.up)
    yield "a chain", Trees(np.broadcast_to(np.arange(n) - 1, (m, n)), directions)
    yield "another tree", Trees(np.broadcast_to(tree, (m, n)), directions)
    yield "nodes exchanged", Trees(trees.parent[:, random.permutation(n)], trees.up)
    yield "other directions", Trees(trees.parent, directions)


Damages = Callable[[Random, Trees], Iterator[tuple[str, Trees]]]


def from_damaged_states(kind: str, damages: Damages) -> Iterator[tuple[str, Array, Array, Array, Solution]]:
    """Weights, costs and solutions that started from what was done to the trees of a state."""
    for seed in range(15):
        random = np.random.default_rng(seed)
        n, m = SIZES[random.integers(len(SIZES))], 2
        cost = COSTS[kind](random, n)
        ground = prepare(cost)
        p, q = any_weights(random, m, n), any_weights(random, m, n)
        state = solve(related(random, p), q, ground, solve(p, q, ground).state).state
        assert state.trees is not None
        for damage, (parent, up) in damages(random, state.trees):
            trees = Trees(parent.astype(np.int32), up.astype(np.int8))
            for weights in (p, any_weights(random, m, n)):
                yield damage, weights, q, as_matrix(cost), solve(weights, q, ground, State(ground, trees))


def wrong_answers(kind: str, damages: Damages) -> dict[str, int]:
    """How often an answer was wrong, for each way in which trees were damaged."""
    wrong: dict[str, int] = {}
    for damage, p, q, cost, solution in from_damaged_states(kind, damages):
        try:
            assert_optimal(p, q, cost, solution)
        except AssertionError:
            wrong[damage] = wrong.get(damage, 0) + 1
    return wrong


kinds_with_states = pytest.mark.parametrize(
    "kind", ["gaussian_points", "integer_grid", "hop_counts", "weighted_paths_in_parts"]
)


@kinds_with_states
def test_a_state_without_trees_costs_time_and_not_the_answer(kind: str) -> None:
    assert wrong_answers(kind, damaged) == {}


@kinds_with_states
def test_a_state_of_trees_that_are_not_optimal_never_crashes(kind: str) -> None:
    for _, _, _, _, solution in from_damaged_states(kind, not_optimal):
        assert all(np.isfinite(array).all() for array in solution[:4])


def test_states_of_the_wrong_shape_or_type_are_refused() -> None:
    random = np.random.default_rng(0)
    p, paths = soft(random, 2, 6), Paths(random_graph(random, 9, weighted=True, connected=True), torch.arange(6), 9.0)
    for cost in (gaussian_points(random, 6), paths):
        ground = prepare(cost)
        parent, up = np.zeros((2, 6), dtype=np.int32), np.ones((2, 6), dtype=np.int8)
        for trees in (
            Trees(parent[:, :5], up[:, :5]),
            Trees(np.zeros((2, 7), dtype=np.int32), np.ones((2, 7), dtype=np.int8)),
            Trees(parent.astype(np.int64), up),
            Trees(parent, up.astype(np.float64)),
        ):
            with pytest.raises((TypeError, ValueError)):
                solve(p, p[::-1], ground, State(ground, trees))


# --- The compiled functions themselves ----------------------------------------------------------------------


def compiled() -> Any:
    module = native()
    assert module is not None
    return module


def problem(random: Random, m: int, n: int) -> dict[str, Any]:
    """Every argument that a compiled function takes, by its name."""
    graph = random_graph(random, n, weighted=True, connected=True)
    graph.sort_indices()
    cost = gaussian_points(random, n)
    return {
        "p": soft(random, m, n),
        "q": soft(random, m, n),
        "parent": np.full((m, n), -2, dtype=np.int32),
        "up": np.zeros((m, n), dtype=np.int8),
        "values": np.zeros(m),
        "potentials": np.zeros((m, n)),
        "potentials_p": np.zeros((m, n)),
        "potentials_q": np.zeros((m, n)),
        "gaps": np.zeros(m),
        "report": np.zeros((m, 3), dtype=np.int32),
        "cost": cost,
        "single": cost.astype(np.float32),
        "largest": float(cost.max()),
        "starts": graph.indptr.astype(np.int32),
        "ends": graph.indices.astype(np.int32),
        "lengths": graph.data,
        "step": 1,
        "tolerance": 1e-12,
        "threads": 2,
    }


def arguments_of(name: str, random: Random, m: int, n: int) -> dict[str, Any]:
    """Those that the first line of the function's documentation names, in its order."""
    signature = getattr(compiled(), name).__doc__.partition("(")[2].partition(")")[0]
    known = problem(random, m, n)
    return {argument: known[argument] for argument in signature.split(", ")}


FUNCTIONS = ("solve_metric", "solve_graph", "solve_general", "describe", "triangles_hold")
OUTPUTS = ("parent", "up", "values", "potentials", "potentials_p", "potentials_q", "gaps", "report")
REFUSALS = (TypeError, ValueError, BufferError)


def call(name: str, arguments: dict[str, Any]) -> Any:
    return getattr(compiled(), name)(*arguments.values())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_functions_take_what_is_right(name: str) -> None:
    call(name, arguments_of(name, np.random.default_rng(0), 3, 5))


def test_the_same_problems_again_take_no_work() -> None:
    """The report of a problem is its status, the number of pivots, and whether it started from nothing."""
    for name in ("solve_metric", "solve_graph"):
        arguments = arguments_of(name, np.random.default_rng(0), 3, 40)
        call(name, arguments)
        assert (arguments["report"][:, 2] == 1).all()
        first = [arguments[key].copy() for key in ("values", "potentials", "parent")]
        call(name, arguments)
        np.testing.assert_array_equal(arguments["report"], 0)
        for before, key in zip(first, ("values", "potentials", "parent"), strict=True):
            np.testing.assert_allclose(arguments[key], before, rtol=0, atol=1e-14)


def test_related_problems_take_less_work_than_new_ones() -> None:
    random = np.random.default_rng(0)
    for name in ("solve_metric", "solve_graph"):
        arguments = arguments_of(name, random, 5, 200)
        call(name, arguments)
        assert (arguments["report"][:, 2] == 1).all()
        cold = max(50, arguments["report"][:, 1].sum())
        arguments["p"] *= 1 + 1e-4 * random.random(arguments["p"].shape)
        call(name, arguments)
        assert (arguments["report"][:, 0] == 0).all()
        assert (arguments["report"][:, 2] == 0).all()
        assert arguments["report"][:, 1].sum() < cold / 5


def broken(name: str, value: Any) -> Iterator[Any]:
    """What might be passed by mistake in place of an argument."""
    if isinstance(value, int | float):
        yield from ("1", None, [1], np.zeros(2))
        return
    yield from (None, 1.5, "text", value.tolist(), object())
    yield value[..., :-1].copy()
    yield np.concatenate([value, value[:1]])
    yield np.zeros(2, dtype=value.dtype)
    yield np.repeat(value, 2, -1)[..., ::2]
    yield value[..., ::-1]
    yield from (value.astype(kind) for kind in (np.float16, np.int64, np.uint32, bool, complex, object))
    yield value.astype(np.float64 if value.dtype != np.float64 else np.float32)
    yield value.astype(value.dtype.newbyteorder()) if value.dtype.itemsize > 1 else value.astype(np.uint8)
    if name in OUTPUTS:
        constant = value.copy()
        constant.flags.writeable = False
        yield constant
        yield value.tobytes()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_functions_refuse_what_is_wrong(name: str) -> None:
    arguments = arguments_of(name, np.random.default_rng(0), 3, 5)
    for argument, right in arguments.items():
        for value in broken(argument, right):
            with pytest.raises(REFUSALS):
                call(name, {**arguments, argument: value})
        with pytest.raises(TypeError):
            call(name, {key: value for key, value in arguments.items() if key != argument})


@pytest.mark.parametrize(
    "damage",
    [
        {"starts": [0, 9, 4, 6, 8, 10]},
        {"starts": [-1, 2, 4, 6, 8, 10]},
        {"starts": [0, 2, 4, 6, 8, 9]},
        {"starts": [0, 2, 4, 6, 8, 11]},
        {"starts": [0, 2, 4, 6, 2**31 - 1, 10]},
        {"starts": []},
        {"ends": [1, 4, 0, 2, 1, 3, 2, 4, 3, 5]},
        {"ends": [1, 4, 0, 2, 1, 3, 2, 4, 3, -1]},
        {"lengths": [1, 1, 1, 1, 1, 1, 1, 1, 1, -1]},
        {"lengths": [1, 1, 1, 1, 1, 1, 1, 1, 1, np.nan]},
        {"lengths": [1, 1, 1, 1, 1, 1, 1, 1, 1, np.inf]},
    ],
    ids=str,
)
def test_what_is_no_graph_is_refused(damage: dict[str, list[float]]) -> None:
    random = np.random.default_rng(0)
    ring = {"starts": [0, 2, 4, 6, 8, 10], "ends": [1, 4, 0, 2, 1, 3, 2, 4, 3, 0], "lengths": [1] * 10}
    types = {"starts": np.int32, "ends": np.int32, "lengths": np.float64}
    arrays = {key: np.array(numbers, dtype=types[key]) for key, numbers in (ring | damage).items()}
    arguments = {**arguments_of("solve_graph", random, 3, 5), **arrays}
    with pytest.raises(ValueError):  # noqa: PT011
        call("solve_graph", arguments)


def test_a_step_between_triangles_is_positive() -> None:
    for step in (0, -1):
        with pytest.raises(ValueError):  # noqa: PT011
            compiled().triangles_hold(np.zeros((3, 3)), step, 0.0, 1)


def test_triangles_hold_in_a_metric_and_nowhere_else() -> None:
    random = np.random.default_rng(0)
    for n in (1, 2, 3, 10, 40):
        for kind in ("gaussian_points", "integer_grid", "squared_euclidean", "one_way_too_long"):
            cost = COSTS[kind](random, n)
            through = (cost[:, :, None] + cost[None]).min(1)
            for threads in (1, 3):
                expected = bool((cost <= through + 1e-12).all())
                assert compiled().triangles_hold(cost, 1, 1e-12, threads) == expected


def test_costs_are_described() -> None:
    random = np.random.default_rng(0)
    for n in (1, 5, 31, 32, 33, 70):
        cost = random.standard_normal((n, n))
        expected = (max(cost.max(), 0), min(cost.min(), 0), np.abs(cost - cost.T).max(), np.abs(np.diag(cost)).max())
        assert compiled().describe(cost) == (True, *expected)
        for value in (np.nan, np.inf, -np.inf):
            cost[random.integers(n), random.integers(n)] = value
            assert compiled().describe(cost)[0] is False
    assert compiled().describe(np.zeros((0, 0))) == (True, 0, 0, 0, 0)


# --- Other processes: crashes, Ctrl-C and engines that are missing ------------------------------------------


def source_of(body: Callable[[], None]) -> str:
    return textwrap.dedent(inspect.getsource(body).split("\n", 1)[1])


def in_a_process(*bodies: Callable[[], None], seconds: float = 300, **environment: str) -> str:
    """What a new interpreter prints that runs the bodies of the functions, which must bring their imports."""
    code = "\n".join(map(source_of, bodies))
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def in_a_fork(folder: Path, *bodies: Callable[[], None], **environment: str) -> str:
    """The same in a process that is forked from one that has imported the package."""
    path, code = str(Path(__file__).parent), "\n".join(map(source_of, bodies))
    start = f"import os, sys\nos.environ |= {environment!r}\nsys.path.insert(0, {path!r})\n"
    ended = Child(folder, run_program, start + code).end()
    assert ended.code == 0, ended.err[-2000:]
    return ended.out


def nonsense() -> None:
    import contextlib

    import numpy as np
    from test_transport_engine import FUNCTIONS, OUTPUTS, arguments_of, call

    from coverings import IS_FULL

    random = np.random.default_rng(0)
    odd = np.array([0, 1, -1, np.nan, np.inf, -np.inf, 1e38, -1e38, 1e308, 1e-300, 2**53, 0.5])
    for turn in range(2000 if IS_FULL else 400):
        name = FUNCTIONS[turn % 3]
        arguments = arguments_of(name, random, int(random.integers(1, 4)), int(random.integers(2, 9)))
        n = arguments["p"].shape[1]
        for key, value in arguments.items():
            if random.random() < 0.6 or key in ("starts", "threads"):
                continue
            if not isinstance(value, np.ndarray):
                arguments[key] = float(random.choice(odd))
            elif key in ("parent", "ends"):
                value[...] = random.integers(-1 if key == "parent" else 0, n, value.shape)
            elif key in OUTPUTS:
                value[...] = random.integers(-1, 2, value.shape)
            else:
                value[random.random(value.shape) < 0.5] = random.choice(odd[:8])
        with contextlib.suppress(ValueError):
            call(name, arguments)
    print("alive")


def negative_lengths() -> None:
    import numpy as np
    import scipy.sparse
    import torch

    from pollux.geometry.affinity import Paths
    from pollux.transport import solve

    lengths = np.array([[0.0, -1, 2], [-1, 0, 1], [2, 1, 0]])
    try:
        values = solve([1, 0, 0], [0, 0, 1], Paths(scipy.sparse.csr_array(lengths), torch.arange(3), 9.0)).values
        print("refused" if np.isnan(values).all() else values)
    except ValueError:
        print("refused")


def test_numbers_that_make_no_sense_never_crash_or_hang(tmp_path: Path) -> None:
    """Arrays of the right sizes and types, full of anything.

    Each way back and forth over an edge of negative length would make a path shorter: there is no shortest one.
    """
    assert in_a_fork(tmp_path, nonsense, negative_lengths) == "alive\nrefused\n"


def slow() -> None:
    # A grid that keeps one core busy for minutes, without much memory.
    import numpy as np
    import scipy.sparse
    import torch

    from pollux.geometry.affinity import Paths
    from pollux.transport import prepare, solve

    random, side = np.random.default_rng(0), 400
    place = np.arange(side**2).reshape(side, side)
    a = np.append(place[1:].ravel(), place[:, 1:].ravel())
    b = np.append(place[:-1].ravel(), place[:, :-1].ravel())
    lengths = random.random(len(a))
    graph = scipy.sparse.csr_array((np.append(lengths, lengths), (np.append(a, b), np.append(b, a))))
    ground = prepare(Paths(graph, torch.arange(side**2), 1e9))
    hard_p, hard_q = random.random((2, 8, side**2))
    # One hard problem among easy ones: the thread of the caller, the last to start, has to wait for the first.
    easy_p = np.concatenate([hard_p[:1], hard_q[1:]])
    for p, q, threads in ((hard_p, hard_q, 1), (hard_p, hard_q, 2), (easy_p, hard_q, 8)):
        try:
            print("solving", flush=True)
            solve(p, q, ground, threads=threads)
            print("solved", flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_stops_the_engine(tmp_path: Path) -> None:
    """One thread, several, and one that waits for another."""
    child, lines = Child(tmp_path, run_program, source_of(slow)), list[str]()
    try:
        for _ in range(3):
            lines.append("solving\n")
            child.wait_for(lambda: child.printed == "".join(lines))
            time.sleep(0.5)
            child.send(signal.SIGINT)
            asked = time.monotonic()
            lines.append("interrupted\n")
            while not child.printed.startswith("".join(lines)):
                # Far less than the minutes, whatever else the machine has to do.
                assert time.monotonic() - asked < 20
                time.sleep(0.01)
    finally:
        child.send(signal.SIGKILL)
        child.end()


def by_fallback() -> None:
    import numpy as np
    from test_transport_engine import COSTS, any_weights, as_matrix, assert_optimal

    from pollux.transport import engine, prepare, solve

    assert engine() == "pot"
    wrong = []
    for kind, make in COSTS.items():
        random = np.random.default_rng([ord(letter) for letter in kind])
        for n in (1, 1, 2, 2, 3, 3, 8, 15):
            cost = make(random, n)
            ground, state = prepare(cost), None
            for _ in range(3):
                p, q = any_weights(random, 2, n), any_weights(random, 2, n)
                try:
                    solution = solve(p, q, ground, state)
                    assert_optimal(p, q, as_matrix(cost), solution)
                    state = solution.state
                except (AssertionError, RuntimeError, UserWarning):
                    wrong.append(kind)
    for unit in (1e-40, 1e-12, 1e-6, 1e6, 1e12, 1e40):
        random = np.random.default_rng(0)
        for n in (2, 5, 12):
            cost = COSTS["gaussian_points"](random, n)
            p, q = any_weights(random, 2, n), any_weights(random, 2, n)
            values, f, g, gaps, state = solve(p, q, unit * cost)
            try:
                assert_optimal(p, q, cost, type(solution)(values / unit, f / unit, g / unit, gaps / unit, state))
            except AssertionError:
                wrong.append(f"unit {unit}")
    print(sorted(set(wrong)))


def test_pot_is_an_engine_on_request_and_without_a_warning(tmp_path: Path) -> None:
    """It gives the same answers, for all kinds and units of costs."""
    assert in_a_fork(tmp_path, by_fallback, **{VARIABLE: "pot"}) == "[]\n"


def without_the_engine() -> None:
    import sys
    import warnings

    sys.modules["pollux.native._compiled"] = None  # type: ignore[assignment]
    import numpy as np
    import scipy.sparse
    import torch

    from pollux.geometry.affinity import Paths
    from pollux.transport import SlowTransportWarning, engine, solve, transport_cost

    places = np.arange(4.0)
    line = np.abs(places[:, None] - places)
    paths = Paths(scipy.sparse.csr_array(line * (line == 1)), torch.arange(4), 4.0)
    p, q = np.eye(4)[:2], np.full(4, 0.25)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for cost in (line, paths):
            np.testing.assert_allclose(solve(p, q, cost).values, [1.5, 1.0])
            np.testing.assert_allclose(solve(p, q, cost).gaps, 0, atol=1e-12)
        values = transport_cost(torch.from_numpy(p), torch.from_numpy(q), torch.from_numpy(line))
        np.testing.assert_allclose(values, [1.5, 1.0])
        assert engine() == "pot"
    print(
        [warning.category is SlowTransportWarning for warning in caught], "Install it again" in str(caught[0].message)
    )


@in_full
def test_a_missing_engine_is_told_of_once() -> None:
    assert in_a_process(without_the_engine) == "[True] True\n"
