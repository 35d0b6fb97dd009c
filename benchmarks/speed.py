"""How long the recipes take beside k-means: process time on one thread, both in the same process, and peak memory.

python benchmarks/speed.py [CASE …]

Cases are iris, digits, 100k, 1M, 10M-parquet and mnist; all but mnist, which needs its file, by default. Each is
measured in a process of its own. Process time does not count the work of others on the machine, though their use of
its caches tells; the ratio of two times of one run tells most. The peer of tables is KMeans(n_init=10), that of the
Parquet file a MiniBatchKMeans that reads it once.
"""

from __future__ import annotations

import os

# Before the libraries that read it are imported.
os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.datasets import load_digits, load_iris, make_blobs

from pollux import GeminiClustering
from pollux.lab.datasets import load_images
from pollux.metrics import adjusted_rand_index

CASES = ("iris", "digits", "100k", "1M", "10M-parquet", "mnist")
PARQUET_ROWS = 10_000_000
ROWS = {"100k": 100_000, "1M": 1_000_000}


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Process time of a call, and what it returns."""
    begun = time.process_time()
    result = run()
    return time.process_time() - begun, result


def report(case: str, own: float, peer: float | None, score: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    beside = "" if peer is None else f"{peer:9.3f} s  {own / peer:6.1f}x"
    print(f"{case:12} {own:9.3f} s {beside:22} ARI {score:.3f}  peak {peak:.2f} GB", flush=True)


def measure_table(case: str) -> None:
    K = 3 if case == "iris" else 10
    if case in ROWS:
        X, y = make_blobs(ROWS[case], 20, centers=K, random_state=0)
    else:
        X, y = (load_iris if case == "iris" else load_digits)(return_X_y=True)
    # What is imported at the first call is not counted.
    GeminiClustering.for_tables(K, max_epochs=1, random_state=0).fit(X[:100])
    KMeans(K, n_init=1, random_state=0).fit(X[:100])
    seeds = range(1 if case in ROWS else 5)
    peers = [seconds(partial(KMeans(K, n_init=10, random_state=r).fit, X))[0] for r in seeds]
    own = [seconds(partial(GeminiClustering.for_tables(K, random_state=r).fit, X)) for r in seeds]
    score = float(np.mean([adjusted_rand_index(y, model.labels_) for _, model in own]))
    report(case, float(np.median([time for time, _ in own])), float(np.median(peers)), score)


def measure_parquet(case: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    centres, part = rng.uniform(-10, 10, (10, 20)), 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        schema = pa.schema([(f"x{j}", pa.float64()) for j in range(20)])
        classes = []
        with pq.ParquetWriter(path, schema) as writer:
            for _ in range(PARQUET_ROWS // part):
                classes.append(rng.integers(0, 10, part))
                X = centres[classes[-1]] + rng.normal(size=(part, 20))
                writer.write_table(pa.table(list(X.T), schema=schema))

        def mini_batches() -> None:
            peer = MiniBatchKMeans(10, random_state=0, n_init=1)
            for batch in pq.ParquetFile(path).iter_batches(part):
                peer.partial_fit(np.column_stack([column.to_numpy() for column in batch.columns]))

        own, model = seconds(lambda: GeminiClustering.for_tables(10, random_state=0).fit(path))
        peer, _ = seconds(mini_batches)
        labels = model.predict(pq.ParquetFile(path).read_row_group(0).to_pandas())
        report(case, own, peer, adjusted_rand_index(np.concatenate(classes)[: len(labels)], labels))


def measure_mnist(case: str) -> None:
    images = load_images("mnist")
    own, model = seconds(
        lambda: GeminiClustering.for_images(10, random_state=0).fit(images.x_train.reshape(60_000, -1))
    )
    report(case, own, None, adjusted_rand_index(images.y_test, model.predict(images.x_test.reshape(10_000, -1))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}")
    if options.here:
        (case,) = options.cases
        {"10M-parquet": measure_parquet, "mnist": measure_mnist}.get(case, measure_table)(case)
        return
    print(f"{'case':12} {'recipe':>11} {'k-means':>11}  {'ratio':>7}")
    for case in options.cases or CASES[:-1]:
        subprocess.run([sys.executable, __file__, case, "--here"], check=True)


if __name__ == "__main__":
    main()
