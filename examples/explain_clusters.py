"""
What is in each cluster?
========================

``explain`` describes the clusters of any clustering, of Pollux or of scikit-learn, by short rules in the data's units.
"""

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pollux import explain

# %%
# Thirteen measurements of wines, clustered by k-means. For each rule, the precision is the share of its rows that are
# in the cluster, and the coverage the share of the cluster that it contains; both are estimated on held-out rows.
wine = load_wine(as_frame=True).data
clustering = make_pipeline(StandardScaler(), KMeans(3, random_state=0, n_init=10)).fit(wine)
found = explain(clustering, wine)
print(found)

# %%
# The tree that approximates the clustering, and its accuracy on held-out rows.
print(found.export_text())
print(f"fidelity: {found.fidelity:.0%}")

# %%
# The contribution of each column.
leading = {column: share for column, share in found.importances.items() if share > 0}
figure, panel = plt.subplots(layout="constrained", figsize=(6, 2.5))
panel.barh(list(leading)[::-1], list(leading.values())[::-1])
panel.set_xlabel("share of the importance")
plt.show()
