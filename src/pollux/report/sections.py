"""Contents of the sections of the page, as text and paths of drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pollux.errors import counted
from pollux.report.comparison import Comparison, MovedColumn
from pollux.report.findings import CERTAIN, Classes, Findings, Summary
from pollux.report.markup import coordinate, decimal, integer, outline, shortened
from pollux.report.overview import share_in_words
from pollux.report.pictures import Gallery
from pollux.trees.explanation import Branch
from pollux.trees.words import number, percent, write_value

MOST_COMPARED = 30
# Number of outliers listed, and standard deviations from its cluster from which on a value is a reason.
MOST_OUTLIERS, UNUSUAL = 30, 1.0
MOST_MOVED, MOST_MOVED_COLUMNS = 200, 10
MOST_EPOCHS = 300


def show_comparison(findings: Findings, found: Comparison) -> dict[str, Any]:
    """The clusters with their matches, what moved, and a summary in words."""
    total = int(found.table.sum())
    changed = []
    rows = []
    for k in range(len(found.shares)):
        match, (change, low, high) = found.matches.get(k), found.changes[k].tolist()
        own, certain = int(found.table[k].sum()), bool(low > 0 or high < 0)
        if not found.shares[k] and (match is None or not found.other_shares[match]):
            continue
        if certain:
            changed.append(f"{k} ({decimal(100 * change, '+.1f')} points)")
        rows.append(
            {
                "cluster": k,
                "name": shortened(findings.cluster_name(k), 80),
                "match": match,
                "match_name": "" if match is None else found.other_names.get(match, ""),
                "here": percent(float(found.shares[k]), 1),
                "there": "none" if match is None else percent(float(found.other_shares[match]), 1),
                "change": "–" if np.isnan(change) else f"{decimal(100 * change, '+.1f')} points",
                "interval": "" if np.isnan(low) else f"{decimal(100 * low, '+.1f')} to {decimal(100 * high, '+.1f')}",
                "certain": certain,
                "stay": "–" if match is None or not own else percent(float(found.table[k, match]) / own),
            }
        )
    stayed = "" if not total else f"{share_in_words(1 - len(found.moved) / total)} of {counted(total, 'sample')} "
    agreement = f"the adjusted Rand index is {decimal(found.agreement, '.2f')}"
    if found.same_samples:
        answer = f"{stayed}are in the same group in {found.name}; {agreement}."
    else:
        shares = f"{counted(len(changed), 'group')} changed in share: {', '.join(changed)}" if changed else ""
        known = f"; {stayed}that are in both stayed where they were" if total else ""
        answer = f"Beside {found.name}, {shares or 'no group changed its share by more than chance'}{known}."
        leading = [f"{shortened(each.feature.name, 40)} ({_deviations(each)})" for each in found.columns[:3]]
        answer += f" Columns moved, the furthest first: {', '.join(leading)}." if leading else ""
    return {
        "name": found.name,
        "same_samples": found.same_samples,
        "answer": answer,
        "words": f"Of {counted(total, 'sample')}, {integer(len(found.moved))} moved; {agreement}." if total else "",
        "has_stayed": total > 0,
        "rows": rows,
        "lonely": [
            (k, found.other_names.get(k, ""), percent(float(share), 1))
            for k, share in enumerate(found.other_shares)
            if share > 0 and k not in found.matches.values()
        ],
        "notes": found.notes,
        "columns": [
            {
                "name": each.feature.name,
                "means": [
                    percent(mean, 1) if each.feature.value else write_value(mean, each.feature, each.spread or None)
                    for mean in (each.here, each.there)
                ],
                "deviations": _deviations(each),
                "outside": percent(each.outside, 1),
            }
            for each in found.columns[:MOST_MOVED_COLUMNS]
        ],
        "n_moved": integer(len(found.moved)),
        "moved_total": len(found.moved),
        "moved": [
            (findings.row_name(row), int(findings.labels[row]), there)
            for row, there in found.moved[:MOST_MOVED].tolist()
        ],
    }


def _deviations(moved: MovedColumn) -> str:
    if not moved.spread:
        return "one value here"
    return f"{decimal((moved.there - moved.here) / moved.spread, '+.2f')} standard deviations"


def show_distances(findings: Findings) -> list[dict[str, Any]]:
    """Distances between the centres of clusters, in percent of the largest, and the nearest cluster of each."""
    clusters = findings.summary.clusters
    if findings.places is None or not 2 <= len(clusters) <= MOST_COMPARED:
        return []
    apart = findings.places.between[np.ix_(clusters, clusters)]
    longest = float(np.nanmax(apart))
    if not longest > 0:
        return []
    # The nearest two clusters have the darkest shade.
    least = min(0.9, float(apart[~np.eye(len(clusters), dtype=bool)].min()) / longest)
    rows = []
    for row, cluster in enumerate(clusters):
        others = np.where(np.arange(len(clusters)) == row, np.inf, apart[row])
        cells = [
            (other, "" if other == cluster else f"{100 * share:.0f}", f"{0.9 * (1 - share) / (1 - least):.3g}")
            for other, share in zip(clusters, (apart[row] / longest).tolist(), strict=True)
        ]
        rows.append({"cluster": cluster, "cells": cells, "nearest": clusters[int(np.nanargmin(others))]})
    return rows


def show_confusion(classes: Classes, summary: Summary) -> list[dict[str, Any]]:
    """A row for each class, in the order of the clusters with most of them, so that agreement is on the diagonal.

    The last row, whose name is None, counts the samples of unknown class.
    """
    names = [*classes.names, *([] if classes.known.all() else [None])]
    width = len(summary.sizes)
    table = np.bincount(classes.codes * width + summary.labels, minlength=len(names) * width).reshape(-1, width)
    table = table[:, summary.clusters]
    order = np.lexsort((-table.max(1), table.argmax(1), np.arange(len(names)) == len(classes.names)))
    rows = []
    for code in order.tolist():
        name, counts, total = names[code], table[code].tolist(), int(table[code].sum())
        cells = [
            (cluster, integer(count) if count else "", f"{0 if name is None else count / total:.3g}")
            for cluster, count in zip(summary.clusters, counts, strict=True)
        ]
        rows.append({"name": name, "cells": cells, "total": integer(total)})
    return rows


def show_distributions(summary: Summary) -> list[dict[str, Any]]:
    """Confidence and entropy of all samples and of each cluster, as histograms."""
    most = summary.highest_entropy
    drawings = []
    for name, values, end, marks in [
        ("Probability of the own cluster", summary.confidence, 1.0, ["0", "50%", "100%"]),
        ("Entropy, in nats", summary.entropy, most or 1.0, ["0", number(most / 2), number(most)]),
    ]:
        everyone, clusters = summary.shares(values, end)
        highest = float(max(everyone.max(), *(own.max() for own in clusters.values())))
        drawings.append(
            {
                "name": name,
                "highest": percent(highest),
                "everyone": outline(everyone, 200, 80, highest),
                "clusters": [(cluster, outline(own, 200, 80, highest)) for cluster, own in clusters.items()],
                "marks": marks,
            }
        )
    return drawings


def show_uncertain(findings: Findings, gallery: Gallery | None) -> dict[str, Any]:
    """The samples between two clusters, worst first, and the clusters that have none.

    Of images, these are the samples that are not shown as typical, if there are any.
    """
    summary, classes = findings.summary, findings.known_classes
    each: dict[int, NDArray[np.intp]] = {
        cluster: summary.least_certain(
            summary.members(cluster)
            if gallery is None
            else np.array(gallery.uncertain[cluster] or gallery.typical[cluster])
        )
        for cluster in summary.clusters
    }
    candidates = np.sort(np.concatenate(list(each.values())).astype(np.intp))
    overall = set(summary.least_certain(candidates).tolist())
    rows = summary.least_certain(candidates, None).tolist()
    names = [findings.row_name(row) for row in rows]
    samples = [
        {
            "name": name,
            "class_name": classes.names[classes.codes[row]] if classes is not None and classes.known[row] else None,
            "tile": "" if gallery is None else gallery.sheet.position(gallery.tile[row]),
            "cluster": int(summary.labels[row]),
            "probability": percent(float(summary.confidence[row]), 1),
            "next": int(summary.following[row]),
            "next_probability": percent(float(summary.following_probability[row]), 1),
            "overall": row in overall,
        }
        for row, name in zip(rows, names, strict=True)
    ]
    any_doubt = bool((summary.confidence[rows] < CERTAIN).any())
    return {
        "samples": samples,
        "any_doubt": any_doubt,
        "certain_clusters": [cluster for cluster, own in each.items() if not len(own)],
    }


def show_tree(findings: Findings) -> dict[str, Any] | None:
    """The tree of clusters as a drawing of 100 × 100, root to the left: its lines, its nodes, its leaves in order."""
    tree, used = findings.hierarchy, findings.summary.clusters
    if tree is None or len(used) < 3:
        return None
    K = len(tree.values)
    below: list[list[int]] = [[k] if k in used else [] for k in range(K)]
    for a, b, _, _ in tree.linkage:
        below.append(below[int(a)] + below[int(b)])
    leaves, top = below[-1], float(tree.linkage[-1, 2]) or 1.0
    # Position of each node: the middle of its leaves, at a distance from them given by the cost of its merges.
    places = {k: (100.0, 100 * (leaves.index(k) + 0.5) / len(leaves)) for k in used}
    lines, nodes = [], []
    for merge, (a, b, height, _) in enumerate(tree.linkage):
        ends = [places[int(each)] for each in (a, b) if below[int(each)]]
        if len(ends) == 1:
            places[K + merge] = ends[0]
        if len(ends) < 2:
            continue
        x = 100 - 96 * float(height) / top
        (x1, y1), (x2, y2) = ends
        places[K + merge] = (x, (y1 + y2) / 2)
        lines.append(f"M{coordinate(x1)} {coordinate(y1)}H{coordinate(x)}V{coordinate(y2)}H{coordinate(x2)}")
        nodes.append(
            {
                "clusters": sorted(below[K + merge]),
                "left": coordinate(x),
                "top": coordinate((y1 + y2) / 2),
                "cost": percent(float(height)),
            }
        )
    x, y = places[2 * K - 2]
    lines.append(f"M0 {coordinate(y)}H{coordinate(x)}")
    return {"path": "".join(lines), "nodes": nodes, "leaves": [(k, findings.cluster_name(k)) for k in leaves]}


class Groups(NamedTuple):
    """Groups of clusters, the largest first, their names, "" if they have none, and the group (K,) of each cluster."""

    clusters: list[list[int]]
    names: list[str]
    of: NDArray[np.int64]


def find_groups(findings: Findings) -> Groups | None:
    """The groups of clusters in the most persistent layer of the hierarchy; None without a hierarchy."""
    tree, used = findings.hierarchy, findings.summary.clusters
    layer = next((k for k in tree.layers if 1 < k < len(used)), 0) if tree is not None else 0
    if tree is None or not layer:
        return None
    of = tree.groups(layer)[: len(findings.sizes)]
    names = findings.name_groups(of[findings.labels])
    clusters = [own for g in range(layer) if (own := [k for k in used if of[k] == g])]
    return Groups(clusters, [shortened(names.get(g, ""), 100) for g in range(len(clusters))], of)


def show_outliers(findings: Findings, gallery: Gallery | None) -> dict[str, Any] | None:
    """The outliers, and the columns in which they differ from their own cluster; None if there are none."""
    if findings.outliers is None or not findings.outliers.any():
        return None
    summary, total = findings.summary, int(findings.outliers.sum())
    rows = furthest_outliers(findings)
    return {
        "count": integer(total),
        "shown": integer(len(rows)) if len(rows) < total else "",
        "has_reasons": findings.contrasts is not None,
        "has_scores": findings.scores is not None,
        "samples": [
            {
                "name": findings.row_name(row),
                "tile": "" if gallery is None else gallery.sheet.position(gallery.tile[row]),
                "cluster": int(summary.labels[row]),
                "distance": "" if findings.scores is None else f"{decimal(-float(findings.scores[row]), '.1f')} ×",
                "reasons": _reasons(findings, row),
            }
            for row in rows
        ],
    }


def furthest_outliers(findings: Findings) -> list[int]:
    """The rows of outliers, the worst first."""
    assert findings.outliers is not None
    rows = np.flatnonzero(findings.outliers)
    order = np.arange(len(rows)) if findings.scores is None else np.argsort(findings.scores[rows], kind="stable")
    return [int(row) for row in rows[order][:MOST_OUTLIERS]]


def _reasons(findings: Findings, row: int) -> list[str]:
    """The columns in which a sample is furthest from its cluster, with its value and the usual one."""
    contrasts, features, cluster = findings.contrasts, findings.read_features, int(findings.labels[row])
    if contrasts is None or findings.features is None:
        return []
    values = np.asarray(findings.features[row], dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        away = np.abs(np.nan_to_num((values - contrasts.inside[cluster]) / contrasts.deviation[0], posinf=0.0))
    found: dict[str, str] = {}
    for at in np.argsort(-away, kind="stable").tolist():
        feature, usual = features[at], float(contrasts.inside[cluster, at])
        if away[at] < UNUSUAL or len(found) == 3:
            break
        if not feature.value:
            extent = 4 * float(contrasts.deviation[0, at])
            own, typical = (write_value(float(value), feature, extent) for value in (values[at], usual))
            found.setdefault(feature.source, f"{feature.source} {own}, usually {typical}")
        elif values[at] == 1:
            found.setdefault(feature.source, f"{feature.source} {feature.value}, as {percent(usual)} of the cluster")
    return list(found.values())


def show_rules(branches: Sequence[Branch], total: int = 0) -> list[dict[str, Any]]:
    """The nodes of the tree, each with its subtree and its share of all rows."""
    total = total or sum(branch.rows for branch in branches)
    return [
        {
            "condition": branch.condition,
            "rows": percent(branch.rows / total),
            "cluster": branch.cluster,
            "share": percent(branch.share),
            "branches": show_rules(branch.branches, total),
        }
        for branch in branches
    ]


def thin_history(history: Mapping[str, Sequence[float]]) -> dict[str, list[tuple[int, float]]]:
    """(epoch, value) of each metric that has finite values, thinned to at most MOST_EPOCHS, including the last."""
    found = {}
    for name, values in history.items():
        kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_EPOCHS)).round().astype(int))
        pairs = [(int(at) + 1, float(values[at])) for at in kept if np.isfinite(values[at])]
        if pairs:
            found[name] = pairs
    return found


def show_curves(
    thinned: Mapping[str, Sequence[tuple[int, float]]], history: Mapping[str, Sequence[float]]
) -> list[dict[str, Any]]:
    """Each metric over the epochs: an SVG path in a drawing of 300 × 100, with its scale and its ends as text."""
    last_epoch = max((len(history[name]) for name in thinned), default=0)
    curves = []
    for name, pairs in thinned.items():
        values = [value for _, value in pairs]
        low, high = min(values), max(values)
        if name == "clusters":
            low = min(low, 0.0)
        room = 0.08 * (high - low) or 1.0
        base, extent = low - room, high - low + 2 * room
        spots = [
            (coordinate(300 * (epoch - 1) / max(last_epoch - 1, 1)), coordinate(100 * (1 - (value - base) / extent)))
            for epoch, value in pairs
        ]
        ends = [integer(end) if name == "clusters" else number(end, high - low) for end in (high, low)]
        curves.append(
            {
                "name": name,
                "path": f"M0 {spots[0][1]}H300" if len(spots) == 1 else "M" + "L".join(f"{x} {y}" for x, y in spots),
                "base": base,
                "extent": extent,
                # Positions of the highest and the lowest value beside the curve, from the top; a flat curve has one.
                "levels": list(zip(["6.9", "93.1"], ends, strict=True)) if high > low else [("50.0", ends[0])],
                "first": number(values[0]),
                "last": number(values[-1]),
                "epochs": [f"epoch {pairs[0][0] if last_epoch > 1 else 1}", integer(last_epoch)],
            }
        )
    return curves
