"""Rules for any clustering: that they tell the clusters, and that what is said of them is true."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pollux import GeminiTree, explain
from pollux.errors import InputError
from pollux.trees.explanation import name_clusters

IRIS = load_iris(as_frame=True).data
WINE = load_wine(as_frame=True).data


def held(conditions: tuple[str, ...], frame: pd.DataFrame) -> pd.Series:
    """For which rows the conditions hold, as they are written; columns have names without spaces."""
    columns = {name: frame[name] for name in frame}
    result = pd.Series(True, index=frame.index)
    for condition in conditions:
        for part in condition.split(" < ", 1)[::-1] if condition.count("<") > 1 else [condition]:
            if " " in part:
                result &= eval(part, {}, columns)
        if condition.count("<") > 1:
            low, rest = condition.split(" < ", 1)
            result &= columns[rest.split(" <= ")[0]] > float(low)
    return result


def test_a_cluster_is_told_by_one_column() -> None:
    found = explain(KMeans(3, random_state=0, n_init=5).fit(IRIS), IRIS)
    assert "low petal width (cm)" in found.names.values()
    assert found.fidelity > 0.9
    assert next(iter(found.importances)).startswith("petal")
    assert sum(found.importances.values()) == pytest.approx(1)
    assert [rule.size for rule in found.rules] == np.bincount(
        KMeans(3, random_state=0, n_init=5).fit(IRIS).labels_
    ).tolist()


def test_any_clustering_is_taken() -> None:
    labels = GeminiTree(3, preprocessing="standard", max_leaves=6).fit(WINE).labels_
    pipeline = make_pipeline(StandardScaler(), KMeans(3, random_state=0, n_init=3)).fit(WINE)
    for clustering in (GeminiTree(3, max_leaves=6).fit(WINE), pipeline, labels, DBSCAN(60).fit(WINE)):
        found = explain(clustering, WINE)
        assert len(set(found.names.values())) == len(found.rules)
    with_noise = np.where(np.arange(len(labels)) % 9 == 0, -1, labels)
    assert [rule.cluster for rule in explain(with_noise, WINE).rules] == [0, 1, 2]


def test_precision_and_coverage_are_true_of_rows_that_were_held_back() -> None:
    differences = []
    for seed in range(4):
        X, _ = make_blobs(2400, 4, centers=5, cluster_std=2.5, random_state=seed)
        frame = pd.DataFrame(X, columns=list("abcd"))
        model = KMeans(5, random_state=0, n_init=2).fit(frame[:1200])
        labels = model.predict(frame[1200:])
        for rule in explain(model, frame[:1200]).rules:
            holds = held(rule.conditions, frame[1200:]).to_numpy()
            inside = labels == rule.cluster
            differences.append((holds & inside).sum() / holds.sum() - rule.precision)
            differences.append((holds & inside).sum() / inside.sum() - rule.coverage)
    # Forty estimates of shares, each from at least 100 rows: their mean has a deviation below 0.05 / √40.
    assert abs(np.mean(differences)) < 0.03


def test_text_and_missing_values_are_told() -> None:
    colour = np.repeat(["red", "blue", "green"], 40)
    frame = pd.DataFrame({"colour": colour, "size": np.where(np.arange(120) % 10 == 0, np.nan, np.arange(120.0))})
    found = explain((colour == "blue").astype(int), frame)
    assert found.rules[1].conditions == ("colour is blue",)
    assert found.rules[1].precision == found.rules[1].coverage == 1
    assert set(found.importances) == {"colour", "size"}


def test_what_no_short_rule_tells_is_said() -> None:
    random = np.random.default_rng(0)
    found = explain(random.integers(0, 2, size=200), random.normal(size=(200, 3)), ["a", "b", "c"])
    assert found.rules[0].sentence.startswith("No short rule tells this cluster.")
    assert found.fidelity < 0.7


def test_of_many_columns_those_that_differ_are_looked_at() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 100))
    labels = (X[:, 70] > 0).astype(int)
    found = explain(labels, X)
    assert found.names == {0: "low x70", 1: "high x70"}
    assert len(found.importances) == 100


def test_an_explanation_is_shown_as_text_page_and_data() -> None:
    found = explain((IRIS.iloc[:, 2] > 3).to_numpy().astype(int), IRIS.to_numpy(), ["a", "b", "<c>", "d"])
    assert "cluster 0 (99 rows)" in str(found) or "cluster 1 (99 rows)" in str(found)
    assert "&lt;c&gt;" in found._repr_html_()
    assert "<c>" not in found._repr_html_()
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["rules"][0]["conditions"] == list(found.rules[0].conditions)
    assert "cluster 0" in found.export_text()


@pytest.mark.parametrize(
    ("clustering", "X"),
    [
        *((np.zeros(4), IRIS), (np.full(150, -1), IRIS), (np.zeros(150, dtype=int), np.empty((150, 0)))),
        *((np.zeros(2, dtype=int), np.zeros((2, 3, 4, 4))), (np.zeros(150), IRIS)),
    ],
)
def test_what_cannot_be_explained_is_refused(clustering, X) -> None:
    with pytest.raises(InputError):
        explain(clustering, X)
    with pytest.raises(InputError, match="feature_names"):
        explain(np.zeros(150, dtype=int), IRIS, ["a"])


def test_one_cluster_is_all_rows() -> None:
    (rule,) = explain(np.zeros(150, dtype=int), IRIS).rules
    assert (rule.conditions, rule.precision, rule.coverage) == (("all rows",), 1, 1)


def test_values_of_any_size_are_told() -> None:
    X = np.array([[1e300], [1e300], [-1e300], [-1e300]] * 10)
    labels = (X[:, 0] > 0).astype(int)
    assert explain(labels, X).names == {0: "low x0", 1: "high x0"}
    assert name_clusters(labels, X, ["a"]) == {0: "low a", 1: "high a"}
