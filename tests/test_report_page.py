"""The report as a page: its numbers are right, its text is safe, and it stays small."""

import base64
import builtins
import functools
import itertools
import json
import re
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import adjusted_rand_score

from pollux.report import Findings, describe, render_page, write_page
from pollux.report.encode import chosen, first_view
from pollux.report.markup import number, percent, shortened
from pollux.report.palette import colours
from pollux.report.pictures import thumbnails
from pollux.report.profiles import contrasts, histogram, in_words
from pollux.report.summary import CERTAIN, DOUBT, ON_DARK, READABLE, contrast, on_dark, summarise

VOID = {"meta", "input", "br", "link", "img"}
HOSTILE = "</script><script>alert(1)</script> \"quoted\" 'single' & 🦋 مرحبا <b>\x00\ud800"


class Node:
    """An element: its children are elements and texts."""

    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Node | str] = []

    def every(self, tag: str = "", **wanted: str) -> Iterator["Node"]:
        for child in self.children:
            if isinstance(child, Node):
                found = {name.replace("_", "-"): value for name, value in wanted.items()}
                classes = (child.attributes.get("class") or "").split()
                kind = found.pop("kind", None)
                right = all(child.attributes.get(name) == value for name, value in found.items())
                if (not tag or child.tag == tag) and right and (kind is None or kind in classes):
                    yield child
                yield from child.every(tag, **wanted)

    def one(self, tag: str = "", **wanted: str) -> "Node":
        found = list(self.every(tag, **wanted))
        assert len(found) == 1, (tag, wanted, len(found))
        return found[0]

    @property
    def text(self) -> str:
        return " ".join("".join(c.text if isinstance(c, Node) else c for c in self.children).split())


class Tree(HTMLParser):
    """Elements that are closed in the order in which they were opened, or an error."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Node("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(page: str) -> Node:
    tree = Tree()
    tree.feed(page)
    tree.close()
    assert tree.open == [tree.root]
    return tree.root


def data_of(tree: Node) -> dict[str, Any]:
    script = tree.one("script", id="data")
    data: dict[str, Any] = json.loads("".join(str(child) for child in script.children))
    return data


def unpacked(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def some(n: int = 200, d: int = 4, K: int = 5, used: int = 3, seed: int = 0, **more: Any) -> Findings:
    """Blobs with soft assignments; the clusters are numbered by size and the surplus ones stay empty."""
    generator = np.random.default_rng(seed)
    centres = 3 * generator.normal(size=(used, d))
    X = centres[generator.integers(0, used, n)] + generator.normal(size=(n, d))
    logits = np.full((n, K), -30.0)
    logits[:, :used] = -0.5 * ((X[:, None] - centres) ** 2).sum(2)
    p = softmax(logits, axis=1)
    p = p[:, np.argsort(-np.bincount(p.argmax(1), minlength=K), kind="stable")]
    features = {"features": X, "feature_names": [f"feature {j}" for j in range(d)]} if d else {}
    points = X[:, :2] if d >= 2 else generator.normal(size=(n, 2))
    return Findings(
        **{"title": "Blobs", "probabilities": p, "points": points, "axes": ("one", "two"), **features, **more}
    )


def iris() -> Findings:
    flowers = load_iris()
    centres = flowers.data[[10, 60, 110]]
    p = softmax(-((flowers.data[:, None] - centres) ** 2).sum(2), axis=1)
    p = np.hstack([p, np.zeros((150, 2))])[:, np.argsort(-np.bincount(p.argmax(1), minlength=5), kind="stable")]
    return Findings(
        title="Iris",
        probabilities=p,
        points=flowers.data[:, 2:],
        axes=("petal length", "petal width"),
        features=flowers.data,
        feature_names=flowers.feature_names,
        classes=flowers.target_names[flowers.target],
        history={"objective": [0.1, 0.5, 0.75], "clusters": [5, 4, 3], "entropy": [1.6, 0.5, 0.2]},
        settings={"Objective": "mmd_ova"},
        notes=["A column was left out."],
        command="pollux cluster iris.csv",
    )


def test_the_numbers_are_those_of_the_data() -> None:
    findings = iris()
    tree = parse(render_page(findings))
    sizes = findings.sizes
    assert tree.one("h1").text == "Iris"
    assert tree.one(kind="lead").text == "150 samples in 3 clusters, of at most 5."
    assert "2 clusters of the 5 allowed emptied" in tree.one(id="clusters").text
    table = tree.one("table", kind="clusters")
    assert len(sizes) == 3
    for cluster, size in enumerate(sizes):
        row = table.one("tr", data_cluster=str(cluster))
        own = findings.probabilities.max(1)[findings.labels == cluster]
        assert row.one("td", kind="size").text == f"{size} {100 * size / 150:.1f}%"
        assert row.one("td", kind="sure").text == f"{100 * own.mean():.1f}%"
        assert row.one("td", kind="doubt").text == percent(float((own < DOUBT).mean()), 1)
    scores = tree.one("dl", kind="scores").text
    assert f"Adjusted Rand index{adjusted_rand_score(findings.classes, findings.labels):.3f}" in scores
    figures = tree.one("dl", kind="figures").text
    assert "Clusters in use3 of at most 5" in figures
    assert "Objective0.75 after 3 epochs" in figures


def test_the_table_of_classes_counts_every_sample() -> None:
    findings = iris()
    table = parse(render_page(findings)).one("table", kind="confusion")
    for row in table.one("tbody").every("tr"):
        name = row.one("th").text
        for cell in row.every("td"):
            cluster = cell.attributes.get("data-cluster")
            here = findings.classes == name
            if cluster is not None:
                here &= findings.labels == int(cluster)
            assert cell.text.replace("·", "0") == str(here.sum())


def test_classes_that_are_numbers_keep_their_order() -> None:
    findings = some(classes=np.array([str(j % 12) for j in range(200)]))
    legend = parse(render_page(findings)).one(data_legend="class")
    assert [item.text for item in legend.every("li")] == [str(j) for j in range(12)]


def test_standardised_differences_by_hand() -> None:
    generator = np.random.default_rng(1)
    X = generator.normal(size=(90, 70)) * 10 ** generator.uniform(-1, 6, size=70) + 1e6
    X[generator.random(X.shape) < 0.1] = np.nan
    X[0, 5] = np.inf
    X[:, 7] = 3.25
    labels = np.repeat([0, 1, 2], 30)
    found = contrasts(X, labels, 3)
    X[~np.isfinite(X)] = np.nan
    for cluster in range(3):
        inside, outside = np.nanmean(X[labels == cluster], 0), np.nanmean(X[labels != cluster], 0)
        spread = np.nanstd(X, 0)
        expected = np.divide(inside - outside, spread, out=np.zeros(70), where=spread > 0)
        np.testing.assert_allclose(found.scaled[cluster], expected, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.inside[cluster], inside)
        np.testing.assert_allclose(found.missing[cluster], np.isnan(X[labels == cluster]).mean(0))
        best = found.ranked(cluster, 8)
        assert best == np.argsort(-np.abs(expected))[:8].tolist()
        assert 7 not in found.ranked(cluster, 70)


def test_the_page_shows_these_differences() -> None:
    findings = iris()
    tree = parse(render_page(findings))
    X, labels = findings.features, findings.labels
    assert X is not None
    for cluster in range(3):
        profile = tree.one("article", data_cluster=str(cluster))
        inside, outside = X[labels == cluster].mean(0), X[labels != cluster].mean(0)
        scaled = (inside - outside) / X.std(0)
        order = np.argsort(-np.abs(scaled))
        told = [figure.text for figure in profile.every("figure", kind="feature")]
        assert len(told) == 4
        for text, j in zip(told, order, strict=True):
            assert text.startswith(findings.feature_names[j])
            assert f"{scaled[j]:+.1f} sd".replace("-", "−") in text
            assert f"{number(inside[j])} here, {number(outside[j])} elsewhere" in text


def test_what_sets_a_cluster_apart_in_words() -> None:
    labels = np.repeat([0, 1], 50)
    X = np.stack([np.repeat([0.0, 5.0], 50), np.tile([0.0, 1.0], 50), np.repeat([1.0, 0.0], 50)], axis=1)
    X[::7, 0] += 1
    found = contrasts(X, labels, 2)
    names = ["length", "noise", "colour=red"]
    assert in_words(found, 0, names, {"colour=red"}) == "mostly colour=red, length very low"
    assert in_words(found, 1, names, {"colour=red"}) == "hardly any colour=red, length very high"
    assert in_words(contrasts(X[:, 1:2], labels, 2), 0, ["noise"], ()) == "close to the average in every feature"


def test_shares_are_told_in_percent() -> None:
    findings = some()
    X = np.asarray(findings.features).copy()
    X[:, 3] = findings.labels == 0
    names = ["a", "b", "c", "colour=red"]
    page = render_page(replace(findings, features=X, feature_names=names, shares=frozenset(names[3:])))
    profile = parse(page).one("article", data_cluster="0")
    (told,) = (f.text for f in profile.every("figure", kind="feature") if "colour" in f.text)
    assert told == "colour=red +100 points0%100%100% here, 0% elsewhere"


def test_a_histogram_holds_every_known_value() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 500)
    for values in (generator.standard_cauchy(500), generator.integers(0, 7, 500).astype(float), np.full(500, 2.5)):
        spread = histogram(np.where(np.arange(500) % 9, values, np.nan), labels, 3)
        assert spread.everyone.sum() == pytest.approx(1)
        np.testing.assert_allclose(spread.clusters.sum(1), 1)


def test_the_least_certain_come_first() -> None:
    findings = some(row_names=[f"row {j}" for j in range(200)])
    ordered = np.sort(findings.probabilities, axis=1)
    expected = np.argsort(ordered[:, -1] - ordered[:, -2], kind="stable")[: min(10, (ordered[:, -1] < 0.99).sum())]
    table = parse(render_page(findings)).one("table", kind="uncertain")
    rows = [row for row in table.one("tbody").every("tr") if row.attributes.get("class") != "more"]
    assert [row.one("th").text for row in rows] == [f"row {j}" for j in expected]


def test_points_and_values_come_back_from_their_bytes() -> None:
    findings = some(n=300)
    samples = data_of(parse(render_page(findings)))["samples"]
    rows = unpacked(samples["row"], "<u4")
    assert sorted(rows) == list(range(300))
    for axis, name in enumerate("xy"):
        back = samples["low"][axis] + unpacked(samples[name], "<f4") * samples["span"][axis]
        np.testing.assert_allclose(back, findings.points[rows, axis], atol=1e-6 * samples["span"][axis])
    labels = unpacked(samples["label"], "<u2")
    np.testing.assert_array_equal(labels, findings.labels[rows])
    np.testing.assert_allclose(unpacked(samples["p"], "<u2") / 65535, findings.probabilities.max(1)[rows], atol=1e-5)
    values = unpacked(samples["values"], "<f4").reshape(300, samples["width"])
    columns = np.array(samples["columns"])[labels]
    assert findings.features is not None
    np.testing.assert_allclose(values, findings.features[rows[:, None], columns], rtol=1e-6)


def test_the_first_view_fits_the_bulk() -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(3000, 2)) * (3, 1)
    low, span = first_view(points)
    np.testing.assert_array_equal(low, points.min(0))
    np.testing.assert_allclose(low + span, points.max(0))
    points[generator.random(3000) < 0.01, 0] *= 20
    points[7] = (1e9, 0)
    low, span = first_view(points)
    assert low[1] == points[:, 1].min()
    assert 15 < span[0] < 40
    assert 0.98 < ((points >= low) & (points <= low + span)).all(1).mean() < 1
    # What is alike in nearly every sample, what is at either end, and what is far too little, has no bulk.
    for column in (np.arange(3000) == 5, np.arange(3000) % 2 * 1e6, np.repeat([0.0, 1.0], [2900, 100])):
        low, span = first_view(np.stack([column, points[:, 1]], axis=1).astype(float))
        assert (low[0], span[0]) == (column.min(), column.max())
    assert first_view(np.array([[0.0, 0.0], [1.0, 1.0], [100.0, 2.0]]))[1].tolist() == [100, 2]


def test_outliers_take_no_digits_from_the_bulk_and_do_not_move_its_numbers() -> None:
    findings = some(n=2000)
    points = findings.points.copy()
    points[:8, 0] = 1e7
    near = data_of(parse(render_page(findings)))["samples"]
    samples = data_of(parse(render_page(replace(findings, points=points))))["samples"]
    rows = unpacked(samples["row"], "<u4")
    back = samples["low"][0] + unpacked(samples["x"], "<f4") * samples["span"][0]
    bulk = rows >= 8
    np.testing.assert_allclose(back[bulk], points[rows[bulk], 0], atol=1e-5)
    assert samples["extent"][0][1] == pytest.approx((1e7 - samples["low"][0]) / samples["span"][0])

    def hearts(found: dict[str, Any]) -> np.ndarray:
        return np.array(found["low"]) + np.array(found["places"])[:, 1:] * found["span"]

    np.testing.assert_allclose(hearts(samples), hearts(near), atol=0.8)


def test_confidence_is_not_called_quality() -> None:
    tree = parse(render_page(iris()))
    assert "does not tell whether they are right" in tree.one("header").text
    assert "does not tell whether they are right" in tree.one(id="confidence").text


def partly_known() -> tuple[Findings, np.ndarray]:
    findings = iris()
    unknown = np.random.default_rng(0).random(150) < 0.3
    return replace(findings, classes=np.where(unknown, "", findings.classes)), unknown


def test_samples_of_no_known_class_are_left_out_of_the_scores() -> None:
    findings, unknown = partly_known()
    assert findings.classes is not None
    tree = parse(render_page(findings))
    labels = findings.labels
    score = adjusted_rand_score(findings.classes[~unknown], labels[~unknown])
    assert f"Adjusted Rand index{score:.3f}" in tree.one("dl", kind="scores").text
    told = f"{(~unknown).sum()} of 150 samples have a known class"
    assert told in tree.one("header").text
    assert told in tree.one(id="classes").text
    last = list(tree.one("table", kind="confusion").one("tbody").every("tr"))[-1]
    assert last.one("th").text == "not known"
    counts = [str((unknown & (labels == k)).sum()) for k in range(3)]
    assert [cell.text.replace("·", "0") for cell in last.every("td")] == [*counts, str(unknown.sum())]
    samples = data_of(tree)["samples"]
    codes = unpacked(samples["class"], "<u2")
    np.testing.assert_array_equal(codes == 3, unknown[unpacked(samples["row"], "<u4")])
    assert [item.text for item in tree.one(data_legend="class").every("li")][-1] == "not known"
    # All are known: nothing of the kind is said.
    assert "known class" not in render_page(iris())


def test_classes_of_which_none_is_known_are_none() -> None:
    findings = iris()
    assert render_page(replace(findings, classes=np.full(150, ""))) == render_page(replace(findings, classes=None))


def test_what_differs_from_sample_to_sample_is_not_a_class() -> None:
    some(n=1001, classes=np.array(["", *(str(j) for j in range(1000))]))
    with pytest.raises(ValueError, match=r"1,001 different values for 1,001 samples.*is not a class"):
        some(n=1001, classes=np.array([str(j) for j in range(1001)]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a", None, "b", float("nan")], ["a", "", "b", ""]),
        ([1.0, np.nan, 2.0, 1.0], ["1", "", "2", "1"]),
        ([1.5, np.nan, 2.0, 1.0], ["1.5", "", "2.0", "1.0"]),
        ([3, 1, 2, 1], ["3", "1", "2", "1"]),
    ],
)
def test_missing_classes_are_described_as_not_known(given: list[Any], expected: list[str]) -> None:
    class Fitted:
        probabilities_, history_ = np.eye(4), {}

        def get_params(self, deep: bool) -> dict[str, Any]:
            return {}

    findings = describe(Fitted(), np.eye(4), classes=np.array(given, dtype=object if None in given else None))
    assert findings.classes is not None
    assert findings.classes.tolist() == expected


def strips(tree: Node, cluster: int) -> dict[str, Node]:
    profile = tree.one("article", data_cluster=str(cluster))
    return {strip.one("figcaption").text: strip for strip in profile.every("figure", kind="strip")}


def test_certain_and_typical_samples_are_not_called_least_certain() -> None:
    findings = some(n=60, images=np.zeros((60, 8, 8), np.uint8))
    p = np.tile([0.996, 0.001, 0.001, 0.001, 0.001], (60, 1))
    p[20:35] = (0.05, 0.9, 0.05, 0, 0)
    p[35:40, :3] = (0.05, 0.15, 0.8)
    p[40:44] = (0.6, 0.4, 0, 0, 0)
    p /= p.sum(1, keepdims=True)
    tree = parse(render_page(replace(findings, probabilities=p)))

    def shown(cluster: int, name: str) -> list[int]:
        labels = [thumb.attributes["aria-label"] or "" for thumb in strips(tree, cluster)[name].every("i")]
        return [int(label.split(",")[0].removeprefix("Sample ")) for label in labels]

    assert shown(0, "Least certain") == [40, 41, 42, 43]
    assert not set(shown(0, "Most typical")) & {40, 41, 42, 43}
    for cluster in (1, 2):
        typical, least = shown(cluster, "Most typical"), shown(cluster, "Least certain")
        assert not set(typical) & set(least)
        assert least
    rows = tree.one("table", kind="uncertain").one("tbody").every("tr")
    listed = [int(row.one("th").text.removeprefix("Sample ")) for row in rows]
    assert (p.max(1)[listed] < CERTAIN).all()

    p[:44] = np.eye(5)[np.arange(44) % 2]
    p[0] = (0.6, 0.4, 0, 0, 0)
    tree = parse(render_page(replace(findings, probabilities=p)))
    assert strips(tree, 1)["Least certain"].text.endswith("Every sample is certain.")
    assert "Every sample of cluster 1 is certain." in tree.one("table", kind="uncertain").text
    tree = parse(render_page(replace(findings, probabilities=np.eye(5)[p.argmax(1)])))
    assert "Every sample is certain" in tree.one(id="confidence").text
    assert not list(tree.every("table", kind="uncertain"))


def test_of_a_sample_those_shares_are_told_that_it_has() -> None:
    findings = some(n=400)
    generator = np.random.default_rng(0)
    cities = np.array([f"city=town {j}" for j in range(300)])
    home = generator.integers(0, 300, 400)
    X = np.column_stack([home[:, None] == np.arange(300), findings.labels == 0, findings.labels > 0]).astype(float)
    X = np.column_stack([X, generator.normal(size=(400, 3))])
    names = [*cities, "gold=a=b", "gold=no", "x", "y", "z"]
    findings = replace(findings, features=X, feature_names=names, shares=frozenset(names[:302]))
    samples = data_of(parse(render_page(findings)))["samples"]
    rows, labels = unpacked(samples["row"], "<u4"), unpacked(samples["label"], "<u2")
    which = unpacked(samples["which"], "<u1").reshape(400, 5)
    values = unpacked(samples["values"], "<f4").reshape(400, 5)
    found = 0
    for at, row in enumerate(rows):
        told = {}
        for place in range(5):
            if which[at, place] != 255:
                feature = samples["columns"][labels[at]][which[at, place]]
                assert values[at, place] == pytest.approx(X[row, feature], rel=1e-6)
                name, *value = samples["features"][str(feature)]
                told[name] = value
        assert {"x", "y", "z"} <= set(told)
        assert told["gold"] == (["a=b"] if findings.labels[row] == 0 else ["no"])
        if "city" in told:
            found += 1
            assert told["city"] == [f"town {home[row]}"]
    assert found > 200


def test_the_order_of_shares_is_explained() -> None:
    assert "percentage points" not in render_page(iris())
    findings = some()
    X = np.asarray(findings.features).copy()
    X[:, 3] = findings.labels == 0
    names = ["a", "b", "c", "colour=red"]
    tree = parse(render_page(replace(findings, features=X, feature_names=names, shares=frozenset(names[3:]))))
    assert "Shares are given in percentage points, but ordered by sd like the others." in tree.one(id="profiles").text
    marks = [mark for mark in tree.one("article", data_cluster="0").every(kind="gap") if "points" in mark.text]
    size = (X[findings.labels == 0, 3].mean() - X[findings.labels != 0, 3].mean()) / X[:, 3].std()
    assert [mark.attributes["title"] for mark in marks] == [f"{size:+.1f} sd"]


def test_words_say_once_what_follows_from_each_other() -> None:
    labels = np.repeat([0, 1], 50)
    own = (labels == 0).astype(float)
    own[3] = 0
    X = np.stack([1 - own, own, np.arange(100) % 3 + 2.0 * labels], axis=1)
    names = ["premium=false", "premium=true", "visits"]
    found = contrasts(X, labels, 2)
    assert in_words(found, 0, names, set(names[:2])) == "mostly premium=true, visits very low"
    assert in_words(found, 1, names, set(names[:2])) == "mostly premium=false, visits very high"
    # Of three values: nearly all of one is little of the others, but less of one is not more of another.
    town = np.where(labels == 0, 0, 1 + np.arange(100) % 2)
    cities = ["city=Bonn", "city=Köln", "city=Leipzig"]
    found = contrasts((town[:, None] == np.arange(3)).astype(float), labels, 2)
    assert in_words(found, 0, cities, set(cities)) == "mostly city=Bonn"
    assert "city=Köln" in in_words(found, 1, cities, set(cities))


def test_a_histogram_shows_the_bulk() -> None:
    values = np.random.default_rng(0).normal(10, 1, 3000)
    values[:30] *= 200
    spread = histogram(values, np.zeros(3000, dtype=np.int64), 1)
    assert spread.high < 20
    assert spread.everyone[-1] >= 0.01


def test_the_map_keeps_small_clusters() -> None:
    n = 60_000
    p = np.full((n, 3), 0.01)
    p[:, 0] = 0.98
    p[:40] = (0.01, 0.98, 0.01)
    p[40:400] = (0.01, 0.01, 0.98)
    p = p[:, [0, 2, 1]]
    points = np.random.default_rng(0).normal(size=(n, 2))
    points[1000] = np.nan
    findings = Findings(title="Many", probabilities=p, points=points, axes=("one", "two"))
    rows = chosen(findings, summarise(findings))
    assert 49_990 < len(rows) <= 50_000
    assert len(np.unique(rows)) == len(rows)
    assert 1000 not in rows
    sizes = np.bincount(findings.labels[rows])
    assert sizes[2] == 40
    assert 100 <= sizes[1] <= 360
    page = render_page(findings)
    assert f"Of 60,000 samples, {len(rows):,} are drawn" in page
    assert page == render_page(findings)


def hostile() -> Findings:
    names = [f"{HOSTILE} {j}" for j in range(4)]
    return some(
        title=HOSTILE,
        axes=(HOSTILE, HOSTILE),
        feature_names=names,
        shares=frozenset(names[:1]),
        row_names=[f"{HOSTILE} {j}" for j in range(200)],
        classes=np.array([f"{HOSTILE} {j % 3}" for j in range(200)]),
        settings={HOSTILE: HOSTILE},
        notes=[HOSTILE],
        command=HOSTILE,
        history={"objective": [1.0, 2.0], HOSTILE: [1.0, 2.0]},
    )


def test_text_of_the_data_cannot_become_markup() -> None:
    page = render_page(hostile())
    page.encode("utf-8")
    tree = parse(page)
    assert len(list(tree.every("script"))) == 2
    assert "alert(1)</script>" not in page
    assert "<script>alert" not in page
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    assert tree.one("h1").text == shown
    assert tree.one("title").text == shown
    assert tree.one("code", id="command").text == shown
    assert tree.one("canvas").attributes["data-across"] == shown
    assert data_of(tree)["samples"]["names"][0].startswith(shown)
    assert not any(name.startswith("on") for node in tree.every() for name in node.attributes)


@pytest.mark.parametrize("findings", [iris(), hostile(), some(images=np.zeros((200, 8, 8), np.uint8))])
def test_nothing_outside_is_asked_for(findings: Findings) -> None:
    page = render_page(findings)
    assert "default-src 'none'" in page
    bare = re.sub(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/=]+", "", page)
    bare = re.sub(r'<script type="application/json".*?</script>', "", bare, flags=re.DOTALL)
    assert "//" not in bare
    assert "http" not in bare.replace("http-equiv", "")
    assert "url(" not in bare.replace("url()", "")
    assert "@import" not in bare
    tree = parse(page)
    assert not [node for node in tree.every() if "src" in node.attributes or node.tag in ("link", "iframe", "object")]
    links = [node.attributes["href"] for node in tree.every("a")]
    targets = {node.attributes.get("id") for node in tree.every()}
    assert all(link is not None and link.startswith("#") and link[1:] in targets for link in links)


def test_headings_labels_and_references_are_in_order() -> None:
    tree = parse(render_page(iris()))
    levels = [int(node.tag[1]) for node in tree.every() if re.fullmatch("h[1-6]", node.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [node.attributes["id"] for node in tree.every() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in tree.every():
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((node.attributes.get(name) or "").split()) <= set(ids)
    assert tree.one("html").attributes["lang"] == "en-GB"
    assert all(button.attributes["type"] == "button" for button in tree.every("button"))


@functools.cache
def edge_cases() -> dict[str, Findings]:
    certain = some()
    holes = np.asarray(some(d=6).features).copy()
    holes[np.random.default_rng(0).random(holes.shape) < 0.5] = np.nan
    holes[:, 1], holes[:, 2], holes[0, 3] = np.nan, 7.0, np.inf
    long = [f"{'long name ' * 20}{j}" for j in range(4)]
    return {
        "one cluster used": some(used=1),
        "K = 1": some(K=1, used=1, classes=np.array(["a", "b"] * 100)),
        "three samples": some(n=3, classes=np.array(["a", "b", "c"]), history={"objective": [1.0]}),
        "one sample": some(n=1),
        "points only": some(d=0),
        "no columns": some(d=0, features=np.zeros((200, 0)), feature_names=[]),
        "missing values": some(d=6, features=holes),
        "constant": some(features=np.ones((200, 4))),
        "huge": some(features=np.random.default_rng(0).normal(size=(200, 4)) * 1e200),
        "whole numbers": some(features=np.random.default_rng(0).integers(0, 9, (200, 4))),
        "40 clusters": some(n=2000, K=40, used=40),
        "200 classes": some(n=400, classes=np.array([f"class {j % 200}" for j in range(400)])),
        "long names": some(feature_names=long, row_names=long * 50, classes=np.array(long * 50)),
        "certain": replace(certain, probabilities=np.eye(5)[certain.labels]),
        "784 columns": some(d=784, images=np.random.default_rng(0).integers(0, 256, (200, 28, 28)).astype(np.uint8)),
        "one place": some(points=np.zeros((200, 2))),
        "no place": some(points=np.full((200, 2), np.nan)),
        "photographs": some(n=40, images=np.random.default_rng(0).integers(0, 256, (40, 90, 70, 3)).astype(np.uint8)),
        "bad epochs": some(history={"objective": [np.nan, 1.0, np.inf], "clusters": [], "entropy": [np.nan]}),
        "float32": replace(certain, probabilities=certain.probabilities.astype(np.float32)),
        "a hole in the numbers": replace(certain, probabilities=certain.probabilities[:, [0, 4, 1, 2, 3]]),
    }


@pytest.mark.parametrize("name", list(edge_cases()))
def test_edge_cases(name: str) -> None:
    findings = edge_cases()[name]
    tree = parse(render_page(findings))
    assert len(data_of(tree)["sizes"]) == len(findings.sizes)
    for section in tree.every("section"):
        assert "nan" not in section.text.lower().replace("names", "")
        for path in section.every("path"):
            assert "nan" not in (path.attributes["d"] or "")
    assert "style" in "".join(node.tag for node in tree.every())


def test_a_long_history_is_thinned() -> None:
    history = {"objective": np.linspace(0, 1, 100_000).tolist()}
    tree = parse(render_page(some(history=history)))
    pairs = data_of(tree)["history"]["objective"]
    assert len(pairs) == 300
    assert pairs[-1] == [100_000, 1.0]


def test_ten_thousand_rows_take_less_than_three_megabytes() -> None:
    findings = some(n=10_000, d=20, K=12, used=10, row_names=[f"customer {j:06d}" for j in range(10_000)])
    assert len(render_page(findings).encode()) < 3_000_000


def test_ten_thousand_images_take_less_than_three_megabytes() -> None:
    generator = np.random.default_rng(0)
    digits = np.kron(load_digits().images, np.ones((1, 4, 4)))[:, 2:30, 2:30] * 15
    images = digits[generator.integers(0, len(digits), 10_000)].astype(np.uint8)
    findings = some(n=10_000, d=20, K=12, used=10, images=images)
    assert len(render_page(findings).encode()) < 3_000_000


def test_fewer_thumbnails_are_kept_of_what_cannot_be_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pollux.report.pictures.THUMBNAIL_BYTES", 100_000)
    noise = np.random.default_rng(0).integers(0, 256, (1_000, 28, 28, 3)).astype(np.uint8)
    sheet = thumbnails(noise)
    assert len(sheet.address) < 4 / 3 * 100_000 + 100
    assert 100 < sheet.tiles < 1_000


def test_fifty_thousand_rows_are_rendered_soon() -> None:
    findings = some(n=50_000, d=20, K=12, used=12)
    began = time.process_time()
    render_page(findings)
    assert time.process_time() - began < 6


def test_a_million_rows_need_few_copies_of_the_features() -> None:
    n, d = 1_000_000, 12
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 6, n)
    X = generator.normal(size=(n, d)) + labels[:, None]
    findings = Findings(
        title="Many",
        probabilities=np.full((6, 6), 0.04)[labels] + 0.76 * np.eye(6)[labels],
        points=X[:, :2],
        axes=("one", "two"),
        features=X,
        feature_names=[f"feature {j}" for j in range(d)],
        classes=np.array(["", "a", "b"])[generator.integers(0, 3, n)],
    )
    began = time.process_time()
    render_page(findings)
    assert time.process_time() - began < 15
    tracemalloc.start()
    render_page(findings)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * X.nbytes


def test_writing_replaces_the_file_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    write_page(iris(), target)
    assert target.read_text(encoding="utf-8") == render_page(iris())
    before = target.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="no room"):
        write_page(some(), target)
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_images_need_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def without_pillow(name: str, *more: Any, **others: Any) -> Any:
        if name.split(".")[0] == "PIL":
            raise ImportError(name)
        return genuine(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", without_pillow)
    render_page(some())
    with pytest.raises(ImportError, match=r"pip install 'pollux\[files\]'"):
        render_page(some(images=np.zeros((200, 8, 8), np.uint8)))


def test_colours_can_be_told_from_a_dark_background() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert all(contrast(on_dark(colour), ON_DARK) >= READABLE for colour in colours(60))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (5.1, "5.1"), (-0.12345, "−0.123"), (1234.5, "1,234"), (2.5e7, "2.5e7"), (3e-5, "3e−5"), (99.97, "100")],
)
def test_numbers_are_short(value: float, expected: str) -> None:
    assert number(value) == expected


def test_percentages_never_round_to_nothing_or_everything() -> None:
    shown = [percent(share, 1) for share in (0, 0.0001, 0.5, 0.99999, 1, np.nan)]
    assert shown == ["0%", "<0.1%", "50.0%", ">99.9%", "100%", "–"]
    assert shortened("abcdef", 4) == "abc…"
