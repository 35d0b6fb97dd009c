"""Sections on single clusters: their numbers, images and rows, and the distributions of their features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.encoding import Feature
from pollux.errors import counted
from pollux.report.findings import CERTAIN, Array, Findings
from pollux.report.markup import coordinate, decimal, integer, outline
from pollux.report.overview import DOUBT
from pollux.report.pictures import Gallery
from pollux.trees.contrasts import Contrasts, of_sources
from pollux.trees.words import percent, write_value

FEATURES_SHOWN = 8
# Number of example rows of a cluster, and of their columns that are shown.
EXAMPLES, EXAMPLE_COLUMNS = 3, 6
BINS = 24
# At most this share of the values, at either end, may lie outside the bulk.
TAIL = 0.02


def show_clusters(findings: Findings, contrasts: Contrasts | None, gallery: Gallery | None) -> list[dict[str, Any]]:
    """The contents for each cluster in use: its numbers, its images, and the columns in which it differs most."""
    summary, features = findings.summary, findings.read_features
    _, confidence_shares = summary.shares(summary.confidence, 1.0)
    ranked = {} if contrasts is None else {k: _ranked_columns(contrasts, k, features) for k in summary.clusters}
    values = np.asarray(findings.features)
    histograms = {
        feature: make_histogram(values[:, feature], summary.labels, len(summary.sizes))
        for feature in {feature for own in ranked.values() for feature in own}
        if not features[feature].value
    }

    def describe_feature(contrasts: Contrasts, cluster: int, at: int) -> dict[str, Any]:
        feature = features[at]
        inside, outside, scaled, missing = (
            float(values[cluster, at])
            for values in (contrasts.inside, contrasts.outside, contrasts.scaled, contrasts.missing)
        )
        deviations = f"{decimal(scaled, '+.1f')} sd"
        described = {"name": feature.name, "missing": percent(missing) if missing > 0 else ""}
        if at not in histograms:
            bars = [(4, "own-bar", inside), (21, "all", outside)]
            return described | {
                "gap": f"{decimal(100 * (inside - outside), '+.0f')} points",
                "deviations": deviations,
                # The share of the cluster above that of the rest.
                "paths": [
                    (kind, f"M0 {top}H{length}v12H0Z")
                    for top, bar, share in bars
                    for kind, length in [("rail", "120"), (bar, coordinate(120 * share))]
                ],
                "ends": ["0%", "100%"],
                "inside": percent(inside),
                "outside": percent(outside),
            }
        histogram, extent = histograms[at], 4 * float(contrasts.deviation[0, at])
        everyone, own = histogram.everyone, histogram.clusters[cluster]
        highest = max(own.max(), everyone.max(), 1e-9)
        return described | {
            "gap": deviations,
            "deviations": "",
            # The cluster in its colour above all samples in grey, each normalised.
            "paths": [(kind, outline(shares, 120, 36, highest)) for kind, shares in [("all", everyone), ("own", own)]],
            "ends": [
                write_value(end, feature, histogram.high - histogram.low) for end in (histogram.low, histogram.high)
            ],
            "inside": write_value(inside, feature, extent),
            "outside": write_value(outside, feature, extent),
        }

    explanation = findings.explanation
    rules = {} if explanation is None else {rule.cluster: rule for rule in explanation.rules}
    columns = [] if explanation is None else list(explanation.importances)[:EXAMPLE_COLUMNS]
    clusters = []
    for cluster in summary.clusters:
        confidence, shares = summary.confidence[summary.members(cluster)], confidence_shares[cluster]
        size, rule = int(findings.all_sizes[cluster]), rules.get(cluster)
        shown = [] if contrasts is None else [describe_feature(contrasts, cluster, at) for at in ranked[cluster]]
        clusters.append(
            {
                "number": cluster,
                "name": findings.cluster_name(cluster),
                "size": integer(size),
                "samples": counted(size, "sample"),
                "share": percent(size / findings.n_samples, 1),
                "width": f"{100 * size / int(findings.all_sizes.max()):.1f}",
                "confidence": percent(float(confidence.mean()), 1),
                "spread": outline(shares, 60, 16, max(shares.max(), 1e-9)),
                "doubtful": percent(float((confidence < DOUBT).mean()), 1),
                "words": "" if rule is None else rule.description,
                "rule": "" if rule is None else rule.sentence,
                "columns": columns,
                "examples": [] if gallery is not None or rule is None else _examples(findings, cluster, columns),
                "texts": _texts(findings, cluster) if findings.has_texts else {},
                "features": shown,
                "typical": "" if gallery is None else gallery.sheet.position(gallery.tile[gallery.typical[cluster][0]]),
                "mean": "" if gallery is None else gallery.sheet.position(gallery.mean[cluster]),
                "strips": [] if gallery is None else _strips(findings, gallery, cluster, confidence),
            }
        )
    return clusters


def _ranked_columns(contrasts: Contrasts, cluster: int, features: Sequence[Feature]) -> list[int]:
    """The features that differ most, the largest difference first, one for each column."""
    found: dict[str, int] = {}
    for at in contrasts.ranked(cluster, len(features)):
        found.setdefault(features[at].source, at)
        if len(found) == FEATURES_SHOWN:
            break
    return list(found.values())


def _examples(findings: Findings, cluster: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a cluster near its centre, and near a boundary, with their values in some columns."""
    summary = findings.summary
    typical = summary.most_typical(cluster, EXAMPLES)
    others = np.setdiff1d(summary.members(cluster), typical)
    shown = {"Typical": typical, "Near a boundary": summary.least_certain(others, EXAMPLES)}
    sources = of_sources(findings.read_features)
    return [
        {
            "kind": kind,
            "name": findings.row_name(int(row)),
            "values": [_value_of(findings, int(row), sources[column]) for column in columns],
        }
        for kind, rows in shown.items()
        for row in rows
    ]


def _texts(findings: Findings, cluster: int) -> dict[str, list[str]]:
    """Different texts of a cluster near its centre, and near a boundary."""
    typical = findings.summary.most_typical(cluster)
    others = np.setdiff1d(findings.summary.members(cluster), typical)
    shown = {"Most typical": typical, "Near a boundary": findings.summary.least_certain(others)}
    found = {kind: list(dict.fromkeys(findings.row_name(int(row)) for row in rows)) for kind, rows in shown.items()}
    return {kind: texts[:EXAMPLES] for kind, texts in found.items() if texts}


def _value_of(findings: Findings, row: int, own: Sequence[int]) -> str:
    """The value of a row in a column with these features, as text."""
    assert findings.features is not None
    assert findings.contrasts is not None
    for at in own:
        feature, value = findings.read_features[at], float(findings.features[row, at])
        if not feature.value:
            return write_value(value, feature, 4 * float(findings.contrasts.deviation[0, at]))
        if value == 1:
            return feature.value
        if feature.value == "1" and value == 0:
            return "0"
    return "–"


def _strips(findings: Findings, gallery: Gallery, cluster: int, confidence: Array) -> list[dict[str, Any]]:
    """The mean of a cluster, its most typical and its least certain images."""
    strips = {"Mean": [(gallery.sheet.position(gallery.mean[cluster]), "Mean image")]}
    shown = {"Most typical": gallery.typical[cluster]}
    # An uncertain sample that is alone in its cluster is already shown as typical.
    if gallery.uncertain[cluster] or bool((confidence >= CERTAIN).all()):
        shown["Near a boundary"] = gallery.uncertain[cluster]
    for name, rows in shown.items():
        strips[name] = [
            (
                gallery.sheet.position(gallery.tile[row]),
                f"{findings.row_name(row)}, {percent(float(findings.summary.confidence[row]))}",
            )
            for row in rows
        ]
    return [{"name": name, "tiles": tiles} for name, tiles in strips.items()]


@dataclass(frozen=True)
class Histogram:
    """Shares of each bin between two ends: of all samples (B,) and of each cluster (K, B)."""

    low: float
    high: float
    everyone: Array
    clusters: Array


def make_histogram(values: Array, labels: NDArray[np.int64], n_clusters: int) -> Histogram:
    """Histograms of a feature (n,), over all samples and in each cluster. The outermost bins include values beyond."""
    known = np.isfinite(values)
    kept, owners = np.asarray(values[known], dtype=np.float64), labels[known]
    least, most = float(kept.min()), float(kept.max())
    if most - least < BINS and np.array_equal(kept, np.rint(kept)):
        low, high, bins = least, most, int(most - least) + 1
        codes = (kept - least).astype(np.int64)
    else:
        low, high = find_bulk(np.clip(kept, *np.quantile(kept, (0.005, 0.995))))
        low, high = (low, high) if high > low else (least, most)
        bins = BINS if high > low else 1
        codes = np.clip((kept - low) / ((high - low) or 1.0) * bins, 0, bins - 1).astype(np.int64)
    table = np.bincount(owners * bins + codes, minlength=n_clusters * bins).reshape(n_clusters, bins)
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    return Histogram(low, high, table.sum(0) / len(kept), shares)


def find_bulk(values: NDArray[Any]) -> tuple[float, float]:
    """Minimum and maximum of values (n,), n > 0; or of their bulk, if a few values take more than half of the range.

    The bulk lies within the quantiles TAIL and 1 − TAIL, or at most half their distance beyond them.
    """
    low, high = float(values.min()), float(values.max())
    least, most = (float(end) for end in np.quantile(values, (TAIL, 1 - TAIL)))
    beyond = 0.5 * (most - least)
    bulk = values[(values >= least - beyond) & (values <= most + beyond)]
    # If nearly all values are equal, there is no bulk.
    if not len(bulk) or not 0 < np.ptp(bulk) < 0.45 * (high - low):
        return low, high
    return float(bulk.min()), float(bulk.max())
