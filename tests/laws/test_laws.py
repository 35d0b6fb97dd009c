"""The laws of every GEMINI: all divergences, both modes, both precisions, on random problems.

``CASES`` is read from the registries, and the last tests prove that no entry of them, and no law, escapes.
"""

import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import chisquare
from torch import Tensor

from coverings import IS_FULL
from pollux.geometry.affinity import Affinity, Features
from pollux.objectives import DIVERGENCES, GEMINIS, Divergence, Gemini, f_divergence
from pollux.objectives.gemini import ALIASES

Array = NDArray[np.float64]
DTYPES = (torch.float32, torch.float64)


def jensen_shannon(t: Tensor) -> Tensor:
    return (t * t.log() - (t + 1) * ((t + 1) / 2).log()) / 2


def pearson(t: Tensor) -> Tensor:
    return (t - 1) ** 2


def reverse_kl(t: Tensor) -> Tensor:
    return -t.log()


F_DIVERGENCES = {f.__name__: f_divergence(f, f.__name__) for f in (jensen_shannon, pearson, reverse_kl)}


@cache
def gemini_of(name: str) -> Gemini:
    if name in GEMINIS or name in ALIASES:
        # Laws are those of the definitions: what a clip changes is tested beside it.
        return Gemini(name, clip=None)
    divergence, mode = name.rsplit("_", 1)
    return Gemini(F_DIVERGENCES[divergence], one_vs_one=mode == "ovo")


CASES = (*GEMINIS, *(f"{name}_{mode}" for name in F_DIVERGENCES for mode in ("ova", "ovo")))
ONE_VS_ONE = tuple(name for name in CASES if gemini_of(name).one_vs_one)

every_gemini = pytest.mark.parametrize("name", CASES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])


def examples(count: int) -> settings:
    """So many random problems; of those, some in ``make test``."""
    few = count if IS_FULL else (count + 2) // 3
    return settings(max_examples=few, derandomize=True, deadline=None, database=None)


@dataclass(frozen=True)
class Problem:
    """Logits (n, K) of n samples, their points (n, d), and a generator for what a law adds."""

    logits: Tensor
    points: Tensor
    generator: torch.Generator

    def log_p(self, dtype: torch.dtype = torch.float64) -> Tensor:
        return self.logits.to(dtype).log_softmax(-1)

    def affinity(self, name: str, dtype: torch.dtype = torch.float64) -> Tensor | None:
        return affinity_between(self.points, name, dtype)

    def order(self, size: int) -> Tensor:
        return torch.randperm(size, generator=self.generator)


def affinity_between(points: Tensor, name: str, dtype: torch.dtype = torch.float64) -> Tensor | None:
    """The kernel exp(−‖x − y‖²/2) or the distance ‖x − y‖, whichever the objective needs."""
    needs = gemini_of(name).needs
    if needs is None:
        return None
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    return ((-(distances**2) / 2).exp() if needs == "kernel" else distances).to(dtype)


@st.composite
def problems(draw: st.DrawFn, *, clusters: tuple[int, int] = (1, 5), samples: tuple[int, int] = (1, 8)) -> Problem:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    n, n_clusters = draw(st.integers(*samples)), draw(st.integers(*clusters))
    scale = draw(st.sampled_from([0.1, 1.0, 4.0]))
    logits = scale * torch.randn(n, n_clusters, generator=generator, dtype=torch.float64)
    points = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return Problem(logits, points, generator)


def assert_same(name: str, actual: Tensor, expected: Tensor | float) -> None:
    """Equal up to the rounding of the precision that was used.

    A square root turns a rounding error ε of a vanishing squared distance into √ε: the MMD has that much less.
    """
    epsilon = torch.finfo(actual.dtype).eps
    rough = gemini_of(name).needs == "kernel"
    tolerance = 2 * math.sqrt(epsilon) if rough else 100 * epsilon
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual.double(), expected, rtol=100 * epsilon, atol=tolerance)


# --- What changes nothing -----------------------------------------------------------------------------------


@every_dtype
@every_gemini
@examples(7)
@given(problem=problems())
def test_law_label_permutation(name: str, dtype: torch.dtype, problem: Problem) -> None:
    log_p, affinity, gemini = problem.log_p(dtype), problem.affinity(name, dtype), gemini_of(name)
    permuted = log_p[:, problem.order(log_p.shape[1])]
    assert_same(name, gemini(permuted, affinity), gemini(log_p, affinity))


@every_dtype
@every_gemini
@examples(7)
@given(problem=problems())
def test_law_sample_permutation(name: str, dtype: torch.dtype, problem: Problem) -> None:
    log_p, gemini = problem.log_p(dtype), gemini_of(name)
    order = problem.order(len(log_p))
    permuted = gemini(log_p[order], affinity_between(problem.points[order], name, dtype))
    assert_same(name, permuted, gemini(log_p, problem.affinity(name, dtype)))


@every_dtype
@every_gemini
@examples(6)
@given(problem=problems(samples=(1, 6)), copies=st.integers(2, 3))
def test_law_duplicated_data(name: str, dtype: torch.dtype, problem: Problem, copies: int) -> None:
    log_p, gemini = problem.log_p(dtype), gemini_of(name)
    repeated = gemini(log_p.repeat(copies, 1), affinity_between(problem.points.repeat(copies, 1), name, dtype))
    assert_same(name, repeated, gemini(log_p, problem.affinity(name, dtype)))


@every_dtype
@every_gemini
@examples(7)
@given(problem=problems(), share=st.sampled_from([0.5, 0.1, 0.75, 1e-6]))
def test_law_proportional_split_of_a_cluster(name: str, dtype: torch.dtype, problem: Problem, share: float) -> None:
    """Two clusters with the same p(x|y) are as good as one."""
    log_p, affinity, gemini = problem.log_p(dtype), problem.affinity(name, dtype), gemini_of(name)
    part, rest = log_p[:, :1] + math.log(share), log_p[:, :1] + math.log1p(-share)
    split = torch.cat([part, log_p[:, 1:], rest], 1)
    assert_same(name, gemini(split, affinity), gemini(log_p, affinity))


@every_dtype
@every_gemini
@examples(7)
@given(problem=problems(), depth=st.sampled_from([1e3, 1e5, 1e30, math.inf]))
def test_law_empty_cluster(name: str, dtype: torch.dtype, problem: Problem, depth: float) -> None:
    """Neither the value nor the gradient of the others, for logits that say never or for an exact zero."""
    gemini, affinity = gemini_of(name), problem.affinity(name, dtype)
    logits = problem.logits.to(dtype).requires_grad_()
    value = gemini(logits.log_softmax(-1), affinity)
    nobody = logits.new_full((len(logits), 1), -depth)
    with_empty = gemini(torch.cat([logits, nobody], 1).log_softmax(-1), affinity)
    assert_same(name, with_empty, value)
    (gradient,) = torch.autograd.grad(value, logits)
    (gradient_with_empty,) = torch.autograd.grad(with_empty, logits)
    tolerance = 1e-3 if dtype == torch.float32 else 1e-6
    torch.testing.assert_close(gradient_with_empty, gradient, rtol=tolerance, atol=tolerance)


@every_dtype
@every_gemini
@examples(6)
@given(problem=problems(), batch=st.sampled_from([(2,), (1,), (2, 3)]))
def test_law_leading_dimensions_are_a_loop(
    name: str, dtype: torch.dtype, problem: Problem, batch: tuple[int, ...]
) -> None:
    gemini, affinity = gemini_of(name), problem.affinity(name, dtype)
    noise = torch.randn(*batch, *problem.logits.shape, generator=problem.generator, dtype=torch.float64)
    log_p = (problem.logits + noise).to(dtype).log_softmax(-1)
    values = gemini(log_p, affinity)
    assert values.shape == batch
    loop = [gemini(one, affinity) for one in log_p.reshape(-1, *problem.logits.shape)]
    assert_same(name, values, torch.stack(loop).reshape(batch).double())


# --- Weights of samples -------------------------------------------------------------------------------------


@every_dtype
@every_gemini
@examples(7)
@given(problem=problems(), data=st.data())
def test_law_integer_weights_are_repetitions(
    name: str, dtype: torch.dtype, problem: Problem, data: st.DataObject
) -> None:
    """A weight of two is the sample twice, a weight of zero is the sample removed."""
    n = len(problem.logits)
    counts = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any))
    gemini, log_p = gemini_of(name), problem.log_p(dtype)
    weighted = gemini(log_p, problem.affinity(name, dtype), sample_weight=torch.tensor(counts, dtype=torch.float64))
    index = torch.repeat_interleave(torch.arange(n), torch.tensor(counts))
    repeated = gemini(log_p[index], affinity_between(problem.points[index], name, dtype))
    assert_same(name, weighted, repeated)


@every_gemini
@examples(6)
@given(problem=problems(samples=(3, 8), clusters=(2, 4)))
def test_law_removed_samples_have_no_gradient(name: str, problem: Problem) -> None:
    logits = problem.logits.clone().requires_grad_()
    weight = torch.ones(len(logits), dtype=torch.float64)
    weight[0] = 0
    value = gemini_of(name)(logits.log_softmax(-1), problem.affinity(name), sample_weight=weight)
    (gradient,) = torch.autograd.grad(value, logits)
    assert bool(gradient.isfinite().all())
    assert bool((gradient[0] == 0).all())


@every_gemini
@pytest.mark.parametrize("weight_dtype", [torch.int64, torch.float32, torch.float64])
def test_law_type_of_the_weights_does_not_matter(name: str, weight_dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    log_p = torch.randn(7, 3, generator=generator, dtype=torch.float64).log_softmax(-1)
    affinity = affinity_between(torch.randn(7, 2, generator=generator, dtype=torch.float64), name)
    weight = torch.tensor([1, 2, 3, 1, 1, 2, 3])
    expected = gemini_of(name)(log_p, affinity, sample_weight=weight.double())
    actual = gemini_of(name)(log_p, affinity, sample_weight=weight.to(weight_dtype))
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)


# --- Values -------------------------------------------------------------------------------------------------


@every_dtype
@every_gemini
@examples(6)
@given(problem=problems())
def test_law_zero_at_collapse(name: str, dtype: torch.dtype, problem: Problem) -> None:
    """All samples predicted alike: the clusters do not depend on x."""
    alike = problem.logits[:1].expand_as(problem.logits).to(dtype).log_softmax(-1)
    assert_same(name, gemini_of(name)(alike, problem.affinity(name, dtype)), 0.0)


@every_dtype
@every_gemini
@examples(8)
@given(problem=problems())
def test_law_not_negative(name: str, dtype: torch.dtype, problem: Problem) -> None:
    value = gemini_of(name)(problem.log_p(dtype), problem.affinity(name, dtype))
    assert value.dtype == dtype
    assert float(value) >= -20 * torch.finfo(dtype).eps


def largest_value(name: str, n: int, n_clusters: int, affinity: Tensor | None) -> float:
    """What no clustering of n samples into K clusters can exceed."""
    if affinity is not None and gemini_of(name).needs == "distance":
        return float(affinity.max())
    if affinity is not None:
        # Two means are no farther apart than two samples of the feature space.
        squares = affinity.diagonal()
        return math.sqrt(max(0.0, float((squares[:, None] + squares - 2 * affinity).max())))
    divergence, mode = gemini_of(name).name.rsplit("_", 1)
    if mode == "ova":
        # An average of K divergences D(p(x|y) ‖ p(x)) whose ratio p(x|y)/p(x) is at most 1/p(y).
        limits = {
            "kl": math.log(min(n_clusters, n)),
            "tv": 1 - 1 / n_clusters,
            "hellinger": 1 - 1 / math.sqrt(n_clusters),
            "chi2": n_clusters - 1.0,
            "pearson": n_clusters - 1.0,
            "jensen_shannon": math.log(2),
        }
        return limits.get(divergence, math.inf)
    # Two clusters differ with probability 1 − Σ p(y)², and then at most by the largest divergence.
    different = 1 - 1 / n_clusters
    return {"tv": different, "hellinger": different, "jensen_shannon": different * math.log(2)}.get(
        divergence, math.inf
    )


@every_dtype
@every_gemini
@examples(8)
@given(problem=problems(), sharpness=st.sampled_from([1.0, 30.0]))
def test_law_bounded(name: str, dtype: torch.dtype, problem: Problem, sharpness: float) -> None:
    log_p = (sharpness * problem.logits).to(dtype).log_softmax(-1)
    value = gemini_of(name)(log_p, problem.affinity(name, dtype))
    limit = largest_value(name, *log_p.shape, problem.affinity(name))
    assert float(value) <= limit * (1 + 1e-5) + 1e-5


@pytest.mark.parametrize(
    ("name", "attained"),
    [
        ("mi", math.log(4)),
        ("tv_ova", 3 / 4),
        ("tv_ovo", 3 / 4),
        ("hellinger_ova", 1 / 2),
        ("hellinger_ovo", 3 / 4),
        ("chi2_ova", 3.0),
        ("jensen_shannon_ovo", 3 / 4 * math.log(2)),
    ],
)
def test_law_bounds_are_attained_by_balanced_certain_clusters(name: str, attained: float) -> None:
    log_p = torch.eye(4, dtype=torch.float64).repeat(3, 1).log()
    assert largest_value(name, 12, 4, None) == pytest.approx(attained)
    assert float(gemini_of(name)(log_p)) == pytest.approx(attained, rel=1e-9)


# --- Two clusters: one against all is one against the other -------------------------------------------------


@every_dtype
@pytest.mark.parametrize("divergence", ["tv", "mmd", "wasserstein"])
@examples(20)
@given(problem=problems(clusters=(2, 2)))
def test_law_two_clusters_one_vs_all_is_one_vs_one(divergence: str, dtype: torch.dtype, problem: Problem) -> None:
    """D is a norm of p − q, and p(x|a) − p(x) = p(b) (p(x|a) − p(x|b)): both modes are 2 p(a) p(b) D(a, b)."""
    ova, ovo = f"{divergence}_ova", f"{divergence}_ovo"
    log_p, affinity = problem.log_p(dtype), problem.affinity(ova, dtype)
    value = gemini_of(ova)(log_p, affinity)
    assert_same(ova, value, gemini_of(ovo)(log_p, affinity))
    log_x_given_y = log_p.log_softmax(-2).mT
    distance = DIVERGENCES[divergence](log_x_given_y[:1], log_x_given_y[1:], affinity)[0, 0]
    assert_same(ova, value, 2 * log_p.exp().mean(0).prod() * distance)


def test_law_two_clusters_differ_for_a_cost_that_is_not_a_metric() -> None:
    """With squared Euclidean costs the modes must not be taken for each other."""
    log_p = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], dtype=torch.float64).log()
    points = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    cost = torch.cdist(points, points) ** 2
    # From p(x|a) = (2, 1, 0)/3 to (1, 1, 1)/3, each of two thirds moves by one. To (0, 1, 2)/3 another third
    # must also move by two, at a cost of four.
    assert float(gemini_of("wasserstein_ova")(log_p, cost)) == pytest.approx(2 / 3)
    assert float(gemini_of("wasserstein_ovo")(log_p, cost)) == pytest.approx(1)


# --- Gradients ----------------------------------------------------------------------------------------------


@every_gemini
@examples(4)
@given(problem=problems(clusters=(2, 4), samples=(2, 6)))
def test_law_gradcheck(name: str, problem: Problem) -> None:
    affinity, gemini = problem.affinity(name), gemini_of(name)
    logits = problem.logits.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: gemini(z.log_softmax(-1), affinity), (logits,), atol=1e-6)


@every_gemini
@examples(2)
@given(problem=problems(clusters=(2, 3), samples=(2, 5)))
def test_law_second_derivatives(name: str, problem: Problem) -> None:
    affinity, gemini = problem.affinity(name), gemini_of(name)
    logits = problem.logits.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda z: gemini(z.log_softmax(-1), affinity), (logits,), atol=1e-6)


@every_gemini
@examples(2)
@given(problem=problems(clusters=(2, 3), samples=(3, 5)))
def test_law_gradcheck_with_weights(name: str, problem: Problem) -> None:
    affinity, gemini = problem.affinity(name), gemini_of(name)
    weight = torch.rand(len(problem.logits), generator=problem.generator, dtype=torch.float64)
    logits = problem.logits.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: gemini(z.log_softmax(-1), affinity, sample_weight=weight), (logits,), atol=1e-6
    )


@every_dtype
@every_gemini
@examples(7)
@given(problem=problems(), magnitude=st.sampled_from([1e2, 1e3, 1e6]))
def test_law_finite_at_saturation(name: str, dtype: torch.dtype, problem: Problem, magnitude: float) -> None:
    logits = (magnitude * problem.logits).to(dtype).requires_grad_()
    value = gemini_of(name)(logits.log_softmax(-1), problem.affinity(name, dtype))
    (gradient,) = torch.autograd.grad(value, logits)
    assert bool(value.isfinite())
    assert bool(gradient.isfinite().all())


@every_dtype
@every_gemini
@examples(6)
@given(problem=problems())
def test_law_finite_at_exact_zeros(name: str, dtype: torch.dtype, problem: Problem) -> None:
    """Hard assignments: log-probabilities of 0 and −inf, whole columns of −inf among them."""
    certain = torch.nn.functional.one_hot(problem.logits.argmax(1), problem.logits.shape[1] + 1)
    log_p = certain.to(dtype).log().requires_grad_()
    value = gemini_of(name)(log_p, problem.affinity(name, dtype))
    (gradient,) = torch.autograd.grad(value, log_p)
    assert bool(value.isfinite())
    assert bool(gradient.isfinite().all())


@every_dtype
@every_gemini
@examples(6)
@given(problem=problems(clusters=(2, 4)))
def test_law_finite_gradient_at_collapse(name: str, dtype: torch.dtype, problem: Problem) -> None:
    """Where every divergence is zero, and a distance has a kink."""
    logits = problem.logits[:1].expand_as(problem.logits).to(dtype).clone().requires_grad_()
    value = gemini_of(name)(logits.log_softmax(-1), problem.affinity(name, dtype))
    (gradient,) = torch.autograd.grad(value, logits)
    assert bool(gradient.isfinite().all())
    # No cluster gains more than its share of the largest distance: nothing explodes where √ is steep.
    assert float(gradient.abs().max()) <= 10


# --- Table 1 of the paper, by loops -------------------------------------------------------------------------


def marginal(p: Array) -> Array:
    return np.array([sum(p[i, y] for i in range(len(p))) / len(p) for y in range(p.shape[1])])


def slow_kl_ova(p: Array, affinity: Array) -> float:
    """E_x[KL(p(y|x) ‖ p(y))]."""
    n, K, p_y = *p.shape, marginal(p)
    return sum(p[i, y] * math.log(p[i, y] / p_y[y]) for i in range(n) for y in range(K)) / n


def slow_kl_ovo(p: Array, affinity: Array) -> float:
    """E_x[KL(p(y|x) ‖ p(y)) + KL(p(y) ‖ p(y|x))]."""
    n, K, p_y = *p.shape, marginal(p)
    reverse = sum(p_y[y] * math.log(p_y[y] / p[i, y]) for i in range(n) for y in range(K)) / n
    return slow_kl_ova(p, affinity) + reverse


def slow_hellinger_ova(p: Array, affinity: Array) -> float:
    """1 − E_x E_y[√(p(y|x) / p(y))]."""
    n, K, p_y = *p.shape, marginal(p)
    return 1 - sum(p_y[y] * math.sqrt(p[i, y] / p_y[y]) for i in range(n) for y in range(K)) / n


def slow_hellinger_ovo(p: Array, affinity: Array) -> float:
    """E_x V_y[√(p(y|x) / p(y))]."""
    n, K, p_y = *p.shape, marginal(p)
    total = 0.0
    for i in range(n):
        mean = sum(p_y[y] * math.sqrt(p[i, y] / p_y[y]) for y in range(K))
        total += sum(p_y[y] * (math.sqrt(p[i, y] / p_y[y]) - mean) ** 2 for y in range(K))
    return total / n


def slow_tv_ova(p: Array, affinity: Array) -> float:
    """E_x[TV(p(y|x), p(y))]."""
    n, K, p_y = *p.shape, marginal(p)
    return sum(abs(p[i, y] - p_y[y]) / 2 for i in range(n) for y in range(K)) / n


def slow_tv_ovo(p: Array, affinity: Array) -> float:
    """½ E_x E_ab |p(a|x)/p(a) − p(b|x)/p(b)|."""
    n, K, p_y = *p.shape, marginal(p)
    return (
        sum(
            p_y[a] * p_y[b] * abs(p[i, a] / p_y[a] - p[i, b] / p_y[b]) / 2
            for i, a, b in product(range(n), range(K), range(K))
        )
        / n
    )


def slow_mmd_ova(p: Array, affinity: Array) -> float:
    n, K, p_y = *p.shape, marginal(p)
    total = 0.0
    for y in range(K):
        squared = sum(
            affinity[i, j] * (p[i, y] * p[j, y] / p_y[y] ** 2 + 1 - 2 * p[i, y] / p_y[y]) / n**2
            for i, j in product(range(n), range(n))
        )
        total += p_y[y] * math.sqrt(max(squared, 0.0))
    return total


def slow_mmd_ovo(p: Array, affinity: Array) -> float:
    n, K, p_y = *p.shape, marginal(p)
    total = 0.0
    for a, b in product(range(K), range(K)):
        squared = sum(
            affinity[i, j]
            * (
                p[i, a] * p[j, a] / p_y[a] ** 2
                + p[i, b] * p[j, b] / p_y[b] ** 2
                - 2 * p[i, a] * p[j, b] / (p_y[a] * p_y[b])
            )
            / n**2
            for i, j in product(range(n), range(n))
        )
        total += p_y[a] * p_y[b] * math.sqrt(max(squared, 0.0))
    return total


def transport_by_linear_programming(m: Array, other: Array, cost: Array) -> float:
    """min Σ C_ij π_ij over plans π ≥ 0 with the marginals m and other."""
    n = len(m)
    constraints, masses = [], []
    for i in range(n):
        leaves, arrives = np.zeros((n, n)), np.zeros((n, n))
        leaves[i], arrives[:, i] = 1, 1
        constraints += [leaves.ravel(), arrives.ravel()]
        masses += [m[i], other[i]]
    # One constraint follows from the others.
    result = linprog(cost.ravel(), A_eq=np.array(constraints[:-1]), b_eq=np.array(masses[:-1]), method="highs")
    return float(result.fun)


def slow_wasserstein_ova(p: Array, affinity: Array) -> float:
    n, K, p_y = *p.shape, marginal(p)
    return sum(
        p_y[y] * transport_by_linear_programming(p[:, y] / sum(p[:, y]), np.full(n, 1 / n), affinity) for y in range(K)
    )


def slow_wasserstein_ovo(p: Array, affinity: Array) -> float:
    K, p_y = p.shape[1], marginal(p)
    return sum(
        p_y[a] * p_y[b] * transport_by_linear_programming(p[:, a] / sum(p[:, a]), p[:, b] / sum(p[:, b]), affinity)
        for a, b in product(range(K), range(K))
    )


def slow_f_ova(f: Callable[[float], float]) -> Callable[[Array, Array], float]:
    """E_y E_x[f(p(y|x) / p(y))], appendix D."""

    def slow(p: Array, affinity: Array) -> float:
        n, K, p_y = *p.shape, marginal(p)
        return sum(p_y[y] * f(p[i, y] / p_y[y]) for i in range(n) for y in range(K)) / n

    return slow


def slow_f_ovo(f: Callable[[float], float]) -> Callable[[Array, Array], float]:
    """E_ab E_x[p(b|x)/p(b) f(p(a|x) p(b) / (p(b|x) p(a)))], appendix D."""

    def slow(p: Array, affinity: Array) -> float:
        n, K, p_y = *p.shape, marginal(p)
        return (
            sum(
                p_y[a] * p_y[b] * p[i, b] / p_y[b] * f(p[i, a] * p_y[b] / (p[i, b] * p_y[a]))
                for i, a, b in product(range(n), range(K), range(K))
            )
            / n
        )

    return slow


def slow_jensen_shannon(t: float) -> float:
    return t * math.log(t) / 2 - (t + 1) / 2 * math.log((t + 1) / 2)


SLOW: dict[str, Callable[[Array, Array], float]] = {
    "kl_ova": slow_kl_ova,
    "kl_ovo": slow_kl_ovo,
    "hellinger_ova": slow_hellinger_ova,
    "hellinger_ovo": slow_hellinger_ovo,
    "tv_ova": slow_tv_ova,
    "tv_ovo": slow_tv_ovo,
    "chi2_ova": slow_f_ova(lambda t: (t - 1) ** 2),
    "mmd_ova": slow_mmd_ova,
    "mmd_ovo": slow_mmd_ovo,
    "wasserstein_ova": slow_wasserstein_ova,
    "wasserstein_ovo": slow_wasserstein_ovo,
    "jensen_shannon_ova": slow_f_ova(slow_jensen_shannon),
    "jensen_shannon_ovo": slow_f_ovo(slow_jensen_shannon),
    "pearson_ova": slow_f_ova(lambda t: (t - 1) ** 2),
    "pearson_ovo": slow_f_ovo(lambda t: (t - 1) ** 2),
    "reverse_kl_ova": slow_f_ova(lambda t: -math.log(t)),
    "reverse_kl_ovo": slow_f_ovo(lambda t: -math.log(t)),
}


@every_dtype
@every_gemini
@examples(6)
@given(problem=problems(clusters=(1, 4), samples=(1, 6)))
def test_law_definition_by_loops(name: str, dtype: torch.dtype, problem: Problem) -> None:
    affinity = problem.affinity(name)
    values = np.empty(0) if affinity is None else affinity.numpy()
    expected = SLOW[name](problem.log_p().exp().numpy(), values)
    actual = gemini_of(name)(problem.log_p(dtype), problem.affinity(name, dtype))
    # The linear program is solved to about seven digits.
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-7}[dtype]
    assert float(actual) == pytest.approx(expected, rel=10 * tolerance, abs=10 * tolerance)


# --- An estimate from sampled pairs -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_VS_ONE)
def test_law_sampled_pairs_are_unbiased(name: str) -> None:
    """The mean of many pairs is the mean of all, to within what chance allows."""
    generator = torch.Generator().manual_seed(0)
    log_p = torch.randn(5, 4, generator=generator, dtype=torch.float64).log_softmax(-1)
    affinity = affinity_between(torch.randn(5, 2, generator=generator, dtype=torch.float64), name)
    divergence = gemini_of(name).divergence
    full = float(gemini_of(name)(log_p, affinity))
    one_pair = Gemini(divergence, one_vs_one=True, sampled_pairs=1)
    single = torch.stack([one_pair(log_p, affinity, generator=generator) for _ in range(60)])
    pairs = 2000
    estimate = float(Gemini(divergence, one_vs_one=True, sampled_pairs=pairs)(log_p, affinity, generator=generator))
    assert float(single.std()) > 0
    assert abs(estimate - full) <= 4 * float(single.std()) / math.sqrt(pairs)
    assert abs(float(single.mean()) - full) <= 4 * float(single.std()) / math.sqrt(len(single))


@pytest.mark.parametrize("name", ONE_VS_ONE)
def test_law_sampled_pairs_of_two_clusters_are_exact_for_symmetric_divergences(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    log_p = torch.randn(3, 6, 2, generator=generator, dtype=torch.float64).log_softmax(-1)
    affinity = affinity_between(torch.randn(6, 2, generator=generator, dtype=torch.float64), name)
    sampled = Gemini(gemini_of(name).divergence, one_vs_one=True, sampled_pairs=400)
    expected, actual = gemini_of(name)(log_p, affinity), sampled(log_p, affinity, generator=generator)
    assert actual.shape == (3,)
    if gemini_of(name).divergence.name in ("tv", "hellinger", "mmd", "wasserstein", "jensen_shannon"):
        torch.testing.assert_close(actual, expected)
    else:
        torch.testing.assert_close(actual, expected, rtol=0.15, atol=0)


def test_law_every_ordered_pair_is_equally_likely() -> None:
    K, pairs = 5, 20_000
    counts = np.zeros((K, K))

    def count(log_p: Tensor, log_q: Tensor) -> Tensor:
        np.add.at(counts, (log_p[:, 0].argmax(-1).numpy(), log_q[:, 0].argmax(-1).numpy()), 1)
        return torch.zeros(*log_p.shape[:-1], log_q.shape[-2], dtype=log_p.dtype)

    log_p = (9 * torch.eye(K)).log_softmax(-1)
    sampled = Gemini(Divergence("count", count), one_vs_one=True, sampled_pairs=pairs)
    sampled(log_p, generator=torch.Generator().manual_seed(0))
    assert counts.sum() == pairs
    assert (counts.diagonal() == 0).all()
    assert chisquare(counts[~np.eye(K, dtype=bool)]).pvalue > 0.01


@pytest.mark.parametrize("name", ONE_VS_ONE)
def test_law_sampled_pairs_are_those_of_the_generator(name: str) -> None:
    generator = torch.Generator().manual_seed(2)
    log_p = torch.randn(6, 5, generator=generator, dtype=torch.float64).log_softmax(-1)
    affinity = affinity_between(torch.randn(6, 2, generator=generator, dtype=torch.float64), name)
    sampled = Gemini(gemini_of(name).divergence, one_vs_one=True, sampled_pairs=3)
    once, again, other = (sampled(log_p, affinity, generator=torch.Generator().manual_seed(seed)) for seed in (7, 7, 8))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


@pytest.mark.parametrize("name", ONE_VS_ONE)
def test_law_gradcheck_of_sampled_pairs(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 3, generator=generator, dtype=torch.float64).requires_grad_()
    affinity = affinity_between(torch.randn(4, 2, generator=generator, dtype=torch.float64), name)
    sampled = Gemini(gemini_of(name).divergence, one_vs_one=True, sampled_pairs=2)

    def value(z: Tensor) -> Tensor:
        return sampled(z.log_softmax(-1), affinity, generator=torch.Generator().manual_seed(0))

    assert torch.autograd.gradcheck(value, (logits,), atol=1e-6)


# --- Kernels through features obey the same laws ------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("name", [name for name in GEMINIS if DIVERGENCES[name.rsplit("_", 1)[0]].needs == "kernel"])
@examples(20)
@given(problem=problems())
def test_law_features_are_their_kernel(name: str, dtype: torch.dtype, problem: Problem) -> None:
    log_p, features = problem.log_p(dtype), problem.points.to(dtype)
    affinity: Affinity = Features(features)
    assert_same(name, gemini_of(name)(log_p, affinity), gemini_of(name)(log_p, features @ features.mT))


# --- Nothing escapes ----------------------------------------------------------------------------------------


def test_every_registry_entry_is_a_case_with_a_definition() -> None:
    expected = {
        f"{name}_{mode}"
        for name, divergence in DIVERGENCES.items()
        for mode in ("ova", "ovo")
        if not (mode == "ovo" and divergence.refuses_one_vs_one)
    }
    assert set(GEMINIS) == expected
    assert len(GEMINIS) == len(expected)
    assert set(CASES) >= expected
    assert set(SLOW) == set(CASES)
    assert {gemini_of(name).name for name in GEMINIS} == expected
    assert {gemini_of(alias).name for alias in ALIASES} == set(ALIASES.values())


def test_every_law_runs_on_every_case_or_says_on_which() -> None:
    """A law without a parameter for the objective would silently test one of them."""
    special = {
        "test_law_two_clusters_differ_for_a_cost_that_is_not_a_metric",
        "test_law_every_ordered_pair_is_equally_likely",
    }
    laws = [
        (name, function)
        for name, function in inspect.getmembers(sys.modules[__name__], inspect.isfunction)
        if name.startswith("test_law")
    ]
    assert len(laws) > 20
    partial = set()
    for name, law in laws:
        marks = {mark.args[0]: tuple(mark.args[1]) for mark in getattr(law, "pytestmark", []) if mark.args}
        if marks.get("name") != CASES:
            partial.add(name)
        if "dtype" in marks:
            assert marks["dtype"] == DTYPES
    assert partial == special | {
        "test_law_bounds_are_attained_by_balanced_certain_clusters",
        "test_law_features_are_their_kernel",
        "test_law_gradcheck_of_sampled_pairs",
        "test_law_sampled_pairs_are_those_of_the_generator",
        "test_law_sampled_pairs_are_unbiased",
        "test_law_sampled_pairs_of_two_clusters_are_exact_for_symmetric_divergences",
        "test_law_two_clusters_one_vs_all_is_one_vs_one",
    }
