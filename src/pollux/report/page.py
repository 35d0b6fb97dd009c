"""A clustering as one self-contained HTML file: ``write_page`` and ``render_page``.

``page_content`` collects all that the page shows, as text; the template lays it out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pollux.errors import counted
from pollux.io.atomic import write_text
from pollux.metrics import adjusted_rand_index, hungarian_accuracy, normalised_mutual_information, purity
from pollux.report.canvas import both_colours
from pollux.report.findings import CERTAIN, Findings
from pollux.report.map_data import choose_rows, encode_samples
from pollux.report.markup import decimal, integer, plain, render, script_data, shortened
from pollux.report.overview import DOUBT, answer_questions, list_metrics, write_lead
from pollux.report.pictures import MOST_THUMBNAILS, make_gallery, make_thumbnails
from pollux.report.profiles import show_clusters
from pollux.report.sections import (
    find_groups,
    furthest_outliers,
    show_comparison,
    show_confusion,
    show_curves,
    show_distances,
    show_distributions,
    show_outliers,
    show_rules,
    show_tree,
    show_uncertain,
    thin_history,
)
from pollux.trees.explanation import say_restated
from pollux.trees.words import number, percent

__all__ = ["render_page", "write_page"]

SCORES = {
    "ARI": adjusted_rand_index,
    "NMI": normalised_mutual_information,
    "Accuracy": hungarian_accuracy,
    "Purity": purity,
}


def write_page(findings: Findings, path: str | os.PathLike[str]) -> None:
    """Write findings as one HTML file.

    Parameters
    ----------
    findings : Findings
        The contents of the page.
    path : path
        The file to write. It is replaced atomically.
    """
    write_text(Path(path), render_page(findings))


def render_page(findings: Findings) -> str:
    """Render findings as one HTML page.

    It requests nothing from outside, and its content security policy forbids it. Tables, scores and drawings work
    without JavaScript; the map, picking and reading values need it.

    Parameters
    ----------
    findings : Findings
        The contents of the page.

    Returns
    -------
    str
        An HTML document, to be written as UTF-8.
    """
    return render("page.html", page_content(findings))


def page_content(findings: Findings) -> dict[str, Any]:
    """All contents of the page, as text, with the data of its script."""
    summary, classes = findings.summary, findings.known_classes
    n, n_used, n_allowed = len(summary.labels), len(summary.clusters), summary.n_allowed
    sizes = findings.all_sizes
    contrasts, explanation = findings.contrasts, findings.explanation
    # With a single cluster there is nothing to compare with.
    compared = contrasts if n_used > 1 else None
    is_told = compared is not None or findings.images is not None or findings.has_texts
    rows = choose_rows(findings)
    maps = findings.draw_maps(rows)
    gallery = thumbnails = None
    if findings.images is not None:
        far_rows = [] if findings.outliers is None else furthest_outliers(findings)
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
    history = thin_history(findings.history)
    n_doubtful = int((summary.confidence < DOUBT).sum())
    colours = both_colours(len(summary.sizes))
    between, far = show_distances(findings), show_outliers(findings, gallery)
    dendrogram, groups = show_tree(findings), find_groups(findings)
    against = None if findings.comparison is None else show_comparison(findings, findings.comparison)
    sections = {
        "map": "Map",
        "against": "Changes" if against else "",
        "clusters": "Clusters",
        "profiles": ("Topics" if findings.has_texts else "Differences") if is_told else "",
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
        "lead": write_lead(findings),
        "answers": [*answer_questions(findings), *([("Against", against["answer"])] if against else [])],
        "against": against,
        "restated": say_restated(explanation.restates) if explanation is not None and explanation.restates else "",
        "metrics": list_metrics(findings, scores),
        "means": {
            "confidence": percent(float(summary.confidence.mean()), 1),
            "entropy": number(float(summary.entropy.mean()), summary.highest_entropy or 1.0),
        },
        "maps": maps,
        "groups": []
        if groups is None
        else [
            {"clusters": own, "name": name, "size": integer(sum(int(sizes[k]) for k in own))}
            for own, name in zip(groups.clusters, groups.names, strict=True)
        ],
        "dendrogram": dendrogram,
        "outliers": far,
        "space": "" if findings.places is None else findings.places.space,
        "explanation": explanation,
        "branches": [] if explanation is None else show_rules(explanation.branches),
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
        "is_named": compared is not None or any(map(findings.cluster_name, summary.clusters)),
        "clusters": show_clusters(findings, compared, gallery),
        "distributions": show_distributions(summary),
        "uncertain": show_uncertain(findings, gallery) if n_allowed > 1 else None,
        "class_names": classes.names if classes is not None else None,
        "scores": scores,
        "confusion": show_confusion(classes, summary) if classes is not None else [],
        "curves": show_curves(history, findings.history),
        "gallery": gallery,
        "thumbnails": thumbnails,
        "colours": colours,
        "data": script_data(
            {
                "samples": encode_samples(findings, rows, maps, contrasts, None if groups is None else groups.of),
                "sizes": sizes.tolist(),
                "names": [shortened(findings.cluster_name(k), 100) for k in range(len(summary.sizes))],
                "least": 1 / n_allowed,
                "highest": summary.highest_entropy or 1.0,
                "colours": colours,
                "groups": groups
                and {
                    "of": groups.of.tolist(),
                    "names": groups.names,
                    "colours": both_colours(len(groups.clusters)),
                },
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
