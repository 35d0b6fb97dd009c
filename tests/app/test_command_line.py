"""The command as users run it: a process of its own, its output, its exit code, and what it leaves behind."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import refused
from coverings import IS_FULL, in_full
from data_files import FAST, Answer, delimited, frame, pixels, tree, write_bytes
from data_files import pollux as answered
from data_files import write_images as images_in
from data_files import write_table as table_in
from fault_runs import Child
from pollux import load
from pollux.app import cli

COMMAND = Path(sys.executable).with_name("pollux")
HEAVY = {"numpy", "scipy", "sklearn", "torch", "pandas", "pyarrow", "rich", "PIL", "matplotlib"}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def pollux(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def here(*words: object) -> Answer:
    """The same within this process, where the test is not about another."""
    answer = answered(*words)
    assert answer.code == 0, answer
    return answer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    data = table_in(folder, "plain.csv", frame())
    done = pollux("fit", data, *FAST, "--label", "class", "--out", folder / "run")
    assert done.stderr == ""
    assert "saved in" in done.stdout
    return folder / "run"


def array(path: Path) -> None:
    np.save(path, np.random.default_rng(0).normal(size=(20, 3)))


def arrays(path: Path) -> None:
    np.savez(path, X=np.random.default_rng(0).normal(size=(20, 3)), y=np.arange(20) % 3)


def pictures(path: Path) -> None:
    images_in(path, pixels(12, 8, 8), names=lambda index: f"{'ab'[index % 2]}/{index}.png")


MORE: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "array.npy": (array, []),
    "arrays.npz": (arrays, ["--label", "y"]),
    "images": (pictures, ["--label", "folder"]),
}


# Others are read by the same means as these; make test-faults runs them too.
FORMATS = ["table.parquet", "arrays.npz", "images"]
if IS_FULL:
    FORMATS += ["packed.csv.gz", "tabs.tsv", "stream.arrow", "array.npy"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_clustered(run: Path, tmp_path: Path, name: str) -> None:
    make, options = MORE.get(name, (lambda path: table_in(path.parent, path.name, frame()), ["--label", "class"]))
    make(tmp_path / name)
    done = here("fit", name, *FAST, *options, "--json", "--out", "new")
    assert done.err == ""
    summary = json.loads(done.out)
    assert summary["scores"] is not None or not options
    clusters = pd.read_csv("new/clusters.csv")
    assert len(clusters) == summary["rows"]
    if name not in MORE:
        assert Path("new/clusters.csv").read_bytes() == (run / "clusters.csv").read_bytes()


def test_the_command_in_the_summary_repeats_the_run(tmp_path: Path) -> None:
    """Through a shell, whatever the names."""
    data = frame().rename(columns={"size": "it's $HOME", "colour": "a,b", "weight": "-x"})
    path = write_bytes(tmp_path / "the da'ta; $(touch sprung).csv", delimited(data))
    here("fit", path, *FAST, "--columns", "it's $HOME", "--columns=-x", "--columns", "a,b", "--out", "first")
    command = json.loads(Path("first/summary.json").read_text())["command"]
    assert command.startswith("pollux fit ")
    # What the shell makes of the words, without the seconds that another process takes to begin.
    show = shlex.join([sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"])
    shell = f"{show}{command.removeprefix('pollux')} --out second"
    done = subprocess.run(shell, shell=True, check=True, capture_output=True, text=True, timeout=300)
    here(*json.loads(done.stdout))
    for name in ("clusters.csv", "run.toml"):
        assert Path("first", name).read_bytes() == Path("second", name).read_bytes()
    assert not Path("sprung").exists()


def test_predict_report_and_export_follow(run: Path) -> None:
    answer = here("predict", run, run.parent / "plain.csv")
    assert (answer.out, answer.err) == ((run / "clusters.csv").read_text(), "")
    answer = here("report", run, "--out", "page.html")
    assert (answer.out, answer.err) == ("report written to page.html\n", "")
    assert here("export", run, "--onnx", "model.onnx").err == ""
    assert Path("page.html").stat().st_size > 1000
    assert Path("model.onnx").stat().st_size > 1000


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    write_bytes(tmp_path / "empty.csv", b"")
    before = tree(tmp_path)
    done = pollux("fit", "empty.csv", code=2)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "empty.csv" in done.stderr
    assert tree(tmp_path) == before


@in_full
def test_whoever_has_seen_enough_may_leave(run: Path, tmp_path: Path) -> None:
    """As head does: the rest need not be written, and nobody complains."""
    head, *rows = delimited(frame()).splitlines(keepends=True)
    # More than a pipe holds.
    write_bytes(tmp_path / "long.csv", head + "".join(rows) * 300)
    with subprocess.Popen(
        [COMMAND, "predict", run, "long.csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith('"row"')
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


# Usage


def test_without_a_command_there_is_help() -> None:
    answer = answered()
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


# Lightness


def first_to_import(modules: set[str], commands: list[list[str]]) -> list[str] | None:
    """The first of the commands, given one after the other in a process, that imports one of the modules."""
    program = f"""
        import json, sys
        from pollux.app.cli import main
        for words in {commands!r}:
            try:
                main(words)
            except SystemExit:
                pass
            if set(sys.modules) & {modules!r}:
                break
        else:
            words = None
        print(file=sys.stderr)
        print(json.dumps(words), file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=300
    )
    found: list[str] | None = json.loads(done.stderr.splitlines()[-1])
    return found


def test_help_and_usage_come_at_once() -> None:
    commands = [
        ["--help"],
        ["--version"],
        ["fit", "--help"],
        ["predict", "--help"],
        ["report", "--help"],
        ["export", "--help"],
        [],
        ["nothing"],
        ["fit", "--nothing"],
        ["fit", "d.csv", "--clusters", "x"],
        ["fit", "d.csv", "--preset", "x"],
        ["predict", "run"],
    ]
    assert first_to_import(HEAVY, commands) is None


def test_complaints_come_before_torch() -> None:
    commands = [
        ["fit", "nowhere.csv"],
        ["fit", "d.csv", "--model", "x"],
        ["fit", "d.csv", "--clusters", "0"],
        ["fit", "--config", "nowhere.toml"],
        ["fit", "--resume", "nowhere"],
        ["select", "nowhere.csv"],
        ["predict", "nowhere", "d.csv"],
        ["report", "nowhere"],
        ["export", "nowhere", "--onnx", "m.onnx"],
    ]
    assert first_to_import({"torch", "sklearn"}, commands) is None
    # A command that does import it is found.
    assert first_to_import({"argparse"}, commands) == commands[0]


def test_the_package_is_light() -> None:
    program = "import sys, pollux; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & HEAVY


def test_help_is_help() -> None:
    done = pollux("--help")
    assert done.stderr == ""
    for command in ("fit", "predict", "report", "export"):
        assert command in done.stdout
        assert pollux(command, "--help").stdout.startswith(f"usage: pollux {command}")
    assert pollux(code=2).stdout == ""


def test_every_argument_is_explained() -> None:
    for command in cli.COMMANDS:
        parsers = [cli.parser(command).chosen]
        for parser in parsers:  # which grows by commands within commands
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction):
                    parsers += action.choices.values()
                else:
                    assert action.help, f"{parser.prog}: {action.dest}"


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "pollux", "--help"], capture_output=True, text=True, check=True)
    assert "usage: pollux" in done.stdout


def test_the_version_is_printed() -> None:
    done = pollux("--version")
    assert done.stdout.startswith("pollux ")
    assert done.stderr == ""


# Terminals and Ctrl-C


def shown_on_a_terminal(*words: object) -> tuple[str, str]:
    """What a command shows on a terminal, which is its standard error, and what it prints."""
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # which is how Linux says that the other side has gone
            while block := os.read(ours, 65_536):
                shown.extend(block)

    reader = threading.Thread(target=read)
    reader.start()
    printed = io.StringIO()
    with open(theirs, "w") as terminal, contextlib.redirect_stderr(terminal), contextlib.redirect_stdout(printed):
        assert cli.main([str(word) for word in words]) == 0
    reader.join()
    os.close(ours)
    return shown.decode(), printed.getvalue()


def test_progress_is_shown_on_a_terminal(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    options = ["--clusters", 3, "--objective", "mmd_ova", "--epochs", 30, "--restarts", 1, "--out", "new"]
    shown, printed = shown_on_a_terminal("fit", run.parent / "plain.csv", *options)
    assert "epoch" in shown
    assert "30/30" in shown
    assert "objective" in shown
    assert "epoch" not in printed.splitlines()[0]
    assert "saved in new" in printed


def test_rows_are_counted_on_a_terminal(run: Path) -> None:
    shown, _ = shown_on_a_terminal("predict", run, run.parent / "plain.csv", "--out", "new.csv")
    assert "30 rows" in shown


def test_ctrl_c_in_training_keeps_what_was_learned(run: Path, tmp_path: Path) -> None:
    options = ["--clusters", 3, "--objective", "mmd_ova", "--epochs", 10**7, "--restarts", 1, "--out", "stopped"]
    child = Child(tmp_path, "fit", run.parent / "plain.csv", *options)
    # A checkpoint is written when training begins; an epoch of thirty rows takes milliseconds.
    child.wait_for(lambda: any(Path("stopped/unfinished").glob("*.safetensors")))
    time.sleep(1)
    child.send(signal.SIGINT)
    ended = child.end()
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert ended.err.count("\n") == 1
    assert "pollux fit --" in ended.err
    assert "saved in stopped" in ended.out
    summary = json.loads(Path("stopped/summary.json").read_text())
    assert summary["interrupted"] is True
    assert summary["epochs"] >= 1
    clusters = pd.read_csv("stopped/clusters.csv")
    np.testing.assert_array_equal(load("stopped/model.safetensors").predict(frame()), clusters["cluster"])


@pytest.mark.parametrize(
    "number",
    # The other takes the same way, and is sent at every change of a file by the tests of faults.
    [signal.SIGTERM, *([signal.SIGINT] if IS_FULL else [])],
)
def test_a_signal_before_the_first_epoch_leaves_a_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    np.save("rows.npy", np.random.default_rng(0).normal(size=(2_000, 8)).astype(np.float32))
    options = ("--clusters", 3, "--batch-size", 100, "--out", "stopped")
    child = Child(tmp_path, "fit", "rows.npy", *options, sabotage={"slow_steps": 0.2})
    child.wait_for(lambda: list(Path("stopped").glob("unfinished/*.safetensors")))
    child.send(number)
    ended = child.end()
    assert ended.code == 130
    assert "pollux fit --resume stopped" in ended.err
    assert ended.err.count("\n") == 1
    assert list(Path("stopped").iterdir()) == [Path("stopped/unfinished")]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what it has loaded cannot be seen here")
def test_ctrl_c_while_it_starts_leaves_nothing(run: Path, tmp_path: Path) -> None:
    def heed() -> None:
        # Also where the tests themselves run in the background.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    command = [COMMAND, "fit", run.parent / "plain.csv", "--out", "stopped"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, preexec_fn=heed, **pipes) as process:
        while "numpy" not in Path(f"/proc/{process.pid}/maps").read_text():
            assert process.poll() is None, "it has ended already"
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in complaints
    assert not list(tmp_path.iterdir())


def test_an_option_that_is_nearly_known_is_named(data: Path) -> None:
    assert "Did you mean '--columns'?" in refused("fit", data, "--colums", "size")
    assert "Did you mean" not in refused("fit", data, "--zzzzzz")
    # By what other programs call it.
    assert "Did you mean '--delimiter'?" in refused("fit", data, "--sep", ";")
    # One line says it, and where to read more.
    assert refused("fit", data, "--epochs", "many").endswith(" See: pollux fit --help\n")
    # Before the data are looked at.
    assert "Did you mean 'rbf'?" in refused("fit", "nowhere.csv", "--geometry", "rfb:gamma=1")


def test_words_that_are_nearly_known_are_named(data: Path, tmp_path: Path) -> None:
    assert "Did you mean 'fit'?" in refused("fitt", data)
    assert "Did you mean 'tables'?" in refused("fit", data, "--preset", "table")
    # A required option that is misspelled is not called missing.
    assert "Did you mean '--onnx'?" in refused("export", tmp_path, "--onx", "model.onnx")
    assert "are required: --onnx" in refused("export", tmp_path)
    assert "are required: --onnx" in refused("export", "--", tmp_path)
    assert "a whole number is needed, not '3.5'" in refused("select", data, "--to", "3.5")
    assert "scaled to squares: --image-size 32. See" in refused("fit", "photos", "--image-size", "32x20")
    (tmp_path / "runs" / "cars").mkdir(parents=True)
    assert "Did you mean 'cars'?" in refused("report", tmp_path / "runs" / "carss")
    assert f"a run is needed, the folder that pollux fit {data} writes" in refused("report", data)


@pytest.mark.parametrize("words", [("predict", "nowhere", "x.csv"), ("explain", "nowhere"), ("report", "nowhere")])
def test_that_there_is_no_run_is_said_before_torch_is_imported(words: tuple[str, ...]) -> None:
    code = "import sys; from pollux.app import cli; sys.exit(cli.main(sys.argv[1:]) + 10 * ('torch' in sys.modules))"
    left = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert left.returncode == 2, left.stderr
    assert "There is no run nowhere" in left.stderr
