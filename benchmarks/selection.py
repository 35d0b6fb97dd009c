"""The number of clusters: ``select_n_clusters`` beside common methods, on data whose number is known.

python benchmarks/selection.py [--seeds N] [--first SEED] [--markdown FILE]

The others are scikit-learn's, on the same standardised columns: the silhouette of k-means, the BIC of Gaussian mixtures
(which may return 1) and HDBSCAN. All choose from 1 or 2 to 12. Synthetic data are drawn anew for each seed. Of real
tables, at most 1,000 rows are used; their classes need not be clusters, so that another answer need not be wrong.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import make_circles, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from measure import aligned, environment, limit_threads, piped
from pollux import select_n_clusters
from pollux.lab.datasets import load_table, table_names

Rows = NDArray[np.float64]
CANDIDATES = range(2, 13)
ROWS, MOST_ROWS = 400, 1_000
REAL = ("iris", "wine", "breast_cancer", "digits", "seeds", "dermatology", "new_thyroid", "optdigits", "pendigits")


class Data(NamedTuple):
    """Rows, and the number of clusters or classes in them."""

    kind: str
    name: str
    X: Rows
    number: int


def blobs(random: np.random.Generator, number: int, columns: int, apart: float = 6.0) -> Rows:
    """Round clusters whose centres are at least ``apart`` standard deviations apart."""
    while True:
        centres = random.uniform(-12, 12, size=(number, columns))
        distances = np.linalg.norm(centres[:, None] - centres, axis=-1)[~np.eye(number, dtype=bool)]
        if distances.min() > apart:
            return centres[random.integers(number, size=ROWS)] + random.normal(size=(ROWS, columns))


def touching(random: np.random.Generator) -> Rows:
    """Round clusters, four standard deviations apart."""
    return np.array([[0, 0], [4, 0], [0, 4]])[random.integers(3, size=ROWS)] + random.normal(size=(ROWS, 2))


def unequal(random: np.random.Generator) -> Rows:
    """A large cluster and two small, dense ones."""
    sizes = np.repeat([0, 1, 2], [300, 40, 60])
    widths = np.array([1, 0.5, 0.5])[sizes, None]
    return np.asarray(np.array([[0, 0], [6, 0], [0, 6]])[sizes] + random.normal(size=(ROWS, 2)) * widths)


def disc(random: np.random.Generator) -> Rows:
    """A uniformly filled disc."""
    angle, radius = random.uniform(0, 2 * np.pi, ROWS), np.sqrt(random.uniform(size=ROWS))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


NOISE: dict[str, Callable[[np.random.Generator], Rows]] = {
    "uniform, 2 columns": lambda random: random.uniform(size=(ROWS, 2)),
    "uniform, 10 columns": lambda random: random.uniform(size=(ROWS, 10)),
    "disc": disc,
    "Gaussian, 2 columns": lambda random: random.normal(size=(ROWS, 2)),
    "Gaussian, 30 columns": lambda random: random.normal(size=(ROWS, 30)),
    "correlated Gaussian, 5 columns": lambda random: random.normal(size=(ROWS, 5)) @ random.normal(size=(5, 5)),
    "log-normal, 3 columns": lambda random: random.lognormal(size=(ROWS, 3)),
    "zeros and ones, 6 columns": lambda random: random.integers(0, 2, size=(ROWS, 6)).astype(np.float64),
    "Student t, 4 columns": lambda random: random.standard_t(3, size=(ROWS, 4)),
}
CLUSTERS: dict[str, tuple[int, Callable[[np.random.Generator], Rows]]] = {
    **{
        f"{number} blobs, {columns} columns": (number, partial(blobs, number=number, columns=columns))
        for number, columns in ((2, 2), (3, 10), (5, 3), (8, 5))
    },
    "3 blobs that touch": (3, touching),
    "3 of unequal sizes": (3, unequal),
    "moons": (2, lambda random: make_moons(ROWS, noise=0.06, random_state=_seed(random))[0]),
    "circles": (2, lambda random: make_circles(ROWS, noise=0.05, factor=0.4, random_state=_seed(random))[0]),
}


def _seed(random: np.random.Generator) -> int:
    return int(random.integers(2**31))


def all_data(seed: int) -> Iterator[Data]:
    """Yield all data sets."""
    for name, draw in NOISE.items():
        yield Data("no clusters", name, draw(np.random.default_rng(seed)), 1)
    for name, (number, draw) in CLUSTERS.items():
        yield Data("clusters", name, draw(np.random.default_rng(seed)), number)
    for name in REAL:
        if name in table_names():
            known = load_table(name)
            kept = np.random.default_rng(seed).permutation(len(known.X))[:MOST_ROWS]
            X = np.asarray(known.X, dtype=np.float64)[kept]
            yield Data("classes", name, np.where(np.isnan(X), np.nanmean(X, axis=0), X), len(np.unique(known.y)))


def by_silhouette(X: Rows, seed: int) -> int:
    """Return the number of clusters at which k-means has the best silhouette."""
    scores = [silhouette_score(X, KMeans(k, n_init=10, random_state=seed).fit_predict(X)) for k in CANDIDATES]
    return CANDIDATES[int(np.argmax(scores))]


def by_bic(X: Rows, seed: int) -> int:
    """Return the number of Gaussians with the best Bayesian information criterion."""
    numbers = [1, *CANDIDATES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        values = [GaussianMixture(k, random_state=seed, reg_covar=1e-4).fit(X).bic(X) for k in numbers]
    return int(numbers[np.argmin(values)])


def by_hdbscan(X: Rows, seed: int) -> int:
    """Return the number of dense groups; none counts as one."""
    return max(1, len(set(HDBSCAN(copy=True).fit_predict(X).tolist()) - {-1}))


def ours(X: Rows, seed: int) -> int:
    """Return the number that this library selects."""
    return select_n_clusters(X, CANDIDATES, random_state=seed).n_clusters


METHODS = {"k-means, silhouette": by_silhouette, "mixture, BIC": by_bic, "HDBSCAN": by_hdbscan, "Pollux": ours}


def answers(seeds: Iterable[int]) -> dict[tuple[str, str, int], dict[str, list[int]]]:
    """Return all answers, by kind, name and known number of the data, and by method."""
    found: dict[tuple[str, str, int], dict[str, list[int]]] = {}
    for seed in seeds:
        for data in all_data(seed):
            rows, start = StandardScaler().fit_transform(data.X), perf_counter()
            by_method = found.setdefault((data.kind, data.name, data.number), {name: [] for name in METHODS})
            for name, method in METHODS.items():
                by_method[name].append(method(rows, seed))
            latest = ", ".join(f"{name} {given[-1]}" for name, given in by_method.items())
            print(f"{data.name} ({data.number}): {latest}; {perf_counter() - start:.0f} s", file=sys.stderr)
    return found


def table(found: dict[tuple[str, str, int], dict[str, list[int]]]) -> list[tuple[str, ...]]:
    """Return the answers for each data set, and for each kind how many are the known number."""
    lines = [
        (name, str(number), *(" ".join(map(str, given)) for given in by_method.values()))
        for (_, name, number), by_method in found.items()
    ]
    for kind in dict.fromkeys(kind for kind, _, _ in found):
        parts = [(number, by_method) for (one, _, number), by_method in found.items() if one == kind]
        right = [sum(given == number for number, by_method in parts for given in by_method[name]) for name in METHODS]
        asked = sum(len(by_method["Pollux"]) for _, by_method in parts)
        lines.append((f"{kind}: the known number", f"of {asked}", *map(str, right)))
        near = [
            sum(abs(given - number) <= 1 for number, by_method in parts for given in by_method[name])
            for name in METHODS
        ]
        lines.append((f"{kind}: within one", f"of {asked}", *map(str, near)))
    return lines


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="draws of each data set (default: 3)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="that of the first draw (default: 0)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, too")
    options = parser.parse_args()
    limit_threads(1)
    header, lines = ("Data", "known", *METHODS), table(answers(range(options.first, options.first + options.seeds)))
    where = environment(threads=1)
    print(aligned([header, *lines]), where, sep="\n\n")
    if options.markdown:
        options.markdown.write_text(f"{piped([header, *lines])}\n\n{where}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
