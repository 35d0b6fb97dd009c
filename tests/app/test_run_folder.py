"""Nothing that was learned or written is lost: by Ctrl-C, by a second run, by what is written half."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from data_files import FAST, frame, pollux, tree, write_bytes, write_table
from pollux import load
from pollux.app import run_folder, run_training
from pollux.app.run_data import RunData, classes_of, open_run_data
from pollux.app.run_training import start_run
from pollux.app.settings import Settings
from pollux.data.sources import open_data
from pollux.errors import InputError, did_you_mean
from pollux.training import Checkpoints, Interruptible


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_table(tmp_path, "plain.csv", frame())
    return tmp_path / "plain.csv"


def settings(data: Path, **changes: Any) -> Settings:
    return Settings(data=str(data), n_clusters=3, **{"max_epochs": 3, "n_init": 1, **changes})


def interrupting(function: Callable[..., Any], times: int = 1) -> Callable[..., Any]:
    """The function, begun with Ctrl-C."""

    def interrupted(*arguments: Any, **options: Any) -> Any:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        return function(*arguments, **options)

    return interrupted


# Ctrl-C


@pytest.mark.parametrize("moment", ["write_results", "write_assignments", "_summary"])
def test_one_after_the_training_waits_until_all_is_written(
    data: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home: Any = RunData if moment == "write_assignments" else run_training
    monkeypatch.setattr(home, moment, interrupting(getattr(home, moment)))
    outcome = start_run(settings(data), "run")
    assert not outcome.summary["interrupted"]
    assert outcome.summary["epochs"] == 3
    assert {path.name for path in Path("run").iterdir()} == {
        *("model.safetensors", "run.toml", "clusters.csv", "summary.json", "checkpoints")
    }


def test_a_second_one_gives_up_and_leaves_the_checkpoints(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RunData, "write_assignments", interrupting(RunData.write_assignments, times=2))
        with pytest.raises(run_folder.StoppedWithCheckpoint):
            start_run(settings(data), "run")
    assert [path.name for path in Path("run").iterdir()] == ["unfinished"]
    assert pollux("fit", "--resume", "run").code == 0
    assert not Path("run/unfinished").exists()


def test_the_handler_of_the_program_is_put_back(data: Path) -> None:
    own = signal.getsignal(signal.SIGINT)
    start_run(settings(data), "run")
    assert signal.getsignal(signal.SIGINT) is own


def test_in_another_thread_signals_are_left_alone() -> None:
    found = []

    def work() -> None:
        with run_training.stop_on_signals(Checkpoints("checkpoints")):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


# Folders


def test_two_runs_of_one_file_never_share_a_folder(data: Path) -> None:
    with run_folder.create_run_folder(None, data) as first, run_folder.create_run_folder(None, data) as second:
        assert first != second
        (second / "model").touch()
        with pytest.raises(RuntimeError), run_folder.create_run_folder(None, data) as third:
            raise RuntimeError
        assert third not in (first, second)
        assert not third.exists()
    assert (second / "model").exists()


def test_an_older_run_is_whole_until_the_new_one_is(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_run(settings(data), "run")
    pollux("report", "run")
    before = tree(Path("run"))

    def failing(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("full disk")

    monkeypatch.setattr(run_training, "write_text", failing)
    with pytest.raises(RuntimeError, match="full disk"):
        start_run(settings(data, random_state=1), "run", overwrite=True)
    # What the new one has learned is kept beside it.
    assert Path("run/unfinished").is_dir()
    shutil.rmtree("run/unfinished")
    assert tree(Path("run")) == before


def test_a_report_of_an_older_model_is_removed_and_that_is_said(data: Path) -> None:
    start_run(settings(data), "run")
    assert pollux("report", "run").code == 0
    answer = pollux("fit", data, *FAST, "--out", "run", "--overwrite")
    assert "report.html showed an older model" in answer.err
    assert not Path("run/report.html").exists()


# What a run remembers


def test_a_free_table_knows_its_rows_and_their_order(data: Path) -> None:
    start_run(settings(data, model="free"), "run")
    assert pollux("report", "run").code == 0
    pd.read_csv(data).iloc[::-1].to_csv("reversed.csv", index=False)
    answer = pollux("report", "run", "reversed.csv")
    assert answer.code == 2
    assert "in their order" in answer.err


def test_settings_that_were_changed_are_not_resumed(data: Path) -> None:
    start_run(settings(data), "run")
    text = Path("run/run.toml").read_text().replace('objective = "mmd_ova"', 'objective = "mi"')
    Path("run/run.toml").write_text(text)
    answer = pollux("fit", "--resume", "run", "--epochs", "5")
    assert answer.code == 2
    assert "objective" in answer.err


def test_a_resumed_run_says_so(data: Path) -> None:
    start_run(settings(data), "run")
    for epochs in (4, 6):
        assert pollux("fit", "--resume", "run", "--epochs", epochs).code == 0
    assert json.loads(Path("run/summary.json").read_text())["resumed_after"] == [3, 4]
    assert pollux("report", "run").code == 0
    assert "resumed after epoch 3, 4" in Path("run/report.html").read_text()


def test_patience_ends_a_resumed_training_too(data: Path) -> None:
    start_run(settings(data, patience=2, learning_rate=1e-12), "run")
    answer = pollux("fit", "--resume", "run", "--epochs", "50", "--json")
    assert json.loads(answer.out)["epochs"] < 20


def test_a_folder_is_loaded_as_its_model_is(data: Path) -> None:
    start_run(settings(data), "run")
    rows = pd.read_csv(data)
    np.testing.assert_array_equal(load("run").predict(rows), load("run/model.safetensors").predict(rows))


# Classes, codes and names


def test_rows_without_a_class_are_not_scored(data: Path) -> None:
    rows = pd.read_csv(data)
    whole = start_run(settings(data, label="class"), "whole").summary["scores"]
    assert whole["rows_with_a_class"] == len(rows)
    known = np.arange(len(rows)) % 3 > 0
    rows.loc[~known, "class"] = None
    rows.to_csv("part.csv", index=False)
    outcome = start_run(settings(Path("part.csv"), label="class"), "part")
    assert outcome.summary["scores"]["rows_with_a_class"] == known.sum()
    labels = pd.read_csv("part/clusters.csv")["cluster"][known]
    from pollux.metrics import adjusted_rand_index

    expected = adjusted_rand_index(rows["class"][known].astype(str), labels)
    assert outcome.summary["scores"]["adjusted_rand_index"] == pytest.approx(expected)


def test_dates_are_classes_as_they_are_written() -> None:
    write_bytes(Path("d.csv"), "x,day\n" + "".join(f"{i * i % 7},2020-01-0{1 + i % 2}\n" for i in range(12)))
    data = open_run_data(Settings(data="d.csv", label="day"))
    classes = classes_of(data.part, "day")
    assert classes is not None
    assert set(classes) == {"2020-01-01", "2020-01-02"}


def test_thousands_of_values_are_no_classes() -> None:
    write_bytes(Path("many.csv"), "x,who\n" + "".join(f"{i % 7},w{i}\n" for i in range(1500)))
    data = open_run_data(Settings(data="many.csv", label="who"))
    with pytest.raises(InputError, match="not classes"):
        classes_of(data.part, "who")


def test_numbers_that_begin_with_zero_are_codes() -> None:
    write_bytes(Path("zip.csv"), "zip,x\n" + "".join(f"{['01067', '10115'][i % 2]},{i * i % 5}\n" for i in range(12)))
    assert open_run_data(Settings(data="zip.csv")).encoding.feature_names == ["zip=01067", "zip=10115", "x"]


def test_a_decimal_comma_is_seen_before_any_line_end() -> None:
    write_bytes(Path("c.csv"), "k;v\r\n" + "".join(f"{i},5;{i * i % 7},25\r\n" for i in range(12)))
    assert open_data("c.csv").read().rows.column("v").to_pylist()[3] == 2.25


def test_arrays_may_bring_the_names_of_their_columns() -> None:
    random = np.random.default_rng(0)
    np.savez("named.npz", X=random.normal(size=(20, 2)), feature_names=np.array(["width", "height"]))
    outcome = start_run(settings(Path("named.npz")), "run")
    assert load(outcome.folder).encoding_.feature_names == ["width", "height"]
    assert open_run_data(Settings(data="named.npz", columns=("height",))).encoding.feature_names == ["height"]


@pytest.mark.parametrize(
    ("name", "valid", "found"),
    [("incom", ["income", "age"], "'income'"), ("INCOME", ["income"], "'income'"), ("zebra", ["income"], "")],
)
def test_a_name_that_is_nearly_right_is_guessed(name: str, valid: list[str], found: str) -> None:
    assert found in did_you_mean(name, valid)
    assert bool(did_you_mean(name, valid)) == bool(found)


def test_threads_are_limited_for_the_training_only(data: Path) -> None:
    import torch

    from pollux import threads

    before = torch.get_num_threads()
    with threads.at_most(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    assert start_run(settings(data, threads=1), "run").summary["epochs"] == 3


# Identifiers


@pytest.mark.parametrize("first", ["100", "0000", "12345678901234567890"], ids=["numbers", "codes", "many digits"])
@pytest.mark.parametrize("missing", ["mean", "drop"])
def test_identifiers_of_any_look_are_written_as_they_are(first: str, missing: str) -> None:
    names = [str(int(first) + i).zfill(len(first)) for i in range(30)]
    rows = "".join(f"{name},{'' if i % 7 == 3 else i * i % 11},{i % 5}\n" for i, name in enumerate(names))
    write_bytes(Path("d.csv"), "id,x,y\n" + rows)
    outcome = start_run(settings(Path("d.csv"), missing=missing), "run")
    assert outcome.summary["identifiers"] == ["id"]
    written = pd.read_csv("run/clusters.csv", dtype={"id": str})
    assert written["id"].tolist() == [names[row] for row in written["row"]]
    assert pollux("predict", "run", "d.csv").out == Path("run/clusters.csv").read_text()


def test_codes_are_seen_wherever_they_stand() -> None:
    late = "".join(f"{1 + i % 5},{i % 7}\n" for i in range(20_000)) + "01,3\n05,4\n"
    write_bytes(Path("late.csv"), "code,x\n" + late)
    assert "code=05" in open_run_data(Settings(data="late.csv")).encoding.feature_names


def test_a_class_that_is_no_number_is_none() -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    labels = [float("nan") if i % 3 == 0 else float(i % 2) for i in range(30)]
    parquet.write_table(pa.table({"x": np.arange(30) ** 2 % 11, "y": labels}), "d.parquet")
    classes = classes_of(open_run_data(Settings(data="d.parquet", label="y")).part, "y")
    assert classes is not None
    assert set(classes) == {"", "0", "1"}


def test_values_not_seen_in_training_are_warned_of(data: Path) -> None:
    start_run(settings(data), "run")
    rows = pd.read_csv(data)
    text = next(name for name in rows if load("run").encoding_.names.count(name) and rows[name].dtype == "str")
    with pytest.warns(UserWarning, match=f"column '{text}' were not seen"):
        load("run").predict(rows.assign(**{text: "never"}))


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_lists_cannot_name_rows(command: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    parquet.write_table(pa.table({"x": np.arange(30) ** 2 % 11, "y": [[i] for i in range(30)]}), "d.parquet")
    start_run(settings(Path("d.parquet")), "run")
    words = ["fit", "d.parquet", *FAST] if command == "fit" else ["predict", "run", "d.parquet"]
    answer = pollux(*words, "--id", "y")
    assert answer.code == 2
    assert "'y'" in answer.err
    assert not answer.out


# Reports and resumed runs


def test_a_report_says_that_the_file_has_changed(data: Path) -> None:
    start_run(settings(data), "run")
    assert pollux("report", "run").code == 0
    assert "has changed since" not in Path("run/report.html").read_text()
    rows = pd.read_csv(data)
    rows.assign(size=2 * rows["size"]).to_csv(data, index=False)
    assert pollux("report", "run").code == 0
    assert "has changed since" in Path("run/report.html").read_text()


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ('geometry = "auto"', 'geometry = "rbf"'),
        ("hidden = [100]", "hidden = [7]"),
        ("penalties = {}", "penalties = {vat = 1.0}"),
    ],
)
def test_no_setting_is_changed_on_the_way(data: Path, was: str, becomes: str) -> None:
    start_run(settings(data), "run")
    path = Path("run/run.toml")
    assert was in path.read_text()
    path.write_text(path.read_text().replace(was, becomes))
    answer = pollux("fit", "--resume", "run", "--epochs", "5")
    assert answer.code == 2
    assert f"{becomes.split()[0]} was" in answer.err


@pytest.mark.parametrize("geometry", ["rbf", "rbf:gamma=0.5", "fourier"])
def test_settings_as_they_were_are_resumed(data: Path, geometry: str) -> None:
    start_run(settings(data, geometry=geometry, penalties={"entropy": 0.1}), "run")
    assert pollux("fit", "--resume", "run", "--epochs", "5").code == 0
    assert len(pd.read_csv("run/clusters.csv")) == 30


def test_an_interrupt_between_two_metrics_leaves_whole_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    from pollux import GeminiClustering
    from pollux.training.epoch_metrics import ClusterMetrics

    calls = []
    compute = ClusterMetrics.compute

    def interrupted(self: Any, ranks: Any = None) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return compute(self, ranks)

    monkeypatch.setattr(ClusterMetrics, "compute", interrupted)
    X = np.random.default_rng(0).normal(size=(20, 2))
    clustering = GeminiClustering(2, max_epochs=9, callbacks=[Interruptible()], random_state=0).fit(X)
    assert {len(values) for values in clustering.history_.values()} == {2}


def test_a_quote_that_is_not_closed_is_said() -> None:
    write_bytes(Path("q.csv"), '"x,y\n' + "1,2\n" * 60_000)
    answer = pollux("fit", "q.csv")
    assert answer.code == 2
    assert "quote" in answer.err


def test_commas_between_thousands_are_no_decimal_commas() -> None:
    write_bytes(Path("t.csv"), "a;b\n" + "".join(f"{i},234;{i}.5\n" for i in range(9)))
    assert open_data("t.csv").read().rows.column("b").to_pylist()[3] == 3.5
