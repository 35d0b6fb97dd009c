"""A clustering as one HTML file that needs nothing else: ``write_page`` and ``render_page``."""

from __future__ import annotations

import os
from pathlib import Path

from pollux.io.atomic import write_text
from pollux.report.content import PageContent
from pollux.report.findings import Findings
from pollux.report.markup import environment

__all__ = ["render_page", "write_page"]

SECTIONS = {
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
    return environment().get_template("page.html").render(page=PageContent.of(findings), sections=SECTIONS)
