"""ONNX files: other programs find the probabilities that we find, from the columns as they are."""

import json
import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import pollux
from coverings import every_other, in_full
from flat_parameters import make_clustering
from pollux import GeminiClustering
from pollux.app.cli import main
from pollux.app.fit import start_run
from pollux.app.settings import Settings
from pollux.clustering import CollapseWarning
from pollux.data.encoding import Category, Number, TableEncoding
from pollux.errors import InputError
from pollux.fitted import Fitted
from pollux.io.onnx import to_onnx
from pollux.models import ACTIVATIONS

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pandas = pytest.importorskip("pandas")

Run = Callable[..., tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]]
TOLERANCE = 1e-5


def runner(path: Path) -> Run:
    """What onnxruntime finds in a file."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["probabilities", "cluster", "score"]
    return lambda **inputs: session.run(None, inputs)


def normal(*shape: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=shape)


def fitted(X: Any, n_clusters: int = 4, **parameters: Any) -> GeminiClustering:
    """After few small steps probabilities are neither all alike nor zeros and ones."""
    settings: dict[str, Any] = {"max_epochs": 2, "learning_rate": 1e-4, "random_state": 0, **parameters}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        return make_clustering(n_clusters, **settings).fit(X)


def assert_same(found: tuple[Any, Any, Any], clustering: GeminiClustering, rows: Any) -> None:
    probabilities, cluster, score = found
    expected = clustering.predict_proba(rows)
    assert probabilities.dtype == np.float32
    assert cluster.dtype == np.int64
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(cluster, clustering.predict(rows))
    np.testing.assert_allclose(score, clustering.score_samples(rows), rtol=1e-5)
    assert np.ptp(expected) > 0.01
    assert expected.max() < 0.9999


def assert_exported(clustering: GeminiClustering, path: Path, X: NDArray[Any], name: str = "numbers") -> str:
    """For a clustering of arrays, and batches of 1, 7 and all rows."""
    told = to_onnx(clustering, path)
    run = runner(path)
    kind = np.float32 if name == "images" else np.float64
    for n in (1, 7, len(X)):
        assert_same(run(**{name: X[:n].astype(kind)}), clustering, X[:n])
    return told


# Models from Python, without preprocessing.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear(dtype: str, tmp_path: Path) -> None:
    X = normal(1000, 5).astype(dtype)
    told = assert_exported(fitted(X, model="linear"), tmp_path / "m.onnx", X)
    assert told == "5 numbers in, 4 probabilities out"


def test_every_activation(tmp_path: Path) -> None:
    """One after each layer of a network."""
    X = normal(1000, 6).astype(np.float32)
    clustering = fitted(X, hidden=(12,) * len(ACTIVATIONS), activation=tuple(ACTIVATIONS))
    assert_exported(clustering, tmp_path / "m.onnx", X)


def test_float64_keeps_its_digits(tmp_path: Path) -> None:
    # In float32 these rows are all alike.
    X = normal(50, 3) + 1e8
    clustering = fitted(X, model="linear")
    with torch.no_grad():
        clustering.module_.bias -= clustering.module_.weight.sum(1) * 1e8
    assert_exported(clustering, tmp_path / "m.onnx", X)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lenet5(dtype: str, tmp_path: Path) -> None:
    images = normal(20, 1, 28, 28).astype(np.float32).astype(dtype)
    told = assert_exported(fitted(images, model="lenet5"), tmp_path / "m.onnx", images, "images")
    assert told == "images of 1 × 28 × 28 in, 4 probabilities out"


@in_full
def test_resnet18_is_one_file(tmp_path: Path) -> None:
    images = normal(12, 3, 8, 8).astype(np.float32)
    assert_exported(fitted(images, 2, model="resnet18", learning_rate=1e-6), tmp_path / "m.onnx", images, "images")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


class Prototypes(nn.Module):
    """Logits by distance: torch.export has no such operator, tracing does."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return -torch.cdist(x, self.numbers)


def normalised_network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 4))


@pytest.mark.parametrize("make", every_other([Prototypes, normalised_network]))
def test_a_network_of_the_users_own(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    X = normal(40, 3).astype(np.float32)
    fitted(X, model=make()).save(tmp_path / "model.safetensors")
    clustering = pollux.load(tmp_path / "model.safetensors", model=make())
    assert_exported(clustering, tmp_path / "m.onnx", X)
    # Nothing tells of the machine on which it was made.
    assert str(Path(__file__).parent).encode() not in (tmp_path / "m.onnx").read_bytes()


def test_names_of_a_data_frame_are_kept(tmp_path: Path) -> None:
    frame = pandas.DataFrame(normal(30, 2), columns=["height", "weight"])
    to_onnx(fitted(frame, model="linear"), tmp_path / "m.onnx")
    assert json.loads(metadata(tmp_path / "m.onnx")["numbers"]) == ["height", "weight"]


# Runs, with their preprocessing.


def metadata(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


def run_of(data: Path, **settings: Any) -> GeminiClustering:
    """What ``pollux fit`` makes of a file."""
    chosen: dict[str, Any] = {"n_clusters": 3, "max_epochs": 2, "learning_rate": 1e-3, "n_init": 1, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        start_run(Settings(data=str(data), **chosen), out=data.parent / "run")
    return pollux.load(data.parent / "run" / "model.safetensors")


def mixed_table(n: int = 60) -> Any:
    """Numbers, text and booleans in turn, so that their order counts; a value of text holds all sorts of signs."""
    random = np.random.default_rng(1)
    return pandas.DataFrame(
        {
            "colour": random.choice(["red", "grün", 'a "b", c'], n),
            "height": random.normal(170, 10, n),
            "fast": random.choice([True, False], n),
            "weight": random.normal(70, 5, n),
            "shape": random.choice(["round", "flat"], n),
        }
    )


def table_inputs(frame: Any) -> dict[str, NDArray[Any]]:
    names = frame[["colour", "fast", "shape"]]
    return {
        "numbers": frame[["height", "weight"]].to_numpy(np.float64),
        "categories": np.where(names.isna(), "", names.astype(str)).astype(object),
    }


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[GeminiClustering, Run, Path]:
    """A run on a table that lacks values, and its file."""
    folder = tmp_path_factory.mktemp("mixed")
    frame = mixed_table()
    frame.loc[3, "height"] = None
    frame.loc[[4, 5], "colour"] = None
    frame.to_csv(folder / "data.csv", index=False)
    clustering = run_of(folder / "data.csv", missing="mean")
    assert to_onnx(clustering, folder / "m.onnx") == "2 numbers and 3 texts in, 3 probabilities out"
    return clustering, runner(folder / "m.onnx"), folder / "m.onnx"


@pytest.mark.parametrize("n", [1, 7, 1000])
def test_numbers_text_and_booleans(n: int, mixed: tuple[GeminiClustering, Run, Path]) -> None:
    clustering, run, _ = mixed
    frame = mixed_table(n)
    assert_same(run(**table_inputs(frame)), clustering, frame)


@pytest.mark.filterwarnings("ignore::pollux.data.encoding.UnseenWarning")
def test_missing_and_unknown_values(mixed: tuple[GeminiClustering, Run, Path]) -> None:
    clustering, run, _ = mixed
    frame = mixed_table(6).astype({"fast": object})
    for row, column in enumerate(["colour", "height", "fast"]):
        frame.loc[row, column] = None
    frame.loc[3, "shape"] = "square"
    assert_same(run(**table_inputs(frame)), clustering, frame)


def test_booleans_may_be_spelt_as_programs_spell_them(mixed: tuple[GeminiClustering, Run, Path]) -> None:
    _, run, _ = mixed
    inputs = table_inputs(mixed_table(1))
    found = {}
    for text in ("true", "True", "1", "false", "False", "0", "perhaps"):
        inputs["categories"][:, 1] = text
        found[text] = run(**inputs)[0]
    for truth, others in {"true": ("True", "1"), "false": ("False", "0")}.items():
        assert all((found[truth] == found[other]).all() for other in others)
    assert (found["true"] != found["false"]).any()
    assert np.isnan(found["perhaps"]).all()


def test_the_metadata_name_the_columns(mixed: tuple[GeminiClustering, Run, Path]) -> None:
    told = metadata(mixed[2])
    assert json.loads(told["numbers"]) == ["height", "weight"]
    assert json.loads(told["categories"]) == ["colour", "fast", "shape"]
    assert json.loads(told["values"])["fast"] == ["false", "true"]
    assert json.loads(told["clusters"]) == [0, 1, 2]
    assert told["missing"] == "mean"
    assert told["pollux_version"] == pollux.__version__


@pytest.mark.parametrize("offset", [0, 1e6, 1e8])
def test_large_numbers_keep_their_digits(offset: float, tmp_path: Path) -> None:
    frame = pandas.DataFrame(normal(1000, 4) + offset, columns=list("abcd"))
    frame.to_csv(tmp_path / "data.csv", index=False)
    clustering = run_of(tmp_path / "data.csv")
    assert to_onnx(clustering, tmp_path / "m.onnx") == "4 numbers in, 3 probabilities out"
    assert_same(runner(tmp_path / "m.onnx")(numbers=frame.to_numpy()), clustering, frame)


def test_rows_that_would_be_refused_have_no_cluster(tmp_path: Path) -> None:
    X = normal(50, 3)
    np.save(tmp_path / "data.npy", X)
    for name, clustering in {
        "raw": fitted(X.astype(np.float32)),
        "run": run_of(tmp_path / "data.npy", missing="error"),
    }.items():
        to_onnx(clustering, tmp_path / f"{name}.onnx")
        rows = X[:6].copy()
        rows[1, 2], rows[2, 0], rows[3, 1], rows[4, 1] = np.nan, np.inf, -np.inf, 1e300
        probabilities, cluster, score = runner(tmp_path / f"{name}.onnx")(numbers=rows)
        np.testing.assert_array_equal(np.isnan(probabilities).all(1), [False, True, True, True, True, False])
        np.testing.assert_array_equal(cluster[1:5], -1)
        assert not np.isfinite(score[1:5]).any()
        assert_same((probabilities[[0, 5]], cluster[[0, 5]], score[[0, 5]]), clustering, rows[[0, 5]])


def test_missing_text_is_refused_where_training_had_none(tmp_path: Path) -> None:
    mixed_table().to_csv(tmp_path / "data.csv", index=False)
    to_onnx(run_of(tmp_path / "data.csv", missing="drop"), tmp_path / "m.onnx")
    inputs = table_inputs(mixed_table(3))
    inputs["categories"][1, 0] = ""
    probabilities, cluster, _ = runner(tmp_path / "m.onnx")(**inputs)
    assert np.isnan(probabilities[1]).all()
    assert np.isfinite(probabilities[[0, 2]]).all()
    assert cluster[1] == -1


def test_a_table_of_text_alone(tmp_path: Path) -> None:
    frame = mixed_table()[["colour", "shape"]]
    frame.to_csv(tmp_path / "data.csv", index=False)
    clustering = run_of(tmp_path / "data.csv")
    assert to_onnx(clustering, tmp_path / "m.onnx") == "2 texts in, 3 probabilities out"
    assert_same(runner(tmp_path / "m.onnx")(categories=frame.to_numpy(object)), clustering, frame)


@pytest.mark.filterwarnings("ignore::pollux.data.encoding.UnseenWarning")
def test_empty_text_may_be_a_value(tmp_path: Path) -> None:
    clustering = fitted(normal(40, 3).astype(np.float32), model="linear")
    # A column of numbers whose name looks like that of a value.
    columns = (Category("a", ("", "b"), (0.25, 0.75)), Number("a=b", 2.0, 3.0))
    encoding = TableEncoding(columns, missing="mean")
    clustering.fitted_ = replace(clustering.fitted_, encoding=encoding)
    to_onnx(clustering, tmp_path / "m.onnx")
    frame = pandas.DataFrame({"a": ["", "b", "c"], "a=b": [1.0, 2.0, 4.0]})
    inputs = {"numbers": frame[["a=b"]].to_numpy(), "categories": frame[["a"]].to_numpy(object)}
    assert_same(runner(tmp_path / "m.onnx")(**inputs), clustering, frame)


@pytest.mark.parametrize("scaling", ["standard", "none"])
def test_arrays_with_columns_that_are_not_used(tmp_path: Path, scaling: str) -> None:
    X = normal(100, 5) * 2 + 3
    X[:, 1] = 7
    X[2, 3] = np.nan
    np.save(tmp_path / "data.npy", X)
    clustering = run_of(tmp_path / "data.npy", missing="mean", scaling=scaling, drop=("4",))
    assert assert_exported(clustering, tmp_path / "m.onnx", X) == "5 numbers in, 3 probabilities out"
    assert json.loads(metadata(tmp_path / "m.onnx")["ignored"]) == ["1", "4"]


def test_gaps_of_columns_that_are_not_scaled(tmp_path: Path) -> None:
    frame = pandas.DataFrame(normal(50, 3) + np.array([0, 5, 50]), columns=list("abc"))
    frame.iloc[3, 1] = np.nan
    frame.to_csv(tmp_path / "data.csv", index=False)
    clustering = run_of(tmp_path / "data.csv", missing="mean", scaling="none")
    to_onnx(clustering, tmp_path / "m.onnx")
    assert_same(runner(tmp_path / "m.onnx")(numbers=frame.to_numpy()), clustering, frame)


def test_images_in_bytes(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, size=(30, 2, 5, 5), dtype=np.uint8)
    np.save(tmp_path / "data.npy", images)
    clustering = run_of(tmp_path / "data.npy", missing="mean")
    told = assert_exported(clustering, tmp_path / "m.onnx", images, "images")
    assert told == "images of 2 × 5 × 5 in, 3 probabilities out"


def test_the_command(mixed: tuple[GeminiClustering, Run, Path], capfd: pytest.CaptureFixture[str]) -> None:
    folder = mixed[2].parent
    out = folder / "by_command.onnx"
    assert main(["export", str(folder / "run"), "--onnx", str(out)]) == 0
    printed, errors = capfd.readouterr()
    assert printed == f"model written to {out}: 2 numbers and 3 texts in, 3 probabilities out\n"
    assert errors == ""
    assert out.read_bytes() == mixed[2].read_bytes()


# What goes wrong, and what must not be heard or left behind.


def test_nothing_is_printed_and_nothing_changes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    X = normal(30, 3).astype(np.float32)
    clusterings = [fitted(X), fitted(X, model=normalised_network())]
    before = [copied_weights(clustering) for clustering in clusterings]
    state, level = torch.get_rng_state(), logging.root.manager.disable
    for clustering in clusterings:
        to_onnx(clustering, tmp_path / "m.onnx")
    assert capfd.readouterr() == ("", "")
    assert torch.equal(torch.get_rng_state(), state)
    assert logging.root.manager.disable == level
    for clustering, weights in zip(clusterings, before, strict=True):
        assert all(torch.equal(weights[name], value) for name, value in clustering.module_.state_dict().items())
        assert all(weight.requires_grad for weight in clustering.module_.parameters())


def copied_weights(clustering: GeminiClustering) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in clustering.module_.state_dict().items()}


def test_a_free_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot predict new samples"):
        to_onnx(fitted(normal(20, 2), model="free"), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    clustering = fitted(normal(20, 2), model="linear")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        to_onnx(clustering, tmp_path / "nowhere" / "m.onnx")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        to_onnx(clustering, tmp_path)
    assert not list(tmp_path.iterdir())


class Moody(nn.Linear):
    """What it does depends on its input."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


def test_a_network_that_cannot_be_translated(tmp_path: Path) -> None:
    clustering = fitted(normal(20, 2).astype(np.float32), model=Moody(2, 4))
    (tmp_path / "m.onnx").write_text("an older file")
    with pytest.raises(InputError, match="cannot be written as ONNX") as caught:
        to_onnx(clustering, tmp_path / "m.onnx")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert (tmp_path / "m.onnx").read_text() == "an older file"


def test_a_file_that_finds_other_probabilities_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clustering = fitted(normal(20, 2), model="linear")
    own = Fitted.probabilities
    monkeypatch.setattr(Fitted, "probabilities", lambda self, X: own(self, X) + 2e-5)
    with pytest.raises(RuntimeError, match="other probabilities than pollux"):
        to_onnx(clustering, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_without_onnx_the_user_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clustering = fitted(normal(20, 2), model="linear")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'pollux\[onnx\]'"):
        to_onnx(clustering, tmp_path / "m.onnx")


def test_without_onnxruntime_the_file_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = normal(20, 2)
    clustering = fitted(X, model="linear")
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, "onnxruntime", None)
        to_onnx(clustering, tmp_path / "m.onnx")
    assert_same(runner(tmp_path / "m.onnx")(numbers=X), clustering, X)


def test_three_kinds_of_columns_are_told_with_a_comma(tmp_path: Path) -> None:
    frame = mixed_table()
    frame["day"] = pandas.date_range("2020-01-01", periods=len(frame), freq="37h")
    frame.to_csv(tmp_path / "data.csv", index=False)
    told = to_onnx(run_of(tmp_path / "data.csv"), tmp_path / "m.onnx")
    assert told == "2 numbers, 3 texts and 1 time in, 3 probabilities out"
