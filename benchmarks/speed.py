"""The time of defaults and recipes beside k-means: each row of the table in a process of its own.

python benchmarks/speed.py [CASE …] [--busy]

Times are process times on one thread, both sides in the same process, so that other work on the machine matters
little; ratios are the most reliable. If the goal is a limit in seconds, the limit stands as the peer. The peer of
tables is KMeans(n_init=10), that of the Parquet file a MiniBatchKMeans that reads it once. mnist-0 to mnist-4 need
the file of MNIST and are left out without it; gemclus and transport run rows of benchmarks/core.py and
benchmarks/transport.py. With --busy the elapsed time of fits on all threads is compared with that of the same fits
while a process keeps each core busy. Results are recorded in results/speed.
"""

from __future__ import annotations

import os
import sys

if not {"--busy", *(f"mnist-{seed}" for seed in range(5))} & set(sys.argv):
    # Must be set before the libraries that read it are imported; elapsed times use all threads.
    os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.datasets import load_digits, load_iris, make_blobs

from measure import Row, environment, record, resident_bytes, text_table
from pollux import GeminiClustering, explain, select_n_clusters
from pollux.lab.datasets import load_images
from pollux.lab.datasets.archives import find_file
from pollux.metrics import adjusted_rand_index

PARQUET_ROWS, GIGABYTE = 10_000_000, 1e9
FIRST = "from sklearn.datasets import load_iris; X = load_iris().data; "
OTHERS = {
    "gemclus": ("core.py", "--only", "fit-digits", "fit-iris", "mmd-2000"),
    "transport": ("transport.py",),
}


def seconds(run: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> tuple[float, Any]:
    """Return the time of a call and its result."""
    begun = clock()
    result = run()
    return clock() - begun, result


def samples_of(name: str) -> tuple[Any, Any, int]:
    """Return rows, their classes, and the number of classes: iris, digits, or blobs with this many rows."""
    if name in ("iris", "digits"):
        X, y = (load_iris if name == "iris" else load_digits)(return_X_y=True)
    else:
        X, y = make_blobs(int(name), 20, centers=10, random_state=0)
    return X, y, 3 if name == "iris" else 10


def table(name: str, make: Callable[..., Any], goal: float, limit: float | None = None, seeds: int = 5) -> list[Row]:
    """A clustering beside k-means, or beside a limit in seconds; for many rows also the memory."""
    X, y, K = samples_of(name)
    # Imports of the first call are not timed.
    make(K, max_epochs=1, random_state=0).fit(X[:100])
    KMeans(K, n_init=1, random_state=0).fit(X[:100])
    own = [seconds(partial(make(K, random_state=r).fit, X)) for r in range(seeds)]
    peak = resident_bytes("VmHWM") / GIGABYTE
    peers = [seconds(partial(KMeans(K, n_init=10, random_state=r).fit, X)) for r in range(seeds)]
    times = [float(np.median([time for time, _ in side])) for side in (own, peers)]
    scores = [float(np.mean([adjusted_rand_index(y, model.labels_) for _, model in side])) for side in (own, peers)]
    note = f"adjusted Rand index {scores[0]:.3f}, k-means {scores[1]:.3f}"
    work = f"{'GeminiClustering' if make is GeminiClustering else 'for_tables'}, {X.shape[0]:,} × {X.shape[1]}"
    if limit is not None:
        note += f"; k-means takes {times[1]:.3f} s, {times[0] / times[1]:.1f} times less"
    rows = [Row(work, times[0], times[1] if limit is None else limit, goal, faster=False, note=note)]
    if len(X) >= 1_000_000:
        peak, most = resident_bytes("VmHWM") / GIGABYTE, X.nbytes / GIGABYTE + 1.5
        rows.append(
            Row(f"{work}, peak memory", peak, most, 1, faster=False, unit="GB", note="peer: the data and 1.5 GB")
        )
    return rows


def parquet() -> list[Row]:
    """The recipe on a streamed file of many rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    centres, part = rng.uniform(-10, 10, (10, 20)), 100_000
    with tempfile.TemporaryDirectory() as folder:
        path, first = Path(folder) / "rows.parquet", np.empty(0, dtype=np.int64)
        schema = pa.schema([(f"x{j}", pa.float64()) for j in range(20)])
        with pq.ParquetWriter(path, schema) as writer:
            for number in range(PARQUET_ROWS // part):
                classes = rng.integers(0, 10, part)
                first = first if number else classes
                X = centres[classes] + rng.normal(size=(part, 20))
                writer.write_table(pa.table(list(X.T), schema=schema))

        def mini_batches() -> None:
            peer = MiniBatchKMeans(10, random_state=0, n_init=1)
            for batch in pq.ParquetFile(path).iter_batches(part):
                peer.partial_fit(np.column_stack([column.to_numpy() for column in batch.columns]))

        own, model = seconds(lambda: GeminiClustering.for_tables(10, random_state=0).fit(path))
        peak = resident_bytes("VmHWM") / GIGABYTE
        peer, _ = seconds(mini_batches)
        labels = model.predict(pq.ParquetFile(path).read_row_group(0).to_pandas())
    note = f"adjusted Rand index {adjusted_rand_index(first[: len(labels)], labels):.3f}"
    work = f"for_tables, {PARQUET_ROWS:,} × 20, Parquet"
    return [
        Row(work, own, peer, 2, faster=False, note=f"{note}; the peer is MiniBatchKMeans"),
        Row(f"{work}, peak memory", peak, 1.5, 1, faster=False, unit="GB", note="peer: the limit"),
    ]


def mnist(seed: int) -> list[Row]:
    """The recipe for images; elapsed time on all threads."""
    images = load_images("mnist")
    X = images.x_train.reshape(60_000, -1)
    own, model = seconds(partial(GeminiClustering.for_images(10, random_state=seed).fit, X), time.perf_counter)
    score = adjusted_rand_index(images.y_test, model.predict(images.x_test.reshape(10_000, -1)))
    note = f"adjusted Rand index on the test images {score:.3f}; the peer is the limit"
    return [Row(f"for_images, MNIST, seed {seed}", own, 100, 1, faster=False, note=note)]


def select(name: str, limit: float) -> list[Row]:
    """The selection of the number of clusters, with defaults."""
    X, _, K = samples_of(name)
    own, found = seconds(lambda: select_n_clusters(X, random_state=0))
    note = f"finds {found.n_clusters} of {K} clusters; the peer is the limit"
    return [Row(f"select_n_clusters, {name}", own, limit, 1, faster=False, note=note)]


def first_fit() -> list[Row]:
    """Imports and the first fit of iris, each time in a new process."""
    own = FIRST + "from pollux import GeminiClustering; GeminiClustering(3, random_state=0).fit(X)"
    peer = FIRST + "import torch; from sklearn.cluster import KMeans; KMeans(3, n_init=10, random_state=0).fit(X)"

    def run(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    def of_children() -> float:
        times = os.times()
        return times.children_user + times.children_system

    times = [float(np.median([seconds(partial(run, code), of_children)[0] for _ in range(5)])) for code in (own, peer)]
    return [Row("imports and first fit of iris", times[0], times[1], 1.5, faster=False, note="peer: torch and k-means")]


def idle_and_busy(calls: Mapping[str, Callable[[], Any]], turns: int = 5) -> dict[str, tuple[float, float]]:
    """The elapsed times of calls: alone, and while a process keeps each core busy."""

    def times() -> list[float]:
        return [
            float(np.median([seconds(call, time.perf_counter)[0] for _ in range(turns)])) for call in calls.values()
        ]

    for call in calls.values():
        call()
    idle = times()
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        time.sleep(0.5)
        return dict(zip(calls, zip(idle, times(), strict=True), strict=True))
    finally:
        for other in others:
            other.kill()
            other.wait()


def under_load(name: str) -> list[Row]:
    """A default fit while a process keeps each core busy, beside the same fit without."""
    X, _, K = samples_of(name)
    ((idle, busy),) = idle_and_busy({name: lambda: GeminiClustering(K, random_state=0).fit(X)}).values()
    return [Row(f"GeminiClustering under load, {name}", busy, idle, 3, faster=False, note="peer: the same, idle")]


def calls_under_load() -> list[Row]:
    """What is done with a clustering of iris, likewise: the worst of the calls."""
    X = load_iris().data
    own, further = GeminiClustering(3, random_state=0).fit(X).assess(X), GeminiClustering(3, random_state=0).fit(X)
    calls: dict[str, Callable[[], Any]] = {
        name: partial(getattr(own, name), X)
        for name in ("predict", "predict_confidence", "score", "score_samples", "hierarchy")
    }
    calls |= {"partial_fit": lambda: further.partial_fit(X), "explain": lambda: explain(own, X)}
    found = idle_and_busy(calls, turns=25)
    worst = max(found, key=lambda name: found[name][1] / found[name][0])
    idle, busy = found[worst]
    ratios = ", ".join(f"{name} {after / before:.2f}x" for name, (before, after) in found.items())
    work = f"calls under load, iris, worst of {len(found)} ({worst})"
    return [Row(work, busy, idle, 3, faster=False, note=f"peer: the same, idle; {ratios}")]


tables = GeminiClustering.for_tables
CASES: dict[str, Callable[[], list[Row]]] = {
    "bare-20k": partial(table, "20000", GeminiClustering, 3),
    "bare-100k": partial(table, "100000", GeminiClustering, 3, seeds=3),
    "iris": partial(table, "iris", tables, 15),
    "digits": partial(table, "digits", tables, 1, limit=1.2),
    "100k": partial(table, "100000", tables, 1, limit=8, seeds=3),
    "1M": partial(table, "1000000", tables, 2, seeds=1),
    "10M-parquet": parquet,
    "select-iris": partial(select, "iris", 5),
    "select-digits": partial(select, "digits", 30),
    "first-fit": first_fit,
    **{f"mnist-{seed}": partial(mnist, seed) for seed in range(5)},
}
BUSY: dict[str, Callable[[], list[Row]]] = {
    **{f"busy-{name}": partial(under_load, name) for name in ("iris", "digits", "20000")},
    "busy-calls": calls_under_load,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join([*CASES, *OTHERS]))
    parser.add_argument("--busy", action="store_true", help=f"{', '.join(BUSY)} instead")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = BUSY if options.busy else CASES
    unknown = set(options.cases) - {*known, *OTHERS}
    if unknown:
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}")
    if options.here:
        print(json.dumps([asdict(row) for row in known[options.cases[0]]()]))
        return
    rows: list[Row] = []
    chosen = options.cases or [*known, *([] if options.busy else OTHERS)]
    folder = Path(__file__).parent
    for case in chosen:
        if case in OTHERS:
            script, *words = OTHERS[case]
            subprocess.run([sys.executable, folder / script, *words], check=False)
            continue
        if case.startswith("mnist") and find_file("mnist.npz") is None:
            continue
        words = [sys.executable, __file__, case, "--here", *(["--busy"] if options.busy else [])]
        free = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=free, check=False)
        if done.returncode:
            print(f"{case} has failed", flush=True)
            continue
        made = [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]
        print("\n".join("  ".join([*row.cells(), row.note]) for row in made), flush=True)
        record("speed", case, made, environment(1))
        rows += made
    print("\n" + text_table(rows))


if __name__ == "__main__":
    main()
