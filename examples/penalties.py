"""
Penalties that keep a network calm
==================================

A large network may cut through a dense region. Virtual adversarial training (VAT) penalises changes of the prediction
after a small step in the worst direction; it is added to the loss with a weight.
"""

import matplotlib.pyplot as plt

from pollux import MLP, GeminiClustering
from pollux.lab.datasets import moons
from pollux.metrics import adjusted_rand_index
from pollux.report import plot_decision_regions

X, groups = moons(400, noise=0.1, random_state=0)

figure, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for panel, weight in zip(panels, (0.0, 1.0), strict=True):
    clustering = GeminiClustering(
        2, model=MLP((64, 64)), objective="mi", penalties={"vat": weight}, n_init=3, max_epochs=200, random_state=0
    ).fit(X)
    plot_decision_regions(clustering.predict_proba, X, clustering.labels_, ax=panel)
    agreement = adjusted_rand_index(groups, clustering.labels_)
    panel.set_title(f"{'VAT' if weight else 'no penalty'}: ARI {agreement:.2f}")
    print(f"weight {weight}:", f"{agreement:.2f}")
plt.show()
