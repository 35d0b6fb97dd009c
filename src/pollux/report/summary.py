"""What probabilities (n, K) say of each sample and of each cluster."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pollux.metrics import renyi_entropy
from pollux.report.findings import Array, Findings
from pollux.report.palette import colours

# A sample is doubtful where its own cluster has less than this probability.
DOUBT = 0.6
# Nobody need look at one of at least this probability.
CERTAIN = 0.99
ROWS_AT_ONCE = 100_000
BINS = 20
ON_DARK, READABLE = "#14181d", 4.8


@dataclass(frozen=True)
class Summary:
    """Cluster, next cluster and their probabilities, entropy in nats: (n,) each; sizes (in use,)."""

    limit: int
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
        """log K, or 1 for a single cluster, so that it can be divided by."""
        return float(np.log(self.limit)) if self.limit > 1 else 1.0

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
        """Those of the rows whose next cluster is nearest in probability, worst first; none that is certain."""
        rows = rows[self.confidence[rows] < CERTAIN]
        margin = self.confidence[rows] - self.following_probability[rows]
        return rows[np.argsort(margin, kind="stable")[:most]]


def summarise(findings: Findings) -> Summary:
    """Read the probabilities once, some rows at a time."""
    n, limit = findings.probabilities.shape
    labels = findings.labels
    following = labels.copy()
    confidence, following_probability, entropy = (np.empty(n) for _ in range(3))
    for start in range(0, n, ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        rows = np.array(findings.probabilities[part], dtype=np.float64)
        every, own = np.arange(len(rows)), labels[part]
        entropy[part] = renyi_entropy(rows, order=1.0)
        confidence[part] = rows[every, own]
        rows[every, own] = -1.0
        if limit > 1:
            following[part] = rows.argmax(1)
        following_probability[part] = np.maximum(rows[every, following[part]], 0.0)
    return Summary(
        limit=limit,
        sizes=np.asarray(findings.sizes),
        labels=labels,
        following=following,
        confidence=confidence,
        following_probability=following_probability,
        entropy=entropy,
    )


def histograms(values: Array, highest: float, summary: Summary) -> tuple[Array, dict[int, Array]]:
    """Shares (BINS,) of values (n,) from 0 to the highest: of all samples, and of those of each cluster."""
    codes = np.clip((values * (BINS / highest)).astype(np.int64), 0, BINS - 1)
    table = np.bincount(summary.labels * BINS + codes, minlength=len(summary.sizes) * BINS).reshape(-1, BINS)
    own = {cluster: table[cluster] / summary.sizes[cluster] for cluster in summary.clusters}
    return table.sum(0) / len(values), own


@dataclass(frozen=True)
class Classes:
    """Names of the known classes, whole numbers in their own order, and the class (n,) of each sample.

    A class that is not known is the number of names, one beyond the last of them.
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


def known_classes(findings: Findings) -> Classes | None:
    """The classes of the samples; None where not one is known."""
    if findings.classes is None:
        return None
    given = np.asarray(findings.classes).astype(str).tolist()
    names = sorted(set(given) - {""})
    if not names:
        return None
    if all(name.removeprefix("-").isdecimal() for name in names):
        names.sort(key=int)
    places = {name: code for code, name in enumerate([*names, ""])}
    return Classes(names, np.fromiter((places[name] for name in given), np.int64, len(given)))


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``, from 0 to 1."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(colour: str, other: str) -> float:
    """From 1, the same, to 21, black on white."""
    low, high = sorted((luminance(colour), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def on_dark(colour: str) -> str:
    """The same hue, lightened until it can be told from the dark background."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)))
    lighter = colour
    while contrast(lighter, ON_DARK) < READABLE:
        lightness += 0.02
        rgb = colorsys.hls_to_rgb(hue, lightness, saturation)
        lighter = "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
    return lighter


def both_colours(number_of: int) -> dict[str, list[str]]:
    """Colours on a light and on a dark background."""
    light = colours(number_of)
    return {"light": light, "dark": [on_dark(colour) for colour in light]}
