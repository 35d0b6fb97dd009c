"""One transport problem by POT: used without the compiled solver, and if that solver fails."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NEGATIVE = "Weights must not be negative. (Where they are logarithms, say so: solve(…, log=True).)"
_MAX_PIVOTS = 100_000_000
_WHOLE = 2.0**50


class Answer(NamedTuple):
    """The optimal value, potentials (n,) and the duality gap."""

    value: float
    potential_p: Array
    potential_q: Array
    gap: float


def solve_one(p: Array, q: Array, cost: Array) -> Answer:
    """Transport p (n,) to q (n,), of any positive sums, with unit costs (n, n)."""
    # Imported here: it is rarely needed, and takes half a second.
    import ot

    if min(p.min(), q.min()) < 0:
        raise ValueError(NEGATIVE)
    p, q = _shares(p), _shares(q)
    if not (np.isfinite(p).all() and np.isfinite(q).all()):
        return Answer(np.nan, np.full_like(p, np.nan), np.full_like(q, np.nan), np.nan)
    # POT's tolerances are absolute, so costs are scaled to at most one; weights are multiples of a unit, so that their
    # sums are exact.
    size = float(np.abs(cost).max(initial=0)) or 1.0
    cost = np.ascontiguousarray(cost / size)
    whole_p, whole_q = np.rint(p * _WHOLE), np.rint(q * _WHOLE)
    whole_q[whole_q.argmax()] += whole_p.sum() - whole_q.sum()
    paid, log = ot.emd2(whole_p / _WHOLE, whole_q / _WHOLE, cost, log=True, numItermax=_MAX_PIVOTS, center_dual=False)
    if log["warning"]:
        raise RuntimeError(f"The transport problem was not solved: {log['warning']}")
    f, g = np.array(log["u"]), np.array(log["v"])
    # The solver ignores samples without mass; the c-transform gives them the largest feasible potential,
    # which is the gradient with respect to their mass.
    without_p, without_q = whole_p == 0, whole_q == 0
    f[without_p] = (cost[without_p][:, ~without_q] - g[~without_q]).min(1, initial=np.inf)
    g[without_q] = (cost[:, without_q].T - f).min(1, initial=np.inf)
    by_p, by_q = float(f @ p), float(g @ q)
    # Potentials are defined up to a constant; choose it so that f·p and g·q are each half of the value.
    middle = (by_p - by_q) / 2
    gap = max(float(paid) - by_p - by_q, 0.0)
    return Answer(size * (by_p + by_q), size * (f - middle), size * (g + middle), size * gap)


def _shares(weights: Array) -> Array:
    """Normalise weights, dividing by the largest first, so that no sum overflows; NaN if all are zero."""
    with np.errstate(invalid="ignore"):
        by_largest = weights / (weights.max() or np.nan)
        shares: Array = by_largest / by_largest.sum()
    return shares
