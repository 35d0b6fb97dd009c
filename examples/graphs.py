"""
Clusters that no straight line parts
====================================

Moons, circles, and the people of a real network.

W. W. Zachary: An information flow model for conflict and fission in small groups. Journal of Anthropological Research,
1977. A karate club of 34 members split in two; the edges are friendships, the classes the two new clubs.
"""

import numpy as np
import torch
from scipy.sparse import csr_array

from pollux import GeminiClustering
from pollux.geometry import Features, Geometry, ShortestPath, eigenvectors, unit_rows
from pollux.lab.datasets import circles, moons
from pollux.metrics import adjusted_rand_index

FRIENDS = """1: 2 3 4 5 6 7 8 9 11 12 13 14 18 20 22 32; 2: 3 4 8 14 18 20 22 31; 3: 4 8 9 10 14 28 29 33; 4: 8 13 14;
5: 7 11; 6: 7 11 17; 7: 17; 9: 31 33 34; 10: 34; 14: 34; 15: 33 34; 16: 33 34; 19: 33 34; 20: 34; 21: 33 34; 23: 33 34;
24: 26 28 30 33 34; 25: 26 28 32; 26: 32; 27: 30 34; 28: 34; 29: 32 34; 30: 33 34; 31: 33 34; 32: 33 34; 33: 34"""
WITH_THE_TEACHER = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 17, 18, 20, 22]
GEOMETRIES: dict[str, tuple[str, str | Geometry]] = {
    "linear kernel": ("mmd_ova", "linear"),
    "neighbour graph": ("mmd_ova", "graph"),
    "shortest paths": ("wasserstein_ova", ShortestPath(neighbours=5)),
}


def curves() -> None:
    """An MLP can learn any boundary; the geometry decides which one is best."""
    print(f"{'':10}{'geometry':18}{'ARI':>6}{'new rows':>10}")
    for name, make in (("moons", moons), ("circles", circles)):
        X, y = make(400, noise=0.1, random_state=0)
        X_new, y_new = make(2000, noise=0.1, random_state=1)
        for title, (objective, geometry) in GEOMETRIES.items():
            clustering = GeminiClustering(
                2, objective=objective, geometry=geometry, n_init=1, max_epochs=100, random_state=0
            )
            seen = adjusted_rand_index(y, clustering.fit(X).labels_)
            unseen = adjusted_rand_index(y_new, clustering.predict(X_new))
            print(f"{name:10}{title:18}{seen:6.2f}{unseen:10.2f}")


def karate_club() -> None:
    """Nodes have no coordinates: the kernel comes from the edges, and a free table holds the probabilities."""
    lines = [line.split(":") for line in FRIENDS.split(";")]
    edges = np.array([(int(one), int(other)) for one, others in lines for other in others.split()]) - 1
    graph = np.zeros((34, 34))
    graph[edges[:, 0], edges[:, 1]] = graph[edges[:, 1], edges[:, 0]] = 1
    features = Features(torch.from_numpy(unit_rows(eigenvectors(csr_array(graph), 2)[1])))
    clustering = GeminiClustering(2, model="free", objective="mmd_ovo", n_init=1, max_epochs=300, random_state=0)
    labels = clustering.fit(graph, affinity=features).labels_
    print(f"\nKarate club of 34 members and {len(edges)} friendships, parted by their eigenvectors")
    for k in (0, 1):
        print(f"cluster {k}             members {', '.join(map(str, 1 + np.flatnonzero(labels == k)))}")
    agreement = adjusted_rand_index(np.isin(np.arange(1, 35), WITH_THE_TEACHER), labels)
    print(f"adjusted Rand index   {agreement:.2f} with the clubs that they joined later")


if __name__ == "__main__":
    curves()
    karate_club()
