"""The map by neighbours; openTSNE itself is tried where it is installed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pollux import GeminiClustering
from pollux.report import describe, neighbour_map


class Arranged(np.ndarray):
    """Points that others can be placed among."""

    def prepare_partial(self, X: NDArray[Any], k: int) -> NDArray[Any]:
        return np.asarray(X[:, :2]) + 100


class StandIn:
    """Arranges rows by their first two columns, and remembers what it was asked."""

    asked: ClassVar[dict[str, Any]] = {}

    def __init__(self, **options: Any) -> None:
        StandIn.asked = options

    def fit(self, X: NDArray[Any]) -> Arranged:
        StandIn.asked["shape"] = X.shape
        return np.asarray(X[:, :2]).view(Arranged)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    module = ModuleType("openTSNE")
    module.TSNE = StandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openTSNE", module)
    return StandIn


def test_few_rows_have_few_neighbours(stand_in: type[StandIn]) -> None:
    X = np.random.default_rng(0).normal(size=(31, 3))
    points, axes = neighbour_map(X)
    np.testing.assert_allclose(points, X[:, :2].astype(np.float32))
    assert stand_in.asked["perplexity"] == 10
    assert stand_in.asked["random_state"] == 0
    assert "neighbour" in axes[0]


def test_many_dimensions_become_components(stand_in: type[StandIn]) -> None:
    neighbour_map(np.random.default_rng(0).normal(size=(70, 60)))
    assert stand_in.asked["shape"] == (70, 50)


def test_further_rows_are_placed_among_those_arranged(stand_in: type[StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["pollux.report.tsne"], "MOST_ROWS", 20)
    X = np.random.default_rng(0).normal(size=(65, 3))
    points, _ = neighbour_map(X)
    moved = points[:, 0] > 50
    assert (stand_in.asked["shape"], moved.sum()) == ((20, 3), 45)
    np.testing.assert_allclose(points - 100 * moved[:, None], X[:, :2], atol=1e-4)


def test_describe_takes_it_by_name(stand_in: type[StandIn]) -> None:
    X = np.repeat(np.eye(2, 3) * 20, 20, axis=0) + np.random.default_rng(0).normal(size=(40, 3))
    clustering = GeminiClustering(2, model="linear", max_epochs=20, n_init=1, random_state=0).fit(X)
    found = describe(clustering, X, points="neighbours")
    assert found.points.shape == (40, 2)
    assert "neighbour" in found.axes[0]
    with pytest.raises(ValueError, match="an array \\(n, 2\\) or 'neighbours', not 'far'"):
        describe(clustering, X, points="far")


def test_without_the_package_the_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(ImportError, match=r"pip install 'pollux\[map\]'"):
        neighbour_map(np.zeros((3, 2)))


def test_clusters_stay_together_and_the_map_is_the_same_again() -> None:
    pytest.importorskip("openTSNE")
    X = np.repeat(np.eye(3, 8) * 20, 20, axis=0) + np.random.default_rng(0).normal(size=(60, 8))
    points, _ = neighbour_map(X)
    centres = points.reshape(3, 20, 2).mean(1)
    nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(1)
    np.testing.assert_array_equal(nearest, np.repeat(np.arange(3), 20))
    np.testing.assert_array_equal(neighbour_map(X)[0], points)
