"""Rules for any clustering: that they tell the clusters, and that what is said of them is true."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pollux import GeminiClustering, GeminiTree, explain
from pollux.data.encoding import Feature
from pollux.errors import InputError
from pollux.trees.explanation import Condition, _in_numbers, _rounded, explain_labels, name_clusters

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
    assert found.names == {0: "low column 70", 1: "high column 70"}
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
    with pytest.raises(InputError, match="number 1,000,000,000: pass"):
        explain(np.repeat([3, 10**9], 75), IRIS)


def test_one_cluster_is_all_rows() -> None:
    (rule,) = explain(np.zeros(150, dtype=int), IRIS).rules
    assert (rule.name, rule.conditions, rule.precision, rule.coverage) == ("all rows", ("all rows",), 1, 1)
    assert rule.sentence == "All rows are in this cluster."
    year = pd.DataFrame({"Year": 1970 + 0.1 * np.arange(150)})
    assert explain(np.zeros(150, dtype=int), year).names == {0: "all rows"}
    assert "A tree" not in str(explain(np.zeros(150, dtype=int), year))
    assert "A tree of 1 leaf gives " in str(explain(np.arange(150) % 2, np.zeros((150, 1))))


def test_values_of_any_size_are_told() -> None:
    X = np.array([[1e300], [1e300], [-1e300], [-1e300]] * 10)
    labels = (X[:, 0] > 0).astype(int)
    assert explain(labels, X).names == {0: "low column 0", 1: "high column 0"}
    assert name_clusters(labels, X, (Feature("a"),)) == {0: "low a", 1: "high a"}


def test_sentences_have_the_shares_of_their_own_rule_and_the_cross_validated_ones() -> None:
    X, _ = make_blobs(300, 3, centers=4, cluster_std=4, random_state=0)
    frame = pd.DataFrame(X, columns=list("abc"))
    labels = KMeans(4, random_state=0, n_init=2).fit_predict(frame)
    for rule in explain(labels, frame).rules:
        holds, inside = held(rule.conditions, frame).to_numpy(), labels == rule.cluster
        both = (holds & inside).sum()
        said = f"{both / holds.sum():.0%} of such rows are in the cluster, and {both / inside.sum():.0%} of it are"
        assert said in rule.sentence
        assert rule.sentence.endswith(f" (cross-validated: {rule.precision:.0%} and {rule.coverage:.0%}).")


def test_a_split_at_missing_values_is_told_in_words() -> None:
    labels = np.arange(60) % 2
    found = explain(labels, np.where(labels, np.nan, np.arange(60.0))[:, None], ["age"])
    assert "age is known" in found.export_text()
    assert "age is missing" in found.export_text()
    assert found.rules[0].conditions == ("age is known",)
    assert "inf" not in found.export_text() + str(found)


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
def test_gaps_in_text_are_no_value(gap: object) -> None:
    colour = pd.Series((["red"] * 3 + ["blue"] * 3 + ["green", gap]) * 10, dtype=object)
    for column in (colour, colour.astype("category"), colour.astype("string")):
        found = explain((colour == "red").fillna(False).to_numpy().astype(int), pd.DataFrame({"colour": column}))
        assert set(found.feature_names) == {"colour=red", "colour=blue", "colour=green"}
        assert found.rules[1].conditions == ("colour is red",)


def test_times_are_told_in_days_and_other_units() -> None:
    day = pd.Series(pd.date_range("2020-03-01 12:00", periods=90, freq="D"))
    labels = (np.arange(90) >= 30).astype(int)
    day[89] = pd.NaT
    for column in (day, day.dt.tz_localize("Europe/Berlin"), day.dt.date.astype(object)):
        found = explain(labels, pd.DataFrame({"day": column}))
        assert found.rules[1].conditions[0] in ("day after 2020-03-30", "day after 2020-03-31")
        assert found.names == {0: "early day", 1: "late day"}
    waits = pd.DataFrame({"wait": pd.to_timedelta(np.arange(90), unit="min")})
    assert explain(labels, waits).rules[1].conditions[0].startswith("wait (minutes) > ")
    # Also without any value.
    assert explain(labels, waits.assign(none=None, never=pd.Series([pd.NaT] * 90))).fidelity > 0.9


def test_a_frame_that_is_encoded_is_told_in_the_columns_of_its_encoding() -> None:
    random = np.random.default_rng(0)
    kind = np.repeat(["small", "large"], 60)
    frame = pd.DataFrame(
        {
            "kind": kind,
            "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(random.integers(0, 1500, 120), unit="D"),
            "size": np.where(kind == "small", 1.0, 50.0) + random.normal(size=120),
        }
    )
    model = GeminiClustering(2, random_state=0).fit(frame)
    found = explain(model, frame)
    encoding = model.encoding_
    assert encoding is not None
    assert {"kind=small", "kind=large", "day", "day=Monday", "size"} <= set(found.feature_names)
    assert set(found.importances) == set(encoding.names)
    values, features = encoding.readable(frame)
    assert found.to_dict() == explain_labels(model.predict(frame), values, features).to_dict()
    renamed = explain(model, frame, ["sort", "when", "extent"])
    assert {name.replace("=", ":").split(":")[0] for name in renamed.feature_names} <= {"sort", "when", "extent"}
    with pytest.raises(InputError, match="feature_names"):
        explain(model, frame, ["sort"])


@pytest.mark.parametrize("seed", range(3))
def test_gaps_can_tell_a_cluster(seed: int) -> None:
    """Where a text column is missing exactly in one cluster, rules of held-back rows say so too."""
    random = np.random.default_rng(seed)
    seen = random.random(600) < 0.85
    reason = np.where(seen, random.choice(["x", "y", "z"], 600, p=[0.6, 0.2, 0.2]), None)
    frame = pd.DataFrame({"observed": seen, "reason": reason, "noise": random.normal(size=600)})
    for columns, told in (
        (["observed", "reason"], "observed is false|reason is missing"),
        (["reason", "noise"], "missing"),
    ):
        found = explain((~seen).astype(int), frame[columns])
        for rule in found.rules:
            assert (rule.precision, rule.coverage) == (1, 1)
        assert re.search(told, found.rules[1].conditions[0])
        assert found.fidelity == 1


def test_values_or_gaps_are_told_together() -> None:
    random = np.random.default_rng(0)
    price = random.uniform(0, 10, 500)
    price[random.random(500) < 0.2] = np.nan
    inside = np.isnan(price) | (price > 6)
    rule = explain(inside.astype(int), pd.DataFrame({"price": price})).rules[1]
    assert re.fullmatch(r"price > 6(\.0\d*)? or missing|price > 5\.9\d* or missing", rule.conditions[0])
    assert rule.precision > 0.97
    ((_, low, high, missing),) = rule.bounds
    assert 5.9 < low < 6.1
    assert (high, missing) == (np.inf, True)


def test_clusters_of_one_column_are_told_apart_by_its_ranges() -> None:
    year = np.repeat(np.arange(1950, 2010, 5), 20)
    names = explain((year - 1950) // 12, pd.DataFrame({"year": year})).names
    assert names == {
        0: "low year",
        1: "year 1965 to 1970",
        2: "year 1975 to 1985",
        3: "year 1990 to 1995",
        4: "high year",
    }
    # A time in the middle is told by its bounds.
    day = pd.Series(pd.date_range("2020-03-01", periods=90, freq="D"))
    names = explain(np.arange(90) // 30, pd.DataFrame({"day": day})).names
    assert names[0] == "early day"
    assert re.fullmatch(r"day 2020-03-3\d to 2020-04-\d\d", names[1])


def test_an_explanation_is_shown_as_it_is_printed() -> None:
    found = explain(np.repeat([0, 1], 20), pd.DataFrame({"size": np.repeat([1.0, 9.0], 20)}))
    assert repr(found) == str(found)


def test_a_name_says_no_more_than_its_rule() -> None:
    """Below a bound with as many others below it: not high, rather than medium."""
    random = np.random.default_rng(0)
    discount, region = random.uniform(0, 1, 900), random.choice([0, 1], 900)
    labels = np.where(discount > 0.8, 2, region)
    names = explain(labels, pd.DataFrame({"discount": discount, "region": random.normal(5 * region, 0.1)})).names
    assert "not high discount" in names[0]
    assert "medium" not in " ".join(names.values())


def test_high_is_what_few_of_the_others_exceed() -> None:
    """Of three clusters the second has the lowest values, and the third higher ones than the first."""
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [570, 250, 180])
    length = random.normal(np.array([93.0, 40.0, 100.0])[labels], 10)
    action = pd.Series(np.where(labels == 2, "yes", "no"))
    names = explain(labels, pd.DataFrame({"length": length, "action": action})).names
    assert not names[0].startswith("high length")
    assert "low length" in names[1]


def test_thresholds_have_few_digits() -> None:
    """A split between 0.32 and 0.34 lies next to a 0.33 of other rows, in single precision."""
    assert _rounded(0.32999999821186066, np.array([0.31, 0.32, 0.33, 0.34])) == 0.32
    assert _rounded(2.4499, np.array([1.0, 2.0, 3.0])) == 2


def test_names_say_mostly_what_does_not_hold_for_nearly_all() -> None:
    labels = np.repeat([0, 1], 100)
    colour = (Feature("colour", "red"), Feature("colour", "blue"), Feature("colour", "other"))
    rows = np.zeros((200, 3))
    # Of cluster 0 three quarters are red, the rest are none of the three; cluster 1 is blue.
    rows[:75, 0] = rows[100:, 1] = 1
    assert name_clusters(labels, rows, colour) == {0: "colour is not blue", 1: "colour is blue"}
    assert name_clusters(labels, rows[:, [0]], colour[:1]) == {0: "colour is mostly red", 1: "colour is not red"}
    # No rule tells these: what is said compares shares. Fewer of other values is not a name.
    rows[:] = 0
    rows[:30, 0] = rows[30:90, 1] = rows[90:100, 2] = 1
    rows[100:105, 0] = rows[105:140, 1] = rows[140:, 2] = 1
    name = name_clusters(labels, rows, colour)[0]
    assert "other" not in name
    half = np.tile([1.0, 1, 0, 0, 0, 0, 0, 0, 0, 0], 20)
    half[:100] = np.tile([1.0, 1, 1, 0, 0, 0, 0, 0, 0, 0], 10)
    assert name_clusters(labels, half[:, None], (Feature("town", "Ulm"),))[0] == "town more often Ulm"


def test_names_say_what_few_others_are_and_a_column_once() -> None:
    """What a cluster is not names it only where many others are that."""
    random = np.random.default_rng(0)
    town = random.choice([f"t{index}" for index in range(12)], 1_200)
    labels = np.isin(town, ["t0", "t1", "t2"]).astype(int)
    frame = pd.DataFrame({"town": town, "size": random.normal(size=1_200)})
    names = [rule.name for rule in explain(labels, frame).rules]
    assert re.fullmatch(r"town is t\d+, t\d+ or 7 others", names[0])
    assert re.fullmatch(r"town is t[012], t[012] or t[012]", names[1])
    # Nothing is said of a column that does not differ.
    mixed = np.where(random.random(1_200) < 0.25, 1 - labels, labels)
    names = [rule.name for rule in explain(mixed, frame).rules]
    assert all(name.count("town") == 1 and "size" not in name for name in names), names


def test_what_is_missing_or_not_a_value_is_said_so() -> None:
    random = np.random.default_rng(1)
    sex = random.choice(["female", "male", "none"], 600, p=[0.5, 0.3, 0.2]).astype(object)
    sex[::10] = None
    labels = (sex == "female").astype(int)
    said = str(explain(labels, pd.DataFrame({"sex": sex, "size": random.normal(size=600)})))
    assert "not female or missing" not in said
    assert "sex is missing or not female" in said


def test_bounds_are_said_as_they_hold() -> None:
    whole, broken = np.array([1.0, 2.0, 5.0, 9.0]), np.array([1.5, 2.0, 17.5, 18.0])
    assert _in_numbers(Condition(0, low=3.5), whole, Feature("rooms")) == "rooms from 5"
    assert _in_numbers(Condition(0, low=1.5, high=7.0), whole, Feature("rooms")) == "rooms 2 to 5"
    assert _in_numbers(Condition(0, low=17.5), broken, Feature("width")) == "width above 17.5"
    assert _in_numbers(Condition(0, high=17.5), broken, Feature("width")) == "width up to 17.5"
    assert _in_numbers(Condition(0, low=1975.0), broken, Feature("Year", is_date=True)).startswith("Year after 19")


def test_a_cluster_of_one_row_is_told_without_estimates() -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[0] += 50
    labels = np.repeat([0, 1], 30)
    labels[0] = 2
    found = explain(labels, X)
    assert "cluster 2 (1 row): high column" in str(found)
    assert found.rules[2].sentence.endswith(": how far that holds of others, one row does not tell.")
    assert (found.rules[2].precision, found.rules[2].coverage) == (0, 0)


def test_most_clusters_may_have_one_row() -> None:
    found = explain(np.arange(24) % 14, np.random.default_rng(0).normal(size=(24, 3)))
    assert len(found.rules) == 14


def test_of_many_columns_those_that_measure_one_thing_are_said_once() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(3, size=300)
    levels = np.array([[1, -1, 0], [-1, 1, 0], [0, 0, 2]])[labels]
    frame = pd.DataFrame(
        {
            f"{name}_q{number}": level + random.normal(size=300)
            for name, level in zip(("money", "travel", "sport"), levels.T, strict=True)
            for number in range(30)
        }
    )
    names = name_clusters(labels, frame.to_numpy(), tuple(map(Feature, frame)))
    assert set(names[0].split(", ")) <= {"high money_q*", "low travel_q*"}
    assert set(names[1].split(", ")) <= {"low money_q*", "high travel_q*"}
    assert names[2] == "high sport_q*"


def test_columns_of_one_name_that_measure_several_things_are_said_by_themselves() -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(300, 100))
    labels = (values[:, 3] > 0) + 2 * (values[:, 7] > 0)
    names = name_clusters(labels, values, tuple(Feature(f"x{at}") for at in range(100)))
    assert {frozenset(name.split(", ")) for name in names.values()} == {
        frozenset([one, other]) for one in ("low x3", "high x3") for other in ("low x7", "high x7")
    }


@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int8, np.int64])
def test_labels_are_whole_numbers_of_any_kind(kind: type[np.integer]) -> None:
    labels = KMeans(3, random_state=0, n_init=5).fit(IRIS).labels_
    assert explain(labels.astype(kind), IRIS).rules == explain(labels, IRIS).rules
    if np.iinfo(kind).max > 10**9:
        codes = labels.astype(kind)
        codes[labels == 2] = np.iinfo(kind).max
        with pytest.raises(InputError, match="numbers clusters from 0"):
            explain(codes, IRIS)
