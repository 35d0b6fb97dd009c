"""What goes wrong around the numbers: calls that fail, files, clones, kernels and networks with a life of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from torch import Tensor, nn

import pollux
from flat_parameters import make_clustering
from pollux import Gemini, GeminiClustering
from pollux.clustering import CollapseWarning
from pollux.geometry import KERNELS, Features, Pairwise, resolve
from pollux.objectives.gradients import CLOSED_FORMS, value_and_gradient
from pollux.training import ProgressBar
from pollux.training.trainable import try_stack

X = load_iris().data
KERNEL = X @ X.T


def clustering(**settings: Any) -> GeminiClustering:
    return make_clustering(3, **{"model": "linear", "max_epochs": 5, "random_state": 0, **settings})


def weights(fitted: GeminiClustering) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in fitted.module_.parameters()])


def test_a_partial_fit_that_fails_leaves_the_model_as_it_was() -> None:
    one, other = (clustering().partial_fit(X).partial_fit(X) for _ in range(2))
    spoilt = X.copy()
    spoilt[7] = 1e300
    with pytest.raises(ValueError, match="too large"):
        one.partial_fit(spoilt)
    assert torch.equal(weights(one), weights(other))
    assert torch.equal(weights(one.partial_fit(X)), weights(other.partial_fit(X)))


def test_a_callback_that_raises_leaves_the_model_as_it_was() -> None:
    fitted = clustering().partial_fit(X)
    before, history = weights(fitted).clone(), dict(fitted.history_)

    def interrupt(epoch: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted.set_params(callbacks=[interrupt]).partial_fit(X)
    assert torch.equal(weights(fitted), before)
    assert fitted.history_ == history
    assert not fitted.module_.training


def test_a_file_does_not_turn_a_given_matrix_into_the_default_kernel(tmp_path: Path) -> None:
    fitted = clustering().fit(X, affinity=KERNEL**2)
    fitted.save(tmp_path / "model")
    loaded = pollux.load(tmp_path / "model")
    with pytest.raises(ValueError, match="affinity"):
        loaded.score(X)
    assert loaded.score(X, affinity=KERNEL**2) == pytest.approx(fitted.objective_)


def test_named_kernels_come_back_from_a_file_and_own_ones_are_missed(tmp_path: Path) -> None:
    cosine = clustering(geometry=KERNELS["cosine"]).fit(X)
    cosine.save(tmp_path / "cosine")
    assert pollux.load(tmp_path / "cosine").score(X) == cosine.objective_
    own = clustering(geometry=Pairwise("mine", "kernel", lambda x, y: (x @ y.mT) ** 3)).fit(X)
    own.save(tmp_path / "own")
    loaded = pollux.load(tmp_path / "own")
    assert (loaded.predict(X) == own.labels_).all()
    with pytest.raises(ValueError, match="geometry"):
        loaded.score(X)


def test_a_model_of_any_device_loads_on_the_cpu_and_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    fitted = clustering().fit(X)
    fitted.device = "cuda:7"
    fitted.save(tmp_path / "model")
    assert (pollux.load(tmp_path / "model").predict(X) == fitted.labels_).all()
    with pytest.raises(ValueError, match=r"cuda:7.*'cpu'"):
        pollux.load(tmp_path / "model", device="cuda:7")


@pytest.mark.parametrize("offset", [1e2, 1e4])
@pytest.mark.parametrize("name", ["mmd_ova", "mmd_ovo"])
def test_features_far_off_centre_keep_their_digits_in_single_precision(name: str, offset: float) -> None:
    x = (torch.from_numpy(X).float() + offset).double()
    logits = torch.randn(len(x), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def gradient(dtype: torch.dtype) -> Tensor:
        traced = logits.to(dtype).requires_grad_()
        value = Gemini(name)(traced.log_softmax(-1), Features(x.to(dtype)))
        return torch.autograd.grad(value, traced)[0].double()

    error = (gradient(torch.float32) - gradient(torch.float64)).norm() / gradient(torch.float64).norm()
    assert error < 1e-4


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_a_clone_knows_its_objective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    copied = clone(clustering(objective=Gemini(name)))
    affinity = {None: None, "kernel": Features(torch.from_numpy(X)), "distance": torch.zeros(len(X), len(X))}
    with monkeypatch.context() as patch:
        # It keeps its closed form.
        patch.delattr(torch.autograd, "grad")
        value_and_gradient(copied.objective, torch.zeros(len(X), 3), affinity[copied.objective.needs])
    copied.fit(X).save(tmp_path / "model")
    assert pollux.load(tmp_path / "model").score(X) == copied.objective_


@pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")
@pytest.mark.parametrize("model", ["linear", nn.Linear(4, 3)])
def test_a_kernel_may_come_from_a_network(model: Any) -> None:
    encoder = nn.Linear(4, 2)
    fitted = clustering(geometry=lambda x, y: encoder(x.float()) @ encoder(y.float()).mT, model=model).fit(X)
    assert np.isfinite(fitted.objective_)
    assert encoder.weight.grad is None


def test_an_encoder_may_have_another_precision_than_the_rows() -> None:
    fitted = clustering(geometry=resolve("linear", encoder=nn.Linear(4, 2).float())).fit(X.astype(np.float64))
    assert np.isfinite(fitted.objective_)


class HiddenTensor(nn.Module):
    """A network with a random tensor that is neither a parameter nor a buffer."""

    def __init__(self, n_features: int, n_clusters: int) -> None:
        super().__init__()
        self.projection = torch.randn(n_features, 6, dtype=torch.float64)
        self.last = nn.Linear(6, n_clusters)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x @ self.projection)


def test_networks_that_differ_in_more_than_parameters_are_trained_one_by_one() -> None:
    torch.manual_seed(0)
    modules = [HiddenTensor(4, 3).double() for _ in range(3)]
    assert try_stack(modules, 3, torch.from_numpy(X)) is None
    fitted = clustering(model=HiddenTensor, n_init=3).fit(X)
    assert fitted.history_["objective"][-1] == pytest.approx(fitted.objective_, rel=0.2)


class SometimesNaN(nn.Module):
    """Every second one of these returns NaN; batch normalisation keeps them from being trained as one."""

    made = 0

    def __init__(self, n_features: int, n_clusters: int) -> None:
        super().__init__()
        SometimesNaN.made += 1
        self.factor = float("nan") if SometimesNaN.made % 2 == 0 else 1.0
        self.layers = nn.Sequential(nn.Linear(n_features, n_clusters), nn.BatchNorm1d(n_clusters))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) * self.factor


def test_a_start_that_fails_does_not_take_the_others_with_it() -> None:
    SometimesNaN.made = 0
    assert np.isfinite(clustering(model=SometimesNaN, n_init=3).fit(X).objective_)
    SometimesNaN.made = 1
    with pytest.raises(ValueError, match="NaN"):
        clustering(model=SometimesNaN, n_init=1).fit(X)


def test_what_can_be_read_only_once_is_refused() -> None:
    with pytest.raises(TypeError, match="callbacks"):
        clustering(callbacks=iter([print])).fit(X)
    with pytest.raises(ValueError, match="hidden"):
        clustering(model="mlp", hidden=(width for width in (7,))).fit(X)


def test_prediction_works_in_inference_mode() -> None:
    fitted = clustering().fit(X)
    with torch.inference_mode():
        assert (fitted.predict(X) == fitted.labels_).all()
        inside = clustering().fit(X)
    assert np.allclose(inside.predict_proba(X), fitted.predict_proba(X))


def test_an_estimator_with_a_progress_bar_can_be_cloned_after_its_fit(capsys: pytest.CaptureFixture[str]) -> None:
    fitted = clustering(callbacks=[ProgressBar()]).fit(X)
    assert clone(fitted).fit(X).objective_ == fitted.objective_
    assert "objective" in capsys.readouterr().err


def test_equal_rows_do_not_set_the_bandwidth() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 40))
    rows[10:] = rows[0]
    gamma = resolve("rbf").adapt(rows).parameters["gamma"]
    assert 1e-4 < gamma < 1


def test_a_geometry_of_the_other_kind_is_not_taken_for_the_right_one() -> None:
    fitted = clustering(geometry="rbf").fit(X)
    with pytest.raises(ValueError, match="no distance"):
        fitted.set_params(objective="wasserstein_ova").score(X)


def test_a_numpy_affinity_is_explained() -> None:
    with pytest.raises(TypeError, match=r"The affinity must be a tensor, Features or Paths, not ndarray\."):
        Gemini("mmd_ova")(torch.zeros(5, 2).log_softmax(-1), np.eye(5))


def test_large_images_are_evaluated_in_parts() -> None:
    seen: list[int] = []

    class Watching(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x)

    images = np.random.default_rng(0).normal(size=(1200, 1, 4, 4)).astype(np.float32)
    network = Watching(nn.Flatten(), nn.Linear(16, 3))
    fitted = clustering(model=network, max_epochs=1, batch_size=100).fit(images)
    assert max(seen) <= 500
    assert len(fitted.predict(images)) == 1200


def test_a_collapse_is_said_with_advice() -> None:
    with pytest.warns(CollapseWarning, match=r"StandardScaler.*n_init"):
        fitted = clustering(model="mlp", max_epochs=100).fit(load_wine().data)
    assert fitted.n_clusters_ == 1


@pytest.mark.parametrize("forgotten", ["logits", "probabilities"])
def test_a_forgotten_log_softmax_is_noticed(forgotten: str) -> None:
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="log_softmax"):
        Gemini("mi")(logits if forgotten == "logits" else logits.softmax(-1))


def test_distances_are_not_taken_for_a_kernel() -> None:
    distances = torch.cdist(torch.from_numpy(X), torch.from_numpy(X))
    with pytest.raises(ValueError, match="Wasserstein"):
        clustering().fit(X, affinity=distances)


def test_new_columns_that_are_no_numbers_are_named() -> None:
    frame = pandas.DataFrame(X, columns=list("abcd"))
    other = frame.assign(city=pandas.Categorical(["Rome", "Oslo"] * 75), day=pandas.Timestamp("2020-01-01"))
    with pytest.raises(ValueError, match="city, day do not hold numbers"):
        clustering().fit(frame).predict(other)


def test_a_network_that_fails_says_on_what() -> None:
    with pytest.raises(ValueError, match=r"failed on inputs of shape \(150, 4\)"):
        clustering(model=nn.Linear(5, 3)).fit(X)
    with pytest.raises(ValueError, match="no parameters"):
        clustering(model=nn.Flatten()).fit(X[:, :3])


@pytest.mark.parametrize("method", ["fit", "fit_predict", "fit_transform", "partial_fit"])
def test_warnings_point_at_the_line_of_the_user(method: str) -> None:
    one = GeminiClustering(3, model="linear", max_epochs=1, random_state=0)
    with pytest.warns(CollapseWarning) as caught:
        getattr(one, method)(np.zeros((5, 2)))
    assert [warning.filename for warning in caught] == [__file__]
