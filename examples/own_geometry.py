"""
A geometry of your own
======================

The geometry decides what a cluster is: two moons with Euclidean distances, kernels and a neighbour graph.

The model is the same each time and can learn any boundary. Only the geometry changes.
"""

from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import make_moons
from torch import Tensor

from pollux import GeminiClustering
from pollux.geometry import Geometry, ShortestPath, resolve
from pollux.metrics import adjusted_rand_index


def inverse_quadratic(x: Tensor, y: Tensor) -> Tensor:
    """A custom kernel: x (n, d), y (m, d) → (n, m)."""
    return 1 / (1 + 10 * torch.cdist(x, y) ** 2)


TRIALS: dict[str, tuple[str, str | Geometry | Callable[..., Tensor]]] = {
    "linear kernel": ("mmd_ova", "linear"),
    "rbf kernel, gamma = 5": ("mmd_ova", resolve("rbf", gamma=5.0)),
    "own kernel, inverse quadratic": ("mmd_ova", inverse_quadratic),
    "Euclidean distance": ("wasserstein_ova", "euclidean"),
    "shortest paths in a graph": ("wasserstein_ova", ShortestPath(quantile=0.05)),
}


def main() -> None:
    X, moons = make_moons(300, noise=0.06, random_state=0)
    X_new, moons_new = make_moons(1000, noise=0.06, random_state=1)
    print(f"{'geometry':32}{'objective':18}{'ARI':>6}{'new rows':>10}")
    _, panels = plt.subplots(1, len(TRIALS), figsize=(3 * len(TRIALS), 2.6), layout="constrained")
    for panel, (name, (objective, geometry)) in zip(panels, TRIALS.items(), strict=True):
        clustering = GeminiClustering(
            n_clusters=2,
            model="mlp",
            objective=objective,
            geometry=geometry,
            n_init=1,
            learning_rate=0.02,
            max_epochs=150,
            random_state=0,
        ).fit(X.astype(np.float32))
        seen = adjusted_rand_index(moons, clustering.labels_)
        unseen = adjusted_rand_index(moons_new, clustering.predict(X_new.astype(np.float32)))
        print(f"{name:32}{objective:18}{seen:6.2f}{unseen:10.2f}")
        panel.scatter(*X.T, c=clustering.labels_, cmap="Set2", s=8)
        panel.set(title=name, xticks=[], yticks=[])
    plt.show()


if __name__ == "__main__":
    main()
