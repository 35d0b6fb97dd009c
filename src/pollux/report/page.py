"""A clustering as one HTML file that needs nothing else: ``write_page`` and ``render_page``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from pollux.io.atomic import write_text
from pollux.report import encode, pictures, sections, tables
from pollux.report.findings import Findings
from pollux.report.markup import count, counted, escaped, isolated, script_data, shortened
from pollux.report.profiles import contrasts
from pollux.report.summary import Summary, both_colours, known_classes, summarise

__all__ = ["render_page", "write_page"]

PARTS = {
    "map": "Map",
    "clusters": "Clusters",
    "profiles": "Differences",
    "confidence": "Confidence",
    "classes": "Classes",
    "training": "Training",
    "settings": "How it was made",
}


def write_page(findings: Findings, path: str | os.PathLike[str]) -> None:
    """Write what was found as one HTML file.

    Parameters
    ----------
    findings : Findings
        What the page tells.
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
        What the page tells.

    Returns
    -------
    str
        An HTML document, to be written as UTF-8.
    """
    summary = summarise(findings)
    classes = known_classes(findings)
    names = classes.names if classes else []
    found = None
    if findings.features is not None and findings.features.shape[1]:
        found = contrasts(findings.features, summary.labels, len(summary.sizes))
    rows = encode.chosen(findings, summary)
    gallery, thumbs = None, None
    if findings.images is not None:
        gallery = pictures.gallery(findings.images, summary)
        thumbs = pictures.thumbnails(findings.images[rows[: pictures.MOST_THUMBNAILS]])
    scores = tables.scores(classes, summary)
    training, history = tables.training_section(findings)
    parts = {
        "map": sections.map_section(findings, summary, len(rows), thumbs.tiles if thumbs else 0, classes),
        "clusters": sections.clusters_section(findings, summary, found, gallery),
        "profiles": sections.profiles_section(findings, summary, found, gallery),
        "confidence": tables.confidence_section(findings, summary, gallery, classes),
        "classes": tables.classes_section(classes, summary, scores),
        "training": training,
        "settings": tables.settings_section(findings),
    }
    cluster_colours, class_colours = both_colours(len(summary.sizes)), both_colours(len(names))
    data: dict[str, Any] = {
        "samples": encode.samples(findings, summary, rows, found, classes),
        "sizes": summary.sizes.tolist(),
        "least": 1 / summary.limit,
        "highest": summary.highest_entropy,
        "colours": cluster_colours,
        "classes": [{"names": [shortened(name, 60) for name in names], "colours": class_colours}] if names else [],
        "history": history,
        "thumbs": thumbs and [thumbs.tiles, thumbs.columns, thumbs.rows, thumbs.width, thumbs.height],
    }
    return Template(_asset("page.html")).substitute(
        title=escaped(findings.title),
        heading=isolated(findings.title),
        lead=_lead(summary),
        style=_asset("page.css") + _colour_style(cluster_colours) + _picture_style(gallery, thumbs),
        figures=sections.key_figures(findings, summary, scores, classes),
        links="".join(f'<li><a href="#{name}">{PARTS[name]}</a></li>' for name, part in parts.items() if part),
        parts="\n".join(part for part in parts.values() if part),
        made_by=tables.made_by(),
        data=script_data(data),
        script=_asset("dots.js") + _asset("map.js") + _asset("page.js"),
    )


def _asset(name: str) -> str:
    return (files("pollux.report") / "assets" / name).read_text(encoding="utf-8")


def _lead(summary: Summary) -> str:
    used, allowed = len(summary.clusters), summary.limit
    samples, clusters = counted(len(summary.labels), "sample"), counted(used, "cluster")
    return f"{samples} in {clusters}" + (f", of at most {count(allowed)}." if allowed > used else ".")


def _colour_style(pair: dict[str, list[str]]) -> str:
    def variables(colours: Sequence[str]) -> str:
        return ":root{" + "".join(f"--k{cluster}:{colour};" for cluster, colour in enumerate(colours)) + "}"

    return f"{variables(pair['light'])}@media screen and (prefers-color-scheme:dark){{{variables(pair['dark'])}}}"


def _picture_style(gallery: pictures.Gallery | None, thumbs: pictures.Sheet | None) -> str:
    if gallery is None or thumbs is None:
        return ""
    size = (
        "background-size:{0.columns}00% {0.rows}00%;aspect-ratio:{0.width}/{0.height};background-image:url({0.address})"
    )
    sharp = "image-rendering:pixelated;" if gallery.sharp else ""
    return f".thumb{{{sharp}{size.format(gallery.sheet)}}}.tip .thumb{{{sharp}{size.format(thumbs)}}}"
