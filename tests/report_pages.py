"""Pages of a report as element trees, and findings to make them from."""

import base64
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.datasets import load_iris

from pollux.report import Findings

VOID = {"meta", "input", "br", "link", "img"}
HOSTILE = "</script><script>alert(1)</script> \"quoted\" 'single' & 🦋 مرحبا <b>\x00\ud800"
# Each would run a script, or send a request, if it became markup, a style, an address or a template.
PAYLOADS = (
    "<script>window.hacked = 1; fetch('https://example.org/a')</script>",
    "</script><!--<script>window.hacked = 1//-->",
    "<img src=https://example.org/b onerror=window.hacked=1>",
    '"><svg onload=window.hacked=1>',
    "' onmouseover='window.hacked=1' style='background:url(https://example.org/c)",
    "</style><style>@import url(https://example.org/d);*{background:url(https://example.org/e)}",
    "</title><base href=https://example.org/><form action=https://example.org/f><input autofocus onfocus=hacked=1>",
    "<meta http-equiv=refresh content='0;url=https://example.org/g'><iframe srcdoc='<script>top.hacked=1</script>'>",
    "javascript:window.hacked=1",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}${window.hacked=1}",
    "];window.hacked=1;[\u2028window.hacked=1//",
)


class Node:
    """An element; its children are elements and texts."""

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
    """Parses elements, which must be closed in the reverse order of their opening."""

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


def unpack(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def make_findings(n: int = 200, d: int = 4, K: int = 5, used: int = 3, seed: int = 0, **more: Any) -> Findings:
    """Return findings on blobs with soft assignments; clusters are numbered by size, and surplus ones are empty."""
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


def iris_findings() -> Findings:
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
