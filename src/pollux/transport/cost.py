"""The transport cost as a differentiable function of the two distributions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pollux.affinity import Paths
from pollux.transport.exact import Array, Solution, State, prepare, solve
from pollux.transport.ground import Ground
from pollux.transport.memory import Memory


def transport_cost(p: Tensor, q: Tensor, cost: Tensor | Paths) -> Tensor:
    """Optimal transport costs (…) between distributions p, q (…, n), broadcast, for unit costs (n, n).

    The gradient with respect to p and q is the pair of optimal dual potentials. What was learned about a cost is
    remembered as long as the tensor lives and is not written to: in a loop over the same tensor each call
    starts where the last one ended.
    """
    p, q = torch.broadcast_tensors(p, q)  # type: ignore[no-untyped-call]
    values: Tensor = _TransportCost.apply(p, q, cost)  # type: ignore[no-untyped-call]
    return values


class _TransportCost(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, q: Tensor, cost: Tensor | Paths) -> Tensor:
        n = p.shape[-1]
        from_p, to_q = (weights.detach().reshape(-1, n).double().cpu().numpy() for weights in (p, q))
        solution = solve_remembering(from_p, to_q, cost)
        ctx.save_for_backward(
            *(torch.from_numpy(f).to(p).reshape(p.shape) for f in (solution.potentials_p, solution.potentials_q))
        )
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


def solve_remembering(p: Array, q: Array, cost: Tensor | Paths) -> Solution:
    """Transport p (m, n) to q (m, n) or (n,), starting where the last m problems at this cost ended."""
    known = _recall(cost)
    m = len(p)
    solution = solve(p, q, known.ground, known.states.get(m))
    if solution.state.trees is not None:
        known.states[m] = solution.state
    return solution


class Known(NamedTuple):
    """What is known of a cost: its ground, and the last state for each number of problems."""

    ground: Ground
    states: dict[int, State]


remembered: Memory[Known] = Memory()


def _recall(cost: Tensor | Paths) -> Known:
    def make() -> Known:
        return Known(prepare(_as_numbers(cost)), {})

    if isinstance(cost, Paths):
        return remembered.recall(cost, 0, make)
    # Tensors made in inference mode do not count how often they were written to: what is known may not hold.
    return make() if cost.is_inference() else remembered.recall(cost, cost._version, make)


def _as_numbers(cost: Tensor | Paths) -> Paths | np.ndarray[Any, Any]:
    if isinstance(cost, Paths):
        return cost
    numbers = cost.detach().cpu()
    if numbers.dtype == torch.float32:
        return numbers.numpy()
    # A copy: numbers that are changed behind the tensor's back must not meet what was learned about others.
    return numbers.clone().numpy() if numbers.dtype == torch.float64 else numbers.double().numpy()
