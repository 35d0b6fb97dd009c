"""Models that are trained: normalisation layers and their running statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pollux.models import ACTIVATIONS, mlp
from pollux.objectives import PENALTIES, Gemini
from pollux.training import (
    AutogradStep,
    SingleModel,
    starting,
)
from pollux.training.batches import Batch
from pollux.training.trainable import has_compiled_steps, stackable
from small_models import X, small

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")


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
    assert not has_compiled_steps(module, 3)
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
