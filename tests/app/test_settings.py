"""Settings: the same on the command line, in TOML files and in Python."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shlex
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest

from commands import good, refused, same_rows, same_run, summary_of
from data_files import FAST, frame, pollux, write_bytes
from data_files import write_table as table_in
from pollux import GeminiClustering, names
from pollux.app import cli
from pollux.app.settings import NAMES, OLD_KEYS, Settings, from_toml
from pollux.errors import InputError
from pollux.spec import Spec, flatten_params

PROBABILITIES = ["p_0", "p_1", "p_2"]


def test_a_config_repeats_the_run(run: Path, tmp_path: Path) -> None:
    good("fit", "--config", run / "run.toml", "--out", "again")
    same_run("again", run)


def test_options_override_a_config(run: Path) -> None:
    good("fit", "--config", run / "run.toml", "--clusters", 2, "--seed", 7, "--out", "other")
    settings = tomllib.loads(Path("other/run.toml").read_text())
    assert (settings["n_clusters"], settings["random_state"], settings["max_epochs"]) == (2, 7, 2)
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
    use=("e",),
    kinds={"'": "text", "ä": "id"},
    label="-1",
    missing="drop",
    scaling="global",
    n_components=2,
    na=("?", "-", "-1", ""),
    delimiter="-",
    header=False,
    array="X y",
    image_size=9,
    n_clusters=4,
    objective="mmd_ovo",
    geometry="rbf:gamma=0.5",
    model="linear",
    hidden=(7, 5),
    norm="batch",
    init="kmeans++",
    max_epochs="auto",
    batch_size=8,
    learning_rate=1e-05,
    schedule="cosine",
    n_init=2,
    trial_epochs="auto",
    patience=6,
    penalties={"vat": 0.5, "entropy": 1.0},
    random_state=3,
    device="cpu",
)


def parsed(words: list[str]) -> Settings:
    options = vars(cli.parser("fit").parse_args(words[1:]))
    names = {field.name for field in dataclasses.fields(Settings)}
    return Settings(**{name: value for name, value in options.items() if name in names})


WIDE = dataclasses.replace(STRANGE, hidden="auto")


@pytest.mark.parametrize("settings", [Settings(data="d.csv"), STRANGE, WIDE], ids=["plain", "strange", "wide"])
def test_settings_survive_the_command_line_and_toml(settings: Settings, tmp_path: Path) -> None:
    assert parsed(shlex.split(settings.command())) == settings
    write_bytes(tmp_path / "run.toml", settings.to_toml())
    assert from_toml(tmp_path / "run.toml", {"data": settings.data}) == settings


def test_data_may_begin_with_a_dash() -> None:
    settings = Settings(data="-x.csv")
    assert parsed(shlex.split(settings.command())) == settings


def test_data_may_come_from_standard_input(tmp_path: Path) -> None:
    settings = Settings(data="-")
    assert parsed(shlex.split(settings.command())) == settings
    assert from_toml(write_bytes(tmp_path / "run.toml", settings.to_toml()), {}) == settings


def test_a_link_to_itself_is_refused() -> None:
    Path("loop.csv").symlink_to("loop.csv")
    answer = pollux("fit", "loop.csv", *FAST)
    assert answer.code == 2, answer
    assert "loop.csv" in answer.err


def test_a_trial_of_an_older_version_is_a_quarter(tmp_path: Path) -> None:
    """Only where a run has spelled out all settings: in a file of the user's it is left to us."""
    line = 'trial_epochs = "auto"\n'
    assert from_toml(write_bytes(tmp_path / "run.toml", f"# Made by pollux 0.3.\n{line}"), {}).trial_epochs == 0.25
    assert from_toml(write_bytes(tmp_path / "own.toml", line), {}).trial_epochs == "auto"


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
    # The last two are of what makes the data, which are the data of the run.
    assert options - {"out", "overwrite", "config", "preset", "resume", "json", "quiet", "text", "encoder"} == {
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
        ("batch_size = 'x'", "--batch-size"),
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
        ("learning_rate = 'x'", "--learning-rate"),
        ("broken = ", "not a TOML file"),
        ("data = 'nowhere.csv'", "nowhere.csv"),
        ("", "pollux fit DATA"),
        (b"\xff\xfe", "not a TOML file"),
        ("data = 1", "data"),
        ("data = ['a']", "data"),
        ("a = " + 5000 * "[" + 5000 * "]", "not a TOML file"),
        ("clusters = " + 5000 * "9", "not a TOML file"),
        (20_000 * "a." + "a = 1", "too many parts"),
        ("penalties = {" + 20_000 * "'a' . " + "a = 1}", "too many parts"),
        ("# " + 2_000_000 * "x", "characters"),
        *(
            (f"{name} = " + 400 * "9", name)
            for name in ("clusters", "threads", "image_size", "learning_rate", "epochs")
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_wrong_with_a_config_is_said(tmp_path: Path, text: str | bytes, says: str) -> None:
    refused("fit", "--config", write_bytes(tmp_path / "c.toml", text), says=says.replace("_", "-"))


def test_a_config_must_be_a_file() -> None:
    refused("fit", "--config", "nowhere.toml", says="nowhere.toml")
    refused("fit", "--config", ".", says="not a TOML file")


def test_a_config_may_come_from_another_program(run: Path) -> None:
    """As bash passes it: pollux fit --config <(…)."""
    os.mkfifo("pipe.toml")
    writer = threading.Thread(target=lambda: Path("pipe.toml").write_bytes((run / "run.toml").read_bytes()))
    writer.start()
    good("fit", "--config", "pipe.toml", "--out", "again")
    writer.join()
    same_run("again", run)


def test_data_must_be_a_file_or_a_folder(run: Path) -> None:
    """A pipe would be waited for, for ever."""
    for name in ("pipe.csv", "pipe.npy", "pipe.parquet"):
        os.mkfifo(name)
        for words in (["fit", name], ["select", name], ["predict", run, name], ["report", run, name]):
            answer = pollux(*words)
            assert answer.code == 2
            assert "neither a file nor a folder" in answer.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--objective", "nothing"], "'nothing'"),
        (["--objective", "chi2_ovo"], "chi2_ovo"),
        (["--model", "nothing"], "'nothing'"),
        (["--model", "lenet5"], "lenet5"),
        (["--model", "kernel:landmark=3"], "landmarks"),
        (["--model", "kernel:landmarks=0"], "landmarks"),
        (["--model", "kernel:gamma=1,gamma=2"], "twice"),
        (["--model", "soft_tree:features=nothing"], "nothing"),
        (["--model", "soft_tree:temperature=x"], "temperature"),
        (["--model", "mlp:hidden=3"], "--hidden"),
        (["--model", "linear:"], "no parameters"),
        (["--geometry", "nothing"], "'nothing'"),
        (["--geometry", "euclidean"], "'euclidean'"),
        (["--geometry", "precomputed"], "precomputed"),
        (["--geometry", "rbf:gamma=x"], "gamma=x"),
        (["--geometry", "rbf:gamma"], "gamma"),
        (["--geometry", "rbf:gamma=NaN"], "'gamma=NaN' is not one"),
        (["--geometry", "rbf:gamma=1,gamma=2"], "twice"),
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
        (["--model", "lenet5", "--components", "2"], "--n-components 0"),
        (["--preset", "nothing"], "--preset"),
        (["--batch-size", "0"], "--batch-size"),
        (["--learning-rate", "0"], "--learning-rate"),
        (["--learning-rate", "nan"], "--learning-rate"),
        (["--hidden", "0"], "hidden"),
        (["--hidden", "x"], "--hidden"),
        (["--seed", "-1"], "seed"),
        (["--seed", "4294967296"], "Seed"),
        (["--device", "nothing"], "'nothing'"),
        (["--device", "meta"], "'meta'"),
        (["--device", "hpu"], "'hpu'"),
        (["--delimiter", ";;"], "';;'"),
        (["--label", "nothing"], "'nothing'"),
        (["--columns", "nothing"], "'nothing'"),
        (["--drop", "nothing"], "'nothing'"),
        (["--as", "id", "nothing"], "'nothing'"),
        (["--use", "nothing"], "'nothing'"),
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


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"model": "free:x=1"}, "'free' takes no parameters behind its name; not 'x'"),
        ({"model": "linear:"}, r"'linear' takes no parameters behind its name\.$"),
        ({"model": "kernel:landmark=9"}, "not 'landmark'. Did you mean 'landmarks'"),
        ({"geometry": "rbf:gama=1"}, "'rbf' takes gamma; not 'gama'. Did you mean 'gamma'"),
        ({"geometry": "euclidean:gamma=1"}, "'euclidean' takes no parameters"),
    ],
)
def test_parameters_behind_names_are_refused_before_anything_is_read(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Settings(**given)


def test_settings_are_refused_as_input_errors() -> None:
    with pytest.raises(InputError, match="clusters"):
        Settings(n_clusters=0)
    assert issubclass(InputError, ValueError)


# One face: Python and the command line


def test_settings_are_the_parameters_of_python() -> None:
    """Of the same names and defaults, but for those that are listed."""
    parameters = flatten_params(GeminiClustering())
    # A run has checkpoints and progress of its own.
    for name in ("checkpoint", "verbose", "callbacks"):
        del parameters[name]
    assert parameters.keys() <= set(NAMES)
    # A command gives the same twice, and looks for the number of clusters.
    # Parts of groups that Python leaves to us as wholes.
    left_to_us = {"hidden", "activation", "norm", "n_components"}
    for name, default in parameters.items():
        if name not in left_to_us:
            is_same = Settings().parameter(name) == default
            assert is_same == (name not in ("random_state", "n_clusters")), name
    composed = Settings(model="mlp").with_recipe("tables")
    spec = Spec.of(GeminiClustering(model="mlp"))
    for name in left_to_us:
        group = spec.preprocessing if name == "n_components" else spec.mlp
        assert composed.parameter(name) == getattr(group, name)


def test_short_spellings_are_the_same_options() -> None:
    short = "--clusters 3 --epochs 4 --restarts 2 --seed 7 --components 5 --penalty vat=0.5 --penalty entropy --as id x"
    whole = short
    for spelling, name in OLD_KEYS.items():
        whole = whole.replace(f"--{spelling} ", f"--{name.replace('_', '-')} ")
    assert len(OLD_KEYS) == 7
    assert parsed(["pollux", "fit", "d.csv", *short.split()]) == parsed(["pollux", "fit", "d.csv", *whole.split()])


def test_settings_of_older_versions_are_read(run: Path) -> None:
    """A run whose run.toml has the keys of before is resumed, reported and repeated."""
    good("fit", run.parent / "plain.csv", *FAST, "--penalty", "vat=0.5", "--out", "older")
    new = Path("older/run.toml").read_text()
    older = new.replace('penalties = {"vat" = 0.5}', 'penalty = ["vat=0.5"]')
    for spelling, name in OLD_KEYS.items():
        older = re.sub(rf"^{name} =", f"{spelling} =", older, flags=re.M)
    for name in ("activation", "reshuffle_every", "optimiser", "tol"):
        older = re.sub(rf"^{name} =.*\n", "", older, flags=re.M)
    assert "max_epochs" not in older
    again = from_toml(write_bytes(Path("older.toml"), older), {})
    assert again.with_recipe("tables") == from_toml("older/run.toml", {})
    write_bytes(Path("older/run.toml"), older)
    good("report", "older")
    good("predict", "older", run.parent / "plain.csv", "--out", "new.csv")
    good("fit", "--config", "older/run.toml", "--out", "again")
    same_rows("again/clusters.csv", "older/clusters.csv")
    good("fit", "--resume", "older", "--epochs", 3)
    assert Path("older/run.toml").read_text() == new.replace("max_epochs = 2", "max_epochs = 3")


def test_a_setting_by_its_old_and_its_new_key_is_refused(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "c.toml", "n_clusters = 4\nclusters = 3\n")
    with pytest.raises(InputError, match=r"c\.toml has n_clusters and clusters, which are one setting"):
        from_toml(path, {})


def test_complaints_name_both_spellings() -> None:
    assert "--n-init/--restarts must be at least 1" in refused("fit", "d.csv", "--restarts", 0)
    with pytest.raises(InputError, match="n_init must be at least 1"):
        Settings(n_init=0)


@pytest.mark.parametrize(
    "line", ["penalties = 3", "penalties = {vat = true}", 'kinds = ["zip"]', "kinds = 3", "kinds = [1]"]
)
def test_values_of_another_kind_are_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(f'data = "plain.csv"\n{line}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"penalt|kinds"):
        from_toml(tmp_path / "c.toml", {})
