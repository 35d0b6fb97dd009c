"""
Regularised information maximisation
====================================

RIM maximises the mutual information of a linear model with a penalty on its weights; kernel RIM does so for a model
that is linear in a kernel. The penalty leaves clusters empty that contribute little.
"""

from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score

from pollux import GeminiClustering

# %%
# Thirteen measurements of wines of three growers, and as many clusters.
wine = load_wine()
for name, recipe in {"RIM": GeminiClustering.rim, "kernel RIM": GeminiClustering.kernel_rim}.items():
    clustering = recipe(3, preprocessing="standard", random_state=0).fit(wine.data)
    print(f"{name}: agreement with the growers {adjusted_rand_score(wine.target, clustering.labels_):.2f}")

# %%
# Kernel RIM may use eight clusters, and uses as many as there are growers.
clustering = GeminiClustering.kernel_rim(8, random_state=0).fit(wine.data)
print(f"clusters in use: {clustering.n_clusters_}")
