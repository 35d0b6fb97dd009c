"""Gradients of GEMINIs with respect to logits, without a tape where they are known in closed form.

Each closed form takes logits (…, n, K) and an affinity, and returns the value (…) and its gradient, of the
shape of the logits. On small batches recording operations costs several times the operations themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pollux.affinity import Affinity, Features
from pollux.objectives.divergences import DIVERGENCES
from pollux.objectives.gemini import Gemini

ClosedForm = Callable[[Tensor, Affinity | None], tuple[Tensor, Tensor]]


def value_and_gradient(
    gemini: Gemini,
    logits: Tensor,
    affinity: Affinity | None,
    sample_weight: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """The value (…) at logits (…, n, K), and its gradient (…, n, K)."""
    if sample_weight is None and (gemini.needs is None or isinstance(affinity, Features)):
        closed_form = _closed_form(gemini)
        if closed_form is not None:
            return closed_form(logits, affinity)
    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        value = gemini(logits.log_softmax(-1), affinity, sample_weight=sample_weight, generator=generator)
        (gradient,) = torch.autograd.grad(value.sum(), logits)
    return value.detach(), gradient


def _closed_form(gemini: Gemini) -> ClosedForm | None:
    # A user's divergence may bear the name of one of ours.
    own = DIVERGENCES.get(gemini.divergence.name) != gemini.divergence
    return None if own or gemini.sampled_pairs is not None else CLOSED_FORMS.get(gemini.name)


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


def mmd_ova(logits: Tensor, affinity: Affinity | None) -> tuple[Tensor, Tensor]:
    """Σ_y ‖E_x p(y|x) φ(x)‖ for centred features φ: p(y) times the distance of a mean to the centre."""
    assert isinstance(affinity, Features)
    features, n = affinity.centre().values.to(logits.dtype), logits.shape[-2]
    p = logits.softmax(-1)
    sums = p.mT @ features
    norms: Tensor = torch.linalg.vector_norm(sums, dim=-1, keepdim=True)
    directions = sums.div_((n * norms).clamp_min_(torch.finfo(p.dtype).tiny))
    return norms.sum((-2, -1)) / n, _through_softmax(p, features @ directions.mT)


def _through_softmax(p: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with respect to logits, from that with respect to probabilities."""
    weighted = gradient.mul_(p)
    return weighted.sub_(p * weighted.sum(-1, keepdim=True))


CLOSED_FORMS: dict[str, ClosedForm] = {"kl_ova": kl_ova, "mmd_ova": mmd_ova}
