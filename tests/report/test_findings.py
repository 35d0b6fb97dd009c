"""Findings of a clustering that was fitted in Python; what cannot be shown is refused."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import pollux
from flat_parameters import make_clustering
from pollux import Gemini, GeminiClustering, KernelModel
from pollux.clustering import CollapseWarning
from pollux.geometry import NeighbourGraph, resolve
from pollux.report import describe, describe_training, render_page
from pollux.report.findings import Places
from report_pages import make_findings, parse


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


def test_the_batch_size_is_that_of_streamed_drawn_and_weighted_samples(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", blobs().astype(np.float32))
    clustering = fitted(str(tmp_path / "X.npy"), batch_size=None)
    clustering.save(tmp_path / "model.safetensors")
    loaded = pollux.load(tmp_path / "model.safetensors")
    assert describe_training(loaded)["Batch size"] == "60"
    assert describe_training(fitted(batch_size=20))["Batch size"] == "20"
    assert describe_training(fitted(batch_size=None, max_samples=40))["Batch size"] == "40"
    half = fitted(batch_size=None).fit(blobs(), sample_weight=np.arange(60) % 4 > 1)
    assert describe_training(half)["Batch size"] == "30"
    batches = BatchSampler(RandomSampler(range(60)), 15, drop_last=False)
    loader = DataLoader(TensorDataset(torch.as_tensor(blobs()).float()), batch_sampler=batches)
    assert describe_training(fitted(loader))["Batch size"] == "15"
    # Model files of old versions do not hold it.
    half.fitted_ = replace(half.fitted_, batch_size=None)
    assert describe_training(half)["Batch size"] == "all samples"


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


@pytest.mark.parametrize(
    ("geometry", "says"),
    [
        ("rbf:gamma=0.5", "rbf:gamma=0.5 kernel"),
        (resolve("rbf", gamma=0.5), "rbf:gamma=0.5 kernel"),
        (NeighbourGraph(neighbours=7), "graph:neighbours=7 kernel"),
        ("graph:neighbours=7", "graph:neighbours=7 kernel"),
    ],
    ids=["name", "resolved", "class", "name of a class"],
)
def test_the_geometry_is_spelled_as_it_is_written(geometry: Any, says: str, tmp_path: Path) -> None:
    clustering = fitted(objective="mmd_ova", geometry=geometry)
    clustering.save(tmp_path / "model.safetensors")
    for trained in (clustering, pollux.load(tmp_path / "model.safetensors")):
        assert describe_training(trained)["Geometry"] == says


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("kernel", "kernel"),
        ("kernel:landmarks=9", "kernel:landmarks=9"),
        (KernelModel(landmarks=9, kernel="laplacian"), "kernel:kernel=laplacian,landmarks=9"),
        ("soft_tree:cuts=2", "soft_tree:cuts=2"),
        ("mlp", "mlp, 100 hidden units"),
        ("linear", "linear"),
    ],
    ids=["name", "parameter", "group", "tree", "mlp", "linear"],
)
def test_the_model_is_spelled_as_it_is_written(model: Any, says: str) -> None:
    clustering = GeminiClustering(3, model=model, max_epochs=2, random_state=0)
    assert describe_training(clustering.fit(blobs()))["Model"] == says


def test_gaps_of_files_are_described_as_the_fit_fills_them(tmp_path: Path) -> None:
    X = blobs()
    X[5, 1] = np.nan
    np.save(tmp_path / "gap.npy", X)
    clustering = fitted(tmp_path / "gap.npy", missing="mean", scaling="standard")
    assert np.isfinite(describe(clustering, tmp_path / "gap.npy").seen).all()


def test_the_map_shows_what_the_model_sees() -> None:
    """Scaled as it was for training, so that columns in other units do not rule it, and with gaps filled."""
    X = blobs() * [1, 1, 1e6]
    X[3, 1] = np.nan
    findings = describe(fitted(X, missing="mean", scaling="standard", max_epochs=40), X)
    assert np.isfinite(findings.seen).all()
    assert np.abs(findings.seen).max() < 100
    assert np.isnan(np.asarray(findings.features)[3, 1])
    assert "missing in" in render_page(findings)


def test_the_map_of_columns_in_their_own_units_is_not_that_of_the_largest_numbers() -> None:
    X = blobs()
    wide = X * [1, 1, 1e6]
    alike, unscaled, filled = (
        describe(fitted(rows, **given), rows)
        for rows, given in [(X, {}), (wide, {}), (wide, {"missing": "mean", "scaling": "none"})]
    )
    for findings in (unscaled, filled):
        map = findings.draw_maps(np.arange(60))[-1]
        assert "(100% of" not in map.axes[0]
        assert np.ptp(map.points[:, 1]) > 0.1 * np.ptp(map.points[:, 0])
    np.testing.assert_array_equal(np.asarray(unscaled.features), wide)
    # Columns of one kind keep their proportions.
    twice = describe(fitted(X * [1, 2, 1]), X * [1, 2, 1])
    assert twice.draw_maps(np.arange(60))[-1].axes != alike.draw_maps(np.arange(60))[-1].axes


def with_gaps() -> Any:
    frame = pandas.DataFrame(blobs(), columns=["a", "b", "c"])
    frame.loc[3, "b"] = np.nan
    frame["n"] = pandas.array(np.arange(60) % 5, dtype="Int64")
    frame.loc[5, "n"] = pandas.NA
    return frame


def test_a_frame_with_gaps_is_described() -> None:
    frame = with_gaps()
    findings = describe(fitted(frame, missing="mean", scaling="standard"), frame)
    assert findings.feature_names == ["a", "b", "c", "n"]
    assert np.isfinite(findings.seen).all()
    np.testing.assert_array_equal(np.isnan(np.asarray(findings.features)), frame.isna().to_numpy())
    assert "missing in" in render_page(findings)


def pipeline(*steps: Any) -> Any:
    return make_pipeline(*steps, GeminiClustering(2, model="linear", max_epochs=40, random_state=0))


def test_a_pipeline_is_described_in_the_units_of_its_samples() -> None:
    frame = with_gaps()
    model = pipeline(SimpleImputer(), StandardScaler()).fit(frame)
    findings = describe(model, frame)
    np.testing.assert_array_equal(findings.probabilities, model.predict_proba(frame))
    assert findings.feature_names == ["a", "b", "c", "n"]
    assert np.isnan(np.asarray(findings.features)[3, 1])
    assert findings.settings["Model"] == "linear"
    assert "missing in" in render_page(findings)
    assert describe(make_pipeline(fitted()), blobs()).probabilities.shape == (60, 2)


def test_columns_of_text_before_a_pipeline_are_shares() -> None:
    frame = with_gaps().assign(city=np.where(np.arange(60) % 2, "Bonn", "Köln"), open=np.arange(60) % 2 == 0)
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = ColumnTransformer([("x", numbers, ["a", "b", "c", "n"]), ("y", OneHotEncoder(), ["city", "open"])])
    findings = describe(pipeline(columns).fit(frame), frame)
    assert {"a", "city=Köln", "city=Bonn", "open=true"} <= set(findings.feature_names)
    assert "city=Köln" in findings.shares
    # Of two values one is shown.
    shown = [figure.text for figure in parse(render_page(findings)).every("figure", kind="feature")]
    assert sum("city=" in text for text in shown) == 2
    assert sum("open=" in text for text in shown) == 2


def test_texts_before_a_pipeline_are_shown_as_the_clustering_sees_them() -> None:
    texts = ["sun and rain", "rain and wind", "bread and butter", "butter and jam"] * 5
    findings = describe(pipeline(TfidfVectorizer()).fit(texts), texts)
    assert set(findings.feature_names) >= {"rain", "butter"}
    # Texts are shown themselves.
    assert findings.row_name(2) == "bread and butter"
    assert "bread and butter" in render_page(findings)


def test_typical_is_near_the_centre_and_not_what_is_most_certain() -> None:
    # The farther from the boundary, the more certain a linear model is: of outliers most of all.
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 2))
    X[::2, 0] += 8
    X[:10:2, 0] += 14
    clustering = fitted(X, max_epochs=100, scaling="none", n_init=1, objective="mmd_ova")
    findings = describe(clustering, X)
    far, summary = np.arange(0, 10, 2), findings.summary
    own = int(findings.labels[0])
    assert (findings.labels[far] == own).all()
    most_certain = np.argsort(-findings.probabilities[:, own], kind="stable")[:5]
    assert set(most_certain) == set(far), "saturated confidence no longer misleads"
    typical = summary.most_typical(own, 5)
    assert not set(typical) & set(far)
    centre = X[findings.labels == own].mean(0)
    distances = np.linalg.norm(X - centre, axis=1)
    expected = summary.members(own)[np.argsort(distances[summary.members(own)], kind="stable")[:5]]
    np.testing.assert_array_equal(typical, expected)
    # What lies near the other centre is doubtful, however certain the model is.
    assert findings.places is not None
    other = X[findings.labels != own].mean(0)
    doubtful = summary.least_certain(summary.members(own), 5)
    share = (((X - other) ** 2).sum(1) - distances**2) / ((centre - other) ** 2).sum()
    np.testing.assert_allclose(findings.places.margin[summary.members(own)], share[summary.members(own)], rtol=1e-6)
    assert not set(doubtful) & set(far)
    page = parse(render_page(findings))
    assert "typical" in page.one("article", data_cluster=str(own)).one("details").text
    assert page.one(id="between").one("table")


def test_places_do_not_depend_on_where_zero_is() -> None:
    X, labels = blobs(), np.arange(60) % 3
    near, far = (Places.of(X + offset, labels, np.arange(60), 60, "") for offset in (0.0, 2.0**30))
    # The sum itself keeps 2 ** (30 - 52) of each value.
    np.testing.assert_allclose(far.own, near.own, atol=2.0**-22 * 100 * np.abs(X).max())
    np.testing.assert_allclose(far.between, near.between, atol=2.0**-18)


def test_values_that_were_not_seen_and_rows_far_outside_are_told() -> None:
    frame = pandas.DataFrame({"size": blobs()[:, 0], "town": np.where(np.arange(60) % 3, "Bonn", "Köln")})
    clustering = GeminiClustering(2, model="linear", max_epochs=5, random_state=0).fit(frame)
    new = frame.assign(size=frame["size"] * 1000)
    new.loc[:4, "town"] = "Ulm"
    notes = " ".join(describe(clustering, new).notes)
    assert "5 values of column 'town' were not seen in training" in notes
    assert "far outside the data of the training, in 'size'" in notes


def test_a_transformer_as_preprocessing_is_described() -> None:
    steps = make_pipeline(SimpleImputer(), StandardScaler())
    clustering = GeminiClustering(2, model="linear", max_epochs=40, random_state=0, preprocessing=steps).fit(blobs())
    findings = describe(clustering, blobs())
    assert np.abs(findings.seen).max() < 10
    np.testing.assert_array_equal(np.asarray(findings.features), blobs())


@pytest.mark.parametrize("kind", ["sparse", "tensor", "list", "npy", "csv", "stream", "dataset", "loader"])
def test_whatever_fit_takes_is_described(kind: str, tmp_path: Path) -> None:
    X = blobs().astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    pandas.DataFrame(X, columns=["a", "b", "c"]).to_csv(tmp_path / "X.csv", index=False)
    dataset = TensorDataset(torch.from_numpy(X))
    given = {
        "sparse": csr_array(X),
        "tensor": torch.from_numpy(X),
        "list": X.tolist(),
        "npy": tmp_path / "X.npy",
        "csv": str(tmp_path / "X.csv"),
        "stream": pollux.open_stream(tmp_path / "X.csv"),
        "dataset": dataset,
        "loader": DataLoader(dataset, batch_size=20),
    }[kind]
    clustering = fitted(given)
    findings = describe(clustering, given)
    np.testing.assert_allclose(np.asarray(findings.features), X, rtol=1e-6)
    np.testing.assert_allclose(findings.probabilities, clustering.fitted_.probabilities(X), rtol=1e-5, atol=1e-6)
    assert findings.feature_names[0] == ("a" if kind in ("csv", "stream") else "column 0")


def test_what_is_not_fitted_is_refused() -> None:
    for model in (GeminiClustering(2), make_pipeline(StandardScaler(), GeminiClustering(2))):
        with pytest.raises(NotFittedError):
            describe(model, blobs())
    with pytest.raises(TypeError, match="ends in one"):
        describe(make_pipeline(StandardScaler(), KMeans(2)).fit(blobs()), blobs())


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


def test_findings_are_shown_in_one_line() -> None:
    assert repr(make_findings()) == "Findings('Blobs': 200 samples, 4 features, at most 5 clusters)"
