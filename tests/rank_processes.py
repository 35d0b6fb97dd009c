"""Groups of processes on this machine and what they evaluate; imported by these processes, so without pytest."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from fault_runs import server
from pollux.geometry.affinity import Affinity, Features, Paths
from pollux.objectives import GEMINIS, Divergence, Gemini, f_divergence, sinkhorn
from pollux.objectives.gradients import value_and_gradient
from pollux.ranks import Ranks, joining
from pollux.transport.cost import known_costs

Array = NDArray[np.float64]
K = 4


class LeavingError(Exception):
    """Raised to leave the group and join a new one."""


class Team:
    """Processes that run the same function, each with its rank.

    Requests and replies are numbered, so that a late reply is not taken for the reply to the next request.
    """

    patience = 300.0
    """Seconds to wait for a reply."""

    def __init__(self, size: int) -> None:
        self.asked = 0
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        # Libraries are imported once for all processes of all teams.
        context = server()
        self.lines, self.processes = [], []
        for rank in range(size):
            # The store exists before, as with torchrun: a port that is free now may be taken later.
            variables = {
                "RANK": rank,
                "WORLD_SIZE": size,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": self.store.port,
                "TORCHELASTIC_USE_AGENT_STORE": True,
            }
            line, other = context.Pipe()
            process = context.Process(
                target=_work, args=(other, {k: str(v) for k, v in variables.items()}), daemon=True
            )
            process.start()
            other.close()
            self.lines.append(line)
            self.processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the result of ``function(ranks, *arguments)`` in each process, or raise its error."""
        self.asked += 1
        for line in self.lines:
            line.send((self.asked, function, arguments))
        answers = []
        for line in self.lines:
            number = None
            while number != self.asked:
                assert line.poll(self.patience), "a process does not answer"
                number, answer = line.recv()
            answers.append(answer)
        return answers

    def end(self) -> None:
        for line in self.lines:
            line.send(None)
        for process in self.processes:
            process.join(60)
            assert process.exitcode == 0


def _work(line: Connection, variables: dict[str, str]) -> None:
    torch.set_num_threads(1)
    os.environ.update(variables)
    while True:
        try:
            with joining("cpu", timeout=300) as ranks:
                while (task := line.recv()) is not None:
                    number, function, arguments = task
                    try:
                        answer = function(ranks, *arguments)
                    except LeavingError:
                        raise
                    except Exception as error:
                        answer = error
                    line.send((number, answer))
            # Shutting down a whole interpreter would take as long as a dozen tests.
            os._exit(0)
        except LeavingError as leaving:
            line.send((number, str(leaving)))


# --- Objectives ---------------------------------------------------------------------------------------------


def jensen_shannon(t: Tensor) -> Tensor:
    return (t * t.log() - (t + 1) * ((t + 1) / 2).log()) / 2


def supremum(log_p: Tensor, log_q: Tensor) -> Tensor:
    """A divergence that is not a sum over samples: it must see all of them at once."""
    return torch.cdist(log_p.exp(), log_q.exp(), p=math.inf)


def energy(log_p: Tensor, log_q: Tensor, kernel: Tensor | Features) -> Tensor:
    matrix = kernel.values @ kernel.values.mT if isinstance(kernel, Features) else kernel
    p = log_p.exp()
    return (p @ matrix @ p.mT).diagonal(dim1=-2, dim2=-1)[..., None] - p @ matrix @ log_q.exp().mT


OWN = {
    "f": f_divergence(jensen_shannon),
    "sinkhorn": sinkhorn(0.5, 20),
    "supremum": Divergence("supremum", supremum),
    "energy": Divergence("energy", energy, needs="kernel"),
}
OBJECTIVES = (*GEMINIS, *(f"{name}_{mode}" for name in OWN for mode in ("ova", "ovo")))
GEOMETRIES = {None: ("none",), "kernel": ("matrix", "features", "centred"), "distance": ("matrix", "paths")}


@dataclass(frozen=True)
class Case:
    """A batch, its distribution over processes, and what to evaluate."""

    objective: str
    geometry: str
    sizes: tuple[int, ...]
    batch: tuple[int, ...] = ()
    weighted: bool = False
    clip: float | None = None
    pairs: int | None = None
    learned: bool = False

    def gemini(self) -> Gemini:
        name, mode = self.objective.rsplit("_", 1)
        return Gemini(OWN.get(name, name), one_vs_one=mode == "ovo", clip=self.clip, sampled_pairs=self.pairs)


def needs(objective: str) -> str | None:
    return Case(objective, "none", ()).gemini().needs


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def kernel_or_distance(case: Case, points: Tensor) -> Affinity | None:
    """Return the affinity of all samples."""
    if case.geometry in ("features", "centred"):
        return Features(points - points.mean(0), True) if case.geometry == "centred" else Features(points)
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    if case.geometry == "paths":
        # Each sample is connected to its next three, so that a few are far apart.
        lengths = distances.numpy()
        near = lengths <= np.sort(lengths, 1)[:, min(3, len(points) - 1), None]
        graph = scipy.sparse.csr_array(np.where(near | near.T, lengths, 0))
        return Paths(graph, torch.arange(len(points)), 50.0)
    if needs(case.objective) == "distance":
        return distances
    return (-distances.square() / 2).exp() if needs(case.objective) == "kernel" else None


def part(affinity: Affinity | None, own: slice) -> Affinity | None:
    return Features(affinity.values[own], affinity.centred) if isinstance(affinity, Features) else affinity


def evaluate(ranks: Ranks | None, case: Case, steps: int = 1) -> tuple[Array, list[Array]]:
    """Return values, and their gradients by the weights of a linear model (and by the affinity, if it is learned),
    after each of several steps; the gradients are summed over all processes."""
    gemini, n = case.gemini(), sum(case.sizes)
    rank = 0 if ranks is None else ranks.rank
    start = sum(case.sizes[:rank])
    own = slice(None) if ranks is None else slice(start, start + case.sizes[rank])
    points = numbers(n, 3, seed=1)
    sample_weight = numbers(n, seed=2).square()[own] if case.weighted else None
    points.requires_grad_(case.learned)
    affinity = part(kernel_or_distance(case, points), own)
    values, gradients = [], []
    for step in range(steps):
        weights = (
            2 * numbers(*case.batch, 3, K, seed=3) + 0.1 * numbers(*case.batch, 3, K, seed=4 + step)
        ).requires_grad_()
        log_p = (points.detach() @ weights).log_softmax(-1)[..., own, :]
        # Only the draws of the first process may count.
        generator = torch.Generator().manual_seed(5 + rank)
        value = gemini(log_p, affinity, sample_weight=sample_weight, generator=generator, ranks=ranks)
        parameters = [weights, points] if case.learned else [weights]
        found = torch.autograd.grad(value.sum() / (1 if ranks is None else ranks.size), parameters, retain_graph=True)
        values.append(value.detach().numpy())
        gradients += [(gradient if ranks is None else ranks.sum(gradient)).numpy() for gradient in found]
    return np.stack(values), gradients


def own_part(ranks: Ranks | None, case: Case) -> slice:
    rank = 0 if ranks is None else ranks.rank
    return slice(None) if ranks is None else slice(sum(case.sizes[:rank]), sum(case.sizes[: rank + 1]))


def second_derivative(ranks: Ranks | None, case: Case) -> Array:
    """Return the derivative, by the logits of all samples, of their gradient in one direction."""
    own, n = own_part(ranks, case), sum(case.sizes)
    affinity = part(kernel_or_distance(case, numbers(n, 3, seed=1)), own)
    logits = numbers(n, K, seed=2)[own].requires_grad_()
    value = case.gemini()(logits.log_softmax(-1), affinity, ranks=ranks) / (1 if ranks is None else ranks.size)
    (gradient,) = torch.autograd.grad(value, logits, create_graph=True)
    (second,) = torch.autograd.grad((gradient * numbers(n, K, seed=3)[own]).sum(), logits)
    return (second if ranks is None else ranks.gather(second)).numpy()


def data_parallel(ranks: Ranks | None, case: Case) -> Array:
    """Return the gradient of a linear model; with several processes, averaged by DistributedDataParallel."""
    own, n = own_part(ranks, case), sum(case.sizes)
    points = numbers(n, 3, seed=1)
    model = torch.nn.Linear(3, K, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(numbers(K, 3, seed=2))
        model.bias.zero_()
    wrapped = model if ranks is None else torch.nn.parallel.DistributedDataParallel(model)
    log_p = wrapped(points[own]).log_softmax(-1)
    case.gemini()(log_p, part(kernel_or_distance(case, points), own), ranks=ranks).backward()
    assert model.weight.grad is not None
    return model.weight.grad.numpy()


def far_off_centre(ranks: Ranks | None, mode: str, dtype: torch.dtype, sizes: tuple[int, ...]) -> Array:
    """Return the gradient by the logits of all samples, whose features lie far from the origin."""
    features = (numbers(sum(sizes), 3, seed=1) + 3000).float()
    rank = 0 if ranks is None else ranks.rank
    own = slice(None) if ranks is None else slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    logits = numbers(sum(sizes), K, seed=2).to(dtype)[own].requires_grad_()
    value = Gemini(f"mmd_{mode}")(logits.log_softmax(-1), Features(features[own].to(dtype)), ranks=ranks)
    (gradient,) = torch.autograd.grad(value / (1 if ranks is None else ranks.size), logits)
    whole = gradient if ranks is None else ranks.gather(gradient)
    return whole.double().numpy()


def answer_late(ranks: Ranks, sign: Path) -> str:
    """Reply once a file exists."""
    while not sign.exists():
        time.sleep(0.01)
    return "late"


def tell_rank(ranks: Ranks) -> int:
    return ranks.rank


# --- Collectives --------------------------------------------------------------------------------------------


def adjoint(ranks: Ranks, collective: str, dim: int, equal: bool) -> tuple[float, float]:
    """Return ⟨A x, y⟩ and ⟨x, Aᵀ y⟩, over all processes."""
    shape = [2, 3, 4]
    if collective == "gather" and not equal:
        shape[dim] = (3, 0, 5)[ranks.rank]
    x = numbers(*shape, seed=ranks.rank).requires_grad_()
    answer = ranks.sum(x) if collective == "sum" else ranks.gather(x, dim)
    y = numbers(*answer.shape, seed=10 + ranks.rank)
    (back,) = torch.autograd.grad((answer * y).sum(), x)
    pair = torch.stack([(answer * y).sum(), (x * back).sum()])
    forwards, backwards = ranks.sum(pair.detach()).tolist()
    return forwards, backwards


def collectives(ranks: Ranks) -> dict[str, Any]:
    """Return the result of each collective for data that differ between ranks."""
    rank = ranks.rank
    rows = torch.arange(6).reshape(2, 3)[:, : rank + 1] + 10 * rank
    weight = torch.nn.Parameter(torch.full((2, 2), float(rank)))
    view = torch.full((3, 2), float(rank))
    ranks.broadcast(view.mT, source=1)
    return {
        "ranks": repr(ranks),
        "sum": ranks.sum(torch.tensor([rank, 1])).tolist(),
        "nothing": ranks.sum(torch.zeros(0)).tolist(),
        "gather": ranks.gather(rows, -1).tolist(),
        "sized": ranks.gather(rows, 1, sizes=[1, 2, 3]).tolist(),
        "flags": ranks.gather(torch.tensor([rank == 1]), 0).tolist(),
        "empty": ranks.gather(torch.zeros(0, 2)).tolist(),
        "maximum": ranks.maximum(torch.tensor([rank, -rank])).tolist(),
        "minimum": ranks.minimum(torch.tensor([rank, -rank])).tolist(),
        "broadcast": ranks.broadcast(weight, source=2).tolist(),
        "in place": (weight.tolist(), view.tolist()),
        "objects": ranks.gather_objects({"rank": rank}),
        "object": ranks.broadcast_object({"rank": rank}, source=1),
    }


def wrong_sizes(ranks: Ranks) -> None:
    ranks.gather(torch.zeros(2, 2), sizes=[1] * ranks.size)


def agree(ranks: Ranks, digests: list[str | bytes]) -> None:
    ranks.agree(digests[ranks.rank], "start from different weights")


def raise_together(ranks: Ranks, failing: tuple[int, ...]) -> None:
    ranks.raise_together(ArithmeticError(f"number {ranks.rank}") if ranks.rank in failing else None)


def unfit(ranks: Ranks, what: str) -> None:
    """Evaluate an objective with an argument that is invalid in the last process only, or in all."""
    last = ranks.rank == ranks.size - 1
    log_p, kernel, weight, gemini = (
        torch.zeros(2, K).log_softmax(-1),
        torch.eye(2 * ranks.size),
        None,
        Gemini("mmd_ova"),
    )
    affinity: Affinity | None = kernel
    if what == "logits" and last:
        log_p = log_p + 9
    if what == "clusters" and last:
        log_p = log_p[:, :-1].log_softmax(-1)
    if what == "weights" and last:
        weight = torch.ones(2)
    if what == "gradient" and last:
        log_p.requires_grad_()
    if what == "features" and last:
        affinity = Features(torch.zeros(3, 1))
    if what == "kernel":
        affinity = torch.eye(2)
    if what == "samples":
        log_p = log_p[:0]
    gemini(log_p, affinity, sample_weight=weight, ranks=ranks)


def remembered_problems(ranks: Ranks, objective: str, pairs: int | None) -> tuple[list[int], int]:
    """Return how many problems this process stores at a time, and how often it prepared the costs."""
    points = numbers(6, 2, seed=1)
    distances = torch.cdist(points, points)
    gemini = Gemini(objective, sampled_pairs=pairs)
    before = len(known_costs)
    for step in range(3):
        gemini(numbers(6 // ranks.size, K, seed=step).log_softmax(-1), distances, ranks=ranks)
    known = known_costs.get(distances, lambda: None)
    return sorted(known.states), len(known_costs) - before


def closed_form(ranks: Ranks | None, objective: str) -> tuple[Array, Array]:
    """Return value and gradient of all samples, by the closed forms."""
    case = Case(objective, "features" if needs(objective) == "kernel" else "matrix", (5, 7, 1))
    own = slice(None) if ranks is None else slice(sum(case.sizes[: ranks.rank]), sum(case.sizes[: ranks.rank + 1]))
    affinity = part(kernel_or_distance(case, numbers(13, 3, seed=1)), own)
    value, gradient = value_and_gradient(case.gemini(), numbers(13, K, seed=2)[own], affinity, ranks=ranks)
    return value.numpy(), (gradient if ranks is None else ranks.gather(gradient)).numpy()


def break_off(ranks: Ranks) -> None:
    """The last process leaves while the others wait for it."""
    if ranks.rank == ranks.size - 1:
        raise LeavingError("left")
    try:
        ranks.sum(torch.ones(1))
    except RuntimeError:
        raise LeavingError("noticed") from None
