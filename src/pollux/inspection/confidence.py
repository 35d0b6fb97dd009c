"""Confidence of labels: how often other trainings would agree, estimated from the margin to the next cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.isotonic import isotonic_regression
from torch import Tensor

from pollux.metrics import match_clusters

_KNOTS = 33


def align_labels(labels: NDArray[np.int64], others: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Renumber other labels (n,) of the same samples to agree best with these."""
    return match_clusters(labels, others, n_clusters)[others]


@dataclass(frozen=True, eq=False)
class Confidence:
    """The share of other trainings that agree, for each cluster a non-decreasing function of its margin.

    The margin of cluster k is log p(k|x) minus the largest of the others: positive if k is the most likely cluster.
    A model that is trained to decide has probabilities near 1 almost everywhere; only the order of its margins is used.

    Parameters
    ----------
    margins, shares : Tensors of shape (K, m)
        Knots of the functions: margins, and shares of trainings.
    temperature : Tensor of shape ()
        Probabilities are softmax(log p / temperature).
    """

    margins: Tensor
    shares: Tensor
    temperature: Tensor = field(default_factory=lambda: torch.ones((), dtype=torch.float64))

    @staticmethod
    def learn(log_p: NDArray[np.floating], agreement: NDArray[np.float64]) -> Confidence:
        """Fit to log p(y|x) (n, K) and the shares (n, 2) of other trainings in the two most likely clusters."""
        own, margin = likeliest(log_p), _margin(log_p, log_p.argmax(1))
        margins = np.zeros((log_p.shape[1], 2 * _KNOTS))
        shares = np.full_like(margins, agreement[:, 0].mean())
        for k in np.unique(own[:, 0]):
            # Samples whose most likely cluster is k, and those where it is the second and has a negative margin.
            first, second = (own[:, place] == k for place in (0, 1))
            margins[k, _KNOTS:], shares[k, _KNOTS:] = _fit_isotonic(margin[first], agreement[first, 0])
            margins[k, :_KNOTS], shares[k, :_KNOTS] = margins[k, _KNOTS], shares[k, _KNOTS]
            if second.any() and log_p.shape[1] > 1:
                margins[k, :_KNOTS], below = _fit_isotonic(-margin[second], agreement[second, 1])
                shares[k, :_KNOTS] = np.minimum(below, shares[k, _KNOTS])
        return Confidence(torch.from_numpy(margins), torch.from_numpy(shares))

    def predict(self, log_p: NDArray[np.floating], labels: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """The share of other trainings (n,) that would agree on labels (n,), by default argmax of log p (n, K)."""
        labels = log_p.argmax(1) if labels is None else labels
        margin, found = _margin(log_p, labels), np.empty(len(labels))
        for k in np.unique(labels):
            found[labels == k] = np.interp(margin[labels == k], self.margins[k].numpy(), self.shares[k].numpy())
        return found

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def check(self, n_clusters: int) -> None:
        """Raise a ValueError if this cannot be the confidence of so many clusters."""
        if self.temperature.shape != () or not 0 < float(self.temperature) < math.inf:
            raise ValueError("the temperature of the confidence is not a positive number")
        for name, value in (("margins", self.margins), ("shares", self.shares)):
            shape = (n_clusters, max(1, self.margins.numel() // n_clusters))
            if value.dtype != torch.float64 or tuple(value.shape) != shape:
                raise ValueError(f"the {name} of the confidence are of other clusters")
            if not bool(value.isfinite().all()) or bool((value.diff(dim=1) < 0).any()):
                raise ValueError(f"the {name} of the confidence are not finite, or fall")
        if bool((self.shares < 0).any() | (self.shares > 1).any()):
            raise ValueError("the shares of the confidence are not between 0 and 1")


def likeliest(log_p: NDArray[np.floating]) -> NDArray[np.int64]:
    """The two most likely clusters (n, 2) by log p(y|x) (n, K); a single cluster is repeated."""
    first = log_p.argmax(1)
    others = np.where(np.arange(log_p.shape[1]) == first[:, None], -np.inf, log_p)
    return np.stack([first, others.argmax(1)], 1)


def _margin(log_p: NDArray[np.floating], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    if log_p.shape[1] < 2:
        return np.zeros(len(log_p))
    every = np.arange(len(log_p))
    others = log_p.astype(np.float64)
    others[every, labels] = -np.inf
    # The logarithm of a probability of 0 is not finite.
    return np.asarray(np.clip(log_p[every, labels].astype(np.float64) - others.max(1), -1e6, 1e6))


def _fit_isotonic(margin: NDArray[np.float64], agreement: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Knots of the non-decreasing function of the margin (n,) that is nearest to the agreement (n,)."""
    knots = np.quantile(margin, np.linspace(0, 1, _KNOTS))
    # Equal margins have one share, whatever the order of samples.
    steps, place, counts = np.unique(margin, return_inverse=True, return_counts=True)
    means = np.bincount(place, agreement) / counts
    fit = isotonic_regression(means, sample_weight=counts, y_min=0, y_max=1)
    return knots, np.interp(knots, steps, fit)


def find_temperature(log_p: NDArray[np.floating], mean: float) -> float:
    """The temperature T at which the highest probability of softmax(log p / T), log p (n, K), has this mean.

    T is between 0.01 and 100, over which the mean falls from one to a uniform share.
    """
    log_p, low, high = log_p.astype(np.float64), math.log(0.01), math.log(100)
    for _ in range(50):
        middle = (low + high) / 2
        if float(softmax(log_p / math.exp(middle), axis=1).max(1).mean()) > mean:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)
