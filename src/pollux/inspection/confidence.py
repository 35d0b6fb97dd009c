"""How often other trainings would give a sample the same cluster, by its margin to the next one."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression
from torch import Tensor

from pollux.metrics import match_clusters

_KNOTS = 33


def align_labels(labels: NDArray[np.int64], others: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Other labels (n,) of the same samples by the numbers that agree best with these."""
    return match_clusters(labels, others, n_clusters)[others]


@dataclass(frozen=True, eq=False)
class Confidence:
    """The share of other trainings that agree, for each cluster a function of the margin that never falls.

    Probabilities of a model that was trained to decide are near 1 wherever it is; the order of its margins is kept.

    Parameters
    ----------
    margins, shares : Tensors of shape (K, 33)
        Knots of the functions: log p of the likeliest cluster less that of the next, and shares of trainings.
    """

    margins: Tensor
    shares: Tensor

    @staticmethod
    def learn(log_p: NDArray[np.floating], agreement: NDArray[np.float64]) -> Confidence:
        """From log p(y|x) (n, K) and the share (n,) of other trainings that give each sample the same cluster."""
        labels, margin = log_p.argmax(1), _margin(log_p)
        margins = np.zeros((log_p.shape[1], _KNOTS))
        shares = np.full_like(margins, agreement.mean())
        for k in np.unique(labels):
            own = labels == k
            margins[k] = np.quantile(margin[own], np.linspace(0, 1, _KNOTS))
            # Equal margins have one share, whatever the order of their samples.
            steps, place, counts = np.unique(margin[own], return_inverse=True, return_counts=True)
            means = np.bincount(place, agreement[own]) / counts
            fit = isotonic_regression(means, sample_weight=counts, y_min=0, y_max=1)
            shares[k] = np.interp(margins[k], steps, fit)
        return Confidence(torch.from_numpy(margins), torch.from_numpy(shares))

    def predict(self, log_p: NDArray[np.floating]) -> NDArray[np.float64]:
        """The share of other trainings (n,) that would agree on the likeliest cluster of log p(y|x) (n, K)."""
        labels, margin = log_p.argmax(1), _margin(log_p)
        found = np.empty(len(labels))
        for k in np.unique(labels):
            found[labels == k] = np.interp(margin[labels == k], self.margins[k].numpy(), self.shares[k].numpy())
        return found

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def check(self, n_clusters: int) -> None:
        """Raise a ValueError where this cannot be the confidence of so many clusters."""
        for name, value in self.tensors().items():
            if value.dtype != torch.float64 or tuple(value.shape) != (n_clusters, _KNOTS):
                raise ValueError(f"the {name} of the confidence are of other clusters")
            if not bool(value.isfinite().all()) or bool((value.diff(dim=1) < 0).any()):
                raise ValueError(f"the {name} of the confidence are not finite, or fall")
        if bool((self.shares < 0).any() | (self.shares > 1).any()):
            raise ValueError("the shares of the confidence are not between 0 and 1")


def _margin(log_p: NDArray[np.floating]) -> NDArray[np.float64]:
    if log_p.shape[1] < 2:
        return np.zeros(len(log_p))
    highest = np.partition(log_p.astype(np.float64), -2, axis=1)
    # Of a probability that is 0 the logarithm is not finite.
    return np.asarray(np.minimum(highest[:, -1] - highest[:, -2], 1e6))
