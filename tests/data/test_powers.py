"""Powers of features are those of scikit-learn, and know weights."""

import numpy as np
import pytest
from sklearn.preprocessing import PowerTransformer

from pollux.data.powers import Powers

random = np.random.default_rng(0)
SKEWED = {
    "normal": random.normal(size=(150, 3)),
    "to the right": random.lognormal(size=(200, 4)),
    "to the left": -random.lognormal(1.5, 1.0, size=(200, 2)),
    "whole numbers": np.round(random.exponential(size=(300, 3))),
    "zeros and ones": random.integers(0, 2, (100, 2)).astype(float),
}


def standardise(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(0)) / X.std(0)


@pytest.mark.parametrize("name", SKEWED)
def test_powers_are_those_of_scikit_learn(name: str) -> None:
    X = standardise(SKEWED[name])
    found, expected = Powers.fit(X), PowerTransformer().fit(X)
    # Both searches end within some 1e-6 of the best power.
    np.testing.assert_allclose(found.powers, expected.lambdas_, atol=1e-5)
    np.testing.assert_allclose(found(X), expected.transform(X), atol=1e-4)


def test_powers_count_samples_by_their_weights() -> None:
    X = standardise(SKEWED["to the right"])
    weight = random.integers(1, 4, len(X))
    repeated, weighted = Powers.fit(np.repeat(X, weight, axis=0)), Powers.fit(X, 3.0 * weight)
    for one, other in zip(weighted, repeated, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_what_has_no_best_power_is_left_alone() -> None:
    X = np.stack([np.full(20, 3.0), random.normal(size=20), np.append(np.zeros(19), 1e60)], 1)
    found = Powers.fit(X)
    assert found.powers[0] == found.powers[2] == 1
    assert np.isfinite(found(X)).all()
