"""
A kernel model
==============

A model that is linear in a kernel has curved boundaries. It compares each sample with a hundred landmarks, so that its
size does not depend on the number of samples.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles

from pollux import GeminiClustering, KernelModel

# %%
# Two rings, which the kernel of their neighbour graph separates. A linear model cannot learn them, a kernel model can.
rings, known = make_circles(400, noise=0.05, factor=0.3, random_state=0)
models: dict[str, str | KernelModel] = {"linear": "linear", "kernel": KernelModel(landmarks=100, kernel="rbf")}
grid = np.stack(np.meshgrid(*[np.linspace(-1.3, 1.3, 150)] * 2), -1).reshape(-1, 2)
figure, panels = plt.subplots(1, 2, layout="constrained", figsize=(7, 3.4))
for panel, (name, model) in zip(panels, models.items(), strict=True):
    clustering = GeminiClustering(
        2, model=model, objective="mmd_ova", geometry="graph", learning_rate=0.05, random_state=0
    ).fit(rings)
    agreement = max(np.mean(clustering.labels_ == known), np.mean(clustering.labels_ != known))
    print(f"{name}: {agreement:.0%} of the samples are in the cluster of their ring")
    regions = clustering.predict(grid).reshape(150, 150)
    panel.imshow(regions, extent=[-1.3, 1.3] * 2, origin="lower", cmap="Set2", alpha=0.5)
    panel.scatter(*rings.T, c=clustering.labels_, cmap="Set2", s=8)
    panel.set_title(name)
plt.show()
