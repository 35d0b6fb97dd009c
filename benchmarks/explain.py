"""Clusters that explain themselves, beside GemClus, and the accuracy of explanations of given clusters.

python benchmarks/explain.py [--markdown FILE] [--only trees|size|rules|columns|many] [--draws N] [--peer N]

Trees: ``GeminiTree`` and GemClus's ``Kauri`` with the same limits on the same standardised columns, the objective being
Σ σ(C²) / |C| of the exact kernel, in process time. Size: 2,000 × 20 numbers beside Kauri, and 100,000 × 20, where Kauri
would need 80 GB. Rules: k-means on the standardised columns of the development sets; ``explain`` sees one half of the
rows, and its statements are compared with the other half; small sets are halved several times, because one half of a
hundred rows says little about the other. Columns: ``select_features`` and GemClus's ``SparseLinearMMD`` on draws of the
Celeux sets, whose informative columns are known, as drawn and with standardised columns; the peer only on ``--peer``
draws, because its path takes minutes on 2,000 samples. Many: breast cancer beside 100 columns of noise, and
50,000 × 200.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from gemclus.sparse import SparseLinearMMD
from gemclus.tree import Kauri
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, make_blobs
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from measure import aligned, environment, limit_threads, piped
from pollux import GeminiClustering, GeminiTree, explain, geometry, select_features
from pollux.lab.datasets import celeux_one, celeux_two, load_table, table_names
from pollux.lab.quality.labelled_sets import DEVELOPMENT

Line = tuple[str, ...]
TREES = ("iris", "wine", "breast_cancer", "vehicle", "digits")
KERNELS = ("linear", "rbf")
MOST_ROWS = 4_000
# How often a small set is halved, and the largest number of rows of such a set.
HALVINGS, FEW_ROWS = 8, 2_000
# Draws of the Celeux sets; fewer for the peer.
DRAWS, PEER_DRAWS = 20, 2


def objective(kernel: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Σ σ(C²) / |C|."""
    members = labels == np.unique(labels)[:, None]
    return float(sum(kernel[np.ix_(part, part)].sum() / part.sum() for part in members))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = process_time()
    return work(), process_time() - start


def trees() -> list[Line]:
    """Objectives, agreement with the classes, and times on real tables."""
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


def rules_of(seen: NDArray[np.float64], other: NDArray[np.float64], K: int) -> tuple[list[float], float]:
    """Return fidelity, that on other rows, stated minus true precision and coverage; and seconds."""
    model = make_pipeline(SimpleImputer(), StandardScaler(), KMeans(K, n_init=3, random_state=0)).fit(seen)
    explanation, seconds = timed(lambda: explain(model, seen))
    labels = model.predict(other)
    off, weight = [], []
    for rule in explanation.rules:
        inside, holds = labels == rule.cluster, np.ones(len(other), dtype=bool)
        for column, low, high, missing in rule.bounds:
            values = other[:, number_of(column)]
            holds &= ((values > low) & (values <= high)) | (missing & np.isnan(values))
        if holds.any() and inside.any():
            both = (holds & inside).sum()
            off.append([rule.precision - both / holds.sum(), rule.coverage - both / inside.sum()])
            weight.append(rule.size)
    columns = [number_of(column) for column in explanation.feature_names]
    on_others = float((explanation.tree.predict(other[:, columns]) == labels).mean())
    return [explanation.fidelity, on_others, *np.average(off, axis=0, weights=weight)], seconds


def f1(selected: Any, informative: int) -> float:
    """Return the F1 score of the selected columns, where the first ones are informative."""
    right = sum(int(column) < informative for column in selected)
    return 2 * right / (len(selected) + informative)


def columns(draws: int = DRAWS, of_peer: int = PEER_DRAWS) -> list[Line]:
    """Informative columns that are selected, agreement with the classes, and times."""
    lines: list[Line] = [("set, method, draws", "F1", "ARI", "columns", "seconds")]
    for name, draw, informative, K in (("celeux_one", celeux_one, 5, 3), ("celeux_two", celeux_two, 2, 4)):
        for kind in ("as drawn", "standardised"):
            found: dict[str, list[list[float]]] = {"select_features": [], "SparseLinearMMD": []}
            for seed in range(draws):
                X, y = draw(random_state=seed)
                X = X if kind == "as drawn" else StandardScaler().fit_transform(X)
                model = GeminiClustering(K, model="linear", objective="mmd_ovo", random_state=seed)
                path, seconds = timed(lambda: select_features(model, X))  # noqa: B023
                ari = float(adjusted_rand_score(y, path.best.labels_))
                selected = path.selected
                found["select_features"].append([f1(selected, informative), ari, len(selected), seconds])
                # Only as drawn: standardised columns would help the peer no more than they help us.
                if seed < of_peer and kind == "as drawn":
                    peer = SparseLinearMMD(K, ovo=True, random_state=seed)
                    _, seconds = timed(lambda: peer.path(X))  # noqa: B023
                    ari, selected = float(adjusted_rand_score(y, peer.predict(X))), peer.get_selection()
                    found["SparseLinearMMD"].append([f1(selected, informative), ari, len(selected), seconds])
            for method, rows in found.items():
                if rows:
                    cells = (f"{value:.3f}" for value in np.mean(rows, axis=0))
                    lines.append((f"{name} {kind}, {method}, {len(rows)}", *cells))
    return lines


def many_columns() -> list[Line]:
    """Columns of noise beside real ones, and a large table."""
    lines: list[Line] = [("table", "columns kept", "of noise", "ARI", "ARI of all real columns", "seconds", "GB more")]
    cancer = load_breast_cancer()
    X, y = make_blobs(50_000, 10, centers=8, random_state=0, cluster_std=2)
    for name, table, target, noise, draws in (
        ("breast cancer + 100", cancer.data, cancer.target, 100, 5),
        ("50,000 × 200", X, y, 190, 1),
    ):
        found, real = [], table.shape[1]
        for seed in range(draws):
            beside = np.random.default_rng(seed).normal(size=(len(table), noise))
            noisy = np.hstack([table, beside]).astype(np.float32)
            model = GeminiClustering(len(np.unique(target)), model="linear", objective="mmd_ovo", random_state=seed)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            path, seconds = timed(lambda: select_features(model, noisy))  # noqa: B023
            more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
            plain = adjusted_rand_score(target, model.fit(table).labels_)
            ari = adjusted_rand_score(target, path.best.labels_)
            found.append([len(path.selected), int((path.selected >= real).sum()), ari, plain, seconds, more])
        lines.append((f"{name}, {draws} draws", *(f"{value:.3f}" for value in np.mean(found, axis=0))))
    return lines


def rules() -> list[Line]:
    """Fidelity, and stated minus true precision and coverage, on held-out rows."""
    lines: list[Line] = [
        ("set", "clusters", "fidelity", "on other rows", "precision off by", "coverage off by", "seconds")
    ]
    found = []
    for name in (name for name in DEVELOPMENT if name in table_names()):
        table = load_table(name)
        X, K = np.asarray(table.X, dtype=np.float64), len(np.unique(table.y))
        told_of, seconds = [], 0.0
        for halving in range(HALVINGS if len(X) < FEW_ROWS else 1):
            rows = X[np.random.default_rng(halving).permutation(len(X))[: 2 * MOST_ROWS]]
            numbers, took = rules_of(rows[::2], rows[1::2], K)
            told_of.append(numbers)
            seconds += took
        found.append(np.mean(told_of, axis=0))
        lines.append((name, str(K), *(f"{value:.3f}" for value in found[-1]), f"{seconds:.1f}"))
    return [*lines, ("mean", "", *(f"{value:.3f}" for value in np.mean(found, axis=0)), "")]


def number_of(column: str) -> int:
    """Return the number of a column from its name: "column 3", or "column 3=1" if it holds zeros and ones."""
    return int(column.partition("=")[0].removeprefix("column "))


TABLES = {"trees": trees, "size": sizes, "rules": rules, "columns": columns, "many": many_columns}


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, too")
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    parser.add_argument("--draws", type=int, default=DRAWS, help="draws of the Celeux sets (default: %(default)s)")
    parser.add_argument("--peer", type=int, default=PEER_DRAWS, help="those the peer sees (default: %(default)s)")
    options = parser.parse_args()
    tables = TABLES | {"columns": partial(columns, options.draws, options.peer)}
    limit_threads(1)
    made = []
    for table in (table for name, table in tables.items() if options.only in (None, name)):
        made.append(table())
        print(aligned(made[-1]), end="\n\n", flush=True)
    where = environment(threads=1)
    print(where)
    if options.markdown:
        options.markdown.write_text("\n\n".join([*map(piped, made), where, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
