"""Gradients of GEMINIs with respect to logits, in closed form if available, else by autograd.

On small batches autograd costs several times the operations themselves. So gradients of f-divergences and of the MMD
with explicit features are compiled, together with the training steps of small networks, and so are those of
Wasserstein objectives, except for their transport problems.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pollux.geometry.affinity import Affinity, Features
from pollux.native import load_compiled
from pollux.objectives.batch_samples import DistributedSamples
from pollux.objectives.gemini import Gemini
from pollux.ranks import Ranks
from pollux.transport import solve_warm

Array = NDArray[np.float64]
_NOTHING = np.empty(0)


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

    With ``ranks``, logits and gradient are those of the local samples; ``sizes`` are those of all processes, if known.
    """
    if ranks is None and is_compiled(gemini, affinity, logits):
        return _compiled(gemini, logits, affinity, sample_weight)
    if sample_weight is None and gemini.is_registered and gemini.sampled_pairs is None and gemini.clip is None:
        if ranks is None and gemini.name in TRANSPORT_FORMS and load_compiled() is not None and logits.numel():
            return _transported(gemini, logits, affinity)
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
    """Whether value and gradient are compiled for such logits."""
    return (
        load_compiled() is not None
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
    native = load_compiled()
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
    """Features (n, r) and weights (n,) as arrays for compiled steps; empty if there are none."""
    features, weight = torch.empty(0, dtype=dtype), _NOTHING
    if gemini is not None and gemini.needs == "kernel":
        assert isinstance(affinity, Features)
        features = affinity.values.to("cpu", dtype).contiguous()
    if sample_weight is not None:
        weight = sample_weight.to("cpu", torch.float64).contiguous().numpy()
    return features.numpy(), weight


def _transported(gemini: Gemini, logits: Tensor, affinity: Affinity | None) -> tuple[Tensor, Tensor]:
    """Σ_y p(y) W(y), or 2 Σ_{a<b} p(a) p(b) W(a, b): compiled, except for the transport problems."""
    native = load_compiled()
    assert native is not None
    assert affinity is not None
    assert not isinstance(affinity, Features)
    scores = logits.detach().to("cpu", torch.float64).contiguous()
    *models, n, K = scores.shape
    clusters, p_y, values = np.empty((*models, K, n)), np.empty((*models, K)), np.empty(models)
    native.predict_clusters(K, scores.numpy(), clusters, p_y)
    from_p: Array = clusters
    to_q: Array = np.full(n, 1 / n)
    if gemini.one_vs_one:
        first, second = _pairs(K)
        from_p, to_q = clusters[..., first, :], clusters[..., second, :].reshape(-1, n)
    found = solve_warm(from_p.reshape(-1, n), to_q, affinity, symmetric=True)
    gradient = np.empty(scores.shape)
    native.transport_gradient(gemini.one_vs_one, clusters, p_y, *found[:3], values, gradient)
    return torch.from_numpy(values).to(logits), torch.from_numpy(gradient).to(logits)


@functools.lru_cache(maxsize=8)
def _pairs(K: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the first and the second cluster of all pairs."""
    first, second = np.triu_indices(K, 1)
    return first, second


def _through_softmax(p: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with respect to logits, from that with respect to probabilities."""
    weighted = gradient.mul_(p)
    return weighted.sub_(p * weighted.sum(-1, keepdim=True))


def _distributed_kl_ova(
    logits: Tensor, affinity: Affinity | None, samples: DistributedSamples
) -> tuple[Tensor, Tensor]:
    """:func:`kl_ova` of samples that are distributed over processes: K sums and the value are exchanged."""
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
    """:func:`mmd_ova` of samples that are distributed over processes: sums by cluster and over all are exchanged."""
    assert isinstance(affinity, Features)
    features, n = affinity.values.to(logits.dtype), samples.n
    p = logits.softmax(-1)
    sums, masses, everything = samples.sums(p.mT @ features, p.sum(-2)[..., None], features.sum(0))
    # Centred at the mean of all samples, whatever the origin of the features.
    centre = everything / n
    sums = sums - masses * centre
    norms: Tensor = torch.linalg.vector_norm(sums, dim=-1, keepdim=True)
    directions = sums / (n * norms).clamp_min(torch.finfo(p.dtype).tiny)
    return norms.sum((-2, -1)) / n, _through_softmax(p, (features - centre) @ directions.mT)


DISTRIBUTED_FORMS: dict[str, Callable[[Tensor, Affinity | None, DistributedSamples], tuple[Tensor, Tensor]]] = {
    "kl_ova": _distributed_kl_ova,
    "mmd_ova": _distributed_mmd_ova,
}
"""Objectives for distributed samples, with fewer messages than autograd would send."""

COMPILED_FORMS = (
    *("kl_ova", "kl_ovo", "tv_ova", "tv_ovo", "hellinger_ova", "hellinger_ovo", "chi2_ova"),
    *("mmd_ova", "mmd_ovo"),
)
"""Objectives with compiled steps; those with a kernel only if it has explicit features."""

TRANSPORT_FORMS = ("wasserstein_ova", "wasserstein_ovo")
"""Objectives with transport problems: all else is compiled."""

CLOSED_FORMS = (*COMPILED_FORMS, *TRANSPORT_FORMS)
