"""
A tree of clusters
==================

``GeminiTree`` finds clusters by thresholds on single columns, so that a few of them describe each cluster.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

from pollux import GeminiTree

# %%
# Thirteen measurements of wines of three growers. Each split is the one that increases the objective most; twice as
# many leaves as clusters are a good start.
wine = load_wine(as_frame=True)
tree = GeminiTree(3, preprocessing="standard", max_leaves=6).fit(wine.data)
print(tree.export_text())
print(f"agreement with the growers: {adjusted_rand_score(wine.target, tree.labels_):.2f}")

# %%
# The rules of each cluster, and the columns that they use.
for cluster, rules in tree.rules().items():
    print(f"cluster {cluster}: {' or '.join(rules)}")
for column, share in zip(wine.data.columns, tree.feature_importances_, strict=True):
    if share > 0:
        print(f"{column}: {share:.0%} of what the splits gained")

# %%
# The tree as a figure.
tree.plot_tree()
plt.show()
