"""The benchmarks of scale and of numbers of clusters run; the sets that are made from packages."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmark_scripts import BENCHMARKS, benchmark_script
from pollux.errors import InputError
from pollux.lab.quality.labelled_sets import DEVELOPMENT, HELD_OUT, read_file

in_full = pytest.mark.skipif(os.environ.get("POLLUX_FAULTS") != "full", reason="make test-faults runs it")


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    return benchmark_script("scale")


@pytest.fixture(scope="module")
def further() -> ModuleType:
    return benchmark_script("further_tables")


@pytest.fixture(scope="module")
def packages() -> ModuleType:
    return benchmark_script("further_packages")


@pytest.fixture(scope="module")
def r_data() -> ModuleType:
    return benchmark_script("r_data")


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


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    return benchmark_script("measure")


def test_tables_are_put_between_their_marks(measure: ModuleType) -> None:
    page = "# Title\n<!-- cost:begin -->\nold\n<!-- cost:end -->\nrest\n"
    assert measure.fill(page, {"cost": "new\n"}) == "# Title\n<!-- cost:begin -->\nnew\n<!-- cost:end -->\nrest\n"
    with pytest.raises(ValueError, match="the page has 0 places between <!-- scale:begin"):
        measure.fill(page, {"scale": "new"})


@pytest.mark.parametrize("page", ["docs/speed.md", "README.md"])
def test_pages_show_the_recorded_speed(measure: ModuleType, page: str) -> None:
    text = (measure.ROOT / page).read_text(encoding="utf-8")
    assert measure.filled(text, page) == text, "run python benchmarks/measure.py"


def test_a_part_of_a_benchmark_is_recorded_in_place_of_what_was_recorded_before(
    measure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path / "speed")
    row = measure.Row("fit", 1.0, 8.0, 4)
    for part, rows in (("a", [row]), ("b", [row, row]), ("a", [measure.Row("fit, worst", 2.0, 8.0, 4)])):
        measure.record("core", part, rows, "here")
    assert [one.work for one in measure.recorded("core", tmp_path / "speed")] == ["fit, worst", "fit", "fit"]
    table = measure.details("core", tmp_path / "speed")
    assert "| fit, worst | 2.00 s | 8.00 s | 4.00x | >= 4x | yes |" in table
    assert table.endswith(": here")


def test_numbers_of_clusters_are_told_and_counted() -> None:
    selection = benchmark_script("selection")
    data = {one.name: one for one in selection.all_data(0)}
    assert {one.number for one in data.values() if one.kind == "no clusters"} == {1}
    assert {len(one.X) for one in data.values() if one.kind != "classes"} == {selection.ROWS}
    assert all(np.isfinite(one.X).all() and len(one.X) <= selection.MOST_ROWS for one in data.values())
    blobs = data["3 blobs, 10 columns"]
    assert [selection.METHODS[name](blobs.X, 0) for name in list(selection.METHODS)[:3]] == [3, 3, 3]
    told = {name: [3, 2] for name in selection.METHODS}
    *lines, counted, near = selection.table({("clusters", "three", 3): told, ("clusters", "two", 2): told})
    assert lines[0] == ("three", "3", *["3 2"] * len(told))
    assert counted == ("clusters: the known number", "of 4", *["2"] * len(told))
    assert near == ("clusters: within one", "of 4", *["4"] * len(told))


def test_further_sets_are_no_sets_that_settings_were_chosen_on(further: ModuleType) -> None:
    assert {name: len(sets) for name, sets in further.COLLECTIONS.items()} == {"validation": 37, "unseen": 61}
    sets = [labelled for collection in further.COLLECTIONS.values() for labelled in collection]
    names = [labelled.name for labelled in sets]
    assert len({*names}) == len(names)
    assert {labelled.package for labelled in sets} == set(further.PACKAGES)
    # As KEEL calls some of them; yeast.rda has expressions of genes.
    others = ("housevotes", "newthyroid", "penbased", "wdbc")
    known = {name.replace("_", "") for name in (*DEVELOPMENT, *HELD_OUT, *others)}
    files = [Path(file).stem for labelled in sets for file in labelled.files if not file.endswith("/yeast.rda")]
    assert not {name.lower().replace("_", "").replace("-", "") for name in (*names, *files)} & known


def test_the_records_are_those_of_further_sets(further: ModuleType) -> None:
    lines = (BENCHMARKS.parent / "results" / "quality" / "quality.jsonl").read_text(encoding="utf-8").splitlines()
    recorded = {(one["group"], one["set"]) for one in (json.loads(line)["settings"] for line in lines)}
    for collection, sets in further.COLLECTIONS.items():
        assert {name for group, name in recorded if group == collection} == {labelled.name for labelled in sets}


FILES = {
    "one.dat": "@relation one\n@data\n1, 7, red, yes, b\n?, 7, blue, no, a\n3, 7, <null>, yes, b\n4, 7, green, no, a\n",
    "two.csv": "species,size,place\nx,1,here\ny,,there\n,3,here\ny,4,here\nx,5,here\ny,6,here\nz,7,here\n",
    "three_TRAIN.ts": "@problemName three\n@data\n1,2:3,4:b\n5,6:7,8:a\n5,6:7,9:a\n",
    "three_TEST.ts": "@problemName three\n@data\n9,1:2,3:b\n0,1:2,3:b\n",
}


@pytest.fixture
def made_up(further: ModuleType, packages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the wheel of a package, and collections of sets of it and of one that cannot be had."""
    wheel = tmp_path / "made_up-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setitem(packages.PACKAGES, "made-up", ("1.0", "whl", checksum))
    monkeypatch.setitem(packages.PACKAGES, "r-made-up", ("2.0", "deb", ""))
    readers = benchmark_script("further_readers")
    parts = ("three_TRAIN.ts", "three_TEST.ts")
    validation = (
        further.Labelled("one", "made-up", ("one.dat",)),
        further.Labelled("two", "made-up", ("two.csv",), readers.csv, label="species", drop=("place",)),
    )
    unseen = (
        further.Labelled("three", "made-up", parts, readers.series),
        further.Labelled("four", "r-made-up", ("four",)),
        further.Labelled("five", "r-made-up", ("five",)),
        further.Labelled("parts", "made-up", parts, readers.series, None, (readers.CLASS,)),
    )
    monkeypatch.setattr(further, "COLLECTIONS", {"validation": validation, "unseen": unseen})
    monkeypatch.setenv("PATH", "")
    return tmp_path


def test_sets_are_read_from_a_wheel(further: ModuleType, made_up: Path) -> None:
    folder = made_up / "sets"
    sizes = {f"{group}/{one.name}": size for group, one, size in further.write(folder, made_up)}
    reason = sizes.pop("unseen/four")
    assert sizes.pop("unseen/five") == reason
    assert "apt-get of Debian 12 (bookworm) cannot fetch r-made-up 2.0 here" in reason
    assert f"Put r-made-up_2.0_*.deb into {made_up} yourself" in reason
    # Left out are a constant column, rows without a class or without a value, and a class of one row.
    expected = {"validation/one": (4, 5, 2, 4), "validation/two": (4, 1, 2, 0)}
    assert sizes == expected | {"unseen/three": (5, 4, 2, 0), "unseen/parts": (5, 4, 2, 0)}
    made = {name: read_file(folder / f"{name}.npz") for name in sizes}
    nan = np.nan
    words = [[0, 0, 1, 1], [1, 0, 0, 0], [nan, nan, nan, 1], [0, 1, 0, 0]]
    np.testing.assert_array_equal(made["validation/one"].X, np.column_stack([[1, nan, 3, 4], words]))
    np.testing.assert_array_equal(made["unseen/three"].X[:3], [[1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 7, 9]])
    classes = {"one": [1, 0, 1, 0], "two": [0, 1, 0, 1], "three": [1, 0, 0, 1, 1], "parts": [0, 0, 0, 1, 1]}
    assert {name.partition("/")[2]: samples.y.tolist() for name, samples in made.items()} == classes


def test_packages_are_those_that_were_published(further: ModuleType, made_up: Path) -> None:
    before = [size for *_, size in further.write(made_up / "sets", made_up)]
    (made_up / "made_up-1.0-py3-none-any.whl").write_bytes(b"something else")
    # What is there is not made again.
    assert [size for *_, size in further.write(made_up / "sets", made_up)] == before
    with pytest.raises(InputError, match="is not the package that was published"):
        list(further.write(made_up / "others", made_up))


def test_what_cannot_be_made_is_told(
    further: ModuleType, made_up: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["further_tables.py", str(made_up / "sets"), "--cache", str(made_up)])
    assert further.main() == 1
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == [
        *("validation/one", "validation/two", "unseen/three", "unseen/parts")
    ]
    assert said.err.startswith("Not made: unseen/four, unseen/five. apt-get of Debian 12 (bookworm) cannot fetch ")


# Data of R, as it is written by save().


def text(value: str | None) -> bytes:
    coded = b"" if value is None else value.encode()
    return struct.pack(">ii", 9, -1 if value is None else len(coded)) + coded


def pairs(**parts: bytes) -> bytes:
    cells = (struct.pack(">i", 2 | 1024) + struct.pack(">i", 1) + text(name) + part for name, part in parts.items())
    return b"".join(cells) + struct.pack(">i", 254)


def vector(kind: int, values: Sequence[Any], attributes: bytes = b"") -> bytes:
    """A list of texts (16) or of objects (19), or whole (13) or real (14) numbers."""
    head = struct.pack(">ii", kind | (512 if attributes else 0), len(values))
    if kind in (16, 19):
        return head + b"".join(map(text, values) if kind == 16 else values) + attributes
    return head + struct.pack(f">{len(values)}{'i' if kind == 13 else 'd'}", *values) + attributes


def saved(**objects: bytes) -> bytes:
    return b"RDX2\nX\n" + struct.pack(">iii", 2, 0, 0) + pairs(**objects)


NA = -(2**31)
FACTOR = vector(13, [2, 1, NA, 2], pairs(levels=vector(16, ["low", "high"])))
NAMES = {"names": vector(16, ["size", "kind", "word"]), "class": vector(16, ["data.frame"])}
FRAME = vector(19, [vector(13, [3, NA, 5, 6]), FACTOR, vector(16, ["a", None, "b", "c"])], pairs(**NAMES))
MATRIX = vector(14, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], pairs(dim=vector(13, [3, 2])))


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_data_of_r_are_read(r_data: ModuleType, compress: Callable[[bytes], bytes]) -> None:
    slots = struct.pack(">i", 25 | 512) + pairs(tab=MATRIX)
    objects = r_data.saved(compress(saved(table=FRAME, object=slots)))
    table = objects["table"].frame()
    assert list(table.columns) == ["size", "kind", "word"]
    np.testing.assert_array_equal(table["size"], [3, np.nan, 5, 6])
    assert table["kind"].fillna("none").tolist() == ["high", "low", "none", "high"]
    assert objects["table"]["word"].array().tolist() == ["a", None, "b", "c"]
    np.testing.assert_array_equal(objects["object"]["tab"].array(), [[1, 4], [2, 5], [3, 6]])


def test_data_of_r_in_a_data_base(r_data: ModuleType) -> None:
    content = saved(it=MATRIX).removeprefix(b"RDX2\n")
    packed = struct.pack(">i", len(content)) + zlib.compress(content)
    where = vector(13, [5, len(packed)])
    variables = vector(19, [where], pairs(names=vector(16, ["it"])))
    index = b"X\n" + struct.pack(">iii", 2, 0, 0) + vector(19, [variables], pairs(names=vector(16, ["variables"])))
    read = r_data.from_data_base(zlib.compress(index), b"other" + packed, "it")
    np.testing.assert_array_equal(read["it"].array(), [[1, 4], [2, 5], [3, 6]])


@pytest.mark.parametrize("content", [b"RDA2\nA\n", b"RDX2\nX\n" + struct.pack(">iiii", 2, 0, 0, 21)])
def test_other_data_of_r_are_refused(r_data: ModuleType, content: bytes) -> None:
    with pytest.raises(ValueError, match="R"):
        r_data.saved(content)


def test_a_package_of_debian_is_opened(packages: ModuleType, tmp_path: Path) -> None:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:xz") as archive:
        member = tarfile.TarInfo("./usr/lib/R/site-library/made/data/it.rda")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"data"))
    parts = {"debian-binary": b"2.0", "control.tar.xz": b"even", "data.tar.xz": inner.getvalue()}
    package = b"!<arch>\n"
    for name, content in parts.items():
        package += f"{name:<16}{'0':<12}{'0':<6}{'0':<6}{'644':<8}{len(content):<10}`\n".encode()
        package += content + b"\n" * (len(content) % 2)
    path = tmp_path / "made.deb"
    path.write_bytes(package)
    assert packages.contents(path, ["made/data/it.rda"]) == [b"data"]
