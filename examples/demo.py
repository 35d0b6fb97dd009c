"""
Handwritten digits, and a report of them
========================================

Cluster scikit-learn's digits without their labels: print the result, and write a report into demo/.

Only the number of clusters is chosen. The recipe for images first trains a network on clusters of a neighbour graph,
and then improves the boundaries between them.
"""

from pathlib import Path
from time import perf_counter

from sklearn.datasets import load_digits

from pollux import GeminiClustering
from pollux.metrics import adjusted_rand_index, hungarian_accuracy, normalised_mutual_information
from pollux.report import describe, plot_images, plot_map, plot_training, principal_map, write_page

FOLDER = Path("demo")


def main() -> None:
    digits = load_digits()
    images, classes = digits.images[:, None], digits.target  # (1797, 1, 8, 8), and the digit in each image
    start = perf_counter()
    clustering = GeminiClustering(n_clusters=10, random_state=0, verbose=True).fit(images)
    seconds = perf_counter() - start
    labels = clustering.labels_
    print(f"clusters found        {clustering.n_clusters_}")
    print(f"adjusted Rand index   {adjusted_rand_index(classes, labels):.3f}")
    print(f"mutual information    {normalised_mutual_information(classes, labels):.3f} (normalised)")
    print(f"accuracy              {hungarian_accuracy(classes, labels):.3f} (clusters matched with digits)")
    print(f"time                  {seconds:.1f} s, {clustering.n_iter_} epochs")
    FOLDER.mkdir(exist_ok=True)
    pictures = {
        "clusters": plot_images(digits.images, labels, classes=classes),
        "training": plot_training(clustering.history_, n_clusters=clustering.n_clusters_),
        "map": plot_map(principal_map(digits.data)[0], labels),
    }
    for name, figure in pictures.items():
        figure.savefig(FOLDER / f"{name}.png", dpi=130)
    write_page(describe(clustering, images, title="Handwritten digits", classes=classes), FOLDER / "report.html")
    print(f"pictures              {', '.join(sorted(str(path) for path in FOLDER.glob('*.png')))}")
    print(f"report                {(FOLDER / 'report.html').resolve().as_uri()}")


if __name__ == "__main__":
    main()
