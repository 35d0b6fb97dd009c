"""The samples of the map as compact arrays, in base64."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from pollux.report.findings import Array, Findings
from pollux.report.markup import shortened
from pollux.report.profiles import Contrasts
from pollux.report.summary import Summary, known_classes

MOST_ON_MAP = 50_000
VALUES = 5
FULL = 65_535
CELLS = 40


def packed(values: NDArray[Any], kind: str) -> str:
    """Numbers as little-endian bytes of a kind such as '<u2', in base64."""
    with np.errstate(over="ignore"):
        written = np.ascontiguousarray(values).astype(kind)
    return base64.b64encode(written.tobytes()).decode("ascii")


def chosen(findings: Findings, summary: Summary, most: int = MOST_ON_MAP) -> NDArray[np.intp]:
    """The rows to draw, in the order in which they are drawn: random, so that no cluster lies on top.

    Beyond the most that are drawn, each cluster keeps its share of them, but at least 100 samples, or all it has.
    """
    generator = np.random.default_rng(0)
    drawn = np.flatnonzero(np.isfinite(np.asarray(findings.points, dtype=np.float64)).all(1))
    if len(drawn) > most:
        owners = summary.labels[drawn]
        sizes = np.bincount(owners, minlength=len(summary.sizes))
        least = min(100, most // max(len(summary.clusters), 1))
        floor = np.minimum(sizes, least)
        beyond = sizes - floor
        quota = floor + (beyond * ((most - floor.sum()) / beyond.sum())).astype(np.int64)
        kept = [
            generator.choice(drawn[owners == cluster], size=quota[cluster], replace=False)
            for cluster in summary.clusters
        ]
        drawn = np.concatenate(kept)
    return generator.permutation(drawn)


def samples(findings: Findings, summary: Summary, rows: NDArray[np.intp], found: Contrasts | None) -> dict[str, Any]:
    """Everything that the map draws, and that it tells of a sample under the pointer."""
    points = np.asarray(findings.points, dtype=np.float64)[rows]
    low, span = _frame(points)
    places = np.rint((points - low) / span * FULL) if len(rows) else np.zeros((0, 2))
    data: dict[str, Any] = {
        "n": len(rows),
        "low": low.tolist(),
        "span": span.tolist(),
        "x": packed(places[:, 0], "<u2"),
        "y": packed(places[:, 1], "<u2"),
        "row": packed(rows, "<u4"),
        "label": packed(summary.labels[rows], "<u2"),
        "next": packed(summary.following[rows], "<u2"),
        "p": packed(np.rint(summary.confidence[rows] * FULL).clip(0, FULL), "<u2"),
        "nextP": packed(np.rint(summary.following_probability[rows] * FULL).clip(0, FULL), "<u2"),
        "entropy": packed(np.rint(summary.entropy[rows] / summary.highest_entropy * FULL).clip(0, FULL), "<u2"),
        "places": _label_places(places, summary, summary.labels[rows]),
    }
    if findings.row_names is not None:
        data["names"] = [shortened(findings.row_names[row], 100) for row in rows]
    if findings.classes is not None:
        data["class"] = packed(known_classes(findings)[1][rows], "<u2")
    if findings.features is not None and found is not None:
        data |= _telling_values(findings, summary, rows, found)
    return data


def _frame(points: Array) -> tuple[Array, Array]:
    """The lower corner and the extent of points (n, 2); an extent of nothing becomes one."""
    if not len(points):
        return np.zeros(2), np.ones(2)
    low, high = points.min(0), points.max(0)
    flat = high <= low
    return np.where(flat, low - 0.5, low), np.where(flat, 1.0, high - low)


def _label_places(places: Array, summary: Summary, labels: NDArray[np.int64]) -> list[list[int]]:
    """For each cluster its number and the densest spot of its members; [] for those that are not drawn."""
    found = []
    for cluster in summary.clusters:
        own = places[labels == cluster]
        if not len(own):
            continue
        cells = np.minimum(own * (CELLS / (FULL + 1)), CELLS - 1).astype(np.int64)
        table = np.bincount(cells[:, 0] * CELLS + cells[:, 1], minlength=CELLS**2).reshape(CELLS, CELLS)
        # Wide enough to find the heart of a scattered cluster rather than a chance pair in it.
        smooth = gaussian_filter(table.astype(np.float64), sigma=1.5, mode="constant")
        heart = (np.array(np.unravel_index(smooth.argmax(), smooth.shape)) + 0.5) * (FULL / CELLS)
        near = own[((own - heart) ** 2).sum(1).argsort(kind="stable")[: max(1, len(own) // 10)]]
        found.append([cluster, *(round(float(middle)) for middle in np.median(near, axis=0))])
    return found


def _telling_values(findings: Findings, summary: Summary, rows: NDArray[np.intp], found: Contrasts) -> dict[str, Any]:
    """For each cluster its most telling features, and their values for each of its samples."""
    features = np.asarray(findings.features)
    width = min(VALUES, features.shape[1])
    every = list(range(features.shape[1]))
    told: dict[int, list[int]] = {}
    for cluster in summary.clusters:
        best = found.ranked(cluster, width)
        told[cluster] = best + [other for other in every[: 2 * width] if other not in best][: width - len(best)]
    columns = np.array([told.get(cluster, every[:width]) for cluster in range(len(summary.sizes))]).reshape(-1, width)
    picked = columns[summary.labels[rows]]
    named = sorted({feature for best in told.values() for feature in best})
    return {
        "width": width,
        "columns": columns.tolist(),
        "values": packed(features[rows[:, None], picked], "<f4"),
        "features": {
            feature: [
                shortened(findings.feature_names[feature], 60),
                findings.feature_names[feature] in findings.shares,
            ]
            for feature in named
        },
    }
