"""
What is in each cluster?
========================

``explain`` tells the clusters of any clustering, of Pollux or of scikit-learn, by short rules in the units of the data.
"""

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pollux import explain

# %%
# Thirteen measurements of wines, clustered by k-means. Of each rule it is said how many of the rows for which it holds
# are in the cluster, and how much of the cluster it covers; both are estimated on rows that it was not made from.
wine = load_wine(as_frame=True).data
clustering = make_pipeline(StandardScaler(), KMeans(3, random_state=0, n_init=10)).fit(wine)
found = explain(clustering, wine)
print(found)

# %%
# The tree that stands for the clustering, and how often it is right on rows that it has not seen.
print(found.export_text())
print(f"fidelity: {found.fidelity:.0%}")

# %%
# What each column contributes to it.
leading = {column: share for column, share in found.importances.items() if share > 0}
figure, panel = plt.subplots(layout="constrained", figsize=(6, 2.5))
panel.barh(list(leading)[::-1], list(leading.values())[::-1])
panel.set_xlabel("share of the importance")
plt.show()
