"""
Data with outliers
==================

Three Gaussians and one Student-t distribution with heavy tails, as in the paper, and eight clusters where four suffice.
The mutual information only rewards confident predictions, and divides the groups; objectives that take the distances
between samples into account follow the groups more closely.
"""

import matplotlib.pyplot as plt

from pollux import GeminiClustering
from pollux.lab.datasets import gaussian_student_mixture
from pollux.metrics import adjusted_rand_index

X, groups = gaussian_student_mixture(2000, random_state=0)
inside = (abs(X) < 12).all(1)
print(f"{len(X)} samples, of which {(~inside).sum()} lie outside of the pictures")

figure, panels = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
panels[0].scatter(*X[inside].T, c=groups[inside], cmap="Set2", s=6)
panels[0].set(title="known groups", xticks=[], yticks=[])
for panel, objective in zip(panels[1:], ("kl_ova", "mmd_ovo", "wasserstein_ova"), strict=True):
    clustering = GeminiClustering(8, model="mlp", objective=objective, batch_size=200, max_epochs=100, random_state=0)
    labels = clustering.fit(X).labels_
    agreement = adjusted_rand_index(groups, labels)
    panel.scatter(*X[inside].T, c=labels[inside], cmap="tab10", s=6)
    panel.set(title=objective, xlabel=f"{clustering.n_clusters_} clusters, ARI {agreement:.2f}", xticks=[], yticks=[])
    print(f"{objective:16} {clustering.n_clusters_} clusters, adjusted Rand index {agreement:.2f}")
plt.show()
