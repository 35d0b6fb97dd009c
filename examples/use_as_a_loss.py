"""
A GEMINI as a loss
==================

A plain torch training loop, your own network, and no labels.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pollux import Gemini
from pollux.geometry import Features
from pollux.metrics import adjusted_rand_index, clusters_in_use, conditional_entropy

EPOCHS, BATCH_SIZE = 60, 300


class Network(nn.Module):
    """Any module works that returns one logit for each sample and cluster."""

    def __init__(self, n_clusters: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, n_clusters)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(x)
        return logits


def main() -> None:
    torch.manual_seed(0)
    # The steps are short: on several threads most of the time would be spent on synchronisation.
    torch.set_num_threads(1)
    data, classes = load_digits(return_X_y=True)
    samples = torch.from_numpy((data / 16).astype(np.float32))
    loader = DataLoader(TensorDataset(samples), batch_size=BATCH_SIZE, shuffle=True)
    network = Network(n_clusters=10)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    gemini = Gemini("mmd_ova")

    for epoch in range(1, EPOCHS + 1):
        for (x,) in loader:
            log_p = network(x).log_softmax(-1)
            # A GEMINI is maximised. Features(x) stands for the linear kernel, without its matrix.
            loss = -gemini(log_p, Features(x))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        if epoch % 10 == 0:
            print(f"epoch {epoch:2d}   objective of the last batch {-loss.item():.3f}")

    network.eval()
    with torch.no_grad():
        probabilities = network(samples).softmax(-1).numpy()
    print(f"clusters in use       {clusters_in_use(probabilities)}")
    print(f"mean entropy          {conditional_entropy(probabilities):.3f} nats")
    print(f"adjusted Rand index   {adjusted_rand_index(classes, probabilities.argmax(1)):.3f}")


if __name__ == "__main__":
    main()
