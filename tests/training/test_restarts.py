"""Rounds of restarts: trials, those that go on, and what ends them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pollux.errors import InputError
from pollux.training import (
    Checkpoints,
    Interruptible,
    NumericalWarning,
    restarts,
    starting,
)
from pollux.training.batches import RowBatches
from pollux.training.loop import TrainingState
from small_models import X, same_weights, small

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are not as good as they could be."""
    monkeypatch.setattr(starting, "_FEWEST_STEPS", 50)


WAYS: dict[str, dict[str, Any]] = {
    "in closed form": {},
    "stacked": {"optimiser": "adamw", "model": "mlp", "hidden": (4,)},
    "one by one": {"model": "mlp", "hidden": (4,), "norm": "batch"},
    "a free table": {"model": "free"},
}
every_way = pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)


@every_way
@pytest.mark.parametrize("going_on", [1, 2])
def test_the_best_of_a_trial_go_on(options: dict[str, Any], going_on: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "_GOING_ON", going_on)
    given = {"n_init": 4, "batch_size": 25, "n_clusters": 5, **options}
    trial = small(**given, max_epochs=2).fit(X)
    seen: list[tuple[int, int]] = []

    def callback(epoch: Any) -> None:
        seen.append((epoch.number, epoch.max_epochs))

    whole = small(**given, trial_epochs=2, max_epochs=7, callbacks=[callback]).fit(X)
    assert whole.n_iter_ == len(whole.history_["objective"]) == 7
    assert all(len(values) == 7 for values in whole.history_.values())
    if going_on == 1:
        # The history is that of the start that was the best after the trial.
        assert {name: values[:2] for name, values in whole.history_.items()} == trial.history_
    assert whole.stability_ == trial.stability_
    starts, rest = (4, going_on) if options.get("norm") else (1, 1)
    assert seen == [(1, 2), (2, 2)] * starts + [(number, 7) for number in range(3, 8)] * rest
    assert whole.objective_ == pytest.approx(whole.score(X) if options.get("model") != "free" else whole.objective_)


@pytest.mark.parametrize("starts", [1, 2])
def test_starts_that_would_all_go_on_have_no_trial(starts: int) -> None:
    one, other = small(trial_epochs=2, n_init=starts).fit(X), small(n_init=starts).fit(X)
    assert same_weights(one, other)
    assert one.history_ == other.history_


def test_a_trial_may_be_an_integer_of_numpy(tmp_path: Path) -> None:
    given = {"n_init": 3, "schedule": "cosine"}
    plain = small(**given, trial_epochs=2, max_epochs=5).fit(X)
    numpy = small(**given, trial_epochs=np.int64(2), max_epochs=np.int64(5), checkpoint=tmp_path).fit(X)
    assert same_weights(plain, numpy)
    epochs = small(max_epochs="auto", n_init=3, trial_epochs=np.int64(600)).fit(X).n_iter_
    assert epochs == 601


@every_way
def test_a_callback_ends_all_rounds(options: dict[str, Any], tmp_path: Path) -> None:
    given = {"n_init": 3, "trial_epochs": 3, "max_epochs": 9, "batch_size": 25, **options}
    seen: list[int] = []

    def callback(epoch: Any) -> bool:
        seen.append(epoch.number)
        return bool(epoch.number == 2)

    ended = small(**given, callbacks=[callback], checkpoint=tmp_path).fit(X)
    # Starts that are trained one by one all have their turn.
    assert seen == [1, 2] * (3 if options.get("norm") else 1)
    assert ended.n_iter_ == 2


@every_way
@pytest.mark.parametrize("epoch", [2, 3])
def test_ctrl_c_in_a_later_round_keeps_the_earlier_one(options: dict[str, Any], epoch: int) -> None:
    """Also in the first epoch of that round."""
    given = {"n_init": 3, "batch_size": 25, "n_clusters": 5, **options}

    trial = small(**given, max_epochs=2).fit(X)
    before = RowBatches.groups
    # Three steps an epoch; of starts one by one, each has its own.
    steps, last = [0], (6 * (3 if options.get("norm") else 1)) + 2 + 3 * (epoch - 2)

    def groups(self: Any, *arguments: Any) -> Any:
        for batch, count in before(self, *arguments):
            earlier, steps[0] = steps[0], steps[0] + count
            if earlier < last <= steps[0]:
                raise KeyboardInterrupt
            yield batch, count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowBatches, "groups", groups)
        stopped = small(**given, trial_epochs=2, max_epochs=7, callbacks=[Interruptible()]).fit(X)
    assert stopped.n_iter_ == epoch
    if epoch == 2:
        assert same_weights(stopped, trial)
        assert stopped.history_ == trial.history_
        assert stopped.objective_ == trial.objective_


@every_way
def test_a_stop_in_a_later_round_keeps_the_earlier_one(options: dict[str, Any], tmp_path: Path) -> None:
    given = {"n_init": 3, "batch_size": 25, "n_clusters": 5, **options}
    trial = small(**given, max_epochs=2).fit(X)
    checkpoints = Checkpoints(tmp_path / "stopped", every="1 step")
    given |= {"trial_epochs": 2, "max_epochs": 5}

    turns, asked = 3 if options.get("norm") else 1, [0]

    def count(epoch: Any) -> None:
        asked[0] += epoch.number == 2
        checkpoints.stop_requested = asked[0] == turns

    stopped = small(**given, callbacks=[count], checkpoint=checkpoints).fit(X)
    assert checkpoints.stopped
    assert same_weights(stopped, trial)
    assert stopped.history_ == trial.history_
    assert checkpoints.epochs_done() == 2
    went_on = small(**given, checkpoint=tmp_path / "stopped").fit(X)
    assert same_weights(went_on, small(**given).fit(X))


@every_way
def test_a_later_round_that_explodes_leaves_the_earlier_one(options: dict[str, Any], tmp_path: Path) -> None:
    given = {"n_init": 3, "batch_size": 25, "n_clusters": 5, **options}
    trial = small(**given, max_epochs=2).fit(X)
    before = TrainingState.end_epoch

    def end_epoch(self: TrainingState) -> bool:
        if self.before:
            self.metrics._values = [value * torch.nan for value in self.metrics._values]
        return before(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingState, "end_epoch", end_epoch)
        with pytest.warns(NumericalWarning, match="last good weights"):
            fitted = small(**given, trial_epochs=2, max_epochs=7, checkpoint=tmp_path).fit(X)
        assert same_weights(fitted, trial)
        assert fitted.history_ == trial.history_
        assert fitted.diverged_
        with pytest.warns(NumericalWarning):
            again = small(**given, trial_epochs=2, max_epochs=7, checkpoint=tmp_path).fit(X)
    assert same_weights(again, trial)


def test_starts_that_are_not_finite_do_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    planned = restarts._plan_models

    def plan(modules: Any, *arguments: Any) -> Any:
        seen.append(len(modules))
        if len(seen) == 1:
            for module in modules[1:]:
                nn.init.constant_(next(module.parameters()), torch.nan)
        return planned(modules, *arguments)

    monkeypatch.setattr(restarts, "_plan_models", plan)
    assert small(n_init=4, trial_epochs=2, max_epochs=5).fit(X).n_iter_ == 5
    assert seen == [4, 1]


@every_way
def test_epochs_of_later_rounds_are_counted_on(options: dict[str, Any], tmp_path: Path) -> None:
    given = {"n_init": 3, "batch_size": 25, **options}
    small(**given, trial_epochs=2, max_epochs=5, checkpoint=tmp_path).fit(X)
    assert Checkpoints(tmp_path).epochs_done() == 5
    with pytest.raises(InputError, match=r"(had 5 epochs already, more than 4|cannot be prolonged)"):
        small(**given, trial_epochs=2, max_epochs=4, checkpoint=tmp_path).fit(X)


def test_a_trial_that_is_a_share_of_all_epochs_is_not_prolonged_unless_it_is_named(tmp_path: Path) -> None:
    given = {"n_init": 3, "checkpoint": tmp_path}
    small(**given, trial_epochs=0.25, max_epochs=8).fit(X)
    with pytest.raises(InputError, match=r"trial_epochs was 2 and is 3.*trial_epochs=2"):
        small(**given, trial_epochs=0.25, max_epochs=12).fit(X)
    longer = small(**given, trial_epochs=2, max_epochs=12).fit(X)
    assert same_weights(longer, small(n_init=3, trial_epochs=2, max_epochs=12).fit(X))


def test_epochs_that_are_left_to_us_are_some_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "_AUTO_STEPS", 100)
    monkeypatch.setattr(restarts, "_AUTO_EPOCHS", 4)
    options = {"max_epochs": "auto", "batch_size": 15}
    assert small(**options).fit(X).n_iter_ == 100 / 5
    assert small(max_epochs="auto", batch_size=2).fit(X).n_iter_ == 4
    # A trial leaves epochs for the best.
    assert small(**options, n_init=2, trial_epochs=22).fit(X).n_iter_ == 23
