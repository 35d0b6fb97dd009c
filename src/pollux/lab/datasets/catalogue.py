"""What data there is, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pollux.errors import InputError, did_you_mean
from pollux.lab.datasets import places
from pollux.lab.datasets.arrays import read_shapes, require
from pollux.lab.datasets.celeux import celeux_one, celeux_two
from pollux.lab.datasets.images import IMAGES, recipe
from pollux.lab.datasets.mixtures import gaussian_student_mixture
from pollux.lab.datasets.synthetic import Sample, blobs, circles, moons
from pollux.lab.datasets.tables import TABLES, load_table, table_names, table_path, table_shape

Kind = Literal["synthetic", "images", "table"]
T = TypeVar("T")

SYNTHETIC: dict[str, Callable[..., Sample]] = {
    "blobs": blobs,
    "celeux_one": celeux_one,
    "celeux_two": celeux_two,
    "circles": circles,
    "gaussian_student_mixture": gaussian_student_mixture,
    "moons": moons,
}
"""What can be made up, by name: each takes ``n_samples`` and ``random_state``."""


@dataclass(frozen=True)
class Entry:
    """A data set: how many samples of which shape and how many classes it has, and where it is."""

    name: str
    kind: Kind
    samples: int
    shape: tuple[int, ...]
    classes: int
    where: str


def catalogue() -> Iterator[Entry]:
    """All data sets, those that are not here and those that are damaged among them."""
    for name in SYNTHETIC:
        X, y = SYNTHETIC[name](random_state=0)
        yield Entry(
            name, "synthetic", len(X), X.shape[1:], len(set(y.tolist())), f"made by pollux.lab.datasets.{name}()"
        )
    for name in IMAGES:
        yield _images(name)
    for name in table_names():
        yield _table(name)


def path_of(name: str) -> Path:
    """The file of a data set that is here and has one."""
    if name in SYNTHETIC:
        raise InputError(f"{name} has no file: it is made by pollux.lab.datasets.{name}().")
    if name in TABLES:
        raise InputError(
            f"{name} has no file of ours: it comes with scikit-learn, pollux.lab.datasets.load_table({name!r})."
        )
    if name in IMAGES:
        path = places.find(f"{name}.npz")
        if path is None:
            raise InputError(IMAGES[name].absent(name))
        return path
    path = table_path(name)
    if path is None:
        known = [*IMAGES, *(table for table in table_names() if table not in TABLES)]
        raise InputError(
            f"There is no data set {name!r} with a file: `pollux datasets list` shows all.{did_you_mean(name, known)}"
        )
    return path


def fetchable(name: str) -> None:
    """Refuse the name of what cannot be fetched."""
    if name in SYNTHETIC:
        raise InputError(f"{name} needs no fetching: it is made by pollux.lab.datasets.{name}().")
    if name in TABLES:
        raise InputError(f"{name} needs no fetching: it comes with scikit-learn.")
    recipe(name)


def fetched(name: str, folder: str | None = None) -> Path | None:
    """Where an image data set is already: in the folder, or in any of those that are searched."""
    if folder is None:
        return places.find(f"{name}.npz")
    path = Path(folder) / f"{name}.npz"
    return path if path.is_file() else None


def _images(name: str) -> Entry:
    known, path = IMAGES[name], places.find(f"{name}.npz")
    samples, shape, where = known.n_train + known.n_test, known.shape, f"not here: pollux datasets fetch {name}"
    if path is not None:
        (samples, shape), where = _or_damaged(_image_sizes, (samples, shape), path)
    return Entry(name, "images", samples, shape, len(known.class_names), where)


def _image_sizes(path: Path) -> tuple[int, tuple[int, ...]]:
    shapes = read_shapes(path)
    require(shapes, path, "x_train", "x_test")
    return shapes["x_train"][0] + shapes["x_test"][0], shapes["x_train"][1:]


def _table(name: str) -> Entry:
    path = table_path(name)
    if name in TABLES or path is None:
        table = load_table(name)
        rows, columns = table.X.shape
        return Entry(name, "table", rows, (columns,), len(table.class_names), "comes with scikit-learn")
    (rows, columns, classes), where = _or_damaged(table_shape, (0, 0, 0), path)
    return Entry(name, "table", rows, (columns,), classes, where)


def _or_damaged(read: Callable[[Path], T], otherwise: T, path: Path) -> tuple[T, str]:
    """What is read of a file and where it is; one that cannot be read must not hide the others."""
    try:
        return read(path), str(path)
    except (InputError, OSError, IndexError, ValueError):
        return otherwise, f"cannot be read: {path}"
