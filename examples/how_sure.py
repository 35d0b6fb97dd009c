"""
How sure is the model?
======================

A clustering is a model p(y|x): for any point of the plane, not only for the samples, it predicts a cluster and its
probability. The entropy is largest along the boundaries.
"""

import matplotlib.pyplot as plt
import numpy as np

from pollux import GeminiClustering
from pollux.lab.datasets import moons
from pollux.report import plot_decision_regions, plot_entropy_map

X, _ = moons(400, noise=0.12, random_state=0)
clustering = GeminiClustering(2, model="mlp", objective="mmd_ovo", geometry="graph", n_init=3, random_state=0).fit(X)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot_decision_regions(clustering.predict_proba, X, clustering.labels_, ax=left)
plot_entropy_map(clustering.predict_proba, X, ax=right)
plt.show()

# %%
# Rows whose largest probability is small are worth a closer look.
sure = clustering.predict_proba(X).max(1)
print("least sure:", np.argsort(sure)[:5], sure[np.argsort(sure)[:5]].round(2))
