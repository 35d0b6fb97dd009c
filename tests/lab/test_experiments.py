"""The paper's experiments: their grids and numbers, records that outlive any end, runs in parallel, and requests."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from data_files import pollux, tree
from pollux import load
from pollux.app import cli
from pollux.clustering import CollapseWarning
from pollux.errors import InputError
from pollux.io.locks import BusyError
from pollux.lab import reproduce_command
from pollux.lab.datasets import ImageSet
from pollux.lab.experiments import (
    EXPERIMENTS,
    cifar10,
    complexity,
    display,
    measuring,
    mi_boundaries,
    mnist,
    model_selection,
    outliers,
    records,
    reproducing,
    running,
)
from pollux.lab.experiments.choosing import choose
from pollux.lab.experiments.experiment import Experiment, Protocol, Record, Run, RunContext, Settings, model_path
from pollux.lab.experiments.running import Failure, News, attempt, execute, perform, recorded, to_do
from pollux.lab.experiments.tables import Cell, Table
from pollux.lab.pretraining import Encoder, save_encoder
from pollux.lab.unfinished import UnfinishedRun, unfinished_path
from pollux.training import Checkpoints, Epoch

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
    assert set(EXPERIMENTS[name].protocols) == {"quick", "paper"}
    differs = list(quick.grid) != list(paper.grid) or quick.runs != paper.runs
    assert bool(quick.remark) == differs
    assert paper.remark == ""


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


def cells(tables: Sequence[Table]) -> list[Cell]:
    for table in tables:
        assert all(len(row.cells) == len(table.columns) for row in table.rows)
    return [cell for table in tables for row in table.rows for cell in row.cells]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tables_of_nothing_of_some_and_of_all_runs(name: str) -> None:
    experiment = EXPERIMENTS[name]
    conclude = experiment.conclusion or (lambda records: [])
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


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext(tmp_path, tmp_path / "models" / "model.safetensors")


def good_score(metrics: Mapping[str, Any]) -> bool:
    names = {"adjusted_rand_index", "normalised_mutual_information", "hungarian_accuracy", "purity", "clusters"}
    return names <= set(metrics) and metrics["clusters"] >= 1 and -1 <= metrics["adjusted_rand_index"] <= 1


@pytest.mark.parametrize("name", ["categorical", "moons", "ova-vs-ovo"])
def test_small_experiments_run_and_keep_the_models_of_figures(name: str, tmp_path: Path) -> None:
    _, protocol = choose([name], "paper", [], ["epochs=2"], 2)[0]
    assert {settings["epochs"] for settings in protocol.grid} == {2}
    for run in protocol.all_runs(name):
        record = perform(name, run, tmp_path)
        assert record.run == run
        assert good_score(record.metrics)
        assert record.metrics["epochs"] == 2
        assert math.isfinite(record.metrics["objective"])
        assert record.seconds > 0
        assert set(record.versions) == {"python", *running.PACKAGES}
        assert model_path(tmp_path, run).exists() == EXPERIMENTS[name].keeps_model(run) == (run.seed == 0)
    assert load(model_path(tmp_path, protocol.all_runs(name)[0])).n_iter_ == 2


def test_the_same_seed_gives_the_same_and_another_something_else(tmp_path: Path) -> None:
    one, again, other = (
        perform("ova-vs-ovo", Run("ova-vs-ovo", {"objective": "mmd_ovo", "epochs": 3}, seed), tmp_path / str(number))
        for number, seed in enumerate((1, 1, 2))
    )
    assert one.metrics == again.metrics
    assert one.metrics["objective"] != other.metrics["objective"]


def test_outliers_run_with_baselines(tmp_path: Path) -> None:
    common = {"degrees_of_freedom": 1, "clusters": 4}
    for objective, clip in (("mmd_ova", 0.0), ("kl_ovo", outliers.AUTHORS_CLIP)):
        run = Run("outliers", {"objective": objective, **common, "clip": clip, "epochs": 1}, 0)
        metrics = perform("outliers", run, tmp_path).metrics
        assert good_score(metrics)
        assert math.isfinite(metrics["objective"])
    scores = {}
    for baseline in (*outliers.BASELINES, "oracle"):
        settings = {"baseline": baseline, **({"degrees_of_freedom": 1} if baseline == "oracle" else common)}
        assert settings in [{k: v for k, v in s.items() if k != "deterministic"} for s in outliers.grid(1)]
        metrics = perform("outliers", Run("outliers", settings, 0), tmp_path).metrics
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
        metrics = perform("mi-boundaries", Run("mi-boundaries", settings, 0), tmp_path).metrics
        error = np.array(metrics["deviation"]) / math.sqrt(settings["draws"])
        off = np.abs(np.array(metrics["mean"]) - metrics["closed_form"])
        assert np.all(off < 4.5 * error + 1e-3)
        assert metrics["closed_form"][-1] == pytest.approx(0, abs=1e-6)
        assert metrics["limit"] == [mi_boundaries.limit(distance) for distance in mi_boundaries.DISTANCES]


def test_times_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complexity, "_LEAST_SECONDS", 0.0)
    for objective in measuring.OBJECTIVES:
        settings = {"objective": objective, "batch": 10, "clusters": 5, "repeats": 3}
        metrics = perform("complexity", Run("complexity", settings, 0), tmp_path).metrics
        assert metrics["repeats"] == 3
        assert 0 < metrics["median_seconds"] < 5


def images(name: str) -> ImageSet:
    """A few images of noise, which are of the right shapes."""
    shape = {"mnist": (28, 28), "cifar10": (32, 32, 3)}[name]
    random = np.random.default_rng(0)
    parts = [random.integers(0, 256, (n, *shape), dtype=np.uint8) for n in (60, 30)]
    classes = [np.arange(n) % 10 for n in (60, 30)]
    return ImageSet(name, parts[0], classes[0], parts[1], classes[1], tuple("0123456789"))


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    cached = (mnist.pictures, cifar10.pixels, cifar10.pictures, cifar10.features)
    for module in (mnist, cifar10, reproducing):
        monkeypatch.setattr(module, "load_images", images)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


@pytest.mark.usefixtures("few_images")
def test_mnist_runs(tmp_path: Path) -> None:
    common = {"objective": "mmd_ova", "clusters": 10, "vat": 0.0, "epochs": 1}
    wasserstein = {"objective": "wasserstein_ova", "distance": "sqeuclidean"}
    for changed in (
        {"model": "mlp"},
        {"model": "lenet5"},
        {"model": "mlp", "vat": 0.5},
        {"model": "mlp"} | wasserstein,
    ):
        metrics = perform("mnist", Run("mnist", {**common, **changed}, 0), tmp_path).metrics
        assert good_score(metrics)
        assert math.isfinite(metrics["objective"])
        assert metrics["epochs"] == 1
    metrics = perform("mnist", Run("mnist", {"baseline": "kmeans", "clusters": 10}, 0), tmp_path).metrics
    assert good_score(metrics)
    assert metrics["objective"] < 0


def test_images_are_scaled_and_padded(few_images: None) -> None:
    rows, squares = mnist.pictures("mlp"), mnist.pictures("lenet5")
    assert rows.train.shape == (60, 784)
    assert squares.test.shape == (30, 1, 32, 32)
    assert (squares.test.min(), squares.test.max()) == (-1, 1)
    assert np.array_equal(squares.train[:, 0, 2:-2, 2:-2].reshape(60, -1), rows.train)
    assert np.all(squares.train[:, :, :2] == -1)
    standard = cifar10.pictures().train
    assert standard.shape == (60, 3, 32, 32)
    np.testing.assert_allclose(standard.mean((0, 2, 3)), 0, atol=1e-4)
    np.testing.assert_allclose(standard.std((0, 2, 3)), 1, atol=1e-4)


@pytest.mark.usefixtures("few_images")
def test_model_selection_asks_for_fifty_clusters(tmp_path: Path) -> None:
    run = Run("model-selection", {"model": "mlp", "objective": "mmd_ova", "epochs": 1}, 0)
    metrics = perform("model-selection", run, tmp_path).metrics
    assert good_score(metrics)
    assert model_selection.ASKED == 50
    assert metrics["clusters_in_training"] <= 50


def write_encoder(folder: Path, channels: int = 3) -> Path:
    torch.manual_seed(0)
    save_encoder(folder / cifar10.ENCODER, Encoder(channels, widths=(4, 6), blocks=(1, 1)))
    return folder / cifar10.ENCODER


@pytest.mark.usefixtures("few_images")
def test_cifar10_runs_with_pixels_and_features(tmp_path: Path) -> None:
    path = write_encoder(tmp_path)
    found = {}
    for objective, geometry in (
        *(("kl_ova", "none"), ("mmd_ova", "pixels"), ("mmd_ova", "simclr")),
        *(("wasserstein_ova", "pixels"), ("wasserstein_ova", "simclr")),
    ):
        run = Run("cifar10", {"model": "lenet5", "objective": objective, "geometry": geometry, "epochs": 1}, 0)
        metrics = perform("cifar10", run, tmp_path).metrics
        assert good_score(metrics)
        assert ("encoder" in metrics) == (geometry == "simclr")
        found[objective, geometry] = metrics["objective"]
    # The geometry is another one indeed.
    assert len({round(value, 9) for value in found.values()}) == len(found)
    for geometry in ("pixels", "simclr"):
        assert good_score(
            perform("cifar10", Run("cifar10", {"baseline": "kmeans", "geometry": geometry}, 0), tmp_path).metrics
        )
    # The features of an image are those of the encoder, of the same image.
    train, _ = cifar10.features(path)
    network = cifar10.load_encoder(path)
    torch.testing.assert_close(train[7:9], network(torch.from_numpy(cifar10.pixels()[0][7:9])))


# Records.


def record(seed: int = 0, **changed: Any) -> Record:
    fields: dict[str, Any] = {"metrics": {"adjusted_rand_index": 0.5, "clusters": 3}, "seconds": 1.5}
    fields |= {"versions": {"python": "3"}, "warnings": ["CollapseWarning: ℓ2 “fewer”"], "finished": "2026"}
    run = Run("toy", {"objective": "kl_ova", "ε": 1e-06, "on": True, "epochs": 5}, seed)
    return Record(run, **(fields | changed))


def test_records_come_back(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    assert records.read(path) == {}
    written = [record(seed) for seed in range(3)]
    for one in written:
        records.append(path, one)
    assert list(records.read(path).values()) == written
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [0, 1, 2]
    assert "ℓ2" in lines[0]
    names = ["experiment", "settings", "seed", "metrics", "seconds", "versions", "warnings", "finished"]
    assert list(json.loads(lines[0])) == names


def test_of_a_run_done_twice_the_later_record_counts(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    for seconds in (1.0, 2.0):
        records.append(path, record(seconds=seconds))
    assert [one.seconds for one in records.read(path).values()] == [2.0]


def test_what_is_not_finite_is_null_and_read_as_nan(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    metrics = {"objective": math.nan, "curve": [1.0, math.inf, -math.inf], "clusters": np.int64(3)}
    metrics |= {"ratio": np.float32(0.5), "part": np.arange(2), "tensor": torch.tensor(2.0)}
    records.append(path, record(metrics=metrics))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = json.loads(path.read_text(), parse_constant=refuse)
    assert line["metrics"]["curve"] == [1.0, None, None]
    (found,) = (one.metrics for one in records.read(path).values())
    assert math.isnan(found["objective"])
    assert [math.isnan(value) for value in found["curve"]] == [False, True, True]
    assert (found["clusters"], found["ratio"], found["part"], found["tensor"]) == (3, 0.5, [0, 1], 2.0)


def test_a_line_torn_anywhere_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    path = tmp_path / "toy.jsonl"
    for seed in range(2):
        records.append(path, record(seed))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole) + 1):
        # A record that only lacks the end of its line, as after an editor, is a record.
        complete = end >= len(whole) - 1
        path.write_bytes(whole[:end])
        assert [one.run.seed for one in records.read(path).values()] == ([0, 1] if complete else [0])
        records.append(path, record(2))
        assert [one.run.seed for one in records.read(path).values()] == ([0, 1, 2] if complete else [0, 2])
        assert path.read_bytes().startswith(whole if complete else whole[:first])
    path.write_bytes(whole[:-9] + b"\0" * 50)
    assert len(records.read(path)) == 1


NO_RECORDS = {
    "words": b"hello\n",
    "words without an end": b"my notes",
    "a list": b"[1]\n",
    "a number": b"7",
    "another object": b'{"experiment": "toy", "a": 1}\n',
    "a field too many": None,
    "fields of other kinds": None,
    "no text": b"\xff\xfe\n",
}


@pytest.mark.parametrize("kind", NO_RECORDS)
def test_a_foreign_line_is_named_and_kept(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    records.append(path, record())
    good = json.loads(path.read_text())
    made = {"a field too many": {**good, "more": 1}, "fields of other kinds": {**good, "metrics": [], "seconds": "x"}}
    foreign = NO_RECORDS[kind] or json.dumps(made[kind]).encode() + b"\n"
    with path.open("ab") as file:
        file.write(foreign)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"Line 2 of .*toy\.jsonl"):
        records.read(path)
    assert path.read_bytes() == before


def test_several_programs_may_append_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    long = {"note": "ε" * 20_000}

    def write(number: int) -> None:
        for seed in range(number, number + 10):
            records.append(path, record(seed, metrics=long))

    threads = [threading.Thread(target=write, args=(number,)) for number in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.run.seed for one in records.read(path).values()) == [
        *range(10),
        *range(100, 110),
        *range(200, 210),
    ]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "toy.jsonl"
    records.append(path, record())
    before = path.read_bytes()

    def full(file: Any, line: bytes) -> None:
        file.write(line[:20])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(records, "_write", full)
        with pytest.raises(OSError, match="No space"):
            records.append(path, record(1))
    assert path.read_bytes() == before


# Running: a toy in this process.


def toy_measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    if settings["kind"] == "bad":
        raise ValueError("out of [/range] ε")
    if settings["kind"] == "odd":
        return {"objective": object()}
    if settings["kind"] == "warns":
        warnings.warn("2 clusters of 3", CollapseWarning, stacklevel=1)
    if context.model_path is not None:
        context.model_path.parent.mkdir(exist_ok=True)
        context.model_path.write_text("a model")
    for callback in context.callbacks:
        callback(Epoch(1, 1, {"objective": 0.5, "clusters": 3, "entropy": 0.1}))
    return {"adjusted_rand_index": 0.5, "clusters": 3, "objective": 1.0}


def toy(**changed: Any) -> Experiment:
    grid = [{"kind": kind, "epochs": 5, "weight": 0.0} for kind in ("good", "other")] + [{"kind": "fixed", "on": True}]
    protocols = {"quick": Protocol(grid, 2, "2 runs"), "paper": Protocol([*grid, {"kind": "long", "epochs": 9}], 4)}
    defaults: dict[str, Any] = {"name": "toy", "title": "A toy", "place": "nowhere", "protocols": protocols}
    defaults |= {"measure": toy_measure, "tables": lambda records: []}
    return Experiment(**(defaults | changed))


class Spy:
    """A display that remembers."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.failures: list[Failure] = []
        self.told: list[News] = []

    def news(self, news: News) -> None:
        self.told.append(news)

    def done(self, record: Record) -> None:
        self.records.append(record)

    def failed(self, failure: Failure) -> None:
        self.failures.append(failure)


def now(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """What a pool does, at once and here."""
    future: Future[Any] = Future()
    try:
        future.set_result(function(*arguments))
    except BaseException as error:
        future.set_exception(error)
    return future


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs are done in this process; the numbers of workers that were asked for."""
    asked: list[int] = []

    @contextlib.contextmanager
    def workers(number: int, threads: int, display: Any) -> Iterator[Any]:
        asked.append(number)
        yield now

    monkeypatch.setattr(running, "_workers", workers)
    return asked


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch, jobs: list[int]) -> Callable[..., Experiment]:
    def put(**changed: Any) -> Experiment:
        monkeypatch.setitem(EXPERIMENTS, "toy", toy(**changed))
        return EXPERIMENTS["toy"]

    return put


def grid_of(*kinds: str, seeds: int = 1) -> list[Run]:
    return Protocol([{"kind": kind} for kind in kinds], seeds).all_runs("toy")


def test_what_is_recorded_is_not_run_again(toys: Callable[..., Experiment], tmp_path: Path) -> None:
    experiment, runs = toys(), grid_of("good", "other", seeds=2)
    spy = Spy()
    first = execute(experiment, runs[:2], tmp_path / "new", jobs=3, display=spy)
    assert [one.run for one in first.records] == runs[:2]
    outcome = execute(experiment, runs, tmp_path / "new", jobs=3, display=spy)
    assert [one.run for one in outcome.records] == runs
    assert len(spy.records) == 4
    assert execute(experiment, runs, tmp_path / "new", jobs=3, display=spy) == outcome
    assert len((tmp_path / "new" / "toy.jsonl").read_text().splitlines()) == len(spy.records) == 4


def test_a_run_whose_model_is_gone_is_done_again(toys: Callable[..., Experiment], tmp_path: Path) -> None:
    experiment = toys(keeps_model=lambda run: run.settings["kind"] == "good")
    runs = grid_of("good", "other")
    execute(experiment, runs, tmp_path, jobs=1, display=Spy())
    assert to_do(experiment, runs, tmp_path) == []
    assert [model_path(tmp_path, run).exists() for run in runs] == [True, False]
    model_path(tmp_path, runs[0]).unlink()
    assert to_do(experiment, runs, tmp_path) == runs[:1]
    outcome = execute(experiment, runs, tmp_path, jobs=1, display=Spy())
    assert [one.run for one in outcome.records] == runs
    assert model_path(tmp_path, runs[0]).exists()


def test_runs_that_fail_stop_no_others_and_are_not_recorded(toys: Callable[..., Experiment], tmp_path: Path) -> None:
    experiment, runs, spy = toys(), grid_of("bad", "good", "odd", "other"), Spy()
    outcome = execute(experiment, runs, tmp_path, jobs=2, display=spy)
    assert [one.run.settings["kind"] for one in outcome.records] == ["good", "other"]
    assert outcome.failures == spy.failures
    assert [failure.run for failure in outcome.failures] == [runs[0], runs[2]]
    assert outcome.failures[0].reason == "ValueError: out of [/range] ε"
    assert "in toy_measure" in outcome.failures[0].trace
    assert "TypeError" in outcome.failures[1].reason
    assert to_do(experiment, runs, tmp_path) == [runs[0], runs[2]]


def test_warnings_of_a_run_are_recorded(toys: Callable[..., Experiment], tmp_path: Path) -> None:
    toys()
    found = perform("toy", grid_of("warns")[0], tmp_path)
    assert found.warnings == ["CollapseWarning: 2 clusters of 3"]
    assert "2 clusters of 3" in display.told(found)


def test_no_more_runs_are_handed_out_than_there_are_workers(tmp_path: Path) -> None:
    futures: list[Future[Any]] = []

    def submit(*arguments: Any) -> Future[Any]:
        assert arguments[0] is attempt
        futures.append(Future())
        return futures[-1]

    runs = grid_of("good", seeds=5)
    answers = running._as_they_end(submit, toy(), runs, tmp_path, 2)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.extend(answers))
    thread.start()
    for number in range(5):
        deadline = time.monotonic() + 60
        while len(futures) < min(number + 2, 5) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert len(futures) == min(number + 2, 5)
        futures[number].set_result(Record(runs[number], {}, 0.0))
    thread.join(60)
    assert sorted(one.run.seed for one in ended) == list(range(5))


def test_a_worker_that_dies_costs_its_own_run(tmp_path: Path) -> None:
    def submit(function: Any, name: str, run: Run, *_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if run.seed == 1:
            future.set_exception(BrokenProcessPool("terminated abruptly"))
        elif run.seed == 2:
            future.set_exception(SystemExit(3))
        else:
            future.set_result(Record(run, {}, 0.0))
        return future

    answers = list(running._as_they_end(submit, toy(), grid_of("good", seeds=4), tmp_path, 1))
    assert [type(answer) for answer in answers] == [Record, Failure, Failure, Record]
    assert "killed" in answers[1].reason
    assert "SystemExit: 3" in answers[2].reason


def test_what_was_made_with_something_that_is_gone_is_done_again(
    toys: Callable[..., Experiment], tmp_path: Path
) -> None:
    runs = grid_of("good", "other")
    execute(toys(), runs, tmp_path, jobs=1, display=Spy())
    experiment = toys(outdated=lambda record, folder: record.run.settings["kind"] == "other")
    assert to_do(experiment, runs, tmp_path) == runs[1:]
    assert [one.run for one in running.recorded(experiment, runs, tmp_path)] == runs[:1]


def test_features_of_another_encoder_are_outdated(tmp_path: Path) -> None:
    path = write_encoder(tmp_path)
    run = Run("cifar10", {"baseline": "kmeans", "geometry": "simclr"}, 0)
    now_there = Record(run, {"encoder": cifar10._digest(path)}, 1.0)
    other = Record(run, {"encoder": "another"}, 1.0)
    assert not cifar10.outdated(now_there, tmp_path)
    assert cifar10.outdated(other, tmp_path)
    assert not cifar10.outdated(Record(run, {}, 1.0), tmp_path)
    # Where there is no encoder, what was measured with one stays.
    path.unlink()
    assert not cifar10.outdated(other, tmp_path)


def test_timed_experiments_run_one_at_a_time(toys: Callable[..., Experiment], jobs: list[int], tmp_path: Path) -> None:
    runs = grid_of("good", seeds=4)
    execute(toys(timed=True), runs, tmp_path / "a", jobs=3, display=Spy())
    execute(toys(), runs, tmp_path / "b", jobs=3, display=Spy())
    execute(toys(), runs[:2], tmp_path / "c", jobs=3, display=Spy())
    assert jobs == [1, 3, 2]
    assert EXPERIMENTS["complexity"].timed


def test_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [running.threads_each(jobs) for jobs in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert [running.threads_each(jobs) for jobs in (1, 2, 8)] == [2, 2, 1]
    with running._workers(4, 3, Spy()):
        assert os.environ["OMP_NUM_THREADS"] == "3"
    assert os.environ["OMP_NUM_THREADS"] == "2"


# The display.


class Terminal:
    """Standard error as it is on a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def watch(watcher: display.Bars | display.Lines) -> None:
    """A run that ends well, and one that does not."""
    one = record(metrics={"adjusted_rand_index": math.nan, "clusters": 1})
    with watcher:
        watcher.news(News(0, str(one.run), Epoch(1, 5, {"objective": 0.5, "clusters": 3})))
        for epoch in (None, Epoch(5, 5, {"objective": math.nan, "clusters": 3})):
            watcher.news(News(0, str(one.run), epoch))
            watcher.news(News(1, "[/odd] [name]", epoch))
        watcher.news(News(0, str(one.run), None))
        watcher.done(one)
        watcher.failed(Failure(one.run, "ValueError: [/range]\n  [Errno 2] [red]"))


def test_on_a_terminal_there_are_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    bars = display.display("toy", 2)
    assert isinstance(bars, display.Bars)
    watch(bars)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.text)
    assert "FAILED, ValueError: [/range] [Errno 2] [red]" in plain
    assert "ARI nan, 1 cluster, 1.5 s, CollapseWarning" in plain
    assert "toy, all runs" in plain
    assert "2/2" in plain


def test_elsewhere_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    watch(display.display("toy", 2))
    first, done, failed = capsys.readouterr().err.splitlines()
    assert first == "toy: 2 runs to do"
    assert re.match(r"\[1/2, \d+ s\] toy objective=kl_ova ε=1e-06 on=True epochs=5 seed=0: ARI nan, 1 cluster", done)
    assert re.match(r"\[2/2, \d+ s\] toy .* FAILED, ValueError: \[/range\] \[Errno 2\] \[red\]$", failed)


# Requests.


def chosen(*names: str, profile: str = "quick", only: Sequence[str] = (), other: Sequence[str] = ()) -> Any:
    return {experiment.name: protocol for experiment, protocol in choose(names, profile, only, other, None)}


WITH_WASSERSTEIN = ["outliers", "moons", "mnist", "cifar10", "complexity"]


def test_only_some_settings() -> None:
    def objectives(*only: str, name: str = "outliers") -> list[Any]:
        return [settings.get("objective") for settings in chosen(name, only=only)[name].grid]

    assert objectives("objective=kl_ova", "clusters=4", "degrees_of_freedom=1") == ["kl_ova"]
    # The same name again: or.
    assert set(objectives("objective=kl_ova", "objective=mmd_ovo")) == {"kl_ova", "mmd_ovo"}
    # Numbers, however they are written.
    assert len(objectives("clip=0")) == len(objectives("clip=0.0")) == 40
    assert len(objectives("clip=1e-12")) == sum(map(len, outliers.CLIPPED.values()))
    assert len(objectives("epsilon=1e-6", name="mi-boundaries")) == 1
    assert len(objectives("deterministic=true")) == len(objectives("deterministic=True")) == 2
    # Of several experiments, those that have such settings.
    assert list(chosen("all", only=["objective=wasserstein_ovo"])) == WITH_WASSERSTEIN


def test_other_values_of_settings() -> None:
    grid = chosen("mnist", other=["epochs=7", "vat=1"])["mnist"].grid
    assert {settings["epochs"] for settings in grid if "epochs" in settings} == {7}
    # What is no setting of k-means it does not get; 1 is the 1.0 of any other run.
    assert {"baseline": "kmeans", "clusters": 10} in grid
    weights = [settings["vat"] for settings in grid if "vat" in settings]
    assert set(weights) == {1.0}
    assert all(type(weight) is float for weight in weights)
    assert chosen("mnist", other=["epochs=7.0"])["mnist"].grid == chosen("mnist", other=["epochs=7"])["mnist"].grid
    # The values of the other profile are values too.
    assert {s.get("model") for s in chosen("mnist", other=["model=lenet5"])["mnist"].grid} == {"lenet5", None}
    # Settings that have become the same are run once.
    grid = chosen("categorical", other=["objective=kl_ova"])["categorical"].grid
    assert grid == [{"objective": "kl_ova", "epochs": 1000}]
    both = chosen("categorical", "complexity", other=["epochs=3"])
    assert {settings["epochs"] for settings in both["categorical"].grid} == {3}
    assert list(both["complexity"].grid) == list(EXPERIMENTS["complexity"].protocols["quick"].grid)


def refused(*arguments: object, says: str) -> str:
    """A complaint in one line, after which nothing has changed."""
    before = tree(Path())
    answer = pollux("reproduce", *arguments)
    assert answer.code == 2, answer
    assert says in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert tree(Path()) == before
    if not answer.err.startswith("usage"):
        assert answer.err.count("\n") == 1
    return answer.err


BAD = {
    "no names": ([], "Name what to reproduce: categorical"),
    "an unknown name": (["moon"], "Did you mean 'moons'?"),
    "one unknown name of two": (["moons", "cifar"], "There is no experiment 'cifar'"),
    "an unknown setting": (
        ["moons", "--only", "cluster=2"],
        "moons has no setting 'cluster'. Did you mean 'clusters'?",
    ),
    "an unknown setting of all": (["all", "--set", "epoch=2"], "Did you mean 'epochs'?"),
    "an unknown value": (["moons", "--only", "objective=kl_ov"], "Did you mean 'kl_ova'?"),
    "one unknown value of two": (["moons", "--only", "clusters=2", "--only", "clusters=3"], "clusters is: 2, 5."),
    "a value of the other profile": (["cifar10", "--only", "geometry=simclr"], "--profile paper has them."),
    "a value that lacks": (["moons", "--only", "distance=None"], "distance is: shortest_path, euclidean."),
    "values that do not meet": (["mnist", "--only", "baseline=kmeans", "--only", "model=mlp"], "No settings of mnist"),
    "no pair": (["moons", "--only", "clusters"], "--only takes NAME=VALUE"),
    "no pair to set": (["moons", "--set", "epochs:3"], "--set takes NAME=VALUE"),
    "no name": (["moons", "--set", "=3"], "no setting ''"),
    "no value": (["moons", "--set", "epochs="], "epochs is a whole number from 1"),
    "a word": (["moons", "--set", "epochs=many"], "epochs is a whole number from 1"),
    "no epochs": (["moons", "--set", "epochs=0"], "epochs is a whole number from 1"),
    "half an epoch": (["moons", "--set", "epochs=2.5"], "epochs is a whole number from 1"),
    "a truth value": (["moons", "--set", "epochs=true"], "epochs is a whole number from 1"),
    "no number": (["mnist", "--set", "vat=NaN"], "vat is a number from 0"),
    "a negative number": (["mnist", "--set", "vat=-1"], "vat is a number from 0"),
    "too large a number": (["mnist", "--set", "vat=1e999"], "vat is a number from 0"),
    "an unknown word": (["moons", "--set", "objective=mmd_ovx"], "objective is one of kl_ova, wasserstein_ovo;"),
    "a value without a place": (
        ["outliers", "--set", "clusters=5"],
        "clusters is one of 4, 8; other values have no place",
    ),
    "a clip without a place": (["outliers", "--set", "clip=1e-6"], "clip is one of 0.0, 1e-12"),
    "no probability": (["mi-boundaries", "--set", "epsilon=0"], "epsilon is a probability"),
    "two values": (["moons", "--set", "epochs=2", "--set", "epochs=3"], "more than one value"),
    "no runs": (["moons", "--runs", "0"], "--runs is a positive number, not 0"),
    "negative runs": (["moons", "--runs=-1"], "--runs is a positive number"),
    "no jobs": (["moons", "--jobs", "0"], "--jobs is a positive number, not 0"),
    "jobs in words": (["moons", "--jobs", "two"], "invalid int value"),
    "an unknown profile": (["moons", "--profile", "slow"], "invalid choice"),
    "an empty folder name": (["moons", "--out", ""], "--out names no folder"),
    "a file": (["moons", "--out", "file"], "file is no folder"),
    "below a file": (["moons", "--out", "file/results"], "file is a file"),
    "a folder of records": (["moons", "--out", "odd"], "Nothing can be recorded in"),
    "nothing to show": (["moons", "all", "--show"], "Nothing of this is recorded in results"),
    "foreign records": (["categorical", "moons", "--out", "foreign"], "Line 1 of foreign/moons.jsonl"),
}


def test_what_is_recorded_with_other_settings_is_told(toys: Callable[..., Experiment], jobs: list[int]) -> None:
    toys()
    assert pollux("reproduce", "toy", "--set", "epochs=7").code == 0
    says = "runs of toy are recorded in results, but with other settings"
    assert says in pollux("reproduce", "toy", "--only", "kind=good", "--show").err


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_refused_before_anything_is_written(case: str, jobs: list[int]) -> None:
    Path("file").write_text("mine")
    Path("odd", "moons.jsonl").mkdir(parents=True)
    Path("foreign").mkdir()
    Path("foreign", "moons.jsonl").write_text("my notes")
    arguments, says = BAD[case]
    refused(*arguments, says=says)
    assert jobs == []


def test_a_folder_that_may_not_be_written_is_refused(monkeypatch: pytest.MonkeyPatch, jobs: list[int]) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    refused("moons", "--out", "deep/results", says="Nothing can be written into")


@pytest.mark.parametrize("name", ["mnist", "cifar10", "model-selection"])
def test_data_that_are_not_here_are_asked_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[int]
) -> None:
    for variable in ("POLLUX_DATA", "HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    data = "cifar10" if name == "cifar10" else "mnist"
    refused("categorical", name, says=f"pollux datasets fetch {data}")
    assert jobs == []


@pytest.mark.usefixtures("few_images")
def test_an_encoder_that_is_not_here_is_asked_for(jobs: list[int], tmp_path: Path) -> None:
    refused("cifar10", "--profile", "paper", says="pollux pretrain simclr cifar10 --out results/cifar10-simclr")
    Path("results").mkdir()
    Path("results", cifar10.ENCODER).write_bytes(b"no encoder")
    refused("cifar10", "--profile", "paper", says="is not a whole encoder file")
    write_encoder(Path("results"), channels=1)
    refused("cifar10", "--profile", "paper", says="images of 1 channels")
    assert jobs == []
    runs = [Run("cifar10", settings, 0) for settings in EXPERIMENTS["cifar10"].protocols["quick"].grid]
    cifar10.check(runs, tmp_path / "elsewhere")
    write_encoder(Path("results"))
    cifar10.check(EXPERIMENTS["cifar10"].protocols["paper"].all_runs("cifar10"), Path("results"))


def test_a_grid_is_run_and_shown(toys: Callable[..., Experiment], jobs: list[int]) -> None:
    toys()
    answer = pollux("reproduce", "toy", "--jobs", "2", "--set", "epochs=2")
    assert answer.code == 0, answer
    assert answer.err.splitlines()[0] == "toy: 6 runs to do"
    assert "[6/6, " in answer.err
    before = Path("results/toy.jsonl").read_bytes()
    assert before.count(b"\n") == 6
    again = pollux("reproduce", "toy", "--jobs", "2", "--set", "epochs=2")
    assert again.code == 0
    assert "to do" not in again.err
    shown = pollux("reproduce", "toy", "moons", "--show", "--set", "epochs=2")
    assert shown.code == 0
    assert "moons: nothing of this is recorded in results" in shown.err
    assert Path("results/toy.jsonl").read_bytes() == before
    assert jobs == [2]
    # One setting more, one seed more.
    assert pollux("reproduce", "toy", "--runs", "3", "--set", "epochs=2").code == 0
    assert Path("results/toy.jsonl").read_bytes().startswith(before)
    assert Path("results/toy.jsonl").read_bytes().count(b"\n") == 9


def test_failures_are_listed_at_the_end(toys: Callable[..., Experiment]) -> None:
    protocols = {"quick": Protocol([{"kind": kind} for kind in ("bad", "good")], 2), "paper": Protocol([], 0)}
    toys(protocols=protocols)
    answer = pollux("reproduce", "toy")
    assert answer.code == 1
    assert answer.err.count("Traceback") == 1
    assert answer.err.splitlines()[-3:] == [
        "2 runs failed; the same command tries again what is not recorded:",
        "  toy kind=bad seed=0: ValueError: out of [/range] ε",
        "  toy kind=bad seed=1: ValueError: out of [/range] ε",
    ]
    assert len(recorded(EXPERIMENTS["toy"], grid_of("bad", "good", seeds=2), Path("results"))) == 2


def test_help_names_all_experiments_without_torch() -> None:
    code = """if True:
        import sys
        from pollux.app import cli
        try:
            cli.main(["reproduce", "--help"])
        finally:
            print([name for name in ("torch", "numpy", "rich", "sklearn") if name in sys.modules], file=sys.stderr)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0
    assert done.stderr == "[]\n"
    for name in EXPERIMENTS:
        assert name in " ".join(done.stdout.split())


# Real processes: few, because each of them imports torch.

GRID = ("reproduce", "ova-vs-ovo", "--runs", "5", "--set", "epochs=40", "--out", "results")
RECORDS = Path("results", "ova-vs-ovo.jsonl")
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def children(parent: int) -> set[int]:
    """The processes below a process, those below these too."""
    found: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, _, rest = stat.read_text().partition(" (")
            state, above = rest.rpartition(") ")[2].split()[:2]
            if state not in "ZX":
                found[int(number)] = int(above)
    below = {number for number, above in found.items() if above == parent}
    return below.union(*(children(number) for number in below))


def alive(number: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    return False


def wait_until(condition: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)


def recorded_runs() -> list[str]:
    """The runs of all whole lines, in the order of the file."""
    if not RECORDS.exists():
        return []
    lines = [line for line in RECORDS.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return [Run(fields["experiment"], fields["settings"], fields["seed"]).key for fields in map(json.loads, lines)]


class Started:
    """The command in a process and a group of its own, as in a terminal; a copy of this one, which has torch."""

    def __init__(self, *words: str) -> None:
        with warnings.catch_warnings():
            # Python warns of threads, which a copy has not: this one starts processes, and computes nothing.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                os.setsid()
                # What it computes once all is done would wait for the threads that it has not.
                torch.set_num_threads(1)
                with Path("said").open("w", encoding="utf-8") as file:
                    sys.stderr = sys.stdout = file
                    for handle in (1, 2):
                        os.dup2(file.fileno(), handle)
                    code = cli.main(words)
            finally:
                os._exit(code)

    def __enter__(self) -> Started:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            # The test has failed; its workers notice.
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)

    def ended(self) -> tuple[int, list[str]]:
        """The exit code, or minus the signal, and the lines that were said."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), Path("said").read_text(encoding="utf-8").splitlines()


def workers_of(parent: int) -> list[int]:
    found = []
    for number in children(parent):
        with contextlib.suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{number}/cmdline").read_bytes():
                found.append(number)
    return found


@needs_proc
def test_whatever_ends_a_grid_what_was_done_is_kept_and_the_rest_is_done_later(
    request: pytest.FixtureRequest,
) -> None:
    """Kill -9; then a worker that dies at once, and Ctrl-C; then a run to the end."""
    experiment = EXPERIMENTS["ova-vs-ovo"]
    runs = choose(["ova-vs-ovo"], "quick", [], ["epochs=40"], 5)[0][1].all_runs("ova-vs-ovo")
    with Started(*GRID, "--jobs", "2") as killed:
        wait_until(lambda: len(recorded_runs()) >= 1 or not alive(killed.pid))
        below = children(killed.pid)
        assert len(workers_of(killed.pid)) == 2
        # The program alone, not its group: whoever is left has to notice.
        os.kill(killed.pid, signal.SIGKILL)
    assert killed.ended()[0] == -signal.SIGKILL
    wait_until(lambda: not any(map(alive, below)))
    first = recorded_runs()
    assert 1 <= len(first) < len(runs)

    with Started(*GRID, "--jobs", "1") as stopped:
        wait_until(lambda: workers_of(stopped.pid) or not alive(stopped.pid))
        (doomed,) = workers_of(stopped.pid)
        os.kill(doomed, signal.SIGKILL)
        # Another one takes its place.
        wait_until(lambda: len(recorded_runs()) > len(first) or not alive(stopped.pid))
        below = children(stopped.pid)
        assert len(workers_of(stopped.pid)) == 1
        os.killpg(stopped.pid, signal.SIGINT)
    code, lines = stopped.ended()
    assert code == 130, lines
    wait_until(lambda: not any(map(alive, below)))
    assert not any("Traceback" in line for line in lines)
    lost = next(run for run in runs if run.key not in first)
    assert lines[0] == f"ova-vs-ovo: {len(runs) - len(first)} runs to do"
    assert f"{lost}: FAILED, the process that did it was killed" in lines[1]
    assert all(": ARI " in line for line in lines[2:-1])
    assert lines[-1] == "Stopped. What has ended is recorded in results; the same command goes on from there."
    second = recorded_runs()
    assert second[: len(first)] == first
    assert len(first) < len(second) < len(runs)
    assert lost.key not in second

    spy = Spy()
    request.getfixturevalue("jobs")
    outcome = execute(experiment, runs, Path("results"), jobs=1, display=spy)
    assert [one.run for one in outcome.records] == runs
    assert [one.run.key for one in spy.records] == [run.key for run in runs if run.key not in second]
    third = recorded_runs()
    assert third[: len(second)] == second
    assert len(third) == len(set(third)) == len(runs)
    # A run is the same, wherever it is done.
    one = outcome.records[runs.index(next(run for run in runs if run.key in first))]
    assert perform("ova-vs-ovo", one.run, Path("elsewhere")).metrics == one.metrics


def test_what_is_left_of_a_run_is_used_by_the_same_code_alone(tmp_path: Path) -> None:
    """The seconds and warnings of a process that was killed count; those of other code do not."""
    folder = unfinished_path(tmp_path, "toy-1")
    notes, unfinished = folder / "run.json", UnfinishedRun(folder)
    with UnfinishedRun(folder).open():
        (folder / "fit").mkdir()
        with pytest.raises(BusyError):
            unfinished.open().__enter__()
    notes.write_text(json.dumps({**json.loads(notes.read_text()), "seconds": 100.0, "warnings": ["W: odd"]}))
    with unfinished.open():
        warnings.warn("odder", CollapseWarning, stacklevel=1)
    assert 100 < unfinished.seconds < 160
    assert unfinished.warnings == ["CollapseWarning: odder", "W: odd"]
    assert (folder / "fit").exists()
    for other in (json.dumps({"code": "other", "seconds": 100.0, "warnings": ["W: odd"]}), "{", "[]"):
        (folder / "fit").mkdir(exist_ok=True)
        notes.write_text(other)
        anew = UnfinishedRun(folder)
        with anew.open():
            assert not (folder / "fit").exists()
        assert anew.seconds < 60
        assert not anew.warnings
    (folder / "fit").mkdir()
    with pytest.raises(InputError), unfinished.open():
        raise InputError("The checkpoints are of another training.")
    assert not (folder / "fit").exists()
    unfinished.remove()
    unfinished.remove()
    assert not (tmp_path / "unfinished").exists()


@needs_proc
def test_a_run_that_is_killed_goes_on_from_its_checkpoint_to_the_same_record(request: pytest.FixtureRequest) -> None:
    """Kill -9 in the middle of a run: what is left of it is done, not all, and no bit of the metrics differs."""
    words = ["ova-vs-ovo", "--runs", "1", "--set", "epochs=2000", "--only", "objective=mmd_ovo"]
    command = ["reproduce", *words, "--jobs", "1", "--checkpoint-every", "20 epochs"]
    (run,) = choose(["ova-vs-ovo"], "quick", ["objective=mmd_ovo"], ["epochs=2000"], 1)[0][1].all_runs("ova-vs-ovo")
    folder = unfinished_path(Path("results"), run.key)
    with Started(*command) as killed:
        wait_until(lambda: len(list(folder.glob("fit/checkpoint-*[1-9]?.safetensors"))) or not alive(killed.pid))
        below = children(killed.pid)
        os.kill(killed.pid, signal.SIGKILL)
    assert killed.ended()[0] == -signal.SIGKILL
    wait_until(lambda: not any(map(alive, below)))
    assert not recorded_runs()
    done = Checkpoints(folder / "fit").epochs_done()
    assert 100 < done < 2000
    before = json.loads((folder / "run.json").read_text())

    epochs: list[int] = []
    request.getfixturevalue("jobs")
    request.getfixturevalue("monkeypatch").setattr(
        running._Teller, "__call__", lambda self, epoch: epochs.append(epoch.number)
    )
    outcome = execute(EXPERIMENTS["ova-vs-ovo"], [run], Path("results"), jobs=1, display=Spy())
    assert epochs == list(range(done + 1, 2001))
    assert outcome.records[0].seconds > before["seconds"]
    assert not Path("results", "unfinished").exists()
    assert perform("ova-vs-ovo", run, Path("elsewhere")).metrics == outcome.records[0].metrics
