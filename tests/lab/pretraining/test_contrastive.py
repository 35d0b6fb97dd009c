"""The contrastive loss is its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pollux.lab.pretraining import nt_xent
from pretraining_images import generator


def slow_nt_xent(projections: NDArray[np.float64], temperature: float) -> float:
    """The definition, one pair at a time."""
    count = len(projections)
    unit = [row / np.sqrt((row**2).sum()) for row in projections]
    total = 0.0
    for i in range(count):
        partner = (i + count // 2) % count
        others = sum(math.exp(unit[i] @ unit[k] / temperature) for k in range(count) if k != i)
        total -= math.log(math.exp(unit[i] @ unit[partner] / temperature) / others)
    return total / count


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("images", [1, 2, 7])
def test_the_loss_is_its_definition(images: int, temperature: float) -> None:
    projections = torch.randn(2 * images, 5, dtype=torch.float64, generator=generator())
    expected = slow_nt_xent(projections.numpy(), temperature)
    assert nt_xent(projections, temperature).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_gradients_of_the_loss() -> None:
    projections = torch.randn(8, 3, dtype=torch.float64, generator=generator(), requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: nt_xent(values, 0.5), (projections,))


def test_the_loss_of_views_that_look_alike_and_of_perfect_ones() -> None:
    assert nt_xent(torch.ones(16, 4), 0.5).item() == pytest.approx(math.log(15))
    assert nt_xent(torch.eye(8).repeat(2, 1), 0.01).item() == pytest.approx(0, abs=1e-6)


def test_the_loss_is_computed_where_the_projections_are() -> None:
    # The device without memory stands for all that are not the processor.
    assert nt_xent(torch.ones(16, 4, device="meta"), 0.5).device.type == "meta"
