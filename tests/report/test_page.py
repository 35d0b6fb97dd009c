"""The page: its numbers are right, its text is safe, and it stays small."""

import base64
import functools
import hashlib
import itertools
import re
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from coverings import in_full
from pollux.inspection.hierarchy import Hierarchy
from pollux.inspection.structure import Structure
from pollux.report import Findings, render_page, write_page
from pollux.report.overview import DOUBT
from pollux.trees.words import percent, write_value
from report_pages import HOSTILE, PAYLOADS, Node, data_of, iris_findings, make_findings, parse, unpack


def test_the_numbers_are_those_of_the_data() -> None:
    findings = iris_findings()
    tree = parse(render_page(findings))
    sizes = findings.sizes
    assert tree.one("h1").text == "Iris"
    lead = tree.one(kind="lead").text
    share = f"{100 * sizes[0] / 150:.0f}%"
    assert lead.startswith(f"150 samples in 3 groups, of at most 5. The largest, {share}, is “")
    assert findings.cluster_name(0) in lead
    assert "Set apart bypetal" in tree.one("dl", kind="answers").text
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
    metrics = tree.one("dl", kind="metrics").text
    assert "Clusters3 of at most 5" in metrics
    assert f"Largest{share} cluster 0" in metrics
    sure = percent(float((findings.probabilities.max(1) >= DOUBT).mean()))
    assert f"Sure of{sure}" in metrics
    assert "Objective" not in metrics
    assert "0.75" in tree.one(id="training").text


def test_the_table_of_classes_counts_every_sample() -> None:
    findings = iris_findings()
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
    findings = make_findings(classes=np.array([str(j % 12) for j in range(200)]))
    legend = parse(render_page(findings)).one(data_legend="class")
    assert [item.text for item in legend.every("li")] == [str(j) for j in range(12)]


def test_the_page_shows_these_differences() -> None:
    findings = iris_findings()
    tree = parse(render_page(findings))
    X, labels = findings.features, findings.labels
    assert X is not None
    for cluster in range(3):
        profile = tree.one("article", data_cluster=str(cluster))
        inside, outside = X[labels == cluster].mean(0), X[labels != cluster].mean(0)
        scaled = (inside - outside) / X.std(0)
        order = np.argsort(-np.abs(scaled))
        shown = [figure.text for figure in profile.every("figure", kind="feature")]
        assert len(shown) == 4
        for text, j in zip(shown, order, strict=True):
            assert text.startswith(findings.feature_names[j])
            assert f"{scaled[j]:+.1f} sd".replace("-", "−") in text
            feature, extent = findings.read_features[j], 4 * X[:, j].std()
            here, there = (write_value(value, feature, extent) for value in (inside[j], outside[j]))
            assert f"{here} here, {there} elsewhere" in text


def test_shares_are_given_in_percent() -> None:
    findings = make_findings()
    X = np.asarray(findings.features).copy()
    X[:, 3] = findings.labels == 0
    names = ["a", "b", "c", "colour=red"]
    page = render_page(replace(findings, features=X, feature_names=names, shares=frozenset(names[3:])))
    profile = parse(page).one("article", data_cluster="0")
    (shown,) = (f.text for f in profile.every("figure", kind="feature") if "colour" in f.text)
    assert shown == "colour=red +100 points0%100%100% here, 0% elsewhere"


def test_the_least_certain_come_first() -> None:
    findings = make_findings(row_names=[f"row {j}" for j in range(200)])
    ordered = np.sort(findings.probabilities, axis=1)
    expected = np.argsort(ordered[:, -1] - ordered[:, -2], kind="stable")[: min(10, (ordered[:, -1] < 0.99).sum())]
    table = parse(render_page(findings)).one("table", kind="uncertain")
    rows = [row for row in table.one("tbody").every("tr") if row.attributes.get("class") != "more"]
    assert [row.one("th").text for row in rows] == [f"row {j}" for j in expected]


def test_confidence_is_not_called_quality() -> None:
    tree = parse(render_page(iris_findings()))
    assert "does not tell whether its clusters are right" in tree.one("header").text
    assert "does not tell whether they are right" in tree.one(id="confidence").text


def partly_known() -> tuple[Findings, np.ndarray]:
    findings = iris_findings()
    unknown = np.random.default_rng(0).random(150) < 0.3
    return replace(findings, classes=np.where(unknown, "", findings.classes)), unknown


def test_samples_of_no_known_class_are_left_out_of_the_scores() -> None:
    findings, unknown = partly_known()
    assert findings.classes is not None
    tree = parse(render_page(findings))
    labels = findings.labels
    score = adjusted_rand_score(findings.classes[~unknown], labels[~unknown])
    assert f"Adjusted Rand index{score:.3f}" in tree.one("dl", kind="scores").text
    shown = f"{(~unknown).sum()} of 150 samples have a known class"
    assert shown in tree.one("header").text
    assert shown in tree.one(id="classes").text
    last = list(tree.one("table", kind="confusion").one("tbody").every("tr"))[-1]
    assert last.one("th").text == "not known"
    counts = [str((unknown & (labels == k)).sum()) for k in range(3)]
    assert [cell.text.replace("·", "0") for cell in last.every("td")] == [*counts, str(unknown.sum())]
    samples = data_of(tree)["samples"]
    codes = unpack(samples["class"], "<u2")
    np.testing.assert_array_equal(codes == 3, unknown[unpack(samples["row"], "<u4")])
    assert [item.text for item in tree.one(data_legend="class").every("li")][-1] == "not known"
    # All are known: nothing of the kind is said.
    assert "known class" not in render_page(iris_findings())


def test_classes_of_which_none_is_known_are_none() -> None:
    findings = iris_findings()
    assert render_page(replace(findings, classes=np.full(150, ""))) == render_page(replace(findings, classes=None))


def test_the_order_of_shares_is_explained() -> None:
    assert "percentage points" not in render_page(iris_findings())
    findings = make_findings()
    X = np.asarray(findings.features).copy()
    X[:, 3] = findings.labels == 0
    names = ["a", "b", "c", "colour=red"]
    tree = parse(render_page(replace(findings, features=X, feature_names=names, shares=frozenset(names[3:]))))
    assert "Shares are given in percentage points, but ordered by sd like the others." in tree.one(id="profiles").text
    marks = [mark for mark in tree.one("article", data_cluster="0").every(kind="gap") if "points" in mark.text]
    size = (X[findings.labels == 0, 3].mean() - X[findings.labels != 0, 3].mean()) / X[:, 3].std()
    assert [mark.attributes["title"] for mark in marks] == [f"{size:+.1f} sd"]


def hostile(text: str = HOSTILE) -> Findings:
    names = [f"{text}={text} {j}" for j in range(4)]
    return make_findings(
        title=text,
        axes=(text, text),
        feature_names=names,
        shares=frozenset(names[:2]),
        row_names=[f"{text} {j}" for j in range(200)],
        classes=np.array([f"{text} {j % 3}" for j in range(200)]),
        settings={text: text},
        notes=[text],
        command=text,
        history={"objective": [1.0, 2.0], text: [1.0, 2.0]},
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
    assert data_of(tree)["samples"]["maps"][0]["axes"] == [shown, shown]
    assert data_of(tree)["samples"]["names"][0].startswith(shown)
    assert not any(name.startswith("on") for node in tree.every() for name in node.attributes)


ATTRIBUTES = frozenset(["href", "src", "srcdoc", "action", "formaction", "srcset", "ping"])


@functools.cache
def harmless_page() -> Node:
    return parse(render_page(hostile("words")))


@pytest.mark.parametrize("text", PAYLOADS)
def test_no_name_or_value_becomes_markup(text: str) -> None:
    """The page has the elements, attributes and addresses that it has with harmless text, and the same script."""
    tree, harmless = parse(render_page(hostile(text))), harmless_page()

    def shape(tree: Node) -> list[tuple[str, list[str]]]:
        return [(node.tag, sorted(set(node.attributes) - {"title"})) for node in tree.every()]

    def addresses(tree: Node) -> list[str | None]:
        return [node.attributes[name] for node in tree.every() for name in ATTRIBUTES & set(node.attributes)]

    assert shape(tree) == shape(harmless)
    assert addresses(tree) == addresses(harmless)
    assert policy_of(tree) == policy_of(harmless)
    shown = " ".join(text.split())
    assert tree.one("h1").text == shown
    assert data_of(tree)["samples"]["names"][0].startswith(text[:50])


def policy_of(tree: Node) -> dict[str, list[str]]:
    content = tree.one("meta", http_equiv="Content-Security-Policy").attributes["content"] or ""
    return {name: sources for name, *sources in (part.split() for part in content.split(";"))}


@pytest.mark.parametrize("findings", [iris_findings(), make_findings(images=np.zeros((200, 8, 8), np.uint8))])
def test_the_policy_allows_the_own_script_and_style_sheet_only(findings: Findings) -> None:
    tree = parse(render_page(findings))

    def digest(tag: str) -> str:
        (own,) = (node for node in tree.every(tag) if "type" not in node.attributes)
        text = "".join(str(child) for child in own.children)
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert policy_of(tree) == {
        "default-src": ["'none'"],
        "script-src": [digest("script")],
        "style-src": ["'unsafe-inline'"],
        "style-src-elem": [digest("style")],
        "img-src": ["data:"],
        "form-action": ["'none'"],
        "base-uri": ["'none'"],
    }


@pytest.mark.parametrize(
    "findings", [iris_findings(), hostile(), make_findings(images=np.zeros((200, 8, 8), np.uint8))]
)
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
    tree = parse(render_page(iris_findings()))
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
    certain = make_findings()
    holes = np.asarray(make_findings(d=6).features).copy()
    holes[np.random.default_rng(0).random(holes.shape) < 0.5] = np.nan
    holes[:, 1], holes[:, 2], holes[0, 3] = np.nan, 7.0, np.inf
    long = [f"{'long name ' * 20}{j}" for j in range(4)]
    return {
        "one cluster used": make_findings(used=1),
        "K = 1": make_findings(K=1, used=1, classes=np.array(["a", "b"] * 100)),
        "three samples": make_findings(n=3, classes=np.array(["a", "b", "c"]), history={"objective": [1.0]}),
        "one sample": make_findings(n=1),
        "points only": make_findings(d=0),
        "no columns": make_findings(d=0, features=np.zeros((200, 0)), feature_names=[]),
        "missing values": make_findings(d=6, features=holes),
        "constant": make_findings(features=np.ones((200, 4))),
        "huge": make_findings(features=np.random.default_rng(0).normal(size=(200, 4)) * 1e200),
        "whole numbers": make_findings(features=np.random.default_rng(0).integers(0, 9, (200, 4))),
        "40 clusters": make_findings(n=800, K=40, used=40),
        "200 classes": make_findings(n=400, classes=np.array([f"class {j % 200}" for j in range(400)])),
        "long names": make_findings(feature_names=long, row_names=long * 50, classes=np.array(long * 50)),
        "certain": replace(certain, probabilities=np.eye(5)[certain.labels]),
        "784 columns": make_findings(
            d=784, images=np.random.default_rng(0).integers(0, 256, (200, 28, 28)).astype(np.uint8)
        ),
        "one place": make_findings(points=np.zeros((200, 2))),
        "no place": make_findings(points=np.full((200, 2), np.nan)),
        "photographs": make_findings(
            n=40, images=np.random.default_rng(0).integers(0, 256, (40, 90, 70, 3)).astype(np.uint8)
        ),
        "bad epochs": make_findings(history={"objective": [np.nan, 1.0, np.inf], "clusters": [], "entropy": [np.nan]}),
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
    tree = parse(render_page(make_findings(history=history)))
    pairs = data_of(tree)["history"]["objective"]
    assert len(pairs) == 300
    assert pairs[-1] == [100_000, 1.0]


@in_full
def test_ten_thousand_rows_take_less_than_three_megabytes() -> None:
    findings = make_findings(n=10_000, d=20, K=12, used=10, row_names=[f"customer {j:06d}" for j in range(10_000)])
    assert len(render_page(findings).encode()) < 3_000_000


@in_full
def test_fifty_thousand_rows_are_rendered_soon() -> None:
    findings = make_findings(n=50_000, d=20, K=12, used=12)
    began = time.process_time()
    render_page(findings)
    assert time.process_time() - began < 6


@in_full
def test_many_rows_need_few_copies_of_the_features() -> None:
    n, d = 300_000, 12
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
    tracemalloc.start()
    render_page(findings)
    assert time.process_time() - began < 15
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * X.nbytes


def test_writing_replaces_the_file_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    write_page(iris_findings(), target)
    assert target.read_text(encoding="utf-8") == render_page(iris_findings())
    before = target.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="no room"):
        write_page(make_findings(), target)
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_outliers_are_listed_with_what_is_unlike() -> None:
    findings = make_findings(n=200)
    assert findings.features is not None
    features = findings.features.copy()
    features[7, 2] += 50
    far = np.arange(200) == 7
    scores = np.where(far, -8.25, -1.0)
    tree = parse(render_page(replace(findings, features=features, scores=scores, outliers=far)))
    row = tree.one("table", kind="outliers").one("tbody").one("tr")
    assert row.text.startswith("Sample 7")
    assert "8.2 ×" in row.text
    assert f"feature 2 {features[7, 2]:.3g}, usually" in row.text
    assert "1 sample fits in nowhere" in tree.one("dl", kind="answers").text
    samples = data_of(tree)["samples"]
    assert unpack(samples["row"], "<u4")[unpack(samples["outlier"], "<u1") == 1].tolist() == [7]
    none = parse(render_page(replace(findings, scores=scores, outliers=np.zeros(200, bool))))
    assert "No sample lies far from all others" in none.one("dl", kind="answers").text
    assert not list(none.every(id="outliers"))


def test_the_tree_of_clusters_picks_what_is_below_its_nodes() -> None:
    findings = make_findings(n=300, K=6, used=5)
    # Cluster 5 is empty: its merge, the first, is not drawn. The others join as (0 1) (2 3) 4.
    linkage = np.array([[4, 5, 0, 2], [0, 1, 0.1, 2], [2, 3, 0.2, 2], [7, 8, 0.6, 4], [6, 9, 1.0, 6]])
    tree = parse(render_page(replace(findings, hierarchy=Hierarchy(linkage, np.linspace(1, 0, 6), findings.labels))))
    part = tree.one(id="hierarchy")
    nodes = [node.attributes["data-pick"] for node in part.every("button", kind="node")]
    assert nodes == ["0 1", "2 3", "0 1 2 3", "0 1 2 3 4"]
    assert "10% of the objective" in (next(part.every("button", kind="node")).attributes["title"] or "")
    assert [leaf.attributes["data-cluster"] for leaf in part.one("ol").every("li")] == ["4", "0", "1", "2", "3"]
    groups = data_of(tree)["groups"]
    assert len(groups["of"]) == 5
    assert len(set(groups["of"])) == len(groups["colours"]["light"]) < 5
    # Without a hierarchy there is neither.
    assert data_of(parse(render_page(findings)))["groups"] is None


def test_sized_samples_have_the_probability_of_their_own_cluster() -> None:
    findings = make_findings(n=200)
    labels = findings.labels.copy()
    labels[:20] = 2
    sized = replace(findings, given_labels=labels)
    np.testing.assert_array_equal(sized.labels, labels)
    np.testing.assert_array_equal(sized.summary.confidence, findings.probabilities[np.arange(200), labels])
    assert (sized.summary.following != labels).all()


@pytest.mark.parametrize(
    ("separation", "gain", "says"), [(1, 1, "Clearly"), (0, 1, "Likely"), (0, -1, "no sign of it")]
)
def test_the_first_screen_says_whether_clusters_are_real(separation: float, gain: float, says: str) -> None:
    findings = replace(make_findings(), structure=Structure.of(separation, gain, 0.1))
    assert findings.structure is not None
    page = parse(render_page(findings))
    answers = page.one("dl", kind="answers").text
    assert says in answers
    assert ("The model is sure of" in answers) == (findings.structure.grade != "none")
    assert f"Structure{findings.structure.grade}" in page.one("dl", kind="metrics").text


def test_the_first_screen_says_how_far_other_trainings_agree() -> None:
    findings = make_findings()
    agreement = np.r_[np.full(len(findings.labels) // 2, 0.9), np.full(len(findings.labels) // 2, 0.4)]
    told = parse(render_page(replace(findings, agreement=agreement))).one("dl", kind="answers").text
    assert "agree on 65% of the samples; on 100 samples most of them do not" in told


def test_texts_are_told_by_their_words_and_typical_ones() -> None:
    texts = [f"the {animal} of my house, number {i}" for i in range(10) for animal in ("old cat", "young dog")]
    labels = np.arange(20) % 2
    findings = Findings(
        title="Texts", probabilities=np.eye(2)[labels], points=np.eye(20)[:, :2], row_names=texts, axes=("x", "y")
    )
    assert [findings.cluster_name(k) for k in (0, 1)] == ["cat, old", "dog, young"]
    page = render_page(findings)
    assert "What each cluster is about" in page
    assert "Most typical</figcaption><ul><li><bdi>the old cat of my house" in page
    # Without sentences there is nothing to tell of.
    assert "What each cluster" not in render_page(replace(findings, row_names=[f"row {i}" for i in range(20)]))


def test_the_lead_carries_what_the_terminal_warns_of() -> None:
    assert "Restarts disagree (adjusted Rand index 0.61)" in render_page(make_findings(stability=0.61))
    assert "Restarts disagree" not in render_page(make_findings(stability=0.95))
    found = replace(Structure.of(1.0, 0.5, 0.1), category="colour", others=Structure.of(0.0, -0.1, 0.1))
    page = render_page(make_findings(structure=found))
    assert "Only by the values of “colour”" in page
    assert "Clearly" not in page
    assert "It is not shown" in render_page(make_findings(structure=Structure.of(0.2, 0.02, 0.01)))


def test_too_few_different_samples_are_told_in_the_words_of_the_terminal() -> None:
    found = Structure.of(0.0, 0.0, 0.0)
    page = render_page(make_findings(structure=found))
    assert found.reason == "there are too few different rows to tell"
    assert "There are too few different rows to tell." in page
    assert "single group" not in page
