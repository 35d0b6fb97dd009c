"""The entropic approximation of transport: its limit, its laws and its gradient."""

import pytest
import torch
from torch import Tensor

from pollux import Gemini
from pollux.geometry import ShortestPath
from pollux.geometry.affinity import Features
from pollux.objectives import sinkhorn
from pollux.transport import sinkhorn_cost, transport_cost


def problem(n: int = 25, m: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    p = (2 * torch.randn(m, n, generator=generator, dtype=torch.float64)).softmax(-1)
    return p, torch.full((n,), 1 / n, dtype=torch.float64), torch.cdist(points, points)


def test_less_blur_comes_closer_to_the_exact_cost() -> None:
    p, q, cost = problem()
    exact = transport_cost(p, q, cost)
    errors = [
        float((sinkhorn_cost(p, q, cost, regularisation=blur, iterations=3000) - exact).abs().max())
        for blur in (0.5, 0.1, 0.02, 0.004)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.05 * float(exact.min())


def test_a_distribution_is_at_distance_zero_from_itself() -> None:
    p, _, cost = problem()
    torch.testing.assert_close(sinkhorn_cost(p, p, cost, iterations=2000), torch.zeros(4).double(), rtol=0, atol=1e-4)


def test_the_gradient_is_that_of_finite_differences() -> None:
    p, q, cost = problem(n=8, m=1)
    settings = {"regularisation": 0.2, "iterations": 5000, "tolerance": 1e-14}
    p.requires_grad_()
    (gradient,) = torch.autograd.grad(sinkhorn_cost(p, q, cost, **settings).sum(), p)
    step = torch.zeros_like(p)
    step[0, 2], step[0, 5] = 1e-5, -1e-5
    with torch.no_grad():
        slope = (sinkhorn_cost(p + step, q, cost, **settings) - sinkhorn_cost(p - step, q, cost, **settings)) / 2e-5
    torch.testing.assert_close(gradient[0, 2] - gradient[0, 5], slope[0], rtol=1e-5, atol=1e-8)


def test_batches_broadcast() -> None:
    p, q, cost = problem()
    assert sinkhorn_cost(p[:, None], q[None, None], cost).shape == (4, 1)
    pairs = sinkhorn_cost(p[:, None], p[None], cost)
    assert pairs.shape == (4, 4)
    torch.testing.assert_close(pairs[1, 2], sinkhorn_cost(p[1], p[2], cost), rtol=1e-4, atol=1e-6)


def test_empty_samples_and_free_transport_are_finite() -> None:
    p = torch.tensor([[1.0, 0.0, 0.0]], requires_grad=True)
    q = torch.tensor([0.0, 0.5, 0.5])
    for cost in (torch.ones(3, 3) - torch.eye(3), torch.zeros(3, 3)):
        value = sinkhorn_cost(p, q, cost)
        (gradient,) = torch.autograd.grad(value.sum(), p)
        assert bool(value.isfinite().all())
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("settings", [{"regularisation": 0.0}, {"regularisation": -1.0}, {"iterations": 0}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    p, q, cost = problem()
    with pytest.raises(ValueError, match="must be positive"):
        sinkhorn_cost(p, q, cost, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("one_vs_one", [False, True])
def test_as_a_divergence_it_is_near_the_exact_objective(one_vs_one: bool) -> None:
    _, _, cost = problem(n=30)
    log_p = torch.randn(30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    exact = Gemini("wasserstein", one_vs_one)(log_p, cost)
    approximate = Gemini(sinkhorn(iterations=2000), one_vs_one)(log_p, cost)
    assert float(approximate) == pytest.approx(float(exact), rel=0.1)


def test_as_a_divergence_it_takes_paths_and_refuses_features() -> None:
    x = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    log_p = x.log_softmax(-1)
    paths = ShortestPath(neighbours=4).bind(x)(torch.arange(20))
    expected = Gemini(sinkhorn())(log_p, paths.matrix())  # type: ignore[union-attr]
    assert float(Gemini(sinkhorn())(log_p, paths)) == pytest.approx(float(expected))
    with pytest.raises(TypeError, match="distance matrix"):
        Gemini(sinkhorn())(log_p, Features(x))
