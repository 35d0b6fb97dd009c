"""Parameters in groups: reached by their names, cloned, printed and pickled as scikit-learn's users expect."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import get_tags

from pollux import MLP, Gemini, GeminiClustering, KernelModel, LeNet5, ResNet18, Scaling, SoftTree, Training, load
from pollux.errors import InputError
from pollux.io.onnx import to_onnx
from pollux.spec import GROUPS, Spec, flatten_params, nested_name, number_features

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")

random = np.random.default_rng(0)
X = np.concatenate([random.normal(size=(20, 3)), random.normal(size=(20, 3)) + 6])
KINDS = {"model": MLP, "preprocessing": Scaling, "training": Training}


def clustering(**parameters: Any) -> GeminiClustering:
    return GeminiClustering(2, **{"preprocessing": None, "max_epochs": 3, "n_init": 1, "random_state": 0, **parameters})


def test_there_are_few_parameters() -> None:
    assert len(inspect.signature(GeminiClustering).parameters) == 16
    assert tuple(KINDS) == GROUPS


@pytest.mark.parametrize("group", KINDS)
def test_the_parameters_of_a_bare_estimator_include_those_of_groups(group: str) -> None:
    found = GeminiClustering(preprocessing=None).get_params()
    for name, value in KINDS[group]().get_params().items():
        assert found[f"{group}__{name}"] == value
        assert nested_name(name) == f"{group}__{name}"
    assert f"{group}__{name}" not in GeminiClustering().get_params(deep=False)


def test_names_of_parameters_are_unique_so_that_each_can_be_said_alone() -> None:
    names = [name for kind in KINDS.values() for name in kind().get_params()]
    flat = [name for name in GeminiClustering().get_params(deep=False) if name not in ("preprocessing", "training")]
    assert len({*names, *flat}) == len(names) + len(flat)
    for model in ("mlp", "linear"):
        assert set(flatten_params(GeminiClustering(model=model))) == {*names, *flat}
    assert nested_name("n_init") == "n_init"


def test_setting_a_parameter_makes_the_group_that_a_short_form_stands_for() -> None:
    one = GeminiClustering().set_params(model__hidden=(5,), training__patience=2, preprocessing__scaling="standard")
    assert isinstance(one.model, MLP)
    assert one.model.hidden == (5,)
    assert one.training.patience == 2
    assert one.preprocessing.scaling == "standard"
    assert GeminiClustering(preprocessing="global").set_params(preprocessing__missing="mean").get_params()[
        "preprocessing__scaling"
    ] == ("global")
    assert GeminiClustering(model="linear").set_params(model="mlp", model__norm="batch").model.norm == "batch"
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        GeminiClustering().set_params(training__colour=1)
    with pytest.raises(ValueError, match="model='linear' has no parameter 'hidden'"):
        GeminiClustering(model="linear").set_params(model__hidden=(5,))
    with pytest.raises(ValueError, match="training=3 has no parameter 'patience'"):
        GeminiClustering(training=3).set_params(training__patience=5)


def test_groups_are_cloned_printed_and_pickled() -> None:
    one = clustering(model=MLP(hidden=(4,)), training=Training(patience=2), preprocessing=Scaling("standard"))
    other = clone(one)
    assert other.training is not one.training
    assert flatten_params(other) == flatten_params(one)
    other.set_params(training__patience=9)
    assert one.training.patience == 2
    assert "training=Training(patience=2)" in " ".join(repr(one).split())
    again = pickle.loads(pickle.dumps(one.fit(X)))
    assert (again.predict(X) == one.labels_).all()
    assert flatten_params(again) == flatten_params(one)


def test_a_grid_search_reaches_the_groups_of_a_bare_estimator() -> None:
    grid = {"training__optimiser": ["adam", "sgd"], "model__hidden": [(3,), (4,)], "preprocessing__scaling": ["none"]}
    search = GridSearchCV(clustering(), grid, cv=2).fit(X)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_.model.hidden in [(3,), (4,)]
    pipeline = make_pipeline(StandardScaler(), clustering())
    assert "geminiclustering__training__tol" in pipeline.get_params()


def test_a_spec_is_frozen_and_resolved() -> None:
    spec = Spec.of(clustering(objective="mi", penalties={"entropy": 0.5}))
    assert spec.objective.name == "kl_ova"
    assert spec.penalties[0][1] == 0.5
    assert spec.model == "mlp"
    with pytest.raises(AttributeError):
        spec.n_clusters = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"training": 3}, r"training is a Training\(…\) or None, not 3"),
        ({"preprocessing": 3}, "preprocessing is None, a name .* or a transformer, not 3"),
        ({"preprocessing": StandardScaler}, "or a transformer, not <class"),
        ({"preprocessing": "centred"}, "Unknown preprocessing 'centred'. Valid names: none, auto"),
        ({"training": Training(tol=-1)}, "tol must be a number of at least 0"),
        ({"model": MLP(hidden=5)}, "hidden is a sequence"),  # type: ignore[arg-type]
        ({"preprocessing": Scaling(n_components=0)}, "n_components must be a positive integer"),
    ],
)
def test_groups_are_checked(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        clustering(**parameters).fit(X)


def test_a_name_of_a_scaling_is_a_preprocessing() -> None:
    named, grouped = clustering(preprocessing="standard").fit(X), clustering(preprocessing=Scaling("standard")).fit(X)
    assert named.objective_ == grouped.objective_
    assert named.scaling_ is not None


# Transformers of scikit-learn


def test_a_transformer_is_cloned_fitted_and_used_on_new_samples() -> None:
    transformer = PCA(2, random_state=0)
    one = clustering(model="linear", preprocessing=transformer).fit(X)
    assert not hasattr(transformer, "components_")
    assert one.module_.in_features == 2 if isinstance(one.module_, torch.nn.Linear) else True
    other = clustering(model="linear").fit(PCA(2, random_state=0).fit_transform(X))
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(PCA(2, random_state=0).fit_transform(X)))
    assert one.score(X) == pytest.approx(other.score(PCA(2, random_state=0).fit_transform(X)))
    assert one.n_features_in_ == 3
    with pytest.raises(ValueError, match="is expecting 3 features"):
        one.predict(X[:, :2])


def test_a_pipeline_that_fills_gaps_is_a_preprocessing_too() -> None:
    gaps = X.copy()
    gaps[::7, 1] = np.nan
    one = clustering(preprocessing=make_pipeline(SimpleImputer(), StandardScaler())).fit(gaps)
    assert np.isfinite(one.predict_proba(gaps)).all()
    weighted = clustering(preprocessing=StandardScaler()).fit(X, sample_weight=np.arange(len(X)))
    assert len(weighted.labels_) == len(X)


def test_a_transformer_may_return_sparse_samples() -> None:
    counts = random.poisson(1.0, size=(30, 6)).astype(np.float64) + np.eye(30, 6)
    assert clustering(preprocessing=TfidfTransformer()).fit(counts).n_clusters_ >= 1


def test_what_a_transformer_cannot_do_is_said(tmp_path: Path) -> None:
    one = clustering(preprocessing=StandardScaler()).fit(X)
    with pytest.raises(InputError, match="cannot hold a transformer"):
        one.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with pytest.raises(InputError, match="cannot be exported"):
        to_onnx(one, tmp_path / "model.onnx")
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    with pytest.raises(InputError, match="must look at all of them"):
        clustering(model="linear", preprocessing=StandardScaler()).fit(tmp_path / "X.npy")


# Recipes


@pytest.mark.parametrize("objective", ["mmd_ovo", "mmd_ova", Gemini("mmd_ovo"), Gemini("mmd_ova", clip=1e-9)])
def test_a_recipe_keeps_its_kernel_for_every_objective_that_needs_one(objective: Any) -> None:
    assert GeminiClustering.for_tables(3, objective=objective).geometry == "mixtures"


@pytest.mark.parametrize("objective", ["mi", "wasserstein_ova", Gemini("tv_ovo")])
def test_other_objectives_do_not_take_the_kernel_of_a_recipe(objective: Any) -> None:
    assert GeminiClustering.for_tables(3, objective=objective).geometry == "auto"


def test_overrides_of_a_recipe_replace_a_part_of_a_group_or_all_of_it() -> None:
    part = GeminiClustering.for_tables(3, training__dtype="float64")
    assert (part.training.dtype, part.training.schedule) == ("float64", "cosine")
    whole = GeminiClustering.for_tables(3, training=Training(dtype="float64"))
    assert (whole.training.dtype, Spec.of(whole).training.schedule) == ("float64", "constant")
    assert GeminiClustering.for_tables(3, model="linear").model == "linear"


def test_groups_come_back_from_files(tmp_path: Path) -> None:
    one = clustering(model=MLP(hidden=(4, 3)), training=Training(schedule="cosine"), preprocessing="standard").fit(X)
    one.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.model.hidden == (4, 3)
    assert again.training.schedule == "cosine"
    assert flatten_params(again) == flatten_params(one)
    for written in ({"geometry": "rbf:gamma=0.5"}, {"model": KernelModel(9, "rbf:gamma=0.5")}):
        spelled = clustering(**{"objective": "mmd_ova", **written}).fit(X)
        spelled.save(tmp_path / "spelled")
        np.testing.assert_array_equal(load(tmp_path / "spelled").predict_proba(X), spelled.predict_proba(X))
        assert load(tmp_path / "spelled").score(X) == spelled.score(X)
    bare = clustering().fit(X)
    bare.save(tmp_path / "bare")
    assert flatten_params(load(tmp_path / "bare")) == flatten_params(bare)
    assert load(tmp_path / "bare").recipe_ == "tables"


images = np.random.default_rng(0).normal(size=(9, 1, 28, 28))


@pytest.mark.parametrize(
    ("written", "group"),
    [
        ("kernel:landmarks=9,gamma=0.5", KernelModel(9, gamma=0.5)),
        ("kernel:landmarks=9,kernel=polynomial:degree=2", KernelModel(9, "polynomial:degree=2")),
        ("kernel:landmarks=9,gamma=.5", KernelModel(9, gamma=0.5)),
        ("soft_tree:cuts=2,features=1,features=0", SoftTree(2, features=("1", "0"))),
        ("lenet5:activation=tanh,pooling=average,width=20", LeNet5(20, "tanh", "average")),
        ("resnet18:stem=imagenet", ResNet18("imagenet")),
    ],
)
def test_models_take_their_parameters_behind_the_name(written: str, group: Any, tmp_path: Path) -> None:
    samples = images if "net" in written else X
    one, other = (clustering(model=model, objective="mmd_ova").fit(samples) for model in (written, group))
    np.testing.assert_array_equal(one.predict_proba(samples), other.predict_proba(samples))
    assert flatten_params(one) == flatten_params(other)
    one.save(tmp_path / "model")
    # The network is the same: weights alone do not tell which activations it has.
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(samples), one.predict_proba(samples))
    assert clone(one).model == written
    assert clone(one).set_params(**one.get_params()).model == written


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("kernel:landmark=9", "takes gamma, kernel, landmarks; not 'landmark'. Did you mean 'landmarks'?"),
        ("kernel:", "takes gamma, kernel, landmarks."),
        ("kernel:gamma=NaN", "gamma is a positive number or None, not 'NaN'"),
        ("kernel:gamma=1e999", "gamma is a positive number or None, not '1e999'"),
        ("kernel:landmarks=1e1", "landmarks is a positive whole number, not 10.0"),
        (f"kernel:landmarks={100_000 * '['}", "landmarks is a positive whole number"),
        ("lenet5:width=0", "width of lenet5 is a positive whole number, not 0"),
        ("lenet5:width=wide", "width of lenet5 is a positive whole number, not 'wide'"),
        ("lenet5:pooling=mean", "pooling of lenet5 is 'max' or 'average', not 'mean'"),
        ("resnet18:stem=large", "stem of resnet18 is 'small' or 'imagenet', not 'large'"),
        ("linear:", "The model 'linear' takes no parameters behind its name."),
        ("mlp:", "no parameters behind its name (its layers: MLP(hidden=))."),
        ("mlp:hidden=3", "no parameters behind its name (its layers: MLP(hidden=))"),
        ("auto:hidden=3", "no parameters"),
        ("nothing:a=1", "Unknown model 'nothing:a=1'"),
    ],
)
def test_parameters_that_a_model_does_not_take_are_refused(written: str, says: str) -> None:
    one = clustering(model=written)
    assert written[:30] in repr(one)
    with pytest.raises(ValueError, match=re.escape(says)):
        one.fit(images if "net" in written else X)
    # Until then they can be read, shown and mended.
    assert clone(one).set_params(**one.get_params()).model == written
    assert get_tags(one).input_tags.sparse
    assert "GeminiClustering" in one._repr_html_()
    assert one.set_params(model="kernel:landmarks=9").set_params(n_clusters=3).model == "kernel:landmarks=9"


def test_features_are_columns_by_their_names_and_by_numbers_where_no_column_has_that_name() -> None:
    for features, numbers in {("1", "0"): [0, 1], ("z",): [2], ("2", 0): [2, 0]}.items():
        tree = SoftTree(features=features)
        assert number_features(tree.get_params(), ("1", "0", "z"), None)["features"] == numbers
    assert number_features({"features": ("1", "0")}, (), None)["features"] == [1, 0]
    for name in ("2020", "-1", "1.0", "²"):
        with pytest.raises(ValueError, match=re.escape(f"features ['{name}'] are not there: there are 'a', 'b'")):
            number_features({"features": (name, "1")}, ("a", "b"), None)


@pytest.mark.parametrize(
    "one",
    [
        GeminiClustering(3),
        GeminiClustering(3, model="mlp", preprocessing="standard"),
        GeminiClustering(3, model=MLP(hidden=np.array([5, 4])), training=Training(patience=2)),
        GeminiClustering(3, preprocessing=make_pipeline(StandardScaler())),
        GeminiClustering.for_images(4),
    ],
)
def test_parameters_that_are_read_and_set_change_nothing(one: GeminiClustering) -> None:
    again = GeminiClustering().set_params(**one.get_params())
    before, after = one.get_params(deep=False), again.get_params(deep=False)
    assert all(after[name] is before[name] for name in GROUPS)
    assert repr(again) == repr(one)
    other = clone(one).set_params(**{**one.get_params(), "model__hidden": (7, 7)})
    assert other.model.hidden == (7, 7)


def test_a_recipe_is_kept_when_parameters_are_copied() -> None:
    copied = GeminiClustering(2).set_params(**GeminiClustering(2, max_epochs=1, random_state=0).get_params())
    assert copied.fit(X).recipe_ == "tables"
    # Naming a part of the model names the method, also with the value that it has by default.
    assert GeminiClustering(2, max_epochs=1).set_params(model__hidden=(100,)).fit(X).recipe_ is None


def test_a_class_in_the_place_of_a_group_is_reported_by_fit_alone() -> None:
    one = GeminiClustering(preprocessing=StandardScaler, model=MLP)
    assert one.get_params()["preprocessing"] is StandardScaler
    assert one.set_params(n_clusters=2).n_clusters == 2
    with pytest.raises(TypeError, match="preprocessing is None"):
        one.fit(X)


def test_the_fingerprint_of_a_transformer_is_the_same_in_every_process() -> None:
    def fingerprint(transformer: Any) -> Any:
        return Spec.of(clustering(preprocessing=transformer)).fingerprint()

    def halve(values: Any) -> Any:
        return values / 2

    first = fingerprint(FunctionTransformer(halve))
    assert " at 0x" not in str(first)
    assert first == fingerprint(FunctionTransformer(halve))
    others = [
        *(StandardScaler(), StandardScaler(with_mean=False), make_pipeline(StandardScaler(), PCA(2))),
        *(make_pipeline(StandardScaler(), PCA(3)), FunctionTransformer(halve, kw_args={"x": 1})),
        # Their text is cut in the middle.
        *(FunctionTransformer(halve, kw_args={"x": [*range(900), last, *range(900)]}) for last in (1, 2)),
    ]
    assert len({str(each) for each in [first, *map(fingerprint, others)]}) == len(others) + 1


def test_messages_name_a_parameter_with_its_group() -> None:
    with pytest.raises(ValueError, match=r"Scaling\(missing='mean'\)"):
        clustering().fit(np.where(X > 6, np.nan, X))
    with pytest.raises(ValueError, match=r"Training\(trial_epochs=3\) leaves none"):
        clustering(training=Training(trial_epochs=3)).fit(X)


def test_a_schedule_may_be_a_function(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    seen: list[tuple[int, float]] = []

    def half(max_epochs: int, epochs: float) -> float:
        seen.append((max_epochs, epochs))
        return 0.5

    options: dict[str, Any] = {"model": "linear", "objective": "mmd_ova", "max_epochs": 4, "n_init": 1}
    options["random_state"] = 0
    own = GeminiClustering(2, **options, learning_rate=0.02, training=Training(schedule=half)).fit(X)
    assert {max_epochs for max_epochs, _ in seen} == {4}
    plain = GeminiClustering(2, **options, learning_rate=0.01, training=Training(schedule="constant")).fit(X)
    assert own.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    own.save(tmp_path / "own.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "own.safetensors").predict(X), own.labels_)
    with pytest.raises(TypeError, match="schedule must be a name or a function"):
        GeminiClustering(2, **options, training=Training(schedule=3)).fit(X)
