"""What the user knows of some samples."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import pollux
from blobs import blobs
from commands import good, refused, summary_of
from pollux import GeminiClustering, Training
from pollux.data.samples import select_samples
from pollux.errors import InputError
from pollux.spec import Spec
from pollux.training.hints import BoundHints, Hints
from pollux.training.problem import MemoryProblem, pose_problem

LINEAR: dict[str, Any] = {"model": "linear", "objective": "mmd_ova", "n_init": 2, "random_state": 0}
LINEAR |= {"max_epochs": 40, "learning_rate": 0.1}
X, CLASSES = blobs()
# Clusters would be numbered by size, which is equal: these are not the numbers that come by themselves.
NUMBERS = np.array([2, 0, 1])[CLASSES]
KNOWN = np.where(np.arange(len(X)) < 9, NUMBERS, -1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"init": "kmeans"},
        {"batch_size": 32},
        {"objective": "wasserstein_ova", "batch_size": 30},
        {"objective": "mi", "model": "mlp"},
        {"model": "free", "init": "kmeans"},
        {"model": "mlp", "init": "kmeans", "training": Training(max_samples=60), "geometry": "rbf"},
    ],
    ids=str,
)
def test_known_clusters_keep_their_numbers(changes: dict[str, Any]) -> None:
    clustering = GeminiClustering(3, **(LINEAR | changes)).fit(X, known=KNOWN, hint_weight=5.0)
    assert clustering.hint_violations_ == {"known": 0, "must_link": 0, "cannot_link": 0}
    assert (clustering.labels_ == NUMBERS).mean() > 0.9


def test_clusters_that_are_not_known_follow_by_size() -> None:
    known = np.where(CLASSES == 1, np.where(np.arange(len(X)) < 9, 2, -1), -1)
    clustering = GeminiClustering(3, **LINEAR, init="kmeans").fit(X, known=known, hint_weight=5.0)
    assert (clustering.labels_[CLASSES == 1] == 2).all()
    assert sorted(np.unique(clustering.labels_)) == [0, 1, 2]


def test_what_is_known_of_some_tells_others_where_classes_are_not_the_clusters(tmp_path: Path) -> None:
    # Two clusters side by side, and two classes, above and below, in each.
    random = np.random.default_rng(0)
    side, above = np.arange(80) % 2, np.arange(80) // 2 % 2
    rows = np.column_stack([5 * side, 3 * above]) + 0.5 * random.normal(size=(80, 2))
    known = np.where(np.arange(80) < 20, above, -1)
    options = LINEAR | {"init": "kmeans", "max_epochs": 20, "n_init": 1}
    assert (GeminiClustering(2, **options).fit_predict(rows) == side).mean() in (0, 1)
    found = GeminiClustering(2, **options).fit(rows, known=known, hint_weight=1.0)
    assert (found.labels_ == above).mean() > 0.95
    # A training that is resumed has not forgotten it.
    training = Training(checkpoint=tmp_path)
    early = GeminiClustering(2, **options, training=training, callbacks=[lambda epoch: epoch.number == 10])
    early.fit(rows, known=known, hint_weight=1.0)
    resumed = GeminiClustering(2, **options, training=training).fit(rows, known=known, hint_weight=1.0)
    np.testing.assert_array_equal(resumed.predict_proba(rows), found.predict_proba(rows))


def test_pairs_are_kept() -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, len(X), (60, 2))
    same = CLASSES[pairs[:, 0]] == CLASSES[pairs[:, 1]]
    clustering = GeminiClustering(3, **LINEAR, init="kmeans")
    clustering.fit(X, must_link=pairs[same], cannot_link=pairs[~same])
    assert sum(clustering.hint_violations_.values()) <= 1


def test_a_few_known_samples_correct_the_mixture_that_clusters_start_from() -> None:
    # Two long clusters side by side, which k-means cuts across.
    random = np.random.default_rng(0)
    side = np.arange(200) % 2
    rows = random.normal(size=(200, 2)) * [0.3, 1.5] + np.column_stack([2 * side, np.zeros(200)])
    known = np.where(np.arange(200) < 6, side, -1)
    start = [torch.from_numpy((rows[:, 1] > 0).astype(np.int64))]
    seen = _joined(rows, {"known": known}, geometry="mixtures")
    assert (seen[0].adapt_start(start, seen[1])[0].numpy() == side).mean() > 0.95
    # A geometry of another shape is not told what a mixture would find.
    seen = _joined(rows, {"known": known}, geometry="rbf")
    assert (seen[0].adapt_start(start, seen[1])[0].numpy() == side).mean() < 0.7


def _joined(rows: Any, given: dict[str, Any], **options: Any) -> tuple[BoundHints, MemoryProblem]:
    """Hints on rows, and the problem of a fit to them."""
    spec = Spec.of(GeminiClustering(2, objective="mmd_ova", preprocessing=None, **options))
    samples = select_samples(rows, None, "cpu")
    problem = pose_problem(spec, samples, None, spec.resolve_geometry(None))
    assert isinstance(problem, MemoryProblem)
    return Hints.gather(len(rows), 2, **given).join(spec, samples, problem, None)[1], problem


def test_models_start_where_pairs_hold() -> None:
    rows = np.arange(12.0)[:, None]
    start = [torch.arange(12) // 6, torch.arange(12) % 2]
    pairs = {"must_link": [[0, 11], [1, 2]], "cannot_link": [[0, 5], [3, 4], [2, 3]]}
    hints, problem = _joined(rows, pairs, geometry="linear")
    found = hints.adapt_start(start, problem)
    assert len(found) == 2
    assert found[0] is found[1], "all start at the clusters in which most of them hold"
    assert not sum(hints.violations(found[0][torch.from_numpy(hints.used)]).values())
    np.testing.assert_array_equal(found[0][6:11], start[1][6:11], err_msg="others stay where they were")


def test_hints_survive_files_and_pickle_and_no_fit_without_them(tmp_path: Path) -> None:
    clustering = GeminiClustering(3, **LINEAR).fit(X, known=KNOWN)
    clustering.save(tmp_path / "model")
    for other in (pollux.load(tmp_path / "model"), pickle.loads(pickle.dumps(clustering))):
        assert isinstance(other, GeminiClustering)
        assert other.hint_violations_ == clustering.hint_violations_
        assert (other.predict(X) == clustering.labels_).all()
    assert GeminiClustering(3, **LINEAR, init="kmeans").fit(X).hint_violations_ is None


def test_streams_have_row_numbers_and_loaders_do_not(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X.astype(np.float32))
    streamed = GeminiClustering(3, **LINEAR, batch_size=30)
    streamed.fit(pollux.open_stream(tmp_path / "rows.npy"), known=KNOWN, hint_weight=5.0)
    assert streamed.hint_violations_["known"] == 0
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(X)), 30)
    with pytest.raises(InputError, match="DataLoader have no numbers"):
        GeminiClustering(3, **LINEAR).fit(loader, known=KNOWN)


@pytest.mark.parametrize(
    ("hints", "says"),
    [
        ({"must_link": [[0, 1], [1, 2]], "cannot_link": [[2, 0]]}, "Rows 2 and 0 cannot be linked"),
        ({"must_link": [[0, 5], [5, 1]], "known": [0, 1, *[-1] * 8]}, "Rows 0 and 1 are known to be"),
        ({"cannot_link": [[0, 2]], "known": [1, -1, 1, *[-1] * 7]}, "are of one cluster"),
        ({"cannot_link": [[3, 3]]}, "Rows 3 and 3"),
        (
            {"cannot_link": [[1, 2], [2, 4], [4, 1], [1, 7], [7, 2], [4, 7], [7, 8]]},
            "Rows 1, 2, 4, 7 cannot be kept apart",
        ),
        ({"cannot_link": [[9, 0], [1, 9], [5, 9]], "must_link": [[2, 5]], "known": [0, 1, 2, *[-1] * 7]}, "0, 1, 2, 9"),
        ({"must_link": [[0, 10]]}, "names row 10"),
        ({"must_link": [0, 1]}, "is pairs"),
        ({"known": [3, *[-1] * 9]}, "holds 3"),
        ({"known": [0, 1]}, "each of the 10 rows"),
        ({"known": [0, *[-1] * 9], "weight": 0.0}, "positive number"),
    ],
)
def test_contradictions_are_named_before_training(hints: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Hints.gather(10, 3, **hints)


@pytest.mark.parametrize("n_clusters", [1, 2, 5])
def test_clusters_suffice_for_as_many_samples_as_are_apart(n_clusters: int) -> None:
    def cannot_link(n: int) -> list[list[int]]:
        ring = [[20 + i, 20 + (i + 1) % 8] for i in range(8)] if n_clusters > 1 else []
        return [*([i, j] for i in range(n) for j in range(i)), *ring]

    Hints.gather(30, n_clusters, cannot_link=cannot_link(n_clusters))
    with pytest.raises(InputError, match=f"and there are {n_clusters} clusters: ask for {n_clusters + 1}"):
        Hints.gather(30, n_clusters, cannot_link=cannot_link(n_clusters + 1))


def ring(n: int, start: int = 0) -> list[list[int]]:
    return [[start + i, start + (i + 1) % n] for i in range(n)]


def test_rings_that_clusters_cannot_colour_are_named() -> None:
    # Ring 0 … 4 among rings and trees that two clusters suffice for.
    pairs = [*ring(5), *ring(8, 20), [4, 30], [30, 31]]
    with pytest.raises(InputError, match=r"Rows 0, 1, 2, 3, 4 cannot be kept apart.*2 clusters: ask for 3"):
        Hints.gather(50, 2, cannot_link=pairs)
    Hints.gather(50, 3, cannot_link=pairs)
    # A wheel of five spokes holds no four rows that are all apart from each other, and needs four clusters.
    wheel = [*ring(5), *([9, i] for i in range(5))]
    with pytest.raises(InputError, match=r"Rows 0, 1, 2, 3, 4, 9 cannot be kept apart.*3 clusters: ask for 4"):
        Hints.gather(50, 3, cannot_link=[*wheel, *ring(7, 20)])
    Hints.gather(50, 4, cannot_link=wheel)
    # What is known and linked counts: the hub by way of row 8, and two clusters that are known.
    linked = [[min(a, 8), min(b, 8)] for a, b in wheel]
    with pytest.raises(InputError, match="3 clusters"):
        Hints.gather(50, 3, cannot_link=linked, must_link=[[8, 9]], known=[0, -1, 0, 1, *[-1] * 46])


def test_colourings_of_many_pairs_end_soon() -> None:
    random = np.random.default_rng(0)
    pairs = random.integers(0, 3_000, (9_000, 2))
    classes = random.integers(0, 5, 3_000)
    # Whatever has classes can be coloured by them.
    Hints.gather(3_000, 5, cannot_link=pairs[classes[pairs[:, 0]] != classes[pairs[:, 1]]])


def test_what_follows_from_links_is_known() -> None:
    hints = Hints.gather(6, 3, must_link=[[0, 1], [1, 2]], known=[-1, -1, 2, -1, 0, -1])
    assert hints.rows.tolist() == [0, 1, 2, 4]
    assert hints.labels.tolist() == [2, 2, 2, 0]


def test_the_penalty_is_that_of_the_formula() -> None:
    hints = Hints.gather(4, 3, must_link=[[0, 1]], cannot_link=[[2, 3]], known=[1, -1, -1, -1])
    log_p = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    bound = BoundHints(hints, np.arange(4), lambda index: log_p[index])
    p = log_p.exp()
    # Row 1 is of the cluster of row 0.
    expected = -(log_p[0, 1] + log_p[1, 1]) / 2 - (p[0] @ p[1]).log() - (1 - p[2] @ p[3]).log()
    assert torch.allclose(bound(lambda found: found, None, log_p), expected)  # type: ignore[arg-type]


def test_the_gradient_does_not_vanish_where_a_violation_is_certain() -> None:
    hints = Hints.gather(2, 2, cannot_link=[[0, 1]])
    logits = torch.tensor([[40.0, -40.0], [40.0, -40.0]], requires_grad=True)
    bound = BoundHints(hints, np.arange(2), lambda index: logits[index].log_softmax(-1))
    (gradient,) = torch.autograd.grad(bound(lambda found: found, None, logits), logits)  # type: ignore[arg-type]
    assert gradient.abs().max() > 0.1


def test_rows_of_weight_zero_are_not_heeded() -> None:
    weight = np.ones(len(X))
    weight[:9:2] = 0
    clustering = GeminiClustering(3, **LINEAR).fit(X, known=KNOWN, sample_weight=weight, hint_weight=5.0)
    assert (clustering.labels_ == NUMBERS).mean() > 0.9


def test_the_command_line_takes_hints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["kind"] = np.where(KNOWN >= 0, np.array(["north", "south", "west"])[NUMBERS], "")
    frame.to_csv("rows.csv", index=False)
    Path("apart.csv").write_text("row,other\n0,1\n1,2\n")
    fit = ("fit", "rows.csv", "--clusters", 3, "--model", "linear", "--epochs", 40, "--restarts", 1)
    fit += ("--learning-rate", 0.1)
    good(*fit, "--known", "kind", "--cannot-link", "apart.csv", "--hint-weight", 5, "--out", "run")
    summary = summary_of("run")
    assert summary["known"] == ["north", "south", "west"]
    assert summary["hint_violations"] == {"known": 0, "must_link": 0, "cannot_link": 0}
    assert summary["features"] == 2
    assert (pd.read_csv("run/clusters.csv")["cluster"] == NUMBERS).mean() > 0.9
    assert "known clusters (--known)" in good(*fit, "--known", "kind", "--epochs", 1, "--out", "again").out
    refused(*fit, "--known", "kinds", says="(--known)")
    refused(*fit[:2], "--clusters", 2, "--known", "kind", says="knows 3 clusters")
    Path("bad.csv").write_text("0,1\n0,x\n")
    refused(*fit, "--must-link", "bad.csv", says="two row numbers in each line")
    Path("names.csv").write_text("Ann,Bob\n")
    refused(*fit, "--must-link", "names.csv", says="no pair of row numbers")
    refused(*fit, "--must-link", "apart.csv", "--cannot-link", "apart.csv", says="take one of the two back")


def test_sizes_leave_known_samples_where_they_are_and_count_what_they_cannot_keep() -> None:
    known = np.where(np.arange(len(X)) < 30, 0, -1)
    roomy = GeminiClustering(3, **LINEAR).fit(X, known=known, max_size=0.4)
    assert roomy.hint_violations_ == {"known": 0, "must_link": 0, "cannot_link": 0}
    assert (roomy.labels_[:30] == 0).all()
    tight = GeminiClustering(8, **LINEAR).fit(X, known=known, max_size=20)
    assert tight.hint_violations_["known"] == (tight.labels_[:30] != 0).sum() == 10


def test_samples_without_weight_still_link_others() -> None:
    one, other, between = np.flatnonzero(CLASSES == 0)[0], np.flatnonzero(CLASSES == 1)[0], len(X) - 1
    weight = np.ones(len(X))
    weight[between] = 0.0
    links = [[one, between], [between, other]]
    found = GeminiClustering(3, **LINEAR, init="kmeans").fit(X, must_link=links, sample_weight=weight, hint_weight=50.0)
    assert found.labels_[one] == found.labels_[other] or found.hint_violations_["must_link"] == 1


def test_checkpoints_of_other_hints_are_not_taken_up(tmp_path: Path) -> None:
    pair = [[0, 1]]

    def fit(**hints: Any) -> GeminiClustering:
        training = Training(checkpoint=tmp_path / "checkpoints")
        return GeminiClustering(3, **LINEAR | {"max_epochs": 2}, training=training).fit(X, **hints)

    fit(must_link=pair)
    with pytest.raises(InputError, match="hints"):
        fit(cannot_link=pair)
