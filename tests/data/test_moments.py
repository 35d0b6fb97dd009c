"""Moments of samples with gaps and weights, in parts: those of numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pollux.data import rows as rows_module
from pollux.data.moments import Moments
from pollux.data.rows import Rows
from pollux.data.scaling import principal_axes

Array = NDArray[np.float64]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def with_gaps(*shape: int, share: float = 0.2) -> Array:
    X = normal(*shape)
    X[np.random.default_rng(1).random(shape) < share] = np.nan
    return X


@pytest.mark.parametrize("elements", [10, 100, 10_000])
@pytest.mark.parametrize("shape", [(50, 3), (20, 1, 4, 4)])
def test_moments_are_those_of_numpy(shape: tuple[int, ...], elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_PART_ELEMENTS", elements)
    X = with_gaps(*shape) * 3 + 1e5
    found = Rows(X).moments()
    np.testing.assert_array_equal(found.weight, (~np.isnan(X)).sum(0))
    np.testing.assert_allclose(found.mean, np.nanmean(X, 0), rtol=1e-13)
    np.testing.assert_allclose(found.variance, np.nanvar(X, 0), rtol=1e-8)
    np.testing.assert_array_equal(found.low, np.nanmin(X, 0))
    np.testing.assert_array_equal(found.high, np.nanmax(X, 0))
    assert found.mean.dtype == np.float64


@pytest.mark.parametrize("elements", [12, 10_000])
def test_weights_count_as_copies(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_PART_ELEMENTS", elements)
    X, weight = with_gaps(30, 4), np.random.default_rng(0).integers(1, 4, 30)
    once, copied = Rows(X), Rows(np.repeat(X, weight, 0))
    one, other = once.moments(torch.as_tensor(weight)), copied.moments()
    for name in ("weight", "mean", "square", "low", "high"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12)
    whole = np.nan_to_num(X)
    centre = torch.zeros(4, dtype=torch.float64)
    np.testing.assert_allclose(
        principal_axes(Rows(whole), centre, 2, torch.as_tensor(weight)),
        principal_axes(Rows(np.repeat(whole, weight, 0)), centre, 2),
        atol=1e-10,
    )


def test_a_feature_of_which_nothing_is_known() -> None:
    X = with_gaps(10, 3)
    X[:, 1] = np.nan
    found = Rows(X).moments()
    assert found.weight[1] == found.mean[1] == found.variance[1] == 0


def test_variances_far_from_zero_keep_their_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_PART_ELEMENTS", 30)
    X = normal(100, 3)
    np.testing.assert_allclose(Rows(X + 1e8).moments().variance, X.var(0), rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-150, 1e150])
def test_moments_of_extreme_units(unit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_PART_ELEMENTS", 300)
    X = normal(1000, 3)
    np.testing.assert_allclose(Rows((X + 3) * unit).moments().deviation / unit, X.std(0), rtol=1e-9)


def test_parts_are_all_rows_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_PART_ELEMENTS", 10)
    X = normal(8, 3)
    assert [len(part) for part in Rows(X).parts()] == [3, 3, 2]
    np.testing.assert_array_equal(torch.cat(list(Rows(X).parts())), X)


def test_moments_far_from_zero_keep_their_digits() -> None:
    values = 1e6 + np.random.default_rng(0).normal(size=(100_000, 3))
    values[::7, 1] = np.nan
    found = Moments.empty((3,))
    for start in range(0, 100_000, 1_009):
        found = found.merged(Moments.of(values[start : start + 1_009]))
    np.testing.assert_array_equal(found.weight, (~np.isnan(values)).sum(0))
    # Each merge of two means, of which there are a hundred, rounds them by eps times their size, 1e6; of a deviation of
    # 1 that is as much as the values themselves lack. Squares would lose a million times more.
    eps = np.finfo(np.float64).eps
    # Of contiguous numbers numpy sums pairs, so that its own error is small.
    np.testing.assert_allclose(found.mean, np.nanmean(values.T.copy(), 1), rtol=100 * eps)
    np.testing.assert_allclose(found.deviation, np.nanstd(values, 0), rtol=1e6 * eps)
    np.testing.assert_array_equal(found.low, np.nanmin(values, 0))


def test_a_range_a_thousand_times_smaller_is_of_another_unit_unless_there_are_many() -> None:
    sizes = np.array([100_000.0, 90_000.0, 120_000.0, 40.0])
    ends = np.stack([np.zeros(4), sizes])
    assert not Moments.of(ends).ranges_are_alike
    ends[1, 3] = 200.0
    assert Moments.of(ends).ranges_are_alike
    pixels = np.stack([np.zeros(64), np.where(np.arange(64) < 9, 0.01, 255.0)])
    assert Moments.of(pixels).ranges_are_alike
