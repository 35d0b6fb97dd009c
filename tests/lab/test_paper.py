"""The paper's experiments: their grids, the numbers of the paper, and what their runs measure."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from coverings import IS_FULL
from experiment_records import perform_run, write_encoder
from pollux import load
from pollux.lab import grid, reproduce_command
from pollux.lab.grid import RunContext, UnfinishedRun, model_path
from pollux.lab.paper import (
    EXPERIMENTS,
    cifar10,
    complexity,
    mi_boundaries,
    mnist,
    outliers,
)
from pollux.lab.paper.comparisons import Comparison, ComparisonTable
from pollux.lab.paper.experiment import AUTHORS_CLIP, OBJECTIVES, Protocol
from pollux.lab.paper.reproduction import choose
from pollux.lab.records import Record, Run

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "gemini.tex"
GRIDS = [(name, profile) for name in EXPERIMENTS for profile in ("quick", "paper")]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# The grids.


def test_the_command_line_names_all_experiments() -> None:
    assert tuple(EXPERIMENTS) == reproduce_command.NAMES


@pytest.mark.parametrize(("name", "profile"), GRIDS)
def test_runs_have_names_of_their_own_that_json_keeps(name: str, profile: str) -> None:
    runs = EXPERIMENTS[name].protocols[profile].all_runs(name)
    assert runs
    assert len({run.key for run in runs}) == len(runs)
    assert len({str(run) for run in runs}) == len(runs)
    for run in runs:
        again = Run(name, json.loads(json.dumps(dict(run.settings), allow_nan=False)), run.seed)
        assert again == run
        assert again.key == run.key
        # The order of settings is no difference.
        assert Run(name, dict(reversed(list(run.settings.items()))), run.seed).key == run.key
        assert all(type(value) in (str, int, float, bool) for value in run.settings.values())


def test_names_of_runs_stay_the_same() -> None:
    """Or all that users have recorded would be run again."""
    run = Run("moons", {"objective": "kl_ova", "weight": 0.5, "epochs": 5}, 3)
    assert run.key == "moons-02ed83430509"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_remark_says_how_the_quick_profile_differs(name: str) -> None:
    quick, paper = (EXPERIMENTS[name].protocols[profile] for profile in ("quick", "paper"))
    assert set(EXPERIMENTS[name].protocols) in ({"quick", "paper"}, {"quick", "cpu", "paper"})
    differs = list(quick.grid) != list(paper.grid) or quick.runs != paper.runs
    assert bool(quick.remark) == differs
    assert paper.remark == ""
    # A profile for long runs on processors has every cell of the paper's tables, and says what it leaves out.
    cpu = EXPERIMENTS[name].protocol("cpu")
    assert bool(cpu.remark) == (cpu is not paper)
    fewer, all_epochs = ([{**settings, "epochs": 0} for settings in one.grid] for one in (cpu, paper))
    assert all(settings in fewer for settings in all_epochs)


def test_what_has_no_randomness_is_run_once() -> None:
    protocol = Protocol([{"a": 1}, {"a": 2, "deterministic": True}], runs=3)
    assert [(run.settings["a"], run.seed) for run in protocol.all_runs("toy")] == [(1, 0), (2, 0), (1, 1), (1, 2)]


# The numbers of the paper.


@pytest.fixture(scope="module")
def paper() -> str:
    if not PAPER.exists():
        pytest.skip("the paper is not here")
    return PAPER.read_text(encoding="utf-8").replace("{\\bf ", "").replace("}", "")


def paper_table(paper: str, label: str) -> list[str]:
    """The lines of a table."""
    after = paper.split(f"\\label{{{label}")[1]
    return after.split("\\end{table")[0].splitlines()


PAIR = re.compile(r"(\d(?:\.\d+)?)\s*\((\d+(?:\.\d+)?)\)")


def test_the_extended_table_of_outliers(paper: str) -> None:
    lines = paper_table(paper, "tab:complete_gstm_exp")
    found = [tuple((float(a), float(b)) for a, b in PAIR.findall(line)) for line in lines]
    assert [row for row in found if row] == list(outliers.PUBLISHED.values())
    (oracle,) = (line for line in lines if "Oracle" in line)
    assert [float(number) for number in re.findall(r"0\.\d+", oracle)] == list(outliers.PUBLISHED_ORACLE.values())


def test_the_small_table_of_outliers(paper: str) -> None:
    lines = [line for line in paper_table(paper, "tab:gstm_experiment_ari")[2:] if "&" in line]
    lines = [line for line in lines if not re.search(r"\\I_|multicolumn", line)]
    last = [re.findall(r"\d(?:\.\d+)?", cell)[-1:] for line in lines for cell in line.split("&")]
    numbers = [float(number) for found in last for number in found]
    column = outliers.COLUMNS.index((1, 4))
    order = ["kmeans", "gmm_full", "gmm_diag", "mmd_ova", "mmd_ovo", "wasserstein_ova", "wasserstein_ovo"]
    order_2 = ["kl_ova", "kl_ovo", "hellinger_ova", "hellinger_ovo", "tv_ova", "tv_ovo"]
    expected: list[float] = []
    for names, oracle in ((order, []), (order_2, [outliers.PUBLISHED_ORACLE[1]])):
        expected += oracle + [outliers.PUBLISHED[name][column][part] for part in (0, 1) for name in names]
    assert numbers == expected


def test_the_table_of_mnist(paper: str) -> None:
    lines = paper_table(paper, "tab:mnist_experiment")
    found = [tuple((float(a), int(b)) for a, b in PAIR.findall(line)) for line in lines]
    assert [row for row in found if row] == list(mnist.PUBLISHED.values())
    (kmeans,) = (line for line in lines if "K-Means" in line)
    assert [float(number) for number in re.findall(r"0\.\d+", kmeans)] == list(mnist.PUBLISHED_KMEANS.values())


def test_the_table_of_cifar10(paper: str) -> None:
    lines = paper_table(paper, "tab:simclr_kernel")
    for model, title in (("lenet5", "LeNet-5"), ("resnet18", "Resnet-18")):
        (line,) = (line for line in lines if line.strip().startswith(title))
        assert tuple(float(number) for number in re.findall(r"0\.\d+", line)) == cifar10.PUBLISHED[model]
    (kmeans,) = (line for line in lines if "KMeans" in line)
    # The last one is that of another work.
    assert [float(number) for number in re.findall(r"0\.\d+", kmeans)][:2] == list(cifar10.PUBLISHED_KMEANS.values())


CLUSTERS = 7777


def fake(run: Run, value: float) -> Record:
    """A record of all that tables may ask for."""
    curves = ("mean", "deviation", "closed_form", "limit")
    metrics: dict[str, Any] = {"adjusted_rand_index": value, "clusters": CLUSTERS, "median_seconds": value}
    metrics |= {"distances": list(mi_boundaries.DISTANCES)}
    metrics |= {curve: [value] * len(mi_boundaries.DISTANCES) for curve in curves}
    return Record(run, metrics, 1.0)


def cells(tables: Sequence[ComparisonTable]) -> list[Comparison]:
    for table in tables:
        assert all(len(row.cells) == len(table.columns) for row in table.rows)
    return [cell for table in tables for row in table.rows for cell in row.cells]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tables_of_nothing_of_some_and_of_all_runs(name: str) -> None:
    experiment = EXPERIMENTS[name]
    conclude = experiment.conclusion
    assert all(cell.measured is None for cell in cells(experiment.tables([])))
    assert list(conclude([])) == []
    runs = experiment.protocols["paper"].all_runs(name)
    # A value of its own for each setting: a cell that showed another's would be noticed.
    values = {json.dumps(dict(run.settings), sort_keys=True): 0.0 for run in runs}
    values |= {key: (index + 1) / 1000 for index, key in enumerate(values)}
    full = [fake(run, values[json.dumps(dict(run.settings), sort_keys=True)]) for run in runs]
    for part in (full[:1], full[::2], full[1::3], full):
        found = cells(experiment.tables(part))
        assert all(isinstance(line, str) for line in conclude(part))
        assert any(cell.measured for cell in found)
    assert all(cell.measured is not None for cell in found if cell.published)
    shown = [cell.measured.mean for cell in found if cell.measured and cell.measured.mean != CLUSTERS]
    if name != "mi-boundaries":
        assert len(set(shown)) == len(shown) == len(values)


# What runs do: the real ones, small.


def good_score(metrics: Mapping[str, Any]) -> bool:
    names = {"adjusted_rand_index", "normalised_mutual_information", "hungarian_accuracy", "purity", "clusters"}
    return names <= set(metrics) and metrics["clusters"] >= 1 and -1 <= metrics["adjusted_rand_index"] <= 1


@pytest.mark.parametrize("name", ["categorical", "moons", "ova-vs-ovo"])
def test_small_experiments_run_and_keep_the_models_of_figures(name: str, tmp_path: Path) -> None:
    _, protocol = choose([name], "paper", [], ["epochs=2"], 2)[0]
    assert {settings["epochs"] for settings in protocol.grid} == {2}
    for run in protocol.all_runs(name):
        record = perform_run(run, tmp_path)
        assert record.run == run
        assert good_score(record.metrics)
        assert record.metrics["epochs"] == 2
        assert math.isfinite(record.metrics["objective"])
        assert record.seconds > 0
        assert set(record.versions) == {"python", *grid.PACKAGES}
        assert model_path(tmp_path, run).exists() == EXPERIMENTS[name].saves_model(run) == (run.seed == 0)
    assert load(model_path(tmp_path, protocol.all_runs(name)[0])).n_iter_ == 2


def test_the_same_seed_gives_the_same_and_another_something_else(tmp_path: Path) -> None:
    one, again, other = (
        perform_run(Run("ova-vs-ovo", {"objective": "mmd_ovo", "epochs": 3}, seed), tmp_path / str(number))
        for number, seed in enumerate((1, 1, 2))
    )
    assert one.metrics == again.metrics
    assert one.metrics["objective"] != other.metrics["objective"]


def test_runs_of_other_settings_have_other_seeds_which_records_name(tmp_path: Path) -> None:
    runs = [run for name in EXPERIMENTS for run in EXPERIMENTS[name].protocols["quick"].all_runs(name)]
    assert len({run.random_state for run in runs}) == len(runs)
    assert all(0 <= run.random_state < 2**31 for run in runs)
    run = Run("ova-vs-ovo", {"objective": "mmd_ovo", "epochs": 1}, 1)
    record = perform_run(run, tmp_path)
    assert record.run == run
    assert record.metrics["random_state"] == run.random_state
    assert run.random_state == Run("ova-vs-ovo", {"epochs": 1, "objective": "mmd_ovo"}, 1).random_state


def test_outliers_run_with_baselines(tmp_path: Path) -> None:
    common = {"degrees_of_freedom": 1, "clusters": 4}
    for objective, clip in (("mmd_ova", 0.0), ("kl_ovo", AUTHORS_CLIP)):
        run = Run("outliers", {"objective": objective, **common, "clip": clip, "epochs": 1}, 0)
        metrics = perform_run(run, tmp_path).metrics
        assert good_score(metrics)
        assert math.isfinite(metrics["objective"])
    scores = {}
    for baseline in (*outliers.BASELINES, "oracle"):
        settings = {"baseline": baseline, **({"degrees_of_freedom": 1} if baseline == "oracle" else common)}
        assert settings in [{k: v for k, v in s.items() if k != "deterministic"} for s in outliers.grid(1)]
        metrics = perform_run(Run("outliers", settings, 0), tmp_path).metrics
        assert good_score(metrics)
        scores[baseline] = metrics["adjusted_rand_index"]
    assert scores["oracle"] == pytest.approx(outliers.PUBLISHED_ORACLE[1], abs=0.003)
    assert scores["kmeans"] == pytest.approx(0, abs=0.01)


def definition(inside: Callable[[float], Any], distance: float, epsilon: float) -> float:
    """The MI as it is defined: the mean over x of KL(p(y|x) ‖ p(y)), by integration."""

    def mean(function: Callable[[float], float]) -> float:
        def integrand(x: float) -> float:
            return function(x) * (norm.pdf(x) + norm.pdf(x - distance)) / 2

        edges = [-9.0, 0.0, distance / 2, distance, distance + 9]
        return math.fsum(quad(integrand, *edge, epsabs=1e-12)[0] for edge in itertools.pairwise(edges))

    def first(x: float) -> float:
        return 1 - epsilon if inside(x) else epsilon

    share = mean(first)

    def divergence(x: float) -> float:
        return sum(p * math.log(p / q) for p, q in ((first(x), share), (1 - first(x), 1 - share)))

    return mean(divergence)


@pytest.mark.parametrize("distance", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("epsilon", [0.1, 0.001])
def test_the_closed_form_is_the_definition(distance: float, epsilon: float) -> None:
    a = definition(lambda x: mi_boundaries.in_model_a(x, distance), distance, epsilon)
    b = definition(lambda x: mi_boundaries.in_model_b(x, distance), distance, epsilon)
    assert mi_boundaries.difference(distance, epsilon) == pytest.approx(a - b, abs=1e-7)


def test_boundaries_are_measured_to_the_closed_form(tmp_path: Path) -> None:
    for settings in EXPERIMENTS["mi-boundaries"].protocols["paper"].grid[::2]:
        metrics = perform_run(Run("mi-boundaries", settings, 0), tmp_path).metrics
        error = np.array(metrics["deviation"]) / math.sqrt(settings["draws"])
        off = np.abs(np.array(metrics["mean"]) - metrics["closed_form"])
        assert np.all(off < 4.5 * error + 1e-3)
        assert metrics["closed_form"][-1] == pytest.approx(0, abs=1e-6)
        assert metrics["limit"] == [mi_boundaries.limit(distance) for distance in mi_boundaries.DISTANCES]


def test_times_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complexity, "_LEAST_SECONDS", 0.0)
    for objective in OBJECTIVES:
        settings = {"objective": objective, "batch": 10, "clusters": 5, "repeats": 3}
        metrics = perform_run(Run("complexity", settings, 0), tmp_path).metrics
        assert metrics["repeats"] == 3
        assert 0 < metrics["median_seconds"] < 5


@pytest.mark.usefixtures("few_images")
def test_mnist_runs(tmp_path: Path) -> None:
    common = {"objective": "mmd_ova", "clusters": 10, "vat": 0.0, "epochs": 1}
    wasserstein = {"objective": "wasserstein_ova", "distance": "sqeuclidean"}
    for changed in (
        {"model": "mlp"},
        {"model": "lenet5"},
        {"model": "lenet5", "network": "paper"},
        {"model": "mlp", "vat": 0.5},
        {"model": "mlp"} | wasserstein,
    ):
        metrics = perform_run(Run("mnist", {**common, **changed}, 0), tmp_path).metrics
        assert good_score(metrics)
        assert math.isfinite(metrics["objective"])
        assert metrics["epochs"] == 1
    metrics = perform_run(Run("mnist", {"baseline": "kmeans", "clusters": 10}, 0), tmp_path).metrics
    assert good_score(metrics)
    assert metrics["objective"] < 0


@pytest.mark.usefixtures("few_images")
def test_a_run_is_scored_on_its_way(tmp_path: Path) -> None:
    settings = {"model": "lenet5", "objective": "mmd_ova", "clusters": 10, "vat": 0.0, "epochs": 3}
    whole = mnist.measure(settings, 7, RunContext(tmp_path))
    run = UnfinishedRun(tmp_path / "run")
    with run.open():
        context = RunContext(tmp_path, unfinished=run)
        first = mnist.measure({**settings, "epochs": 2}, 7, context)
        # As if it had been killed while it was scored.
        run.note(curve=first["curve"][:1])
        scored = mnist.measure(settings, 7, context)
    assert [epochs for epochs, _, _ in scored["curve"]] == [1, 2, 3]
    assert scored["curve"][:2] == first["curve"]
    assert {**scored, "curve": None} == {**whole, "curve": None}
    again = UnfinishedRun(tmp_path / "run")
    with again.open():
        assert again.scores["curve"] == scored["curve"][:2]


def test_images_are_scaled_and_padded(few_images: None) -> None:
    rows, squares = mnist.pictures("mlp"), mnist.pictures("lenet5")
    assert rows.train.shape == (60, 784)
    assert squares.test.shape == (30, 1, 32, 32)
    assert (squares.test.min(), squares.test.max()) == (-1, 1)
    assert np.array_equal(squares.train[:, 0, 2:-2, 2:-2].reshape(60, -1), rows.train)
    assert np.all(squares.train[:, :, :2] == -1)
    resized = mnist.pictures("lenet5", "paper").test
    assert resized.shape == (30, 1, 32, 32)
    # Between the pixels, no margin.
    assert resized.min() >= -1
    assert not np.all(resized[:, :, :2] == -1)
    standard = cifar10.pictures()[0]
    assert standard.shape == (60, 3, 32, 32)
    np.testing.assert_allclose(standard.mean((0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(standard.std((0, 2, 3)), 1, atol=1e-4)


@pytest.mark.usefixtures("few_images")
def test_model_selection_asks_for_fifty_clusters(tmp_path: Path) -> None:
    run = Run("model-selection", {"model": "mlp", "objective": "mmd_ova", "epochs": 1}, 0)
    metrics = perform_run(run, tmp_path).metrics
    assert good_score(metrics)
    assert mnist.ASKED == 50
    assert metrics["clusters_in_training"] <= 50


@pytest.mark.usefixtures("few_images")
def test_cifar10_runs_with_pixels_and_features(tmp_path: Path) -> None:
    path = write_encoder(tmp_path)
    found = {}
    for objective, geometry in (
        *(("kl_ova", "none"), ("mmd_ova", "pixels"), ("mmd_ova", "simclr")),
        *(("wasserstein_ova", "pixels"), ("wasserstein_ova", "simclr")),
    ):
        run = Run("cifar10", {"model": "lenet5", "objective": objective, "geometry": geometry, "epochs": 1}, 0)
        metrics = perform_run(run, tmp_path).metrics
        assert good_score(metrics)
        assert ("encoder" in metrics) == (geometry == "simclr")
        found[objective, geometry] = metrics["objective"]
    # The geometry is another one indeed.
    assert len({round(value, 9) for value in found.values()}) == len(found)
    for geometry in ("pixels", "simclr"):
        assert good_score(
            perform_run(Run("cifar10", {"baseline": "kmeans", "geometry": geometry}, 0), tmp_path).metrics
        )
    for model in cifar10.MODEL_NAMES if IS_FULL else ["lenet5"]:
        settings = {"model": model, "objective": "kl_ova", "geometry": "none", "network": "paper", "epochs": 1}
        assert good_score(perform_run(Run("cifar10", settings, 0), tmp_path).metrics)
    # The features of an image are those of the encoder, of the same image.
    train, _ = cifar10.features(path)
    network = cifar10.load_encoder(path)
    torch.testing.assert_close(train[7:9], network(torch.from_numpy(cifar10.pixels()[0][7:9])))
