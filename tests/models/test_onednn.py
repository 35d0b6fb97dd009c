"""Linear layers by oneDNN: those of torch, up to the rounding of their sums."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pollux.models import linear, mlp
from pollux.models.onednn import _LARGE, _is_large, _OneDNNMode, _vendor, fast_linear_layers
from pollux.training.trainable import logits_of

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="torch is built without oneDNN",
)
B, D, K = 400, 250, 100
assert B * D * K >= _LARGE


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, WEIGHT, BIAS = drawn(B, D), drawn(K, D, seed=1), drawn(K, seed=2)


def assert_same(found: Tensor, expected: Tensor, terms: int, size: float) -> None:
    """Sums of so many products of this size, each in its own order."""
    tolerance = 4 * terms**0.5 * torch.finfo(torch.float32).eps * size * max(1, terms**0.5)
    assert found.shape == expected.shape
    assert float((found.double() - expected.double()).abs().max()) <= tolerance


def test_products_are_those_of_torch() -> None:
    with _OneDNNMode():
        found = functional.linear(X, WEIGHT, BIAS)
        without = functional.linear(X, WEIGHT)
    exact = X.double() @ WEIGHT.double().T
    assert_same(found, exact + BIAS, D, 10)
    assert_same(without, exact, D, 10)


def gradients(layer: Callable[..., Tensor]) -> list[Tensor]:
    parts = [each.clone().requires_grad_() for each in (X, WEIGHT, BIAS)]
    layer(*parts).square().mean().backward()  # type: ignore[no-untyped-call]
    return [part.grad for part in parts if part.grad is not None]


def test_gradients_are_those_of_torch() -> None:
    expected = gradients(functional.linear)
    with _OneDNNMode():
        found = gradients(functional.linear)
    assert len(found) == 3
    for one, other in zip(found, expected, strict=True):
        # Gradients are means over the samples, so they are smaller than what is summed.
        assert_same(one, other, max(B, D, K), float(other.abs().max()))


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_only_the_gradients_that_are_asked_for_are_computed(wanted: tuple[bool, bool]) -> None:
    x, weight = X.clone().requires_grad_(wanted[0]), WEIGHT.clone().requires_grad_(wanted[1])
    with _OneDNNMode():
        functional.linear(x, weight).sum().backward()  # type: ignore[no-untyped-call]
    assert (x.grad is not None, weight.grad is not None) == wanted
    ones = torch.ones(B, K)
    for leaf, expected, terms in ((x, ones @ WEIGHT, K), (weight, ones.T @ X, B)):
        if leaf.grad is not None:
            assert_same(leaf.grad, expected, terms, 10)


def test_second_derivatives_are_those_of_torch() -> None:
    def penalty(x: Tensor, weight: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(functional.linear(x, weight).tanh().sum(), x, create_graph=True)
        return gradient.square().mean()

    def of(weight: Tensor) -> Tensor:
        weight = weight.clone().requires_grad_()
        return torch.autograd.grad(penalty(X / 20, weight), weight)[0]

    expected = of(WEIGHT / 20)
    with _OneDNNMode():
        found = of(WEIGHT / 20)
    assert float(expected.abs().max()) > 0
    assert_same(found, expected, max(B, D, K), float(expected.abs().max()))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_transforms_of_torch_func() -> None:
    weights = torch.stack([WEIGHT, -2 * WEIGHT])
    with _OneDNNMode():
        batched = torch.func.vmap(functional.linear, in_dims=(None, 0))(X, weights)
        by_vmap = torch.func.vmap(torch.func.grad(lambda w: functional.linear(X, w).square().sum()))(weights)
        _, tangent = torch.func.jvp(lambda x, w: functional.linear(x, w), (X, WEIGHT), (X / 2, WEIGHT / 4))
    assert_same(batched, X @ weights.mT, D, 20)
    expected = 2 * (X @ weights.mT).mT @ X
    assert_same(by_vmap, expected, B, float(expected.abs().max()))
    assert_same(tangent, 0.75 * X @ WEIGHT.T, D, 10)


@pytest.mark.parametrize(
    "arguments",
    [
        (X[:9], WEIGHT),
        (X.double(), WEIGHT.double()),
        (X[None], WEIGHT),
        (X[0], WEIGHT),
        (drawn(100_000, 3), drawn(K, 3)),
        (X.to("meta"), WEIGHT.to("meta")),
        (X.bfloat16(), WEIGHT.bfloat16()),
        (X, WEIGHT.to_sparse()),
    ],
    ids=["small", "double", "three dimensions", "one dimension", "narrow", "meta", "bfloat16", "sparse"],
)
def test_other_layers_are_left_to_torch(arguments: Any) -> None:
    assert not _is_large(*arguments)
    with _OneDNNMode():
        found = functional.linear(*arguments)
    expected = functional.linear(*arguments)
    assert found.shape == expected.shape
    assert found.is_meta or torch.equal(found, expected)


@pytest.mark.parametrize(
    "arguments",
    [(X[:, 1:], WEIGHT), (X, WEIGHT, BIAS[1:]), (X, WEIGHT, BIAS.double())],
    ids=["other width", "short bias", "other dtype"],
)
def test_layers_that_do_not_fit_are_refused_by_torch(arguments: Any) -> None:
    with pytest.raises(RuntimeError) as expected:
        functional.linear(*arguments)
    with _OneDNNMode(), pytest.raises(RuntimeError) as found:
        functional.linear(*arguments)
    assert str(found.value) == str(expected.value)


def test_autocast_casts_as_it_does_without() -> None:
    with torch.autocast("cpu", torch.bfloat16), _OneDNNMode():
        assert functional.linear(X, WEIGHT).dtype == torch.bfloat16


def test_exported_programs_hold_operators_of_torch() -> None:
    module = linear(D, K).eval()
    with _OneDNNMode():
        exported = torch.export.export(module, (X,))
    assert "mkldnn" not in str(exported.graph)


def test_mode_is_entered_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pollux.models.onednn._is_slow_by_mkl", lambda: True)
    assert isinstance(fast_linear_layers(), _OneDNNMode)
    monkeypatch.setattr("pollux.models.onednn._is_enabled", lambda: False)
    assert not isinstance(fast_linear_layers(), _OneDNNMode)
    monkeypatch.undo()
    monkeypatch.setattr("pollux.models.onednn._is_slow_by_mkl", lambda: False)
    assert not isinstance(fast_linear_layers(), _OneDNNMode)


def test_vendor_is_one_word_or_unknown() -> None:
    vendor = _vendor()
    assert vendor is None or (vendor and " " not in vendor)


def test_large_layers_of_models_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pollux.models.onednn._is_slow_by_mkl", lambda: True)
    used: list[tuple[int, ...]] = []

    def counted(a: Tensor, b: Tensor) -> Tensor:
        used.append((*a.shape, *b.shape))
        return a @ b.mT

    monkeypatch.setattr("pollux.models.onednn._multiply", counted)
    module: nn.Module = mlp(D, 3, hidden=(K,))
    logits_of(module, X, 3)
    assert used == [(B, D, K, D)], "only the first of the two layers is large"
