"""Ctrl-C in training: what was learned in whole epochs is kept, and what was not is as before."""

from __future__ import annotations

import copy
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from data_files import frame, pollux, tree
from data_files import write_table as table_in
from flat_parameters import make_clustering
from pollux import GeminiClustering, load
from pollux.training import Checkpoints, Epoch, Interruptible, ProgressBar

X = np.random.default_rng(0).normal(size=(40, 4))


class CtrlC:
    """Strikes after an epoch, and again at each one after it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self, epoch: Epoch) -> None:
        if epoch.number >= self.epoch:
            raise KeyboardInterrupt


class Strikes(nn.Module):
    """A network of the user's in which Ctrl-C strikes at a step, in the middle of an epoch."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)
        self.left = steps

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        out: torch.Tensor = self.layer(inputs)
        return out


def clustering(epochs: int = 10, *callbacks: Any, **options: Any) -> GeminiClustering:
    defaults = {"random_state": 0, "batch_size": 10}
    return make_clustering(3, max_epochs=epochs, callbacks=list(callbacks), **{**defaults, **options})


def same(a: GeminiClustering, b: GeminiClustering) -> None:
    left, right = a.module_.state_dict(), b.module_.state_dict()
    for name in left | right:
        assert torch.equal(left[name], right[name]), name
    np.testing.assert_array_equal(a.labels_, b.labels_)
    assert a.history_ == b.history_
    assert a.objective_ == b.objective_


WAYS = {
    "in closed form": {},
    "linear": {"model": "linear"},
    "free": {"model": "free"},
    "by autograd": {"penalties": {"entropy": 0.1}},
    "restarts together": {"n_init": 3},
    "restarts together, by autograd": {"n_init": 3, "penalties": {"entropy": 0.1}},
    "another optimiser": {"optimiser": "sgd"},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("epoch", [1, 4])
def test_the_weights_are_those_of_the_last_whole_epoch(way: str, epoch: int) -> None:
    interruptible = Interruptible()
    stopped = clustering(10, interruptible, CtrlC(epoch), **WAYS[way]).fit(X)
    assert interruptible.interrupted
    assert stopped.n_iter_ == epoch
    assert [len(figures) for figures in stopped.history_.values()] == [epoch] * len(stopped.history_)
    same(stopped, clustering(epoch, **WAYS[way]).fit(X))


@pytest.mark.parametrize("way", WAYS)
def test_the_order_of_callbacks_does_not_matter(way: str) -> None:
    stopped = clustering(10, CtrlC(3), Interruptible(), **WAYS[way]).fit(X)
    same(stopped, clustering(3, **WAYS[way]).fit(X))


@pytest.mark.parametrize("steps", [4, 5, 7, 11])
def test_the_steps_of_a_broken_epoch_are_undone(steps: int) -> None:
    """Four batches make an epoch."""
    interruptible = Interruptible()
    stopped = clustering(10, interruptible, model=Strikes(steps)).fit(X)
    assert interruptible.interrupted
    assert stopped.n_iter_ == steps // 4
    whole = clustering(steps // 4, model=Strikes(10**6)).fit(X)
    np.testing.assert_array_equal(stopped.module_.layer.weight.detach(), whole.module_.layer.weight.detach())
    np.testing.assert_array_equal(stopped.labels_, whole.labels_)


def one_by_one(parameters: Any, lr: float) -> torch.optim.Optimizer:
    """Of this optimiser it is not known that models may share it."""
    return torch.optim.Adagrad(parameters, lr=lr)


def test_restarts_one_by_one_end_too() -> None:
    """The next one is not begun; the best of what there is by then is kept."""
    begun, epochs = [], []

    class Counting(Interruptible):
        def __enter__(self) -> Interruptible:
            begun.append(1)
            return super().__enter__()

    def count(epoch: Epoch) -> None:
        epochs.append(epoch.number)
        if len(epochs) == 8:
            raise KeyboardInterrupt

    interruptible = Counting()
    stopped = clustering(5, interruptible, count, n_init=4, optimiser=one_by_one).fit(X)
    assert interruptible.interrupted
    assert epochs == [1, 2, 3, 4, 5, 1, 2, 3]
    assert len(begun) == 2
    assert stopped.n_iter_ in (3, 5)


@pytest.mark.parametrize("way", WAYS)
def test_without_it_ctrl_c_is_let_through_and_nothing_changes(way: str) -> None:
    fitted = clustering(3, **WAYS[way]).fit(X)
    before = copy.deepcopy(fitted.__dict__)
    fitted.callbacks = [CtrlC(2)]
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X + 1)
    same(fitted, clustering(3, **WAYS[way]).fit(X))
    assert fitted.__dict__.keys() == before.keys()
    unfitted = clustering(3, CtrlC(1), **WAYS[way])
    with pytest.raises(KeyboardInterrupt):
        unfitted.fit(X)
    assert not hasattr(unfitted, "labels_")


def test_other_exceptions_are_let_through() -> None:
    def fail(_: Epoch) -> None:
        raise ZeroDivisionError

    interruptible = Interruptible()
    with pytest.raises(ZeroDivisionError):
        clustering(3, interruptible, fail).fit(X)
    assert not interruptible.interrupted


def test_a_second_one_is_let_through() -> None:
    interruptible = Interruptible()
    clustering(5, interruptible, CtrlC(2)).fit(X)
    with pytest.raises(KeyboardInterrupt):
        clustering(5, interruptible, CtrlC(1)).fit(X)


def test_a_stopped_model_is_as_good_as_any(tmp_path: Path) -> None:
    stopped = clustering(10, Interruptible(), CtrlC(3)).fit(X)
    probabilities = stopped.predict_proba(X)
    np.testing.assert_array_equal(probabilities.argmax(1), stopped.labels_)
    stopped.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(X), probabilities)
    stopped.partial_fit(X)
    assert stopped.n_iter_ >= 1


def test_it_goes_with_a_progress_bar(capfd: pytest.CaptureFixture[str]) -> None:
    stopped = clustering(10, Interruptible(), ProgressBar(), CtrlC(3)).fit(X)
    assert stopped.n_iter_ == 3
    copy.deepcopy(stopped.callbacks)


# Within the command line


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return table_in(tmp_path, "plain.csv", frame())


def strike(monkeypatch: pytest.MonkeyPatch, epoch: int, step: int = 0) -> None:
    """Ctrl-C in every training, after this epoch and step."""
    is_due, epochs, steps = Checkpoints.is_due, [], []

    def struck(self: Checkpoints, after_epoch: bool) -> bool:
        (epochs if after_epoch else steps).append(1)
        if after_epoch:
            steps.clear()
        if (len(epochs), len(steps)) == (epoch, step):
            os.kill(os.getpid(), signal.SIGINT)
        return is_due(self, after_epoch)

    monkeypatch.setattr(Checkpoints, "is_due", struck)


@pytest.mark.parametrize("model", ["mlp", "free"])
def test_a_run_that_was_stopped_is_whole(data: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    options = ("--clusters", 3, "--objective", "mmd_ova", "--restarts", 1, "--model", model)
    assert pollux("fit", data, *options, "--epochs", 3, "--out", "short").code == 0
    with monkeypatch.context() as patch:
        strike(patch, 3)
        answer = pollux("fit", data, *options, "--epochs", 50, "--out", "stopped")
    assert answer.code == 130
    assert "Traceback" not in answer.err
    assert "pollux fit --" in answer.err
    assert Path("stopped/clusters.csv").read_bytes() == Path("short/clusters.csv").read_bytes()
    summary = json.loads(Path("stopped/summary.json").read_text())
    assert summary["interrupted"] is True
    assert summary["epochs"] == 3
    load("stopped/model.safetensors")
    assert pollux("report", "stopped").code == 0
    if model != "free":
        assert pollux("predict", "stopped", data, "--out", "new.csv").code == 0
        assert pd.read_csv("new.csv")["cluster"].equals(pd.read_csv("stopped/clusters.csv")["cluster"])


def test_json_tells_of_it_too(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strike(monkeypatch, 2)
    answer = pollux("fit", data, "--clusters", 3, "--objective", "mmd_ova", "--json", "--out", "stopped")
    assert answer.code == 130
    assert json.loads(answer.out)["interrupted"] is True


def test_the_settings_of_a_stopped_run_train_to_the_end(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--clusters", 3, "--objective", "mmd_ova", "--restarts", 1, "--epochs", 6)
    assert pollux("fit", data, *options, "--out", "whole").code == 0
    with monkeypatch.context() as patch:
        strike(patch, 2)
        assert pollux("fit", data, *options, "--out", "stopped").code == 130
    assert pollux("fit", "--config", "stopped/run.toml", "--out", "again").code == 0
    assert Path("again/clusters.csv").read_bytes() == Path("whole/clusters.csv").read_bytes()


def test_before_the_end_of_the_first_epoch_there_is_a_checkpoint(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--clusters", 3, "--objective", "mmd_ova", "--batch-size", 5, "--epochs", 3)
    with monkeypatch.context() as patch:
        strike(patch, 0, 2)
        answer = pollux("fit", data, *options, "--out", "stopped")
    assert answer.code == 130
    assert answer.err.count("\n") == 1
    assert "pollux fit --resume stopped" in answer.err
    assert [path.name for path in Path("stopped").iterdir()] == ["unfinished"]
    for command in ("report", "predict"):
        refused = pollux(command, "stopped", data)
        assert refused.code == 2
        assert "--resume stopped" in refused.err
    refused = pollux("fit", data, *options, "--out", "stopped")
    assert refused.code == 2
    assert "--resume stopped" in refused.err
    assert pollux("fit", "--resume", "stopped").code == 0
    assert pollux("fit", data, *options, "--out", "whole").code == 0
    assert Path("stopped/clusters.csv").read_bytes() == Path("whole/clusters.csv").read_bytes()
    assert not Path("stopped/unfinished").exists()


def test_a_second_ctrl_c_before_anything_is_learned_says_how_to_start_anew(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def struck(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pollux.training.batches.RowBatches.groups", struck)
    answer = pollux("fit", data, "--clusters", 3, "--objective", "mmd_ova", "--out", "stopped")
    assert answer.code == 130
    assert "To start anew: pollux fit --resume stopped --overwrite" in answer.err
    monkeypatch.undo()
    monkeypatch.chdir(data.parent)
    assert pollux("fit", "--resume", "stopped").code == 2
    assert pollux("fit", "--resume", "stopped", "--overwrite").code == 0


# Going on


def test_a_stopped_run_goes_on(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        strike(patch, 2)
        assert (
            pollux(
                "fit", data, "--clusters", 3, "--objective", "mmd_ova", "--restarts", 1, "--epochs", 6, "--out", "run"
            ).code
            == 130
        )
    before = json.loads(Path("run/summary.json").read_text())
    answer = pollux("fit", "--resume", "run")
    assert answer.code == 0, answer
    summary = json.loads(Path("run/summary.json").read_text())
    assert (before["epochs"], summary["epochs"]) == (2, 6)
    assert summary["interrupted"] is False
    assert len(load("run/model.safetensors").history_["objective"]) == 6
    assert pollux("predict", "run", data, "--out", "new.csv").code == 0
    assert pd.read_csv("new.csv")["cluster"].equals(pd.read_csv("run/clusters.csv")["cluster"])
    assert pollux("fit", "--resume", "run", "--epochs", 8, "--json").code == 0
    assert json.loads(Path("run/summary.json").read_text())["epochs"] == 8


def test_what_cannot_go_on_says_so(data: Path) -> None:
    assert (
        pollux(
            "fit", data, "--clusters", 3, "--objective", "mmd_ova", "--restarts", 1, "--epochs", 2, "--out", "run"
        ).code
        == 0
    )
    before = tree(Path())
    for words, says in [
        (["run"], "--epochs"),
        (["run", "--epochs", 4, "--clusters", 2], "clusters"),
        (["run", "--epochs", 4, "--out", "other"], "out"),
        (["nowhere"], "nowhere"),
    ]:
        answer = pollux("fit", "--resume", *words)
        assert answer.code == 2, answer
        assert answer.err.count("\n") == 1
        assert says in answer.err
    assert tree(Path()) == before
    table_in(Path(), "plain.csv", frame(seed=1))
    answer = pollux("fit", "--resume", "run", "--epochs", 4)
    assert answer.code == 2
    assert "data was" in answer.err
    assert not Path("run/unfinished").exists()


def test_a_run_whose_trial_is_a_share_of_its_epochs_has_no_others(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--clusters", 3, "--objective", "mmd_ova", "--epochs", 8, "--trial-epochs", 0.25, "--restarts")
    with monkeypatch.context() as patch:
        strike(patch, 3)
        assert pollux("fit", data, *options, 3, "--out", "run").code == 130
    before = tree(Path())
    answer = pollux("fit", "--resume", "run", "--epochs", 12)
    assert answer.code == 2
    assert "--config run/run.toml --epochs 12 --trial-epochs N" in answer.err
    assert tree(Path()) == before
    answer = pollux("fit", "--resume", "run")
    assert answer.code == 0
    assert "going on after epoch 3 of 8" in answer.out
    assert pollux("fit", data, *options, 2, "--out", "two").code == 0
    assert pollux("fit", "--resume", "two", "--epochs", 12).code == 0


def test_ctrl_c_in_the_first_epoch_of_a_later_round_leaves_a_model(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = (
        "--clusters",
        3,
        "--objective",
        "mmd_ova",
        "--batch-size",
        5,
        "--epochs",
        6,
        "--restarts",
        3,
        "--trial-epochs",
        2,
    )
    with monkeypatch.context() as patch:
        strike(patch, 2, 1)
        answer = pollux("fit", data, *options, "--out", "run")
    assert answer.code == 130
    assert json.loads(Path("run/summary.json").read_text())["epochs"] == 2
    assert pollux("fit", "--resume", "run").code == 0
    assert pollux("fit", data, *options, "--out", "whole").code == 0
    assert Path("run/clusters.csv").read_bytes() == Path("whole/clusters.csv").read_bytes()


def test_ctrl_c_in_the_first_epoch_of_a_later_start_keeps_the_earlier_ones(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)

    def ask(epoch: Epoch) -> None:
        checkpoints.stop_requested = epoch.number == epoch.max_epochs

    options = {"n_init": 3, "optimiser": one_by_one}
    stopped = clustering(4, ask, checkpoint=checkpoints, **options).fit(X)
    assert checkpoints.stopped
    assert stopped.n_iter_ == 4
    same(clustering(4, checkpoint=tmp_path, **options).fit(X), clustering(4, **options).fit(X))
