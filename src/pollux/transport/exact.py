"""Exact solutions of many transport problems on one set of samples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import ot
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MAX_PIVOTS = 100_000_000


class Solution(NamedTuple):
    """Optimal values (m,) and dual potentials (m, n) of m problems.

    The potentials f, g of a problem satisfy f_i + g_j ≤ C_ij for all i, j, and f·p + g·q is its value.
    """

    values: Array
    potentials_p: Array
    potentials_q: Array


def solve(p: Array, q: Array, cost: Array) -> Solution:
    """Transport each row of p (m, n) to the same row of q (m, n) at unit costs (n, n).

    Where a number is not finite, so is the solution: NaN.
    """
    if not (np.isfinite(cost).all() and np.isfinite(p).all() and np.isfinite(q).all()):
        return Solution(np.full(len(p), np.nan), np.full_like(p, np.nan), np.full_like(q, np.nan))
    # Costs of unit size keep the solver clear of overflow and of its absolute tolerances.
    scale = float(cost.max(initial=0)) or 1.0
    p = np.ascontiguousarray(p / p.sum(1, keepdims=True))
    q = np.ascontiguousarray(q / q.sum(1, keepdims=True))
    cost = np.ascontiguousarray(cost / scale)
    solution = Solution(np.empty(len(p)), np.empty_like(p), np.empty_like(q))
    for problem in range(len(p)):
        value, f, g = _solve_one(p[problem], q[problem], cost)
        solution.values[problem] = scale * value
        solution.potentials_p[problem], solution.potentials_q[problem] = scale * f, scale * g
    return solution


def _solve_one(p: Array, q: Array, cost: Array) -> tuple[float, Array, Array]:
    value, log = ot.emd2(p, q, cost, log=True, numItermax=_MAX_PIVOTS, center_dual=False)
    if log["warning"]:
        raise RuntimeError(f"The transport problem was not solved: {log['warning']}")
    f, g = np.array(log["u"]), np.array(log["v"])
    # The solver leaves out samples without mass; the c-transform gives them the largest feasible potential,
    # which is the gradient for mass that would appear there.
    without_p, without_q = p == 0, q == 0
    f[without_p] = (cost[without_p][:, ~without_q] - g[~without_q]).min(1, initial=np.inf)
    g[without_q] = (cost[:, without_q].T - f).min(1, initial=np.inf)
    return float(value), f, g
