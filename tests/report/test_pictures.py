"""Samples that are images."""

import builtins
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from coverings import in_full
from pollux.report import render_page
from pollux.report.findings import CERTAIN
from pollux.report.pictures import make_thumbnails
from report_pages import Node, make_findings, parse


def strips(tree: Node, cluster: int) -> dict[str, Node]:
    profile = tree.one("article", data_cluster=str(cluster))
    return {strip.one("figcaption").text: strip for strip in profile.every("figure", kind="strip")}


def test_certain_and_typical_samples_are_not_called_least_certain() -> None:
    findings = make_findings(n=60, images=np.zeros((60, 8, 8), np.uint8))
    p = np.tile([0.996, 0.001, 0.001, 0.001, 0.001], (60, 1))
    p[20:35] = (0.05, 0.9, 0.05, 0, 0)
    p[35:40, :3] = (0.05, 0.15, 0.8)
    p[40:44] = (0.6, 0.4, 0, 0, 0)
    p /= p.sum(1, keepdims=True)
    tree = parse(render_page(replace(findings, probabilities=p)))

    def shown(cluster: int, name: str) -> list[int]:
        labels = [thumb.attributes["aria-label"] or "" for thumb in strips(tree, cluster)[name].every("i")]
        return [int(label.split(",")[0].removeprefix("Sample ")) for label in labels]

    assert shown(0, "Near a boundary") == [40, 41, 42, 43]
    assert not set(shown(0, "Most typical")) & {40, 41, 42, 43}
    for cluster in (1, 2):
        typical, least = shown(cluster, "Most typical"), shown(cluster, "Near a boundary")
        assert not set(typical) & set(least)
        assert least
    rows = tree.one("table", kind="uncertain").one("tbody").every("tr")
    listed = [int(row.one("th").text.removeprefix("Sample ")) for row in rows]
    assert (p.max(1)[listed] < CERTAIN).all()

    p[:44] = np.eye(5)[np.arange(44) % 2]
    p[0] = (0.6, 0.4, 0, 0, 0)
    tree = parse(render_page(replace(findings, probabilities=p)))
    assert strips(tree, 1)["Near a boundary"].text.endswith("Every sample is certain.")
    assert "Every sample of cluster 1 is certain." in tree.one("table", kind="uncertain").text
    tree = parse(render_page(replace(findings, probabilities=np.eye(5)[p.argmax(1)])))
    assert "Every sample is certain" in tree.one(id="confidence").text
    assert not list(tree.every("table", kind="uncertain"))


@in_full
def test_ten_thousand_images_take_less_than_three_megabytes() -> None:
    generator = np.random.default_rng(0)
    digits = np.kron(load_digits().images, np.ones((1, 4, 4)))[:, 2:30, 2:30] * 15
    images = digits[generator.integers(0, len(digits), 10_000)].astype(np.uint8)
    findings = make_findings(n=10_000, d=20, K=12, used=10, images=images)
    assert len(render_page(findings).encode()) < 3_000_000


def test_fewer_thumbnails_are_kept_of_what_cannot_be_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pollux.report.pictures.THUMBNAIL_BYTES", 100_000)
    noise = np.random.default_rng(0).integers(0, 256, (1_000, 28, 28, 3)).astype(np.uint8)
    sheet = make_thumbnails(noise)
    assert len(sheet.address) < 4 / 3 * 100_000 + 100
    assert 100 < sheet.tiles < 1_000


def test_images_need_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def without_pillow(name: str, *more: Any, **others: Any) -> Any:
        if name.split(".")[0] == "PIL":
            raise ImportError(name)
        return genuine(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    render_page(make_findings())
    with pytest.raises(ImportError, match=r"pip install 'pollux\[files\]'"):
        render_page(make_findings(images=np.zeros((200, 8, 8), np.uint8)))
