"""Data sets with known classes for the comparison: tables, images, and any folder of .npz files."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from pollux.errors import InputError, did_you_mean
from pollux.lab.datasets import IMAGES, TABLES, archives, load_images, load_table, table_names
from pollux.lab.datasets.image_sets import how_to_get, image_set_path
from pollux.lab.datasets.table_sets import features_of, table_path

DEVELOPMENT = (
    *("avila", "coil20", "dermatology", "glass", "house_votes84", "ionosphere", "movement_libras", "new_thyroid"),
    *("optdigits", "pendigits", "seeds", "vehicle", "yeast", "digits"),
)
"""Data sets on which settings of the library were chosen."""
HELD_OUT = ("iris", "wine", "breast_cancer", "reuters_r8_tfidf2000")
"""Data sets on which no setting was chosen."""
GIVEN = "given"
GROUPS = ("development", "held out", GIVEN, "images")
"""Groups of data sets that are known by name; other groups are named after the folders of their files."""

USUAL_IMAGES = "mnist"
_ARRAYS = ("X", "data", "indices", "indptr", "shape", "y")


@dataclass(frozen=True)
class Samples:
    """Rows X (n, d), or images (n, C, H, W), and their classes y (n,), 0 … K−1.

    If there are test rows, a method is fitted to X and scored on the test rows.
    """

    X: Any
    y: NDArray[np.int64]
    X_test: Any = None
    y_test: NDArray[np.int64] | None = None

    @property
    def scored(self) -> NDArray[np.int64]:
        """The classes against which labels are scored."""
        return self.y if self.y_test is None else self.y_test


@dataclass(frozen=True)
class DataSet:
    """A data set that can be loaded in any process; rows, columns and classes are n, d and K."""

    name: str
    group: str  # one of ``GROUPS``, or the name of the folder
    path: Path | None  # None for data sets of scikit-learn
    digest: str  # of the file: a file that has changed counts as another data set
    rows: int
    columns: int
    classes: int
    has_test: bool = False  # it is scored on rows that it was not fitted to
    is_sparse: bool = False

    def load(self) -> Samples:
        """Read the samples."""
        return read_set(self.name, self.path)


def describe_set(name: str, group: str, path: Path | None = None) -> DataSet:
    """Read a data set by its name or file, check it, and return its description."""
    samples = read_set(name, path)
    return DataSet(
        name,
        group,
        path,
        digest="" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()[:12],
        rows=samples.X.shape[0],
        columns=int(np.prod(samples.X.shape[1:])),
        classes=len(np.unique(samples.y)),
        has_test=samples.y_test is not None,
        is_sparse=bool(scipy.sparse.issparse(samples.X)),
    )


def group_of(name: str) -> str:
    """Return the group of a data set that is known by name."""
    if name in IMAGES:
        return "images"
    return "development" if name in DEVELOPMENT else "held out" if name in HELD_OUT else GIVEN


def choose_sets(folders: Sequence[str | Path], names: Sequence[str]) -> tuple[list[DataSet], list[str]]:
    """Return the data sets of the folders and those named, by default all on this machine; and notes on those left out.

    A name refers to a data set of the folders if there is one; only the named ones of the folders are then used.
    """
    files = _name_files([file for folder in folders for file in _npz_files(Path(folder))])
    named = {name: path for name, path in files.items() if name in names} or files
    others = [name for name in dict.fromkeys(names) if name not in files]
    notes: list[str] = []
    if not folders and not names:
        others = table_names()
        if archives.find_file(f"{USUAL_IMAGES}.npz") is not None:
            others.append(USUAL_IMAGES)
        else:
            notes.append(f"{USUAL_IMAGES} is left out: {how_to_get(USUAL_IMAGES)}")
    sets = []
    for name in others:
        path = None if name in TABLES or name in IMAGES else table_path(name)
        if name in IMAGES:
            # Raises an InputError if it is not on this machine.
            image_set_path(name)
        elif path is None and name not in TABLES:
            valid = [*table_names(), *IMAGES, *files]
            raise InputError(f"There is no set {name!r}: choose of {', '.join(valid)}.{did_you_mean(name, valid)}")
        sets.append(describe_set(name, group_of(name), path))
    for name, path in named.items():
        # The group is the name of the folder, unless that is the name of a predefined group.
        folder = path.parent.resolve().name
        sets.append(describe_set(name, GIVEN if folder in GROUPS or not folder else folder, path))
    return sets, notes


def _npz_files(folder: Path) -> list[Path]:
    if folder.suffix == ".npz" and folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}: name one that holds .npz files of X and y.")
    files = sorted(path for path in folder.glob("*.npz") if path.is_file() and not path.name.startswith("."))
    if not files:
        raise InputError(f"{folder} holds no .npz file: put one for each set there, with X (n, d) and y (n,).")
    return files


def _name_files(files: Sequence[Path]) -> dict[str, Path]:
    """Return files by the names of their data sets; a name that is not unique is preceded by its folder."""
    distinct = list({path.resolve(): path for path in files}.values())
    taken = Counter([path.stem for path in distinct] + [*table_names(), *IMAGES])
    named: dict[str, Path] = {}
    for path in distinct:
        name = path.stem if taken[path.stem] == 1 else f"{path.resolve().parent.name}/{path.stem}"
        if name in named:
            raise InputError(f"{named[name]} and {path} would both be called {name}: rename one of them.")
        named[name] = path
    return named


def read_set(name: str, path: Path | None) -> Samples:
    """Read a data set of scikit-learn, images (n, C, H, W), or a file."""
    if path is not None:
        return read_file(path)
    if name in IMAGES:
        images = load_images(name)
        # The images are (n, H, W) or (n, H, W, C).
        train, test = (
            pixels[:, None] if pixels.ndim == 3 else np.ascontiguousarray(np.moveaxis(pixels, -1, 1))
            for pixels in (images.x_train, images.x_test)
        )
        return Samples(train, images.y_train, test, images.y_test)
    table = load_table(name)
    return Samples(table.X, table.y)


def read_file(path: Path) -> Samples:
    """Read an .npz file: X (n, d), or the parts of a CSR matrix, and y (n,); nothing in it is executed.

    Other arrays, such as names, are ignored.
    """
    arrays = archives.read_arrays(path, _ARRAYS)
    X: Any = features_of(arrays, path)
    archives.require_arrays(arrays, path, "y")
    if scipy.sparse.issparse(X):
        if not np.isfinite(X.data).all():
            raise InputError(f"{path}: data holds NaN or infinity; a sparse set may not: leave such entries out.")
        if max(*X.shape, X.nnz) > np.iinfo(np.int32).max:
            raise InputError(f"{path} is too large for the methods that are compared, which count in 32 bits.")
        X = scipy.sparse.csr_matrix(X)
        X.sum_duplicates()
        # Several methods of scikit-learn do not accept wider indices.
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    elif np.isinf(X).any():
        raise InputError(f"{path}: X holds infinity. Missing values are NaN; replace infinite ones by these.")
    elif np.isnan(X).all():
        raise InputError(f"{path}: X holds nothing but missing values.")
    return Samples(X, _classes(arrays["y"], X.shape[0], path))


def _classes(y: NDArray[Any], n_rows: int, path: Path) -> NDArray[np.int64]:
    """Encode classes y of any sortable type as 0 … K−1."""
    if y.shape not in ((n_rows,), (n_rows, 1)) or y.dtype.kind not in "buifUS":
        raise InputError(f"{path}: y must be {n_rows} classes, numbers or text, not {y.dtype} {y.shape}.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise InputError(f"{path}: y holds NaN or infinity. Leave rows without a class out.")
    values, codes = np.unique(y.reshape(-1), return_inverse=True)
    if y.dtype.kind == "f" and not np.array_equal(values, np.round(values)):
        raise InputError(f"{path}: y holds fractions, so it is not a list of classes: number these 0, 1, 2, ….")
    if not 2 <= len(values) < n_rows:
        raise InputError(
            f"{path}: y has {len(values)} classes in {n_rows} rows. A comparison needs at least two classes, and fewer "
            "than rows."
        )
    return codes.astype(np.int64)
