"""Nothing that was learned or written is lost: by Ctrl-C, by a second run, by what is written half."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch.distributed import TCPStore

from commands import settings
from data_files import FAST, pollux, tree
from pollux import clustering as clustering_module
from pollux import load
from pollux.app import fit, run_folder, signals
from pollux.app.fit import start_run
from pollux.app.run_data import RunData
from pollux.errors import did_you_mean
from pollux.training import Checkpoints, Interruptible


def interrupting(
    function: Callable[..., Any], times: int = 1, number: signal.Signals = signal.SIGINT
) -> Callable[..., Any]:
    """The function, begun with Ctrl-C."""

    def interrupted(*arguments: Any, **options: Any) -> Any:
        for _ in range(times):
            os.kill(os.getpid(), number)
        return function(*arguments, **options)

    return interrupted


# Ctrl-C


@pytest.mark.parametrize("moment", ["_write_results", "write_assignments"])
def test_one_after_the_training_waits_until_all_is_written(
    data: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home: Any = RunData if moment == "write_assignments" else fit
    monkeypatch.setattr(home, moment, interrupting(getattr(home, moment)))
    outcome = start_run(settings(data), "run")
    assert not outcome.summary["interrupted"]
    assert outcome.summary["epochs"] == 3
    assert {path.name for path in Path("run").iterdir()} == {
        *("model.safetensors", "run.toml", "clusters.csv", "summary.json", "checkpoints")
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_before_the_training_is_let_through_at_once(
    data: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Mixtures and graphs of large data take long, and there is nothing yet that could be kept."""
    monkeypatch.setattr(clustering_module, "start", interrupting(clustering_module.start, number=number))
    with pytest.raises(KeyboardInterrupt):
        start_run(settings(data), "run")
    assert not Path("run").exists()


def test_a_second_one_gives_up_and_leaves_the_checkpoints(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RunData, "write_assignments", interrupting(RunData.write_assignments, times=2))
        with pytest.raises(KeyboardInterrupt):
            start_run(settings(data), "run")
    assert [path.name for path in Path("run").iterdir()] == ["unfinished"]
    assert pollux("fit", "--resume", "run").code == 0
    assert not Path("run/unfinished").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_after_the_end_removes_nothing_and_says_so(
    data: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    own = signal.signal(number, signal.default_int_handler)
    monkeypatch.setattr(fit, "_report", interrupting(fit._report, number=number))
    answer = pollux("fit", data, *FAST, "--out", "run")
    signal.signal(number, own)
    assert answer.code == 130
    assert answer.err == "Stopped; what was found is in run, whole.\n"
    assert load("run").n_clusters == 3
    assert {path.name for path in Path("run").iterdir()} == {
        *("model.safetensors", "run.toml", "clusters.csv", "summary.json", "checkpoints")
    }


def test_signals_that_are_ignored_stay_ignored(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nohup has it, or a shell for what runs in its background."""
    own = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    for number in own:
        monkeypatch.setattr(fit, "_fit", interrupting(fit._fit, number=number))
    answer = pollux("fit", data, *FAST, "--out", "run")
    for number, handler in own.items():
        signal.signal(number, handler)
    assert answer.code == 0
    assert answer.err == ""


def test_the_handler_of_the_program_is_put_back(data: Path) -> None:
    own = signal.getsignal(signal.SIGINT)
    start_run(settings(data), "run")
    assert signal.getsignal(signal.SIGINT) is own


def test_in_another_thread_signals_are_left_alone() -> None:
    found = []

    def work() -> None:
        with signals.stop_on_signals(Checkpoints("checkpoints")):
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

    monkeypatch.setattr(RunData, "write_assignments", failing)
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


@pytest.mark.parametrize(
    ("name", "valid", "found"),
    [
        ("incom", ["income", "age"], "'income'"),
        ("INCOME", ["income"], "'income'"),
        ("zebra", ["income"], ""),
        ("--cluster", ["--clusters", "--columns"], "'--clusters'"),
        ("--label", ["--help", "--quiet"], ""),
        ("sale.csv", ["pp.csv", "sales.csv"], "'sales.csv'"),
        ("nope.csv", ["pp.csv"], ""),
    ],
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


@pytest.mark.parametrize("summary", [None, {}, {"epochs": 3, "clusters": [{}], "scores": {}}])
def test_processes_that_are_started_again_after_the_results_are_there_have_ended_well(
    data: Path, monkeypatch: pytest.MonkeyPatch, summary: dict[str, Any] | None
) -> None:
    """Whatever the summary lacks: any other exit code would have the launcher start them once more."""
    words = ("fit", data, *FAST, "--out", "run")
    assert pollux(*words).code == 0
    if summary is not None:
        Path("run/summary.json").write_text(json.dumps(summary))
    before = tree(Path("run"))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    answer = pollux(*words)
    assert answer.code == 0, answer
    assert "saved in run" in answer.out
    assert json.loads(pollux(*words, "--json").out)["folder"] == "run"
    assert tree(Path("run")) == before


def test_an_older_run_that_cannot_be_read_does_not_keep_a_training_from_going_on(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("fit", data, *FAST, "--out", "run")
    assert pollux(*words).code == 0
    shutil.copytree("run/checkpoints", "run/unfinished")
    shutil.copy("run/run.toml", "run/unfinished")
    Path("run/run.toml").write_text("no TOML")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    answer = pollux(*words, "--overwrite")
    assert answer.code == 0, answer
    assert "going on after epoch" in answer.out
    assert not Path("run/unfinished").exists()


def test_all_processes_that_are_started_again_end_well(data: Path) -> None:
    """Also those that have no folder, and so cannot see that the results are there."""
    words = ("fit", data, *FAST, "--out", "run")
    assert pollux(*words).code == 0
    before = tree(Path("run"))
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    group |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "1"}
    command = [sys.executable, "-m", "pollux", *map(str, words)]
    started = [
        subprocess.Popen(
            command, env={**os.environ, **group, "RANK": rank}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for rank in "01"
    ]
    printed = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], printed
    assert [b"saved in run" in out for out, _ in printed] == [True, False]
    assert tree(Path("run")) == before


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
    from pollux.training.steps import ClusterMetrics

    calls = []
    compute = ClusterMetrics.compute

    def interrupted(self: Any, ranks: Any = None) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return compute(self, ranks)

    monkeypatch.setattr(ClusterMetrics, "compute", interrupted)
    X = np.random.default_rng(0).normal(size=(20, 2))
    clustering = GeminiClustering(2, model="mlp", max_epochs=9, callbacks=[Interruptible()], random_state=0).fit(X)
    assert {len(values) for values in clustering.history_.values()} == {2}


@pytest.mark.parametrize("name", ["checkpoint-x.safetensors", "checkpoint-00001.safetensors"])
def test_what_no_training_has_named_is_no_checkpoint(data: Path, name: str) -> None:
    unfinished = Path("run/unfinished")
    unfinished.mkdir(parents=True)
    (unfinished / "run.toml").write_text(settings(data).to_toml())
    (unfinished / name).write_text("anything")
    resumed = pollux("fit", "--resume", "run")
    assert resumed.code == 2
    assert "has no checkpoint of anything learned" in resumed.err
    assert "--overwrite" in resumed.err
