"""Bad input: an error in the user's words, or a valid result. Never NaN, never a silently wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from coverings import IS_FULL, combinations_of, examples, rotated
from flat_parameters import make_clustering
from pollux import Gemini, GeminiClustering, Scaling, f_divergence
from pollux.clustering import CollapseWarning
from pollux.errors import InputError
from pollux.geometry import DISTANCES, KERNELS, Features
from pollux.models import ACTIVATIONS, MODELS
from pollux.objectives import GEMINIS, PENALTIES
from pollux.training import OPTIMISERS

# Small and odd data do fall into one cluster; that it is said so has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")

X = np.random.default_rng(0).normal(size=(20, 3))
X[:8] += 4
KERNEL = X @ X.T
DISTANCE = np.linalg.norm(X[:, None] - X, axis=-1)
IMAGES = np.random.default_rng(0).normal(size=(6, 1, 28, 28)).astype(np.float32)

# Where no square of a value overflows, every objective must give a valid result.
SAFE = 1e100
# What an error about overflow must tell the user.
SCALE = r"(?i)scale|too large"

every_objective = pytest.mark.parametrize("objective", GEMINIS)
MODEL_NAMES = ("linear", "mlp", "free")
every_model = pytest.mark.parametrize("model", MODEL_NAMES)
every_objective_and_model = pytest.mark.parametrize(("objective", "model"), rotated(GEMINIS, MODEL_NAMES))
# A training that stopped early, with its last good weights, is a valid result: its warning is the report.
stopped_early_is_fine = pytest.mark.filterwarnings("ignore::pollux.training.NumericalWarning")


def clustering(n_clusters: Any = 2, **parameters: Any) -> GeminiClustering:
    if parameters.get("model") == "mlp":
        parameters = {"hidden": (5,), **parameters}
    return make_clustering(n_clusters, **{"model": "linear", "max_epochs": 3, "random_state": 0, **parameters})


def check_valid(fitted: GeminiClustering, rows: Any) -> None:
    """Labels are complete, probabilities finite with rows that sum to 1, the objective finite."""
    n = rows.shape[0]
    assert fitted.labels_.shape == (n,)
    assert set(fitted.labels_) == set(range(fitted.n_clusters_))
    free = fitted.model == "free"
    probabilities = fitted.probabilities_ if free else fitted.transform(rows)
    assert probabilities.shape == (n, fitted.n_clusters)
    assert np.isfinite(probabilities).all()
    assert np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert (probabilities.argmax(1) == fitted.labels_).all()
    assert np.isfinite(fitted.objective_)
    assert all(np.isfinite(values).all() for values in fitted.history_.values())
    if not free:
        assert (fitted.predict(rows) == fitted.labels_).all()
        assert np.isfinite(fitted.score(rows))


def check_valid_or_explained(one: GeminiClustering, rows: NDArray[Any]) -> None:
    """A valid result; an error only where the values are beyond the arithmetic, and it says so."""
    try:
        one.fit(rows)
    except ValueError as error:
        message = str(error)
        assert np.abs(rows).max() > np.float64(SAFE) or rows.dtype == np.float32
        assert "too large" in message or "scale" in message.lower()
        return
    check_valid(one, rows)


# Degenerate data

DEGENERATE = {
    "a constant column": np.column_stack([X, np.full(20, 3.0)]),
    "only constant columns": np.tile([1.0, -2.0], (20, 1)),
    "all rows zero": np.zeros((20, 3)),
    "one column": X[:, :1],
    "two distinct rows": np.repeat(X[[0, -1]], 10, axis=0),
    "one row apart": np.vstack([np.zeros((19, 3)), np.ones((1, 3))]),
    "far off centre": X + 1e9,
    "tiny": X * 1e-300,
    "below the smallest normal number": np.sign(X) * 5e-324,
    "one huge row": np.vstack([X[:19], np.full((1, 3), SAFE)]),
    "of all sizes": X * np.array([1e-300, 1.0, 1e100]),
    "whole numbers": (X * 3).astype(np.int64),
    "tiny singles": (X * 1e-40).astype(np.float32),
}


def test_values_that_are_all_missing_or_infinite_are_refused() -> None:
    X = np.arange(60.0).reshape(20, 3)
    with pytest.raises(ValueError, match="X holds no value at all"):
        GeminiClustering(2, max_epochs=1).fit(np.full_like(X, np.nan))
    X[4, 1] = np.inf
    with pytest.raises(ValueError, match=r"contains infinity.* It is in column 1, first in row 4\."):
        GeminiClustering(2, max_epochs=1).fit(X)
    with pytest.raises(ValueError, match=r"It is in column 'b', first in row 4\."):
        GeminiClustering(2, max_epochs=1).fit(pd.DataFrame(X, columns=list("abc")))


@pytest.mark.parametrize(("name", "model", "objective"), rotated(DEGENERATE, MODEL_NAMES, GEMINIS))
def test_degenerate_data_give_a_valid_result(name: str, model: str, objective: str) -> None:
    rows = DEGENERATE[name]
    check_valid(clustering(model=model, objective=objective).fit(rows), rows)


HUGE = {
    "1e300": X * 1e300,
    "1e200": X * 1e200,
    "beyond and below": X * np.array([1e300, 1e-300, 1.0]),
    "every other row": X * np.where(np.arange(20) % 2, 1e300, 1e-300)[:, None],
    "the largest number": np.sign(X) * np.finfo(np.float64).max,
    "singles of 1e30": (X * 1e30).astype(np.float32),
    "the largest single": np.sign(X).astype(np.float32) * np.finfo(np.float32).max,
}


@stopped_early_is_fine
@pytest.mark.parametrize(("name", "model", "objective"), rotated(HUGE, MODEL_NAMES, GEMINIS))
def test_huge_values_give_a_valid_result_or_the_advice_to_scale(name: str, model: str, objective: str) -> None:
    check_valid_or_explained(clustering(model=model, objective=objective), HUGE[name])


@stopped_early_is_fine
@pytest.mark.parametrize("geometry", [*KERNELS, *DISTANCES, "shortest_path"])
@pytest.mark.parametrize("scale", [0, 1e-300, 1e-170, 1e300])
def test_every_geometry_takes_values_of_every_size_or_explains(geometry: str, scale: float) -> None:
    objective = "mmd_ova" if geometry in KERNELS else "wasserstein_ova"
    check_valid_or_explained(clustering(objective=objective, geometry=geometry), np.abs(X) * scale)


EXTREMES = [0.0, 1.0, -1.0, 5e-324, 1e-300, -1e-160, 1e-8, 1e8, 1e99, -1e99]
finite_rows = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=7),
    elements=st.one_of(st.sampled_from(EXTREMES), st.floats(-SAFE, SAFE)),
)


@stopped_early_is_fine
@every_objective_and_model
@settings(derandomize=True, deadline=None, max_examples=6 if IS_FULL else 2)
@given(rows=finite_rows)
def test_any_finite_values_give_a_valid_result(model: str, objective: str, rows: NDArray[np.float64]) -> None:
    check_valid(clustering(model=model, objective=objective).fit(rows), rows)


@stopped_early_is_fine
@every_model
@settings(derandomize=True, deadline=None, max_examples=examples(25))
@given(
    rows=arrays(
        np.float64,
        array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=7),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ),
    objective=st.sampled_from(GEMINIS),
)
def test_values_without_bounds_give_a_valid_result_or_advice(model: str, rows: NDArray[Any], objective: str) -> None:
    check_valid_or_explained(clustering(model=model, objective=objective), rows)


@stopped_early_is_fine
@every_objective
@settings(derandomize=True, deadline=None, max_examples=5 if IS_FULL else 2)
@given(
    weight=arrays(np.float64, 20, elements=st.one_of(st.just(0.0), st.floats(1e-300, 1e300))).filter(np.any),
    batch_size=st.sampled_from([None, 2, 3, 7]),
)
def test_any_weights_and_batches_give_a_valid_result(
    objective: str, weight: NDArray[np.float64], batch_size: int | None
) -> None:
    fitted = clustering(objective=objective, batch_size=batch_size).fit(X, sample_weight=weight)
    assert np.isfinite(fitted.objective_)
    assert np.isfinite(fitted.predict_proba(X)).all()
    assert (fitted.predict(X) == fitted.labels_).all()
    assert set(fitted.labels_[weight > 0]) == set(range(fitted.n_clusters_))


@every_objective_and_model
def test_as_many_clusters_as_samples_give_a_valid_result(model: str, objective: str) -> None:
    check_valid(clustering(20, model=model, objective=objective).fit(X), X)


@every_objective_and_model
def test_one_cluster_gives_a_valid_result(model: str, objective: str) -> None:
    fitted = clustering(1, model=model, objective=objective).fit(X)
    check_valid(fitted, X)
    assert fitted.objective_ == pytest.approx(0, abs=1e-9)


# Rows that are no data

NOT_ROWS: dict[str, tuple[Any, str]] = {
    "NaN": (np.where(np.eye(20, 3), np.nan, X), "NaN"),
    "infinity": (np.where(np.eye(20, 3), np.inf, X), "infinity"),
    "minus infinity": (np.where(np.eye(20, 3), -np.inf, X), "infinity"),
    "NaN in a frame": (pd.DataFrame(np.where(np.eye(20, 3), np.nan, X)), "NaN"),
    "NaN in sparse rows": (scipy.sparse.csr_array(np.where(np.eye(20, 3), np.nan, X)), "NaN"),
    "NaN in a tensor": (torch.full((20, 3), torch.nan), "NaN"),
    "None among numbers": (np.where(np.eye(20, 3), None, X), "NaN"),
    "no rows": (np.empty((0, 3)), "0 sample"),
    "no columns": (np.empty((20, 0)), "0 feature"),
    "one sample": (X[:1], "1 sample"),
    "one number for each row": (X[:, 0], "1D array"),
    "a number": (3.0, "array"),
    "text": (np.full((20, 3), "abc"), "string"),
    "text among objects": (np.where(np.eye(20, 3), "abc", X.astype(object)), "abc"),
    "objects": (np.full((20, 3), object()), "object"),
    "complex numbers": (X + 1j, "Complex"),
    "a dictionary": ({"a": 1}, "dict|array"),
    "nothing": (None, "array|None"),
    "a frame of names": (pd.DataFrame({"a": ["x"] * 20, "b": range(20)}), "No column is left"),
    "ragged rows": ([[1.0, 2.0], [3.0]], "sequence|shape|homogeneous"),
}


@pytest.mark.parametrize(("name", "model"), rotated(NOT_ROWS, MODEL_NAMES))
def test_rows_that_are_no_data_are_refused(name: str, model: str) -> None:
    rows, message = NOT_ROWS[name]
    with pytest.raises((ValueError, TypeError), match=message):
        clustering(model=model).fit(rows)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "score", "partial_fit"])
@pytest.mark.parametrize("name", ["NaN", "infinity", "no rows", "text", "complex numbers", "one number for each row"])
def test_every_method_refuses_them(name: str, method: str) -> None:
    rows, message = NOT_ROWS[name]
    fitted = clustering().fit(X)
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(fitted, method)(rows)


def test_columns_of_objects_that_are_numbers_are_numbers() -> None:
    fitted = clustering().fit(X.astype(object))
    check_valid(fitted, X)
    assert (fitted.labels_ == clustering().fit(X).labels_).all()


@every_model
def test_fewer_samples_than_clusters_are_refused(model: str) -> None:
    with pytest.raises(ValueError, match=r"5 sample\(s\).*minimum of 6"):
        clustering(6, model=model).fit(X[:5])
    check_valid(clustering(5, model=model).fit(X[:5]), X[:5])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "score", "partial_fit"])
def test_rows_of_another_width_are_refused(method: str) -> None:
    fitted = clustering().fit(X)
    for rows in (X[:, :2], np.hstack([X, X])):
        with pytest.raises(ValueError, match=f"{rows.shape[1]} features.*expecting 3"):
            getattr(fitted, method)(rows)


def test_images_of_another_shape_than_those_of_the_fit_are_explained() -> None:
    flat = IMAGES.reshape(6, -1)
    on_images, on_rows = (clustering(max_epochs=1).fit(rows) for rows in (IMAGES, flat))
    for wrong, says in (
        (flat, r"\(1, 28, 28\); these are \(784,\)\."),
        (IMAGES[0], r"\(1, 28, 28\); these are \(28, 28\)\. Pass a single one as X\[None\]\."),
        (torch.as_tensor(IMAGES[:, 0]), r"\(1, 28, 28\); these are \(28, 28\)\."),
    ):
        with pytest.raises(ValueError, match=rf"The model was trained on samples of shape {says}"):
            on_images.predict(wrong)
    with pytest.raises(ValueError, match=r"was trained on samples of shape \(784,\); these are \(1, 28, 28\)"):
        on_rows.predict(IMAGES)
    np.testing.assert_array_equal(on_images.predict(IMAGES), on_images.labels_)
    assert on_images.predict(IMAGES[0][None]).shape == (1,)


def test_images_of_another_shape_are_refused() -> None:
    fitted = clustering(model="lenet5", max_epochs=1).fit(IMAGES)
    for shape in ((6, 1, 32, 32), (6, 1, 28), (6, 1, 28, 28, 1), (6, 1), (6, 3, 28, 28), (6, 784)):
        for method in ("predict", "predict_proba", "transform", "score", "partial_fit"):
            with pytest.raises(ValueError, match=r"shape \(1, 28, 28\)|features"):
                getattr(fitted, method)(np.zeros(shape, np.float32))


@pytest.mark.parametrize("shape", [(6, 10), (6, 1, 10, 10), (6, 28, 28), (6, 28, 28, 1)])
def test_images_that_lenet_cannot_read_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"lenet5 reads images.*channels, height, width"):
        clustering(model="lenet5").fit(np.random.default_rng(0).normal(size=shape))


@stopped_early_is_fine
@every_objective
def test_values_too_large_for_the_arithmetic_asked_for_are_explained(objective: str) -> None:
    for model in ("linear", "mlp"):
        with pytest.raises(ValueError, match=SCALE):
            clustering(objective=objective, dtype="float32", model=model).fit(X * 1e200)
    check_valid_or_explained(clustering(objective=objective, dtype="float32", model="free"), X * 1e200)


def test_new_rows_too_large_for_the_model_are_explained() -> None:
    for model in ("linear", "mlp"):
        fitted = clustering(model=model).fit(X.astype(np.float32))
        with pytest.raises(ValueError, match=SCALE):
            fitted.predict(X * 1e200)
        with pytest.raises(ValueError, match=SCALE):
            fitted.score(X * 1e200)
        check_valid(fitted, X)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_training_that_failed_leaves_nothing_that_looks_fitted(method: str) -> None:
    one = clustering()
    with pytest.raises(ValueError, match=SCALE):
        getattr(one, method)(X * 1e300)
    for ask in ("predict", "predict_proba", "transform", "score"):
        with pytest.raises(NotFittedError):
            getattr(one, ask)(X)
    check_valid(getattr(one, method)(X), X)


# Affinities

BAD_KERNELS: dict[str, tuple[Any, str]] = {
    "not square": (KERNEL[:, :10], "square"),
    "not a matrix": (KERNEL[0], "square"),
    "of more dimensions": (KERNEL[None], "square"),
    "of other samples": (KERNEL[:10, :10], "10 samples.*20 rows"),
    "not symmetric": (np.triu(KERNEL), "symmetric"),
    "with NaN": (np.where(np.eye(20), np.nan, KERNEL), "NaN"),
    "with infinity": (np.where(np.eye(20), np.inf, KERNEL), "infinity"),
    "with text": (KERNEL.astype(str), "kernel|number"),
    "complex": (KERNEL + 1j, "(?i)complex"),
    "features of other samples": (Features(torch.from_numpy(X[:10])), "10 samples.*20 rows"),
    "features with NaN": (Features(torch.full((20, 3), torch.nan)), "finite"),
    "features without a dimension": (Features(torch.zeros(20)), "shape"),
}
BAD_DISTANCES: dict[str, tuple[Any, str]] = {
    "not square": (DISTANCE[:, :10], "square"),
    "of other samples": (DISTANCE[:10, :10], "10 samples.*20 rows"),
    "not symmetric": (np.triu(DISTANCE), "symmetric"),
    "negative": (-DISTANCE, "negative"),
    "negative somewhere": (np.where(DISTANCE.max() == DISTANCE, -1.0, DISTANCE), "negative"),
    "with NaN": (np.where(np.eye(20), np.nan, DISTANCE), "NaN"),
    "with infinity": (np.where(DISTANCE.max() == DISTANCE, np.inf, DISTANCE), "infinity"),
    "from a sample to itself": (DISTANCE + np.eye(20), "itself"),
    "features": (Features(torch.from_numpy(X)), "distance matrix"),
}


@pytest.mark.parametrize(("name", "model", "weighted"), combinations_of(BAD_KERNELS, MODEL_NAMES, [False, True]))
def test_a_bad_kernel_matrix_is_refused(name: str, model: str, weighted: bool) -> None:
    affinity, message = BAD_KERNELS[name]
    # With a row left out the matrix is cut, which must not hide what is wrong with it.
    weight = np.r_[0, np.ones(19)] if weighted else None
    with pytest.raises((ValueError, TypeError), match=message):
        clustering(model=model, geometry="precomputed").fit(X, affinity=affinity, sample_weight=weight)


@pytest.mark.parametrize("objective", ["wasserstein_ova", "wasserstein_ovo"])
@pytest.mark.parametrize("name", BAD_DISTANCES)
def test_a_bad_distance_matrix_is_refused(name: str, objective: str) -> None:
    affinity, message = BAD_DISTANCES[name]
    with pytest.raises((ValueError, TypeError), match=message):
        clustering(objective=objective, geometry="precomputed").fit(X, affinity=affinity)


def test_a_bad_affinity_is_refused_by_score_too() -> None:
    fitted = clustering().fit(X)
    for affinity, message in BAD_KERNELS.values():
        with pytest.raises((ValueError, TypeError), match=message):
            fitted.score(X, affinity=affinity)


def test_a_sparse_affinity_is_taken_or_explained() -> None:
    try:
        fitted = clustering().fit(X, affinity=scipy.sparse.csr_array(KERNEL))
    except (ValueError, TypeError) as error:
        message = str(error)
    else:
        message = "kernel"
        assert fitted.objective_ == pytest.approx(clustering().fit(X, affinity=KERNEL).objective_)
    assert "sparse" in message or "kernel" in message


def test_a_missing_affinity_is_asked_for() -> None:
    for objective, kind in (("mmd_ova", "kernel"), ("wasserstein_ova", "distance")):
        with pytest.raises(ValueError, match=f"needs the {kind} matrix: pass it as affinity"):
            clustering(objective=objective, geometry="precomputed").fit(X)


@pytest.mark.parametrize("model", [nn.ReLU, nn.Conv2d, lambda n_features: nn.Linear(n_features, 2)])
def test_a_class_that_does_not_make_a_model_is_explained(model: Any) -> None:
    with pytest.raises(TypeError, match=r"A model is an nn\.Module, .* called with \(n_features, n_clusters\), which "):
        clustering(model=model).fit(X)
    clustering(model=nn.Linear).fit(X)


def test_an_affinity_does_not_hide_a_misspelled_geometry() -> None:
    with pytest.raises(ValueError, match=r"Unknown geometry 'rbff'\. Did you mean 'rbf'"):
        clustering(geometry="rbff").fit(X, affinity=KERNEL)
    # What the objective does not use may stay: init and grids use it.
    clustering(geometry="euclidean").fit(X, affinity=KERNEL)
    clustering(geometry="rbf", objective="mi").fit(X)


@pytest.mark.parametrize(
    "geometry",
    [
        lambda x, y: x,
        lambda x, y: (x @ y.mT).sum(),
        lambda x, y: (x @ y.mT).numpy(),
        lambda x, y: None,
        lambda x, y: (x @ y.mT)[:, :3],
    ],
)
def test_a_function_that_is_no_kernel_is_explained(geometry: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"must map \(n, d\) and \(m, d\) to an \(n, m\) tensor"):
        clustering(geometry=geometry).fit(X)


def test_a_kernel_that_is_nan_is_explained() -> None:
    with pytest.raises(ValueError, match=r"NaN|nan"):
        clustering(geometry=lambda x, y: x @ y.mT * torch.nan).fit(X)
    with pytest.raises(ValueError, match=r"NaN|nan"):
        clustering(objective="wasserstein_ova", geometry=lambda x, y: torch.cdist(x, y) * torch.nan).fit(X)


def test_negative_values_are_no_histogram() -> None:
    with pytest.raises(ValueError, match="negative"):
        clustering(geometry="chi2").fit(X)


# Names

UNKNOWN: list[tuple[dict[str, Any], Any]] = [
    ({"objective": "mmd_ov"}, GEMINIS),
    ({"objective": "rbf"}, GEMINIS),
    ({"objective": ""}, GEMINIS),
    ({"geometry": "rfb"}, KERNELS),
    ({"geometry": "euclidean"}, KERNELS),
    ({"geometry": "rbf", "objective": "wasserstein_ova"}, [*DISTANCES, "shortest_path"]),
    ({"geometry": "euclid", "objective": "wasserstein_ovo"}, [*DISTANCES, "shortest_path"]),
    ({"model": "perceptron"}, MODELS),
    ({"model": "mlp", "activation": "softsign?"}, ACTIVATIONS),
    ({"optimiser": "adamm"}, OPTIMISERS),
    ({"penalties": {"l2": 1.0}}, PENALTIES),
    ({"init": "k-means"}, ["auto", "random", "kmeans++"]),
    ({"dtype": "float16"}, ["auto", "float32", "float64"]),
]


@pytest.mark.parametrize(("parameters", "valid"), UNKNOWN, ids=[str(parameters) for parameters, _ in UNKNOWN])
def test_unknown_names_are_answered_with_the_valid_ones(parameters: dict[str, Any], valid: Any) -> None:
    with pytest.raises(ValueError, match=r"must be|needs|Unknown") as caught:
        clustering(**parameters).fit(X)
    message = str(caught.value)
    # The last parameter named is the wrong one, except where an objective only sets the scene.
    wrong = parameters.get("geometry", list(parameters.values())[-1])
    assert (next(iter(wrong)) if isinstance(wrong, dict) else repr(wrong)) in message
    assert [name for name in valid if name not in message] == []


def test_chi_square_between_clusters_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"unbounded.*hellinger_ovo"):
        clustering(objective="chi2_ovo").fit(X)


def test_columns_of_one_value_are_said_to_be_the_reason() -> None:
    with pytest.warns(CollapseWarning, match="each column of X has one value throughout"):
        GeminiClustering(2, max_epochs=2, random_state=0).fit(np.ones((30, 2)))


def test_seeds_are_for_free_tables() -> None:
    with pytest.raises(ValueError, match="free table only"):
        clustering(init="kmeans++").fit(X)


# Parameters

WRONG: list[tuple[str, Any]] = [
    *[("n_clusters", value) for value in (0, -1, 2.5, 3.0, True, False, "3", None, np.float64(2), [2])],
    *[("max_epochs", value) for value in (0, -5, 1.5, True, None, "many")],
    *[("n_init", value) for value in (0, -1, 1.0, True, None)],
    *[("batch_size", value) for value in (0, -1, 1, 2.5, True, "all")],
    *[("patience", value) for value in (0, -1, 1.5, True, "long")],
    *[("learning_rate", value) for value in (0, -0.1, float("nan"), float("inf"), "fast", None, 1j)],
    *[("tol", value) for value in (-1e-3, float("nan"), "little", None)],
    *[("hidden", value) for value in (5, (0,), (-3,), (2.5,), "abc", None)],
    *[("penalties", value) for value in (["vat"], "vat", {"vat": -1}, {"vat": float("nan")}, {"vat": "much"}, 3)],
    *[("callbacks", value) for value in (print, 3, [3], None)],
    *[("device", value) for value in ("gpu", 3.5)],
    *[("dtype", value) for value in ("int", None, np.int64)],
    *[("model", value) for value in (3, None)],
    *[("objective", value) for value in (3, None, Gemini)],
    *[("geometry", value) for value in (3, None)],
    *[("optimiser", value) for value in (3, None)],
    *[("activation", value) for value in (3, None)],
]
# How a message may speak of a parameter, where not by its name.
ALSO_CALLED = {"n_clusters": "n_clusters", "penalties": "penalt", "callbacks": "callback"}


@pytest.mark.parametrize(("name", "value"), WRONG, ids=[f"{name}={value!r}"[:60] for name, value in WRONG])
def test_a_parameter_of_the_wrong_kind_is_named(name: str, value: Any) -> None:
    # Patience brings the tolerance into play.
    parameters = {"model": "mlp", "patience": 2, name: value}
    with pytest.raises((ValueError, TypeError), match=ALSO_CALLED.get(name, name)):
        clustering(**parameters).fit(X)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", np.int32(3)),
        ("max_epochs", np.int64(2)),
        ("learning_rate", 1),
        ("learning_rate", np.float32(0.1)),
        ("learning_rate", np.float64(0.1)),
        ("batch_size", np.int64(7)),
        ("batch_size", 10_000),
        ("hidden", [4, 4]),
        ("hidden", ()),
        ("hidden", np.array([4])),
        ("tol", 0),
        ("penalties", {}),
        ("penalties", {"entropy": np.float32(0.1)}),
        ("callbacks", []),
        ("device", torch.device("cpu")),
    ],
)
def test_a_parameter_of_an_equivalent_kind_is_taken(name: str, value: Any) -> None:
    check_valid(clustering(**{"model": "mlp", name: value}).fit(X), X)


@every_model
@pytest.mark.parametrize("n_clusters", [21, 10**6, 10**12, 2**70])
def test_more_clusters_than_samples_are_refused(n_clusters: int, model: str) -> None:
    with pytest.raises(ValueError, match=r"20 sample\(s\)"):
        clustering(n_clusters, model=model).fit(X)


# Weights

BAD_WEIGHTS: dict[str, tuple[Any, str]] = {
    "negative": (np.r_[-1.0, np.ones(19)], "(?i)negative"),
    "all zero": (np.zeros(20), "(?i)zero"),
    "too few": (np.ones(19), r"(?i)sample_weight.*shape|inconsistent"),
    "too many": (np.ones(21), r"(?i)sample_weight.*shape|inconsistent"),
    "of two dimensions": (np.ones((20, 2)), "(?i)sample.weight"),
    "NaN": (np.r_[np.nan, np.ones(19)], "NaN"),
    "infinite": (np.r_[np.inf, np.ones(19)], "infinity"),
    "text": (np.full(20, "heavy"), "heavy"),
}


@pytest.mark.parametrize("method", ["fit", "score", "partial_fit"])
@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_bad_weights_are_refused(name: str, method: str) -> None:
    weight, message = BAD_WEIGHTS[name]
    one = clustering()
    if method == "score":
        one.fit(X)
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(one, method)(X, sample_weight=weight)


def test_one_row_of_weight_gives_a_valid_result() -> None:
    weight = np.r_[np.zeros(19), 1]
    for model in ("linear", "free"):
        fitted = clustering(model=model).fit(X, sample_weight=weight)
        assert fitted.labels_[-1] == 0
        assert fitted.n_clusters_ == 1
        assert np.isfinite(fitted.objective_)


# Modules


class Returns(nn.Module):
    """A linear model whose logits pass through a function."""

    def __init__(self, change: Callable[[Tensor], Any], n_outputs: int = 2) -> None:
        super().__init__()
        self.linear, self.change = nn.Linear(3, n_outputs), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.linear(x))


WRONG_OUTPUTS: dict[str, Callable[[Tensor], Any]] = {
    "one column too few": lambda logits: logits[:, :1],
    "one column too many": lambda logits: torch.cat([logits, logits[:, :1]], 1),
    "one number a row": lambda logits: logits[:, 0],
    "transposed": lambda logits: logits.mT,
    "fewer rows": lambda logits: logits[:-1],
    "one more dimension": lambda logits: logits[:, :, None],
    "a scalar": lambda logits: logits.sum(),
    "a tuple that begins with something else": lambda logits: (logits.sum(), logits),
    "a dictionary without logits": lambda logits: {"scores": logits},
    "an array": lambda logits: logits.detach().numpy(),
    "nothing": lambda logits: None,
    "whole numbers": lambda logits: logits.round().long(),
}


@pytest.mark.parametrize("n_init", [1, 2])
@pytest.mark.parametrize("name", WRONG_OUTPUTS)
def test_a_module_that_returns_no_logits_is_explained(name: str, n_init: int) -> None:
    with pytest.raises((ValueError, TypeError), match=r"(?i)the model must return.*logit"):
        clustering(model=Returns(WRONG_OUTPUTS[name]), n_init=n_init).fit(X)


@every_objective
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_module_that_returns_nan_is_explained(value: float, objective: str) -> None:
    with pytest.raises(ValueError, match="NaN"):
        clustering(model=Returns(lambda logits: logits * value), objective=objective).fit(X)
    # One row is enough to spoil the objective.
    with pytest.raises(ValueError, match="NaN"):
        clustering(model=Returns(spoil_the_first_row), objective=objective).fit(X)


def spoil_the_first_row(logits: Tensor) -> Tensor:
    return logits * torch.where(torch.arange(len(logits)) == 0, torch.nan, 1.0)[:, None]


@stopped_early_is_fine
def test_a_module_that_returns_nan_only_once_trained_is_explained() -> None:
    class NaNAfterwards(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * (1 if self.training else torch.nan)

    with pytest.raises(ValueError, match="NaN"):
        clustering(model=NaNAfterwards(3, 2)).fit(X)


def test_a_module_without_parameters_is_refused() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :2]

    frozen = nn.Linear(3, 2).requires_grad_(False)
    for module in (Nothing(), frozen):
        with pytest.raises(ValueError, match="parameter"):
            clustering(model=module).fit(X)


def test_a_function_that_makes_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must return an nn\.Module, not int"):
        clustering(model=lambda n_features, n_clusters: 3).fit(X)


def test_an_f_that_is_no_divergence_is_refused() -> None:
    with pytest.raises(ValueError, match=r"f\(1\) = 0"):
        f_divergence(lambda t: t)
    with pytest.raises(ValueError, match="same shape"):
        f_divergence(lambda t: t.sum() - 1)
    with pytest.raises(ValueError, match=r"f\(1\)"):
        f_divergence(lambda t: t * torch.nan)


@pytest.mark.parametrize("scale", [1e160, 1e300])
@pytest.mark.parametrize("recipe", [GeminiClustering.for_tables, GeminiClustering.for_images])
def test_recipes_say_that_values_are_too_large(recipe: Any, scale: float) -> None:
    with pytest.raises(InputError, match="The values of X are too large"):
        recipe(2, max_epochs=1).fit(X * scale)
    with pytest.raises(InputError, match="The values of X are too large"):
        recipe(2, max_epochs=1).fit(np.vstack([X, np.full((1, X.shape[1]), scale)]))


def test_a_feature_without_any_value_is_named() -> None:
    rows = X.astype(np.float64)
    rows[:, 1] = np.nan
    clustering = GeminiClustering(2, preprocessing=Scaling("standard", missing="mean"), max_epochs=1)
    with pytest.warns(UserWarning, match="Features without any value count as constant: 1."):
        clustering.fit(rows)


def test_bfloat16_is_read_as_float32() -> None:
    """As encoders of texts give it."""
    X = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    clustering = GeminiClustering(2, model="linear", max_epochs=3, random_state=0)
    np.testing.assert_array_equal(clustering.fit(X).labels_, clustering.fit(X.float()).labels_)
    np.testing.assert_array_equal(clustering.predict(X), clustering.labels_)


def test_adversarial_training_does_not_move_tokens() -> None:
    class Tokens(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.head(self.embedding(x).mean(1))
            return found

    clustering = GeminiClustering(2, model=Tokens(), objective="mi", penalties={"local_vat": 1.0}, max_epochs=2)
    with pytest.raises(ValueError, match="whole numbers such as tokens cannot be moved"):
        clustering.fit(np.random.default_rng(0).integers(0, 9, (20, 5)))


@pytest.mark.parametrize("texts", [["a b", "c d", "e f"], np.array(["a b", "c d", "e f"])], ids=["list", "array"])
def test_texts_are_to_become_vectors_first(texts: Any) -> None:
    with pytest.raises(InputError, match=r"pollux\.embed\(X\) gives a vector for each text"):
        GeminiClustering(2).fit(texts)


def test_dicts_of_columns_are_to_become_data_frames() -> None:
    data = pd.DataFrame(X, columns=["a", "b", "c"])
    says = r"X is a dict, which stands for several inputs of a network.*pd\.DataFrame\(X\)"
    for table in (data, data.assign(kind=["x", "y"] * 10)):
        clustering = GeminiClustering(2, model="linear", preprocessing="auto", max_epochs=1).fit(table)
        for new in (table.to_dict("list"), table.to_dict("records")[0]):
            with pytest.raises(InputError, match=says):
                clustering.predict(new)
    with pytest.raises(InputError, match=r"and 'kind' is not one.*pd\.DataFrame\(X\)"):
        GeminiClustering(2).fit(table.to_dict("list"))


def test_a_table_without_rows_is_refused_plainly() -> None:
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=["x", "y"] * 10)
    clustering = GeminiClustering(2, model="linear", preprocessing="auto", max_epochs=1).fit(table)
    with pytest.raises(ValueError, match=r"X has no rows, and thus nothing to cluster\. Found 0 sample\(s\)"):
        clustering.predict(table[:0])
