"""How many clusters: figures against their definitions, answers where the number is known, the command."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from joblib import parallel_config
from numpy.typing import NDArray
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler
from torch import nn

import pollux as package
from data_files import pollux, tree
from pollux import GeminiClustering, Selection, select_n_clusters
from pollux.metrics import pairwise_agreement
from pollux.selection import Candidate
from pollux.selection.agreement import distances_from_consensus, mean_and_error, sampled_pairs, together
from pollux.selection.deciding import CLEAR, decide, score_of
from pollux.selection.defaults import standardised, without_steps
from pollux.selection.gaps import neighbour_edges, pairwise_gaps, separation

CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
QUICK = GeminiClustering(model="linear", objective="mmd_ovo", max_epochs=15, batch_size=None, learning_rate=0.05)


def blobs(n: int = 90, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    classes = np.arange(n) % 3
    return CENTRES[classes] + np.random.default_rng(seed).normal(size=(n, 2)), classes


@pytest.fixture(scope="module")
def found() -> Selection:
    X, classes = blobs()
    return select_n_clusters(X, (3, 4), y=classes, n_subsamples=3, random_state=0)


@pytest.fixture(scope="module")
def noise() -> Selection:
    X = np.random.default_rng(1).normal(size=(120, 2)) * [5, 1] @ np.array([[0.8, 0.6], [-0.6, 0.8]])
    return select_n_clusters(X, [2], n_subsamples=3, random_state=0)


def candidate(n_clusters: int, score: float, **changes: Any) -> Candidate:
    figures: dict[str, Any] = {field.name: 0.5 for field in dataclasses.fields(Candidate)}
    figures |= {"n_clusters": n_clusters, "score": score, "in_use": float(n_clusters), "adjusted_rand_index": None}
    return Candidate(**(figures | changes))


# Agreement


def test_agreement_is_the_mean_over_pairs() -> None:
    labels = np.random.default_rng(0).integers(0, 3, (4, 50))
    agreement = pairwise_agreement(labels)
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    np.testing.assert_allclose(agreement, [adjusted_rand_score(labels[a], labels[b]) for a, b in pairs])
    assert mean_and_error(agreement, 4)[0] == pytest.approx(agreement.mean())


def test_clusterings_that_collapsed_agree_on_nothing() -> None:
    assert pairwise_agreement(np.zeros((2, 9), dtype=np.int64)).tolist() == [0.0]


def test_the_error_grows_with_disagreement() -> None:
    same = np.tile(np.arange(30) % 3, (5, 1))
    assert mean_and_error(pairwise_agreement(same), 5) == (1.0, 0.0)
    mixed = same.copy()
    mixed[0] = np.random.default_rng(0).integers(0, 3, 30)
    assert mean_and_error(pairwise_agreement(mixed), 5)[1] > 0.1


def test_consensus_prefers_the_clustering_that_others_bear_out() -> None:
    classes = np.arange(60) % 3
    odd = np.random.default_rng(0).integers(0, 3, 60)
    pairs = sampled_pairs(60, 2_000, np.random.default_rng(0))
    distances = distances_from_consensus(together(np.array([classes, classes, classes % 2, odd]), pairs))
    assert distances.argmin() in (0, 1)
    assert distances[0] == distances[1] < distances[3]


def test_consensus_on_all_pairs_is_the_distance_between_matrices() -> None:
    labels = np.random.default_rng(1).integers(0, 3, (3, 12))
    first, second = np.triu_indices(12, 1)
    matrices = (labels[:, :, None] == labels[:, None, :]).astype(float)
    expected = np.abs(matrices - matrices.mean(0))[:, first, second].mean(1)
    np.testing.assert_allclose(distances_from_consensus(together(labels, (first, second))), expected)


def test_pairs_are_of_different_rows() -> None:
    first, second = sampled_pairs(5, 1_000, np.random.default_rng(0))
    assert (first != second).all()
    assert {*first.tolist(), *second.tolist()} == set(range(5))


# Gaps


def by_distance(X: NDArray[np.float64], centres: Any) -> NDArray[np.float64]:
    """Log-probabilities (n, K) of a linear model that has these cells."""
    logits = -((X[:, None] - np.asarray(centres)) ** 2).sum(-1)
    return np.asarray(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


def test_edges_are_those_of_the_nearest_others() -> None:
    X, _ = blobs()
    edges = neighbour_edges(X, 9)
    assert edges.shape == (2, 90 * 5)
    distances = np.linalg.norm(X[:, None] - X, axis=-1) + np.diag(np.full(90, np.inf))
    expected = np.sort(distances, axis=1)[:, :5]
    np.testing.assert_allclose(np.linalg.norm(X[edges[0]] - X[edges[1]], axis=1).reshape(90, 5), expected)
    assert [neighbour_edges(X, k).shape[1] for k in (2, 90)] == [90 * 10, 90 * 3]
    assert neighbour_edges(X[:3], 2).shape == (2, 3 * 2)


def test_boundaries_through_gaps_cut_nothing() -> None:
    X, _ = blobs()
    log_p, edges = by_distance(X, CENTRES), neighbour_edges(X, 3)
    np.testing.assert_array_equal(pairwise_gaps(log_p, edges), np.ones((3, 3)))
    assert separation(log_p, edges) == 1


@pytest.mark.parametrize("shape", [[1, 1], [8, 1], [30, 1]], ids=["round", "long", "thin"])
def test_halves_of_a_cluster_have_no_gap_between_them(shape: list[float]) -> None:
    halves = np.array([[0.3, 0.5], [0.7, 0.5]]) * shape
    squares = [np.random.default_rng(seed).uniform(size=(400, 2)) * shape for seed in range(10)]
    assert np.mean([separation(by_distance(X, halves), neighbour_edges(X, 2)) for X in squares]) < 0.05


def test_a_gap_is_what_the_boundary_cuts_less_than_levels_beside_it() -> None:
    # Rows on a line, twice joined with the next four: a level inside cuts 2 · (1 + 2 + 3 + 4) edges. Between the halves
    # there are two, and others lead to a third cluster.
    margin = np.concatenate([np.linspace(-9, -1, 40), np.linspace(1, 9, 40)])
    log_p = np.column_stack([-np.logaddexp(0, margin), -np.logaddexp(0, -margin), np.full(80, -99.0)])
    log_p = np.concatenate([log_p, np.tile([-99.0, -99.0, 0.0], (9, 1))])
    inside = [(i, i + step) for step in (1, 2, 3, 4) for i in range(80 - step) if (i < 40) == (i + step < 40)]
    edges = np.array([*inside, *inside, (39, 40), (38, 41), *((10, 80 + i) for i in range(9))]).T
    gaps = pairwise_gaps(log_p, edges)
    np.testing.assert_allclose(gaps[:2, :2], [[1, 1 - 2 / 20], [1 - 2 / 20, 1]])
    assert separation(log_p[:80, :2], edges[:, :-9]) == pytest.approx(1 - 2 / 20)


@pytest.mark.parametrize("size", [0.1, 1, 1000])
def test_gaps_do_not_hang_on_how_sure_the_model_is(size: float) -> None:
    X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0, 0], [5, 0]], 100, axis=0)
    expected = separation(by_distance(X, [[0, 0], [5, 0]]), neighbour_edges(X, 2))
    logits = size * (X[:, :1] - 2.5) * [-1, 1]
    log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    assert separation(log_p, neighbour_edges(X, 2)) == pytest.approx(expected)
    assert expected > 0.9


def test_the_cluster_that_touches_another_counts_most() -> None:
    random = np.random.default_rng(0)
    X = np.concatenate([random.uniform(size=(300, 2)) * [2, 1], 9 + random.uniform(size=(300, 2))])
    log_p, edges = by_distance(X, [[0.5, 0.5], [1.5, 0.5], [9.5, 9.5]]), neighbour_edges(X, 3)
    gaps = pairwise_gaps(log_p, edges)
    assert gaps[0, 1] < 0.2
    assert gaps[0, 2] == gaps[1, 2] == 1
    nearest = [gaps[0, 1], gaps[0, 1], 1.0]
    assert separation(log_p, edges) == pytest.approx(np.sqrt(min(nearest) * np.mean(nearest)))


def test_what_collapsed_is_not_apart_and_empty_clusters_do_not_count() -> None:
    X, _ = blobs()
    edges = neighbour_edges(X, 3)
    assert separation(np.log(np.tile([0.2, 0.6, 0.2], (90, 1))), edges) == 0
    with_empty = np.column_stack([by_distance(X, CENTRES), np.full(90, -99.0)])
    assert separation(with_empty, edges) == 1


# The default


def test_steps_between_repeated_values_are_filled() -> None:
    random = np.random.default_rng(0)
    bits, real, none = random.integers(0, 2, 300), random.normal(size=300), np.zeros(300)
    grades = np.where(bits, 10, 0) + random.integers(0, 3, 300)
    spread = without_steps(np.column_stack([bits, grades, real, none]), 0)
    for column in (0, 1):
        assert np.unique(spread[:, column]).size == 300
    steps = np.sort(np.diff(np.sort(spread[:, :2], axis=0), axis=0), axis=0)
    # Where there was a step between zeros and ones there is none; between 2 and 10 there still is, of 7 of 8.
    assert steps[-1, 0] < 0.1
    assert steps[-1, 1] > 10 * steps[-2, 1]
    np.testing.assert_allclose(spread[:, 2], (real - real.mean()) / real.std(), rtol=1e-4)
    assert not spread[:, 3].any()


def test_constant_columns_become_zero() -> None:
    scaled = standardised(np.column_stack([np.arange(6.0), np.full(6, 0.1), np.zeros(6)]))
    np.testing.assert_allclose(scaled[:, 0].std(), 1, rtol=1e-6)
    assert not scaled[:, 1:].any()


# Answers


def test_three_blobs_are_three_clusters(found: Selection) -> None:
    assert found.n_clusters == 3
    assert found.is_clear
    assert found.reason.startswith("3 clusters")
    assert found.best is found[3]
    assert found[3].stability > 0.97
    assert found[3].separation > 0.97
    assert found[3].score == score_of(found[3].stability, found[3].separation)
    assert found[3].consensus_rank == 1
    assert found[3].adjusted_rand_index > 0.97  # type: ignore[operator]
    assert [each.n_clusters for each in found.candidates] == [3, 4]
    assert sum(found.in_use.values()) == 5
    assert max(found.in_use) <= found.asked_for == 4
    assert found.rows == found.rows_used == 90


def test_one_long_gaussian_has_no_clear_structure(noise: Selection) -> None:
    # Cut in two across its length it is stable all the same.
    assert noise[2].stability > 0.6
    assert noise[2].separation < 0.1
    assert not noise.is_clear
    assert noise.n_clusters == 1
    assert noise.reason.startswith("No clear structure")
    assert noise.best is max(noise.candidates, key=lambda each: each.score)


def test_the_same_seed_gives_the_same_answer() -> None:
    X, _ = blobs()
    first, second = (select_n_clusters(X, [3, 2], estimator=QUICK, n_subsamples=3, random_state=4) for _ in range(2))
    assert first == second
    assert [each.n_clusters for each in first.candidates] == [2, 3]


def test_any_form_of_rows_is_taken_and_large_ones_are_sampled() -> None:
    X, _ = blobs(300)
    frame = pd.DataFrame(X, columns=["a", "b"])
    sparse = scipy.sparse.csr_array(X)
    answers = [
        select_n_clusters(rows, [3], estimator=QUICK, n_subsamples=3, max_rows=60, random_state=0)
        for rows in (X, frame, sparse)
    ]
    assert answers[0] == answers[1] == answers[2]
    assert (answers[0].rows, answers[0].rows_used) == (300, 60)
    assert "60 were looked at" in str(answers[0])


def test_an_estimator_is_left_as_it_was() -> None:
    X, _ = blobs(30)
    mine = GeminiClustering(7, model="mlp", hidden=(4,), max_epochs=2, random_state=1, verbose=True)
    before = mine.get_params()
    select_n_clusters(X.reshape(30, 2, 1, 1), [2], estimator=mine, n_subsamples=3, random_state=0)
    assert mine.get_params() == before
    assert not hasattr(mine, "n_clusters_")


def test_an_estimator_that_scales_sees_scaled_rows() -> None:
    X, _ = blobs()
    X[0, 0] = np.nan
    known = StandardScaler().fit_transform(X)
    known[0, 0] = 0
    mine = GeminiClustering(**{**QUICK.get_params(), "scaling": "standard", "missing": "mean"})
    one = select_n_clusters(X * [1, 1e6] + [0, 1e7], [3], estimator=mine, n_subsamples=3, random_state=0)[3]
    other = select_n_clusters(known, [3], estimator=QUICK, n_subsamples=3, random_state=0)[3]
    assert dataclasses.astuple(one)[:-1] == pytest.approx(dataclasses.astuple(other)[:-1])
    assert mine.scaling == "standard"
    with pytest.raises(ValueError, match="scaling"):
        select_n_clusters(X, [3], estimator=GeminiClustering(scaling="wrong", missing="mean"))


def test_jobs_give_the_same_answer() -> None:
    X, _ = blobs(30)
    # By joblib, but without the seconds that new processes take.
    with parallel_config("sequential"):
        one, several = (
            select_n_clusters(X, [2], estimator=QUICK, n_subsamples=3, random_state=0, n_jobs=jobs) for jobs in (1, 2)
        )
    assert one == several


@pytest.mark.parametrize("seed", range(3))
def test_two_moons_are_two_clusters(seed: int) -> None:
    X, classes = make_moons(500, noise=0.05, random_state=seed)
    found = select_n_clusters(X, (2, 4), y=classes, n_subsamples=3, random_state=0)
    assert found.n_clusters == 2
    assert found[2].adjusted_rand_index > 0.8  # type: ignore[operator]
    assert found[4].score < 0.1


def test_independent_zeros_and_ones_have_no_clear_structure() -> None:
    X = np.random.default_rng(0).integers(0, 2, size=(200, 6))
    assert not select_n_clusters(X, (2, 4), n_subsamples=3, random_state=0).is_clear


def test_few_rows_may_have_clusters() -> None:
    X, _ = blobs(18)
    assert select_n_clusters(2 * X, (2, 3, 4), n_subsamples=3, random_state=0).n_clusters == 3


def test_clusters_of_unequal_sizes_are_found() -> None:
    sizes = np.repeat([0, 1, 2], [300, 40, 60])
    places, widths = np.array([[0, 0], [6, 0], [0, 6]]), np.array([1, 0.5, 0.5])
    X = places[sizes] + np.random.default_rng(0).normal(size=(400, 2)) * widths[sizes, None]
    assert select_n_clusters(X, (2, 3, 4), n_subsamples=3, random_state=0).n_clusters == 3


def test_the_finest_clear_candidate_that_is_not_much_worse_than_the_best_is_chosen() -> None:
    assert decide([candidate(2, 1.0), candidate(3, 0.7), candidate(5, 0.61), candidate(6, 0.59)]).n_clusters == 5
    assert decide([candidate(2, CLEAR + 0.01), candidate(3, CLEAR - 0.01)]).n_clusters == 2
    assert decide([candidate(2, CLEAR - 0.01), candidate(3, 0.1)])[:2] == (1, False)
    assert "agree on little" in decide([candidate(2, 0.3, separation=0.9, stability=0.3)]).reason
    assert "little room" in decide([candidate(2, 0.32, separation=0.4, stability=0.8)]).reason
    assert "4 clusters" in decide([candidate(2, 0.0, stability=0.1), candidate(4, 0.0, stability=0.9)]).reason


def test_a_candidate_that_leaves_clusters_empty_stands_for_fewer() -> None:
    filled = [candidate(2, 0.5), candidate(3, 0.99), candidate(8, 1.0, in_use=3.0)]
    assert decide(filled).n_clusters == 3
    assert decide([candidate(8, 1.0, in_use=3.0)]).n_clusters == 3


def test_the_largest_candidate_is_told_to_be_so() -> None:
    assert "try larger ones" in decide([candidate(2, 0.5), candidate(3, 1.0)]).reason
    assert "try larger ones" not in decide([candidate(2, 1.0), candidate(3, 0.5)]).reason
    assert "into 2 groups" in decide([candidate(2, 1.0), candidate(3, 1.0), candidate(4, 0.5)]).reason


# What is shown


def test_the_table_tells_all(found: Selection) -> None:
    lines = str(found).splitlines()
    assert lines[0].split()[:2] == ["clusters", "stability"]
    assert lines[0].endswith("ARI")
    assert [line.endswith("←") for line in lines[1:3]] == [True, False]
    assert lines[-1] == found.reason
    assert found.as_markdown().count("**3**") == 1


def test_figures_are_given_as_json_and_csv(found: Selection, noise: Selection) -> None:
    told = json.loads(found.as_json())
    assert told["n_clusters"] == 3
    assert told["candidates"][0]["score"] == found[3].score
    assert {int(used): count for used, count in told["in_use"].items()} == found.in_use
    header, *rows = found.as_csv().splitlines()
    assert header.split(",")[0] == "n_clusters"
    assert len(rows) == 2
    assert "adjusted_rand_index" in header
    assert "adjusted_rand_index" not in noise.as_csv()


@pytest.mark.parametrize("name", ["answer.png", "answer.svg"])
def test_the_figure_is_drawn(found: Selection, noise: Selection, tmp_path: Path, name: str) -> None:
    figure = found.plot(tmp_path / name)
    assert (tmp_path / name).stat().st_size > 5_000
    assert figure.get_suptitle() == "3 clusters"
    assert noise.plot().get_suptitle() == "No clear structure"


def test_an_unknown_candidate_is_named(found: Selection) -> None:
    with pytest.raises(KeyError, match="9 is not among"):
        found[9]


# What cannot be


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"candidates": []}, "no candidates"),
        ({"candidates": 3}, "several numbers"),
        ({"candidates": [1, 2]}, "at least 2, not 1"),
        ({"candidates": [2.5]}, "whole number"),
        ({"candidates": [True]}, "whole number"),
        ({"candidates": [25]}, "too few for 25"),
        ({"n_subsamples": 2}, "n_subsamples"),
        ({"subsample": 0}, "subsample"),
        ({"subsample": "half"}, "subsample"),
        ({"max_rows": 3}, "max_rows"),
        ({"y": [0, 1]}, "2 classes for 30 rows"),
        ({"estimator": nn.Linear(2, 2)}, "must be a GeminiClustering"),
        ({"estimator": GeminiClustering(model="free")}, "free table"),
        ({"estimator": GeminiClustering(model=nn.Linear(2, 2))}, "one number of clusters"),
        ({"X": "data.csv"}, "pollux select"),
        ({"X": [[np.nan, 1.0]] * 30}, "NaN"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_is_refused_with_the_reason(arguments: dict[str, Any], message: str) -> None:
    X, _ = blobs(30)
    with pytest.raises(ValueError, match=message):
        select_n_clusters(**({"X": X} | arguments))


# The command


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, classes = blobs()
    path = tmp_path_factory.mktemp("data") / "points.csv"
    pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "kind": np.array(["a", "b", "c"])[classes]}).to_csv(path, index=False)
    return path


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer epochs than by default, which three blobs do not need."""
    monkeypatch.setattr("pollux.selection.defaults._EPOCHS", 5)


COMPARING = ("--from", 3, "--to", 3, "--subsamples", 3)


@pytest.mark.usefixtures("hasty")
def test_the_command_writes_a_folder_and_tells_what_comes_next(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = pollux("select", file, "--label", "kind", *COMPARING)
    assert answer.code == 0, answer.err
    assert "90 rows, 2 features: x, y" in answer.out
    assert "ARI" in answer.out
    assert f"next: pollux fit --preset tables {file} --label kind --clusters 3" in answer.out
    names = {"selection.json", "selection.csv", "selection.md", "selection.png"}
    assert set(tree(tmp_path / "selections" / "points")) == names
    told = json.loads((tmp_path / "selections" / "points" / "selection.json").read_text())
    assert told["n_clusters"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", 5, "--to", 3], "--from"),
        (["--from", 1], "at least 2"),
        (["--subsamples", 2], "--subsamples"),
        (["--jobs", 0], "--jobs"),
        (["--to", 80], "too few for 80"),
        (["--columns", "z"], "'z'"),
        (["--seed", -1], "seed"),
        (["--out", "."], "not empty"),
    ],
)
def test_the_command_refuses_bad_input_and_writes_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("mine")
    answer = pollux("select", file, *options)
    assert answer.code == 2
    assert message in answer.err
    assert tree(tmp_path) == {"mine.txt": b"mine"}


def test_a_command_that_is_stopped_leaves_nothing(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pollux.selection.ensembles.fit_once", stop)
    answer = pollux("select", file)
    assert answer.code == 130
    assert "nothing was written" in answer.err
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("hasty")
def test_rows_that_are_streamed_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = blobs(200)
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", X)
    (tmp_path / "selections" / "points").mkdir(parents=True)
    monkeypatch.setattr("pollux.selection.search.MOST_ROWS", 90)
    answer = pollux("select", "points.npy", "--stream", "yes", "--json", *COMPARING)
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert (told["n_clusters"], told["rows"], told["rows_used"]) == (3, 200, 90)
    assert told["folder"] == str(Path("selections") / "points-2")
    # A preset looks at all rows at once.
    assert told["next_command"] == "pollux fit points.npy --clusters 3 --stream yes"
    assert told["candidates"][0]["adjusted_rand_index"] is None


@pytest.mark.usefixtures("hasty")
def test_the_preset_of_images_comes_next_for_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = blobs(90)
    monkeypatch.chdir(tmp_path)
    np.save("images.npy", np.tile(X[:, None, :, None], (1, 1, 1, 2)))
    answer = pollux("select", "images.npy", *COMPARING)
    assert answer.code == 0, answer.err
    assert "next: pollux fit --preset images images.npy --clusters 3" in answer.out


def test_the_names_are_public() -> None:
    assert package.select_n_clusters is select_n_clusters
    assert package.Selection is Selection
