"""The effect of keeping batches for several epochs on a Wasserstein objective: its time, its value and its clusters.

python benchmarks/reshuffle.py [--quick]

Batches that keep their rows let the solver start from its last solution; reshuffled batches show the model other
neighbourhoods. One thread, scikit-learn's digits and blobs, the mean and standard deviation over seeds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score

from measure import aligned, limit_threads
from pollux import GeminiClustering, Training

HEADER = ("data", "objective", "reshuffled", "seconds", "objective at the end", "ARI")
EPOCHS = 60
KEPT = (1, 5, 20, EPOCHS)


def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    data = load_digits()
    return data.data / 16, data.target


def blobs() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    X, labels = make_blobs(2000, 16, centers=10, center_box=(-4, 4), cluster_std=2.0, random_state=0)
    return X, labels


def run(name: str, objective: str, kept: int, seeds: Sequence[int]) -> tuple[str, ...]:
    """Return one line of the table."""
    X, labels = {"digits": digits, "blobs": blobs}[name]()
    times, values, scores = [], [], []
    for seed in seeds:
        clustering = GeminiClustering(
            10,
            objective=objective,
            preprocessing=None,
            n_init=1,
            batch_size=250,
            max_epochs=EPOCHS,
            learning_rate=1e-3,
            training=Training(reshuffle_every=kept),
            random_state=seed,
        )
        start = time.process_time()
        clustering.fit(X)
        times.append(time.process_time() - start)
        values.append(clustering.objective_)
        scores.append(adjusted_rand_score(labels, clustering.labels_))
    every = "never" if kept == EPOCHS else "each epoch" if kept == 1 else f"every {kept} epochs"
    return name, objective, every, f"{statistics.mean(times):.1f}", _spread(values), _spread(scores)


def _spread(numbers: Sequence[float]) -> str:
    return f"{statistics.mean(numbers):.3f} ({statistics.pstdev(numbers):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one seed, one-vs-all only")
    quick = parser.parse_args().quick
    limit_threads(1)
    lines: list[tuple[str, ...]] = [HEADER]
    for name in ("digits", "blobs"):
        for objective in ("wasserstein_ova",) if quick else ("wasserstein_ova", "wasserstein_ovo"):
            for kept in KEPT:
                lines.append(run(name, objective, kept, range(1 if quick else 5)))
                print(*lines[-1], flush=True)
    print(aligned(lines, left=(0, 1, 2)))


if __name__ == "__main__":
    main()
