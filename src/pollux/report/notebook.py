"""A clustering in a notebook: its HTML summary, and its page, ``show``."""

from __future__ import annotations

import html
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pollux.errors import counted
from pollux.report.canvas import both_colours
from pollux.report.description import describe
from pollux.report.findings import Findings
from pollux.report.markup import integer, render
from pollux.report.page import render_page
from pollux.trees.explanation import named_clusters
from pollux.trees.words import percent

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from pollux.clustering import GeminiClustering

_MOST_SHOWN = 30


def show(
    clustering: GeminiClustering | Pipeline | Findings, X: Any = None, *, height: int = 800, **options: Any
) -> Path | None:
    """Show the page of a clustering: in the notebook that this runs in, or else in a browser.

    Parameters
    ----------
    clustering : GeminiClustering, Pipeline or Findings
        A fitted clustering, or the result of :func:`describe`.
    X : whatever ``fit`` takes
        The samples, unless the clustering is described already.
    height : int
        Height of the page in a notebook, in pixels.
    **options
        Further arguments of :func:`describe`, such as ``title``.

    Returns
    -------
    Path or None
        The file that was opened in the browser; None in a notebook.
    """
    findings = clustering if isinstance(clustering, Findings) else describe(clustering, X, **options)
    page = render_page(findings)
    try:
        from IPython import get_ipython
        from IPython.display import HTML, display
    except ImportError:
        shell = None
    else:
        shell = get_ipython()
    if getattr(shell, "kernel", None) is not None:
        # Sandboxed with its own origin: page and notebook cannot read each other.
        frame = f'<iframe sandbox="allow-scripts allow-downloads" width="100%" height="{int(height)}" '
        display(HTML(f'{frame}style="border:0" srcdoc="{html.escape(page)}"></iframe>'))
        return None
    # The file is kept, because the browser may read it later.
    with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="pollux-", delete=False, encoding="utf-8") as file:
        file.write(page)
    webbrowser.open(Path(file.name).as_uri())
    return Path(file.name)


def summarise(clustering: GeminiClustering) -> str:
    """The clusters of a fit as a small HTML table: sizes, names if there are any, and confidence."""
    fitted, names = clustering.fitted_, named_clusters(clustering)
    facts = [f"{fitted.recipe} recipe" if fitted.recipe else ""]
    facts.append(f"structure: {fitted.known_structure.grade}" if fitted.known_structure is not None else "")
    facts.append(f"agreement of the restarts {fitted.stability:.2f}" if fitted.stability is not None else "")
    facts.append("training was stopped: it diverged" if fitted.diverged else "")
    rows: list[dict[str, str]] = []
    found, more = counted(fitted.n_clusters, "cluster"), 0
    # Labels of streamed samples would have to be predicted.
    if fitted.given_labels is not None:
        labels = fitted.given_labels[fitted.given_labels >= 0]
        sizes = np.bincount(labels)
        colours = both_colours(len(sizes))["light"]
        used = np.flatnonzero(sizes)
        found, more = (
            f"{counted(len(labels), 'sample')} in {counted(len(used), 'cluster')}",
            max(0, len(used) - _MOST_SHOWN),
        )
        for k in used[:_MOST_SHOWN].tolist():
            share = sizes[k] / len(labels)
            width = f"{100 * sizes[k] / sizes.max():.1f}"
            rows.append(
                {
                    "cluster": str(k),
                    "colour": colours[k],
                    "size": integer(sizes[k]),
                    "share": percent(float(share)),
                    "width": width,
                    "name": names.get(k, ""),
                }
            )
    return render("summary.html", {"found": found, "facts": list(filter(None, facts)), "rows": rows, "more": more})
