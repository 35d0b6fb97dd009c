"""Whether clusters are there: gaps, null models, and what every fit tells of them."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.integrate import trapezoid

import pollux
from blobs import blobs
from commands import good
from pollux import GeminiClustering
from pollux.inspection.structure import (
    SEVERAL_MODES,
    Structure,
    Unimodal,
    compare_with_null,
    dip,
    fill_steps,
    look_for_structure,
    unroll_circles,
)

LINEAR = {"model": "linear", "objective": "mmd_ova", "n_init": 1, "init": "kmeans", "max_epochs": 2, "random_state": 0}
RANDOM = np.random.default_rng(7)
NOISE = {
    "Gaussian": RANDOM.normal(size=(200, 4)) @ RANDOM.normal(size=(4, 4)),
    "uniform": RANDOM.uniform(size=(200, 3)),
    "log-normal": RANDOM.lognormal(size=(200, 2)),
    "zeros and ones": RANDOM.integers(0, 2, size=(200, 5)).astype(float),
    "Student t": RANDOM.normal(size=(200, 3)) / np.sqrt(RANDOM.chisquare(3, size=(200, 1)) / 3),
}


def standardised(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return (X - X.mean(0)) / X.std(0)


@pytest.mark.parametrize("name", NOISE)
def test_a_null_model_explains_data_without_clusters(name: str) -> None:
    evidence = compare_with_null(fill_steps(standardised(NOISE[name])), [2, 5])
    assert Structure.of(0.0, *evidence.best).grade == "none"
    assert evidence.likely is None


@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("weights", [(1.0, 0.0), (1.0, 1.0)])
def test_columns_that_others_explain_are_no_clusters(noise: float, weights: tuple[float, float]) -> None:
    random = np.random.default_rng(0)
    own = random.normal(size=(500, 2))
    X = np.c_[own, own @ weights + noise * random.normal(size=500)]
    assert compare_with_null(standardised(X), [2, 3]).likely is None


@pytest.mark.parametrize("weights", [(2, 0), (-1, 0), (1, 1)])
def test_columns_of_steps_that_others_explain_are_no_clusters(weights: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    steps = random.integers(0, 2, (500, 2))
    X = standardised(np.c_[random.normal(size=500), steps, steps @ weights])
    found = look_for_structure(X, lambda X: np.stack([X[:, 0], -X[:, 0]], 1), 2)
    assert found.gain <= 3 * found.gain_error


def test_columns_of_low_rank_tell_what_their_factors_do() -> None:
    random = np.random.default_rng(0)
    factors = random.normal(size=(600, 2))
    factors[:300, 0] += 4
    wide = factors @ random.normal(size=(2, 30))
    expected, _ = compare_with_null(factors, [2, 3]).best
    gain, error = compare_with_null(wide, [2, 3]).best
    # Null models by columns see others: principal components are not the factors.
    assert gain == pytest.approx(expected, abs=0.1)
    assert compare_with_null(random.normal(size=(300, 2)) @ random.normal(size=(2, 30)), [2, 3]).likely is None
    assert gain > 3 * error


def test_clusters_that_overlap_explain_more() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(600, 3)) + np.repeat([[0, 0, 0], [4, 0, 0], [0, 4, 0]], 200, axis=0)
    evidence = compare_with_null(standardised(X), [2, 3, 4])
    assert Structure.of(0.1, *evidence.best).grade == "likely"
    assert evidence.likely == (3, 3)


@pytest.mark.parametrize(
    "column",
    [
        RANDOM.uniform(size=300),
        RANDOM.normal(size=300),
        RANDOM.lognormal(size=300),
        RANDOM.exponential(size=300),
        RANDOM.standard_t(2, size=300),
        RANDOM.normal(0, 5, size=300).round(),
    ],
)
def test_a_column_of_one_mode_is_one_cluster(column: NDArray[np.float64]) -> None:
    evidence = compare_with_null(fill_steps(standardised(column[:, None])), [2, 3])
    assert Structure.of(0.0, *evidence.best, evidence.dip).grade == "none"


def test_a_column_of_two_modes_is_likely_to_be_two_clusters() -> None:
    random = np.random.default_rng(0)
    # About as the waiting times of Old Faithful.
    column = np.concatenate([random.normal(54, 6, 100), random.normal(80, 6, 172)])
    evidence = compare_with_null(standardised(column[:, None]), [2, 3])
    found = Structure.of(0.2, *evidence.best, evidence.dip)
    assert evidence.dip >= SEVERAL_MODES
    assert found.grade == "likely"
    assert evidence.likely is not None


def test_the_dip_is_the_distance_to_the_nearest_distribution_of_one_mode() -> None:
    # Evenly spaced numbers have none beyond the half step that any numbers have; two values have all there is.
    assert dip(np.linspace(0, 1, 50)) == pytest.approx(1 / 100)
    assert dip(np.repeat([0.0, 1.0], 500) + 1e-9 * np.arange(1000)) == pytest.approx(1 / 4, abs=1e-3)
    # Any two groups are as far from one mode in any units and from either end.
    numbers = np.random.default_rng(0).normal(size=200) + np.repeat([0, 5], [80, 120])
    assert dip(numbers) == pytest.approx(dip(7 - 3 * numbers))


def test_clusters_that_are_the_values_of_a_category_are_said_to_be() -> None:
    random = np.random.default_rng(0)
    colours = random.integers(0, 3, 300)
    ones = 4.0 * np.eye(3)[colours]

    def look(others: NDArray[np.float64]) -> Structure:
        X = np.c_[others, ones]
        return look_for_structure(X, lambda X: X[:, -3:], 3, {"colour": [2, 3, 4]})

    noise = look(random.normal(size=(300, 2)))
    assert noise.category == "colour"
    assert noise.others is not None
    assert noise.others.grade == "none"
    assert "only by the values of 'colour', a category" in str(noise)
    related = look(random.normal(size=(300, 2)) + 8 * np.eye(3)[colours][:, :2])
    assert related.others is not None
    assert related.others.grade == "likely"
    assert "only" not in str(related)
    assert "the other columns show clusters too" in str(related)


def test_a_frame_whose_clusters_are_a_category_says_so_in_files_too(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(300, 2)), columns=["x", "y"])
    frame["colour"] = np.array(["a", "b", "c"])[random.integers(0, 3, 300)]
    clustering = GeminiClustering(3, random_state=0).fit(frame)
    found = clustering.structure_
    assert found is not None
    assert found.category == "colour"
    clustering.save(tmp_path / "model")
    assert pollux.load(tmp_path / "model").structure_ == found


def test_what_is_not_shown_is_not_said_to_be_explained() -> None:
    assert "are not shown" in Structure.of(0.2, 0.02, 0.01).reason
    assert "explains the data as well" in Structure.of(0.2, -0.02, 0.01).reason


def test_of_one_cluster_nothing_is_said() -> None:
    assert GeminiClustering(1, **LINEAR).fit(blobs()[0]).structure_ is None


def test_noise_is_told_from_clusters_by_a_fit() -> None:
    noise = GeminiClustering(8, **LINEAR).fit(np.random.default_rng(0).normal(size=(500, 5)))
    assert noise.structure_ is not None
    assert noise.structure_.grade == "none"
    assert "a null model of one cluster explains the data as well" in noise.structure_.reason
    found = GeminiClustering(3, **LINEAR).fit(blobs()[0]).structure_
    assert found is not None
    assert found.grade == "clear"
    assert "gaps" in found.reason


def test_it_is_kept_in_files_and_pickles_but_rows_are_not(tmp_path: Path) -> None:
    clustering = GeminiClustering(3, **LINEAR).fit(blobs()[0])
    assert clustering.fitted_.known_structure is None, "a fit does not wait for it"
    assert pickle.loads(pickle.dumps(clustering)).structure_ is None
    copied = copy.deepcopy(clustering)
    found = clustering.structure_
    assert copied.structure_ == found
    again = pickle.loads(pickle.dumps(clustering))
    assert again.structure_ == found
    assert again.fitted_.observed is None
    clustering.save(tmp_path / "model")
    assert pollux.load(tmp_path / "model").structure_ == found


@pytest.mark.parametrize("X", [np.ones((30, 2)), np.arange(8.0)[:, None], np.eye(40)[:, [0, 0, 1]]])
def test_few_or_equal_rows_tell_nothing(X: NDArray[np.float64]) -> None:
    gains = compare_with_null(X, [2, 3]).gains
    assert gains.shape == (2, len(X))
    assert np.isfinite(gains).all()


def test_a_free_table_has_no_structure() -> None:
    assert GeminiClustering(2, **LINEAR | {"model": "free", "init": "auto"}).fit(blobs()[0]).structure_ is None
    with pytest.raises(AttributeError, match="after fit"):
        _ = GeminiClustering(2).structure_


def test_a_density_rises_and_falls() -> None:
    numbers = np.concatenate([np.random.default_rng(0).normal(at, 0.3, 200) for at in (-2, 2)])
    grid = np.linspace(-4, 4, 2_001)
    found = Unimodal(numbers)
    density = np.exp(found.log_density(grid))
    # Widths of bins differ by rounding.
    steps = np.sign(np.diff(density).round(12))
    turns = steps[steps != 0]
    assert (np.diff(turns) <= 0).all(), "after it falls it rises no more"
    # A Riemann sum over bins that begin between two points of the grid.
    assert trapezoid(density, grid) == pytest.approx(1, abs=0.05)
    scores = found.normal_score(np.sort(numbers))
    assert (np.diff(scores) >= 0).all()


def test_the_command_line_tells_it(tmp_path: Path) -> None:
    data = tmp_path / "noise.csv"
    np.savetxt(data, np.random.default_rng(0).normal(size=(200, 3)), delimiter=",", header="a,b,c", comments="")
    out = good("fit", data, "--clusters", 4, "--out", tmp_path / "run").out
    assert "structure: none: a null model of one cluster explains the data as well" in out
    assert "need not be kinds that are there" in out
    assert out.index("structure: none") < out.index("probability"), "before what could be taken for evidence"
    assert "confidence" not in out
    assert '"grade": "none"' in (tmp_path / "run" / "summary.json").read_text()


# Dates


def dated(days: int, per_day: bool = False, bursts: bool = False, n: int = 400) -> pd.DataFrame:
    """Numbers of no structure beside points in time."""
    random = np.random.default_rng(5)
    when = random.integers(0, days, n).astype(np.float64)
    if bursts:
        when = random.choice([40.0, 220.0], n) + random.normal(scale=8.0, size=n)
    if per_day:
        when += random.uniform(size=n)
    frame = pd.DataFrame(random.normal(size=(n, 3)), columns=["x", "y", "z"])
    frame["when"] = pd.Timestamp("2021-01-01") + pd.to_timedelta((when * 86_400).round(), unit="s")
    return frame


@pytest.mark.parametrize(("days", "per_day"), [(365, False), (1096, False), (60, False), (365, True), (3, True)])
def test_random_dates_have_no_clusters(days: int, per_day: bool) -> None:
    """Seasons, days of the week and hours are rings, which mixtures fit better than a single cluster."""
    found = GeminiClustering(4, random_state=0).fit(dated(days, per_day)).structure_
    assert found is not None
    assert found.grade == "none", found


def test_dates_of_two_seasons_have_clusters() -> None:
    found = GeminiClustering(2, random_state=0).fit(dated(365, bursts=True)).structure_
    assert found is not None
    assert found.grade != "none"


def test_circles_become_angles_and_others_stay() -> None:
    random = np.random.default_rng(0)
    angles = random.uniform(0, 2 * np.pi, 300)
    ring = np.stack([3 * np.cos(angles) + 1, np.sin(angles) / 5], axis=1)
    binary = random.integers(0, 2, (300, 2)).astype(np.float64)
    plain = np.column_stack([random.normal(size=(300, 2)), binary, np.ones(300)])
    assert unroll_circles(plain) is plain
    # As networks see them.
    for seed in range(30):
        other = np.random.default_rng(seed)
        two = other.random(300) < 0.4
        columns = np.column_stack([two, other.normal(size=300), two, 1 - two, other.integers(0, 5, 300), two])
        standard = (columns - columns.mean(0)) / columns.std(0)
        assert unroll_circles(standard) is standard
        assert unroll_circles(np.column_stack([np.full(300, 5.0), standard])).any(0).all()
    flat = unroll_circles(np.column_stack([plain, ring]))
    np.testing.assert_array_equal(flat[:, :5], plain)
    assert not flat[:, 6].any()
    steps = np.diff(np.sort(angles), append=np.sort(angles)[0] + 2 * np.pi)
    assert np.ptp(flat[:, 5]) * np.pi / np.sqrt(3) == pytest.approx(2 * np.pi - steps.max(), abs=1e-6)
    # Two circles that go through each other leave one.
    twice = unroll_circles(np.column_stack([ring, np.cos(angles + 1), np.sin(angles + 1)]))
    assert (twice.std(0) > 0).sum() == 1
    # Which another column goes through.
    through = np.column_stack([angles + 2 * np.pi * random.integers(0, 3, 300), ring])
    assert not unroll_circles(through)[:, 1:].any()
