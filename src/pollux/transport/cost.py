"""The transport cost as a differentiable function of the two distributions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pollux.transport.exact import solve


def transport_cost(p: Tensor, q: Tensor, cost: Tensor) -> Tensor:
    """Optimal transport costs (…) between distributions p, q (…, n), broadcast, for unit costs (n, n).

    The gradient with respect to p and q is the pair of optimal dual potentials.
    """
    p, q = torch.broadcast_tensors(p, q)  # type: ignore[no-untyped-call]
    values: Tensor = _TransportCost.apply(p, q, cost)  # type: ignore[no-untyped-call]
    return values


class _TransportCost(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: Tensor, q: Tensor, cost: Tensor) -> Tensor:
        n = p.shape[-1]
        solution = solve(
            p.detach().reshape(-1, n).double().cpu().numpy(),
            q.detach().reshape(-1, n).double().cpu().numpy(),
            cost.detach().double().cpu().numpy(),
        )
        ctx.save_for_backward(
            *(torch.from_numpy(f).to(p).reshape(p.shape) for f in (solution.potentials_p, solution.potentials_q))
        )
        return torch.from_numpy(solution.values).to(p).reshape(p.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        by_p, by_q = ctx.saved_tensors
        return gradient[..., None] * by_p, gradient[..., None] * by_q, None
