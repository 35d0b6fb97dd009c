"""How often other trainings agree, for rows of the fit and new ones."""

import json
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pollux
import pollux.clustering as clustering_module
from blobs import blobs
from commands import good
from pollux import GeminiClustering
from pollux.errors import InputError
from pollux.inspection.confidence import Confidence, align_labels, find_temperature

LINEAR = {"model": "linear", "objective": "mmd_ova", "n_init": 1, "init": "kmeans", "max_epochs": 2, "random_state": 0}


def test_labels_are_aligned_whatever_their_numbers() -> None:
    labels = np.repeat([0, 1, 2], [5, 4, 3])
    np.testing.assert_array_equal(align_labels(labels, np.array([2, 0, 1])[labels], 3), labels)
    # Of two that hold a cluster together, one is it.
    halves = np.repeat([0, 1, 2, 2], [3, 2, 4, 3])
    assert (align_labels(labels, halves, 3) == labels).sum() == 7


def test_a_function_of_the_margin_is_learned_for_each_cluster() -> None:
    random = np.random.default_rng(0)
    margin, labels = random.uniform(0, 50, 2_000), random.integers(0, 2, 2_000)
    log_p = np.stack([np.where(labels == k, 0.0, -margin) for k in (0, 1)], 1)
    truth = np.where(labels == 0, 0.5 + margin / 100, 0.3)
    agreement = random.binomial(10, truth) / 10
    learned = Confidence.learn(log_p, np.stack([agreement, 1 - agreement], 1))
    found = learned.predict(log_p)
    # Of 1,000 shares of ten draws each the knots are means of tens or hundreds.
    assert np.abs(found - truth).mean() < 0.05
    assert (np.diff(found[labels == 0][np.argsort(margin[labels == 0])]) >= 0).all()
    other = learned.predict(log_p, 1 - labels)
    # Of rows of cluster 1 the other trainings give 0 to 0.7, more than to rows of 0 that are near the boundary: it is
    # held to what these have.
    assert np.abs(other[labels == 1] - 0.5).mean() < 0.1
    assert (other <= learned.predict(log_p[:1] * 0, np.zeros(1, dtype=int))[0] + 0.05)[labels == 1].all()


def test_equal_margins_have_one_share_in_any_order() -> None:
    margin, agreement = np.repeat([1.0, 2.0, 1e6], 20), np.tile([0.0, 1.0, 1.0, 0.5], 15)
    log_p = np.stack([np.zeros(60), -margin], 1)
    both = np.stack([agreement, 1 - agreement], 1)
    learned = [Confidence.learn(log_p[order], both[order]) for order in (np.argsort(agreement), np.arange(60))]
    # Sums of twenty shares in another order.
    np.testing.assert_allclose(learned[0].shares, learned[1].shares, atol=100 * np.finfo(float).eps)
    np.testing.assert_allclose(learned[0].predict(log_p), 0.625)


def test_clusters_are_sure_and_noise_is_not() -> None:
    X, _ = blobs()
    sure = GeminiClustering(3, **LINEAR).fit(X).assess(X, n_fits=3)
    assert sure.confidence_.shape == (len(X),)
    assert sure.confidence_.mean() > 0.95
    noise = np.random.default_rng(0).normal(size=(200, 3))
    unsure = GeminiClustering(6, **LINEAR).fit(noise).assess(noise, n_fits=4)
    assert unsure.confidence_.mean() < 0.9
    np.testing.assert_array_equal(unsure.predict_confidence(noise), unsure.confidence_)


def test_samples_that_sizes_move_are_as_sure_as_their_new_cluster() -> None:
    X, classes = blobs()
    X = X[(classes > 0) | (np.arange(len(X)) < 60)]
    clustering = GeminiClustering(3, **LINEAR).fit(X, max_size=0.35).assess(X, n_fits=3)
    moved = clustering.labels_ != clustering.predict(X)
    sure = clustering.predict_confidence(X, clustering.labels_)
    np.testing.assert_array_equal(sure[~moved], clustering.confidence_[~moved])
    assert moved.any()
    assert (sure[moved] < clustering.confidence_[moved]).all()
    for wrong in (clustering.labels_[:-1], clustering.labels_ + 1):
        with pytest.raises(InputError, match="clusters of the"):
            clustering.predict_confidence(X, wrong)


def test_a_temperature_makes_probabilities_as_sure_as_other_trainings(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    plain = GeminiClustering(6, **LINEAR).fit(X).assess(X, n_fits=4)
    before, labels = plain.predict_proba(X), plain.predict(X)
    tempered = plain.assess(X, n_fits=4, temperature=True)
    probabilities = tempered.predict_proba(X)
    np.testing.assert_array_equal(probabilities.argmax(1), labels)
    assert abs(probabilities.max(1).mean() - tempered.confidence_.mean()) < 0.01
    assert abs(before.max(1).mean() - tempered.confidence_.mean()) > 0.05
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    tempered.save(tmp_path / "model.pollux")
    again = pollux.load(tmp_path / "model.pollux")
    np.testing.assert_array_equal(again.predict_proba(X), probabilities)
    np.testing.assert_array_equal(tempered.assess(X, n_fits=2).predict_proba(X), before)


def test_temperatures_of_the_extremes_are_finite() -> None:
    log_p = np.log(np.array([[0.9, 0.1], [0.6, 0.4]]))
    assert find_temperature(log_p, 0.75) == pytest.approx(1)
    assert find_temperature(log_p, 1.0) == pytest.approx(0.01)
    assert find_temperature(log_p, 0.5) == pytest.approx(100)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, Any]]:
    """The spec, the samples and the processes of each fit."""
    found: list[tuple[Any, Any, Any]] = []
    train = clustering_module.train_restarts

    def watch(modules: Any, problem: Any, spec: Any, run: Any, samples: Any) -> Any:
        found.append((spec, samples, run.ranks))
        return train(modules, problem, spec, run, samples)

    monkeypatch.setattr(clustering_module, "train_restarts", watch)
    return found


def test_the_other_fits_are_of_the_same_method(trained: list[tuple[Any, Any, Any]]) -> None:
    vectors = np.repeat(np.eye(2, 64), 30, axis=0) + np.random.default_rng(0).normal(scale=0.02, size=(60, 64))
    frame = pd.DataFrame({"vector": list(vectors.astype(np.float32))})
    clustering = GeminiClustering(2, n_init=1, max_epochs=1, random_state=0).fit(frame)
    assert clustering.recipe_ == "embeddings"
    clustering.assess(frame, n_fits=2)
    methods = {(str(spec.objective), spec.init, str(spec.penalties), str(spec.mlp)) for spec, _, _ in trained}
    assert len(trained) == 3
    assert len(methods) == 1


def test_weights_and_hints_are_those_of_the_other_fits_too(trained: list[tuple[Any, Any, Any]]) -> None:
    X, y = blobs()
    weight, known = np.where(np.arange(len(X)) % 5, 2.0, 0.0), np.where(np.arange(len(X)) % 7, -1, y)
    clustering = GeminiClustering(3, **LINEAR).fit(X, sample_weight=weight, known=known)
    with pytest.raises(InputError, match="was given hints"):
        clustering.assess(X)
    clustering.assess(X, n_fits=2, sample_weight=weight, known=known, must_link=[[0, 1]])
    assert clustering.confidence_.shape == (len(X),)
    for spec, samples, _ in trained[1:]:
        assert len(samples.X) == round(0.8 * (weight > 0).sum())
        assert set(samples.sample_weight.tolist()) == {2.0}
        assert not (samples.selected & (weight == 0)).any()
        assert any("hints" in name for name in spec.penalty_names)


def test_what_cannot_be_assessed_is_refused() -> None:
    X, _ = blobs()
    clustering = GeminiClustering(3, **LINEAR).fit(X)
    for wrong in ({"n_fits": 1}, {"n_fits": 2.5}, {"max_samples": 2}, {"max_samples": "all"}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))} is a whole number from"):
            clustering.assess(X, **wrong)
    with pytest.raises(InputError, match="more samples than clusters"):
        clustering.assess(X[:3])
    with pytest.raises(InputError, match="affinity"):
        GeminiClustering(3, **LINEAR).fit(X, affinity=X @ X.T).assess(X)
    free = GeminiClustering(3, model="free")
    assert not hasattr(free, "assess")
    assert not hasattr(free, "predict_confidence")


def test_it_survives_files_and_pickles(tmp_path: Path) -> None:
    X, _ = blobs()
    clustering = GeminiClustering(3, **LINEAR).fit(X)
    with pytest.raises(ValueError, match="call assess"):
        clustering.predict_confidence(X)
    expected = clustering.assess(X, n_fits=2).predict_confidence(X + 0.5)
    clustering.save(tmp_path / "model")
    for again in (pollux.load(tmp_path / "model"), pickle.loads(pickle.dumps(clustering))):
        np.testing.assert_array_equal(again.predict_confidence(X + 0.5), expected)
    assert not hasattr(clustering.fit(X), "confidence_"), "of an earlier fit"


def test_a_damaged_confidence_is_refused() -> None:
    whole = Confidence.learn(np.log([[0.9, 0.1], [0.2, 0.8]]), np.ones((2, 2)))
    whole.check(2)
    with pytest.raises(ValueError, match="other clusters"):
        whole.check(3)
    with pytest.raises(ValueError, match="not between 0 and 1"):
        Confidence(whole.margins, whole.shares + 1).check(2)
    with pytest.raises(ValueError, match="fall"):
        Confidence(-whole.margins.cumsum(1) - whole.margins, -whole.shares.cumsum(1)).check(2)


def test_the_command_line_shows_it(tmp_path: Path) -> None:
    data = tmp_path / "noise.csv"
    np.savetxt(data, np.random.default_rng(0).normal(size=(120, 3)), delimiter=",", header="a,b,c", comments="")
    options = ("--clusters", 5, "--model", "linear", "--epochs", 2, "--restarts", 1, "--assess")
    good("fit", data, *options, "--out", tmp_path / "run")
    found = pollux.load(tmp_path / "run").predict_confidence(pd.read_csv(data))
    shown = json.loads((tmp_path / "run" / "summary.json").read_text())["clusters"]
    written = pd.read_csv(tmp_path / "run" / "clusters.csv")["confidence"]
    np.testing.assert_allclose(written, found, atol=1e-4)
    good("predict", tmp_path / "run", data, "--out", tmp_path / "new.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "new.csv")["confidence"], found, atol=1e-4)
    means = sum(each["rows"] * each["confidence"] for each in shown) / 120
    assert means == pytest.approx(found.mean())


def test_a_training_is_written_where_assessing_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "noise.csv"
    np.savetxt(data, np.random.default_rng(0).normal(size=(60, 2)), delimiter=",", header="a,b", comments="")

    def stop(*given: Any, **options: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("Ctrl-C was swallowed")

    monkeypatch.setattr(GeminiClustering, "assess", stop)
    options = ("--clusters", 2, "--model", "linear", "--epochs", 2, "--restarts", 1, "--assess")
    good("fit", data, *options, "--out", tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert any("--assess was left out" in note for note in summary["notes"])
    assert not summary["interrupted"]
    assert "confidence" not in pd.read_csv(tmp_path / "run" / "clusters.csv")
