"""
Too many clusters may be asked for
==================================

Twelve clusters are allowed, but there are five groups. One-vs-all with a kernel leaves clusters empty that contribute
little, one-vs-one and the mutual information less so. None of them estimates the number of groups: that is for
``select_n_clusters``. Labels have no gaps: clusters in use come first, by size.
"""

import matplotlib.pyplot as plt

from pollux import GeminiClustering
from pollux.lab.datasets import blobs
from pollux.metrics import adjusted_rand_index

X, groups = blobs(600, centres=[[0, 0], [5, 0], [0, 5], [5, 5], [2, 9]], std=0.6, random_state=1)

figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for panel, objective in zip(panels, ("mi", "mmd_ova", "mmd_ovo"), strict=True):
    clustering = GeminiClustering(12, model="mlp", objective=objective, n_init=3, random_state=0).fit(X)
    panel.scatter(*X.T, c=clustering.labels_, cmap="tab20", s=8)
    agreement = adjusted_rand_index(groups, clustering.labels_)
    panel.set(title=f"{objective}: {clustering.n_clusters_} of 12", xlabel=f"ARI {agreement:.2f}", xticks=[], yticks=[])
    print(f"{objective:8} {clustering.n_clusters_:2} clusters, adjusted Rand index {agreement:.2f}")
plt.show()
