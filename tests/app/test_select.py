"""``pollux select``: from a file to a folder with the answer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blobs import blobs
from data_files import pollux, tree


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, classes = blobs()
    path = tmp_path_factory.mktemp("data") / "points.csv"
    pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "kind": np.array(["a", "b", "c"])[classes]}).to_csv(path, index=False)
    return path


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer epochs than by default, which three blobs do not need."""
    monkeypatch.setattr("pollux.selection.search._EPOCHS", 5)


COMPARING = ("--from", 3, "--to", 3, "--subsamples", 3)


@pytest.mark.usefixtures("few_epochs")
def test_the_command_writes_a_folder_and_tells_what_comes_next(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = pollux("select", file, "--label", "kind", *COMPARING)
    assert answer.code == 0, answer.err
    assert "90 rows, 2 features: x, y" in answer.out
    assert "ARI" in answer.out
    assert f"next: pollux fit {file} --label kind --n-clusters 3" in answer.out
    names = {"selection.json", "selection.csv", "selection.md", "selection.png"}
    assert set(tree(tmp_path / "selections" / "points")) == names
    content = json.loads((tmp_path / "selections" / "points" / "selection.json").read_text())
    assert content["n_clusters"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", 5, "--to", 3], "--from"),
        (["--from", 1], "at least 2"),
        (["--subsamples", 2], "--subsamples"),
        (["--jobs", 0], "--jobs"),
        (["--to", 80], "too few for 80"),
        (["--columns", "z"], "'z'"),
        (["--seed", -1], "seed"),
        (["--out", "."], "not empty"),
    ],
)
def test_the_command_refuses_bad_input_and_writes_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    answer = pollux("select", file, *options)
    assert answer.code == 2
    assert message in answer.err
    assert tree(tmp_path) == {"mine.txt": b"mine"}


def test_a_command_that_is_stopped_leaves_nothing(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pollux.selection.search._fit", stop)
    answer = pollux("select", file)
    assert answer.code == 130
    assert "nothing was written" in answer.err
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("few_epochs")
def test_rows_that_are_streamed_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = blobs(200)
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", X)
    (tmp_path / "selections" / "points").mkdir(parents=True)
    monkeypatch.setattr("pollux.selection.search.MOST_ROWS", 90)
    answer = pollux("select", "points.npy", "--stream", "yes", "--json", *COMPARING)
    assert answer.code == 0, answer.err
    content = json.loads(answer.out)
    assert (content["n_clusters"], content["rows"], content["rows_used"]) == (3, 200, 90)
    assert content["folder"] == str(Path("selections") / "points-2")
    assert content["next_command"] == "pollux fit points.npy --n-clusters 3 --stream yes"
    assert content["candidates"][0]["adjusted_rand_index"] is None


@pytest.mark.usefixtures("few_epochs")
def test_the_preset_of_images_comes_next_for_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = blobs(90)
    monkeypatch.chdir(tmp_path)
    np.save("images.npy", np.tile(X[:, None, :, None], (1, 1, 1, 2)))
    answer = pollux("select", "images.npy", *COMPARING)
    assert answer.code == 0, answer.err
    assert "next: pollux fit images.npy --n-clusters 3" in answer.out
