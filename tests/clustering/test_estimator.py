"""The estimator as its users meet it: labels, inputs, restarts, seeds, callbacks, files."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import math
import os
import pickle
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn.utils import prune

import pollux
from coverings import combinations_of, rotated
from flat_parameters import make_clustering
from pollux import Gemini, GeminiClustering, Training, f_divergence, geometry, load
from pollux.geometry import DISTANCES, KERNELS, Encoded, Features, ShortestPath
from pollux.geometry.affinity import Paths
from pollux.metrics import adjusted_rand_index
from pollux.models import build
from pollux.objectives import DIVERGENCES, GEMINIS, PENALTIES
from pollux.spec import flatten_params
from pollux.training import (
    OPTIMISERS,
    AutogradStep,
    NumericalWarning,
    RowBatches,
    SingleModel,
    StackedModels,
    TensorBoard,
    make_optimiser,
    train,
)
from pollux.training.steps import CompiledStep, NotFiniteError, is_elementwise
from pollux.training.trainable import DenseModels, has_compiled_steps, stackable

# Small and odd data do fall into one cluster; that it is said so has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")

X, CLASSES = make_blobs(n_samples=(20, 15, 10), n_features=4, cluster_std=0.7, random_state=1)
X /= X.std(0)
KERNEL = X @ X.T
IMAGES = np.random.default_rng(0).normal(size=(12, 1, 28, 28)).astype(np.float32)
IMAGES[:5, :, :14] += 2

every_objective = pytest.mark.parametrize("objective", GEMINIS)
every_network = pytest.mark.parametrize("model", ["linear", "mlp"])


def clustering(n_clusters: int = 3, **parameters: Any) -> GeminiClustering:
    """A small and quick one."""
    return make_clustering(n_clusters, **{"model": "linear", "max_epochs": 5, "random_state": 0, **parameters})


class OwnNetwork(nn.Module):
    """A module of the user's, with a layer that behaves differently in training."""

    def __init__(self, n_features: int = 4, n_clusters: int = 3, layer: type[nn.Module] = nn.Identity) -> None:
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(n_features, 6), layer(), nn.Linear(6, n_clusters)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(self.first(x).tanh()))


BatchNorm = functools.partial(nn.BatchNorm1d, 6)
Dropout = functools.partial(nn.Dropout, 0.5)


def own_convolution(shape: tuple[int, ...], n_clusters: int) -> nn.Module:
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * (height - 2) * (width - 2), n_clusters)
    )


def parameters_of(fitted: GeminiClustering) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in fitted.module_.state_dict().items()}


def same_parameters(one: GeminiClustering, other: GeminiClustering) -> bool:
    a, b = parameters_of(one), parameters_of(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def check_labels(fitted: GeminiClustering, n: int) -> None:
    """0 … n_clusters_ − 1 without holes, by decreasing size."""
    sizes = np.bincount(fitted.labels_, minlength=fitted.n_clusters)
    assert fitted.labels_.shape == (n,)
    assert fitted.labels_.dtype == np.int64
    assert (np.diff(sizes) <= 0).all()
    assert (sizes > 0).sum() == fitted.n_clusters_
    assert set(fitted.labels_) == set(range(fitted.n_clusters_))


# Labels


@every_objective
@every_network
def test_labels_have_no_holes_and_go_by_decreasing_size(model: str, objective: str) -> None:
    # Eight clusters for three blobs: some stay empty, at least for some of the objectives.
    fitted = clustering(8, model=model, objective=objective, max_epochs=10, learning_rate=0.05).fit(X)
    check_labels(fitted, len(X))
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (len(X), 8)
    assert np.allclose(probabilities.sum(1), 1)
    assert (probabilities.argmax(1) == fitted.labels_).all()


@pytest.mark.parametrize("model", ["linear", "mlp", "free"])
def test_clusters_that_stay_empty_come_last(model: str) -> None:
    same = np.ones((20, 4))
    fitted = clustering(6, model=model, objective="wasserstein_ova", init="random").fit(same)
    check_labels(fitted, 20)
    if model != "free":
        # A network cannot tell equal rows apart.
        assert fitted.n_clusters_ == 1
        assert (fitted.predict_proba(same).argmax(1) == 0).all()


def test_a_surplus_of_clusters_empties() -> None:
    fitted = clustering(10, objective="mmd_ovo", max_epochs=100, learning_rate=0.1).fit(X)
    assert fitted.n_clusters_ < 10
    check_labels(fitted, len(X))


@pytest.mark.parametrize("batch_size", ["auto", None, 16, 1000])
@every_network
def test_fit_predict_labels_and_predict_agree(model: str, batch_size: Any) -> None:
    one = clustering(model=model, batch_size=batch_size)
    labels = one.fit_predict(X)
    assert (labels == one.labels_).all()
    assert (labels == one.predict(X)).all()
    assert (labels == one.fit_transform(X).argmax(1)).all()
    assert (one.transform(X) == one.predict_proba(X)).all()


@every_objective
@every_network
def test_the_score_of_the_training_data_is_the_objective(model: str, objective: str) -> None:
    fitted = clustering(model=model, objective=objective).fit(X)
    assert fitted.score(X) == fitted.objective_
    log_p = torch.from_numpy(fitted.predict_proba(X)).log()
    needs = Gemini(objective).needs
    affinity = None if needs is None else geometry.resolve("auto", needs).bind(X)(torch.arange(len(X)))
    assert float(Gemini(objective)(log_p, affinity)) == pytest.approx(fitted.objective_, rel=1e-6)


def test_clear_clusters_are_found() -> None:
    for objective in ("mmd_ova", "wasserstein_ova", "kl_ova"):
        fitted = clustering(model="mlp", objective=objective, max_epochs=100, n_init=2).fit(X)
        assert adjusted_rand_index(CLASSES, fitted.labels_) == 1


def test_a_single_cluster_takes_all_rows() -> None:
    for model in ("linear", "free"):
        fitted = clustering(1, model=model).fit(X)
        assert (fitted.labels_ == 0).all()
        assert fitted.n_clusters_ == 1
        assert fitted.objective_ == pytest.approx(0, abs=1e-9)


# The free model


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "score", "partial_fit"])
@pytest.mark.parametrize("fitted", [False, True])
def test_a_free_model_cannot_predict_new_samples(method: str, fitted: bool) -> None:
    one = clustering(model="free")
    if fitted:
        one.fit(X)
    assert not hasattr(one, method)
    with pytest.raises(AttributeError, match=f"has no attribute '{method}'") as raised:
        getattr(one, method)(X)
    assert "cannot predict new samples: use labels_ and probabilities_" in str(raised.value.__cause__)
    assert hasattr(clustering(model="linear"), method)


@every_objective
def test_a_free_model_labels_its_rows(objective: str) -> None:
    one = clustering(model="free", objective=objective, max_epochs=10)
    assert (one.fit_predict(X) == one.labels_).all()
    check_labels(one, len(X))
    assert one.probabilities_.shape == (len(X), 3)
    assert np.allclose(one.probabilities_.sum(1), 1)
    assert (one.probabilities_.argmax(1) == one.labels_).all()
    assert (clone(one).fit_transform(X) == one.probabilities_).all()


def test_a_free_model_may_start_at_seeds_or_at_random() -> None:
    start = clustering(model="free", max_epochs=1, learning_rate=1e-9)
    assert adjusted_rand_index(CLASSES, start.fit_predict(X)) > 0.5
    assert adjusted_rand_index(CLASSES, start.set_params(init="random").fit_predict(X)) < 0.2


def test_a_free_model_ends_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), clustering(model="free"))
    assert pipeline.fit_predict(X).shape == (len(X),)
    assert not hasattr(pipeline, "predict")


# Weights

COUNTS = np.random.default_rng(3).integers(1, 4, len(X))


@every_objective
@every_network
def test_a_weight_of_two_counts_as_two_rows(model: str, objective: str) -> None:
    one = clustering(model=model, objective=objective, batch_size=None)
    weighted = clone(one).fit(X, sample_weight=COUNTS)
    repeated = clone(one).fit(np.repeat(X, COUNTS, axis=0))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6)
    assert np.allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)
    assert (np.repeat(weighted.labels_, COUNTS) == repeated.labels_).all()
    assert weighted.score(X, sample_weight=COUNTS) == weighted.objective_


def test_a_weight_of_two_counts_as_two_rows_in_the_penalties_too() -> None:
    one = clustering(batch_size=None, penalties={"entropy": 5.0}, max_epochs=20)
    weighted = clone(one).fit(X, sample_weight=COUNTS)
    repeated = clone(one).fit(np.repeat(X, COUNTS, axis=0))
    assert np.allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 0.1, 7, 1e307])
def test_only_the_proportions_of_weights_matter(scale: float) -> None:
    one, other = clustering().fit(X, sample_weight=COUNTS), clustering().fit(X, sample_weight=COUNTS * scale)
    assert np.allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-9)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-9)


@every_objective
def test_a_weight_of_zero_leaves_a_row_out(objective: str) -> None:
    weight = (np.arange(len(X)) % 4 > 0).astype(float)
    kept = weight > 0
    one = clustering(objective=objective)
    weighted, without = clone(one).fit(X, sample_weight=weight), clone(one).fit(X[kept])
    assert np.allclose(weighted.predict_proba(X), without.predict_proba(X), atol=1e-9)
    assert weighted.objective_ == pytest.approx(without.objective_, rel=1e-6)
    assert (weighted.labels_[kept] == without.labels_).all()
    assert (weighted.labels_ == weighted.predict(X)).all()


def test_a_free_model_does_not_label_rows_of_weight_zero() -> None:
    weight = (np.arange(len(X)) % 4 > 0).astype(float)
    fitted = clustering(model="free").fit(X, sample_weight=weight)
    assert ((fitted.labels_ == -1) == (weight == 0)).all()
    assert (fitted.probabilities_[weight == 0] == 1 / 3).all()
    assert np.allclose(fitted.probabilities_.sum(1), 1)


@pytest.mark.parametrize("weighted", [False, True])
def test_samples_keep_the_places_that_an_affinity_gives_them(weighted: bool) -> None:
    """Where copies are merged, samples are ordered by their values: rows and columns of an affinity are not."""
    rows = np.concatenate([X[::-1], X[:5]])
    weight = np.linspace(1, 2, len(rows)) if weighted else None
    fits = [
        clustering(training=Training(max_samples=most)).fit(rows, sample_weight=weight, affinity=rows @ rows.T)
        for most in (None, 1000)
    ]
    assert fits[0].objective_ == fits[1].objective_
    np.testing.assert_array_equal(fits[0].labels_, fits[1].labels_)


@pytest.mark.parametrize("affinity", [KERNEL, torch.from_numpy(KERNEL), pd.DataFrame(KERNEL), KERNEL.tolist()])
def test_rows_of_weight_zero_leave_a_precomputed_affinity_too(affinity: Any) -> None:
    weight = (np.arange(len(X)) % 4 > 0).astype(float)
    kept = weight > 0
    weighted = clustering().fit(X, sample_weight=weight, affinity=affinity)
    without = clustering().fit(X[kept], affinity=KERNEL[np.ix_(kept, kept)])
    assert weighted.objective_ == pytest.approx(without.objective_, rel=1e-9)
    assert weighted.score(X, sample_weight=weight, affinity=affinity) == weighted.objective_


def test_cluster_sizes_are_weighted() -> None:
    # The smallest blob weighs most, so it comes first.
    weight = np.where(CLASSES == 2, 10.0, 1.0)
    fitted = clustering(model="free", max_epochs=50, learning_rate=0.1).fit(X, sample_weight=weight)
    assert (fitted.labels_[CLASSES == 2] == 0).all()


# Inputs


@pytest.mark.parametrize(
    ("form", "container", "objective"),
    rotated(["csr", "csc", "coo"], ["matrix", "array"], ["mmd_ova", "wasserstein_ova", "kl_ova"]),
)
def test_sparse_rows_give_what_dense_rows_give(form: str, container: str, objective: str) -> None:
    dense = np.where(np.abs(X) > 0.5, X, 0)
    sparse = getattr(scipy.sparse, f"{form}_{container}")(dense)
    one, other = clustering(objective=objective).fit(dense), clustering(objective=objective).fit(sparse)
    assert same_parameters(one, other)
    assert (other.predict(sparse) == one.predict(dense)).all()
    assert (other.transform(sparse) == one.transform(dense)).all()
    assert other.score(sparse) == one.score(dense)
    assert (other.labels_ == clustering(objective=objective).fit_predict(sparse)).all()
    with pytest.raises(TypeError, match="transform"):
        other.predict_proba(sparse)


def test_sparse_rows_with_weights_and_a_free_model() -> None:
    weight = np.arange(len(X)) % 3
    one = clustering(model="free").fit(X, sample_weight=weight)
    other = clustering(model="free").fit(scipy.sparse.csr_array(X), sample_weight=weight)
    assert (one.labels_ == other.labels_).all()


def test_frames_bring_their_names() -> None:
    frame = pd.DataFrame(X, columns=["length", "width", "height", "weight"])
    fitted = clustering().fit(frame)
    assert fitted.feature_names_in_.tolist() == list(frame.columns)
    assert fitted.n_features_in_ == 4
    assert (fitted.predict(frame) == fitted.labels_).all()
    assert same_parameters(fitted, clustering().fit(X))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame.rename(columns={"width": "breadth"}))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["width", "length", "height", "weight"]])


@pytest.mark.parametrize("model", ["lenet5", own_convolution, "linear", "mlp", "free"])
def test_images_are_clustered(model: Any) -> None:
    one = clustering(2, model=model, max_epochs=2, objective="wasserstein_ova").fit(IMAGES)
    check_labels(one, len(IMAGES))
    if model != "free":
        assert (one.predict(IMAGES) == one.labels_).all()
        assert one.predict_proba(IMAGES).dtype == np.float32


def test_images_of_bytes_are_computed_in_single_precision() -> None:
    pixels = np.clip(IMAGES * 40 + 100, 0, 255).astype(np.uint8)
    one = clustering(2, model="lenet5", max_epochs=2).fit(pixels)
    other = clustering(2, model="lenet5", max_epochs=2).fit(pixels.astype(np.float32))
    assert same_parameters(one, other)
    assert one.predict_proba(pixels).dtype == np.float32


@pytest.mark.parametrize(
    ("kind", "sparse", "model"),
    combinations_of(
        [bool, np.uint8, np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64],
        [False, True],
        ["linear", "free"],
    ),
)
def test_whole_numbers_give_what_the_same_floats_give(kind: type, sparse: bool, model: str) -> None:
    whole = (np.abs(X) * 10).astype(kind)
    floats = whole.astype(np.float32 if np.dtype(kind).itemsize <= 2 else np.float64)
    rows = scipy.sparse.csr_array(whole) if sparse else whole
    one, other = clustering(model=model).fit(rows), clustering(model=model).fit(floats)
    assert (one.labels_ == other.labels_).all()
    assert one.objective_ == pytest.approx(other.objective_)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble])
def test_precision_follows_the_data_or_the_request(kind: type) -> None:
    rows = X.astype(kind)
    expected = np.float32 if np.dtype(kind).itemsize <= 4 else np.float64
    assert clustering().fit(rows).predict_proba(rows).dtype == expected
    for name in ("float32", "float64"):
        assert clustering(dtype=name).fit(rows).predict_proba(rows).dtype == name


@pytest.mark.parametrize("order", ["C", "F", "reversed", "big-endian", "read-only"])
def test_the_layout_in_memory_does_not_matter(order: str) -> None:
    rows = X.copy()
    if order == "F":
        rows = np.asfortranarray(rows)
    elif order == "reversed":
        rows = np.ascontiguousarray(rows[::-1])[::-1]
    elif order == "big-endian":
        rows = rows.astype(">f8")
    elif order == "read-only":
        rows.flags.writeable = False
    assert same_parameters(clustering().fit(rows), clustering().fit(X))


def test_tensors_are_rows_too() -> None:
    rows = torch.from_numpy(X)
    fitted = clustering().fit(rows)
    assert same_parameters(fitted, clustering().fit(X))
    assert (fitted.predict(rows) == fitted.predict(X)).all()
    assert clustering(2, model=own_convolution).fit(torch.from_numpy(IMAGES)).labels_.shape == (len(IMAGES),)


def test_a_memory_map_is_read_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, X)
    before = path.read_bytes()
    for mode in ("r", "r+"):
        rows = np.load(path, mmap_mode=mode)
        fitted = clustering(batch_size=16).fit(rows)
        assert same_parameters(fitted, clustering(batch_size=16).fit(X))
        assert (fitted.predict(rows) == fitted.labels_).all()
    assert path.read_bytes() == before


def test_the_data_are_never_changed() -> None:
    rows, images = X.copy(), IMAGES.copy()
    for model in ("linear", "mlp", "free"):
        clustering(model=model, penalties={"entropy": 1.0}).fit(rows)
    clustering(model=own_convolution).fit(images)
    assert (rows == X).all()
    assert (images == IMAGES).all()


# scikit-learn's tools


@every_network
def test_output_is_a_frame_on_request(model: str) -> None:
    fitted = clustering(model=model).set_output(transform="pandas").fit(X)
    names = ["geminiclustering0", "geminiclustering1", "geminiclustering2"]
    assert fitted.get_feature_names_out().tolist() == names
    for frame in (fitted.transform(X), clone(fitted).fit_transform(X)):
        assert isinstance(frame, pd.DataFrame)
        assert frame.columns.tolist() == names
        assert (frame.to_numpy() == fitted.predict_proba(X)).all()
    free = clustering(model="free").set_output(transform="pandas").fit_transform(X)
    assert isinstance(free, pd.DataFrame)
    assert free.columns.tolist() == names


@pytest.mark.parametrize(
    ("model", "duplicate", "objective"),
    rotated(
        ["linear", "mlp", "free", OwnNetwork()],
        [copy.deepcopy, lambda fitted: pickle.loads(pickle.dumps(fitted))],
        ["mmd_ova", "wasserstein_ovo", Gemini("kl", one_vs_one=True)],
    ),
)
def test_copies_and_pickles_say_the_same(model: Any, objective: Any, duplicate: Callable[..., Any]) -> None:
    fitted = clustering(model=model, objective=objective).fit(X)
    other = duplicate(fitted)
    assert same_parameters(fitted, other)
    assert (other.labels_ == fitted.labels_).all()
    assert other.history_ == fitted.history_
    if model != "free":
        assert (other.predict_proba(X) == fitted.predict_proba(X)).all()
        assert other.score(X) == fitted.objective_
        # A copy goes on learning by itself.
        other.partial_fit(X)
        assert not same_parameters(fitted, other)


def test_a_clone_is_not_fitted_and_learns_the_same() -> None:
    fitted = clustering(model="mlp", hidden=(5, 5), activation="tanh", penalties={"vat": 0.1}).fit(X)
    other = clone(fitted)
    assert not hasattr(other, "labels_")
    assert repr(other) == repr(fitted)
    assert same_parameters(other.fit(X), fitted)


def test_fitting_leaves_the_parameters_alone() -> None:
    penalties, callbacks, hidden = {"entropy": 0.1}, [lambda epoch: None], [5]
    one = clustering(model="mlp", penalties=penalties, callbacks=callbacks, hidden=hidden)
    before = one.get_params()
    one.fit(X)
    assert one.get_params() == before
    assert one.penalties is penalties
    assert penalties == {"entropy": 0.1}
    assert hidden == [5]
    assert len(callbacks) == 1


def test_it_ends_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), clustering()).fit(X)
    assert (pipeline.predict(X) == pipeline[-1].labels_).all()
    assert pipeline.predict_proba(X).shape == (len(X), 3)
    assert pipeline.score(X) == pipeline[-1].objective_
    assert pipeline.get_feature_names_out().shape == (3,)
    weighted = clone(pipeline).fit(X, geminiclustering__sample_weight=COUNTS)
    assert not same_parameters(weighted[-1], pipeline[-1])


def test_a_grid_search_chooses_by_score() -> None:
    grid = {"n_clusters": [2, 3], "learning_rate": [1e-4, 0.1]}
    search = GridSearchCV(clustering(objective="mmd_ova", max_epochs=30), grid, cv=2, error_score="raise").fit(X)
    results = search.cv_results_
    assert np.isfinite(results["mean_test_score"]).all()
    assert search.best_params_["learning_rate"] == 0.1
    assert search.best_score_ == max(results["mean_test_score"])
    assert (search.predict(X) == search.best_estimator_.labels_).all()


# Modules of the user's


@pytest.mark.parametrize("n_init", [1, 2])
@pytest.mark.parametrize("layer", [nn.Identity, Dropout, BatchNorm])
def test_the_users_module_is_not_touched(n_init: int, layer: Any) -> None:
    module = OwnNetwork(layer=layer).eval()
    before = copy.deepcopy(module.state_dict())
    fitted = clustering(model=module, n_init=n_init).fit(X)
    assert fitted.module_ is not module
    assert fitted.model is module
    assert not module.training
    assert all(torch.equal(module.state_dict()[name], value) for name, value in before.items())
    assert all(value.dtype == before[name].dtype for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert (fitted.predict(X) == fitted.labels_).all()


def test_a_module_is_trained_from_its_weights() -> None:
    module = OwnNetwork().double()
    start = clustering(model=module, max_epochs=1, learning_rate=1e-12).fit(X)
    assert all(
        torch.allclose(value, module.state_dict()[name], atol=1e-9) for name, value in parameters_of(start).items()
    )


@pytest.mark.parametrize("factory", [nn.Linear, OwnNetwork, lambda n_features, n_clusters: OwnNetwork()])
def test_a_function_makes_the_modules(factory: Callable[..., nn.Module]) -> None:
    fitted = clustering(model=factory, n_init=3).fit(X)
    assert (fitted.predict(X) == fitted.labels_).all()
    assert same_parameters(fitted, clustering(model=factory, n_init=3).fit(X))


def test_a_function_is_given_the_number_of_features_or_the_shape() -> None:
    sizes = []

    def factory(size: Any, n_clusters: int) -> nn.Module:
        sizes.append((size, n_clusters))
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(size)), n_clusters))

    clustering(model=factory).fit(X)
    clustering(2, model=factory, max_epochs=1).fit(IMAGES)
    assert sizes == [(4, 3), ((1, 28, 28), 2)]


def test_frozen_parameters_stay_frozen() -> None:
    module = OwnNetwork().double()
    module.first.requires_grad_(False)
    fitted = clustering(model=module).fit(X)
    assert torch.equal(fitted.module_.first.weight, module.first.weight)
    assert not torch.equal(fitted.module_.last.weight, module.last.weight)


@pytest.mark.parametrize("n_init", [1, 2])
def test_a_module_with_the_wrong_number_of_outputs_is_explained(n_init: int) -> None:
    with pytest.raises(ValueError, match=r"shape \(45, 3\) for 45 samples and n_clusters=3.*\(45, 5\)"):
        clustering(model=OwnNetwork(n_clusters=5), n_init=n_init).fit(X)


# Restarts

ELEMENTWISE = [name for name in OPTIMISERS if is_elementwise(make_optimiser(name, [torch.zeros(1)], 0.1))]


def test_the_usual_optimisers_train_restarts_together() -> None:
    assert ELEMENTWISE == ["adam", "adamw", "sgd", "rmsprop"]


class Course:
    """One way to train: rows, an objective and batches, the same for every model that takes it."""

    def __init__(self, model: str, objective: str, batch_size: int, optimiser: str = "adam") -> None:
        torch.manual_seed(0)
        self.modules = [module.double() for module in build(model, (len(X),) if model == "free" else (4,), 3, 3)]
        self.objective, self.optimiser = Gemini(objective), optimiser
        needs = self.objective.needs
        block = None if needs is None else geometry.resolve("auto", needs).bind(X)
        inputs = (lambda index: index) if model == "free" else torch.from_numpy(X).__getitem__
        self.batches = RowBatches(len(X), batch_size, inputs, block)

    def trained(self, model: Any, penalties: Any = ()) -> Any:
        """What a training of the model leaves."""
        generator = torch.Generator().manual_seed(5)
        if isinstance(model, DenseModels):
            step = CompiledStep(model, self.objective, generator)
        else:
            optimiser = make_optimiser(self.optimiser, model.parameters(), 0.01)
            step = AutogradStep(model, self.objective, optimiser, penalties, generator)
        return train(model, step, self.batches, max_epochs=4, generator=generator)

    def check_each_is_as_alone(self, together: Any, penalties: Any = ()) -> None:
        """Compare the figures and the parameters of each model with those of a training by itself."""
        alone = copy.deepcopy(self.modules)
        history = self.trained(together, penalties).history
        for r, (one, other) in enumerate(zip(self.modules, alone, strict=True)):
            figures = self.trained(SingleModel(other, 3), penalties).history.of_model(0)
            assert figures["objective"] == pytest.approx(history.of_model(r)["objective"], rel=1e-9)
            assert figures["entropy"] == pytest.approx(history.of_model(r)["entropy"], rel=1e-9)
            assert figures["clusters"] == history.of_model(r)["clusters"]
            for name, parameter in other.named_parameters():
                assert torch.allclose(dict(one.named_parameters())[name], parameter, rtol=1e-7, atol=1e-9), name


@pytest.mark.parametrize(
    ("optimiser", "objective", "model", "batch_size"),
    combinations_of(ELEMENTWISE, ("mmd_ovo", "kl_ova", "wasserstein_ova"), ("linear", "mlp", "free"), (len(X), 16)),
)
def test_restarts_trained_together_are_restarts_trained_alone(
    optimiser: str, objective: str, model: str, batch_size: int
) -> None:
    course = Course(model, objective, batch_size, optimiser)
    penalties = [(PENALTIES["entropy"], 0.1), (PENALTIES["weight_decay"], 0.01)]
    course.check_each_is_as_alone(StackedModels(course.modules, 3), penalties)


@pytest.mark.parametrize(
    ("objective", "model", "batch_size"), combinations_of(GEMINIS, ["linear", "mlp"], [len(X), 16])
)
def test_the_short_cut_for_small_networks_changes_nothing(objective: str, model: str, batch_size: int) -> None:
    course = Course(model, objective, batch_size)
    assert all(has_compiled_steps(module, 3) for module in course.modules)
    course.check_each_is_as_alone(DenseModels(course.modules, 0.01))


def shared_layer() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(4, 3))


def pruned_layer() -> nn.Module:
    return nn.Sequential(prune.random_unstructured(nn.Linear(4, 6), "weight", 0.5), nn.Tanh(), nn.Linear(6, 3))


def hooked_layer() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 3))
    module.register_forward_hook(lambda module, inputs, output: output * 3)
    return module


def normalised_layer() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)))


@pytest.mark.parametrize("make", [shared_layer, pruned_layer, hooked_layer, normalised_layer])
def test_a_module_is_more_than_its_layers(make: Callable[[], nn.Module]) -> None:
    # The short cut must see what it would not train rightly; torch's own class always takes the long way.
    factory = lambda *size: make()  # noqa: E731
    short, long = (clustering(model=factory, optimiser=optimiser).fit(X) for optimiser in ("adam", torch.optim.Adam))
    assert short.history_["objective"] == pytest.approx(long.history_["objective"], rel=1e-6)
    assert np.allclose(short.predict_proba(X), long.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_restarts_of_different_architectures_are_trained_each_as_itself(optimiser: str) -> None:
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(6, 3)) for activation in (nn.Tanh, nn.ReLU)]
    alone = [clustering(model=module, optimiser=optimiser).fit(X).objective_ for module in modules]
    # Copies, because what a function makes is trained itself.
    made = iter(copy.deepcopy(modules))
    together = clustering(model=lambda *size: next(made), n_init=2, optimiser=optimiser).fit(X)
    assert together.objective_ == pytest.approx(max(alone), rel=1e-6)


def test_the_number_of_threads_is_the_users() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        clustering(model="mlp").fit(X)
        assert torch.get_num_threads() == 2
        with pytest.raises(KeyboardInterrupt):
            clustering(model="mlp", callbacks=[Visits(fails=True)]).fit(X)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("layer", [nn.Identity, BatchNorm])
def test_the_best_of_the_restarts_is_kept(layer: Any) -> None:
    made = []

    def factory(n_features: int, n_clusters: int) -> nn.Module:
        made.append(OwnNetwork(n_features, n_clusters, layer))
        return made[-1]

    fitted = clustering(model=factory, n_init=4, max_epochs=3).fit(X)
    rows = torch.from_numpy(X)
    affinity = Features(rows - rows.mean(0))
    with torch.no_grad():
        objectives = [float(Gemini("mmd_ova")(module(rows).log_softmax(-1), affinity)) for module in made]
    assert len(made) == 4
    assert len(set(objectives)) == 4
    assert fitted.objective_ == pytest.approx(max(objectives), rel=1e-9)
    assert fitted.module_ is made[int(np.argmax(objectives))]


@pytest.mark.parametrize(
    ("model", "optimiser", "together"),
    [
        ("linear", "adam", True),
        ("mlp", "sgd", True),
        ("free", "rmsprop", True),
        (OwnNetwork(), "adamw", True),
        (OwnNetwork(layer=Dropout), "adam", True),
        # Running statistics are written in place, and a curvature estimate mixes all numbers: one by one.
        (OwnNetwork(layer=BatchNorm), "adam", False),
        ("linear", "lbfgs", False),
        ("linear", torch.optim.Adagrad, False),
    ],
)
def test_restarts_are_trained_together_where_that_changes_nothing(model: Any, optimiser: Any, together: bool) -> None:
    numbers: list[int] = []
    one = clustering(model=model, optimiser=optimiser, n_init=3, max_epochs=2)
    one.set_params(callbacks=[lambda epoch: numbers.append(epoch.number)]).fit(X)
    assert numbers == ([1, 2] if together else [1, 2, 1, 2, 1, 2])


def test_modules_that_cannot_be_batched_are_trained_one_by_one() -> None:
    class Decides(OwnNetwork):
        def forward(self, x: Tensor) -> Tensor:
            # A branch on values is what a batched forward pass cannot follow.
            return super().forward(x) if bool(self.last.bias.sum() < 1e9) else x

    assert stackable(Decides())
    assert not stackable(OwnNetwork(layer=BatchNorm))
    fitted = clustering(model=Decides(), n_init=2).fit(X)
    assert (fitted.predict(X) == fitted.labels_).all()


def test_more_restarts_are_no_worse() -> None:
    # The first restart is the one that a single training makes.
    single = clustering(model="mlp", max_epochs=10).fit(X)
    several = clustering(model="mlp", max_epochs=10, n_init=5).fit(X)
    assert several.objective_ >= single.objective_ - 1e-9


def test_restarts_of_a_module_need_layers_that_can_be_reset() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 3))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight

    with pytest.raises(ValueError, match="reset_parameters"):
        clustering(model=Bare(), n_init=2).fit(X)


# Seeds

RANDOM_SETTINGS: dict[str, dict[str, Any]] = {
    "full batch": {},
    "batches": {"batch_size": 16},
    "restarts": {"n_init": 3, "batch_size": 16},
    "free": {"model": "free", "n_init": 2},
    "dropout": {"model": OwnNetwork(layer=Dropout), "batch_size": 16, "n_init": 2},
    "vat": {"model": "mlp", "penalties": {"vat": 0.5}},
    "pairs": {"objective": Gemini("wasserstein_ovo", sampled_pairs=2), "batch_size": 16},
    "fourier": {"geometry": "fourier"},
}


@pytest.mark.parametrize("name", RANDOM_SETTINGS)
def test_a_seed_decides_every_bit(name: str) -> None:
    parameters = RANDOM_SETTINGS[name]
    one = clustering(**parameters).fit(X)
    # What the program drew before must not matter, nor may the training disturb what it draws later.
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state(legacy=False)  # noqa: NPY002
    other = clustering(**parameters).fit(X)
    assert torch.equal(torch.get_rng_state(), torch_state)
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert (after["state"]["key"] == numpy_state["state"]["key"]).all()
    assert after["state"]["pos"] == numpy_state["state"]["pos"]
    assert same_parameters(one, other)
    assert (one.labels_ == other.labels_).all()
    assert one.history_ == other.history_
    assert one.objective_ == other.objective_
    assert not same_parameters(one, clustering(**{**parameters, "random_state": 1}).fit(X))


def test_a_random_state_object_is_drawn_from() -> None:
    random = np.random.RandomState(0)
    one, other = clustering(random_state=random).fit(X), clustering(random_state=random).fit(X)
    assert not same_parameters(one, other)
    assert same_parameters(one, clustering(random_state=np.random.RandomState(0)).fit(X))


def test_no_seed_takes_numpys() -> None:
    np.random.seed(7)  # noqa: NPY002
    one = clustering(random_state=None).fit(X)
    assert not same_parameters(one, clustering(random_state=None).fit(X))
    np.random.seed(7)  # noqa: NPY002
    assert same_parameters(one, clustering(random_state=None).fit(X))


# Geometries and objectives


@pytest.mark.parametrize(("kernel", "objective"), rotated(KERNELS, ["mmd_ova", "mmd_ovo"]))
def test_a_precomputed_kernel_is_the_kernel(kernel: str, objective: str) -> None:
    # Histograms: the one kind of rows that every kernel takes.
    rows = np.abs(X)
    matrix = geometry.resolve(kernel).adapt(rows)(torch.from_numpy(rows))
    by_name = clustering(objective=objective, geometry=kernel).fit(rows)
    for affinity in (matrix, matrix.numpy()):
        given = clustering(objective=objective, geometry="precomputed").fit(rows, affinity=affinity)
        assert given.objective_ == pytest.approx(by_name.objective_, rel=1e-6)
        assert np.allclose(given.predict_proba(rows), by_name.predict_proba(rows), atol=1e-6)
        assert given.score(rows, affinity=affinity) == given.objective_


@pytest.mark.parametrize("distance", [*DISTANCES, "shortest_path"])
@pytest.mark.parametrize("objective", ["wasserstein_ova", "wasserstein_ovo"])
def test_a_precomputed_distance_is_the_distance(distance: str, objective: str) -> None:
    block = geometry.resolve(distance, "distance").bind(X)(torch.arange(len(X)))
    matrix = block.matrix() if isinstance(block, Paths) else block
    by_name = clustering(objective=objective, geometry=distance).fit(X)
    given = clustering(objective=objective).fit(X, affinity=matrix)
    assert given.objective_ == pytest.approx(by_name.objective_, rel=1e-9)
    assert np.allclose(given.predict_proba(X), by_name.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("as_features", [False, True])
def test_an_affinity_may_have_another_precision_than_the_rows(
    kind: type, precision: torch.dtype, as_features: bool
) -> None:
    rows = torch.from_numpy(X).to(precision)
    affinity = Features(rows) if as_features else rows @ rows.mT
    fitted = clustering().fit(X.astype(kind), affinity=affinity)
    assert fitted.objective_ == pytest.approx(clustering().fit(X).objective_, rel=1e-4)


def test_an_affinity_is_read_and_left_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "kernel.npy", KERNEL)
    expected = clustering().fit(X, affinity=KERNEL).objective_
    for affinity in (
        np.load(tmp_path / "kernel.npy", mmap_mode="r"),
        pd.DataFrame(KERNEL),
        KERNEL[::-1, ::-1][::-1, ::-1],
    ):
        assert clustering().fit(X, affinity=affinity).objective_ == pytest.approx(expected)
        assert (np.asarray(affinity) == X @ X.T).all()
    # Views that run backwards are arrays like any other.
    backwards = clustering().fit(X[::-1], affinity=KERNEL[::-1, ::-1])
    assert backwards.objective_ == pytest.approx(expected)


def test_a_precomputed_affinity_is_cut_into_batches() -> None:
    given = clustering(batch_size=16).fit(X, affinity=Features(torch.from_numpy(X)))
    by_name = clustering(batch_size=16).fit(X)
    assert np.allclose(given.predict_proba(X), by_name.predict_proba(X), atol=1e-9)


def test_a_kernel_may_be_a_function_or_an_object() -> None:
    by_name = clustering(geometry="linear").fit(X)
    for same in (lambda x, y: x @ y.mT, geometry.resolve("linear"), KERNELS["linear"]):
        assert np.allclose(clustering(geometry=same).fit(X).predict_proba(X), by_name.predict_proba(X), atol=1e-9)
    distance = clustering(objective="wasserstein_ova", geometry=lambda x, y: torch.cdist(x, y)).fit(X)
    named = clustering(objective="wasserstein_ova", geometry="euclidean").fit(X)
    assert np.allclose(distance.predict_proba(X), named.predict_proba(X), atol=1e-9)
    paths = clustering(objective="wasserstein_ova", geometry=ShortestPath(neighbours=5)).fit(X)
    assert paths.score(X) == paths.objective_
    encoded = clustering(geometry=Encoded(nn.Linear(4, 2).double(), KERNELS["rbf"])).fit(X)
    assert encoded.score(X) == encoded.objective_


def test_the_bandwidth_is_that_of_the_training_data() -> None:
    fitted = clustering(geometry="rbf").fit(X)
    gamma = fitted.geometry_.parameters["gamma"]
    assert gamma == geometry.resolve("rbf").adapt(X).parameters["gamma"]
    few = X[:10]
    log_p = torch.from_numpy(fitted.predict_proba(few)).log()
    kernel = geometry.resolve("rbf", gamma=gamma)(torch.from_numpy(few))
    assert fitted.score(few) == pytest.approx(float(Gemini("mmd_ova")(log_p, kernel)), rel=1e-6)


def test_rows_that_were_not_trained_on_need_an_affinity_of_their_own() -> None:
    fitted = clustering(geometry="precomputed").fit(X, affinity=KERNEL)
    others = X[::-1].copy()
    right = fitted.score(others, affinity=KERNEL[::-1, ::-1].copy())
    assert right == pytest.approx(fitted.objective_)
    # As many rows as in training, but not those: their old affinity would silently be the wrong one.
    with pytest.raises(ValueError, match="affinity"):
        fitted.score(others)


@pytest.mark.parametrize("name", GEMINIS)
def test_an_objective_may_be_an_object(name: str) -> None:
    by_name = clustering(objective=name).fit(X)
    assert same_parameters(by_name, clustering(objective=Gemini(name)).fit(X))
    divergence, _, mode = name.rpartition("_")
    if mode == "ova":
        assert same_parameters(by_name, clustering(objective=DIVERGENCES[divergence]).fit(X))


def test_an_f_divergence_may_be_the_users() -> None:
    square = f_divergence(lambda t: (t - 1) ** 2)
    own = clustering(objective=square).fit(X)
    named = clustering(objective="chi2_ova").fit(X)
    assert own.objective_ == pytest.approx(named.objective_, rel=1e-6)
    assert np.allclose(own.predict_proba(X), named.predict_proba(X), atol=1e-6)
    jensen_shannon = f_divergence(lambda t: (t * t.log() - (t + 1) * ((t + 1) / 2).log()) / 2)
    fitted = clustering(objective=Gemini(jensen_shannon, one_vs_one=True), max_epochs=20).fit(X)
    assert fitted.history_["objective"][-1] > fitted.history_["objective"][0]


def test_sampled_pairs_learn_what_all_pairs_learn() -> None:
    objective = Gemini("wasserstein_ovo", sampled_pairs=2)
    fitted = clustering(objective=objective, max_epochs=60, learning_rate=0.1, n_init=2).fit(X)
    assert adjusted_rand_index(CLASSES, fitted.labels_) == 1
    assert fitted.score(X) == fitted.objective_


# Penalties


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("n_init", [1, 2])
def test_every_penalty_joins_the_loss(penalty: str, n_init: int) -> None:
    plain = clustering(model="mlp", n_init=n_init).fit(X)
    by_name = clustering(model="mlp", n_init=n_init, penalties={penalty: 1.0}).fit(X)
    by_function = clustering(model="mlp", n_init=n_init, penalties={PENALTIES[penalty]: 1.0}).fit(X)
    unweighted = clustering(model="mlp", n_init=n_init, penalties={penalty: 0.0}).fit(X)
    assert same_parameters(by_name, by_function)
    assert not same_parameters(by_name, plain)
    assert np.allclose(unweighted.predict_proba(X), plain.predict_proba(X), atol=1e-9)


def test_a_penalty_makes_its_value_small() -> None:
    weak, strong = (clustering(penalties={"weight_decay": weight}, max_epochs=100).fit(X) for weight in (0.0, 10.0))
    assert strong.module_.weight.norm() < 0.1 * weak.module_.weight.norm()
    weak, strong = (clustering(penalties={"entropy": weight}, max_epochs=50).fit(X) for weight in (0.0, 10.0))
    assert strong.history_["entropy"][-1] < 0.5 * weak.history_["entropy"][-1]


def test_a_penalty_may_be_the_users() -> None:
    def prefers_the_first(model: Any, inputs: Tensor, log_p: Tensor, weight: Any, generator: Any) -> Tensor:
        return -log_p[..., 0].mean(-1)

    fitted = clustering(penalties={prefers_the_first: 100.0}, max_epochs=100, learning_rate=0.1).fit(X)
    assert fitted.n_clusters_ == 1


def test_penalties_of_the_users_see_one_model_at_a_time() -> None:
    """As if each restart were trained alone, whatever is trained together."""
    seen = set()

    def equal_sizes(model: Any, inputs: Tensor, log_p: Tensor, weight: Any, generator: Any) -> Tensor:
        seen.add(log_p.ndim)
        torch.testing.assert_close(model(inputs), log_p)
        torch.testing.assert_close(model.each(inputs), log_p)
        assert len(model.parameters()) == 4
        shares = log_p.exp().mean(0)
        return (shares * shares.log()).sum() + math.log(3)

    for n_init in (1, 3):
        own = clustering(model="mlp", n_init=n_init, penalties={equal_sizes: 5.0}).fit(X)
        named = clustering(model="mlp", n_init=n_init, penalties={"balance": 5.0}).fit(X)
        np.testing.assert_allclose(own.predict_proba(X), named.predict_proba(X), atol=1e-4)
    assert seen == {2}


def test_penalties_are_not_compared() -> None:
    class Odd:
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> Any:
            return np.array([True, False])

        def __call__(self, model: Any, inputs: Tensor, log_p: Tensor, weight: Any, generator: Any) -> Tensor:
            assert log_p.ndim == 2
            return log_p.exp().mean()

    clustering(model="mlp", n_init=2, penalties={Odd(): 0.1}, max_epochs=1).fit(X)


@pytest.mark.parametrize("n_init", [1, 2])
def test_what_is_wrong_with_a_penalty_is_said(n_init: int) -> None:
    def fit(penalty: Any) -> None:
        clustering(model="mlp", n_init=n_init, penalties={penalty: 1.0}, max_epochs=1).fit(X)

    def of_samples(model: Any, inputs: Tensor, log_p: Tensor, weight: Any, generator: Any) -> Tensor:
        return log_p[:, 0]

    fit(lambda model, inputs, log_p, weight, generator: 1.0)
    with pytest.raises(ValueError, match=r"of_samples must return one number, not values of shape \(\d+,\)"):
        fit(of_samples)
    with pytest.raises(TypeError, match="must return a number, not NoneType"):
        fit(lambda model, inputs, log_p, weight, generator: None)
    with pytest.raises(TypeError, match=r"called with \(model, inputs, log_p, sample_weight, generator\), which len "):
        fit(len)


@pytest.mark.parametrize("n_init", [1, 2])
@pytest.mark.parametrize("batch_size", [None, 25])
def test_a_penalty_that_is_not_finite_is_named(n_init: int, batch_size: int | None) -> None:
    def spoiled(model: Any, inputs: Tensor, log_p: Tensor, weight: Any, generator: Any) -> Tensor:
        return log_p.sum() * math.nan

    one = clustering(model="mlp", n_init=n_init, batch_size=batch_size, penalties={"entropy": 0.1, spoiled: 1.0})
    with pytest.raises(NotFiniteError, match="The penalty spoiled is nan: nothing can be learned"):
        one.fit(X)
    # Where the objective is not finite either, the penalty is not to blame.
    network = nn.Linear(4, 3)
    nn.init.constant_(network.weight, math.nan)
    with pytest.raises(NotFiniteError, match="The objective is nan"):
        clustering(model=network, penalties={"entropy": 0.1}).fit(X)


def test_virtual_adversaries_need_inputs_to_move() -> None:
    with pytest.raises(ValueError, match=r"vat.*free table"):
        clustering(model="free", penalties={"vat": 1.0}).fit(X)


# Learning in parts

MOMENTUM = functools.partial(torch.optim.SGD, momentum=0.9)


@pytest.mark.parametrize(
    ("optimiser", "parameters"),
    rotated(
        ["adam", "sgd", "rmsprop", "lbfgs", MOMENTUM],
        [{"batch_size": 16}, {"model": OwnNetwork(layer=Dropout), "batch_size": 16}, {}],
    ),
)
def test_as_many_partial_fits_as_epochs_are_a_fit(optimiser: Any, parameters: dict[str, Any]) -> None:
    # The state of the optimiser and of the generators goes on from call to call, or this could not be.
    whole = clustering(optimiser=optimiser, max_epochs=3, **parameters).fit(X)
    parts = clustering(optimiser=optimiser, **parameters)
    for _ in range(3):
        parts.partial_fit(X)
    other = parameters_of(parts)
    assert all(torch.allclose(value, other[name], atol=1e-9) for name, value in parameters_of(whole).items())
    assert parts.n_iter_ == 3
    assert parts.history_["objective"] == pytest.approx(whole.history_["objective"], rel=1e-7)
    assert parts.objective_ == pytest.approx(whole.objective_, rel=1e-7)
    assert (parts.labels_ == whole.labels_).all()


def test_many_partial_fits_on_parts_of_the_data_learn() -> None:
    one = clustering(model="mlp")
    order = np.random.default_rng(0).permutation(len(X))
    for _ in range(20):
        for part in np.array_split(order, 3):
            one.partial_fit(X[part])
            check_labels(one, len(part))
    assert one.n_iter_ == 60
    assert len(one.history_["objective"]) == 60
    assert adjusted_rand_index(CLASSES, one.predict(X)) == 1
    assert (one.predict(X[part]) == one.labels_).all()


def test_a_fit_can_be_gone_on_with() -> None:
    one = clustering(max_epochs=3).fit(X)
    before = parameters_of(one)
    one.partial_fit(X).partial_fit(X[:10], sample_weight=COUNTS[:10])
    assert not torch.equal(one.module_.weight, before["weight"])
    assert one.n_iter_ == 5
    assert [len(values) for values in one.history_.values()] == [5, 5, 5]
    check_labels(one, 10)
    # A fit starts anew.
    assert same_parameters(one.fit(X), clustering(max_epochs=3).fit(X))
    assert one.n_iter_ == 3


def test_one_row_is_enough_to_go_on() -> None:
    one = clustering().partial_fit(X[:1])
    assert one.labels_.tolist() == [0]
    assert one.n_clusters_ == 1
    assert np.isfinite(one.partial_fit(X).objective_)


def test_a_loaded_model_can_be_gone_on_with(tmp_path: Path) -> None:
    one = clustering().fit(X)
    one.save(tmp_path / "model")
    assert same_parameters(load(tmp_path / "model").partial_fit(X), one.partial_fit(X))


# Callbacks


def test_callbacks_are_called_after_each_epoch() -> None:
    epochs: list[Any] = []
    one = clustering(max_epochs=4, callbacks=[epochs.append]).fit(X)
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4]
    assert {epoch.max_epochs for epoch in epochs} == {4}
    for name in ("objective", "clusters", "entropy"):
        assert [getattr(epoch, name) for epoch in epochs] == one.history_[name]


def test_a_callback_that_returns_true_ends_the_training() -> None:
    seen: list[int] = []
    stops = [lambda epoch: epoch.number == 3, lambda epoch: seen.append(epoch.number)]
    one = clustering(max_epochs=10, callbacks=stops).fit(X)
    assert one.n_iter_ == 3
    assert [len(values) for values in one.history_.values()] == [3, 3, 3]
    assert seen == [1, 2, 3]
    check_labels(one, len(X))


class Visits(contextlib.AbstractContextManager["Visits"]):
    """A callback that notes when it is entered, called and left, and may fail."""

    def __init__(self, fails: bool = False) -> None:
        self.notes: list[str] = []
        self.fails = fails

    def __enter__(self) -> Visits:
        self.notes.append("enter")
        return self

    def __call__(self, epoch: Any) -> None:
        self.notes.append("epoch")
        if self.fails:
            raise KeyboardInterrupt

    def __exit__(self, *error: object) -> None:
        self.notes.append("leave")


def test_a_callback_that_is_a_context_manager_is_entered_and_left() -> None:
    visits = Visits()
    clustering(max_epochs=2, callbacks=[visits]).fit(X)
    assert visits.notes == ["enter", "epoch", "epoch", "leave"]


def test_a_callback_is_left_when_the_training_is_interrupted() -> None:
    visits = [Visits(), Visits(fails=True)]
    with pytest.raises(KeyboardInterrupt):
        clustering(callbacks=visits).fit(X)
    assert [visit.notes for visit in visits] == [["enter", "epoch", "leave"]] * 2


def test_figures_for_tensorboard_can_be_read_back(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    one = clustering(max_epochs=4, callbacks=[TensorBoard(tmp_path / "run")]).fit(X)
    events = accumulator.EventAccumulator(str(tmp_path / "run")).Reload()
    assert set(events.Tags()["scalars"]) == {"objective", "clusters", "entropy"}
    for name, values in one.history_.items():
        scalars = events.Scalars(name)
        assert [scalar.step for scalar in scalars] == [1, 2, 3, 4]
        assert [scalar.value for scalar in scalars] == pytest.approx(values, rel=1e-6)


def test_the_progress_bar_leaves_standard_output_alone(capsys: pytest.CaptureFixture[str]) -> None:
    loud = clustering(verbose=True).fit(X)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "5/5" in captured.err
    assert "objective" in captured.err
    quiet = clustering().fit(X)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert same_parameters(loud, quiet)


def test_patience_ends_a_training_that_no_longer_improves() -> None:
    patient = clustering(max_epochs=500, learning_rate=0.1, patience=5, tol=1e-3).fit(X)
    assert 5 < patient.n_iter_ < 500
    rises = np.maximum.accumulate(patient.history_["objective"])
    assert rises[-1] <= rises[-6] * (1 + 1e-3)
    assert clustering(max_epochs=50, learning_rate=0.1).fit(X).n_iter_ == 50
    # A stricter tolerance stops no later, a longer patience no earlier.
    assert clustering(max_epochs=500, learning_rate=0.1, patience=5, tol=0.1).fit(X).n_iter_ <= patient.n_iter_
    assert clustering(max_epochs=500, learning_rate=0.1, patience=9, tol=1e-3).fit(X).n_iter_ > patient.n_iter_


@pytest.mark.parametrize("parameters", [{}, {"n_init": 3}, {"batch_size": 16}, {"optimiser": "lbfgs"}])
def test_the_history_has_one_entry_an_epoch(parameters: dict[str, Any]) -> None:
    fitted = clustering(max_epochs=4, **parameters).fit(X)
    assert set(fitted.history_) == {"objective", "clusters", "entropy"}
    assert [len(values) for values in fitted.history_.values()] == [4, 4, 4]
    assert fitted.n_iter_ == 4
    assert all(np.isfinite(values).all() for values in fitted.history_.values())
    assert all(1 <= clusters <= 3 for clusters in fitted.history_["clusters"])
    assert all(0 <= entropy <= np.log(3) + 1e-9 for entropy in fitted.history_["entropy"])


# Numbers that are no longer finite


class Fragile(nn.Module):
    """A linear model that returns NaN once its weights have moved far enough."""

    def __init__(self, limit: float, layer: type[nn.Module] = nn.Identity) -> None:
        super().__init__()
        self.linear, self.layer, self.limit = nn.Linear(4, 3), layer(), limit
        self.start = self.linear.weight.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        moved = (self.linear.weight - self.start).abs().max()
        return self.layer(self.linear(x) * torch.where(moved <= self.limit, 1.0, float("nan")))


@pytest.mark.parametrize("layer", [nn.Identity, functools.partial(nn.BatchNorm1d, 3)])
@pytest.mark.parametrize("batch_size", [None, 16])
def test_the_last_good_weights_survive_a_module_that_turns_to_nan(batch_size: int | None, layer: Any) -> None:
    one = clustering(model=Fragile(0.1, layer), max_epochs=100, learning_rate=0.01, batch_size=batch_size)
    with pytest.warns(NumericalWarning, match="last good weights"):
        one.fit(X)
    assert 0 < one.n_iter_ < 100
    assert len(one.history_["objective"]) == one.n_iter_
    assert np.isfinite(one.history_["objective"]).all()
    assert all(value.isfinite().all() for value in parameters_of(one).values())
    assert np.isfinite(one.predict_proba(X)).all()
    assert np.isfinite(one.objective_)
    check_labels(one, len(X))


@pytest.mark.parametrize(
    ("model", "max_epochs", "rate"),
    combinations_of(
        ["linear", "mlp", "free", OwnNetwork(), OwnNetwork(layer=BatchNorm)], [1, 2, 10], [1e6, 1e30, 1e38]
    ),
)
@pytest.mark.filterwarnings("ignore::pollux.training.NumericalWarning")
def test_no_learning_rate_spoils_the_result(model: Any, max_epochs: int, rate: float) -> None:
    rows = X.astype(np.float32)
    for n_init in (1, 3):
        fitted = clustering(model=model, learning_rate=rate, n_init=n_init, max_epochs=max_epochs).fit(rows)
        assert all(value.isfinite().all() for value in fitted.module_.parameters())
        assert np.isfinite(fitted.objective_)
        assert np.isfinite(fitted.probabilities_ if model == "free" else fitted.predict_proba(rows)).all()
        check_labels(fitted, len(X))


def test_a_learning_rate_beyond_all_bounds_is_reported() -> None:
    with pytest.warns(NumericalWarning, match="smaller learning rate"):
        clustering(model="mlp", learning_rate=1e30).fit(X.astype(np.float32))


@pytest.mark.parametrize("n_init", [1, 2])
def test_nan_from_the_first_step_is_an_error_with_advice(n_init: int) -> None:
    factory = lambda n_features, n_clusters: Fragile(-1.0)  # noqa: E731
    with pytest.raises(ValueError, match=r"StandardScaler.*model itself returns NaN"):
        clustering(model=factory, n_init=n_init).fit(X)


def test_a_restart_that_ends_in_nan_is_not_kept() -> None:
    limits = iter([0.03, 1e9])
    factory = lambda n_features, n_clusters: Fragile(next(limits))  # noqa: E731
    # An optimiser that trains them one by one, so that each keeps its limit.
    with pytest.warns(NumericalWarning):
        fitted = clustering(model=factory, n_init=2, max_epochs=30, optimiser=torch.optim.Adamax).fit(X)
    assert fitted.module_.limit == 1e9
    assert np.isfinite(fitted.objective_)


# Optimisers

OWN_OPTIMISERS = [
    torch.optim.Adagrad,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.Rprop,
    torch.optim.ASGD,
    functools.partial(torch.optim.LBFGS, line_search_fn="strong_wolfe"),
    lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True),
]


@pytest.mark.parametrize(("optimiser", "objective"), rotated([*OPTIMISERS, *OWN_OPTIMISERS], ["mmd_ova", "kl_ova"]))
def test_any_optimiser_raises_the_objective(optimiser: Any, objective: str) -> None:
    fitted = clustering(optimiser=optimiser, objective=objective, learning_rate=0.1, max_epochs=5).fit(X)
    assert fitted.history_["objective"][-1] > fitted.history_["objective"][0]
    assert np.isfinite(fitted.objective_)
    # A name stands for torch's own class: its rate is the one that was asked for.
    assert fitted.get_params()["training__optimiser"] is optimiser


def test_an_optimiser_of_the_users_is_given_the_learning_rate() -> None:
    rates = []

    def optimiser(parameters: Any, lr: float) -> torch.optim.Optimizer:
        rates.append(lr)
        return torch.optim.SGD(parameters, lr=lr)

    one = clustering(optimiser=optimiser, learning_rate=0.25).fit(X)
    assert set(rates) == {0.25}
    assert same_parameters(one, clustering(optimiser="sgd", learning_rate=0.25).fit(X))


# Files


def reloaded(fitted: GeminiClustering, folder: Path, *model: Any) -> GeminiClustering:
    fitted.save(folder / "model.pollux")
    return load(folder / "model.pollux", *model)


def check_round_trip(fitted: GeminiClustering, other: GeminiClustering, rows: NDArray[Any]) -> None:
    assert same_parameters(fitted, other)
    assert (other.labels_ == fitted.labels_).all()
    for name in ("history_", "objective_", "n_iter_", "n_clusters_", "n_features_in_", "n_clusters"):
        assert getattr(other, name) == getattr(fitted, name), name
    if fitted.model == "free":
        assert (other.probabilities_ == fitted.probabilities_).all()
        assert not hasattr(other, "predict")
    else:
        assert (other.predict_proba(rows) == fitted.predict_proba(rows)).all()
        assert (other.predict(rows) == fitted.predict(rows)).all()
        assert other.score(rows) == fitted.score(rows)


@pytest.mark.parametrize(
    ("model", "objective", "kind"),
    rotated(["linear", "mlp", "free"], ["mmd_ova", "kl_ovo", "wasserstein_ova"], [np.float32, np.float64]),
)
def test_a_saved_model_comes_back_bit_for_bit(tmp_path: Path, model: str, objective: str, kind: type) -> None:
    rows = X.astype(kind)
    parameters = {"hidden": (7, 5), "activation": "gelu"} if model == "mlp" else {}
    fitted = clustering(model=model, objective=objective, learning_rate=0.03, n_init=2, **parameters).fit(rows)
    other = reloaded(fitted, tmp_path)
    check_round_trip(fitted, other, rows)
    kept = ("model", "objective", "geometry", "activation", "learning_rate", "n_init", "max_epochs", "random_state")
    for name in kept:
        assert flatten_params(other)[name] == flatten_params(fitted)[name], name
    check_round_trip(fitted, reloaded(other, tmp_path), rows)


def test_a_saved_image_model_comes_back_bit_for_bit(tmp_path: Path) -> None:
    for images in (IMAGES, IMAGES.astype(np.float64)):
        fitted = clustering(2, model="lenet5", max_epochs=1).fit(images)
        check_round_trip(fitted, reloaded(fitted, tmp_path), images)


@pytest.mark.parametrize("layer", [nn.Identity, BatchNorm])
@pytest.mark.parametrize("make", [lambda module: module, lambda module: lambda *size: copy.deepcopy(module)])
def test_a_saved_network_of_ones_own_comes_back_bit_for_bit(tmp_path: Path, layer: Any, make: Any) -> None:
    module = OwnNetwork(layer=layer)
    fitted = clustering(model=module).fit(X)
    with pytest.raises(ValueError, match=r"network of your own: pass it, load\(path, model="):
        reloaded(fitted, tmp_path)
    fresh = OwnNetwork(layer=layer)
    before = copy.deepcopy(fresh.state_dict())
    check_round_trip(fitted, reloaded(fitted, tmp_path, make(fresh)), X)
    assert all(torch.equal(fresh.state_dict()[name], value) for name, value in before.items())


def test_a_saved_model_knows_its_feature_names(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    other = reloaded(clustering().fit(frame), tmp_path)
    assert other.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        other.predict(frame.rename(columns={"a": "z"}))


def test_a_saved_free_model_keeps_rows_of_weight_zero(tmp_path: Path) -> None:
    fitted = clustering(model="free").fit(X, sample_weight=np.arange(len(X)) % 3)
    check_round_trip(fitted, reloaded(fitted, tmp_path), X)


@pytest.mark.parametrize("name", ["rbf", "fourier", "polynomial"])
def test_a_saved_model_keeps_the_bandwidth_of_its_training(tmp_path: Path, name: str) -> None:
    fitted = clustering(geometry=name).fit(X)
    other = reloaded(fitted, tmp_path)
    assert other.geometry_.parameters == fitted.geometry_.parameters
    assert other.score(X[:9]) == fitted.score(X[:9])


def test_a_model_fitted_to_a_precomputed_affinity_can_be_saved(tmp_path: Path) -> None:
    fitted = clustering(geometry="precomputed").fit(X, affinity=KERNEL)
    other = reloaded(fitted, tmp_path)
    assert (other.predict_proba(X) == fitted.predict_proba(X)).all()
    assert other.score(X, affinity=KERNEL) == fitted.objective_


NOT_JSON: dict[str, dict[str, Any]] = {
    "a gemini": {"objective": Gemini("kl_ovo")},
    "sampled pairs": {"objective": Gemini("wasserstein_ovo", sampled_pairs=2)},
    "a clip": {"objective": Gemini("kl_ovo", clip=1e-2)},
    "an activation a layer": {"model": "mlp", "hidden": (5, 4), "activation": ("tanh", "identity")},
    "a divergence": {"objective": f_divergence(lambda t: (t - 1) ** 2)},
    "a kernel with a bandwidth": {"geometry": geometry.resolve("rbf", gamma=0.3)},
    "a function": {"geometry": lambda x, y: (x @ y.mT) ** 3},
    "a graph": {"geometry": ShortestPath(neighbours=4), "objective": "wasserstein_ova"},
    "an encoder": {"geometry": Encoded(nn.Linear(4, 2).double(), KERNELS["linear"])},
    "a class of activation": {"model": "mlp", "activation": nn.Tanh},
    "an array": {"model": "mlp", "hidden": np.array([7])},
    "a number of numpy": {"n_clusters": np.int64(4)},
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_a_file_cannot_hold_is_never_silently_replaced(tmp_path: Path, name: str) -> None:
    # The objective, its geometry and the shape of the network decide what predict and score say.
    fitted = clustering(**NOT_JSON[name]).fit(X)
    refused = ""
    try:
        other = reloaded(fitted, tmp_path)
        predictions, score = other.predict_proba(X), other.score(X)
    except (ValueError, TypeError) as error:
        refused = str(error)
    if refused:
        # In words that name what is missing.
        assert any(parameter in refused for parameter in NOT_JSON[name])
    else:
        assert (predictions == fitted.predict_proba(X)).all()
        assert score == fitted.objective_


@pytest.mark.parametrize("options", [{"clip": 1e-2}, {"sampled_pairs": 2}, {"clip": 1e-3, "sampled_pairs": 4}])
def test_a_saved_model_keeps_the_options_of_its_objective(tmp_path: Path, options: dict[str, Any]) -> None:
    fitted = clustering(objective=Gemini("kl_ovo", **options)).fit(X)
    other = reloaded(fitted, tmp_path)
    assert repr(other.objective) == repr(fitted.objective)
    assert other.score(X) == fitted.score(X)


def test_a_saved_model_keeps_its_penalties(tmp_path: Path) -> None:
    fitted = clustering(penalties={"entropy": 0.1, "weight_decay": 2}).fit(X)
    assert reloaded(fitted, tmp_path).penalties == {"entropy": 0.1, "weight_decay": 2}


def test_a_missing_file_or_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="make it first"):
        clustering().fit(X).save(tmp_path / "nowhere" / "model")


@pytest.mark.parametrize("wrong", [nn.Linear(4, 7), nn.Linear(9, 3), OwnNetwork(), lambda *size: OwnNetwork()])
def test_weights_of_another_model_are_refused(tmp_path: Path, wrong: Any) -> None:
    fitted = clustering().fit(X)
    with pytest.raises(ValueError, match="not those of this model"):
        reloaded(fitted, tmp_path, wrong)


@pytest.mark.parametrize("broken", ["pollux.io.tensors.save_file", "pathlib.Path.replace"])
def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    path = tmp_path / "model.pollux"
    clustering().fit(X).save(path)
    before = path.read_bytes()

    def full_disk(*arguments: Any, **options: Any) -> None:
        if broken.endswith("save_file"):
            Path(arguments[1]).write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(broken, full_disk)
    with pytest.raises(OSError, match="No space left"):
        clustering(model="mlp").fit(X).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.pollux"]


def test_a_saved_file_has_the_usual_permissions(tmp_path: Path) -> None:
    fitted = clustering().fit(X)
    before = os.umask(0o022)
    try:
        fitted.save(tmp_path / "model")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o644


def test_a_model_is_saved_only_once_fitted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        clustering().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_loading_does_not_disturb_the_generators(tmp_path: Path) -> None:
    fitted = clustering(model="mlp").fit(X)
    fitted.save(tmp_path / "model")
    state = torch.get_rng_state()
    load(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_is_saved_whatever_the_path_is(tmp_path: Path) -> None:
    fitted = clustering().fit(X)
    for path in (tmp_path / "a", str(tmp_path / "b c.é")):
        fitted.save(path)
        assert same_parameters(pollux.load(path), fitted)


def test_a_buffer_is_not_a_path() -> None:
    with pytest.raises(TypeError):
        clustering().fit(X).save(io.BytesIO())  # type: ignore[arg-type]


def test_a_partial_fit_keeps_what_it_does_not_learn_anew() -> None:
    one = make_clustering(3, model="linear", n_init=2, max_epochs=2, random_state=0).fit(
        pd.DataFrame(X).add_prefix("x")
    )
    stability, names = one.stability_, one.feature_names_in_
    frame = pd.DataFrame(X, columns=names)
    one.partial_fit(frame)
    assert stability is not None
    assert one.stability_ == stability
    assert np.array_equal(one.feature_names_in_, names)
    # Gaps cannot be filled by a model whose fit has not learned with what.
    one.set_params(preprocessing__missing="mean").partial_fit(frame)
    with pytest.raises(ValueError, match="contains NaN"):
        one.predict(frame.mask(frame > 1))


def test_an_objective_without_a_geometry_for_a_while_does_not_lose_it() -> None:
    one = make_clustering(3, model="linear", objective="mmd_ova", max_epochs=2, random_state=0).fit(X)
    one.set_params(objective="mi").partial_fit(X)
    assert np.isfinite(one.set_params(objective="mmd_ova").score(X))


def test_features_are_named_after_the_clusters_of_the_fit() -> None:
    one = make_clustering(3, model="linear", max_epochs=2, random_state=0).set_output(transform="pandas").fit(X)
    one.set_params(n_clusters=5)
    assert list(one.get_feature_names_out()) == list(one.transform(X).columns)
    with pytest.raises(NotFittedError):
        clone(one).get_feature_names_out()


def test_whether_a_training_diverged_is_in_its_file(tmp_path: Path) -> None:
    one = make_clustering(3, model="linear", max_epochs=2, random_state=0).fit(X)
    for diverged in (True, False):
        one.fitted_ = replace(one.fitted_, diverged=diverged)
        one.save(tmp_path / "model")
        assert load(tmp_path / "model").diverged_ is diverged
