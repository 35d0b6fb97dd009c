"""
Handwritten digits, and a report of them
========================================

Cluster scikit-learn's digits without their labels: print how it went, and write a report of it into demo/.

The network reads pixels. The kernel follows a graph of neighbours, so two digits are alike when a chain of
similar digits joins them. Fifteen clusters are allowed; the surplus is expected to stay empty.
"""

from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from pollux import GeminiClustering
from pollux.geometry import Paths, ShortestPath
from pollux.metrics import adjusted_rand_index, hungarian_accuracy, normalised_mutual_information
from pollux.report import describe, plot_images, plot_map, plot_training, principal_map, write_page

FOLDER = Path("demo")
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
        preprocessing=None,
        batch_size=500,
        learning_rate=3e-3,
        max_epochs=60,
        n_init=10,
        random_state=random_state,
        verbose=verbose,
    )


def draw(clustering: GeminiClustering, X: Array, classes: Labels) -> None:
    """Pictures of the clusters, of the training and of the map into demo/."""
    labels = clustering.labels_
    pictures = {
        "clusters": plot_images(X.reshape(-1, 8, 8), labels, classes=classes),
        "training": plot_training(clustering.history_, n_clusters=len(clustering.fitted_.order)),
        "map": plot_map(principal_map(X)[0], labels),
    }
    for name, figure in pictures.items():
        figure.savefig(FOLDER / f"{name}.png", dpi=130)


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
    print(f"time                  {seconds:.1f} s for {clustering.n_init} restarts of {clustering.n_iter_} epochs")
    FOLDER.mkdir(exist_ok=True)
    draw(clustering, X, classes)
    images = (255 * X).astype(np.uint8).reshape(-1, 8, 8)
    write_page(
        describe(clustering, X, title="Handwritten digits", images=images, classes=classes), FOLDER / "report.html"
    )
    print(f"pictures              {', '.join(sorted(str(path) for path in FOLDER.glob('*.png')))}")
    print(f"report                {(FOLDER / 'report.html').resolve().as_uri()}")


if __name__ == "__main__":
    main()
