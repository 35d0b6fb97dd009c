"""``pollux pretrain``: what it prints, writes and refuses, and that it stops and goes on."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pollux.app.cli import Parser
from pollux.app.console import GOOD, STOPPED
from pollux.errors import InputError
from pollux.lab import pretrain_command as pretrain
from pollux.lab.datasets import IMAGES
from pollux.lab.pretrain_command import EpochLines
from pollux.lab.pretraining import load_encoder, pretrain_simclr
from pollux.threads import at_most
from pretraining_images import noise, same_weights


def command(*words: object) -> int:
    parser = Parser()
    pretrain.add(parser.add_subparsers(dest="command"))
    options = parser.parse_args(["pretrain", "simclr", *map(str, words)])
    return int(options.run(options))


FAST = ("--epochs", 2, "--batch-size", 16, "--widths", "8,16", "--blocks", "1,1", "--threads", 1)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("images.npy", noise())
    return tmp_path


def test_the_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("images.npy", *FAST) == GOOD
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert lines[0] == "40 images of 3×12×12"
    assert lines[1].startswith("epoch 1/2  loss ")
    assert "images/s" in lines[1]
    assert lines[-5:-3] == ["saved in images-simclr.safetensors", "next, in Python:"]
    # Bits are those of a number of threads, which the command was told.
    with at_most(1):
        expected = pretrain_simclr(noise(), epochs=2, batch_size=16, widths=(8, 16), blocks=(1, 1)).encoder
    assert same_weights(load_encoder("images-simclr.safetensors"), expected)


def test_the_command_makes_the_folder_and_says_what_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A path that no quotes of ours would survive.
    out = here / "new" / 'it\'s "mine" \\n' / "x.safetensors"
    assert command("images.npy", *FAST, "--out", out) == GOOD
    _, _, lines = capsys.readouterr().out.partition("next, in Python:\n")
    namespace: dict[str, Any] = {}
    exec(lines, namespace)
    unit = torch.from_numpy(noise() / 255).float().permute(0, 3, 1, 2)
    assert len(namespace["geometry"].bind(unit)(torch.arange(5)).values) == 5


def test_the_command_makes_no_folder_for_bad_input(here: Path) -> None:
    np.save("rows.npy", np.zeros((5, 4)))
    for words in (("rows.npy", *FAST), ("images.npy", *FAST, "--epochs", 0), ("none.npy", *FAST)):
        with pytest.raises(InputError):
            command(*words, "--out", "new/x.safetensors")
    assert not Path("new").exists()


def test_the_command_spares_what_is_there(here: Path) -> None:
    (here / "images-simclr.safetensors").write_text("old")
    with pytest.raises(InputError, match="exists"):
        command("images.npy", *FAST)
    with pytest.raises(InputError, match="give one of them"):
        command("images.npy", *FAST, "--resume", "--overwrite")
    assert (here / "images-simclr.safetensors").read_text() == "old"
    assert command("images.npy", *FAST, "--overwrite", "--quiet") == GOOD
    load_encoder("images-simclr.safetensors")


def interrupt(monkeypatch: pytest.MonkeyPatch, epochs: float) -> None:
    """Ctrl-C is pressed after a step; epochs have three."""

    def strike(self: EpochLines, done: float, max_epochs: int) -> None:
        if abs(done - epochs) < 1e-9:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(EpochLines, "after_step", strike, raising=False)


def test_the_command_stops_and_goes_on(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("images.npy", *FAST, "--view-size", 9, "--no-flip", "--seed", 4)
    assert command(*words, "--out", "whole") == GOOD
    capsys.readouterr()
    again = "To go on: pollux pretrain simclr images.npy --out 'in parts' --resume"
    with monkeypatch.context() as patch:
        Path("in parts").write_text("old")
        interrupt(patch, 1 / 3)
        assert command(*words, "--out", "in parts", "--overwrite") == STOPPED
        # An older encoder is not said to be of this training, and is there until the first epoch has ended.
        assert capsys.readouterr().err == f"Stopped. {again}\n"
        assert Path("in parts").read_text() == "old"
        Path("in parts").unlink()
        with pytest.raises(InputError, match="There are checkpoints of in parts: go on"):
            command(*words, "--out", "in parts")
        # What was given before need not be said again, but for the threads, which are none of the settings.
        interrupt(patch, 4 / 3)
        assert command("images.npy", "--out", "in parts", "--resume", "--threads", 1) == STOPPED
        assert capsys.readouterr().err == (
            f"Stopped. in parts holds the encoder of the last whole epoch, and can be used as it is. {again}\n"
        )
        load_encoder("in parts")
        np.savez("several.npz", images=noise(), others=noise(5))
        assert command("several.npz", *FAST, "--array", "images") == STOPPED
        error = capsys.readouterr().err
        assert "several.npz --array=images --out several-simclr.safetensors --resume" in error
    assert command("images.npy", "--out", "in parts", "--resume", "--threads", 1) == GOOD
    assert same_weights(load_encoder("in parts"), load_encoder("whole"))
    assert command("images.npy", "--out", "in parts", "--resume") == GOOD


def test_an_interrupt_at_once_leaves_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def strike(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pollux.lab.pretraining.simclr.Images", strike)
    assert command("images.npy", *FAST) == STOPPED
    assert "nothing was written" in capsys.readouterr().err
    assert list(here.iterdir()) == [here / "images.npy"]


def test_digits_are_not_mirrored(here: Path) -> None:
    def flips(*words: str) -> bool:
        parser = Parser()
        pretrain.add(parser.add_subparsers(dest="command"))
        options = parser.parse_args(["pretrain", "simclr", *words])
        return bool(pretrain._settings(options, Path("none"), False)["augmentation"].flip)

    assert [flips("mnist"), flips("cifar10"), flips("mnist", "--flip"), flips("cifar10", "--no-flip")] == [
        *(False, True, True, False)
    ]


def test_help_names_the_data_sets_there_are() -> None:
    assert set(pretrain.DATA_SETS.split(", ")) == set(IMAGES)


def test_words_that_cannot_be(here: Path) -> None:
    with pytest.raises(SystemExit):
        command("images.npy", "--widths", "8,x")
    with pytest.raises(InputError, match="--threads"):
        command("images.npy", "--threads", 0)
    with pytest.raises(SystemExit):
        command("images.npy", "--epoch", 3)


def test_the_live_line(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert command("images.npy", *FAST) == GOOD
    shown = capsys.readouterr()
    assert "epoch 1/2" not in shown.out
    assert "2/2" in shown.err
    assert "loss" in shown.err
    assert "matched" in shown.err
