"""Transport cost as a differentiable function of the two distributions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pollux.errors import InputError
from pollux.geometry.affinity import Paths, all_paths, is_traced
from pollux.geometry.weak_cache import WeakCache
from pollux.transport.exact import Array, Solution, State, prepare, solve
from pollux.transport.ground import Costs, Ground


def transport_cost(p: Tensor, q: Tensor, cost: Tensor | Paths) -> Tensor:
    """Optimal transport costs (…) between distributions p, q (…, n), broadcast, for unit costs (n, n).

    Weights of any positive sum are normalised to sum to one. Derivatives are with respect to p and q as given, and are
    computed from the optimal dual potentials. The costs are constants. The state of the solver is cached as long as the
    tensor of costs lives and is not written to (writing past torch, to ``.data`` or a shared array, is not noticed): in
    a loop over the same tensor, each call starts from the last solution. If several potentials are optimal, as between
    samples at equal distances, the start decides which of them is found.
    """
    if isinstance(cost, Tensor) and cost.requires_grad:
        raise ValueError("Costs are constants here and get no gradient: pass cost.detach().")
    p, q = torch.broadcast_tensors(p, q)  # type: ignore[no-untyped-call]
    if is_traced():
        costs, paths = (cost.nodes, cost.number) if isinstance(cost, Paths) else (cost, 0)
        values, by_p, by_q = _solve_operator(p.detach(), q.detach(), costs, paths)
    else:
        # The first call of a custom operator imports torch's compiler, which takes seconds: only when tracing.
        values, by_p, by_q = _solve_tensors(p.detach(), q.detach(), cost)

    def add_derivatives(values: Tensor, potentials: Tensor, weights: Tensor) -> Tensor:
        # Potentials are piecewise constant: used as constants, they give derivatives of any order almost everywhere.
        shares = weights / weights.sum(-1, keepdim=True)
        return values + (potentials * (shares - shares.detach())).sum(-1)

    return add_derivatives(add_derivatives(values, by_p, p), by_q, q)


def _solve_tensors(p: Tensor, q: Tensor, cost: Tensor | Paths) -> tuple[Tensor, Tensor, Tensor]:
    """Values (…), and potentials (…, n) whose means weighted by p and by q (…, n) are zero."""
    n = p.shape[-1]
    from_p, to_q = (side.reshape(-1, n).double().cpu().numpy() for side in (p, q))
    solution = solve_warm(from_p, to_q, cost)
    half = solution.values[:, None] / 2
    potentials = ((side - half).reshape(p.shape) for side in (solution.potentials_p, solution.potentials_q))
    by_p, by_q = (torch.from_numpy(side).to(p) for side in potentials)
    return torch.from_numpy(solution.values).to(p).reshape(p.shape[:-1]), by_p, by_q


@torch.library.custom_op("pollux::solve_transport", mutates_args=())
def _solve_operator(p: Tensor, q: Tensor, cost: Tensor, paths: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same as a custom operator, opaque to transforms and compilers; Paths are passed by their number."""
    if paths and paths not in all_paths:
        raise InputError("The Paths that this was traced with are gone: keep them for as long as it is used.")
    return _solve_tensors(p, q, all_paths[paths] if paths else cost)


@_solve_operator.register_fake
def _(p: Tensor, q: Tensor, cost: Tensor, paths: int) -> tuple[Tensor, Tensor, Tensor]:
    return p.new_empty(p.shape[:-1]), p.new_empty(p.shape), q.new_empty(q.shape)


def _solve_batches(info: Any, in_dims: Any, p: Tensor, q: Tensor, cost: Tensor, paths: int) -> Any:
    p, q = (
        side[None].expand(info.batch_size, *side.shape) if dim is None else side.movedim(dim, 0)
        for side, dim in zip((p, q), in_dims, strict=False)
    )
    if in_dims[2] is None:
        # Problems with the same costs are solved in one call.
        return _solve_operator(p, q, cost, paths), (0, 0, 0)
    each = [_solve_operator(*of_one, paths) for of_one in zip(p, q, cost.movedim(in_dims[2], 0), strict=True)]
    return tuple(torch.stack(answers) for answers in zip(*each, strict=True)), (0, 0, 0)


if hasattr(_solve_operator, "register_vmap"):  # torch 2.5
    _solve_operator.register_vmap(_solve_batches)


def solve_warm(p: Array, q: Array, cost: Tensor | Paths, *, symmetric: bool = False) -> Solution:
    """Transport p (m, n) to q (m, n) or (n,), starting from the solution of the last m problems with this cost.

    With ``symmetric``, raise an InputError if costs are not symmetric or not distances, which Wasserstein needs.
    """
    known = _known(cost)
    if symmetric:
        _check_ground(known.ground)
    m = len(p)
    solution = solve(p, q, known.ground, known.states.get(m))
    if solution.state.trees is not None:
        known.states[m] = solution.state
    return solution


class Known(NamedTuple):
    """The prepared costs, and the last state of the solver for each number of problems."""

    ground: Ground
    states: dict[int, State]


known_costs: WeakCache[Known] = WeakCache()


def _known(cost: Tensor | Paths) -> Known:
    return known_costs.get(cost, lambda: Known(prepare(_as_numbers(cost)), {}))


def check_symmetric(cost: Tensor | Paths) -> None:
    """Raise an InputError if costs are not symmetric or not distances, which a Wasserstein objective needs."""
    if not is_traced():
        _check_ground(_known(cost).ground)


def _check_ground(ground: Ground) -> None:
    if not isinstance(ground, Costs) or not ground.finite:
        return
    if not ground.symmetric:
        raise InputError("A Wasserstein objective needs symmetric distances: these differ from a to b and from b to a.")
    if ground.has_negative or not ground.is_small_on_diagonal:
        what = "some are negative" if ground.has_negative else "that of a sample to itself is not 0"
        raise InputError(f"A Wasserstein objective needs distances, and here {what}: is it a kernel, for MMD?")


def _as_numbers(cost: Tensor | Paths) -> Paths | np.ndarray[Any, Any]:
    if isinstance(cost, Paths):
        return cost
    numbers = cost.detach().cpu()
    return (numbers if numbers.dtype in (torch.float32, torch.float64) else numbers.double()).numpy()
