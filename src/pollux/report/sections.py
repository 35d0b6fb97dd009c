"""The map, the clusters and what sets them apart, as HTML."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pollux.report.drawing import sparkline, two_bars, two_histograms
from pollux.report.findings import Findings
from pollux.report.markup import count, counted, escaped, isolated, number, percent, signed
from pollux.report.pictures import Gallery
from pollux.report.profiles import Contrasts, histogram, in_words
from pollux.report.summary import CERTAIN, DOUBT, Classes, Summary, histograms

FEATURES_SHOWN = 8


def key_figures(
    findings: Findings, summary: Summary, scores: Sequence[tuple[str, str, float, str]], classes: Classes | None
) -> str:
    """The numbers a reader looks for first."""
    figures = [
        ("Samples", count(len(summary.labels)), ""),
        ("Clusters in use", count(len(summary.clusters)), f"of at most {count(summary.limit)}"),
        ("Mean confidence", percent(float(summary.confidence.mean()), 1), "for the own cluster"),
        ("Mean entropy", number(float(summary.entropy.mean())), f"nats; at most {_highest(summary)}"),
    ]
    objective = [value for value in findings.history.get("objective", ()) if np.isfinite(value)]
    if objective:
        epochs = counted(len(findings.history["objective"]), "epoch")
        figures.append(("Objective", number(float(objective[-1])), f"after {epochs}"))
    labelled = "" if classes is None or classes.complete else f"of {count(classes.known.sum())} samples"
    figures += [(name, f"{score:.3f}".replace("-", "−"), labelled) for name, _, score, _ in scores[:3]]
    items = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{value}" + (f" <small>{note}</small>" if note else "") + "</dd></div>"
        for name, value, note in figures
    )
    told = "Confidence is how sure the model is of its own clusters; it does not tell whether they are right."
    if classes is not None and not classes.complete:
        told += f" {how_many_known(classes)}."
    return f'<dl class="figures">{items}</dl><p class="aside">{told}</p>'


def how_many_known(classes: Classes) -> str:
    """'120 of 150 samples have a known class'."""
    known = int(classes.known.sum())
    return f"{count(known)} of {counted(len(classes.codes), 'sample')} {'has' if known == 1 else 'have'} a known class"


def _highest(summary: Summary) -> str:
    return number(float(np.log(summary.limit)))


def chip(cluster: int) -> str:
    """A cluster's colour."""
    return f'<i class="chip" style="--c:var(--k{cluster})" aria-hidden="true"></i>'


def pick_button(cluster: int, after: str = "") -> str:
    """A button that picks a cluster, and lets go of it when pressed again."""
    return (
        f'<button type="button" class="pick" data-pick="{cluster}" aria-pressed="false">{chip(cluster)}'
        f'<span class="word">Cluster </span><span class="number">{cluster}</span>{after}</button>'
    )


def map_section(findings: Findings, summary: Summary, drawn: int, thumbnails: int, classes: Classes | None) -> str:
    """Where the script draws the samples, with its legend and its text alternative."""
    modes = [("cluster", "Cluster"), ("confidence", "Confidence"), ("entropy", "Entropy")]
    if classes is not None:
        modes.append(("class", "Class"))
    options = "".join(
        f'<label><input type="radio" name="colour" value="{mode}"{" checked" if mode == "cluster" else ""}>'
        f"<span>{name}</span></label>"
        for mode, name in modes
    )
    total = len(summary.labels)
    across, up = (escaped(axis) for axis in findings.axes)
    told = ["Each dot is a sample. ", f"Across: {isolated(findings.axes[0])}. Up: {isolated(findings.axes[1])}."]
    if drawn < total:
        told.append(f" Of {count(total)} samples, {count(drawn)} are drawn, chosen at random within each cluster.")
    if 0 < thumbnails < drawn:
        told.append(f" Pictures are at hand for {count(thumbnails)} of them.")
    buttons = "".join(
        f'<button type="button" data-zoom="{way}" aria-label="{name}" title="{name}">{sign}</button>'
        for way, name, sign in (("in", "Zoom in", "+"), ("out", "Zoom out", "−"), ("reset", "Show everything", "⤢"))
    )
    return f"""<section id="map" aria-labelledby="map-title">
<div class="head"><h2 id="map-title">Map</h2><p id="map-told">{"".join(told)}</p></div>
<noscript><p class="aside">The map needs JavaScript. Everything else on this page can be read without it.</p></noscript>
<div class="needs-script">
<fieldset class="modes controls"><legend>Colour by</legend>{options}</fieldset>
<div class="stage"><div class="chart">
<canvas tabindex="0" role="img" data-across="{across}" data-up="{up}"
 aria-label="Map of {counted(drawn, "sample")} in {counted(len(summary.clusters), "cluster")}"
 aria-describedby="map-told map-keys"></canvas>
<div class="zoom controls">{buttons}</div><div class="tip" id="tip" hidden></div></div>
{_legend(summary, classes)}</div>
<p id="map-beyond" class="hint" hidden><span></span>
 <button type="button" class="controls" data-zoom="reset">Show everything</button></p>
<p id="map-keys" class="hint controls">Drag to move, turn the wheel or pinch to zoom, double-click to see everything.
 Click a dot to pick its cluster. With the keyboard: arrows, <kbd>+</kbd>, <kbd>−</kbd>, <kbd>0</kbd> for everything;
 <kbd>Esc</kbd> lets go.</p></div></section>"""


def _legend(summary: Summary, classes: Classes | None) -> str:
    picks = "".join(
        f"<li>{pick_button(cluster, f'<small>{count(summary.sizes[cluster])}</small>')}</li>"
        for cluster in summary.clusters
    )
    parts = [
        f'<div data-legend="cluster"><h3>Clusters</h3><ul class="picks">{picks}</ul></div>',
        '<div data-legend="confidence" hidden><h3>Confidence</h3><div class="ramp"></div>'
        '<p class="ends"><span>doubtful</span><span>certain</span></p>'
        f"<p>From {percent(1 / summary.limit)}, a guess, to 100%.</p></div>",
        '<div data-legend="entropy" hidden><h3>Entropy</h3><div class="ramp"></div>'
        '<p class="ends"><span>high</span><span>low</span></p>'
        f"<p>From {_highest(summary)} nats, a guess, to 0.</p></div>",
    ]
    if classes is not None:
        every = [isolated(name, 40) for name in classes.names] + ["not known"] * (not classes.complete)
        names = "".join(
            f'<li><i class="chip" data-class="{code}" aria-hidden="true"></i>{name}</li>'
            for code, name in enumerate(every)
        )
        parts.append(f'<div data-legend="class" hidden><h3>Classes</h3><ul class="names">{names}</ul></div>')
    return f'<div class="legend" role="group" aria-label="Legend">{"".join(parts)}</div>'


def clusters_section(findings: Findings, summary: Summary, found: Contrasts | None, gallery: Gallery | None) -> str:
    """A row for each cluster: size, confidence, doubt, and what sets it apart."""
    _, spreads = histograms(summary.confidence, 1.0, summary)
    compared = found is not None and len(summary.clusters) > 1
    largest = int(summary.sizes.max())
    rows = []
    for cluster in summary.clusters:
        members = summary.members(cluster)
        share = len(members) / len(summary.labels)
        confidence = summary.confidence[members]
        doubtful = float((confidence < DOUBT).mean())
        cells = [
            f'<td class="size" role="cell"><b>{count(len(members))}</b> <span>{percent(share, 1)}</span>'
            f'<i class="bar" aria-hidden="true"><i style="width:{100 * len(members) / largest:.1f}%"></i></i></td>',
            f'<td class="sure" role="cell"><span>{percent(float(confidence.mean()), 1)}</span>'
            f"{sparkline(spreads[cluster])}</td>",
            f'<td class="doubt" role="cell">{percent(doubtful, 1)}</td>',
        ]
        if gallery is not None:
            cells.append(f'<td class="mean" role="cell">{picture(gallery, gallery.mean[cluster], "Mean image")}</td>')
        if compared and found is not None:
            words = in_words(found, cluster, findings.feature_names, findings.shares)
            cells.append(f'<td class="words" role="cell"><bdi>{escaped(words)}</bdi></td>')
        rows.append(
            f'<tr role="row" data-cluster="{cluster}" style="--c:var(--k{cluster})">'
            f'<th scope="row" role="rowheader">{pick_button(cluster)}</th>{"".join(cells)}</tr>'
        )
    names = ["Cluster", "Samples", "Mean confidence", "Doubtful"]
    names += ["Mean"] * (gallery is not None) + ["What sets it apart"] * compared
    heads = "".join(f'<th scope="col" role="columnheader">{name}</th>' for name in names)
    return f"""<section id="clusters" aria-labelledby="clusters-title">
<div class="head"><h2 id="clusters-title">Clusters</h2><p>Numbered by size. {_emptied(summary)}
 A sample is doubtful where its cluster has a probability below {percent(DOUBT)}.</p></div>
<table class="clusters" role="table"><thead role="rowgroup"><tr role="row">{heads}</tr></thead>
<tbody role="rowgroup">{"".join(rows)}</tbody></table></section>"""


def _emptied(summary: Summary) -> str:
    empty = summary.limit - len(summary.clusters)
    if not empty:
        return "All the clusters that were allowed are in use."
    return f"{counted(empty, 'cluster')} of the {count(summary.limit)} allowed emptied while the model was trained."


def picture(gallery: Gallery, tile: int, name: str) -> str:
    """One tile of the gallery."""
    return f'<i class="thumb" role="img" aria-label="{escaped(name)}" style="{gallery.sheet.style(tile)}"></i>'


def profiles_section(findings: Findings, summary: Summary, found: Contrasts | None, gallery: Gallery | None) -> str:
    """For each cluster its pictures and the features in which it differs most."""
    alone = len(summary.clusters) == 1
    if (alone or found is None) and gallery is None:
        return ""
    figures = {} if found is None or alone else _feature_figures(findings, summary, found)
    articles = []
    for cluster in summary.clusters:
        body = "" if gallery is None else _pictures(findings, summary, gallery, cluster)
        if own := figures.get(cluster):
            body += f'<ol class="features">{"".join(own)}</ol>'
        elif found is not None and not alone:
            body += '<p class="aside">No feature differs from the rest.</p>'
        articles.append(
            f'<article class="profile" data-cluster="{cluster}" style="--c:var(--k{cluster})" '
            f'aria-labelledby="profile-{cluster}"><h3 id="profile-{cluster}">{pick_button(cluster)}'
            f"<small>{counted(len(summary.members(cluster)), 'sample')}</small></h3><div>{body}</div></article>"
        )
    told = ['<span class="controls">Pick a cluster to see it alone.</span>']
    if figures:
        told = [
            "Features in order of the difference between the cluster and all other samples, in standard deviations",
            " (sd) of all samples. ",
            "Shares are given in percentage points, but ordered by sd like the others. " if findings.shares else "",
            "Colour is the cluster, grey is everyone, each on its own scale of shares. ",
            *told,
        ]
    brief = " brief" if len(summary.clusters) > 5 else ""
    return f"""<section id="profiles" aria-labelledby="profiles-title">
<div class="head"><h2 id="profiles-title">What sets each cluster apart</h2><p>{"".join(told)}</p></div>
<div class="profiles{brief}">{"".join(articles)}</div></section>"""


def _pictures(findings: Findings, summary: Summary, gallery: Gallery, cluster: int) -> str:
    def strip(name: str, rows: Sequence[int], told: str = "") -> str:
        tiles = "".join(
            picture(gallery, gallery.tile[row], f"{row_name(findings, row)}, {percent(float(summary.confidence[row]))}")
            for row in rows
        )
        return f'<figure class="strip"><figcaption>{name}</figcaption><div>{tiles or told}</div></figure>'

    tile = picture(gallery, gallery.mean[cluster], "Mean image")
    mean = f'<figure class="strip one"><figcaption>Mean</figcaption><div>{tile}</div></figure>'
    uncertain = gallery.uncertain[cluster]
    certain = bool((summary.confidence[summary.members(cluster)] >= CERTAIN).all())
    # Of a sample that is alone in its cluster there is nothing left to show.
    last = strip("Least certain", uncertain, "Every sample is certain.") if uncertain or certain else ""
    return f'<div class="pictures">{mean}{strip("Most typical", gallery.typical[cluster])}{last}</div>'


def row_name(findings: Findings, row: int) -> str:
    """A sample's name, or its number from 0."""
    return f"Sample {row}" if findings.row_names is None else str(findings.row_names[row])


def _feature_figures(findings: Findings, summary: Summary, found: Contrasts) -> dict[int, list[str]]:
    features = np.asarray(findings.features)
    ranked = {cluster: found.ranked(cluster, FEATURES_SHOWN) for cluster in summary.clusters}
    plotted = {f for own in ranked.values() for f in own if findings.feature_names[f] not in findings.shares}
    spreads = {f: histogram(features[:, f], summary.labels, len(summary.sizes)) for f in plotted}

    def figure(cluster: int, feature: int) -> str:
        inside, outside = float(found.inside[cluster, feature]), float(found.outside[cluster, feature])
        size, missing = float(found.scaled[cluster, feature]), float(found.missing[cluster, feature])
        name = isolated(findings.feature_names[feature], 60)
        title = ""
        if feature in spreads:
            spread = spreads[feature]
            drawn, mark = two_histograms(spread, cluster), f"{signed(size)} sd"
            ends = f'<p class="ends"><span>{number(spread.low)}</span><span>{number(spread.high)}</span></p>'
            values = f"<b>{number(inside)}</b> here, {number(outside)} elsewhere"
        else:
            drawn, mark = two_bars(inside, outside), f"{signed(100 * (inside - outside), 0)} points"
            title = f' title="{signed(size)} sd"'
            ends = '<p class="ends"><span>0%</span><span>100%</span></p>'
            values = f"<b>{percent(inside)}</b> here, {percent(outside)} elsewhere"
        if missing > 0:
            values += f"; missing in {percent(missing)}"
        return (
            f'<li><figure class="feature"><figcaption>{name} <span class="gap"{title}>{mark}</span></figcaption>'
            f'{drawn}{ends}<p class="values">{values}</p></figure></li>'
        )

    return {cluster: [figure(cluster, feature) for feature in own] for cluster, own in ranked.items()}
