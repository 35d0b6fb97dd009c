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
        """Rows of the highest probability, best first."""
        members = self.members(cluster)
        return members[np.argsort(-self.confidence[members], kind="stable")[:most]]

    def most_doubtful(self, rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
        """Those of the rows whose next cluster is nearest in probability, worst first."""
        margin = (self.confidence - self.following_probability)[rows]
        return rows[np.argsort(margin, kind="stable")[:most]]


def summarise(findings: Findings) -> Summary:
    """Read the probabilities once."""
    rows = np.array(findings.probabilities, dtype=np.float64)
    entropy = renyi_entropy(rows, order=1.0)
    every = np.arange(len(rows))
    labels = findings.labels
    confidence = rows[every, labels]
    rows[every, labels] = -1.0
    following = rows.argmax(1) if rows.shape[1] > 1 else labels
    following_probability = np.maximum(rows[every, following], 0.0)
    return Summary(
        limit=rows.shape[1],
        sizes=np.asarray(findings.sizes),
        labels=labels,
        following=np.asarray(following, dtype=np.int64),
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


def known_classes(findings: Findings) -> tuple[list[str], NDArray[np.intp]]:
    """The names of the known classes, whole numbers in their own order, and the class (n,) of each sample."""
    if findings.classes is None:
        return [], np.zeros(0, dtype=np.intp)
    names, codes = np.unique(np.asarray(findings.classes).astype(str), return_inverse=True)
    whole = all(name.removeprefix("-").isdecimal() for name in names)
    order = np.argsort([int(name) for name in names], kind="stable") if whole else np.arange(len(names))
    return [str(name) for name in names[order]], np.argsort(order)[codes.reshape(-1)]


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
