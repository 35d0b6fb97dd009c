"""Read tables from the files of packages: a row for each sample, with a column of classes among the others."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import r_data
from further_packages import members

CLASS = "the class"
"""The name of the class column if the file gives none."""
_ABSENT = ["?", "<null>", "~", "NA", ""]
_MOST_COLUMNS = 2_000


def _stacked(tables: Sequence[Any]) -> Any:
    """Stack the rows of the tables; the first level of the index is the number of the table."""
    import pandas as pd

    return pd.concat(tables, keys=range(len(tables)))


def csv(*contents: bytes, **options: Any) -> Any:
    """Read CSV files; the first line of each names the columns, unless ``header=None``."""
    import pandas as pd

    texts = [gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content for content in contents]
    kept = {"na_values": _ABSENT, "skipinitialspace": True} | options
    return _stacked([pd.read_csv(io.BytesIO(text), **kept) for text in texts])


def keel(content: bytes, sep: str = ",") -> Any:
    """Read a file of KEEL or Weka: its header, if any, is in lines that begin with @."""
    lines = [line for line in content.decode("latin-1").splitlines() if not line.startswith(("@", "%"))]
    return csv("\n".join(lines).encode(), header=None, sep=sep)


def series(*contents: bytes) -> Any:
    """Read .ts files: each line holds the channels of a sample, which are concatenated, and its class."""
    import pandas as pd

    tables = []
    for content in contents:
        lines = [line.split(":") for line in content.decode().split("@data\n", 1)[1].split()]
        rows = [[float(value) for value in ",".join(channels).split(",")] for *channels, _ in lines]
        tables.append(pd.DataFrame(rows).assign(**{CLASS: [label for *_, label in lines]}))
    return _stacked(tables)


def array_parts(content: bytes) -> Any:
    """Read an .npz file with X (n, d, 1) and y (n,) of a training and a test part."""
    arrays = np.load(io.BytesIO(content), allow_pickle=False)
    X, y = (np.concatenate([arrays[f"{name}_train"], arrays[f"{name}_test"]]) for name in "Xy")
    return labelled(X[:, :, 0], y)


def in_archive(content: bytes, file: str) -> Any:
    """Read a file whose first column holds row numbers, from an archive within the package."""
    return csv(*members(content, [file]), index_col=0)


def labelled(X: Any, y: Any) -> Any:
    """Return a table of columns and classes."""
    import pandas as pd

    return pd.DataFrame(X).assign(**{CLASS: np.asarray(y)})


def beside(*contents: bytes, change: Callable[[Any], NDArray[Any]] = np.asarray, **options: Any) -> Any:
    """Read files of rows and as many files of their classes; the classes become the last column."""
    half = len(contents) // 2
    X, y = csv(*contents[:half], **options), csv(*contents[half:], **options)
    return labelled(change(X), y.iloc[:, -1])


def of_r(
    *contents: bytes,
    X: str | Sequence[str],
    y: str,
    item: str | None = None,
    change: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray,
) -> Any:
    """Read objects of R from files or, with ``item``, from the database of a package; X and y are paths in them."""
    import pandas as pd

    if item is None:
        parts = {name: part for content in contents for name, part in r_data.saved(content).value.items()}
    else:
        index, content = contents
        parts = {item: r_data.from_data_base(index, content, item)}

    def at(path: str) -> r_data.Thing:
        thing = r_data.Thing(parts)
        for name in path.split("/"):
            thing = thing[name]
        return thing

    found = [at(path) for path in ([X] if isinstance(X, str) else X)]
    tables = [one.frame() if one.is_frame else pd.DataFrame(change(one.array())) for one in found]
    columns = tables[0] if len(tables) == 1 else pd.concat(tables, axis=1, ignore_index=True)
    return labelled(columns, at(y).array())


def curves_of_r(content: bytes) -> Any:
    """Read functional data of the package ddalpha: the values (n, points) of curves, and their labels."""
    thing = next(iter(r_data.saved(content).value.values()))
    curves = [curve["vals"].array() for curve in thing["dataf"].value]
    return labelled(np.array(curves), [label.array()[0] for label in thing["labels"].value])


def most_varied(X: Any) -> NDArray[np.float64]:
    """Return the 2,000 columns of largest variance, (n, 2000)."""
    values: NDArray[np.float64] = np.asarray(X, dtype=float)
    return values[:, np.sort(np.argsort(-np.nanvar(values, axis=0), kind="stable")[:_MOST_COLUMNS])]


def samples_first(X: NDArray[Any]) -> NDArray[Any]:
    """Reshape landmarks (points, 2, n) to (n, 2·points)."""
    return X.transpose(2, 0, 1).reshape(X.shape[2], -1)
