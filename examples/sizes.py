"""
Clusters of a given size
========================

Seats, routes and budgets have limits. ``min_size`` and ``max_size`` bound the number of rows of each cluster, and the
labels are the most likely ones within these bounds. The predicted probabilities do not change.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from pollux import GeminiClustering

X, _ = make_blobs([300, 60, 60], centers=[[0, 0], [5, 0], [2.5, 4]], cluster_std=1.1, random_state=0)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for panel, most in zip(panels, (None, 140), strict=True):
    clustering = GeminiClustering(3, random_state=0).fit(X, max_size=most)
    sizes = np.bincount(clustering.labels_)
    panel.scatter(X[:, 0], X[:, 1], c=clustering.labels_, cmap="tab10", s=8)
    panel.set(title=f"{'no limit' if most is None else f'at most {most}'}: {sizes.tolist()}", xticks=[], yticks=[])
plt.show()

# %%
# New rows are assigned independently of the training rows.
print(np.bincount(clustering.assign(X[:30], min_size=10)))
