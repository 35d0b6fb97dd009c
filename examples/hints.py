"""
A few labels, and pairs that belong together
============================================

Two moons that touch are two clusters to us, but not to an objective that prefers compact ones. A few labelled rows
show it which clusters are meant: ``known`` holds the cluster of each row, −1 if it is not known.
"""

import matplotlib.pyplot as plt
import numpy as np

from pollux import GeminiClustering
from pollux.lab.datasets import moons

X, moon = moons(400, noise=0.2, random_state=0)
known = np.full(len(X), -1)
some = np.random.default_rng(0).permutation(len(X))[:12]
known[some] = moon[some]

figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for panel, hints in zip(panels, (None, known), strict=True):
    clustering = GeminiClustering(2, random_state=0).fit(X, known=hints)
    right = max((clustering.labels_ == moon).mean(), (clustering.labels_ != moon).mean())
    panel.scatter(X[:, 0], X[:, 1], c=clustering.labels_, cmap="tab10", s=8)
    panel.set(title=f"{'no' if hints is None else len(some)} known rows: {right:.0%} right", xticks=[], yticks=[])
panels[1].scatter(X[some, 0], X[some, 1], s=80, facecolors="none", edgecolors="black")
plt.show()

# %%
# Pairs are used in the same way; violated pairs are counted.
pairs = np.random.default_rng(1).integers(0, len(X), (60, 2))
same = moon[pairs[:, 0]] == moon[pairs[:, 1]]
clustering = GeminiClustering(2, random_state=0).fit(X, must_link=pairs[same], cannot_link=pairs[~same])
print(clustering.hint_violations_)
