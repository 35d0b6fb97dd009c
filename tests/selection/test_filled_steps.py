"""What is done to samples before the default estimator sees them."""

import numpy as np

from pollux.inspection.structure import fill_steps


def test_steps_between_repeated_values_are_filled() -> None:
    random = np.random.default_rng(0)
    bits, real, none = random.integers(0, 2, 300), random.normal(size=300), np.zeros(300)
    grades = np.where(bits, 10, 0) + random.integers(0, 3, 300)
    spread = fill_steps(np.column_stack([bits, grades, real, none]), 0)
    for column in (0, 1):
        assert np.unique(spread[:, column]).size == 300
    steps = np.sort(np.diff(np.sort(spread[:, :2], axis=0), axis=0), axis=0)
    # Where there was a step between zeros and ones there is none; between 2 and 10 there still is, of 7 of 8.
    assert steps[-1, 0] < 0.05
    assert steps[-1, 1] > 10 * steps[-2, 1]
    np.testing.assert_array_equal(spread[:, 2], real)
    assert not spread[:, 3].any()
