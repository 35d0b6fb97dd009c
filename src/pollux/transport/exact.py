"""Exact solutions of many transport problems with the same costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pollux import threads as pool
from pollux.geometry.affinity import Paths
from pollux.transport.ground import Costs, Graph, Ground, Trees

Array = NDArray[np.float64]

# Numbers of costs (cold) and of weights (warm) below which starting threads takes longer than solving.
_SMALL_COLD, _SMALL_WARM = 200_000, 4_000


class State(NamedTuple):
    """Warm start for the next problems with the same costs, as :func:`solve` returns it. Its content is internal to the
    solver."""

    ground: Ground
    trees: Trees | None


class Solution(NamedTuple):
    """Optimal values (m,) and dual potentials (m, n) of m problems.

    The potentials f, g of a problem satisfy f_i + g_j ≤ C_ij for all i, j, and f·p = g·q is half its value. ``gaps``
    (m,) are the duality gaps, the cost of the plan that was found minus f·p + g·q: a gap of zero proves that both are
    optimal. For costs in float32, all this holds up to their rounding, about 10⁻⁶ of the largest.
    """

    values: Array
    potentials_p: Array
    potentials_q: Array
    gaps: Array
    state: State


def prepare(cost: Any) -> Ground:
    """Prepare costs for many problems: a matrix (n, n), or ``Paths`` in a graph."""
    if isinstance(cost, Costs | Graph):
        return cost
    return Graph(cost) if isinstance(cost, Paths) else Costs(cost)


def solve(
    p: Any, q: Any, cost: Any, state: State | None = None, *, log: bool = False, threads: int | None = None
) -> Solution:
    """Transport each row of p (m, n) to the same row of q (m, n), or to q (n,), exactly.

    Parameters
    ----------
    p, q : array of shape (m, n) or (n,)
        Weights of samples, of any sum: they are scaled to sum to one. With ``log``, their logarithms.
    cost : array of shape (n, n), Paths, or the result of ``prepare``
        The cost of moving one unit of mass, or the graph along which it moves. Any costs are allowed; metrics are
        solved fastest.
    state : State, optional
        The state of the solution of m other problems with the same costs: the closer those were, the faster are
        these. ``cost`` must then be ``state.ground``, the result of ``prepare`` that was used for them.
    log : bool
        Whether p and q are logarithms.
    threads : int, optional
        How many problems are solved in parallel; by default as many as torch has threads.

    Returns
    -------
    Solution
        NaN if an input is not finite or a row has no mass.

    Examples
    --------
    >>> import numpy as np
    >>> from pollux.transport import prepare, solve
    >>> line = prepare(np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0))))
    >>> first = solve([[1, 0, 0], [0.5, 0.5, 0]], [0, 0, 1], line)
    >>> first.values
    array([2. , 1.5])
    >>> solve([[0.9, 0.1, 0], [0.5, 0.4, 0.1]], [0, 0, 1], line, first.state).values
    array([1.9, 1.4])
    """
    ground = prepare(cost) if state is None else state.ground
    if state is not None and cost is not ground:
        raise ValueError("The state belongs to other costs: prepare(cost) once, and pass the result each time.")
    p, q = _rows(p, log), _rows(q, log)
    m = len(p)
    if p.shape[1] != ground.n or q.shape[1] != ground.n or len(q) not in (1, m):
        raise ValueError(
            f"p (m, n) and q (m, n) or (n,) must be over the {ground.n} samples of the costs; their shapes are "
            f"{p.shape} and {q.shape}."
        )
    trees = None if state is None else state.trees
    if trees is not None and len(trees.parent) != m:
        raise ValueError(f"The state is of {len(trees.parent)} problems, but there are {m}.")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be a positive number, not {threads}.")
    if threads is None:
        small = p.size * ground.n < _SMALL_COLD if trees is None else p.size < _SMALL_WARM
        threads = 1 if small else pool.allowed()
    answers = ground.solve(p, q, trees, threads)
    return Solution(*answers[:4], State(ground, answers.trees))


def _rows(weights: Any, log: bool) -> Array:
    rows = np.ascontiguousarray(weights, dtype=np.float64)
    rows = rows if rows.ndim == 2 else np.atleast_2d(rows)
    if rows.ndim != 2:
        raise ValueError(f"Weights must be of shape (m, n) or (n,), not {rows.shape}.")
    if not log:
        return rows
    with np.errstate(invalid="ignore"):
        weights = np.exp(rows - rows.max(1, keepdims=True, initial=-np.inf))
    return np.asarray(weights)
