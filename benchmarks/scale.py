"""Many rows and several processes: the cost of an epoch as rows grow, and a cost model for planning.

python benchmarks/scale.py [--only NAME ...] [--quick] [--threads N] [--docs FILE]

Every measurement is made in processes of its own; memory is the peak of such a process. Rows are Gaussian blobs of 20
columns in float32, made once in a folder below the system's temporary one: 2.1 GB. The time of an epoch is that
between the ends of two epochs of one fit, so that imports, the opening of files and the last evaluation are left out.
Sides that are compared take turns. With --docs the tables replace the text between the marks of a Markdown file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from measure import Row, aligned, environment, fill, piped, record, significant, text_table
from pollux.data.shuffling import WINDOW_BYTES
from pollux.objectives.divergences import DIVERGENCES
from scale_probes import CLUSTERS, Found, in_own_process

Side = dict[str, Any]  # the parameters of a fit that is measured

FEATURES, HIDDEN = 20, 100
MODELS = ("linear", "mlp")
SHAPES = {"linear": "linear", "mlp": f"MLP {FEATURES}-{HIDDEN}-{CLUSTERS}"}
WIDE: Side = {"held": "random", "model": "mlp", "hidden": [1200], "learning_rate": 1e-3}
OBJECTIVES = [
    (f"{name}_{mode}", geometry)
    for name, divergence in DIVERGENCES.items()
    for geometry in (("linear", "rbf") if name == "mmd" else ("auto",))
    for mode in ("ova", "ovo")
    if mode == "ova" or not divergence.refuses_one_vs_one
]
COST_HEADER = ("objective", "batch", "ms a step, 1 core", "messages a step", "bytes a step", "formula")


@dataclass(frozen=True)
class Sizes:
    """Rows in total, per row group, of images, and of a batch for the cost model; and the number of repetitions."""

    rows: tuple[int, ...]
    group: int
    images: int
    batches: tuple[int, ...]
    turns: int
    at_most: float


FULL = Sizes((100_000, 1_000_000, 10_000_000), 100_000, 60_000, (500, 2000), 3, 3.0)
QUICK = Sizes((20_000, 100_000), 10_000, 4_000, (100,), 1, 0.1)
# Measurements with at most this many rows are short, and repeated.
SHORT = 1_000_000


def files(n: int, group: int) -> tuple[str, str]:
    """Return a Parquet file with row groups and an .npy file of the same n rows; make them if they are missing."""
    folder = Path(tempfile.gettempdir()) / "pollux-scale"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{n}-{group}.{kind}" for kind in ("parquet", "npy")]
    if not all(path.exists() for path in paths):
        print(f"    {n:,} rows are made in {folder} ...", flush=True)
        made = [path.with_suffix(f"{path.suffix}.{os.getpid()}") for path in paths]
        make_files(made[0], made[1], n, group)
        for path, ready in zip(paths, made, strict=True):
            ready.replace(path)
    return str(paths[0]), str(paths[1])


def make_files(parquet: Path, array: Path, n: int, group: int) -> None:
    """Write both files, one row group at a time."""
    random = np.random.default_rng(0)
    centres = 3 * random.standard_normal((CLUSTERS, FEATURES), dtype=np.float32)
    schema = pa.schema([(f"x{column}", pa.float32()) for column in range(FEATURES)])
    mapped = np.lib.format.open_memmap(array, mode="w+", dtype=np.float32, shape=(n, FEATURES))
    with pyarrow.parquet.ParquetWriter(parquet, schema) as writer:
        for start in range(0, n, group):
            size = min(group, n - start)
            X = centres[random.integers(CLUSTERS, size=size)]
            X += random.standard_normal((size, FEATURES), dtype=np.float32)
            mapped[start : start + size] = X
            writer.write_table(pa.table(list(X.T), schema=schema))
    mapped.flush()


def turns_of(sides: Sequence[Side], turns: int) -> list[list[Found]]:
    """Return the results of fits of each kind, which take turns; the order is reversed in every other turn."""
    found: list[list[Found]] = [[] for _ in sides]
    for turn in range(turns):
        order = range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides)))
        for which in order:
            found[which].append(in_own_process("fit", **sides[which]))
    return found


def epochs(found: Sequence[Found], summary: Callable[[list[float]], float] = min) -> float:
    """Return the seconds of an epoch."""
    return summary([seconds for one in found for seconds in one["epochs"]])


def growth(sizes: Sizes, threads: int) -> Iterator[Row]:
    """Time per row and peak memory of a streamed epoch, against those with the fewest rows."""
    for model in MODELS:
        time: dict[int, float] = {}
        peak: dict[int, float] = {}
        for n in sizes.rows:
            side: Side = {"held": "path", "source": files(n, sizes.group)[0], "model": model, "threads": threads}
            turns = sizes.turns if n <= SHORT else 1
            (timed,) = turns_of([{**side, "max_epochs": 3}], turns)
            (held,) = turns_of([{**side, "max_epochs": 1}], turns)
            time[n], peak[n] = epochs(timed) / n * 1e6, min(one["peak"] for one in held) / 1e6
        first, *others = sizes.rows
        for n in others:
            work = f"streamed epoch of {n:,} rows against {first:,}, {SHAPES[model]}"
            yield Row(f"{work}: time a row", time[n], time[first], 1.2, faster=False, unit="µs")
            note = "the fewest rows do not fill the window in which rows are shuffled"
            full = 4 * FEATURES * first >= WINDOW_BYTES
            yield Row(
                f"{work}: peak memory", peak[n], peak[first], 1.1, faster=False, unit="MB", note="" if full else note
            )


def streaming(sizes: Sizes, threads: int) -> Iterator[Row]:
    """An epoch from Parquet, against one of the same rows in memory."""
    for n, model in product(sizes.rows[1:], MODELS):
        work = f"epoch from Parquet against memory, {n:,} rows, {SHAPES[model]}"
        if 6 * 4 * FEATURES * n > os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            print(f"    {work}: left out, memory is short", flush=True)
            continue
        parquet, array = files(n, sizes.group)
        side: Side = {"model": model, "max_epochs": 3, "threads": threads}
        sides = [{"held": "path", "source": parquet, **side}, {"held": "memory", "source": array, **side}]
        ours, peer = map(epochs, turns_of(sides, sizes.turns if n <= SHORT else 1))
        yield Row(work, ours, peer, 1.25, faster=False)


def processes(sizes: Sizes, threads: int) -> Iterator[Row]:
    """An epoch with two processes of one thread each, against one process."""
    side = {**WIDE, "n": sizes.images, "batch_size": 2000, "max_epochs": 4}
    ours, peer = map(epochs, turns_of([{**side, "processes": 2}, side], sizes.turns))
    work = f"epoch of 2 processes against 1, {sizes.images:,} × 784, MLP 784-1200-10, batch 2000"
    yield Row(work, ours, peer, 1.6, note="each process has 1 thread")


def checkpoints(sizes: Sizes, threads: int) -> Iterator[Row]:
    """The median epoch with a checkpoint after each, against that without."""
    n = sizes.rows[1]
    streamed: Side = {"held": "path", "source": files(n, sizes.group)[0]}
    sides = {f"streamed, {n:,} rows, {SHAPES[model]}": {**streamed, "model": model} for model in MODELS}
    sides[f"in memory, {sizes.images:,} × 784, MLP 784-1200-10"] = {**WIDE, "n": sizes.images}
    for work, side in sides.items():
        pair = [{**side, "max_epochs": 6, "threads": threads, "checkpoint": kept} for kept in (True, False)]
        ours, peer = (epochs(found, statistics.median) for found in turns_of(pair, sizes.turns))
        yield Row(f"epoch with a checkpoint against without, {work}", ours, peer, 1.03, faster=False)


def kmeans(sizes: Sizes, threads: int) -> Iterator[Row]:
    """A fit of one epoch on a memory map, against one pass of MiniBatchKMeans."""
    fewer, n = sizes.rows[-2:]
    source = {rows: files(rows, sizes.group)[1] for rows in (fewer, n)}
    for cores in (1, 2):
        limits: Side = {"threads": cores, "cores": cores}
        ways = {
            way: in_own_process("kmeans", source=source[fewer], way=way, **limits)["seconds"]
            for way in ("fit", "partial_fit")
        }
        way = min(ways, key=lambda way: ways[way])
        ours, peer = [], []
        for _ in range(sizes.turns if n <= SHORT else 2):
            side: Side = {"held": "memmap", "source": source[n], "model": "linear", "max_epochs": 1}
            ours.append(in_own_process("fit", **side, **limits)["seconds"])
            peer.append(in_own_process("kmeans", source=source[n], way=way, **limits)["seconds"])
        tried = ", ".join(f"{name} {significant(ways[name])} s" for name in ways)
        note = f"peer: MiniBatchKMeans by {way}, the faster at {fewer:,} rows ({tried})"
        work = f"one pass over a memory map against k-means, {n:,} rows, linear, {cores} core{'s' * (cores > 1)}"
        yield Row(work, min(ours), min(peer), 3, faster=False, note=note)


BENCHMARKS: dict[str, Callable[[Sizes, int], Iterator[Row]]] = {
    "growth": growth,
    "streaming": streaming,
    "processes": processes,
    "checkpoints": checkpoints,
    "kmeans": kmeans,
}


def predicted_bytes(objective: str, geometry: str, batch: int, ranks: int = 2) -> int:
    """Return the bytes that one process sends in a step, in float32; docs/planning.md explains the formula.

    b is the number of its rows of the batch, K of clusters, d of columns, P of parameters.
    """
    name, mode = objective.split("_")
    b, K, d = batch // ranks, CLUSTERS, FEATURES
    P = (d + 1) * HIDDEN + (HIDDEN + 1) * K
    if objective == "mmd_ova" and geometry == "linear":
        # Sums and masses of the clusters, and the sum of all; the gradient and the loss.
        return 4 * (K * d + K + d) + 4 * (P + 1)
    if objective == "kl_ova":
        # p(y) and the value.
        return 4 * (K + 1) + 4 * (P + 1)
    # The distribution of rows, the loss, the gradient; log p(y) forwards and, for all processes, backwards.
    always = 64 + 4 + 4 * P + 4 * K + 4 * ranks * K
    rows = 8 + 4 * d * b
    if name == "wasserstein":
        # The clusters over the samples, and one cost per problem.
        problems = K if mode == "ova" else K * (K - 1) // 2
        uniform = 4 * b if mode == "ova" else 0
        return always + rows + 4 * K * b + 4 * K * batch + uniform + 8 * problems
    if name == "mmd" and geometry == "linear":
        return always + 4 * d + 8 * (K + (mode == "ova")) * d
    if name == "mmd":
        return always + rows + 4 * K * b + 16 * K * K
    return always + 8 * K * (1 if mode == "ova" else K)


def cost(sizes: Sizes) -> dict[str, Any]:
    """The cost model: the time of each objective on one core and its messages, and the speed of both."""
    lines = []
    for batch in sizes.batches:
        sent = in_own_process("messages", processes=2, tasks=OBJECTIVES, batch=batch)["steps"]
        for (objective, geometry), messages in zip(OBJECTIVES, sent, strict=True):
            print(f"    {objective}, {geometry}, batch {batch} ...", flush=True)
            task: Side = {"objective": objective, "geometry": geometry, "batch": batch}
            one = in_own_process("step", cores=1, at_most=sizes.at_most, **task)
            lines.append(
                {
                    **task,
                    "seconds": one["seconds"],
                    "messages": messages["messages"],
                    "bytes": messages["bytes"],
                    "predicted_bytes": predicted_bytes(objective, geometry, batch),
                }
            )
    return {
        "steps": lines,
        "small_message": in_own_process("latency", processes=2, floats=16, times=2000)["seconds"],
        "megabyte": in_own_process("latency", processes=2, floats=250_000, times=200)["seconds"],
        "parquet": in_own_process("decode", source=files(sizes.rows[1], sizes.group)[0], cores=1),
    }


def cost_cells(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the table of the cost model, header first."""
    lines = [
        (
            f"`{line['objective']}`" + (", rbf" if line["geometry"] == "rbf" else ""),
            f"{line['batch']}",
            significant(line["seconds"] * 1000),
            f"{line['messages']:.4g}",
            f"{line['bytes']:,.0f}",
            f"{line['predicted_bytes']:,}",
        )
        for line in found["steps"]
    ]
    return [COST_HEADER, *lines]


def cost_facts(found: dict[str, Any]) -> list[str]:
    """Return further numbers for planning."""
    parquet = found["parquet"]
    return [
        f"a sum of 16 numbers over 2 processes of one machine: {significant(found['small_message'] * 1e6)} µs; "
        f"of a megabyte: {significant(found['megabyte'] * 1e3)} ms",
        f"Parquet, {FEATURES} columns of float32: {parquet['bytes']:.0f} bytes a row, "
        f"{parquet['rows a second'] / 1e6:.1f} million rows a second read by one core",
    ]


def measure(names: Sequence[str], sizes: Sizes, threads: int, where: str) -> list[Row]:
    rows: list[Row] = []
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name} ...", flush=True)
        made = []
        for row in BENCHMARKS[name](sizes, threads):
            made.append(row)
            print("    " + "  ".join(row.cells()), flush=True)
        if sizes is FULL:
            record("scale", name, made, where)
        rows += made
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*BENCHMARKS, "cost"]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="few rows: does it run? The goals are not meant")
    parser.add_argument("--threads", type=int, default=1, help="of torch, where a row does not name them (default 1)")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="put the costs between the marks of that page")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    where = environment(options.threads) + ("; quick: too small for the goals" if options.quick else "")
    print(where, flush=True)
    rows = measure([name for name in options.only if name != "cost"], sizes, options.threads, where)
    if rows:
        print("\n" + text_table(rows))
    if "cost" in options.only:
        found = cost(sizes)
        table, facts = cost_cells(found), cost_facts(found)
        print("\n" + "\n".join([aligned(table), "", *facts]))
        if options.docs:
            shape = f"MLP {FEATURES}-{HIDDEN}-{CLUSTERS}"
            how = f"{shape}: steps on rows in memory, shuffled anew each epoch; messages of 2 processes that stream"
            made = "\n".join([piped(table), "", *(f"- {fact}" for fact in (*facts, how, where))])
            options.docs.write_text(fill(options.docs.read_text(encoding="utf-8"), {"cost": made}), encoding="utf-8")


if __name__ == "__main__":
    main()
