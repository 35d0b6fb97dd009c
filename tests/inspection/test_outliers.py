"""Scores of samples: how well they fit in with those of the training."""

import pickle
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import pollux
from blobs import blobs
from commands import good, refused
from pollux import GeminiClustering, Scaling
from pollux.clustering import CollapseWarning
from pollux.data.rows import Rows
from pollux.inspection.outliers import Prototypes

LINEAR = {"model": "linear", "objective": "mmd_ova", "n_init": 1, "init": "kmeans", "max_epochs": 2, "random_state": 0}


@pytest.fixture(scope="module")
def clustering() -> GeminiClustering:
    return GeminiClustering(3, **LINEAR).fit(blobs()[0])


def test_far_samples_score_lower(clustering: GeminiClustering) -> None:
    X, _ = blobs()
    scores = clustering.score_samples(np.concatenate([X, [[50.0, 50.0], [500.0, 500.0]]]))
    assert scores[-1] < scores[-2] < scores[:-2].min()
    assert np.median(scores[:-2]) == pytest.approx(-1, abs=0.05)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_the_share_that_is_asked_for_is_flagged(clustering: GeminiClustering, share: float) -> None:
    X, _ = blobs()
    # The quantile lies between two of the scores.
    assert abs(clustering.find_outliers(X, share).sum() - share * len(X)) <= 1


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_lies_between_0_and_1(clustering: GeminiClustering, share: float) -> None:
    with pytest.raises(ValueError, match=r"such as 0\.02"):
        clustering.find_outliers(blobs()[0], share)


def test_scores_do_not_depend_on_the_unit() -> None:
    X, _ = blobs()
    plain, huge = (Prototypes.learn(Rows(X * unit)).score(torch.from_numpy(X * unit)) for unit in (1.0, 2.0**600))
    # A power of two changes no digit but those of the mean.
    assert torch.allclose(plain, huge, rtol=1e-9)


def test_equal_samples_are_alike_and_few_samples_suffice() -> None:
    assert Prototypes.learn(Rows(np.ones((30, 2)))).score(torch.ones(1, 2)).item() == 0
    few = Prototypes.learn(Rows(np.array([[0.0], [1.0]])))
    assert len(few.means) == 1
    assert few.score(torch.tensor([[1e300]])).item() < -1e200


def test_no_prototype_is_a_row() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(200, 3)), [[100.0, 0, 0], [100.1, 0, 0]]])
    found = Prototypes.learn(Rows(X))
    points = (torch.from_numpy(X) - found.centre) / found.unit
    assert float(torch.cdist(points[-2:], found.means).min()) > 1


def test_scores_survive_files_and_pickle(clustering: GeminiClustering, tmp_path: Path) -> None:
    X, _ = blobs()
    clustering.save(tmp_path / "model")
    for other in (pollux.load(tmp_path / "model"), pickle.loads(pickle.dumps(clustering))):
        assert isinstance(other, GeminiClustering)
        assert (other.score_samples(X) == clustering.score_samples(X)).all()


def test_a_file_of_an_old_version_says_what_to_do() -> None:
    old = pollux.load(Path(__file__).parents[1] / "io" / "golden" / "4" / "linear.pollux")
    assert isinstance(old, GeminiClustering)
    with pytest.raises(ValueError, match="Fit it anew"):
        old.score_samples(np.zeros((1, old.n_features_in_)))


def test_gaps_frames_streams_free_tables_and_further_epochs_are_scored(tmp_path: Path) -> None:
    X, _ = blobs()
    expected = GeminiClustering(3, **LINEAR).fit(X).score_samples(X)
    frame = pd.DataFrame(X, columns=["a", "b"])
    assert GeminiClustering(3, **LINEAR).fit(frame).score_samples(frame) == pytest.approx(expected)
    free = GeminiClustering(3, **(LINEAR | {"model": "free"})).fit(X)
    assert free.score_samples(X) == pytest.approx(expected)
    X[3, 0] = np.nan
    gaps = GeminiClustering(3, **LINEAR, preprocessing=Scaling("standard", missing="mean")).fit(X)
    assert np.isfinite(gaps.score_samples(X)).all()
    frame.to_parquet(tmp_path / "rows.parquet")
    streamed = GeminiClustering(3, **(LINEAR | {"init": "random"}), batch_size=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        streamed.fit(str(tmp_path / "rows.parquet"))
    # They are not scaled, and what is drawn of them is drawn otherwise.
    assert np.median(streamed.score_samples(frame)) == pytest.approx(-1, abs=0.05)
    further = GeminiClustering(3, **LINEAR).fit(frame)
    before = further.score_samples(frame)
    assert (further.partial_fit(frame).score_samples(frame) == before).all()


def test_the_command_line_flags_outliers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    X, _ = blobs()
    frame = pd.DataFrame(np.concatenate([X, [[60.0, 60.0]]]), columns=["a", "b"])
    frame.to_csv("rows.csv", index=False)
    fit = ("fit", "rows.csv", "--clusters", 3, "--model", "linear", "--init", "kmeans", "--epochs", 2, "--restarts", 1)
    answer = good(*fit, "--out", "run", "--outliers", 0.02)
    assert "rows that fit in nowhere: 2" in answer.out
    flagged = pd.read_csv("run/clusters.csv")["outlier"]
    assert flagged.sum() == 2
    assert flagged.iloc[-1]
    # Without the option it is that of the run.
    good("predict", "run", "rows.csv", "--out", "new.csv")
    assert (pd.read_csv("new.csv")["outlier"] == flagged).all()
    good("predict", "run", "rows.csv", "--out", "new.csv", "--outliers", 0)
    assert "outlier" not in pd.read_csv("new.csv")
    refused("predict", "run", "rows.csv", "--outliers", 2, says="--outliers is a share of the rows")


def test_a_first_epoch_of_few_samples_does_not_decide_for_ever() -> None:
    rows = blobs()[0]
    growing = GeminiClustering(3, model="linear", objective="mmd_ova", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        for part in (rows[:1], rows, rows):
            growing.partial_fit(part)
    assert growing.find_outliers(rows, 0.05).mean() == pytest.approx(0.05, abs=1 / len(rows))
