"""What becomes of columns as people have them: the evidence, the words for it, and how it is overruled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from data_files import plan_table
from pollux.data.encoding import Category, Date, Number, TableEncoding
from pollux.data.spellings import DATES, read_times, written_numbers
from pollux.data.survey import Choices, TableSurvey
from pollux.errors import InputError, command_line

N = 40


def plan(values: Any, name: str = "x", **choices: Any) -> TableEncoding:
    """That of a column beside one of numbers."""
    rows = len(values)
    table = pa.table({"size": np.arange(rows) ** 1.5, name: values})
    return plan_table(table, Choices(**{"missing": "mean", **choices}))


def decided(values: Any, name: str = "x", **choices: Any) -> tuple[str, bool, str]:
    found = plan(values, name, **choices).decisions[1]
    assert found.name == name
    return found.kind, found.used, found.reason


def numbers(*texts: str, decimal: str = ".") -> NDArray[np.float64]:
    return written_numbers(pa.array(texts), decimal)[0]


# Numbers as people write them


def test_numbers_are_read_as_people_write_them() -> None:
    found = numbers("$42,000", "€ 1,234.50", "-$3", "($5)", "45 %", "1 234", "12 kg", "1'000 CHF", ".5", "2e3", "−7")
    np.testing.assert_array_equal(found, [42_000, 1_234.5, -3, -5, 45, 1_234, 12, 1_000, 0.5, 2_000, -7])
    np.testing.assert_array_equal(numbers("1.234,56", "12,5", "-3 €", decimal=","), [1_234.56, 12.5, -3])
    assert np.isnan(numbers("3A", "1,23", "12-13", "", "$", "abc", "1.2.3", "5 6")).all()


def test_prices_are_numbers_and_that_is_said() -> None:
    prices = [f"${1000 + 37 * index:,}" for index in range(N)]
    kind, used, reason = decided(prices)
    assert (kind, used) == ("number", True)
    assert '"$"' in reason
    column = plan(prices).columns[1]
    assert isinstance(column, Number)
    table = pa.table({"size": np.arange(3.0), "x": ["$1,000", "2000", "$37"]})
    np.testing.assert_array_equal(plan(prices).readable(table)[0][:, 1], [1_000, 2_000, 37])
    # A table of the same column in numbers is read alike.
    as_floats = pa.table({"size": np.arange(3.0), "x": [1_000.0, 2_000.0, 37.0]})
    np.testing.assert_array_equal(plan(prices).encode(as_floats), plan(prices).encode(table))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([f"{index},5" for index in range(N)], "number"),
        ([f"1.{index:03},25" for index in range(N)], "number"),
        ([f"{index * 2.5} %" for index in range(N)], "number"),
        # Percentages and numbers are of different units, and so are two currencies.
        ([f"{index} %" if index % 2 else f"0.{index}" for index in range(N)], "id"),
        ([f"${index}" if index % 2 else f"€{index}" for index in range(N)], "id"),
        # Words of more than twelve letters are not units.
        ([f"{index} kilowatthour" for index in range(N)], "number"),
        ([f"{index} kilowatthours" for index in range(N)], "id"),
        # Codes are names.
        ([f"{index:05}" for index in range(N)], "id"),
        (["1", "2", "3", "4"] * 10, "text"),
    ],
)
def test_units_and_codes_decide_whether_text_is_numbers(values: list[str], kind: str) -> None:
    assert decided(values)[0] == kind


def test_points_separate_thousands_beside_decimal_commas() -> None:
    commas, points = [f"{index},5" for index in range(N)], ["1.660", "417", "-1.250", "85"] * (N // 4)

    def decide(*columns: list[str]) -> list[tuple[str, str]]:
        found = plan_table(pa.table({f"x{index}": values for index, values in enumerate(columns)}), Choices())
        return [(column.decimal, each.reason) for column, each in zip(found.columns, found.decisions, strict=True)]  # type: ignore[union-attr]

    (comma, thousands) = decide(commas, points)
    assert comma == (",", "written as text, decimal comma")
    assert thousands == (",", "written as text, points separate thousands")
    assert decide(points) == [(".", "written as text")]
    # Thousands do not begin with zero, and have groups of three digits.
    for other in ("0.125", "12.5", "1.6605"):
        assert decide([*commas, "1,5"], [*points, other])[1] == (".", "written as text")


@pytest.mark.parametrize("cut", [0, 1, N // 2])
def test_a_rare_word_among_numbers_counts_as_missing(cut: int) -> None:
    """Wherever it stands, also in new rows; other words do not."""
    values = [f"{index * index}" for index in range(5 * N)]
    values[cut] = values[-1] = " nil"
    assert decided(values) == ("number", True, "written as text; 'nil' counts as missing; 2 gaps filled")
    encoding = plan(values)
    new = pa.table({"size": np.arange(3.0), "x": ["nil ", "4", None]})
    encoded = encoding.encode(new)[:, 1]
    assert encoded[0] == encoded[2] == 0 != encoded[1]
    assert TableEncoding.from_json(encoding.as_json()) == encoding
    with pytest.raises(InputError, match="'none' is not one"):
        encoding.encode(new.set_column(1, "x", pa.array(["nil", "none", "4"])))
    # Two words, a word with digits, a frequent one, and numbers that are names.
    for strange in (["?"], ["12a"], ["nil"] * N):
        assert not decided([*values, *strange])[1]
    assert not decided(values, "case_id")[1]
    assert not decided(values, missing="error")[1]
    parts = TableSurvey(["x"], Choices(missing="mean"))
    for start in range(0, len(values), 7):
        parts.add(pa.table({"x": values[start : start + 7]}))
    assert parts.plan().decisions[0] == encoding.decisions[1]


def test_words_among_numbers_are_gaps_where_the_user_says_so() -> None:
    values = [*map(str, range(0, 2 * N, 2)), "unknown", "?"]
    assert not decided(values)[1]
    kind, used, reason = decided(values, kinds={"x": "number"})
    assert (kind, used) == ("number", True)
    assert "2 values are not numbers; 2 gaps filled" in reason
    with pytest.raises(InputError, match=r"'x' \(2\) of 42"):
        plan(values, kinds={"x": "number"}, missing="error")


def test_new_words_are_refused_where_training_had_none() -> None:
    trained = plan([f"${index}" for index in range(N)])
    with pytest.raises(InputError, match="must hold numbers, and 'free' is not one"):
        trained.encode(pa.table({"size": [1.0], "x": ["free"]}))


@pytest.mark.parametrize(
    ("unit", "other", "is_same"),
    [(" km", " %", False), (" km", " miles", False), (" %", "", False), ("$", "", True), (" km", " km", True)],
)
def test_units_are_those_of_training(unit: str, other: str, is_same: bool) -> None:
    def table(unit: str) -> pa.Table:
        spelled = [f"${index}.5" if unit == "$" else f"{index}.5{unit}" for index in range(N)]
        return pa.table({"size": np.arange(N) ** 1.5, "x": spelled})

    trained = plan(table(unit)["x"])
    assert trained.encode(table(unit)).shape == (N, 2)
    if is_same:
        np.testing.assert_array_equal(trained.encode(table(other)), trained.encode(table(unit)))
    else:
        with pytest.raises(InputError, match=f"unit '{other.strip()}', and '{unit.strip()}' in training"):
            trained.encode(table(other))


# Dates


@pytest.mark.parametrize(
    ("form", "texts"),
    {
        "year-month-day": [
            "2012-12-31 17:30",
            "2012/12/31T17:30:00Z",
            "2012-12-31 18:30:00+01:00",
            "2012.12.31 5:30 pm",
        ],
        "day.month.year": ["31.12.2012 17:30", "31/12/12 17:30"],
        "month/day/year": ["12/31/2012 5:30 PM", "12-31-2012 17:30"],
        "day month year": ["31 Dec 2012 17:30", "31-December-12 17:30", "Mon, 31 Dec 2012 17:30:00 GMT"],
        "month day year": ["Dec 31 2012 17:30", "December 31st, 2012, 17:30"],
    }.items(),
)
def test_dates_are_read_in_the_usual_forms(form: str, texts: list[str]) -> None:
    expected = float(np.datetime64("2012-12-31T17:30:00", "s").astype(np.int64))
    np.testing.assert_array_equal(read_times(pa.array(texts), form), expected)


@pytest.mark.parametrize("form", DATES)
def test_what_is_no_date_is_none(form: str) -> None:
    texts = [
        "2012-02-30",
        "31.31.2012",
        "2012-13-01",
        "32 Dec 2012",
        "Foo 3 2012",
        "25:00",
        "12:60",
        "",
        "word",
        "20121301",
    ]
    assert np.isnan(read_times(pa.array(texts), form)).all()


DAYS = np.datetime64("2012-01-01") + np.arange(0, 20 * N, 20).astype("timedelta64[D]")
SPELLED = {
    "dates": pa.array(DAYS),
    "times": pa.array(DAYS.astype("datetime64[s]")),
    "ISO": DAYS.astype(str),
    "slashes": np.char.replace(DAYS.astype(str), "-", "/"),
    "dots": [f"{day.day}.{day.month}.{day.year}" for day in DAYS.tolist()],
    "American": [f"{day.month}/{day.day}/{day.year}" for day in DAYS.tolist()],
    "words": [day.strftime("%d-%b-%Y") for day in DAYS.tolist()],
    "compact": [int(day.strftime("%Y%m%d")) for day in DAYS.tolist()],
}


@pytest.mark.parametrize("spelled", SPELLED)
def test_dates_are_features_however_they_are_written(spelled: str) -> None:
    values = SPELLED[spelled]
    found = plan(values)
    assert isinstance(found.columns[1], Date)
    assert found.decisions[1].reason.startswith("year, season, weekday")
    encoded = found.encode(pa.table({"size": np.arange(float(N)), "x": values}))[:, 1:]
    # The same numbers, and together the variance of one column.
    table = pa.table({"size": np.arange(float(N)), "x": SPELLED["dates"]})
    np.testing.assert_allclose(encoded, plan(SPELLED["dates"]).encode(table)[:, 1:], atol=1e-6)
    np.testing.assert_allclose(encoded.var(0).sum(), 1, rtol=1e-5)


def test_facets_are_those_along_which_dates_vary() -> None:
    def facets(first: str, step: int, unit: str) -> str:
        start = np.datetime64(first)
        return decided(pa.array(start + np.arange(N) * np.timedelta64(step, unit)))[2]

    assert facets("2020-01-01T00:00:00", 5, "h") == "year, weekday, time of day"
    assert facets("2020-01-01T00:00:00", 7, "m") == "time of day"
    months = np.datetime64("2000-01") + np.arange(N).astype("timedelta64[M]")
    assert decided(pa.array(months.astype("datetime64[D]")))[2] == "year, season"
    assert (
        decided(pa.array((months + np.timedelta64(1, "M")).astype("datetime64[D]") - np.timedelta64(1, "D")))[2]
        == "year, season"
    )
    years = np.datetime64("1980") + np.arange(N).astype("timedelta64[Y]")
    assert decided(pa.array(years.astype("datetime64[D]")))[2] == "year"


def test_the_first_of_january_is_no_season_where_it_stands_for_a_year() -> None:
    days = np.datetime64("1990-03-07") + np.arange(N) * np.timedelta64(97, "D")
    assert decided(pa.array(days))[2] == "year, season, weekday"
    placeholders = days.copy()
    placeholders[::5] = placeholders[::5].astype("datetime64[Y]")
    assert decided(pa.array(placeholders))[2] == "year; many on 1 January, which tells no season"
    # Quarters begin on that day too.
    quarters = (np.datetime64("1990-01") + 3 * np.arange(N).astype("timedelta64[M]")).astype("datetime64[D]")
    assert decided(pa.array(quarters))[2] == "year, season"


@pytest.mark.parametrize("name", ["timestamp", "created_at", "createdAt", "unix time"])
@pytest.mark.parametrize("unit", [1, 1_000])
def test_seconds_since_1970_are_dates_where_the_name_says_so(name: str, unit: int) -> None:
    seconds = (1_400_000_000 + 86_400 * 9 * np.arange(N)) * unit
    assert decided(seconds, name)[0] == "date"
    assert decided(seconds, "bytes")[0] == "number"
    assert decided(np.arange(N) * 10**7, name)[0] == "number"


def test_days_and_months_are_told_apart_by_all_rows() -> None:
    ambiguous = [f"{1 + index % 12:02}/{1 + index % 7:02}/2012" for index in range(N)]
    assert "month/day/year" in decided(ambiguous)[2]
    assert "day.month.year" in decided([text.replace("/", ".") for text in ambiguous])[2]
    assert "day.month.year" in decided([*ambiguous, "31/12/2012"])[2]


def test_a_missing_date_is_the_average_one() -> None:
    values = pa.array([*DAYS[:-1].tolist(), None])
    found = plan(values)
    assert "1 gap filled" in found.decisions[1].reason
    encoded = found.encode(pa.table({"size": np.arange(float(N)), "x": values}))
    np.testing.assert_array_equal(encoded[-1, 1:], 0)


# Evidence


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("Comments", [None] * 30 + ["late", "early"] * 5, "30 of 40 values are missing"),
        ("score", [None] * 30 + list(range(10)), "30 of 40 values are missing"),
        ("Sample Number", [*range(1, 31), *range(1, 11)], "beginning anew"),
        ("row", range(7, N + 7), "counts the rows"),
        ("PID", [index * 37 % 11 for index in range(N)], "its name says so"),
        ("customerId", [float(index * 37 % 11) for index in range(N)], "its name says so"),
        ("Postal Code", [10_000 + index * 37 % 31 for index in range(N)], "numbers that are names, 31"),
        ("flight", [index * 37 % 31 for index in range(N)], "numbers that are names, 31"),
        ("Unnamed: 0", [index * 37 % 101 for index in range(N)], "own number"),
        ("name", [f"n{index}" for index in range(N)], "own value"),
        ("address", [f"n{index // 2}" for index in range(2 * N)], "40 different values"),
        ("idno", [100 + index * 37 % 101 for index in range(N)], "its name says so"),
    ],
)
def test_columns_that_tell_little_are_left_out(name: str, values: Any, says: str) -> None:
    _, used, reason = decided(list(values), name)
    assert not used
    assert says in reason
    assert plan(list(values), name, use=[name]).decisions[1].used


@pytest.mark.parametrize(
    "name",
    ["precinct", "Ward", "School District", "pickup_zone", "route", "store_nbr", "addr_pct_cd", "Branch No."],
)
def test_numbers_of_places_are_names(name: str) -> None:
    codes = [index * 37 % 6 for index in range(N)]
    assert decided(codes, name) == ("text", True, "numbers that are names, 6 values")
    assert decided(list(map(float, codes)), name) == ("text", True, "numbers that are names, 6 values")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("area", [index * 37 % 6 for index in range(N)]),
        ("zone", [index / 7 for index in range(N)]),
        ("zone", [index * 37 % 6 - 3 for index in range(N)]),
        ("distance_to_store", [index * 37 % 6 for index in range(N)]),
        ("stores", [index * 37 % 6 for index in range(N)]),
        ("sales_per_district", [index * 37 % 6 for index in range(N)]),
        ("district_size", [index * 37 % 6 for index in range(N)]),
    ],
)
def test_what_is_measured_of_places_is_a_number(name: str, values: list[float]) -> None:
    assert decided(values, name)[:2] == ("number", True)


def test_codes_that_differ_in_all_rows_tell_them_apart() -> None:
    """Also if few of them begin with a zero."""
    codes = [f"{1_001 + 999 * index:05}" for index in range(N)]
    assert sum(code.startswith("0") for code in codes) < N / 2
    assert decided(codes, "fips") == ("id", False, "an identifier: each row has its own value")


def test_texts_that_differ_in_nearly_all_rows_tell_them_apart() -> None:
    """One name that occurs twice, or is not known, does not make the others less telling."""
    names = [f"n{index}" for index in range(N - 1)]
    for values in ([*names, "n0"], [*names, None]):
        assert decided(values, "town name") == ("id", False, "an identifier: nearly each row has its own value")
        # What its name does not say is not said either: these may be measurements with notes.
        assert decided(values, "radius")[::2] == ("id", "too many different values: nearly each row has its own")
        assert plan(values, "radius").identifiers == ("radius",)
    tagged = [f"N{index % 25}A{index % 2}" for index in range(2 * N)]
    assert decided(tagged, "Individual ID")[::2] == ("id", "an identifier: 50 different values, and its name says so")
    assert decided(tagged, "hometown")[::2] == ("text", "50 different values")


def test_vectors_are_suggested_for_sentences_alone() -> None:
    def reason(*texts: str) -> str:
        with command_line():
            return decided([f"{texts[index % len(texts)]} {index}" for index in range(20)], "the text")[2]

    assert reason("It rains again in the north", "we saw two dogs").endswith(": --text 'the text'")
    for others in ("2009 W. 6th St.", "Autauga County, AL", "Cumings, Mrs. John Bradley", "1948.03.09 - 1958.06.18"):
        assert "--text" not in reason(others)


def test_columns_that_are_called_like_known_classes_are_named() -> None:
    species = ["a", "b", "c", "c"] * 10
    with command_line():
        said = "'class' is called like a known class: --label class scores against it instead of clustering on it"
        assert decided(species, "class") == ("text", True, f"3 values; {said}")
        assert "--label 'Class name'" in decided(species, "Class name")[2]
        assert "known class" in decided([0, 1] * 20, "target")[2]
    assert "X.drop(columns='target')" in decided([0, 1] * 20, "target")[2]
    # Those that are asked for, measurements and columns of other names are not.
    assert "known class" not in decided(species, "class", use=["class"])[2]
    assert not decided([0.5, 1] * 20, "y")[2]
    assert not decided([0, 99] * 20, "y")[2]
    assert not decided([0, 1] * 20)[2]


def test_a_shortened_table_begins_with_columns_that_are_not_as_most() -> None:
    many = {f"{chr(97 + index)}{chr(97 + index // 2)}": np.arange(N) ** 1.5 for index in range(20)}
    table = pa.table({**many, "kind": ["a", "b"] * 20, "target": [0, 1] * 20})
    found = plan_table(table, Choices(missing="mean")).decisions
    _, first, second, *others, last = found.lines(5)
    assert first.split()[:2] == ["target", "number"]
    assert second.split()[:2] == ["kind", "text"]
    assert [line.split()[0] for line in others] == list(many)[:3]
    assert last == "  … and 17 more, number"
    # All of them are in their order.
    assert [line.split()[0] for line in found.lines(60)[1:]] == [*many, "kind", "target"]


def test_codes_of_digits_are_not_words_among_numbers() -> None:
    codes = [f"{index:03}" for index in range(1, 400, 2)]
    assert decided(codes * 2, "county")[2] == "200 different values"


@pytest.mark.parametrize("name", ["year", "hour", "age", "width", "price_index", "acid", "number of rooms"])
def test_measurements_are_used(name: str) -> None:
    values = [1990 + index for index in range(N)] if name == "year" else [index * 37 % 24 for index in range(N)]
    assert decided(values, name)[1]


def test_frequent_values_are_kept_and_the_others_together() -> None:
    states = [*["CA"] * 300, *["NY"] * 200, *(f"S{index % 45}" for index in range(180))]
    kind, used, reason = decided(states)
    assert (kind, used) == ("text", True)
    assert reason == "47 values, the 2 frequent ones and other"
    found = plan(states)
    assert found.feature_names[1:] == ["x=CA", "x=NY", "x=other"]
    new = pa.table({"size": [1.0, 1.0, 1.0], "x": ["CA", "S3", "elsewhere"]})
    values, features = found.readable(new)
    np.testing.assert_array_equal(values[:, 1:], [[1, 0, 0], [0, 0, 1], [0, 0, 1]])
    assert [feature.value for feature in features[1:]] == ["CA", "NY", "a rare value"]
    encoded = found.encode(new)
    np.testing.assert_array_equal(encoded[1], encoded[2])


def test_what_the_user_says_is_done() -> None:
    codes = [index % 3 for index in range(N)]
    assert decided(codes)[0] == "number"
    assert decided(codes, kinds={"x": "text"})[:2] == ("text", True)
    assert decided(codes, kinds={"x": "id"}) == ("id", False, "kinds='id'")
    assert decided(codes, drop=["x"])[1:] == (False, "drop=")
    assert decided([2000 + index for index in range(N)], "ID", kinds={"ID": "date"})[:2] == ("date", True)
    assert decided(list(range(N)), "ID", kinds={"ID": "number"})[:2] == ("number", True)
    with pytest.raises(InputError, match="was asked for"):
        plan(["a"] * N, use=["x"])


# One column counts as one


def spread(values: Any, scaling: str = "standard") -> float:
    table = pa.table({"size": np.arange(float(len(values))), "x": values})
    return float(plan(values, scaling=scaling).encode(table)[:, 1:].var(0, dtype=np.float64).sum())


@pytest.mark.parametrize(("scaling", "count"), [("standard", 3), ("auto", 7), ("global", 20), ("auto", 35)])
def test_a_column_of_text_weighs_as_one_column_of_numbers(scaling: str, count: int) -> None:
    values = [f"v{index % count}" for index in range(6 * count)]
    assert spread(values, scaling) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("scaling", ["none", "standard", "auto", "global"])
def test_two_values_are_treated_alike_however_they_are_written(scaling: str) -> None:
    is_one = np.random.default_rng(0).random(N) < 0.3
    written = [is_one, is_one.astype(int), is_one.astype(float), *(np.where(is_one, *two) for two in (("yes", "no"),))]
    size = np.arange(float(N))
    tables = [pa.table({"size": size, "x": values}) for values in written]
    first, *others = [plan_table(table, Choices(scaling=scaling)).encode(table) for table in tables]
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-6)


def test_values_of_a_category_are_as_far_apart_as_two_standardised_values() -> None:
    """One-hot codes of two values, were they written out, have the distances of the one feature that they are."""
    shares = (0.3, 0.7)
    single = Category("x", ("a", "b"), shares, scale=float(np.sqrt(0.3 * 0.7)), single=True)
    both = Category("x", ("a", "b"), shares, scale=float(np.sqrt(1 - 0.3**2 - 0.7**2)))
    (a, b), (c, d) = single.codes[:2], both.codes[:2]
    assert np.linalg.norm(a - b) == pytest.approx(np.linalg.norm(c - d), rel=1e-12)


def test_categories_of_a_frame_are_names_also_where_they_are_numbers() -> None:
    values = pa.array([index % 3 for index in range(N)])
    assert decided(values)[0] == "number"
    assert decided(values.dictionary_encode()) == ("text", True, "3 values")


def test_dates_are_read_by_people_as_dates_seasons_and_days() -> None:
    days = pd.date_range("2019-01-01 06:00", periods=1000, freq="29h")
    found, table = plan(list(days)), pa.table({"size": np.arange(1000.0), "x": pa.array(days)})
    values, features = found.readable(table)
    columns = {feature.name: values[:, at] for at, feature in enumerate(features)}
    assert {feature.source for feature in features} == {"size", "x"}
    np.testing.assert_allclose(columns["x"], days.year + (days.day_of_year - 1) / 365.25, atol=0.006)
    np.testing.assert_array_equal(columns["x=Monday"], days.day_name() == "Monday")
    np.testing.assert_allclose(columns["x: hour"], days.hour, atol=1e-3)
    np.testing.assert_array_equal(columns["x=June to August"], days.month.isin([6, 7, 8]))
    np.testing.assert_array_equal(columns["x=December to February"], days.month.isin([12, 1, 2]))


def test_decisions_are_shown_as_they_are_printed() -> None:
    found = plan(["a", "b"] * 20).decisions
    assert repr(found) == str(found)
    assert "x       text" in repr(found)
