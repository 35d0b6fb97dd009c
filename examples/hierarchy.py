"""
How clusters group into larger ones
===================================

Six groups in three pairs. The tree merges the clusters whose merger reduces the objective least; its heights show that
loss. The three merges within pairs cost next to nothing.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from pollux import GeminiClustering

CENTRES = np.array([[0, 0], [2, 0], [10, 0], [12, 0], [5, 15], [7, 15]])
X, _ = make_blobs(600, centers=CENTRES, cluster_std=0.4, random_state=0)
clustering = GeminiClustering(6, model="mlp", objective="mmd_ovo", init="kmeans", random_state=0).fit(X)
tree = clustering.hierarchy(X)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
tree.plot(ax=left)
best = tree.layers[0]
right.scatter(X[:, 0], X[:, 1], c=tree.cut(best), cmap="tab10", s=8)
right.set(title=f"cut into {best}, the most persistent layer", xticks=[], yticks=[])
plt.show()
print("layers, the most persistent first:", tree.layers)
