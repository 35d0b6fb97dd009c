"""Clusterings for kinds of data: raw rows in, predictions of new rows out, in files and in other programs too."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch.utils.data import DataLoader, TensorDataset

from coverings import every_other, in_full
from flat_parameters import nested
from pollux import GeminiClustering, load
from pollux import recipes as presets
from pollux.errors import InputError
from pollux.geometry import CosineGraph, Mixed, Mixtures, NeighbourGraph
from pollux.metrics import adjusted_rand_index
from pollux.spec import Spec, flatten_params
from pollux.training import starting
from small_models import quick_starts

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")

WINE, VARIETIES = load_wine(return_X_y=True)
DIGITS, NUMBERS = load_digits(return_X_y=True)
PIXELS = DIGITS[:120].astype(np.float32)
RECIPES = {"for_tables": presets.TABLES, "for_images": presets.IMAGES, "for_embeddings": presets.EMBEDDINGS}

every_recipe = pytest.mark.parametrize("name", RECIPES)


def recipe(name: str, n_clusters: int = 3, **overrides: Any) -> GeminiClustering:
    """That recipe, for less time."""
    short = {"max_epochs": 3, "n_init": 2, "trial_epochs": None, "hidden": (8,), "random_state": 0}
    make: Any = getattr(GeminiClustering, name)
    made: GeminiClustering = make(n_clusters, **nested({**short, **overrides}))
    return made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts of mixtures and steps that are not as good as they could be."""
    quick_starts(monkeypatch, steps=40)


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize(("n", "hidden"), [(None, (500, 500)), (8_000, (200, 200)), (8_001, (500, 500))])
def test_layers_for_images_are_as_wide_as_their_number_asks(
    n: int | None, hidden: tuple[int, ...], is_named: bool
) -> None:
    clustering = GeminiClustering.for_images(10) if is_named else GeminiClustering(10)
    spec = Spec.of(clustering, presets.DataKind("images", n))
    assert spec.mlp.hidden == spec.options["hidden"] == hidden
    # What was chosen in a fit holds, however many samples come later.
    assert Spec.of(clustering, presets.DataKind(None, 9), spec.chosen).mlp.hidden == hidden


def test_layers_that_were_chosen_are_in_the_file(tmp_path: Path) -> None:
    clustering = GeminiClustering.for_images(3, max_epochs=1, random_state=0).fit(PIXELS)
    clustering.save(tmp_path / "model.pollux")
    assert clone(clustering).get_params()["model__hidden"] == "auto"
    assert load(tmp_path / "model.pollux").get_params()["model__hidden"] == (200, 200)


def seed_of_fit(random_state: int) -> int:
    return int(np.random.RandomState(random_state).randint(2**31 - 1))


def with_gaps(X: NDArray[Any]) -> NDArray[Any]:
    X = X.astype(np.float64)
    X[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    return X


# --- What they are --------------------------------------------------------------------------------------------


@every_recipe
def test_recipes_are_parameters_that_overrides_replace(name: str) -> None:
    make: Any = getattr(GeminiClustering, name)
    model = make(4, max_epochs=7)
    # The name of a model becomes the group that it stands for.
    expected = {**RECIPES[name], "n_clusters": 4, "max_epochs": 7}
    del expected["model"]
    assert {key: model.get_params()[key] for key in expected} == expected
    Spec.of(model.set_params(training__trial_epochs=None))
    assert make().n_clusters == 10
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        make(colour=1)


@every_recipe
def test_changes_of_a_clustering_do_not_change_its_recipe(name: str) -> None:
    before = copy.deepcopy(RECIPES[name])
    model = getattr(GeminiClustering, name)()
    if isinstance(model.penalties, dict):
        model.penalties["entropy"] = 5.0
    model.set_params(objective="mi", n_init=9)
    assert RECIPES[name] == before
    assert getattr(GeminiClustering, name)().penalties == before.get("penalties", "auto")


class Own(GeminiClustering):
    """Of a user, who may add to it."""


@every_recipe
def test_recipes_make_the_class_they_are_asked_of(name: str) -> None:
    assert type(getattr(Own, name)(3)) is Own


@every_recipe
def test_recipes_are_estimators_of_scikit_learn(name: str) -> None:
    model = recipe(name)
    again = clone(model)
    assert again is not model
    assert repr(again.get_params()) == repr(model.get_params())
    rows = WINE[:60]
    again.set_params(geometry=NeighbourGraph(neighbours=5), preprocessing__scaling="standard").fit(rows)
    assert again.geometry == NeighbourGraph(neighbours=5)
    pipeline = make_pipeline(MinMaxScaler(), model).fit(rows)
    assert pipeline.predict(WINE).shape == (178,)
    assert pickle.loads(pickle.dumps(model.fit(rows))).predict(rows).tolist() == model.labels_.tolist()


def test_a_grid_may_try_scalings() -> None:
    grid = {"preprocessing__scaling": ["standard", "global"]}
    search = GridSearchCV(recipe("for_tables", n_init=1), grid, cv=2).fit(WINE[:40])
    assert search.best_params_["preprocessing__scaling"] in ("standard", "global")


# --- Raw rows -------------------------------------------------------------------------------------------------


def test_tables_are_found_whatever_their_units() -> None:
    X = load_iris().data
    # Powers of two: not a digit is rounded otherwise.
    wild = X * [2.0**40, 2.0**-30, 2.0**20, 1.0]
    found = recipe("for_tables", scaling="standard").fit(wild)
    expected = recipe("for_tables", scaling="standard").fit(X)
    assert adjusted_rand_index(found.labels_, expected.labels_) == 1
    np.testing.assert_allclose(found.predict_proba(wild), expected.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("unit", [1e-150, 1e150])
def test_tables_in_units_that_float32_cannot_hold(unit: float) -> None:
    model = recipe("for_tables", n_init=1, max_epochs=20).fit(WINE * unit)
    assert adjusted_rand_index(VARIETIES, model.labels_) > 0.7


def test_tables_of_wine_are_found_with_gaps_and_new_rows_predicted() -> None:
    X = with_gaps(WINE)
    model = recipe("for_tables", n_init=1, max_epochs=20).fit(X[::2])
    assert adjusted_rand_index(VARIETIES[::2], model.labels_) > 0.7
    assert adjusted_rand_index(VARIETIES[1::2], model.predict(X[1::2])) > 0.7
    np.testing.assert_array_equal(model.predict(X[::2]), model.labels_)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1, rtol=1e-5)


def test_dates_as_seconds_tell_rows_apart() -> None:
    # In seconds since 1970 float32 tells apart what is two minutes apart.
    second = 1.7e9 + np.r_[np.linspace(0, 60, 40), np.linspace(200, 260, 40)]
    model = recipe("for_tables", 2, n_init=1, max_epochs=20).fit(np.stack([second, second], 1))
    assert adjusted_rand_index(np.repeat([0, 1], 40), model.labels_) == 1


def test_data_frames_keep_the_names_of_their_columns() -> None:
    frame = pd.DataFrame(with_gaps(WINE), columns=load_wine().feature_names)
    model = recipe("for_tables").fit(frame)
    assert list(model.feature_names_in_) == load_wine().feature_names
    np.testing.assert_array_equal(model.predict(frame), model.labels_)


@pytest.mark.parametrize("shape", [(-1, 64), (-1, 1, 8, 8)])
def test_images_are_found_in_either_shape(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_FEWEST_STEPS", 100)
    # Of three digits that are told apart easily, in few steps of a small network.
    chosen = np.isin(NUMBERS, (0, 4, 6))
    X, classes = DIGITS[chosen][:200].reshape(shape), NUMBERS[chosen][:200]
    model = recipe("for_images", n_init=1, max_epochs=5, hidden=(20,), n_components=20, batch_size=100).fit(X)
    assert adjusted_rand_index(classes, model.labels_) > 0.8
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_pixels_of_every_type_are_the_same_images() -> None:
    # Of as many digits as clusters: where others would do as well, rounding chooses between starts.
    pixels = DIGITS[np.isin(NUMBERS, (0, 4, 6))][:120]
    models = [recipe("for_images").fit(pixels.astype(kind)) for kind in (np.uint8, np.float32, np.int64)]
    for model in models[1:]:
        np.testing.assert_allclose(model.predict_proba(pixels), models[0].predict_proba(pixels), atol=1e-2)


@every_recipe
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    one, other = (recipe(name, trial_epochs=1).fit(WINE) for _ in range(2))
    assert one.history_ == other.history_
    np.testing.assert_array_equal(one.predict_proba(WINE), other.predict_proba(WINE))


@every_recipe
def test_recipes_go_on_in_parts(name: str) -> None:
    model = recipe(name, 2).partial_fit(WINE[:100]).partial_fit(WINE[100:])
    assert model.predict(WINE).shape == (178,)
    assert model.n_iter_ == 2


@every_recipe
@pytest.mark.parametrize("most", [100, 1000])
def test_files_are_read_as_they_are_needed(name: str, most: int, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", WINE)
    model = recipe(name, max_samples=most).fit(tmp_path / "rows.npy")
    np.testing.assert_array_equal(model.labels_, model.predict(WINE.astype(np.float32)))
    assert (np.diff(np.bincount(model.labels_)) <= 0).all()


@every_recipe
def test_streams_are_refused_with_all_that_stands_in_their_way(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", WINE)
    # Of a file, rows are scaled as they are read.
    with pytest.raises(InputError, match=r"and (n_components=100 and )?init=.* must look at all.*max_samples=20000"):
        recipe(name, max_samples=None).fit(tmp_path / "rows.npy")
    with pytest.raises(InputError, match=r"scaling='.*' and .* must look at all of them: .*max_samples=20000"):
        recipe(name, max_samples=None).fit(DataLoader(TensorDataset(torch.as_tensor(WINE)), batch_size=50))


@every_recipe
def test_of_many_rows_some_are_learned_from_and_all_are_labelled(name: str) -> None:
    weight = np.r_[np.ones(140), np.full(20, 3.0), np.zeros(18)]
    model = recipe(name, max_samples=60, scaling="standard", n_components=None).fit(WINE, sample_weight=weight)
    np.testing.assert_array_equal(model.labels_, model.predict(WINE))
    # Clusters are in order of all rows, by their weights.
    assert (np.diff(np.bincount(model.labels_, weight)) <= 0).all()
    drawn = np.sort(np.random.default_rng(seed_of_fit(0)).choice(160, 60, replace=False))
    assert model.scaling_ is not None
    np.testing.assert_allclose(model.scaling_.centre, np.average(WINE[drawn], axis=0, weights=weight[drawn]))
    few = recipe(name, max_samples=2).fit(WINE[:9])
    assert few.labels_.shape == (9,)


def test_a_free_table_learns_from_all_rows() -> None:
    assert (recipe("for_tables", model="free", max_samples=20).fit(WINE[:40]).labels_ >= 0).all()


# --- Files ----------------------------------------------------------------------------------------------------


SAVED: dict[str, tuple[str, dict[str, Any], NDArray[Any]]] = {
    "tables": ("for_tables", {}, with_gaps(WINE)),
    "images": ("for_images", {}, PIXELS.reshape(-1, 1, 8, 8)),
    "pixels": ("for_images", {"n_components": 10, "trial_epochs": 1}, PIXELS),
    "a graph": ("for_tables", {"geometry": "graph"}, WINE),
    "a graph with parameters": (
        "for_tables",
        {"geometry": NeighbourGraph(neighbours=5, weights="self_tuning", diffusion=2.0)},
        WINE,
    ),
    "mixed": ("for_tables", {"geometry": Mixed(share=0.2), "model": "linear"}, WINE),
    "mixtures": ("for_tables", {"geometry": Mixtures(neighbours=(5,), components=4)}, WINE),
    "embeddings": ("for_embeddings", {"geometry": CosineGraph(neighbours=5)}, PIXELS),
    "gaps only": ("for_tables", {"scaling": "none", "n_init": 1}, with_gaps(load_iris().data)),
    "a free table": ("for_tables", {"model": "free"}, WINE),
}


@pytest.mark.parametrize("case", every_other(SAVED))
def test_files_give_back_every_bit(case: str, tmp_path: Path) -> None:
    name, options, X = SAVED[case]
    model = recipe(name, **options).fit(X)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert again.stability_ == model.stability_
    assert again.history_ == model.history_
    assert again.geometry_ == model.geometry_
    for key in ("scaling", "n_components", "missing", "norm", "schedule", "init", "trial_epochs", "n_init"):
        assert flatten_params(again)[key] == flatten_params(model)[key]
    assert model.scaling_ is not None
    assert again.scaling_ is not None
    kept, found = model.scaling_.tensors(), again.scaling_.tensors()
    assert kept.keys() == found.keys()
    assert all(torch.equal(kept[key], found[key]) for key in kept)
    if case == "a free table":
        np.testing.assert_array_equal(again.probabilities_, model.probabilities_)
        return
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.score(X) == model.score(X)
    assert again.fit(X).labels_.shape == (len(X),)


def test_a_scaling_of_other_rows_is_not_saved(tmp_path: Path) -> None:
    model = recipe("for_tables").fit(WINE)
    assert model.scaling_ is not None
    wrong: dict[str, Any] = {"centre": torch.zeros(5), "scale": torch.ones(4), "axes": torch.ones(5, 2)}
    for name, value in {**wrong, "fill": torch.zeros(3)}.items():
        damaged = copy.copy(model)
        scaling = type(model.scaling_)(**{**model.scaling_.tensors(), name: value})
        damaged.fitted_ = replace(model.fitted_, scaling=scaling)
        with pytest.raises(ValueError, match="of the scaling is of other samples"):
            damaged.save(tmp_path / name)


# --- Other programs -------------------------------------------------------------------------------------------


EXPORTED: dict[str, tuple[str, dict[str, Any], NDArray[Any]]] = {
    "tables": ("for_tables", {}, with_gaps(WINE)),
    "tables in wild units": ("for_tables", {}, WINE * np.logspace(-9, 9, 13) + 1e9),
    "double precision": ("for_tables", {"dtype": "float64"}, with_gaps(WINE)),
    "gaps only": ("for_tables", {"scaling": "none"}, with_gaps(load_iris().data)),
    "pixels": ("for_images", {"n_components": 10}, PIXELS),
    "images": ("for_images", {"n_components": None}, PIXELS.reshape(-1, 1, 8, 8)),
    "components of images": ("for_images", {"n_components": 10, "norm": None}, PIXELS.reshape(-1, 1, 8, 8)),
}


@pytest.mark.parametrize("case", EXPORTED)
def test_other_programs_find_the_same_probabilities(case: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from pollux.io.onnx import to_onnx

    name, options, X = EXPORTED[case]
    model = recipe(name, **options).fit(X)
    to_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (asked,) = session.get_inputs()
    kind = np.float32 if asked.name == "images" else np.float64
    found = session.run(["probabilities", "cluster"], {asked.name: X.astype(kind)})
    np.testing.assert_allclose(found[0], model.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(found[1], model.labels_)
    assert session.get_modelmeta().custom_metadata_map["missing"] == model.fitted_.missing


# --- Conventions ----------------------------------------------------------------------------------------------


SCALED = GeminiClustering(
    3, model="linear", objective="mmd_ova", preprocessing="auto", max_epochs=20, learning_rate=0.05, random_state=0
)


@in_full
@parametrize_with_checks([SCALED])
def test_every_check_of_scikit_learn_passes_with_a_scaling(estimator: GeminiClustering, check: Any) -> None:
    check(estimator)


@every_recipe
def test_what_replaces_parts_of_a_recipe_is_not_copied(name: str) -> None:
    class Recorder:
        def __call__(self, epoch: Any) -> None:
            pass

    recorder, state = Recorder(), np.random.RandomState(0)
    made = recipe(name, callbacks=[recorder], random_state=state)
    assert made.callbacks[0] is recorder
    assert made.random_state is state


def test_recipes_share_nothing_that_can_be_changed() -> None:
    made = GeminiClustering.for_images(3)
    made.penalties["vat"] = 1.0
    assert GeminiClustering.for_images(3).penalties == presets.IMAGES["penalties"] != made.penalties


@pytest.mark.parametrize("kind", ["rim", "kernel_rim"])
def test_regularised_information_maximisation_finds_blobs(kind: str) -> None:
    random, y = np.random.default_rng(0), np.arange(150) % 3
    X = random.normal(size=(150, 2)) + 8 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    clustering = getattr(GeminiClustering, kind)(3, n_init=3, max_epochs=150, random_state=0).fit(X)
    assert adjusted_rand_score(y, clustering.labels_) > 0.95
    assert clustering.predict(X[:5]).tolist() == clustering.labels_[:5].tolist()
    # A stronger penalty keeps weights smaller.
    strong = getattr(GeminiClustering, kind)(
        3, penalties={"weight_decay": 0.1}, n_init=3, max_epochs=150, random_state=0
    ).fit(X)
    first, second = (dict(each.module_.named_parameters()) for each in (strong, clustering))
    name = "weight" if kind == "rim" else "linear.weight"
    assert first[name].norm() < second[name].norm()
