"""Cluster scikit-learn's digits without their labels: print how it went, and draw it into demo/.

The network reads pixels. The kernel follows a graph of neighbours, so two digits are alike when a chain of
similar digits joins them. Fifteen clusters are allowed; the surplus is expected to stay empty.
"""

from pathlib import Path
from time import perf_counter

import matplotlib
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from pollux import GeminiClustering
from pollux.geometry import Paths, ShortestPath
from pollux.metrics import adjusted_rand_index, hungarian_accuracy, normalised_mutual_information

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

FOLDER = Path("demo")
INK, QUIET = "#1f2933", "#616e7c"
COLOURS = (
    *("#2f6fb2", "#d1495b", "#3b8f5a", "#e08e29", "#7b4fa3", "#17a2a2", "#8c5a3c", "#d65da8"),
    *("#7f8c1c", "#3d4fa8", "#b2381a", "#6aa2dc", "#4a4a55", "#b58a00", "#9b1b5a"),
)
Array = NDArray[np.float32]
Labels = NDArray[np.int64]


def load() -> tuple[Array, Labels]:
    """The images as rows (1797, 64) with pixels from 0 to 1, and the digit that each one shows (1797,)."""
    data, classes = load_digits(return_X_y=True)
    return (data / 16).astype(np.float32), classes


def graph_kernel(X: Array) -> torch.Tensor:
    """exp(−path² / (2 median²)) for the lengths of shortest paths between samples: X (n, d) → (n, n)."""
    paths = ShortestPath(neighbours=7, weighted=True).bind(X)(torch.arange(len(X)))
    assert isinstance(paths, Paths)
    lengths = paths.matrix()
    return (-((lengths / lengths.median()) ** 2) / 2).exp()


def settings(random_state: int, verbose: bool = False) -> GeminiClustering:
    """The demo's estimator; its settings were chosen on these very digits."""
    return GeminiClustering(
        n_clusters=15,
        model="mlp",
        objective="mmd_ovo",
        batch_size=500,
        learning_rate=3e-3,
        max_epochs=60,
        n_init=10,
        random_state=random_state,
        verbose=verbose,
    )


def draw_clusters(images: Array, labels: Labels, classes: Labels) -> None:
    """The mean image of each cluster, with its size and the share of its commonest digit."""
    count = int(labels.max()) + 1
    rows = -(-count // 6)
    figure, axes = plt.subplots(rows, 6, figsize=(9, 2.1 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[count:]:
        axis.remove()
    for cluster, axis in zip(range(count), axes.flat, strict=False):
        members = labels == cluster
        digits = np.bincount(classes[members])
        axis.imshow(images[members].mean(0), cmap="Greys", vmin=0, vmax=1, interpolation="bicubic")
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set(color=COLOURS[cluster], linewidth=2)
        axis.set_title(f"{cluster}: {members.sum()} images", color=COLOURS[cluster], weight="bold", fontsize=11)
        axis.set_xlabel(f"{digits.max() / digits.sum():.0%} are {digits.argmax()}s", color=QUIET)
    save(figure, "clusters.png")


def draw_training(history: dict[str, list[float]], asked: int) -> None:
    """The objective, the clusters in use and the mean entropy of the predictions, epoch by epoch."""
    titles = {"objective": "Objective (is maximised)", "clusters": "Clusters in use", "entropy": "Entropy (nats)"}
    figure, axes = plt.subplots(1, 3, figsize=(10, 2.9), layout="constrained")
    for (name, title), colour, axis in zip(titles.items(), COLOURS, axes, strict=False):
        axis.plot(range(1, len(history[name]) + 1), history[name], color=colour, linewidth=2.2)
        axis.set_title(title, loc="left", color=INK, fontsize=10)
        axis.set_xlabel("epoch", color=QUIET)
        axis.set_ylim(bottom=0, top=1.08 * (asked if name == "clusters" else max(history[name])))
        axis.margins(x=0.01)
        axis.grid(axis="y", color="#e4e7eb")
        axis.tick_params(colors=QUIET, length=0)
        axis.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[1].axhline(asked, color=QUIET, linestyle="--", linewidth=1)
    axes[1].annotate("asked for", (1, asked), (0, -3), textcoords="offset points", va="top", color=QUIET)
    save(figure, "training.png")


def draw_map(X: Array, labels: Labels) -> None:
    """The samples on their first two principal components; each number is where its cluster is purest."""
    points = PCA(2, random_state=0).fit_transform(X)
    neighbours = NearestNeighbors(n_neighbors=40).fit(points).kneighbors(return_distance=False)
    purity = (labels[neighbours] == labels[:, None]).mean(1)
    figure, axis = plt.subplots(figsize=(7, 6), layout="constrained")
    axis.scatter(points[:, 0], points[:, 1], s=14, c=[COLOURS[label] for label in labels], alpha=0.7, linewidths=0)
    for cluster in range(labels.max() + 1):
        x, y = points[np.where(labels == cluster, purity, -1).argmax()]
        axis.scatter(x, y, s=260, color=COLOURS[cluster], edgecolors="white", linewidths=1.5)
        axis.text(x, y, str(cluster), color="white", weight="bold", ha="center", va="center_baseline")
    title = "The digits on two of 64 principal components (clusters that overlap here may lie apart)"
    axis.set_title(title, loc="left", color=INK, fontsize=10)
    axis.set_aspect("equal")
    axis.axis("off")
    save(figure, "map.png")


def save(figure: Figure, name: str) -> None:
    figure.savefig(FOLDER / name, dpi=130, facecolor="white")
    plt.close(figure)


def main() -> None:
    # Ten small networks, trained as one: threads would spend their time waiting for each other.
    torch.set_num_threads(1)
    X, classes = load()
    start = perf_counter()
    clustering = settings(random_state=0, verbose=True).fit(X, affinity=graph_kernel(X))
    seconds = perf_counter() - start
    labels = clustering.labels_
    print(f"clusters found        {clustering.n_clusters_} of at most {clustering.n_clusters}")
    print(f"adjusted Rand index   {adjusted_rand_index(classes, labels):.3f}")
    print(f"mutual information    {normalised_mutual_information(classes, labels):.3f} (normalised)")
    print(f"accuracy              {hungarian_accuracy(classes, labels):.3f} (clusters matched with digits)")
    print(f"time                  {seconds:.1f} s for {clustering.n_init} starts of {clustering.n_iter_} epochs")
    FOLDER.mkdir(exist_ok=True)
    draw_clusters(X.reshape(-1, 8, 8), labels, classes)
    draw_training(clustering.history_, clustering.n_clusters)
    draw_map(X, labels)
    print(f"pictures              {', '.join(sorted(str(path) for path in FOLDER.glob('*.png')))}")


if __name__ == "__main__":
    main()
