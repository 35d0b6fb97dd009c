"""
MNIST without its labels
========================

Raw pixels in, ten clusters out, compared with the digits only at the end.

Without options it learns from all 60,000 training images; ``--rows 5000 --epochs 10`` tries it on less.
"""

from argparse import ArgumentParser
from time import perf_counter

from pollux import GeminiClustering
from pollux.lab.datasets import load_images
from pollux.metrics import adjusted_rand_index, hungarian_accuracy


def main() -> None:
    parser = ArgumentParser(description="Cluster MNIST without its labels.")
    parser.add_argument("--rows", type=int, default=60_000, help="how many training images to learn from")
    parser.add_argument("--epochs", type=int, help="how many epochs; those of the recipe by default")
    options = parser.parse_args()

    mnist = load_images("mnist")
    images, test = (pixels.reshape(-1, 784) for pixels in (mnist.x_train[: options.rows], mnist.x_test))
    start = perf_counter()
    clustering = GeminiClustering.for_images(10, random_state=0, verbose=True)
    if options.epochs:
        clustering.set_params(max_epochs=options.epochs)
    clustering.fit(images)
    seconds = perf_counter() - start

    found = clustering.predict(test)
    print(f"images                {len(images)} for training, {len(test)} for the test")
    print(f"clusters in use       {clustering.n_clusters_}")
    print(f"adjusted Rand index   {adjusted_rand_index(mnist.y_test, found):.3f} on the test images")
    print(f"accuracy              {hungarian_accuracy(mnist.y_test, found):.3f}")
    print(f"time                  {seconds:.1f} s for {clustering.n_iter_} epochs")


if __name__ == "__main__":
    main()
