"""Tables with known classes: those included in scikit-learn, and .npz files of the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import sklearn.datasets
from numpy.typing import NDArray

from pollux.errors import InputError, did_you_mean
from pollux.lab.datasets import archives

_FOLDER = "tabular"
# A damaged file may claim any number of columns or classes; their default names would exhaust the memory.
_MOST_NUMBERED = 10_000_000

TABLES: dict[str, Callable[[], Any]] = {
    "iris": sklearn.datasets.load_iris,
    "wine": sklearn.datasets.load_wine,
    "breast_cancer": sklearn.datasets.load_breast_cancer,
    "digits": sklearn.datasets.load_digits,
}
"""Tables that are included in scikit-learn, by name."""


@dataclass(frozen=True)
class TableSet:
    """A table X (n, d) and the classes y (n,) of its rows, from 0 up; nothing is scaled, and missing values are NaN.

    Columns whose names are not known are called ``column_0``, ``column_1``, ….
    """

    name: str
    X: NDArray[np.float64] | scipy.sparse.csr_array = field(repr=False)
    y: NDArray[np.int64] = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)


def load_table(name: str) -> TableSet:
    """Read a table (n, d) and the classes (n,) of its rows.

    Besides the tables of scikit-learn these are the files ``tabular/NAME.npz`` in the folder that the environment
    variable ``POLLUX_DATA`` names, or else in the cache folder. Such a file holds ``X`` (n, d) and ``y`` (n,), whole
    numbers from 0 up, and perhaps ``class_names`` (K,) and ``feature_names`` (d,). A sparse table has, in place of
    ``X``, the parts ``data``, ``indices``, ``indptr`` and ``shape`` of a CSR matrix. Nothing in it is executed.

    Examples
    --------
    >>> iris = load_table("iris")
    >>> iris.X.shape, iris.class_names
    ((150, 4), ('setosa', 'versicolor', 'virginica'))
    """
    if name in TABLES:
        bunch = TABLES[name]()
        X, y = np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target, dtype=np.int64)
        return TableSet(name, X, y, tuple(map(str, bunch.target_names)), tuple(map(str, bunch.feature_names)))
    path = table_path(name)
    if path is None:
        known = table_names()
        hints = archives.describe_missing_folder() + did_you_mean(name, known)
        raise InputError(
            f"There is no table {name!r}: choose one of {', '.join(known)}, or put {name}.npz into the folder "
            f"{_FOLDER} of the folder named by {archives.VARIABLE}.{hints}"
        )
    return _from_file(name, path)


def table_names() -> list[str]:
    """Return the names of all tables on this machine."""
    files = {path.stem for folder in archives.data_folders() for path in (folder / _FOLDER).glob("*.npz")}
    return [*TABLES, *sorted(files - TABLES.keys())]


def table_path(name: str) -> Path | None:
    """Return the file of a table, or None if it has none."""
    # The name must not lead out of the folder.
    if not name or name != Path(name).name:
        return None
    return archives.find_file(f"{_FOLDER}/{name}.npz")


def table_shape(path: Path) -> tuple[int, int, int]:
    """Return the numbers of rows, columns and classes of a table file, without reading its large arrays."""
    shapes = archives.read_shapes(path)
    if "X" in shapes and "class_names" in shapes:
        rows, columns = shapes["X"]
        return rows, columns, shapes["class_names"][0]
    table = _from_file(path.stem, path)
    return *table.X.shape, len(table.class_names)


def _from_file(name: str, path: Path) -> TableSet:
    arrays = archives.read_arrays(path)
    X = features_of(arrays, path)
    archives.require_arrays(arrays, path, "y")
    y = arrays["y"]
    # Checked after the conversion: numbers too large for int64 become negative.
    whole = y.astype(np.int64) if y.dtype.kind in "iu" else None
    if whole is None or whole.shape != (X.shape[0],) or whole.min() < 0:
        raise InputError(f"{path}: y must be {X.shape[0]} whole numbers from 0 up, not {y.dtype} {y.shape}.")
    class_names = _names("class_names", arrays, path, "", int(whole.max()) + 1)
    feature_names = _names("feature_names", arrays, path, "column_", X.shape[1])
    if whole.max() >= len(class_names):
        raise InputError(f"{path}: y goes up to {whole.max()}, but there are only {len(class_names)} class_names.")
    if len(feature_names) != X.shape[1]:
        raise InputError(f"{path}: X has {X.shape[1]} columns, but there are {len(feature_names)} feature_names.")
    return TableSet(name, X, whole, class_names, feature_names)


def features_of(arrays: dict[str, NDArray[Any]], path: Path) -> NDArray[np.float64] | scipy.sparse.csr_array:
    """Return the table X (n, d) of a file: sparse if the file holds the parts of a CSR matrix, else dense."""
    if "indptr" not in arrays:
        archives.require_arrays(arrays, path, "X")
        X = arrays["X"]
        if X.ndim != 2 or X.dtype.kind not in "buif" or X.size == 0:
            raise InputError(f"{path}: X must be a table of numbers (n, d), not {X.dtype} {X.shape}.")
        return X.astype(np.float64, copy=False)
    parts = ("data", "indices", "indptr", "shape")
    archives.require_arrays(arrays, path, *parts)
    data, indices, indptr, shape = (arrays[name] for name in parts)
    try:
        if data.dtype.kind not in "buif":
            raise ValueError(f"data must be numbers, not {data.dtype}")
        for name in parts[1:]:
            if arrays[name].dtype.kind not in "iu":
                raise ValueError(f"{name} must be whole numbers, not {arrays[name].dtype}")
        if shape.shape != (2,) or shape.min() < 1:
            raise ValueError(f"shape must be the numbers of rows and columns, not {shape.tolist()}")
        # Numbers too large for int64 become negative, and are rejected below.
        whole = [array.astype(np.int64) for array in (indices, indptr)]
        sparse = scipy.sparse.csr_array((data.astype(np.float64), *whole), shape=tuple(shape.tolist()))
        sparse.check_format(full_check=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{path}: data, indices, indptr and shape are not a CSR matrix ({error}).") from error
    return sparse


def _names(name: str, arrays: dict[str, NDArray[Any]], path: Path, prefix: str, count: int) -> tuple[str, ...]:
    """Return the names stored in a file, or else numbered names with a prefix."""
    if name in arrays:
        if arrays[name].ndim != 1:
            raise InputError(f"{path}: {name} must be a list of names, not of the shape {arrays[name].shape}.")
        return tuple(map(str, arrays[name].tolist()))
    if count > _MOST_NUMBERED:
        raise InputError(f"{path} would need {count:,} {name}, and has none: it is damaged or something else.")
    return tuple(f"{prefix}{number}" for number in range(count))
