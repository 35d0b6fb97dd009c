"""
Which rows fit in nowhere?
==========================

Every row gets a cluster, even if it is like no other. ``score_samples`` measures how well a row fits the training
samples: −1 is typical, and lower is more abnormal, as in scikit-learn. ``find_outliers`` flags the lowest share.

Here 12 outliers are drawn uniformly from a wide square around two moons.
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
# The score is not the model's confidence: far from all samples the model is as confident as among them.
print("probability of the likeliest cluster:", clustering.predict_proba(strange).max(1).round(2))
print("score:", clustering.score_samples(strange).round(1))

# %%
# You choose the share of rows to flag: 0.03 of 412 rows are 13. Ten of them are outliers; crosses mark flagged rows.
# The other two outliers fell close to a moon by chance: they score like rows there, and cannot be distinguished from
# them. In their place, three rows at the ends of the moons are flagged. Read a flag as "look at this row", not as "this
# row is wrong". The background shows the score: the darker, the lower.
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
