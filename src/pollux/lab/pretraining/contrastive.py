"""The contrastive step: find each view's partner among all views of a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pollux.lab.pretraining.augmentations import Augmentation
from pollux.lab.pretraining.encoder import Encoder
from pollux.lab.pretraining.image_arrays import Images
from pollux.ranks import Ranks
from pollux.training import Batch
from pollux.training.steps import EpochMetrics, OptimiserStep


def nt_xent(projections: Tensor, temperature: float) -> Tensor:
    """Normalised, temperature-scaled cross-entropy of finding each view's partner among all other views.

    Parameters
    ----------
    projections : Tensor (2n, d)
        Row i and row n + i belong to two views of one image. They need not be of length 1.
    temperature : float
        Divides the cosines; lower ones look at the nearest views only.

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
    return _loss_and_matched(projections, temperature)[0]


def _loss_and_matched(projections: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The loss, and the share of the views (2n, d) whose nearest other view is that of the same image."""
    unit = functional.normalize(projections, dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    cosines = (unit @ unit.T).masked_fill(itself, -math.inf)
    partners = torch.arange(len(unit), device=unit.device).roll(len(unit) // 2)
    matched = (cosines.detach().argmax(dim=1) == partners).double().mean()
    return functional.cross_entropy(cosines / temperature, partners), matched


class ContrastiveNetwork(nn.Module):
    """Views (2n, C, h, w) to projections (2n, p): the encoder, and a head that is dropped after the training."""

    def __init__(self, encoder: Encoder, dimensions: int) -> None:
        super().__init__()
        width = encoder.n_features
        self.encoder = encoder
        self.head = nn.Sequential(
            nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, dimensions)
        )

    def forward(self, views: Tensor) -> Tensor:
        projections: Tensor = self.head(self.encoder.activations(views))
        return projections


class _ViewMetrics(EpochMetrics):
    """Mean objective, and mean share of matched views."""

    names = ("objective", "matched")

    def __init__(self) -> None:
        super().__init__()
        self._matched: list[Tensor] = []

    def update(self, outputs: Tensor, values: Tensor) -> None:
        super().update(outputs, values)
        self._matched.append(outputs)

    def compute(self, ranks: Ranks | None = None) -> dict[str, Tensor]:
        return {**super().compute(ranks), "matched": torch.stack(self._matched).mean().reshape(-1)}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "matched": torch.stack(self._matched) if self._matched else None}

    def load_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        super().load_state(state, device)
        self._matched = [] if state["matched"] is None else list(state["matched"].to(device).unbind(0))


class ContrastiveStep(OptimiserStep):
    """A step on images (n, C, H, W) from 0 to 1: two random views of each, and NT-Xent between all of them."""

    new_metrics = _ViewMetrics

    def __init__(
        self,
        network: ContrastiveNetwork,
        images: Images,
        augmentation: Augmentation,
        temperature: float,
        optimiser: torch.optim.Optimizer,
        generator: torch.Generator,
    ) -> None:
        super().__init__(optimiser)
        self._network, self._images, self._generator = network, images, generator
        self._augmentation, self._temperature = augmentation, temperature

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The share of matched views, and minus the loss."""
        views = torch.cat([self._augmentation(batch.inputs, self._generator) for _ in range(2)])
        projections = self._network(self._images.as_given(views))
        loss, matched = _loss_and_matched(projections, self._temperature)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return matched, -loss.detach()
