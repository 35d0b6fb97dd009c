"""Unsupervised trees: their splits against moves that are tried one by one, and what users do with them."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import pollux
from pollux import GeminiClustering, GeminiTree, SoftTree, geometry
from pollux.errors import InputError
from pollux.geometry.landmarks import features_of
from pollux.io import onnx as export
from pollux.spec import Scaling, Spec
from pollux.trees.growth import Growth, Limits, Nodes
from pollux.trees.splits import scan_splits, square_sides
from pollux.trees.tree import describe_path, describe_side, hard_rules

Array = NDArray[np.float64]
WINE = load_wine().data


@parametrize_with_checks([GeminiTree(3), GeminiTree(3, kernel="rbf", preprocessing="auto", max_leaves=5)])
def test_every_check_of_scikit_learn_passes(estimator: GeminiTree, check) -> None:
    check(estimator)


# The algorithm


def objective(kernel: Array, weight: Array, clusters: NDArray[np.int64]) -> float:
    """Σ σ(C²) / |C|, as it is written."""
    total = 0.0
    for cluster in np.unique(clusters):
        w = weight * (clusters == cluster)
        total += w @ kernel @ w / w.sum()
    return float(total)


def sides(X: Array, members: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    """All ways to split some samples: those whose column is at most a value, missing ones with them or not."""
    found = []
    for column in X.T:
        for value in np.unique(column[members]):
            for missing in (False, True):
                left = np.where(np.isnan(column[members]), missing, column[members] <= value)
                if 0 < left.sum() < len(members):
                    found.append(left)
    return found


def grow_by_trying(X: Array, kernel: Array, weight: Array, K: int, leaves: int) -> float:
    """The objective of a tree each of whose moves is the best of all, tried one by one."""
    clusters, parts = np.zeros(len(X), dtype=np.int64), [np.arange(len(X))]
    value = objective(kernel, weight, clusters)
    while len(parts) < leaves:
        best = (value + 1e-9, None, None, None)
        used = set(np.unique(clusters).tolist())
        free = [cluster for cluster in range(K) if cluster not in used][:2]
        for part in parts:
            own = int(clusters[part[0]])
            is_whole = (clusters == own).sum() == len(part)
            others = used - {own}
            pairs = [(own, target) for target in [*others, *free[:1]]]
            pairs += [(target, own) for target in [*others, *free[:1]]]
            pairs += list(itertools.permutations(others, 2))
            pairs += [(free[0], free[1])] if len(free) > 1 and not is_whole else []
            for left in sides(X, part):
                for pair in pairs:
                    tried = clusters.copy()
                    tried[part[left]], tried[part[~left]] = pair
                    gained = objective(kernel, weight, tried)
                    if gained > best[0] + 1e-9:
                        best = (gained, part, left, tried)
        value, part, left, tried = best[0], *best[1:]
        if part is None or left is None or tried is None:
            break
        parts = [other for other in parts if other is not part] + [part[left], part[~left]]
        clusters, value = tried, objective(kernel, weight, tried)
    return value


@pytest.fixture(params=["compiled", "numpy"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What looks at the splits."""
    if request.param == "numpy":
        monkeypatch.setattr("pollux.trees.splits.load_compiled", lambda: None)
        monkeypatch.setattr("pollux.trees.splits.ELEMENTS", 100)
    return str(request.param)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_all_moves_is_made_first(seed: int, engine: str) -> None:
    random = np.random.default_rng(seed)
    X = random.normal(size=(14, 2)).round(1)
    X[random.random(X.shape) < 0.1] = np.nan
    weight = random.integers(1, 4, size=14).astype(float)
    features = random.normal(size=(14, 3))
    features -= weight @ features / weight.sum()
    K = 2 + seed
    expected = grow_by_trying(X, features @ features.T, weight, K, 9)
    growth = Growth(X, features, weight, Limits(K, max_leaves=9), random)
    nodes = growth.grow()
    assert objective(features @ features.T, weight, growth.clusters) == pytest.approx(expected, rel=1e-10)
    np.testing.assert_array_equal(nodes.cluster[nodes.apply(X)], growth.clusters)


def test_without_a_compiler_the_trees_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    X = StandardScaler().fit_transform(WINE)
    X[::7, 2] = np.nan
    tree = GeminiTree(5, max_leaves=30, min_samples_leaf=2).fit(X)
    monkeypatch.setattr("pollux.trees.splits.load_compiled", lambda: None)
    other = clone(tree).fit(X)
    assert tree.export_text() == other.export_text()
    np.testing.assert_allclose(tree.nodes_.gain, other.nodes_.gain, rtol=1e-9)


@pytest.mark.parametrize("pairs", [False, True])
def test_compiled_scans_find_what_numpy_finds(pairs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    n, K, start, stop = 60, 5, 7, 48
    order = np.argsort(random.normal(size=(4, n)), axis=1).astype(np.int32)
    columns, last = np.array([0, 2, 3], dtype=np.int32), np.flatnonzero(random.random(3 * (stop - start)) < 0.8)
    features, weight = random.normal(size=(n, 3)), random.random(n) + 0.5
    members, sums = order[0, start:stop], random.normal(size=(K, 3))
    total = features[members].sum(0)
    found = []
    for is_built in (True, False):
        if not is_built:
            monkeypatch.setattr("pollux.trees.splits.load_compiled", lambda: None)
            monkeypatch.setattr("pollux.trees.splits.ELEMENTS", 400)
        left, squares = square_sides(order, columns, last, start, stop, features, weight, total)
        clusters = (features @ sums.T, np.full(K, 90.0), (sums**2).sum(1), sums @ total)
        leaf, targets = (weight[members].sum(), -0.3), np.array([0, 2, 4], dtype=np.int32)
        gains, splits = np.full(K + 4, np.nan), np.full(K + 4, -1)
        splitting = (order, columns, last, start, stop, left, squares, *clusters, 1, *leaf, targets, 1e-12, pairs)
        scan_splits(*splitting, gains, splits)
        found.append((left, squares, gains, splits))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    assert np.isnan(found[0][2][[1, 3]]).all()


def test_gains_add_up_to_the_objective() -> None:
    tree = GeminiTree(4, kernel="linear").fit(WINE)
    assert tree.nodes_.gain.sum() == pytest.approx(tree.objective_, rel=1e-9)
    assert tree.score(WINE) == pytest.approx(tree.objective_, rel=1e-9)
    assert tree.feature_importances_.sum() == pytest.approx(1)
    np.testing.assert_array_equal(tree.predict(WINE), tree.labels_)


def test_leaves_of_many_samples_are_split_at_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = make_blobs(600, 3, centers=4, random_state=0)
    exact = GeminiTree(4, max_leaves=6).fit(X)
    monkeypatch.setattr("pollux.trees.growth._MOST_SPLITS", 64)
    monkeypatch.setattr("pollux.trees.growth.ELEMENTS", 1000)
    coarse = GeminiTree(4, max_leaves=6).fit(X)
    assert coarse.objective_ > 0.98 * exact.objective_


def test_a_weight_stands_for_so_many_samples() -> None:
    X, weight = WINE[:60, :4], np.random.default_rng(0).integers(0, 3, size=60)
    weighted = GeminiTree(3, max_leaves=5).fit(X, sample_weight=weight)
    repeated = GeminiTree(3, max_leaves=5).fit(np.repeat(X, weight, axis=0))
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


# Kernels


@pytest.mark.parametrize("affinity", [None, "matrix", "features"])
def test_samples_of_weight_zero_are_not_seen(affinity: str | None) -> None:
    X = np.vstack([WINE, 1e6 * WINE[:50]])
    weight = np.repeat([1.0, 0.0], [len(WINE), 50])
    of_all = {"matrix": WINE @ WINE.T, "features": geometry.Features(torch.from_numpy(WINE))}.get(affinity or "")
    given = {"matrix": X @ X.T, "features": geometry.Features(torch.from_numpy(X))}.get(affinity or "")
    tree = GeminiTree(3, kernel="rbf", preprocessing="standard", max_leaves=6)
    alone = tree.fit(WINE, affinity=of_all)
    labels, objective, score = alone.labels_, alone.objective_, alone.score(WINE, affinity=of_all)
    tree.fit(X, sample_weight=weight, affinity=given)
    np.testing.assert_array_equal(tree.labels_[: len(WINE)], labels)
    assert tree.objective_ == pytest.approx(objective)
    assert tree.score(X, sample_weight=weight, affinity=given) == pytest.approx(score)


def test_features_of_few_samples_give_the_kernel_itself() -> None:
    x = torch.from_numpy(WINE[:90] / WINE.std(0))
    kernel = geometry.resolve("rbf", gamma=0.1)
    features = features_of(kernel, x)
    exact = kernel(x).numpy()
    centre = np.eye(90) - 1 / 90
    # What is left of the trace is at most that of 90 diagonal entries of one.
    np.testing.assert_allclose(features @ features.T, centre @ exact @ centre, atol=90 * 1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "cosine", "graph", "fourier", lambda x, y: x @ y.mT])
def test_any_kernel_is_taken(kernel) -> None:
    X, y = make_blobs(120, 2, centers=3, cluster_std=0.3, random_state=1)
    tree = GeminiTree(3, kernel=kernel).fit(X)
    assert adjusted_rand_score(y, tree.labels_) > 0.5


def test_a_kernel_that_is_given_is_taken() -> None:
    X = WINE / WINE.std(0)
    own = GeminiTree(3).fit(X)
    given = GeminiTree(3, kernel="precomputed").fit(X, affinity=X @ X.T)
    np.testing.assert_array_equal(own.labels_, given.labels_)
    with pytest.raises(ValueError, match="affinity"):
        GeminiTree(3, kernel="precomputed").fit(X)
    with pytest.raises(ValueError, match="178 rows"):
        GeminiTree(3).fit(X, affinity=np.eye(4))


def test_the_kernel_sees_scaled_columns_and_the_rules_their_units() -> None:
    tree = GeminiTree(3, preprocessing="standard", max_leaves=6).fit(WINE)
    assert adjusted_rand_score(load_wine().target, tree.labels_) > 0.85
    inner = tree.nodes_.left >= 0
    thresholds = tree.nodes_.threshold[inner]
    columns = WINE[:, tree.nodes_.feature[inner]]
    assert ((columns.min(0) <= thresholds) & (thresholds < columns.max(0))).all()


# Values that are missing


def test_missing_values_go_to_the_better_side() -> None:
    X = np.array([[0.0], [0.1], [np.nan], [5.0], [5.1], [np.nan]])
    features = np.array([[0.0], [0.0], [0.0], [1.0], [1.0], [0.0]]) - 1 / 3
    for sign in (1, -1):
        nodes = Growth(sign * X, features, np.ones(6), Limits(2), np.random.default_rng(0)).grow()
        assert nodes.cluster[nodes.apply(sign * X)].tolist() in ([0, 0, 0, 1, 1, 0], [1, 1, 1, 0, 0, 1])


def test_a_split_may_be_between_missing_values_and_all_others() -> None:
    X = np.array([[1.0, 0.0], [1.0, 0.1], [np.nan, 9.0], [np.nan, 9.1]])
    tree = GeminiTree(2, max_features=None).fit(X[:, :1], affinity=X[:, 1:] @ X[:, 1:].T)
    assert tree.labels_.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    assert set(itertools.chain(*tree.rules().values())) == {"x0 is missing", "x0 is there"}


# Limits and bad input


def test_limits_are_kept() -> None:
    tree = GeminiTree(3, max_leaves=5, max_depth=3, min_samples_leaf=10).fit(WINE)
    leaves, counts = np.unique(tree.apply(WINE), return_counts=True)
    assert len(leaves) <= 5
    assert counts.min() >= 10
    assert tree.nodes_.depth.max() <= 3
    one = GeminiTree(3, max_features=1, random_state=0).fit(WINE)
    assert one.n_clusters_ == 3
    np.testing.assert_array_equal(one.labels_, GeminiTree(3, max_features=1, random_state=0).fit(WINE).labels_)


@pytest.mark.parametrize(
    "bad",
    [
        *({"max_depth": 0}, {"n_clusters": 0}, {"max_leaves": 2}, {"max_depth": 1}, {"min_samples_split": 1}),
        *({"min_samples_leaf": 0.5}, {"max_features": 0}, {"max_features": "most"}, {"kernel": "euclidean"}),
    ],
)
def test_what_cannot_be_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad)) if "kernel" not in bad else "kernel"):
        GeminiTree(**{"n_clusters": 3, **bad}).fit(WINE)


def test_columns_that_never_vary_give_one_cluster() -> None:
    tree = GeminiTree(3).fit(np.ones((8, 2)))
    assert tree.n_clusters_ == 1
    assert tree.rules() == {0: ["all samples"]}
    assert tree.feature_importances_.tolist() == [0, 0]


# Text, drawings, files


def test_rules_and_text_name_the_columns() -> None:
    iris = load_iris(as_frame=True)
    tree = GeminiTree(3, max_leaves=3).fit(iris.data)
    assert "petal length (cm) <= " in tree.export_text()
    assert tree.export_text(["a", "b", "c", "d"]).startswith("c <= ")
    assert [len(rules) for rules in tree.rules().values()] == [1, 1, 1]
    with pytest.raises(ValueError, match="4 columns"):
        tree.rules(["a"])


def test_rules_tell_the_clusters() -> None:
    tree = GeminiTree(3, max_leaves=6).fit(WINE)
    columns = {f"x{number}": column for number, column in enumerate(WINE.T)}
    for cluster, rules in tree.rules().items():
        held = np.zeros(len(WINE), dtype=bool)
        for rule in rules:
            held |= np.logical_and.reduce([eval(part, {}, columns) for part in rule.split(" and ")])
        # Six digits are shown of each threshold.
        assert (held == (tree.labels_ == cluster)).mean() > 0.98


def test_values_of_text_columns_are_named() -> None:
    splits, children = ([0, 0, 0], [0.5, 0, 0], [False] * 3), ([1, -1, -1], [2, -1, -1])
    nodes = Nodes(*map(np.array, (*splits, *children, [0, 0, 1], [2.0, 1, 1], [1.0, 0, 0])))
    assert describe_side(nodes, 0, True, ["colour=red"]) == "colour is not red"
    assert describe_side(nodes, 0, False, ["colour=red"]) == "colour is red"


def test_that_a_value_is_there_does_not_replace_how_large_it_is() -> None:
    none, two = np.full(2, -1), np.zeros(2)
    nodes = Nodes(
        feature=np.zeros(2, dtype=np.int64),
        threshold=np.array([5.0, math.inf]),
        missing_left=np.array([True, False]),
        left=none,
        right=none,
        cluster=np.zeros(2, dtype=np.int64),
        weight=two,
        gain=two,
    )
    assert describe_path(nodes, [(0, True), (1, True)], ["x"]) == "x <= 5 and x is there"


def test_a_tree_is_drawn() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    axes = GeminiTree(3, max_leaves=4).fit(WINE).plot_tree()
    assert len(axes.texts) == 7
    matplotlib.pyplot.close(axes.figure)


def test_a_tree_is_the_same_from_its_file(tmp_path: Path) -> None:
    iris = load_iris(as_frame=True)
    tree = GeminiTree(3, max_leaves=5, kernel="rbf", preprocessing="standard").fit(iris.data)
    tree.save(tmp_path / "tree.safetensors")
    loaded = pollux.load(tmp_path / "tree.safetensors")
    assert isinstance(loaded, GeminiTree)
    np.testing.assert_array_equal(loaded.predict(iris.data), tree.labels_)
    assert loaded.export_text() == tree.export_text()
    assert loaded.get_params() == tree.get_params()


def test_parameters_of_any_kind_are_the_same_from_a_file(tmp_path: Path) -> None:
    scaling = Scaling("standard", n_components=np.int64(3), missing="mean")
    tree = GeminiTree(np.int64(2), max_leaves=np.int64(4), random_state=np.int32(3), preprocessing=scaling).fit(WINE)
    tree.save(tmp_path / "tree.safetensors")
    loaded = pollux.load(tmp_path / "tree.safetensors")
    assert {**loaded.get_params(), "preprocessing": 0} == {**tree.get_params(), "preprocessing": 0}
    assert isinstance(loaded.preprocessing, Scaling)
    assert loaded.score(WINE) == tree.score(WINE)


def test_a_file_of_more_clusters_than_are_in_use_is_refused(tmp_path: Path) -> None:
    tree = GeminiTree(5, max_leaves=5).fit(np.repeat([[0.0], [1.0]], 5, axis=0))
    assert tree.n_clusters_ == 2
    tree.save(tmp_path / "tree.safetensors")
    assert pollux.load(tmp_path / "tree.safetensors").predict([[0.0]]) in (0, 1)
    tree.nodes_.cluster[-1] = 3
    tree.save(tmp_path / "tree.safetensors")
    with pytest.raises(InputError, match="more clusters"):
        pollux.load(tmp_path / "tree.safetensors")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("left", 0), ("left", 99), ("cluster", 7), ("feature", 4), ("threshold", math.nan), ("right", 1)),
        ("feature", -1),
    ],
)
def test_a_file_that_holds_no_tree_is_refused(tmp_path: Path, name: str, value: float) -> None:
    tree = GeminiTree(3, max_leaves=5).fit(load_iris().data)
    getattr(tree.nodes_, name)[0] = value
    tree.save(tmp_path / "tree.safetensors")
    with pytest.raises(InputError, match="is not a whole model file"):
        pollux.load(tmp_path / "tree.safetensors")


def test_a_tree_of_onnx_gives_the_same_clusters(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    X = WINE.copy()
    X[::7, ::3] = np.nan
    for tree in (GeminiTree(3, max_leaves=8).fit(X), GeminiTree(1).fit(X)):
        said = export.to_onnx(tree, tmp_path / "tree.onnx")
        assert said.startswith("13 numbers in")
        session = runtime.InferenceSession(str(tmp_path / "tree.onnx"), providers=["CPUExecutionProvider"])
        probabilities, cluster = session.run(["probabilities", "cluster"], {"numbers": X})
        np.testing.assert_array_equal(cluster, tree.labels_)
        np.testing.assert_array_equal(probabilities.argmax(1), tree.labels_)


@pytest.mark.parametrize("model", ["soft_tree", SoftTree(cuts=2, features=[0, 1])], ids=["name", "group"])
def test_a_soft_tree_comes_to_rules_in_the_units_of_the_columns(model: Any) -> None:
    X = np.random.default_rng(0).normal(size=(120, 2)) + 100 * np.repeat([[1, 1], [9, 1], [1, 9]], 40, axis=0)
    clustering = GeminiClustering(3, model=model, objective="mmd_ovo", max_epochs=150, random_state=0).fit(X)
    rules = hard_rules(clustering, ["width", "height"])
    assert set(rules) == set(range(clustering.n_clusters_))
    assert clustering.n_clusters_ == 3
    for cluster, boxes in rules.items():
        holds = np.zeros(len(X), dtype=bool)
        for box in boxes:
            names = {"width": X[:, 0], "height": X[:, 1]}
            inside = [eval(part, {}, names) for part in box.split(" and ") if part.count("<") < 2]
            holds |= np.all(inside, axis=0) if inside else True
        assert holds[clustering.labels_ == cluster].mean() > 0.95


def test_a_soft_tree_is_a_group_as_a_perceptron_is(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    named = GeminiClustering(2, model="soft_tree", objective="mi", max_epochs=3, random_state=0)
    own = clone(named).set_params(model=SoftTree())
    np.testing.assert_array_equal(own.fit(X).predict_proba(X), named.fit(X).predict_proba(X))
    assert own.fitted_.chosen["n_init"] == named.fitted_.chosen["n_init"] == 5
    assert named.get_params()["model__cuts"] == 1
    named.set_params(model__cuts=np.int64(2), model__features=np.array([0, 2]), model__temperature=0.5).fit(X)
    assert named.fitted_.module.features == [0, 2]
    named.save(tmp_path / "model")
    loaded = pollux.load(tmp_path / "model")
    assert loaded.get_params()["model__temperature"] == 0.5
    np.testing.assert_array_equal(loaded.predict_proba(X), named.predict_proba(X))
    own.save(tmp_path / "model")
    assert pollux.load(tmp_path / "model").model == "soft_tree"
    prints = [Spec.of(clone(own).set_params(model__temperature=t)).fingerprint() for t in (0.1, 0.2)]
    assert prints[0] != prints[1]
    for wrong in ({"cuts": 1.5}, {"cuts": True}, {"features": [0.5]}, {"features": "01"}, {"temperature": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            clone(own).set_params(model=SoftTree(**wrong)).fit(X)


def test_a_soft_tree_takes_the_names_of_columns(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(60, 3)), columns=["a", "b", "c"])
    tree = GeminiClustering(2, model=SoftTree(features=["c", "a"]), objective="mi", max_epochs=3, random_state=0)
    assert tree.fit(frame).module_.features == [2, 0]
    tree.save(tmp_path / "model")
    np.testing.assert_array_equal(pollux.load(tmp_path / "model").predict(frame), tree.labels_)
    # Of columns of text, the values.
    mixed = frame.assign(d=random.choice(["x", "y", "z"], 60))
    tree.set_params(model__features=["d=y", "a"]).fit(mixed)
    assert tree.module_.features == [4, 0]
    tree.save(tmp_path / "model")
    np.testing.assert_array_equal(pollux.load(tmp_path / "model").predict(mixed), tree.labels_)
    with pytest.raises(ValueError, match=r"features \['e'\] are not there: there are 'a', 'b', 'c'"):
        tree.set_params(model__features=["e"]).fit(frame)
    with pytest.raises(ValueError, match="have no names"):
        tree.set_params(model__features=["a"]).fit(frame.to_numpy())


def test_hard_rules_keep_the_numbers_of_known_clusters() -> None:
    X = np.repeat([[0.0], [9.0]], 20, axis=0) + np.random.default_rng(0).normal(size=(40, 1))
    known = np.repeat([0, 2], 20)
    clustering = GeminiClustering(3, model="soft_tree", objective="mmd_ova", max_epochs=60, random_state=0)
    clustering.fit(X, known=known)
    assert set(clustering.labels_) == {0, 2}
    rules = hard_rules(clustering)
    assert set(rules) == {0, 2}
    assert all(rules.values())


def test_hard_rules_are_those_of_soft_trees() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    clustering = GeminiClustering(2, model="linear", objective="mi", max_epochs=2, random_state=0).fit(X)
    with pytest.raises(InputError, match="soft_tree"):
        hard_rules(clustering)


def test_a_tree_whose_transformer_a_file_cannot_hold_is_not_saved(tmp_path: Path) -> None:
    tree = GeminiTree(3, preprocessing=StandardScaler(), max_leaves=5).fit(WINE)
    with pytest.raises(InputError, match="cannot hold a transformer"):
        tree.save(tmp_path / "tree.safetensors")
    assert not list(tmp_path.iterdir())


def test_what_is_masked_is_missing() -> None:
    gaps = WINE.copy()
    gaps[::7, ::3] = np.nan
    masked = np.ma.array(np.nan_to_num(gaps, nan=1e6), mask=np.isnan(gaps))
    tree, same = GeminiTree(3, max_leaves=5).fit(gaps), GeminiTree(3, max_leaves=5).fit(masked)
    np.testing.assert_array_equal(same.labels_, tree.labels_)
    np.testing.assert_array_equal(tree.predict(masked), tree.labels_)


def test_a_transformer_prepares_what_the_kernel_sees() -> None:
    X = WINE.copy()
    plain = GeminiTree(3, preprocessing="standard", max_leaves=5).fit(X)
    own = GeminiTree(3, preprocessing=StandardScaler(), max_leaves=5).fit(X)
    np.testing.assert_array_equal(own.labels_, plain.labels_)
    X[3, 1] = np.nan
    assert GeminiTree(3, preprocessing=StandardScaler(), max_leaves=5).fit(X).n_clusters_ == 3
    with pytest.raises(TypeError, match="preprocessing is None"):
        GeminiTree(3, preprocessing=3).fit(WINE)


def mixed_table() -> pd.DataFrame:
    random = np.random.default_rng(0)
    colour = np.repeat(["red", "blue", "green"], 30)
    price = np.where(colour == "red", 10.0, 50.0) + random.normal(size=90)
    frame = pd.DataFrame({"colour": colour, "price": price, "open": np.arange(90) % 2 == 0, "name": np.arange(90)})
    frame["name"] = [f"row {at}" for at in frame["name"]]
    frame.loc[[3, 50], "colour"] = None
    return frame


@pytest.mark.parametrize("kind", ["object", "category", "arrow"])
def test_columns_of_text_are_split_by_their_values(kind: str, tmp_path: Path) -> None:
    frame: Any = mixed_table()
    if kind == "category":
        frame["colour"] = frame["colour"].astype("category")
    if kind == "arrow":
        frame = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    tree = GeminiTree(6, preprocessing="standard", max_leaves=7).fit(frame)
    assert tree.n_features_in_ == 4
    text = tree.export_text()
    assert "colour is " in text
    # What names rows decides on nothing, and values of one column count together.
    importances = dict(zip(tree.feature_names_in_, tree.feature_importances_, strict=True))
    assert set(importances) == {"colour", "price", "open", "name"}
    assert importances["name"] == 0
    np.testing.assert_allclose(sum(importances.values()), 1)
    np.testing.assert_array_equal(tree.predict(frame), tree.labels_)
    np.testing.assert_allclose(tree.score(frame), tree.objective_)
    tree.save(tmp_path / "tree")
    loaded = pollux.load(tmp_path / "tree")
    assert (loaded.export_text(), loaded.rules()) == (text, tree.rules())
    np.testing.assert_array_equal(loaded.predict(frame), tree.labels_)
    np.testing.assert_array_equal(loaded.feature_importances_, tree.feature_importances_)
    with pytest.raises(InputError, match="get_dummies"):
        export.to_onnx(tree, tmp_path / "tree.onnx")


def test_trees_of_text_take_weights_and_say_what_is_wrong() -> None:
    frame, weight = mixed_table(), np.tile([2.0, 1.0, 0.0], 30)
    tree = GeminiTree(3, preprocessing="standard", max_leaves=5).fit(frame, sample_weight=weight)
    repeated = frame.iloc[np.repeat(np.arange(90), weight.astype(int))]
    again = GeminiTree(3, preprocessing="standard", max_leaves=5).fit(repeated)
    np.testing.assert_array_equal(tree.predict(frame), again.predict(frame))
    with pytest.raises(InputError, match="colour"):
        tree.predict(frame.drop(columns="colour"))
    with pytest.raises(ValueError, match="minimum of 3"):
        GeminiTree(3).fit(frame[:2])
    with pytest.raises(ValueError, match="names already"):
        tree.export_text(["a", "b", "c", "d"])
