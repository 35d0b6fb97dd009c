"""Scalings and principal components: scikit-learn, and laws; in the estimator too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from flat_parameters import make_clustering
from pollux import GeminiClustering, geometry, load
from pollux.data.encoding import UnseenWarning
from pollux.data.rows import Rows
from pollux.data.scaling import FittedScaling, prepared
from pollux.names import SCALINGS

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")

Array = NDArray[np.float64]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def with_gaps(*shape: int, share: float = 0.2) -> Array:
    X = normal(*shape)
    X[np.random.default_rng(1).random(shape) < share] = np.nan
    return X


WILD = normal(60, 4) * [1e6, 1e-6, 3.0, 100.0] + [1e9, 0.0, -5.0, 1e4]


def apply(scaling: FittedScaling, X: Any) -> Array:
    return scaling(torch.as_tensor(X, dtype=torch.float64)).numpy()


# --- Scalings -------------------------------------------------------------------------------------------------


def test_standard_scaling_is_that_of_scikit_learn() -> None:
    X = with_gaps(50, 4) * [1, 10, 1e5, 1e-5] + 7
    expected = np.where(np.isnan(X), 0, StandardScaler().fit_transform(X))
    np.testing.assert_allclose(apply(FittedScaling.fit(X, "standard"), X), expected, rtol=1e-9, atol=1e-9)


def test_global_scaling_keeps_proportions() -> None:
    X = normal(50, 4) * [1, 2, 3, 4] + 7
    scaled = apply(FittedScaling.fit(X, "global"), X)
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-12)
    assert scaled.var(0).mean() == pytest.approx(1)
    np.testing.assert_allclose(scaled.std(0) / scaled.std(0)[0], X.std(0) / X.std(0)[0])


def test_no_scaling_leaves_values_as_they_are_and_fills_gaps() -> None:
    X = with_gaps(30, 3) + 9
    np.testing.assert_allclose(apply(FittedScaling.fit(X, "none"), X), SimpleImputer().fit_transform(X), rtol=1e-12)


@pytest.mark.parametrize(
    ("X", "kind"),
    [
        (np.random.default_rng(0).uniform(size=(40, 5)), "global"),
        (np.random.default_rng(0).integers(0, 256, (40, 1, 3, 3)), "global"),
        (WILD, "standard"),
        (normal(40, 3) * [1, 1, 100], "standard"),
        (np.zeros((10, 3)), "global"),
        (np.where(np.arange(5) < 4, np.random.default_rng(0).uniform(size=(40, 5)), 0), "global"),
    ],
)
def test_scaling_auto_looks_at_the_ranges_of_features(X: Any, kind: str) -> None:
    found, expected = FittedScaling.fit(X, "auto"), FittedScaling.fit(X, kind)
    torch.testing.assert_close(found.scale, expected.scale, rtol=0, atol=0)
    assert found.scale.ndim == (0 if kind == "global" else len(np.shape(X)) - 1)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("value", [0.0, 0.1, 1e9, -1e-9, 1e150])
def test_constant_features_become_zeros_and_not_noise(scaling: str, value: float) -> None:
    X = np.stack([np.full(50, value), normal(50)], 1)
    scaled = apply(FittedScaling.fit(X, scaling), X)
    assert np.isfinite(scaled).all()
    if scaling != "none":
        assert not scaled[:, 0].any()


@pytest.mark.parametrize("scaling", ["auto", "standard", "global"])
@pytest.mark.parametrize("unit", [1e-150, 1e-9, 1e150])
def test_scalings_know_no_unit_and_no_shift(scaling: str, unit: float) -> None:
    X = normal(50, 3) * [1, 2, 9]
    moved = (X + 5) * unit
    np.testing.assert_allclose(
        apply(FittedScaling.fit(moved, scaling), moved), apply(FittedScaling.fit(X, scaling), X), atol=1e-9
    )


@pytest.mark.parametrize("scaling", ["standard", "global", "none"])
def test_components_are_those_of_scikit_learn(scaling: str) -> None:
    X = normal(60, 8) * np.arange(1, 9) + 2
    found = FittedScaling.fit(X, scaling, 3)
    plain = FittedScaling.fit(X, scaling)
    expected = PCA(3).fit_transform(apply(plain, X))
    assert found.shape == (3,)
    np.testing.assert_allclose(np.abs(apply(found, X)), np.abs(expected), atol=1e-8)


@pytest.mark.parametrize("n_components", [None, 12, 20])
def test_rows_keep_their_shape_where_no_dimension_is_lost(n_components: int | None) -> None:
    found = FittedScaling.fit(normal(20, 1, 3, 4), "global", n_components)
    assert found.shape == (1, 3, 4)
    assert found.axes is None


def test_components_of_images_and_of_sparse_rows() -> None:
    X = np.where(normal(30, 12, seed=1) > 0, normal(30, 12), 0)
    expected = apply(FittedScaling.fit(X, "global", 2), X)
    for stored in (X.reshape(30, 1, 3, 4), scipy.sparse.csr_array(X)):
        rows = prepared(stored, FittedScaling.fit(stored, "global", 2), torch.float64, "cpu")
        np.testing.assert_allclose(rows[torch.arange(30)], expected, atol=1e-9)
        assert rows.shape == (2,)


def test_all_of_a_scaling_is_in_its_tensors() -> None:
    X = with_gaps(30, 5)
    for scaling in (FittedScaling.fit(X, "standard"), FittedScaling.fit(X, "none"), FittedScaling.fit(X, "auto", 2)):
        again = FittedScaling(**scaling.tensors())
        np.testing.assert_array_equal(apply(again, X), apply(scaling, X))


def test_new_rows_are_not_seen_along_directions_that_the_data_do_not_have() -> None:
    X = np.tile(normal(40, 2), 3)
    scaling = FittedScaling.fit(X, "standard", 4)
    assert scaling.shape == (2,)
    assert apply(scaling, normal(7, 6)).shape == (7, 2)


# --- Rows that are prepared -----------------------------------------------------------------------------------


def test_rows_are_scaled_before_digits_are_dropped() -> None:
    # Seconds since 1970: float32 tells those of two minutes apart and no less.
    X = 1.7e9 + np.arange(100.0)[:, None]
    for stored in (X, X.astype(np.int64), scipy.sparse.csr_array(X)):
        rows = prepared(stored, FittedScaling.fit(stored, "standard"), torch.float32, "cpu")
        found = rows[torch.arange(100)]
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found, StandardScaler().fit_transform(X), rtol=1e-5, atol=1e-6)


def test_rows_too_large_for_float32_are_scaled_in_time() -> None:
    X = normal(20, 2) * 1e150
    found = prepared(X, FittedScaling.fit(X), torch.float32, "cpu")[torch.arange(20)]
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16, np.int64, np.float32, np.float64, bool])
def test_rows_of_every_type_are_scaled(kind: Any) -> None:
    X = np.random.default_rng(0).integers(0, 2, (20, 3)).astype(kind)
    found = prepared(X, FittedScaling.fit(X), torch.float32, "cpu")[torch.arange(20)]
    np.testing.assert_allclose(found.std(0, correction=0).square().mean(), 1, rtol=1e-5)


def test_flat_rows_are_those_that_are_seen() -> None:
    X = normal(10, 1, 2, 3)
    rows = prepared(X, FittedScaling.fit(X), torch.float32, "cpu")
    np.testing.assert_array_equal(rows.flat(), rows[torch.arange(10)].flatten(1))
    np.testing.assert_array_equal(Rows(X).flat(), X.reshape(10, 6))
    sparse = scipy.sparse.csr_array(X.reshape(10, 6))
    assert scipy.sparse.issparse(Rows(sparse).flat())
    np.testing.assert_array_equal(Rows(sparse, prepare=lambda x: 2 * x).flat(), 2 * X.reshape(10, 6))
    assert rows.shape == (1, 2, 3)


# --- In the estimator -----------------------------------------------------------------------------------------


def small(n_clusters: int = 3, **parameters: Any) -> GeminiClustering:
    return make_clustering(n_clusters, **{"model": "linear", "max_epochs": 10, "random_state": 0, **parameters})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scaling_inside_is_scaling_outside(dtype: str) -> None:
    outside = StandardScaler().fit_transform(WILD)
    inside, expected = small(scaling="standard", dtype=dtype).fit(WILD), small(dtype=dtype).fit(outside)
    tolerance = 1e-3 if dtype == "float32" else 1e-8
    np.testing.assert_allclose(inside.predict_proba(WILD), expected.predict_proba(outside), atol=tolerance)
    assert inside.score(WILD) == pytest.approx(expected.score(outside), rel=1e-3)


def test_missing_values_are_means_inside_as_outside() -> None:
    X = with_gaps(60, 4) + 3
    outside = SimpleImputer().fit(X)
    inside = small(missing="mean", geometry="cosine").fit(X)
    expected = small(geometry="cosine").fit(outside.transform(X))
    new = with_gaps(20, 4, share=0.5) + 3
    # Each row has a value.
    new[:, 0] = 3
    np.testing.assert_allclose(inside.predict_proba(new), expected.predict_proba(outside.transform(new)), atol=1e-9)


def test_missing_values_are_refused_unless_they_are_asked_for() -> None:
    X = with_gaps(60, 4)
    with pytest.raises(ValueError, match="NaN"):
        small(scaling="auto").fit(X)
    model = small(missing="mean").fit(X)
    with pytest.warns(UnseenWarning, match="1 row has no value in any column"):
        assert model.predict(np.full((1, 4), np.nan)).shape == (1,)
    with pytest.raises(ValueError, match="infinity"):
        model.predict([[np.inf, 0, 0, 0]])
    assert model.__sklearn_tags__().input_tags.allow_nan
    assert not small().__sklearn_tags__().input_tags.allow_nan


def test_a_column_of_gaps_and_a_constant_one_say_nothing() -> None:
    X = normal(60, 2)
    X[:30] += 4
    more = np.column_stack([X, np.full(60, np.nan), np.full(60, 1e9)])
    one, other = small(2, scaling="standard").fit(X), small(2, scaling="standard", missing="mean")
    with pytest.warns(UserWarning, match="Features without any value count as constant: 2"):
        other.fit(more)
    assert set(one.labels_) == set(other.labels_) == {0, 1}
    changed = more.copy()
    changed[:, 2] = np.nan
    np.testing.assert_array_equal(other.predict(changed), other.labels_)


def test_weights_are_copies_for_scalings_too() -> None:
    X, weight = normal(40, 6) * 9 + 5, np.random.default_rng(0).integers(0, 4, 40)
    for options in ({"scaling": "standard"}, {"scaling": "global", "n_components": 3}):
        weighted = small(**options).fit(X, sample_weight=weight)
        copied = small(**options).fit(np.repeat(X, weight, 0))
        np.testing.assert_allclose(weighted.predict_proba(X), copied.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("stored", ["csr", "frame", "images", "float32"])
def test_scaled_rows_of_every_storage(stored: str) -> None:
    X = np.where(normal(40, 6, seed=1) > 0, normal(40, 6), 0) * 50
    given: Any = {
        "csr": scipy.sparse.csr_array(X),
        "frame": pd.DataFrame(X, columns=list("abcdef")),
        "images": X.reshape(40, 1, 2, 3),
        "float32": X.astype(np.float32),
    }[stored]
    expected = small(scaling="global", dtype="float64").fit(X)
    found = small(scaling="global", dtype="float64").fit(given)
    np.testing.assert_allclose(found.transform(given), expected.transform(X), atol=1e-5)


def test_partial_fit_keeps_the_scaling_of_its_first_rows() -> None:
    model = small(scaling="standard").partial_fit(WILD)
    scaling = model.scaling_
    model.partial_fit(WILD[:20] * 3)
    assert model.scaling_ is scaling
    assert small().fit(WILD[:, :2]).scaling_ is None


def test_components_that_are_left_decide_on_the_network(tmp_path: Path) -> None:
    X = normal(40, 12)
    model = small(n_components=4).fit(X)
    assert model.module_.weight.shape == (3, 4)
    assert model.n_features_in_ == 12
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :4])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"scaling": "x"}, "Unknown scaling 'x'. Valid names: none, auto, standard, global"),
        ({"scaling": None}, "Unknown scaling None"),
        ({"missing": "drop"}, "Unknown missing 'drop'. Valid names: error, mean"),
        ({"n_components": 0}, "n_components must be a positive integer, not 0"),
        ({"n_components": 0.5}, "n_components must be a positive integer, not 0.5; or None"),
        ({"n_clusters": "three"}, "n_clusters must be a positive integer, not 'three'; or 'auto'"),
        ({"max_samples": 0.5}, "max_samples must be a positive integer, not 0.5; or 'auto' or None"),
        ({"model": "mlp", "norm": "layer"}, "norm is one of None, 'batch'; not 'layer'"),
        ({"schedule": "linear"}, "Unknown schedule 'linear'. Valid names: constant, cosine"),
        ({"init": "pca"}, "Unknown init 'pca'. Valid names: auto, random, "),
        ({"init": "kmeans++"}, "starts a free table only; for a network, use kmeans or graph"),
        ({"trial_epochs": 10, "max_epochs": 10}, r"trial_epochs=10\) leaves none"),
        ({"trial_epochs": 0}, "trial_epochs must be a positive integer, not 0"),
        ({"max_epochs": "long"}, "max_epochs must be a positive integer, not 'long'"),
    ],
)
def test_bad_parameters_are_named_with_what_is_valid(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**parameters).fit(normal(20, 2))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"init": "graph"}, "init='graph' must look at all of them: .*as recipes do"),
        ({"init": "kmeans", "scaling": "auto"}, "and init='kmeans' must look"),
        ({"n_components": 2, "scaling": "standard"}, "and n_components=2 must look"),
        ({"penalties": {"entropy": 0.1, "local_vat": 1.0}}, "the penalty 'local_vat' must look"),
        ({"geometry": "graph"}, "geometry='graph' must look at all of them: choose geometry='auto'; "),
        ({"geometry": "mixtures"}, "or hold all in memory \\(pass an array\\)"),
    ],
)
def test_what_must_see_all_rows_is_refused_for_streams(
    tmp_path: Path, parameters: dict[str, Any], message: str
) -> None:
    np.save(tmp_path / "rows.npy", normal(40, 4))
    with pytest.raises(ValueError, match=message):
        small(**parameters).fit(tmp_path / "rows.npy")


def test_geometries_see_the_scaled_rows() -> None:
    model = small(scaling="standard", geometry="rbf", dtype="float64").fit(WILD)
    expected = geometry.resolve("rbf").adapt(StandardScaler().fit_transform(WILD))
    assert model.geometry_.parameters == pytest.approx(expected.parameters)  # type: ignore[union-attr, attr-defined]
