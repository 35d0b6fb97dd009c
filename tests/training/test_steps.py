"""Compiled steps, and gradients in closed form, give what autograd gives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from torch import Tensor, nn

from coverings import combinations_of
from pollux import Gemini, GeminiClustering, Training
from pollux.geometry.affinity import Affinity, Features
from pollux.objectives import GEMINIS
from pollux.objectives.gradients import CLOSED_FORMS, value_and_gradient
from pollux.training.batches import Batch, RowBatches
from pollux.training.steps import AutogradStep, ClusterMetrics, CompiledStep
from pollux.training.trainable import DenseModels, SingleModel, has_compiled_steps
from small_models import spread_of_rounding


def random_logits(*shape: int, scale: float = 2.0, seed: int = 0) -> Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def centred_features(n: int, r: int) -> Features:
    values = random_logits(n, r, seed=7)
    return Features(values - values.mean(0))


def affinity_for(name: str, features: Features) -> Affinity:
    """The features, or the distances between them where the objective needs those."""
    values = features.values
    distances = torch.cdist(values, values, compute_mode="donot_use_mm_for_euclid_dist")
    return distances if Gemini(name).needs == "distance" else features


def by_autograd(name: str, logits: Tensor, affinity: Affinity) -> tuple[Tensor, Tensor]:
    logits = logits.clone().requires_grad_()
    value = Gemini(name, clip=None)(logits.log_softmax(-1), affinity)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    return value.detach(), gradient


@pytest.mark.parametrize("shape", [(30, 4), (3, 30, 4), (30, 1), (1, 3)])
@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_form_is_the_gradient(name: str, shape: tuple[int, ...]) -> None:
    logits, affinity = random_logits(*shape), affinity_for(name, centred_features(shape[-2], 5))
    value, gradient = value_and_gradient(Gemini(name, clip=None), logits, affinity)
    expected_value, expected_gradient = by_autograd(name, logits, affinity)
    torch.testing.assert_close(value, expected_value, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_form_is_finite_where_predictions_saturate(name: str, dtype: torch.dtype) -> None:
    logits = random_logits(30, 4, scale=1e3).to(dtype)
    logits[:, 3] = -1e4  # a cluster that nothing prefers
    features = Features(centred_features(30, 5).values.to(dtype))
    value, gradient = value_and_gradient(Gemini(name, clip=None), logits, affinity_for(name, features))
    assert value.isfinite()
    assert gradient.isfinite().all()
    expected_value, _ = by_autograd(name, logits.double(), affinity_for(name, centred_features(30, 5)))
    torch.testing.assert_close(value.double(), expected_value, rtol=1e-4, atol=1e-6)


def test_closed_form_names_are_objectives() -> None:
    assert set(CLOSED_FORMS) <= set(GEMINIS)


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_sample_weights_reach_the_gradient(name: str) -> None:
    logits, affinity = random_logits(20, 3), affinity_for(name, centred_features(20, 4))
    weight = torch.arange(1.0, 21, dtype=torch.float64)
    value, gradient = value_and_gradient(Gemini(name), logits, affinity, weight)
    traced = logits.clone().requires_grad_()
    expected = Gemini(name)(traced.log_softmax(-1), affinity, sample_weight=weight)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, traced)[0])


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(5, 7),
        nn.Tanh(),
        nn.Linear(7, 6),
        nn.ReLU(),
        nn.Linear(6, 8),
        nn.Sigmoid(),
        nn.Linear(8, 6),
        nn.Identity(),
        nn.Linear(6, 4),
    )


@pytest.mark.parametrize(
    ("name", "make", "restarts"),
    combinations_of(["kl_ova", "mmd_ova", "mmd_ovo"], [lambda: nn.Linear(5, 4), perceptron], [1, 2]),
)
def test_a_step_is_the_step_of_torch_adam(name: str, make: type[nn.Module], restarts: int) -> None:
    torch.manual_seed(0)
    modules = [make().double() for _ in range(restarts)]
    expected = copy.deepcopy(modules)
    features = centred_features(40, 5)
    batch = Batch(features.values + 1, features, None)
    model = DenseModels(modules, learning_rate=1e-2)
    step = CompiledStep(model, Gemini(name))
    for _ in range(25):
        step(batch)
    model.sync()

    def train_by_autograd(module: nn.Module, inputs: Tensor) -> list[float]:
        by_autograd = AutogradStep(SingleModel(module, 4), Gemini(name), torch.optim.Adam(module.parameters(), lr=1e-2))
        for _ in range(25):
            by_autograd(Batch(inputs, features, None))
        return torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).tolist()

    for module, same in zip(modules, expected, strict=True):
        start, inputs = copy.deepcopy(same), batch.inputs.numpy()
        again = lambda samples: train_by_autograd(copy.deepcopy(start), torch.from_numpy(samples))  # noqa: B023, E731
        # Sums over 40 samples, in 25 steps.
        tolerance = spread_of_rounding(again, inputs, roundings=40 * 25)
        found = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
        np.testing.assert_allclose(found, train_by_autograd(same, batch.inputs), rtol=0, atol=tolerance)
        assert tolerance < 1e-6


@pytest.mark.parametrize("model", ["linear", "mlp"])
@pytest.mark.parametrize("batch_size", [None, 50])
def test_the_estimator_learns_the_same_by_autograd_and_by_compiled_steps(model: str, batch_size: int | None) -> None:
    X = load_iris().data
    settings = {"n_clusters": 4, "model": model, "batch_size": batch_size, "max_epochs": 8, "random_state": 0}
    without = GeminiClustering(**settings, training=Training(optimiser="adam")).fit(X)

    def train_by_autograd(samples: NDArray[Any]) -> GeminiClustering:
        return GeminiClustering(**settings, training=Training(optimiser=torch.optim.Adam)).fit(samples)

    by_autograd = train_by_autograd(X)
    results: list[Callable[[GeminiClustering], Any]] = [
        lambda fitted: fitted.predict_proba(X),
        lambda fitted: fitted.history_["objective"],
        lambda fitted: fitted.history_["entropy"],
    ]
    for result in results:
        again = lambda samples, result=result: result(train_by_autograd(samples))  # noqa: E731
        # Sums over a batch of samples, in as many steps as make 8 epochs.
        tolerance = spread_of_rounding(again, X, roundings=8 * len(X))
        np.testing.assert_allclose(result(without), result(by_autograd), rtol=0, atol=tolerance)
        assert tolerance < 1e-6


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Linear(5, 4), True),
        (nn.Sequential(nn.Flatten(), nn.Linear(5, 4)), True),
        (perceptron(), True),
        (nn.Linear(5, 4, bias=False), False),
        (nn.Linear(5, 3), False),
        (nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 4)), False),
        (nn.Sequential(nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 4)), False),
        (nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4)), False),
        (nn.Linear(50_000, 4), False),
    ],
)
def test_only_small_dense_networks_have_compiled_steps(module: nn.Module, expected: bool) -> None:
    assert has_compiled_steps(module, n_clusters=4) is expected


def test_frozen_layers_have_no_compiled_steps() -> None:
    module = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4))
    module[0].requires_grad_(False)
    assert not has_compiled_steps(module, n_clusters=4)


def test_fitting_gives_the_threads_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        GeminiClustering(3, model="linear", max_epochs=2, random_state=0).fit(load_iris().data)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_compiled_step_follows_its_learning_rate() -> None:
    modules = [nn.Linear(4, 3, dtype=torch.float64)]
    model = DenseModels(modules, 0.1)
    step = CompiledStep(model, Gemini("mi"))
    before = model.parameters.clone()
    step.scale_learning_rate(0.0)
    batch = Batch(torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(5, 4), None, None)
    step(batch)
    assert torch.equal(model.parameters, before)
    step.scale_learning_rate(1.0)
    step(batch)
    assert not torch.equal(model.parameters, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("objective", ["kl_ovo", "mmd_ova"])
def test_steps_on_several_batches_at_once_are_steps_one_by_one(objective: str, dtype: torch.dtype) -> None:
    """With the same bits: it makes no difference where a training was interrupted."""
    torch.manual_seed(0)
    X, weight = torch.randn(50, 5, dtype=dtype), torch.arange(50, dtype=torch.float64)
    modules = [nn.Sequential(nn.Linear(5, 40), nn.ReLU(), nn.Linear(40, 3)).to(dtype) for _ in range(2)]
    results = []
    for at_once in (1, 2, 100):
        model = DenseModels(modules, 0.01)
        step, metrics = CompiledStep(model, Gemini(objective)), ClusterMetrics()
        block = (lambda index: Features(X[index])) if objective == "mmd_ova" else None
        batches = RowBatches(50, 8, X.__getitem__, block, weight, selects=True)
        for batch, steps in batches.groups(torch.Generator().manual_seed(0), 0, at_once):
            step.scale_learning_rate(*[0.5] * steps)
            metrics.update(*step(batch))
        results.append([model.parameters, *metrics.compute().values()])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.parametrize("options", [{"n_init": 1}, {"n_init": 3}, {"n_init": 2, "init": "kmeans"}], ids=str)
def test_without_a_compiler_autograd_takes_the_steps(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    X = load_iris().data
    settings = {"model": "mlp", "model__hidden": (8,), "objective": "mmd_ova", "batch_size": 50, "max_epochs": 5}
    fits = []
    for is_built in (True, False):
        with monkeypatch.context() as patch:
            if not is_built:
                for place in ("training.trainable", "objectives.gradients"):
                    patch.setattr(f"pollux.{place}.load_compiled", lambda: None)
            model = GeminiClustering(3, model="mlp", random_state=0).set_params(**settings, **options)
            fits.append(model.fit(X))
    if "init" not in options:
        # Labels are learned in another order of batches.
        np.testing.assert_allclose(fits[0].predict_proba(X), fits[1].predict_proba(X), rtol=1e-6, atol=1e-9)
    assert fits[0].history_["objective"] == pytest.approx(fits[1].history_["objective"], rel=0.1)
