"""The map by neighbours: who is alike lies together, the same again, and further rows among those arranged."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pollux import GeminiClustering
from pollux.report import describe, neighbour_map
from pollux.report.maps import _arrange


def blobs(each: int, d: int = 8) -> np.ndarray:
    return np.repeat(np.eye(3, d) * 20, each, axis=0) + np.random.default_rng(0).normal(size=(3 * each, d))


def assert_together(points: np.ndarray, each: int) -> None:
    """Every point is nearest to the centre of its own blob."""
    centres = points.reshape(3, each, 2).mean(1)
    nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(1)
    np.testing.assert_array_equal(nearest, np.repeat(np.arange(3), each))


def test_clusters_stay_together_and_the_map_is_the_same_again() -> None:
    X = blobs(20)
    points = neighbour_map(X)
    assert_together(points, 20)
    np.testing.assert_array_equal(neighbour_map(X), points)
    # The widest direction comes first.
    assert points[:, 0].std() >= points[:, 1].std()


def test_many_dimensions_become_components() -> None:
    X = np.zeros((90, 300))
    X[:, 250:258] = blobs(30)
    assert_together(neighbour_map(X), 30)


def test_further_rows_are_placed_among_those_arranged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["pollux.report.maps"], "MOST_ROWS", 60)
    monkeypatch.setattr(sys.modules["pollux.report.maps"], "_MOST_ELEMENTS", 1000)
    assert_together(neighbour_map(blobs(60)), 60)


@pytest.mark.parametrize(
    "X",
    [
        np.ones((40, 3)),
        np.eye(2),
        np.zeros((3, 1)),
        np.repeat(np.eye(2), 20, axis=0),
        np.full((4, 2), np.nan),
        np.ones((1, 4)),
    ],
)
def test_few_or_equal_rows_have_a_place(X: np.ndarray) -> None:
    points = neighbour_map(X)
    assert points.shape == (len(X), 2)
    assert np.isfinite(points).all()


def test_repulsion_on_the_grid_is_that_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step, without momentum, is that of the gradient of t-SNE written out."""
    module = sys.modules["pollux.report.maps"]
    for name, value in {"_EARLY": 0, "_LATE": 1, "_SPACING": 0.05}.items():
        monkeypatch.setattr(module, name, value)
    generator = np.random.default_rng(0)
    y = generator.normal(size=(30, 2)) * (6, 2)
    y -= y.mean(0)
    neighbours = np.array([generator.permutation(np.setdiff1d(np.arange(30), i))[:4] for i in range(30)])
    P = np.zeros((30, 30))
    P[np.arange(30)[:, None], neighbours] = 1
    P = (P + P.T) / (P + P.T).sum()
    apart = y[:, None] - y
    Q = 1 / (1 + (apart**2).sum(2))
    np.fill_diagonal(Q, 0)
    gradient = 4 * (((P - Q / Q.sum()) * Q)[:, :, None] * apart).sum(1)
    expected = y - 30 * 0.8 * gradient
    moved = _arrange(neighbours, y)
    # A rotation of the map changes no distance. Quadratic interpolation errs by h³ f‴ / 9√3, with f‴ below 10.
    lengths = [np.linalg.norm(each[:, None] - each, axis=2) for each in (moved, expected, y)]
    assert np.abs(lengths[0] - lengths[1]).max() < 1e-3 * np.abs(lengths[1] - lengths[2]).max()


def test_a_point_that_is_near_to_all_stays_among_them() -> None:
    """However many pull at it."""
    generator = np.random.default_rng(0)
    neighbours = np.array(
        [np.append(generator.permutation(np.setdiff1d(np.arange(1, 400), i))[:7], 0) for i in range(400)]
    )
    neighbours[0, -1] = 1
    points = _arrange(neighbours, 1e-4 * generator.normal(size=(400, 2)))
    away = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    assert away[0] < np.quantile(away[1:], 0.99)


def test_pages_have_both_maps_unless_one_is_asked_for() -> None:
    X = blobs(20)
    clustering = GeminiClustering(3, model="linear", max_epochs=20, n_init=1, random_state=0).fit(X)
    some = np.arange(0, 60)
    found = describe(clustering, X).draw_maps(some)
    assert [each.name for each in found] == ["Neighbours", "Principal components"]
    assert found[0].axes is None
    assert_together(found[0].points, 20)
    assert [each.name for each in describe(clustering, X).draw_maps(some[:40])] == ["Principal components"]
    assert len(describe(clustering, X, points="components").draw_maps(some)) == 1
    given = describe(clustering, X, points=X[:, 2:4], axes=("a", "b")).draw_maps(some[:5])
    assert given[0].axes == ("a", "b")
    np.testing.assert_array_equal(given[0].points, X[:5, 2:4])
    with pytest.raises(ValueError, match="an array \\(n, 2\\) or 'components', not 'far'"):
        describe(clustering, X, points="far")


@pytest.mark.parametrize("X", [np.zeros((30, 0)), np.random.default_rng(0).normal(size=(30, 3)) * 1e30])
def test_maps_of_no_or_huge_numbers_are_finite(X: np.ndarray) -> None:
    points = neighbour_map(X)
    assert points.shape == (30, 2)
    assert np.isfinite(points).all()
