"""The transport cost as a differentiable function of the two distributions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pollux.geometry.affinity import Paths
from pollux.transport.exact import Array, Solution, State, prepare, solve
from pollux.transport.ground import Costs, Ground
from pollux.transport.weak_cache import WeakCache


def transport_cost(p: Tensor, q: Tensor, cost: Tensor | Paths) -> Tensor:
    """Optimal transport costs (…) between distributions p, q (…, n), broadcast, for unit costs (n, n).

    Weights of any positive sums are scaled to one; the gradient is by p and q as they are given, and comes from the
    optimal dual potentials. The costs are constants. What was learned about them is remembered as long as their tensor
    lives and is not written to (writing past torch, to ``.data`` or a shared array, goes unnoticed): in a loop
    over the same tensor each call starts where the last one ended. Where several potentials are optimal, as between
    samples at equal distances, which of them is found depends on where it started.
    """
    if isinstance(cost, Tensor) and cost.requires_grad:
        raise ValueError("Costs are constants here and get no gradient: pass cost.detach().")
    p, q = torch.broadcast_tensors(p, q)  # type: ignore[no-untyped-call]
    values: Tensor = _TransportCost.apply(p, q, cost)  # type: ignore[no-untyped-call]
    return values


class _TransportCost(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, q: Tensor, cost: Tensor | Paths) -> Tensor:
        n = p.shape[-1]
        from_p, to_q = (weights.detach().reshape(-1, n).double().cpu().numpy() for weights in (p, q))
        solution = solve_warm(from_p, to_q, cost)
        # Both distributions get half the value: without it, potentials do not feel a change of scale.
        half = solution.values[:, None] / 2
        by_p, by_q = (
            (potentials - half) / weights.sum(1, keepdims=True)
            for potentials, weights in ((solution.potentials_p, from_p), (solution.potentials_q, to_q))
        )
        ctx.save_for_backward(*(torch.from_numpy(gradient).to(p).reshape(p.shape) for gradient in (by_p, by_q)))
        return torch.from_numpy(solution.values).to(p).reshape(p.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        by_p, by_q = ctx.saved_tensors
        wanted_p, wanted_q, _ = ctx.needs_input_grad
        return (
            gradient[..., None] * by_p if wanted_p else None,
            gradient[..., None] * by_q if wanted_q else None,
            None,
        )


def solve_warm(p: Array, q: Array, cost: Tensor | Paths) -> Solution:
    """Transport p (m, n) to q (m, n) or (n,), starting where the last m problems at this cost ended."""
    known = _known(cost)
    m = len(p)
    solution = solve(p, q, known.ground, known.states.get(m))
    if solution.state.trees is not None:
        known.states[m] = solution.state
    return solution


class Known(NamedTuple):
    """What is known of a cost: its ground, and the last state for each number of problems."""

    ground: Ground
    states: dict[int, State]


known_costs: WeakCache[Known] = WeakCache()


def _known(cost: Tensor | Paths) -> Known:
    def make() -> Known:
        return Known(prepare(_as_numbers(cost)), {})

    if isinstance(cost, Paths):
        return known_costs.get(cost, 0, make)
    # Tensors made in inference mode do not count how often they were written to: what is known may not hold.
    return make() if cost.is_inference() else known_costs.get(cost, (cost._version, cost.data_ptr()), make)


def check_symmetric(cost: Tensor | Paths) -> None:
    """Raise a ValueError where it does not cost the same there and back, as between clusters it must."""
    ground = _known(cost).ground
    if isinstance(ground, Costs) and not ground.symmetric:
        raise ValueError("A Wasserstein objective needs symmetric distances: here there and back differ.")


def _as_numbers(cost: Tensor | Paths) -> Paths | np.ndarray[Any, Any]:
    if isinstance(cost, Paths):
        return cost
    numbers = cost.detach().cpu()
    return (numbers if numbers.dtype in (torch.float32, torch.float64) else numbers.double()).numpy()
