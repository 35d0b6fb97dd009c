"""
A GEMINI behind scikit-learn's interface
========================================

In a pipeline, on new rows, with partial_fit, and from a file.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pollux
from pollux import GeminiClustering
from pollux.metrics import adjusted_rand_index


def main() -> None:
    X, classes = load_wine(return_X_y=True)
    X, X_new, classes, classes_new = train_test_split(X, classes, test_size=0.3, random_state=0, stratify=classes)

    clustering = GeminiClustering(n_clusters=3, model="linear", objective="mmd_ova", n_init=5, random_state=0)
    pipeline = make_pipeline(StandardScaler(), clustering).fit(X)
    print(f"clusters in use         {clustering.n_clusters_}")
    print(f"sizes, largest first    {np.bincount(clustering.labels_).tolist()}")
    print(f"adjusted Rand index     {adjusted_rand_index(classes, clustering.labels_):.3f}")
    print(f"on rows not seen        {adjusted_rand_index(classes_new, pipeline.predict(X_new)):.3f}")
    print(f"objective on those      {pipeline.score(X_new):.3f}")
    print(f"p(y|x) of the first     {pipeline.predict_proba(X_new)[0].round(3).tolist()}")

    with TemporaryDirectory() as folder:
        path = Path(folder) / "wine.safetensors"
        clustering.save(path)
        restored = pollux.load(path)
        scaled = pipeline[0].transform(X_new)
        same = np.array_equal(restored.predict(scaled), clustering.predict(scaled))
        print(f"file                    {path.stat().st_size} bytes; same predictions: {same}")

    stream = GeminiClustering(n_clusters=3, model="linear", learning_rate=0.05, random_state=0)
    scaled = StandardScaler().fit_transform(X)
    order = np.random.default_rng(0)
    for _ in range(60):
        stream.partial_fit(scaled[order.permutation(len(X))[:60]])
    print(f"after 60 partial fits   {adjusted_rand_index(classes, stream.predict(scaled)):.3f}")


if __name__ == "__main__":
    main()
