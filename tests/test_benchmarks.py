"""The benchmarks of scale run, and what they put into a page; the sets that are made from wheels."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmark_scripts import benchmark_script
from pollux.errors import InputError
from pollux.quality.sets import DEVELOPMENT, HELD_OUT, read_file

in_full = pytest.mark.skipif(os.environ.get("POLLUX_FAULTS") != "full", reason="make test-faults runs it")


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    return benchmark_script("scale")


@pytest.fixture(scope="module")
def unseen() -> ModuleType:
    return benchmark_script("unseen")


@in_full
def test_a_step_sends_what_the_formula_says(scale: ModuleType) -> None:
    batch = 20
    sent = scale.in_own_process("messages", processes=2, tasks=scale.OBJECTIVES, batch=batch)["steps"]
    expected = [scale.predicted_bytes(objective, geometry, batch) for objective, geometry in scale.OBJECTIVES]
    assert [step["bytes"] for step in sent] == expected


@in_full
def test_fits_are_compared(scale: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sizes = scale.Sizes((1_500, 3_000), 500, 0, (), turns=1, at_most=0)
    row = next(scale.streaming(sizes, threads=1))
    assert row.work == "epoch from Parquet against memory, 3,000 rows, linear"
    assert row.ours > 0
    assert row.peer > 0
    assert sorted(path.name for path in (tmp_path / "pollux-scale").iterdir()) == ["3000-500.npy", "3000-500.parquet"]


def test_tables_are_put_between_their_marks(scale: ModuleType) -> None:
    page = "# Title\n<!-- cost:begin -->\nold\n<!-- cost:end -->\nrest\n"
    assert scale.filled(page, {"cost": "new\n"}) == "# Title\n<!-- cost:begin -->\nnew\n<!-- cost:end -->\nrest\n"
    with pytest.raises(ValueError, match="the page has 0 places between <!-- scale:begin"):
        scale.filled(page, {"scale": "new"})


def test_unseen_sets_are_no_sets_that_settings_were_chosen_on(unseen: ModuleType) -> None:
    names = [labelled.name for labelled in unseen.SETS]
    files = [file for labelled in unseen.SETS for file in labelled.files]
    assert len({*names}) == len(names)
    assert len({*files}) == len(files)
    assert {labelled.package for labelled in unseen.SETS} == set(unseen.PACKAGES)
    # As KEEL calls some of them.
    others = ("housevotes", "newthyroid", "penbased", "wdbc")
    known = {name.replace("_", "") for name in (*DEVELOPMENT, *HELD_OUT, *others)}
    called = {name.lower().replace("_", "").replace("-", "") for name in (*names, *(Path(file).stem for file in files))}
    assert not called & known


FILES = {
    "one.dat": "@relation one\n@data\n1, 7, red, yes, b\n?, 7, blue, no, a\n3, 7, <null>, yes, b\n4, 7, green, no, a\n",
    "two.csv": "species,size,place\nx,1,here\ny,,there\n,3,here\ny,4,here\nx,5,here\n",
    "three_TRAIN.ts": "@problemName three\n@data\n1,2:3,4:b\n5,6:7,8:a\n",
    "three_TEST.ts": "@problemName three\n@data\n9,1:2,3:b\n",
}


def test_sets_are_read_from_a_wheel(unseen: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "made_up-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(unseen, "PACKAGES", {"made-up": ("1.0", checksum)})
    sets = (
        unseen.Labelled("one", "made-up", ("one.dat",)),
        unseen.Labelled("two", "made-up", ("two.csv",), unseen.csv, label="species", drop=("place",)),
        unseen.Labelled("three", "made-up", ("three_TRAIN.ts", "three_TEST.ts"), unseen.series),
        unseen.Labelled("parts", "made-up", ("three_TRAIN.ts", "three_TEST.ts"), unseen.series, None, ("label",)),
    )
    monkeypatch.setattr(unseen, "SETS", sets)
    sizes = {labelled.name: tuple(size) for labelled, size in unseen.write(tmp_path / "sets", tmp_path)}
    # A constant column is left out, as are a row without a class and one without a value.
    assert sizes == {"one": (4, 5, 2, 4), "two": (3, 1, 2, 0), "three": (3, 4, 2, 0), "parts": (3, 4, 2, 0)}
    made = {name: read_file(tmp_path / "sets" / f"{name}.npz") for name in sizes}
    nan = np.nan
    words = [[0, 0, 1, 1], [1, 0, 0, 0], [nan, nan, nan, 1], [0, 1, 0, 0]]
    np.testing.assert_array_equal(made["one"].X, np.column_stack([[1, nan, 3, 4], words]))
    np.testing.assert_array_equal(made["three"].X, [[1, 2, 3, 4], [5, 6, 7, 8], [9, 1, 2, 3]])
    classes = {"one": [1, 0, 1, 0], "two": [0, 1, 0], "three": [1, 0, 1], "parts": [0, 0, 1]}
    assert {name: samples.y.tolist() for name, samples in made.items()} == classes
    wheel.write_bytes(b"something else")
    # What is there is not made again.
    assert dict(unseen.write(tmp_path / "sets", tmp_path)).keys() == {*sets}
    with pytest.raises(InputError, match="is not the wheel that was published"):
        list(unseen.write(tmp_path / "others", tmp_path))
