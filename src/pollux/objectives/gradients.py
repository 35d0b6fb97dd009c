"""Gradients of GEMINIs with respect to logits, in closed form where it is known, else by autograd.

Each closed form takes logits (…, n, K) and an affinity, and returns the value (…) and its gradient, of the
shape of the logits. On small batches recording operations costs several times the operations themselves. Those of
f-divergences and of the MMD with explicit features are compiled, together with the training steps of small networks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pollux.geometry.affinity import Affinity, Features
from pollux.objectives.batch_samples import DistributedSamples
from pollux.objectives.gemini import Gemini
from pollux.ranks import Ranks
from pollux.transport import compiled_part, solve_warm

Array = NDArray[np.float64]
_TINY = float(np.finfo(np.float64).tiny)
_NOTHING = np.empty(0)
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
    if ranks is None and is_compiled(gemini, affinity, logits):
        return _compiled(gemini, logits, affinity, sample_weight)
    if sample_weight is None and gemini.is_registered and gemini.sampled_pairs is None and gemini.clip is None:
        if ranks is None and gemini.name in TRANSPORT_FORMS:
            return TRANSPORT_FORMS[gemini.name](logits, affinity)
        is_plain = gemini.needs is None or isinstance(affinity, Features)
        if ranks is not None and sizes is not None and is_plain and gemini.name in DISTRIBUTED_FORMS:
            return DISTRIBUTED_FORMS[gemini.name](logits, affinity, DistributedSamples(ranks, list(sizes), []))
    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        log_p = logits.log_softmax(-1)
        value = gemini(log_p, affinity, sample_weight=sample_weight, generator=generator, ranks=ranks)
        (gradient,) = torch.autograd.grad(value.sum() / (1 if ranks is None else ranks.size), logits)
    return value.detach(), gradient


def is_compiled(gemini: Gemini, affinity: Affinity | None, logits: Tensor) -> bool:
    """Whether value and gradient at such logits are compiled."""
    return (
        compiled_part() is not None
        and gemini.name in COMPILED_FORMS
        and gemini.is_registered
        and gemini.sampled_pairs is None
        and (gemini.clip is None or gemini.name == "kl_ovo")
        and (gemini.needs is None or isinstance(affinity, Features))
        and logits.numel() > 0
        and logits.device.type == "cpu"
        and logits.dtype in (torch.float32, torch.float64)
    )


def _compiled(
    gemini: Gemini, logits: Tensor, affinity: Affinity | None, sample_weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    native = compiled_part()
    assert native is not None
    logits = logits.detach().contiguous()
    features, weight = as_arrays(gemini, affinity, sample_weight, logits.dtype)
    values, gradient = np.empty(logits.shape[:-2]), torch.empty_like(logits)
    native.gemini_gradient(
        gemini.name, gemini.clip or 0.0, logits.shape[-1], logits.numpy(), features, weight, values, gradient.numpy()
    )
    return torch.from_numpy(values).to(logits), gradient


def as_arrays(
    gemini: Gemini | None, affinity: Affinity | None, sample_weight: Tensor | None, dtype: torch.dtype
) -> tuple[NDArray[Any], Array]:
    """What compiled steps are given of samples: features (n, r) and weights (n,), empty where there are none."""
    features, weight = torch.empty(0, dtype=dtype), _NOTHING
    if gemini is not None and gemini.needs == "kernel":
        assert isinstance(affinity, Features)
        features = affinity.values.to("cpu", dtype).contiguous()
    if sample_weight is not None:
        weight = sample_weight.to("cpu", torch.float64).contiguous().numpy()
    return features.numpy(), weight


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

TRANSPORT_FORMS: dict[str, ClosedForm] = {"wasserstein_ova": wasserstein_ova, "wasserstein_ovo": wasserstein_ovo}

COMPILED_FORMS = (
    *("kl_ova", "kl_ovo", "tv_ova", "tv_ovo", "hellinger_ova", "hellinger_ovo", "chi2_ova"),
    *("mmd_ova", "mmd_ovo"),
)
"""Objectives of compiled steps; those with a kernel where it has explicit features."""

CLOSED_FORMS = (*COMPILED_FORMS, *TRANSPORT_FORMS)
