"""Recovery of known classes: adjusted Rand indices of k-means, GemClus and Pollux over five seeds.

python benchmarks/accuracy.py [--markdown FILE]

GemClus is called through its public interface, with the same objective, model, optimiser (Adam), learning
rate, batch size and epochs as Pollux. All run on one thread: otherwise the order of sums, and with it the
results, would depend on the number of cores.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from gemclus.linear import LinearMMD
from gemclus.mlp import MLPMMD
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from measure import aligned, environment, limit_threads, piped
from pollux import GeminiClustering
from pollux.geometry import Paths, ShortestPath

SEEDS = range(5)
HEADER = ("Data, clusters asked for", "Objective, model", "k-means", "GemClus", "Pollux", "Clusters Pollux found")
WORDS = {"mmd_ova": "MMD one-vs-all", "mmd_ovo": "MMD one-vs-one", "linear": "linear", "mlp": "MLP"}
HIDDEN_UNITS = 100  # of Pollux' own "mlp"

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """Samples X (n, d), their classes (n,), and a kernel (n, n) if it is not the linear one."""

    X: NDArray[np.floating]
    classes: Labels
    kernel: Tensor | None = None


def graph_kernel(X: NDArray[np.floating]) -> torch.Tensor:
    """exp(−path² / (2 median²)) of the shortest paths between samples: X (n, d) → (n, n)."""
    paths = ShortestPath(neighbours=7, weighted=True).bind(X)(torch.arange(len(X)))
    assert isinstance(paths, Paths)
    lengths = paths.matrix()
    return (-((lengths / lengths.median()) ** 2) / 2).exp()


def by_kmeans(problem: Problem, ours: GeminiClustering, seed: int) -> Labels:
    labels: Labels = KMeans(ours.n_clusters, n_init=10, random_state=seed).fit_predict(problem.X)
    return labels


def by_gemclus(problem: Problem, ours: GeminiClustering, seed: int) -> Labels:
    """Fit GemClus, configured as our estimator."""
    model = LinearMMD if ours.model == "linear" else partial(MLPMMD, n_hidden_dim=HIDDEN_UNITS)
    clustering = model(
        n_clusters=ours.n_clusters,
        kernel="linear" if problem.kernel is None else "precomputed",
        ovo=ours.objective == "mmd_ovo",
        solver=ours.optimiser,
        learning_rate=ours.learning_rate,
        batch_size=ours.batch_size,
        max_iter=ours.max_epochs,
        random_state=seed,
    )
    # GemClus computes in double precision, and accepts a kernel in place of y.
    kernel = None if problem.kernel is None else problem.kernel.double().numpy()
    labels: Labels = clustering.fit(problem.X, kernel).labels_
    return labels


def by_pollux(problem: Problem, ours: GeminiClustering, seed: int) -> Labels:
    labels: Labels = clone(ours).set_params(random_state=seed).fit(problem.X, affinity=problem.kernel).labels_
    return labels


@dataclass(frozen=True)
class Comparison:
    """A row of the table: a problem, and our estimator for it, whose configuration the peers share."""

    data: str
    problem: Problem
    ours: GeminiClustering
    with_peers: bool = True

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of HEADER."""
        scores = []
        for method in (by_kmeans, by_gemclus, by_pollux) if self.with_peers else (by_pollux,):
            labels = [method(self.problem, self.ours, seed) for seed in SEEDS]
            scores.append(mean_and_deviation([adjusted_rand_score(self.problem.classes, each) for each in labels], 3))
        found = mean_and_deviation([len(np.unique(each)) for each in labels], 1)
        words = f"{WORDS[str(self.ours.objective)]}, {WORDS[str(self.ours.model)]}"
        return (self.data, words, *[""] * (3 - len(scores)), *scores, found)


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    return f"{statistics.fmean(values):.{digits}f} ({statistics.pstdev(values):.{digits}f})"


def comparisons() -> Iterator[Comparison]:
    """Yield the rows of the table."""
    linear = GeminiClustering(
        3,
        model="linear",
        objective="mmd_ova",
        preprocessing=None,
        n_init=1,
        learning_rate=0.01,
        batch_size=None,
        max_epochs=300,
    )
    yield Comparison("iris, 3", Problem(*load_iris(return_X_y=True)), linear)
    X, classes = load_wine(return_X_y=True)
    yield Comparison("wine, standardised, 3", Problem(StandardScaler().fit_transform(X), classes), linear)
    X, classes = load_digits(return_X_y=True)
    digits = Problem((X / 16).astype(np.float32), classes)
    mlp = GeminiClustering(
        10,
        model="mlp",
        objective="mmd_ova",
        preprocessing=None,
        n_init=1,
        learning_rate=0.001,
        batch_size=500,
        max_epochs=200,
    )
    yield Comparison("digits, 10", digits, mlp)
    graph = replace(digits, kernel=graph_kernel(digits.X))
    mlp = clone(mlp).set_params(n_clusters=15, objective="mmd_ovo", max_epochs=150)
    yield Comparison("digits, 15, graph kernel", graph, mlp)
    best = clone(mlp).set_params(n_init=10)
    yield Comparison("the same, best of ten starts by the objective", graph, best, with_peers=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args()
    limit_threads(1)
    where = environment(threads=1)
    print(where, flush=True)
    lines: list[tuple[str, ...]] = [HEADER]
    for comparison in comparisons():
        start = perf_counter()
        lines.append(comparison.cells())
        print(f"    {'  '.join(lines[-1])}  [{perf_counter() - start:.0f} s]", flush=True)
    print("\n" + aligned(lines, left=(0, 1)))
    if options.markdown:
        options.markdown.write_text(f"{piped(lines, left=(0, 1))}\n\n{where}\n")


if __name__ == "__main__":
    main()
