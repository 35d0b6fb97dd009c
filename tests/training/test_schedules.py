"""Schedules of the learning rate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pollux.errors import InputError
from pollux.training import (
    SCHEDULES,
    make_optimiser,
    starting,
)
from small_models import X, small, spread_of_rounding

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are not as good as they could be."""
    monkeypatch.setattr(starting, "_FEWEST_STEPS", 50)


def test_a_cosine_falls_from_one_to_zero() -> None:
    cosine = SCHEDULES["cosine"]
    assert [cosine(10, epochs) for epochs in (0, 5, 10, 12)] == pytest.approx([1, 0.5, 0, 0])
    assert cosine(3, 1) == pytest.approx((1 + math.cos(math.pi / 3)) / 2)
    assert {SCHEDULES["constant"](10, epochs) for epochs in (0, 3.5, 10)} == {1.0}


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_steps_go_at_the_pace_of_the_schedule(optimiser: str) -> None:
    rates: list[float] = []

    def factory(parameters: Any, lr: float) -> torch.optim.Optimizer:
        made = make_optimiser(optimiser, parameters, lr)
        made.register_step_pre_hook(lambda *_: rates.append(made.param_groups[0]["lr"]))
        return made

    small(optimiser=factory, schedule="cosine", max_epochs=4, batch_size=25, learning_rate=0.5).fit(X)
    expected = [0.5 * (1 + math.cos(math.pi * step / 12)) / 2 for step in range(12)]
    assert rates == pytest.approx(expected)


def test_the_schedule_is_the_same_by_autograd_and_in_closed_form() -> None:
    options = {"schedule": "cosine", "batch_size": 25, "dtype": "float64"}
    closed_form = small(**options).fit(X)
    by_autograd = small(**options, penalties={"entropy": 0.0}).fit(X)
    again = lambda samples: small(**options, penalties={"entropy": 0.0}).fit(samples).predict_proba(X)  # noqa: E731
    # Sums over the samples of each of 6 epochs.
    tolerance = spread_of_rounding(again, X, roundings=6 * len(X))
    np.testing.assert_allclose(closed_form.predict_proba(X), by_autograd.predict_proba(X), rtol=0, atol=tolerance)
    assert tolerance < 1e-6
    assert not np.allclose(closed_form.predict_proba(X), small(batch_size=25).fit(X).predict_proba(X), atol=1e-4)


def test_an_optimiser_that_sets_its_own_rates_is_left_alone() -> None:
    rates: list[float] = []

    class Halving(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            rates.append(self.param_groups[0]["lr"])
            self.param_groups[0]["lr"] /= 2
            return super().step(closure)

    small(optimiser=Halving, max_epochs=3, learning_rate=0.4).fit(X)
    assert rates == pytest.approx([0.4, 0.2, 0.1])


def test_the_last_round_follows_the_schedule_from_its_beginning() -> None:
    rates: list[float] = []

    def factory(parameters: Any, lr: float) -> torch.optim.Optimizer:
        made = torch.optim.SGD(parameters, lr=lr)
        made.register_step_pre_hook(lambda *_: rates.append(made.param_groups[0]["lr"]))
        return made

    small(optimiser=factory, schedule="cosine", n_init=3, trial_epochs=2, max_epochs=5, learning_rate=1.0).fit(X)
    assert rates[:2] == [1, 1]
    assert rates[-3:] == pytest.approx([1, 0.75, 0.25])


def test_a_scheduled_training_is_not_prolonged(tmp_path: Path) -> None:
    model = small(schedule="cosine", max_epochs=3, checkpoint=tmp_path).fit(X)
    with pytest.raises(InputError, match="epochs"):
        model.set_params(max_epochs=5).fit(X)
