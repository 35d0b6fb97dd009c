"""Objectives against independent references, what they refuse, what they cost, and the penalties beside them."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import ot
import pytest
import torch
from scipy.stats import wasserstein_distance
from sklearn.metrics import mutual_info_score
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from pollux import Divergence, Gemini, GeminiClustering, f_divergence
from pollux.errors import InputError
from pollux.geometry import resolve
from pollux.geometry.affinity import Features, centre_kernel, centred_kernels
from pollux.native import load_compiled
from pollux.objectives import DIVERGENCES, GEMINIS, PENALTIES
from pollux.objectives.batch_samples import LOCAL
from pollux.objectives.divergences import _Gram
from pollux.objectives.gradients import CLOSED_FORMS, value_and_gradient
from pollux.training.trainable import SingleModel, StackedModels

both_modes = pytest.mark.parametrize("mode", ["ova", "ovo"])
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def random_logits(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def euclidean(points: Tensor) -> Tensor:
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")


def value_and_autograd(gemini: Gemini, logits: Tensor, affinity: Tensor | Features | None) -> tuple[Tensor, Tensor]:
    logits = logits.detach().clone().requires_grad_()
    value = gemini(logits.log_softmax(-1), affinity)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    return value.detach(), gradient


# --- Independent references ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_mutual_information_of_hard_assignments_is_that_of_scikit_learn(seed: int) -> None:
    """For one-hot predictions given the labels of groups, I(x; y) = I(group; y) when x is the group."""
    random = np.random.default_rng(seed)
    groups, labels = random.integers(4, size=60), random.integers(3, size=60)
    # A sample for each group, weighted by its size, predicted as its labels are distributed.
    table = np.array([[np.sum((groups == g) & (labels == k)) for k in range(3)] for g in range(4)], dtype=float)
    log_p = torch.from_numpy(table / table.sum(1, keepdims=True)).log()
    value = Gemini("mi")(log_p, sample_weight=torch.from_numpy(table.sum(1)))
    assert float(value) == pytest.approx(mutual_info_score(groups, labels), rel=1e-12)
    # A certain clustering of distinct samples tells as much as its own entropy.
    certain = torch.nn.functional.one_hot(torch.from_numpy(labels), 3).double().log()
    assert float(Gemini("mi")(certain)) == pytest.approx(mutual_info_score(labels, labels), rel=1e-12)


@both_modes
@pytest.mark.parametrize("seed", range(3))
def test_wasserstein_on_a_line_is_that_of_scipy(mode: str, seed: int) -> None:
    log_p = random_logits(12, 4, seed=seed, scale=2).log_softmax(-1)
    x = random_logits(12, 1, seed=100 + seed)
    p, line = log_p.exp().numpy(), x[:, 0].numpy()
    p_y = p.mean(0)
    if mode == "ova":
        expected = sum(p_y[k] * wasserstein_distance(line, line, p[:, k], np.ones(12)) for k in range(4))
    else:
        expected = sum(
            p_y[a] * p_y[b] * wasserstein_distance(line, line, p[:, a], p[:, b]) for a in range(4) for b in range(4)
        )
    assert float(Gemini(f"wasserstein_{mode}")(log_p, euclidean(x))) == pytest.approx(expected, rel=1e-9)


@both_modes
@pytest.mark.parametrize("power", [1, 2])
def test_wasserstein_is_that_of_pot(mode: str, power: int) -> None:
    log_p = random_logits(10, 3, scale=2).log_softmax(-1)
    cost = euclidean(random_logits(10, 2, seed=1)) ** power
    p = log_p.exp().numpy()
    p_y, conditional = p.mean(0), (p / p.sum(0)).T.copy()
    if mode == "ova":
        expected = sum(p_y[k] * ot.emd2(conditional[k], np.full(10, 0.1), cost.numpy()) for k in range(3))
    else:
        expected = sum(
            p_y[a] * p_y[b] * ot.emd2(conditional[a], conditional[b], cost.numpy()) for a in range(3) for b in range(3)
        )
    assert float(Gemini(f"wasserstein_{mode}")(log_p, cost)) == pytest.approx(expected, rel=1e-9)


def test_the_example_of_appendix_b() -> None:
    """Three clusters at −2, 0 and 2: one-vs-all does not see the middle one, one-vs-one does."""
    x = torch.tensor([[-2.0], [0.0], [2.0]], dtype=torch.float64)
    three = torch.eye(3, dtype=torch.float64).log()
    assert float(Gemini("mmd_ova")(three, Features(x))) == pytest.approx(4 / 3)
    assert float(Gemini("mmd_ovo")(three, Features(x))) == pytest.approx((2 + 4 + 2) * 2 / 9)
    # The middle samples may go either way without any change to one-vs-all.
    halves = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], dtype=torch.float64).log()
    assert float(Gemini("mmd_ova")(halves, Features(x))) == pytest.approx(4 / 3)
    assert float(Gemini("mmd_ovo")(halves, Features(x))) == pytest.approx(4 / 3)


# --- Kernels ------------------------------------------------------------------------------------------------


@both_modes
@every_dtype
def test_features_equal_their_dense_kernel(mode: str, dtype: torch.dtype) -> None:
    logits, z = random_logits(30, 4).to(dtype), random_logits(30, 6, seed=1).to(dtype)
    value, gradient = value_and_autograd(Gemini(f"mmd_{mode}"), logits, Features(z))
    dense_value, dense_gradient = value_and_autograd(Gemini(f"mmd_{mode}"), logits, z @ z.mT)
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(value, dense_value, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(gradient, dense_gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mode", ["ova", "ovo"])
def test_more_features_than_samples_are_as_their_kernel(mode: str) -> None:
    """Of many clusters the kernel is formed, which is smaller: the same value, gradient and second derivative."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(6, 20, dtype=torch.float64, generator=generator)
    logits = torch.randn(2, 6, 8, dtype=torch.float64, generator=generator, requires_grad=True)
    direction = torch.randn(logits.shape, dtype=torch.float64, generator=generator)

    def derivatives(affinity: Features) -> list[torch.Tensor]:
        value = Gemini(f"mmd_{mode}")(logits.log_softmax(-1), affinity).sum()
        (gradient,) = torch.autograd.grad(value, logits, create_graph=True)
        return [value, gradient, *torch.autograd.grad((gradient * direction).sum(), logits)]

    # Features that are learned are not turned into a kernel.
    for wide, narrow in zip(derivatives(Features(z)), derivatives(Features(z.clone().requires_grad_())), strict=True):
        torch.testing.assert_close(wide, narrow, rtol=1e-10, atol=1e-12)


@both_modes
@pytest.mark.parametrize("form", ["features", "dense"])
def test_mmd_does_not_see_where_the_origin_is(mode: str, form: str) -> None:
    logits, z = random_logits(20, 3), random_logits(20, 2, seed=1)
    affinities = [Features(z + shift) if form == "features" else (z + shift) @ (z + shift).mT for shift in (0, 7)]
    (value, gradient), (moved, moved_gradient) = (
        value_and_autograd(Gemini(f"mmd_{mode}"), logits, affinity) for affinity in affinities
    )
    torch.testing.assert_close(moved, value)
    torch.testing.assert_close(moved_gradient, gradient)


@both_modes
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_float32_linear_kernel_far_off_centre_keeps_its_gradient(mode: str, scale: float) -> None:
    """Uncentred products in float32 lose 6 % of the gradient at an offset of 100."""
    logits, z = random_logits(200, 4, scale=scale), 100 + random_logits(200, 5, seed=1)
    gemini = Gemini(f"mmd_{mode}")
    _, exact = value_and_autograd(gemini, logits, Features(z))
    single = z.float()
    bound = resolve("linear").bind(single)(torch.arange(200))
    for affinity, tolerance in ((bound, 1e-4), (Features(single), 1e-2), (single @ single.mT, 1e-2)):
        _, gradient = value_and_autograd(gemini, logits.float(), affinity)
        assert float((gradient - exact).norm() / exact.norm()) < tolerance


@both_modes
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centre", [3.0, 10.0, 100.0])
def test_a_kernel_in_double_precision_keeps_its_digits_in_single(mode: str, centre: float, weighted: bool) -> None:
    """Rounded before it is centred, it loses 2.7 %, 25 % and 91 % of the gradient."""
    logits, z = random_logits(200, 4), 0.3 * random_logits(200, 5, seed=1) + centre
    kernel = z @ z.mT
    weight = random_logits(200, seed=2).square() if weighted else None

    def gradient(logits: Tensor) -> Tensor:
        logits = logits.clone().requires_grad_()
        value = Gemini(f"mmd_{mode}")(logits.log_softmax(-1), kernel, sample_weight=weight)
        return torch.autograd.grad(value, logits)[0].double()

    exact = gradient(logits)
    single = gradient(logits.float())
    # A sum of n products, each rounded: about √n of these errors remain.
    tolerance = 4 * math.sqrt(200) * torch.finfo(torch.float32).eps
    assert float((single - exact).norm() / exact.norm()) < tolerance


@both_modes
def test_a_kernel_that_is_not_symmetric_is_refused(mode: str) -> None:
    log_p, kernel = random_logits(300, 3).log_softmax(-1), random_logits(300, 300, seed=1)
    for refused in (kernel, kernel.clone().requires_grad_()):
        with pytest.raises(InputError, match="needs a symmetric kernel"):
            Gemini(f"mmd_{mode}")(log_p, refused)
    kernel = kernel + kernel.mT
    value = Gemini(f"mmd_{mode}")(log_p, kernel)
    # Beyond the rows that are compared at a time, and after it was found to be symmetric.
    kernel[299, 1] += 1
    with pytest.raises(InputError, match="needs a symmetric kernel"):
        Gemini(f"mmd_{mode}")(log_p, kernel)
    kernel[299, 1] -= 1
    torch.testing.assert_close(Gemini(f"mmd_{mode}")(log_p, kernel), value)
    # What rounding does to a product is no asymmetry.
    kernel[299, 1] *= 1 + 1e-7
    Gemini(f"mmd_{mode}")(log_p, kernel)


def test_a_kernel_is_centred_once_and_what_is_known_goes_with_it() -> None:
    before = len(centred_kernels)
    kernel = random_logits(5, 5)
    kernel = kernel @ kernel.mT
    centred = centre_kernel(kernel, torch.float32)
    assert centre_kernel(kernel, torch.float32) is centred
    torch.testing.assert_close(centred.sum(0), torch.zeros(5), rtol=0, atol=1e-5)
    torch.testing.assert_close(centred, centre_kernel(kernel.clone().requires_grad_(), torch.float32).detach())
    kernel *= 2
    torch.testing.assert_close(centre_kernel(kernel, torch.float32), 2 * centred)
    assert len(centred_kernels) == before + 1
    del kernel
    assert len(centred_kernels) == before


@both_modes
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["from_float32", "from_float64"])
@pytest.mark.parametrize("form", ["features", "dense", "distance"])
def test_affinity_of_another_precision_is_converted(mode: str, dtype: torch.dtype, form: str) -> None:
    logits, z = random_logits(12, 3).to(dtype), random_logits(12, 2, seed=1)
    other = torch.float64 if dtype == torch.float32 else torch.float32
    affinity = {"features": Features(z.to(other)), "dense": (z @ z.mT).to(other), "distance": euclidean(z).to(other)}
    expected = {"features": Features(z.to(dtype)), "dense": (z @ z.mT).to(dtype), "distance": euclidean(z).to(dtype)}
    gemini = Gemini(f"{'wasserstein' if form == 'distance' else 'mmd'}_{mode}")
    value = gemini(logits.log_softmax(-1), affinity[form])
    assert value.dtype == dtype
    torch.testing.assert_close(value, gemini(logits.log_softmax(-1), expected[form]), rtol=1e-5, atol=1e-5)


@both_modes
def test_mmd_gradient_has_no_trace_of_equal_clusters(mode: str) -> None:
    """Two clusters that coincide are at distance √0: its infinite slope must not reach the others."""
    logits = random_logits(10, 3)
    logits[:, 2] = logits[:, 1]
    z = random_logits(10, 2, seed=1)
    for affinity in (z @ z.mT, Features(z)):
        _, gradient = value_and_autograd(Gemini(f"mmd_{mode}"), logits, affinity)
        torch.testing.assert_close(gradient[:, 1], gradient[:, 2], rtol=0, atol=1e-6)
        assert float(gradient.abs().max()) < 1


def test_gram_gradient_with_respect_to_rows_and_kernel() -> None:
    rows = random_logits(2, 3, 4).requires_grad_()
    root = random_logits(4, 4, seed=1).requires_grad_()
    # The kernel is symmetric, as the function may assume.
    assert torch.autograd.gradcheck(lambda r, a: _Gram.apply(r, a @ a.mT, LOCAL), (rows, root))
    assert torch.autograd.gradgradcheck(lambda r, a: _Gram.apply(r, a @ a.mT, LOCAL), (rows, root))


@both_modes
def test_mmd_can_train_its_kernel(mode: str) -> None:
    log_p = random_logits(6, 3).log_softmax(-1)
    z = random_logits(6, 2, seed=1).requires_grad_()
    gemini = Gemini(f"mmd_{mode}")
    assert torch.autograd.gradcheck(lambda x: gemini(log_p, x @ x.mT), (z,))
    assert torch.autograd.gradgradcheck(lambda x: gemini(log_p, x @ x.mT), (z,))
    assert torch.autograd.gradcheck(lambda x: gemini(log_p, Features(x)), (z,))
    (dense,) = torch.autograd.grad(gemini(log_p, z @ z.mT), z)
    (explicit,) = torch.autograd.grad(gemini(log_p, Features(z)), z)
    torch.testing.assert_close(dense, explicit)


# --- Gradients in closed form -------------------------------------------------------------------------------


def affinity_for(name: str, points: Tensor) -> Tensor | Features | None:
    """An affinity of the kind that a closed form takes."""
    return {None: None, "kernel": Features(points), "distance": euclidean(points)}[Gemini(name).needs]


@every_dtype
@pytest.mark.parametrize("name", CLOSED_FORMS)
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "three"])
@pytest.mark.parametrize("offset", [0.0, 2.0], ids=["centred", "off_centre"])
def test_closed_form_is_the_autograd_gradient(
    name: str, dtype: torch.dtype, batch: tuple[int, ...], offset: float
) -> None:
    logits, z = random_logits(*batch, 15, 4, scale=2).to(dtype), random_logits(15, 3, seed=1).to(dtype)
    affinity = affinity_for(name, z - z.mean(0) + offset)
    value, gradient = value_and_gradient(Gemini(name), logits, affinity)
    autograd_value, autograd_gradient = value_and_autograd(Gemini(name), logits, affinity)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(value, autograd_value, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(gradient, autograd_gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", GEMINIS)
def test_gradient_without_a_closed_form_is_the_autograd_one(name: str) -> None:
    """With weights, with sampled pairs, with a matrix: whatever has no closed form falls back."""
    logits, points = random_logits(8, 3), random_logits(8, 2, seed=1)
    affinity = {None: None, "kernel": points @ points.mT, "distance": euclidean(points)}[Gemini(name).needs]
    value, gradient = value_and_gradient(Gemini(name), logits, affinity)
    autograd_value, autograd_gradient = value_and_autograd(Gemini(name), logits, affinity)
    torch.testing.assert_close(value, autograd_value)
    torch.testing.assert_close(gradient, autograd_gradient)
    weight = torch.arange(8, dtype=torch.float64)
    weighted, weighted_gradient = value_and_gradient(Gemini(name), logits, affinity, weight)
    torch.testing.assert_close(weighted, Gemini(name)(logits.log_softmax(-1), affinity, sample_weight=weight))
    assert bool((weighted_gradient[0] == 0).all())


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_form_is_not_taken_for_a_divergence_of_the_same_name(name: str) -> None:
    """A user may call a divergence of their own "kl"."""
    divergence, mode = name.rsplit("_", 1)
    same_name = Divergence(divergence, lambda p, q, *_: 7 + torch.cdist(p.exp(), q.exp()), Gemini(name).needs)
    own = Gemini(same_name, one_vs_one=mode == "ovo")
    assert own.name == name
    logits, z = random_logits(8, 3), random_logits(8, 2, seed=1)
    affinity = affinity_for(name, z - z.mean(0))
    value, gradient = value_and_gradient(own, logits, affinity)
    expected, expected_gradient = value_and_autograd(own, logits, affinity)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, expected_gradient)


@every_dtype
@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_form_is_finite_at_saturation_and_at_collapse(name: str, dtype: torch.dtype) -> None:
    z = random_logits(10, 2, seed=1).to(dtype)
    affinity = affinity_for(name, z - z.mean(0))
    for logits in (1e3 * random_logits(10, 4).to(dtype), torch.zeros(10, 4, dtype=dtype)):
        value, gradient = value_and_gradient(Gemini(name), logits, affinity)
        assert bool(value.isfinite())
        assert bool(gradient.isfinite().all())


# --- Probabilities that are clipped ---


@every_dtype
@pytest.mark.parametrize("name", GEMINIS)
def test_clipped_probabilities_count_as_the_clip_and_get_no_gradient(name: str, dtype: torch.dtype) -> None:
    logits, points = random_logits(12, 3).to(dtype), random_logits(12, 2, seed=1).to(dtype)
    logits[:4, 0] = -60.0
    affinity = affinity_for(name, points)
    log_p = logits.log_softmax(-1).requires_grad_()
    value = Gemini(name, clip=1e-12)(log_p, affinity)
    (gradient,) = torch.autograd.grad(value, log_p)
    torch.testing.assert_close(value, Gemini(name, clip=None)(log_p.detach().clamp_min(math.log(1e-12)), affinity))
    assert bool((gradient[:4, 0] == 0).all())
    assert bool((gradient[4:] != 0).any())
    by_logits_value, _ = value_and_gradient(Gemini(name, clip=1e-12), logits, affinity)
    torch.testing.assert_close(by_logits_value, value.detach())


@pytest.mark.parametrize("name", GEMINIS)
def test_a_clip_below_all_probabilities_changes_nothing(name: str) -> None:
    logits, points = random_logits(12, 3), random_logits(12, 2, seed=1)
    affinity = affinity_for(name, points)
    value, gradient = value_and_gradient(Gemini(name), logits, affinity)
    same, same_gradient = value_and_gradient(Gemini(name, clip=1e-30), logits, affinity)
    torch.testing.assert_close(same, value)
    torch.testing.assert_close(same_gradient, gradient)


@pytest.mark.parametrize("clip", [0.0, -1e-3, 1.0, float("nan"), "1e-12"])
def test_a_clip_is_a_small_probability(clip: float) -> None:
    with pytest.raises(ValueError, match="smallest probability to tell from zero"):
        Gemini("kl_ova", clip=clip)


@every_dtype
@pytest.mark.parametrize("name", CLOSED_FORMS)
@pytest.mark.parametrize("clip", [1e-7, 1e-2, 0.3])
def test_clipped_gradients_are_those_of_autograd(name: str, dtype: torch.dtype, clip: float) -> None:
    """Those of the form that is closed under a clip, too."""
    logits, points = random_logits(2, 15, 4, scale=6).to(dtype), random_logits(15, 3, seed=1).to(dtype)
    gemini, affinity = Gemini(name, clip=clip), affinity_for(name, points)
    value, gradient = value_and_gradient(gemini, logits, affinity)
    autograd_value, autograd_gradient = value_and_autograd(gemini, logits, affinity)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(value, autograd_value, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(gradient, autograd_gradient, rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(load_compiled() is None, reason="nothing was compiled")
def test_a_clip_does_not_cost_kl_ovo_its_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd, "grad")
    for clip in (None, 1e-7, 1e-12):
        value_and_gradient(Gemini("kl_ovo", clip=clip), random_logits(5, 3), None)


def test_only_kl_ovo_is_clipped_by_default() -> None:
    assert {name: Gemini(name).clip for name in GEMINIS} == {**dict.fromkeys(GEMINIS), "kl_ovo": 1e-7}
    assert Gemini("kl", one_vs_one=True).clip == 1e-7
    assert Gemini("kl_ovo", clip=None).clip is None
    assert Gemini(Divergence("kl", lambda p, q: torch.cdist(p, q)), one_vs_one=True).clip is None


@every_dtype
@pytest.mark.parametrize("clip", ["auto", 1e-12, None])
@pytest.mark.parametrize("n", [6, 200])
def test_kl_ovo_is_finite_for_certain_predictions_beside_an_empty_cluster(
    n: int, clip: float | None, dtype: torch.dtype
) -> None:
    log_p = torch.nn.functional.one_hot(torch.arange(n) % 3, 4).to(dtype).log().requires_grad_()
    value = Gemini("kl_ovo", clip=clip)(log_p)
    (gradient,) = torch.autograd.grad(value, log_p)
    assert bool(value.isfinite())
    assert bool(gradient.isfinite().all())
    if clip is not None:
        # Two clusters of n/3 samples differ with probability 2/3, then by log p − log clip at most.
        assert float(value.detach()) <= -math.log(1e-12)


def test_kl_ovo_is_continuous_where_its_bound_begins_to_act() -> None:
    """And where it does not act, the bound changes nothing."""
    bounded, plain = Gemini("kl_ovo"), Gemini("kl_ovo", clip=None)
    logits = random_logits(6, 3)
    torch.testing.assert_close(bounded(logits.log_softmax(-1)), plain(logits.log_softmax(-1)), rtol=0, atol=0)
    assert torch.autograd.gradcheck(lambda z: bounded(z.log_softmax(-1)), (logits.clone().requires_grad_(),))

    def at(log_probability: float) -> float:
        log_p = logits.log_softmax(-1)
        log_p[0, 0] = log_probability
        # Less than 1e-7 is missing from one.
        log_p[0, 1:] = logits[0, 1:].log_softmax(-1)
        return float(bounded(log_p))

    bound, step = math.log(1e-7), 1e-6
    assert at(bound - step) == at(bound) == at(-1e3)
    assert abs(at(bound + step) - at(bound)) < step


def test_options_of_an_objective_are_shown() -> None:
    assert repr(Gemini("mi")) == "Gemini('kl_ova')"
    assert repr(Gemini("kl_ovo")) == "Gemini('kl_ovo', clip=1e-07)"
    assert repr(Gemini("kl_ovo", clip=None)) == "Gemini('kl_ovo', clip=None)"
    assert repr(Gemini("kl_ovo", clip=1e-12, sampled_pairs=3)) == "Gemini('kl_ovo', clip=1e-12, sampled_pairs=3)"


# --- Divergences of one's own -------------------------------------------------------------------------------


GENERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "kl": lambda t: t * t.log(),
    "hellinger": lambda t: 2 * (1 - t.sqrt()) / 2,
    "tv": lambda t: (t - 1).abs() / 2,
    "chi2": lambda t: (t - 1) ** 2,
}


@every_dtype
@pytest.mark.parametrize("name", [name for name in GEMINIS if name.rsplit("_", 1)[0] in GENERATORS])
def test_f_divergence_reproduces_the_named_ones(name: str, dtype: torch.dtype) -> None:
    divergence, mode = name.rsplit("_", 1)
    generic = Gemini(f_divergence(GENERATORS[divergence]), one_vs_one=mode == "ovo")
    logits = random_logits(2, 20, 4, scale=2).to(dtype)
    value, gradient = value_and_autograd(generic, logits, None)
    expected_value, expected_gradient = value_and_autograd(Gemini(name), logits, None)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(value, expected_value, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(gradient, expected_gradient, rtol=tolerance, atol=tolerance)


def test_every_f_divergence_of_the_registry_has_its_generator() -> None:
    assert set(GENERATORS) == {name for name, divergence in DIVERGENCES.items() if divergence.needs is None}


@every_dtype
@both_modes
@pytest.mark.parametrize("sharpness", [30.0, 60.0, 200.0, math.inf])
def test_f_divergence_of_certain_clusters_is_the_named_one(mode: str, dtype: torch.dtype, sharpness: float) -> None:
    """Where q vanishes beside p, q f(p / q) tends to p times the slope of f at infinity, and not to zero."""
    certain = torch.eye(3, dtype=dtype).repeat(2, 1)
    log_p = certain.log() if math.isinf(sharpness) else (sharpness * certain).log_softmax(-1)
    generic = Gemini(f_divergence(GENERATORS["tv"]), one_vs_one=mode == "ovo")
    torch.testing.assert_close(generic(log_p), Gemini(f"tv_{mode}")(log_p), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda t: t * t, r"f\(1\) = 0; here f\(1\) = 1"),
        (lambda t: t.log() * math.nan, r"f\(1\) = nan"),
        (lambda t: (t - 1).sum(), "same shape"),
        (lambda t: 0.0, "same shape"),
    ],
)
def test_f_that_defines_no_divergence_is_refused(f: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        f_divergence(f)


@pytest.mark.parametrize("f", [3, "kl", None])
def test_an_f_that_is_no_function_is_refused(f: Any) -> None:
    with pytest.raises(TypeError, match=f"f is a function of a tensor of ratios.*; not {f!r}"):
        f_divergence(f)


def test_a_divergence_of_ones_own_is_used_in_both_modes() -> None:
    """The largest difference of probability of any one sample."""

    def supremum(log_p: Tensor, log_q: Tensor) -> Tensor:
        return torch.cdist(log_p.exp(), log_q.exp(), p=math.inf)

    divergence = Divergence("supremum", supremum)
    log_p = torch.eye(2, dtype=torch.float64).log()
    assert float(Gemini(divergence)(log_p)) == pytest.approx(0.5)
    assert float(Gemini(divergence, one_vs_one=True)(log_p)) == pytest.approx(0.5 * 1)
    assert Gemini(divergence).name == "supremum_ova"
    assert repr(Gemini(divergence, one_vs_one=True)) == "Gemini('supremum_ovo')"


def test_a_divergence_of_ones_own_may_need_an_affinity() -> None:
    def energy(log_p: Tensor, log_q: Tensor, distance: Tensor) -> Tensor:
        """Twice the expected distance across, less the expected distances within."""
        p, q = log_p.exp(), log_q.exp()
        within_p, within_q = (((w @ distance) * w).sum(-1) for w in (p, q))
        return 2 * p @ distance @ q.mT - within_p[..., :, None] - within_q[..., None, :]

    gemini = Gemini(Divergence("energy", energy, needs="distance"), one_vs_one=True)
    log_p = random_logits(7, 3).log_softmax(-1)
    distance = euclidean(random_logits(7, 2, seed=1))
    assert gemini.needs == "distance"
    assert float(gemini(log_p, distance)) > 0
    with pytest.raises(ValueError, match="energy_ovo needs a distance"):
        gemini(log_p)


# --- Names and errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GEMINIS)
def test_names_and_their_parts_agree(name: str) -> None:
    divergence, mode = name.rsplit("_", 1)
    assert Gemini(name).name == name
    assert Gemini(name).one_vs_one == (mode == "ovo")
    assert Gemini(divergence, one_vs_one=mode == "ovo").name == name
    assert Gemini(DIVERGENCES[divergence], one_vs_one=mode == "ovo").name == name
    assert Gemini(name).needs == DIVERGENCES[divergence].needs


def test_mi_is_another_name_of_kl_ova() -> None:
    assert Gemini("mi").name == "kl_ova"


def test_chi2_one_vs_one_is_refused_with_the_reason() -> None:
    for make in (lambda: Gemini("chi2_ovo"), lambda: Gemini("chi2", one_vs_one=True)):
        with pytest.raises(ValueError, match=r"chi2_ovo is refused.*unbounded.*infinite.*hellinger_ovo"):
            make()


@pytest.mark.parametrize("name", ["kll_ova", "mmd_ovx", "mmd_", "_ova", "", "ova", "MI"])
def test_unknown_names_list_the_valid_ones(name: str) -> None:
    with pytest.raises(ValueError, match="Unknown objective") as error:
        Gemini(name)
    assert repr(name) in str(error.value)
    for valid in ("mi", *GEMINIS):
        assert valid in str(error.value)


def test_contradicting_modes_are_refused() -> None:
    with pytest.raises(ValueError, match="one-vs-all by name"):
        Gemini("mmd_ova", one_vs_one=True)


@pytest.mark.parametrize("objective", [None, 3, lambda log_p, log_q: log_p])
def test_what_is_no_objective_is_refused(objective: object) -> None:
    with pytest.raises(TypeError, match=r"An objective is a name such as .* which pollux\.f_divergence\(f\) makes"):
        Gemini(objective)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "pairs"), [("mmd_ova", 3), ("mmd_ovo", 0), ("mmd_ovo", -1), ("mmd_ovo", 2.5), ("mmd_ovo", True)]
)
def test_sampled_pairs_are_a_positive_number_of_a_one_vs_one_objective(name: str, pairs: Any) -> None:
    with pytest.raises(ValueError, match="sampled_pairs is a positive whole number"):
        Gemini(name, sampled_pairs=pairs)


@pytest.mark.parametrize("name", [name for name in GEMINIS if Gemini(name).needs])
def test_missing_and_wrong_affinities_are_explained(name: str) -> None:
    gemini, log_p = Gemini(name), random_logits(5, 2).log_softmax(-1)
    with pytest.raises(ValueError, match=f"{name} needs a {gemini.needs} between the samples"):
        gemini(log_p)
    for affinity in (torch.zeros(4, 4), torch.zeros(5, 4), torch.zeros(5), Features(torch.zeros(4, 2))):
        with pytest.raises(ValueError, match=r"The affinity of 5 samples must be a tensor \(5, 5\), or Features\(x\)"):
            gemini(log_p, affinity)


@both_modes
def test_wasserstein_refuses_features(mode: str) -> None:
    with pytest.raises(TypeError, match="Wasserstein needs a distance matrix"):
        Gemini(f"wasserstein_{mode}")(random_logits(5, 2).log_softmax(-1), Features(torch.zeros(5, 2)))


@pytest.mark.parametrize("log_p", [torch.zeros(3), torch.zeros(3, 2, dtype=torch.int64)])
def test_what_are_no_log_probabilities_is_refused(log_p: Tensor) -> None:
    with pytest.raises(ValueError, match="log_p must hold log-probabilities"):
        Gemini("mi")(log_p)


def test_no_samples_are_refused() -> None:
    with pytest.raises(InputError, match=r"There are no samples: log_p is of shape \(0, 2\)"):
        Gemini("mi")(torch.zeros(0, 2))


@pytest.mark.parametrize("weight", [-1e-9, math.nan, math.inf])
def test_weights_that_are_negative_or_not_finite_are_refused(weight: float) -> None:
    with pytest.raises(InputError, match="sample_weight must be finite and not negative"):
        Gemini("mi")(random_logits(5, 2).log_softmax(-1), sample_weight=torch.tensor([1.0, 1, 1, 1, weight]))


def test_samples_that_do_not_count_at_all_are_refused() -> None:
    with pytest.raises(InputError, match="sample_weight is zero for all samples"):
        Gemini("mi")(random_logits(5, 2).log_softmax(-1), sample_weight=torch.zeros(5))
    with pytest.raises(ValueError, match="at least one non-zero number"):
        GeminiClustering(2, model="linear", objective="mi").fit(np.ones((5, 2)), sample_weight=np.zeros(5))


def test_sample_weights_may_be_a_list_or_an_array() -> None:
    log_p, weight = random_logits(5, 2).log_softmax(-1), np.arange(5.0)
    weight.flags.writeable = False
    expected = Gemini("mi")(log_p, sample_weight=torch.arange(5.0))
    for given in (weight.tolist(), weight, np.arange(5), weight[::-1][::-1].astype(">f8")):
        torch.testing.assert_close(Gemini("mi")(log_p, sample_weight=given), expected)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(5,\)"):
        Gemini("mi")(log_p, sample_weight=[1.0, 2.0])


def test_sample_weights_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(5,\)"):
        Gemini("mi")(random_logits(5, 2).log_softmax(-1), sample_weight=torch.ones(4))


# --- Memory -------------------------------------------------------------------------------------------------


def peak_bytes(run: Callable[[], object]) -> int:
    """The most that tensors take at once, temporary ones inside operations included."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    assert changes, "the profiler saw no allocation"
    return max(np.cumsum(changes))


@pytest.mark.parametrize("name", ["tv", "f", "kl", "hellinger"])
def test_one_vs_one_memory_is_linear_in_the_number_of_clusters(name: str) -> None:
    """Value and gradient together stay far below the n·K·K numbers that all pairs of clusters would take."""
    n, K = 20_000, 30
    gemini = Gemini(f_divergence(GENERATORS["tv"]) if name == "f" else name, one_vs_one=True)
    logits = random_logits(n, K).requires_grad_()
    peak = peak_bytes(lambda: gemini(logits.log_softmax(-1)).backward())
    one_table = n * K * logits.element_size()
    assert one_table < peak < K * one_table / 2


# --- Penalties ----------------------------------------------------------------------------------------------


class Steep(nn.Module):
    """Two clusters on either side of zero, as far apart as ``slope`` says."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(slope))

    def forward(self, inputs: Tensor) -> Tensor:
        side = self.slope * inputs[:, :1]
        return torch.cat([side, -side], 1)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_entropy_is_that_of_the_predictions() -> None:
    model = SingleModel(nn.Linear(2, 4), 4)
    inputs = torch.zeros(5, 2)
    uniform, certain = torch.full((5, 4), -math.log(4)), (1e3 * torch.eye(4)).log_softmax(-1)
    assert float(PENALTIES["entropy"](model, inputs, uniform, None)) == pytest.approx(math.log(4))
    assert float(PENALTIES["entropy"](model, inputs, certain, None)) == pytest.approx(0)
    both = torch.stack([uniform[:4], certain])
    torch.testing.assert_close(PENALTIES["entropy"](model, inputs, both, None), torch.tensor([math.log(4), 0.0]))


def test_weight_decay_is_half_the_squared_norm() -> None:
    module = nn.Linear(2, 3)
    penalty = PENALTIES["weight_decay"](SingleModel(module, 3), torch.zeros(1, 2), torch.zeros(1, 3), None)
    gradients = torch.autograd.grad(penalty, list(module.parameters()))
    expected = (module.weight.square().sum() + module.bias.square().sum()) / 2
    torch.testing.assert_close(penalty, expected)
    # Its gradient is the parameters themselves.
    for gradient, parameter in zip(gradients, module.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.detach())


def test_weight_decay_of_stacked_restarts_pulls_each_by_its_own_weights() -> None:
    torch.manual_seed(0)
    stacked = StackedModels([nn.Linear(2, 3) for _ in range(4)], 3)
    penalty = PENALTIES["weight_decay"](stacked, torch.zeros(1, 2), torch.zeros(4, 1, 3), None)
    for gradient, parameter in zip(
        torch.autograd.grad(penalty.sum(), stacked.parameters()), stacked.parameters(), strict=True
    ):
        torch.testing.assert_close(gradient, parameter.detach())


def test_vat_is_zero_for_a_constant_model_and_positive_for_a_steep_one() -> None:
    inputs = torch.randn(20, 3, generator=generator())
    constant = nn.Linear(3, 4)
    nn.init.zeros_(constant.weight)
    values = []
    for module, n_clusters in ((constant, 4), (Steep(0.1), 2), (Steep(3.0), 2)):
        model = SingleModel(module, n_clusters)
        penalty = PENALTIES["vat"](model, inputs, model(inputs), generator=generator())
        gradients = torch.autograd.grad(penalty, list(module.parameters()))
        assert all(bool(gradient.isfinite().all()) for gradient in gradients)
        values.append(float(penalty.detach()))
    flat, gentle, steep = values
    assert flat == pytest.approx(0, abs=1e-7)
    assert 1e-5 < gentle < steep


def test_vat_finds_the_direction_that_matters() -> None:
    """One input of many counts; a random move of length one would hardly touch it."""
    inputs = torch.zeros(4, 50)
    model = SingleModel(Steep(1.0), 2)
    penalty = PENALTIES["vat"](model, inputs, model(inputs), generator=generator())
    # A move of one along the first input: KL between (½, ½) and the softmax of (1, −1).
    assert float(penalty.detach()) == pytest.approx(math.log(math.cosh(1.0)), rel=1e-4)


def test_vat_grows_with_its_radius() -> None:
    inputs = torch.randn(10, 2, generator=generator())
    model = SingleModel(Steep(1.0), 2)
    small, large = (
        float(PENALTIES["vat"](model, inputs, model(inputs), generator=generator(), radius=radius).detach())  # type: ignore[call-arg]
        for radius in (0.1, 1.0)
    )
    assert 0 < small < large


def test_vat_trains_the_model_and_not_its_target() -> None:
    inputs = torch.randn(10, 2, generator=generator())
    model = SingleModel(Steep(1.0), 2)
    log_p = model(inputs).detach().requires_grad_()
    penalty = PENALTIES["vat"](model, inputs, log_p, generator=generator())
    by_slope, by_target = torch.autograd.grad(penalty, [*model.parameters(), log_p], allow_unused=True)
    assert float(by_slope) > 0
    assert by_target is None


def test_vat_leaves_running_statistics_alone() -> None:
    """Moved inputs are not data; the batch norm still trains on the batch itself."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    model = SingleModel(module, 2)
    inputs = torch.randn(16, 3, generator=generator())
    log_p = model(inputs)
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    penalty = PENALTIES["vat"](model, inputs, log_p, generator=generator())
    penalty.backward()
    assert float(penalty.detach()) > 0
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, before[name]), name
    model(inputs)
    assert int(module[1].num_batches_tracked) == int(before["1.num_batches_tracked"]) + 1


@pytest.mark.parametrize("shape", [(6, 3), (6, 1, 4, 4)], ids=["rows", "images"])
def test_vat_of_stacked_restarts_is_one_value_each(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    size = math.prod(shape[1:])
    modules = [nn.Sequential(nn.Flatten(), nn.Linear(size, 2)) for _ in range(3)]
    with torch.no_grad():
        modules[1][1].weight.zero_()
    stacked = StackedModels(modules, 2)
    inputs = torch.randn(*shape, generator=generator())
    penalty = PENALTIES["vat"](stacked, inputs, stacked(inputs), generator=generator())
    assert penalty.shape == (3,)
    assert float(penalty.detach()[1]) == pytest.approx(0, abs=1e-7)
    assert float(penalty.detach()[0]) > 1e-6 < float(penalty.detach()[2])
    # Each restart is moved by its own penalty alone.
    (gradient, *_) = torch.autograd.grad(penalty[0], stacked.parameters())
    assert float(gradient[0].abs().max()) > 0
    assert not bool(gradient[1:].any())


def test_vat_refuses_a_table_that_has_no_inputs() -> None:
    model = SingleModel(nn.Embedding(5, 2), 2)
    index = torch.arange(5)
    with pytest.raises(ValueError, match="moves the inputs: a free table has none"):
        PENALTIES["vat"](model, index, model(index), generator=generator())


@pytest.mark.parametrize("name", PENALTIES)
def test_every_penalty_is_one_finite_differentiable_value(name: str) -> None:
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    model = SingleModel(module, 2)
    inputs = torch.randn(5, 3, generator=generator())
    also = {"spacing": torch.ones(5)} if getattr(PENALTIES[name], "uses_spacing", False) else {}
    penalty = PENALTIES[name](model, inputs, model(inputs), generator=generator(), **also)
    gradients = torch.autograd.grad(penalty, list(module.parameters()))
    assert penalty.shape == ()
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert any(bool(gradient.any()) for gradient in gradients)


@pytest.mark.parametrize(
    "logits", [-torch.rand(20, 3) * 9, torch.nn.functional.logsigmoid(torch.randn(20, 3)), torch.full((20, 3), -20.0)]
)
def test_numbers_that_are_no_log_probabilities_are_refused(logits: torch.Tensor) -> None:
    """Also where none is positive, as minus a squared distance."""
    with pytest.raises(ValueError, match="over the clusters, and must to 1"):
        Gemini("mi")(logits)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        Gemini("mi")(logits.to(dtype).log_softmax(-1))


def test_kernels_and_distances_are_told_apart() -> None:
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    log_p = torch.randn(40, 3).log_softmax(-1)
    distances = torch.cdist(x, x)
    for mode in ("ova", "ovo"):
        for kernel in (distances, distances**2, -x @ x.mT):
            with pytest.raises(InputError, match="farther apart"):
                Gemini(f"mmd_{mode}")(log_p, kernel)
            with pytest.raises(InputError, match="farther apart"):
                Gemini(f"mmd_{mode}")(log_p, kernel.clone().requires_grad_())
        # Minus distances have the MMD of the energy distance.
        for kernel in (x @ x.mT, -distances, (-(distances**2)).exp(), torch.ones(40, 40), torch.zeros(40, 40)):
            Gemini(f"mmd_{mode}")(log_p, kernel)
        with pytest.raises(InputError, match="some are negative: is it a kernel"):
            Gemini(f"wasserstein_{mode}")(log_p, x @ x.mT)
        with pytest.raises(InputError, match="itself is not 0: is it a kernel"):
            Gemini(f"wasserstein_{mode}")(log_p, (-(distances**2)).exp())
        Gemini(f"wasserstein_{mode}")(log_p, distances)


@pytest.mark.parametrize("mode", [False, True])
def test_a_divergence_of_another_shape_is_refused(mode: bool) -> None:
    log_p = torch.randn(12, 3).log_softmax(-1)

    def l1(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return (p.exp()[..., :, None, :] - q.exp()[..., None, :, :]).abs().sum(-1)

    assert float(Gemini(Divergence("l1", l1), mode)(log_p)) == pytest.approx(2 * float(Gemini("tv", mode)(log_p)))
    for wrong in (lambda p, q: l1(p, q).sum(-1), lambda p, q: l1(p, q)[..., None], lambda p, q: l1(p, q).sum()):
        with pytest.raises(InputError, match="'l1' must give"):
            Gemini(Divergence("l1", wrong), mode)(log_p)
    for wrong in (lambda p, q: l1(p, q).detach().numpy(), lambda p, q: 1.0):
        with pytest.raises(InputError, match=r"'l1' must give a tensor.*it gave (ndarray \(3, [13]\)|float)\."):
            Gemini(Divergence("l1", wrong), mode)(log_p)


@pytest.mark.parametrize("option", [{"needs": "distances"}, {"needs": ("kernel", "distance")}, {"across": "sum"}])
def test_options_of_a_divergence_are_checked_when_it_is_made(option: dict[str, Any]) -> None:
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=rf"{name} of the divergence 'l1' is one of .*; not {re.escape(repr(value))}"):
        Divergence("l1", torch.cdist, **option)
