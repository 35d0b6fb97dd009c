"""The contrastive loss: find each view's partner among all views of a batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def nt_xent(projections: Tensor, temperature: float) -> Tensor:
    """Normalised, temperature-scaled cross-entropy of finding each view's partner among all other views.

    Parameters
    ----------
    projections : Tensor (2n, d)
        Row i and row n + i belong to two views of one image. They need not be of length 1.
    temperature : float
        What the cosines are divided by; lower ones look at the nearest views only.

    Returns
    -------
    Tensor ()
        The mean over all 2n views; log(2n - 1) where all views look alike.

    Examples
    --------
    >>> import torch
    >>> nt_xent(torch.ones(16, 4), temperature=0.5)
    tensor(2.7081)
    """
    return functional.cross_entropy(_similarities(projections) / temperature, _partners(projections))


def _similarities(projections: Tensor) -> Tensor:
    """Cosines (2n, 2n), and -inf of each view with itself."""
    unit = functional.normalize(projections, dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    return (unit @ unit.T).masked_fill(itself, -math.inf)


def _partners(projections: Tensor) -> Tensor:
    """Which row (2n,) belongs to the same image as each."""
    count = len(projections)
    return torch.arange(count, device=projections.device).roll(count // 2)


def matched(projections: Tensor) -> float:
    """Share of the views (2n, d) whose nearest other view is that of the same image."""
    found = _similarities(projections.detach()).argmax(dim=1)
    return (found == _partners(projections)).double().mean().item()
