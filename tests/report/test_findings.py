"""Findings of a clustering that was fitted in Python; what cannot be shown is refused."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import pollux
from flat_parameters import make_clustering
from pollux import Gemini, GeminiClustering
from pollux.clustering import CollapseWarning
from pollux.report import describe, describe_training, render_page
from report_pages import make_findings


def blobs(n: int = 60) -> np.ndarray:
    X = np.random.default_rng(0).normal(size=(n, 3))
    X[::2] += 6
    return X


def fitted(X: Any = None, **parameters: Any) -> GeminiClustering:
    given = {"n_clusters": 2, "model": "linear", "max_epochs": 2, "random_state": 0, **parameters}
    with warnings.catch_warnings():
        # Two epochs may end in one cluster.
        warnings.simplefilter("ignore", CollapseWarning)
        return make_clustering(**given).fit(blobs() if X is None else X)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a", None, "b", float("nan")], ["a", "", "b", ""]),
        ([1.0, np.nan, 2.0, 1.0], ["1", "", "2", "1"]),
        ([1.5, np.nan, 2.0, 1.0], ["1.5", "", "2.0", "1.0"]),
        ([3, 1, 2, 1], ["3", "1", "2", "1"]),
    ],
)
def test_missing_classes_are_described_as_not_known(given: list[Any], expected: list[str]) -> None:
    X = blobs(4)
    findings = describe(fitted(X), X, classes=np.array(given, dtype=object if None in given else None))
    assert findings.classes is not None
    assert findings.classes.tolist() == expected


@pytest.mark.parametrize("batch_size", ["auto", None])
def test_the_batch_size_is_that_of_the_training(batch_size: str | None, tmp_path: Path) -> None:
    clustering = fitted(batch_size=batch_size)
    clustering.save(tmp_path / "model.safetensors")
    for trained in (clustering, pollux.load(tmp_path / "model.safetensors")):
        assert describe(trained, blobs(10)).settings["Batch size"] == "60"


def test_of_streamed_samples_the_batch_size_is_as_much_as_is_known(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", blobs().astype(np.float32))
    clustering = fitted(str(tmp_path / "X.npy"), batch_size=None)
    clustering.save(tmp_path / "model.safetensors")
    loaded = pollux.load(tmp_path / "model.safetensors")
    assert describe_training(loaded)["Batch size"] == "all samples"
    assert describe_training(loaded, 60)["Batch size"] == "60"
    assert describe_training(fitted(batch_size=20))["Batch size"] == "20"


def test_settings_are_those_that_matter_in_words() -> None:
    plain = describe_training(fitted())
    assert plain["Geometry"] == "linear kernel"
    assert plain["Epochs"] == "2 of 2"
    assert "Patience" not in plain
    assert "Penalties" not in plain
    odd = fitted(model=nn.Linear(3, 2), objective=Gemini("kl_ova"), patience=7, norm="batch", penalties={"vat": 0.5})
    described = describe_training(odd)
    assert {
        "Model": "Linear",
        "Objective": "kl_ova",
        "Patience": "7",
        "Penalties": "vat=0.5",
    }.items() <= described.items()
    assert "Geometry" not in described
    assert describe_training(fitted(model="mlp", hidden=(5, 4)))["Model"] == "mlp, 5 + 4 hidden units"


def test_the_map_shows_what_the_model_sees() -> None:
    """Scaled as it was for training, so that columns in other units do not rule it, and with gaps filled."""
    X = blobs() * [1, 1, 1e6]
    X[3, 1] = np.nan
    findings = describe(fitted(X, missing="mean", scaling="standard", max_epochs=40), X)
    assert np.isfinite(findings.points).all()
    assert np.abs(findings.points).max() < 100
    assert np.isnan(np.asarray(findings.features)[3, 1])
    assert "missing in" in render_page(findings)


def test_a_free_table_knows_only_its_own_samples() -> None:
    clustering = fitted(model="free")
    assert describe(clustering, blobs()).probabilities.shape == (60, 2)
    with pytest.raises(ValueError, match="only the samples it was trained on"):
        describe(clustering, blobs(10))


def test_images_are_shown_as_pictures() -> None:
    X = np.random.default_rng(0).normal(size=(20, 1, 6, 5)).astype(np.float32)
    findings = describe(fitted(X), X)
    assert findings.images is not None
    assert (findings.images.shape, findings.images.dtype) == ((20, 6, 5), np.uint8)
    assert findings.features is None


def test_what_differs_from_sample_to_sample_is_not_a_class() -> None:
    make_findings(n=1001, classes=np.array(["", *(str(j) for j in range(1000))]))
    with pytest.raises(ValueError, match=r"1,001 different values for 1,001 samples.*is not a class"):
        make_findings(n=1001, classes=np.array([str(j) for j in range(1001)]))
