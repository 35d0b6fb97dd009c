"""Encoding: what a model reads of columns, by plain references, and as it lives in model files."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from coverings import IS_FULL, examples
from data_files import FAST, frame, plan_array, plan_table, pollux
from data_files import write_table as table_in
from pollux import GeminiClustering, load
from pollux.data.encoding import ArrayEncoding, Category, Encoding, Number, TableEncoding, UnseenValues, UnseenWarning
from pollux.data.scaling import FittedScaling
from pollux.data.survey import ArraySurvey, Choices, split_names
from pollux.errors import InputError, command_line
from pollux.io import tensors as checked_tensors
from pollux.names import MISSING_IN_FILES


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def through_json(plan: Encoding) -> Encoding:
    return Encoding.from_json(json.loads(json.dumps(plan.as_json())))


# References


def test_columns_are_encoded_as_scikit_learn_does() -> None:
    data = frame(50)
    plan = plan_table(pa.Table.from_pandas(data), Choices(label="class"))
    numbers = ["size", "weight", "count"]
    assert plan.names == [*numbers, "colour", "alive"]
    ones = OneHotEncoder(sparse_output=False).fit_transform(data[["colour"]])
    ones -= ones.mean(0)
    expected = np.hstack(
        [
            StandardScaler().fit_transform(data[numbers]),
            # All values of a column together have the variance of one column of numbers.
            ones / np.sqrt(ones.var(0).sum()),
            StandardScaler().fit_transform(data[["alive"]]),
        ]
    )
    encoded = plan.encode(data)
    assert encoded.dtype == np.float32
    np.testing.assert_allclose(encoded, expected, rtol=1e-6, atol=1e-6)
    assert plan.feature_names == [
        *numbers,
        "colour=dark blue",
        "colour=green",
        "colour=red",
        "alive=true",
    ]
    assert plan.shares == frozenset(plan.feature_names[3:])


def test_arrays_are_standardised_by_column() -> None:
    X = np.random.default_rng(0).normal(size=(40, 5)) * [1, 10, 1e6, 1e-6, 0] + 3
    plan = plan_array(X, Choices())
    np.testing.assert_allclose(plan.encode(X), StandardScaler().fit_transform(X)[:, :4], rtol=1e-5, atol=1e-5)
    assert plan.left_out == {"4": "it has one value throughout"}
    assert plan.feature_names == ["0", "1", "2", "3"]


def test_images_are_standardised_by_channel() -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 6, 5), dtype=np.uint8)
    images[:, 2] = 9
    plan = plan_array(images, Choices())
    flat = np.moveaxis(images, 1, 3).reshape(-1, 3).astype(float)
    expected = np.moveaxis(StandardScaler().fit_transform(flat).reshape(20, 6, 5, 3), 3, 1)
    np.testing.assert_allclose(plan.encode(images), expected, rtol=1e-5, atol=1e-5)
    assert plan.is_image


@pytest.mark.parametrize("scaling", ["auto", "standard", "global"])
@pytest.mark.parametrize("factor", [1.0, 2.9, 3.1])
@pytest.mark.parametrize("d", [1, 2, 5, 6])
def test_numbers_are_scaled_as_an_estimator_scales_them(scaling: str, factor: float, d: int) -> None:
    """Where the largest range is that many times the one in the middle; a constant column is of no weight."""
    X = np.random.default_rng(d).uniform(-1, 1, (40, d))
    X[:2] = [[-1.0], [1.0]]
    X[:, 0] *= factor
    X += 100
    expected = FittedScaling.fit(X, scaling)(torch.from_numpy(X)).numpy()
    rows = plan_array(np.column_stack([X, np.ones(40)]), Choices(scaling=scaling))
    np.testing.assert_allclose(rows.encode(np.column_stack([X, np.ones(40)])), expected, rtol=1e-5, atol=1e-6)
    # Truth is a number too, which is 0 or 1.
    data = table(**{f"x{index}": X[:, index] for index in range(d)}, truth=X[:, 0] > 100)
    X = np.column_stack([X, X[:, 0] > 100])
    expected = FittedScaling.fit(X, scaling)(torch.from_numpy(X)).numpy()
    plan = through_json(plan_table(data, Choices(scaling=scaling)))
    np.testing.assert_allclose(plan.encode(data), expected, rtol=1e-5, atol=1e-6)
    assert len(set(plan.scales)) == 1 or scaling != "global"


def test_without_scaling_values_are_as_they_are() -> None:
    """As in an estimator: a gap is read as the mean of its column, and nothing else changes."""
    X = np.array([[1.0, 10.0], [2.0, 30.0], [6.0, np.nan]])
    choices = Choices(scaling="none", missing="mean")
    expected = FittedScaling.fit(X, "none")(torch.from_numpy(X)).numpy()
    np.testing.assert_array_equal(expected, [[1, 10], [2, 30], [6, 20]])
    rows = through_json(plan_array(X, choices))
    np.testing.assert_array_equal(rows.encode(X), expected)
    assert rows.scales == (1.0, 1.0)
    data = table(a=X[:, 0], b=X[:, 1])
    np.testing.assert_array_equal(through_json(plan_table(data, choices)).encode(data), expected)
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 6, 5)).astype(float)
    images[3, 1, 2, 2] = np.nan
    encoded = plan_array(images, choices).encode(images)
    np.testing.assert_array_equal(encoded[~np.isnan(images)], images[~np.isnan(images)])
    np.testing.assert_allclose(encoded[3, 1, 2, 2], np.nanmean(images[:, 1]), rtol=1e-6)


def test_gaps_are_of_no_weight_to_scales() -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[::7, 1] = np.nan
    plan = plan_array(X, Choices(scaling="global", missing="mean"))
    expected = FittedScaling.fit(X, "global")(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(plan.encode(X), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scaling", ["auto", "global"])
def test_images_get_one_scale(scaling: str) -> None:
    """That of an estimator, whose centre is a pixel's."""
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 6, 5), dtype=np.uint8)
    plan = plan_array(images, Choices(scaling=scaling))
    expected = float(FittedScaling.fit(images.astype(np.float64), scaling).scale)
    np.testing.assert_allclose(plan.scales, [expected] * 3, rtol=1e-12)
    np.testing.assert_allclose(plan.mean, images.mean((0, 2, 3)), rtol=1e-12)
    # Channels of different units.
    wide = images * np.array([1.0, 1.0, 100.0])[:, None, None]
    assert (len(set(plan_array(wide, Choices(scaling=scaling)).scales)) > 1) == (scaling == "auto")
    parts = [ArraySurvey((3, 6, 5), Choices(scaling=scaling)) for _ in range(2)]
    parts[0].add(images[:7])
    parts[1].add(images[7:])
    parts[0].merge(parts[1])
    np.testing.assert_allclose(parts[0].plan().scales, plan.scales, rtol=1e-12)


def test_columns_of_any_units_have_one_scale() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2)) * 1e200
    assert plan_array(X / 1e100, Choices(scaling="global")).encode(X / 1e100).std() == pytest.approx(1, rel=1e-5)


def test_missing_values_are_those_of_the_average_row() -> None:
    data = table(a=[1.0, None, 3.0, float("nan"), 5.0, 7.0] * 2, b=["x", "y", None, "x", "z", "y"] * 2)
    plan = plan_table(data, Choices(missing="mean"))
    encoded = plan.encode(data)
    np.testing.assert_allclose(encoded[[1, 3], 0], 0, atol=1e-12)
    np.testing.assert_array_equal(encoded[2, 1:], 0)
    plain = plan_table(data, Choices(missing="mean", scaling="none")).encode(data)
    np.testing.assert_allclose(plain[2, 1:], [2 / 5, 2 / 5, 1 / 5], rtol=1e-6)
    there = np.array([1.0, 3, 5, 7])
    np.testing.assert_allclose(encoded[[0, 2, 4, 5], 0], (there - there.mean()) / there.std(), rtol=1e-6)
    np.testing.assert_array_equal(plan.complete(data)[:6], [True, False, False, False, True, True])
    raw = plan.readable(data)[0][:6]
    np.testing.assert_array_equal(raw[:, 0], [1, np.nan, 3, np.nan, 5, 7])
    np.testing.assert_array_equal(raw[2, 1:], [np.nan] * 3)


def test_missing_values_are_refused_with_their_counts() -> None:
    data = table(a=[1.0, None, 3.0, float("nan")], b=["x", "y", None, "x"], c=[1, 2, 3, 5])
    with pytest.raises(InputError, match=r"'a' \(2\), 'b' \(1\) of 4 rows"):
        plan_table(data, Choices())
    whole = plan_table(table(a=[1.0, 2.0], b=["x", "y"], c=[1, 4]), Choices())
    with pytest.raises(InputError, match=r"'a' \(2\), 'b' \(1\) of 4 rows"):
        whole.encode(data)


def test_a_column_that_is_read_already_is_not_suggested_for_one_that_lacks() -> None:
    plan = plan_table(table(bill_length=[1.0, 4.0, 2.0], bill_depth=[3.0, 1.0, 9.0]), Choices())
    with pytest.raises(InputError, match=r"not there: 'bill_length'\. There are: 'bill_depth', 'x'"):
        plan.check_names(["bill_depth", "x"])
    with pytest.raises(InputError, match=r"'bill_length'\. Did you mean 'bill_len'\?"):
        plan.check_names(["bill_depth", "bill_len"])


def unseen(plan: TableEncoding, data: Any) -> dict[str, int]:
    """How many values training has not seen, by column."""
    counts = UnseenValues()
    plan.encode(data, counts)
    return dict(counts)


def test_values_that_training_has_not_seen_are_zeros() -> None:
    plan = plan_table(table(a=range(9), b=["x", "y", "v"] * 3), Choices(columns=["a", "b"], scaling="none"))
    new = table(a=[1.0, 2.0, 4.0], b=["z", "y", "w"])
    with pytest.warns(UnseenWarning, match="2 values of column 'b' were not seen in training, such as 'z', 'w'; 66.7%"):
        encoded = plan.encode(new)
    np.testing.assert_array_equal(encoded[:, 1:], [[0, 0, 0], [0, 0, 1], [0, 0, 0]])
    assert unseen(plan, new) == {"b": 2}


def test_blanks_around_values_do_not_matter() -> None:
    values = ["x", " y", "v  ", "x ", "y", "v", "x", "\ty", None]
    plan = plan_table(table(a=range(9), b=values), Choices(columns=["a", "b"], missing="mean", scaling="none"))
    assert plan.feature_names == ["a", "b=v", "b=x", "b=y"]
    new = table(a=[1.0, 2.0, 4.0], b=["x", "  y", " w"])
    np.testing.assert_array_equal(plan.encode(new, UnseenValues())[:, 1:], [[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert unseen(plan, new) == {"b": 1}
    np.testing.assert_array_equal(plan.readable(new)[0][:, 1:], [[0, 1, 0], [0, 0, 1], [0, 0, 0]])


def test_values_of_older_models_may_have_blanks_around_them() -> None:
    plan = TableEncoding((Category("b", ("  Death ", "Death", " x"), (0.25, 0.25, 0.5)),))
    new = table(b=["  Death ", "Death", "x", " x", "y"])
    expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]]
    np.testing.assert_array_equal(plan.encode(new, UnseenValues()), expected)
    assert unseen(plan, new) == {"b": 1}


def test_columns_are_found_by_name_in_any_order() -> None:
    data = frame()
    plan = plan_table(pa.Table.from_pandas(data), Choices(label="class"))
    expected = plan.encode(data)
    shuffled = data[data.columns[::-1]].assign(more=1)
    arrow = pa.Table.from_pandas(shuffled)
    for other in (shuffled, arrow, arrow.to_batches()[0], arrow.to_pydict()):
        np.testing.assert_array_equal(plan.encode(other), expected)
    with pytest.raises(InputError, match="'colour'"):
        plan.encode(data.drop(columns="colour"))
    with pytest.raises(InputError, match="by name"):
        plan.encode(data.to_numpy())


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    plan = plan_table(table(a=[1.0, 2.0], b=[1, 4]), Choices())
    with pytest.raises(InputError, match="'a'"):
        plan.encode(table(a=[1.0, value], b=[1, 2]))
    with pytest.raises(InputError, match="'a'"):
        plan_table(table(a=[1.0, value, 1e308], b=[1, 4, 5]), Choices())
    array = plan_array(np.array([[1.0], [2.0]]), Choices())
    with pytest.raises(InputError, match="'0'"):
        array.encode(np.array([[1.0], [value]]))


def test_other_shapes_are_refused() -> None:
    plan = plan_array(np.random.default_rng(0).normal(size=(5, 3)), Choices())
    for other in (np.ones((5, 4)), np.ones(3), [[1, 2, 3]], np.ones((2, 3, 1))):
        with pytest.raises(InputError, match="shape"):
            plan.encode(other)


# Which columns


def kinds(**columns: Any) -> tuple[list[str], dict[str, str]]:
    plan = plan_table(table(always=np.arange(len(next(iter(columns.values())))) ** 2, **columns), Choices())
    return plan.names[1:], dict(plan.left_out)


def test_identifiers_are_left_out() -> None:
    n = 30
    for name, values in {
        "a": [f"n{index}" for index in range(n)],
        "b": range(n),
        "row": range(7, n + 7),
        "level_id": range(n),
        "customer_id": [index * 37 % 101 for index in range(n)],
        "key": [2 * index for index in range(n)],
        # The index of rows that were drawn or sorted, as pandas writes it.
        "unnamed_0": [index * 37 % 101 for index in range(n)],
        "Unnamed: 0": [index * 37 % 101 for index in range(n)],
        "__index_level_0__": [index * 37 % 101 for index in range(n)],
        # Numbers of sites, of which one was split, and of runners, of whom some ran twice.
        "rownames": [2.0, 6.0, 7.0, 7.1, *np.arange(9.0, n + 5)],
        "Site.No.": [2.0, 6.0, 7.0, 7.1, *np.arange(9.0, n + 5)],
        "bib_num": [1690 + index * 37 % 19 for index in range(n)],
    }.items():
        names, left_out = kinds(**{name: list(values)})
        assert not names
        assert "identifier" in left_out[name]


def test_measurements_are_no_identifiers() -> None:
    n = 30
    for name, values in {
        # In steps of one, but not from 0 or 1, or with the name of a measurement.
        "height": range(58, n + 58),
        "x": range(-20, n - 20),
        "dose": range(n),
        "size_mm": range(1, n + 1),
        "a": np.random.default_rng(0).normal(size=n),
        "b": [index * 37 % 101 for index in range(n)],
        "c": [index % 3 for index in range(n)],
        "mid": [2 * index for index in range(n)],
        "paid": [2 * index for index in range(n)],
        # How many there are of each.
        "No.motif": [2.0 * index for index in range(n)],
        "patient_num": [index * 7 % 10 for index in range(n)],
    }.items():
        assert kinds(**{name: list(values)}) == ([name], {})


def test_text_of_many_values_is_left_out() -> None:
    names, left_out = kinds(a=[f"n{index % 25}" for index in range(60)])
    assert not names
    assert "25 different values" in left_out["a"]
    data = table(a=[f"n{index % 25}" for index in range(60)])
    assert len(plan_table(data, Choices(columns=["a"])).feature_names) == 25
    assert len(plan_table(data, Choices(kinds={"a": "text"})).feature_names) == 25


def test_numbers_may_be_categories() -> None:
    data = table(a=[1, 2, 3, 1, 2, 3], b=[1.5, 2, 3, 4, 5, 7])
    plan = plan_table(data, Choices(kinds={"a": "text"}, scaling="none"))
    assert plan.feature_names == ["a=1", "a=2", "a=3", "b"]
    np.testing.assert_array_equal(plan.encode(data)[:, :3], np.tile(np.eye(3), (2, 1)))


def test_numbers_with_a_few_words_among_them_get_advice() -> None:
    names, left_out = kinds(a=[*map(str, range(28)), "?", "?"])
    assert not names
    assert left_out["a"].endswith("not '?': make these None and the column one of numbers")
    with command_line():
        assert kinds(a=[*map(str, range(28)), "?", "?"])[1]["a"].endswith("--kinds number a reads these as gaps")


def test_numbers_with_one_word_among_them_get_advice_too() -> None:
    names, left_out = kinds(a=[*(f"{index * index}.5" for index in range(29)), "?"])
    assert not names
    assert left_out["a"].endswith("make these None and the column one of numbers")


def test_categories_are_the_same_from_text_and_numbers() -> None:
    """A CSV file says 1.0 where a Parquet file has the number."""
    plan = plan_table(table(a=["1.0", "2.0", "3.5"] * 3, b=np.arange(9) ** 2), Choices(kinds={"a": "text"}))
    numbers = table(a=[1.0, 2.0, 3.5] * 3, b=np.arange(9) ** 2)
    assert unseen(plan, numbers) == {}


def test_names_are_split_unless_a_column_is_called_so() -> None:
    assert split_names(["a,b", "c"], ["a", "b", "c"]) == ("a", "b", "c")
    assert split_names(["a,b", "c"], ["a,b", "a", "b", "c"]) == ("a,b", "c")


@pytest.mark.parametrize(
    "given", [{"columns": ["nowhere"]}, {"drop": ["nowhere"]}, {"use": ["nowhere"]}, {"kinds": {"nowhere": "id"}}]
)
def test_columns_that_are_not_there_are_named(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="'nowhere'"):
        plan_table(table(a=[1, 2, 5]), Choices(**given))
    with pytest.raises(InputError, match="'nowhere'"):
        plan_table(table(a=[1, 2, 5]), Choices(label="nowhere"))


# Through JSON

names_of_columns = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@st.composite
def tables_of_anything(draw: st.DrawFn) -> pa.Table:
    n = draw(st.integers(2, 12))
    columns: dict[str, pa.Array] = {}
    for name in draw(st.lists(names_of_columns, min_size=1, max_size=5, unique=True)):
        values: st.SearchStrategy[Any] = draw(
            st.sampled_from(
                [
                    st.one_of(st.none(), st.floats(-1e30, 1e30), st.just(math.nan)),
                    st.one_of(st.none(), st.integers(-(2**53), 2**53)),
                    st.one_of(st.none(), st.booleans()),
                    st.one_of(st.none(), st.sampled_from(["a", "b", "", "ä", "=1", "1.0"])),
                    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
                ]
            )
        )
        columns[name] = pa.array(draw(st.lists(values, min_size=n, max_size=n)))
    return pa.table(columns)


@settings(max_examples=examples(150), deadline=None)
@given(data=tables_of_anything(), missing=st.sampled_from(MISSING_IN_FILES))
def test_any_table_is_read_the_same_after_its_way_through_json(data: pa.Table, missing: str) -> None:
    try:
        plan = plan_table(data, Choices(missing=missing))
    except InputError as error:
        assert str(error)  # noqa: PT017
        return
    again = through_json(plan)
    assert again == plan
    if missing == "drop":
        data = data.filter(plan.complete(data))
    try:
        encoded = plan.encode(data)
    except InputError:
        with pytest.raises(InputError):
            again.encode(data)
        return
    np.testing.assert_array_equal(again.encode(data), encoded)
    assert np.isfinite(encoded).all()
    assert encoded.shape == (data.num_rows, len(plan.feature_names))
    assert not unseen(plan, data)
    values, features = plan.readable(data)
    assert values.shape == (data.num_rows, len(features))
    assert {feature.source for feature in features} == set(plan.names)
    assert {*plan.names, *plan.left_out} == set(data.column_names)


@settings(max_examples=examples(50), deadline=None)
@given(seed=st.integers(0, 10**6), shape=st.sampled_from([(1,), (4,), (1, 3, 2), (3, 2, 4)]))
def test_any_array_is_read_the_same_after_its_way_through_json(seed: int, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(seed)
    X = random.normal(size=(6, *shape)) * 10 ** random.uniform(-20, 20)
    plan = plan_array(X, Choices())
    again = through_json(plan)
    assert again == plan
    np.testing.assert_array_equal(again.encode(X), plan.encode(X))


# In model files


@pytest.fixture(scope="module", params=["table", "array"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    if request.param == "table":
        data = table_in(folder, "plain.csv", frame())
    else:
        data = folder / "array.npy"
        np.save(data, np.random.default_rng(0).normal(size=(20, 4)))
    assert pollux("fit", data, *FAST, "--out", folder / "run").code == 0
    return folder / "run" / "model.safetensors"


def contents(path: Path) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, file.metadata(), json.loads(file.metadata()["description"])


def sealed(path: Path, model: Path, preprocessing: Any) -> Path:
    """The model with another preprocessing, and the right checksum."""
    tensors, metadata, description = contents(model)
    text = json.dumps({**description, "preprocessing": preprocessing})
    save_file(
        tensors, path, metadata={**metadata, "description": text, "sha256": checked_tensors.checksum(tensors, text)}
    )
    return path


def lies(value: Any) -> Iterator[Any]:
    """The value with something else in each place of it, or less."""
    odd: list[Any] = [None, [], {}, "x", -1, 1e308, True, [[[]]], {"a": {}}, 10**30, [None], ["x"], [-1]]
    yield from odd
    if isinstance(value, dict):
        for key in value:
            yield {other: item for other, item in value.items() if other != key}
            yield from ({**value, key: lie} for lie in lies(value[key]))
    elif isinstance(value, list):
        for index in range(min(len(value), 3)):
            yield [*value[:index], *value[index + 1 :]]
            yield from ([*value[:index], lie, *value[index + 1 :]] for lie in lies(value[index]))


def test_descriptions_that_lie_are_refused_in_words_or_do_not_matter(model: Path, tmp_path: Path) -> None:
    """What is not read without a model is not read with one either: each of the ways to fail, once or a few times."""
    _, _, description = contents(model)
    tried: Counter[str] = Counter()
    for lie in lies(description["preprocessing"]):
        try:
            preprocessing = Encoding.from_json(lie) if lie is not None else None
        except (KeyError, TypeError, AttributeError, IndexError, OverflowError, ValueError) as error:
            way = f"{type(error).__name__}: {error}"
            tried[way] += 1
            if tried[way] > (3 if IS_FULL else 1):
                continue
            with pytest.raises(ValueError, match=r"model\.pollux|not a|invalid|could not|values|lengths"):
                load(sealed(tmp_path / "model.pollux", model, lie))
        else:
            assert preprocessing is None or isinstance(preprocessing, TableEncoding | ArrayEncoding)


def shorter(preprocessing: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Without its last column, which the model reads."""
    if preprocessing["kind"] == "table":
        yield {**preprocessing, "columns": preprocessing["columns"][:-1]}
        yield {**preprocessing, "columns": []}
        yield {**preprocessing, "columns": [*preprocessing["columns"], preprocessing["columns"][0]]}
    else:
        for name in ("mean", "scale", "kept"):
            yield {**preprocessing, name: preprocessing[name][:-1]}
        yield {**preprocessing, "kept": [*preprocessing["kept"][:-1], 99]}


def test_lengths_that_differ_are_refused(model: Path, tmp_path: Path) -> None:
    _, _, description = contents(model)
    preprocessing = description["preprocessing"]
    for lie in shorter(preprocessing):
        with pytest.raises(ValueError, match="not a whole model file"):
            load(sealed(tmp_path / "model.pollux", model, lie))


@pytest.mark.parametrize("change", [{"missing": "whatever"}, {"kind": "number of no kind"}], ids=str)
def test_words_that_mean_nothing_are_refused(model: Path, tmp_path: Path, change: dict[str, str]) -> None:
    _, _, description = contents(model)
    preprocessing = description["preprocessing"]
    if "kind" in change and preprocessing["kind"] == "table":
        first = {"values": [], "shares": [], "boolean": False, **preprocessing["columns"][0], **change}
        lie = {**preprocessing, "columns": [first, *preprocessing["columns"][1:]]}
    elif "kind" in change:
        lie = {**preprocessing, "mean": [math.nan] * len(preprocessing["mean"])}
    else:
        lie = {**preprocessing, **change}
    with pytest.raises(ValueError, match="not a whole model file"):
        load(sealed(tmp_path / "model.pollux", model, lie))


def test_files_of_the_second_version_load(tmp_path: Path) -> None:
    """They had no preprocessing."""
    X = np.random.default_rng(0).normal(size=(20, 4))
    fitted = GeminiClustering(3, max_epochs=2, random_state=0).fit(X)
    fitted.save(tmp_path / "new")
    tensors, metadata, description = contents(tmp_path / "new")
    assert description.pop("preprocessing") is None
    text = json.dumps(description)
    checksum = checked_tensors.checksum(tensors, text)
    save_file(tensors, tmp_path / "old", metadata={**metadata, "version": "2", "description": text, "sha256": checksum})
    loaded = load(tmp_path / "old")
    assert loaded.encoding_ is None
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


def test_a_loaded_model_reads_data_frames(model: Path) -> None:
    """Columns in any order, and what it says is what was written of them."""
    loaded = load(model)
    clusters = pd.read_csv(model.parent / "clusters.csv")
    written = clusters[["p_0", "p_1", "p_2"]].to_numpy(np.float32)
    if isinstance(loaded.encoding_, TableEncoding):
        data: Any = frame()[frame().columns[::-1]]
    else:
        data = np.load(model.parent.parent / "array.npy")
    # Four decimals are written.
    np.testing.assert_allclose(loaded.predict_proba(data), written, atol=0.51e-4)
    np.testing.assert_array_equal(loaded.predict(data), clusters["cluster"])


def test_a_model_that_is_fitted_anew_forgets_its_preprocessing(model: Path) -> None:
    X = np.random.default_rng(1).normal(size=(20, 2))
    loaded = load(model).fit(X)
    assert loaded.encoding_ is None
    assert loaded.predict_proba(X).shape == (20, 3)


def test_a_plan_may_be_made_by_hand() -> None:
    plan = TableEncoding((Number("a", 1.0, 2.0), Category("b", ("x", "y"), (0.25, 0.75))), "mean")
    with pytest.warns(UnseenWarning):
        encoded = plan.encode({"b": ["y", None, "z"], "a": [3.0, None, 1.0]})
    np.testing.assert_array_equal(encoded, np.array([[1, 0, 1], [0, 0.25, 0.75], [0, 0, 0]], dtype=np.float32))
    assert through_json(plan) == plan
