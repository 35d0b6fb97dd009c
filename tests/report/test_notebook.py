"""A clustering in a notebook: it shows its clusters, and its page in a frame of its own."""

from __future__ import annotations

import sys
import webbrowser
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sklearn

from pollux import GeminiClustering
from pollux.report import render_page, show
from report_pages import HOSTILE, make_findings, parse


@pytest.fixture(scope="module")
def clustering() -> GeminiClustering:
    X = np.repeat(np.eye(2, 3) * 20, [30, 10], axis=0) + np.random.default_rng(0).normal(size=(40, 3))
    return GeminiClustering(2, model="linear", max_epochs=20, n_init=1, random_state=0).fit(X)


def test_a_fitted_clustering_shows_its_clusters_and_its_parameters(clustering: GeminiClustering) -> None:
    shown = clustering._repr_html_()
    for text in (shown, clustering._repr_mimebundle_()["text/html"]):
        assert "40 samples in 2 clusters" in text
        assert "75%" in text
        # What scikit-learn shows comes below.
        assert "GeminiClustering" in text
    assert repr(clustering) == clustering._repr_mimebundle_()["text/plain"]
    assert "samples in" not in GeminiClustering(2)._repr_html_()
    with sklearn.config_context(display="text"):
        assert not hasattr(clustering, "_repr_html_")
        assert set(clustering._repr_mimebundle_()) == {"text/plain"}


def test_names_stay_text(clustering: GeminiClustering) -> None:
    named = GeminiClustering(2)
    named.fitted_ = replace(clustering.fitted_, cluster_names=(HOSTILE, "small"))
    shown = named._repr_html_()
    assert "<script>alert" not in shown
    assert "small" in shown


def test_the_page_is_shown_in_a_frame_of_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    display = ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]
    display.display = shown.append  # type: ignore[attr-defined]
    module: Any = ModuleType("IPython")
    module.get_ipython = lambda: SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    findings = make_findings()
    assert show(findings) is None
    frame = parse(shown[0]).one("iframe")
    assert frame.attributes["srcdoc"] == render_page(findings)
    assert "allow-same-origin" not in (frame.attributes["sandbox"] or "")


def test_elsewhere_the_browser_is_given_a_file(
    clustering: GeminiClustering, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened: list[str] = []
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = show(clustering, np.random.default_rng(0).normal(size=(20, 3)), title="Shown")
    assert path is not None
    assert opened == [path.as_uri()]
    assert "<title>Shown</title>" in path.read_text(encoding="utf-8")
