"""``pollux datasets``: what it lists, fetches and refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataset_files import cifar_file, datasets_main, digit_files, image_arrays, nothing_left, save_images
from pollux.app.cli import main
from pollux.errors import InputError
from pollux.lab import datasets, datasets_command
from pollux.lab.datasets import image_sets


def test_the_list_names_everything(folder: Path, tabular: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_images(folder / "mnist.npz")
    np.savez(tabular / "mine.npz", X=np.zeros((7, 2)), y=np.zeros(7, int))
    (tabular / "broken.npz").write_text("no archive")
    (folder / "fashion_mnist.npz").write_text("no archive")
    assert datasets_main("list") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line for line in lines}
    assert head.split() == ["NAME", "KIND", "SAMPLES", "SHAPE", "CLASSES", "WHERE"]
    assert rows.keys() == {*datasets.SYNTHETIC, *datasets.IMAGES, *datasets.TABLES, "mine", "broken"}
    assert rows["mnist"].split() == ["mnist", "images", "30", "28", "×", "28", "10", str(folder / "mnist.npz")]
    assert rows["mine"].split() == ["mine", "table", "7", "2", "1", str(tabular / "mine.npz")]
    assert rows["cifar10"].endswith("not here: pollux datasets fetch cifar10")
    assert rows["iris"].endswith("comes with scikit-learn")
    assert rows["moons"].endswith("made by pollux.lab.datasets.moons()")
    for name, path in (("broken", tabular / "broken.npz"), ("fashion_mnist", folder / "fashion_mnist.npz")):
        assert rows[name].endswith(f"cannot be read: {path}")


def test_the_catalogue_is_the_registries() -> None:
    kinds = {entry.name: entry.kind for entry in datasets_command.catalogue()}
    assert {name for name, kind in kinds.items() if kind == "synthetic"} == set(datasets.SYNTHETIC)
    assert {name for name, kind in kinds.items() if kind == "images"} == set(datasets.IMAGES)
    assert {name for name, kind in kinds.items() if kind == "table"} == set(datasets.TABLES)
    assert set(image_sets.SOURCES) == set(datasets.IMAGES)
    assert set(datasets.SYNTHETIC) <= set(datasets.__all__)


def test_fetch_stores_and_then_says_that_it_is_there(
    publish: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish("mnist", digit_files(image_arrays()))
    assert datasets_main("fetch", "mnist") == 0
    assert datasets_main("fetch", "mnist") == 0
    assert datasets_main("fetch", "mnist", "--to", str(tmp_path / "a" / "b")) == 0
    path, other = folder / "mnist.npz", tmp_path / "a" / "b" / "mnist.npz"
    told = [f"mnist written to {path}", f"mnist is already here: {path}", f"mnist written to {other}"]
    output = capsys.readouterr()
    assert output.out.splitlines() == told
    assert output.err == ""
    assert other.read_bytes()


def test_on_a_terminal_fetch_shows_how_far_it_is(
    publish: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish("mnist", digit_files(image_arrays()))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert datasets_main("fetch", "mnist") == 0
    assert "fetching mnist: 0.0 of 0.0 MB" in capsys.readouterr().err


def test_a_stopped_fetch_says_what_was_written(
    publish: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    publish("mnist", digit_files(image_arrays()))
    publish("cifar10", cifar_file(image_arrays((32, 32, 3))))
    monkeypatch.setattr(image_sets, "_cifar_batch", lambda *_: interrupted(_))
    assert main(["datasets", "fetch", "mnist", "cifar10"]) == 130
    assert capsys.readouterr().err == "Stopped; mnist was written, cifar10 was not.\n"
    assert [path.name for path in folder.iterdir()] == ["mnist.npz"]
    # What had been there before was not written now.
    assert main(["datasets", "fetch", "mnist", "cifar10"]) == 130
    assert capsys.readouterr().err == "Stopped; nothing was written.\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [("moons", "made by pollux.lab.datasets.moons"), ("iris", "scikit-learn"), ("mnits", "Did you mean 'mnist'")],
)
def test_fetch_checks_all_names_first(name: str, message: str, publish: Any, folder: Path) -> None:
    publish("mnist", digit_files(image_arrays()))
    with pytest.raises(InputError, match=message):
        datasets_main("fetch", "mnist", name)
    assert nothing_left(folder)


def test_path_prints_the_path_only(folder: Path, tabular: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_images(folder / "mnist.npz")
    np.savez(tabular / "mine.npz", X=np.zeros((7, 2)), y=np.zeros(7, int))
    assert datasets_main("path", "mnist") == 0
    assert datasets_main("path", "mine") == 0
    assert capsys.readouterr().out == f"{folder / 'mnist.npz'}\n{tabular / 'mine.npz'}\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar10", "CIFAR-10 is not on this machine: run `pollux datasets fetch cifar10`"),
        ("moons", "it is made by pollux.lab.datasets.moons"),
        ("iris", "comes with scikit-learn"),
        ("mnits", "There is no data set 'mnits' with a file.* Did you mean 'mnist'"),
    ],
)
def test_path_of_what_has_no_file_says_why(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        datasets_main("path", name)


def test_bad_input_ends_with_two_and_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "path", "mnist"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("pollux datasets: MNIST is not on this machine")
    assert main(["datasets"]) == 2
    assert "usage:" in capsys.readouterr().err


def test_help_needs_nothing_slow() -> None:
    code = (
        "import sys, argparse, pollux.lab.datasets_command as d; d.add(argparse.ArgumentParser().add_subparsers());"
        "assert not {'pooch', 'sklearn.datasets'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
