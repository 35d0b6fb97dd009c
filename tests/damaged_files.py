"""Damaged data files, read in a separate process, which may crash.

``python damaged_files.py NAME FIRST COUNT FOLDER`` reads COUNT damaged copies of a file, from number FIRST on, and
prints a line before and after each.
"""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

TABLES = (
    *("x.csv", "x.tsv", "x.csv.gz", "x.parquet", "zstd.parquet", "plain.parquet"),
    *("x.feather", "plain.feather", "x.arrow", "stream.arrow"),
)
DOCUMENTS = ("x.json", "lines.jsonl", "x.json.gz", "x.xlsx", "x.db")
ARRAYS = ("x.npy", "images.npy", "x.npz", "packed.npz")
IMAGES = ("grey.png", "x.png", "x.jpg", "x.bmp", "x.gif", "x.tiff", "x.webp", "x.ppm")
NAMES = (*TABLES, *ARRAYS, *IMAGES, *DOCUMENTS)


def read_in_processes(name: str, count: int, folder: Path, first: int = 0) -> list[str]:
    """Read damaged copies of a file and return what went wrong: errors other than ours, and signals."""
    faults = []
    last = first + count
    while first < last:
        command = [sys.executable, __file__, name, str(first), str(last - first), str(folder)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line.split(" ", 1) for line in ended.stdout.splitlines()]
        fine = ("begun", "read", "refused")
        faults += [f"{name} {number}: {outcome}" for number, outcome in lines if outcome not in fine]
        if ended.returncode == 0:
            break
        number = int(lines[-1][0]) if lines else first
        faults.append(f"{name} {number}: the process ended with {ended.returncode} {ended.stderr[-500:]}")
        first = number + 1
    return faults


def sound_file(name: str) -> bytes:
    """Return the content of the file before it is damaged."""
    random = np.random.default_rng(0)
    suffix = Path(name).suffix
    file = io.BytesIO()
    if name in IMAGES:
        from PIL import Image

        pixels = random.integers(0, 256, (9, 11) if name.startswith("grey") else (9, 11, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, {".jpg": "JPEG", ".tiff": "TIFF"}.get(suffix, suffix[1:].upper()))
    elif suffix == ".npy":
        np.save(file, random.normal(size=(40, 3) if name == "x.npy" else (6, 3, 4, 4)))
    elif suffix == ".npz":
        save = np.savez if name == "x.npz" else np.savez_compressed
        save(file, X=random.normal(size=(40, 3)), y=np.arange(40), feature_names=np.array(["a", "b", "c"]))
    elif name in DOCUMENTS:
        _write_document(name, file, random)
    else:
        _write_table(name, file, random)
    return file.getvalue()


def _write_document(name: str, file: io.BytesIO, random: np.random.Generator) -> None:
    words = ["red", "green", "dark blue", "äöü"]
    rows = [(index, words[index % 4], None if index % 9 == 4 else float(random.normal())) for index in range(40)]
    names = ("count", "colour", "size")
    if name.endswith(".db"):
        with closing(sqlite3.connect(":memory:")) as base:
            base.execute(f"CREATE TABLE sizes ({', '.join(names)})")
            base.executemany("INSERT INTO sizes VALUES (?, ?, ?)", rows)
            base.commit()
            file.write(base.serialize())
    elif name.endswith(".xlsx"):
        import xlsxwriter

        with xlsxwriter.Workbook(file, {"in_memory": True}) as book:
            sheet = book.add_worksheet()
            for number, row in enumerate([names, *rows]):
                sheet.write_row(number, 0, row)
    else:
        records = [dict(zip(names, row, strict=True)) for row in rows]
        lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
        text = (lines if name == "lines.jsonl" else json.dumps(records)).encode()
        file.write(gzip.compress(text, mtime=0) if name.endswith(".gz") else text)


def _write_table(name: str, file: io.BytesIO, random: np.random.Generator) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    n = 40
    words = np.array(["red", "green", "dark blue", "äöü"])[random.integers(0, 4, n)].tolist()
    columns: dict[str, Any] = {
        "name": [f"n{index}" for index in range(n)],
        "size": random.normal(size=n),
        "count": random.integers(-50, 50, n),
        "colour": [None if index % 9 == 4 else word for index, word in enumerate(words)],
        "alive": (random.random(n) > 0.5).tolist(),
    }
    table = pa.table(columns)
    if ".csv" in name or ".tsv" in name:
        options = pa.csv.WriteOptions(delimiter="\t" if ".tsv" in name else ",")
        text = io.BytesIO()
        pa.csv.write_csv(table, text, options)
        file.write(gzip.compress(text.getvalue(), mtime=0) if name.endswith(".gz") else text.getvalue())
        return
    categories = {**columns, "kind": pa.array(words).dictionary_encode(), "day": pa.array(range(n), pa.date32())}
    table = pa.table(categories)
    if name.endswith(".parquet"):
        packing = {"x": "snappy", "zstd": "zstd", "plain": "none"}[name.split(".")[0]]
        pa.parquet.write_table(table, file, row_group_size=15, compression=packing, use_dictionary=packing != "none")
    elif name.endswith(".feather"):
        packing = "uncompressed" if name.startswith("plain") else "lz4"
        pa.feather.write_feather(table, file, compression=packing, chunksize=15)
    else:
        make = pa.ipc.new_stream if name.startswith("stream") else pa.ipc.new_file
        with make(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=15)


def damage(content: bytes, random: np.random.Generator) -> bytes:
    """Flip bits, overwrite bytes, delete, repeat, zero or move a piece, or cut off the end."""
    found = bytearray(content)
    for _ in range(int(random.integers(1, 5))):
        start = int(random.integers(0, len(found) + 1))
        length = int(random.integers(1, 9)) if random.random() < 0.7 else int(random.integers(1, len(found) + 2))
        piece = found[start : start + length]
        # Most damage preserves lengths, so that reading gets as far as the content.
        match random.choice(7, p=[0.4, 0.15, 0.1, 0.1, 0.1, 0.1, 0.05]):
            case 0:
                for place in random.integers(0, max(1, len(found)), int(random.integers(1, 9))):
                    found[place : place + 1] = bytes(
                        byte ^ (1 << random.integers(8)) for byte in found[place : place + 1]
                    )
            case 1:
                found[start : start + length] = random.bytes(len(piece))
            case 2:
                found[start : start + length] = bytes(len(piece))
            case 3:
                found[start : start + length] = b"\xff" * len(piece)
            case 4:
                found[start : start + length] = b""
            case 5:
                found[start:start] = piece
            case _:
                found[start:] = b""
    return bytes(found)


def read_in_every_way(path: Path) -> bool:
    """Read a file at once, in parts and in blocks, as far as possible; return whether any of it could be read."""
    from pollux.data.sources import InMemory, open_data
    from pollux.data.streams import FileChunks
    from pollux.data.survey import Choices, learn_encoding
    from pollux.errors import InputError

    def at_once() -> None:
        source = open_data(path)
        part = source.read()
        encoding, _ = learn_encoding(InMemory(part.rows, part.feature_names), Choices(missing="mean"))
        encoding.encode(part.rows)
        for name in part.names:
            part.column(name).tolist()
            part.written(name)
        for some in source.stream(encoding, part.names):
            encoding.encode(some.rows)

    def in_blocks() -> None:
        blocks = open_data(path).blocks()
        encoding, lengths = learn_encoding(blocks, Choices(missing="drop"))
        chunks = FileChunks(blocks, encoding=encoding, lengths=lengths)
        for chunk in range(len(lengths)):
            chunks.read(chunk)
        chunks.fingerprint()

    def as_numbers() -> None:
        chunks = FileChunks(path)
        for chunk in range(len(chunks.lengths)):
            chunks.read(chunk)

    could = False
    for way in (at_once, in_blocks, as_numbers):
        try:
            way()
        except InputError:
            continue
        could = True
    return could


def main(name: str, first: int, count: int, folder: Path) -> Iterator[str]:
    content = sound_file(name)
    place = folder / "images" if name in IMAGES else folder
    place.mkdir(exist_ok=True, parents=True)
    for number in range(first, first + count):
        path = place / name
        path.write_bytes(damage(content, np.random.default_rng([number, NAMES.index(name)])))
        yield f"{number} begun"
        try:
            outcome = "read" if read_in_every_way(place if name in IMAGES else path) else "refused"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {str(error)[:300]!r}"
        yield f"{number} {outcome}"


if __name__ == "__main__":
    import resource

    # Impossible lengths must raise an error, not exhaust the memory of the machine.
    resource.setrlimit(resource.RLIMIT_AS, (6_000_000_000, 6_000_000_000))
    warnings.simplefilter("ignore")
    for line in main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])):
        print(line, flush=True)
