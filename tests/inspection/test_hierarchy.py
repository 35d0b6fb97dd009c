"""Clusters group into larger ones."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.cluster.hierarchy import is_valid_linkage

from pollux import Gemini, GeminiClustering
from pollux.inspection.hierarchy import build_hierarchy

# Three pairs of groups; one pair lies far from the others.
CENTRES = np.array([[0, 0], [1.5, 0], [10, 0], [11.5, 0], [0, 20], [1.5, 20]], dtype=float)
GROUP = np.arange(120) % 6
X = CENTRES[GROUP] + 0.2 * np.random.default_rng(0).normal(size=(120, 2))


def certain(labels: Any) -> torch.Tensor:
    return (torch.eye(int(max(labels)) + 1, dtype=torch.float64)[torch.as_tensor(labels)] + 1e-9).log().log_softmax(-1)


@pytest.mark.parametrize("name", ["mmd_ova", "mmd_ovo", "wasserstein_ovo"])
def test_near_clusters_are_merged_first(name: str) -> None:
    x = torch.from_numpy(X)
    affinity = torch.cdist(x, x) if name.startswith("wasserstein") else x @ x.T
    tree = build_hierarchy(certain(GROUP), affinity, Gemini(name), GROUP)
    assert is_valid_linkage(tree.linkage)
    assert {tuple(sorted(pair)) for pair in tree.linkage[:3, :2].astype(int).tolist()} == {(0, 1), (2, 3), (4, 5)}
    assert np.bincount(tree.cut(3)).tolist() == [40, 40, 40]
    assert (tree.cut(6) == tree.groups(6)[GROUP]).all()
    assert (tree.cut(1) == 0).all()
    assert tree.layers[0] in (2, 3)


def test_values_are_those_of_the_objective() -> None:
    x = torch.from_numpy(X)
    log_p = torch.randn(120, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    labels = log_p.argmax(1).numpy()
    tree = build_hierarchy(log_p, x @ x.T, Gemini("mmd_ova"), labels)
    p = log_p.exp()
    for k in (4, 3, 2, 1):
        merged = torch.zeros(120, k, dtype=torch.float64).index_add_(1, torch.from_numpy(tree.groups(k)), p)
        # The sum of a few probabilities, and its logarithm.
        assert tree.values[4 - k] == pytest.approx(float(Gemini("mmd_ova")(merged.log(), x @ x.T)), abs=1e-9)


def test_a_clustering_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    clustering = GeminiClustering(
        6, model="mlp", objective="mmd_ova", geometry="linear", init="kmeans", n_init=1, max_epochs=5, random_state=0
    ).fit(X)
    tree = clustering.hierarchy(X, max_samples=60)
    assert len(tree.labels) == len(X)
    assert len(np.unique(tree.cut(2))) == 2
    assert len(tree.plot().collections) > 0
    for k in (0, 7):
        with pytest.raises(ValueError, match="1 to 6 groups"):
            tree.cut(k)


def test_a_tree_is_shown_by_its_merges() -> None:
    tree = build_hierarchy(certain(GROUP // 2), torch.from_numpy(X @ X.T), Gemini("mmd_ova"), GROUP // 2)
    first, *merges = repr(tree).splitlines()
    assert first == "Hierarchy of 3 clusters: 2 groups last longest"
    assert merges[0].startswith("  0 and 1 become 3, which costs ")
    assert merges[1].startswith("  2 and 3 become 4, which costs ")


def test_one_cluster_is_a_tree_of_no_merge() -> None:
    tree = build_hierarchy(torch.zeros(5, 1), None, Gemini("mi"), np.zeros(5, dtype=np.int64))
    assert tree.linkage.shape == (0, 4)
    assert tree.layers == []
    assert tree.cut(1).tolist() == [0] * 5
    with pytest.raises(ValueError, match="one cluster, and no merge"):
        tree.plot()


def test_frames_of_text_have_one() -> None:
    frame = pd.DataFrame({"size": np.arange(60.0) % 7, "kind": ["a", "b", "c"] * 20})
    clustering = GeminiClustering(3, model="linear", objective="mmd_ova", n_init=1, max_epochs=5, random_state=0)
    assert clustering.fit(frame).hierarchy(frame).linkage.shape == (2, 4)
