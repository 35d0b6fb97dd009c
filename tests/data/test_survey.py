"""Surveys: parts seen one after the other, or by several processes, decide as the whole does."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunk_files import folder_of, read_all, table_of
from coverings import examples
from data_files import plan_array, plan_table, survey_array, survey_table
from pollux.data import survey as surveys
from pollux.data.shuffling import shards
from pollux.data.streams import FileChunks, open_blocks
from pollux.data.survey import ArraySurvey, Choices, TableSurvey, survey_blocks
from pollux.errors import InputError


@st.composite
def tables_in_parts(draw: st.DrawFn) -> tuple[pa.Table, list[int]]:
    n = draw(st.integers(2, 40))
    kinds = {
        "number": st.one_of(st.floats(-1e6, 1e6), st.just(3.0), st.none()),
        "whole": st.integers(-50, 50),
        "key": st.integers(0, 10_000),
        "flag": st.booleans(),
        "word": st.sampled_from(["a", "b", "?", "1", "2.0", None]),
        "many": st.text("abc1", max_size=4),
    }
    columns = {name: draw(st.lists(values, min_size=n, max_size=n)) for name, values in kinds.items()}
    types = dict.fromkeys(("word", "many"), pa.string()) | {"number": pa.float64()}
    arrays = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=5)))
    return pa.table({**arrays, "line": range(3, n + 3)}), [0, *cuts, n]


def outcome(plan: Callable[[], Any]) -> Any:
    try:
        found = plan().as_json()
    except InputError as error:
        return str(error)
    for column in found["columns"]:
        if column["kind"] == "number":
            column["mean"], column["scale"] = (pytest.approx(column[name], 1e-9, 1e-9) for name in ("mean", "scale"))
    return found


@settings(max_examples=examples(60), deadline=None)
@given(
    parts=tables_in_parts(),
    choices=st.sampled_from(
        [Choices(), Choices(missing="mean"), Choices(kinds={"whole": "text", "word": "text"}, missing="mean")]
    ),
    random=st.randoms(use_true_random=False),
)
def test_surveys_of_parts_make_that_of_the_whole(
    parts: tuple[pa.Table, list[int]], choices: Choices, random: Any
) -> None:
    table, cuts = parts
    pieces = [(start, table.slice(start, stop - start)) for start, stop in pairwise(cuts)]
    one_by_one = TableSurvey(table.column_names, choices)
    for _, piece in pieces:
        one_by_one.add(piece)
    random.shuffle(pieces)
    merged = TableSurvey(table.column_names, choices)
    for start, piece in pieces:
        other = TableSurvey(table.column_names, choices)
        other.add(piece, start)
        merged.merge(pickle.loads(pickle.dumps(other)))
    expected = outcome(lambda: plan_table(table, choices))
    assert outcome(one_by_one.plan) == expected
    assert outcome(merged.plan) == expected


def test_what_is_said_of_words_among_numbers_does_not_hang_on_the_order_of_parts() -> None:
    table = pa.table({"word": ["a", "b", "a", "1", "2", "3"], "size": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]})
    parts = [TableSurvey(table.column_names), TableSurvey(table.column_names)]
    parts[0].add(table.slice(1), 1)
    parts[1].add(table.slice(0, 1), 0)
    parts[0].merge(parts[1])
    assert "but not 'a', 'b'" in parts[0].plan().left_out["word"]


@pytest.mark.parametrize("unit", ["%", " km"])
def test_units_do_not_hang_on_where_parts_end(unit: str) -> None:
    spelled = [f"{index}.5{unit}" for index in range(20)] + [f"{index}.25" for index in range(20)]
    table = pa.table({"share": spelled, "size": np.arange(40) ** 1.5})
    halves = TableSurvey(table.column_names)
    halves.add(table.slice(0, 20))
    halves.add(table.slice(20))
    expected = outcome(lambda: plan_table(table))
    assert outcome(halves.plan) == expected
    assert ("share" in expected["left_out"]) == (unit == "%")


def test_surveys_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "_MOST_ROWS_COMPARED", 50_000)
    survey = TableSurvey(["text", "number", "key"])
    n = 20_000
    for part in range(7):
        numbers = np.arange(part * n, (part + 1) * n)
        words = np.char.add("w", (numbers % 9_000 + part).astype(str))
        survey.add(pa.table({"text": words, "number": numbers / 7, "key": numbers * 3}))
    assert len(pickle.dumps(survey)) < 100_000
    plan = survey.plan()
    assert plan.names == ["number"]
    assert plan.left_out["text"] == "more than 1,000 different values"
    assert plan.identifiers == ("key",)


def test_some_values_tell_whether_all_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "_MOST_ROWS_COMPARED", 1_000)

    def seen(*starts: int) -> surveys.Different:
        different = surveys.Different()
        for start in starts:
            different.add(pa.chunked_array([pa.array(np.arange(start, start + 400))]))
        return different

    assert seen(0, 400, 800, 0).all()
    assert not seen(0, 0).all()
    assert not seen(0, 399, 800).all()
    for first, second, differ in (([0], [400], True), ([0], [399], False), ([0, 400, 800], [9_000, 9_000], False)):
        both = seen(*first)
        both.merge(seen(*second))
        assert both.all() == differ


@pytest.mark.parametrize("n", [100, 900])
def test_most_rows_have_their_own_number_whatever_their_number(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    monkeypatch.setattr(surveys, "_MOST_ROWS_COMPARED", 1_000)
    sites = np.random.default_rng(0).permutation(np.arange(n) % (3 * n // 5)) * 3
    assert plan_table(pa.table({"x": np.arange(n) / 7, "Site No": sites})).identifiers == ("Site No",)


def test_arrays_are_surveyed_in_parts(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(100_000, 7)) * 10.0 ** np.arange(7)
    X[:, 3] = 2
    np.save(tmp_path / "x.npy", X)
    plan, lengths = survey_array(tmp_path / "x.npy")
    expected = plan_array(X, Choices())
    assert plan.kept == expected.kept
    np.testing.assert_allclose(plan.mean, X.mean(0)[list(plan.kept or ())], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(plan.scale, X.std(0)[list(plan.kept or ())], rtol=1e-12)
    assert lengths.sum() == len(X)
    first, second = (ArraySurvey((7,)) for _ in range(2))
    first.add(X[:30_000])
    second.add(X[30_000:])
    first.merge(second)
    np.testing.assert_allclose(first.plan().scale, expected.scale, rtol=1e-12)
    np.testing.assert_allclose(
        read_all(FileChunks(tmp_path / "x.npy", encoding=plan)), expected.encode(X), rtol=1e-5, atol=1e-5
    )


def with_gaps(n: int) -> pa.Table:
    random = np.random.default_rng(0)
    numbers = random.normal(size=(2, n))
    numbers[0, random.integers(0, n, n // 10)] = np.nan
    words = [None if random.random() < 0.1 else "xyz"[index % 3] for index in range(n)]
    return pa.table({"a": numbers[0], "b": numbers[1], "word": words, "none": pa.array([None] * n, pa.string())})


@pytest.mark.parametrize("missing", ["mean", "drop"])
def test_gaps_are_treated_as_in_memory(tmp_path: Path, missing: str) -> None:
    table = with_gaps(500)
    folder = folder_of(tmp_path / "data", table.slice(0, 180), table.slice(180), rows=50)
    choices = Choices(missing=missing)
    plan, lengths = survey_table(folder, choices)
    expected = plan_table(table, choices)
    if missing == "drop":
        kept = table.filter(expected.complete(table))
        expected = plan_table(kept, choices)
        table = kept
    assert lengths.sum() == table.num_rows
    assert plan.names == expected.names == ["a", "b", "word"]
    assert plan.left_out == expected.left_out
    chunks = FileChunks(folder, encoding=plan, lengths=lengths)
    np.testing.assert_allclose(read_all(chunks), expected.encode(table), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(FileChunks(folder, encoding=plan).lengths, lengths)
    with pytest.raises(InputError, match="'a'"):
        survey_table(folder)


def test_columns_that_vary_only_beside_gaps_are_left_out(tmp_path: Path) -> None:
    """Without the rows in which b is missing a has one value, and then its own gaps cost no rows."""
    a, b = [1.0, 1, 1, 1, 2, np.nan], [1.0, 2, 3, 5, np.nan, 9]
    parquet.write_table(pa.table({"a": a, "b": b}), tmp_path / "x.parquet", row_group_size=2)
    plan, lengths = survey_table(tmp_path / "x.parquet", Choices(missing="drop"))
    assert plan.names == ["b"]
    assert plan.left_out == {"a": "it has one value throughout"}
    assert lengths.tolist() == [2, 2, 1]
    assert read_all(FileChunks(tmp_path / "x.parquet", encoding=plan, lengths=lengths)).mean() < 1e-6
    np.save(tmp_path / "x.npy", np.column_stack([a, b]))
    array, kept = survey_array(tmp_path / "x.npy", Choices(missing="drop"))
    assert array.kept == (1,)
    assert kept.tolist() == [5]
    assert array.mean == (4.0,)
    assert read_all(FileChunks(tmp_path / "x.npy", encoding=array)).shape == (5, 1)


def test_processes_share_a_survey(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "data", table_of(500, 1), table_of(300, 2), rows=70)
    blocks = open_blocks(folder)
    own = shards(blocks.lengths, 3)
    (first, *others), seen = zip(*(survey_blocks(blocks, Choices(), own=part) for part in own), strict=True)
    for other in others:
        first.merge(other)
    whole, lengths = survey_table(folder)
    assert first.plan().names == whole.names
    assert sum(part.sum() for part in seen) == lengths.sum() == 800
    np.testing.assert_allclose(first.plan().columns[0].scale, whole.columns[0].scale, rtol=1e-12)


def test_files_are_read_and_surveyed_without_torch(tmp_path: Path) -> None:
    """The command line complains of a file at once."""
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,x\n")
    program = f"""
import sys
from pollux.data.sources import InMemory, open_data
from pollux.data.survey import learn_encoding
source = open_data({str(tmp_path / "x.csv")!r})
for blocks in (InMemory(source.read().rows), source.blocks()):
    encoding, _ = learn_encoding(blocks)
    assert encoding.names == ["a", "b"], encoding
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
