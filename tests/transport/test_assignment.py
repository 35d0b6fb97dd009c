"""Assignments with bounds on sizes: exact."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linear_sum_assignment, linprog

from blobs import blobs
from commands import good, refused
from pollux import GeminiClustering
from pollux.errors import InputError
from pollux.transport.assignment import assign, resolve_sizes

LINEAR = {"model": "linear", "objective": "mmd_ova", "init": "kmeans", "n_init": 1, "max_epochs": 2, "random_state": 0}


@pytest.mark.parametrize("seed", range(40))
def test_the_sum_is_that_of_linear_programming(seed: int) -> None:
    rng = np.random.default_rng(seed)
    K = int(rng.integers(1, 6))
    n = int(rng.integers(2 * K, 25))
    scores = np.log(rng.dirichlet(np.full(K, rng.choice([0.1, 1.0])), n) + 1e-12)
    # Ties, and rows that repeat.
    scores = [scores, np.round(scores), scores[rng.integers(0, 3, n) % n]][seed % 3]
    low = rng.integers(0, n // K + 1, K)
    high = np.maximum(low, rng.integers(n // K, n + 1, K) + 1)
    labels = assign(scores, low, high)
    sizes = np.bincount(labels, minlength=K)
    assert ((low <= sizes) & (sizes <= high)).all()
    rows, clusters = np.kron(np.eye(n), np.ones(K)), np.kron(np.ones(n), np.eye(K))
    bounds = {"A_ub": np.concatenate([clusters, -clusters]), "b_ub": np.concatenate([high, -low])}
    best = -linprog(-scores.ravel(), A_eq=rows, b_eq=np.ones(n), bounds=(0, 1), **bounds).fun
    # The solver's own tolerance, for each of n scores.
    assert scores[np.arange(n), labels].sum() == pytest.approx(best, abs=1e-7 * n)


def test_equal_sizes_are_the_assignment_problem() -> None:
    scores = np.random.default_rng(0).normal(size=(60, 5))
    labels = assign(scores, *resolve_sizes(12, 12, 60, 5))
    rows, places = linear_sum_assignment(-np.repeat(scores, 12, axis=1))
    # Sums of 60 numbers of order one in another order.
    assert scores[np.arange(60), labels].sum() == pytest.approx(scores[rows, places // 12].sum(), rel=1e-12)


def test_without_bounds_it_is_the_likeliest() -> None:
    scores = np.random.default_rng(0).normal(size=(60, 5))
    assert (assign(scores, *resolve_sizes(None, None, 60, 5)) == scores.argmax(1)).all()


def test_shares_and_counts() -> None:
    low, high = resolve_sizes(0.1, 0.5, 30, 3)
    assert (low.tolist(), high.tolist()) == ([3, 3, 3], [15, 15, 15])
    assert resolve_sizes(2, [3, 30, 30], 30, 3)[1].tolist() == [3, 30, 30]
    with pytest.raises(InputError, match="give one size for all"):
        GeminiClustering(3, model="linear", objective="mi").fit(np.zeros((30, 2)), max_size=[3, 30, 30])


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (11, None, "at least 33 rows"),
        (None, 9, "at most 27 of 30 rows"),
        (0.3, 0.2, "Cluster 0 would have"),
        (-1, None, "is a number of rows"),
        (1.5, None, "up to 1.0"),
        ([1, 2], None, "is a number of rows"),
    ],
)
def test_what_cannot_be_is_named(low: float | None, high: float | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        resolve_sizes(low, high, 30, 3)


@pytest.mark.parametrize("model", ["linear", "free"])
def test_labels_of_a_fit_obey(model: str) -> None:
    X, _ = blobs()
    X = X[:70]
    clustering = GeminiClustering(3, **(LINEAR | {"model": model})).fit(X, min_size=20, max_size=0.4)
    sizes = np.bincount(clustering.labels_, minlength=3)
    assert sizes.min() >= 20
    assert sizes.max() <= 28
    assert (np.diff(sizes) <= 0).all()


def test_new_rows_and_weights_obey() -> None:
    X, _ = blobs()
    clustering = GeminiClustering(3, **LINEAR).fit(X, max_size=30, sample_weight=np.where(np.arange(90) < 80, 1.0, 0.0))
    assert np.bincount(clustering.labels_[:80]).max() <= 30
    assert np.bincount(clustering.assign(X[:9], min_size=3)).tolist() == [3, 3, 3]
    with pytest.raises(InputError, match="at least 12 rows"):
        clustering.assign(X[:9], min_size=4)


def test_sizes_are_checked_before_training_and_not_for_streams(tmp_path: Path) -> None:
    X, _ = blobs()
    clustering = GeminiClustering(3, **LINEAR)
    with pytest.raises(InputError, match="at least 120 rows"):
        clustering.fit(X, min_size=40)
    pd.DataFrame(X, columns=["a", "b"]).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="rows in memory"):
        GeminiClustering(3).fit(str(tmp_path / "rows.parquet"), max_size=40)


def test_the_command_line_obeys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(blobs(70)[0], columns=["a", "b"]).to_csv("rows.csv", index=False)
    fit = ("fit", "rows.csv", "--clusters", 3, "--model", "linear", "--init", "kmeans", "--epochs", 2)
    good(*fit, "--min-size", 20, "--max-size", 0.36, "--out", "run")
    sizes = np.bincount(pd.read_csv("run/clusters.csv")["cluster"])
    assert sizes.min() >= 20
    assert sizes.max() <= 25
    refused(*fit, "--min-size", 30, says="--min-size")
