"""Data frames of columns of all kinds: the plan of columns is that of a file, and the model keeps it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

from pollux import GeminiClustering, load
from pollux.app.run_data import open_run_data
from pollux.app.settings import Settings
from pollux.clustering import OutsideWarning
from pollux.data.encoding import UnseenWarning
from pollux.errors import InputError
from pollux.spec import Scaling

N = 60


def guests() -> pd.DataFrame:
    """Numbers with gaps, text, categories, truth values, dates, prices and what tells nothing."""
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, N)
    data = pd.DataFrame(
        {
            "guest_id": random.permutation(N),
            "age": 30.0 + 20 * kind + random.normal(size=N),
            "diet": np.where(kind, "any", np.where(random.random(N) < 0.5, "vegan", "fish")),
            "room": pd.Categorical(random.choice(["A", "B", "C"], N)),
            "paid": random.random(N) < 0.5,
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, N), unit="D"),
            "price": [f"${1000 + value:,}" for value in random.integers(0, 5_000, N)],
            "remark": ["late", *[None] * (N - 1)],
        }
    )
    data.loc[3, "age"] = np.nan
    return data


def clustering(**parameters: Any) -> GeminiClustering:
    given: dict[str, Any] = {"model": "linear", "objective": "mmd_ova", "geometry": "linear", "init": "random"}
    given |= {"preprocessing": Scaling("auto", missing="mean"), "max_epochs": 30, "n_init": 1, "random_state": 0}
    return GeminiClustering(2, **given | {"batch_size": None} | parameters)


@pytest.fixture(scope="module")
def fitted() -> GeminiClustering:
    return clustering().fit(guests())


def test_frames_of_polars_are_read_as_those_of_pandas(fitted: GeminiClustering) -> None:
    """It exports text as views, and categories as a dictionary of views."""
    table = pa.Table.from_pandas(guests(), preserve_index=False)
    for name in ("diet", "price", "remark"):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.string_view()))
    rooms = table["room"].combine_chunks()
    rooms = pa.DictionaryArray.from_arrays(rooms.indices.cast(pa.uint32()), rooms.dictionary.cast(pa.string_view()))
    halves = pa.chunked_array([rooms[:20], rooms[20:]])
    table = table.set_column(table.column_names.index("room"), "room", halves)
    np.testing.assert_array_equal(fitted.predict_proba(table), fitted.predict_proba(guests()))
    assert clustering().fit(table).columns_ == fitted.columns_


def test_a_lazy_frame_is_refused() -> None:
    class LazyFrame:
        columns = ("a",)
        collect = collect_schema = None

    with pytest.raises(InputError, match=r"X is a LazyFrame, which holds no rows yet: pass X\.collect\(\)"):
        clustering().fit(LazyFrame())


def test_columns_tell_what_became_of_them(fitted: GeminiClustering) -> None:
    found = {each.name: (each.kind, each.used) for each in fitted.columns_}
    assert found == {
        "guest_id": ("id", False),
        "age": ("number", True),
        "diet": ("text", True),
        "room": ("text", True),
        "paid": ("text", True),
        "day": ("date", True),
        "price": ("number", True),
        "remark": ("text", False),
    }
    assert "1 gap filled" in fitted.columns_[1].reason
    assert "not used" in str(fitted.columns_)
    assert list(pd.DataFrame(fitted.columns_)) == ["name", "kind", "used", "reason"]
    assert fitted.n_features_in_ == 8
    assert list(fitted.feature_names_in_) == list(guests())


def test_frames_of_all_libraries_are_predicted_alike(fitted: GeminiClustering) -> None:
    expected = fitted.predict_proba(guests())
    assert (expected.argmax(1) == fitted.labels_).all()
    table = pa.Table.from_pandas(guests())
    shared = type("Shared", (), {"__arrow_c_stream__": lambda self, schema=None: table.__arrow_c_stream__(schema)})()
    for other in (table, guests()[guests().columns[::-1]], shared):
        np.testing.assert_array_equal(fitted.predict_proba(other), expected)
    for other in (table, shared):
        np.testing.assert_array_equal(clustering().fit(other).labels_, fitted.labels_)
    assert np.isfinite(fitted.score(guests()))


def test_the_plan_is_that_of_a_file(fitted: GeminiClustering, tmp_path: Path) -> None:
    guests().to_parquet(tmp_path / "guests.parquet")
    settings = Settings(data=str(tmp_path / "guests.parquet"), scaling="auto")
    data = open_run_data(settings)
    assert fitted.encoding_ is not None
    assert [(each.name, each.kind, each.used) for each in data.encoding.decisions] == [
        (each.name, each.kind, each.used) for each in fitted.columns_
    ]
    np.testing.assert_array_equal(fitted.encoding_.encode(guests()), data.samples)


def test_models_keep_it(fitted: GeminiClustering, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m.safetensors")
    for other in (load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.predict_proba(guests()), fitted.predict_proba(guests()))
        assert other.columns_ == fitted.columns_
        assert other.n_features_in_ == 8
    assert clone(fitted).get_params()["n_clusters"] == 2


def test_gaps_are_refused_where_they_are_not_to_be_filled() -> None:
    with pytest.raises(ValueError, match=r"'age' \(1\) of 60 rows"):
        clustering(preprocessing=None).fit(guests())


def test_frames_are_trained_in_parts_and_with_weights() -> None:
    one = clustering()
    for _ in range(2):
        one.partial_fit(guests())
    assert len(one.labels_) == N
    weight = np.ones(N)
    weight[:5] = 0
    assert (clustering().fit(guests(), sample_weight=weight).labels_[:5] >= 0).all()


def test_a_frame_of_numbers_is_read_as_it_is() -> None:
    X = np.random.default_rng(0).normal(size=(N, 3))
    frame = pd.DataFrame(X, columns=list("abc"))
    for data in (frame, pa.Table.from_pandas(frame)):
        plain = clustering().fit(data)
        assert plain.encoding_ is None
        assert [each.used for each in plain.columns_] == [True] * 3
        assert list(plain.feature_names_in_) == list("abc")
        np.testing.assert_array_equal(plain.predict_proba(data), clustering().fit(X).predict_proba(X))
    numbered = clustering().fit(frame.assign(id=range(N)))
    assert [each.name for each in numbered.columns_ if not each.used] == ["id"]


@pytest.mark.parametrize("two", [("no", "yes"), (0, 1), (False, True)])
def test_two_values_give_the_same_clusters_however_they_are_written(two: tuple[Any, Any]) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"u": random.normal(size=N), "v": 3 * random.normal(size=N)})
    is_one = random.random(N) < 0.3
    expected = clustering().fit(frame.assign(w=is_one.astype(float)))
    found = clustering().fit(frame.assign(w=np.where(is_one, two[1], two[0])))
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-5)


def test_samples_far_outside_the_training_are_warned_of(fitted: GeminiClustering, tmp_path: Path) -> None:
    strange = guests()
    strange.loc[:30, "age"] *= 1000
    fitted.save(tmp_path / "m.safetensors")
    for model in (fitted, load(tmp_path / "m.safetensors")):
        with pytest.warns(OutsideWarning, match="^50% of the samples lie far outside .* in 'age'"):
            model.predict(strange)
    X = np.random.default_rng(0).normal(size=(N, 3))
    plain = clustering(preprocessing=None).fit(X)
    with pytest.warns(OutsideWarning, match="100% .* in '1'"):
        plain.predict_proba(X * [1, 0, 1] + [0, 1e4, 0])
    # One of many may be far off.
    assert len(plain.predict(np.r_[np.tile(X, (5, 1)), [[1e3, 0, 0]]])) == 5 * N + 1


def test_numbers_and_words_in_one_column_are_text() -> None:
    mixed = guests()[["age", "diet"]].assign(odd=pd.Series([1, "two", 3.5] * 20, dtype=object))
    assert clustering().fit(mixed).columns_[2].kind == "text"


def test_intervals_are_text() -> None:
    frame = guests()[["age", "diet"]].fillna(40.0)
    for cut in (pd.cut(frame.age, 3), pd.Series(pd.cut(frame.age, 3).array.astype("interval"))):
        data = frame.assign(cut=cut)
        model = clustering().fit(data)
        assert [(each.kind, each.used) for each in model.columns_][2] == ("text", True)
        np.testing.assert_array_equal(model.predict(data), model.labels_)


def test_frames_that_are_none_say_what_is_wrong(fitted: GeminiClustering) -> None:
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)), columns=["a", "b", "a"])
    frame = numbers.set_axis(["a", "b", "c"], axis=1)
    cases = [
        (frame.a, "a table or \\(n, d\\) array is needed; series.to_frame"),
        (frame.assign(z=1j), "Complex numbers are not read, and 'z' holds some"),
        (frame.assign(z=1j, word="x"), "and 'z' holds some"),
        (numbers, "more than one column called 'a': rename"),
        (numbers.assign(word="x"), "more than one column called 'a': rename"),
    ]
    for data, says in cases:
        with pytest.raises(InputError, match=says):
            clustering().fit(data)
    with pytest.raises(InputError, match=r"series\.to_frame"):
        fitted.predict(guests().age)


def test_durations_are_numbers_of_seconds() -> None:
    frame = pd.DataFrame({"a": np.random.default_rng(0).normal(size=N), "b": np.arange(N) % 7 * 1.5})
    timed = frame.assign(b=pd.to_timedelta(frame.b, unit="s"))
    model = clustering().fit(timed)
    assert [each.kind for each in model.columns_] == ["number", "number"]
    np.testing.assert_array_equal(model.predict(timed), clustering().fit(frame).labels_)


def test_rows_without_weight_teach_nothing() -> None:
    data = guests().fillna({"age": 40.0})[["age", "diet", "price"]]
    other = pd.concat([data, pd.DataFrame({"age": [1e6], "diet": ["stones"], "price": ["$7"]})], ignore_index=True)
    weight = np.append(np.ones(N), 0.0)
    with pytest.warns(UnseenWarning, match="1 values of column 'diet'"):
        model = clustering().fit(other, sample_weight=weight)
    assert model.encoding_ == clustering().fit(data).encoding_
    assert len(model.labels_) == N + 1


def test_advice_is_what_python_has() -> None:
    with pytest.raises(InputError, match=r"\(Scaling\(missing='mean'\)\), or drop such rows\.$"):
        clustering(preprocessing=None).fit(guests())
    with pytest.raises(InputError, match=r"missing values, make them None; or leave the column out\.$"):
        clustering().fit(guests().assign(age=[np.inf, *range(N - 1)]))


def test_frames_of_narwhals_are_read_as_what_they_hold() -> None:
    narwhals = pytest.importorskip("narwhals")
    frame = pd.DataFrame({"kind": ["a", "b"] * 30, "size": np.arange(60.0) % 7})
    model = {"model": "linear", "objective": "mmd_ova", "init": "kmeans", "n_init": 1, "max_epochs": 2}
    plain = GeminiClustering(2, **model, random_state=0).fit(frame)
    other = GeminiClustering(2, **model, random_state=0).fit(narwhals.from_native(frame))
    assert [each.name for each in other.columns_] == ["kind", "size"]
    assert (other.predict(narwhals.from_native(frame)) == plain.labels_).all()


def test_a_column_in_another_unit_is_warned_of() -> None:
    """Kilograms for grams are less than a width of the column away from its range, and all of them outside it."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"mass": random.uniform(2700, 6300, 200), "length": random.uniform(30, 60, 200)})
    clustering = GeminiClustering(2, model="linear", max_epochs=3, random_state=0).fit(frame)
    with pytest.warns(OutsideWarning, match="^100% of the samples .* in 'mass'"):
        clustering.predict(frame.assign(mass=frame["mass"] / 1000))
    # Warnings are errors here.
    clustering.predict(frame.assign(mass=frame["mass"] + 300))


def test_known_clusters_may_be_missing_and_names_are_numbered_first() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    clustering = GeminiClustering(2, model="linear", max_epochs=3, random_state=0)
    known = np.r_[0.0, 1.0, np.full(38, np.nan)]
    np.testing.assert_array_equal(
        clustering.fit(X, known=known).labels_, clustering.fit(X, known=np.nan_to_num(known, nan=-1)).labels_
    )
    np.testing.assert_array_equal(
        clustering.fit(X, known=[0, 1, *[None] * 38]).labels_, clustering.fit(X, known=known).labels_
    )
    blobs = np.repeat(np.eye(2, 3) * 20, 20, axis=0) + X
    assert GeminiClustering("auto", random_state=0).fit(blobs, known=known).n_clusters_ == 2
    for names in (np.where(np.isnan(known), None, "a"), pd.Series(["a", "b"] * 20, dtype="category")):
        with pytest.raises(InputError, match=r"pandas\.Categorical"):
            clustering.fit(X, known=names)
    with pytest.raises(ValueError, match="ask for at most 10 clusters"):
        GeminiClustering(20).fit(X[:10])


def test_frames_of_narwhals_are_those_that_they_stand_for() -> None:
    narwhals = pytest.importorskip("narwhals")
    frame = guests()
    expected = clustering().fit(frame)
    found = clustering().fit(narwhals.from_native(frame))
    np.testing.assert_array_equal(found.feature_names_in_, expected.feature_names_in_)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_array_equal(found.predict(narwhals.from_native(frame)), expected.labels_)


def test_text_in_a_column_of_numbers_is_to_be_converted_and_in_another_left_out() -> None:
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["a", "b"])
    clustering = GeminiClustering(2, model="linear", max_epochs=1, random_state=0).fit(numbers)
    with pytest.raises(ValueError, match=r"columns b do not hold numbers.*convert them"):
        clustering.predict(numbers.astype({"b": "string"}))
    # Older releases of scikit-learn refuse further columns before they are read.
    with pytest.raises(ValueError, match=r"columns c do not hold numbers.*leave them out|unseen at fit time:\n- c"):
        clustering.predict(numbers.assign(c="x"))
