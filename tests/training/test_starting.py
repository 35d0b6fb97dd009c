"""Starts at clusters, rounds of starts, schedules, and the penalties that look at neighbours."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn

from flat_parameters import make_clustering
from pollux import GeminiClustering
from pollux.data.rows import Rows
from pollux.errors import InputError
from pollux.geometry import KERNELS, NeighbourGraph
from pollux.metrics import adjusted_rand_index, agreement
from pollux.models import ACTIVATIONS, mlp
from pollux.objectives import GEMINIS, PENALTIES, Gemini
from pollux.objectives.penalties import LocalVat, balance, vat
from pollux.training import (
    SCHEDULES,
    AutogradStep,
    Checkpoints,
    Interruptible,
    NumericalWarning,
    SingleModel,
    StackedModels,
    learn_labels,
    make_optimiser,
    restarts,
    starting,
)
from pollux.training.batches import Batch, RowBatches
from pollux.training.loop import TrainingState
from pollux.training.problem import measure_spacing
from pollux.training.starting import initial_labels
from pollux.training.steps import ClosedFormStep
from pollux.training.trainable import DenseModels, has_closed_form, stackable

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")

X, CLASSES = make_blobs(n_samples=(30, 25, 20), n_features=4, cluster_std=0.7, random_state=1)
Labels = NDArray[np.int64]


def small(n_clusters: int = 3, **parameters: Any) -> GeminiClustering:
    return make_clustering(n_clusters, **{"model": "linear", "max_epochs": 6, "random_state": 0, **parameters})


def same_weights(one: GeminiClustering, other: GeminiClustering) -> bool:
    states = one.module_.state_dict(), other.module_.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


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
    original = KMeans.fit

    def fit(self: KMeans, X: Any, y: Any = None, sample_weight: Any = None) -> KMeans:
        given.append(sample_weight)
        return original(self, X, y, sample_weight)

    monkeypatch.setattr(KMeans, "fit", fit)
    weight = np.linspace(0.5, 2, 75)
    small(init="kmeans", max_epochs=1).fit(X, sample_weight=weight)
    np.testing.assert_allclose(given[0] / given[0][0], weight / weight[0])


def test_the_features_of_the_linear_kernel_are_the_samples_as_they_are_stored() -> None:
    sparse = scipy.sparse.random_array((200, 3_000), density=0.001, random_state=np.random.default_rng(0), format="csr")

    def refused(index: Tensor) -> Any:
        pytest.fail("rows were asked for")

    (labels,) = initial_labels("kmeans", Rows(sparse), KERNELS["linear"], refused, 2, 1, 0)
    assert labels.shape == (200,)


def test_starts_leave_the_samples_alone() -> None:
    samples = X.copy()
    initial_labels("kmeans", Rows(samples), KERNELS["linear"], KERNELS["linear"].bind(samples), 3, 2, 0)
    np.testing.assert_array_equal(samples, X)


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
def test_a_training_that_is_taken_up_is_not_started_again(
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


# --- Rounds ---------------------------------------------------------------------------------------------------

WAYS: dict[str, dict[str, Any]] = {
    "without a tape": {},
    "stacked": {"optimiser": "adamw", "model": "mlp", "hidden": (4,)},
    "one by one": {"model": "mlp", "hidden": (4,), "norm": "batch"},
    "a free table": {"model": "free"},
}
every_way = pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)


@every_way
@pytest.mark.parametrize("going_on", [1, 2])
def test_the_best_of_a_trial_go_on(options: dict[str, Any], going_on: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "_GOING_ON", going_on)
    given = {"n_init": 4, "batch_size": 25, "n_clusters": 5, **options}
    trial = small(**given, max_epochs=2).fit(X)
    seen: list[tuple[int, int]] = []

    def callback(epoch: Any) -> None:
        seen.append((epoch.number, epoch.max_epochs))

    whole = small(**given, trial_epochs=2, max_epochs=7, callbacks=[callback]).fit(X)
    assert whole.n_iter_ == len(whole.history_["objective"]) == 7
    assert all(len(values) == 7 for values in whole.history_.values())
    if going_on == 1:
        # The history is that of the start that was the best after the trial.
        assert {name: values[:2] for name, values in whole.history_.items()} == trial.history_
    assert whole.stability_ == trial.stability_
    starts, rest = (4, going_on) if options.get("norm") else (1, 1)
    assert seen == [(1, 2), (2, 2)] * starts + [(number, 7) for number in range(3, 8)] * rest
    assert whole.objective_ == pytest.approx(whole.score(X) if options.get("model") != "free" else whole.objective_)


@pytest.mark.parametrize("starts", [1, 2])
def test_starts_that_would_all_go_on_have_no_trial(starts: int) -> None:
    one, other = small(trial_epochs=2, n_init=starts).fit(X), small(n_init=starts).fit(X)
    assert same_weights(one, other)
    assert one.history_ == other.history_


def test_a_trial_may_be_an_integer_of_numpy(tmp_path: Path) -> None:
    given = {"n_init": 3, "schedule": "cosine"}
    plain = small(**given, trial_epochs=2, max_epochs=5).fit(X)
    numpy = small(**given, trial_epochs=np.int64(2), max_epochs=np.int64(5), checkpoint=tmp_path).fit(X)
    assert same_weights(plain, numpy)
    epochs = small(max_epochs="auto", n_init=3, trial_epochs=np.int64(600)).fit(X).n_iter_
    assert epochs == 601


@every_way
def test_a_callback_ends_all_rounds(options: dict[str, Any], tmp_path: Path) -> None:
    given = {"n_init": 3, "trial_epochs": 3, "max_epochs": 9, "batch_size": 25, **options}
    seen: list[int] = []

    def callback(epoch: Any) -> bool:
        seen.append(epoch.number)
        return bool(epoch.number == 2)

    ended = small(**given, callbacks=[callback], checkpoint=tmp_path).fit(X)
    # Starts that are trained one by one all have their turn.
    assert seen == [1, 2] * (3 if options.get("norm") else 1)
    assert ended.n_iter_ == 2


@every_way
@pytest.mark.parametrize("epoch", [2, 3])
def test_ctrl_c_in_a_later_round_keeps_the_earlier_one(options: dict[str, Any], epoch: int) -> None:
    """Also in the first epoch of that round."""
    given = {"n_init": 3, "batch_size": 25, "n_clusters": 5, **options}

    trial = small(**given, max_epochs=2).fit(X)
    before = RowBatches.epoch

    def epochs(self: Any, *arguments: Any) -> Any:
        for batch in before(self, *arguments):
            if struck(batch):
                raise KeyboardInterrupt
            yield batch

    # Three steps an epoch; of starts one by one, each has its own.
    steps, last = [0], (6 * (3 if options.get("norm") else 1)) + 2 + 3 * (epoch - 2)

    def struck(batch: Any) -> bool:
        steps[0] += 1
        return steps[0] == last

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowBatches, "epoch", epochs)
        stopped = small(**given, trial_epochs=2, max_epochs=7, callbacks=[Interruptible()]).fit(X)
    assert stopped.n_iter_ == epoch
    if epoch == 2:
        assert same_weights(stopped, trial)
        assert stopped.history_ == trial.history_
        assert stopped.objective_ == trial.objective_


@every_way
def test_a_stop_in_a_later_round_keeps_the_earlier_one(options: dict[str, Any], tmp_path: Path) -> None:
    given = {"n_init": 3, "batch_size": 25, "n_clusters": 5, **options}
    trial = small(**given, max_epochs=2).fit(X)
    checkpoints = Checkpoints(tmp_path / "stopped", every="1 step")
    given |= {"trial_epochs": 2, "max_epochs": 5}

    turns, asked = 3 if options.get("norm") else 1, [0]

    def count(epoch: Any) -> None:
        asked[0] += epoch.number == 2
        checkpoints.stop_requested = asked[0] == turns

    stopped = small(**given, callbacks=[count], checkpoint=checkpoints).fit(X)
    assert checkpoints.stopped
    assert same_weights(stopped, trial)
    assert stopped.history_ == trial.history_
    assert checkpoints.epochs_done() == 2
    went_on = small(**given, checkpoint=tmp_path / "stopped").fit(X)
    assert same_weights(went_on, small(**given).fit(X))


@every_way
def test_a_later_round_that_explodes_leaves_the_earlier_one(options: dict[str, Any], tmp_path: Path) -> None:
    given = {"n_init": 3, "batch_size": 25, "n_clusters": 5, **options}
    trial = small(**given, max_epochs=2).fit(X)
    before = TrainingState.end_epoch

    def end_epoch(self: TrainingState) -> bool:
        if self.before:
            self.metrics._values = [value * torch.nan for value in self.metrics._values]
        return before(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingState, "end_epoch", end_epoch)
        with pytest.warns(NumericalWarning, match="last good weights"):
            fitted = small(**given, trial_epochs=2, max_epochs=7, checkpoint=tmp_path).fit(X)
        assert same_weights(fitted, trial)
        assert fitted.history_ == trial.history_
        assert fitted.diverged_
        with pytest.warns(NumericalWarning):
            again = small(**given, trial_epochs=2, max_epochs=7, checkpoint=tmp_path).fit(X)
    assert same_weights(again, trial)


def test_starts_that_are_not_finite_do_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    planned = restarts._plan_models

    def plan(modules: Any, *arguments: Any) -> Any:
        seen.append(len(modules))
        if len(seen) == 1:
            for module in modules[1:]:
                nn.init.constant_(next(module.parameters()), torch.nan)
        return planned(modules, *arguments)

    monkeypatch.setattr(restarts, "_plan_models", plan)
    assert small(n_init=4, trial_epochs=2, max_epochs=5).fit(X).n_iter_ == 5
    assert seen == [4, 1]


@every_way
def test_epochs_of_later_rounds_are_counted_on(options: dict[str, Any], tmp_path: Path) -> None:
    given = {"n_init": 3, "batch_size": 25, **options}
    small(**given, trial_epochs=2, max_epochs=5, checkpoint=tmp_path).fit(X)
    assert Checkpoints(tmp_path).epochs_done() == 5
    with pytest.raises(InputError, match=r"(had 5 epochs already, more than 4|cannot be prolonged)"):
        small(**given, trial_epochs=2, max_epochs=4, checkpoint=tmp_path).fit(X)


def test_a_trial_that_is_a_share_of_all_epochs_is_not_prolonged_unless_it_is_named(tmp_path: Path) -> None:
    given = {"n_init": 3, "checkpoint": tmp_path}
    small(**given, trial_epochs="auto", max_epochs=8).fit(X)
    with pytest.raises(InputError, match=r"trial_epochs was 2 and is 3.*trial_epochs=2"):
        small(**given, trial_epochs="auto", max_epochs=12).fit(X)
    longer = small(**given, trial_epochs=2, max_epochs=12).fit(X)
    assert same_weights(longer, small(n_init=3, trial_epochs=2, max_epochs=12).fit(X))


def test_epochs_that_are_left_to_us_are_some_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "_AUTO_STEPS", 100)
    monkeypatch.setattr(restarts, "_AUTO_EPOCHS", 4)
    options = {"max_epochs": "auto", "batch_size": 15}
    assert small(**options).fit(X).n_iter_ == 100 / 5
    assert small(max_epochs="auto", batch_size=2).fit(X).n_iter_ == 4
    # A trial leaves epochs for the best.
    assert small(**options, n_init=2, trial_epochs=22).fit(X).n_iter_ == 23


# --- Schedules ------------------------------------------------------------------------------------------------


def test_a_cosine_falls_from_one_to_zero() -> None:
    cosine = SCHEDULES["cosine"]
    assert [cosine(10, epochs) for epochs in (0, 5, 10, 12)] == pytest.approx([1, 0.5, 0, 0])
    assert cosine(3, 1) == pytest.approx((1 + math.cos(math.pi / 3)) / 2)
    assert {SCHEDULES["constant"](10, epochs) for epochs in (0, 3.5, 10)} == {1.0}


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_steps_go_at_the_pace_of_the_schedule(optimiser: str) -> None:
    rates: list[float] = []

    def factory(parameters: Any, lr: float) -> torch.optim.Optimizer:
        made = make_optimiser(optimiser, parameters, lr)
        made.register_step_pre_hook(lambda *_: rates.append(made.param_groups[0]["lr"]))
        return made

    small(optimiser=factory, schedule="cosine", max_epochs=4, batch_size=25, learning_rate=0.5).fit(X)
    expected = [0.5 * (1 + math.cos(math.pi * step / 12)) / 2 for step in range(12)]
    assert rates == pytest.approx(expected)


def test_the_schedule_is_the_same_with_and_in_closed_form() -> None:
    options = {"schedule": "cosine", "batch_size": 25, "dtype": "float64"}
    tapeless = small(**options).fit(X)
    taped = small(**options, penalties={"entropy": 0.0}).fit(X)
    np.testing.assert_allclose(tapeless.predict_proba(X), taped.predict_proba(X), atol=1e-8)
    assert not np.allclose(tapeless.predict_proba(X), small(batch_size=25).fit(X).predict_proba(X), atol=1e-4)


def test_an_optimiser_that_sets_its_own_rates_is_left_alone() -> None:
    rates: list[float] = []

    class Halving(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            rates.append(self.param_groups[0]["lr"])
            self.param_groups[0]["lr"] /= 2
            return super().step(closure)

    small(optimiser=Halving, max_epochs=3, learning_rate=0.4).fit(X)
    assert rates == pytest.approx([0.4, 0.2, 0.1])


def test_the_last_round_follows_the_schedule_from_its_beginning() -> None:
    rates: list[float] = []

    def factory(parameters: Any, lr: float) -> torch.optim.Optimizer:
        made = torch.optim.SGD(parameters, lr=lr)
        made.register_step_pre_hook(lambda *_: rates.append(made.param_groups[0]["lr"]))
        return made

    small(optimiser=factory, schedule="cosine", n_init=3, trial_epochs=2, max_epochs=5, learning_rate=1.0).fit(X)
    assert rates[:2] == [1, 1]
    assert rates[-3:] == pytest.approx([1, 0.75, 0.25])


def test_a_scheduled_training_is_not_prolonged(tmp_path: Path) -> None:
    model = small(schedule="cosine", max_epochs=3, checkpoint=tmp_path).fit(X)
    with pytest.raises(InputError, match="epochs"):
        model.set_params(max_epochs=5).fit(X)


# --- Penalties ------------------------------------------------------------------------------------------------


def test_balance_is_zero_for_equal_sizes_and_log_k_at_collapse() -> None:
    model: Any = None
    inputs = torch.zeros(6, 2)
    equal = torch.eye(3).repeat(2, 1).clamp_min(1e-30).log()
    assert float(balance(model, inputs, equal)) == pytest.approx(0, abs=1e-6)
    soft = torch.full((6, 3), 1 / 3).log()
    assert float(balance(model, inputs, soft)) == pytest.approx(0, abs=1e-6)
    collapsed = torch.tensor([[0.0, -torch.inf, -torch.inf]]).expand(6, 3)
    assert float(balance(model, inputs, collapsed)) == pytest.approx(math.log(3))
    stacked = torch.stack([equal, collapsed])
    assert balance(model, inputs, stacked).tolist() == pytest.approx([0, math.log(3)], abs=1e-6)


def test_balance_counts_a_weight_of_two_as_two() -> None:
    model: Any = None
    log_p = torch.randn(5, 3, dtype=torch.float64).log_softmax(-1)
    weight = torch.tensor([1, 2, 1, 3, 1])
    copied = log_p.repeat_interleave(weight, 0)
    weighted = balance(model, log_p, log_p, weight.double())
    torch.testing.assert_close(weighted, balance(model, copied, copied))
    expected = math.log(3) + float(torch.special.xlogy(copied.exp().mean(0), copied.exp().mean(0)).sum())
    assert float(weighted) == pytest.approx(expected)


@pytest.mark.parametrize("logits", [torch.zeros(5, 3), 200 * torch.eye(3)[[0, 0, 0, 0, 0]]])
def test_gradients_of_balance_are_finite(logits: Tensor) -> None:
    model: Any = None
    logits = logits.clone().requires_grad_()
    balance(model, logits, logits.log_softmax(-1)).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


class Watched:
    """A linear model that remembers what it was asked about."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.asked: list[Tensor] = []

    def __call__(self, inputs: Tensor) -> Tensor:
        return (inputs @ self.weight).log_softmax(-1)

    def each(self, inputs: Tensor) -> Tensor:
        self.asked.append(inputs.detach())
        return self(inputs)

    def parameters(self) -> list[Tensor]:
        return [self.weight]


def watched(d: int = 4, n_clusters: int = 3) -> Watched:
    return Watched(torch.randn(d, n_clusters, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


def test_moves_have_the_length_of_each_sample() -> None:
    model, inputs = watched(), torch.as_tensor(X)
    radius = torch.linspace(0, 2, len(X), dtype=torch.float64)
    vat(model, inputs, model(inputs), None, torch.Generator().manual_seed(0), radius=radius)
    lengths = (model.asked[-1] - inputs).norm(dim=1)
    torch.testing.assert_close(lengths, radius, atol=1e-9, rtol=1e-9)


def test_moves_of_images_have_the_length_of_each_sample() -> None:
    inputs = torch.as_tensor(X).view(-1, 1, 2, 2)
    base = watched()
    model = Watched(base.weight)
    model.__class__ = type("Flat", (Watched,), {"__call__": lambda self, x: Watched.__call__(self, x.flatten(1))})
    radius = torch.linspace(0.1, 2, len(X))
    vat(model, inputs, model(inputs), None, torch.Generator().manual_seed(0), radius=radius)
    lengths = (model.asked[-1] - inputs).flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, radius.double(), atol=1e-6, rtol=1e-6)


def test_one_radius_for_all_is_that_radius_for_each() -> None:
    model, inputs = watched(), torch.as_tensor(X)
    one, other = (
        vat(model, inputs, model(inputs), None, torch.Generator().manual_seed(0), radius=radius)
        for radius in (0.7, torch.full((len(X),), 0.7))
    )
    torch.testing.assert_close(one, other, rtol=1e-6, atol=0)


class Unmoved(Watched):
    """A model whose gradients are so small that their squares are no numbers of float32."""

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.tensor([0.2, 0.3, 0.5], dtype=inputs.dtype).log() + 1e-30 * (inputs @ self.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_moves_have_their_length_where_predictions_hardly_change(dtype: torch.dtype) -> None:
    model, inputs = Unmoved(watched().weight.to(dtype)), torch.as_tensor(X).to(dtype)
    vat(model, inputs, model(inputs), None, torch.Generator().manual_seed(0), radius=0.5)
    lengths = (model.asked[-1] - inputs).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 0.5), rtol=1e-4, atol=0)


def test_local_moves_are_a_share_of_the_distance_to_the_tenth_neighbour() -> None:
    model, inputs = watched(), torch.as_tensor(X)
    apart = measure_spacing(Rows(X))
    expected = np.sort(np.linalg.norm(X[:, None] - X, axis=-1), 1)[:, 10]
    np.testing.assert_allclose(apart, expected)
    LocalVat(share=0.3)(model, inputs, model(inputs), None, torch.Generator().manual_seed(0), spacing=apart)
    torch.testing.assert_close((model.asked[-1] - inputs).norm(dim=1), 0.3 * apart)
    few = measure_spacing(Rows(X[:3]))
    np.testing.assert_allclose(few, np.linalg.norm(X[:3, None] - X[:3], axis=-1).max(1))


def test_equal_rows_are_not_moved() -> None:
    model, inputs = watched(), torch.ones(20, 4, dtype=torch.float64)
    value = LocalVat()(model, inputs, model(inputs), None, torch.Generator(), spacing=measure_spacing(Rows(inputs)))
    assert float(value) == 0


def test_the_penalty_of_a_sample_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="there is one sample only: use 'vat'"):
        small(penalties={"local_vat": 1.0}).partial_fit(X[:1])
    with pytest.raises(ValueError, match="a free table has none: choose another model"):
        small(model="free", penalties={"local_vat": 1.0}).fit(X)


@pytest.mark.parametrize("objective", GEMINIS)
def test_local_vat_joins_every_objective(objective: str) -> None:
    options: dict[str, Any] = {"objective": objective, "max_epochs": 1, "batch_size": 15, "n_init": 2}
    rows = X[::3]
    fitted = small(**options, penalties={"local_vat": 5.0, "balance": 1.0}).fit(rows)
    assert math.isfinite(fitted.objective_)
    assert not same_weights(fitted, small(**options, penalties={"balance": 1.0}).fit(rows))


def test_gradients_flow_through_local_vat() -> None:
    module = mlp(4, 3, hidden=(5,)).double()
    inputs = torch.as_tensor(X)
    model = SingleModel(module, 3)
    log_p = model(inputs)
    LocalVat()(model, inputs, log_p, None, torch.Generator().manual_seed(0), spacing=torch.ones(75)).backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in module.parameters())


def test_restarts_trained_together_are_penalised_one_by_one() -> None:
    modules = [nn.Linear(4, 3).double() for _ in range(3)]
    # Of a number of rows for which three draws give the numbers of one that is thrice as long.
    rows = X[:64]
    inputs, apart = torch.as_tensor(rows), measure_spacing(Rows(rows))

    def penalty(model: SingleModel | StackedModels, generator: torch.Generator) -> Tensor:
        log_p = model(inputs).detach()
        return LocalVat(steps=2)(model, inputs, log_p, None, generator, spacing=apart).detach()

    together = penalty(StackedModels(modules, 3), torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    alone = [penalty(SingleModel(module, 3), generator) for module in modules]
    torch.testing.assert_close(together, torch.stack(alone))


def test_penalties_that_ask_for_the_spacing_are_given_that_of_their_batch() -> None:
    given: list[Tensor] = []

    def penalty(model: Any, inputs: Tensor, log_p: Tensor, weight: Any, generator: Any, *, spacing: Tensor) -> Tensor:
        given.append(spacing)
        return log_p.sum() * 0

    penalty.uses_spacing = True  # type: ignore[attr-defined]
    small(penalties={penalty: 1.0}, max_epochs=1, batch_size=25).fit(X)
    assert [len(part) for part in given] == [25, 25, 25]
    everything = np.sort(torch.cat(given).numpy())
    np.testing.assert_allclose(everything, np.sort(measure_spacing(Rows(X)).numpy()))


# --- Normalisation --------------------------------------------------------------------------------------------


def test_norm_comes_before_each_activation() -> None:
    module = mlp(4, 3, hidden=(5, 6), norm="batch")
    assert [type(layer) for layer in module.children()] == [
        *(nn.Linear, nn.BatchNorm1d, ACTIVATIONS["relu"]) * 2,
        nn.Linear,
    ]
    assert not has_closed_form(module, 3)
    assert not stackable(module)
    with pytest.raises(ValueError, match="norm is one of None, 'batch'; not 'layer'"):
        mlp(4, 3, norm="layer")


def test_running_statistics_see_the_data_alone() -> None:
    def trained(penalties: Any) -> dict[str, Tensor]:
        torch.manual_seed(0)
        module = mlp(4, 3, hidden=(5,), norm="batch").double()
        model = SingleModel(module, 3)
        model.train()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
        step = AutogradStep(model, Gemini("mi"), optimiser, penalties, torch.Generator().manual_seed(0))
        inputs = torch.as_tensor(X)
        step(Batch(inputs, None, None, None, torch.ones(75)))
        return {name: buffer.clone() for name, buffer in module.named_buffers()}

    plain, penalised = trained([]), trained([(PENALTIES["local_vat"], 1.0), (PENALTIES["vat"], 1.0)])
    assert plain.keys() == penalised.keys()
    assert all(torch.equal(plain[name], penalised[name]) for name in plain)
    assert int(plain["1.num_batches_tracked"]) == 1


def test_predictions_of_a_normalised_network_do_not_depend_on_other_rows() -> None:
    fitted = small(model="mlp", norm="batch", hidden=(6,), batch_size=25).fit(X)
    alone = np.concatenate([fitted.predict_proba(row[None]) for row in X[:10]])
    np.testing.assert_allclose(alone, fitted.predict_proba(X)[:10], atol=1e-9)


def test_a_step_without_a_tape_goes_at_its_pace() -> None:
    modules = [nn.Linear(4, 3, dtype=torch.float64)]
    model = DenseModels(modules, 0.1)
    step = ClosedFormStep(model, Gemini("mi"))
    before = model.adam.parameters.clone()
    step.scale_learning_rate(0.0)
    step(Batch(torch.as_tensor(X), None, None))
    assert torch.equal(model.adam.parameters, before)
