"""
How sure is the model?
======================

A clustering is a model p(y|x): it says for any point of the plane, not only for the samples, which cluster it takes it
for and how sure it is. The entropy is largest along the boundaries.
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
# The rows to look at by hand are those whose largest probability is small.
sure = clustering.predict_proba(X).max(1)
print("least sure:", np.argsort(sure)[:5], sure[np.argsort(sure)[:5]].round(2))
