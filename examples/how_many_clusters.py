"""
How many clusters?
==================

The number is usually unknown. ``select_n_clusters`` trains every candidate on subsamples, measures how often they
agree, and whether data without clusters would agree as much.
"""

import matplotlib.pyplot as plt
import numpy as np

from pollux import GeminiClustering, select_n_clusters
from pollux.lab.datasets import blobs

# %%
# Four groups, one of them small, and data without any groups.
groups, _ = blobs(400, centres=[[0, 0], [4, 0], [0, 4], [6, 6]], std=0.7, random_state=0)
cloud = np.random.default_rng(0).normal(size=(400, 2)) * [3, 1]

figure, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for panel, X, name in zip(panels, (groups, cloud), ("four groups", "a cloud"), strict=True):
    found = select_n_clusters(X, range(2, 7), n_subsamples=4, random_state=0)
    print(f"{name}: {found.n_clusters}. {found.reason}")
    labels = GeminiClustering.for_tables(found.n_clusters, random_state=0).fit_predict(X)
    panel.scatter(*X.T, c=labels, cmap="Set2", s=8)
    panel.set(title=f"{name}: {found.n_clusters} found", xticks=[], yticks=[], aspect="equal")
plt.show()

# %%
# The answer for the groups, with its evidence.
print(select_n_clusters(groups, range(2, 7), n_subsamples=4, random_state=0))
