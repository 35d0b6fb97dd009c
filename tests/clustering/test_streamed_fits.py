"""Fits on rows that are never held: they learn what fits in memory do, whatever the rows come from."""

from __future__ import annotations

import copy
import json
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from coverings import every_other
from data_files import Answer, pollux
from fault_runs import Child, peaks_of_fits
from flat_parameters import make_clustering
from pollux import GeminiClustering, Scaling, load, open_stream
from pollux.app import run_data
from pollux.app.settings import Settings
from pollux.data import samples as streamed
from pollux.data.array_files import ArrayBlocks
from pollux.data.samples import open_samples
from pollux.data.scaling import prepared
from pollux.data.streams import DatasetChunks, FileChunks, Stream
from pollux.data.table_files import TableBlocks
from pollux.errors import InputError, command_line
from pollux.spec import Spec
from pollux.training.problem import pose_problem

CENTRES = np.array([[4, 0, 0, 0], [0, 4, 0, 0], [0, 0, 4, 4]], dtype=np.float32)
NAMES = ["a", "b", "c", "d"]


def blobs(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three clusters far apart, of different sizes, in a random order."""
    random = np.random.default_rng(seed)
    classes = random.choice(3, n, p=[0.5, 0.3, 0.2])
    return (CENTRES[classes] + random.normal(size=(n, 4)) / 3).astype(np.float32), classes


X, CLASSES = blobs()


def clustering(**options: Any) -> GeminiClustering:
    defaults = {"model": "linear", "objective": "mmd_ovo", "max_epochs": 10, "batch_size": 100, "random_state": 0}
    return make_clustering(3, **{**defaults, "learning_rate": 0.05, **options})


def frame(rows: np.ndarray = X) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=NAMES)


def in_parquet(path: Path, rows: np.ndarray = X, group: int = 50) -> Path:
    parquet.write_table(pa.Table.from_pandas(frame(rows), preserve_index=False), path, row_group_size=group)
    return path


def in_folder(path: Path) -> Path:
    (path / "rest").mkdir(parents=True)
    for number, part in enumerate(np.array_split(X, 4)):
        in_parquet(path / ("rest" if number > 1 else ".") / f"part-{number}.parquet", part)
    return path


def in_npy(path: Path, rows: np.ndarray = X) -> Path:
    np.save(path, rows)
    return path


def in_csv(path: Path) -> Path:
    frame().to_csv(path, index=False)
    return path


def in_feather(path: Path) -> Path:
    frame().to_feather(path, chunksize=50)
    return path


class Items(Dataset[Any]):
    """Items by number, as a user writes them: with labels, in a mapping, or bare."""

    def __init__(self, rows: Any, wrap: Callable[[Any, int], Any] = lambda row, index: row) -> None:
        self.rows, self.wrap = rows, wrap

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.wrap(torch.as_tensor(self.rows[index]), index)


class Flow(IterableDataset[Any]):
    """Items one after the other."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.as_tensor(self.rows))


def tensors(rows: np.ndarray = X) -> TensorDataset:
    return TensorDataset(torch.as_tensor(rows), torch.as_tensor(CLASSES))


SOURCES: dict[str, Callable[[Path], Any]] = {
    "a Parquet file": lambda folder: in_parquet(folder / "rows.parquet"),
    "its name": lambda folder: str(in_parquet(folder / "rows.parquet")),
    "a folder": lambda folder: in_folder(folder / "rows"),
    "a CSV file": lambda folder: in_csv(folder / "rows.csv"),
    "a Feather file": lambda folder: in_feather(folder / "rows.feather"),
    "an array": lambda folder: in_npy(folder / "rows.npy"),
    "a stream": lambda folder: open_stream(in_npy(folder / "rows.npy")),
    "tensors": lambda folder: tensors(),
    "items": lambda folder: Items(X),
    "items with labels": lambda folder: Items(X, lambda row, index: (row, int(CLASSES[index]))),
    "items in mappings": lambda folder: Items(X, lambda row, index: {"x": row, "y": index}),
}
LOADERS: dict[str, Callable[[], Any]] = {
    "a loader": lambda: DataLoader(tensors(), batch_size=100),
    "one that shuffles": lambda: DataLoader(tensors(), batch_size=100, shuffle=True),
    "one that drops the last": lambda: DataLoader(tensors(), batch_size=70, shuffle=True, drop_last=True),
    "one of mappings": lambda: DataLoader(Items(X, lambda row, index: {"x": row, "y": index}), batch_size=100),
    "a flow": lambda: Flow(X),
}


def weights(fitted: GeminiClustering) -> list[torch.Tensor]:
    return list(fitted.module_.state_dict().values())


def assert_same_bits(one: GeminiClustering, other: GeminiClustering) -> None:
    assert one.history_ == other.history_
    assert one.objective_ == other.objective_
    assert all(torch.equal(*pair) for pair in zip(weights(one), weights(other), strict=True))


# What is learned


@pytest.mark.parametrize("source", SOURCES)
def test_rows_from_anywhere_are_clustered_as_in_memory(tmp_path: Path, source: str) -> None:
    fitted = clustering().fit(SOURCES[source](tmp_path))
    held = clustering().fit(X)
    assert adjusted_rand_score(fitted.labels_, CLASSES) == adjusted_rand_score(held.labels_, CLASSES) == 1
    assert fitted.labels_.dtype == held.labels_.dtype == np.int64
    assert fitted.objective_ == pytest.approx(held.objective_, rel=0.02)
    assert fitted.n_clusters_ == 3
    assert fitted.n_iter_ == len(fitted.history_["objective"]) == 10


@pytest.mark.parametrize("source", LOADERS)
def test_loaders_of_the_user_s_are_clustered_too(source: str) -> None:
    fitted = clustering().fit(LOADERS[source]())
    assert adjusted_rand_score(fitted.predict(X), CLASSES) == 1
    assert np.bincount(fitted.predict(X)).tolist() == sorted(np.bincount(CLASSES), reverse=True)
    with pytest.raises(AttributeError, match="may give its samples in any order: predict those"):
        _ = fitted.labels_


def test_loaders_with_workers_give_the_same_bits_as_those_without() -> None:
    fits = [
        clustering(max_epochs=2).fit(DataLoader(tensors(), batch_size=100, shuffle=True, num_workers=workers))
        for workers in (0, 2)
    ]
    assert_same_bits(*fits)


@pytest.mark.parametrize("source", ["a Parquet file", "tensors"])
def test_the_same_seed_gives_the_same_bits(tmp_path: Path, source: str) -> None:
    rows = SOURCES[source](tmp_path)
    state = torch.get_rng_state()
    first, second = clustering(max_epochs=3).fit(rows), clustering(max_epochs=3).fit(rows)
    assert torch.equal(torch.get_rng_state(), state)
    assert_same_bits(first, second)
    assert clustering(max_epochs=3, random_state=1).fit(rows).history_ != first.history_


@pytest.mark.parametrize("source", ["one that shuffles", "a flow"])
def test_the_same_seed_gives_the_same_bits_of_loaders_too(source: str) -> None:
    state = torch.get_rng_state()
    assert_same_bits(*(clustering(max_epochs=3).fit(LOADERS[source]()) for _ in range(2)))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_same_rows_in_the_same_chunks_give_the_same_bits_wherever_they_are(tmp_path: Path) -> None:
    file, folder = in_parquet(tmp_path / "rows.parquet", group=50), in_folder(tmp_path / "rows")
    items = Stream(DatasetChunks(tensors(), items=50), None, 2_000, "items")
    streams = [open_stream(path, window_bytes=2_000) for path in (file, folder)]
    first, *others = (clustering(max_epochs=3).fit(source) for source in (*streams, items))
    for other in others:
        assert_same_bits(first, other)
        np.testing.assert_array_equal(first.labels_, other.labels_)


@pytest.mark.parametrize("scaling", ["auto", "standard", "global"])
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npy"])
def test_rows_of_files_are_scaled_as_those_in_memory(tmp_path: Path, ending: str, scaling: str) -> None:
    """Whether their columns are in like units or not; a constant column stays."""
    rows = (X * np.linspace(1, 100, X.shape[1]) + 1_000).astype(np.float32)
    rows[:, 1] = 7
    path = tmp_path / f"rows{ending}"
    if ending == ".csv":
        frame(rows).to_csv(path, index=False)
    else:
        {".parquet": in_parquet, ".npy": in_npy}[ending](path, rows)
    one = GeminiClustering(3, model="linear", preprocessing=scaling, max_epochs=3, n_init=1, random_state=0)
    streamed, held = clone(one).fit(path), clone(one).fit(rows)
    assert streamed.scaling_ is not None
    assert held.scaling_ is not None
    for name, expected in held.scaling_.tensors().items():
        np.testing.assert_allclose(streamed.scaling_.tensors()[name], expected, rtol=1e-6)
    assert streamed.n_features_in_ == rows.shape[1]
    samples = open_samples(path, copy.copy(streamed), fewest=1)
    problem = pose_problem(Spec.of(streamed), samples, streamed.scaling_, None)
    seen = np.concatenate([problem.batch(part).inputs for part in samples.in_order()])
    expected = prepared(rows, held.scaling_, torch.float32, "cpu")[torch.arange(len(rows))]
    np.testing.assert_allclose(seen, expected, atol=1e-4)
    readable = rows if ending == ".npy" else frame(rows)
    np.testing.assert_array_equal(streamed.labels_, streamed.predict(readable))
    streamed.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(readable), streamed.labels_)


def test_streams_and_networks_of_the_user_s_see_rows_as_they_are(tmp_path: Path) -> None:
    path = in_parquet(tmp_path / "rows.parquet")
    own = {"max_epochs": 2, "n_init": 1, "random_state": 0}
    assert GeminiClustering(3, model=nn.Linear(X.shape[1], 3), **own).fit(path).scaling_ is None
    assert GeminiClustering(3, model="linear", preprocessing=None, **own).fit(path).scaling_ is None
    for given in (open_stream(path), tensors()):
        assert GeminiClustering(3, model="linear", **own).fit(given).scaling_ is None
        # Unless something else is asked for, or rows are drawn, and then are in memory.
        assert GeminiClustering(3, model="linear", preprocessing="standard", **own).fit(given).scaling_ is not None
        drawn = GeminiClustering(3, model="linear", **own).set_params(training__max_samples=100).fit(given)
        assert drawn.scaling_ is not None
    standardised = open_stream(path, standardise=True)
    with pytest.raises(InputError, match="missing='mean' and scaling='global' must look at all"):
        GeminiClustering(3, model="linear", preprocessing="global", **own).fit(standardised)
    with pytest.raises(InputError, match="missing='mean' and scaling='standard' must look at all"):
        GeminiClustering(3, model="linear", preprocessing="standard", **own).fit(DataLoader(tensors(), batch_size=50))


def test_a_large_map_is_streamed_and_a_small_one_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = in_npy(tmp_path / "rows.npy")
    mapped = np.load(path, mmap_mode="r")
    assert not streamed.is_streamed(mapped)
    held = clustering().fit(mapped)
    assert_same_bits(held, clustering().fit(X))
    monkeypatch.setattr(streamed, "_LARGE_MAP", mapped.nbytes)
    assert streamed.is_streamed(mapped)
    assert not streamed.is_streamed(mapped[:-1])
    assert not streamed.is_streamed(mapped.T)
    assert not streamed.is_streamed(X)
    fitted = clustering().fit(mapped)
    assert_same_bits(fitted, clustering().fit(path))
    np.testing.assert_array_equal(fitted.labels_, clustering().fit(path).labels_)
    weighted = clustering().fit(mapped, sample_weight=np.ones(len(X)))
    assert adjusted_rand_score(weighted.labels_, CLASSES) == 1


def test_sorted_rows_are_shuffled_by_windows(tmp_path: Path) -> None:
    order = np.argsort(CLASSES, kind="stable")
    path = in_parquet(tmp_path / "rows.parquet", X[order], group=10)
    fitted = clustering(batch_size=60).fit(open_stream(path, window_bytes=16 * 150))
    assert adjusted_rand_score(fitted.labels_, CLASSES[order]) == 1


# Labels


def test_labels_are_predicted_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = in_parquet(tmp_path / "rows.parquet")
    read: list[int] = []
    original = FileChunks.read
    monkeypatch.setattr(FileChunks, "read", lambda self, chunk: (read.append(chunk), original(self, chunk))[1])
    fitted = clustering(max_epochs=1).fit(path)
    read.clear()
    labels = fitted.labels_
    assert read == list(range(12))
    assert fitted.labels_ is labels
    assert len(read) == 12
    np.testing.assert_array_equal(labels, fitted.predict(frame()))


@pytest.mark.parametrize(("geometry", "sampled"), [("linear", 0), ("rbf", 12)])
def test_chunks_are_read_for_what_is_needed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, geometry: str, sampled: int
) -> None:
    """Twice to train and once to evaluate; only a bandwidth takes a sample of some."""
    read: Counter[int] = Counter()
    original = FileChunks.read
    monkeypatch.setattr(FileChunks, "read", lambda self, chunk: (read.update([chunk]), original(self, chunk))[1])
    clustering(max_epochs=2, geometry=geometry).fit(in_parquet(tmp_path / "rows.parquet"))
    assert read.total() == 3 * 12 + sampled
    assert read.keys() == set(range(12))


def test_clusters_are_numbered_by_size(tmp_path: Path) -> None:
    fitted = clustering().fit(in_npy(tmp_path / "rows.npy"))
    assert np.bincount(fitted.labels_).tolist() == sorted(np.bincount(CLASSES), reverse=True)
    assert fitted.fit_predict(tmp_path / "rows.npy").tolist() == fitted.labels_.tolist()


def test_files_that_have_changed_since_are_told(tmp_path: Path) -> None:
    path = in_npy(tmp_path / "rows.npy")
    fitted = clustering(max_epochs=1).fit(path)
    in_npy(path, X[:10])
    with pytest.raises(InputError, match="the data have changed"):
        _ = fitted.labels_


def test_surplus_clusters_come_last_and_empty(tmp_path: Path) -> None:
    path = in_npy(tmp_path / "rows.npy")
    fitted = GeminiClustering(
        8, model="linear", objective="mmd_ova", max_epochs=15, batch_size=100, random_state=0, learning_rate=0.1
    ).fit(path)
    sizes = np.bincount(fitted.labels_, minlength=8)
    assert sizes.tolist() == sorted(sizes, reverse=True)
    assert fitted.n_clusters_ == (sizes > 0).sum()


# What comes after


def test_a_streamed_model_speaks_of_arrays_and_data_frames(tmp_path: Path) -> None:
    fitted = clustering().fit(in_parquet(tmp_path / "rows.parquet"))
    assert fitted.feature_names_in_.tolist() == NAMES
    assert fitted.n_features_in_ == 4
    probabilities = fitted.transform(frame())
    assert probabilities.dtype == np.float32
    np.testing.assert_array_equal(probabilities, fitted.predict_proba(frame()))
    np.testing.assert_array_equal(probabilities.argmax(1), fitted.predict(frame()))
    assert fitted.score(frame()) == pytest.approx(fitted.objective_, rel=1e-3)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame().rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame().assign(e=1.0))


def test_names_of_an_earlier_fit_are_forgotten(tmp_path: Path) -> None:
    fitted = clustering(max_epochs=1).fit(frame())
    assert fitted.feature_names_in_.tolist() == NAMES
    fitted.fit(in_npy(tmp_path / "rows.npy"))
    assert not hasattr(fitted, "feature_names_in_")
    fitted.predict(X)


def test_a_table_of_an_earlier_fit_is_forgotten(tmp_path: Path) -> None:
    fitted = clustering(max_epochs=1, model="free").fit(X[:60])
    assert fitted.probabilities_.shape == (60, 3)
    fitted.set_params(model="linear").fit(in_npy(tmp_path / "rows.npy"))
    assert not hasattr(fitted, "probabilities_")
    fitted.set_params(model="free").fit(X[:60]).set_params(model="linear").fit(X)
    assert not hasattr(fitted, "probabilities_")


def test_standardised_streams_make_models_that_read_data_frames(tmp_path: Path) -> None:
    raw = frame(X * 1e4 + 1e5).assign(colour=np.array(["red", "green", "blue"])[CLASSES], constant=1.0)
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.Table.from_pandas(raw, preserve_index=False), path, row_group_size=70)
    stream = open_stream(path, standardise=True)
    assert stream.shape == (7,)
    fitted = clustering().fit(stream)
    assert adjusted_rand_score(fitted.labels_, CLASSES) == 1
    np.testing.assert_array_equal(fitted.predict(raw), fitted.labels_)
    assert fitted.score(raw) == pytest.approx(fitted.objective_, rel=1e-3)
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(raw[::-1]), fitted.labels_[::-1])


def test_a_saved_model_knows_all_but_the_labels(tmp_path: Path) -> None:
    fitted = clustering().fit(in_parquet(tmp_path / "rows.parquet"))
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_same_bits(fitted, loaded)
    np.testing.assert_array_equal(loaded.predict(frame()), fitted.labels_)
    assert loaded.feature_names_in_.tolist() == NAMES
    with pytest.raises(AttributeError, match="not kept in files: predict those that you need"):
        _ = loaded.labels_
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(load(tmp_path / "again").predict(frame()), fitted.labels_)


def test_labels_that_were_asked_for_are_not_saved_either(tmp_path: Path) -> None:
    fitted = clustering(max_epochs=2).fit(in_npy(tmp_path / "rows.npy"))
    assert len(fitted.labels_)
    fitted.save(tmp_path / "model")
    with pytest.raises(AttributeError, match="not kept in files"):
        _ = load(tmp_path / "model").labels_


@pytest.mark.parametrize("source", ["a Parquet file", "a folder", "an array", "tensors"])
def test_streamed_models_can_be_copied_pickled_and_cloned(tmp_path: Path, source: str) -> None:
    fitted = clustering(max_epochs=2).fit(SOURCES[source](tmp_path))
    for copied in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert_same_bits(fitted, copied)
        np.testing.assert_array_equal(copied.labels_, fitted.labels_)
    assert not hasattr(clone(fitted), "n_clusters_")


def test_more_epochs_on_other_rows_go_on_from_a_streamed_fit(tmp_path: Path) -> None:
    fitted = clustering().fit(in_parquet(tmp_path / "rows.parquet"))
    more = blobs(50, seed=1)[0]
    fitted.partial_fit(frame(more))
    assert fitted.n_iter_ == 11
    assert len(fitted.labels_) == 50
    np.testing.assert_array_equal(fitted.labels_, fitted.predict(frame(more)))


def test_rows_of_files_are_predicted_from_memory_and_that_is_said(tmp_path: Path) -> None:
    path = in_npy(tmp_path / "rows.npy")
    fitted = clustering(max_epochs=1).fit(path)
    for method in (fitted.predict, fitted.transform, fitted.score, fitted.partial_fit, clustering().partial_fit):
        for rows in (path, str(path), tensors(), open_stream(path)):
            with pytest.raises(InputError, match="Only fit reads samples as they are needed"):
                method(rows)


# Ways to train


@pytest.mark.parametrize(
    "options",
    every_other(
        [
            {"dtype": "float64"},
            {"objective": "mmd_ova", "geometry": "rbf"},
            {"objective": "mmd_ova", "geometry": "fourier"},
            {"penalties": {"weight_decay": 1e-3}, "n_init": 2},
            {"objective": "wasserstein_ova"},
            {"objective": "wasserstein_ovo", "max_epochs": 5},
            {"model": "mlp", "hidden": (8,), "optimiser": "sgd", "n_init": 2, "learning_rate": 0.5},
            {"model": "mlp", "penalties": {"vat": 0.1, "entropy": 0.1}, "learning_rate": 0.005},
            {"patience": 2, "tol": 0.1, "max_epochs": 50},
            {"batch_size": None, "max_epochs": 60},
            {"dtype": "bfloat16"},
            {"n_init": 3},
        ]
    ),
    ids=str,
)
def test_every_way_of_training_can_be_streamed(tmp_path: Path, options: dict[str, Any]) -> None:
    path = in_parquet(tmp_path / "rows.parquet")
    fitted = clustering(**options).fit(path)
    assert adjusted_rand_score(fitted.labels_, CLASSES) > 0.99
    held = clustering(**options).fit(frame())
    assert fitted.score(frame()) == pytest.approx(held.score(frame()), rel=0.05)
    assert all(
        value.dtype == (torch.float64 if "float64" in options.values() else torch.float32) for value in weights(fitted)
    )
    assert fitted.n_iter_ < 50 or "patience" not in options


def test_streams_are_of_single_precision_unless_double_is_asked_for(tmp_path: Path) -> None:
    path = in_npy(tmp_path / "rows.npy", X.astype(np.float64))
    single, double = clustering(max_epochs=1).fit(path), clustering(max_epochs=1, dtype="float64").fit(path)
    assert weights(single)[0].dtype == torch.float32
    assert weights(double)[0].dtype == torch.float64
    assert single.predict_proba(X).dtype == np.float32
    given = clustering(max_epochs=1).fit(open_stream(path, dtype="float64"))
    assert weights(given)[0].dtype == torch.float64


def test_a_bandwidth_is_that_of_a_sample(tmp_path: Path) -> None:
    path = in_npy(tmp_path / "rows.npy")
    sampled = clustering(max_epochs=1, geometry="rbf").fit(path)
    held = clustering(max_epochs=1, geometry="rbf").fit(X)
    values = [fitted.geometry_.of(torch.as_tensor(X[:5])) for fitted in (sampled, held)]
    torch.testing.assert_close(*values, rtol=0.05, atol=0.05)


def test_images_are_streamed_into_networks_of_the_user_s(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    classes = random.integers(0, 2, 120)
    images = random.normal(size=(120, 1, 6, 6)).astype(np.float32) / 4
    images[classes == 1, :, :3] += 2
    images[classes == 0, :, 3:] += 2
    in_npy(tmp_path / "images.npy", images)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)
    )
    fitted = GeminiClustering(2, model=network, max_epochs=8, batch_size=30, random_state=0).fit(
        tmp_path / "images.npy"
    )
    assert adjusted_rand_score(fitted.labels_, classes) == 1
    np.testing.assert_array_equal(fitted.predict(images), fitted.labels_)
    items = GeminiClustering(2, model=network, max_epochs=8, batch_size=30, random_state=0).fit(
        DataLoader(TensorDataset(torch.as_tensor(images)), batch_size=30, shuffle=True)
    )
    assert adjusted_rand_score(items.predict(images), classes) == 1


def test_integers_and_bytes_are_numbers_too(tmp_path: Path) -> None:
    rows = np.clip(np.round(X), 0, 255).astype(np.uint8)
    labels = clustering().fit(in_npy(tmp_path / "rows.npy", rows)).labels_
    assert adjusted_rand_score(labels, CLASSES) == 1
    loader: Any = DataLoader(TensorDataset(torch.as_tensor(rows)), batch_size=100)
    assert adjusted_rand_score(clustering().fit(loader).predict(rows.astype(np.float32)), CLASSES) == 1


# What cannot be


@pytest.mark.parametrize(
    ("options", "given"),
    [({}, {"sample_weight": np.ones(600)}), ({}, {"affinity": np.eye(600)}), ({"model": "free"}, {})],
)
def test_what_needs_each_row_is_refused(tmp_path: Path, options: dict[str, Any], given: dict[str, Any]) -> None:
    for rows in (in_npy(tmp_path / "rows.npy"), tensors(), DataLoader(tensors())):
        with pytest.raises(InputError, match=r"leave out sample_weight and affinity, .* another model than a free"):
            clustering(**options).fit(rows, **given)


@pytest.mark.parametrize("in_file", [in_npy, in_parquet])
def test_graphs_of_all_rows_are_refused_before_any_row_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_file: Callable[[Path], Path]
) -> None:
    path = in_file(tmp_path / "rows.npy" if in_file is in_npy else tmp_path / "rows.parquet")

    def never(*_: Any) -> None:
        raise AssertionError("a block is read")

    for blocks in (ArrayBlocks, TableBlocks):
        monkeypatch.setattr(blocks, "read_block", never)
    with pytest.raises(InputError, match="'shortest_path' must look at all of them"):
        clustering(objective="wasserstein_ova", geometry="shortest_path").fit(path)


def test_errors_come_before_advice_about_streams(tmp_path: Path) -> None:
    one = clustering(init="kmeans")
    with pytest.raises(InputError, match="There is no file"):
        one.fit(tmp_path / "nothing.npy")
    with pytest.raises(InputError, match="leave out sample_weight"):
        one.fit(in_npy(tmp_path / "rows.npy"), sample_weight=np.ones(len(X)))


def test_advice_about_streams_leaves_the_scaling(tmp_path: Path) -> None:
    path, scaling = in_npy(tmp_path / "rows.npy"), Scaling("standard", n_components=2)
    with pytest.raises(InputError, match=r"n_components=2 must look .* choose n_components=None;"):
        clustering(preprocessing=scaling).fit(path)
    loader: Any = DataLoader(tensors(), batch_size=50)
    for preprocessing in ("standard", scaling):
        with pytest.raises(InputError, match=r"choose preprocessing=None \(pollux.open_stream\(path, stand"):
            clustering(preprocessing=preprocessing).fit(loader)


def test_what_a_stream_is_scaled_by_is_told_by_name() -> None:
    """Commands spell options in another way."""
    with command_line():
        scaled = Spec.of(clustering(preprocessing="standard"))
        scaled.check_streamable(is_scaled=True)
        with pytest.raises(InputError, match="--missing mean and --scaling standard must"):
            scaled.check_streamable()


class Empty(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


def broken(kind: str, folder: Path) -> Any:
    gap = X.copy()
    gap[77, 2] = np.nan
    words = pd.DataFrame({"a": [f"w{index}" for index in range(100)], "b": 1.0})
    return {
        "a text file": lambda: folder / "rows.csv",
        "no file": lambda: folder / "nothing.parquet",
        "an empty folder": lambda: Path(tempfile.mkdtemp(dir=folder)),
        "an array with a gap": lambda: in_npy(folder / "gap.npy", gap),
        "a table with a gap": lambda: in_parquet(folder / "gap.parquet", gap),
        "tensors with a gap": lambda: TensorDataset(torch.as_tensor(gap)),
        "a loader with a gap": lambda: DataLoader(TensorDataset(torch.as_tensor(gap)), batch_size=50),
        "words": lambda: (words.to_parquet(folder / "words.parquet"), folder / "words.parquet")[1],
        "an array of words": lambda: in_npy(folder / "words.npy", np.array([["a", "b"]] * 9)),
        "items of words": lambda: Items([0] * 9, lambda row, index: "word"),
        "no items": lambda: Items([]),
        "no rows": lambda: in_npy(folder / "none.npy", X[:0]),
        "one row": lambda: in_npy(folder / "one.npy", X[:1]),
        "fewer rows than clusters": lambda: in_npy(folder / "two.npy", X[:2]),
        "an empty loader": lambda: DataLoader(Empty(), batch_size=5),
        "an empty flow": lambda: Empty(),
        "a loader of words": lambda: DataLoader(Items([0] * 9, lambda row, index: "word"), batch_size=5),
        "a loader of nothing": lambda: DataLoader([()] * 9, batch_size=5),
        "a loader of numbers": lambda: DataLoader(TensorDataset(torch.ones(9)), batch_size=5),
        "too deep an array": lambda: in_npy(folder / "deep.npy", np.ones((5, 2, 2, 2, 2), dtype=np.float32)),
    }[kind]()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("a text file", "has 1 rows"),
        ("no file", "There is no file"),
        ("an empty folder", "folder of images"),
        ("an array with a gap", "row 77: column '2' is missing"),
        ("a table with a gap", "'c'"),
        ("tensors with a gap", "TensorDataset, row 77: .* is missing"),
        ("a loader with a gap", "missing or infinite"),
        ("words", "No column is left"),
        ("an array of words", "numbers"),
        ("items of words", "must be a tensor or an array of numbers"),
        ("no items", "Items is empty"),
        ("no rows", "row"),
        ("one row", "row"),
        ("fewer rows than clusters", "row"),
        ("an empty loader", "gave no batch"),
        ("an empty flow", "gave no batch"),
        ("a loader of words", "must give batches"),
        ("a loader of nothing", "must give batches"),
        ("a loader of numbers", r"it gave Tensor \(5,\)"),
        ("too deep an array", "shape|dimension"),
    ],
)
def test_what_is_wrong_with_rows_is_said_and_nothing_changes(tmp_path: Path, kind: str, told: str) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    fitted = clustering(max_epochs=1).fit(X)
    before = dict(fitted.__dict__)
    state = torch.get_rng_state()
    with pytest.raises(InputError, match=told):
        fitted.fit(broken(kind, tmp_path))
    assert fitted.__dict__.keys() == before.keys()
    assert all(fitted.__dict__[name] is value for name, value in before.items())
    assert torch.equal(torch.get_rng_state(), state)
    new = clustering()
    with pytest.raises(InputError, match=told):
        new.fit(broken(kind, tmp_path))
    assert not hasattr(new, "n_clusters_")


class TwoShapes(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([torch.ones(5, 4), torch.ones(5, 3)])


def test_a_loader_whose_shapes_change_is_told() -> None:
    with pytest.raises(InputError, match=r"\(3,\) after others of \(4,\)"):
        clustering().fit(DataLoader(TwoShapes(), batch_size=None))


# Memory


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc to tell the memory")
def test_rows_are_never_held(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("small.npy", "large.npy")]
    for path, rows in zip(paths, (7_500, 1_000_000), strict=True):
        mapped = np.lib.format.open_memmap(path, "w+", np.float32, (rows, 100))
        # The rest of the file is a hole, which is read as zeros.
        mapped[:7_500] = np.random.default_rng(0).random((7_500, 100))
        del mapped
    child = Child(tmp_path, peaks_of_fits, *map(str, paths))
    small, large = map(int, child.end().out.split())
    # Three windows of 64 MB and the labels, and not the 400 MB of the file.
    assert large - small < 220_000


# The command line

FAST = ("--clusters", "3", "--epochs", "6", "--restarts", "1", "--model", "linear", "--batch-size", "100")
BETTER = ("--objective", "mmd_ovo", "--learning-rate", "0.05")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return table_in(tmp_path / "rows.parquet")


def table_in(path: Path, gaps: int = 0, rows: slice = slice(None)) -> Path:
    data = frame().assign(name=[f"n{index}" for index in range(len(X))], kind=np.array(["x", "y", "z"])[CLASSES])
    data.loc[data.index[:gaps] * 7, "b"] = np.nan
    parquet.write_table(pa.Table.from_pandas(data[rows], preserve_index=False), path, row_group_size=64)
    return path


def fit(data: Path, *options: object, code: int = 0) -> Answer:
    answer = pollux("fit", data, *FAST, *BETTER, *options)
    assert answer.code == code, answer
    return answer


def summary(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(run) / "summary.json").read_text())
    return found


def test_a_streamed_run_has_a_row_for_each_row_in_their_order(table: Path) -> None:
    answer = fit(table, "--stream", "yes", "--label", "kind", "--as", "id", "name", "--out", "run")
    assert "read as they are needed" in answer.out + answer.err
    written = pd.read_parquet("run/clusters.parquet")
    assert written["name"].tolist() == [f"n{index}" for index in range(600)]
    assert adjusted_rand_score(written["cluster"], CLASSES) == 1
    told = summary("run")
    assert told["streamed"]
    assert told["rows"] == 600
    assert [part["rows"] for part in told["clusters"]] == sorted(np.bincount(CLASSES), reverse=True)
    assert told["scores"]["adjusted_rand_index"] == 1
    assert {path.name for path in Path("run").iterdir()} == {
        *("clusters.parquet", "checkpoints", "model.safetensors", "run.toml", "summary.json"),
    }
    loaded = load("run")
    np.testing.assert_array_equal(loaded.predict(pd.read_parquet(table)), written["cluster"])


def test_streaming_that_was_asked_for_equals_that_of_large_files(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(table, "--stream", "yes", "--out", "asked")
    fit(table, "--out", "held")
    monkeypatch.setattr(run_data, "_MOST_BYTES", 1_000)
    fit(table, "--out", "large")
    fit(table, "--stream", "no", "--out", "refused")
    assert (Path("asked") / "clusters.parquet").read_bytes() == (Path("large") / "clusters.parquet").read_bytes()
    assert summary("asked")["objective"] == summary("large")["objective"]
    assert not (Path("held") / "clusters.parquet").exists()
    assert (Path("refused") / "clusters.csv").read_bytes() == (Path("held") / "clusters.csv").read_bytes()
    # As in memory, but for the order of its batches.
    assert (
        adjusted_rand_score(
            pd.read_csv("held/clusters.csv")["cluster"], pd.read_parquet("asked/clusters.parquet")["cluster"]
        )
        == 1
    )


def test_new_rows_are_predicted_by_a_streamed_run(table: Path) -> None:
    fit(table, "--stream", "yes", "--label", "kind", "--out", "run")
    table_in(Path("new.parquet"), rows=slice(100, 200))
    answer = pollux("predict", "run", "new.parquet", "--out", "new.csv")
    assert answer.code == 0, answer
    of_all = pd.read_parquet("run/clusters.parquet")["cluster"]
    np.testing.assert_array_equal(pd.read_csv("new.csv")["cluster"], of_all[100:200])


def test_a_streamed_run_has_a_report(table: Path) -> None:
    fit(table, "--stream", "yes", "--label", "kind", "--as", "id", "name", "--out", "run")
    answer = pollux("report", "run")
    assert answer.code == 0, answer
    page = (Path("run") / "report.html").read_text()
    assert "n599" in page
    again = fit(table, "--stream", "yes", "--out", "run", "--overwrite")
    assert "removed" in again.out + again.err + str(summary("run")["notes"])
    assert not (Path("run") / "report.html").exists()


def test_a_run_in_memory_takes_the_place_of_a_streamed_one_whole(table: Path) -> None:
    fit(table, "--stream", "yes", "--out", "run")
    fit(table, "--out", "run", "--overwrite")
    assert (Path("run") / "clusters.csv").exists()
    assert not (Path("run") / "clusters.parquet").exists()
    fit(table, "--stream", "yes", "--out", "run", "--overwrite")
    assert not (Path("run") / "clusters.csv").exists()


@pytest.mark.parametrize("missing", ["mean", "drop"])
def test_gaps_are_filled_or_dropped_as_in_memory(table: Path, missing: str) -> None:
    table_in(table, gaps=20)
    assert "missing" in fit(table, "--stream", "yes", "--missing", "error", code=2).err
    fit(table, "--stream", "yes", "--missing", missing, "--as", "id", "name", "--label", "kind", "--out", "run")
    fit(table, "--stream", "no", "--missing", missing, "--as", "id", "name", "--label", "kind", "--out", "held")
    written, held = pd.read_parquet("run/clusters.parquet"), pd.read_csv("held/clusters.csv")
    assert len(written) == len(held) == (600 if missing == "mean" else 580)
    assert list(written.columns) == list(held.columns)
    assert written["name"].tolist() == held["name"].tolist()
    assert summary("run")["rows"] + summary("run")["rows_dropped"] == 600
    assert summary("run")["rows_dropped"] == summary("held")["rows_dropped"]
    assert adjusted_rand_score(written["cluster"], held["cluster"]) > 0.95
    assert pollux("report", "run").code == 0


def test_a_folder_of_files_is_one_run(table: Path) -> None:
    (Path("many") / "deep").mkdir(parents=True)
    table_in(Path("many/a.parquet"), rows=slice(0, 250))
    table_in(Path("many/deep/b.parquet"), rows=slice(250, 600))
    fit(Path("many"), "--stream", "yes", "--as", "id", "name", "--label", "kind", "--out", "run")
    written = pd.read_parquet("run/clusters.parquet")
    assert written["name"].tolist() == [f"n{index}" for index in range(600)]
    assert summary("run")["scores"]["adjusted_rand_index"] == 1
    assert pollux("report", "run").code == 0
    assert pollux("predict", "run", "many", "--out", "again.parquet").code == 0
    assert pd.read_parquet("again.parquet")["cluster"].tolist() == written["cluster"].tolist()


def test_arrays_are_streamed_too(table: Path) -> None:
    gap = X.copy()
    gap[5, 1] = np.nan
    in_npy(Path("rows.npy"), gap)
    assert fit(Path("rows.npy"), "--stream", "yes", "--missing", "error", code=2).err
    fit(Path("rows.npy"), "--stream", "yes", "--missing", "drop", "--out", "run")
    written = pd.read_parquet("run/clusters.parquet")
    assert len(written) == 599
    assert adjusted_rand_score(written["cluster"], np.delete(CLASSES, 5)) == 1
    assert pollux("report", "run").code == 0
    assert "no columns beside its rows" in fit(Path("rows.npy"), "--stream", "yes", "--label", "kind", code=2).err


@pytest.mark.parametrize("name", ["rows.csv", "rows.feather"])
def test_tables_of_other_formats_are_streamed_with_the_same_bits(table: Path, name: str) -> None:
    """Of the same rows in the same blocks; a text file is predicted as it is, too."""
    rows = pd.read_parquet(table)
    if name.endswith("csv"):
        # A text has too few digits of single precision for the same number in double precision.
        rows = rows.astype(dict.fromkeys(rows.select_dtypes("float32"), "float64"))
        rows.to_csv(name, index=False)
        # One block, as a text of this size is.
        rows.to_parquet(table)
    else:
        rows.to_feather(name, chunksize=64)
    fit(table, "--stream", "yes", "--label", "kind", "--as", "id", "name", "--out", "one")
    fit(Path(name), "--stream", "yes", "--label", "kind", "--as", "id", "name", "--out", "other")
    one, other = (pd.read_parquet(f"{run}/clusters.parquet") for run in ("one", "other"))
    pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert pollux("predict", "other", name, "--out", "again.csv").code == 0
    np.testing.assert_array_equal(pd.read_csv("again.csv")["cluster"], one["cluster"])


def test_folders_of_a_partition_are_columns(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark and pyarrow write them."""
    import pyarrow.dataset as ds

    rows = pa.Table.from_pandas(frame().assign(year=2000 + CLASSES, place="a b"), preserve_index=False)
    part = ds.partitioning(pa.schema([("year", pa.int64()), ("place", pa.string())]), flavor="hive")
    ds.write_dataset(rows, "years", format="parquet", partitioning=part)
    for stream in ("yes", "no"):
        answer = fit(Path("years"), "--stream", stream, "--out", f"run-{stream}")
        assert "5 features: a, b, c, d, year" in answer.out
        assert "  place   not used  it has one value throughout\n" in answer.out
    held, streamed = pd.read_csv("run-no/clusters.csv"), pd.read_parquet("run-yes/clusters.parquet")
    assert adjusted_rand_score(held["cluster"], streamed["cluster"]) == 1
    assert pollux("predict", "run-yes", "years", "--id", "year", "--out", "again.csv").code == 0
    again = pd.read_csv("again.csv")
    np.testing.assert_array_equal(again["cluster"], streamed["cluster"])
    assert again["year"].tolist() == sorted(2000 + CLASSES)
    # One of the folders, and a file of it, have the year too.
    (file,) = Path("years/year=2001").rglob("*.parquet")
    run, place = Path("run-yes").absolute(), file.parent
    for one, here in (("years/year=2001", "."), (file, "."), (".", place), (file.name, place)):
        with monkeypatch.context() as patch:
            patch.chdir(here)
            assert pollux("predict", run, one, "--out", run / "one.csv").code == 0
        np.testing.assert_array_equal(pd.read_csv(run / "one.csv")["cluster"], again["cluster"][again["year"] == 2001])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--model", "free"), "A free table has a row of its own for each sample"),
        (("--geometry", "shortest_path", "--objective", "wasserstein_ova"), "must look at all of them"),
        (("--label", "knid"), "knid"),
        (("--as", "id", "nmae"), "nmae"),
        (("--columns", "nothing"), "nothing"),
    ],
)
def test_what_cannot_be_streamed_is_refused_before_anything_is_written(
    table: Path, options: tuple[str, ...], told: str
) -> None:
    answer = fit(table, "--stream", "yes", *options, code=2)
    assert told in answer.err
    assert not Path("runs").exists()


def test_only_files_that_can_be_are_streamed(table: Path) -> None:
    np.savez("rows.npz", X)
    assert "not streamed" in fit(Path("rows.npz"), "--stream", "yes", code=2).err
    with pytest.raises(InputError, match="stream is one of auto, yes, no"):
        Settings(stream="maybe")
    assert fit(table, "--stream", "maybe", code=2).err


@pytest.mark.parametrize(
    ("geometry", "sampled"), [("linear", False), ("cosine", False), ("rbf", True)], ids=["linear", "cosine", "rbf"]
)
def test_samples_are_read_apart_only_for_a_geometry_that_adapts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, geometry: str, sampled: bool
) -> None:
    read: list[int] = []
    original = FileChunks.read

    def counting(self: FileChunks, number: int) -> Any:
        read.append(number)
        return original(self, number)

    monkeypatch.setattr(FileChunks, "read", counting)
    clustering(geometry=geometry, max_epochs=1).fit(in_parquet(tmp_path / "x.parquet"))
    # Twelve row groups: in the one epoch, and in the evaluation.
    assert (len(read) > 24) == sampled


def test_gaps_in_a_file_of_numbers_are_filled_as_those_of_a_frame_are(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["a", "b", "c"])
    frame[::2] += 6
    frame.loc[5:8, "b"] = np.nan
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    how: dict[str, Any] = {"model": "linear", "max_epochs": 10, "random_state": 0, "n_init": 1}
    clustering = GeminiClustering(2, **how).fit(tmp_path / "gaps.csv")
    assert clustering.encoding_ is not None
    assert "4 gaps filled" in str(clustering.columns_)
    assert clustering.predict(frame).shape == (60,)


@pytest.mark.parametrize("own", [{}, {"model": "linear", "preprocessing": "standard"}], ids=["recipe", "linear"])
def test_gaps_in_an_array_are_filled_as_those_in_memory_are(tmp_path: Path, own: dict[str, Any]) -> None:
    rows = X.copy()
    rows[5:9, 1] = np.nan
    path = in_npy(tmp_path / "rows.npy", rows)
    one = GeminiClustering(3, **own, max_epochs=3, n_init=1, random_state=0)
    streamed, held = clone(one).fit(path), clone(one).fit(rows)
    assert streamed.scaling_ is not None
    for name, expected in held.scaling_.tensors().items():
        np.testing.assert_allclose(streamed.scaling_.tensors()[name], expected, rtol=1e-6)
    np.testing.assert_array_equal(streamed.labels_, streamed.predict(rows))
    with pytest.raises(InputError, match="row 5: column '1' is missing"):
        clone(one).set_params(preprocessing=None, model="linear").fit(path)
    rows[7, 0] = np.inf
    with pytest.raises(InputError, match="row 7: column '0' is infinite"):
        clone(one).fit(in_npy(tmp_path / "rows.npy", rows))


def test_rows_far_outside_streamed_ones_are_warned_of(table: Path) -> None:
    options = ("--stream", "yes", "--model", "linear", "--objective", "mmd_ovo")
    assert fit(table, *options, "--out", "run").code == 0
    other = pd.read_parquet(table)
    other["a"] = 100 * other["a"] + 1000
    other.to_parquet("other.parquet")
    answer = pollux("predict", "run", "other.parquet", "--out", "predicted.csv")
    assert "100% of the samples lie far outside the data of the training, in 'a'" in answer.err
    assert "outside" not in pollux("predict", "run", table, "--out", "same.csv").err
