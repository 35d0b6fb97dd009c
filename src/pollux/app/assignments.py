"""The rows of clusters.csv and of predictions: cluster, probabilities and entropy, beside identifiers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from pollux.data.sources import Part
from pollux.errors import InputError
from pollux.io.atomic import in_place

FORMATS = (".csv", ".tsv", ".parquet", ".pq")


def assignment_columns(
    part: Part, numbers: NDArray[np.int64], probabilities: NDArray[Any], identifiers: Sequence[str]
) -> dict[str, Any]:
    """Columns by name: row, identifiers, cluster, p_0 … p_{K−1}, entropy (in nats).

    ``numbers`` (n,) are those of the rows in the file, from 0; ``probabilities`` are (n, K).
    """
    columns: dict[str, Any] = {"row": numbers}
    results = {"cluster": probabilities.argmax(1)}
    results |= {f"p_{k}": probabilities[:, k] for k in range(probabilities.shape[1])}
    results["entropy"] = entr(probabilities).sum(1)
    taken = {*columns, *results}
    for name in identifiers:
        if name in part.names:
            # Of another meaning than ours, it gets another name.
            columns[f"{name}_in_file" if name in taken else name] = part.written(name)
    return columns | results


def row_numbers(part: Part, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Numbers in the file of the selected rows of a part."""
    return np.asarray(part.first + np.flatnonzero(kept), dtype=np.int64)


@contextmanager
def open_writer(path: Path | None) -> Iterator[Any]:
    """A function that takes columns and writes them below the last ones: CSV, TSV or Parquet, by the file's name.

    The file appears when all is written. Without a path it is CSV on standard output.
    """
    if path is None:
        with RowWriter(sys.stdout.buffer, ".csv") as rows:
            yield rows.write
        return
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path} does not end in one of {', '.join(FORMATS)}: name a CSV, TSV or Parquet file.")
    with in_place(path) as temporary, temporary.open("wb") as file, RowWriter(file, path.suffix.lower()) as rows:
        yield rows.write


class RowWriter:
    """Writes columns to a file, some rows at a time; the first decide on the types."""

    def __init__(self, file: Any, suffix: str) -> None:
        self._file, self._suffix = file, suffix
        self._writer: Any = None

    def __enter__(self) -> RowWriter:
        return self

    def write(self, columns: dict[str, Any]) -> None:
        import pyarrow as pa

        table = pa.table(columns)
        if self._writer is None:
            self._writer = self._open(table.schema)
        self._writer.write_table(table.cast(self._writer.schema) if hasattr(self._writer, "schema") else table)

    def _open(self, schema: Any) -> Any:
        if self._suffix in (".parquet", ".pq"):
            import pyarrow.parquet as parquet

            # Probabilities hardly compress, and dictionaries of them cost more than they save.
            return parquet.ParquetWriter(self._file, schema, compression="snappy", use_dictionary=False)
        import pyarrow.csv as arrow_csv

        options = arrow_csv.WriteOptions(delimiter="\t" if self._suffix == ".tsv" else ",", quoting_style="needed")
        return arrow_csv.CSVWriter(self._file, schema, write_options=options)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
