"""Principal axes: those of scikit-learn, in any unit, and none along which nothing varies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from pollux.data import rows as rows_module
from pollux.data import scaling as scaling_module
from pollux.data.rows import Rows
from pollux.data.scaling import principal_axes

Array = NDArray[np.float64]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def with_gaps(*shape: int, share: float = 0.2) -> Array:
    X = normal(*shape)
    X[np.random.default_rng(1).random(shape) < share] = np.nan
    return X


@pytest.mark.parametrize("unit", [1e-150, 1.0, 1e150])
@pytest.mark.parametrize("most", [2_000, 5], ids=["by the covariance", "by iteration"])
def test_principal_axes_are_those_of_scikit_learn(most: int, unit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling_module, "_MOST_COVARIANCES", most)
    monkeypatch.setattr(rows_module, "_PART_ELEMENTS", 200)
    X = normal(80, 12) * 0.5 ** np.arange(12) + 3
    axes = principal_axes(Rows(X * unit), torch.as_tensor(X.mean(0) * unit), 3).numpy()
    expected = PCA(3).fit(X).components_.T
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(axes * expected, 0)), 1, atol=1e-6)
    # Signs are no matter of chance.
    assert (axes[np.abs(axes).argmax(0), range(3)] > 0).all()


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_principal_axes_in_float32_know_no_unit(unit: float) -> None:
    X = (normal(80, 6) * 0.5 ** np.arange(6)).astype(np.float32)
    plain, scaled = (principal_axes(Rows(x), torch.as_tensor(x.mean(0)), 2) for x in (X, (X * unit).astype(np.float32)))
    np.testing.assert_allclose(scaled, plain, atol=1e-4)


@pytest.mark.parametrize("most", [2_000, 5], ids=["by the covariance", "by iteration"])
@pytest.mark.parametrize(
    ("X", "rank"),
    [(normal(5, 12), 4), (np.tile(normal(40, 3), 4), 3), (np.ones((9, 12)), 1)],
    ids=["few rows", "equal columns", "equal rows"],
)
def test_there_are_no_axes_along_which_nothing_varies(
    X: Any, rank: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling_module, "_MOST_COVARIANCES", most)
    axes = principal_axes(Rows(X), torch.as_tensor(X.mean(0)), 8)
    assert axes.shape == (12, rank)
    np.testing.assert_allclose(axes.T @ axes, np.eye(rank), atol=1e-10)
