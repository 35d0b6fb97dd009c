"""
Which rows fit in nowhere?
==========================

Every row gets a cluster, also one that is like no other. ``score_samples`` says how well a row fits in with those of
the training: −1 is typical, and lower is more abnormal, as in scikit-learn. ``find_outliers`` flags the lowest share.

Here 12 strange rows are drawn evenly from a wide square around two moons.
"""

import matplotlib.pyplot as plt
import numpy as np

from pollux import GeminiClustering
from pollux.lab.datasets import moons

X, _ = moons(400, noise=0.08, random_state=0)
strange = np.random.default_rng(0).uniform(-4, 5, (12, 2))
everything = np.concatenate([X, strange])
clustering = GeminiClustering(2, random_state=0).fit(everything)

# %%
# The score does not ask how sure the model is: far from all samples it is as sure as among them.
print("probability of the likeliest cluster:", clustering.predict_proba(strange).max(1).round(2))
print("score:", clustering.score_samples(strange).round(1))

# %%
# The share says how many rows are flagged, and you choose it: 0.03 of 412 rows are 13. Ten of them are strange rows;
# crosses mark what is flagged. The other two strange rows fell close to a moon by chance: they score as rows there do,
# and nothing tells them apart. In their place, three rows at the ends of the moons are flagged. Read a flag as "look at
# this row", not as "this row is wrong". The field shows the score: the darker, the lower.
flagged = clustering.find_outliers(everything, 0.03)
found, others = flagged[len(X) :].sum(), flagged[: len(X)].sum()
print(f"{found + others} rows flagged: {found} of the 12 strange rows, and {others} others")

x, y = everything.T
across, up = (np.linspace(values.min() - 0.3, values.max() + 0.3, 120) for values in (x, y))
plane = np.stack(np.meshgrid(across, up), -1).reshape(-1, 2)
figure, panel = plt.subplots(figsize=(5, 4), layout="constrained")
panel.contourf(across, up, clustering.score_samples(plane).reshape(120, 120), levels=12, cmap="Blues_r")
panel.scatter(x[~flagged], y[~flagged], c=clustering.labels_[~flagged], cmap="tab10", s=8)
panel.scatter(x[flagged], y[flagged], marker="x", c="black")
panel.set(title=f"{found} of the 12 strange rows are flagged, and {others} others", xticks=[], yticks=[])
plt.show()
