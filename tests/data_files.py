"""Data files in every format, and the command line called within this process."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
from PIL import Image

from pollux.app import cli
from pollux.data.encoding import ArrayEncoding, TableEncoding
from pollux.data.sources import InMemory
from pollux.data.streams import open_blocks
from pollux.data.survey import Choices, learn_encoding

FAST = ("--clusters", "3", "--objective", "mmd_ova", "--epochs", "2", "--restarts", "1")


def without_addresses(value: object) -> str:
    """Return a test name that is the same in all processes: the text of a function contains its address."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


class Answer(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def pollux(*arguments: object) -> Answer:
    """Run a command within this process, which saves the seconds that a new process takes."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return Answer(code, *texts)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return everything below a folder: the contents of files, and None for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def frame(n: int = 30, seed: int = 0) -> pd.DataFrame:
    """Return rows with names, numbers, text of few values, booleans, a constant and known classes."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, 3, n)
    return pd.DataFrame(
        {
            "name": [f"n{index}" for index in range(n)],
            "size": classes + random.normal(size=n) / 4,
            "weight": random.normal(size=n) * 1e5,
            "count": random.integers(0, 50, n),
            "colour": random.choice(["red", "green", "dark blue"], n),
            "alive": random.random(n) > 0.5,
            "unit": "cm",
            "class": classes,
        }
    )


def delimited(
    data: pd.DataFrame, delimiter: str = ",", *, decimal: str = ".", newline: str = "\n", header: bool = True
) -> str:
    """Return a data frame as delimited text from which each number is read back bit by bit."""

    def cell(value: Any) -> str:
        if isinstance(value, float | np.floating):
            return "" if np.isnan(value) else repr(float(value)).replace(".", decimal)
        if value is None:
            return ""
        text = str(value)
        quoted = '"' + text.replace('"', '""') + '"'
        return quoted if any(mark in text for mark in (delimiter, '"', "\n", "\r")) else text

    rows = [list(map(cell, row)) for row in data.itertuples(index=False)]
    lines = [list(map(cell, data.columns)), *rows] if header else rows
    return "".join(delimiter.join(line) + newline for line in lines)


def write_bytes(path: Path, content: str | bytes) -> Path:
    """Write text as it is, without converting line ends."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_arrow(path: Path, table: pa.Table, *, stream: bool = False) -> Path:
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return path


def as_table(data: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)


TABLES: dict[str, Callable[[Path, pd.DataFrame], Any]] = {
    "plain.csv": lambda path, data: write_bytes(path, delimited(data)),
    "packed.csv.gz": lambda path, data: path.write_bytes(gzip.compress(delimited(data).encode())),
    "marked.csv": lambda path, data: write_bytes(path, "\ufeff" + delimited(data)),
    "windows.csv": lambda path, data: write_bytes(path, delimited(data, newline="\r\n")),
    "continental.csv": lambda path, data: write_bytes(path, delimited(data, ";", decimal=",")),
    "pipes.txt": lambda path, data: write_bytes(path, delimited(data, "|")),
    "tabs.tsv": lambda path, data: write_bytes(path, delimited(data, "\t")),
    "packed.tsv.gz": lambda path, data: path.write_bytes(gzip.compress(delimited(data, "\t").encode())),
    "table.parquet": lambda path, data: parquet.write_table(as_table(data), path, row_group_size=11),
    "table.feather": lambda path, data: data.to_feather(path),
    "file.arrow": lambda path, data: write_arrow(path, as_table(data)),
    "stream.arrow": lambda path, data: write_arrow(path, as_table(data), stream=True),
}
"""Functions that write a data frame, by the name of the file."""


def write_table(folder: Path, name: str, data: pd.DataFrame) -> Path:
    TABLES[name](folder / name, data)
    return folder / name


def write_images(folder: Path, arrays: Any, *, names: Callable[[int], str] = lambda index: f"{index:02}.png") -> Path:
    for index, array in enumerate(arrays):
        path = folder / names(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path)
    return folder


def pixels(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def plan_table(table: Any, choices: Choices | None = None) -> TableEncoding:
    """Return the encoding of an Arrow table in memory."""
    encoding, _ = learn_encoding(InMemory(table), choices)
    assert isinstance(encoding, TableEncoding)
    return encoding


def plan_array(array: Any, choices: Choices | None = None, columns: Sequence[str] | None = None) -> ArrayEncoding:
    """Return the encoding of rows (n, d) or images in memory."""
    encoding, _ = learn_encoding(InMemory(array, columns), choices)
    assert isinstance(encoding, ArrayEncoding)
    return encoding


def survey_table(path: Path, choices: Choices | None = None) -> tuple[TableEncoding, np.ndarray]:
    """Return the encoding of tables in files, and the number of rows of each block."""
    encoding, lengths = learn_encoding(open_blocks(path), choices)
    assert isinstance(encoding, TableEncoding)
    return encoding, lengths


def survey_array(path: Path, choices: Choices | None = None) -> tuple[ArrayEncoding, np.ndarray]:
    """Return the encoding of an array in a file, and the number of rows of each block."""
    encoding, lengths = learn_encoding(open_blocks(path), choices)
    assert isinstance(encoding, ArrayEncoding)
    return encoding, lengths
