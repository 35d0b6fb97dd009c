"""Gradients of GEMINIs with respect to logits, in closed form where it is known, else by autograd.

Each closed form takes logits (…, n, K) and an affinity, and returns the value (…) and its gradient, of the
shape of the logits. On small batches recording operations costs several times the operations themselves.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pollux.geometry.affinity import Affinity, Features
from pollux.objectives.batch_samples import DistributedSamples
from pollux.objectives.gemini import Gemini
from pollux.ranks import Ranks
from pollux.transport import solve_warm

Array = NDArray[np.float64]
_TINY = float(np.finfo(np.float64).tiny)
ClosedForm = Callable[[Tensor, Affinity | None], tuple[Tensor, Tensor]]


def value_and_gradient(
    gemini: Gemini,
    logits: Tensor,
    affinity: Affinity | None,
    sample_weight: Tensor | None = None,
    generator: torch.Generator | None = None,
    ranks: Ranks | None = None,
    sizes: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """The value (…) at logits (…, n, K), and its gradient (…, n, K).

    With ``ranks`` the samples are those here, and so is the gradient; ``sizes`` are those of all processes, if known.
    """
    closed_form = _closed_form(gemini, affinity)
    if closed_form is not None and sample_weight is None and ranks is None:
        return kl_ovo(logits, clip=gemini.clip) if closed_form is kl_ovo else closed_form(logits, affinity)
    if closed_form is not None and sample_weight is None and ranks is not None and sizes is not None:
        distributed_form = DISTRIBUTED_FORMS.get(gemini.name)
        if distributed_form is not None:
            return distributed_form(logits, affinity, DistributedSamples(ranks, list(sizes), []))
    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        log_p = logits.log_softmax(-1)
        value = gemini(log_p, affinity, sample_weight=sample_weight, generator=generator, ranks=ranks)
        (gradient,) = torch.autograd.grad(value.sum() / (1 if ranks is None else ranks.size), logits)
    return value.detach(), gradient


def _closed_form(gemini: Gemini, affinity: Affinity | None) -> ClosedForm | None:
    other = gemini.sampled_pairs is not None or (gemini.clip is not None and gemini.name != "kl_ovo")
    if other or not gemini.is_registered or (gemini.needs == "kernel" and not isinstance(affinity, Features)):
        return None
    return CLOSED_FORMS.get(gemini.name)


def kl_ova(logits: Tensor, affinity: Affinity | None = None) -> tuple[Tensor, Tensor]:
    """E_x Σ_y p(y|x) log(p(y|x) / p(y)); the derivative of a probability is that logarithm, over n."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    # p(y) of a cluster that no sample prefers may underflow; its logarithm then only multiplies zeros.
    tiny = torch.finfo(p.dtype).tiny
    log_ratio = log_p - p.mean(-2, keepdim=True).clamp_min(tiny).log()
    weighted = p * log_ratio
    per_sample = weighted.sum(-1, keepdim=True)
    n = logits.shape[-2]
    return per_sample.mean((-2, -1)), (weighted - p * per_sample) / n


def kl_ovo(logits: Tensor, affinity: Affinity | None = None, clip: float | None = None) -> tuple[Tensor, Tensor]:
    """E_x Σ_y (p(y|x) − p(y)) log(p(y|x) / p(y)): the divergence of the predictions from p(y), and back.

    Clipped predictions p sum to s(x), no longer to one: E_x Σ_y (s p(y|x) − s(x) p(y)) log(p(y|x) / p(y)), s = E s(x).
    """
    if clip is None:
        log_p, p, p_y = _predictions(logits)
        log_ratio = log_p - p_y.log()
        value = ((p - p_y) * log_ratio).sum(-1).mean(-1)
        return value, _centred(p * (log_ratio - log_ratio.mean(-2, keepdim=True)) - p_y, p)
    log_p = logits.log_softmax(-1)
    clipped = log_p.clamp_min(math.log(clip))
    p = clipped.exp()
    p_y, sums = p.mean(-2, keepdim=True), p.sum(-1, keepdim=True)
    s = sums.mean(-2, keepdim=True)
    log_ratio = clipped - p_y.log()
    forward, reverse = (p * log_ratio).sum(-1, keepdim=True), (p_y * log_ratio).sum(-1, keepdim=True)
    forward = forward.mean(-2, keepdim=True)
    value = (s * forward - (sums * reverse).mean(-2, keepdim=True))[..., 0, 0]
    constants = forward + s - reverse - (sums * log_ratio).mean(-2, keepdim=True)
    weighted = p * (s * log_ratio + constants) - sums * p_y
    return value, _centred(weighted.masked_fill_(log_p < clipped, 0), log_p.exp_())


def hellinger_ova(logits: Tensor, affinity: Affinity | None = None) -> tuple[Tensor, Tensor]:
    """1 − E_x Σ_y √(p(y|x) p(y))."""
    log_p, p, p_y = _predictions(logits)
    roots, root_y = (log_p / 2).exp(), p_y.sqrt()
    means = roots.mean(-2, keepdim=True)
    weighted = roots * root_y + p * (means / root_y)
    return 1 - (means * root_y).sum((-2, -1)), _centred(weighted / -2, p)


def hellinger_ovo(logits: Tensor, affinity: Affinity | None = None) -> tuple[Tensor, Tensor]:
    """1 − E_x (Σ_y √(p(y|x) p(y)))²."""
    log_p, p, p_y = _predictions(logits)
    roots, root_y = (log_p / 2).exp(), p_y.sqrt()
    products = roots * root_y
    sums = products.sum(-1, keepdim=True)
    weighted = sums * products + p * ((sums * roots).mean(-2, keepdim=True) / root_y)
    return 1 - sums.square().mean((-2, -1)), _centred(-weighted, p)


def tv_ova(logits: Tensor, affinity: Affinity | None = None) -> tuple[Tensor, Tensor]:
    """½ E_x Σ_y |p(y|x) − p(y)|."""
    _, p, p_y = _predictions(logits)
    differences = p - p_y
    signs = differences.sign()
    weighted = p * (signs - signs.mean(-2, keepdim=True)) / 2
    return differences.abs().sum(-1).mean(-1) / 2, _centred(weighted, p)


def tv_ovo(logits: Tensor, affinity: Affinity | None = None) -> tuple[Tensor, Tensor]:
    """½ E_x Σ_{a,b} |p(a|x) p(b) − p(b|x) p(a)|.

    The sign of a pair is that of the difference of p(y|x) / p(y). With clusters sorted by that, sums over all b with
    their signs are sums over those below a less those above it: no pairs are needed.
    """
    log_p, p, p_y = _predictions(logits)
    order = (log_p - p_y.log()).argsort(-1)
    back = order.argsort(-1)
    over_proportions = _below_less_above(p_y.expand_as(p).gather(-1, order)).gather(-1, back)
    over_predictions = _below_less_above(p.gather(-1, order)).gather(-1, back).mean(-2, keepdim=True)
    value = (p * over_proportions).sum(-1).mean(-1)
    return value, _centred(p * (over_proportions - over_predictions), p)


def mmd_ova(logits: Tensor, affinity: Affinity | None) -> tuple[Tensor, Tensor]:
    """Σ_y ‖E_x p(y|x) φ(x)‖ for centred features φ: p(y) times the distance of a mean to the centre."""
    assert isinstance(affinity, Features)
    features, n = affinity.centre().values.to(logits.dtype), logits.shape[-2]
    p = logits.softmax(-1)
    sums = p.mT @ features
    norms: Tensor = torch.linalg.vector_norm(sums, dim=-1, keepdim=True)
    directions = sums.div_((n * norms).clamp_min_(torch.finfo(p.dtype).tiny))
    return norms.sum((-2, -1)) / n, _through_softmax(p, features @ directions.mT)


def mmd_ovo(logits: Tensor, affinity: Affinity | None) -> tuple[Tensor, Tensor]:
    """Σ_{a,b} p(a) p(b) ‖m_a − m_b‖ for the means m_y = E_x p(y|x) φ(x) / p(y) of the features φ."""
    assert isinstance(affinity, Features)
    features, n = affinity.centre().values.to(logits.dtype), logits.shape[-2]
    _, p, p_y = _predictions(logits)
    p_y = p_y.mT
    means = p.mT @ features / (n * p_y)
    distances = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")
    # Two clusters in one place, but for rounding, pull in no direction.
    rounding = 4 * torch.finfo(p.dtype).eps * torch.linalg.vector_norm(features, dim=-1).amax()
    inverse = torch.where(distances > rounding, 1 / distances, 0)
    value = (p_y * distances * p_y.mT).sum((-2, -1))
    # By p(a|x): 2 Σ_b p(b) (‖m_a − m_b‖ + (φ(x) − m_a) · (m_a − m_b) / ‖m_a − m_b‖).
    pull = inverse * p_y.mT
    directions = pull.sum(-1, keepdim=True) * means - pull @ means
    constant = (distances * p_y.mT).sum(-1) - (directions * means).sum(-1)
    return value, _through_softmax(p, (features @ directions.mT + constant[..., None, :]) * (2 / n))


def wasserstein_ova(logits: Tensor, affinity: Affinity | None) -> tuple[Tensor, Tensor]:
    """Σ_y p(y) W(y): the derivative by p(y|x_i) is (f_i + mean g) / n, for the potentials f, g of W(y)."""
    n = logits.shape[-2]
    clusters, p_y = _clusters(logits)
    values, f, g = _transport(clusters.reshape(-1, n), np.full(n, 1 / n), affinity)
    gradient = (f + np.add.reduce(g, 1, keepdims=True) / n).reshape(clusters.shape)
    return _answer(logits, clusters, np.add.reduce(p_y * values.reshape(p_y.shape), -1), gradient)


def wasserstein_ovo(logits: Tensor, affinity: Affinity | None) -> tuple[Tensor, Tensor]:
    """2 Σ_{a<b} p(a) p(b) W(a, b): the derivative by p(a|x_i) is the sum over b of 2 p(b) (f_i + g · b) / n."""
    n, K = logits.shape[-2:]
    clusters, p_y = _clusters(logits)
    pairs = _pairs(K)
    sides = clusters[..., pairs.sides, :]
    m = len(pairs.sides) // 2
    values, f, g = _transport(sides[..., :m, :].reshape(-1, n), sides[..., m:, :].reshape(-1, n), affinity)
    shape = (*sides.shape[:-2], m, n)
    potentials = np.concatenate([f.reshape(shape), g.reshape(shape)], -2)
    others = p_y[..., pairs.others]
    # Sums over the sides that a cluster is are products with a matrix of few numbers.
    gradient = (pairs.is_side * others[..., None, :]) @ potentials
    gradient += (np.add.reduce(potentials * sides, -1) / n @ pairs.is_other.T)[..., None]
    values = values.reshape(shape[:-1]) * others[..., :m] * others[..., m:]
    return _answer(logits, clusters, 2 * np.add.reduce(values, -1), 2 * gradient)


class _Pairs(NamedTuple):
    """The clusters on the two sides of all pairs, first sides first (2 · pairs,), and those on the other side; and the
    same as matrices (K, 2 · pairs) of zeros and ones."""

    sides: NDArray[np.int64]
    others: NDArray[np.int64]
    is_side: Array
    is_other: Array


@functools.lru_cache(maxsize=8)
def _pairs(K: int) -> _Pairs:
    first, second = np.triu_indices(K, 1)
    sides, others = np.concatenate([first, second]), np.concatenate([second, first])
    return _Pairs(sides, others, *(np.equal.outer(np.arange(K), side).astype(np.float64) for side in (sides, others)))


def _clusters(logits: Tensor) -> tuple[Array, Array]:
    """p(y|x) with a row for each cluster, (…, K, n), and p(y) (…, K); as arrays, since the solver takes those."""
    scores = np.ascontiguousarray(np.swapaxes(logits.detach().to("cpu", torch.float64).numpy(), -2, -1))
    with np.errstate(invalid="ignore"):
        clusters = np.exp(scores - np.maximum.reduce(scores, -2, keepdims=True))
    clusters /= np.add.reduce(clusters, -2, keepdims=True)
    # A cluster whose mass vanishes is a distribution all the same; it counts for nothing, whichever it is.
    clusters += _TINY
    return clusters, np.add.reduce(clusters, -1) / clusters.shape[-1]


def _transport(p: Array, q: Array, affinity: Affinity | None) -> tuple[Array, Array, Array]:
    assert affinity is not None
    assert not isinstance(affinity, Features)
    return solve_warm(p, q, affinity, symmetric=True)[:3]


def _answer(logits: Tensor, clusters: Array, value: Array, gradient: Array) -> tuple[Tensor, Tensor]:
    """The value, and the gradient by logits from n times that by probabilities, both (…, K, n)."""
    gradient *= clusters / clusters.shape[-1]
    gradient -= clusters * np.add.reduce(gradient, -2, keepdims=True)
    back = np.ascontiguousarray(np.swapaxes(gradient, -2, -1))
    return torch.from_numpy(np.asarray(value)).to(logits), torch.from_numpy(back).to(logits)


def _predictions(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p(y|x) and p(y|x), (…, n, K), and p(y), (…, 1, K), which is never zero."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    return log_p, p, p.mean(-2, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)


def _below_less_above(ordered: Tensor) -> Tensor:
    """Of each entry along the last dimension, the sum of those before it less the sum of those behind it."""
    sums = ordered.cumsum(-1)
    return 2 * sums - ordered - sums[..., -1:]


def _centred(weighted: Tensor, p: Tensor) -> Tensor:
    """The gradient with respect to logits, from n times that by probabilities, times these."""
    return (weighted - p * weighted.sum(-1, keepdim=True)) / p.shape[-2]


def _through_softmax(p: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with respect to logits, from that with respect to probabilities."""
    weighted = gradient.mul_(p)
    return weighted.sub_(p * weighted.sum(-1, keepdim=True))


def _distributed_kl_ova(
    logits: Tensor, affinity: Affinity | None, samples: DistributedSamples
) -> tuple[Tensor, Tensor]:
    """:func:`kl_ova` of samples that are spread over processes: K sums travel, and the value."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    (sums,) = samples.sums(p.sum(-2, keepdim=True))
    log_ratio = log_p - (sums / samples.n).clamp_min(torch.finfo(p.dtype).tiny).log()
    weighted = p * log_ratio
    per_sample = weighted.sum(-1, keepdim=True)
    (value,) = samples.sums(per_sample.sum((-2, -1)))
    return value / samples.n, (weighted - p * per_sample) / samples.n


def _distributed_mmd_ova(
    logits: Tensor, affinity: Affinity | None, samples: DistributedSamples
) -> tuple[Tensor, Tensor]:
    """:func:`mmd_ova` of samples that are spread over processes: the sums of the clusters travel, and those of all."""
    assert isinstance(affinity, Features)
    features, n = affinity.values.to(logits.dtype), samples.n
    p = logits.softmax(-1)
    sums, masses, everything = samples.sums(p.mT @ features, p.sum(-2)[..., None], features.sum(0))
    # From the centre of all samples, wherever the features are measured from.
    centre = everything / n
    sums = sums - masses * centre
    norms: Tensor = torch.linalg.vector_norm(sums, dim=-1, keepdim=True)
    directions = sums / (n * norms).clamp_min(torch.finfo(p.dtype).tiny)
    return norms.sum((-2, -1)) / n, _through_softmax(p, (features - centre) @ directions.mT)


DISTRIBUTED_FORMS: dict[str, Callable[[Tensor, Affinity | None, DistributedSamples], tuple[Tensor, Tensor]]] = {
    "kl_ova": _distributed_kl_ova,
    "mmd_ova": _distributed_mmd_ova,
}
"""Of samples that are spread over processes, with fewer messages than autograd would send."""

CLOSED_FORMS: dict[str, ClosedForm] = {
    "kl_ova": kl_ova,
    "kl_ovo": kl_ovo,
    "hellinger_ova": hellinger_ova,
    "hellinger_ovo": hellinger_ovo,
    "tv_ova": tv_ova,
    "tv_ovo": tv_ovo,
    "mmd_ova": mmd_ova,
    "mmd_ovo": mmd_ovo,
    "wasserstein_ova": wasserstein_ova,
    "wasserstein_ovo": wasserstein_ovo,
}
