"""``model="kernel"``: kernel logistic regression on landmarks, as every other model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_circles
from sklearn.metrics import adjusted_rand_score

import pollux
from pollux import GeminiClustering, KernelModel
from pollux.errors import InputError
from pollux.geometry import resolve
from pollux.io import onnx as export
from pollux.spec import Spec

X = np.random.default_rng(0).normal(size=(90, 3))


def kernel(**parameters: object) -> GeminiClustering:
    return GeminiClustering(
        2, model=KernelModel(20), objective="mi", max_epochs=3, n_init=2, random_state=0
    ).set_params(**parameters)


def test_it_draws_boundaries_that_no_line_is() -> None:
    rings, y = make_circles(200, noise=0.05, factor=0.3, random_state=0)
    by_graph = kernel(objective="mmd_ova", geometry="graph", max_epochs=100, learning_rate=0.05)
    assert adjusted_rand_score(y, by_graph.set_params(model="kernel").fit(rings).labels_) > 0.9
    assert adjusted_rand_score(y, by_graph.set_params(model="linear").fit(rings).labels_) < 0.5


def test_it_is_a_group_as_a_perceptron_is() -> None:
    named = kernel(model="kernel")
    own = clone(named).set_params(model=KernelModel())
    np.testing.assert_array_equal(own.fit(X).predict_proba(X), named.fit(X).predict_proba(X))
    assert named.get_params()["model__landmarks"] == 100
    prints = [Spec.of(clone(own).set_params(model__gamma=gamma)).fingerprint() for gamma in (0.1, 0.2)]
    assert prints[0] != prints[1]


@pytest.mark.parametrize("chosen", ["rbf", "cosine", resolve("polynomial", degree=2)], ids=["rbf", "cosine", "own"])
def test_files_hold_it(chosen: object, tmp_path: Path) -> None:
    clustering = kernel(model__kernel=chosen).fit(X)
    clustering.save(tmp_path / "model")
    loaded = pollux.load(tmp_path / "model")
    assert loaded.get_params()["model__landmarks"] == 20
    np.testing.assert_array_equal(loaded.predict_proba(X), clustering.predict_proba(X))
    export.to_onnx(clustering, tmp_path / "model.onnx")


def test_what_no_file_holds_is_said(tmp_path: Path) -> None:
    clustering = kernel(model__kernel=lambda x, y: x @ y.mT).fit(X)
    clustering.save(tmp_path / "model")
    with pytest.raises(InputError, match="does not hold the kernel"):
        pollux.load(tmp_path / "model")
    loaded = pollux.load(tmp_path / "model", model=clustering.model)
    np.testing.assert_array_equal(loaded.predict_proba(X), clustering.predict_proba(X))
    with pytest.raises(InputError, match="laplacian"):
        export.to_onnx(kernel(model__kernel="laplacian").fit(X), tmp_path / "model.onnx")


def test_samples_are_streamed_images_flattened_and_parts_learned_from(tmp_path: Path) -> None:
    np.save(tmp_path / "samples.npy", X)
    assert kernel().fit(tmp_path / "samples.npy").predict(X).shape == (90,)
    images = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert kernel().fit(images).predict(images).shape == (30,)
    # Fewer samples than landmarks.
    assert kernel().partial_fit(X[:10]).partial_fit(X[10:]).predict(X).shape == (90,)
