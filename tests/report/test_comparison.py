"""Two clusterings side by side: matched clusters, what moved, and how shares changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pollux.report import compare, render_page
from pollux.report.comparison import _difference
from report_pages import make_findings, parse


def relabelled(labels: np.ndarray, K: int) -> np.ndarray:
    return np.eye(K)[labels]


def test_clusters_are_matched_and_what_moved_is_listed() -> None:
    findings = make_findings(n=200)
    labels = findings.labels.copy()
    # The same clusters under other numbers, three samples elsewhere, and one cluster more.
    others = np.array([1, 2, 0])[labels]
    others[[3, 50, 90]] = (others[[3, 50, 90]] + 1) % 3
    others[7] = 3
    other = replace(findings, probabilities=relabelled(others, 4))
    found = compare(findings, other, name="later")
    assert found.matches == {0: 1, 1: 2, 2: 0}
    assert found.moved.tolist() == [[row, others[row]] for row in (3, 7, 50, 90)]
    assert found.table.sum() == 200
    np.testing.assert_allclose(found.changes[0, 0], (others == 1).mean() - (labels == 0).mean())
    assert np.isnan(found.changes[:, 1:]).all()
    tree = parse(render_page(replace(findings, comparison=found)))
    assert "Of 200 samples, 4 moved" in tree.one(id="against").text
    assert "Without a counterpart here: cluster 3" in tree.one(id="against").text
    assert "98% of 200 samples are in the same group in later" in tree.one("dl", kind="answers").text
    assert [row.one("th").text for row in tree.one(id="against").one("details").one("tbody").every("tr")] == [
        f"Sample {row}" for row in (3, 7, 50, 90)
    ]
    with pytest.raises(ValueError, match="200 samples here and 100 there"):
        compare(findings, make_findings(n=100))


def test_shares_of_other_samples_have_intervals_and_names_tell_who_moved() -> None:
    names = [f"row {j}" for j in range(200)]
    labels = np.repeat([0, 1], [140, 60])
    findings = replace(make_findings(n=200), probabilities=relabelled(labels, 3), row_names=names)
    later = np.repeat([1, 0], [150, 50])
    other = replace(findings, probabilities=relabelled(later, 3), row_names=[f"row {j + 100}" for j in range(200)])
    found = compare(findings, other, name="later", same_samples=False)
    assert found.matches == {0: 0, 1: 1}
    change, low, high = found.changes[0]
    assert (change, low < change < high < 0) == (pytest.approx(0.25 - 0.7), True)
    # Rows 100 … 139 were in cluster 0, and are in 1 now.
    assert found.moved.tolist() == [[row, 1] for row in range(100, 140)]
    text = parse(render_page(replace(findings, comparison=found))).one("dl", kind="answers").text
    assert "2 groups changed in share: 0 (−45.0 points), 1 (+45.0 points)" in text
    assert "60% of 100 samples that are in both stayed where they were" in text
    # Without names nothing is known of single samples.
    bare = compare(replace(findings, row_names=None), other, same_samples=False)
    assert (bare.table.sum(), len(bare.moved)) == (0, 0)
    assert "moved" not in parse(render_page(replace(findings, comparison=bare))).one(id="against").text


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Newcombe's published example, the ends, and coverage over many draws."""
    low, high = _difference((48, 80), (56, 70))
    assert (low, high) == (pytest.approx(0.0524, abs=5e-5), pytest.approx(0.3339, abs=5e-5))
    assert _difference((0, 20), (0, 20))[0] < 0 < _difference((0, 20), (0, 20))[1]
    generator = np.random.default_rng(0)
    held = 0
    for a, b in zip(generator.binomial(60, 0.1, 2000), generator.binomial(90, 0.2, 2000), strict=True):
        low, high = _difference((int(a), 60), (int(b), 90))
        held += low <= 0.1 <= high
    # Five standard errors of a share of 0.95 among 2,000.
    assert abs(held / 2000 - 0.95) < 0.025


def test_columns_that_moved_by_more_than_chance_are_listed() -> None:
    random = np.random.default_rng(0)
    columns = np.column_stack([random.normal(size=(200, 2)), np.full(200, 0.1), random.random(200) < 0.5])
    names = ["still", "moved", "constant", "colour=red"]
    findings = replace(make_findings(n=200), features=columns, feature_names=names, shares=frozenset(names[3:]))
    other = replace(findings, features=columns + np.eye(4)[1], notes=[*findings.notes, "Some values are new."])
    found = compare(findings, other, same_samples=False)
    assert [each.feature.name for each in found.columns] == ["moved"]
    np.testing.assert_allclose(found.columns[0].there - found.columns[0].here, 1.0, atol=2.0**-48)
    assert found.notes == ["Some values are new."]
    other = replace(findings, features=np.column_stack([columns[:, :2], np.full(200, 0.2), np.ones(200)]))
    found = compare(findings, other, same_samples=False)
    assert [(each.feature.name, each.outside) for each in found.columns] == [("constant", 1.0), ("colour=red", 0.0)]
    assert "one value here" in parse(render_page(replace(findings, comparison=found))).one(id="against").text
    # Of the same samples no column can move.
    assert compare(findings, other).columns == []
