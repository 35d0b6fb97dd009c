"""Starts at clusters: their labels, what models learn of them, and how far restarts agree."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn

from pollux.data.rows import Rows
from pollux.geometry import KERNELS, NeighbourGraph, centres
from pollux.metrics import adjusted_rand_index, agreement
from pollux.models import mlp
from pollux.training import (
    learn_labels,
    starting,
)
from pollux.training.starting import initial_labels
from pollux.training.trainable import has_compiled_steps
from small_models import CLASSES, X, same_weights, small, spread_of_rounding

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")

Labels = NDArray[np.int64]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are not as good as they could be."""
    monkeypatch.setattr(starting, "_FEWEST_STEPS", 50)


# --- Labels to start at ---------------------------------------------------------------------------------------

every_start = pytest.mark.parametrize("init", ["kmeans", "graph"])


def start_labels(init: str, rows: Any, n_clusters: int = 3, count: int = 2, seed: int = 0) -> list[Labels]:
    return [labels.numpy() for labels in initial_labels(init, Rows(rows), None, None, n_clusters, count, seed)]


@every_start
@pytest.mark.parametrize("unit", [1e-150, 1.0, 1e150])
def test_starts_are_at_clusters_that_are_there(init: str, unit: float) -> None:
    for labels in start_labels(init, X * unit):
        assert adjusted_rand_index(CLASSES, labels) == 1


@every_start
@pytest.mark.parametrize("kind", ["csr", "images", "float32", "integers"])
def test_starts_of_every_storage(init: str, kind: str) -> None:
    stored: Any = {
        "csr": scipy.sparse.csr_array(X),
        "images": X.reshape(-1, 1, 2, 2),
        "float32": X.astype(np.float32),
        "integers": (20 * X).astype(np.int16),
    }[kind]
    assert adjusted_rand_index(CLASSES, start_labels(init, stored)[0]) == 1


@every_start
@pytest.mark.parametrize("rows", [np.zeros((10, 2)), X[:2], X[:1], np.repeat(X[:2], 5, 0)], ids=len)
def test_starts_of_few_and_of_equal_rows(init: str, rows: Any) -> None:
    for labels in start_labels(init, rows):
        assert labels.shape == (len(rows),)
        assert set(labels) <= {0, 1, 2}


def test_kmeans_looks_at_the_features_of_the_geometry() -> None:
    # Two rings: their graph falls into two parts, and k-means cuts both in halves.
    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle)], 1)
    rings, classes = np.concatenate([ring, 10 * ring]), np.repeat([0, 1], 60)
    geometry = NeighbourGraph(neighbours=4, components=2)
    block = geometry.bind(rings)
    (found,) = initial_labels("kmeans", Rows(rings), geometry, block, 2, 1, 0)
    assert adjusted_rand_index(classes, found.numpy()) == 1
    (plain,) = initial_labels("kmeans", Rows(rings), None, None, 2, 1, 0)
    assert adjusted_rand_index(classes, plain.numpy()) < 0.5


@every_start
def test_starts_heed_weights(init: str) -> None:
    rows = np.concatenate([np.linspace(0, 1, 40), np.linspace(5, 6, 40), [20.0, 20.5]])[:, None]
    weight = torch.ones(82, dtype=torch.float64)
    plain = initial_labels(init, Rows(rows), None, None, 2, 1, 0)[0]
    same = initial_labels(init, Rows(rows), None, None, 2, 1, 0, 7 * weight)[0]
    assert torch.equal(plain, same)
    weight[80:] = 1e-12
    for labels in initial_labels("kmeans", Rows(rows), None, None, 2, 2, 0, weight):
        assert adjusted_rand_index(np.repeat([0, 1], 40), labels[:80].numpy()) == 1


def test_weights_reach_the_starts_of_an_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    original = centres.iterate_centres

    def iterate_centres(samples: Any, squares: Any, weight: Any, *others: Any) -> Any:
        given.append(weight)
        return original(samples, squares, weight, *others)

    monkeypatch.setattr(centres, "iterate_centres", iterate_centres)
    weight = np.linspace(0.5, 2, 75)
    small(init="kmeans", max_epochs=1).fit(X, sample_weight=weight)
    np.testing.assert_allclose(given[0] / given[0][0], weight / weight[0])


def test_the_features_of_the_linear_kernel_are_the_samples_as_they_are_stored() -> None:
    sparse = scipy.sparse.random_array((200, 3_000), density=0.001, random_state=np.random.default_rng(0), format="csr")

    def refused(index: Tensor) -> Any:
        pytest.fail("rows were asked for")

    (labels,) = initial_labels("kmeans", Rows(sparse), KERNELS["linear"], refused, 2, 1, 0)
    assert labels.shape == (200,)


def test_distances_between_features_of_many_clusters_are_kept_to_some_percent() -> None:
    features = np.eye(1_100, dtype=np.float32)[:, :1_100]
    narrow = starting._narrow(features)
    assert narrow.shape == (1_100, 256)
    # Of 256 directions a squared length of 2 has the deviation 2·√(2/256); of about 10⁶ pairs the farthest is at 5.
    squares = np.square(narrow[:300, None] - narrow[None, :300]).sum(-1)[~np.eye(300, dtype=bool)]
    assert abs(squares - 2).max() < 6 * 2 * np.sqrt(2 / 256)
    assert starting._narrow(features[:, :1_024]).shape == (1_100, 1_024)


def test_starts_leave_the_samples_alone() -> None:
    samples = X.copy()
    initial_labels("kmeans", Rows(samples), KERNELS["linear"], KERNELS["linear"].bind(samples), 3, 2, 0)
    np.testing.assert_array_equal(samples, X)


@pytest.mark.parametrize("weighted", [False, True])
def test_labels_are_learned_alike_by_compiled_steps_and_by_autograd(weighted: bool) -> None:
    X = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = [(X[:, 0] > 0).long() + (X[:, 1] > 0).long()]
    weight = torch.arange(1.0, 41.0, dtype=torch.float64) if weighted else None
    torch.manual_seed(0)
    made = [nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)).double() for _ in range(2)]
    made[1].load_state_dict(made[0].state_dict())
    assert has_compiled_steps(made[1], 3)
    start = copy.deepcopy(made[0])

    def learn(module: nn.Module, samples: torch.Tensor, is_own: bool) -> list[float]:
        generator = torch.Generator().manual_seed(0)
        learn_labels([module], 3, labels, samples.__getitem__, 15, 0.01, weight, generator, is_own_network=is_own)
        return torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).tolist()

    again = lambda samples: learn(copy.deepcopy(start), torch.from_numpy(samples), True)  # noqa: E731
    # Sums over batches of 15 samples, in about a hundred steps.
    tolerance = spread_of_rounding(again, X.numpy(), roundings=15 * 100)
    np.testing.assert_allclose(learn(made[0], X, True), learn(made[1], X, False), rtol=0, atol=tolerance)
    assert tolerance < 1e-6


def test_models_learn_labels() -> None:
    modules: list[nn.Module] = [nn.Linear(4, 3, dtype=torch.float64), mlp(4, 3, hidden=(9,)).double()]
    labels = [torch.as_tensor(CLASSES), torch.as_tensor((CLASSES + 1) % 3)]
    rows = Rows(X)
    learn_labels(modules, 3, labels, rows.__getitem__, 20, 0.1, generator=torch.Generator().manual_seed(0))
    for module, own in zip(modules, labels, strict=True):
        found = module(torch.as_tensor(X)).argmax(1)
        assert torch.equal(found, own)


def test_rows_of_little_weight_are_hardly_learned() -> None:
    (module,) = modules = [nn.Linear(4, 2, dtype=torch.float64)]
    wrong = torch.as_tensor(CLASSES == 0).long()
    wrong[:40] = 1 - wrong[:40]
    weight = torch.where(torch.arange(75) < 40, 1e-9, 1.0)
    learn_labels(modules, 2, [wrong], Rows(X).__getitem__, 75, 0.05, weight, torch.Generator().manual_seed(0))
    agreed = module(torch.as_tensor(X)).argmax(1) == wrong
    assert bool(agreed[40:].all())


def test_a_network_that_returns_something_else_is_told_so_at_its_start() -> None:
    with pytest.raises(ValueError, match="one logit for each sample and cluster"):
        small(model=nn.Linear(4, 5), init="kmeans").fit(X)
    with pytest.raises(ValueError, match="The model failed on inputs of shape"):
        small(model=nn.Linear(3, 3), init="kmeans").fit(X)


# --- Starts of an estimator -----------------------------------------------------------------------------------


@every_start
@pytest.mark.parametrize("model", ["mlp", "linear", "free"])
def test_models_start_at_clusters(init: str, model: str) -> None:
    fitted = small(model=model, init=init, max_epochs=1, learning_rate=1e-3 if model == "free" else 1e-2).fit(X)
    assert adjusted_rand_index(CLASSES, fitted.labels_) == 1


@every_start
@pytest.mark.parametrize("options", [{"model": "free"}, {"model": "mlp"}, {"model": "mlp", "norm": "batch"}])
def test_starts_are_the_same_for_the_same_seed(init: str, options: dict[str, Any]) -> None:
    one, other = (small(init=init, n_init=2, max_epochs=2, hidden=(5,), **options).fit(X) for _ in range(2))
    assert same_weights(one, other)
    assert one.history_ == other.history_
    assert one.stability_ == other.stability_


@every_start
def test_starts_leave_the_random_numbers_of_others_alone(init: str) -> None:
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    small(init=init).fit(X)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


@every_start
@pytest.mark.parametrize("objective", ["wasserstein_ova", "mi", "mmd_ovo"])
def test_starts_go_with_every_kind_of_objective(init: str, objective: str) -> None:
    fitted = small(init=init, objective=objective, max_epochs=2).fit(X)
    assert adjusted_rand_index(CLASSES, fitted.labels_) > 0.9


@every_start
def test_starts_with_weights_of_few_rows_and_in_parts(init: str) -> None:
    weight = np.zeros(75)
    weight[:2] = 1
    assert small(init=init).fit(X, sample_weight=weight).labels_.shape == (75,)
    assert small(init=init).partial_fit(X[:1]).partial_fit(X).labels_.shape == (75,)


def test_stability_is_the_mean_agreement_of_two_starts() -> None:
    fitted = small(5, n_init=4, model="mlp", hidden=(4,), max_epochs=3).fit(X)
    assert fitted.stability_ is not None
    assert -1 <= fitted.stability_ <= 1
    assert small().fit(X).stability_ is None
    assert small(n_init=3, init="kmeans", max_epochs=1, learning_rate=0.05).fit(X).stability_ == 1


def test_agreement_is_a_mean_of_adjusted_rand_indices() -> None:
    random = np.random.default_rng(0)
    labelings = [random.integers(0, 3, 30) for _ in range(4)]
    pairs = [adjusted_rand_score(labelings[i], labelings[j]) for i in range(4) for j in range(i)]
    assert agreement(labelings) == pytest.approx(np.mean(pairs))
    assert agreement(labelings[:1]) is None
    assert agreement([]) is None


def test_starts_that_all_collapsed_agree_on_nothing() -> None:
    assert agreement([np.zeros(9), np.ones(9)]) == 0
    assert agreement([np.zeros(9), np.arange(9) % 3]) == 0


@pytest.mark.parametrize("starts", [1, 3])
def test_a_training_that_is_resumed_is_not_started_again(
    starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several may be trained one by one, and those that have not begun need their start."""
    given = {"init": "kmeans", "model": "mlp", "hidden": (4,), "norm": "batch", "n_init": starts}
    whole = small(**given, max_epochs=3).fit(X)
    small(**given, max_epochs=3, checkpoint=tmp_path).fit(X)
    called: list[int] = []
    original = starting.initial_labels

    def counted(*arguments: Any) -> Any:
        called.append(1)
        return original(*arguments)

    monkeypatch.setattr(starting, "initial_labels", counted)
    assert same_weights(small(**given, max_epochs=3, checkpoint=tmp_path).fit(X), whole)
    assert len(called) == (starts > 1)
    called.clear()
    small(**given, checkpoint=tmp_path).partial_fit(X)
    assert called
