"""Confidence, known classes, training and settings, as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from numpy.typing import NDArray

from pollux.metrics import adjusted_rand_index, hungarian_accuracy, normalised_mutual_information, purity
from pollux.report.drawing import curve, distribution, thinned
from pollux.report.findings import Findings
from pollux.report.markup import count, escaped, isolated, number, percent, plain
from pollux.report.pictures import SHOWN, Gallery
from pollux.report.sections import chip, how_many_known, picture, row_name
from pollux.report.summary import CERTAIN, DOUBT, Classes, Summary, histograms

SCORES = (
    (
        "ARI",
        "Adjusted Rand index",
        adjusted_rand_index,
        "Pairs of samples on which clusters and classes agree, corrected for chance: 1 is perfect, 0 is chance.",
    ),
    (
        "NMI",
        "Normalised mutual information",
        normalised_mutual_information,
        "What clusters and classes tell of each other: 1 is the same partition, 0 is nothing.",
    ),
    (
        "Accuracy",
        "Accuracy",
        hungarian_accuracy,
        "Share of samples that are right when each class is matched with at most one cluster, in the best way.",
    ),
    (
        "Purity",
        "Purity",
        purity,
        "Share of samples in the commonest class of their cluster. More clusters never lower it.",
    ),
)


def scores(classes: Classes | None, summary: Summary) -> list[tuple[str, str, float, str]]:
    """Short name, name, value and meaning of each score, of the samples whose class is known; none without classes."""
    if classes is None:
        return []
    codes, labels = classes.codes[classes.known], summary.labels[classes.known]
    return [(short, name, measure(codes, labels), told) for short, name, measure, told in SCORES]


def confidence_section(findings: Findings, summary: Summary, gallery: Gallery | None, classes: Classes | None) -> str:
    """How sure the model is, and where it is least so."""
    sure, sure_each = histograms(summary.confidence, 1.0, summary)
    unsure, unsure_each = histograms(summary.entropy, summary.highest_entropy, summary)
    top = number(summary.highest_entropy if summary.limit > 1 else 0.0)
    half = number(summary.highest_entropy / 2 if summary.limit > 1 else 0.0)
    doubtful = int((summary.confidence < DOUBT).sum())
    drawings = distribution("Probability of the own cluster", sure, sure_each, ("0", "50%", "100%"))
    drawings += distribution("Entropy, in nats", unsure, unsure_each, ("0", half, top))
    return f"""<section id="confidence" aria-labelledby="confidence-title">
<div class="head"><h2 id="confidence-title">Confidence</h2><p>How sure the model is of its own
 clusters; it does not tell whether they are right. {count(doubtful)} of {count(len(summary.labels))} samples
 ({percent(doubtful / len(summary.labels), 1)}) have less than {percent(DOUBT)} for their own cluster. Bars are shares
 of samples. <span class="controls">A picked cluster is drawn over them.</span></p></div>
<div class="pair"><div>{drawings}</div>{_least_certain(findings, summary, gallery, classes)}</div></section>"""


def _least_certain(findings: Findings, summary: Summary, gallery: Gallery | None, classes: Classes | None) -> str:
    """The samples between two clusters: of all, and of each cluster once it is picked."""
    if summary.limit == 1:
        return '<p class="aside">With a single cluster there is nothing to doubt.</p>'
    each = _uncertain(summary, gallery)
    candidates = np.sort(np.concatenate([*each.values(), np.zeros(0, dtype=np.intp)]).astype(np.intp))
    if not len(candidates):
        return f"""<div><h3>Least certain samples</h3><p class="aside">Every sample is certain: none has less than
 {percent(CERTAIN)} for its own cluster.</p></div>"""
    overall = set(summary.least_certain(candidates, SHOWN).tolist())
    lines = []
    for row in summary.least_certain(candidates, len(candidates)).tolist():
        name = isolated(row_name(findings, row), 60)
        if gallery is not None:
            name = picture(gallery, gallery.tile[row], "") + name
        first, second = float(summary.confidence[row]), float(summary.following_probability[row])
        hidden = "" if row in overall else ' class="more"'
        lines.append(
            f'<tr{hidden} data-cluster="{summary.labels[row]}"><th scope="row">{name}</th>{_class_cell(classes, row)}'
            f"<td>{_likely(int(summary.labels[row]), first)}</td>"
            f"<td>{_likely(int(summary.following[row]), second)}</td></tr>"
        )
    width = 3 if classes is None else 4
    lines += [
        f'<tr class="more" data-cluster="{cluster}"><td colspan="{width}">Every sample of cluster {cluster} is certain.'
        "</td></tr>"
        for cluster, rows in each.items()
        if not len(rows)
    ]
    known_head = "" if classes is None else '<th scope="col">Class</th>'
    return f"""<div><h3 id="uncertain-title">Least certain samples</h3>
<div class="scroll" tabindex="0" role="region" aria-labelledby="uncertain-title"><table class="uncertain"><thead><tr>
<th scope="col">Sample</th>{known_head}<th scope="col">Cluster</th><th scope="col">Next</th></tr></thead>
<tbody>{"".join(lines)}</tbody></table></div></div>"""


def _uncertain(summary: Summary, gallery: Gallery | None) -> dict[int, NDArray[np.intp]]:
    """The least certain samples of each cluster: of pictures those that are not shown as typical, if there are any."""
    if gallery is None:
        return {cluster: summary.least_certain(summary.members(cluster), SHOWN) for cluster in summary.clusters}
    return {
        cluster: summary.least_certain(np.array(own or gallery.typical[cluster]), SHOWN)
        for cluster, own in gallery.uncertain.items()
    }


def _class_cell(classes: Classes | None, row: int) -> str:
    if classes is None:
        return ""
    code = int(classes.codes[row])
    return f"<td>{isolated(classes.names[code], 40)}</td>" if code < len(classes.names) else "<td>–</td>"


def _likely(cluster: int, probability: float) -> str:
    return f'{chip(cluster)}{cluster} <span class="p">{percent(probability, 1)}</span>'


def classes_section(classes: Classes | None, summary: Summary, found: Sequence[tuple[str, str, float, str]]) -> str:
    """Scores against the known classes, and how they meet the clusters."""
    if classes is None:
        return ""
    told = "".join(
        f"<div><dt>{name}</dt><dd><b>{escaped(f'{score:.3f}').replace('-', '−')}</b> <span>{meaning}</span></dd></div>"
        for _, name, score, meaning in found
    )
    heads = "".join(
        f'<th scope="col" data-cluster="{cluster}">{chip(cluster)}{cluster}</th>' for cluster in summary.clusters
    )
    part = "" if classes.complete else f" {how_many_known(classes)}; the scores are of these."
    return f"""<section id="classes" aria-labelledby="classes-title">
<div class="head"><h2 id="classes-title">Known classes</h2><p>The classes were not used for training.{part} The table
 counts samples; the shade of a cell is its share of the class.</p></div>
<dl class="scores">{told}</dl>
<div class="scroll tall" tabindex="0" role="region" aria-label="Classes by clusters"><table class="confusion">
<caption class="unseen">Samples of each class, a row, in each cluster, a column</caption>
<thead><tr><th scope="col">Class</th>{heads}<th scope="col">All</th></tr></thead>
<tbody>{_confusion(classes, summary)}</tbody></table></div></section>"""


def _confusion(classes: Classes, summary: Summary) -> str:
    """A row for each class, in the order of the clusters that hold most of them: what agrees lies on a diagonal.

    The last row counts the samples whose class is not known.
    """
    width, height = len(summary.sizes), len(classes.names) + (not classes.complete)
    table = np.bincount(classes.codes * width + summary.labels, minlength=height * width).reshape(-1, width)
    table = table[:, summary.clusters]
    order = np.lexsort((-table.max(1), table.argmax(1), np.arange(height) == len(classes.names)))
    rows = []
    for code in order.tolist():
        total, is_known = int(table[code].sum()), code < len(classes.names)
        cells = [
            f'<td data-cluster="{cluster}" style="--s:{amount / total if is_known else 0:.3g}">{count(amount)}</td>'
            if amount
            else f'<td data-cluster="{cluster}" class="none">·</td>'
            for cluster, amount in zip(summary.clusters, table[code].tolist(), strict=True)
        ]
        name = isolated(classes.names[code], 60) if is_known else "<bdi>not known</bdi>"
        rows.append(
            f'<tr class="{"known" if is_known else "unknown"}"><th scope="row">{name}</th>{"".join(cells)}'
            f'<td class="all">{count(total)}</td></tr>'
        )
    return "".join(rows)


def training_section(findings: Findings) -> tuple[str, dict[str, list[tuple[int, float]]]]:
    """Curves of the training, and their values for the script."""
    kept = thinned(findings.history)
    if not kept:
        return "", {}
    last = max(len(findings.history[name]) for name in kept)
    drawings = "".join(curve(name, pairs, last) for name, pairs in kept.items())
    written = {plain(name): [(epoch, float(f"{value:.6g}")) for epoch, value in pairs] for name, pairs in kept.items()}
    section = f"""<section id="training" aria-labelledby="training-title">
<div class="head"><h2 id="training-title">Training</h2><p>One value for each epoch.
 <span class="controls">Point at a curve to read it.</span></p></div>
<div class="curves">{drawings}</div></section>"""
    return section, written


def settings_section(findings: Findings) -> str:
    """How to do it again, and what a reader must know."""
    parts = []
    if findings.notes:
        notes = "".join(f"<li>{isolated(note)}</li>" for note in findings.notes)
        parts.append(f'<h3>Notes</h3><ul class="notes">{notes}</ul>')
    if findings.settings:
        rows = "".join(
            f'<tr><th scope="row">{isolated(name)}</th><td>{isolated(value)}</td></tr>'
            for name, value in findings.settings.items()
        )
        parts.append(f'<h3>Settings</h3><table class="settings"><tbody>{rows}</tbody></table>')
    if findings.command:
        parts.append(
            '<h3>To repeat it</h3><div class="command"><pre tabindex="0"><code id="command">'
            f'{escaped(findings.command)}</code></pre><button type="button" class="controls needs-script" '
            'data-copy="command">Copy</button></div>'
        )
    if not parts:
        return ""
    return f"""<section id="settings" aria-labelledby="settings-title">
<div class="head"><h2 id="settings-title">How it was made</h2></div>{"".join(parts)}</section>"""


def made_by() -> str:
    """'Written by Pollux 0.1.0'; without a number where the package was not installed."""
    try:
        return f"Written by Pollux {escaped(version('pollux'))}"
    except PackageNotFoundError:
        return "Written by Pollux"
