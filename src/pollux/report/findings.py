"""The record that a report is made from: ``Findings``, and what its probabilities say of samples and clusters."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.metrics import renyi_entropy

Array = NDArray[np.floating[Any]]
MOST_CLASSES = 1_000
# A sample is doubtful where its own cluster has less than this probability.
DOUBT = 0.6
# From this probability on a sample is never listed as uncertain.
CERTAIN = 0.99
# Typical, and uncertain, samples of a cluster that are shown.
SHOWN = 10
ROWS_AT_ONCE = 100_000


@dataclass(frozen=True, kw_only=True, eq=False)
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

    @functools.cached_property
    def summary(self) -> Summary:
        """Clusters, confidence and entropy of all samples."""
        return summarise(self.probabilities)

    @functools.cached_property
    def known_classes(self) -> Classes | None:
        """The classes of the samples; None where not a single one is known."""
        return None if self.classes is None else _known_classes(self.classes)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The cluster of each sample, (n,)."""
        return self.summary.labels

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples of each cluster in use, (in use,); clusters that no sample prefers come last and are left out."""
        return self.summary.sizes

    def row_name(self, row: int) -> str:
        """A sample's name, or its number from 0."""
        return f"Sample {row}" if self.row_names is None else str(self.row_names[row])


@dataclass(frozen=True, eq=False)
class Summary:
    """Cluster, next cluster and their probabilities, entropy in nats: (n,) each; sizes (in use,)."""

    n_allowed: int
    sizes: NDArray[np.int64]
    labels: NDArray[np.int64]
    following: NDArray[np.int64]
    confidence: NDArray[np.float64]
    following_probability: NDArray[np.float64]
    entropy: NDArray[np.float64]

    @property
    def clusters(self) -> list[int]:
        """Those in use."""
        return [int(cluster) for cluster in np.flatnonzero(self.sizes)]

    @property
    def highest_entropy(self) -> float:
        """log K: that of a guess."""
        return float(np.log(self.n_allowed))

    def members(self, cluster: int) -> NDArray[np.intp]:
        """The rows of one cluster."""
        return np.flatnonzero(self.labels == cluster)

    def most_typical(self, cluster: int, most: int) -> NDArray[np.intp]:
        """Rows of the highest probability, best first; of a small cluster half, if the others are uncertain."""
        members = self.members(cluster)
        certain = int((self.confidence[members] >= CERTAIN).sum())
        most = min(most, max(certain, -(-len(members) // 2)))
        return members[np.argsort(-self.confidence[members], kind="stable")[:most]]

    def least_certain(self, rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
        """Those of the rows whose next cluster is nearest in probability, worst first; certain ones are left out."""
        rows = rows[self.confidence[rows] < CERTAIN]
        margin = self.confidence[rows] - self.following_probability[rows]
        return rows[np.argsort(margin, kind="stable")[:most]]

    def shares(self, values: Array, highest: float, bins: int = 20) -> tuple[Array, dict[int, Array]]:
        """Histograms (bins,) of values (n,) from 0 to the highest: of all samples, and of those of each cluster."""
        codes = np.clip((values * (bins / highest)).astype(np.int64), 0, bins - 1)
        table = np.bincount(self.labels * bins + codes, minlength=len(self.sizes) * bins).reshape(-1, bins)
        own = {cluster: table[cluster] / self.sizes[cluster] for cluster in self.clusters}
        return table.sum(0) / len(values), own


def summarise(probabilities: Array) -> Summary:
    """Read probabilities (n, K) once, some rows at a time."""
    n, n_allowed = probabilities.shape
    labels = np.asarray(probabilities.argmax(1), dtype=np.int64)
    counts = np.bincount(labels, minlength=n_allowed)
    following = labels.copy()
    confidence, following_probability, entropy = (np.empty(n) for _ in range(3))
    for start in range(0, n, ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        rows = np.array(probabilities[part], dtype=np.float64)
        every, own = np.arange(len(rows)), labels[part]
        entropy[part] = renyi_entropy(rows, order=1.0)
        confidence[part] = rows[every, own]
        rows[every, own] = -1.0
        if n_allowed > 1:
            following[part] = rows.argmax(1)
        following_probability[part] = np.maximum(rows[every, following[part]], 0.0)
    return Summary(
        n_allowed=n_allowed,
        sizes=counts[: int(np.flatnonzero(counts).max()) + 1],
        labels=labels,
        following=following,
        confidence=confidence,
        following_probability=following_probability,
        entropy=entropy,
    )


@dataclass(frozen=True, eq=False)
class Classes:
    """Names of the known classes, whole numbers in their own order, and the class (n,) of each sample.

    The code of a class that is not known is ``len(names)``, one beyond the last of them.
    """

    names: list[str]
    codes: NDArray[np.int64]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether the class of each sample is known, (n,)."""
        return self.codes < len(self.names)

    @property
    def complete(self) -> bool:
        """Whether every class is known."""
        return bool(self.known.all())

    def name(self, row: int) -> str | None:
        """The class of a sample; None where it is not known."""
        code = int(self.codes[row])
        return self.names[code] if code < len(self.names) else None


def _known_classes(classes: NDArray[np.str_]) -> Classes | None:
    given = np.asarray(classes).astype(str).tolist()
    names = sorted(set(given) - {""})
    if not names:
        return None
    if all(name.removeprefix("-").isdecimal() for name in names):
        names.sort(key=int)
    places = {name: code for code, name in enumerate([*names, ""])}
    return Classes(names, np.fromiter((places[name] for name in given), np.int64, len(given)))
