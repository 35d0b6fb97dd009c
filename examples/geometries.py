"""
What a geometry takes for a cluster
===================================

Four data sets, four methods, one figure (written to the path given, if any).
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from pollux import GeminiClustering
from pollux.lab.datasets import blobs, circles, moons
from pollux.metrics import adjusted_rand_index

COLOURS = np.array(["#0072b2", "#e69f00", "#009e73"])
KERNELS = {"linear": "linear kernel", "graph": "neighbour graph", "mixtures": "Gaussian mixtures"}


def data() -> dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Samples (n, 2) and their classes (n,), by name."""
    wide, _ = blobs(300, centres=[[0, 0]], std=1.6, random_state=0)
    dense, parts = blobs(200, centres=[[4.2, 1.6], [3.8, -2.2]], std=0.25, random_state=1)
    streaks, classes = blobs(450, centres=[[0.0, 0.0], [0.0, 2.5], [0.0, 5.0]], std=0.35, random_state=0)
    return {
        "moons": moons(400, noise=0.12, random_state=0),
        "circles": circles(400, noise=0.1, random_state=0),
        "unequal densities": (np.concatenate([wide, dense]), np.concatenate([np.zeros(300, int), parts + 1])),
        "stretched": (streaks @ np.array([[5.0, 1.0], [0.0, 1.0]]), classes),
    }


def draw(axes: Axes, X: NDArray[np.float64], y: NDArray[np.int64], clustering: KMeans | GeminiClustering) -> None:
    """Draw samples in the colours of their clusters, over the model's predictions for the rest of the plane."""
    (left, low), (right, high) = X.min(0) - 0.4, X.max(0) + 0.4
    plane = np.stack(np.meshgrid(np.linspace(left, right, 150), np.linspace(low, high, 150)), -1)
    areas = clustering.predict(plane.reshape(-1, 2)).reshape(150, 150)
    axes.contourf(*plane.T, areas.T, levels=[-0.5, 0.5, 1.5, 2.5], colors=COLOURS, alpha=0.2)
    axes.scatter(X[:, 0], X[:, 1], color=COLOURS[clustering.labels_], s=6, linewidths=0)
    axes.set(xticks=[], yticks=[], xlabel=f"{adjusted_rand_index(y, clustering.labels_):.2f}")


def main() -> None:
    figure, grid = plt.subplots(4, 4, figsize=(9.6, 8.8), layout="constrained")
    for row, (name, (X, y)) in zip(grid, data().items(), strict=True):
        count = int(y.max()) + 1
        fits = {"k-means": KMeans(count, n_init=10, random_state=0).fit(X)}
        for geometry, title in KERNELS.items():
            clustering = GeminiClustering(count, objective="mmd_ovo", geometry=geometry, n_init=3, random_state=0)
            fits[title] = clustering.fit(X)
        for axes, (title, found) in zip(row, fits.items(), strict=True):
            draw(axes, X, y, found)
            axes.set_title(title if name == "moons" else "")
            print(f"{name:18}{title:18}{adjusted_rand_index(y, found.labels_):6.2f}")
        row[0].set_ylabel(name)
    if len(sys.argv) > 1:
        figure.savefig(sys.argv[1], dpi=100)


if __name__ == "__main__":
    main()
