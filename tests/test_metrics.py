"""The metrics against slow definitions, their laws, their limits, and their errors."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from pollux import metrics
from pollux.metrics import (
    LABEL_METRICS,
    adjusted_rand_index,
    clusters_in_use,
    conditional_entropy,
    hungarian_accuracy,
    normalised_mutual_information,
    purity,
    renyi_entropy,
)

Labels = list[int]
ORDERS = [0, 0.3, 0.95, 1, 1.05, 2, 7.5, math.inf]

every_label_metric = pytest.mark.parametrize("metric", LABEL_METRICS.values(), ids=LABEL_METRICS.keys())


@st.composite
def label_pairs(draw: st.DrawFn) -> tuple[Labels, Labels]:
    """Two labellings of the same 1 to 15 samples, with up to 4 classes and 5 clusters."""
    n = draw(st.integers(1, 15))
    true = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    pred = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    return true, pred


@st.composite
def probability_tables(draw: st.DrawFn) -> NDArray[np.float64]:
    """(n, K) rows that sum to 1, exact zeros and certain rows included."""
    n, n_clusters = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1.0))
    row = st.lists(weight, min_size=n_clusters, max_size=n_clusters).filter(lambda weights: sum(weights) > 0)
    table = np.array(draw(st.lists(row, min_size=n, max_size=n)))
    return table / table.sum(axis=1, keepdims=True)


def slow_rand_index(true: Labels, pred: Labels) -> float:
    """(agreements − expected) / (largest − expected) over all pairs of samples."""
    pairs = list(combinations(range(len(true)), 2))
    same_true = sum(true[i] == true[j] for i, j in pairs)
    same_pred = sum(pred[i] == pred[j] for i, j in pairs)
    same_both = sum(true[i] == true[j] and pred[i] == pred[j] for i, j in pairs)
    expected = same_true * same_pred / len(pairs) if pairs else 0.0
    largest = (same_true + same_pred) / 2
    return 1.0 if largest == expected else (same_both - expected) / (largest - expected)


def slow_normalised_information(true: Labels, pred: Labels) -> float:
    def entropy(labels: list[object]) -> float:
        shares = [labels.count(label) / len(labels) for label in set(labels)]
        return -sum(share * math.log(share) for share in shares)

    true_entropy, pred_entropy = entropy(list(true)), entropy(list(pred))
    if true_entropy == pred_entropy == 0:
        return 1.0
    joint_entropy = entropy(list(zip(true, pred, strict=True)))
    return (true_entropy + pred_entropy - joint_entropy) / ((true_entropy + pred_entropy) / 2)


def slow_accuracy(true: Labels, pred: Labels) -> float:
    """The best over all one-to-one maps from clusters to classes, tried one by one."""
    clusters = sorted(set(pred))
    nobody = [-1] * (len(clusters) - len(set(true)))  # a partner that no sample has
    best = 0
    for partners in permutations(sorted(set(true)) + nobody, len(clusters)):
        partner = dict(zip(clusters, partners, strict=True))
        best = max(best, sum(partner[p] == t for t, p in zip(true, pred, strict=True)))
    return best / len(true)


def slow_purity(true: Labels, pred: Labels) -> float:
    right = 0
    for cluster in set(pred):
        members = [t for t, p in zip(true, pred, strict=True) if p == cluster]
        right += max(members.count(label) for label in set(members))
    return right / len(true)


def slow_renyi_entropy(row: NDArray[np.float64], order: float) -> float:
    positive = [float(p) for p in row if p > 0]
    if order == 0:
        return math.log(len(positive))
    if order == 1:
        return -sum(p * math.log(p) for p in positive)
    if math.isinf(order):
        return -math.log(max(positive))
    return math.log(sum(p**order for p in positive)) / (1 - order)


SLOW_LABEL_METRICS = {
    "adjusted_rand_index": slow_rand_index,
    "normalised_mutual_information": slow_normalised_information,
    "hungarian_accuracy": slow_accuracy,
    "purity": slow_purity,
}


def test_every_registered_metric_has_a_slow_definition_and_is_public() -> None:
    assert LABEL_METRICS.keys() == SLOW_LABEL_METRICS.keys()
    assert all(getattr(metrics, name) is function for name, function in LABEL_METRICS.items())
    assert set(metrics.__all__) >= LABEL_METRICS.keys()


@pytest.mark.parametrize("name", LABEL_METRICS)
@settings(deadline=None, max_examples=30)
@given(labels=label_pairs())
def test_label_metrics_equal_their_slow_definitions(name: str, labels: tuple[Labels, Labels]) -> None:
    assert LABEL_METRICS[name](*labels) == pytest.approx(SLOW_LABEL_METRICS[name](*labels), abs=1e-9)


@every_label_metric
@settings(deadline=None, max_examples=30)
@given(labels=label_pairs(), renaming=st.permutations(range(5)), random=st.randoms(use_true_random=False))
def test_neither_names_nor_order_matter(metric, labels, renaming, random) -> None:
    true, pred = labels
    value = metric(true, pred)
    assert isinstance(value, float)
    assert metric([f"class {renaming[t]}" for t in true], [renaming[p] - 2 for p in pred]) == pytest.approx(value)
    order = random.sample(range(len(true)), len(true))
    assert metric([true[i] for i in order], [pred[i] for i in order]) == pytest.approx(value)


@settings(deadline=None, max_examples=30)
@given(labels=label_pairs())
def test_purity_bounds_accuracy_and_both_beat_the_largest_overlap(labels: tuple[Labels, Labels]) -> None:
    true, pred = labels
    pairs = list(zip(true, pred, strict=True))
    overlap = max(pairs.count(pair) for pair in pairs) / len(pairs)
    assert overlap <= hungarian_accuracy(true, pred) <= purity(true, pred) <= 1
    assert hungarian_accuracy(true, pred) == hungarian_accuracy(pred, true)


@every_label_metric
@pytest.mark.parametrize(
    ("true", "pred"),
    [
        ([0, 0, 1, 2], [7, 7, 3, -1]),
        (["cat", "cat", "dog", "emu"], [2, 2, 0, 1]),
        ([True, True, False], ["x", "x", "y"]),
        ([0.5, 0.5, 1.25], [1, 1, 0]),
        (np.array(["a", "b"], dtype=object), torch.tensor([1, 0])),
        (np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"), (0, 1)),
        ([3], [9]),
    ],
)
def test_the_same_partition_scores_one_whatever_its_labels(metric, true, pred) -> None:
    assert metric(true, pred) == pytest.approx(1.0)


def test_one_cluster_for_all() -> None:
    true, pred = ["a", "a", "a", "b", "c"], [4] * 5
    assert adjusted_rand_index(true, pred) == 0
    assert normalised_mutual_information(true, pred) == 0
    assert hungarian_accuracy(true, pred) == purity(true, pred) == 0.6


def test_more_clusters_than_classes() -> None:
    true, pred = [0, 0, 0, 1, 1, 1], [0, 0, 1, 2, 2, 3]
    assert hungarian_accuracy(true, pred) == pytest.approx(4 / 6)
    assert purity(true, pred) == 1


def test_more_classes_than_clusters() -> None:
    true, pred = [0, 0, 0, 1, 1, 2], [1, 1, 1, 0, 0, 0]
    assert hungarian_accuracy(true, pred) == pytest.approx(5 / 6)
    assert purity(true, pred) == pytest.approx(5 / 6)


def test_accuracy_matches_globally_where_greedy_matching_fails() -> None:
    # Class 0 overlaps most with cluster 0, but giving it away costs class 1 everything.
    true = [0] * 9 + [1] * 4
    pred = [0] * 5 + [1] * 4 + [0] * 4
    assert hungarian_accuracy(true, pred) == pytest.approx(8 / 13)


def test_large_independent_labels_are_at_chance() -> None:
    generator = np.random.default_rng(0)
    true, pred = generator.integers(10, size=20_000), generator.integers(10, size=20_000)
    assert abs(adjusted_rand_index(true, pred)) < 0.01
    assert normalised_mutual_information(true, pred) < 0.01
    assert hungarian_accuracy(true, pred) == pytest.approx(0.1, abs=0.02)
    assert adjusted_rand_index(true, pred) == pytest.approx(adjusted_rand_score(true, pred))
    expected = normalized_mutual_info_score(true, pred)
    assert normalised_mutual_information(true, pred) == pytest.approx(expected)


@every_label_metric
@pytest.mark.parametrize(
    ("true", "pred", "message"),
    [
        ([0, 1], [0, 1, 1], "same samples.*lengths 2 and 3"),
        ([], [], "labels_true must be a list of labels"),
        ([0], [], "labels_pred must be a list of labels"),
        ([[0, 1]], [0, 1], "labels_true must be a list of labels"),
        ([0, 1], [[0.2, 0.8], [0.5, 0.5]], "labels_pred must.*argmax"),
        ("ab", [0, 1], "labels_true must be a list of labels"),
        ([0, math.nan], [0, 1], "labels_true contains missing values"),
        (
            [0, 1],
            np.array(["NaT", "2020-01-01"], dtype="datetime64[D]"),
            "labels_pred contains missing values",
        ),
        (np.array(["a", None], dtype=object), [0, 1], "labels_true mixes labels.*Drop"),
        ([0, 1], np.array(["a", 1], dtype=object), "labels_pred mixes labels.*convert"),
    ],
)
def test_wrong_labels_are_explained(metric, true, pred, message) -> None:
    with pytest.raises(ValueError, match=message):
        metric(true, pred)


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        ([[0.2, 0.8]], 1),
        ([[1.0], [1.0]], 1),
        ([[0.5, 0.5], [0.5, 0.5]], 1),
        ([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7]], 2),
        (np.eye(4), 4),
        (np.eye(4)[[1, 1, 3]], 2),
        (torch.eye(3), 3),
    ],
)
def test_clusters_in_use_counts_winners(probabilities, expected: int) -> None:
    count = clusters_in_use(probabilities)
    assert count == expected
    assert isinstance(count, int)


@settings(deadline=None, max_examples=30)
@given(table=probability_tables())
def test_clusters_in_use_equals_its_slow_definition(table: NDArray[np.float64]) -> None:
    assert clusters_in_use(table) == len({row.index(max(row)) for row in table.tolist()})


@settings(deadline=None, max_examples=30)
@given(table=probability_tables())
def test_conditional_entropy_equals_its_slow_definition(table: NDArray[np.float64]) -> None:
    expected = sum(slow_renyi_entropy(row, 1) for row in table) / len(table)
    assert conditional_entropy(table) == pytest.approx(expected, abs=1e-12)


def test_conditional_entropy_is_zero_when_certain_and_log_k_when_uniform() -> None:
    certain = conditional_entropy(np.eye(3))
    assert certain == 0
    assert math.copysign(1, certain) == 1
    assert conditional_entropy(np.full((7, 5), 0.2)) == pytest.approx(math.log(5))


@pytest.mark.parametrize("order", ORDERS)
@settings(deadline=None, max_examples=20)
@given(table=probability_tables())
def test_renyi_entropy_equals_its_slow_definition(order: float, table: NDArray[np.float64]) -> None:
    expected = [slow_renyi_entropy(row, order) for row in table]
    entropy = renyi_entropy(table, order)
    assert entropy.shape == (len(table),)
    np.testing.assert_allclose(entropy, expected, rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(table=probability_tables(), random=st.randoms(use_true_random=False))
def test_renyi_entropy_decreases_in_its_order_within_its_bounds(table, random) -> None:
    columns = random.sample(range(table.shape[1]), table.shape[1])
    curves = np.array([renyi_entropy(table, order) for order in ORDERS])
    assert (curves >= 0).all()
    assert (curves <= math.log(table.shape[1]) + 1e-12).all()
    assert (np.diff(curves, axis=0) <= 1e-12).all()
    shuffled = np.array([renyi_entropy(table[:, columns], order) for order in ORDERS])
    np.testing.assert_allclose(shuffled, curves, atol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_renyi_entropy_of_uniform_and_certain_rows_does_not_depend_on_the_order(order: float) -> None:
    np.testing.assert_allclose(renyi_entropy(np.full((2, 6), 1 / 6), order), math.log(6))
    certain = renyi_entropy(np.eye(6), order)
    assert (certain == 0).all()
    assert not np.signbit(certain).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step", [1e-3, 1e-6, 1e-9, 1e-12, 1e-15])
@pytest.mark.parametrize("side", [-1, 1])
def test_renyi_entropy_converges_to_shannon_at_order_one(dtype: type, step: float, side: int) -> None:
    # The rows of float32 sum to 1 only within 1e-7: the limit must survive that.
    table = np.random.default_rng(0).dirichlet(np.full(6, 0.3), size=50).astype(dtype)
    distance = np.abs(renyi_entropy(table, 1 + side * step) - renyi_entropy(table, 1.0))
    assert distance.max() <= step * 10 + 1e-14


@pytest.mark.parametrize("boundary", [0.9, 1.1])
def test_renyi_entropy_is_continuous_where_its_formula_changes(boundary: float) -> None:
    table = np.random.default_rng(0).dirichlet(np.ones(8), size=50)
    below, above = renyi_entropy(table, boundary - 1e-9), renyi_entropy(table, boundary + 1e-9)
    np.testing.assert_allclose(below, above, atol=1e-7)


@pytest.mark.parametrize("order", [1e4, 1e8, 1e300, 1.7e308])
def test_renyi_entropy_converges_to_min_entropy_without_underflow(order: float) -> None:
    table = np.random.default_rng(0).dirichlet(np.ones(100), size=20)
    table[0] = 1 / 100
    limit = renyi_entropy(table, math.inf)
    np.testing.assert_allclose(renyi_entropy(table, order), limit, rtol=0, atol=math.log(100) * 2 / order + 1e-12)


@pytest.mark.parametrize("order", [1e-6, 1e-12, 1e-300])
def test_renyi_entropy_converges_to_the_log_of_the_support(order: float) -> None:
    table = [[0.3, 0.7, 0.0], [1.0, 0.0, 0.0], [1.0, 5e-324, 0.0]]
    expected = [math.log(2), 0, math.log(2)]
    np.testing.assert_allclose(renyi_entropy(table, order), expected, atol=1e-3)
    assert renyi_entropy(table, 0).tolist() == expected


def test_order_two_is_the_collision_entropy_and_the_default() -> None:
    table = np.array([[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]])
    np.testing.assert_allclose(renyi_entropy(table), -np.log((table**2).sum(axis=1)))


@pytest.mark.parametrize("order", [-1, -1e-9, math.nan, -math.inf])
def test_a_wrong_order_is_explained(order: float) -> None:
    with pytest.raises(ValueError, match="number from 0 to infinity"):
        renyi_entropy([[0.5, 0.5]], order)


@pytest.mark.parametrize("function", [clusters_in_use, conditional_entropy, renyi_entropy])
@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ([0.5, 0.5], "one row per sample"),
        ([], "one row per sample"),
        (np.empty((0, 3)), "at least one of each"),
        (np.empty((3, 0)), "at least one of each"),
        (np.full((1, 2, 2), 0.5), "one row per sample"),
        ([[0.5, math.nan]], "NaN or infinity"),
        ([[math.inf, 0.0]], "NaN or infinity"),
        ([[1.5, -0.5]], "negative.*softmax"),
        ([[0.5, 0.5], [0.5, 0.6]], "row 1 sums to 1.1"),
        ([[0.5, 0.4998]], "row 0 sums to 0.9998"),
        ([[0.0, 0.0]], "row 0 sums to 0"),
    ],
)
def test_what_is_not_probabilities_is_explained(function, probabilities, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(probabilities)


@pytest.mark.parametrize("order", [*ORDERS, 1 - 1e-9, 1 + 1e-9])
def test_rows_that_sum_to_one_only_roughly_have_the_entropy_of_their_shares(order: float) -> None:
    table = np.random.default_rng(0).dirichlet(np.ones(4), size=20)
    for scale in (1 - 5e-5, 1 + 5e-5):
        np.testing.assert_allclose(renyi_entropy(table * scale, order), renyi_entropy(table, order), atol=1e-12)


@pytest.mark.parametrize("function", [clusters_in_use, conditional_entropy, renyi_entropy])
def test_rounded_rows_are_accepted_and_left_unchanged(function) -> None:
    table = np.array([[0.33333, 0.33333, 0.33333], [0.50004, 0.5, 0.0]])
    before = table.copy()
    function(table)
    assert np.array_equal(table, before)


def test_float32_softmax_of_a_tensor_is_accepted() -> None:
    logits = 50 * torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    probabilities = logits.softmax(dim=1)
    expected = conditional_entropy(logits.double().softmax(dim=1))
    assert conditional_entropy(probabilities) == pytest.approx(expected, rel=1e-5)
