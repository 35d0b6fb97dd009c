"""What is done to samples before the default estimator sees them."""

import numpy as np

from pollux.inspection.structure import fill_steps
from pollux.selection.search import standardise


def test_steps_between_repeated_values_are_filled() -> None:
    random = np.random.default_rng(0)
    bits, real, none = random.integers(0, 2, 300), random.normal(size=300), np.zeros(300)
    grades = np.where(bits, 10, 0) + random.integers(0, 3, 300)
    spread = standardise(fill_steps(np.column_stack([bits, grades, real, none]), 0))
    for column in (0, 1):
        assert np.unique(spread[:, column]).size == 300
    steps = np.sort(np.diff(np.sort(spread[:, :2], axis=0), axis=0), axis=0)
    # Where there was a step between zeros and ones there is none; between 2 and 10 there still is, of 7 of 8.
    assert steps[-1, 0] < 0.1
    assert steps[-1, 1] > 10 * steps[-2, 1]
    np.testing.assert_allclose(spread[:, 2], (real - real.mean()) / real.std(), rtol=1e-4)
    assert not spread[:, 3].any()


def test_constant_columns_become_zero() -> None:
    scaled = standardise(np.column_stack([np.arange(6.0), np.full(6, 0.1), np.zeros(6)]))
    np.testing.assert_allclose(scaled[:, 0].std(), 1, rtol=1e-6)
    assert not scaled[:, 1:].any()
