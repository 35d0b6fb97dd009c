"""Histograms of features."""

import numpy as np
import pytest

from pollux.report.profiles import make_histogram


def test_a_histogram_holds_every_known_value() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 500)
    for values in (generator.standard_cauchy(500), generator.integers(0, 7, 500).astype(float), np.full(500, 2.5)):
        spread = make_histogram(np.where(np.arange(500) % 9, values, np.nan), labels, 3)
        assert spread.everyone.sum() == pytest.approx(1)
        np.testing.assert_allclose(spread.clusters.sum(1), 1)


def test_a_histogram_shows_the_bulk() -> None:
    values = np.random.default_rng(0).normal(10, 1, 3000)
    values[:30] *= 200
    spread = make_histogram(values, np.zeros(3000, dtype=np.int64), 1)
    assert spread.high < 20
    assert spread.everyone[-1] >= 0.01
