"""The columns that a clustering needs."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from coverings import in_full
from pollux import MLP, GeminiClustering, select_features
from pollux.clustering import CollapseWarning
from pollux.errors import InputError
from pollux.models import mlp
from pollux.objectives import Gemini
from pollux.objectives.gradients import value_and_gradient
from pollux.selection.features import FeaturePath, FeatureStep, _choose, _Network, group_norms, shrink_groups


def blobs(n: int = 90, noise: int = 4) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Three clusters in columns 0 and 2 of 2 + noise."""
    X = np.random.default_rng(0).normal(size=(n, 2 + noise))
    y = np.arange(n) % 3
    X[:, [0, 2]] += np.array([[0, 0], [8, 0], [0, 8]])[y]
    return X, y


def clustering(**parameters: object) -> GeminiClustering:
    return GeminiClustering(
        3, **{"model": "linear", "objective": "mmd_ovo", "max_epochs": 30, "n_init": 2, "random_state": 0, **parameters}
    )


GROUPS = torch.tensor([0, 1, 1, 2])


@pytest.mark.parametrize("threshold", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("has_hidden", [False, True])
def test_proximal_operator_is_the_minimum_that_a_generic_solver_finds(threshold: float, has_hidden: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    direct = torch.randn(4, 2, generator=generator, dtype=torch.float64)
    hidden = torch.randn(4, 3, generator=generator, dtype=torch.float64) if has_hidden else None
    ratio = 0.7
    found, below, norms = shrink_groups(direct, GROUPS, threshold, hidden, ratio)

    def cost(theta: torch.Tensor, weights: torch.Tensor | None) -> float:
        total = (theta - direct).square().sum() / 2 + threshold * group_norms(theta, GROUPS).sum()
        return float(total if weights is None or hidden is None else total + (weights - hidden).square().sum() / 2)

    torch.testing.assert_close(norms, group_norms(found, GROUPS))
    reached = cost(found, below)
    if hidden is not None and below is not None:
        bound = ratio * group_norms(found, GROUPS)[GROUPS, None]
        assert bool((below.abs() <= bound * (1 + 1e-12)).all())

    def of_vector(vector: NDArray[np.float64]) -> tuple[torch.Tensor, torch.Tensor | None]:
        values = torch.from_numpy(np.asarray(vector))
        return values[:8].reshape(4, 2), None if hidden is None else values[8:].reshape(4, 3)

    def slack(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        theta, weights = of_vector(vector)
        assert weights is not None
        return np.asarray((ratio * group_norms(theta, GROUPS)[GROUPS, None] - weights.abs()).flatten())

    start = np.concatenate([direct.flatten(), [] if hidden is None else 0.1 * hidden.flatten()])
    limits = [] if hidden is None else [{"type": "ineq", "fun": slack}]
    solved = minimize(
        lambda v: cost(*of_vector(v)), start, method="SLSQP", constraints=limits, options={"maxiter": 500}
    )
    # The solver stops within its tolerance, from above: nothing that is allowed lies below.
    assert reached <= solved.fun + 1e-6
    assert solved.fun <= reached + 1e-3 * max(1, abs(reached))


def test_weights_of_zero_may_grow_where_hidden_ones_ask_for_it() -> None:
    direct, hidden = torch.zeros(1, 2).double(), torch.full((1, 3), 4.0).double()
    found, below, _ = shrink_groups(direct, torch.tensor([0]), 0.5, hidden, 1.0)
    # ½ b² + ½ b + 3/2 (4 − b)² is least at b = (12 − ½) / 4.
    torch.testing.assert_close(group_norms(found, torch.tensor([0])), torch.tensor([11.5 / 4]).double())
    assert below is not None
    torch.testing.assert_close(below, torch.full((1, 3), 11.5 / 4).double())


@pytest.mark.parametrize("hidden", [None, (3,)])
def test_gradients_are_those_of_finite_differences(hidden: tuple[int, ...] | None) -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    network = _Network(None if hidden is None else mlp(4, 3, hidden=hidden, activation="tanh").double())
    tensors = [t + 0.3 * torch.randn(t.shape, generator=generator).double() for t in network.start(4, 3)]
    gemini = Gemini("mi")
    _, backward = network.evaluate(tensors, inputs, lambda logits: value_and_gradient(gemini, logits, None))
    gradient = backward()
    for at, tensor in enumerate(tensors):
        move = torch.randn(tensor.shape, generator=generator).double()
        step = 1e-5
        ends = [
            float(gemini(network([*tensors[:at], tensor + s * move, *tensors[at + 1 :]], inputs).log_softmax(-1)))
            for s in (step, -step)
        ]
        # A central difference is exact to the square of its step, and loses its digits to rounding.
        np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), float((gradient[at] * move).sum()), atol=1e-7)


@pytest.mark.parametrize("model", ["linear", pytest.param(MLP((10,)), marks=in_full)], ids=["linear", "mlp"])
def test_informative_columns_are_selected(model: str | MLP) -> None:
    X, y = blobs()
    path = select_features(clustering(model=model), X, y=y)
    assert path.selected.tolist() == [0, 2]
    assert path.selected_names == ("x0", "x2")
    assert path.best.n_features_in_ == 2
    assert path.best.n_clusters_ == 3
    assert path.best.predict(X[:, path.selected]).shape == (90,)
    assert path.chosen.adjusted_rand_index == pytest.approx(1.0)
    sizes = [len(step.columns) for step in path.steps]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (6, 2)
    assert path.chosen.objective >= 0.9 * path.steps[0].objective
    assert json.loads(json.dumps(path.to_dict()))["selected"] == ["x0", "x2"]
    assert "2 of 6 columns" in str(path)


def test_the_geometry_may_follow_the_columns_and_a_fit_is_where_it_begins() -> None:
    X, _ = blobs()
    fitted = clustering(geometry="rbf").fit(X)
    before = fitted.labels_.copy()
    assert select_features(fitted, X, dynamic=True).selected.tolist() == [0, 2]
    np.testing.assert_array_equal(fitted.labels_, before)


def test_columns_of_a_group_stay_or_leave_together() -> None:
    X, _ = blobs()
    path = select_features(clustering(), X, groups=[[0, 1], [3, 4, 5]], min_features=1)
    assert path.selected.tolist() == [0, 1, 2]
    for step in path.steps:
        assert (0 in step.columns) == (1 in step.columns)
        assert len({at in step.columns for at in (3, 4, 5)}) == 1


def test_values_of_one_column_of_a_frame_are_one_group() -> None:
    X, y = blobs(120, noise=2)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame["kind"] = pd.Categorical(np.array(["red", "green", "blue"])[y])
    frame["other"] = np.array(["x", "y", "z", "w"])[np.random.default_rng(0).integers(4, size=120)]
    path = select_features(clustering(), frame, min_features=1, keep=0.95)
    assert set(path.selected_names) <= {"a", "c", "kind"}
    assert list(path.best.feature_names_in_) == list(path.selected_names)


def test_constant_columns_are_never_selected() -> None:
    X, _ = blobs(noise=1)
    X = np.column_stack([X, np.full(len(X), 3.0)])
    path = select_features(clustering(), X)
    assert path.selected.tolist() == [0, 2]
    assert len(path.steps[0].columns) == 3


@pytest.mark.parametrize(
    ("parameters", "options", "message"),
    [
        ({}, {"groups": [[0, 1], [1, 2]]}, "twice"),
        ({}, {"groups": [[0, 9]]}, "no such column"),
        ({}, {"min_features": 7}, "min_features=7"),
        ({"model": "free"}, {}, "linear"),
        ({"preprocessing": PCA(2)}, {}, "mixes columns"),
        ({"objective": "mi"}, {"y": [0, 1]}, "90 rows"),
    ],
)
def test_what_cannot_be_selected_is_refused(
    parameters: dict[str, object], options: dict[str, object], message: str
) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        select_features(clustering(**parameters), blobs()[0], **options)  # type: ignore[arg-type]


def test_transformers_that_keep_columns_apart_are_followed() -> None:
    assert select_features(clustering(preprocessing=StandardScaler()), blobs()[0]).selected.tolist() == [0, 2]


def test_one_cluster_has_nothing_to_keep() -> None:
    X = np.ones((20, 3))
    X[:, 0] = np.arange(20)
    with pytest.raises(InputError, match="one cluster"):
        select_features(GeminiClustering(1, model="linear", objective="mmd_ovo", max_epochs=2), X, min_features=1)
    with pytest.raises(InputError, match="No column"), pytest.warns(CollapseWarning):
        select_features(GeminiClustering(2, model="linear", objective="mi", max_epochs=2), np.ones((20, 3)))


def test_why_more_columns_are_kept_than_the_fewest_is_said() -> None:
    steps = tuple(FeatureStep(at, 1 - at / 100, tuple(range(6 - 2 * at)), 3) for at in range(3))
    names = tuple("abcdef")
    best = GeminiClustering(3)
    assert "2 would keep 98.0%; but other columns leave soon" in str(FeaturePath(steps, steps[1], names, 0.9, best))
    told = str(FeaturePath(steps, steps[2], names, 0.9, best))
    assert told.endswith("2 of 6 columns keep 98.0% of the objective: a, b.")


def test_all_columns_are_not_those_that_leave_late() -> None:
    steps = [FeatureStep(penalty, 1 - at / 100, tuple(range(4 - at)), 3) for at, penalty in enumerate((0, 9, 10))]
    assert _choose(steps, 11.0, 0.9) is steps[2]
    late = [FeatureStep(penalty, 1 - at / 100, tuple(range(4 - at)), 3) for at, penalty in enumerate((0, 1, 10))]
    assert _choose(late, 11.0, 0.9) is late[1]
