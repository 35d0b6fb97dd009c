"""
A divergence of your own
========================

An f-divergence defined by its f, and one that uses distances between samples.
"""

from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from pollux import Divergence, Gemini, GeminiClustering, f_divergence
from pollux.metrics import adjusted_rand_index


def jensen_shannon(ratio: Tensor) -> Tensor:
    """The generator f of the Jensen-Shannon divergence: convex, and f(1) = 0."""
    return (ratio * ratio.log() - (ratio + 1) * ((ratio + 1) / 2).log()) / 2


def energy(log_p: Tensor, log_q: Tensor, distance: Tensor) -> Tensor:
    """The energy distance 2 E|x − y| − E|x − x'| − E|y − y'|: (…, K, n), (…, L, n), (n, n) → (…, K, L)."""
    p, q = log_p.exp(), log_q.exp()
    within_p = ((p @ distance) * p).sum(-1)
    within_q = ((q @ distance) * q).sum(-1)
    return 2 * p @ distance @ q.mT - within_p[..., :, None] - within_q[..., None, :]


OBJECTIVES = {
    "mutual information (by name)": Gemini("mi"),
    "Jensen-Shannon, one-vs-all": Gemini(f_divergence(jensen_shannon, "jensen_shannon")),
    "Jensen-Shannon, one-vs-one": Gemini(f_divergence(jensen_shannon, "jensen_shannon"), one_vs_one=True),
    "energy distance, one-vs-all": Gemini(Divergence("energy", energy, needs="distance")),
}


def main() -> None:
    X, cultivars = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    print("Adjusted Rand index of wines against their cultivars")
    print(f"{'objective':32}{'linear model':>14}{'free table':>14}")
    for name, objective in OBJECTIVES.items():
        linear = GeminiClustering(3, model="linear", objective=objective, random_state=0)
        # A free table does not see X: from a random start it learns through the divergence alone.
        free = GeminiClustering(3, model="free", init="random", objective=objective, learning_rate=0.1, random_state=0)
        scores = [adjusted_rand_index(cultivars, model.fit(X).labels_) for model in (linear, free)]
        print(f"{name:32}{scores[0]:14.2f}{scores[1]:14.2f}")


if __name__ == "__main__":
    main()
