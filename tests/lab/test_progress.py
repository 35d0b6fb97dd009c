"""The progress of a grid on a terminal and elsewhere."""

from __future__ import annotations

import math
import re
import sys

import pytest

from pollux.lab import progress
from pollux.lab.grid import Failure
from pollux.lab.paper.reproduction import ExperimentTask
from pollux.lab.records import Record, Run
from pollux.training import Epoch


class Terminal:
    """Standard error as it is on a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def watch(watcher: progress.Bars | progress.Lines) -> None:
    """Runs that end well, one that is given up, and one that fails; one is under way at the end."""
    settings = {"objective": "kl_ova", "ε": 1e-06, "on": True, "epochs": 5}
    one, other = (ExperimentTask(Run("toy", settings, seed)) for seed in (0, 1))
    odd = ExperimentTask(Run("[/odd] [name]", {"method": "[red]a"}, 0))
    with watcher:
        for task in (one, odd):
            watcher.began(task)
            watcher.epoch(task, Epoch(5, 5, {"objective": math.nan, "clusters": 3}))
        metrics = {"adjusted_rand_index": math.nan, "clusters": 1}
        watcher.done(one, Record(one.run, metrics, 1.5, warnings=["CollapseWarning: ℓ2 “fewer”"]))
        watcher.done(odd, Record(odd.run, {"timeout": 60.0}, 60.0))
        watcher.began(other)
        watcher.failed(Failure(other, "ValueError: [/range]\n  [Errno 2] [red]"))
        watcher.began(other)
        metrics = {"adjusted_rand_index": -0.25, "clusters": 2}
        watcher.done(other, Record(other.run, metrics, 1.5))
        watcher.began(one)


def test_on_a_terminal_there_are_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    bars = progress.progress_display("toy", 4)
    assert isinstance(bars, progress.Bars)
    watch(bars)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.text)
    assert "FAILED, ValueError: [/range] [Errno 2] [red]" in plain
    assert "ARI nan, 1 cluster, 1.5 s, CollapseWarning" in plain
    assert "ARI −0.250, 2 clusters, 1.5 s" in plain
    assert "no answer within 60 s" in plain
    assert "toy, all runs" in plain
    assert "4/4" in plain
    assert "mean ARI: kl_ova nan" in plain


def test_elsewhere_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    watch(progress.progress_display("toy", 4))
    first, done, given_up, failed, _ = capsys.readouterr().err.splitlines()
    assert first == "toy: 4 runs to do"
    assert re.match(r"\[1/4, \d+ s\] toy objective=kl_ova ε=1e-06 on=True epochs=5 seed=0: ARI nan, 1 cluster", done)
    assert given_up.endswith("no answer within 60 s")
    assert re.match(r"\[3/4, \d+ s\] toy .* FAILED, ValueError: \[/range\] \[Errno 2\] \[red\]$", failed)
