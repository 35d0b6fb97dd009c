"""Models that are trained: normalisation layers and their running statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_blobs
from torch import Tensor, nn

from flat_parameters import make_clustering
from pollux import GeminiClustering
from pollux.models import ACTIVATIONS, mlp
from pollux.objectives import PENALTIES, Gemini
from pollux.training import (
    AutogradStep,
    SingleModel,
    starting,
)
from pollux.training.batches import Batch
from pollux.training.trainable import has_closed_form, stackable

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")

X, CLASSES = make_blobs(n_samples=(30, 25, 20), n_features=4, cluster_std=0.7, random_state=1)
Labels = NDArray[np.int64]


def small(n_clusters: int = 3, **parameters: Any) -> GeminiClustering:
    return make_clustering(n_clusters, **{"model": "linear", "max_epochs": 6, "random_state": 0, **parameters})


def same_weights(one: GeminiClustering, other: GeminiClustering) -> bool:
    states = one.module_.state_dict(), other.module_.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are not as good as they could be."""
    monkeypatch.setattr(starting, "_FEWEST_STEPS", 50)


def test_norm_comes_before_each_activation() -> None:
    module = mlp(4, 3, hidden=(5, 6), norm="batch")
    assert [type(layer) for layer in module.children()] == [
        *(nn.Linear, nn.BatchNorm1d, ACTIVATIONS["relu"]) * 2,
        nn.Linear,
    ]
    assert not has_closed_form(module, 3)
    assert not stackable(module)
    with pytest.raises(ValueError, match="norm is one of None, 'batch'; not 'layer'"):
        mlp(4, 3, norm="layer")


def test_running_statistics_see_the_data_alone() -> None:
    def trained(penalties: Any) -> dict[str, Tensor]:
        torch.manual_seed(0)
        module = mlp(4, 3, hidden=(5,), norm="batch").double()
        model = SingleModel(module, 3)
        model.train()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
        step = AutogradStep(model, Gemini("mi"), optimiser, penalties, torch.Generator().manual_seed(0))
        inputs = torch.as_tensor(X)
        step(Batch(inputs, None, None, None, torch.ones(75)))
        return {name: buffer.clone() for name, buffer in module.named_buffers()}

    plain, penalised = trained([]), trained([(PENALTIES["local_vat"], 1.0), (PENALTIES["vat"], 1.0)])
    assert plain.keys() == penalised.keys()
    assert all(torch.equal(plain[name], penalised[name]) for name in plain)
    assert int(plain["1.num_batches_tracked"]) == 1


def test_predictions_of_a_normalised_network_do_not_depend_on_other_rows() -> None:
    fitted = small(model="mlp", norm="batch", hidden=(6,), batch_size=25).fit(X)
    alone = np.concatenate([fitted.predict_proba(row[None]) for row in X[:10]])
    np.testing.assert_allclose(alone, fitted.predict_proba(X)[:10], atol=1e-9)
