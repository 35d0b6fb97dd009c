"""How often other trainings agree, for rows of the fit and new ones."""

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pollux
from blobs import blobs
from commands import good
from pollux import GeminiClustering
from pollux.inspection.confidence import Confidence, align_labels

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
    found = Confidence.learn(log_p, agreement).predict(log_p)
    # Of 1,000 shares of ten draws each the knots are means of tens or hundreds.
    assert np.abs(found - truth).mean() < 0.05
    assert (np.diff(found[labels == 0][np.argsort(margin[labels == 0])]) >= 0).all()


def test_equal_margins_have_one_share_in_any_order() -> None:
    margin, agreement = np.repeat([1.0, 2.0, 1e6], 20), np.tile([0.0, 1.0, 1.0, 0.5], 15)
    log_p = np.stack([np.zeros(60), -margin], 1)
    learned = [Confidence.learn(log_p[order], agreement[order]) for order in (np.argsort(agreement), np.arange(60))]
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
    whole = Confidence.learn(np.log([[0.9, 0.1], [0.2, 0.8]]), np.ones(2))
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
    means = sum(each["rows"] * each["confidence"] for each in shown) / 120
    assert means == pytest.approx(found.mean())
