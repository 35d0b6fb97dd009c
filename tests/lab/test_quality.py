"""``pollux bench quality``: sets of any kind, fair preparation, runs that cannot harm each other, honest summaries."""

from __future__ import annotations

import json
import math
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from benchmark_scripts import benchmark_script
from data_files import pollux, tree
from experiment_records import Spy
from fault_runs import server
from pollux.errors import InputError
from pollux.lab import bench_command as bench
from pollux.lab import grid, records
from pollux.lab.datasets import ImageSet
from pollux.lab.grid import Failure, Limits, RunContext, UnfinishedRun, perform, record_of, run_grid
from pollux.lab.quality import benchmark, labelled_sets, leaderboard
from pollux.lab.quality.benchmark import QualityTask, find_labels, is_done, report_on
from pollux.lab.quality.labelled_sets import DataSet, Samples, choose_sets, describe_set, read_file
from pollux.lab.quality.leaderboard import (
    Leaderboard,
    bootstrap_interval,
    common_sets,
    difference_to_reference,
    leaderboard_tables,
    rank_methods,
    set_tables,
)
from pollux.lab.quality.peers import METHODS, Method, choose_methods, fit_preparation
from pollux.lab.records import Record, Run
from pollux.lab.results import print_report
from quality_methods import BROKEN, GOOD, HANGING, KILLED, LEAVING, ONCE

ROOT = Path(__file__).parents[2]
RECORDS = Path("results", "quality", "quality.jsonl")
HERE = RunContext(Path())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and data sets of no one else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLLUX_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def three_groups(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 4) in three groups far apart, in order, and their classes."""
    random = np.random.default_rng(seed)
    y = np.arange(n) * 3 // n
    return random.normal(size=(n, 4)) / 4 + 6 * y[:, None], y


def write_set(name: str = "mine", folder: str | Path = "sets", **arrays: Any) -> Path:
    X, y = three_groups()
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder, f"{name}.npz")
    np.savez(path, **({"X": X, "y": y} | arrays))
    return path


# Files.


@pytest.mark.parametrize(
    "y",
    [
        np.repeat([0, 1, 2], 20),
        np.repeat([-1, 4, 9], 20).astype(np.int8),
        np.repeat([1.0, 2.0, 5.0], 20),
        np.repeat(["a", "b", "c"], 20),
        np.repeat([0, 1, 2], 20)[:, None],
    ],
    ids=["whole", "with holes", "float", "text", "column"],
)
def test_classes_of_any_kind_are_numbered(y: np.ndarray) -> None:
    samples = read_file(write_set(y=y))
    assert samples.y.tolist() == np.repeat([0, 1, 2], 20).tolist()


def test_names_of_classes_are_not_even_unpickled() -> None:
    class Dangerous:
        def __reduce__(self) -> Any:
            return (Path("executed").touch, ())

    path = write_set(class_names=np.array([Dangerous(), "b"], dtype=object))
    assert read_file(path).X.shape == (60, 4)
    with pytest.raises(InputError, match="cannot be read as an"):
        read_file(write_set(y=np.array([Dangerous()] * 60, dtype=object)))
    assert not Path("executed").exists()


def csr_parts(X: Any) -> dict[str, Any]:
    matrix = scipy.sparse.csr_array(X)
    return {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}


def write_sparse(**changed: Any) -> Path:
    X, y = three_groups()
    Path("sets").mkdir(exist_ok=True)
    np.savez("sets/sparse.npz", y=y, **(csr_parts(np.where(X > 1, X, 0)) | changed))
    return Path("sets/sparse.npz")


def test_a_sparse_set_is_read_with_short_indices() -> None:
    X, _ = three_groups()
    narrow = np.asarray(csr_parts(np.where(X > 1, X, 0))["indices"], dtype=np.uint16)
    read = read_file(write_sparse(indices=narrow)).X
    assert scipy.sparse.issparse(read)
    assert read.indices.dtype == read.indptr.dtype == np.int32
    np.testing.assert_array_equal(read.toarray(), np.where(X > 1, X, 0))


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda: write_set(X=np.zeros((60, 2, 2))), r"X must be a table of numbers \(n, d\)"),
        (lambda: write_set(X=np.full((60, 2), "a")), r"X must be a table of numbers"),
        (lambda: write_set(X=np.zeros((0, 2)), y=np.zeros(0, int)), r"X must be a table of numbers"),
        (lambda: write_set(X=np.full((60, 2), np.inf)), "X holds infinity"),
        (lambda: write_set(X=np.full((60, 2), np.nan)), "nothing but missing values"),
        (lambda: write_set(y=np.arange(59) % 3), "y must be 60 classes"),
        (lambda: write_set(y=np.zeros(60, int)), "y has 1 classes in 60 rows"),
        (lambda: write_set(y=np.arange(60)), "y has 60 classes in 60 rows"),
        (lambda: write_set(y=np.linspace(0, 1, 60)), "y holds fractions"),
        (lambda: write_set(y=np.full(60, np.nan)), "y holds NaN"),
        (lambda: write_sparse(data=np.array([math.nan] * 160)[: len(csr_parts(three_groups()[0] > 1)["data"])]), "NaN"),
        (lambda: write_sparse(indices=np.full(len(csr_parts(three_groups()[0] > 1)["data"]), 99)), "not a CSR matrix"),
        (lambda: write_sparse(shape=np.array([60, 0])), "not a CSR matrix"),
        (lambda: write_sparse(indptr=np.array([0.5])), "not a CSR matrix"),
    ],
)
def test_a_bad_set_is_refused_by_what_is_wrong(write: Callable[[], Path], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read_file(write())
    assert "sets" in str(caught.value)


def test_a_file_that_is_no_set_is_named() -> None:
    Path("text.npz").write_text("no archive")
    np.save("one.npy", np.zeros(3))
    Path("one.npy").rename("one.npz")
    np.savez("other.npz", Z=np.zeros(3))
    whole = write_set().read_bytes()
    Path("torn.npz").write_bytes(whole[: len(whole) // 2])
    for name, says in (("text", "cannot be read"), ("one", "is one array"), ("torn", "cannot be read")):
        with pytest.raises(InputError, match=says):
            read_file(Path(f"{name}.npz"))
    with pytest.raises(InputError, match="has no array called X, but Z"):
        read_file(Path("other.npz"))


def test_a_set_is_known_by_its_content() -> None:
    first = describe_set("mine", "given", write_set())
    assert (first.rows, first.columns, first.classes, first.is_sparse, first.has_test) == (60, 4, 3, False, False)
    assert describe_set("mine", "given", write_set()).digest == first.digest
    assert describe_set("mine", "given", write_set(X=three_groups(seed=1)[0])).digest != first.digest
    assert describe_set("iris", "held out").digest == ""


def test_images_have_their_channels_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def images(shape: tuple[int, ...]) -> ImageSet:
        pixels, classes = np.arange(10 * math.prod(shape)).reshape(10, *shape).astype(np.uint8), np.arange(10) % 3
        return ImageSet("mnist", pixels, classes, pixels[:4], classes[:4], ("a", "b", "c"))

    for shape, expected in (((6, 5), (10, 1, 6, 5)), ((6, 5, 3), (10, 3, 6, 5))):
        monkeypatch.setattr(labelled_sets, "load_images", lambda name, shape=shape: images(shape))
        samples = labelled_sets.read_set("mnist", None)
        assert samples.X.shape == expected
        assert samples.X_test.shape[0] == len(samples.scored) == 4
        assert describe_set("mnist", "images").columns == math.prod(shape)


# What the peers are given.


def test_columns_measured_alike_keep_their_proportions() -> None:
    X = np.random.default_rng(0).normal(5, [1.0, 2.0, 1.5], size=(200, 3))
    Z = fit_preparation(X)(X)
    np.testing.assert_allclose(Z.mean(0), 0, atol=1e-12)
    assert np.sqrt((Z**2).mean()) == pytest.approx(1)
    np.testing.assert_allclose(Z.std(0) / Z.std(0)[0], X.std(0) / X.std(0)[0])


def test_columns_measured_otherwise_are_standardised() -> None:
    X = np.random.default_rng(0).normal(5, [1.0, 1.0, 900.0], size=(200, 3))
    Z = fit_preparation(X)(X)
    np.testing.assert_allclose(Z.std(0), 1)


def test_what_is_missing_becomes_the_mean_and_what_is_constant_says_nothing() -> None:
    X = np.column_stack([[1.0, 2.0, math.nan, 6.0], [0.1] * 4, [math.nan] * 4, [3.0, math.nan, 3.0, 3.0]])
    Z = fit_preparation(X)(X)
    assert Z[2, 0] == 0
    assert Z[:, 0].std() > 0
    np.testing.assert_array_equal(Z[:, 1:], 0)


def test_new_rows_are_prepared_as_the_others_were() -> None:
    X = np.random.default_rng(0).integers(0, 255, (50, 1, 3, 3)).astype(np.uint8)
    prepare = fit_preparation(X)
    np.testing.assert_array_equal(prepare(X[:5]), prepare(X)[:5])


def test_a_sparse_table_stays_sparse() -> None:
    X = scipy.sparse.csr_matrix(np.diag([2.0, 4.0, 6.0]))
    Z = fit_preparation(X)(X)
    assert scipy.sparse.issparse(Z)
    assert Z.nnz == 3
    assert np.sqrt((Z.toarray() ** 2).mean()) == pytest.approx(1)


# Methods.


def test_the_command_line_names_all_methods() -> None:
    assert tuple(METHODS) == bench.METHODS
    assert benchmark.Request() == benchmark.Request(seeds=5, timeout=1200, out="results/quality")


@pytest.mark.filterwarnings("ignore:Graph is not fully connected")
@pytest.mark.parametrize("name", [name for name in METHODS if name != "pollux"])
def test_each_peer_finds_what_is_plain(name: str) -> None:
    method = METHODS[name]
    if not method.is_installed:
        pytest.skip("not installed")
    X, y = three_groups()
    X[3, 1] = math.nan
    labels = find_labels(method, Samples(X, y), 3, 0, HERE)
    assert np.unique(labels).tolist() == [0, 1, 2] or name == "gemclus"
    if name != "gemclus":
        assert len(np.unique(np.column_stack([y, labels]), axis=0)) == 3
    sparse = scipy.sparse.csr_matrix(np.nan_to_num(X))
    assert len(find_labels(method, Samples(sparse, y), 3, 0, HERE)) == 60


def test_ours_is_given_the_set_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    given: list[dict[str, Any]] = []

    class Recipes:
        @classmethod
        def for_tables(cls, **options: Any) -> Recipes:
            asked.append(("tables", options))
            return cls()

        @classmethod
        def for_images(cls, **options: Any) -> Recipes:
            asked.append(("images", options))
            return cls()

        def set_params(self, **parameters: Any) -> Recipes:
            given.append(parameters)
            return self

        def fit(self, X: Any) -> Recipes:
            asked.append(X)
            self.labels_ = np.zeros(len(X), int)
            return self

    monkeypatch.setattr("pollux.clustering.GeminiClustering", Recipes)
    X, y = three_groups()
    X[0, 0] = math.nan
    find_labels(METHODS["pollux"], Samples(X, y), 3, 7, HERE)
    assert asked[0] == ("tables", {"n_clusters": 3, "random_state": 7})
    assert asked[1] is X
    context = RunContext(Path(), unfinished=UnfinishedRun(Path("left")))
    find_labels(METHODS["pollux"], Samples(X.reshape(60, 1, 2, 2), y), 3, 7, context)
    assert asked[2][0] == "images"
    # Images take long enough for a run to be continued after a kill.
    assert set(given[0]) == {"callbacks"}
    assert given[1]["training__checkpoint"].folder == Path("left", "fit")


def given(name: str = "mine", rows: int = 60, columns: int = 4, **more: Any) -> DataSet:
    return DataSet(name, "given", None, "", rows, columns, 3, **more)


@pytest.mark.parametrize(
    ("name", "data", "memory", "says"),
    [
        ("ward", given(has_test=True), math.inf, "cannot label rows"),
        ("ward", given(rows=60_000), 1e10, "would need about 29 GB of memory, and has 10 GB"),
        ("spectral", given(rows=100_000), 1e10, "40 GB"),
        ("ward", given(rows=10_000), 1e10, ""),
        ("gmm", given(rows=100_000, columns=1_000, is_sparse=True), math.inf, "needs a dense table"),
        ("kmeans", given(rows=100_000, columns=1_000, is_sparse=True), 1e10, ""),
        ("kmeans", given(has_test=True), 1e10, ""),
    ],
)
def test_what_cannot_be_done_is_known_before(name: str, data: DataSet, memory: float, says: str) -> None:
    reason = METHODS[name].refusal(data, memory)
    assert says in reason
    assert bool(says) == bool(reason)


# One run.


def measure(task: QualityTask) -> Record:
    return perform(task, Path("out"), Limits(1, 1))


def labelled(labels: Any, **more: Any) -> Method:
    return Method("fixed", "Fixed", lambda *_: SimpleNamespace(labels_=np.asarray(labels), predict=labels), **more)


def test_noise_is_a_cluster_in_the_scores_and_none_in_the_count() -> None:
    data = describe_set("mine", "given", write_set())
    perfect = measure(QualityTask(data, labelled(np.repeat([0, -1, 1], 20)), 0)).metrics
    assert perfect["adjusted_rand_index"] == 1
    assert perfect["clusters"] == 2
    assert (perfect["rows"], perfect["columns"], perfect["classes"]) == (60, 4, 3)


def test_test_rows_are_what_is_scored() -> None:
    X, y = three_groups()
    samples = Samples(X, np.zeros_like(y), X[::-1], y[::-1])
    assert find_labels(GOOD, samples, 3, 0, HERE).tolist() == y[::-1].tolist()
    assert samples.scored.tolist() == y[::-1].tolist()


def test_a_record_says_what_was_run_and_survives_the_file() -> None:
    task = QualityTask(describe_set("mine", "given", write_set()), GOOD, 2)
    record = measure(task)
    assert record.metrics["adjusted_rand_index"] == 1
    assert record.run.settings["version"] == record.versions["scikit-learn"]
    assert record.run.seed == 2
    records.append(Path("some.jsonl"), record)
    assert records.read(Path("some.jsonl")) == {task.run.key: record}


def test_whether_a_run_is_done() -> None:
    task = QualityTask(given(), GOOD, 0)
    scored = record_of(task, {"adjusted_rand_index": 1.0})
    skipped, given_up = record_of(task, {"skipped": "large"}), record_of(task, {"timeout": 60.0})
    assert not is_done(None, "", 60)
    assert is_done(scored, "", 60)
    assert is_done(skipped, "large", 60)
    assert not is_done(skipped, "", 60)
    assert is_done(given_up, "", 60)
    assert is_done(given_up, "", 30)
    assert not is_done(given_up, "", 90)


# Processes.


def name_of(task: Any) -> str:
    return str(task.method.name)


class Impatient(Spy):
    def done(self, task: Any, record: Record) -> None:
        raise KeyboardInterrupt


def test_a_run_that_hangs_or_is_killed_costs_that_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    server()
    others = set(multiprocessing.active_children())
    data = describe_set("mine", "given", write_set())
    spy, path = Spy(), Path("some.jsonl")

    def now() -> float:
        """Time passes once three tasks have ended, however long they took."""
        return 10.0 if len([kind for kind, _ in spy.events if kind in ("done", "failed")]) >= 3 else 0.0

    monkeypatch.setattr(grid, "time", SimpleNamespace(monotonic=now))
    tasks = [QualityTask(data, method, 0) for method in (HANGING, KILLED, BROKEN, GOOD, LEAVING)]
    failures = run_grid(tasks, path, Limits(2, 1, 5.0), spy)
    assert {name_of(failure.task): failure.reason for failure in failures} == {
        "killed": grid.DIED,
        "leaving": "its process ended without an answer (exit code 3)",
        "broken": "ValueError: out of [/range] ε",
    }
    assert "quality_methods.py" in next(failure.trace for failure in failures if name_of(failure.task) == "broken")
    found = records.read(path)
    assert found[tasks[0].run.key].metrics["timeout"] == 5.0
    assert found[tasks[3].run.key].metrics["adjusted_rand_index"] == 1
    assert len(found) == 2
    assert ("epoch", "good") in [(kind, name_of(task)) for kind, task in spy.events]
    assert [name_of(task) for kind, task in spy.events if kind == "began"] == [
        "hanging",
        "killed",
        "broken",
        "good",
        "leaving",
    ]

    # Ctrl-C when one has ended: it is recorded, and the other is gone.
    with pytest.raises(KeyboardInterrupt):
        run_grid([tasks[0], QualityTask(data, GOOD, 1)], path, Limits(2, 1, 600.0), Impatient())
    assert len(records.read(path)) == 3
    deadline = time.monotonic() + 60
    # Other tests of this process may have children of their own.
    while set(multiprocessing.active_children()) - others and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not set(multiprocessing.active_children()) - others


# Summaries.


def record(name: str, method: str, ari: float, *, seed: int = 0, group: str = "given", **more: Any) -> Record:
    settings = {"set": name, "group": group, "method": method, "data": more.pop("data", "")}
    settings["version"] = more.pop("version", "1")
    scores = {"adjusted_rand_index": ari, "normalised_mutual_information": ari / 2, "clusters": 3}
    size = {"rows": 60, "columns": 4, "classes": 3}
    return Record(Run("quality", settings, seed), {**(more or scores), **size}, 0.5)


def test_seeds_are_averaged_before_anything_else() -> None:
    board = Leaderboard.of(
        [record("a", "kmeans", ari, seed=seed) for seed, ari in enumerate([0.0, 0.5, 1.0])]
        + [record("b", "kmeans", 0.1), record("a", "pollux", 0.6), record("b", "pollux", 0.6)]
    )
    assert board.scores["a", "kmeans"].ari == pytest.approx(0.5)
    assert board.scores["a", "kmeans"].deviation == pytest.approx(np.std([0.0, 0.5, 1.0]))
    difference = difference_to_reference(board, "pollux")
    assert difference is not None
    assert difference.mean == pytest.approx((0.1 + 0.5) / 2)
    assert (difference.low, difference.high) == (pytest.approx(0.1), pytest.approx(0.5))


def test_the_bootstrap_is_that_of_a_mean_and_always_the_same() -> None:
    values = np.random.default_rng(1).normal(0.1, 0.2, 400)
    low, high = bootstrap_interval(values)
    error = values.std() / math.sqrt(len(values))
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.05 * error * 2)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.05 * error * 2)
    assert bootstrap_interval(values) == (low, high)
    assert all(map(math.isnan, bootstrap_interval([0.3])))


def test_ranks_are_shared_by_equals() -> None:
    scores = {"kmeans": (0.5, 0.5), "gmm": (0.5, 0.2), "ward": (0.1, 0.9)}
    board = Leaderboard.of([record(name, m, aris[at]) for m, aris in scores.items() for at, name in enumerate("ab")])
    assert {one.method: one.rank for one in rank_methods(board)} == {"kmeans": 1.75, "gmm": 2.25, "ward": 2.0}


def test_means_are_over_the_sets_that_all_answered() -> None:
    answers = [record(name, method, 0.4) for name in "abc" for method in ("kmeans", "pollux")]
    answers += [record("a", "gmm", 0.9), record("b", "gmm", 0.9), record("c", "gmm", 0, timeout=60.0)]
    answers += [
        record("a", "ward", 0.7),
        record("b", "ward", 0, skipped="large"),
        record("c", "ward", 0, skipped="large"),
    ]
    board = Leaderboard.of([*answers, record("c", "kmeans", 0.1)])
    # Ward answered too few to be waited for.
    assert common_sets(board) == ["a", "b"]
    found = {one.method: one for one in rank_methods(board)}
    assert found["kmeans"].ari == pytest.approx(0.4)
    assert found["gmm"].ari == pytest.approx(0.9)
    assert found["gmm"].answered == 2
    assert math.isnan(found["ward"].ari)
    assert found["ward"].answered == 1
    difference = found["gmm"].difference
    assert difference is not None
    assert (difference.mean, difference.sets) == (pytest.approx(0.5), 2)
    notes = set_tables(board)[0].notes
    assert "Gaussian mixture on c: no answer within 60 s." in notes
    assert "Ward on b, c: large." in notes


def test_of_a_set_that_changed_the_later_run_counts() -> None:
    board = Leaderboard.of([record("a", "kmeans", 0.1, data="old"), record("a", "kmeans", 0.8, data="new")])
    assert board.scores["a", "kmeans"].ari == 0.8
    assert board.scores["a", "kmeans"].deviation is None


def test_scores_are_of_one_version_and_one_file() -> None:
    old = [record("a", "kmeans", 0.1, seed=seed, data="old") for seed in range(3)]
    board = Leaderboard.of([*old, record("a", "pollux", 0.3, data="old"), record("a", "kmeans", 0.8, data="new")])
    assert board.scores["a", "kmeans"].ari == 0.8
    assert board.scores["a", "kmeans"].deviation is None
    # What was not done again is there still.
    assert board.scores["a", "pollux"].ari == 0.3
    later = record("a", "kmeans", 0.9, seed=1, version="2")
    assert Leaderboard.of([record("a", "kmeans", 0.1), later]).scores["a", "kmeans"].ari == 0.9


def test_groups_have_tables_of_their_own() -> None:
    board = Leaderboard.of(
        [
            record(name, method, 0.5, group=group)
            for name, group in (("iris", "held out"), ("glass", "development"), ("seeds", "development"))
            for method in ("kmeans", "pollux")
        ]
    )
    tables = leaderboard_tables(board)
    assert [table.title for table in tables] == ["All sets (3)", "Development sets (2)", "Held-out sets (1)"]
    assert [name for name, _ in tables[1].rows] == ["K-Means", "Pollux"]
    assert tables[1].rows[1][1][3].whole == "0.000 [0.000, 0.000]"
    assert tables[2].rows[1][1][3].whole == "0.000"
    assert [name for name, _ in set_tables(board)[0].rows] == ["glass", "seeds", "iris"]


def test_folders_have_tables_of_their_own_behind_those_of_known_sets() -> None:
    groups = {"b": "unseen", "a": "validation", "c": "unseen", "mnist": "images", "d": "given", "iris": "held out"}
    board = Leaderboard.of([record(name, "kmeans", 0.5, group=group) for name, group in groups.items()])
    titles = ["Held-out sets (1)", "Given sets (1)", "Images, scored on test images (1)"]
    titles += ["Sets of unseen (2)", "Sets of validation (1)"]
    assert [table.title for table in leaderboard_tables(board)] == ["All sets (6)", *titles]
    assert [one.name for one in board.sets] == ["iris", "d", "mnist", "b", "c", "a"]


def test_known_sets_have_their_groups() -> None:
    assert len(labelled_sets.DEVELOPMENT) == 14
    assert {labelled_sets.group_of(name) for name in labelled_sets.DEVELOPMENT} == {"development"}
    assert {labelled_sets.group_of(name) for name in labelled_sets.HELD_OUT} == {"held out"}
    assert (labelled_sets.group_of("mnist"), labelled_sets.group_of("of one's own")) == ("images", "given")


# Choosing.


def names_of(folders: Sequence[str | Path], *names: str) -> dict[str, str]:
    return {data.name: data.group for data in choose_sets(folders, names)[0]}


def test_by_default_all_sets_of_this_machine_are_compared_on() -> None:
    write_set("glass", "data/tabular")
    chosen, notes = choose_sets([], [])
    assert {data.name: data.group for data in chosen} == {
        "iris": "held out",
        "wine": "held out",
        "breast_cancer": "held out",
        "digits": "development",
        "glass": "development",
    }
    assert len(notes) == 1
    assert "mnist is left out" in notes[0]


def test_of_folders_all_is_taken_unless_some_of_it_is_named() -> None:
    write_set("one")
    write_set("two")
    write_set("iris")
    write_set("one", "more")
    assert names_of(["sets"]) == dict.fromkeys(["sets/iris", "one", "two"], "sets")
    assert names_of(["sets"], "iris") == {"iris": "held out", **dict.fromkeys(["sets/iris", "one", "two"], "sets")}
    assert names_of(["sets"], "two") == {"two": "sets"}
    assert names_of(["sets/two.npz"]) == {"two": "sets"}
    assert set(names_of(["sets", "more", "more"])) == {"sets/iris", "sets/one", "two", "more/one"}
    write_set("one", "other/more")
    with pytest.raises(InputError, match="would both be called more/one: rename"):
        names_of(["more", "other/more"])


@pytest.mark.parametrize(
    ("folder", "group"),
    [("mine", "mine"), ("deep/held in", "held in"), ("held out", "given"), ("images", "given"), ("given", "given")],
)
def test_a_folder_is_a_group_of_its_name_unless_sets_known_here_have_it(folder: str, group: str) -> None:
    write_set("one", folder)
    assert names_of([folder]) == names_of([f"{folder}/one.npz"]) == {"one": group}


def test_the_group_of_the_working_folder_has_its_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set("one", "a/mine")
    Path("a/linked").mkdir()
    Path("a/linked/two.npz").symlink_to(here / "a/mine/one.npz")
    assert names_of(["a/linked"]) == {"two": "linked"}
    monkeypatch.chdir("a/mine")
    assert names_of(["."]) == names_of(["../mine"]) == {"one": "mine"}


def test_a_method_that_is_not_installed_is_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Method, "is_installed", property(lambda method: method.name != "gemclus"))
    methods, notes = choose_methods([])
    assert [method.name for method in methods] == [name for name in METHODS if name != "gemclus"]
    assert notes == ["GemClus is left out, because it is not installed: pip install 'pollux[bench]'"]
    with pytest.raises(InputError, match=r"pip install 'pollux\[bench\]'"):
        choose_methods(["gemclus"])


def test_runs_begin_with_one_of_each_and_small_sets() -> None:
    tasks = benchmark.all_tasks([given("large", rows=99), given("small", rows=9)], [GOOD, ONCE], 2)
    assert [(task.data.name, task.method.name, task.seed) for task in tasks] == [
        *(("small", "good", 0), ("small", "once", 0), ("large", "good", 0), ("large", "once", 0)),
        *(("small", "good", 1), ("large", "good", 1)),
    ]


# The command.


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, jobs: list[int]) -> list[str]:
    """Runs are done in this process, and kept."""
    kept: list[str] = []
    real = QualityTask.measure

    def measure(task: QualityTask, context: RunContext) -> Any:
        kept.append(f"{task.data.name} {task.method.name} {task.seed}")
        return real(task, context)

    monkeypatch.setattr(QualityTask, "measure", measure)
    return kept


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take longer than all the rest."""
    monkeypatch.setattr(benchmark, "draw_leaderboard", lambda board: {})


ASKED = ("bench", "quality", "sets", "--methods", "kmeans", "ward", "hdbscan", "--seeds", "2", "--jobs", "1")


def test_a_comparison_is_run_once_and_shown(done: list[str], request: pytest.FixtureRequest) -> None:
    write_set("a")
    write_set("b<i>|c$^$", X=three_groups(seed=1)[0])
    answer = pollux(*ASKED)
    assert answer.code == 0, answer
    assert sorted(done) == sorted(
        f"{name} {run}" for name in ("a", "b<i>|c$^$") for run in ("kmeans 0", "kmeans 1", "ward 0", "hdbscan 0")
    )
    assert answer.err.splitlines()[0] == "quality: 8 runs to do"
    assert "[8/8, " in answer.err
    for words in ("ARI on each set", "Sets of sets (2)", "K-Means", "1.000"):
        assert words in answer.out
    assert sorted(tree(Path("results/quality"))) == [
        "figures",
        *(f"figures/quality-{name}.{kind}" for name in ("differences", "sets") for kind in ("png", "svg")),
        *(f"quality.{kind}" for kind in ("html", "jsonl", "md")),
    ]
    page = Path("results/quality/quality.html").read_text()
    assert "b&lt;i&gt;|c" in page
    assert "<i>" not in page
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page.replace("http-equiv", "")
    text = Path("results/quality/quality.md").read_text()
    assert "b&lt;i&gt;\\|c" in text
    assert "pollux bench quality sets --methods kmeans ward hdbscan --seeds 2" in text

    before = RECORDS.read_bytes()
    request.getfixturevalue("undrawn")
    again = pollux(*ASKED)
    assert again.code == 0
    assert "to do" not in again.err
    assert pollux("bench", "quality", "--show").code == 0
    shown = pollux("bench", "quality", "--show", "--methods", "kmeans", "--sets", "a")
    assert "1 set · 1 method · 2 runs" in shown.out
    assert pollux("bench", "quality", "sets", "--show").code == 0
    assert RECORDS.read_bytes() == before
    assert len(done) == 8


@pytest.mark.usefixtures("done")
def test_files_show_all_that_is_recorded_and_the_terminal_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[str]] = []

    def drawing(board: Leaderboard) -> Any:
        drawn.append([one.name for one in board.sets])
        raise ValueError("odd")

    monkeypatch.setattr(benchmark, "draw_leaderboard", drawing)
    write_set("a")
    write_set("b", X=three_groups(seed=1)[0])
    assert pollux(*ASKED).code == 0
    for narrow in (
        ("sets/b.npz", "--methods", "kmeans", "--seeds", "1"),
        ("--show", "--sets", "b", "--methods", "kmeans"),
        ("sets/b.npz", "--methods", "gmm", "--seeds", "1", "--jobs", "1"),
    ):
        answer = pollux("bench", "quality", *narrow)
        assert answer.code == 0, answer
        assert "1 set · 1 method" in answer.out
        assert "Ward" not in answer.out
        assert "no figures" in answer.out
        for kind in ("md", "html"):
            text = Path("results/quality", f"quality.{kind}").read_text()
            for words in ("2 sets", "K-Means", "Ward", "HDBSCAN", "no figures", "pollux bench quality --show"):
                assert words in text
    assert "2 sets · 4 methods · 9 runs" in text
    assert drawn == [["a", "b"]] * 4


def test_in_files_too_what_was_asked_for_counts_of_several_versions(tmp_path: Path) -> None:
    asked, later = record("a", "kmeans", 0.25, data="this"), record("a", "kmeans", 0.75, data="another")
    for one in (asked, later):
        records.append(tmp_path / "quality.jsonl", one)
    board = Leaderboard.of(benchmark.with_the_rest([asked], tmp_path))
    assert board.scores["a", "kmeans"].ari == 0.25


@pytest.mark.usefixtures("undrawn")
def test_what_was_stopped_goes_on_and_what_has_changed_is_done_anew(done: list[str]) -> None:
    write_set("a")
    assert pollux(*ASKED).code == 0
    # Killed in the middle of a line.
    content = RECORDS.read_bytes()
    lines = content.splitlines(keepends=True)
    RECORDS.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    done.clear()
    assert pollux(*ASKED).code == 0
    assert done == [f"a {run}" for run in ("hdbscan 0", "kmeans 1")]
    assert [json.loads(line)["seed"] for line in RECORDS.read_bytes().splitlines()] == [0, 0, 0, 1]
    done.clear()
    assert pollux(*ASKED, "--anew", "kmeans").code == 0
    assert done == ["a kmeans 0", "a kmeans 1"]
    write_set("a", X=three_groups(seed=5)[0])
    done.clear()
    assert pollux(*ASKED).code == 0
    assert len(done) == 4
    done.clear()
    assert pollux(*ASKED[:-2], "--seeds", "3").code == 0
    assert done == ["a kmeans 2"]


@pytest.mark.usefixtures("undrawn")
def test_what_cannot_be_run_is_recorded_once_with_its_reason(done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write_set("a")
    monkeypatch.setattr(benchmark, "memory_each", lambda jobs: 1.0)
    for _ in range(2):
        answer = pollux(*ASKED)
        assert answer.code == 0
        assert "Ward on a: would need about 0 GB of memory" in " ".join(answer.out.split())
    assert [line for line in done if "ward" in line] == []
    assert RECORDS.read_bytes().count(b'"skipped"') == 1
    # With more memory, it is run.
    monkeypatch.setattr(benchmark, "memory_each", lambda jobs: 1e9)
    assert pollux(*ASKED).code == 0
    assert done[-1] == "a ward 0"
    assert "would need" not in pollux("bench", "quality", "--show").out


def test_failures_are_listed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    write_set("a")
    monkeypatch.setattr(
        benchmark, "run_grid", lambda tasks, *_: [Failure(tasks[0], "ValueError: no\n  way", "Traceback: here")]
    )
    answer = pollux(*ASKED)
    assert answer.code == 1
    assert answer.err.splitlines()[-3:] == [
        "Traceback: here",
        "1 run failed; the same command tries again what is not recorded:",
        "  a, K-Means, seed 0: ValueError: no way",
    ]


def test_ctrl_c_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> list[Failure]:
        raise KeyboardInterrupt

    write_set("a")
    monkeypatch.setattr(benchmark, "run_grid", stopped)
    answer = pollux(*ASKED)
    assert answer.code == 130
    assert answer.err.splitlines()[-1].startswith("Stopped. What has ended is recorded in results/quality")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere",), "There is no folder nowhere"),
        (("empty",), "empty holds no .npz file"),
        (("bad",), "bad/b.npz"),
        (("--sets", "irsi"), "Did you mean 'iris'?"),
        (("--sets", "mnist"), "pollux datasets fetch mnist"),
        (("--methods", "k-means"), "Did you mean 'kmeans'?"),
        (("--anew", "all"), "There is no method 'all'"),
        (("--seeds", "0"), "--seeds is a positive number, not 0"),
        (("--jobs", "-1"), "--jobs is a positive number"),
        (("--timeout", "nan"), "--timeout is a positive number"),
        (("--out", "bad/b.npz"), "is not a folder"),
        (("--out", ""), "--out names no folder"),
        (("--show",), "Nothing of this is recorded in results/quality"),
    ],
)
def test_bad_input_is_answered_before_anything_is_written(words: Sequence[str], says: str, done: list[str]) -> None:
    Path("empty").mkdir()
    write_set("a", "bad")
    write_set("b", "bad", X=np.full((60, 4), np.inf))
    before = tree(Path())
    answer = pollux("bench", "quality", *words)
    assert answer.code == 2, answer
    assert says in answer.err
    assert "Traceback" not in answer.err
    assert tree(Path()) == before
    assert done == []


def test_a_group_of_benches_asks_which() -> None:
    answer = pollux("bench")
    assert answer.code == 2
    assert "quality" in answer.err


def test_help_comes_without_what_is_slow() -> None:
    code = """if True:
        import sys
        from pollux.app import cli
        try:
            cli.main(["bench", "quality", "--help"])
        finally:
            print([name for name in ("torch", "numpy", "rich", "sklearn") if name in sys.modules], file=sys.stderr)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert done.stderr == "[]\n"


# What is shown.


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_terminal_is_too_narrow(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    found = [record("a", method, 0.5 + seed / 10, seed=seed) for method in METHODS for seed in (0, 1)]
    print_report(report_on(found, benchmark.Request()), Console(width=width, highlight=False))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    # What there is no room for in a table is left out; a line for each cell has room for all.
    assert any("(0.050)" in line for line in lines) == (width != 80)
    assert any("60 × 4" in line for line in lines)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return benchmark_script("quality")


@pytest.mark.parametrize("page", ["docs/benchmarks.md", "README.md"])
def test_the_page_shows_what_is_recorded(script: ModuleType, page: str) -> None:
    assert page in script.PAGES
    text = (ROOT / page).read_text(encoding="utf-8")
    assert script.BEGIN in text
    assert script.filled(text, page) == text, "run python benchmarks/quality.py"
    folder = Path("results")
    folder.mkdir()
    for one in (record("a", "kmeans", 0.25), record("a", "pollux", 0.75)):
        records.append(folder / "quality.jsonl", one)
    filled = script.filled(text, page, folder)
    assert ("| Pollux | +0.500 |" if page == "README.md" else "| Pollux | **0.750** |") in filled
    assert script.filled(filled, page, folder) == filled
    assert script.filled(filled, page, Path("nowhere")) == re_emptied(text, script)


def re_emptied(text: str, script: ModuleType) -> str:
    before, _, rest = text.partition(script.BEGIN)
    return f"{before}{script.BEGIN}\n{script.END}{rest.partition(script.END)[2]}"


def test_the_page_names_all_methods_and_sets() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name in METHODS:
        assert f"\n| `{name}` |" in text
    for name in (*labelled_sets.DEVELOPMENT, *labelled_sets.HELD_OUT):
        assert name in text


def test_the_short_table_has_a_column_for_each_group_and_folder(script: ModuleType) -> None:
    groups = ("images", "unseen", "mine", "validation", "held out")
    for group in groups:
        records.append(Path("quality.jsonl"), record(group, "kmeans", 0.25, group=group))
    head = script.short(Path()).splitlines()[0]
    assert head == "| | held out (1) | validation tables (1) | unseen tables (1) | MNIST test (1) | mine (1) |"


def test_the_number_of_threads_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = grid.threadpool_limits

    def limits(count: int) -> Any:
        asked.append(count)
        return real(count)

    monkeypatch.setattr(grid, "threadpool_limits", limits)
    measure(QualityTask(describe_set("mine", "given", write_set()), GOOD, 0))
    assert asked == [1]


def test_seconds_are_written_without_exponents() -> None:
    texts = [leaderboard.seconds(value) for value in (0.0123, 1.26, 99.4, 99.6, 12345.6, math.nan)]
    assert texts == ["0.012", "1.3", "99", "100", "12,346", leaderboard.NOTHING]
