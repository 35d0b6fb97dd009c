"""Nearest neighbours of many rows: this library beside others that are installed.

python benchmarks/neighbours.py [--rows 60000] [--dimensions 50] [--threads 1] [--mnist]

Rows are drawn from 50 clusters, each in its own few directions, or are the leading principal components of MNIST. Each
line has process and wall time, the ratio to ours of the same run, and recall@15: the share of the 15 nearest
neighbours that is found, for 1,000 rows. The first call of pynndescent compiles it. Install the other libraries into a
separate environment: pip install faiss-cpu usearch hnswlib pynndescent.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from pollux.geometry import neighbours
from pollux.lab.datasets import load_images

K, ASKED = 15, 1_000
Points = NDArray[np.float32]
Search = Callable[[Points, int], Any]


def make_points(rows: int, dimensions: int) -> Points:
    random = np.random.default_rng(0)
    centres, axes = random.normal(size=(50, dimensions)) * 1.5, random.normal(size=(50, 8, dimensions)) * 0.7
    classes = random.integers(0, 50, rows)
    points = 0.2 * random.normal(size=(rows, dimensions)) + centres[classes]
    for cluster in range(50):
        own = classes == cluster
        points[own] += random.normal(size=(own.sum(), 8)) @ axes[cluster]
    return points.astype(np.float32)


def by_scikit_learn(points: Points, threads: int) -> Any:
    return NearestNeighbors(n_neighbors=K, algorithm="brute", n_jobs=threads).fit(points).kneighbors()[1]


def by_faiss(points: Points, threads: int) -> Any:
    faiss = importlib.import_module("faiss")
    faiss.omp_set_num_threads(threads)
    n, d = points.shape
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(d), d, int(n**0.5))
    index.train(points[np.random.default_rng(0).choice(n, min(n, 50 * int(n**0.5)), replace=False)])
    index.add(points)
    index.nprobe = 16
    return index.search(points, K + 1)[1]


def by_hnswlib(points: Points, threads: int) -> Any:
    index = importlib.import_module("hnswlib").Index("l2", points.shape[1])
    index.init_index(len(points), M=16, ef_construction=40, random_seed=0)
    index.add_items(points, num_threads=threads)
    index.set_ef(40)
    return index.knn_query(points, K + 1, num_threads=threads)[0]


def by_usearch(points: Points, threads: int) -> Any:
    index = importlib.import_module("usearch.index").Index(
        ndim=points.shape[1], metric="l2sq", dtype="f32", connectivity=16, expansion_add=40, expansion_search=40
    )
    index.add(np.arange(len(points)), points, threads=threads)
    return index.search(points, K + 1, threads=threads).keys


def by_pynndescent(points: Points, threads: int) -> Any:
    made = importlib.import_module("pynndescent").NNDescent(points, n_neighbors=K + 1, random_state=0, n_jobs=threads)
    return made.neighbor_graph[0]


def by_pollux(points: Points, threads: int) -> Any:
    return neighbours.nearest(points, K, components=None).numbers


SEARCHES: dict[str, Search] = {
    "pollux": by_pollux,
    "scikit-learn, all pairs": by_scikit_learn,
    "faiss, inverted lists": by_faiss,
    "hnswlib": by_hnswlib,
    "usearch": by_usearch,
    "pynndescent, first call": by_pynndescent,
    "pynndescent, second call": by_pynndescent,
}


def recall(points: Points, found: Any) -> float:
    asked = np.random.default_rng(1).choice(len(points), min(ASKED, len(points)), replace=False)
    exact = NearestNeighbors(n_neighbors=K + 1, algorithm="brute").fit(points).kneighbors(points[asked])[1]
    pairs = zip(asked, exact, np.asarray(found)[asked], strict=True)
    return float(np.mean([len((set(a) & set(b)) - {own}) / K for own, a, b in pairs]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Nearest neighbours, beside other libraries.")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--dimensions", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--mnist", action="store_true", help="the principal components of MNIST's training images")
    parser.add_argument("--only", nargs="*", default=list(SEARCHES), choices=list(SEARCHES))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    points = make_points(options.rows, options.dimensions)
    if options.mnist:
        pixels = load_images("mnist").x_train[: options.rows].reshape(-1, 784)
        points = PCA(options.dimensions, random_state=0).fit_transform(pixels.astype(np.float32) / 255)
    print(f"{points.shape[0]:,} × {points.shape[1]}, threads: {options.threads}")
    ours = None
    for name in options.only:
        work = partial(SEARCHES[name], points, options.threads)
        processor, wall = time.process_time(), time.perf_counter()
        try:
            found = work()
        except ImportError:
            print(f"{name:26} not installed")
            continue
        processor, wall = time.process_time() - processor, time.perf_counter() - wall
        ours = ours or processor
        print(
            f"{name:26} {processor:8.1f} s of processor {wall:8.1f} s {processor / ours:6.1f}x  "
            f"recall {recall(points, found):.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
