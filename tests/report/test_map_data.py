"""The samples of the map come back from their bytes; few of many are drawn."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pollux.report import Findings, render_page
from pollux.report.map_data import choose_rows, first_view
from report_pages import data_of, make_findings, parse, unpack


def test_points_and_values_come_back_from_their_bytes() -> None:
    findings = make_findings(n=300)
    samples = data_of(parse(render_page(findings)))["samples"]
    rows = unpack(samples["row"], "<u4")
    assert sorted(rows) == list(range(300))
    for axis, name in enumerate("xy"):
        own = samples["maps"][0]
        back = own["low"][axis] + unpack(own[name], "<f4") * own["span"][axis]
        np.testing.assert_allclose(back, findings.points[rows, axis], atol=1e-6 * own["span"][axis])
    labels = unpack(samples["label"], "<u2")
    np.testing.assert_array_equal(labels, findings.labels[rows])
    np.testing.assert_allclose(unpack(samples["p"], "<u2") / 65535, findings.probabilities.max(1)[rows], atol=1e-5)
    values = unpack(samples["values"], "<f4").reshape(300, samples["width"])
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
    findings = make_findings(n=2000)
    points = findings.points.copy()
    points[:8, 0] = 1e7
    near = data_of(parse(render_page(findings)))["samples"]
    samples = data_of(parse(render_page(replace(findings, points=points))))["samples"]
    rows = unpack(samples["row"], "<u4")
    far = samples["maps"][0]
    back = far["low"][0] + unpack(far["x"], "<f4") * far["span"][0]
    bulk = rows >= 8
    np.testing.assert_allclose(back[bulk], points[rows[bulk], 0], atol=1e-5)
    assert far["extent"][0][1] == pytest.approx((1e7 - far["low"][0]) / far["span"][0])

    def hearts(found: dict[str, Any]) -> np.ndarray:
        return np.array(found["low"]) + np.array(found["places"][0])[:, 1:] * found["span"]

    np.testing.assert_allclose(hearts(far), hearts(near["maps"][0]), atol=0.8)


def test_a_sample_shows_the_shares_that_it_has() -> None:
    findings = make_findings(n=400)
    generator = np.random.default_rng(0)
    cities = np.array([f"city=town {j}" for j in range(300)])
    home = generator.integers(0, 300, 400)
    X = np.column_stack([home[:, None] == np.arange(300), findings.labels == 0, findings.labels > 0]).astype(float)
    X = np.column_stack([X, generator.normal(size=(400, 3))])
    names = [*cities, "gold=a=b", "gold=no", "x", "y", "z"]
    findings = replace(findings, features=X, feature_names=names, shares=frozenset(names[:302]))
    samples = data_of(parse(render_page(findings)))["samples"]
    rows, labels = unpack(samples["row"], "<u4"), unpack(samples["label"], "<u2")
    which = unpack(samples["which"], "<u1").reshape(400, 5)
    values = unpack(samples["values"], "<f4").reshape(400, 5)
    found = 0
    for at, row in enumerate(rows):
        shown = {}
        for place in range(5):
            if which[at, place] != 255:
                feature = samples["columns"][labels[at]][which[at, place]]
                assert values[at, place] == pytest.approx(X[row, feature], rel=1e-6)
                name, *value = samples["features"][str(feature)]
                shown[name] = value
        assert {"x", "y", "z"} <= set(shown)
        assert shown["gold"] == (["a=b"] if findings.labels[row] == 0 else ["no"])
        if "city" in shown:
            found += 1
            assert shown["city"] == [f"town {home[row]}"]
    assert found > 200


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
    rows = choose_rows(findings)
    assert 49_990 < len(rows) <= 50_000
    assert len(np.unique(rows)) == len(rows)
    assert 1000 not in rows
    sizes = np.bincount(findings.labels[rows])
    assert sizes[2] == 40
    assert 100 <= sizes[1] <= 360
    page = render_page(findings)
    assert f"Of 60,000 samples, {len(rows):,} are drawn" in page
    assert page == render_page(findings)
