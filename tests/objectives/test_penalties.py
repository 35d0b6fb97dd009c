"""Penalties: balance of clusters, and moves of samples by a share of the distance to their neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pollux.data.rows import Rows
from pollux.models import mlp
from pollux.objectives import GEMINIS, PENALTIES
from pollux.objectives.penalties import LocalVat, balance, vat
from pollux.training import (
    SingleModel,
    StackedModels,
    starting,
)
from pollux.training.problem import measure_spacing
from small_models import X, same_weights, small

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are not as good as they could be."""
    monkeypatch.setattr(starting, "_FEWEST_STEPS", 50)


def test_balance_is_zero_for_equal_sizes_and_log_k_at_collapse() -> None:
    model: Any = None
    inputs = torch.zeros(6, 2)
    equal = torch.eye(3).repeat(2, 1).clamp_min(1e-30).log()
    assert float(balance(model, inputs, equal)) == pytest.approx(0, abs=1e-6)
    soft = torch.full((6, 3), 1 / 3).log()
    assert float(balance(model, inputs, soft)) == pytest.approx(0, abs=1e-6)
    collapsed = torch.tensor([[0.0, -torch.inf, -torch.inf]]).expand(6, 3)
    assert float(balance(model, inputs, collapsed)) == pytest.approx(math.log(3))
    stacked = torch.stack([equal, collapsed])
    assert balance(model, inputs, stacked).tolist() == pytest.approx([0, math.log(3)], abs=1e-6)


def test_balance_counts_a_weight_of_two_as_two() -> None:
    model: Any = None
    log_p = torch.randn(5, 3, dtype=torch.float64).log_softmax(-1)
    weight = torch.tensor([1, 2, 1, 3, 1])
    copied = log_p.repeat_interleave(weight, 0)
    weighted = balance(model, log_p, log_p, weight.double())
    torch.testing.assert_close(weighted, balance(model, copied, copied))
    expected = math.log(3) + float(torch.special.xlogy(copied.exp().mean(0), copied.exp().mean(0)).sum())
    assert float(weighted) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["entropy", "balance", "vat"])
def test_what_is_not_log_probabilities_is_refused(name: str) -> None:
    logits = torch.randn(20, 3)
    for wrong in (logits.softmax(-1), logits, -logits.exp()):
        with pytest.raises(ValueError, match=r"log-probabilities.*call \.log_softmax"):
            PENALTIES[name](watched(), torch.randn(20, 4).double(), wrong)


@pytest.mark.parametrize("logits", [torch.zeros(5, 3), 200 * torch.eye(3)[[0, 0, 0, 0, 0]]])
def test_gradients_of_balance_are_finite(logits: Tensor) -> None:
    model: Any = None
    logits = logits.clone().requires_grad_()
    balance(model, logits, logits.log_softmax(-1)).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


class Watched:
    """A linear model that remembers what it was asked about."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.asked: list[Tensor] = []

    def __call__(self, inputs: Tensor) -> Tensor:
        return (inputs @ self.weight).log_softmax(-1)

    def each(self, inputs: Tensor) -> Tensor:
        self.asked.append(inputs.detach())
        return self(inputs)

    def parameters(self) -> list[Tensor]:
        return [self.weight]


def watched(d: int = 4, n_clusters: int = 3) -> Watched:
    return Watched(torch.randn(d, n_clusters, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


def test_moves_have_the_length_of_each_sample() -> None:
    model, inputs = watched(), torch.as_tensor(X)
    radius = torch.linspace(0, 2, len(X), dtype=torch.float64)
    vat(model, inputs, model(inputs), None, torch.Generator().manual_seed(0), radius=radius)
    lengths = (model.asked[-1] - inputs).norm(dim=1)
    torch.testing.assert_close(lengths, radius, atol=1e-9, rtol=1e-9)


def test_moves_of_images_have_the_length_of_each_sample() -> None:
    inputs = torch.as_tensor(X).view(-1, 1, 2, 2)
    base = watched()
    model = Watched(base.weight)
    model.__class__ = type("Flat", (Watched,), {"__call__": lambda self, x: Watched.__call__(self, x.flatten(1))})
    radius = torch.linspace(0.1, 2, len(X))
    vat(model, inputs, model(inputs), None, torch.Generator().manual_seed(0), radius=radius)
    lengths = (model.asked[-1] - inputs).flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, radius.double(), atol=1e-6, rtol=1e-6)


def test_one_radius_for_all_is_that_radius_for_each() -> None:
    model, inputs = watched(), torch.as_tensor(X)
    one, other = (
        vat(model, inputs, model(inputs), None, torch.Generator().manual_seed(0), radius=radius)
        for radius in (0.7, torch.full((len(X),), 0.7))
    )
    torch.testing.assert_close(one, other, rtol=1e-6, atol=0)


class Unmoved(Watched):
    """A model whose gradients are so small that their squares are no numbers of float32."""

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.tensor([0.2, 0.3, 0.5], dtype=inputs.dtype).log() + 1e-30 * (inputs @ self.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moves_have_their_length_where_predictions_hardly_change(dtype: torch.dtype) -> None:
    model, inputs = Unmoved(watched().weight.to(dtype)), torch.as_tensor(X).to(dtype)
    vat(model, inputs, model(inputs), None, torch.Generator().manual_seed(0), radius=0.5)
    lengths = (model.asked[-1] - inputs).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 0.5), rtol=1e-4, atol=0)


def test_local_moves_are_a_share_of_the_distance_to_the_tenth_neighbour() -> None:
    model, inputs = watched(), torch.as_tensor(X)
    apart = measure_spacing(Rows(X))
    expected = np.sort(np.linalg.norm(X[:, None] - X, axis=-1), 1)[:, 10]
    np.testing.assert_allclose(apart, expected)
    LocalVat(share=0.3)(model, inputs, model(inputs), None, torch.Generator().manual_seed(0), spacing=apart)
    torch.testing.assert_close((model.asked[-1] - inputs).norm(dim=1), 0.3 * apart)
    few = measure_spacing(Rows(X[:3]))
    np.testing.assert_allclose(few, np.linalg.norm(X[:3, None] - X[:3], axis=-1).max(1))


def test_equal_rows_are_not_moved() -> None:
    model, inputs = watched(), torch.ones(20, 4, dtype=torch.float64)
    value = LocalVat()(model, inputs, model(inputs), None, torch.Generator(), spacing=measure_spacing(Rows(inputs)))
    assert float(value) == 0


def test_the_penalty_of_a_sample_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="there is one sample only: use 'vat'"):
        small(penalties={"local_vat": 1.0}).partial_fit(X[:1])
    with pytest.raises(ValueError, match="a free table has none"):
        small(model="free", penalties={"local_vat": 1.0}).fit(X)


@pytest.mark.parametrize("objective", GEMINIS)
def test_local_vat_joins_every_objective(objective: str) -> None:
    options: dict[str, Any] = {"objective": objective, "max_epochs": 1, "batch_size": 15, "n_init": 2}
    rows = X[::3]
    fitted = small(**options, penalties={"local_vat": 5.0, "balance": 1.0}).fit(rows)
    assert math.isfinite(fitted.objective_)
    assert not same_weights(fitted, small(**options, penalties={"balance": 1.0}).fit(rows))


def test_gradients_flow_through_local_vat() -> None:
    module = mlp(4, 3, hidden=(5,)).double()
    inputs = torch.as_tensor(X)
    model = SingleModel(module, 3)
    log_p = model(inputs)
    LocalVat()(model, inputs, log_p, None, torch.Generator().manual_seed(0), spacing=torch.ones(75)).backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in module.parameters())


@pytest.mark.parametrize("penalty", [vat, LocalVat()])
def test_vat_takes_a_plain_network(penalty: Any) -> None:
    """Moved inputs do not enter its running statistics, as within a fit."""
    network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).double()
    inputs = torch.as_tensor(X)
    log_p = network(inputs).log_softmax(-1)
    before = [buffer.clone() for buffer in network.buffers()]
    also = {"spacing": measure_spacing(Rows(X))} if penalty is not vat else {}
    one, other = (
        penalty(model, inputs, log_p, None, torch.Generator().manual_seed(0), **also)
        for model in (network, SingleModel(network, 3))
    )
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    for buffer, kept in zip(network.buffers(), before, strict=True):
        torch.testing.assert_close(buffer, kept, rtol=0, atol=0)
    one.backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_restarts_trained_together_are_penalised_one_by_one() -> None:
    modules = [nn.Linear(4, 3).double() for _ in range(3)]
    # Of a number of rows for which three draws give the numbers of one that is thrice as long.
    rows = X[:64]
    inputs, apart = torch.as_tensor(rows), measure_spacing(Rows(rows))

    def penalty(model: SingleModel | StackedModels, generator: torch.Generator) -> Tensor:
        log_p = model(inputs).detach()
        return LocalVat(steps=2)(model, inputs, log_p, None, generator, spacing=apart).detach()

    together = penalty(StackedModels(modules, 3), torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    alone = [penalty(SingleModel(module, 3), generator) for module in modules]
    torch.testing.assert_close(together, torch.stack(alone))


def test_penalties_that_ask_for_the_spacing_are_given_that_of_their_batch() -> None:
    given: list[Tensor] = []

    def penalty(model: Any, inputs: Tensor, log_p: Tensor, weight: Any, generator: Any, *, spacing: Tensor) -> Tensor:
        given.append(spacing)
        return log_p.sum() * 0

    penalty.uses_spacing = True  # type: ignore[attr-defined]
    small(penalties={penalty: 1.0}, max_epochs=1, batch_size=25).fit(X)
    assert [len(part) for part in given] == [25, 25, 25]
    everything = np.sort(torch.cat(given).numpy())
    np.testing.assert_allclose(everything, np.sort(measure_spacing(Rows(X)).numpy()))
