"""Checkpoints: a training that is resumed ends with the same bits as one that was never interrupted."""

from __future__ import annotations

import random
import re
import shutil
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from coverings import every_other, examples
from data_files import without_addresses
from flat_parameters import make_clustering
from pollux import Gemini, GeminiClustering, Training
from pollux.errors import InputError
from pollux.io import tensors as checked_tensors
from pollux.io.locks import BusyError
from pollux.training import OPTIMISERS, Checkpoints
from pollux.training.checkpoints import FORMAT, VERSION, pack, parse_every, unpack

RANDOM = np.random.default_rng(0)
X = (RANDOM.normal(size=(60, 4)) + 3 * np.eye(4)[RANDOM.integers(0, 3, 60)]).astype(np.float32)


# Trees of plain data and tensors

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


@st.composite
def some_tensor(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    values = torch.arange(torch.Size(shape).numel()).reshape(shape).to(draw(st.sampled_from(DTYPES)))
    if values.is_floating_point() and values.numel() and draw(st.booleans()):
        values.flatten()[0] = draw(st.sampled_from([float("nan"), float("inf"), -0.0]))
    return values.mT if values.ndim > 1 and draw(st.booleans()) else values


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
TREES = st.recursive(
    PLAIN | some_tensor(),
    lambda node: (
        st.lists(node, max_size=3)
        | st.lists(node, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(-5, 5), node, max_size=3)
    ),
    max_leaves=8,
)


def assert_alike(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        assert [type(key) for key in one] == [type(key) for key in other]
        for key in one:
            assert_alike(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_alike(*pair)
    else:
        assert one == other or (one != one and other != other)


@settings(max_examples=examples(100), deadline=None)
@given(TREES)
def test_unpacking_gives_back_what_was_packed_and_written(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    assert_alike(unpack(*pack(tree)), tree)
    path = tmp_path_factory.getbasetemp() / "tree.safetensors"
    checked_tensors.write(path, FORMAT, VERSION, *pack(tree))
    assert_alike(unpack(*checked_tensors.read(path, FORMAT, [VERSION], "checkpoint")), tree)


@pytest.mark.parametrize("value", [object(), {1, 2}, np.arange(3), b"bytes", lambda: None])
def test_what_a_checkpoint_cannot_hold_is_named(value: Any) -> None:
    with pytest.raises(InputError, match=f"holds a {type(value).__name__}, which a checkpoint cannot"):
        pack({"state": [value]})


@pytest.mark.parametrize(
    ("every", "parsed"),
    [
        ("60 s", (60, "second")),
        ("1.5s", (1.5, "second")),
        ("0 seconds", (0, "second")),
        ("5 minutes", (300, "second")),
        (" 1 m ", (60, "second")),
        ("2h", (7200, "second")),
        ("1 hour", (3600, "second")),
        ("1 epoch", (1, "epoch")),
        ("3epochs", (3, "epoch")),
        ("100 steps", (100, "step")),
    ],
)
def test_intervals_are_read_as_people_write_them(every: str, parsed: tuple[float, str]) -> None:
    assert parse_every(every) == parsed


@pytest.mark.parametrize(
    "every", ["", "60", "s", "-1 s", "1 day", "0 epochs", "1.5 steps", "0 steps", "1 s 2", None, 5]
)
def test_other_intervals_are_refused(every: Any) -> None:
    with pytest.raises(InputError, match="Checkpoints are written every"):
        Checkpoints("folder", every=every)


# Training that is broken off


class Crash(Exception):  # noqa: N818
    """Whatever ends a process."""


def normalised(shape: Any, n_clusters: int) -> nn.Module:
    """With running statistics and random numbers of its own: such are trained one by one."""
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, n_clusters))


def dropping(shape: Any, n_clusters: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, n_clusters))


def channels_last(shape: Any, n_clusters: int) -> nn.Module:
    """Weights whose layout in memory is not that of files."""
    convolution = nn.Conv2d(4, 6, 3, padding=1).to(memory_format=torch.channels_last)
    return nn.Sequential(nn.Unflatten(1, (4, 1, 1)), convolution, nn.Flatten(), nn.Linear(6, n_clusters))


def with_momentum(parameters: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True)


def small(n_clusters: int = 3, **options: Any) -> GeminiClustering:
    defaults = {"model": "linear", "max_epochs": 5, "batch_size": 20, "random_state": 0}
    return make_clustering(n_clusters, **{**defaults, **options})


FILE = object()
EPOCHS = 3
ONE_BY_ONE = re.compile("restarts one by one|(file|loader) and restarts")
# A step of L-BFGS looks at its batch twenty times.
OPTIMISED = {name: {"optimiser": name, "max_epochs": 2 if name == "lbfgs" else 3} for name in OPTIMISERS}
WAYS: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "closed form": ({}, X, {}),
    "closed-form restarts": ({"n_init": 3, "model": "mlp", "hidden": (5,)}, X, {}),
    **{f"{name} by autograd": ({**OPTIMISED[name], "penalties": {"entropy": 0.1}}, X, {}) for name in OPTIMISERS},
    **{f"restarts of {name}": ({**OPTIMISED[name], "n_init": 2, "model": dropping}, X, {}) for name in OPTIMISERS},
    "momentum": ({"optimiser": with_momentum}, X, {}),
    "normalisation and dropout": ({"model": normalised}, X, {}),
    "channels last": ({"model": channels_last}, X, {}),
    "restarts one by one": ({"model": normalised, "n_init": 3, "max_epochs": 3}, X, {}),
    "adversarial": ({"penalties": {"vat": 0.5}}, X, {}),
    "adversarial restarts": ({"penalties": {"vat": 0.5}, "n_init": 2}, X, {}),
    "adversarial normalisation": ({"penalties": {"vat": 0.5}, "model": normalised}, X, {}),
    "sampled pairs": ({"objective": Gemini("mmd_ovo", sampled_pairs=2)}, X, {}),
    "sampled pairs by autograd": ({"objective": Gemini("mmd_ovo", sampled_pairs=2), "optimiser": "sgd"}, X, {}),
    "a free table": ({"model": "free"}, X, {}),
    "a free table of one batch": ({"model": "free", "batch_size": None, "n_init": 2}, X, {}),
    "patience": ({"patience": 2, "tol": 0.05, "max_epochs": 30, "learning_rate": 0.1}, X, {}),
    "batches that are kept": ({"objective": "wasserstein_ova", "reshuffle_every": 5, "max_epochs": 13}, X, {}),
    "kept restarts": ({"objective": "wasserstein_ovo", "reshuffle_every": 4, "n_init": 2, "max_epochs": 6}, X, {}),
    "one batch that is kept": ({"objective": "wasserstein_ova", "batch_size": None, "max_epochs": 8}, X, {}),
    "batches drawn anew": ({"objective": "wasserstein_ova", "reshuffle_every": 1}, X, {}),
    "sparse rows": ({}, scipy.sparse.csr_array(X), {}),
    "weights": ({}, X, {"sample_weight": np.arange(60) % 4}),
    "double precision": ({"dtype": "float64", "optimiser": "adamw"}, X, {}),
    "half precision": ({"dtype": "bfloat16"}, X, {}),
    "a kernel": ({"geometry": "rbf"}, X, {}),
    "a schedule": ({"schedule": "cosine"}, X, {}),
    "a schedule by autograd": ({"schedule": "cosine", "optimiser": "adamw", "n_init": 2}, X, {}),
    "trials": ({"n_init": 3, "trial_epochs": 1}, X, {}),
    "trials and a schedule": ({"n_init": 3, "trial_epochs": 2, "schedule": "cosine", "optimiser": "adamw"}, X, {}),
    "trials of restarts one by one": (
        {"n_init": 3, "trial_epochs": 1, "model": "mlp", "norm": "batch", "hidden": (4,)},
        X,
        {},
    ),
    "trials of a file": ({"n_init": 3, "trial_epochs": 1, "schedule": "cosine"}, FILE, {}),
    "local moves": ({"penalties": {"local_vat": 1.0, "balance": 0.5}, "n_init": 3, "trial_epochs": 1}, X, {}),
    "a start at clusters": ({"init": "graph", "model": "mlp", "hidden": (4,), "scaling": "auto"}, X, {}),
    "a neighbour graph": ({"geometry": "graph", "scaling": "auto", "n_components": 2}, X, {}),
    "a file": ({}, FILE, {}),
    "a file and Wasserstein": ({"objective": "wasserstein_ova"}, FILE, {}),
    "a file and restarts": ({"model": normalised, "n_init": 2, "max_epochs": 3}, FILE, {}),
    "a loader": ({}, lambda: DataLoader(TensorDataset(torch.as_tensor(X)), batch_size=13, shuffle=True), {}),
    "a loader and restarts": (
        {"model": normalised, "n_init": 2, "max_epochs": 3},
        lambda: DataLoader(TensorDataset(torch.as_tensor(X)), batch_size=25, shuffle=True, drop_last=True),
        {},
    ),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, X)
    return path


Fit = Callable[..., GeminiClustering]


@pytest.fixture(scope="module")
def fit(file: Path) -> Fit:
    """``fit(way, folder, **changes)``: that way of training, of few epochs, with a checkpoint after each step."""

    def fitted(way: str, folder: Path | None, every: str = "1 step", **changes: Any) -> GeminiClustering:
        options, rows, given = WAYS[way]
        checkpoint = None if folder is None else Checkpoints(folder, every=every)
        model = small(**{"max_epochs": EPOCHS, **options, **changes}, checkpoint=checkpoint)
        return model.fit(file if rows is FILE else rows() if callable(rows) else rows, **given)

    return fitted


def crash_after(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """End training when it has asked so many times whether a checkpoint is due; the list counts how often it did."""
    asked: list[int] = []
    original = Checkpoints.is_due

    def is_due(self: Checkpoints, after_epoch: bool) -> bool:
        asked.append(1)
        if len(asked) == times:
            raise Crash
        return original(self, after_epoch)

    monkeypatch.setattr(Checkpoints, "is_due", is_due)
    return asked


def assert_same_bits(one: GeminiClustering, other: GeminiClustering) -> None:
    assert one.history_ == other.history_
    assert one.objective_ == other.objective_
    assert one.n_iter_ == other.n_iter_
    states = [fitted.module_.state_dict() for fitted in (one, other)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    if one.fitted_.given_labels is not None or other.fitted_.given_labels is not None:
        np.testing.assert_array_equal(one.labels_, other.labels_)


Whole = Callable[[str], tuple[GeminiClustering, int]]


@pytest.fixture(scope="module")
def whole(fit: Fit, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """``whole(way)``: what that way ends with where nothing interrupts it, and how often a checkpoint could be due."""

    @cache
    def trained(way: str) -> tuple[GeminiClustering, int]:
        with pytest.MonkeyPatch.context() as counting:
            asked = crash_after(counting, 0)
            return fit(way, tmp_path_factory.mktemp("whole")), len(asked)

    return trained


@pytest.mark.parametrize("way", every_other(WAYS))
def test_a_training_that_was_interrupted_anywhere_ends_with_the_same_bits(
    tmp_path: Path, fit: Fit, whole: Whole, way: str
) -> None:
    expected, asked = whole(way)
    # Twice, the second time after some more steps.
    for place in random.Random(way).choices(range(1, asked // 2 + 1), k=2):
        with pytest.MonkeyPatch.context() as crashing:
            crash_after(crashing, place)
            with pytest.raises(Crash):
                fit(way, tmp_path)
    assert_same_bits(fit(way, tmp_path), expected)


def test_a_network_of_images_goes_on_in_its_order_of_memory(tmp_path: Path) -> None:
    """Convolutions of another order of memory have other last digits, and Adam walks through memory."""
    X = np.random.default_rng(0).normal(size=(40, 1, 28, 28)).astype(np.float32)

    def fitted(folder: Path) -> GeminiClustering:
        training = Training(checkpoint=Checkpoints(folder, every="1 steps"))
        options = {"model": "lenet5", "max_epochs": 3, "batch_size": 20, "n_init": 1, "random_state": 0}
        return GeminiClustering(3, **options, training=training).fit(X)

    expected = fitted(tmp_path / "whole")
    with pytest.MonkeyPatch.context() as crashing:
        crash_after(crashing, 4)
        with pytest.raises(Crash):
            fitted(tmp_path / "interrupted")
    assert_same_bits(fitted(tmp_path / "interrupted"), expected)
    weights = [weight for weight in expected.module_.parameters() if weight.ndim == 4]
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


@pytest.mark.parametrize("way", ["closed form", "restarts of adam", "batches that are kept", "a file", "a loader"])
def test_checkpoints_change_nothing(fit: Fit, whole: Whole, way: str) -> None:
    assert_same_bits(fit(way, None), whole(way)[0])


# Starts that are trained one after the other are not prolonged once they have ended.
SCHEDULED = [way for way, (options, _, _) in WAYS.items() if "schedule" in options]
ENDS_EARLY = ("patience", "restarts of lbfgs", *SCHEDULED)
PROLONGED = [way for way in WAYS if way not in ENDS_EARLY and not ONE_BY_ONE.search(way)]
REFUSED = [way for way in WAYS if way == "restarts of lbfgs" or ONE_BY_ONE.search(way)]


@pytest.mark.parametrize("way", REFUSED)
def test_starts_that_were_trained_one_after_the_other_are_not_prolonged(tmp_path: Path, fit: Fit, way: str) -> None:
    epochs = WAYS[way][0].get("max_epochs", EPOCHS)
    fit(way, tmp_path, "1000 steps", max_epochs=(epochs + 1) // 2)
    with pytest.raises(InputError, match="cannot be prolonged"):
        fit(way, tmp_path, "1000 steps")


@pytest.mark.parametrize("way", SCHEDULED)
def test_a_training_by_a_schedule_is_not_prolonged(tmp_path: Path, fit: Fit, way: str) -> None:
    fit(way, tmp_path, "1000 steps")
    with pytest.raises(InputError, match="epochs"):
        fit(way, tmp_path, "1000 steps", max_epochs=EPOCHS + 1)


def test_a_training_is_not_made_shorter(tmp_path: Path) -> None:
    clustering = small(2, max_epochs=3, checkpoint=tmp_path).fit(X)
    with pytest.raises(InputError, match="3 epochs already"):
        clustering.set_params(max_epochs=2).fit(X)


@pytest.mark.parametrize("way", every_other(PROLONGED, 1))
def test_a_longer_training_goes_on_as_if_it_had_been_so_long_from_the_start(
    tmp_path: Path, fit: Fit, whole: Whole, way: str
) -> None:
    epochs = WAYS[way][0].get("max_epochs", EPOCHS)
    fit(way, tmp_path, "1000 steps", max_epochs=(epochs + 1) // 2)
    assert_same_bits(fit(way, tmp_path, "1000 steps"), whole(way)[0])


@pytest.mark.parametrize(
    "way",
    ["closed form", "restarts of lbfgs", "restarts one by one", "patience", "kept restarts", "a free table", "a file"],
)
def test_a_training_that_has_ended_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fit: Fit, way: str
) -> None:
    ended = fit(way, tmp_path, "1000 steps")
    asked = crash_after(monkeypatch, 0)
    assert_same_bits(fit(way, tmp_path, "1000 steps"), ended)
    assert not asked


def test_a_training_without_a_seed_is_resumed(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as crashing:
        crash_after(crashing, 9)
        with pytest.raises(Crash):
            small(random_state=None, checkpoint=Checkpoints(tmp_path, every="1 step")).fit(X)
    shutil.copytree(tmp_path, tmp_path.parent / "copy")
    first = small(random_state=None, checkpoint=tmp_path).fit(X)
    second = small(random_state=None, checkpoint=tmp_path.parent / "copy").fit(X)
    assert_same_bits(first, second)
    assert first.n_iter_ == 5


def test_a_fit_that_is_interrupted_leaves_the_estimator_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clustering = small(checkpoint=tmp_path)
    crash_after(monkeypatch, 5)
    with pytest.raises(Crash):
        clustering.fit(X)
    with pytest.raises(ValueError, match="not fitted"):
        check_is_fitted(clustering)


# Of which training they are


@pytest.mark.parametrize(
    "change",
    [
        {"n_clusters": 4},
        {"model": "mlp"},
        {"model": normalised},
        {"objective": "mi"},
        {"objective": Gemini("mmd_ova", clip=1e-9)},
        {"geometry": "rbf"},
        {"batch_size": 30},
        {"reshuffle_every": 3},
        {"optimiser": "sgd"},
        {"learning_rate": 0.5},
        {"n_init": 2},
        {"penalties": {"entropy": 0.1}},
        {"dtype": "float64"},
        {"random_state": 1},
    ],
    ids=without_addresses,
)
def test_other_parameters_are_refused_by_name(tmp_path: Path, change: dict[str, Any]) -> None:
    small(max_epochs=1, checkpoint=tmp_path).fit(X)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"are of another training \(.*name another folder") as refused:
        small(**{"max_epochs": 1, **change}, checkpoint=tmp_path).fit(X)
    assert f"{next(iter(change))} was " in str(refused.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    small(max_epochs=2, checkpoint=tmp_path, tol=0.5, verbose=False).fit(X)


@pytest.mark.parametrize("rows", [X[:-1], X + 1, X[::-1], X.astype(np.float64), scipy.sparse.csr_array(X)], ids=type)
def test_other_data_are_refused(tmp_path: Path, rows: Any) -> None:
    small(max_epochs=1, checkpoint=tmp_path).fit(X)
    with pytest.raises(InputError, match=r"another training \(.*data was"):
        small(max_epochs=1, checkpoint=tmp_path).fit(rows)


def test_other_weights_are_other_data(tmp_path: Path) -> None:
    small(max_epochs=1, checkpoint=tmp_path).fit(X, sample_weight=np.arange(60))
    for other in (None, np.arange(60) + 1):
        with pytest.raises(InputError, match="data was"):
            small(max_epochs=1, checkpoint=tmp_path).fit(X, sample_weight=other)


def test_another_affinity_is_other_data(tmp_path: Path) -> None:
    small(max_epochs=1, checkpoint=tmp_path).fit(X, affinity=X @ X.T)
    with pytest.raises(InputError, match="data was"):
        small(max_epochs=1, checkpoint=tmp_path).fit(X, affinity=2 * X @ X.T)


def test_files_that_have_changed_are_other_data(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, X)
    small(max_epochs=1, checkpoint=tmp_path / "checkpoints").fit(path)
    np.save(path, X[::-1])
    with pytest.raises(InputError, match="data was"):
        small(max_epochs=1, checkpoint=tmp_path / "checkpoints").fit(path)


# When and how they are written


def written_at(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The epochs and steps at which checkpoints are written."""
    places: list[tuple[int, int]] = []
    original = Checkpoints._pack

    def packed(self: Checkpoints, state: Any) -> Any:
        places.append((state["epochs"], state["position"]))
        return original(self, state)

    monkeypatch.setattr(Checkpoints, "_pack", packed)
    return places


@pytest.mark.parametrize(
    ("every", "places"),
    [
        ("1 step", [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 0)]),
        ("2 steps", [(0, 0), (0, 2), (1, 1), (1, 3), (2, 0)]),
        ("1 epoch", [(0, 0), (1, 0), (2, 0), (2, 0)]),
        ("2 epochs", [(0, 0), (2, 0), (2, 0)]),
        ("1 hour", [(0, 0), (2, 0)]),
    ],
)
def test_they_are_written_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: str, places: list[tuple[int, int]]
) -> None:
    found = written_at(monkeypatch)
    small(max_epochs=2, checkpoint=Checkpoints(tmp_path, every=every)).fit(X)
    assert found == places


def test_seconds_are_those_since_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places, clock = written_at(monkeypatch), [0.0]

    def now() -> float:
        clock[0] += 1
        return clock[0]

    monkeypatch.setattr("pollux.training.checkpoints.time.monotonic", now)
    small(max_epochs=4, checkpoint=Checkpoints(tmp_path, every="10 s")).fit(X)
    assert 3 <= len(places) <= 5


def test_two_files_are_kept_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("stays")
    small(checkpoint=Checkpoints(tmp_path, every="1 step")).fit(X)
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert len(files) == 2
    assert (tmp_path / "mine.txt").read_text() == "stays"
    assert len(list(tmp_path.iterdir())) == 3


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    small(max_epochs=1, checkpoint=tmp_path).fit(X)
    names = {path.name for path in tmp_path.iterdir()}
    newest = max(tmp_path.glob("*.safetensors"))
    (tmp_path / f".{newest.name}.abc123").write_bytes(newest.read_bytes()[:100])
    small(max_epochs=1, checkpoint=tmp_path).fit(X)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert len(names) == 2


def test_a_damaged_one_is_told_and_the_one_before_it_is_taken(tmp_path: Path) -> None:
    whole = small(checkpoint=Checkpoints(tmp_path / "whole", every="1 step")).fit(X)
    with pytest.MonkeyPatch.context() as crashing:
        crash_after(crashing, 11)
        with pytest.raises(Crash):
            small(checkpoint=Checkpoints(tmp_path / "folder", every="1 step")).fit(X)
    newest = max((tmp_path / "folder").glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[-3] ^= 255
    newest.write_bytes(bytes(content))
    with pytest.warns(UserWarning, match="damaged: its checksum .* is good"):
        again = small(checkpoint=Checkpoints(tmp_path / "folder", every="1 step")).fit(X)
    assert_same_bits(again, whole)
    for path in (tmp_path / "folder").glob("*.safetensors"):
        path.write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"No checkpoint in .* can be read"):
        small(checkpoint=tmp_path / "folder").fit(X)


class Exploding(nn.Module):
    """Gives no numbers after some calls."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.linear, self.left = nn.Linear(4, 3), calls

    def forward(self, inputs: Tensor) -> Tensor:
        self.left -= self.training
        logits: Tensor = self.linear(inputs)
        return logits if self.left >= 0 or not self.training else logits * float("nan")


def test_no_checkpoint_holds_weights_that_are_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    original = Checkpoints._pack

    def packed(self: Checkpoints, state: Any) -> Any:
        kept.append(all(bool(tensor.isfinite().all()) for tensor in state["model"]))
        return original(self, state)

    monkeypatch.setattr(Checkpoints, "_pack", packed)
    with pytest.warns(RuntimeWarning, match="no longer finite"):
        fitted = small(model=Exploding(7), checkpoint=Checkpoints(tmp_path, every="1 step")).fit(X)
    assert fitted.diverged_
    assert len(kept) > 5
    assert all(kept)


def test_one_training_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    begun, over = threading.Event(), threading.Event()

    def wait(epoch: Any) -> None:
        begun.set()
        assert over.wait(20)

    first = small(checkpoint=tmp_path, callbacks=[wait], max_epochs=1)
    thread = threading.Thread(target=first.fit, args=(X,))
    thread.start()
    try:
        assert begun.wait(20)
        with pytest.raises(BusyError, match="Another run is using"):
            small(checkpoint=tmp_path, max_epochs=1).fit(X)
    finally:
        over.set()
        thread.join()
    assert_same_bits(small(checkpoint=tmp_path, max_epochs=1).fit(X), first)


def test_a_training_that_is_asked_to_stop_can_go_on(tmp_path: Path) -> None:
    whole = small(checkpoint=tmp_path / "whole").fit(X)
    checkpoints = Checkpoints(tmp_path / "folder", every="1 hour")

    def stop(epoch: Any) -> None:
        checkpoints.stop_requested = epoch.number == 2

    stopped = small(checkpoint=checkpoints, callbacks=[stop]).fit(X)
    assert stopped.n_iter_ == 2
    assert checkpoints.stopped
    assert_same_bits(small(checkpoint=tmp_path / "folder").fit(X), whole)


def test_a_disk_that_is_full_for_a_while_is_told_of_once_it_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = small().fit(X)
    original, calls = checked_tensors.write, []

    def write(*arguments: Any) -> None:
        calls.append(1)
        if 3 <= len(calls) <= 5:
            raise OSError(28, "No space left on device")
        original(*arguments)

    monkeypatch.setattr(checked_tensors, "write", write)
    with pytest.warns(UserWarning, match=r"could not be written .*No space left"):
        fitted = small(checkpoint=Checkpoints(tmp_path, every="1 step")).fit(X)
    assert_same_bits(fitted, whole)
    monkeypatch.setattr(checked_tensors, "write", original)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_bits(small(checkpoint=tmp_path).fit(X), whole)


def test_an_optimiser_whose_state_no_file_can_hold_is_refused_at_once(tmp_path: Path) -> None:
    steps = []

    class Odd(torch.optim.SGD):
        def state_dict(self) -> Any:
            return {**super().state_dict(), "odd": object()}

        def step(self, closure: Any = None) -> Any:
            steps.append(1)
            return super().step(closure)

    with pytest.raises(InputError, match="holds a object"):
        small(optimiser=Odd, checkpoint=tmp_path, max_epochs=1_000).fit(X)
    assert len(steps) <= 1


def test_no_checkpoint_holds_weights_from_which_nothing_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two restarts begins without finite weights: killed there, it would be refused for ever."""
    made, written = list[nn.Module](), list[bool]()

    def network(shape: Any, n_clusters: int) -> nn.Module:
        module = nn.Sequential(nn.Linear(4, n_clusters), nn.BatchNorm1d(n_clusters))
        if not made:
            nn.init.constant_(module[0].weight, float("nan"))
        made.append(module)
        return module

    write = Checkpoints._write

    def recorded(self: Checkpoints, tensors: Any, skeleton: Any) -> None:
        written.append(all(bool(tensor.isfinite().all()) for tensor in unpack(tensors, skeleton)["state"]["model"]))
        write(self, tensors, skeleton)

    monkeypatch.setattr(Checkpoints, "_write", recorded)
    training = Training(checkpoint=Checkpoints(tmp_path / "checkpoints", every="1 step"))
    clustering = GeminiClustering(
        2, model=network, objective="mmd_ova", n_init=2, max_epochs=2, batch_size=20, training=training, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clustering.fit(X)
    assert len(made) == 2
    assert written
    assert all(written)
