"""Yeo–Johnson powers, which make each feature most like a Gaussian."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]

# Bounds of powers: 1 leaves a feature unchanged, and beyond these bounds all but a few samples are constant.
_LOWEST, _HIGHEST = -9.0, 11.0
_STEPS, _EXACT = 60, 1e-6
# Powers nearer to zero than this are treated as a logarithm: the difference would lose all digits.
_ZERO = 1e-4


class Powers(NamedTuple):
    """Powers λ (d,) of features x: ((1 + x)^λ − 1)/λ if x ≥ 0, else −((1 − x)^(2−λ) − 1)/(2−λ); and the centre and
    scale of the results, (d,) each."""

    powers: Points
    centre: Points
    deviation: Points

    @staticmethod
    def fit(X: Points, weight: Points | None = None) -> Powers:
        """Maximum-likelihood powers for X (n, d) with weights (n,) to be Gaussian; a constant feature keeps its own.

        The root of the derivative of the likelihood is found by regula falsi (Illinois) for all features at once.
        """
        share = np.full(len(X), 1 / len(X)) if weight is None else weight / weight.sum()
        below, logs = X < 0, np.log1p(np.abs(X))
        slope = share @ np.where(below, -logs, logs)

        def derivative(powers: Points) -> Points:
            values, moved = _transform(below, logs, powers, is_derived=True)
            values -= share @ values
            variance = share @ (values * values)
            return np.asarray(slope - share @ (values * moved) / variance)

        d = X.shape[1]
        low, high = np.full(d, _LOWEST), np.full(d, _HIGHEST)
        with np.errstate(all="ignore"):
            at_low, at_high = derivative(low), derivative(high)
            found = np.where(at_low <= 0, low, high)
            # Features so large that their powers are not finite are left unchanged.
            found = np.where(np.isfinite(at_low) & np.isfinite(at_high), found, 1.0)
            is_open = (at_low > 0) & (at_high < 0)
            for _ in range(_STEPS):
                if not is_open.any():
                    break
                place = np.where(is_open, (low * at_high - high * at_low) / (at_high - at_low), found)
                value = derivative(place)
                is_open &= (np.abs(place - found) > _EXACT) & (value != 0)
                found, rises = place, value > 0
                # The value at an end that stays is halved, so that the other end converges (Illinois).
                at_high = np.where(rises, at_high / 2, value)
                at_low = np.where(rises, value, at_low / 2)
                low, high = np.where(rises, place, low), np.where(rises, high, place)
            found = np.where(np.ptp(X, axis=0) > 0, found, 1.0)
            values, _ = _transform(below, logs, found)
            centre = share @ values
            deviation = np.sqrt(share @ np.square(values - centre))
        return Powers(found, centre, np.where(deviation > 0, deviation, 1.0))

    def __call__(self, X: Points) -> Points:
        """Apply the powers to samples (n, d), with mean zero and standard deviation one for those that were fitted."""
        with np.errstate(all="ignore"):
            values, _ = _transform(X < 0, np.log1p(np.abs(X)), self.powers)
            values -= self.centre
            values /= self.deviation
        return values


def _transform(
    below: NDArray[np.bool_], logs: Points, powers: Points, *, is_derived: bool = False
) -> tuple[Points, Points]:
    """Features from log(1 + |x|) (n, d) and whether x is negative; and their derivatives by the powers, if wanted."""
    own = np.where(below, 2 - powers, powers)
    is_zero = np.abs(own) < _ZERO
    divisor = np.where(is_zero, 1.0, own)
    grown = np.expm1(own * logs)
    values = np.where(is_zero, logs * (1 + own * logs / 2), grown / divisor)
    moved = values
    if is_derived:
        # For negative x the power is 2 − λ, and the sign of the values differs too: the two signs cancel.
        moved = np.where(is_zero, logs * logs * (0.5 + own * logs / 3), (logs * (grown + 1) - values) / divisor)
    return np.where(below, -values, values), moved
