"""Data for the script of the page: which samples are drawn, where, and what is shown of each."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from pollux.report.findings import Array, Findings
from pollux.report.maps import Map
from pollux.report.markup import plain, shortened
from pollux.report.profiles import TAIL, find_bulk
from pollux.trees.contrasts import Contrasts
from pollux.trees.words import counts_years

MOST_ON_MAP = 50_000
# Maximum length of a sample's name, which may be a text; and of all names together.
LONGEST_NAME, MOST_CHARACTERS = 300, 3_000_000
VALUES = 5
FULL = 65_535
CELLS = 24
# How many of its most distinctive features are searched for shares that a sample has.
DEEP, NOTHING = 250, 255


def choose_rows(findings: Findings, most: int = MOST_ON_MAP) -> NDArray[np.intp]:
    """The rows to draw, in drawing order: random, so that no cluster covers the others.

    If there are more than ``most`` samples, each cluster keeps its share, but at least 100 samples, or all it has.
    """
    summary, generator = findings.summary, np.random.default_rng(0)
    drawn = np.arange(len(summary.labels))
    if findings.points is not None:
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


def encode_samples(
    findings: Findings,
    rows: NDArray[np.intp],
    maps: Sequence[Map],
    contrasts: Contrasts | None,
    groups: NDArray[np.int64] | None = None,
) -> dict[str, Any]:
    """All data of the maps, and of the tooltip of a sample; groups (K,) are those of clusters."""
    summary, classes = findings.summary, findings.known_classes
    labels, entropy = summary.labels[rows], summary.entropy[rows] / (summary.highest_entropy or 1.0)
    data: dict[str, Any] = {
        "n": len(rows),
        "maps": [encode_map(each, [labels] if groups is None else [labels, groups[labels]]) for each in maps],
        "row": pack(rows, "<u4"),
        "label": pack(labels, "<u2"),
        "next": pack(summary.following[rows], "<u2"),
        "p": pack(np.rint(summary.confidence[rows] * FULL).clip(0, FULL), "<u2"),
        "nextP": pack(np.rint(summary.following_probability[rows] * FULL).clip(0, FULL), "<u2"),
        "entropy": pack(np.rint(entropy * FULL).clip(0, FULL), "<u2"),
    }
    if findings.row_names is not None:
        longest = min(LONGEST_NAME, max(100, MOST_CHARACTERS // max(len(rows), 1)))
        data["names"] = [shortened(findings.row_names[row], longest) for row in rows]
    if classes is not None:
        data["class"] = pack(classes.codes[rows], "<u2")
    if findings.outliers is not None and findings.outliers.any():
        data["outlier"] = pack(findings.outliers[rows], "<u1")
    if contrasts is not None:
        data |= _distinctive_values(findings, rows, contrasts)
    return data


def encode_map(drawn: Map, labels: Sequence[NDArray[np.int64]]) -> dict[str, Any]:
    """Positions of samples on a map, in units of its first view, from 0 to 1, so that outliers do not cost precision.

    The first of the labels are clusters, the second are groups of clusters.
    """
    low, span = first_view(drawn.points)
    # Within the range of float32, and far beyond any screen.
    places = ((drawn.points - low) / span).clip(-1e30, 1e30)
    return {
        "axes": drawn.axes and list(map(plain, drawn.axes)),
        "low": low.tolist(),
        "span": span.tolist(),
        "extent": [[float(own.min(initial=0.0)), float(own.max(initial=1.0))] for own in places.T],
        "x": pack(places[:, 0], "<f4"),
        "y": pack(places[:, 1], "<f4"),
        # Without axes clusters are islands of uniform density: the number is placed at their middle.
        # Groups of clusters are named at their middle.
        "places": [
            _label_places(places, own, sigma)
            for own, sigma in zip(labels, (2.0 if drawn.axes else 5.0, CELLS / 2), strict=False)
        ],
    }


def first_view(points: Array) -> tuple[Array, Array]:
    """The lower corner and the extent of the first view of a map of points (n, 2).

    It shows all of them, unless few take up most of the space: then it shows the bulk with a margin. An extent of 0
    becomes 1.
    """
    if not len(points):
        return np.zeros(2), np.ones(2)
    low, high = points.min(0), points.max(0)
    ends = np.array([find_bulk(values) for values in points.T])
    around = 0.05 * (ends[:, 1] - ends[:, 0])
    low, high = np.maximum(low, ends[:, 0] - around), np.minimum(high, ends[:, 1] + around)
    flat = high <= low
    return np.where(flat, low - 0.5, low), np.where(flat, 1.0, high - low)


def _label_places(places: Array, labels: NDArray[np.int64], sigma: float) -> list[list[float]]:
    """Number and densest spot of each cluster, or group, that is drawn."""
    found = []
    for cluster in np.unique(labels).tolist():
        own = places[labels == cluster]
        seen = own[((own >= 0) & (own <= 1)).all(1)]
        own = seen if 10 * len(seen) >= len(own) else own
        # Cells scale with the cluster: those of a wide map could hold a small cluster in a single one.
        low, high = np.quantile(own, (TAIL, 1 - TAIL), axis=0)
        size = np.where(high > low, high - low, 1.0) / CELLS
        cells = np.floor((own - low) / size).clip(0, CELLS - 1).astype(np.int64)
        table = np.bincount(cells[:, 0] * CELLS + cells[:, 1], minlength=CELLS**2).reshape(CELLS, CELLS)
        # Smoothed enough to find the centre of a scattered cluster rather than a chance pair in it.
        smooth = gaussian_filter(table.astype(np.float64), sigma=sigma, mode="constant")
        heart = low + (np.array(np.unravel_index(smooth.argmax(), smooth.shape)) + 0.5) * size
        near = own[(((own - heart) / size) ** 2).sum(1).argsort(kind="stable")[: max(1, len(own) // 10)]]
        found.append([cluster, *(float(f"{middle:.6g}") for middle in np.median(near, axis=0))])
    return found


def _distinctive_values(findings: Findings, rows: NDArray[np.intp], contrasts: Contrasts) -> dict[str, Any]:
    """The most distinctive features of each cluster; for each sample which of them are shown, and their values.

    Of the shares only those that a sample has are shown.
    """
    summary, features, read = findings.summary, np.asarray(findings.features), findings.read_features
    is_share = np.array([bool(feature.value) for feature in read])
    width = min(VALUES, features.shape[1])
    telling = {cluster: _most_distinctive(contrasts, cluster, is_share, width) for cluster in summary.clusters}
    which = np.full((len(rows), width), NOTHING, dtype=np.uint8)
    values = np.full((len(rows), width), np.nan, dtype=np.float32)
    labels = summary.labels[rows]
    for cluster, best in telling.items():
        own = np.flatnonzero(labels == cluster)
        with np.errstate(over="ignore"):
            here = features[rows[own][:, None], best].astype(np.float32)
        shown = ~is_share[best] | (here > 0.5)
        order = np.argsort(~shown, axis=1, kind="stable")[:, :width]
        which[own, : order.shape[1]] = np.where(np.take_along_axis(shown, order, axis=1), order, NOTHING)
        values[own, : order.shape[1]] = np.take_along_axis(here, order, axis=1)
    shown_features = sorted({feature for best in telling.values() for feature in best})
    data = {
        "width": width,
        "columns": [telling.get(cluster, []) for cluster in range(len(summary.sizes))],
        "values": pack(values, "<f4"),
        "features": {
            feature: [shortened(part, 60) for part in filter(None, [read[feature].source, read[feature].value])]
            for feature in shown_features
        },
        "forms": {
            feature: "date" if read[feature].is_date else "year"
            for feature in shown_features
            if read[feature].is_date or counts_years(read[feature])
        },
    }
    # Without shares, each sample shows the first features of its cluster.
    return data | ({"which": pack(which, "<u1")} if is_share.any() else {})


def _most_distinctive(contrasts: Contrasts, cluster: int, is_share: NDArray[np.bool_], width: int) -> list[int]:
    """Features, the most distinctive first: ``width`` that are not shares, and enough shares to search."""
    d = len(is_share)
    ranked = contrasts.ranked(cluster, d)
    ranked += np.setdiff1d(np.arange(d), ranked).tolist()
    plain = [feature for feature in ranked if not is_share[feature]][:width]
    kept = {*plain, *[feature for feature in ranked if is_share[feature]][: DEEP - len(plain)]}
    return [feature for feature in ranked if feature in kept]


def pack(values: NDArray[Any], kind: str) -> str:
    """Encode numbers as little-endian bytes of a kind such as '<u2', in base64."""
    with np.errstate(over="ignore"):
        written = np.ascontiguousarray(values).astype(kind)
    return base64.b64encode(written.tobytes()).decode("ascii")
