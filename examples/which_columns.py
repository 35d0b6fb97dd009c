"""
Which columns matter?
=====================

Most tables have columns that are unrelated to the groups. ``select_features`` increases a penalty on the weights of
each column, and selects the smallest model that still has most of the objective.
"""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

from pollux import GeminiClustering, select_features

# %%
# Thirteen measurements of wines of three growers, and twenty columns of noise beside them.
wine = load_wine(as_frame=True)
noise = np.random.default_rng(0).normal(size=(len(wine.data), 20))
table = wine.data.assign(**{f"noise {number}": column for number, column in enumerate(noise.T)})

clustering = GeminiClustering(3, model="linear", objective="mmd_ovo", random_state=0)
path = select_features(clustering, table, y=wine.target, keep=0.99)
print(path)

# %%
# ``best`` is the clustering of the selected columns. It predicts from these columns alone.
everything = clustering.fit(table)
print(f"agreement with the growers, all columns: {adjusted_rand_score(wine.target, everything.labels_):.2f}")
print(f"the {len(path.selected)} selected ones: {adjusted_rand_score(wine.target, path.best.labels_):.2f}")

# %%
# The objective, and the agreement with the growers, along the path.
figure = path.plot()
