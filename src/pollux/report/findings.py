"""What a report tells of a clustering, gathered in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
MOST_CLASSES = 1_000


@dataclass(frozen=True, kw_only=True)
class Findings:
    """n samples in at most K clusters, numbered by decreasing size.

    Parameters
    ----------
    title : str
        What was clustered.
    probabilities : array of shape (n, K)
        p(y|x) of each sample.
    points : array of shape (n, 2)
        Where each sample lies on the map.
    axes : pair of str
        What the two axes of the map are.
    features : array of shape (n, d), optional
        The samples in their own units, NaN where a value is missing. Text columns come as one column of zeros and ones
        for each of their values.
    feature_names : sequence of str
        Names of the d features; ``column=value`` for the zeros and ones of text columns.
    shares : collection of str
        The names among them that are zeros and ones.
    images : array of shape (n, H, W) or (n, H, W, 3), uint8, optional
        The samples as pictures.
    row_names : sequence of str, optional
        A name for each sample; its number is used otherwise.
    classes : array of str of shape (n,), optional
        Known classes, at most 1,000 different ones; ``""`` where the class of a sample is not known. They were not used
        for training.
    history : mapping
        ``objective``, ``clusters`` and ``entropy`` of each epoch.
    settings : mapping of str
        How the model was trained, for people.
    notes : sequence of str
        What else a reader must know: columns that were left out, an interrupted training.
    command : str
        The command that repeats the run; empty where there is none.
    """

    title: str
    probabilities: Array
    points: Array
    axes: tuple[str, str]
    features: Array | None = None
    feature_names: Sequence[str] = ()
    shares: frozenset[str] = frozenset()
    images: NDArray[np.uint8] | None = None
    row_names: Sequence[str] | None = None
    classes: NDArray[np.str_] | None = None
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    command: str = ""

    def __post_init__(self) -> None:
        n = len(self.probabilities)
        for name in ("points", "features", "images", "row_names", "classes"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise ValueError(f"There are {n} rows of probabilities, but {len(value)} of {name}.")
        if self.features is not None and self.features.shape[1] != len(self.feature_names):
            raise ValueError(f"{self.features.shape[1]} features have {len(self.feature_names)} names.")
        different = 0 if self.classes is None else len(set(np.asarray(self.classes).tolist()) - {""})
        if different > MOST_CLASSES:
            raise ValueError(
                f"classes holds {different:,} different values for {n:,} samples, and at most {MOST_CLASSES:,} can be "
                "compared with: what differs from sample to sample is not a class."
            )

    @property
    def labels(self) -> NDArray[np.int64]:
        """The cluster of each sample, (n,)."""
        return np.asarray(self.probabilities.argmax(1), dtype=np.int64)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples of each cluster in use, (in use,); clusters that no sample prefers come last and are left out."""
        counts = np.bincount(self.labels, minlength=self.probabilities.shape[1])
        return counts[: int(np.flatnonzero(counts).max()) + 1]
