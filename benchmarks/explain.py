"""Clusters that explain themselves, side by side with GemClus, and how true what is said of clusters is.

python benchmarks/explain.py [--markdown FILE] [--only trees|size|rules]

Trees: ``GeminiTree`` and GemClus's ``Kauri`` of the same limits on the same standardised columns, the objective being
Σ σ(C²) / |C| of the exact kernel, in process time. Size: 2,000 × 20 numbers beside Kauri, and 100,000 × 20, where Kauri
would need 80 GB. Rules: k-means on the standardised columns of the development sets; ``explain`` sees one half of the
rows, and what it says is compared with what holds in the other half.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from gemclus.tree import Kauri
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from measure import aligned, environment, limit_threads, piped
from pollux import GeminiTree, explain, geometry
from pollux.lab.datasets import load_table, table_names
from pollux.lab.quality.labelled_sets import DEVELOPMENT

Line = tuple[str, ...]
TREES = ("iris", "wine", "breast_cancer", "vehicle", "digits")
KERNELS = ("linear", "rbf")
MOST_ROWS = 4_000


def objective(kernel: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Σ σ(C²) / |C|."""
    members = labels == np.unique(labels)[:, None]
    return float(sum(kernel[np.ix_(part, part)].sum() / part.sum() for part in members))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = process_time()
    return work(), process_time() - start


def trees() -> list[Line]:
    """Objectives, agreement with the classes and times on real tables."""
    lines: list[Line] = [("set, kernel, leaves", "objective / Kauri's", "ARI", "Kauri's", "seconds", "Kauri's")]
    scores = []
    for name in (name for name in TREES if name in table_names()):
        table = load_table(name)
        X, K = StandardScaler().fit_transform(table.X), len(np.unique(table.y))
        for kernel in KERNELS:
            matrix = pairwise_kernels(X, metric=kernel)
            own = "linear" if kernel == "linear" else geometry.resolve("rbf", gamma=1 / X.shape[1])
            for leaves in (K, 2 * K):
                ours, seconds = timed(lambda: GeminiTree(K, kernel=own, max_leaves=leaves).fit(X).labels_)  # noqa: B023
                peer, others = timed(lambda: Kauri(K, kernel=kernel, max_leaves=leaves).fit(X).labels_)  # noqa: B023
                ratio = objective(matrix, ours) / objective(matrix, peer)
                scores.append([adjusted_rand_score(table.y, labels) for labels in (ours, peer)])
                cells = (f"{ratio:.5f}", *(f"{score:.3f}" for score in scores[-1]), f"{seconds:.3f}", f"{others:.3f}")
                lines.append((f"{name}, {kernel}, {leaves}", *cells))
    return [*lines, ("mean", "", *(f"{score:.3f}" for score in np.mean(scores, axis=0)), "", "")]


def sizes() -> list[Line]:
    """Times, and memory beyond the data."""
    X, _ = make_blobs(2_000, 20, centers=10, random_state=0, cluster_std=4)
    lines: list[Line] = [
        ("samples × columns, leaves of 10 clusters", "seconds", "Kauri's", "ratio", "GB beyond the data")
    ]
    for leaves in (20, 50, None):
        _, seconds = timed(lambda: GeminiTree(10, max_leaves=leaves).fit(X))  # noqa: B023
        _, others = timed(lambda: Kauri(10, max_leaves=leaves).fit(X))  # noqa: B023
        lines.append(
            (f"2,000 × 20, {leaves or 'all'}", f"{seconds:.2f}", f"{others:.2f}", f"{others / seconds:.1f}x", "")
        )
    X, _ = make_blobs(100_000, 20, centers=10, random_state=0, cluster_std=4)
    for leaves in (20, 100):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        _, seconds = timed(lambda: GeminiTree(10, max_leaves=leaves).fit(X))  # noqa: B023
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
        lines.append((f"100,000 × 20, {leaves}", f"{seconds:.1f}", "80 GB", "", f"{more:.2f}"))
    return lines


def rules() -> list[Line]:
    """Fidelity, and stated minus true precision and coverage, on rows that were held back."""
    lines: list[Line] = [
        ("set", "clusters", "fidelity", "on other rows", "precision off by", "coverage off by", "seconds")
    ]
    found = []
    for name in (name for name in DEVELOPMENT if name in table_names()):
        table = load_table(name)
        X, K = np.asarray(table.X, dtype=np.float64), len(np.unique(table.y))
        X = X[np.random.default_rng(0).permutation(len(X))[: 2 * MOST_ROWS]]
        seen, other = X[::2], X[1::2]
        model = make_pipeline(SimpleImputer(), StandardScaler(), KMeans(K, n_init=3, random_state=0)).fit(seen)
        told, seconds = timed(lambda: explain(model, seen))  # noqa: B023
        labels = model.predict(other)
        off, weight = [], []
        for rule in told.rules:
            inside, holds = labels == rule.cluster, np.ones(len(other), dtype=bool)
            for column, low, high in rule.bounds:
                values = other[:, number_of(column)]
                holds &= (values > low) & (values <= high)
            if holds.any() and inside.any():
                off.append([(holds & inside).sum() / part.sum() for part in (holds, inside)])
                off[-1] = [rule.precision - off[-1][0], rule.coverage - off[-1][1]]
                weight.append(rule.size)
        truth = np.average(off, axis=0, weights=weight)
        columns = [number_of(column) for column in told.feature_names]
        true_fidelity = float((told.tree.predict(other[:, columns]) == labels).mean())
        found.append([told.fidelity, true_fidelity, *truth])
        lines.append((name, str(K), *(f"{value:.3f}" for value in found[-1]), f"{seconds:.1f}"))
    return [*lines, ("mean", "", *(f"{value:.3f}" for value in np.mean(found, axis=0)), "")]


def number_of(column: str) -> int:
    """That of a column of an array, by its name: "column 3", or "column 3=1" where it holds zeros and ones."""
    return int(column.partition("=")[0].removeprefix("column "))


TABLES = {"trees": trees, "size": sizes, "rules": rules}


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, too")
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    options = parser.parse_args()
    limit_threads(1)
    made = [table() for name, table in TABLES.items() if options.only in (None, name)]
    where = environment(threads=1)
    print(*map(aligned, made), where, sep="\n\n")
    if options.markdown:
        options.markdown.write_text("\n\n".join([*map(piped, made), where, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
