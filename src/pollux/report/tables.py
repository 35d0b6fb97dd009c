"""Confidence, known classes, training and settings, as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from pollux.metrics import adjusted_rand_index, hungarian_accuracy, normalised_mutual_information, purity
from pollux.report.drawing import curve, distribution, thinned
from pollux.report.findings import Findings
from pollux.report.markup import count, escaped, isolated, number, percent, plain
from pollux.report.pictures import SHOWN, Gallery
from pollux.report.sections import chip, picture, row_name
from pollux.report.summary import DOUBT, Summary, histograms, known_classes

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


def scores(findings: Findings, summary: Summary) -> list[tuple[str, str, float, str]]:
    """Short name, name, value and meaning of each score against known classes; none without classes."""
    if findings.classes is None:
        return []
    classes = np.asarray(findings.classes).astype(str)
    return [(short, name, measure(classes, summary.labels), told) for short, name, measure, told in SCORES]


def confidence_section(findings: Findings, summary: Summary, gallery: Gallery | None) -> str:
    """How sure the model is, and where it is least so."""
    sure, sure_each = histograms(summary.confidence, 1.0, summary)
    unsure, unsure_each = histograms(summary.entropy, summary.highest_entropy, summary)
    top = number(summary.highest_entropy if summary.limit > 1 else 0.0)
    half = number(summary.highest_entropy / 2 if summary.limit > 1 else 0.0)
    doubtful = int((summary.confidence < DOUBT).sum())
    drawings = distribution("Probability of the own cluster", sure, sure_each, ("0", "50%", "100%"))
    drawings += distribution("Entropy, in nats", unsure, unsure_each, ("0", half, top))
    return f"""<section id="confidence" aria-labelledby="confidence-title">
<div class="head"><h2 id="confidence-title">Confidence</h2><p>{count(doubtful)} of {count(len(summary.labels))} samples
 ({percent(doubtful / len(summary.labels), 1)}) have less than {percent(DOUBT)} for their own cluster. Bars are shares
 of samples. <span class="controls">A picked cluster is drawn over them.</span></p></div>
<div class="pair"><div>{drawings}</div>{_doubtful(findings, summary, gallery)}</div></section>"""


def _doubtful(findings: Findings, summary: Summary, gallery: Gallery | None) -> str:
    """The samples between two clusters: of all, and of each cluster once it is picked."""
    if summary.limit == 1:
        return '<p class="aside">With a single cluster there is nothing to doubt.</p>'
    every = summary.most_doubtful(np.arange(len(summary.labels)), SHOWN)
    each = [summary.most_doubtful(summary.members(cluster), SHOWN) for cluster in summary.clusters]
    rows = summary.most_doubtful(np.unique(np.concatenate([every, *each])), len(summary.labels))
    overall = set(every.tolist())
    lines = []
    for row in rows.tolist():
        name = isolated(row_name(findings, row), 60)
        if gallery is not None:
            name = picture(gallery, gallery.tile[row], "") + name
        known = "" if findings.classes is None else f"<td>{isolated(findings.classes[row], 40)}</td>"
        first, second = float(summary.confidence[row]), float(summary.following_probability[row])
        hidden = "" if row in overall else ' class="more"'
        lines.append(
            f'<tr{hidden} data-cluster="{summary.labels[row]}"><th scope="row">{name}</th>{known}'
            f"<td>{_likely(int(summary.labels[row]), first)}</td>"
            f"<td>{_likely(int(summary.following[row]), second)}</td></tr>"
        )
    known_head = "" if findings.classes is None else '<th scope="col">Class</th>'
    return f"""<div><h3 id="doubtful-title">Most doubtful samples</h3>
<div class="scroll" tabindex="0" role="region" aria-labelledby="doubtful-title"><table class="doubtful"><thead><tr>
<th scope="col">Sample</th>{known_head}<th scope="col">Cluster</th><th scope="col">Next</th></tr></thead>
<tbody>{"".join(lines)}</tbody></table></div></div>"""


def _likely(cluster: int, probability: float) -> str:
    return f'{chip(cluster)}{cluster} <span class="p">{percent(probability, 1)}</span>'


def classes_section(findings: Findings, summary: Summary, found: Sequence[tuple[str, str, float, str]]) -> str:
    """Scores against the known classes, and how they meet the clusters."""
    if findings.classes is None:
        return ""
    told = "".join(
        f"<div><dt>{name}</dt><dd><b>{escaped(f'{score:.3f}').replace('-', '−')}</b> <span>{meaning}</span></dd></div>"
        for _, name, score, meaning in found
    )
    heads = "".join(
        f'<th scope="col" data-cluster="{cluster}">{chip(cluster)}{cluster}</th>' for cluster in summary.clusters
    )
    return f"""<section id="classes" aria-labelledby="classes-title">
<div class="head"><h2 id="classes-title">Known classes</h2><p>The classes were not used for training. The table counts
 samples; the shade of a cell is its share of the class.</p></div>
<dl class="scores">{told}</dl>
<div class="scroll tall" tabindex="0" role="region" aria-label="Classes by clusters"><table class="confusion">
<caption class="unseen">Samples of each class, a row, in each cluster, a column</caption>
<thead><tr><th scope="col">Class</th>{heads}<th scope="col">All</th></tr></thead>
<tbody>{_confusion(findings, summary)}</tbody></table></div></section>"""


def _confusion(findings: Findings, summary: Summary) -> str:
    """A row for each class, in the order of the clusters that hold most of them: what agrees lies on a diagonal."""
    names, codes = known_classes(findings)
    width = len(summary.sizes)
    table = np.bincount(codes * width + summary.labels, minlength=len(names) * width).reshape(-1, width)
    table = table[:, summary.clusters]
    order = np.lexsort((-table.max(1), table.argmax(1)))
    rows = []
    for code in order.tolist():
        total = int(table[code].sum())
        cells = [
            f'<td data-cluster="{cluster}" style="--s:{amount / total:.3g}">{count(amount)}</td>'
            if amount
            else f'<td data-cluster="{cluster}" class="none">·</td>'
            for cluster, amount in zip(summary.clusters, table[code].tolist(), strict=True)
        ]
        rows.append(
            f'<tr><th scope="row">{isolated(names[code], 60)}</th>{"".join(cells)}'
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
