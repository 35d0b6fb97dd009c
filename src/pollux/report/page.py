"""A clustering as one HTML file that needs nothing else: ``write_page`` and ``render_page``.

``page_content`` works out all that the page shows, as text for people; the template lays it out. ``encode_samples`` is
what its script draws and answers from.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from pollux.data.encoding import Feature
from pollux.io.atomic import write_text
from pollux.metrics import adjusted_rand_index, hungarian_accuracy, normalised_mutual_information, purity
from pollux.report.canvas import both_colours
from pollux.report.comparison import Comparison, MovedColumn
from pollux.report.findings import CERTAIN, Array, Classes, Findings, Map, Summary
from pollux.report.markup import (
    coordinate,
    counted,
    decimal,
    integer,
    outline,
    plain,
    render,
    script_data,
    shortened,
)
from pollux.report.pictures import MOST_THUMBNAILS, Gallery, make_gallery, make_thumbnails
from pollux.report.profiles import TAIL, find_bulk, make_histogram
from pollux.trees.contrasts import Contrasts, of_sources
from pollux.trees.explanation import Branch, say_restated
from pollux.trees.words import counts_years, number, percent, write_value

__all__ = ["render_page", "write_page"]

# A sample is doubtful where its own cluster has less than this probability.
DOUBT = 0.6
FEATURES_SHOWN = 8
# Example rows of a cluster, and the columns that are shown of them.
EXAMPLES, EXAMPLE_COLUMNS = 3, 6
MOST_COMPARED = 30
# Outliers that are listed, and how many standard deviations from its cluster make a value a reason.
MOST_OUTLIERS, UNUSUAL = 30, 1.0
MOST_MOVED, MOST_MOVED_COLUMNS = 200, 10
EVIDENCE = {
    "clear": "Clearly: there are gaps between the groups, or far fewer samples than within.",
    "likely": "Likely: they touch, but explain the data better than a single group does.",
    "none": "There is no sign of it: a single group explains the data as well. Take them as a way to divide it.",
}
MOST_EPOCHS = 300
SCORES = {
    "ARI": adjusted_rand_index,
    "NMI": normalised_mutual_information,
    "Accuracy": hungarian_accuracy,
    "Purity": purity,
}
MOST_ON_MAP = 50_000
# Of the names of samples, which may be texts: one of them, and all together.
LONGEST_NAME, MOST_CHARACTERS = 300, 3_000_000
VALUES = 5
FULL = 65_535
CELLS = 24
# How far down its list of telling features a sample is searched for shares that it has.
DEEP, NOTHING = 250, 255


def write_page(findings: Findings, path: str | os.PathLike[str]) -> None:
    """Write what was found as one HTML file.

    Parameters
    ----------
    findings : Findings
        What the page shows.
    path : path
        The file to write. It is replaced as a whole once the new one is complete.
    """
    write_text(Path(path), render_page(findings))


def render_page(findings: Findings) -> str:
    """What was found, as one HTML page.

    It asks for nothing outside itself, and forbids the browser to. Tables, scores and drawings are read without
    JavaScript; the map, picking and reading values need it.

    Parameters
    ----------
    findings : Findings
        What the page shows.

    Returns
    -------
    str
        An HTML document, to be written as UTF-8.
    """
    return render("page.html", page_content(findings))


def page_content(findings: Findings) -> dict[str, Any]:
    """All that the page shows, as text, with the data of its script."""
    summary, classes = findings.summary, findings.known_classes
    n, n_used, n_allowed = len(summary.labels), len(summary.clusters), summary.n_allowed
    sizes = findings.all_sizes
    contrasts, explanation = findings.contrasts, findings.explanation
    # Without another cluster there is nothing to compare with.
    compared = contrasts if n_used > 1 else None
    rows = choose_rows(findings)
    maps = findings.draw_maps(rows)
    gallery = thumbnails = None
    if findings.images is not None:
        far_rows = [] if findings.outliers is None else _furthest(findings)
        gallery = make_gallery(findings.images, summary, far_rows)
        thumbnails = make_thumbnails(findings.images[rows[:MOST_THUMBNAILS]])
    known, scores = "", {}
    if classes is not None:
        n_known = int(classes.known.sum())
        if n_known < n:
            has = "has" if n_known == 1 else "have"
            known = f"{integer(n_known)} of {counted(n, 'sample')} {has} a known class"
        codes, labels = classes.codes[classes.known], summary.labels[classes.known]
        scores = {name: decimal(measure(codes, labels)) for name, measure in SCORES.items()}
    history = _thinned(findings.history)
    n_doubtful = int((summary.confidence < DOUBT).sum())
    colours = both_colours(len(summary.sizes))
    between, far = _between(findings), _outliers(findings, gallery)
    dendrogram, groups = _dendrogram(findings), _groups(findings)
    against = None if findings.comparison is None else _against(findings, findings.comparison)
    sections = {
        "map": "Map",
        "against": "Changes" if against else "",
        "clusters": "Clusters",
        "profiles": "Differences" if compared is not None or gallery is not None else "",
        "rules": "Rules" if explanation is not None else "",
        "hierarchy": "Groups" if dendrogram else "",
        "between": "Distances" if between else "",
        "confidence": "Confidence",
        "outliers": "Outliers" if far else "",
        "members": "Members",
        "classes": "Classes" if classes is not None else "",
        "training": "Training" if history else "",
        "settings": "How it was made"
        if findings.columns or findings.notes or findings.settings or findings.command
        else "",
    }
    return {
        "findings": findings,
        "sections": {name: title for name, title in sections.items() if title},
        "lead": _lead(findings),
        "answers": [*_answers(findings), *([("Against", against["answer"])] if against else [])],
        "against": against,
        "restated": say_restated(explanation.restates) if explanation is not None and explanation.restates else "",
        "metrics": _metrics(findings, scores),
        "means": {
            "confidence": percent(float(summary.confidence.mean()), 1),
            "entropy": number(float(summary.entropy.mean()), summary.highest_entropy or 1.0),
        },
        "maps": maps,
        "groups": [{"clusters": own, "size": integer(sum(int(sizes[k]) for k in own))} for own in groups],
        "dendrogram": dendrogram,
        "outliers": far,
        "space": "" if findings.places is None else findings.places.space,
        "explanation": explanation,
        "branches": [] if explanation is None else _branches(explanation.branches),
        "fidelity": "" if explanation is None else percent(explanation.fidelity),
        "between": between,
        "known": known,
        "total": integer(findings.n_samples),
        "shown": integer(n) + ("" if findings.totals is None else " drawn"),
        "n_allowed": integer(n_allowed),
        "drawn": {
            "label": f"Map of {counted(len(rows), 'sample')} in {counted(n_used, 'cluster')}",
            "samples": integer(len(rows)) if len(rows) < findings.n_samples else "",
            "pictures": integer(thumbnails.tiles) if thumbnails and 0 < thumbnails.tiles < len(rows) else "",
        },
        "guess": {"confidence": percent(1 / n_allowed), "entropy": number(summary.highest_entropy)},
        "emptied": counted(n_allowed - n_used, "cluster") if n_used < n_allowed else "",
        "doubt": percent(DOUBT),
        "doubtful": {"count": integer(n_doubtful), "share": percent(n_doubtful / n, 1)},
        "certain": percent(CERTAIN),
        "is_compared": compared is not None,
        "clusters": _clusters(findings, compared, gallery),
        "distributions": _distributions(summary),
        "uncertain": _uncertain(findings, gallery) if n_allowed > 1 else None,
        "class_names": classes.names if classes is not None else None,
        "scores": scores,
        "confusion": _confusion(classes, summary) if classes is not None else [],
        "curves": _curves(history, findings.history),
        "gallery": gallery,
        "thumbnails": thumbnails,
        "colours": colours,
        "data": script_data(
            {
                "samples": encode_samples(findings, rows, maps, contrasts),
                "sizes": sizes.tolist(),
                "names": [shortened(findings.cluster_name(k), 100) for k in range(len(summary.sizes))],
                "least": 1 / n_allowed,
                "highest": summary.highest_entropy or 1.0,
                "colours": colours,
                "groups": {
                    "of": [next((g for g, own in enumerate(groups) if k in own), 0) for k in range(len(summary.sizes))],
                    "colours": both_colours(len(groups)),
                }
                if groups
                else None,
                "classes": [
                    {"names": [shortened(name, 60) for name in one.names], "colours": both_colours(len(one.names))}
                    for one in [classes]
                    if one is not None
                ],
                "history": {
                    plain(name): [(epoch, float(f"{value:.6g}")) for epoch, value in pairs]
                    for name, pairs in history.items()
                },
                "thumbs": thumbnails and [thumbnails.tiles, *thumbnails.layout],
            }
        ),
    }


def _in_words(share: float) -> str:
    return percent(share).replace("<", "less than ").replace(">", "more than ")


def _lead(findings: Findings) -> str:
    """What was found, in one sentence or two."""
    summary = findings.summary
    n, sizes = findings.n_samples, findings.all_sizes if findings.totals is None else findings.totals
    clusters = np.flatnonzero(sizes).tolist()
    used = len(clusters)
    limit = f", of at most {integer(summary.n_allowed)}" if summary.n_allowed > used else ""
    drawn = "" if findings.totals is None else f"; {integer(len(summary.labels))} of them are shown"
    words = f"{counted(n, 'sample')} in {counted(used, 'group')}{limit}{drawn}."
    if used < 2:
        return words

    def told(cluster: int) -> str:
        name = findings.cluster_name(cluster)
        called = f"“{shortened(name, 80)}”" if name else f"cluster {cluster}"
        return f"{_in_words(sizes[cluster] / n)}, is {called}"

    smallest = f"; the smallest, {told(clusters[-1])}" if used > 2 else ""
    return f"{words} The largest, {told(clusters[0])}{smallest}."


def _answers(findings: Findings) -> list[tuple[str, str]]:
    """What a reader asks next, and the answer in words."""
    summary = findings.summary
    if len(summary.clusters) < 2:
        return []
    n_doubtful = int((summary.confidence < DOUBT).sum())
    sure = _in_words(float((summary.confidence >= DOUBT).mean()))
    of_shown = "" if findings.totals is None else " of those shown"
    doubt = f"; {counted(n_doubtful, 'sample')}{of_shown} could as well be elsewhere" if n_doubtful else ""
    told = f"The model is sure of {sure} of the samples{doubt}. That does not tell whether its clusters are right."
    if findings.agreement is not None:
        changing = int((findings.agreement < 0.5).sum())
        doubt = f"; on {counted(changing, 'sample')}{of_shown} most of them do not" if changing else ""
        share = percent(float(findings.agreement.mean()))
        told = f"Other trainings, on parts of the data, agree on {share} of the samples{doubt}."
    answers = [("How sure", told)]
    if findings.structure is not None:
        answers.insert(0, ("Are they real?", EVIDENCE[findings.structure.grade]))
    if findings.outliers is not None:
        count = int(findings.outliers.sum())
        ringed = "fits in nowhere: it is ringed" if count == 1 else "fit in nowhere: they are ringed"
        told = f"{counted(count, 'sample')}{of_shown} {ringed} on the map."
        told = told if count else "No sample lies far from all others."
        answers.append(("Outliers", told))
    if findings.explanation is not None:
        leading = [name for name, share in findings.explanation.importances.items() if share >= 0.1][:3]
        if leading:
            answers.append(("Set apart by", f"{', '.join(shortened(name, 40) for name in leading)}."))
    return answers


def _against(findings: Findings, found: Comparison) -> dict[str, Any]:
    """The clusters beside their matches, what moved, and both in words."""
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
    stayed = "" if not total else f"{_in_words(1 - len(found.moved) / total)} of {counted(total, 'sample')} "
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


def _furthest(findings: Findings) -> list[int]:
    """The rows that fit in nowhere, the worst first."""
    assert findings.outliers is not None
    rows = np.flatnonzero(findings.outliers)
    order = np.arange(len(rows)) if findings.scores is None else np.argsort(findings.scores[rows], kind="stable")
    return [int(row) for row in rows[order][:MOST_OUTLIERS]]


def _outliers(findings: Findings, gallery: Gallery | None) -> dict[str, Any] | None:
    """The samples that fit in nowhere, and the columns in which they are unlike their own cluster; None without any."""
    if findings.outliers is None or not findings.outliers.any():
        return None
    summary, total = findings.summary, int(findings.outliers.sum())
    rows = _furthest(findings)
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


def _groups(findings: Findings) -> list[list[int]]:
    """The groups of the most persistent layer of clusters, the largest first; none without a hierarchy."""
    tree, used = findings.hierarchy, findings.summary.clusters
    layer = next((k for k in tree.layers if 1 < k < len(used)), 0) if tree is not None else 0
    if tree is None or not layer:
        return []
    group = tree.groups(layer)
    return [own for g in range(layer) if (own := [k for k in used if group[k] == g])]


def _dendrogram(findings: Findings) -> dict[str, Any] | None:
    """The tree of clusters in a drawing of 100 × 100, root to the left: its lines, its nodes, its leaves in order."""
    tree, used = findings.hierarchy, findings.summary.clusters
    if tree is None or len(used) < 3:
        return None
    K = len(tree.values)
    below: list[list[int]] = [[k] if k in used else [] for k in range(K)]
    for a, b, _, _ in tree.linkage:
        below.append(below[int(a)] + below[int(b)])
    leaves, top = below[-1], float(tree.linkage[-1, 2]) or 1.0
    # Where a line enters a node: half way along its leaves, and as far from them as its merges cost.
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


def _metrics(findings: Findings, scores: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The numbers a reader looks for first: name, value, note."""
    summary, classes, n = findings.summary, findings.known_classes, findings.n_samples
    first, last, sizes = summary.clusters[0], summary.clusters[-1], findings.all_sizes
    limit = f"of at most {integer(summary.n_allowed)}" if summary.n_allowed > len(summary.clusters) else ""
    metrics = [
        ("Samples", integer(n), "" if findings.totals is None else f"{integer(len(summary.labels))} are shown"),
        ("Clusters", integer(len(summary.clusters)), limit),
        ("Largest", percent(sizes[first] / n), f"cluster {first}"),
        ("Smallest", percent(sizes[last] / n), f"cluster {last}"),
        ("Sure of", percent(float((summary.confidence >= DOUBT).mean())), f"at a probability of {percent(DOUBT)}"),
    ]
    labelled = ""
    if classes is not None and not classes.known.all():
        labelled = f"of {integer(classes.known.sum())} samples"
    return metrics + [(name, value, labelled) for name, value in list(scores.items())[:2]]


def _branches(branches: Sequence[Branch], total: int = 0) -> list[dict[str, Any]]:
    """The nodes of the tree, each with all below it and its share of all rows."""
    total = total or sum(branch.rows for branch in branches)
    return [
        {
            "condition": branch.condition,
            "rows": percent(branch.rows / total),
            "cluster": branch.cluster,
            "share": percent(branch.share),
            "branches": _branches(branch.branches, total),
        }
        for branch in branches
    ]


def _between(findings: Findings) -> list[dict[str, Any]]:
    """Distances between the centres of clusters, in percent of the largest; nearest is which comes closest."""
    clusters = findings.summary.clusters
    if findings.places is None or not 2 <= len(clusters) <= MOST_COMPARED:
        return []
    apart = findings.places.between[np.ix_(clusters, clusters)]
    longest = float(np.nanmax(apart))
    if not longest > 0:
        return []
    # The nearest two have the darkest shade.
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


def _examples(findings: Findings, cluster: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a cluster near its centre, and near a boundary, with what they have in some columns."""
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


def _value_of(findings: Findings, row: int, own: Sequence[int]) -> str:
    """What a row has in a column, of which these are the features."""
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


def _clusters(findings: Findings, contrasts: Contrasts | None, gallery: Gallery | None) -> list[dict[str, Any]]:
    """Each cluster in use: its numbers, its pictures, and the columns in which it differs most."""
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
                # The share of the cluster over that of the rest.
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
            # The cluster in its colour over all samples in grey, each as shares of its own.
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
                "features": shown,
                "typical": "" if gallery is None else gallery.sheet.position(gallery.tile[gallery.typical[cluster][0]]),
                "mean": "" if gallery is None else gallery.sheet.position(gallery.mean[cluster]),
                "strips": [] if gallery is None else _strips(findings, gallery, cluster, confidence),
            }
        )
    return clusters


def _ranked_columns(contrasts: Contrasts, cluster: int, features: Sequence[Feature]) -> list[int]:
    """The features that differ most, largest first, one for each column."""
    found: dict[str, int] = {}
    for at in contrasts.ranked(cluster, len(features)):
        found.setdefault(features[at].source, at)
        if len(found) == FEATURES_SHOWN:
            break
    return list(found.values())


def _strips(findings: Findings, gallery: Gallery, cluster: int, confidence: Array) -> list[dict[str, Any]]:
    """The mean of a cluster, its most typical and its least certain images."""
    strips = {"Mean": [(gallery.sheet.position(gallery.mean[cluster]), "Mean image")]}
    shown = {"Most typical": gallery.typical[cluster]}
    # Of a sample that is alone in its cluster there is nothing left to show.
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


def _distributions(summary: Summary) -> list[dict[str, Any]]:
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


def _uncertain(findings: Findings, gallery: Gallery | None) -> dict[str, Any]:
    """The samples between two clusters, worst first, and the clusters that have none.

    Of pictures these are the samples that are not shown as typical, if there are any.
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


def _confusion(classes: Classes, summary: Summary) -> list[dict[str, Any]]:
    """A row for each class, in the order of the clusters that hold most of them: what agrees lies on a diagonal.

    The last row, whose name is None, counts the samples whose class is not known.
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


def _thinned(history: Mapping[str, Sequence[float]]) -> dict[str, list[tuple[int, float]]]:
    """(epoch, value) of each metric that has finite values, at most MOST_EPOCHS of them, the last among them."""
    found = {}
    for name, values in history.items():
        kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_EPOCHS)).round().astype(int))
        pairs = [(int(at) + 1, float(values[at])) for at in kept if np.isfinite(values[at])]
        if pairs:
            found[name] = pairs
    return found


def _curves(
    thinned: Mapping[str, Sequence[tuple[int, float]]], history: Mapping[str, Sequence[float]]
) -> list[dict[str, Any]]:
    """Each metric over the epochs: an SVG path in a drawing of 300 × 100, with its scale and its ends in words."""
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
                # Where the highest and the lowest value stand beside the curve, from the top; of a flat one it is one.
                "levels": list(zip(["6.9", "93.1"], ends, strict=True)) if high > low else [("50.0", ends[0])],
                "first": number(values[0]),
                "last": number(values[-1]),
                "epochs": [f"epoch {pairs[0][0] if last_epoch > 1 else 1}", integer(last_epoch)],
            }
        )
    return curves


def pack(values: NDArray[Any], kind: str) -> str:
    """Numbers as little-endian bytes of a kind such as '<u2', in base64."""
    with np.errstate(over="ignore"):
        written = np.ascontiguousarray(values).astype(kind)
    return base64.b64encode(written.tobytes()).decode("ascii")


def choose_rows(findings: Findings, most: int = MOST_ON_MAP) -> NDArray[np.intp]:
    """The rows to draw, in the order in which they are drawn: random, so that no cluster lies on top.

    Of more than ``most`` samples each cluster keeps its share, but at least 100 samples, or all it has.
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


def encode_map(drawn: Map, summary: Summary, labels: NDArray[np.int64]) -> dict[str, Any]:
    """Where samples lie on a map, in units of its first view, from 0 to 1: outliers cost the others no digits."""
    low, span = first_view(drawn.points)
    # Beyond this numbers of four bytes come to an end, and so does every screen.
    places = ((drawn.points - low) / span).clip(-1e30, 1e30)
    return {
        "axes": drawn.axes and list(map(plain, drawn.axes)),
        "low": low.tolist(),
        "span": span.tolist(),
        "extent": [[float(own.min(initial=0.0)), float(own.max(initial=1.0))] for own in places.T],
        "x": pack(places[:, 0], "<f4"),
        "y": pack(places[:, 1], "<f4"),
        # Without axes clusters are islands of one density: their middle is their heart.
        "places": _label_places(places, summary, labels, sigma=2.0 if drawn.axes else 5.0),
    }


def encode_samples(
    findings: Findings, rows: NDArray[np.intp], maps: Sequence[Map], contrasts: Contrasts | None
) -> dict[str, Any]:
    """All that the maps draw, and that they show of a sample under the pointer."""
    summary, classes = findings.summary, findings.known_classes
    entropy = summary.entropy[rows] / (summary.highest_entropy or 1.0)
    data: dict[str, Any] = {
        "n": len(rows),
        "maps": [encode_map(each, summary, summary.labels[rows]) for each in maps],
        "row": pack(rows, "<u4"),
        "label": pack(summary.labels[rows], "<u2"),
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
        data |= _telling_values(findings, rows, contrasts)
    return data


def first_view(points: Array) -> tuple[Array, Array]:
    """The lower corner and the extent of what the map shows first, of points (n, 2).

    It is all of them, unless few of them take most of the room: then it is the bulk and a little around it. An extent
    of 0 becomes 1.
    """
    if not len(points):
        return np.zeros(2), np.ones(2)
    low, high = points.min(0), points.max(0)
    ends = np.array([find_bulk(values) for values in points.T])
    around = 0.05 * (ends[:, 1] - ends[:, 0])
    low, high = np.maximum(low, ends[:, 0] - around), np.minimum(high, ends[:, 1] + around)
    flat = high <= low
    return np.where(flat, low - 0.5, low), np.where(flat, 1.0, high - low)


def _label_places(places: Array, summary: Summary, labels: NDArray[np.int64], sigma: float) -> list[list[float]]:
    """Number and densest spot of each cluster that is drawn."""
    found = []
    for cluster in summary.clusters:
        own = places[labels == cluster]
        if not len(own):
            continue
        seen = own[((own >= 0) & (own <= 1)).all(1)]
        own = seen if 10 * len(seen) >= len(own) else own
        # In cells of its own size: those of a wide map would hold a small cluster, or all but the outliers, in one.
        low, high = np.quantile(own, (TAIL, 1 - TAIL), axis=0)
        size = np.where(high > low, high - low, 1.0) / CELLS
        cells = np.floor((own - low) / size).clip(0, CELLS - 1).astype(np.int64)
        table = np.bincount(cells[:, 0] * CELLS + cells[:, 1], minlength=CELLS**2).reshape(CELLS, CELLS)
        # Wide enough to find the heart of a scattered cluster rather than a chance pair in it.
        smooth = gaussian_filter(table.astype(np.float64), sigma=sigma, mode="constant")
        heart = low + (np.array(np.unravel_index(smooth.argmax(), smooth.shape)) + 0.5) * size
        near = own[(((own - heart) / size) ** 2).sum(1).argsort(kind="stable")[: max(1, len(own) // 10)]]
        found.append([cluster, *(float(f"{middle:.6g}") for middle in np.median(near, axis=0))])
    return found


def _telling_values(findings: Findings, rows: NDArray[np.intp], contrasts: Contrasts) -> dict[str, Any]:
    """For each cluster its most telling features; for each sample which of them are shown, and their values.

    Of the shares only those are shown that a sample has.
    """
    summary, features, read = findings.summary, np.asarray(findings.features), findings.read_features
    is_share = np.array([bool(feature.value) for feature in read])
    width = min(VALUES, features.shape[1])
    telling = {cluster: _most_telling(contrasts, cluster, is_share, width) for cluster in summary.clusters}
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
    # Without shares the features of a sample are the first ones of its cluster.
    return data | ({"which": pack(which, "<u1")} if is_share.any() else {})


def _most_telling(contrasts: Contrasts, cluster: int, is_share: NDArray[np.bool_], width: int) -> list[int]:
    """Features, the most telling first: ``width`` that are not shares, and enough shares to find those a sample has."""
    d = len(is_share)
    ranked = contrasts.ranked(cluster, d)
    ranked += np.setdiff1d(np.arange(d), ranked).tolist()
    plain = [feature for feature in ranked if not is_share[feature]][:width]
    kept = {*plain, *[feature for feature in ranked if is_share[feature]][: DEEP - len(plain)]}
    return [feature for feature in ranked if feature in kept]
