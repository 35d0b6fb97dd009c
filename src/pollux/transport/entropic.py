"""Entropic transport by Sinkhorn iterations: approximate, in tensor operations only, for any device."""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = -1e30


def sinkhorn_cost(
    p: Tensor, q: Tensor, cost: Tensor, *, regularisation: float = 0.01, iterations: int = 200, tolerance: float = 1e-6
) -> Tensor:
    """Sinkhorn divergences (…) between distributions p, q (…, n), broadcast, for symmetric unit costs (n, n).

    An approximation of :func:`transport_cost` by entropic regularisation, debiased so that the divergence of a
    distribution from itself is zero. It uses tensor operations only, and m·n² numbers of memory for m problems.

    Parameters
    ----------
    p, q : Tensor of shape (…, n)
        Distributions.
    cost : Tensor of shape (n, n)
        Unit costs.
    regularisation : float
        Strength of the entropy, relative to the mean cost: smaller is closer to the exact cost, and takes more
        iterations.
    iterations : int
        Maximum number of iterations; if they do not suffice, the value is too small.
    tolerance : float
        Stop when no potential changes by more than this, relative to the mean cost.
    """
    if not (regularisation > 0 and iterations >= 1):
        raise ValueError(f"regularisation and iterations must be positive, not {regularisation} and {iterations}.")
    if cost.requires_grad:
        raise ValueError("Costs are constants here and get no gradient: pass cost.detach().")
    p, q = (weights / weights.sum(-1, keepdim=True) for weights in (p, q))
    cost = cost.to(p)
    blur = regularisation * float(cost.mean()) or 1.0
    margin = tolerance / regularisation
    with torch.no_grad():
        cost = cost / blur
        log_p, log_q = (weights.log().clamp_min(_TINY) for weights in (p, q))
        own_p, own_q = (_own_potential(weights, cost, iterations, margin) for weights in (log_p, log_q))
        log_p, log_q = torch.broadcast_tensors(log_p, log_q)  # type: ignore[no-untyped-call]
        f, g = _potentials(log_p, log_q, cost, iterations, margin)
    # At the optimum the gradient of the cost is the potential, so there is no backward pass through the iterations.
    return blur * ((f - own_p) * p).sum(-1) + blur * ((g - own_q) * q).sum(-1)


def _soft_transform(potential: Tensor, log_weights: Tensor, cost: Tensor) -> Tensor:
    """−log Σ_j w_j exp(g_j − C_ij): the smooth form of min_j C_ij − g_j."""
    return -torch.logsumexp((log_weights + potential)[..., None, :] - cost, -1)


def _potentials(log_p: Tensor, log_q: Tensor, cost: Tensor, iterations: int, margin: float) -> tuple[Tensor, Tensor]:
    f, g = torch.zeros_like(log_p), torch.zeros_like(log_q)
    for _ in range(iterations):
        before = f
        f = _soft_transform(g, log_q, cost)
        g = _soft_transform(f, log_p, cost.mT)
        if bool((f - before).abs().max() <= margin):
            break
    return f, g


def _own_potential(log_weights: Tensor, cost: Tensor, iterations: int, margin: float) -> Tensor:
    """The potential between a distribution and itself; the mean of two iterates converges in a few iterations."""
    f = torch.zeros_like(log_weights)
    for _ in range(iterations):
        before = f
        f = (f + _soft_transform(f, log_weights, cost)) / 2
        if bool((f - before).abs().max() <= margin):
            break
    return f
