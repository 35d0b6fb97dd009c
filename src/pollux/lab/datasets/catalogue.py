"""The list of all data sets, and where each of them is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pollux.errors import InputError, did_you_mean
from pollux.lab.datasets import archives
from pollux.lab.datasets.image_sets import IMAGES, image_set_info, image_set_path
from pollux.lab.datasets.synthetic import SYNTHETIC
from pollux.lab.datasets.table_sets import TABLES, load_table, table_names, table_path, table_shape

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """A data set: its samples, their shape, its classes, and where it is."""

    name: str
    kind: Literal["synthetic", "images", "table"]
    samples: int
    shape: tuple[int, ...]
    classes: int
    where: str


def catalogue() -> Iterator[Entry]:
    """All data sets, including those that are not on this machine or are damaged."""
    for name, make in SYNTHETIC.items():
        X, y = make(random_state=0)
        yield Entry(name, "synthetic", len(X), X.shape[1:], len(set(y.tolist())), f"made by {_function(name)}")
    for name in IMAGES:
        yield _image_entry(name)
    for name in table_names():
        yield _table_entry(name)


def dataset_path(name: str) -> Path:
    """The file of a data set, or an error that says why there is none."""
    if name in SYNTHETIC:
        raise InputError(f"{name} has no file: it is made by {_function(name)}.")
    if name in TABLES:
        raise InputError(f"{name} has no file: it comes with scikit-learn, pollux.lab.datasets.load_table({name!r}).")
    if name in IMAGES:
        return image_set_path(name)
    path = table_path(name)
    if path is None:
        known = [*IMAGES, *(table for table in table_names() if table not in TABLES)]
        raise InputError(
            f"There is no data set {name!r} with a file: `pollux datasets list` shows all.{did_you_mean(name, known)}"
        )
    return path


def check_fetchable(name: str) -> None:
    """Raise an InputError where the data set is not fetched from a publisher."""
    if name in SYNTHETIC:
        raise InputError(f"{name} needs no fetching: it is made by {_function(name)}.")
    if name in TABLES:
        raise InputError(f"{name} needs no fetching: it comes with scikit-learn.")
    image_set_info(name)


def find_fetched(name: str, folder: str | None = None) -> Path | None:
    """The file of an image data set in the folder, or in any of those that are searched."""
    if folder is None:
        return archives.find_file(f"{name}.npz")
    path = Path(folder) / f"{name}.npz"
    return path if path.is_file() else None


def _function(name: str) -> str:
    return f"pollux.lab.datasets.{name}()"


def _image_entry(name: str) -> Entry:
    info, path = IMAGES[name], find_fetched(name)
    sizes, where = (info.n_train + info.n_test, info.shape), f"not here: pollux datasets fetch {name}"
    if path is not None:
        sizes, where = _read_or_damaged(_image_sizes, sizes, path)
    return Entry(name, "images", *sizes, len(info.class_names), where)


def _image_sizes(path: Path) -> tuple[int, tuple[int, ...]]:
    shapes = archives.read_shapes(path)
    archives.require_arrays(shapes, path, "x_train", "x_test")
    return shapes["x_train"][0] + shapes["x_test"][0], shapes["x_train"][1:]


def _table_entry(name: str) -> Entry:
    path = table_path(name)
    if name in TABLES or path is None:
        table = load_table(name)
        rows, columns = table.X.shape
        return Entry(name, "table", rows, (columns,), len(table.class_names), "comes with scikit-learn")
    (rows, columns, classes), where = _read_or_damaged(table_shape, (0, 0, 0), path)
    return Entry(name, "table", rows, (columns,), classes, where)


def _read_or_damaged(read: Callable[[Path], T], otherwise: T, path: Path) -> tuple[T, str]:
    """What is read from a file, and its path; a damaged file must not hide the others."""
    try:
        return read(path), str(path)
    except (InputError, OSError, IndexError, ValueError):
        return otherwise, f"cannot be read: {path}"
