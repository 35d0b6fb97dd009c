"""Ground costs of transport, a matrix or a graph, prepared for many problems."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from pollux.geometry.affinity import Paths
from pollux.transport import pot
from pollux.transport.engine import native

Array = NDArray[np.float64]

# By how much costs may violate an axiom of metrics, relative to the largest: the rounding of their own precision.
_TOLERANCE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 5e-7}
# Samples at which triangles are checked before costs are treated as a metric.
_CHECKED_FIRST = 4
# Checking all triangles at so many samples is about the work of solving one problem from scratch.
_TRIANGLES_A_PROBLEM = 70
# By how much C_ij and C_ji of symmetric costs may differ, relative to the largest cost.
_ROUNDING = 1e-5
# So many single-source shortest paths are about the work of solving one problem on the graph.
_PATHS_A_PROBLEM = 20
_MOST_DENSE = 20_000
# Outside this range, sums and float32 copies of costs may overflow or underflow.
_SMALLEST, _LARGEST = 1e-30, 1e30


class Trees(NamedTuple):
    """The optimal spanning tree of each of m problems: parents and directions of arcs, both (m, n)."""

    parent: NDArray[np.int32]
    up: NDArray[np.int8]


class Answers(NamedTuple):
    """Values (m,), potentials (m, n), duality gaps (m,), and trees for a warm start."""

    values: Array
    potentials_p: Array
    potentials_q: Array
    gaps: Array
    trees: Trees | None


class Costs:
    """Costs (n, n) between samples.

    If they are a metric, mass that stays costs nothing and only the difference of the weights has to move, which is
    many times faster. Whether they may be one is first checked at a few triangles; answers are then verified against
    all costs. Before an answer is used as a warm start, all triangles are checked, once, as soon as this is no more
    work than the problems that were solved from scratch.
    """

    def __init__(self, cost: Any) -> None:
        given = np.asarray(cost)
        if given.ndim != 2 or given.shape[0] != given.shape[1] or not given.size:
            raise ValueError(
                f"Costs must be a square matrix (n, n) of at least one sample, not of shape {given.shape}."
            )
        if given.dtype.kind not in "fiub":
            raise TypeError(f"Costs must be real numbers, not {given.dtype}.")
        share = _TOLERANCE.get(given.dtype, _TOLERANCE[np.dtype(np.float64)])
        # A copy: the caller may overwrite the costs, and what is cached about them would be wrong.
        matrix = np.array(given, dtype=np.float64, order="C")
        self.n = len(matrix)
        largest, least, asymmetry, diagonal = self._describe(matrix)
        size = max(largest, -least)
        self.unit = _unit(size)
        self.matrix = matrix if self.unit == 1 else matrix / self.unit
        self.size = size / self.unit
        self._tolerance = share * self.size
        self.symmetric = not asymmetry > _ROUNDING * size
        self.has_negative = least < -_ROUNDING * size
        flaw = max(asymmetry, diagonal, -least) / self.unit
        self._may_be_metric = self.finite and flaw <= self._tolerance and self._triangles(_CHECKED_FIRST)
        self._solved = 0
        self._is_metric: bool | None = None
        self._single: NDArray[np.float32] | None = None

    @cached_property
    def is_small_on_diagonal(self) -> bool:
        """Whether the diagonal of finite costs is small, as for distances up to rounding, but not for kernels."""
        return not np.abs(self.matrix.diagonal()).mean() > self.matrix.mean() / 2

    def _describe(self, matrix: Array) -> tuple[float, float, float, float]:
        engine = native()
        if engine is not None:
            self.finite, *numbers = engine.describe(matrix)
            return tuple(numbers)
        self.finite = bool(np.isfinite(matrix).all())
        largest, least = float(matrix.max(initial=0)), float(matrix.min(initial=0))
        # POT does not use that costs are a metric: the diagonal need not be checked.
        return largest, least, float(np.abs(matrix - matrix.T).max(initial=0)) if self.finite else 0.0, np.inf

    def _triangles(self, points: int, threads: int = 1) -> bool:
        """Whether the triangle inequality holds at about so many of the points, for all detours."""
        engine = native()
        assert engine is not None
        return bool(engine.triangles_hold(self.matrix, max(1, self.n // points), self._tolerance, threads))

    def solve(self, p: Array, q: Array, trees: Trees | None, threads: int) -> Answers:
        """Transport the rows of p (m, n) to those of q (m, n) or (1, n); of any positive sums."""
        if not self.finite:
            return not_a_number(len(p), self.n)
        if native() is None:
            return _in_unit(self._by_pot(p, q), self.unit)
        if not self._may_be_metric:
            return _in_unit(self._general(p, q, threads), self.unit)
        return _in_unit(self._metric(p, q, trees, threads), self.unit)

    def _metric(self, p: Array, q: Array, trees: Trees | None, threads: int) -> Answers:
        engine, m = native(), len(p)
        assert engine is not None
        if trees is not None and self._is_metric is None and _TRIANGLES_A_PROBLEM * self._solved >= self.n:
            self._is_metric = self._triangles(self.n, threads)
        self._solved += m
        tolerance = 0.0 if self._is_metric else self._tolerance
        if self._single is None:
            self._single = self.matrix.astype(np.float32)
        trees = start(trees, m, self.n)
        if not self._is_metric:
            trees.parent[:] = NO_TREE
        values, potentials, gaps, report = room(m, self.n)
        engine.solve_metric(
            p, q, *trees, values, potentials, gaps, report, self.matrix, self._single, self.size, tolerance, threads
        )
        answers = Answers(values, potentials, -potentials, gaps, trees)
        failed = _failed(report, answers)
        if failed.any():
            self._may_be_metric = bool(self._is_metric)
            others = self._general(p[failed], q[failed] if len(q) == m else q, threads)
            for ours, theirs in zip(answers[:4], others[:4], strict=True):
                ours[failed] = theirs
            trees.parent[failed] = NO_TREE
        return answers

    def _general(self, p: Array, q: Array, threads: int) -> Answers:
        engine, m = native(), len(p)
        assert engine is not None
        values, potentials_p, gaps, report = room(m, self.n)
        potentials_q = np.empty_like(potentials_p)
        engine.solve_general(p, q, self.matrix, values, potentials_p, potentials_q, gaps, report, threads)
        answers = Answers(values, potentials_p, potentials_q, gaps, None)
        for problem in np.flatnonzero(_failed(report, answers)).tolist():
            _put(answers, problem, pot.solve_one(p[problem], q[problem % len(q)], self.matrix))
        return answers

    def _by_pot(self, p: Array, q: Array) -> Answers:
        values, potentials, gaps, _ = room(len(p), self.n)
        answers = Answers(values, potentials, np.empty_like(potentials), gaps, None)
        for problem in range(len(p)):
            _put(answers, problem, pot.solve_one(p[problem], q[problem % len(q)], self.matrix))
        return answers


class Graph:
    """Samples at nodes of a graph, with the lengths of shortest paths as costs; their matrix is not computed.

    One exception: if samples are at few of many nodes and there are many problems, the matrix of those few is cheaper.
    """

    def __init__(self, paths: Paths) -> None:
        # A copy: this object is cached as long as the original lives, and must not keep it alive.
        self._paths = replace(paths)
        self._nodes = paths.nodes.cpu().numpy()
        self.n = len(self._nodes)
        known = paths.shared.get("edges")
        if known is None or known[0] is not paths.graph or known[1] != paths.unreachable:
            known = paths.shared["edges"] = (paths.graph, paths.unreachable, Edges.of(paths))
        self._edges: Edges = known[2]
        nodes = self._edges.nodes
        self._whole = self.n == nodes and bool((self._nodes == np.arange(nodes)).all())
        self._dense: Costs | None = None

    def solve(self, p: Array, q: Array, trees: Trees | None, threads: int) -> Answers:
        """Transport the rows of p (m, n) to those of q (m, n) or (1, n); of any positive sums."""
        engine, m, nodes = native(), len(p), self._edges.nodes
        few_of_many = 2 * self.n < nodes and _PATHS_A_PROBLEM * m > self.n
        if self._edges.undefined:
            return not_a_number(m, self.n)
        if engine is None or few_of_many or not self._edges.finite:
            return self._by_matrix(p, q, trees, threads)
        trees = start(trees, m, nodes)
        values, potentials, gaps, report = room(m, nodes)
        engine.solve_graph(
            *(self._at_nodes(p), self._at_nodes(q), *trees, values, potentials, gaps, report),
            *(self._edges.starts, self._edges.ends, self._edges.lengths, threads),
        )
        potentials = potentials if self._whole else np.ascontiguousarray(potentials[:, self._nodes])
        answers = Answers(values, potentials, -potentials, gaps, trees)
        if _failed(report, answers).any():
            return self._by_matrix(p, q, None, threads)._replace(trees=None)
        return _in_unit(answers, self._edges.unit)

    def _at_nodes(self, weights: Array) -> Array:
        if self._whole:
            return weights
        spread = np.zeros((len(weights), self._edges.nodes))
        # Several samples may be at one node.
        np.add.at(spread.T, self._nodes, weights.T)
        return spread

    def _by_matrix(self, p: Array, q: Array, trees: Trees | None, threads: int) -> Answers:
        if self._dense is None:
            if self.n > _MOST_DENSE:
                raise RuntimeError(
                    f"Transport among {self.n:,} samples of a graph was not solved: use smaller batches."
                )
            self._dense = Costs(self._paths.distances())
        return self._dense.solve(p, q, trees, threads)


class Edges(NamedTuple):
    """A connected, symmetric graph in CSR format, with lengths divided by ``unit`` to avoid overflow."""

    nodes: int
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    lengths: Array
    unit: float
    finite: bool
    undefined: bool

    @classmethod
    def of(cls, paths: Paths) -> Edges:
        graph = _connected(paths)
        starts, ends = (numbers.astype(np.int32) for numbers in (graph.indptr, graph.indices))
        lengths = graph.data.astype(np.float64)
        if lengths.size and lengths.min() < 0:
            raise ValueError("The edges of a graph must not have negative lengths.")
        unit = _unit(float(lengths.max(initial=0.0)))
        finite, undefined = bool(np.isfinite(lengths).all()), bool(np.isnan(lengths).any())
        return cls(graph.shape[0], starts, ends, lengths / unit, unit, finite, undefined)


Ground: TypeAlias = Costs | Graph
"""Prepared costs between n samples."""

NO_TREE = -2
_GAVE_UP, _NEGATIVE_WEIGHT, _NO_NUMBER = 1, 3, 4


def start(trees: Trees | None, m: int, n: int) -> Trees:
    """Copies of the trees; empty ones without a warm start."""
    if trees is None:
        return Trees(np.full((m, n), NO_TREE, dtype=np.int32), np.zeros((m, n), dtype=np.int8))
    if trees.parent.shape != (m, n):
        raise ValueError(f"The state holds trees of shape {trees.parent.shape}, not {(m, n)}: it is of other costs.")
    return Trees(trees.parent.copy(), trees.up.copy())


def room(m: int, n: int) -> tuple[Array, Array, Array, NDArray[np.int32]]:
    """Output arrays of the compiled solver: values, potentials, gaps, and a report of status, pivots, whether cold."""
    return np.empty(m), np.empty((m, n)), np.empty(m), np.zeros((m, 3), dtype=np.int32)


def not_a_number(m: int, n: int) -> Answers:
    """Answers of NaN, for problems with numbers that are not finite."""
    return Answers(np.full(m, np.nan), np.full((m, n), np.nan), np.full((m, n), np.nan), np.full(m, np.nan), None)


def _failed(report: NDArray[np.int32], answers: Answers) -> NDArray[np.bool_]:
    """Mask (m,) of the problems that were not solved; answers of those with NaN are set to NaN."""
    status = report[:, 0]
    failed: NDArray[np.bool_] = status == _GAVE_UP
    if not status.any():
        return failed
    if (status == _NEGATIVE_WEIGHT).any():
        raise ValueError(pot.NEGATIVE)
    for array in answers[:4]:
        array[status == _NO_NUMBER] = np.nan
    return failed


def _put(answers: Answers, problem: int, answer: pot.Answer) -> None:
    answers.values[problem], answers.gaps[problem] = answer.value, answer.gap
    answers.potentials_p[problem], answers.potentials_q[problem] = answer.potential_p, answer.potential_q


def _in_unit(answers: Answers, unit: float) -> Answers:
    if unit != 1:
        for array in answers[:4]:
            array *= unit
    return answers


def _unit(size: float) -> float:
    """A power of two near ``size`` if that is far from one, else 1: division by it is exact."""
    return 1.0 if _SMALLEST < size < _LARGEST or size == 0 or not np.isfinite(size) else 2.0 ** (np.frexp(size)[1] - 1)


def _connected(paths: Paths) -> scipy.sparse.csr_array:
    """The graph; if it has several components, with a hub at half the distance "unreachable" from every node."""
    graph = scipy.sparse.csr_array(paths.graph, copy=True)
    graph.sum_duplicates()
    back = scipy.sparse.csr_array(graph.T)
    back.sort_indices()
    same = np.array_equal(graph.indptr, back.indptr) and np.array_equal(graph.indices, back.indices)
    if not same or not np.allclose(graph.data, back.data, rtol=_ROUNDING, atol=0, equal_nan=True):
        raise ValueError("The graph of Paths must be symmetric: every edge in both directions, of the same length.")
    parts, _ = connected_components(graph, directed=False)
    if parts == 1:
        return graph
    n = graph.shape[0]
    edges = graph.tocoo()
    every, hub, spokes = np.arange(n), np.full(n, n), np.full(n, paths.unreachable / 2)
    rows = np.concatenate([edges.coords[0], every, hub])
    columns = np.concatenate([edges.coords[1], hub, every])
    joined = scipy.sparse.csr_array(
        (np.concatenate([edges.data, spokes, spokes]), (rows, columns)), shape=(n + 1, n + 1)
    )
    joined.sort_indices()
    return joined
