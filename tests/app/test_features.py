"""``pollux features``: from a file to the columns that its clusters need."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from data_files import pollux, tree


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, classes = np.random.default_rng(0), np.arange(90) % 3
    centres = np.array([[0, 0], [8, 0], [0, 8]])[classes]
    frame = pd.DataFrame(random.normal(size=(90, 2)) + centres, columns=["width", "height"])
    frame["noise"] = random.normal(size=90)
    frame["colour"] = np.array(["red", "green", "blue"])[random.integers(3, size=90)]
    frame["kind"] = np.array(["a", "b", "c"])[classes]
    path = tmp_path_factory.mktemp("data") / "things.csv"
    frame.to_csv(path, index=False)
    return path


def test_the_command_writes_a_folder_and_tells_what_comes_next(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = pollux("features", file, "--label", "kind", "--clusters", 3)
    assert answer.code == 0, answer.err
    assert "% of the objective: width, height." in answer.out
    assert "--columns width --columns height" in answer.out
    assert "ARI" in answer.out
    folder = tmp_path / "features" / "things"
    assert set(tree(folder)) == {"features.json", "features.csv", "features.png"}
    content = json.loads((folder / "features.json").read_text())
    assert content["selected"] == ["width", "height"]
    assert (folder / "features.csv").read_text().startswith("penalty,objective,columns,n_clusters,adjusted_rand_index")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-features", 0], "--min-features"),
        (["--min-features", 9], "--min-features 9"),
        (["--keep", 2], "--keep"),
        (["--columns", "z"], "'z'"),
    ],
)
def test_what_cannot_be_selected_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str | int], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = pollux("features", file, "--label", "kind", "--clusters", 3, *options)
    assert answer.code == 2
    assert message in answer.err
    assert not (tmp_path / "features").exists()
