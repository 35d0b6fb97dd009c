"""Data with known classes: made up, of images, of tables; where it is found, and how it is fetched."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from pollux.app.cli import main
from pollux.errors import InputError
from pollux.io import atomic
from pollux.lab import datasets, datasets_command
from pollux.lab.datasets import archives, catalogue, image_sets
from pollux.metrics import adjusted_rand_index

REAL = Path(os.environ.get("POLLUX_DATA") or "nowhere")
every_generator = pytest.mark.parametrize("name", datasets.SYNTHETIC)
random = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that POLLUX_DATA names, and a cache folder of our own."""
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("POLLUX_DATA", str(data))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(archives, "cache_folder", lambda: tmp_path / "cache" / "pollux")
    return data


def command(*arguments: str) -> int:
    """``pollux datasets`` with these arguments."""
    parser = argparse.ArgumentParser()
    datasets_command.add(parser.add_subparsers())
    options = parser.parse_args(["datasets", *arguments])
    return int(options.run(options))


# Made up


@every_generator
def test_samples_and_classes_have_their_shapes_and_types(name: str) -> None:
    X, y = datasets.SYNTHETIC[name](120, random_state=0)
    assert X.shape[0] == y.shape[0] == 120
    assert (X.ndim, y.ndim) == (2, 1)
    assert (X.dtype, y.dtype) == (np.float64, np.int64)
    assert np.isfinite(X).all()


@every_generator
def test_classes_are_balanced_and_mixed(name: str) -> None:
    _, y = datasets.SYNTHETIC[name](1200, random_state=0)
    counts = np.bincount(y)
    assert len(counts) > 1
    assert counts.min() > 0.8 * 1200 / len(counts)
    # Sorted by class, half of the rows would lack some.
    assert set(y[:100]) == set(y)


@every_generator
def test_a_seed_gives_the_same_samples(name: str) -> None:
    make = datasets.SYNTHETIC[name]
    first, again, other = make(50, random_state=3), make(50, random_state=3), make(50, random_state=4)
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])
    generator = np.random.RandomState(3)
    assert np.array_equal(first[0], make(50, random_state=generator)[0])
    assert not np.array_equal(first[0], make(50, random_state=generator)[0])
    assert not np.array_equal(make(50)[0], make(50)[0])


@every_generator
def test_the_state_of_numpy_is_left_alone(name: str) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    datasets.SYNTHETIC[name](50, random_state=3)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@every_generator
@pytest.mark.parametrize("n_samples", [0, -1, 2.5, True, "100"])
def test_a_number_of_samples_that_is_none_is_refused(name: str, n_samples: Any) -> None:
    with pytest.raises(InputError, match="n_samples must be a positive whole number"):
        datasets.SYNTHETIC[name](n_samples)


@every_generator
def test_a_seed_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="seed"):
        datasets.SYNTHETIC[name](50, random_state="zero")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(datasets.blobs, std=-1), "std must be a number from 0 up"),
        (partial(datasets.blobs, centres=[1, 2]), "one row per cluster"),
        (partial(datasets.blobs, centres=[[np.nan, 2]]), "finite"),
        (partial(datasets.blobs, 2), "2 samples cannot be shared among 3 clusters"),
        (partial(datasets.moons, radius=0), "radius must be a positive number"),
        (partial(datasets.moons, noise=float("nan")), "noise must be a number from 0 up"),
        (partial(datasets.circles, radii=()), "one cluster at least"),
        (partial(datasets.circles, radii=(1, -1)), "each of the radii must be a positive number"),
        (partial(datasets.celeux_one, n_noise=-1), "n_noise must be a whole number"),
        (partial(datasets.celeux_one, mu=0), "mu must be a positive number"),
        (partial(datasets.gaussian_student_mixture, alpha=float("inf")), "alpha must be a positive number"),
        (partial(datasets.gaussian_student_mixture, sigma=0), "sigma must be a positive number"),
        (partial(datasets.gaussian_student_mixture, degrees_of_freedom=0), "degrees_of_freedom must be a positive"),
        (partial(datasets.gaussian_student_oracle, np.zeros((3, 3))), r"\(n, 2\)"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        ([0, 0], np.eye(3), r"must be \(d,\) and \(d, d\)"),
        ([0, 0], [[1, 2], [0, 1]], "symmetric"),
        ([0, 0], [1, 1], "symmetric"),
        ([0, 0], [[1, 2], [2, 1]], "negative eigenvalues"),
    ],
)
def test_no_student_without_a_covariance(mean: Any, covariance: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        datasets.multivariate_student(3, mean=mean, covariance=covariance, degrees_of_freedom=1)


def test_moons_are_half_circles_that_interlock() -> None:
    X, y = datasets.moons(1001, noise=0, random_state=0)
    upper, lower = X[y == 0] - [1, -0.5], X[y == 1] - [-1, 0.5]
    assert np.allclose(np.hypot(*upper.T), 2)
    assert np.allclose(np.hypot(*lower.T), 2)
    assert upper[:, 1].min() >= 0 >= lower[:, 1].max()
    assert len(upper) == len(lower) + 1
    # One end of each lies in the bowl of the other, halfway between its rim and its bottom.
    (left,) = X[y == 0][[X[y == 0][:, 0].argmin()]]
    (right,) = X[y == 1][[X[y == 1][:, 0].argmax()]]
    assert np.allclose(left, [-1, -0.5], atol=0.05)
    assert np.allclose(right, [1, 0.5], atol=0.05)


def test_noise_and_standard_deviation_are_what_they_say() -> None:
    X, y = datasets.blobs(30_000, std=0.5, random_state=0)
    assert np.allclose([X[y == cluster].std(axis=0) for cluster in range(3)], 0.5, atol=0.02)
    X, y = datasets.circles(20_000, noise=0.05, random_state=0)
    assert (np.hypot(*X.T) - np.array([1, 2])[y]).std() == pytest.approx(0.05, rel=0.05)


def test_a_student_distribution_has_its_covariance() -> None:
    covariance = np.array([[2.0, 0.8], [0.8, 1.0]])
    X = datasets.multivariate_student(
        200_000, mean=[1, -1], covariance=covariance, degrees_of_freedom=10, random_state=0
    )
    assert np.allclose(X.mean(axis=0), [1, -1], atol=0.02)
    assert np.allclose(np.cov(X.T), covariance * 10 / 8, atol=0.05)


@pytest.mark.parametrize(
    ("degrees_of_freedom", "farthest", "oracle"), [(1.0, 2585.67, 0.989), (2.0, 64.81, 0.991)], ids=["1", "2"]
)
def test_the_mixture_is_that_of_the_paper(degrees_of_freedom: float, farthest: float, oracle: float) -> None:
    X, y = datasets.gaussian_student_mixture(degrees_of_freedom=degrees_of_freedom, random_state=0)
    assert np.abs(X).max() == pytest.approx(farthest, abs=0.01)
    best = datasets.gaussian_student_oracle(X, degrees_of_freedom=degrees_of_freedom)
    assert round(adjusted_rand_index(y, best), 3) == oracle


def test_other_methods_score_what_the_paper_reports_on_the_mixture() -> None:
    X, y = datasets.gaussian_student_mixture(degrees_of_freedom=2.0, random_state=0)
    models = {
        "k-means": KMeans(4, n_init=3, random_state=0),
        "full": GaussianMixture(4, covariance_type="full", random_state=0),
        "diagonal": GaussianMixture(4, covariance_type="diag", random_state=0),
    }
    scores = {name: adjusted_rand_index(y, model.fit_predict(X)) for name, model in models.items()}
    assert scores == pytest.approx({"k-means": 0.965, "full": 0.972, "diagonal": 0.973}, abs=6e-4)


def test_the_variance_of_the_mixture_is_sigma() -> None:
    X, y = datasets.gaussian_student_mixture(40_000, sigma=4.0, alpha=3.0, random_state=0)
    for cluster, mean in enumerate([(3, 3), (3, -3), (-3, 3)]):
        assert np.allclose(X[y == cluster].mean(axis=0), mean, atol=0.1)
        assert np.allclose(np.cov(X[y == cluster].T), 4 * np.eye(2), atol=0.2)


def test_the_oracle_knows_the_densities() -> None:
    from scipy.stats import multivariate_normal, multivariate_t

    X = random.normal(scale=8, size=(500, 2))
    means = [(2, 2), (2, -2), (-2, 2), (-2, -2)]
    densities = [multivariate_normal(mean, 3 * np.eye(2)).logpdf(X) for mean in means[:3]]
    densities.append(multivariate_t(means[3], 3 * np.eye(2), df=1.5).logpdf(X))
    labels = datasets.gaussian_student_oracle(X, alpha=2.0, sigma=3.0, degrees_of_freedom=1.5)
    assert np.array_equal(labels, np.argmax(densities, axis=0))


def test_celeux_one_has_five_variables_that_tell() -> None:
    X, y = datasets.celeux_one(60_000, n_noise=3, mu=1.2, random_state=0)
    for cluster, mean in enumerate([1.2, -1.2, 0]):
        assert np.allclose(X[y == cluster].mean(axis=0), [*5 * [mean], *3 * [0]], atol=0.04)
        assert np.allclose(np.cov(X[y == cluster].T), np.eye(8), atol=0.04)
    assert datasets.celeux_one(10, n_noise=0)[0].shape == (10, 5)


def test_celeux_two_has_its_moments() -> None:
    X, y = datasets.celeux_two(200_000, random_state=0)
    for cluster, mean in enumerate([(0, 0), (4, 0), (0, 2), (4, 2)]):
        assert np.allclose(X[y == cluster, :2].mean(axis=0), mean, atol=0.03)
    telling = np.column_stack([np.ones(len(X)), X[:, :2]])
    found = np.linalg.lstsq(telling, X[:, 2:], rcond=None)[0]
    assert np.allclose(found[0], [0, 0, 0.4, 0.8, 1.2, 1.6, 2, 2.4, 2.8, 3.2, 3.6, 4], atol=0.05)
    assert np.allclose(found[1], [0.5, 2, 0, -1, 2, 0.5, 4, 3, 2, 0, 0, 0], atol=0.02)
    assert np.allclose(found[2], [1, 0, 3, 2, -4, 0, 0.5, 0, 1, 0, 0, 0], atol=0.02)
    expected = np.diag([1, 1, 1, 0.5, 0.5, 2.5, 1.5, 3, 5, 1, 1, 1])
    expected[5, 6] = expected[6, 5] = np.sqrt(3) / 2
    expected[7, 8] = expected[8, 7] = np.sqrt(3)
    assert np.allclose(np.cov((X[:, 2:] - telling @ found).T), expected, atol=0.06)


# Where data lies


def test_the_cache_folder_is_that_of_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    for platform, expected in (
        ("linux", tmp_path / "elsewhere" / "pollux"),
        ("darwin", tmp_path / "Library" / "Caches" / "pollux"),
        ("win32", tmp_path / "local" / "pollux" / "Cache"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert archives.cache_folder() == expected
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert archives.cache_folder() == tmp_path / ".cache" / "pollux"


def test_the_named_folder_comes_before_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = archives.cache_folder() / "mnist.npz"
    cached.parent.mkdir(parents=True)
    save_images(cached)
    assert archives.find_file("mnist.npz") == cached
    save_images(folder / "mnist.npz")
    assert archives.find_file("mnist.npz") == folder / "mnist.npz"
    monkeypatch.delenv("POLLUX_DATA")
    assert archives.find_file("mnist.npz") == cached


# Images


def image_arrays(shape: tuple[int, ...] = (28, 28)) -> dict[str, Any]:
    return {
        "x_train": random.integers(0, 256, size=(20, *shape), dtype=np.uint8),
        "y_train": random.integers(0, 10, size=20, dtype=np.uint8),
        "x_test": random.integers(0, 256, size=(10, *shape), dtype=np.uint8),
        "y_test": random.integers(0, 10, size=10, dtype=np.uint8),
    }


def save_images(path: Path, **changed: Any) -> dict[str, Any]:
    arrays = image_arrays() | changed
    np.savez_compressed(path, **arrays)
    return arrays


@pytest.mark.parametrize("name", datasets.IMAGES)
def test_images_are_read_as_they_are(name: str, folder: Path) -> None:
    arrays = image_arrays(datasets.IMAGES[name].shape)
    np.savez(folder / f"{name}.npz", **arrays)
    images = datasets.load_images(name)
    assert images.name == name
    assert len(images.class_names) == 10
    for key, array in arrays.items():
        assert np.array_equal(getattr(images, key), array)
    assert (images.x_test.dtype, images.y_test.dtype) == (np.uint8, np.int64)
    assert "array" not in repr(images)


def test_classes_may_be_a_column(folder: Path) -> None:
    save_images(folder / "mnist.npz", y_test=np.arange(10)[:, None])
    assert np.array_equal(datasets.load_images("mnist").y_test, np.arange(10))


def test_images_that_are_not_here_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"MNIST is not .* `pollux datasets fetch mnist` \(12 MB\), or put mnist.npz"):
        datasets.load_images("mnist")
    monkeypatch.setenv("POLLUX_DATA", "/no/such/folder")
    with pytest.raises(InputError, match="POLLUX_DATA names /no/such/folder, and there is no such folder"):
        datasets.load_images("cifar10")


def test_an_unknown_name_of_images_is_refused() -> None:
    with pytest.raises(InputError, match=r"mnist, fashion_mnist, cifar10\. Did you mean 'mnist'"):
        datasets.load_images("MNIST")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_train": np.zeros((20, 28, 27), np.uint8)}, r"x_train must be uint8 of the shape \(n, 28, 28\)"),
        ({"x_train": np.zeros((20, 784), np.uint8)}, "x_train must be uint8"),
        ({"x_test": np.zeros((10, 28, 28))}, "x_test must be uint8"),
        ({"y_train": np.zeros(19, np.uint8)}, "y_train must be 20 whole numbers"),
        ({"y_train": np.zeros(20)}, "y_train must be 20 whole numbers"),
        ({"y_test": np.full(10, 10)}, "from 0 to 9, but go from 10 to 10"),
        ({"x_test": np.array([{}], dtype=object)}, "damaged or something else"),
    ],
)
def test_other_arrays_are_refused_with_the_name_of_the_file(changed: Any, message: str, folder: Path) -> None:
    save_images(folder / "mnist.npz", **changed)
    with pytest.raises(InputError, match=message) as caught:
        datasets.load_images("mnist")
    assert str(folder / "mnist.npz") in str(caught.value)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "text", "empty", "one array", "lacking"])
def test_damaged_files_are_refused_with_their_names(damage: str, folder: Path) -> None:
    path = folder / "mnist.npz"
    save_images(path)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 4] ^= 255
        path.write_bytes(content)
    elif damage == "text":
        path.write_text("<html>404</html>")
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "one array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        np.savez(path, x_train=np.zeros(3))
    with pytest.raises(InputError, match=r"damaged or something else|no array called y_train") as caught:
        datasets.load_images("mnist")
    assert str(path) in str(caught.value)


def npy(header: bytes) -> bytes:
    """An array that consists of its header alone."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


PETABYTES = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000, 1000), }\n"


@pytest.mark.parametrize(
    "member",
    [
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, }\n"),
        npy(b"{'descr': (), 'fortran_order': False, 'shape': (3,), }\n"),
        npy(b"{'descr': '<f8', 'shape': (3,), }\n"),
        npy(b"((((((((((((((((((((((((((\n"),
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999,), }\n"),
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n"),
        npy(PETABYTES),
        b"",
    ],
    ids=["open bracket", "no type", "lacking", "brackets", "huge", "overflow", "petabytes", "empty"],
)
def test_arrays_with_broken_headers_are_refused(member: bytes, folder: Path) -> None:
    path = folder / "mnist.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x_train.npy", member)
    with pytest.raises(InputError, match=r"mnist\.npz"):
        datasets.load_images("mnist")
    # A damaged file does not hide the others.
    assert command("list") == 0


def test_an_encrypted_file_is_refused(folder: Path) -> None:
    path = folder / "mnist.npz"
    save_images(path)
    content = path.read_bytes()
    # The lowest bit of the flags, six bytes after the signature of a member and eight after that in the directory.
    for signature, distance in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.index(signature) + distance
        content = content[:start] + bytes([content[start] | 1]) + content[start + 1 :]
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"mnist\.npz cannot be read .*encrypted"):
        datasets.load_images("mnist")


@pytest.mark.parametrize("error", [OSError(22, "Invalid argument"), OSError(5, "Input/output error")])
def test_an_error_of_the_system_names_the_file(error: OSError, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise error

    save_images(folder / "mnist.npz")
    monkeypatch.setattr(zipfile.ZipFile, "open", fails)
    with pytest.raises(InputError, match=rf"mnist\.npz cannot be read .*{error.strerror}"):
        datasets.load_images("mnist")


@pytest.mark.skipif(not (REAL / "mnist.npz").is_file(), reason="MNIST is not here")
def test_the_real_digits_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLLUX_DATA", str(REAL))
    images = datasets.load_images("mnist")
    assert images.x_train.shape == (60_000, 28, 28)
    assert images.x_test.shape == (10_000, 28, 28)
    assert images.y_train[:5].tolist() == [5, 0, 4, 1, 9]


# Tables


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("iris", (150, 4), 3), ("wine", (178, 13), 3), ("breast_cancer", (569, 30), 2), ("digits", (1797, 64), 10)],
)
def test_the_tables_of_scikit_learn_are_there(name: str, shape: tuple[int, int], classes: int) -> None:
    table = datasets.load_table(name)
    assert table.X.shape == shape
    assert (table.X.dtype, table.y.dtype) == (np.float64, np.int64)
    assert len(table.class_names) == classes == len(np.unique(table.y))
    assert len(table.feature_names) == shape[1]


@pytest.fixture
def tabular(folder: Path) -> Path:
    (folder / "tabular").mkdir()
    return folder / "tabular"


def test_a_table_of_ones_own_is_read(tabular: Path) -> None:
    X = np.array([[1, 2], [3, np.nan], [5, 6]])
    np.savez(
        tabular / "mine.npz", X=X, y=np.array([0, 1, 0], np.int16), class_names=["a", "b"], feature_names=["u", "v"]
    )
    table = datasets.load_table("mine")
    assert np.array_equal(table.X, X, equal_nan=True)
    assert (table.class_names, table.feature_names) == (("a", "b"), ("u", "v"))
    assert table.y.tolist() == [0, 1, 0]
    assert datasets.table_names() == ["iris", "wine", "breast_cancer", "digits", "mine"]


def test_names_of_columns_and_classes_may_lack(tabular: Path) -> None:
    np.savez(tabular / "bare.npz", X=np.zeros((3, 2), np.uint8), y=[0, 2, 1])
    table = datasets.load_table("bare")
    assert (table.class_names, table.feature_names) == (("0", "1", "2"), ("column_0", "column_1"))
    assert table.X.dtype == np.float64


def test_a_sparse_table_stays_sparse(tabular: Path) -> None:
    matrix = scipy.sparse.csr_array(np.array([[0, 1.5, 0], [2, 0, 0]], np.float32))
    parts = {"data": matrix.data, "indices": matrix.indices.astype(np.int16), "indptr": matrix.indptr}
    np.savez(tabular / "texts.npz", **parts, shape=[2, 3], y=[0, 1])
    table = datasets.load_table("texts")
    assert isinstance(table.X, scipy.sparse.csr_array)
    assert np.array_equal(table.X.toarray(), matrix.toarray())
    np.savez(tabular / "texts.npz", **parts, shape=[2, 1], y=[0, 1])
    with pytest.raises(InputError, match="not a CSR matrix"):
        datasets.load_table("texts")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X": np.zeros(3)}, "X must be a table of numbers"),
        ({"X": np.array([["a"], ["b"]])}, "X must be a table of numbers"),
        ({"y": [0, 1, 2]}, "y must be 2 whole numbers"),
        ({"y": [0.5, 1]}, "y must be 2 whole numbers"),
        ({"y": [-1, 1]}, "from 0 up"),
        ({"y": np.array([0, 2**64 - 1], np.uint64)}, "from 0 up"),
        ({"y": [0, 2**62]}, "class_names"),
        ({"class_names": "ab"}, "class_names must be a list"),
        ({"class_names": [["a", "b"]]}, "class_names must be a list"),
        ({"feature_names": "ab"}, "feature_names must be a list"),
        ({"class_names": ["a"]}, "only 1 class_names"),
        ({"class_names": np.zeros(0, "U1")}, "only 0 class_names"),
        ({"feature_names": ["a"]}, "2 columns, but there are 1 feature_names"),
        ({"y": None}, "no array called y"),
        ({"X": None}, "no array called X"),
    ],
)
def test_other_tables_are_refused_with_the_name_of_the_file(changed: Any, message: str, tabular: Path) -> None:
    arrays = {"X": np.zeros((2, 2)), "y": [0, 1]} | changed
    np.savez(tabular / "bad.npz", **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(InputError, match=message) as caught:
        datasets.load_table("bad")
    assert "bad.npz" in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"indices": np.array([1, 2**32], np.int64)},
        {"indices": np.array([1, 2**64 - 1], np.uint64)},
        {"indices": np.array([1, 2**63], np.uint64)},
        {"indices": [1.5, 0]},
        {"indices": [[1, 0]]},
        {"indptr": [0, 1, 1.5]},
        {"indptr": np.array([0, 1, 2**32 + 2])},
        {"indptr": 3},
        {"data": ["a", "b"]},
        {"data": ["1", "2"]},
        {"data": [1j, 2]},
        {"data": 1.0},
        {"shape": 2},
        {"shape": [2]},
        {"shape": [2, 3, 1]},
        {"shape": [2.0, 3.0]},
        {"shape": [-2, 3]},
        {"shape": ["2", "3"]},
        {"shape": [2, 0], "data": [], "indices": np.zeros(0, int), "indptr": [0, 0, 0]},
        {"shape": [0, 3], "data": [], "indices": np.zeros(0, int), "indptr": [0], "y": np.zeros(0, int)},
    ],
)
def test_other_sparse_tables_are_refused_with_the_name_of_the_file(changed: Any, tabular: Path) -> None:
    whole = {"data": [1.5, 2.0], "indices": [1, 0], "indptr": [0, 1, 2], "shape": [2, 3], "y": [0, 1]}
    np.savez(tabular / "texts.npz", **(whole | changed))
    with pytest.raises(InputError, match=r"texts\.npz.*CSR matrix"):
        datasets.load_table("texts")


def test_a_sparse_table_may_have_indices_of_any_type(tabular: Path) -> None:
    parts = {
        "data": np.array([True, True]),
        "indices": np.array([1, 0], np.uint64),
        "indptr": np.array([0, 1, 2], np.int8),
    }
    np.savez(tabular / "texts.npz", **parts, shape=[2, 3], y=[0, 1])
    assert datasets.load_table("texts").X.toarray().tolist() == [[0, 1, 0], [1, 0, 0]]


def test_more_columns_than_can_have_names_are_refused(tabular: Path) -> None:
    np.savez(tabular / "wide.npz", data=[1.0], indices=[2**40 - 1], indptr=[0, 1], shape=[1, 2**40], y=[0])
    with pytest.raises(InputError, match=r"wide\.npz.*feature_names"):
        datasets.load_table("wide")


@pytest.mark.parametrize("name", ["", "../mnist", "a/b"])
def test_a_table_has_a_plain_name(name: str, folder: Path, tabular: Path) -> None:
    save_images(folder / "mnist.npz")
    with pytest.raises(InputError, match="There is no table"):
        datasets.load_table(name)


def test_an_unknown_table_names_those_there_are() -> None:
    with pytest.raises(InputError, match=r"iris, wine, breast_cancer, digits.*Did you mean 'wine'"):
        datasets.load_table("wime")


# Fetching


class Quiet(SimpleHTTPRequestHandler):
    promised = 0
    """How many bytes more than there are the server announces."""

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def send_header(self, keyword: str, value: str) -> None:
        super().send_header(keyword, str(int(value) + self.promised) if keyword == "Content-Length" else value)


@pytest.fixture
def published(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a server on this machine, and the folder that it serves."""
    folder = tmp_path / "published"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", folder
        server.shutdown()
        thread.join()


def idx(array: Any) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(head + array.tobytes())


def digit_files(arrays: dict[str, Any]) -> dict[str, bytes]:
    names = {"x_train": "train-images-idx3", "y_train": "train-labels-idx1"}
    names |= {"x_test": "t10k-images-idx3", "y_test": "t10k-labels-idx1"}
    return {f"{name}-ubyte.gz": idx(arrays[key]) for key, name in names.items()}


def cifar_file(arrays: dict[str, Any], test_batch: str = "test_batch.bin") -> dict[str, bytes]:
    def batch(x: Any, y: Any) -> bytes:
        return np.column_stack([y, x.transpose(0, 3, 1, 2).reshape(len(x), -1)]).tobytes()

    batches = {
        f"data_batch_{number + 1}.bin": batch(arrays["x_train"][4 * number :][:4], arrays["y_train"][4 * number :][:4])
        for number in range(5)
    }
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in (batches | {test_batch: batch(arrays["x_test"], arrays["y_test"])}).items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return {"cifar-10-binary.tar.gz": stream.getvalue()}


@pytest.fixture
def publish(published: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Serve these files as a data set, with their checksums unless others are given."""
    base, folder = published

    def publish(name: str, files: dict[str, bytes], **checksums: str) -> None:
        for file, content in files.items():
            (folder / file).write_bytes(content)
        known = {file: hashlib.md5(content).hexdigest() for file, content in files.items()}
        source = image_sets.Source(base, known | checksums, image_sets.SOURCES[name].convert)
        monkeypatch.setitem(image_sets.SOURCES, name, source)

    return publish


def nothing_left(folder: Path) -> bool:
    return not folder.exists() or not list(folder.iterdir())


@pytest.mark.parametrize("name", datasets.IMAGES)
def test_images_are_fetched_and_then_found(name: str, publish: Any, folder: Path) -> None:
    arrays = image_arrays(datasets.IMAGES[name].shape)
    publish(name, cifar_file(arrays) if name == "cifar10" else digit_files(arrays))
    path = datasets.fetch(name)
    assert path == folder / f"{name}.npz"
    assert [file.name for file in folder.iterdir()] == [path.name]
    images = datasets.load_images(name)
    for key, array in arrays.items():
        assert np.array_equal(getattr(images, key), array)


def test_without_the_variable_images_go_to_the_cache(
    publish: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish("mnist", digit_files(image_arrays()))
    monkeypatch.delenv("POLLUX_DATA")
    assert datasets.fetch("mnist") == archives.cache_folder() / "mnist.npz"
    assert nothing_left(folder)
    assert datasets.load_images("mnist").x_train.shape == (20, 28, 28)


def test_a_file_that_is_not_the_published_one_is_refused(publish: Any, folder: Path) -> None:
    publish("mnist", digit_files(image_arrays()), **{"t10k-labels-idx1-ubyte.gz": "0" * 32})
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte.gz is not the file that was published"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "no gzip": lambda _: b"<html>moved</html>",
    "other numbers": lambda _: gzip.compress(b"\x00\x00\x0d\x01" + bytes(8)),
    "fewer values than said": lambda content: gzip.compress(gzip.decompress(content)[:-1]),
    "empty": lambda _: gzip.compress(b""),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("file", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
def test_damaged_digits_are_refused(damage: str, file: str, publish: Any, folder: Path) -> None:
    files = digit_files(image_arrays())
    publish("mnist", files | {file: DAMAGED[damage](files[file])})
    with pytest.raises(InputError, match=r"What was fetched of MNIST cannot be read .* Nothing was stored"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


@pytest.mark.parametrize("damage", ["truncated", "no gzip", "member"])
def test_a_damaged_archive_is_refused(damage: str, publish: Any, folder: Path) -> None:
    arrays = image_arrays((32, 32, 3))
    files = cifar_file(arrays, "other.bin") if damage == "member" else cifar_file(arrays)
    publish("cifar10", {name: DAMAGED.get(damage, bytes)(content) for name, content in files.items()})
    with pytest.raises(InputError, match="What was fetched of CIFAR-10 cannot be read"):
        datasets.fetch("cifar10")
    assert nothing_left(folder)


def test_images_of_another_size_are_not_stored(publish: Any, folder: Path) -> None:
    publish("mnist", digit_files(image_arrays((27, 27))))
    with pytest.raises(InputError, match="x_train must be uint8 of the shape"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


@pytest.mark.parametrize("when", ["converting", "writing"])
def test_an_interrupted_fetch_leaves_nothing(
    when: str, publish: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Any, **_: Any) -> None:
        Path(path).write_bytes(b"half of it")
        raise KeyboardInterrupt

    publish("mnist", digit_files(image_arrays()))
    if when == "writing":
        monkeypatch.setattr(image_sets.np, "savez_compressed", interrupted)
    else:
        monkeypatch.setattr(image_sets, "_read_idx", lambda path: interrupted(path))
    with pytest.raises(KeyboardInterrupt):
        datasets.fetch("mnist")
    assert nothing_left(folder)


def test_a_file_that_is_gone_says_so(publish: Any, published: tuple[str, Path], folder: Path) -> None:
    publish("mnist", digit_files(image_arrays()))
    (published[1] / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"train-labels-idx1-ubyte.gz could not be fetched .the server answered 404"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


def test_a_connection_that_breaks_leaves_nothing(publish: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish("mnist", digit_files(image_arrays()))
    monkeypatch.setattr(Quiet, "promised", 1000)
    # Some versions of requests do not see it; then the checksum does.
    with pytest.raises(InputError, match=r"the connection broke|not the file that was published"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


def test_no_connection_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = image_sets.SOURCES["mnist"]
    # Nothing listens at the port of discarded data.
    monkeypatch.setitem(image_sets.SOURCES, "mnist", image_sets.Source("http://127.0.0.1:9/", real.files, real.convert))
    with pytest.raises(InputError, match=r"could not be fetched \(no connection\): see that this machine is online"):
        datasets.fetch("mnist")
    assert nothing_left(folder)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is not a folder that can be written: name another"):
        datasets.fetch("mnist", tmp_path / "file")


def test_without_pooch_fetching_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(InputError, match=r"pip install 'pollux\[datasets\]'"):
        datasets.fetch("mnist")


@pytest.mark.parametrize("name", datasets.IMAGES)
def test_every_source_has_checksums(name: str) -> None:
    source = image_sets.SOURCES[name]
    assert all(len(bytes.fromhex(checksum)) == 16 for checksum in source.files.values())
    assert source.base.endswith("/")


def test_the_file_takes_its_place_at_once(publish: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was there is replaced by a whole one, never by a part."""
    publish("mnist", digit_files(image_arrays()))
    replaced = []
    real = atomic.in_place
    monkeypatch.setattr(image_sets.atomic, "in_place", lambda path: replaced.append(path) or real(path))
    datasets.fetch("mnist")
    assert replaced == [folder / "mnist.npz"]


# The command line


def test_the_list_names_everything(folder: Path, tabular: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_images(folder / "mnist.npz")
    np.savez(tabular / "mine.npz", X=np.zeros((7, 2)), y=np.zeros(7, int))
    (tabular / "broken.npz").write_text("no archive")
    (folder / "fashion_mnist.npz").write_text("no archive")
    assert command("list") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line for line in lines}
    assert head.split() == ["NAME", "KIND", "SAMPLES", "SHAPE", "CLASSES", "WHERE"]
    assert rows.keys() == {*datasets.SYNTHETIC, *datasets.IMAGES, *datasets.TABLES, "mine", "broken"}
    assert rows["mnist"].split() == ["mnist", "images", "30", "28", "×", "28", "10", str(folder / "mnist.npz")]
    assert rows["mine"].split() == ["mine", "table", "7", "2", "1", str(tabular / "mine.npz")]
    assert rows["cifar10"].endswith("not here: pollux datasets fetch cifar10")
    assert rows["iris"].endswith("comes with scikit-learn")
    assert rows["moons"].endswith("made by pollux.lab.datasets.moons()")
    for name, path in (("broken", tabular / "broken.npz"), ("fashion_mnist", folder / "fashion_mnist.npz")):
        assert rows[name].endswith(f"cannot be read: {path}")


def test_the_catalogue_is_the_registries() -> None:
    kinds = {entry.name: entry.kind for entry in catalogue.catalogue()}
    assert {name for name, kind in kinds.items() if kind == "synthetic"} == set(datasets.SYNTHETIC)
    assert {name for name, kind in kinds.items() if kind == "images"} == set(datasets.IMAGES)
    assert {name for name, kind in kinds.items() if kind == "table"} == set(datasets.TABLES)
    assert set(image_sets.SOURCES) == set(datasets.IMAGES)
    assert set(datasets.SYNTHETIC) <= set(datasets.__all__)


def test_fetch_stores_and_then_says_that_it_is_there(
    publish: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish("mnist", digit_files(image_arrays()))
    assert command("fetch", "mnist") == 0
    assert command("fetch", "mnist") == 0
    assert command("fetch", "mnist", "--to", str(tmp_path / "a" / "b")) == 0
    path, other = folder / "mnist.npz", tmp_path / "a" / "b" / "mnist.npz"
    told = [f"mnist written to {path}", f"mnist is already here: {path}", f"mnist written to {other}"]
    output = capsys.readouterr()
    assert output.out.splitlines() == told
    assert output.err == ""
    assert other.read_bytes()


def test_on_a_terminal_fetch_shows_how_far_it_is(
    publish: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish("mnist", digit_files(image_arrays()))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert command("fetch", "mnist") == 0
    assert "fetching mnist: 0.0 of 0.0 MB" in capsys.readouterr().err


def test_a_stopped_fetch_says_what_was_written(
    publish: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    publish("mnist", digit_files(image_arrays()))
    publish("cifar10", cifar_file(image_arrays((32, 32, 3))))
    monkeypatch.setattr(image_sets, "_cifar_batch", lambda *_: interrupted(_))
    assert main(["datasets", "fetch", "mnist", "cifar10"]) == 130
    assert capsys.readouterr().err == "Stopped; mnist was written, cifar10 was not.\n"
    assert [path.name for path in folder.iterdir()] == ["mnist.npz"]
    # What had been there before was not written now.
    assert main(["datasets", "fetch", "mnist", "cifar10"]) == 130
    assert capsys.readouterr().err == "Stopped; nothing was written.\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [("moons", "made by pollux.lab.datasets.moons"), ("iris", "scikit-learn"), ("mnits", "Did you mean 'mnist'")],
)
def test_fetch_checks_all_names_first(name: str, message: str, publish: Any, folder: Path) -> None:
    publish("mnist", digit_files(image_arrays()))
    with pytest.raises(InputError, match=message):
        command("fetch", "mnist", name)
    assert nothing_left(folder)


def test_path_prints_the_path_only(folder: Path, tabular: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_images(folder / "mnist.npz")
    np.savez(tabular / "mine.npz", X=np.zeros((7, 2)), y=np.zeros(7, int))
    assert command("path", "mnist") == 0
    assert command("path", "mine") == 0
    assert capsys.readouterr().out == f"{folder / 'mnist.npz'}\n{tabular / 'mine.npz'}\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar10", "CIFAR-10 is not on this machine: run `pollux datasets fetch cifar10`"),
        ("moons", "it is made by pollux.lab.datasets.moons"),
        ("iris", "comes with scikit-learn"),
        ("mnits", "There is no data set 'mnits' with a file.* Did you mean 'mnist'"),
    ],
)
def test_path_of_what_has_no_file_says_why(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        command("path", name)


def test_bad_input_ends_with_two_and_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "path", "mnist"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("pollux datasets: MNIST is not on this machine")
    assert main(["datasets"]) == 2
    assert "usage:" in capsys.readouterr().err


def test_help_needs_nothing_slow() -> None:
    code = (
        "import sys, argparse, pollux.lab.datasets_command as d; d.add(argparse.ArgumentParser().add_subparsers());"
        "assert not {'pooch', 'sklearn.datasets'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
