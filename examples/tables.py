"""
Raw rows of a table
===================

Columns in very different units, missing values, and new rows. Nothing is scaled or imputed beforehand.
"""

import numpy as np
from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from pollux import GeminiClustering
from pollux.metrics import adjusted_rand_index
from pollux.report import plot_profiles


def main() -> Figure:
    wine = load_wine()
    X, names = wine.data.copy(), wine.feature_names
    random = np.random.default_rng(0)
    X[:, names.index("ash")] *= 1e6  # micrograms, say
    X[:, names.index("alcohol")] /= 1e3
    X[random.random(X.shape) < 0.02] = np.nan
    X, X_new, kinds, kinds_new = train_test_split(X, wine.target, test_size=0.25, random_state=0, stratify=wine.target)
    lengths = np.nanstd(X, 0)
    print(f"table                   {X.shape[0]} rows, {X.shape[1]} columns, {np.isnan(X).sum()} gaps")
    print(f"standard deviations     from {lengths.min():.1e} to {lengths.max():.1e}")

    clustering = GeminiClustering.for_tables(3, random_state=0).fit(X)
    labels, labels_new = clustering.labels_, clustering.predict(X_new)
    print(f"clusters                {clustering.n_clusters_}, of {np.bincount(labels).tolist()} rows")
    print(f"restarts agree          {clustering.stability_:.3f} (adjusted Rand index between them)")

    means = np.nanmean(X, 0)
    print("\nAdjusted Rand index     seen rows   new rows")
    print(f"{'this clustering':24}{adjusted_rand_index(kinds, labels):9.3f}", end="")
    print(f"{adjusted_rand_index(kinds_new, labels_new):11.3f}")
    for name, unit in (("k-means, standardised", lengths), ("k-means, as they are", np.ones_like(lengths))):
        # k-means needs missing values to be filled and columns to be scaled.
        filled, filled_new = ((np.where(np.isnan(rows), means, rows) - means) / unit for rows in (X, X_new))
        peer = KMeans(3, n_init=10, random_state=0).fit(filled)
        seen, unseen = (
            adjusted_rand_index(kinds, peer.labels_),
            adjusted_rand_index(kinds_new, peer.predict(filled_new)),
        )
        print(f"{name:24}{seen:9.3f}{unseen:11.3f}")

    print("\nWhat sets a cluster apart, in standard deviations from the mean of all rows")
    for k in range(clustering.n_clusters_):
        shift = (np.nanmean(X[labels == k], 0) - means) / lengths
        strongest = np.argsort(-np.abs(shift))[:4]
        print(f"cluster {k}   " + ", ".join(f"{names[j]} {shift[j]:+.1f}" for j in strongest))
    sure = clustering.predict_proba(X_new).max(1)
    print(f"\nProbability of a new row's cluster: {sure.mean():.2f} on average, {sure.min():.2f} at least")
    return plot_profiles(X, labels, names)


if __name__ == "__main__":
    figure = main()
