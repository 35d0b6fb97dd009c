"""Tables: those of scikit-learn, and files of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from dataset_files import save_images
from pollux.errors import InputError
from pollux.lab import datasets


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("iris", (150, 4), 3), ("wine", (178, 13), 3), ("breast_cancer", (569, 30), 2), ("digits", (1797, 64), 10)],
)
def test_the_tables_of_scikit_learn_are_there(name: str, shape: tuple[int, int], classes: int) -> None:
    table = datasets.load_table(name)
    assert table.X.shape == shape
    assert (table.X.dtype, table.y.dtype) == (np.float64, np.int64)
    assert len(table.class_names) == classes == len(np.unique(table.y))
    assert len(table.feature_names) == shape[1]


def test_a_table_of_ones_own_is_read(tabular: Path) -> None:
    X = np.array([[1, 2], [3, np.nan], [5, 6]])
    np.savez(
        tabular / "mine.npz", X=X, y=np.array([0, 1, 0], np.int16), class_names=["a", "b"], feature_names=["u", "v"]
    )
    table = datasets.load_table("mine")
    assert np.array_equal(table.X, X, equal_nan=True)
    assert (table.class_names, table.feature_names) == (("a", "b"), ("u", "v"))
    assert table.y.tolist() == [0, 1, 0]
    assert datasets.table_names() == ["iris", "wine", "breast_cancer", "digits", "mine"]


def test_names_of_columns_and_classes_may_lack(tabular: Path) -> None:
    np.savez(tabular / "bare.npz", X=np.zeros((3, 2), np.uint8), y=[0, 2, 1])
    table = datasets.load_table("bare")
    assert (table.class_names, table.feature_names) == (("0", "1", "2"), ("column_0", "column_1"))
    assert table.X.dtype == np.float64


def test_a_sparse_table_stays_sparse(tabular: Path) -> None:
    matrix = scipy.sparse.csr_array(np.array([[0, 1.5, 0], [2, 0, 0]], np.float32))
    parts = {"data": matrix.data, "indices": matrix.indices.astype(np.int16), "indptr": matrix.indptr}
    np.savez(tabular / "texts.npz", **parts, shape=[2, 3], y=[0, 1])
    table = datasets.load_table("texts")
    assert isinstance(table.X, scipy.sparse.csr_array)
    assert np.array_equal(table.X.toarray(), matrix.toarray())
    np.savez(tabular / "texts.npz", **parts, shape=[2, 1], y=[0, 1])
    with pytest.raises(InputError, match="not a CSR matrix"):
        datasets.load_table("texts")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X": np.zeros(3)}, "X must be a table of numbers"),
        ({"X": np.array([["a"], ["b"]])}, "X must be a table of numbers"),
        ({"y": [0, 1, 2]}, "y must be 2 whole numbers"),
        ({"y": [0.5, 1]}, "y must be 2 whole numbers"),
        ({"y": [-1, 1]}, "from 0 up"),
        ({"y": np.array([0, 2**64 - 1], np.uint64)}, "from 0 up"),
        ({"y": [0, 2**62]}, "class_names"),
        ({"class_names": "ab"}, "class_names must be a list"),
        ({"class_names": [["a", "b"]]}, "class_names must be a list"),
        ({"feature_names": "ab"}, "feature_names must be a list"),
        ({"class_names": ["a"]}, "only 1 class_names"),
        ({"class_names": np.zeros(0, "U1")}, "only 0 class_names"),
        ({"feature_names": ["a"]}, "2 columns, but there are 1 feature_names"),
        ({"y": None}, "no array called y"),
        ({"X": None}, "no array called X"),
    ],
)
def test_other_tables_are_refused_with_the_name_of_the_file(changed: Any, message: str, tabular: Path) -> None:
    arrays = {"X": np.zeros((2, 2)), "y": [0, 1]} | changed
    np.savez(tabular / "bad.npz", **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(InputError, match=message) as caught:
        datasets.load_table("bad")
    assert "bad.npz" in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"indices": np.array([1, 2**32], np.int64)},
        {"indices": np.array([1, 2**64 - 1], np.uint64)},
        {"indices": np.array([1, 2**63], np.uint64)},
        {"indices": [1.5, 0]},
        {"indices": [[1, 0]]},
        {"indptr": [0, 1, 1.5]},
        {"indptr": np.array([0, 1, 2**32 + 2])},
        {"indptr": 3},
        {"data": ["a", "b"]},
        {"data": ["1", "2"]},
        {"data": [1j, 2]},
        {"data": 1.0},
        {"shape": 2},
        {"shape": [2]},
        {"shape": [2, 3, 1]},
        {"shape": [2.0, 3.0]},
        {"shape": [-2, 3]},
        {"shape": ["2", "3"]},
        {"shape": [2, 0], "data": [], "indices": np.zeros(0, int), "indptr": [0, 0, 0]},
        {"shape": [0, 3], "data": [], "indices": np.zeros(0, int), "indptr": [0], "y": np.zeros(0, int)},
    ],
)
def test_other_sparse_tables_are_refused_with_the_name_of_the_file(changed: Any, tabular: Path) -> None:
    whole = {"data": [1.5, 2.0], "indices": [1, 0], "indptr": [0, 1, 2], "shape": [2, 3], "y": [0, 1]}
    np.savez(tabular / "texts.npz", **(whole | changed))
    with pytest.raises(InputError, match=r"texts\.npz.*CSR matrix"):
        datasets.load_table("texts")


def test_a_sparse_table_may_have_indices_of_any_type(tabular: Path) -> None:
    parts = {
        "data": np.array([True, True]),
        "indices": np.array([1, 0], np.uint64),
        "indptr": np.array([0, 1, 2], np.int8),
    }
    np.savez(tabular / "texts.npz", **parts, shape=[2, 3], y=[0, 1])
    assert datasets.load_table("texts").X.toarray().tolist() == [[0, 1, 0], [1, 0, 0]]


def test_more_columns_than_can_have_names_are_refused(tabular: Path) -> None:
    np.savez(tabular / "wide.npz", data=[1.0], indices=[2**40 - 1], indptr=[0, 1], shape=[1, 2**40], y=[0])
    with pytest.raises(InputError, match=r"wide\.npz.*feature_names"):
        datasets.load_table("wide")


@pytest.mark.parametrize("name", ["", "../mnist", "a/b"])
def test_a_table_has_a_plain_name(name: str, folder: Path, tabular: Path) -> None:
    save_images(folder / "mnist.npz")
    with pytest.raises(InputError, match="There is no table"):
        datasets.load_table(name)


def test_an_unknown_table_names_those_there_are() -> None:
    with pytest.raises(InputError, match=r"iris, wine, breast_cancer, digits.*Did you mean 'wine'"):
        datasets.load_table("wime")
