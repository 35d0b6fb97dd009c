"""
Which rows fit in nowhere?
==========================

Every row gets a cluster, also one that is like no other. ``score_samples`` says how well a row fits in with those of
the training: −1 is typical, and lower is more abnormal, as in scikit-learn. ``find_outliers`` flags the lowest share.
"""

import matplotlib.pyplot as plt
import numpy as np

from pollux import GeminiClustering
from pollux.lab.datasets import moons

X, _ = moons(400, noise=0.08, random_state=0)
strange = np.random.default_rng(0).uniform(-2.2, 3.2, (12, 2))
clustering = GeminiClustering(2, random_state=0).fit(np.concatenate([X, strange]))

# %%
# The score does not ask how sure the model is: far from all samples it is as sure as among them.
print("probability of the likeliest cluster:", clustering.predict_proba(strange).max(1).round(2))
print("score:", clustering.score_samples(strange).round(1))

side = np.linspace(-2.5, 3.5, 120)
plane = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
figure, panel = plt.subplots(figsize=(5, 4), layout="constrained")
panel.contourf(side, side, clustering.score_samples(plane).reshape(120, 120), levels=12, cmap="Blues_r")
everything = np.concatenate([X, strange])
flagged = clustering.find_outliers(everything, 0.03)
x, y = everything.T
panel.scatter(x[~flagged], y[~flagged], c=clustering.labels_[~flagged], cmap="tab10", s=8)
panel.scatter(x[flagged], y[flagged], marker="x", c="black")
panel.set(title=f"{flagged.sum()} rows flagged, {flagged[len(X) :].sum()} of them strange", xticks=[], yticks=[])
plt.show()
