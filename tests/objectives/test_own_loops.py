"""Objectives as losses in loops of one's own: everything that docs/objectives.md promises of torch."""

from __future__ import annotations

import copy
import shutil
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import grad, vmap

from coverings import IS_FULL, every_other, in_full
from pollux import Gemini
from pollux.errors import InputError
from pollux.geometry.affinity import Features, Paths
from pollux.objectives import GEMINIS
from pollux.ranks import Ranks
from rank_processes import GEOMETRIES

n, K = 8, 3
PAGE = Path(__file__).parents[2] / "docs" / "objectives.md"


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


POINTS = numbers(n, 2, seed=1)
DISTANCES = torch.cdist(POINTS, POINTS, compute_mode="donot_use_mm_for_euclid_dist")
RING = np.roll(np.diag(1 + 0.1 * np.arange(n)), 1, axis=1)
AFFINITIES: dict[str | None, dict[str, Any]] = {
    None: {"": None},
    "kernel": {"matrix": (-(DISTANCES**2)).exp(), "`Features`": Features(POINTS)},
    "distance": {
        "matrix": DISTANCES,
        "`Paths`": Paths(scipy.sparse.csr_array(RING + RING.T), torch.arange(n), 100.0),
    },
}
ROWS = {
    f"`{name}`" + (f", {form}" if form else ""): (name, affinity)
    for name in GEMINIS
    for form, affinity in AFFINITIES[Gemini(name).needs].items()
}
every_row = pytest.mark.parametrize("row", ROWS)


def loss_of(row: str) -> Callable[[Tensor], Tensor]:
    name, affinity = ROWS[row]
    gemini = Gemini(name)
    return lambda logits: -gemini(logits.log_softmax(-1), affinity)


def gradient_of(loss: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    logits = logits.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(logits), logits)
    return gradient


@every_row
def test_autograd(row: str) -> None:
    assert torch.autograd.gradcheck(loss_of(row), (numbers(n, K).requires_grad_(),), fast_mode=True)


@every_row
def test_double_backward(row: str) -> None:
    """A gradient penalty has the right gradient, also where the first gradient is asked for by autograd.grad."""
    loss, logits = loss_of(row), numbers(n, K).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(logits), logits, create_graph=True)
    (by_penalty,) = torch.autograd.grad(gradient.square().sum() / 2, logits)
    # It is the derivative of the gradient in its own direction.
    direction, step = gradient.detach(), 1e-6
    ahead, behind = (gradient_of(loss, logits + sign * step * direction) for sign in (1, -1))
    torch.testing.assert_close(by_penalty, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-8)


@every_row
def test_func_grad(row: str) -> None:
    torch.testing.assert_close(grad(loss_of(row))(numbers(n, K)), gradient_of(loss_of(row), numbers(n, K)))


@every_row
def test_vmap(row: str) -> None:
    loss, many = loss_of(row), numbers(2, n, K)
    torch.testing.assert_close(vmap(loss)(many), torch.stack([loss(logits) for logits in many]))
    each = torch.stack([gradient_of(loss, logits) for logits in many])
    torch.testing.assert_close(vmap(grad(loss))(many), each)


@pytest.mark.parametrize("mode", ["ova", "ovo"])
@pytest.mark.parametrize("divergence", ["mmd", "wasserstein"])
def test_vmap_over_affinities(divergence: str, mode: str) -> None:
    gemini, logits = Gemini(f"{divergence}_{mode}"), numbers(n, K)
    matrix = AFFINITIES[gemini.needs]["matrix"]
    values = vmap(lambda affinity: gemini(logits.log_softmax(-1), affinity))(torch.stack([matrix, 4 * matrix]))
    expected = torch.stack([gemini(logits.log_softmax(-1), scale * matrix) for scale in (1, 4)])
    torch.testing.assert_close(values, expected)


def check_compiled(row: str, backend: str) -> None:
    torch._dynamo.reset()
    loss, logits = loss_of(row), numbers(n, K)
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    torch.testing.assert_close(gradient_of(compiled, logits), gradient_of(loss, logits))
    if backend == "inductor":
        torch.testing.assert_close(compiled(numbers(n, K, seed=2)), loss(numbers(n, K, seed=2)))


@every_row
def test_compile(row: str) -> None:
    """In one graph: what cannot be traced would be an error."""
    if row not in every_other(ROWS, 1):
        pytest.skip("make test-faults runs it")
    # Derivatives are traced too where the operator that solves transport problems is in the graph.
    backend = "aot_eager" if row in (list(ROWS) if IS_FULL else ["`wasserstein_ova`, matrix"]) else "eager"
    check_compiled(row, backend)


@pytest.mark.skipif(not (shutil.which("c++") or shutil.which("g++")), reason="there is no compiler")
@in_full
@pytest.mark.filterwarnings("ignore")
@every_row
def test_compile_in_earnest(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What other programs have left in the cache of all may not be whole.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    check_compiled(row, "inductor")


@pytest.mark.skipif(
    not (shutil.which("c++") or shutil.which("g++")) or not Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="there is no compiler, or nothing of Python for it",
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("clusters", [5, *(pytest.param(K, marks=in_full) for K in (2, 3, 4, 6, 7, 9, 13, 17))])
def test_compiled_gradients_for_any_number_of_clusters(
    clusters: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor computes four or more numbers at once, and what is left over in another way."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    gemini, x = Gemini("mmd_ovo"), numbers(128, 8).float()

    def loss(logits: Tensor) -> Tensor:
        return -gemini(logits.log_softmax(-1), x @ x.mT)

    compiled = torch.compile(loss)
    for seed in range(3):
        logits = numbers(128, clusters, seed=seed).float()
        expected = gradient_of(loss, logits)
        tolerance = 128 * torch.finfo(torch.float32).eps * float(expected.abs().max())
        torch.testing.assert_close(gradient_of(compiled, logits), expected, rtol=0, atol=tolerance)


def test_samples_spread_over_processes_are_not_traced() -> None:
    """A trace would be of the samples here alone."""
    gemini, logits = Gemini("mmd_ova"), numbers(n, K)
    kernel = AFFINITIES["kernel"]["matrix"]
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:

        def loss(logits: Tensor) -> Tensor:
            return -gemini(logits.log_softmax(-1), kernel, ranks=Ranks())

        torch._dynamo.reset()
        for traced in (grad(loss), torch.compile(loss, backend="eager")):
            with pytest.raises(InputError, match="cannot be traced"):
                traced(logits)
        with pytest.raises(InputError, match="sample_weight is zero for all samples"):
            gemini(logits.log_softmax(-1), kernel, ranks=Ranks(), sample_weight=torch.zeros(n))
    finally:
        dist.destroy_process_group()


def test_compiled_functions_keep_graphs_apart() -> None:
    torch._dynamo.reset()
    gemini, logits = Gemini("wasserstein_ova"), numbers(n, K)
    compiled = torch.compile(lambda paths: gemini(logits.log_softmax(-1), paths), fullgraph=True, backend="eager")
    once = AFFINITIES["distance"]["`Paths`"]
    twice = Paths(2 * once.graph, once.nodes, 2 * once.unreachable)
    values = [float(compiled(paths)) for paths in (once, twice, once)]
    assert values == pytest.approx([values[0], 2 * values[0], values[0]])


# By torch 2.6 itself, of any constant.
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node", "ignore:Node lifted_tensor")
@every_row
def test_export(row: str) -> None:
    if row not in every_other(ROWS):
        pytest.skip("make test-faults runs it")

    class Loss(nn.Module):
        def forward(self, logits: Tensor) -> Tensor:
            return loss_of(row)(logits)

    exported = torch.export.export(Loss(), (numbers(n, K),), strict=False).module()
    torch.testing.assert_close(exported(numbers(n, K, seed=2)), loss_of(row)(numbers(n, K, seed=2)))


def test_paths_may_be_copied_but_not_outlived() -> None:
    once, many = AFFINITIES["distance"]["`Paths`"], numbers(2, n, K).log_softmax(-1)
    copied, gemini = copy.deepcopy(once), Gemini("wasserstein_ova")
    torch.testing.assert_close(vmap(partial(gemini, affinity=copied))(many), gemini(many, once))
    number, shares = copied.number, torch.full((n,), 1 / n)
    assert number != once.number
    del copied
    with pytest.raises(InputError, match="The Paths that this was traced with are gone"):
        torch.ops.pollux.solve_transport(shares, shares, once.nodes, number)


@pytest.mark.filterwarnings("ignore:.torch.jit.trace. is deprecated")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # Shapes are constants in a trace.
@every_row
def test_jit_trace(row: str) -> None:
    """What is recorded are operations, not the numbers that they gave at the time."""
    traced: Any = torch.jit.trace(loss_of(row), (numbers(n, K),), check_trace=False)  # type: ignore[no-untyped-call]
    other = numbers(n, K, seed=2)
    torch.testing.assert_close(traced(other), loss_of(row)(other))
    torch.testing.assert_close(gradient_of(traced, other), gradient_of(loss_of(row), other))


@every_row
def test_autocast(row: str) -> None:
    """Below autocast, and of log-probabilities in half precision: in float32, with gradients as they were given."""
    name, affinity = ROWS[row]
    gemini = Gemini(name)
    # Nothing is lost but by the rounding of single precision; the MMD takes a root, which is steep near zero.
    close = {"rtol": 1e-4, "atol": 1e-5}
    logits = numbers(n, K).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = gemini(logits.log_softmax(-1), affinity)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), gemini(logits.double().log_softmax(-1), affinity), **close)
    for dtype in (torch.bfloat16, torch.float16):
        half = logits.log_softmax(-1).to(dtype).requires_grad_()
        value = gemini(half, affinity)
        exact = half.detach().double().requires_grad_()
        expected = gemini(exact, affinity)
        torch.testing.assert_close(value.double(), expected, **close)
        (gradient,) = torch.autograd.grad(value, half)
        assert gradient.dtype == dtype
        epsilon = torch.finfo(dtype).eps
        torch.testing.assert_close(gradient.double(), torch.autograd.grad(expected, exact)[0], rtol=epsilon, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [name for name in GEMINIS if Gemini(name).needs])
def test_affinities_of_half_precision(name: str, dtype: torch.dtype) -> None:
    logits = numbers(n, K).float().log_softmax(-1)
    matrix = AFFINITIES[Gemini(name).needs]["matrix"].to(dtype)
    pairs: list[tuple[Any, Any]] = [(matrix, matrix.float())]
    if Gemini(name).needs == "kernel":
        pairs.append((Features(POINTS.to(dtype)), Features(POINTS.to(dtype).float())))
    for half, single in pairs:
        torch.testing.assert_close(Gemini(name)(logits, half), Gemini(name)(logits, single))


# The page


def test_the_page_promises_what_is_tested() -> None:
    section = PAGE.read_text().partition("## What torch can do with it")[2].partition("\n## ")[0]
    promise, _, forms_promised = " ".join(section.split()).partition(". So does every form of an affinity: ")
    tests = {
        "autograd": test_autograd,
        "double backward": test_double_backward,
        "`func.grad`": test_func_grad,
        "`vmap`": test_vmap,
        "`compile`": test_compile,
        "`export`": test_export,
        "autocast": test_autocast,
    }
    # Those of several processes are tested beside all else that these do, for every objective and these forms of it.
    *most, last = [*tests, "DDP"]
    assert promise == f"Every objective works with {', '.join(most)} and {last}"
    said = {"kernel": "the MMD", "distance": "Wasserstein"}
    expected = ", ".join(f"a {' or '.join(AFFINITIES[need])} for {name}" for need, name in said.items())
    assert forms_promised.startswith(f"{expected}. ")
    assert {name for name, _ in ROWS.values()} == set(GEMINIS)
    for need, forms in AFFINITIES.items():
        assert {form.strip("`").lower() or "none" for form in forms} <= set(GEOMETRIES[need])
    for test in tests.values():
        assert [mark.args[1] for mark in test.pytestmark if mark.name == "parametrize"] == [ROWS]  # type: ignore[attr-defined]
