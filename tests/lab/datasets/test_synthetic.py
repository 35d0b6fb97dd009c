"""Synthetic data: shapes, seeds, moments, and the mixture of the paper."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from pollux.errors import InputError
from pollux.lab import datasets
from pollux.metrics import adjusted_rand_index

every_generator = pytest.mark.parametrize("name", datasets.SYNTHETIC)
random = np.random.default_rng(0)


@every_generator
def test_samples_and_classes_have_their_shapes_and_types(name: str) -> None:
    X, y = datasets.SYNTHETIC[name](120, random_state=0)
    assert X.shape[0] == y.shape[0] == 120
    assert (X.ndim, y.ndim) == (2, 1)
    assert (X.dtype, y.dtype) == (np.float64, np.int64)
    assert np.isfinite(X).all()


@every_generator
def test_classes_are_balanced_and_mixed(name: str) -> None:
    _, y = datasets.SYNTHETIC[name](1200, random_state=0)
    counts = np.bincount(y)
    assert len(counts) > 1
    assert counts.min() > 0.8 * 1200 / len(counts)
    # Sorted by class, half of the rows would lack some.
    assert set(y[:100]) == set(y)


@every_generator
def test_a_seed_gives_the_same_samples(name: str) -> None:
    make = datasets.SYNTHETIC[name]
    first, again, other = make(50, random_state=3), make(50, random_state=3), make(50, random_state=4)
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])
    generator = np.random.RandomState(3)
    assert np.array_equal(first[0], make(50, random_state=generator)[0])
    assert not np.array_equal(first[0], make(50, random_state=generator)[0])
    assert not np.array_equal(make(50)[0], make(50)[0])


@every_generator
def test_the_state_of_numpy_is_left_alone(name: str) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    datasets.SYNTHETIC[name](50, random_state=3)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@every_generator
@pytest.mark.parametrize("n_samples", [0, -1, 2.5, True, "100"])
def test_a_number_of_samples_that_is_none_is_refused(name: str, n_samples: Any) -> None:
    with pytest.raises(InputError, match="n_samples must be a positive whole number"):
        datasets.SYNTHETIC[name](n_samples)


@every_generator
def test_a_seed_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="seed"):
        datasets.SYNTHETIC[name](50, random_state="zero")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(datasets.blobs, std=-1), "std must be a number from 0 up"),
        (partial(datasets.blobs, centres=[1, 2]), "one row per cluster"),
        (partial(datasets.blobs, centres=[[np.nan, 2]]), "finite"),
        (partial(datasets.blobs, 2), "2 samples cannot be shared among 3 clusters"),
        (partial(datasets.moons, radius=0), "radius must be a positive number"),
        (partial(datasets.moons, noise=float("nan")), "noise must be a number from 0 up"),
        (partial(datasets.circles, radii=()), "one cluster at least"),
        (partial(datasets.circles, radii=(1, -1)), "each of the radii must be a positive number"),
        (partial(datasets.celeux_one, n_noise=-1), "n_noise must be a whole number"),
        (partial(datasets.celeux_one, mu=0), "mu must be a positive number"),
        (partial(datasets.gaussian_student_mixture, alpha=float("inf")), "alpha must be a positive number"),
        (partial(datasets.gaussian_student_mixture, sigma=0), "sigma must be a positive number"),
        (partial(datasets.gaussian_student_mixture, degrees_of_freedom=0), "degrees_of_freedom must be a positive"),
        (partial(datasets.gaussian_student_oracle, np.zeros((3, 3))), r"\(n, 2\)"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        ([0, 0], np.eye(3), r"must be \(d,\) and \(d, d\)"),
        ([0, 0], [[1, 2], [0, 1]], "symmetric"),
        ([0, 0], [1, 1], "symmetric"),
        ([0, 0], [[1, 2], [2, 1]], "negative eigenvalues"),
    ],
)
def test_no_student_without_a_covariance(mean: Any, covariance: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        datasets.multivariate_student(3, mean=mean, covariance=covariance, degrees_of_freedom=1)


def test_moons_are_half_circles_that_interlock() -> None:
    X, y = datasets.moons(1001, noise=0, random_state=0)
    upper, lower = X[y == 0] - [1, -0.5], X[y == 1] - [-1, 0.5]
    assert np.allclose(np.hypot(*upper.T), 2)
    assert np.allclose(np.hypot(*lower.T), 2)
    assert upper[:, 1].min() >= 0 >= lower[:, 1].max()
    assert len(upper) == len(lower) + 1
    # One end of each lies in the bowl of the other, halfway between its rim and its bottom.
    (left,) = X[y == 0][[X[y == 0][:, 0].argmin()]]
    (right,) = X[y == 1][[X[y == 1][:, 0].argmax()]]
    assert np.allclose(left, [-1, -0.5], atol=0.05)
    assert np.allclose(right, [1, 0.5], atol=0.05)


def test_noise_and_standard_deviation_are_what_they_say() -> None:
    X, y = datasets.blobs(30_000, std=0.5, random_state=0)
    assert np.allclose([X[y == cluster].std(axis=0) for cluster in range(3)], 0.5, atol=0.02)
    X, y = datasets.circles(20_000, noise=0.05, random_state=0)
    assert (np.hypot(*X.T) - np.array([1, 2])[y]).std() == pytest.approx(0.05, rel=0.05)


def test_a_student_distribution_has_its_covariance() -> None:
    covariance = np.array([[2.0, 0.8], [0.8, 1.0]])
    X = datasets.multivariate_student(
        200_000, mean=[1, -1], covariance=covariance, degrees_of_freedom=10, random_state=0
    )
    assert np.allclose(X.mean(axis=0), [1, -1], atol=0.02)
    assert np.allclose(np.cov(X.T), covariance * 10 / 8, atol=0.05)


@pytest.mark.parametrize(
    ("degrees_of_freedom", "farthest", "oracle"), [(1.0, 2585.67, 0.989), (2.0, 64.81, 0.991)], ids=["1", "2"]
)
def test_the_mixture_is_that_of_the_paper(degrees_of_freedom: float, farthest: float, oracle: float) -> None:
    X, y = datasets.gaussian_student_mixture(degrees_of_freedom=degrees_of_freedom, random_state=0)
    assert np.abs(X).max() == pytest.approx(farthest, abs=0.01)
    best = datasets.gaussian_student_oracle(X, degrees_of_freedom=degrees_of_freedom)
    assert round(adjusted_rand_index(y, best), 3) == oracle


def test_other_methods_score_what_the_paper_reports_on_the_mixture() -> None:
    X, y = datasets.gaussian_student_mixture(degrees_of_freedom=2.0, random_state=0)
    models = {
        "k-means": KMeans(4, n_init=3, random_state=0),
        "full": GaussianMixture(4, covariance_type="full", random_state=0),
        "diagonal": GaussianMixture(4, covariance_type="diag", random_state=0),
    }
    scores = {name: adjusted_rand_index(y, model.fit_predict(X)) for name, model in models.items()}
    assert scores == pytest.approx({"k-means": 0.965, "full": 0.972, "diagonal": 0.973}, abs=6e-4)


def test_the_variance_of_the_mixture_is_sigma() -> None:
    X, y = datasets.gaussian_student_mixture(40_000, sigma=4.0, alpha=3.0, random_state=0)
    for cluster, mean in enumerate([(3, 3), (3, -3), (-3, 3)]):
        assert np.allclose(X[y == cluster].mean(axis=0), mean, atol=0.1)
        assert np.allclose(np.cov(X[y == cluster].T), 4 * np.eye(2), atol=0.2)


def test_the_oracle_knows_the_densities() -> None:
    from scipy.stats import multivariate_normal, multivariate_t

    X = random.normal(scale=8, size=(500, 2))
    means = [(2, 2), (2, -2), (-2, 2), (-2, -2)]
    densities = [multivariate_normal(mean, 3 * np.eye(2)).logpdf(X) for mean in means[:3]]
    densities.append(multivariate_t(means[3], 3 * np.eye(2), df=1.5).logpdf(X))
    labels = datasets.gaussian_student_oracle(X, alpha=2.0, sigma=3.0, degrees_of_freedom=1.5)
    assert np.array_equal(labels, np.argmax(densities, axis=0))


def test_celeux_one_has_five_variables_that_tell() -> None:
    X, y = datasets.celeux_one(60_000, n_noise=3, mu=1.2, random_state=0)
    for cluster, mean in enumerate([1.2, -1.2, 0]):
        assert np.allclose(X[y == cluster].mean(axis=0), [*5 * [mean], *3 * [0]], atol=0.04)
        assert np.allclose(np.cov(X[y == cluster].T), np.eye(8), atol=0.04)
    assert datasets.celeux_one(10, n_noise=0)[0].shape == (10, 5)


def test_celeux_two_has_its_moments() -> None:
    X, y = datasets.celeux_two(200_000, random_state=0)
    for cluster, mean in enumerate([(0, 0), (4, 0), (0, 2), (4, 2)]):
        assert np.allclose(X[y == cluster, :2].mean(axis=0), mean, atol=0.03)
    telling = np.column_stack([np.ones(len(X)), X[:, :2]])
    found = np.linalg.lstsq(telling, X[:, 2:], rcond=None)[0]
    assert np.allclose(found[0], [0, 0, 0.4, 0.8, 1.2, 1.6, 2, 2.4, 2.8, 3.2, 3.6, 4], atol=0.05)
    assert np.allclose(found[1], [0.5, 2, 0, -1, 2, 0.5, 4, 3, 2, 0, 0, 0], atol=0.02)
    assert np.allclose(found[2], [1, 0, 3, 2, -4, 0, 0.5, 0, 1, 0, 0, 0], atol=0.02)
    expected = np.diag([1, 1, 1, 0.5, 0.5, 2.5, 1.5, 3, 5, 1, 1, 1])
    expected[5, 6] = expected[6, 5] = np.sqrt(3) / 2
    expected[7, 8] = expected[8, 7] = np.sqrt(3)
    assert np.allclose(np.cov((X[:, 2:] - telling @ found).T), expected, atol=0.06)
