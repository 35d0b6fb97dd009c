"""
Images and a convolutional network
==================================

Images (n, channels, height, width): LeNet-5 on scikit-learn's digits.
"""

from time import perf_counter

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch.nn import functional

from pollux import GeminiClustering
from pollux.metrics import adjusted_rand_index, hungarian_accuracy
from pollux.report import plot_images


def main() -> Figure:
    # A small network on small images: one core is enough.
    torch.set_num_threads(1)
    digits = load_digits()
    images = torch.from_numpy(digits.images / 16).float()[:, None]
    # LeNet-5 needs 28 x 28 or 32 x 32 pixels: resize 8 x 8 to 24 x 24, and add a margin of 2.
    images = functional.pad(functional.interpolate(images, size=(24, 24), mode="bilinear"), (2, 2, 2, 2))
    X = images.numpy()

    start = perf_counter()
    clustering = GeminiClustering(
        n_clusters=10,
        model="lenet5",
        objective="mmd_ovo",
        geometry="rbf",
        batch_size=300,
        learning_rate=3e-3,
        max_epochs=20,
        random_state=0,
        verbose=True,
    ).fit(X)
    print(f"images                {tuple(X.shape)}")
    print(f"clusters in use       {clustering.n_clusters_}")
    print(f"adjusted Rand index   {adjusted_rand_index(digits.target, clustering.labels_):.3f}")
    print(f"accuracy              {hungarian_accuracy(digits.target, clustering.labels_):.3f}")
    print(f"time                  {perf_counter() - start:.1f} s for {clustering.n_iter_} epochs")
    return plot_images(X[:, 0], clustering.labels_, classes=digits.target)


if __name__ == "__main__":
    figure = main()
