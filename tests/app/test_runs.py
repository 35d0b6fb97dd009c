"""Runs: what fit, predict, report and export write, and that they write nothing when they cannot do it all."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import io
import json
import os
import shlex
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest
import torch

from data_files import FAST, TABLES, Answer, as_table, delimited, frame, pixels, pollux, tree, write_bytes
from data_files import write_images as images_in
from data_files import write_table as table_in
from pollux import GeminiClustering, geometry, names
from pollux import recipes as presets
from pollux.app import cli
from pollux.app.runs import Settings, from_toml
from pollux.app.runs import settings as settings_of_runs
from pollux.app.runs.estimator import clustering_of
from pollux.data import array_files, image_folder, table_files
from pollux.errors import InputError
from pollux.io import model_files as persistence
from pollux.names import SCALINGS
from pollux.spec import flatten_params

PROBABILITIES = ["p_0", "p_1", "p_2"]
# The package has a function of that name.
fitting = importlib.import_module("pollux.app.runs.fitting")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a table, with what it was made of beside it."""
    folder = tmp_path_factory.mktemp("runs")
    table_in(folder, "plain.csv", frame())
    answer = pollux("fit", folder / "plain.csv", *FAST, "--label", "class", "--out", folder / "run")
    assert answer.code == 0, answer
    return folder / "run"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a folder of images."""
    folder = tmp_path_factory.mktemp("pictures")
    images_in(folder / "images", pixels(12, 8, 8), names=lambda index: f"{'ab'[index % 2]}/{index:02}.png")
    answer = pollux("fit", folder / "images", *FAST, "--label", "folder", "--out", folder / "run")
    assert answer.code == 0, answer
    return folder / "run"


def good(*arguments: object) -> Answer:
    answer = pollux(*arguments)
    assert answer.code == 0, answer
    return answer


def refused(*arguments: object, says: str = "") -> str:
    """The complaint: one line without a traceback, after which nothing has changed."""
    before = tree(Path())
    answer = pollux(*arguments)
    assert answer.code == 2, answer
    assert answer.err.splitlines()[-1].startswith("pollux")
    assert "Traceback" not in answer.err
    assert says in answer.err
    assert tree(Path()) == before
    if not answer.err.startswith("usage"):
        assert answer.err.count("\n") == 1
    return answer.err


def summary_of(folder: Path | str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((Path(folder) / "summary.json").read_text())
    return summary


def same_run(a: Path | str, b: Path | str) -> None:
    """Bit for bit; but for the model file, which keeps its parts in no order."""
    for name in ("clusters.csv", "run.toml"):
        assert (Path(a) / name).read_bytes() == (Path(b) / name).read_bytes()
    left, right = (persistence.read(Path(folder) / "model.safetensors") for folder in (a, b))
    assert left[1] == right[1]
    for name in left[0] | right[0]:
        assert torch.equal(left[0][name], right[0][name])


def same_rows(a: Path | str, b: Path | str) -> None:
    """Clusters are the same, and probabilities but for the order in which sums are rounded."""
    left, right = (pd.read_csv(path, dtype={"name": str}) for path in (a, b))
    pd.testing.assert_frame_equal(left, right, rtol=1e-5, atol=1e-7)


# The folder of a run


def test_a_run_is_a_model_clusters_settings_and_a_summary(run: Path) -> None:
    assert sorted(path.name for path in run.iterdir() if path.name != "report.html") == [
        "checkpoints",
        "clusters.csv",
        "model.safetensors",
        "run.toml",
        "summary.json",
    ]
    clusters = pd.read_csv(run / "clusters.csv")
    assert list(clusters) == ["row", "name", "cluster", *PROBABILITIES, "entropy"]
    assert list(clusters["row"]) == list(range(30))
    assert list(clusters["name"]) == list(frame()["name"])
    p = clusters[PROBABILITIES].to_numpy()
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(p.argmax(1), clusters["cluster"])
    np.testing.assert_allclose(clusters["entropy"], -(p * np.log(p)).sum(1), rtol=1e-4)
    summary = summary_of(run)
    assert summary["rows"] == 30
    assert summary["clusters_asked_for"] == 3
    assert not summary["interrupted"]
    assert summary["identifiers"] == ["name"]
    assert [cluster["rows"] for cluster in summary["clusters"]] == list(clusters["cluster"].value_counts().sort_index())
    assert set(summary["scores"]) >= {"adjusted_rand_index", "normalised_mutual_information"}


def test_what_was_found_is_told(run: Path) -> None:
    answer = good("fit", run.parent / "plain.csv", *FAST, "--label", "class")
    assert "left out name: an identifier" in answer.out
    assert "left out unit: it has one value throughout" in answer.out
    assert "against the known classes" in answer.out
    assert "saved in runs/plain" in answer.out
    assert answer.err == ""


def test_runs_get_folders_of_their_own(run: Path) -> None:
    for name in ("plain", "plain-2", "plain-3"):
        good("fit", run.parent / "plain.csv", *FAST)
        assert Path("runs", name, "model.safetensors").is_file()


def test_json_is_all_that_is_printed(run: Path) -> None:
    answer = good("fit", run.parent / "plain.csv", *FAST, "--out", "new", "--json")
    assert answer.err == ""
    assert answer.out.count("\n") == 1
    printed = json.loads(answer.out)
    assert printed.pop("folder") == "new"
    assert printed == summary_of("new")


def test_quiet_is_quiet(run: Path) -> None:
    answer = good("fit", run.parent / "plain.csv", *FAST, "--out", "new", "--quiet")
    assert answer.out == answer.err == ""


def test_quiet_is_quiet_of_notes_too(run: Path) -> None:
    options = ("--clusters", "3", "--restarts", "1", "--epochs", "3", "--learning-rate", "1e30")
    answer = pollux("fit", run.parent / "plain.csv", *options, "--out", "new", "--quiet")
    assert summary_of("new")["notes"]
    assert summary_of("new")["diverged"]
    assert answer.err == ""
    assert answer.code == 3


def test_the_same_run_twice_is_the_same(run: Path) -> None:
    good("fit", run.parent / "plain.csv", *FAST, "--label", "class", "--out", "again")
    same_run("again", run)


def test_the_label_is_never_used(run: Path) -> None:
    data = frame()
    for seed in range(2):
        data["class"] = np.random.default_rng(seed).permutation(data["class"])
        good("fit", table_in(Path(), "plain.csv", data), *FAST, "--label", "class", "--out", "new", "--overwrite")
        assert Path("new/clusters.csv").read_bytes() == (run / "clusters.csv").read_bytes()
    data["class"] = [f"{value} words" for value in data["class"]]
    data.loc[3, "class"] = None
    good("fit", table_in(Path(), "plain.csv", data), *FAST, "--label", "class", "--out", "new", "--overwrite")
    assert Path("new/clusters.csv").read_bytes() == (run / "clusters.csv").read_bytes()
    good("fit", table_in(Path(), "plain.csv", data.drop(columns="class")), *FAST, "--out", "new", "--overwrite")
    assert Path("new/clusters.csv").read_bytes() == (run / "clusters.csv").read_bytes()


def test_a_label_that_was_asked_for_as_a_column_is_not_used_either(run: Path) -> None:
    good("fit", run.parent / "plain.csv", *FAST, "--columns", "size,class", "--label", "class", "--out", "new")
    assert summary_of("new")["features"] == 1


def test_columns_are_chosen(run: Path) -> None:
    data = run.parent / "plain.csv"
    for options, features in [
        (["--columns", "size,weight"], 2),
        (["--columns", "size", "--columns", "weight"], 2),
        (["--drop", "size,weight,class"], 6),
        (["--id", "size", "--label", "class"], 7),
        (["--columns", "count", "--categories", "count"], frame()["count"].nunique()),
    ]:
        good("fit", data, *FAST, *options, "--out", "new", "--overwrite")
        assert summary_of("new")["features"] == features


def test_rows_that_lack_values_are_refused_filled_or_dropped() -> None:
    data = frame().astype({"alive": object})
    data.loc[3, "size"] = np.nan
    data.loc[[4, 5], "colour"] = None
    data.loc[6, "alive"] = None
    for name in TABLES:
        path = table_in(Path(), name, data)
        says = "'size' (1), 'colour' (2), 'alive' (1) of 30 rows"
        refused("fit", path, *FAST, "--out", "new", says=says)
    good("fit", "plain.csv", *FAST, "--missing", "mean", "--out", "mean")
    assert len(pd.read_csv("mean/clusters.csv")) == 30
    answer = good("fit", "plain.csv", *FAST, "--missing", "drop", "--out", "drop")
    assert "left out 4 rows that lack values" in answer.out
    assert list(pd.read_csv("drop/clusters.csv")["row"]) == [0, 1, 2, *range(7, 30)]
    table_in(Path(), "marked.csv", data.drop(index=[3, 4, 5, 6]))
    good("fit", "marked.csv", *FAST, "--out", "without")
    columns = ["name", "cluster", *PROBABILITIES]
    dropped, without = (pd.read_csv(f"{name}/clusters.csv")[columns] for name in ("drop", "without"))
    pd.testing.assert_frame_equal(dropped, without)


def test_dropping_rows_must_leave_some() -> None:
    write_bytes(Path("gaps.csv"), "a,b\n1,\n2,\n,3\n,5\n")
    refused("fit", "gaps.csv", *FAST, "--missing", "drop", says="leaves nothing")


@pytest.mark.parametrize("model", ["free", "linear", "mlp"])
@pytest.mark.parametrize("objective", ["mi", "mmd_ovo", "wasserstein_ova"])
def test_models_and_objectives_go_together(run: Path, model: str, objective: str) -> None:
    good("fit", run.parent / "plain.csv", *FAST, "--model", model, "--objective", objective, "--out", "new")
    assert len(pd.read_csv("new/clusters.csv")) == 30


def test_every_setting_arrives(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def spy(self: GeminiClustering, X: Any) -> None:
        seen.update(flatten_params(self))
        raise ValueError("enough")

    monkeypatch.setattr(GeminiClustering, "fit", spy)
    options = {
        "clusters": 4,
        "objective": "mmd_ovo",
        "geometry": "rbf:gamma=0.5",
        "hidden": "7,5",
        "epochs": 9,
        "batch-size": 11,
        "learning-rate": 0.125,
        "restarts": 2,
        "patience": 3,
        "seed": 5,
        "norm": "batch",
        "init": "graph",
        "schedule": "cosine",
        "trial-epochs": 8,
        "components": 6,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    answer = pollux("fit", run.parent / "plain.csv", *words, "--penalty", "vat=0.5", "--penalty", "entropy")
    assert answer.code == 2
    assert (seen["n_clusters"], seen["objective"], seen["hidden"]) == (4, "mmd_ovo", (7, 5))
    assert (seen["max_epochs"], seen["batch_size"], seen["learning_rate"]) == (9, 11, 0.125)
    assert (seen["n_init"], seen["patience"], seen["random_state"]) == (2, 3, 5)
    assert seen["penalties"] == {"vat": 0.5, "entropy": 1.0}
    assert seen["geometry"].parameters == {"gamma": 0.5}
    assert (seen["norm"], seen["init"], seen["schedule"]) == ("batch", "graph", "cosine")
    assert (seen["trial_epochs"], seen["n_components"]) == (8, 6)


def test_starts_are_few_where_they_take_long() -> None:
    assert Settings().starts(10_000) == 5
    assert Settings().starts(10_001) == 1
    assert Settings(model="resnet18").starts(10) == 1
    assert Settings(restarts=3).starts(10**6) == 3


# Presets


def table_with_gaps(path: Path) -> Path:
    data = frame().drop(columns=["weight", "count"]).assign(length=np.random.default_rng(1).normal(size=30) * 1.5)
    data.loc[3, "size"] = np.nan
    return table_in(path, "plain.csv", data)


def test_a_preset_is_spelled_out_and_can_be_repeated(tmp_path: Path) -> None:
    options = ("--clusters", 3, "--preset", "tables", "--epochs", 3, "--restarts", 2, "--label", "class")
    answer = good("fit", table_with_gaps(tmp_path), *options, "--out", "run")
    assert "numbers are divided by one number, as their ranges are alike" in answer.out
    settings = tomllib.loads(Path("run/run.toml").read_text())
    assert "preset" not in settings
    assert (settings["geometry"], settings["scaling"], settings["missing"]) == ("mixtures", "auto", "mean")
    # What was given stands.
    assert (settings["epochs"], settings["restarts"]) == (3, 2)
    command = summary_of("run")["command"]
    assert "--geometry mixtures" in command
    assert "--preset" not in command
    good("fit", "--config", "run/run.toml", "--out", "again")
    same_run("again", "run")
    good(*shlex.split(command)[1:], "--out", "once_more")
    same_run("once_more", "run")
    clustering = persistence.read("run")[1]
    assert clustering["parameters"]["scaling"] == "none"
    assert clustering["parameters"]["missing"] == "error"
    good("predict", "run", "plain.csv", "--out", "new.csv")
    same_rows("new.csv", "run/clusters.csv")


def test_the_preset_for_images_is_for_pixels_too() -> None:
    random = np.random.default_rng(0)
    X = random.integers(0, 3, 40)[:, None, None] * 80 + random.integers(0, 60, (40, 5, 5))
    np.save("pixels.npy", X.astype(np.uint8))
    np.save("flat.npy", X.reshape(40, 25).astype(np.uint8))
    small = ("--hidden", "8", "--components", 6, "--epochs", 3, "--trial-epochs", 1, "--restarts", 2)
    for name in ("pixels.npy", "flat.npy"):
        good("fit", name, "--preset", "images", "--clusters", 3, *small, "--out", "run", "--overwrite")
        settings = tomllib.loads(Path("run/run.toml").read_text())
        assert settings["penalty"] == [f"{name}={weight}" for name, weight in presets.IMAGES["penalties"].items()]
        assert (settings["objective"], settings["geometry"], settings["norm"]) == ("mi", "auto", "batch")
        good("predict", "run", name, "--out", "new.csv")
        same_rows("new.csv", "run/clusters.csv")
        good("report", "run")
        page = Path("run/report.html").read_text()
        assert "Principal components" in page
        assert "divided by one number" in page
    good("export", "run", "--onnx", "new.onnx")


@pytest.mark.parametrize(
    ("name", "preset"), [("tables", GeminiClustering.for_tables), ("images", GeminiClustering.for_images)]
)
def test_presets_are_those_of_python(name: str, preset: Any) -> None:
    """But for what is done to numbers before an estimator sees them."""
    own = clustering_of(settings_of_runs.settled({"preset": name, "clusters": 4, "seed": 7}), 100)
    own, expected = flatten_params(own), flatten_params(preset(4, random_state=7))
    own["penalties"] = own["penalties"] or None
    assert (own.pop("scaling"), own.pop("missing")) == ("none", "error")
    scaling, missing = expected.pop("scaling"), expected.pop("missing")
    assert own == expected
    settings = settings_of_runs.settled({"preset": name})
    assert (settings.scaling, settings.missing) == (scaling, missing)


def test_a_preset_lies_below_all_that_is_said(tmp_path: Path) -> None:
    write_bytes(tmp_path / "c.toml", 'preset = "tables"\nrestarts = 2\nepochs = 5\n')
    settings = from_toml("c.toml", {"epochs": 7})
    assert (settings.restarts, settings.epochs, settings.geometry) == (2, 7, "mixtures")
    assert from_toml("c.toml", {"preset": "images"}).components == 100
    # A kernel is of no use to them, and the user has named none.
    for objective in ("mi", "wasserstein_ova"):
        assert settings_of_runs.settled({"preset": "tables", "objective": objective}).geometry == "auto"
    with pytest.raises(InputError, match="needs no --geometry"):
        clustering_of(settings_of_runs.settled({"preset": "tables", "objective": "mi", "geometry": "rbf"}), 100)


def test_geometries_of_all_rows_have_parameters() -> None:
    for text, expected in {
        "graph:neighbours=20": geometry.NeighbourGraph(neighbours=20),
        "mixed:neighbours=20,share=0.25": geometry.Mixed(neighbours=20, share=0.25),
        "mixtures:neighbours=20": geometry.Mixtures(neighbours=(20,)),
        "mixtures:neighbours=5,neighbours=9,components=4": geometry.Mixtures(neighbours=(5, 9), components=4),
    }.items():
        assert clustering_of(Settings(geometry=text), 100).geometry == expected


def test_the_agreement_of_starts_is_told(run: Path) -> None:
    options = ("--clusters", 3, "--epochs", 2, "--restarts", 3)
    answer = good("fit", run.parent / "plain.csv", *options, "--out", "several")
    stability = summary_of("several")["stability"]
    assert f"\nagreement of the starts: {stability:.2f}\n" in answer.out
    good("report", "several")
    assert "Agreement of the starts" in Path("several/report.html").read_text()
    assert summary_of(run)["stability"] is None
    answer = good("fit", run.parent / "plain.csv", *FAST, "--out", "one")
    assert "agreement" not in answer.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--preset", "tables"], "--geometry mixtures and --init kmeans must look at all rows"),
        (["--preset", "images"], "--init graph and --components 100 and --penalty local_vat must"),
        (["--geometry", "graph:neighbours=3"], "--geometry graph:neighbours=3 must"),
    ],
)
def test_what_needs_all_rows_is_refused_before_a_stream_is_read(
    monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    table_in(Path(), "table.parquet", frame())

    def never(*_: Any) -> None:
        raise AssertionError("the rows are read")

    monkeypatch.setattr(fitting, "open_rows", never)
    told = refused("fit", "table.parquet", "--stream", "yes", "--clusters", 3, *options, says=says)
    assert "--stream no" in told


@pytest.mark.parametrize("scaling", SCALINGS)
def test_streamed_numbers_are_scaled_as_those_that_are_held(scaling: str) -> None:
    table_in(Path(), "table.parquet", frame()[["size", "alive"]].assign(length=frame()["size"] * 2))
    np.save("pixels.npy", pixels(12, 4, 4, 3))
    for name in ("table.parquet", "pixels.npy"):
        for stream in ("yes", "no"):
            options = ("--scaling", scaling, "--stream", stream, "--model", "linear", "--overwrite")
            good("fit", name, *FAST, *options, "--out", stream)
        held, streamed = (persistence.read(stream)[1]["preprocessing"] for stream in ("no", "yes"))
        assert json.dumps(held) == json.dumps(streamed)


def test_runs_whose_epochs_are_left_to_us_go_on(run: Path) -> None:
    # Fewer epochs than those of 500 steps, which a run of so few rows would have.
    data = run.parent / "plain.csv"
    options = ("--clusters", 3, "--restarts", 1, "--model", "linear")
    good("fit", data, *options, "--epochs", "auto", "--out", "auto")
    assert summary_of("auto")["epochs"] == 500
    refused("fit", "--resume", "auto", says="has had its 500 epochs")
    refused("fit", "--resume", "auto", "--epochs", 400, says="has had its 500 epochs")
    good("fit", "--resume", "auto", "--epochs", 502)
    assert summary_of("auto")["epochs"] == 502
    good("fit", data, *options, "--epochs", 3, "--schedule", "cosine", "--out", "falls")
    refused("fit", "--resume", "falls", "--epochs", 5, says="--config falls/run.toml --epochs 5")
    good("fit", "--config", "falls/run.toml", "--epochs", 5, "--out", "longer")
    refused("fit", "--resume", "falls", "--epochs", "auto", says="--epochs N")
    refused("fit", "--resume", "falls", "--preset", "tables", says="only --epochs")


# Settings


def test_a_config_repeats_the_run(run: Path, tmp_path: Path) -> None:
    good("fit", "--config", run / "run.toml", "--out", "again")
    same_run("again", run)


def test_options_override_a_config(run: Path) -> None:
    good("fit", "--config", run / "run.toml", "--clusters", 2, "--seed", 7, "--out", "other")
    settings = tomllib.loads(Path("other/run.toml").read_text())
    assert (settings["clusters"], settings["seed"], settings["epochs"]) == (2, 7, 2)
    other = table_in(Path(), "table.parquet", frame(seed=1))
    good("fit", other, "--config", run / "run.toml", "--out", "another")
    assert tomllib.loads(Path("another/run.toml").read_text())["data"] == str(other.resolve())


def test_data_lie_beside_the_config(run: Path, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    table_in(tmp_path / "below", "plain.csv", frame())
    write_bytes(tmp_path / "below" / "c.toml", 'data = "plain.csv"\nclusters = 3\nepochs = 2\nrestarts = 1\n')
    good("fit", "--config", "below/c.toml", "--out", "new")
    assert Settings(**tomllib.loads(Path("new/run.toml").read_text())).data == str(tmp_path / "below" / "plain.csv")


def test_the_command_repeats_the_run(run: Path) -> None:
    words = shlex.split(summary_of(run)["command"])
    assert words[:2] == ["pollux", "fit"]
    good(*words[1:], "--out", "again")
    same_run("again", run)


STRANGE = Settings(
    data='/some where/it\'s "data" $HOME ` ; & 😀.csv',
    columns=("a,b", "-x", "c d", "=cmd", "new\nline", "$(touch x)"),
    drop=("--json",),
    categories=("'",),
    id=("ä",),
    label="-1",
    missing="drop",
    scaling="global",
    components=2,
    na=("?", "-", "-1", ""),
    delimiter="-",
    header=False,
    array="X y",
    image_size=9,
    clusters=4,
    objective="mmd_ovo",
    geometry="rbf:gamma=0.5",
    model="linear",
    hidden=(7, 5),
    norm="batch",
    init="kmeans++",
    epochs="auto",
    batch_size=8,
    learning_rate=1e-05,
    schedule="cosine",
    restarts=2,
    trial_epochs="auto",
    patience=6,
    penalty=("vat=0.5", "entropy"),
    seed=3,
    device="cpu",
)


def parsed(words: list[str]) -> Settings:
    options = vars(cli.parser("fit").parse_args(words[1:]))
    names = {field.name for field in dataclasses.fields(Settings)}
    return Settings(**{name: value for name, value in options.items() if name in names})


@pytest.mark.parametrize("settings", [Settings(data="d.csv"), STRANGE], ids=["plain", "strange"])
def test_settings_survive_the_command_line_and_toml(settings: Settings, tmp_path: Path) -> None:
    assert parsed(shlex.split(settings.command())) == settings
    write_bytes(tmp_path / "run.toml", settings.to_toml())
    assert from_toml(tmp_path / "run.toml", {"data": settings.data}) == settings


def test_data_may_begin_with_a_dash() -> None:
    settings = Settings(data="-x.csv")
    assert parsed(shlex.split(settings.command())) == settings


def test_settings_of_any_characters_survive_toml(tmp_path: Path) -> None:
    settings = Settings(data="/d.csv", label="delete\x7f")
    write_bytes(tmp_path / "run.toml", settings.to_toml())
    assert from_toml(tmp_path / "run.toml", {}) == settings


def test_every_option_is_a_setting_and_every_setting_an_option() -> None:
    actions = (
        next(action for action in cli.parser("fit")._actions if isinstance(action, argparse._SubParsersAction))
        .choices["fit"]
        ._actions
    )
    options = {action.dest for action in actions} - {"help"}
    assert options - {"out", "overwrite", "config", "preset", "resume", "json", "quiet"} == {
        field.name for field in dataclasses.fields(Settings)
    }
    for action in actions:
        if action.option_strings and action.dest not in ("help", "header"):
            assert f"--{action.dest.replace('_', '-')}" in action.option_strings


def test_the_names_in_the_help_are_those_of_the_registries() -> None:
    words = good("fit", "--help").out.replace(",", " ").replace(")", " ").split()
    for listed in (names.OBJECTIVES, names.KERNELS, names.DISTANCES, names.MODELS, names.PENALTIES):
        assert set(listed) <= set(words)
    assert {*names.KERNELS_OF_ALL_SAMPLES, *names.DISTANCES_OF_ALL_SAMPLES} <= set(words)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense = 1", "nonsense"),
        ("[table]\na = 1", "table"),
        ("clusters = 'x'", "clusters"),
        ("clusters = 2.5", "clusters"),
        ("clusters = true", "clusters"),
        ("clusters = 0", "clusters"),
        ("columns = 1", "columns"),
        ("columns = [1]", "columns"),
        ("hidden = 5", "hidden"),
        ("hidden = ['5']", "hidden"),
        ("header = 'no'", "header"),
        ("seed = 1e3", "seed"),
        ("seed = -1", "seed"),
        ("missing = 'x'", "missing"),
        ("batch_size = 'x'", "batch_size"),
        ("restarts = true", "restarts"),
        ("epochs = 'some'", "epochs"),
        ("scaling = 'x'", "scaling"),
        ("norm = 'x'", "norm"),
        ("init = 'x'", "init"),
        ("schedule = 'x'", "schedule"),
        ("components = -1", "components"),
        ("preset = 'x'", "tables, images"),
        ("preset = ['tables']", "preset"),
        ("delimiter = ';;'", "delimiter"),
        ("learning_rate = 'x'", "learning_rate"),
        ("broken = ", "not a TOML file"),
        ("data = 'nowhere.csv'", "nowhere.csv"),
        ("", "pollux fit DATA"),
        (b"\xff\xfe", "not a TOML file"),
        ("data = 1", "data"),
        ("data = ['a']", "data"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_config_is_said(tmp_path: Path, text: str | bytes, says: str) -> None:
    refused("fit", "--config", write_bytes(tmp_path / "c.toml", text), says=says)


def test_a_config_must_be_a_file() -> None:
    refused("fit", "--config", "nowhere.toml", says="nowhere.toml")
    refused("fit", "--config", ".", says="not a TOML file")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--objective", "nothing"], "'nothing'"),
        (["--objective", "chi2_ovo"], "chi2_ovo"),
        (["--model", "nothing"], "'nothing'"),
        (["--model", "lenet5"], "lenet5"),
        (["--geometry", "nothing"], "'nothing'"),
        (["--geometry", "euclidean"], "'euclidean'"),
        (["--geometry", "precomputed"], "precomputed"),
        (["--geometry", "rbf:gamma=x"], "gamma=x"),
        (["--geometry", "rbf:gamma"], "gamma"),
        (["--geometry", "rbf:other=1"], "other"),
        (["--objective", "mi", "--geometry", "rbf"], "--geometry"),
        (["--penalty", "nothing"], "'nothing'"),
        (["--penalty", "vat=x"], "vat=x"),
        (["--penalty", "vat=-1"], "vat"),
        (["--clusters", "0"], "clusters"),
        (["--clusters", "31"], "31 clusters"),
        (["--clusters", "x"], "--clusters"),
        (["--epochs", "0"], "epochs"),
        (["--restarts", "0"], "restarts"),
        (["--restarts", "some"], "--restarts"),
        (["--epochs", "some"], "--epochs"),
        (["--trial-epochs", "2"], "--trial-epochs"),
        (["--trial-epochs", "-1"], "--trial-epochs"),
        (["--init", "kmeans++"], "free table"),
        (["--init", "nothing"], "--init"),
        (["--geometry", "graph:other=1"], "neighbours"),
        (["--geometry", "mixtures:neighbours=0"], "neighbours"),
        (["--model", "lenet5", "--components", "2"], "--components 0"),
        (["--preset", "nothing"], "--preset"),
        (["--batch-size", "0"], "batch_size"),
        (["--learning-rate", "0"], "learning_rate"),
        (["--learning-rate", "nan"], "learning_rate"),
        (["--hidden", "0"], "hidden"),
        (["--hidden", "x"], "--hidden"),
        (["--seed", "-1"], "seed"),
        (["--seed", "4294967296"], "Seed"),
        (["--device", "nothing"], "'nothing'"),
        (["--delimiter", ";;"], "';;'"),
        (["--label", "nothing"], "'nothing'"),
        (["--columns", "nothing"], "'nothing'"),
        (["--drop", "nothing"], "'nothing'"),
        (["--id", "nothing"], "'nothing'"),
        (["--categories", "nothing"], "'nothing'"),
        (["--missing", "nothing"], "--missing"),
        (["--nothing"], "--nothing"),
        (["--columns", "size", "--drop", "size"], "No column is left"),
        (["--delimiter", "é"], "é"),
        (["--geometry", "rbf:gamma=[]"], "gamma"),
        (["--hidden", "1000000000000"], "hidden"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_with_an_option_is_said(run: Path, options: list[str], says: str) -> None:
    refused("fit", run.parent / "plain.csv", *FAST, "--out", "new", *options, says=says)


def test_without_a_command_there_is_help() -> None:
    answer = pollux()
    assert answer.code == 2
    assert "fit" in answer.err
    assert "Start with" in answer.err


def test_usage_is_explained() -> None:
    for words in (
        ["nothing"],
        ["fit", "--nothing"],
        ["predict"],
        ["predict", "run"],
        ["report"],
        ["export", "run"],
    ):
        refused(*words)
    refused("fit", says="pollux fit DATA")
    refused("fit", "nowhere.csv", says="nowhere.csv")


def test_the_folder_of_a_run_must_be_free(run: Path, tmp_path: Path) -> None:
    data = run.parent / "plain.csv"
    write_bytes(tmp_path / "file", "x")
    refused("fit", data, *FAST, "--out", "file", says="file is a file")
    refused("fit", data, *FAST, "--out", "file/below", says="file/below")
    (tmp_path / "full").mkdir()
    write_bytes(tmp_path / "full" / "mine", "x")
    refused("fit", data, *FAST, "--out", "full", says="--overwrite")
    good("fit", data, *FAST, "--out", "full", "--overwrite")
    assert (tmp_path / "full" / "mine").read_text() == "x"
    (tmp_path / "empty").mkdir()
    good("fit", data, *FAST, "--out", "empty")
    refused("fit", data, *FAST, "--out", "/proc/nowhere", says="/proc/nowhere")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_folder_that_cannot_be_written_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    refused("fit", run.parent / "plain.csv", *FAST, "--out", "locked", says="locked")


def test_what_fails_in_training_leaves_nothing_behind(run: Path) -> None:
    refused("fit", run.parent / "plain.csv", *FAST, "--model", "lenet5", says="lenet5")


def test_an_older_run_outlives_a_failure(run: Path) -> None:
    data = run.parent / "plain.csv"
    good("fit", data, *FAST, "--out", "new")
    refused("fit", data, *FAST, "--out", "new", "--overwrite", "--seed", 2**32, says="Seed")


def test_an_older_report_does_not_outlive_a_new_run(run: Path) -> None:
    good("fit", run.parent / "plain.csv", *FAST, "--out", "new")
    write_bytes(Path("new/report.html"), "old")
    good("fit", run.parent / "plain.csv", *FAST, "--out", "new", "--overwrite", "--seed", 1)
    assert not Path("new/report.html").exists()


def test_what_is_our_fault_is_said_to_be(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(fitting, "_summary", broken)
    answer = pollux("fit", run.parent / "plain.csv", *FAST, "--out", "new")
    assert answer.code == 1
    assert "Traceback" in answer.err
    assert "fault of pollux" in answer.err
    assert [path.name for path in Path("new").iterdir()] == ["unfinished"]


def test_ctrl_c_outside_of_training_writes_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "read_rows", stopped)
    assert pollux("fit", run.parent / "plain.csv", *FAST, "--out", "new").code == 130
    monkeypatch.setattr(GeminiClustering, "predict_proba", stopped)
    answer = pollux("predict", run, run.parent / "plain.csv", "--out", "new.csv")
    assert answer.code == 130
    assert "Traceback" not in answer.err
    assert not list(Path().iterdir())


# Predictions


@pytest.mark.parametrize("name", TABLES)
def test_any_format_is_predicted_as_it_was_trained(run: Path, name: str) -> None:
    table_in(Path(), name, frame())
    good("predict", run, name, "--out", "new.csv")
    same_rows("new.csv", run / "clusters.csv")


def test_predictions_are_written_in_every_format(run: Path) -> None:
    data = run.parent / "plain.csv"
    answer = good("predict", run, data, "--out", "new.csv")
    assert answer == (0, "30 rows written to new.csv\n", "")
    expected = pd.read_csv("new.csv")
    good("predict", run, data, "--out", "new.tsv")
    pd.testing.assert_frame_equal(pd.read_csv("new.tsv", sep="\t"), expected)
    for name in ("new.parquet", "new.pq"):
        good("predict", run, data, "--out", name)
        found = pd.read_parquet(name)
        pd.testing.assert_frame_equal(found.astype(expected.dtypes), expected, rtol=1e-6)
    printed = good("predict", run, data)
    assert printed.out == Path("new.csv").read_text()
    assert printed.err == ""
    answer = good("predict", run, data, "--out", "new.csv", "--json")
    assert json.loads(answer.out) == {"rows": 30, "left_out": 0, "unseen": {}, "out": "new.csv"}
    refused("predict", run, data, "--json", says="--out")
    refused("predict", run, data, "--out", "new.xlsx", says="new.xlsx")
    refused("predict", run, data, "--out", "nowhere/new.csv", says="nowhere")
    Path("folder.csv").mkdir()
    refused("predict", run, data, "--out", "folder.csv", says="folder.csv")


@pytest.mark.parametrize("name", ["plain.csv", "table.parquet", "stream.arrow"])
def test_parts_of_any_size_give_the_same(run: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    table_in(Path(), name, frame())
    for size in (1, 7, 30):
        monkeypatch.setattr(table_files, "ROWS_AT_ONCE", size)
        for out in ("new.csv", "new.parquet"):
            good("predict", run, name, "--out", out)
        same_rows("new.csv", run / "clusters.csv")
        pd.read_parquet("new.parquet").to_csv("parquet.csv", index=False)
        same_rows("parquet.csv", run / "clusters.csv")


def test_parts_of_arrays_and_images_give_the_same(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_folder, "ROWS_AT_ONCE", 5)
    good("predict", pictures, pictures.parent / "images", "--out", "new.csv")
    same_rows("new.csv", pictures / "clusters.csv")
    X = np.random.default_rng(0).normal(size=(20, 3))
    np.save("array.npy", X)
    np.savez("array.npz", X=X)
    good("fit", "array.npy", *FAST, "--out", "run")
    monkeypatch.setattr(array_files, "ROWS_AT_ONCE", 7)
    for name in ("array.npy", "array.npz"):
        good("predict", "run", name, "--out", "new.csv")
        same_rows("new.csv", "run/clusters.csv")


def test_images_of_another_size_are_scaled_to_that_of_training(pictures: Path) -> None:
    images_in(Path("larger"), pixels(4, 20, 12, 3))
    good("predict", pictures, "larger", "--out", "new.csv")
    assert list(pd.read_csv("new.csv")["file"]) == [f"{index:02}.png" for index in range(4)]


def test_columns_are_matched_by_name(run: Path) -> None:
    data = frame()
    table_in(Path(), "plain.csv", data[data.columns[::-1]].assign(more="x"))
    good("predict", run, "plain.csv", "--out", "new.csv")
    same_rows("new.csv", run / "clusters.csv")
    table_in(Path(), "plain.csv", data[["alive", "colour", "count", "weight", "size"]])
    good("predict", run, "plain.csv", "--out", "new.csv")
    assert list(pd.read_csv("new.csv")) == ["row", "cluster", *PROBABILITIES, "entropy"]
    for name in ("plain.csv", "table.parquet", "stream.arrow"):
        table_in(Path(), name, data.drop(columns=["size", "colour"]))
        refused("predict", run, name, says="'size', 'colour'")


def test_further_identifiers_are_written(run: Path) -> None:
    good("predict", run, run.parent / "plain.csv", "--id", "unit,size", "--id", "count", "--out", "new.csv")
    found = pd.read_csv("new.csv")
    assert list(found)[:5] == ["row", "name", "unit", "size", "count"]
    np.testing.assert_array_equal(found["size"], frame()["size"])
    refused("predict", run, run.parent / "plain.csv", "--id", "nothing", says="'nothing'")


def test_values_that_training_has_not_seen_are_noted(run: Path) -> None:
    data = frame()
    data.loc[[3, 4], "colour"] = "purple"
    table_in(Path(), "plain.csv", data)
    answer = good("predict", run, "plain.csv", "--out", "new.csv")
    assert (
        answer.err == "note: 2 values of column 'colour' were not seen in training; they count as none of its values\n"
    )
    answer = good("predict", run, "plain.csv", "--out", "new.csv", "--json")
    assert json.loads(answer.out)["unseen"] == {"colour": 2}
    assert answer.err == ""


def test_rows_that_lack_values_are_refused_filled_or_left_out(run: Path) -> None:
    data = frame()
    data.loc[[3, 4], "size"] = np.nan
    for name in ("plain.csv", "table.parquet"):
        table_in(Path(), name, data)
        refused("predict", run, name, "--out", "new.csv", says="'size' (2)")
        good("predict", run, name, "--out", "filled.csv", "--missing", "mean")
        assert len(pd.read_csv("filled.csv")) == 30
        answer = good("predict", run, name, "--out", "dropped.csv", "--missing", "drop")
        assert answer.err == "note: 2 rows lack values and were left out\n"
        whole, dropped = pd.read_csv(run / "clusters.csv"), pd.read_csv("dropped.csv")
        expected = whole.drop(index=[3, 4]).reset_index(drop=True)
        pd.testing.assert_frame_equal(dropped, expected, rtol=1e-5)
        Path("filled.csv").unlink()
        Path("dropped.csv").unlink()


def test_what_was_done_about_missing_values_in_training_is_done_again() -> None:
    data = frame()
    data.loc[[3, 4], "size"] = np.nan
    table_in(Path(), "plain.csv", data)
    for missing in ("mean", "drop"):
        good("fit", "plain.csv", *FAST, "--missing", missing, "--out", missing)
        good("predict", missing, "plain.csv", "--out", "new.csv")
        same_rows("new.csv", Path(missing, "clusters.csv"))


def test_marks_of_missing_values_are_known_from_training() -> None:
    data = frame().astype({"size": object})
    data.loc[[3, 4], "size"] = "?"
    table_in(Path(), "plain.csv", data)
    good("fit", "plain.csv", *FAST, "--na", "?", "--missing", "mean", "--out", "run")
    good("predict", "run", "plain.csv", "--out", "new.csv")
    same_rows("new.csv", "run/clusters.csv")


def test_a_file_without_rows_has_no_predictions(run: Path) -> None:
    write_bytes(Path("none.csv"), delimited(frame()).splitlines()[0] + "\n")
    for out in ("new.csv", "new.parquet"):
        assert good("predict", run, "none.csv", "--out", out).out == f"0 rows written to {out}\n"
    assert list(pd.read_csv("new.csv")) == ["row", "name", "cluster", *PROBABILITIES, "entropy"]


@pytest.mark.parametrize("case", ["gap in numbers", "first rows dropped", "first names missing"])
def test_identifiers_may_have_gaps_in_any_part(run: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(table_files, "ROWS_AT_ONCE", 7)
    data = frame()
    options: list[str] = []
    if case == "gap in numbers":
        data["number"] = pd.array([*range(20), *[None] * 10], dtype="Int64")
        options = ["--id", "number"]
    elif case == "first rows dropped":
        data.loc[:8, "size"] = np.nan
        options = ["--missing", "drop"]
    else:
        data.loc[:8, "name"] = None
    parquet.write_table(as_table(data), "gaps.parquet")
    good("predict", run, "gaps.parquet", "--out", "new.parquet", *options)


@pytest.mark.parametrize("out", ["old.csv", "old.parquet"])
def test_an_error_in_mid_file_leaves_the_old_file(run: Path, out: str) -> None:
    data = pd.concat([frame()] * 100)
    write_bytes(Path("long.csv"), delimited(data) + "x,no number,1,1,red,True,cm,1\n")
    good("predict", run, run.parent / "plain.csv", "--out", out)
    refused("predict", run, "long.csv", "--out", out, says="no number")
    refused("predict", run, "long.csv", "--out", f"new{out}", says="no number")


def test_an_error_after_rows_were_written_leaves_the_old_file(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "ROWS_AT_ONCE", 7)
    data = frame()
    data.loc[29, "size"] = np.inf
    parquet.write_table(as_table(data), "late.parquet")
    for out in ("old.csv", "old.parquet"):
        good("predict", run, run.parent / "plain.csv", "--out", out)
        refused("predict", run, "late.parquet", "--out", out, says="'size'")


@pytest.mark.parametrize("name", ["plain.csv", "table.parquet"])
def test_the_data_are_not_overwritten(run: Path, name: str) -> None:
    table_in(Path(), name, frame())
    refused("predict", run, name, "--out", name, says=name)


def test_a_file_gets_the_permissions_of_any_new_file(run: Path) -> None:
    write_bytes(Path("usual"), "x")
    good("predict", run, run.parent / "plain.csv", "--out", "new.csv")
    assert Path("new.csv").stat().st_mode == Path("usual").stat().st_mode


def test_a_model_file_is_as_good_as_a_run(run: Path) -> None:
    good("predict", run / "model.safetensors", run.parent / "plain.csv", "--out", "new.csv")
    same_rows("new.csv", run / "clusters.csv")


def test_files_without_a_header_are_read_as_in_training() -> None:
    write_bytes(Path("bare.csv"), "".join(f"{index * index % 17},{index % 5}\n" for index in range(20)))
    good("fit", "bare.csv", *FAST, "--no-header", "--out", "run")
    good("predict", "run", "bare.csv", "--out", "new.csv")
    same_rows("new.csv", "run/clusters.csv")


def test_the_delimiter_of_training_is_remembered() -> None:
    write_bytes(Path("spaces.csv"), "a b\n" + "".join(f"{index * index % 17} {index % 5}\n" for index in range(20)))
    good("fit", "spaces.csv", *FAST, "--delimiter", " ", "--out", "run")
    good("predict", "run", "spaces.csv", "--out", "new.csv")


def test_another_delimiter_than_in_training_is_seen() -> None:
    good("fit", table_in(Path(), "pipes.txt", frame()), *FAST, "--delimiter", "|", "--out", "run")
    good("predict", "run", table_in(Path(), "plain.csv", frame()), "--out", "new.csv")
    same_rows("new.csv", "run/clusters.csv")


def test_what_cannot_be_predicted_is_said(run: Path, pictures: Path) -> None:
    data = run.parent / "plain.csv"
    np.save("array.npy", np.ones((3, 3)))
    refused("predict", run, "array.npy", says="trained on a table")
    refused("predict", run, pictures.parent / "images", says="not trained on images")
    refused("predict", pictures, data, says="is a table")
    refused("predict", pictures, "array.npy", says="shape")
    refused("predict", run, "nowhere.csv", says="nowhere.csv")
    refused("predict", "nowhere", data, says="nowhere")
    refused("predict", ".", data, says="not the folder of a run")
    refused("predict", data, data, says="not a run")
    for name in ("plain.csv", "table.parquet"):
        table_in(Path(), name, frame().assign(size="word"))
    refused("predict", run, "plain.csv", says="'word'")
    refused("predict", run, "table.parquet", says="'size'")


def test_a_column_that_holds_no_numbers_is_named(run: Path) -> None:
    table_in(Path(), "plain.csv", frame().assign(size="word"))
    refused("predict", run, "plain.csv", says="'size'")


def test_a_free_table_and_a_model_from_python_are_refused(run: Path) -> None:
    data = run.parent / "plain.csv"
    good("fit", data, *FAST, "--model", "free", "--out", "free")
    refused("predict", "free", data, says="free table")
    refused("export", "free", "--onnx", "new.onnx", says="free table")
    GeminiClustering(3, max_epochs=2).fit(np.random.default_rng(0).normal(size=(20, 4))).save("own")
    refused("predict", "own", data, says="from Python")


# Reports and exports: their contents are tested elsewhere


def test_a_report_is_written(run: Path) -> None:
    data = run.parent / "plain.csv"
    np.save("map.npy", np.random.default_rng(0).normal(size=(30, 2)))
    for options in (
        [],
        [data],
        ["--label", "colour"],
        ["--label", ""],
        ["--map", "size,weight"],
        ["--map", "map.npy"],
        [table_in(Path(), "table.parquet", frame(12, seed=1))],
        [table_in(Path(), "tabs.tsv", frame(12, seed=1).drop(columns=["class", "name"]))],
    ):
        answer = good("report", run, *options, "--out", "new.html")
        assert answer == (0, "report written to new.html\n", "")
        assert "<html" in Path("new.html").read_text()[:500]
        Path("new.html").unlink()
    good("report", run / "model.safetensors", data, "--out", "new.html")


def test_a_report_lies_in_the_run(run: Path) -> None:
    good("fit", run.parent / "plain.csv", *FAST, "--out", "new")
    good("report", "new")
    assert Path("new/report.html").stat().st_size > 1000


def test_reports_of_arrays_images_and_free_tables_are_written(run: Path, pictures: Path) -> None:
    good("report", pictures, "--out", "images.html")
    X = np.random.default_rng(0).normal(size=(20, 3))
    np.savez("array.npz", X=X, y=np.arange(20) % 3)
    good("fit", "array.npz", *FAST, "--label", "y", "--out", "new")
    good("report", "new", "--map", "0,2")
    refused("report", "new", "--map", "0,3", says="0,3")
    np.save("coloured.npy", pixels(12, 8, 8, 3))
    good("fit", "coloured.npy", *FAST, "--out", "coloured")
    good("report", "coloured")
    good("fit", run.parent / "plain.csv", *FAST, "--model", "free", "--out", "free")
    good("report", "free")
    refused("report", "free", table_in(Path(), "plain.csv", frame(12)), says="free table")


def test_reports_of_rows_that_lack_values_are_written() -> None:
    data = frame()
    data.loc[[3, 4], "size"] = np.nan
    table_in(Path(), "plain.csv", data)
    np.save("map.npy", np.random.default_rng(0).normal(size=(30, 2)))
    for missing in ("mean", "drop"):
        good("fit", "plain.csv", *FAST, "--missing", missing, "--out", missing)
        good("report", missing)
        good("report", missing, "--map", "map.npy")
        good("report", missing, "--map", "size,weight")


def test_what_cannot_be_reported_is_said(run: Path) -> None:
    np.save("map.npy", np.ones((3, 2)))
    refused("report", run, "--map", "size", says="two axes")
    refused("report", run, "--map", "size,nothing", says="'nothing'")
    refused("report", run, "--map", "size,colour", says="numbers")
    refused("report", run, "--map", "map.npy", says="(30, 2)")
    refused("report", run, "--map", "nowhere.npy", says="nowhere.npy")
    refused("report", run, "--label", "nothing", says="'nothing'")
    refused("report", run, "nowhere.csv", says="nowhere.csv")
    refused("report", run / "model.safetensors", says="pollux report RUN DATA")
    refused("report", run, "--out", "nowhere/new.html", says="nowhere")


def test_a_run_that_is_not_there_is_said_to_be_missing() -> None:
    refused("report", "nowhere", says="no run nowhere")


def test_a_run_whose_data_have_gone_says_so() -> None:
    good("fit", table_in(Path(), "plain.csv", frame()), *FAST, "--out", "run")
    Path("plain.csv").unlink()
    refused("report", "run", says="plain.csv")


def test_a_model_is_exported(run: Path, pictures: Path) -> None:
    for folder in (run, run / "model.safetensors", pictures):
        answer = good("export", folder, "--onnx", "new.onnx")
        assert answer.out.startswith("model written to new.onnx")
        assert answer.err == ""
        assert Path("new.onnx").stat().st_size > 1000
        Path("new.onnx").unlink()
    refused("export", "nowhere", "--onnx", "new.onnx", says="nowhere")
    refused("export", run, "--onnx", "nowhere/new.onnx", says="nowhere")


def test_a_broken_run_is_said_to_be(run: Path) -> None:
    good("fit", run.parent / "plain.csv", *FAST, "--out", "broken")
    write_bytes(Path("broken/run.toml"), "nonsense = 1")
    refused("predict", "broken", run.parent / "plain.csv", says="nonsense")
    write_bytes(Path("broken/model.safetensors"), b"rubbish")
    refused("predict", "broken", run.parent / "plain.csv", says="model")


def test_standard_output_may_be_closed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever read it has seen enough."""

    class Closed(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _: Any) -> int:
            raise BrokenPipeError

        def fileno(self) -> int:
            return number

    with Path("somewhere").open("wb") as somewhere:
        number = somewhere.fileno()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(Closed()))  # type: ignore[arg-type]
        assert cli.main(["predict", str(run), str(run.parent / "plain.csv")]) == 0


def test_settings_are_refused_as_input_errors() -> None:
    with pytest.raises(InputError, match="clusters"):
        Settings(clusters=0)
    assert issubclass(InputError, ValueError)
