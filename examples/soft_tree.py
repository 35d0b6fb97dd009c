"""
A soft decision tree
====================

An interpretable model: each column is cut softly while a GEMINI is maximised, and the combinations of the cuts are
rules.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from pollux import GeminiClustering, SoftTree
from pollux.trees import hard_rules

# %%
# Two columns of iris with two cuts each: nine leaves for three clusters.
iris = load_iris(as_frame=True).data.iloc[:, [2, 3]]
clustering = GeminiClustering(3, model=SoftTree(cuts=2), objective="mmd_ovo", random_state=0).fit(iris)
for cluster, boxes in hard_rules(clustering).items():
    print(f"cluster {cluster}: {' or '.join(boxes)}")

# %%
# The clusters.
figure, panel = plt.subplots(layout="constrained")
length, width = iris.to_numpy().T
panel.scatter(length, width, c=clustering.labels_, cmap="Set2", s=12)
panel.set(xlabel=iris.columns[0], ylabel=iris.columns[1])
plt.show()
