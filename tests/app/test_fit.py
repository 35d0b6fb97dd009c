"""``pollux fit``: what it writes, and that it writes nothing when it cannot do it all."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import good, read_model, refused, same_rows, same_run, summary_of
from data_files import FAST, TABLES, frame, pixels, pollux, write_bytes
from data_files import write_table as table_in
from pollux import GeminiClustering, geometry, load, recipes
from pollux.app import run_data
from pollux.app.fit import make_estimator
from pollux.app.settings import Settings, from_toml, resolve_settings
from pollux.errors import InputError, command_line
from pollux.fitted import Fitted
from pollux.names import SCALINGS
from pollux.recipes import DataKind
from pollux.selection import search
from pollux.spec import Spec, flatten_params
from pollux.training import starting

PROBABILITIES = ["p_0", "p_1", "p_2"]


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
    # Each of three is rounded to four decimals.
    np.testing.assert_allclose(p.sum(1), 1, atol=1.6e-4)
    np.testing.assert_array_equal(p.argmax(1), clusters["cluster"])
    np.testing.assert_allclose(clusters["entropy"], -(p * np.log(p)).sum(1), atol=1e-3)
    summary = summary_of(run)
    assert summary["rows"] == 30
    assert summary["clusters_asked_for"] == 3
    assert not summary["interrupted"]
    assert summary["identifiers"] == ["name"]
    assert [cluster["rows"] for cluster in summary["clusters"]] == list(clusters["cluster"].value_counts().sort_index())
    assert set(summary["scores"]) >= {"adjusted_rand_index", "normalised_mutual_information"}


def test_what_was_found_is_told(run: Path) -> None:
    answer = good("fit", run.parent / "plain.csv", *FAST, "--label", "class")
    assert "  name    not used  an identifier: each row has its own value\n" in answer.out
    assert "  unit    not used  it has one value throughout\n" in answer.out
    assert "  colour  text      3 values\n" in answer.out
    assert [each["name"] for each in summary_of("runs/plain")["columns"]] == list(frame())
    assert "against the known classes" in answer.out
    assert "saved in runs/plain" in answer.out
    assert answer.err == ""


def test_clusters_are_named_by_columns_that_may_hold_anything() -> None:
    rows = pd.DataFrame({"a\x1b[2J" + "b" * 2_000: np.repeat([0.0, 9.0], 20) + np.arange(40) / 100})
    rows.to_csv("odd.csv", index=False)
    good("fit", "odd.csv", *FAST, "--clusters", "2")
    names = read_model("runs/odd")[1]["cluster_names"]
    assert any(names)
    assert all(len(name) <= 1_000 and "\x1b" not in name for name in names)


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
    options = (
        "--clusters",
        "3",
        "--objective",
        "mmd_ova",
        "--restarts",
        "1",
        "--epochs",
        "3",
        "--learning-rate",
        "1e30",
    )
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
        (["--drop", "size,weight,class"], 5),
        (["--as", "id", "size", "--label", "class"], 6),
        (["--columns", "count", "--as", "text", "count"], frame()["count"].nunique()),
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
        refused("fit", path, *FAST, "--missing", "error", "--out", "new", says=says)
    answer = good("fit", "plain.csv", *FAST, "--out", "mean")
    assert "number    1 gap filled\n" in answer.out
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
    assert seen["geometry"] == "rbf:gamma=0.5"
    assert (seen["norm"], seen["init"], seen["schedule"]) == ("batch", "graph", "cosine")
    assert (seen["trial_epochs"], seen["n_components"]) == (8, 6)


def test_restarts_are_few_where_they_take_long() -> None:
    for model, n, expected in [("mlp", 10_000, 5), ("linear", 10_001, 1), ("resnet18", 10, 1), ("free", 10, 5)]:
        assert Spec.of(GeminiClustering(model=model), DataKind(n=n)).n_init == expected
    assert Spec.of(GeminiClustering(model="mlp", n_init=3), DataKind(n=10**6)).n_init == 3


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
    assert (settings["max_epochs"], settings["n_init"]) == (3, 2)
    command = summary_of("run")["command"]
    assert "--preset tables" in command
    assert "--geometry" not in command
    good("fit", "--config", "run/run.toml", "--out", "again")
    same_run("again", "run")
    good(*shlex.split(command)[1:], "--out", "once_more")
    same_run("once_more", "run")
    clustering = read_model("run")[1]
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
        assert settings["penalties"] == recipes.IMAGES["penalties"]
        assert (settings["objective"], settings["geometry"], settings["norm"]) == ("mi", "auto", "batch")
        good("predict", "run", name, "--out", "new.csv")
        same_rows("new.csv", "run/clusters.csv")
        good("report", "run")
        page = Path("run/report.html").read_text()
        assert "Principal components" in page
        assert "divided by one number" in page
    good("export", "run", "--onnx", "new.onnx")


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("tables", GeminiClustering.for_tables),
        ("images", GeminiClustering.for_images),
        ("embeddings", GeminiClustering.for_embeddings),
    ],
)
def test_presets_are_those_of_python(name: str, preset: Any) -> None:
    """But for what is done to numbers before an estimator sees them."""
    made = make_estimator(resolve_settings({"preset": name, "n_clusters": 4, "random_state": 7}), 100)
    plain = {name.rpartition("__")[2]: value for name, value in recipes.PLAIN.items()}
    own, expected = (
        {name: plain.get(name, value) if value == "auto" else value for name, value in flatten_params(each).items()}
        for each in (made, preset(4, random_state=7))
    )
    assert (own.pop("scaling"), own.pop("missing")) == ("none", "error")
    scaling, _ = expected.pop("scaling"), expected.pop("missing")
    assert own == expected
    settings = resolve_settings({"preset": name})
    # Gaps of files are filled, also by recipes for what has none.
    assert (settings.scaling, settings.missing) == (scaling, "mean")


@pytest.mark.parametrize("layer", [("--hidden", "50"), ("--activation", "tanh"), ("--norm", "batch")])
def test_layers_are_those_of_the_mlp(layer: tuple[str, str], tmp_path: Path) -> None:
    message = f"{layer[0]} is of the mlp, and the model is linear: leave one out."
    assert message in refused("fit", "rows.csv", "--model", "linear", *layer)


def test_a_preset_lies_below_all_that_is_said(tmp_path: Path) -> None:
    write_bytes(tmp_path / "c.toml", 'preset = "tables"\nrestarts = 2\nepochs = 5\n')
    settings = from_toml("c.toml", {"max_epochs": 7})
    assert (settings.n_init, settings.max_epochs, settings.geometry) == (2, 7, "mixtures")
    assert from_toml("c.toml", {"preset": "images"}).n_components == 100
    # A kernel is of no use to them, and the user has named none.
    for objective in ("mi", "wasserstein_ova"):
        assert resolve_settings({"preset": "tables", "objective": objective}).geometry == "auto"
    with command_line(), pytest.raises(InputError, match="needs no --geometry"):
        make_estimator(
            resolve_settings({"preset": "tables", "objective": "mi", "geometry": "rbf", "n_clusters": 3}), 100
        )


def test_geometries_of_all_rows_have_parameters() -> None:
    for text, expected in {
        "graph:neighbours=20": geometry.NeighbourGraph(neighbours=20),
        "mixed:neighbours=20,share=0.25": geometry.Mixed(neighbours=20, share=0.25),
        "mixtures:neighbours=20": geometry.Mixtures(neighbours=(20,)),
        "mixtures:neighbours=5,neighbours=9,components=4": geometry.Mixtures(neighbours=(5, 9), components=4),
    }.items():
        assert make_estimator(Settings(geometry=text, n_clusters=3).with_recipe("tables"), 100).geometry == text
        assert geometry.resolve(text, "kernel") == expected


def test_models_have_parameters(run: Path) -> None:
    data = run.parent / "plain.csv"
    for model in ("kernel:landmarks=9", "soft_tree:cuts=2,features=size,features=count"):
        good("fit", data, *FAST, "--model", model, "--out", "own", "--overwrite")
        assert tomllib.loads(Path("own/run.toml").read_text())["model"] == model
        assert model in summary_of("own")["command"]
        good("fit", "--config", "own/run.toml", "--out", "again", "--overwrite")
        assert Path("again/clusters.csv").read_bytes() == Path("own/clusters.csv").read_bytes()
    fitted = load("own/model.safetensors").fitted_
    assert [fitted.encoding.feature_names[index] for index in fitted.module.features] == ["size", "count"]


def test_features_of_a_model_may_have_numbers_for_names() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 3))
    pd.DataFrame(rows, columns=["1", "2020", "z"]).to_csv("rows.csv", index=False)
    for feature, index in (("1", 0), ("2020", 1), ("2", 2)):
        good("fit", "rows.csv", *FAST, "--model", f"soft_tree:features={feature}", "--out", feature)
        assert load(f"{feature}/model.safetensors").fitted_.module.features == [index]
    refused("fit", "rows.csv", *FAST, "--model", "soft_tree:features=3", says="there are '1', '2020', 'z'")


def test_the_agreement_of_restarts_is_told(run: Path) -> None:
    options = ("--clusters", 3, "--objective", "mmd_ova", "--epochs", 2, "--restarts", 3)
    answer = good("fit", run.parent / "plain.csv", *options, "--out", "several")
    stability = summary_of("several")["stability"]
    assert stability < 0.9
    assert f"restarts disagree (adjusted Rand index {stability:.2f})" in answer.out + answer.err
    good("report", "several")
    assert "Agreement of the restarts" in Path("several/report.html").read_text()
    assert summary_of(run)["stability"] is None
    answer = good("fit", run.parent / "plain.csv", *FAST, "--out", "one")
    assert "agreement" not in answer.out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--preset", "tables", "--max-samples", "0"],
            "--geometry mixtures and --init kmeans must look at all of them",
        ),
        (
            ["--preset", "images", "--max-samples", "0"],
            "--n-components 100 and --init graph and --penalties local_vat must",
        ),
        (["--geometry", "graph:neighbours=3"], "--geometry graph:neighbours=3 must"),
    ],
)
def test_what_needs_all_rows_is_refused_before_a_stream_is_read(
    monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    table_in(Path(), "table.parquet", frame())

    def never(*_: Any) -> None:
        raise AssertionError("the rows are read")

    monkeypatch.setattr(run_data, "learn_encoding", never)
    told = refused("fit", "table.parquet", "--stream", "yes", "--clusters", 3, *options, says=says)
    assert "--stream no" in told
    assert "--max-samples 20000" in told


@pytest.mark.parametrize("preset", ["tables", "images"])
def test_recipes_learn_from_some_rows_of_a_stream(preset: str) -> None:
    np.save("rows.npy", np.random.default_rng(0).normal(size=(60, 4)) + 9 * np.repeat(np.eye(4)[:3], 20, axis=0))
    options = ("--preset", preset, "--max-samples", 30, "--clusters", 3, "--epochs", 2, "--trial-epochs", 0)
    answer = good("fit", "rows.npy", *options, "--stream", "yes", "--out", "run")
    assert "\nlearned from 30 of 60 rows\n" in answer.out
    assert good("predict", "run", "rows.npy", "--out", "predicted.csv", "--quiet") == (0, "", "")
    summary = summary_of("run")
    assert sum(cluster["rows"] for cluster in summary["clusters"]) == 60
    assert (summary["rows"], summary["rows_learned_from"], summary["streamed"]) == (60, 30, True)
    answer = good("fit", "rows.npy", *FAST, "--out", "held")
    assert "learned from" not in answer.out
    assert (summary_of("held")["rows_learned_from"], summary_of("held")["streamed"]) == (60, False)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_streamed_numbers_are_scaled_as_those_that_are_held(scaling: str) -> None:
    table_in(Path(), "table.parquet", frame()[["size", "alive"]].assign(length=frame()["size"] * 2))
    np.save("pixels.npy", pixels(12, 4, 4, 3))
    for name in ("table.parquet", "pixels.npy"):
        for stream in ("yes", "no"):
            options = ("--scaling", scaling, "--stream", stream, "--model", "linear", "--overwrite")
            good("fit", name, *FAST, *options, "--out", stream)
        held, streamed = (read_model(stream)[1]["preprocessing"] for stream in ("no", "yes"))
        assert json.dumps(held) == json.dumps(streamed)


def test_runs_whose_epochs_are_left_to_us_go_on(run: Path) -> None:
    # Fewer epochs than those of 200 steps, which a run of so few rows would have.
    data = run.parent / "plain.csv"
    options = ("--clusters", 3, "--restarts", 1, "--model", "linear")
    good("fit", data, *options, "--epochs", "auto", "--out", "auto")
    assert summary_of("auto")["epochs"] == 200
    refused("fit", "--resume", "nowhere", says="There is no run nowhere")
    refused("fit", "--resume", "auto", says="has had its 200 epochs")
    refused("fit", "--resume", "auto", "--epochs", 100, says="has had its 200 epochs")
    good("fit", "--resume", "auto", "--epochs", 202)
    assert summary_of("auto")["epochs"] == 202
    good("fit", data, *options, "--epochs", 3, "--schedule", "cosine", "--out", "falls")
    refused("fit", "--resume", "falls", "--epochs", 5, says="--config falls/run.toml --epochs 5")
    good("fit", "--config", "falls/run.toml", "--epochs", 5, "--out", "longer")
    refused("fit", "--resume", "falls", "--epochs", "auto", says="--epochs N")
    refused("fit", "--resume", "falls", "--preset", "tables", says="only --epochs")


# Folders, and what goes wrong


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

    monkeypatch.setattr(run_data.RunData, "write_assignments", broken)
    answer = pollux("fit", run.parent / "plain.csv", *FAST, "--out", "new")
    assert answer.code == 1
    assert "Traceback" in answer.err
    assert "fault of pollux" in answer.err
    assert [path.name for path in Path("new").iterdir()] == ["unfinished"]


def test_ctrl_c_outside_of_training_writes_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_data, "open_run_data", stopped)
    assert pollux("fit", run.parent / "plain.csv", *FAST, "--out", "new").code == 130
    monkeypatch.setattr(Fitted, "probabilities", stopped)
    answer = pollux("predict", run, run.parent / "plain.csv", "--out", "new.csv")
    assert answer.code == 130
    assert "Traceback" not in answer.err
    assert not list(Path().iterdir())


# Without options


def test_a_bare_command_finds_the_number_and_uses_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_FEWEST_STEPS", 40)
    random = np.random.default_rng(0)
    X = np.repeat([[0, 0], [60, 0], [0, 60]], 20, axis=0) + random.normal(size=(60, 2))
    X[3, 0] = np.nan
    pd.DataFrame(X, columns=["a", "b"]).to_csv("three.csv", index=False)
    monkeypatch.setattr(search, "_QUICK_CLUSTERS", 4)
    answer = good("fit", "three.csv", "--epochs", 3, "--out", "run")
    assert "a quick look suggests 3 clusters; --n-clusters N sets it" in answer.out
    with monkeypatch.context() as few:
        few.setattr(search, "_QUICK_CLUSTERS", 3)
        most = good("fit", "three.csv", "--epochs", 3, "--out", "most").out
        assert "a quick look suggests 3 clusters, the most it looks for; --n-clusters N sets it" in most
    assert "method: the recipe for tables (--preset tables)" in answer.out
    composed = good("fit", "three.csv", "--epochs", 3, "--clusters", 3, "--model", "linear", "--penalty", "vat=2").out
    assert "method: objective mmd_ova, model linear, penalty vat=2 (no recipe" in composed
    assert "1 gap filled" in answer.out
    summary = summary_of("run")
    assert (summary["recipe"], summary["clusters_asked_for"], summary["clusters_found"]) == ("tables", 3, 3)
    assert summary["command"].endswith("three.csv --preset tables --n-clusters 3 --max-epochs 3")
    settings = tomllib.loads(Path("run/run.toml").read_text())
    assert (settings["n_clusters"], settings["geometry"]) == (3, "mixtures")
    noise = pd.DataFrame(random.normal(size=(60, 3)), columns=["a", "b", "c"])
    noise.to_csv("noise.csv", index=False)
    answer = good("fit", "noise.csv", "--objective", "mmd_ova", "--epochs", 1, "--out", "none")
    assert "a quick look does not tell how many clusters there are:" in answer.out
    assert summary_of("none")["recipe"] is None


def test_wide_rows_of_one_kind_are_recognised() -> None:
    assert recipes.recognise_kind(1_000, (64,), True) == "images"
    for n, shape, is_of_one_kind in [(999, (64,), True), (1_000, (63,), True), (1_000, (64,), False)]:
        assert recipes.recognise_kind(n, shape, is_of_one_kind) == "tables"
    assert recipes.recognise_kind(10, (1, 8, 8), False) == "images"
    assert recipes.recognise_kind(20, (64,), False, True) == "embeddings"
    assert recipes.recognise_kind(20, (63,), False, True) == "tables"


@pytest.mark.parametrize("name", ["vectors.npy", "vectors.parquet"])
@pytest.mark.parametrize("stream", ["no", "yes"])
def test_embeddings_in_files_are_recognised(name: str, stream: str) -> None:
    vectors = np.random.default_rng(0).normal(size=(60, 64)) + np.repeat(np.eye(3, 64) * 20, 20, axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    if name.endswith("npy"):
        np.save(name, vectors)
    else:
        pd.DataFrame(vectors, columns=[f"d{i}" for i in range(64)]).to_parquet(name)
    answer = good("fit", name, "--stream", stream, "--clusters", 3, "--epochs", 2, "--out", "run")
    assert "method: the recipe for embeddings (--preset embeddings)" in answer.out
    assert summary_of("run")["recipe"] == "embeddings"
    assert [cluster["rows"] for cluster in summary_of("run")["clusters"]] == [20, 20, 20]


def test_a_stored_run_is_that_of_settings_which_left_it_to_us() -> None:
    given = Settings(data="d.csv", random_state=3)
    stored = replace(given.with_recipe("tables"), n_clusters=4)
    assert given.is_same_run(stored)
    assert not replace(given, random_state=4).is_same_run(stored)
    assert not replace(given, model="linear").is_same_run(stored)
