"""The command line on real files: its response time, the overhead of a fit, and the rows predicted per second.

python benchmarks/files.py [--quick]

Each command runs as users run it, in a process of its own, so that imports count. The peer of a row is a limit that we
set ourselves. Files are made in a temporary folder: 100,000 rows of CSV, and 5 million rows of Parquet (900 MB).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from measure import Row, environment, record, text_table

POLLUX = Path(sys.executable).with_name("pollux")
FEATURES = 20


def table(rng: np.random.Generator, n: int, centres: np.ndarray) -> pa.Table:
    """Return n rows around random centres."""
    X = centres[rng.integers(len(centres), size=n)] + rng.normal(size=(n, FEATURES))
    return pa.table({f"x{column}": X[:, column] for column in range(FEATURES)})


def make_files(folder: Path, millions: int) -> None:
    """Write fit.csv of 100,000 rows, one.parquet of a million and all.parquet of all rows."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(8, FEATURES))
    pyarrow.csv.write_csv(table(rng, 100_000, centres), folder / "fit.csv")
    for name, count in (("one", 1), ("all", millions)):
        parts = (table(rng, 200_000, centres) for _ in range(5 * count))
        first = next(parts)
        with pyarrow.parquet.ParquetWriter(folder / f"{name}.parquet", first.schema) as writer:
            writer.write_table(first)
            for part in parts:
                writer.write_table(part)


def run(*arguments: str, folder: Path) -> tuple[float, float, str]:
    """Return seconds, peak memory in MB and standard output of a command."""
    start = time.perf_counter()
    process = subprocess.Popen([POLLUX, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"pollux {' '.join(arguments)} ended with {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss / 1000, output


def rows(folder: Path, millions: int) -> list[Row]:
    run("--help", folder=folder)
    help_seconds = statistics.median(run("--help", folder=folder)[0] for _ in range(9))
    whole, _, output = run("fit", "fit.csv", "--json", "--out", "run", folder=folder)
    training = json.loads(output)["seconds"]["training"]
    _, small, _ = run("predict", "run", "one.parquet", "--out", "one.out.parquet", folder=folder)
    seconds, large, _ = run("predict", "run", "all.parquet", "--out", "all.out.parquet", folder=folder)
    n = 1_000_000 * millions
    return [
        Row("pollux --help, warm", help_seconds, 0.4, 1, faster=False),
        Row(f"fit, 100,000 × {FEATURES} CSV: what is not training, of all", whole - training, whole, 0.2, faster=False),
        Row(f"predict, {n:,} × {FEATURES} Parquet to Parquet, MLP", seconds, n / 200_000, 1, faster=False,
            note=f"{n / seconds:,.0f} rows a second, imports included"),
        Row(f"predict, {n:,} rows, peak memory", large, 1000, 1, faster=False, unit="MB",
            note=f"{small:,.0f} MB for a million rows of the same file"),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one million rows in place of five")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        millions = 1 if options.quick else 5
        make_files(folder, millions)
        made = rows(folder, millions)
    print("\n" + text_table(made))
    if not options.quick:
        record("files", "all", made, environment(2))


if __name__ == "__main__":
    main()
