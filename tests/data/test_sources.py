"""Data files: the same rows from every format, and words for whatever is wrong with a file."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import textwrap
import time
import zipfile
import zlib
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from coverings import IS_FULL, in_full
from data_files import (
    FAST,
    TABLES,
    Answer,
    delimited,
    frame,
    pixels,
    plan_array,
    plan_table,
    pollux,
    tree,
    write_arrow,
    write_bytes,
)
from data_files import write_images as images_in
from data_files import write_table as table_in
from pollux import load
from pollux.data import array_files, sources, table_files
from pollux.data.arrow_messages import measure_batches
from pollux.data.encoding import Number, TableEncoding
from pollux.data.sources import FORMATS, IMAGES, Part, Reading, deduplicate_names, open_data
from pollux.data.survey import Choices
from pollux.errors import InputError

# By format, a file of it: text, Parquet and Arrow have readers of their own.
ONE_OF_EACH = ("continental.csv", "table.parquet", "stream.arrow")
NUMBERS = "".join(f"{index * index % 17},{index % 5}.5\n" for index in range(20))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fit(data: object, *options: object) -> tuple[Answer, dict[str, Any], pd.DataFrame]:
    """The answer, the summary and the clusters of a run that goes well."""
    answer = pollux("fit", data, *FAST, "--out", "run", "--overwrite", *options)
    assert answer.code == 0, answer
    return (
        answer,
        json.loads(Path("run/summary.json").read_text()),
        pd.read_csv("run/clusters.csv", dtype={"name": str}),
    )


def refused(data: object, *options: object, says: str = "") -> str:
    """The complaint: one line, which names the culprit, after which nothing has changed."""
    before = tree(Path())
    answer = pollux("fit", data, *FAST, *options)
    assert answer.code == 2, answer
    assert answer.err.startswith("pollux fit: ")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    assert says in answer.err
    assert tree(Path()) == before
    return answer.err


def table_of(path: Path, **how: Any) -> dict[str, list[Any]]:
    return open_data(path, Reading(**how)).read().rows.to_pydict()


# The same rows


@pytest.mark.parametrize("name", TABLES)
def test_every_format_of_tables_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    data = frame()
    expected = {column: data[column].tolist() for column in data}
    assert table_of(table_in(tmp_path, name, data)) == expected


def test_every_format_of_tables_gives_the_same_features(tmp_path: Path) -> None:
    """Bit for bit, and so the same clusters; one format of each reader is clustered, also for the names beside them."""
    found, clustered = set(), set()
    for name in TABLES:
        rows = open_data(table_in(tmp_path, name, frame())).read().rows
        plan = plan_table(rows, Choices(label="class"))
        found.add(plan.encode(rows).tobytes())
        if name in ONE_OF_EACH:
            _, summary, _ = fit(name, "--label", "class")
            clustered.add(Path("run/clusters.csv").read_bytes())
            assert summary["left_out"] == {
                "name": "an identifier: each row has its own value",
                "unit": "it has one value throughout",
            }
    assert len(found) == len(clustered) == 1


def test_all_endings_are_known() -> None:
    known = {ending for endings in FORMATS.values() for ending in endings}
    assert known >= {".csv", ".tsv", ".parquet", ".feather", ".arrow", ".npy", ".npz"}
    assert {".png", ".jpg", ".jpeg"} <= set(IMAGES)


def test_quoted_lines_and_delimiters_stay_together(tmp_path: Path) -> None:
    data = pd.DataFrame({"a": [1.5, 2.5], "b": ["one\ntwo", 'say "so", or not'], "c, d": ["=1+1", "😀"]})
    assert table_of(write_bytes(tmp_path / "quoted.csv", delimited(data))) == {c: data[c].tolist() for c in data}


def test_a_delimiter_may_be_given(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "spaces.csv", "a b\n" + NUMBERS.replace(",", " "))
    assert list(table_of(path, delimiter=" ")) == ["a", "b"]
    fit(path, "--delimiter", " ")


def test_a_file_may_have_no_header(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "bare.csv", NUMBERS)
    refused(path, says="--no-header")
    _, summary, clusters = fit(path, "--no-header")
    assert summary["features"] == 2
    assert len(clusters) == 20


def test_columns_without_a_name_get_one(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "index.csv", ",a,b\n" + "".join(f"{i},{i * i % 7},{i % 5}\n" for i in range(20)))
    _, summary, clusters = fit(path)
    assert summary["identifiers"] == ["unnamed_0"]
    assert list(clusters["unnamed_0"]) == list(range(20))


def test_a_decimal_comma_is_seen_with_semicolons_only(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "comma.csv", "a;b\n1,5;2\n2,5;3\n")
    assert table_of(path) == {"a": [1.5, 2.5], "b": [2, 3]}
    path = write_bytes(tmp_path / "point.csv", "a;b\n1.5;2\n2.5;3\n")
    assert table_of(path) == {"a": [1.5, 2.5], "b": [2, 3]}


def test_what_stands_for_a_missing_value_may_be_told(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "gaps.csv", "a,b\n" + NUMBERS + "?,1\n.,2\n")
    refused(path, "--na", "?", "--na", ".", "--missing", "error", says="'a' (2) of 22 rows")
    _, summary, _ = fit(path, "--na", "?", "--na", ".", "--missing", "drop")
    assert summary["rows"] == 20
    assert summary["rows_dropped"] == 2


# Arrays and images


@pytest.mark.parametrize(
    ("shape", "features"), [((3,), 3), ((), 1), ((8, 9), 72), ((3, 8, 9), 216), ((8, 9, 3), 216), ((2, 8, 9), 144)]
)
def test_arrays_are_rows_or_images(tmp_path: Path, shape: tuple[int, ...], features: int) -> None:
    np.save(tmp_path / "array.npy", np.random.default_rng(0).normal(size=(12, *shape)))
    _, summary, clusters = fit("array.npy")
    assert summary["features"] == features
    assert list(clusters["row"]) == list(range(12))


def test_channels_may_come_last(tmp_path: Path) -> None:
    images = pixels(12, 3, 8, 9)
    np.save("first.npy", images)
    np.save("last.npy", np.moveaxis(images, 1, 3))
    fit("first.npy")
    first = Path("run/clusters.csv").read_bytes()
    fit("last.npy")
    assert Path("run/clusters.csv").read_bytes() == first


def test_the_layout_of_an_array_does_not_matter(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    found = set()
    for array in (X, np.asfortranarray(X), X.astype(">f4"), X.astype(np.float64)):
        np.save("array.npy", array)
        fit("array.npy")
        found.add(Path("run/clusters.csv").read_bytes())
    assert len(found) == 1


def test_an_npz_file_may_hold_labels_and_several_arrays(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(12, 3))
    np.savez("one.npz", anything=X, y=np.arange(12) % 3)
    _, summary, _ = fit("one.npz", "--label", "y")
    assert summary["scores"].keys() >= {"adjusted_rand_index"}
    refused("one.npz", "--label", "z", says="'z'")
    np.savez("two.npz", train=X, test=X)
    assert "train (12, 3)" in refused("two.npz", says="--array")
    refused("two.npz", "--array", "other", says="'other'")
    fit("two.npz", "--array", "test")
    np.savez("usual.npz", X=X, other=X)
    fit("usual.npz")


@pytest.mark.parametrize("kind", ["npz", "folder"])
def test_what_an_npz_file_or_folder_names_can_identify_rows(tmp_path: Path, kind: str) -> None:
    if kind == "npz":
        np.savez("named.npz", X=np.random.default_rng(0).normal(size=(12, 3)), who=[f"p{i}" for i in range(12)])
        _, _, clusters = fit("named.npz", "--as", "id", "who")
        assert list(clusters["who"]) == [f"p{i}" for i in range(12)]
    else:
        images_in(tmp_path / "images", pixels(12, 8, 8), names=lambda index: f"{index % 2}/{index:02}.png")
        _, _, clusters = fit("images", "--as", "id", "folder")
        assert sorted(clusters["folder"]) == [0] * 6 + [1] * 6


def test_numbers_of_arrays_are_no_names(tmp_path: Path) -> None:
    np.save("array.npy", np.random.default_rng(0).integers(0, 3, (12, 3)))
    refused("array.npy", "--as", "text", "1", says="--kinds")


def test_columns_of_arrays_go_by_their_numbers(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(12, 4))
    X[:, 3] = 7
    X[2, 1] = np.inf
    np.save("array.npy", X)
    refused("array.npy", says="'1'")
    _, summary, _ = fit("array.npy", "--drop", "1")
    assert summary["features"] == 2
    assert summary["left_out"] == {"3": "it has one value throughout"}
    fit("array.npy", "--columns", "0,2")
    refused("array.npy", "--columns", "7", says="'7'")


@pytest.mark.parametrize("stream", ["yes", "no"])
def test_thousands_beside_decimal_commas_are_read_alike_in_new_rows(tmp_path: Path, stream: str) -> None:
    """Also if these show no decimal comma themselves."""
    kilograms, shares = [1660, 417, 2950, 85, 1204, 12] * 5, [f"{index * 7 % 11},{index % 7}" for index in range(30)]
    european = [f"{value:,}".replace(",", ".") for value in kilograms]
    lines = [f"{weight};{share}" for weight, share in zip(european, shares, strict=True)]
    Path("points.csv").write_text("\n".join(["weight;share", *lines, ""]))
    answer = pollux("fit", "points.csv", *FAST, "--out", "run", "--stream", stream, "--drop", "share")
    assert answer.code == 0, answer
    (weight, _) = json.loads(Path("run/summary.json").read_text())["columns"]
    assert weight["reason"] == "written as text, points separate thousands"
    Path("new.csv").write_text("\n".join(["weight", *european, ""]))
    answer = pollux("predict", "run", "new.csv", "--out", "predicted.csv")
    assert answer.code == 0, answer
    expected = load("run").predict(pa.table({"weight": kilograms}))
    np.testing.assert_array_equal(pd.read_csv("predicted.csv")["cluster"], expected)


@pytest.mark.parametrize("shape", [(3,), (4, 5)])
def test_arrays_may_lack_values(tmp_path: Path, shape: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).normal(size=(12, *shape))
    X[(2, 1)] = np.nan
    np.save("array.npy", X)
    refused("array.npy", "--missing", "error", says="(1) of 12 rows")
    _, summary, _ = fit("array.npy")
    assert summary["rows"] == 12
    _, summary, clusters = fit("array.npy", "--missing", "drop")
    assert summary["rows"] == 11
    assert 2 not in set(clusters["row"])


def test_a_folder_holds_grey_or_coloured_images(tmp_path: Path) -> None:
    grey, coloured = pixels(12, 9, 8), pixels(12, 9, 8, 3)
    for name, arrays, channels in [
        ("grey", grey, 1),
        ("coloured", coloured, 3),
        ("mixed", [*grey[:6], *coloured[6:]], 3),
    ]:
        images_in(tmp_path / name, arrays)
        _, summary, clusters = fit(name)
        assert summary["features"] == channels * 72
        assert list(clusters["file"]) == [f"{index:02}.png" for index in range(12)]
    part = open_data(tmp_path / "grey").read()
    np.testing.assert_array_equal(part.rows[:, 0], grey)


def test_folders_of_images_may_be_the_classes(tmp_path: Path) -> None:
    images_in(tmp_path / "sorted", pixels(12, 8, 8), names=lambda index: f"{'ab'[index % 2]}/{index}.png")
    _, summary, clusters = fit("sorted", "--label", "folder")
    assert summary["scores"] is not None
    assert set(clusters["file"].str[:2]) == {"a/", "b/"}


def test_images_of_different_sizes_are_scaled(tmp_path: Path) -> None:
    images_in(tmp_path / "sizes", [*pixels(6, 8, 8), *pixels(5, 12, 9)])
    source = open_data(tmp_path / "sizes")
    assert source.read().rows.shape == (11, 1, 32, 32)
    assert source.notes() == ["pictures of 8×8, 12×9 pixels are scaled to 32×32 (image_size=64 to double it)"]
    _, summary, _ = fit("sizes", "--image-size", 10)
    assert summary["features"] == 100


def test_what_is_transparent_is_white_whatever_its_colour(tmp_path: Path) -> None:
    from PIL import Image

    folder = tmp_path / "clear"
    folder.mkdir()
    Image.new("RGBA", (4, 4), (0, 255, 0, 0)).save(folder / "a.png")
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([0, 255, 0])
    palette.save(folder / "b.png", transparency=b"\0")
    Image.new("LA", (4, 4), (0, 0)).save(folder / "c.png")
    assert (open_data(folder).read().rows == 255).all()
    # Of black and white, white would leave nothing of a picture whose black is transparent.
    Image.new("1", (4, 4), 0).save(folder / "d.png", transparency=0)
    assert (open_data(folder).read().rows[-1] == 0).all()


def test_images_of_sixteen_bits_keep_their_contrast(tmp_path: Path) -> None:
    images = pixels(4, 8, 8).astype(np.uint16) * 256
    images_in(tmp_path / "deep", images)
    np.testing.assert_array_equal(open_data(tmp_path / "deep").read().rows[:, 0], images // 256)


def a_png(width: int, height: int) -> bytes:
    """A file that claims a size, whatever it holds."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("content", [b"", b"no image", a_png(8, 8)[:40], a_png(40_000, 40_000)], ids=len)
def test_a_corrupt_image_is_named(tmp_path: Path, content: bytes) -> None:
    images_in(tmp_path / "images", pixels(12, 8, 8))
    for name in ("03.png", "00.png"):
        (tmp_path / "images" / name).write_bytes(content)
        refused("images", "--strict", says=name)
    answer, summary, clusters = fit("images")
    assert "2 of the pictures cannot be read and were left out: 00.png, 03.png" in answer.err
    assert summary["notes"]
    assert len(clusters) == 10


def test_corrupt_images_have_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "IMAGES_AT_ONCE", 3)
    images_in(tmp_path / "images", pixels(12, 8, 8))
    encoding = plan_array(open_data("images").read().rows)
    # All of a part, some within one, and the last.
    for place in (3, 4, 5, 7, 11):
        (tmp_path / "images" / f"{place:02}.png").write_bytes(b"no image")
    parts = list(open_data("images").stream(encoding, ()))
    found = [(part.first + index, name) for part in parts for index, name in enumerate(part.column("file"))]
    # Numbered as those that are read at once, for a training, are.
    assert found == [(row, f"{place:02}.png") for row, place in enumerate((0, 1, 2, 6, 8, 9, 10))]
    assert [name for _, name in found] == open_data("images").read().column("file").tolist()
    for place in range(12):
        (tmp_path / "images" / f"{place:02}.png").write_bytes(b"no image")
    with pytest.raises(InputError, match="None of the pictures of images can be read"):
        list(open_data("images").stream(encoding, ()))


def test_pictures_that_make_all_coloured_are_named(tmp_path: Path) -> None:
    images_in(tmp_path / "images", pixels(12, 8, 8))
    images_in(tmp_path / "other", pixels(1, 8, 8, 3))
    (tmp_path / "images" / "warm").mkdir()
    next((tmp_path / "other").iterdir()).rename(tmp_path / "images" / "warm" / "red.png")
    answer = fit("images")[0]
    assert "three channels, since 1 is in colour: warm/red.png" in answer.err
    # Pictures have channels and no columns, of which some could be left out.
    assert "channels are " in answer.out
    assert "column" not in answer.out
    assert "structure: none" in answer.out
    assert "of photographs pixels tell little" in answer.out


def test_a_large_image_is_no_warning(tmp_path: Path) -> None:
    images_in(tmp_path / "images", pixels(12, 8, 8))
    (tmp_path / "images" / "03.png").write_bytes(a_png(12_000, 12_000))
    refused("images", "--strict", says="03.png")


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").mkdir()
    refused("x.csv", says="no images")


# Odd files


def test_a_file_of_nearly_that_name_is_suggested(tmp_path: Path) -> None:
    write_bytes(tmp_path / "penguins.csv", "a,b\n1,2\n")
    with pytest.raises(InputError, match=r"penguin\.csv\. Did you mean 'penguins\.csv'\?"):
        open_data(tmp_path / "penguin.csv")
    with pytest.raises(InputError, match=r"There is no file .*x\.csv\.$"):
        open_data(tmp_path / "nowhere" / "x.csv")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.csv", b"", "empty"),
        ("blank.csv", b"\n\n  \n", "empty"),
        ("header.csv", b"a,b\n", "no rows"),
        ("rubbish.csv", bytes(range(256)) * 9, "not a text file"),
        ("high.csv", bytes(range(1, 256)) * 9, "is not cp1252 text"),
        ("wide.csv", b"a,b\n1,\0002\n", "not a text file"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3\n", "line 3 has 3 values, and 2 are expected"),
        ("short.csv", b"a,b\n1,2\n3\n", "line 3 has 1 value, and 2 are expected"),
        (
            "infinite.csv",
            b"a,b\n1,2\n3,4\ninf,6\n-inf,7\n",
            "row 2: column 'a' is infinite; of its values 2 are",
        ),
        ("large.csv", b"a,b\n1,2\n3,4\n1e308,6\n-1e308,7\n", "'a'"),
        ("overflow.csv", b"a,b\n1,2\n3,4\n1e999,6\n", "'a'"),
        ("one.csv", b"a,b\n1,2\n", "There is one row to cluster"),
        ("few.csv", b"a,b\n1,2\n2,5\n", "2 rows for 3 clusters"),
        ("constant.csv", b"a,b\n1,\n1,\n1,\n", "No column is left"),
        ("many.csv", b",".join(b"c%d" % i for i in range(99)) + 3 * (b"\n1" + 98 * b",1"), "91 more"),
        ("x.unknown", b"a", "no known format"),
        ("x.csv.gz", b"", "x.csv.gz"),
        ("x.npy.gz", b"a", "no known format"),
        ("x.parquet", b"", "x.parquet"),
        ("y.parquet", b"PAR1 and more", "y.parquet"),
        ("x.arrow", b"", "x.arrow"),
        ("y.arrow", b"ARROW1", "y.arrow"),
        ("x.npy", b"", "x.npy"),
        ("y.npy", b"\x93NUMPY", "y.npy"),
        ("x.npz", b"", "x.npz"),
        ("y.npz", b"PK rubbish", "y.npz"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    refused(write_bytes(tmp_path / name, content), says=says)


@pytest.mark.parametrize("name", ["x.csv.gz", "x.csv.bz2", "x.csv.zst"])
def test_a_broken_compressed_file_is_named(tmp_path: Path, name: str) -> None:
    refused(write_bytes(tmp_path / name, b"rubbish"), says=name)


def test_a_header_without_a_line_end_has_no_rows(tmp_path: Path) -> None:
    refused(write_bytes(tmp_path / "header.csv", "a,b"), says="no rows")


def test_empty_lines_may_come_first(tmp_path: Path) -> None:
    fit(write_bytes(tmp_path / "late.csv", "\n\na,b\n" + NUMBERS))


def test_a_name_may_hold_a_line_end(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "lines.csv", 'a,"b\nc"\n' + NUMBERS)
    assert list(table_of(path)) == ["a", "b\nc"]


@pytest.mark.parametrize("mark", ["\u2028", "\x0b", "\x0c", "\x85", "\x1c"], ids=repr)
def test_only_line_ends_end_a_line(tmp_path: Path, mark: str) -> None:
    path = write_bytes(tmp_path / "marks.csv", f"a{mark}b,c\n" + NUMBERS)
    assert list(table_of(path)) == [f"a{mark}b", "c"]


@pytest.mark.parametrize("columns", [3_000, pytest.param(20_000, marks=in_full)])
def test_a_table_may_have_thousands_of_columns(tmp_path: Path, columns: int) -> None:
    names = ",".join(f"a_rather_long_name_{index}" for index in range(columns))
    rows = "".join(",".join(str((row + column) % 7) for column in range(columns)) + "\n" for row in range(3))
    path = write_bytes(tmp_path / "wide.csv", f"{names}\n{rows}")
    assert open_data(path).read().rows.num_columns == columns


def test_text_that_is_no_utf8_is_read_all_the_same(tmp_path: Path) -> None:
    late = write_bytes(tmp_path / "late.csv", b"a,b\n" + b"1.5,x\n2.5,y\n" * 10_000 + b"1,\xe9\n")
    assert table_of(late)["b"][-1] == "é"
    rows = "ü,preis\n" + "1,5 €\n2,7 €\n3,8 €\n4,1 €\n" * 3
    for encoding in ("cp1252", "utf-16", "utf-8-sig"):
        path = write_bytes(tmp_path / f"{encoding}.csv", rows.encode(encoding))
        assert list(table_of(path)) == ["ü", "preis"]
        assert table_of(path)["preis"][0] == "5 €"
    answer, _, _ = fit("cp1252.csv")
    assert "read as cp1252; another is given by --encoding" in answer.err
    assert pollux("predict", "run", "cp1252.csv").code == 0
    write_bytes(tmp_path / "cyrillic.csv", ("я,b\n" + "1,2\n3,5\n4,4\n6,1\n" * 3).encode("cp1251"))
    assert [each["name"] for each in fit("cyrillic.csv", "--encoding", "cp1251")[1]["columns"]] == ["я", "b"]
    refused("cyrillic.csv", "--encoding", "klingon", says="--encoding klingon")


def test_quotes_may_come_late(tmp_path: Path) -> None:
    """Far behind what is looked at first."""
    path = write_bytes(tmp_path / "late.csv", "a,b\n" + "1.5,x\n2.5,y\n" * 10_000 + '3.5,"x\ny"\n')
    assert table_of(path)["b"][-1] == "x\ny"


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_a_cut_table_is_refused(tmp_path: Path, suffix: str) -> None:
    name = next(name for name in TABLES if name.endswith(suffix) and "stream" not in name)
    whole = table_in(tmp_path, name, frame()).read_bytes()
    for size in (1, 7, 50, len(whole) // 2, len(whole) - 1):
        refused(write_bytes(tmp_path / f"cut{suffix}", whole[:size]), says=f"cut{suffix}")


def test_a_cut_stream_is_refused(tmp_path: Path) -> None:
    whole = table_in(tmp_path, "stream.arrow", frame()).read_bytes()
    for size in range(1, len(whole) - 8, 97 if IS_FULL else 397):
        path = write_bytes(tmp_path / "cut.arrow", whole[:size])
        answer = pollux("fit", path, *FAST, "--out", "run", "--overwrite")
        assert answer.code == 0 or (answer.code == 2 and "cut.arrow" in answer.err)


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_cut_array_is_refused(tmp_path: Path, kind: str) -> None:
    X = np.random.default_rng(0).normal(size=(12, 3))
    if kind == "npy":
        np.save("whole.npy", X)
    else:
        np.savez("whole.npz", X=X)
    whole = Path(f"whole.{kind}").read_bytes()
    # numpy leaves a cut zip file open, which is a warning here.
    for size in (3, 9, 60, len(whole) - 1) if kind == "npy" else (3,):
        refused(write_bytes(tmp_path / f"cut.{kind}", whole[:size]), says=f"cut.{kind}")


@pytest.mark.filterwarnings("error")
def test_a_cut_npz_file_is_closed(tmp_path: Path) -> None:
    np.savez("whole.npz", X=np.random.default_rng(0).normal(size=(12, 3)))
    path = write_bytes(tmp_path / "cut.npz", Path("whole.npz").read_bytes()[:200])
    program = f"""
        import gc
        from pollux.errors import InputError
        from pollux.data.sources import open_data
        try:
            open_data({str(path)!r}).read()
        except InputError as error:
            pass
        gc.collect()
    """
    run = subprocess.run(
        [sys.executable, "-W", "always", "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""


def test_a_zip_file_of_other_things_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile("other.npz", "w") as file:
        file.writestr("hello.txt", "hello")
    refused("other.npz", says="other.npz")


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a"] * 12),
        np.ones(12, dtype=complex),
        np.arange(12).astype("datetime64[D]"),
        np.zeros(12, dtype=[("a", float)]),
        np.empty((0, 3)),
        np.empty((3, 0)),
        np.array(1.0),
        np.zeros((12, 1, 2, 3, 4)),
        np.ones((12, 3)),
        np.zeros((12, 4, 4)),
        np.full((12, 4, 4), np.inf),
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_other_arrays_are_refused(array: np.ndarray) -> None:
    np.save("array.npy", array)
    refused("array.npy")


class Trap:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("sprung"),))


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    objects = np.array([Trap()] * 12, dtype=object)
    np.save("objects.npy", objects, allow_pickle=True)
    np.savez("objects.npz", X=np.ones((12, 2)), y=objects)
    for name in ("pickle.npy", "pickle.npz", "pickle.parquet", "pickle.arrow", "pickle.csv"):
        write_bytes(tmp_path / name, pickle.dumps(Trap()))
    names = sorted(path.name for path in tmp_path.iterdir())
    program = f"""
        import sys
        from pollux.errors import InputError
        from pollux.data.sources import open_data

        def read_all():
            refused = 0
            for name in {names!r}:
                try:
                    open_data(name).read()
                except InputError:
                    refused += 1
            return refused

        read_all()  # what is imported on first use is imported now
        events = set()
        watching = True

        def hook(event, arguments):
            suspect = event.split(".")[0] in ("exec", "pickle", "marshal", "subprocess") or event == "os.system"
            if watching and suspect:
                events.add(event)

        sys.addaudithook(hook)
        refused = read_all()
        watching = False
        print(refused, sorted(events))
    """
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert run.stdout == f"{len(names)} []\n"
    assert not Path("sprung").exists()


# Columns of all kinds


def with_column(values: Any) -> Path:
    table = pa.table({"x": np.random.default_rng(0).normal(size=12), "odd": values})
    parquet.write_table(table, "odd.parquet")
    return Path("odd.parquet")


@pytest.mark.parametrize(
    ("values", "features"),
    [
        ([Decimal(f"{index * index}.25") for index in range(12)], 2),
        (pa.array(["ab"[index % 2] for index in range(12)]).dictionary_encode(), 2),
        (pa.array([index % 3 for index in range(12)]).dictionary_encode(), 2),
        (pa.array(["ab"[index % 2] for index in range(12)], pa.large_string()), 2),
        ([date(2020, 1, index + 1) for index in range(12)], 4),
        ([datetime(2020, 1, 1, index) for index in range(12)], 3),
        ([timedelta(hours=index) for index in range(12)], 2),
        (pa.array(np.arange(12.0) ** 2).cast(pa.float16()), 2),
        (pa.array([index % 4 for index in range(12)], pa.uint8()), 2),
    ],
    ids=["decimals", "dictionary", "dictionary of numbers", "large text", "date", "hour", "time", "half", "bytes"],
)
def test_many_types_are_read(values: Any, features: int) -> None:
    _, summary, _ = fit(with_column(values))
    assert summary["features"] == features
    assert summary["left_out"] == {}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([["a" * index] for index in range(12)], "list"),
        ([[0.5] * (1 + index) for index in range(12)], "its lists are empty, or differ in length"),
        ([b"%d" % index for index in range(12)], "binary"),
        (pa.nulls(12), "no values"),
        ([None] * 12, "no values"),
        ([float("nan")] * 12, "no values"),
        ([7] * 12, "one value"),
        (["seven"] * 12, "one value"),
        ([True] * 12, "one value"),
    ],
    ids=str,
)
def test_other_types_are_left_out_with_the_reason(values: Any, reason: str) -> None:
    answer, summary, _ = fit(with_column(values))
    assert reason in summary["left_out"]["odd"]
    assert re.search(rf"  odd +not used  {re.escape(summary['left_out']['odd'])}\n", answer.out)
    refused(with_column(values), "--columns", "odd", says=reason)


def test_text_in_views_is_read() -> None:
    """As polars writes it."""
    table = pa.table({"x": np.arange(12.0) ** 2, "odd": pa.array(["ab"[index % 2] for index in range(12)])})
    write_arrow(Path("views.arrow"), table.set_column(1, "odd", table["odd"].cast(pa.string_view())))
    _, summary, _ = fit("views.arrow")
    assert summary["features"] == 2


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_numbers_may_be_huge(kind: Any) -> None:
    """A measurement in nanoseconds, a hash: what is lost in float64 does not matter."""
    _, summary, _ = fit(with_column(pa.array([2**62 + index * index * 2**50 for index in range(12)], kind)))
    assert summary["features"] == 2


def test_identifiers_may_be_a_dictionary() -> None:
    _, summary, _ = fit(with_column(pa.array([f"n{index}" for index in range(12)]).dictionary_encode()))
    assert summary["identifiers"] == ["odd"]


@pytest.mark.parametrize(
    "values",
    [
        [datetime(2020, 1, 1, index) for index in range(12)],
        [Decimal(index) for index in range(12)],
        pa.array([f"n{index}" for index in range(12)]).dictionary_encode(),
        [None, *range(11)],
        [None, *"abcdefghijk"],
        [[str(index)] for index in range(12)],
        [b"\xff%d" % index for index in range(12)],
    ],
    ids=["times", "decimals", "dictionary", "gap in numbers", "gap in text", "lists", "bytes"],
)
def test_columns_of_any_type_identify_rows_or_are_refused(values: Any) -> None:
    answer = pollux("fit", with_column(values), *FAST, "--as", "id", "odd", "--out", "run")
    assert answer.code in (0, 2), answer
    if answer.code == 0:
        assert "odd" in pd.read_csv("run/clusters.csv").columns


def test_identifiers_are_written_as_they_are() -> None:
    numbers = [None, *(2**60 + index for index in range(11))]
    fit(with_column(pa.array(numbers, pa.int64())), "--as", "id", "odd")
    lines = Path("run/clusters.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == ["", *map(str, numbers[1:])]


def test_identifiers_keep_their_zeros(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "codes.csv", "code_id,a\n" + "".join(f"{i:04},{i * i % 7}\n" for i in range(20)))
    fit(path, "--as", "id", "code_id")
    assert pollux("predict", "run", path).out == Path("run/clusters.csv").read_text()


def test_names_of_columns_may_be_anything(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    names = ["😀", "a,b", "=cmd|' /C calc'!A0", 'say "so"', "cluster", "row", "p_0", "entropy", "<b>", "ä;ö", "'"]
    data = pd.DataFrame({name: random.normal(size=20) for name in names})
    data["text, too"] = random.choice(["=1+1", "😀", 'a "b"', "x,y", "<i>"], 20)
    found = set()
    for name in ONE_OF_EACH:
        _, summary, clusters = fit(table_in(tmp_path, name, data))
        assert summary["features"] == len(names) + 5
        assert list(clusters) == ["row", "cluster", "p_0", "p_1", "p_2", "entropy"]
        found.add(Path("run/clusters.csv").read_bytes())
        assert pollux("predict", "run", name, "--out", "again.csv").code == 0
        # Sums over other parts of the rows are rounded in another order.
        pd.testing.assert_frame_equal(pd.read_csv("again.csv"), clusters, rtol=1e-5)
    assert len(found) == 1


def test_identifiers_called_as_our_columns_get_another_name(tmp_path: Path) -> None:
    data = frame().rename(columns={"name": "cluster", "weight": "row"})
    _, _, clusters = fit(table_in(tmp_path, "plain.csv", data), "--as", "id", "row")
    assert list(clusters)[:4] == ["row", "row_in_file", "cluster_in_file", "cluster"]
    assert list(clusters["row"]) == list(range(len(data)))
    assert list(clusters["cluster_in_file"]) == list(data["cluster"])


def test_names_with_commas_are_found(tmp_path: Path) -> None:
    data = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=["a,b", "c", "a"])
    path = table_in(tmp_path, "plain.csv", data)
    for options, features in [
        (("--columns", "a,b"), 1),
        (("--columns", "a,c"), 2),
        (("--columns", "a,b", "--columns", "c"), 2),
        (("--drop", "a,b"), 2),
    ]:
        assert fit(path, *options)[1]["features"] == features
    assert list(fit(path, "--as", "id", "a,b")[2])[:2] == ["row", "a,b"]
    fit(path, "--label", "a,b")


def test_columns_of_one_name_are_numbered(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "x.csv", "size,weight,size\n1,2,3\n4,5,7\n")
    assert open_data(path).read().rows.to_pydict() == {"size": [1, 4], "weight": [2, 5], "size.1": [3, 7]}
    pytest.importorskip("xlsxwriter")
    pd.read_csv(path, header=None).to_excel(tmp_path / "x.xlsx", header=False, index=False, engine="xlsxwriter")
    assert open_data(tmp_path / "x.xlsx").read().rows.column_names == ["size", "weight", "size.1"]


def test_numbered_names_are_their_own() -> None:
    assert deduplicate_names(["a", "a", "a.1", "a", "b"]) == ["a", "a.2", "a.1", "a.3", "b"]


def test_a_column_may_be_named_twice(tmp_path: Path) -> None:
    path = table_in(tmp_path, "plain.csv", frame())
    assert fit(path, "--columns", "size,weight,size")[1]["features"] == 2


# In parts


@pytest.mark.parametrize("name", TABLES)
def test_parts_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = table_in(tmp_path, name, frame())
    whole = open_data(path).read()
    plan = plan_table(whole.rows, Choices(label="class"))
    for size in (1, 7, 30, 100):
        monkeypatch.setattr(table_files, "ROWS_AT_ONCE", size)
        parts = list(open_data(path).stream(plan, ["name"]))
        assert [part.first for part in parts] == list(np.cumsum([0, *map(len, parts)])[:-1])
        assert max(map(len, parts)) <= size
        np.testing.assert_array_equal(
            np.concatenate([plan.encode(part.rows) for part in parts]), plan.encode(whole.rows)
        )
        assert [name for part in parts for name in part.column("name")] == list(whole.column("name"))


def test_a_format_that_the_model_cannot_read_is_refused(tmp_path: Path) -> None:
    plan = plan_table(open_data(table_in(tmp_path, "plain.csv", frame())).read().rows, Choices())
    np.save("array.npy", np.ones((3, 3)))
    images_in(tmp_path / "images", pixels(2, 8, 8))
    for name in ("array.npy", "images"):
        with pytest.raises(InputError, match="trained"):
            list(open_data(name).stream(plan, []))


# What would take more memory or time than there is


def test_images_that_do_not_fit_in_memory_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_room(room: int) -> None:
        for module in (array_files, sources):
            monkeypatch.setattr(module, "room_bytes", lambda: room)

    has_room(1_000_000)
    images_in(tmp_path, pixels(4, 9, 9, 3))
    with pytest.raises(
        InputError, match=r"The 4 images .* at 20000×20000 pixels, take 24.0 GB .* image_size=129 or less"
    ):
        open_data(tmp_path, Reading(image_size=20_000)).read()
    assert open_data(tmp_path, Reading(image_size=129)).read().rows.shape == (4, 3, 129, 129)
    has_room(1_000)
    with pytest.raises(InputError, match=r"9×9 pixels.* image_size=4 or less"):
        open_data(tmp_path).read()


def test_arrays_that_unpack_to_more_than_memory_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "x.npz", X=np.zeros((50_000, 4)), y=np.zeros(50_000, dtype=np.int8))
    assert (tmp_path / "x.npz").stat().st_size < 10_000
    assert len(open_data(tmp_path / "x.npz").read()) == 50_000
    monkeypatch.setattr(sources, "room_bytes", lambda: 1_000_000)
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(InputError, match=r"x\.npz, unpacked, take 0\.0 GB .* room for 0\.0: .* \.npy file"):
        open_data(tmp_path / "x.npz").read()


@pytest.mark.parametrize("shape", [(10**12, 2), (3, 2), (4, 3)])
def test_an_archive_whose_array_has_another_shape_than_it_says_is_refused(
    tmp_path: Path, shape: tuple[int, int]
) -> None:
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as packed:
        packed.writestr("X.npy", file.getvalue() + np.ones((4, 2)).tobytes())
    with pytest.raises(InputError, match=r"X\.npy is said to have the shape \(\d+, \d\), and has another"):
        open_data(tmp_path / "x.npz").read()


def test_parquet_files_that_unpack_to_more_than_memory_are_refused_or_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"a": np.zeros(100_000), "b": np.zeros(100_000)})
    parquet.write_table(table, tmp_path / "one.parquet")
    parquet.write_table(table, tmp_path / "ten.parquet", row_group_size=10_000)
    assert (tmp_path / "one.parquet").stat().st_size < 10_000
    monkeypatch.setattr(sources, "room_bytes", lambda: 1_000_000)
    for name in ("one", "ten"):
        with pytest.raises(InputError, match=r"The rows of .* take 0\.0 GB .*stream='yes'"):
            open_data(tmp_path / f"{name}.parquet").read()
    assert open_data(tmp_path / "ten.parquet").blocks().read_block(9, ["a", "b"]).num_rows == 10_000
    with pytest.raises(InputError, match=r"row group 0 of .* row_group_size=100_000"):
        open_data(tmp_path / "one.parquet").blocks().read_block(0, ["a", "b"])


def write_batches(path: Path, batches: list[pa.RecordBatch], **options: Any) -> None:
    make = pa.ipc.new_stream if path.suffix == ".arrow" else pa.ipc.new_file
    with make(path, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)


@pytest.mark.parametrize("name", ["x.feather", "x.arrow"])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_arrow_files_that_unpack_to_more_than_memory_are_refused_or_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, compression: str
) -> None:
    path = tmp_path / name
    batch = pa.record_batch({"a": np.zeros(10_000), "b": np.zeros(10_000)})
    write_batches(path, [batch] * 10, compression=compression)
    assert path.stat().st_size < 40_000
    source = open_data(path)
    assert source.size_in_memory() == 4 * 200_000
    monkeypatch.setattr(sources, "room_bytes", lambda: 1_000_000)
    with pytest.raises(InputError, match=r"The rows of .* take 0\.0 GB .*stream='yes'"):
        source.read()
    blocks = open_data(path).blocks()
    assert blocks.lengths.tolist() == [10_000] * 10
    assert blocks.read_block(9, ["a", "b"]).num_rows == 10_000
    monkeypatch.setattr(sources, "room_bytes", lambda: 100_000)
    monkeypatch.setattr(table_files, "validated", None)
    with pytest.raises(InputError, match=r"record batch 0 of .* chunksize=100_000"):
        open_data(path).blocks()


@pytest.mark.parametrize(
    "values",
    [
        pa.nulls(10_000_000),
        pa.RunEndEncodedArray.from_arrays(pa.array([10_000_000]), pa.array([1.0])),
    ],
    ids=["no values", "one value"],
)
def test_rows_that_take_no_room_in_an_arrow_file_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: pa.Array
) -> None:
    write_batches(tmp_path / "x.feather", [pa.record_batch({"a": values})])
    monkeypatch.setattr(sources, "room_bytes", lambda: 1_000_000)
    with pytest.raises(InputError, match=r"record batch 0 of .* take 0\.1 GB"):
        open_data(tmp_path / "x.feather").read()


@pytest.mark.parametrize("name", ["x.feather", "x.arrow", "x.parquet", "text.parquet", "view.feather"])
def test_texts_that_are_stored_once_and_used_often_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    texts = ["x" * 10_000, "y" * 10_000]
    column = pa.DictionaryArray.from_arrays(pa.array(np.arange(500) % 2, mask=np.arange(500) == 7), texts)
    if name.startswith("text"):
        column = column.cast(pa.string())
    if name.startswith("view"):
        views = struct.pack("<i4sii", 10_000, b"xxxx", 0, 0) * 500
        buffers = [None, pa.py_buffer(views), pa.py_buffer(texts[0].encode())]
        try:
            column = pa.Array.from_buffers(pa.string_view(), 500, buffers)
        except ValueError:
            pytest.skip("this release of pyarrow makes no views from buffers")
    table = pa.table({"a": np.arange(500.0), "b": column})
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        write_batches(path, table.to_batches())
    assert path.stat().st_size < 50_000
    assert open_data(path).read().rows.num_rows == 500
    for module in (sources, table_files):
        monkeypatch.setattr(module, "room_bytes", lambda: 1_000_000)
    for read in (lambda source: source.read(), lambda source: source.blocks().read_block(0, ["a", "b"])):
        with pytest.raises(InputError, match=r"texts of column 'b' take 0\.0 GB .* leave it out"):
            read(open_data(path))


def test_missing_values_of_categories_stay_missing() -> None:
    # pyarrow converts a missing category in chunks to the last category.
    values = pa.chunked_array([pa.array(["x", "y", None]).dictionary_encode()])
    assert Part(pa.table({"a": values})).column("a").tolist() == ["x", "y", None]


def test_rows_of_many_columns_are_selected_in_time_that_grows_with_the_columns() -> None:
    part = Part(pa.table({f"c{index}": np.arange(2) for index in range(6_000)}))
    began = time.process_time()
    assert len(part.kept(np.array([True, False]))) == 1
    # 0.03 s; each column by itself took 4 s, and hundreds of seconds of 100,000.
    assert time.process_time() - began < 2


class Measured(io.BytesIO):
    """A file of which no more is asked for than it has, since memory is taken for what is asked."""

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert size <= len(self.getvalue())
        return super().read(size)


@pytest.mark.parametrize("name", ["x.feather", "x.arrow"])
def test_messages_of_arrow_files_that_are_no_messages_are_refused(tmp_path: Path, name: str) -> None:
    """Lengths that are negative, or lead back to where they stand, end neither in a loop nor in another error."""
    write_batches(tmp_path / name, [pa.record_batch({"a": np.arange(5.0)})], compression="lz4")
    whole, refused = (tmp_path / name).read_bytes(), 0
    assert measure_batches(io.BytesIO(whole)).rows == [5]
    for place in range(0, len(whole), 2):
        for value in (b"\xff" * 8, b"\x00" * 8, b"\xff\xff\xff\x7f"):
            try:
                measure_batches(Measured(whole[:place] + value + whole[place + len(value) :]))
            except ValueError:
                refused += 1
    assert refused > 50


def test_tables_of_very_many_columns_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MOST_COLUMNS", 3)
    for name in ("plain.csv", "table.parquet", "table.feather"):
        path = table_in(tmp_path, name, frame())
        for read in (lambda source: source.read(), lambda source: source.blocks()):
            with pytest.raises(InputError, match=r"8 columns\. A table can have 3.* \.npy file"):
                read(open_data(path))


def test_a_packed_file_is_as_large_as_what_it_unpacks_to(tmp_path: Path) -> None:
    text = "a,b\n" + "1.5,2\n" * 2_000_000
    path = write_bytes(tmp_path / "x.csv.gz", gzip.compress(text.encode(), compresslevel=1))
    size = open_data(path).size_in_memory()
    # Two numbers of four bytes in each row.
    assert size == pytest.approx(2_000_000 * 8, rel=1e-3)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_text_files_that_take_more_than_memory_are_refused_or_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    content = b"a,b\n" + b"1,2\n" * 100_000
    path = write_bytes(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)
    assert open_data(path).read().rows.num_rows == 100_000
    for module in ("sources", "delimited"):
        monkeypatch.setattr(f"pollux.data.{module}.room_bytes", lambda: 1_500_000)
    monkeypatch.setattr("pollux.data.delimited._BLOCK_BYTES", 10_000)
    with pytest.raises(InputError, match=r"The rows of .* take 0\.0 GB .*stream='yes'"):
        open_data(path).read()
    assert open_data(path).blocks().lengths.sum() == 100_000


def test_short_numbers_take_more_memory_than_their_text(tmp_path: Path) -> None:
    """Packed or not, and however unlike the rest the beginning is."""
    head = "".join(f"{i},{i / 7:.15f}\n" for i in range(1000))
    text = ("a,b\n" + head + "1,2\n" * 200_000).encode()
    packed = write_bytes(tmp_path / "x.csv.gz", gzip.compress(text))
    assert open_data(packed).size_in_memory() == pytest.approx(201_000 * 8, rel=1e-3)
    plain = write_bytes(tmp_path / "x.csv", b"a,b\n" + b"1,2\n" * 200_000)
    assert open_data(plain).size_in_memory() == pytest.approx(200_000 * 8, rel=1e-2)


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ('"' + "x" * 12_000_000 + '"', r"a row is longer than 4 MB\. Is a quote opened"),
        ('"open,2\n' + "1,2\n" * 3_000_000, r"a row is longer than 4 MB\. Is a quote opened"),
        ('"open,2\n' + "1,2\n" * 1_000, r"line \d,\d+ has 1 value, and 2 are expected.*Is a quote opened"),
    ],
    ids=["long", "open", "short"],
)
def test_a_row_that_does_not_end_is_refused_in_words(tmp_path: Path, cell: str, says: str) -> None:
    path = write_bytes(tmp_path / "x.csv", f"a,b\n1,2\n{cell},3\n4,5\n")
    for read in (lambda source: source.read(), lambda source: source.blocks()):
        with pytest.raises(InputError, match=f"(?s){says}") as caught:
            read(open_data(path))
        assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_file_that_ends_within_quotes_is_refused(tmp_path: Path, name: str, encoding: str) -> None:
    """Else all rows behind the quote would be a text in the last column of one row."""

    def write(end: str) -> Path:
        content = ("a,b\n1,x\n2,y\n" + end).encode(encoding)
        return write_bytes(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)

    def ways(path: Path) -> list[Callable[[], Any]]:
        numbers = TableEncoding((Number("a", 0.0, 1.0),))
        return [
            lambda: open_data(path).read().rows.num_rows,
            lambda: open_data(path).blocks().lengths.sum(),
            lambda: sum(len(part.rows) for part in open_data(path).stream(numbers, ())),
        ]

    for read in ways(write('3,"open\n' + "4,z\n" * 50)):
        with pytest.raises(InputError, match=r"ends within quotes: a value of 205 characters\. Is a quote opened"):
            read()
    for end in ('3,"closed\nlate"', '3,"closed\nlate"\n', '3,"closed\nlate"\r\n\n', '3,"said ""so\n"""\n', "3,z"):
        assert [read() for read in ways(write(end))] == [3, 3, 3]


def test_names_of_files_that_are_not_text_are_refused(tmp_path: Path) -> None:
    images_in(tmp_path, pixels(3, 4, 4))
    (tmp_path / "00.png").rename(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"))
    with pytest.raises(InputError, match=r"caf\\xe9\.png in .* is not UTF-8 text: rename it"):
        open_data(tmp_path).read()


@pytest.mark.parametrize("digits", ["9" * 25, "-1", "9" * 18])
def test_an_array_of_a_shape_that_cannot_be_is_refused(tmp_path: Path, digits: str) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    content = (tmp_path / "x.npy").read_bytes()
    shape = f"({digits}, 2)".encode()
    header = content[:128].replace(b"(4, 2)", shape)
    (tmp_path / "x.npy").write_bytes(header[: 127 - len(header) + 128].ljust(127) + b"\n" + content[128:])
    for read in (lambda source: source.read(), lambda source: source.blocks(), lambda source: source.size_in_memory()):
        with pytest.raises(InputError, match="is not an array of numbers"):
            read(open_data(tmp_path / "x.npy"))
    assert pollux("fit", tmp_path / "x.npy", *FAST).code == 2


def test_text_in_arrow_files_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    words = pa.array([b"a", b"caf\xe9", b"b"]).view(pa.string())
    table = pa.table({"a": [1.0, 2.0, 3.0], "word": words})
    write_arrow(tmp_path / "x.arrow", table)
    parquet.write_table(table, tmp_path / "x.parquet")
    for name in ("x.arrow", "x.parquet"):
        answer = pollux("fit", tmp_path / name, *FAST)
        assert answer.code == 2, answer
        assert "UTF" in answer.err


def test_an_archive_is_to_be_unpacked() -> None:
    write_bytes(Path("x.csv.zip"), b"PK")
    refused(Path("x.csv.zip"), says="unpack it first")
    write_bytes(Path("x.csv.lz4"), b"")
    refused(Path("x.csv.lz4"), says="to_csv('x.csv', index=False)")


@pytest.mark.parametrize("kinds", [{}, {"year": "date"}])
def test_dates_that_are_numbers_are_read_alike_in_parts(tmp_path: Path, kinds: dict[str, str]) -> None:
    rows = "".join(f"{1_400_000_000 + 777_777 * index},{1950 + index}\n" for index in range(40))
    source = open_data(write_bytes(tmp_path / "x.csv", f"timestamp,year\n{rows}"))
    table = source.read().rows
    encoding = plan_table(table, Choices(kinds=kinds))
    assert [each.kind for each in encoding.decisions] == ["date", "date" if kinds else "number"]
    (part,) = source.stream(encoding, [])
    np.testing.assert_array_equal(encoding.encode(part.rows), encoding.encode(table))


def test_a_first_line_of_values_is_asked_about(tmp_path: Path) -> None:
    rows = "".join(f"place {index},{index}.5,{index % 7}\n" for index in range(30))
    note = open_data(write_bytes(tmp_path / "plain.csv", rows)).notes()
    assert "plain.csv has numbers among the names of its columns ('0.5')" in note[0]
    assert "header=False" in note[0]
    # Years and pixels are called by whole numbers.
    assert open_data(write_bytes(tmp_path / "years.csv", f"place,1990,1991\n{rows}")).notes() == []
    assert open_data(tmp_path / "plain.csv", Reading(header=False)).notes() == []
